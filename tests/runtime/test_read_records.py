"""
What logic reads before, between and while its events are stored is what it reads when it is run again.

A property over all orders: somebody reads, others write meanwhile, events are begun and stored, and the process dies;
then the same is done again, with what the stored events say, as often as it takes.
"""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minirun import Event, EventActions
from minirun._json import dumps, freeze
from minirun.events import Replay
from minirun.flows._record import recorded_reads
from minirun.sessions._reads import Reads
from minirun.sessions._state import MISSING, REMOVED, Add, Write, apply_write

PATH = "run/agent"
KEYS = ("a", "b")


@attrs.define
class Place:
    """What is stored: the values, and the events of the logic; and what somebody was told that an event has carried."""

    values: dict[str, Any] = attrs.Factory(dict)
    events: list[Event] = attrs.Factory(list)
    told: dict[tuple[str, int], Any] = attrs.Factory(dict)

    def write(self, key: str, write: Write) -> None:
        if isinstance(write, Add) and type(self.values.get(key, 0)) is not int:
            write = 0  # it would be refused
        value = apply_write(key, self.values.get(key, MISSING), write)
        if value is MISSING:
            self.values.pop(key, None)
        else:
            self.values[key] = value


class Process:
    """A run of the logic: it comes to each of its deeds, and to what is recorded of them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reads = Reads(PATH, recorded_reads(place.events).get(PATH, {}))
        self._recorded = len(place.events)
        self._begun = 0
        self._read: dict[str, list[Any]] = {key: [] for key in KEYS}
        self._flight: tuple[dict[str, Any], dict[str, int], tuple[str, Write] | None] | None = None

    def read(self, key: str) -> None:
        found = self._reads.value(key, self._place.values.get(key, MISSING))
        number = len(self._read[key])
        if (key, number) in self._place.told:
            was = self._place.told[key, number]
            same = found is was or (MISSING not in (found, was) and dumps(found) == dumps(was))
            assert same, f"read {number} of {key} was {was}, and is {found} now"
        self._read[key].append(found)

    def begin(self, own: tuple[str, Write] | None) -> None:
        """Emit an event; what is read from here on goes with the next one."""
        self.end()
        self._begun += 1
        self._flight = ({}, {}, own)
        if self._begun > self._recorded:
            self._flight = (self._reads.unrecorded(), {key: len(read) for key, read in self._read.items()}, own)

    def end(self) -> None:
        """The event is stored, or was found to be, and the logic goes on."""
        if self._flight is None:
            return
        (carried, counts, own), self._flight = self._flight, None
        if self._begun > self._recorded:
            replay = Replay(reads=freeze({PATH: carried})) if carried else Replay()
            self._place.events.append(Event(author="agent", actions=EventActions(replay=replay)))
            if own is not None:
                self._place.write(*own)
            self._reads.settle(carried)
            for key, count in counts.items():
                self._place.told.update(((key, number), self._read[key][number]) for number in range(count))
        if own is not None:
            self._reads.written.update([own])


keys = st.sampled_from(KEYS)
writes = st.tuples(keys, st.one_of(st.sampled_from([0, 1, True, None]), st.just(REMOVED), st.just(Add(1))))
deeds = st.one_of(
    st.tuples(st.just("read"), keys),
    st.tuples(st.just("others write"), writes),
    st.tuples(st.just("begin"), st.one_of(st.none(), writes)),
    st.tuples(st.just("end"), st.none()),
)

READ, STORE = ("read", "a"), [("begin", None), ("end", None)]
WRITE: Any = ("others write", ("a", 1))


@given(st.lists(deeds, max_size=14), st.lists(st.integers(0, 14), min_size=1, max_size=3))
@example([READ, ("begin", None), WRITE, READ, ("end", None), *STORE], [7])
@example([READ, ("begin", None), READ, ("end", None), *STORE], [6])
@example([READ, ("begin", ("a", Add(1))), ("end", None), READ, *STORE], [6])
@example([("others write", ("a", 1)), READ, ("others write", ("a", True)), READ, *STORE], [6])
@example([("others write", ("a", None)), READ, *STORE], [4])
@settings(max_examples=100)
def test_a_read_that_an_event_has_carried_is_the_same_in_every_later_run(done: list[Any], deaths: list[int]) -> None:
    """Whatever others write, and wherever the process dies, what is recorded is what was read."""
    place = Place()
    for number, death in enumerate((*deaths, len(done), len(done))):
        process = Process(place)
        if number:  # others have written everything anew meanwhile
            place.values = dict.fromkeys(KEYS, 100 * number)
        for what, detail in done[:death]:
            if what == "read":
                process.read(detail)
            elif what == "others write":
                place.write(*detail)
            elif what == "begin":
                process.begin(detail)
            else:
                process.end()


def test_what_is_read_often_is_carried_once_for_each_value() -> None:
    """Of a thousand reads of one key, an event carries how many there were, and each value where it came to be so."""
    reads = Reads(PATH, {})
    for number in range(1000):
        reads.value("a", 1 if number < 600 else 2)
    reads.value("b", MISSING)
    carried = reads.unrecorded()
    assert carried == {"a": [1000, (0, 1), (600, 2)], "b": [1, (0,)]}
    reads.value("a", 2)
    reads.settle(carried)
    assert reads.unrecorded() == {"a": [1001]}
    reads.settle(reads.unrecorded())
    assert reads.unrecorded() == {}
