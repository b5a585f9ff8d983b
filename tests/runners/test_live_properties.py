"""
Whatever a server and a client do in a live conversation, the laws of its log hold (`live_laws.py`).

The plans are drawn (`live_plans.py`) and carried out in virtual time (`live_talks.py`), with trio's order of tasks
following from the plan, so what fails once fails again, and is made small.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from trio.testing import MockClock

from minirun import InMemoryRunner
from minirun.events import Event
from minirun.simulation import Choices, RecordedChoices, SeededChoices
from minirun.simulation._private import seeded_trio

from ..examples import examples
from ..helpers import PLACE
from ..live_laws import check
from ..live_plans import CALM, WILD, Mood, Plan, drawn
from ..live_talks import Book, agent_of, book_of, talk
from ..simulation.stores.strategy import worlds

SECONDS_MAX = 5_000.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tools that fail as planned are not worth a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def carried_out(plan: Plan, seed: int) -> tuple[Book, list[Event], str]:
    """Carry *plan* out; return the book, the log, and how the conversation is listed."""
    book = book_of(plan)
    runner = InMemoryRunner(agent=agent_of(book), app_name="app", auto_create_session=True)

    async def main() -> tuple[list[Event], str]:
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.fail_after(SECONDS_MAX):
            await talk(book, runner, PLACE)
        assert trio.lowlevel.current_statistics().tasks_living == tasks, "the conversation has left tasks"
        log = await runner.session_service.read_events(app_name="app", **PLACE)
        [one] = await runner.session_service.list_invocations(app_name="app")
        return log, one.status

    with seeded_trio(seed):
        log, status = trio.run(main, clock=MockClock(autojump_threshold=0))
    return book, log, status


def check_seed(choices: Choices, mood: Mood, seed: int = 0) -> Book:
    """Carry out the plan that *choices* make, and check the laws."""
    book, log, status = carried_out(drawn(choices, mood), seed)
    check(book, log, status)
    return book


@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(choices=worlds())
def test_the_laws_hold_whatever_happens(choices: Choices) -> None:
    """
    Lines that drop, turns that end twice, late transcripts, withdrawn calls, slow, leaving and interrupting clients: in
    both dialects every call has one response, the log is what was said and heard, and nothing is left behind.
    """
    check_seed(choices, WILD)


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(choices=worlds())
def test_the_laws_hold_where_all_goes_well(choices: Choices) -> None:
    """The same where no line drops: no conversation fails."""
    book = check_seed(choices, CALM)
    assert book.failure is None


@pytest.mark.parametrize(
    ("first", "seeds"),
    [pytest.param(0, 150, id="some"), pytest.param(1_000, 20_000, id="many", marks=pytest.mark.slow)],
)
def test_seeds_find_nothing(first: int, seeds: int) -> None:
    """So many seeds of wild conversations break no law, and all that they are for happens in them."""
    reached: set[str] = set()
    for seed in range(first, first + seeds):
        try:
            book = check_seed(SeededChoices(seed), WILD, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        reached |= _reached(book)
        if seeds < 1_000 and reached >= REACHED:
            break
    assert reached >= REACHED, REACHED - reached


REACHED = {
    *("completed", "cancelled", "failed", "reconnected", "resumed", "history", "sent again", "cut off", "truncated"),
    *("withdrawn", "late transcript", "dropped audio", "unheard"),
}


def _reached(book: Book) -> set[str]:
    """What has happened in a conversation."""
    sent = book.model.sent
    found = {str(book.run.status)} if book.run is not None else set()
    found |= {"reconnected"} if len(book.lines) > 1 else set()
    found |= {"resumed"} if any(line.handle for line in book.lines) else set()
    found |= {"history" for each in sent if each.kind == "history"}
    found |= {"truncated" for each in sent if each.kind == "truncate"}
    ids = [each.id for each in sent if each.kind == "content" and each.id is not None]
    found |= {"sent again"} if len(ids) > len(set(ids)) else set()
    found |= {"withdrawn" for line in book.lines for response in line.received if response.cancelled_calls}
    for event in book.seen:
        live: Any = event.live or {}
        found |= {"cut off"} if event.interrupted else set()
        found |= {"late transcript"} if "before_seq" in live else set()
        found |= {"dropped audio"} if "dropped_audio_ms" in live else set()
        found |= {"unheard"} if event.custom_metadata and "unheard" in event.custom_metadata else set()
    return found


@pytest.mark.parametrize("seed", [3, 48, 110, 619])
def test_a_seed_is_the_same_conversation_again(seed: int) -> None:
    """The same choices, as a seed and as a list, make the same plan, and the same seed the same log."""
    choices = SeededChoices(seed)
    plan = drawn(choices)
    assert drawn(RecordedChoices(choices.picks)) == plan
    logs = [[_as_told(event) for event in carried_out(plan, seed)[1]] for _ in range(2)]
    assert logs[0] == logs[1]


def _as_told(event: Event) -> Any:
    calls, responses = event.get_function_calls(), event.get_function_responses()
    return event.author, event.text, event.interrupted, event.live, [*calls], [*responses]
