"""
Undoing what was said, from an invocation on.

A log never gets shorter. A rewind is one event at its end that says from which `seq` on the history is undone, and
sets the session's own state to what it was before: keys that did not exist are removed. The live session hides what is
undone, so later prompts, windows and agents read as if it had not been; `user:` and `app:` state is shared with other
sessions and stays.

So it is with artifacts: what was the newest version before is the newest again, as a new version that shares its
content, or as none, where there was none. Undone versions stay, and can be loaded by their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

from .._json import brief, dumps, freeze, shown
from .._values import changed
from ..artifacts._run import RunArtifacts
from ..artifacts._values import USER_PREFIX
from ..errors import InvalidValueError, InvocationNotFoundError, StaleSessionError, StorageCorruptError
from ..events import Event, EventActions
from ..sessions import LiveSession
from ..sessions._fold import fold
from ..sessions._messages import take_over_messages
from ..sessions._recovery import recover
from ..sessions._state import MISSING, REMOVED, Values, Write, with_writes

if TYPE_CHECKING:
    from ..artifacts import BaseArtifactService
    from ..runtime import RunConfig
    from ..sessions import BaseSessionService, SessionKey, SessionWriter

__all__ = ["rewind"]


@trio.lowlevel.enable_ki_protection
async def rewind(
    sessions: BaseSessionService,
    artifacts: BaseArtifactService | None,
    key: SessionKey,
    invocation_id: str,
    config: RunConfig,
) -> Event:
    """Undo an invocation and all that came after it, by an event of an invocation of its own; see `rewind_async`."""
    if not isinstance(invocation_id, str) or not invocation_id:
        problem = f"expected the id of an invocation, found {shown(invocation_id)}"
        raise InvalidValueError("rewind_before_invocation_id", problem)
    own_id = f"e-{sessions.env.new_id('invocation')}"
    reject = config.on_busy == "reject"
    writer = await sessions.open_writer(key, own_id, None, reject=reject)
    if writer is None:
        raise await sessions._not_found(key)
    try:
        while True:
            try:
                if writer.live.has_messages:
                    await take_over_messages(writer, None, also_paused=True)
                await recover(writer)
                newest = await sessions.load_events(key, -1, 1)
                if not newest:  # deleted by another process just now
                    raise await sessions._not_found(key)
                event = rewind_event(writer.live, newest[0], invocation_id)
                metadata = config.custom_metadata or None
                event = changed(event, id=f"{own_id}-0", invocation_id=own_id, custom_metadata=metadata)
                if artifacts is None:
                    return await writer.append(event)
                return await _append_with_artifacts(sessions, artifacts, writer, event)
            except StaleSessionError:  # another process was faster; nothing is undone yet
                await writer.reload(None, reject=reject)
    finally:
        with trio.CancelScope(shield=True):
            await writer.finish(None)


async def _append_with_artifacts(
    sessions: BaseSessionService, service: BaseArtifactService, writer: SessionWriter, event: Event
) -> Event:
    """Store the rewind with what it makes of the artifacts."""
    live, key, seq = writer.live, writer.live.key, event.actions.rewind_before_seq
    assert seq is not None
    was_never_rewound = len(live.events) == live.revision
    log = live.events if was_never_rewound else await sessions.load_events(key, 0, None)
    staged, past = service._shares(sessions), partial(iter, log)
    artifacts = RunArtifacts(service, key.app_name, key.user_id, key.session_id, staged=staged, past=past)
    restoring = Restoring(artifacts, log, seq)
    try:
        with trio.CancelScope(shield=True):  # a few records: no cancellation leaves half of it
            delta = freeze(await restoring.restore())
            stored = await writer.append(changed(event, actions=changed(event.actions, artifact_delta=delta)))
    except BaseException:
        with trio.CancelScope(shield=True):
            await restoring.undo()
        raise
    return stored


def rewind_event(live: LiveSession, creation: Event, invocation_id: str) -> Event:
    """
    Return the event that undoes the invocation and all that came after it.

    *live* has the whole history loaded, *creation* is its creation record. The state before the invocation is the fold
    of what is visible of its past: what earlier rewinds have undone changes nothing there.

    Raises:
        InvocationNotFoundError: The visible history has no such invocation.
        StorageCorruptError: What the log says cannot be.
    """
    seq = first_of(live, invocation_id)
    if seq is None:
        msg = (
            f"{live.key} has no invocation {brief(invocation_id)}, or it was undone by an earlier rewind; "
            "`session.events` shows which there are"
        )
        raise InvocationNotFoundError(msg)
    past = live.events[: live.index_of(seq)]
    try:
        before = fold(Values({}, {}, {}), [creation, *past], shared=False).session
    except InvalidValueError as error:  # an operation does not fit what stands there: it was never stored so
        msg = f"the log of {live.key} before event {seq}: {error}; see what `minirun sessions verify` says of it"
        raise StorageCorruptError(msg) from error
    actions = EventActions(rewind_before_invocation_id=invocation_id, rewind_before_seq=seq)
    return Event(author="user", actions=with_writes(actions, _difference(live.values.session, before)))


def first_of(live: LiveSession, invocation_id: str) -> int | None:
    """
    The `seq` of the first visible event of the invocation, which is no rewind; everything must be loaded.

    A rewind is not undone: what it has undone would come back for those who read the log from its end.
    """
    found = (
        event
        for event in live.events
        if event.invocation_id == invocation_id and event.actions.rewind_before_seq is None
    )
    return next((event.seq for event in found), None)


class Restoring:
    """
    What a rewind to the event *seq* makes of the artifacts of a session.

    What was the newest before is told by the whole log, in which also that is named which earlier rewinds have undone:
    none of it, and nothing that came later, is what was there before.

    Where the artifacts are not in the session's own store, it is done before the rewind is stored, and undone if that
    fails. A process that dies in between leaves the artifacts rewound, and the session as it is: rewind it again. Until
    then a rewind of something later restores what the log tells of.
    """

    def __init__(self, artifacts: RunArtifacts, log: Iterable[Event], seq: int) -> None:
        self._artifacts = artifacts
        self._undone: dict[str, int] = {}  # the first version that was named from there on, by name
        self._known: dict[str, int] = {}  # the last that was named before
        for event in log:
            is_undone = event.seq is not None and event.seq >= seq
            for name, number in event.actions.named_artifacts():
                if name.startswith(USER_PREFIX):
                    continue
                if is_undone:
                    self._undone[name] = min(number, self._undone.get(name, number))
                else:
                    self._known[name] = max(number, self._known.get(name, number))
        self._before: dict[str, int | None] = {}

    async def restore(self) -> dict[str, int]:
        """Let the newest versions be again what they were; return the numbers of the new ones, by name."""
        delta = {}
        for name, first in sorted(self._undone.items()):
            numbers = await self._artifacts.versions(name)
            if not numbers or numbers[-1] < first:
                continue  # nothing is left of what is undone
            wanted = [number for number in numbers if self._known.get(name, 0) <= number < first]
            newest = await self._artifacts.version(name, None)
            self._before[name] = None if newest is None else newest.version
            delta[name] = await self._artifacts.restore(name, wanted[-1] if wanted else None)
        return delta

    async def undo(self) -> None:
        """The rewind is not stored: let the newest be what it was before this."""
        await self._artifacts.discard()
        if not self._artifacts.is_staged:
            for name, number in self._before.items():
                await self._artifacts.restore(name, number)


def _difference(now: dict[str, object], wanted: dict[str, object]) -> dict[str, Write]:
    """The writes that turn the state *now* into the *wanted* one; 1, 1.0 and True are three different values."""
    writes: dict[str, Write] = {key: REMOVED for key in sorted(now) if key not in wanted}
    for key, value in sorted(wanted.items()):
        current = now.get(key, MISSING)
        if current is not value and (current is MISSING or dumps(current) != dumps(value)):
            writes[key] = value
    return writes
