"""What the tests of the whole project share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .. import syntax


@pytest.fixture(scope="package", autouse=True)
def sources_are_forgotten() -> Iterator[None]:
    """Millions of nodes, which every later search for garbage would go through, go with the last of these tests."""
    yield
    syntax.forget()
