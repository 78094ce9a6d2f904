"""Tools from functions: which functions can be tools, their names, and their descriptions."""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import sqlite3
import sys
import typing
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal, NoReturn

import pytest
from pydantic import BaseModel, Field, WithJsonSchema
from typing_extensions import TypeAliasType

from support.tool_kinds import Node
from toolloop_jupyter.core.events.errors import ToolDefinitionError
from toolloop_jupyter.core.events.observer import Progress
from toolloop_jupyter.core.tools.signature import ToolContext
from toolloop_jupyter.core.tools.tool import ToolSettings, find_marked_tools, make_tools, suggest, tool


def one(function):
    """The tool of one function."""
    (made,) = make_tools([function])
    return made


def refusal(*functions):
    """The problems that the functions are refused with."""
    with pytest.raises(ToolDefinitionError) as caught:
        make_tools(functions)
    return caught.value.problems


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


class Files:
    def __init__(self, root="/"):
        self.root = root

    def read(self, path: str) -> str:
        """Read a file."""
        return self.root + path

    @staticmethod
    def join(a: str, b: str) -> str:
        """Join two paths."""
        return f"{a}/{b}"

    @classmethod
    def open(cls, path: str) -> str:
        """Open a file."""
        return f"{cls.__name__}:{path}"

    def __call__(self, query: str) -> str:
        """Find a file."""
        return query


class Nothing(enum.Enum):
    A: "a"  # noqa: F821, UP037 - a slip


class Holder(BaseModel):
    x: Nothing | None = None


class Endless(BaseModel):
    other: tuple[Endless, int]


class EndlessList(BaseModel):
    items: Annotated[list[EndlessList], Field(min_length=1)] | Endless


class Tree(BaseModel):
    leaves: list[Tree]
    first: Tree | None
    exactly: Annotated[int, Field(ge=5, le=5)]


class Oddity(BaseException):
    """An exception that is not an `Exception`, like the one that Rust code raises (pyo3's PanicException)."""


def raise_oddity(*_, **__):
    raise Oddity("boom")


class HookRaises:
    __get_pydantic_core_schema__ = classmethod(raise_oddity)


class JsonHookRaises:
    __get_pydantic_core_schema__ = classmethod(lambda cls, source, handler: handler(int))
    __get_pydantic_json_schema__ = classmethod(raise_oddity)


class AttributesRaise:
    __getattr__ = raise_oddity

    def __call__(self, x: int = 1): ...


class SignatureRaises:
    __signature__ = property(raise_oddity)

    def __call__(self, x: int = 1): ...


class ClassRaises:
    __class__ = property(raise_oddity)

    def __call__(self, x: int = 1): ...


class Word(str):
    __slots__ = ()


class UncopiedDefault(dict):
    __iter__ = items = keys = raise_oddity


class TestSpec:
    def test_is_in_openais_format(self):
        """The description that goes to the model has name, description and parameters."""
        assert one(add).spec == {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add two numbers.",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            },
        }

    def test_has_no_description_where_there_is_none(self):
        """A function without a docstring can be a tool. Its spec has no description."""

        def bare(x):
            return x

        made = one(bare)
        assert made.description == ""
        assert "description" not in made.spec["function"]

    def test_source_is_the_persons(self):
        """The source is that of the function itself, also inside partials and methods; "" if there is none."""
        assert one(functools.partial(add, b=1)).source.startswith("def add(a: int")
        assert one(Files().read).source.startswith("def read(self")
        assert one(len).source == ""

    def test_tools_can_be_compared_and_kept_in_sets(self):
        """Two descriptions of one function are equal and hash alike."""
        assert one(add) == one(add)
        assert len({one(add), one(add)}) == 1


class TestCallables:
    def test_a_bound_method(self):
        """`Files("a").read` is called on its object, without `self` in the schema (C10)."""
        made = one(Files("a").read)
        assert list(made.parameters["properties"]) == ["path"]
        assert made.bind('{"path": "b"}').run() == "ab"

    @pytest.mark.parametrize("function", [Files.read, functools.wraps(Files.read)(lambda *a: None)])
    def test_an_unbound_method_is_refused(self, function):
        """`Files.read` lacks its object. It is refused before the run, and the error says what to write (C10)."""
        assert refusal(function) == (
            "Files.read: is a method without its object; give the method of an instance, Files().read",
        )

    def test_an_unbound_method_of_a_local_class_is_refused(self):
        """A method of a class inside a function is recognised by its parameter `self`."""

        class Local:
            def go(self, x: int): ...

        assert "Local().go" in refusal(Local.go)[0]

    def test_static_and_class_methods(self):
        """Static and class methods need no object."""
        join, opened = make_tools([Files.join, Files.open])
        assert join.bind({"a": "x", "b": "y"}).run() == "x/y"
        assert opened.bind({"path": "x"}).run() == "Files:x"

    def test_a_callable_object(self):
        """A callable object has the name of its class, and the description of `__call__`."""
        made = one(Files())
        assert (made.name, made.description) == ("Files", "Find a file.")
        assert made.bind({"query": "q"}).run() == "q"

    def test_a_partial(self):
        """The model does not see bound arguments and cannot set them. Name and docstring are those of the function (C12)."""
        made = one(functools.partial(add, b=3))
        assert (made.name, made.description) == ("add", "Add two numbers.")
        assert list(made.parameters["properties"]) == ["a"]
        assert made.bind('{"a": 1}').run() == 4
        with pytest.raises(ValueError, match="b: no such argument"):
            made.bind('{"a": 1, "b": 9}')

    def test_a_partial_with_a_value_that_has_no_schema(self):
        """A connection bound by the person needs no description."""

        def query(sql: str, connection: sqlite3.Connection):
            return sql, connection

        connection = sqlite3.connect(":memory:")
        made = one(functools.partial(query, connection=connection))
        assert made.bind({"sql": "x"}).run() == ("x", connection)
        connection.close()

    def test_decorated_functions(self):
        """`@wraps` and `@lru_cache` keep signature, name and docstring."""

        def logged(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)

            return wrapper

        for decorated in (logged(add), functools.lru_cache(add)):
            made = one(decorated)
            assert (made.name, made.description) == ("add", "Add two numbers.")
            assert made.bind('{"a": "1"}').run() == 3

    def test_kinds(self):
        """The outermost layer decides how a tool runs: a sync wrapper of an async function is sync."""

        async def later(x: int): ...

        async def items():
            yield 1

        def numbers():
            yield 1

        @functools.wraps(later)
        def wrapper(*args, **kwargs):
            return later(*args, **kwargs)

        class Async:
            async def __call__(self): ...

        kinds = [
            one(f).kind for f in (add, later, items, numbers, wrapper, functools.partial(later), Async())
        ]
        assert kinds == ["sync", "async", "async generator", "generator", "sync", "async", "async"]
        result = one(wrapper).bind({"x": 1}).run()
        assert inspect.iscoroutine(result)
        asyncio.run(result)

    def test_the_same_function_twice_is_one_tool(self):
        """A repeated function gives one tool, also a bound method, which Python makes anew at each access."""
        files = Files()
        assert len(make_tools([add, add, files.read, files.read])) == 2


class TestRefused:
    def test_all_problems_of_all_tools_in_one_message(self):
        """One message lists all problems, with function, parameter and what to write."""

        def many(x: Missing, *rest: int, conn: sqlite3.Connection, **more): ...  # noqa: F821

        problems = refusal(many, lambda x: x, int, 3)
        assert problems == (
            (
                "many: parameter 'x': its annotation 'Missing' cannot be evaluated (name 'Missing' is not defined); "
                "define the name at the notebook's top level, before the run"
            ),
            (
                "many: parameter *rest cannot be described to a model; write each parameter, or one parameter rest: list[...] "
                "(if this function is made by your decorator, use functools.wraps in the decorator)"
            ),
            (
                "many: parameter **more cannot be described to a model; write each parameter, or one parameter more: dict[str, ...] "
                "(if this function is made by your decorator, use functools.wraps in the decorator)"
            ),
            'a lambda has no name for the model; write a def, or tool(name="...")(lambda ...)',
            "int: is a class; write a function that makes an instance, or give a method of an instance",
            "a tool is a function, got 3",
        )

    def test_an_annotation_without_a_schema(self):
        """The error names the parameter, and says what to write instead."""

        def query(sql: str, connection: sqlite3.Connection, other: typing.Callable[[], int] = int): ...

        first, second = refusal(query)
        assert first.startswith(
            "query: parameter 'connection': sqlite3.Connection cannot be described to a model ("
        )
        assert first.endswith("or fill it yourself with functools.partial(..., connection=...)")
        assert second.startswith("query: parameter 'other': ")

    @pytest.mark.parametrize(
        "kind",
        [
            Nothing,
            Nothing | None,
            list[Nothing],
            dict[str, Nothing],
            dict[Nothing, int],
            tuple[Nothing, int],
            Literal["a"] | Nothing,
            Annotated[Nothing, "text"],
            Holder,
            TypeAliasType("Named", Nothing),
            list[TypeAliasType("Named", Nothing)],
        ],
        ids=repr,
    )
    def test_an_enum_without_members(self, kind):
        """No value is valid for such an enum, at any depth. The error names it, and says how members are written."""

        def work(x): ...

        work.__annotations__["x"] = kind
        (problem,) = refusal(work)
        assert "parameter 'x'" in problem
        assert "Nothing has no members; a member is written A = 'a', not A: 'a'" in problem

    @pytest.mark.parametrize(
        "kind",
        [
            NoReturn,
            list[NoReturn],
            list[type[int]],
            type[int] | type[str],
            list[type[int] | type[str]],
            dict[str, NoReturn],
            Literal[()],
            list[Literal[()]],
            Endless,
            Endless | None,
            dict[str, list[Endless]],
            Annotated[list[EndlessList], Field(min_length=1)],
        ],
        ids=repr,
    )
    def test_a_type_that_no_value_satisfies(self, kind):
        """A type for which no JSON value is valid is refused."""

        def work(x): ...

        work.__annotations__["x"] = kind
        (problem,) = refusal(work)
        assert problem.startswith("work: parameter 'x': ")
        assert "cannot be described to a model" in problem

    def test_a_type_that_refers_to_itself(self):
        """A recursive model is accepted if a finite value is valid."""

        def work(x: Tree): ...

        assert one(work).bind({"x": {"leaves": [], "first": None, "exactly": 5}}).kwargs["x"].exactly == 5

    @pytest.mark.parametrize(
        "schema",
        [
            {"$ref": "https://example.com/schema.json"},
            {"properties": {"a": True}, "required": ["a"]},
            {"allOf": [True], "anyOf": [True, False]},
            {"prefixItems": [True], "minItems": 1},
        ],
        ids=repr,
    )
    def test_a_schema_of_the_types_own(self, schema):
        """A schema that a type writes itself is accepted."""

        def work(x): ...

        work.__annotations__["x"] = Annotated[dict, WithJsonSchema(schema)]
        assert one(work).bind({"x": {"a": 1}}).kwargs == {"x": {"a": 1}}

    @pytest.mark.parametrize("kind", [HookRaises, list[JsonHookRaises], "raise_oddity()"], ids=repr)
    def test_an_annotation_that_raises_anything(self, kind):
        """An annotation's class may raise any BaseException. The tool is refused, and the error names the parameter."""

        def work(y: int, x=None): ...

        work.__annotations__["x"] = kind
        (problem,) = refusal(work)
        assert problem.startswith("work: parameter 'x': ")
        assert "Oddity: boom" in problem

    @pytest.mark.parametrize("kind", [AttributesRaise, SignatureRaises, ClassRaises])
    def test_an_object_whose_attributes_raise_anything(self, kind):
        """If a callable object's attributes raise, the error names its type, beside the problems of other tools."""
        expected = f"{kind.__name__}: reading this object as a tool raised Oddity: boom"
        assert refusal(kind(), lambda: 1)[0] == expected

    @pytest.mark.parametrize(
        "settings",
        [
            *({"description": 5}, {"timeout": "1"}, {"timeout": float("nan")}, {"max_result": [1]}),
            *({"thread": "no"}, {"capture_output": "x"}, {"parallel": 1}),
        ],
    )
    def test_a_setting_of_another_type(self, settings):
        """A wrong value of a setting of `@tool` is refused at the definition."""
        with pytest.raises(ToolDefinitionError, match=f"@tool: {next(iter(settings))} "):
            tool(**settings)

    def test_a_default_that_cannot_be_copied(self):
        """If a default's own code raises while it is copied, the call gets the default itself."""
        default = UncopiedDefault(a=1)

        def work(x=default):
            return x

        assert one(work).bind("{}").run() is default

    def test_a_class_that_the_annotation_cannot_see(self):
        """For an annotation with a class that Python cannot find, the error is one clear line (C09)."""

        def make():
            class Inner(BaseModel):
                z: int

            def work(q: Inner):
                return 1

            return work

        assert "work: parameter 'q': its annotation 'Inner' cannot be evaluated" in refusal(make())[0]

    def test_a_class_that_the_function_uses_is_seen(self):
        """An annotation can use a name in the function's closure (C09)."""

        def make():
            class Inner(BaseModel):
                z: int

            def work(q: Inner):
                return type(q) is Inner

            return work

        assert one(make()).bind('{"q": {"z": "1"}}').run() is True

    def test_two_functions_of_one_name(self):
        """The message names both functions (C26)."""
        first = add
        namespace = {}
        exec("def add(): pass", namespace)
        (problem,) = refusal(first, namespace["add"])
        assert problem.startswith("2 tools are called 'add': ")
        assert f"{add.__module__}.add (line {add.__code__.co_firstlineno}) and add (line 1)" in problem

    def test_two_parameters_of_one_name(self):
        """An alias must not be the name of another parameter."""

        def work(a: int, b: Annotated[int, Field(alias="a")]): ...

        assert refusal(work) == ("work: two parameters are called 'a'",)

    def test_a_function_without_a_signature(self):
        """Some functions that are written in C have no signature. They are refused."""
        assert (
            "Python does not know its parameters"
            in refusal(type("X", (), {"__signature__": 3, "__call__": add})())[0]
        )


class TestNames:
    def test_wire_names(self):
        """Names that providers refuse are replaced by valid and unique names; the notebook shows the old names (C26)."""

        def named(name):
            return tool(name=name)(lambda: name)

        names = ["søk", "a" * 70, "a" * 71, "fs.read", "fs_read", "größe", "3d", "日本", "ok-name"]
        made = make_tools([named(name) for name in names])
        wire = [tool.wire_name for tool in made]
        assert [tool.name for tool in made] == names
        assert wire[0] == "s_k"
        assert wire[1] != wire[2]
        assert wire[3].startswith("fs_read_")
        assert wire[4:] == ["fs_read", "grosse", "t_3d", "tool_cf2abf0c", "ok-name"]
        assert len(set(wire)) == len(wire)
        assert all(1 <= len(name) <= 64 and name.isascii() for name in wire)
        assert wire == [tool.wire_name for tool in make_tools([named(name) for name in names])]

    def test_unknown_names(self):
        """If the model calls an unknown tool, it gets the list of tools and the most similar name (C72)."""
        tools = make_tools([add, Files().read])
        assert suggest("ad", tools) == "unknown tool 'ad'; did you mean add? available: add, read"
        assert suggest("zzz", tools) == "unknown tool 'zzz'; available: add, read"
        assert suggest("x", ()) == "unknown tool 'x'; there are no tools; answer without a tool"


GOOGLE = """Find lines.

    More about it.

    Args:
        a: first number: must be > 0
        b (int): second,
            and more

    Returns:
        The sum.
    """
NUMPY = """Find lines.

    More about it.

    Parameters
    ----------
    a : int
        first number: must be > 0
    b : int, optional
        second,
        and more
    """
SPHINX = """Find lines.

    More about it.

    :param a: first number: must be > 0
    :param int b: second,
        and more
    :returns: the sum
    """


class TestDocstrings:
    @pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
    def test_styles(self, text):
        """The summary describes the tool, the texts about parameters describe the parameters (C27)."""

        def work(a: int, b: int = 1): ...

        work.__doc__ = text
        made = one(work)
        assert made.description == "Find lines.\n\nMore about it."
        properties = made.parameters["properties"]
        assert properties["a"]["description"] == "first number: must be > 0"
        assert properties["b"]["description"].split() == ["second,", "and", "more"]

    @pytest.mark.parametrize(
        "text", ["Just this.", "Note: a: b\n  c", "Args:\n    no colon here", "Args:", ":param:", "  "]
    )
    def test_plain_and_odd_ones(self, text):
        """A function with any docstring can be a tool."""

        def work(a: int): ...

        work.__doc__ = text
        assert one(work).parameters["properties"] == {"a": {"type": "integer"}}

    @pytest.mark.parametrize(
        "text",
        [
            "Add.\n\nParameters\n----------\na, b : int\n    The operands, in metres.",
            "Add.\n\nArgs:\n    a, b (int): The operands, in metres.",
            "Add.\n\nArgs:\n    a and b: The operands, in metres.",
            "Add.\n\nArgs:\n    `a`, *b: The operands, in metres.",
        ],
        ids=["numpy", "google", "in words", "marked up"],
    )
    def test_one_text_for_several_parameters(self, text):
        """`a, b : int` describes both parameters."""

        def add(a: int, b: int): ...

        add.__doc__ = text
        properties = one(add).parameters["properties"]
        assert [properties[name]["description"] for name in "ab"] == ["The operands, in metres."] * 2

    @pytest.mark.parametrize(
        "text",
        [
            "Add.\n\nArgs:\n    a: x\n\nRaises:\n    ValueError: if negative\n\nExamples:\n    add(1)",
            (
                "Add.\n\nParameters\n----------\na : int\n    x\n\nRaises\n------\nValueError\n    if negative\n\n"
                "Examples\n--------\nadd(1)"
            ),
        ],
        ids=["google", "numpy"],
    )
    def test_sections_about_the_whole(self, text):
        """The description also has Raises, Notes and Examples, up to a limit."""

        def add(a: int): ...

        add.__doc__ = text
        assert one(add).description == "Add.\n\nRaises: ValueError: if negative\n\nExamples: add(1)"
        add.__doc__ = text.replace("add(1)", ">>> add(1)\n    2" if "Args" in text else ">>> add(1)\n2")
        assert one(add).description.endswith("Examples: >>> add(1)\n2")
        add.__doc__ = text + "1" * 10_000
        assert len(one(add).description) == 2_006

    @pytest.mark.parametrize(
        "text",
        [
            "Wipe.\n\nArgs:\n    a: x\n\nNote:\n    Slow.\n\nWarning:\n    It deletes: all.",
            (
                "Wipe.\n\nParameters\n----------\na : int\n    x\n\nNotes\n-----\nSlow.\n\n"
                "Warnings\n--------\nIt deletes: all."
            ),
        ],
        ids=["google", "numpy"],
    )
    def test_notes_and_warnings(self, text):
        """Notes and warnings after the parameters are a part of the description."""

        def wipe(a: int): ...

        wipe.__doc__ = text
        assert one(wipe).description == "Wipe.\n\nNotes: Slow.\n\nWarnings: It deletes: all."
        assert one(wipe).parameters["properties"]["a"]["description"] == "x"

    def test_types_in_the_docstring_help_where_there_is_no_annotation(self):
        """A type in the docstring is described, but not checked."""

        def work(a, b: int):
            """Work.

            Args:
                a (list of str): names
                b (float): number
            """

        properties = one(work).parameters["properties"]
        assert properties["a"]["description"] == "(list of str) names"
        assert properties["b"]["description"] == "number"

    def test_no_annotation_and_no_text(self):
        """Such a parameter is described as any JSON value."""

        def work(a): ...

        assert one(work).parameters["properties"]["a"]["description"] == "Any JSON value."

    def test_an_annotations_text_goes_first(self):
        """`Annotated[int, "text"]` replaces the text of the docstring."""

        def work(a: Annotated[int, "mine"]):
            """Work.

            Args:
                a: the docstring's
            """

        assert one(work).parameters["properties"]["a"]["description"] == "mine"


class TestDecorator:
    def test_leaves_the_function_as_it_is(self):
        """`@tool`, with or without settings, returns the same function."""

        def work(): ...

        assert tool(work) is work
        assert tool(timeout=3)(work) is work
        assert one(work).settings == ToolSettings(timeout=3)

    def test_sets_everything(self):
        """Each keyword of `@tool` is a setting of the tool."""

        @tool(
            name="other",
            description="What it does.",
            permissions="ask",
            timeout=1.5,
            thread=False,
            max_result=10,
            capture_output=True,
        )
        def work():
            """Not this."""

        made = one(work)
        assert (made.name, made.description) == ("other", "What it does.")
        assert made.settings == ToolSettings("ask", 1.5, thread=False, max_result=10, capture_output=True)

    def test_a_number_of_another_class(self):
        """A Decimal or a Fraction becomes a plain number, to which a time can be added."""

        @tool(timeout=Decimal("1.5"), max_result=Fraction(10))
        def work(x: int): ...

        settings = one(work).settings
        assert (type(settings.timeout), settings.timeout, settings.max_result) == (float, 1.5, 10)

    def test_on_a_method_holds_for_its_objects(self):
        """A method's mark is found on the bound method, and on a partial of it."""

        class Box:
            @tool(permissions="full")
            def look(self): ...

        assert one(Box().look).settings.permissions == "full"
        assert one(functools.partial(Box().look)).settings.permissions == "full"

    def test_on_a_bound_method(self):
        """The bound methods of two objects can be two tools with different names."""
        a, b = make_tools([tool(name="read_a")(Files("a").read), tool(name="read_b")(Files("b").read)])
        assert (a.bind({"path": "x"}).run(), b.bind({"path": "x"}).run()) == ("ax", "bx")
        assert a.description == "Read a file."

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"permissions": "maybe"}, 'permissions must be "full" or "ask", got \'maybe\''),
            ({"permissions": Word("ask")}, 'permissions must be "full" or "ask" as plain text, got \'ask\''),
            ({"timeout": 0}, "timeout must be > 0 seconds, got 0"),
            ({"max_result": -1}, "max_result must be > 0 characters, got -1"),
            ({"name": " "}, "name must not be empty, got ' '"),
        ],
    )
    def test_mistakes_are_told_at_once(self, settings, text):
        """Errors are raised at the definition, not at the run."""
        with pytest.raises(ToolDefinitionError, match=text):
            tool(**settings)

    def test_marks_functions_only(self):
        """`@tool("name")` is an error: it is a likely mistake."""
        with pytest.raises(ToolDefinitionError, match="write a setting with its name"):
            tool("name")

    def test_marked_tools_in_the_order_of_definition(self):
        """Each marked function of a notebook is found once, in the order of the last definitions."""
        namespace = {}

        def cell(name):
            namespace[name] = tool(eval(f"lambda: '{name}'"))

        cell("b")
        cell("a")
        cell("b")
        namespace.update(alias=namespace["a"], plain=add, kind=Files, value=3)

        class Lazy:
            def __getattr__(self, name):
                raise AssertionError("nobody may touch this")

        namespace["lazy"] = Lazy()
        assert [function() for function in find_marked_tools(namespace)] == ["a", "b"]


class TestContext:
    def test_is_hidden_and_filled(self):
        """The model never sees the parameter, and the function gets the context of its call."""
        reports = []

        def work(n: int, context: ToolContext):
            context.progress(1, n, "half")
            return context.call_id

        made = one(work)
        bound = made.bind({"n": 2})
        assert made.context_parameter == "context"
        assert "context" not in made.parameters["properties"]
        assert "context" not in bound.json
        assert bound.run(ToolContext("c1", reports.append)) == "c1"
        assert reports == [Progress(1, 2, "half")]

    def test_by_hand(self):
        """If your code calls the tool, the reports of the context are not shown."""
        assert ToolContext().progress(1) is None

    def test_two_or_positional_only_ones_are_refused(self):
        """A tool can have one context, which is passed by name."""

        def two(a: ToolContext, b: ToolContext): ...

        def positional(a: ToolContext, /): ...

        rule = "only one parameter of a tool can be a ToolContext; write it without `*`, and not before a `/`"
        assert refusal(two, positional) == (
            f"two: parameter 'b': {rule}",
            f"positional: parameter 'a': {rule}",
        )


class TestValuesOfACall:
    def test_mutable_defaults_are_not_shared(self):
        """If a call changes a default, the next call does not see the change."""

        def collect(x: int, seen: list = [], index: dict = {"a": []}):  # noqa: B006
            seen.append(x)
            index["a"].append(x)
            return seen, index

        made = one(collect)
        first = made.bind({"x": 1}).run()
        assert first == ([1], {"a": [1]})
        assert made.bind({"x": 2}).run() == ([2], {"a": [2]})

    def test_a_sentinel_default_stays_itself(self):
        """`x is MISSING` works, because only containers are copied."""
        missing = object()

        def work(x: int = missing):
            return x is missing

        assert one(work).bind(None).run() is True

    def test_values_are_private(self):
        """The function's values are shared neither with the caller's dict nor with the shown JSON."""

        def work(x: list, y: dict):
            x.append(1)
            y["a"] = 1
            return x, y

        sent = {"x": [], "y": {}}
        bound = one(work).bind(sent)
        assert bound.run() == ([1], {"a": 1})
        assert sent == {"x": [], "y": {}}
        assert bound.json == {"x": [], "y": {}}

    def test_models_arrive_as_models(self):
        """The function gets models as models, even in lists and inside each other (C15, C23)."""

        def edit(node: Node, more: list[Node]):
            return node, more

        node, more = one(edit).bind('{"node": {"v": 1, "kids": [{"v": 2}]}, "more": [{"v": 3}]}').run()
        assert type(node) is type(node.kids[0]) is type(more[0]) is Node

    def test_a_validator_that_fails_in_its_own_way(self):
        """If a person's validator raises any error, the model gets a message, and the run goes on."""

        class Odd(BaseModel):
            n: int

            def model_post_init(self, context):
                raise KeyError("odd")

        def work(x: Odd): ...

        work.__annotations__ = {"x": Odd}
        with pytest.raises(ValueError, match="invalid arguments, work was not run: KeyError: 'odd'"):
            one(work).bind({"x": {"n": 1}})

    def test_edited_arguments(self):
        """Edited arguments are validated like those of the model. An unchanged default is left to the function."""

        def work(n: int = "auto", deep: bool = False):
            return n, deep

        made = one(work)
        shown = made.bind({}).json
        assert shown == {"n": "auto", "deep": False}
        assert made.bind({}).edited({**shown, "deep": True}).run() == ("auto", True)
        assert made.bind({}).edited({**shown, "n": "5"}).run() == (5, False)
        with pytest.raises(ValueError, match='n: expected an integer, got "many"'):
            made.bind({}).edited({**shown, "n": "many"})

    @pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it from Python 3.12 on")
    def test_a_typing_typed_dict(self):
        """`typing.TypedDict` works from Python 3.12 on; before, the error says what to use instead (C17)."""

        def work(t: typing.TypedDict("Old", {"depth": int})):
            return t

        with pytest.raises(ToolDefinitionError, match=r"parameter 't': .*typing_extensions\.TypedDict"):
            one(work)


def test_equal_defaults_of_other_types_are_other_schemas():
    """If two functions differ only in a default (1 or True), each schema has its own default."""

    def count(x: int = 1) -> int:
        return x

    def check(x: int = True) -> int:
        return x

    defaults = [one(function).parameters["properties"]["x"]["default"] for function in (count, check)]
    assert [repr(default) for default in defaults] == ["1", "True"]


def test_a_schema_that_is_changed_is_no_other_tools():
    """If other code changes the schema of one tool, other tools keep theirs."""
    one(add).parameters["properties"]["a"]["description"] = "changed"
    assert "description" not in one(add).parameters["properties"]["a"]


def test_a_plain_name_that_the_function_gives_another_meaning():
    """If a function uses `int` as the name of another type, the annotation `int` means this type."""
    int = float  # noqa: A001

    def half(x: int) -> int:
        return int(x) / 2

    assert one(half).parameters["properties"]["x"]["type"] == "number"


def test_a_default_that_python_does_not_write():
    """An int of more than 4,300 digits, which `repr` refuses, may be a default."""

    def count(n: int = 10**5000) -> int:
        """Count."""
        return n

    (made,) = make_tools([count])
    assert made.bind("{}").run() == 10**5000
