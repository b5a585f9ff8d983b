"""
Agents for MCP clients: `McpAgentServer`, with the official package `mcp` (`pip install "minirun[mcp]"`).

Importing this loads `mcp`, and with it asyncio and pydantic; nothing of it runs on asyncio, and nothing else of minirun
but the command line imports it. It reads no environment.

    _server     McpAgentServer: the tools, the scope, the ways to it
    _call       one call: a run, its progress, its result, or what it waits for
    _questions  open questions as forms, and what a form was answered as a reply; pure
    _state      what a client carries from a question to its answer, sealed
    _secrets    keys and tokens, and the files that they stand in
    _asgi       the way over HTTP: who may come in, and as whom
    _stdio      the way over standard input and output

The rules of this package:

1.  A client never says who it is in a call. The user of a session comes with the connection: from the token of an HTTP
    request, or from the user that the process was started for.
2.  Nothing of a call is kept in memory between a question and its answer. The store has the invocation, the client has
    its name, sealed. So any process with the key and the store can go on.
3.  A call is a scope around a run. A client that cancels, or is gone, leaves the run.
4.  What a run fails with stays here: a client is told the type of the error.
"""

try:
    import mcp as _mcp  # noqa: F401 # that it is there
except ModuleNotFoundError as _error:
    _msg = f'agents for MCP clients need {_error.name}; run: pip install "minirun[mcp]"'
    raise ModuleNotFoundError(_msg, name=_error.name) from None

from ._asgi import Authenticate, BearerTokens, McpAsgiApp
from ._server import McpAgentServer

__all__ = ["Authenticate", "BearerTokens", "McpAgentServer", "McpAsgiApp"]
