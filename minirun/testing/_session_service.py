"""
Checks for the author of a session service:

    async def test_my_service() -> None:
        await check_session_service(MySessionService)

These facts depend on what a store writes and reads. The suite of minirun's own services (`tests/contracts`) contains
these checks and many more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from ..errors import AlreadyExistsError, InvocationEndedError, SessionBusyError, SessionNotFoundError, StaleSessionError
from ..events import Event, EventActions
from ..sessions import BaseSessionService, GetSessionConfig, InvocationStatus, Session, SessionKey, SessionWriter
from ..sessions._fold import fold
from ..sessions._read_only import ReadOnlyState
from ..sessions._state import Values
from ..types import Content, FunctionCall, FunctionResponse, Part
from ._contract import BaseBench, Body, Contract, Factory, expect, listed_in, raises

__all__ = ["DURABLE", "ONCE", "SessionBench", "check_session_service", "folded", "spelled", "texts"]

ONCE: dict[str, Body[SessionBench]] = {}
DURABLE: dict[str, Body[SessionBench]] = {}


async def check_session_service(make: Factory[BaseSessionService], *, durable: bool = False) -> None:
    """
    Check the service that *make* returns, or the async context manager that it returns gives.

    It is called at least once for each check; with *durable* each call opens the same store.

    Raises:
        AssertionError: A rule is broken; a note names it.
    """
    contract = Contract(kind="session service", bench=SessionBench, once=ONCE, again=DURABLE)
    await contract.check(make, durable=durable)


class SessionBench(BaseBench[BaseSessionService]):
    """One service under test, with short forms of its operations on one app."""

    async def create(self, session_id: str | None = "s", *, user: str = "u", app: str = "", **state: Any) -> Session:
        return await self.service.create_session(
            app_name=app or self.app, user_id=user, session_id=session_id, state=spelled(state) or None
        )

    async def find(
        self, session_id: str = "s", config: GetSessionConfig | None = None, *, user: str = "u", app: str = ""
    ) -> Session | None:
        app = app or self.app
        return await self.service.get_session(app_name=app, user_id=user, session_id=session_id, config=config)

    async def get(self, session_id: str = "s", config: GetSessionConfig | None = None, *, user: str = "u") -> Session:
        session = await self.find(session_id, config, user=user)
        expect("get_session finds the session", session is not None, True)
        assert session is not None
        return session

    async def append(self, session: Session, text: str = "x", **state: Any) -> Event:
        return await self.service.append_event(session, Event(author="a", message=text, state=spelled(state)))

    async def events(self, session_id: str = "s", *, user: str = "u", **options: Any) -> list[Event]:
        return await self.service.read_events(app_name=self.app, user_id=user, session_id=session_id, **options)

    async def writer(self, invocation_id: str = "e-1", session_id: str = "s", *, reject: bool = False) -> SessionWriter:
        key = SessionKey(self.app, "u", session_id)
        writer = await self.service.open_writer(key, invocation_id, None, reject=reject)
        expect("open_writer finds the session", writer is not None, True)
        assert writer is not None
        return writer

    async def unchanged(self, session: Session) -> None:
        """Check that the store has what *session* shows, and that its log says the same."""
        stored = await self.get(session.id, user=session.user_id)
        expect("the stored revision", stored.revision, session.revision)
        expect("the stored state", dict(stored.state), dict(session.state))
        expect("the stored events", list(stored.events)[-3:], list(session.events)[-3:])
        log = await self.events(session.id, user=session.user_id)
        expect("the seqs of the log", [event.seq for event in log], list(range(session.revision + 1)))
        expect("the last event", log[1:][-1:], list(session.events)[-1:])


def spelled(state: Mapping[str, Any]) -> dict[str, Any]:
    """State with the keys `user:x`, `app:x` and `temp:x` for `user_x`, `app_x` and `temp_x`."""
    scopes = ("user_", "app_", "temp_")
    return {key.replace("_", ":", 1) if key.startswith(scopes) else key: value for key, value in state.items()}


def texts(session: Session) -> list[str]:
    return [event.text for event in session.events]


def folded(log: list[Event]) -> dict[str, Any]:
    """The state that follows from a session's log alone."""
    return dict(ReadOnlyState(fold(Values({}, {}, {}), log)))


def _part_event(author: str, part: Part, **fields: Any) -> Event:
    return Event(author=author, invocation_id="e-1", content=Content(role="model", parts=[part]), **fields)


@listed_in(ONCE)
async def _a_session_is_made_once(t: SessionBench) -> None:
    """A second session of one id for one user and app raises AlreadyExistsError and leaves the first alone."""
    await t.append(await t.create(a=1), b=2)
    with raises(AlreadyExistsError, "'s'"):
        await t.create("s", a=5, user_x=5)
    expect("state of the first", dict((await t.get()).state), {"a": 1, "b": 2})
    await t.create("s", user="other")
    await t.create("s", app=t.app + "-2")
    expect("state of the others", dict((await t.get(user="other")).state), {})


@listed_in(ONCE)
async def _a_stale_session_is_refused(t: SessionBench) -> None:
    """An append to a session that was written meanwhile raises StaleSessionError and stores nothing."""
    first = await t.create()
    second = await t.get()
    await t.append(first, "1", a=1)
    for _ in range(2):
        with raises(StaleSessionError, "revision 0", "revision 1", "get_session"):
            await t.append(second, "2", a=2, user_b=2)
    expect("the stale session", (second.revision, dict(second.state), texts(second)), (0, {}, []))
    await t.unchanged(first)
    await t.append(await t.get(), "3", a=3)
    expect("events", texts(await t.get()), ["1", "3"])


@listed_in(ONCE)
async def _operations_apply_to_what_is_stored(t: SessionBench) -> None:
    """`add`, `extend` and removal work on the value at the commit, in every scope, and on keys that do not exist."""
    one, two = await t.create("1"), await t.create("2")
    ops = {key: {"add": 1} for key in ("n", "user:n", "app:n")} | {"user:l": {"extend": ["x"]}}
    await t.append(one, gone=1, user_gone=1)
    for session in (one, two, one):
        actions = EventActions(state_ops=ops, state_removed=["gone", "user:gone"])
        await t.service.append_event(session, Event(author="a", actions=actions))
    expected = {"n": 2, "user:n": 3, "app:n": 3, "user:l": ["x", "x", "x"]}
    expect("the writer's state", dict(one.state), expected)
    expect("state read again", dict((await t.get("1")).state), expected)
    expect("the other's state", dict((await t.get("2")).state), {**expected, "n": 1})


@listed_in(ONCE)
async def _a_cancelled_append_stored_nothing_and_others_are_stored(t: SessionBench) -> None:
    """Cancelled after any number of ticks: either append_event raises Cancelled, or the event is stored."""
    session = await t.create()

    async def cancel_after(ticks: int, scope: trio.CancelScope) -> None:
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    for ticks in range(25):
        before = session.revision
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_after, ticks, scope)
                await t.append(session)
        expect("revision", session.revision, before + (not scope.cancelled_caught))
        await t.unchanged(session)


@listed_in(ONCE)
async def _a_run_writes_through_its_writer(t: SessionBench) -> None:
    """open_writer gives the live session; what it appends is stored, applied, and seen by get_session at once."""
    expect("no session", await t.service.open_writer(SessionKey(t.app, "u", "-"), "e-1", None, reject=False), None)
    session = await t.create(a=1)
    await t.append(session, "before")
    writer = await t.writer()
    expect("nothing is stored by entering", (await t.get()).revision, 1)
    with raises(SessionBusyError, "'s'"):
        await t.writer("e-2", reject=True)
    await writer.append(Event(author="user", message="hi", invocation_id="e-1", state={"a": 2}), begins=True)
    expect("the live session", (writer.live.revision, writer.live.values.get("a")), (2, 2))
    expect("its events", [event.text for event in writer.live.events], ["before", "hi"])
    expect("get_session meanwhile", dict((await t.get()).state), {"a": 2})
    await writer.renew()
    await writer.append(Event(author="agent", message="ho", invocation_id="e-1"))
    await writer.finish(InvocationStatus.COMPLETED)
    with raises(InvocationEndedError):
        await writer.append(Event(author="agent", message="late", invocation_id="e-1"))
    await t.unchanged(await t.get())
    expect("events", texts(await t.get()), ["before", "hi", "ho"])
    with raises(StaleSessionError):
        await t.append(session, "stale by now")


async def _paused(t: SessionBench) -> list[Event]:
    """The log of a session whose invocation waits for the reply to a call."""
    await t.create(n=0, user_n=0)
    writer = await t.writer()
    await writer.append(Event(author="user", message="go", invocation_id="e-1", state={"n": 1}), begins=True)
    call = Part(function_call=FunctionCall(name="f", id="c"))
    await writer.append(_part_event("agent", call, long_running_tool_ids=("c",), state={"user:n": 1}))
    await writer.finish(InvocationStatus.PAUSED)
    return await t.events()


@listed_in(ONCE)
async def _a_fork_and_an_import_have_the_past(t: SessionBench) -> None:
    """The same events, the state of that moment, and the pending requests; deleting the source changes neither."""
    log, here = await _paused(t), {"app_name": t.app, "user_id": "u", "session_id": "s"}
    for at in range(3):
        fork = await t.service.fork_session(**here, at_seq=at, new_session_id=f"f{at}")
        expect("the state of a fork", dict(fork.state), {**folded(log[: at + 1]), "user:n": 1})
    await t.service.import_session(app_name=t.app, user_id="other", session_id="copy", events=log)
    await t.service.delete_session(**here)
    with raises(SessionNotFoundError):
        await t.events()
    for at in range(3):
        expect("the log of a fork", await t.events(f"f{at}"), log[: at + 1])
        await t.append(await t.get(f"f{at}"), "own")
    expect("the user's state", dict((await t.create("new")).state), {"user:n": 1})
    listed = (await t.service.list_sessions(app_name=t.app)).sessions
    expect("sessions, as they were made", [one.id for one in listed], ["f0", "f1", "f2", "copy", "new"])
    expect("the log of an import", await t.events("copy", user="other"), log)
    found = [(one.session_id, one.call_id) for one in await t.service.list_pending(app_name=t.app)]
    expect("pending requests", sorted(found), [("copy", "c"), ("f2", "c")])


@listed_in(DURABLE)
async def _a_paused_invocation_is_found_and_resumed(t: SessionBench) -> None:
    """After the store was closed and opened, log, state and pending request are there; the reply ends the wait."""
    async with t.opened():
        log, before = await _paused(t), await t.get()
    async with t.opened():
        expect("the log", await t.events(), log)
        found = await t.get()
        expect("the state", dict(found.state), {"n": 1, "user:n": 1})
        times = (before.revision, before.create_time, before.last_update_time)
        expect("revision and times", (found.revision, found.create_time, found.last_update_time), times)
        [pending] = await t.service.list_pending(app_name=t.app)
        [run] = await t.service.list_invocations(app_name=t.app, status="paused")
        expect("the invocation", (run.invocation_id, run.seq, run.end_seq), (pending.invocation_id, 1, 2))
        writer = await t.writer()
        expect("the open calls", list(writer.live.open_calls), ["c"])
        reply = _part_event("user", Part(function_response=FunctionResponse(name="f", id="c")))
        await writer.append(reply, begins=True)
        await writer.finish(InvocationStatus.COMPLETED)
        expect("what is pending", await t.service.list_pending(app_name=t.app), [])
        expect("the ends", [one.status for one in await t.service.list_invocations(app_name=t.app)], ["completed"])
        await t.unchanged(await t.get())
