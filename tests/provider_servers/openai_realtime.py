"""
OpenAI's realtime API: a server that converses by a script.

It takes what the published types have, refuses what the real one refuses, and hears a voice in every chunk of sound
that is not silence. Each answer is the next entry of the script.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from http import HTTPStatus
from itertools import count
from typing import Any

import attrs
import pydantic
import trio
from openai.types.realtime.realtime_client_event_param import RealtimeClientEventParam
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from websockets.http11 import Request

from .openai_chat import KEY
from .sockets import Peer, Refusal
from .strict import problem_with

__all__ = [
    "BYTES_PER_MS", "KEY", "Call", "Close", "Deaf", "End", "Hold", "RealtimeServer", "Reset", "Say", "Send", "refusal",
]

BYTES_PER_MS = 48  # PCM16, 24 000 samples a second
CHUNK_MS = 100

_server_event: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(RealtimeServerEvent)


@attrs.frozen
class Say:
    """Say the text, and 100 ms of sound for each word; `audio=False`: as text only."""

    text: str
    audio: bool = True


@attrs.frozen
class Call:
    """Call a function, its arguments in pieces of four letters."""

    name: str
    arguments: str = "{}"
    id: str | None = None


@attrs.frozen
class Hold:
    """Say nothing before this has happened; `began` tells that it is waited for."""

    until: trio.Event = attrs.field(factory=trio.Event)
    began: trio.Event = attrs.field(factory=trio.Event)


@attrs.frozen
class Send:
    """Send these events, or texts as they are."""

    events: Sequence[Any]


@attrs.frozen
class Close:
    """Close the connection."""

    code: int
    reason: str = ""


@attrs.frozen
class Deaf:
    """Read nothing any more."""


@attrs.frozen
class Reset:
    """Break the connection."""


Step = Say | Call | Hold | Send | Close | Deaf | Reset


@attrs.frozen
class End:
    """How an answer ends, where it does not end well: the status, and why."""

    status: str
    details: dict[str, Any]


class ApiError(Exception):
    """What the server refuses."""

    def __init__(self, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.error = {"type": "invalid_request_error", "code": code, "message": message, "param": param}


def refusal(request: Request) -> Refusal | None:
    """How a handshake is refused without the key, or at another address."""

    def refused(status: int, message: str, code: str | None = None) -> Refusal:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        return status, {"x-request-id": "req_1"}, json.dumps({"error": error}).encode()

    if request.headers.get("authorization") != f"Bearer {KEY}":
        said = f"Incorrect API key provided: {request.headers.get('authorization')}"
        return refused(HTTPStatus.UNAUTHORIZED, said, "invalid_api_key")
    if not request.path.startswith("/v1/realtime?model="):
        return refused(HTTPStatus.NOT_FOUND, f"Invalid URL (GET {request.path})")
    return None


class RealtimeServer:
    """
    The server; `handle` serves one connection.

    Args:
        script: What is said, answer by answer.
        heard: What the user has said, utterance by utterance; None: it was not understood.
        transcript_late: Whether that is told after the answer.
    """

    def __init__(self, *script: Sequence[Step | End], heard: Sequence[str | None] = (), transcript_late: bool = False):
        self.script = list(script)
        self.heard = list(heard)
        self.transcript_late = transcript_late
        self.got: list[dict[str, Any]] = []  # all events of clients, those refused too
        self.errors: list[dict[str, Any]] = []
        self.connections: list[Connection] = []
        self.ignores_session = False

    async def handle(self, peer: Peer) -> None:
        connection = Connection(self, peer)
        self.connections.append(connection)
        try:
            async with trio.open_nursery() as nursery:
                await connection.run(nursery)
                nursery.cancel_scope.cancel()
        finally:
            connection.over.set()

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """The events of this kind that clients have sent."""
        return [event for event in self.got if event["type"] == kind]


class Connection:
    """One session."""

    def __init__(self, server: RealtimeServer, peer: Peer) -> None:
        self.server = server
        self.peer = peer
        self.over = trio.Event()
        self.is_deaf = False
        self.numbers = count(1)
        self.session: dict[str, Any] = {
            "type": "realtime", "object": "realtime.session", "id": "sess_1", "model": "gpt-realtime-2",
            "output_modalities": ["audio"], "instructions": "Be kind.", "tools": [],
            "audio": {"input": {"turn_detection": {"type": "server_vad"}}, "output": {"voice": "marin"}},
        }  # fmt: skip
        self.items: dict[str, dict[str, Any]] = {}
        self.sound_ms: dict[str, int] = {}  # of each item of the assistant
        self.outputs: set[str] = set()
        self.buffer = bytearray()
        self.voice = False  # the user speaks
        self.silence_ms = 0.0
        self.utterance = ""
        self.answering: trio.CancelScope | None = None
        self.response_id: str | None = None
        self.why: dict[str, Any] = {}

    async def run(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        await self.say("session.created", session=self.session)
        async with aclosing(self.peer.messages()) as messages:
            async for text in messages:
                await self.take(json.loads(text))

    async def take(self, event: dict[str, Any]) -> None:
        self.server.got.append(event)
        if self.is_deaf:
            await trio.sleep_forever()
        try:
            problem = problem_with(event, RealtimeClientEventParam, "event")
            if problem is not None:
                raise ApiError(problem, "invalid_value")
            await getattr(self, "on_" + event["type"].replace(".", "_"))(event)
        except ApiError as refused:
            error = {**refused.error, "event_id": event.get("event_id")}
            self.server.errors.append(error)
            await self.say("error", error=error)

    async def say(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "event_id": f"event_{next(self.numbers)}", **fields}
        _server_event.validate_python(event)
        await self.peer.send(event)

    # --- the session

    async def on_session_update(self, event: dict[str, Any]) -> None:
        told = event["session"]
        if self.server.ignores_session:
            return
        voice = told.get("audio", {}).get("output", {}).get("voice")
        if voice is not None and self.sound_ms and voice != self.session["audio"]["output"]["voice"]:
            raise ApiError("Cannot update a conversation's voice if assistant audio is present.", "cannot_update_voice")
        if isinstance(told.get("max_output_tokens"), int) and not 1 <= told["max_output_tokens"] <= 4096:
            raise ApiError("Invalid 'session.max_output_tokens'", "integer_above_max_value")
        new = told.get("audio", {})
        sides = {side: {**self.session["audio"][side], **new.get(side, {})} for side in ("input", "output")}
        self.session = {**self.session, **told, "audio": sides}
        await self.say("session.updated", session=self.session)

    @property
    def turns(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.session["audio"]["input"]["turn_detection"]
        return found

    # --- the user

    async def on_input_audio_buffer_append(self, event: dict[str, Any]) -> None:
        try:
            data = base64.b64decode(event["audio"], validate=True)
        except ValueError:
            raise ApiError("Invalid 'audio'. Expected base64-encoded audio bytes.", "invalid_value", "audio") from None
        self.buffer += data
        if self.turns is None:
            return
        if data.strip(b"\0"):
            self.silence_ms = 0.0
            if not self.voice:
                self.voice, self.utterance = True, f"item_user_{next(self.numbers)}"
                await self.say("input_audio_buffer.speech_started", audio_start_ms=0, item_id=self.utterance)
                if self.turns.get("interrupt_response", True) and self.answering is not None:
                    self.why = {"status": "cancelled", "details": {"type": "cancelled", "reason": "turn_detected"}}
                    self.answering.cancel()
        elif self.voice:
            self.silence_ms += len(data) / BYTES_PER_MS
            if self.silence_ms >= self.turns.get("silence_duration_ms", 500):
                self.voice = False
                await self.say("input_audio_buffer.speech_stopped", audio_end_ms=0, item_id=self.utterance)
                await self.commit(self.utterance)
                if self.turns.get("create_response", True):
                    await self.answer()

    async def on_input_audio_buffer_commit(self, event: dict[str, Any]) -> None:
        ms = len(self.buffer) / BYTES_PER_MS
        if ms < 100:
            said = f"Error committing input audio buffer: buffer too small. Expected at least 100ms, found {ms:.2f}ms."
            raise ApiError(said, "input_audio_buffer_commit_empty")
        await self.commit(f"item_user_{next(self.numbers)}")

    async def on_input_audio_buffer_clear(self, event: dict[str, Any]) -> None:
        self.buffer.clear()
        await self.say("input_audio_buffer.cleared")

    async def commit(self, item_id: str) -> None:
        self.buffer.clear()
        await self.say("input_audio_buffer.committed", item_id=item_id, previous_item_id=None)
        content = [{"type": "input_audio", "transcript": None}]
        await self.add({"id": item_id, "type": "message", "role": "user", "content": content})
        if self.session["audio"]["input"].get("transcription") and not self.server.transcript_late:
            await self.transcribe(item_id)

    async def transcribe(self, item_id: str) -> None:
        said, prefix = self.server.heard.pop(0), "conversation.item.input_audio_transcription"
        where = {"item_id": item_id, "content_index": 0}
        if said is None:
            await self.say(f"{prefix}.failed", **where, error={"code": "audio_unintelligible", "message": "Mumbling."})
            return
        for piece in said.split(" ")[:1]:
            await self.say(f"{prefix}.delta", **where, delta=piece)
        usage = {"type": "duration", "seconds": 1.0}
        await self.say(f"{prefix}.completed", **where, transcript=said, usage=usage)

    async def on_conversation_item_create(self, event: dict[str, Any]) -> None:
        item = dict(event["item"])
        if len(item.get("id", "")) > 32 or len(item.get("call_id", "")) > 32:
            raise ApiError("Invalid 'item.id': string too long, expected 32 at most", "string_above_max_length")
        if item.get("id") in self.items:
            raise ApiError(f"Error adding item: an item with id {item['id']} already exists.", "item_already_exists")
        calls = {each["call_id"] for each in self.items.values() if each["type"] == "function_call"}
        if item["type"] == "function_call_output":
            if item["call_id"] not in calls - self.outputs:
                raise ApiError(f"No tool call found for call_id {item['call_id']}.", "invalid_tool_call_id")
            self.outputs.add(item["call_id"])
        if item["type"] == "message":
            kinds = {"user": ("input_text", "input_audio", "input_image"), "assistant": ("output_text",)}[item["role"]]
            for piece in item["content"]:
                if piece["type"] not in kinds:
                    raise ApiError(f"Invalid value: '{piece['type']}'. Supported values are: {kinds}.", "invalid_value")
                if not piece.get("image_url", "data:image/png").startswith(("data:image/png", "data:image/jpeg")):
                    raise ApiError("Expected a PNG or a JPEG", "invalid_value")
        item.setdefault("id", f"item_{next(self.numbers)}")
        await self.add(item)

    async def add(self, item: dict[str, Any]) -> None:
        before = next(reversed(self.items), None)
        self.items[item["id"]] = item
        await self.say("conversation.item.added", item=item, previous_item_id=before)
        if item.get("status") != "in_progress":
            await self.say("conversation.item.done", item=item, previous_item_id=before)

    async def on_conversation_item_truncate(self, event: dict[str, Any]) -> None:
        item_id, ms = event["item_id"], event["audio_end_ms"]
        if item_id not in self.sound_ms:
            raise ApiError(f"Item with item_id {item_id} not found, or without audio.", "item_truncate_invalid_item_id")
        if event["content_index"] != 0 or not 0 < ms <= self.sound_ms[item_id]:
            said = f"Audio content of {self.sound_ms[item_id]}ms is already shorter than {ms}ms"
            raise ApiError(said, "invalid_value", "audio_end_ms")
        self.sound_ms[item_id] = ms
        await self.say("conversation.item.truncated", item_id=item_id, content_index=0, audio_end_ms=ms)

    # --- the answer

    async def on_response_create(self, event: dict[str, Any]) -> None:
        if self.answering is not None:
            raise ApiError(
                f"Conversation already has an active response in progress: {self.response_id}.",
                "conversation_already_has_active_response",
            )
        await self.answer()

    async def on_response_cancel(self, event: dict[str, Any]) -> None:
        if self.answering is None or event.get("response_id", self.response_id) != self.response_id:
            raise ApiError("Cancellation failed: no active response found", "response_cancel_not_active")
        self.why = {"status": "cancelled", "details": {"type": "cancelled", "reason": "client_cancelled"}}
        self.answering.cancel()

    async def answer(self) -> None:
        self.answering, self.response_id, self.why = trio.CancelScope(), f"resp_{next(self.numbers)}", {}
        self.nursery.start_soon(self.play, self.server.script.pop(0), self.answering, self.response_id)
        await trio.lowlevel.checkpoint()

    async def play(self, steps: Sequence[Step | End], scope: trio.CancelScope, response_id: str) -> None:
        status, details, output = "completed", None, []
        head = {"id": response_id, "object": "realtime.response", "status": "in_progress", "output": []}
        await self.say("response.created", response=head)
        with scope:
            for index, step in enumerate(steps):
                if isinstance(step, End):
                    status, details = step.status, step.details
                elif isinstance(step, Say):
                    output.append(await self.speak(step, response_id, index))
                elif isinstance(step, Call):
                    output.append(await self.call(step, response_id, index))
                else:
                    await self.do(step)
        if scope.cancelled_caught and self.why:
            status, details = self.why["status"], self.why["details"]
        usage = {
            "total_tokens": 30, "input_tokens": 20, "output_tokens": 10,
            "input_token_details": {"cached_tokens": 3, "audio_tokens": 15, "text_tokens": 5},
            "output_token_details": {"audio_tokens": 8, "text_tokens": 2},
        }  # fmt: skip
        limits = [{"name": "tokens", "limit": 1000, "remaining": 970, "reset_seconds": 0.5}]
        await self.say("rate_limits.updated", rate_limits=limits)
        done = {**head, "status": status, "status_details": details, "output": output, "usage": usage}
        if self.response_id == response_id:
            self.answering = None
        await self.say("response.done", response=done)
        if self.server.transcript_late and self.server.heard:
            await self.transcribe(self.utterance)

    async def do(self, step: Step) -> None:
        if isinstance(step, Hold):
            step.began.set()
            await step.until.wait()
        elif isinstance(step, Send):
            for event in step.events:
                await self.peer.send(event)
        elif isinstance(step, Deaf):
            self.is_deaf = True
        elif isinstance(step, Close):
            await self.peer.close(step.code, step.reason)
            await trio.sleep_forever()
        else:
            self.peer.reset()
            await trio.sleep_forever()

    async def speak(self, step: Say, response_id: str, index: int) -> dict[str, Any]:
        item_id = f"item_said_{next(self.numbers)}"
        item: dict[str, Any] = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress"}
        item["content"] = []
        place = {"response_id": response_id, "output_index": index}
        where = {**place, "item_id": item_id, "content_index": 0}
        await self.say("response.output_item.added", **place, item=item)
        await self.add(item)
        kind = "audio" if step.audio else "text"
        await self.say("response.content_part.added", **where, part={"type": kind})
        for word in re.findall(r"\S+\s*", step.text):
            if not step.audio:
                await self.say("response.output_text.delta", **where, delta=word)
                continue
            await self.say("response.output_audio_transcript.delta", **where, delta=word)
            sound = base64.b64encode(bytes([len(word), 0]) * (CHUNK_MS * BYTES_PER_MS // 2)).decode()
            self.sound_ms[item_id] = self.sound_ms.get(item_id, 0) + CHUNK_MS
            await self.say("response.output_audio.delta", **where, delta=sound)
        if step.audio:
            await self.say("response.output_audio.done", **where)
            await self.say("response.output_audio_transcript.done", **where, transcript=step.text)
        else:
            await self.say("response.output_text.done", **where, text=step.text)
        part = {"type": kind, "transcript" if step.audio else "text": step.text}
        await self.say("response.content_part.done", **where, part=part)
        said = {"type": f"output_{kind}", "transcript" if step.audio else "text": step.text}
        item = {**item, "status": "completed", "content": [said]}
        await self.say("response.output_item.done", **place, item=item)
        return item

    async def call(self, step: Call, response_id: str, index: int) -> dict[str, Any]:
        number = next(self.numbers)
        item_id, call_id = f"item_call_{number}", step.id or f"call_{number}"
        place = {"response_id": response_id, "output_index": index}
        item = {"id": item_id, "type": "function_call", "name": step.name, "call_id": call_id}
        begun = {**item, "status": "in_progress", "arguments": ""}
        await self.say("response.output_item.added", **place, item=begun)
        await self.add(begun)
        where = {**place, "item_id": item_id, "call_id": call_id}
        for start in range(0, len(step.arguments), 4):
            await self.say("response.function_call_arguments.delta", **where, delta=step.arguments[start : start + 4])
        await self.say("response.function_call_arguments.done", **where, name=step.name, arguments=step.arguments)
        whole = {**item, "status": "completed", "arguments": step.arguments}
        self.items[item_id] = whole
        await self.say("response.output_item.done", **place, item=whole)
        return whole
