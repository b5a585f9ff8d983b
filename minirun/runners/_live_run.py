"""
A live run: entering and leaving it is as of every run, and so is what it stores. Both sides speak at once in it.

It begins with an event of the user without content. The lease is held until it is left; who else has something to say
sends it in (`LiveRun.send_text`, `Runner.send`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from .._json import finite, shown
from ..agents._live_config import live_config, live_settings
from ..agents._live_line import Line, check_agents
from ..agents._live_request_queue import LiveRequest, LiveRequestQueue
from ..errors import ConfigurationError, InvalidValueError, InvocationEndedError, ServiceNotConfiguredError
from ..events import NO_ACTIONS, Event, EventActions
from ..flows._message import user_content
from ..models import ActivityEnd, ActivityStart
from ..runtime import Run, RunConfig, RunRequest, RunScope
from ..runtime._failure import Pause
from ..runtime._run import Execution
from ..runtime._scope import Entrance
from ..sessions._event_checks import checked_event
from ..sessions._live import RunWindow
from ..types import Blob, Content
from ._arguments import split_delta

if TYPE_CHECKING:
    from ..runtime._invocation import Invocation
    from ..sessions import Session
    from ._runner import Runner

__all__ = ["LiveRun", "LiveScope"]

_LINE = "line of the run"  # in the memo of its invocation
_FINISH_TURN_S = 30.0
_LOOK_S = 1.0
_PLAYED_MAX = 100  # how many reports are kept, of answers that may still be cut off

T = TypeVar("T")


class LiveRun(Run):
    """
    A live run in progress: iterate over it for its events, and send meanwhile, from other tasks or between two events.

    What is sent goes through a queue; while that is full the methods wait, which holds a microphone back. Cancelled,
    they have sent all of it or nothing. Between two events the task that iterates waits for a line that is there, and
    no longer: while a connection is made anew, which may wait for this very task, they drop the oldest sound, and raise
    LiveQueueFullError for what is no sound.
    """

    _line: Line
    _reader: trio.lowlevel.Task | None = None

    async def __anext__(self) -> Event:
        """See `Run`."""
        self._reader = trio.lowlevel.current_task()
        return await super().__anext__()

    async def send(self, content: str | Content, *, when: str = "next_model_call") -> str:
        """
        Say something that is no sound, or answer a question: `await live.send(question.reply(True))`.

        It is an event of the user once it is its turn in the queue, and the model answers it. With *when* `"idle"` it
        is stored at once, and the model hears of it when nobody has the word; see `Run.send`.

        Returns:
            The id of the event that it will be.

        An answer does not go through the queue: when this returns, it is stored, and the call that has asked begins
        again beside the conversation.

        Raises:
            InvocationEndedError: The conversation has ended, or is closing. A later run takes the answer to a question.
            InvalidMessageError: It is empty, or not what a user can send. Or it answers no open question of this run,
                or one that was answered, or not in its form.
        """
        if when != "next_model_call":
            return await super().send(content, when=when)
        message_id = f"m-{self._line.new_id()}"
        content = user_content(content, may_answer=True)
        if content.responses:
            from ..agents._live_questions import answer_question  # few conversations have questions

            self._check_open()
            await answer_question(self._line, content, message_id)
            return message_id
        await self._put(LiveRequest(content=content, id=message_id))
        return message_id

    async def send_text(self, text: str) -> str:
        """The same, for a text."""
        return await self.send(text)

    async def send_audio(self, chunk: bytes, *, rate: int | None = None) -> None:
        """
        Send a piece of sound, PCM16 of one channel: `await live.send_audio(chunk)`.

        *rate* is its samples a second; None: as many as the connection wants (`LiveCapabilities.input_rate`), which is
        waited for.

        Raises:
            InvalidMessageError: The model does not take this rate. Nothing was sent.
        """
        if rate is None:
            self._check_open()
            await self._line.connected.wait()
            rate = self._line.input_rate
        await self.send_realtime(Blob(data=chunk, mime_type=f"audio/pcm;rate={rate}"))

    async def send_realtime(self, blob: Blob) -> None:
        """
        Send what happens, such as a picture of a camera; nobody owes an answer to it.

        Raises:
            InvalidMessageError: The model takes no pictures, or no sound, of this type. Nothing was sent. Before there
                is a connection that is not known: then a partial event has the `error_code` `INVALID_MESSAGE`.
        """
        self._check_open()
        queue = self._line.queue
        await self._waiting(queue.put_realtime, queue.send_realtime, blob)

    async def send_activity_start(self) -> None:
        """Say that the user begins to speak, where the server does not find out itself."""
        await self._put(LiveRequest(activity_start=ActivityStart()))

    async def send_activity_end(self) -> None:
        """Say that the user has ended to speak."""
        await self._put(LiveRequest(activity_end=ActivityEnd()))

    async def send_audio_stream_end(self) -> None:
        """Say that the microphone is off."""
        await self._put(LiveRequest(audio_stream_end=True))

    async def _put(self, request: LiveRequest) -> None:
        self._check_open()
        await self._waiting(self._line.queue.put, self._line.queue.send, request)

    async def _waiting(self, put: Callable[[T], Awaitable[None]], send: Callable[[T], None], what: T) -> None:
        """Let *put* wait for room; the task that iterates looks every second whether anything is sent meanwhile."""
        if trio.lowlevel.current_task() is not self._reader:
            await put(what)
            return
        while True:
            with trio.move_on_after(_LOOK_S) as scope:
                await put(what)
            if not scope.cancelled_caught:
                return
            if not self._line.is_up:
                send(what)
                return

    def _check_open(self) -> None:
        if self._line.is_closing or self._line.ended.is_set():
            raise InvocationEndedError(f"the live run {self.invocation_id} has ended, or is closing; begin another one")

    async def played(self, item: str | Event, ms: float) -> None:
        """
        Say how much of an answer's sound was played, in milliseconds, once an event says that it is `interrupted`.

        *item* is that event, or its `live["item_id"]`. Said before the next event is asked for, it decides what is
        stored of the answer; else that is as much as the caller was given. So it is with what is said before the run
        is left in the middle of an answer, or of playing one.
        """
        length = finite(ms)
        if length is None or length < 0:
            raise InvalidValueError("ms", f"expected milliseconds from 0 up, found {shown(ms)}")
        name = (item.live or {}).get("item_id") if isinstance(item, Event) else item
        if not isinstance(name, str):
            raise InvalidValueError("item", f"expected an event of an answer, or its item_id, found {shown(item)}")
        await trio.lowlevel.checkpoint()
        reports = self._line.played
        reports[name] = length
        if len(reports) > _PLAYED_MAX:
            del reports[next(iter(reports))]

    async def interrupt(self) -> None:
        """Stop the answer that is given, or still played, as if the user had spoken; what was heard of it is stored."""
        await trio.lowlevel.checkpoint()
        if self._line.talk is None:  # one hands over to another, which says so
            self._line.playing.is_to_stop = True
        else:
            await self._line.talk.interrupt()

    async def aclose(self, finish_turn_s: float | None = _FINISH_TURN_S) -> None:
        """
        End the conversation: nothing more is sent; the present answer and its calls come to their end.

        It does not wait for that; the loop over the run comes to its end then. What was written before is answered, and
        what was spoken, if the server has noticed it by then, or does within two seconds after `send_audio_stream_end`.

        Args:
            finish_turn_s: How long the answer may take, in seconds; then it is cut off. None: as long as it does.
        """
        limit = None if finish_turn_s is None else finite(finish_turn_s)
        if finish_turn_s is not None and (limit is None or limit < 0):
            raise InvalidValueError("finish_turn_s", f"expected seconds from 0 up, or None, found {finish_turn_s!r}")
        self._line.close(limit)
        await trio.lowlevel.checkpoint()


class _LiveExecution(Execution):
    """The task of a live run: the agent that would answer has the word until the conversation is over."""

    is_resumable = False

    async def answer(self) -> None:
        invocation = self.invocation
        await invocation.memo[_LINE].run(self.speaker(), self.context)
        self.rounds = 1
        if invocation.live.has_messages:
            await invocation.program.messages().store_messages(self.context)
        if invocation.waits:
            raise Pause("for answers, which a later run takes")


class LiveScope(RunScope):
    """What `Runner.run_live` returns: `async with` it; see there."""

    queue: LiveRequestQueue

    async def __aenter__(self) -> LiveRun:
        """See `Runner.run_live`. From here on, the queue belongs to this run; unless this raises."""
        self.queue.begin_use()
        try:
            run = await super().__aenter__()
        except BaseException:
            self.queue.give_back()
            raise
        assert isinstance(run, LiveRun)
        return run

    def _new_run(self, session: Session, invocation: Invocation) -> Run:
        line = invocation.memo[_LINE] = Line(invocation, self.queue, live_settings(invocation.run_config))
        run = LiveRun(invocation.id, session, invocation)
        run._line = line
        return run


def live_scope(
    runner: Runner, entrance: Entrance, queue: LiveRequestQueue | None, run_config: RunConfig | None,
    state_delta: Mapping[str, object] | None, deps: Any,
) -> LiveScope:  # fmt: skip
    """See `Runner.run_live`."""
    config = live_config(run_config)
    check_agents(runner.agent, runner._program.plugins)
    if config.live is not None and config.live.save_live_blob and runner.artifact_service is None:
        raise ServiceNotConfiguredError("save_live_blob keeps sound as artifacts; give the Runner an artifact_service")
    if queue is None:
        queue = LiveRequestQueue()
    elif not isinstance(queue, LiveRequestQueue):
        raise ConfigurationError(f"expected live_request_queue to be a LiveRequestQueue, found {shown(queue)}")
    own_id = f"e-{runner._env.new_id('invocation')}"
    lasting, temp = split_delta(state_delta)
    message = Event(
        id=f"{own_id}-0",
        invocation_id=own_id,
        author="user",
        actions=EventActions(state_delta=lasting) if lasting else NO_ACTIONS,
        custom_metadata=config.custom_metadata or None,
        live={"begins": True},
    )
    asked = config.get_session_config
    compacts = runner.app.events_compaction_config is not None
    request = RunRequest(
        invocation_id=own_id,
        message=checked_event(message),
        temp=temp,
        run_config=config,
        yield_user_message=False,
        deps=deps,
        execution=_LiveExecution,
        window=RunWindow(whole=compacts) if asked is None else RunWindow(asked=asked, whole=compacts),
    )
    scope = LiveScope(runner._program, request, entrance)
    scope.queue = queue
    return scope
