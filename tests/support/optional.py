"""Programs that a machine may lack. Without them, a test is skipped; in CI it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",  # it will not start as root otherwise
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def optional(found: Any, what: str) -> Any:
    """Return `found` if it is there. If not, skip the test (in CI: fail it), with a message that `what` is missing."""
    if found:
        return found
    if in_ci():
        pytest.fail(f"{what} is missing, and CI has to have it")
    pytest.skip(f"{what} is missing")


def find_chromium() -> str | None:
    """Return the browser that `./dev test` has found or installed, or one on the PATH."""
    given = os.environ.get("TOOLLOOP_CHROMIUM") or os.environ.get("CHROMIUM")
    return given or next(filter(None, map(shutil.which, BROWSERS)), None)


def find_python(version: str) -> str | None:
    """Return a Python of this minor version ("3.12") that runs: pyenv's, or the one on the PATH."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [str(p) for p in sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)]
    if on_path := shutil.which(f"python{version}"):
        candidates.append(on_path)
    probe = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        ran = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
        if ran.stdout.strip() == version:
            return candidate
    return None
