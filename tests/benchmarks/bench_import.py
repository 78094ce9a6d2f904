"""The time of `import toolloop_jupyter` and `%load_ext`, in addition to the import of ipywidgets, each in a new interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 7
START = "import time; began = time.process_time()\n"
END = "\nprint(time.process_time() - began)"
SHELL = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
WAYS = {
    "import ipywidgets": "import ipywidgets",
    "import toolloop_jupyter": "import toolloop_jupyter",
    "ipywidgets, then the import": "import ipywidgets, toolloop_jupyter",
    "ipywidgets and a shell": f"import ipywidgets\n{SHELL}",
    "ipywidgets and a shell, then %load_ext": f"import ipywidgets\n{SHELL}shell.run_line_magic('load_ext', 'toolloop_jupyter')",
}


def seconds(code: str) -> float:
    """Return the CPU seconds of the code in a new interpreter. -I: it imports the installed package, which has bytecode, not
    a source tree.
    """
    ran = subprocess.run(
        [sys.executable, "-I", "-c", START + code + END], capture_output=True, text=True, check=True
    )
    return float(ran.stdout.split()[-1])


def test_import_and_load_ext():
    """`%load_ext` takes at most 0.11 s on top of ipywidgets (least of several rounds), and does not import litellm."""
    least = {name: min(seconds(code) for _ in range(ROUNDS)) for name, code in WAYS.items()}
    print("\nCPU seconds in a fresh interpreter")
    for name, taken in least.items():
        print(f"{name:42}{taken:7.3f}")
    added = least["ipywidgets and a shell, then %load_ext"] - least["ipywidgets and a shell"]
    print(f"%load_ext adds {added:.3f} s")
    assert added <= 0.11
    code = f"{SHELL}shell.run_line_magic('load_ext', 'toolloop_jupyter')\nimport sys\nassert 'litellm' not in sys.modules"
    assert seconds(code) > 0
