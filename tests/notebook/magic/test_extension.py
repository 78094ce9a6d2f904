"""The extension's settings: when LiteLLM is imported in the background, and `nest` where there is no kernel."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from toolloop_jupyter.notebook.magic import extension
from toolloop_jupyter.notebook.magic.options import ToolLoop


@pytest.mark.parametrize(
    ("model", "begins"),
    [
        (None, False),
        ("toolloop/demo", False),
        ("lesson", False),
        ("o3", False),
        ("gpt-4o-mini", True),
        ("openai/gpt-4o-mini", True),
    ],
)
def test_a_cell_begins_the_import_for_a_providers_default_model(monkeypatch, model, begins):
    """If the default model is a provider's, the import begins after a cell. It does not begin for Python code, or for one
    word, which may be a variable.
    """
    monkeypatch.delenv("TOOLLOOP_MODEL", raising=False)
    monkeypatch.setattr(extension, "is_litellm_loaded", lambda: False)
    monkeypatch.setattr(extension, "must_load", lambda _: True)
    begun = []
    monkeypatch.setattr(extension, "start_loading", lambda: begun.append(True))
    settings = ToolLoop()
    if model is not None:
        settings.model = model
    extension._Extension._import_litellm(types.SimpleNamespace(settings=settings))
    assert bool(begun) is begins


def test_nest_in_a_terminal_is_refused_and_a_configuration_file_is_silent():
    """Without a kernel, `%config ToolLoop.nest = True` is an error that says what to write. In a configuration file, which
    terminals read, too, it is not an error.
    """
    code = (
        "from IPython.core.interactiveshell import InteractiveShell; from traitlets.config import Config\n"
        "shell = InteractiveShell.instance(config=Config(ToolLoop=Config(nest=True)))\n"
        "for cell in ('%load_ext toolloop_jupyter', 'x = 1', '%config ToolLoop.nest = False', '%config ToolLoop.nest = True',\n"
        "             '%config ToolLoop.nest'): shell.run_cell(cell)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "Out[0]: False\n"
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.endswith(
        "there is no kernel here: asyncio.run(main()) works as it is, and so does await main()\n"
    )
