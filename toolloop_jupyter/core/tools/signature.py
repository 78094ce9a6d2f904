"""What Python knows of a function that is to be a tool: its layers, its kind, its docstring, its parameters.

Annotations are resolved, and rewritten where pydantic would not take them as they are meant.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import docstring_parser
import typing_extensions
from pydantic import AliasChoices, AliasPath
from pydantic.fields import FieldInfo

from ..events import Progress, ToolDefinitionError
from ..execution import MISSING

Function: TypeAlias = Callable[..., Any]
Kind: TypeAlias = Literal["sync", "async", "generator", "async generator"]
EMPTY: Any = inspect.Parameter.empty

# What evaluating a person's annotation may raise: it is an expression of theirs.
_ANNOTATION_ERRORS = (NameError, AttributeError, SyntaxError, TypeError, ValueError, LookupError)


@dataclass(frozen=True)
class Parameter:
    """One parameter that the model fills."""

    name: str
    """In the function."""
    key: str
    """In the schema: the alias if there is one, else the name, as far as providers take it."""
    annotation: Any
    """Resolved, with its `Annotated` metadata; `Any` where none was written."""
    description: str
    positional: bool
    """Only by position: before a `/`."""
    own_key: str = ""
    """The name for the model as the person wrote it, where providers do not take that."""
    default: Any = MISSING
    field: FieldInfo | None = None
    """`Field(...)` written as the default value; the default is then in it."""


@dataclass(frozen=True)
class Signature:
    """What is to be described and filled of a function."""

    parameters: tuple[Parameter, ...]
    context_parameter: str | None
    """The parameter annotated `ToolContext`, which whoever runs the tool fills."""


@dataclass(frozen=True)
class Documentation:
    """A docstring, taken apart: Google, NumPy, Sphinx (reST) or plain."""

    description: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    """What the docstring says of the types, in its own words; told where there is no annotation."""

    def of(self, parameter: inspect.Parameter) -> str:
        """The text for a parameter, "" if there is none."""
        text, kind = self.parameters.get(parameter.name, ""), self.types.get(parameter.name)
        return f"({kind}) {text}".strip() if kind and parameter.annotation is EMPTY else text


def _ignore_progress(progress: Progress) -> None:
    return None


@dataclass(frozen=True)
class ToolContext:
    """Given to a tool that has a parameter annotated `ToolContext`; the model never sees that parameter.

    `ToolContext()` makes one that reports to nobody, for calling the function by hand.
    """

    call_id: str = ""
    """The id of the model's call, unique in a conversation."""
    report: Callable[[Progress], None] = field(default=_ignore_progress, repr=False, compare=False)
    """Takes what `progress()` is told. Whoever runs the tool sets it; it is called on the tool's thread."""

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the work is; shown beside the running call. Cheap enough for every step of a loop."""
        self.report(Progress(done, total, note))


def list_layers(function: Function) -> Iterator[Function]:
    """The function and what it leads to, from the outside in: through partials, methods, callable objects, and
    decorators that keep `__wrapped__`.
    """
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif callable(wrapped := getattr(function, "__wrapped__", None)):
            function = wrapped
        elif not (inspect.isroutine(function) or inspect.isclass(function)):
            function = type(function).__call__


def find_plain_function(function: Function) -> Function:
    """The innermost of the function's layers.

    Its globals are where the names of the annotations live, and its docstring is the person's.
    """
    *_, plain = list_layers(function)
    return plain


def find_kind(function: Function) -> Kind:
    """How the function runs, by its outermost layer.

    A plain wrapper around an async function is "sync": some wrappers return the coroutine, others run it to its
    end, and only the call tells which. So whoever runs a "sync" tool awaits an awaitable result.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    if inspect.iscoroutinefunction(function):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


def get_python_name(function: Function) -> str:
    """The function's own name: `__name__`, that of a partial's function, or the class of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return str.__str__(str(getattr(function, "__name__", type(function).__name__)))


def make_full_name(function: Function) -> str:
    """A name that tells two functions of one name apart, such as `module.Class.method (line 3)`."""
    plain = find_plain_function(function)
    module, name = (
        getattr(plain, "__module__", None),
        getattr(plain, "__qualname__", get_python_name(function)),
    )
    shown = f"{module}.{name}" if module not in (None, "__main__", "builtins") else str(name)
    code = getattr(plain, "__code__", None)
    return f"{shown} (line {code.co_firstlineno})" if code else shown


def read_documentation(function: Function) -> Documentation:
    """The function's docstring: summary and long description without the sections, and the parameters' texts."""
    text = _read_docstring(function)
    if not text:
        return Documentation("")
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:  # it looks like one of the styles and is not quite one
        return Documentation(text.strip())
    texts = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    sections = "\n\n".join(filter(None, map(_write_section, parsed.meta)))
    if len(sections) > _MOST_SECTIONS:
        sections = sections[: _MOST_SECTIONS - 1] + "…"
    described = [*texts, *([sections] if texts and sections else [])]
    # `a, b : int` describes two parameters.
    named = [(name.strip(), p) for p in parsed.params for name in p.arg_name.split(",")]
    parameters = {name: (p.description or "").strip() for name, p in named}
    types = {name: p.type_name for name, p in named if p.type_name}
    return Documentation("\n\n".join(described), parameters, types)


_SECTIONS = ("raises", "notes", "examples")
_MOST_SECTIONS = 2_000
"""Characters of a docstring's sections that the model gets."""


def _write_section(section: docstring_parser.common.DocstringMeta) -> str:
    """A part of a docstring that is about the whole function, such as `Raises: ValueError: if a is negative`."""
    name = section.args[0] if section.args else ""
    if name not in _SECTIONS:
        return ""
    parts = [getattr(section, "type_name", None), getattr(section, "snippet", None), section.description]
    return f"{name.capitalize()}: {': '.join(part.strip() for part in parts if part)}"


def _read_docstring(function: Function) -> str:
    while isinstance(function, functools.partial):  # a partial's own docstring is that of the partial class
        function = function.func
    if inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        return inspect.getdoc(function) or ""
    return inspect.getdoc(type(function).__call__) or inspect.getdoc(type(function)) or ""


def read_signature(function: Function, documentation: Documentation) -> Signature:
    """The parameters that the model fills, and the one that gets the context.

    Raises ToolDefinitionError with every problem of the signature.
    """
    label = get_python_name(function)
    signature = _inspect_signature(function, label)
    bound = set(function.keywords) if isinstance(function, functools.partial) else set()
    namespace = _collect_names(function)
    problems: list[str] = []
    parameters: list[Parameter] = []
    contexts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in bound:
            continue  # `partial(search, index=INDEX)`: the person has filled it, the model is not to know it
        try:
            annotation = _resolve(parameter, label, namespace)
            if _is_context(annotation):
                contexts.append(_check_context(parameter, label, contexts))
            else:
                parameters.append(_read_parameter(parameter, annotation, documentation.of(parameter), label))
        except ToolDefinitionError as error:
            problems += error.problems
    keys = [parameter.key for parameter in parameters]
    problems += [
        f"{label}: two parameters are called {key!r}" for key in sorted(set(keys)) if keys.count(key) > 1
    ]
    if problems:
        raise ToolDefinitionError(problems)
    return Signature(tuple(parameters), contexts[0] if contexts else None)


def _inspect_signature(function: Function, label: str) -> inspect.Signature:
    if inspect.isclass(function):
        raise ToolDefinitionError(
            [f"{label}: is a class; write a function that makes one, or give a method of an instance"]
        )
    if owner := _find_missing_owner(function):
        raise ToolDefinitionError(
            [f"{owner}.{label}: is a method without its object; give {owner}().{label}, that of an instance"]
        )
    try:
        if sys.version_info >= (
            3,
            14,
        ):  # names that are missing are reported with their parameter, further down
            import annotationlib

            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except (ValueError, TypeError):
        raise ToolDefinitionError(
            [
                f"{label}: Python knows no signature of it; write a function with annotated parameters around it"
            ]
        ) from None


def _find_missing_owner(function: Function) -> str:
    """The class's name if this is `Class.method`, which lacks its `self`; else ""."""
    if inspect.isclass(owner_of_c_method := getattr(function, "__objclass__", None)):  # `dict.get`
        return owner_of_c_method.__name__
    plain = inspect.unwrap(function) if inspect.isfunction(function) else function
    if not inspect.isfunction(plain):
        return ""
    owner, _, name = plain.__qualname__.rpartition(".")
    if not owner or owner.endswith("<locals>"):
        return ""
    scope: Any = plain.__globals__
    for part in owner.split("."):
        scope = scope.get(part) if isinstance(scope, dict) else getattr(scope, part, None)
    if inspect.isclass(scope):
        return "" if isinstance(inspect.getattr_static(scope, name, None), staticmethod) else scope.__name__
    # A class inside a function cannot be looked up; by convention its methods begin with a bare `self`.
    first = next(iter(inspect.signature(plain).parameters.values()), None)
    is_self = first is not None and first.name in ("self", "cls") and first.annotation is EMPTY
    return owner.rpartition(".")[2] if is_self else ""


def _collect_names(function: Function) -> tuple[dict[str, Any], dict[str, Any]]:
    """Globals and locals for the annotations: the notebook's names, then closure names and type parameters."""
    plain = find_plain_function(function)
    local: dict[str, Any] = {}
    for cell_name, cell in zip(
        getattr(getattr(plain, "__code__", None), "co_freevars", ()),
        getattr(plain, "__closure__", None) or (),
        strict=False,
    ):
        try:
            local[cell_name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    local.update({parameter.__name__: parameter for parameter in getattr(plain, "__type_params__", ())})
    return getattr(plain, "__globals__", {}), local


def _resolve(
    parameter: inspect.Parameter, label: str, namespace: tuple[dict[str, Any], dict[str, Any]]
) -> Any:
    """The annotation with postponed and forward-referenced names looked up; `Any` where there is none."""
    if parameter.annotation is EMPTY:
        return Any
    try:
        return rewrite_annotation(_evaluate(parameter.annotation, namespace))
    except _ANNOTATION_ERRORS as error:
        written = parameter.annotation
        shown = written if isinstance(written, str) else inspect.formatannotation(written)
        problem = (
            f"{label}: parameter {parameter.name!r}: its annotation {shown!r} cannot be evaluated ({error}); "
            "define the name at the notebook's top level, before the run"
        )
        raise ToolDefinitionError([problem]) from None


def _evaluate(annotation: Any, namespace: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    found = typing.get_type_hints(holder, *namespace, include_extras=True)["it"]
    if sys.version_info < (3, 11) and (referring := _put_references(found)) is not found:
        return _evaluate(referring, namespace)
    return found


def _is_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) is Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_is_context(member) for member in typing.get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def _check_context(parameter: inspect.Parameter, label: str, taken: list[str]) -> str:
    if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD and (
        parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ):
        raise ToolDefinitionError(
            [
                f"{label}: parameter {parameter.name!r}: a ToolContext is passed by name; write it after the `/`"
            ]
        )
    if taken:
        raise ToolDefinitionError(
            [f"{label}: has two ToolContext parameters, {taken[0]!r} and {parameter.name!r}"]
        )
    return parameter.name


def _read_parameter(parameter: inspect.Parameter, annotation: Any, described: str, label: str) -> Parameter:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        stars, instead = (
            ("*", "list[...]") if parameter.kind is parameter.VAR_POSITIONAL else ("**", "dict[str, ...]")
        )
        problem = (
            f"{label}: parameter {stars}{parameter.name} cannot be described to a model; name the parameters, "
            f"or take one {parameter.name}: {instead} (a decorator of yours keeps them with functools.wraps)"
        )
        raise ToolDefinitionError([problem])
    info = parameter.default if isinstance(parameter.default, FieldInfo) else None
    default = MISSING if info or parameter.default is EMPTY else parameter.default
    metadata = [*_get_metadata(annotation), *([info] if info else [])]
    if default is None:
        annotation = _allow_none(annotation)
    return Parameter(
        name=parameter.name,
        key=_find_key(parameter.name, metadata, label),
        annotation=annotation,
        description=_find_description(metadata) or described,
        positional=parameter.kind is inspect.Parameter.POSITIONAL_ONLY,
        default=default,
        field=info,
    )


def _get_metadata(annotation: Any) -> tuple[Any, ...]:
    return typing.get_args(annotation)[1:] if typing.get_origin(annotation) is Annotated else ()


def _allow_none(annotation: Any) -> Any:
    """`x: int = None`, an old habit, means `int | None`."""
    inner = typing.get_args(annotation)[0] if (metadata := _get_metadata(annotation)) else annotation
    members = (
        typing.get_args(inner) if typing.get_origin(inner) in (typing.Union, types.UnionType) else (inner,)
    )
    if any(member in (Any, object, None, type(None)) for member in members):
        return annotation
    optional: Any = operator.getitem(typing.Optional, inner)  # `inner | None` fails for what is no class
    return operator.getitem(Annotated, (optional, *metadata)) if metadata else optional


def _find_key(name: str, metadata: list[Any], label: str) -> str:
    """The parameter's name for the model: `Field(alias="from")` makes a Python keyword one."""
    aliases = [info.validation_alias or info.alias for info in metadata if isinstance(info, FieldInfo)]
    alias = next((alias for alias in reversed(aliases) if alias), name)
    if isinstance(alias, (AliasChoices, AliasPath)):
        raise ToolDefinitionError(
            [f'{label}: parameter {name!r}: a tool\'s parameter has one name; write Field(alias="...")']
        )
    return alias


def _find_description(metadata: list[Any]) -> str:
    """`Annotated[int, "text"]`, `Field(description=...)` or `Doc("text")`; the last one counts."""
    texts = [
        item
        if isinstance(item, str)
        else getattr(item, "description", None) or getattr(item, "documentation", None)
        for item in metadata
        if isinstance(item, (str, FieldInfo)) or type(item).__name__ == "Doc"
    ]
    return next((text for text in reversed(texts) if text), "")


# Annotations that mean more than pydantic makes of them are rewritten before it sees them:
#
# - `Iterable[int]` and `Collection[int]` become `list[int]`: pydantic checks an iterable only while the function
#   reads it, so a bad item would be found in the middle of the work; and it takes no collections.
# - `typing.TypedDict` on Python 3.10 and 3.11 becomes the `typing_extensions.TypedDict` with the same keys, the only
#   one pydantic takes there (the older classes do not say which inherited keys are required).

_LISTS = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Reversible)
_REQUIRED = (typing_extensions.Required, getattr(typing, "Required", typing_extensions.Required))
_NOT_REQUIRED = (typing_extensions.NotRequired, getattr(typing, "NotRequired", typing_extensions.NotRequired))


def rewrite_annotation(annotation: Any) -> Any:
    """The annotation in pydantic's terms; itself where nothing has to be rewritten."""
    return _convert(annotation, frozenset())


def _convert(annotation: Any, inside: frozenset[Any]) -> Any:
    if _is_old_typed_dict(annotation):
        # A recursive one stays what it is: pydantic then says what to use instead.
        return annotation if annotation in inside else _copy_typed_dict(annotation, inside | {annotation})
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        converted = _convert(arguments[0], inside)
        return (
            annotation
            if converted is arguments[0]
            else operator.getitem(Annotated, (converted, *arguments[1:]))
        )
    if (annotation if origin is None else origin) in _LISTS:
        return list[_convert(arguments[0], inside)] if arguments else list  # type: ignore[misc]
    if origin is None or origin is typing.Literal:
        return annotation
    return _rebuild(annotation, tuple(_convert(argument, inside) for argument in arguments))


def _put_references(annotation: Any) -> Any:
    """`list["Node"]` with a reference in place of the text: Python 3.10 evaluates only those of `typing`'s generics."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if not arguments or origin is typing.Literal:
        return annotation
    if origin is Annotated:
        first = _put_references(arguments[0])
        return annotation if first is arguments[0] else operator.getitem(Annotated, (first, *arguments[1:]))
    builtin = isinstance(annotation, types.GenericAlias)
    return _rebuild(
        annotation,
        tuple(
            typing.ForwardRef(a) if builtin and isinstance(a, str) else _put_references(a) for a in arguments
        ),
    )


def _rebuild(annotation: Any, members: tuple[Any, ...]) -> Any:
    """The same generic of other members; itself if they are the same."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if all(new is old for new, old in zip(members, arguments, strict=True)):
        return annotation
    if origin in (typing.Union, types.UnionType):
        return operator.getitem(typing.Union, members)
    return (
        annotation.copy_with(members)
        if hasattr(annotation, "copy_with")
        else operator.getitem(origin, members)
    )


def _is_old_typed_dict(annotation: Any) -> bool:
    known = sys.version_info < (3, 12) and getattr(
        typing, "_TypedDictMeta", None
    )  # there is no public test for it
    return isinstance(annotation, type) and type(annotation) is known


def _copy_typed_dict(old: Any, inside: frozenset[Any]) -> Any:
    hints = typing_extensions.get_type_hints(old, include_extras=True)
    fields = {name: _copy_field(name, hint, old, inside) for name, hint in hints.items()}
    make: Any = typing_extensions.TypedDict
    new = make(old.__name__, fields)
    new.__doc__, new.__module__ = old.__doc__, old.__module__
    return new


def _copy_field(name: str, hint: Any, old: Any, inside: frozenset[Any]) -> Any:
    required = name in old.__required_keys__
    if typing.get_origin(hint) in (*_REQUIRED, *_NOT_REQUIRED):
        required = typing.get_origin(hint) in _REQUIRED
        hint = typing.get_args(hint)[0]
    wrap: Any = typing_extensions.Required if required else typing_extensions.NotRequired
    return operator.getitem(wrap, _convert(hint, inside))
