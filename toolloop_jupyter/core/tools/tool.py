"""Describe a function as a Tool, which a model can call.

`make_tools([search])` returns the Tools of a list of functions. `tool.spec` is the description that goes to the model.
`tool.bind('{"query": "x"}')` checks the arguments that the model sent. It returns a BoundCall with typed values, or raises
InvalidArguments, whose text goes to the model.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import types
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, overload

from ..events import CHECKS, Check, ToolDefinitionError, freeze, make_plain_number
from ..execution import Raised, attempt_call, describe_error, shorten_repr
from ..text import WIRE_NAME, hide_in_repr, make_wire_names
from .arguments import Arguments, ArgumentsByKey, JsonArguments, list_shown
from .identity import read_source
from .schema import build_schema
from .signature import (
    Function,
    FunctionKind,
    ToolContext,
    find_kind,
    get_python_name,
    make_full_name,
    read_documentation,
    read_signature,
)

F = TypeVar("F", bound=Function)
_MARK = "__toolloop_tool__"
_CHECKS = {
    "name": Check(words="some text"),
    "description": Check(),
    "permissions": Check(choices=("full", "ask")),
    "timeout": CHECKS["timeout"],
    "max_result": Check((int, float), "a number of characters", above=0, unit=" characters"),
    **dict.fromkeys(("thread", "capture_output", "parallel"), Check(bool, "True or False")),
}
"""Keyword of `@tool` -> the check of its value."""


@dataclass(frozen=True)
class ToolSettings:
    """The settings of one tool: the keywords of `@tool(...)`. If a setting is None, the setting of the run applies."""

    permissions: object = None
    """"full" or "ask" for a function. A `DescribedTool` may have any value that `agent(permissions=…)` accepts."""
    timeout: float | None = None
    thread: bool = True
    max_result: int | None = None
    capture_output: bool = False
    parallel: bool = False
    """True if the tool may run for several rows at the same time (`amap`). False: it runs for one row after the other."""


@dataclass(frozen=True)
class _Mark:
    """The mark that `@tool` sets on a function."""

    settings: ToolSettings = ToolSettings()
    name: str | None = None
    description: str | None = None
    order: int = field(default_factory=itertools.count().__next__)
    """The number of the `@tool` call. A notebook's tools are listed in the order of these numbers."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call."""

    name: str
    """The name in the notebook."""
    wire_name: str
    """The name that the model gets: `name`, or a form of it that providers accept."""
    description: str
    """The text from `@tool(description=...)` or from the docstring; "" if there is neither."""
    parameters: Mapping[str, object] = field(hash=False)
    """The JSON schema of the arguments. Its type is "object"."""
    arguments: Arguments | JsonArguments = field(repr=False, compare=False)
    """The object that checks and converts the arguments that the model sent."""
    function: Function = field(repr=False)
    settings: ToolSettings = field(default=ToolSettings(), repr=False)
    kind: FunctionKind = "sync"
    """How the function runs. A "sync" function may return an awaitable, for example if this function wraps an async function."""
    context_parameter: str | None = field(default=None, repr=False)
    """The name of the parameter that gets a `ToolContext`. This parameter is not in the schema."""
    origin: str = field(default="", repr=False)
    """For the person who allows or denies a call: on which server the tool runs, and what the server claims about the tool.
    "" for a tool of this notebook."""
    qualifier: str = field(default="", repr=False)
    """The prefix that the name gets if another tool of the run has the same name. If it is "", two such tools are an error."""

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
        """The source code of the function and of the functions that it wraps; "" if there is no source."""
        return "" if self.origin else read_source(self.function)

    def bind(self, raw: object) -> BoundCall:
        """Return a BoundCall with the arguments that the model sent: a text, a mapping or None. Raises InvalidArguments."""
        return BoundCall.of(self, self.arguments.read(raw))


@hide_in_repr
@dataclass(frozen=True)
class BoundCall:
    """One call of a tool with validated arguments. The values belong to this call: no other call shares them."""

    tool: Tool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    json: dict[str, Any]
    """The arguments as JSON: name in the schema -> value. Defaults are included. The object cannot be changed, so the values that
    are shown and saved stay the same."""
    arguments: ArgumentsByKey = field(repr=False)

    @classmethod
    def of(cls, tool: Tool, arguments: ArgumentsByKey) -> BoundCall:
        """Return a BoundCall of `tool` with these arguments. The function is not called yet."""
        args, kwargs = tool.arguments.pack(arguments)
        return cls(tool, args, kwargs, freeze(list_shown(arguments)), arguments)

    def edited(self, edit: Mapping[str, object]) -> BoundCall:
        """Return a BoundCall with the arguments after a person's `edit`. Return this object if no argument has changed.

        Raises InvalidArguments.
        """
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
    """A callable object that has its own description as a tool. Its schema is not made from a Python signature."""

    @abstractmethod
    def __call__(self, **arguments: object) -> object:
        """Call the tool from the user's code."""

    @abstractmethod
    def as_tool(self) -> Tool:
        """Return the Tool. Its `function` is always the same object, because an approval for all calls holds for one function."""


class ToolSource(ABC):
    """An object that has several tools, such as a server. In the `tools=` of a run, the object means all of these tools."""

    @abstractmethod
    def list_tools(self) -> Mapping[str, DescribedTool]:
        """Return all tools: name -> tool. For each name, `source.NAME` is the tool."""

    @abstractmethod
    def examine(self) -> tuple[Literal["ok", "bad", "note"], str, str]:
        """Return (the status, a text about the status, the advice) for `%toolloop doctor`. The advice is "" if there is none."""


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
    """Mark a function as a tool of this notebook. Your own code can still call the function.

    Args:
        function: the function to mark. For a bound method, which cannot be marked, a marked `functools.partial` is returned.
        name: the name for the model and the transcript. Default: the name of the function.
        description: the description for the model. Default: the description in the docstring.
        permissions: "ask" or "full" for this tool alone.
        timeout: seconds that one call may take.
        thread: True runs a sync function on a worker thread. False runs it on the kernel's main thread; in a script, on the
            thread that calls `agent()` or `session.run()`, or on the thread of a sync stream's background loop.
        max_result: how many characters of a result the model gets.
        capture_output: True also gives the model the output that the function prints.
        parallel: True lets the tool run for several rows at the same time (`amap`, `%%toolloop --each`). By default, it runs
        for one row after the other, even if it is async, because the functions of a notebook share variables.
    """
    numbers = make_plain_number(timeout), make_plain_number(max_result)
    settings = ToolSettings(permissions, numbers[0], thread, numbers[1], capture_output, parallel)
    given = {"name": name, "description": description, **vars(settings)}
    faults = [_CHECKS[key].find_fault(key, value) for key, value in given.items() if value is not None]
    problems = [f"@tool: {fault}" for fault in faults if fault]
    if not problems and name is not None:
        name = str.__str__(name)  # an exact str, because a subclass may claim to equal anything
        problems += [] if name.strip() else [f"@tool: name must not be empty, got {name!r}"]
    if problems:
        raise ToolDefinitionError(problems)

    def mark(marked: Function) -> Function:
        if not callable(marked):
            raise ToolDefinitionError(
                [
                    f"@tool marks a function, got {shorten_repr(marked, 500)}; write a setting with its name, such as timeout=5"
                ]
            )
        if inspect.ismethod(marked) or inspect.isbuiltin(marked):
            marked = functools.partial(marked)
        setattr(marked, _MARK, _Mark(settings, name, description))
        return marked

    return mark if function is None else mark(function)


def find_marked_tools(namespace: Mapping[str, object]) -> list[Function]:
    """Return the values of `namespace` that `@tool` has marked: each function once, in the order of definition."""
    marked: dict[int, Function] = {}
    for value in list(namespace.values()):
        # `getattr_static` runs no code of lazy objects or proxies.
        mark = inspect.getattr_static(value, _MARK, None)
        if isinstance(mark, _Mark) and callable(value) and not inspect.isclass(value):
            marked.setdefault(mark.order, value)  # a wrapper made with functools.wraps has the mark, too
    return [marked[order] for order in sorted(marked)]


def make_tools(functions: Iterable[Function | ToolSource] | ToolSource) -> tuple[Tool, ...]:
    """Return the Tools of `functions`, in the same order. A ToolSource gives several Tools.

    A function that is listed twice gives one Tool.

    Raises ToolDefinitionError, which lists all problems of all functions.
    """
    if isinstance(functions, ToolSource):
        functions = [functions]
    if callable(functions) or isinstance(functions, (str, Mapping)):
        example = getattr(functions, "__name__", None) or "function"
        raise ToolDefinitionError([f"tools= takes a list of functions, for example tools=[{example}]"])
    given: dict[object, Any] = {}
    for source in functions:
        is_source = attempt_call(isinstance, source, ToolSource) is True
        listed: Any = source.list_tools().values() if is_source else [source]  # type: ignore[union-attr]
        for one in listed:  # Python makes a new object at each access to a bound method
            is_method = type(one) is types.MethodType
            given.setdefault((id(one.__self__), id(one.__func__)) if is_method else id(one), one)
    problems: list[str] = []
    tools: list[Tool] = []
    for function in given.values():
        # Reading an object's attributes may run code, which may raise anything.
        made = attempt_call(_make_tool, function)
        if not isinstance(made, Raised):
            tools.append(made)
        elif isinstance(made.error, ToolDefinitionError):
            problems += made.error.problems
        else:
            raised = describe_error(made.error, 500)
            problems.append(f"{type(function).__name__}: reading this object as a tool raised {raised}")
    names = [made.name for made in tools]
    if len(set(names)) < len(names):
        tools = _qualify(tools, problems)
        names = [made.name for made in tools]
    if problems:
        raise ToolDefinitionError(problems)
    if not all(map(WIRE_NAME.fullmatch, names)):
        wire = make_wire_names(names)
        tools = [replace(one, wire_name=wire[one.name]) for one in tools]
    return tuple(tools)


def _qualify(tools: Sequence[Tool], problems: list[str]) -> list[Tool]:
    """If tools have the same name, put their qualifiers before it. If names are still the same, add a line to `problems`."""
    counts = Counter(one.name for one in tools)
    names = [
        f"{one.qualifier}_{one.name}" if one.qualifier and counts[one.name] > 1 else one.name for one in tools
    ]
    for name, count in Counter(names).items():
        if count > 1:
            pairs = zip(names, tools, strict=True)
            owners = " and ".join(make_full_name(one.function) for other, one in pairs if other == name)
            problems.append(
                f"{count} tools are called {name!r}: {owners}; "
                'give one of them another name: tool(name="...")(function)'
            )
    pairs = zip(names, tools, strict=True)
    return [one if one.name == name else replace(one, name=name, wire_name=name) for name, one in pairs]


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
    parameters, context_parameter = read_signature(function, texts)
    keys = [parameter.key for parameter in parameters]
    if not all(map(WIRE_NAME.fullmatch, keys)):
        wire = make_wire_names(keys)
        parameters = [one if wire[one.key] == one.key else one.under_key(wire[one.key]) for one in parameters]
    adapter, schema = build_schema(name, parameters)
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
    """Return the name from `@tool(name=…)`. If `@tool` has set no name, return the name of the function."""
    return _get_mark(function).name or get_python_name(function)


def _get_mark(function: Function) -> _Mark:
    mark = getattr(function, _MARK, None)
    if mark is None and isinstance(function, functools.partial):
        return _get_mark(function.func)
    return mark if isinstance(mark, _Mark) else _Mark()


def suggest(name: str, tools: Sequence[Tool]) -> str:
    """Return the message for a model that has called an unknown tool. If a tool has a similar name, the message suggests it."""
    names = sorted(tool.wire_name for tool in tools)
    if not names:
        return f"unknown tool {name!r}; there are no tools; answer without a tool"
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown tool {name!r}; {hint}available: {', '.join(names)}"
