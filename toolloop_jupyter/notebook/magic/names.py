"""Find the notebook's variables that an option line or a prompt names: tools, models, policies, API keys, texts.

If a name is wrong, a function here raises Mistake, and the message says what to type instead.
"""

from __future__ import annotations

import builtins
import difflib
import inspect
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal

from ...core.conversation import Named, Template, tell_text
from ...core.events import ArgumentInvalid, Mistake
from ...core.execution import MISSING, Raised, attempt_call
from ...core.models import Answers
from ...core.text import IN_BRACES, list_some
from ...core.tools import ToolSource, find_marked_tools, get_tool_name
from .. import kernel
from .options import Kind, Names, Option, read_pairs

_PLAIN_VALUES = (str, bytes, int, float, complex, list, tuple, set, dict, type(None))


def find_file(path: str) -> Path:
    """Return the full path of a file that a person has named. Raises Mistake if `path` cannot be a path."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # for example a link to itself, or a null character
        raise Mistake(f"{path!r} cannot be a file: {error}") from None


def resolve(option: Option, value: Any, names: Names) -> object:
    """Return the argument of the Python API for the value of an option.

    This is the object behind a name, or a text with `{{name}}` filled in. Return None if the option has no value.
    """
    # An empty --permissions must be an error. If it counted as no value, the default would let all calls run.
    if value is None or (value == "" and option.kind is not Kind.POLICY):
        return None
    match option.kind:
        case Kind.MODEL:
            return find_model(names, value)
        case Kind.MODELS:
            return [find_model(names, one) for one in value]
        case Kind.TOOLS:
            return find_tools(names, value)
        case Kind.POLICY:
            return find_policy(names, value)
        case Kind.OUTPUT:
            return find_output(names, value)
        case Kind.KEY:
            return find_key(names, value)
        case Kind.PAIRS:
            return read_pairs(value, option.typed[-1], names)
        case Kind.TEXT:
            return fill_in(value, names)
        case Kind.TABLE:
            return look_up(names, value, "table", holds_rows)
        case Kind.EXECUTOR:
            return look_up(names, value, "executor", is_executor)
        case _:
            return value


LAST_ERROR = "Err"
"""If there is no variable `Err`, `{{Err}}` is the last error that the notebook has shown."""


def read_template(text: str, names: Names) -> Template:
    """Return `text` as a Template: each `{{name}}` of a notebook variable is replaced by the variable's value.

    All other double braces stay as typed (see `note_left`). Double braces inside a variable's text stay, too.
    """
    pieces: list[str | Named] = []
    at = 0
    for match in IN_BRACES.finditer(text):
        name = _read_name(match)
        value = _find_value(name, names)
        if value is not MISSING:
            pieces += [text[at : match.start()], Named(name, value)]
            at = match.end()
    return Template((*pieces, text[at:]))


def fill_in(text: str, names: Names) -> str:
    """Replace each `{{name}}` of a notebook variable by the text of the variable's value.

    For a str, this is the whole str. For a Result, it is the answer. For any other value, it is the text that a model would get
    if a tool returned the value. The length of this text is limited. Data is JSON. A table is shown by its shape, columns and
    first rows. An error is shown with its traceback.

    All other double braces stay as typed (see `note_left`). Double braces inside an inserted text stay, too. Raises Mistake if
    the text of a value cannot be made.
    """
    try:
        pieces = read_template(text, names).pieces
        return "".join(p if isinstance(p, str) else tell_text(p, kernel.name_cells) for p in pieces)
    except ArgumentInvalid as error:
        raise Mistake(str(error)) from None


def _find_value(name: str, names: Names) -> object:
    """Return the value for `{{name}}`; MISSING if there is no such variable."""
    if name in names:
        return names[name]
    # IPython stores the error that it has shown last in `sys.last_value`, as Python does.
    error = getattr(sys, "last_value", None) if name == LAST_ERROR else None
    return error if isinstance(error, BaseException) else MISSING


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def find_attached(name: str, names: Names) -> Named:
    """Return the value or the path for `--attach NAME`. NAME is a variable or the path of a file.

    If the variable holds a str, the str is a path. Raises Mistake for a URL.
    """
    value = names.get(name, name)
    if not isinstance(value, str):
        return Named(value.name if isinstance(value, PurePath) else name, value)
    if _ADDRESS.match(value):
        raise Mistake(
            f"--attach {value[:80]}: nothing is fetched from a URL; download the file, and attach it"
        )
    path = Path(value).expanduser()
    if name in names and attempt_call(path.is_file) is not True:
        raise Mistake(
            f"--attach {name}: the variable is a text, and no file has that name; to send the text itself, write "
            f"{_in_braces(name)} in the prompt"
        )
    return Named(path.name, path)


def find_named(text: str, names: Names) -> dict[str, object]:
    """Find the names in double braces in `text`. Return the variables with these names: name -> value."""
    found = {name: _find_value(name, names) for name in map(_read_name, IN_BRACES.finditer(text))}
    return {name: value for name, value in found.items() if value is not MISSING}


def _read_name(match: re.Match[str]) -> str:
    """Return the text in double braces as Python spells a name ("ö" as one character); "" if the text cannot be a name."""
    name = unicodedata.normalize("NFKC", match[1])
    return name if name.isidentifier() else ""


def note_left(text: str, names: Names) -> list[tuple[str, Literal["info", "warning"]]]:
    """Return notes about names in double braces for which there is no variable. If a variable has a similar name, the note is a
    warning.
    """
    found = dict.fromkeys(map(_read_name, IN_BRACES.finditer(text)))
    near = {name: _find_near(names, name) for name in found if name and _find_value(name, names) is MISSING}
    told: list[tuple[str, Literal["info", "warning"]]] = [
        (
            f"{_in_braces(name)} is no variable, and is sent as typed; did you mean {_in_braces(other)}?",
            "warning",
        )
        for name, other in near.items()
        if other
    ]
    if unlike := [_in_braces(name) for name, other in near.items() if not other]:
        told.append((f"there is no such variable, so this is sent as typed: {list_some(unlike, 8)}", "info"))
    return told


def _in_braces(name: str) -> str:
    return f"{{{{{name}}}}}"


def look_up(names: Names, dotted: str, what: str, fits: Callable[[object], bool] = lambda _: True) -> object:
    """Return the object with the name `dotted`, such as `tools.search`. Raises Mistake if there is none, or if `fits(object)`
    is False.

    `what` is the word for such an object in the message, for example "tool".
    """
    first, *rest = dotted.split(".")
    if first not in names:
        raise Mistake(f"there is no {what} {dotted!r} in this notebook{_suggest(names, dotted, fits)}")
    found = names[first]
    for part in rest:
        inner = attempt_call(getattr, found, part)  # a property of the person's class may raise anything
        if isinstance(inner, Raised):
            why = f"{type(found).__name__} has no {part!r}"
            if not isinstance(inner.error, AttributeError):
                why = f"{'.'.join((first, *rest))} raised {type(inner.error).__name__}"
            raise Mistake(f"there is no {what} {dotted!r}: {why}")
        found = inner
    if not fits(found):
        raise Mistake(f"{dotted!r} is {_describe_kind(found)}, not {_add_article(what)}")
    return found


def _suggest(names: Names, name: str, fits: Callable[[object], bool]) -> str:
    near = _find_near(names, name, fits)
    return f"; did you mean {near!r}?" if near else "; run the cell that defines it first"


def _find_near(names: Names, name: str, fits: Callable[[object], bool] = lambda _: True) -> str:
    """Return the name of a variable that is similar to `name`; "" if there is none."""
    candidates = {
        n.lower(): n for n, v in names.items() if not n.startswith("_") and fits(v) and not is_ipythons(v)
    }
    near = difflib.get_close_matches(name.lower(), candidates, n=1)
    return candidates[near[0]] if near else ""


def is_ipythons(value: object) -> bool:
    """Return whether IPython has made this variable of the notebook: `open`, `exit` or `get_ipython`."""
    function = value.__func__ if inspect.ismethod(value) else value
    home = attempt_call(getattr, function, "__module__", None) or type(value).__module__
    return str(home).split(".", maxsplit=1)[0] in ("IPython", "ipykernel", "io", "_io")


def _describe_kind(found: object) -> str:
    if inspect.isroutine(found):
        return "a function"
    if isinstance(found, type):
        return "a class"
    return _add_article(type(found).__name__)


def _add_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def find_tools(names: Names, wanted: Iterable[str]) -> list[object]:
    """Return the functions whose names are in `wanted`, a list of words. A word may have several names, with commas between them.

    The name of a list, or of a ToolSource, means all functions in it.
    """
    found = [_find_tool(names, name) for word in wanted for name in word.split(",") if name]
    opened = ([*one.list_tools().values()] if isinstance(one, ToolSource) else one for one in found)
    return [tool for one in opened for tool in (one if isinstance(one, (list, tuple)) else [one])]


def _find_tool(names: Names, name: str) -> object:
    if name not in names and callable(getattr(builtins, name, None)):
        raise Mistake(
            f"{name!r} is Python's own function, whose parameters cannot be described to a model; write your own function around it "
            "(def, types, a docstring), and name that one"
        )
    first, _, rest = name.partition(".")
    if rest and isinstance(source := names.get(first), ToolSource):
        return _find_in_source(source, name, rest)
    found = look_up(names, name, "tool", lambda value: callable(value) or holds_functions(value))
    if isinstance(found, type):
        advice = f"; for answers of this type: --output {name}" if is_output(found) else ""
        raise Mistake(f"{name!r} is a class, and a tool is a function{advice}")
    return found


def _find_in_source(source: ToolSource, name: str, rest: str) -> object:
    """Return the tool with the name `rest` from `source`. A method of the object `source` is not a tool."""
    tools = source.list_tools()
    if rest in tools:
        return tools[rest]
    near = difflib.get_close_matches(rest, tools, n=1)
    hint = (
        f"did you mean {name.partition('.')[0]}.{near[0]}?"
        if near
        else f"it has {list_some(tools, 8) or 'none'}"
    )
    raise Mistake(f"there is no tool {name!r}; {hint}")


def holds_functions(value: object) -> bool:
    """Return whether `value` stands for several tools: a list of functions, or a source of tools."""
    if isinstance(value, ToolSource):
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(callable(one) for one in value)


def holds_rows(value: object) -> bool:
    """Return whether `value` can be the table of `--each`: a DataFrame, a list or another iterable, not a text or a mapping."""
    kind = type(value)  # `value.__class__` may be anything, or raise
    return not issubclass(kind, (str, bytes, type, Mapping)) and callable(getattr(kind, "__iter__", None))


def is_executor(value: object) -> bool:
    """Return whether `value` can be the executor of `--executor`. It needs a method `submit` (see
    `concurrent.futures.Executor`).
    """
    return callable(getattr(type(value), "submit", None))


def find_output(names: Names, name: str) -> object:
    """Return the type for `--output`: a pydantic model, dataclass or other type in a variable, or a built-in type (`int`)."""
    if name not in names and isinstance(getattr(builtins, name, None), type):
        return getattr(builtins, name)
    if "[" in name:
        raise Mistake(
            f"--output takes a name, not {name!r}; write Answer = {name} in a cell, then --output Answer"
        )
    return look_up(names, name, "output model", _is_type)


def _is_type(value: object) -> bool:
    """Return whether `value` can be a type: a class, or an object of `typing`. A function or a plain value cannot."""
    if isinstance(value, type):
        return True
    return not (
        is_output(type(value))
        or inspect.isroutine(value)
        or inspect.ismodule(value)
        or isinstance(value, _PLAIN_VALUES)
    )


def is_output(value: type) -> bool:
    """Return whether `value`, which is a class, is a pydantic model or a dataclass."""
    return hasattr(value, "model_json_schema") or hasattr(value, "__dataclass_fields__")


def find_model(names: Names, name: str) -> object:
    """Return the ScriptedModel or the str in the variable `name`. If there is no such variable, return `name`: LiteLLM's model
    name.
    """
    if name[:1] in ("$", "{"):
        raise Mistake(
            f"the option line is taken as typed: {name!r} is not expanded; write --model {name.strip('${}')}"
        )
    if name.partition(".")[0] not in names:
        return name
    found = look_up(names, name, "model")
    if isinstance(found, Answers):
        found.name_as(name)
        return found
    if isinstance(found, str):
        return found
    raise Mistake(
        f"{name!r} is {_describe_kind(found)}, not a model; --model takes a name such as anthropic/claude-sonnet-4-6, or the variable of a ScriptedModel"
    )


def find_policy(names: Names, name: str) -> object:
    """Return the policy in the variable `name`; "full" and "ask" are returned unchanged."""
    if name in ("full", "ask"):
        return name
    if name not in names and "." not in name:
        near = difflib.get_close_matches(name.lower(), ("full", "ask"), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Mistake(f"--permissions takes full, ask or the variable of a policy, not {name!r}{hint}")
    return look_up(names, name, "permissions policy")


def leave_out_others(
    policy: object, names: Names, functions: Sequence[Callable[..., object]], had: Iterable[str] = ()
) -> object:
    """Return the policy for a run whose tools are `functions`, without the rules for the notebook's other tools.

    So several cells with different tools can use the same mapping. Other tools are the notebook's other functions, and the
    tools of the session's earlier cells, whose names are in `had`. All other rules stay, so that `check_names` can find a
    misspelt tool name.
    """
    if not isinstance(policy, Mapping):
        return policy
    others = {get_tool_name(function) for function in find_marked_tools(names)} | {*had}
    others |= {key for key in policy if type(key) is str and _is_tool_called(names.get(key), key)}
    others -= {get_tool_name(function) for function in functions}
    kept = {key: mode for key, mode in policy.items() if key not in others}
    return policy if len(kept) == len(policy) else kept


def _is_tool_called(value: object, name: str) -> bool:
    return callable(value) and get_tool_name(value) == name


def find_key(names: Names, name: str) -> str:
    """Return the API key in the environment variable or notebook variable `name`.

    Raises Mistake if no such variable holds a text. The person may then have typed the key itself. So the message repeats
    `name` only if it cannot be a key.
    """
    value = os.environ.get(name) or names.get(name)
    if isinstance(value, str) and value:
        return value
    if name in names and name not in os.environ:
        what = "nothing" if value is None or isinstance(value, str) else "no text"
        raise Mistake(f"--api-key {name}: the variable holds {what}, not a key")
    if name in os.environ or _SURELY_A_NAME.fullmatch(name):
        raise Mistake(f"--api-key {name}: no such environment or notebook variable, or it is empty")
    raise Mistake(
        "--api-key takes the NAME of a variable, not the key: a key typed here would be saved with the notebook (IPython's "
        "history has it now: take it out of the cell, and get a new one). There is no variable of the name that was typed. "
        "Set an environment variable and name it, for example --api-key OPENAI_API_KEY"
    )


def show_key(names: Names, name: str) -> str:
    """Return the name of an API key's variable for a message. If `name` may be a key itself, return other words."""
    known = name in os.environ or name in names or _SURELY_A_NAME.fullmatch(name)
    return name if known else "[not the name of a variable]"


_SURELY_A_NAME = re.compile(
    r"(?=.{1,40}$)[A-Z]+(_[A-Z]+)+|(?=.{1,20}$)[a-z]+(_[a-z]+)*_(key|token)|[A-Za-z]{1,4}"
)
"""Texts that cannot be an API key, so that a message may repeat them: OPENAI_API_KEY, my_key, K. Any other text may be a
key."""
