"""The checks of a session service: runs, and closing and opening the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from minirun.errors import (
    AlreadyExistsError,
    InvalidValueError,
    InvocationNotFoundError,
    ServiceClosedError,
    ServiceInUseError,
    SessionBusyError,
    StaleSessionError,
)
from minirun.events import NO_REPLAY, Event, EventActions, NodeInfo, Replay
from minirun.sessions import GetSessionConfig, InvocationStatus
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from .session_bench import Bench, settled, texts

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable_check = listed_in(DURABLE)

# --- runs -----------------------------------------------------------------------------------------------------------


def _call_event(call_id: str, invocation_id: str = "e-1") -> Event:
    content = Content(role="model", parts=[Part(function_call=FunctionCall(name="f", id=call_id))])
    return Event(author="agent", invocation_id=invocation_id, content=content, branch="b")


def _answer_event(call_id: str, invocation_id: str = "e-1") -> Event:
    content = Content(role="user", parts=[Part(function_response=FunctionResponse(name="f", id=call_id))])
    return Event(author="agent", invocation_id=invocation_id, content=content)


@check
async def _open_calls_are_known(t: Bench) -> None:
    """The calls of runs are open until they are answered, by the same run or another; outside calls never are."""
    session = await t.create()
    await t.service.append_event(session, _call_event("outside"))
    writer = await t.writer()
    await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
    await writer.append(_call_event("c1"))
    await writer.append(_call_event("c2"))
    await writer.append(_answer_event("c1"))
    expect("open calls", list(writer.live.open_calls), ["c2"])
    await writer.finish(InvocationStatus.FAILED)
    narrow = GetSessionConfig(num_recent_events=0)
    second = await t.service.open_writer(t.key(), "e-2", narrow, reject=False)
    assert second is not None
    call = second.live.open_calls["c2"]
    found = (call.name, call.seq, call.invocation_id, call.author, call.branch)
    expect("the open call", found, ("f", 4, "e-1", "agent", "b"))
    await second.append(_answer_event("c2"))
    expect("open calls", dict(second.live.open_calls), {})
    await second.finish(None)


@check
async def _runs_wait_in_the_order_they_came(t: Bench) -> None:
    """A second run on a session waits for the first to leave, first come first served; other sessions are free."""
    await t.create()
    await t.create("other")
    order: list[str] = []

    async def enter(name: str) -> None:
        writer = await t.writer(name)
        order.append(name)
        await writer.append(Event(author="user", message=name, invocation_id=name), begins=True)
        await writer.finish(InvocationStatus.COMPLETED)

    first = await t.writer("first")
    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(enter, name)
            await settled()
        expect("who has entered", order, [])
        await (await t.writer("x", "other")).finish(None)
        await first.append(Event(author="user", message="first", invocation_id="first"), begins=True)
        await first.finish(InvocationStatus.COMPLETED)
    expect("the order of entering", order, ["a", "b", "c"])
    expect("the order of events", texts(await t.get()), ["first", "a", "b", "c"])


@check
async def _a_busy_session_can_be_refused(t: Bench) -> None:
    """With reject, a session that is held raises SessionBusyError at once; a cancelled wait leaves nothing behind."""
    session = await t.create()
    first = await t.writer("first")
    with raises(SessionBusyError, "'s'"):
        await t.service.open_writer(t.key(), "second", None, reject=True)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(t.writer, "third")
            nursery.start_soon(t.append, session)
            nursery.start_soon(t.delete)
            await settled()
            scope.cancel()
    await first.finish(None)
    await (await t.writer("fourth", reject=True)).finish(None)
    await t.unchanged(session)


@check
async def _appends_and_deletes_wait_for_the_run(t: Bench) -> None:
    """append_event and delete_session from outside wait until the run has left, and never disturb it."""
    session = await t.create()
    fresh = await t.get()
    writer = await t.writer()
    ends: list[str] = []

    async def append() -> None:
        with raises(StaleSessionError):
            await t.append(session, "outside")
        ends.append("append")

    async def delete() -> None:
        await t.delete()
        ends.append("delete")

    async with trio.open_nursery() as nursery:
        for wait in (append, delete):
            nursery.start_soon(wait)
            await settled()
        await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
        await writer.append(Event(author="agent", message="ho", invocation_id="e-1"))
        expect("who has gone on", ends, [])
        expect("reading goes on", texts(await t.get()), ["hi", "ho"])
        with raises(AlreadyExistsError):
            await t.create()  # says so at once, and does not wait for the run
        await writer.finish(InvocationStatus.COMPLETED)
    expect("the order", ends, ["append", "delete"])
    expect("the session", await t.find(), None)
    expect("an object from before", fresh.revision, 0)


@check
async def _waiting_inside_the_run_is_refused(t: Bench) -> None:
    """A task of the run that would wait for the run's own session gets SessionBusyError at once."""
    session = await t.create()
    writer = await t.writer()
    async with trio.open_nursery() as nursery:
        writer.belongs_to(nursery)

        async def inside() -> None:
            with raises(SessionBusyError, "'s'"):
                await t.append(session)
            with raises(SessionBusyError, "'s'"):
                await t.delete()
            with raises(SessionBusyError, "'s'"):
                await t.writer("nested")

        nursery.start_soon(inside)
    await writer.finish(None)
    await t.append(session)


@check
async def _invocations_are_listed(t: Bench) -> None:
    """Runs that have begun are listed, oldest first, by app and by status; outside appends are not."""
    await t.append(await t.create("1"))
    await t.create("2")
    for number, (session_id, status) in enumerate(
        [("2", InvocationStatus.COMPLETED), ("1", InvocationStatus.FAILED), ("2", InvocationStatus.CANCELLED)]
    ):
        writer = await t.writer(f"e-{number}", session_id)
        await writer.append(Event(author="user", message="hi", invocation_id=f"e-{number}"), begins=True)
        [running] = await t.service.list_invocations(app_name=t.app, status="running")
        expect("the running one", running.invocation_id, f"e-{number}")
        await writer.finish(status)
    found = await t.service.list_invocations(app_name=t.app)
    expect("ids, oldest first", [one.invocation_id for one in found], ["e-0", "e-1", "e-2"])
    expect("statuses", [one.status for one in found], ["completed", "failed", "cancelled"])
    expect("where", [(one.app_name, one.user_id, one.session_id) for one in found][1], (t.app, "u", "1"))
    expect("the seqs they began with", [one.seq for one in found], [1, 2, 2])
    failed = await t.service.list_invocations(app_name=t.app, status=InvocationStatus.FAILED)
    expect("the failed", [one.invocation_id for one in failed], ["e-1"])
    everywhere = [one.invocation_id for one in await t.service.list_invocations() if one.app_name == t.app]
    expect("of all apps", everywhere, ["e-0", "e-1", "e-2"])
    expect("of another app", await t.service.list_invocations(app_name=t.app + "-2"), [])
    of_session = await t.service.list_invocations(app_name=t.app, user_id="u", session_id="2")
    expect("of one session", [one.invocation_id for one in of_session], ["e-0", "e-2"])
    cancelled = await t.service.list_invocations(app_name=t.app, user_id="u", session_id="2", status="cancelled")
    expect("of one session, cancelled", [one.invocation_id for one in cancelled], ["e-2"])
    expect("unfinished", await t.service.list_invocations(app_name=t.app, session_id="2", status="running"), [])
    of_user = await t.service.list_invocations(app_name=t.app, user_id="u")
    expect("of one user", [one.invocation_id for one in of_user], ["e-0", "e-1", "e-2"])
    expect("of another user", await t.service.list_invocations(app_name=t.app, user_id="u-2"), [])
    named = await t.service.list_invocations(session_id="1")
    expect("of sessions of a name", [one.invocation_id for one in named if one.app_name == t.app], ["e-1"])
    no_such = await t.service.list_invocations(app_name=t.app, user_id="u", session_id="3")
    expect("of a session that is not there", no_such, [])
    with raises(InvalidValueError, "session_id", "string"):
        await t.service.list_invocations(session_id=" ")
    with raises(InvalidValueError, "status", "running"):
        await t.service.list_invocations(status="sleeping")
    await t.delete("2")
    left = await t.service.list_invocations(app_name=t.app)
    expect("after deleting a session", [one.invocation_id for one in left], ["e-1"])


@check
async def _what_has_failed_may_be_gone_on_with(t: Bench) -> None:
    """What failed or was cancelled runs again with an event that says so; else, and if completed, it is stale."""
    await t.create()
    for status in (InvocationStatus.FAILED, InvocationStatus.CANCELLED, InvocationStatus.COMPLETED):
        name = f"e-{status}"
        goes_on = Replay(attempt={"run": "", "status": str(status)})
        plain = Event(author="user", invocation_id=name)
        again = Event(author="user", invocation_id=name, actions=EventActions(replay=goes_on))
        writer = await t.writer(name)
        begun = await writer.append(Event(author="user", message="hi", invocation_id=name), begins=True)
        await writer.finish(status)
        before = await t.events()
        refused = [plain, again] if status is InvocationStatus.COMPLETED else [plain]
        for event in refused:
            writer = await t.writer(name)
            with raises(StaleSessionError):
                await writer.append(event, begins=True)
            await writer.finish(None)
        expect("the log after what was refused", await t.events(), before)
        if refused == [plain]:
            writer = await t.writer(name)
            stored = await writer.append(again, begins=True)
            expect("what is stored of it", stored.actions.replay, goes_on)
            [running] = await t.service.list_invocations(app_name=t.app, status="running")
            expect("the running one", (running.invocation_id, running.seq, running.end_seq), (name, begun.seq, None))
            await writer.finish(status)
        found = {one.invocation_id: one for one in await t.service.list_invocations(app_name=t.app)}[name]
        expect("how it has ended", (found.status, found.seq), (status, begun.seq))
    expect("revision", (await t.get()).revision, 5)


@check
async def _runs_of_nodes_are_listed(t: Bench) -> None:
    """What an invocation has recorded of the nodes of workflows is listed by its id, of that invocation alone."""

    def said(invocation_id: str, name: str, *, ends: bool = False) -> Event:
        path = f"wf@1/{name}@1"
        info = NodeInfo(path=path, output_for=[path] if ends else [])
        replay = Replay(ended=f"run/wf/{name}@1") if ends else NO_REPLAY
        return Event(
            author="wf",
            message=name,
            invocation_id=invocation_id,
            branch=f"wf.{name}",
            node_info=info,
            actions=EventActions(replay=replay),
        )

    for session_id, invocation_id in (("1", "e-0"), ("1", "e-1"), ("2", "e-1")):
        if await t.find(session_id) is None:
            await t.create(session_id)
        writer = await t.writer(invocation_id, session_id)
        await writer.append(Event(author="user", message="hi", invocation_id=invocation_id), begins=True)
        await writer.append(said(invocation_id, "a", ends=True))
        await writer.append(said(invocation_id, f"of_{session_id}"))
        if invocation_id == "e-0":
            found = await t.service.list_node_runs("e-0", app_name=t.app)
            expect("while it runs", [one.status for one in found], ["ended", "running"])
        await writer.finish(InvocationStatus.FAILED)
    found = await t.service.list_node_runs("e-0", app_name=t.app)
    expect("paths", [one.path for one in found], ["wf@1/a@1", "wf@1/of_1@1"])
    expect("statuses", [one.status for one in found], ["ended", "skipped"])
    expect("attempts", [one.attempts for one in found], [1, 1])
    place = {"app_name": t.app, "user_id": "u", "session_id": "2"}
    expect("of one session", [one.name for one in await t.service.list_node_runs("e-1", **place)], ["a", "of_2"])
    with raises(InvalidValueError, "in which session"):
        await t.service.list_node_runs("e-1", app_name=t.app)
    for asked in (place, {"app_name": t.app + "-2"}):
        with raises(InvocationNotFoundError, "e-0"):
            await t.service.list_node_runs("e-0", **asked)


@check
async def _a_run_that_never_began_leaves_nothing(t: Bench) -> None:
    """finish(None) without an append stores nothing and lets the next one in."""
    session = await t.create()
    await (await t.writer()).finish(None)
    expect("invocations", await t.service.list_invocations(app_name=t.app), [])
    await t.append(session)
    await t.unchanged(session)


# --- closing and opening --------------------------------------------------------------------------------------------


@check
async def _closing_ends_the_use(t: Bench) -> None:
    """aclose may be called twice; afterwards every operation raises ServiceClosedError."""
    session = await t.create()
    await t.service.aclose()
    await t.service.aclose()
    uses: list[Callable[[], Awaitable[object]]] = [
        partial(t.create, "2"),
        t.find,
        partial(t.append, session),
        t.events,
        t.delete,
        partial(t.service.list_sessions, app_name=t.app),
        t.service.list_invocations,
        partial(t.service.open_writer, t.key(), "e-1", None, reject=False),
    ]
    for use in uses:
        with raises(ServiceClosedError, "closed"):
            await use()


@check
async def _a_service_in_use_is_not_closed(t: Bench) -> None:
    """aclose while a run is in the session raises ServiceInUseError, and the run goes on."""
    await t.create()
    writer = await t.writer()
    with raises(ServiceInUseError):
        await t.service.aclose()
    await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
    await writer.finish(InvocationStatus.COMPLETED)
    expect("events", texts(await t.get()), ["hi"])


@check
async def _one_trio_run_at_a_time(t: Bench) -> None:
    """Another trio.run is refused while this one uses the service, and served while it does not."""
    await t.create(a=1)

    async def elsewhere() -> object:
        return await t.find()

    writer = await t.writer()
    with raises(ServiceInUseError, "another trio.run"):
        await trio.to_thread.run_sync(trio.run, elsewhere)
    await writer.finish(None)
    expect("the session, from there", await trio.to_thread.run_sync(trio.run, elsewhere) is not None, True)
    expect("and from here", (await t.get()).state["a"], 1)


@durable_check
async def _what_is_stored_is_there_again(t: Bench) -> None:
    """After closing and opening the store, sessions, events, states, open calls and invocations are what they were."""
    async with t.opened():
        session = await t.create("s", a=1, user_x=1, app_y=[1], gone=1)
        actions = EventActions(state_removed=["gone", "app:y"], state_ops={"user:x": {"add": 1}})
        await t.service.append_event(session, Event(id="mine", author="a", message="1", actions=actions))
        await t.create("deleted", user_kept=1)
        await t.delete("deleted")
        await t.create("s2")
        await t.service.append_event(session, _call_event("outside"))
        writer = await t.writer()
        await writer.append(Event(author="user", message="2", invocation_id="e-1"), begins=True)
        await writer.append(_call_event("c1"))
        await writer.finish(InvocationStatus.FAILED)
        log = await t.events()
        before = await t.get()
    async with t.opened():
        found = await t.get()
        expect("state", dict(found.state), {"a": 1, "user:x": 2, "user:kept": 1})
        expect("events", list(found.events), list(before.events))
        expect("the log", await t.events(), log)
        times = (before.revision, before.create_time, before.last_update_time)
        expect("revision and times", (found.revision, found.create_time, found.last_update_time), times)
        expect("the deleted session", await t.find("deleted"), None)
        listed = (await t.service.list_sessions(app_name=t.app)).sessions
        expect("the list", [(s.id, s.revision) for s in listed], [("s", 4), ("s2", 0)])
        [invocation] = await t.service.list_invocations(app_name=t.app)
        expect("the invocation", (invocation.invocation_id, invocation.status), ("e-1", "failed"))
        writer = await t.writer("e-2")
        expect("open calls", list(writer.live.open_calls), ["c1"])
        await writer.finish(None)
        await t.append(found, "3", a=2)
        await t.unchanged(found)
        with raises(AlreadyExistsError):
            await t.create("s2")


@durable_check
async def _session_objects_survive_the_service(t: Bench) -> None:
    """A session object from before goes on after the store was opened again: retries, staleness and identity hold."""
    async with t.opened():
        session, stale, deleted = await t.create("1"), await t.create("2"), await t.create("3")
        event = Event(id="mine", author="a", message="x")
        stored = await t.service.append_event(session, event)
        await t.append(await t.get("2"), "meanwhile")
        await t.delete("3")
        await t.create("3")
    async with t.opened():
        expect("a retry", await t.service.append_event(session, event), stored)
        await t.append(session, "y")
        expect("events", texts(session), ["x", "y"])
        await t.unchanged(session)
        for old in (stale, deleted):
            with raises(StaleSessionError):
                await t.append(old)
