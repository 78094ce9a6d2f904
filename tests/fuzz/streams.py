"""Server streams: one message with text, thoughts and calls, in the many forms that servers use, and then spoilt.

An input names the calls that the model means, so it is known which calls must run. If the message is only cut, repeated and
sent in another form, exactly these calls run. If deltas were moved, doubled or dropped, no call runs twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from fuzz.running import DONE, FOLLOWING, NAMES, NEXT, Script, counting_tools, watch
from fuzz.seam import Seam, Seen
from toolloop_jupyter import ToolLoopOptions
from toolloop_jupyter.core.models import client

Delta = dict[str, Any]

LETTERS = 'ab{}[]":,\\ \nü😀'
WORDS = st.text(LETTERS, max_size=8)
ARGUMENT = st.text(LETTERS, max_size=6)
CUTS = st.lists(st.integers(0, 12), max_size=3)
STYLES = st.fixed_dictionaries(
    {
        "ids": st.sampled_from(("once", "every", "never", "empty", "number")),
        "index": st.booleans(),
        "name": st.sampled_from(("whole", "cut", "again")),
        "field": st.sampled_from(("new", "new", "old", "both")),
        "data": st.booleans(),
        "ascii": st.booleans(),
        "parts": st.booleans(),
        "interleaved": st.booleans(),
    }
)


def cut(text: str, places: Sequence[int]) -> list[str]:
    """Return `text` in at least one piece. The cuts are at `places`, counted from the beginning, modulo the length."""
    ends = sorted(place % (len(text) + 1) for place in places)
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def _tell_call(number: int, call: Sequence[Any], style: dict[str, Any], places: Sequence[int]) -> list[Delta]:
    """Return the fragments of one call."""
    name, n, s = call
    arguments: Any = {"n": n, **({"s": s} if s else {})}
    names = cut(name, places[:1]) if style["name"] == "cut" else [name]
    names = names if all(names) and names[0] not in NAMES else [name]
    if style["data"]:
        fragments = [{"name": name, "arguments": arguments}]
    else:
        pieces = cut(json.dumps(arguments, ensure_ascii=style["ascii"]), places)
        again = {"name": name} if style["name"] == "again" and len(names) == 1 else {}
        fragments = [
            *({"name": part} for part in names),
            *({"arguments": piece, **again} for piece in pieces),
        ]
    call_id: Any = {"never": None, "empty": "", "number": 100 + number}.get(style["ids"], f"c{number}")
    made = []
    for at, function in enumerate(fragments):
        head = {"index": number} if style["index"] else {}
        if call_id is not None and (at == 0 or style["ids"] == "every"):
            head["id"] = call_id
        new = {"tool_calls": [{**head, "type": "function", "function": function}]}
        old = {"function_call": function}
        made.append({"new": new, "old": old, "both": {**new, **old}}[style["field"]])
    return made


def _interleave(streams: Sequence[Sequence[Delta]]) -> list[Delta]:
    """Return the first item of each list in order, then the other items in turns."""
    longest = max(map(len, streams), default=0)
    return [stream[at] for at in range(longest) for stream in streams if at < len(stream)]


@st.composite
def messages(draw: st.DrawFn, first: int = 0) -> dict[str, Any]:
    """Draw {"means": {"text", "calls"}, "deltas"}: the message that the model means, and the deltas of its server. `first` is
    the number of the first call.
    """
    calls = [
        [name, first + n, s]
        for n, (name, s) in enumerate(draw(st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENT), max_size=3)))
    ]
    style, text, places = draw(STYLES), draw(WORDS), draw(CUTS)
    thought = draw(st.sampled_from(("", "", "Hm. ")))
    streams = [_tell_call(number, call, style, places) for number, call in enumerate(calls)]
    told_apart = style["index"] and style["field"] == "new"
    deltas = (
        _interleave(streams) if style["interleaved"] and told_apart else [one for s in streams for one in s]
    )
    words = [{"content": [{"type": "text", "text": p}] if style["parts"] else p} for p in cut(text, places)]
    thoughts = [{"reasoning_content": thought}] if thought else []
    return {"means": {"text": text, "calls": calls}, "style": style, "deltas": [*thoughts, *words, *deltas]}


SPOILING = st.lists(
    st.tuples(st.sampled_from(("double", "move", "again", "drop")), st.integers(0, 30), st.integers(0, 30)),
    max_size=4,
)


def spoil(deltas: list[Delta], steps: Sequence[tuple[str, int, int]]) -> list[Delta]:
    """Return the deltas, some of them doubled, repeated later, moved or dropped."""
    made = list(deltas)
    for what, one, other in steps:
        if not made:
            break
        at, to = one % len(made), other % len(made)
        if what == "double":
            made.insert(at, made[at])
        elif what == "again":
            made.insert(max(at, to), made[at])
        elif what == "move":
            made.insert(to, made.pop(at))
        else:
            del made[at]
    return made


JUNK = st.one_of(
    st.builds(
        lambda index, call_id, function: {
            "tool_calls": [{"index": index, "id": call_id, "function": function}]
        },
        st.sampled_from((None, 0, 1, 7, -1)),
        st.sampled_from((None, "", "c0", "c1", 3, "\ud83d")),
        st.fixed_dictionaries(
            {
                "name": st.sampled_from((None, "", "f", "g", "functions.f", "nobody", " f ", "\ud83d")),
                "arguments": st.sampled_from(
                    (
                        None,
                        "",
                        "{}",
                        "{",
                        "}",
                        '"',
                        "null",
                        "[1]",
                        '{"n":NaN}',
                        '{"n":9,"n":9}',
                        {},
                        [],
                        5,
                        "\ud83d",
                    )
                ),
            }
        ),
    ),
    st.builds(
        lambda text: {"content": text},
        st.sampled_from(
            (None, "", " ", "<think>", "</think>", "<thi", "x", "\ud83d", "\ude00", [], [{"type": "text"}])
        ),
    ),
    st.sampled_from(
        (
            {},
            {"role": "assistant"},
            {"refusal": "no"},
            {"reasoning_content": "\ud83d"},
            {"reasoning_content": "r"},
            {"tool_calls": []},
            {"tool_calls": None, "function_call": None},
            {"function_call": {"name": "g", "arguments": '{"n":'}},
            {"tool_calls": [{}]},
            {"tool_calls": [{"custom": {"name": "f", "input": '{"m": 8}'}}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "S"}]},
            {"thinking_blocks": [{"type": "redacted_thinking", "data": "D"}]},
            {"reasoning_details": [{"a": 1}], "reasoning_items": [{"b": 2}]},
            {"provider_specific_fields": {"a": [1, {"b": "\ud83d"}], "c": None}},
            {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            {"annotations": [{"type": "url_citation", "url_citation": {"url": "http://x", "title": "T"}}]},
            {"audio": {"data": "AA", "transcript": "hi"}},
            {"content": [{"type": "image_url", "image_url": "data:image/png;base64,AA=="}]},
        )
    ),
)


@st.composite
def spoilt(draw: st.DrawFn, first: int = 0) -> dict[str, Any]:
    """Draw a message whose deltas were spoilt. Some of them are junk."""
    message = draw(messages(first))
    steps, style = draw(SPOILING), message["style"]
    if not (style["field"] == "new" and (style["index"] or style["ids"] == "every")):
        # A fragment without an id and an index belongs to the call before it. If it is moved, it belongs to another call.
        steps = [step for step in steps if step[0] == "drop"]
    deltas = spoil(message["deltas"], steps)
    for at, junk in draw(st.lists(st.tuples(st.integers(0, 30), JUNK), max_size=3)):
        deltas.insert(at % (len(deltas) + 1), junk)
    return {"deltas": deltas}


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one or two model calls. Some break off and are tried again. The whole turn may be stopped."""
    if draw(st.integers(0, 9)) < 4:
        message = draw(messages())
        given: dict[str, Any] = {
            "turns": [{"deltas": message["deltas"]}],
            "means": message["means"],
            "style": message["style"],
        }
        if (breaks := draw(st.integers(0, 12))) < 6:  # first a try that breaks off, then the whole message
            broken = {"deltas": message["deltas"][:breaks], "breaks": draw(st.sampled_from((None, 500, 429)))}
            given["turns"] = [broken, *given["turns"]]
            given["retries"] = 1
    else:
        made = [draw(spoilt(first)) for first in range(0, 20 if draw(st.booleans()) else 10, 10)]
        if draw(st.booleans()):
            made[0]["finish"] = draw(st.sampled_from(("length", "content_filter", "stop", "nonsense")))
        elif draw(st.booleans()):
            made[0]["breaks"] = draw(st.sampled_from((None, 400, 408, 429, 500)))
        given = {
            "turns": made,
            "retries": draw(st.integers(0, 1)),
            "stop": draw(st.none() | st.integers(1, 6)),
        }
        if draw(st.integers(0, 5)) == 0:
            given["max_turns"] = draw(st.integers(1, 2))
            given["on_limit"] = draw(st.sampled_from(("stop", "answer")))
    given["form"] = draw(st.sampled_from(("dicts", "dicts", "objects", "whole")))
    given["threads"] = draw(st.integers(0, 7)) == 0
    return given


# --- running one --------------------------------------------------------------------------------------------------


class _StandIn:
    """Replaces LiteLLM's `acompletion`: the script's deltas come as LiteLLM's own objects."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def __getattr__(self, name: str) -> Any:
        import litellm

        return getattr(litellm, name)

    async def acompletion(self, *, messages: list[Any], **_: Any) -> Any:
        from toolloop_jupyter.core.models import ProviderRequest

        return self._chunks(self._script.respond(ProviderRequest("stub/x", messages)))

    async def _chunks(self, deltas: AsyncIterator[Delta]) -> AsyncIterator[Any]:
        from litellm.types.utils import Delta as TheirDelta
        from litellm.types.utils import ModelResponseStream, StreamingChoices

        async for given in deltas:
            finish = given.pop("finish_reason", None)
            try:
                delta = TheirDelta(**json.loads(json.dumps(given)))
            except Exception:  # LiteLLM would not send these, because it does not count them as deltas
                delta = given
            yield (
                ModelResponseStream(choices=[StreamingChoices(index=0, delta=delta, finish_reason=finish)])
                if delta is not given
                else {"choices": [{"index": 0, "delta": given}]}
            )
            await asyncio.sleep(0)


def run_turns(given: dict[str, Any]) -> Seen:
    """Play the turns to a session, in the form that the input says."""
    seen = Seen()
    script = Script(given["turns"], seen)
    options = {
        "num_retries": given.get("retries", 0),
        **({"stream": False} if given["form"] == "whole" else {}),
    }
    more = {name: given[name] for name in ("max_turns",) if name in given}
    limits = {name: given[name] for name in ("on_limit",) if name in given}
    keywords = {
        "tools": counting_tools(seen, threads=given["threads"]),
        "options": ToolLoopOptions(completion_kwargs=options, **limits),
        **more,
    }
    if given["form"] == "objects":
        stand_in = _StandIn(script)
        with mock.patch.object(client.load_litellm(), "acompletion", stand_in.acompletion):
            watch(seen, "stub/x", stop=given.get("stop"), **keywords)
    else:
        watch(seen, script, stop=given.get("stop"), **keywords)
    if "means" in given and seen.results:
        expect(seen, given["means"])
    return seen


def expect(seen: Seen, means: dict[str, Any]) -> None:
    """Note the expected result of a message that was sent completely."""
    seen.must_run = [f"{name} {n}" for name, n, _ in means["calls"]]
    text, result = means["text"], seen.results[0]
    if not means["calls"] and not text.strip():
        seen.pairs.append(("the end of an empty answer", result.stop_reason, "runtime_error"))
        return
    outputs = [f"{name} {n} {s}" for name, n, s in means["calls"]]
    seen.pairs.append(("the results", [one.output for one in result.tool_results], outputs))
    seen.pairs.append(("the text", result.text, DONE if means["calls"] else text))
    seen.pairs.append(("the end", (result.stop_reason, result.error), ("done", None)))


STREAMS = Seam(
    "streams",
    "deltas of a server, as dicts and as LiteLLM's objects",
    turns(),
    run_turns,
    share=33,
    quick=100,
    needs_litellm=True,
)

__all__ = ["FOLLOWING", "NEXT", "STREAMS"]
