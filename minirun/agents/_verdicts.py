"""
What a session's log has of the messages that guardrails look at, and of their verdicts.

A message that a model is shown was looked at before, by all guardrails that look there: also one of an earlier run that
was cut off before the verdict. So nobody gets something past a guardrail by leaving at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import GuardrailTripwireError
from ..events import Event
from ..sessions import LiveSession
from ..types import Content, id_of

__all__ = ["STEP", "Looked", "Message", "Verdict"]

STEP = "guardrails"
"""The name of the step that an event of a verdict records."""


class Message(NamedTuple):
    """What somebody has said to an agent."""

    id: str
    """Of the user's event; "" if another agent has asked, inside of a call or a node."""
    content: Content
    seq: int = 0
    invocation_id: str | None = None


class Verdict(NamedTuple):
    """What guardrails have said of a message, as it is stored."""

    event: Event
    what: str
    """`passed`, `replaced`, `retry` or `tripped`."""

    @property
    def shown(self) -> Content | None:
        """What stands in the place of the message."""
        return self.event.content if self.what == "replaced" else None

    def check(self) -> None:
        """Raise if a guardrail has tripped."""
        if self.what == "tripped":
            raise GuardrailTripwireError(self.event.output["info"], guardrail=self.event.output["guardrail"])


class Looked:
    """The messages and verdicts of a session, as far as its log was read; going on reads what is new."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.changed_seq = 0
        """Where the last verdict stands that has changed what prompts show."""
        self._verdicts: dict[str, Verdict] = {}
        self._next_seq = 0
        self._done: dict[tuple[str, int], int] = {}  # how many messages have verdicts of a kind, from the first on

    @classmethod
    def at(cls, live: LiveSession) -> Looked:
        """What is known of *live*, as it is now."""
        found: Looked = live.memo.setdefault("guardrails", cls())
        for event in live.events[live.index_of(found._next_seq) :]:
            found._read(event)
        return found

    def _read(self, event: Event) -> None:
        assert event.seq is not None
        self._next_seq, step = event.seq + 1, event.actions.replay.step
        if event.author == "user" and event.content is not None:
            if not all(part.function_response is not None for part in event.content.parts):
                self.messages.append(Message(id_of(event), event.content, event.seq, event.invocation_id))
        elif step is not None and step.name == STEP and isinstance(event.output, Mapping):
            self._verdicts[step.path] = Verdict(event, str(event.output.get("verdict")))
            if event.content is not None or event.actions.replay.hides is not None:
                self.changed_seq = event.seq

    def verdict(self, place: str) -> Verdict | None:
        """The verdict that was given there, or None."""
        return self._verdicts.get(place)

    def since(self, seq: int) -> list[Message]:
        """The messages from *seq* on."""
        return self.messages[bisect_left(self.messages, seq, key=_seq_of) :]

    def without(self, kind: str, start_seq: int) -> list[Message]:
        """The messages from *start_seq* on that have no verdict of this *kind*: the place is `{kind} {message id}`."""
        done = self._done.get((kind, start_seq))
        if done is None:
            done = len(self.messages) - len(self.since(start_seq))
        while done < len(self.messages) and f"{kind} {self.messages[done].id}" in self._verdicts:
            done += 1
        self._done[kind, start_seq] = done
        return [each for each in self.messages[done:] if f"{kind} {each.id}" not in self._verdicts]


def _seq_of(message: Message) -> int:
    return message.seq
