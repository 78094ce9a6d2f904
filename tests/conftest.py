"""What all tests share: order and groups of the tiers, a scripted server, live kernels, and parts that a machine may lack."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections import Counter
from pathlib import Path

# This must be set before litellm is imported: otherwise, litellm tries to download its price list.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import pytest

from support import stacks
from support.kernels import LiveKernel
from support.optional import find_chromium, optional
from support.progress import Progress
from support.servers import ScriptedServer

# jsonschema tries to import this package, for a check of formats that no test needs. JupyterLab installs the package. Its
# import builds 38 parsers, which takes more than a second in each process of the tests.
sys.modules.setdefault("rfc3987_syntax", None)
# A process started by nohup, or in the background of a script, ignores SIGINT, and so do its children: no Ctrl-C would reach
# the kernels and terminals of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TIERS = ("slow", "notebook", "kernel", "gateway", "browser", "stacks")
"""Markers of the slow tiers, in the order in which they run, after everything that has none."""
DRIVEN = TIERS[1:]
"""Tiers that drive other programs."""
DRIVEN_PLACES = tuple(
    Path(__file__).parent / place
    for place in (
        "support",
        "system/kernels",
        "system/notebooks",
        "system/gateway",
        "system/browser",
        "system/parity/test_floor.py",
    )
)
"""The folders of their tests: the second step of `./dev test` collects tests only there."""


def pytest_configure(config):
    # Removed: if a test starts pytest, this is not a step of `./dev test`.
    step, tally = (os.environ.pop(name, None) for name in ("TOOLLOOP_STEP", "TOOLLOOP_TALLY"))
    if step and tally:
        config.pluginmanager.register(Progress(step, tally))


def pytest_report_header():
    spec = importlib.util.find_spec("toolloop_jupyter")
    where = next(iter(spec.submodule_search_locations)) if spec else "not installed"
    return [f"toolloop_jupyter: {where}", f"chromium: {find_chromium() or 'none'}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the tests that use a stack, and put quick tests first. With several processes (pytest-xdist), put large groups
    first.
    """
    for item in items:
        if "stack" in item.fixturenames:
            item.add_marker("stacks")
    misplaced = [item.nodeid for item in items if _is_driven(item) and not _is_in_its_place(item)]
    if misplaced:
        raise pytest.UsageError(
            f"tests that drive other programs belong into a folder of DRIVEN_PLACES: {misplaced}"
        )
    items.sort(
        key=lambda item: max(
            (n for n, tier in enumerate(TIERS, 1) if item.get_closest_marker(tier)), default=0
        )
    )
    if hasattr(config, "workerinput"):
        _group(items)


def _is_driven(item):
    return any(item.get_closest_marker(tier) for tier in DRIVEN)


def _is_in_its_place(item):
    return any(item.path.is_relative_to(place) for place in DRIVEN_PLACES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give a group of tests to one process, and the groups in the order of `_group`."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


SECONDS = {"browser": 8, "notebook": 8, "gateway": 4, "slow": 60, "stacks": 1.2, "kernel": 0.6}
"""Tier -> about how long a test takes on a quiet machine. The first tier that fits counts."""


def _group(items):
    """Return the group of a test. Groups that take longest begin first, so that no process is left alone with a long one."""
    lasts = Counter()
    for item in items:
        lasts[_group_of(item.nodeid)] += next(
            (seconds for tier, seconds in SECONDS.items() if item.get_closest_marker(tier)), 0.05
        )

    def place(item):
        group = _group_of(item.nodeid)
        return -lasts[group], group

    items.sort(key=place)


MUCH_TO_SHOW = ("test_payloads", "test_record", "test_safety")
"""The files of tests/system/browser that fill whole pages. Together they take about as long as all files in which somebody clicks."""


def _group_of(nodeid):
    """Return the group: for tests of a stack, its kernels; for tests of browsers, a Jupyter server; for other tests, their
    file.
    """
    file, _, test = nodeid.partition("::")
    if "system/browser/" in file:
        return "browser pages" if Path(file).stem in MUCH_TO_SHOW else "browser clicks"
    parameters = test.partition("[")[2].rstrip("]").split("-")
    return next((stack.name for stack in stacks.STACKS if stack.name in parameters), file)


@pytest.fixture
def serve():
    """Start scripted servers: `serve([answer("Hello")])` returns a running ScriptedServer, which is stopped after the test."""
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
    """Returns the keywords that send a run to a scripted server, and the server."""

    def make(*script):
        server = serve(list(script))
        return {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-test"}, server

    return make


@pytest.fixture
def start_kernel():
    """Start live kernels: `start_kernel(python=…, env=…)` returns a LiveKernel, which is stopped after the test."""
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
    """Each supported stack in turn (`.name`, `.python`), with this package built in it."""
    return stacks.build(request.param)


@pytest.fixture(scope="session")
def stack_python(stack):
    """The Python of each supported stack in turn."""
    return stack.python


@pytest.fixture(scope="session")
def repository():
    """The folder of this repository."""
    return Path(__file__).parents[1]
