"""When the extension lets LiteLLM be imported in the background: after which cells, and for which default models."""

from __future__ import annotations

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
    """A default model of a provider begins the import after a cell. Python code, and a word that may be its variable, do not."""
    monkeypatch.delenv("TOOLLOOP_MODEL", raising=False)
    monkeypatch.setattr(extension, "litellm_loaded", lambda: False)
    monkeypatch.setattr(extension, "must_load", lambda _: True)
    begun = []
    monkeypatch.setattr(extension, "start_loading", lambda: begun.append(True))
    settings = ToolLoop()
    if model is not None:
        settings.model = model
    extension._Extension._import_litellm(types.SimpleNamespace(settings=settings))
    assert bool(begun) is begins
