"""
Worlds in which users sign in: the authorization server is slow and not always there, answers are lost, tokens end and
are taken away, people leave, processes die, and clocks jump.

The server is that of oauth_server.py, without its socket: refresh tokens work once, so a second use of one shows that
two have renewed with it, or that a new one was lost. It may be used again only where its answer was lost on the way,
or with the process that had asked.
"""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import urlsplit

import trio

from minirun import FunctionTool, LlmAgent, Runner
from minirun._codec import to_json
from minirun.credentials import AuthConfig, AuthCredential, AuthScheme
from minirun.errors import (
    AuthorizationError,
    CredentialRefusedError,
    CredentialServiceError,
    InvalidMessageError,
    StorageError,
)
from minirun.models import LlmRequest
from minirun.sessions import PendingCall
from minirun.simulation import WebAnswer, WebFailedError, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

from .asgi import Said
from .laws import expect
from .oauth_server import CALLBACK, CLIENT_ID, CLIENT_SECRET, OAuthServer
from .waiting import EXPECTED, People, by_invocation, check_end, completed_of, supervising

__all__ = ["SIGN_INS", "sign_ins"]

URL = "https://auth.example"
# How long tokens live: some end by themselves, others only when they are ended.
LIVES_S = (2000.0, 100.0)
# How late requests and answers are; the last is longer than anybody waits.
DELAYS_S = (0.0, 0.5, 12.0, 30.0)
CALLS = 3
# A call that does not wait long is cancelled while its token is renewed.
PATIENCE_S = 5.0


class Network:
    """The server, and the way to it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.server = OAuthServer(LIVES_S[world.choices.choose(len(LIVES_S), "how long tokens live")])
        self.server.url = URL
        self.is_calm = False
        self._asked_by: dict[str, str] = {}  # by refresh token: the process that has used it
        self._lost: set[str] = set()  # refresh tokens whose answers nobody has got
        self._got: dict[str, tuple[str, float]] = {}  # by refresh token: the access token beside it, and since when

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Any,
        content: bytes | None = None,
        timeout_s: float,
        bytes_max: int,
    ) -> WebAnswer:
        """Answer a request, sooner or later, or not."""
        parts = urlsplit(url)
        assert f"{parts.scheme}://{parts.netloc}" == URL
        named = {name.lower(): text for name, text in headers.items()}
        said = Said(method, parts.path, parts.query, named, content or b"")
        refresh = said.form.get("refresh_token", "") if method == "POST" else ""
        begun = trio.current_time()
        await self._way(refresh, is_there=False)
        if refresh:
            self._note(refresh)
            self._lost.add(refresh)  # until somebody has the answer
        status, more, answer = await self.server._answer(said)
        if "refresh_token" in answer:
            self._got[answer["refresh_token"]] = (answer["access_token"], trio.current_time())
        try:
            await self._way(refresh, is_there=True)
        except trio.Cancelled:
            if trio.current_time() < begun + timeout_s:  # it is who had asked that has gone
                self._lost.discard(refresh)
            raise
        self._lost.discard(refresh)
        return WebAnswer(status, more, json.dumps(answer).encode())

    async def aclose(self) -> None:
        """There is nothing to be closed."""

    async def _way(self, refresh: str, *, is_there: bool) -> None:
        if self.is_calm:
            return
        late = DELAYS_S[self._world.choices.choose(len(DELAYS_S) if refresh else 2, "how late it is")]
        await self._world.sleep(late)
        if not self._world.choices.choose(5 if refresh else 15, "the connection holds"):
            self._world.reached("an answer was lost" if is_there else "a server was not reached")
            raise WebFailedError("the connection was lost")

    def _process(self) -> str:
        name = self._world.schedule.name_of(trio.lowlevel.current_task())
        return next((part for part in name.split("/") if part.startswith("process ")), "")

    def _note(self, refresh: str) -> None:
        """Whoever renews has a reason, and is the only one."""
        if refresh in self._asked_by:
            living = {process.name for process in self._world._processes.living()}
            # of two, one is dead: the one before, or whose request was on its way when its process died
            died = not {self._asked_by[refresh], self._process()} <= living | {""}
            if refresh not in self._lost and not died:
                self._world.fail("a refresh token was used twice", "two have renewed with it, or the new one was lost")
            self._world.reached("a process died with a token" if died else "a lost answer was noticed")
        self._asked_by[refresh] = self._process()
        access, since = self._got[refresh]
        works = access not in self.server._ended and not self.server._access[access].is_over
        is_early = trio.current_time() < since + 0.9 * self.server.life_s - 2 * DELAYS_S[-1]
        jumped = self._world.coverage["clock set forward"] or self._world.coverage["clock set back"]
        if works and is_early and not jumped:
            self._world.fail("a token was renewed that works, and does not end soon", "nobody had a reason")
        self._world.reached("a token was renewed")


class Members(People):
    """Users who sign in when they are asked, refuse to, or bring back something else."""

    def __init__(self, world: World, runner: Runner, network: Network) -> None:
        super().__init__(world, runner)
        self._network = network
        self.expected = (*EXPECTED, CredentialServiceError)

    async def sign_in(self, user: str) -> None:
        """Most of what goes wrong does so afterwards."""
        await self.talk(user, "first")
        try:
            pending = await self._pending(user)
        except StorageError:
            return
        for question in pending:
            await self._send(user, question, wrongly=False)  # a run of a process that has died is not listened to

    async def talk_elsewhere(self, user: str, *texts: str) -> None:
        """The same user in other sessions, at the same time."""
        for text in texts:
            try:
                await self._world.say(self._runner, user, text, session_id=text)
            except self.expected as error:
                self._world.reached(f"the run failed: {type(error).__name__}")

    async def _send(self, user: str, question: PendingCall, *, wrongly: bool) -> None:
        message = await self._signed_in(question, wrongly=wrongly)
        if message is None:
            return
        try:
            await self._world.say(self._runner, user, message, session_id=question.session_id)
        except InvalidMessageError:
            self._world.reached("an answer that came too late was refused")
        except self.expected as error:
            self._world.reached(f"the run failed: {type(error).__name__}")
        else:
            self._world.reached("an answer was taken")

    async def _signed_in(self, question: PendingCall, *, wrongly: bool = False) -> Any:
        """What says that the user has signed in; None if that has failed."""
        assert question.auth_config is not None
        server = self._network.server
        server.denies = not self._network.is_calm and self._world.choices.maybe("the user refuses there", 8)
        back = await server.browse(question.auth_config.auth_uri)
        if wrongly:
            back = back.replace("state=", "state=x")
        expected: tuple[type[Exception], ...] = (AuthorizationError, *self.expected)
        try:
            message = await self._runner.provide_credential(question, back)
        except InvalidMessageError as error:
            expect(not any(secret in str(error) for secret in server.secrets), "a message shows a secret")
            self._world.reached("another state was refused" if wrongly else "an answer that came too late was refused")
            return None
        except expected as error:
            self._world.reached(f"signing in failed: {type(error).__name__}")
            return None
        expect(not wrongly, "an answer with another state was taken")
        return message

    async def _settle_question(self, question: PendingCall) -> None:
        message = await self._signed_in(question)
        message = question.reply(False) if message is None else message
        try:
            place: Any = {"user_id": question.user_id, "session_id": question.session_id}
            async with self._runner.run_async(**place, new_message=message) as run:
                await run.wait()
        except InvalidMessageError:
            self._world.reached("an answer that came too late was refused")
        except self.expected as error:
            self._world.reached(f"the run failed: {type(error).__name__}")

    async def settle(self) -> None:
        """The network heals, too."""
        self._network.is_calm = True
        await super().settle()


async def sign_ins(world: World) -> None:
    """A model calls a tool side by side, that needs a token of the user's; tokens end, are refused and taken away."""
    network = Network(world)
    server = network.server
    world.serve_web(network)
    by_issuer = world.choices.choose(2, "the server is found by its metadata")
    endpoints: dict[str, Any] = {"token_endpoint": f"{URL}/token", "authorization_endpoint": f"{URL}/authorize"}
    config = AuthConfig(
        "mail",
        auth_scheme=AuthScheme(redirect_uri=CALLBACK, **({"issuer": URL} if by_issuer else endpoints)),
        raw_auth_credential=AuthCredential("client", client_id=CLIENT_ID, client_secret=CLIENT_SECRET),
    )

    async def ask(note: str, tool_context: ToolContext) -> str:
        is_patient = network.is_calm or bool(world.choices.choose(3, "a call waits for a token"))
        with trio.move_on_after(math.inf if is_patient else PATIENCE_S):
            try:
                return await asked(tool_context)
            except CredentialRefusedError:
                return "refused"
        world.reached("a call gave up")
        return "gave up"

    async def asked(tool_context: ToolContext) -> str:
        credential = await tool_context.request_credential(config)
        for is_last in (False, True):
            await world.sleep(world.choices.choose(2, "the API takes its time"))
            headers = {"authorization": f"Bearer {credential.reveal()}"}
            status, _, told = server._ask(Said("GET", "/api", "", headers, b""))
            if status == 200 or is_last:
                break
            world.reached("the API refused a token")
            credential = await tool_context.request_credential(config, rejected=credential)
        return f"{status} {told}"

    def script(request: LlmRequest) -> Any:
        own = str(request.config.system_instruction)
        parts = [part for content in request.contents for part in content.parts]
        called = any(part.function_call is not None and own in part.function_call.args.values() for part in parts)
        return "asked" if called else [call("ask", note=own) for _ in range(CALLS)]

    def agent() -> LlmAgent:
        tool = FunctionTool(ask, on_interrupted="rerun")
        return LlmAgent(
            name="clerk", model=ScriptedLlm(script), tools=[tool], instruction=lambda ctx: ctx.invocation_id
        )

    runner = world.runner(agent)
    people = Members(world, runner, network)
    if world.choices.choose(2, "a supervisor goes on"):
        world.host(runner, supervising(world))

    async def trouble() -> None:
        for _ in range(6):
            await world.sleep(10 * world.choices.choose(4, "until tokens end"))
            if world.choices.maybe("access is taken away", 5):
                server.revoke()
                world.reached("access was taken away")
            else:
                server.end_tokens()

    network.is_calm = True
    await people.sign_in("ada")
    network.is_calm = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trouble)
        nursery.start_soon(people.talk, "ada", "one", "two", "three")
        nursery.start_soon(people.talk_elsewhere, "ada", "four", "five", "six")
        nursery.start_soon(people.answer, "ada", 6)
        if world.choices.choose(2, "bob asks, too"):
            nursery.start_soon(people.talk, "bob", "one")
            nursery.start_soon(people.answer, "bob", 3)
    await people.settle()
    (server.end_tokens, server.revoke)[world.choices.choose(2, "access is gone in the end")]()
    await people.talk("ada", "late")  # nothing goes wrong any more, and somebody may have to sign in once
    await people.settle()
    logs = await check_end(world, runner, people)
    completed = await completed_of(runner)
    for (user, _), log in logs.items():
        written = "".join(map(to_json, log))
        expect(not any(secret in written for secret in server.secrets), "a secret is in a log")
        late = [event.invocation_id for event in log if event.text == "late" and event.author == "user"]
        for name in {*late} & completed:
            answers = [r for event in by_invocation(log)[name or ""] for r in event.get_function_responses()]
            told = [str(each.response) for each in answers if each.name == "ask"]
            good = [each for each in told if "'200 " in each or '"200 ' in each]
            expect(len(told) == len(good) == CALLS, f"nothing goes wrong, and {user} is told {told}")
            world.reached("all was well in the end")


SIGN_INS: dict[str, Any] = {
    "sign-ins in memory": (sign_ins, {"faults": ("crash", "users"), "storage": "memory", "processes": 1}),
    "sign-ins in two processes": (sign_ins, {"faults": ("crash", "users"), "storage": "sqlite", "processes": 2}),
}
"""Worlds of users who sign in, for those who import this."""
