"""
Messages that wait for runs: which run takes one, and what becomes of those that none has taken.

A message that was sent into an invocation waits in the store, beside the log of its session, until the run that works
on the invocation appends it: then it is an event, and in the same transaction it does not wait any more. So it is taken
once, whichever process dies when. A run that would be completed while a message waits for it is not: it takes the
message first (`SessionStore.finish_invocation`). Messages that are left when an invocation has ended in another way are
taken over by the next run of the session, as events of the invocation they were sent to, before its own message.

The end of a run may reach the store late, when that has failed meanwhile or another process has taken the session. An
invocation that messages have come to by then, waiting or taken over, is not recorded as completed: it is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._codec import from_json
from .._json import brief
from .._values import changed
from ..errors import InvalidValueError, InvocationEndedError, InvocationNotFoundError
from ..events import Event
from ._invocation import Invocation, InvocationStatus
from ._key import SessionKey
from ._store import SessionWriter

__all__ = ["has_message", "message_from_json", "received", "take_over_messages"]


def received(key: SessionKey, message: Event, runs: Sequence[Invocation]) -> Event:
    """
    Return *message* as it waits: for the invocation that it names, or for the one of the session that is under way.

    *runs* are the session's invocations as they are now, oldest first; those that have ended may be left out, but the
    newest and the one that is named. One that runs, or was interrupted, is preferred to one that is paused.

    Raises:
        InvocationNotFoundError: There is no invocation of that name, or none at all.
        InvocationEndedError: It has ended, or all have.
    """
    named = message.invocation_id
    if named is not None:
        runs = [run for run in runs if run.invocation_id == named]
        if not runs:
            raise InvocationNotFoundError(f"{key} has no invocation {brief(named)}; leave invocation_id out")
    if not runs:
        msg = f"expected an invocation of {key} that runs, found none yet; begin one with run_async(new_message=...)"
        raise InvocationNotFoundError(msg)
    under_way = [run for run in runs if not run.status.has_ended]
    if not under_way:
        last = runs[-1]
        msg = f"the invocation {last.invocation_id} of {key} has ended ({last.status}), and takes no message any more"
        raise InvocationEndedError(f"{msg}; send it as a new message, with run_async(new_message=...)")
    at_work = [run for run in under_way if run.status is not InvocationStatus.PAUSED]
    return changed(message, invocation_id=(at_work or under_way)[-1].invocation_id)


def message_from_json(text: str) -> Event:
    """
    Read a message that waits.

    Raises:
        InvalidValueError: It is none.
    """
    message = from_json(Event, text)
    if message.invocation_id is None or message.actions.replay.sent is None:
        raise InvalidValueError("Event", "expected a message that was sent into an invocation")
    return message


def has_message(events: Iterable[Event], invocation_id: str) -> bool:
    """Whether one of *events*, in the log or waiting, is a message that was sent into this invocation."""
    return any(event.actions.replay.sent is not None and event.invocation_id == invocation_id for event in events)


async def take_over_messages(writer: SessionWriter, resumed: str | None, *, also_paused: bool = False) -> None:
    """
    Append what waits for invocations that no run will go on with, in order, before anything else of this run.

    What waits for the invocation that is being *resumed*, or for one that is paused, is left to it; the latter not if
    *also_paused*, where all of it is about to be undone.

    Raises:
        StaleSessionError, StorageError: See `SessionWriter.append`; what was appended until then is stored.
    """
    service, key = writer.service, writer.live.key
    for message in await service.load_messages(writer.live):
        name = message.invocation_id
        assert name is not None, "what waits is for an invocation"
        found = None if name == resumed else await service.load_invocation(key, name)
        is_paused = found is not None and found.status is InvocationStatus.PAUSED
        if name != resumed and (also_paused or not is_paused):
            await writer.append(message)
