"""Offer completions for Tab on the lines of `%%toolloop` and `%toolloop`: options and their values."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...core.events import DEMO_MODEL
from ...core.execution import Raised, attempt_call
from ...core.loop import check_policy
from ...core.models import Answers, litellm_loaded, load_litellm, start_loading
from ...core.text import names_key
from ...core.tools import ToolSource, find_marked_tools
from .names import holds_functions, holds_rows, is_executor, is_ipythons, is_output
from .options import OPTIONS, Kind, Option, find_option

if TYPE_CHECKING:
    from .cell import Notebook


_FEW_MODELS = (DEMO_MODEL, "openai/", "anthropic/", "gemini/", "litellm_proxy/", "ollama_chat/")
"""The model names that Tab offers before litellm is imported. Afterwards, Tab offers all names that litellm knows."""
_TYPES = {
    Kind.TOOLS: "function",
    Kind.OUTPUT: "class",
    Kind.FILE: "path",
    Kind.FOLDER: "path",
    Kind.ATTACHED: "path",
}
"""The kind of an option -> the type that a front-end shows beside each completion. The type of all other kinds is "value"."""


def find_candidates(book: Notebook, line: str, word: str, commands: Iterable[str] = ()) -> dict[str, str]:
    """Return the completions of `word` on `line`, in order: completion -> type. `commands` are the commands of `%toolloop`."""
    before = line[: len(line) - len(word)] if line.endswith(word) else line
    words = before.split()[1:]
    option, of_line_magic = _find_open_option(words), line.startswith("%toolloop")
    offered = []
    if option is not None and not word.startswith("-"):
        offered = [
            (one, _TYPES.get(option.kind, "value")) for one in sorted(_list_values(book, option, word))
        ]
    elif of_line_magic and words and words[0] in commands:
        offered = [(name, "value") for name in sorted(book.sessions) if words[0] != "doctor"]
    else:
        offered = [(one, "command") for one in sorted(commands) if of_line_magic and not words]
        offered += [(flag, "option") for flag in sorted(f for o in OPTIONS for f in o.typed if f[:2] == "--")]
    return {one: kind for one, kind in offered if one.startswith(word)}


def _find_open_option(words: list[str]) -> Option | None:
    """Return the option whose value the person is typing: the last option, if it can take one more value. Else return None."""
    for number, word in enumerate(reversed(words)):
        if word.startswith("-"):
            option = find_option(word)
            if option is None or option.kind is Kind.SWITCH:
                return None
            return option if number == 0 or option.kind is Kind.TOOLS else None
    return None


def _list_values(book: Notebook, option: Option, word: str) -> Iterable[str]:
    names = {
        name: value
        for name, value in book.names.items()
        if not name.startswith("_") and name not in ("In", "Out") and not is_ipythons(value)
    }
    match option.kind:
        case Kind.MODEL | Kind.MODELS:
            return {*_list_models(), *(name for name, value in names.items() if isinstance(value, Answers))}
        case Kind.TOOLS:
            return [
                *(
                    name
                    for name, value in names.items()
                    if inspect.isroutine(value) or holds_functions(value)
                ),
                *(
                    f"{name}.{one}"
                    for name, value in names.items()
                    if isinstance(value, ToolSource)
                    for one in value.list_tools()
                ),
            ]
        case Kind.OUTPUT:
            return [name for name, value in names.items() if isinstance(value, type) and is_output(value)]
        case Kind.SESSION:
            return book.sessions
        case Kind.POLICY:
            return ["full", "ask", *_list_policies(names)]
        case Kind.KEY:
            return [name for name in {*os.environ, *names} if names_key(name)]
        case Kind.TABLE:
            return [name for name, value in names.items() if holds_rows(value) and not callable(value)]
        case Kind.EXECUTOR:
            return [name for name, value in names.items() if is_executor(value)]
        case Kind.FILE | Kind.FOLDER | Kind.ATTACHED:
            paths = glob.glob(f"{glob.escape(word)}*")  # noqa: PTH207 - the path stays as it was begun
            variables = [
                name for name, value in names.items() if not (callable(value) or inspect.ismodule(value))
            ]
            return [
                *(path for path in paths if option.kind is not Kind.FOLDER or os.path.isdir(path)),  # noqa: PTH112
                *(variables if option.kind is Kind.ATTACHED else ()),
            ]
        case _:
            return option.check.choices


def _list_policies(names: Mapping[str, object]) -> list[str]:
    """Return the names of variables that may hold a policy: a mapping of tools to modes, or a function that is not a tool."""
    tools = find_marked_tools(names)
    return [
        name
        for name, value in names.items()
        if (inspect.isroutine(value) and value not in tools)
        or (
            isinstance(value, Mapping) and value and not isinstance(attempt_call(check_policy, value), Raised)
        )
    ]


def _list_models() -> Iterable[str]:
    if not litellm_loaded():
        start_loading()  # for the next Tab, and for the run
        return _FEW_MODELS
    known = (
        name if "/" in name else f"{facts.get('litellm_provider')}/{name}"
        for name, facts in load_litellm().model_cost.items()
        if facts.get("mode") in ("chat", "responses")
    )
    return {*_FEW_MODELS, *known}
