"""Ctrl-C, and what else is no Exception, ends a run as a whole, wherever it arrives."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

import minirun
from minirun import Event, InMemorySessionService, InvocationContext, Runner
from minirun.artifacts import BaseArtifactService, DatabaseArtifactService, SqliteArtifactService
from minirun.errors import StaleSessionError
from minirun.sessions import BaseSessionService, DatabaseSessionService, LiveSession, SqliteSessionService
from minirun.types import Part

from ..helpers import PLACE, Logic, run_to_end, runner_for
from ..postgres import new_database

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(minirun.__file__).parent)


def interrupted_everywhere(store: str, step: int, runs: int) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.ctrl_c_lines", store, str(step), str(runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["bad"] == []
    assert found["lines"] > 200  # it has looked at something
    assert found["interrupts"] > found["lines"] / step * 0.9  # the order of tasks, and so the last lines, may differ


LARGE = [pytest.param(store, 1, marks=pytest.mark.slow) for store in ("memory", "sqlite")]


@pytest.mark.parametrize(("store", "step"), [("memory", 7), ("sqlite", 29), *LARGE])
def test_ctrl_c_at_any_line_ends_the_run_and_leaves_the_service_usable(store: str, step: int) -> None:
    """A SIGINT at any line of the run's own machinery ends the program with KeyboardInterrupt, and blocks nothing."""
    interrupted_everywhere(store, step, runs=1)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_ctrl_c_at_any_line_of_two_runs_ends_both(store: str) -> None:
    """The same holds while two runs share a service, and one task renews the leases of both."""
    interrupted_everywhere(store, 1, runs=2)


def test_ctrl_c_interrupts_an_agent_that_never_waits() -> None:
    """Code of the application is interrupted at once, also where it comes to no checkpoint."""
    reached: list[int] = []

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="busy"))
        signal.raise_signal(signal.SIGINT)
        reached.append(1)

    async def main() -> None:
        await run_to_end(runner_for(logic))

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert reached == []


class Exiting(InMemorySessionService):
    """Raises SystemExit instead of storing an event with one of these texts or error codes."""

    def __init__(self, exits_on: set[str]) -> None:
        super().__init__()
        self.exits_on = exits_on

    async def commit_event(self, live: LiveSession, event: Event, **options: Any) -> None:
        if self.exits_on & {event.text, event.error_code}:
            raise SystemExit(3)
        await super().commit_event(live, event, **options)


@pytest.mark.parametrize("exits_on", [{"two"}, {"two", "SystemExit"}], ids=["once", "also at the end"])
async def test_what_a_store_raises_that_is_no_exception_ends_the_run(exits_on: set[str]) -> None:
    """A store that raises SystemExit ends the run with that, and the session is free afterwards."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="one"))
        await ctx.emit(Event(message="two"))

    service = Exiting(exits_on)
    agent = Logic(name="agent", logic=logic)
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    seen = []
    with trio.fail_after(60):
        with pytest.raises(SystemExit):
            async with runner.run_async(**PLACE, new_message="go") as run:
                async for event in run:
                    seen.append(event.text)
        service.exits_on = set()
        _, run = await run_to_end(runner)
    assert seen == ["one"]
    assert run.status == "completed"


# --- services


class InterruptAtLine:
    """A trace function that raises SIGINT at the n-th line of minirun, or of contextlib, that is executed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: object) -> InterruptAtLine | None:
        name = frame.f_code.co_filename
        if not name.startswith((PACKAGE, contextlib.__file__)):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.number:
                self.where = f"{name}:{frame.f_lineno} {frame.f_code.co_qualname}"
                signal.raise_signal(signal.SIGINT)
        return self


async def interrupt_at_lines(work: Callable[[], Awaitable[object]], step: int) -> int:
    """Interrupt *work* at every *step*-th line, and call it again after each; return how many lines there are."""
    number = 0
    while True:
        number += step
        interrupt, is_interrupted = InterruptAtLine(number), False
        sys.settrace(interrupt)
        try:
            await work()
            sys.settrace(None)
            await trio.lowlevel.checkpoint()  # a Ctrl-C in protected code is deferred to here
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            sys.settrace(None)
        if not interrupt.where:
            return number
        assert is_interrupted, interrupt.where
        with trio.move_on_after(30) as scope:
            await work()
        assert not scope.cancelled_caught, f"interrupted at {interrupt.where}, the next call hangs"


SERVICES: dict[str, tuple[Callable[[str], BaseSessionService], Callable[[BaseSessionService], BaseArtifactService]]] = {
    "sqlite": (partial(SqliteSessionService, durability="process"), SqliteArtifactService),  # type: ignore[dict-item]
    "postgres": (DatabaseSessionService, DatabaseArtifactService),  # type: ignore[dict-item]
}


@pytest.mark.parametrize(("kind", "step"), [("sqlite", 3), ("postgres", 11)])
def test_ctrl_c_at_any_line_of_a_call_leaves_the_service_usable(kind: str, step: int, tmp_path: Path) -> None:
    """After a Ctrl-C at any line of a reading or writing call, the next call has the lock and a connection."""
    place: dict[str, Any] = {"app_name": "app", **PLACE}
    url = new_database() if kind == "postgres" else str(tmp_path / "app.db")

    async def main() -> list[int]:
        of_sessions, of_artifacts = SERVICES[kind]
        async with of_sessions(url) as service, of_artifacts(service) as artifacts:
            await service.create_session(**place)
            await artifacts.save_artifact(**place, filename="f", artifact=Part(text="text"))

            async def append() -> None:
                session = await service.get_session(**place)
                assert session is not None
                with contextlib.suppress(StaleSessionError):  # the interrupted append was stored just now
                    await service.append_event(session, Event(author="user", message="hello"))

            works: list[Callable[[], Awaitable[object]]] = [
                lambda: service.get_session(**place),
                lambda: service.read_events(**place, limit=3),
                lambda: service.list_sessions(app_name="app"),
                lambda: service.list_invocations(app_name="app"),
                lambda: artifacts.load_artifact(**place, filename="f"),
                append,
            ]
            return [await interrupt_at_lines(work, step) for work in works]

    lines = trio.run(main)
    assert min(lines) > 20
    assert sum(lines) > 500
