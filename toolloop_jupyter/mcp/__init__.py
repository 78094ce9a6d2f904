"""Use the tools of MCP servers: `connect()` returns a Connection, whose tools are tools of this notebook.

Install it with `pip install 'toolloop-jupyter[mcp]'`. The loop contains no code for MCP. For the loop, the tools of a Connection
are ordinary tools. Their schemas come from the server, and their calls run on the server. The first `connect()` imports the
package `mcp`.
"""

from .connection import Connection, connect
from .link import ConnectionFailed
from .tools import ServerError, ServerTool

__all__ = ["Connection", "ConnectionFailed", "ServerError", "ServerTool", "connect"]
