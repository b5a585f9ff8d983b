"""
From the log to the prompt.

A transcript reads events once, in order, and keeps the contents that one agent's model is shown. It only ever grows at
its end, so the next turn goes on where the last one stopped, and a prompt is a window over it: the cost of a turn is
what is new, not what there is (promise P9).

Providers want the responses to a content's calls right after it, all of them and in order, while a log may have other
events in between. So a content with calls is shown when they are all answered, together with the answers; what was
said meanwhile stands before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._json import dumps
from .._window import Window
from ..events import Event
from ..types import Content, FunctionResponse, Part, changed

__all__ = ["Transcript"]

# The texts that are added to what was really said.
STILL_RUNNING = {"status": "the call is still running; its result will follow"}
"""Stands in for a response that does not exist yet, when the model is asked all the same."""
EARLIER = "(What was said before is left out.)"
"""The user's side, where what is shown begins with the agent's own words: providers want the user to begin."""
GO_ON = "Go on."
"""The user's side, when it is the agent itself that spoke last and its model is asked all the same."""
OTHER_SAID = "[{author}] said: {text}"
OTHER_CALLED = "[{author}] called {name} with {args}"
OTHER_GOT = "[{author}] got from {name}: {response}"
"""What another agent has done, told by the user's side: a model takes what it reads in its own role for its own."""


class _Unit:
    """A content with calls, and the answers that have come so far."""

    __slots__ = ("answers", "content")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.answers: dict[str | None, Part | None] = {
            part.function_call.id: None for part in content.parts if part.function_call is not None
        }

    def contents(self) -> tuple[Content, Content]:
        """The content and its answers, in call order; stand-ins for those that are missing."""
        parts = []
        for part in self.content.parts:
            call = part.function_call
            if call is not None:
                stand_in = FunctionResponse(id=call.id, name=call.name, response=STILL_RUNNING)
                parts.append(self.answers[call.id] or Part(function_response=stand_in))
        return self.content, Content(role="user", parts=parts)


class Transcript:
    """
    The contents of a history, as the agent of this name is shown it in its branch, from the event *start_seq* on.

    What is said in a branch beside its own is not shown. `next_seq` is the `seq` of the first event that was not read
    yet.
    """

    __slots__ = ("_agent_name", "_branch", "_contents", "_open", "next_seq", "start_seq")

    def __init__(self, agent_name: str, start_seq: int, branch: str | None = None) -> None:
        self.start_seq = start_seq
        self.next_seq = start_seq
        self._agent_name = agent_name
        self._branch = branch
        self._contents: list[Content] = []
        self._open: dict[str | None, _Unit] = {}  # by call id, in the order of the calls

    def read(self, events: Iterable[Event]) -> None:
        """Take over the events that follow."""
        for event in events:
            assert event.seq is not None
            self.next_seq = event.seq + 1
            if event.content is not None and self._is_visible(event.branch):
                self._take(event, event.content)

    def contents(self) -> Sequence[Content]:
        """What the model is shown if it is asked now."""
        if not self._open and self._contents and self._contents[-1].role == "user":
            return Window(self._contents)
        shown = list(self._contents)
        for unit in dict.fromkeys(self._open.values()):
            _extend(shown, unit.contents())
        if shown and shown[-1].role != "user":
            shown.append(Content(role="user", parts=[Part(text=GO_ON)]))
        return Window(shown)

    def _is_visible(self, branch: str | None) -> bool:
        """Whether what is said in *branch* is said before or in this one: where neither is beside the other."""
        mine = self._branch
        return mine is None or branch is None or mine == branch or mine.startswith(f"{branch}.")

    def _take(self, event: Event, content: Content) -> None:
        if event.author not in ("user", self._agent_name):
            content = Content(role="user", parts=_retold(event, content))
            if content.parts:
                _extend(self._contents, [content])
            return
        spoken = tuple(part for part in content.parts if part.function_response is None)
        if len(spoken) < len(content.parts):
            self._answer(part for part in content.parts if part.function_response is not None)
        if all(part.thought and part.thought_signature is None for part in spoken):
            return  # nothing to see
        role = "user" if event.author == "user" else "model"
        if content.role != role or len(spoken) < len(content.parts):
            content = changed(content, role=role, parts=spoken)
        calls = [part.function_call.id for part in spoken if part.function_call is not None]
        if calls:
            unit = _Unit(content)
            self._open.update(dict.fromkeys(calls, unit))
        else:
            _extend(self._contents, [content])

    def _answer(self, parts: Iterable[Part]) -> None:
        """Take over responses; an answer to no call that is shown here is left out."""
        for part in parts:
            assert part.function_response is not None
            unit = self._open.pop(part.function_response.id, None)
            if unit is not None:
                unit.answers[part.function_response.id] = part
                if None not in unit.answers.values():
                    _extend(self._contents, unit.contents())


def _extend(shown: list[Content], contents: Sequence[Content]) -> None:
    if not shown and contents[0].role != "user":
        shown.append(Content(role="user", parts=[Part(text=EARLIER)]))
    shown.extend(contents)


def _retold(event: Event, content: Content) -> list[Part]:
    """What another agent said and did, as text; its thoughts stay its own."""
    parts: list[Part] = []
    for part in content.parts:
        if part.text is not None:
            if part.text and not part.thought:
                parts.append(Part(text=OTHER_SAID.format(author=event.author, text=part.text)))
        elif part.function_call is not None:
            call = part.function_call
            text = OTHER_CALLED.format(author=event.author, name=call.name, args=dumps(call.args))
            parts.append(Part(text=text))
        elif part.function_response is not None:
            answer = part.function_response
            text = OTHER_GOT.format(author=event.author, name=answer.name, response=dumps(answer.response))
            parts.append(Part(text=text))
        else:
            parts.append(part)
    return parts
