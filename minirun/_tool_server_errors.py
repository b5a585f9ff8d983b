"""
What calls fail with that a server makes for us: those of the Model Context Protocol.

`minirun.errors` has these names; they are loaded when one of them is asked for.
"""

from __future__ import annotations

from .errors import MinirunError

__all__ = ["McpAuthenticationError", "McpConnectionError", "McpError", "McpToolError"]


class McpError(MinirunError):
    """
    An MCP server has refused a request, or has answered with what its protocol does not allow. The base of this family.

    Args:
        message: What was expected, what was found, and what to do.
        code: The server's JSON-RPC error code; None: there was none.
    """

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class McpConnectionError(McpError, ConnectionError):
    """
    The MCP server could not be reached, or was lost before it answered. Whether a call was made is unknown then.

    The next request connects anew; one that fails like this is told to the model, and does not end the run.
    """


class McpAuthenticationError(McpError):
    """The MCP server does not accept the headers of the request (status 401 or 403), nor those that were renewed."""


class McpToolError(McpError):
    """The tool of an MCP server has run and says that it has failed; the message is the server's."""
