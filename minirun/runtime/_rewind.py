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

from .._json import dumps
from ..artifacts._run import RunArtifacts
from ..artifacts._values import USER_PREFIX
from ..errors import InvocationNotFoundError
from ..events import Event, EventActions
from ..sessions import LiveSession
from ..sessions._fold import fold
from ..sessions._state import MISSING, REMOVED, Values, Write, with_writes

__all__ = ["Restoring", "rewind_event"]


def rewind_event(live: LiveSession, creation: Event, invocation_id: str) -> Event:
    """
    Return the event that undoes the invocation and all that came after it.

    *live* has the whole history loaded, *creation* is its creation record. The state before the invocation is the fold
    of what is visible of its past: what earlier rewinds have undone changes nothing there.

    Raises:
        InvocationNotFoundError: The visible history has no such invocation.
    """
    seq = live.first_of(invocation_id)
    if seq is None:
        msg = (
            f"{live.key} has no invocation {invocation_id!r:.80}, or it was undone by an earlier rewind; "
            "`session.events` shows which there are"
        )
        raise InvocationNotFoundError(msg)
    past = live.events[: live.index_of(seq)]
    before = fold(Values({}, {}, {}), [creation, *past], shared=False).session
    actions = EventActions(rewind_before_invocation_id=invocation_id, rewind_before_seq=seq)
    return Event(author="user", actions=with_writes(actions, _difference(live.values.session, before)))


class Restoring:
    """
    What a rewind to the event *seq* makes of the artifacts of a session.

    What was the newest before is told by the whole log, in which also that is named which earlier rewinds have undone:
    none of it, and nothing that came later, is what was there before.

    Where the artifacts are not in the session's own store, it is done before the rewind is stored, and undone if that
    fails; a process that dies in between leaves the artifacts as they were, and the session as it is: rewind it again.
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
