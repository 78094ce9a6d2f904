"""What one `%%toolloop` cell does: options and defaults -> a session's turn -> its view and its Result."""

from __future__ import annotations

import dataclasses
import difflib
import keyword
import os
import re
import weakref
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import HarnessError, OutputInvalid
from ..core.events import Result
from . import kernel, presenting
from .options import Mistake, Options, pairs
from .prompt import fill_in
from .settings import ToolLoop
from .tapes import Tapes


@dataclass
class NamedSession:
    """A conversation that cells go on with, and which cell made which turn of it."""

    session: Any
    cells: list[str | None] = field(default_factory=list)


class Notebook:
    """The state of `%%toolloop` in one kernel: settings, sessions, the last run."""

    def __init__(self, shell: Any, settings: ToolLoop) -> None:
        self._shell = weakref.proxy(shell)
        self.settings = settings
        self.sessions: dict[str, NamedSession] = {}
        self.last: Result | None = None
        self.tapes = Tapes()
        self._told: set[str] = set()
        """Tools of which the person knows already that they have no docstring."""

    @property
    def names(self) -> dict[str, Any]:
        """The notebook's variables."""
        names: dict[str, Any] = self._shell.user_ns
        return names

    # --- what the option line names -----------------------------------------------------------------------------

    def functions(self, wanted: list[str] | None) -> list[Any]:
        """The tools by their names in the notebook; without names, every function marked with @tool.

        Raises Mistake, with the nearest name, for one that does not exist.
        """
        from ..core.tools import marked_tools

        if wanted is None:
            return marked_tools(self.names)
        return [self.lookup(name.strip(","), "tool", callable) for name in wanted if name.strip(",")]

    def lookup(self, dotted: str, what: str, fits: Any = lambda _: True) -> Any:
        """The object behind a (dotted) name of the notebook. Raises Mistake when there is none."""
        first, *rest = dotted.split(".")
        if first not in self.names:
            raise Mistake(f"there is no {what} {dotted!r} in this notebook{self._near(dotted, fits)}")
        found = self.names[first]
        for part in rest:
            if not hasattr(found, part):
                raise Mistake(f"there is no {what} {dotted!r}: {type(found).__name__} has no {part!r}")
            found = getattr(found, part)
        if not fits(found):
            raise Mistake(f"{dotted!r} is a {type(found).__name__}, not a {what}")
        return found

    def _near(self, name: str, fits: Any) -> str:
        candidates = [n for n, v in self.names.items() if not n.startswith("_") and fits(v)]
        near = difflib.get_close_matches(name, candidates, n=1)
        return f"; did you mean {near[0]!r}?" if near else "; run the cell that defines it first"

    def key(self, name: str | None) -> str | None:
        """The key behind the *name* of an environment or notebook variable.

        Raises Mistake for a name that is not set, and for a literal key (which is not repeated in the message).
        """
        if not name:
            return None
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or (
            name not in os.environ and name not in self.names and _looks_secret(name)
        ):
            raise Mistake(
                "--api-key takes the NAME of a variable, not the key: a key typed here would be saved with the notebook. "
                "Set an environment variable and name it, for example --api-key OPENAI_API_KEY"
            )
        value = os.environ.get(name) or self.names.get(name)
        if not value:
            raise Mistake(f"--api-key {name}: no such environment or notebook variable, or it is empty")
        return str(value)

    def _model(self, name: str) -> Any:
        """A ScriptedModel of the notebook by its variable, else LiteLLM's name."""
        found = self.names.get(name) if name.isidentifier() else None
        return found if hasattr(found, "toolloop_model") else name

    def _policy(self, name: str) -> Any:
        return name if name in ("full", "ask") else self.lookup(name, "permissions policy")

    # --- one run ------------------------------------------------------------------------------------------------

    def keywords(self, options: Options) -> dict[str, Any]:
        """The keywords of `aagent_session` for a cell: its options over the notebook's defaults."""
        from ..core.config import ToolLoopOptions

        defaults = self.settings
        output = options.output or defaults.output
        tools = options.tools if options.tools is not None else (list(defaults.tools) or None)
        sandbox = options.sandbox or defaults.sandbox
        limits: dict[str, Any] = {
            name: getattr(options, name)
            for name in ("max_model_calls", "max_cost", "on_limit")
            if getattr(options, name) is not None
        }
        return {
            "model": self._model(options.model or defaults.default_model()),
            "tools": self.functions(None if tools is None else list(tools)),
            "permissions": self._policy(options.permissions or defaults.permissions),
            "output": self.lookup(output, "output model") if output else None,
            "instructions": options.instructions or defaults.instructions or None,
            "max_turns": options.max_turns or defaults.max_turns,
            "timeout": options.timeout or defaults.timeout,
            "sandbox": sandbox or None,
            "api_base": options.api_base or defaults.api_base or None,
            "api_key": self.key(options.api_key or defaults.api_key),
            "metadata": pairs(options.metadata, "--metadata"),
            "options": ToolLoopOptions(pairs(options.set, "--set"), **limits),
        }

    async def run(self, options: Options, body: str) -> Result | None:
        """Run a cell: check everything, then run and show. Raises before anything is shown for a mistake.

        A dry run gives None.
        """
        cell = kernel.Cell.here()
        prompt = fill_in(body, self.names)
        if not prompt.strip():
            raise Mistake("the prompt is empty; write below the %%toolloop line what the model should do")
        if options.name is not None and (not options.name.isidentifier() or keyword.iskeyword(options.name)):
            raise Mistake(f"--as {options.name!r} is not a variable name")
        named = self._session(options, cell.cell_id)
        if options.dry_run:
            await self._dry_run(named, prompt, cell)
            return None
        note = self._rewind(named, cell.cell_id, append=options.append) if self._name(options) else None
        async with kernel.attending():
            return await kernel.uninterrupted(self._turn(options, named, prompt, cell, note))

    async def _dry_run(self, named: NamedSession, prompt: str, cell: kernel.Cell) -> None:
        from .stepping import request_block
        from .transcript import mimebundle

        request = await named.session.preview(prompt)
        cell.display(mimebundle([request_block(request, sent=False)]))

    def _name(self, options: Options) -> str | None:
        """The session that the cell belongs to, or None."""
        return options.session or self.settings.session or None

    def new_session(self, options: Options, cell_id: str | None = None) -> Any:
        """A fresh AsyncSession with these options over the defaults."""
        from ..api import aagent_session
        from ..core.config import Harness

        keywords = self.keywords(options)
        if options.replay:
            keywords["model"] = self.tapes.replay(options.replay, cell_id, loose=options.replay_loose)
        try:
            return aagent_session(Harness.TOOL_LOOP, **keywords)
        except (ValueError, TypeError) as error:
            if isinstance(error, HarnessError):  # has one line already
                raise
            raise Mistake(str(error)) from None

    def _session(self, options: Options, cell_id: str | None) -> NamedSession:
        made = self.new_session(options, cell_id)
        name = self._name(options)
        if name is None:
            return NamedSession(made)
        named = self.sessions.setdefault(name, NamedSession(made))
        if named.session.busy:
            raise Mistake(f"session {name!r} is running a turn; wait for it or stop it")
        named.session.config = made.config
        return named

    def _rewind(self, named: NamedSession, cell_id: str | None, *, append: bool) -> str | None:
        """Running a cell again replaces its turn (and those after it); returns what to tell the person."""
        turns = len(named.session.results)
        if append or cell_id is None or cell_id not in named.cells:
            named.cells = [*named.cells[:turns], cell_id]
            return None
        turn = named.cells.index(cell_id)
        named.session.rewind(turn)
        named.cells = [*named.cells[:turn], cell_id]
        return f"this cell's turn ran before: the conversation went back to before it ({turns - turn} replaced); --append adds instead"

    async def _turn(
        self, options: Options, named: NamedSession, prompt: str, cell: kernel.Cell, note: str | None
    ) -> Result:
        from .live import follow
        from .transcript import mimebundle, notice

        session = named.session
        config, stream = session.config, session.astream(prompt)
        view = self._view(options, named, cell, stream.cancel)
        # The view asks by itself, as it reads the stream: so nothing is shown out of order.
        session.config = dataclasses.replace(config, observer=view, on_approval=None)
        for line in (note, self._without_docstring(config.tools)):
            if line:
                cell.display(mimebundle([notice(line)]))
        try:
            result = await follow(stream, view, stream.cancel)
        except OutputInvalid as error:
            self._keep(error.result, options.name)
            raise
        finally:
            session.config = config
        self._keep(result, options.name)
        return result

    def _view(self, options: Options, named: NamedSession, cell: kernel.Cell, stop: Any) -> Any:
        from . import resuming
        from .live import View
        from .stepping import Stepper
        from .transcript import head

        config = named.session.config
        top = head(
            getattr(config.route.answers, "recorded_model", None) or config.route.model,
            [tool.name for tool in config.tools],
            options.permissions or self.settings.permissions,
            config.output.name if config.output else None,
            session=self._name(options),
        )
        view = View(
            cell,
            top,
            name=options.name,
            stop=stop,
            unattended=options.on_unattended or self.settings.on_unattended,  # type: ignore[arg-type]  # its choices
            wish=self.settings.ask,  # type: ignore[arg-type]  # its choices
        )
        if options.step:
            view.stepper = Stepper(view)
        if recorder := self.tapes.recorder(options.record):
            view.also(recorder)
        if options.keep_history or self.settings.keep_history:
            view.keep = lambda: resuming.bundle(self._name(options), named.session.messages())
        return view

    def _without_docstring(self, tools: Any) -> str | None:
        """What to tell, once for each tool, of those that the model gets no description of."""
        bare = [tool.name for tool in tools if not tool.has_docstring and tool.name not in self._told]
        self._told.update(bare)
        return f"no docstring, so the model gets no description of: {', '.join(bare)}" if bare else None

    def _keep(self, result: Result | None, name: str | None) -> None:
        self.last = result
        if result is not None:
            presenting.mark_shown(result)
        if name is not None:
            self.names[name] = result


def _looks_secret(name: str) -> bool:
    return len(name) > 24 and any(c.isdigit() for c in name)
