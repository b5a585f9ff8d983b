"""
What simulations have found in minirun, as the few choices that were left of it.

Each list failed when it was made, with the message beside it. It is replayed here as it is; where a later change lets
the same numbers mean other choices, the bug has a test of its own in words, too.
"""

from __future__ import annotations

import attrs
import pytest

from minirun.simulation import RecordedChoices, simulate, why_unavailable
from minirun.simulation._simulate import Scenario

from .test_simulation_world import deleted_meanwhile
from .worlds import WORLDS, Options

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


@attrs.frozen
class Trace:
    """The scenario and its options, what it failed with, and the choices."""

    scenario: Scenario
    options: Options
    failed_with: str
    choices: list[int]


TRACES = {
    "recovery answered calls in the order of their ids": Trace(
        *WORLDS["errands in two processes"],
        "CheckError: ['call-2e7e…', 'call-5606…'] do not answer ['call-5606…', 'call-2e7e…'] in their order",
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 21],
    ),
    "a message failed whose session another process deleted": Trace(
        deleted_meanwhile,
        {"faults": (), "storage": "sqlite", "processes": 2},
        "SessionNotFoundError: session 'ada' of user 'ada' in app 'app' was deleted",
        [0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ),
    "a read failed while a cached session was brought up to date, and its open calls stayed unknown": Trace(
        *WORLDS["errands in two processes"],
        "CheckError: the calls ['call-47a9…', 'call-5e1b…'] are open while a new message is stored",
        [
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            3,
            0,
            0,
            0,
            0,
            0,
            0,
            211,
            158,
            39,
            0,
            0,
            44,
            0,
            85,
            1,
            0,
            1,
            0,
            2,
            0,
            8,
            0,
            46,
            1,
            2,
            0,
            1,
            54,
            0,
            13,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            2,
            1,
            0,
            2,
            0,
            1,
            0,
            113,
            0,
            1,
            1,
            0,
            1,
            1,
            0,
            0,
            1,
            0,
            0,
            1,
            1,
            0,
            0,
            0,
            115,
            0,
            0,
            0,
            0,
            1,
            0,
            1,
            0,
            1,
            0,
            0,
            0,
            1,
            0,
            1,
        ],
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_what_was_found_stays_fixed(name: str) -> None:
    """The choices that led to it lead to nothing any more."""
    trace = TRACES[name]
    assert simulate(trace.scenario, RecordedChoices(trace.choices), **trace.options).failure is None, trace.failed_with
