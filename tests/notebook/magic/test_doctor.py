"""What `%toolloop doctor` says of surroundings that this machine does not have: other kernels, no ipywidgets, nobody there."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys

import pytest

from toolloop_jupyter.core.events.errors import Mistake
from toolloop_jupyter.notebook import kernel
from toolloop_jupyter.notebook.kernel import where
from toolloop_jupyter.notebook.live import asking
from toolloop_jupyter.notebook.magic import doctor

REAL_ROUTE = kernel.find_click_route
NO_CLICK = doctor.Finding("approval buttons", "note", "")
CLICK = doctor.Finding("approval buttons", "ok", "")


@pytest.fixture
def surroundings(monkeypatch):
    """Pretend: `surroundings(stdin=False, nbclient=True, …)`; without words a kernel with a person and widgets."""

    def pretend(*, in_kernel=True, stdin=True, widgets=True, nbclient=False, way="kernel"):
        monkeypatch.setattr(kernel, "in_kernel", lambda: in_kernel)
        monkeypatch.setattr(kernel, "has_stdin", lambda: stdin)
        monkeypatch.setattr(kernel, "has_widgets", lambda: widgets)
        monkeypatch.setattr(kernel, "executes_notebooks", lambda: nbclient)
        monkeypatch.setattr(kernel, "find_click_route", lambda: way)
        monkeypatch.setattr(asking._Clicks, "arrive", None)

    pretend()
    return pretend


def told(what, click=NO_CLICK, *, awaits=True):
    """The line about `what`, and its remedy."""
    (found,) = [f for f in doctor._describe_kernel(click, awaits=awaits) if f.what.startswith(what)]
    return found


@pytest.mark.parametrize("number", ["7.0.1", "7.1.0", "7.2.0", "7.3.0"])
def test_a_kernel_that_delivers_no_clicks(surroundings, monkeypatch, number):
    """A kernel of ipykernel 7.0 to 7.3 is told by its version, with what to install; a click that came all the same is believed."""
    from ipykernel import _version

    monkeypatch.setattr(_version, "version_info", tuple(int(part) for part in number.split(".")))
    monkeypatch.setattr(where, "get_kernel", object)  # one without a msg_queue, as all of 7
    monkeypatch.setattr(doctor, "version", lambda package: number)
    monkeypatch.setattr(kernel, "find_click_route", REAL_ROUTE)
    found = told("clicks while")
    assert (found.state, found.remedy) == ("bad", "pip install 'ipykernel>=7.4'")
    assert found.says == (
        f"this ipykernel delivers them over subshells only (told from ipykernel {number}; no click came to try it)"
    )
    assert (told("clicks while", CLICK).state, told("clicks while", CLICK).remedy) == ("ok", "")


def test_what_was_tried_and_what_was_told(surroundings):
    """Without a click the way of clicks is told from the version; a click shows it."""
    assert "no click came to try it" in told("clicks while").says
    assert told("clicks while", CLICK).says == "the kernel delivers them by itself (tried: yours came)"


def test_autoawait_off(surroundings):
    """After `%autoawait off` cells are not awaited, and the doctor says so and how to switch it on."""
    assert told("awaited").state == "ok"
    assert told("awaited", awaits=False).remedy == "%autoawait on"
    assert "is off" in told("awaited", awaits=False).says


CASES = {
    "no widgets": (
        {"widgets": False},
        "auto",
        "none without ipywidgets; approvals are typed",
        "pip install 'ipywi",
    ),
    "neither": (
        {"widgets": False, "stdin": False},
        "auto",
        "ipywidgets; approvals are denied",
        "pip install 'ipywi",
    ),
    "typed": (
        {},
        "input",
        "not tried: ToolLoop.ask is 'input'; approvals are typed",
        "%config ToolLoop.ask = 'auto'",
    ),
    "nbclient": (
        {"stdin": False, "nbclient": True},
        "auto",
        "a program runs this notebook; approvals are",
        "--on-un",
    ),
    "terminal": ({"in_kernel": False}, "auto", "a terminal shows none; approvals are typed", ""),
    "piped": (
        {"in_kernel": False, "stdin": False},
        "auto",
        "a terminal shows none; approvals are denied",
        "",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_where_no_button_is_shown(surroundings, case):
    """Where a button makes no sense none is waited for; said is who is asked instead, and what changes that."""
    there, wish, says, remedy = CASES[case]
    surroundings(**there)
    click = doctor._try_buttons(kernel.Cell(None), wish, 0.01)
    assert says in click.says
    assert click.remedy.startswith(remedy)
    assert click.state != "ok"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "0", "soon"])
def test_a_wait_that_is_none(value):
    """--wait takes seconds above 0; anything else is one line that shows the value."""
    with pytest.raises(Mistake, match=f"--wait takes a number of seconds above 0, got '{value}'"):
        doctor._read_words(["--wait", value])


def test_a_loop_that_cannot_be_entered(surroundings, monkeypatch):
    """On a loop that is not asyncio's own (uvloop) the button is not tried, and the doctor says what works there."""
    monkeypatch.setattr(kernel, "can_run_sync", lambda: False)
    found = doctor._try_buttons(None, "auto", None)
    assert (found.state, found.says) == (
        "note",
        "not tried: a line magic cannot wait inside this kernel's event loop",
    )
    assert "`await aagent(…)` work on this one" in found.remedy


@pytest.fixture
def litellm_files(tmp_path, monkeypatch):
    """A LiteLLM of one file in a folder of its own; gives the file."""
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    found = importlib.util.spec_from_file_location("litellm", package / "__init__.py")
    monkeypatch.setattr(doctor, "find_spec", lambda name: found)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return package / "__init__.py"


def test_bytecode_that_the_next_import_writes_or_that_is_there(litellm_files, monkeypatch):
    """Nothing is said where LiteLLM is compiled, or will be by its import."""
    assert list(doctor._check_bytecode()) == []
    py_compile.compile(str(litellm_files))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert list(doctor._check_bytecode()) == []


def test_no_bytecode_by_the_environments_wish(litellm_files, monkeypatch):
    """PYTHONDONTWRITEBYTECODE is named, and the command that compiles all the same, which cures it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (found,) = doctor._check_bytecode()
    assert found.state == "note"
    assert "PYTHONDONTWRITEBYTECODE is set" in found.says
    command = found.remedy.split()
    assert command[:-1] == ["python", "-m", "compileall", "-q"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    subprocess.run([sys.executable, *command[1:]], check=True, env=environment)
    assert list(doctor._check_bytecode()) == []


def test_no_bytecode_in_a_folder_of_others(litellm_files, monkeypatch):
    """A folder that may not be written to is named, and the variable that names another."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (found,) = doctor._check_bytecode()
    assert f"{litellm_files.parent} may not be written to" in found.says
    assert "PYTHONPYCACHEPREFIX" in found.remedy
