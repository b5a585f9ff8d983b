"""What is written, read, spent and shared in simulated worlds: what happens there, and that nothing is found."""

from __future__ import annotations

import pytest

from ..simulation.stores import why_unavailable
from ..worlds import SHARING, coverage_of

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

REACHED = {
    "an event was refused",
    "asked again after a crash",
    "cancel during commit",
    "conflict",
    *(f"house: {deed}" for deed in ("answer", "append", "evict", "fork", "hurry", "read", "rewind")),
    "house: append: StaleSessionError",
    "house: hurry: SessionBusyError",
}


@pytest.mark.parametrize("seeds", [pytest.param(8, id="some"), pytest.param(400, id="many", marks=pytest.mark.slow)])
def test_nothing_is_lost_read_otherwise_or_waited_for(seeds: int) -> None:
    """In so many seeds of each world nothing is found, though all of it happens."""
    found = set(coverage_of(SHARING, seeds))
    assert found >= REACHED, REACHED - found
