"""Code that was written for LiteLLM's agent API works here: the names that it imports, the objects that it makes, the calls
that it makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys

import pytest

import toolloop_jupyter as tl
from support.servers import answer
from toolloop_jupyter import Harness, aagent, aagent_session, agent_session, sandbox
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call as asks

LOOP = Harness.TOOL_LOOP


# --- names --------------------------------------------------------------------------------------------------------


def test_every_name_of_litellms_is_there_or_says_why_not():
    """Each public name of `litellm.harness` can be imported from this package. If not, the error says where it can be found."""
    theirs = pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API to compare with")
    elsewhere = set()
    for name in theirs.__all__:
        with contextlib.suppress(ImportError):
            getattr(tl, name)
            continue
        with pytest.raises(ImportError, match=r"Import \w+ from litellm\.harness"):
            getattr(tl, name)
        elsewhere.add(name)
    options = {name for name in theirs.__all__ if name.endswith("Options")} - {"ToolLoopOptions"}
    assert elsewhere == {"State", "agent_resume", "aagent_resume", *options}
    with pytest.raises(ImportError, match="another harness"):
        from toolloop_jupyter import ClaudeCodeOptions  # noqa: F401


def test_what_only_other_harnesses_do():
    """Events and errors of other harnesses are types. For features that the Tool Loop lacks, LiteLLM's error is raised."""
    assert tl.Compaction(10, 5) == tl.Compaction(tokens_before=10, tokens_after=5)
    assert issubclass(tl.HarnessInstallFailed, tl.HarnessError)
    assert issubclass(tl.StateIncompatible, tl.HarnessError)
    with pytest.raises(ImportError, match=r"session\.save\(path\); to continue it, write .*history=load"):
        from toolloop_jupyter import agent_resume  # noqa: F401
    with pytest.raises(tl.CapabilityUnsupported, match="confine nothing"):
        sandbox.docker("python:3.12", mounts={".": "/workspace"})


def test_events_are_made_as_litellms():
    """An Approval can be made without a loop, and answered. A ToolCall counts as built in unless it says otherwise."""
    approval = tl.Approval("rm", {"path": "x"})
    assert not approval.answered
    approval.allow()
    assert approval.answered
    assert asyncio.run(approval.wait()) == (True, "")
    assert tl.ToolCall("1", "bash", "Bash", {}).builtin


async def test_an_approval_is_awaited_by_many():
    """All code that waits for an Approval gets its decision, even if one of the waiting tasks was cancelled before."""
    approval = tl.Approval("rm", {})
    first, second = (asyncio.ensure_future(approval.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    await asyncio.to_thread(approval.deny, "no")
    assert await second == (False, "no")


async def test_an_async_stream_can_be_closed(call):
    """`await stream.close()` does the same as `aclose()`. Sync streams have `close()`, too."""
    more, _ = call(answer("a b c d", hold_after=3))
    stream = aagent(LOOP, "Go", stream=True, **more)
    await stream.__anext__()
    await stream.close()
    assert stream.result.stop_reason == "cancelled"


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"instructions": 5}, "instructions must be text or None, got int 5"),
        ({"on_approval": 5}, "on_approval must be a function that takes the Approval"),
        ({"max_turns": "3"}, "max_turns must be a whole number or None, got str '3'"),
        ({"max_turns": True}, "max_turns must be a whole number"),
        ({"timeout": "3"}, "timeout must be a number of seconds or None, got str '3'"),
        ({"metadata": [1]}, "metadata must be a mapping"),
        ({"api_base": 5}, "api_base must be an address as text"),
        ({"model": "litellm_proxy/"}, "litellm_proxy/ needs the name of a model group"),
    ],
)
def test_arguments_of_the_wrong_kind(keywords, words):
    """One line names the argument and the value, before anything starts."""
    with pytest.raises((TypeError, ValueError), match=re.escape(words)) as caught:
        aagent(LOOP, "Go", **{"model": "openai/stub", **keywords})
    assert isinstance(caught.value, tl.HarnessError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ("abc", "must be a list of messages, such as load(path) gives, not str 'abc'"),
        (None, "must be a list of messages"),
        ({"role": "user"}, "must be a list of messages"),
        ([1], "message 0 must be a dict such as {'role': 'user', 'content': 'Hello'}, not int 1"),
    ],
)
def test_a_history_that_is_none(history, words):
    """If `history` is not a list of messages, HistoryInvalid says so in one line."""
    with pytest.raises(tl.HistoryInvalid, match=re.escape(words)) as caught:
        agent_session(LOOP, model="openai/stub", history=history)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("instructions", ["", "  \n"])
async def test_empty_instructions(call, instructions):
    """Empty instructions send no system message, and remove the one of a history."""
    more, server = call(answer("Hi."), answer("Hi."))
    session = aagent_session(LOOP, instructions=instructions, **more)
    await session.arun("Go")
    assert [m["role"] for m in server.requests[0].messages] == ["user"]
    before = [{"role": "system", "content": "Be brief."}, *(await session.history())]
    session = aagent_session(LOOP, instructions=instructions, history=before, **more)
    await session.arun("Go on")
    assert [m["role"] for m in server.requests[1].messages] == ["user", "assistant", "user"]
    session.rewind(0)
    assert [m["role"] for m in await session.history()] == ["user", "assistant"]


# --- what is left of a tool that was cut off ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timeout", "cancel", "exit"])
async def test_a_tool_that_was_cut_off_has_run(how):
    """If a call was started and cut off, its result says that it ran, and for how long."""

    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(0.05)
        if how == "exit":
            sys.exit(1)
        await asyncio.sleep(20)
        return "ok"

    scripted = ScriptedModel([asks("slow"), "ok"])
    stream = aagent(
        LOOP, "Go", stream=True, model=scripted, tools=[slow], timeout=1.0 if how == "timeout" else None
    )
    async for event in stream:
        if isinstance(event, tl.ToolCall) and how == "cancel":
            await asyncio.sleep(0.2)
            stream.cancel()
    (result,) = stream.result.tool_results
    assert (result.ran, result.is_error) == (True, True)
    assert 0 < result.seconds < 5


async def test_a_call_that_was_cut_off_before_it_ran():
    """If a call's function was never started, its result says that it did not run."""

    def add(a: int) -> int:
        """Add."""
        return a

    scripted = ScriptedModel([asks("add", a=1), "ok"])
    stream = aagent(LOOP, "Go", stream=True, model=scripted, tools=[add], permissions="ask")
    async for event in stream:
        if isinstance(event, tl.Approval):
            stream.cancel()
    (result,) = stream.result.tool_results
    assert (result.ran, result.seconds) == (False, 0.0)


# --- sandbox ------------------------------------------------------------------------------------------------------


async def test_a_local_sandbox_reads_its_files_only(tmp_path):
    """`read` stays inside the folder, even through links. The error says what cannot be read."""
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "note.txt").write_bytes(b"one")
    (tmp_path / "other.txt").write_bytes(b"two")
    (tmp_path / "box" / "link").symlink_to(tmp_path / "other.txt")
    async with sandbox.local(tmp_path / "box") as box:
        assert box.workdir == str((tmp_path / "box").resolve())
        assert await box.read("note.txt") == b"one"
        for path in ("../other.txt", str(tmp_path / "other.txt"), "link"):
            with pytest.raises(tl.SandboxError, match="escapes"):
                await box.read(path)
        with pytest.raises(tl.SandboxError, match="could not read gone"):
            await box.read("gone")
        assert list(await box.snapshot()) == ["note.txt"]


async def test_caches_are_no_changed_files(tmp_path):
    """Files that Python's tools leave behind do not count as changes of a turn."""
    for name in (".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x", "utf-8")
    (tmp_path / "kept.txt").write_text("x", "utf-8")
    assert list(await sandbox.local(tmp_path).snapshot()) == ["kept.txt"]
