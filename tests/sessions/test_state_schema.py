"""A schema of the state: which keys the session has, and what each holds, whoever writes it and wherever."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import attrs
import pydantic
import pytest

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    EventActions,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Runner,
    SqliteSessionService,
    ToolContext,
)
from minirun.agents import CallbackContext, ReadonlyContext
from minirun.errors import ConfigurationError, InvocationEndedError, MinirunError, StateSchemaError
from minirun.flows._state_schema import StateSchema
from minirun.plugins import BasePlugin
from minirun.sessions import BaseSessionService, InvocationStatus
from minirun.sessions._state_schema import StateSchemas, constrain
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, Logic

Work = Callable[[InvocationContext], Awaitable[None]]


LATER_S = 4e9  # in the year 2096


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@attrs.define
class Item:
    name: str
    pieces: int = 1


@attrs.define
class Desk:
    """What most tests have as a schema."""

    count: int
    tags: list[str] = attrs.field(factory=list)
    price: float = 0.0
    mode: Literal["open", "shut"] = "open"
    items: list[Item] = attrs.field(factory=list)
    level: Literal[0, 1, 2] = 0
    answer: str | None = None


@dataclass
class DeskData:
    count: int
    tags: list[str] = dataclass_field(default_factory=list)


class DeskDict(TypedDict):
    count: int
    tags: NotRequired[list[str]]


class DeskModel(pydantic.BaseModel):
    count: int
    tags: list[str] = []


class OpenModel(pydantic.BaseModel, extra="allow"):
    count: int = pydantic.Field(default=0, ge=0, le=10)


class Alias(pydantic.BaseModel):
    size: int = pydantic.Field(default=0, alias="theSize")


KINDS = [Desk, DeskData, DeskDict, DeskModel]


@pytest.fixture(params=["memory", "sqlite"])
async def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseSessionService]:
    """A session service of each kind."""
    if request.param == "memory":
        yield InMemorySessionService()
        return
    async with SqliteSessionService(tmp_path / "state.db", durability="process") as service:
        yield service


def runner_of(
    logic: BaseAgent | Work, schema: Any = Desk, sessions: BaseSessionService | None = None, **options: Any
) -> Runner:
    """A runner of an app whose state has a schema."""
    agent = logic if isinstance(logic, BaseAgent) else Logic(name="agent", logic=logic)
    app = App("app", agent, state_schema=schema, **options)
    return Runner(app=app, session_service=sessions or InMemorySessionService(), auto_create_session=True)


async def run(runner: Runner, message: str | Content | None = "go", **options: Any) -> Any:
    """Run to the end, and return the run."""
    async with runner.run_async(**PLACE, new_message=message, **options) as started:
        await started.wait()
    return started


async def state_of(runner: Runner) -> dict[str, Any]:
    """What is stored."""
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    return dict(session.state)


async def stored(runner: Runner) -> list[Event]:
    """The events of the session, if there is one, without the creation record."""
    return await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)


async def said(ctx: InvocationContext) -> None:
    """Say that all is done."""
    await ctx.emit(Event(message="done"))


# --- which writes are looked at ---------------------------------------------------------------------------------------


def put(ctx: InvocationContext, **values: Any) -> None:
    ctx.state.update(values)


def delete(ctx: InvocationContext) -> None:
    ctx.state["count"] = 1
    del ctx.state["count"]


def pop(ctx: InvocationContext) -> None:
    ctx.state["count"] = 1
    ctx.state.pop("count")


WRITES: dict[str, Callable[[InvocationContext], object]] = {
    "item": lambda ctx: put(ctx, count="5"),
    "update": lambda ctx: ctx.state.update(count=5.5),
    "setdefault": lambda ctx: ctx.state.setdefault("count", "5"),
    "add": lambda ctx: ctx.state.add("count", 0.5),
    "add to text": lambda ctx: ctx.state.add("answer"),
    "extend": lambda ctx: ctx.state.extend("tags", ["ok", 5]),
    "extend a number": lambda ctx: ctx.state.extend("count", [5]),
    "delete": delete,
    "pop": pop,
    "nested": lambda ctx: put(ctx, items=[{"name": "pen", "pieces": "2"}]),
    "literal": lambda ctx: put(ctx, mode="ajar"),
    "undeclared": lambda ctx: put(ctx, cuont=5),
    "undeclared add": lambda ctx: ctx.state.add("cuont"),
    "undeclared extend": lambda ctx: ctx.state.extend("tag", ["a"]),
    "another colon": lambda ctx: ctx.state.update({"a:b": 1}),
    "session colon": lambda ctx: ctx.state.update({"session:x": 1}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_that_does_not_fit_raises_where_it_is_made(
    write: Callable[[InvocationContext], object], sessions: BaseSessionService
) -> None:
    """
    Every way to write `ctx.state` is checked at once, raises StateSchemaError, and writes nothing.
    """
    seen: list[object] = []

    async def logic(ctx: InvocationContext) -> None:
        before = dict(ctx.state)
        try:
            write(ctx)
        except StateSchemaError as error:
            seen.append(error)
        if write not in (delete, pop):
            assert dict(ctx.state) == before
        await said(ctx)

    runner = runner_of(logic, sessions=sessions)
    await run(runner)
    [error] = seen
    assert isinstance(error, MinirunError)
    assert isinstance(error, TypeError)
    assert await state_of(runner) in ({}, {"count": 1})


EVENTS = {
    "delta": EventActions(state_delta={"count": "5"}),
    "undeclared": EventActions(state_delta={"cuont": 5}),
    "add": EventActions(state_ops={"count": {"add": 0.5}}),
    "extend": EventActions(state_ops={"tags": {"extend": [5]}}),
    "removed": EventActions(state_removed=["count"]),
    "undeclared removed": EventActions(state_removed=["cuont"]),
}


@pytest.mark.parametrize("actions", EVENTS.values(), ids=EVENTS)
async def test_an_event_that_does_not_fit_is_not_stored(actions: EventActions, sessions: BaseSessionService) -> None:
    """
    The writes that an event brings itself are checked before it is stored; the agent that emits it is told.
    """

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["price"] = 2
        with pytest.raises(StateSchemaError):
            await ctx.emit(Event(message="wrong", actions=actions))
        await said(ctx)

    runner = runner_of(logic, sessions=sessions)
    await run(runner)
    assert [event.text for event in await stored(runner)] == ["go", "done"]
    assert await state_of(runner) == {"price": 2}, "what was pending goes with the next event"


async def test_what_fits_is_stored_as_it_was_given(sessions: BaseSessionService) -> None:
    """
    An int stays an int in a float field, a nested object keeps what it leaves out, and no default is filled in.
    """
    values = {"count": 5, "price": 3, "items": [{"name": "pen"}], "answer": None}

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.update(values)
        ctx.state.extend("tags", ["a"])
        ctx.state.add("level", 2)
        ctx.state["mode"] = "shut"
        del ctx.state["mode"]
        with pytest.raises(TypeError):
            ctx.state["items"].append({"name": 5})  # what was read is frozen, so nothing gets in behind the schema
        await said(ctx)

    runner = runner_of(logic, sessions=sessions)
    await run(runner)
    state = await state_of(runner)
    assert state == {**values, "tags": ["a"], "level": 2}
    assert type(state["price"]) is int


@pytest.mark.parametrize("schema", KINDS)
async def test_every_kind_of_class_is_a_schema(schema: Any) -> None:
    """
    attrs classes, dataclasses, TypedDicts and pydantic models refuse the same, and none converts anything.
    """
    refused: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        for key, value in {"count": "5", "tags": "ab", "cuont": 1, "other": 1}.items():
            with pytest.raises(StateSchemaError) as caught:
                ctx.state[key] = value
            assert caught.value.key == key
            refused.append(key)
        for value in (3.0, True, None):
            with pytest.raises(StateSchemaError):
                ctx.state["count"] = value
        ctx.state.update(count=5, tags=["a"])
        del ctx.state["tags"]
        with pytest.raises(StateSchemaError, match="to be deleted"):
            del ctx.state["count"]
        await said(ctx)

    runner = runner_of(logic, schema)
    await run(runner)
    assert refused == ["count", "tags", "cuont", "other"]
    assert await state_of(runner) == {"count": 5}


def test_strictness_reaches_what_is_inside() -> None:
    """
    Unions, literals and models inside of a schema take no 3.0 for an int and no text for a number either.
    """

    @attrs.define
    class Nest:
        model: DeskModel
        union: int | list[int]
        one: Literal[1]
        either: float | str = 0.0

    nest = StateSchema.of(Nest)
    for key, fits, wrong in (
        ("model", {"count": 1}, {"count": "1"}),
        ("union", [1], [1.0]),
        ("union", 1, 1.0),
        ("one", 1, 1.0),
        ("either", 1, True),
    ):
        assert nest.problems(key, fits) == []
        assert nest.problems(key, wrong) != [], (key, wrong)


async def test_other_scopes_are_not_looked_at(sessions: BaseSessionService) -> None:
    """
    `app:`, `user:` and `temp:` keys bypass the schema, in every way to write them.
    """

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.update({"app:a": 1, "user:b": "x", "temp:c": [1]})
        ctx.state.add("user:n", 0.5)
        ctx.state.extend("temp:c", ["y"])
        del ctx.state["user:b"]
        await ctx.emit(Event(message="done", actions=EventActions(state_delta={"app:d": {}}, state_removed=["user:z"])))

    runner = runner_of(logic, sessions=sessions)
    await run(runner, state_delta={"user:delta": 1, "temp:delta": 1})
    assert await state_of(runner) == {"app:a": 1, "user:n": 0.5, "app:d": {}, "user:delta": 1}


# --- what the error says ----------------------------------------------------------------------------------------------


async def test_the_error_names_the_key_the_schema_its_fields_and_the_nearest_name() -> None:
    """
    A misspelt key is answered with the field that was meant; a value with what is expected, and where in it.
    """
    errors: list[StateSchemaError] = []

    async def logic(ctx: InvocationContext) -> None:
        for key, value in {"cuont": 1, "nothing like it": 1, "items": [{"name": "a"}, {"nmae": "b"}]}.items():
            with pytest.raises(StateSchemaError) as caught:
                ctx.state[key] = value
            errors.append(caught.value)

    await run(runner_of(logic))
    misspelt, strange, nested = errors
    assert (misspelt.key, misspelt.schema, misspelt.nearest) == ("cuont", "Desk", "count")
    assert misspelt.fields == ("count", "tags", "price", "mode", "items", "level", "answer")
    assert "expected a field of Desk (count, tags, price" in str(misspelt)
    assert "did you mean 'count'?" in str(misspelt)
    assert strange.nearest is None
    assert "did you mean" not in str(strange)
    assert "state['items'][1].name: missing, expected string" in str(nested)
    assert "the state_schema Desk" in str(nested)


# --- tools, callbacks, plugins, output_key ----------------------------------------------------------------------------


async def test_a_tool_that_breaks_it_fails_as_any_other(sessions: BaseSessionService) -> None:
    """
    The model is told, nothing that the tool wrote is stored, and the run goes on.
    """

    def put_text(tool_context: ToolContext) -> str:
        """Write what does not fit."""
        tool_context.state["price"] = 5
        tool_context.state["count"] = "five"
        return "written"

    async def emit_text(tool_context: ToolContext) -> str:
        """Emit what does not fit."""
        await tool_context.emit(Event(message="halfway", state={"count": "six"}))
        return "emitted"

    model = ScriptedLlm([call("put_text"), call("emit_text"), "Sorry."])
    runner = runner_of(LlmAgent(name="clerk", model=model, tools=[put_text, emit_text]), sessions=sessions)
    answer = (await run(runner)).answer
    assert answer.text == "Sorry."
    responses = [each.response for event in await stored(runner) for each in event.get_function_responses()]
    assert [response["error"]["type"] for response in responses] == ["StateSchemaError"] * 2
    assert "expected integer, found string 'five'" in responses[0]["error"]["message"]
    assert await state_of(runner) == {}


async def test_of_two_tools_beside_each_other_one_breaks_it(sessions: BaseSessionService) -> None:
    """
    Each of two calls in one turn fits for itself, and together they do not: the later one fails, the first stands.
    """

    def raise_level(by: int, tool_context: ToolContext) -> str:
        """Raise the level, of at most 2."""
        tool_context.state.add("level", by)
        tool_context.state.extend("tags", [f"by {by}"])
        return "raised"

    model = ScriptedLlm([[call("raise_level", by=2), call("raise_level", by=1)], "Done."])
    runner = runner_of(LlmAgent(name="clerk", model=model, tools=[raise_level]), sessions=sessions)
    assert (await run(runner)).answer.text == "Done."
    responses = [each.response for event in await stored(runner) for each in event.get_function_responses()]
    assert responses[0] == {"result": "raised"}
    assert responses[1]["error"]["type"] == "StateSchemaError"
    assert await state_of(runner) == {"level": 2, "tags": ["by 2"]}


async def test_two_tools_beside_each_other_both_write() -> None:
    """
    What both write and fits is merged, as without a schema.
    """

    def note(text: str, tool_context: ToolContext) -> str:
        """Note something."""
        tool_context.state.extend("tags", [text])
        tool_context.state.add("count")
        return "noted"

    model = ScriptedLlm([[call("note", text="a"), call("note", text="b")], "Done."])
    runner = runner_of(LlmAgent(name="clerk", model=model, tools=[note]))
    await run(runner)
    assert await state_of(runner) == {"tags": ["a", "b"], "count": 2}


async def test_agents_beside_each_other_cannot_break_it_together(sessions: BaseSessionService) -> None:
    """
    An operation is checked against the value that is there when its event is stored, not when it was written.
    """
    refused: list[str] = []

    def riser(name: str) -> Logic:
        async def logic(ctx: InvocationContext) -> None:
            ctx.state.add("level", 2)
            try:
                await ctx.emit(Event(message=name))
            except StateSchemaError as error:
                refused.append(str(error))
                ctx.state["level"] = 2
                await ctx.emit(Event(message=f"{name} again"))

        return Logic(name=name, logic=logic)

    runner = runner_of(ParallelAgent(name="both", sub_agents=[riser("a"), riser("b")]), sessions=sessions)
    await run(runner)
    assert len(refused) == 1
    assert "expected one of 0, 1, 2, found integer 4" in refused[0]
    assert await state_of(runner) == {"level": 2}


async def test_the_answer_under_an_output_key_is_checked(sessions: BaseSessionService) -> None:
    """
    An answer whose key, or form, the schema does not allow fails the run with the key's name, and is not stored.
    """
    for key in ("count", "answre"):
        agent = LlmAgent(name="clerk", model=ScriptedLlm(["five"]), output_key=key)
        runner = runner_of(agent, sessions=sessions)
        with pytest.raises(StateSchemaError) as caught:
            await run(runner)
        assert caught.value.key == key
    assert await state_of(runner) == {}
    runner = runner_of(LlmAgent(name="clerk", model=ScriptedLlm(["five"]), output_key="answer"), sessions=sessions)
    await run(runner)
    assert await state_of(runner) == {"answer": "five"}


async def test_callbacks_and_plugins_are_checked() -> None:
    """
    A callback of an agent, of a model or of a plugin that writes what does not fit is told, as an agent is.
    """
    told: list[str] = []

    def try_it(context: Any, where: str) -> None:
        with pytest.raises(StateSchemaError):
            context.state["count"] = "5"
        context.state["tags"] = [*context.state.get("tags", ()), where]
        told.append(where)

    class Watcher(BasePlugin):
        async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> None:
            try_it(invocation_context, "message")

        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
            if event.text == "hello":
                try_it(invocation_context, "event")

        async def before_run_callback(self, *, invocation_context: Any) -> None:
            try_it(invocation_context, "run")

    def before_agent(callback_context: CallbackContext) -> None:
        try_it(callback_context, "agent")

    def before_model(callback_context: CallbackContext, llm_request: Any) -> None:
        try_it(callback_context, "model")

    agent = LlmAgent(
        name="clerk",
        model=ScriptedLlm(["hello"]),
        before_agent_callback=before_agent,
        before_model_callback=before_model,
    )
    runner = runner_of(agent, plugins=[Watcher("watcher")])
    await run(runner)
    assert told == ["message", "run", "agent", "model", "event"]
    assert await state_of(runner) == {"tags": told}


async def test_a_plugin_that_changes_what_an_event_writes_is_checked() -> None:
    """
    An event that a plugin gives in the place of another is stored only if its writes fit.
    """

    class Rewriter(BasePlugin):
        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> Event | None:
            wrong = EventActions(state_delta={"count": "5"})
            return attrs.evolve(event, actions=wrong) if event.text == "one" else None

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="one"))

    runner = runner_of(logic, plugins=[Rewriter("rewriter")])
    with pytest.raises(StateSchemaError):
        await run(runner)
    assert await state_of(runner) == {}


async def test_an_event_that_closes_a_call_is_stored_whatever_a_plugin_does() -> None:
    """
    A plugin that would have it write what does not fit fails late: the call is answered, and nothing is written.
    """

    class Rewriter(BasePlugin):
        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> Event | None:
            wrong = EventActions(state_delta={"count": "5"})
            return attrs.evolve(event, actions=wrong) if event.get_function_responses() else None

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=Content(role="model", parts=[Part(function_call=FunctionCall(name="look"))])))
        raise LookupError("this comes between")

    runner = runner_of(logic, plugins=[Rewriter("rewriter")])
    with pytest.raises(LookupError) as caught:
        await run(runner)
    assert "StateSchemaError" in "".join(caught.value.__notes__)
    assert [each.name for event in await stored(runner) for each in event.get_function_responses()] == ["look"]
    assert await state_of(runner) == {}


async def test_an_agent_that_fails_leaves_no_state_that_does_not_fit() -> None:
    """
    What an agent has added too much is not stored by its failure either: the next run begins.
    """

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.add("level", 2)
        await ctx.emit(Event(message="full"))
        ctx.state.add("level", 1)
        raise LookupError

    runner = runner_of(logic)
    with pytest.raises(LookupError):
        await run(runner)
    assert await state_of(runner) == {"level": 2}


async def test_what_a_callback_and_its_tool_add_is_checked_together() -> None:
    """
    A tool that adds to what the callback before it has added fails if both are too much; the callback's stays.
    """

    def before(tool: object, args: dict[str, Any], tool_context: ToolContext) -> None:
        tool_context.state.add("level", 2)

    def rise(tool_context: ToolContext) -> str:
        """Rise."""
        tool_context.state.add("level", 1)
        return "risen"

    model = ScriptedLlm([call("rise"), "Sorry."])
    runner = runner_of(LlmAgent(name="clerk", model=model, tools=[rise], before_tool_callback=before))
    await run(runner)
    [response] = [each.response for event in await stored(runner) for each in event.get_function_responses()]
    assert response["error"]["type"] == "StateSchemaError"
    assert await state_of(runner) == {"level": 2}


async def test_what_is_written_while_something_closes_is_checked_too() -> None:
    """
    What a hook adds after a failure is stored if the state may become that, and left out if not: the session goes on.
    """

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="two", state={"level": 2}))
        raise ValueError("fails")

    def after(callback_context: CallbackContext) -> None:
        callback_context.state["count"] = 1
        callback_context.state.add("level", 2)

    runner = runner_of(Logic(name="clerk", logic=logic, after_agent_callback=after))
    for _ in range(2):
        with pytest.raises(ValueError, match="fails"):
            await run(runner)
        assert await state_of(runner) == {"level": 2, "count": 1}


async def test_agents_used_as_tools_keep_to_it() -> None:
    """
    What runs inside of a call writes under the same schema.
    """
    refused: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        with pytest.raises(StateSchemaError):
            ctx.state["cuont"] = 1
        refused.append(ctx.agent_name)
        ctx.state["count"] = 1
        await ctx.emit(Event(message="helped"))

    helper = Logic(name="helper", description="Helps.", logic=logic)
    model = ScriptedLlm([call("helper", request="help"), "Done."])
    runner = runner_of(LlmAgent(name="clerk", model=model, tools=[AgentTool(helper)]))
    await run(runner)
    assert (refused, await state_of(runner)) == (["helper"], {"count": 1})


# --- when a run begins ------------------------------------------------------------------------------------------------


async def test_a_state_delta_that_does_not_fit_begins_nothing(sessions: BaseSessionService) -> None:
    """
    `run_async(state_delta=...)` is checked before the message is stored.
    """

    async def logic(ctx: InvocationContext) -> None:
        raise AssertionError("it runs")

    runner = runner_of(logic, sessions=sessions)
    for delta in ({"count": "5"}, {"cuont": 5}, {"a:b": 1}):
        with pytest.raises(StateSchemaError):
            await run(runner, state_delta=delta)
    assert await stored(runner) == []


async def test_a_session_whose_state_does_not_fit_begins_nothing(sessions: BaseSessionService) -> None:
    """
    A value that was there before the schema fails the run before its message is stored, until it is put right.
    """
    runner = runner_of(said, sessions=sessions)
    await sessions.create_session(app_name="app", **PLACE, state={"count": "5", "tags": ["a"]})
    with pytest.raises(StateSchemaError, match="expected integer, found string '5'") as caught:
        await run(runner)
    assert caught.value.key == "count"
    assert await stored(runner) == []
    await run(runner, state_delta={"count": 5})
    assert await state_of(runner) == {"count": 5, "tags": ["a"]}


async def test_keys_that_no_schema_knows_stay_as_they_are(sessions: BaseSessionService) -> None:
    """
    A session that is older than its schema goes on: a key of before can be read and deleted, and not written.
    """

    async def logic(ctx: InvocationContext) -> None:
        assert ctx.state["old"] == 1
        with pytest.raises(StateSchemaError):
            ctx.state["old"] = 2
        del ctx.state["old"]
        await ctx.emit(Event(message="done", actions=EventActions(state_removed=["older"])))

    runner = runner_of(logic, sessions=sessions)
    await sessions.create_session(app_name="app", **PLACE, state={"old": 1, "older": 2, "count": 3})
    await run(runner)
    assert await state_of(runner) == {"count": 3}


async def test_what_is_missing_does_not_keep_a_run_from_beginning() -> None:
    """
    A new session has no state yet, so a required field may be missing; nothing reads it as its default.
    """

    async def logic(ctx: InvocationContext) -> None:
        assert ctx.state.get("price") is None
        assert "count" not in ctx.state
        await said(ctx)

    await run(runner_of(logic))


# --- resuming ---------------------------------------------------------------------------------------------------------


@attrs.define
class Strict:
    """What the app has learned since: notes have an author."""

    notes: list[dict[str, str]] = attrs.field(factory=list)
    count: int = 0


@attrs.define
class Loose:
    notes: list[Any] = attrs.field(factory=list)
    count: int = 0


async def asks(ctx: InvocationContext) -> None:
    """Write, ask, and count on."""
    ctx.state.extend("notes", ["hello"])
    await ctx.emit(Event(message="asking"))
    answer = await ctx.request_input("How many?")
    ctx.state.add("count", answer)
    await ctx.emit(Event(message="counted"))


async def test_a_paused_invocation_meets_a_stricter_schema(sessions: BaseSessionService) -> None:
    """
    The answer is not stored, the question stays open, and once the schema is put right the same answer goes through.
    """
    loose, strict = runner_of(asks, Loose, sessions), runner_of(asks, Strict, sessions)
    paused = await run(loose)
    [question] = paused.pending
    before = len(await stored(loose))
    with pytest.raises(StateSchemaError) as caught:
        await run(strict, question.reply(5))
    assert (caught.value.key, caught.value.schema) == ("notes", "Strict")
    assert len(await stored(loose)) == before
    listed = await sessions.list_invocations(app_name="app")
    assert [each.status for each in listed] == [InvocationStatus.PAUSED]
    resumed = await run(loose, question.reply(5))
    assert resumed.status is InvocationStatus.COMPLETED
    assert await state_of(loose) == {"notes": ["hello"], "count": 5}


async def test_supervision_leaves_alone_what_does_not_fit(sessions: BaseSessionService) -> None:
    """
    What is due and does not fit its schema is not begun, and is due still.
    """

    async def sleeps(ctx: InvocationContext) -> None:
        ctx.state.extend("notes", ["hello"])
        await ctx.emit(Event(message="waiting"))
        await ctx.sleep_until(LATER_S)
        await said(ctx)

    loose, strict = runner_of(sleeps, Loose, sessions), runner_of(sleeps, Strict, sessions)
    await run(loose)
    assert await strict.resume_due(LATER_S) == []
    assert [each.status for each in await loose.resume_due(LATER_S)] == [InvocationStatus.COMPLETED]


class Bounded(pydantic.BaseModel):
    count: int = pydantic.Field(default=0, le=2)
    tags: list[str] = pydantic.Field(default=[], max_length=1)


async def test_a_replay_counts_nothing_twice(sessions: BaseSessionService) -> None:
    """
    Logic that is run again adds again to what it has added: that is recorded, and fits as it did.
    """

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.add("count", 2)
        ctx.state.extend("tags", ["a"])
        await ctx.emit(Event(message="full"))
        await ctx.request_input("Go on?")
        ctx.state.add("count", 1)
        with pytest.raises(StateSchemaError):
            await ctx.emit(Event(message="more than full"))
        ctx.state["count"] = 0
        await said(ctx)

    runner = runner_of(logic, Bounded, sessions)
    [question] = (await run(runner)).pending
    resumed = await run(runner, question.reply("yes"))
    assert resumed.status is InvocationStatus.COMPLETED
    assert await state_of(runner) == {"count": 0, "tags": ["a"]}


# --- schemas inside of each other -------------------------------------------------------------------------------------


@attrs.define
class Inner:
    count: Literal[1, 2] = 1
    draft: str = ""


async def test_inside_of_two_schemas_both_have_to_allow_it(sessions: BaseSessionService) -> None:
    """
    The fields of both can be written, a field of both has to fit both, and outside the outer one is alone.
    """
    outcomes: list[tuple[str, Any]] = []

    def attempt(context: InvocationContext, key: str, value: object) -> None:
        try:
            context.state[key] = value
            outcomes.append((key, value))
        except StateSchemaError as error:
            outcomes.append((key, error.schema))

    async def inside(ctx: InvocationContext) -> None:
        constrain(ctx.state, StateSchema.of(Inner))
        for key, value in {"tags": ["a"], "draft": "x", "cuont": 1}.items():
            attempt(ctx, key, value)
        attempt(ctx, "count", 3)
        attempt(ctx, "count", 2)
        await ctx.emit(Event(message="inside"))

    inner = Logic(name="inner", logic=inside)

    async def outside(ctx: InvocationContext) -> None:
        await inner.run_async(ctx)
        attempt(ctx, "draft", "y")
        attempt(ctx, "count", 3)
        await ctx.emit(Event(message="outside"))

    agent = Logic(name="agent", logic=outside, sub_agents=[inner])
    runner = runner_of(agent, sessions=sessions)
    await run(runner)
    refused = [("cuont", "Desk or Inner"), ("count", "Inner")]
    assert outcomes == [("tags", ["a"]), ("draft", "x"), *refused, ("count", 2), ("draft", "Desk"), ("count", 3)]
    assert await state_of(runner) == {"tags": ["a"], "draft": "x", "count": 3}
    await run(runner)  # what only the inner one knows does not keep the next run from beginning


async def test_the_schema_of_the_root_is_checked_when_a_run_begins() -> None:
    """
    A root with a schema of its own has it for its whole run, beside that of the app.
    """

    class Rooted(Logic):
        _state_schema = StateSchema.of(Inner)

    runner = runner_of(Rooted(name="agent", logic=said))
    with pytest.raises(StateSchemaError):
        await run(runner, state_delta={"count": 3})
    await run(runner, state_delta={"count": 2, "draft": "x", "tags": []})
    assert await state_of(runner) == {"count": 2, "draft": "x", "tags": []}


def test_a_schema_that_is_around_already_is_not_looked_at_twice() -> None:
    """
    Schemas are compiled once for each class, and one inside of itself adds nothing.
    """
    desk = StateSchema.of(Desk)
    assert StateSchema.of(Desk) is desk
    around = StateSchemas(desk)
    assert around.within(desk) is around
    assert around.within(StateSchema.of(Inner)).fields == (*around.fields, "draft")


# --- state_as ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", KINDS)
async def test_state_as_gives_an_instance_with_defaults(schema: Any) -> None:
    """
    `ctx.state_as` gives what the class makes of the state, pending writes included, equal to an ordinary instance.
    """
    made: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["count"] = 5
        made.append(ctx.state_as(schema))
        await said(ctx)

    await run(runner_of(logic, schema))
    assert made == [schema(count=5)]
    if schema is not DeskDict:
        assert isinstance(made[0], schema)
        assert list(made[0].tags) == []


async def test_a_change_of_what_state_as_returns_changes_no_state() -> None:
    """
    `ctx.state_as` returns a copy: its lists, dicts and objects are its own. Enums and dates are what the class says.
    """

    @attrs.define
    class Rich:
        items: list[Item]
        by_name: dict[str, Item]
        sizes: set[Size]
        day: date
        pair: tuple[int, Item] | None = None

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.update(
            items=[{"name": "pen"}], by_name={"pen": {"name": "pen"}}, sizes=["s", "l"], day="2026-01-02",
            pair=[1, {"name": "ink"}],
        )  # fmt: skip
        rich = ctx.state_as(Rich)
        assert (rich.items, rich.by_name, rich.day) == ([Item("pen")], {"pen": Item("pen")}, date(2026, 1, 2))
        assert rich.sizes == {Size.SMALL, Size.LARGE}
        assert rich.pair == (1, Item("ink"))
        for item in (rich.items[0], rich.by_name["pen"], rich.pair[1]):
            item.pieces = 2
        rich.items.append(Item("ink"))
        rich.by_name["ink"] = Item("ink")
        assert ctx.state_as(Rich).items == [Item("pen")]
        assert ctx.state["by_name"] == {"pen": {"name": "pen"}}
        ctx.state["answers"] = rich.items[0].pieces
        await said(ctx)

    class All(pydantic.BaseModel, extra="allow"):
        """Any key."""

    await run(runner_of(logic, All))


async def test_every_context_has_state_as() -> None:
    """
    Instructions, callbacks and tools read the state as they see it; a schema of theirs needs not be that of the app.
    """
    seen: list[object] = []

    def instruction(context: ReadonlyContext) -> str:
        seen.append(context.state_as(DeskData).count)
        return ""

    def before(callback_context: CallbackContext) -> None:
        callback_context.state["count"] = 1
        seen.append(callback_context.state_as(DeskModel).count)

    def look(tool_context: ToolContext) -> int:
        """Look."""
        tool_context.state.add("count", 1)
        seen.append(tool_context.state_as(Desk).count)
        return 0

    agent = LlmAgent(
        name="clerk",
        model=ScriptedLlm([call("look"), "Done."]),
        instruction=instruction,
        tools=[look],
        before_agent_callback=before,
    )
    await run(runner_of(agent, None))
    assert seen == [1, 1, 2, 2]


async def test_a_state_that_makes_no_instance_says_why() -> None:
    """
    A field without a default that is missing, a value of another type, and what the class itself refuses are told.
    """

    @attrs.define
    class Positive:
        count: int = attrs.field(validator=attrs.validators.gt(0))

    async def logic(ctx: InvocationContext) -> None:
        with pytest.raises(StateSchemaError, match="count: missing, expected integer") as caught:
            ctx.state_as(Desk)
        assert (caught.value.key, caught.value.schema) == ("count", "Desk")
        ctx.state["count"] = 0  # a validator of the class is asked where an instance is made
        with pytest.raises(StateSchemaError, match="must be > 0"):
            ctx.state_as(Positive)
        ctx.state["count"] = 5
        with pytest.raises(ConfigurationError, match="expected the schema of state_as to be an attrs class"):
            ctx.state_as(int)
        await said(ctx)

    await run(runner_of(logic, Positive))


async def test_what_state_as_reads_is_replayed() -> None:
    """
    Logic that decides by `state_as` gets the same picture when it is run again, whatever was written since.
    """
    seen: list[int] = []

    async def logic(ctx: InvocationContext) -> None:
        seen.append(ctx.state_as(DeskData).count)
        await ctx.emit(Event(message="looked"))
        await ctx.request_input("Go on?")
        await said(ctx)

    runner = runner_of(logic, DeskData)
    [question] = (await run(runner, state_delta={"count": 1})).pending
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    await runner.session_service.append_event(
        session, Event(author="system", actions=EventActions(state_delta={"count": 2}))
    )
    await run(runner, question.reply("yes"))
    assert seen == [1, 1]


# --- pydantic's own ---------------------------------------------------------------------------------------------------


async def test_models_bring_their_own_rules() -> None:
    """
    Bounds, names to be read by, and whether there may be other keys are the model's; it is asked about one key alone.
    """

    class Both(pydantic.BaseModel):
        low: int = 0
        high: int

        @pydantic.model_validator(mode="after")
        def ordered(self) -> Both:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    def problems(schema: Any, key: str, value: object) -> list[str]:
        return StateSchema.of(schema).problems(key, value)

    assert problems(OpenModel, "count", 11) == [
        "state['count']: Input should be less than or equal to 10, found 11",
    ]
    assert problems(OpenModel, "anything", "x") == []
    assert list(StateSchema.of(Alias).fields) == ["theSize"]
    assert problems(Alias, "theSize", 3) == []
    assert problems(Both, "low", 5) == []
    assert StateSchema.of(Both).read({"low": 5, "high": 1})[1] != []


# --- what is no schema ------------------------------------------------------------------------------------------------


class Unfit(TypedDict):
    when: object
    file: bytes


Scoped = TypedDict("Scoped", {"user:name": str})


class Listing(pydantic.RootModel[list[int]]):
    """No object."""


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (int, "expected state_schema to be an attrs class, a dataclass, a TypedDict or a pydantic model, found <class"),
        ({"type": "object"}, "expected state_schema to be an attrs class"),
        (Desk(1), "expected state_schema to be an attrs class"),
        (Unfit, "key 'file' of Unfit in state_schema: bytes is not supported"),
        (Scoped, "state_schema: Scoped has a field 'user:name', and no schema looks at a key with this prefix"),
        (Listing, "expected a model with fields, found Listing"),
    ],
)
def test_what_is_no_schema_is_refused_by_the_app(schema: Any, problem: str) -> None:
    """
    A schema is compiled when the app is made: what cannot be checked is named there.
    """
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        App("app", Logic(name="agent", logic=said), state_schema=schema)


async def test_the_end_of_a_run_is_said_before_the_schema() -> None:
    """
    A write that comes too late is refused as such, whether it fits or not.
    """
    contexts: list[InvocationContext] = []

    async def logic(ctx: InvocationContext) -> None:
        contexts.append(ctx)

    await run(runner_of(logic))
    with pytest.raises(InvocationEndedError):
        contexts[0].state["cuont"] = 1


def test_a_program_without_a_schema_loads_none_of_it() -> None:
    """
    Nothing of schemas is imported by a run whose app has none.
    """
    program = """
import sys, trio
from minirun import BaseAgent, Event, InMemoryRunner
class Agent(BaseAgent):
    async def _run_async_impl(self, ctx):
        ctx.state["count"] = "5"
        await ctx.emit(Event(message="hi"))
async def main():
    async with InMemoryRunner(agent=Agent(name="a"), auto_create_session=True).run_async(
        user_id="u", session_id="s", new_message="go", state_delta={"any": 1}
    ) as run:
        await run.wait()
trio.run(main)
print([name for name in sys.modules if "state_schema" in name or "state_view" in name or "pydantic" in name])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pydantic_is_not_imported_for_other_schemas() -> None:
    """
    An app whose schema is a TypedDict does not import pydantic.
    """
    program = """
import sys
from typing import TypedDict
from minirun import App, BaseAgent
class Desk(TypedDict):
    count: int
App("app", BaseAgent(name="a"), state_schema=Desk)
print("pydantic" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_renamed_app_keeps_its_schema() -> None:
    """
    `Runner(app=..., app_name=...)` runs the app under another name, with the same schema.
    """
    app = App("app", Logic(name="agent", logic=said), state_schema=Desk)
    runner = Runner(app=app, app_name="other", session_service=InMemorySessionService())
    assert (runner.app.name, runner.app.state_schema, app.name) == ("other", Desk, "app")


