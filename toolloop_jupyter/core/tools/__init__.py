"""A Python function as a tool: its signature, its schema, its arguments, and the preview of a call for a person."""

from .arguments import (
    ArgumentsByKey,
    InvalidArguments,
    JsonArguments,
    SentArguments,
    explain_unknown,
    parse_arguments,
    shorten_json,
    write_path,
)
from .identity import Version
from .preview import JsonObject
from .schema import JsonSchema, adapt_schema, describe_type, map_schema, resolve_reference, walk_schema
from .signature import Parameter, ToolContext, get_python_name, identify, rewrite_annotation
from .tool import (
    BoundCall,
    DescribedTool,
    Tool,
    ToolSettings,
    ToolSource,
    find_marked_tools,
    get_tool_name,
    make_tools,
    suggest,
    tool,
)
