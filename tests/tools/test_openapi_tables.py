"""
What becomes of OpenAPI documents, as tables of JSON in `tests/fixtures/openapi`; `tests/openapi_tables.py` has the
questions, and says how the tables are written anew.
"""

from __future__ import annotations

from typing import Any

import pytest

from minirun.errors import ConfigurationError
from minirun.tools._openapi._document import (
    DEPTH_MAX,
    DOCUMENT_BYTES_MAX,
    ITEMS_MAX,
    YAML_BYTES_MAX,
    _count,
    read_document,
)
from minirun.tools._openapi._tool import _redirected

from ..openapi_tables import TABLES
from ..tables import kept


@pytest.mark.parametrize("name", TABLES)
def test_a_document_becomes_what_the_table_says(name: str) -> None:
    """
    Each keyword, parameter, body, value, answer and credential becomes what the table says, or is refused so.
    """
    found, expected = TABLES[name](), kept(f"openapi/{name}")
    assert {case: made for case, made in found.items() if made != expected.get(case)} == {}
    assert [*found] == [*expected]


@pytest.mark.parametrize(("kind", "size"), [("json", DOCUMENT_BYTES_MAX), ("yaml", YAML_BYTES_MAX)])
def test_a_text_has_so_many_bytes_and_no_more(kind: Any, size: int) -> None:
    """
    A text of the bytes that there may be is read (and found to be no document); one more is refused by its size.
    """
    assert size == {"json": 33_554_432, "yaml": 2_097_152}[kind]
    for text in ("]" + " " * (size - 1), "]ü" + " " * (size - 3)):
        with pytest.raises(ConfigurationError) as caught:
            read_document(None, text, kind)
        assert "bytes" not in str(caught.value)
        with pytest.raises(ConfigurationError, match=rf"at most {size} bytes, found {size + 1}"):
            read_document(None, text + " ", kind)


def test_a_document_has_so_many_values_and_levels_and_no_more() -> None:
    """
    What is shared counts as often as it occurs: five million values are counted, one more is refused; so is level 201.
    """
    assert (ITEMS_MAX, DEPTH_MAX) == (5_000_000, 200)
    thousand: list[Any] = [0] * 999
    rest = [0] * 998
    assert _count([thousand] * 4999 + [rest], {}, 0) == ITEMS_MAX
    assert _count({"a": (1, "b"), "c": None}, {}, 0) == 5
    with pytest.raises(ConfigurationError, match="at most 5000000 values, found a larger one"):
        _count([thousand] * 4999 + [thousand], {}, 0)
    deep: Any = 0
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    assert _count(deep, {}, 0) == DEPTH_MAX + 2
    with pytest.raises(ConfigurationError, match="at most 200 levels"):
        _count([deep], {}, 0)
    with pytest.raises(ConfigurationError, match="one that contains itself"):
        ring: list[Any] = []
        ring.append(ring)
        read_document({"openapi": "3.1.0", "x": ring}, None, "json")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b?c=d", ("https://api.example/b?c=d", "")),
        ("b", ("https://api.example/v1/b", "")),
        ("https://api.example:443/b", ("https://api.example:443/b", "")),
        ("https://other.example/b?key=secret", ("", "https://other.example")),
        ("http://api.example/b", ("", "http://api.example")),
        ("ftp://api.example/b", ("", "another address")),
    ],
)
def test_a_redirect_leads_within_the_server(location: str, expected: tuple[str, str]) -> None:
    """
    Where it leads is an address of the server that has answered, or else only the name of the other one.
    """
    assert _redirected("https://api.example/v1/a", location) == expected


def test_a_redirect_of_no_address_leads_nowhere() -> None:
    """
    Without an address there is none that a redirect could be of.
    """
    assert _redirected("hm", "/a") == ("", "another address")
