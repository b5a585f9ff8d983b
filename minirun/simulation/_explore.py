"""
Many seeds of one scenario: what fails is shrunk, what is not the same twice is found, what was never reached is told.

The rules of this file:

* A seed is simulated once; every 20th, and every one that fails, twice. The two must be alike in everything: one that
  is not could never be replayed, so that is a failure of its own. The second run of a 20th is strict: it sees more of
  what leaks.
* A failure is shrunk, and what is left must fail again in the same way before it is told.
* Seeds are independent of each other, so that they can be shared between processes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import attrs

from ..errors import ConfigurationError, MinirunError
from ._choices import Choice, RecordedChoices, SeededChoices
from ._faults import COULD_STRIKE, HAS_STRUCK, checked_faults
from ._guard import LeakError
from ._memory_store import MemoryStore
from ._schedule import STEPS_MAX, LivelockError
from ._simulate import Outcome, Scenario, check_processes, simulate
from ._watchdog import WatchdogError
from ._world import CheckError

__all__ = [
    "CoverageError",
    "Explored",
    "NondeterminismError",
    "Settings",
    "check_faults",
    "check_reached",
    "checked_options",
    "explore",
    "first_difference",
    "plain_options",
    "replay",
    "settings",
    "shrink",
    "stripped",
]

T = TypeVar("T")

# Every so many seeds one is simulated twice, with all checks.
TWICE_EVERY_SEEDS = 20
# How much of an entry of the log an error shows.
QUOTED_CHARS_MAX = 300
# What shrinking may cost, whatever the machine does meanwhile: the same failure shrinks to the same everywhere. Most
# simulations take 50 to 1 000 steps, at about 0.3 ms each, so that the runs end it; one without end counts as
# STEPS_MAX steps, however it was noticed.
SHRINK_RUNS_MAX = 400
SHRINK_STEPS_MAX = 400_000
LIVELOCK_RUNS_MAX = 4


class NondeterminismError(MinirunError):
    """The same choices have led to two different outcomes: something beside the choices decides."""


class CoverageError(MinirunError, AssertionError):
    """Not one of the seeds has reached what it was meant to test."""


@attrs.frozen
class Explored:
    """What came of one seed."""

    seed: int
    outcome: Outcome
    """Where it has failed and was worth it, the shrunk one."""
    coverage: Counter[str]
    """Of the seed itself, before shrinking."""
    found_choices: int
    """How many choices the seed itself has made."""


# --- settings ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Settings:
    """What the marker `simulation` says: how many seeds, what they must reach, and the options of `simulate`."""

    seeds: int
    reach: tuple[str, ...]
    options: Mapping[str, Any]
    named_faults: tuple[str, ...] = ()
    """The faults that were asked for by their names: `"all"` names none."""


def settings(seeds: int = 100, *, reach: Iterable[str] | str = (), **options: Any) -> Settings:
    """
    Look at the arguments of the marker before anything runs.

    Raises:
        ConfigurationError: One makes no sense.
        TypeError: One is unknown.
    """
    if type(seeds) is not int or seeds < 1:
        msg = f"expected seeds to be a whole number from 1 on, found {seeds!r}"
        raise ConfigurationError(msg)
    names = (reach,) if isinstance(reach, str) else tuple(reach)
    if not all(isinstance(name, str) for name in names):
        msg = f"expected reach to be names of coverage counters, found {reach!r}"
        raise ConfigurationError(msg)
    checked = checked_options(**options)
    return Settings(seeds, names, checked, () if options.get("faults") == "all" else tuple(checked["faults"]))


def checked_options(
    *, faults: Any = (), processes: Any = 1, store: Any = MemoryStore, observers: Any = ()
) -> dict[str, Any]:
    """
    Return the options of `simulate`, all of them, in one form: equal ones are equal however they were said.

    Raises:
        ConfigurationError: One makes no sense.
    """
    try:
        names = sorted(checked_faults(faults))
    except TypeError as error:
        msg = f"expected faults to be names, or 'all'; found {faults!r}"
        raise ConfigurationError(msg) from error
    watching = tuple(observers)
    if not all(map(callable, (store, *watching))):
        msg = f"expected store and observers to be called with the world, found {store!r} and {watching!r}"
        raise ConfigurationError(msg)
    check_processes(processes)
    return {"faults": names, "processes": processes, "store": store, "observers": watching}


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that JSON can hold; the others are those of the test."""
    return {name: options[name] for name in ("faults", "processes")}


# --- searching --------------------------------------------------------------------------------------------------------


def explore(
    scenario: Scenario,
    seeds: Iterable[int],
    options: Mapping[str, Any],
    *,
    shrinks: Callable[[BaseException], bool] = lambda failure: True,
) -> Iterator[Explored]:
    """
    Simulate *seeds* one after another. *options* are those of `simulate`.

    *shrinks* says which failures are worth it. After one it can be asked to go on. A `BaseException` that is not a
    failure (Ctrl-C, skipping) is raised.
    """
    for seed in seeds:
        outcome = first = simulate(scenario, SeededChoices(seed), **options)
        again = options
        is_often = seed % TWICE_EVERY_SEEDS == 0
        if (is_often or first.failure is not None) and not _is_overdue(first):
            strict = {**options, "strict": is_often}
            outcome = _agreed(first, simulate(scenario, SeededChoices(seed), **strict))
            if first.failure is None and isinstance(outcome.failure, LeakError):
                again = strict  # only this one sees it
        small = outcome
        if outcome.failure is not None and not _is_overdue(outcome) and shrinks(outcome.failure):
            small = _small(scenario, again, outcome)
        yield Explored(seed, small, outcome.coverage, len(outcome.picks))


def replay(scenario: Scenario, picks: Sequence[int], options: Mapping[str, Any]) -> Outcome:
    """What the choices of a list lead to, twice."""
    first = simulate(scenario, RecordedChoices(picks), **options)
    if _is_overdue(first):
        return first
    return _agreed(first, simulate(scenario, RecordedChoices(picks), **{**options, "strict": True}))


def _agreed(first: Outcome, strict: Outcome) -> Outcome:
    """What a run and a strict one come to: they are alike, but for a leak that the strict one sees, or sees earlier."""
    sees_more = isinstance(first.failure, LeakError | None) and isinstance(strict.failure, LeakError)
    return strict if sees_more else _compared(first, strict)


def _is_overdue(outcome: Outcome) -> bool:
    """Whether real time has ended it: it says nothing of a second run, which would take as long."""
    return isinstance(outcome.failure, WatchdogError)


def _small(scenario: Scenario, options: Mapping[str, Any], outcome: Outcome) -> Outcome:
    """Shrink a failure, and see that what is left fails again."""

    def run(picks: Sequence[int]) -> Outcome:
        return simulate(scenario, RecordedChoices(picks), **options)

    def run_twice(picks: Sequence[int]) -> Outcome:
        first = run(picks)
        return first if _is_overdue(first) else _compared(first, run(picks))

    if isinstance(outcome.failure, NondeterminismError):
        return shrink_with(run_twice, outcome)
    # what goes on without end takes seconds each time, and mostly whatever is chosen
    runs_max = LIVELOCK_RUNS_MAX if isinstance(outcome.failure, LivelockError) else SHRINK_RUNS_MAX
    small = shrink_with(run, outcome, runs_max)
    return _compared(small, run(small.picks))


def _compared(first: Outcome, second: Outcome) -> Outcome:
    """The first, which fails if the second differs from it."""
    difference = _difference(first, second)
    if difference is None:
        return first
    msg = (
        f"the same choices have led to two outcomes: {difference}. Expected everything to follow from the choices; look"
        " for the real clock, random numbers, ids of objects, orders of sets, and for what one run leaves behind for"
        " the next: fixtures, globals, files"
    )
    error = NondeterminismError(msg)
    error.__cause__ = first.failure or second.failure
    return attrs.evolve(first, failure=error)


def _difference(first: Outcome, second: Outcome) -> str | None:
    """Where two outcomes begin to differ; None if they are the same."""
    if (first.digest, first.trace) == (second.digest, second.trace):
        return None
    entry = first_difference(first.log, second.log)
    if entry is not None:
        return entry
    choice = _first_difference(first.trace, second.trace)
    if choice is not None:
        return f"choice {choice[0] + 1} is {_told(choice[1])} in the one and {_told(choice[2])} in the other"
    one, other = _described(first.failure), _described(second.failure)
    return None if one == other else f"the one ends with {_quoted(one)} and the other with {_quoted(other)}"


def first_difference(first: Sequence[object], second: Sequence[object]) -> str | None:
    """Where two logs begin to differ, in words; None if they are the same."""
    found = _first_difference(first, second)
    if found is None:
        return None
    place, one, other = found
    return f"entry {place + 1} of the log is {_quoted(one)} in the one and {_quoted(other)} in the other"


def _first_difference(first: Sequence[T], second: Sequence[T]) -> tuple[int, T | None, T | None] | None:
    for place, (one, other) in enumerate(zip_longest(first, second)):
        if one != other:
            return place, one, other
    return None


def _told(choice: Choice | None) -> str:
    return _quoted(choice and f"{choice.label}: {choice.picked} of {choice.options}")


def _described(failure: BaseException | None) -> str:
    """A failure without the addresses of objects, which differ from run to run and mean nothing."""
    return "no failure" if failure is None else re.sub(r"\b0x[0-9a-fA-F]+", "0x…", repr(failure))


def _quoted(text: object) -> str:
    told = "missing" if text is None else repr(str(text))
    return told if len(told) <= QUOTED_CHARS_MAX else f"{told[: QUOTED_CHARS_MAX - 1]}…"


def check_reached(reach: Iterable[str], coverage: Mapping[str, int], seeds: int) -> None:
    """
    Raise if one of the counters in *reach* is 0 after all seeds.

    Raises:
        CoverageError: It says what was never reached, and what was.
    """
    missing = [name for name in reach if not coverage.get(name)]
    if missing:
        reached = ", ".join(f"{name} ({count})" for name, count in sorted(coverage.items()) if count) or "nothing"
        msg = (
            f"{seeds} seeds have never reached {', '.join(map(repr, missing))}; they have reached: {reached}. Expected"
            " what a test is for to happen in it: use more seeds, more faults, or a scenario that leads there"
        )
        raise CoverageError(msg)


_NOTHING = {
    "crash": "no world has made a step",
    "storage": "the store was not used, or has no faults",
    "model": "no model was asked",
    "tools": "no tool was called",
    "users": "no user has said anything with `world.say`",
}


def check_faults(named: Iterable[str], coverage: Mapping[str, int], seeds: int) -> list[str]:
    """
    Raise if a fault that was *named* had nothing to strike in any seed; tell of those that only happened not to strike.

    Raises:
        CoverageError: It says which, and why.
    """
    names = list(named)
    idle = [name for name in names if not coverage.get(COULD_STRIKE.format(name))]
    if idle:
        why = "; ".join(f"{name!r} ({_NOTHING[name]})" for name in idle)
        msg = (
            f"{seeds} seeds had nothing that could be struck by the faults {why}. Expected what is named to be tested:"
            " leave the fault out, or use a scenario that leads there"
        )
        raise CoverageError(msg)
    return [
        f"the fault {name!r} has struck in none of {seeds} seeds, though it could in {could} of them: use more seeds,"
        " or a scenario that does more"
        for name in names
        if not coverage.get(HAS_STRUCK.format(name)) and (could := coverage[COULD_STRIKE.format(name)])
    ]


# --- shrinking --------------------------------------------------------------------------------------------------------


def shrink(
    scenario: Scenario,
    outcome: Outcome,
    *,
    runs_max: int = SHRINK_RUNS_MAX,
    steps_max: int = SHRINK_STEPS_MAX,
    **options: Any,
) -> Outcome:
    """
    Make the choices of a failure fewer and duller, as long as it fails in the same way: the type of the error, and of a
    checker's the property that does not hold.

    First no choice at all is tried, then the end is dropped, then whole stretches, then single choices become 0 or
    smaller. *options* are those of `simulate`. After *runs_max* simulations, or as soon as they have taken *steps_max*
    steps, the best one so far is returned: no clock is asked, so the same outcome always becomes the same.
    """
    return shrink_with(
        lambda picks: simulate(scenario, RecordedChoices(picks), **options), outcome, runs_max, steps_max
    )


def stripped(picks: Sequence[int]) -> list[int]:
    """Return the choices without the zeros at the end, which a replay takes anyway."""
    end = len(picks)
    while end and not picks[end - 1]:
        end -= 1
    return [*picks[:end]]


def _kind_of(failure: BaseException | None) -> tuple[type, str]:
    return type(failure), failure.what if isinstance(failure, CheckError) else ""


def shrink_with(
    run: Callable[[Sequence[int]], Outcome],
    outcome: Outcome,
    runs_max: int = SHRINK_RUNS_MAX,
    steps_max: int = SHRINK_STEPS_MAX,
) -> Outcome:
    """The same for anything that makes an outcome of a list."""
    assert outcome.failure is not None, "only a failure can be shrunk"
    kind, best = _kind_of(outcome.failure), outcome
    tried: set[tuple[int, ...]] = set()
    steps = 0

    def fails(picks: Sequence[int]) -> bool:
        nonlocal best, steps
        if tuple(picks) in tried or len(tried) >= runs_max or steps >= steps_max:
            return False
        tried.add(tuple(picks))
        found = run(picks)
        steps += STEPS_MAX if isinstance(found.failure, LivelockError) else found.steps
        if _kind_of(found.failure) != kind:
            return False
        best = found
        return True

    picks = _without_stretches(_shortened(stripped(outcome.picks), fails), fails)
    _with_smaller_ones(picks, fails)
    return best


def _shortened(picks: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """
    The shortest beginning that fails with nothing but dull choices after it, as far as halving finds it.

    The empty one is tried first: what hangs does so whatever is chosen, for the most part, and takes long each time.
    """
    if picks and fails([]):
        return []
    enough, too_short = len(picks), 0
    while enough - too_short > 1:
        middle = (enough + too_short) // 2
        if fails(stripped(picks[:middle])):
            enough = middle
        else:
            too_short = middle
    return stripped(picks[:enough])


def _without_stretches(picks: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Drop stretches, or make them dull, from half of the list down to single choices."""
    size = max(1, len(picks) // 2)
    while size:
        at = 0
        while at < len(picks):
            for candidate in _dropped(picks, at, size):
                if candidate != picks and fails(candidate):
                    picks = candidate
                    break
            else:
                at += size
        size //= 2
    return picks


def _dropped(picks: list[int], at: int, size: int) -> Iterator[list[int]]:
    before, after = picks[:at], picks[at + size :]
    yield stripped([*before, *after])
    yield stripped([*before, *[0] * len(picks[at : at + size]), *after])


def _with_smaller_ones(picks: list[int], fails: Callable[[Sequence[int]], bool]) -> None:
    """Make single choices as small as they can be, if smaller ones are no worse than larger ones."""
    for at in range(len(picks)):
        too_small = 0
        while picks[at] - too_small > 1:
            tried = (picks[at] + too_small) // 2
            candidate = [*picks[:at], tried, *picks[at + 1 :]]
            if fails(candidate):
                picks = candidate
            else:
                too_small = tried
