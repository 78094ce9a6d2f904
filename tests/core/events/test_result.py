"""The checks for exercises: `assert_called`, `assert_not_called`, `assert_order`."""

from __future__ import annotations

import pytest

from toolloop_jupyter import Harness, Result, ToolCall, Usage, aagent_session, tool
from toolloop_jupyter.core.events.result import ANY
from toolloop_jupyter.teaching.scripted import ScriptedModel, call


def result(*calls: tuple[str, dict[str, object]]) -> Result:
    events = [ToolCall(str(n), name, name, given) for n, (name, given) in enumerate(calls)]
    return Result("", None, [], events, Usage(), 0.0, "done", "s")


RUN = result(
    ("search", {"query": "retry", "path": "."}), ("read", {"path": "a.py"}), ("search", {"query": "x"})
)


async def test_an_argument_is_known_by_its_own_name() -> None:
    """The model sees `größe` as `grosse`. A call with either name runs, and the checks find it under either name."""
    ran = []

    def suche(größe: int) -> str:  # noqa: PLC2401
        """Suche."""
        ran.append(größe)
        return "ok"

    script = ScriptedModel([call("suche", größe=3), call("suche", grosse=4)], "Fertig.")
    run = await aagent_session(Harness.TOOL_LOOP, model=script, tools=[suche]).arun("Los.")
    assert ran == [3, 4]
    for name in ("größe", "grosse"):
        run.assert_called("suche", {name: 3}, times=1)
        run.assert_called("suche", {name: 4}, times=1)
    run.assert_not_called("suche", größe=5)
    with pytest.raises(AssertionError, match="expected a call of suche with größe=5"):
        run.assert_called("suche", größe=5)


def test_passes() -> None:
    """A check that passes returns None, so a cell shows nothing."""
    assert RUN.assert_called("search", query="retry") is None
    assert RUN.assert_called("search", times=2) is None
    assert RUN.assert_called("read", path=ANY) is None
    assert RUN.assert_not_called("delete") is None
    assert RUN.assert_order("search", "read") is None


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda r: r.assert_called("delete"),
            'expected a call of delete; the model called: search(query="retry", path="."); read(path="a.py"); search(query="x")',
        ),
        (
            lambda r: r.assert_called("read", path="b.py"),
            'expected a call of read with path="b.py"; the model called: read(path="a.py")',
        ),
        (
            lambda r: r.assert_called("search", times=1),
            'expected 1 call of search; the model called: search(query="retry", path="."); search(query="x")',
        ),
        (
            lambda r: r.assert_not_called("read"),
            'expected no call of read; the model called: read(path="a.py")',
        ),
        (
            lambda r: r.assert_order("read", "read"),
            "expected the order read → read; the model called: search → read → search",
        ),
        (lambda _: result().assert_called("f"), "expected a call of f; the model called: no tool"),
    ],
)
def test_failures_say_what_happened(check, message) -> None:
    """The message of a failed check says what was expected and what the model called."""
    with pytest.raises(AssertionError) as caught:
        check(RUN)
    assert str(caught.value) == message


def test_a_failed_check_is_one_line_in_a_notebook() -> None:
    """A notebook shows only the message, and no code of the package."""
    with pytest.raises(AssertionError) as caught:
        RUN.assert_called("delete")
    assert caught.value._render_traceback_() == [f"AssertionError: {caught.value}"]


def search(query: str) -> str:
    """Search."""
    return query


@tool(name="read")
def read_from_disk(path: str) -> str:
    """Read."""
    return path


def test_tools_may_be_given_as_functions() -> None:
    """A function stands for its name, even for the name that `@tool` has set."""
    RUN.assert_called(search, query="x", times=1)
    RUN.assert_called(read_from_disk, times=1)
    RUN.assert_order(search, read_from_disk, search)
    with pytest.raises(AssertionError, match="expected no call of read"):
        RUN.assert_not_called(read_from_disk)
    with pytest.raises(TypeError, match="name the tool, or give its function"):
        RUN.assert_called(3)


def test_arguments_may_be_a_dict() -> None:
    """A dict can check arguments whose names the check uses itself (`times`)."""
    run = result(("wait", {"times": 3, "self": "me"}))
    run.assert_called("wait", {"times": 3, "self": "me"}, times=1)
    with pytest.raises(AssertionError, match="expected a call of wait with times=4; the model called: wait"):
        run.assert_called("wait", {"times": 4})


@pytest.mark.parametrize(
    ("times", "arguments", "message"),
    [
        (0, {}, 'expected no call of search; the model called: search(query="retry", path="."); search(query="x")'),
        (3, {"query": "x"}, 'expected 3 calls of search with query="x"; the model called: search(query="x")'),
        (2, {"query": "y"}, 'expected 2 calls of search with query="y"; the model called: search(query="retry", path="."); search(query="x")'),
    ],
)  # fmt: skip
def test_counts_say_both_numbers(times, arguments, message) -> None:
    """If the number of calls is wrong, the message has the expected number and the calls."""
    with pytest.raises(AssertionError) as caught:
        RUN.assert_called("search", times=times, **arguments)
    assert str(caught.value) == message


def test_the_calls_that_matter_are_listed_in_a_long_run() -> None:
    """In a run of many calls, the messages have the forbidden call, and the whole order."""
    run = result(*[("f", {"x": number}) for number in range(8)], ("g", {}))
    with pytest.raises(AssertionError, match=r"expected no call of f with x=7; the model called: f\(x=7\)$"):
        run.assert_not_called("f", x=7)
    with pytest.raises(AssertionError, match=r"expected the order g → f; the model called: (f → ){8}g$"):
        run.assert_order("g", "f")


def test_never_can_be_expected() -> None:
    """times=0 passes if there is no such call, even if the tool was called with other arguments."""
    assert RUN.assert_called("search", times=0, query="y") is None
    assert RUN.assert_called("delete", times=0) is None
    RUN.assert_not_called("search", query="y")
    with pytest.raises(AssertionError, match='expected no call of search with query="x"'):
        RUN.assert_not_called("search", query="x")


async def test_results_of_a_session_are_checked_turn_by_turn() -> None:
    """Each turn of a session has only its own calls."""
    model = ScriptedModel(call(search, query="one"), "done", "no tool this time")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[search])
    first, second = await session.arun("one"), await session.arun("two")
    first.assert_called(search, query=ANY, times=1)
    second.assert_not_called(search)
    assert [len(run.calls) for run in session.results] == [1, 0]


def test_a_count_in_the_wrong_place_says_times() -> None:
    """If a number is given in place of arguments, the error says what to write."""
    with pytest.raises(TypeError, match="times="):
        RUN.assert_called("search", 2)  # type: ignore[arg-type]
