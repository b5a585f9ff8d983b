"""
The parts that a live session is made of, each alone: where events stand, what a rewind takes out, what is loaded of the
past, what a fork is given, and which sessions are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from minirun import Event, EventActions
from minirun.errors import InvalidEventError, InvocationEndedError, StateSchemaError, StorageError
from minirun.flows._state_schema import StateSchema
from minirun.sessions import GetSessionConfig, SessionKey
from minirun.sessions._calls import OpenCall
from minirun.sessions._compactions import Compaction, compaction_actions
from minirun.sessions._earlier import PAGE_EVENTS, load_earlier
from minirun.sessions._edits import edit_history
from minirun.sessions._kept import KeptSessions
from minirun.sessions._live import LiveSession, RunWindow, visible_tail
from minirun.sessions._shared_past import share_events
from minirun.sessions._state import MISSING, REMOVED, Add, State, Values
from minirun.sessions._state_schema import StateSchemas
from minirun.sessions._temp import keep_temp
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..stores import KEY

SUMMARY = Content(role="model", parts=[Part(text="short")])


def said(seq: int, *parts: Part, undoes: int | None = None, **fields: Any) -> Event:
    """The event at this place, at the second of its number."""
    actions = EventActions(rewind_before_seq=undoes)
    content = Content(parts=[*parts] or [Part(text=f"text {seq}")])
    return Event(id=f"id-{seq}", author="a", seq=seq, timestamp=float(seq), content=content, actions=actions, **fields)


def calling(seq: int, *names: str) -> Event:
    return said(seq, *(Part(function_call=FunctionCall(id=name, name="f")) for name in names), invocation_id="e")


def answering(seq: int, name: str) -> Event:
    return said(seq, Part(function_response=FunctionResponse(id=name, name="f", response={})), invocation_id="e")


def summing_up(seq: int, end_seq: int, previous: Compaction | None = None) -> Event:
    actions = compaction_actions(SUMMARY, end_seq=end_seq, previous=previous, speaker=None)
    return Event(id=f"id-{seq}", author="a", seq=seq, timestamp=float(seq), actions=actions)


def live_of(*events: Event, key: SessionKey = KEY) -> LiveSession:
    """A live session that was made, and then advanced by each of these; all of its events are loaded."""
    live = LiveSession(key, Values({}, {}, {}), incarnation=1, create_time=0.0)
    for event in events:
        live.advance(event, {}, live.call_changes(event, tracked=True))
    return live


def window_of(revision: int, key: SessionKey = KEY) -> LiveSession:
    """A live session of which no event is loaded."""
    return LiveSession(key, Values({}, {}, {}), incarnation=1, create_time=0.0, revision=revision)


def seqs(live: LiveSession) -> list[int | None]:
    return [event.seq for event in live.events]


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_place_is_found_also_where_events_were_undone() -> None:
    """The first event that is not before a place is the one there, or the next that is visible; beyond all the end."""
    whole = live_of(*map(said, range(1, 6)))
    assert [whole.index_of(seq) for seq in range(8)] == [0, 0, 1, 2, 3, 4, 5, 5]
    rewound = live_of(*map(said, range(1, 6)), said(6, undoes=3), said(7))
    assert seqs(rewound) == [1, 2, 6, 7]
    assert [rewound.index_of(seq) for seq in range(9)] == [0, 0, 1, 2, 2, 2, 2, 3, 4]


@pytest.mark.parametrize(
    ("config", "start"),
    [
        (None, 1),
        ({}, 1),
        ({"after_seq": 0}, 1),
        ({"after_seq": 3}, 4),
        ({"after_seq": 5}, 6),
        ({"after_seq": 99}, 6),
        ({"num_recent_events": 0}, 6),
        ({"num_recent_events": 2}, 4),
        ({"num_recent_events": 9}, 1),
        ({"num_recent_events": 4, "after_seq": 2}, 3),
        ({"num_recent_events": 1, "after_seq": 2}, 5),
        ({"after_timestamp": 3.0}, 3),
        ({"after_timestamp": 3.5}, 4),
        ({"after_timestamp": 9.0}, 6),
        ({"after_timestamp": 2.0, "num_recent_events": 2}, 4),
    ],
)
def test_a_window_begins_at_the_latest_of_what_is_asked_for(config: dict[str, Any] | None, start: int) -> None:
    """All of it applies together, and no window begins beyond the next event."""
    live = live_of(*map(said, range(1, 6)))
    asked = None if config is None else GetSessionConfig(**config)
    assert live.start_seq(asked) == live.run_start_seq(asked) == start
    assert [event.seq for event in live.window(start)] == [*range(start, 6)]


def test_what_a_run_needs_is_its_window_and_what_its_prompts_show() -> None:
    """Prompts begin after the summary in force, or with the first event if all is wanted; else the window decides."""
    asked = GetSessionConfig(num_recent_events=1)
    plain, summed = live_of(said(1)), live_of(said(1), said(2), summing_up(3, 1))
    for window in (None, asked):
        assert plain.wanted(window) == summed.wanted(window) == [window]
        assert plain.wanted(RunWindow(asked=window)) == [window]
    assert plain.wanted(RunWindow(whole=True)) == [None]
    assert plain.wanted(RunWindow(asked=asked, whole=True)) == [None, asked]
    [tail, also] = summed.wanted(RunWindow(asked=asked))
    assert (tail, also) == (GetSessionConfig(after_seq=1), asked)
    assert (plain.run_start_seq(None), summed.run_start_seq(None)) == (1, 2)
    assert (summed.run_start_seq(asked), summed.start_seq(None)) == (3, 1)


def test_a_part_of_a_log_is_read_from_its_end() -> None:
    """What a rewind has undone is passed over, in this part and in the next, until where the rewind reaches."""
    log = [said(1), said(2), said(3), said(4, undoes=2), said(5), said(6), said(7, undoes=6)]
    visible, until = visible_tail(reversed(log[3:]), 8)
    assert ([event.seq for event in visible], until) == ([4, 5, 7], 2)
    visible, until = visible_tail(reversed(log[:3]), until)
    assert ([event.seq for event in visible], until) == ([1], 1)
    assert visible_tail([], 5) == ([], 5)


# --- calls ------------------------------------------------------------------------------------------------------------


def test_no_call_is_made_twice_and_none_is_answered_that_is_not_open() -> None:
    """A call's id is new in its session, also after its answer; an answer is of the invocation that has asked."""
    live = live_of(calling(1, "c"), answering(2, "c"), calling(3, "d"))
    live.check_calls(calling(4, "e"), "e")
    live.check_calls(answering(4, "d"), "e")
    for call in ("c", "d"):
        with pytest.raises(InvalidEventError) as again:
            live.check_calls(calling(4, call), "e")
        assert str(again.value) == f"expected a new id for the call of 'f', found {call!r}, which the session has"
    for event, invocation in ((answering(4, "c"), "e"), (answering(4, "d"), "other"), (answering(4, "x"), "e")):
        with pytest.raises(InvalidEventError) as wrong:
            live.check_calls(event, invocation)
        found = event.get_function_responses()[0].id
        assert str(wrong.value) == f"expected the response of 'f' to answer an open call, found id {found!r}"


# --- rewinds and summaries --------------------------------------------------------------------------------------------


def test_a_rewind_takes_out_what_stands_from_its_target_on() -> None:
    """Events, ids of calls, what others have remembered of them; a list that was handed out stays as it was."""
    live = live_of(calling(1, "kept"), said(2), calling(3, "undone"))
    before, live.memo = live.events, {"prompt": 1}
    live.advance(said(4, undoes=2), {}, {})
    assert (seqs(live), [event.seq for event in before], live.first_seq) == ([1, 4], [1, 2, 3], 1)
    assert (live.call_ids, live.memo) == ({"kept"}, {})


def test_a_rewind_beyond_what_is_loaded_decides_all_that_is_above() -> None:
    """From its target on nothing has to be loaded any more."""
    live = window_of(5)
    live.prepend([said(4), said(5)], 4)
    edit_history(live, said(6, undoes=2))
    assert (seqs(live), live.first_seq) == ([], 2)
    live = window_of(5)
    live.prepend([said(4), said(5)], 4)
    edit_history(live, said(6, undoes=5))
    assert (seqs(live), live.first_seq) == ([4], 4)


def test_a_rewind_brings_back_the_summary_before_the_one_it_undoes() -> None:
    """One that stands before the target stays in force; one at it, or beyond, does not."""
    first = summing_up(2, 1)
    second = summing_up(4, 3, Compaction.of(first))
    log = (said(1), first, said(3), second, said(5))
    for target, seq in ((5, 4), (4, 2), (3, 2), (2, None), (1, None)):
        live = live_of(*log)
        assert live.compaction is not None
        assert live.compaction.seq == 4
        live.advance(said(6, undoes=target), {}, {})
        assert (None if live.compaction is None else live.compaction.seq) == seq, target


def test_a_rewind_puts_open_calls_in_the_order_of_the_log() -> None:
    """Whatever was open when; the order is that in which their events stand."""
    live = live_of(said(1), said(2))
    calls = [OpenCall(name, "f", seq, "e", "a", None) for name, seq in (("late", 2), ("early", 1))]
    live.open_calls = {call.call_id: call for call in calls}
    edit_history(live, said(3, undoes=3))
    assert list(live.open_calls) == ["early", "late"]


@pytest.mark.parametrize("mark", ["waits", "suspended"])
def test_a_rewind_takes_back_what_was_said_of_a_call_before_it(mark: str) -> None:
    """A call that was only marked in the undone part is open as it was before; one that is not touched stays marked."""
    marks: dict[str, Any] = {"long_running_tool_ids": ["one"]} if mark == "waits" else {}
    suspended = EventActions(suspended_calls=["one"] if mark == "suspended" else [])
    earlier = Event(id="m", author="a", seq=2, timestamp=2.0, invocation_id="e", long_running_tool_ids=["two"])
    later = Event(id="n", author="a", seq=3, timestamp=3.0, invocation_id="e", actions=suspended, **marks)
    live = live_of(calling(1, "one", "two"), earlier, later)
    assert [(call.pending, call.pending_seq) for call in live.open_calls.values()] == [(mark, 3), ("waits", 2)]
    undoes = said(4, undoes=3)
    live.advance(undoes, {}, live.call_changes(undoes, tracked=True))
    assert [(call.pending, call.pending_seq) for call in live.open_calls.values()] == [("", 0), ("waits", 2)]


# --- loading the past -------------------------------------------------------------------------------------------------


class Log:
    """What loads a session from a list of events, each of 10 bytes, and notes which pages were asked for."""

    def __init__(self, *events: Event, meanwhile: Callable[[LiveSession], object] = lambda live: None) -> None:
        self.events, self.meanwhile = events, meanwhile
        self.pages: list[tuple[int, int]] = []
        self.sizes: list[int] = []

    async def lines(self, live: LiveSession, first: int, until: int) -> Sequence[tuple[Event, int]] | None:
        self.pages.append((first, until))
        meanwhile, self.meanwhile = self.meanwhile, lambda live: None
        meanwhile(live)
        return [(event, 10) for event in self.events if first <= (event.seq or 0) < until]

    def grow(self, live: LiveSession, size: int) -> None:
        self.sizes.append(size)


class Deleted(Log):
    async def lines(self, live: LiveSession, first: int, until: int) -> None:
        """The session is not there any more."""


MANY = tuple(map(said, range(1, 2 * PAGE_EVENTS + 11)))


@pytest.mark.parametrize(
    ("config", "pages", "first"),
    [
        (None, [(261, 511), (11, 261), (1, 11)], 1),
        ({"num_recent_events": 0}, [], 511),
        ({"num_recent_events": 1}, [(510, 511)], 510),
        ({"num_recent_events": 251}, [(261, 511), (260, 261)], 260),
        ({"after_seq": 510}, [], 511),
        ({"after_seq": 500}, [(501, 511)], 501),
        ({"after_seq": 500, "num_recent_events": 3}, [(508, 511)], 508),
        ({"after_seq": 508, "num_recent_events": 9}, [(509, 511)], 509),
    ],
)
async def test_the_past_is_loaded_page_by_page_as_far_as_is_asked_for(
    config: dict[str, Any] | None, pages: list[tuple[int, int]], first: int
) -> None:
    """No page has more than 250 events, none more than are missing; what was loaded is counted once."""
    live, log = window_of(len(MANY)), Log(*MANY)
    asked = None if config is None else GetSessionConfig(**config)
    assert await load_earlier(log, live, asked)
    assert (log.pages, live.first_seq, seqs(live)) == (pages, first, [*range(first, 511)])
    assert log.sizes == ([10 * len(live.events)] if pages else [])
    assert await load_earlier(log, live, asked)
    assert log.pages == pages


async def test_events_that_were_undone_are_not_counted_as_recent() -> None:
    """The newest visible ones are loaded, however far they stand before the rewind."""
    log = Log(*map(said, range(1, 9)), said(9, undoes=4))
    live = window_of(9)
    assert await load_earlier(log, live, GetSessionConfig(num_recent_events=3))
    assert (seqs(live), live.first_seq) == ([2, 3, 9], 2)
    assert log.pages == [(7, 10), (2, 4)]


async def test_a_session_that_is_deleted_while_it_is_loaded_is_not_there() -> None:
    """Nothing is taken over of it."""
    live = window_of(9)
    assert not await load_earlier(Deleted(), live, None)
    assert (live.events, live.first_seq) == ([], 10)


async def test_what_another_task_has_loaded_meanwhile_is_there_once() -> None:
    """Of two that load the same part only the first counts; one that goes on further adds what is below."""

    def loads(first: int) -> Callable[[LiveSession], object]:
        return lambda live: live.prepend([event for event in MANY[:9] if (event.seq or 0) >= first], first)

    for first, sizes in ((1, []), (5, []), (6, [50])):
        live, log = window_of(9), Log(*MANY[:9], meanwhile=loads(first))
        assert await load_earlier(log, live, GetSessionConfig(num_recent_events=5))
        assert (seqs(live), live.first_seq) == ([*range(min(first, 5), 10)], min(first, 5))
        assert log.sizes == sizes


async def test_what_a_rewind_undoes_while_it_is_loaded_is_made_up_for() -> None:
    """Who has asked for three events has three, although the run that goes on has undone two of them."""
    log = Log(*map(said, range(1, 9)), meanwhile=lambda live: live.advance(said(9, undoes=7), {}, {}))
    live = window_of(8)
    assert await load_earlier(log, live, GetSessionConfig(num_recent_events=3))
    assert (seqs(live), live.first_seq) == ([5, 6, 9], 5)


# --- forks ------------------------------------------------------------------------------------------------------------

FORK = SessionKey("app", "u", "fork")


class Shelf:
    """A cache with sessions that can be opened."""

    def __init__(self, *lives: LiveSession, error: Exception | None = None) -> None:
        self.sessions: Any = OrderedDict((live.key, live) for live in lives)
        self.error = error
        self.grown: list[tuple[LiveSession, int]] = []
        self.opened: list[GetSessionConfig | None] = []

    async def open(self, key: SessionKey, config: GetSessionConfig | None) -> tuple[LiveSession, object] | None:
        self.opened.append(config)
        assert trio.current_effective_deadline() == float("inf"), "what was stored is opened whoever leaves"
        if self.error is not None:
            raise self.error
        live = self.sessions.get(key)
        return None if live is None else (live, None)

    def grow(self, live: LiveSession, size: int) -> None:
        self.grown.append((live, size))


async def test_a_fork_has_what_is_loaded_of_its_original() -> None:
    """The same events, from the same place on, and their size; its own list of them."""
    source, fork = live_of(said(1), said(2)), window_of(2, FORK)
    source.size, fork.size = 100, 30
    shelf = Shelf(source, fork)
    with trio.move_on_after(0):
        await share_events(shelf, KEY, FORK)
    assert (fork.events, fork.first_seq) == (source.events, source.first_seq)
    assert fork.events is not source.events
    assert (shelf.grown, shelf.opened) == ([(fork, 70)], [GetSessionConfig(num_recent_events=0)])


async def test_a_fork_is_given_nothing_that_is_not_its_own_past() -> None:
    """Not if its original went on, nor if it has events, nor if one of them is not there or cannot be read."""
    other, loaded, fork = window_of(2, FORK), window_of(2, FORK), window_of(2, FORK)
    other.mark = b"other"
    loaded.prepend([said(2)], 2)
    source = live_of(said(1), said(2))
    for shelf in (
        Shelf(source, other),
        Shelf(source, loaded),
        Shelf(fork),
        Shelf(source),
        Shelf(source, fork, error=StorageError("the cable")),
    ):
        await share_events(shelf, KEY, FORK)
        assert shelf.grown == []
    assert (seqs(other), seqs(loaded), seqs(fork)) == ([], [2], [])


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_sessions_that_were_used_last_are_kept_as_far_as_the_room_goes() -> None:
    """The one in use is always kept; each counts once, with what it has grown by, and nothing once it is dropped."""
    kept: KeptSessions[LiveSession] = KeptSessions(100)
    a, b, c = (window_of(0, SessionKey("app", "u", name)) for name in "abc")
    a.size, b.size, c.size = 40, 60, 1
    for live in (a, b, a):
        assert kept.keep(live) is live
    assert (list(kept.sessions.values()), kept.bytes) == ([b, a], 100)
    kept.keep(c)
    assert (list(kept.sessions.values()), kept.bytes) == ([a, c], 41)
    kept.grow(a, 100)
    kept.grow(b, 5)
    assert (a.size, b.size, kept.bytes) == (140, 65, 141)
    kept.keep(a)
    assert (list(kept.sessions.values()), kept.bytes) == ([a], 140)
    again = window_of(0, a.key)
    again.size = 7
    kept.keep(again)
    assert (list(kept.sessions.values()), kept.bytes) == ([again], 7)
    kept.drop(b.key)
    kept.drop(a.key)
    assert (list(kept.sessions), kept.bytes) == ([], 0)
    kept.keep(a)
    kept.clear()
    assert (list(kept.sessions), kept.bytes) == ([], 0)


# --- writes -----------------------------------------------------------------------------------------------------------


def test_what_lives_for_a_run_is_written_as_far_as_it_fits() -> None:
    """An operation that meets another kind of value meanwhile is passed over; what comes after it is written."""
    values = Values({}, {}, {})
    keep_temp(values, {"temp:a": "text", "temp:b": 1, "temp:c": 1})
    keep_temp(values, {"temp:a": Add(1), "temp:b": Add(2), "temp:c": REMOVED})
    assert [values.get(f"temp:{name}") for name in "abc"] == ["text", 3, MISSING]


def test_what_is_on_its_way_is_read_once() -> None:
    """Once the committed values have it, it is read from them; what lives for the run is read until it is committed."""
    values = Values({"n": 1}, {}, {})
    state = State(values)
    state["temp:a"] = "x"
    state.add("n", 2)
    del state["n"]
    state.add("n", 2)
    taken = state.take({})
    assert (dict(state), state.has_delta()) == ({"temp:a": "x", "n": 2}, False)
    values.apply({"n": 2})
    taken.applied()
    assert dict(state) == {"temp:a": "x", "n": 2}
    values.apply({"n": 5})
    assert state["n"] == 5
    taken.commit()
    assert dict(state) == {"n": 5}
    taken.rollback()
    assert dict(state) == {"n": 5}


def test_what_was_not_committed_is_pending_again_below_what_was_written_since() -> None:
    """In the order of the first writes; what came later lies on top, and what is added is added to it."""
    state = State(Values({"n": 1}, {}, {}))
    above = state.layer()
    for key in ("a", "b", "c"):
        state[key] = key
    above["b"] = "over"
    taken = above.take({"a": 1})
    assert (dict(taken.writes), list(state.pending()), list(above.pending())) == ({"b": "over", "a": 1}, ["c"], [])
    above.extend("list", [1])
    state["b"] = "since"
    taken.rollback()
    assert list(state.pending().items()) == [("a", "a"), ("b", "since"), ("c", "c")]
    assert (list(above.pending()), above["b"]) == (["b", "list"], "over")


def test_a_state_that_is_closed_says_why() -> None:
    """What was written before stays to be read; a layer above may be open still."""
    state = State(Values({}, {}, {}))
    layer = state.layer()
    state["a"] = 1
    assert state.closed == ""
    state.close("the run is over")
    assert (state.closed, layer.closed, dict(state)) == ("the run is over", "", {"a": 1})
    writes: list[Callable[[], object]] = [
        lambda: state.add("a"), lambda: state.extend("b", []), lambda: state.update(a=2), lambda: state.pop("a"),
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(InvocationEndedError) as caught:
            write()
        assert str(caught.value) == "the run is over"
    layer["b"] = 2
    assert dict(layer) == {"a": 1, "b": 2}


@attrs.frozen
class Outer:
    a: int = 0


@attrs.frozen
class Inner:
    b: int = 0


def test_a_key_that_one_of_two_schemas_knows_may_be_removed() -> None:
    """Also where it is not there; one that none knows may not, unless it is."""
    schemas = StateSchemas(StateSchema.of(Outer)).within(StateSchema.of(Inner))
    assert schemas.within(StateSchema.of(Inner)) is schemas
    schemas.check_event(Values({}, {}, {}), {"a": REMOVED, "b": REMOVED})
    schemas.check_event(Values({"c": 1}, {}, {}), {"c": REMOVED})
    with pytest.raises(StateSchemaError, match=r"expected a field of Outer or Inner \(a, b\), found none of them"):
        schemas.check_event(Values({}, {}, {}), {"c": REMOVED})
