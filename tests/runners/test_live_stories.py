"""
Live conversations told from beginning to end: `tests/live_stories.py` has them, and says how they are written anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from ..live_stories import STORIES, story
from ..tables import kept


@pytest.fixture(scope="module")
def told() -> Any:
    """The stories as they are kept."""
    return kept("live/stories")


@pytest.mark.parametrize("name", STORIES)
def test_a_conversation_goes_as_it_is_told(name: str, told: Any) -> None:
    """
    What the model is sent and when, what the client sees, what is stored, and how it ends is what the story tells.
    """
    found, expected = story(STORIES[name]), told[name]
    for part, lines in expected.items():
        assert found[part] == lines, part
