"""
A workflow whose process is killed at any event comes to what it would have come to.

What is run is `graph` of mortals.py: lanes, a join, a map, a question, a timer, and an agent with a tool. The processes
are real, as in test_kill_and_resume.py, whose tests run it, too, with deaths at all other moments.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minirun import Event

from ..ledger import Forker, forker
from ..runtime.test_kill_and_resume import DURABILITIES, Story, check_same, tell
from .test_workflow_runs import outcomes

GRAPH = ["graph"]


@pytest.fixture(scope="module")
def forks() -> Forker:
    """Where processes come from."""
    return forker("tests.mortals")


def told(event: Event) -> str:
    """What an event is, in a few words."""
    ended = event.actions.replay.ended
    what = f"end of {ended}" if ended is not None else event.text or ", ".join(
        [*(f"call {one.name}" for one in event.get_function_calls()),
         *(f"response {one.name}" for one in event.get_function_responses())]
    )
    return f"{event.author} {event.branch or ''} {what or event.actions.replay.step or ''}"


def check_death(
    forks: Forker, folder: Path, calm: Story, life: int, number: int, second: int, durability: str
) -> Story:
    """
    Kill a process as it holds its *number*-th event, of the *life* that is so many after the first.

    The process after it dies as it holds its *second* event, if that is not 0.
    """
    fates = [("", 0)] * life + [("stored", number + 1), ("stored", second + 1 if second else 0)]
    story = tell(forks, folder, GRAPH, fates, durability=durability, at_once=bool(number % 2))
    check_same(GRAPH, story, calm)
    assert outcomes(story.log) == outcomes(calm.log)
    assert story.effects.keys() == calm.effects.keys()
    return story


def die_at_every_event(forks: Forker, folder: Path, calm: Story, life: int, durability: str) -> None:
    """Kill at one event of a life after another, until it outlives them all; print what each has come to."""
    for number in range(1, len(calm.log)):
        for second in (0, 1, 2, 3, 5, 8):
            story = check_death(forks, folder / f"{number} {second}", calm, life, number, second, durability)
            if not story.deaths[life]:
                return
            again = sum(story.effects.values()) - len(story.effects)
            print(
                f"{durability}: process {1 + life} killed at its event {number:2}, the next at {second}: "
                f"{sum(story.deaths)} deaths of {len(story.deaths)}, {len(story.log)} events, {again} effects again"
            )


def test_a_workflow_that_dies_at_every_event_comes_to_the_same(forks: Forker, tmp_path: Path) -> None:
    """Each process dies as it holds its first new event: the outcomes, the words and the effects are the same."""
    calm = tell(forks, tmp_path / "calm", GRAPH)
    assert sum(calm.deaths) == 0
    for number, event in enumerate(calm.log, 1):
        print(f"{number:2} {told(event)}")
    story = tell(forks, tmp_path / "all", GRAPH, [("stored", 2)] * 100, durability="power")
    check_same(GRAPH, story, calm)
    assert outcomes(story.log) == outcomes(calm.log)
    assert story.effects.keys() == calm.effects.keys()
    print(f"{sum(story.deaths)} deaths of {len(story.deaths)} lives, {len(calm.log)} events")
    assert sum(story.deaths) >= len(calm.log) / 2


def test_a_workflow_that_dies_at_some_events_comes_to_the_same(forks: Forker, tmp_path: Path) -> None:
    """The same for one death at every ninth event of a process, and another in the next one."""
    calm = tell(forks, tmp_path / "calm", GRAPH)
    for number in range(1, 24, 9):
        check_death(forks, tmp_path / str(number), calm, number % 3 == 2, number, 1 + number % 5, "process")


@pytest.mark.slow
@pytest.mark.parametrize("life", range(3))
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_workflow_that_dies_at_any_event_twice_comes_to_the_same(
    durability: str, life: int, forks: Forker, tmp_path: Path
) -> None:
    """The same for every event of every process, and with each, for deaths at several events of the next one."""
    calm = tell(forks, tmp_path / "calm", GRAPH)
    assert len(calm.deaths) == 3, "one goes until it is asked, one until a time, and one to the end"
    die_at_every_event(forks, tmp_path, calm, life, durability)
