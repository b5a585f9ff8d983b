"""Signing in when everything may go wrong: whoever needs a token has one renewed once, and comes to an end."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from minirun.simulation import SeededChoices, simulate, why_unavailable

from ..oauth_worlds import SIGN_INS
from ..seeds import coverage_until

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

# What has to happen in twenty-five seeds; else they show nothing.
REACHED = {
    "a server was not reached",
    "a token was renewed",
    "access was taken away",
    "all was well in the end",
    "an answer was lost",
    "an answer was taken",
    "another state was refused",
    "crash",
    "the API refused a token",
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of calls fail, as they are meant to."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SIGN_INS)
@pytest.mark.parametrize("seeds", [pytest.param(25, id="some"), pytest.param(1_000, id="many", marks=pytest.mark.slow)])
def test_a_token_is_renewed_once_whatever_goes_wrong(name: str, seeds: int) -> None:
    """By one of all tasks and processes, and not before it ends; revoked access is asked for; no log has a secret."""
    coverage_until(REACHED, {name: SIGN_INS[name]}, seeds)


def test_a_seed_is_the_same_world_each_time() -> None:
    """What is asked of the server follows from the choices, too."""
    scenario, options = SIGN_INS["sign-ins in two processes"]
    assert len({simulate(scenario, SeededChoices(3), **options).digest for _ in range(2)}) == 1
