"""Code for a kernel or a script that makes the import of litellm as slow as a test needs, however fast the machine is."""

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
    """Return code that makes the import this number of seconds longer."""
    return _HELD.format(wait=f"time.sleep({seconds})")


def import_held_until(file: str) -> str:
    """Return code that stops the import until this file is in the working folder."""
    return _HELD.format(wait=f"while not Path({file!r}).exists(): time.sleep(0.05)")
