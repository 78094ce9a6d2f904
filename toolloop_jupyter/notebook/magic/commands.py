"""The line magic `%toolloop`: shows and sets defaults, manages sessions, recordings and exports, and has the doctor."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import platform
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...core.conversation import dump
from ...core.events import Host, Mistake, Result
from ...core.execution import attempt_call
from ...core.loop import SPENDING
from ...core.models import explain_missing_bytecode
from ...core.session import AsyncSession
from ...core.text import hide, hide_in, leave_out_user, make_text_plain
from ...core.tools import find_marked_tools, get_tool_name
from .. import kernel, live
from ..html import STYLE, block, inline, table, tell_count
from ..live import Means, cut_bytes, get_last
from ..transcript import Block, make_bundle, render, tell_cost, tell_tokens, write
from .names import find_file, is_source, list_variables, show_key
from .options import (
    COMMANDS,
    OPTIONS,
    Options,
    parse,
    read_value,
    refuse_words,
    replace_keywords,
    split_words,
)
from .sessions import NamedSession, find_conversation

if TYPE_CHECKING:
    from .cell import Notebook


_NOTHING_RAN = "nothing has run yet"


def _say(text: str) -> None:
    """Print the answer of a command. API keys and control sequences are removed, because the answer may repeat typed text."""
    print(hide(make_text_plain(text)))  # noqa: T201


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
        commands = ", ".join(COMMANDS)
        raise Mistake(
            f"%toolloop {words[0]} is not a command; the commands are: {commands}. %toolloop? explains them."
        )
    try:
        inspect.signature(command).bind(book, *words[1:])
    except TypeError:
        raise refuse_words(words[0]) from None
    try:
        return command(book, *words[1:])
    except OSError as error:
        raise Mistake(f"{error.strerror or error}: {error.filename}") from None


def _print_status(book: Notebook) -> None:
    """Print the settings, the tools and the sessions."""
    options = book.settings.complete({})
    marked = [get_tool_name(function) for function in find_marked_tools(book.names)]
    tools = dict.fromkeys(name for word in options["tools"] or marked for name in word.split(",") if name)
    values = {
        **{name: options[name] for name in ("model", "permissions")},
        **{k: ", ".join(v) if isinstance(v, list) else v for k, v in book.settings.list_changed().items()},
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
    parts = [tell_cost(SPENDING.cost), tell_count(SPENDING.runs, "run"), *tell_tokens(SPENDING.usage)]
    if SPENDING.unknown:
        parts.append(f"the cost of {tell_count(SPENDING.unknown, 'run')} is not known in full")
    return " · ".join(parts)


def _measure(session: AsyncSession) -> str:
    """Return "2 turns, 310 tokens". Only turns that ran in this kernel add tokens. Without turns, messages are counted."""
    turns, tokens = tell_count(len(session.starts), "turn"), session.usage.total_tokens
    length = turns if session.starts else tell_count(len(session.messages()), "message")
    return f"{length}, {tell_count(tokens, 'token')}" if session.results else length


def configure(book: Notebook, typed: Options) -> None:
    """Set the `typed` options as the notebook's defaults, and print the settings. If one option is wrong, set none."""
    for option in OPTIONS:
        if option.name in typed and not option.is_setting:
            raise Mistake(f"{option.typed[-1]} belongs on a %%toolloop cell; it cannot be a default")
    if typed:
        book.check(typed)
    for name, value in typed.items():
        setattr(book.settings, name, value)
    _print_status(book)


# --- the commands: each function takes the words that follow its name (`COMMANDS` explains them) -----------


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
    results = [_get_last()] if session is None else _find_session(book, session).session.results
    if not results:
        raise Mistake(_NOTHING_RAN)
    for result in results:
        kernel.Cell.here().display(make_bundle(render(result)))


def _get_last() -> Result:
    """Return the Result of this kernel's last run, by a cell or by the Python API. Raises Mistake if nothing has run."""
    if (result := get_last()) is None:
        raise Mistake(_NOTHING_RAN)
    return result


def _save(book: Notebook, session: str, file: str) -> None:
    named = _find_session(book, session)
    messages = named.session.messages()
    dump(messages, file, turns=named.cells_of_turns())
    _say(f"saved {len(messages)} messages of {session!r} to {file}")


def _load(book: Notebook, session: str, file: str) -> None:
    _resume(book, session, file)


def _resume(book: Notebook, session: str, file: str | None = None) -> None:
    saved = find_conversation(session, file, book.names)
    config = book.new_session({"session": session}).config
    continued = AsyncSession(config, saved.messages, turns=saved.starts)
    book.sessions[session] = NamedSession(continued, saved.cells)
    _say(f"session {session!r} continues with {tell_count(len(saved.messages), 'message')}")


def _export(_: Notebook, file: str) -> None:
    _say(f"wrote {write(_get_last(), file)}")


def _record(book: Notebook, switch: str, file: str = "") -> None:
    book.tapes.record_all(_find_tape("record", switch, file))
    _say(f"recording every run to {file}" if file else "not recording")


def _replay(book: Notebook, switch: str, file: str = "") -> None:
    answer = "not replaying"
    if tape := book.tapes.replay_all(_find_tape("replay", switch, file)):
        answer = f"every run is answered from {file}, which has {len(tape.calls)} model calls; no model and no key is needed"
    _say(answer)


def _find_tape(command: str, switch: str, file: str) -> Path | None:
    """Return the path of FILE for the words `on FILE`; None for `off`. Raises Mistake for other words."""
    if switch != ("on" if file else "off"):
        raise refuse_words(command)
    return find_file(file) if file else None


def _nest(book: Notebook) -> None:
    kernel.nest_loop()
    book.settings.set_trait("nest", True)
    _say("asyncio.run(main()) and loop.run_until_complete(main()) work in cells now, until the kernel ends")


def _pick_session(book: Notebook) -> str:
    if session := book.settings.complete({})["session"]:
        return str(session)
    if len(book.sessions) == 1:
        return next(iter(book.sessions))
    sessions = ", ".join(book.sessions) or "there is none yet; begin one with --session NAME"
    raise Mistake(f"name a session: {sessions}")


def _find_session(book: Notebook, name: str) -> NamedSession:
    if name not in book.sessions:
        raise Mistake(f"there is no session {name!r}; there are: {', '.join(book.sessions) or 'none'}")
    return book.sessions[name]


# --- doctor: test which features work on this kernel and front-end, and show how to make the others work ---------

WAIT = 15.0
"""Without `--wait`, the doctor waits this many seconds for a click; `live.GRACE` seconds if nobody can be asked."""

_PACKAGES = ("litellm", "ipykernel", "IPython", "pydantic")
_INSTEAD = {
    "card": "cards still ask you, with buttons",
    "input": "you decide by typing: y, n REASON, e, a",
    "nobody": "requests for approval are denied",
}
"""How a person can be asked (a value of `live.find_means()`) -> a text that says what happens to approvals."""
_BUTTONS = "approval buttons"
_NOT_WAITING = "not tried: a line magic cannot wait inside this kernel's event loop"
_ASYNCIO_LOOP = "start the kernel on asyncio's own event loop; %%toolloop cells and `await aagent(…)` work on the present loop, too"
_HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
_UNATTENDED = "--on-unattended allow|error decides otherwise"


@dataclass(frozen=True)
class Finding:
    """One row of the doctor's table."""

    what: str
    state: Literal["ok", "bad", "note"]
    says: str
    remedy: str = ""
    """What the person should install, switch on or type; "" if nothing is missing."""


def _doctor(book: Notebook, *words: str) -> None:
    """Examine the kernel, the front-end, and the notebook's sources of tools, and show a table.

    `words` may be `--model MODEL` and `--wait SECONDS`; other words raise Mistake.
    """
    model, wait = _read_words(words)
    cell = kernel.Cell.here()
    click = _try_buttons(cell, book.settings.complete({})["ask"], wait)
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    findings = [
        Finding("versions", "ok", f"Python {platform.python_version()}, {versions}"),
        *_describe_bytecode(),
        *_describe_kernel(click, awaits=book.autoawait),
        click,
        *(Finding(name, *source.examine()) for name, source in _list_sources(book.names)),
    ]
    if model is not None and not kernel.can_run_sync():
        findings.append(Finding("model", "note", f"{model}: {_NOT_WAITING}", _ASYNCIO_LOOP))
    elif model is not None:
        findings.append(kernel.run_sync(lambda: _ask_model(book, model)))
    cell.display(_render(findings))


def _list_sources(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, source) for each source of tools, once. A variable's name comes before a private one, such as `_` or `_5`."""
    private = [name for name in names if attempt_call(is_source, names[name]) is True]
    seen: set[int] = set()
    for name in (*list_variables(names, is_source), *private):
        if id(names[name]) not in seen:
            seen.add(id(names[name]))
            yield name, names[name]


def _read_words(words: Sequence[str]) -> tuple[str | None, float | None]:
    given = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not given.keys() <= {"--model", "-m", "--wait"}:
        raise refuse_words("doctor")
    model, wait = given.get("--model", given.get("-m")), given.get("--wait")
    seconds = None if wait is None else read_value(wait, {})
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        raise Mistake(f"--wait takes a number of seconds above 0, got {wait!r}; write for example: --wait 30")
    return model, seconds


def _describe_bytecode() -> Iterator[Finding]:
    """Yield a finding if LiteLLM's files have no bytecode, and Python cannot write any."""
    if missing := explain_missing_bytecode():
        folder, cause = missing
        says = f"its files have no bytecode, so each kernel compiles them anew, for some seconds: {cause}"
        remedy = f"python -m compileall -q {shlex.quote(str(folder))}"
        yield Finding("LiteLLM's import", "bad", says, remedy)


def _describe_kernel(click: Finding, *, awaits: bool) -> Iterator[Finding]:
    """Yield the findings about the kernel. `click` is the finding that `_try_buttons` has returned."""
    if awaits:
        yield Finding(
            "awaited cells", "ok", "%autoawait is on: a %%toolloop cell is awaited, as in `await …`"
        )
    else:
        says = "%autoawait is off: a %%toolloop cell runs as a plain call, and `await aagent(…)` is an error"
        yield Finding("awaited cells", "note", says, "%autoawait on")
    if not kernel.is_in_kernel():
        yield Finding("kernel", "note", "none: this is IPython in a terminal")
        if kernel.ignores_ctrl_c():
            says = "this process was started to ignore Ctrl-C: it does not end an awaited run"
            yield Finding("Ctrl-C", "bad", says, _HEED_CTRL_C)
        return
    clicks = "clicks while a cell waits"
    if click.state == "ok":
        yield Finding(clicks, "ok", "tried: your click came")
    elif kernel.delivers_clicks():
        yield Finding(clicks, "note", "this ipykernel delivers them; no click came to try it")
    else:
        says = "this ipykernel delivers them over subshells only; no click came to try it"
        yield Finding(clicks, "bad", says, "pip install 'ipykernel>=7.4'")
    if kernel.has_stdin():
        yield Finding("keyboard (stdin)", "ok", "the front-end says that it can be asked by input()")
    else:
        says = "the front-end says that it answers no input() (as an unattended run does)"
        yield Finding("keyboard (stdin)", "note", says)


def _try_buttons(cell: kernel.Cell, wish: Means, wait: float | None) -> Finding:
    """Show a button if buttons may work here, and wait for a click. Else the finding says why no button is shown."""
    means = live.find_means(wish)
    instead = _INSTEAD[means]
    if not kernel.is_in_kernel():
        return Finding(_BUTTONS, "note", f"a terminal shows none; {instead}")
    if not kernel.has_widgets():
        says = f"there are none without ipywidgets; {instead}"
        return Finding(_BUTTONS, "bad", says, "pip install 'ipywidgets>=7.7.1'")
    if means == "input" and wish == "input":
        says = f"not tried: ToolLoop.ask is 'input'; {instead}"
        return Finding(_BUTTONS, "note", says, "%config ToolLoop.ask = 'auto'")
    if not live.may_have_buttons():
        return Finding(_BUTTONS, "note", f"not tried: a program runs this notebook; {instead}", _UNATTENDED)
    if not kernel.can_run_sync():
        return Finding(_BUTTONS, "note", _NOT_WAITING, _ASYNCIO_LOOP)
    seconds = wait or (live.GRACE if means == "nobody" else WAIT)
    return kernel.run_sync(lambda: _wait_for_click(cell, seconds, means))


async def _wait_for_click(cell: kernel.Cell, wait: float, means: str) -> Finding:
    """Show a button, and wait for a click. Only a click proves that the front-end sends clicks: it never says so itself."""
    from ..widgets import ClickTest

    loop, clicked = asyncio.get_running_loop(), asyncio.Event()
    card = ClickTest(wait, lambda: loop.call_soon_threadsafe(clicked.set))
    identity = "toolloop-doctor"
    text = f"Click the button within {wait:g} seconds."
    cell.display({"text/plain": text, **card.make_reference()}, display_id=identity)
    began = loop.time()
    try:
        await asyncio.wait_for(clicked.wait(), wait)
    except asyncio.CancelledError:
        return Finding(_BUTTONS, "note", "not tried: stopped by you before a click")
    except asyncio.TimeoutError:
        says = f"nobody clicked within {wait:g} s"
        if means == "nobody":
            says += f", and there is no other way to ask; {_INSTEAD[means]}"
            return Finding(_BUTTONS, "note", says, _UNATTENDED)
        remedy = "if you did click: %config ToolLoop.ask = 'input' asks by typing instead"
        return Finding(_BUTTONS, "bad", f"{says}, or the click did not reach the kernel", remedy)
    finally:
        card.finish()
        cell.update(live.EMPTY, identity)
    live.note_click()
    took = loop.time() - began
    return Finding(_BUTTONS, "ok", f"your click reached the kernel ({took:.1f} s after the button was shown)")


async def _ask_model(book: Notebook, model: str) -> Finding:
    """Send one short prompt to the model. Return the finding: the model answers, or why it does not."""
    try:
        session = book.new_session({"model": model, "tools": [], "permissions": "full", "timeout": 30.0})
    except ValueError as error:
        return Finding("model", "bad", f"{model}: {error}")
    # With a plain Host, `%toolloop show` skips this run.
    session.configure(dataclasses.replace(session.config, host=Host()))
    try:
        async with kernel.serving_clicks():
            result = await session.arun("Answer with one word: ready")
    except asyncio.CancelledError:
        return Finding("model", "note", f"{model}: you stopped the test before the model had answered")
    if result.stop_reason == "done":
        return Finding("model", "ok", f"{model} answers")
    says = f"{model}: {replace_keywords(result.error or result.stop_reason)}"
    return Finding("model", "bad", says, "correct what this line names, then run %toolloop doctor again")


_MARKS = {"ok": "✓", "bad": "✗", "note": "·"}


def _render(findings: list[Finding]) -> dict[str, str]:
    rows, lines = [], []
    for one in findings:
        mark = _MARKS[one.state]
        remedy = f"<br><code>→ {inline(one.remedy)}</code>" if one.remedy else ""
        name = f'<span class="tlj-{one.state}">{mark}</span> <b>{inline(one.what)}</b>'
        rows.append((name, f"{inline(one.says)}{remedy}"))
        lines.append(
            f"{mark} {one.what:<26} {make_text_plain(one.says)}{f' → {one.remedy}' if one.remedy else ''}"
        )
    return make_bundle(Block(STYLE + block("tlj-doctor", table(rows)), "\n".join(lines)))


_FUNCTIONS: dict[str, Callable[..., object]] = {
    function.__name__.lstrip("_"): function
    for function in (_reset, history, _show, _doctor, _save, _load, _resume, _export, _record, _replay, _nest)
}
"""The name of each command -> its function."""
