"""Live runs of minirun and of the peer in the same scenarios: every difference is listed, with its reason."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from minirun.testing._live_dialects import DialectName

from ..live_client import both
from ..peer.columns import FIXTURES
from ..peer.live_differences import DIFFERENCES, LEFT_OUT
from ..peer.live_play import SCENARIOS, PlayedLive, differences_of, play_live

_TEXT = (FIXTURES / "t15.json").read_text(encoding="utf-8")
RECORDED = {each["title"]: PlayedLive(**each) for each in json.loads(_TEXT)}


def expected(title: str, dialect: DialectName) -> list[str]:
    """The differences that are listed."""
    listed = DIFFERENCES.get(title, {})
    return [line for which in ("both", dialect) for lines in listed.get(which, {}).values() for line in lines]


@both
@pytest.mark.parametrize("title", RECORDED)
async def test_each_scenario_differs_only_as_listed(
    title: str, dialect: DialectName, autojump_clock: MockClock
) -> None:
    """What the model is sent and what is stored is what the peer does, but for what has a reason, in both dialects."""
    found = differences_of(RECORDED[title], await play_live(title, dialect), left_out=LEFT_OUT)
    assert sorted(found) == sorted(expected(title, dialect))


def test_every_recorded_scenario_is_played() -> None:
    """There is a scenario for each recorded one and no other, and differences name scenarios that exist."""
    assert set(SCENARIOS) == set(RECORDED)
    assert set(DIFFERENCES) <= set(RECORDED)
    assert len(RECORDED) == 14


def test_every_reason_is_given() -> None:
    """No difference is listed without a reason, which says which weakness, promise or section it follows from."""
    reasons = [reason for of in DIFFERENCES.values() for listed in of.values() for reason in listed]
    assert all(reason.startswith(("L", "P", "§")) and len(reason) > 20 for reason in [*reasons, *LEFT_OUT.values()])
    assert all(lines for of in DIFFERENCES.values() for listed in of.values() for lines in listed.values())
