"""
Speech whose text was known only after it was answered: in prompts it stands before the answer, as it was said.

Its event names the first event of the answer (`live["before_seq"]`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._values import changed
from ..events import Event
from ..types import Content

if TYPE_CHECKING:
    from ._transcript import Transcript

__all__ = ["take"]


def take(transcript: Transcript, event: Event, content: Content) -> None:
    """
    Let *transcript* show what was said in a live run, in its place.

    Requests that were made before keep what they have shown: the contents go on in a list of their own.
    """
    before = (event.live or {}).get("before_seq")
    place = transcript._places.get(before) if isinstance(before, int) else None
    if place is None or event.author != "user":
        transcript._places[event.seq] = len(transcript._contents)
        transcript._take(event, content)
        return
    transcript._contents = list(transcript._contents)
    transcript._contents.insert(place, changed(content, role="user"))
    transcript._places = {each: at + (at >= place) for each, at in transcript._places.items()}
