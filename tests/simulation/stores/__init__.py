"""
Simulation of minirun's own stores, plugged into `minirun.simulation` as `store=` and `observers=`.

    witness       the observer that checks minirun's promises: `Checks`
    checks        what must hold in every world
    artifacts     the same for artifacts
    memories      the same for memories
    memory_store  the store of the package, with what the checks look at
    sqlite_store  the real SQLite, on a disk that fails and loses power
    disk          what a power cut may leave of what was done to a disk: a model, pure
    vfs           a disk below the real SQLite that records what is done to it, and fails where it is told to
    strategy      worlds(), for hypothesis

The functions here are those of the package, over one of the two stores and with the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from minirun import simulation
from minirun.simulation import Choices, Explored, Outcome
from minirun.simulation._explore import replay as replay_choices
from minirun.simulation._simulate import Scenario

from .memory_store import CheckedMemoryStore
from .sqlite_store import SqliteStore
from .vfs import why_unavailable
from .witness import CheckedStore, Checks, DeepChecks

__all__ = [
    "Scenario",
    "Storage",
    "checked",
    "checks_of",
    "explore",
    "replay",
    "shrink",
    "simulate",
    "why_unavailable",
]

Storage: TypeAlias = Literal["memory", "sqlite"]
STORES: Final[Mapping[str, type[CheckedStore]]] = {"memory": CheckedMemoryStore, "sqlite": SqliteStore}


def checked(*, storage: Storage = "sqlite", deep: bool = False, **options: Any) -> dict[str, Any]:
    """The options of a simulation over this store, with all checks; *deep*: the store is verified at the end."""
    return {"store": STORES[storage], "observers": (DeepChecks if deep else Checks,), **options}


def checks_of(world: simulation.World) -> Checks:
    """The checks of a world."""
    return next(observer for observer in world.observers if isinstance(observer, Checks))


def simulate(scenario: Scenario, choices: Choices, **options: Any) -> Outcome:
    """As `minirun.simulation.simulate`."""
    return simulation.simulate(scenario, choices, **checked(**options))


def explore(
    scenario: Scenario,
    seeds: Iterable[int],
    options: Mapping[str, Any],
    *,
    shrinks: Callable[[BaseException], bool] = lambda failure: True,
) -> Iterator[Explored]:
    """As `minirun.simulation.explore`."""
    return simulation.explore(scenario, seeds, checked(**options), shrinks=shrinks)


def replay(scenario: Scenario, picks: Sequence[int], options: Mapping[str, Any]) -> Outcome:
    """As `minirun simulate --replay` does it."""
    return replay_choices(scenario, picks, checked(**options))


def shrink(scenario: Scenario, outcome: Outcome, **options: Any) -> Outcome:
    """As `minirun.simulation.shrink`; its own limits are given by their names."""
    limits = {name: options.pop(name) for name in ("runs_max", "steps_max") if name in options}
    return simulation.shrink(scenario, outcome, **limits, **checked(**options))
