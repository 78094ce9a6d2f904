"""The line magic `%toolloop`: shows and sets defaults, and manages sessions, recordings and exports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.events import Mistake, Result
from ...core.loop import SPENDING
from ...core.session import AsyncSession
from ...core.text import hide, hide_in, leave_out_user, plain
from ...core.tools import find_marked_tools, get_tool_name
from .. import kernel
from ..html import counted
from ..live import cut_bytes, last
from ..transcript import make_bundle, money, render, tell_tokens, write
from . import sessions
from .doctor import examine
from .names import find_file, show_key
from .options import COMMANDS, OPTIONS, Options, parse, refuse_words, split_words
from .sessions import NamedSession

if TYPE_CHECKING:
    from .cell import Notebook


_NOTHING_RAN = "nothing has run yet"


def _say(text: str) -> None:
    """Print the answer of a command. API keys and control sequences are removed, since the answer may repeat typed text."""
    print(hide(plain(text)))  # noqa: T201


def run(book: Notebook, line: str) -> object:
    """Run one `%toolloop` line. Return its value (the messages of `history`), else None. Raises Mistake for a wrong line."""
    words = split_words(line)
    if not words or words[0].startswith("-"):
        configure(book, parse(line, book.names))
        return None
    command = _FUNCTIONS.get(words[0])
    if command is None and len(words) > 2:
        instead = "begin a cell with %%toolloop (two percent signs), and write it on the lines below"
        raise Mistake(f"%toolloop takes no prompt; {instead}")
    if command is None:
        known = ", ".join(COMMANDS)
        raise Mistake(f"%toolloop {words[0]} is no command; there are: {known}. %toolloop? explains them.")
    try:
        inspect.signature(command).bind(book, *words[1:])
    except TypeError:
        raise refuse_words(words[0]) from None
    try:
        return command(book, *words[1:])
    except OSError as error:
        raise Mistake(f"{error.strerror or error}: {error.filename}") from None


def status(book: Notebook) -> None:
    """Print the settings, the tools and the sessions."""
    options = book.complete({})
    marked = [get_tool_name(function) for function in find_marked_tools(book.names)]
    tools = dict.fromkeys(name for word in options["tools"] or marked for name in word.split(",") if name)
    values = {
        **{name: options[name] for name in ("model", "permissions")},
        **{k: ", ".join(v) if isinstance(v, list) else v for k, v in book.settings.said().items()},
        "tools": ", ".join(tools) or "none yet: name them with --tools, or mark functions with @tool",
    }
    if options["api_key"]:
        values["api_key"] = show_key(book.names, options["api_key"])
    if options["api_base"]:
        values["api_base"] = leave_out_user(options["api_base"])
    if SPENDING.left is not None:
        values["budget"] = f"${SPENDING.budget:g}, ${SPENDING.left:.4f} left"
    if SPENDING.runs:
        values["spent"] = _tell_spent()
    tapes = {"recording": book.tapes.recording_to, "replaying": book.tapes.replaying_from}
    rows = [*values.items(), *((word, file) for word, file in tapes.items() if file)]
    rows += [("session", f"{name}: {_measure(named.session)}") for name, named in book.sessions.items()]
    width = max(12, *(len(name) for name, _ in rows))
    _say("\n".join(f"{name:<{width}} {value}" for name, value in rows))


def _tell_spent() -> str:
    """Return a text about the cost and the tokens of this kernel's runs. Runs of the Python API count, too."""
    told = [counted(SPENDING.runs, "run"), *tell_tokens(SPENDING.usage)]
    unknown = (
        [f"the cost of {counted(SPENDING.untold, 'run')} is not known in full"] if SPENDING.untold else []
    )
    return " · ".join([money(SPENDING.cost), *told, *unknown])


def _measure(session: AsyncSession) -> str:
    """Return "2 turns, 310 tokens". Only turns that ran in this kernel add tokens. Without turns, messages are counted."""
    turns, tokens = counted(len(session.starts), "turn"), session.usage.total_tokens
    length = turns if session.starts else counted(len(session.messages()), "message")
    return f"{length}, {counted(tokens, 'token')}" if session.results else length


def configure(book: Notebook, said: Options) -> None:
    """Set the options `said` as the notebook's defaults, and print the settings. If one option is wrong, set none."""
    for option in OPTIONS:
        if option.name in said and not option.is_setting:
            raise Mistake(f"{option.typed[-1]} belongs on a %%toolloop cell; it cannot be a default")
    if said:
        book.check(said)
    for name, value in said.items():
        setattr(book.settings, name, value)
    status(book)


# --- the commands: each function takes the words that stand behind its name (`COMMANDS` explains them) -----------


def _reset(book: Notebook, session: str | None = None) -> None:
    if session is not None:
        _find_session(book, session)
        del book.sessions[session]
        return
    book.sessions.clear()
    book.settings.reset()


class Messages(list[dict[str, Any]]):
    """The messages of a conversation. When a cell shows this list, long data of pictures and files is shortened."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - IPython calls it so
        printer.pretty(cut_bytes(list(self)))


def history(book: Notebook, session: str | None = None) -> Messages:
    """Return the conversation of a session in OpenAI format, without API keys."""
    name = _pick_session(book) if session is None else session
    return Messages(hide_in(_find_session(book, name).session.messages()))


def _show(book: Notebook, session: str | None = None) -> None:
    if not (
        results := _find_session(book, session).session.results if session is not None else [_get_last()]
    ):
        raise Mistake(_NOTHING_RAN)
    for result in results:
        kernel.Cell.here().display(make_bundle(render(result)))


def _get_last() -> Result:
    """Return the Result of this kernel's last run, by a cell or by the Python API. Raises Mistake if nothing has run."""
    if (result := last()) is None:
        raise Mistake(_NOTHING_RAN)
    return result


def _save(book: Notebook, session: str, file: str) -> None:
    _say(f"saved {sessions.save(_find_session(book, session), file)} messages of {session!r} to {file}")


def _load(book: Notebook, session: str, file: str) -> None:
    _resume(book, session, file)


def _resume(book: Notebook, session: str, file: str | None = None) -> None:
    saved = sessions.find(session, file, book.names)
    config = book.new_session({"session": session}).config
    continued = AsyncSession(config, saved.messages, turns=saved.starts)
    book.sessions[session] = NamedSession(continued, saved.cells)
    _say(f"session {session!r} continues with {counted(len(saved.messages), 'message')}")


def _export(_: Notebook, file: str) -> None:
    _say(f"wrote {write(_get_last(), file)}")


def _record(book: Notebook, switch: str, file: str = "") -> None:
    book.tapes.record_all(_find_tape("record", switch, file))
    _say(f"recording every run to {file}" if file else "not recording")


def _replay(book: Notebook, switch: str, file: str = "") -> None:
    told = "not replaying"
    if tape := book.tapes.replay_all(_find_tape("replay", switch, file)):
        told = f"every run is answered from {file}, which has {len(tape.calls)} model calls; no model and no key is needed"
    _say(told)


def _find_tape(command: str, switch: str, file: str) -> Path | None:
    """Return the path of FILE for the words `on FILE`; None for `off`. Raises Mistake for other words."""
    if switch != ("on" if file else "off"):
        raise refuse_words(command)
    return find_file(file) if file else None


def _nest(book: Notebook) -> None:
    book.settings.nest = True  # type: ignore[attr-defined]
    _say("asyncio.run(main()) and loop.run_until_complete(main()) work in cells now, until the kernel ends")


_FUNCTIONS: dict[str, Callable[..., object]] = {
    "reset": _reset,
    "history": history,
    "show": _show,
    "doctor": examine,
    "save": _save,
    "load": _load,
    "resume": _resume,
    "export": _export,
    "record": _record,
    "replay": _replay,
    "nest": _nest,
}


def _pick_session(book: Notebook) -> str:
    if session := book.complete({})["session"]:
        return str(session)
    if len(book.sessions) == 1:
        return next(iter(book.sessions))
    known = ", ".join(book.sessions) or "there is none yet; begin one with --session NAME"
    raise Mistake(f"name a session: {known}")


def _find_session(book: Notebook, name: str) -> NamedSession:
    if name not in book.sessions:
        raise Mistake(f"there is no session {name!r}; there are: {', '.join(book.sessions) or 'none'}")
    return book.sessions[name]
