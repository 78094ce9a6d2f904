"""A provider gets the fields of its answer back in the form that it requires. Whole turns run through LiteLLM's own request
conversions.

The server speaks Anthropic's and Gemini's protocols. In a turn with thinking and a tool call, these providers refuse the
second request if a block, a signature or a result is missing or at the wrong place.
"""

from __future__ import annotations

import pytest

from support.protocols import anthropic, anthropic_head, gemini, sse, thinking, use, words
from toolloop_jupyter import Harness, aagent_session, load
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.events.events import Reasoning
from toolloop_jupyter.core.loop.config import ToolLoopOptions


def f(a: int = 0) -> str:
    """Return a."""
    return f"f({a})"


def g(b: int = 0) -> dict:
    """Return b as an object."""
    return {"b": b}


SCRIPTS = {
    "thinking, text and two calls": [
        thinking("I will |call.", "SIG1"),
        ({"type": "redacted_thinking", "data": "RED"}, []),
        words("Let me |look."),
        use("tu1", "f", "", '{"a"', ": 1}"),
        use("tu2", "g"),
    ],
    "thinking and a call": [thinking("Hm.", "SIG1"), use("tu1", "f", '{"a": 1}')],
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_anthropic_gets_its_thinking_back(serve, name, tmp_path):
    """C56: Anthropic gets the thinking first, with its signature, then the text, then the calls. The results follow in one
    user message.
    """
    server = serve([anthropic(*SCRIPTS[name], stop="tool_use"), anthropic(words("Done."))])
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="anthropic/claude-sonnet-4-5",
        api_base=server.base_url.removesuffix("/v1"),
        api_key="sk-ant-none",
        tools=[f, g],
        options=ToolLoopOptions(
            completion_kwargs={"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
        ),
    )
    result = await session.arun("Go.")
    assert result.text == "Done.", result.error
    assert "".join(e.delta for e in result.events if isinstance(e, Reasoning))
    blocks = [start for start, _ in SCRIPTS[name]]
    sent = server.requests[1].messages
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert [b["type"] for b in sent[1]["content"]] == [b["type"] for b in blocks]
    first = sent[1]["content"][0]
    assert (first["thinking"], first["signature"]) == ("I will call." if len(blocks) > 2 else "Hm.", "SIG1")
    assert next(b["input"] for b in sent[1]["content"] if b["type"] == "tool_use") == {"a": 1}
    uses = [b["id"] for b in sent[1]["content"] if b["type"] == "tool_use"]
    assert [b["tool_use_id"] for b in sent[2]["content"]] == uses
    assert all(b["type"] == "tool_result" and b["content"] for b in sent[2]["content"])
    assert history.validate(await session.history()) == []

    # The same is true after the session was saved, loaded and continued.
    session.save(tmp_path / "h.json")
    again = aagent_session(
        Harness.TOOL_LOOP,
        model="anthropic/claude-sonnet-4-5",
        api_base=server.base_url.removesuffix("/v1"),
        api_key="sk-ant-none",
        tools=[f, g],
        history=load(tmp_path / "h.json"),
        options=ToolLoopOptions(
            completion_kwargs={"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
        ),
    )
    assert (await again.arun("And now?")).text == "Done."
    assert server.requests[2].messages[1]["content"] == sent[1]["content"]


async def test_anthropic_after_a_stop(serve):
    """C62: in the request after a cancelled turn, each tool_use is directly followed by a result."""
    server = serve(
        [anthropic(use("tu1", "f", '{"a": 1}'), use("tu2", "g"), stop="tool_use"), anthropic(words("Done."))]
    )
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="anthropic/claude-sonnet-4-5",
        api_base=server.base_url.removesuffix("/v1"),
        api_key="sk-ant-none",
        tools=[f, g],
        permissions="ask",
    )
    stream = session.astream("Go.")
    async for event in stream:
        if type(event).__name__ == "Approval":
            stream.cancel()
    assert stream.result.stop_reason == "cancelled"
    assert (await session.arun("And now?")).text == "Done."
    sent = server.requests[1].messages
    assert [b["id"] for b in sent[1]["content"]] == ["tu1", "tu2"]
    assert [b["tool_use_id"] for b in sent[2]["content"] if b["type"] == "tool_result"] == ["tu1", "tu2"]


async def test_anthropic_without_arguments(serve):
    """C29: a call without arguments is sent back with an empty object as its input."""
    server = serve([anthropic(use("tu1", "f"), stop="tool_use"), anthropic(words("Done."))])
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="anthropic/claude-sonnet-4-5",
        api_base=server.base_url.removesuffix("/v1"),
        api_key="sk-ant-none",
        tools=[f],
    )
    assert (await session.arun("Go.")).text == "Done."
    assert server.requests[1].messages[1]["content"][0]["input"] == {}


async def test_gemini_gets_its_thought_signatures_back(serve, tmp_path):
    """C58: Gemini gets the signature of a call back with this call, even after save and load."""
    server = serve(
        [
            gemini(
                {"text": "I think.", "thought": True},
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "VFMx"},
                {"functionCall": {"name": "g", "args": {"b": 2}}},
            ),
            gemini({"text": "Done."}),
        ]
    )

    def made(**more):
        return aagent_session(
            Harness.TOOL_LOOP,
            model="gemini/gemini-3-pro-preview",
            api_base=server.base_url,
            api_key="none",
            tools=[f, g],
            **more,
        )

    session = made()
    result = await session.arun("Go.")
    assert result.text == "Done.", result.error
    assert [r.output for r in result.tool_results] == ["f(1)", '{"b": 2}']
    sent = server.requests[1].body["contents"]
    assert [c["role"] for c in sent] == ["user", "model", "user"]
    made_calls = [p for p in sent[1]["parts"] if "function_call" in p or "functionCall" in p]
    assert [(p.get("function_call") or p["functionCall"])["name"] for p in made_calls] == ["f", "g"]
    assert made_calls[0].get("thoughtSignature", made_calls[0].get("thought_signature")) == "VFMx"
    answers = [p for p in sent[2]["parts"] if "function_response" in p or "functionResponse" in p]
    assert len(answers) == 2
    assert history.validate(await session.history()) == []
    session.save(tmp_path / "h.json")
    again = made(history=load(tmp_path / "h.json"))
    assert (await again.arun("And now?")).text == "Done."
    assert server.requests[2].body["contents"][1] == sent[1]


@pytest.mark.parametrize("pieces", [(), ('{"a"',)], ids=["before the arguments", "in the arguments"])
async def test_anthropic_that_ends_in_the_middle_of_a_call(serve, pieces):
    """If a stream just ends, LiteLLM makes up a finish reason. The incomplete call does not run, and a retry gets the whole
    call.
    """
    usage = {"input_tokens": 10, "output_tokens": 1}
    start, deltas = use("tu1", "f", *pieces)
    cut = sse(
        {"type": "message_start", "message": anthropic_head(usage)},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
    )
    server = serve([cut, anthropic(use("tu1", "f", '{"a": 1}'), stop="tool_use"), anthropic(words("Done."))])
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="anthropic/claude-sonnet-4-5",
        api_base=server.base_url.removesuffix("/v1"),
        api_key="sk-ant-none",
        tools=[f],
        options=ToolLoopOptions(completion_kwargs={"num_retries": 1}),
    )
    result = await session.arun("Go.")
    assert result.text == "Done.", result.error
    assert [r.output for r in result.tool_results] == ["f(1)"]
    assert len(server.requests) == 3
