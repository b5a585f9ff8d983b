"""
What is made of the words of an MCP server, as tables of JSON in `tests/fixtures/mcp`; `tests/mcp_tables.py` has the
questions, and says how the tables are written anew.
"""

from __future__ import annotations

import logging

import pytest

from minirun.tools.mcp._listing import tell_left_out

from ..mcp_tables import TABLES
from ..tables import kept


@pytest.mark.parametrize("name", TABLES)
def test_what_a_server_says_becomes_what_the_table_says(name: str) -> None:
    """
    Each tool, result and question becomes what the table says, up to its bound, or is refused so.
    """
    found, expected = TABLES[name](), kept(f"mcp/{name}")
    assert {case: made for case, made in found.items() if made != expected.get(case)} == {}
    assert [*found] == [*expected]


@pytest.mark.parametrize(("count", "told"), [(1, "0"), (5, "0; 1; 2; 3; 4"), (6, "0; 1; 2; 3; 4; and 1 others")])
def test_a_record_of_what_is_left_out_names_five(count: int, told: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    The first five tools that are left out are named, and the others counted; of none, nothing is told.
    """
    with caplog.at_level(logging.WARNING, "minirun"):
        tell_left_out([], "desk")
        tell_left_out([str(number) for number in range(count)], "desk")
    assert caplog.messages == [f"tools of the MCP server 'desk' are left out: {told}"]
