"""Tab on the option line of `%%toolloop` and on `%toolloop`: options, tools, output models, sessions, model names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ...core.models import Answers, litellm_loaded, load_litellm
from . import commands
from .options import DEMO, Options

if TYPE_CHECKING:
    from .cell import Notebook


_FEW_MODELS = (DEMO, "openai/", "anthropic/", "gemini/", "litellm_proxy/", "ollama_chat/")
"""Offered until litellm, which knows the names, is loaded."""
_KEYS = ("%%toolloop", "%toolloop")


def candidates(book: Notebook, line: str, word: str) -> list[str]:
    """What may stand where `word` is begun on `line`."""
    before = line[: len(line) - len(word)] if line.endswith(word) else line
    words = before.split()[1:]
    flag = _open_option(words)
    found: Iterable[str] = _values(book, flag) if flag and not word.startswith("-") else _flags()
    if line.startswith("%toolloop") and not words:
        found = [*commands.names(), *found]
    elif line.startswith("%toolloop") and words[0] in commands.names():
        found = [] if words[0] == "doctor" else book.sessions
    return sorted(one for one in found if one.startswith(word))


def _flags() -> list[str]:
    return [flag for item in fields(Options) for flag in item.metadata["flags"] if flag.startswith("--")]


def _open_option(words: list[str]) -> str | None:
    """The option whose value is being written: the last one, if it takes a value still."""
    for number, word in enumerate(reversed(words)):
        if not word.startswith("-"):
            continue
        item = next((f for f in fields(Options) if word in f.metadata["flags"]), None)
        if item is None or item.metadata.get("action") == "store_true":
            return None
        takes_more = number == 0 or item.metadata.get("nargs") == "*"
        return item.name if takes_more else None
    return None


def _values(book: Notebook, option: str) -> Iterable[str]:
    names = {name: value for name, value in book.names.items() if not name.startswith("_")}
    if option == "model":
        return [*_models(), *(name for name, value in names.items() if isinstance(value, Answers))]
    if option == "tools":
        return [name for name, value in names.items() if _is_function(value)]
    if option == "output":
        return [name for name, value in names.items() if isinstance(value, type) and _is_model(value)]
    if option == "session":
        return book.sessions
    if option == "permissions":
        return ["full", "ask", *(n for n, v in names.items() if isinstance(v, dict) or _is_function(v))]
    item = next(one for one in fields(Options) if one.name == option)
    choices: Iterable[str] = item.metadata.get("choices", ())
    return choices


def _is_function(value: object) -> bool:
    return inspect.isroutine(value) and getattr(value, "__module__", None) != "IPython.core.interactiveshell"


def _is_model(value: type) -> bool:
    return hasattr(value, "model_json_schema") or hasattr(value, "__dataclass_fields__")


def _models() -> Iterable[str]:
    if not litellm_loaded():
        return _FEW_MODELS
    litellm = load_litellm()
    known = (
        name if "/" in name else f"{facts.get('litellm_provider')}/{name}"
        for name, facts in litellm.model_cost.items()
        if facts.get("mode") in ("chat", "responses")
    )
    return {*_FEW_MODELS, *known}


def register(shell: Any, book: Notebook) -> Callable[[], None]:
    """Complete for this shell (IPython's "complete_command" hook: 7.34 to 9.18); returns what undoes it."""

    def complete(_shell: Any, event: Any) -> list[str]:
        return candidates(book, event.line[: len(event.text_until_cursor)], event.symbol)

    for key in _KEYS:
        shell.set_hook("complete_command", complete, str_key=key)

    undo_jedi = _without_jedi(shell.Completer)

    def undo() -> None:
        for key in _KEYS:
            shell.strdispatchers["complete_command"].strs.pop(key, None)
        undo_jedi()

    return undo


def _without_jedi(completer: Any) -> Callable[[], None]:
    """Keep Jedi from reading an option line as Python: it offers `delattr` for "toolloop/d", after 100 ms of thought.

    IPython lets a custom completer suppress every other matcher but this one (7.34 to 9.18). `_jedi_matches` is private;
    without it, or with another signature, nothing is changed. A way to suppress Jedi from the hook would replace this.
    """
    usual = getattr(completer, "_jedi_matches", None)
    if usual is None:
        return lambda: None

    def matches(cursor_column: int, cursor_line: int, text: str) -> Iterable[Any]:
        lines = text.split("\n")
        line = lines[cursor_line] if cursor_line < len(lines) else ""
        found: Iterable[Any] = (
            () if line.lstrip().startswith(_KEYS) else usual(cursor_column, cursor_line, text)
        )
        return iter(found)

    completer._jedi_matches = matches  # noqa: SLF001 - see above

    def undo() -> None:
        del completer._jedi_matches  # noqa: SLF001 - see above

    return undo
