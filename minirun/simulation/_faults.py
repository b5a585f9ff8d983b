"""
What may go wrong beside the order of things, by name, and how often.

Nothing of it happens unless it is asked for. How often is drawn for each simulation anew (swarm testing, Groce et al.
2012): a run in which everything fails seldom meets what a run finds in which only one thing does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from ..errors import MinirunError
from ._choices import Choices

__all__ = ["FAULTS", "FaultName", "Rates", "SimulatedFault", "checked_faults"]

FaultName: TypeAlias = Literal["crash", "storage", "model", "tools", "users"]
FAULTS: Final[tuple[FaultName, ...]] = ("crash", "storage", "model", "tools", "users")


class SimulatedFault(MinirunError):
    """What a tool fails with where a simulation makes it fail."""


def checked_faults(faults: Iterable[str] | str) -> frozenset[FaultName]:
    """
    The set of faults that was named; `"all"` are all of them.

    Raises:
        ValueError: One of them is unknown.
    """
    names = FAULTS if faults == "all" else (faults,) if isinstance(faults, str) else tuple(faults)
    known = [name for name in FAULTS if name in names]
    if len(known) != len(set(names)):
        msg = f"expected faults out of {', '.join(FAULTS)}, or 'all'; found {names}"
        raise ValueError(msg)
    return frozenset(known)


# What happens once in so many times: the usual rate first, for that is what a dull choice takes.
_ONE_IN: Final = {
    "death": (60, 15, 200),  # steps of the schedule
    "power cut": (60, 15, 300),  # changes of the disk
    "disk": (60, 15, 300),  # operations of the disk
    "clock": (200, 40, 1000),  # steps
    "stall": (100, 20, 500),  # steps
    "model": (8, 3, 30),  # questions
    "tool": (8, 3, 30),  # calls
    "user": (8, 3, 30),  # things that are said or read
}
# How often one kind of thing may happen in a simulation, so that it comes to its end.
STRIKES_MAX: Final = 12

_OF: Final[dict[FaultName, tuple[str, ...]]] = {
    "crash": ("death", "power cut", "clock", "stall"),
    "storage": ("disk",),
    "model": ("model",),
    "tools": ("tool",),
    "users": ("user",),
}


class Rates:
    """How often what may go wrong in this simulation does; drawn once."""

    def __init__(self, choices: Choices, faults: frozenset[FaultName]) -> None:
        self._choices = choices
        self._one_in: dict[str, int] = {}
        self._struck: Counter[str] = Counter()
        for fault in FAULTS:
            if fault in faults:
                for kind in _OF[fault]:
                    rates = _ONE_IN[kind]
                    picked = choices.choose(len(rates) + 1, f"how often: {kind}")
                    if picked < len(rates):  # else this one spares the simulation
                        self._one_in[kind] = rates[picked]

    def strikes(self, kind: str, label: str) -> bool:
        """Whether it happens now; *label* says what, for people."""
        one_in = self._one_in.get(kind)
        if one_in is None or self._struck[kind] >= STRIKES_MAX or not self._choices.maybe(label, one_in):
            return False
        self._struck[kind] += 1
        return True
