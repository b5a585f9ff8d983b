"""Making a session: one of a creation record, or of a whole history, by one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..._postgres._connection import ServerError
from ..._postgres._errors import sqlstate
from ..._postgres._values import Statement
from ...errors import AlreadyExistsError, InvalidValueError, StorageRolledBackError
from ...events import Event
from .._call_fold import CallFold
from .._calls import CallChanges, Pending, is_of_a_run
from .._fold import apply_event
from .._invocation import InvocationStatus
from .._kept import memory_of
from .._key import SessionKey
from .._state import Values
from ._cache import SessionCache
from ._database import Database
from ._rows import call_row, corrupt
from ._schema import REFUSED_OPERATION, SEPARATOR
from ._session import DatabaseSession, Row
from ._state import STATE_KEY_BYTES, news_call, operation_error, shared_rows, state_rows, take_news
from ._statement import Rows, create_call
from ._text import read_key, stored_key

__all__ = ["already_exists", "check_counter", "check_duplicate", "create_session"]

_COUNTER = Statement("counter", "SELECT FROM minirun.store")

# The name of the constraint that says that there is one session of a name: the server's own, of the table's columns.
_ONE_OF_A_NAME = "sessions_app_name_user_id_session_id_key"
# Those that say that there is one session of a number.
_ONE_OF_A_NUMBER = frozenset({"sessions_pkey", "events_pkey", "shared_pasts_pkey", "invocations_pkey"})
_TAKEN = (
    "expected session_no in minirun.store to be the number of the newest session, found a lower one;"
    " if `minirun sessions verify` tells of nothing else, set it to the highest id in minirun.sessions"
)


def already_exists(key: SessionKey) -> AlreadyExistsError:
    """The error for a key that is taken."""
    return AlreadyExistsError(f"there is a {key} already; get it with get_session, or choose another id")


def check_duplicate(name: str, key: SessionKey, error: StorageRolledBackError) -> None:
    """
    Look whether the server has refused to make a session because something of it is there; *name* is the database's.

    Raises:
        AlreadyExistsError: There is a session of this key.
        StorageCorruptError: There is something of its number, which is a new one.
    """
    cause = error.__cause__
    if sqlstate(error) != "23505" or not isinstance(cause, ServerError):
        return
    if cause.constraint == _ONE_OF_A_NAME:
        raise already_exists(key) from None
    if cause.constraint in _ONE_OF_A_NUMBER:
        raise corrupt(name, _TAKEN) from error


async def check_counter(database: Database) -> None:
    """
    Look whether the row is there with which all that is stored is counted: without it nothing is stored.

    Raises:
        StorageCorruptError: It is not.
    """
    [found] = await database.read(_COUNTER())
    if not found.rows:
        raise corrupt(database.name, "expected one row in minirun.store, found none")


async def create_session(
    database: Database, cache: SessionCache, key: SessionKey, events: Sequence[Event], lines: Sequence[str]
) -> DatabaseSession:
    """
    Make a session of these events, of which *lines* are the texts, and keep it once it is stored.

    Raises:
        AlreadyExistsError: There is such a session.
        InvalidValueError: The key is too long, or an operation does not fit the shared state.
        StorageCorruptError: The row that counts is gone, or counts wrong.
    """
    created, newest = events[0].timestamp, events[-1]
    assert created is not None
    assert newest.timestamp is not None
    values, rows = Values({}, {}, {}), _Rows(key)
    changes = [rows.take(event, values) for event in events]
    rows.close(values, events)
    scopes = cache.scopes_of(key)
    call = create_call(key, created, newest.timestamp, rows.compaction, lines, rows.parts)
    try:
        made, news = await database.write(call, news_call(scopes))
    except StorageRolledBackError as error:
        check_duplicate(database.name, key, error)
        if sqlstate(error) == REFUSED_OPERATION:
            raise _operation_error(events, error) from None
        raise
    if not made.rows:
        await check_counter(database)
        raise already_exists(key)
    number, chain, *_ = made.rows[0]
    live = cache.made(key, Row(number, 0, created, created, 0, None, None, True, True, chain, 0, False))
    for event, line, (changed, called) in zip(events, lines, changes, strict=True):
        if event.seq:
            live.advance(event, changed, called)
        else:
            live.values.apply(changed)
        live.size += memory_of(line) + STATE_KEY_BYTES * len(changed)
    take_news(database.name, scopes, news.rows)
    live.mark = chain
    return cache.keep(live)


class _Rows:
    """What a history writes beside its events; event *seq* is the statement's member *seq + 1*."""

    def __init__(self, key: SessionKey) -> None:
        self.parts: Rows = defaultdict(list)
        self.compaction = 0
        self._key = key
        self._calls = CallFold()
        self._since: dict[str, tuple[Pending, int]] = {}  # what a call is pending for, and since which member

    def take(self, event: Event, values: Values) -> tuple[dict[str, object], CallChanges]:
        """Go on with the next event, and return what it changes of the session's state, *values*, and of its calls."""
        assert event.seq is not None
        member = event.seq + 1
        changed = apply_event(values, event, shared=False)
        values.apply(changed)
        self.parts["shared"] += shared_rows(member, self._key, event)
        called = self._calls.take(event, tracked=is_of_a_run(event)) if event.seq else {}
        for call_id, call in called.items():
            if call is None:
                self._since.pop(call_id, None)
            elif self._since.get(call_id, (None, 0))[0] is not call.pending:
                self._since[call_id] = (call.pending, member)
        return changed, called

    def close(self, values: Values, events: Sequence[Event]) -> None:
        """Add what follows from the whole history."""
        newest = events[-1]
        self.parts["set_state"] += state_rows(1, values.session)[0]
        for call_id, call in self._calls.calls.items():
            self.parts["calls"].append((self._since[call_id][1], *call_row(call)))
        for name, seq in self._calls.paused().items():
            paused = (str(InvocationStatus.PAUSED), seq, newest.seq)
            self.parts["runs"].append((seq + 1, *stored_key(name), *paused))
        if len(events) > 1:
            from .._compactions import CompactionFold  # few programs import histories
            from ._artifacts import reserved_rows

            self.compaction = CompactionFold.over(events).seq
            self.parts["reserved"] += reserved_rows(1, self._key, events)


def _operation_error(events: Sequence[Event], error: StorageRolledBackError) -> InvalidValueError:
    """The error for the operation of an event that does not fit what stands in a shared scope."""
    cause = error.__cause__
    assert isinstance(cause, ServerError)
    member, stored, long_key, value = cause.constraint.split(SEPARATOR)
    key = read_key(stored, long_key or None)
    return operation_error(events[int(member) - 1], key, value)
