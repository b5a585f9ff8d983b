"""What a session service does beside runs: lists, logs, imports, forks, deletion. Their contracts are its methods'."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._json import brief, check_id, check_text, shown
from ..errors import InvalidValueError, InvocationNotFoundError
from ..events import Event
from ._id_bytes import check_key_bytes
from ._integrity._history import check_history
from ._invocation import Invocation, InvocationStatus
from ._key import SessionKey, check_app_name, session_key
from ._node_runs import NodeRunInfo, node_runs
from ._pending import PendingCall, pending_call
from ._session import GetSessionConfig, ListSessionsResponse, Session
from ._state import USER_PREFIX

if TYPE_CHECKING:
    from ._service import BaseSessionService

__all__ = [
    "delete_session",
    "fork_session",
    "get_user_state",
    "import_session",
    "list_invocations",
    "list_node_runs",
    "list_pending",
    "list_sessions",
    "read_events",
]

_PAGE = re.compile(r"[0-9]{1,18}")
# Numbers of events and of sessions: beyond what any store will ever hold, and within SQLite's 64 bits.
NUMBER_MAX = 2**62


@trio.lowlevel.enable_ki_protection
async def import_session(service: BaseSessionService, key: SessionKey, events: Iterable[Event]) -> Session:
    """Make a session out of a whole history."""
    history = check_history(events)
    check_key_bytes(key)
    with service._used():
        await trio.lowlevel.checkpoint()
        await service.insert_session(key, history)
        return await _whole(service, key)


@trio.lowlevel.enable_ki_protection
async def fork_session(
    service: BaseSessionService, key: SessionKey, at_seq: int | None, new_session_id: str | None
) -> Session:
    """Make a session that shares the past of another one."""
    if new_session_id is None or (isinstance(new_session_id, str) and not new_session_id.strip()):
        new_session_id = service._env.new_id("session")
    new = session_key(key.app_name, key.user_id, new_session_id)
    check_key_bytes(new)
    if at_seq is not None and (isinstance(at_seq, bool) or not isinstance(at_seq, int) or at_seq < 0):
        raise InvalidValueError("at_seq", f"expected the seq of an event, from 0 up, found {shown(at_seq)}")
    with service._used():
        await trio.lowlevel.checkpoint()
        await service.insert_fork(key, at_seq, new, service._env.now())
        return await _whole(service, new)


async def _whole(service: BaseSessionService, key: SessionKey) -> Session:
    """A session that was just made, with all that is visible; no cancellation comes after it was stored."""
    with trio.CancelScope(shield=True):
        live = await service.load_session(key, None)
    if live is None:  # deleted by another process just now
        raise await service._not_found(key)
    return live.snapshot(None)


@trio.lowlevel.enable_ki_protection
async def get_user_state(service: BaseSessionService, app_name: str, user_id: str) -> dict[str, Any]:
    """The values that all sessions of a user share, without the prefix."""
    check_app_name(app_name)
    user_id = check_id("user_id", user_id)
    with service._used():
        await trio.lowlevel.checkpoint()
        values = await service.load_user_state(app_name, user_id)
    return {key.removeprefix(USER_PREFIX): value for key, value in values.items()}


@trio.lowlevel.enable_ki_protection
async def list_sessions(
    service: BaseSessionService, app_name: str | None, user_id: str | None, limit: int | None, after: str | None
) -> ListSessionsResponse:
    """A page of sessions."""
    if app_name is not None:
        check_app_name(app_name)
    if user_id is not None:
        user_id = check_id("user_id", user_id)
    limit = _checked_limit(limit)
    if after is not None and not (isinstance(after, str) and _PAGE.fullmatch(after)):
        raise InvalidValueError("after", f"expected the `next` of an earlier page, found {shown(after)}")
    with service._used():
        await trio.lowlevel.checkpoint()
        found = await service.load_sessions(app_name, user_id, None if limit is None else limit + 1, int(after or -1))
    page = found if limit is None else found[:limit]
    following = str(page[-1]._incarnation) if page and len(found) > len(page) else None
    return ListSessionsResponse(sessions=page, next=following)


@trio.lowlevel.enable_ki_protection
async def delete_session(service: BaseSessionService, key: SessionKey) -> None:
    """Delete a session, and what other services keep of it."""
    with service._used():
        hold = await service._acquire(key)
        try:
            await service.load_free_session(key, GetSessionConfig(num_recent_events=0), reject=False)
            for other in list(service._accompanying.values()):
                await other.delete_session_artifacts(**attrs.asdict(key))
            await service.remove_session(key)
        finally:
            hold.release()


@trio.lowlevel.enable_ki_protection
async def read_events(
    service: BaseSessionService, key: SessionKey, after_seq: int | None, limit: int | None
) -> list[Event]:
    """Stored events in order."""
    limit = _checked_limit(limit)
    if after_seq is not None and (isinstance(after_seq, bool) or not isinstance(after_seq, int)):
        raise InvalidValueError("after_seq", f"expected an integer, found {shown(after_seq)}")
    after_seq = -1 if after_seq is None else min(max(after_seq, -1), NUMBER_MAX)
    with service._used():
        await trio.lowlevel.checkpoint()
        events = await service.load_events(key, after_seq, limit)
        if not events and await service.load_session(key, GetSessionConfig(num_recent_events=0)) is None:
            raise await service._not_found(key)
        return events


@trio.lowlevel.enable_ki_protection
async def list_invocations(
    service: BaseSessionService,
    app_name: str | None,
    user_id: str | None,
    session_id: str | None,
    status: InvocationStatus | str | None,
) -> list[Invocation]:
    """The invocations of runs, oldest first."""
    if app_name is not None:
        check_app_name(app_name)
    if user_id is not None:
        user_id = check_id("user_id", user_id)
    if session_id is not None:
        session_id = check_id("session_id", session_id)
    if status is not None:
        try:
            status = InvocationStatus(status)
        except ValueError:
            problem = f"expected one of {', '.join(InvocationStatus)}, found {shown(status)}"
            raise InvalidValueError("status", problem) from None
    with service._used():
        await trio.lowlevel.checkpoint()
        found = await service.load_invocations(app_name, user_id, session_id, status)
    return [invocation for invocation in found if status is None or invocation.status is status]


@trio.lowlevel.enable_ki_protection
async def list_node_runs(
    service: BaseSessionService, invocation_id: str, app_name: str | None, user_id: str | None, session_id: str | None
) -> list[NodeRunInfo]:
    """The runs of nodes of one invocation."""
    if not isinstance(invocation_id, str):
        raise InvalidValueError("invocation_id", f"expected the id of an invocation, found {shown(invocation_id)}")
    check_text(invocation_id, "invocation_id")
    if app_name is not None:
        check_app_name(app_name)
    user_id = None if user_id is None else check_id("user_id", user_id)
    session_id = None if session_id is None else check_id("session_id", session_id)
    with service._used():
        await trio.lowlevel.checkpoint()
        if app_name is not None and user_id is not None and session_id is not None:
            found = await service.load_invocation(session_key(app_name, user_id, session_id), invocation_id)
            listed = [] if found is None else [found]
        else:
            listed = [
                one
                for one in await service.load_invocations(app_name, user_id, session_id, None)
                if one.invocation_id == invocation_id
            ]
        if not listed:
            msg = f"expected an invocation that a run has begun, found none called {brief(invocation_id)}"
            raise InvocationNotFoundError(f"{msg}; look for it with list_invocations")
        if len(listed) > 1:
            places = ", ".join(f"{one.app_name}/{one.user_id}/{one.session_id}" for one in listed)
            problem = f"expected one invocation called {brief(invocation_id)}, found it in {places}"
            raise InvalidValueError("invocation_id", f"{problem}; say in which session")
        [one] = listed
        limit = None if one.end_seq is None else one.end_seq - one.seq + 1
        key = session_key(one.app_name, one.user_id, one.session_id)
        events = await service.load_events(key, one.seq - 1, limit)
    return node_runs(events, invocation_id, one.status)


@trio.lowlevel.enable_ki_protection
async def list_pending(
    service: BaseSessionService,
    app_name: str | None,
    user_id: str | None,
    session_id: str | None,
    *,
    include_timers: bool,
) -> list[PendingCall]:
    """The open questions, the one that waits longest first."""
    if app_name is not None:
        check_app_name(app_name)
    if user_id is not None:
        user_id = check_id("user_id", user_id)
    if session_id is not None:
        session_id = check_id("session_id", session_id)
    with service._used():
        await trio.lowlevel.checkpoint()
        found = await service.load_waiting_calls(app_name, user_id, session_id)
    pending = (pending_call(key, call, event, mark) for key, call, event, mark in found)
    return [each for each in pending if include_timers or each.kind != "timer"]


def _checked_limit(limit: int | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidValueError("limit", f"expected an integer from 1 up, or None, found {shown(limit)}")
    return min(limit, NUMBER_MAX)
