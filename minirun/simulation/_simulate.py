"""One simulation: a scenario, its choices, and what came of it."""

from __future__ import annotations

import gc
import hashlib
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

import attrs
import outcome as results
import trio

from .._json import brief
from .._workflow_errors import StrayCancellationError
from ..agents._lanes import no_stray_cancellation
from ..errors import ConfigurationError, MinirunError
from ..runtime._failure import first_failure, leading_failure
from ._choices import Choice, Choices
from ._clock import world_clock
from ._faults import checked_faults
from ._guard import Guard, guarding
from ._memory_store import MemoryStore
from ._private import seeded_trio, tell_turns
from ._report import report, with_note
from ._store import Observer, Store
from ._watchdog import Watchdog
from ._world import LogEntry, World

__all__ = ["Outcome", "Scenario", "UnreadableError", "check_processes", "checked_faults", "simulate"]

PROCESSES_MAX = 8

Scenario: TypeAlias = Callable[[World], Awaitable[object]]


class UnreadableError(MinirunError):
    """
    A simulation has failed with an exception that cannot say what it is: its `repr` or `str` raises. It is the cause.

    trio puts the `repr` of what a task fails with into its reasons for a cancellation, and takes its nurseries for
    corrupted where that raises.
    """


@attrs.frozen
class Outcome:
    """What one simulation came to."""

    failure: BaseException | None
    log: Sequence[LogEntry]
    """What happened, in order."""
    trace: Sequence[Choice]
    coverage: Counter[str]
    steps: int
    seed: int | str | None = None
    """What the choices followed from, if it was a seed."""

    @property
    def picks(self) -> list[int]:
        """The choices as bare numbers: what `RecordedChoices` replays."""
        return [choice.picked for choice in self.trace]

    @property
    def digest(self) -> str:
        """The same for two simulations if the same happened in both."""
        text = "\n".join([*map(str, self.log), repr(self.failure)])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def check(self) -> Outcome:
        """Raise the failure, if there is one, with a note that tells what was chosen and what happened."""
        if self.failure is not None:
            with_note(self.failure, report(self))
            raise self.failure
        return self


def simulate(
    scenario: Scenario,
    choices: Choices,
    *,
    faults: Iterable[str] | str = (),
    processes: int = 1,
    store: Callable[[World], Store] = MemoryStore,
    observers: Sequence[Callable[[World], Observer]] = (),
    strict: bool = False,
) -> Outcome:
    """
    Run *scenario* in a world of its own that follows from *choices*; nothing it fails with is raised.

    The same choices give the same outcome, in every process. It has a `trio.run` of its own, with virtual time.

    Args:
        faults: What may go wrong: any of `"crash"`, `"storage"`, `"model"`, `"tools"`, `"users"`, or `"all"`.
        processes: How many processes serve the users at once, over one store.
        store: Makes the store of the world, which is given to it.
        observers: Make what is told what happens, in the same way.
        strict: Whether `datetime.now()`, and what was imported by name from `time`, are seen, too: two to three times
            slower. Searches do it with every 20th seed.

    Raises:
        ConfigurationError: The settings are none.
    """
    check_processes(processes)
    named = checked_faults(faults)
    with _without_garbage_collection(), guarding(), _without_last_resort():
        # no variable here has the world: what is left of it is collected at the end of the block
        return _Simulation(
            choices,
            World(choices, faults=named, processes=processes, store=store, observers=observers),
            Guard(strict=strict),
        ).run(scenario)


class _Simulation:
    """One simulation, while it lives."""

    def __init__(self, choices: Choices, world: World, guard: Guard) -> None:
        self._choices = choices
        self._world = world
        self._guard = guard
        self._watchdog = Watchdog(world.schedule.hangs.dump, self._origin)
        self._is_through = False

    def _origin(self) -> str:
        """Which simulation this is, so that it can be run again."""
        if self._choices.seed is not None:
            return f"the simulation of seed {self._choices.seed!r}"
        return f"the simulation of the choices {[choice.picked for choice in self._choices.trace]}"

    def run(self, scenario: Scenario) -> Outcome:
        """Run the scenario in a `trio.run` of its own, whose order of tasks follows from a choice."""
        failure: BaseException | None = None
        clock = world_clock(self._world.schedule)
        order = self._choices.choose(2**16, "order within trio", lambda randomness: randomness.randrange(2**16))
        with seeded_trio(order):
            try:
                # Ctrl-C waits for a checkpoint: in the middle of a call from SQLite it would be lost
                trio.run(self._live, scenario, clock=clock, restrict_keyboard_interrupt_to_checkpoints=True)
            except BaseException as error:
                failure = error
            finally:
                tell_turns(None)
        return self._end(failure)

    async def _live(self, scenario: Scenario) -> None:
        """Run the scenario in the world. A cancellation of both ends here: it is seen in what was not done."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._live_alone, scenario)

    async def _live_alone(self, scenario: Scenario) -> None:
        self._watchdog.start()
        self._guard.start()
        async with self._world.living():
            with no_stray_cancellation("the scenario"):
                await scenario(self._world)
        self._guard.stop()
        self._is_through = True

    def _end(self, error: BaseException | None) -> Outcome:
        """What it came to, where *error* is what has ended it; what is no failure (Ctrl-C) is raised."""
        world, hangs = self._world, self._world.schedule.hangs
        self._watchdog.stop()
        self._guard.stop()
        hangs.keep_lost()
        world.store.close()
        if error is None and not self._is_through:
            error = StrayCancellationError("something has cancelled the task of the scenario, in which the world lives")
        failure = None if error is None else _readable(_first_failure(error))
        if failure is not None and not self._is_failure(failure):
            raise failure from None
        world.coverage.update(world._mishaps.told())
        failure = self._watchdog.failure or self._guard.leak or world.problem or hangs.explained(failure)
        found = (tuple(world.log), tuple(self._choices.trace), world.coverage, world.schedule.steps)
        world._end()
        return Outcome(failure, *found, seed=self._choices.seed)

    def _is_failure(self, error: BaseException) -> bool:
        if self._watchdog.failure is not None or is_pytest_failure(error):
            return True
        return not isinstance(error, KeyboardInterrupt) and not _ends_the_test(error)


def _first_failure(error: BaseException) -> BaseException:
    """The one exception that stands for *error*; without the others as notes if one cannot say what it is."""
    try:
        return first_failure(error)
    except BaseException:  # what its `str` raises, which is caught by nobody if it is a SystemExit
        return leading_failure(error)


def _readable(failure: BaseException | None) -> BaseException | None:
    """
    The failure; or what stands for one that cannot say what it is, also where that has become one of trio's, or where
    what its `repr` raises has passed through all that is between: SystemExit, KeyboardInterrupt.
    """
    for cause in () if failure is None else (failure, *_asked(failure), *_in_hands_of_trio(failure)):
        problem = _unreadable(cause)
        if problem is not None:
            # what a RecursionError says depends on how deep the stack is, and so differs from run to run
            found = "RecursionError" if isinstance(problem, RecursionError) else brief(problem)
            msg = (
                f"the simulation has failed with {type(cause).__name__}, which cannot say what it is: expected its"
                f" `repr` and `str` to be texts, found that they raise {found}"
            )
            told = UnreadableError(msg)
            told.__cause__ = cause
            return told
    return failure


def _asked(failure: BaseException) -> Iterator[BaseException]:
    """The exceptions that were saying what they are when this was raised, no Exception: it is theirs, and no Ctrl-C."""
    if isinstance(failure, Exception):
        return
    for frame in (frame for frame, _ in traceback.walk_tb(failure.__traceback__)):
        code = frame.f_code
        if code.co_name in ("__repr__", "__str__") and code.co_argcount:
            asked = frame.f_locals.get(code.co_varnames[0])
            if isinstance(asked, BaseException):
                yield asked


def _in_hands_of_trio(failure: BaseException) -> Iterator[BaseException]:
    """The exceptions that trio was busy with when it failed itself, if it has."""
    error: BaseException | None = failure
    frames = [frame for frame, _ in traceback.walk_tb(failure.__traceback__)]
    if not frames or not _is_of_trio(frames[-1]):
        return
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame in (frame for frame, _ in traceback.walk_tb(error.__traceback__) if _is_of_trio(frame)):
            held = [value.error if isinstance(value, results.Error) else value for value in frame.f_locals.values()]
            yield from (value for value in held if isinstance(value, BaseException))
        error = error.__context__


def _is_of_trio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("trio.")


def _unreadable(error: BaseException) -> BaseException | None:
    """What is raised where the error is to say what it is: a SystemExit, too, which would end the search."""
    try:
        repr(error), str(error)
    except BaseException as problem:
        return problem
    return None


def is_pytest_failure(failure: BaseException) -> bool:
    """Whether it is that of `pytest.fail()`, which `pytest.raises` uses, too; without importing pytest."""
    return type(failure).__name__ == "Failed" and _ends_the_test(failure)


def _ends_the_test(error: BaseException) -> bool:
    """Whether it is of pytest, which skips a test so, for instance."""
    # some of them say of themselves that they are builtins
    return any(kind.__module__ == "_pytest.outcomes" for kind in type(error).__mro__)


def check_processes(processes: object) -> None:
    """
    Look at how many processes a world is to have.

    Raises:
        ConfigurationError: It cannot have so many.
    """
    if isinstance(processes, bool) or not isinstance(processes, int) or not 1 <= processes <= PROCESSES_MAX:
        msg = f"expected 1 to {PROCESSES_MAX} processes, found {brief(processes)}"
        raise ConfigurationError(msg)


@contextmanager
def _without_last_resort() -> Iterator[None]:
    """
    What the runtime tells of tools that fail, as many are made to, goes to the handlers that somebody has set up. Where
    there are none it would go to stderr, Python's last resort.
    """
    logger, nowhere = logging.getLogger("minirun"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """
    What ends with an object ends when it is dropped, not when the collector happens to come by; or when `_collect` is
    called, so that nothing of a simulation that is over ends during the next one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    _collect()
    try:
        yield
    finally:
        _collect()
        if was_enabled:
            gc.enable()


def _collect() -> None:
    """Collect what is new: as long as nothing is collected, it stays in the youngest generation, whatever is older."""
    gc.collect(0)
