"""Run one `%%toolloop` cell: make a session from the cell's options and the defaults, run one turn, and show the run."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api import aagent_session
from ...core.conversation import Prompt, read_prompt
from ...core.events import (
    DEMO_MODEL,
    STOPPED,
    ArgumentInvalid,
    ArgumentTypeInvalid,
    CapabilityUnsupported,
    Mistake,
    Observer,
    OutputInvalid,
    Result,
    Rows,
    RunFailed,
)
from ...core.loop import Config, ToolLoopOptions
from ...core.rows import RowsOptions, RowsRun
from ...core.session import AsyncSession, Harness
from ...core.tools import Tool, find_marked_tools
from ...teaching import Recorder, Replay
from .. import kernel, live
from ..live import CellRun, Stepper, ViewOptions, request_block
from ..rows import RowsPage, RowsPageOptions, tell_size_of_rows
from ..transcript import head, make_bundle, notice
from .names import (
    find_attached,
    find_file,
    find_named,
    holds_rows,
    leave_out_others,
    look_up,
    note_left,
    read_template,
    resolve,
)
from .options import OPTIONS, Options, Settings, complete, in_flags
from .sessions import NamedSession, ReplacedTurns, TurnOrigin, bundle_conversation

if TYPE_CHECKING:
    from ...core.events import ModelCallFailed, Reply
    from ...core.models import Answers
    from ...core.session import AsyncEventStream
    from ..transcript import Block


# --- recordings and scripts: which file a cell records to or replays, and where it begins when it runs again -----


class Tapes:
    """Keeps the recordings and replays of one kernel. Cells that name the same file share one recording."""

    def __init__(self) -> None:
        self._recorders: dict[Path, Recorder] = {}
        self._replays: dict[Path, Replay] = {}
        self._began: weakref.WeakKeyDictionary[object, dict[str, tuple[int, str]]] = (
            weakref.WeakKeyDictionary()
        )
        self.recording_to: Path | None = None
        """The file of `%toolloop record on FILE`. All runs of the notebook are recorded to this file."""
        self.replaying_from: Path | None = None
        """The file of `%toolloop replay on FILE`. All runs of the notebook are answered from this file."""

    def running(self) -> list[tuple[str, Path]]:
        """Return [(word, file), …] for the notebook's current recording and replay. `word` is "recording" or "replaying"."""
        both = (("recording", self.recording_to), ("replaying", self.replaying_from))
        return [(word, file) for word, file in both if file is not None]

    def recorder(self, path: str | None) -> Recorder | None:
        """Return the recorder for a cell with `--record path`. If `path` is None, return the whole notebook's recorder, if any.

        In each kernel, the first cell that names a file starts the file anew. Later cells add to the file.
        """
        wanted = find_file(path) if path else self.recording_to
        if wanted is None:
            return None
        if wanted not in self._recorders:
            self._recorders[wanted] = Recorder(wanted, on_stop=lambda _: None)  # `RecordingNotes` shows why
        return self._recorders[wanted]

    def replays(self, path: str | None) -> bool:
        """Return whether a cell with `--replay path` is answered from a recording. Such a cell needs no model and no API key."""
        return bool(path or self.replaying_from)

    def replay(self, path: str | None, *, loose: bool, plays_tools: bool = False) -> Replay:
        """Return the Replay that answers every cell with `--replay path`. If the file has changed, read the file again."""
        wanted = find_file(path) if path else self.replaying_from
        assert wanted is not None
        replay = self._replays.get(wanted)
        if replay is None or not replay.is_current():
            replay = self._replays[wanted] = Replay(wanted)
        replay.loose, replay.plays_tools = loose, plays_tools
        return replay

    def go_back(self, answers: Answers | None, cell_id: str | None, execution: str) -> None:
        """If the cell runs again, set `answers` (a script or recording) back to the position at which the cell's first run began.

        The position stays unchanged if the front-end sends no cell id, and in a second run of the same execution (in a loop).
        """
        if answers is None or cell_id is None or answers.position is None:
            return
        began = self._began.setdefault(answers, {})
        position, last = began.get(cell_id, (answers.position, execution))
        if last != execution:
            answers.position = position
        began[cell_id] = (position, execution)


def describe_source(model: str, answers: Answers | None, recorder: Recorder | None) -> str:
    """Return the words in a cell's head that name a demonstration, a replay or a recording; "" for any other run."""
    demonstration = ["a demonstration, no language model"] if model == DEMO_MODEL else []
    replayed = [f"replayed from {answers.path.name}"] if isinstance(answers, Replay) else []
    if isinstance(answers, Replay) and answers.plays_tools:
        replayed = [f"{replayed[0]} with its tools"]
    recorded = [f"recording to {recorder.path.name}"] if recorder is not None else []
    return ", ".join(demonstration + replayed + recorded)


_DIFFERS = "a request differs from the recorded one; the run continues (--replay-loose)"


class ModelNotes(Observer):
    """Shows in the head of a run which model of a recording answers.

    With `--replay-loose`, also warns about the first request of the run that differs from the recorded request.
    """

    def __init__(self, answers: Answers, view: CellRun, head_for: Callable[[str], Block]) -> None:
        """`head_for(model)` returns the run's head.

        After each reply, the head is made again, since another model of the recording may have answered.
        """
        self._answers, self._view, self._head_for = answers, view, head_for
        self._before = len(answers.differences)
        self._is_said = False

    async def after_model(self, reply: Reply) -> None:
        self._view.replace_head(self._head_for(self._answers.title))
        new = self._answers.differences[self._before :]
        if new and not self._is_said:
            self._is_said = True
            await self._view.say(f"{_DIFFERS}: {new[0]}", "warning")


class RecordingNotes(Observer):
    """Shows one warning in a run's transcript when the recording has stopped. The warning says why."""

    def __init__(self, recorder: Recorder, view: CellRun) -> None:
        self._recorder, self._view, self._is_said = recorder, view, False

    async def after_model(self, reply: Reply) -> None:
        await self._say()

    async def model_failed(self, error: ModelCallFailed) -> None:
        await self._say()

    async def _say(self) -> None:
        if self._recorder.stopped and not self._is_said:
            self._is_said = True
            await self._view.say(self._recorder.stopped, "warning")


# --- one run --------------------------------------------------------------------------------------------------


_NOT_WITH_ROWS = {
    **dict.fromkeys(("session", "append", "step", "keep_history"), "each row is a conversation of its own"),
    "attach": "a row is asked with the text of its cells",
}
"""The options that a cell with `--each` does not take -> the reason for the message."""
_EMPTY_PROMPT = "the prompt is empty; write below the %%toolloop line what the model should do"


class Notebook:
    """The state of `%%toolloop` in one kernel: settings, sessions, recordings."""

    def __init__(self, shell: Any, settings: Settings) -> None:
        self._shell = weakref.proxy(shell)
        self.settings = settings
        self.sessions: dict[str, NamedSession] = {}
        self.tapes = Tapes()
        self._without_docstring: set[str] = set()
        """The names of tools without a docstring. A note has told the person about them."""

    @property
    def names(self) -> dict[str, Any]:
        """The notebook's variables."""
        names: dict[str, Any] = self._shell.user_ns
        return names

    @property
    def autoawait(self) -> bool:
        """True if `await` works in the shell's cells (`%autoawait`)."""
        return bool(self._shell.autoawait)

    @property
    def last(self) -> Result | None:
        """The Result of the last run in this kernel, whether a cell or the Python API has run it."""
        return live.last()

    def complete(self, said: Mapping[str, object]) -> Options:
        """Return a value for each option: the value in `said`, else the notebook's setting, else the default."""
        return complete(said, self.settings.said())

    def new_session(self, said: Mapping[str, object]) -> AsyncSession:
        """Return a new session. The options in `said` win over the settings. Raises Mistake, or another one-line error."""
        return self._make_session(self.complete(said))

    def check(self, said: Mapping[str, object]) -> None:
        """Raise Mistake if the options in `said` are not valid for a cell. The variable for `--model` need not exist yet."""
        self._make_session({**complete({"tools": [], **said}), "model": DEMO_MODEL, "api_base": None})

    def _make_session(self, options: Options, prompt: str = "") -> AsyncSession:
        """Return a session with these options. `prompt` is used only for `--replay-tools`."""
        try:
            return aagent_session(Harness.TOOL_LOOP, **self._keywords(options, prompt))
        except (ArgumentInvalid, ArgumentTypeInvalid) as error:
            raise Mistake(in_flags(str(error))) from None

    def _keywords(self, options: Options, prompt: str) -> dict[str, Any]:
        """Return the keyword arguments of `aagent_session` for these options. `Option.keyword` has the name of each argument."""
        keywords: dict[str, Any] = {"options": {}}
        replayed, plays_tools = self.tapes.replays(options["replay"]), bool(options["replay_tools"])
        if plays_tools and not replayed:
            raise Mistake(
                "--replay-tools needs a recording: --replay FILE, or %toolloop replay on FILE before"
            )
        from_tape = {"model", "api_base", "api_key", "options.fallback"} if replayed else set()
        from_tape |= {"tools"} if plays_tools else set()
        # Sorted by the dots in `keyword`: a row for a single completion option comes after `--set`, and wins.
        for option in sorted(OPTIONS, key=lambda row: row.keyword.count(".")):
            if not option.keyword or option.is_of_rows or option.keyword in from_tape:
                continue
            value: Any = resolve(option, options[option.name], self.names)
            if value is not None:
                *path, last = option.keyword.split(".")
                within = functools.reduce(lambda inner, part: inner.setdefault(part, {}), path, keywords)
                within[last] = dict(value) if isinstance(value, dict) else value
        if replayed:
            replay = self.tapes.replay(
                options["replay"], loose=options["replay_loose"], plays_tools=plays_tools
            )
            keywords["model"] = replay
            # A model call that failed in the recording fails again. The answer of the fallback model is the next call in the
            # recording. So the replay itself is the fallback.
            keywords["options"]["fallback"] = [replay] * len(options["fallback"] or ())
            if plays_tools:
                keywords["tools"] = replay.find_tools(prompt)
        if "tools" not in keywords:
            keywords["tools"] = find_marked_tools(self.names)
        named = self.sessions.get(options["session"] or "")
        keywords["permissions"] = leave_out_others(
            keywords["permissions"], self.names, keywords["tools"], named.had if named else ()
        )
        return {**keywords, "options": ToolLoopOptions(**keywords["options"])}

    async def run(self, typed: Options, body: str) -> Result | Rows | None:
        """Run a cell, and show the run. Return its Result; with `--each`, its Rows; for a dry run, None.

        If the cell is wrong, raises Mistake before anything is shown.
        """
        if for_all := next((o for o in OPTIONS if o.is_for_all and o.name in typed), None):
            flag = for_all.typed[-1]
            raise Mistake(
                f"{flag} is for all runs of the notebook together; write %toolloop {flag} {typed[for_all.name]}"
            )
        variable = typed.get("as")
        if variable is not None and (not variable.isidentifier() or keyword.iskeyword(variable)):
            raise Mistake(f"--as {variable!r} is not a variable name")
        if "each" in typed:
            return await self._run_rows(typed, body)
        if for_rows := [o.typed[-1] for o in OPTIONS if o.is_of_rows and o.name in typed]:
            raise Mistake(f"{for_rows[0]} needs --each TABLE (a run for each row of a table)")
        cell = kernel.Cell.here()
        prompt = self._read_prompt(body, typed.get("attach", ()))
        before = self.sessions.get(self.complete(typed)["session"] or "")
        # If the cell ran before, its turn is replaced, and the later turns are dropped.
        turn = before.turn_of(cell.cell_id, cell.execution) if before and "append" not in typed else None
        said = {**before.said_before(turn), **typed} if before else typed
        options = self.complete(said)
        if options["dry_run"]:
            await self._dry_run(options, prompt, cell, turn)
            return None
        # Make the recorder first. If its file cannot be written, the cell fails before anything runs.
        recorder = self.tapes.recorder(options["record"])
        made = self._make_session(options, body)
        prompt = await self._prepare(made, prompt)
        named, notes = self._go_on(made, options, going_back=turn is not None)
        if not options["append"]:
            self.tapes.go_back(named.session.config.route.answers, cell.cell_id, cell.execution)
        replaced = named.go_back(turn) if turn is not None else None
        if options["session"]:
            notes += self._begin_turn(named, options, cell)
            named.add(TurnOrigin.of(cell.cell_id, cell.execution, said))
        notes += self._note_without_docstring(named.session.config.tools)
        for text in (body, str(options["instructions"] or "")):
            notes += [notice(*told) for told in note_left(text, self.names)]
        view, observers = self._view(options, named, cell, recorder, replaced, prompt.filled)
        stream = named.session.astream(prompt, observers=observers)
        async with kernel.serving_clicks():
            return await kernel.await_with_cleanup(self._turn(variable, stream, view, notes, replaced))

    async def _run_rows(self, typed: Options, body: str) -> Rows | None:
        """Run the prompt for each row of a table, and show the progress. A wrong cell raises Mistake before any row runs."""
        if not body.strip():
            raise Mistake(_EMPTY_PROMPT)
        if alone := next((o for o in OPTIONS if o.name in _NOT_WITH_ROWS and o.name in typed), None):
            raise Mistake(f"{alone.typed[-1]} does not go with --each: {_NOT_WITH_ROWS[alone.name]}")
        options, cell = self.complete(typed), kernel.Cell.here()
        recorder = None if options["dry_run"] else self.tapes.recorder(options["record"])
        config = self._make_session({**options, "session": "", "max_cost": None}).config
        if recorder is not None:
            config = dataclasses.replace(config, observers=(*config.observers, recorder))
        page = RowsPage(cell, *self._describe_rows(config, options, recorder))
        if not options["executor"]:  # a worker's process has no page
            config = dataclasses.replace(config, observers=(*config.observers, page))
        try:
            run = self._make_rows_run(config, options, body, page)
            if options["dry_run"]:
                await self._dry_run_rows(run, cell, config.route.title)
                return None
            self.tapes.go_back(config.route.answers, cell.cell_id, cell.execution)
            async with kernel.serving_clicks():
                return await kernel.await_with_cleanup(self._follow_rows(page, run, options["as"]))
        except (ArgumentInvalid, ArgumentTypeInvalid) as error:
            raise Mistake(in_flags(str(error))) from None

    def _describe_rows(
        self, config: Config, options: Options, recorder: Recorder | None
    ) -> tuple[Block, RowsPageOptions]:
        """Return (line, options): the line above the rows, and the options of the page that shows the rows."""
        answers = config.route.answers
        before = len(answers.differences) if answers else 0

        def tell_end() -> list[Block]:
            different = answers.differences[before : before + 1] if answers else []
            told = [f"{_DIFFERS}: {one}" for one in different]
            told += [recorder.stopped] if recorder is not None and recorder.stopped else []
            return [notice(words, "warning") for words in told]

        notes = [] if options["dry_run"] else self._note_without_docstring(config.tools)
        notes += [notice(*told) for told in note_left(str(options["instructions"] or ""), self.names)]
        line = head(
            config.route.title,
            [tool.name for tool in config.tools],
            options["permissions"],
            output=config.output.name if config.output else None,
            tape=describe_source(config.route.model, answers, recorder),
        )
        shown = RowsPageOptions(
            name=options["as"],
            unattended=options["on_unattended"],
            means=options["ask"],
            notes=notes,
            finish=tell_end,
        )
        return line, shown

    def _make_rows_run(self, config: Config, options: Options, body: str, page: RowsPage) -> RowsRun:
        own = (option for option in OPTIONS if option.is_of_rows and option.keyword)
        given: dict[str, Any] = {o.keyword: resolve(o, options[o.name], self.names) for o in own}
        return RowsRun(
            config,
            body,
            look_up(self.names, options["each"], "table", holds_rows),
            RowsOptions(**given, max_cost=options["max_cost"], variables=find_named(body, self.names)),
            ask=page.ask,
        )

    async def _follow_rows(self, page: RowsPage, run: RowsRun, variable: str | None) -> Rows:
        """Run all rows. Put the finished rows into `variable`, even if an error or an interrupt ends the run.

        Raises RunFailed if the run ended early and no row has an answer.
        """
        try:
            await page.follow(run)
        finally:
            rows = run.rows
            self._keep(rows, variable)
        if rows.message not in ("", STOPPED) and not rows.progress.done:
            raise RunFailed(in_flags(rows.message))
        return rows

    async def _dry_run_rows(self, run: RowsRun, cell: kernel.Cell, model: str) -> None:
        """Show the first request of the first row, and the number of rows."""
        request = await run.preview()
        if request is None:
            cell.display(make_bundle(notice("there is no row: nothing would be sent")))
            return
        first = request_block(request, sent=False, title_of=model)
        cell.display(make_bundle([first, notice(tell_size_of_rows(request, run.total))]))

    def _read_prompt(self, body: str, attached: Sequence[str]) -> Prompt:
        """Return the prompt of a cell: the files of `--attach`, and the text with its `{{name}}` filled in. Raises Mistake."""
        template = read_template(body, self.names)
        if not any(piece.strip() if isinstance(piece, str) else True for piece in template.pieces):
            raise Mistake(_EMPTY_PROMPT)
        try:
            files = [find_attached(name, self.names) for name in attached]
            return read_prompt([*files, template], kernel.name_cells)
        except ArgumentInvalid as error:
            raise Mistake(str(error)) from None

    async def _prepare(self, session: AsyncSession, prompt: Prompt) -> Prompt:
        """Prepare the prompt for the session's model. Raises Mistake if the model does not take a picture or file of the
        prompt.
        """
        try:
            return await session.prepare(prompt)
        except CapabilityUnsupported as error:
            raise Mistake(in_flags(str(error))) from None

    async def _dry_run(self, options: Options, prompt: Prompt, cell: kernel.Cell, turn: int | None) -> None:
        """Show the first request. This changes nothing: no session begins, no turn is replaced, no variable is set."""
        session, named = self._make_session(options), self.sessions.get(options["session"] or "")
        if named is not None:
            session = named.session.fork(session.config)
            if turn is not None:
                session.rewind(turn)
        request = await session.preview(await self._prepare(session, prompt))
        cell.display(make_bundle([request_block(request, sent=False, title_of=session.config.route.title)]))

    def _go_on(
        self, made: AsyncSession, options: Options, *, going_back: bool
    ) -> tuple[NamedSession, list[Block]]:
        """Return (session, notes): the session that the cell continues, and notes for the person.

        `made` is a session with the cell's options. The continued session gets the configuration of `made`.
        """
        name = options["session"]
        if not name:
            return NamedSession(AsyncSession(made.config, lasting=False)), []
        named = self.sessions.setdefault(name, NamedSession(made))
        if named.session.busy:
            raise Mistake(f"session {name!r} is running a turn; wait for it or stop it")
        before, now = ([tool.name for tool in one.config.tools] for one in (named.session, made))
        named.session.configure(made.config)
        named.had.update(before)
        gone = [] if going_back else [tool for tool in before if tool not in now]
        told = f"session {name!r} had other tools before; it no longer has: {', '.join(gone)}"
        return named, [notice(told)] if gone else []

    def _begin_turn(self, named: NamedSession, options: Options, cell: kernel.Cell) -> list[Block]:
        """If the front-end sends no cell ids, return a note: a cell that runs again adds a turn. Else return [].

        A session gets this note only once. There is no note for the first turn, with `--append`, or if nobody can answer
        `input()`.
        """
        count, name = len(named.turns()), options["session"]
        if cell.cell_id is not None or not count or options["append"] or named.knows_that_turns_add_up:
            return []
        if not kernel.has_stdin():
            return []
        named.knows_that_turns_add_up = True
        note = (
            f"this front-end sends no cell ids, so a cell that runs again adds a turn (this is turn {count + 1} of "
            f"{name!r}); to forget all turns: %toolloop reset {name}"
        )
        return [notice(note)]

    async def _turn(
        self,
        variable: str | None,
        stream: AsyncEventStream,
        view: CellRun,
        notes: list[Block],
        replaced: ReplacedTurns | None,
    ) -> Result:
        output = view.output()
        if replaced is not None:
            output.draw(notice(replaced.note))
        for note in notes:
            view.put(note)
        try:
            result = await view.follow(stream, stream.cancel)
        except OutputInvalid as error:
            self._keep(error.result, variable)
            raise
        finally:
            if replaced is not None and (kept := replaced.settle()):
                output.draw(notice(kept, "warning"))
        self._keep(result, variable)
        return result

    def _view(
        self,
        options: Options,
        named: NamedSession,
        cell: kernel.Cell,
        recorder: Recorder | None,
        replaced: ReplacedTurns | None,
        filled: Sequence[str],
    ) -> tuple[CellRun, list[Observer]]:
        """Return (the view of the run, the run's observers).

        The Stepper is called first. So the run waits for Next before the view's hooks and the recorder are called.
        """
        config = named.session.config
        answers = config.route.answers
        head_for = functools.partial(
            head,
            tools=[tool.name for tool in config.tools],
            permissions=options["permissions"],
            output=config.output.name if config.output else None,
            session=options["session"] or None,
            tape=describe_source(config.route.model, answers, recorder),
            filled=filled,
        )

        def finish() -> Mapping[str, object]:
            if replaced is not None:
                replaced.settle()
            return bundle_conversation(options["session"], named) if options["keep_history"] else {}

        view = CellRun(
            cell,
            head_for(config.route.next_title),
            ViewOptions(
                name=options["as"],
                model=config.route.model,
                hint=" (with --as result)" if options["as"] is None else "",
                unattended=options["on_unattended"],
                means=options["ask"],
                raises=True,
                owns_cell=True,
                finish=finish,
            ),
        )
        observers: list[Observer | None] = [
            None if answers is None else ModelNotes(answers, view, head_for),
            Stepper(view, options["ask"]) if options["step"] else None,
            view.hooks,
            recorder,
            None if recorder is None else RecordingNotes(recorder, view),
        ]
        return view, [observer for observer in observers if observer is not None]

    def _note_without_docstring(self, tools: tuple[Tool, ...]) -> list[Block]:
        """Return a note about tools without a docstring; [] if earlier notes have named all of them."""
        new = [t.name for t in tools if not t.description and t.name not in self._without_docstring]
        self._without_docstring.update(new)
        return [notice(f"no docstring, so the model gets no description of: {', '.join(new)}")] if new else []

    def _keep(self, result: Result | Rows | None, variable: str | None) -> None:
        if result is not None:
            live.mark_shown(result)
        if variable is not None:
            self.names[variable] = result
