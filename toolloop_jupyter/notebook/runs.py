"""What one `%%toolloop` cell does: options and defaults -> a session's turn -> its view and its Result."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import ArgumentInvalid, ArgumentTypeInvalid, OutputInvalid
from ..core.events import Result
from . import kernel, naming, presenting, tapes
from .options import Mistake, Options, pairs
from .prompt import fill_in
from .settings import ToolLoop
from .tapes import Tapes
from .turns import KEPT, MadeBy, NamedSession, Replaced, hashed

if TYPE_CHECKING:
    from ..teaching.recording import Recorder
    from .live import View


class Notebook:
    """The state of `%%toolloop` in one kernel: settings, sessions, the last run."""

    def __init__(self, shell: Any, settings: ToolLoop) -> None:
        self._shell = weakref.proxy(shell)
        self.settings = settings
        self.sessions: dict[str, NamedSession] = {}
        self.tapes = Tapes()
        self._told: set[str] = set()
        """Tools of which the person knows already that they have no docstring."""

    @property
    def names(self) -> dict[str, Any]:
        """The notebook's variables."""
        names: dict[str, Any] = self._shell.user_ns
        return names

    @property
    def autoawait(self) -> bool:
        """Whether the shell's cells may await (`%autoawait`)."""
        return bool(self._shell.autoawait)

    @property
    def last(self) -> Result | None:
        """The Result of the last run in this kernel: of a cell, or of the API."""
        return presenting.last()

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
        functions = self.functions(None if tools is None else list(tools))
        found = self.sessions.get(self._name(options) or "")
        policy = options.permissions or defaults.permissions
        return {
            "model": self.tapes.replay(options.replay, loose=options.replay_loose)
            if replayed
            else naming.model(self.names, options.model or defaults.default_model()),
            "tools": functions,
            "permissions": naming.policy(self.names, policy, functions, found.had if found else ()),
            "output": naming.output(self.names, output) if output else None,
            "instructions": options.instructions or defaults.instructions or None,
            "max_turns": defaults.max_turns if options.max_turns is None else options.max_turns,
            "timeout": defaults.timeout if options.timeout is None else options.timeout,
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
        found = self.sessions.get(self._name(options) or "")
        # Running a cell again replaces its turn (and those after it).
        back = found.turn_of(cell.cell_id, cell.execution) if found and not options.append else None
        if found is not None:
            options = _with_kept(options, found.said_before(back))
        if options.dry_run:
            await self._dry_run(options, prompt, cell, back)
            return None
        recorder = self.tapes.recorder(options.record)  # one that cannot be written is said before all else
        named, notes = self._session(options, going_back=back is not None)
        if not options.append:
            self.tapes.go_back(named.session.config.route.answers, cell.cell_id, cell.execution)
        replaced = named.go_back(back) if back is not None else None
        notes.append(self._begin_turn(named, options, cell))
        view = self._view(options, named, cell, recorder, replaced)
        async with kernel.attending():
            return await kernel.uninterrupted(self._turn(options, named, prompt, view, notes, replaced))

    async def _dry_run(self, options: Options, prompt: str, cell: kernel.Cell, back: int | None) -> None:
        """Show the first request. Nothing is changed by it: no session begun, no turn taken back, no variable set."""
        from ..core.session import AsyncSession
        from .stepping import request_block
        from .transcript import mimebundle

        session, named = self.new_session(options), self.sessions.get(self._name(options) or "")
        if named is not None:
            session = AsyncSession(session.config, named.session.messages(), turns=named.session.starts)
            if back is not None:
                session.rewind(back)
        request = await session.preview(prompt)
        cell.display(mimebundle([request_block(request, sent=False, title_of=session.config.route.title)]))

    def _name(self, options: Options) -> str | None:
        """The session that the cell belongs to, or None."""
        return options.session or self.settings.session or None

    def new_session(self, options: Options) -> Any:
        """A fresh AsyncSession with these options over the defaults. Raises Mistake, or another one-line error."""
        return self.checked(**self.keywords(options))

    def checked(self, **keywords: Any) -> Any:
        """An AsyncSession with these keywords of the API. Raises Mistake, or another one-line error."""
        from ..api import aagent_session
        from ..core.config import Harness

        try:
            return aagent_session(Harness.TOOL_LOOP, **keywords)
        except (ArgumentInvalid, ArgumentTypeInvalid) as error:
            raise Mistake(str(error)) from None

    def _session(
        self, options: Options, *, going_back: bool = False
    ) -> tuple[NamedSession, list[str | None]]:
        """The conversation that the cell goes on with, and what to tell the person about it."""
        made, name = self.new_session(options), self._name(options)
        if name is None:
            made.lasting = False
            return NamedSession(made), []
        named = self.sessions.setdefault(name, NamedSession(made))
        if named.session.busy:
            raise Mistake(f"session {name!r} is running a turn; wait for it or stop it")
        before, now = ([tool.name for tool in one.config.tools] for one in (named.session, made))
        named.session.config = made.config
        named.had.update(before)
        gone = [] if going_back else [tool for tool in before if tool not in now]
        return named, [f"session {name!r} had other tools before; gone: {', '.join(gone)}" if gone else None]

    def _begin_turn(self, named: NamedSession, options: Options, cell: kernel.Cell) -> str | None:
        """Note who makes the turn; returns what to tell the person about it."""
        name, note = self._name(options), None
        if name is None:
            return None
        if (
            cell.cell_id is None
            and named.turns()
            and not (options.append or named.told)
            and kernel.has_stdin()
        ):
            named.told = True
            note = (
                f"this front-end does not name its cells: running a cell again adds a turn (this is turn "
                f"{len(named.turns()) + 1} of {name!r}); %toolloop reset {name} begins anew"
            )
        said = {one: value for one in KEPT if (value := getattr(options, one)) is not None}
        named.add(MadeBy(hashed(cell.cell_id), cell.execution, said))
        return note

    async def _turn(
        self,
        options: Options,
        named: NamedSession,
        prompt: str,
        view: View,
        notes: list[str | None],
        replaced: Replaced | None,
    ) -> Result:
        from .blocks import notice
        from .live import follow
        from .transcript import mimebundle

        session = named.session
        config, stream = session.config, session.astream(prompt)
        view.stop = stream.cancel
        # The view asks by itself, as it reads the stream: so nothing is shown out of order.
        session.config = dataclasses.replace(config, observer=view, on_approval=None)
        place = view.place()
        if replaced is not None:
            place.put(mimebundle([notice(replaced.note)]))
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
            if replaced is not None and (kept := replaced.settle()):
                place.put(mimebundle([notice(kept, "warning")]))
        self._keep(result, options.name)
        return result

    def _view(
        self,
        options: Options,
        named: NamedSession,
        cell: kernel.Cell,
        recorder: Recorder | None,
        replaced: Replaced | None,
    ) -> View:
        from . import resuming
        from .blocks import head
        from .live import View
        from .stepping import Stepper

        config = named.session.config
        answers = config.route.answers
        head_for = functools.partial(
            head,
            tools=[tool.name for tool in config.tools],
            permissions=options.permissions or self.settings.permissions,
            output=config.output.name if config.output else None,
            session=self._name(options),
            tape=tapes.said(recorder, answers),
        )
        view = View(
            cell,
            head_for(getattr(answers, "next_model", "") or config.route.title),
            owns_cell=True,
            whole_text=config.output is not None,
            name=options.name,
            unattended=options.on_unattended or self.settings.on_unattended,  # type: ignore[arg-type]  # its choices
            wish=self.settings.ask,  # type: ignore[arg-type]  # its choices
            raised=True,
        )
        if options.name is None:
            view.hint = " (with --as result)"
        if options.step:
            view.stepper = Stepper(view, self.settings.ask)  # type: ignore[arg-type]  # its choices
        if hasattr(answers, "differences"):
            view.also(tapes.FollowsReplay(answers, view, head_for))
        if recorder is not None:
            view.also(recorder)
        if options.keep_history or self.settings.keep_history:
            view.keep = functools.partial(resuming.bundle, self._name(options), named)
        if replaced is not None:
            view.ended = replaced.settle
        return view

    def _without_docstring(self, tools: Any) -> str | None:
        """What to tell, once for each tool, of those that the model gets no description of."""
        bare = [tool.name for tool in tools if not tool.has_docstring and tool.name not in self._told]
        self._told.update(bare)
        return f"no docstring, so the model gets no description of: {', '.join(bare)}" if bare else None

    def _keep(self, result: Result | None, name: str | None) -> None:
        if result is not None:
            presenting.mark_shown(result)
        if name is not None:
            self.names[name] = result


def _with_kept(options: Options, said: Mapping[str, Any]) -> Options:
    """The options of a cell, with what its session's earlier cells have said and this one does not."""
    kept = {name: value for name, value in said.items() if getattr(options, name) is None}
    return dataclasses.replace(options, **kept)
