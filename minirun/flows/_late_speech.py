"""
Speech whose text was known only after what followed it: in prompts it stands before that, as it was said.

Its event names the first event of the answer, or what the user has said next (`live["before_seq"]`). And answers that
were cut off while they were played, after they had been stored: of these what was heard is shown, as a later event
tells (`live["cut_seq"]`). And answers of which there is no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._json import FrozenTuple
from .._values import changed
from ..events import Event
from ..types import Content, Part
from ._branches import is_visible

if TYPE_CHECKING:
    from ._transcript import Transcript

__all__ = ["stand_in", "take"]

# What is shown of an answer of which nothing is known, or nothing was heard.
_SOMETHING = "..."


def take(transcript: Transcript, event: Event, content: Content) -> None:
    """
    Let *transcript* show what was said in a live run, in its place.

    Requests that were made before keep what they have shown: the contents go on in a list of their own.
    """
    before = (event.live or {}).get("before_seq")
    place = transcript._places.get(before) if isinstance(before, int) else None
    if place is None or event.author != "user":
        before = len(transcript._contents)
        transcript._take(event, content)
        transcript._places[event.seq] = max(before, len(transcript._contents) - 1)  # something may stand in before it
        return
    transcript._contents = list(transcript._contents)
    late = changed(content, role="user")
    if place and transcript._contents[place - 1].text == transcript.prompts.earlier:
        transcript._contents[place - 1] = late  # which stood in for it
        transcript._places[event.seq] = place - 1
        return
    transcript._contents.insert(place, late)
    transcript._places = {each: at + (at >= place) for each, at in transcript._places.items()}
    transcript._places[event.seq] = place  # something said before it may be understood even later


def stand_in(transcript: Transcript, event: Event) -> None:
    """
    Let *transcript* show what an *event* without content tells of an answer: what was heard of it by now, or that it
    was given in sound or pictures alone. Then it stands there without them, as it was an answer.
    """
    live = event.live or {}
    if "cut_seq" in live:
        _cut(transcript, event)
        return
    was_given = not event.interrupted and (event.output_transcription is not None or "media" in live)
    if was_given and is_visible(event.branch, transcript._branch):
        take(transcript, event, Content(role="model", parts=[Part(text=_SOMETHING)]))


def _cut(transcript: Transcript, event: Event) -> None:
    place = transcript._places.get((event.live or {}).get("cut_seq"))
    if place is None or place >= len(transcript._contents):
        return
    heard = (event.custom_metadata or {}).get("heard")
    transcript._contents = list(transcript._contents)
    shown = transcript._contents[place]
    transcript._contents[place] = changed(shown, parts=FrozenTuple([Part(text=str(heard or _SOMETHING))]))
