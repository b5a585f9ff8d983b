"""`McpToolset` against servers made with the official package: in process, over stdio and over HTTP."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server import Server as LowLevelServer
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from minirun import InMemoryRunner, InMemorySessionService, LlmAgent, RunConfig, Runner, run_once, run_sync
from minirun.errors import (
    ConfigurationError,
    LlmCallsLimitExceededError,
    McpAuthenticationError,
    McpConnectionError,
    McpError,
    NotSupportedError,
)
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.tools.mcp import McpToolset, StdioServer

from ..fork_server import program, relay
from ..helpers import PLACE
from ..mcp_servers import hostile, kinds, older

# The official package leaves the stream of a response as it has its answer; the garbage collector closes it.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

ROOT = Path(__file__).parents[2]


def stdio(name: str, *arguments: object) -> StdioServer:
    """One of the servers of the tests, over stdio."""
    command, *rest = relay(program(f"tests.mcp_servers.{name}", *arguments))
    return StdioServer(command, rest)


@asynccontextmanager
async def served(server: MCPServer, **options: Any) -> AsyncGenerator[str, None]:
    """The URL at which a server is served by hypercorn."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = config.accesslog = None
    config.graceful_timeout = 0.2
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        app: Any = server.streamable_http_app(**options)
        urls = await nursery.start(
            lambda task_status: serve(app, config, shutdown_trigger=over.wait, task_status=task_status)
        )
        try:
            yield f"{urls[0]}/mcp"
        finally:
            over.set()


async def responses(tools: McpToolset, *calls: Any, **options: Any) -> list[Any]:
    """What the calls of one turn were answered with, in an agent with these tools."""
    model = ScriptedLlm([list(calls), "Done."])
    runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go", **options) as run:
        events = [event async for event in run]
    return [found.response for event in events for found in event.get_function_responses()]


async def first_parts(tools: McpToolset, made: Any) -> Any:
    """The response to one call, with its media."""
    model = ScriptedLlm([made, "Done."])
    runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as run:
        events = [event async for event in run]
    return next(found for event in events for found in event.get_function_responses())


@asynccontextmanager
async def reached(
    way: str, seen: kinds.Seen | None = None, note: Path | None = None, **options: Any
) -> AsyncGenerator[McpToolset, None]:
    """A toolset of the server with all kinds of tools, on one of the three ways to it, which notes what it sees."""
    if way == "stdio":
        server = stdio("kinds", *([] if note is None else [note]))
        async with McpToolset(server, **options) as tools:
            yield tools
    elif way == "http":
        async with served(kinds.made(seen)) as url, McpToolset(url, **options) as tools:
            yield tools
    else:
        async with McpToolset(kinds.made(seen), **options) as tools:
            yield tools


WAYS = pytest.mark.parametrize("way", ["in process", "stdio", "http"])


# --- what a tool comes to ---------------------------------------------------------------------------------------------


@WAYS
async def test_every_kind_of_result_is_told_to_the_model(way: str) -> None:
    """
    Texts, structured values, links and errors become a response; images, sounds and blobs go with it as media.
    """
    async with reached(way) as tools:
        plain, structured, failed, odd, links = await responses(
            tools, call("add", a=1, b=2), call("structured"), call("fails"), call("odd_media"), call("links")
        )
        image = await first_parts(tools, call("image"))
    assert plain == {"result": 3}
    assert structured == {"result": {"city": "Rome", "nights": 3}}
    assert failed["error"]["type"] == "McpToolError"
    assert "the disk is full" in failed["error"]["message"]
    assert odd["error"]["type"] == "McpError"
    assert "\x1b" not in str(links)
    assert "Milk." in links["result"]["text"]
    assert '"uri":"file:///secret"' in links["result"]["text"].replace(" ", "")
    assert links["result"]["media"] == ["image/png, 8 B"]
    assert image.response == {"result": {"text": "a pixel", "media": ["image/png, 8 B", "audio/wav, 4 B"]}}
    assert [part.inline_data.data for part in image.parts] == [b"\x89PNG\r\n\x1a\n", b"RIFF"]


@WAYS
async def test_progress_is_shown_while_the_call_goes_on(way: str) -> None:
    """
    What a server tells of a call is a partial event, and only grows.
    """
    async with reached(way) as tools:
        model = ScriptedLlm([call("counted", steps=3), "Done."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]))
        events = await runner.run_debug("go", quiet=True)
    told = [event.custom_metadata["progress"] for event in events if event.partial and event.custom_metadata]
    fractions = [each["fraction"] for each in told]
    assert fractions[-1] == 1.0
    assert fractions == sorted(fractions)
    assert told[-1]["message"] == "step 3"


@WAYS
async def test_arguments_that_do_not_fit_are_told_by_the_server(way: str) -> None:
    """
    The server checks what a model sends, and the model is told.
    """
    async with reached(way) as tools:
        (answer,) = await responses(tools, call("add", a="x", b=2))
    assert answer["error"]["type"] == "McpToolError"
    assert "valid integer" in answer["error"]["message"]


class Noted:
    """What a server has noted, in whatever process it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen = kinds.Seen(str(path))

    async def has(self, line: str) -> None:
        """Wait for a note."""
        with trio.fail_after(60):
            while not (self.path.exists() and line in self.path.read_text().splitlines()):  # noqa: ASYNC110 # a file
                await trio.sleep(0.01)


@WAYS
async def test_a_cancelled_run_cancels_the_call_of_the_server(way: str, tmp_path: Path) -> None:
    """
    Leaving a run cancels its call in the server, which goes on serving others.
    """
    noted = Noted(tmp_path / "notes")
    async with reached(way, noted.seen, noted.path) as tools:
        model = ScriptedLlm([call("forever", name="one"), "Done."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)

        async def converse() -> None:
            async with runner.run_async(**PLACE, new_message="go") as run:
                await run.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(converse)
            await noted.has("started one")
            nursery.cancel_scope.cancel()
        await noted.has("cancelled one")
        assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]


@WAYS
async def test_calls_go_on_side_by_side(way: str) -> None:
    """
    50 calls of one turn are made at once, each gets its own answer.
    """
    seen = kinds.Seen()
    async with reached(way, seen) as tools:
        found = await responses(tools, *(call("together", number=number, of=50) for number in range(50)))
    assert found == [{"result": number} for number in range(50)]


# --- servers that die, and that never answer --------------------------------------------------------------------------


async def test_a_server_that_dies_in_a_call_is_an_error_and_comes_back() -> None:
    """
    The model is told that the server was lost, with its last words cleaned; the next call starts it again.
    """
    async with McpToolset(stdio("kinds")) as tools:
        (lost,) = await responses(tools, call("die"))
        assert lost["error"]["type"] == "McpConnectionError"
        assert "status 3" in lost["error"]["message"]
        assert "my last words \\x1b[2J" in lost["error"]["message"]
        assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]


async def test_a_server_behind_a_url_comes_back(idle_clock: trio.testing.MockClock) -> None:
    """
    A call while no server listens is an error; when one does again, the same toolset goes on.
    """
    async with served(kinds.made()) as url:
        port = int(url.split(":")[2].split("/")[0])
    async with McpToolset(url, connect_timeout_s=20) as tools:
        with pytest.raises(McpConnectionError, match="could not be reached"):
            await tools.get_tools()
        async with served_at(kinds.made(), port):
            assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]
        model = ScriptedLlm([call("add", a=1, b=1), "It is gone."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]))
        events = await runner.run_debug("go", quiet=True)
        (gone,) = [found.response for event in events for found in event.get_function_responses()]
        assert gone["error"]["type"] == "McpConnectionError"
        assert events[-1].text == "It is gone."
        async with served_at(kinds.made(), port):
            assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]


@asynccontextmanager
async def served_at(server: MCPServer, port: int) -> AsyncGenerator[None, None]:
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = config.accesslog = None
    config.graceful_timeout = 0.2
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        app: Any = server.streamable_http_app()
        await nursery.start(lambda task_status: serve(app, config, shutdown_trigger=over.wait, task_status=task_status))
        try:
            yield
        finally:
            over.set()


async def test_a_command_that_is_not_there_is_one_error(running_clock: trio.testing.MockClock) -> None:
    """
    What cannot be started is told by one exception with the command's name, and not at the entering.
    """
    async with McpToolset(StdioServer("no-such-command-at-all", ["--secret"])) as tools:
        with pytest.raises(McpConnectionError, match=r"'no-such-command-at-all'.*FileNotFoundError") as caught:
            await tools.get_tools()
    assert "--secret" not in str(caught.value)


@pytest.fixture
def clock_of_the_way(way: str) -> trio.testing.MockClock:
    """Time jumps where nobody else has anything to do; in another process the server may."""
    return trio.testing.MockClock(rate=1) if way == "stdio" else trio.testing.MockClock(autojump_threshold=0.02)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits two seconds for the end of a server that does not end by itself."""
    monkeypatch.setattr("minirun.tools.mcp._stdio.GRACE_S", 0.05)


@WAYS
async def test_a_call_that_is_never_answered_ends_at_its_limit(
    way: str, tmp_path: Path, clock_of_the_way: trio.testing.MockClock
) -> None:
    """
    After `timeout_s` the model is told so, the server's call is cancelled, and others can be made.
    """
    noted = Noted(tmp_path / "notes")

    async def let_time_pass() -> None:
        await noted.has("started one")
        if way == "stdio":
            clock_of_the_way.jump(60)

    async with reached(way, noted.seen, noted.path, timeout_s=60) as tools, trio.open_nursery() as nursery:
        nursery.start_soon(let_time_pass)
        (late,) = await responses(tools, call("forever", name="one"))
        assert late["error"]["type"] == "ToolTimeoutError"
        await noted.has("cancelled one")
        assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["in process", "stdio", "http"])
async def test_a_server_that_never_greets_is_an_error(way: str, clock_of_the_way: trio.testing.MockClock) -> None:
    """
    A process that reads nothing, an address where nobody answers, and a silent transport cost `connect_timeout_s`.
    """
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target: Any = {
            "in process": _silent,
            "stdio": StdioServer(sys.executable, ["-S", "-E", "-c", "import time; time.sleep(60)"]),
            "http": f"http://127.0.0.1:{silent.getsockname()[1]}/mcp",
        }[way]
        async with McpToolset(target, connect_timeout_s=0.3) as tools:
            with pytest.raises(McpConnectionError, match=r"connect_timeout_s=0\.3 seconds"):
                await tools.get_tools()


@asynccontextmanager
async def _silent() -> AsyncGenerator[Any, None]:
    """A transport on which nothing ever comes."""
    to_client, read = anyio.create_memory_object_stream[Any](1)
    write, from_client = anyio.create_memory_object_stream[Any](100)
    with to_client, read, write, from_client:
        yield read, write


async def test_a_lost_call_is_made_again_only_if_a_retry_says_so(tmp_path: Path) -> None:
    """
    A call whose server was lost is made again by `retry=`, in a new process of the server; without it nobody does.
    """
    retry = RetryConfig(max_attempts=3, initial_delay=0.0, jitter=0.0)
    for number, (given, expected) in enumerate(((None, "error"), (retry, "result"))):
        async with McpToolset(stdio("kinds"), retry=given, tool_filter=["dies_once"]) as tools:
            (answer,) = await responses(tools, call("dies_once", note=str(tmp_path / str(number))))
        assert list(answer) == [expected]


async def test_a_server_that_goes_in_the_middle_of_calls_is_one_error_for_each() -> None:
    """
    When a server behind a URL is shut down, each call that goes on is told so, and nothing is a group; when it is back,
    so are its tools.
    """
    seen = kinds.Seen()
    model = ScriptedLlm([[call("forever", name="a"), call("forever", name="b")], "Gone."])
    with trio.fail_after(30):
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(_serving(kinds.made(seen)))
            tools = await stack.enter_async_context(McpToolset(server.url))
            runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
            async with runner.run_async(**PLACE, new_message="go") as run, trio.open_nursery() as nursery:
                nursery.start_soon(_end_when_both, seen, server)
                events = [event async for event in run]
            async with served_at(kinds.made(), int(server.url.split(":")[2].split("/")[0])):
                assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]
    found = [each.response["error"]["type"] for event in events for each in event.get_function_responses()]
    assert found == ["McpConnectionError", "McpConnectionError"]
    assert events[-1].text == "Gone."


async def _end_when_both(seen: kinds.Seen, server: Serving) -> None:
    while len(seen.started) < 2:  # noqa: ASYNC110 # what the server counts
        await trio.sleep(0.01)
    server.scope.cancel()


class Serving:
    """A server that can be ended at once, connections and all."""

    def __init__(self) -> None:
        self.url = ""
        self.scope = trio.CancelScope()


@asynccontextmanager
async def _serving(server: MCPServer) -> AsyncGenerator[Serving, None]:
    serving, up = Serving(), trio.Event()

    async def live() -> None:
        with serving.scope:
            async with served(server) as serving.url:
                up.set()
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await up.wait()
        yield serving
        serving.scope.cancel()


@pytest.mark.usefixtures("impatient")
async def test_a_toolset_that_is_left_leaves_no_process(tmp_path: Path) -> None:
    """
    When the block is left, cancelled or not, the server's process has ended.
    """
    note = tmp_path / "pid"
    code = f"import os; open({str(note)!r}, 'w').write(str(os.getpid())); import time; time.sleep(60)"

    async def use() -> None:
        async with McpToolset(StdioServer(sys.executable, ["-c", code])) as tools:
            await tools.get_tools()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use)
            while not (note.exists() and note.read_text()):  # noqa: ASYNC110 # it is another process that writes it
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


async def test_what_the_block_raises_leaves_as_it_is() -> None:
    """
    An exception of the block is in no group, whatever the connection does.
    """
    with pytest.raises(ValueError, match="mine"):
        async with McpToolset(kinds.made()) as tools:
            await tools.get_tools()
            raise ValueError("mine")


# --- entering ---------------------------------------------------------------------------------------------------------


async def test_a_toolset_that_was_not_entered_is_refused() -> None:
    """
    The message says what to write; entering or leaving it twice is refused, too; after it was left, it may be entered.
    """
    tools = McpToolset(kinds.made())
    with pytest.raises(ConfigurationError, match="write `async with McpToolset"):
        await tools.get_tools()
    for _ in range(2):
        async with tools:
            assert await tools.get_tools()
            with pytest.raises(ConfigurationError, match="once at a time"):
                async with tools:
                    pass
        with pytest.raises(ConfigurationError, match="was left"):
            await tools.__aexit__(None, None, None)


async def test_run_once_enters_what_nobody_has_entered() -> None:
    """
    `run_once` enters the toolsets of the agent, and leaves alone one that is entered.
    """
    tools = McpToolset(kinds.made())
    agent = adder(tools)
    assert (await run_once(agent, "go")).text == "3"
    assert not tools.is_entered
    async with tools:
        assert (await run_once(agent, "go")).text == "3"
        assert tools.is_entered


def test_run_sync_and_the_bridge_enter_toolsets() -> None:
    """
    A synchronous program, and one with a bridge, enter nothing themselves.
    """
    from minirun.bridge import AsyncioBridge

    tools = McpToolset(kinds.made())
    assert not tools.is_entered
    agent = adder(tools)
    assert run_sync(agent, "go").text == "3"
    with AsyncioBridge(InMemoryRunner(agent=agent, auto_create_session=True)) as chat:
        for session in ("a", "b"):
            events = list(chat.run(user_id="u", session_id=session, new_message="go"))
            assert events[-1].text == "3"


def test_two_bridges_and_two_synchronous_runs_share_a_toolset() -> None:
    """
    Each has a `trio.run` of its own, in its own thread, and in it a connection of its own; both go on at once.
    """
    from minirun.bridge import AsyncioBridge

    tools = McpToolset(lambda: older.transport(older.made(lambda line: None)))
    both = threading.Barrier(2, timeout=120)

    def answer(request: Any) -> Any:
        last = request.contents[-1].parts[-1].function_response
        both.wait()  # neither goes on before the other is as far
        return call("add", a=1, b=2) if last is None else str(last.response["result"])

    agent = LlmAgent(name="clerk", model=ScriptedLlm(answer), tools=[tools])

    def by_bridge() -> str:
        with AsyncioBridge(InMemoryRunner(agent=agent, auto_create_session=True)) as chat:
            return list(chat.run(user_id="u", session_id="s", new_message="go"))[-1].text

    with ThreadPoolExecutor(2) as threads:
        for work in (by_bridge, lambda: run_sync(agent, "go").text):
            found = [threads.submit(work) for _ in range(2)]
            assert [each.result(timeout=120) for each in found] == ["3", "3"]
    assert not tools._entries


def adder(tools: McpToolset) -> LlmAgent:
    """An agent that adds 1 and 2, and says the sum."""

    def answer(request: Any) -> Any:
        last = request.contents[-1].parts[-1].function_response
        return call("add", a=1, b=2) if last is None else str(last.response["result"])

    return LlmAgent(name="clerk", model=ScriptedLlm(answer), tools=[tools])


# --- lists ------------------------------------------------------------------------------------------------------------


class Lister(LowLevelServer[Any]):
    """A server that lists what it is given, and counts how often it is asked."""

    def __init__(self, tools: list[types.Tool], **options: Any) -> None:
        self.tools, self.asked = tools, 0
        super().__init__("lister", on_list_tools=self._list, on_call_tool=self._call, **options)

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        self.asked += 1
        return types.ListToolsResult(tools=list(self.tools))

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=f"called {params.name}")])


def tool(name: str, description: str = "", schema: Any = None, **more: Any) -> types.Tool:
    return types.Tool(name=name, description=description, input_schema=schema or {"type": "object"}, **more)


async def test_a_list_is_kept_as_long_as_the_server_says(autojump_clock: trio.testing.MockClock) -> None:
    """
    `ttl_ms` is how long, on trio's clock; a server that says 0 is asked each time.
    """
    for ttl_ms, expected in ((0, 3), (60_000, 2)):
        server = Lister([tool("a")], cache_hints={"tools/list": CacheHint(ttl_ms=ttl_ms)})
        async with McpToolset(server) as tools:
            await tools.get_tools()
            await tools.get_tools()
            await trio.sleep(61)
            await tools.get_tools()
        assert server.asked == expected


@WAYS
async def test_a_change_that_is_told_drops_the_list(way: str) -> None:
    """
    A server that tells of a change is asked again, although its list was to be kept.
    """
    server = kinds.made(cache_hints={"tools/list": CacheHint(ttl_ms=3_600_000)})
    async with served(server) if way == "http" else _nothing() as url:
        target: Any = {"stdio": stdio("kinds"), "http": url, "in process": server}[way]
        async with McpToolset(target, tool_filter=["grows", "grown"]) as tools:
            assert [each.name for each in await tools.get_tools_with_prefix()] == ["grows"]
            await responses(tools, call("grows"))
            with trio.fail_after(30):
                names: list[str] = []
                while names != ["grown", "grows"]:
                    names = [each.name for each in await tools.get_tools_with_prefix()]
                    await trio.sleep(0.01)


async def test_a_change_before_the_server_was_listened_to_drops_the_list() -> None:
    """
    A list that was read while the server was not listened to yet is read again once it is, although it was to be kept.
    """
    late, listen = trio.Event(), ListenHandler(InMemorySubscriptionBus())

    async def listened(ctx: Any, params: Any) -> Any:
        await late.wait()
        return await listen(ctx, params)

    hints = {"tools/list": CacheHint(ttl_ms=3_600_000)}
    server = Lister([tool("a")], cache_hints=hints, on_subscriptions_listen=listened)
    async with McpToolset(server) as tools:
        assert [each.name for each in await tools.get_tools()] == ["a"]
        server.tools.append(tool("b"))  # it tells nobody, as nobody listens
        late.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [each.name for each in await tools.get_tools()] == ["a", "b"]


@asynccontextmanager
async def _nothing() -> AsyncGenerator[str, None]:
    yield ""


async def test_tools_that_stay_are_the_same_objects() -> None:
    """
    A tool keeps its object, and with it its limits, as long as the server says the same of it.
    """
    server = Lister([tool("a"), tool("b")])
    async with McpToolset(server) as tools:
        first = {each.name: each for each in await tools.get_tools()}
        server.tools = [tool("a"), tool("b", "changed")]
        second = {each.name: each for each in await tools.get_tools()}
    assert first["a"] is second["a"]
    assert first["b"] is not second["b"]


async def test_filter_prefix_and_confirmation_by_name() -> None:
    """
    Names choose tools and those that need permission; the prefix stands before them for the model.
    """
    server = Lister([tool("read"), tool("delete"), tool("other")])
    options: Any = {"tool_filter": ["read", "delete"], "tool_name_prefix": "disk", "require_confirmation": ["delete"]}
    async with McpToolset(server, **options) as tools:
        found = {each.name: each for each in await tools.get_tools_with_prefix()}
        assert sorted(found) == ["disk_delete", "disk_read"]
        model = ScriptedLlm([call("disk_delete"), "Done."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        (question,) = run.pending
        assert (question.kind, question.tool) == ("confirmation", "disk_delete")
        async with runner.run_async(**PLACE, new_message=question.reply(True)) as run:
            events = [event async for event in run]
        assert events[0].get_function_responses()[0].response == {"result": "called delete"}


async def test_a_permission_for_a_tool_of_a_server_is_remembered_until_it_is_taken_back() -> None:
    """
    The next call of the tool asks nobody, also of a restarted server; what was forgotten is asked for again.
    """
    model, sessions = ScriptedLlm([call("delete"), "Done."] * 3), InMemorySessionService()

    async def ask(message: Any) -> tuple[Runner, Any]:
        async with McpToolset(Lister([tool("delete")]), require_confirmation=True) as tools:
            agent = LlmAgent(name="clerk", model=model, tools=[tools])
            runner = Runner(app_name="app", agent=agent, session_service=sessions, auto_create_session=True)
            async with runner.run_async(**PLACE, new_message=message) as run:
                await run.wait()
        return runner, run.pending

    _, (question,) = await ask("go")
    _, pending = await ask(question.reply(True, remember="session"))
    assert not pending
    runner, pending = await ask("again")
    assert not pending
    (remembered,) = await runner.remembered.list(**PLACE)
    await runner.remembered.forget(remembered, **PLACE)
    _, (question,) = await ask("once more")
    assert question.tool == "delete"


@WAYS
async def test_hostile_names_and_descriptions_are_made_harmless(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    A name that cannot be one is left out and told of, cleaned; two of one name are the first; a description is cut.
    """
    server: Any = hostile.made()
    async with served(server) if way == "http" else _nothing() as url:
        command = stdio("hostile")
        target: Any = {"stdio": command, "http": url, "in process": server}[way]
        async with McpToolset(target) as tools:
            with caplog.at_level(logging.WARNING, "minirun"):
                found = {each.name: each for each in await tools.get_tools()}
                await tools.get_tools()
                (answer,) = await responses(tools, call("twice"))
    assert sorted(found) == ["_9lives", "files_read", "long", "twice"]
    assert found["files_read"].description == "first\\x1b[2J\\u202etxt"
    assert found["twice"].description == "first"
    assert len(found["long"].description) < 10_100
    assert "\x1b" not in answer["error"]["message"]
    records = [each for each in caplog.records if each.name == "minirun" and each.levelno == logging.WARNING]
    assert len(records) == 1
    assert "\x1b" not in records[0].getMessage()
    assert "evil\\x1b[2J" in records[0].getMessage().replace("\\\\", "\\")


async def test_a_server_cannot_end_runs_with_long_names() -> None:
    """
    A name that is too long with the prefix is left out, instead of ending each run.
    """
    async with McpToolset(Lister([tool("a" * 64), tool("b")]), tool_name_prefix="disk") as tools:
        assert [each.name for each in await tools.get_tools_with_prefix()] == ["disk_b"]


# --- limits -----------------------------------------------------------------------------------------------------------


@WAYS
async def test_a_large_result_is_an_error_with_the_limit(way: str) -> None:
    """
    What is larger than `result_bytes_max` is not cut: the model is told to ask for less.
    """
    async with reached(way, result_bytes_max=1_000) as tools:
        fits, large = await responses(tools, call("large", size=900), call("large", size=1_001))
    assert fits == {"result": "x" * 900}
    assert "ask for less at once" in large["error"]["message"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_server_that_floods_is_left(way: str) -> None:
    """
    A message larger than `message_bytes_max` ends the connection, which the next call makes anew; it is not read on.
    """
    async with reached(way, message_bytes_max=100_000) as tools:
        (large,) = await responses(tools, call("large", size=5_000_000))
        assert large["error"]["type"] in ("McpConnectionError", "McpError")
        assert await responses(tools, call("add", a=1, b=1)) == [{"result": 2}]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_message_of_very_many_values_is_not_parsed(way: str) -> None:
    """
    A message can be short enough and take a gigabyte as objects. The call ends with an error; the next one is answered.
    """
    async with reached(way) as tools:
        (many,) = await responses(tools, call("blocks", count=70_000))
        assert many["error"]["type"] == "McpConnectionError"
        assert "more than 200000 values" in many["error"]["message"]
        assert await responses(tools, call("blocks", count=1_000)) == [{"result": "\n" * 999}]


@pytest.mark.usefixtures("impatient")
async def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    """
    A process that writes for ever and never ends a line is ended, and the error says why.
    """
    code = "import sys\nwhile True: sys.stdout.write('x' * 10000)"
    async with McpToolset(StdioServer(sys.executable, ["-c", code]), message_bytes_max=1_000_000) as tools:
        with pytest.raises(McpConnectionError, match="more than 1000000 bytes"):
            await tools.get_tools()


@WAYS
async def test_a_flood_of_progress_costs_little(way: str) -> None:
    """
    Of progress that comes faster than anybody reads, some is dropped; each message is short.
    """
    async with reached(way) as tools:
        model = ScriptedLlm([call("floods", count=500), "Done."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]))
        events = await runner.run_debug("go", quiet=True)
    told = [event.custom_metadata["progress"]["message"] for event in events if event.partial and event.custom_metadata]
    assert 0 < len(told) <= 500
    assert max(map(len, told)) < 600


# --- resources, prompts, roots, sampling ------------------------------------------------------------------------------


@WAYS
async def test_resources_are_listed_and_loaded_by_a_tool(way: str) -> None:
    """
    `load_mcp_resource` without a URI lists, with one it loads a text or media; one that is not there is an error.
    """
    async with reached(way, resources=True) as tools:
        listed, text, missing = await responses(
            tools, call("load_mcp_resource"), call("load_mcp_resource", uri="note://shopping"),
            call("load_mcp_resource", uri="note://none"),
        )  # fmt: skip
        pixel = await first_parts(tools, call("load_mcp_resource", uri="pixel://one"))
    assert {each["uri"] for each in listed["result"]} == {"note://shopping", "pixel://one"}
    assert text == {"result": "Milk."}
    assert missing["error"]["type"] == "McpError"
    assert pixel.parts[0].inline_data.mime_type == "image/png"


@WAYS
async def test_a_prompt_is_an_instruction(way: str) -> None:
    """
    The text of a prompt is the instruction as it is: what stands in braces is not filled in from the state.
    """
    model = ScriptedLlm(["Ciao."])
    async with reached(way) as tools:
        instruction = tools.instruction("style", language="Italian")
        agent = LlmAgent(name="clerk", model=model, instruction=instruction, tools=[tools])
        await InMemoryRunner(agent=agent).run_debug("go", quiet=True)
        with pytest.raises(McpError, match="has refused the prompt 'none'"):
            await tools.prompt("none")
    assert "Speak Italian, briefly. Do not read {secrets}." in (model.requests[0].config.system_instruction or "")


def sampler() -> Any:
    """A server whose tools ask a model, and for roots."""
    from ..mcp_servers.asking import made

    return made()


async def test_sampling_is_asked_of_the_agents_own_model_and_counted() -> None:
    """
    The server gets an answer of the model of the agent that called it, told nothing of the conversation.
    """
    model = ScriptedLlm([call("summary", text="long story {secret}"), "short story", "Done."])
    async with McpToolset(sampler(), sampling=True) as tools:
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="private words") as run:
            events = [event async for event in run]
    asked = model.requests[1]
    assert "private words" not in str(asked.contents)
    assert "long story {secret}" in str(asked.contents)
    assert "Be brief." in (asked.config.system_instruction or "")
    assert not asked.config.tools
    found = [each for event in events for each in event.get_function_responses()]
    assert [each.response for each in found if each.name == "summary"] == [{"result": "short story"}]
    with pytest.raises(LlmCallsLimitExceededError):
        async with McpToolset(sampler(), sampling=True) as tools:
            model = ScriptedLlm([call("summary", text="x"), "y", "Done."])
            runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
            async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(max_llm_calls=1)) as run:
                await run.wait()


async def test_sampling_is_off_unless_it_is_allowed() -> None:
    """
    Without `sampling=True` the server is told that nobody samples, and no model is asked.
    """
    model = ScriptedLlm([call("summary", text="x"), "Done."])
    async with McpToolset(sampler()) as tools:
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]))
        events = await runner.run_debug("go", quiet=True)
    (answer,) = [found.response for event in events for found in event.get_function_responses()]
    assert "error" in answer
    assert len(model.requests) == 2


async def test_roots_are_the_applications() -> None:
    """
    The server is told the folders that the application gives, and none else.
    """
    async with McpToolset(sampler(), roots=["file:///srv/data"]) as tools:
        assert await responses(tools, call("where")) == [{"result": "file:///srv/data"}]


# --- headers ----------------------------------------------------------------------------------------------------------


async def test_headers_are_made_for_each_request_and_renewed_once() -> None:
    """
    A function gives the headers; after a 401 it is asked to renew them, once, and the call is made again.
    """
    asked: list[tuple[bool, bool]] = []
    tokens = ["old"]

    async def headers(context: Any, *, refresh: bool) -> dict[str, str]:
        asked.append((hasattr(context, "function_call_id"), refresh))
        if refresh:
            tokens[0] = "new"
        return {"authorization": f"Bearer {tokens[0]}"}

    wanted = ["old"]
    async with guarded(kinds.made(), wanted) as url, McpToolset(url, headers=headers) as tools:
        await tools.get_tools()
        wanted[0] = "new"
        found = await responses(tools, call("add", a=1, b=2))
        assert found == [{"result": 3}]
        assert any(refresh for _, refresh in asked)
        wanted[0] = "another"
        with pytest.raises(McpError, match="status 401"):
            await tools.get_tools()


async def test_headers_that_are_refused_fail_those_alone_who_have_them() -> None:
    """
    While a connection is made several users may wait for it: one with a revoked token does not fail another's run.
    """
    user: ContextVar[str] = ContextVar("user")
    found: list[tuple[str, bool]] = []

    async def list_tools(tools: McpToolset, token: str) -> None:
        user.set(token)
        try:
            found.append((token, bool(await tools.get_tools())))
        except McpAuthenticationError:
            found.append((token, False))

    def headers(context: Any, *, refresh: bool) -> dict[str, str]:
        return {"authorization": f"Bearer {user.get()}"}

    async with guarded(kinds.made(), ["open"]) as url, McpToolset(url, headers=headers) as tools:
        async with trio.open_nursery() as nursery:
            for token in ("revoked", "revoked", "another", "open"):
                nursery.start_soon(list_tools, tools, token)
                await trio.lowlevel.checkpoint()  # so that they wait in this order
    assert sorted(found) == [("another", False), ("open", True), ("revoked", False), ("revoked", False)]


async def test_headers_may_ask_a_person_in_a_call() -> None:
    """
    What the headers of a call wait for pauses the invocation; the call is made once there is an answer.
    """

    async def headers(context: Any, *, refresh: bool) -> dict[str, str]:
        word = await context.request_input("The word?") if hasattr(context, "request_input") else "open"
        return {"authorization": f"Bearer {word}"}

    wanted = ["open"]
    async with guarded(kinds.made(), wanted) as url, McpToolset(url, headers=headers) as tools:
        model = ScriptedLlm([call("add", a=1, b=2), "Done."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[tools]), auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert [question.hint for question in run.pending] == ["The word?"]
        async with runner.run_async(**PLACE, new_message=run.pending[0].reply("open")) as run:
            events = [event async for event in run]
        assert [each.response for each in events[0].get_function_responses()] == [{"result": 3}]


@asynccontextmanager
async def guarded(server: MCPServer, wanted: list[str]) -> AsyncGenerator[str, None]:
    """A server behind a check of the token."""
    inner: Any = server.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != f"Bearer {wanted[0]}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await inner(scope, receive, send)

    class Behind:
        def streamable_http_app(self) -> Any:
            return app

    async with served(Behind()) as url:  # type: ignore[arg-type]  # it has what is asked of it
        yield url


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected one server"),
        ({"server": "ftp://host/"}, "expected the URL"),
        ({"server": "https://host:mcp/"}, "expected the URL"),
        ({"server": "https://host/a\nb"}, "expected the URL"),
        ({"server": "https://user:hunter2@host/"}, "expected the URL"),
        ({"server": 3}, "expected a StdioServer"),
        ({"server": StdioServer("x"), "headers": {"a": "b"}}, "expected headers= for the URL"),
        ({"server": "http://h/", "headers": {"a": "b\r\nc: d"}}, "expected the header 'a'"),
        ({"server": "http://h/", "headers": {"a b": "c"}}, "expected the name of a header"),
        ({"server": "http://h/", "timeout_s": 0}, "expected timeout_s"),
        ({"server": "http://h/", "connect_timeout_s": -1}, "expected connect_timeout_s"),
        ({"server": "http://h/", "result_bytes_max": 0}, "expected result_bytes_max"),
        ({"server": "http://h/", "message_bytes_max": True}, "expected message_bytes_max"),
        ({"server": "http://h/", "sampling": 1}, "expected sampling"),
        ({"server": "http://h/", "resources": "yes"}, "expected resources"),
        ({"server": "http://h/", "roots": "file:///"}, "expected roots"),
        ({"server": "http://h/", "roots": ["https://x"]}, "expected a root"),
        ({"server": "http://h/", "require_confirmation": [3]}, "expected require_confirmation"),
        ({"server": "http://h/", "require_confirmation": ["delete", 3]}, "expected require_confirmation"),
        ({"server": "http://h/", "require_confirmation": "delete"}, "expected require_confirmation"),
        ({"server": "http://h/", "require_confirmation": 3}, "expected require_confirmation"),
        ({"server": "http://h/", "on_interrupted": "no"}, "expected on_interrupted"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    """
    What makes no sense is refused where the toolset is made, without showing a secret.
    """
    with pytest.raises(ConfigurationError, match=message) as caught:
        McpToolset(**arguments)
    assert "hunter2" not in str(caught.value)


def test_a_stdio_server_is_checked_and_shows_no_environment() -> None:
    """
    Its command and arguments are texts; its `repr` has no variable in it.
    """
    assert "hunter2" not in repr(StdioServer("x", env={"KEY": "hunter2"}))
    for bad in (
        {"command": ""},
        {"command": "x", "args": "y"},
        {"command": "x", "args": [3]},
        {"command": "x", "env": 3},
    ):
        with pytest.raises(ConfigurationError, match=r"^StdioServer\."):
            StdioServer(**bad)


def test_adks_words_are_read() -> None:
    """
    ADK's connection parameters say the same as a StdioServer and a URL with headers; what has no effect here is refused
    by name, with what to write.
    """
    from mcp import StdioServerParameters

    from minirun.tools.mcp import StdioConnectionParams, StreamableHTTPConnectionParams

    for name, advice in (("header_provider", "headers="), ("auth_scheme", "request_credential"), ("errlog", "words")):
        with pytest.raises(NotSupportedError, match=f"{name}=.*{advice}"):
            McpToolset("http://h/", **cast("dict[str, Any]", {name: print}))
    with pytest.raises(TypeError, match="unexpected keyword argument 'tool_filters'"):
        McpToolset("http://h/", tool_filters=[])
    with pytest.raises(NotSupportedError, match=r"sse_read_timeout=.*timeout_s="):
        StreamableHTTPConnectionParams("http://h/", sse_read_timeout=3)
    params = StdioServerParameters(command="uvx", args=["server"])
    assert McpToolset(connection_params=StdioConnectionParams(params, timeout=5)).label == "uvx"
    assert McpToolset(connection_params=StreamableHTTPConnectionParams("http://h:1/mcp", {"a": "b"})).label == "h:1/mcp"
