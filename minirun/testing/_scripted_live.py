"""
A live model that converses by a script: for tests, simulations and examples, offline and deterministic.

    live = ScriptedLive([[hear("what time is it?"), call("clock")], say("It is noon.")], dialect="openai")

It is strict both ways, as `ScriptedLlm` is: what a live server would refuse fails the run with an error that no hook
can swallow, and `assert_done()` fails if part of the script was never asked for. The parts: `_live_steps` is what a
script is made of, `_live_protocol` what is refused, `_live_play` what is said next, `_live_dialects` how the providers
differ. Here are the waits: nothing is played by a task of its own; `receive` plays, as fast as it is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from typing import Any, get_args

import attrs
import trio

from .._json import brief, is_seconds
from ..errors import (
    ConfigurationError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
    NotSupportedError,
    ScriptError,
)
from ..models import (
    ActivityEnd,
    ActivityStart,
    AudioStreamEnd,
    BaseLlm,
    BaseLlmConnection,
    LiveCapabilities,
    LiveConnectConfig,
    LlmRequest,
    LlmResponse,
)
from ..types import Blob, Content
from ._live_dialects import DIALECTS, DialectName
from ._live_play import Play, Until
from ._live_protocol import Conversation, Ear, check_content, check_history, sound_ms
from ._live_steps import Drop, Entry, LiveScript, LiveSent, Step, steps_of

__all__ = ["ScriptedLive"]

# The close codes of a server that finds fault with what it was sent: bad input, against its policy.
REFUSALS = (1007, 1008)
GOING_AWAY = 1001
SIGNALS = {ActivityStart: "activity_start", ActivityEnd: "activity_end", AudioStreamEnd: "audio_stream_end"}


class ScriptedLive(BaseLlm):
    """
    A live model that answers from a script, as Gemini Live or OpenAI Realtime would.

    The next entry of the script is played for each thing that is owed an answer: a content with `turn_complete`, the
    responses to all calls of an answer, a history with `answer`, an `ActivityEnd`, an `AudioStreamEnd`, and an
    utterance that the server has heard. It hears one where a chunk of sound is not all zeros, until there are zeros for
    *silence_ms*; unless the request has `automatic_activity_detection` disabled. An answer ends with its entry, as the
    dialect says it; an entry without an answer, such as `[]`, says nothing.

    What interrupts an answer: `cancel`, `ActivityStart`, the user's voice, and in Gemini's dialect a content that is to
    be answered; in OpenAI's it waits until the answer is over, since the server would refuse it. The rest of the
    interrupted entry is not played.

    What a server would refuse raises ScriptError, and has no effect: sending from two tasks at once; a history that is
    not the first thing, or on a session that is gone on with; a second response to a call, or one to an unknown or
    withdrawn call; a content again that is known to be taken up; a truncation beyond what was
    sent, or of 0; signals of the client's own voice detection while the server's is on; sound of another rate. What the
    client learns only after it has begun to send is not held against it: a response to a call that is withdrawn
    meanwhile is of no effect. Sending on a connection that is over raises the error that `receive` has raised, or
    ModelConnectionError.

    Args:
        script: A list of entries, or a function that is given what was sent (see `LiveSent`) and returns an entry; None
            is no answer. An entry is a step or a list of steps: a text (see `say`), `call(...)`, `hear(...)`,
            `pause(...)`, `drop(...)` and so on, a `Content`, an `LlmResponse` as it is, or an exception for `receive`.
        dialect: Which provider it behaves like: `gemini` or `openai`.
        on_connect: What each connection begins with: a list with one entry for each, in their order; further ones
            begin with nothing. An exception that comes first in its entry is raised by connecting.
        text: The model that answers `generate_content_async`; None: it is refused.
        name: What events and errors call it.
        live_capabilities: What its connections are able to do, if not what the dialect's are.
        word_ms: How long the sound of a word is, in milliseconds.
        in_flight: How many pieces of an answer still come after an interruption.
        silence_ms: How long the silence is that ends an utterance, in milliseconds.
        handles: Handles that are good from the beginning, each of a session of its own.
        handle_s: How long a handle is good, in seconds on trio's clock.

    `sent` has everything it was sent so far, `requests` what its connections were asked for, `connections` these.
    """

    def __init__(
        self,
        script: LiveScript,
        *,
        dialect: DialectName = "gemini",
        on_connect: Sequence[Entry] = (),
        text: BaseLlm | None = None,
        name: str = "scripted-live",
        live_capabilities: LiveCapabilities | None = None,
        word_ms: int = 250,
        in_flight: int = 1,
        silence_ms: float = 500.0,
        handles: Sequence[str] = (),
        handle_s: float = 7200.0,
    ) -> None:
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):
            msg = f"expected a list of entries or a function of what was sent, found {brief(script)}; write it in [...]"
            raise ConfigurationError(msg)
        if dialect not in DIALECTS:
            known = ", ".join(map(repr, get_args(DialectName)))
            raise ConfigurationError(f"expected dialect to be one of {known}, found {brief(dialect)}")
        if handles and not DIALECTS[dialect].resumes:
            raise ConfigurationError(f"expected no handles in the dialect {dialect!r}, found {brief(handles)}")
        for option, value, least in (("word_ms", word_ms, 1), ("in_flight", in_flight, 0)):
            if type(value) is not int or value < least:
                msg = f"expected {option} to be an integer from {least} up, found {brief(value)}"
                raise ConfigurationError(msg)
        for option, seconds in (("silence_ms", silence_ms), ("handle_s", handle_s)):
            if not is_seconds(seconds):
                msg = f"expected {option} to be a finite number from 0 up, found {brief(seconds)}"
                raise ConfigurationError(msg)
        self.name = name
        self.dialect = DIALECTS[dialect]
        self.live_capabilities = live_capabilities or self.dialect.capabilities
        self.word_ms, self.in_flight, self.silence_ms = word_ms, in_flight, silence_ms
        self._text = text
        self._only_gemini = self.dialect.resumes
        self._script: Any = script if callable(script) else [steps_of(each, self._only_gemini) for each in script]
        self._on_connect = [steps_of(each, self._only_gemini) for each in on_connect]
        self._first_handles = tuple(handles)
        self._handle_s = handle_s
        self.restart()

    def restart(self) -> None:
        """Begin the script again, as if nothing had been sent. A simulation does so for every process."""
        self.requests: list[LlmRequest] = []
        self.sent: list[LiveSent] = []
        self.connections: list[ScriptedLiveConnection] = []
        self._next = 0
        self._ids: Counter[str] = Counter()
        self._handles = {handle: (self._conversation(), math.inf) for handle in self._first_handles}

    def assert_done(self) -> None:
        """
        Check that the whole script was asked for.

        Raises:
            ScriptError: Entries are left over.
        """
        if not callable(self._script) and self._next < len(self._script):
            expected = f"expected {self.name!r} to be asked for {len(self._script)} answers, found {self._next}"
            raise ScriptError(f"{expected}; left over: {brief(self._script[self._next :], 200)}")

    def play(self, *steps: Step) -> None:
        """
        Let the server of the newest connection say something unasked, after what it is saying.

        Raises:
            ScriptError: There is no connection.
        """
        if not self.connections or self.connections[-1].is_over:
            raise ScriptError(f"expected {self.name!r} to have a connection that is open, found none; connect first")
        self.connections[-1]._trigger(steps_of(steps, self._only_gemini))

    def connect(self, request: LlmRequest) -> AbstractAsyncContextManager[ScriptedLiveConnection]:
        """
        Converse; see the class.

        Raises:
            ModelRequestError: The handle is not known, or no longer good.
            ScriptError: The connection that had the session before is still open.
        """
        return self._connected(request)

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Ask the model that `text` names."""
        if self._text is None:
            msg = f"the model {self.name!r} only converses, and was asked to answer a request; give it `text=`"
            raise NotSupportedError(msg)
        async with aclosing(self._text.generate_content_async(request, stream)) as responses:
            async for response in responses:
                yield response

    async def aclose(self) -> None:
        """Give back what the model of texts holds."""
        if self._text is not None:
            await self._text.aclose()

    @asynccontextmanager
    async def _connected(self, request: LlmRequest) -> AsyncIterator[ScriptedLiveConnection]:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        number = len(self.requests)
        self.sent.append(LiveSent(connection=number, kind="connect", at=trio.current_time(), request=request))
        first = list(self._on_connect[number - 1]) if number <= len(self._on_connect) else []
        if first and isinstance(first[0], BaseException):
            raise first[0]
        connection = ScriptedLiveConnection(self, number, request, self._session_of(request))
        self.connections.append(connection)
        if first:
            connection._trigger(first)
        try:
            yield connection
        finally:
            await connection.aclose()

    def _conversation(self) -> Conversation:
        return Conversation()

    def _session_of(self, request: LlmRequest) -> Conversation:
        """The session that the request's handle names; a new one without a handle."""
        handle = request.live.handle if request.live is not None else None
        if handle is None:
            return self._conversation()
        session, good_until = self._handles.get(handle, (None, 0.0))
        if session is None or trio.current_time() > good_until:
            found = "one that was never given out" if session is None else "one that is too old"
            msg = f"expected a handle that {self.name!r} has given out, found {found}: {handle!r}; begin a new session"
            raise ModelRequestError(msg, status=400)
        for each in self.connections:
            if each.conversation is session and not each.is_over:
                msg = f"expected connection {each.number} to be closed before its session goes on by {handle!r}"
                raise ScriptError(f"{msg}, found it open; a server refuses that")
        return session

    def _give(self, handle: str, session: Conversation) -> None:
        """The handle is good from now on."""
        self._handles[handle] = (session, trio.current_time() + self._handle_s)

    def _new_id(self, kind: str) -> str:
        self._ids[kind] += 1
        return f"{kind}-{self._ids[kind]}"

    def _steps_for(self, sent: LiveSent) -> list[object] | None:
        """The entry that answers *sent*; None: it is not answered."""
        if callable(self._script):
            entry = self._script(sent)
            return None if entry is None else steps_of(entry, self._only_gemini)
        if self._next >= len(self._script):
            what = f"{sent.kind} {brief(sent.text, 200)}" if sent.text else sent.kind
            expected = f"expected {self.name!r} to be asked for at most {len(self._script)} answers, found one more"
            raise ScriptError(f"{expected}: {what}; add an entry to the script, or look for a loop")
        self._next += 1
        return list(self._script[self._next - 1])


class ScriptedLiveConnection(BaseLlmConnection):
    """
    One connection to a `ScriptedLive`, which its `connections` has.

    `number` is which one, from 1 up; `request` what it was asked for; `is_over` whether either side has ended it;
    `conversation` is the session, which another connection may go on with.
    """

    def __init__(self, model: ScriptedLive, number: int, request: LlmRequest, conversation: Conversation) -> None:
        self.number = number
        self.request = request
        self.conversation = conversation
        self.capabilities = model.live_capabilities
        self._model = model
        live = request.live or LiveConnectConfig()
        self._is_resumed = live.handle is not None
        detection = (live.realtime_input_config or {}).get("automatic_activity_detection") or {}
        self._automatic = not detection.get("disabled")
        self._play = Play(
            dialect=model.dialect,
            live=live,
            conversation=conversation,
            automatic=self._automatic,
            rate=self.capabilities.output_rate,
            word_ms=model.word_ms,
            in_flight=model.in_flight,
            new_id=model._new_id,
        )
        self._ear = Ear(model.silence_ms)
        self._utterance: str | None = None  # which the server is hearing
        self._active = False  # whether the client's own voice detection hears the user
        self._has_sent = False
        self._is_sending = False
        self._is_received = False
        self._closed = False
        self._lost: ModelError | None = None
        self._ends_normally = False
        self._wake = trio.Event()
        lifetime_s = self.capabilities.lifetime_s
        self._ends_at = math.inf if lifetime_s is None else trio.current_time() + lifetime_s

    @property
    def is_over(self) -> bool:
        """Whether either side has ended the connection."""
        return self._closed or self._lost is not None

    # --- what it is sent ---

    async def send_history(self, contents: Sequence[Content], *, answer: bool) -> None:
        sent = self._sent("history", contents=tuple(contents), turn_complete=answer)
        with await self._taken(sent):
            if self._has_sent or self._is_resumed:
                found = "a session that goes on and has its own" if self._is_resumed else "one after something else"
                raise ScriptError(f"expected a history as the first thing that a new session is sent, found {found}")
            check_history(contents, answer)
        answered = {each.id for content in contents for each in content.responses}
        calls = [call for content in contents for call in content.calls if call.id and call.id not in answered]
        self.conversation.made(calls, 0)
        if answer:
            self._answer(sent)

    async def send_content(self, content: Content, *, turn_complete: bool = True, id: str | None = None) -> None:
        responses = check_content(content)
        kind = "responses" if responses else "content"
        sent = self._sent(kind, content=content, turn_complete=turn_complete, id=id)
        known = self.conversation.known()
        with await self._taken(sent):
            self.conversation.check_id(id, known)
            self.conversation.check_responses(responses, known, id)
        if responses:
            if self.conversation.answered(responses, id) and turn_complete:
                self._answer(sent)
        elif turn_complete:
            if self._model.dialect.content_interrupts:
                self._play.interrupt()
            self._answer(sent)
        else:
            self.conversation.take_up(id)

    async def send_realtime(self, data: Blob | ActivityStart | ActivityEnd | AudioStreamEnd) -> None:
        if isinstance(data, Blob):
            ms = sound_ms(data, self.capabilities.input_rate)
            sent = self._sent("audio" if ms else "image", data=data)
            with await self._taken(sent):
                pass
            if ms and self._automatic:
                self._hear(sent, self._ear.hear(data.data, ms))
            return
        kind = SIGNALS.get(type(data))
        if kind is None:
            raise ScriptError(f"expected a Blob, ActivityStart, ActivityEnd or AudioStreamEnd, found {brief(data)}")
        sent = self._sent(kind)
        with await self._taken(sent):
            self._check_signal(kind)
        self._signalled(sent)

    async def cancel(self) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open(sent := self._sent("cancel"))
        self._model.sent.append(sent)
        self._play.interrupt()
        self._wake_up()

    async def truncate(self, item_id: str, played_ms: int) -> None:
        sent = self._sent("truncate", item_id=item_id, played_ms=played_ms)
        with await self._taken(sent):
            if not self.capabilities.knows_playback:
                self.conversation.check_truncation(item_id, played_ms)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._model.sent.append(self._sent("close"))
            self._wake_up()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _sent(self, kind: str, **told: Any) -> LiveSent:
        return LiveSent(connection=self.number, kind=kind, at=trio.current_time(), **told)

    async def _taken(self, sent: LiveSent) -> Any:
        """
        Wait for the line; then the block checks *sent*, which is recorded where nothing is wrong with it.

        Cancelled, nothing was sent.
        """
        if self._is_sending:
            msg = f"expected one task to send on connection {self.number}, found another that sends {sent.kind}"
            raise ScriptError(msg)
        self._is_sending = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._is_sending = False
        self._check_open(sent)
        return self._recorded(sent)

    @contextmanager
    def _recorded(self, sent: LiveSent) -> Iterator[None]:
        yield
        self._has_sent = True
        self._model.sent.append(sent)

    def _check_open(self, sent: LiveSent) -> None:
        if self._closed:
            self._model.sent.append(attrs.evolve(sent, lost=True))
            msg = f"expected connection {self.number} of {self._model.name!r} to be open, found it closed by aclose()"
            raise ModelConnectionError(f"{msg}; connect again")
        if self._lost is not None:
            self._model.sent.append(attrs.evolve(sent, lost=True))
            raise type(self._lost)(str(self._lost))

    def _check_signal(self, kind: str) -> None:
        if kind == "audio_stream_end":
            if not self._automatic:
                msg = "expected AudioStreamEnd while the server detects the voice, found that the client does"
                raise ScriptError(f"{msg}; send ActivityEnd")
        elif self._automatic:
            msg = f"expected {kind} where `automatic_activity_detection` is disabled, found the server's detection on"
            raise ScriptError(f"{msg}; disable it in `realtime_input_config`")
        elif self._active is (kind == "activity_start"):
            raise ScriptError(f"expected activity_start and activity_end in turns, found {kind} twice")

    def _signalled(self, sent: LiveSent) -> None:
        if sent.kind == "activity_start":
            self._active = True
            self._play.interrupt()
            self._wake_up()
        elif sent.kind == "activity_end":
            self._active = False
            self._answer(sent)
        else:
            self._hear(sent, "stopped" if self._ear.stop() else "ended")

    def _hear(self, sent: LiveSent, what: str | None) -> None:
        """The voice detection has found a beginning or an end; `ended`: of sound in which it has heard nobody."""
        tells = self._play.tells_speech
        if what == "started":
            self._utterance = self._model._new_id("heard")
            told = [LlmResponse(speech_started=True, item_id=self._utterance)] if tells else []
            self._play.interrupt(*told)
            self._wake_up()
        elif what is not None:
            utterance, self._utterance = self._utterance, None
            if utterance is not None and tells:
                self._play.say_now(LlmResponse(speech_stopped=True, item_id=utterance))
            self._answer(sent, heard=utterance)

    def _answer(self, sent: LiveSent, heard: str | None = None) -> None:
        """Something is owed an answer: play the next entry."""
        steps = self._model._steps_for(sent)
        if steps is not None:
            self._trigger(steps, content_id=sent.id, heard=heard)
        else:
            self.conversation.take_up(sent.id)
        self._wake_up()

    def _trigger(self, steps: list[object], content_id: str | None = None, heard: str | None = None) -> None:
        self._play.trigger(steps, content_id=content_id, heard=heard)
        self._wake_up()

    def _wake_up(self) -> None:
        self._wake.set()
        self._wake = trio.Event()

    # --- what it says ---

    async def receive(self) -> AsyncGenerator[LlmResponse, None]:
        if self._is_received:
            raise ScriptError(f"expected receive() of connection {self.number} once, found it called again")
        self._is_received = True
        while (response := await self._next_response()) is not None:
            yield response

    async def _next_response(self) -> LlmResponse | None:
        """Wait for what is said next; None: the connection has ended in good order. Cancelled, it is said later."""
        while True:
            await trio.lowlevel.checkpoint()
            if self._closed or self._ends_normally:
                return None
            if self._lost is not None:
                raise self._lost
            now = trio.current_time()
            move = self._play.next(now) if now < self._ends_at else Drop(GOING_AWAY)
            if isinstance(move, LlmResponse):
                self._play.take(now)
                self._note(move, now)
                return move
            if isinstance(move, Drop):
                self._lose(move.code)
            elif isinstance(move, BaseException):
                self._lost = move if isinstance(move, ModelError) else ModelConnectionError(str(move))
                raise move
            else:
                with trio.move_on_at(min(move.time if isinstance(move, Until) else math.inf, self._ends_at)):
                    await self._wake.wait()

    def _note(self, response: LlmResponse, now: float) -> None:
        if response.go_away_s is not None:
            self._ends_at = min(self._ends_at, now + response.go_away_s)
        resumption = response.resumption
        if resumption is not None and resumption.handle is not None:
            self._model._give(resumption.handle, self.conversation)

    def _lose(self, code: int) -> None:
        kind = ModelRequestError if code in REFUSALS else ModelConnectionError
        self._lost = kind(f"the server {self._model.name!r} has closed connection {self.number} with code {code}")
        self._ends_normally = code == 1000
