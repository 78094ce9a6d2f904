"""A Python function as a tool: its signature, its schema, its arguments, what a person sees of a call."""

from .identity import Version
from .messages import InvalidArguments
from .parsing import SentArguments, parse_arguments
from .schema import (
    JsonSchema,
    describe_type,
    map_schema,
    resolve_reference,
    walk_schema,
)
from .signature import ToolContext, python_name, rewrite_annotation
from .tool import BoundCall, Tool, make_tools, marked_tools, suggest, tool, tool_name

__all__ = [
    "BoundCall",
    "InvalidArguments",
    "JsonSchema",
    "SentArguments",
    "Tool",
    "ToolContext",
    "Version",
    "describe_type",
    "make_tools",
    "map_schema",
    "marked_tools",
    "parse_arguments",
    "python_name",
    "resolve_reference",
    "rewrite_annotation",
    "suggest",
    "tool",
    "tool_name",
    "walk_schema",
]
