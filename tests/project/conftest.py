"""What the tests of the whole project share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from .. import syntax


@pytest.fixture(scope="package", autouse=True)
def sources_are_forgotten() -> Iterator[None]:
    """Millions of nodes, which every later search for garbage would go through, go with the last of these tests."""
    yield
    syntax.forget()


@pytest.fixture(scope="module")
def set_aside() -> Iterator[None]:
    """Let searches for garbage, of which each measurement begins with one, not go through all that pytest has."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()  # what was set aside meanwhile may be garbage by now
    gc.collect()
    gc.freeze()
