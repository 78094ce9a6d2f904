"""Make a tool of the notebook from a server's tool, read the results of its calls, and show the server's questions."""

from __future__ import annotations

import base64
import dataclasses
import functools
import inspect
import itertools
import json
import keyword
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.events import Approval, Mistake
from ..core.execution import Raised, attempt_call
from ..core.text import list_some, make_text_plain, make_wire_name, shorten
from ..core.tools import DescribedTool, InvalidArguments, JsonSchema, Tool, ToolContext, ToolSettings
from .link import ServerError
from .schema import SchemaArguments, UnusableSchema, check_schema, find_problem, make_offered

LONGEST_DESCRIPTION = 10_000
"""How many characters of a tool's description are used at most."""
LONGEST_QUESTION = 2_000
"""How many characters of a server's question are shown at most."""
_HINTS = {
    "read_only_hint": ("it only reads", "it may change something"),
    "destructive_hint": ("it may destroy something", "it destroys nothing"),
    "idempotent_hint": ("calling it twice has the same effect as calling it once", ""),
    "open_world_hint": ("it reaches beyond the server", "it stays within the server"),
}
"""A hint of the protocol -> (the text if the hint is true, the text if the hint is false)."""
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}


class Caller(Protocol):
    """Sends calls to the server, and returns the values in their results. Raises ServerError."""

    async def call(
        self, tool: ServerTool, arguments: Mapping[str, object], context: ToolContext
    ) -> object: ...

    def call_sync(self, tool: ServerTool, arguments: Mapping[str, object]) -> object: ...


@dataclass(frozen=True, eq=False)
class ServerTool(DescribedTool):
    """One tool of a server. Your own code can call a ServerTool with named arguments.

    The object keeps the description and the schema that the server listed when the object was made. If a person approves all
    calls of the tool, the approval is for this object only. If the server changes the tool, `refresh()` makes a new object.
    """

    caller: Caller = field(repr=False)
    own_name: str
    """The server's name for the tool."""
    name: str
    """`own_name` as plain text."""
    description: str = field(repr=False)
    schema: JsonSchema = field(repr=False)
    output_schema: JsonSchema | None = field(repr=False)
    claims: str = field(repr=False)
    """The server's claims about the tool's effects, in words. Nobody has checked them."""
    server: str
    """The text for the server in messages, for example "the MCP server …"."""
    qualifier: str = field(repr=False)
    settings: ToolSettings = field(repr=False)
    listed: str = field(repr=False)
    """The tool as JSON text, as the server listed it. If the text in a later list differs, the server has changed the tool."""

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{self.description}\n\nA tool of {self.server}. Arguments, as a JSON schema: {json.dumps(self.schema)}"

    def __call__(self, **arguments: object) -> object:
        """Call the tool from your own code, without a model and without an approval. Raises InvalidArguments, ServerError."""
        reader = SchemaArguments(self.name, self.schema)
        ((packed,), _) = reader.pack(reader.read(arguments))
        return self.caller.call_sync(self, packed)

    async def call_on_server(self, arguments: Mapping[str, object], *, context: ToolContext) -> object:
        """Call the tool on the server, for a call in a run. Raises ServerError."""
        return await self.caller.call(self, arguments, context)

    def as_tool(self) -> Tool:
        """Return the tool in the form that a run uses."""
        return Tool(
            name=self.name,
            wire_name=self.name,
            description=self.description,
            parameters=make_offered(self.schema),
            arguments=SchemaArguments(self.name, self.schema),
            function=self.call_on_server,
            settings=self.settings,
            kind="async",
            context_parameter="context",
            origin=f"A tool of {self.server}; it runs on that server. {self.claims}",
            qualifier=self.qualifier,
        )


@dataclass(frozen=True)
class ToolChoice:
    """Which tools of a server are used, and how. All names are the server's."""

    permissions: object
    """The mode, mapping or callable of `connect(permissions=…)`. None: a person is asked about each call."""
    include: frozenset[str] | None
    exclude: frozenset[str]
    timeout: float | None
    max_result: int | None

    def select(self, names: Collection[str]) -> frozenset[str]:
        """Return the names of the tools that a model may call. `names`: all tools of the server.

        Raises Mistake if `include`, `exclude` or a rule of `permissions` has a name that is not in `names`.
        """
        included = frozenset(names) if self.include is None else self.include
        named = self.permissions.keys() - {"*"} if isinstance(self.permissions, Mapping) else frozenset()
        if missing := sorted({*map(str, included | self.exclude | named)} - {*names}):
            raise Mistake(f"this server has no tool {missing[0]!r}; it has: {list_some(sorted(names), 8)}")
        return included - self.exclude

    def make_settings(self, own_name: str) -> ToolSettings:
        """Return the settings of one tool."""
        mode: Any = self.permissions or "ask"
        if isinstance(mode, Mapping):
            mode = mode.get(own_name, mode.get("*", "ask"))
        elif callable(mode):
            mode = functools.partial(_call_policy, mode, own_name)
        return ToolSettings(permissions=mode, timeout=self.timeout, max_result=self.max_result)


def _call_policy(policy: Any, own_name: str, call: Any) -> Any:
    """Call `policy`, and give it the tool's name on the server. In the run, the tool may have another name."""
    return policy(dataclasses.replace(call, name=own_name))


def make_server_tool(one: Any, choice: ToolChoice, caller: Caller, title: str, qualifier: str) -> ServerTool:
    """Make a ServerTool of a tool in the server's list. Raises UnusableSchema."""
    check_schema(one.input_schema)
    if one.output_schema is not None and len(json.dumps(one.output_schema)) > 1_000_000:
        raise UnusableSchema("its output schema is too large")
    name = make_text_plain(one.name).strip()[:200]
    if not name:
        raise UnusableSchema("it has no name")
    return ServerTool(
        caller=caller,
        own_name=one.name,
        name=name,
        description=shorten(inspect.cleandoc(make_text_plain(one.description or "")), LONGEST_DESCRIPTION),
        schema=one.input_schema,
        output_schema=one.output_schema,
        claims=_describe_claims(one.annotations),
        server=f"the MCP server {title}",
        qualifier=qualifier,
        settings=choice.make_settings(one.name),
        listed=describe_listed(one),
    )


def describe_listed(one: Any) -> str:
    """Return `one`, a tool in the server's list, as JSON text. If it is another text later, the server has changed the tool."""
    return json.dumps(one.model_dump(mode="json", exclude={"icons", "meta"}), sort_keys=True)


def _describe_claims(annotations: object) -> str:
    """Return a sentence with the server's claims about a tool. The claims are the hints in `annotations`."""
    values = ((getattr(annotations, hint, None), words) for hint, words in _HINTS.items())
    claims = [yes if value else no for value, (yes, no) in values if value is not None and (value or no)]
    if not claims:
        return "The server says nothing about the tool's effects."
    return f"The server says about the tool, and nobody has checked: {', '.join(claims)}."


def make_attribute(name: str, taken: Collection[str]) -> str:
    """Return the name of the attribute for the tool `name`: `name` itself if Python allows it and it is not in `taken`.

    No attribute begins with "_", because other code looks for such methods. For example, IPython looks for `_repr_html_`.
    """
    made = name if name.isidentifier() else make_wire_name(name).replace("-", "_")
    if made.startswith("_"):
        made = f"tool{made}"
    while made in taken or keyword.iskeyword(made):
        made += "_"
    return made


# --- results ----------------------------------------------------------------------------------------------------


def read_result(tool: ServerTool, result: Any) -> object:
    """Return the value of a call's result: a text, the bytes of a picture, or a list of texts and pictures.

    If the result has structured content, this content replaces the texts. Raises ServerError if the result is an error, or
    does not fit the tool's output schema.
    """
    parts = [part for part in map(_read_part, result.content or ()) if part is not None]
    if result.is_error:
        texts = [part for part in parts if isinstance(part, str)]
        raise ServerError("\n".join(texts) or "the server reports an error without a text")
    structured = result.structured_content
    if structured is None and tool.output_schema is not None:
        raise ServerError("the result has no structured content, which the tool's own output schema promises")
    if structured is not None:
        if tool.output_schema is not None and (problem := find_problem(tool.output_schema, structured)):
            raise ServerError(f"the result does not fit the tool's own output schema: {problem}")
        pictures = [part for part in parts if isinstance(part, bytes)]
        return [structured, *pictures] if pictures else structured
    if all(isinstance(part, str) for part in parts):
        return "\n".join(map(str, parts))
    return parts[0] if len(parts) == 1 else parts


def _read_part(part: Any) -> str | bytes | None:
    """Return one content block as text, or as bytes if it is a picture."""
    kind = part.type
    if kind == "text":
        return str(part.text)
    if kind == "image":
        data = attempt_call(base64.b64decode, part.data)
        return "[a picture that cannot be read]" if isinstance(data, Raised) else bytes(data)
    if kind == "resource":
        resource = part.resource
        text = getattr(resource, "text", None)
        held = f"\n{text}" if isinstance(text, str) else " (binary, left out)"
        return f"[{make_text_plain(str(resource.uri))}]{held}"
    if kind == "resource_link":
        return f"[{make_text_plain(str(part.name))}: {make_text_plain(str(part.uri))}]"
    return f"[{make_text_plain(str(kind))}, left out]"


# --- questions --------------------------------------------------------------------------------------------------


class Asker:
    """Shows a server's questions to a person during one tool call. The protocol calls this "elicitation".

    A question is a form. The server gets the filled form only if the person sends it.
    """

    def __init__(self, tool: str, server: str, context: ToolContext) -> None:
        self._tool, self._server, self._context = tool, server, context
        self._numbers = itertools.count(1)

    async def ask(self, message: str, schema: JsonSchema) -> tuple[str, dict[str, Any] | None]:
        """Ask the person. Return ("accept", the filled form), ("decline", None) or ("cancel", None).

        The question is also declined if no person can be asked, or if the schema or the filled form is not valid.
        """

        def check(edited: Mapping[str, object]) -> None:
            if problem := find_problem(schema, dict(edited)):
                raise InvalidArguments(problem)

        if isinstance(attempt_call(check_schema, schema), Raised):
            return "decline", None
        shown = _show_choices(schema)
        approval = Approval(
            tool=self._tool,
            input=_fill_in(shown),
            call_id=f"{self._context.call_id}.{next(self._numbers)}",
            schema=shown,
            origin=f"Asked by {self._server}, for {self._tool}. What you send goes to the server; no model sees it first.",
            question=make_text_plain(message).strip()[:LONGEST_QUESTION] or "The server asks for this",
            check=check,
            scopes=("call",),
            number=self._context.number,
        )
        decision = await self._context.ask(approval)
        if not decision.allowed:
            return ("cancel" if decision.by == "stop" else "decline"), None
        content = dict(approval.input if decision.arguments is None else decision.arguments)
        return ("decline", None) if find_problem(schema, content) else ("accept", content)


def _show_choices(schema: JsonSchema) -> JsonSchema:
    """Return the schema for the form. Choices with titles (`oneOf` of constants) become an `enum`, described by the titles."""
    properties = dict(schema.get("properties") or {})
    for name, part in properties.items():
        options = part.get("oneOf", part.get("anyOf")) if isinstance(part, Mapping) else None
        if isinstance(options, list) and all(isinstance(one, Mapping) and "const" in one for one in options):
            titles = ", ".join(f"{one['const']}: {one['title']}" for one in options if "title" in one)
            described = " · ".join(
                make_text_plain(str(words)) for words in (part.get("description"), titles) if words
            )
            rest = {key: value for key, value in part.items() if key not in ("oneOf", "anyOf")}
            properties[name] = {**rest, "description": described, "enum": [one["const"] for one in options]}
    return {**schema, "properties": properties}


def _fill_in(schema: JsonSchema) -> dict[str, object]:
    """Return the values that the form shows first: for each field its default, its first choice, or an empty value.

    An optional field for which an empty value is not valid is left out, for example a text with a `format` or a `minLength`.
    """
    required = schema.get("required") or ()
    filled: dict[str, object] = {}
    for name, part in (schema.get("properties") or {}).items():
        if not isinstance(part, Mapping):
            continue
        choices = part.get("enum")
        if "default" in part:
            filled[name] = part["default"]
        elif isinstance(choices, list) and choices:
            filled[name] = choices[0]
        elif part.get("type") in _EMPTY:
            empty = part.get("minimum", _EMPTY[part["type"]])
            is_wrong = "format" in part or find_problem({"properties": {"it": part}}, {"it": empty})
            if name in required or not is_wrong:
                filled[name] = empty
    return filled
