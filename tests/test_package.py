"""The package in its installed form."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


def package_folder():
    return Path(next(iter(importlib.util.find_spec("toolloop_jupyter").submodule_search_locations)))


@pytest.mark.skipif(
    os.environ.get("TOOLLOOP_TEST_WHEEL") != "1", reason="for ./dev test, which installs the wheel"
)
def test_the_wheel_is_what_is_tested(repository):
    """Under `./dev test` the tests import the installed wheel, not the source tree."""
    assert package_folder().parent.name == "site-packages"
    assert package_folder() != repository / "toolloop_jupyter"


def test_type_information_is_shipped():
    """A type checker finds py.typed beside the code."""
    assert (package_folder() / "py.typed").is_file()


@pytest.mark.skipif(os.environ.get("TOOLLOOP_TEST_WHEEL") != "1", reason="needs the wheel's metadata")
def test_wheel_metadata():
    """The wheel excludes the ipykernel releases that lose clicks, and names its licence."""
    metadata = importlib.metadata.metadata("toolloop-jupyter")
    assert metadata["License-Expression"] == "MIT"
    requires = " ".join(metadata.get_all("Requires-Dist"))
    assert all(f"!=7.{minor}.*" in requires for minor in range(4))


def test_import_is_light():
    """Importing the package imports neither litellm nor a widget or kernel package."""
    code = "import sys, toolloop_jupyter; print(*{m.split('.')[0] for m in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"litellm", "ipywidgets", "ipykernel", "nest_asyncio", "nest_asyncio2"} & set(
        ran.stdout.split()
    )


PUBLIC = """
    Approval AsyncEventStream AsyncSession Capabilities CapabilityUnsupported Compaction Decision Done Event EventStream
    FileChange Harness HarnessError HarnessInstallFailed HistoryInvalid ModelCallFailed OptionsMismatch OutputInvalid Reasoning
    Result Retry Row Rows RunFailed SandboxError Session SessionClosed StateIncompatible Text ToolCall ToolContext
    ToolDefinitionError ToolLoopOptions ToolResult Usage aagent aagent_session agent agent_capabilities agent_session amap load
    load_ipython_extension map sandbox show tool unload_ipython_extension
"""
"""The names that people's notebooks import from `toolloop_jupyter`."""
FOR_LESSONS = """
    ANY DEMO_MODEL DemoModel Recorder RecordingError Replay ReplayMismatch ScriptError ScriptedModel
    call deltas end error expect pause reasoning reply_with text use_with_litellm
"""
"""The names that lessons import from `toolloop_jupyter.teaching`."""


def test_no_public_name_is_lost():
    """Notebooks and lessons of earlier versions find the names that they import."""
    import toolloop_jupyter as tl
    from toolloop_jupyter import teaching

    assert [name for name in PUBLIC.split() if not hasattr(tl, name)] == []
    assert [name for name in FOR_LESSONS.split() if not hasattr(teaching, name)] == []
    assert {*FOR_LESSONS.split()} <= {*teaching.__all__}


def test_public_names():
    """Each public name can be imported, and is one that is loaded when it is first used."""
    import toolloop_jupyter as tl

    assert {name for name in tl.__all__ if getattr(tl, name, None) is None} == set()
    assert set(tl.__all__) - set(tl._MODULE_OF) == {
        "load_ipython_extension",
        "sandbox",
        "unload_ipython_extension",
    }
    assert set(tl._MODULE_OF) - set(tl.__all__) == {"map"}  # `import *` would hide Python's own
    assert callable(tl.map)
    assert "map" in dir(tl)
    with pytest.raises(AttributeError, match="no attribute 'agnet'"):
        _ = tl.agnet
