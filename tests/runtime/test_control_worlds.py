"""Confirmations that are edited, and answers that are refused, in simulated worlds."""

from __future__ import annotations

import pytest

from ..control_worlds import CONTROL
from ..seeds import coverage_until
from ..simulation.stores import why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

REACHED = {
    *("allowed", "crash", "edited", "edited wrongly", "refused"),
    *("the run failed: OutputSchemaError", "an answer that came too late was refused"),
}


@pytest.mark.parametrize("seeds", [pytest.param(12, id="some"), pytest.param(400, id="many", marks=pytest.mark.slow)])
def test_control_is_kept_whatever_happens(seeds: int) -> None:
    """In so many seeds of each world nothing is found, though all of it happens."""
    coverage_until(REACHED, CONTROL, seeds)
