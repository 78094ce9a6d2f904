"""The kernels that people have. Each is built in an environment of its own under build/stacks.

With `TOOLLOOP_STACK_COLAB=/path/to/python` (the same for each name), an existing environment is used, unchanged. Without it,
the package is installed from the wheel that `TOOLLOOP_WHEEL` names, or from this source tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .optional import find_python, optional

try:
    import fcntl
except ImportError:  # Windows has no such lock: run one process at a time there
    fcntl = None  # type: ignore[assignment]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Stack:
    """A Python version and the pinned packages. All other packages are as new as these allow."""

    name: str
    python: str
    pins: tuple[str, ...]
    why: str


_SERVERS = ("mcp>=2,<3", "mcp-server-time>=2026.10")
"""The requirements for MCP: the extra, and a public server that needs no network."""
STACKS = (
    Stack(
        "colab",
        "3.12",
        (*_SERVERS, "ipykernel==6.17.1", "ipython==7.34.0", "ipywidgets==7.7.1", "pydantic==2.13.*"),
        "Colab",
    ),
    Stack(
        "py310",
        "3.10",
        (*_SERVERS, "ipykernel==6.31.*", "ipython==8.*", "ipywidgets==8.*"),
        "long-lived environments, VS Code",
    ),
    Stack("py311", "3.11", (*_SERVERS, "ipykernel>=7.4", "ipython==9.*", "ipywidgets==8.*"), "new installs"),
    Stack("py313", "3.13", (*_SERVERS, "ipykernel>=7.4", "ipython==9.*", "ipywidgets==8.*"), "new installs"),
)


def _oldest(package: str) -> str:
    """Return the requirement of exactly the oldest version that the package's metadata allows."""
    found = re.search(rf'"{package}>=([\d.]+)', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert found, f"pyproject.toml says nothing of the oldest {package}"
    return f"{package}=={found[1]}"


FLOOR = Stack(
    "floor",
    "3.10",
    (
        _oldest("litellm"),
        _oldest("pydantic"),
        *("pytest", "pytest-asyncio", "pytest-timeout"),
    ),
    "the oldest LiteLLM, for the parity suite",
)


@dataclass(frozen=True)
class Built:
    """A stack with its environment. `python` is the executable of the environment."""

    stack: Stack
    python: str

    @property
    def name(self) -> str:
        return self.stack.name


def build(stack: Stack) -> Built:
    """Make the stack's environment, or update it."""
    return Built(stack, _python_of(stack))


def _python_of(stack: Stack) -> str:
    given = os.environ.get(f"TOOLLOOP_STACK_{stack.name.upper()}")
    if given:
        return given
    base = optional(find_python(stack.python), f"Python {stack.python} (for the stack {stack.name!r})")
    source = os.environ.get("TOOLLOOP_WHEEL") or str(ROOT)
    folder = ROOT / "build" / "stacks" / stack.name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    around = f"{base} {stack.pins} {_digest([ROOT / 'pyproject.toml'])}"
    wanted, stamp = f"{around} {_fingerprint(Path(source))}", folder / "stamp"
    with hold_lock(folder):
        made = stamp.read_text("utf-8") if stamp.exists() else ""
        if made == wanted:
            return str(python)
        if made.startswith(f"{around} "):  # only the package has changed
            _install(str(python), "--no-deps", "--force-reinstall", source)
        else:
            print(f"building the stack {stack.name} ({stack.why}) …", file=sys.stderr, flush=True)
            make_environment(base, folder, source, *stack.pins)
        stamp.write_text(wanted, "utf-8")
    return str(python)


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Let only one process at a time build the environment in this folder. Tests run in several processes (pytest-xdist)."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_environment(base: str, folder: Path, *requirements: str) -> None:
    """Make a new environment of the Python `base`, with the required packages. It has pip only if there is no uv."""
    shutil.rmtree(folder, ignore_errors=True)
    _run(base, "-m", "venv", *(["--without-pip"] if _find_uv() else []), str(folder))
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    _install(str(python), *requirements)


def _find_uv() -> str | None:
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


def _install(python: str, *requirements: str) -> None:
    """Install with uv. If Python may write bytecode, it later compiles only the files that it imports, a third of all. If not,
    all files are compiled now, because litellm without bytecode takes seconds more to import.
    """
    if uv := _find_uv():
        _run(
            *(uv, "pip", "install", "--quiet", "--refresh-package", "toolloop-jupyter"),
            *("--python", python, *requirements),
            UV_COMPILE_BYTECODE=str(sys.dont_write_bytecode).lower(),
        )
    else:
        _run(python, "-m", "pip", "install", "--quiet", *requirements)


def _run(*command: str, **variables: str) -> None:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200, env=environment)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"


def _fingerprint(source: Path) -> str:
    """Return a text that changes with the wheel or, if the package comes from this tree, with its files."""
    files = (
        [source]
        if source.is_file()
        else [source / "pyproject.toml", *sorted(source.glob("toolloop_jupyter/**/*.py"))]
    )
    return _digest(files)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
