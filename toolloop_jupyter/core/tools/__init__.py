"""A Python function as a tool: its signature, its schema, its arguments, what a person sees of a call."""

from .arguments import SentArguments, parse_arguments
from .identity import Version
from .messages import InvalidArguments
from .schema import (
    JsonSchema,
    describe_type,
    map_schema,
    resolve_reference,
    walk_schema,
)
from .signature import ToolContext, get_python_name, rewrite_annotation
from .tool import BoundCall, Tool, find_marked_tools, get_tool_name, make_tools, suggest, tool

__all__ = [
    "BoundCall",
    "InvalidArguments",
    "JsonSchema",
    "SentArguments",
    "Tool",
    "ToolContext",
    "Version",
    "describe_type",
    "find_marked_tools",
    "get_python_name",
    "get_tool_name",
    "make_tools",
    "map_schema",
    "parse_arguments",
    "resolve_reference",
    "rewrite_annotation",
    "suggest",
    "tool",
    "walk_schema",
]
