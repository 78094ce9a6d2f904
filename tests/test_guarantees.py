"""The tests that the list of guarantees names exist. So do the tests that the pages of the repository name."""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
GUARANTEES = TESTS / "GUARANTEES.md"
PAGES = [
    TESTS.parent / "README.md",
    TESTS.parent / "CONTRIBUTING.md",
    *sorted((TESTS.parent / "docs").glob("*.md")),
]


def named_tests(text):
    """Return (file, pattern or "") for each test that a text names: `a/test_b.py`, `a/test_b.py::test_c`, then `…::test_d_*`."""
    file = ""
    for path, name in re.findall(r"`([\w/]*\btest_\w+\.py|…)(?:::(\w+\*?))?`", text):
        file = file if path == "…" else path
        yield file, name


def missing(file, name):
    """Return the file or the test that does not exist; None if both exist."""
    path = TESTS / file
    if not path.is_file():
        return file
    functions = [n.name for n in ast.walk(ast.parse(path.read_text("utf-8"))) if getattr(n, "name", None)]
    return None if not name or fnmatch.filter(functions, name) else f"{file}::{name}"


def test_every_guarantee_names_tests_that_exist():
    """Each row of the table names at least one test, and all named tests exist."""
    rows = [line for line in GUARANTEES.read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 30
    assert [row for row in rows if not list(named_tests(row.rsplit("|", 2)[1]))] == []
    named = [one for row in rows for one in named_tests(row.rsplit("|", 2)[1])]
    assert [gone for one in named if (gone := missing(*one))] == []


def test_every_guarantee_names_modules_that_exist():
    """If a row says which module holds the guarantee, this module exists."""
    package = Path(importlib.util.find_spec("toolloop_jupyter").origin).parent
    named = re.findall(
        r"`((?:core|notebook|teaching)/[a-z/]*/(?!test_)\w+\.py)`", GUARANTEES.read_text("utf-8")
    )
    assert len(named) >= 25
    assert [module for module in named if not (package / module).is_file()] == []


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("`core/text/test_keys.py`", [None]),
        ("`core/text/test_nothing.py`", ["core/text/test_nothing.py"]),
        ("`test_doors.py::test_gone_*`", ["test_doors.py::test_gone_*"]),
        ("`test_guarantees.py::test_every_*`, `…::test_gone`", [None, "test_guarantees.py::test_gone"]),
    ],
)
def test_a_test_that_is_gone_is_missed(text, gone):
    """A missing file, a missing name, and a pattern without a test are found."""
    assert [missing(*one) for one in named_tests(text)] == gone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_of_tests_that_exist(page):
    """If a page names a file in tests/, it exists."""
    named = re.findall(r"\btests/[\w/]+(?:\.\w+)?", page.read_text("utf-8"))
    assert [path for path in named if not (TESTS.parent / path).exists()] == []
