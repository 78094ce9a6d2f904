"""What all tests share: order of the tiers, a scripted server, live kernels, and parts that a machine may lack."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

# Before anything imports litellm: it would try to download its price list at import.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import pytest

from support import stacks
from support.kernels import LiveKernel
from support.optional import find_chromium, optional
from support.servers import ScriptedServer

TIERS = ("slow", "notebook", "kernel", "gateway", "browser", "stacks")
"""Markers of the slow tiers, in the order in which they run, after everything that has none."""


def pytest_report_header():
    spec = importlib.util.find_spec("toolloop_jupyter")
    where = next(iter(spec.submodule_search_locations)) if spec else "not installed"
    return [f"toolloop_jupyter: {where}", f"chromium: {find_chromium() or 'none'}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what uses a stack as such; then put quick tests first, whatever their file."""
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker("stacks")
    items.sort(
        key=lambda item: max(
            (n for n, tier in enumerate(TIERS, 1) if item.get_closest_marker(tier)), default=0
        )
    )


@pytest.fixture
def serve():
    """Start scripted servers: `serve([answer("Hello")])` gives a running ScriptedServer; it ends with the test."""
    running = []

    def start(script, **options):
        server = ScriptedServer(script, **options)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def call(serve):
    """The keywords that send a run to a scripted server, and the server."""

    def make(*script):
        server = serve(list(script))
        return {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-test"}, server

    return make


@pytest.fixture
def start_kernel():
    """Start live kernels: `start_kernel(python=…, env=…)` gives a LiveKernel; it ends with the test."""
    running = []

    def start(python=None, **options):
        kernel = LiveKernel(python, **options).start()
        running.append(kernel)
        return kernel

    yield start
    for kernel in running:
        kernel.stop()


@pytest.fixture(scope="session")
def chromium():
    """The path of a Chromium."""
    return optional(find_chromium(), "Chromium")


@pytest.fixture(scope="session", params=stacks.STACKS, ids=lambda stack: stack.name)
def stack(request):
    """Each supported stack in turn (`.name`, `.python`), built with this package in it."""
    return stacks.build(request.param)


@pytest.fixture(scope="session")
def stack_python(stack):
    """The Python of each supported stack in turn."""
    return stack.python


@pytest.fixture(scope="session")
def repository():
    """The folder of this repository."""
    return Path(__file__).parents[1]
