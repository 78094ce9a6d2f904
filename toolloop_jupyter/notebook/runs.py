"""What one `%%toolloop` cell does: options and defaults -> a session's turn -> its view and its Result."""

from __future__ import annotations

import dataclasses
import keyword
import weakref
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import HarnessError, OutputInvalid
from ..core.events import Result
from . import kernel, naming, presenting
from .options import Mistake, Options, pairs
from .prompt import fill_in
from .settings import ToolLoop
from .tapes import SaysDifferences, Tapes

KEPT = ("model", "tools", "permissions", "instructions", "sandbox", "api_base", "api_key")
"""The options that hold for a whole session: a cell that goes on with it has the same tools, and asks as it did."""


@dataclass
class NamedSession:
    """A conversation that cells go on with, and which cell made which turn of it."""

    session: Any
    cells: list[str | None] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    """What its cells have said of KEPT; later cells need not say it again."""


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

        return marked_tools(self.names) if wanted is None else naming.tools(self.names, wanted)

    def key(self, name: str | None) -> str | None:
        """The key behind the name of a variable. Raises Mistake."""
        return naming.key(self.names, name)

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
            for name in ("max_model_calls", "max_cost", "on_limit", "images")
            if getattr(options, name) is not None
        }
        replayed = self.tapes.replays(options.replay)
        return {
            "model": self.tapes.replay(options.replay, loose=options.replay_loose)
            if replayed
            else naming.model(self.names, options.model or defaults.default_model()),
            "tools": self.functions(None if tools is None else list(tools)),
            "permissions": naming.policy(self.names, options.permissions or defaults.permissions),
            "output": naming.output(self.names, output) if output else None,
            "instructions": options.instructions or defaults.instructions or None,
            "max_turns": options.max_turns or defaults.max_turns,
            "timeout": options.timeout or defaults.timeout,
            "sandbox": sandbox or None,
            "api_base": None if replayed else options.api_base or defaults.api_base or None,
            "api_key": None if replayed else self.key(options.api_key or defaults.api_key),
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
        options = self._with_kept(options)
        if options.dry_run:
            await self._dry_run(options, prompt, cell)
            return None
        named, notes = self._session(options)
        if not options.append:
            self.tapes.go_back(named.session.config.route.answers, cell.cell_id)
        if self._name(options):
            notes.append(self._rewind(named, cell.cell_id, append=options.append))
        async with kernel.attending():
            return await kernel.uninterrupted(self._turn(options, named, prompt, cell, notes))

    async def _dry_run(self, options: Options, prompt: str, cell: kernel.Cell) -> None:
        """Show the first request. Nothing is changed by it: no session begun, no turn taken back, no variable set."""
        from ..core.session import AsyncSession
        from .stepping import request_block
        from .transcript import mimebundle

        session, named = self.new_session(options), self.sessions.get(self._name(options) or "")
        if named is not None:
            session = AsyncSession(session.config, named.session.messages())
            if cell.cell_id in named.cells and cell.cell_id is not None and not options.append:
                session.rewind(named.cells.index(cell.cell_id))
        request = await session.preview(prompt)
        cell.display(mimebundle([request_block(request, sent=False, title_of=session.config.route.title)]))

    def _name(self, options: Options) -> str | None:
        """The session that the cell belongs to, or None."""
        return options.session or self.settings.session or None

    def _with_kept(self, options: Options) -> Options:
        """The options of a cell, with what its session's earlier cells have said and this one does not."""
        named = self.sessions.get(self._name(options) or "")
        if named is None:
            return options
        kept = {name: value for name, value in named.said.items() if getattr(options, name) is None}
        return dataclasses.replace(options, **kept)

    def new_session(self, options: Options) -> Any:
        """A fresh AsyncSession with these options over the defaults. Raises Mistake, or another one-line error."""
        from ..api import aagent_session
        from ..core.config import Harness

        keywords = self.keywords(options)
        try:
            return aagent_session(Harness.TOOL_LOOP, **keywords)
        except (ValueError, TypeError) as error:
            if isinstance(error, HarnessError):  # has one line already
                raise
            raise Mistake(str(error)) from None

    def _session(self, options: Options) -> tuple[NamedSession, list[str | None]]:
        """The conversation that the cell goes on with, and what to tell the person about it."""
        made, name = self.new_session(options), self._name(options)
        if name is None:
            return NamedSession(made), []
        named = self.sessions.setdefault(name, NamedSession(made))
        if named.session.busy:
            raise Mistake(f"session {name!r} is running a turn; wait for it or stop it")
        before, now = ([tool.name for tool in one.config.tools] for one in (named.session, made))
        named.session.config = made.config
        named.said = {one: value for one in KEPT if (value := getattr(options, one)) is not None}
        gone = [tool for tool in before if tool not in now]
        return named, [f"session {name!r} had other tools before; gone: {', '.join(gone)}" if gone else None]

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
        self, options: Options, named: NamedSession, prompt: str, cell: kernel.Cell, notes: list[str | None]
    ) -> Result:
        from .live import follow
        from .transcript import notice

        session = named.session
        config, stream = session.config, session.astream(prompt)
        view = self._view(options, named, cell, stream.cancel)
        # The view asks by itself, as it reads the stream: so nothing is shown out of order.
        session.config = dataclasses.replace(config, observer=view, on_approval=None)
        for line in (*notes, self._without_docstring(config.tools)):
            if line:
                view.put(notice(line))
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
            config.route.title,
            [tool.name for tool in config.tools],
            options.permissions or self.settings.permissions,
            config.output.name if config.output else None,
            session=self._name(options),
        )
        view = View(
            cell,
            top,
            owns_cell=True,
            whole_text=config.output is not None,
            name=options.name,
            stop=stop,
            unattended=options.on_unattended or self.settings.on_unattended,  # type: ignore[arg-type]  # its choices
            wish=self.settings.ask,  # type: ignore[arg-type]  # its choices
            raised=True,
        )
        if options.step:
            view.stepper = Stepper(view, self.settings.ask)  # type: ignore[arg-type]  # its choices
        if hasattr(config.route.answers, "differences"):
            view.also(SaysDifferences(config.route.answers, view))
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
