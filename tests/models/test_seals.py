"""
Seals say whose they are, and come back letter for letter.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun.models._seals import Seal, opened, sealed

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, TEXTS, TEXTS)
def test_a_seal_comes_back(provider: str, kind: str, payload: str) -> None:
    """
    What was sealed is opened by its provider, letter for letter, and by nobody else.
    """
    signature = sealed(provider, kind, payload)
    assert opened(signature, provider) == Seal(provider, kind, payload)
    assert opened(signature, provider + "x") is None


@pytest.mark.parametrize(
    "signature", [None, b"", b"\xff\x00", b"[]", b"1", b"{}", b'{"provider":"p","kind":1,"payload":""}']
)
def test_other_bytes_are_nobodys_seal(signature: bytes | None) -> None:
    """
    A signature that another program has written belongs to no provider.
    """
    assert opened(signature, "p") is None
