"""
What a program gets that says nothing: the defaults of everything public. `tests/defaults.py` says how they are kept.
"""

from __future__ import annotations

from ..defaults import defaults
from ..tables import kept


def test_a_default_is_a_promise() -> None:
    """
    No default of a public class, function or method changes by mistake: programs count on what they do not say.
    """
    found, expected = defaults(), kept("defaults")
    changed = {name: told for name, told in found.items() if told != expected.get(name)}
    assert changed == {}
    assert [*found] == [*expected]
