"""
The second layer: trio's own randomness, made to follow from a seed. The only place that touches trio's internals.

trio runs the tasks that are ready in a random order, on purpose, and offers no public way to fix it. Two names have
been in `trio._core._run` in every version since 0.12: the generator `_r`, and the flag that sorts ready tasks by age
before they are shuffled (hypothesis's and pytest-trio's plugins set it, too). Where one is missing, this says so once
and changes nothing: the schedule's gates alone still decide between two points of minirun's own.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import trio._core._run as trio_run

__all__ = ["seeded_trio", "why_not_seeded"]

FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"


def why_not_seeded() -> str | None:
    """Why trio's order of ready tasks cannot be made to follow from a seed here; None if it can."""
    if not isinstance(getattr(trio_run, "_r", None), random.Random):
        return "trio has no generator named _r any more"
    if not hasattr(trio_run, FLAG):
        return f"trio has no flag {FLAG} any more"
    return None


@contextmanager
def seeded_trio(seed: int | str) -> Iterator[None]:
    """In the block, let the order in which trio runs ready tasks follow from *seed*; then as it was before."""
    problem = why_not_seeded()
    if problem is not None:
        warnings.warn(f"simulations may differ between runs of one seed: {problem}", RuntimeWarning, stacklevel=3)
        yield
        return
    randomness: random.Random = trio_run._r
    before = (randomness.getstate(), getattr(trio_run, FLAG))
    randomness.seed(f"minirun {seed}")
    setattr(trio_run, FLAG, True)
    try:
        yield
    finally:
        randomness.setstate(before[0])
        setattr(trio_run, FLAG, before[1])
