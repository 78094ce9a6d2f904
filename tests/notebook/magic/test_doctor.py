"""What `%toolloop doctor` says in other surroundings than those of this machine: other kernels, no ipywidgets, nobody there."""

from __future__ import annotations

import compileall
import importlib
import os
import shlex
import subprocess
import sys

import pytest

from toolloop_jupyter.core.events.errors import Mistake
from toolloop_jupyter.core.tools import ToolSource
from toolloop_jupyter.notebook import kernel
from toolloop_jupyter.notebook.kernel import where
from toolloop_jupyter.notebook.live import asking
from toolloop_jupyter.notebook.magic import commands

REAL_ROUTE = kernel.delivers_clicks
NO_CLICK = commands.Finding("approval buttons", "note", "")
CLICK = commands.Finding("approval buttons", "ok", "")


@pytest.fixture
def surroundings(monkeypatch):
    """`surroundings(stdin=False, nbclient=True, …)` simulates other surroundings. Without arguments: a kernel with a person
    and widgets.
    """

    def pretend(*, in_kernel=True, stdin=True, widgets=True, nbclient=False):
        monkeypatch.setattr(kernel, "is_in_kernel", lambda: in_kernel)
        monkeypatch.setattr(kernel, "has_stdin", lambda: stdin)
        monkeypatch.setattr(kernel, "has_widgets", lambda: widgets and in_kernel)
        monkeypatch.setattr(kernel, "executes_notebooks", lambda: nbclient)
        monkeypatch.setattr(kernel, "delivers_clicks", lambda: True)
        monkeypatch.setattr(asking._Clicks, "arrive", None)

    pretend()
    return pretend


def find_line(what, click=NO_CLICK, *, awaits=True):
    """Return the finding about `what`."""
    (found,) = [f for f in commands._describe_kernel(click, awaits=awaits) if f.what.startswith(what)]
    return found


@pytest.mark.parametrize("number", ["7.0.1", "7.1.0", "7.2.0", "7.3.0"])
def test_a_kernel_that_delivers_no_clicks(surroundings, monkeypatch, number):
    """Versions 7.0 to 7.3 of ipykernel are found by their number, and the doctor says what to install. If a click comes
    nevertheless, the doctor reports the click.
    """
    from ipykernel import _version

    monkeypatch.setattr(_version, "version_info", tuple(int(part) for part in number.split(".")))
    monkeypatch.setattr(where, "get_kernel", object)  # a kernel without a msg_queue, like all versions 7
    monkeypatch.setattr(kernel, "delivers_clicks", REAL_ROUTE)
    line = find_line("clicks while")
    assert (line.state, line.remedy) == ("bad", "pip install 'ipykernel>=7.4'")
    assert line.says == "this ipykernel delivers them over subshells only; no click came to try it"
    assert (find_line("clicks while", CLICK).state, find_line("clicks while", CLICK).remedy) == ("ok", "")


def test_what_was_tried_and_what_was_told(surroundings):
    """Without a click, the doctor concludes from the kernel's version how clicks arrive. With a click, it reports the click."""
    assert "no click came to try it" in find_line("clicks while").says
    assert find_line("clicks while", CLICK).says == "tried: your click came"


def test_autoawait_off(surroundings):
    """After `%autoawait off`, cells are not awaited. The doctor says so, and how to switch it on."""
    assert find_line("awaited").state == "ok"
    assert find_line("awaited", awaits=False).remedy == "%autoawait on"
    assert "is off" in find_line("awaited", awaits=False).says


CASES = {
    "no widgets": (
        {"widgets": False},
        "auto",
        "none without ipywidgets; you decide by typing",
        "pip install 'ipywi",
    ),
    "neither": (
        {"widgets": False, "stdin": False},
        "auto",
        "ipywidgets; requests for approval are denied",
        "pip install 'ipywi",
    ),
    "typed": (
        {},
        "input",
        "not tried: ToolLoop.ask is 'input'; you decide by typing",
        "%config ToolLoop.ask = 'auto'",
    ),
    "nbclient": (
        {"stdin": False, "nbclient": True},
        "auto",
        "a program runs this notebook; requests for",
        "--on-un",
    ),
    "terminal": ({"in_kernel": False}, "auto", "a terminal shows none; you decide by typing", ""),
    "piped": (
        {"in_kernel": False, "stdin": False},
        "auto",
        "a terminal shows none; requests for approval are denied",
        "",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_where_no_button_is_shown(surroundings, case):
    """If a button makes no sense, the doctor does not wait for a click. It says how a person is asked instead, and how to
    change this.
    """
    there, wish, says, remedy = CASES[case]
    surroundings(**there)
    click = commands._try_buttons(kernel.Cell.here(), wish, 0.01)
    assert says in click.says
    assert click.remedy.startswith(remedy)
    assert click.state != "ok"


def test_each_source_of_tools_has_one_line():
    """A connection is listed once, even if it has several names or only a private one. A proxy that raises an error is not a
    connection.
    """

    class Server(ToolSource):
        def list_tools(self):
            return {}

        def examine(self):
            return "ok", "", ""

    class Proxy:
        @property
        def __class__(self):
            raise RuntimeError("working outside of request context")

    files, board, shown = Server(), Server(), Server()
    names = {
        "_": files,
        "_5": files,
        "request": Proxy(),
        "files": files,
        "_board": board,
        "_7": shown,
        "x": 1,
    }
    assert list(commands._list_sources(names)) == [("files", files), ("_board", board), ("_7", shown)]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "0", "soon"])
def test_a_wait_that_is_none(value):
    """--wait takes seconds above 0. For anything else, an error of one line shows the value."""
    with pytest.raises(Mistake, match=f"--wait takes a number of seconds above 0, got '{value}'"):
        commands._read_words(["--wait", value])


def test_a_loop_that_cannot_be_entered(surroundings, monkeypatch):
    """On a loop that is not asyncio's own (uvloop), the button is not tried, and the doctor says what works there."""
    monkeypatch.setattr(kernel, "can_run_sync", lambda: False)
    found = commands._try_buttons(None, "auto", None)
    assert (found.state, found.says) == (
        "note",
        "not tried: a line magic cannot wait inside this kernel's event loop",
    )
    assert "`await aagent(…)` work on the present loop" in found.remedy


@pytest.fixture
def litellm_folder(tmp_path, monkeypatch):
    """A folder with a package `litellm` that Python finds first, and that must not be imported."""
    folder = tmp_path / "site packages" / "litellm"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('the doctor imports litellm')")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    importlib.invalidate_caches()
    return folder


def test_litellm_without_bytecode(litellm_folder, monkeypatch):
    """If LiteLLM's files have no bytecode because Python is set to write none, the doctor says so, with a command that helps."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (finding,) = commands._describe_bytecode()
    assert (finding.what, finding.state) == ("LiteLLM's import", "bad")
    assert "no bytecode" in finding.says
    assert "PYTHONDONTWRITEBYTECODE" in finding.says
    assert finding.remedy == f"python -m compileall -q {shlex.quote(str(litellm_folder))}"
    subprocess.run([sys.executable, *shlex.split(finding.remedy)[1:]], check=True)
    assert not list(commands._describe_bytecode())


def test_litellm_in_a_folder_that_cannot_be_written(litellm_folder, monkeypatch):
    """Another cause is a folder that cannot be written. If the folder can be written or has bytecode, there is no finding."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert not list(commands._describe_bytecode())
    # Root may write into every folder.
    monkeypatch.setattr(os, "access", lambda path, mode: path != litellm_folder)
    (finding,) = commands._describe_bytecode()
    assert f"you may not write into {litellm_folder}" in finding.says
    assert str(litellm_folder) in finding.remedy
    compileall.compile_dir(str(litellm_folder), quiet=1)
    assert not list(commands._describe_bytecode())
