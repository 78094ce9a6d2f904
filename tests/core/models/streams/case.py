"""A case of the corpus: what the server sends, and what must be true afterwards. A case is run over HTTP, through litellm's
own client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.servers import Entry, ScriptedServer, answer
from toolloop_jupyter import Done, Harness, aagent_session
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.events.events import Reasoning, Retry, Text, ToolCall, ToolResult
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.loop.config import ToolLoopOptions

KEY = "sk-live-0123456789abcdef"
"""The key of every case. No text of a run may contain it."""
NEW = "<new>"
"""Means: an id that we made."""
PROMPT = "Go."


# --- deltas, as a provider sends them ---------------------------------------------------------------------------


def say(text: str) -> dict[str, Any]:
    return {"content": text}


def frag(
    index: int | None = 0, call_id: str | None = None, name: str | None = None, args: Any = None, **more: Any
) -> dict[str, Any]:
    """Return one fragment of a tool call. Fields that are None are not sent."""
    function = {k: v for k, v in (("name", name), ("arguments", args)) if v is not None}
    head = {k: v for k, v in (("index", index), ("id", call_id)) if v is not None}
    return {**head, "type": "function", "function": function, **more}


def tool(*args: Any, **more: Any) -> dict[str, Any]:
    """Return a delta with one fragment."""
    return {"tool_calls": [frag(*args, **more)]}


def both(*fragments: dict[str, Any]) -> dict[str, Any]:
    """Return a delta with several fragments."""
    return {"tool_calls": list(fragments)}


def raw_chunk(*choices: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a whole chunk, for fields outside of the delta."""
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": list(choices),
        **more,
    }


def events(*data: Any) -> Entry:
    """Return a stream of exactly these events: it has no finish reason and no [DONE], and ends without an error."""
    chunks = (
        d if isinstance(d, str) or "choices" in d else raw_chunk({"index": 0, "delta": d}) for d in data
    )
    text = "".join(f"data: {c if isinstance(c, str) else json.dumps(c)}\n\n" for c in chunks)
    return Entry(raw=text, headers={"Content-Type": "text/event-stream"})


def unfinished(*deltas: Any) -> Entry:
    """Return a stream that ends correctly, but without a finish reason."""
    return events(*deltas, "[DONE]")


def whole(message: Mapping[str, Any], finish: str = "stop", **more: Any) -> Entry:
    """Return a response that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return Entry(
        body={"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}
    )


# --- what must be true afterwards ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Want:
    """A call that the model makes, as the history must have it, and the result that the call gets."""

    id: str
    name: str
    args: str
    result: str
    shown: Mapping[str, Any] | None = None
    """The `input` of the event. By default, it is `args` as an object."""
    error: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """An assistant message that must be in the history."""

    text: str | None
    calls: tuple[Want, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str = ""


def ran(call_id: str, name: str, args: str, result: str, **more: Any) -> Want:
    return Want(call_id, name, args, result, **more)


def refused(call_id: str, name: str, args: str, result: str, **more: Any) -> Want:
    """Return a call that is not run. `result` is a regular expression for the text that the model gets."""
    return Want(call_id, name, args, result, error=True, **more)


DONE = Message("Done.")
"""The answer after the calls, unless the case has another one."""


@dataclass(frozen=True)
class Case:
    name: str
    script: Sequence[Any]
    right: Sequence[Message]
    """The assistant messages that the turn must have. The other expectations follow from these, unless the case states them."""
    source: str = ""
    """The public report that the case comes from, such as C45."""
    stop: str = "done"
    error: str | None = None
    """A regular expression for `Result.error`."""
    runs: tuple[str, ...] | None = None
    """What the tools have noted, in order. By default, this follows from `right`."""
    text: str | None = None
    """The expected Result.text. By default, it is the text of the last message."""
    events: Sequence[Any] | None = None
    """All expected events, with adjacent pieces of text joined. By default, they follow from `right`."""
    requests: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    usage: tuple[int, int] | None = None
    model: str = "openai/stub"
    asked: bool = True
    """True if the prompt stays in the history."""


def calling(name: str, chunks: Sequence[Any], right: Message, source: str = "", **more: Any) -> Case:
    """Return a case of one stream with calls, and the usual answer after it."""
    entry = Entry(chunks=chunks, **({"finish": more.pop("finish")} if "finish" in more else {}))
    return Case(name, [entry, answer("Done.")], [right, DONE], source, **more)


def telling(name: str, chunks: Sequence[Any], text: str, source: str = "", **more: Any) -> Case:
    """Return a case of one stream that is the answer."""
    finish = {"finish": more.pop("finish")} if "finish" in more else {}
    extra, reasoning = more.pop("extra", {}), more.pop("reasoning", "")
    right = [Message(text, extra=extra, reasoning=reasoning)]
    return Case(name, [Entry(chunks=chunks, **finish)], right, source, **more)


# --- running one ------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    case: Case
    result: Result
    history: list[dict[str, Any]]
    ran: list[str]
    requests: int
    wrong: list[str]
    """Everything that is not as expected. It is empty if the case holds."""


def _tools(log: list[str]) -> list[Callable[..., Any]]:
    def f(a: int = 0) -> str:
        """Note a."""
        log.append(f"f({a})")
        return f"f({a})"

    def g(b: int = 0) -> str:
        """Note b."""
        log.append(f"g({b})")
        return f"g({b})"

    def read_file(path: str) -> str:
        """Read a file."""
        log.append(f"read_file({path})")
        return f"<{path}>"

    return [f, g, read_file]


async def run_case(case: Case) -> Outcome:
    """Run a case on a server of its own, then a second turn in the same session. Return everything that is wrong."""
    log: list[str] = []
    with ScriptedServer([*case.script, answer("Next.")], repeat_last=False) as server:
        session = aagent_session(
            Harness.TOOL_LOOP,
            model=case.model,
            api_base=server.base_url,
            api_key=KEY,
            tools=_tools(log),
            options=ToolLoopOptions(completion_kwargs=case.options),
        )
        seen = [event async for event in session.astream(PROMPT)]
        done = seen[-1]
        assert isinstance(done, Done)
        messages = await session.history()
        made, used = list(log), len(server.requests)
        following = await session.arun("And now?")
        wrong = _wrong(case, seen[:-1], done.result, messages, made)
        if case.requests is not None and used != case.requests:
            wrong.append(f"requests: {used}, not {case.requests}")
        if following.text != "Next." or (problems := history.validate(await session.history())):
            wrong.append(f"the next turn: {following.text!r} {problems if following.text == 'Next.' else ''}")
    return Outcome(case, done.result, messages, made, used, wrong)


def _wrong(
    case: Case,
    events: Sequence[Any],
    result: Result,
    messages: Sequence[Mapping[str, Any]],
    made: Sequence[str],
) -> list[str]:
    wants = [want for message in case.right for want in message.calls]
    runs = case.runs if case.runs is not None else tuple(w.result for w in wants if not w.error)
    text = case.text if case.text is not None else (case.right[-1].text or "" if case.right else "")
    expected_events = list(case.events) if case.events is not None else _events(case.right)
    checks = [
        ("history is valid", history.validate(messages), []),
        ("stop reason", result.stop_reason, case.stop),
        ("tool runs", [_run_name(r) for r in made], [_run_name(r) for r in runs]),
        ("events", _joined(events), expected_events),
        ("history", _plain(messages, case.right), _messages(case)),
    ]
    if case.stop == "done":
        checks.append(("text", result.text, text))
    if case.usage is not None:
        checks.append(("usage", (result.usage.input_tokens, result.usage.output_tokens), case.usage))
    wrong = [f"{what}: {got!r}, not {right!r}" for what, got, right in checks if got != right]
    if case.error is None and result.error is not None:
        wrong.append(f"error: {result.error!r}")
    if case.error is not None and not re.search(case.error, result.error or ""):
        wrong.append(f"error: {result.error!r} has no {case.error!r}")
    if KEY in repr((events, result, messages)):
        wrong.append("the key is in a text")
    return wrong


def _run_name(run: str) -> str:
    return run.replace("<", "read_file(").replace(">", ")") if run.startswith("<") else run


def _events(right: Sequence[Message]) -> list[tuple[Any, ...]]:
    events: list[tuple[Any, ...]] = []
    for message in right:
        if message.reasoning:
            events.append(("reasoning", message.reasoning))
        if message.text and message.text.strip():
            events.append(("text", message.text))
        for want in message.calls:
            shown = want.shown if want.shown is not None else _json(want.args)
            events.append(("call", want.name, shown))
            events.append(("result", want.error, want.result))
    return events


def _json(text: str) -> Any:
    return json.loads(text)


class Like(str):
    """A text that is equal to every text in which its regular expression is found."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.search(str(self), other) is not None

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _joined(events: Sequence[Any]) -> list[tuple[Any, ...]]:
    joined: list[tuple[Any, ...]] = []
    for event in events:
        kind = {Text: "text", Reasoning: "reasoning"}.get(type(event))
        if kind is not None and joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + event.delta)
        elif kind is not None:
            joined.append((kind, event.delta))
        elif isinstance(event, ToolCall):
            joined.append(("call", event.native_name, dict(event.input)))
        elif isinstance(event, ToolResult):
            joined.append(("result", event.is_error, event.output))
        elif isinstance(event, Retry):
            joined.append(("retry", event.attempt, event.discard))
        else:
            joined.append((type(event).__name__,))
    return joined


def _messages(case: Case) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}] if case.asked else []
    for message in case.right:
        made: dict[str, Any] = {"role": "assistant", "content": message.text}
        if message.calls:
            made["tool_calls"] = [
                {
                    "id": w.id,
                    "type": "function",
                    "function": {"name": w.name, "arguments": w.args},
                    **w.extra,
                }
                for w in message.calls
            ]
        if message.reasoning:
            made["reasoning_content"] = message.reasoning
        messages.append({**made, **message.extra})
        messages.extend({"role": "tool", "tool_call_id": w.id, "content": w.result} for w in message.calls)
    return messages


def _plain(messages: Sequence[Mapping[str, Any]], right: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the history with NEW in place of the ids that we made. Check that each such id is unique, and is the same in a
    call and its result.
    """
    given_ids = {want.id for message in right for want in message.calls}
    plain: list[dict[str, Any]] = []
    made: list[str] = []
    for message in messages:
        copied = dict(message)
        if copied.get("tool_calls"):
            calls = [dict(call) for call in copied["tool_calls"]]
            made += [call["id"] for call in calls]
            for call in calls:
                call["id"] = call["id"] if call["id"] in given_ids else NEW
            copied["tool_calls"] = calls
        if copied.get("tool_call_id"):
            copied["tool_call_id"] = copied["tool_call_id"] if copied["tool_call_id"] in given_ids else NEW
        plain.append(copied)
    assert len(set(made)) == len(made), f"ids are not unique: {made}"
    return plain
