"""Guarantee: a card shows the source of all code that runs, and "all calls of this tool" ends when the function changes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import importlib.util
import io
import re
import sys
import textwrap
from collections import deque
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from support.approving import asked, session_of
from toolloop_jupyter import tool
from toolloop_jupyter.core.tools.identity import Version
from toolloop_jupyter.core.tools.tool import make_tools
from toolloop_jupyter.teaching.scripted import call

# --- source ---------------------------------------------------------------------------------------------------


def source(function):
    return make_tools([function])[0].source


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module with a text and import it; the second call writes only."""
    path = tmp_path / "paying.py"

    def write(text):
        path.write_text(textwrap.dedent(text))
        if "paying" in sys.modules:
            return sys.modules["paying"]
        spec = importlib.util.spec_from_file_location("paying", path)
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "paying", made)
        spec.loader.exec_module(made)
        return made

    return write


PAY = '''\
from __future__ import annotations

def pay(x: int) -> str:
    """Pay."""
    return "{}"
'''
EDITED = {
    "the function": PAY.format("only a test"),
    "above it": '"""A docstring, which was not there."""\n\n' + PAY.format("all of it"),
    "it is gone": "",
    "no Python any more": "def pay(x: int) -> str:\n  return (",
}


@pytest.mark.parametrize("now", EDITED.values(), ids=EDITED)
def test_a_file_that_was_edited_after_the_import(module, now):
    """If the text in the file is not the code that runs, it is not shown, and a line says why."""
    made = module(PAY.format("all of it"))
    assert source(made.pay).endswith('return "all of it"\n')
    module(now)
    begin = "# The source of pay is not shown: its file has changed since it was loaded" if now else ""
    assert source(made.pay).startswith(begin)
    assert "def pay" not in source(made.pay)


def test_code_that_was_replaced_in_memory(module):
    """If the code of a function was replaced, the source of the old code is never shown."""
    made = module(PAY.format("all of it") + "\n\ndef other(x: int) -> str:\n    return 'other'\n")
    made.pay.__code__ = made.other.__code__
    assert source(made.pay) == "def other(x: int) -> str:\n    return 'other'\n"
    made.pay.__code__ = made.pay.__code__.replace(co_consts=(None, "hidden"))
    assert "is not shown" in source(made.pay)


def test_a_cells_source():
    """The source of a cell is shown, even if the cell awaits or begins with a comment."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    cell = "# mine\nimport asyncio\nawait asyncio.sleep(0)\n\ndef f(x: int) -> str:\n    'Do.'\n    return [y for y in [x]]\n"
    assert shell.run_cell(cell).success
    assert source(shell.user_ns["f"]) == cell.partition("\n\n")[2]


def test_each_layer_of_a_decorated_function(module):
    """The wrapper runs first, so its source comes first. A wrapper without Python source is named."""
    made = module(
        """\
        import functools

        def audited(function):
            @functools.wraps(function)
            def wrapper(*args, **keywords):
                print("something else")
                return function(*args, **keywords)
            return wrapper

        @audited
        def read(path: str) -> str:
            "Read."
            return "r"

        cached = functools.lru_cache(read.__wrapped__)
        """
    )
    shown = source(made.read)
    first, second = (
        shown.index("# 1 of 2, which runs: "),
        shown.index("# 2 of 2, which the function above claims to wrap: "),
    )
    assert first < shown.index('print("something else")') < second < shown.index('return "r"')
    assert "_lru_cache_wrapper\n# It has no Python source." in source(made.cached)
    assert source(functools.partial(made.read, path="x")) == shown


# --- versions -------------------------------------------------------------------------------------------------


def _closure():
    inner = lambda: "old"  # noqa: E731

    def f(x: int = 1) -> str:
        """Do."""
        return inner()

    def change():
        nonlocal inner
        inner = lambda: "new"  # noqa: E731

    return f, change


def _code_in_a_closure():
    def inner():
        return "old"

    def f(x: int = 1) -> str:
        """Do."""
        return inner()

    return f, lambda: setattr(inner, "__code__", (lambda: "new").__code__)


def _wrapper():
    def f(x: int = 1) -> str:
        """Do."""
        return "old"

    @functools.wraps(f)
    def outer(*args, **keywords):
        return f(*args, **keywords)

    return functools.wraps(outer)(lambda *a, **k: outer(*a, **k)), lambda: setattr(
        outer, "__defaults__", (1,)
    )


def _partial(change):
    def f(x: int, mode: list) -> str:
        """Do."""
        return mode[0]

    made = functools.partial(f, mode=["old"])
    return tool(name="f")(made), lambda: change(made.keywords)


def _partial_with(value, change):
    def f(x: int, mode: object) -> str:
        """Do."""
        return repr(mode)

    return tool(name="f")(functools.partial(f, mode=value)), lambda: change(value)


def _default():
    def f(x: int = 1, to: list[str] = ["old"]) -> str:  # noqa: B006
        """Do."""
        return to[0]

    return f, lambda: f.__defaults__[1].append("new")


class Where(BaseModel):
    to: list[str] = ["old"]


@dataclasses.dataclass
class Row:
    to: str = "old"


class Kind(enum.Enum):
    ONE = 1


class Place(enum.Enum):
    HOME = ["old"]  # noqa: RUF012 - what is tested


class Desk:
    def __init__(self):
        self.calls = 0
        self.do = lambda: "old"

    def __call__(self, x: int = 1) -> str:
        """Do."""
        self.calls += 1
        return self.do()

    def f(self, x: int = 1) -> str:
        """Do."""
        return self(x)


def _held(value, change):
    def f(x: int = 1) -> str:
        """Do."""
        return repr(value)

    return f, lambda: change(value)


def _rebound():
    to = "home"

    def f(x: int = 1) -> str:
        """Do."""
        return to

    def change():
        nonlocal to
        to = "elsewhere"

    return f, change


def _object(method):
    desk = Desk()
    made = desk.f if method else tool(name="f")(desk)
    return made, lambda: setattr(desk, "do", lambda: "new")


CHANGES = {
    "a function in its closure": _closure,
    "code of a function in its closure": _code_in_a_closure,
    "a wrapper in the middle": _wrapper,
    "a partial's keyword": lambda: _partial(lambda keywords: keywords.update(mode=["new"])),
    "what is in a partial's keyword": lambda: _partial(lambda keywords: keywords["mode"].insert(0, "new")),
    "item 400 of a partial's 500": lambda: _partial_with([0] * 500, lambda items: items.__setitem__(400, 1)),
    "a text in its closure": _rebound,
    "what is in a list in its closure": lambda: _held([["old"]], lambda value: value[0].append("new")),
    "code in a dict in its closure": lambda: _held(
        {"do": _code_in_a_closure}, lambda value: value.update(do=_closure)
    ),
    "what a list has whose append it calls": lambda: _held([1].append, lambda add: add(2)),
    "what a dict has whose get a partial holds": lambda: _partial_with(
        {"to": "old"}.get, lambda get: get.__self__.update(to="new")
    ),
    "what a list has that an Enum's member is": lambda: _held(
        Place.HOME, lambda member: member.value.append("new")
    ),
    "what is in a default": _default,
    "a callable object's attribute": lambda: _object(method=False),
    "an attribute of a method's object": lambda: _object(method=True),
}


@pytest.mark.parametrize("make", CHANGES.values(), ids=CHANGES)
async def test_a_change_is_asked_about(make):
    """After "all calls in this session", a person is asked again only if the code that runs has changed."""
    f, change = make()
    turns = [turn for _ in range(3) for turn in (call("f", x=1), "Done.")]
    session = session_of([f], *turns)
    assert len(await asked(session, "session")) == 1
    assert len(await asked(session, "session")) == 0
    change()
    assert len(await asked(session, "session")) == 1


class Items(list):
    """A list that may have more to it than its items."""


class Names(dict):
    """A dict that may have more to it than its items."""


class Box:
    to = "old"


def _a_partial_with(value):
    return _partial_with(value, None)[0]


def _a_closure_with(value):
    return _held(value, None)[0]


UNSEEN = {
    "a list of a class of its own": Items([1]),
    "a dict of a class of its own": Names(a=1),
    "2,000 items": [0] * 2_000,
    "an object": Box(),
    "a model": Where(),
    "a dataclass": Row(),
    "a deque": deque([1]),
    "a bytearray": bytearray(b"a"),
    "a method of an object": Box().__eq__,
    "a Python method of an object": Desk().f,
    "an object in a tuple in a list": [(1, Box())],
    "an iterator": iter([1]),
    "a file in memory": io.StringIO("old"),
}


@pytest.mark.parametrize("value", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.parametrize("make", [_a_partial_with, _a_closure_with])
async def test_what_could_change_unseen_is_asked_about_each_time(make, value):
    """A function that holds such a value is approved for one call only. A wider approval counts for one call."""
    session = session_of([make(value)], call("f", x=1), call("f", x=2), "Done.")
    await asked(session, "session")
    approvals = session.results[-1].approvals
    assert [one.scopes for one in approvals] == [("call",)] * 2
    assert [one.decision.scope for one in approvals] == ["call"] * 2
    assert [result.ran for result in session.results[-1].tool_results] == [True, True]


UNCHANGING = [
    *(1, "x", b"x", None, (1, ("x",)), frozenset({1}), Where, Box, io, len, re.compile("x"), Path("x")),
    *(dt.date(2020, 1, 1), decimal.Decimal(1), Kind.ONE, Field(3, ge=0), object(), [Kind.ONE, {"a": {1, 2}}]),
]


@pytest.mark.parametrize("value", UNCHANGING, ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)))
def test_all_calls_are_offered_with_what_notebooks_hold(value):
    """A card offers "all calls" for plain values, classes, modules, enums, paths, dates and pydantic's `Field`."""
    for made in (_a_partial_with(value), _a_closure_with(value)):
        assert Version.of(made).fixed
        assert Version.of(made).is_still(Version.of(made))


async def test_what_it_counts_itself_is_asked_about():
    """A log in the closure changes the function with each call, so a person is asked. A log in an object does not."""
    log: list[int] = []

    def f(x: int = 1) -> int:
        """Do."""
        log.append(x)
        return len(log)

    session = session_of([f], call("f"), call("f"), "Done.")
    assert len(await asked(session, "session")) == 2
    desk = Desk()
    for function in (desk, desk.f, functools.lru_cache(desk.f)):
        before = Version.of(function)
        function(2)
        assert before.is_still(Version.of(function))


class Odd:
    """An object that cannot be looked at."""

    def __call__(self, x: int = 1) -> str:
        return "ok"

    def __getattribute__(self, name):
        raise RuntimeError(name)


def test_what_cannot_be_looked_at_is_asked_about_each_time():
    """A version never raises, but then equals no other version. Of a large default, only the first parts are read."""
    assert not Version.of(Odd()).is_still(Version.of(Odd()))
    big = functools.partial(print, *range(100_000))
    assert Version.of(big).is_still(Version.of(big))
    assert len(Version.of(big).parts) <= 1_000
    assert not Version.of(big).fixed
    loop: list = []
    loop.append(loop)
    looped = functools.partial(print, loop)
    assert Version.of(looped).is_still(Version.of(looped))
