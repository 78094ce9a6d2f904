"""Make a Tool of a function. It has the description for the model, and makes a call of the model's arguments.

`make_tools([search])` makes them. `tool.spec` is the description that goes to the model; `tool.bind('{"query": "x"}')` gives
a BoundCall with typed values, or raises InvalidArguments with the message for the model.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import itertools
import types
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, TypeVar, overload

from ..events import ToolDefinitionError, freeze
from ..execution import Raised, attempt_call, describe_error, is_exactly, shorten_repr
from ..text import WIRE_NAME, hide_in_repr, make_wire_name
from .arguments import ArgumentReader, Arguments, ArgumentsByKey, list_shown
from .identity import read_source
from .schema import build_schema
from .signature import (
    Function,
    Kind,
    Parameter,
    ToolContext,
    find_kind,
    find_plain_function,
    get_python_name,
    make_full_name,
    read_documentation,
    read_signature,
)

F = TypeVar("F", bound=Function)
_MARK = "__toolloop_tool__"
_order = itertools.count()


@dataclass(frozen=True)
class ToolSettings:
    """The settings of one tool: the keywords of `@tool(...)`. None leaves a setting to the run."""

    permissions: object = None
    """"full" or "ask". A `DescribedTool` may have any policy that a run may have."""
    timeout: float | None = None
    thread: bool = True
    max_result: int | None = None
    capture_output: bool = False
    parallel: bool = False
    """True if it may run for several rows at once (`amap`); else it runs for one row at a time."""


@dataclass(frozen=True)
class _Mark:
    """The mark that `@tool` sets on a function."""

    settings: ToolSettings
    name: str | None = None
    description: str | None = None
    order: int = field(default_factory=lambda: next(_order))
    """The number of the `@tool` call, so that a notebook's tools keep their order."""


_NO_MARK = _Mark(ToolSettings())


@dataclass(frozen=True)
class Tool:
    """A function that a model may call."""

    name: str
    """The name in the notebook."""
    wire_name: str
    """The name that the model gets: `name`, or a form of it that providers accept."""
    description: str
    """From `@tool(description=...)` or the docstring; "" when there is neither."""
    parameters: Mapping[str, object] = field(hash=False)
    """The JSON schema of the arguments, which are an object."""
    arguments: ArgumentReader = field(repr=False, compare=False)
    """Reads the arguments that the model sent."""
    function: Function = field(repr=False)
    settings: ToolSettings = field(default=ToolSettings(), repr=False)
    kind: Kind = "sync"
    """How the function runs. A "sync" function may still return an awaitable, if it wraps an async function."""
    context_parameter: str | None = field(default=None, repr=False)
    """The name of the parameter that gets a `ToolContext`. The schema does not have it."""
    origin: str = field(default="", repr=False)
    """Where a tool outside of this notebook runs, and what its server claims about it; "" for a tool of this notebook. A
    person sees this text before they decide."""
    qualifier: str = field(default="", repr=False)
    """A text to put before the name if another tool of the run has the same name; "" if a person then has to rename one."""

    @property
    def has_docstring(self) -> bool:
        """True if there is a description for the model."""
        return bool(self.description)

    @property
    def spec(self) -> dict[str, Any]:
        """The tool in OpenAI's format."""
        described = {"description": self.description} if self.description else {}
        return {
            "type": "function",
            "function": {"name": self.wire_name, **described, "parameters": dict(self.parameters)},
        }

    @property
    def source(self) -> str:
        """The source code of the function and of the functions inside it; "" if there is none."""
        return "" if self.origin else read_source(self.function)

    def bind(self, raw: object) -> BoundCall:
        """Return the call with the arguments that the model sent: text, None or a mapping. Raises InvalidArguments."""
        return BoundCall.of(self, self.arguments.read(raw))


@hide_in_repr
@dataclass(frozen=True)
class BoundCall:
    """One call with validated arguments. The values are its own: no other call shares them."""

    tool: Tool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    json: dict[str, Any]
    """The arguments that will run, as JSON by the schema's names, with the defaults that apply. Frozen: safe to show and keep."""
    arguments: ArgumentsByKey = field(repr=False)

    @classmethod
    def of(cls, tool: Tool, arguments: ArgumentsByKey) -> BoundCall:
        """Make the call of `tool` with these arguments."""
        args, kwargs = tool.arguments.pack(arguments)
        return cls(tool, args, kwargs, freeze(list_shown(arguments)), arguments)

    def edited(self, edit: Mapping[str, object]) -> BoundCall:
        """Return the call with a person's `edit`; this call itself if the edit changes nothing. Raises InvalidArguments."""
        made = self.tool.arguments.edit(self.arguments, edit)
        return self if made is self.arguments else BoundCall.of(self.tool, made)

    def changed(self) -> list[str]:
        """List the names of the arguments whose values have changed since `json` was made."""
        return [key for key, argument in self.arguments.items() if argument.has_changed]

    def run(self, context: ToolContext | None = None) -> Any:
        """Call the function. Returns the coroutine of an async function, and the iterator of a generator function."""
        name = self.tool.context_parameter
        filled = {name: context or ToolContext()} if name else {}
        return self.tool.function(*self.args, **self.kwargs, **filled)


class DescribedTool(ABC):
    """A callable that describes itself as a tool. Its schema is given, not read from a signature."""

    @abstractmethod
    def __call__(self, **arguments: object) -> object:
        """Call it by hand."""

    @abstractmethod
    def as_tool(self) -> Tool:
        """Return the tool. An approval of more than one call holds only while its `function` is the same object."""


class ToolSource(ABC):
    """An object that has tools, such as a server. Among a run's `tools=`, it stands for all its tools."""

    @abstractmethod
    def list_tools(self) -> Mapping[str, DescribedTool]:
        """Return the tools by their names. A person writes `source.NAME` for one of them."""

    @abstractmethod
    def examine(self) -> tuple[Literal["ok", "bad", "note"], str, str]:
        """Return (the state, the state in words, what to type if something is wrong), for a line that a person reads."""


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    permissions: Literal["full", "ask"] | None = None,
    timeout: float | None = None,
    thread: bool = True,
    max_result: int | None = None,
    capture_output: bool = False,
    parallel: bool = False,
) -> Callable[[F], F]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    permissions: Literal["full", "ask"] | None = None,
    timeout: float | None = None,
    thread: bool = True,
    max_result: int | None = None,
    capture_output: bool = False,
    parallel: bool = False,
) -> Any:
    """Mark a function as a tool of this notebook. It can be called as before.

    Args:
        function: the function to mark. A bound method comes back as a `functools.partial`, since it cannot have a mark.
        name: the name for the model and the transcript; without it, the function's own.
        description: the description for the model; without it, the docstring's.
        permissions: "ask" or "full" for this tool alone.
        timeout: seconds that one call may take.
        thread: False runs a sync function on the kernel's main thread instead of a worker thread. In a script, this is the
            thread that calls `agent()` or `session.run()`; for a sync stream, the thread of its background loop.
        max_result: how many characters of a result the model gets.
        capture_output: give the model what the function prints, too.
        parallel: let it run for several rows at once (`amap`, `%%toolloop --each`). Without this, it runs for one row at a
            time, also if it is async: functions of a notebook share its variables.
    """
    settings = ToolSettings(permissions, timeout, thread, max_result, capture_output, parallel)
    _check_settings(settings, name, description)
    description = None if description is None else str.__str__(description)
    name = None if name is None else str.__str__(name)  # an exact str: a subclass may equal anything

    def mark(marked: Function) -> Function:
        if not callable(marked):
            raise ToolDefinitionError(
                [f"@tool marks functions, got {shorten_repr(marked, 500)}; settings are given by name"]
            )
        if inspect.ismethod(marked) or inspect.isbuiltin(marked):
            marked = functools.partial(marked)
        setattr(marked, _MARK, _Mark(settings, name, description))
        return marked

    return mark if function is None else mark(function)


def _check_settings(settings: ToolSettings, name: str | None, description: object) -> None:
    problems = []
    if (own := settings.permissions) is not None and not is_exactly(own, "full", "ask"):
        problems.append(f'@tool: permissions must be "full" or "ask" as plain text, got {shorten_repr(own)}')
    numbers: tuple[tuple[str, Any, str], ...] = (
        ("timeout", settings.timeout, "seconds"),
        ("max_result", settings.max_result, "characters"),
    )
    for keyword, value, unit in numbers:
        if value is not None and not (isinstance(value, Real) and float(value) > 0):
            problems.append(f"@tool: {keyword} is in {unit} and more than 0, got {shorten_repr(value, 500)}")
    given: object = name
    if given is not None and not (isinstance(given, str) and str.__str__(given).strip()):
        problems.append(f"@tool: name must be some text, got {name!r}")
    if description is not None and not isinstance(description, str):
        problems.append(f"@tool: description must be text, got {shorten_repr(description)}")
    if problems:
        raise ToolDefinitionError(problems)


def find_marked_tools(namespace: Mapping[str, object]) -> list[Function]:
    """List the functions in a namespace that `@tool` has marked, each once, in the order of their definition."""
    found: dict[int, Function] = {}
    for value in list(namespace.values()):
        mark = inspect.getattr_static(value, _MARK, None)  # static: no code of lazy or proxy objects runs
        if isinstance(mark, _Mark) and callable(value) and not inspect.isclass(value):
            found.setdefault(mark.order, value)  # a wrapper made with functools.wraps has the mark, too
    return [found[order] for order in sorted(found)]


def make_tools(functions: Iterable[Function | ToolSource] | ToolSource) -> tuple[Tool, ...]:
    """Describe functions as tools, in order. A function that is given twice is one tool.

    Raises ToolDefinitionError with all problems of all functions.
    """
    if isinstance(functions, ToolSource):
        functions = [functions]
    if callable(functions) or isinstance(functions, (str, Mapping)):
        given = getattr(functions, "__name__", None) or "function"
        raise ToolDefinitionError([f"tools= takes a list of functions, for example tools=[{given}]"])
    problems: list[str] = []
    tools: list[Tool] = []
    distinct: list[Function] = []
    cause: BaseException | None = None
    for function in _open_sources(functions):
        # Each access to a bound method makes a new object.
        if any(one is function or (type(one) is types.MethodType and one == function) for one in distinct):
            continue
        distinct.append(function)
        made = attempt_call(_make_tool, function)  # an object's attributes are code, and may raise anything
        if not isinstance(made, Raised):
            tools.append(made)
        elif isinstance(made.error, ToolDefinitionError):
            problems += made.error.problems
        else:
            cause = made.error
            problems.append(f"{type(function).__name__}: to look at it raised {describe_error(cause, 500)}")
    if len({made.name for made in tools}) < len(tools):
        tools = _qualify(tools)
    names = [made.name for made in tools]
    for name, count in Counter(names).items():
        if count > 1:
            owners = " and ".join(make_full_name(made.function) for made in tools if made.name == name)
            problems.append(
                f"{count} tools are called {name!r}: {owners}; "
                'give one of them another name: tool(name="...")(function)'
            )
    if problems:
        raise ToolDefinitionError(problems) from cause
    if (wire_names := _make_wire_names(names)) == names:
        return tuple(tools)
    return tuple(
        dataclasses.replace(made, wire_name=name) for made, name in zip(tools, wire_names, strict=True)
    )


def _open_sources(functions: Iterable[Function | ToolSource]) -> Iterable[Function]:
    """Yield the functions; for a source, its tools."""
    for one in functions:
        is_source = attempt_call(isinstance, one, ToolSource) is True
        yield from one.list_tools().values() if is_source else (one,)  # type: ignore[union-attr, misc]


def _qualify(tools: list[Tool]) -> list[Tool]:
    """Return the tools. If several have the same name, each gets its qualifier before the name."""
    counts = Counter(made.name for made in tools)
    return [
        dataclasses.replace(made, name=(name := f"{made.qualifier}_{made.name}"), wire_name=name)
        if made.qualifier and counts[made.name] > 1
        else made
        for made in tools
    ]


def _make_tool(function: Function) -> Tool:
    if isinstance(function, DescribedTool):
        return function.as_tool()
    given: object = function
    if not callable(given):
        hint = ": the function itself, without quotes" if isinstance(given, str) else ""
        raise ToolDefinitionError([f"a tool is a function{hint}, got {shorten_repr(given, 500)}"])
    mark = _get_mark(function)
    name = mark.name or get_python_name(function)
    if name == "<lambda>":
        problem = 'a lambda has no name for the model; write a def, or tool(name="...")(lambda ...)'
        raise ToolDefinitionError([problem])
    description, texts = read_documentation(function)
    described, context_parameter = read_signature(function, texts)
    module = getattr(find_plain_function(function), "__module__", None) or "__main__"
    parameters = _put_wire_keys(described)
    adapter, schema = build_schema(name, module, parameters)
    return Tool(
        name=name,
        wire_name=name,
        description=description if mark.description is None else mark.description,
        parameters=schema,
        arguments=Arguments(name, parameters, adapter),
        function=function,
        settings=mark.settings,
        kind=find_kind(function),
        context_parameter=context_parameter,
    )


def get_tool_name(function: Function) -> str:
    """Return the name of a function as a tool: that of `@tool(name=…)`, else the function's own."""
    return _get_mark(function).name or get_python_name(function)


def _get_mark(function: Function) -> _Mark:
    mark = getattr(function, _MARK, None)
    if mark is None and isinstance(function, functools.partial):
        return _get_mark(function.func)
    return mark if isinstance(mark, _Mark) else _NO_MARK


def _make_wire_names(names: Sequence[str]) -> list[str]:
    """Make a name that providers take for each of these (distinct) names. A valid name stays unchanged.

    The same names always give the same result, so that another run can continue a conversation.
    """
    taken = set(filter(WIRE_NAME.fullmatch, names))
    wire = list(names)
    for index, name in enumerate(names):
        if name not in taken:
            wire[index] = make_wire_name(name, taken)
            taken.add(wire[index])
    return wire


def _put_wire_keys(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameters with schema names that providers take (Anthropic also refuses a property `größe`).

    If a name had to be changed and the parameter has no description, the old name becomes its description.
    """
    made = list(parameters)
    for index, key in enumerate(_make_wire_names([parameter.key for parameter in parameters])):
        if key != (own := made[index].key):
            text = made[index].description or own
            made[index] = dataclasses.replace(made[index], key=key, own_key=own, description=text)
    return made


def suggest(name: str, tools: Sequence[Tool]) -> str:
    """Write the message for a model that has called an unknown tool."""
    known = sorted(tool.wire_name for tool in tools)
    if not known:
        return f"unknown tool {name!r}; there are no tools, answer without one"
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown tool {name!r}; {hint}available: {', '.join(known)}"
