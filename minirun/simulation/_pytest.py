"""Running the seeds of a test that is marked `simulation`, and telling what failed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ._choices import RecordedChoices, SeededChoices
from ._explore import shrink
from ._report import report
from ._simulate import Outcome, Storage, simulate
from ._world import World

__all__ = ["run_test", "world"]

# Where the choices of failures are kept, to be tried first next time.
FAILURES = Path(".minirun/failures")


@pytest.fixture
def world() -> None:
    """The world of a simulation; each seed of a test that is marked `simulation` gets one of its own."""


def run_test(
    test: Callable[..., Any],
    fixtures: dict[str, Any],
    node: str,
    seeds: int = 100,
    faults: Iterable[str] | str = (),
    storage: Storage = "sqlite",
) -> None:
    """
    Run *test* in as many worlds; the choices of its last failure first.

    Raises:
        The failure of the first world that fails, shrunk, with a note that tells it.
    """

    async def scenario(world: World) -> None:
        await test(**{**fixtures, "world": world})

    def attempt(picks: list[int] | None, seed: int) -> Outcome:
        choices = SeededChoices(seed) if picks is None else RecordedChoices(picks)
        return simulate(scenario, choices, faults=faults, storage=storage)

    file = FAILURES / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', node)}.json"
    if file.is_file():
        outcome = attempt(json.loads(file.read_text("utf-8"))["choices"], 0)
        if outcome.failure is not None:
            _fail(outcome, f"the failure in {file}", file)
        file.unlink()
    for seed in range(seeds):
        outcome = attempt(None, seed)
        if outcome.failure is not None:
            _fail(shrink(scenario, outcome, faults=faults, storage=storage), f"seed {seed}", file)


def _fail(outcome: Outcome, what: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"choices": outcome.picks}) + "\n", "utf-8")
    assert outcome.failure is not None
    outcome.failure.add_note(f"{what}\n{report(outcome)}\nkept in {file}: running the test again tries it first")
    raise outcome.failure
