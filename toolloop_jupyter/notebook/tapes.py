"""Recordings and scripts in a notebook: which file a cell records to or is answered from, also when cells run again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.observer import Observer

if TYPE_CHECKING:
    from ..core.model import Reply
    from ..teaching.recording import Recorder, Replay
    from .blocks import Block
    from .live import View


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
        from ..teaching.recording import Recorder

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
        from ..teaching.recording import Replay

        wanted = Path(path).resolve() if path else self.playing
        assert wanted is not None
        known = self._replays.get(wanted)
        if known is None or not known.is_current():
            known = self._replays[wanted] = Replay(wanted)
        known.loose = loose
        return known

    def go_back(self, answers: Any, cell_id: str | None, execution: str) -> None:
        """Let a script or recording go on from where this cell began, when the cell has run before.

        Without an id of the cell (some front-ends send none) it just goes on; so do several runs in one execution.
        """
        if cell_id is None or not hasattr(answers, "position"):
            return
        began = self._began.setdefault(answers, {})
        position, last = began.get(cell_id, (answers.position, execution))
        if last != execution:
            answers.position = position
        began[cell_id] = (position, execution)


def said(recorder: Recorder | None, answers: Any) -> str:
    """What a cell's head says of a recording: that it is made, or that it answers."""
    from ..teaching.recording import Replay

    told = [f"replayed from {answers.path.name}"] if isinstance(answers, Replay) else []
    told += [f"recording to {recorder.path.name}"] if recorder is not None else []
    return ", ".join(told)


class FollowsReplay(Observer):
    """Says in a run's transcript which model was recorded, and, once, that a loose replay answers another request."""

    def __init__(self, replay: Replay, view: View, head_for: Callable[[str], Block]) -> None:
        """`head_for(model)` is the run's head: cells may run in another order than the recorded one."""
        self._replay, self._view, self._head_for = replay, view, head_for
        self._known = len(replay.differences)
        self._said = False

    async def after_model(self, reply: Reply) -> None:
        self._view.show_head(self._head_for(self._replay.recorded_model))
        new = self._replay.differences[self._known :]
        if new and not self._said:
            self._said = True
            await self._view.say(f"not as recorded, going on (--replay-loose): {new[0]}", "warning")
