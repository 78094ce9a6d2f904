"""The rules of the house, read off the syntax tree of every file. CONTRIBUTING.md says what they are for.

A rule is a function from a `House` to the places that break it, so that it is tried on bad code as well. Lazy imports and
those for typing count like all others.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

from support.house import PACKAGE, House, Import, Module, count_floors, find_circles, read_modules

EVENTS = {"core/text", "core/execution", "core/events"}
"""The rooms that every room may import."""
CORE = EVENTS | {
    *("core/results", "core/tools", "core/models"),
    *("core/conversation", "core/loop", "core/session", "core/rows"),
}

MAY_USE: dict[str, set[str]] = {
    "core": set(),
    "core/text": set(),
    "core/execution": set(),
    "core/events": {"core/text", "core/execution"},
    "core/results": EVENTS,
    "core/tools": EVENTS | {"core/results"},
    "core/models": EVENTS | {"core/results"},
    "core/conversation": EVENTS | {"core/results", "core/tools", "core/models"},
    "core/loop": CORE - {"core/loop", "core/session", "core/rows"},
    "core/session": CORE - {"core/session", "core/rows"},
    "core/rows": CORE - {"core/rows"},
    "teaching": CORE - {"core/loop", "core/session", "core/rows"},
    "mcp": CORE - {"core/models", "core/conversation", "core/session", "core/rows"},
    "notebook": set(),
    "notebook/kernel": EVENTS,
    "notebook/html": EVENTS,
    "notebook/transcript": EVENTS | {"core/results", "notebook/html"},
    "notebook/widgets": EVENTS | {"core/tools", "notebook/html", "notebook/transcript"},
    "notebook/live": CORE | {"notebook/kernel", "notebook/html", "notebook/transcript", "notebook/widgets"},
    "api": CORE | {"teaching", "notebook/kernel", "notebook/transcript", "notebook/live"},
    "notebook/magic": CORE
    | {"notebook/kernel", "notebook/html", "notebook/transcript", "notebook/widgets", "notebook/live"}
    | {"api", "teaching"},
    "": CORE | {"api", "notebook", "notebook/live", "notebook/magic"},
}
"""Room -> the rooms that it may import. "" has the public names."""

ONLY_IN = {
    "litellm": "core/models/client.py",
    "mcp": "mcp/link.py",
    "mcp_types": "mcp/link.py",
    "httpx2": "mcp/link.py",
    "anyio": "mcp/link.py",
    "ipywidgets": "notebook/widgets/",
    "ipykernel": "notebook/kernel/",
    "nest_asyncio": "notebook/kernel/",
    "nest_asyncio2": "notebook/kernel/",
    "traitlets": "notebook/magic/options.py",
}
"""Package -> the only module or room that imports it."""

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
"""The packages that core, teaching and mcp must not import."""

PUBLIC_MODULES = {f"{PACKAGE}.core.session.sandbox"}
"""Modules that are public names themselves (`toolloop_jupyter.sandbox`)."""
PUBLIC_FACES = {PACKAGE, f"{PACKAGE}.teaching", f"{PACKAGE}.mcp"}
"""Packages whose names people import."""

MAX_FUNCTION_LINES = 60
MAX_MODULES = 8
SMALL_MODULE_LINES = 60
MAX_ROOM_FLOORS = 9
MAX_MODULE_FLOORS = 5
VAGUE_MODULES = {"utils", "util", "helpers", "common", "misc"}
VAGUE_CLASSES = ("Manager", "Registry")

Broken = Iterator[tuple[str, str]]
"""(the room, a text that says what breaks the rule and where)."""
Rule = Callable[[House], Broken]


def _imports(house: House) -> Iterator[tuple[Module, Import]]:
    for module in house.modules:
        for item in module.imports:
            yield module, item


def _nodes(house: House) -> Iterator[tuple[Module, ast.AST]]:
    for module in house.modules:
        for node in ast.walk(module.tree):
            yield module, node


def _at(module: Module, line: int, words: str) -> tuple[str, str]:
    return module.room, f"{module.name}:{line}: {words}"


def _own_home(house: House, target: str) -> Module | None:
    """Return the module that an import names: for a face, the face itself, not the module behind it."""
    return house.by_name.get(target) or house.by_name.get(target.rpartition(".")[0])


# --- imports ----------------------------------------------------------------------------------------------


def rooms_import_only_rooms_of_the_table(house: House) -> Broken:
    """A room imports only the rooms that the table gives it."""
    for module, item in _imports(house):
        room = house.room_of(item.target) if item.is_ours else None
        if room is not None and room != module.room and room not in MAY_USE.get(module.room, set()):
            yield _at(module, item.line, f"{item.target} (of {room or 'the public names'})")


def rooms_are_entered_through_their_faces(house: House) -> Broken:
    """A module imports from another room only through the room's face."""
    for module, item in _imports(house):
        home = _own_home(house, item.target) if item.is_ours else None
        if home is None or home.is_face or home.room in (module.room, "api"):
            continue
        if home.dotted not in PUBLIC_MODULES and item.target not in _names_of_face(house, home.room):
            yield _at(module, item.line, f"{item.target} past the face of {home.room}")


def _names_of_face(house: House, room: str) -> set[str]:
    """Return the absolute names that a room's face gives. A name such as `plain` may be a function and a module at the same
    time.
    """
    face = house.by_name.get(f"{PACKAGE}.{room.replace('/', '.')}")
    return {f"{face.dotted}.{item.target.rpartition('.')[2]}" for item in face.imports} if face else set()


def nothing_imports_in_circles(house: House) -> Broken:
    """Neither modules nor rooms import each other in a circle."""
    for circle in find_circles(house.module_graph):
        yield house.by_name[min(circle)].room, ", ".join(sorted(circle))
    for circle in find_circles(house.room_graph):
        yield min(circle), ", ".join(sorted(circle))


def packages_have_one_importer(house: House) -> Broken:
    """Each of these packages is imported in one place only."""
    for module, item in _imports(house):
        home = ONLY_IN.get(item.package)
        if (
            home is not None
            and module.name != home
            and not (home.endswith("/") and module.name.startswith(home))
        ):
            yield _at(module, item.line, f"{item.target} belongs in {home}")


def core_knows_no_notebook(house: House) -> Broken:
    """Core, teaching and mcp import no package of Jupyter."""
    for module, item in _imports(house):
        if module.name.startswith(("core/", "teaching/", "mcp/")) and item.package in JUPYTER:
            yield _at(module, item.line, item.target)


def litellm_is_imported_late(house: House) -> Broken:
    """No module imports litellm when it is imported itself: this takes seconds."""
    for module, item in _imports(house):
        if item.package == "litellm" and not (item.lazy or item.typing_only):
            yield _at(module, item.line, item.target)


# --- modules and rooms ------------------------------------------------------------------------------------


@functools.cache
def _importers(house: House) -> dict[str, set[str]]:
    """Return module -> the modules that use it. They import the module, or a name that its face has from it, or use such a
    name as an attribute of the face.
    """
    importers: dict[str, set[str]] = {module.dotted: set() for module in house.modules}
    attributes = {
        m.dotted: {n.attr for n in ast.walk(m.tree) if isinstance(n, ast.Attribute)} for m in house.modules
    }
    given: dict[str, dict[str, str]] = defaultdict(dict)
    for face in house.modules:
        for item in face.imports if face.is_face else ():
            if item.is_ours and (behind := house.module_of(item.target)):
                given[face.dotted][item.target.rpartition(".")[2]] = behind
                if not behind.startswith(f"{face.dotted}.") or face.dotted in PUBLIC_FACES:
                    importers[behind].add(face.dotted)
    for module in house.modules:
        for name in house.module_graph.get(module.dotted, ()):
            importers[name].add(module.dotted)
        for item in module.imports:
            for name, behind in given.get(item.target, {}).items():
                if name in attributes[module.dotted] and behind != module.dotted:
                    importers[behind].add(module.dotted)
    return importers


def every_module_is_imported(house: House) -> Broken:
    """There is no module that nobody imports."""
    for module in house.modules:
        if not module.is_face and module.room != "api" and not _importers(house)[module.dotted]:
            yield _at(module, 1, "nobody imports it")


def small_modules_have_two_importers(house: House) -> Broken:
    """A module with fewer than 60 lines has at least two importers."""
    for module in house.modules:
        if (
            not module.is_face
            and module.lines < SMALL_MODULE_LINES
            and len(_importers(house)[module.dotted]) < 2
        ):
            yield _at(
                module, 1, f"{module.lines} lines, imported by {sorted(_importers(house)[module.dotted])}"
            )


def public_names_have_one_home(house: House) -> Broken:
    """A name that a face gives is defined in one module, and only one face gives it. Nobody imports a name from a module that
    has itself imported it.
    """
    homes, faces = defaultdict(set), defaultdict(set)
    for module in house.modules:
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                homes[node.name].add(module.name)
        for item in module.imports if module.is_face else ():
            if item.is_ours and (
                item.target not in house.by_name or item.target in _names_of_face(house, module.room)
            ):
                faces[item.target.rpartition(".")[2]].add(module)
    for name, givers in faces.items():
        doubled = {face.name for face in givers if face.dotted not in PUBLIC_FACES}
        for modules in (homes[name], doubled):
            if len(modules) > 1:
                yield _room_of(min(modules)), f"{name} is in {', '.join(sorted(modules))}"
    for module, item in _imports(house):
        home, _, name = item.target.rpartition(".")
        other = house.by_name.get(home)
        if other is not None and not other.is_face and item.target not in house.by_name:
            taken = [i.target for i in other.imports if i.is_ours and i.target.rpartition(".")[2] == name]
            if taken and name not in _assigned(other):
                yield _at(module, item.line, f"{name} from {other.name}, which has it from {taken[0]}")


def _room_of(name: str) -> str:
    return Module(name, "").room


def _assigned(module: Module) -> set[str]:
    """Return the names that a module defines at its top level."""
    return {
        n.id
        for s in module.tree.body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def rooms_are_small(house: House) -> Broken:
    """A room has at most eight modules."""
    for room, number in Counter(m.room for m in house.modules if not m.is_face).items():
        if number > MAX_MODULES:
            yield room, f"{room} has {number} modules"


def floors_are_few(house: House) -> Broken:
    """The longest way down has at most nine rooms, and inside a room five modules."""
    if not find_circles(house.room_graph) and count_floors(house.room_graph) > MAX_ROOM_FLOORS:
        yield "", f"rooms: {count_floors(house.room_graph)} floors"
    for room in {m.room for m in house.modules}:
        graph = house.graph_in(room)
        if not find_circles(graph) and count_floors(graph) > MAX_MODULE_FLOORS:
            yield room, f"{room}: {count_floors(graph)} floors"


def names_say_something(house: House) -> Broken:
    """No module and no class has a name that says nothing about its task."""
    for module in house.modules:
        if module.name.rpartition("/")[2].removesuffix(".py") in VAGUE_MODULES:
            yield _at(module, 1, "a name for anything")
        for node in module.classes:
            if node.name.endswith(VAGUE_CLASSES):
                yield _at(module, node.lineno, f"class {node.name}")


# --- code -------------------------------------------------------------------------------------------------


def functions_are_short(house: House) -> Broken:
    """A function has at most 60 lines."""
    for module in house.modules:
        for function in module.functions:
            length = (function.end_lineno or 0) - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield _at(module, function.lineno, f"{function.name} has {length} lines")


def everything_is_caught_in_one_room(house: House) -> Broken:
    """Only core/execution, where foreign code runs, catches every exception. To catch an exception and raise it again is
    allowed.
    """
    for module, node in _nodes(house):
        if module.room == "core/execution":
            continue
        if isinstance(node, ast.ExceptHandler):
            reraises = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            caught = {"bare"} if node.type is None else _names(node.type)
            if caught & {"bare", "Exception"} or (caught & {"BaseException"} and not reraises):
                yield _at(module, node.lineno, f"except {ast.unparse(node.type) if node.type else ''}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            for argument in node.args:
                if _names(argument) & {"Exception", "BaseException"}:
                    yield _at(module, node.lineno, ast.unparse(node))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def nothing_is_chosen_by_the_name_of_a_class(house: House) -> Broken:
    """`isinstance` or a method decides what is done with an object of ours, not the name of its class."""
    ours = {node.name for module in house.modules for node in module.classes}
    for module, node in _nodes(house):
        if isinstance(node, ast.Compare) and any(map(_is_class_name, [node.left, *node.comparators])):
            constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            if not constants or constants & ours:
                yield _at(module, node.lineno, ast.unparse(node))
        elif isinstance(node, ast.Match) and _is_class_name(node.subject):
            yield _at(module, node.lineno, f"match {ast.unparse(node.subject)}")
        elif _is_choice_by_name(node):
            yield _at(module, node.lineno, ast.unparse(node))


def _is_class_name(node: ast.AST) -> bool:
    """Return True for `type(x).__name__` and `x.__class__.__name__`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("__name__", "__qualname__")
        and ast.unparse(node.value).startswith(("type(", "cls"))
        | ast.unparse(node.value).endswith("__class__")
    )


def _is_choice_by_name(node: ast.AST) -> bool:
    """Return True for `getattr(self, f"_on_{…}")`, `TABLE[type(x).__name__]` and `TABLE.get(type(x).__name__)`."""
    if isinstance(node, ast.Subscript):
        return _is_class_name(node.slice)
    if not isinstance(node, ast.Call):
        return False
    function = ast.unparse(node.func)
    if function == "getattr":
        return ast.unparse(node.args[0]) in ("self", "cls") and isinstance(node.args[1], ast.JoinedStr)
    return function.endswith(".get") and any(map(_is_class_name, node.args))


def nothing_is_assigned_on_another_module(house: House) -> Broken:
    """No module sets an attribute of another module of ours, or of an object that it has imported from there."""
    for module in house.modules:
        aliases = _names_of_ours(module)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                owner = node.value
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
                owner = node.args[0]
            else:
                continue
            if isinstance(owner, ast.Name) and owner.id in aliases:
                yield _at(module, node.lineno, ast.unparse(node))


def _names_of_ours(module: Module) -> set[str]:
    """Return the names under which a module knows other modules of ours, and the names that it imports from them."""
    names = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            one = Module(module.name, ast.unparse(node))
            for alias, item in zip(node.names, one.imports, strict=True):
                if item.is_ours:
                    names.add(alias.asname or alias.name.split(".")[0])
    return names


RULES: list[Rule] = [
    rooms_import_only_rooms_of_the_table,
    rooms_are_entered_through_their_faces,
    nothing_imports_in_circles,
    packages_have_one_importer,
    core_knows_no_notebook,
    litellm_is_imported_late,
    every_module_is_imported,
    small_modules_have_two_importers,
    public_names_have_one_home,
    rooms_are_small,
    floors_are_few,
    names_say_something,
    functions_are_short,
    everything_is_caught_in_one_room,
    nothing_is_chosen_by_the_name_of_a_class,
    nothing_is_assigned_on_another_module,
]

PENDING: dict[str, dict[str, str]] = {}
"""Rule -> room -> the reason why the room still breaks the rule. An entry must fail: if the room follows the rule, the entry
has to be removed."""

HOUSE = House(read_modules())
ROOMS = sorted({module.room for module in HOUSE.modules})


def _cases() -> Iterator[object]:
    for rule in RULES:
        for room in ROOMS:
            reason = PENDING.get(rule.__name__, {}).get(room)
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            yield pytest.param(rule, room, id=f"{rule.__name__}-{room or 'public'}", marks=marks)


@functools.cache
def _broken(rule: Rule) -> tuple[tuple[str, str], ...]:
    return tuple(rule(HOUSE))


@pytest.mark.parametrize(("rule", "room"), list(_cases()))
def test_rule_holds_in_each_room(rule, room):
    """No code in the room breaks the rule."""
    broken = [words for where, words in _broken(rule) if where == room]
    assert not broken, f"{rule.__doc__} {broken}"


def test_what_is_pending_is_there():
    """Each entry of PENDING names a rule and a room that exist."""
    assert PENDING.keys() <= {rule.__name__ for rule in RULES}
    assert set().union(*PENDING.values()) <= set(ROOMS)


def test_the_table_names_every_room_and_no_other():
    """The table of imports has a row for each room, and names only rooms."""
    assert set(MAY_USE) == set(ROOMS)
    assert set().union(*MAY_USE.values()) <= set(ROOMS)


FACE = {
    "core/models/__init__.py": "from .call import call_model",
    "core/models/call.py": "def call_model(): ...",
}
LONG = "x = 1\n" * SMALL_MODULE_LINES

BAD: list[tuple[Rule, dict[str, str]]] = [
    *(
        (
            rooms_import_only_rooms_of_the_table,
            {"notebook/kernel/__init__.py": "def f(): ...", "api.py": "", **code},
        )
        for code in (
            {"core/loop/loop.py": "from ...notebook.kernel import f"},
            {"core/loop/loop.py": "def g():\n    from ...notebook.kernel import f"},
            {
                "core/loop/loop.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ...notebook import kernel"
            },
            {"core/loop/loop.py": f"import importlib\nimportlib.import_module('{PACKAGE}.notebook.kernel')"},
            {"core/loop/loop.py": "from ... import api"},
            {"core/models/call.py": "from ..loop import run", "core/loop/__init__.py": ""},
        )
    ),
    (
        rooms_are_entered_through_their_faces,
        {**FACE, "core/loop/loop.py": "from ..models.call import call_model"},
    ),
    (rooms_are_entered_through_their_faces, {**FACE, "core/loop/loop.py": "from ..models import call"}),
    (
        nothing_imports_in_circles,
        {"core/loop/a.py": "from .b import x", "core/loop/b.py": "def f():\n    from .a import y"},
    ),
    (
        nothing_imports_in_circles,
        {
            **FACE,
            "core/loop/__init__.py": "from .loop import run",
            "core/loop/loop.py": "from ..models import call_model",
            "core/models/parts.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..loop import run",
        },
    ),
    *(
        (packages_have_one_importer, {name: source})
        for name, source in (
            ("core/models/call.py", "def f():\n    from litellm import acompletion"),
            ("notebook/live/view.py", "import ipywidgets as w"),
            ("notebook/live/view.py", "import importlib\nimportlib.import_module('ipykernel.comm')"),
            ("core/session/stream.py", "import nest_asyncio2"),
            ("notebook/magic/cell.py", "from traitlets import Unicode"),
        )
    ),
    (core_knows_no_notebook, {"core/loop/loop.py": "def f():\n    import IPython"}),
    (litellm_is_imported_late, {"core/models/client.py": "import litellm.utils"}),
    (
        litellm_is_imported_late,
        {"core/models/client.py": "try:\n    import litellm\nexcept ImportError:\n    pass"},
    ),
    (every_module_is_imported, FACE),
    (small_modules_have_two_importers, {**FACE, "core/loop/loop.py": "from ..models import call_model"}),
    (
        public_names_have_one_home,
        {
            "core/text/a.py": "def cut(): ...",
            "core/text/__init__.py": "from .a import cut",
            "core/events/b.py": "def cut(): ...",
        },
    ),
    (public_names_have_one_home, {**FACE, "core/loop/__init__.py": "from ..models import call_model"}),
    (
        public_names_have_one_home,
        {
            "core/text/a.py": "def cut(): ...",
            "core/text/b.py": "from .a import cut",
            "core/text/c.py": "from .b import cut",
        },
    ),
    (rooms_are_small, {f"core/text/{letter}.py": "" for letter in "abcdefghi"}),
    (floors_are_few, {f"core/text/m{n}.py": f"from .m{n + 1} import x" for n in range(6)}),
    (
        floors_are_few,
        {
            f"core/{a}/__init__.py": f"from ..{b} import x"
            for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
        },
    ),
    (names_say_something, {"core/text/utils.py": ""}),
    (names_say_something, {"core/tools/tool.py": "class ToolRegistry: ..."}),
    (functions_are_short, {"core/loop/loop.py": "class A:\n    async def f():\n" + "        x = 1\n" * 60}),
    *(
        (everything_is_caught_in_one_room, {"core/loop/loop.py": source})
        for source in (
            "try:\n    x\nexcept (ValueError, Exception):\n    pass",
            "try:\n    x\nexcept:\n    raise",
            "try:\n    x\nexcept BaseException as e:\n    raise ValueError from e",
            "import contextlib\nwith contextlib.suppress(Exception):\n    x",
        )
    ),
    *(
        (nothing_is_chosen_by_the_name_of_a_class, {"notebook/live/view.py": "class Text: ...\n" + source})
        for source in (
            "type(event).__name__ == 'Text'",
            "event.__class__.__name__ in ('Text', 'Done')",
            "type(event).__name__ == wanted",
            "TABLE[type(event).__name__]",
            "TABLE.get(type(event).__name__, other)",
            "match type(event).__name__:\n    case 'Text': ...",
            "class V:\n    def on(self, kind):\n        getattr(self, f'_on_{kind}')()",
        )
    ),
    *(
        (nothing_is_assigned_on_another_module, {"core/text/keys.py": "x = 1", "core/text/plain.py": source})
        for source in (
            "from . import keys\nkeys.x = 2",
            "def f():\n    from . import keys as k\n    k.x += 2",
            f"import {PACKAGE}.core.text.keys as k\nsetattr(k, 'x', 2)",
            "from . import keys\nfor keys.x in range(3): ...",
            "from .keys import KEPT\nKEPT.limit = 2",
        )
    ),
]


def _house(files: dict[str, str]) -> House:
    return House(tuple(Module(name, source) for name, source in files.items()))


@pytest.mark.parametrize(("rule", "files"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_finds_what_breaks_it(rule, files):
    """Each rule finds the code that breaks it."""
    assert list(rule(_house(files)))


def test_every_rule_is_tried_on_bad_code():
    """For every rule, there is code that breaks it."""
    assert {rule for rule, _ in BAD} == set(RULES)


GOOD = {
    "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .api import run\n    from .core.session import sandbox",
    "api.py": LONG
    + "from .core.models import call_model\nfrom .core.session import keep\nfrom .notebook import live\nlive.show",
    "core/execution/__init__.py": "from .guard import guard",
    "core/execution/guard.py": LONG
    + "def guard():\n    try:\n        x\n    except Exception:\n        pass",
    "core/models/__init__.py": "from .call import call_model",
    "core/models/call.py": LONG + "from ..execution import guard\nfrom .client import load_litellm",
    "core/models/client.py": LONG
    + "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from litellm import X\n"
    + "def load_litellm():\n    import litellm\n    return litellm",
    "core/session/__init__.py": "from .sandbox import keep",
    "core/session/sandbox.py": "from ..models import call_model\ndef keep():\n    try:\n        x\n    except BaseException:\n        y()\n        raise",
    "notebook/kernel/__init__.py": "",
    "notebook/live/__init__.py": "from .show import show",
    "notebook/live/show.py": LONG
    + "import sys\nclass Text: ...\ntype(value).__name__ == 'DataFrame'\nself.x = 1\nshow = 3",
    "teaching/__init__.py": "from .demo import demo",
    "teaching/demo.py": LONG + "from ..core.models import call_model",
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_lets_good_code_pass(rule):
    """No rule reports good code."""
    assert list(rule(_house(GOOD))) == []
