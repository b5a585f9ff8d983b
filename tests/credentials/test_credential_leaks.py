"""A run that uses credentials leaves their secrets nowhere: every byte that it writes, logs or shows is searched."""

from __future__ import annotations

import gc
import json
import logging
import traceback
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import (
    App,
    Event,
    FunctionTool,
    InMemorySessionService,
    LlmAgent,
    Runner,
    SequentialAgent,
    SqliteSessionService,
)
from minirun._codec import to_json
from minirun.agents import InvocationContext
from minirun.artifacts import InMemoryArtifactService
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.credentials._secrets import HIDDEN, Secrets
from minirun.errors import ReplayError, SecretError
from minirun.plugins import BasePlugin, LoggingPlugin
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext
from minirun.types import Part

from ..helpers import PLACE, Logic, run_to_end

KEY, PASSWORD = "sk-90210-own-logic", 'pass"wörd\n of a tool'
SECRETS = (KEY, PASSWORD)
OWN = AuthConfig("own", hint="The key of the agent")
TOOL = AuthConfig("tool", "basic", hint="The login of the tool")
OWN_CREDENTIAL = AuthCredential("api_key", api_key=KEY)
TOOL_CREDENTIAL = AuthCredential("basic", username="ada-lovelace", password=PASSWORD)


def forms() -> Iterator[str]:
    """The ways in which a text may be written: as it is, in JSON, and as Python shows it."""
    for secret in SECRETS:
        yield from {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def leaks(written: bytes | str) -> list[str]:
    data = written if isinstance(written, bytes) else written.encode("utf-8", "backslashreplace")
    return [form for form in forms() if form.encode() in data]


def test_the_search_finds_a_leak() -> None:
    """In every form in which it is looked for."""
    for text in (KEY, PASSWORD, json.dumps({"p": PASSWORD}), repr(PASSWORD), to_json(Event(message=PASSWORD))):
        assert leaks(f"... {text} ...")
    assert not leaks("nothing")


class Tracing(BasePlugin):
    """Prints all it is shown, as somebody does who looks for a mistake; exceptions with the variables of their frames.

    The frames of tests hold what a test knows; so only those of minirun are shown.
    """

    def __init__(self, *, careful: bool = True) -> None:
        super().__init__("tracing")
        self._careful = careful  # else agents write secrets to the state, which is what it is until an event carries it

    async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
        print(repr(event), event, to_json(event))
        shown = dict(invocation_context.session.state) if event.author == "caller" and self._careful else {}
        print(f"{invocation_context} {shown} {invocation_context.session}")

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        print(repr(llm_request), repr(list(llm_request.contents)))

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        print(repr(result), repr(tool_args), repr(tool_context))

    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Exception) -> None:
        print(with_locals(error), repr(error), error.__notes__ if hasattr(error, "__notes__") else "")

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        print(with_locals(error), repr(error))


def with_locals(error: BaseException) -> str:
    """A traceback with the variables of the frames of minirun, and of all that the error came from."""
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    todo = [found]
    while todo:
        one = todo.pop()
        for frame in one.stack:
            if "/tests/" in frame.filename:
                frame.locals = None
        todo += [other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None]
    return "".join(found.format())


@asynccontextmanager
async def store(kind: str, folder: Path) -> AsyncIterator[BaseSessionService]:
    if kind == "memory":
        yield InMemorySessionService()
        return
    async with SqliteSessionService(folder / "s.db") as service:
        yield service


async def use(ctx: InvocationContext) -> None:
    """Own logic that keeps its secret."""
    credential = await ctx.request_credential(OWN)
    ctx.state["length"] = len(credential.reveal())
    ctx.state["user:shown"] = f"{credential} {credential!r}"
    for attempt in (
        lambda: ctx.state.update(kept=credential),
        lambda: ctx.state.extend("list", [credential]),
        lambda: Event(message="x", custom_metadata={"credential": credential}),
        lambda: Event(message="x", output=credential),
    ):
        try:
            attempt()
        except Exception as error:
            print(with_locals(error), error)
            await ctx.emit(Event(error_code=type(error).__name__, error_message=str(error)))
    await ctx.progress(f"logged in with {credential}")
    await ctx.step("length", lambda: len(credential.reveal()))
    await ctx.emit(Event(message=f"used {credential}"))


async def log_in(tool_context: ToolContext) -> str:
    """Log in."""
    credential = await tool_context.request_credential(TOOL)
    error = OSError(f"the first try with {credential} failed")
    error.add_note(f"and {credential!r} was used")
    if not tool_context.state.get("tried"):
        await tool_context.save_credential(TOOL, credential)
        tool_context.state["tried"] = True
    return f"{credential.reveal('username')} is in: {error}"


async def hand_out(tool_context: ToolContext) -> Any:
    """Return what no tool may return."""
    return {"credential": await tool_context.request_credential(TOOL)}


async def careless_use(ctx: InvocationContext) -> None:
    """Own logic that says its secret, in every way there is."""
    secret = (await ctx.request_credential(OWN)).reveal()
    for key, value in (("key", secret), ("user:deep", {"k": [f"Bearer {secret}"]}), ("deep", {secret: 1}), (secret, 1)):
        with pytest.raises(SecretError):
            ctx.state[key] = value
    with pytest.raises(SecretError):
        ctx.state.extend("list", [secret])
    await ctx.progress(f"with {secret}")
    await ctx.step("headers", lambda: {"Authorization": f"Bearer {secret}"})

    def fails() -> None:
        raise OSError(f"401 for {secret}")

    try:
        await ctx.step("fails", fails)
    except OSError as error:
        await ctx.emit(Event(error_code="OSError", error_message=str(error)))
    await ctx.emit(Event(message=f"the key is {secret}", output=[secret], custom_metadata={"key": secret}))
    await ctx.emit(Event(message="partial " + secret, partial=True))


async def careless_log_in(tool_context: ToolContext) -> Any:
    """Log in, and tell all about it."""
    credential = await tool_context.request_credential(TOOL)
    with pytest.raises(SecretError):
        tool_context.state["temp:password"] = credential.reveal()
    await tool_context.progress(credential.reveal())
    await tool_context.emit(Event(message=f"the password is {credential.reveal()}"))
    return {"password": credential.reveal(), "url": f"https://ada:{credential.reveal()}@x.test"}


async def failing_log_in(tool_context: ToolContext) -> Any:
    """Fail, and tell with what."""
    credential = await tool_context.request_credential(TOOL)
    try:
        raise KeyError(credential.reveal())
    except KeyError as cause:
        error = ValueError(f"wrong password {credential.reveal()}")
        error.add_note(f"that was {credential.reveal()}")
        raise error from cause


def team(*, careless: bool) -> SequentialAgent:
    if careless:
        logic, tools = careless_use, (careless_log_in, failing_log_in)
    else:
        logic, tools = use, (log_in, hand_out)
    calls = [call(tool.__name__) for tool in tools]
    model = ScriptedLlm([calls, "done"])
    caller = LlmAgent(name="caller", model=model, tools=[FunctionTool(tool) for tool in tools])
    return SequentialAgent(name="team", sub_agents=[Logic(name="own", logic=logic), caller])


CODE = (types.ModuleType, type, types.FunctionType, types.FrameType, types.CoroutineType, trio.lowlevel.Task)


def reachable(*roots: Any) -> Iterator[Any]:
    """All objects that can be reached from these, but by tasks and code, and what keeps the secrets on purpose."""
    seen, todo = {id(root) for root in roots}, list(roots)
    while todo:
        one = todo.pop()
        if isinstance(one, (*CODE, AuthCredential, Secrets)):
            continue
        yield one
        for other in gc.get_referents(one):
            if id(other) not in seen:
                seen.add(id(other))
                todo.append(other)


@pytest.mark.parametrize("careless", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_no_byte_of_a_run_has_its_secrets(
    kind: str, careless: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """
    Store, write-ahead log, exports, logs, output, contexts and what the model is asked: with agents that keep their
    secrets, and with such that say them wherever they can.
    """
    caplog.set_level(logging.DEBUG)
    contexts: list[str] = []

    class Looking(BasePlugin):
        async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
            for each in reachable(invocation_context):
                if type(each).__module__.startswith("minirun") or isinstance(each, (str, bytes)):
                    contexts.append(repr(each))

    async with store(kind, tmp_path) as sessions:
        credentials = InMemoryCredentialService()
        plugins = [
            LoggingPlugin(level=logging.DEBUG, max_text=10_000),
            Tracing(careful=not careless),
            Looking("looking"),
        ]
        runner = _runner(team(careless=careless), sessions, credentials, plugins)
        delivered: list[Event] = []
        message: Any = "go"
        for _ in range(10):
            async with runner.run_async(**PLACE, new_message=message) as run:
                delivered += [event async for event in run]
            if not run.pending:
                break
            pending = run.pending[0]
            assert pending.auth_config is not None
            print(pending, run.pending, repr(run))
            credential = OWN_CREDENTIAL if pending.auth_config == OWN else TOOL_CREDENTIAL
            message = await runner.provide_credential(pending, credential)
            print(repr(message))
        assert run.status == "completed"
        where: dict[str, Any] = {"app_name": "app", **PLACE}
        log = await sessions.read_events(**where)
        session = await sessions.get_session(**where)
        written = {
            "events": "\n".join(map(to_json, log)),
            "reprs": repr(log) + repr(session) + repr(dict(session.state if session else {})),
            "delivered": "".join(map(to_json, delivered)) + repr(delivered),
            "contexts": "\n".join(contexts),
            "logged": caplog.text + "".join(repr(record.__dict__) for record in caplog.records),
            "services": repr(credentials) + repr(sessions) + repr(runner) + repr(vars(runner)),
        }
        files = files_in(tmp_path)
    captured = capfd.readouterr()
    written |= {"stdout": captured.out, "stderr": captured.err}
    everything: dict[str, bytes | str] = {**written, **files}
    assert {name: leaks(text) for name, text in everything.items() if leaks(text)} == {}
    assert contexts
    assert len(captured.out) > 10_000
    if kind == "sqlite":
        assert {"s.db", "s.db-wal"} <= files.keys()
    if careless:
        assert HIDDEN in written["events"]
        assert "wrong password" in written["events"]
    else:
        assert "SecretError" in written["events"]
    assert "ada-lovelace" in written["events"] or careless


def _runner(agent: Any, sessions: BaseSessionService, credentials: Any, plugins: list[Any]) -> Runner:
    return Runner(
        app=App("app", agent, plugins=plugins),
        session_service=sessions,
        credential_service=credentials,
        auto_create_session=True,
    )


async def test_the_model_is_never_shown_a_secret() -> None:
    """Whatever tools return, and however they fail."""
    seen: list[str] = []
    answers = iter([[call("careless_log_in"), call("failing_log_in")], "done"])

    def answer(request: Any) -> Any:
        seen.append(repr(list(request.contents)))
        return next(answers)

    tools = [FunctionTool(careless_log_in), FunctionTool(failing_log_in)]
    credentials = InMemoryCredentialService()
    await credentials.save_credential(app_name="app", user_id="u", credential_key="tool", credential=TOOL_CREDENTIAL)
    runner = _runner(
        LlmAgent(name="a", model=ScriptedLlm(answer), tools=tools), InMemorySessionService(), credentials, []
    )
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert len(seen) == 2
    assert leaks("".join(seen)) == []
    assert HIDDEN in seen[1]


async def test_what_a_run_fails_with_has_no_secret() -> None:
    """The error keeps its type and its words but the secret, for hooks and for the caller; so do its notes."""

    async def logic(ctx: InvocationContext) -> None:
        secret = (await ctx.request_credential(OWN)).reveal()
        del ctx
        error = OSError(5, f"refused: {secret}")
        error.add_note(secret)
        raise ExceptionGroup("several", [error, ValueError("other")])

    credentials = InMemoryCredentialService()
    await credentials.save_credential(app_name="app", user_id="u", credential_key="own", credential=OWN_CREDENTIAL)
    runner = _runner(Logic(name="own", logic=logic), InMemorySessionService(), credentials, [Tracing()])
    with pytest.raises(OSError, match="refused: ") as caught:
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert leaks(str(caught.value) + repr(caught.value.__notes__) + with_locals(caught.value)) == []


def test_short_secrets_are_left_where_they_are() -> None:
    """A secret of a few characters is a part of ordinary words; taking it out would make the log unreadable."""
    secrets = Secrets()
    event = Event(author="a", message="cat and concatenation")
    assert secrets.out_of_event(event) is event
    secrets.know(AuthCredential("basic", username="concatenation", password="cat"))
    assert secrets.out_of_event(event) is event
    secrets.know(AuthCredential("custom", one="concatenation", two="and concatenation"))
    assert secrets.out_of_event(event).text == f"cat {HIDDEN}"
    assert repr(secrets) == object.__repr__(secrets)


@pytest.mark.parametrize("secret", [PASSWORD, 'quote\'s and "quotes"', "tab\tand \\backslash", "\U0001f511 of a vault"])
def test_a_secret_is_found_in_every_form_in_which_it_may_be_written(secret: str) -> None:
    """As it is, in JSON with letters beyond ASCII and without, as Python shows text, ASCII and bytes; twice, too."""
    secrets = Secrets()
    secrets.know(AuthCredential("basic", username="ada", password=secret))
    forms = [secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret), ascii(secret)]
    for form in (*forms, repr(secret.encode())):
        text = f"see {form}, {form}"
        hidden = secrets.out_of_text(text)
        assert hidden.count(HIDDEN) == 2
        assert secret[-8:] not in hidden
        with pytest.raises(SecretError):
            secrets.check_value(text, "note")


def test_the_longest_secret_is_taken_out_first() -> None:
    """One that is a part of another leaves nothing of that."""
    secrets = Secrets()
    secrets.know(AuthCredential("custom", one="the-short-one", two="the-short-one-and-more", three="and-the-short-one"))
    hidden = secrets.out_of_text("the-short-one-and-more and-the-short-one the-short-one")
    assert hidden == f"{HIDDEN} {HIDDEN} {HIDDEN}"


def test_what_only_looks_like_a_secret_is_left() -> None:
    """What stands in the JSON of an event by chance, across an escape, is not cut."""
    secrets = Secrets()
    secrets.know(AuthCredential("api_key", api_key="nabcdefgh"))
    event = Event(author="a", message="x\nabcdefgh")
    assert secrets.out_of_event(event) == event


async def test_replay_does_not_need_what_was_hidden() -> None:
    """An agent that had said its secret comes to the same events again; what it had said is as it was stored."""
    secret_seen: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        secret = (await ctx.request_credential(OWN)).reveal()
        secret_seen.append((await ctx.step("headers", lambda: {"key": secret}))["key"])
        await ctx.emit(Event(message=secret))
        await ctx.request_input("Well?")
        secret_seen.append(ctx.session.events[-1].text == secret)

    credentials = InMemoryCredentialService()
    await credentials.save_credential(app_name="app", user_id="u", credential_key="own", credential=OWN_CREDENTIAL)
    runner = _runner(Logic(name="own", logic=logic), InMemorySessionService(), credentials, [])
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    try:
        async with runner.run_async(**PLACE, new_message=run.pending[0].reply(1)) as run:
            await run.wait()
    except ReplayError as error:
        pytest.fail(str(error))
    assert secret_seen == [HIDDEN, HIDDEN, False]


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("filename", lambda ctx: ctx.save_artifact(KEY, Part(text="x"))),
        ("artifact", lambda ctx: ctx.save_artifact("a", Part(text=KEY))),
        ("custom_metadata", lambda ctx: ctx.save_artifact("a", Part(text="x"), {"key": KEY})),
        ("filename", lambda ctx: ctx.save_artifact_stream(KEY, [b"x"])),
        ("custom_metadata", lambda ctx: ctx.save_artifact_stream("a", [b"x"], "text/csv", {"key": KEY})),
        ("filename", lambda ctx: ctx.load_artifact(KEY)),
        ("name of the step", lambda ctx: ctx.step(KEY, int)),
        ("state key", lambda ctx: ctx.emit(Event(state={KEY: 1}))),
        ("Event.author", lambda ctx: ctx.emit(Event(author=KEY))),
    ],
)
async def test_a_secret_in_a_name_or_value_is_refused_by_what_it_is_in(
    what: str, use: Callable[[InvocationContext], Awaitable[Any]]
) -> None:
    """The message names the place and shows nothing of the secret."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(OWN)
        with pytest.raises(SecretError) as caught:
            await use(ctx)
        told.append(str(caught.value))

    told: list[str] = []
    credentials, sessions = InMemoryCredentialService(), InMemorySessionService()
    await credentials.save_credential(app_name="app", user_id="u", credential_key="own", credential=OWN_CREDENTIAL)
    runner = Runner(
        agent=Logic(name="agent", logic=logic), app_name="app", session_service=sessions,
        artifact_service=InMemoryArtifactService(), credential_service=credentials, auto_create_session=True,
    )  # fmt: skip
    await run_to_end(runner)
    assert [text.partition(":")[0] for text in told] == [what]
    assert KEY not in told[0]

