"""Tools of MCP servers: `connect()` gives a connection whose tools are tools of this notebook.

Needs `pip install 'toolloop-jupyter[mcp]'`. The loop knows nothing of MCP: a connection gives ordinary tools, whose schema comes
from the server, and which run on the server. The package `mcp` is imported by the first `connect()`.
"""

from .connection import Connection, connect
from .link import ConnectionFailed
from .tools import ServerError, ServerTool

__all__ = ["Connection", "ConnectionFailed", "ServerError", "ServerTool", "connect"]
