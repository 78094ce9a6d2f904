"""In a traceback, a cell has its number (`where.py`)."""

from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from toolloop_jupyter.notebook.kernel import where

TRACE = 'Traceback (most recent call last):\n  File "{}", line 4, in look\nValueError: no\n'


@pytest.fixture
def compiled(monkeypatch):
    """(a shell that has compiled cell 3, the file name that the shell has given to the cell)."""
    shell = InteractiveShell()
    monkeypatch.setattr(where, "get_shell", lambda: shell)
    return shell, shell.compile.cache("def look(): ...", 3)


def test_a_cell_has_its_number(compiled):
    """A cell's line is named by the number that stands in front of the cell."""
    _, name = compiled
    assert "  Cell In[3], line 4, in look\n" in where.name_cells(TRACE.format(name))


def test_a_cell_has_its_number_on_ipython_7(monkeypatch):
    """IPython 7.34 has no function for the name, but the name is the same."""
    name = "/tmp/ipykernel_5/12.py"
    old = SimpleNamespace(_filename_map={name: 3})
    monkeypatch.setattr(where, "get_shell", lambda: SimpleNamespace(compile=old))
    assert "  Cell In[3], line 4, in look\n" in where.name_cells(TRACE.format(name))


def test_files_keep_their_names(compiled):
    """The name of a module's file is not changed."""
    assert where.name_cells(TRACE.format("lib/tools.py")) == TRACE.format("lib/tools.py")


def test_without_a_shell_nothing_changes(monkeypatch):
    """In plain Python, a traceback is not changed."""
    monkeypatch.setattr(where, "get_shell", lambda: None)
    assert where.name_cells(TRACE.format("x.py")) == TRACE.format("x.py")
