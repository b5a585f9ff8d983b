"""
The way over HTTP: who may come in, and as whom.

The checks stand in front of everything, before a body is read, in this order: Host, against pages that have their own
name lead to this address (DNS rebinding); Origin, against pages of other sites; the token. Behind them the official
package speaks the protocol, with a bound on what a request may hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, TypeAlias

import trio
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from .._json import check_id, is_count, shown
from .._service import check_in_trio
from ..errors import ConfigurationError, ServiceClosedError, ServiceInUseError
from ._secrets import Tokens

__all__ = ["LOOPBACK", "Authenticate", "BearerTokens", "McpAsgiApp", "user_of"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Authenticate: TypeAlias = Callable[[Mapping[str, Any]], "Awaitable[str | None] | str | None"]
"""
Says who makes a request: a function, sync or async, of the ASGI scope, which returns a user's id, or None to refuse.
"""

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_USER = "minirun.user_id"  # in the scope of a request


class BearerTokens:
    """
    Lets in who shows one of these tokens (`Authorization: Bearer …`), as the user that it stands for.

    Tokens are compared in constant time, and neither shown nor logged. Give each person, or each program, one of its
    own: the token of a user opens all sessions of that user.

    Args:
        users: User ids by tokens. A token has 16 or more printable ASCII characters.

    Raises:
        ConfigurationError: There is none, or one is too short.
        InvalidValueError: What a token stands for can be no user's id.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._tokens = Tokens(users)

    def __call__(self, scope: Mapping[str, Any]) -> str | None:
        """Return the user whose token a request has; None if it has none, a wrong one, or several."""
        found = _header(scope, b"authorization")
        kind, _, token = ("" if found is None else found).partition(" ")
        return self._tokens.user_of(token.strip()) if kind.lower() == "bearer" else None


class McpAsgiApp:
    """
    An ASGI application; `McpAgentServer.asgi_app` makes it.

    A server on trio, such as hypercorn, serves it as it is. An application that mounts it enters it in its own
    lifespan, since mounted applications hear nothing of that: `async with app: yield`. It is entered once.

    Raises:
        ServiceInUseError: Entered twice.
        ServiceClosedError: A request came when it was not entered.
    """

    def __init__(
        self,
        server: Server[Any],
        authenticate: Authenticate,
        *,
        path: str,
        allowed_hosts: Sequence[str],
        allowed_origins: Sequence[str],
        body_bytes_max: int,
    ) -> None:
        if not callable(authenticate):
            msg = f"expected authenticate to be a function of a request's scope, found {shown(authenticate)}"
            raise ConfigurationError(f"{msg}; write authenticate=BearerTokens({{token: user_id}})")
        if not isinstance(path, str) or not path.startswith("/"):
            raise ConfigurationError(f"expected a path that begins with '/', found {shown(path)}")
        if not is_count(body_bytes_max, 1):
            raise ConfigurationError(f"expected body_bytes_max to be a number of bytes, found {shown(body_bytes_max)}")
        self._authenticate = authenticate
        self._hosts = frozenset(_names("allowed_hosts", allowed_hosts))
        self._origins = frozenset(_names("allowed_origins", allowed_origins))
        # Its own checks of hosts are off: they come too late, and know ports only that were told to them.
        off = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._app: Starlette = server.streamable_http_app(
            streamable_http_path=path, max_request_body_size=body_bytes_max, transport_security=off
        )
        self._stack = AsyncExitStack()
        self._was_entered = self._is_open = False

    async def __aenter__(self) -> McpAsgiApp:
        check_in_trio()
        if self._was_entered:
            raise ServiceInUseError("this application was entered already; make another one with asgi_app()")
        self._was_entered = True
        await self._stack.enter_async_context(self._app.router.lifespan_context(self._app))
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._stack.__aexit__(kind, error, traceback)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        try:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        finally:
            with trio.CancelScope(shield=True):
                await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_open:
            msg = "this application was not entered, or was left; enter it in the lifespan of what mounts it"
            raise ServiceClosedError(f"{msg}: `async with app: yield`")
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        if host is None or _name_of(host) not in self._hosts:
            await _refuse(send, 421, "This server has no such name.")
            return
        if _headers(scope, b"origin") and (origin is None or origin.lower() not in self._origins):
            await _refuse(send, 403, "Pages of other sites are not served.")
            return
        found = self._authenticate(scope)
        user_id = await found if inspect.isawaitable(found) else found
        if user_id is None:
            await _refuse(send, 401, "A token is needed.", (b"www-authenticate", b"Bearer"))
            return
        check_id("user_id", user_id)
        # A session of the older protocol belongs to the user that opened it: the package compares this.
        owner = AuthenticatedUser(AccessToken(token="", client_id=user_id, scopes=[], subject=user_id))
        known = {**scope, _USER: user_id, "user": owner}
        known["headers"] = [each for each in scope["headers"] if each[0].lower() != b"authorization"]
        await self._app(known, receive, send)


def user_of(request: Any) -> str:
    """The user who makes a request that has come through an `McpAsgiApp`."""
    user_id: str = request.scope[_USER]
    return user_id


def _headers(scope: Mapping[str, Any], name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


def _header(scope: Mapping[str, Any], name: bytes) -> str | None:
    """A header that a request has once; of several nobody knows which one others have looked at."""
    found = _headers(scope, name)
    return found[0].decode("latin-1") if len(found) == 1 else None


def _name_of(host: str) -> str:
    """A host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _names(what: str, given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise ConfigurationError(f"expected {what} to be a list of texts, found {shown(given)}")
    return [each.lower() for each in given]


async def _refuse(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = text.encode()
    told = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
