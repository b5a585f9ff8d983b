"""
A server as the tools see it: requests with headers, answers or typed errors, and the lists that it is asked for.

Lists are kept as long as the server says (`ttl_ms`), until it tells that they have changed, and until it is connected
to anew. Where headers are made for each request, a private list is kept for these headers alone.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

import anyio
import attrs
import mcp_types
import trio
from mcp import Client, ClientSession, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.server import Server as LowLevelServer
from mcp.server.mcpserver import MCPServer
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..._json import brief
from ...errors import ConfigurationError, McpAuthenticationError, McpConnectionError, McpError
from ...runtime import ReadonlyContext
from ._back_channel import Answers, BackChannel
from ._http import REFUSALS, REQUEST, Request, http_streams
from ._link import Link
from ._servers import StdioServer
from ._stdio import stdio_streams
from ._text import line

__all__ = ["Headers", "Server", "Settings", "checked_headers", "refused"]

Headers: TypeAlias = Mapping[str, str] | Callable[..., Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""
Headers for a server behind a URL, or a function, sync or async, that gives them for each request:
`async def headers(context, *, refresh) -> dict`.

*context* is the ToolContext of the call, the ReadonlyContext of the agent whose tools are listed, or None. With
*refresh* the server has just refused what it gave last. In a call it may `await context.request_credential(...)`.
"""

T = TypeVar("T")

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)

# Of a server that says neither how long its lists hold nor that it tells of changes.
UNTOLD_TTL_S = 60.0

# Without the tools it was promised no agent is asked: a run that cannot get them fails.
LIST_ATTEMPTS = 2

# A server that has so many pages of anything does not end.
PAGES_MAX = 100

_HEADER = re.compile(r"[A-Za-z0-9_-]{1,200}")

# Of what it says is wrong.
ERROR_CHARS_MAX = 2_000

# Of users with headers of their own; beyond, the oldest is asked for again.
LISTS_KEPT_MAX = 64


@attrs.frozen
class Settings:
    """What a connection is made with."""

    address: Any
    label: str
    headers: Headers | None = attrs.field(repr=False)
    connect_timeout_s: float
    message_bytes_max: int
    sampling: bool
    roots: tuple[mcp_types.Root, ...]


class _Kept(NamedTuple):
    value: Any
    until: float


class Server:
    """See the module. It is of use between the entering and the leaving of its toolset."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.label = settings.label
        self._lists: dict[tuple[str, frozenset[tuple[str, str]] | None], _Kept] = {}
        self._last: dict[str, Any] = {}  # of each list that is the same for all
        self.back_channel = BackChannel(self.label)
        self._changes = 0
        self.link = Link(self._client, self.label, settings.connect_timeout_s, self._forget_lists)

    # --- connecting

    @asynccontextmanager
    async def _transport(self, tell: Callable[[str], None]) -> Any:
        target, bytes_max = self.settings.address, self.settings.message_bytes_max
        made: AbstractAsyncContextManager[Any]
        if isinstance(target, StdioServer):
            made = stdio_streams(target, bytes_max, tell)
        else:
            made = http_streams(target, bytes_max) if isinstance(target, str) else target()
        async with made as streams:
            yield streams

    def _client(self, tell: Callable[[str], None]) -> Client:
        target = self.settings.address
        is_object = isinstance(target, (MCPServer, LowLevelServer))
        return Client(
            target if is_object else self._transport(tell),
            cache=None,  # by trio's clock, and by whose list it is: here
            client_info=mcp_types.Implementation(name="minirun", version="1"),
            message_handler=self._hear,
            elicitation_callback=self.back_channel.elicited,
            # That there is a model to ask. One of the older protocol, which asks in a call, is told that there is none.
            sampling_callback=_nobody if self.settings.sampling else None,
            list_roots_callback=self._roots if self.settings.roots else None,
        )

    async def _hear(self, message: IncomingMessage) -> None:
        """Take note of a notification."""
        if isinstance(message, (mcp_types.ToolListChangedNotification, mcp_types.PromptListChangedNotification)):
            self._forget_lists()

    def _forget_lists(self) -> None:
        self._changes += 1
        self._lists.clear()

    async def _roots(self, context: ClientRequestContext | None) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=list(self.settings.roots))

    # --- requests

    async def ask(
        self,
        context: ReadonlyContext | None,
        what: str,
        send: Callable[[Client], Awaitable[T]],
        *,
        limit_s: float | None,
    ) -> T:
        """
        Send a request, and return its answer. *what* is what messages call it.

        Raises:
            McpConnectionError: There is no server, or it was lost before it has answered, or took longer.
            McpAuthenticationError: It does not accept the headers, nor renewed ones.
            MCPError: It has answered with an error.
            McpError: Its answer is none.
        """
        request = Request(await self._headers(context, refresh=False))
        try:
            return await self._ask_once(request, what, send, limit_s)
        except McpAuthenticationError:
            if request.status != 401 or not callable(self.settings.headers):
                raise
        renewed = Request(await self._headers(context, refresh=True))
        return await self._ask_once(renewed, what, send, limit_s)

    async def _ask_once(
        self, request: Request, what: str, send: Callable[[Client], Awaitable[T]], limit_s: float | None
    ) -> T:
        token = REQUEST.set(request)
        try:
            try:
                client = await self.link.client(request)
            except McpConnectionError:
                self._check_let_in(request, what)
                raise
            with trio.move_on_after(math.inf if limit_s is None else limit_s):
                with self.link.ending(client, what):
                    return await self._answer(client, request, what, send)
            raise self.link.error(f"it took longer than {limit_s} seconds for {what}")
        finally:
            REQUEST.reset(token)

    async def _answer(self, client: Client, request: Request, what: str, send: Callable[[Client], Awaitable[T]]) -> T:
        try:
            try:
                return await send(client)
            except MCPError as error:
                if error.code != mcp_types.HEADER_MISMATCH:
                    raise
                await self._relist(client.session)  # the package has to know the tool's schema for its headers
                return await send(client)
        except MCPError as error:
            self._check_let_in(request, what)
            if request.failure:
                raise self.link.error(f"it was lost during {what}: {request.failure}") from None
            if error.code == mcp_types.CONNECTION_CLOSED:
                self.link.lose(client)
                raise self.link.error(f"it was lost during {what}: {self.link.why_lost}") from None
            raise
        except _GONE as error:
            self.link.lose(client)
            raise self.link.error(f"it was lost during {what}: {line(str(error)) or type(error).__name__}") from None
        except (ValidationError, RuntimeError, ValueError) as error:
            if isinstance(error, ValidationError):
                said = f"{error.error_count()} values are not of the protocol"
            else:
                said = line(str(error))
            msg = f"the answer of the MCP server {self.label!r} to {what} is none: {said}"
            raise McpError(msg) from None

    def _check_let_in(self, request: Request, what: str) -> None:
        if request.status in REFUSALS:
            msg = f"the MCP server {self.label!r} has refused {what} with status {request.status}; see headers="
            raise McpAuthenticationError(msg)

    async def _headers(self, context: ReadonlyContext | None, *, refresh: bool) -> Mapping[str, str]:
        headers = self.settings.headers
        if headers is None:
            return {}
        if callable(headers):
            found = headers(context, refresh=refresh)
            headers = await found if inspect.isawaitable(found) else found
        return checked_headers(headers)

    async def _relist(self, session: ClientSession) -> None:
        with trio.move_on_after(self.settings.connect_timeout_s):
            await _pages(lambda params: session.list_tools(params=params))

    async def asked(
        self,
        client: Client,
        request: Callable[..., Awaitable[Any]],
        responses: dict[str, Any] | None,
        state: str | None,
        answers: Answers,
    ) -> Any:
        """Return the result of *request*, or what the server asks first; by the way of its protocol."""
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await request(input_responses=responses, request_state=state, allow_input_required=True)
        return await self.back_channel.hold(answers, request)

    # --- lists

    async def list(self, context: ReadonlyContext | None, kind: str) -> Any:
        """
        Return the `tools`, `resources`, `resource_templates` or `prompts` of the server, as the official package does.

        If the server cannot be reached, or has no list now, the tools that it had last: then a call of one tells the
        model.

        Raises:
            McpError: It has given no list, and none before.
        """
        key = None
        if callable(self.settings.headers):
            key = frozenset((await self._headers(context, refresh=False)).items())
        for each in ((kind, None), (kind, key)):
            kept = self._lists.get(each)
            if kept is not None and trio.current_time() < kept.until:
                return kept.value
        try:
            listing = await self._listing(context, kind)
        except (McpConnectionError, MCPError) as error:
            if kind == "tools" and kind in self._last:
                return self._last[kind]
            if isinstance(error, MCPError):
                raise refused(self.label, f"the list of its {kind}", error) from None
            raise
        is_shared = key is None or listing.is_public
        if is_shared:
            self._last[kind] = listing.found
        if listing.ttl_s > 0 and listing.changes == self._changes:  # else it may be of before a change, or half of it
            if len(self._lists) >= LISTS_KEPT_MAX:
                del self._lists[next(iter(self._lists))]
            kept = _Kept(listing.found, trio.current_time() + listing.ttl_s)
            self._lists[kind, None if is_shared else key] = kept
        return listing.found

    async def _listing(self, context: ReadonlyContext | None, kind: str) -> _Listing:
        what, limit_s = f"the list of its {kind}", self.settings.connect_timeout_s

        async def send(client: Client) -> _Listing:
            changes = self._changes
            return (await _listed(client, kind))._replace(changes=changes)

        for _ in range(LIST_ATTEMPTS - 1):
            try:
                return await self.ask(context, what, send, limit_s=limit_s)
            except McpConnectionError:
                pass  # asking for a list has no effect, so nobody is bothered with one connection that has gone
        return await self.ask(context, what, send, limit_s=limit_s)


class _Listing(NamedTuple):
    found: list[Any]
    ttl_s: float
    is_public: bool
    changes: int = 0
    """How many had been told when it was asked for."""


async def _listed(client: Client, kind: str) -> _Listing:
    ask = getattr(client.session, f"list_{kind}")
    has = client.server_capabilities.tools if kind == "tools" else client.server_capabilities.resources
    try:
        pages = await _pages(lambda params: ask(params=params))
    except MCPError as error:
        # A server with resources need not have templates of them, and one with these alone need not know of tools.
        is_missing = kind == "resource_templates" or (kind in ("tools", "resources") and has is None)
        if error.code != mcp_types.METHOD_NOT_FOUND or not is_missing:
            raise
        return _Listing([], UNTOLD_TTL_S, False)
    found = [each for page in pages for each in getattr(page, kind)]
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:  # older ones say nothing of times
        told = getattr(client.server_capabilities, kind, None)
        return _Listing(found, math.inf if told is not None and told.list_changed else UNTOLD_TTL_S, False)
    is_public = all(page.cache_scope == "public" for page in pages)
    return _Listing(found, min(page.ttl_ms for page in pages) / 1000, is_public)


async def _pages(ask: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    pages: list[Any] = []
    cursor: str | None = None
    while True:
        page = await ask(None if cursor is None else mcp_types.PaginatedRequestParams(cursor=cursor))
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return pages
        if len(pages) == PAGES_MAX:
            raise ValueError(f"it has more than {PAGES_MAX} pages")


def refused(label: str, what: str, error: MCPError) -> McpError:
    """The error that says what a server has answered *what* with."""
    msg = f"the MCP server {label!r} has refused {what}: {line(error.message, ERROR_CHARS_MAX)}"
    return McpError(msg, code=error.code)


async def _nobody(context: ClientRequestContext, params: Any) -> mcp_types.ErrorData:
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="nobody can be asked while a request goes on")


def checked_headers(headers: object) -> Mapping[str, str]:
    """
    Return what can be sent as headers.

    Raises:
        ConfigurationError: It cannot. The message has no value in it.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"expected headers= to give a dict of texts, found {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise ConfigurationError(f"expected the name of a header, found {brief(name)}")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            msg = f"expected the header {name!r} to be printable ASCII text, found something else (not shown)"
            raise ConfigurationError(msg)
    return dict(headers)
