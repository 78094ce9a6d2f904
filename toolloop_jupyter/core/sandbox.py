"""The folder whose changes a turn reports.

`sandbox=` is part of LiteLLM's common agent API; for the Tool Loop it does not confine the tools, which are Python
functions of this process. It says in which folder to look for changed files. LiteLLM's own sandboxes are taken too:
what counts is `snapshot()` and `read()`. What a tool or a set-up may call on a sandbox besides (`run`, `write`, …) is
LiteLLM's (1.110), but for `exec`, which hands a runtime's pipes to its harness.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .errors import CapabilityUnsupported, SandboxError
from .events import FileChange, FileChangeKind
from .hiding import names_key
from .running import attempt

SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "venv",
        "node_modules",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
    }
)
MOST_FILE = 50 * 1024 * 1024
"""Bytes; larger files are not looked at (LiteLLM's limit, 1.110)."""
MOST_DIFF = 256 * 1024
"""Bytes; larger files are reported without a diff."""
MOST_KEPT = 16 * 1024 * 1024
"""Bytes of text kept from before a turn, for its diffs."""


@runtime_checkable
class Sandbox(Protocol):
    """What the loop needs of a sandbox."""

    workdir: str

    async def snapshot(self) -> Mapping[str, str]: ...

    async def read(self, path: str) -> bytes: ...


@dataclass(frozen=True)
class CompletedRun:
    """What came of a command (LiteLLM's fields)."""

    stdout: str
    stderr: str
    exit_code: int


class LocalSandbox:
    """A local folder. It does not confine anything."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises SandboxError when `path` is no folder."""
        self.workdir = os.path.realpath(os.fspath(path))
        if not Path(self.workdir).is_dir():
            raise SandboxError(f"sandbox path does not exist or is not a directory: {self.workdir}")
        self._temporary: list[str] = []

    def __repr__(self) -> str:
        return f"LocalSandbox({self.workdir!r})"

    async def snapshot(self) -> Mapping[str, str]:
        """Relative POSIX path -> sha256 of every regular file; links are not followed."""
        return await asyncio.to_thread(_hashes, self.workdir)

    def _inside(self, path: str) -> Path:
        target = Path(os.path.realpath(Path(self.workdir, path)))  # resolve() raises for a link to itself
        if not any(target.is_relative_to(root) for root in (self.workdir, *self._temporary)):
            raise SandboxError(f"path escapes the sandbox: {path}")
        return target

    async def read(self, path: str) -> bytes:
        """A file's bytes. Raises SandboxError for a path outside the folder or one that cannot be read."""
        target = self._inside(path)
        try:
            return await asyncio.to_thread(target.read_bytes)
        except OSError as error:
            raise SandboxError(f"could not read {path}: {error}") from error

    async def write(self, path: str, data: bytes) -> None:
        """Write a file, with the folders it needs. Raises SandboxError as `read` does."""
        target = self._inside(path)
        try:
            await asyncio.to_thread(_write, target, data)
        except OSError as error:
            raise SandboxError(f"could not write {path}: {error}") from error

    async def run(
        self,
        cmd: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
    ) -> CompletedRun:
        """Run a command in the folder, without the keys of this process in its environment, and with `env` on top.

        Raises SandboxError for a command that does not start, or takes longer than `timeout` seconds: it is ended then, as
        it is when the wait is cancelled.
        """
        # In threads: a Windows kernel's loop starts no processes.
        process = await asyncio.to_thread(_start, list(cmd), self._inside(cwd or "."), env)
        try:
            out, err = await asyncio.wait_for(asyncio.to_thread(process.communicate), timeout)
        except asyncio.TimeoutError:
            raise SandboxError(f"command timed out after {timeout}s: {cmd[0]}") from None
        finally:
            if process.poll() is None:
                process.kill()
        return CompletedRun(
            out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), process.returncode
        )

    async def which(self, binary: str) -> str | None:
        """The path of a program, or None."""
        return shutil.which(binary)

    async def tempdir(self) -> str:
        """A new folder beside this one, for what is not to be looked at; removed by `close`."""
        self._temporary.append(_temporary_folder())
        return self._temporary[-1]

    def host_url(self, port: int) -> str:
        """The address of a server on this machine."""
        return f"http://127.0.0.1:{port}"

    async def close(self) -> None:
        """Remove what `tempdir` has made."""
        while self._temporary:
            shutil.rmtree(self._temporary.pop(), ignore_errors=True)

    async def __aenter__(self) -> LocalSandbox:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def local(path: str | os.PathLike[str]) -> LocalSandbox:
    """The folder `path` as a sandbox, as `litellm.sandbox.local`."""
    return LocalSandbox(path)


def docker(*args: object, **keywords: object) -> None:
    """Not here: raises CapabilityUnsupported. LiteLLM's own is taken, for the changed files in its folder."""
    raise CapabilityUnsupported(
        "sandbox.docker would confine nothing here: the Tool Loop's tools are functions of this process. Use "
        "sandbox.local(path), or start the tools' own commands with docker"
    )


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def _temporary_folder() -> str:
    return os.path.realpath(tempfile.mkdtemp(prefix="toolloop-"))


def _start(cmd: list[str], folder: Path, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(  # noqa: S603 - to run a command is what it is for
            cmd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=folder, env=_environment(env)
        )
    except (OSError, IndexError) as error:
        raise SandboxError(f"could not start {cmd}: {error}") from error


_PROVIDERS = ("ANTHROPIC_", "OPENAI_", "LITELLM_", "AZURE_", "AWS_", "GEMINI_", "GOOGLE_A", "VERTEX")


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (names_key(name) or name.upper().startswith(_PROVIDERS))
    }
    return {**kept, **(extra or {})}


def as_sandbox(sandbox: Any) -> Any:
    """The sandbox itself, ours or LiteLLM's; a path becomes a local one. Raises TypeError for anything else."""
    if sandbox is None or isinstance(sandbox, Sandbox):
        return sandbox
    if isinstance(sandbox, str | os.PathLike):
        return LocalSandbox(sandbox)
    raise TypeError(
        f"sandbox must be sandbox.local(path), a path or None, got {type(sandbox).__name__} {sandbox!r}"
    )


def _hashes(root: str) -> dict[str, str]:
    found = {}
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in names:
            path = Path(folder, name)
            try:
                if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_FILE:
                    continue
                found[path.relative_to(root).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                continue
    return found


class Watch:
    """What a folder looked like before a turn, to say afterwards what changed."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self._before: Mapping[str, str] = {}
        self._texts: dict[str, str] = {}

    async def start(self) -> None:
        if self._sandbox is None:
            return
        self._before = await self._sandbox.snapshot()
        kept = 0
        for path in sorted(self._before):
            if kept >= MOST_KEPT:
                break
            text = await self._text(path)
            if text is not None:
                self._texts[path] = text
                kept += len(text)

    async def changes(self) -> list[FileChange]:
        """The files created, modified and deleted since `start`, by path."""
        if self._sandbox is None:
            return []
        after = await self._sandbox.snapshot()
        changed = sorted(p for p in {*self._before, *after} if self._before.get(p) != after.get(p))
        return [await self._change(path, after) for path in changed]

    async def _change(self, path: str, after: Mapping[str, str]) -> FileChange:
        kind: FileChangeKind = (
            "created" if path not in self._before else "deleted" if path not in after else "modified"
        )
        old = self._texts.get(path)
        new = await self._text(path) if kind != "deleted" else None
        if (kind != "created" and old is None) or (kind != "deleted" and new is None):
            return FileChange(path, kind)
        return FileChange(path, kind, _diff(path, old, new))

    async def _text(self, path: str) -> str | None:
        """The file's text, or None for a binary, large or unreadable one."""
        outcome = await attempt(self._sandbox.read(path))
        data = outcome.value
        if outcome.error is not None or len(data) > MOST_DIFF or b"\0" in data:
            return None
        try:
            return str(data.decode("utf-8"))
        except UnicodeDecodeError:
            return None


def _diff(path: str, old: str | None, new: str | None) -> str:
    lines = difflib.unified_diff(
        (old or "").splitlines(keepends=True),
        (new or "").splitlines(keepends=True),
        "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
