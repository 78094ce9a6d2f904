"""Whatever code that is not ours raises is its own error: only an interrupt and the run's own cancel end a run."""

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
    """As PyO3 raises when Rust code panics: no Exception."""


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self):
        raise SystemExit(9)


class OddNotes(Exception):
    """An error whose notes are no texts."""

    __notes__ = 5


class NoNotes(Exception):
    """An error whose notes cannot be had."""

    @property
    def __notes__(self):
        raise Panic


class Clock(asyncio.CancelledError):
    """A cancellation whose text cannot be had."""

    def __str__(self):
        raise Panic


def group(*errors):
    kind = getattr(builtins, "BaseExceptionGroup", None)
    if kind is None:
        pytest.skip("Python 3.10 has no groups")
    return kind("several", errors)


def tool_that(kind, act):
    """A tool of this kind that does `act`."""

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
    """The Result of a run that calls `f` once and then answers; its history is valid."""
    session = aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel(call("f"), "Next."), tools=[f], **keywords
    )
    result = await session.arun("Go.")
    messages = await session.history()
    assert history.validate(messages) == []
    told = [message["content"] for message in messages if message["role"] == "tool"]
    assert [made.output for made in result.tool_results] == told, "the model is told"
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
# Of a task that a tool has made itself, asyncio lets SystemExit out of the loop, and forgets what a cancelled one raised.
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
    """No kind of tool ends the run with what it raises, whatever that is."""
    if told.startswith("Cancelled") and not hasattr(asyncio.Task, "cancelling"):
        told = f"Cancelled: {WAS_CANCELLED}"  # Python 3.10 forgets the words
    result = await run(tool_that(kind, raising(make)))
    assert (result.stop_reason, result.text) == ("done", "Next.")
    assert [(made.is_error, made.output) for made in result.tool_results] == [(True, told)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [KeyboardInterrupt, lambda: group(ValueError(), group(KeyboardInterrupt()))])
async def test_an_interrupt_ends_the_run(kind, make):
    """KeyboardInterrupt, also in a group of errors, is the one thing that ends the run."""
    result = await run(tool_that(kind, raising(make)))
    assert result.stop_reason == "cancelled"
    assert "ended the run" in result.tool_results[0].output


@pytest.mark.parametrize("kind", ["here", "async", "limited", "async generator", "task"])
async def test_a_tool_that_cancels_its_own_task_has_failed(kind):
    """A tool that cancels the task it is in has cancelled itself, and not the run."""
    result = await run(tool_that(kind, lambda: asyncio.current_task().cancel()))
    assert result.stop_reason == "done"
    assert result.tool_results[0].output.startswith("Cancelled: ")


@pytest.mark.parametrize("kind", ["here", "async", "limited", "async generator", "task"])
async def test_a_tool_does_not_stop_the_loop(kind):
    """`loop.stop()` in a tool is an error of the tool, and the loop is as it was found afterwards."""
    result = await run(tool_that(kind, lambda: asyncio.get_running_loop().stop()))
    assert result.stop_reason == "done"
    assert result.tool_results[0].output == f"RuntimeError: {NOT_TO_STOP}"
    assert "stop" not in vars(asyncio.get_running_loop())


def test_everybody_else_stops_the_loop():
    """What is not of a run (a kernel that shuts down) stops the loop also while a tool is at work."""
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
    """`agent()`, on a loop of its own, ends with the answer."""
    for act in (raising(SystemExit), lambda: asyncio.get_running_loop().stop()):
        model = ScriptedModel(call("f"), "Next.")
        assert agent(Harness.TOOL_LOOP, "Go.", model=model, tools=[tool_that("async", act)]).text == "Next."


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
@pytest.mark.parametrize(
    "method", ["__repr__", "__str__", "_repr_html_", "_repr_png_", "__len__", "__getattr__"]
)
@pytest.mark.parametrize("base", [object, list, dict])
async def test_a_value_that_cannot_be_looked_at_is_a_result(error, method, base):
    """Whatever a value's own methods raise, the run goes on, and the model reads something."""

    def fail(self, *given):
        raise error

    odd = type("Odd", (base,), {method: fail})()
    for value in (odd, [odd], {"a": odd}):
        result = await run(tool_that("async", lambda value=value: value))
        assert (result.stop_reason, result.tool_results[0].is_error) == ("done", False)
        assert result.tool_results[0].output


@pytest.mark.parametrize("make", [lambda: SystemExit(3), Panic, GeneratorExit, Mute, Clock])
async def test_a_policy_and_a_handler_that_raise_anything_ask_and_deny(make):
    """A policy that exits means "ask", a handler that exits denies, sync or async; nothing hangs."""

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
    """The model is told what a validator of an argument or of the answer raised, and may try again."""
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
    """The GeneratorExit of a coroutine that nobody awaits any more is not taken for an error of the work."""
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
    """Work in a task of its own is cancelled with the one who waits for it, who is cancelled also when it had ended."""
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
    """The error, raised from its cause, with notes."""
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
    """The model reads the errors of a group, the notes and the cause, each where it belongs."""
    assert explain_error(make()) == text
    assert describe(make()).text == text


def in_each_other(levels, copies=1):
    """Groups in groups. Each holds the next one `copies` times, so that there are copies ** levels ways to the bottom."""
    error = ValueError("bottom")
    for _ in range(levels):
        error = group(*[error] * copies)
    return error


def chain(length):
    """An error with many causes."""
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
    """However many errors a tool's error leads to, and on whatever ways: the run goes on, and few of them are read."""

    @tool(thread=in_thread)
    def work() -> None:
        raise make()

    result = agent(Harness.TOOL_LOOP, "Go", model=ScriptedModel(call(work), "Done."), tools=[work])
    (one,) = result.tool_results
    assert (result.text, one.status) == ("Done.", "failed")
    assert len(one.output) + len(one.traceback) < 5_000


def test_an_interrupt_deep_in_groups():
    """A KeyboardInterrupt ends the run also if it is ten groups deep."""

    def work() -> None:
        error = KeyboardInterrupt()
        for _ in range(10):
            error = group(error)
        raise error

    result = agent(Harness.TOOL_LOOP, "Go", model=ScriptedModel(call(work), "Done."), tools=[work])
    assert result.stop_reason == "cancelled"


def test_an_error_whose_class_cannot_be_read():
    """Such an error ends the turn. The tool's thread does not die of it, so nobody waits for a thread that is gone."""

    class Classless(Exception):
        @property
        def __class__(self):
            raise ValueError("no class")

    def work() -> None:
        raise Classless

    result = agent(Harness.TOOL_LOOP, "Go", model=ScriptedModel(call(work)), tools=[work], timeout=5)
    assert (result.stop_reason, result.error) == ("runtime_error", "ValueError: no class")


def test_groups_that_share_their_errors():
    """An error that is in a group many times is searched for a KeyboardInterrupt once, not once for each way to it."""
    assert not is_interrupt(in_each_other(10, copies=20))


def test_an_explanation_is_bounded():
    """Of very many inner errors ten are told and the rest counted; neither depth nor a circle of causes goes on for ever."""
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
    """What an eager task factory (Python 3.12) gives for work that never waits: it has ended before anybody has the task."""

    def __init__(self, work, loop):
        super().__init__(loop=loop)
        try:
            work.send(None)
        except StopIteration as end:
            self.set_result(end.value)


async def test_a_task_that_ends_while_it_is_made():
    """With an eager task factory, work that never waits has its outcome; as an error it would turn a policy's "deny" into "ask"."""

    async def double() -> int:
        return 42

    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, work, **_: EagerTask(work, loop))
    try:
        outcome = await attempt_apart(double())
    finally:
        loop.set_task_factory(None)
    assert (outcome.value, outcome.error) == (42, None)
