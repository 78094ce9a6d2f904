"""Policies and people: what permissions, `on_approval` and the reader of a stream may answer, however odd."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from fuzz.running import NAMES, Script, watch
from fuzz.seam import Seam, Seen
from fuzz.values import ERRORS, VALUES
from toolloop_jupyter import tool

WORDS = ("full", "ask", "deny", "FULL", "full ", "", "yes")
ANSWER = st.one_of(
    st.builds(
        lambda word: {"json": word},
        st.sampled_from((*WORDS, True, False, None, 0, 1, [], ["full"], {"full": True})),
    ),
    st.builds(lambda word: {"word": word}, st.sampled_from(WORDS)),
    st.builds(lambda name: {"odd": name}, st.sampled_from(sorted(VALUES))),
    st.builds(lambda name: {"raises": name}, st.sampled_from(sorted(ERRORS))),
)
POLICY = st.one_of(
    st.builds(lambda word: {"plain": word}, st.sampled_from(("full", "ask", "deny"))),
    st.builds(
        lambda rules: {"rules": rules},
        st.dictionaries(
            st.sampled_from((*NAMES, "*", "other")), st.sampled_from(("full", "ask", "deny")), max_size=4
        ),
    ),
    st.builds(lambda answer, later: {"callable": answer, "later": later}, ANSWER, st.booleans()),
    st.builds(lambda answer: {"mapping": answer}, ANSWER),
)
EDIT = st.sampled_from(
    (None, {}, {"n": 50}, {"n": "x"}, {"n": 51, "s": "y"}, {"m": 1}, {"n": None}, {"n": [1]}, 5, "text")
)
ACT = st.one_of(
    st.builds(
        lambda edit, scope: ["allow", edit, scope],
        EDIT,
        st.sampled_from(("call", "call", "run", "session", "all", None)),
    ),
    st.builds(lambda reason: ["deny", reason], st.sampled_from(("", "no", "\ud83d", "x" * 5_000))),
)
PERSON = st.fixed_dictionaries({"acts": st.lists(ACT, max_size=2), "answers": ANSWER, "later": st.booleans()})
INPUTS = st.fixed_dictionaries(
    {
        "policy": POLICY,
        "own": st.lists(st.sampled_from((None, None, "full", "ask")), min_size=4, max_size=4),
        "who": st.sampled_from(("callback", "callback", "reader", "nobody")),
        "person": PERSON,
        "calls": st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from(("right", "right", "right", "wrong"))),
            min_size=1,
            max_size=3,
        ),
        "stop": st.one_of(st.none(), st.none(), st.integers(1, 4)),
    }
)


class Word(str):
    """A text of a class of its own. It is equal to everything."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def _answer(given: Mapping[str, Any]) -> Any:
    ((kind, inner),) = given.items()
    if kind == "raises":
        error = ERRORS[inner]()
        raise error
    if kind == "odd":
        return VALUES[inner]()
    return Word(inner) if kind == "word" else inner


def _mode(given: Mapping[str, Any]) -> str:
    """Return the mode that an answer means. Only an exact text or bool means a mode; anything else means "ask"."""
    value = given.get("json", None) if "json" in given else None
    if value is True or value is False:
        return "full" if value else "deny"
    return value if isinstance(value, str) and value in ("full", "ask", "deny") else "ask"


class _Odd(Mapping):  # type: ignore[type-arg]
    """A policy of a class of its own. It may return anything for a name, and the returned object may do anything."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given, self._checked = given, False

    def __getitem__(self, key: str) -> Any:
        return _answer(self._given) if self._checked else "ask"

    def __iter__(self) -> Any:
        return iter(("*",))

    def __len__(self) -> int:
        return 1

    def items(self) -> Any:
        self._checked = True
        return [("*", "ask")]


def make_policy(given: Mapping[str, Any]) -> tuple[Any, Callable[[str], str]]:
    """Return (the policy, the mode that it means for a tool's name)."""
    if "plain" in given:
        return given["plain"], lambda name: str(given["plain"])
    if "rules" in given:
        return given["rules"], lambda name: str(given["rules"].get(name, given["rules"].get("*", "ask")))
    if "mapping" in given:
        return _Odd(given["mapping"]), lambda name: _mode(given["mapping"])

    def decide(call: Any) -> Any:
        return _answer(given["callable"])

    async def decide_later(call: Any) -> Any:
        await asyncio.sleep(0)
        return _answer(given["callable"])

    return (decide_later if given["later"] else decide), lambda name: _mode(given["callable"])


class Person:
    """Answers requests as an input says, and notes what it has allowed."""

    def __init__(self, given: Mapping[str, Any], seen: Seen) -> None:
        self._given, self._seen = given, seen
        self.allowed: set[str] = set()
        self.for_good: set[str] = set()

    def act(self, approval: Any) -> None:
        """Allow and deny in this order. The first answer that works counts."""
        for what, *more in self._given["acts"]:
            if approval.answered:
                return
            try:
                if what == "deny":
                    approval.deny(*more)
                    return
                edit, scope = more
                call = self._name(approval, edit)
                # The note comes first: if this runs in a thread, the call may run before the next line.
                was_allowed = call in self.allowed
                self.allowed.add(call)
                if scope in ("run", "session") and scope in approval.scopes:
                    self.for_good.add(approval.tool)
                approval.allow(edit, scope=scope)
            except (ValueError, TypeError):  # an invalid edit or scope decides nothing
                if approval.answered:
                    self._seen.escaped.append("an answer that raised has decided")
                if not was_allowed:
                    self.allowed.discard(call)
                self.for_good.discard(approval.tool)

    def _name(self, approval: Any, edit: Any) -> str:
        made = edit if isinstance(edit, dict) else dict(approval.input)
        return f"{approval.tool} {made.get('n', 0)}"

    def answer(self, approval: Any) -> Any:
        """Answer as `on_approval`."""
        self.act(approval)
        answer = _answer(self._given["answers"])
        if answer is True and not approval.answered:
            self.allowed.add(self._name(approval, None))
        return answer

    async def answer_later(self, approval: Any) -> Any:
        """Answer as an async `on_approval`."""
        await asyncio.sleep(0)
        return self.answer(approval)


def run_policy(given: dict[str, Any]) -> Seen:
    """Run one turn with a policy and a person. Only calls that they have allowed may run."""
    seen = Seen()
    policy, mode_of = make_policy(given["policy"])
    person = Person(given["person"], seen)
    tools = [_make_tool(seen, name, of_tool) for name, of_tool in zip(NAMES, given["own"], strict=True)]
    deltas, calls = [], []
    for number, (which, how) in enumerate(given["calls"]):
        arguments = f'{{"n": {number}}}' if how == "right" else '{"n": "x"}'
        function = {"name": NAMES[which], "arguments": arguments}
        deltas.append({"tool_calls": [{"index": number, "id": f"c{number}", "function": function}]})
        calls.append(f"{NAMES[which]} {number}")
    handler = (
        (person.answer_later if given["person"]["later"] else person.answer)
        if given["who"] == "callback"
        else None
    )
    reader = person.act if given["who"] == "reader" else None
    watch(
        seen,
        Script([{"deltas": deltas}], seen),
        stop=given["stop"],
        reader=reader,
        tools=tools,
        permissions=policy,
        on_approval=handler,
        follow=False,
    )
    seen.pairs.append(("no more runs than calls", sum(seen.ran.values()) <= len(calls), True))
    seen.ran = Counter(dict.fromkeys(seen.ran, 1))  # different edits may lead to the same call
    of_tool = dict(zip(NAMES, given["own"], strict=True))
    seen.may_run = set(person.allowed)
    for call in [*calls, *seen.ran]:
        name = call.split()[0]
        mode = max((mode_of(name), of_tool[name] or "full"), key=("full", "ask", "deny").index)
        if mode == "full" or name in person.for_good:
            seen.may_run.add(call)
        if mode == "deny":
            seen.must_not_run.add(call)
    return seen


def _make_tool(seen: Seen, name: str, own: Any) -> Callable[..., Any]:
    async def work(n: int = 0, s: str = "") -> str:
        seen.ran[f"{name} {n}"] += 1
        return f"{name} {n}"

    work.__name__ = work.__qualname__ = name
    return tool(permissions=own)(work)


POLICIES = Seam("policies", "permissions, callbacks and readers", INPUTS, run_policy, share=12, quick=60)
