"""The schemas after LiteLLM's own conversions for each kind of provider. This needs no network.

Every schema of the table goes through the code that LiteLLM runs before it sends a request. Then it is searched for parts
that these providers are known to refuse.
"""

from __future__ import annotations

import copy
import functools
import json
import re

import pytest

from support.tool_kinds import Edit, Node, Point
from support.tool_table import ROWS, define
from toolloop_jupyter.core.tools.tool import make_tools, tool

pytestmark = pytest.mark.slow
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


@pytest.fixture(scope="module")
def litellm():
    return pytest.importorskip("litellm")


@functools.cache
def specs():
    """The specs of all functions of the table, and of some more whose names must be changed."""
    rows = [
        tool(name=f"{n}.{row.signature[:60]}")(define(row.signature, postponed=False))
        for n, row in enumerate(ROWS)
    ]

    def bare(): ...

    def nested(a: dict[str, list[list]], b: list[tuple[Point, Node | Edit]], c: list[set]): ...

    return [made.spec for made in make_tools([*rows, bare, nested])]


def nodes(schema):
    """Yield every schema inside a schema."""
    yield schema
    children = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    children += [child for key in SCHEMA_LISTS for child in schema.get(key, ())]
    children += [
        schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)
    ]
    for child in children:
        yield from nodes(child)


def params(litellm, provider, model):
    """Return the `tools` that LiteLLM would send for a model of this provider."""
    sent = litellm.get_optional_params(
        model=model, custom_llm_provider=provider, tools=copy.deepcopy(specs())
    )
    json.dumps(sent["tools"])
    return sent["tools"]


def dangling(schema):
    known = {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    return [node["$ref"] for node in nodes(schema) if "$ref" in node and node["$ref"] not in known]


def test_openai(litellm):
    """The schemas are sent unchanged, and follow OpenAI's rules. (Most of these rules hold only for its strict mode.)"""
    sent = params(litellm, "openai", "gpt-4o")
    assert [entry["function"] for entry in sent] == [spec["function"] for spec in specs()]
    for entry in sent:
        schema = entry["function"]["parameters"]
        assert NAME.fullmatch(entry["function"]["name"])
        assert schema["type"] == "object"
        assert not dangling(schema)
        for node in nodes(schema):
            assert "items" in node or node.get("type") != "array"
            assert "properties" not in node or node["additionalProperties"] is False
            assert "$ref" not in node or len(node) == 1
            assert not {"title", "oneOf", "allOf", "const", "discriminator"} & set(node)
            assert node.get("default", 0) is not None
            assert "(?" not in node.get("pattern", "")


def test_anthropic(litellm):
    """Names and property keys fit Anthropic's pattern. The schema is not changed, and keeps its definitions."""
    sent = params(litellm, "anthropic", "claude-sonnet-4-5")
    assert len(sent) == len(specs())
    for entry in sent:
        assert NAME.fullmatch(entry["name"])
        assert not dangling(entry["input_schema"])
        assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in entry["input_schema"]["properties"])


@pytest.mark.parametrize("provider", ["gemini", "vertex_ai"])
def test_gemini(litellm, provider):
    """No reference is left, every array has items, and a schema for any value does not become the schema of an object."""
    sent = params(litellm, provider, "gemini-2.5-pro")
    declared = {entry["name"]: entry for entry in sent[0]["function_declarations"]}
    assert len(declared) == len(specs())
    for name, entry in declared.items():
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name)
        for node in nodes(entry["parameters"]):
            assert "$ref" not in node
            assert "items" in node or node.get("type") != "array"
    (anything,) = (
        spec
        for spec in specs()
        if spec["function"]["parameters"].get("required") == ["cls", "args", "kwargs"]
    )
    node = declared[anything["function"]["name"]]["parameters"]["properties"]["cls"]
    assert {member["type"] for member in node["anyOf"]} == {"string", "number", "boolean", "object", "array"}


def test_bedrock(litellm):
    """References are replaced, except those of recursive types.

    LiteLLM 1.110 inlines definitions for Bedrock and then drops them. So the inner reference of a recursive type refers to
    nothing. LiteLLM keeps no form of recursion.
    """
    sent = params(litellm, "bedrock", "anthropic.claude-3-5-sonnet-20240620-v1:0")
    assert len(sent) == len(specs())
    for entry in sent:
        schema = (
            entry.get("toolSpec", {}).get("inputSchema", {}).get("json") or entry["function"]["parameters"]
        )
        assert set(dangling(schema)) <= {"#/$defs/Node"}


def test_bedrock_tool_blocks(litellm):
    """In the request to Bedrock's Converse, each tool has a name, a description and an object schema."""
    from litellm.litellm_core_utils.prompt_templates.factory import _bedrock_tools_pt

    blocks = _bedrock_tools_pt(copy.deepcopy(specs()))
    assert len(blocks) == len(specs())
    for block in blocks:
        described = block["toolSpec"]
        assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}", described["name"])
        assert described["description"]
        assert described["inputSchema"]["json"]["type"] == "object"
        assert set(dangling(described["inputSchema"]["json"])) <= {"#/$defs/Node"}


BEYOND_THE_SCHEMA = {
    "x: Annotated[float, Field(allow_inf_nan=True)]",  # JSON has no infinity
    "x: int = 'auto'",  # the person's own default does not have the annotated type
    "x: Json",  # the snapshot shows the data inside the text
}


def test_schemas_are_json_schemas_and_take_what_the_functions_got():
    """Each schema is valid, and accepts the validated arguments of each accepted case.

    So a model that follows the schema can send every value that the function takes, and the approval card shows the same
    value.
    """
    jsonschema = pytest.importorskip("jsonschema")
    checked = 0
    for row in ROWS:
        (made,) = make_tools([define(row.signature, postponed=False)])
        validator = jsonschema.Draft202012Validator(made.spec["function"]["parameters"])
        validator.check_schema(validator.schema)
        if row.signature in BEYOND_THE_SCHEMA:
            continue
        for sent, *_ in row.takes:
            bound = made.bind(sent)
            errors = list(validator.iter_errors(bound.json))
            # Data that a model sent, but that the schema does not have, is shown, too.
            problems = [error.message for error in errors if error.validator != "additionalProperties"]
            assert not problems, (row.signature, bound.json, problems)
            checked += 1
    assert checked > 80
