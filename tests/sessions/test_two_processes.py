"""
Two processes and more on the same sessions, colliding and dying at random (promises P1, P3, P4 and P6).

Each process is a crowd of its own (`collide` in kills.py): two runners and somebody who appends, on the few sessions
of one file. What must hold of the file is in ledger.py; what two processes do to each other step by step is in
test_processes.py.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import Env, Event, LlmAgent, Runner
from minirun.errors import StaleSessionError
from minirun.sessions._sqlite._leases import LEASE_S
from minirun.testing import ScriptedLlm, call

from ..ledger import Forker, Ledger, check_calls, check_turns, forker, is_closing
from ..stores import HERE, Clock, Elsewhere, append, get, texts
from .test_processes import Others, others, path, session_at

__all__ = ["others", "path"]  # fixtures

# As many as collide all the time, and still take turns.
SESSIONS = ("0", "1")
# How many deaths there are on one file: checking costs its length.
DEATHS = 6
# Who stands still for so long has lost its sessions.
SHORT_LEASE_S = 0.3
# How much is said between two deaths, at most; who stands still says nothing.
LINES_MAX = 40
SAYING_S_MAX = 2.0


@pytest.fixture(scope="module")
def forks() -> Forker:
    """Where processes come from."""
    return forker()


@attrs.define
class Crowd:
    """The living and the dead of one file. Processes have numbers, which what they write begins with."""

    forks: Forker
    path: Path
    options: dict[str, Any]
    living: dict[int, int] = attrs.Factory(dict)
    killed_at: dict[int, float] = attrs.Factory(dict)
    stops: int = 0
    born: int = 0

    def said(self, number: int) -> Path:
        return self.path.parent / f"{number}.said"

    def start(self, role: str = "collide", **more: Any) -> int:
        """Start one more process, and return its number."""
        number, self.born = self.born, self.born + 1
        self.living[number] = self.forks.start(
            role, self.path, self.said(number), number=number, run=SESSIONS, **self.options, **more
        )
        return number

    def kill(self, number: int) -> None:
        """End a process as nothing can prevent; note when."""
        self.killed_at[number] = time.time()
        pid = self.living.pop(number)
        os.kill(pid, signal.SIGKILL)
        status = self.forks.ends(pid)
        assert status == -signal.SIGKILL, self.said(number).read_text()[-3000:]

    def stop(self, number: int, seconds: float) -> None:
        """Let a process stand still, others going on: or not, if it stands in a transaction."""
        self.stops += 1
        os.kill(self.living[number], signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.living[number], signal.SIGCONT)

    def let_go_on(self, lines: int) -> None:
        """Wait until those who live have said so many lines more, however busy the machine is."""
        enough = self._said() + lines
        deadline = time.monotonic() + SAYING_S_MAX
        while self._said() < enough and time.monotonic() < deadline:
            time.sleep(0.002)

    def _said(self) -> int:
        files = [self.said(number) for number in self.living]
        return sum(file.read_bytes().count(b"\n") for file in files if file.exists())

    def check_closings(self, events: list[Event]) -> None:
        """Calls were answered in the place of a process only after its death."""
        makers = {event.invocation_id: int(event.text.split(".")[0]) for event in events if event.author == "user"}
        for event in filter(is_closing, events):
            assert event.timestamp is not None
            died = self.killed_at[makers[event.invocation_id]]
            assert event.timestamp >= died, f"{event} closes a call of a living process"


def let_them_die(forks: Forker, folder: Path, deaths: int, seed: int, *, stops: bool = False) -> Ledger:
    """Two processes on new files, killed (or stopped) and replaced at random; a file is checked when all are dead."""
    luck = Random(seed)
    total = Ledger(folder)
    for round_ in range(-(-deaths // DEATHS)):
        (folder / str(round_)).mkdir(parents=True)
        options = {"durability": luck.choice(["power", "process"]), "seed": luck.random()}
        crowd = Crowd(forks, folder / str(round_) / "a.db", options | ({"lease_s": SHORT_LEASE_S} if stops else {}))
        for _ in range(2):
            crowd.start()
        for _ in range(DEATHS - 2):
            crowd.let_go_on(luck.randrange(LINES_MAX))  # the moment is what the test is about
            victim = luck.choice(sorted(crowd.living))
            if stops and luck.random() < 0.5:
                crowd.stop(victim, 1.5 * SHORT_LEASE_S)
                time.sleep(0.1 * luck.random())
            crowd.kill(victim)
            crowd.start()
        for victim in sorted(crowd.living):
            crowd.kill(victim)
        ledger = check(crowd)
        total.acknowledged += ledger.acknowledged
        total.unheard += ledger.unheard
        total.said += ledger.said
    return total


def check(crowd: Crowd) -> Ledger:
    """All are dead: the file is as it should be; and once more after a last run on each session."""
    tasks = dict.fromkeys(SESSIONS, 3)  # two runners and an append, in each process
    ledger = Ledger(crowd.path, tasks=tasks, fenced=bool(crowd.stops))
    for number in range(crowd.born):
        ledger.hear(crowd.said(number))
    ledger.check(dead=crowd.born)
    last = crowd.start("finish")
    assert crowd.forks.ends(crowd.living.pop(last)) == 0, crowd.said(last).read_text()[-3000:]
    ledger.hear(crowd.said(last))
    ledger.check()
    for events in ledger.known.values():
        check_calls(events, ended=True)
        check_turns(events)
        if not crowd.stops:
            crowd.check_closings(events)
    if not crowd.stops:
        assert not ledger.said["stale"], "nobody is replaced who lives"
    return ledger


def test_processes_that_collide_and_die_leave_one_order(forks: Forker, tmp_path: Path) -> None:
    """Whoever is killed when: each session is one run after another, each key and sum is there, each call answered."""
    ledger = let_them_die(forks, tmp_path, 6, seed=1)
    print(ledger.acknowledged, ledger.unheard, ledger.said)
    assert ledger.said["ended"] > 2
    assert ledger.said["refused"] + ledger.said["overtaken"] > 0, "they did collide"


def test_processes_that_stand_still_are_replaced_and_fenced(forks: Forker, tmp_path: Path) -> None:
    """The same where processes also stand still past their leases: they may lose a session, and never mix into it."""
    ledger = let_them_die(forks, tmp_path, 6, seed=2, stops=True)
    print(ledger.acknowledged, ledger.unheard, ledger.said)
    assert ledger.said["ended"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True])
def test_processes_collide_and_die_hundreds_of_times(stops: bool, forks: Forker, tmp_path: Path) -> None:
    """The same, often enough to hit what is rare."""
    ledger = let_them_die(forks, tmp_path, 300, seed=3, stops=stops)
    print(ledger.acknowledged, ledger.unheard, ledger.said)
    assert ledger.said["stale"] > 0 or not stops


def test_who_was_replaced_does_not_ask_its_model_again(path: Path, others: Others) -> None:
    """A run that stood still in a tool until another took its session fails at the tool's result, not a turn later."""
    stopped = others.start("run_agent", path, agent="asker", message="work", lease_s=SHORT_LEASE_S)
    assert [stopped.says(), stopped.says()] == ["asked", "in tool"]
    stopped.process.send_signal(signal.SIGSTOP)
    other = others.start("run_agent", path, agent="greeter", message="instead")
    assert other.ends() == "done"
    stopped.process.send_signal(signal.SIGCONT)
    stopped.hears("too late")
    assert stopped.says() == "StaleSessionError", "and not: asked"
    events = session_at(path).events
    assert [event.text for event in events] == ["work", "", "", "instead", "hello", "bye"]
    [answer] = events[2].get_function_responses()
    assert answer.response["error"]["type"] == "outcome_unknown"
    check_calls(events, ended=True)


@pytest.mark.parametrize("read", [False, True])
async def test_who_was_replaced_is_told_so_whatever_else_its_process_has_read(read: bool, tmp_path: Path) -> None:
    """The run fails with StaleSessionError also where its own process has read the session since, by another task."""
    clock = Clock([1e9])
    path = tmp_path / "a.db"
    async with (
        Elsewhere(path, durability="process", env=clock) as mine,
        Elsewhere(path, durability="process", env=clock) as others,
    ):
        await mine.create_session(**HERE)
        model = ScriptedLlm([call("lose_it"), "never said"])

        async def lose_it() -> str:
            """Stand still past the lease, and let another process run."""
            clock.seconds[0] += 2 * LEASE_S
            agent = LlmAgent(name="other", model=ScriptedLlm(["instead"]))
            runner = Runner(agent=agent, app_name="app", session_service=others)
            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                await run.wait()
            if read:
                assert texts(await get(mine))[-1] == "instead"
            return "too late"

        agent = LlmAgent(name="first", model=model, tools=[lose_it])
        runner = Runner(agent=agent, app_name="app", session_service=mine)
        with pytest.raises(StaleSessionError):
            async with runner.run_async(user_id="u", session_id="s", new_message="work") as run:
                await run.wait()
        assert len(model.requests) == 1, "it was not asked again"
        assert texts(await get(others)) == ["work", "", "", "hi", "instead"]


@attrs.frozen(eq=False)
class Held(Env):
    """The real world, where who would sleep waits until the test lets it go on."""

    proceed: trio.Event = attrs.field(factory=trio.Event)

    async def sleep(self, seconds: float) -> None:
        """Wait for the test."""
        await self.proceed.wait()


@pytest.mark.parametrize("how", ["append", "run"])
async def test_who_is_overtaken_while_it_waits_for_the_file_is_told_so(how: str, tmp_path: Path) -> None:
    """An append is stale, and a run enters anew, also if another task has read what the faster process wrote."""
    path = tmp_path / "a.db"
    held = Held()
    async with (
        Elsewhere(path, durability="process", env=held) as mine,
        Elsewhere(path, durability="process") as others,
    ):
        session = await mine.create_session(**HERE)
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")

        async def write() -> None:
            if how == "append":
                with pytest.raises(StaleSessionError):
                    await append(mine, session, "slower")
                return
            agent = LlmAgent(name="a", model=ScriptedLlm(["said"]))
            runner = Runner(agent=agent, app_name="app", session_service=mine)
            async with runner.run_async(user_id="u", session_id="s", new_message="slower") as run:
                await run.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            lock.execute("ROLLBACK")
            lock.close()
            await append(others, await get(others), "faster")
            assert texts(await get(mine)) == ["faster"]
            held.proceed.set()
        assert texts(await get(others)) == ["faster", *(["slower", "said"] if how == "run" else [])]
