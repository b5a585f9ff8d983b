"""
Going on with what has failed: which part of a record is tried again.

Somebody goes on with an invocation that has failed, or was cancelled. That is an event of the user, without content,
which says how the invocation was left (`goes_on_event`). What was recorded before it is not done again, except that
with which the invocation was left:

*   A step that has failed and a model's answer that is an error, if their agent has said nothing after them: what it
    has made of the failure is not recorded, so nothing is if it goes well now.
*   A question that the end has withdrawn: it is asked anew.

They keep their ids, and what is done in their place gets the next ones. All of this follows from the events up to the
one of the user. So every later run finds the same, in whatever process, and a run that is cut off is resumed as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .._json import freeze
from .._values import changed
from ..events import Event, RecordedStep, Replay, seq_of
from ..types import id_of
from ._branches import is_within
from ._turn import INVALID_OUTPUT, REFUSED_OUTPUT

__all__ = ["TriedAgain", "goes_on", "goes_on_event", "is_said"]


def goes_on_event(message: Event, status: str) -> Event:
    """*message* as that of a run which goes on with an invocation that was left in this status."""
    note = freeze({"run": "", "status": status})
    return changed(message, actions=changed(message.actions, replay=Replay(attempt=note)))


def goes_on(event: Event) -> bool:
    """Whether somebody goes on by *event* with an invocation that has failed, or was cancelled."""
    return event.author == "user" and event.actions.replay.attempt is not None


class _Place(NamedTuple):
    """Where something was said: the branch, and the step that it records, if it does."""

    branch: str | None
    step: RecordedStep | None

    def is_last(self, later: Sequence[_Place], failed: Sequence[_Place]) -> bool:
        """Whether nothing was made of a failure here: nothing is said *later*, or has *failed* below, but beside it."""
        return not any(
            is_within(other.branch, self.branch) and not self.is_beside(other) for other in (*failed, *later)
        ) and not any(is_within(self.branch, other.branch) and not self.is_beside(other) for other in later)

    def is_beside(self, other: _Place) -> bool:
        """
        Whether this is the failure of an item of a map, and the *other* one was said in another item, or is of that.

        Items run side by side, so the other one says nothing of what was made of this failure. The path of the step
        tells which items there are: `.../item[1:3]`, whose branches are `item~1` to `item~3`.
        """
        step = self.step
        if step is None or not step.path.endswith("]"):
            return False
        if other.branch == self.branch:
            return other.step is not None and other.step.path == step.path
        first, _, last = step.path[:-1].rpartition("[")[2].partition(":")
        below = (other.branch or "").removeprefix(f"{self.branch}." if self.branch else "").split(".")
        name, _, number = below["@" in below[0] and len(below) > 1].partition("*")[0].partition("+")[0].rpartition("~")
        return name == step.name and number.isdecimal() and int(first) <= int(number) <= int(last)


class TriedAgain:
    """
    What of an invocation is tried again.

    Args:
        events: All that it has stored, in order.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.steps: set[str] = set()
        """The ids of steps that are taken again: who comes to one gives it the next id, and the same key."""
        self.questions: set[str] = set()
        """The ids of questions, as they are claimed: who comes to one asks it under the next."""
        self.events: set[str] = set()
        """The ids of the events of such steps and questions: nobody comes to them."""
        self.answers: set[str] = set()
        """The ids of answers of models that are errors: the model is asked again after them."""
        self.since = 0
        """The seq of the event by which somebody has gone on last; 0: nobody has."""
        start = 0
        for end, event in enumerate(events):
            if goes_on(event):
                self._add(events[start:end])
                start, self.since = end, seq_of(event)

    def is_before(self, event: Event) -> bool:
        """Whether somebody has gone on with the invocation since *event*."""
        return seq_of(event) < self.since

    def _add(self, events: Sequence[Event]) -> None:
        """Note what is tried again of the events of one attempt."""
        ids = {event.id for event in events}
        later: list[_Place] = []  # where something was said after the event that is looked at
        failed: list[_Place] = []  # where a step, or a node that was run there, is tried again
        for event in reversed(events):
            replay, event_id = event.actions.replay, id_of(event)
            here = _Place(event.branch, replay.step)
            is_last = event.error_code is not None and here.is_last(later, failed)
            if replay.step is not None and is_last:
                self.steps.add(event_id)
                self.events.add(event_id)
                failed.append(here)  # what has failed inside of that is tried again, too
                continue
            if is_last and _is_error(event):
                self.answers.add(event_id)
            elif replay.aside and event.author != "user":
                for response in event.get_function_responses():
                    asked = f"{response.id}-asked"
                    if asked in ids and "error" in response.response:
                        self.questions.add(id_of(response).removeprefix("q-"))
                        self.events.add(asked)
            if is_said(event):
                later.append(here)


def is_said(event: Event) -> bool:
    """Whether an agent has said *event* in the course of its logic: it does so again whenever it is run."""
    replay = event.actions.replay
    is_something = event.content is not None or event.output is not None or replay.step is not None
    return event.author != "user" and not replay.aside and is_something


def _is_error(event: Event) -> bool:
    """Whether *event* may be a model's answer that is an error, and not one of which the model was told."""
    replay = event.actions.replay
    is_answer = event.author != "user" and not replay.aside and replay.ended is None and replay.again is None
    return is_answer and event.error_code not in (None, INVALID_OUTPUT, REFUSED_OUTPUT)
