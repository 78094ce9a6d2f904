"""When the extension lets LiteLLM be imported in the background: after which cells, and for which default models."""

from __future__ import annotations

import threading
import types

import pytest

from toolloop_jupyter.notebook.magic import extension
from toolloop_jupyter.notebook.magic.options import ToolLoop
from toolloop_jupyter.teaching import ScriptedModel


class Events:
    """IPython's events of cells, called by the test."""

    def __init__(self):
        self.callbacks = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, event, callback):
        self.callbacks[event].append(callback)

    def unregister(self, event, callback):
        self.callbacks[event].remove(callback)

    def run_cell(self):
        for callbacks in list(self.callbacks.values()):
            for callback in list(callbacks):
                callback(None)


@pytest.fixture
def kernel(monkeypatch):
    """A kernel in which nothing has been asked and LiteLLM is not imported; `begun` is set when an import starts."""
    monkeypatch.delenv("TOOLLOOP_MODEL", raising=False)
    monkeypatch.setattr(extension._BackgroundImport, "IDLE", 0.0)
    monkeypatch.setattr(extension, "litellm_loaded", lambda: False)
    monkeypatch.setattr(extension, "was_one_asked", lambda: False)
    monkeypatch.setattr(extension, "must_load", lambda model: not model.startswith("toolloop/"))
    begun = threading.Event()
    monkeypatch.setattr(extension, "start_loading", begun.set)
    shell, settings = types.SimpleNamespace(events=Events(), user_ns={}), ToolLoop()
    warmup = extension._BackgroundImport(shell, settings)
    shell.events.register("pre_run_cell", warmup.before_cell)
    shell.events.register("post_run_cell", warmup.after_cell)
    yield types.SimpleNamespace(shell=shell, settings=settings, warmup=warmup, begun=begun)
    warmup.before_cell()


@pytest.mark.parametrize("model", [None, "toolloop/demo", "lesson"])
def test_a_notebook_whose_default_model_is_ours(kernel, model):
    """With a default model that is Python code, no cell starts an import, and none waits for an idle kernel."""
    kernel.shell.user_ns["lesson"] = ScriptedModel("Hello.")
    if model is not None:
        kernel.settings.model = model
    kernel.shell.events.run_cell()
    assert kernel.warmup._timer is None
    assert not kernel.begun.is_set()


def test_a_default_model_of_a_provider(kernel):
    """With a provider's default model, the import starts right after the cell."""
    kernel.settings.model = "openai/gpt-4o-mini"
    kernel.shell.events.run_cell()
    assert kernel.begun.is_set()


def test_a_word_that_may_be_a_variable(kernel, monkeypatch):
    """A default model that is a word, and no variable so far, is imported for when the kernel is idle, not after runs of ours."""
    kernel.settings.model = "o3"
    kernel.shell.events.run_cell()
    assert kernel.begun.wait(60)
    kernel.begun.clear()
    kernel.warmup._timer = None
    monkeypatch.setattr(extension, "was_one_asked", lambda: True)
    kernel.shell.events.run_cell()
    assert kernel.warmup._timer is None
