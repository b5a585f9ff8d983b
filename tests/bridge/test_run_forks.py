"""
A run in a thread, and a bridge, are gone in a fork of their process: the fork has no such thread.

Each case is a fresh process; its child says what it has seen.
"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minirun import InMemorySessionService, SqliteSessionService
from minirun.artifacts import FileArtifactService, InMemoryArtifactService
from minirun.errors import NotSupportedError
from minirun.memory import InMemoryMemoryService

from ..fork_server import run

forks = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

BEGIN = """
import gc, multiprocessing, os, pickle, signal, sys, warnings
from functools import partial
from pathlib import Path
import trio
from minirun import BaseAgent, Event, InMemoryRunner, InMemorySessionService, Runner, SqliteSessionService
from minirun.errors import MinirunError

class Counts(BaseAgent):
    async def _run_async_impl(self, ctx):
        for number in range(3):
            await ctx.emit(Event(message=str(number)))

place = {"user_id": "u", "session_id": "s"}

def forked(child):
    pid = os.fork()
    if not pid:
        signal.alarm(120)
        try:
            child()
        except BaseException as error:
            print("child", type(error).__name__, error, flush=True)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status

def tell(side, events):
    print(side, [event.text for event in events], flush=True)
"""

SYNC = """
runner = Runner(app_name="app", agent=Counts(name="a"), session_service=SqliteSessionService(sys.argv[1]),
                auto_create_session=True)
run = runner.run(**place, new_message="go")
tell("parent", [next(run)])

def child():
    try:
        next(run)
    except MinirunError as error:
        print("child", type(error).__name__, flush=True)
    run.close()
    tell("child", run)
    own = runner.run(user_id="u", session_id="child", new_message="go")
    tell("child", own)

forked(child)
tell("parent", run)
"""

BRIDGE = """
import asyncio
from minirun.bridge import AsyncioBridge

service = SqliteSessionService(sys.argv[1])
runner = Runner(app_name="app", agent=Counts(name="a"), session_service=service, auto_create_session=True)

async def chat(session_id):
    async with AsyncioBridge(runner) as bridge:
        async for event in bridge.run_async(user_id="u", session_id=session_id, new_message="go"):
            yield event

async def all_of(session_id):
    return [event async for event in chat(session_id)]

with AsyncioBridge(runner) as bridge:
    run = bridge.run(user_id="u", session_id="s", new_message="go")
    tell("parent", [next(run)])

    def child():
        for ask in (partial(next, run), lambda: list(bridge.run(user_id="u", session_id="t", new_message="go"))):
            try:
                ask()
            except MinirunError as error:
                print("child", type(error).__name__, flush=True)
        bridge.__exit__(None, None, None)
        tell("child", asyncio.run(all_of("child")))

    forked(child)
    tell("parent", run)
"""


def seen(program: str, *args: object) -> list[str]:
    """What the processes of a program have said, in order."""
    done = run(["-W", "error", "-c", BEGIN + program, *map(str, args)], cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@forks
def test_a_synchronous_run_is_over_in_a_fork(tmp_path: Path) -> None:
    """Asking it for more is refused and closing it returns; the fork has runs of its own, and the parent's goes on."""
    assert seen(SYNC, tmp_path / "a.db") == [
        "parent ['0']",
        "child InvocationEndedError",
        "child []",
        "child ['0', '1', '2']",
        "parent ['1', '2']",
    ]


@forks
def test_a_bridge_is_left_in_a_fork(tmp_path: Path) -> None:
    """What goes on in it, and what is begun in it, is refused; a new one over the same runner has a thread again."""
    assert seen(BRIDGE, tmp_path / "a.db") == [
        "parent ['0']",
        "child InvocationEndedError",
        "child ServiceClosedError",
        "child ['0', '1', '2']",
        "parent ['1', '2']",
    ]


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "make",
    [
        InMemorySessionService,
        lambda: SqliteSessionService(":memory:"),
        InMemoryArtifactService,
        lambda: FileArtifactService("artifacts"),
        InMemoryMemoryService,
    ],
)
def test_a_service_is_not_sent_to_another_process(make: Callable[[], object], send: Callable[[object], object]) -> None:
    """`multiprocessing` without fork would make a second one out of its parts: that is refused, with what to do."""
    with pytest.raises(NotSupportedError, match="Service cannot be pickled or copied; make one in each process"):
        send(make())
