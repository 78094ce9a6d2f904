"""The line magic `%toolloop`: show and set defaults, and look after sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.events import Mistake
from ...core.text import hide, hide_in, leave_out_user, plain
from .. import kernel
from ..html import counted
from . import names as naming
from . import sessions
from .options import DEMO, Options, parse, split_words

if TYPE_CHECKING:
    from .cell import Notebook
    from .sessions import NamedSession


_SETTABLE = [
    "model",
    "tools",
    "permissions",
    "output",
    "session",
    "instructions",
    "max_turns",
    "timeout",
    "sandbox",
    "api_base",
    "api_key",
    "on_unattended",
    "keep_history",
]


def _say(text: str) -> None:
    """Print a magic's answer: names that were typed and files' names in it are only text, and no key is shown."""
    print(hide(plain(text)))  # noqa: T201


def run(book: Notebook, line: str) -> Any:
    """Run one `%toolloop` line. Raises Mistake for what is not understood."""
    words = split_words(line)
    if not words:
        return status(book)
    if words[0].startswith("-"):
        return configure(book, parse(line))
    command = _COMMANDS.get(words[0])
    if command is None:
        if len(words) > 2:
            raise Mistake(
                "%toolloop takes no prompt; begin a cell with %%toolloop (two percent signs), and write it on the lines below"
            )
        raise Mistake(
            f"%toolloop {words[0]} is no command; there are: {', '.join(_COMMANDS)}. %toolloop? explains them."
        )
    try:
        return command(book, words[1:])
    except OSError as error:
        raise Mistake(f"{error.strerror or error}: {error.filename}") from None


def status(book: Notebook) -> None:
    """Print what is set, the tools and the sessions."""
    from ...core.tools import get_tool_name

    settings = book.settings
    lines = [f"model        {settings.default_model()}"]
    values = {name: getattr(settings, name) for name in _SETTABLE[1:]}
    if settings.api_key:
        values["api_key"] = naming.shown_key(book.names, settings.api_key)
    values["api_base"] = leave_out_user(settings.api_base)
    lines += [f"{name:<12} {value}" for name, value in values.items() if value not in ("", None, [], False)]
    names = list(settings.tools) or [get_tool_name(function) for function in book.functions(None)]
    lines.append(
        "tools        "
        + (", ".join(names) or "none yet: name them with --tools, or mark functions with @tool")
    )
    lines += [f"{word:<12} {file}" for word, file in book.tapes.running()]
    for name, named in book.sessions.items():
        usage = named.session.usage
        lines.append(
            f"session      {name}: {counted(len(named.session.results), 'turn')}, {counted(usage.total_tokens, 'token')}"
        )
    _say("\n".join(lines))


def configure(book: Notebook, options: Options) -> None:
    """Take options as the notebook's defaults: all of them, or none when one is wrong."""
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    said = {name: value for name, value in given.items() if value not in (None, False)}
    wrong = [name for name in said if name not in _SETTABLE]
    if wrong:
        flag = "--as" if wrong[0] == "name" else "--" + wrong[0].replace("_", "-")
        raise Mistake(f"{flag} belongs on a %%toolloop cell; it cannot be a default")
    _check(book, said)
    for name, value in said.items():
        setattr(book.settings, name, list(value) if name == "tools" else value)
    status(book)


def _check(book: Notebook, said: Mapping[str, Any]) -> None:
    """Raise Mistake for a default that no cell could run with."""
    trial = {name: said[name] for name in ("max_turns", "timeout", "sandbox") if name in said}
    if "api_key" in said:
        book.key(said["api_key"])
    if said.get("tools"):
        trial["tools"] = book.functions(list(said["tools"]))
    if said.get("permissions"):
        trial["permissions"] = naming.policy(book.names, said["permissions"])
    if said.get("output"):
        trial["output"] = naming.output(book.names, said["output"])
    if trial:
        book.checked(model=DEMO, **{"sandbox": None, **trial})


def reset(book: Notebook, words: list[str]) -> None:
    """Forget one session, or all sessions and the defaults."""
    if words:
        _session(book, words[0])
        del book.sessions[words[0]]
        return
    book.sessions.clear()
    for name in _SETTABLE:
        setattr(book.settings, name, type(book.settings).class_traits()[name].default())


def history(book: Notebook, words: list[str]) -> list[dict[str, Any]]:
    """The conversation of a session in OpenAI format, as it is saved: without the runs' keys."""
    messages: list[dict[str, Any]] = hide_in(_session(book, _name(book, words)).session.messages())
    return messages


def show(book: Notebook, words: list[str]) -> None:
    """Show the last run again, or the runs of a session."""
    from ..live import bundle

    results = _session(book, words[0]).session.results if words else [book.last] if book.last else []
    if not results:
        raise Mistake("nothing has run yet")
    for result in results:
        kernel.Cell.here().display(bundle(result))


def save(book: Notebook, words: list[str]) -> None:
    """Write a session's conversation to a file."""
    name, path = _two(words, "save SESSION FILE")
    _say(f"saved {sessions.save(_session(book, name), path)} messages of {name!r} to {path}")


def load(book: Notebook, words: list[str]) -> None:
    """Make a session of a saved conversation."""
    name, path = _two(words, "load SESSION FILE")
    if not Path(path).is_file():
        raise Mistake(f"there is no file {path!r}")
    _begin(book, name, sessions.load(Path(path)))


def resume(book: Notebook, words: list[str]) -> None:
    """Go on with a conversation of a saved notebook or file, in a new kernel."""
    if len(words) not in (1, 2):
        raise Mistake("write: %toolloop resume SESSION [FILE]")
    _begin(book, words[0], sessions.find(words[0], words[1] if len(words) > 1 else None, book.names))


def _begin(book: Notebook, name: str, kept: sessions.Kept) -> None:
    from ...core.session import AsyncSession
    from .sessions import NamedSession

    made = book.new_session(Options(session=name))
    session = AsyncSession(made.config, kept.messages, turns=kept.starts)
    book.sessions[name] = NamedSession(session, kept.made_by)
    if kept.lost:
        _say(
            f"the first {counted(kept.lost, 'turn')} of {name!r}: not in the notebook any more (the output of a cell was "
            "cleared, or the cell deleted); it goes on without, or run the cells again"
        )
    _say(f"session {name!r} goes on with {counted(len(kept.messages), 'message')}")


def export(book: Notebook, words: list[str]) -> None:
    """Write the last run to a file: .md, .html or .json (its messages and events)."""
    from ..transcript import write

    if len(words) != 1:
        raise Mistake("write: %toolloop export FILE.md (or .html, .json)")
    if book.last is None:
        raise Mistake("nothing has run yet")
    _say(f"wrote {write(book.last, words[0])}")


def record(book: Notebook, words: list[str]) -> None:
    """Record every run of the notebook from now on, or no more."""
    if words == ["off"]:
        book.tapes.always = None
        _say("not recording")
        return
    if len(words) != 2 or words[0] != "on":
        raise Mistake("write: %toolloop record on FILE, or %toolloop record off")
    book.tapes.always = Path(words[1]).resolve()
    book.tapes.recorder(None)  # a file that cannot be written is said now
    _say(f"recording every run to {words[1]}")


def replay(book: Notebook, words: list[str]) -> None:
    """Answer every run of the notebook from a recording from now on, or no more."""
    if words == ["off"]:
        book.tapes.playing = None
        _say("not replaying")
        return
    if len(words) != 2 or words[0] != "on":
        raise Mistake("write: %toolloop replay on FILE, or %toolloop replay off")
    calls = len(book.tapes.replay(words[1], loose=False).calls)  # a file that cannot be read is said now
    book.tapes.playing = Path(words[1]).resolve()
    told = (
        f"every run is answered from {words[1]}, which has {calls} model calls; no model and no key is needed"
    )
    _say(told)


def doctor(book: Notebook, words: list[str]) -> Any:
    """What works on this kernel and front-end."""
    from .doctor import run

    return run(book, words)


def _name(book: Notebook, words: list[str]) -> str:
    if words:
        return words[0]
    if book.settings.session:
        return book.settings.session
    if len(book.sessions) == 1:
        return next(iter(book.sessions))
    raise Mistake(
        f"name a session: {', '.join(book.sessions) or 'there is none yet; begin one with --session NAME'}"
    )


def _session(book: Notebook, name: str) -> NamedSession:
    if name not in book.sessions:
        raise Mistake(f"there is no session {name!r}; there are: {', '.join(book.sessions) or 'none'}")
    return book.sessions[name]


def _two(words: list[str], usage: str) -> tuple[str, str]:
    if len(words) != 2:
        raise Mistake(f"write: %toolloop {usage}")
    return words[0], words[1]


_COMMANDS = {
    "reset": reset,
    "history": history,
    "show": show,
    "save": save,
    "load": load,
    "resume": resume,
    "export": export,
    "doctor": doctor,
    "record": record,
    "replay": replay,
}


def names() -> list[str]:
    """The commands of `%toolloop`."""
    return list(_COMMANDS)
