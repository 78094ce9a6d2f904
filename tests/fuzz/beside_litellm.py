"""The same scripts on LiteLLM's own Tool Loop and on ours: each difference must belong to a row of the differences table.

The scripts contain only what both loops have: whole answers (LiteLLM's loop does not stream), tools that return and raise,
`on_approval`, `max_turns`. The rules for the rows match paths, like the scenarios of `tests/system/parity`. A difference that
no rule explains is printed, as small as possible.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from fuzz.running import run
from fuzz.search import BATCH
from support.servers import Entry
from system.parity.differences import DIFFERENCES
from system.parity.sides import MISSING, OURS, THEIRS, Expected, Scenario, differences, observe, set_prices

ARGUMENTS = st.sampled_from(
    (
        '{"n": 1}',
        '{"n": 2, "s": "ü"}',
        "{}",
        "",
        "null",
        '{"n": "x"}',
        '{"n": "3"}',
        '{"n": 1.5}',
        '{"n":',
        "[1]",
        '{"n": 1}{"n": 2}',
        '{"n": 1, "m": 2}',
        '{"n": 1, "n": 2}',
        '{"n": NaN}',
        '{"n": true}',
        '{"n": 1, "s": null}',
        '{"n": 100000000000000000000}',
        ' {"n": 1}\n',
        '{"n": 1,}',
        "{'n': 1}",
        '"{\\"n\\": 1}"',
        '```json\n{"n": 1}\n```',
        '{"n": 1, "s": "\\ud83d"}',
    )
)
CALL = st.fixed_dictionaries(
    {
        "name": st.sampled_from(("take", "take", "take", "later", "fail", "nobody", "", "Take", " take")),
        "id": st.sampled_from(("", "c1", "c2", "c3")),
        "arguments": ARGUMENTS,
    }
)
MESSAGE = st.fixed_dictionaries(
    {
        "content": st.sampled_from((None, "", " ", "I look.", "ü")),
        "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        "finish": st.sampled_from(("tool_calls", "tool_calls", "stop", "length", "content_filter")),
    }
)
VALUES = ("text", "", 5, None, {"a": "é"}, [1, 2], 1.5, True)
SCRIPTS = st.fixed_dictionaries(
    {
        "messages": st.lists(MESSAGE, max_size=3),
        "answer": st.sampled_from(("Done.", "Done.", "")),
        "value": st.integers(0, len(VALUES) - 1),
        "asks": st.sampled_from((None, None, "yes", "no", "word", "raises")),
        "max_turns": st.sampled_from((None, None, 1, 2)),
    }
)


def _has(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


ANY = lambda value: True  # noqa: E731
TEXTS = ("turns.*.events.*.output", "history.*.content", "requests.*.body.messages.*.content")
ERRORS = "turns.*.events.*.is_error"
RULES: tuple[Expected, ...] = (
    Expected("blank text beside calls", "*.content", " ", lambda value: value in (MISSING, None, "")),
    Expected("blank text beside calls", "turns.*.result.text", lambda text: str(text)[:1] == " ", ANY),
    *(Expected("argument errors", at, ANY, _has("was not run|were not|arguments")) for at in TEXTS),
    *(Expected("unknown tools", at, _has("unknown tool"), _has("unknown tool")) for at in TEXTS),
    *(
        Expected("names of calls", at, _has(r"^$|^\s|\s$|[^\w-]"), ANY)
        for at in ("history.*.function.name", "requests.*.function.name")
    ),
    *(Expected("names of calls", at, _has("unknown tool ' "), ANY) for at in TEXTS),
    *(Expected("denials", at, _has("^denied"), _has("^denied")) for at in TEXTS),
    *(Expected("calls cut off", at, ANY, _has("answer was cut off")) for at in TEXTS),
    *(Expected("only True allows", at, ANY, _has("only True allows")) for at in TEXTS),
    *(Expected("results as text", at, ANY, _has(r"^\(no output\)$|^\{|^\[|^\w")) for at in TEXTS),
    Expected("calls cut off", ERRORS, False, True),
    Expected("empty arguments", ERRORS, True, False),
    Expected("argument errors", ERRORS, ANY, ANY),
    *(
        Expected("valid arguments in the history", at, ANY, ANY)
        for at in ("history.*.function.arguments", "requests.*.function.arguments")
    ),
    *(Expected("unique call ids", at, ANY, _has("^call_")) for at in ("*.id", "*.tool_call_id")),
    Expected("nobody is asked in vain", "turns.*.events.*", lambda event: _is(event, "Approval"), ANY),
    Expected("nobody is asked in vain", "turns.*.events.*", ANY, lambda event: _is(event, "ToolResult")),
    *(Expected("valid history", at, ANY, ANY) for at in ("history.*", "turns.*.events.*")),
    Expected("empty answers", "turns.*.result.text", "", ANY),
    Expected("empty answers", "turns.*.result.stop_reason", "done", "runtime_error"),
    Expected("filtered answers", "turns.*.result.*", ANY, _has("filter|runtime_error")),
)
"""The first rule that fits names the difference."""


def _is(event: object, name: str) -> bool:
    return isinstance(event, Mapping) and event.get("event") == name


def _make_tools(value: object) -> list[Callable[..., Any]]:
    def take(n: int = 0, s: str = "") -> Any:
        """Take it."""
        return value

    async def later(n: int = 0, s: str = "") -> Any:
        """Take it later."""
        return value

    def fail(n: int = 0, s: str = "") -> Any:
        """Fail."""
        raise KeyError("no such key")

    return [take, later, fail]


def scenario_of(script: Mapping[str, Any]) -> Scenario:
    """Return a script as a scenario of the parity suite."""

    def answer_request(approval: Any) -> Any:
        if script["asks"] == "raises":
            raise RuntimeError("no person")
        return {"yes": True, "no": False, "word": "yes"}[script["asks"]]

    keywords: dict[str, Any] = {"tools": _make_tools(VALUES[script["value"]])}
    if script["asks"]:
        keywords |= {"permissions": "ask", "on_approval": answer_request}
    if script["max_turns"]:
        keywords["max_turns"] = script["max_turns"]
    entries = [Entry(**message) for message in script["messages"]]
    return Scenario("fuzz", [*entries, Entry(content=script["answer"])], keywords=keywords)


async def see_both(script: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return path -> (LiteLLM's value, our value) for every difference."""
    seen = []
    for side in (THEIRS, OURS):
        with tempfile.TemporaryDirectory() as folder:
            seen.append(await observe(side, scenario_of(script), Path(folder)))
    return differences(*seen)


def classify(script: Mapping[str, Any], path: str, values: tuple[Any, Any]) -> str:
    """Return the name of the difference in the table; "" if the table lacks it."""
    return next((rule.difference for rule in RULES if rule.fits(path, values)), "") or _find_cause(script)


def _find_cause(script: Mapping[str, Any]) -> str:
    """Return the name of a difference that changes the number of calls, and so everything after it; "" if the script has
    none.
    """
    messages = [message["tool_calls"] for message in script["messages"]]
    if any("}{" in call["arguments"] for calls in messages for call in calls):
        return "several calls in one"
    for calls in messages:
        sent = [(call["id"], call["name"].strip(), call["arguments"].strip()) for call in calls if call["id"]]
        if len(set(sent)) < len(sent):
            return "calls sent twice"
    return ""


@dataclass
class Comparison:
    """The differences in all scripts."""

    tried: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    """How many scripts show each difference of the table."""
    unknown: dict[str, str] = field(default_factory=dict)
    """The place of each difference that the table lacks -> the shortest example."""

    def note(self, script: Mapping[str, Any]) -> None:
        """Run a script on both loops."""
        self.tried += 1
        sides = run(see_both(script))
        named = {path: classify(script, path, values) for path, values in sides.items()}
        self.classes.update(set(named.values()))
        for path, name in named.items():
            if not name:
                place, example = re.sub(r"\d+", "*", path), f"{sides[path]!r:.300}  in {json.dumps(script)}"
                self.unknown[place] = min(self.unknown.get(place, example), example, key=len)


def compare(inputs: int, first: int) -> int:
    """Run scripts on both loops, and print how often each difference was seen. Return 1 if the table lacks one of them."""
    set_prices()
    named = {difference.name for difference in DIFFERENCES}
    assert {rule.difference for rule in RULES} <= named
    seen, began = Comparison(), time.process_time()
    while seen.tried < inputs:
        before = seen.tried
        _run_batch(seen, min(BATCH, inputs - seen.tried), first * 1_000_003 + before)
        if seen.tried == before:
            break
    print(
        f"{seen.tried:,} scripts on both, {seen.tried / (time.process_time() - began):,.0f} a second of CPU"
    )
    for name, count in seen.classes.most_common():
        print(f"{count:>7,}  {name or '(of no class)'}")
    for path, example in seen.unknown.items():
        print(f"of no class: {path}: {example}")
    return int(bool(seen.unknown))


def _run_batch(seen: Comparison, inputs: int, first: int) -> None:
    @seed(first)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(SCRIPTS)
    def try_one(script: dict[str, Any]) -> None:
        seen.note(script)

    try_one()
