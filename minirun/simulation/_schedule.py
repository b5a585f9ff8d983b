"""
The schedule: which task goes on next is a choice.

Under a simulation every `Env.point` is a gate where its task parks. When nothing in the program can go on by itself,
one of the parked tasks is let through: chosen from a list that is sorted by logical names, not by arrival or by the
addresses of objects, so that the same choices are the same schedule in every process. A cancellation of a parked task
is not delivered at once, either: the task gets it when it is chosen.

The gate is opened by the clock of the run (`_clock`). trio asks its clock how long it may sleep, and does so only when
no task can go on: at that moment one is chosen, and trio goes on with it at once. A task that waited until all others
wait would cost another round of trio's loop for each step. There is such a task nevertheless, the *driver*: an error
in the clock would be one of trio itself, so the driver gets it to raise, and it waits where every parked task stands
still.

Mostly the task that comes to a point is the only one that was not waiting. Then it opens the gate itself, for trio's
next round would begin with that; and if it is the one that is chosen, it goes on without another round.

This uses trio's public API. What happens between two points is up to trio, whose order of ready tasks is random; the
second layer (`_private.py`) makes that follow from the choices, too, where trio's internals are as we know them.

Logical names: a task is its parent, its own name, and which one of that name it is among its siblings. A trio
instrument gives them when tasks are spawned, which their parents do in the order of their own code.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import outcome
import trio

from ._choices import Choices
from ._hangs import DeadlockError, Hangs, LivelockError, RunawayClockError
from ._private import is_cancelled, is_quiet, tell_turns

__all__ = ["DeadlockError", "LivelockError", "RunawayClockError", "Schedule"]

# More steps than any simulation of sane length takes; a run that goes on has stopped making progress. The same counted
# in turns that trio gives to tasks, for what never comes to a point; and in points after the end, when all are open.
STEPS_MAX = 20_000
TURNS_MAX = 500_000
OPEN_POINTS_MAX = 10_000


class _Names(trio.abc.Instrument):
    """Gives every task its logical name when it is spawned, and is told of the turns that tasks get."""

    def __init__(
        self, give_up: Callable[[], None], spawned: Callable[[trio.lowlevel.Task], None], turns_max: int
    ) -> None:
        self.turns_left = turns_max
        self.turns_of_round = 0  # as far as that is told for whole rounds
        self._give_up = give_up
        self._spawned = spawned
        self.names: dict[trio.lowlevel.Task, str] = {}
        self._counts: dict[str, int] = {}

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        parent = "" if nursery is None else self.names.get(nursery.parent_task, "")
        name = f"{parent}/{task.name.rpartition('.')[2]}"
        if name in self._counts:
            count = self._counts[name] + 1
            while (numbered := f"{name}:{count}") in self._counts:  # somebody is called so
                count += 1
            self._counts[name] = count
            name = numbered
        self._counts[name] = 1
        self.names[task] = name
        if task.name.startswith("minirun agent"):
            self._spawned(task)

    def take_turns(self, count: int) -> None:
        """So many tasks get a turn in this round."""
        self.turns_of_round = count
        left = self.turns_left
        self.turns_left = left - count
        if left <= count and left > 0:
            self._give_up()

    def __dir__(self) -> list[str]:
        """What trio is to call: it looks here, and at all else that an object has, once in each world."""
        return ["task_exited", "task_spawned"]

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.names.pop(task, None)


class _Turns(trio.abc.Instrument):
    """Counts turns where trio's order cannot be seeded, by which they are told otherwise: `tell_turns`."""

    def __init__(self, names: _Names) -> None:
        self._names = names

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._names.take_turns(1)
        self._names.turns_of_round = 0  # nobody knows


class _Parked:
    """A task at a point; with what its cancellation raises, once it was cancelled."""

    __slots__ = ("is_released", "label", "raise_cancel", "task")

    def __init__(self, task: trio.lowlevel.Task, label: str) -> None:
        self.task = task
        self.label = label
        self.raise_cancel: Callable[[], Any] | None = None
        self.is_released = False  # while it waited for nothing yet


Policy = Callable[["Schedule", list[str]], Callable[[random.Random], int] | None]


class Schedule:
    """
    The gate and what drives it.

    Args:
        choices: Which task goes on.
        on_step: Called before each step: the checkers. What it raises ends the simulation.
        policy: How a random search prefers tasks: one of `POLICIES`.
        together_one_in: Once in so many steps another task goes on at the same time; 0 for never. Between two points
            such tasks take turns in trio's order, so races at any checkpoint are found, not only at points.
    """

    def __init__(
        self,
        choices: Choices,
        on_step: Callable[[], None],
        policy: str = "uniform",
        together_one_in: int = 0,
    ) -> None:
        self._choices = choices
        self._on_step = on_step
        self._policy = POLICIES[policy]
        self._together_one_in = together_one_in
        self._names = _Names(self._give_up, lambda task: self.hangs.spawned(task), TURNS_MAX)
        self.hangs = Hangs(self._names.names, self._point_of, lambda: self.steps)
        """What sees that the world comes to its end."""
        self._open_points = 0
        self._nursery: trio.Nursery
        self._parked: dict[str, _Parked] = {}
        self._driver: trio.lowlevel.Task | None = None  # while the clock opens the gate
        self._sleeper: trio.lowlevel.Task | None = None  # the same one, while nothing is parked
        self._nap: trio.CancelScope | None = None  # the driver's, while all that is parked stands still
        self._rested_at = TURNS_MAX + 1  # the turns that were left when nothing was parked
        self._opener: _Parked | None = None  # the task that opens the gate itself
        self._is_open = False
        self.steps = 0
        self.last = ""
        self.weights: dict[str, int] = {}
        self.stalled: dict[str, float] = {}
        """Names whose tasks, children included, do not go on before a time."""

    def name_of(self, task: trio.lowlevel.Task) -> str:
        """The logical name of a task."""
        return self._names.names.get(task, task.name)

    def living(self) -> Iterable[str]:
        """The logical names of all tasks that have not ended."""
        return self._names.names.values()

    def waiting(self) -> Iterable[tuple[str, str]]:
        """The tasks that stand at a point: their names, and those of the points."""
        return ((name, parked.label) for name, parked in self._parked.items())

    def _point_of(self, task: trio.lowlevel.Task) -> str | None:
        return next((parked.label for parked in self._parked.values() if parked.task is task), None)

    async def point(self, label: str) -> None:
        """Park until the schedule chooses this task. A checkpoint, of which trio hears only if another task goes on."""
        if self._is_open:
            self._open_points += 1
            if self._open_points > OPEN_POINTS_MAX:
                msg = f"{self.name_of(trio.lowlevel.current_task())} goes on and on after everything has ended"
                raise LivelockError(msg)
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        name = self.name_of(task)
        assert name not in self._parked, f"two tasks are named {name}"
        parked = self._parked[name] = _Parked(task, label)
        if self._nap is not None:  # another task than those that stand still
            self._nap.cancel()
        elif self._sleeper is not None:
            driver, self._sleeper = self._sleeper, None
            trio.lowlevel.reschedule(driver)
        elif self._names.turns_of_round == 1 and self._is_alone(task):
            self._opener = parked
            self.is_idle(float("inf"))
            self._opener = None
            if parked.is_released:
                await self._go_on(task)
                return

        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            parked.raise_cancel = raise_cancel
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _is_alone(self, task: trio.lowlevel.Task) -> bool:
        """Whether the clock would open the gate next, if this task parked, which alone has a turn in this round."""
        if self._driver is None or self.steps >= STEPS_MAX:  # of too many, the tasks are told as they stand
            return False
        return is_quiet() and not is_cancelled(task)

    async def _go_on(self, task: trio.lowlevel.Task) -> None:
        """This task is chosen, and has opened the gate: let it be in the next round, if there is one."""
        if is_cancelled(task):
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
        elif not is_quiet():
            await trio.lowlevel.cancel_shielded_checkpoint()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Drive what runs in the block. Afterwards all points are open, so that what is left can end."""
        instruments: list[trio.abc.Instrument] = [self._names]
        if not tell_turns(self._names.take_turns):
            instruments.append(_Turns(self._names))
        for instrument in instruments:
            trio.lowlevel.add_instrument(instrument)
        self._names.names[trio.lowlevel.current_task()] = "/scenario"
        try:
            async with trio.open_nursery() as self._nursery:
                self.hangs.begin(self._nursery.cancel_scope.cancel)
                self._nursery.start_soon(self._drive, name="minirun schedule")
                try:
                    yield
                finally:
                    self._nursery.cancel_scope.cancel()
        finally:
            self.hangs.ended()

    def _give_up(self) -> None:
        """Tasks take turns without end, and no step comes of it: cancel everything, or leave them where they stand."""
        if self._is_open:
            self.hangs.takes_too_long()
            return
        msg = f"no end after {TURNS_MAX} turns of tasks, of which {self.steps} were steps; the tasks:\n"
        self.hangs.fail(LivelockError(msg + self.hangs.dump()))

    def is_idle(self, deadline: float) -> bool:
        """All tasks wait, at least until *deadline*: let one through. False if none is parked, so that time jumps."""
        driver = self._driver or self._sleeper
        if driver is None:
            if self._is_open:
                self.hangs.rests(deadline, self._names.turns_left)
            return False
        if not self._parked and (deadline < float("inf") or self._names.turns_left < self._rested_at):
            self._driver, self._sleeper = None, driver
            self._rested_at = self._names.turns_left
            return False
        try:
            if driver.context.run(self._step):
                return True
            told: outcome.Outcome[bool] = outcome.Value(self.hangs.failure is None)
        except BaseException as error:
            told = outcome.Error(error)
        self._driver = self._sleeper = None
        trio.lowlevel.reschedule(driver, told)
        return True

    def may_jump(self, seconds: float) -> bool:
        """Look for what hangs, before time passes."""
        return self.hangs.may_jump(seconds)

    def _step(self) -> bool:
        """Let one go on, and what may happen before; False if all stand still, or the world has come to a hang."""
        if self.hangs.failure is None and not self._parked:
            self.hangs.fail(self.hangs.deadlock())
        if self.hangs.failure is not None:
            return False
        self._on_step()
        names = sorted(self._parked)
        if self.stalled:
            names = self._not_stalled(names)
        return bool(names) and self._let_go_on(names)

    async def _drive(self) -> None:
        try:
            while self.hangs.failure is None:
                if await self._all_stand_still():
                    with trio.CancelScope(deadline=min(self.stalled.values())) as self._nap:
                        await trio.sleep_forever()
                    self._nap = None
        finally:
            self._open()

    async def _all_stand_still(self) -> bool:
        """Let the clock open the gate; True once all parked tasks stand still, False if the driver is to look again."""
        self._driver = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._driver = self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        return bool(await trio.lowlevel.wait_task_rescheduled(abort))

    def _not_stalled(self, names: list[str]) -> list[str]:
        now = trio.current_time()
        self.stalled = {name: until for name, until in self.stalled.items() if until > now}
        return [name for name in names if not any(f"{name}/".startswith(f"{stalled}/") for stalled in self.stalled)]

    def _let_go_on(self, names: list[str]) -> bool:
        """Release one task, and sometimes others with it; False if there have been too many steps."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            msg = f"no end after {STEPS_MAX} steps; the tasks:\n{self.hangs.dump()}"
            self.hangs.fail(LivelockError(msg))
            return False
        if len(names) == 1:
            self.last = names[0]
            self._release(self._parked.pop(names[0]))
            return True
        prefer = self._policy(self, names)
        name = names[self._choices.choose(len(names), f"step {self.steps}", prefer, tuple(names))]
        self.last = name
        self._release(self._parked.pop(name))
        one_in = self._together_one_in
        while one_in and len(names) > 1 and self._choices.maybe(f"step {self.steps}: another with it", one_in):
            names = [other for other in names if other != name]
            name = names[self._choices.choose(len(names), f"step {self.steps}, too", names=tuple(names))]
            self._release(self._parked.pop(name))
        return True

    def _release(self, parked: _Parked) -> None:
        if parked is self._opener:
            parked.is_released = True
            return
        cancelled = parked.raise_cancel
        trio.lowlevel.reschedule(parked.task, outcome.Value(None) if cancelled is None else outcome.capture(cancelled))

    def _open(self) -> None:
        self._is_open = True
        self._names.turns_left = self.hangs.end()
        for name in sorted(self._parked):
            self._release(self._parked.pop(name))


# --- how a random search prefers tasks --------------------------------------------------------------------------------


def _uniform(schedule: Schedule, names: list[str]) -> None:
    """Every task alike."""
    return None


def _sticky(schedule: Schedule, names: list[str]) -> Callable[[random.Random], int]:
    """The one that went on last goes on, mostly: long stretches of one task."""
    last = names.index(schedule.last) if schedule.last in names else None
    return lambda randomness: last if last is not None and randomness.randrange(8) else randomness.randrange(len(names))


def _weighted(schedule: Schedule, names: list[str]) -> Callable[[random.Random], int]:
    """Each task has a weight for the whole run: some are slow, some fast."""

    def pick(randomness: random.Random) -> int:
        weights = [schedule.weights.setdefault(name, 4 ** randomness.randrange(4)) for name in names]
        return randomness.choices(range(len(names)), weights)[0]

    return pick


def _prioritized(schedule: Schedule, names: list[str]) -> Callable[[random.Random], int]:
    """Strict priorities that change at a few places (PCT, Burckhardt et al. 2010): finds rare orders of few steps."""

    def pick(randomness: random.Random) -> int:
        priorities = [schedule.weights.setdefault(name, randomness.randrange(2**30)) for name in names]
        place = max(range(len(names)), key=priorities.__getitem__)
        if randomness.randrange(20) == 0:
            schedule.weights[names[place]] = -schedule.steps
        return place

    return pick


POLICIES: dict[str, Policy] = {
    "uniform": _uniform,
    "sticky": _sticky,
    "weighted": _weighted,
    "priorities": _prioritized,
}
