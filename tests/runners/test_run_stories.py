"""
Runs in writing told from beginning to end: `tests/run_stories.py` has them, and says how they are written anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from ..run_stories import STORIES, story
from ..tables import kept


@pytest.fixture(scope="module")
def told() -> Any:
    """The stories as they are kept."""
    return kept("runs/stories")


@pytest.mark.parametrize("name", STORIES)
def test_a_run_goes_as_it_is_told(name: str, told: Any) -> None:
    """
    What the caller sees and when, what the models are asked, what is stored, and how it ends is what the story tells.

    The ids are the same ones, too: they follow from where in the run something is, and an invocation that an earlier
    version has begun goes on by them.
    """
    found, expected = story(STORIES[name]), told[name]
    for lines, wanted in zip(found, expected, strict=True):
        assert lines == wanted
