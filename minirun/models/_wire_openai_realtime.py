"""
OpenAI's realtime API, event by event. No I/O here.

    what is sent   ─ items_of(), sound(), … ─►  the client's events, as JSON objects
    what comes     ─ take() ────────────────►  the responses that it means, and events that have to be sent now

The rules of this file
======================

*   The server gives one answer at a time, and refuses to be asked for another meanwhile. So the wish for an answer is
    kept, and the server is asked when it has ended the one that it gives (`want`, `_next`). Several wishes are one.
*   Results of calls are answered when all calls of an answer have theirs; then the server is asked, once.
*   While the user speaks, the server is not asked: it answers the utterance by itself, and with it all there is.
*   Of an answer that the user's voice has cut off, nothing more is shown: its pieces are still on their way then.
*   The calls of an answer are known when it has ended well; those of one that was cut off may be half.
*   An answer is truncated to what was shown of it at most, and never to nothing: the server refuses both.

Not handled: answers outside of the conversation, tools that the server runs itself, and the API's older names of events
(`response.audio.delta`), which only its beta had.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from .._json import FrozenTuple, brief
from .._values import MAKE
from ..errors import ModelConnectionError, ModelError, ModelRequestError
from ..types import Blob, Content, FunctionCall, Part, Transcription, UsageMetadata, id_of
from ._base import LlmResponse
from ._live import ActivityEnd, ActivityStart, AudioStreamEnd, LiveResumption, Realtime
from ._pcm import rate_of
from ._reading import call_of, clean, count, items_of, object_in, printable, text_in
from ._wire_openai_session import RATE, Session, history_items, image_piece, response_item, user_pieces

__all__ = ["ClientEvent", "Conversation"]

ClientEvent: TypeAlias = dict[str, Any]
Taken: TypeAlias = tuple[list[LlmResponse], list[ClientEvent]]

SOUND: Final = f"audio/pcm;rate={RATE}"
BYTES_PER_MS: Final = RATE * 2 // 1000
# Less than this in its buffer is no utterance to the server (it says so itself when it refuses).
UTTERANCE_MS_MIN: Final = 100
# Of one event, as base64: what the server takes.
SOUND_BYTES_MAX: Final = 15 * 2**20 * 3 // 4
# How many answers it is known of how much was shown of them; only the newest few can still be truncated.
SHOWN_MAX: Final = 64

_REASONS: Final = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
_ACTIVE: Final = "conversation_already_has_active_response"
_NOT_ACTIVE: Final = "response_cancel_not_active"
_EXPIRED: Final = "session_expired"


class Conversation:
    """
    One session, from its first event to its last.

    Args:
        session: How it was asked for.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.model_version: str | None = None
        self._events = 0
        self._items = 0
        # --- of what was sent
        self._contents: dict[str, str | None] = {}  # by the item that ends it, the content that is not taken up yet
        self._kinds: dict[str, str] = {}  # by event, what it was, where it matters if it fails
        self._heard_bytes = 0  # of sound, since the server has made an utterance of it
        self._has_sent_sound = False  # since the microphone was off
        # --- of the answer
        self._asked: str | None = None  # the event that asks for it, until it has begun
        self._active: str | None = None  # its id; an empty text if the server has not said one
        self._wanted = False  # another one
        self._has_asked_again = False
        self._cancels = False  # as soon as it has begun
        self._cut: str | None = None  # the id of the one that was said to be interrupted
        self._item_id: str | None = None  # what was shown last
        self._texts: dict[tuple[str, object], str] = {}  # by item and kind, what has come of it in pieces
        self._calls: dict[str, FunctionCall] = {}  # by item
        self._call_ids: set[str] = set()  # of these calls: a server can repeat a call in another item
        self._limits: list[Mapping[str, Any]] = []
        # --- of the conversation
        self._open_calls: set[str] = set()
        self._speaks = False  # the user, as the server hears it
        self._shown: OrderedDict[str, int] = OrderedDict()  # by item, how many bytes of sound

    # --- what is sent -------------------------------------------------------------------------------------------------

    def update(self, body: Mapping[str, Any]) -> ClientEvent:
        """Set the session to this."""
        return self._event("session.update", session=dict(body))

    def history(self, contents: Sequence[Content]) -> Iterator[ClientEvent]:
        """Tell what was said before. Results of calls that came last, and have none yet, are waited for."""
        for content in contents:
            if content.role != "model" and user_pieces(content.parts):
                self._open_calls.clear()
            self._open_calls.update(id_of(call) for call in content.calls)
            self._open_calls.difference_update(id_of(response) for response in content.responses)
        for item in history_items(contents):
            yield self._item(item)

    def items_of(self, content: Content, id: str | None) -> list[ClientEvent]:
        """
        Tell what the user says, or what tools have answered.

        Raises:
            ModelRequestError: There is nothing in it that the API takes.
        """
        items = [response_item(response) for response in content.responses]
        pieces = user_pieces(content.parts)
        if pieces:
            items.append({"type": "message", "role": "user", "content": pieces})
        if not items:
            raise ModelRequestError(f"expected texts, pictures or responses to calls, found none in {brief(content)}")
        self._open_calls.difference_update(id_of(response) for response in content.responses)
        events = [self._item(item) for item in items]
        self._contents[events[-1]["item"]["id"]] = id
        return events

    def want(self, answers_calls: bool = False) -> list[ClientEvent]:
        """
        Ask for an answer to what was sent; if the server gives one, later. Call it when what was sent is on the line.

        With *answers_calls*, results were sent: the server is asked when no call waits for one any more.
        """
        if answers_calls and self._open_calls:
            return []
        self._wanted = True
        return self._next()

    def realtime(self, data: Realtime) -> list[ClientEvent]:
        """
        Tell what happens; an utterance that it ends has to be wanted an answer to, see `ends_utterance`.

        Raises:
            ModelRequestError: It is nothing that the API takes.
        """
        if isinstance(data, Blob):
            return [self._blob(data)]
        if isinstance(data, AudioStreamEnd):
            return self._microphone_off()
        if not self._session.is_manual:
            found = "found one while the server detects the user's voice"
            todo = "set RunConfig.realtime_input_config.automatic_activity_detection.disabled"
            raise ModelRequestError(f"expected no {type(data).__name__}, {found}; {todo}")
        if isinstance(data, ActivityStart):
            return self.cancel() if self._session.interrupts else []
        event = self._event("input_audio_buffer.commit")
        self._kinds[event["event_id"]] = "utterance"
        return [event]

    def ends_utterance(self, data: Realtime) -> bool:
        """Whether it ends an utterance that the server is to be asked to answer; one of no sound is refused by it."""
        return isinstance(data, ActivityEnd) and self._heard_bytes >= UTTERANCE_MS_MIN * BYTES_PER_MS

    def cancel(self) -> list[ClientEvent]:
        """Stop the answer that is being given, or is asked for."""
        if self._active is None:
            self._cancels = self._asked is not None
            return []
        return [self._event("response.cancel", **({"response_id": self._active} if self._active else {}))]

    def truncate(self, item_id: str, played_ms: int) -> list[ClientEvent]:
        """Tell how much was heard of an answer; nothing if no sound of it was shown."""
        shown_ms = self._shown.get(item_id, 0) // BYTES_PER_MS
        if not shown_ms:
            return []
        ms = min(max(int(played_ms), 1), shown_ms)
        return [self._event("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=ms)]

    def _event(self, kind: str, **fields: Any) -> ClientEvent:
        self._events += 1
        return {"type": kind, "event_id": f"minirun_{self._events}", **fields}

    def _item(self, item: Mapping[str, Any]) -> ClientEvent:
        self._items += 1
        id = f"minirun_item_{self._items}"  # of the event, too: a refusal names that one
        return {"type": "conversation.item.create", "event_id": id, "item": {"id": id, **item}}

    def _blob(self, blob: Blob) -> ClientEvent:
        picture = image_piece(blob)
        if picture is not None:
            return self._item({"type": "message", "role": "user", "content": [picture]})
        rate = rate_of(blob.mime_type, RATE)
        if rate != RATE:
            expected = f"expected sound as {SOUND!r} (see LiveCapabilities.input_rate), or a PNG or JPEG picture"
            raise ModelRequestError(f"{expected}, found {brief(blob.mime_type)}")
        if not 0 < len(blob.data) <= SOUND_BYTES_MAX:
            found = f"found {len(blob.data)}; send shorter pieces"
            raise ModelRequestError(f"expected 1 to {SOUND_BYTES_MAX} bytes of sound at once, {found}")
        return self._sound(blob.data)

    def _sound(self, data: bytes) -> ClientEvent:
        self._heard_bytes += len(data)
        self._has_sent_sound = True
        return self._event("input_audio_buffer.append", audio=base64.b64encode(data).decode())

    def _microphone_off(self) -> list[ClientEvent]:
        """
        Silence, for as long as the server waits for more before it takes an utterance as ended. It has no other way to
        be told that there is nothing more to come.
        """
        if self._session.is_manual or not self._has_sent_sound:
            return []
        silence = bytes((self._session.silence_ms + UTTERANCE_MS_MIN) * BYTES_PER_MS)
        event = self._sound(silence)
        self._has_sent_sound = False
        return [event]

    def _next(self) -> list[ClientEvent]:
        """Ask for the answer that is wanted, if the server can be asked now."""
        waits = self._speaks and self._session.answers_speech
        if not self._wanted or self._asked is not None or self._active is not None or waits:
            return []
        self._wanted = False
        event = self._event("response.create")
        self._asked = event["event_id"]
        self._kinds[self._asked] = "answer"
        return [event]

    # --- what comes ---------------------------------------------------------------------------------------------------

    def take(self, event: Mapping[str, Any]) -> Taken:
        """
        Take an event of the server: what it means, and what is to be sent now. One that is not known means nothing.

        Raises:
            ModelConnectionError: The session is over.
            ModelError: The event is not as the API has it.
        """
        kind = event.get("type")
        if not isinstance(kind, str):
            raise _malformed("a type", event)
        handle = _HANDLERS.get(kind)
        return handle(self, event) if handle is not None else ([], [])

    # --- of the session

    def _take_session(self, event: Mapping[str, Any]) -> Taken:
        self.model_version = text_in(object_in(event.get("session")).get("model")) or self.model_version
        return [], []

    def _take_limits(self, event: Mapping[str, Any]) -> Taken:
        self._limits = items_of(event.get("rate_limits"))
        return [], []

    def _take_error(self, event: Mapping[str, Any]) -> Taken:
        error = object_in(event.get("error"))
        code = text_in(error.get("code")) or text_in(error.get("type")) or "error"
        message = printable(text_in(error.get("message")))
        if code == _EXPIRED:
            raise ModelConnectionError(f"expected a session that goes on, found it over: {message}")
        id = text_in(error.get("event_id"))
        kind = self._kinds.pop(id, None)
        self._contents.pop(id, None)
        if code == _NOT_ACTIVE:
            return [], []  # it had ended by itself meanwhile, and its end says so
        if id == self._asked:
            self._asked = None
        if kind == "answer" and code == _ACTIVE:
            return [], self._ask_again()
        if kind == "answer":
            self._cancels = False
        is_over = kind in ("answer", "utterance") and self._active is None
        return [LlmResponse(error_code=printable(code), error_message=message, turn_complete=is_over or None)], []

    def _ask_again(self) -> list[ClientEvent]:
        """The server has begun an answer by itself when it was asked: it is asked again after that, or once at once."""
        self._wanted = True
        if self._has_asked_again:
            return []
        self._has_asked_again = True
        return self._next()

    # --- of the user

    def _take_speech_start(self, event: Mapping[str, Any]) -> Taken:
        self._speaks = True
        is_cut = self._session.interrupts and self._active is not None and self._cut is None
        if is_cut:
            self._cut = self._active
        started = LlmResponse(speech_started=True, item_id=clean(text_in(event.get("item_id"))) or None)
        return [started, LlmResponse(interrupted=True, item_id=self._item_id)] if is_cut else [started], []

    def _take_speech_stop(self, event: Mapping[str, Any]) -> Taken:
        self._speaks = False
        stopped = LlmResponse(speech_stopped=True, item_id=clean(text_in(event.get("item_id"))) or None)
        return [stopped], [] if self._session.answers_speech else self._next()

    def _take_utterance(self, event: Mapping[str, Any]) -> Taken:
        self._heard_bytes = 0
        if not self._session.is_manual:
            return [], []
        self._kinds = {id: kind for id, kind in self._kinds.items() if kind != "utterance"}
        # The server detects no voice; this is where the utterance stands, whose words come later.
        return [LlmResponse(speech_stopped=True, item_id=clean(text_in(event.get("item_id"))) or None)], []

    def _take_heard(self, event: Mapping[str, Any]) -> Taken:
        item_id, text = clean(_text_of(event, "item_id")), _text_of(event, "delta", "")
        self._grow(item_id, "heard", text)
        return [_heard(item_id, text, None)] if text else [], []

    def _take_heard_whole(self, event: Mapping[str, Any]) -> Taken:
        item_id = clean(_text_of(event, "item_id"))
        return [_heard(item_id, self._rest(item_id, "heard", _text_of(event, "transcript")), True)], []

    def _take_not_heard(self, event: Mapping[str, Any]) -> Taken:
        item_id, error = clean(_text_of(event, "item_id")), object_in(event.get("error"))
        self._texts.pop((item_id, "heard"), None)
        told = {"code": printable(text_in(error.get("code"))), "message": printable(text_in(error.get("message")))}
        closed = Transcription(finished=True)
        metadata = {"transcription_error": told}
        return [LlmResponse(input_transcription=closed, item_id=item_id, custom_metadata=metadata)], []

    def _take_added(self, event: Mapping[str, Any]) -> Taken:
        item_id = text_in(object_in(event.get("item")).get("id"))
        if item_id not in self._contents:
            return [], []
        id = self._contents.pop(item_id)
        return [LlmResponse(resumption=LiveResumption(last_taken_up=id))] if id is not None else [], []

    # --- of the answer

    def _take_begin(self, event: Mapping[str, Any]) -> Taken:
        self._active = text_in(object_in(event.get("response")).get("id"))
        if self._asked is not None:
            self._asked = None
        elif not self._contents:
            self._wanted = False  # begun by itself, after all that was sent: it answers that, too
        self._call_ids.clear()
        self._cut = self._item_id = None
        self._calls.clear()
        cancels, self._cancels = self._cancels, False
        return [], self.cancel() if cancels else []

    def _is_cut(self, event: Mapping[str, Any]) -> bool:
        return self._cut is not None and event.get("response_id", self._cut) == self._cut

    def _take_text(self, event: Mapping[str, Any]) -> Taken:
        item_id, text = clean(_text_of(event, "item_id")), _text_of(event, "delta")
        if not text or self._is_cut(event):
            return [], []
        self._grow(item_id, _index_in(event), text)
        return [self._piece(item_id, Part(text=clean(text)))], []

    def _take_text_whole(self, event: Mapping[str, Any]) -> Taken:
        item_id = clean(_text_of(event, "item_id"))
        rest = self._rest(item_id, _index_in(event), _text_of(event, "text"))
        if not rest or self._is_cut(event):
            return [], []
        return [self._piece(item_id, Part(text=clean(rest)))], []

    def _take_sound(self, event: Mapping[str, Any]) -> Taken:
        if self._is_cut(event):
            return [], []
        item_id = clean(_text_of(event, "item_id"))
        try:
            data = binascii.a2b_base64(_text_of(event, "delta"), strict_mode=True)
        except ValueError:
            raise _malformed("a delta that is base64", event) from None
        if not data:
            return [], []
        self._shown[item_id] = self._shown.get(item_id, 0) + len(data)
        if len(self._shown) > SHOWN_MAX:
            self._shown.popitem(last=False)
        blob: Blob = MAKE[Blob](data=data, mime_type=SOUND)
        part: Part = MAKE[Part](inline_data=blob)
        return [self._piece(item_id, part)], []

    def _piece(self, item_id: str, part: Part) -> LlmResponse:
        """The fragment that shows a part, which was made here: nothing in it is to be checked."""
        self._item_id = item_id
        content: Content = MAKE[Content](role="model", parts=FrozenTuple([part]))
        piece: LlmResponse = MAKE[LlmResponse](content=content, partial=True, item_id=item_id)
        return piece

    def _take_said(self, event: Mapping[str, Any]) -> Taken:
        item_id, text = clean(_text_of(event, "item_id")), _text_of(event, "delta")
        if not text or self._is_cut(event) or not self._session.transcribes:
            return [], []
        self._item_id = item_id
        self._grow(item_id, "said", text)
        return [LlmResponse(output_transcription=Transcription(text=clean(text)), item_id=item_id)], []

    def _take_said_whole(self, event: Mapping[str, Any]) -> Taken:
        item_id = clean(_text_of(event, "item_id"))
        rest = self._rest(item_id, "said", _text_of(event, "transcript"))
        if self._is_cut(event) or not self._session.transcribes:
            return [], []
        closed = Transcription(text=clean(rest) or None, finished=True)
        return [LlmResponse(output_transcription=closed, item_id=item_id)], []

    def _take_arguments(self, event: Mapping[str, Any]) -> Taken:
        self._grow(clean(_text_of(event, "item_id")), "arguments", _text_of(event, "delta"))
        return [], []

    def _take_item(self, event: Mapping[str, Any]) -> Taken:
        self._note_call(object_in(event.get("item")))
        return [], []

    def _note_call(self, item: Mapping[str, Any]) -> None:
        """Keep the call that an item is, with its arguments as they came whole, or else in pieces."""
        id, call_id = text_in(item.get("id")), text_in(item.get("call_id"))
        if item.get("type") != "function_call" or id in self._calls or call_id in self._call_ids:
            return
        pieces = self._texts.pop((id, "arguments"), "")
        arguments = text_in(item.get("arguments")) or pieces
        self._calls[id] = call_of(text_in(item.get("name")), arguments, call_id or None)
        if call_id:
            self._call_ids.add(call_id)

    def _take_end(self, event: Mapping[str, Any]) -> Taken:
        response = object_in(event.get("response"))
        status, details = text_in(response.get("status")), object_in(response.get("status_details"))
        for item in items_of(response.get("output")):
            self._note_call(item)
        calls = list(self._calls.values()) if status == "completed" else []
        self._open_calls.update(id_of(call) for call in calls)
        limits, self._limits = self._limits, []
        end: dict[str, Any] = {
            "content": Content(role="model", parts=[Part(function_call=call) for call in calls]) if calls else None,
            "generation_complete": True,
            "turn_complete": None if calls else True,
            "interrupted": True if status == "cancelled" and self._cut is None else None,
            "usage_metadata": _usage(object_in(response.get("usage"))),
            "model_version": self.model_version,
            "response_id": clean(text_in(response.get("id"))) or None,
            "custom_metadata": {"rate_limits": limits} if limits else None,
            "item_id": self._item_id,
            **_outcome(status, details),
        }
        self._active = self._cut = None
        self._has_asked_again = self._cancels = False
        self._kinds = {id: kind for id, kind in self._kinds.items() if kind == "utterance"}
        self._calls.clear()
        self._call_ids.clear()
        self._texts = {key: text for key, text in self._texts.items() if key[1] == "heard"}
        return [LlmResponse(**end)], self._next()

    # --- texts in pieces

    def _grow(self, item_id: str, kind: object, piece: str) -> None:
        key = (item_id, kind)
        self._texts[key] = self._texts.get(key, "") + piece

    def _rest(self, item_id: str, kind: object, whole: str) -> str:
        """What of a whole text has not come in pieces; a whole that reads otherwise comes too late to be shown."""
        shown = self._texts.pop((item_id, kind), "")
        return whole[len(shown) :] if whole.startswith(shown) else ""


_HANDLERS: Final[dict[str, Callable[[Conversation, Mapping[str, Any]], Taken]]] = {
    "session.created": Conversation._take_session,
    "session.updated": Conversation._take_session,
    "rate_limits.updated": Conversation._take_limits,
    "error": Conversation._take_error,
    "input_audio_buffer.speech_started": Conversation._take_speech_start,
    "input_audio_buffer.speech_stopped": Conversation._take_speech_stop,
    "input_audio_buffer.committed": Conversation._take_utterance,
    "conversation.item.input_audio_transcription.delta": Conversation._take_heard,
    "conversation.item.input_audio_transcription.completed": Conversation._take_heard_whole,
    "conversation.item.input_audio_transcription.failed": Conversation._take_not_heard,
    "conversation.item.added": Conversation._take_added,
    "response.created": Conversation._take_begin,
    "response.output_text.delta": Conversation._take_text,
    "response.output_text.done": Conversation._take_text_whole,
    "response.output_audio.delta": Conversation._take_sound,
    "response.output_audio_transcript.delta": Conversation._take_said,
    "response.output_audio_transcript.done": Conversation._take_said_whole,
    "response.function_call_arguments.delta": Conversation._take_arguments,
    "response.output_item.done": Conversation._take_item,
    "response.done": Conversation._take_end,
}


def _outcome(status: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """What the end of an answer says of why it has ended."""
    if status == "completed":
        return {"finish_reason": "STOP"}
    if status == "incomplete":
        reason = printable(text_in(details.get("reason")))
        found = _REASONS.get(reason, "OTHER")
        if found == "MAX_TOKENS":
            return {"finish_reason": found}
        message = f"the provider has stopped the answer ({reason or 'no reason is given'})"
        return {"finish_reason": found, "error_code": found, "error_message": message}
    if status == "failed":
        error = object_in(details.get("error"))
        code = text_in(error.get("code")) or text_in(error.get("type")) or "server_error"
        message = printable(text_in(error.get("message"))) or "the answer has failed"
        return {"error_code": printable(code), "error_message": message}
    return {}


def _usage(usage: Mapping[str, Any]) -> UsageMetadata | None:
    if not usage:
        return None
    return UsageMetadata(
        prompt_token_count=count(usage, "input_tokens"),
        candidates_token_count=count(usage, "output_tokens"),
        total_token_count=count(usage, "total_tokens"),
        cached_content_token_count=count(usage, "input_token_details", "cached_tokens"),
    )


def _heard(item_id: str, text: str, finished: bool | None) -> LlmResponse:
    said = Transcription(text=clean(text) or None, finished=finished)
    return LlmResponse(input_transcription=said, item_id=item_id)


def _text_of(event: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = event.get(name, default)
    if not isinstance(found, str):
        raise _malformed(f"a text as {name}", event)
    return found


def _index_in(event: Mapping[str, Any]) -> int:
    """Which part of its item the event is about; the first, if it says nothing that could be meant."""
    found = event.get("content_index")
    return found if isinstance(found, int) else 0


def _malformed(expected: str, event: Mapping[str, Any]) -> ModelError:
    msg = f"expected the provider's events to have {expected}, found {brief(event.get('type'))} without"
    return ModelError(msg)
