"""A Python function as a tool: its signature, its schema, its arguments, what a person sees of a call."""

from .identity import Version
from .messages import InvalidArguments
from .parsing import SentArguments, parse_arguments
from .signature import ToolContext, python_name, understood
from .tool import BoundCall, Tool, make_tools, marked_tools, suggest, tool, tool_name

__all__ = [
    "BoundCall",
    "InvalidArguments",
    "SentArguments",
    "Tool",
    "ToolContext",
    "Version",
    "make_tools",
    "marked_tools",
    "parse_arguments",
    "python_name",
    "suggest",
    "tool",
    "tool_name",
    "understood",
]
