"""
What is recorded for who goes on with an invocation: `EventActions.replay`, as a value and as the JSON of every version.
"""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given

from minirun import Event, EventActions
from minirun._codec import from_json, to_json
from minirun._json import DEPTH_MAX, freeze
from minirun._values import changed
from minirun.errors import InvalidValueError
from minirun.events import NO_REPLAY, RecordedFailure, RecordedStep, Replay, replay_of

from ..strategies import replays

STEP = RecordedStep(name="charge", path="run/shop!charge")
READS = {
    "run/shop": {"cart": [3, [0, ["pen"]], [1], [2, None]], "temp:events": [1, [0, 4]]},
    "run/shop*": {"temp:keys": [1, [0, ["a", "b"]]]},
}

# As minirun has written them before this was a value: as literals, for they stand in people's files.
NOTES: list[tuple[Replay, str]] = [
    (Replay(aside=True), '{"aside":true}'),
    (Replay(step=STEP), '{"step":{"name":"charge","path":"run/shop!charge"}}'),
    (
        Replay(step=STEP, failed=RecordedFailure(type="builtins:ValueError", args=["no", 3])),
        '{"step":{"name":"charge","path":"run/shop!charge"},"failed":{"type":"builtins:ValueError","args":["no",3]}}',
    ),
    (
        Replay(step=STEP, failed=RecordedFailure(type="shop:Refused", args=None), aside=True),
        '{"step":{"name":"charge","path":"run/shop!charge"},"failed":{"type":"shop:Refused","args":null},"aside":true}',
    ),
    (Replay(asked_by="run/shop"), '{"asked_by":"run/shop"}'),
    (
        Replay(asked_by="run/shop", early=True, was_paused=False, aside=True),
        '{"asked_by":"run/shop","early":true,"was_paused":false,"aside":true}',
    ),
    (Replay(asked_by="me", early=True, was_paused=True), '{"asked_by":"me","early":true,"was_paused":true}'),
    (Replay(at_work=True), '{"at_work":true}'),
    (Replay(at_work=True, alone=["c", "d"]), '{"at_work":true,"alone":["c","d"]}'),
    (Replay(asked=False), '{"asked":false}'),
    (Replay(again="- shorter, please"), '{"again":"- shorter, please"}'),
    (Replay(again=""), '{"again":""}'),
    (Replay(hides="e-1", aside=True), '{"hides":"e-1","aside":true}'),
    (Replay(hides=""), '{"hides":""}'),
    (Replay(aside=True, saves={"e-1": 0, "e-2": 7}), '{"aside":true,"saves":{"e-1":0,"e-2":7}}'),
    (
        Replay(step=STEP, aside=True, saves={"e": 1}, reads=READS),
        '{"step":{"name":"charge","path":"run/shop!charge"},"aside":true,"saves":{"e":1},"reads":{"run/shop":'
        '{"cart":[3,[0,["pen"]],[1],[2,null]],"temp:events":[1,[0,4]]},"run/shop*":{"temp:keys":[1,[0,["a","b"]]]}}}',
    ),
    (Replay(unknown_fields={"later": {"x": 1}}), '{"later":{"x":1}}'),
    (
        Replay(step=attrs.evolve(STEP, unknown_fields={"try": 2}), aside=True, unknown_fields={"unknown_fields": 1}),
        '{"step":{"name":"charge","path":"run/shop!charge","try":2},"aside":true,"unknown_fields":1}',
    ),
]


def line_of(notes: str) -> str:
    return f'{{"author":"a","actions":{{"replay":{notes}}}}}'


# --- the JSON ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replay", "notes"), NOTES, ids=[notes for _, notes in NOTES])
def test_what_is_recorded_is_stored_as_ever(replay: Replay, notes: str) -> None:
    """The JSON is that of the versions before, both ways, and a dict of its form says the same as the value."""
    event = Event(author="a", actions=EventActions(replay=replay))
    assert to_json(event) == line_of(notes)
    assert from_json(Event, line_of(notes)) == event
    assert EventActions(replay=json.loads(notes)).replay == replay_of(json.loads(notes)) == replay


def test_what_says_nothing_is_not_stored() -> None:
    """An event without notes has none in its JSON, whoever wrote it, and shares one empty value."""
    for line in ('{"author":"a"}', line_of("{}"), line_of('{"reads":{},"saves":{},"aside":null}')):
        event = from_json(Event, line)
        assert event.actions.replay.is_empty
        assert to_json(event) == '{"author":"a"}'
    assert EventActions().replay is NO_REPLAY
    assert EventActions(replay={}).replay == NO_REPLAY
    assert not Replay(aside=False).is_empty
    no = Event(author="a", actions=EventActions(replay=Replay(aside=False)))
    assert to_json(no) == line_of('{"aside":false}')


@given(replays)
def test_a_replay_comes_back_from_its_json(replay: Replay) -> None:
    """Equal, and written as the same bytes; also by who copies or pickles it in between."""
    event = Event(actions=EventActions(replay=replay))
    line = to_json(event)
    assert from_json(Event, line) == event
    for same in (from_json(Event, line), copy.deepcopy(event), pickle.loads(pickle.dumps(event)), changed(event)):
        assert to_json(same) == line
    assert replay.is_empty == (line == "{}")


def read(notes: str) -> Replay:
    return from_json(Event, line_of(notes)).actions.replay


@pytest.mark.parametrize(
    "notes",
    [
        '{"aside":"yes"}',
        '{"aside":1,"asked_by":"me","step":7}',
        '{"step":{}}',
        '{"step":{"name":"a"}}',
        '{"step":{"name":"a","path":null},"asked":false}',
        '{"failed":{"type":"a:B"}}',
        '{"failed":{"type":"a:B","args":{"0":1}}}',
        '{"asked_by":["me"],"early":0,"was_paused":"","again":false,"asked":"no"}',
        '{"saves":[],"reads":null}',
        '{"saves":{"a":true}}',
        '{"saves":{"a":1.5}}',
        '{"reads":{"r":5}}',
        '{"reads":{"r":{"k":[]}}}',
        '{"reads":{"r":{"k":["1"]}}}',
        '{"reads":{"r":{"k":[true]}}}',
        '{"reads":{"r":{"k":[1,0]}}}',
        '{"reads":{"r":{"k":[1,[]]}}}',
        '{"reads":{"r":{"k":[1,["0"]]}}}',
        '{"reads":{"r":{"k":[1,[0,1,2]]}}}',
        "[]",
        "null",
        '{"aside":NaN}',
    ],
)
def test_notes_of_another_form_are_refused(notes: str) -> None:
    """An event whose replay notes have another form cannot be read; the error contains the path."""
    with pytest.raises(InvalidValueError, match=r"^(Replay|EventActions\.replay|RecordedStep|RecordedFailure)"):
        read(notes)


def test_notes_of_a_later_version_are_kept() -> None:
    """Notes with names that this version does not have are unknown fields, written back as they were."""
    line = line_of('{"later":1}')
    assert read('{"later":1}').unknown_fields == {"later": 1}
    assert json.loads(to_json(from_json(Event, line))) == json.loads(line)


def test_a_value_may_be_as_deep_where_it_was_read_as_in_the_state() -> None:
    """Whatever the state can hold can be recorded as read: else an event could be written, and not read."""
    deepest: Any = 0
    for _ in range(DEPTH_MAX - 1):
        deepest = [deepest]
    state = EventActions(state_delta={"k": deepest})
    line = to_json(Event(actions=EventActions(replay={"reads": {"r": {"k": [1, [0, state.state_delta["k"]]]}}})))
    assert to_json(from_json(Event, line)) == line
    with pytest.raises(InvalidValueError, match="nested deeper than 100"):
        Replay(reads={"r": {"k": [1, [0, [deepest]]]}})


# --- the value --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ([], r"EventActions\.replay"),
        (None, r"EventActions\.replay"),
        ("aside", r"EventActions\.replay"),
        ({"aside": 1}, r"Replay\.aside"),
        ({"asked": "no"}, r"Replay\.asked"),
        ({"early": "yes"}, r"Replay\.early"),
        ({"was_paused": 0}, r"Replay\.was_paused"),
        ({"asked_by": 1}, r"Replay\.asked_by"),
        ({"again": ["x"]}, r"Replay\.again"),
        ({"step": "charge"}, r"Replay\.step"),
        ({"step": {"name": "a"}}, r"Replay\.step"),
        ({"step": {"name": 1, "path": "a"}}, r"RecordedStep\.name"),
        ({"failed": {"args": []}}, r"Replay\.failed"),
        ({"failed": {"type": "a:B", "args": "x"}}, r"RecordedFailure\.args"),
        ({"saves": {"a": "1"}}, r"Replay\.saves"),
        ({"reads": [1]}, r"Replay\.reads"),
        ({"reads": {"r": [1]}}, r"Replay\.reads"),
        ({"reads": {"r": {"k": [1, 2]}}}, r"Replay\.reads"),
        ({"reads": {"r": {"k": [1, [0, {1}]]}}}, r"Replay\.reads\['r'\]\['k'\]\[1\]\[1\]"),
        ({"later": {1}}, r"Replay\.unknown_fields\['later'\]"),
        ({1: 2}, r"Replay\.unknown_fields"),
    ],
)
def test_what_is_no_replay_is_refused_with_its_path(given: Any, path: str) -> None:
    """Whoever makes actions with notes of another form is told which one is wrong."""
    with pytest.raises(InvalidValueError, match=f"^{path}: expected"):
        EventActions(replay=given)
    with pytest.raises(InvalidValueError, match=f"^{path}: expected"):
        attrs.evolve(EventActions(escalate=True), replay=given)


def test_a_replay_is_frozen_all_the_way_down() -> None:
    """Reads and saves are frozen as all JSON is, and nothing is shared with what they were made from."""
    reads: dict[str, Any] = {"r": {"k": [1, (0, ["a"])]}}
    replay = EventActions(replay={"reads": reads, "saves": {"a": 1}}).replay
    reads["r"]["k"][1][1].append("b")
    assert replay.reads == {"r": {"k": [1, [0, ["a"]]]}}
    with pytest.raises(TypeError, match="cannot change"):
        replay.reads["r"]["k"].append(1)
    with pytest.raises(TypeError, match="cannot change"):
        replay.saves.update(a=2)  # type: ignore[attr-defined]
    assert freeze(replay.saves) is replay.saves


def test_actions_are_shown_without_an_empty_replay() -> None:
    """As without all that was not given; what is recorded is shown."""
    assert repr(EventActions(escalate=True)) == "EventActions(escalate=True)"
    assert repr(EventActions(replay=Replay(aside=True))) == "EventActions(replay=Replay(aside=True))"
