"""
Messages that a guardrail has taken out of prompts: they stay in the log, and a later event says that they are hidden.

That event (`Replay.hides`) is the guardrail's verdict. If it has content, that is shown in the place of the message, to
those who see the branch of the verdict; if it has none, the message is shown to nobody any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .._values import changed
from ..events import Event
from ..types import Content, Part
from ._branches import is_visible

if TYPE_CHECKING:
    from ._transcript import Transcript

__all__ = ["hide", "without_hidden"]


def hide(transcript: Transcript, verdict: Event) -> None:
    """
    Let *transcript* show what *verdict* says instead of what it hides.

    Requests that were made before keep what they have shown: the contents go on in a list of their own.
    """
    hidden, place = verdict.actions.replay.hides, transcript._places.get(verdict.actions.replay.hides)
    if place is None or not (verdict.content is None or is_visible(verdict.branch, transcript._branch)):
        return
    contents = transcript._contents = list(transcript._contents)
    if verdict.content is not None:
        contents[place] = changed(verdict.content, role="user")
    elif place == 0 and len(contents) > 1 and contents[1].role != "user":
        contents[0] = Content(role="user", parts=[Part(text=transcript.prompts.earlier)])
        del transcript._places[hidden]
    else:
        del contents[place]
        places = transcript._places.items()
        transcript._places = {each: at - (at > place) for each, at in places if each != hidden}


def without_hidden(events: Iterable[Event], branch: str | None = None) -> Sequence[Event]:
    """Return *events* as somebody in *branch* is shown them: without what is hidden, and with what is shown instead."""
    shown = list(events)
    verdicts = {}
    for event in shown:
        if event.actions.replay.hides is not None and (event.content is None or is_visible(event.branch, branch)):
            verdicts[event.actions.replay.hides] = event
    if not verdicts:
        return shown
    return [
        event if event.id not in verdicts else changed(event, content=verdicts[event.id].content)
        for event in shown
        if event.actions.replay.hides is None
        and not (event.id in verdicts and verdicts[event.id].content is None)
    ]
