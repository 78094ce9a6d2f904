"""Finds the files that a turn has changed in a folder.

`sandbox=` is a keyword of LiteLLM's agent API. In the Tool Loop, a sandbox does not confine the tools, because they are Python
functions of this process. It only names the folder that is searched for changed files: a path, or a sandbox object of LiteLLM.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..events import CapabilityUnsupported, FileChange, FileChangeKind, SandboxError
from ..execution import attempt, attempt_call, shorten_repr

SKIPPED = {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".ipynb_checkpoints"}
SKIPPED |= {".mypy_cache", ".pytest_cache", ".ruff_cache"}
MOST_FILE = 50 * 1024 * 1024
"""The largest number of bytes of a file. Larger files are ignored. LiteLLM 1.110 has the same limit."""
MOST_DIFF = 256 * 1024
"""The largest number of bytes of a file that gets a diff. Larger files are reported without a diff."""
MOST_KEPT = 16 * 1024 * 1024
"""How many characters of the files' old texts are kept at most during a turn. Diffs are made from these texts."""


@runtime_checkable
class Sandbox(Protocol):
    """The methods of a sandbox that the loop calls."""

    async def snapshot(self) -> Mapping[str, str]: ...

    async def read(self, path: str) -> bytes: ...


class LocalSandbox:
    """A local folder as a sandbox. It does not confine the tools."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises SandboxError if `path` is not a folder."""
        self.workdir = os.path.realpath(os.fspath(path))
        if not Path(self.workdir).is_dir():
            raise SandboxError(f"sandbox path does not exist or is not a directory: {self.workdir}")

    def __repr__(self) -> str:
        return f"LocalSandbox({self.workdir!r})"

    async def snapshot(self) -> Mapping[str, str]:
        """Return each regular file: relative POSIX path -> sha256. Links are not followed. Files above MOST_FILE and folders in
        SKIPPED are left out.
        """
        return await asyncio.to_thread(_hash_files, self.workdir)

    async def read(self, path: str) -> bytes:
        """Return a file's bytes. Raises SandboxError for a path outside the folder and for an unreadable file."""
        return await asyncio.to_thread(_read, self.workdir, path)

    async def __aenter__(self) -> LocalSandbox:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Do nothing. This class is a context manager because LiteLLM's sandboxes are."""


local = LocalSandbox
"""`sandbox.local(path)`: the folder `path` as a sandbox. LiteLLM has the same function."""


def docker(*args: object, **keywords: object) -> None:
    """Raise CapabilityUnsupported: a container would not confine the tools. But `sandbox=` takes LiteLLM's docker sandbox."""
    raise CapabilityUnsupported(
        "sandbox.docker would confine nothing here: the Tool Loop's tools are functions of this process. Use "
        "sandbox.local(path), or start the tools' own commands with docker"
    )


def make_sandbox(sandbox: object) -> Sandbox:
    """Return a sandbox object (ours or LiteLLM's) unchanged; for a path, a LocalSandbox. Raises TypeError for anything else."""
    if isinstance(sandbox, Sandbox):
        return sandbox
    if isinstance(sandbox, str | os.PathLike):
        return LocalSandbox(sandbox)
    raise TypeError(
        f"sandbox must be sandbox.local(path), a path or None, got {type(sandbox).__name__} {shorten_repr(sandbox, 500)}"
    )


def _read(root: str, path: str) -> bytes:
    target = Path(os.path.realpath(Path(root, path)))  # `Path.resolve` raises an error for a link to itself
    if not target.is_relative_to(root):
        raise SandboxError(f"path escapes the sandbox: {path}")
    try:
        return target.read_bytes()
    except OSError as error:
        raise SandboxError(f"could not read {path}: {error}") from error


def _hash_files(root: str) -> dict[str, str]:
    hashes = {}
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in names:
            path = Path(folder, name)
            try:
                if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_FILE:
                    continue
                hashes[path.relative_to(root).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                continue
    return hashes


class Watch:
    """Remembers the files of a folder before a turn, and lists their changes after the turn."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._before: Mapping[str, str] = {}
        self._texts: dict[str, str] = {}

    async def start(self) -> None:
        self._before = await self._sandbox.snapshot()
        left = MOST_KEPT
        for path in sorted(self._before):
            if left > 0 and (text := await self._text(path)) is not None:
                self._texts[path] = text
                left -= len(text)

    async def changes(self) -> list[FileChange]:
        """Return the files that were created, modified or deleted since `start`, sorted by path."""
        before, after = self._before, await self._sandbox.snapshot()
        changes = []
        for path in sorted(p for p in {*before, *after} if before.get(p) != after.get(p)):
            kind: FileChangeKind = (
                "created" if path not in before else "deleted" if path not in after else "modified"
            )
            old = self._texts.get(path)
            new = await self._text(path) if kind != "deleted" else None
            if (kind != "created" and old is None) or (kind != "deleted" and new is None):
                changes.append(FileChange(path, kind))
            else:
                changes.append(FileChange(path, kind, _make_diff(path, old, new)))
        return changes

    async def _text(self, path: str) -> str | None:
        """Return the file's text; None if the file is binary, larger than MOST_DIFF or unreadable."""
        outcome = await attempt(self._sandbox.read(path))
        if outcome.error is not None or len(outcome.value) > MOST_DIFF or b"\0" in outcome.value:
            return None
        text = attempt_call(str, outcome.value, "utf-8")
        return text if isinstance(text, str) else None


def _make_diff(path: str, old: str | None, new: str | None) -> str:
    lines = difflib.unified_diff(
        (old or "").splitlines(keepends=True),
        (new or "").splitlines(keepends=True),
        "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
