"""
Pending writes in layers, events that take them, and stores that refuse: a property over all orders of these.

The model is the obvious one: each layer is a list of writes in the order in which they were made. What is seen is their
fold, bottom layer first; what an event takes leaves the lists when it is stored, and never was gone when it is not.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minirun._json import FrozenList, freeze
from minirun.sessions._state import MISSING, REMOVED, Add, Extend, State, TakenWrites, Values, Write, apply_write

LAYERS = 3
NUMBERS, LISTS = ("n", "user:n"), ("l",)
KEYS = (*NUMBERS, *LISTS)

Entry: TypeAlias = tuple[str, Write]


@attrs.define
class Flight:
    """An event on its way: what it takes of which layer, in order, and its own writes."""

    taken: TakenWrites
    entries: list[tuple[int, Entry]]
    own: list[Entry]


class Model:
    """The layers as plain lists, and what is committed."""

    def __init__(self) -> None:
        self.committed: dict[str, Any] = {}
        self.layers: list[list[Entry]] = [[] for _ in range(LAYERS)]
        self.flying: list[int] = []  # the identities of entries that an event has taken

    def seen(self, layer: int) -> dict[str, Any]:
        found = dict(self.committed)
        for entries in self.layers[: layer + 1]:
            _fold(found, entries)
        return found

    def take(self, layer: int, own: list[Entry]) -> list[tuple[int, Entry]]:
        mine = [entry for entry in self.layers[layer] if id(entry) not in self.flying]
        keys = {key for key, _ in (*mine, *own)}
        taken = [
            (place, entry)
            for place in range(layer + 1)
            for entry in self.layers[place]
            if entry[0] in keys and id(entry) not in self.flying
        ]
        self.flying.extend(id(entry) for _, entry in taken)
        return taken

    def land(self, flight: Flight, *, is_stored: bool) -> None:
        for place, entry in flight.entries:
            self.flying.remove(id(entry))
            if is_stored:
                self.layers[place] = [other for other in self.layers[place] if other is not entry]
        if is_stored:
            _fold(self.committed, [entry for _, entry in flight.entries] + flight.own)


def _fold(values: dict[str, Any], entries: list[Entry]) -> None:
    for key, write in entries:
        value = apply_write(key, values.get(key, MISSING), write)
        if value is MISSING:
            values.pop(key, None)
        else:
            values[key] = value


def _write(state: State, key: str, write: Write) -> None:
    if write is REMOVED:
        del state[key]
    elif isinstance(write, Add):
        state.add(key, write.amount)
    elif isinstance(write, Extend):
        state.extend(key, list(write.items))
    else:
        state[key] = write


numbers = st.integers(-2, 2)
items = st.lists(numbers, max_size=2).map(freeze)
numeric = st.one_of(numbers, st.just(REMOVED), numbers.map(Add))
listed = st.one_of(items, items.map(lambda found: Extend(FrozenList(found))))
entries = st.one_of(st.tuples(st.sampled_from(NUMBERS), numeric), st.tuples(st.sampled_from(LISTS), listed))
layers = st.integers(0, LAYERS - 1)
deeds = st.one_of(
    st.tuples(st.just("write"), layers, entries),
    st.tuples(st.just("emit"), layers, st.lists(entries, max_size=2, unique_by=lambda entry: entry[0])),
    st.tuples(st.just("land"), st.integers(0, 3), st.booleans()),
)

ADDED = ("write", 0, ("n", Add(1)))


@given(st.lists(deeds, max_size=14))
@example([ADDED, ("emit", 0, []), ADDED, ("land", 0, False)])
@example([("write", 0, ("n", 1)), ("emit", 0, []), ("write", 0, ("n", 2)), ("land", 0, False)])
@example([ADDED, ("emit", 0, []), ADDED, ("emit", 0, []), ("land", 0, True), ("land", 0, False)])
@example([("write", 0, ("n", 1)), ("emit", 2, [("n", 2)]), ("land", 0, True)])
@settings(max_examples=100)
def test_no_write_is_lost_or_done_twice_whatever_the_store_says(done: list[Any]) -> None:
    """Every layer sees the fold of all writes in their order, before, while and after events carry some of them."""
    values, model = Values({}, {}, {}), Model()
    states = [State(values)]
    while len(states) < LAYERS:
        states.append(states[-1].layer())
    flights: list[Flight] = []
    for what, where, detail in done:
        if what == "write":
            key, write = detail
            if write is REMOVED and key not in states[where]:
                continue
            entry = (key, write)
            model.layers[where].append(entry)
            _write(states[where], key, write)
        elif what == "emit":
            own = [(key, write) for key, write in detail]
            taken = states[where].take(dict(own))
            flights.append(Flight(taken, model.take(where, own), own))
        elif flights:
            flight = flights.pop(where % len(flights))
            model.land(flight, is_stored=detail)
            if detail:
                written = {key: apply_write(key, values.get(key), write) for key, write in flight.taken.writes.items()}
                flight.taken.commit()
                values.apply(written)
            else:
                flight.taken.rollback()
        for place, state in enumerate(states):
            expected = model.seen(place)
            assert {key: state[key] for key in KEYS if key in state} == expected
            assert {*state} == {*expected}
