"""
One writer for an invocation: what becomes of an event whose emitter is cancelled, and what is never stored.

The store takes its time, on the clock of the tests: before it has begun it can be cancelled, afterwards it cannot.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import Event, InMemorySessionService, InvocationContext, Runner
from minirun.errors import InvalidEventError
from minirun.runtime._emit import Emission
from minirun.types import Content, FunctionResponse, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events


class SlowStore(InMemorySessionService):
    """Takes ten seconds before it stores what is "held", and after it has begun to store what is "begun"."""

    async def commit_event(self, live: Any, event: Event, **options: Any) -> None:
        if event.text == "held":
            await trio.sleep(10)
        with trio.CancelScope(shield=True):
            if event.text == "begun":
                await trio.sleep(10)
            await super().commit_event(live, event, **options)


def slow_runner(logic: Any) -> Runner:
    agent = Logic(name="agent", logic=logic)
    return Runner(agent=agent, app_name="app", session_service=SlowStore(), auto_create_session=True)


@pytest.mark.parametrize("before", [[], ["first"]])
async def test_an_event_is_withdrawn_until_the_store_has_begun(before: list[str], autojump_clock: MockClock) -> None:
    """Its emitter is cancelled at once, nothing of it is stored, then or later, and what follows is."""

    async def logic(ctx: InvocationContext) -> None:
        for text in before:
            await ctx.emit(Event(message=text))
        for _ in range(2):
            with trio.move_on_after(1) as scope:
                await ctx.emit(Event(message="held"))
            assert scope.cancelled_caught
        assert trio.current_time() < start + 5
        await ctx.emit(Event(message="next"))

    start = trio.current_time()
    runner = slow_runner(logic)
    _, run = await run_to_end(runner)
    assert run.status == "completed"
    assert [event.text for event in await stored_events(runner)] == ["go", *before, "next"]


async def test_a_write_counts_once_while_its_emitter_is_not_told_yet(autojump_clock: MockClock) -> None:
    """A store may have applied an event before it tells so: other tasks of the agent read its writes once meanwhile."""
    read: list[Any] = []

    class LateStore(InMemorySessionService):
        async def _append(self, *args: Any, **options: Any) -> Event:
            stored = await super()._append(*args, **options)
            if stored.text == "told":
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)
            return stored

    async def look(ctx: InvocationContext) -> None:
        for _ in range(2):
            read.append([ctx.state[key] for key in ("n", "temp:n", "user:n")])
            await trio.sleep(5)
            ctx.state.add("n")
        read.append([ctx.state[key] for key in ("n", "temp:n", "user:n")])

    async def logic(ctx: InvocationContext) -> None:
        for key in ("n", "temp:n", "user:n"):
            ctx.state.add(key)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, ctx)
            await ctx.emit(Event(message="told"))
        read.append(ctx.state["n"])

    agent = Logic(name="agent", logic=logic)
    runner = Runner(agent=agent, app_name="app", session_service=LateStore(), auto_create_session=True)
    _, run = await run_to_end(runner)
    assert read == [[1, 1, 1], [2, 1, 1], [3, 1, 1], 3]
    assert run.session.state["n"] == 3


async def test_whoever_is_cancelled_too_late_waits_for_the_store_and_not_for_the_caller(
    autojump_clock: MockClock,
) -> None:
    """The store had begun: `emit` returns with the event once it is stored, although nobody has asked for the next."""
    returned: list[float] = []

    async def logic(ctx: InvocationContext) -> None:
        with trio.move_on_after(1) as scope:
            assert (await ctx.emit(Event(message="begun"))).seq is not None
            returned.append(trio.current_time() - start)
        assert not scope.cancelled_caught

    runner, start = slow_runner(logic), trio.current_time()
    async with runner.run_async(**PLACE, new_message="go") as run:
        assert (await anext(run)).text == "begun"
        await trio.sleep(100)
        await run.wait()
    assert returned == [10]


@pytest.mark.parametrize("withdrawn", [0, 1, 2])
async def test_the_callers_cancellation_stops_no_store(withdrawn: int, autojump_clock: MockClock) -> None:
    """What is said while an agent cleans up is stored, although the caller's block was cancelled around it before."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="first"))
        for _ in range(withdrawn):
            with trio.move_on_after(1):
                await ctx.emit(Event(message="held"))
        # The committer waits for an event when the cancellation comes: if that ends it, the emit ends with this scope.
        with trio.move_on_after(60, shield=True):
            await trio.sleep(10)
            await ctx.emit(Event(message="last"))

    runner = slow_runner(logic)
    with trio.move_on_after(5) as scope:
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
    assert scope.cancelled_caught
    assert [event.text for event in await stored_events(runner)] == ["go", "first", "last"]


async def test_a_bug_while_an_event_is_applied_fails_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left asleep: `emit` raises it, and the run ends as with any other failure."""
    apply = Emission.apply

    def fail_once(self: Emission, stored: Event) -> None:
        if stored.text == "bad":
            raise AssertionError("a bug")
        apply(self, stored)

    monkeypatch.setattr(Emission, "apply", fail_once)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="bad"))

    runner = runner_for(logic)
    with pytest.raises(AssertionError, match="a bug"):
        await run_to_end(runner)
    assert [event.error_code for event in await stored_events(runner)] == [None, None, "AssertionError"]


async def test_a_response_answers_no_call_of_another_invocation() -> None:
    """A question waits; an agent that runs for another message cannot answer it, and nothing is stored of that."""
    questions: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        if not questions:
            await ctx.request_input("?")
        part = Part(function_response=FunctionResponse(id=questions[0], name="adk_request_input", response={}))
        with pytest.raises(InvalidEventError, match="to answer an open call"):
            await ctx.emit(Event(content=Content(role="user", parts=[part])))

    runner = runner_for(logic)
    _, waiting = await run_to_end(runner)
    [question] = waiting.pending
    questions.append(question.call_id)
    _, run = await run_to_end(runner, "another one")
    assert run.status == "completed"
    assert await runner.session_service.list_pending() == [question]


async def test_one_task_at_a_time_asks_a_run(autojump_clock: MockClock) -> None:
    """A second one is told so, and takes nothing from the first; when that was cancelled, another one may ask."""

    async def logic(ctx: InvocationContext) -> None:
        await go_on.wait()
        await ctx.emit(Event(message="said"))

    go_on = trio.Event()
    async with runner_for(logic).run_async(**PLACE, new_message="go") as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.__anext__)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="two tasks are asking"), trio.fail_after(5):
                await anext(run)
            nursery.cancel_scope.cancel()
        go_on.set()
        assert [event.text async for event in run] == ["said"]


async def test_who_waits_for_a_store_that_has_begun_goes_on_although_the_caller_has_left(
    autojump_clock: MockClock,
) -> None:
    """The caller leaves while an event is being stored; its emitter is shielded, so no cancellation wakes it."""
    said: list[str] = []

    async def speak(ctx: InvocationContext) -> None:
        with trio.CancelScope(shield=True):
            said.append((await ctx.emit(Event(message="begun"))).text)

    with trio.fail_after(100):
        async with slow_runner(speak).run_async(**PLACE, new_message="go"):
            await trio.sleep(1)
    assert said == ["begun"]


# --- turns ------------------------------------------------------------------------------------------------------------

EMITTERS = 4
Step = tuple[str, int]

# What is done to the emitters, one thing after another: one begins to emit, one is cancelled, the caller asks.
step = st.tuples(st.sampled_from(["emit", "emit", "cancel", "ask"]), st.integers(0, EMITTERS - 1))


@settings(max_examples=30)
@given(st.lists(step, max_size=24))
@example([*(("emit", number) for number in (0, 1, 2, 3)), *[("ask", 0)] * 4])
@example([("emit", 0), ("emit", 1), ("emit", 2), ("ask", 0), ("cancel", 0), ("emit", 0), *[("ask", 0)] * 4])
def test_whoever_waits_longest_is_next(steps: list[Step]) -> None:
    """
    However many emit at once and are cancelled, their turns come in the order in which they began; one event at most is
    ahead of the caller, and who was cancelled before its turn has said nothing.
    """
    trio.run(check_turns, steps)


async def check_turns(steps: list[Step]) -> None:
    """Do the steps, each when everybody sleeps, and compare what is stored with a plain queue."""
    orders: list[trio.MemorySendChannel[str]] = []
    scopes: dict[int, trio.CancelScope] = {}  # of those who emit

    async def obey(ctx: InvocationContext, number: int, receive: trio.MemoryReceiveChannel[str]) -> None:
        async for text in receive:
            with trio.CancelScope() as scopes[number]:
                await ctx.emit(Event(message=text))
            del scopes[number]

    async def logic(ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(EMITTERS):
                send, receive = trio.open_memory_channel[str](1)
                orders.append(send)
                nursery.start_soon(obey, ctx, number, receive)

    runner = runner_for(logic)
    said: list[str] = []  # of what the caller has heard
    stored: list[str] = []
    waiting: list[str] = []  # for the turn, which the caller gives on when it asks after the newest event
    async with runner.run_async(**PLACE, new_message="go") as run:
        for place, (what, number) in enumerate(steps):
            await trio.testing.wait_all_tasks_blocked()
            if what == "emit" and number not in scopes:
                orders[number].send_nowait(f"{number} at {place}")
                (waiting if stored else stored).append(f"{number} at {place}")
            elif what == "cancel" and number in scopes:
                scopes[number].cancel()
                waiting = [text for text in waiting if not text.startswith(str(number))]
            elif what == "ask" and (waiting or len(said) < len(stored)):
                if len(said) == len(stored):
                    stored.append(waiting.pop(0))
                said.append((await anext(run)).text)
            await trio.testing.wait_all_tasks_blocked()
            assert [event.text for event in (await stored_events(runner))[1:]] == stored
            assert said == stored[: len(said)]
