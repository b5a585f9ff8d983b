"""The checks of a session service: many writers at once, retries, and histories: undone, forked and imported."""

from __future__ import annotations

from functools import partial

import trio

from minirun.errors import AlreadyExistsError, InvalidEventError, InvalidValueError, SessionNotFoundError
from minirun.events import Event, EventActions
from minirun.sessions import GetSessionConfig, InvocationStatus, Session
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Content, FunctionCall, Part

from .session_bench import Bench, folded, texts

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable_check = listed_in(DURABLE)

WRITERS, EACH = 12, 8


# --- many at once -----------------------------------------------------------------------------------------------------


@check
async def _many_sessions_are_written_at_once(t: Bench) -> None:
    """No append is lost, none fails, each log has its own order; operations on shared keys all count."""
    sessions = [await t.create(str(number)) for number in range(WRITERS)]

    async def write(number: int) -> None:
        for turn in range(EACH):
            ops = {"user:n": {"add": 1}, "app:log": {"extend": [[number, turn]]}}
            actions = EventActions(state_delta={f"user:{number}-{turn}": turn, "own": turn}, state_ops=ops)
            await t.service.append_event(sessions[number], Event(author="a", message=str(turn), actions=actions))

    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(write, number)
    for number in range(WRITERS):
        session = await t.get(str(number))
        expect("events", texts(session), [str(turn) for turn in range(EACH)])
        expect("its own state", session.state["own"], EACH - 1)
    state = (await t.get("0")).state
    expect("the counter", state["user:n"], WRITERS * EACH)
    expect("the list", len({tuple(entry) for entry in state["app:log"]}), WRITERS * EACH)
    for number in range(WRITERS):
        mine = [turn for writer, turn in state["app:log"] if writer == number]
        expect("its order in the list", mine, list(range(EACH)))
        expect("its keys", [state[f"user:{number}-{turn}"] for turn in range(EACH)], list(range(EACH)))


@check
async def _one_that_fails_fails_alone(t: Bench) -> None:
    """Of appends at the same moment, those that cannot be stored raise, and the others are stored."""
    sessions = [await t.create(str(number), name="text") for number in range(6)]
    misfit = EventActions(state_ops={"name": {"add": 1}, "user:n": {"add": 1}})
    failed: list[int] = []

    async def write(number: int) -> None:
        actions = misfit if number % 2 else EventActions(state_ops={"user:n": {"add": 1}})
        try:
            await t.service.append_event(sessions[number], Event(author="a", message="x", actions=actions))
        except InvalidValueError:
            failed.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(write, number)
    expect("which failed", sorted(failed), [1, 3, 5])
    expect("revisions", [(await t.get(str(number))).revision for number in range(6)], [1, 0, 1, 0, 1, 0])
    expect("the counter", (await t.get("0")).state["user:n"], 3)


@check
async def _a_cancelled_append_takes_nobody_along(t: Bench) -> None:
    """Of appends at the same moment some are cancelled: each is stored or raised Cancelled, and never both."""
    sessions = [await t.create(str(number)) for number in range(WRITERS)]
    cancelled: set[int] = set()

    async def write(number: int) -> None:
        with trio.CancelScope() as scope:
            if number % 3 == 0:
                scope.cancel()
            await t.append(sessions[number])
        if scope.cancelled_caught:
            cancelled.add(number)

    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(write, number)
    for number in range(WRITERS):
        expect("revision", (await t.get(str(number))).revision, 0 if number in cancelled else 1)
        expect("that of the object", sessions[number].revision, 0 if number in cancelled else 1)


@durable_check
async def _a_retry_reaches_a_store_that_was_opened_again(t: Bench) -> None:
    """Who does not know whether an append was stored appends the same event again: it is there once."""
    event = Event(id="mine", author="a", message="x", actions=EventActions(state_ops={"n": {"add": 1}}))
    async with t.opened():
        await t.create()
        before, after = await t.get(), await t.get()
        await t.service.append_event(after, event)
    for session in (before, after):
        async with t.opened():
            stored = await t.service.append_event(session, event)
            expect("its place", (stored.seq, session.revision), (1, 1))
            expect("the state", ((await t.get()).state["n"], session.state["n"]), (1, 1))
            expect("the log", len(await t.events()), 2)


# --- histories --------------------------------------------------------------------------------------------------------


async def _history(t: Bench) -> Session:
    """A session of two runs, of which the second is undone, and one more event."""
    await t.create(k="initial", user_shared=0)
    for name, value in (("e-1", 1), ("e-2", 2)):
        writer = await t.writer(name)
        user = Event(
            author="user", message=f"ask {value}", invocation_id=name, state={"k": value, f"only{value}": True}
        )
        await writer.append(user, begins=True)
        await writer.append(Event(author="a", message=f"say {value}", invocation_id=name))
        await writer.finish(InvocationStatus.COMPLETED)
    writer = await t.writer("e-3")
    actions = EventActions(
        rewind_before_invocation_id="e-2", rewind_before_seq=3, state_delta={"k": 1}, state_removed=["only2"]
    )
    await writer.append(Event(author="user", invocation_id="e-3", actions=actions))
    expect("what the writer sees", [event.seq for event in writer.live.events], [1, 2, 5])
    await writer.finish(None)
    session = await t.get()
    await t.append(session, "after")
    return session


@check
async def _what_a_rewind_undoes_is_hidden_and_kept(t: Bench) -> None:
    """Sessions and windows leave it out, the log has it, and the state is the fold of the log as ever."""
    session = await _history(t)
    expect("what is seen", [event.seq for event in (await t.get()).events], [1, 2, 5, 6])
    windows = [
        (GetSessionConfig(num_recent_events=3), [2, 5, 6]),
        (GetSessionConfig(num_recent_events=1), [6]),
        (GetSessionConfig(after_seq=1), [2, 5, 6]),
        (GetSessionConfig(after_seq=3), [5, 6]),
        (GetSessionConfig(after_seq=1, num_recent_events=2), [5, 6]),
    ]
    for config, seqs in windows:
        expect(f"what {config} shows", [event.seq for event in (await t.get("s", config)).events], seqs)
    log = await t.events()
    expect("the log", [event.seq for event in log], list(range(7)))
    expect("the state", dict((await t.get()).state), folded(log))
    expect("what it is", dict(session.state), {"k": 1, "only1": True, "user:shared": 0})
    with raises(InvalidEventError, "rewind_async"):
        actions = EventActions(rewind_before_seq=1, rewind_before_invocation_id="e-1")
        await t.service.append_event(session, Event(author="a", actions=actions))


@check
async def _a_fork_begins_with_the_past(t: Bench) -> None:
    """At each event: the same events, what was visible and the state then; neither side changes the other."""
    await _history(t)
    log = await t.events()
    visible = {0: [], 1: [1], 2: [1, 2], 3: [1, 2, 3], 4: [1, 2, 3, 4], 5: [1, 2, 5], 6: [1, 2, 5, 6]}
    forking = partial(t.service.fork_session, app_name=t.app, user_id="u", session_id="s")
    for at, seqs in visible.items():
        fork = await forking(at_seq=at, new_session_id=f"f{at}")
        expect("revision", fork.revision, at)
        expect("what is seen", [event.seq for event in fork.events], seqs)
        expect("the log", await t.events(f"f{at}"), log[: at + 1])
        expect("the state", dict(fork.state), folded(log[: at + 1]))
        await t.append(fork, "own", k="own")
        await t.unchanged(fork)
    expect("the original", await t.events(), log)
    head = await forking()
    expect("the head", (head.revision, head.id != "s"), (6, True))
    with raises(AlreadyExistsError, "f3"):
        await forking(new_session_id="f3")
    with raises(InvalidValueError, "at_seq"):
        await forking(at_seq=7)
    await t.delete()
    for at in visible:
        expect("after the original is deleted", (await t.events(f"f{at}"))[: at + 1], log[: at + 1])
    with raises(SessionNotFoundError):
        await forking()


@check
async def _a_fork_closes_what_it_has_cut(t: Bench) -> None:
    """A call that is answered after the place of the fork is open there; the fork's invocation is interrupted."""
    await t.create()
    writer = await t.writer()
    await writer.append(Event(author="user", message="hi", invocation_id="e-1"), begins=True)
    call = Content(role="model", parts=[Part(function_call=FunctionCall(name="f", id="c1"))])
    await writer.append(Event(author="a", invocation_id="e-1", content=call))
    fork = await t.service.fork_session(app_name=t.app, user_id="u", session_id="s", new_session_id="f")
    expect("its events", fork.revision, 2)
    other = await t.writer("e-2", "f")
    expect("open in the fork", list(other.live.open_calls), ["c1"])
    await other.finish(None)
    await writer.finish(InvocationStatus.FAILED)
    found = await t.service.list_invocations(app_name=t.app)
    statuses = {invocation.session_id: str(invocation.status) for invocation in found}
    expect("their status", statuses, {"s": "failed", "f": "interrupted"})


@check
async def _an_imported_history_reads_the_same(t: Bench) -> None:
    """Events, what is visible, and state; it can be written on. A broken history is refused, and nothing is stored."""
    await _history(t)
    log = await t.events()
    importing = partial(t.service.import_session, app_name=t.app, user_id="other")
    copy = await importing(session_id="copy", events=log)
    expect("the log", await t.events("copy", user="other"), log)
    expect("what is seen", [event.seq for event in copy.events], [1, 2, 5, 6])
    expect("the state", dict(copy.state), folded(log))
    await t.append(copy, "own")
    await t.unchanged(copy)
    with raises(AlreadyExistsError, "copy"):
        await importing(session_id="copy", events=log)
    for broken in ([], log[1:], [*log[:3], *log[4:]], [*log, log[-1]]):
        with raises(InvalidValueError, "events"):
            await importing(session_id="broken", events=broken)
    expect("nothing of them", await t.find("broken", user="other"), None)
