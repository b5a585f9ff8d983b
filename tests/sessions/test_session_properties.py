"""
Laws of values, state and sessions, checked on random examples (promises P4 and P8).

The largest one runs random operations on both services at once, the SQLite one through two service objects that take
turns as two processes would, and compares every outcome with a model that knows nothing but `apply_event`: a session is
its log, a state is a fold.
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest
import trio
import trio.testing
from hypothesis import event as note
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minirun import Event, EventActions, InMemorySessionService
from minirun._codec import from_json, to_dict, to_json
from minirun._json import FrozenDict, FrozenList, dumps, freeze, loads, thaw
from minirun._values import changed
from minirun._window import Window
from minirun.errors import (
    AlreadyExistsError,
    InvalidEventError,
    InvalidValueError,
    MinirunError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
)
from minirun.sessions import (
    BaseSessionService,
    GetSessionConfig,
    InvocationStatus,
    ReadOnlyState,
    Session,
    SessionKey,
    SqliteSessionService,
    State,
)
from minirun.sessions._fold import apply_event, fold
from minirun.sessions._state import (
    MISSING,
    REMOVED,
    Add,
    Extend,
    Scope,
    TakenWrites,
    Values,
    Write,
    apply_write,
    merge_writes,
    scope_of,
    with_writes,
    writes_of,
)

from .. import strategies
from ..examples import examples
from ..postgres import new_database
from ..postgres_sessions import check_database, empty
from ..stores import Elsewhere, ElsewhereInPostgres

# --- JSON -------------------------------------------------------------------------------------------------------------

# How a value may look before it is frozen, and what it is then.
LOOSE: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda value: value,
    "tuples": lambda value: tuple(value) if isinstance(value, list) else value,
    "text of its own": lambda value: type("Text", (str,), {})(value) if isinstance(value, str) else value,
    "number of its own": lambda value: type("Real", (float,), {})(value) if isinstance(value, float) else value,
}


def loosened(value: Any, how: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {how(key): loosened(item, how) for key, item in value.items()}
    if isinstance(value, list):
        return how([loosened(item, how) for item in value])
    return how(value)


def types_in(value: Any) -> set[type]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {type(value)}.union(*(types_in(item) | types_in(key) for key, item in inside))


@given(strategies.json_values, st.sampled_from(sorted(LOOSE)))
def test_what_is_frozen_reads_back_as_it_is(value: Any, how: str) -> None:
    """Freezing keeps the value, makes every part of it plain, and survives a round trip through JSON."""
    frozen = freeze(loosened(value, LOOSE[how]))
    assert frozen == value
    assert types_in(frozen) <= {type(None), bool, int, float, str, FrozenList, FrozenDict}
    line = dumps(frozen)
    assert freeze(loads(line)) == frozen
    assert dumps(freeze(loads(line))) == line == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert repr(thaw(frozen)) == repr(value)
    assert freeze(frozen) is frozen or not isinstance(frozen, (list, dict))


@given(strategies.json_values, st.data())
def test_the_path_of_an_error_leads_to_the_value(value: Any, data: st.DataObject) -> None:
    """Wherever a value that is no JSON is put, the error's path, evaluated, finds it."""
    bad = data.draw(st.sampled_from([math.nan, b"x", {1}, "\udc00", object()]))
    root: Any = [value]
    at: Any = root
    key: Any = 0
    while isinstance(at[key], (list, dict)) and at[key] and data.draw(st.booleans()):
        at = at[key]
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
    at[key] = bad
    with pytest.raises(InvalidValueError) as caught:
        freeze(root, "root")
    assert eval(caught.value.path, {"root": root}) is bad


@given(strategies.events)
def test_an_event_reads_back_as_it_was(event: Event) -> None:
    """Writing and reading an event gives an equal event and the same line, whatever is in it."""
    line = to_json(event)
    read = from_json(Event, line)
    assert read == event
    assert to_json(read) == line
    assert repr(changed(read, long_running_tool_ids=None)) == repr(changed(event, long_running_tool_ids=None))
    assert "\n" not in line


def objects_in(fields: Any, kinds: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The objects in an event's JSON that stand for one of our classes, the event itself included."""
    if isinstance(fields, dict):
        yield fields
        for name, inside in fields.items():
            if name in kinds:
                for one in inside if isinstance(inside, list) else [inside]:
                    yield from objects_in(one, kinds)


NESTED = frozenset(
    {
        "actions",
        "code_execution_result",
        "content",
        "executable_code",
        "file_data",
        "function_call",
        "function_response",
        "inline_data",
        "node_info",
        "parts",
        "usage_metadata",
    }
)


@given(strategies.events, strategies.json_values, st.data())
def test_a_later_versions_fields_survive_anywhere(event: Event, value: Any, data: st.DataObject) -> None:
    """A field that this version does not know, put at any level, comes back at the same place."""
    fields: dict[str, Any] = json.loads(to_json(event))
    place = data.draw(st.sampled_from(list(objects_in(fields, NESTED))))
    place["new_field"] = value
    read = from_json(Event, json.dumps(fields))
    assert json.loads(dumps(to_dict(read))) == fields


# --- writes and layers ------------------------------------------------------------------------------------------------

VALUES = st.one_of(st.none(), st.integers(-2, 2), st.just("text"), st.lists(st.integers(0, 2), max_size=2))
WRITES: st.SearchStrategy[Write] = st.one_of(
    st.just(REMOVED),
    st.builds(Add, st.integers(-2, 2)),
    st.builds(lambda items: Extend(freeze(items)), st.lists(st.integers(0, 2), max_size=2)),
    VALUES.map(freeze),
)


def outcome(compute: Callable[[], Any]) -> Any:
    """What it returns, or the type of the error."""
    try:
        return compute()
    except InvalidValueError:
        return InvalidValueError


@given(st.one_of(st.just(MISSING), VALUES.map(freeze)), WRITES, WRITES)
def test_merging_two_writes_is_doing_one_after_the_other(current: Any, below: Write, above: Write) -> None:
    """Where both writes can be done in turn, their merger gives the same; where merging fails, so does doing them."""
    in_turn = outcome(lambda: apply_write("k", apply_write("k", current, below), above))
    merged = outcome(lambda: apply_write("k", current, merge_writes("k", below, above)))
    overwrites = type(above) not in (Add, Extend)  # then it does not matter whether the first could be done
    assert merged == in_turn or (overwrites and in_turn is InvalidValueError)


KEYS = st.sampled_from(["n", "l", "user:n", "app:l", "temp:x"])


@given(st.dictionaries(KEYS, WRITES))
def test_writes_survive_the_way_through_an_event(writes: dict[str, Write]) -> None:
    """What an event's actions say is what was written, also after a round trip through JSON."""
    event = from_json(Event, to_json(Event(author="a", actions=with_writes(EventActions(), writes))))
    assert writes_of(event.actions) == writes


Step: TypeAlias = tuple[str, str, Any]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS, st.none()),
    st.tuples(st.just("add"), KEYS, st.integers(-2, 2)),
    st.tuples(st.just("extend"), KEYS, st.lists(st.integers(0, 2), max_size=2)),
    st.tuples(st.sampled_from(["push", "merge", "commit"]), st.just(""), st.none()),
)


def do_on_dict(values: dict[str, Any], action: str, key: str, value: Any) -> None:
    """What a step does, in plain Python."""
    if action == "set":
        values[key] = value
    elif action == "delete":
        del values[key]
    elif action == "add":
        if isinstance(values.get(key, 0), bool) or not isinstance(values.get(key, 0), int):
            raise TypeError
        values[key] = values.get(key, 0) + value
    else:
        if not isinstance(values.get(key, []), list):
            raise TypeError
        values[key] = values.get(key, []) + value


def do_on_state(state: State, action: str, key: str, value: Any) -> None:
    if action == "set":
        state[key] = value
    elif action == "delete":
        del state[key]
    else:
        getattr(state, action)(key, value)


@given(st.dictionaries(KEYS.filter(lambda key: not key.startswith("temp:")), VALUES), st.lists(STEPS, max_size=25))
def test_layers_of_state_behave_like_copied_dicts(initial: dict[str, Any], steps: list[Step]) -> None:
    """Layers that are pushed, written, merged and committed show what copies of a dict would."""
    committed = fold(Values({}, {}, {}), [Event(state=initial)])
    layers = [State(committed)]
    copies = [dict(initial)]
    for action, key, value in steps:
        if action == "push":
            layers.append(layers[-1].layer())
            copies.append(dict(copies[-1]))
        elif action == "merge" and len(layers) > 1:
            layers[-2].merge(layers.pop().pending())
            copies[-2:] = [copies[-1]]
        elif action == "commit" and len(layers) == 1:
            carried = layers[0].pending()
            fold(committed, [Event(actions=with_writes(EventActions(), carried))])
            layers[0].settle(carried)
            assert layers[0].pending() == {}
        elif key:
            expected = found = None
            try:
                do_on_dict(copies[-1], action, key, value)
            except (TypeError, KeyError) as error:
                expected = type(error)
            try:
                do_on_state(layers[-1], action, key, value)
            except (InvalidValueError, KeyError) as error:
                found = TypeError if isinstance(error, InvalidValueError) else KeyError
            assert found == expected
        for layer, copy in zip(layers, copies, strict=True):
            assert dict(layer) == copy
            assert set(layer) == set(copy)
            assert len(layer) == len(copy)


FLIGHT_STEPS = st.one_of(STEPS, STEPS, st.tuples(st.sampled_from(["take", "land", "back"]), st.just(""), st.none()))


@given(st.lists(FLIGHT_STEPS, max_size=30))
def test_writes_on_their_way_to_the_store_count_once(steps: list[Step]) -> None:
    """However events take writes, and are stored or fail meanwhile, each write is seen, and stored, exactly once."""
    committed = Values({}, {}, {})
    lower = State(committed)
    state = lower.layer()
    copy: dict[str, Any] = {}
    flights: list[TakenWrites] = []

    def land() -> None:
        flight = flights.pop(0)  # the store has one order
        fold(committed, [Event(actions=with_writes(EventActions(), flight.writes))])
        flight.commit()

    for action, key, value in steps:
        if action == "take":
            flights.append(state.take({}))
        elif action == "land" and flights:
            land()
        elif action == "back" and len(flights) == 1:
            flights.pop().rollback()
        elif action == "merge" and not flights:  # a tool has ended when its layer is merged
            lower.merge(state.pending())
            state.settle(state.pending())
        elif key:
            # an operation on the result of another kind of write that is on its way is refused, or does the same
            before = dict(copy)
            try:
                do_on_dict(copy, action, key, value)
                do_on_state(state, action, key, value)
            except (InvalidValueError, TypeError, KeyError):
                copy = before
        assert dict(state) == copy
        assert set(state) == set(copy)
    flights.append(state.take({}))
    while flights:
        land()
    flights.append(lower.take({}))
    land()
    assert dict(State(committed)) == copy
    assert state.pending() == lower.pending() == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_windows_over_one_list_behave_like_lists(steps: list[tuple[int, int]]) -> None:
    """However the holders of one shared list append, each sees its own items and no other's."""
    shared: list[object] = [object(), object()]
    windows = [Window(shared), Window(shared, 1), Window(shared, 0, 1), Window(shared, 2)]
    copies = [list(window) for window in windows]
    items: list[object] = [object() for _ in range(3)]
    for who, what in steps:
        item = items[what]
        windows[who].push(item)
        copies[who].append(item)
        for window, copy in zip(windows, copies, strict=True):
            assert list(window) == copy
            assert len(window) == len(copy)
            assert window[-1:] == copy[-1:]


# --- the model of a session store -------------------------------------------------------------------------------------


def only(scope: Scope, event: Event) -> Event:
    """The event with what it changes in one scope."""
    writes = {key: write for key, write in writes_of(event.actions).items() if scope_of(key) is scope}
    return Event(actions=with_writes(EventActions(), writes))


@attrs.define
class ModelSession:
    """A session is its log, the creation record first; nothing else is kept."""

    key: SessionKey
    incarnation: int
    log: list[Event]

    @property
    def revision(self) -> int:
        return len(self.log) - 1


@attrs.define
class ModelHandle:
    """What somebody holds who has read a session."""

    key: SessionKey
    incarnation: int
    revision: int
    state: dict[str, Any]
    events: list[Event]
    last: Event | None = None


@attrs.define
class Model:
    """Logs, and for the shared scopes everything that was ever committed, in order."""

    sessions: dict[SessionKey, ModelSession] = attrs.Factory(dict)
    commits: list[tuple[SessionKey, Event]] = attrs.Factory(list)
    incarnations: Iterator[int] = attrs.Factory(lambda: itertools.count(1))

    def values(self, key: SessionKey) -> Values:
        """The fold, from the beginning of time."""
        log = self.sessions[key].log if key in self.sessions else []
        in_app = [(k, event) for k, event in self.commits if k.app_name == key.app_name]
        return Values(
            fold(Values({}, {}, {}), [only(Scope.SESSION, event) for event in log]).session,
            fold(Values({}, {}, {}), [only(Scope.USER, e) for k, e in in_app if k.user_id == key.user_id]).user,
            fold(Values({}, {}, {}), [only(Scope.APP, event) for _, event in in_app]).app,
        )

    def state(self, key: SessionKey) -> dict[str, Any]:
        return dict(ReadOnlyState(self.values(key)))

    def create(self, key: SessionKey, record: Event) -> ModelHandle:
        if key in self.sessions:
            raise AlreadyExistsError
        self.sessions[key] = ModelSession(key, next(self.incarnations), [record])
        self.commits.append((key, record))
        return self.handle(key)

    def handle(self, key: SessionKey, config: GetSessionConfig | None = None) -> ModelHandle:
        session = self.sessions[key]
        events = session.log[1:]
        if config is not None:
            events = events[config.after_seq or 0 :]
            if config.num_recent_events is not None:
                events = events[max(0, len(events) - config.num_recent_events) :]
        return ModelHandle(key, session.incarnation, session.revision, self.state(key), events)

    def append(self, handle: ModelHandle, event: Event) -> Event:
        session = self.sessions.get(handle.key)
        if session is None:
            raise SessionNotFoundError
        if session.incarnation != handle.incarnation:
            raise StaleSessionError
        for seq in (handle.revision, handle.revision + 1):
            if 0 < seq <= session.revision and session.log[seq].id == event.id:
                if changed(session.log[seq], seq=None) != event:
                    raise InvalidEventError
                if seq > handle.revision:
                    self._advance(handle, session.log[seq])
                return session.log[seq]
        if handle.revision != session.revision:
            raise StaleSessionError
        stored = self.commit(handle.key, event)
        self._advance(handle, stored)
        return stored

    def commit(self, key: SessionKey, event: Event) -> Event:
        session = self.sessions[key]
        apply_event(self.values(key), event)  # does it fit?
        stored = changed(event, seq=session.revision + 1)
        session.log.append(stored)
        self.commits.append((key, stored))
        return stored

    def _advance(self, handle: ModelHandle, stored: Event) -> None:
        """The session's own keys by the fold, shared ones as they are now."""
        before = Values({k: v for k, v in handle.state.items() if scope_of(k) is Scope.SESSION}, {}, {})
        changes: dict[str, Any] = dict(apply_event(before, only(Scope.SESSION, stored)))
        now = self.values(handle.key)
        changes |= {key: now.get(key) for key in writes_of(stored.actions) if scope_of(key) is not Scope.SESSION}
        for key, value in changes.items():
            if value is MISSING:
                handle.state.pop(key, None)
            else:
                handle.state[key] = value
        handle.revision += 1
        handle.events = [*handle.events, stored]


# --- random operations ------------------------------------------------------------------------------------------------


@attrs.frozen
class Create:
    key: SessionKey
    state: dict[str, Any]


@attrs.frozen
class Get:
    key: SessionKey
    config: GetSessionConfig | None


@attrs.frozen
class Append:
    handle: int
    actions: EventActions
    id: str


@attrs.frozen
class Retry:
    handle: int


@attrs.frozen
class Run:
    key: SessionKey
    actions: list[EventActions]


@attrs.frozen
class Delete:
    key: SessionKey


@attrs.frozen
class Remake:
    key: SessionKey
    state: dict[str, Any]


@attrs.frozen
class Read:
    key: SessionKey
    after_seq: int | None
    limit: int | None


@attrs.frozen
class Page:
    app_name: str | None
    user_id: str | None
    limit: int


@attrs.frozen
class Reopen:
    pass


def _mostly(common: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(common, common, common, rare)


FIRST_SESSIONS = (SessionKey("a", "u", "1"), SessionKey("a", "u", "2"))
SESSION_KEYS = _mostly(
    st.sampled_from(FIRST_SESSIONS),
    st.builds(SessionKey, st.sampled_from(["a", "b"]), st.sampled_from(["u", "v"]), st.sampled_from(["1", "2"])),
)
NUMBERS = ["n", "user:n", "app:n"]
LISTS = ["l", "user:l", "app:l"]
STORED_KEYS = st.sampled_from(NUMBERS + LISTS)
STORED_VALUES = st.one_of(VALUES, st.just({"a": [1]}), st.just(0.5))
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(NUMBERS), st.builds(lambda n: {"add": n}, st.integers(-2, 2))),
    st.tuples(st.sampled_from(LISTS), st.builds(lambda items: {"extend": items}, st.lists(VALUES, max_size=2))),
)


@st.composite
def some_actions(draw: st.DrawFn) -> EventActions:
    """State changes that name each key once; operations mostly fit what they find."""
    operations = dict(draw(st.lists(OPERATIONS, max_size=2)))
    delta = draw(st.dictionaries(STORED_KEYS, STORED_VALUES, max_size=2))
    removed = draw(_mostly(st.just([]), st.lists(STORED_KEYS, max_size=2, unique=True)))
    delta = {key: value for key, value in delta.items() if key not in operations}
    removed = [key for key in removed if key not in operations and key not in delta]
    return EventActions(state_delta=delta, state_removed=removed, state_ops=operations)


WINDOWS = st.one_of(
    st.none(),
    st.builds(GetSessionConfig, num_recent_events=st.integers(0, 3)),
    st.builds(GetSessionConfig, after_seq=st.integers(0, 4)),
    st.builds(GetSessionConfig, num_recent_events=st.integers(0, 3), after_seq=st.integers(0, 4)),
)
HANDLES = st.integers(0, 5)
Operation: TypeAlias = Create | Get | Append | Retry | Run | Delete | Remake | Read | Page | Reopen
OPERATION: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, SESSION_KEYS, st.dictionaries(STORED_KEYS, STORED_VALUES, max_size=2)),
    st.builds(Append, HANDLES, some_actions(), st.uuids(version=4).map(str)),
    st.builds(Append, HANDLES, some_actions(), _mostly(st.uuids(version=4).map(str), st.just("again"))),
    st.builds(Append, HANDLES, some_actions(), st.uuids(version=4).map(str)),
    st.builds(Get, SESSION_KEYS, WINDOWS),
    st.builds(Retry, HANDLES),
    st.builds(Run, SESSION_KEYS, st.lists(some_actions(), min_size=1, max_size=2)),
    st.builds(Delete, SESSION_KEYS),
    st.builds(Remake, SESSION_KEYS, st.dictionaries(STORED_KEYS, STORED_VALUES, max_size=1)),
    st.builds(Read, SESSION_KEYS, st.none() | st.integers(-2, 3), st.none() | st.integers(1, 3)),
    st.builds(Page, st.sampled_from([None, "a", "b"]), st.sampled_from([None, "u", "v"]), st.integers(1, 2)),
    st.builds(Reopen),
)


# --- the services beside the model ------------------------------------------------------------------------------------


@attrs.define
class Store:
    """One implementation, through one service object or two that take turns."""

    services: list[BaseSessionService]
    handles: list[Session] = attrs.Factory(list)

    def at(self, turn: int) -> BaseSessionService:
        return self.services[turn % len(self.services)]


async def result_of(act: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
    """What it returns, or the type of the error it raises."""
    try:
        return await act(*args, **options)
    except MinirunError as error:
        return type(error)


class Comparison:
    """Does each operation on the model and on every store, and compares."""

    def __init__(self, open_service: Callable[[], BaseSessionService]) -> None:
        self._open = open_service
        self._model = Model()
        self._handles: list[ModelHandle] = []
        self._stores = [Store([InMemorySessionService()]), Store([self._open(), self._open()])]
        self._runs = itertools.count(1)

    async def run(self, operations: list[tuple[Operation, int]]) -> None:
        """Do all of it on two sessions to begin with, and look at everything at the end, and after opening anew."""
        for key in FIRST_SESSIONS:
            await self._create(key, {}, 0)
        for operation, turn in operations:
            await self._do(operation, turn)
        await self._check_everything()
        await self._reopen(0)
        await self._reopen(1)
        await self._check_everything()
        for store in self._stores:
            for service in store.services:
                await service.aclose()

    async def _do(self, operation: Operation, turn: int) -> None:
        match operation:
            case Create(key, state):
                await self._create(key, state, turn)
            case Get(key, config):
                await self._get(key, config, turn)
            case Append(handle, actions, id):
                await self._append(handle, Event(id=id, author="a", timestamp=1.5, actions=actions), turn)
            case Retry(handle):
                if last := self._handles[handle % len(self._handles)].last:
                    await self._append(handle, last, turn)
            case Run(key, actions):
                await self._run(key, actions, turn)
            case Delete(key):
                await self._delete(key, turn)
            case Remake(key, state):
                await self._delete(key, turn)
                await self._create(key, state, turn)
            case Read(key, after_seq, limit):
                await self._read(key, after_seq, limit, turn)
            case Page(app_name, user_id, limit):
                await self._page(app_name, user_id, limit, turn)
            case Reopen():
                await self._reopen(turn)

    async def _create(self, key: SessionKey, state: dict[str, Any], turn: int) -> None:
        expected = outcome_of(self._model.create, key, Event(author="system", seq=0, state=state))
        found = [await result_of(store.at(turn).create_session, **where(key), state=state) for store in self._stores]
        self._keep(expected, found)

    async def _delete(self, key: SessionKey, turn: int) -> None:
        self._model.sessions.pop(key, None)
        for store in self._stores:
            await store.at(turn).delete_session(**where(key))

    async def _get(self, key: SessionKey, config: GetSessionConfig | None, turn: int) -> None:
        expected = self._model.handle(key, config) if key in self._model.sessions else None
        found = [await store.at(turn).get_session(**where(key), config=config) for store in self._stores]
        self._keep(expected, found)

    def _keep(self, expected: Any, found: list[Any]) -> None:
        """Compare the sessions that were returned, and keep them to go on with."""
        if not isinstance(expected, ModelHandle):
            assert found == [expected] * len(found)
            return
        for session, store in zip(found, self._stores, strict=True):
            same(session, expected)
            store.handles.append(session)
        self._handles.append(expected)

    async def _append(self, number: int, event: Event, turn: int) -> None:
        number %= len(self._handles)
        handle = self._handles[number]
        before = len(self._model.commits)
        expected = outcome_of(self._model.append, handle, event)
        stored = "stored" if len(self._model.commits) > before else "recognized"
        note(f"append: {expected.__name__ if isinstance(expected, type) else stored}")
        handle.last = event
        for store in self._stores:
            session = store.handles[number]
            assert await result_of(store.at(turn).append_event, session, event) == expected
            same(session, handle)

    async def _run(self, key: SessionKey, actions: list[EventActions], turn: int) -> None:
        name = f"e-{next(self._runs)}"
        events = [
            Event(id=f"{name}-{number}", author="agent", timestamp=2.5, invocation_id=name, actions=one)
            for number, one in enumerate(actions)
        ]
        exists = key in self._model.sessions
        expected = [outcome_of(self._model.commit, key, event) for event in events] if exists else None
        for store in self._stores:
            writer = await store.at(turn).open_writer(key, name, None, reject=True)
            if writer is None:
                assert expected is None
                continue
            found = [await result_of(writer.append, event, begins=event is events[0]) for event in events]
            assert found == expected
            assert dict(ReadOnlyState(writer.live.values)) == self._model.state(key)
            await writer.finish(InvocationStatus.COMPLETED)

    async def _read(self, key: SessionKey, after_seq: int | None, limit: int | None, turn: int) -> None:
        session = self._model.sessions.get(key)
        after = -1 if after_seq is None else max(-1, after_seq)
        expected = session.log[after + 1 :][:limit] if session else SessionNotFoundError
        for store in self._stores:
            found = await result_of(store.at(turn).read_events, **where(key), after_seq=after_seq, limit=limit)
            assert without_record(found) == without_record(expected)

    async def _page(self, app_name: str | None, user_id: str | None, limit: int, turn: int) -> None:
        expected = [
            (key, session.revision)
            for key, session in self._model.sessions.items()
            if app_name in (None, key.app_name) and user_id in (None, key.user_id)
        ]
        for store in self._stores:
            found: list[tuple[SessionKey, int]] = []
            after = None
            while True:
                page = await store.at(turn).list_sessions(app_name=app_name, user_id=user_id, limit=limit, after=after)
                found += [(SessionKey(s.app_name, s.user_id, s.id), s.revision) for s in page.sessions]
                after = page.next
                if after is None:
                    break
            assert found == expected

    async def _reopen(self, turn: int) -> None:
        """Close one of the store's services and open it anew; the other goes on."""
        store = self._stores[1]
        await store.at(turn).aclose()
        store.services[turn % 2] = self._open()

    async def _check_everything(self) -> None:
        for key in itertools.starmap(SessionKey, itertools.product("ab", "uv", "12")):
            for turn in (0, 1):
                await self._get(key, None, turn)
                await self._read(key, None, None, turn)
        await self._page(None, None, 2, 0)
        listed = [
            [(one.session_id, one.invocation_id, one.status, one.seq) for one in await store.at(0).list_invocations()]
            for store in self._stores
        ]
        assert listed[0] == listed[1]


def where(key: SessionKey) -> dict[str, Any]:
    return {"app_name": key.app_name, "user_id": key.user_id, "session_id": key.session_id}


def outcome_of(act: Callable[..., Any], *args: Any) -> Any:
    """The same for the model."""
    try:
        return act(*args)
    except MinirunError as error:
        return type(error)


def same(session: Session, handle: ModelHandle) -> None:
    """The session object shows what the model says."""
    assert session.revision == handle.revision
    assert dict(session.state) == handle.state
    assert repr(sorted(session.state.items())) == repr(sorted(handle.state.items())), "1, 1.0 and True are different"
    assert list(session.events) == handle.events


def without_record(found: Any) -> Any:
    """Events as they can be compared: of the creation record, whose id and time the service gives, only the state."""
    if not isinstance(found, list):
        return found
    return [event.actions if event.seq == 0 else event for event in found]


def check_file(path: Path) -> None:
    """The file alone: every table is the fold of the events in it, shared scopes from their base rows on (P4)."""
    db = sqlite3.connect(path)
    try:
        rows = db.execute(
            "SELECT s.app_name, s.user_id, e.log, e.seq, e.commit_no, e.data"
            " FROM events e JOIN sessions s ON s.id = e.log ORDER BY e.commit_no"
        ).fetchall()
        numbers = [row[4] for row in rows]
        assert len(set(numbers)) == len(numbers)
        deleted = db.execute("SELECT deleted_no FROM store").fetchone()[0]
        everything = db.execute("SELECT max(commit_no) FROM shared_state").fetchone()[0] or 0
        assert everything <= max(max(numbers, default=0), deleted)
        revisions = dict(db.execute("SELECT id, revision FROM sessions"))
        states: dict[int, Values] = {session: Values({}, {}, {}) for session in revisions}
        for _, _, session, _, _, line in rows:
            fold(states[session], [only(Scope.SESSION, from_json(Event, line))])
        assert {s: sum(row[2] == s for row in rows) - 1 for s in revisions} == revisions
        stored: dict[int, dict[str, Any]] = {session: {} for session in revisions}
        for session, key, value in db.execute("SELECT session, key, value FROM session_state"):
            stored[session][key] = json.loads(value)
        assert stored == {session: values.session for session, values in states.items()}
        base = {(app, user): (no, json.loads(v)) for app, user, no, v in db.execute("SELECT * FROM shared_base")}
        scopes = db.execute("SELECT DISTINCT app_name, user_id FROM shared_state").fetchall()
        for app, user in scopes:
            since, values = base.get((app, user), (0, {}))
            folded = Values({}, dict(values) if user else {}, {} if user else dict(values))
            for in_app, of_user, _, _, number, line in rows:
                if in_app == app and user in ("", of_user) and number > since:
                    fold(folded, [only(Scope.USER if user else Scope.APP, from_json(Event, line))])
            current = db.execute(
                "SELECT key, value FROM shared_state WHERE app_name = ? AND user_id = ? AND value IS NOT NULL",
                (app, user),
            )
            assert {key: json.loads(value) for key, value in current} == (folded.user if user else folded.app)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        db.close()


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """An empty file of our format: copying it is faster than making one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"

        async def make() -> None:
            async with SqliteSessionService(path, durability="process") as service:
                await service.list_sessions(app_name="a")

        trio.run(make)
        yield path


MANY_OPERATIONS = st.lists(st.tuples(OPERATION, st.integers(0, 1)), min_size=4, max_size=40)
CACHES_BYTES = st.sampled_from([0, 400, 2**20])

# What is at hand is of a session that another worker has deleted, and the event does not fit that either.
REMADE: list[tuple[Operation, int]] = [
    (Append(handle=1, actions=EventActions(state_delta={"l": None}), id="a"), 1),
    (Remake(SessionKey(app_name="a", user_id="u", session_id="2"), {}), 0),
    (Append(handle=1, actions=EventActions(state_ops={"l": {"extend": []}}), id="b"), 1),
]


@settings(max_examples=examples(80))
@given(MANY_OPERATIONS, CACHES_BYTES)
@example(operations=REMADE, cache_bytes=0)
def test_both_services_agree_with_the_model(
    template: Path, operations: list[tuple[Operation, int]], cache_bytes: int
) -> None:
    """Any operations, on both services, from two objects on one file, reopened at will, do what the pure fold says."""
    assert_agreement(template, operations, cache_bytes)


@pytest.mark.slow
@settings(max_examples=1_000)
@given(MANY_OPERATIONS, CACHES_BYTES)
def test_both_services_agree_with_the_model_often(
    template: Path, operations: list[tuple[Operation, int]], cache_bytes: int
) -> None:
    """The same, for a thousand lists of operations."""
    assert_agreement(template, operations, cache_bytes)


def assert_agreement(template: Path, operations: list[tuple[Operation, int]], cache_bytes: int) -> None:
    """Both services do the operations, and are compared with the fold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        path.write_bytes(template.read_bytes())

        def open_service() -> BaseSessionService:
            return Elsewhere(path, durability="process", cache_bytes=cache_bytes)

        async def compare() -> None:
            await Comparison(open_service).run(operations)

        trio.run(compare)
        check_file(path)


@pytest.fixture(scope="module")
def database() -> str:
    """The URL of a Postgres database that each example empties."""
    return new_database()


@settings(max_examples=examples(20))
@given(MANY_OPERATIONS, CACHES_BYTES)
@example(operations=REMADE, cache_bytes=0)
def test_postgres_agrees_with_the_model(
    database: str, operations: list[tuple[Operation, int]], cache_bytes: int
) -> None:
    """Any operations do what the pure fold says in a database that two workers share, too."""
    assert_agreement_in_postgres(database, operations, cache_bytes)


@pytest.mark.slow
@settings(max_examples=400)
@given(MANY_OPERATIONS, CACHES_BYTES)
def test_postgres_agrees_with_the_model_often(
    database: str, operations: list[tuple[Operation, int]], cache_bytes: int
) -> None:
    """The same, for hundreds of lists of operations."""
    assert_agreement_in_postgres(database, operations, cache_bytes)


def assert_agreement_in_postgres(
    database: str, operations: list[tuple[Operation, int]], cache_bytes: int
) -> None:
    """The service does the operations, and is compared with the fold."""

    async def compare() -> None:
        await Comparison(lambda: ElsewhereInPostgres(database, cache_bytes=cache_bytes)).run(operations)

    empty(database)
    trio.run(compare)
    check_database(database)


# --- gates ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Task:
    """A run on a session, with others inside it, at once; or an append, if nothing is inside."""

    session: int
    inside: tuple[Task, ...]


TASKS: st.SearchStrategy[Task] = st.recursive(
    st.builds(Task, st.integers(0, 3), st.just(())),
    lambda inner: st.builds(Task, st.integers(0, 3), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=5,
)


def ordered(task: Task, above: int = -1) -> Task:
    """The same tree, such that every run takes a session beyond those around it."""
    session = max(task.session, above + 1)
    return Task(session, tuple(ordered(one, session) for one in task.inside))


async def play(service: BaseSessionService, task: Task, refused: list[Task]) -> None:
    key = SessionKey("app", "u", str(task.session))
    try:
        writer = await service.open_writer(key, "e", None, reject=False)
    except SessionBusyError:
        refused.append(task)
        return
    assert writer is not None
    try:
        async with trio.open_nursery() as nursery:
            writer.belongs_to(nursery)
            for one in task.inside:
                nursery.start_soon(play, service, one, refused)
            await trio.lowlevel.checkpoint()
    finally:
        await writer.finish(None)


async def play_all(tasks: list[Task]) -> list[Task]:
    """Play them at once, and return those that were refused; if all wait for ever, the clock jumps and it fails."""
    refused: list[Task] = []
    async with InMemorySessionService() as service:
        for number in range(20):
            await service.create_session(app_name="app", user_id="u", session_id=str(number))
        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(play, service, task, refused)
    return refused


@given(st.lists(TASKS, min_size=1, max_size=4))
def test_no_wait_for_a_session_lasts_for_ever(tasks: list[Task]) -> None:
    """Runs within runs, on any sessions, all end: whoever would wait for itself is refused."""
    trio.run(play_all, tasks, clock=trio.testing.MockClock(autojump_threshold=0))


@given(st.lists(TASKS.map(ordered), min_size=1, max_size=4))
def test_nobody_is_refused_who_could_wait(tasks: list[Task]) -> None:
    """Where sessions are taken in one order, no wait can close a cycle, and none is refused."""
    assert trio.run(play_all, tasks, clock=trio.testing.MockClock(autojump_threshold=0)) == []
