"""Running every schedule that a small scenario has."""

from __future__ import annotations

from collections import Counter
from typing import Any

from minirun.simulation import Choices, depth_first, simulate
from minirun.simulation._simulate import Scenario, Storage

__all__ = ["all_outcomes"]


def all_outcomes(scenario: Scenario, storage: Storage, *, told_by: str, only: str = "") -> Counter[str]:
    """
    How often each thing came of a scenario, as *told_by* tells in its log, in every order there is.

    Choices that are not about order have one option, and so do those whose label does not begin with *only*.
    """
    found: Counter[str] = Counter()
    for choices in depth_first():
        choices.choose = _about_order(choices, only)  # type: ignore[method-assign]  # see above
        outcome = simulate(scenario, choices, storage=storage)
        assert outcome.failure is None, f"{outcome.picks}: {outcome.failure!r}"
        found[next(entry.what for entry in outcome.log if entry.who == told_by)] += 1
    return found


def _about_order(choices: Choices, only: str) -> Any:
    real = choices.choose

    def choose(options: int, label: str, prefer: Any = None, names: tuple[str, ...] = ()) -> int:
        return real(options if names and label.startswith(only) else 1, label, prefer, names)

    return choose
