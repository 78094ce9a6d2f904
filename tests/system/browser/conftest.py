"""One Jupyter server, one Chromium and one page. Before each test, nothing is open on the page."""

from __future__ import annotations

import pytest

from support.browsing import SharedPage, browser_context
from support.jupyter import JupyterServer


@pytest.fixture(scope="session")
def jupyter():
    """A Jupyter server with both front-ends."""
    with JupyterServer() as server:
        yield server


@pytest.fixture(scope="package")
def context(chromium):
    """A Chromium. It does not live for the whole session: while it runs, no test can have its own event loop."""
    pytest.importorskip("playwright.sync_api")
    with browser_context(chromium) as made:
        yield made


@pytest.fixture(scope="package")
def shared(context):
    """The page that the tests share."""
    with SharedPage(context) as page:
        yield page


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Note on the test whether it failed, for the fixture below."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def desk(request, jupyter, shared):
    """The page on which a test opens its notebook. If a test fails, the page is closed, and so is the shared kernel with its
    waiting cells.
    """
    with shared.desk(jupyter, lambda: request.node.stash.get(FAILED, True)) as opened:
        yield opened
