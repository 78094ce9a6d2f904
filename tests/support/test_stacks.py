"""The stacks have the versions that they name."""

from __future__ import annotations

from support.kernels import LiveKernel
from support.stacks import STACKS

CODE = """
import sys, importlib.metadata as m, toolloop_jupyter
print("%d.%d" % sys.version_info[:2])
for name in ("ipykernel", "ipython", "ipywidgets", "pydantic"):
    print(name + "==" + m.version(name))
"""


def test_stack_has_what_it_promises(stack):
    """A kernel of each stack starts, has the pinned versions, and can import this package."""
    with LiveKernel(stack.python) as kernel:
        run = kernel.execute(CODE)
    assert run.status == "ok", run.text
    python, *versions = run.stdout.split()
    assert python == stack.stack.python
    for pin in stack.stack.pins:
        if "==" in pin:
            assert any(version.startswith(pin.removesuffix(".*")) for version in versions), (pin, versions)


def test_floor_of_the_package_is_among_them():
    """The tests run with the oldest versions that the package's metadata allows: Colab's."""
    assert any("ipywidgets==7.7.1" in stack.pins and "ipython==7.34.0" in stack.pins for stack in STACKS)
