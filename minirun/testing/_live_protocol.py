"""
What a live server would refuse, checked before anything of it has an effect.

A `Conversation` is what the server knows of one session: the calls that it has made, the contents that it has taken up
and how much it has said. Several connections may carry it on, one after another, by its handles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

import attrs

from .._json import brief
from ..errors import ScriptError
from ..models._pcm import audio_ms, rate_of
from ..types import Blob, Content, FunctionCall, FunctionResponse

__all__ = ["Conversation", "Ear", "check_content", "check_history", "sound_ms"]


class CallState(Enum):
    """What has become of a call."""

    OPEN = auto()
    ANSWERED = auto()
    WITHDRAWN = auto()


@attrs.define
class Call:
    """A call that the server has made, in which of its answers."""

    name: str
    batch: int
    state: CallState = CallState.OPEN
    answered_by: str | None = None
    """The id of the content with its response. A client that does not know whether that has arrived sends it again."""


class Conversation:
    """What the server knows of one session."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.said_ms: dict[str, float] = {}  # how much sound of each item has been sent
        self.newest_id: str | None = None  # of the contents that were taken up
        self._ids: list[str] = []  # all of those
        self._told: frozenset[str] = frozenset()  # as many of them as the client knows

    def take_up(self, id: str | None) -> None:
        """A content is part of the session from now on."""
        if id is not None:
            self.newest_id = id
            self._ids.append(id)

    def tell_taken_up(self) -> str | None:
        """The id of the newest content; the client knows it now."""
        if self.newest_id is not None:  # one that was sent again says nothing of those that were sent after it
            self._told = frozenset(self._ids[: self._ids.index(self.newest_id) + 1])
        return self.newest_id

    def known(self) -> frozenset[str]:
        """What the client knows by now: the contents that were taken up, and the calls that were withdrawn."""
        return self._told.union(id for id, call in self.calls.items() if call.state is CallState.WITHDRAWN)

    def check_id(self, id: str | None, known: frozenset[str]) -> None:
        """
        Raises:
            ScriptError: The client sends again what it has *known* to be taken up.
        """
        if id in known:
            msg = f"expected each content once, found {id!r} again after the server has told that it has taken it up"
            raise ScriptError(f"{msg}; send again only what came after `last_taken_up`")

    def made(self, calls: Iterable[FunctionCall], batch: int) -> None:
        """The server has made these calls."""
        for call in calls:
            assert call.id is not None
            self.calls[call.id] = Call(call.name, batch)

    def withdraw(self, ids: Iterable[str]) -> None:
        """The client knows that nobody wants the results of these calls."""
        for id in ids:
            if id in self.calls:
                self.calls[id].state = CallState.WITHDRAWN

    def open_calls(self) -> tuple[str, ...]:
        """The ids of the calls that have no response yet."""
        return tuple(id for id, call in self.calls.items() if call.state is CallState.OPEN)

    def check_responses(self, responses: Sequence[FunctionResponse], known: frozenset[str], id: str | None) -> None:
        """
        Raises:
            ScriptError: One of them answers no call of this session, or one that was answered, or that the client has
                *known* to be withdrawn when it began to send.
        """
        seen: set[str | None] = set()
        for response in responses:
            call = self.calls.get(response.id or "")
            if call is None:
                raise _odd(response, f"one of the calls {sorted(self.calls)}", "no call of this session has its id")
            if call.name != response.name:
                raise _odd(response, f"the name {call.name!r}", f"the name {response.name!r}")
            if call.state is CallState.WITHDRAWN and response.id in known:
                raise _odd(response, "no response", "one, though the server has withdrawn the call")
            is_again = id is not None and call.answered_by == id
            if (call.state is CallState.ANSWERED and not is_again) or response.id in seen:
                raise _odd(response, "one response", "another one")
            seen.add(response.id)

    def answered(self, responses: Sequence[FunctionResponse], id: str | None) -> bool:
        """
        Take the responses; whether the model goes on now: it does when all calls of an answer have one.
        """
        batches = set()
        for response in responses:
            call = self.calls[response.id or ""]
            if call.state is not CallState.WITHDRAWN:  # a response and the withdrawal of its call may cross on the way
                call.state, call.answered_by = CallState.ANSWERED, id
                batches.add(call.batch)
        return bool(batches - {call.batch for call in self.calls.values() if call.state is CallState.OPEN})

    def check_truncation(self, item_id: str, played_ms: int) -> None:
        """
        Raises:
            ScriptError: It is about no item with sound, or beyond what was sent of it, or not above 0.
        """
        if item_id not in self.said_ms:
            found = f"{item_id!r}, of which nothing was said"
            msg = f"expected truncate() to name one of the answers {sorted(self.said_ms)}, found {found}"
            raise ScriptError(f"{msg}; truncate only what was received")
        if not 1 <= played_ms <= self.said_ms[item_id]:
            expected = f"expected 1 to {self.said_ms[item_id]:g} milliseconds of {item_id!r}, as much as was sent of it"
            raise ScriptError(f"{expected}, found {played_ms}; a real server refuses it")


def _odd(response: FunctionResponse, expected: str, found: str) -> ScriptError:
    told = f"the response {response.id!r} of {response.name!r}: expected {expected}, found {found}"
    return ScriptError(f"{told}; each call has one response")


def check_history(contents: Sequence[Content], answer: bool) -> None:
    """
    Raises:
        ScriptError: It is no history, or there is nothing to answer in it.
    """
    if not contents or not all(isinstance(content, Content) for content in contents):
        raise ScriptError(f"expected a history of Contents, found {brief(contents)}; without one, send none")
    if answer and contents[-1].role != "user":
        msg = f"expected a history to answer to end with the user's content, found role {contents[-1].role!r}"
        raise ScriptError(f"{msg}; send it with answer=False")


def check_content(content: Content) -> list[FunctionResponse]:
    """
    Return the responses in *content*; an empty list, if it is what the user says.

    Raises:
        ScriptError: It is neither the one nor the other.
    """
    if not isinstance(content, Content) or not content.parts:
        raise ScriptError(f"expected a Content with parts, found {brief(content)}")
    if content.role == "model" or content.calls:
        msg = f"expected what the user says, or responses, found role {content.role!r} and {len(content.calls)} calls"
        raise ScriptError(f"{msg}; what the model has said belongs into a history")
    responses = [part.function_response for part in content.parts if part.function_response is not None]
    if responses and len(responses) != len(content.parts):
        raise ScriptError(f"expected responses or what the user says, found both: {brief(content)}; send two contents")
    return responses


def sound_ms(blob: Blob, rate: int) -> float:
    """
    How long the sound is, in milliseconds; 0 for a picture.

    Raises:
        ScriptError: It is neither a picture nor PCM16 of this rate.
    """
    if blob.mime_type.startswith("image/"):
        return 0.0
    if rate_of(blob.mime_type, rate) != rate:
        expected = f"expected a picture or sound as 'audio/pcm;rate={rate}'"
        raise ScriptError(f"{expected}, found {blob.mime_type!r}; see LiveCapabilities.input_rate")
    if len(blob.data) % 2 or not blob.data:
        raise ScriptError(f"expected PCM16, two bytes for each sample, found {len(blob.data)} bytes")
    return audio_ms(blob, rate)


class Ear:
    """
    A voice detection that everybody can foresee: a chunk of zeros is silence, any other is speech.

    Args:
        silence_ms: How long the silence is that ends an utterance.
    """

    def __init__(self, silence_ms: float) -> None:
        self._silence_ms = silence_ms
        self._silent_ms = 0.0
        self.speaking = False

    def hear(self, data: bytes, ms: float) -> str | None:
        """Take a chunk; `started` or `stopped`, if the utterance begins or ends with it."""
        if data.strip(b"\0"):
            self._silent_ms = 0.0
            begins, self.speaking = not self.speaking, True
            return "started" if begins else None
        self._silent_ms += ms
        if self.speaking and self._silent_ms >= self._silence_ms:
            self.speaking = False
            return "stopped"
        return None

    def stop(self) -> bool:
        """The microphone is off; whether that ends an utterance."""
        was, self.speaking = self.speaking, False
        return was
