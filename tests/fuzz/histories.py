"""Conversations from outside: they are given to a session, read from a file, repaired, continued and rewound."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.running import FOLLOWING, NEXT, Script, counting_tools, run, told, unexpected_in
from fuzz.seam import Seam, Seen
from toolloop_jupyter import Harness, HistoryInvalid, aagent_session, load
from toolloop_jupyter.core.conversation import history

IDS = st.sampled_from((None, "", "c1", "c2", 3, ["c1"], "\ud83d"))
SCALARS = st.sampled_from(
    (
        None,
        "",
        " ",
        "x",
        "{}",
        '{"a":1}',
        '{"a":1}{"a":2}',
        '{"a":',
        "null",
        "NaN",
        "\ud83d",
        0,
        1.5,
        True,
        [],
        {},
        ["x"],
        {"a": 1},
    )
)
PART = st.one_of(
    SCALARS,
    st.fixed_dictionaries({"type": st.sampled_from(("text", "image_url", None)), "text": SCALARS}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
)
CONTENT = st.one_of(SCALARS, st.lists(PART, max_size=2))
CALL = st.one_of(
    SCALARS,
    st.fixed_dictionaries(
        {},
        optional={
            "id": IDS,
            "type": st.sampled_from(("function", None)),
            "function": st.one_of(
                SCALARS,
                st.fixed_dictionaries(
                    {},
                    optional={
                        "name": st.sampled_from((None, "", "f", "g", 5, "\ud83d")),
                        "arguments": SCALARS,
                    },
                ),
            ),
        },
    ),
)
MESSAGE = st.one_of(
    SCALARS,
    st.fixed_dictionaries(
        {"role": st.sampled_from(("user", "system", "developer", "bot", None, 5, ["user"]))},
        optional={"content": CONTENT, "name": SCALARS},
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant")},
        optional={
            "content": CONTENT,
            "tool_calls": st.one_of(SCALARS, st.lists(CALL, max_size=3)),
            "function_call": CALL,
            "images": CONTENT,
            "thinking_blocks": CONTENT,
        },
    ),
    st.fixed_dictionaries(
        {"role": st.sampled_from(("tool", "function"))},
        optional={"tool_call_id": IDS, "name": st.sampled_from((None, "f", 5)), "content": CONTENT},
    ),
)


_ID = st.sampled_from(("c1", "c2"))
GOOD_CALL = st.builds(
    lambda call_id: {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}, _ID
)
GOOD = st.one_of(
    st.builds(
        lambda calls: {"role": "assistant", "content": None, "tool_calls": calls},
        st.lists(GOOD_CALL, min_size=1, max_size=2),
    ),
    st.builds(lambda call_id: {"role": "tool", "tool_call_id": call_id, "content": "ok"}, _ID),
    st.sampled_from(({"role": "user", "content": "Go."}, {"role": "assistant", "content": "Hi."})),
)
"""Messages that are valid alone, but may be at a wrong place."""


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    """Draw messages, the rest of a file around them, and what happens in the session that continues them."""
    given: dict[str, Any] = {
        "messages": draw(
            st.one_of(st.lists(MESSAGE | GOOD | GOOD, max_size=7), SCALARS)
            if draw(st.integers(0, 9)) == 0
            else st.lists(MESSAGE | GOOD | GOOD, max_size=7)
        )
    }
    given["turns"] = draw(st.lists(st.integers(-1, 8) | st.none(), max_size=3))
    given["steps"] = draw(
        st.lists(
            st.sampled_from(("turn", "rewind", "mark", "back", "instructions", "no instructions")), max_size=4
        )
    )
    given["spoil"] = draw(
        st.none()
        | st.tuples(
            st.integers(0, 400), st.sampled_from(("", "{", "]", "\x00", "\ud83d", ",", '"', "1e999", "\\u"))
        )
    )
    return given


FOLDER = tempfile.TemporaryDirectory(prefix="toolloop-fuzz-")


def run_conversation(given: dict[str, Any]) -> Seen:
    """Validate, repair, write, read and continue a conversation."""
    seen, messages = Seen(), given["messages"]
    before = copy.deepcopy(messages)
    with unexpected_in(seen):
        try:
            _read(seen, messages)
            _read_file(seen, given)
        except Exception as error:  # the fault that is looked for
            seen.escaped.append(told(error))
    seen.pairs.append(("the messages that were given", messages, before))
    return seen


def _read(seen: Seen, messages: Any) -> None:
    listed = messages if isinstance(messages, list) else []
    problems = history.validate(listed)
    seen.texts += [("a problem", one) for one in problems]
    try:
        kept = history.History(messages)
        seen.pairs.append(("problems of what was taken", problems, []))
        seen.pairs.append(("what was taken", kept.copy(), listed))
    except HistoryInvalid as error:
        seen.texts.append(("a refusal", str(error)))
        if not problems and isinstance(messages, list):
            seen.escaped.append(f"refused without a problem: {error}")
    repaired = history.repair(listed)
    seen.histories.append(("repaired", repaired))
    seen.pairs.append(("repaired twice", history.repair(repaired), repaired))
    if not problems:
        seen.pairs.append(("a valid one repaired", *map(_without_nothing, (repaired, listed))))


def _without_nothing(messages: list[Any]) -> list[Any]:
    """Return the messages without empty fields for tool calls."""
    calls = ("tool_calls", "function_call")
    return [{k: v for k, v in message.items() if k not in calls or v} for message in messages]


def _read_file(seen: Seen, given: dict[str, Any]) -> None:
    path = Path(FOLDER.name, "conversation.json")
    text = json.dumps({"format": history.FORMAT, "messages": given["messages"]})
    if given["spoil"] is not None:
        at, letters = given["spoil"]
        text = text[:at] + letters + text[at + 1 :]
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for repaired in (False, True):
        try:
            messages = load(path, repair=repaired)
        except HistoryInvalid as error:
            seen.texts.append(
                ("a refusal", str(error).encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
            )
            continue
        seen.histories.append((f"loaded, repair={repaired}", messages))
        if repaired:
            _go_on(seen, messages, given, path)


def _go_on(seen: Seen, messages: list[dict[str, Any]], given: dict[str, Any], path: Path) -> None:
    script = Script((), seen)
    session = aagent_session(Harness.TOOL_LOOP, model=script, tools=counting_tools(seen), history=messages)
    go_back = session.bookmark()
    kept = session.messages()
    for step in given["steps"]:
        if step == "turn":
            run(session.arun(FOLLOWING))
            seen.pairs.append(("a turn", session.results[-1].text, NEXT))
        elif step == "rewind" and session.starts:
            session.rewind(len(session.starts) - 1)
        elif step == "mark":
            go_back, kept = session.bookmark(), session.messages()
        elif step == "back":
            go_back()
            seen.pairs.append(("what was gone back to", session.messages(), kept))
        elif "instructions" in step:
            import dataclasses

            session.config = dataclasses.replace(session.config, instructions="" if step[0] == "n" else "Be.")
        seen.histories.append((f"after {step!r}", session.messages()))
    session.save(path)
    seen.pairs.append(("saved and loaded", load(path), session.messages()))


HISTORIES = Seam(
    "histories", "conversations from outside", conversations(), run_conversation, share=15, quick=150
)
