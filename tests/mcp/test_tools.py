"""Guarantee: a server's tool is an ordinary tool: the model sees its schema, arguments are checked against it, results are values."""

from __future__ import annotations

import asyncio
import functools
import json
import time
import warnings

import pytest

from support.mcp_server import PNG, command, environment, make_server
from toolloop_jupyter import Harness, aagent, agent
from toolloop_jupyter.core.events import Mistake, ToolDefinitionError
from toolloop_jupyter.core.text import keys
from toolloop_jupyter.core.tools import InvalidArguments, make_tools
from toolloop_jupyter.mcp import ServerError
from toolloop_jupyter.mcp import connection as connection_module
from toolloop_jupyter.mcp import schema as schema_module
from toolloop_jupyter.mcp.schema import (
    SchemaArguments,
    UnusableSchema,
    check_schema,
    find_problem,
    make_offered,
)
from toolloop_jupyter.notebook.magic.names import find_tools
from toolloop_jupyter.teaching import ScriptedModel, call

LOOP = Harness.TOOL_LOOP


def run(connection, *calls, **keywords):
    """Run these calls, allow each, and return their results."""
    model = ScriptedModel([*calls], "That is all.")
    keywords = {"tools": [connection], "on_approval": lambda _: True, **keywords}
    result = agent(LOOP, "Go on.", model=model, **keywords)
    assert result.stop_reason == "done"
    return result.tool_results


def test_a_run_calls_over_each_transport(connection):
    """In memory, over stdio and over HTTP, a run gets a result, an error of the tool, and the message about wrong arguments."""
    added, failed, wrong = run(connection, call("add", a=1, b=2), call("fail"), call("add", a="many", c=1))
    assert (added.value, added.output) == ({"result": 3}, '{"result": 3}')
    assert (failed.is_error, failed.output) == (
        True,
        "ServerError: Error executing tool fail: the disk is full",
    )
    assert wrong.status == "invalid"
    assert wrong.output == 'invalid arguments, add was not run:\n- a: expected an integer, got "many"'


async def test_a_run_is_awaited(connection):
    """`await aagent(…)` calls the tools like `agent(…)`."""
    model = ScriptedModel([call("shout", text="hey")], "Done.")
    result = await aagent(LOOP, "Go on.", model=model, tools=[connection.shout], on_approval=lambda _: True)
    assert [one.value for one in result.tool_results] == ["HEY"]


def test_pictures_and_files_are_values(connect):
    """A picture becomes bytes, and a model that takes pictures gets it. An embedded file becomes text under its name."""
    files = connect(make_server())
    model = ScriptedModel([call("show")], "A dot.", takes_images=True)
    result = agent(LOOP, "Go on.", model=model, tools=[files], on_approval=lambda _: True)
    (shown,) = result.tool_results
    assert shown.value[0] == "see:"
    assert shown.value[1][:4] == b"\x89PNG"
    assert shown.value[2] == "[file:///notes.txt]\nthe notes"
    assert shown.pictures == (f"data:image/png;base64,{PNG}",)


def test_a_long_answer_is_bounded(connect):
    """Of a result of 5 MB, the person gets all, and the model gets a shortened text."""
    files = connect(command(), env=environment())
    (big,) = run(files, call("big", size=5_000_000))
    assert len(big.value) == 5_000_000
    assert len(big.output) < 50_000


def test_the_model_sees_the_servers_schema(connect, server):
    """The model gets the server's own schema and description, under the tool's name."""
    files = connect(server)
    (spec,) = [tool.spec["function"] for tool in make_tools([files.add])]
    assert spec["name"] == "add"
    assert spec["description"] == "Add two numbers."
    assert spec["parameters"]["required"] == ["a"]
    assert spec["parameters"]["properties"]["b"]["description"] == "the other"
    assert spec["parameters"] == files.add.schema


def test_names_that_repeat_get_the_servers_in_front(connect):
    """If two servers have the same tools, the server's name, or `name=`, is put before each tool's name. Functions keep their names."""

    def fail() -> str:
        """Mine."""

    one, other = (
        connect(make_server(), include=["add"]),
        connect(make_server(), include=["add"], name="second"),
    )
    third = connect(make_server(), include=["fail"])
    names = [tool.name for tool in make_tools([one, other, third, fail])]
    assert names == ["tester_add", "second_add", "tester_fail", "fail"]
    with pytest.raises(ToolDefinitionError, match="2 tools are called 'tester_add'"):
        make_tools([one, connect(make_server(), include=["add"])])


def test_names_on_the_option_line(connect, server):
    """`--tools files` means all tools of a server, `files.add` one tool. An error names a tool that does not exist."""
    names = {"files": connect(server, exclude=["die"])}
    assert [tool.name for tool in find_tools(names, ["files"])] == [
        tool.name for tool in names["files"].tools
    ]
    assert [tool.name for tool in find_tools(names, ["files.add,files.shout"])] == ["add", "shout"]
    with pytest.raises(Mistake, match=r"there is no tool 'files\.die'"):
        find_tools(names, ["files.die"])
    with pytest.raises(Mistake, match=r"there is no tool 'files\.close'"):
        find_tools(names, ["files.close"])


def test_include_and_exclude_must_be_there(connect, server):
    """A name that the server does not have is a mistake. A single name needs no list."""
    assert [tool.name for tool in connect(server, include="add").tools] == ["add"]
    with pytest.raises(Mistake, match="this server has no tool 'ad'"):
        connect(server, include=["ad"])
    with pytest.raises(Mistake, match="this server has no tool 'dlete'"):
        connect(server, permissions={"dlete": "deny", "*": "full"})


def _listing(*tools):
    """Return a server that lists tools with these names and schemas, unchanged."""
    from mcp.server import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    async def list_them(_context, _parameters):
        return ListToolsResult(tools=[Tool(name=name, input_schema=schema) for name, schema in tools])

    async def run_one(_context, parameters):
        return CallToolResult(content=[TextContent(text=str(parameters.arguments))])

    return Server("odd", on_list_tools=list_them, on_call_tool=run_one)


EMPTY = {"type": "object"}


def test_what_cannot_be_used_is_left_out(connect):
    """A schema of 2 MB, one with a circle and one that refers to an address: one line says each, and the other tools work."""
    huge = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 2_000_000}}}
    circle = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/b"}},
        "$defs": {"b": {"$ref": "#/$defs/b"}},
    }
    outside = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}
    server = _listing(("huge", huge), ("circle", circle), ("outside", outside), ("fine", EMPTY))
    with pytest.warns(UserWarning, match="is left out"):
        odd = connect(server)
    assert [tool.name for tool in odd.tools] == ["fine"]
    assert len(odd.notices) == 3
    assert all("\n" not in one and len(one) < 150 for one in odd.notices)
    assert [one.value for one in run(odd, call("fine", x=1))] == ["{'x': 1}"]


def test_a_list_that_has_a_key(connect, monkeypatch):
    """If a server writes a key into a description or a tool's name, the repr and the warning do not show the key."""
    from mcp.server import Server
    from mcp_types import ListToolsResult, Tool

    monkeypatch.setattr(keys, "_known", {})
    key = "opaque+Q7/x9.Zp3wVtAB"
    keys.remember([key])
    tools = [Tool(name="use", description=f"It uses {key}.", input_schema=EMPTY)]
    tools += [Tool(name=f"of {key}", input_schema={**EMPTY, "$ref": "http://127.0.0.1:9/x"})]

    async def list_them(_context, _parameters):
        return ListToolsResult(tools=tools)

    with pytest.warns(UserWarning, match="left out") as caught:
        made = connect(Server("odd", on_list_tools=list_them))
    for text in (repr(made), str(caught[0].message)):
        assert "[key]" in text
        assert key not in text


def test_many_tools_are_told_with_their_tokens(connect):
    """For a server with 300 tools, a notice says how many tokens each model call gets. With `include`, there are fewer tools."""
    many = _listing(*((f"tool_{number}", EMPTY) for number in range(300)))
    with pytest.warns(UserWarning, match=r"300 tools, about [\d,]+ tokens, are sent"):
        assert len(connect(many).tools) == 300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(connect(many, include=["tool_7"]).tools) == 1


def test_any_name_is_only_text(connect):
    """A tool called `<script>`, one with control characters and one like a method of the connection: all can be called."""
    odd = connect(
        _listing(
            ("<script>alert(1)</script>", EMPTY),
            ("a\x1b[31m\u202eb", EMPTY),
            ("close", EMPTY),
            ("_repr_html_", EMPTY),
            ("fs.read", EMPTY),
            ("import", EMPTY),
        )
    )
    assert [tool.name for tool in odd.tools] == [
        "<script>alert(1)</script>",
        "ab",
        "close",
        "_repr_html_",
        "fs.read",
        "import",
    ]
    names = [tool.wire_name for tool in make_tools([odd])]
    assert all(name.replace("_", "").isalnum() for name in names)
    assert odd.close_ is odd["close"]
    assert odd.tool_repr_html_ is odd["_repr_html_"]
    assert not hasattr(odd, "_repr_html_"), "IPython would call it"
    assert odd.fs_read() == "{}"
    assert odd.import_ is odd["import"]
    results = run(odd, *(call(name) for name in names))
    assert [one.value for one in results] == ["{}"] * 6


# --- arguments ---

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "^/"},
        "depth": {"type": ["integer", "null"], "minimum": 0},
        "kind": {"enum": ["file", "folder"]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {
        "part": {"type": "object", "properties": {"in": {"type": "array", "items": {"$ref": "#/$defs/part"}}}}
    },
}


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({}, "path: missing, and required"),
        ({"path": 1}, "path: expected a string, got 1"),
        ({"path": "/", "depth": -1}, "depth: does not fit minimum 0, got -1"),
        ({"path": "/", "depth": "x"}, 'depth: expected an integer or null, got "x"'),
        ({"path": "/", "kind": "dir"}, 'kind: expected "file" or "folder", got "dir"'),
        ({"path": "/", "pth": 1}, "pth: no such argument; did you mean path?"),
        ({"path": "/", "parts": [{"in": [1]}]}, r"parts\[0\].in\[0\]: expected an object, got 1"),
        ('{"path": ', "arguments are not valid JSON"),
    ],
)
def test_arguments_are_checked_against_the_schema(sent, says):
    """There is one line for each wrong argument, as for functions."""
    check_schema(SCHEMA)
    with pytest.raises(InvalidArguments, match=says):
        SchemaArguments("ls", SCHEMA).read(sent)


def test_arguments_that_fit_are_what_was_sent():
    """Values stay the JSON that was sent. If an array was sent as a text of JSON, the text is decoded."""
    reader = SchemaArguments("ls", SCHEMA)
    read = reader.read('{"path": "/tmp", "depth": null, "parts": "[{}]"}')
    assert reader.pack(read) == (({"path": "/tmp", "depth": None, "parts": [{}]},), {})
    assert reader.edit(read, {"path": "/tmp", "depth": None, "parts": [{}]}) is read
    assert reader.pack(reader.edit(read, {"path": "/"}))[0] == ({"path": "/"},)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "object", "anyOf": [{}]},
        {"type": "object", "properties": 5},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
    ],
)
def test_unusable_schemas(schema):
    """A schema is refused if providers refuse it, or if arguments cannot be checked against it."""
    with pytest.raises(UnusableSchema):
        check_schema(schema)


def test_tuples_inside_tuples_do_not_double_at_each_level():
    """A schema with tuples that are nested 45 levels deep is read, and what the model gets stays short."""
    part = {"type": "string"}
    for _ in range(45):
        part = {"type": "array", "prefixItems": [part]}
    schema = {"type": "object", "properties": {"a": part}}
    check_schema(schema)
    assert len(json.dumps(make_offered(schema))) < 50_000


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "$schema": 3}, "is not a valid JSON schema"),
        ({"type": "object", "properties": {"a": {"default": float("nan")}}}, "that JSON cannot contain"),
        ({"type": "object", "properties": {"a": {"title": "\ud800"}}}, "that JSON cannot contain"),
        (
            {
                "type": "object",
                "$schema": "http://json-schema.org/draft-03/schema#",
                "properties": {"a": {"type": "any"}},
            },
            "cannot be written in the newest",
        ),
        (
            {"type": "object", "title": "T", "properties": {"a": {"$ref": "#/title/0"}}},
            "refers to a part that is not a schema",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/properties/b/maxLength"}, "b": {"maxLength": 5}},
            },
            "refers to a part that is not a schema",
        ),
    ],
)
def test_a_strange_schema_is_one_line(schema, says):
    """For a schema that cannot be checked, or that no request can contain, one line says why."""
    with pytest.raises(UnusableSchema, match=says):
        check_schema(schema)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "pattern": r"^\p{L}+$"},
        {"type": "string", "pattern": "^(?<year>[0-9]{4})$"},
        {"$ref": "#/$defs/a%20b"},
    ],
)
def test_what_other_languages_write_is_no_fault(part):
    """A tool with a JavaScript pattern, or with an escaped reference, can be used. The model does not get the pattern."""
    schema = {"type": "object", "properties": {"a": part}, "$defs": {"a b": {"type": "string"}}}
    check_schema(schema)
    assert "pattern" not in make_offered(schema)["properties"]["a"]
    assert SchemaArguments("f", schema).read({"a": "Ünal"})["a"].value == "Ünal"


@pytest.mark.parametrize("draft", [4, 6, 7])
def test_the_model_gets_the_newest_draft(draft):
    """A schema of an older draft is written in the newest draft, which providers require. The same values fit."""
    from jsonschema import Draft202012Validator

    limits = {"minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    part = limits if draft == 4 else {"exclusiveMinimum": 0, "maximum": 9}
    schema = {
        "$schema": f"http://json-schema.org/draft-0{draft}/schema#",
        "type": "object",
        "properties": {"n": {"type": "integer", **part}, "two": {"type": "array", "items": [{}, {}]}},
    }
    check_schema(schema)
    offered = make_offered(schema)
    Draft202012Validator.check_schema(offered)
    assert offered["properties"]["n"] == {"type": "integer", "exclusiveMinimum": 0, "maximum": 9}


def test_references_follow_a_name_that_is_put_right():
    """A reference to a renamed argument has the new name."""
    schema = {
        "type": "object",
        "properties": {
            "a/ö": {"type": "object", "properties": {"x": {"type": "string"}}},
            "b": {"$ref": "#/properties/a~1%C3%B6/properties/x"},
        },
        "dependentRequired": {"b": ["a/ö"]},
    }
    check_schema(schema)
    check_schema(make_offered(schema))
    with pytest.raises(InvalidArguments, match="does not fit dependentRequired"):
        SchemaArguments("f", schema).read({"b": "x"})


def test_the_model_reads_nothing_that_is_hidden():
    """The texts inside a schema are plain, too: they have no characters that a person cannot see."""
    hidden = "a city" + "".join(chr(0xE0000 + ord(char)) for char in "send all") + "\u202e\x1b[31m"
    schema = {"type": "object", "properties": {"city": {"type": "string", "description": hidden}}}
    assert make_offered(schema)["properties"]["city"]["description"] == "a city"


def test_names_that_providers_refuse_are_put_right():
    """The model sees the argument `größe` as `grosse`, and the server gets `größe`. Error messages have the model's name."""
    schema = {
        "type": "object",
        "properties": {"größe": {"type": "integer"}, "a b": {"type": "string", "description": "both"}},
        "required": ["größe"],
        "additionalProperties": False,
    }
    check_schema(schema)
    offered = make_offered(schema)
    assert offered["properties"] == {
        "grosse": {"type": "integer", "description": "größe"},
        "a_b": {"type": "string", "description": "both"},
    }
    assert offered["required"] == ["grosse"]
    reader = SchemaArguments("buy", schema)
    read = reader.read({"grosse": 3, "a_b": "x"})
    assert [*read] == ["grosse", "a_b"]
    assert reader.pack(read) == (({"größe": 3, "a b": "x"},), {})
    assert reader.pack(reader.edit(read, {"grosse": 4}))[0] == ({"größe": 4},)
    with pytest.raises(
        InvalidArguments,
        match=r"- grosse: missing, and required\n- gros: no such argument; did you mean grosse",
    ):
        reader.read({"gros": 1})


def test_the_model_gets_words_that_all_providers_know():
    """Keywords that some providers refuse are written like the schemas of functions. The same values fit."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "one": {"oneOf": [{"const": 1}, {"const": "a"}], "default": None},
            "tree": {"$ref": "#/definitions/tree"},
            "once": {"$ref": "#/definitions/once"},
            "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]},
            "any": True,
            "untyped": {"properties": {"x": {"type": "string", "pattern": "(?=a)a"}}},
        },
        "definitions": {
            "tree": {"type": "object", "properties": {"in": {"$ref": "#/definitions/tree"}}},
            "once": {"type": "boolean"},
        },
    }
    check_schema(schema)
    made = make_offered(schema)
    assert set(made) == {"type", "properties", "$defs"}
    assert made["$defs"] == {"tree": {"type": "object", "properties": {"in": {"$ref": "#/$defs/tree"}}}}
    properties = made["properties"]
    assert properties["one"] == {
        "anyOf": [{"enum": [1], "type": "integer"}, {"enum": ["a"], "type": "string"}]
    }
    assert properties["once"] == {"type": "boolean"}
    assert properties["pair"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert {"type": "null"} in properties["any"]["anyOf"]
    assert properties["untyped"] == {"type": "object", "properties": {"x": {"type": "string"}}}
    assert make_offered({"type": "object"}) == {"type": "object", "properties": {}}


def test_definitions_stay_where_a_reference_is_of_another_kind():
    """Definitions are moved only if all references to them can be changed. So no reference leads to nothing."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/definitions/b"},
            "c": {"if": {"$ref": "#/definitions/b/properties/d"}},
        },
        "definitions": {"b": {"type": "object", "properties": {"d": {"type": "string"}}}},
    }
    check_schema(schema)
    made = make_offered(schema)
    assert made["$defs"] == schema["definitions"]
    assert made["properties"]["a"] == {"$ref": "#/$defs/b"}
    assert made["properties"]["c"]["if"] == {"$ref": "#/$defs/b/properties/d"}


@pytest.mark.parametrize(
    ("draft", "part", "fits", "wrong"),
    [
        ("draft-04", {"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 1, 0),
        ("draft-07", {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], ["a"]),
        (
            "draft-07",
            {"type": "array", "items": [{"type": "integer"}], "additionalItems": False},
            [1],
            [1, 2],
        ),
    ],
)
def test_a_schema_is_read_by_its_own_draft(draft, part, fits, wrong):
    """If a schema names an older draft, as many servers do, its values are checked by the rules of that draft."""
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        "type": "object",
        "properties": {"p": part},
    }
    check_schema(schema)
    assert SchemaArguments("f", schema).read({"p": fits})["p"].value == fits
    with pytest.raises(InvalidArguments, match=r"- p"):
        SchemaArguments("f", schema).read({"p": wrong})


LONG = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, LONG),
        ({"type": "string", "pattern": "a?" * 30 + "a" * 30}, "a" * 30),
        ({"type": "string", "pattern": "^" + "(a|a)" * 35 + "$"}, "a" * 35),
        ({"type": "string", "pattern": "a*a*a*a*b"}, "a" * 2_000),
        ({"type": "string", "pattern": "a*a*b"}, "a" * 5_000),
        ({"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {LONG: 1}),
        ({"type": "object", "patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}, {LONG: 1}),
        ({"type": "array", "uniqueItems": True}, [{"n": n} for n in range(4_000)]),
    ],
)
def test_what_could_hold_the_notebook_is_left_to_the_server(part, value):
    """Checks that could take years (a pattern, the pairs of a long list) are not tried."""
    schema = {"type": "object", "properties": {"a": part}}
    check_schema(schema)
    assert SchemaArguments("f", schema).read({"a": value})["a"].value == value
    if "patternProperties" in part:  # also at the top of the schema
        assert SchemaArguments("f", part).read(value)


@pytest.mark.parametrize(
    ("part", "value", "wrong"),
    [
        ({"type": "string", "not": {"pattern": "/"}}, "a", 1),
        ({"oneOf": [{"type": "string", "pattern": "^[0-9]+$"}, {"type": "string", "pattern": "^a"}]}, "a", 1),
        ({"oneOf": [{"type": "array", "uniqueItems": True}, {"minItems": 2, "type": "array"}]}, [1, 1], "a"),
        ({"type": "string", "if": {"pattern": "^/"}, "then": {"minLength": 5}}, "a", 1),
        ({"type": "array", "contains": {"pattern": "^/"}, "maxContains": 1}, ["/a", "b"], 1),
        (
            {"oneOf": [{"required": ["b"]}, {"patternProperties": {"a": False}}, {"type": "object"}]},
            {"a": 1},
            None,
        ),
        (
            {"if": {"pattern": "^/"}, "else": {"properties": {"b": {}}}, "unevaluatedProperties": False},
            {"b": 1},
            None,
        ),
    ],
)
def test_what_is_left_to_the_server_refuses_nothing(part, value, wrong):
    """A keyword that refuses what fits (`not`, one of several) refuses nothing here because of a pattern that only the server tries."""
    schema = {"type": "object", "properties": {"a": part}}
    check_schema(schema)
    assert find_problem(schema, {"a": value}) == ""
    assert wrong is None or find_problem(schema, {"a": wrong}) != ""


def test_an_argument_may_have_the_name_pattern():
    """A schema with such an argument, as search tools have, but without the keyword is checked in full."""
    part = {
        "properties": {"pattern": {"type": "string", "description": 'as "pattern": "a*"'}},
        "required": ["pattern"],
    }
    schema = {"type": "object", "properties": {"a": {**part, "not": {"required": ["b"]}}}}
    check_schema(schema)
    assert find_problem(schema, {"a": {"pattern": "x"}}) == ""
    assert find_problem(schema, {"a": {"pattern": "x", "b": 1}}) != ""


@pytest.mark.parametrize(
    ("part", "fits", "wrong"),
    [
        ({"items": {"enum": [f"v{n}" for n in range(6_000)]}}, ["v5999"] * 5_000, ["v6000"]),
        ({"items": {"enum": [1, "a", None, [2]]}}, [1, 1.0, "a", None, [2]], [True]),
    ],
)
def test_long_lists_are_checked_without_comparing_all(part, fits, wrong, monkeypatch):
    """The choices of each item are checked, with few of the slow comparisons."""
    from jsonschema import _keywords

    compared = []
    equal = _keywords.equal
    monkeypatch.setattr(_keywords, "equal", lambda *both: compared.append(1) or equal(*both))
    schema = {"type": "object", "properties": {"a": {"type": "array", **part}}}
    assert find_problem(schema, {"a": fits}) == ""
    assert find_problem(schema, {"a": wrong}) != ""
    assert len(compared) <= 2 * len(fits)


@pytest.mark.parametrize(("parts", "names"), [(1, 5_000), (500, 5)])
def test_few_of_many_faults_are_explained(parts, names, monkeypatch):
    """A value with very many unknown arguments, or with the same ones in many parts: only some are compared with all names."""
    explained = []
    monkeypatch.setattr(schema_module, "explain_unknown", lambda name, _: explained.append(name) or name)
    schema = {
        "type": "object",
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/d"}] * parts}},
        "$defs": {"d": {"additionalProperties": False}},
    }
    with pytest.raises(InvalidArguments, match=r"a\.x0: x0\n"):
        SchemaArguments("f", schema).read({"a": {f"x{number}": 1 for number in range(names)}})
    assert len(explained) <= 100


def test_an_argument_that_another_part_allows_is_not_called_unknown():
    """`unevaluatedProperties` does not say which argument is unknown: the message does not name one that is allowed."""
    part = {"allOf": [{"properties": {"x": {}}}], "unevaluatedProperties": False}
    schema = {"type": "object", "properties": {"a": part}}
    assert find_problem(schema, {"a": {"x": 1}}) == ""
    assert find_problem(schema, {"a": {"x": 1, "y": 2}}).startswith(
        "a: does not fit unevaluatedProperties false"
    )
    alone = {"type": "object", "properties": {"x": {}}, "unevaluatedProperties": False}
    assert find_problem(alone, {"y": 2}) == "y: no such argument; there are x"


def test_definitions_that_double_come_to_an_end():
    """If each definition uses the next one twice, there would be 2^40 checks. After some thousand checks, the model gets an error."""
    definitions = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a0"}},
        "$defs": {**definitions, "a40": {}},
    }
    check_schema(schema)
    assert len(str(make_offered(schema))) < 10_000
    with pytest.raises(InvalidArguments, match="cannot be checked against the schema"):
        SchemaArguments("f", schema).read({"a": "x"})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {f"p{n}": {} for n in range(6_000)}}, "more than 2,000 parts"),
        (
            {
                "properties": {f"p{n}": {"$ref": "#/$defs/d0"} for n in range(500)},
                "$defs": {**{f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(500)}, "d500": {}},
            },
            "more than 50 references in a row",
        ),
    ],
)
def test_a_schema_is_refused_before_much_work(schema, words):
    """A schema that would take long to check, or that has a very long chain of references, is refused at once."""
    with pytest.raises(UnusableSchema, match=words):
        check_schema({"type": "object", **schema})


def test_recursion_without_end_is_an_error_not_a_crash():
    """A schema in a circle, or a value that is nested too deep, is an error for the model. It names what is at fault."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/definitions/b"}}}
    schema["definitions"] = {"b": {"allOf": [{"$ref": "#/definitions/b"}]}}
    check_schema(schema)
    with pytest.raises(InvalidArguments, match="schema refers to itself without end; do not call"):
        SchemaArguments("f", schema).read({"a": 1})
    part = {"properties": {"b": {"$ref": "#/definitions/b"}}}
    schema["definitions"]["b"] = {"allOf": [{"allOf": [{"anyOf": [{"allOf": [part]}]}]}]}
    deep = functools.reduce(lambda inner, _: {"b": inner}, range(98), 1)
    with pytest.raises(InvalidArguments, match="nested too deep to be checked against the schema; send"):
        SchemaArguments("f", schema).read({"a": deep})


def test_a_result_that_breaks_its_own_schema_is_an_error(connect):
    """Structured content is checked against the tool's output schema."""
    from mcp.server import Server
    from mcp_types import CallToolResult, ListToolsResult, Tool

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def list_them(_context, _parameters):
        return ListToolsResult(tools=[Tool(name="count", input_schema=EMPTY, output_schema=schema)])

    async def run_one(_context, parameters):
        return CallToolResult(content=[], structured_content=parameters.arguments)

    odd = connect(Server("odd", on_list_tools=list_them, on_call_tool=run_one))
    good, bad = run(odd, call("count", n=1), call("count", n="one"))
    assert good.value == {"n": 1}
    assert (
        bad.output
        == 'ServerError: the result does not fit the tool\'s own output schema: n: expected an integer, got "one"'
    )


# --- progress and cancel ---


def test_progress_is_the_tools_own(connect, server):
    """The progress that a server reports reaches the observers of the run."""
    from support.asking import replace_config
    from toolloop_jupyter import agent_session
    from toolloop_jupyter.core.events import Observer

    class Watching(Observer):
        def __init__(self):
            self.seen = []

        def progress(self, call, progress):
            self.seen.append((progress.done, progress.total, progress.note))

    watching = Watching()
    model = ScriptedModel([call("slow", steps=2)], "Done.")
    session = agent_session(LOOP, model=model, tools=[connect(server)], on_approval=lambda _: True)
    replace_config(session.aio, observers=(watching,))
    session.run("Go on.")
    assert watching.seen == [(0, 2, "step 0"), (1, 2, "step 1")]


async def test_a_cancel_reaches_the_server(connect):
    """If a run is stopped, the server gets the protocol's cancel. The history says so, and the connection stays open."""
    files = connect(command(), env=environment())
    model = ScriptedModel([call("slow", steps=100)], "Done.")
    from support.asking import replace_config
    from toolloop_jupyter import aagent_session
    from toolloop_jupyter.core.events import Observer

    class StopAtProgress(Observer):
        def progress(self, call, progress):
            stream.cancel()

    session = aagent_session(LOOP, model=model, tools=[files], on_approval=lambda _: True)
    replace_config(session, observers=(StopAtProgress(),))
    async with session:
        stream = session.astream("Go on.")
        seen = []
        async for event in stream:
            seen.append(event)
            if type(event).__name__ == "Approval":
                event.allow()
        messages = session.messages()
    assert seen[-1].stop_reason == "cancelled"
    assert "cancelled while it ran" in messages[-1]["content"]
    for _ in range(100):
        if "slow was cancelled" in files.log:
            break
        await asyncio.sleep(0.05)
    assert "slow was cancelled" in files.log
    assert await asyncio.to_thread(files.add, a=1) == {"result": 2}


def test_a_direct_call_that_takes_too_long(connect, server, monkeypatch):
    """A direct call that takes too long is cancelled on the server, and the error says so. The connection stays open."""
    files = connect(server)
    monkeypatch.setattr(connection_module, "LONGEST_CALL", 0.5)
    with pytest.raises(ServerError, match=r"gave no answer within 0\.5 s"):
        files.slow(steps=600)
    monkeypatch.undo()
    deadline = time.monotonic() + 10
    while not server.cancelled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.cancelled == [600]
    assert files.add(a=1) == {"result": 2}


def test_a_tool_that_takes_too_long(connect, server):
    """`timeout=` of the connection ends a call, even on the server."""
    (slow,) = run(connect(server, timeout=1.5), call("slow", steps=100))
    assert slow.output.startswith("TimeoutError: the tool took longer than its timeout of 1.5 s")
    deadline = time.monotonic() + 10
    while not server.cancelled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.cancelled == [100]
