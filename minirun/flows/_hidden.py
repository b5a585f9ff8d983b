"""
Messages that a guardrail has taken out of prompts: they stay in the log, and a later event says that they are hidden.

That event (`Replay.hides`) is the guardrail's verdict. If it has content, that is shown in the place of the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .._values import changed
from ..events import Event
from ..types import Content, Part

if TYPE_CHECKING:
    from ._transcript import Transcript

__all__ = ["hide", "without_hidden"]


def hide(transcript: Transcript, verdict: Event) -> None:
    """
    Let *transcript* show what *verdict* says instead of what it hides.

    Requests that were made before keep what they have shown: the contents go on in a list of their own.
    """
    hidden = verdict.actions.replay.hides
    place = transcript._places.get(hidden)
    if place is None:
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


def without_hidden(events: Iterable[Event]) -> Sequence[Event]:
    """Return *events* as models are told of them: without what is hidden, and with what is shown in its place."""
    told = list(events)
    verdicts = {event.actions.replay.hides: event for event in told if event.actions.replay.hides is not None}
    if not verdicts:
        return told
    shown = []
    for event in told:
        verdict = None if event.id is None else verdicts.get(event.id)
        if verdict is None and event.actions.replay.hides is None:
            shown.append(event)
        elif verdict is not None and verdict.content is not None:
            shown.append(changed(event, content=verdict.content))
    return shown
