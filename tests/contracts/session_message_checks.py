"""
The checks of a session service: messages wait for runs, each becomes an event once, and none is left by a run that is
completed. A service that keeps no messages says so; then there is nothing to check.
"""

from __future__ import annotations

from minirun.errors import InvocationEndedError, InvocationNotFoundError, NotSupportedError, SessionNotFoundError
from minirun.events import Event, EventActions, Replay
from minirun.sessions import InvocationStatus, SessionWriter
from minirun.sessions._messages import take_over_messages
from minirun.sessions._store import SessionStore
from minirun.testing._contract import Body, expect, listed_in, raises

from .session_bench import Bench

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable_check = listed_in(DURABLE)


def _message(text: str, invocation_id: str | None = None) -> Event:
    actions = EventActions(replay=Replay(sent="next_model_call"))
    return Event(id=f"m-{text}", author="user", message=text, invocation_id=invocation_id, actions=actions)


def _keeps_messages(t: Bench) -> bool:
    return type(t.service).insert_message is not SessionStore.insert_message


async def _begin(t: Bench, name: str = "e-1") -> SessionWriter:
    writer = await t.writer(name)
    await writer.append(Event(author="user", message="hi", invocation_id=name), begins=True)
    return writer


async def _waiting(t: Bench, writer: SessionWriter) -> list[str]:
    return [message.text for message in await t.service.load_messages(writer.live)]


@check
async def _a_service_that_keeps_no_messages_says_so(t: Bench) -> None:
    """Without `insert_message` of its own, a service refuses messages, and has none."""
    if not _keeps_messages(t):
        await t.create()
        writer = await _begin(t)
        with raises(NotSupportedError):
            await t.service.insert_message(t.key(), _message("1"))
        expect("messages", await _waiting(t, writer), [])
        await writer.finish(InvocationStatus.COMPLETED)


@check
async def _messages_wait_until_they_are_appended(t: Bench) -> None:
    """A message is no part of the log until it is appended, and waits no longer then; others do, in order."""
    if not _keeps_messages(t):
        return
    await t.create()
    writer = await _begin(t)
    await t.service.insert_message(t.key(), _message("1"))
    await t.service.insert_message(t.key(), _message("2", "e-1"))
    expect("what waits", await _waiting(t, writer), ["1", "2"])
    expect("the log", [event.text for event in await t.events()], ["", "hi"])
    await writer.append(Event(author="agent", message="ho", invocation_id="e-1"))
    expect("whether the run knows", writer.live.has_messages, True)
    first, second = await t.service.load_messages(writer.live)
    expect("whom they are for", (first.invocation_id, second.invocation_id), ("e-1", "e-1"))
    stored = await writer.append(first)
    expect("the event", (stored.id, stored.seq, stored.text), ("m-1", 3, "1"))
    expect("what still waits", await _waiting(t, writer), ["2"])
    await writer.append(second)
    expect("what waits in the end", await _waiting(t, writer), [])
    expect("whether the run is left", await writer.finish(InvocationStatus.COMPLETED), True)
    await t.unchanged(await t.get())


@check
async def _what_is_called_is_not_completed(t: Bench) -> None:
    """A run for which a message waits is not completed, and goes on; it fails, is cancelled or paused all the same."""
    if not _keeps_messages(t):
        return
    await t.create()
    writer = await _begin(t)
    await t.service.insert_message(t.key(), _message("1"))
    expect("whether it is left", await writer.finish(InvocationStatus.COMPLETED), False)
    [found] = await t.service.list_invocations(app_name=t.app, user_id="u", session_id="s")
    expect("its status", found.status, InvocationStatus.RUNNING)
    expect("whether the run knows", writer.live.has_messages, True)
    [message] = await t.service.load_messages(writer.live)
    await writer.append(message)
    await t.service.insert_message(t.key(), _message("2"))
    await writer.record_end(InvocationStatus.COMPLETED)
    [found] = await t.service.list_invocations(app_name=t.app, user_id="u", session_id="s")
    expect("what is recorded early", found.status, InvocationStatus.RUNNING)
    expect("whether it is left as failed", await writer.finish(InvocationStatus.FAILED), True)
    with raises(InvocationEndedError, "e-1", "failed"):
        await t.service.insert_message(t.key(), _message("3"))
    writer = await t.writer("e-2")
    expect("what is left", await _waiting(t, writer), ["2"])
    expect("whether the next run knows", writer.live.has_messages, True)
    await take_over_messages(writer, "e-2")
    expect("what was taken over", [(one.text, one.invocation_id) for one in (await t.events())[-1:]], [("2", "e-1")])
    await writer.append(Event(author="user", message="again", invocation_id="e-2"), begins=True)
    expect("what waits then", await _waiting(t, writer), [])
    expect("whether the next run is left", await writer.finish(InvocationStatus.COMPLETED), True)


@check
async def _messages_are_for_what_is_under_way(t: Bench) -> None:
    """A message goes to the invocation that it names, or to the one that runs, or is paused; else it is refused."""
    if not _keeps_messages(t):
        return
    with raises(SessionNotFoundError):
        await t.service.insert_message(t.key("none"), _message("1"))
    await t.create()
    with raises(InvocationNotFoundError):
        await t.service.insert_message(t.key(), _message("1"))
    writer = await _begin(t)
    with raises(InvocationNotFoundError, "e-9"):
        await t.service.insert_message(t.key(), _message("1", "e-9"))
    await writer.finish(InvocationStatus.PAUSED)
    await t.service.insert_message(t.key(), _message("2"))
    writer = await _begin(t, "e-2")
    await t.service.insert_message(t.key(), _message("3"))
    await t.service.insert_message(t.key(), _message("4", "e-1"))
    takers = [message.invocation_id for message in await t.service.load_messages(writer.live)]
    expect("the takers", takers, ["e-1", "e-2", "e-1"])
    await take_over_messages(writer, "e-2")
    expect("what is left to them", await _waiting(t, writer), ["2", "3", "4"])
    await writer.append((await t.service.load_messages(writer.live))[1])
    expect("whether others' messages keep it", await writer.finish(InvocationStatus.COMPLETED), True)
    with raises(InvocationEndedError, "e-2", "completed"):
        await t.service.insert_message(t.key(), _message("5", "e-2"))


@check
async def _messages_go_with_their_session(t: Bench) -> None:
    """A fork has none of the messages, and a session that is made anew has none of the deleted one's."""
    if not _keeps_messages(t):
        return
    await t.create()
    writer = await _begin(t)
    await t.service.insert_message(t.key(), _message("1"))
    await t.service.fork_session(app_name=t.app, user_id="u", session_id="s", new_session_id="fork")
    await writer.finish(InvocationStatus.FAILED)
    forked = await t.writer("e-2", "fork")
    expect("of the fork", await _waiting(t, forked), [])
    await forked.finish(None)
    await t.delete()
    await t.create()
    writer = await _begin(t)
    expect("of the new one", (await _waiting(t, writer), writer.live.has_messages), ([], False))
    expect("whether it is left", await writer.finish(InvocationStatus.COMPLETED), True)


@durable_check
async def _messages_wait_in_the_store(t: Bench) -> None:
    """After closing and opening the store the messages still wait, and a run is told as it enters."""
    async with t.opened():
        if not _keeps_messages(t):
            return
        await t.create()
        writer = await _begin(t)
        await t.service.insert_message(t.key(), _message("1"))
        await t.service.insert_message(t.key(), _message("2"))
        await writer.append((await t.service.load_messages(writer.live))[0])
        await writer.finish(None)
    async with t.opened():
        writer = await t.writer()
        expect("whether the run knows", writer.live.has_messages, True)
        expect("what waits", await _waiting(t, writer), ["2"])
        await writer.append(Event(author="agent", message="on", invocation_id="e-1"), begins=True)
        await writer.append((await t.service.load_messages(writer.live))[0])
        expect("whether it is left", await writer.finish(InvocationStatus.COMPLETED), True)
        expect("the log", [event.text for event in await t.events()], ["", "hi", "1", "on", "2"])
