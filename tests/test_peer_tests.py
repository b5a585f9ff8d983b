"""
ADK's own tests of sessions, state and artifacts, by name: what holds here, too, and what is different and why.

The table is `fixtures/peer/contract-tests.json`: for each test its file in google/adk-python, whether the same holds
here, and the test of ours that shows it. Of the artifacts those that are not about Google's cloud storage are listed.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from minirun.testing import artifact_service_checks, session_service_checks

ROOT = Path(__file__).parents[1]
TABLE: list[dict[str, str]] = json.loads((ROOT / "tests/fixtures/peer/contract-tests.json").read_text("utf-8"))
CHECKS = {**session_service_checks(durable=True), **artifact_service_checks(durable=True)}


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests in a file of ours."""
    tree = ast.parse((ROOT / path).read_bytes())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_each_test_of_the_peer_is_the_same_or_different_for_a_reason(row: dict[str, str]) -> None:
    """
    A row says "same" or "different because …", and names a test of ours that is there.
    """
    assert set(row) == {"file", "name", "verdict", "shown_by"}
    assert row["verdict"] == "same" or row["verdict"].removeprefix("different because ") not in ("", row["verdict"])
    path, _, name = row["shown_by"].partition("::")
    test, _, check = name.rstrip("]").partition("[")
    assert test in names_in(path)
    assert not check or check in CHECKS


def test_no_test_of_the_peer_is_listed_twice() -> None:
    """
    Each name stands once for its file; most of what is about no database of another kind is the same.
    """
    assert max(Counter((row["file"], row["name"]) for row in TABLE).values()) == 1
    print(Counter(row["verdict"].partition(" ")[0] for row in TABLE))
