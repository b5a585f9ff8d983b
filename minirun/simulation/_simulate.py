"""One simulation: a scenario, its choices, and what came of it."""

from __future__ import annotations

import gc
import hashlib
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Literal, TypeAlias

import attrs
import outcome as results
import trio

from .._json import brief
from .._workflow_errors import StrayCancellationError
from ..agents._lanes import no_stray_cancellation
from ..errors import ConfigurationError, MinirunError
from ..runtime._failure import first_failure, leading_failure
from ._behaviour import Note, features_of
from ._choices import Choice, Choices
from ._clock import WorldClock
from ._faults import checked_faults
from ._guard import Guard, guarding
from ._hangs import Afterwards, Hangs
from ._private import reseed_trio, seeded_trio, state_of_run, tell_turns
from ._report import report, with_note
from ._watchdog import Watchdog
from ._world import LogEntry, World

__all__ = ["Outcome", "Scenario", "UnreadableError", "checked_faults", "simulate", "simulate_each"]

PROCESSES_MAX = 8
# After so many steps no other simulation begins in a `trio.run`: some 0.3 s. To make one takes as long as 20 steps.
STEPS_TOGETHER = 1_000

Scenario: TypeAlias = Callable[[World], Awaitable[object]]
Storage: TypeAlias = Literal["memory", "sqlite"]


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
    _notes: Sequence[Note] = attrs.field(default=(), alias="notes", eq=False, repr=False)

    @property
    def picks(self) -> list[int]:
        """The choices as bare numbers: what `RecordedChoices` replays."""
        return [choice.picked for choice in self.trace]

    @property
    def behaviour(self) -> dict[int, int]:
        """What the world has met together, as numbers; and after how many choices each was first met."""
        return features_of(self._notes, self.coverage)

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
    storage: Storage = "sqlite",
    processes: int = 1,
    deep: bool = False,
    strict: bool = False,
    hasty: bool = False,
) -> Outcome:
    """
    Run *scenario* in a world of its own that follows from *choices*; nothing it fails with is raised.

    The same choices give the same outcome, in every process. It has a `trio.run` of its own, with virtual time.

    Args:
        faults: What may go wrong: any of `"crash"`, `"storage"`, `"model"`, `"tools"`, `"users"`, or `"all"`.
        storage: `"sqlite"`, the real one on a simulated disk, or `"memory"`, which is faster.
        processes: How many processes serve the users at once, over one file.
        deep: Whether the file is verified at the end, beside what is checked always.
        strict: Whether `datetime.now()`, and what was imported by name from `time`, are seen, too: two to three times
            slower. Searches do it with every 20th seed.
        hasty: Whether what takes a tenth of the steps after which a world has no end is ended then already. It is what
            a livelock is shrunk with, each of which takes seconds otherwise.

    Raises:
        ConfigurationError: The settings are none, or do not go together.
    """
    return next(
        simulate_each(
            scenario,
            [choices],
            faults=faults,
            storage=storage,
            processes=processes,
            deep=deep,
            strict=strict,
            hasty=hasty,
        )
    )


def simulate_each(
    scenario: Scenario,
    each: Iterable[Choices],
    *,
    faults: Iterable[str] | str = (),
    storage: Storage = "sqlite",
    processes: int = 1,
    deep: bool = False,
    strict: bool = False,
    hasty: bool = False,
) -> Iterator[Outcome]:
    """
    Simulate *scenario* with *each* of some choices; the outcomes are those that `simulate` would return.

    It takes less time, for some share a `trio.run`: as many as take STEPS_TOGETHER steps, or until one fails, are
    simulated before the first of them is returned. Nothing of the others shows in any.

    Raises:
        ConfigurationError: The settings are none, or do not go together.
    """
    check_settings(storage, processes)
    named = checked_faults(faults, storage)

    def make(choices: Choices) -> World:
        return World(choices, faults=named, storage=storage, processes=processes, deep=deep, hasty=hasty)

    rest = iter(each)
    for choices in rest:
        yield from _Together(scenario, chain([choices], rest), make, strict=strict).run()


class _Together:
    """One `trio.run`, and the simulations in it, one after another."""

    def __init__(
        self, scenario: Scenario, rest: Iterator[Choices], make: Callable[[Choices], World], *, strict: bool
    ) -> None:
        self._scenario = scenario
        self._rest = rest
        self._make = make
        self._strict = strict
        self._clock = WorldClock()
        self._living: _Simulation | None = None
        self._outcomes: list[Outcome] = []
        self._hangs: Hangs | None = None  # what watches what is left of the last one

    def run(self) -> list[Outcome]:
        """The outcomes of the first of the rest."""
        with _without_garbage_collection(), seeded_trio(0), guarding(), _without_last_resort():
            try:
                # Ctrl-C waits for a checkpoint: in the middle of a call from SQLite it would be lost
                trio.run(self._main, clock=self._clock.clock, restrict_keyboard_interrupt_to_checkpoints=True)
            except BaseException as error:
                self._outlived()
                self._end(error)
            else:
                self._outlived()
        return self._outcomes

    async def _main(self) -> None:
        at_first = state_of_run()
        for choices in self._rest:
            await self._simulate(choices)
            _collect()
            steps = sum(outcome.steps for outcome in self._outcomes)
            if self._outcomes[-1].failure is not None or steps >= STEPS_TOGETHER or state_of_run() != at_first:
                return

    async def _simulate(self, choices: Choices) -> None:
        world = self._make(choices)
        self._living = _Simulation(choices, world, Guard(strict=self._strict))
        self._clock.begin(world.schedule)
        reseed_trio(choices.choose(2**16, "order within trio", lambda randomness: randomness.randrange(2**16)))
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:  # a task of its own has a context of its own
                nursery.start_soon(self._living.live, self._scenario)
        except BaseException as error:
            failure = error
        self._end(failure)
        afterwards = Afterwards()
        self._hangs = afterwards.hangs
        self._clock.end(afterwards)
        tell_turns(afterwards.take_turns)

    def _outlived(self) -> None:
        """The run is over: what would not end after its last world is a failure of that."""
        if self._hangs is not None:
            self._hangs.bury()
            if self._hangs.failure is not None and self._outcomes[-1].failure is None:
                self._outcomes[-1] = attrs.evolve(self._outcomes[-1], failure=self._hangs.failure)
        self._hangs = None
        self._clock.end(None)
        tell_turns(None)

    def _end(self, error: BaseException | None) -> None:
        """The living one has ended; or the whole run did, with an error that is the fault of the last one."""
        living, self._living = self._living, None
        if living is not None:
            self._outcomes.append(living.end(error))
        elif not self._outcomes or not isinstance(error, Exception):
            assert error is not None
            raise error
        elif self._outcomes[-1].failure is None:
            self._outcomes[-1] = attrs.evolve(self._outcomes[-1], failure=first_failure(error))


class _Simulation:
    """One simulation, while it lives."""

    def __init__(self, choices: Choices, world: World, guard: Guard) -> None:
        self._choices = choices
        self._world = world
        self._guard = guard
        self._watchdog = Watchdog(world.schedule.hangs.dump, self._origin)
        self._watchdog.start()
        self._is_through = False

    def _origin(self) -> str:
        """Which simulation this is, so that it can be run again."""
        if self._choices.seed is not None:
            return f"the simulation of seed {self._choices.seed!r}"
        return f"the simulation of the choices {[choice.picked for choice in self._choices.trace]}"

    async def live(self, scenario: Scenario) -> None:
        """Run the scenario in the world."""
        self._guard.start()
        async with self._world.living():
            with no_stray_cancellation("the scenario"):
                await scenario(self._world)
        self._guard.stop()
        self._is_through = True

    def end(self, error: BaseException | None) -> Outcome:
        """What it came to, where *error* is what has ended it; what is no failure (Ctrl-C) is raised."""
        world, hangs = self._world, self._world.schedule.hangs
        self._watchdog.stop()
        self._guard.stop()
        hangs.bury()
        if error is None and not self._is_through:
            error = StrayCancellationError("something has cancelled the task of the scenario, in which the world lives")
        failure = None if error is None else _readable(_first_failure(error))
        if failure is not None and not self._is_failure(failure):
            raise failure from None
        world.coverage.update(world._mishaps.told())
        failure = self._watchdog.failure or self._guard.leak or world.problem or hangs.explained(failure)
        found = (tuple(world.log), tuple(self._choices.trace), world.coverage, world.schedule.steps)
        world._end()
        return Outcome(failure, *found, seed=self._choices.seed, notes=world.notes)

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


def check_settings(storage: object, processes: object) -> None:
    """
    Look at what `simulate` is told.

    Raises:
        ConfigurationError: It makes no sense, or does not go together.
    """
    if storage not in ("memory", "sqlite"):
        msg = f"expected storage 'memory' or 'sqlite', found {brief(storage)}"
        raise ConfigurationError(msg)
    if isinstance(processes, bool) or not isinstance(processes, int) or not 1 <= processes <= PROCESSES_MAX:
        msg = f"expected 1 to {PROCESSES_MAX} processes, found {brief(processes)}"
        raise ConfigurationError(msg)
    if storage == "memory" and processes > 1:
        msg = f"expected one process over storage='memory', found {processes}; several share storage='sqlite'"
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
