"""
What may go wrong beside the order of things, by name, and how often.

Nothing of it happens unless it is asked for. How often is drawn for each simulation anew (swarm testing, Groce et al.
2012): a run in which everything fails seldom meets what a run finds in which only one thing does.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from ..errors import ConfigurationError, MinirunError
from ._choices import Choices

__all__ = ["COULD_STRIKE", "FAULTS", "HAS_STRUCK", "FaultName", "Kinds", "Rates", "SimulatedFault", "checked_faults"]

FaultName: TypeAlias = Literal["crash", "storage", "model", "tools", "users"]
FAULTS: Final[tuple[FaultName, ...]] = ("crash", "storage", "model", "tools", "users")


class SimulatedFault(MinirunError):
    """What a tool fails with where a simulation makes it fail."""


def checked_faults(faults: Iterable[str] | str) -> frozenset[FaultName]:
    """
    The set of faults that was named; `"all"` are all that there are.

    Raises:
        ConfigurationError: One of them is unknown.
    """
    names = FAULTS if faults == "all" else (faults,) if isinstance(faults, str) else tuple(faults)
    known = [name for name in FAULTS if name in names]
    if len(known) != len(set(names)):
        msg = f"expected faults out of {', '.join(FAULTS)}, or 'all'; found {names}"
        raise ConfigurationError(msg)
    return frozenset(known)


# By fault, its kinds, and once in how many times each happens: first the usual rate, which a dull choice takes.
# The first kind shows that a fault could strike, and so that a simulation with it tests something. A store has its own.
Kinds: TypeAlias = Mapping[str, Mapping[str, tuple[int, ...]]]
_KINDS: Final[Kinds] = {
    "crash": {
        "death": (25, 8, 100),  # steps of the schedule
        "clock": (200, 40, 1000),  # steps
        "stall": (100, 20, 500),  # steps
    },
    "storage": {},
    "model": {"model": (8, 3, 30)},  # questions
    "tools": {"tool": (8, 3, 30)},  # calls
    "users": {"user": (8, 3, 30)},  # things that are said or read
}
# How often one kind of thing may happen in a simulation, so that it comes to its end.
STRIKES_MAX: Final = 6

# Beyond so many chances a strike is put off for ever.
HORIZON: Final = 4096

# The counters of coverage, by the name of the fault: worlds in which it could, and how often it did.
COULD_STRIKE: Final = "fault could strike: {}"
HAS_STRUCK: Final = "fault has struck: {}"


class Rates:
    """
    When what may go wrong in this simulation does.

    How often is drawn once; then, for each kind, how many times it spares the simulation until it strikes: one choice
    for each strike, not for each chance of one.
    """

    def __init__(self, choices: Choices, faults: frozenset[FaultName], of_store: Kinds) -> None:
        self._choices = choices
        self._one_in: dict[str, int] = {}
        self._waits: dict[str, _Wait] = {}
        kinds = {**_KINDS, **of_store}
        self._kinds = {fault: kinds[fault] for fault in FAULTS if fault in faults}
        for rates_of in self._kinds.values():
            for kind, rates in rates_of.items():
                picked = choices.choose(len(rates) + 1, f"how often: {kind}")
                if picked < len(rates):  # else this one spares the simulation
                    self._one_in[kind] = rates[picked]

    def strikes(self, kind: str, *words: str) -> bool:
        """Whether it happens now; the *words* say what, for people."""
        wait = self._waits.get(kind) or self._first(kind)
        wait.left -= 1
        if wait.left:
            return False
        self._choices.explain(wait.place, "".join(words))
        wait.struck += 1
        self._draw(kind, wait)
        return True

    def _first(self, kind: str) -> _Wait:
        """There is a first chance of it."""
        wait = self._waits[kind] = _Wait()
        if kind in self._one_in:
            self._draw(kind, wait)
        return wait

    def told(self) -> dict[str, int]:
        """The counters of the faults that were named, those that are not 0."""
        found: dict[str, int] = {}
        for fault, kinds in self._kinds.items():
            if any(kind in self._waits for kind in [*kinds][:1]):
                found[COULD_STRIKE.format(fault)] = 1
                found[HAS_STRUCK.format(fault)] = sum(self._waits[k].struck for k in kinds if k in self._waits)
        return {name: count for name, count in found.items() if count}

    def _draw(self, kind: str, wait: _Wait) -> None:
        """Choose how many times it is spared; 0 is for ever."""
        wait.place = len(self._choices.trace)
        if wait.struck == STRIKES_MAX:
            wait.left = 0
            return

        one_in = self._one_in[kind]

        def prefer(randomness: random.Random) -> int:
            drawn = 1 + int(randomness.expovariate(1 / one_in))
            return drawn if drawn < HORIZON else 0

        wait.left = self._choices.choose(HORIZON, f"{kind}: when", prefer)


class _Wait:
    """For the next strike of one kind: how many chances away it is, and which choice said so."""

    __slots__ = ("left", "place", "struck")

    def __init__(self) -> None:
        self.left = 0
        self.place = 0
        self.struck = 0
