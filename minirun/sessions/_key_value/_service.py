"""
Sessions in a store of one's own.

    _store      what its author implements, and how it is used by one owner
    _entries    what stands in it

Loading a session reads all its events, and folds them. What stands beside them is what must be found without them: the
state that sessions share, how far invocations have come, and which calls wait for somebody.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from weakref import WeakValueDictionary

import attrs
import trio

from ..._json import JSON, dumps, is_count, shown
from ...env import Env
from ...errors import (
    AlreadyExistsError,
    ConfigurationError,
    InvalidValueError,
    SessionNotFoundError,
    StaleSessionError,
    StorageCorruptError,
)
from ...events import Event, seq_of
from .._call_fold import CallFold, cut_invocation, in_order, waiting_invocations
from .._calls import OpenCall, Pending, is_of_a_run
from .._fold import apply_event
from .._invocation import Invocation, InvocationStatus, invocation_of, may_begin
from .._kept import CACHE_BYTES, SESSION_BYTES, KeptSessions, memory_of
from .._key import SessionKey
from .._live import LiveSession
from .._messages import received
from .._past import check_fork_seq, invocation_at, rewound_invocation
from .._service import BaseSessionService
from .._session import GetSessionConfig, Session
from .._state import APP_PREFIX, USER_PREFIX, Scope, Values, _Missing, apply_writes, scope_of, writes_of
from .._store import SessionWriter
from ._entries import (
    Changes,
    Head,
    Row,
    Run,
    app_prefix,
    event_name,
    head_of,
    hexadecimal,
    id_of,
    is_of,
    key_of,
    of_session,
    row_for,
    row_of,
    run_of,
    run_place_of,
    run_text,
    session_name,
    shared_changes,
    shared_of,
    user_prefix,
    wait_of,
)
from ._messages import called, is_called, note_messages, put_message, take, waiting
from ._store import KeyValueStore, OwnedStore

__all__ = ["KeyValueSessionService"]


class _Shared(dict[str, JSON]):
    """The state of a user, or of an app: one object for all sessions that are loaded."""

    __slots__ = ("__weakref__", "is_fresh")

    def __init__(self) -> None:
        self.is_fresh = False


class KeyValueSessionService(BaseSessionService):
    """
    Keeps sessions in a `KeyValueStore`.

    One service uses a store at a time. The one that begins to use it owns it; a service that had it before, in this
    process or another, stores nothing more: its calls and runs fail with StaleSessionError. What its runs have left
    open is interrupted then, and can be gone on with. A session is loaded as a whole, and stored by one at a time.

    Args:
        store: Where it is kept. It is closed with the service.
        cache_bytes: How much of the sessions that ran lately is kept for their next turn, in bytes of memory.
        env: Where time and ids come from.

    Raises:
        StorageFormatError: On first use: a newer version has written the store.
        StorageCorruptError: An entry cannot be read.
        ServiceInUseError: The store was used before this process was forked.
    """

    def __init__(self, store: KeyValueStore, *, cache_bytes: int = CACHE_BYTES, env: Env | None = None) -> None:
        super().__init__(env=env)
        if not isinstance(store, KeyValueStore):
            msg = f"expected store to be a KeyValueStore, found {shown(store)}"
            raise ConfigurationError(msg)
        if not is_count(cache_bytes):
            msg = f"expected cache_bytes to be an integer from 0 up, found {shown(cache_bytes)}"
            raise ConfigurationError(msg)
        self._own_store = store
        self._store = OwnedStore(store, self._env, self._forget)
        self._cache: KeptSessions[LiveSession] = KeptSessions(cache_bytes)
        self._shared: WeakValueDictionary[str, _Shared] = WeakValueDictionary()
        self._running: dict[tuple[int, str], SessionWriter] = {}

    def _store_id(self) -> Hashable:
        return id(self._own_store)

    async def _close(self) -> None:
        if not self._store.is_elsewhere:
            await self._own_store.aclose()

    def _forget(self) -> None:
        """Nobody knows what is stored: read everything again."""
        self._cache.clear()
        for shared in self._shared.values():
            shared.is_fresh = False

    # --- loading

    async def _open(self, key: SessionKey, config: GetSessionConfig | None) -> LiveSession | None:
        self._store.check_owner()
        live = self._at_hand(key)
        if live is not None:
            return self._cache.keep(live)
        async with self._store.turn():
            return await self._loaded(key)

    def _at_hand(self, key: SessionKey) -> LiveSession | None:
        return self._cache.sessions.get(key)  # what is kept is current: `_forget` keeps none

    async def _loaded(self, key: SessionKey) -> LiveSession | None:
        live = self._cache.sessions.get(key)
        if live is not None:
            return live
        head = await self._head(key)
        if head is None:
            return None
        rows = await self._rows(head.number)
        if [row.event.seq for row in rows] != list(range(head.revision + 1)):
            msg = f"expected the events 0 to {head.revision} of {key}, found {len(rows)}, not all of them"
            raise StorageCorruptError(msg)
        with _sound(key, rows):
            live, _ = await self._built(key, head.number, head.create_time, rows)
        live.notes = {id_of(name) for name, _ in await self._store.entries(of_session("wait", head.number))}
        live.has_messages = bool(await self._store.entries(of_session("message", head.number), limit=1))
        return self._cache.keep(live)

    async def _head(self, key: SessionKey) -> Head | None:
        name = session_name(key)
        text = await self._store.entry(name)
        return None if text is None else head_of(name, text)

    async def _rows(self, number: int, first_seq: int = 0, limit: int | None = None) -> list[Row]:
        found = await self._store.entries(of_session("event", number), hexadecimal(first_seq), limit)
        return [row_of(name, text) for name, text in found]

    async def _built(
        self, key: SessionKey, number: int, create_time: float, rows: Sequence[Row]
    ) -> tuple[LiveSession, CallFold]:
        """The session that a log makes, with the state that it shares as it is now."""
        creation, newest = rows[0].event, rows[-1].event
        assert creation.timestamp is not None
        assert newest.id is not None
        user = self._shared_at(user_prefix(key.app_name, key.user_id))
        values = Values(session={}, user=user, app=self._shared_at(app_prefix(key.app_name)))
        values.apply(apply_event(values, creation, shared=False))
        live = LiveSession(key, values, incarnation=number, create_time=create_time)
        live.last_update_time = creation.timestamp
        calls = CallFold()
        for event, tracked, _ in rows[1:]:
            live.advance(event, apply_event(values, event, shared=False), calls.take(event, tracked=tracked))
        live.mark = newest.id.encode()
        live.size = SESSION_BYTES + sum(memory_of(row.text) for row in rows)
        live.notes = set()  # the calls that are noted as waiting
        await self._refresh(live)
        return live, calls

    def _shared_at(self, prefix: str) -> _Shared:
        shared = self._shared.get(prefix)
        if shared is None:
            shared = self._shared[prefix] = _Shared()
        return shared

    async def _refresh(self, live: LiveSession) -> None:
        """Read the state that the session shares, where it is not known."""
        user, app = _shared_by(live.values)
        for shared, prefix, begin in (
            (user, user_prefix(live.key.app_name, live.key.user_id), USER_PREFIX),
            (app, app_prefix(live.key.app_name), APP_PREFIX),
        ):
            if not shared.is_fresh:
                found = shared_of(begin, await self._store.entries(prefix))
                shared.clear()
                shared.update(found)
                shared.is_fresh = True

    # --- writing

    async def _create(self, key: SessionKey, events: Sequence[Event]) -> LiveSession:
        async with self._store.turn():
            await self._check_new(key)
            creation = events[0]
            assert creation.timestamp is not None
            rows = [row_for(event, tracked=is_of_a_run(event)) for event in events]
            live, calls = await self._built(key, self._store.new_number(), creation.timestamp, rows)
            shared = Values({}, dict(live.values.user), dict(live.values.app))
            changed: dict[str, JSON | _Missing] = {}
            for event in events:
                new = apply_event(shared, event)
                shared.apply(new)
                changed |= {name: value for name, value in new.items() if scope_of(name) is not Scope.SESSION}
            changes = _log_changes(live, rows) | shared_changes(key, changed)
            for name, seq in calls.paused().items():
                self._put_run(changes, live, invocation_of(key, name, InvocationStatus.PAUSED, seq, live.revision))
            waits = self._put_waits(changes, live, live.open_calls)
            await self._store.write(changes)
            live.values.apply(changed)
            live.notes = waits
            self._cache.keep(live)
            return live

    async def _fork(self, key: SessionKey, at_seq: int | None, new: SessionKey) -> None:
        async with self._store.turn():
            source = await self._loaded(key)
            if source is None:
                raise await self._not_found(key)
            check_fork_seq(key, at_seq, source.revision)
            await self._check_new(new)
            log = await self._rows(source.incarnation)
            end = source.revision if at_seq is None else at_seq
            rows, later = log[: end + 1], log[end + 1 :]
            cut = cut_invocation(rows[-1].event, later[0].event if later else None)
            with _sound(key, rows):
                live, calls = await self._built(new, self._store.new_number(), self._env.now(), rows)
            changes = _log_changes(live, rows)
            waiting = waiting_invocations(live.open_calls)
            found = await self._runs(of_session("run", source.incarnation))
            runs = {each.invocation.invocation_id: each.invocation for each in found}
            for name, run in runs.items():
                if run.seq <= live.revision:
                    then = invocation_at(run, live.revision, waits=name in waiting and name != cut)
                    self._put_run(changes, live, invocation_of(new, name, then.status, then.seq, then.end_seq))
            for name, seq in calls.paused().items():
                if name not in runs and name != cut:
                    run = invocation_of(new, name, InvocationStatus.PAUSED, seq, live.revision)
                    self._put_run(changes, live, run)
            waits = self._put_waits(changes, live, live.open_calls)
            await self._store.write(changes)
            live.notes = waits
            self._cache.keep(live)

    async def _check_new(self, key: SessionKey) -> None:
        if await self._head(key) is not None:
            msg = f"there is a {key} already; get it with get_session, or choose another id"
            raise AlreadyExistsError(msg)

    async def _commit(self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool) -> None:
        async with self._store.turn():
            await self._check_current(live)
            changed = apply_writes(live.values, writes_of(event.actions))
            calls = live.call_changes(event, tracked=writer is not None)
            row = row_for(event, tracked=writer is not None)
            changes = _log_changes(live, [row]) | shared_changes(live.key, changed)
            if event.actions.rewind_before_seq is not None:
                open_calls = {name: call for name, call in {**live.open_calls, **calls}.items() if call is not None}
                waiting = waiting_invocations(in_order(open_calls))
                for each in await self._runs(of_session("run", live.incarnation)):
                    name = each.invocation.invocation_id
                    if writer is None or name != writer.invocation_id:
                        target = event.actions.rewind_before_seq
                        then = rewound_invocation(each.invocation, target, seq_of(event), waits=name in waiting)
                        self._put_run(changes, live, then, each.number)
            if writer is not None and begins:
                await self._put_beginning(changes, live, event, writer)
            waits = self._put_waits(changes, live, calls)
            if event.actions.replay.sent is not None:
                await take(self._store, changes, live, event)
            await self._store.write(changes)
            live.advance(event, changed, calls)
            assert event.id is not None
            live.mark = event.id.encode()
            live.notes = waits
            self._cache.grow(live, memory_of(row.text))
            if writer is not None:
                writer.epoch = 0
                if begins:
                    self._running[live.incarnation, writer.invocation_id] = writer

    async def _put_message(self, key: SessionKey, message: Event) -> None:
        async with self._store.turn():
            head = await self._head(key)
            if head is None:
                raise await self._not_found(key)
            runs = await self._runs(of_session("run", head.number))
            await put_message(self._store, head.number, received(key, message, [each.invocation for each in runs]))
            note_messages(key, head.number, self._running.values(), self._cache.sessions.get(key))

    async def _messages(self, live: LiveSession) -> list[Event]:
        return [message for _, message in await waiting(self._store, live.incarnation)]

    _called = called

    async def _check_current(self, live: LiveSession) -> None:
        """Raise unless the next event of *live* would be the next of what is stored."""
        if self._cache.sessions.get(live.key) is not live:
            head = await self._head(live.key)
            if head is None or head.number != live.incarnation:
                msg = f"{live.key} was deleted"
                raise SessionNotFoundError(msg)
            if head.revision != live.revision:
                msg = f"{live.key} has changed since it was opened; get_session again and append to what it returns"
                raise StaleSessionError(msg)
            await self._refresh(live)
            self._cache.keep(live)

    async def _put_beginning(
        self, changes: Changes, live: LiveSession, event: Event, writer: SessionWriter
    ) -> None:
        """Record the invocation as running; one that is recorded already keeps its place, and its beginning."""
        name, key = writer.invocation_id, live.key
        found = await self._run(live.incarnation, name)
        if found is not None and not may_begin(found.invocation, event):
            msg = f"the invocation {name!r} of {key} has just been ended; look at it again"
            raise StaleSessionError(msg)
        assert event.seq is not None
        number, seq = (None, event.seq) if found is None else (found.number, found.invocation.seq)
        self._put_run(changes, live, invocation_of(key, name, InvocationStatus.RUNNING, seq), number)

    def _put_run(
        self, changes: Changes, live: LiveSession, invocation: Invocation, number: int | None = None
    ) -> None:
        run = Run(self._store.new_number() if number is None else number, invocation)
        changes[of_session("run", live.incarnation, invocation.invocation_id)] = run_text(run)

    def _put_waits(
        self, changes: Changes, live: LiveSession, calls: Mapping[str, OpenCall | None]
    ) -> set[str]:
        """Note which calls wait for somebody from now on, and which do not any more; return all that wait then."""
        waits: set[str] = set(live.notes)
        asked = {name: call for name, call in calls.items() if call is not None and call.pending is Pending.WAITS}
        for name in calls.keys() - asked.keys():
            if name in waits:
                changes[of_session("wait", live.incarnation, name)] = None
                waits.remove(name)
        for name in in_order(asked):
            if name not in waits:
                fields = attrs.asdict(live.key) | {"number": self._store.new_number()}
                changes[of_session("wait", live.incarnation, name)] = dumps(fields)
                waits.add(name)
        return waits

    async def _delete(self, key: SessionKey) -> None:
        async with self._store.turn():
            head = await self._head(key)
            if head is None:
                return
            changes: Changes = {session_name(key): None}
            for kind in ("event", "run", "wait", "message"):
                changes |= {name: None for name, _ in await self._store.entries(of_session(kind, head.number))}
            await self._store.write(changes)
            self._cache.drop(key)

    # --- how runs end

    async def _record_end(self, writer: SessionWriter, status: InvocationStatus) -> bool:
        try:
            return await self._end(writer, status)
        except StaleSessionError:
            return False

    async def _finish(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        with suppress(StaleSessionError):  # the present owner of the store lists it as interrupted
            return await self._end(writer, status)
        return True

    async def _end(self, writer: SessionWriter, status: InvocationStatus | None) -> bool:
        """Record it, and return True; False if messages wait for what is to be completed."""
        place = (writer.live.incarnation, writer.invocation_id)
        if self._running.get(place) is not writer:
            return True
        with trio.CancelScope(shield=True):
            async with self._store.turn():
                if status is InvocationStatus.COMPLETED and await is_called(self._store, writer):
                    return False
                self._running.pop(place, None)
                found = await self._run(*place)
                if found is None or found.invocation.status is not InvocationStatus.INTERRUPTED or status is None:
                    return True  # deleted, or undone meanwhile, or left: then it is listed as interrupted already
                changes: Changes = {}
                run = attrs.evolve(found.invocation, status=status, end_seq=writer.live.revision)
                self._put_run(changes, writer.live, run, found.number)
                await self._store.write(changes)
        return True

    # --- reading beside runs

    async def _read(self, key: SessionKey, after_seq: int, limit: int | None) -> list[Event]:
        head = await self._head(key)
        if head is None or after_seq >= head.revision:
            return []
        return [row.event for row in await self._rows(head.number, after_seq + 1, limit)]

    async def _user_state(self, app_name: str, user_id: str) -> Mapping[str, JSON]:
        return shared_of(USER_PREFIX, await self._store.entries(user_prefix(app_name, user_id)))

    async def _list(self, app_name: str | None, user_id: str | None, limit: int | None, after: int) -> list[Session]:
        from .._listed import listed_session  # most programs list nothing

        prefix = "session/" if app_name is None else f"session/{app_name}/"
        found = []
        for name, text in await self._store.entries(prefix):
            key, head = key_of(name), head_of(name, text)
            if head.number > after and user_id in (None, key.user_id):
                found.append((head, key))
        found.sort(key=lambda each: each[0].number)
        return [
            listed_session(key, head.number, head.revision, head.create_time, head.last_update_time)
            for head, key in found[:limit]
        ]

    async def _runs(self, prefix: str) -> list[Run]:
        found = [self._run_of(name, text) for name, text in await self._store.entries(prefix)]
        return sorted(found, key=lambda run: run.number)

    async def _run(self, number: int, invocation_id: str) -> Run | None:
        name = of_session("run", number, invocation_id)
        text = await self._store.entry(name)
        return None if text is None else self._run_of(name, text)

    def _run_of(self, name: str, text: str) -> Run:
        """An invocation as it is listed: one that runs, and not here, is interrupted."""
        run = run_of(name, text)
        place = (run_place_of(name), run.invocation.invocation_id)
        if run.invocation.status is InvocationStatus.RUNNING and place not in self._running:
            return Run(run.number, attrs.evolve(run.invocation, status=InvocationStatus.INTERRUPTED))
        return run

    async def _list_invocations(
        self, app_name: str | None, user_id: str | None, session_id: str | None, status: InvocationStatus | None
    ) -> list[Invocation]:
        if app_name is not None and user_id is not None and session_id is not None:
            head = await self._head(SessionKey(app_name, user_id, session_id))
            runs = [] if head is None else await self._runs(of_session("run", head.number))
        else:
            runs = await self._runs("run/")
        asked = (app_name, user_id, session_id)
        return [each.invocation for each in runs if is_of(each.invocation, asked)]

    async def _invocation(self, key: SessionKey, invocation_id: str) -> Invocation | None:
        head = await self._head(key)
        found = None if head is None else await self._run(head.number, invocation_id)
        return None if found is None else found.invocation

    async def _list_waiting(
        self, app_name: str | None, user_id: str | None, session_id: str | None
    ) -> list[tuple[SessionKey, OpenCall, Event, Event]]:
        places = []
        for name, text in await self._store.entries("wait/"):
            number, key = wait_of(name, text)
            if (app_name or key.app_name, user_id or key.user_id, session_id or key.session_id) == attrs.astuple(key):
                places.append((number, key, id_of(name)))
        found = []
        for _, key, call_id in sorted(places, key=lambda place: place[0]):
            live = await self._open(key, None)
            if live is None or (call := live.open_calls.get(call_id)) is None:
                continue  # it was answered meanwhile
            events = live.events
            found.append((key, call, events[live.index_of(call.seq)], events[live.index_of(call.pending_seq)]))
        return found


def _shared_by(values: Values) -> tuple[_Shared, _Shared]:
    assert isinstance(values.user, _Shared)
    assert isinstance(values.app, _Shared)
    return values.user, values.app


@contextmanager
def _sound(key: SessionKey, rows: Sequence[Row]) -> Iterator[None]:
    """In the block the stored log of *key*, or a beginning of it, is folded."""
    try:
        yield
    except InvalidValueError as error:  # an operation does not fit what stands there: it was never stored so
        msg = f"the log of {key} up to event {rows[-1].event.seq}: {error}; restore a backup of the store"
        raise StorageCorruptError(msg) from error


def _log_changes(live: LiveSession, rows: Sequence[Row]) -> Changes:
    """The entries of these events, and of their session with them as its newest."""
    newest = rows[-1].event
    assert newest.seq is not None
    assert newest.timestamp is not None
    head = Head(live.incarnation, newest.seq, live.create_time, newest.timestamp)
    changes: Changes = {session_name(live.key): head.text()}
    changes |= {event_name(live.incarnation, row.event.seq): row.text for row in rows}
    return changes
