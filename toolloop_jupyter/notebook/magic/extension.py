"""`%%toolloop` and `%toolloop`.

`%%toolloop` is an async cell: an input transformer rewrites the cell into one `await`, so nothing is nested and Run
All keeps its order (IPython does not await magics that are coroutine functions: seen on 7.34 to 9.18). The magic that
is registered as well serves `run_cell_magic` and cells within `%%time`, through `kernel.run_sync`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

from ...core.events import Mistake, RunFailed
from ...core.models import litellm_loaded, must_load, start_loading, was_one_asked
from .. import kernel
from . import assist, commands, options
from .cell import as_typed, split_cell
from .options import ToolLoop, help_text, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...core.events import Result
    from .cell import Notebook


_CALL = "await __import__('toolloop_jupyter.notebook.magic', fromlist=['run_cell']).run_cell({line!r}, {body!r})\n"
_HINT = "raise __import__('toolloop_jupyter.core.events', fromlist=['Mistake']).Mistake({hint!r})\n"

CELL_HELP = """Run a tool loop: the cell's text is the prompt, the notebook's functions are the tools.

    %%toolloop --tools search_code read_file --permissions ask --as review
    Review the changes in this repository.

    %%toolloop --model openai/gpt-4o-mini --output Book --session library
    Which book should I read after {{title}}?

    %%toolloop --tools search_code --step
    Where are retries handled?

The text goes to the model as it stands; {{title}} becomes the text of that notebook variable. Without --model, the offline
demonstration model answers. The Result goes into the variable of --as, and is the cell's value: review.text,
review.output, review.tool_results. `%toolloop?` is about defaults and sessions.

"""
LINE_HELP = """Show and set the notebook's defaults for %%toolloop.

    %toolloop                                    what is set, the tools and the sessions
    %toolloop --model openai/gpt-4o-mini --tools search_code
    %toolloop reset [SESSION]                    forget the defaults and all sessions, or one session
    %toolloop history [SESSION]                  the conversation in OpenAI format
    %toolloop show [SESSION]                     the last run (of that session) again
    %toolloop doctor [--model MODEL]             what works on this kernel and front-end
    %toolloop save|load SESSION FILE             write or read a conversation
    %toolloop resume SESSION [FILE]              go on after a kernel restart
    %toolloop export FILE.md|html|json           the last run as a file
    %toolloop record on FILE | off               record every run of the notebook
    %toolloop replay on FILE | off               answer every run from a recording: no network, no key
"""

_state: dict[str, Any] = {}
"""What `load` has put into the shell, to take it out again: "notebook", "transform"."""


def notebook() -> Notebook:
    """The state of `%%toolloop` in this kernel. Raises Mistake when the extension is not loaded."""
    found: Notebook | None = _state.get("notebook")
    if found is None:
        raise Mistake("the extension is not loaded; run: %load_ext toolloop_jupyter")
    return found


async def run_cell(line: str, body: str) -> Result | None:
    """Run one `%%toolloop` cell; None for a dry run. Raises one-line errors for mistakes, OutputInvalid and RunFailed for failed runs."""
    book = notebook()
    result = await book.run(parse(line), body)
    if result is not None and result.stop_reason == "runtime_error":
        raise RunFailed(result.error or "the run failed", result)
    return result


def _transform(lines: list[str]) -> list[str]:
    """Rewrite a `%%toolloop` cell into one `await`. Comes first of all transformers: the prompt is left as typed."""
    text = "".join(lines)
    found = split_cell(text)
    if found is None:
        hint = options.misplaced(text)
        return lines if hint is None else [_HINT.format(hint=hint)]
    if _cannot_await():
        return lines  # the registered magic runs it
    return [_CALL.format(line=found[0], body=found[1])]


# IPython (7.34 to 9.18) skips transformers with this mark when it asks whether a cell is complete: in a terminal the
# rewritten cell would count as complete after its first line, before there is a prompt.
_transform.has_side_effects = True  # type: ignore[attr-defined]


def _cannot_await() -> bool:
    """Whether the cell's code cannot await: the inside of another cell magic (`%%time`), a cell that `shell.run_cell`
    runs within a running cell (`%run notebook.ipynb`), and any cell after `%autoawait off`.
    """
    from IPython.core.interactiveshell import InteractiveShell

    if "notebook" in _state and not notebook().autoawait:
        return True
    nested = {InteractiveShell.run_cell_magic.__code__}
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - documented for such use; get_running_loop() raises
        nested.add(InteractiveShell.run_cell.__code__)  # it would start the loop again
    here: Any = sys._getframe(1)  # noqa: SLF001 - the documented-enough way
    while here is not None:
        if here.f_code in nested:
            return True
        here = here.f_back
    return False


def _cell_magic(line: str, cell: str) -> Any:
    instead = "run %%toolloop as a cell of its own, not within another magic, and with %autoawait on"
    return kernel.run_sync(lambda: run_cell(line, as_typed(cell)), instead=instead)


def _line_magic(line: str) -> Any:
    return commands.run(notebook(), line)


def _no_expansion(function: Callable[..., Any], doc: str) -> Callable[..., Any]:
    """Mark a magic: its line is taken as typed ($name and {…} are not expanded: a key could get into a prompt)."""
    from IPython.core.magic import no_var_expand

    function.__doc__ = doc
    marked: Callable[..., Any] = no_var_expand(function)
    return marked


class _Warmup:
    """Imports litellm in the background, before a run has to wait for it.

    As soon as a default names a model that needs it; else when the kernel has been idle for `IDLE` seconds, and not at all
    when a model of ours was asked by then: a lesson stays small. Later runs with other models start the import themselves.
    """

    IDLE = 1.0

    def __init__(self, shell: Any, settings: ToolLoop) -> None:
        self._shell, self._settings = shell, settings
        self._timer: threading.Timer | None = None
        self._events = {"pre_run_cell": self._before_cell, "post_run_cell": self._after_cell}
        for event, callback in self._events.items():
            shell.events.register(event, callback)
        settings.observe(self._default_changed, "model")

    def cancel(self) -> None:
        """Start nothing any more."""
        self._settings.unobserve(self._default_changed, "model")
        self._wait_no_more()

    def _wait_no_more(self) -> None:
        self._before_cell()
        for event, callback in self._events.items():
            if callback in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, callback)

    def _before_cell(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _after_cell(self, *_: object) -> None:
        self._before_cell()
        if litellm_loaded() or was_one_asked():
            self._wait_no_more()
        elif _needs_litellm(self._settings.default_model()):
            start_loading()
        else:
            self._timer = threading.Timer(self.IDLE, start_loading)
            self._timer.daemon = True
            self._timer.start()

    def _default_changed(self, change: Mapping[str, Any]) -> None:
        if _needs_litellm(change["new"]):
            start_loading()


def _needs_litellm(model: str) -> bool:
    """Whether a default waits for litellm; a bare word may be the variable of a ScriptedModel. Does not load what models of ours are."""
    ours = model.isidentifier() or model.startswith("toolloop/")
    return bool(model) and not ours and must_load(model)


def load_extension(shell: Any) -> None:
    """Register the magics, the transformer and the settings with `shell`; loading twice changes nothing."""
    if "notebook" in _state:
        return
    from .cell import Notebook

    settings = ToolLoop(parent=shell)
    if settings not in shell.configurables:
        shell.configurables.append(settings)
    shell.input_transformers_cleanup.insert(0, _transform)
    shell.register_magic_function(_no_expansion(_cell_magic, CELL_HELP + help_text()), "cell", "toolloop")
    shell.register_magic_function(_no_expansion(_line_magic, LINE_HELP), "line", "toolloop")
    warmup = _Warmup(shell, settings)
    kernel.watch_cells()
    book = Notebook(shell, settings)
    _state.update(notebook=book, settings=settings, warmup=warmup, complete=assist.register(shell, book))


def unload_extension(shell: Any) -> None:
    """Take everything back out of `shell`."""
    if "notebook" not in _state:
        return
    shell.input_transformers_cleanup.remove(_transform)
    for kind in ("cell", "line"):
        shell.magics_manager.magics[kind].pop("toolloop", None)
    shell.configurables.remove(_state["settings"])
    _state["warmup"].cancel()
    _state["complete"]()
    kernel.unwatch_cells()
    _state.clear()
