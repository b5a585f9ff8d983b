"""Ctrl-C, and what else is no Exception, ends a run as a whole, wherever it arrives."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import Event, InMemorySessionService, InvocationContext, Runner
from minirun.sessions import LiveSession

from ..helpers import PLACE, Logic, run_to_end, runner_for

ROOT = Path(__file__).parents[2]


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
