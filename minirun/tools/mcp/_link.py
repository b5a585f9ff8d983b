"""
The connection to a server: one task that holds it, as long as the toolset is entered.

    IDLE ── somebody asks ──► CONNECTING ── greeted ──► UP ── lost ──► IDLE
      ▲                            │
      └──── failed: who asked is told, and the next attempt waits ────┘

The official package's client is an `async with` whose failures leave it as a group, and end it for all who use it. So
it lives in this task and nowhere else: a request waits for a client, uses it in its own task, and ends with an error
if the client has gone. Nothing is raised out of the task.

A server that was lost is connected to anew when somebody asks, at once; after an attempt that has failed the next one
waits, twice as long each time.

To connect, the task uses the headers of the request that has waited longest. A server that refuses these says nothing
about other ones: only the requests with the same headers are told, and the next request in the queue is tried at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import anyio
import attrs
import trio
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...errors import McpConnectionError
from ...runtime._failure import first_failure
from ._http import REFUSALS, REQUEST, Request
from ._text import line

__all__ = ["Link"]

# Before the second attempt, and the longest: short enough for a server that is restarted, long enough for one that is
# not there to cost nothing.
BACKOFF_S = 0.5
BACKOFF_S_MAX = 10.0

# A connection that is lost sooner counts as an attempt that has failed: else a server that ends as soon as it was
# greeted would be started as fast as it ends.
LIVES_S = 1.0

LEFT = "its toolset was left"

# To say goodbye to a server that was lost.
LEAVE_S = 10.0

# To end the session with a server of the older protocol, when its toolset is left. A server that is there answers at
# once; one that is not costs the program this at its end.
GOODBYE_S = 2.0


@attrs.define(eq=False)
class _Waiter:
    request: Request
    answered: trio.Event = attrs.field(factory=trio.Event)
    error: McpConnectionError | None = None


class Link:
    """
    See the module.

    Args:
        connect: Makes a client that was not entered; with a function to be told why the server has gone.
        label: What messages call the server.
        connect_timeout_s: How long a request waits for the connection, in seconds.
        on_change: Hears that a list of the server's has changed, or may have.
    """

    def __init__(
        self,
        connect: Callable[[Callable[[str], None]], AbstractAsyncContextManager[Client]],
        label: str,
        connect_timeout_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._label = label
        self._connect_timeout_s = connect_timeout_s
        self._on_change = on_change
        self._client: Client | None = None
        self._waiters: list[_Waiter] = []
        self._wanted = trio.Event()
        self._lost = trio.Event()
        self._ended = trio.Event()
        self._why = ""
        self._is_over = False
        self._requests: set[trio.CancelScope] = set()
        self._failures = 0
        self._not_before = -math.inf

    # --- for requests

    async def client(self, request: Request) -> Client:
        """
        Return the client, connected.

        Raises:
            McpConnectionError: There is none, and none could be made in time.
        """
        if self._client is not None:
            return self._client
        if self._is_over:
            raise self.error(LEFT)
        waiter = _Waiter(request)
        self._waiters.append(waiter)
        self._wanted.set()
        try:
            with trio.move_on_after(self._connect_timeout_s):
                await waiter.answered.wait()
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        if waiter.error is not None:
            raise waiter.error
        if self._client is None:
            raise self.error(f"it was not connected to within connect_timeout_s={self._connect_timeout_s} seconds")
        return self._client

    @contextmanager
    def ending(self, client: Client, what: str) -> Iterator[None]:
        """
        A block that uses *client*, and ends with the connection at the latest. *what* is what messages call it.

        A server in this process answers in the task of its caller, and hears nothing of the end.

        Raises:
            McpConnectionError: The connection ended first.
        """
        scope = trio.CancelScope()
        if client is not self._client:
            scope.cancel()
        self._requests.add(scope)
        try:
            with scope:
                yield
        finally:
            self._requests.discard(scope)
        if scope.cancelled_caught:
            raise self.error(f"it was lost during {what}: {LEFT if self._is_over else self.why_lost}")

    def lose(self, client: Client) -> None:
        """Tell that the connection of *client* has gone."""
        if client is self._client:
            self._client = None
            self._lost.set()

    async def leave(self) -> None:
        """
        End the session with the server, if its protocol has one; to be called before `hold` is cancelled.

        Behind a URL such a server would keep the session, and the calls in it, for as long as it lives.
        """
        client = self._client
        if client is not None and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self.lose(client)
            with trio.move_on_after(GOODBYE_S):
                await self._ended.wait()

    def error(self, why: str) -> McpConnectionError:
        """The error that says why there is no connection."""
        return McpConnectionError(f"the MCP server {self._label!r} was expected to answer, but {why}")

    @property
    def why_lost(self) -> str:
        """Why the last connection has gone, as far as it is known."""
        return self._why or "the connection was lost"

    # --- the task

    async def hold(self) -> None:
        """Hold the connection, until this is cancelled."""
        try:
            while True:
                while not self._waiters:
                    self._wanted = trio.Event()
                    await self._wanted.wait()
                await trio.sleep_until(max(self._not_before, trio.current_time()))
                if self._waiters:
                    await self._live_once()
        finally:
            self._is_over = True
            self._answer(LEFT)

    async def _live_once(self) -> None:
        """Connect, let the waiters go on, and stay until the connection is lost."""
        self._lost, self._ended, self._why, since = trio.Event(), trio.Event(), "", math.inf
        request = self._waiters[0].request
        token = REQUEST.set(request)
        scope = trio.CancelScope(deadline=trio.current_time() + self._connect_timeout_s)
        failure: BaseException | None = None
        try:
            with scope:
                async with self._connect(self._tell) as client:
                    scope.deadline, since = math.inf, trio.current_time()
                    await self._serve(client, scope)
        except BaseException as error:
            failure = self._only_ours(error)
        finally:
            REQUEST.reset(token)
            self._client = None
            self._ended.set()
            for each in self._requests:
                each.cancel()
        is_refused = since == math.inf and request.status in REFUSALS
        is_early = trio.current_time() - since < LIVES_S and not is_refused  # also where it was never up
        self._failures = self._failures + 1 if is_early else 0
        pause_s = min(BACKOFF_S * 2 ** min(self._failures - 1, 10), BACKOFF_S_MAX) if self._failures else 0.0
        self._not_before = trio.current_time() + pause_s
        if since == math.inf:
            why = self._reason(failure, request, timed_out=scope.cancelled_caught)
            self._answer(why, like=request if is_refused else None)

    def _tell(self, why: str) -> None:
        self._why = why
        if self._client is not None:
            self.lose(self._client)

    @staticmethod
    def _only_ours(error: BaseException) -> BaseException | None:
        """What the client has failed with. A cancellation of this task, and Ctrl-C, go on."""
        if not isinstance(error, BaseExceptionGroup):
            if not isinstance(error, Exception):
                raise error
            return error
        rest, ours = error.split(lambda leaf: not isinstance(leaf, (Exception, BaseExceptionGroup)))
        if rest is not None:
            raise rest
        return ours

    def _reason(self, failure: BaseException | None, request: Request, *, timed_out: bool) -> str:
        if timed_out:
            return f"it was not connected to within connect_timeout_s={self._connect_timeout_s} seconds"
        if request.failure:
            return f"it could not be reached: {request.failure}"
        if self._why:
            return self._why
        if failure is None:
            return "the connection ended at once"
        first = first_failure(failure)
        return f"it could not be connected to: {line(f'{type(first).__name__}: {first}')}"

    def _answer(self, why: str = "", *, like: Request | None = None) -> None:
        """
        Let those who wait go on: there is a connection, or *why* there is none.

        With *like*, the request that was refused, only those with its headers go on, and have been refused as well.
        """
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if like is not None and waiter.request.headers != like.headers:
                self._waiters.append(waiter)
                continue
            if like is not None:
                waiter.request.status = like.status
            waiter.error = self.error(why) if why else None
            waiter.answered.set()

    async def _serve(self, client: Client, scope: trio.CancelScope) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, client, name=f"changes of the MCP server {self._label}")
            self._client = client
            self._on_change()
            self._answer()
            await self._lost.wait()
            scope.deadline = trio.current_time() + LEAVE_S
            nursery.cancel_scope.cancel()

    async def _watch(self, client: Client) -> None:
        """Hear of changed lists from a server that tells of them on request; older ones tell by themselves."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        told = client.server_capabilities
        tools = bool(told.tools and told.tools.list_changed)
        prompts = bool(told.prompts and told.prompts.list_changed)
        if not (tools or prompts):
            return
        try:
            async with client.listen(tools_list_changed=tools, prompts_list_changed=prompts) as changes:
                self._on_change()  # what has changed since the connection was made was told to nobody
                async for _ in changes:
                    self._on_change()
        except (MCPError, OSError, RuntimeError, TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self._on_change()  # what changes from here on is not heard
