"""Workflows of minirun and of the peer in the same scenarios: every difference is listed, with its reason."""

from __future__ import annotations

from importlib import import_module

import pytest
import trio.testing

from ..peer.columns import FIXTURES, differences, read
from ..peer.workflow_differences import DIFFERENCES, OUT_OF_SCOPE, PENDING
from ..peer.workflow_play import FILES, SCENARIOS, play_workflow

for _name in (*FILES, "t13_people"):
    import_module(f"tests.peer.{_name}")

RECORDED = {(name, played.title): played for name in FILES for played in read(FIXTURES / f"{name}.json")}


@pytest.mark.parametrize(("file", "title"), RECORDED, ids=[f"{file}: {title}" for file, title in RECORDED])
async def test_each_scenario_differs_only_as_listed(
    file: str, title: str, autojump_clock: trio.testing.MockClock
) -> None:
    """What the caller sees, node by node, and what is stored is what the peer does, but for what has a reason."""
    if title in PENDING:
        pytest.skip("not built yet")
    listed = [each for lines in DIFFERENCES.get((file, title), {}).values() for each in lines]
    assert sorted(differences(RECORDED[file, title], await play_workflow(file, title))) == sorted(listed)


def test_every_recorded_scenario_is_played() -> None:
    """There is a scenario for each recorded one and no other; differences and omissions name scenarios that exist."""
    assert set(SCENARIOS) == set(RECORDED)
    assert set(DIFFERENCES) <= set(RECORDED)
    assert not set(OUT_OF_SCOPE) & set(RECORDED)
    assert {title for _, title in RECORDED} >= PENDING
    assert len(RECORDED) + len(OUT_OF_SCOPE) == 23 + 51


def test_every_reason_is_given() -> None:
    """No difference and no omission is listed without a reason."""
    reasons = [reason for listed in DIFFERENCES.values() for reason in listed]
    assert all(len(reason) > 20 for reason in [*reasons, *OUT_OF_SCOPE.values()])
    assert all(lines for listed in DIFFERENCES.values() for lines in listed.values())
