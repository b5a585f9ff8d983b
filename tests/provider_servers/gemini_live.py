"""
Google's Live API: a server that refuses what the real one refuses, and otherwise plays what a test has written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
from google.genai import types
from websockets.protocol import State

from .gemini import problem_with_fields
from .sockets import Peer

__all__ = ["KEY", "PROJECT", "GeminiLiveServer", "Line", "Play", "problem_with_message"]

KEY = "AIza-test"
PROJECT = "projects/p/locations/l/publishers/google"

_PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
_VERTEX_PATH = "/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent"
_MODEL = re.compile(r"models/gemini-[a-z0-9.-]+")
_VERTEX_MODEL = re.compile(rf"{PROJECT}/models/gemini-[a-z0-9.-]+")
_PCM = re.compile(r"audio/(pcm|l16)(;rate=[0-9]+)?")
# What the API takes of `generationConfig` in a live session, as its reference says.
_NOT_LIVE = {
    "responseLogprobs", "logprobs", "responseMimeType", "responseSchema", "responseJsonSchema", "stopSequences",
    "routingConfig", "audioTimestamp", "candidateCount",
}  # fmt: skip
_INVALID = "Request contains an invalid argument."


class _Setup(types.LiveClientSetup):
    """The SDK's type, and the field that its converters add."""

    realtime_input_config: types.RealtimeInputConfig | None = None


class _Message(types.LiveClientMessage):
    setup: _Setup | None = None


def problem_with_message(message: Any) -> str | None:
    """What is wrong with the form of a message."""
    if not isinstance(message, dict) or len(message) != 1:
        return "a message has exactly one field"
    if _has_null(message):
        return "null is no value"
    return problem_with_fields(_Message, message)


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


@attrs.define
class _Session:
    """What outlives a connection."""

    calls: dict[str, str] = attrs.field(factory=dict)  # those without a response: names by ids
    line: Line | None = None


class Line:
    """One connection, as a test's play sees it."""

    def __init__(self, server: GeminiLiveServer, peer: Peer) -> None:
        self.peer = peer
        self.setup: dict[str, Any] = {}
        self.session = _Session()
        self.heard: list[dict[str, Any]] = []  # the valid messages after the setup
        self.is_active = False  # the client has said that the user speaks
        self.awaits_history = False
        self.closed = trio.Event()
        self._server = server
        self._send, self._messages = trio.open_memory_channel[dict[str, Any]](1000)

    @property
    def detects(self) -> bool:
        config = self.setup.get("realtimeInputConfig", {})
        return not config.get("automaticActivityDetection", {}).get("disabled", False)

    @property
    def is_new(self) -> bool:
        """Whether the model takes what is typed in real time only."""
        return re.search(r"gemini-(live-)?[12]\.", self.setup["model"]) is None

    async def hear(self) -> dict[str, Any]:
        """The next message of the client."""
        return await self._messages.receive()

    async def say(self, **message: Any) -> None:
        """Send a message, if the client is there; Google sends JSON as binary messages."""
        await trio.lowlevel.checkpoint()
        if self.peer.protocol.state is State.OPEN:
            await self.peer.send(json.dumps(message).encode())

    async def content(self, **said: Any) -> None:
        await self.say(serverContent=said)

    async def call(self, call_id: str, name: str, **args: Any) -> None:
        self.session.calls[call_id] = name
        await self.say(toolCall={"functionCalls": [{"id": call_id, "name": name, "args": args}]})

    async def withdraw(self, *ids: str) -> None:
        for call_id in ids:
            del self.session.calls[call_id]
        await self.say(toolCallCancellation={"ids": list(ids)})

    async def handle(self, name: str) -> None:
        """Say by which name the session can be gone on with."""
        self._server.sessions[name] = self.session
        told: dict[str, Any] = {"newHandle": name, "resumable": True}
        if self.setup["sessionResumption"].get("transparent"):
            told["lastConsumedClientMessageIndex"] = str(len(self.heard))
        await self.say(sessionResumptionUpdate=told)

    def take(self, message: dict[str, Any]) -> str | None:
        """Take a message after the setup; return what is wrong with it."""
        problem = problem_with_message(message) or self._problem_with(message)
        if problem is None:
            self.heard.append(message)
            self._send.send_nowait(message)
        return problem

    def _problem_with(self, message: dict[str, Any]) -> str | None:
        ((name, value),) = message.items()
        match name:
            case "clientContent":
                return self._problem_with_content(value)
            case "realtimeInput":
                return self._problem_with_input(value)
            case "toolResponse":
                return self._problem_with_responses(value)
            case "contextUpdate":
                return None
        return "the setup comes once"

    def _problem_with_content(self, content: dict[str, Any]) -> str | None:
        if self.is_new and not self.awaits_history:
            return _INVALID  # these take it only for what was said before, where it was announced
        calls: list[Any] = []
        for turn in content.get("turns", ()):
            if turn.get("role") not in ("user", "model") or not turn.get("parts"):
                return "a turn has a role and parts"
            if any(part.get("text") == "" for part in turn["parts"]):
                return "a part must have one initialized field"
            responses = [part["functionResponse"].get("id") for part in turn["parts"] if "functionResponse" in part]
            if responses != calls:
                return "function responses do not fit the calls before"
            calls = [part["functionCall"].get("id") for part in turn["parts"] if "functionCall" in part]
        if calls:
            return "function calls without responses"
        if content.get("turnComplete"):
            self.awaits_history = False
        return None

    def _problem_with_input(self, told: dict[str, Any]) -> str | None:
        if len(told) != 1:
            return _INVALID
        ((name, value),) = told.items()
        if self.awaits_history:
            return _INVALID
        if name in ("activityStart", "activityEnd"):
            if self.detects:
                return "Explicit activity control is not supported when automatic activity detection is enabled."
            if self.is_active == (name == "activityStart"):
                return "activities begin and end by turns"
            self.is_active = name == "activityStart"
            return None
        if name == "audio":
            return None if _PCM.fullmatch(value["mimeType"]) and value["data"] else _INVALID
        if name == "video":
            return None if value["mimeType"].startswith("image/") and value["data"] else _INVALID
        if name == "text":
            return None if value and (self.detects or self.is_active) else _INVALID
        fits = name == "audioStreamEnd" and value is True and self.detects and not self._server.is_vertex
        return None if fits else _INVALID

    def _problem_with_responses(self, told: dict[str, Any]) -> str | None:
        if not told["functionResponses"]:
            return _INVALID
        for response in told["functionResponses"]:
            call_id = response.get("id")
            if self.session.calls.get(call_id) != response["name"] or "response" not in response:
                return f"no such call: {call_id}"
            if "parts" in response or ("willContinue" in response and self._server.is_vertex):
                return _INVALID
            if not response.get("willContinue"):
                del self.session.calls[call_id]
        return None


Play = Callable[[Line], Awaitable[None]]


class GeminiLiveServer:
    """
    Serves connections, each by the next of the plays; when a play has ended, the client is listened to as before.

    Args:
        plays: What is said on each connection, in the order in which they come.
        is_vertex: Whether it is Vertex AI.
    """

    def __init__(self, *plays: Play, is_vertex: bool = False) -> None:
        self.lines: list[Line] = []
        self.sessions: dict[str, _Session] = {}  # by handle
        self.problems: list[str] = []  # what the client has done wrong
        self.is_vertex = is_vertex
        self._plays = list(plays)

    async def __call__(self, peer: Peer) -> None:
        line = Line(self, peer)
        async with trio.open_nursery() as nursery:
            async for text in peer.messages():
                message = json.loads(text)
                problem = line.take(message) if line.setup else self._set_up(line, message)
                if problem is not None:
                    self.problems.append(problem)
                    await peer.close(1007, problem)
                elif line not in self.lines:
                    self.lines.append(line)
                    await line.say(setupComplete={})
                    if self._plays:
                        nursery.start_soon(self._plays.pop(0), line)
            nursery.cancel_scope.cancel()
        line.closed.set()

    def _set_up(self, line: Line, message: dict[str, Any]) -> str | None:
        problem = self._problem_with_setup(line, message)
        if problem is None:
            line.setup = message["setup"]
            line.session.line = line
            history = line.setup.get("historyConfig", {})
            line.awaits_history = history.get("initialHistoryInClientContent", False)
        return problem

    def _problem_with_setup(self, line: Line, message: dict[str, Any]) -> str | None:
        assert line.peer.request is not None
        headers, path = line.peer.request.headers, line.peer.request.path
        key = headers.get("authorization" if self.is_vertex else "x-goog-api-key")
        if key != (f"Bearer {KEY}" if self.is_vertex else KEY):
            return f"API key not valid. Please pass a valid API key, not {key}."
        if path != (_VERTEX_PATH if self.is_vertex else _PATH) or "setup" not in message:
            return _INVALID
        problem = problem_with_message(message)
        if problem is not None:
            return problem
        setup = message["setup"]
        generation, resumption = setup.get("generationConfig", {}), setup.get("sessionResumption", {})
        only_vertex = "transparent" in resumption or "explicitVadSignal" in setup
        if (only_vertex and not self.is_vertex) or ("labels" in setup and self.is_vertex):
            return _INVALID
        if not (_VERTEX_MODEL if self.is_vertex else _MODEL).fullmatch(setup["model"]) or _NOT_LIVE & generation.keys():
            return _INVALID
        if "handle" not in resumption:
            return None
        session = self.sessions.get(resumption["handle"])
        if session is None or "historyConfig" in setup:
            return "Session not found."
        if session.line is not None and not session.line.closed.is_set():
            return "The session is in use by another connection."
        line.session = session
        return None
