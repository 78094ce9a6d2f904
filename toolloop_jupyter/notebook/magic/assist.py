"""Tab on the option line of `%%toolloop` and on `%toolloop`: options, tools, output models, sessions, model names, files."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core.models import Answers, litellm_loaded, load_litellm, start_loading
from ...core.text import names_key
from .options import DEMO, OPTIONS, Kind, Option, find_option

if TYPE_CHECKING:
    from .cell import Notebook


_FEW_MODELS = (DEMO, "openai/", "anthropic/", "gemini/", "litellm_proxy/", "ollama_chat/")
"""Offered until litellm, which knows the names, is loaded."""


def find_candidates(book: Notebook, line: str, word: str, commands: Iterable[str] = ()) -> list[str]:
    """What may stand where `word` is begun on `line`; `commands` are those of `%toolloop`."""
    before = line[: len(line) - len(word)] if line.endswith(word) else line
    words = before.split()[1:]
    option = _find_open_option(words)
    candidates: Iterable[str] = [flag for o in OPTIONS for flag in o.typed if flag.startswith("--")]
    if option is not None and not word.startswith("-"):
        candidates = _list_values(book, option, word)
    if line.startswith("%toolloop") and not words:
        candidates = [*commands, *candidates]
    elif line.startswith("%toolloop") and words[0] in commands:
        candidates = [] if words[0] == "doctor" else book.sessions
    return sorted(one for one in candidates if one.startswith(word))


def _find_open_option(words: list[str]) -> Option | None:
    """The option whose value is being written: the last one, if it takes a value still."""
    for number, word in enumerate(reversed(words)):
        if word.startswith("-"):
            option = find_option(word)
            if option is None or option.kind is Kind.SWITCH:
                return None
            return option if number == 0 or option.kind is Kind.TOOLS else None
    return None


def _list_values(book: Notebook, option: Option, word: str) -> Iterable[str]:
    names = {name: value for name, value in book.names.items() if not name.startswith("_")}
    match option.kind:
        case Kind.MODEL:
            return [
                *_list_models(),
                *(name for name, value in names.items() if isinstance(value, Answers)),
            ]
        case Kind.TOOLS:
            return [name for name, value in names.items() if _is_function(value)]
        case Kind.OUTPUT:
            return [name for name, value in names.items() if isinstance(value, type) and _is_model(value)]
        case Kind.SESSION:
            return book.sessions
        case Kind.POLICY:
            return ["full", "ask", *(n for n, v in names.items() if isinstance(v, dict) or _is_function(v))]
        case Kind.KEY:
            return [name for name in {*os.environ, *names} if names_key(name)]
        case Kind.FILE | Kind.FOLDER:
            paths = glob.glob(f"{glob.escape(word)}*")  # noqa: PTH207 - the path stays as it was begun
            return [path for path in paths if option.kind is Kind.FILE or os.path.isdir(path)]  # noqa: PTH112
        case _:
            return option.check.choices


def _is_function(value: object) -> bool:
    return inspect.isroutine(value) and getattr(value, "__module__", None) != "IPython.core.interactiveshell"


def _is_model(value: type) -> bool:
    return hasattr(value, "model_json_schema") or hasattr(value, "__dataclass_fields__")


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
