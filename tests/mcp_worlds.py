"""
Worlds with an MCP server in them: messages are late, progress comes in another order, connections drop, and the server
forgets what went on, all by choices. One of them has a server of the older protocol, which asks in the middle of calls.

The server is the official package's, and so is the client inside of `McpToolset`; between them is a network that this
world plays. It is no part of `worlds.WORLDS`, so that only those who name it import the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp import MCPError
from mcp.server import Server
from mcp.shared.message import SessionMessage

from minirun import Event, LlmAgent, Runner
from minirun.errors import InvalidMessageError, McpConnectionError
from minirun.models import LlmRequest
from minirun.simulation import World
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset

from .laws import expect, read_logs

__all__ = ["SERVERS", "servers"]

QUESTIONS = {"size": {"type": "integer"}, "colour": {"type": "string"}}
USERS = ("ada", "bob")
# A user answers so often, and the last answers come when nothing goes wrong any more.
ROUNDS_MAX = 30


class Remote:
    """The server and the network before it."""

    def __init__(self, world: World, is_older: bool) -> None:
        self._world = world
        self._is_older = is_older
        self._requests = 0
        self._started = 0  # of servers: each forgets what those before knew
        self._states: dict[str, dict[str, Any]] = {}
        self._connections: list[trio.CancelScope] = []
        self.is_calm = False
        self.sold: Counter[str] = Counter()

    # --- the server

    def _server(self) -> Server[Any]:
        call = self._call_and_ask if self._is_older else self._call
        return Server("shop", on_list_tools=self._list, on_call_tool=call)

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"item": {"type": "string"}}}
        return types.ListToolsResult(tools=[types.Tool(name="order", input_schema=schema)])

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        item, answers = (params.arguments or {})["item"], params.input_responses or {}
        known: dict[str, Any] = {}
        if params.request_state is not None:
            if params.request_state not in self._states:
                self._world.reached("the server has forgotten")
                raise MCPError(types.INVALID_PARAMS, "Invalid or expired requestState")
            known = dict(self._states[params.request_state])
        known |= {key: each.content for key, each in answers.items() if isinstance(each, types.ElicitResult)}
        self._requests += 1
        request = self._requests
        for step in range(1, 5):
            await ctx.session.report_progress(step, 4, f"{request}")
        missing = next((key for key in QUESTIONS if key not in known), None)
        if missing is not None:
            state = f"{self._started}-{len(self._states)}"
            self._states[state] = known
            fields = {missing: QUESTIONS[missing]}
            form = {"type": "object", "properties": fields, "required": [missing]}
            asked = types.ElicitRequestFormParams(message=f"{missing} of {item}", requested_schema=form)
            requests: Any = {missing: types.ElicitRequest(params=asked)}
            return types.InputRequiredResult(input_requests=requests, request_state=state)
        return self._sold(item, known)

    async def _call_and_ask(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        """The same, by asking in the middle of the call."""
        item, known = (params.arguments or {})["item"], {}
        for asked, field in QUESTIONS.items():
            form = {"type": "object", "properties": {asked: field}, "required": [asked]}
            answer = await ctx.session.elicit_form(f"{asked} of {item}", form, ctx.request_id)
            known[asked] = answer.content
        return self._sold(item, known)

    def _sold(self, item: str, known: dict[str, Any]) -> types.CallToolResult:
        self.sold[item] += 1
        said = f"{item} {known['size']['size']} {known['colour']['colour']}"
        return types.CallToolResult(content=[types.TextContent(text=said)])

    def restart(self) -> None:
        """The server ends, and the next one knows nothing."""
        self._started += 1
        self._states.clear()
        for scope in self._connections:
            scope.cancel()

    # --- the network

    @asynccontextmanager
    async def transport(self) -> AsyncGenerator[Any, None]:
        """One connection to it."""
        to_server, read = anyio.create_memory_object_stream[Any](100)
        write, from_server = anyio.create_memory_object_stream[Any](100)
        to_client, client_read = anyio.create_memory_object_stream[Any](0)
        client_write, from_client = anyio.create_memory_object_stream[Any](0)
        server = self._server()
        scope = trio.CancelScope()

        async def connection() -> None:
            async with to_client:
                with scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(server.run, read, write, server.create_initialization_options())
                        nursery.start_soon(self._pass_on, from_client, to_server, to_client)
                        nursery.start_soon(self._pass_on, from_server, to_client, to_server)

        self._connections.append(scope)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection)
                yield client_read, client_write
                nursery.cancel_scope.cancel()
        finally:
            self._connections.remove(scope)
            for stream in (to_server, read, write, from_server, to_client, client_read, client_write, from_client):
                stream.close()

    async def _pass_on(self, source: Any, target: Any, back: Any) -> None:
        """Pass messages on, late; progress may overtake progress; now and then the connection drops."""
        choices = self._world.choices
        held: list[SessionMessage] = []
        async for message in source:
            method = getattr(message.message, "method", None)
            if method == "server/discover" and self._is_older:  # it has never heard of the newer protocol
                error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
                await back.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.message.id, error=error)))
                continue
            is_progress = method == "notifications/progress"
            if not self.is_calm:
                await self._world.sleep(choices.choose(2, "a message is late"))
                if is_progress and choices.choose(2, "progress is overtaken"):
                    held.append(message)
                    continue
                if not choices.choose(30, "the connection holds") and self._world.faults:
                    self._world.reached("the connection dropped")
                    for scope in self._connections:
                        scope.cancel()
            for each in [message, *reversed(held)] if is_progress else [*reversed(held), message]:
                await target.send(each)
            held.clear()


def _progress(event: Event) -> tuple[str, float] | None:
    """Which request to the server is how far; a call may lead to several."""
    told = (event.custom_metadata or {}).get("progress") if event.partial else None
    return None if told is None or "fraction" not in told else (told["message"], told["fraction"])


async def servers(world: World, is_older: bool = False) -> None:
    """Two users order by a tool of a server that asks each two things, on a bad network; what was answered is known."""
    remote = Remote(world, is_older)

    def script(request: LlmRequest) -> Any:
        last = request.contents[-1].parts[-1]
        if last.function_response is not None:
            return str(dict(last.function_response.response))
        return call("order", item=last.text)

    async with McpToolset(remote.transport, timeout_s=60.0, connect_timeout_s=20.0, on_interrupted="rerun") as tools:
        runner = world.runner(lambda: LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[tools]))

        async def trouble() -> None:
            for _ in range(3):
                await world.sleep(world.choices.choose(8, "until the server is restarted"))
                remote.restart()

        async with trio.open_nursery() as nursery:
            if world.choices.choose(2, "the server is restarted"):
                nursery.start_soon(trouble)
            for user in USERS:
                nursery.start_soon(_order, world, runner, remote, user)
        remote.is_calm = True
        await world.heal()
        await _order(world, runner, remote, "eve")  # who may find that the connection was lost while nobody used it
        for user in USERS:
            await _order(world, runner, remote, f"late-{user}")
    await _check(world, runner, remote)


async def older_servers(world: World) -> None:
    """The same with a server of the older protocol, which asks in the middle of calls."""
    await servers(world, is_older=True)


async def _order(world: World, runner: Runner, remote: Remote, user: str) -> None:
    """Order something, and answer what is asked, until there is an answer."""
    message: Any = user
    shown: dict[str, float] = {}
    for _ in range(ROUNDS_MAX):
        try:
            async with runner.run_async(user_id=user, session_id=user, new_message=message) as run:
                async for event in run:
                    progress = _progress(event)
                    if progress is not None:
                        newest = shown.get(progress[0], 0.0)
                        expect(progress[1] > newest, f"progress {progress[1]} was shown after {newest}")
                        shown[progress[0]] = progress[1]
        except InvalidMessageError:
            pass
        except McpConnectionError:  # the list of the tools, twice
            expect(not remote.is_calm, "nothing goes wrong, and the server cannot be reached")
            return world.reached("a run failed")
        if not run.pending:
            return
        (question,) = run.pending
        shown.clear()
        about = [each for each in QUESTIONS if f": {each} of {user}" in question.hint]
        expect(bool(about), f"{user} was asked for another: {question.hint}")
        message = question.reply({about[0]: 7 if about == ["size"] else "red"})
        await world.sleep(world.choices.choose(4, f"{user} takes time to answer"))
    expect(False, f"{user} was asked {ROUNDS_MAX} times")


async def _check(world: World, runner: Runner, remote: Remote) -> None:
    for (user, _), log in (await read_logs(world, runner)).items():
        asked = [made.args["message"] for event in log for made in event.get_function_calls() if "message" in made.args]
        expect(len(asked) == len({*asked}), f"{user} was asked twice: {asked}")
        answers = [found.response for event in log for found in event.get_function_responses() if found.name == "order"]
        expect(len(answers) <= 1, f"{user} has ordered once, and has {len(answers)} answers")
        if not answers:
            continue
        good = {"result": f"{user} 7 red"}
        is_late = user.startswith("late")
        expect(not is_late or answers == [good], f"nothing went wrong, and {user} was answered {answers}")
        failed = answers[0].get("error", {})
        is_unclear = remote._is_older and "several calls" in failed.get("message", "")
        is_lost = failed.get("type") == "McpConnectionError"
        expect(answers[0] == good or is_lost or is_unclear, f"{user} was answered {answers}")
        if is_lost:
            world.reached("a call was lost")
        if is_unclear:
            world.reached("nobody could tell who is asked")


SERVERS: dict[str, Any] = {
    "servers in memory": (servers, {"faults": ("users",), "storage": "memory", "processes": 1}),
    "older servers in memory": (older_servers, {"faults": ("users",), "storage": "memory", "processes": 1}),
}
"""Worlds with servers, for those who import this."""
