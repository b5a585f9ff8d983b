"""
From the log to the prompt.

A transcript reads events once, in order, and keeps the contents that one agent's model is shown. It only ever grows at
its end, so the next turn goes on where the last one stopped, and a prompt is a window over it: the cost of a turn is
what is new, not what there is (promise P9).

Providers want the responses to a content's calls right after it, all of them and in order, while a log may have other
events in between. So a content with calls is shown when they are all answered, together with the answers; what was
said meanwhile stands before it.

Who sees whom is a matter of branches, dotted paths that grow where agents set out side by side. What is said before or
inside one's own branch is seen, what is said beside it is not. A part with an `@` (`helper@<call id>`) is the inside of
a call: it is not seen from outside, nor what is outside from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._json import FrozenTuple
from .._values import changed
from .._window import Extended, Window
from ..events import Event
from ..types import Content, FunctionResponse, Part
from ._branches import is_visible
from ._prompts import Prompts
from ._questions import QUESTIONS

__all__ = ["Transcript"]

# What is shown of a response that was spoken without a transcript, or of which nothing was played.
_NO_TEXT = "..."


class _Unit:
    """A content with calls, the answers that have come so far, and how many have not."""

    __slots__ = ("answers", "content", "missing")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.answers: dict[str | None, Part | None] = dict.fromkeys(call.id for call in content.calls)
        self.missing = len(self.answers)

    def contents(self, prompts: Prompts) -> tuple[Content, Content]:
        """The content and its answers, in call order; stand-ins for those that are missing."""
        parts = []
        for call in self.content.calls:
            stand_in = FunctionResponse(id=call.id, name=call.name, response={"status": prompts.still_running})
            parts.append(self.answers[call.id] or Part(function_response=stand_in))
        return self.content, Content(role="user", parts=parts)


class Transcript:
    """
    The contents of a history, as the agent of this name is shown it in its branch, from the event *start_seq* on.

    `next_seq` is the `seq` of the first event that was not read yet, `prompts` the words for what stands in for others.
    *opening* is shown before all of it. Unless the model *sees_media*, it is shown the responses of tools without their
    media; the responses name what was left out.
    """

    __slots__ = (
        "_agent_name", "_branch", "_contents", "_open", "_places", "_sees_media", "_visible", "next_seq",
        "prompts", "start_seq",
    )  # fmt: skip

    def __init__(
        self,
        agent_name: str,
        start_seq: int,
        branch: str | None = None,
        *,
        prompts: Prompts = Prompts(),  # noqa: B008 # frozen
        opening: Content | None = None,
        sees_media: bool = True,
    ) -> None:
        self.start_seq = start_seq
        self.next_seq = start_seq
        self._agent_name = agent_name
        self._branch = branch
        self.prompts = prompts
        self._sees_media = sees_media
        self._contents: list[Content] = [] if opening is None else [opening]
        self._places: dict[str | int | None, int] = {}  # of the user's messages, by their ids; of speech, by `seq`
        self._open: dict[str | None, _Unit] = {}  # by call id, in the order of the calls
        self._visible: dict[str | None, bool] = {}  # by branch

    def read(self, events: Iterable[Event]) -> None:
        """Take over the events that follow."""
        for event in events:
            assert event.seq is not None
            self.next_seq = event.seq + 1
            if event.actions.replay.hides is not None:
                from ._hidden import hide  # few messages are hidden

                hide(self, event)
            elif event.content is not None:
                visible = self._visible.get(event.branch)
                if visible is None:
                    visible = self._visible[event.branch] = is_visible(event.branch, self._branch)
                if visible:
                    self._take(event, event.content)
                    if event.live is not None:
                        self._places[event.seq] = len(self._contents) - 1
            elif event.live is not None:
                self._take_live(event)

    def _take_live(self, event: Event) -> None:
        """
        Read an event of a live run without content.

        It tells how much of an earlier response was played (`live["cut_seq"]`), or is a response without a transcript:
        something was said, so the model is shown that, and does not answer again.
        """
        live = event.live or {}
        place = self._places.get(live.get("cut_seq"))
        if place is not None and place < len(self._contents):
            heard = str((event.custom_metadata or {}).get("heard") or _NO_TEXT)
            self._contents = list(self._contents)  # requests that were made before keep what they have shown
            self._contents[place] = changed(self._contents[place], parts=FrozenTuple([Part(text=heard)]))
        elif event.output_transcription is None or event.interrupted:
            return
        elif is_visible(event.branch, self._branch):
            self._take(event, Content(role="model", parts=[Part(text=_NO_TEXT)]))

    def contents(self, *, asks: bool = True) -> Window[Content] | Extended[Content]:
        """What the model is shown if it is asked now: what it has been shown, shared, and what stands for the rest.

        If it is only told, and nobody *asks*, the last word need not be the user's.
        """
        shared = Window(self._contents)
        own: list[Content] = []
        for unit in dict.fromkeys(self._open.values()):
            self._extend(own, unit.contents(self.prompts), begins=not shared)
        last = own[-1] if own else shared[-1] if shared else None
        if asks and (last is None or last.role != "user"):
            own.append(Content(role="user", parts=[Part(text=self.prompts.go_on)]))
        return Extended(shared, own) if own else shared

    def _take(self, event: Event, content: Content) -> None:
        calls, responses = content.calls_and_responses
        if any(item.name in QUESTIONS for items in (calls, responses) for item in items):
            told = FrozenTuple([part for part in content.parts if not _is_question(part)])
            if not told:
                return
            content = changed(content, parts=told)
        if event.author not in ("user", self._agent_name):
            from ._retold import retold  # many agents are alone

            content = Content(role="user", parts=retold(self.prompts, event, content, self._agent_name))
            if content.parts:
                self._extend(self._contents, [content])
            return
        calls, responses = content.calls_and_responses  # of what is shown
        spoken = content.parts
        if responses:
            spoken = FrozenTuple([part for part in content.parts if part.function_response is None])
            self._answer(part for part in content.parts if part.function_response is not None)
        if all(part.thought and part.thought_signature is None for part in spoken):
            return  # nothing to see
        # what an agent says in the user's role is said to itself: what its answer lacks, for example
        role = "user" if not calls and "user" in (event.author, content.role) else "model"
        if content.role != role or responses:
            content = changed(content, role=role, parts=spoken)
        if calls:
            unit = _Unit(content)
            self._open.update(dict.fromkeys(unit.answers, unit))
        else:
            self._extend(self._contents, [content])
            if event.author == "user":
                self._places[event.id] = len(self._contents) - 1

    def _answer(self, parts: Iterable[Part]) -> None:
        """Take over responses; an answer to no call that is shown here is left out."""
        for part in parts:
            assert part.function_response is not None
            answer = part.function_response
            unit = self._open.pop(answer.id, None)
            if answer.parts and not self._sees_media:
                part = changed(part, function_response=changed(answer, parts=()))
            if unit is not None:
                unit.answers[answer.id] = part
                unit.missing -= 1
                if not unit.missing:
                    self._extend(self._contents, unit.contents(self.prompts))

    def _extend(self, shown: list[Content], contents: Sequence[Content], *, begins: bool = True) -> None:
        """Add *contents* to *shown*, which *begins* what the model sees, or goes on with it."""
        if begins and not shown and contents[0].role != "user":
            shown.append(Content(role="user", parts=[Part(text=self.prompts.earlier)]))
        shown.extend(contents)


def _is_question(part: Part) -> bool:
    call = part.function_call or part.function_response
    return call is not None and call.name in QUESTIONS
