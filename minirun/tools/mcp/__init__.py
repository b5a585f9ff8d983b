"""
Tools of MCP servers: `McpToolset`, with the official package `mcp` (`pip install "minirun[mcp]"`).

Importing this loads `mcp`, and with it asyncio and pydantic; nothing of it runs on asyncio, and nothing else of minirun
imports it. Of the environment it passes PATH, HOME and the like on to the servers that it starts, and reads nothing.

    _toolset       McpToolset: arguments, the scope, the tools
    _servers       where a server is: StdioServer, URLs, ADK's words for them
    _link          one task that holds the connection
    _stdio _http   the two ways to a server, bounded
    _server        requests with headers, typed errors, lists and how long they are kept
    _listing       untrusted lists as tools that a model may be shown
    _tool          a call
    _conversation  a call that asks people on the way: durable pauses
    _back_channel  what servers of the older protocol ask in the middle of a call
    _adks          what ADK's toolset takes, and minirun's does not
    _forms         what is asked; _sampling: what a model is asked
    _progress _results _text   what a server says, on its way to the caller and the model
"""

try:
    import mcp as _mcp  # noqa: F401 # that it is there
except ModuleNotFoundError as _error:
    _msg = f'tools of MCP servers need {_error.name}; run: pip install "minirun[mcp]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

from ._server import Headers
from ._servers import StdioConnectionParams, StdioServer, StreamableHTTPConnectionParams
from ._toolset import McpToolset

__all__ = [
    "Headers",
    "McpToolset",
    "StdioConnectionParams",
    "StdioServer",
    "StreamableHTTPConnectionParams",
]
