"""
Signing in, and tokens that are renewed: against an authorization server that is as strict as the standards allow.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
import trio.testing

from minirun import App, Env, Event, InMemorySessionService, LlmAgent, Runner
from minirun._codec import to_json
from minirun.agents import InvocationContext
from minirun.credentials import AuthConfig, AuthCredential, AuthScheme, BearerHeaders, InMemoryCredentialService
from minirun.errors import (
    AuthorizationError,
    AuthorizationUnavailableError,
    CredentialRefusedError,
    InvalidMessageError,
    InvalidValueError,
)
from minirun.models import RecordedLlm
from minirun.plugins import DebugLoggingPlugin, LoggingPlugin
from minirun.runtime import Run
from minirun.sessions import PendingCall
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

from ..asgi import serving
from ..helpers import PLACE, Logic
from ..oauth_server import CALLBACK, CLIENT_ID, CLIENT_SECRET, OAuthServer
from ..stores import Clock

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")

CLIENT = AuthCredential("client", client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
KEY = {"app_name": "app", "user_id": PLACE["user_id"], "credential_key": "mail"}


def config_for(server: OAuthServer, **changes: Any) -> AuthConfig:
    scheme = {"issuer": server.issuer, "redirect_uri": CALLBACK, **changes.pop("scheme", {})}
    settings = {"raw_auth_credential": CLIENT, "scopes": ["read", "send"], **changes}
    return AuthConfig("mail", auth_scheme=AuthScheme(**{k: v for k, v in scheme.items() if v}), **settings)


class Desk:
    """An agent with a tool that asks the API, its runner, and the server that users sign in to."""

    def __init__(self, server: OAuthServer, credentials: InMemoryCredentialService, config: AuthConfig) -> None:
        self.server = server
        self.credentials = credentials
        self.config = config
        self.seen: list[str] = []
        self.sessions = InMemorySessionService(env=credentials.env)
        self.runner = self.runner_of(self.ask)

    def runner_of(self, tool: Any) -> Runner:
        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else call(tool.__name__)

        agent = LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[tool])
        return Runner(
            agent=agent,
            app_name="app",
            session_service=self.sessions,
            credential_service=self.credentials,
            auto_create_session=True,
        )

    async def ask(self, tool_context: ToolContext) -> str:
        """Ask the API, once more with another token if it refuses the first."""
        import httpx2

        credential = await tool_context.request_credential(self.config)
        async with httpx2.AsyncClient(trust_env=False, timeout=120) as client:
            for is_last in (False, True):
                headers = {"authorization": f"Bearer {credential.reveal()}"}
                response = await client.get(self.server.api, headers=headers)
                if response.status_code != 401 or is_last:
                    break
                credential = await tool_context.request_credential(self.config, rejected=credential)
        self.seen.append(str(response.status_code))
        return response.text

    async def say(self, message: Any = "go", session: str = "s") -> Run:
        async with self.runner.run_async(user_id=PLACE["user_id"], session_id=session, new_message=message) as run:
            await run.wait()
        return run

    async def events(self, session: str = "s") -> list[Event]:
        found = await self.sessions.get_session(app_name="app", user_id=PLACE["user_id"], session_id=session)
        assert found is not None
        return list(found.events)

    async def kept(self) -> AuthCredential | None:
        return await self.credentials.load_credential(**KEY)

    async def sign_in(self, session: str = "s") -> None:
        """Ask, sign in and answer."""
        run = await self.say(session=session)
        [question] = run.pending
        back = await self.server.browse(uri_of(question))
        run = await self.say(await self.runner.provide_credential(question, back), session=session)
        assert run.status == "completed"


@asynccontextmanager
async def desk(clock: list[float] | None = None, **changes: Any) -> AsyncIterator[Desk]:
    server = OAuthServer()
    async with serving(server):
        env = Env() if clock is None else Clock(clock)
        yield Desk(server, InMemoryCredentialService(env=env), config_for(server, **changes))


def question_of(run: Run) -> PendingCall:
    [question] = run.pending
    assert question.kind == "credential"
    return question


def uri_of(question: PendingCall) -> str:
    assert question.auth_config is not None
    return question.auth_config.auth_uri


# --- signing in -------------------------------------------------------------------------------------------------------


async def test_a_person_signs_in_and_the_tool_goes_on() -> None:
    """The question has the address and the state; what the browser came back with becomes a token of the API."""
    async with desk() as at:
        run = await at.say()
        question = question_of(run)
        assert run.status == "paused"
        assert question.auth_config is not None
        assert question.auth_config.scheme == "oauth2"
        assert f"state={question.auth_config.state}" in question.auth_config.auth_uri
        back = await at.server.browse(uri_of(question))
        run = await at.say(await at.runner.provide_credential(question, back))
        assert run.status == "completed"
        assert at.seen == ["200"]
        assert at.server.grants == ["authorization_code"]
        assert await at.credentials.list_credentials(app_name="app", user_id=PLACE["user_id"]) == ["mail"]


async def test_no_secret_of_signing_in_is_in_the_log() -> None:
    """Neither code, verifier, tokens nor the client's secret stand in an event, though the API repeats its token."""
    async with desk() as at:
        await at.sign_in()
        at.server.end_tokens()
        await at.say()
        written = "".join(map(to_json, await at.events()))
        assert at.seen == ["200", "200"]
        assert len(at.server.secrets) == 7  # the client's, a code, a verifier, two tokens of each kind
        assert not [secret for secret in at.server.secrets if secret in written]
        assert "[secret]" in written


def files_in(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.rglob("*") if path.is_file()]


async def test_no_secret_is_in_spans_records_and_exports(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a run that signs in, is refused, renews and asks again, with every plugin that writes down what it sees."""
    pytest.importorskip("opentelemetry.sdk", reason="the tests of spans need an SDK")
    from ..otel import Recorder

    caplog.set_level(logging.DEBUG)
    recorder = Recorder()
    async with desk() as at:
        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else call("ask")

        model = RecordedLlm(ScriptedLlm(script), tmp_path / "cassette.json", "record")
        plugins = [recorder.plugin(), LoggingPlugin(), DebugLoggingPlugin(tmp_path / "debug.yaml")]
        app = App(name="app", root_agent=LlmAgent(name="clerk", model=model, tools=[at.ask]), plugins=plugins)
        options: dict[str, Any] = {"session_service": at.sessions, "credential_service": at.credentials}
        at.runner = Runner(app=app, auto_create_session=True, **options)
        await at.sign_in()
        at.server.end_tokens()
        await at.say()
        at.server.revoke()
        question = question_of(await at.say())
        back = await at.server.browse(uri_of(question))
        with pytest.raises(InvalidMessageError):
            await at.runner.provide_credential(question, back.replace("state=", "state=x"))
        at.server.denies = True
        await at.say(await at.runner.provide_credential(question, await at.server.browse(uri_of(question))))
        session = await at.sessions.get_session(app_name="app", user_id=PLACE["user_id"], session_id="s")
        assert session is not None
        written = [span.to_json() for span in recorder.spans]
        written += [caplog.text, *capsys.readouterr(), session.to_json(), repr(session), repr(question)]
        written += files_in(tmp_path)
        assert len(recorder.spans) > 10
        assert "call_llm" in "".join(written)
        found = [secret for secret in at.server.secrets for text in written if secret in text]
        assert found == []


async def test_a_code_alone_answers_too() -> None:
    """Whoever cannot be sent back anywhere copies the code."""
    async with desk() as at:
        question = question_of(await at.say())
        back = await at.server.browse(uri_of(question))
        code = back.partition("code=")[2].partition("&")[0]
        run = await at.say(await at.runner.provide_credential(question, code))
        assert (run.status, at.seen) == ("completed", ["200"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda back: back.replace("state=", "state=x"), "another state"),
        (lambda back: back.partition("?")[0] + "?code=abc", "another state"),
        (lambda back: back.replace("iss=", "iss=x"), "another authorization server"),
        (lambda back: back.replace("code=", "kode="), "no code"),
        (lambda back: back.replace("code=", "code=x&code="), "something else"),
        (lambda back: "https://app.example/callback", "something else"),
        (lambda back: "a code with spaces", "no code"),
        (lambda back: "", "no code"),
        (lambda back: back + "&x=" + "x" * 100_000, "much longer"),
    ],
)
async def test_what_is_no_answer_to_this_question_is_refused(change: Any, words: str) -> None:
    """The message does not show it, nothing is sent, and the question can be answered afterwards."""
    async with desk() as at:
        question = question_of(await at.say())
        back = await at.server.browse(uri_of(question))
        with pytest.raises(InvalidMessageError, match=words) as caught:
            await at.runner.provide_credential(question, change(back))
        assert not [secret for secret in at.server.secrets if secret in str(caught.value)]
        assert at.server.grants == []
        run = await at.say(await at.runner.provide_credential(question, back))
        assert run.status == "completed"


async def test_a_server_that_says_who_it_is_always_does() -> None:
    """Its metadata promise `iss` in what the browser comes back with: without, it is another server's (RFC 9207)."""
    async with desk() as at:
        at.server.metadata["authorization_response_iss_parameter_supported"] = True
        question = question_of(await at.say())
        back = await at.server.browse(uri_of(question))
        parts = back.partition("?")
        without = f"{parts[0]}?{'&'.join(each for each in parts[2].split('&') if not each.startswith('iss='))}"
        with pytest.raises(InvalidMessageError, match="another authorization server"):
            await at.runner.provide_credential(question, without)
        assert at.server.grants == []
        assert (await at.say(await at.runner.provide_credential(question, back))).status == "completed"


async def test_an_error_in_what_the_browser_comes_back_with() -> None:
    """An error that is no refusal: AuthorizationError with its code, and the question can be answered afterwards."""
    async with desk() as at:
        question = question_of(await at.say())
        assert question.auth_config is not None
        state = question.auth_config.state
        for error, code in (("server_error", "server_error"), ("<script>\x1b[2J", None)):
            back = f"{CALLBACK}?{urlencode({'error': error, 'state': state, 'error_description': 'sk-secret'})}"
            with pytest.raises(AuthorizationError) as caught:
                await at.runner.provide_credential(question, back)
            assert caught.value.code == code
            assert "sk-secret" not in str(caught.value)
            assert "\x1b" not in str(caught.value)
        back = await at.server.browse(uri_of(question))
        assert (await at.say(await at.runner.provide_credential(question, back))).status == "completed"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_token_endpoint_that_redirects_is_refused(status: int) -> None:
    """Whereto ever: a code, a refresh token and the secret of the application go where the application says."""
    other = OAuthServer()
    async with desk() as at, serving(other):
        question = question_of(await at.say())
        at.server.redirect = (status, f"{other.url}/token")
        with pytest.raises(AuthorizationError, match=f"status {status}"):
            await at.runner.provide_credential(question, await at.server.browse(uri_of(question)))
        at.server.redirect = None
        await at.say(await at.runner.provide_credential(question, await at.server.browse(uri_of(question))))
        at.server.end_tokens()
        at.server.redirect = (status, f"{other.url}/token")
        await at.say()
        response = [r for event in await at.events() for r in event.get_function_responses() if r.name == "ask"][-1]
        assert response.response["error"]["type"] == "AuthorizationError"
        assert other.requests == []
        assert await at.kept() is not None


async def test_metadata_behind_a_redirect_are_none() -> None:
    """Whoever can have the server redirect could else speak for it."""
    other = OAuthServer()
    async with desk() as at, serving(other):
        at.server.redirect = (302, f"{other.url}/.well-known/oauth-authorization-server")
        await at.say()
        [failed] = [r for event in await at.events() for r in event.get_function_responses()]
        assert "to have metadata, found none" in failed.response["error"]["message"]
        assert other.requests == []


async def test_a_callback_is_of_one_user() -> None:
    """What one user's browser came back with answers no question of another: that would give away an account."""
    async with desk() as at:
        own = question_of(await at.say())
        async with at.runner.run_async(user_id="mallory", session_id="m", new_message="go") as run:
            await run.wait()
        back = await at.server.browse(uri_of(question_of(run)))
        with pytest.raises(InvalidMessageError, match="another state"):
            await at.runner.provide_credential(own, back)
        assert at.server.grants == []


async def test_a_person_who_refuses_there_has_refused() -> None:
    """`access_denied` becomes the answer False: the tool gets CredentialRefusedError, and nothing is kept."""
    async with desk() as at:
        question = question_of(await at.say())
        at.server.denies = True
        back = await at.server.browse(uri_of(question))
        await at.say(await at.runner.provide_credential(question, back))
        response = [r for event in await at.events() for r in event.get_function_responses() if r.name == "ask"][-1]
        assert response.response["error"]["type"] == "CredentialRefusedError"
        assert await at.credentials.list_credentials(app_name="app", user_id=PLACE["user_id"]) == []


async def test_a_code_that_the_server_refuses_leaves_the_question_open() -> None:
    """A code that was made up: AuthorizationError with the server's code, and one signs in again."""
    async with desk() as at:
        question = question_of(await at.say())
        with pytest.raises(AuthorizationError, match="invalid_grant") as caught:
            await at.runner.provide_credential(question, "made-up")
        assert caught.value.code == "invalid_grant"
        assert "made-up" not in str(caught.value)
        back = await at.server.browse(uri_of(question))
        assert (await at.say(await at.runner.provide_credential(question, back))).status == "completed"


@pytest.mark.parametrize("repeated", ["secret-of-the-app", "bad_secret-of-the-app", "secret-of-the", "made-up-code"])
async def test_an_error_code_that_repeats_a_secret_is_not_told(repeated: str) -> None:
    """A token endpoint that answers with the client's secret, or with the code, has told no code of an error."""
    client = AuthCredential("client", client_id=CLIENT_ID, client_secret="secret-of-the-app")
    async with desk(raw_auth_credential=client) as at:
        question = question_of(await at.say())
        at.server.token_error = repeated
        with pytest.raises(AuthorizationError, match=r"\(status 400\)") as caught:
            await at.runner.provide_credential(question, "made-up-code")
        assert caught.value.code is None
        assert repeated not in repr(caught.value)


async def test_the_same_answer_may_be_sent_once_more() -> None:
    """Where a process dies after the token was kept, and before the message: the code is not used a second time."""
    async with desk() as at:
        question = question_of(await at.say())
        back = await at.server.browse(uri_of(question))
        await at.runner.provide_credential(question, back)
        run = await at.say(await at.runner.provide_credential(question, back))
        assert (run.status, at.server.grants) == ("completed", ["authorization_code"])


async def test_two_questions_of_one_user_have_each_their_own_sign_in() -> None:
    """The answer to one does not answer the other; but once there is a token, the other may be answered with yes."""
    async with desk() as at:
        one, other = question_of(await at.say()), question_of(await at.say(session="t"))
        back = await at.server.browse(uri_of(one))
        with pytest.raises(InvalidMessageError, match="another state"):
            await at.runner.provide_credential(other, back)
        await at.say(await at.runner.provide_credential(one, back))
        await at.say(other.reply(True), session="t")
        assert (at.seen, at.server.grants) == (["200", "200"], ["authorization_code"])
        assert await at.credentials.list_credentials(app_name="app", user_id=PLACE["user_id"]) == ["mail"]


async def test_a_text_answers_no_other_question() -> None:
    """A question for a key is answered by a credential; a text that comes instead is not shown."""
    async with desk() as at:
        at.config = AuthConfig("mail", "bearer")
        question = question_of(await at.say())
        with pytest.raises(InvalidValueError, match="expected an AuthCredential") as caught:
            await at.runner.provide_credential(question, "sk-secret")
        assert "sk-secret" not in str(caught.value)


# --- renewing ---------------------------------------------------------------------------------------------------------


async def test_a_token_is_renewed_before_it_ends() -> None:
    """An hour's token is renewed a minute early, with no 401 in between, and the new refresh token is kept."""
    clock = [1e9]
    async with desk(clock) as at:
        await at.sign_in()
        clock[0] += 3600 - 61
        await at.say()
        assert at.server.grants == ["authorization_code"]
        clock[0] += 2
        await at.say()
        clock[0] += 3600
        await at.say()
        assert at.server.grants == ["authorization_code", "refresh_token", "refresh_token"]
        assert at.seen == ["200"] * 4


async def test_a_token_that_the_api_refuses_is_renewed() -> None:
    """Though it has not expired: on a 401 the tool says so, and gets another one. Nobody is asked."""
    async with desk() as at:
        await at.sign_in()
        at.server.end_tokens()
        run = await at.say()
        assert (run.status, at.seen) == ("completed", ["200", "200"])
        assert at.server.grants == ["authorization_code", "refresh_token"]


async def test_fifty_calls_at_once_renew_a_token_once() -> None:
    """Of fifty contexts that find it ended, and of fifty whose token was refused, one asks the server."""
    clock = [1e9]
    async with desk(clock) as at:
        await at.sign_in()
        service, names = at.credentials, KEY
        from minirun.credentials._current import current_credential

        clock[0] += 7200
        tokens: list[str] = []

        async def use(rejected: AuthCredential | None) -> None:
            found = await current_credential(service, names, at.config, rejected)
            assert found is not None
            tokens.append(found.reveal())

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(use, None)
        assert (len(tokens), len({*tokens})) == (50, 1)
        assert at.server.grants == ["authorization_code", "refresh_token"]
        old = await at.kept()
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(use, old)
        assert at.server.grants == ["authorization_code", "refresh_token", "refresh_token"]
        assert service._locks == {}


async def test_many_calls_of_one_turn_renew_a_token_once() -> None:
    """A model that makes twenty calls side by side, whose token the API refuses, has it renewed once."""
    async with desk() as at:
        await at.sign_in()
        at.server.end_tokens()

        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else [call("ask") for _ in range(20)]

        agent = LlmAgent(name="clerk", model=ScriptedLlm(script), tools=[at.ask])
        options: dict[str, Any] = {"session_service": at.sessions, "credential_service": at.credentials}
        at.runner = Runner(agent=agent, app_name="app", auto_create_session=True, **options)
        run = await at.say(session="many")
        assert (run.status, at.seen) == ("completed", ["200"] * 21)
        assert at.server.grants == ["authorization_code", "refresh_token"]


async def test_access_that_was_revoked_pauses_the_run_again() -> None:
    """The API refuses the token, the server the refresh token: the credential is forgotten, and somebody is asked."""
    async with desk() as at:
        await at.sign_in()
        at.server.revoke()
        run = await at.say()
        question = question_of(run)
        assert run.status == "paused"
        assert await at.kept() is None
        back = await at.server.browse(uri_of(question))
        run = await at.say(await at.runner.provide_credential(question, back))
        assert (run.status, at.seen) == ("completed", ["200", "200"])


async def test_logic_that_was_refused_asks_where_it_stands() -> None:
    """An agent whose token was revoked asks again, is replayed to the same place, and goes on with the new one."""
    async with desk() as at:
        refused: list[str] = []

        async def logic(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="before"))
            credential = await ctx.request_credential(at.config)
            if not refused:
                refused.append(credential.reveal())
            if credential.reveal() in refused:  # as the API would say
                at.server.revoke()
                credential = await ctx.request_credential(at.config, rejected=credential)
            await ctx.emit(Event(message="after"))

        at.runner = Runner(
            agent=Logic(name="agent", logic=logic),
            app_name="app",
            session_service=at.sessions,
            credential_service=at.credentials,
            auto_create_session=True,
        )
        run = await at.say()
        for _ in range(2):
            question = question_of(run)
            back = await at.server.browse(uri_of(question))
            run = await at.say(await at.runner.provide_credential(question, back))
        assert run.status == "completed"
        assert [event.text for event in await at.events() if event.text] == ["go", "before", "after"]


async def test_without_a_refresh_token_somebody_signs_in_again() -> None:
    """What cannot be renewed is asked for when it has ended."""
    clock = [1e9]
    async with desk(clock) as at:
        at.server.sends_refresh_tokens = False
        await at.sign_in()
        clock[0] += 3600
        assert (await at.say()).status == "paused"
        assert at.server.grants == ["authorization_code"]


@pytest.mark.parametrize("said", [0, "0", -1, None, "soon", True])
async def test_a_token_whose_life_is_no_time_is_used_until_it_is_refused(said: Any) -> None:
    """A server that says that a token ends at once, or says no time, sends nobody back to sign in once more."""
    async with desk() as at:
        at.server.token_changes = {"expires_in": said}
        at.server.sends_refresh_tokens = False
        await at.sign_in()
        assert (await at.say()).status == "completed"
        assert at.seen == ["200", "200"]


async def test_a_server_that_is_down_takes_no_token_away() -> None:
    """While it cannot be reached the tool fails with AuthorizationUnavailableError; afterwards the token is renewed."""
    clock = [1e9]
    async with desk(clock) as at:
        await at.sign_in()
        clock[0] += 3600
        at.server.is_down = True
        await at.say()
        response = [r for event in await at.events() for r in event.get_function_responses() if r.name == "ask"][-1]
        assert response.response["error"]["type"] == "AuthorizationUnavailableError"
        at.server.is_down = False
        await at.say()
        assert at.seen == ["200", "200"]


async def test_more_scopes_than_before_are_asked_for() -> None:
    """A token for fewer scopes is not used for more: somebody signs in again, and the old one works for the old."""
    async with desk() as at:
        await at.sign_in()
        narrow, at.config = at.config, config_for(at.server, scopes=["read", "send", "delete"])
        question = question_of(await at.say(session="t"))
        with pytest.raises(InvalidMessageError, match="for other scopes"):
            await at.say(question.reply(True), session="t")
        assert "delete" in uri_of(question)
        at.config = narrow
        assert (await at.say()).status == "completed"


async def test_a_cancelled_renewal_leaves_what_it_got() -> None:
    """Cancelled while the server has the request: the answer is waited for and kept, for it is the only one."""
    clock = [1e9]
    async with desk(clock) as at:
        await at.sign_in()
        clock[0] += 3600
        at.server.hold = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.say)
            await at.server.held.wait()
            nursery.cancel_scope.cancel()
            at.server.hold.set()
        at.server.hold = None
        run = await at.say(session="t")
        assert (run.status, at.seen) == ("completed", ["200", "200"])
        assert at.server.grants == ["authorization_code", "refresh_token"]


async def test_a_cancelled_exchange_leaves_what_it_got() -> None:
    """Cancelled while the code is on its way: the token is kept, and the question is answered by yes."""
    async with desk() as at:
        question = question_of(await at.say())
        back = await at.server.browse(uri_of(question))
        at.server.hold = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.runner.provide_credential, question, back)
            await at.server.held.wait()
            nursery.cancel_scope.cancel()
            at.server.hold.set()
        run = await at.say(question.reply(True))
        assert (run.status, at.seen) == ("completed", ["200"])


# --- other credentials that were refused ------------------------------------------------------------------------------


async def test_a_key_that_was_refused_is_forgotten_and_asked_for() -> None:
    """`rejected=` forgets any credential that is still the one that is kept, and asks for another."""
    async with desk() as at:
        at.config = AuthConfig("mail", "bearer")
        await at.credentials.save_credential(**KEY, credential=AuthCredential("bearer", token="an-old-token"))
        run = await at.say()
        assert run.status == "paused"
        assert await at.kept() is None
        await at.runner.provide_credential(question_of(run), AuthCredential("bearer", token="a-new-token"))
        new = await at.kept()
        from minirun.credentials._current import current_credential

        old = AuthCredential("bearer", token="an-old-token")
        assert await current_credential(at.credentials, KEY, at.config, old) == new


# --- without a person -------------------------------------------------------------------------------------------------


def service_config(server: OAuthServer, **scheme: Any) -> AuthConfig:
    described = {"token_endpoint": f"{server.url}/token", "grant_type": "client_credentials", **scheme}
    return AuthConfig("mail", auth_scheme=AuthScheme(**described), raw_auth_credential=CLIENT, scopes=["read"])


async def test_an_application_gets_in_as_itself() -> None:
    """Client credentials: nobody is asked, the token is kept for all runs, and a refused one is replaced."""
    async with desk() as at:
        at.config = service_config(at.server)
        assert [(await at.say()).status for _ in range(2)] == ["completed", "completed"]
        assert at.server.grants == ["client_credentials"]
        at.server.end_tokens()
        await at.say()
        assert (at.server.grants, at.seen) == (["client_credentials"] * 2, ["200"] * 3)


async def test_headers_of_an_account_are_renewed() -> None:
    """BearerHeaders: the same until they are refused, and then others; without anybody to ask it says so."""
    async with desk() as at:
        headers = BearerHeaders(service_config(at.server), at.credentials, app_name="app", user_id="the app")
        first = await headers()
        assert first == await headers()
        assert first["Authorization"].startswith("Bearer access-")
        second = await headers(refresh=True)
        assert second != first
        assert at.server.grants == ["client_credentials"] * 2
        assert await BearerHeaders(at.config)() == {}  # of no run, and so of nobody
        nobody = BearerHeaders(at.config, at.credentials, app_name="app", user_id="nobody")
        with pytest.raises(CredentialRefusedError, match="'mail'"):
            await nobody()


async def test_headers_of_an_account_that_fifty_tasks_find_refused_are_renewed_once() -> None:
    """Each task says that what it has sent was refused; the first has it renewed, the others get what it got."""
    async with desk() as at:
        headers = BearerHeaders(service_config(at.server), at.credentials, app_name="app", user_id="the app")
        found: list[dict[str, str]] = []

        async def use() -> None:
            await headers()
            await trio.testing.wait_all_tasks_blocked()
            found.append(await headers(refresh=True))

        await headers()
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(use)
        assert len({each["Authorization"] for each in found}) == 1
        assert at.server.grants == ["client_credentials"] * 2


async def test_headers_of_a_run_are_its_users() -> None:
    """Whoever has not signed in is asked, in the call of the tool; a refused token is renewed there."""
    async with desk() as at:
        headers = BearerHeaders(at.config)

        async def ask(tool_context: ToolContext) -> str:
            """Ask the API."""
            import httpx2

            async with httpx2.AsyncClient(trust_env=False, timeout=120) as client:
                response = await client.get(at.server.api, headers=await headers(tool_context))
                if response.status_code == 401:
                    response = await client.get(at.server.api, headers=await headers(tool_context, refresh=True))
            at.seen.append(str(response.status_code))
            return response.text

        at.runner = at.runner_of(ask)
        await at.sign_in()
        at.server.end_tokens()
        await at.say()
        assert at.seen == ["200", "200"]
        assert at.server.grants == ["authorization_code", "refresh_token"]


async def test_a_client_that_is_not_known_is_told() -> None:
    """`invalid_client` is an AuthorizationError, and neither the message nor the log has the secret."""
    async with desk() as at:
        at.server.clients[CLIENT_ID].secret = "another"
        at.config = service_config(at.server)
        await at.say()
        written = "".join(map(to_json, await at.events()))
        assert "AuthorizationError" in written
        assert "invalid_client" in written
        assert CLIENT_SECRET not in written


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_proves_itself_as_it_is_told(method: str) -> None:
    """In the header or in the body, whatever characters the secret has."""
    async with desk() as at:
        at.server.clients[CLIENT_ID].method = method
        at.config = service_config(at.server, token_endpoint_auth_method=method)
        assert (await at.say()).status == "completed"
        assert at.seen == ["200"]


# --- where the server is ----------------------------------------------------------------------------------------------


async def test_a_resource_says_who_its_server_is_and_the_application_registers_itself() -> None:
    """As MCP has it: metadata of the resource and of its issuer, a registration, and tokens for that resource."""
    async with desk() as at:
        at.config = AuthConfig("mail", auth_scheme=AuthScheme(resource=at.server.api, redirect_uri=CALLBACK))
        await at.sign_in()
        at.server.end_tokens()
        await at.say()
        assert (at.seen, at.server.grants) == (["200", "200"], ["authorization_code", "refresh_token"])
        assert [name for name in at.server.clients if name.startswith("registered")] != []


async def test_a_registered_application_with_a_secret_keeps_it_with_the_token() -> None:
    """Where the server has no clients without a secret, the secret that it gives is used, and is in no log."""
    async with desk() as at:
        at.server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        at.config = AuthConfig("mail", auth_scheme=AuthScheme(resource=at.server.api, redirect_uri=CALLBACK))
        await at.sign_in()
        at.server.end_tokens()
        await at.say()
        assert at.seen == ["200", "200"]
        assert not [secret for secret in at.server.secrets if secret in "".join(map(to_json, await at.events()))]


async def test_a_refresh_token_goes_to_no_other_server() -> None:
    """A resource that names another authorization server later: one signs in again, and the new one gets nothing."""
    other = OAuthServer()
    async with desk() as at, serving(other):
        at.config = AuthConfig("mail", auth_scheme=AuthScheme(resource=at.server.api, redirect_uri=CALLBACK))
        await at.sign_in()
        at.server.end_tokens()
        at.server.resource_metadata["authorization_servers"] = [other.issuer]
        assert (await at.say()).status == "paused"
        assert not [said for said in other.requests if said.path == "/token"]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"issuer": "https://evil.example"}, "found those of"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"token_endpoint": "http://evil.example/token"}, "an address with https"),
        ({"token_endpoint": "file:///etc/passwd"}, "an address with https"),
        ({"token_endpoint": None}, "to have a token_endpoint"),
        ({"authorization_endpoint": 17}, "an address with https"),
    ],
)
async def test_metadata_that_cannot_be_are_refused(metadata: dict[str, Any], words: str) -> None:
    """Of another issuer, without PKCE, or with addresses that anybody can listen at."""
    async with desk() as at:
        at.server.metadata.update(metadata)
        await at.say()
        [failed] = [r for event in await at.events() for r in event.get_function_responses()]
        assert failed.response["error"]["type"] == "AuthorizationError"
        assert words in failed.response["error"]["message"]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"resource": "https://other.example/api"}, "to be about that resource"),
        ({"authorization_servers": []}, "to name its authorization servers"),
        ({"authorization_servers": ["http://evil.example"]}, "an address with https"),
    ],
)
async def test_metadata_of_a_resource_that_cannot_be_are_refused(metadata: dict[str, Any], words: str) -> None:
    """About another resource, with no server, or with one that anybody can listen to."""
    async with desk() as at:
        at.server.resource_metadata.update(metadata)
        at.config = AuthConfig("mail", auth_scheme=AuthScheme(resource=at.server.api, redirect_uri=CALLBACK))
        await at.say()
        [failed] = [r for event in await at.events() for r in event.get_function_responses()]
        assert words in failed.response["error"]["message"]


# --- what is refused when it is written -------------------------------------------------------------------------------

GOOD: dict[str, Any] = {"issuer": "https://a.example", "redirect_uri": CALLBACK}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": ""}, "AuthScheme: expected an issuer, a token_endpoint or a resource"),
        ({"issuer": "http://a.example"}, "issuer: expected an address"),
        ({"issuer": "https://user@a.example"}, "issuer: expected an address"),
        ({"token_endpoint": "https://a.example/t"}, "token_endpoint: expected nothing beside an issuer"),
        ({"issuer": "", "token_endpoint": "https://a.example/t"}, "authorization_endpoint: expected it beside"),
        ({"redirect_uri": ""}, "redirect_uri: expected where"),
        ({"redirect_uri": "http://app.example/cb"}, "redirect_uri: expected an address"),
        ({"redirect_uri": "javascript:alert(1)"}, "redirect_uri: expected an address"),
        ({"redirect_uri": "https://app.example/cb#x"}, "redirect_uri: expected an address"),
        ({"grant_type": "password"}, "grant_type: expected one of"),
        ({"grant_type": "client_credentials"}, "redirect_uri: expected nothing where no person"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "token_endpoint_auth_method: expected one of"),
        ({"parameters": {"state": "x"}}, "parameters: expected texts by name, and none"),
        ({"parameters": {"a": 1}}, "parameters: expected texts"),
        ({"parameters": ["a"]}, "parameters: expected texts by name"),
    ],
)
def test_a_scheme_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    """With the name of what is wrong, missing or without effect."""
    with pytest.raises(InvalidValueError, match=words):
        AuthScheme(**{**GOOD, **changes})


@pytest.mark.parametrize("uri", ["http://127.0.0.1:8080/cb", "http://localhost/cb", "com.example.app:/cb"])
def test_addresses_of_this_machine_and_of_applications_are_fine(uri: str) -> None:
    """An application without a server of its own is sent back to the machine that it runs on."""
    assert AuthScheme(issuer="http://[::1]:9000", redirect_uri=uri).redirect_uri == uri


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheme": "bearer"}, "scheme: expected 'oauth2'"),
        ({"auth_uri": "https://a.example"}, "auth_uri: expected nothing beside an auth_scheme"),
        ({"state": "x"}, "state: expected nothing beside an auth_scheme"),
        ({"auth_scheme": "oauth2"}, "auth_scheme: expected an AuthScheme"),
        ({"auth_scheme": None}, "raw_auth_credential: expected an auth_scheme beside it"),
        ({"raw_auth_credential": AuthCredential("bearer", token="a-secret-token")}, "one of the scheme 'bearer'"),
        ({"raw_auth_credential": "a-secret"}, "found str"),
        ({"auth_scheme": AuthScheme(resource="https://a.example/mcp", redirect_uri=CALLBACK)}, "issuer: expected it"),
    ],
)
def test_a_config_whose_parts_do_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    """And no message shows a secret."""
    good = {"auth_scheme": AuthScheme(**GOOD), "raw_auth_credential": CLIENT}
    with pytest.raises(InvalidValueError, match=words) as caught:
        AuthConfig("k", **{**good, **changes})
    assert "a-secret" not in str(caught.value)


def test_a_question_has_no_client() -> None:
    """What stands in the log says which credential, and not how the application is known."""
    config = AuthConfig("k", auth_scheme=AuthScheme(**GOOD), raw_auth_credential=CLIENT, scopes=["a"])
    assert config.to_dict() == {"credentialKey": "k", "scheme": "oauth2", "scopes": ["a"]}
    assert CLIENT_SECRET not in repr(config)
    asked = AuthConfig("k", "oauth2", auth_uri="https://a.example/x", state="s")
    assert AuthConfig.from_dict(asked.to_dict()) == asked


def test_errors_of_an_unavailable_server_are_both() -> None:
    """AuthorizationUnavailableError is an AuthorizationError, and a ConnectionError."""
    assert issubclass(AuthorizationUnavailableError, AuthorizationError)
    assert issubclass(AuthorizationUnavailableError, ConnectionError)
