"""Guarantee: the strictest rule applies, and the message names it. "All calls" means this tool name, this function and this
session.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import pytest
from pydantic import BeforeValidator

from support.approving import asked, session_of
from support.asking import replace_config
from toolloop_jupyter import Harness, tool
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.core.events.observer import Observer
from toolloop_jupyter.core.loop import Approvals
from toolloop_jupyter.core.tools.arguments import InvalidArguments
from toolloop_jupyter.core.tools.tool import make_tools
from toolloop_jupyter.notebook.live import asking
from toolloop_jupyter.teaching.scripted import ScriptedModel, call


def make(name, ran, own=None):
    """Return a tool called `name` with its own permissions. It notes its runs."""
    names = {"ran": ran}
    exec(
        f"def {name}(x: int = 1) -> str:\n    'Note it.'\n    ran.append(('{name}', x))\n    return 'ok'",
        names,
    )
    return names[name] if own is None else tool(permissions=own)(names[name])


def _broken(asked):
    raise RuntimeError("oops")


async def _async_deny(asked):
    return "deny"


class _NotABool:
    def __bool__(self):
        raise ValueError("neither")

    __hash__ = None

    def __eq__(self, other):
        raise ValueError("nor")


class _Liar:
    """An object that is equal to everything, is true, and is found in every dict under the key "full"."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __bool__(self):
        return True

    def __hash__(self):
        return hash("full")


class _LyingText(str):
    """A text that is equal to every mode."""

    __slots__ = ()

    def __eq__(self, other):
        return other == "full"

    def __hash__(self):
        return hash("full")


class _Unspeakable(Exception):
    def __str__(self):
        raise ValueError("not to be told")

    __repr__ = __str__


def _unspeakable(asked):
    raise _Unspeakable


class _Odd(Mapping):
    """A mapping that says "ask" at first, and something else when it is asked about a call."""

    def __init__(self, answer):
        self.answer = answer

    def __getitem__(self, key):
        if key != "f" or self.answer is None:
            raise KeyError(key)
        return self.answer

    def __contains__(self, key):
        return key == "f"

    def __iter__(self):
        return iter(["f"])

    def __len__(self):
        return 1

    def items(self):
        return [("f", "ask")]


# (permissions of the run, permissions of the tool, what happens to the call, a part of the reason)
TABLE = {
    "full": ("full", None, "full", None),
    "ask": ("ask", None, "ask", "permissions are 'ask'"),
    "mapping, full": ({"f": "full", "*": "ask"}, None, "full", None),
    "mapping, ask": ({"f": "ask", "*": "full"}, None, "ask", "permissions['f'] is 'ask'"),
    "mapping, star": ({"*": "ask"}, None, "ask", "permissions['*'] is 'ask'"),
    "mapping that forgot it": ({"g": "full"}, None, "ask", "name neither 'f' nor '*'"),
    "mapping, deny": ({"f": "deny"}, None, "deny", "permissions['f'] is 'deny'"),
    "own ask, run full": ("full", "ask", "ask", "the tool's own permissions are 'ask'"),
    "own ask, policy full": ({"f": "full"}, "ask", "ask", "the tool's own permissions are 'ask'"),
    "own full, run ask": ("ask", "full", "ask", "permissions are 'ask'"),
    "own ask, policy deny": ({"f": "deny"}, "ask", "deny", "is 'deny'"),
    "callable true": (lambda asked: True, None, "full", None),
    "callable false": (lambda asked: False, None, "deny", "answered False"),
    "callable by value": (
        lambda asked: "ask" if asked.input["x"] > 0 else "full",
        None,
        "ask",
        "answered 'ask'",
    ),
    "callable by name": (lambda asked: "full" if asked.name == "f" else "deny", None, "full", None),
    "callable raises": (_broken, None, "ask", "raised RuntimeError('oops')"),
    "callable none": (lambda asked: None, None, "ask", "answered None"),
    "callable one": (lambda asked: 1, None, "ask", "answered 1"),
    "callable nonsense": (lambda asked: "yes, sure", None, "ask", "answered 'yes, sure'"),
    "callable strange": (
        lambda asked: _NotABool(),
        None,
        "ask",
        "of type _NotABool, which is neither a mode nor",
    ),
    "callable with another error": (lambda asked: 1 / 0, None, "ask", "raised ZeroDivisionError"),
    "callable raises what cannot be told": (_unspeakable, None, "ask", "raised <_Unspeakable>"),
    "callable one-element array": (
        lambda asked: np.array(["full"]),
        None,
        "ask",
        "of type ndarray, which is neither",
    ),
    "callable array that denies": (
        lambda asked: np.array(["deny"]),
        None,
        "ask",
        "of type ndarray, which is neither",
    ),
    "callable NumPy bool": (lambda asked: np.bool_(True), None, "ask", "neither a mode nor a bool"),
    "callable NumPy text": (lambda asked: np.str_("full"), None, "ask", "of type str_, which is neither"),
    "callable liar": (lambda asked: _Liar(), None, "ask", "of type _Liar, which is neither"),
    "callable lying text": (
        lambda asked: _LyingText("no"),
        None,
        "ask",
        "of type _LyingText, which is neither",
    ),
    "callable true lying text": (lambda asked: _LyingText("full"), None, "ask", "of type _LyingText"),
    "callable that tells too much": (lambda asked: "x" * 10_000, None, "ask", "x…"),
    "mapping, array": (_Odd(np.array(["full"])), None, "ask", "permissions['f'] is array(['full']"),
    "mapping, liar": (_Odd(_Liar()), None, "ask", "of type _Liar, which is neither"),
    "mapping, lying text": (_Odd(_LyingText("no")), None, "ask", "of type _LyingText, which is neither"),
    "mapping raises": (_Odd(None), None, "ask", "the permissions raised KeyError"),
    "own ask, lying answer": (lambda asked: _Liar(), "ask", "ask", "the tool's own permissions are 'ask'"),
    "callable exits": (lambda asked: exit(), None, "ask", "raised"),
    "callable async": (_async_deny, None, "deny", "answered 'deny'"),
}


@pytest.mark.parametrize(("policy", "own", "becomes", "why"), TABLE.values(), ids=TABLE)
async def test_the_strictest_wins_and_says_why(policy, own, becomes, why):
    """The policy and the tool's own setting decide about a call together. The request or the refusal names the rule that
    applies.
    """
    ran = []
    session = session_of([make("f", ran, own)], call("f", x=3), permissions=policy)
    seen = await asked(session)
    result = session.results[0].tool_results[0]
    assert bool(ran) is (becomes != "deny")
    assert bool(seen) is (becomes == "ask")
    why_given = seen[0][1] if seen else result.output
    assert why is None or why in why_given


async def test_nobody_is_asked_about_a_call_that_cannot_run():
    """For an unknown tool and for invalid arguments, the model gets an error, and nobody is asked."""
    ran = []
    session = session_of([make("f", ran)], call("g"), call("f", x="many"), "Done.")
    assert await asked(session) == []
    assert [r.is_error for r in session.results[0].tool_results] == [True, True]


# --- names in a mapping ---------------------------------------------------------------------------------------

# (permissions, a part of the message)
WRONG = {
    "a typo": (
        {"delte": "ask", "*": "full"},
        "did you mean 'delete'? The mode of 'delete' would now be 'full', from permissions['*']. If you meant another",
    ),
    "letters that changed places": ({"delete": "ask", "read_flie": "ask", "*": "full"}, "mean 'read_file'?"),
    "a typo that denies": (
        {"DELETE": "deny", "*": "ask"},
        "permissions['DELETE'] is 'deny', but no tool of this",
    ),
    "a typo without a star": ({"deletes": "deny"}, "The mode of 'delete' would now be 'ask'."),
    "a python name": ({"send_letter": "ask", "*": "full"}, "did you mean 'mail-out'?"),
    "a dotted name": ({"fs.delete": "ask", "*": "full"}, "did you mean 'delete'?"),
    "a blank that is not there": ({"readfile": "ask", "*": "full"}, "did you mean 'read_file'?"),
}


def _three():
    return [make("delete", []), make("read_file", []), tool(name="mail-out")(make("send_letter", []))]


@pytest.mark.parametrize(("policy", "said"), WRONG.values(), ids=WRONG)
def test_a_rule_with_a_slip_in_its_name_is_a_mistake(policy, said):
    """A rule is refused before the run if its name is almost the name of a tool, and if the rule that would apply to this
    tool is less strict.
    """
    with pytest.raises(ValueError) as caught:
        session_of(_three(), permissions=policy)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "policy",
    [
        {"delte": "full", "*": "ask"},
        {"delte": "ask"},
        {"delte": "ask", "delete": "full"},
        {"delte": "deny", "*": "deny"},
        {"drop": "ask", "*": "full"},
        {"delete_all": "ask", "*": "full"},
        {"delete_file": "ask", "move_file": "deny", "*": "full"},
        {"fs.drop": "ask", 1: "ask", "*": "full"},
    ],
)
async def test_a_rule_for_other_runs_is_none_for_this(policy):
    """A rule for a tool that this run does not have is allowed, if it does not make the permissions less strict. So one
    mapping serves several runs.
    """
    assert session_of(_three(), permissions=policy).config.approvals.permissions is policy


def test_one_mapping_for_several_cells():
    """In a notebook, a rule may be for another function of the notebook, or for an earlier tool of the session. It is then
    not taken for a typo.
    """
    from toolloop_jupyter.notebook.magic.names import leave_out_other_rules

    f, g = make("f", []), make("g", [])
    named = tool(name="mail-out")(make("send_mail", []))
    rules = {"f": "ask", "g": "deny", "mail-out": "deny", "*": "full"}
    names = {"f": f, "g": g, "send_mail": named}
    assert leave_out_other_rules(rules, names, [f]) == {"f": "ask", "*": "full"}
    assert leave_out_other_rules(rules, names, [f, g, named]) is rules
    lock = make("lock", [])
    names["lock"] = lock
    locks = {"unlock": "ask", "*": "full"}
    with pytest.raises(ValueError, match="did you mean 'lock'"):
        session_of([lock], permissions=leave_out_other_rules(locks, names, [lock]))
    assert leave_out_other_rules(locks, names, [lock], had=["lock", "unlock"]) == {"*": "full"}
    rules = {"send_mail": "ask", "gg": "ask", "*": "full"}
    assert leave_out_other_rules(rules, names, [f, named]) is rules
    with pytest.raises(ValueError, match="did you mean 'mail-out'"):
        session_of([f, named], permissions=rules)


# --- "all calls of this tool" ---------------------------------------------------------------------------------


async def test_all_in_this_run():
    """A person allows all calls of a tool in this run. This covers other arguments, but neither another tool nor the next
    turn.
    """
    ran = []
    session = session_of(
        [make("f", ran), make("g", ran)],
        [call("f", x=1), call("f", x=2), call("g")],
        "One.",
        call("f", x=3),
        "Two.",
    )
    assert [name for name, _ in await asked(session, "run")] == ["f", "g"]
    assert [name for name, _ in await asked(session, "run")] == ["f"]
    assert [x for name, x in ran if name == "f"] == [1, 2, 3]


async def test_all_in_this_session():
    """A person allows all calls of a tool in this session. This covers the next turns, but neither another tool nor another
    session.
    """
    ran = []
    f, g = make("f", ran), make("g", ran)
    session = session_of([f, g], call("f", x=1), "One.", [call("f", x=2), call("g")], "Two.")
    assert [name for name, _ in await asked(session, "session")] == ["f"]
    assert [name for name, _ in await asked(session, "call")] == ["g"]
    other = session_of([f, g], call("f", x=1))
    assert [name for name, _ in await asked(other)] == ["f"]


async def test_a_redefinition_is_asked_about():
    """If the name has another function now, or the function has other code, a person is asked again."""
    ran = []
    f = make("f", ran)
    session = session_of([f], call("f"), "1", call("f"), "2", call("f"), "3", call("f"), "4")
    assert len(await asked(session, "session")) == 1
    assert len(await asked(session, "session")) == 0
    f.__code__ = make("f", ran).__code__.replace(co_consts=("other", *f.__code__.co_consts[1:]))
    assert len(await asked(session, "session")) == 1, "replaced in place, as %autoreload does"
    replace_config(session, tools=make_tools([make("f", ran)]))
    assert len(await asked(session, "session")) == 1, "defined again"


async def test_objects_that_are_equal_are_not_the_same():
    """A callable object that is only equal to the approved one needs a new approval. A method of the same object needs none."""
    ran = []

    class Same:
        __name__ = "f"

        def __call__(self, x: int = 1) -> str:
            """Note it."""
            ran.append(x)
            return "ok"

        def __eq__(self, other):
            return isinstance(other, Same)

        __hash__ = None

        def method(self, x: int = 1) -> str:
            """Note it."""
            return "ok"

    one = Same()
    session = session_of([one], call("f"), "1", call("f"), "2", call("method"), "3", call("method"), "4")
    assert len(await asked(session, "session")) == 1
    replace_config(session, tools=make_tools([Same()]))
    assert len(await asked(session, "session")) == 1
    replace_config(session, tools=make_tools([one.method]))
    assert len(await asked(session, "session")) == 1
    replace_config(session, tools=make_tools([one.method]))
    assert len(await asked(session, "session")) == 0


async def test_going_back_takes_the_approval_back():
    """If a turn is removed, the approvals for the session that were given in this turn end. Earlier approvals stay."""
    ran = []
    session = session_of(
        [make("f", ran), make("g", ran)], call("f"), "1", call("g"), "2", [call("f"), call("g")], "3"
    )
    await asked(session, "session")
    await asked(session, "session")
    session.rewind(1)
    assert [name for name, _ in await asked(session)] == ["g"]
    session.rewind(0)


async def test_a_wide_approval_beats_no_denial():
    """An approval of all calls does not change a policy that denies."""
    ran = []
    session = session_of([make("f", ran)], call("f"), "1", call("f"), "2")
    await asked(session, "session")
    replace_config(session, approvals=Approvals({"f": "deny"}))
    await asked(session)
    assert len(ran) == 1


async def test_scopes_that_are_offered():
    """A session offers "this session", and a run of one turn does not. The request has the number of the call in its run."""
    from toolloop_jupyter import aagent

    session = session_of([make("f", [])], [call("f", x=1), call("f", x=2)])
    seen = []
    async for event in session.astream("Go."):
        if isinstance(event, Approval):
            seen.append((event.scopes, event.number))
            event.allow()
    assert seen == [(("call", "run", "session"), 1), (("call", "run", "session"), 2)]
    stream = aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model=ScriptedModel(call("f"), "x"),
        tools=[make("f", [])],
        permissions="ask",
        stream=True,
    )
    async for event in stream:
        if isinstance(event, Approval):
            assert event.scopes == ("call", "run")
            event.allow()


# --- answers that mean nothing ------------------------------------------------------------------------------------

NONSENSE = {
    "array": np.array(["full"]),
    "array of truth": np.array([True]),
    "NumPy bool": np.bool_(True),
    "NumPy text": np.str_("full"),
    "liar": _Liar(),
    "lying text": _LyingText("full"),
    "not a bool": _NotABool(),
    "one": 1,
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_settings_that_only_look_like_modes_are_refused(answer):
    """`permissions=`, the rules of a mapping and `@tool(permissions=…)` accept only plain texts as modes."""
    if answer is not NONSENSE["one"] and callable(answer):
        pytest.skip("a callable is a policy")
    for policy in (answer, {"f": answer}):
        with pytest.raises(ValueError, match="permissions"):
            session_of([make("f", [])], permissions=policy)
    with pytest.raises(ValueError, match="permissions must be"):
        tool(permissions=answer)


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
async def test_settings_that_came_in_unchecked_ask(answer):
    """If an unchecked policy or setting of a tool got into a run, a value of a wrong type means "ask"."""
    for run, of_tool in ((answer, None), ("full", answer)):
        ran = []
        session = session_of([make("f", ran)], call("f"))
        tools = tuple(
            dataclasses.replace(one, settings=dataclasses.replace(one.settings, permissions=of_tool))
            for one in session.config.tools
        )
        session.config = dataclasses.replace(session.config, approvals=Approvals(run), tools=tools)
        async for event in session.astream("Go."):
            if isinstance(event, Approval):
                event.deny()
        assert session.results[0].approvals
        assert ran == []


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_on_approval_that_says_nonsense_denies(answer, is_async):
    """Only the value True allows a call."""
    ran = []

    async def answer_later(approval):
        return answer

    handler = answer_later if is_async else (lambda approval: answer)
    result = await session_of([make("f", ran)], call("f"), on_approval=handler).arun("Go.")
    assert ran == []
    assert "only True allows" in result.tool_results[0].output


class _WithoutClass:
    """An object that raises an error when its class is read."""

    @property
    def __class__(self):
        raise _Unspeakable


@pytest.mark.parametrize("kind", [_Unspeakable, _WithoutClass])
async def test_an_on_approval_that_cannot_be_understood_denies(kind):
    """Even if the error or the answer of `on_approval` raises an error whenever it is read: nothing runs, and nobody waits
    for ever.
    """
    ran = []

    def handler(approval):
        if kind is _Unspeakable:
            raise kind
        return kind()

    session = session_of([make("f", ran)], call("f"), on_approval=handler, timeout=20)
    result = await session.arun("Go.")
    assert ran == []
    assert result.stop_reason == "done"
    assert "denied: on_approval" in result.tool_results[0].output


async def test_a_handler_that_is_false_is_asked():
    """A callable object decides as `on_approval`, even if `bool(object)` is False."""

    class Empty:
        def __len__(self):
            return 0

        def __call__(self, approval):
            return True

    ran = []
    await session_of([make("f", ran)], call("f"), on_approval=Empty()).arun("Go.")
    assert ran == [("f", 1)]


@pytest.mark.parametrize(
    "scope", [np.array(["run"]), _Liar(), _LyingText("run"), np.str_("run"), "all", None]
)
async def test_a_scope_that_is_none_decides_nothing(scope):
    """An unknown scope allows neither this call nor later calls."""
    approval = Approval("f", {})
    with pytest.raises(ValueError, match="scope must be"):
        approval.allow(scope=scope)
    assert not approval.answered


@pytest.mark.parametrize(
    "answer", [True, {"x": 5}, _Liar(), np.array([1])], ids=["true", "dict", "liar", "array"]
)
async def test_a_check_that_gives_no_call_runs_nothing(answer):
    """Edited arguments run only if `check` has returned a call with them."""
    ran = []
    async for event in (session := session_of([make("f", ran)], call("f"))).astream("Go."):
        if isinstance(event, Approval):
            object.__setattr__(event, "check", lambda arguments: answer)
            event.allow({"x": 5})
    assert ran == []
    assert "were not checked" in session.results[0].tool_results[0].output


@pytest.mark.parametrize("unattended", [np.array(["allow"]), _Liar(), _LyingText("allow"), np.str_("allow")])
async def test_an_unattended_setting_that_is_none_denies(unattended):
    """If nobody is there, only a plain text can allow a request. Any other value denies it."""
    approval = Approval("f", {})
    await asking.ask_person(approval, None, None, unattended=unattended)  # there is no card
    assert not approval.decision.allowed


@pytest.mark.parametrize("line", [_Liar(), _LyingText("y"), np.array(["y"]), None])
def test_a_keyboard_that_gives_no_text_denies(line, monkeypatch):
    """If a replaced `input` returns a value that is not a text, the call is denied."""
    approval = Approval("f", {})
    monkeypatch.setattr("builtins.input", lambda prompt: line)
    asking.ask_at_prompt(approval)
    assert not approval.decision.allowed


@pytest.mark.parametrize(
    "made", [np.array(["null", "x"]), _Liar(), _NotABool()], ids=["array", "liar", "not a bool"]
)
def test_what_a_validator_made_is_not_compared(made):
    """If a validator makes a wrong value, the model gets a message about it, whatever the value's own methods claim."""

    def f(x) -> str:
        """Do it."""

    f.__annotations__["x"] = Annotated[int, BeforeValidator(lambda sent: made)]
    (checked,) = make_tools([f])
    with pytest.raises(InvalidArguments, match="x: expected an integer"):
        checked.bind({"x": "null"})


def test_a_validator_whose_error_cannot_be_told():
    """If the text of a validator's error cannot be read, the model gets a message, too."""

    def refuse(sent):
        raise _Unspeakable

    def f(x) -> str:
        """Do it."""

    f.__annotations__["x"] = Annotated[int, BeforeValidator(refuse)]
    (checked,) = make_tools([f])
    with pytest.raises(InvalidArguments, match="_Unspeakable: <without a text: ValueError>"):
        checked.bind({"x": 1})


def test_a_name_that_lies_is_taken_by_its_letters():
    """A tool's name of a class derived from `str` becomes a plain text before it is compared with the rules of a policy."""

    @tool(name=_LyingText("delete"))
    def f() -> str:
        """Do it."""

    (made,) = make_tools([f])
    assert type(made.name) is str
    assert made.name == "delete"


class _Meddler(Observer):
    """An observer that changes something just before a tool runs, at the moment where step mode waits for a person."""

    def __init__(self, change):
        self.change = change

    async def before_tool(self, call, arguments):
        self.change(call)


async def test_what_an_earlier_decision_covers_is_looked_at_right_before_the_call():
    """An approval of all calls is for the function and the values in its closure at that time. If these change after the
    approval was found, the call does not run.
    """
    to = ["home"]

    def f(x: int) -> str:
        """Send."""
        return f"{x} {to}"

    def change(asked):
        if asked.input == {"x": 2}:
            to.append("elsewhere")

    session = session_of([f], call("f", x=1), call("f", x=2), call("f", x=3), observer=_Meddler(change))
    seen = await asked(session, "session")
    first, second, third = session.results[-1].tool_results
    assert (first.output, third.output) == ("1 ['home']", "3 ['home', 'elsewhere']")
    assert (first.ran, second.ran, third.ran) == (True, False, True)
    assert "was changed" in second.output
    assert len(seen) == 2
