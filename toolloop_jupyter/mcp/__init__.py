"""Tools of MCP servers: `connect()` gives a connection whose tools are tools of this notebook.

Needs `pip install 'toolloop-jupyter[mcp]'`. The loop hears nothing of it: a connection gives ordinary tools, whose schema is
the server's, and which run on the server. Nothing is imported of `mcp` before the first `connect()`.
"""

from .connection import Connection, connect
from .link import ConnectionFailed
from .tools import ServerError, ServerTool

__all__ = ["Connection", "ConnectionFailed", "ServerError", "ServerTool", "connect"]
