"""The sum of `./dev test` also names test files that cannot be imported, and steps that did not reach their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import progress

STEP = "1/1 some"
CONFTEST = f"""
from support.progress import Progress

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress({STEP!r}, "tally"))
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest with the progress line on test files. Return the line that it wrote to the tally, and its stderr."""

    def start(files, *options):
        for name, text in {"conftest.py": CONFTEST, **files}.items():
            (tmp_path / name).write_text(text, "utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=120, check=False)
        return json.loads((tmp_path / "tally").read_text("utf-8")), ran.stderr.decode()

    return start


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "two processes"])
def test_a_file_that_cannot_be_imported_is_an_error(run, processes):
    """Such a file counts once as an error and is named, however many processes have tried it. A file that skips itself counts
    as skipped.
    """
    files = {
        "test_good.py": "def test_good(): pass\n",
        "test_broken.py": "import no_such_module_here\n",
        "test_left_out.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
    }
    left, printed = run(files, "--continue-on-collection-errors", *processes)
    assert left["counts"] == {"errors": 1, "skipped": 1, "passed": 1}
    assert "ERRORS test_broken.py" in printed
    assert f"{STEP}: 1 passed, 1 failed, 1 skipped" in printed


def test_a_step_that_was_used_wrongly_leaves_its_status(run):
    """A usage error during the collection of tests is in the tally, although no test has failed."""
    refuse = (
        "\ndef pytest_collection_modifyitems():\n    raise __import__('pytest').UsageError('misplaced')\n"
    )
    left, _ = run({"conftest.py": CONFTEST + refuse, "test_good.py": "def test_good(): pass\n"})
    assert (left["step"], left["status"]) == (STEP, pytest.ExitCode.USAGE_ERROR)


@pytest.fixture
def tell_sum(tmp_path, capsys):
    """Return the exit status and the last line of the sum of the steps, each `(name, status, counts)`. Two steps are expected."""

    def tell(*steps):
        lines = [
            json.dumps({"step": name, "status": status, "counts": counts, "seconds": {}})
            for name, status, counts in steps
        ]
        (tmp_path / "tally").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        status = progress.main(str(tmp_path / "tally"), "90", "1/2 one", "2/2 two")
        return status, capsys.readouterr().out.splitlines()[-1]

    return tell


def test_the_sum_over_whole_steps(tell_sum):
    """Counts are added, and errors count as failures. The status is 0: pytest's own status reports failures."""
    one, two = ("1/2 one", 0, {"passed": 3}), ("2/2 two", 1, {"passed": 1, "failed": 1, "errors": 2})
    assert tell_sum(one, two) == (0, "4 passed, 3 failed in 1.5 minutes")


def test_the_sum_names_a_step_that_left_nothing(tell_sum):
    """If a step was killed before its end, the last line names it, and the status is 1."""
    found = tell_sum(("1/2 one", 0, {"passed": 3}))
    assert found == (1, "3 passed, 0 failed in 1.5 minutes; 2/2 two ended without counts")


def test_the_sum_names_a_step_that_did_not_come_to_its_end(tell_sum):
    """If a step ended with another status than "all ran", the last line names it with this status."""
    found = tell_sum(("1/2 one", 0, {"passed": 3}), ("2/2 two", 4, {}))
    assert found == (1, "3 passed, 0 failed in 1.5 minutes; 2/2 two ended with status 4")
