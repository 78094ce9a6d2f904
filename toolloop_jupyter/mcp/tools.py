"""A tool of a server as a tool of the notebook, and the results of its calls, for the person and for the model."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import json
import keyword
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.execution import Raised, attempt_call
from ..core.text import make_wire_name, plain
from ..core.tools import DescribedTool, JsonSchema, Tool, ToolContext, ToolSettings
from .schema import SchemaArguments, find_problem, make_offered

LONGEST_DESCRIPTION = 10_000
"""Characters of a tool's description."""
CONTEXT = "context"
_HINTS = {
    "read_only_hint": ("it only reads", "it may change something"),
    "destructive_hint": ("it may destroy something", "it destroys nothing"),
    "idempotent_hint": ("calling it twice does no more than once", ""),
    "open_world_hint": ("it reaches beyond the server", "it stays within the server"),
}
"""The protocol's hints -> (what the hint says if it is true, what it says if it is false)."""


class ServerError(Exception):
    """A server's tool reports an error, or the server cannot answer."""


class Caller(Protocol):
    """Sends calls to the server. The connection is one."""

    async def call(self, tool: ServerTool, arguments: Mapping[str, object], context: ToolContext) -> object:
        """Call a tool; returns the value of its result. Raises ServerError."""

    def call_sync(self, tool: ServerTool, arguments: Mapping[str, object]) -> object:
        """The same for code without `await`."""


@dataclass(frozen=True, eq=False)
class ServerTool(DescribedTool):
    """One tool of a server, pinned: as it was listed when this object was made. Call it by hand with named arguments.

    An approval of all calls holds for this object. If anything in the listed tool changes, the tool becomes another object.
    """

    caller: Caller = field(repr=False)
    own_name: str
    """The server's name for the tool."""
    name: str
    """The server's name as plain text."""
    description: str = field(repr=False)
    schema: JsonSchema = field(repr=False)
    output_schema: JsonSchema | None = field(repr=False)
    claims: str = field(repr=False)
    """The server's claims about the tool's effects, in words. Nobody has checked them."""
    server: str
    """The server's title."""
    qualifier: str = field(repr=False)
    settings: ToolSettings = field(repr=False)
    listed: str = field(repr=False)
    """The tool as the server listed it, as a text, to be compared with later lists."""

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{self.description}\n\nA tool of {self.server}. Arguments, as a JSON schema: {json.dumps(self.schema)}"

    def __call__(self, **arguments: object) -> object:
        """Call it by hand, without a model and without an approval. Raises InvalidArguments, ServerError."""
        reader = SchemaArguments(self.name, self.schema)
        ((packed,), _) = reader.pack(reader.read(arguments))
        return self.caller.call_sync(self, packed)

    async def call_on_server(self, arguments: Mapping[str, object], *, context: ToolContext) -> object:
        """Call it for a run. Raises ServerError."""
        return await self.caller.call(self, arguments, context)

    def as_tool(self) -> Tool:
        """The tool for a run."""
        return Tool(
            name=self.name,
            wire_name=self.name,
            description=self.description,
            parameters=make_offered(self.schema),
            arguments=SchemaArguments(self.name, self.schema),
            function=self.call_on_server,
            settings=self.settings,
            kind="async",
            context_parameter=CONTEXT,
            origin=f"A tool of {self.server}; it runs there. {self.claims}",
            qualifier=self.qualifier,
        )

    def still(self, other: ServerTool) -> ServerTool:
        """This object if `other` is the same tool, else `other`."""
        same = self.listed == other.listed and self.server == other.server
        return self if same and _is_same_policy(self.settings, other.settings) else other


def _is_same_policy(one: ToolSettings, other: ToolSettings) -> bool:
    return dataclasses.replace(one, permissions=None) == dataclasses.replace(other, permissions=None)


def make_attribute(name: str, taken: Mapping[str, object], reserved: Callable[[str], bool]) -> str:
    """The attribute name of a tool: its own name, changed if Python does not take it or if it is taken.

    No name begins with "_": other code calls such methods by itself (IPython does, to show an object).
    """
    made = name if name.isidentifier() else make_wire_name(name).replace("-", "_")
    if made.startswith("_"):
        made = f"tool{made}"
    while made in taken or keyword.iskeyword(made) or reserved(made):
        made += "_"
    return made


def describe_claims(annotations: object) -> str:
    """A sentence with the claims that the server makes by the hints of a listed tool."""
    said = []
    for hint, (yes, no) in _HINTS.items():
        value = getattr(annotations, hint, None)
        if value is not None and (words := yes if value else no):
            said.append(words)
    if not said:
        return "The server says nothing of its effects."
    return f"The server says of it, and nobody has checked: {', '.join(said)}."


def shorten_description(text: str | None) -> str:
    """A description for a model and a person: plain, and bounded."""
    shown = inspect.cleandoc(plain(text or ""))
    return shown if len(shown) <= LONGEST_DESCRIPTION else f"{shown[: LONGEST_DESCRIPTION - 1]}…"


# --- results ----------------------------------------------------------------------------------------------------


def read_result(tool: ServerTool, result: Any) -> object:
    """The value of a call's result: its structured content; else a text, a picture's bytes, or a list of them.

    Raises ServerError if the result is an error, or does not fit the tool's own output schema.
    """
    parts = [part for part in map(_read_part, result.content or ()) if part is not None]
    if result.is_error:
        texts = [part for part in parts if isinstance(part, str)]
        raise ServerError("\n".join(texts) or "the server reports an error, and says nothing of it")
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
    """One content block: a text, or a picture's bytes."""
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
        return f"[{plain(str(resource.uri))}]{held}"
    if kind == "resource_link":
        return f"[{plain(str(part.name))}: {plain(str(part.uri))}]"
    return f"[{plain(str(kind))}, left out]"


def make_settings(
    policy: object, own_name: str, *, timeout: float | None, max_result: int | None
) -> ToolSettings:
    """The settings of one tool. A policy uses the server's own names of tools; None means "ask"."""
    if isinstance(policy, Mapping):
        mode: object = policy.get(own_name, policy.get("*", "ask"))
    elif policy is None or isinstance(policy, str):
        mode = policy or "ask"
    else:
        mode = _OwnName(policy, own_name)
    return ToolSettings(permissions=mode, timeout=timeout, max_result=max_result)


@dataclass(frozen=True)
class _OwnName:
    """A policy that gets each call with the server's own name of the tool, whatever its name in the run."""

    policy: Any
    name: str

    def __call__(self, call: Any) -> bool | str | Awaitable[object]:
        return self.policy(dataclasses.replace(call, name=self.name))  # type: ignore[no-any-return]
