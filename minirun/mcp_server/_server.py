"""What an application holds: agents as the tools of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import metadata
from typing import Any

import mcp_types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.caching import CacheHint

from .._json import check_id, is_count, is_seconds, shown
from .._service import check_in_trio
from ..errors import ConfigurationError
from ..runners import Runner
from ..runners._arguments import checked_config
from ..runners._toolsets import entered_toolsets
from ..runtime import RunConfig
from ._asgi import LOOPBACK, Authenticate, McpAsgiApp, user_of
from ._call import Call, ServedAgent
from ._secrets import checked_keys, new_key
from ._state import Seal
from ._stdio import diverted, stdio_streams

__all__ = ["McpAgentServer"]

# People answer on the next working day, or after a week's holiday. What is older is begun anew.
STATE_AGE_S_MAX = 7 * 24 * 3600.0

# The bound of the official package, for both ways to the server.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024

# The tools of a server are the same until it ends.
LIST_KEPT_MS = 60_000


class McpAgentServer:
    """
    Serves agents to MCP clients: each root agent is a tool that takes a `message` and, to go on, a `session_id`.

        server = McpAgentServer([runner], keys=[key])
        app = server.asgi_app(authenticate=BearerTokens({token: "ada"}))

    An agent that needs somebody ends the call with what it asks, and a sealed state. The client calls again, with the
    answers and the state, and the invocation goes on: also after a restart, and in any process that has the keys and
    the store. Clients of the protocol 2025-11-25 are asked while the call goes on.

    The user of all sessions comes with the connection, never with a call. A `session_id` is one of that user's.
    The server closes neither the runners nor their services; it enters the toolsets of their agents, if nobody has.

    Args:
        runners: The agents, by their runners, which make sessions that are not there (`auto_create_session=True`).
            Their agents have different names, and their apps, too.
        keys: What seals the states: secrets of 32 bytes or more. The first one seals, all of them open, so a new one
            can take its turn in front. All workers have the same. None: a key of this process, and a state is good
            until it ends.
        user_id: Whose sessions are used by a client on standard input and output.
        name: What the server calls itself.
        run_config: Settings of the runs. Whether answers are streamed follows from what a client asks for.
        state_age_s_max: How old a state may be, in seconds; by default a week.
        message_bytes_max: How much a client may send at once.

    Raises:
        ConfigurationError: An argument is not what it should be.
        InvalidValueError: The user id can be none.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        *,
        keys: Sequence[bytes] | None = None,
        user_id: str = "local",
        name: str = "minirun",
        run_config: RunConfig | None = None,
        state_age_s_max: float = STATE_AGE_S_MAX,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._agents = _agents(runners)
        self._env = runners[0].session_service.env
        self._user_id = check_id("user_id", user_id)
        self._config = checked_config(run_config)
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"expected name to be a text, found {shown(name)}")
        if not is_seconds(state_age_s_max, above=0):
            raise ConfigurationError(f"expected state_age_s_max to be seconds above 0, found {shown(state_age_s_max)}")
        if not is_count(message_bytes_max, 1):
            msg = f"expected message_bytes_max to be a number of bytes, found {shown(message_bytes_max)}"
            raise ConfigurationError(msg)
        self._bytes_max = message_bytes_max
        self._seal = Seal([new_key(self._env)] if keys is None else checked_keys(keys), state_age_s_max, self._env)
        self._server: Server[Any] = Server(
            name,
            version=metadata.version("minirun"),
            lifespan=self._entered,
            on_list_tools=self._list,
            on_call_tool=self._call,
            cache_hints={"tools/list": CacheHint(ttl_ms=LIST_KEPT_MS, scope="private")},
        )

    @property
    def protocol_server(self) -> Server[Any]:
        """
        The server as an object of the official package, for a client in the same process, as in tests.

        Such a client speaks for `user_id`.
        """
        return self._server

    def asgi_app(
        self,
        *,
        authenticate: Authenticate,
        path: str = "/mcp",
        allowed_hosts: Sequence[str] = LOOPBACK,
        allowed_origins: Sequence[str] = (),
    ) -> McpAsgiApp:
        """
        Return an ASGI application that speaks the protocol over HTTP, to be served or mounted on trio.

        Args:
            authenticate: Who makes a request: `BearerTokens`, or a function of the ASGI scope, sync or async, that
                returns the user's id, or None to refuse. Behind another application's sign-in it is what reads that.
            path: Where it answers.
            allowed_hosts: The names under which it is reached, without ports. Requests for others are refused: a page
                may have its own name lead to an address of this machine.
            allowed_origins: Pages that may ask it, `https://host`; by default none. Programs send no Origin.

        Raises:
            ConfigurationError: An argument is not what it should be.
        """
        return McpAsgiApp(
            self._server,
            authenticate,
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            body_bytes_max=self._bytes_max,
        )

    async def serve_stdio(self) -> None:
        """
        Serve the client at the standard input and output of this process, until it closes the input.

        Meanwhile whatever else is printed goes to standard error. A cancellation leaves the runs, and ends it.

        Raises:
            OSError: There is no standard input or output.
        """
        check_in_trio()
        with diverted() as wire:
            await self._serve(wire)

    async def _serve(self, wire: tuple[int, int]) -> None:
        async with stdio_streams(wire, self._bytes_max, self._env) as (read, write):
            await self._server.run(read, write, self._server.create_initialization_options())

    @asynccontextmanager
    async def _entered(self, server: Server[Any]) -> AsyncGenerator[dict[str, Any], None]:
        async with AsyncExitStack() as stack:
            for each in self._agents.values():
                await stack.enter_async_context(entered_toolsets(each.runner.app._tree))
            yield {}

    async def _list(
        self, context: ServerRequestContext[Any, Any], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[each.tool() for each in self._agents.values()])

    async def _call(
        self, context: ServerRequestContext[Any, Any], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
        served = self._agents.get(params.name)
        if served is None:
            raise MCPError(mcp_types.INVALID_PARAMS, f"there is no such tool; there are {', '.join(self._agents)}")
        user_id = self._user_id if context.request is None else user_of(context.request)
        return await Call(served, user_id, self._config, self._seal, context, params).result()


def _agents(runners: object) -> dict[str, ServedAgent]:
    found: dict[str, ServedAgent] = {}
    if not isinstance(runners, Sequence) or not runners or not all(isinstance(each, Runner) for each in runners):
        raise ConfigurationError(f"expected a list of Runners, found {shown(runners)}")
    for runner in runners:
        name = runner.agent.name
        if not runner.auto_create_session:
            msg = f"expected the Runner of {name!r} to make sessions, as clients have no other way"
            raise ConfigurationError(f"{msg}; make it with auto_create_session=True")
        same = [each for each in found.values() if name == each.name or runner.app_name == each.runner.app_name]
        if same:
            msg = f"expected agents and apps of different names, found {name!r} of {runner.app_name!r}"
            raise ConfigurationError(f"{msg} beside {same[0].name!r} of {same[0].runner.app_name!r}")
        found[name] = ServedAgent(name, runner)
    return found
