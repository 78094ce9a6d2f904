"""Writing a text to a file: the whole text is written or nothing, whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.disks import full_disk
from toolloop_jupyter.core.text import write_whole


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path: Path) -> None:
    """The error has the reason and the given path. The old text stays, and no second file is left."""
    path = tmp_path / "a.json"
    write_whole(path, "old")
    with full_disk(1_000), pytest.raises(OSError, match="too large") as caught:
        write_whole(path, "new" * 1_000)
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no rights of owner, group and others")
def test_a_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    """If the path is a link, its target is written. The file keeps its permissions."""
    path, link = tmp_path / "a.md", tmp_path / "b.md"
    write_whole(path, "old")
    path.chmod(0o600)
    link.symlink_to(path)
    write_whole(link, "new \ud800")
    assert link.is_symlink()
    assert path.read_text() == "new \\ud800"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """If the path is a folder, an error names it, and the folder stays."""
    with pytest.raises(PermissionError if os.name == "nt" else IsADirectoryError):
        write_whole(tmp_path, "text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_is_written(tmp_path: Path) -> None:
    """The text is written to the device itself, and an error names it: `/dev/full` is always full."""
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_whole("/dev/full", "text")
    write_whole("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """If the path is a named pipe, an error is raised at once. If nobody reads the pipe, the run would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="It is a pipe"):
        write_whole(tmp_path / "pipe", "text")


def test_a_file_that_may_not_be_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that its owner has made read-only is not replaced, although the permissions of its folder would allow it."""
    path = tmp_path / "a.md"
    path.write_text("old")
    path.chmod(0o400)
    # The tests may run as root, who may write all files.
    monkeypatch.setattr(
        os, "access", lambda file, mode: not (mode & os.W_OK) or Path(file).stat().st_mode & 0o200
    )
    with pytest.raises(PermissionError) as caught:
        write_whole(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"


def test_two_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads write the same file at the same time: both succeed, and the file has the text of the thread that renamed
    last.
    """
    path, rename = tmp_path / "a.md", Path.replace

    def write_another(aside: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", rename)
        write_whole(path, "second")
        return rename(aside, target)

    monkeypatch.setattr(Path, "replace", write_another)
    write_whole(path, "first")
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["a.md"]


def test_a_long_name(tmp_path: Path) -> None:
    """A file can be written if its name has the greatest length that the file system accepts."""
    write_whole(tmp_path / ("a" * 250 + ".md"), "text")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["text"]
