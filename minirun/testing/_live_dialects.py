"""How the two providers of live models differ, as far as a connection shows it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from ..models import LiveCapabilities

__all__ = ["DIALECTS", "Dialect", "DialectName"]

DialectName: TypeAlias = Literal["gemini", "openai"]


@attrs.frozen(kw_only=True)
class Dialect:
    """
    What one provider does.

    Args:
        capabilities: What its connections are able to do.
        content_interrupts: A content that is to be answered cuts off the answer that is being given. Else it waits for
            its end; the adapter does so, as the server would refuse it.
        finishes: The server says where a transcript ends.
        transcript_first: The words come before their sound; else after it.
        calls_at_once: The calls of an answer come together; else one by one.
        over_when_made: An answer is over when it is made. Else the server reckons how long it plays, and a connection
            can still hear that it was interrupted; an answer with calls goes on after their responses.
        tells_speech: The server says when it hears the user's voice, without being asked to.
        resumes: The server has handles, withdraws calls, and says when it goes away.
    """

    capabilities: LiveCapabilities
    content_interrupts: bool
    finishes: bool
    transcript_first: bool
    calls_at_once: bool
    over_when_made: bool
    tells_speech: bool
    resumes: bool


# Lifetimes: Gemini's connections last about ten minutes, OpenAI's sessions an hour.
DIALECTS: dict[str, Dialect] = {
    "gemini": Dialect(
        capabilities=LiveCapabilities(knows_playback=True, lifetime_s=600.0, input_rate=16000),
        content_interrupts=True,
        finishes=False,
        transcript_first=False,
        calls_at_once=True,
        over_when_made=False,
        tells_speech=False,
        resumes=True,
    ),
    "openai": Dialect(
        capabilities=LiveCapabilities(lifetime_s=3600.0, input_rate=24000, finishes_transcripts=True),
        content_interrupts=False,
        finishes=True,
        transcript_first=True,
        calls_at_once=False,
        over_when_made=True,
        tells_speech=True,
        resumes=False,
    ),
}
