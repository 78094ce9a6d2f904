"""What one `%%toolloop` cell does: options and defaults -> a session's turn -> its view and its Result."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import re
import unicodedata
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.events import (
    ArgumentInvalid,
    ArgumentTypeInvalid,
    Mistake,
    Observer,
    OutputInvalid,
    Result,
)
from ...core.execution import Raised, attempt_call
from .. import kernel
from . import names as naming
from .options import Options, ToolLoop, pairs
from .sessions import KEPT, MadeBy, NamedSession, Replaced, hashed

if TYPE_CHECKING:
    from ...core.events import Reply
    from ...core.models import Answers
    from ...core.session import AsyncEventStream
    from ...teaching.recording import Recorder, Replay
    from ..live import CellRun
    from ..transcript import Block


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
        from ..live import last

        return last()

    # --- what the option line names -----------------------------------------------------------------------------

    def functions(self, wanted: list[str] | None) -> list[Any]:
        """The tools by their names in the notebook; without names, every function marked with @tool.

        Raises Mistake, with the nearest name, for one that does not exist.
        """
        from ...core.tools import find_marked_tools

        return find_marked_tools(self.names) if wanted is None else naming.tools(self.names, wanted)

    def key(self, name: str | None) -> str | None:
        """The key behind the name of a variable. Raises Mistake."""
        return naming.key(self.names, name)

    # --- one run ------------------------------------------------------------------------------------------------

    def keywords(self, options: Options) -> dict[str, Any]:
        """The keywords of `aagent_session` for a cell: its options over the notebook's defaults."""
        from ...core.loop import ToolLoopOptions

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
        notes.append(self._without_docstring(named.session.config.tools))
        view, observers = self._view(options, named, cell, recorder, replaced)
        stream = named.session.astream(prompt, observers=observers)
        async with kernel.serving_clicks():
            return await kernel.await_with_cleanup(self._turn(options, stream, view, notes, replaced))

    async def _dry_run(self, options: Options, prompt: str, cell: kernel.Cell, back: int | None) -> None:
        """Show the first request. Nothing is changed by it: no session begun, no turn taken back, no variable set."""
        from ...core.session import AsyncSession
        from ..live import request_block
        from ..transcript import mimebundle

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
        from ...api import aagent_session
        from ...core.session import Harness

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
        stream: AsyncEventStream,
        view: CellRun,
        notes: list[str | None],
        replaced: Replaced | None,
    ) -> Result:
        from ..transcript import notice

        output = view.output()
        if replaced is not None:
            output.draw(notice(replaced.note))
        deaf = "this process ignores Ctrl-C: %toolloop doctor" if kernel.ignores_ctrl_c() else None
        for line in (*notes, deaf):
            if line:
                view.put(notice(line))
        try:
            result = await view.follow(stream, stream.cancel)
        except OutputInvalid as error:
            self._keep(error.result, options.name)
            raise
        finally:
            if replaced is not None and (kept := replaced.settle()):
                output.draw(notice(kept, "warning"))
        self._keep(result, options.name)
        return result

    def _view(
        self,
        options: Options,
        named: NamedSession,
        cell: kernel.Cell,
        recorder: Recorder | None,
        replaced: Replaced | None,
    ) -> tuple[CellRun, list[Observer]]:
        """The view of the run, and all who observe it: step mode holds before the view and the recorder see a step begin."""
        from ..live import CellRun, Stepper, ViewOptions
        from ..transcript import head
        from .sessions import bundle

        config = named.session.config
        answers = config.route.answers
        head_for = functools.partial(
            head,
            tools=[tool.name for tool in config.tools],
            permissions=options.permissions or self.settings.permissions,
            output=config.output.name if config.output else None,
            session=self._name(options),
            tape=said(recorder, answers),
        )
        keeps = options.keep_history or self.settings.keep_history

        def finish() -> Mapping[str, Any]:
            if replaced is not None:
                replaced.settle()
            return bundle(self._name(options), named) if keeps else {}

        view = CellRun(
            cell,
            head_for(config.route.title if answers is None else answers.next_title or config.route.title),
            ViewOptions(
                name=options.name,
                model=config.route.model,
                hint=" (with --as result)" if options.name is None else "",
                unattended=options.on_unattended or self.settings.on_unattended,  # type: ignore[arg-type]  # its choices
                means=self.settings.ask,  # type: ignore[arg-type]  # its choices
                raises=True,
                owns_cell=True,
                finish=finish,
            ),
        )
        observers: list[Observer | None] = [
            None if answers is None else FollowsModel(answers, view, head_for),
            Stepper(view, self.settings.ask) if options.step else None,  # type: ignore[arg-type]  # its choices
            view.hooks,
            recorder,
        ]
        return view, [observer for observer in observers if observer is not None]

    def _without_docstring(self, tools: Any) -> str | None:
        """What to tell, once for each tool, of those that the model gets no description of."""
        bare = [tool.name for tool in tools if not tool.has_docstring and tool.name not in self._told]
        self._told.update(bare)
        return f"no docstring, so the model gets no description of: {', '.join(bare)}" if bare else None

    def _keep(self, result: Result | None, name: str | None) -> None:
        if result is not None:
            from ..live import mark_shown

            mark_shown(result)
        if name is not None:
            self.names[name] = result


def _with_kept(options: Options, said: Mapping[str, Any]) -> Options:
    """The options of a cell, with what its session's earlier cells have said and this one does not."""
    kept = {name: value for name, value in said.items() if getattr(options, name) is None}
    return dataclasses.replace(options, **kept)


# --- From a cell's text to the prompt: verbatim, except for `{{name}}`. ---------------------------------------

_CELL = re.compile(r"(?:[^\S\n]*\n)*[^\S\n]*%%toolloop(?P<line>[^\S\n][^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"\{\{([^\s{}]+)\}\}")


def split_cell(text: str) -> tuple[str, str] | None:
    """(option line, body) of a `%%toolloop` cell as a person typed it, or None for any other cell.

    `%%toolloop?` is IPython's own question for help, so it is not ours.
    """
    found = _CELL.match(text)
    if found is None:
        return None
    return (found["line"] or "").strip(), as_typed(text[found.end() :])


def as_typed(body: str) -> str:
    """The body without the newline that IPython puts at the end of a cell, where it has put one.

    It does so for a cell without a newline at its end. A body that ends in a blank line was typed so, and one that ends
    a carriage return and a newline as well; a single newline cannot be told from IPython's and is taken for it.
    """
    return body if body.endswith(("\n\n", "\r\n")) else body.removesuffix("\n")


def fill_in(body: str, names: Mapping[str, object]) -> str:
    """Replace `{{name}}` by the text of that notebook variable, once: what it contains is not looked at again.

    Double braces around anything else than the bare name of something that exists stay as they are. Raises Mistake
    for a value that cannot give its text.
    """

    def text_of(match: re.Match[str]) -> str:
        # Python reads names in this form: "ö" may be typed as one character or as two.
        name = unicodedata.normalize("NFKC", match[1])
        if not name.isidentifier() or name not in names:
            return match[0]
        text = attempt_call(str, names[name])
        if isinstance(text, Raised):
            raised = type(text.error).__name__
            raise Mistake(
                f"{{{{{name}}}}} cannot be filled in: str({name}) raised {raised}; put its text into a variable of its own"
            )
        return text

    return _NAME.sub(text_of, body)


# --- Recordings and scripts in a notebook: which file a cell records to or is answered from, also when cells run again. ---


class Tapes:
    """The recordings of one kernel. Cells that name the same file share it: a notebook is one recording."""

    def __init__(self) -> None:
        self._recorders: dict[Path, Recorder] = {}
        self._replays: dict[Path, Replay] = {}
        self._began: weakref.WeakKeyDictionary[object, dict[str, tuple[int, str]]] = (
            weakref.WeakKeyDictionary()
        )
        self.always: Path | None = None
        """The file of `%toolloop record on FILE`, which every run of the notebook is recorded to."""
        self.playing: Path | None = None
        """The file of `%toolloop replay on FILE`, which every run of the notebook is answered from."""

    def running(self) -> list[tuple[str, Path]]:
        """What goes on for the whole notebook: ("recording", file), ("replaying", file)."""
        both = (("recording", self.always), ("replaying", self.playing))
        return [(word, file) for word, file in both if file is not None]

    def recorder(self, path: str | None) -> Recorder | None:
        """The recorder of a cell with `--record path`, or of the whole notebook; None when nothing is recorded.

        The first cell of a kernel begins the file anew; the next ones go on in it.
        """
        from ...teaching.recording import Recorder

        wanted = Path(path).resolve() if path else self.always
        if wanted is None:
            return None
        if wanted not in self._recorders:
            self._recorders[wanted] = Recorder(wanted)
        return self._recorders[wanted]

    def replays(self, path: str | None) -> bool:
        """Whether a cell with `--replay path` (or without) is answered from a recording: it needs no model and no key."""
        return bool(path or self.playing)

    def replay(self, path: str | None, *, loose: bool) -> Replay:
        """The model of the cells with `--replay path`. A file that was written again since is read again."""
        from ...teaching.recording import Replay

        wanted = Path(path).resolve() if path else self.playing
        assert wanted is not None
        known = self._replays.get(wanted)
        if known is None or not known.is_current():
            known = self._replays[wanted] = Replay(wanted)
        known.loose = loose
        return known

    def go_back(self, answers: Answers | None, cell_id: str | None, execution: str) -> None:
        """Let a script or recording go on from where this cell began, when the cell has run before.

        Without an id of the cell (some front-ends send none) it just goes on; so do several runs in one execution.
        """
        if answers is None or cell_id is None or answers.position is None:
            return
        began = self._began.setdefault(answers, {})
        position, last = began.get(cell_id, (answers.position, execution))
        if last != execution:
            answers.position = position
        began[cell_id] = (position, execution)


def said(recorder: Recorder | None, answers: Answers | None) -> str:
    """What a cell's head says of a recording: that it is made, or that it answers."""
    from ...teaching.recording import Replay

    told = [f"replayed from {answers.path.name}"] if isinstance(answers, Replay) else []
    told += [f"recording to {recorder.path.name}"] if recorder is not None else []
    return ", ".join(told)


class FollowsModel(Observer):
    """Says in a run's transcript which model of a recording answers, and, once, that it was asked something else."""

    def __init__(self, answers: Answers, view: CellRun, head_for: Callable[[str], Block]) -> None:
        """`head_for(model)` is the run's head: cells may run in another order than the recorded one."""
        self._answers, self._view, self._head_for = answers, view, head_for
        self._known = len(answers.differences)
        self._said = False

    async def after_model(self, reply: Reply) -> None:
        self._view.replace_head(self._head_for(self._answers.title))
        new = self._answers.differences[self._known :]
        if new and not self._said:
            self._said = True
            await self._view.say(f"not as recorded, going on (--replay-loose): {new[0]}", "warning")
