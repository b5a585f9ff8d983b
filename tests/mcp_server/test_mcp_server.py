"""
Agents that are served to MCP clients: the official client and `McpToolset`, in process, over stdio and over HTTP.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.request_state import AESGCMRequestStateCodec
from starlette.applications import Starlette
from starlette.routing import Mount

from minirun import Event, InMemoryRunner, InMemorySessionService, LlmAgent, RunConfig, Runner, SqliteSessionService
from minirun.env import Env
from minirun.errors import ConfigurationError, InvalidValueError, ServiceClosedError, ServiceInUseError
from minirun.mcp_server import BearerTokens, McpAgentServer
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset

from .. import mcp_served
from ..helpers import PLACE, runner_for
from ..mcp_served import Desk
from ..notes import Notes

# The official package leaves the stream of a response as it has its answer; the garbage collector closes it.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

KEY = b"k" * 32
ADA, BOB = "token-of-ada-0123456789", "token-of-bob-0123456789"
USERS = {ADA: "ada", BOB: "bob"}


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Where agents note what they do."""
    monkeypatch.setattr(mcp_served, "WORLD", tmp_path / "world.log")
    monkeypatch.setattr(mcp_served, "FATE", tmp_path / "fate")
    return Notes(tmp_path / "world.log")


def desk_runner(service: Any = None) -> Runner:
    """The desk, over a service."""
    return Runner(
        agent=Desk(name="desk"),
        app_name="desk",
        session_service=InMemorySessionService() if service is None else service,
        auto_create_session=True,
    )


def desk(service: Any = None, **options: Any) -> McpAgentServer:
    """The desk, served."""
    return McpAgentServer([desk_runner(service)], **{"keys": [KEY], **options})


@asynccontextmanager
async def at_url(app: Any) -> AsyncGenerator[str, None]:
    """The address at which an ASGI application is served by hypercorn on trio."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = config.accesslog = None
    config.graceful_timeout = 0.2
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(
            lambda task_status: serve(app, config, shutdown_trigger=over.wait, task_status=task_status)
        )
        try:
            yield urls[0]
        finally:
            over.set()


def http_client(token: str) -> httpx2.AsyncClient:
    """A client that shows a token."""
    return httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=120, trust_env=False)


class Person:
    """Answers what is asked, in turn, and remembers the questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return types.ElicitResult(action=answer)  # type: ignore[arg-type]
        return types.ElicitResult(action="accept", content=answer)


@asynccontextmanager
async def connected(way: str, server: McpAgentServer, **options: Any) -> AsyncGenerator[Client, None]:
    """The official client, on one of the ways to a server in this process."""
    if way == "http":
        async with at_url(server.asgi_app(authenticate=BearerTokens(USERS))) as url:
            async with http_client(ADA) as http:
                async with Client(streamable_http_client(f"{url}/mcp", http_client=http), **options) as client:
                    yield client
    else:
        async with Client(server.protocol_server, **options) as client:
            yield client


WAYS = pytest.mark.parametrize("way", ["in process", "http"])


def said(result: types.CallToolResult) -> str:
    """The text of a result."""
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


# --- calls ------------------------------------------------------------------------------------------------------------


@WAYS
async def test_an_agent_is_a_tool(way: str) -> None:
    """
    A client lists it, calls it, and goes on with the conversation by the id that is in the result.
    """
    async with connected(way, desk()) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "desk"
        assert tool.input_schema["required"] == ["message"]
        first = await client.call_tool("desk", {"message": "who"})
        assert first.structured_content is not None
        user, session_id = ("ada" if way == "http" else "local"), first.structured_content["session_id"]
        assert first.structured_content == {"answer": f"{user} for the 1.", "session_id": session_id}
        again = await client.call_tool("desk", {"message": "who", "session_id": session_id})
        assert said(again) == f"{user} for the 2."
        other = await client.call_tool("desk", {"message": "who"})
        assert said(other) == f"{user} for the 1."


@WAYS
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_pause_is_answered_by_the_clients_person(way: str, mode: Any, world: Notes) -> None:
    """
    What an agent asks is asked by clients of both protocols, and nothing is done twice.
    """
    person = Person({"answer": 3})
    async with connected(way, desk(), mode=mode, elicitation_callback=person) as client:
        result = await client.call_tool("desk", {"message": "book Rome"})
    assert said(result) == "3 nights in Rome"
    assert person.asked == ["How many nights in Rome?"]
    assert world.lines() == ["asked Rome", "booked Rome for 3"]


async def test_what_does_not_fit_is_asked_again() -> None:
    """
    A form lets more through than the question: the person is told what was wrong with the answer.
    """
    person = Person({"answer": "[1, 2]"}, {"answer": '{"at": ["x"]}'}, {"answer": '{"at": [1, 2]}'})
    async with connected("in process", desk(), elicitation_callback=person) as client:
        result = await client.call_tool("desk", {"message": "deep"})
    assert said(result) == "{'at': [1, 2]}"
    assert ["did not fit" in asked for asked in person.asked] == [False, True, True]


async def test_several_questions_come_one_after_the_other() -> None:
    """
    Each round has a state of its own, until the agent has what it needs.
    """
    person = Person({"answer": "one"}, {"answer": "two"})
    async with connected("in process", desk(), elicitation_callback=person) as client:
        assert said(await client.call_tool("desk", {"message": "twice"})) == "one and two"


@pytest.mark.parametrize("action", ["cancel", "decline"])
async def test_an_answer_that_is_not_given_leaves_the_question_open(action: str) -> None:
    """
    The client is told, and somebody may answer later, from wherever.
    """
    service = InMemorySessionService()
    async with connected("in process", desk(service), elicitation_callback=Person(action)) as client:
        result = await client.call_tool("desk", {"message": "book Rome"})
    assert result.is_error
    assert "still waits" in said(result)
    (pending,) = await service.list_pending(app_name="desk")
    assert pending.hint == "How many nights in Rome?"


async def test_a_client_that_cannot_ask_is_told_what_is_asked() -> None:
    """
    Without elicitation nothing is sent that the client could not read.
    """
    async with connected("in process", desk()) as client:
        result = await client.call_tool("desk", {"message": "book Rome", "session_id": "s"})
    assert result.is_error
    assert "How many nights in Rome?" in said(result)


@WAYS
async def test_progress_is_told(way: str) -> None:
    """
    Fragments of an answer and `ctx.progress` reach a client that asks for them, in their order.
    """
    told: list[tuple[float, str | None]] = []
    all_told = trio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))
        if len(told) == 3:
            all_told.set()

    async with connected(way, desk()) as client:
        result = await client.call_tool("desk", {"message": "a b c"}, progress_callback=report)
        assert said(result) == "you said a b c"
        with trio.fail_after(60):
            await all_told.wait()
    assert sorted(told) == [(1.0, "a"), (2.0, "b"), (3.0, "c")]


async def test_media_go_with_the_answer() -> None:
    """
    Pictures of an answer are pictures of the result.
    """
    async with connected("in process", desk()) as client:
        result = await client.call_tool("desk", {"message": "picture"})
    assert [each.type for each in result.content] == ["text", "image"]


@WAYS
async def test_a_cancelled_call_leaves_the_run(way: str, world: Notes) -> None:
    """
    The agent is cancelled when the client is, and the session can be used at once.
    """
    service = InMemorySessionService()
    async with connected(way, desk(service)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "desk", {"message": "slow", "session_id": "s"})
            await world.has("begun")
            nursery.cancel_scope.cancel()
        await world.has("left")
        again = await client.call_tool("desk", {"message": "who", "session_id": "s"})
        assert "for the 1." in said(again)
    assert [each.status.value for each in await service.list_invocations()] == ["cancelled", "completed"]


@WAYS
async def test_fifty_calls_side_by_side(way: str) -> None:
    """
    Each call gets its own answer, and each conversation is one of its own.
    """
    answers: dict[int, str] = {}
    async with connected(way, desk()) as client:

        async def ask(number: int) -> None:
            answers[number] = said(await client.call_tool("desk", {"message": f"say {number}"}))

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, number)
    assert answers == {number: f"you said say {number}" for number in range(50)}


async def test_what_a_run_fails_with_stays_here(caplog: pytest.LogCaptureFixture) -> None:
    """
    A client is told the type of the error; the log of the process has the rest.
    """
    async with connected("in process", desk()) as client:
        result = await client.call_tool("desk", {"message": "fail"})
    assert result.is_error
    assert said(result) == "The agent has failed (OSError)."
    assert "/secret/path" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "message"),
        ({"message": " "}, "blank"),
        ({"message": 1}, "message"),
        ({"message": "hi", "user_id": "bob"}, "user_id"),
        ({"message": "hi", "session_id": 7}, "session_id"),
        ({"message": "hi", "session_id": "\x1b[31m"}, "session_id"),
        ({"message": "hi", "session_id": "x" * 5000}, "session_id"),
        ({"message": "hi", "session_id": " "}, "session_id"),
    ],
)
async def test_arguments_that_do_not_fit_are_told(arguments: Any, problem: str) -> None:
    """
    A model that calls wrongly is told what is wrong, and nothing is stored.
    """
    service = InMemorySessionService()
    async with connected("in process", desk(service)) as client:
        result = await client.call_tool("desk", arguments)
        assert result.is_error
        assert problem in said(result)
        with pytest.raises(MCPError, match="there are desk"):
            await client.call_tool("other", {"message": "hi"})
    assert await service.list_invocations() == []


class Clock(Env):
    """A clock that is set, and that sleeping moves."""

    time = 1_000_000.0

    def now(self) -> float:
        """The time that was set."""
        return Clock.time

    async def sleep(self, seconds: float) -> None:
        """Move on."""
        Clock.time += seconds
        await trio.lowlevel.checkpoint()


async def test_a_call_waits_for_an_agent_that_sleeps_for_a_while() -> None:
    """
    A short sleep is waited for; of a long one the client is told.
    """
    Clock.time = 1_000_000.0
    async with connected("in process", desk(InMemorySessionService(env=Clock()))) as client:
        assert said(await client.call_tool("desk", {"message": "sleep 1000060"})) == "awake"
        result = await client.call_tool("desk", {"message": "sleep 2000000"})
    assert result.is_error
    assert "sleeps" in said(result)


# --- states -----------------------------------------------------------------------------------------------------------


async def asked(client: Client, arguments: dict[str, Any]) -> types.InputRequiredResult:
    """Call, and return what is asked."""
    result = await client.session.call_tool("desk", arguments, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    return result


async def answered(client: Client, arguments: dict[str, Any], question: types.InputRequiredResult, value: Any) -> Any:
    """Call again, with an answer."""
    answer = types.ElicitResult(action="accept", content={"answer": value})
    return await client.session.call_tool(
        "desk",
        arguments,
        input_responses=dict.fromkeys(question.input_requests or (), answer),
        request_state=question.request_state,
        allow_input_required=True,
    )


async def no_one(context: Any, params: Any) -> types.ElicitResult:
    """A person who is never asked: the test answers."""
    raise AssertionError


ROME = {"message": "book Rome"}


async def test_another_worker_goes_on(tmp_path: Path, world: Notes) -> None:
    """
    A state is opened by any server with the key and the store; an answer that is sent again counts once.
    """
    async with SqliteSessionService(tmp_path / "s.db") as one, SqliteSessionService(tmp_path / "s.db") as two:
        async with Client(desk(one).protocol_server, elicitation_callback=no_one) as client:
            question = await asked(client, ROME)
        async with Client(desk(two, keys=[b"n" * 32, KEY]).protocol_server, elicitation_callback=no_one) as client:
            for _ in range(3):
                assert said(await answered(client, ROME, question, 3)) == "3 nights in Rome"
    assert world.lines() == ["asked Rome", "booked Rome for 3"]


async def test_two_who_answer_at_once_get_one_answer() -> None:
    """
    The first answer counts, and both are told what came of it.
    """
    results: list[str] = []
    async with Client(desk().protocol_server, elicitation_callback=no_one) as client:
        question = await asked(client, ROME)

        async def answer(nights: int) -> None:
            results.append(said(await answered(client, ROME, question, nights)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, 3)
            nursery.start_soon(answer, 4)
    assert len(results) == 2
    assert len({*results}) == 1


async def test_a_state_without_answers_asks_again() -> None:
    """
    A client that has lost the questions gets them again.
    """
    async with Client(desk().protocol_server, elicitation_callback=no_one) as client:
        question = await asked(client, ROME)
        again = await client.session.call_tool(
            "desk", ROME, request_state=question.request_state, allow_input_required=True
        )
    assert isinstance(again, types.InputRequiredResult)
    assert again.input_requests == question.input_requests


async def test_a_state_hides_what_it_holds() -> None:
    """
    Neither the invocation nor the user can be read in it.
    """
    service = InMemorySessionService()
    async with Client(desk(service).protocol_server, elicitation_callback=no_one) as client:
        question = await asked(client, ROME)
    (invocation,) = await service.list_invocations()
    assert question.request_state is not None
    assert invocation.invocation_id not in question.request_state
    assert "local" not in question.request_state


async def test_states_of_strangers_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """
    Forged, of another key, user, tool, message or time: each is refused in the same words, and changes nothing.
    """
    Clock.time = 1_000_000.0
    service = InMemorySessionService(env=Clock())
    server = desk(service)
    async with Client(server.protocol_server, elicitation_callback=no_one) as client:
        question = await asked(client, ROME)
        state = question.request_state
        assert state is not None
        refusals = []

        async def refused(client: Client, arguments: dict[str, Any], state: str) -> None:
            shown = question.model_copy(update={"request_state": state})
            with pytest.raises(MCPError) as found:
                await answered(client, arguments, shown, 3)
            refusals.append((found.value.error.code, found.value.error.message))

        for forged in ("", "v1.", "v1.AAAA", state[:-4], state[:-2] + "AA", "x" * 100_000, "\ud83d\ude00"):
            await refused(client, ROME, forged)
        await refused(client, {"message": "book Oslo"}, state)
        await refused(client, {**ROME, "session_id": "s"}, state)
        for other in (desk(service, keys=[b"x" * 32]), desk(service, user_id="bob")):
            async with Client(other.protocol_server, elicitation_callback=no_one) as stranger:
                await refused(stranger, ROME, state)
        Clock.time += 7 * 24 * 3600 + 1
        await refused(client, ROME, state)
        Clock.time -= 8 * 24 * 3600
        await refused(client, ROME, state)
        Clock.time = 1_000_000.0
        assert said(await answered(client, ROME, question, 2)) == "2 nights in Rome"
    assert {*refusals} == {(types.INVALID_PARAMS, "Invalid or expired requestState")}
    assert state not in caplog.text


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"3", b"{}", b'{"at": 1}', b'{"v": 2, "at": 1}'])
async def test_what_another_program_has_sealed_with_the_key_is_refused(content: bytes) -> None:
    """
    A key may be that of other servers, too: what they have sealed is no state of ours.
    """
    strange = AESGCMRequestStateCodec([b"k" * 32]).seal(content)
    async with Client(desk(keys=[b"k" * 32]).protocol_server, elicitation_callback=no_one) as client:
        question = await asked(client, ROME)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await answered(client, ROME, question.model_copy(update={"request_state": strange}), 3)


# --- minirun on both sides --------------------------------------------------------------------------------------------


@WAYS
async def test_a_toolset_uses_a_served_agent_the_pause_included(way: str, world: Notes) -> None:
    """
    The pause of the one agent is a pause of the other, and each answer goes through both stores.
    """
    service = InMemorySessionService()
    server = desk(service)

    def answer(request: Any) -> Any:
        last = request.contents[-1].parts[-1].function_response
        return call("desk", message="book Rome") if last is None else json.dumps(dict(last.response))

    async def talk(target: Any, **options: Any) -> None:
        tools = McpToolset(target, **options)
        agent = LlmAgent(name="clerk", model=ScriptedLlm(answer), tools=[tools])
        runner = InMemoryRunner(agent=agent, auto_create_session=True)
        async with tools:
            async with runner.run_async(**PLACE, new_message="go") as run:
                await run.wait()
            assert "How many nights in Rome?" in run.pending[0].hint
        async with McpToolset(target, **options) as anew:
            agent = LlmAgent(name="clerk", model=ScriptedLlm(answer), tools=[anew])
            later = Runner(agent=agent, app_name=runner.app_name, session_service=runner.session_service)
            async with later.run_async(**PLACE, new_message=run.pending[0].reply({"answer": 3})) as run:
                await run.wait()
        assert run.answer is not None
        assert json.loads(run.answer.text)["result"]["answer"] == "3 nights in Rome"

    if way == "http":
        async with at_url(server.asgi_app(authenticate=BearerTokens(USERS))) as url:
            await talk(f"{url}/mcp", headers={"authorization": f"Bearer {ADA}"})
    else:
        await talk(server.protocol_server)
    assert world.lines() == ["asked Rome", "booked Rome for 3"]


# --- HTTP -------------------------------------------------------------------------------------------------------------

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
HEADERS = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {ADA}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer wrong-token-of-ada-012"}, 401),
        ({"authorization": f"Basic {ADA}"}, 401),
        ({"authorization": ADA}, 401),
        ({"authorization": f"bearer {BOB}"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8000"}, 421),
        ({"host": "localhost:99999"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8000"}, 403),
        ({"origin": "https://good.example"}, 200),
        ({"content-length": "99999999"}, 413),
    ],
)
async def test_who_may_come_in(headers: dict[str, str], status: int) -> None:
    """
    A token, the right host, and no page of others; whoever is refused is refused before the body is read.
    """
    app = desk().asgi_app(authenticate=BearerTokens(USERS), allowed_origins=["https://good.example"])
    good = {"content-type": "application/json", "host": "localhost", **HEADERS}
    async with app:
        assert await asgi_status(app, {**good, **headers}) == status


async def asgi_status(app: Any, headers: dict[str, str], body: bytes | None = None, more: Any = ()) -> int:
    """The status that a request is answered with, without a server between."""
    pieces = [json.dumps(HELLO).encode()] if body is None else [body]
    given = [(key.encode(), value.encode()) for key, value in headers.items()]
    sent: list[Any] = []

    async def receive() -> Any:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": False}
        await trio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": "",
        "headers": [*given, *more], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    with trio.fail_after(60):
        await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize("name", ["host", "origin", "authorization"])
async def test_a_header_that_comes_twice_is_none(name: str) -> None:
    """
    Of two values nobody knows which one others have looked at.
    """
    good = {"content-type": "application/json", "host": "localhost", "origin": "https://good.example", **HEADERS}
    app = desk().asgi_app(authenticate=BearerTokens(USERS), allowed_origins=["https://good.example"])
    async with app:
        assert await asgi_status(app, good) == 200
        assert await asgi_status(app, good, more=[(name.encode(), good[name].encode())]) in (401, 403, 421)


async def test_a_body_is_bounded_whatever_it_says_of_itself() -> None:
    """
    More than the server takes at once is refused.
    """
    app = desk(message_bytes_max=1000).asgi_app(authenticate=BearerTokens(USERS))
    async with app:
        good = {"content-type": "application/json", "host": "localhost", **HEADERS}
        assert await asgi_status(app, good, body=b" " * 1001) == 413
        assert await asgi_status(app, good, body=b"[" * 1000) in (400, 500)


async def test_one_user_cannot_reach_what_another_has() -> None:
    """
    The same session id is another session; a state and a connection belong to the user who was given them.
    """
    service = InMemorySessionService()
    async with at_url(desk(service).asgi_app(authenticate=BearerTokens(USERS))) as url:

        @asynccontextmanager
        async def client_of(token: str) -> AsyncGenerator[Client, None]:
            async with http_client(token) as http:
                transport = streamable_http_client(f"{url}/mcp", http_client=http)
                async with Client(transport, elicitation_callback=no_one) as client:
                    yield client

        async with client_of(ADA) as ada, client_of(BOB) as bob:
            assert said(await ada.call_tool("desk", {"message": "who", "session_id": "s"})) == "ada for the 1."
            assert said(await bob.call_tool("desk", {"message": "who", "session_id": "s"})) == "bob for the 1."
            question = await asked(ada, ROME)
            with pytest.raises(MCPError, match="requestState"):
                await answered(bob, ROME, question, 3)
            assert said(await answered(ada, ROME, question, 3)) == "3 nights in Rome"
        async with http_client(ADA) as ada_http, http_client(BOB) as bob_http:
            accept = {"accept": HEADERS["accept"], "content-type": "application/json"}
            opened = await ada_http.post(f"{url}/mcp", json=HELLO, headers=accept)
            session = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            stolen = await bob_http.post(f"{url}/mcp", json=ping, headers=session)
            assert stolen.status_code == 404
    users = {(each.user_id, each.session_id) for each in await service.list_invocations() if each.session_id == "s"}
    assert users == {("ada", "s"), ("bob", "s")}


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """
    Neither a good token nor a wrong one is in any record, at any level, nor what shows the tokens.
    """
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(1)
    try:
        tokens = BearerTokens(USERS)
        app = desk().asgi_app(authenticate=tokens)
        headers = {"content-type": "application/json", "host": "localhost", **HEADERS}
        async with app:
            await asgi_status(app, headers)
            await asgi_status(app, {**headers, "authorization": f"Bearer wrong{ADA}"})
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
    assert ADA not in stream.getvalue() + caplog.text + repr(tokens) + str(vars(tokens))


async def test_an_application_that_mounts_it_enters_it() -> None:
    """
    A mounted application is entered by what mounts it, once; who signs people in is its business.
    """
    async def signed_in(scope: Any) -> str | None:
        return "cyd" if (b"x-user", b"cyd") in scope["headers"] else None

    mounted = desk().asgi_app(authenticate=signed_in)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None, None]:
        async with mounted:
            yield

    with pytest.raises(ServiceClosedError, match="async with app"):
        await asgi_status(mounted, {"host": "localhost"})
    async with at_url(Starlette(routes=[Mount("/agents", mounted)], lifespan=lifespan)) as url:
        async with httpx2.AsyncClient(headers={"x-user": "cyd"}, trust_env=False, timeout=120) as http:
            async with Client(streamable_http_client(f"{url}/agents/mcp", http_client=http)) as client:
                assert said(await client.call_tool("desk", {"message": "who"})) == "cyd for the 1."
    with pytest.raises(ServiceInUseError, match="another one"):
        async with mounted:
            pass


# --- what applications give -------------------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused() -> None:
    """
    Each argument is checked when it is given, and no secret is shown.
    """
    runner = desk_runner()
    other = Runner(agent=Desk(name="desk"), app_name="other", session_service=runner.session_service)
    wrong: Any
    options: Any
    for wrong in ([], runner, [other], [runner, runner], "runner"):
        with pytest.raises(ConfigurationError):
            McpAgentServer(wrong)
    for wrong in ([], ["short"], [KEY, KEY], 7, [7], "secret-but-short"):
        with pytest.raises(ConfigurationError) as found:
            McpAgentServer([runner], keys=wrong)
        assert "secret" not in str(found.value)
    for options in ({"name": ""}, {"run_config": 7}, {"state_age_s_max": 0}, {"message_bytes_max": 0}):
        with pytest.raises(ConfigurationError):
            McpAgentServer([runner], **options)
    with pytest.raises(InvalidValueError):
        McpAgentServer([runner], user_id=" ")
    server = McpAgentServer([runner], run_config=RunConfig())
    for options in ({"authenticate": 7}, {"path": "mcp"}, {"allowed_hosts": "localhost"}, {"allowed_origins": [1]}):
        with pytest.raises(ConfigurationError):
            server.asgi_app(**{"authenticate": BearerTokens(USERS), **options})
    users: Any
    for users in ({}, {"short": "ada"}, {ADA + "\n": "ada"}, [ADA]):
        with pytest.raises(ConfigurationError) as found:
            BearerTokens(users)
        assert "short" not in str(found.value)


async def test_each_agent_is_a_tool_of_its_own() -> None:
    """
    Several runners are several tools.
    """

    async def logic(ctx: Any) -> None:
        await ctx.emit(Event(message="I am the other."))

    other = runner_for(logic)
    server = McpAgentServer([desk_runner(), other], keys=[KEY])
    async with Client(server.protocol_server) as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == ["agent", "desk"]
        assert said(await client.call_tool("agent", {"message": "hi"})) == "I am the other."
