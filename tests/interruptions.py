"""
What the tests of P1, P2 and P5 share: scenarios that keep a diary, and what must hold when one was interrupted.

A scenario runs on a fresh service. Its agents note what they are about to emit and how each `emit` ended; its caller
notes what it saw. `Aftermath.check` then compares the diary with the store.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TypedDict

import attrs
import trio
import trio.testing

from minirun import BaseAgent, Event, InMemorySessionService, InvocationContext, LlmAgent, Runner, ToolContext
from minirun.errors import StorageBusyError, StorageError, StorageUncertainError
from minirun.runtime import Run
from minirun.sessions import (
    BaseSessionService,
    DatabaseSessionService,
    LiveSession,
    SessionWriter,
    SqliteSessionService,
)
from minirun.sessions._fold import fold
from minirun.sessions._state import Values
from minirun.testing import ScriptedLlm, call

from .postgres import new_database
from .postgres_seam import Wired
from .postgres_sessions import keep, restore


class Place(TypedDict):
    """Where the one session is."""

    user_id: str
    session_id: str


PLACE: Place = {"user_id": "u", "session_id": "s"}


@attrs.define
class Diary:
    """What the logic and the caller of one run have noted."""

    begun: list[str] = attrs.Factory(list)
    returned: list[str] = attrs.Factory(list)
    cancelled: list[str] = attrs.Factory(list)
    failed: list[str] = attrs.Factory(list)
    seen: list[Event] = attrs.Factory(list)


# --- agents ---------------------------------------------------------------------------------------------------------


async def emit_noted(ctx: InvocationContext | ToolContext, diary: Diary, text: str) -> None:
    """Emit an event with this text, and note how that ended."""
    diary.begun.append(text)
    try:
        stored = await ctx.emit(Event(message=text, state={f"said:{text}": True}))
    except trio.Cancelled:
        diary.cancelled.append(text)
        raise
    except StorageError:
        diary.failed.append(text)
        raise
    assert stored.seq is not None
    diary.returned.append(text)


class Speaker(BaseAgent):
    """Emits three events, one after another."""

    diary: Diary

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for number in range(3):
            await emit_noted(ctx, self.diary, f"a{number}")


class Choir(BaseAgent):
    """Two emitters at once."""

    diary: Diary

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async def voice(name: str) -> None:
            for number in range(2):
                await emit_noted(ctx, self.diary, f"{name}{number}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(voice, "a")
            nursery.start_soon(voice, "b")


class Generator(BaseAgent):
    """Yields its events."""

    diary: Diary

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for number in range(3):
            text = f"a{number}"
            self.diary.begun.append(text)
            yield Event(message=text, state={f"said:{text}": True})
            self.diary.returned.append(text)


class Cleaner(BaseAgent):
    """Emits, and emits once more, shielded, when it is cancelled."""

    diary: Diary

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        try:
            await emit_noted(ctx, self.diary, "a0")
            await emit_noted(ctx, self.diary, "a1")
        finally:
            with trio.CancelScope(shield=True):
                await emit_noted(ctx, self.diary, "last")


def tool_agent(diary: Diary) -> LlmAgent:
    """Calls a tool in a thread, one on the loop that emits, and one that fails."""

    def in_thread(x: int, tool_context: ToolContext) -> int:
        tool_context.state["thread"] = x
        return x

    async def on_loop(tool_context: ToolContext) -> str:
        await emit_noted(tool_context, diary, "from the tool")
        tool_context.state["loop"] = 1
        return "done"

    async def failing() -> None:
        await trio.lowlevel.checkpoint()
        msg = "no luck"
        raise ValueError(msg)

    calls = [call("in_thread", x=1), call("on_loop"), call("failing")]
    model = ScriptedLlm(lambda request: calls if _first(request) else "a!")
    return LlmAgent(name="asker", model=model, tools=[in_thread, on_loop, failing], output_key="answer")


def _first(request: object) -> bool:
    last = request.contents[-1]  # type: ignore[attr-defined]  # an LlmRequest
    return last.parts[-1].function_response is None


AGENTS: dict[str, Callable[[Diary], BaseAgent]] = {
    "one agent": lambda diary: Speaker(name="speaker", diary=diary),
    "two emitters": lambda diary: Choir(name="choir", diary=diary),
    "tool turn": tool_agent,
    "generator": lambda diary: Generator(name="generator", diary=diary),
    "clean-up": lambda diary: Cleaner(name="cleaner", diary=diary),
}


# --- stores ---------------------------------------------------------------------------------------------------------


@attrs.define
class Store:
    """A store that can be opened again and again: a template file is copied for each use, so opening costs little."""

    kind: str
    folder: Path
    _memory: InMemorySessionService | None = None
    _numbers: itertools.count[int] = attrs.Factory(itertools.count)
    path: Path | None = None
    url: str = ""

    def fresh(self) -> Store:
        """A new, empty store with one session in it."""
        if self.kind == "memory":
            return Store(self.kind, self.folder)
        if self.kind == "postgres":  # one database, as it was: making another one takes longer
            restore(_database())
            return Store(self.kind, self.folder, url=_database())
        template = self.folder / f"template-{self.kind}.db"
        if not template.exists():
            trio.run(self._make_template, template)
        path = self.folder / f"{self.kind}-{next(self._numbers)}.db"
        path.write_bytes(template.read_bytes())
        return Store(self.kind, self.folder, path=path)

    async def _make_template(self, path: Path) -> None:
        async with SqliteSessionService(path) as service:
            await service.create_session(app_name="app", **PLACE, state={"begun": True})
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.close()

    @asynccontextmanager
    async def opened(
        self, wrap: Callable[[BaseSessionService], object] = id
    ) -> AsyncIterator[BaseSessionService]:
        """The service over the store."""
        if self.url:
            service: BaseSessionService = DatabaseSessionService(self.url, env=Wired())
        elif self.path is None:
            if self._memory is None:
                self._memory = InMemorySessionService()
                await self._memory.create_session(app_name="app", **PLACE, state={"begun": True})
            service = self._memory
        else:
            durability = "power" if self.kind == "power" else "process"
            service = SqliteSessionService(self.path, durability=durability)  # type: ignore[arg-type]  # one of the two
        wrap(service)
        try:
            yield service
        finally:
            if self.path is not None or self.url:
                await service.aclose()
            for name in ("load_free_session", "commit_event", "finish_invocation"):
                service.__dict__.pop(name, None)

    def remove(self) -> None:
        """Delete the files."""
        if self.path is not None:
            for file in self.folder.glob(f"{self.path.name}*"):
                file.unlink()


KINDS = ("memory", "process", "power", "postgres")


@cache
def _database() -> str:
    """The database of all these tests, with one session in it: each lets it be as it was."""
    url = new_database()

    async def make_session() -> None:
        async with DatabaseSessionService(url) as service:
            await service.create_session(app_name="app", **PLACE, state={"begun": True})

    trio.run(make_session)
    keep(url)
    return url


def failing_commit(service: BaseSessionService, number: int, mode: str, *, for_good: bool = False) -> list[int]:
    """
    Let the *number*-th commit of *service* fail: refused, lost, or stored all the same; *for_good*: those after it too.

    Returns a counter.
    """
    counter = [0]
    real = service.commit_event

    def is_due() -> bool:
        return counter[0] == number or (counter[0] > number and for_good)

    async def commit(live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        counter[0] += 1
        if is_due() and mode == "refused":
            msg = "no chance"
            raise StorageBusyError(msg)
        if is_due() and isinstance(service, InMemorySessionService):
            if mode == "stored":
                await real(live, event, writer=writer, begins=begins)
            msg = "the store says nothing"
            raise StorageError(msg)
        if is_due() and isinstance(service.env, Wired):
            service.env.faults["append"] = mode
        await real(live, event, writer=writer, begins=begins)

    async def commit_file(connection: sqlite3.Connection, *, inline: bool) -> None:
        if is_due():
            connection.execute("COMMIT" if mode == "stored" else "ROLLBACK")
            service._file._disconnect()  # type: ignore[attr-defined]  # it is the one on SQLite
            msg = "the disk says nothing"
            raise StorageUncertainError(msg)
        await real_file(connection, inline=inline)

    service.commit_event = commit  # type: ignore[method-assign]  # a store that fails, at one place
    if isinstance(service, SqliteSessionService):
        real_file = service._file._commit
        service._file._commit = commit_file  # type: ignore[method-assign]  # and where a disk fails
    return counter


def failing_operation(service: BaseSessionService, number: int) -> list[int]:
    """Let the *number*-th operation that *service* does for a run fail before it began. Returns a counter."""
    counter = [0]

    def failing(real: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def operation(*args: object, **options: object) -> object:
            counter[0] += 1
            if counter[0] == number:
                msg = "the store is out of reach"
                raise StorageBusyError(msg)
            return await real(*args, **options)

        return operation

    for name in ("load_free_session", "commit_event", "finish_invocation"):
        setattr(service, name, failing(getattr(service, name)))
    return counter


# --- what must hold -------------------------------------------------------------------------------------------------


async def read_run(run: Run, diary: Diary, *, check_held: bool = False) -> None:
    """Read the whole run; while an event is held, see that its emitter has not gone on."""
    async for event in run:
        if event.author == "user":
            continue
        diary.seen.append(event)
        if check_held:
            before = len(diary.returned)
            await trio.testing.wait_all_tasks_blocked()
            assert len(diary.returned) == before, "somebody went on while the caller held an event"


def may_close(event: Event) -> bool:
    """Whether the event can be a closing one: the error of the run, or the answers of a batch that was cancelled."""
    return bool(event.error_code or event.get_function_responses())


async def check_aftermath(service: BaseSessionService, diary: Diary) -> None:
    """The promises, compared with what is stored; then a new turn, at once."""
    events = await service.read_events(app_name="app", **PLACE)
    _check_log(events, diary)
    await check_new_turn(service)


async def check_reopened(store: Store) -> None:
    """A new turn, as another process would take it."""
    async with store.opened() as service:
        await check_new_turn(service)


def _check_log(events: list[Event], diary: Diary) -> None:
    assert [event.seq for event in events] == list(range(len(events)))
    texts = [event.text for event in events]
    for text in diary.returned:
        assert texts.count(text) == 1, f"emit of {text} returned, and it is not stored"
    for text in diary.cancelled:
        assert text not in texts, f"emit of {text} raised Cancelled, and it is stored"
    begin = max((event.seq or 0 for event in events if event.author == "user"), default=0)
    spoken = [event for event in events[begin:] if event.author not in ("user", "system")]
    assert diary.seen == spoken[: len(diary.seen)], "what was seen is what is stored, in its order"
    beyond = spoken[len(diary.seen) :]
    ordinary = [event for event in beyond if not may_close(event)]
    assert len(ordinary) <= 1 + ("last" in diary.begun), "at most the one in delivery, and what was emitted shielded"
    assert len(beyond) - len(ordinary) <= 2, "one batch is answered at most, and one error told"


def open_calls(events: list[Event]) -> list[str]:
    """The calls in *events* that have no response; each has at most one."""
    calls = [c.id for event in events for c in event.get_function_calls()]
    answers = [r.id for event in events for r in event.get_function_responses()]
    assert len(set(answers)) == len(answers), "a call was answered twice"
    assert set(answers) <= set(calls), "an answer to no call"
    return [call_id for call_id in calls if call_id and call_id not in answers]


async def check_new_turn(service: BaseSessionService) -> None:
    """The session takes a new turn, whose model gets a request that a strict provider would take."""
    model = ScriptedLlm(["here again"])
    runner = Runner(agent=LlmAgent(name="next", model=model), app_name="app", session_service=service)
    with trio.fail_after(60):
        async with runner.run_async(**PLACE, new_message="still there?") as run:
            answer = await run.wait()
    assert answer is not None
    assert answer.text == "here again"
    model.assert_done()
    events = await service.read_events(app_name="app", **PLACE)
    assert open_calls(events) == [], "every call was answered before the next message"
    session = await service.get_session(app_name="app", **PLACE)
    assert session is not None
    folded = fold(Values({}, {}, {}), events)
    assert dict(session.state) == folded.session, "the state is the fold of the log"


# --- interrupting at each step --------------------------------------------------------------------------------------


class CancelAtStep(trio.abc.Instrument):
    """Cancels *scope* after the *number*-th step of any task."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self.scope = scope
        self.number = number
        self.steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count; and cancel, once."""
        self.steps += 1
        if self.steps == self.number:
            self.scope.cancel()


# The number of steps of a run depends on trio's order of tasks and on how fast threads are. So many runs in a row must
# end before a step comes, before the enumeration is through.
QUIET_RUNS = 8


def enumerate_steps(attempt: Callable[[int], int], *, every: int = 1) -> tuple[int, int]:
    """
    Call `attempt(step)` for step 1, 2, 3 …, or each *every*-th, until runs end before their step, which is beyond those
    of an uninterrupted one; it returns the steps that it took.

    Returns up to which step runs were interrupted, and the steps of an uninterrupted run (the fewest of three).
    """
    uninterrupted = min(attempt(1_000_000) for _ in range(3))
    step = 1
    while any(attempt(step) >= step for _ in range(QUIET_RUNS if every == 1 else 1)) or step <= uninterrupted:
        step += every
    return step - 1, uninterrupted


async def interrupted_run(store: Store, agent: str, diary: Diary, step: int) -> int:
    """Run the scenario, cancelled from outside at this step; return the steps that it took. No task is left."""
    async with store.opened() as service:
        runner = Runner(agent=AGENTS[agent](diary), app_name="app", session_service=service)
        tasks_before = trio.lowlevel.current_statistics().tasks_living
        with trio.CancelScope() as scope:
            instrument = CancelAtStep(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                async with runner.run_async(**PLACE, new_message="go") as run:
                    await read_run(run, diary)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert trio.lowlevel.current_statistics().tasks_living == tasks_before, "a task is left"
        await check_aftermath(service, diary)
        return instrument.steps


def cancel_at_every_step(stores: Store, agent: str, *, every: int = 1) -> tuple[int, int]:
    """Run the scenario again and again, cancelled so many steps later each time, and check what is left each time."""

    def attempt(step: int) -> int:
        store, diary = stores.fresh(), Diary()
        steps = trio.run(interrupted_run, store, agent, diary, step)
        trio.run(check_reopened, store)
        store.remove()
        return steps

    return enumerate_steps(attempt, every=every)


if __name__ == "__main__":
    assert "pytest_trio" not in sys.modules
    assert "hypothesis" not in sys.modules
    for name in sys.argv[3:]:
        points, steps = cancel_at_every_step(Store(sys.argv[2], Path(sys.argv[1])), name)
        print(f"{name}: {points} interruption points, {steps} steps uninterrupted")
        assert points >= steps
