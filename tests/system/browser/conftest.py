"""One Jupyter server for all browser tests, one Chromium for each module, one page for each test."""

from __future__ import annotations

import pytest

from support.browsing import Desk, browser_context
from support.jupyter import JupyterServer


@pytest.fixture(scope="session")
def jupyter():
    """A Jupyter server with both front-ends."""
    with JupyterServer() as server:
        yield server


@pytest.fixture(scope="module")
def context(chromium):
    """A Chromium. Not for the whole session: while it is there, no test can have an event loop of its own."""
    pytest.importorskip("playwright.sync_api")
    with browser_context(chromium) as made:
        yield made


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Note on the test whether it failed, for the fixture below."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def desk(request, jupyter, context):
    """A page to open a notebook in. A test that fails takes the shared kernel with it, and its waiting cells."""
    with Desk(jupyter, context) as opened:
        yield opened
    if request.node.stash.get(FAILED, True):
        jupyter.end_shared_kernel()
