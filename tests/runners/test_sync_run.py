"""Runner.run, for synchronous code: a true rendezvous, and an end however the caller loses interest."""

from __future__ import annotations

import gc
import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest
import trio

from minirun import BaseAgent, Event, InMemoryRunner, InvocationContext, RunConfig, SqliteSessionService
from minirun.errors import SessionNotFoundError
from minirun.simulation._watchdog import NAME as WATCHDOG

from ..fork_server import Process, program
from ..fork_server import start as start_process
from ..helpers import PLACE, runner_for, stored_events

# As long as nothing is wrong, a process of these tests ends at once.
PATIENCE_S = 120


def minirun_threads() -> list[str]:
    """Those of this process, but for the one that watches simulations: after a test with one it stays for a while."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("minirun") and name != WATCHDOG]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Every test of this file ends without a thread of minirun's."""
    yield
    assert minirun_threads() == []


progress: list[str] = []


async def three(ctx: InvocationContext) -> None:
    """Emits three events and notes how far it has come."""
    progress.clear()
    try:
        for number in range(3):
            await ctx.emit(Event(message=str(number)))
            progress.append(f"after {number}")
    finally:
        progress.append("cleaned up")


def test_events_come_one_by_one_and_the_agent_waits() -> None:
    """The agent has not gone on while the caller holds an event."""
    events = runner_for(three).run(**PLACE, new_message="go")
    assert minirun_threads() == [], "nothing runs before the first event is asked for"
    for number, event in enumerate(events):
        time.sleep(0.02)  # the agent's thread would have time to go on
        assert event.text == str(number)
        assert progress == [f"after {n}" for n in range(number)]
    assert progress[-1] == "cleaned up"
    with pytest.raises(StopIteration):
        next(events)


REQUEST: ContextVar[str] = ContextVar("request", default="none")


def test_the_agent_sees_the_context_variables_of_the_caller() -> None:
    """
    A context variable, of a request for example, is there in agents, and what an agent sets stays with its run.
    """

    async def told(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=REQUEST.get()))
        REQUEST.set("of the agent")

    runner = runner_for(told)
    for value in ("one", "two"):
        token = REQUEST.set(value)
        try:
            assert [event.text for event in runner.run(**PLACE, new_message="hi")] == [value]
            assert REQUEST.get() == value
        finally:
            REQUEST.reset(token)


def test_it_tells_what_a_run_tells() -> None:
    """How it ended, its answer, what it waits for; and an invocation that waits goes on, in synchronous code, too."""

    class Asks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message=f"got {await ctx.request_input('what?')}"))

    runner = InMemoryRunner(agent=Asks(name="asks"), auto_create_session=True)
    with runner.run(user_id="u", session_id="s", new_message="go") as first:
        assert (first.status, first.answer, first.pending, first.invocation_id) == (None, None, [], None)
        assert len(list(first)) == 1
    assert first.status == "paused"
    [question] = first.pending
    with runner.run(user_id="u", session_id="s", new_message=question.reply("it")) as second:
        assert [event.text for event in second] == ["got it"]
    assert (second.status, second.pending, second.invocation_id) == ("completed", [], first.invocation_id)
    with runner.run(user_id="u", session_id="s", invocation_id=first.invocation_id) as third:
        assert list(third) == []
    assert third.answer == second.answer


def test_a_failure_is_raised_in_the_caller_with_its_own_type() -> None:
    """What the run fails with, while entering or running, is raised from next()."""

    async def fails(ctx: InvocationContext) -> None:
        raise KeyError("x")

    runner = runner_for(fails)
    events = runner.run(**PLACE, new_message="go")
    assert next(events).error_code == "KeyError"
    with pytest.raises(KeyError):
        next(events)
    runner.auto_create_session = False
    with pytest.raises(SessionNotFoundError):
        next(runner.run(user_id="u", session_id="nix", new_message="go"))


@pytest.mark.parametrize("how", ["close", "with", "del", "exception"])
def test_losing_interest_cancels_the_run_and_joins_its_thread(how: str) -> None:
    """close(), the end of `with`, garbage collection and an exception wait for the run's clean-up."""
    runner = runner_for(three)
    events = runner.run(**PLACE, new_message="go")
    if how == "close":
        next(events)
        events.close()
        events.close()
    elif how == "with":
        with events:
            next(events)
    elif how == "exception":
        with pytest.raises(ZeroDivisionError), events:
            next(events)
            raise ZeroDivisionError
    else:
        next(events)
        del events
        gc.collect()
    assert minirun_threads() == []
    assert progress[-1] == "cleaned up"
    assert [event.text for event in trio.run(stored_events, runner)] == ["go", "0"]


def test_closing_before_the_first_event_runs_nothing() -> None:
    """A run that nobody has asked for anything was never begun."""
    runner = runner_for(three)
    runner.run(**PLACE, new_message="go").close()
    with pytest.raises(SessionNotFoundError):
        trio.run(stored_events, runner)


async def test_it_refuses_to_run_inside_trio() -> None:
    """Synchronous iteration would stop the loop it is called in."""
    with pytest.raises(RuntimeError, match="run_async"):
        runner_for(three).run(**PLACE, new_message="go")


def test_runs_follow_each_other_on_one_session() -> None:
    """One after another, runs of one runner go on in the same session."""
    runner = runner_for(three)
    for _ in range(2):
        assert len(list(runner.run(**PLACE, new_message="go", run_config=RunConfig(max_llm_calls=5)))) == 3
    assert len(trio.run(stored_events, runner)) == 8


PROGRAM = """
    import sys, time, trio
    from minirun import BaseAgent, Event, Runner, SqliteSessionService

    class Slow(BaseAgent):
        async def _run_async_impl(self, ctx):
            try:
                await ctx.emit(Event(message="first"))
                print("waiting", flush=True)
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await ctx.emit(Event(message="clean-up"))
                print("cleaned up", flush=True)

    service = SqliteSessionService(sys.argv[1])
    runner = Runner(agent=Slow(name="slow"), app_name="app", session_service=service, auto_create_session=True)
    events = runner.run(user_id="u", session_id="s", new_message="go")
    print(next(events).text, flush=True)
"""


def start(tmp_path: Path, more: str) -> Process:
    return start_process(program(textwrap.dedent(PROGRAM) + textwrap.dedent(more), tmp_path / "s.db"))


def test_ctrl_c_cancels_the_run_and_waits_for_its_clean_up(tmp_path: Path) -> None:
    """KeyboardInterrupt while waiting for an event: the agent cleans up, then the program ends with it."""
    process = start(tmp_path, "next(events)")
    assert "waiting\n" in process.stdout
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate()
    assert out == "cleaned up\n"
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode != 0


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "del events", "import threading; threading.Event()"])
def test_the_end_of_the_interpreter_cancels_the_run(ending: str, tmp_path: Path) -> None:
    """A program that ends with a run in hand ends at once, after the run's clean-up, which is stored."""
    process = start(tmp_path, ending)
    out, error = process.communicate()
    assert error == ""
    assert (out.splitlines()[0], out.splitlines()[-1]) == ("first", "cleaned up")
    assert process.returncode == 0
    check = start(tmp_path, "")
    check.communicate()

    async def texts() -> list[str]:
        async with SqliteSessionService(tmp_path / "s.db") as service:
            found = await service.read_events(app_name="app", **PLACE, after_seq=0)
            return [event.text for event in found]

    assert trio.run(texts) == ["go", "first", "clean-up"] * 2
