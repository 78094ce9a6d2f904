"""Recordings in a notebook: which file a cell records to or is answered from, also when cells run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..teaching.recording import Recorder, Replay


class Tapes:
    """The recordings of one kernel. Cells that name the same file share it: a notebook is one recording."""

    def __init__(self) -> None:
        self._recorders: dict[Path, Recorder] = {}
        self._replays: dict[Path, Replay] = {}
        self._began: dict[tuple[Path, str], int] = {}
        self.always: Path | None = None
        """The file of `%toolloop record on FILE`, which every run of the notebook is recorded to."""

    def recorder(self, path: str | None) -> Recorder | None:
        """The recorder of a cell with `--record path`, or of the whole notebook; None when nothing is recorded.

        The first cell of a kernel begins the file anew; the next ones go on in it.
        """
        from ..teaching.recording import Recorder

        wanted = Path(path).absolute() if path else self.always
        if wanted is None:
            return None
        if wanted not in self._recorders:
            self._recorders[wanted] = Recorder(wanted)
        return self._recorders[wanted]

    def replay(self, path: str, cell_id: str | None, *, loose: bool) -> Replay:
        """The model of a cell with `--replay path`. A cell that runs again goes back to where it began."""
        from ..teaching.recording import Replay

        wanted = Path(path).absolute()
        if wanted not in self._replays:
            self._replays[wanted] = Replay(wanted, loose=loose)
        found = self._replays[wanted]
        found.loose = loose
        if cell_id is not None:
            found.position = self._began.setdefault((wanted, cell_id), found.position)
        return found
