"""One simulation: a scenario, its choices, and what came of it."""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

import attrs
import trio

from .._json import brief
from ..errors import ConfigurationError
from ..runtime._failure import first_failure
from ._behaviour import Note, features_of
from ._choices import Choice, Choices
from ._faults import checked_faults
from ._guard import Guard
from ._private import seeded_trio
from ._report import report
from ._watchdog import Watchdog
from ._world import LogEntry, World

__all__ = ["Outcome", "Scenario", "checked_faults", "simulate"]

PROCESSES_MAX = 8

Scenario: TypeAlias = Callable[[World], Awaitable[object]]
Storage: TypeAlias = Literal["memory", "sqlite"]


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
            self.failure.add_note(report(self))
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
) -> Outcome:
    """
    Run *scenario* in a world of its own that follows from *choices*; nothing it fails with is raised.

    The same choices give the same outcome, in every process. It has a `trio.run` of its own, with virtual time.

    Args:
        faults: What may go wrong: any of `"crash"`, `"storage"`, `"model"`, `"tools"`, `"users"`, or `"all"`.
        storage: `"sqlite"`, the real one on a simulated disk, or `"memory"`, which is faster.
        processes: How many processes serve the users at once, over one file.
        deep: Whether the file is verified at the end, beside what is checked always.
        strict: Whether `datetime.now()`, and what was imported by name from `time`, are seen, too: some three times
            slower. Searches do it with every 20th seed.

    Raises:
        ConfigurationError: The settings are none, or do not go together.
    """
    check_settings(storage, processes)
    named = checked_faults(faults, storage)
    with _without_garbage_collection():  # the world is out of reach when this ends
        return _simulate(
            scenario,
            choices,
            World(choices, faults=named, storage=storage, processes=processes, deep=deep),
            Guard(strict=strict),
        )


def _simulate(scenario: Scenario, choices: Choices, world: World, guard: Guard) -> Outcome:
    hangs = world.schedule.hangs
    watchdog = Watchdog(hangs.dump)
    failure: BaseException | None = None

    async def main() -> None:
        guard.start()  # not earlier: trio.run makes a socket for itself
        async with world.living():
            await scenario(world)
        guard.stop()

    seed = choices.choose(2**16, "order within trio", lambda randomness: randomness.randrange(2**16))
    try:
        watchdog.start()
        with seeded_trio(seed):
            # Ctrl-C waits for a checkpoint: in the middle of a call from SQLite it would be lost
            trio.run(main, clock=world.schedule.clock(), restrict_keyboard_interrupt_to_checkpoints=True)
    except BaseException as error:
        failure = first_failure(error)
        if not isinstance(failure, Exception) and watchdog.failure is None and not is_pytest_failure(failure):
            raise failure from None
    finally:
        watchdog.stop()
        guard.stop()
        hangs.bury()
    world.coverage.update(world._mishaps.told())
    failure = watchdog.failure or guard.leak or world.problem or hangs.explained(failure)
    found = (tuple(world.log), tuple(choices.trace), world.coverage, world.schedule.steps)
    return Outcome(failure, *found, seed=choices.seed, notes=world.notes)


def is_pytest_failure(failure: BaseException) -> bool:
    """Whether it is that of `pytest.fail()`, which `pytest.raises` uses, too; without importing pytest."""
    bases = (kind.__module__ for kind in type(failure).__mro__)  # it says of itself that it is a builtin
    return type(failure).__name__ == "Failed" and "_pytest.outcomes" in bases


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
def _without_garbage_collection() -> Iterator[None]:
    """
    What ends with an object ends when it is dropped, not when the collector happens to come by.

    Afterwards only what the simulation has left is collected: everything older is set aside meanwhile.
    """
    was_enabled, nothing_frozen = gc.isenabled(), gc.get_freeze_count() == 0
    gc.disable()
    if nothing_frozen:
        gc.freeze()
    try:
        yield
    finally:
        if nothing_frozen:
            gc.collect()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
