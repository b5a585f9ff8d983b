"""
A program whose users sign in leaves no token, code, verifier or secret of its own in any byte that it writes.

Searched are its files (the database, its WAL, artifacts, what plugins write), logs, spans, exports, reprs, messages of
errors, and tracebacks with the variables of minirun's frames; for each secret as it is, in base64 and percent-encoded.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import attrs
import pytest

from minirun import App, LlmAgent, Runner, SqliteSessionService
from minirun._codec import to_json
from minirun.artifacts import SqliteArtifactService
from minirun.credentials import AuthConfig, AuthCredential, AuthScheme, BearerHeaders, InMemoryCredentialService
from minirun.errors import AuthorizationError, ConfigurationError, InvalidMessageError
from minirun.models import RecordedLlm
from minirun.plugins import DebugLoggingPlugin, LoggingPlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext
from minirun.tools.openapi import OpenAPIToolset
from minirun.types import Part

from ..asgi import serving
from ..helpers import PLACE
from ..oauth_server import CALLBACK, CLIENT_ID, CLIENT_SECRET, OAuthServer
from .test_credential_leaks import Tracing, with_locals

pytest.importorskip("httpx2", reason="the extra `minirun[models]` is not installed")
pytest.importorskip("opentelemetry.sdk", reason="the tests of spans need an SDK")

from ..otel import Recorder  # see above

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/mails": {"get": {"operationId": "listMails"}},
        "/away": {"get": {"operationId": "goAway", "servers": []}},
    },
}
PATIENCE = 3.0


def forms_of(secret: str) -> Iterator[bytes]:
    """A secret as it is, percent-encoded in both ways, and each in base64, wherever in a longer text it stands."""
    plain = {secret, quote(secret, safe=""), quote_plus(secret), secret.encode("unicode_escape").decode()}
    for text in plain:
        data = text.encode()
        yield data
        for offset in range(3):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                # Without the letters that depend on what stands before and behind.
                whole = encode(b"x" * offset + data).rstrip(b"=")
                yield whole[-(-offset * 4 // 3) : len(whole) - 1]


def leaks_in(written: dict[str, bytes], secrets: set[str]) -> list[str]:
    return [
        f"{name}: {form!r}"
        for name, data in written.items()
        for secret in secrets
        for form in forms_of(secret)
        if form in data
    ]


@pytest.mark.parametrize("prefix", ["", "a", "ab"])
def test_the_search_finds_each_form(prefix: str) -> None:
    """Wherever it stands in what was encoded."""
    secret = CLIENT_SECRET
    for text in (secret, quote(secret), quote_plus(secret)):
        whole = f"{prefix}{text} and more".encode()
        for data in (whole, base64.b64encode(whole), base64.urlsafe_b64encode(whole)):
            assert leaks_in({"": data}, {secret})
    assert not leaks_in({"": b"nothing"}, {secret})


@attrs.frozen
class FrozenError(Exception):
    """An exception that nobody can take a secret out of."""

    told: str


class Desk:
    """A program that writes down all that it can, and the servers that it asks."""

    def __init__(self, folder: Path, server: OAuthServer, recorder: Recorder) -> None:
        self.folder = folder
        self.server = server
        self.said: list[str] = []  # what else was shown
        self.question: Any = None  # the last that was answered wrongly
        self.config = AuthConfig(
            "mail",
            auth_scheme=AuthScheme(issuer=server.issuer, redirect_uri=CALLBACK),
            raw_auth_credential=AuthCredential("client", client_id=CLIENT_ID, client_secret=CLIENT_SECRET),
        )
        self.sessions = SqliteSessionService(folder / "s.db")
        self.credentials = InMemoryCredentialService(env=self.sessions.env)
        self.mails = OpenAPIToolset(spec_dict=DOCUMENT, base_url=server.api, auth=self.config, timeout_s=PATIENCE)
        self.calls = ["list_mails", "careless"]

        def script(request: Any) -> Any:
            answered = request.contents[-1].parts[-1].function_response
            return "Done." if answered is not None else [call(name) for name in self.calls]

        model = RecordedLlm(ScriptedLlm(script), folder / "cassette.json", "record")
        shows = Tracing()
        shows.name = "shows"
        plugins = [shows, recorder.plugin(), LoggingPlugin(), DebugLoggingPlugin(folder / "debug.yaml")]
        agent = LlmAgent(name="clerk", model=model, tools=[self.mails, self.careless, self.frozen])
        self.runner = Runner(
            app=App(name="app", root_agent=agent, plugins=plugins),
            session_service=self.sessions,
            artifact_service=SqliteArtifactService(folder / "a.db"),
            credential_service=self.credentials,
            auto_create_session=True,
        )

    async def careless(self, tool_context: ToolContext) -> Any:
        """Say what nobody should, in every way."""
        credential = await tool_context.request_credential(self.config)
        token = credential.reveal()
        await tool_context.save_artifact("shown.txt", Part(text=f"{credential!r} {credential}"))
        attempts: list[Callable[[], object]] = [
            lambda: tool_context.state.update(kept=token),
            lambda: tool_context.state.update({token: 1}),
            lambda: tool_context.state.update(kept=credential),
        ]
        for attempt in attempts:
            try:
                attempt()
            except Exception as error:  # a traceback has what this function has passed on, as it is
                self.said += [str(error), repr(error)]
        try:
            await tool_context.save_artifact("token.txt", Part(text=f"token={token}"))
        except Exception as error:
            self.said += [str(error), repr(error)]
        await tool_context.progress(f"signed in with {token}")
        return {"token": token, "list": [f"Bearer {token}"], "said": f"the token is {token!r}"}

    async def frozen(self, tool_context: ToolContext) -> str:
        """Fail with it."""
        credential = await tool_context.request_credential(self.config)
        raise FrozenError(f"refused: Bearer {credential.reveal()}")

    def show(self, error: BaseException) -> None:
        self.said += [str(error), repr(error), with_locals(error)]

    async def say(self, message: Any = "go") -> Any:
        async with self.runner.run_async(**PLACE, new_message=message) as run:
            async for event in run:
                self.said += [repr(event), to_json(event)]
        self.said += [repr(run), repr(run.pending), *(to_json_of(each) for each in run.pending)]
        return run

    async def answer(self, run: Any, back: str) -> Any:
        run = await self.say(await self.runner.provide_credential(run.pending[0], back))
        while run.pending:  # another tool has asked for the same
            run = await self.say(run.pending[0].reply(True))
        return run

    async def refused(self, run: Any, back: str, kind: type[Exception]) -> None:
        self.question = run.pending[0] if run.pending else self.question
        with pytest.raises(kind) as caught:
            await self.runner.provide_credential(self.question, back)
        self.show(caught.value)

    async def browse(self, run: Any) -> str:
        return await self.server.browse(run.pending[0].auth_config.auth_uri)

    async def export(self) -> None:
        session = await self.sessions.get_session(app_name="app", **PLACE)
        assert session is not None
        self.said += [session.to_json(), repr(session), repr(self.config), repr(self.mails), repr(self.runner)]
        names = {"app_name": "app", "user_id": PLACE["user_id"], "credential_key": "mail"}
        self.said.append(repr(await self.credentials.load_credential(**names)))

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}


def to_json_of(question: Any) -> str:
    return str(question.auth_config.to_dict()) + str(question.args)


async def everything(at: Desk) -> None:
    """Sign in, be refused, renew, fail in every way, and sign in again."""
    server = at.server
    run = await at.say()
    back = await at.browse(run)
    await at.refused(run, back.replace("state=", "state=x"), InvalidMessageError)
    await at.refused(run, back.replace("iss=", "iss=x"), InvalidMessageError)
    await at.refused(run, f"a code with spaces {back.partition(chr(61))[2][:40]}", InvalidMessageError)
    server.is_down = True
    await at.refused(run, back, AuthorizationError)
    server.is_down = False
    for changes in ({"token_type": "mac"}, {"access_token": ["x"]}):
        server.token_changes = changes
        await at.refused(run, await at.browse(run), AuthorizationError)
    server.token_changes = {}
    client = server.clients[CLIENT_ID]
    client.secret = "another"
    await at.refused(run, await at.browse(run), AuthorizationError)
    client.secret = CLIENT_SECRET
    await at.answer(run, await at.browse(run))
    await at.refused(run, back + "&code=again", InvalidMessageError)
    server.end_tokens()
    await at.say("once more")
    at.calls = ["frozen"]
    await at.say("fail")
    at.calls = ["list_mails"]
    for change in ("is_down", "secret", "token_type"):
        server.end_tokens()
        server.is_down = change == "is_down"
        client.secret = "another" if change == "secret" else CLIENT_SECRET
        server.token_changes = {"token_type": "mac"} if change == "token_type" else {}
        await at.say(change)
    server.is_down, server.token_changes = False, {}
    run = await at.say("sign in again: the refresh token was used up")
    if run.pending:
        run = await at.answer(run, await at.browse(run))
    server.revoke()
    run = await at.say("and again")
    server.denies = True
    await at.answer(run, await at.browse(run))
    server.denies = False
    await at.export()


async def test_no_secret_is_in_any_byte(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all that a program with every plugin has written, shown and failed with, while everything was tried."""
    caplog.set_level(logging.DEBUG)
    recorder = Recorder()
    server = OAuthServer()
    async with serving(server):
        at = Desk(tmp_path, server, recorder)
        await everything(at)
        written = {f"open {name}": data for name, data in at.files().items()}
        await at.runner.close()
        await at.sessions.aclose()
    written |= at.files()
    assert any(name.endswith("-wal") for name in written)
    written["spans"] = "".join(span.to_json() for span in recorder.spans).encode()
    written["logs"] = "".join(f"{each.getMessage()} {each.__dict__!r}" for each in caplog.records).encode()
    written["formatted logs"] = caplog.text.encode()
    out, err = capsys.readouterr()
    written |= {"stdout": out.encode("utf-8", "backslashreplace"), "stderr": err.encode("utf-8", "backslashreplace")}
    written["shown"] = "\n".join(at.said).encode("utf-8", "backslashreplace")
    kinds = {secret.partition("-")[0] for secret in server.secrets}
    assert {"access", "refresh", "code", "client"} <= kinds
    assert len(server.secrets) >= 20
    assert b"[secret]" in written["shown"]
    assert b"FrozenError" in written["shown"]
    assert leaks_in(written, server.secrets) == []


async def test_tracebacks_of_headers_show_none(capsys: pytest.CaptureFixture[str]) -> None:
    """A token that no header can hold, and headers of a program that are none."""
    service = InMemoryCredentialService()
    names = {"app_name": "app", "user_id": "u"}
    await service.save_credential(
        **names, credential_key="k", credential=AuthCredential("bearer", token="sk-a-tökén-of-ada")
    )
    headers = BearerHeaders(AuthConfig("k", "bearer"), service, **names)
    with pytest.raises(ConfigurationError) as caught:
        await headers()
    shown = with_locals(caught.value)
    with pytest.raises(ConfigurationError) as other:
        OpenAPIToolset(spec_dict=DOCUMENT, base_url="https://a.example", headers={"X-Key": "sk-another\n"})
    assert "sk-a-t" not in shown
    assert "checked_headers" in with_locals(other.value)
