"""The parity suite on the oldest LiteLLM that the package allows. On the newest one, it runs with all other tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import stacks


@pytest.mark.stacks
@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_parity_with_the_oldest_litellm(repository):
    """There, too, every scenario is the same or better, and the tests of the differences pass."""
    floor = stacks.build(stacks.FLOOR)
    wanted = stacks.FLOOR.pins[0].partition("==")[2]
    asked = [floor.python, "-c", "import importlib.metadata as m; print(m.version('litellm'))"]
    printed = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    assert printed == wanted or printed.startswith(f"{wanted}.")
    # `-m pytest` is not used, because it would put the source tree before the installed package.
    pytest_there = str(Path(floor.python).with_name("pytest"))
    ran = subprocess.run(
        [
            pytest_there,
            "-q",
            "-W",
            "ignore",
            "-p",
            "no:cacheprovider",
            "-m",
            "not stacks",
            "tests/system/parity",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        cwd=repository,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout.splitlines()[-1]
