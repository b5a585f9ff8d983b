"""
The way of one event through `emit`: it is prepared once and copied seldom, and what fails on the way changes nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio

from minirun import App, BaseAgent, Event, EventActions, InvocationContext, LlmAgent, Runner
from minirun._codec import to_json
from minirun._values import changed
from minirun.artifacts import InMemoryArtifactService
from minirun.errors import InvalidEventError, InvalidValueError, StorageBusyError
from minirun.plugins import BasePlugin
from minirun.runtime._emit import Emission, prepare
from minirun.sessions import BaseSessionService, InMemorySessionService, SqliteSessionService
from minirun.sessions._event_checks import checked_event
from minirun.sessions._state import writes_of
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, Logic
from .test_endings import refuse

Act = Callable[[InvocationContext], Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """In memory and on SQLite."""
    sqlite = SqliteSessionService(":memory:", durability="process")
    async with InMemorySessionService() if request.param == "memory" else sqlite as service:
        yield service


async def run_logic(service: BaseSessionService, logic: Act | BaseAgent, *plugins: BasePlugin) -> list[Event]:
    """Run it to its end; return the log, without the creation record."""
    agent = logic if isinstance(logic, BaseAgent) else Logic(name="agent", logic=logic)
    app = App(name="app", root_agent=agent, plugins=list(plugins))
    artifacts = InMemoryArtifactService(env=service.env)
    runner = Runner(app=app, session_service=service, artifact_service=artifacts, auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    return await service.read_events(app_name="app", **PLACE, after_seq=0)


def everywhere(monkeypatch: pytest.MonkeyPatch, function: Any, other: Any) -> None:
    """Put another function in the place of one of the package, in every module that has it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("minirun"):
            for attribute in [key for key, value in vars(module).items() if value is function]:
                monkeypatch.setattr(module, attribute, other)


# --- once -------------------------------------------------------------------------------------------------------------

EVENTS: dict[str, Callable[[], Event]] = {
    "words": lambda: Event(message="hello"),
    "words and state": lambda: Event(message="hello", state={"list": [1, {"a": "b"}]}),
    "a call": lambda: Event(content=Content(role="model", parts=[call("work", x=[1, 2])])),
    "actions": lambda: Event(message="x", actions=EventActions(state_ops={"n": {"add": 1}}, skip_summarization=True)),
    "an output": lambda: Event(output={"a": [1]}, custom_metadata={"k": "v"}),
}


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("what", EVENTS)
async def test_an_event_is_copied_twice_at_most(
    what: str, pending: bool, service: BaseSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once where it is completed, once where the store gives it its place; whatever it carries, and what is pending."""
    copies: Counter[str] = Counter()

    def counting(value: Any, **changes: Any) -> Any:
        copies[type(value).__name__] += 1
        return changed(value, **changes)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first"))
        if pending:
            ctx.state["pending"] = [1]
        event = EVENTS[what]()
        copies.clear()
        stored = await ctx.emit(event)
        found.append((event, stored, dict(copies)))

    found: list[tuple[Event, Event, dict[str, int]]] = []
    everywhere(monkeypatch, changed, counting)
    await run_logic(service, logic)
    [(event, stored, counts)] = found
    assert counts.get("Event", 0) <= 2
    assert counts.get("EventActions", 0) <= (1 if pending else 0)
    if what != "a call":
        assert stored.content is event.content
    if not pending:
        assert stored.actions is event.actions
    for key, value in event.actions.state_delta.items():
        assert stored.actions.state_delta[key] is value
    assert stored.output is event.output
    assert stored.custom_metadata is event.custom_metadata
    assert (event.id, event.seq, event.invocation_id) == (None, None, None)


async def test_what_is_complete_is_not_copied_to_be_prepared(
    service: BaseSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that says already all that follows from where it is said is copied by the store alone."""
    copies: list[Event] = []

    def counting(value: Any, **changes: Any) -> Any:
        if isinstance(value, Event):
            copies.append(value)
        return changed(value, **changes)

    async def logic(ctx: InvocationContext) -> None:
        first = await ctx.emit(Event(message="first"))
        place: dict[str, Any] = {"author": "agent", "invocation_id": ctx.invocation_id, "node_info": first.node_info}
        complete = Event(message="x", id="mine", state={"a": 1}, **place)
        copies.clear()
        stored = await ctx.emit(complete)
        assert [copied is complete for copied in copies] in ([], [True])
        assert (stored.actions is complete.actions, stored.content is complete.content) == (True, True)

    everywhere(monkeypatch, changed, counting)
    await run_logic(service, logic)


async def test_what_a_model_says_is_not_copied_to_be_prepared(
    service: BaseSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LlmAgent makes the events of its model's answers complete: only the store copies one, to give it its place."""
    copies: list[Event] = []

    def counting(value: Any, **changes: Any) -> Any:
        if isinstance(value, Event) and value.author == "writer":
            copies.append(value)
        return changed(value, **changes)

    async def logic(ctx: InvocationContext) -> None:
        await LlmAgent(name="writer", model=ScriptedLlm(["words"])).run_async(ctx)

    everywhere(monkeypatch, changed, counting)
    await run_logic(service, logic)
    assert [(event.id is None, event.seq) for event in copies] in ([], [(False, None)])
    assert [event.node_info.path for event in copies] in ([], ["agent@1/writer@1"])


@pytest.mark.parametrize("what", EVENTS)
async def test_an_event_is_checked_once(
    what: str, service: BaseSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most: what only says something and changes state was checked when it was made."""
    checks: list[Event] = []

    def counting(event: Event, **options: Any) -> Event:
        checks.append(event)
        return checked_event(event, **options)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first"))
        ctx.state["pending"] = 1
        checks.clear()
        await ctx.emit(EVENTS[what]())
        found.append(len(checks))

    found: list[int] = []
    everywhere(monkeypatch, checked_event, counting)
    await run_logic(service, logic)
    assert found == [1 if what == "a call" else 0]


async def test_preparing_changes_nothing() -> None:
    """Neither the context nor what is pending, nor which id comes next: doing it twice gives the same twice."""

    async def logic(ctx: InvocationContext) -> None:
        ctx.state["a"], ctx.state["temp:t"] = 1, 2
        ctx.actions.skip_summarization = True
        event = Event(content=Content(role="model", parts=[call("work")]), state={"b": [1]})
        own = writes_of(event.actions)
        before = snapshot(ctx)
        emission = Emission(ctx._invocation, ctx._position, ctx._state.take(own), ctx._conflicts)
        emission.draft = ctx.actions.take()
        taken = snapshot(ctx)
        first = prepare(ctx, event, "an-id", emission, detached=False)
        second = prepare(ctx, event, "an-id", emission, detached=False)
        assert to_json(first) == to_json(second)
        assert (first.id, first.author, dict(first.actions.state_delta)) == ("an-id", "agent", {"a": 1, "b": [1]})
        assert first.actions.skip_summarization
        assert event.id is None
        assert snapshot(ctx) == taken
        with pytest.raises(InvalidEventError):
            prepare(ctx, changed(event, invocation_id="e-other"), "an-id", emission, detached=True)
        assert snapshot(ctx) == taken
        emission.pending.rollback()
        ctx.actions.put_back(emission.draft)
        assert snapshot(ctx) == before
        await ctx.emit(Event(message="carries it"))

    log = await run_logic(InMemorySessionService(), logic)
    assert log[-1].actions.state_delta == {"a": 1}


def snapshot(ctx: InvocationContext) -> Any:
    """All that `prepare` might change."""
    ids = ctx._invocation.ids
    draft = None if ctx._draft is None else ctx._draft.changes_to(EventActions())
    pending = list(ctx._state.pending().items())
    return pending, dict(ctx.state), dict(ids.counts), set(ids.claimed), set(ids.call_ids), list(ctx._claims), draft


# --- what fails on the way --------------------------------------------------------------------------------------------


class Refuses(BasePlugin):
    """Refuses some events, when it has written something itself."""

    async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
        if event.text == "refused by a hook":
            invocation_context.state["written by the hook"] = True
            raise LookupError(event.text)


FAILURES: dict[str, tuple[Event, type[BaseException]]] = {
    "prepare": (Event(message="x", invocation_id="e-other"), InvalidEventError),
    "prepare, with state": (Event(invocation_id="e", state={"b": 9, "first": 9}), InvalidEventError),
    "checks": (Event(actions=EventActions(rewind_before_seq=1, rewind_before_invocation_id="e-1")), InvalidEventError),
    "what is pending": (Event(actions=EventActions(state_ops={"a": {"extend": [1]}})), InvalidValueError),
    "temp": (Event(actions=EventActions(state_ops={"temp:text": {"add": 1}})), InvalidValueError),
    "a hook": (Event(message="refused by a hook", state={"b": 9}), LookupError),
    "artifacts": (Event(message="x", actions=EventActions(artifact_delta={"nothing.txt": 7})), InvalidEventError),
    "a transfer": (Event(message="x", actions=EventActions(transfer_to_agent="nobody")), InvalidEventError),
    "both": (Event(message="x", actions=EventActions(transfer_to_agent="agent", escalate=True)), InvalidEventError),
    "calls": (
        Event(content=Content(parts=[Part(function_call=FunctionCall(id="c-1", name="again"))]), state={"b": 9}),
        InvalidEventError,
    ),
    "the store": (Event(message="refused by the store", state={"b": 9, "below": 9}), StorageBusyError),
    "what is stored": (Event(actions=EventActions(state_ops={"text": {"add": 1}})), InvalidValueError),
}
"""By where it fails: an event, and what `emit` raises."""


@pytest.mark.parametrize("where", [*FAILURES, "a cancellation"])
async def test_an_event_that_fails_leaves_what_is_pending_where_it_is(where: str, service: BaseSessionService) -> None:
    """In its order, in this layer and in those below; and the next event carries it as if nothing had been tried."""
    refuse(service, lambda event: event.text == "refused by the store")

    def agent(*, fails: bool) -> BaseAgent:
        async def inner(ctx: InvocationContext) -> None:
            ctx.state["b"], ctx.state["a"], ctx.state["temp:text"] = 1, 2, "no number"
            ctx.state.add("n", 1)
            ctx.state["second"] = "above"
            del ctx.state["gone"]
            if fails:
                before = layers(ctx)
                await fail(ctx, where)
                assert layers(ctx) == before
            ctx.state["c"] = 3
            await ctx.emit(Event(message="carries it"))
            assert "below" not in ctx._state.pending()

        child = Logic(name="child", logic=inner)

        async def outer(ctx: InvocationContext) -> None:
            made = Part(function_call=FunctionCall(id="c-1", name="work"))
            await ctx.emit(Event(content=Content(parts=[made]), state={"gone": 1, "text": "no number", "n": 0}))
            for key in ("first", "second", "third"):
                ctx.state[key] = key
            ctx.state.add("n", 10)
            await child.run_async(ctx)
            await ctx.emit(Event(message="carries the rest"))

        return Logic(name="agent", logic=outer, sub_agents=[child])

    logs: list[list[str]] = []
    for fails in (True, False):
        try:
            await run_logic(service, agent(fails=fails), Refuses(name="refuses"))
        except LookupError:
            assert where == "a hook"  # what a hook has raised fails the run in the end
        log = await service.read_events(app_name="app", **PLACE, after_seq=0)
        logs.append([_shown(event) for event in log if event.text.startswith("carries")])
        await service.delete_session(app_name="app", **PLACE)
    assert logs[0] == logs[1]


def _shown(event: Event) -> str:
    """What an event says and writes, in the order in which it is stored."""
    actions = event.actions
    return repr((event.text, list(actions.state_delta.items()), list(actions.state_removed), dict(actions.state_ops)))


def layers(ctx: InvocationContext) -> list[Any]:
    """What is pending in each layer, in order, and what is read."""
    found: list[Any] = [dict(ctx.state)]
    layer: Any = ctx._state
    while hasattr(layer, "pending"):
        found.append(list(layer.pending().items()))
        layer = layer._below
    return found


async def fail(ctx: InvocationContext, where: str) -> None:
    """Emit what cannot be stored, and go on."""
    if where == "a cancellation":
        with trio.CancelScope() as scope:
            scope.cancel()
            await ctx.emit(Event(message="withdrawn", state={"b": 9, "first": 9}))
        assert scope.cancelled_caught
        return
    event, error = FAILURES[where]
    with pytest.raises(error):
        await ctx.emit(event)
