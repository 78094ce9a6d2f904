"""Register `%%toolloop` and `%toolloop` with a shell, and find the `%%toolloop` cells.

An input transformer rewrites a `%%toolloop` cell into one `await`. So no event loop runs inside another, and Run All runs the
cells in order. We also register a cell magic, for `run_cell_magic` and for cells inside `%%time`. This magic waits in
`kernel.run_sync`, because IPython does not await a magic that is a coroutine function (seen on 7.34 to 9.18).

Loading the extension imports neither pydantic nor litellm. The first cell that needs them imports them.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...core.events import OWN_MODELS, Mistake, Result, Rows, RunFailed
from ...core.execution import attempt_call
from ...core.models import is_litellm_loaded, leave_out_price_list, must_load, start_loading
from ...core.text import keep_times
from .. import kernel
from .options import ToolLoop, list_commands, list_options, parse, replace_keywords

if TYPE_CHECKING:
    from .cell import Notebook


_CALL = "await __import__('toolloop_jupyter.notebook.magic', fromlist=['run_cell']).run_cell({line!r}, {body!r})\n"
_HINT = "raise __import__('toolloop_jupyter.core.events', fromlist=['Mistake']).Mistake({hint!r})\n"

CELL_HELP = """Run a tool loop: the cell's text is the prompt, the notebook's functions are the tools.

    %%toolloop --tools search_code read_file --permissions ask --as review
    Review the changes in this repository.

    %%toolloop --model openai/gpt-5.4-mini --output Book --session library
    Which book should I read after {{title}}?

    %%toolloop --tools search_code --step
    Where are retries handled?

    %%toolloop --each reviews --output Label --as labelled --store labels.jsonl
    Classify this review of {{product}}: {{text}}

The text goes to the model unchanged. {{title}} becomes the text of the notebook's variable
title; this is also true for --instructions and --set. {{figure}} in the prompt is sent as a
picture. {{Err}} is the last error that the notebook has shown.
The Result goes into the variable of --as, and is the cell's value: review.text,
review.output, review.tool_results. `%toolloop?` is about defaults and sessions.

"""
LINE_HELP = """Show and set the notebook's defaults for %%toolloop.

    %toolloop                                          what is set, the tools and the sessions
    %toolloop --model openai/gpt-5.4-mini --tools search_code
"""


# --- finding our cells ----------------------------------------------------------------------------------------

_CELL = re.compile(r"(?:[^\S\n]*\n)*[^\S\n]*%%toolloop(?P<line>[^\S\n][^\n]*)?(?:\n|\Z)")
_SINGLE = re.compile(r"\s*%toolloop(?![\w%?])[^\n]*\n(?P<rest>.*)", re.DOTALL)
_DOUBLE = re.compile(r"^[ \t]*%%toolloop(?![\w%?])", re.MULTILINE)


def split_cell(text: str) -> tuple[str, str] | None:
    """Return (option line, body) of a `%%toolloop` cell as typed. Return None for other cells, and for `%%toolloop?`."""
    cell = _CELL.match(text)
    if cell is None:
        return None
    return (cell["line"] or "").strip(), _read_body(text[cell.end() :])


def _read_body(body: str) -> str:
    """Return the body without a single newline at its end: IPython adds one to each cell that does not end with a newline.

    So a person's own single newline is removed, too. Two newlines stay, and so does a newline after a carriage return.
    """
    return body if body.endswith(("\n\n", "\r\n")) else body.removesuffix("\n")


def explain_misplaced(text: str) -> str | None:
    """Return a hint for `%toolloop` with a prompt, or `%%toolloop` below line 1; else None. IPython's message does not help."""
    if "%toolloop" not in text or text.lstrip().startswith("%%"):
        return None
    single = _SINGLE.match(text)
    if single is not None and single["rest"].strip() and not _is_python(single["rest"]):
        return "%toolloop takes no prompt; with two percent signs, %%toolloop, the lines below are the prompt"
    double = _DOUBLE.search(text)
    if double is not None and _is_python(text[: double.start()]):
        return "%%toolloop must be the first line of its cell; put the lines above it into another cell"
    return None


def _is_python(code: str) -> bool:
    """Return whether `code` is complete Python code. Magics are allowed. Code that ends inside a string is not complete."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager: Any = TransformerManager  # IPython has no types for it before version 9
    try:
        ast.parse(manager().transform_cell(code))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _transform(lines: list[str]) -> list[str]:
    """Rewrite a `%%toolloop` cell into one `await`. A misplaced one raises an error with a hint. Other cells stay.

    IPython calls this transformer before all others, so the prompt is still as typed.
    """
    text = "".join(lines)
    parts = split_cell(text)
    if parts is None:
        hint = explain_misplaced(text)
        return lines if hint is None else [_HINT.format(hint=hint)]
    if _cannot_await():
        return lines  # IPython then calls the registered cell magic
    return [_CALL.format(line=parts[0], body=parts[1])]


# In a terminal, IPython checks after each line whether the cell is complete. This check skips transformers with
# `has_side_effects` (7.34 to 9.18). If it called ours, a cell would be complete before the person can type a prompt.
_transform.has_side_effects = True  # type: ignore[attr-defined]


def _cannot_await() -> bool:
    """Return whether the code of this cell cannot use `await`.

    That is so inside another cell magic (`%%time`), after `%autoawait off`, and in a cell that `shell.run_cell` runs while
    another cell is running (`%run notebook.ipynb`).
    """
    from IPython.core.interactiveshell import InteractiveShell

    if _loaded and not _loaded[0].shell.autoawait:
        return True
    nested = {InteractiveShell.run_cell_magic.__code__}
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - documented; get_running_loop() raises without a loop
        nested.add(InteractiveShell.run_cell.__code__)  # `run_cell` would start the loop, which runs already
    here: FrameType | None = sys._getframe(1)  # noqa: SLF001 - no public function does it
    while here is not None:
        if here.f_code in nested:
            return True
        here = here.f_back
    return False


# --- running a cell or a line ---------------------------------------------------------------------------------


async def run_cell(line: str, body: str) -> Result | Rows | None:
    """Run one `%%toolloop` cell. Return its Result; with `--each`, its Rows; for a dry run, None.

    Raises Mistake, or another one-line error, if the cell is wrong; OutputInvalid or RunFailed if the run failed.
    """
    book = _find_extension().book
    result = await book.run(parse(line, book.names), body)
    if isinstance(result, Result) and result.stop_reason == "runtime_error":
        raise RunFailed(replace_keywords(result.error or "the run failed"), result)
    return result


def _run_cell_magic(line: str, cell: str) -> object:
    instead = "run %%toolloop in a separate cell, not inside another magic, and with %autoawait on"
    return kernel.run_sync(lambda: run_cell(line, _read_body(cell)), instead=instead)


def _run_line_magic(line: str) -> object:
    from . import commands

    return commands.run(_find_extension().book, line)


# --- asyncio.run() in a cell -----------------------------------------------------------------------------------

_ASYNC_CALL = re.compile(r"\b(aagent|arun|aagent_session|show)\(")
"""Matches a call of one of our async functions. A person may have written it inside `asyncio.run(…)`."""
_RUNNING_ALREADY = (
    "asyncio.run() cannot be called from a running event loop",
    "This event loop is already running",
    "Cannot run the event loop while another loop is running",
)
"""asyncio's messages (Python 3.10 to 3.14) for `asyncio.run` or `run_until_complete` while an event loop is running."""


def _explain_running_loop(result: Any) -> None:
    """If a cell has failed because the kernel's event loop is running already, print what to write instead."""
    error = result.error_in_exec
    if not isinstance(error, RuntimeError) or not str(error).startswith(_RUNNING_ALREADY):
        return
    if not kernel.is_in_kernel() or kernel.is_nested():
        return
    instead = "write `await main()` instead, or run `%toolloop nest` first."
    if _ASYNC_CALL.search(str(getattr(result.info, "raw_cell", "") or "")):
        instead = "write `await aagent(…)`, or call agent(…), which waits by itself."
    sys.stderr.write(f"toolloop: a notebook's event loop is running already: {instead}\n")


# --- registering ----------------------------------------------------------------------------------------------

_MAGICS = ("%%toolloop", "%toolloop")


class _Extension:
    """Registers our magics, settings and completions with one shell, and notes how to undo each registration."""

    def __init__(self, shell: Any) -> None:
        from IPython.core.magic import no_var_expand

        self.shell = shell
        self.settings = ToolLoop(parent=shell)
        self.undo = contextlib.ExitStack()
        self._follow("times", lambda keep: keep_times(keep=keep))
        self._follow("budget", _limit_cost)
        self.undo.callback(setattr, self.settings, "budget", None)
        self._follow("nest", self._nest)
        shell.configurables.append(self.settings)
        self.undo.callback(shell.configurables.remove, self.settings)
        shell.input_transformers_cleanup.insert(0, _transform)
        self.undo.callback(shell.input_transformers_cleanup.remove, _transform)
        _run_cell_magic.__doc__, _run_line_magic.__doc__ = (
            CELL_HELP + list_options(),
            LINE_HELP + list_commands(),
        )
        for kind, magic in (("cell", _run_cell_magic), ("line", _run_line_magic)):
            # IPython must not expand $name and {…} on the line: an API key could get into a prompt.
            shell.register_magic_function(no_var_expand(magic), kind, "toolloop")
            self.undo.callback(shell.magics_manager.magics[kind].pop, "toolloop", None)
        self._offer_completions()
        self._listen("post_run_cell", self._import_litellm)
        self._listen("post_run_cell", _explain_running_loop)

    @functools.cached_property
    def book(self) -> Notebook:
        """The state of `%%toolloop` in this kernel. Made late, because it needs pydantic."""
        from .cell import Notebook

        return Notebook(self.shell, self.settings)

    def _listen(self, event: str, callback: Callable[..., None]) -> None:
        self.shell.events.register(event, callback)
        self.undo.callback(self.shell.events.unregister, event, callback)

    def _follow(self, setting: str, apply: Callable[[Any], None]) -> None:
        """Call `apply` with each new value of the setting; call it at once if a configuration file has set a value."""

        def changed(*_: object) -> None:
            apply(getattr(self.settings, setting))

        self.settings.observe(changed, setting)
        self.undo.callback(self.settings.unobserve, changed, setting)
        if setting in self.settings.list_changed():
            changed()

    def _import_litellm(self, *_: object) -> None:
        """After a cell, begin to import litellm in the background if the default model needs it: no run then waits for it.

        A default model of one word, such as "o3", may be a variable with a model that is Python code. So only a run imports.
        """
        model = self.settings.complete({})["model"]
        # `must_load` does not know our models before `teaching` is imported.
        ours = model.isidentifier() or model.startswith(OWN_MODELS)
        if not ours and not is_litellm_loaded() and must_load(model):
            start_loading()

    def _nest(self, wanted: bool) -> None:  # noqa: FBT001 - `_follow` passes it by position
        """Apply a new value of the setting `nest`. True lasts until the kernel ends: a later False raises Mistake."""
        if not _loaded:
            # A configuration file has set it. Terminals read this file, too, and the kernel may have no loop yet. If it has one
            # (`%load_ext` in a cell), the rest of the cell can call `asyncio.run`. If this fails, the next cell says why.
            attempt_call(kernel.nest_loop)
            self._listen(
                "pre_run_cell",
                lambda *_: self._nest(kernel.is_in_kernel() and "nest" in self.settings.list_changed()),
            )
        elif not wanted and kernel.is_nested():
            self.settings.set_trait("nest", True)
            raise Mistake("nest lasts until the kernel ends; to switch it off, restart the kernel")
        elif wanted:
            try:
                kernel.nest_loop()
            except Mistake:
                self.settings.set_trait("nest", False)
                raise

    def _offer_completions(self) -> None:
        """Register Tab completions for lines that begin with `%%toolloop` or `%toolloop`.

        On IPython 8.6 and later, register a matcher. It gives each completion a type, and suppresses Python's completions. On
        older versions, register a custom completer. Jedi's completions then appear, too.
        """
        from IPython.core import completer

        def find(line: str, word: str) -> dict[str, str]:
            from .names import find_candidates

            return find_candidates(line.lstrip(), word, self.book.names, self.book.sessions)

        module: Any = completer  # IPython has `context_matcher` since 8.6
        if not hasattr(module, "context_matcher"):

            def complete(_: object, event: Any) -> list[str]:
                return list(find(event.line[: len(event.text_until_cursor)], event.symbol))

            for word in _MAGICS:
                self.shell.set_hook("complete_command", complete, str_key=word)
                self.undo.callback(self.shell.strdispatchers["complete_command"].strs.pop, word, None)
            return

        @module.context_matcher(identifier="toolloop")  # type: ignore[untyped-decorator]
        def match(context: Any) -> Any:
            if not context.text_until_cursor.lstrip().startswith(_MAGICS):
                return {"completions": []}
            # If a matcher returns no completions, IPython shows the completions of other matchers. To prevent this, return
            # the typed word.
            completions = find(context.text_until_cursor, context.token) or {context.token: "value"}
            offered = [module.SimpleCompletion(text=text, type=kind) for text, kind in completions.items()]
            return {"completions": offered, "suppress": True, "ordered": True}

        self.shell.Completer.custom_matchers.append(match)
        self.undo.callback(self.shell.Completer.custom_matchers.remove, match)


def _limit_cost(budget: float | None) -> None:
    from ...core.loop import SPENDING

    SPENDING.limit(budget)


_loaded: list[_Extension] = []
"""[the extension of this process's shell]; [] if it is not loaded."""


def _find_extension() -> _Extension:
    if not _loaded:
        raise Mistake("the extension is not loaded; run: %load_ext toolloop_jupyter")
    return _loaded[0]


def load_extension(shell: Any) -> None:
    """Register the magics, the transformer and the settings with `shell`. A second call changes nothing."""
    if not _loaded:
        leave_out_price_list()
        _loaded.append(_Extension(shell))
        kernel.watch_cells()


def unload_extension(_shell: object) -> None:
    """Undo what `load_extension` has registered. If nothing is registered, do nothing."""
    if _loaded:
        _loaded.pop().undo.close()
        kernel.unwatch_cells()
