"""Run one `%%toolloop` cell: make a session from the cell's options and the defaults, run one turn, and show the run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import keyword
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ...core.tools import find_marked_tools
from ...teaching import Recorder, Replay
from .. import kernel, live
from ..live import CellRun, Stepper, ViewOptions, draw_request
from ..transcript import draw_head, draw_notice, make_bundle
from .names import (
    find_attached,
    find_file,
    find_named,
    holds_rows,
    leave_out_other_rules,
    look_up,
    note_unknown_names,
    read_template,
    resolve,
)
from .options import OPTIONS, Options, ToolLoop, replace_keywords
from .rows import RowsPage, tell_size_of_rows
from .sessions import NamedSession, ReplacedTurns, bundle_conversation

if TYPE_CHECKING:
    from ...core.events import ModelCallFailed, Reply
    from ...core.models import Answers
    from ..transcript import Block

    HeadFor = Callable[[str], Block]
    """Takes the model's title, and returns the line above a run."""


# --- recordings and scripts: which file a cell records to or replays, and where it begins when it runs again -----


class Tapes:
    """Keeps one Recorder and one Replay for each file. All cells of the kernel that name this file share them."""

    def __init__(self) -> None:
        self._recorders: dict[Path, Recorder] = {}
        self._replays: dict[Path, Replay] = {}
        self._began: weakref.WeakKeyDictionary[object, dict[str, tuple[int, str]]] = (
            weakref.WeakKeyDictionary()
        )
        self.recording_to: Path | None = None
        """The FILE of `%toolloop record on FILE`: all runs of the notebook are recorded to it. None if `record` is off."""
        self.replaying_from: Path | None = None
        """The FILE of `%toolloop replay on FILE`: all runs of the notebook are answered from it. None if `replay` is off."""

    def record_all(self, file: Path | None) -> None:
        """Record all runs of the notebook to `file`; None: stop recording. Raises RecordingError if `file` cannot be written."""
        if file is not None:
            self.recorder(file)
        self.recording_to = file

    def replay_all(self, file: Path | None) -> Replay | None:
        """Answer all runs from `file`, and return its Replay; None: stop this. Raises RecordingError if `file` cannot be read."""
        replay = self.replay(file) if file is not None else None
        self.replaying_from = file
        return replay

    def recorder(self, path: str | Path | None) -> Recorder | None:
        """Return the Recorder for the file `path`; without `path`, for the file `recording_to`; None if there is no file.

        The first run that this kernel records to a file overwrites the file. Later runs are added.
        """
        file = find_file(path) if path else self.recording_to
        if file is not None and file not in self._recorders:
            self._recorders[file] = Recorder(file, on_stop=lambda _: None)  # `TapeNotes` shows why
        return self._recorders[file] if file else None

    def replay(
        self, path: str | Path | None, *, loose: bool = False, plays_tools: bool = False
    ) -> Replay | None:
        """Return the Replay of the file `path`; without `path`, of the file `replaying_from`; None if there is no file."""
        file = find_file(path) if path else self.replaying_from
        if file is None:
            return None
        replay = self._replays.get(file)
        if replay is None or not replay.is_current():  # the file has changed since it was read
            replay = self._replays[file] = Replay(file)
        replay.play_as(loose=loose, plays_tools=plays_tools)
        return replay

    def go_back(self, answers: Answers | None, cell_id: str | None, execution: str) -> None:
        """If the cell has run before, set `answers` (a script or Replay) back to where the cell's first run began.

        Do nothing if `cell_id` is None, or if both runs belong to the same `execution` of the cell (a loop in it).
        """
        if answers is None or cell_id is None or answers.position is None:
            return
        began = self._began.setdefault(answers, {})
        position, last = began.get(cell_id, (answers.position, execution))
        if last != execution:
            answers.continue_at(position)
        began[cell_id] = (position, execution)


class CellTape:
    """The script or Replay that answers a cell's run, and the Recorder of the run. Each is None if the run has none."""

    def __init__(self, model: str, answers: Answers | None, recorder: Recorder | None) -> None:
        self._model, self.answers, self._recorder = model, answers, recorder
        self._before = len(answers.differences) if answers else 0
        self._told: set[str] = set()

    @property
    def source(self) -> str:
        """The words in the line above a run that name a demonstration, a replay or a recording; "" for any other run."""
        parts = ["a demonstration, no language model"] if self._model == DEMO_MODEL else []
        if isinstance(self.answers, Replay):
            tools = " with its tools" if self.answers.plays_tools else ""
            parts.append(f"replayed from {self.answers.path.name}{tools}")
        if self._recorder is not None:
            parts.append(f"recording to {self._recorder.path.name}")
        return ", ".join(parts)

    def list_warnings(self) -> list[str]:
        """Return those warnings that are new: a request of this run differs from the recorded one; the recording has stopped."""
        first = self.answers.differences[self._before :][:1] if self.answers else []
        differs = "a request differs from the recorded one; the run continues (--replay-loose)"
        stopped = self._recorder.stopped if self._recorder else ""
        warnings = [*(f"{differs}: {one}" for one in first), *([stopped] if stopped else [])]
        fresh = [one for one in warnings if one not in self._told]
        self._told.update(fresh)
        return fresh


class TapeNotes(Observer):
    """Writes into the line above a run which model of the recording answers. Shows the warnings of the CellTape below."""

    def __init__(self, tape: CellTape, view: CellRun, head_for: HeadFor) -> None:
        self._tape, self._view, self._head_for = tape, view, head_for

    async def after_model(self, reply: Reply) -> None:
        if self._tape.answers is not None:  # each call of a recording may have another model
            self._view.head.replace(self._head_for(self._tape.answers.title))
        await self._warn()

    async def model_failed(self, error: ModelCallFailed) -> None:
        await self._warn()

    async def _warn(self) -> None:
        for words in self._tape.list_warnings():
            await self._view.say(words, "warning")


# --- one run --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _in_words_of_options(
    errors: tuple[type[Exception], ...] = (ArgumentInvalid, ArgumentTypeInvalid),
) -> Iterator[None]:
    """Inside a `with` block, turn `errors` about the Python API's arguments into Mistakes about the cell's options."""
    try:
        yield
    except errors as error:
        raise Mistake(replace_keywords(str(error))) from None


class Notebook:
    """The state of `%%toolloop` in one kernel: settings, sessions, recordings."""

    def __init__(self, shell: Any, settings: ToolLoop) -> None:
        self._shell = weakref.proxy(shell)
        self.settings = settings
        self.sessions: dict[str, NamedSession] = {}
        self.tapes = Tapes()
        self._without_docstring: set[str] = set()
        """The names of the tools whose missing docstring a note has already mentioned."""

    @property
    def names(self) -> dict[str, Any]:
        """The notebook's variables."""
        names: dict[str, Any] = self._shell.user_ns
        return names

    @property
    def autoawait(self) -> bool:
        """True if `await` works in the shell's cells (`%autoawait`)."""
        return bool(self._shell.autoawait)

    def new_session(self, typed: Mapping[str, object]) -> AsyncSession:
        """Return a new session. The options in `typed` win over the settings. Raises Mistake, or another one-line error."""
        return self._make_session(self.settings.complete(typed))

    def check(self, typed: Mapping[str, object]) -> None:
        """Raise Mistake if the options in `typed` are not valid for a cell. The variable for `--model` need not exist yet."""
        self._make_session(
            {**ToolLoop().complete({"tools": [], **typed}), "model": DEMO_MODEL, "api_base": None}
        )

    def _make_session(self, options: Options, prompt: str = "") -> AsyncSession:
        """Return a session with these options. `prompt` serves only to choose the tools for `--replay-tools`."""
        with _in_words_of_options():
            return aagent_session(Harness.TOOL_LOOP, **self._keywords(options, prompt))

    def _keywords(self, options: Options, prompt: str) -> dict[str, Any]:
        """Return the keyword arguments of `aagent_session` for these options. `Option.keyword` has the name of each argument."""
        keywords: dict[str, Any] = {"options": {}}
        plays_tools = bool(options["replay_tools"])
        replay = self.tapes.replay(options["replay"], loose=options["replay_loose"], plays_tools=plays_tools)
        if plays_tools and replay is None:
            raise Mistake(
                "--replay-tools needs a recording: --replay FILE, or %toolloop replay on FILE before"
            )
        from_tape = {"model", "api_base", "api_key", "options.fallback"} if replay else set()
        from_tape |= {"tools"} if plays_tools else set()
        # Sorted by the number of dots in `keyword`: `--set` comes after the options for one completion option, and wins. Such an
        # option may be a setting of the notebook, but `--set` always stands in the cell.
        for option in sorted(OPTIONS, key=lambda row: row.keyword.count("."), reverse=True):
            if not option.keyword or option.is_of_rows or option.keyword in from_tape:
                continue
            value: Any = resolve(option, options[option.name], self.names)
            if value is not None:
                *path, last = option.keyword.split(".")
                within = functools.reduce(lambda inner, part: inner.setdefault(part, {}), path, keywords)
                within[last] = {**within.get(last, {}), **value} if isinstance(value, dict) else value
        if replay is not None:
            keywords["model"] = replay
            # A model call that failed in the recording fails again. The answer of the fallback model is the next call in the
            # recording. So the replay itself is the fallback.
            keywords["options"]["fallback"] = [replay] * len(options["fallback"] or ())
            if plays_tools:
                keywords["tools"] = replay.find_tools(prompt)
        if "tools" not in keywords:
            keywords["tools"] = find_marked_tools(self.names)
        named = self.sessions.get(options["session"] or "")
        keywords["permissions"] = leave_out_other_rules(
            keywords["permissions"], self.names, keywords["tools"], named.had if named else ()
        )
        return {**keywords, "options": ToolLoopOptions(**keywords["options"])}

    async def run(self, typed: Options, body: str) -> Result | Rows | None:
        """Run a cell. Return its Result; with `--each`, its Rows; for a dry run, None. A wrong cell raises Mistake at once."""
        if for_all := next((o for o in OPTIONS if o.scope == "kernel" and o.name in typed), None):
            flag = for_all.typed[-1]
            raise Mistake(
                f"{flag} is for all runs of the notebook together; write %toolloop {flag} {typed[for_all.name]}"
            )
        variable = typed.get("as")
        if variable is not None and (not variable.isidentifier() or keyword.iskeyword(variable)):
            raise Mistake(f"--as {variable!r} is not a variable name; write for example: --as result")
        for_rows = [o.typed[-1] for o in OPTIONS if o.is_of_rows and o.name in typed]
        if for_rows and "each" not in typed:
            raise Mistake(f"{for_rows[0]} needs --each TABLE (a run for each row of a table)")
        if not body.strip():
            raise Mistake("the prompt is empty; write below the %%toolloop line what the model should do")
        cell = kernel.Cell.here()
        return await (self._run_rows if "each" in typed else self._run_turn)(typed, body, cell)

    async def _run_turn(self, typed: Options, body: str, cell: kernel.Cell) -> Result | None:
        with _in_words_of_options():
            files = [find_attached(name, self.names) for name in typed.get("attach", ())]
            prompt = read_prompt([*files, read_template(body, self.names)], kernel.name_cells)
        before = self.sessions.get(self.settings.complete(typed)["session"] or "")
        # If the cell ran before, its turn is replaced, and the later turns are dropped.
        turn = before.turn_of(cell.cell_id, cell.execution) if before and "append" not in typed else None
        given = {**before.find_lasting(turn), **typed} if before else typed
        options = self.settings.complete(given)
        if options["dry_run"]:
            await self._dry_run(options, prompt, cell, turn)
            return None
        # Make the recorder first. If its file cannot be written, the cell fails before anything runs.
        recorder = self.tapes.recorder(options["record"])
        made = self._make_session(options, body)
        with _in_words_of_options((CapabilityUnsupported,)):
            prompt = await made.prepare(prompt)
        named, notes = self._go_on(made, options, going_back=turn is not None)
        config = named.session.config
        if not options["append"]:
            self.tapes.go_back(config.route.answers, cell.cell_id, cell.execution)
        replaced = named.go_back(turn) if turn is not None else None
        if options["session"]:
            if cell.cell_id is None and not options["append"] and kernel.has_stdin():
                notes += map(draw_notice, named.tell_that_turns_add_up(options["session"]))
            named.add(cell.cell_id, cell.execution, given)
        notes += self._list_notes(config, body, options["instructions"])
        async with kernel.serving_clicks():
            shown = self._show_turn(options, named, cell, prompt, recorder, replaced, notes)
            return await kernel.await_with_cleanup(shown)

    async def _dry_run(self, options: Options, prompt: Prompt, cell: kernel.Cell, turn: int | None) -> None:
        """Show the first request. This changes nothing: no session begins, no turn is replaced, no variable is set."""
        session, named = self._make_session(options), self.sessions.get(options["session"] or "")
        if named is not None:
            session = named.session.fork(session.config)
            if turn is not None:
                session.rewind(turn)
        with _in_words_of_options((CapabilityUnsupported,)):
            request = await session.preview(prompt)
        cell.display(make_bundle([draw_request(request, sent=False, title_of=session.config.route.title)]))

    def _go_on(
        self, made: AsyncSession, options: Options, *, going_back: bool
    ) -> tuple[NamedSession, list[Block]]:
        """Return (the cell's session, notes for the person). If the session existed, it gets the configuration of `made`."""
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
        note = draw_notice(f"session {name!r} had other tools before; it no longer has: {', '.join(gone)}")
        return named, [note] if gone else []

    async def _show_turn(
        self,
        options: Options,
        named: NamedSession,
        cell: kernel.Cell,
        prompt: Prompt,
        recorder: Recorder | None,
        replaced: ReplacedTurns | None,
        notes: Sequence[Block],
    ) -> Result:
        """Run one turn of a session, and show the turn in the cell. Raises OutputInvalid if no answer fitted `--output`."""
        route, variable = named.session.config.route, options["as"]
        tape = CellTape(route.model, route.answers, recorder)
        config = named.session.config
        head_for = _find_head(config, options, tape, session=options["session"], filled=prompt.filled)

        def finish() -> Mapping[str, object]:
            if replaced is not None:
                replaced.settle()
            return bundle_conversation(options["session"], named) if options["keep_history"] else {}

        shown = ViewOptions(
            name=variable,
            model=route.model,
            hint=" (with --as result)" if variable is None else "",
            unattended=options["on_unattended"],
            means=options["ask"],
            raises=True,
            owns_cell=True,
            finish=finish,
        )
        view = CellRun(cell, head_for(route.next_title), shown)
        # Step mode comes first: the run waits for Next before any other observer hears of the step.
        stepper, notes_of_tape = Stepper(view, options["ask"]), TapeNotes(tape, view, head_for)
        observers = [stepper] * options["step"] + [
            view.hooks,
            *([recorder] if recorder else []),
            notes_of_tape,
        ]
        output = view.output()
        if replaced is not None:
            output.draw(draw_notice(replaced.note))
        for note in notes:
            view.put(note)
        stream = named.session.astream(prompt, observers=observers)
        try:
            result = await view.follow(stream, stream.cancel)
        except OutputInvalid as error:
            self._keep(error.result, variable)
            raise
        finally:
            if replaced is not None and (kept := replaced.settle()):
                output.draw(draw_notice(kept, "warning"))
        self._keep(result, variable)
        return result

    def _list_notes(self, config: Config, *texts: str | None) -> list[Block]:
        """Return notes about tools without a docstring (each tool once), and about `{{name}}` in `texts` without a variable."""
        new = [t.name for t in config.tools if not t.description and t.name not in self._without_docstring]
        self._without_docstring.update(new)
        undescribed = f"no docstring, so the model gets no description of: {', '.join(new)}"
        left = (note for text in texts if text for note in note_unknown_names(text, self.names))
        return [*([draw_notice(undescribed)] if new else []), *(draw_notice(*note) for note in left)]

    def _keep(self, result: Result | Rows | None, variable: str | None) -> None:
        if result is not None:
            live.mark_shown(result)
        if variable is not None:
            self.names[variable] = result

    async def _run_rows(self, typed: Options, body: str, cell: kernel.Cell) -> Rows | None:
        """Run the prompt for each row of a table. Return the Rows; for a dry run, None. A wrong cell raises Mistake at once."""
        if wrong := next((o for o in OPTIONS if o.not_of_rows and o.name in typed), None):
            raise Mistake(f"{wrong.typed[-1]} does not go with --each: {wrong.not_of_rows}")
        options = self.settings.complete(typed)
        is_dry = options["dry_run"]
        recorder = None if is_dry else self.tapes.recorder(options["record"])
        config = self._make_session({**options, "session": "", "max_cost": None}).config
        if recorder is not None:
            config = dataclasses.replace(config, observers=(*config.observers, recorder))
        route = config.route
        tape = CellTape(route.model, route.answers, recorder)
        notes = [] if is_dry else self._list_notes(config, options["instructions"])
        page = RowsPage(
            cell,
            [_find_head(config, options, tape)(route.title), *notes],
            name=options["as"],
            unattended=options["on_unattended"],
            means=options["ask"],
            finish=lambda: [draw_notice(words, "warning") for words in tape.list_warnings()],
        )
        if not options["executor"]:  # another process (--executor) cannot show the page
            config = dataclasses.replace(config, observers=(*config.observers, page))
        with _in_words_of_options():
            run = self._make_rows_run(config, options, body, page)
            if is_dry:
                blocks = [draw_notice("there is no row: nothing would be sent")]
                if request := await run.preview():
                    first = draw_request(request, sent=False, title_of=route.title)
                    blocks = [first, draw_notice(tell_size_of_rows(request, run.total))]
                cell.display(make_bundle(blocks))
                return None
            self.tapes.go_back(route.answers, cell.cell_id, cell.execution)
            async with kernel.serving_clicks():
                return await kernel.await_with_cleanup(self._follow_rows(page, run, options["as"]))

    def _make_rows_run(self, config: Config, options: Options, body: str, page: RowsPage) -> RowsRun:
        of_rows = (option for option in OPTIONS if option.is_of_rows and option.keyword)
        keywords: dict[str, Any] = {o.keyword: resolve(o, options[o.name], self.names) for o in of_rows}
        return RowsRun(
            config,
            body,
            look_up(self.names, options["each"], "table", holds_rows),
            RowsOptions(**keywords, max_cost=options["max_cost"], variables=find_named(body, self.names)),
            ask=page.ask,
        )

    async def _follow_rows(self, page: RowsPage, run: RowsRun, variable: str | None) -> Rows:
        """Run all rows. `variable` gets the Rows, even after an error. Raises RunFailed if an error came before any answer."""
        try:
            await page.follow(run)
        finally:
            rows = run.rows
            self._keep(rows, variable)
        if rows.message not in ("", STOPPED) and not rows.progress.done:
            raise RunFailed(replace_keywords(rows.message))
        return rows


def _find_head(config: Config, options: Options, tape: CellTape, **more: Any) -> HeadFor:
    """Return a function that takes the model's title, and returns the line above a run."""
    return functools.partial(
        draw_head,
        tools=[tool.name for tool in config.tools],
        permissions=options["permissions"],
        output=config.output.name if config.output else None,
        tape=tape.source,
        **more,
    )
