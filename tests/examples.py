"""
How often a property is tried: a few times in each run of the tests, often with `--hypothesis-profile=many`.

conftest.py has both profiles. A property without a number of its own tries as many examples as the profile says.
"""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]

FEWEST = 4


def examples(many: int) -> int:
    """The number of examples for a property that is worth so *many*: all with that profile, else a part of them."""
    return max(FEWEST, many * settings().max_examples // 100)
