"""Guardrails in simulated worlds: see gates.py for what has to be true there."""

from __future__ import annotations

import pytest

from minirun.simulation import SeededChoices

from ..seeds import coverage_until
from ..simulation.stores import simulate, why_unavailable
from ..worlds import KEEPING

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

WORLDS = {name: world for name, world in KEEPING.items() if name.startswith("gate")}
REACHED = {"a message was refused", "a message was replaced", "a message was retry", "crash", "user left", "disk fault"}


@pytest.mark.parametrize("seeds", [pytest.param(6, id="some"), pytest.param(250, id="many", marks=pytest.mark.slow)])
def test_nothing_gets_past_a_guardrail(seeds: int) -> None:
    """In so many seeds of each world nothing is found, though all of it happens."""
    coverage_until(REACHED, WORLDS, seeds, deep=True)


def test_what_passes_follows_from_the_seed() -> None:
    """The same seed twice is the same world, byte for byte."""
    for scenario, options in WORLDS.values():
        first, again = (simulate(scenario, SeededChoices(70), **options) for _ in range(2))
        assert first.digest == again.digest
