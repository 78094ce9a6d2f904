"""The notebook's variables that an option line or a prompt may name: find them, and offer them as Tab completions.

If a name is wrong, a function here raises Mistake, and the message says what to type instead.
"""

from __future__ import annotations

import builtins
import difflib
import glob
import inspect
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal

from ...core.conversation import Named, Template, tell_text
from ...core.events import DEMO_MODEL, ArgumentInvalid, Mistake
from ...core.execution import MISSING, Raised, attempt_call
from ...core.loop import check_policy
from ...core.models import Answers, is_litellm_loaded, load_litellm, start_loading
from ...core.text import IN_BRACES, list_some, names_key
from ...core.tools import ToolSource, find_marked_tools, get_tool_name
from .. import kernel
from .options import COMMANDS, OPTIONS, Kind, Names, Option, find_option, read_pairs

Fits = Callable[[object], bool]
"""Returns whether a value is of the wanted kind, for example a table."""
_PLAIN_VALUES = (str, bytes, int, float, complex, list, tuple, set, dict, type(None))


def resolve(option: Option, value: Any, names: Names) -> object:
    """Return the `value` of `option` for the Python API: for a name, the object with this name. None if there is no value."""
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
        case Kind.EXECUTOR:
            return look_up(names, value, "executor", _is_executor)
        case _:
            return value


# --- names in a prompt ----------------------------------------------------------------------------------------


def read_template(text: str, names: Names) -> Template:
    """Return `text` as a Template. It has the variable's value in the place of each `{{name}}` of a notebook variable.

    All other double braces stay as typed (see `note_unknown_names`). Double braces inside a variable's text stay, too.
    """
    pieces: list[str | Named] = []
    at = 0
    for match in IN_BRACES.finditer(text):
        name = _read_name(match)
        if (value := _find_value(name, names)) is not MISSING:
            pieces += [text[at : match.start()], Named(name, value)]
            at = match.end()
    return Template((*pieces, text[at:]))


def fill_in(text: str, names: Names) -> str:
    """Replace each `{{name}}` of a notebook variable by its value as text. Raises Mistake if the value's own code fails."""
    try:
        pieces = read_template(text, names).pieces
        return "".join(p if isinstance(p, str) else tell_text(p, kernel.name_cells) for p in pieces)
    except ArgumentInvalid as error:
        raise Mistake(str(error)) from None


def find_named(text: str, names: Names) -> dict[str, object]:
    """Return the variables whose names stand in double braces in `text`: name -> value."""
    return {
        piece.name: piece.value for piece in read_template(text, names).pieces if isinstance(piece, Named)
    }


def _find_value(name: str, names: Names) -> object:
    """Return the value for `{{name}}`; MISSING if there is none. Without a variable `Err`, `{{Err}}` is the last error shown."""
    if name in names:
        return names[name]
    # IPython stores the error that it has shown last in `sys.last_value`, as Python does.
    error = getattr(sys, "last_value", None) if name == "Err" else None
    return error if isinstance(error, BaseException) else MISSING


def _read_name(match: re.Match[str]) -> str:
    """Return the name in double braces in Python's spelling (NFKC: "ö" is one character); "" if it cannot be a name."""
    name = unicodedata.normalize("NFKC", match[1])
    return name if name.isidentifier() else ""


def note_unknown_names(text: str, names: Names) -> list[tuple[str, Literal["info", "warning"]]]:
    """Return notes about each `{{name}}` without a variable: (text, "warning" if a variable has a similar name, else "info")."""
    notes: list[tuple[str, Literal["info", "warning"]]] = []
    unlike = []
    for name in dict.fromkeys(map(_read_name, IN_BRACES.finditer(text))):
        if not name or _find_value(name, names) is not MISSING:
            continue
        if near := _find_near(names, name):
            as_typed = f"{{{{{name}}}}} is not a variable, and is sent as typed"
            notes.append((f"{as_typed}; did you mean {{{{{near}}}}}?", "warning"))
        else:
            unlike.append(f"{{{{{name}}}}}")
    if unlike:
        notes.append((f"there is no such variable, so this is sent as typed: {list_some(unlike, 8)}", "info"))
    return notes


# --- files ----------------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def find_file(path: str | Path) -> Path:
    """Return the full path for a typed `path`. Raises Mistake if `path` cannot be a file's path."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # for example a link to itself, or a null character
        raise Mistake(f"{str(path)!r} cannot be a file: {error}") from None


def find_attached(name: str, names: Names) -> Named:
    """Return what `--attach NAME` attaches: the value of the variable NAME, else the file at the path NAME.

    If the value is a str, it is a path, too. Raises Mistake for a URL, and for a value that is a str but no file's path.
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
            f"{{{{{name}}}}} in the prompt"
        )
    return Named(path.name, path)


# --- one variable ---------------------------------------------------------------------------------------------


def look_up(names: Names, dotted: str, what: str, fits: Fits = lambda _: True) -> object:
    """Return the object with the name `dotted`, such as `tools.search`. Raises Mistake if none exists, or if `fits` rejects it.

    `what` is the word for such an object in the message, for example "tool".
    """
    first, *rest = dotted.split(".")
    if first not in names:
        near = _find_near(names, dotted, fits)
        hint = f"did you mean {near!r}?" if near else "run the cell that defines it first"
        raise Mistake(f"there is no {what} {dotted!r} in this notebook; {hint}")
    value = names[first]
    for part in rest:
        inner = attempt_call(getattr, value, part)  # a property of a person's class may raise any exception
        if isinstance(inner, Raised):
            why = f"{type(value).__name__} has no {part!r}"
            if not isinstance(inner.error, AttributeError):
                why = f"{dotted} raised {type(inner.error).__name__}"
            raise Mistake(f"there is no {what} {dotted!r}: {why}")
        value = inner
    if attempt_call(fits, value) is not True:
        raise Mistake(f"{dotted!r} is {_describe_kind(value)}, not {_add_article(what)}")
    return value


_OF_IPYTHON = ("In", "Out", "exit", "quit", "open", "get_ipython")


def list_variables(names: Names, fits: Fits = lambda _: True) -> list[str]:
    """Return the names of the person's variables whose values `fits` accepts. Private and IPython's variables are left out.

    A lazy object or a proxy may raise an exception when `fits` looks at it. The variable is then left out.
    """
    shown = (name for name in names if not name.startswith("_") and name not in _OF_IPYTHON)
    return [name for name in shown if attempt_call(fits, names[name]) is True]


def _find_near(names: Names, name: str, fits: Fits = lambda _: True) -> str:
    """Return the variable name that is most similar to `name`; "" if none is. Only variables that `fits` accepts count."""
    candidates = {variable.lower(): variable for variable in list_variables(names, fits)}
    near = difflib.get_close_matches(name.lower(), candidates, n=1)
    return candidates[near[0]] if near else ""


def _describe_kind(found: object) -> str:
    if attempt_call(inspect.isroutine, found) is True:
        return "a function"
    return "a class" if issubclass(type(found), type) else _add_article(type(found).__name__)


def _add_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


# --- the kinds of objects -------------------------------------------------------------------------------------


def find_tools(names: Names, wanted: Iterable[str]) -> list[object]:
    """Return the functions that the words in `wanted` name. A word may be several names with commas between them.

    The name of a list, or of a ToolSource, means all functions in it.
    """
    tools = [_find_tool(names, name) for word in wanted for name in word.split(",") if name]
    opened = ([*one.list_tools().values()] if isinstance(one, ToolSource) else one for one in tools)
    return [tool for one in opened for tool in (one if isinstance(one, (list, tuple)) else [one])]


def _find_tool(names: Names, name: str) -> object:
    if name not in names and callable(getattr(builtins, name, None)):
        raise Mistake(
            f"{name!r} is Python's own function, whose parameters cannot be described to a model; write a function of your own that calls it "
            "(def, types, a docstring), and name that function"
        )
    first, _, rest = name.partition(".")
    if rest and isinstance(source := names.get(first), ToolSource):
        tools = source.list_tools()  # a method of the object `source` is not a tool
        if rest not in tools:
            near = difflib.get_close_matches(rest, tools, n=1)
            hint = f"did you mean {first}.{near[0]}?" if near else f"it has {list_some(tools, 8) or 'none'}"
            raise Mistake(f"there is no tool {name!r}; {hint}")
        return tools[rest]
    named = look_up(names, name, "tool", lambda value: callable(value) or _holds_functions(value))
    if isinstance(named, type):
        advice = f"; for answers of this type: --output {name}" if _is_output(named) else ""
        raise Mistake(f"{name!r} is a class, and a tool is a function{advice}")
    return named


def _holds_functions(value: object) -> bool:
    """Return whether `value` stands for several tools: a list of functions, or a source of tools."""
    of_functions = isinstance(value, (list, tuple)) and bool(value) and all(callable(one) for one in value)
    return of_functions or isinstance(value, ToolSource)


def is_source(value: object) -> bool:
    return isinstance(value, ToolSource)


def holds_rows(value: object) -> bool:
    """Return whether `value` can be the table of `--each`: a DataFrame, a list or another iterable, not a text or a mapping."""
    kind = type(value)  # `value.__class__` may be anything, or raise an exception
    return not issubclass(kind, (str, bytes, type, Mapping)) and callable(getattr(kind, "__iter__", None))


def _is_executor(value: object) -> bool:
    """Return whether `value` can be the executor of `--executor`: it has `submit`, as a `concurrent.futures.Executor` has."""
    return callable(getattr(type(value), "submit", None))


def find_output(names: Names, name: str) -> object:
    """Return the type `name` for `--output`: a variable's value (a pydantic model, a dataclass, …) or a built-in type (`int`)."""
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
    no_type = inspect.isroutine(value) or inspect.ismodule(value) or isinstance(value, _PLAIN_VALUES)
    return not (no_type or _is_output(type(value)))


def _is_output(value: object) -> bool:
    """Return whether `value` is a pydantic model class or a dataclass, and not an instance of one."""
    return isinstance(value, type) and (
        hasattr(value, "model_json_schema") or hasattr(value, "__dataclass_fields__")
    )


def find_model(names: Names, name: str) -> object:
    """Return the value of the variable `name`: a ScriptedModel or a model's name. Without such a variable, return `name`."""
    if name[:1] in ("$", "{"):
        raise Mistake(
            f"the option line is taken as typed: {name!r} is not expanded; write --model {name.strip('${}')}"
        )
    if name.partition(".")[0] not in names:
        return name
    value = look_up(names, name, "model")
    if isinstance(value, Answers):
        value.name_as(name)
    elif not isinstance(value, str):
        raise Mistake(
            f"{name!r} is {_describe_kind(value)}, not a model; --model takes a name such as anthropic/claude-sonnet-4-6, or the variable of a ScriptedModel"
        )
    return value


def find_policy(names: Names, name: str) -> object:
    """Return the policy in the variable `name`; "full" and "ask" are returned unchanged."""
    if name in ("full", "ask"):
        return name
    if name not in names and "." not in name:
        near = difflib.get_close_matches(name.lower(), ("full", "ask"), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Mistake(f"--permissions takes full, ask or the variable of a policy, not {name!r}{hint}")
    return look_up(names, name, "permissions policy")


def leave_out_other_rules(
    policy: object, names: Names, functions: Sequence[Callable[..., object]], had: Iterable[str] = ()
) -> object:
    """Return the policy without rules for tools that this cell lacks, so that cells with other tools can share a mapping.

    `functions` are the tools of this cell. The rules for the notebook's other functions, and for the tools of the session's
    earlier cells (`had`), are left out. All other rules stay, so that `check_names` can find a misspelt tool name.
    """
    if not isinstance(policy, Mapping):
        return policy
    others = {get_tool_name(function) for function in find_marked_tools(names)} | {*had}
    for key in policy:
        value = names.get(key) if type(key) is str else None
        others |= {key} if callable(value) and get_tool_name(value) == key else set()
    others -= {get_tool_name(function) for function in functions}
    kept = {key: mode for key, mode in policy.items() if key not in others}
    return policy if len(kept) == len(policy) else kept


_SURELY_A_NAME = re.compile(
    r"(?=.{1,40}$)[A-Z]+(_[A-Z]+)+|(?=.{1,20}$)[a-z]+(_[a-z]+)*_(key|token)|[A-Za-z]{1,4}"
)
"""Texts that cannot be an API key, so that a message may repeat them: OPENAI_API_KEY, my_key, K."""


def find_key(names: Names, name: str) -> str:
    """Return the API key in the environment variable or notebook variable `name`.

    Raises Mistake if there is no key. The person may have typed the key itself instead of a name. So the message repeats
    `name` only if `name` cannot be an API key.
    """
    value = os.environ.get(name) or names.get(name)
    if isinstance(value, str) and value:
        return value
    if show_key(names, name) == name:  # a name for certain, and not a key
        raise Mistake(f"--api-key {name}: no such environment or notebook variable, or it contains no text")
    raise Mistake(
        "--api-key takes the NAME of a variable, not the key: a key typed here would be saved with the notebook. If you "
        "typed a key: delete it from the cell, and get a new one, because IPython's history contains it. If you typed a name: "
        "there is no variable of this name. Set an environment variable and name it, for example --api-key OPENAI_API_KEY"
    )


def show_key(names: Names, name: str) -> str:
    """Return `name`, the variable of an API key, for a message. If `name` may be an API key itself, return other words."""
    is_name = name in os.environ or name in names or _SURELY_A_NAME.fullmatch(name)
    return name if is_name else "[not the name of a variable]"


# --- names for Tab --------------------------------------------------------------------------------------------

_FEW_MODELS = (DEMO_MODEL, "openai/", "anthropic/", "gemini/", "litellm_proxy/", "ollama_chat/")
"""The model names that Tab offers before litellm is imported. Afterwards, Tab offers all names that litellm knows."""
_TYPES = {
    Kind.TOOLS: "function",
    Kind.OUTPUT: "class",
    **dict.fromkeys((Kind.FILE, Kind.FOLDER, Kind.ATTACHED), "path"),
}
"""The kind of an option -> the type that a front-end shows beside each completion. The type of all other kinds is "value"."""


def find_candidates(line: str, word: str, names: Names, sessions: Collection[str] = ()) -> dict[str, str]:
    """Return the completions of `word` on `line`, in order: completion -> type."""
    words = line.removesuffix(word).split()[1:]
    option, of_line_magic = _find_open_option(words), line.startswith("%toolloop")
    if option is not None and not word.startswith("-"):
        kind = _TYPES.get(option.kind, "value")
        offered = [(one, kind) for one in sorted(_list_values(option, word, names, sessions))]
    elif of_line_magic and words and words[0] in COMMANDS:
        offered = [(name, "value") for name in sorted(sessions) if "SESSION" in COMMANDS[words[0]][0]]
    else:
        offered = [(one, "command") for one in sorted(COMMANDS) if of_line_magic and not words]
        offered += [(flag, "option") for flag in sorted(f for o in OPTIONS for f in o.typed if f[:2] == "--")]
    return {one: kind for one, kind in offered if one.startswith(word)}


def _find_open_option(words: Sequence[str]) -> Option | None:
    """Return the option whose value the person is typing: the last option, if it can take one more value. Else return None."""
    at = max((at for at, word in enumerate(words) if word.startswith("-")), default=None)
    option = None if at is None else find_option(words[at])
    if option is None or option.kind is Kind.SWITCH:
        return None
    return option if words[-1].startswith("-") or option.kind is Kind.TOOLS else None


def _list_values(option: Option, word: str, names: Names, sessions: Collection[str]) -> Iterable[str]:
    match option.kind:
        case Kind.MODEL | Kind.MODELS:
            return {*_list_models(), *list_variables(names, lambda value: isinstance(value, Answers))}
        case Kind.TOOLS:
            sources: Any = {name: names[name] for name in list_variables(names, is_source)}
            of_sources = (f"{name}.{one}" for name, source in sources.items() for one in source.list_tools())
            functions = list_variables(
                names, lambda value: inspect.isroutine(value) or _holds_functions(value)
            )
            return [*functions, *of_sources]
        case Kind.OUTPUT:
            return list_variables(names, _is_output)
        case Kind.SESSION:
            return sessions
        case Kind.POLICY:
            return ["full", "ask", *list_variables(names, _may_be_policy(names))]
        case Kind.KEY:
            return [name for name in {*os.environ, *list_variables(names)} if names_key(name)]
        case Kind.TABLE:
            return list_variables(names, lambda value: holds_rows(value) and not callable(value))
        case Kind.EXECUTOR:
            return list_variables(names, _is_executor)
        case Kind.FILE | Kind.FOLDER | Kind.ATTACHED:
            paths = glob.glob(f"{glob.escape(word)}*")  # noqa: PTH207 - pathlib would remove a typed ./
            if option.kind is Kind.FOLDER:
                return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112
            may_be_attached = option.kind is Kind.ATTACHED
            values = list_variables(names, lambda value: not (callable(value) or inspect.ismodule(value)))
            return [*paths, *(values if may_be_attached else ())]
        case _:
            return option.check.choices


def _may_be_policy(names: Names) -> Fits:
    """Return a `fits` for `list_variables`. It accepts a mapping of tools to modes, and a function that is not a tool."""
    tools = find_marked_tools(names)

    def fits(value: object) -> bool:
        if inspect.isroutine(value):
            return value not in tools
        is_mapping = isinstance(value, Mapping) and bool(value)
        return is_mapping and not isinstance(attempt_call(check_policy, value), Raised)

    return fits


def _list_models() -> Iterable[str]:
    if not is_litellm_loaded():
        start_loading()  # the next Tab and the run need litellm
        return _FEW_MODELS
    models = (
        name if "/" in name else f"{facts.get('litellm_provider')}/{name}"
        for name, facts in load_litellm().model_cost.items()
        if facts.get("mode") in ("chat", "responses")
    )
    return {*_FEW_MODELS, *models}
