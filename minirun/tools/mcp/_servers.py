"""Where a server is: a command to start, a URL, or something that connects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import attrs
from mcp import StdioServerParameters
from mcp.server import Server as LowLevelServer
from mcp.server.mcpserver import MCPServer

from ..._fields import setting
from ..._json import brief, is_seconds
from ...errors import ConfigurationError
from ._adks import SERVER, refuse
from ._text import line

__all__ = [
    "ServerLike",
    "StdioConnectionParams",
    "StdioServer",
    "StreamableHTTPConnectionParams",
    "Transports",
    "checked",
    "given_seconds",
    "label_of",
]

Transports: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes a transport of the official package, a new one for each connection."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(map(_is_text, value))


def _env(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ConfigurationError("StdioServer.env: expected a dict of texts, found another value (not shown)")


_SECONDS = setting("seconds above 0, or None", lambda value: value is None or is_seconds(value, above=0))


@attrs.frozen
class StdioServer:
    """
    A server that is started as a process of its own, and spoken to by its standard input and output.

    It is started by the first request, again when it has ended, and ended when the toolset is left: its input is
    closed, after 2 seconds its process group is asked to end, after 2 more it is killed.

    Args:
        command: The program: a path, or a name to be found in PATH.
        args: Its arguments. No shell reads them.
        env: Variables for it. It gets these, and of this process's own HOME, LOGNAME, PATH, SHELL, TERM and USER; the
            keys of models and whatever else stands in the environment it does not see.
        cwd: The folder that it works in; None: the current one.

    Raises:
        ConfigurationError: An argument is no text.
    """

    command: str = attrs.field(validator=setting("a text", lambda value: _is_text(value) and value != ""))
    args: Sequence[str] = attrs.field(default=(), validator=setting("a list of texts", _are_texts))
    env: Mapping[str, str] | None = attrs.field(default=None, validator=_env, repr=False)
    cwd: str | Path | None = None


@attrs.frozen
class StdioConnectionParams:
    """ADK's way to say a `StdioServer`: *server_params* is one, or the official package's; *timeout* in seconds."""

    server_params: StdioServer | StdioServerParameters
    timeout: float | None = attrs.field(default=None, validator=_SECONDS)


@attrs.frozen(init=False)
class StreamableHTTPConnectionParams:
    """ADK's way to say a URL, with `headers=` and `connect_timeout_s=` of the toolset; *timeout* in seconds."""

    url: str
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    timeout: float | None = attrs.field(default=None, validator=_SECONDS)

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, timeout: float | None = None, **others: object
    ) -> None:
        refuse("StreamableHTTPConnectionParams", others, SERVER)
        construct: Any = StreamableHTTPConnectionParams.__attrs_init__
        construct(self, url, headers, timeout)


ServerLike: TypeAlias = (
    "StdioServer | str | StdioServerParameters | MCPServer | LowLevelServer[Any] | Transports "
    "| StdioConnectionParams | StreamableHTTPConnectionParams"
)
"""What `McpToolset` takes as a server."""


def checked(server: object) -> Any:
    """
    Return *server* as a StdioServer, a URL, an object of the official package, or a function that makes a transport.

    Raises:
        ConfigurationError: It is none of these.
    """
    if isinstance(server, StdioConnectionParams):
        server = server.server_params
    if isinstance(server, StreamableHTTPConnectionParams):
        server = server.url
    if isinstance(server, StdioServerParameters):
        return StdioServer(server.command, server.args, server.env, server.cwd)
    if isinstance(server, str):
        return _checked_url(server)
    if isinstance(server, (StdioServer, MCPServer, LowLevelServer)) or callable(server):
        return server
    msg = f"expected a StdioServer, the URL of a server, or a server object, found {brief(server)}"
    raise ConfigurationError(f"{msg}; write McpToolset(StdioServer('command', ['argument']))")


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        fits = fits and parts.port != 0 and url.isprintable() and " " not in url  # reading the port may raise
    except ValueError:
        fits = False
    if not fits:
        msg = "expected the URL of an MCP server, https://host/path without a user in it, found another text"
        raise ConfigurationError(f"{msg}; pass secrets by headers=, and a command as StdioServer('command')")
    return url


def given_seconds(server: object) -> float | None:
    """The time that ADK's parameters give for connecting, in seconds."""
    return server.timeout if isinstance(server, (StdioConnectionParams, StreamableHTTPConnectionParams)) else None


def label_of(server: object) -> str:
    """What messages call a server: its command or its host, never its arguments or what follows a `?`."""
    if isinstance(server, StdioServer):
        return line(Path(server.command).name or server.command, 80)
    if isinstance(server, str):
        parts = urlsplit(server)
        return line(f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}", 80)
    return line(str(getattr(server, "name", None) or "in process"), 80)
