"""Worlds for `@given`: the choices of a simulation as a hypothesis strategy. Nothing else here needs hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from ._choices import Choices, DrawnChoices

__all__ = ["worlds"]

# A simulation takes hundreds of choices. Those at the beginning are hypothesis's own, to be shrunk one by one; the rest
# follow from one number. 64 is what a shrunk failure needs at most, from experience.
PREFIX_BYTES_MAX = 64
TAIL_SEED_MAX = 2**32 - 1


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
