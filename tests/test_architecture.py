"""The rules of the house, read off the syntax tree of every file. CONTRIBUTING.md says what they are for.

Each rule is a function from a module to the places that break it, so that it is tried on bad code as well.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "toolloop_jupyter"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

JUPYTER = {
    "IPython",
    "ipykernel",
    "ipywidgets",
    "jupyter_client",
    "jupyter_core",
    "nbclient",
    "nbformat",
    "traitlets",
}
"""What the core knows nothing of."""

ONLY_IN = {
    "litellm": "core/model.py",
    "ipywidgets": "notebook/widgets.py",
    "ipykernel": "notebook/kernel.py",
    "nest_asyncio": "",  # nowhere
    "nest_asyncio2": "",
}
"""Packages with one importer."""

MAY_IMPORT = {"core": {"core"}, "teaching": {"core", "teaching"}}
"""Rooms that may import only some; the rest may import all."""

CATCHES_ALL = {"core/running.py", "core/foreign.py", "core/workers.py"}
"""Where code that is not ours runs: a tool's body, a callback, a provider (awaited, in running.py; in a thread, in workers.py); a value's `__repr__`,
a model's serialiser, a type's validator (called, in foreign.py). Nowhere else may everything be caught."""

VAGUE_FILES = {"utils", "util", "helpers", "common", "misc"}
VAGUE_CLASSES = ("Manager", "Registry")


@dataclass(frozen=True)
class Module:
    """A file of the package: `name` is relative to it ("core/model.py")."""

    name: str
    source: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)


@dataclass(frozen=True)
class Import:
    target: str
    """Absolute: "toolloop_jupyter.core.events.request", "litellm"."""
    line: int
    lazy: bool
    """Inside a function."""
    typing_only: bool
    """Under `if TYPE_CHECKING:`."""


def modules():
    """Every Python file of the installed package."""
    root = Path(importlib.util.find_spec(PACKAGE + ".core").origin).parent.parent
    return [Module(p.relative_to(root).as_posix(), p.read_text("utf-8")) for p in sorted(root.rglob("*.py"))]


def imports(module):
    found = []

    def visit(node, lazy, typing_only):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                visit(child, lazy, True)
            for child in node.orelse:
                visit(child, lazy, typing_only)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy = True
        found.extend(Import(target, node.lineno, lazy, typing_only) for target in targets(module, node))
        for child in ast.iter_child_nodes(node):
            visit(child, lazy, typing_only)

    visit(module.tree, False, False)
    return found


def targets(module, node):
    """The absolute names that an `import`, a `from … import` or an `import_module("…")` may load."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        here = [PACKAGE, *module.name.removesuffix(".py").split("/")]
        base = ".".join([*here[: -node.level], *filter(None, [node.module])]) if node.level else node.module
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
        "import_module",
        "__import__",
    ):
        return [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return []


def room(name):
    """The first part of a path or of a dotted name in the package: "core", "notebook", "agent", …"""
    return name.removeprefix(PACKAGE + ".").replace("/", ".").removesuffix(".py").split(".")[0]


def upward_imports(module):
    """Imports from a room to one that lies above it."""
    allowed = MAY_IMPORT.get(room(module.name))
    ours = [i for i in imports(module) if i.target.split(".")[0] == PACKAGE]
    return (
        []
        if allowed is None
        else [f"line {i.line}: {i.target}" for i in ours if room(i.target) not in allowed]
    )


def jupyter_in_core(module):
    """Imports of a Jupyter package in core."""
    if room(module.name) != "core":
        return []
    return [f"line {i.line}: {i.target}" for i in imports(module) if i.target.split(".")[0] in JUPYTER]


def misplaced_imports(module):
    """Imports of a package that has one importer, elsewhere."""
    found = [(i, ONLY_IN.get(i.target.split(".")[0])) for i in imports(module)]
    return [
        f"line {i.line}: {i.target} belongs in {home}" for i, home in found if home not in (None, module.name)
    ]


def eager_litellm(module):
    """Imports of litellm that run when the file is imported."""
    found = [i for i in imports(module) if i.target.split(".")[0] == "litellm"]
    return [f"line {i.line}: {i.target} at import time" for i in found if not (i.lazy or i.typing_only)]


def vague_names(module):
    """Files and classes whose names say nothing of what they do."""
    stem = module.name.removesuffix(".py").split("/")[-1]
    classes = [
        n for n in ast.walk(module.tree) if isinstance(n, ast.ClassDef) and n.name.endswith(VAGUE_CLASSES)
    ]
    return [f"a file {stem}.py"] * (stem in VAGUE_FILES) + [
        f"line {c.lineno}: class {c.name}" for c in classes
    ]


def long_code(module):
    """Files and functions that are too long to read at once."""
    lines = module.source.count("\n")
    functions = [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [(f, f.end_lineno - f.lineno + 1) for f in functions]
    return [f"{lines} lines"] * (lines > MAX_FILE_LINES) + [
        f"line {f.lineno}: {f.name} has {length} lines" for f, length in long if length > MAX_FUNCTION_LINES
    ]


def catches_all(module):
    """`except Exception`, bare `except`, and their like. A BaseException that is raised again is no catch."""
    if module.name in CATCHES_ALL:
        return []
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            reraises = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            caught = {"bare"} if node.type is None else names(node.type)
            if caught & {"bare", "Exception"} or (caught & {"BaseException"} and not reraises):
                found.append(f"line {node.lineno}: except {ast.unparse(node.type) if node.type else ''}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            found += [
                f"line {node.lineno}: suppress"
                for a in node.args
                if names(a) & {"Exception", "BaseException"}
            ]
    return found


def names(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


RULES = [
    upward_imports,
    jupyter_in_core,
    misplaced_imports,
    eager_litellm,
    vague_names,
    long_code,
    catches_all,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds_in_every_file(rule):
    """No file of the package breaks the rule."""
    broken = {module.name: places for module in modules() if (places := rule(module))}
    assert not broken, f"{rule.__doc__} {broken}"


BAD = [
    (upward_imports, "core/loop.py", "from ..notebook import kernel"),
    (upward_imports, "core/loop.py", "def f():\n    from ..teaching.demo import x"),
    (upward_imports, "core/loop.py", "from toolloop_jupyter import agent"),
    (upward_imports, "teaching/demo.py", "from ..notebook.widgets import x"),
    (
        upward_imports,
        "core/loop.py",
        "import importlib\nimportlib.import_module('toolloop_jupyter.notebook.kernel.where')",
    ),
    (jupyter_in_core, "core/loop.py", "def f():\n    import traitlets"),
    (misplaced_imports, "notebook/magic.py", "from litellm import acompletion"),
    (misplaced_imports, "notebook/transcript.py", "def f():\n    import ipywidgets as w"),
    (misplaced_imports, "core/session.py", "import nest_asyncio"),
    (misplaced_imports, "notebook/kernel.py", "def f():\n    import nest_asyncio2"),
    (eager_litellm, "core/model.py", "import litellm.utils"),
    (eager_litellm, "core/model.py", "try:\n    import litellm\nexcept ImportError:\n    pass"),
    (vague_names, "core/utils.py", ""),
    (vague_names, "core/tools.py", "class ToolRegistry: ..."),
    (long_code, "core/loop.py", "x = 1\n" * 401),
    (long_code, "core/loop.py", "class A:\n    async def f():\n" + "        x = 1\n" * 60),
    (catches_all, "core/loop.py", "try:\n    x\nexcept (ValueError, Exception):\n    pass"),
    (catches_all, "core/loop.py", "try:\n    x\nexcept:\n    raise"),
    (catches_all, "core/loop.py", "try:\n    x\nexcept BaseException as e:\n    raise ValueError from e"),
    (catches_all, "core/loop.py", "import contextlib\nwith contextlib.suppress(Exception):\n    x"),
]


@pytest.mark.parametrize(("rule", "name", "source"), BAD)
def test_rule_finds_what_breaks_it(rule, name, source):
    """Each rule sees code that breaks it."""
    assert rule(Module(name, source))


GOOD = [
    ("core/model.py", "def load():\n    import litellm\n    return litellm"),
    ("core/model.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from litellm import X"),
    ("core/loop.py", "from . import model\nfrom .model import load_litellm"),
    ("notebook/widgets.py", "import ipywidgets\nfrom ..teaching import demo"),
    ("notebook/kernel.py", "import ipykernel"),
    ("teaching/demo.py", "from ..core.provider import provide"),
    ("core/running.py", "try:\n    x\nexcept Exception:\n    pass"),
    ("core/loop.py", "try:\n    x\nexcept BaseException:\n    y()\n    raise"),
]


@pytest.mark.parametrize(("name", "source"), GOOD)
def test_rules_let_good_code_pass(name, source):
    """No rule objects to code as it is meant to be."""
    assert [rule(Module(name, source)) for rule in RULES] == [[]] * len(RULES)


def test_there_are_no_cycles():
    """Imports that run at import time form no cycle: every file can be read after those it stands on."""
    known = {
        f"{PACKAGE}.{m.name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}": m
        for m in modules()
    }
    below = {}
    for name, module in known.items():
        eager = [i.target for i in imports(module) if not (i.lazy or i.typing_only)]
        below[name] = {t if t in known else t.rpartition(".")[0] for t in eager} & known.keys() - {name}
    while leaves := [name for name, needed in below.items() if not needed & below.keys()]:
        for name in leaves:
            del below[name]
    assert not below, f"these import each other, or stand on some that do: {sorted(below)}"
