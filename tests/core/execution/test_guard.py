"""An exception from code that is not ours is an error of that code. Only an interrupt and a cancel of the run end a run."""

from __future__ import annotations

import asyncio
import builtins
import gc

import pytest
from pydantic import BaseModel, field_validator

from toolloop_jupyter import Harness, aagent_session, agent, tool
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.execution.guard import explain_error, is_interrupt
from toolloop_jupyter.core.execution.runner import NOT_TO_STOP, WAS_CANCELLED, attempt, attempt_apart
from toolloop_jupyter.core.results.text import describe
from toolloop_jupyter.teaching.scripted import ScriptedModel, call


class Panic(BaseException):
    """The exception that PyO3 raises if Rust code panics. It is not an `Exception`."""


class Mute(Exception):
    """An error whose text cannot be read."""

    def __str__(self):
        raise SystemExit(9)


class OddNotes(Exception):
    """An error whose notes are not texts."""

    __notes__ = 5


class NoNotes(Exception):
    """An error whose notes cannot be read."""

    @property
    def __notes__(self):
        raise Panic


class Clock(asyncio.CancelledError):
    """A CancelledError whose text cannot be read."""

    def __str__(self):
        raise Panic


def group(*errors):
    kind = getattr(builtins, "BaseExceptionGroup", None)
    if kind is None:
        pytest.skip("Python 3.10 has no groups")
    return kind("several", errors)


def tool_that(kind, act):
    """Return a tool of this kind that calls `act`."""

    def sync() -> str:
        """Do it."""
        return act()

    async def on_loop() -> str:
        """Do it."""
        return act()

    def generator():
        """Do it after an item."""
        yield 1
        act()

    async def async_generator():
        """Do it after an item."""
        yield 1
        act()

    async def in_a_task() -> str:
        """Do it in a task of its own."""

        async def work():
            await asyncio.sleep(0)
            return act()

        return await asyncio.create_task(work())

    made, settings = {
        "thread": (sync, {}),
        "here": (sync, {"thread": False}),
        "async": (on_loop, {}),
        "limited": (on_loop, {"timeout": 9}),
        "generator": (generator, {}),
        "async generator": (async_generator, {}),
        "task": (in_a_task, {}),
    }[kind]
    return tool(name="f", **settings)(made)


KINDS = ["thread", "here", "async", "limited", "generator", "async generator"]


def raising(make):
    def act(*_):
        raise make()

    return act


async def run(f, **keywords):
    """Return the Result of a run that calls `f` once and then answers. Check that the history is valid."""
    session = aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel(call("f"), "Next."), tools=[f], **keywords
    )
    result = await session.arun("Go.")
    messages = await session.history()
    assert history.validate(messages) == []
    tool_texts = [message["content"] for message in messages if message["role"] == "tool"]
    assert [made.output for made in result.tool_results] == tool_texts, "the model is told"
    return result


RAISED = [
    (lambda: Panic("rust"), "Panic: rust"),
    (lambda: GeneratorExit("g"), "GeneratorExit: g"),
    (
        lambda: group(Panic(), SystemExit()),
        "BaseExceptionGroup: several (2 sub-exceptions)\n- Panic\n- SystemExit",
    ),
    (Mute, "Mute: <without a text: SystemExit>"),
    (lambda: OddNotes("n"), "OddNotes: n"),
    (lambda: NoNotes("n"), "NoNotes: n"),
]
# These errors are not tried in a task that a tool has made itself: asyncio raises SystemExit out of the loop, and loses the
# error of a cancelled task.
NOT_IN_A_TASK = [
    (lambda: SystemExit(2), "SystemExit: 2"),
    (SystemExit, "SystemExit"),
    (lambda: asyncio.CancelledError("mine"), "Cancelled: mine"),
    (Clock, "Cancelled: <without a text: Panic>"),
]


@pytest.mark.parametrize(
    ("kind", "make", "told"),
    [(kind, *one) for kind in KINDS for one in RAISED + NOT_IN_A_TASK] + [("task", *one) for one in RAISED],
)
async def test_what_a_tool_raises_is_its_error(kind, make, told):
    """Whatever a tool of any kind raises: the exception is the error of the call, and the run goes on."""
    if told.startswith("Cancelled") and not hasattr(asyncio.Task, "cancelling"):
        told = f"Cancelled: {WAS_CANCELLED}"  # Python 3.10 loses the text of a CancelledError
    result = await run(tool_that(kind, raising(make)))
    assert (result.stop_reason, result.text) == ("done", "Next.")
    assert [(made.is_error, made.output) for made in result.tool_results] == [(True, told)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [KeyboardInterrupt, lambda: group(ValueError(), group(KeyboardInterrupt()))])
async def test_an_interrupt_ends_the_run(kind, make):
    """Only a KeyboardInterrupt ends the run, alone or in a group of errors."""
    result = await run(tool_that(kind, raising(make)))
    assert result.stop_reason == "cancelled"
    assert "ended the run" in result.tool_results[0].output


@pytest.mark.parametrize("kind", ["here", "async", "limited", "async generator", "task"])
async def test_a_tool_that_cancels_its_own_task_has_failed(kind):
    """If a tool cancels the task in which it runs, the call has failed, but the run goes on."""
    result = await run(tool_that(kind, lambda: asyncio.current_task().cancel()))
    assert result.stop_reason == "done"
    assert result.tool_results[0].output.startswith("Cancelled: ")


@pytest.mark.parametrize("kind", ["here", "async", "limited", "async generator", "task"])
async def test_a_tool_does_not_stop_the_loop(kind):
    """`loop.stop()` in a tool is an error of the tool. Afterwards, the loop is as it was before."""
    result = await run(tool_that(kind, lambda: asyncio.get_running_loop().stop()))
    assert result.stop_reason == "done"
    assert result.tool_results[0].output == f"RuntimeError: {NOT_TO_STOP}"
    assert "stop" not in vars(asyncio.get_running_loop())


def test_everybody_else_stops_the_loop():
    """Code outside of a run (a kernel that shuts down) can stop the loop, even while a tool runs."""
    loop, log = asyncio.new_event_loop(), []

    async def f() -> str:
        """Wait."""
        loop_stop.set()
        await asyncio.sleep(0.01)
        log.append("on")
        return "x"

    async def stop():
        await loop_stop.wait()
        loop.stop()
        log.append("stopped")

    loop_stop = asyncio.Event()
    task, _ = loop.create_task(run(f)), loop.create_task(stop())
    loop.run_forever()
    assert log == ["stopped"]
    assert loop.run_until_complete(task).stop_reason == "done"
    loop.close()


def test_the_sync_api_survives_too():
    """A call of `agent()`, which has its own loop, ends with the answer, too."""
    for act in (raising(SystemExit), lambda: asyncio.get_running_loop().stop()):
        model = ScriptedModel(call("f"), "Next.")
        assert agent(Harness.TOOL_LOOP, "Go.", model=model, tools=[tool_that("async", act)]).text == "Next."


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
@pytest.mark.parametrize(
    "method", ["__repr__", "__str__", "_repr_html_", "_repr_png_", "__len__", "__getattr__"]
)
@pytest.mark.parametrize("base", [object, list, dict])
async def test_a_value_that_cannot_be_looked_at_is_a_result(error, method, base):
    """Whatever the methods of a returned value raise: the run goes on, and the model gets a text."""

    def fail(self, *given):
        raise error

    odd = type("Odd", (base,), {method: fail})()
    for value in (odd, [odd], {"a": odd}):
        result = await run(tool_that("async", lambda value=value: value))
        assert (result.stop_reason, result.tool_results[0].is_error) == ("done", False)
        assert result.tool_results[0].output


@pytest.mark.parametrize("make", [lambda: SystemExit(3), Panic, GeneratorExit, Mute, Clock])
async def test_a_policy_and_a_handler_that_raise_anything_ask_and_deny(make):
    """A policy that raises SystemExit means "ask". A handler that raises it, sync or async, denies the call. Nothing waits
    for ever.
    """

    async def handler(approval):
        raise make()

    f = tool_that("thread", lambda: "ran")
    asked = await run(f, permissions=raising(make), on_approval=lambda approval: True)
    assert asked.tool_results[0].output == "ran"
    for on_approval in (handler, raising(make)):
        denied = await run(f, permissions="ask", on_approval=on_approval)
        assert denied.stop_reason == "done"
        assert denied.tool_results[0].output.startswith("denied: on_approval raised")


async def test_an_interrupt_in_a_policy_or_a_handler_ends_the_run():
    """Ctrl-C at an `input()` that asks for an approval stops the run, and the tool does not run."""
    f = tool_that("thread", lambda: "ran")
    for keywords in (
        {"permissions": raising(KeyboardInterrupt), "on_approval": lambda approval: True},
        {"permissions": "ask", "on_approval": raising(KeyboardInterrupt)},
    ):
        result = await run(f, **keywords)
        assert result.stop_reason == "cancelled"
        assert not result.tool_results[0].ran


@pytest.mark.parametrize("make", [lambda: SystemExit(3), Panic, lambda: KeyError("k")])
async def test_a_validator_that_exits_refuses_what_it_was_given(make):
    """If a validator of an argument or of the answer raises anything, the model is told, and may try again."""
    failing = [True]

    class Number(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            if failing:
                raise make()
            return n

    def f(number) -> str:
        """Take one."""
        return "ran"

    f.__annotations__["number"] = Number

    model = ScriptedModel(call("f", number={"n": 1}), "Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[f])
    result = await session.arun("Go.")
    assert result.stop_reason == "done"
    assert type(make()).__name__ in result.tool_results[0].output

    def mended(messages):
        failing.clear()
        return '{"n": 4}'

    model = ScriptedModel('{"n": 3}', mended)
    result = await aagent_session(Harness.TOOL_LOOP, model=model, output=Number).arun("Go.")
    assert (result.stop_reason, result.output) == ("done", Number(n=4))
    assert type(make()).__name__ in model.requests[1].messages[-1]["content"]


async def test_a_coroutine_that_is_closed_is_closed():
    """If a waiting coroutine is closed, `attempt` does not take the GeneratorExit for an error of the work."""
    log = []

    async def outer():
        await attempt(asyncio.sleep(9))
        log.append("went on")

    waiting = outer()
    waiting.send(None)
    waiting.close()
    gc.collect()
    assert log == []


async def test_a_cancel_is_passed_on_and_not_lost():
    """A cancel of the task that waits for `attempt_apart` also cancels the work. If the work has just ended, the waiting task
    is still cancelled.
    """
    ended = asyncio.Event()

    async def long():
        try:
            await asyncio.sleep(9)
        finally:
            ended.set()

    waiting = asyncio.ensure_future(attempt_apart(long()))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()

    async def short():
        asyncio.get_running_loop().call_soon(lambda: waiting.cancel())

    waiting = asyncio.ensure_future(attempt_apart(short()))
    with pytest.raises(asyncio.CancelledError):
        await waiting


def _raise_from(error, cause, *notes):
    """Return the error with this cause and these notes."""
    for note in notes:
        error.__notes__ = [*getattr(error, "__notes__", ()), note]
    error.__cause__ = cause
    return error


EXPLAINED = {
    "a group": (
        lambda: group(ValueError("Dataset 'X' not found"), OSError("disk")),
        "ExceptionGroup: several (2 sub-exceptions)\n- ValueError: Dataset 'X' not found\n- OSError: disk",
    ),
    "a group in a group": (
        lambda: group(group(KeyError("a")), ValueError("b\nc")),
        (
            "ExceptionGroup: several (2 sub-exceptions)\n- ExceptionGroup: several (1 sub-exception)\n"
            "  - KeyError: 'a'\n- ValueError: b\n  c"
        ),
    ),
    "notes": (lambda: _raise_from(ValueError("a"), None, "try b", "or c"), "ValueError: a\ntry b\nor c"),
    "a cause": (
        lambda: _raise_from(RuntimeError("failed"), OSError("disk full")),
        "RuntimeError: failed\ncaused by OSError: disk full",
    ),
    "a cause that the text holds": (
        lambda: _raise_from(RuntimeError("failed: disk full"), OSError("disk full")),
        "RuntimeError: failed: disk full",
    ),
    "a cause in a group": (
        lambda: group(_raise_from(RuntimeError("failed"), OSError("disk full"))),
        "ExceptionGroup: several (1 sub-exception)\n- RuntimeError: failed\n  caused by OSError: disk full",
    ),
}


@pytest.mark.parametrize(("make", "text"), EXPLAINED.values(), ids=EXPLAINED)
def test_an_error_is_explained_with_what_it_holds(make, text):
    """The model gets the errors of a group, the notes and the cause, each at its place."""
    assert explain_error(make()) == text
    assert describe(make()).text == text


def in_each_other(levels, copies=1):
    """Return groups of errors inside groups. Each group contains the next one `copies` times, so copies ** levels ways lead
    to the innermost error.
    """
    error = ValueError("bottom")
    for _ in range(levels):
        error = group(*[error] * copies)
    return error


def chain(length):
    """Return an error with many causes, one behind the other."""
    error = ValueError("first try")
    for number in range(length):
        made = ValueError(f"try {number}")
        made.__cause__, error = error, made
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: in_each_other(900),
        lambda: in_each_other(60, copies=2),
        lambda: chain(20_000),
    ],
    ids=["deep", "shared", "chain"],
)
@pytest.mark.parametrize("in_thread", [True, False])
def test_an_error_with_very_many_errors_in_it(make, in_thread):
    """A tool's error may lead to very many other errors, in any form: the run goes on, and only a few of the errors are read."""

    @tool(thread=in_thread)
    def work() -> None:
        raise make()

    result = agent(Harness.TOOL_LOOP, "Go", model=ScriptedModel(call(work), "Done."), tools=[work])
    (one,) = result.tool_results
    assert (result.text, one.status) == ("Done.", "failed")
    assert len(one.output) + len(one.traceback) < 5_000


def test_an_interrupt_deep_in_groups():
    """A KeyboardInterrupt ends the run even if it is inside ten groups."""

    def work() -> None:
        error = KeyboardInterrupt()
        for _ in range(10):
            error = group(error)
        raise error

    result = agent(Harness.TOOL_LOOP, "Go", model=ScriptedModel(call(work), "Done."), tools=[work])
    assert result.stop_reason == "cancelled"


def test_an_error_whose_class_cannot_be_read():
    """Such an error ends the turn. It does not end the tool's thread, so nobody waits for a thread that has ended."""

    class Classless(Exception):
        @property
        def __class__(self):
            raise ValueError("no class")

    def work() -> None:
        raise Classless

    result = agent(Harness.TOOL_LOOP, "Go", model=ScriptedModel(call(work)), tools=[work], timeout=5)
    assert (result.stop_reason, result.error) == ("runtime_error", "ValueError: no class")


def test_groups_that_share_their_errors():
    """An error that a group contains many times is searched for a KeyboardInterrupt only once."""
    assert not is_interrupt(in_each_other(10, copies=20))


def test_an_explanation_is_bounded():
    """Of very many inner errors, ten are described, and the others are counted. A deep chain or a circle of causes does not
    go on for ever.
    """
    lines = explain_error(group(*(ValueError(str(n)) for n in range(50)))).splitlines()
    assert (len(lines), lines[-1]) == (12, "- and 40 more")
    deep = ValueError("bottom")
    for _ in range(200):
        deep = group(deep)
    assert len(explain_error(deep).splitlines()) == 5
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert len(explain_error(one).splitlines()) == 5


class EagerTask(asyncio.Future):
    """A task as an eager task factory (Python 3.12) makes it for work that never waits: it has ended before any code gets the
    task.
    """

    def __init__(self, work, loop):
        super().__init__(loop=loop)
        try:
            work.send(None)
        except StopIteration as end:
            self.set_result(end.value)


async def test_a_task_that_ends_while_it_is_made():
    """With an eager task factory, work that never waits still gives its value. If it gave an error, a policy's "deny" would
    become "ask".
    """

    async def double() -> int:
        return 42

    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, work, **_: EagerTask(work, loop))
    try:
        outcome = await attempt_apart(double())
    finally:
        loop.set_task_factory(None)
    assert (outcome.value, outcome.error) == (42, None)
