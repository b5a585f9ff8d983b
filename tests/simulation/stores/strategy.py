"""Worlds for `@given`: the choices of a simulation as a hypothesis strategy."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st

from minirun.simulation import Choices

__all__ = ["DrawnChoices", "worlds"]

# A simulation takes hundreds of choices. Those at the beginning are hypothesis's own, to be shrunk one by one; the rest
# follow from one number. 64 is what a shrunk failure needs at most, from experience.
PREFIX_BYTES_MAX = 64
TAIL_SEED_MAX = 2**32 - 1


class DrawnChoices(Choices):
    """
    Choices from bytes that hypothesis draws, then by randomness from a seed, for which 0 stands for dullness.

    Measured against drawing each choice: failures shrink in a tenth of the examples, and to nothing where they can.
    """

    def __init__(self, prefix: bytes, tail_seed: int) -> None:
        super().__init__()
        self._prefix = iter(prefix)
        self._tail = random.Random(f"minirun tail {tail_seed}") if tail_seed else None

    def _pick(self, options: int, prefer: Callable[[random.Random], int] | None) -> int:
        byte = next(self._prefix, None)
        if byte is not None:
            return byte % options
        if self._tail is None:
            return 0
        return self._tail.randrange(options) if prefer is None else prefer(self._tail)


def worlds() -> st.SearchStrategy[Choices]:
    """
    Choices for one simulation, which hypothesis draws, keeps in its database, and shrinks:

        @given(choices=worlds())
        def test_money_is_conserved(choices):
            simulate(scenario, choices, faults="all").check()

    They are bytes for the first choices and a seed for the others, drawn before the simulation begins. That is what
    shrinks best, and nothing of hypothesis happens inside of the simulation: a `data.draw` in there would raise through
    trio's nurseries. Use each drawn value for one simulation; it is used up then.
    """
    return st.builds(DrawnChoices, st.binary(max_size=PREFIX_BYTES_MAX), st.integers(0, TAIL_SEED_MAX))
