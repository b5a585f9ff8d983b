"""The world with an MCP server: nothing is found in minirun as it is, and a seed is the same world each time."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from minirun.simulation import SeededChoices

from ..mcp_worlds import SERVERS
from ..seeds import coverage_until
from ..simulation.stores import simulate

# What the network and the users have to come to, so that something is shown.
REACHED = {
    "servers in memory": ("the connection dropped", "a call was lost", "the server has forgotten"),
    "older servers in memory": ("the connection dropped", "a call was lost", "nobody could tell who is asked"),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of calls fail, as they are meant to."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(SERVERS))
@pytest.mark.parametrize("seeds", [pytest.param(40, id="some"), pytest.param(1_000, id="many", marks=pytest.mark.slow)])
def test_a_bad_network_breaks_no_promise(seeds: int, name: str) -> None:
    """
    Drops, delays, overtaken progress and forgotten states come, and lead to what is promised; the faults do strike.
    """
    coverage_until(REACHED[name], {name: SERVERS[name]}, seeds)


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_seed_is_the_same_world_each_time(name: str) -> None:
    """
    What the official package does inside follows from the choices, too.
    """
    scenario, options = SERVERS[name]
    digests = {simulate(scenario, SeededChoices(3), **options).digest for _ in range(2)}
    assert len(digests) == 1
