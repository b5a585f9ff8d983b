"""
A world in which processes share the past of one session: they run it, rewind and fork it, append to it and read it.

Users are asked, and answer while others work. What is read is the end of the log as it is visible, however few events a
page has; a fork is what the session was, with nothing in it that runs; and who does not wait is let in, or refused, at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import trio

from minirun import Event, InvocationContext, ParallelAgent, RunConfig, Runner
from minirun.agents import BaseAgent
from minirun.errors import (
    SessionBusyError,
    StaleSessionError,
    StorageError,
)
from minirun.sessions import GetSessionConfig, InvocationStatus, _earlier
from minirun.simulation import World

from .helpers import Logic, Place
from .keeping import Deed, House, rewind_somewhere
from .laws import Log, expect, read_logs
from .simulation.stores.checks import _own_state

__all__ = ["archive"]

PLACE: Place = {"user_id": "ada", "session_id": "s"}
WORD = {"type": "string"}
# So that a log of some ten events is read in several pages.
PAGE_EVENTS = 2
# How long a run works, and how long somebody may take who does not wait for it.
WORK_S, AT_ONCE_S = 3.0, 2.0
REJECT = RunConfig(on_busy="reject")


@contextmanager
def small_pages() -> Iterator[None]:
    """A page has few events."""
    before = _earlier.PAGE_EVENTS
    _earlier.PAGE_EVENTS = PAGE_EVENTS
    try:
        yield
    finally:
        _earlier.PAGE_EVENTS = before


async def archive(world: World) -> None:
    """Three messages of a user; what else is done to the session meanwhile is chosen."""
    with small_pages():
        await _archive(world)


def archivist(world: World) -> BaseAgent:
    """An agent that files what it is told; sometimes it asks, while another one goes on filing beside it."""

    async def file(ctx: InvocationContext) -> None:
        text = ctx.user_content.text if ctx.user_content else ""
        ctx.state["last"] = text
        ctx.state.add("filed")
        ctx.state.extend("user:filed", [text])
        await ctx.emit(Event(message="filed"))
        await world.sleep(WORK_S)
        if text.startswith("ask"):
            await ctx.agent.sub_agents[0].run_async(ctx)
        ctx.state.add("done")
        await ctx.emit(Event(message="done"))

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=str(await ctx.request_input("which", response_schema=WORD))))

    async def copy(ctx: InvocationContext) -> None:
        for number in range(2):
            ctx.state.add("copies")
            await ctx.emit(Event(message=f"copy {number}"))

    beside = ParallelAgent(name="beside", sub_agents=[Logic(name="asker", logic=ask), Logic(name="copier", logic=copy)])
    return Logic(name="archivist", logic=file, sub_agents=[beside])


async def _archive(world: World) -> None:
    pick = world.choices.choose
    runner = world.runner(lambda: archivist(world))
    numbers = count()
    forks: dict[str, tuple[int, Log]] = {}
    await _set_kinds(runner)

    async def rewind(runner: Runner) -> None:
        await rewind_somewhere(world, runner, "ada")

    async def fork(runner: Runner) -> None:
        session = await _read(runner, GetSessionConfig(num_recent_events=0))
        at = None if pick(3, "where it is forked") == 0 else pick(session.revision + 1, "at which event")
        made = await runner.session_service.fork_session(
            app_name="app", **PLACE, at_seq=at, new_session_id=f"fork {next(numbers)}"
        )
        log = await runner.session_service.read_events(app_name="app", user_id="ada", session_id=made.id)
        forks[made.id] = made.revision, log
        expect(
            _own(made.state) == _own_state(log), f"fork {made.id} has the state {made.state}, its events make another"
        )

    async def append(runner: Runner) -> None:
        session = await _read(runner, GetSessionConfig(num_recent_events=pick(3, "what an editor reads")))
        await world.sleep(0)
        edits = session.state.get("edits", 0) + 1
        await runner.session_service.append_event(
            session, Event(author="editor", message="edit", state={"edits": edits})
        )

    async def read(runner: Runner) -> None:
        for _ in range(2):
            await _read(runner, GetSessionConfig(num_recent_events=pick(8, "how many events are read")))

    async def evict(runner: Runner) -> None:
        cache = getattr(runner.session_service, "_cache", None)
        if cache is not None:
            cache.clear()

    async def hurry(runner: Runner) -> None:
        begun = trio.current_time()
        try:
            async with runner.run_async(**PLACE, new_message="hurry", run_config=REJECT) as run:
                _check_at_once(world, begun)
                await run.wait()
        except SessionBusyError:
            _check_at_once(world, begun)
            raise

    async def answer(runner: Runner) -> None:
        pending = await runner.session_service.list_pending(app_name="app", user_id="ada", session_id="s")
        if pending:
            async with runner.run_async(**PLACE, new_message=pending[0].reply("this")) as run:
                await run.wait()

    deeds: dict[str, Deed] = {
        "read": read,
        "fork": fork,
        "rewind": rewind,
        "append": append,
        "evict": evict,
        "hurry": hurry,
        "answer": answer,
    }
    house = House(world, deeds, 8)
    world.host(runner, house.keep)

    async def talk(*texts: str) -> None:
        for text in texts:
            try:
                await world.say(runner, "ada", text, session_id="s")
            except (StaleSessionError, StorageError) as error:
                world.reached(f"the run failed: {type(error).__name__}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "ask one", "two")
        nursery.start_soon(talk, "ask three")
    await world.heal()
    await house.close()
    logs = await read_logs(world, runner)
    await _check_forks(world, runner, logs["ada", "s"], forks)
    await _read(runner, None)


async def _set_kinds(runner: Runner) -> None:
    """Let a key of the user's hold a number, by this session, and then a list, by another one: they share it."""
    service = runner.session_service
    session = await service.create_session(app_name="app", **PLACE, state={"edits": 0})
    await service.append_event(session, Event(author="editor", message="kind", state={"user:filed": 0}))
    other = await service.create_session(app_name="app", user_id="ada", session_id="other")
    await service.append_event(other, Event(author="editor", message="kind", state={"user:filed": []}))


async def _read(runner: Runner, config: GetSessionConfig | None) -> Any:
    """Read the end of the session, and check that it is what is visible of its log, with the state that this makes."""
    session = await runner.session_service.get_session(app_name="app", **PLACE, config=config)
    assert session is not None
    log = (await runner.session_service.read_events(app_name="app", **PLACE))[: session.revision + 1]
    wanted = None if config is None else config.num_recent_events
    visible = _visible(log)
    expected = visible if wanted is None else visible[max(0, len(visible) - wanted) :]
    found = [event.seq for event in session.events]
    expect(found == [event.seq for event in expected], f"of {wanted} events that were read these are found: {found}")
    expect(_own(session.state) == _own_state(log), f"what was read as state is not the fold: {session.state}")
    return session


def _visible(log: Log) -> Log:
    """What no rewind has undone."""
    visible: Log = []
    for event in log[1:]:
        target = event.actions.rewind_before_seq
        if target is not None:
            visible = [earlier for earlier in visible if (earlier.seq or 0) < target]
        visible.append(event)
    return visible


def _own(state: Any) -> dict[str, Any]:
    """What is the session's own."""
    return {key: value for key, value in state.items() if not key.startswith("user:")}


def _check_at_once(world: World, begun: float) -> None:
    """Check that who does not wait has not waited: runs last longer, and nothing else does unless something fails."""
    took = trio.current_time() - begun
    expect(bool(world.faults) or took < AT_ONCE_S, f"who was not to wait has waited for {took} s")


async def _check_forks(world: World, runner: Runner, log: Log, forks: dict[str, tuple[int, Log]]) -> None:
    """Nothing runs in a fork; what was at work there when it was made, or then, does not wait for anybody."""
    service = runner.session_service
    for name, (at, past) in forks.items():
        expect(past == log[: at + 1], f"{name} was made at event {at}, and has another past")
        newest, following = log[at], log[at + 1] if at + 1 < len(log) else None
        at_work = (
            following is not None and following.author != "user" and following.invocation_id == newest.invocation_id
        )
        for one in await service.list_invocations(app_name="app", user_id="ada", session_id=name):
            status = one.status
            expect(status is not InvocationStatus.RUNNING, f"{one.invocation_id} runs in {name}, and nobody runs it")
            if at_work and one.invocation_id == newest.invocation_id:
                is_cut = status is InvocationStatus.INTERRUPTED
                expect(is_cut, f"{one.invocation_id} was at work at event {at}, and is {status} in {name}")
            elif status is InvocationStatus.PAUSED:
                waits = _asked(_visible(past), one.invocation_id)
                expect(waits, f"{one.invocation_id} asks nothing at event {at}, and is {status} in {name}")


def _asked(visible: Log, invocation_id: str) -> bool:
    """Whether an invocation has asked what nobody has answered."""
    answered = {response.id for event in visible for response in event.get_function_responses()}
    made = [made.id for event in visible if event.invocation_id == invocation_id for made in event.get_function_calls()]
    return any(call_id not in answered for call_id in made)
