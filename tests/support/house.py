"""Reads the package as text: its modules, their imports (also lazy ones, and those only for types), its rooms and floors.

`tests/test_architecture.py` uses it to check the rules, `tests/house.py` to print figures.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "toolloop_jupyter"


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    target: str
    """The absolute name: "toolloop_jupyter.core.models.call_model", "litellm.acompletion"."""
    line: int
    lazy: bool = False
    """True if the import is inside a function."""
    typing_only: bool = False
    """True if the import is under `if TYPE_CHECKING:`."""

    @property
    def package(self) -> str:
        return self.target.split(".")[0]

    @property
    def is_ours(self) -> bool:
        return self.package == PACKAGE


@dataclass(frozen=True)
class Module:
    """A file of the package: `name` is relative to it ("core/models/call.py")."""

    name: str
    source: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def room(self) -> str:
        """The package that contains the module, for example "core/models"; "api" for `api.py`, "" for the public names."""
        folder, _, stem = self.name.rpartition("/")
        return folder or ("" if stem == "__init__.py" else stem.removesuffix(".py"))

    @property
    def is_face(self) -> bool:
        return self.name.endswith("__init__.py")

    @property
    def dotted(self) -> str:
        """The module's absolute name, for example "toolloop_jupyter.core.models.call"."""
        stem = self.name.removesuffix(".py").removesuffix("__init__").rstrip("/").replace("/", ".")
        return f"{PACKAGE}.{stem}" if stem else PACKAGE

    @property
    def lines(self) -> int:
        return self.source.count("\n")

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self))

    @functools.cached_property
    def functions(self) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, kinds))

    @functools.cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


def read_modules() -> tuple[Module, ...]:
    """Return a Module for each Python file of the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    return tuple(
        Module(p.relative_to(root).as_posix(), p.read_text("utf-8")) for p in sorted(root.rglob("*.py"))
    )


def _imports(module: Module) -> Iterator[Import]:
    def visit(node: ast.AST, *, lazy: bool, typing_only: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from visit(child, lazy=lazy, typing_only=True)
            for child in node.orelse:
                yield from visit(child, lazy=lazy, typing_only=typing_only)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy = True
        for target in _targets(module, node):
            yield Import(target, getattr(node, "lineno", 0), lazy, typing_only)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy=lazy, typing_only=typing_only)

    yield from visit(module.tree, lazy=False, typing_only=False)


def _targets(module: Module, node: ast.AST) -> list[str]:
    """Return the absolute names that an `import`, a `from … import` or an `import_module("…")` may load."""
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


class House:
    """The graph of the modules: who imports whom. A name in a room's `__init__.py` counts for the module that defines it."""

    def __init__(self, modules: tuple[Module, ...]) -> None:
        self.modules = modules
        self.by_name = {module.dotted: module for module in modules}
        self._exports = {m.dotted: self._names_of_face(m) for m in modules if m.is_face}

    def _names_of_face(self, face: Module) -> dict[str, str]:
        """Return name -> the module from which a room's `__init__.py` imports it."""
        found = {}
        for item in face.imports:
            if item.is_ours and not item.typing_only:
                home, _, name = item.target.rpartition(".")
                found[name] = home
        return found

    def module_of(self, target: str) -> str | None:
        """Return the module that defines `target`. The import may name a room's `__init__.py`."""
        if target in self.by_name:
            return target
        home, _, name = target.rpartition(".")
        for _ in range(4):
            behind = self._exports.get(home, {}).get(name)
            if behind is None:
                break
            home = behind
        return home if home in self.by_name else None

    def room_of(self, target: str) -> str | None:
        """Return the room that an import of `target` enters."""
        name = target if target in self.by_name else target.rpartition(".")[0]
        return self.by_name[name].room if name in self.by_name else None

    @functools.cached_property
    def module_graph(self) -> Mapping[str, frozenset[str]]:
        """Return module -> the modules that it imports, without each `__init__.py`."""
        graph = {}
        for module in self.modules:
            if module.is_face:
                continue
            needed = {self.module_of(item.target) for item in module.imports if item.is_ours}
            graph[module.dotted] = frozenset(
                name
                for name in needed
                if name is not None and not self.by_name[name].is_face and name != module.dotted
            )
        return graph

    @functools.cached_property
    def room_graph(self) -> Mapping[str, frozenset[str]]:
        """Return room -> the rooms that it imports. The public names in `__init__.py` are not a room."""
        graph: dict[str, set[str]] = {}
        for module in self.modules:
            if module.room == "":
                continue
            needed = {self.room_of(item.target) for item in module.imports if item.is_ours}
            graph.setdefault(module.room, set()).update(r for r in needed if r and r != module.room)
        return {room: frozenset(needed) for room, needed in graph.items()}

    def graph_in(self, room: str) -> Mapping[str, frozenset[str]]:
        """Return the part of the module graph that lies within a room."""
        inside = {m.dotted for m in self.modules if m.room == room and not m.is_face}
        return {name: self.module_graph[name] & inside for name in inside}


def find_circles(graph: Mapping[str, frozenset[str]]) -> list[set[str]]:
    """Return the groups of nodes that reach each other: Tarjan's strongly connected components of two or more nodes."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = set()
            while True:
                other = stack.pop()
                group.add(other)
                if other == node:
                    break
            if len(group) > 1:
                circles.append(group)

    for node in graph:
        if node not in index:
            visit(node)
    return circles


def count_floors(graph: Mapping[str, frozenset[str]]) -> int:
    """Return the number of nodes on the longest path. The graph must have no circles."""

    @functools.cache
    def height(node: str) -> int:
        return 1 + max((height(other) for other in graph.get(node, ())), default=0)

    return max(map(height, graph), default=0)


def count_attributes(node: ast.ClassDef) -> int:
    """Return the number of attributes of a class's objects: fields in its body, and what its methods assign to `self`."""
    fields = {
        s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    }
    assigned = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    }
    return len(fields | assigned)
