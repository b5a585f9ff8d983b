"""
From the log to the prompt.

A transcript reads events once, in order, and keeps the contents that a model is shown. It only ever grows at its end,
so the next turn goes on where the last one stopped, and a prompt is a window over it: the cost of a turn is what is
new, not what there is (promise P9).

Providers want the responses to a content's calls right after it, all of them and in order, while a log may have other
events in between. So once a content has calls, what follows waits until they are answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .._window import Window
from ..events import Event
from ..types import Content, FunctionCall, FunctionResponse, Part, changed

__all__ = ["STILL_RUNNING", "Transcript"]

STILL_RUNNING = {"status": "the call is still running; its result will follow"}
"""What stands in for a response that does not exist yet, when the model is asked all the same."""


class Transcript:
    """The contents of a history, as one agent is shown it. `next_seq` is the `seq` of the first event not yet read."""

    __slots__ = ("_answers", "_calls", "_contents", "_held", "next_seq", "start_seq")

    def __init__(self, start_seq: int) -> None:
        self.start_seq = start_seq
        self.next_seq = start_seq
        self._contents: list[Content] = []
        self._calls: list[FunctionCall] = []  # of the last content, while they are not all answered
        self._answers: dict[str, Part] = {}
        self._held: deque[Content] = deque()  # what came after it

    def read(self, events: Iterable[Event]) -> None:
        """Take over the events that follow."""
        for event in events:
            assert event.seq is not None
            self.next_seq = event.seq + 1
            content = _visible(event)
            if content is not None:
                self._take(content)

    def contents(self) -> Window[Content]:
        """What a model is shown now."""
        if not self._calls:
            return Window(self._contents)
        shown = Transcript(0)
        shown._contents = list(self._contents)
        shown._calls, shown._answers, shown._held = self._calls, dict(self._answers), deque(self._held)
        while shown._calls:
            for call in shown._calls:
                stand_in = FunctionResponse(id=call.id, name=call.name, response=STILL_RUNNING)
                shown._answers.setdefault(call.id or "", Part(function_response=stand_in))
            shown._settle()
        return Window(shown._contents)

    def _take(self, content: Content) -> None:
        answers = [part for part in content.parts if part.function_response is not None]
        if self._calls:
            wanted = {call.id for call in self._calls}
            for part in answers:
                assert part.function_response is not None
                if part.function_response.id in wanted:
                    self._answers[part.function_response.id or ""] = part
            rest = [p for p in content.parts if p.function_response is None or p.function_response.id not in wanted]
            if rest:
                self._held.append(changed(content, parts=tuple(rest)) if len(rest) < len(content.parts) else content)
            if len(self._answers) == len(wanted):
                self._settle()
            return
        if answers:  # to calls that this transcript does not show
            rest = [part for part in content.parts if part.function_response is None]
            if not rest:
                return
            content = changed(content, parts=tuple(rest))
        self._contents.append(content)
        self._calls = [part.function_call for part in content.parts if part.function_call is not None]

    def _settle(self) -> None:
        """All calls are answered: show the answers, in call order, and go on with what has waited."""
        parts = tuple(self._answers[call.id or ""] for call in self._calls)
        self._contents.append(Content(role="user", parts=parts))
        self._calls, self._answers = [], {}
        held, self._held = self._held, deque()
        for content in held:
            self._take(content)


def _visible(event: Event) -> Content | None:
    """What a model is shown of *event*, with its role; None if there is nothing to see."""
    content = event.content
    if content is None or all(part.thought and part.thought_signature is None for part in content.parts):
        return None
    role = "user" if event.author == "user" or event.get_function_responses() else "model"
    return content if content.role == role else changed(content, role=role)
