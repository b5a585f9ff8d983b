"""
A world that does not come to its end is ended, and says which task waits for what.

The rules of this file:

* What decides follows from the choices alone: steps, turns, jumps of the clock, which tasks wait for each other. So
  the same seed hangs in the same way. Real time is only for what never gives control back (`_watchdog`).
* The first hang that is found is what the simulation fails with. Then everything is cancelled, and what comes to rest
  without having ended loses its shields. What swallows even that is left behind where it stands: `trio.run` ends
  without its tasks, which stay in memory as they are.

A *deadlock* is a circle of tasks of which each waits for the next, over locks and nurseries, while none of them has a
deadline of its own; or a world in which nothing can go on by itself. The deadline of a run counts as none, for it is
the last resort: a run that is ended by it says how its tasks waited (`deadline_dump`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio
from trio.testing import MockClock

from .._json import brief
from ..errors import DeadlineExceededError, MinirunError
from ..runtime import RunConfig
from ..runtime._run import Execution
from ._private import deadline_of, stop_loop, unshield
from ._report import task_in_words, with_note
from ._waits import Parked, circle, dump, is_asleep

__all__ = ["DeadlockError", "Hangs", "LivelockError", "RunawayClockError"]

# A jump of the clock is long from an hour on; so many of them in a row, without a step between two, are a clock that
# runs away: 1 000 of them are 40 days at least, in which nobody came to a point.
LONG_JUMP_S = 3600.0
LONG_JUMPS_MAX = 1_000
# So many jumps in a row, however short, are a loop, too: a poll every 10 ms makes as many in 1 000 s. They take 2 s.
# TURNS_MAX would take 10 s, for each turn after a jump is a round of trio's loop.
JUMPS_MAX = 100_000
# No world takes longer, however it steps: a hundred years, after which dates come near to their end.
TIME_S_MAX = 100 * 365 * 86_400.0
# What a world that is ending may take: turns of its tasks, and how often it comes to rest without being over. Both are
# far more than cleaning up takes, which is some tens of them.
ENDING_TURNS_MAX = 50_000
ENDING_RESTS_MAX = 100
# After so many rounds of trio's loop without a turn there is none: who waits until all wait has been woken by then.
IDLE_ROUNDS = 3
# Runs whose config says nothing else end after so long; it is nobody's wish, so it hides no deadlock.
_USUAL_DEADLINE_S = RunConfig().deadline_s
# The task that sessions/_renewals.py starts.
_LEASE_RENEWAL = "minirun lease renewal"

# The tasks that refuse to end. They are kept, for to be collected they would have to end.
_LEFT_BEHIND: list[trio.lowlevel.Task] = []


class DeadlockError(MinirunError):
    """
    Tasks wait for each other for ever, or nothing can go on, nothing is parked, and no deadline is near.

    The message has all tasks, what each waits for, and where in the code.
    """


class LivelockError(MinirunError):
    """The program goes on and on without ever coming to its end. The message has all tasks, as that of a deadlock."""


class RunawayClockError(MinirunError):
    """Virtual time passes again and again, and nothing comes of it. The message has all tasks, too."""


class _LeftBehindError(BaseException):
    """What ends the loop of a world that does not end otherwise."""


class _InARow:
    """How often something has happened without a step in between."""

    def __init__(self) -> None:
        self._times = self._since = 0

    def another(self, steps: int) -> int:
        """Once more, after so many steps; return how often."""
        self._times = self._times + 1 if steps == self._since else 1
        self._since = steps
        return self._times


class Hangs:
    """
    What watches one world.

    Args:
        names: All living tasks, and their logical names.
        parked: The point at which a task is parked.
        steps: How many steps the schedule has made.
    """

    def __init__(self, names: Mapping[trio.lowlevel.Task, str], parked: Parked, steps: Callable[[], int]) -> None:
        self._names = names
        self._parked = parked
        self._steps = steps
        self.failure: MinirunError | None = None
        """The first hang that was found."""
        self.deadline_dump: str | None = None
        """How the tasks waited when a run last met its deadline."""
        self._clock: MockClock
        self._cancel: Callable[[], None]
        self._runs: dict[trio.lowlevel.Task, tuple[float, float | None]] = {}  # their deadlines, and what was asked
        self._jumps, self._long_jumps = _InARow(), _InARow()
        self._is_ending = False
        self._rests = 0  # since it is
        self._idle = (0, 0)  # how many turns were left, and how many rounds of the loop have passed since without one

    def dump(self) -> str:
        """All living tasks, by name: what each waits for, and where it stands."""
        return dump(self._names, self._parked)

    # --- while the world lives

    def begin(self, cancel: Callable[[], None]) -> None:
        """Watch from now on; *cancel* is what ends the world."""
        self._cancel = cancel
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock), "worlds live in virtual time"
        self._clock = clock

    def spawned(self, task: trio.lowlevel.Task) -> None:
        """A task of a run's agents begins: its deadline is one of the runtime's."""
        frame = getattr(task.coro, "cr_frame", None)
        execution = frame and frame.f_locals.get("self")
        if isinstance(execution, Execution):
            self._runs[task] = (execution._deadline, execution.invocation.run_config.deadline_s)

    def fail(self, error: MinirunError) -> None:
        """End the world, whatever it does: it fails with the first *error*."""
        if self.failure is None:
            self.failure = error
            trio.lowlevel.current_trio_token().run_sync_soon(self._cancel)

    def deadlock(self) -> DeadlockError:
        """What a world fails with that has come to rest for ever."""
        why = self._circle() or f"nothing can go on after {self._steps()} steps"
        return DeadlockError(f"{why}; the tasks:\n{self.dump()}")

    def _circle(self) -> str:
        """The first circle of tasks that wait for each other, in words."""
        found = circle(self._names)
        if not found or not all(self._waits_for_ever(task) for task in found):
            return ""
        told = [task_in_words(self._names.get(task, task.name)) for task in (*found, found[0])]
        return f"a deadlock: {told[0]} waits for {', which waits for '.join(told[1:])}"

    def _waits_for_ever(self, task: trio.lowlevel.Task) -> bool:
        deadline = deadline_of(task)
        runs = [deadline for deadline, _ in self._runs.values()]
        return deadline is not None and (deadline == float("inf") or deadline in runs)

    # --- time

    def may_jump(self, seconds: float) -> bool:
        """Look before time passes, for all tasks are at rest now; False where it must not pass any more."""
        if self.failure is None:
            problem = self._look(seconds)
            if problem is not None:
                self.fail(problem)
        elif self._is_ending:
            self._unshield()
        return self.failure is None or self._is_ending  # what ends may take its time

    def _look(self, seconds: float) -> MinirunError | None:
        why = self._circle()
        if why:
            return DeadlockError(f"{why}; the tasks:\n{self.dump()}")
        now, steps = self._clock.current_time(), self._steps()
        if self._jumps.another(steps) > JUMPS_MAX:
            msg = f"no end after time has passed {JUMPS_MAX} times since step {steps}; the tasks:\n{self.dump()}"
            return LivelockError(msg)
        runs_away = seconds >= LONG_JUMP_S and self._long_jumps.another(steps) > LONG_JUMPS_MAX
        if runs_away or now + seconds > TIME_S_MAX:
            msg = (
                f"the clock runs away: {now:g} s of virtual time have passed after {steps} steps, and then another"
                f" {seconds:g} s; the tasks:\n{self.dump()}"
            )
            return RunawayClockError(msg)
        if self._runs:
            return self._meet_deadlines(now + seconds)
        return None

    def _meet_deadlines(self, now: float) -> DeadlockError | None:
        """Note how the tasks wait whose run is ended by its deadline; a deadlock, if that ends what never would end."""
        self._runs = {task: found for task, found in self._runs.items() if task in self._names}
        late = [(task, limit) for task, (deadline, limit) in self._runs.items() if deadline <= now]
        if not late:
            return None
        self.deadline_dump = self.dump()
        task, limit = late[0]
        if limit != _USUAL_DEADLINE_S or any(self._goes_on(each) for each in self._names):
            return None
        msg = (
            f"{task_in_words(self._names[task])} waits for ever: nothing can go on but by RunConfig.deadline_s={limit},"
            f" which nobody has asked for; the tasks:\n{self.deadline_dump}"
        )
        return DeadlockError(msg)

    def _goes_on(self, task: trio.lowlevel.Task) -> bool:
        """Whether a task does something by and by, but for those that only keep a lease."""
        return self._parked(task) is not None or (is_asleep(task) and task.name != _LEASE_RENEWAL)

    # --- when it ends

    def end(self) -> int:
        """The schedule is over: what is left has to end by itself now. Return how many turns it may take."""
        self._is_ending = True
        return ENDING_TURNS_MAX

    def takes_too_long(self) -> None:
        """It has taken them."""
        self._look_at_run()
        self._leave_behind(f"{brief(ENDING_TURNS_MAX)} turns of tasks")

    def ended(self) -> None:
        """All of it has."""
        if self.failure is not None:
            raise self.failure

    def explained(self, failure: BaseException | None) -> BaseException | None:
        """What the simulation fails with: the hang, or *failure*; where a deadline led to it, with how tasks waited."""
        if self.failure is not None:
            return self.failure
        cause, seen = failure, set[int]()
        while cause is not None and not isinstance(cause, DeadlineExceededError) and id(cause) not in seen:
            seen.add(id(cause))  # causes may go in a circle
            cause = cause.__cause__ or cause.__context__
        if failure is not None and isinstance(cause, DeadlineExceededError) and self.deadline_dump is not None:
            with_note(failure, f"when a run met its deadline, the tasks were:\n{self.deadline_dump}")
        return failure

    def rests(self, deadline: float, turns_left: int) -> None:
        """
        No task can go on before *deadline*, and the world is ending. Where the loop goes round without a turn, and time
        does not pass either, all wait for ever.
        """
        turns, rounds = self._idle
        rounds = rounds + 1 if (turns, deadline) == (turns_left, float("inf")) else 1
        self._idle = (turns_left, rounds % IDLE_ROUNDS)
        if rounds == IDLE_ROUNDS:
            self._rests += 1
            self._look_at_run()
            if not self._at_rest() or self._rests == ENDING_RESTS_MAX:
                self._leave_behind("a rest that nothing ends")

    def _at_rest(self) -> bool:
        """What is left waits for ever: take its shields away. Whether that helps will show."""
        self.failure = self.failure or self.deadlock()
        self._cancel()
        return self._unshield()

    def _unshield(self) -> bool:
        """Let the cancellation reach everybody; return whether there was somebody it did not reach."""
        return sum(unshield(task) for task in list(self._names)) > 0

    def keep_lost(self) -> None:
        """Keep the tasks that have not ended where the loop has: trio gives up at an exception without a text."""
        _LEFT_BEHIND.extend(task for task in self._names if getattr(task.coro, "cr_frame", None) is not None)

    def _look_at_run(self) -> None:
        """If no task of the world is left, those of the run are: trio ends asynchronous generators in one of them."""
        root = trio.lowlevel.current_root_task()
        if not self._names and root is not None:
            self._names = {task: task.name for task in _with_children(root)}

    def _leave_behind(self, why: str) -> None:
        """End the loop without its tasks."""
        if self.failure is None:
            self.failure = LivelockError(f"{why} after the end of the world; the tasks:\n{self.dump()}")
        root = trio.lowlevel.current_root_task()
        _LEFT_BEHIND.extend([] if root is None else _with_children(root))
        stop_loop(self._clock, lambda: _LeftBehindError(why))


def _with_children(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    found = [task]
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda each: each.name):
            found += _with_children(child)
    return found
