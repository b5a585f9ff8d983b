"""
MCP servers that want a user's token: signing in when the tools are listed, renewing, access that was taken away.

The MCP server is made with the official package, and stands with its authorization server on 127.0.0.1. It names that
itself (RFC 9728), and applications register themselves there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `minirun[mcp]` is not installed")

from minirun import InMemorySessionService, LlmAgent, ParallelAgent, Runner  # see above
from minirun._codec import to_json
from minirun.credentials import AuthConfig, AuthScheme, BearerHeaders, InMemoryCredentialService
from minirun.errors import CredentialRefusedError
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset
from minirun.workflow import START, Workflow

from ..asgi import Said, serving
from ..helpers import PLACE
from ..mcp_servers import kinds
from ..oauth_server import CALLBACK, OAuthServer
from .test_mcp import served

# The official package leaves the stream of a response as it has its answer; the garbage collector closes it.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

METADATA = "/.well-known/oauth-protected-resource/mcp"


class Guarded:
    """An MCP server behind a check of the tokens that *server* has issued for it."""

    def __init__(self, server: OAuthServer) -> None:
        self._inner: Any = kinds.made().streamable_http_app()
        self._server = server
        self.url = ""
        self.refused = 0

    def streamable_http_app(self) -> Any:
        return self._app

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        if scope["path"] == METADATA:
            about = {"resource": f"{self.url}/mcp", "authorization_servers": [self._server.issuer]}
            await send_json(send, 200, about)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, more, told = self._server._ask(Said("POST", "/mcp", "", headers, b""))
        if status != 200:
            self.refused += 1
            await send_json(send, status, told, more)
            return
        await self._inner(scope, receive, send)


async def send_json(send: Any, status: int, answer: Any, headers: Any = ()) -> None:
    import json

    named = [(name.encode(), value.encode()) for name, value in dict(headers).items()]
    started = {"type": "http.response.start", "status": status}
    await send({**started, "headers": [(b"content-type", b"application/json"), *named]})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


class Desk:
    """An agent with the tools of the server, as the user of each run."""

    def __init__(self, server: OAuthServer, guarded: Guarded, tools: McpToolset, config: AuthConfig) -> None:
        self.server = server
        self.guarded = guarded
        self.sessions = InMemorySessionService()
        self.credentials = InMemoryCredentialService(env=self.sessions.env)
        self.config = config

        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else [call("add", a=1, b=2), call("add", a=3, b=4)]

        self.runner = self.runner_of(LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[tools]))

    def runner_of(self, root: Any) -> Runner:
        options: dict[str, Any] = {"session_service": self.sessions, "credential_service": self.credentials}
        return Runner(agent=root, app_name="app", auto_create_session=True, **options)

    async def say(self, message: Any = "go") -> Run:
        async with self.runner.run_async(**PLACE, new_message=message) as run:
            await run.wait()
        return run

    async def sign_in(self, run: Run) -> Run:
        """Answer what the run asks, which is one thing."""
        [question] = run.pending
        assert question.auth_config is not None
        back = await self.server.browse(question.auth_config.auth_uri)
        return await self.say(await self.runner.provide_credential(question, back))

    async def results(self) -> list[Any]:
        session = await self.sessions.get_session(app_name="app", **PLACE)
        assert session is not None
        written = "".join(map(to_json, session.events))
        assert not [secret for secret in self.server.secrets if secret in written]
        responses = [each for event in session.events for each in event.get_function_responses()]
        return [dict(each.response) for each in responses if each.name == "add"]


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    server = OAuthServer()
    guarded = Guarded(server)
    async with serving(server), served(guarded) as url:  # type: ignore[arg-type]  # it has what is asked of it
        guarded.url = url.removesuffix("/mcp")
        config = AuthConfig("mcp", auth_scheme=AuthScheme(resource=url, redirect_uri=CALLBACK))
        async with McpToolset(url, headers=BearerHeaders(config)) as tools:
            yield Desk(server, guarded, tools, config)


GOOD = [{"result": 3}, {"result": 7}]


async def test_a_user_signs_in_before_the_tools_are_listed() -> None:
    """The server says nothing to strangers: the run pauses before its model is asked, and goes on with the token."""
    async with desk() as at:
        run = await at.say()
        assert run.status == "paused"
        run = await at.sign_in(run)
        assert run.status == "completed"
        assert await at.results() == GOOD
        assert (await at.say("again")).status == "completed"
        assert at.server.grants == ["authorization_code"]


async def test_a_token_that_the_server_refuses_is_renewed_once() -> None:
    """Two calls side by side are refused: one request for another token, and nobody is asked."""
    async with desk() as at:
        await at.sign_in(await at.say())
        at.server.end_tokens()
        assert (await at.say("again")).status == "completed"
        assert await at.results() == GOOD * 2
        assert at.server.grants == ["authorization_code", "refresh_token"]
        assert at.guarded.refused > 0


async def test_access_that_was_taken_away_pauses_the_run_again() -> None:
    """In a call of a tool; the call is made again with the new token."""
    async with desk() as at:
        await at.sign_in(await at.say())
        at.server.revoke()
        run = await at.say("again")
        assert run.status == "paused"
        run = await at.sign_in(run)
        assert run.status == "completed"
        assert await at.results() == GOOD * 2


async def test_a_node_of_a_workflow_asks_as_an_agent_does() -> None:
    """A toolset in `edges` that cannot be listed without a credential pauses the workflow."""
    async with desk() as at:
        agent: Any = at.runner.app.root_agent

        def which(node_input: str) -> dict[str, Any]:
            return {"name": "add", "args": {"a": 20, "b": 22}}

        at.runner = at.runner_of(Workflow(name="sums", edges=[(START, which, *agent.tools)]))
        run = await at.sign_in(await at.say())
        assert run.status == "completed"
        assert at.server.grants == ["authorization_code"]


async def test_a_user_who_refuses_to_sign_in_ends_the_run() -> None:
    """An agent is never asked without the tools that it was promised; the next run asks again."""
    async with desk() as at:
        [question] = (await at.say()).pending
        with pytest.raises(CredentialRefusedError, match="has refused"):
            await at.say(question.reply(False))
        assert (await at.sign_in(await at.say())).status == "completed"


async def test_two_agents_of_a_run_may_both_ask() -> None:
    """Side by side each has a question of its own; one sign-in is enough for both, and the other question is closed."""
    async with desk() as at:
        agent: Any = at.runner.app.root_agent
        pair = [LlmAgent(name=name, model=ScriptedLlm(agent.model._script), tools=agent.tools) for name in ("a", "b")]
        at.runner = at.runner_of(ParallelAgent(name="both", sub_agents=pair))
        run = await at.say()
        assert len(run.pending) == 2
        first, second = run.pending
        assert first.auth_config is not None
        back = await at.server.browse(first.auth_config.auth_uri)
        run = await at.say(await at.runner.provide_credential(first, back))
        assert (run.status, second.call_id in {each.call_id for each in run.pending}) == ("completed", False)
        assert await at.results() == GOOD * 2
        assert await at.sessions.list_pending(app_name="app") == []
        assert at.server.grants == ["authorization_code"]
