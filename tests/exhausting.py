"""Running every schedule that a small scenario has, or as many as it takes to see all that can come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from minirun.simulation import Choices, SeededChoices, depth_first

from .simulation.stores import Scenario, Storage, simulate

__all__ = ["all_outcomes", "outcomes_until"]

SEEDS_MAX = 300


def all_outcomes(scenario: Scenario, storage: Storage, *, told_by: str, only: str = "") -> Counter[str]:
    """
    How often each thing came of a scenario, as *told_by* tells in its log, in every order there is.

    Choices that are not about order have one option, and so do those whose label does not begin with *only*.
    """
    return _outcomes(scenario, storage, told_by, only, depth_first(), None)


def outcomes_until(
    possible: Collection[str], scenario: Scenario, storage: Storage, *, told_by: str, only: str = ""
) -> Counter[str]:
    """The same in orders that are drawn, until all that is *possible* has come of them."""
    return _outcomes(scenario, storage, told_by, only, map(SeededChoices, range(SEEDS_MAX)), set(possible))


def _outcomes(
    scenario: Scenario, storage: Storage, told_by: str, only: str, orders: Iterable[Choices], enough: set[str] | None
) -> Counter[str]:
    found: Counter[str] = Counter()
    for choices in orders:
        choices.choose = _about_order(choices, only)  # type: ignore[method-assign]  # see above
        outcome = simulate(scenario, choices, storage=storage)
        assert outcome.failure is None, f"{outcome.picks}: {outcome.failure!r}"
        found[next(entry.what for entry in outcome.log if entry.who == told_by)] += 1
        if enough is not None and enough <= set(found):
            break
    return found


def _about_order(choices: Choices, only: str) -> Any:
    real = choices.choose

    def choose(options: int, label: str, prefer: Any = None, names: tuple[str, ...] = ()) -> int:
        return real(options if names and label.startswith(only) else 1, label, prefer, names)

    return choose
