"""Code for a kernel or a script in which the import of litellm takes as long as a test wants, on a machine of any speed."""

from __future__ import annotations

_HELD = """import importlib.machinery, sys, time
from pathlib import Path
class Held:
    def find_spec(self, name, path=None, target=None):
        if name == "litellm":
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name)
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (wait(), run(module))
            return spec
def wait():
    {wait}
sys.meta_path.insert(0, Held())
"""


def slow_import(seconds: int = 3) -> str:
    """The import takes so many seconds longer."""
    return _HELD.format(wait=f"time.sleep({seconds})")


def import_held_until(file: str) -> str:
    """The import goes on once there is this file in the working folder."""
    return _HELD.format(wait=f"while not Path({file!r}).exists(): time.sleep(0.05)")
