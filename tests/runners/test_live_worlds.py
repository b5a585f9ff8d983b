"""Live runs in simulated worlds: what must hold of the log holds, and a seed is one world."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ..live_worlds import LIVE
from ..seeds import coverage_until
from ..simulation.stores import explore, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

REACHED = {
    *("closed", "left", "interrupted by the program", "a request is replied to", "a run came to its end"),
    *("crash", "power cut", "disk fault", "lease taken over"),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tools that fail as planned are not worth a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seeds", [pytest.param(20, id="some"), pytest.param(2_000, id="many", marks=pytest.mark.slow)])
def test_no_call_is_lost_whatever_happens(seeds: int) -> None:
    """In so many seeds of each world nothing is found, and everything that matters happens."""
    print(dict(sorted(coverage_until(REACHED, LIVE, seeds, deep=True).items())))


@pytest.mark.parametrize("name", list(LIVE))
def test_live_runs_follow_from_the_seed(name: str) -> None:
    """The same seed twice is the same world, byte for byte."""
    scenario, options = LIVE[name]
    outcomes = [explored.outcome for explored in explore(scenario, range(70, 73), dict(options))]
    assert [outcome.failure for outcome in outcomes] == [None] * 3
