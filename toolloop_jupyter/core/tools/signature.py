"""Inspects a function that becomes a tool: its layers, its kind, its docstring, its parameters with their annotations."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

import docstring_parser
from docstring_parser import google
from pydantic import AliasChoices, AliasPath, PydanticUserError
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError

from ..events import Approval, Decision, Progress, ToolDefinitionError
from ..execution import MISSING, Raised, attempt_call, describe_error, get_message
from ..text import shorten

Function: TypeAlias = Callable[..., Any]
FunctionKind: TypeAlias = Literal["sync", "async", "generator", "async generator"]
Names: TypeAlias = dict[str, Any]
"""Name in an annotation -> its value."""
ParameterTexts: TypeAlias = Mapping[str, tuple[str, str]]
"""Name of a parameter -> (its description, its type). Both texts are copied from the docstring."""
EMPTY = inspect.Parameter.empty
_CLEAR = (
    *(NameError, AttributeError, SyntaxError, TypeError, ValueError, LookupError, RecursionError),
    *(PydanticUserError, PydanticUndefinedAnnotation, SchemaError),
)
"""Errors that an annotation may cause. Their messages are clear without the name of the error's class."""


@dataclass(frozen=True)
class Parameter:
    """One parameter that the model fills."""

    name: str
    """The name in the function."""
    key: str
    """The name in the schema: the alias if there is one, else `name`. The name is changed if providers do not accept it."""
    annotation: object
    """The annotation with all its names looked up, with its `Annotated` metadata; `Any` for a parameter without annotation."""
    description: str
    positional: bool
    """True if the parameter is before a `/`: the argument can be passed only by position."""
    own_key: str = ""
    """The name that the person wrote, if providers do not accept this name and `key` replaces it; else ""."""
    default: object = MISSING
    field: FieldInfo | None = None
    """The `Field(...)` after the parameter's `=`; it contains the default. None without a `Field`."""

    def under_key(self, key: str) -> Parameter:
        """Return the parameter with another name in the schema. Without a description, the old name becomes the description."""
        return replace(self, key=key, own_key=self.key, description=self.description or self.key)


async def _ask_nobody(approval: Approval) -> Decision:
    approval.deny("nobody is there to be asked", by="unattended")
    await approval.wait()
    return approval.decision or Decision(allowed=False)


@dataclass(frozen=True)
class ToolContext:
    """If a tool has a parameter annotated `ToolContext`, this parameter gets such an object. The model never sees the parameter.

    To call the function yourself, pass `ToolContext()`. Then the reports of `progress()` are not shown.
    """

    call_id: str = ""
    """The id of the tool call. The id is unique in a conversation."""
    report: Callable[[Progress], None] = field(default=lambda _: None, repr=False, compare=False)
    """Receives the reports of `progress()`, in the tool's thread."""
    ask: Callable[[Approval], Coroutine[Any, Any, Decision]] = field(
        default=_ask_nobody, repr=False, compare=False
    )
    """Asks the person or code that approves the run's tool calls. Only an async tool on the run's event loop can use this, while
    the tool runs."""
    number: int = 0
    """The number of the tool call in its turn, counted from 1; 0 if the tool call has no number."""

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how much of the work is done. This method is fast enough to be called in every step of a loop."""
        self.report(Progress(done, total, note))


# --- the layers of a function ---------------------------------------------------------------------------------


def list_layers(function: Function) -> Iterator[Function]:
    """Yield the function and the functions inside it, from the outside in: inside partials, methods, callable objects, and
    functions whose decorator has set `__wrapped__`.
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


def identify(function: Function) -> tuple[int, ...]:
    """Return an identity of `function`, which is valid as long as the function exists.

    Two functions have the same identity if they run the same code on the same objects, even if one is in a partial or has a
    decorator that sets `__wrapped__`.
    """
    layers = list(list_layers(function))
    owners = [getattr(layer, "__self__", None) for layer in layers]
    called = [one for one in layers if not (hasattr(one, "__get__") or isinstance(one, functools.partial))]
    return (id(layers[-1]), *(id(one) for one in (*owners, *called) if one is not None))


def take_out_of_partials(function: Function) -> Function:
    """Return the function inside a partial, and inside partials in it; `function` itself if it is not a partial."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def find_kind(function: Function) -> FunctionKind:
    """Return how the function runs. Partials around it make no difference.

    A sync wrapper around an async function is "sync". It may return the coroutine, because a "sync" tool may return an awaitable.
    """
    function = take_out_of_partials(function)
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    if inspect.iscoroutinefunction(function):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


def get_python_name(function: Function) -> str:
    """Return the function's `__name__`, even if the function is in a partial. For a callable object, return its class's name."""
    function = take_out_of_partials(function)
    return str(getattr(function, "__name__", type(function).__name__))


def make_full_name(function: Function) -> str:
    """Return a name such as `module.Class.method (line 3)`, to tell functions with the same short name apart."""
    *_, plain = list_layers(function)
    module, code = getattr(plain, "__module__", None), getattr(plain, "__code__", None)
    name = str(getattr(plain, "__qualname__", get_python_name(function)))
    shown = name if module in (None, "__main__", "builtins") else f"{module}.{name}"
    return f"{shown} (line {code.co_firstlineno})" if code else shown


# --- its docstring --------------------------------------------------------------------------------------------

_SECTIONS = ("raises", "warnings", "notes", "examples")
_MORE_SECTIONS = {"Note": "notes", "Notes": "notes", "Warning": "warnings", "Warnings": "warnings"}
"""Sections of Google's style that docstring_parser (0.15 to 0.18) does not know. It drops them if they follow a known section."""
_GOOGLE = google.GoogleParser(
    [
        *google.DEFAULT_SECTIONS,
        *(google.Section(title, key, google.SectionType.SINGULAR) for title, key in _MORE_SECTIONS.items()),
    ]
)
_BETWEEN_NAMES = re.compile(r",|\band\b")
_MOST_SECTIONS = 2_000  # at most this many characters of "Raises:", "Examples:" and so on go to the model


def read_documentation(function: Function) -> tuple[str, ParameterTexts]:
    """Return (the text about the whole function, the texts about its parameters) from the docstring.

    The docstring may be in Google's, NumPy's or Sphinx's style, or in no style.
    """
    function = take_out_of_partials(function)  # a partial has only the docstring of the class `partial`
    if inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        text = inspect.getdoc(function) or ""
    else:
        text = inspect.getdoc(type(function).__call__) or inspect.getdoc(type(function)) or ""
    if "\n" not in text and ":" not in text:  # no style describes a parameter without a line break or colon
        return text.strip(), {}
    try:
        parsed = docstring_parser.parse(text)
        if parsed.style is docstring_parser.DocstringStyle.GOOGLE:
            parsed = _GOOGLE.parse(text)
    except docstring_parser.ParseError:  # the docstring breaks a rule of its style
        return text.strip(), {}
    texts = [*map(str.strip, filter(None, (parsed.short_description, parsed.long_description)))]
    sections = "\n\n".join(filter(None, map(_write_section, parsed.meta)))
    if texts and sections:
        texts.append(shorten(sections, _MOST_SECTIONS))
    parameters = {
        name.strip(" `*"): ((one.description or "").strip(), one.type_name or "")
        for one in parsed.params
        for name in _BETWEEN_NAMES.split(one.arg_name)  # `a, b : int` describes two parameters
    }
    return "\n\n".join(texts), parameters


def _write_section(section: docstring_parser.common.DocstringMeta) -> str:
    """Return a section as text, such as `Raises: ValueError: if a is negative`; "" if `_SECTIONS` lacks its name."""
    name = section.args[0] if section.args else ""
    if name not in _SECTIONS:
        return ""
    parts = [getattr(section, "type_name", None), getattr(section, "snippet", None), section.description]
    between = "\n" if name == "examples" else ": "  # an example has lines of code and of output
    return f"{name.capitalize()}: {between.join(part.strip() for part in parts if part)}"


# --- its parameters -------------------------------------------------------------------------------------------


def _refuse(problem: str) -> ToolDefinitionError:
    return ToolDefinitionError([problem])


def read_signature(function: Function, texts: ParameterTexts) -> tuple[list[Parameter], str | None]:
    """Return (the parameters that the model fills, the name of the ToolContext parameter or None).

    `texts` come from the docstring. Raises ToolDefinitionError, which lists all problems of the signature.
    """
    label = get_python_name(function)
    signature = _inspect_signature(function, label)
    filled = function.keywords if isinstance(function, functools.partial) else {}
    namespace = _collect_names(function)
    problems: list[str] = []
    parameters: list[Parameter] = []
    context = None
    for one in signature.parameters.values():
        if one.name in filled:
            continue  # `partial(search, index=INDEX)`: the person has given the value, so the model does not see `index`
        try:
            annotation = _resolve(one, namespace)
            if not _is_context(annotation):
                parameters.append(_read_parameter(one, annotation, texts))
                continue
            if context or one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                raise _refuse(
                    f"{one.name!r}: only one parameter of a tool can be a ToolContext; write it without `*`, and not before a `/`"
                )
            context = one.name
        except ToolDefinitionError as error:
            problems.append(f"{label}: parameter {error.problems[0]}")
    keys = Counter(one.key for one in parameters)
    problems += [f"{label}: two parameters are called {key!r}" for key, count in keys.items() if count > 1]
    if problems:
        raise ToolDefinitionError(problems)
    return parameters, context


def _inspect_signature(function: Function, label: str) -> inspect.Signature:
    if inspect.isclass(function):
        raise _refuse(
            f"{label}: is a class; write a function that makes an instance, or give a method of an instance"
        )
    plain = inspect.unwrap(function) if inspect.isfunction(function) else function
    if inspect.isfunction(plain) and plain.__code__.co_varnames[:1] in (("self",), ("cls",)):
        path = ["<locals>", *plain.__qualname__.split(".")]
        if (owner := path[-2]) != "<locals>":
            raise _refuse(
                f"{owner}.{label}: is a method without its object; give the method of an instance, {owner}().{label}"
            )
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            # Names that do not exist are reported later, together with the parameter.
            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except (ValueError, TypeError):
        raise _refuse(
            f"{label}: Python does not know its parameters; write a function with annotated parameters that calls it"
        ) from None


def _collect_names(function: Function) -> tuple[Names, Names]:
    """Return the names that annotations can use: (the globals, the function's type parameters and the names in its closure)."""
    *_, plain = list_layers(function)
    local: Names = {}
    for parameter in getattr(plain, "__type_params__", ()):
        local[parameter.__name__] = parameter
    free = getattr(getattr(plain, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, getattr(plain, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # not assigned yet
            local.setdefault(name, cell.cell_contents)
    return getattr(plain, "__globals__", {}), local


def _resolve(parameter: inspect.Parameter, namespace: tuple[Names, Names]) -> object:
    """Return the annotation with all its names looked up, even if it is a text; `Any` for a parameter without annotation."""
    written, (globals_, locals_) = parameter.annotation, namespace
    if written is EMPTY:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": written})
    # Evaluating an annotation runs code that a person wrote, so any error may be raised.
    hints = attempt_call(lambda: typing.get_type_hints(holder, globals_, locals_, include_extras=True))
    resolved = hints if isinstance(hints, Raised) else attempt_call(rewrite_annotation, hints["it"])
    if not isinstance(resolved, Raised):
        return resolved
    shown = written if isinstance(written, str) else inspect.formatannotation(written)
    raise _refuse(
        f"{parameter.name!r}: its annotation {shown!r} cannot be evaluated ({explain_refusal(resolved.error)}); "
        "define the name at the notebook's top level, before the run"
    ) from None


def explain_refusal(error: BaseException) -> str:
    """Return the first sentence of `error`. An annotation has raised this error, or pydantic when it read the annotation."""
    message = get_message(error, 500) if isinstance(error, _CLEAR) else describe_error(error, 500)
    return (message.strip() or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")


def _is_context(annotation: object) -> bool:
    if typing.get_origin(annotation) in (Annotated, *_UNIONS):
        return any(map(_is_context, typing.get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def _read_parameter(parameter: inspect.Parameter, annotation: object, texts: ParameterTexts) -> Parameter:
    name, default = parameter.name, parameter.default
    if parameter.kind in _VARIADIC:
        stars, instead = _VARIADIC[parameter.kind]
        raise _refuse(
            f"{stars}{name} cannot be described to a model; write each parameter, or one parameter {name}: {instead} "
            "(if this function is made by your decorator, use functools.wraps in the decorator)"
        )
    info = default if isinstance(default, FieldInfo) else None
    metadata = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is Annotated else ()
    text, kind = texts.get(name, ("", ""))
    if kind and parameter.annotation is EMPTY:
        text = f"({kind}) {text}".strip()
    key = name  # `Field(alias="from")` can make the key a Python keyword
    # The description is in `Annotated[int, "text"]`, `Field(description=...)` or `Doc("text")`; the last one counts.
    for item in (*metadata, info):
        if isinstance(item, FieldInfo):
            alias = item.validation_alias or item.alias or key
            if isinstance(alias, (AliasChoices, AliasPath)):
                raise _refuse(
                    f'{name!r}: a tool\'s parameter can have only one alias; write Field(alias="...")'
                )
            key, text = alias, item.description or text
        elif isinstance(item, str):
            text = item or text
        elif type(item).__name__ == "Doc":
            text = getattr(item, "documentation", None) or text
    if default is None:  # many people write `x: int = None` and mean `x: int | None = None`
        inner = typing.get_args(annotation)[0] if metadata else annotation
        members = typing.get_args(inner) if typing.get_origin(inner) in _UNIONS else (inner,)
        if not any(member in (Any, object, None, type(None)) for member in members):
            # `inner | None` fails if `inner` is not a class.
            annotation = operator.getitem(typing.Optional, inner)
            annotation = operator.getitem(Annotated, (annotation, *metadata)) if metadata else annotation
    return Parameter(
        name=name,
        key=key,
        annotation=annotation,
        description=text,
        positional=parameter.kind is inspect.Parameter.POSITIONAL_ONLY,
        default=MISSING if info or default is EMPTY else default,
        field=info,
    )


_VARIADIC = {
    inspect.Parameter.VAR_POSITIONAL: ("*", "list[...]"),
    inspect.Parameter.VAR_KEYWORD: ("**", "dict[str, ...]"),
}


# --- annotations ----------------------------------------------------------------------------------------------

_UNIONS = (typing.Union, types.UnionType)
_LISTS = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Reversible)


def rewrite_annotation(annotation: object) -> Any:
    """Return the annotation with `list[int]` instead of `Iterable[int]` or `Collection[int]`; unchanged if it has neither.

    Pydantic checks the items of an iterable only while the function reads them, and does not accept `Collection` at all.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if (origin or annotation) in _LISTS:
        return list[rewrite_annotation(arguments[0])] if arguments else list  # type: ignore[misc]
    if origin is None or origin is Literal:
        return annotation
    # In `Annotated`, only the first member is an annotation. The other members are metadata.
    changed = 1 if origin is Annotated else len(arguments)
    members = (*map(rewrite_annotation, arguments[:changed]), *arguments[changed:])
    if all(map(operator.is_, members, arguments)):
        return annotation
    if hasattr(annotation, "copy_with") and origin is not Annotated:
        return annotation.copy_with(members)
    return operator.getitem(typing.Union if origin in _UNIONS else origin, members)
