"""
Google's Live API: what the server says. What is sent stands in `_wire_gemini_live`. No I/O here.

One message says one thing or several, and becomes one response or several, in the order of `BaseLlmConnection.receive`.
Messages and fields that are not known are read over. What is known and is not as it should be is an error: in a
conversation, a piece that is read over is a word that nobody hears.

Transcripts come in pieces whose place among the rest is loose, and which the server hardly ever closes. They are closed
here: what the user has said and what the model says, when calls come, or the answer is made, cut off or over. What the
user says after an answer was cut off belongs to the next one, and stays open.

The API has no names for what is said. They are made here: one for each utterance of the user, and one for each answer,
or piece of an answer between calls.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import attrs

from .._json import FrozenTuple, brief, finite
from .._values import MAKE, changed
from ..errors import (
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelRequestError,
)
from ..types import Blob, Content, FunctionCall, Part, Transcription, UsageMetadata
from ._base import LlmResponse
from ._live import LiveResumption
from ._reading import call_of, clean, cleaned, count, object_in, printable, sums, text_in
from ._wire import Fault, error_of
from ._wire_gemini import other_part

__all__ = ["GeminiLiveReader", "GeminiLiveState", "closed_error"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
# Turns that end so have not failed.
_FINE = ("", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT")
_STARTS = ("ACTIVITY_START", "VAD_SIGNAL_TYPE_SOS")
_STOPS = ("ACTIVITY_END", "VAD_SIGNAL_TYPE_EOS")


@attrs.define
class GeminiLiveState:
    """
    What both halves know of a connection.

    `calls` are the ids of calls that wait for responses, `withdrawn` of those whose responses nobody wants.
    `may_answer`: an answer is being given, or was asked for; `has_begun`: there is a turn of the model that is not
    over; `drops`: so many turns, this one included, were stopped by this side, and what comes of them is dropped.
    """

    is_resumed: bool = False
    calls: set[str | None] = attrs.field(factory=set)
    withdrawn: set[str | None] = attrs.field(factory=set)
    may_answer: bool = False
    has_begun: bool = False
    drops: int = 0
    sent: int = 1  # the setup
    _ids: dict[int, str] = attrs.field(factory=dict)

    def asked(self) -> None:
        """Note that an answer was asked for: of what was stopped, only the turn that has begun is not it."""
        self.may_answer = True
        self.drops = min(self.drops, 1 if self.has_begun else 0)

    def begun(self) -> None:
        """Note that something of an answer has come."""
        self.has_begun = True
        self.may_answer = self.may_answer or not self.drops

    def name_last(self, content_id: str | None) -> None:
        """Note which content the last message has sent."""
        if content_id is not None:
            self._ids[self.sent - 1] = content_id

    def taken_up(self, index: int) -> str | None:
        """The id of the last content among the messages up to this one; None: there is none."""
        found = [number for number in self._ids if number <= index]
        for number in found[:-1]:
            del self._ids[number]
        return self._ids[found[-1]] if found else None


class GeminiLiveReader:
    """
    Reads the server's messages, one after the other.

    Args:
        state: What is known of the connection; the writer has the same.
        name: Of the connection; the names of what is said on it begin so.
    """

    def __init__(self, state: GeminiLiveState, name: str) -> None:
        self._state = state
        self._name = name
        self.is_set_up = False
        self._names = 0
        self._answer_id: str | None = None
        self._heard_id: str | None = None
        self._hears = False  # pieces of what the user says have come, and not been closed
        self._says = False  # pieces of what the model says, alike
        self._is_cut = False  # an answer was cut off, and its turn is not over yet
        self._hears_next = False  # what is heard has begun since
        self._speaks = False  # the user, as the server has said last
        self._called: set[str] = set()  # the ids of the calls of this turn: a server can repeat a call

    def stop(self) -> list[LlmResponse]:
        """Stop the answer that is being given, or was asked for: return its end; what comes of it is dropped."""
        if not self._state.may_answer:
            return []
        heard = self._close_heard()
        fields = {**self._close_said(), "interrupted": True, "turn_complete": True}
        item_id, self._answer_id = self._answer_id, None
        self._state.may_answer = False
        self._state.drops = 2 if self._is_cut else 1  # with the end of what was cut off, the answer after it
        return [*heard, LlmResponse(**fields, item_id=item_id)]

    def read(self, message: Mapping[str, Any]) -> list[LlmResponse]:
        """
        Return what a message says; nothing, if it says nothing that counts here.

        Raises:
            ModelError: The server says that it has failed, or the message is not of the API's form.
        """
        _check(message)
        self.is_set_up = self.is_set_up or "setupComplete" in message
        said = object_in(message.get("serverContent"))
        responses = [*self._speech(message), *self._heard(said), *self._answer(said), *self._calls(message)]
        ends = {name for name in ("generationComplete", "interrupted", "turnComplete") if said.get(name) is True}
        if ends and not self._state.drops:
            responses += self._close_heard()
        fields = {**self._ends(said, ends), **self._rest(message)}
        return [*responses, LlmResponse(**fields)] if fields else responses

    def _new_name(self, what: str) -> str:
        self._names += 1
        return f"{what}-{self._name}-{self._names}"

    # --- what is heard and said

    def _speech(self, message: Mapping[str, Any]) -> list[LlmResponse]:
        """Whether the user begins or ends to speak; two kinds of messages say so, and both may come."""
        told, signal = object_in(message.get("voiceActivity")), object_in(message.get("voiceActivityDetectionSignal"))
        kind = text_in(told.get("voiceActivityType") or told.get("type") or signal.get("vadSignalType"))
        if kind not in _STARTS + _STOPS or (kind in _STARTS) == self._speaks:
            return []
        self._speaks = kind in _STARTS
        item_id = self._heard_id = self._heard_id or self._new_name("heard")
        if self._speaks:
            return [LlmResponse(speech_started=True, item_id=item_id)]
        self._state.asked()
        return [LlmResponse(speech_stopped=True, item_id=item_id)]

    def _heard(self, said: Mapping[str, Any]) -> list[LlmResponse]:
        """A piece of what the user says."""
        piece = _transcription(said, "inputTranscription")
        if piece is None:
            return []
        if not self._hears:
            self._state.asked()
            self._hears_next = self._is_cut or said.get("interrupted") is True
        item_id = self._heard_id = self._heard_id or self._new_name("heard")
        self._hears = not piece.finished
        if piece.finished:
            self._heard_id = None
        return [LlmResponse(input_transcription=piece, item_id=item_id)]

    def _answer(self, said: Mapping[str, Any]) -> list[LlmResponse]:
        """Pieces of the answer: texts and sounds, which are partial, and what is complete in itself."""
        parts, spoken = _parts(said), _transcription(said, "outputTranscription")
        if not parts and spoken is None:
            return []
        self._state.begun()
        if self._state.drops:
            return []
        item_id = self._answer_id = self._answer_id or self._new_name("answer")
        if spoken is not None:
            self._says = not spoken.finished
        responses: list[LlmResponse] = []
        for part in parts:
            is_piece = part.text is not None or part.inline_data is not None
            content = MAKE[Content](role="model", parts=FrozenTuple((part,)))
            response = MAKE[LlmResponse](content=content, partial=True if is_piece else None, item_id=item_id)
            responses.append(response)
        if spoken is not None:
            last = responses.pop() if responses and responses[-1].partial else LlmResponse(item_id=item_id)
            responses.append(changed(last, output_transcription=spoken))
        return responses

    def _calls(self, message: Mapping[str, Any]) -> list[LlmResponse]:
        """Calls, and which of them are withdrawn."""
        responses: list[LlmResponse] = []
        calls: list[FunctionCall] = []
        for call in map(_call, _list_in(object_in(message.get("toolCall")), "functionCalls")):
            if call.id is None or (call.id not in self._called and call.id not in self._state.calls):
                calls.append(call)
            if call.id is not None:
                self._called.add(call.id)
        if calls:
            self._state.begun()
            self._state.calls |= {call.id for call in calls if call.id is not None}
            parts = [Part(function_call=call) for call in calls]
            item_id, self._answer_id = self._answer_id or self._new_name("answer"), None
            responses += self._close_heard()
            if spoken := self._close_said():
                responses.append(LlmResponse(**spoken, item_id=item_id))
            responses.append(LlmResponse(content=Content(role="model", parts=parts), item_id=item_id))
        found = object_in(message.get("toolCallCancellation")).get("ids")
        ids = [clean(call_id) for call_id in found if isinstance(call_id, str)] if isinstance(found, list) else []
        if ids:
            self._state.calls -= set(ids)
            self._state.withdrawn |= set(ids)
            responses.append(LlmResponse(cancelled_calls=ids))
        return responses

    # --- ends

    def _ends(self, said: Mapping[str, Any], ends: set[str]) -> dict[str, Any]:
        """How far the answer has come. Of one that is dropped, nothing is told."""
        fields: dict[str, Any] = {}
        if ends and not self._state.drops:
            fields = self._close_said()
            if "generationComplete" in ends:
                fields["generation_complete"] = True
            if "interrupted" in ends and not self._is_cut:
                fields["interrupted"] = True
            if "turnComplete" in ends:
                fields |= {"turn_complete": True, **_failure(said)}
            if fields and self._answer_id is not None:
                fields["item_id"] = self._answer_id
        self._is_cut = self._is_cut or "interrupted" in ends
        if "turnComplete" in ends:
            self._turn_is_over()
        sources = object_in(said.get("groundingMetadata"))
        return {**fields, "grounding_metadata": cleaned(sources, finite)} if sources else fields

    def _turn_is_over(self) -> None:
        if self._state.drops:
            self._state.drops -= 1
        else:
            self._state.may_answer = self._is_cut  # what has interrupted asks for the next answer
        self._state.has_begun = self._is_cut = self._hears_next = False
        self._answer_id = None
        self._called.clear()

    def _close_heard(self) -> list[LlmResponse]:
        """Close what the user has said, but for what belongs to the answer after this one."""
        if not self._hears or self._hears_next:
            return []
        item_id, self._heard_id, self._hears = self._heard_id, None, False
        return [LlmResponse(input_transcription=Transcription(finished=True), item_id=item_id)]

    def _close_said(self) -> dict[str, Any]:
        """Close the transcript of the answer."""
        if not self._says:
            return {}
        self._says = False
        return {"output_transcription": Transcription(finished=True)}

    # --- the session

    def _rest(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is told of tokens, and of the connection."""
        fields: dict[str, Any] = {}
        if usage := object_in(message.get("usageMetadata")):
            fields["usage_metadata"] = _usage(usage)
        if "sessionResumptionUpdate" in message:
            fields["resumption"] = self._resumption(object_in(message["sessionResumptionUpdate"]))
        if "goAway" in message:
            left = _DURATION.fullmatch(text_in(object_in(message["goAway"]).get("timeLeft")))
            fields["go_away_s"] = (finite(float(left[1])) if left else None) or 0.0
        return fields

    def _resumption(self, update: Mapping[str, Any]) -> LiveResumption:
        handle, index = clean(text_in(update.get("newHandle"))) or None, update.get("lastConsumedClientMessageIndex")
        if isinstance(index, str) and index.isdecimal() and len(index) < 20:
            index = int(index)  # so JSON has numbers of 64 bits
        return LiveResumption(
            handle=handle,
            resumable=update.get("resumable") is True and handle is not None,
            last_taken_up=self._state.taken_up(index) if isinstance(index, int) else None,
        )


# --- pieces of messages -----------------------------------------------------------------------------------------------

# The fields of a message that are read, each an object.
_FIELDS = (
    "setupComplete", "serverContent", "toolCall", "toolCallCancellation", "usageMetadata", "goAway",
    "sessionResumptionUpdate", "voiceActivity", "voiceActivityDetectionSignal",
)  # fmt: skip


def _check(message: Mapping[str, Any]) -> None:
    error = message.get("error")
    if isinstance(error, Mapping):
        status = error.get("code")
        fault = Fault(text_in(error.get("status")), text_in(error.get("message")))
        raise error_of(fault, status if isinstance(status, int) and 300 <= status < 600 else 500, {}, "")
    for name in _FIELDS:
        if not isinstance(message.get(name, {}), Mapping):
            raise _malformed(name, "an object", message[name])


def _malformed(name: str, expected: str, found: object) -> ModelError:
    return ModelError(f"expected {name} of the server's message to be {expected}, found {brief(found)}")


def _list_in(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name) or []
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise _malformed(name, "a list of objects", found)
    return found


def _transcription(said: Mapping[str, Any], name: str) -> Transcription | None:
    found = object_in(said.get(name))
    text, is_finished = clean(text_in(found.get("text"))), found.get("finished") is True
    if not text and not is_finished:
        return None
    return Transcription(text=text or None, finished=True if is_finished else None)


def _call(call: Mapping[str, Any]) -> FunctionCall:
    name, args = text_in(call.get("name")), call.get("args")
    if not name:
        raise _malformed("functionCalls", "calls with names", call)
    return call_of(name, args if isinstance(args, Mapping) else None, text_in(call.get("id")) or None)


def _parts(said: Mapping[str, Any]) -> list[Part]:
    found = []
    for part in _list_in(object_in(said.get("modelTurn")), "parts"):
        blob, text = part.get("inlineData"), part.get("text")
        if isinstance(blob, Mapping):
            found.append(_media(blob))
        elif isinstance(text, str):
            if text:
                found.append(MAKE[Part](text=clean(text), thought=True if part.get("thought") is True else None))
        elif (other := other_part(part)) is not None:
            found.append(other)
    return found


def _media(blob: Mapping[str, Any]) -> Part:
    try:
        data = base64.b64decode(blob["data"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise _malformed("inlineData", "bytes in base64", blob.get("data")) from None
    mime_type = clean(text_in(blob.get("mimeType"))) or "audio/pcm;rate=24000"
    part: Part = MAKE[Part](inline_data=MAKE[Blob](data=data, mime_type=mime_type))
    return part


def _failure(said: Mapping[str, Any]) -> dict[str, str]:
    """Why a turn has ended without what was asked for."""
    reason = printable(text_in(said.get("turnCompleteReason")))
    if reason in _FINE:
        return {}
    return {"error_code": reason, "error_message": f"the model has ended its turn with {reason}"}


def _usage(usage: Mapping[str, Any]) -> UsageMetadata:
    used_by_tools = count(usage, "toolUsePromptTokenCount")
    said = count(usage, "responseTokenCount")
    return UsageMetadata(
        prompt_token_count=sums(count(usage, "promptTokenCount"), used_by_tools),
        candidates_token_count=count(usage, "candidatesTokenCount") if said is None else said,
        thoughts_token_count=count(usage, "thoughtsTokenCount"),
        total_token_count=count(usage, "totalTokenCount"),
        cached_content_token_count=count(usage, "cachedContentTokenCount"),
        tool_use_prompt_token_count=used_by_tools,
    )


# --- the end of a connection ------------------------------------------------------------------------------------------

_IN_GOOD_ORDER = (1000, 1005)
_QUOTA = re.compile(r"quota|RESOURCE_EXHAUSTED|rate limit", re.IGNORECASE)
_KEY = re.compile(r"API[ _]key|UNAUTHENTICATED|PERMISSION_DENIED|permission|credential|token expired", re.IGNORECASE)
_POLICY = re.compile(r"safety|prohibited|blocked|violat", re.IGNORECASE)


def closed_error(code: int, reason: str) -> ModelError | None:
    """
    Return the error that the end of a connection is; None: it was closed in good order.

    1007 is said of what was sent, 1008 of the same, of the key and of what policy forbids, 1011 of the server's own
    failures and of quotas; the reason tells them apart. All others are taken for lost connections.
    """
    if code in _IN_GOOD_ORDER:
        return None
    said = f": {printable(reason)}" if reason else ""
    message = f"expected the connection to go on, found it closed by the server with code {code}{said}"
    if _QUOTA.search(reason):
        return ModelRateLimitedError(message)
    if code in (1007, 1008) and _KEY.search(reason):
        return ModelAuthenticationError(message)
    if code == 1008 and _POLICY.search(reason):
        return ModelRefusedError(message)
    if code in (1002, 1003, 1007, 1008, 1009, 1010):
        return ModelRequestError(message)
    return ModelOverloadedError(message) if code in (1011, 1013) else ModelConnectionError(message)
