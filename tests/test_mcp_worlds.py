"""The world with an MCP server: nothing is found in minirun as it is, and a seed is the same world each time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from minirun.simulation import SeededChoices, simulate

from .mcp_worlds import SERVERS

SCENARIO, OPTIONS = SERVERS["servers in memory"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of calls fail, as they are meant to."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seeds", [pytest.param(40, id="some"), pytest.param(1_000, id="many", marks=pytest.mark.slow)])
def test_a_bad_network_breaks_no_promise(seeds: int) -> None:
    """
    Drops, delays, overtaken progress and forgotten states come, and lead to what is promised; the faults do strike.
    """
    reached: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = simulate(SCENARIO, SeededChoices(seed), **OPTIONS)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        reached.update(outcome.coverage.keys())
    assert reached["the connection dropped"]
    assert reached["a call was lost"]
    assert reached["the server has forgotten"]


def test_a_seed_is_the_same_world_each_time() -> None:
    """
    What the official package does inside follows from the choices, too.
    """
    for seed in (0, 3):
        digests = {simulate(SCENARIO, SeededChoices(seed), **OPTIONS).digest for _ in range(3)}
        assert len(digests) == 1
