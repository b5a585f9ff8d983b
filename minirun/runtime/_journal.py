"""
Going on with an invocation: what it has done is read from the log, not done again.

Who resumes runs the root agent from its start. Every event of an invocation has an id that follows from where it was
said (path and counter), so an agent that comes to a place where it has spoken before finds its event there: it is not
stored again, and nobody is asked again for it. That is *replaying*. Where the log ends, the agents go on.

What its own logic reads of the state while it replays is what it has read then; see `_reads`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import trio

from ..events import Event
from ..sessions import LiveSession
from ..sessions._live import visible_tail
from ..types import FunctionResponse
from ._failure import leaves
from ._reads import ReadRecord, recorded_reads

__all__ = ["Journal", "Pause", "is_pause"]


class Pause(BaseException):
    """
    Unwinds an agent that has to wait for something outside; the invocation is paused when all have unwound or ended.

    It is no `Exception`, so that an agent's own error handling lets it pass. Who runs agents side by side lets the
    others come to their end first, and raises it then.
    """


def is_pause(error: BaseException | None) -> bool:
    """Whether *error* says that something waits, and nothing else but cancellations."""
    if error is None:
        return False
    found = list(leaves(error))
    return any(isinstance(leaf, Pause) for leaf in found) and all(
        isinstance(leaf, (Pause, trio.Cancelled)) for leaf in found
    )


class Journal:
    """
    What an invocation has recorded so far.

    Args:
        log: What is stored from its message on, in order; what was undone or belongs to others is left out here.
        live: The session as it is now.
    """

    def __init__(self, invocation_id: str, log: Sequence[Event], live: LiveSession) -> None:
        visible = visible_tail(reversed(log), live.revision + 1)[0]
        mine = [event for event in visible if event.invocation_id == invocation_id]
        self.message = mine[0]
        self.recorded = mine
        self.open_before = set(live.open_calls)
        self.fresh = {response.id for response in mine[-1].get_function_responses()}  # what this run's message answers
        self.responses: dict[str, Event] = {}  # by call id: the event that answers it
        for event in mine:
            self.responses.update((response.id or "", event) for response in event.get_function_responses())
        self._by_id = {event.id: event for event in mine}
        self._live = live
        self._reached: dict[str | None, int] = {}  # by branch: the newest event that was replayed there
        self._reads = recorded_reads(mine)

    def reads(self, reader: str) -> Mapping[str, ReadRecord]:
        """What is recorded of what *reader* has read, by key."""
        return self._reads.get(reader, {})

    def find(self, event_id: str) -> Event | None:
        """The event of this id, if it was recorded."""
        return self._by_id.get(event_id)

    def response_to(self, call_id: str) -> FunctionResponse | None:
        """What the call of this id was answered with before this run, or with its message."""
        event = self.responses.get(call_id)
        if event is None:
            return None
        return next(response for response in event.get_function_responses() if response.id == call_id)

    def questions(self, call_id: str) -> dict[str, str]:
        """What a call has asked, but not agents inside of it: the names of the questions, by their ids."""
        return {
            call.id or "": call.name
            for event in self.recorded
            if event.long_running_tool_ids and call_id in event.actions.suspended_calls
            for call in event.get_function_calls()
        }

    def has_asked_inside(self, call_id: str) -> bool:
        """Whether an agent inside of a call has asked something."""
        inside = f"@{call_id}"
        return any(event.long_running_tool_ids and inside in (event.branch or "") for event in self.recorded)

    def is_ahead(self, branch: str | None) -> bool:
        """Whether something was recorded in this branch, or inside of it, that was not come to yet."""
        return any(
            (event.seq or 0) > self._reached_in(event.branch) for event in self.recorded if _is_said_in(event, branch)
        )

    def advance(self, event: Event) -> None:
        """An agent has come to *event*: what was stored until then in its branch is behind it."""
        seq = event.seq or 0
        self._reached[event.branch] = max(seq, self._reached.get(event.branch, 0))

    def catch_up(self, branch: str | None) -> None:
        """Somebody in *branch* does something new: nothing is ahead of it any more."""
        self._reached[branch] = self._live.revision

    def steps(self, path: str) -> Iterator[str]:
        """The ids of the events that record steps on *path*, in order."""
        for event in self.recorded:
            step = (event.actions.replay or {}).get("step")
            if step is not None and step["path"] == path:
                yield event.id or ""

    def _reached_in(self, branch: str | None) -> int:
        """How far agents have come in this branch: also by what was replayed in branches around it."""
        reached = [seq for other, seq in self._reached.items() if other is None or _is_within(branch, other)]
        return max(reached, default=0)


def _is_within(branch: str | None, outer: str | None) -> bool:
    return outer is None or branch == outer or (branch is not None and branch.startswith(f"{outer}."))


def _is_said_in(event: Event, branch: str | None) -> bool:
    """Whether *event* was said by an agent in this branch, and is more than a mark that it waits."""
    if event.author == "user" or event.long_running_tool_ids or event.actions.suspended_calls:
        return False
    return _is_within(event.branch, branch)
