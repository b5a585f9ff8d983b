"""
What a script of `ScriptedLive` is made of.

A script has one *entry* for each thing that is owed an answer, and an entry is a list of *steps*, which the server
plays in order: what it says, hears and does. The functions here make steps; a text, a `Part` of `call(...)`, an
`LlmResponse` and an exception are steps, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from .._json import brief, is_seconds
from ..errors import ScriptError
from ..models import LlmRequest, LlmResponse
from ..types import Blob, Content, Part, UsageMetadata

__all__ = [
    "CancelCalls", "Drop", "Entry", "Error", "GoAway", "Handle", "Hear", "Interrupted", "LiveScript", "LiveSent",
    "Pause", "Say", "Step", "Usage", "cancel_calls", "drop", "error", "go_away", "handle", "hear", "interrupted",
    "pause", "say", "steps_of", "usage",
]


@attrs.frozen
class Pause:
    """Nothing is said for so long."""

    seconds: float


@attrs.frozen
class Drop:
    """The connection ends."""

    code: int


@attrs.frozen
class GoAway:
    """The connection is going to end."""

    seconds: float


@attrs.frozen
class Handle:
    """How the session can be gone on with."""

    handle: str
    resumable: bool
    taken_up: bool


@attrs.frozen
class Say:
    """Part of an answer."""

    text: str
    audio: bool | None


@attrs.frozen
class Hear:
    """What the user has said."""

    text: str
    late: bool


@attrs.frozen
class CancelCalls:
    """Calls are withdrawn."""

    ids: tuple[str, ...]


@attrs.frozen
class Error:
    """An answer has failed, or what was sent last."""

    code: str
    message: str | None


@attrs.frozen
class Usage:
    """What the answer has cost."""

    tokens: UsageMetadata


@attrs.frozen
class Interrupted:
    """The answer is cut off."""


Step: TypeAlias = (
    str | Part | Content | LlmResponse | BaseException | Pause | Drop | GoAway | Handle | Say | Hear | CancelCalls
    | Error | Usage | Interrupted
)
Entry: TypeAlias = Step | Sequence[Step]
LiveScript: TypeAlias = "Sequence[Entry] | Callable[[LiveSent], Entry | None]"


def pause(seconds: float) -> Step:
    """Nothing is said for *seconds*, on trio's clock; an interruption ends it early."""
    return Pause(_seconds("pause", seconds))


def drop(code: int = 1006) -> Step:
    """
    The server ends the connection with this close code.

    With 1000 `receive` ends normally, with 1007 and 1008 it raises ModelRequestError, with others
    ModelConnectionError. Later connections go on with the rest of the script.
    """
    return Drop(code)


def go_away(seconds: float) -> Step:
    """The server says that it ends the connection in *seconds*, and does so (1001). Gemini's dialect only."""
    return GoAway(_seconds("go_away", seconds))


def handle(handle: str, *, resumable: bool = True, taken_up: bool = True) -> Step:
    """
    A handle with which a later connection can go on with the session. Gemini's dialect only.

    Without *resumable* the server says that there is none for the moment; earlier handles stay good. With *taken_up*
    it tells the id of the newest content that it has taken up.
    """
    return Handle(handle, resumable, taken_up)


def say(text: str, *, audio: bool | None = None) -> Step:
    """
    A piece of the answer, word by word: with *audio* sound of a fixed length for each word and its transcript, else
    text. None: as the request's `response_modalities` say.

    Nothing is paced: a minute of sound comes as fast as it is received. The answer is over when its entry is, or where
    the next `hear` or `interrupted` cuts it off.
    """
    return Say(text, audio)


def hear(text: str, *, late: bool = False) -> Step:
    """
    The server has understood *text* of what the user says; it cuts off an answer that is open. With *late* the
    transcript comes after the answer that the entry goes on with.
    """
    return Hear(text, late)


def cancel_calls(*ids: str) -> Step:
    """The server withdraws the calls of these ids; of none: all that are open. Gemini's dialect only."""
    return CancelCalls(ids)


def error(code: str, message: str | None = None) -> Step:
    """The answer has failed, or what was sent last, and the connection goes on. An answer that is open is over."""
    return Error(code, message)


def usage(prompt: int, candidates: int) -> Step:
    """How many tokens the answer has taken. OpenAI's dialect tells it at the answer's end."""
    total = prompt + candidates
    tokens = UsageMetadata(
        prompt_token_count=prompt, candidates_token_count=candidates, total_token_count=total
    )
    return Usage(tokens)


def interrupted() -> Step:
    """The server cuts off the answer, and goes on with the rest of the entry."""
    return Interrupted()


def _seconds(name: str, seconds: float) -> float:
    if not is_seconds(seconds):
        msg = f"expected {name}() of a finite number of seconds from 0 up, found {brief(seconds)}"
        raise ScriptError(msg)
    return seconds


@attrs.frozen(kw_only=True)
class LiveSent:
    """
    One thing that a `ScriptedLive` was sent.

    Args:
        connection: The connection's number, from 1 up.
        kind: `connect`, `history`, `content`, `responses`, `audio`, `image`, `activity_start`, `activity_end`,
            `audio_stream_end`, `cancel`, `truncate` or `close`.
        at: When, in seconds on trio's clock.
        lost: Whether the connection was over by then, so that the sender got an error.
        request: What `connect` was given.
        content: The content, of `content` and `responses`.
        contents: Those of a `history`.
        turn_complete: Whether it was to be answered: of `content`, `responses` and `history`.
        id: The content's id.
        data: The sound or the picture.
        item_id: Which answer a `truncate` is about.
        played_ms: How much of it was heard.
    """

    connection: int
    kind: str
    at: float = 0.0
    lost: bool = False
    request: LlmRequest | None = None
    content: Content | None = None
    contents: Sequence[Content] = ()
    turn_complete: bool = False
    id: str | None = None
    data: Blob | None = None
    item_id: str | None = None
    played_ms: int | None = None

    @property
    def text(self) -> str:
        """The text of the content, or of the last one of a history; "" if there is none."""
        content = self.contents[-1] if self.contents else self.content
        return "" if content is None else content.text


def steps_of(entry: object, only_gemini: bool) -> list[Any]:
    """
    The steps of *entry*, as objects of the classes above.

    Raises:
        ScriptError: It is no entry, or has a step that the dialect does not know.
    """
    return list(_steps(entry, only_gemini))


def _steps(entry: object, gemini: bool) -> Iterator[object]:
    steps = entry if isinstance(entry, Sequence) and not isinstance(entry, str) else [entry]
    for step in steps:
        if isinstance(step, str):
            yield Say(step, None)
        elif not isinstance(step, _STEPS):
            expected = "expected an entry of texts, calls, LlmResponses, exceptions and steps such as say(...)"
            raise ScriptError(f"{expected}, found {brief(step)}")
        elif isinstance(step, GoAway | Handle | CancelCalls) and not gemini:
            what = {GoAway: "go_away", Handle: "handle", CancelCalls: "cancel_calls"}[type(step)]
            msg = f"expected a script that fits the dialect 'openai', found {what}(...), which OpenAI never says"
            raise ScriptError(f"{msg}; leave it out, or use dialect='gemini'")
        else:
            yield step


_STEPS = (
    Part, Content, LlmResponse, BaseException, Pause, Drop, GoAway, Handle, Say, Hear, CancelCalls, Error, Usage,
    Interrupted,
)
