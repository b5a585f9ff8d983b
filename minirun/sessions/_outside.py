"""
Appends from outside of runs: what `append_event` does.

A run knows the live session it writes, because it holds it. An append from outside brings a session as it was
read some time ago: it may be out of date, or of a history that is gone, and the append may be the retry of one whose
outcome nobody knows. So each append compares the two first, while it holds the session's gate.
"""

from __future__ import annotations

import trio

from .._json import shown
from .._values import changed
from ..errors import InvalidEventError, InvalidValueError, SessionNotFoundError, StaleSessionError
from ..events import Event
from ._event_checks import checked_event
from ._fold import apply_event
from ._key import session_key
from ._live import LiveSession
from ._session import GetSessionConfig, Session
from ._state import writes_of
from ._store import ChangedMeanwhileError, SessionStore

__all__ = ["append_event"]


@trio.lowlevel.enable_ki_protection
async def append_event(store: SessionStore, session: Session, event: Event) -> Event:
    """See `BaseSessionService.append_event`."""
    if not isinstance(session, Session):
        raise InvalidValueError("session", f"expected what get_session returns, found {shown(session)}")
    if not isinstance(event, Event):
        raise InvalidValueError("event", f"expected an Event, found {shown(event)}")
    if event.partial:
        return event
    event = checked_event(event)
    with store._used():
        return await _append_checked(store, session, event)


async def _append_checked(store: SessionStore, session: Session, event: Event) -> Event:
    """Append an event that was checked, once no run writes the session."""
    if session._values is None:
        problem = "expected what get_session returns, found one of list_sessions, which has neither state nor events"
        raise InvalidValueError("session", f"{problem}; get it, and append to that")
    if event.id is None and event == session._uncertain[0]:
        event = changed(event, id=session._uncertain[1])
    key = session_key(session.app_name, session.user_id, session.id)
    hold = await store._acquire(key)
    try:
        at_hand = store.cached_session(key)
        if at_hand is not None and _is_next(at_hand, session, event):  # if so it is; the store checks it anyway
            try:
                return await store._append(at_hand, event, session=session)
            except (ChangedMeanwhileError, SessionNotFoundError, InvalidValueError):
                pass  # another process was faster; or has been, if the event does not fit what is at hand
        while True:
            live = await store.load_free_session(key, GetSessionConfig(num_recent_events=0), reject=False)
            if live is None:
                raise await store._not_found(key)
            if live.incarnation != session._incarnation:
                raise _stale(session, live, "it was deleted and made again, or read from JSON")
            earlier = await _stored_before(store, live, session, event)
            if earlier is not None:
                return earlier
            if session.revision != live.revision:
                raise _stale(session, live, f"it is at revision {live.revision}")
            if session._history() not in (None, live.mark):
                raise _stale(session, live, "it has another history, as in another file or a restored one")
            try:
                return await store._append(live, event, session=session)
            except ChangedMeanwhileError:
                continue  # another process was faster between the look and the transaction: look again
    finally:
        hold.release()


def _is_next(live: LiveSession, session: Session, event: Event) -> bool:
    """Whether *event*, appended to *session*, would come next in *live*, and is no retry of what is there."""
    if live.incarnation != session._incarnation or live.revision != session.revision:
        return False
    if session._history() not in (None, live.mark):
        return False
    return event.id is None or (bool(live.events) and live.events[-1].id != event.id)


async def _stored_before(store: SessionStore, live: LiveSession, session: Session, event: Event) -> Event | None:
    """The stored event that *event* is a retry of; *session* is advanced to it."""
    if event.id is None:
        return None
    for seq in (session.revision, session.revision + 1):
        if not 0 < seq <= live.revision:
            continue
        stored = await _event_at(store, live, seq)
        if stored is None or stored.id != event.id:
            continue
        if changed(stored, seq=event.seq, timestamp=event.timestamp) != event:
            msg = f"expected the event that is stored under the id {event.id!r} (seq {seq}), found another one"
            raise InvalidEventError(msg)
        if seq > session.revision:
            assert session._values is not None  # looked at first of all
            now = {name: live.values.get(name) for name in writes_of(stored.actions)}
            changes = {**now, **apply_event(session._values, stored, shared=False)}
            session._advance(stored, changes, live.mark if seq == live.revision else None)
        return stored
    return None


async def _event_at(store: SessionStore, live: LiveSession, seq: int) -> Event | None:
    if live.first_seq <= seq <= live.revision:
        loaded = live.events[live.index_of(seq)]
        if loaded.seq == seq:
            return loaded
    found = await store.load_events(live.key, seq - 1, 1)
    return found[0] if found else None  # deleted by another process just now


def _stale(session: Session, live: LiveSession, why: str) -> StaleSessionError:
    msg = (
        f"{live.key} has changed since it was read at revision {session.revision}: {why}; "
        "get_session again and append to what it returns"
    )
    return StaleSessionError(msg)
