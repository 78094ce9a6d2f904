"""The line magic `%toolloop`: shows and sets defaults, and manages sessions, recordings and exports."""

from __future__ import annotations

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
from . import doctor, sessions
from .names import find_file, show_key
from .options import OPTIONS, Options, parse, split_words
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
    command = COMMANDS.get(words[0])
    if command is None and len(words) > 2:
        instead = "begin a cell with %%toolloop (two percent signs), and write it on the lines below"
        raise Mistake(f"%toolloop takes no prompt; {instead}")
    if command is None:
        known = ", ".join(COMMANDS)
        raise Mistake(f"%toolloop {words[0]} is no command; there are: {known}. %toolloop? explains them.")
    try:
        return command(book, words[1:])
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


def reset(book: Notebook, words: list[str]) -> None:
    """Delete the session that `words` name. If `words` is empty, delete all sessions and the defaults."""
    if words:
        _find_session(book, words[0])
        del book.sessions[words[0]]
        return
    book.sessions.clear()
    book.settings.reset()


class Messages(list[dict[str, Any]]):
    """The messages of a conversation. When a cell shows this list, long data of pictures and files is shortened."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - IPython calls it so
        printer.pretty(cut_bytes(list(self)))


def history(book: Notebook, words: list[str]) -> Messages:
    """Return the conversation of a session in OpenAI format, without API keys."""
    return Messages(hide_in(_find_session(book, _pick_session(book, words)).session.messages()))


def show_runs(book: Notebook, words: list[str]) -> None:
    """Show again: all runs of the session that `words` name; if `words` is empty, this kernel's last run."""
    if not (results := _find_session(book, words[0]).session.results if words else [_get_last()]):
        raise Mistake(_NOTHING_RAN)
    for result in results:
        kernel.Cell.here().display(make_bundle(render(result)))


def _get_last() -> Result:
    """Return the Result of this kernel's last run, by a cell or by the Python API. Raises Mistake if nothing has run."""
    if (result := last()) is None:
        raise Mistake(_NOTHING_RAN)
    return result


def save(book: Notebook, words: list[str]) -> None:
    """Write a session's conversation to a file."""
    name, path = _read_two(words, "save SESSION FILE")
    _say(f"saved {sessions.save(_find_session(book, name), path)} messages of {name!r} to {path}")


def load_file(book: Notebook, words: list[str]) -> None:
    """Make a session from a saved conversation."""
    name, path = _read_two(words, "load SESSION FILE")
    if not Path(path).is_file():
        raise Mistake(f"there is no file {path!r}")
    _begin(book, name, sessions.load_session(Path(path)))


def resume(book: Notebook, words: list[str]) -> None:
    """Make a session from a conversation in a saved notebook or file. Used after a restart of the kernel."""
    if len(words) not in (1, 2):
        raise Mistake("write: %toolloop resume SESSION [FILE]")
    _begin(book, words[0], sessions.find(words[0], words[1] if len(words) > 1 else None, book.names))


def _begin(book: Notebook, name: str, saved: sessions.SavedConversation) -> None:
    made = book.new_session({"session": name})
    session = AsyncSession(made.config, saved.messages, turns=saved.starts)
    book.sessions[name] = NamedSession(session, saved.cells)
    _say(f"session {name!r} continues with {counted(len(saved.messages), 'message')}")


def export(book: Notebook, words: list[str]) -> None:
    """Write the last run to a file: .md, .html or .json (its messages and events)."""
    if len(words) != 1:
        raise Mistake("write: %toolloop export FILE.md (or .html, .json)")
    _say(f"wrote {write(_get_last(), words[0])}")


def record(book: Notebook, words: list[str]) -> None:
    """Start or stop recording every run of the notebook."""
    book.tapes.record_all(_find_tape("record", words))
    _say(f"recording every run to {words[1]}" if words[1:] else "not recording")


def replay(book: Notebook, words: list[str]) -> None:
    """Start or stop answering every run of the notebook from a recording."""
    told = "not replaying"
    if tape := book.tapes.replay_all(_find_tape("replay", words)):
        told = f"every run is answered from {words[1]}, which has {len(tape.calls)} model calls; no model and no key is needed"
    _say(told)


def _find_tape(command: str, words: list[str]) -> Path | None:
    """Return FILE if `words` are `on FILE`; None if they are `off`. Raises Mistake for other words."""
    if words == ["off"]:
        return None
    if len(words) != 2 or words[0] != "on":
        raise Mistake(f"write: %toolloop {command} on FILE, or %toolloop {command} off")
    return find_file(words[1])


def examine(book: Notebook, words: list[str]) -> None:
    """Show which features work on this kernel and front-end."""
    doctor.run(
        words,
        ask=book.complete({})["ask"],
        awaits=book.autoawait,
        names=book.names,
        new_session=book.new_session,
    )


def nest(book: Notebook, words: list[str]) -> None:
    """Let asyncio.run() and run_until_complete() work in cells, until the kernel ends."""
    if words:
        raise Mistake("write: %toolloop nest")
    kernel.nest_loop()
    book.settings.nest = True  # type: ignore[attr-defined]
    _say("asyncio.run(main()) and loop.run_until_complete(main()) work in cells now, until the kernel ends")


def _pick_session(book: Notebook, words: list[str]) -> str:
    if words:
        return words[0]
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


def _read_two(words: list[str], usage: str) -> tuple[str, str]:
    if len(words) != 2:
        raise Mistake(f"write: %toolloop {usage}")
    return words[0], words[1]


COMMANDS = {
    "reset": reset,
    "history": history,
    "show": show_runs,
    "save": save,
    "load": load_file,
    "resume": resume,
    "export": export,
    "doctor": examine,
    "record": record,
    "replay": replay,
    "nest": nest,
}
"""The name of each command of `%toolloop` -> its function."""
