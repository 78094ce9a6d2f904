"""Names of places in tracebacks."""

from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from toolloop_jupyter.notebook.kernel import where

TRACE = 'Traceback (most recent call last):\n  File "{}", line 4, in look\nValueError: no\n'


@pytest.fixture
def compiled(monkeypatch):
    """A shell that has compiled cell 3, and the file name that it gave it."""
    shell = InteractiveShell()
    monkeypatch.setattr(where, "get_shell", lambda: shell)
    return shell, shell.compile.cache("def look(): ...", 3)


def test_a_cell_has_its_number(compiled):
    """A line of a cell is named by the number in front of that cell."""
    _, name = compiled
    assert "  Cell In[3], line 4, in look\n" in where.name_cells(TRACE.format(name))


def test_a_cell_has_its_number_on_ipython_7(monkeypatch):
    """In a kernel with IPython 7.34, whose compiler has no function for it, the name is the same."""
    name = "/tmp/ipykernel_5/12.py"
    old = SimpleNamespace(_filename_map={name: 3})
    monkeypatch.setattr(where, "get_shell", lambda: SimpleNamespace(compile=old))
    assert "  Cell In[3], line 4, in look\n" in where.name_cells(TRACE.format(name))


def test_files_keep_their_names(compiled):
    """A module's file stays as it is."""
    assert where.name_cells(TRACE.format("lib/tools.py")) == TRACE.format("lib/tools.py")


def test_without_a_shell_nothing_changes(monkeypatch):
    """In plain Python a traceback stays as it is."""
    monkeypatch.setattr(where, "get_shell", lambda: None)
    assert where.name_cells(TRACE.format("x.py")) == TRACE.format("x.py")
