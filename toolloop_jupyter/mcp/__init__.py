"""Use the tools of MCP servers: `connect()` returns a Connection, whose tools are tools of this notebook.

This needs the package `mcp`: `pip install 'toolloop-jupyter[mcp]'`. The first `connect()` imports this package.

The loop contains no code for MCP. For the loop, the tools of a Connection are ordinary tools. The schemas of these tools come
from the server, and their calls run on the server.
"""

from .connection import Connection, connect
from .link import ConnectionFailed, ServerError
from .tools import ServerTool

__all__ = ["Connection", "ConnectionFailed", "ServerError", "ServerTool", "connect"]
