"""What takes the secrets of a run out of what it says: all texts, and nothing that holds a log together."""

from __future__ import annotations

import dataclasses
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun import (
    App,
    Event,
    InMemorySessionService,
    LlmAgent,
    Part,
    Runner,
)
from minirun._codec import to_dict, to_json
from minirun.agents import InvocationContext
from minirun.artifacts import InMemoryArtifactService
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.credentials._secrets import HIDDEN, Secrets
from minirun.errors import SecretError
from minirun.events import EventActions
from minirun.memory import InMemoryMemoryService
from minirun.plugins import DebugLoggingPlugin, LoggingPlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, ToolContext
from minirun.types import Blob, Content, FunctionCall, FunctionResponse

from .helpers import PLACE, Logic
from .otel import Recorder

SECRET = "s3cret-t0ken"
CONFIG = AuthConfig("mail", "bearer")


def knowing(*texts: str) -> Secrets:
    """The secrets of a run that was given these."""
    secrets = Secrets()
    values: dict[str, Any] = {f"n{number}": text for number, text in enumerate(texts)}
    secrets.know(AuthCredential("custom", **values))
    return secrets


# --- values -----------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from('ab1"\\\né{'), max_size=12)
HIDDEN_TEXTS = st.text(st.sampled_from('ab1"\\\né{'), min_size=1, max_size=10)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """A value with all that is free to say left out."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, (list, tuple)) else None


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


@given(VALUES, st.lists(HIDDEN_TEXTS, min_size=1, max_size=3, unique=True))
def test_no_text_of_a_value_has_a_secret_and_its_shape_is_as_before(value: Any, hidden: list[str]) -> None:
    """A long secret is in none, a short one is none of them; nothing happens to it the second time."""
    secrets = knowing(*hidden)
    found = secrets.out_of(value)
    assert shape(found) == shape(value)
    for text in texts_of(found):
        assert text not in hidden
        assert not any(secret in text for secret in hidden if len(secret) >= 8)
    assert secrets.out_of(found) == found
    assert Secrets().out_of(value) is value


def test_what_has_no_secret_is_the_same_object() -> None:
    """Nothing is copied to find that out."""
    event = Event(author="a", content=Content(parts=[Part(text="x")]), output={"a": [1, "b"]})
    assert knowing(SECRET).out_of_event(event) is event


@pytest.mark.parametrize(
    "password",
    [
        *("function", "response", "function_response", "content", "author", "parts", "timestamp", "user"),
        *("postgres", "db_query", "call-1", "invocation_id", "state_delta", "state_key", "f.txt", "aside", "app_error"),
    ],
)
def test_what_holds_a_log_together_stays(password: str) -> None:
    """Names of fields, agents, tools, keys and artifacts, ids, roles and kinds of errors are no texts."""
    event = Event(
        id="invocation_id",
        author="postgres",
        branch="postgres.db_query",
        content=Content(
            role="user",
            parts=[
                Part(function_call=FunctionCall(id="call-1", name="db_query", args={"response": 1})),
                Part(function_response=FunctionResponse(id="call-1", name="function", response={"function": None})),
            ],
        ),
        error_code="app_error",
        actions=EventActions(
            state_delta={"state_key": 1},
            state_removed=["postgres"],
            artifact_delta={"f.txt": 0},
            transfer_to_agent="postgres",
            replay={"aside": True, "asked_by": "run/postgres", "step": {"name": "db_query", "path": "x"}},
        ),
        custom_metadata={"timestamp": 1},
    )
    assert knowing(password).out_of_event(event) is event


@pytest.mark.parametrize("password", ["string", "object", "bearer", "the mail", "required"])
async def test_a_question_can_be_answered_whatever_the_secret_is(password: str) -> None:
    """What it says of the form of its answer, and which credential it asks for, stays as it is."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        schema = {"type": "object", "properties": {password: {"type": "string"}}, "required": [password]}
        await ctx.request_input("What?", response_schema=schema, payload=password)
        await ctx.request_credential(AuthConfig("the mail", "bearer"))

    runner = await runner_of(Logic(name="own", logic=logic), password=password)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    [question] = run.pending
    assert question.payload == HIDDEN
    async with runner.run_async(**PLACE, new_message=question.reply({password: "x"})) as run:
        await run.wait()
    [question] = run.pending
    assert question.auth_config == AuthConfig("the mail", "bearer")


def test_short_secrets_and_numbers() -> None:
    """A short secret is hidden where it is the whole text; one of six digits or more as a number, too."""
    secrets = knowing("cat", "471147", "12345")
    assert secrets.out_of(["cat", "a cat", 471147, 471148, 12345, True, -471147]) == [
        *(HIDDEN, "a cat", HIDDEN, 471148, 12345, True, -471147)
    ]


# --- what is refused --------------------------------------------------------------------------------------------------


async def runner_of(agent: Any, *, plugins: Any = (), password: str = SECRET) -> Runner:
    credentials = InMemoryCredentialService()
    where = {"app_name": "app", "user_id": "u", "credential_key": "mail"}
    await credentials.save_credential(**where, credential=AuthCredential("bearer", token=password))
    return Runner(
        app=App("app", agent, plugins=list(plugins)),
        session_service=InMemorySessionService(),
        credential_service=credentials,
        artifact_service=InMemoryArtifactService(),
        memory_service=InMemoryMemoryService(),
        auto_create_session=True,
    )


async def log_of(runner: Runner) -> str:
    return "\n".join(map(to_json, await runner.session_service.read_events(app_name="app", **PLACE)))


REFUSED: dict[str, Callable[[InvocationContext], Any]] = {
    "state[": lambda ctx: ctx.state.update(key=[{"k": f"a {SECRET}"}]),
    "state key": lambda ctx: ctx.state.update({f"user:{SECRET}": 1}),
    "state key ": lambda ctx: ctx.state.add(SECRET),
    "state[ ": lambda ctx: ctx.state.extend("key", [SECRET]),
    "Event.author": lambda ctx: ctx.emit(Event(author=f"the {SECRET}")),
    "Event": lambda ctx: ctx.emit(Event(message="x", custom_metadata={"a": [{SECRET: 1}]})),
    "state key  ": lambda ctx: ctx.emit(Event(state={SECRET: 1})),
    "name of the step": lambda ctx: ctx.step(f"with {SECRET}", lambda: 1),
    "filename": lambda ctx: ctx.save_artifact(f"{SECRET}.txt", Part(text="x")),
    "artifact": lambda ctx: ctx.save_artifact("f.txt", Part(text=f"a {SECRET}")),
    "artifact ": lambda ctx: ctx.save_artifact("f.txt", Part(inline_data=Blob(data=SECRET.encode(), mime_type="a/b"))),
    "custom_metadata": lambda ctx: ctx.save_artifact("f.txt", Part(text="x"), {"k": SECRET}),
    "memories": lambda ctx: ctx.add_memory([f"a {SECRET}"]),
    "memories ": lambda ctx: ctx.add_memory(["x"], custom_metadata={"k": SECRET}),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_secret_is_refused_where_it_cannot_be_hidden(what: str) -> None:
    """In names, and in what is stored for others, before anything is stored; the message says where, and not what."""
    refused: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        with pytest.raises(SecretError) as caught:
            found = REFUSED[what](ctx)
            if found is not None:
                await found
        refused.append(str(caught.value))
        assert await ctx.list_artifacts() == []
        assert not (await ctx.search_memory("a x")).memories
        ctx.state["fine"] = ctx.state.to_dict()

    runner = await runner_of(Logic(name="own", logic=logic))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert refused[0].startswith(what.strip())
    assert SECRET not in refused[0] + await log_of(runner)
    assert (run.status, dict(run.session.state)) == ("completed", {"fine": {}})


async def test_who_has_the_name_of_a_secret_keeps_it() -> None:
    """Agents and tools that are named like a password work on."""

    async def reset_password(tool_context: ToolContext) -> dict[str, Any]:
        """Reset."""
        await tool_context.request_credential(CONFIG)
        await tool_context.emit(Event(message="password"))
        return {"password": "password"}

    model = ScriptedLlm([call("reset_password"), "a password"])
    agent = LlmAgent(name="password_agent", model=model, tools=[FunctionTool(reset_password)], output_key="answer")
    runner = await runner_of(agent, password="password")
    async with runner.run_async(**PLACE, new_message="go") as run:
        events = [event async for event in run]
    assert {event.author for event in events} == {"password_agent"}
    assert [response.response for event in events for response in event.get_function_responses()] == [
        {"password": HIDDEN}
    ]
    assert (run.session.state["answer"], events[-1].text) == (f"a {HIDDEN}",) * 2


async def test_what_the_user_says_is_no_secret_because_of_its_author() -> None:
    """Events of the user are such also where a password has the same letters; no other name may be the password."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        await ctx.emit(Event(author="user", message="as the user"))

    runner = await runner_of(Logic(name="own", logic=logic), password="user")
    async with runner.run_async(**PLACE, new_message="go") as run:
        assert [event.author async for event in run] == ["user"]


async def test_a_result_with_a_secret_for_a_key_is_a_failure() -> None:
    """A key cannot be hidden; the model is told that there was one, and not which."""

    async def look(tool_context: ToolContext) -> dict[str, Any]:
        """Look."""
        return {"found": {(await tool_context.request_credential(CONFIG)).reveal(): 1}}

    runner = await runner_of(LlmAgent(name="a", model=ScriptedLlm([call("look"), "x"]), tools=[FunctionTool(look)]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    log = await log_of(runner)
    assert SECRET not in log
    assert "SecretError" in log


# --- exceptions -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    token: str


@attrs.frozen
class FrozenToo(Exception):
    token: str


@attrs.frozen
class Holder:
    token: str


class Holding(Exception):
    """Nothing looks into what it holds."""

    def __init__(self, holder: Holder) -> None:
        super().__init__("x")
        self.holder = holder

    def __str__(self) -> str:
        return f"bad token {self.holder.token}"


class Slotted(Exception):
    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        super().__init__("x")
        self.token = token

    def __str__(self) -> str:
        return f"bad token {self.token}"


class Shows:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Shows({self.value!r})"


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def caused(secret: str) -> Exception:
    error = ValueError("outer")
    error.__cause__ = RuntimeError({"x": secret})
    error.__cause__.__context__ = Frozen(secret)
    return error


def with_note(secret: str) -> Exception:
    error = ExceptionGroup(f"failed {secret}", [ValueError(f"inner {secret}"), Frozen(secret)])
    error.add_note(f"note {secret}")
    return error


RAISED: dict[str, Callable[[str], Exception]] = {
    "a text": ValueError,
    "a dict": lambda secret: ValueError({"authorization": secret}),
    "a tuple": lambda secret: ValueError(("a", [secret])),
    "bytes": lambda secret: ValueError(secret.encode()),
    "an object": lambda secret: ValueError(Shows({"h": secret})),
    "frozen": Frozen,
    "frozen by attrs": FrozenToo,
    "slotted": Slotted,
    "silent": Silent,
    "a key": KeyError,
    "nested": lambda secret: ValueError(RuntimeError(secret)),
    "of the system": lambda secret: OSError(5, "refused", f"/x/{secret}"),
    "caused": caused,
    "a group": with_note,
}


async def run_that_fails(error: Exception, in_a_tool: bool, plugins: Any) -> tuple[BaseException | None, str]:
    """What a run with an agent, or a tool, that raises this fails with, and its log."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        raise error

    async def tool(tool_context: ToolContext) -> None:
        """Fail."""
        await tool_context.request_credential(CONFIG)
        raise error

    agent: Any = Logic(name="own", logic=logic)
    if in_a_tool:
        agent = LlmAgent(name="a", model=ScriptedLlm([call("tool"), "done"]), tools=[FunctionTool(tool)])
    runner = await runner_of(agent, plugins=plugins)
    failure: BaseException | None = None
    try:
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    except Exception as caught:
        failure = caught
    return failure, await log_of(runner)


def text_in(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir())


@pytest.mark.parametrize("in_a_tool", [False, True])
@pytest.mark.parametrize("kind", RAISED)
async def test_what_is_raised_is_written_without_its_secret(
    kind: str, in_a_tool: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To events, records, debug files and spans; and the run, or the call, fails with what was raised."""
    caplog.set_level(logging.DEBUG)
    error, recorder = RAISED[kind](SECRET), Recorder()
    plugins = [LoggingPlugin(max_text=10_000), DebugLoggingPlugin(tmp_path), recorder.plugin(capture_content=True)]
    failure, log = await run_that_fails(error, in_a_tool, plugins)
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    assert failure is (None if in_a_tool else first)
    assert type(first).__name__ in log
    formatter = logging.Formatter()
    written = {
        "log": log,
        "records": caplog.text + "".join(map(formatter.format, caplog.records)),
        "fields": repr([vars(record).get("minirun") for record in caplog.records]),
        "file": text_in(tmp_path),
        "spans": "".join(span.to_json() for span in recorder.spans),
    }
    assert [where for where, text in written.items() if SECRET in text] == []
    assert all(type(first).__name__ in text for text in written.values())


def test_what_cannot_be_cleaned_is_left_and_shown_by_a_stand_in() -> None:
    """It has the name, the words but the secret, the notes, the frames and the causes of what was raised."""
    secrets, error = knowing(SECRET), Holding(Holder(SECRET))
    try:
        raise error
    except Holding:
        secrets.out_of_error(error)
    assert error.holder.token == SECRET
    shown = secrets.shown(error)
    assert "".join(traceback.format_exception(shown)) == "".join(traceback.format_exception(error)).replace(
        SECRET, HIDDEN
    )
    harmless = ValueError("x")
    assert secrets.shown(harmless) is harmless
    assert Secrets().shown(error) is error


def test_nothing_fails_while_an_exception_is_cleaned() -> None:
    """Whatever its attributes do, and whatever it has in it: itself, for example."""

    class Hostile(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise RuntimeError("no")

        @property
        def filename(self) -> str:
            raise RuntimeError("no")

    error = Hostile(SECRET)
    looped = ValueError([SECRET])
    looped.args = ([SECRET, looped],)
    vars(error)["self"] = looped
    endless: list[Any] = [SECRET]
    endless.append(endless)
    secrets = knowing(SECRET)
    for each in (error, looped, ValueError(endless)):
        secrets.out_of_error(each)
        assert SECRET not in secrets.text_of(each)
    assert looped.args[0][0] == HIDDEN


async def test_a_frozen_exception_is_a_failure_like_any_other() -> None:
    """Also in a group, where others are mentioned on it."""

    async def logic(ctx: InvocationContext) -> None:
        raise ExceptionGroup("several", [Frozen("x"), ValueError("other")])

    runner = await runner_of(Logic(name="own", logic=logic))
    with pytest.raises(Frozen):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert "Frozen" in await log_of(runner)


def test_an_event_is_written_as_json_without_what_was_hidden() -> None:
    """What comes out can be stored: it is JSON, and reads back."""
    event = Event(author="a", output=[SECRET, {"k": f"a {SECRET}"}], error_message=SECRET)
    assert json.loads(to_json(knowing(SECRET).out_of_event(event))) == {
        **to_dict(event),
        "output": [HIDDEN, {"k": f"a {HIDDEN}"}],
        "error_message": HIDDEN,
    }
