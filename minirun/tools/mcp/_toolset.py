"""`McpToolset`: the tools of a server, while it is entered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs
import mcp_types
import trio
from mcp import Client, MCPError
from pydantic import ValidationError

from ..._json import brief, is_count, is_seconds
from ..._service import check_in_trio
from ...errors import ConfigurationError
from ...runtime import ReadonlyContext
from .._base import BaseTool, OnInterrupted
from .._options import check_options
from .._toolset import BaseToolset, ToolPredicate
from ._adks import TOOLSET, refuse
from ._listing import RESOURCE_TOOL, Definition, definitions, tell_left_out
from ._results import text_of
from ._server import Headers, Server, Settings, checked_headers, refused
from ._servers import ServerLike, StreamableHTTPConnectionParams, checked, given_seconds, label_of
from ._text import line
from ._tool import McpTool, ResourceTool

if TYPE_CHECKING:
    from .._retry import RetryConfig

__all__ = ["McpToolset"]

# A tool that asks a server that never answers ends after this. The official package waits as long for a response.
CALL_TIMEOUT_S = 300.0
CONNECT_TIMEOUT_S = 30.0

# What a model is to read at once; a larger result is an error that says so.
RESULT_BYTES_MAX = 2**20
# Of one message of the protocol: media are base64 in it.
MESSAGE_BYTES_MAX = 16 * 2**20

PROMPT_CHARS_MAX = 100_000


@attrs.define(eq=False)
class _Entry:
    """What a toolset has in one `trio.run`, from being entered to being left."""

    server: Server
    nurseries: Any
    nursery: trio.Nursery
    listed: Any = None
    """The list that the tools were made from."""
    tools: dict[str, McpTool] = attrs.field(factory=dict)
    left_out: list[str] = attrs.field(factory=list)
    resource_tool: ResourceTool | None = None


class McpToolset(BaseToolset):
    """
    The tools of an MCP server: `async with McpToolset(StdioServer("server-command")) as tools:`.

    It has to be entered around whatever runs the agent that has it: one task in the scope of the block holds the
    connection. It connects when it is first asked, and again when the connection was lost. It is entered once at a
    time in a `trio.run`, and may be entered again after it was left. `minirun run`, `Runner.run`, `run_sync`,
    `run_once` and the bridge enter the toolsets of an app themselves, if nobody has.

    A server that cannot be reached, or is lost, is an error that the model is told (McpConnectionError). Nothing that
    it fails with ends a run, but a list of tools that was never got.

    Args:
        server: A StdioServer, a URL, or an object: a server of the official package in this process, or a function that
            returns a new transport of it.
        tool_filter: As for every toolset; names are those that models see, without the prefix.
        tool_name_prefix: The tools are named `<prefix>_<name>`. It keeps those of two servers apart.
        headers: For a URL: headers, or a function that gives them for each request; see `Headers`.
        require_confirmation: Whether somebody has to allow calls: True for all, names of tools for these, or a function
            of the arguments, which takes `**args`.
        timeout_s: How long one attempt of a call may take, in seconds; None: no limit.
        connect_timeout_s: How long connecting may take, and each list, in seconds.
        retry, max_concurrency, on_interrupted: As for each tool, see `BaseTool`. A lost call is retried only if *retry*
            says so: whether the server has done it is unknown.
        resources: Whether there is a tool `load_mcp_resource`, which lists and reads the server's resources.
        sampling: Whether the server may ask the model of the agent that calls it, from the budgets of the invocation.
        roots: The folders that the server is told to work in, as `file://` URIs.
        result_bytes_max: What a result may have; a larger one is an error.
        message_bytes_max: What one message of the server may have; a larger one ends the connection.

    Raises:
        ConfigurationError: An argument is none of these.
        NotSupportedError: It is one of ADK's that has no effect here; the message says what to write instead.
    """

    def __init__(
        self,
        server: ServerLike | None = None,
        *,
        connection_params: ServerLike | None = None,
        tool_filter: Collection[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
        sequential: bool = False,
        headers: Headers | None = None,
        require_confirmation: bool | Collection[str] | Callable[..., Any] = False,
        timeout_s: float | None = CALL_TIMEOUT_S,
        connect_timeout_s: float | None = None,
        retry: RetryConfig | None = None,
        max_concurrency: int | None = None,
        on_interrupted: OnInterrupted = "report",
        resources: bool = False,
        sampling: bool = False,
        roots: Iterable[str] = (),
        result_bytes_max: int = RESULT_BYTES_MAX,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        **others: object,
    ) -> None:
        refuse("McpToolset", others, TOOLSET)
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix, sequential=sequential)
        if (server is None) == (connection_params is None):
            raise ConfigurationError("expected one server; write McpToolset(StdioServer('command')) or McpToolset(url)")
        given = connection_params if server is None else server
        target = checked(given)
        self.label = tool_name_prefix or label_of(target)
        if isinstance(given, StreamableHTTPConnectionParams) and headers is None:
            headers = given.headers
        if headers is not None and not isinstance(target, str):
            raise ConfigurationError("expected headers= for the URL of a server alone, found another; leave them out")
        if not (headers is None or callable(headers)):
            headers = checked_headers(headers)
        for name, flag in (("resources", resources), ("sampling", sampling)):
            if not isinstance(flag, bool):
                raise ConfigurationError(f"expected {name} to be True or False, found {brief(flag)}")
        for name, count in (("result_bytes_max", result_bytes_max), ("message_bytes_max", message_bytes_max)):
            if not is_count(count, 1):
                raise ConfigurationError(f"expected {name} to be an integer from 1 up, found {brief(count)}")
        if connect_timeout_s is None:
            connect_timeout_s = given_seconds(given) or CONNECT_TIMEOUT_S
        if not is_seconds(connect_timeout_s, above=0):
            found = brief(connect_timeout_s)
            raise ConfigurationError(f"expected connect_timeout_s to be seconds above 0, found {found}")
        self._needing = _names(require_confirmation)
        confirms = False if self._needing is not None else require_confirmation
        check_options("of McpToolset", timeout_s, retry, 2, max_concurrency, on_interrupted, confirms, sequential)
        self._options: dict[str, Any] = {"timeout_s": timeout_s, "retry": retry, "max_concurrency": max_concurrency}
        self._require_confirmation: Any = confirms
        self._on_interrupted = on_interrupted
        self._result_bytes_max = result_bytes_max
        self._settings = Settings(
            target, self.label, headers, float(connect_timeout_s), message_bytes_max, sampling, _roots(roots)
        )
        self._entries: dict[trio.lowlevel.TrioToken, _Entry] = {}  # one for each `trio.run` in which it is entered
        self._has_resources = resources

    # --- the scope

    @property
    def is_entered(self) -> bool:
        """Whether its tools can be used, in this `trio.run`."""
        return trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() in self._entries

    async def __aenter__(self) -> McpToolset:
        """
        Begin to hold a connection. Nothing is connected before somebody asks.

        Raises:
            ConfigurationError: It is entered already.
        """
        check_in_trio()
        token = trio.lowlevel.current_trio_token()
        if token in self._entries:
            raise ConfigurationError(f"expected {self!r} to be entered once at a time; share it inside of its block")
        nurseries = trio.open_nursery()
        entry = self._entries[token] = _Entry(Server(self._settings), nurseries, await nurseries.__aenter__())
        entry.nursery.start_soon(entry.server.link.hold, name=f"connection to the MCP server {self.label}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the connection and its server. What the block has raised leaves as it is, in no group."""
        entry = self._entered()
        del self._entries[trio.lowlevel.current_trio_token()]
        entry.nursery.cancel_scope.shield = True  # a cancellation from outside hides nothing that the block has raised
        with trio.CancelScope(shield=True):
            await entry.server.link.leave()
        entry.nursery.cancel_scope.cancel()
        await entry.nurseries.__aexit__(None, None, None)

    def __repr__(self) -> str:
        return f"McpToolset({self.label!r})"

    def _entered(self) -> _Entry:
        check_in_trio()
        entry = self._entries.get(trio.lowlevel.current_trio_token())
        if entry is None:
            msg = f"expected {self!r} to be entered, found that it was not, or was left"
            raise ConfigurationError(f"{msg}; write `async with McpToolset(...) as tools:` around what runs its agent")
        return entry

    # --- what it has

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> Sequence[BaseTool]:
        """
        Return the tools that the server has now, sorted by name; see `BaseToolset.get_tools`.

        Raises:
            ConfigurationError: The toolset is not entered.
            McpError: The server has given no list, and none before.
        """
        entry = self._entered()
        listed = await entry.server.list(readonly_context, "tools")
        if listed is not entry.listed:
            entry.listed = listed
            found, left_out = definitions(listed, self.tool_name_prefix)
            if left_out != entry.left_out:
                entry.left_out = left_out
                tell_left_out(left_out, self.label)
            entry.tools = {each.name: self._tool(entry, each) for each in found}
        tools: list[BaseTool] = list(entry.tools.values())
        if self._has_resources:
            if entry.resource_tool is None:
                confirms = self._confirms(RESOURCE_TOOL)
                options = {"require_confirmation": confirms, **self._options}
                entry.resource_tool = ResourceTool(entry.server, self._result_bytes_max, **options)
            tools.append(entry.resource_tool)
        return tools

    def _tool(self, entry: _Entry, definition: Definition) -> McpTool:
        # The same object as long as the server says the same, because limits belong to objects.
        known = entry.tools.get(definition.name)
        if known is not None and known.definition == definition:
            return known
        return McpTool(
            entry.server,
            definition,
            self._result_bytes_max,
            require_confirmation=self._confirms(definition.name, definition.original),
            on_interrupted=self._on_interrupted,
            **self._options,
        )

    def _confirms(self, *names: str) -> Any:
        return self._require_confirmation if self._needing is None else not self._needing.isdisjoint(names)

    def instruction(self, prompt: str, /, **arguments: str) -> Callable[[ReadonlyContext], Any]:
        """
        A function that gives the texts of a prompt of the server: `LlmAgent(instruction=tools.instruction("style"))`.

        The server is asked before each question to the model. What it says becomes the agent's instruction: use it with
        servers that you trust as you trust your own code.
        """

        async def text(context: ReadonlyContext) -> str:
            return await self.prompt(prompt, context=context, **arguments)

        return text

    async def prompt(self, name: str, /, *, context: ReadonlyContext | None = None, **arguments: str) -> str:
        """
        Return the texts of a prompt of the server.

        Raises:
            ConfigurationError: The toolset is not entered.
            McpError: There is no such prompt, it has no text, or it asks for something first.
        """
        server, what = self._entered().server, f"the prompt {line(name, 80)!r}"

        async def get(client: Client) -> mcp_types.GetPromptResult:
            return await client.session.get_prompt(name, arguments)

        try:
            result = await server.ask(context, what, get, limit_s=self._settings.connect_timeout_s)
        except MCPError as error:
            raise refused(self.label, what, error) from None
        return text_of(result.messages, self.label, PROMPT_CHARS_MAX)


def _names(required: object) -> frozenset[str] | None:
    """The names of the tools that need confirmation; None if *required* is no list of names."""
    if isinstance(required, (bool, str)) or callable(required) or not isinstance(required, Collection):
        return None
    if not all(isinstance(each, str) for each in required):
        raise ConfigurationError(f"expected require_confirmation to be names of tools, found {brief(required)}")
    return frozenset(required)


def _roots(uris: object) -> tuple[mcp_types.Root, ...]:
    if isinstance(uris, (str, Mapping)) or not isinstance(uris, Iterable):
        raise ConfigurationError(f"expected roots to be a list of file:// URIs, found {brief(uris)}")
    roots = []
    for uri in uris:
        try:
            roots.append(mcp_types.Root.model_validate({"uri": uri}))
        except ValidationError:
            raise ConfigurationError(f"expected a root to be a file:// URI, found {brief(uri)}") from None
    return tuple(roots)
