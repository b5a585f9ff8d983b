"""
A live run. It is entered and left as every run is; in between, both sides send at any time.

It begins with an event of the user without content (`live["begins"]`), by which a later run recognizes it: a live run
is never resumed, and its open requests are closed. It holds the lease of the session until it is left; other tasks and
processes send by `Runner.send`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from .._json import finite, shown
from ..agents._live_config import live_config, live_settings
from ..agents._live_request_queue import LiveRequest, LiveRequestQueue
from ..agents._live_shared import LiveShared, check_agents
from ..errors import ConfigurationError, InvalidValueError, InvocationEndedError
from ..events import NO_ACTIONS, Event, EventActions
from ..flows._message import user_content
from ..models import ActivityEnd, ActivityStart
from ..runtime import Run, RunConfig, RunRequest, RunScope
from ..runtime._endings import Ending, Stop, ending_of
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

_SHARED = "live run"  # in the memo of its invocation
_FINISH_TURN_S = 30.0

class LiveRun(Run):
    """
    A live run in progress: iterate over it for its events, and send input from other tasks or between two events.

    The input passes a queue. While it is full, the methods wait, which holds a microphone back; cancelled, they have
    sent all of it or nothing. The task that iterates does not wait, as the run can wait for it: there, the oldest audio
    is dropped, and other input raises LiveQueueFullError.
    """

    _shared: LiveShared
    _reader: trio.lowlevel.Task | None = None

    async def __anext__(self) -> Event:
        """See `Run`."""
        self._reader = trio.lowlevel.current_task()
        return await super().__anext__()

    async def send(self, content: str | Content, *, when: str = "next_model_call") -> str:
        """
        Send a message of the user, or the reply to a request: `await live.send(pending.reply(True))`.

        A message becomes an event in its turn in the queue, and the model responds to it. With *when* `"idle"` it is
        stored by the run between two turns; see `Run.send`. A reply does not pass the queue: when this returns, it is
        stored, and the call that has asked continues.

        Returns:
            The id of the event.

        Raises:
            InvocationEndedError: The run has ended, or is closing.
            InvalidMessageError: It is empty, or not a message of a user; or it replies to no open request of this run,
                or not in its form.
        """
        if when != "next_model_call":
            return await super().send(content, when=when)
        message_id = f"m-{self._shared.invocation.env.new_id('message')}"
        content = user_content(content, may_answer=True)
        if content.responses:
            self._check_open()
            await self._shared.calls.reply(content, message_id)
            return message_id
        await self._put(LiveRequest(content=content, id=message_id))
        return message_id

    async def send_text(self, text: str) -> str:
        """As `send`, for a text."""
        return await self.send(text)

    async def send_audio(self, chunk: bytes, *, rate: int | None = None) -> None:
        """
        Send a piece of audio, PCM16 of one channel.

        *rate* is its samples a second; None: those that the model takes, which waits for the first connection.

        Raises:
            InvalidMessageError: The model does not take this rate; nothing was sent.
        """
        self._check_open()
        if rate is None:
            await self._shared.connected.wait()
            rate = self._shared.input_rate
        await self._put(Blob(data=chunk, mime_type=f"audio/pcm;rate={rate}"))

    async def send_realtime(self, blob: Blob) -> None:
        """
        Send audio with its type, or an image; no response is owed to it.

        Raises:
            InvalidMessageError: The model does not take this type; nothing was sent. Before the first connection that
                is not known: then the run fails with this error.
        """
        await self._put(blob)

    async def send_activity_start(self) -> None:
        """Report that the user begins to speak, where the server does not detect it."""
        await self._put(LiveRequest(activity_start=ActivityStart()))

    async def send_activity_end(self) -> None:
        """Report that the user has stopped speaking."""
        await self._put(LiveRequest(activity_end=ActivityEnd()))

    async def send_audio_stream_end(self) -> None:
        """Report that the microphone is off."""
        await self._put(LiveRequest(audio_stream_end=True))

    async def _put(self, entry: LiveRequest | Blob) -> None:
        self._check_open()
        queue = self._shared.queue
        if trio.lowlevel.current_task() is not self._reader:
            await queue.put(entry)
        else:
            await trio.lowlevel.checkpoint()
            send: Any = queue.send_realtime if isinstance(entry, Blob) else queue.send
            send(entry)

    def _check_open(self) -> None:
        if self._shared.queue.closed or self._shared.ended:
            raise InvocationEndedError(f"the live run {self.invocation_id} has ended, or is closing; begin another one")

    async def played(self, item: str | Event, ms: float) -> None:
        """
        Report how many milliseconds of a response's audio were really played.

        *item* is an event of the response, or its `live["item_id"]`. The newest report counts when the response is
        interrupted: make it before you ask for the event that follows the one with `partial` and `interrupted`.
        """
        length = finite(ms)
        if length is None or length < 0:
            raise InvalidValueError("ms", f"expected milliseconds from 0 up, found {shown(ms)}")
        name = (item.live or {}).get("item_id") if isinstance(item, Event) else item
        if not isinstance(name, str):
            raise InvalidValueError("item", f"expected an event of a response, or its item_id, found {shown(item)}")
        await trio.lowlevel.checkpoint()
        self._shared.report_played(name, length)

    async def interrupt(self) -> None:
        """Stop the response that is being given or played, as if the user had spoken."""
        await trio.lowlevel.checkpoint()
        if self._shared.conversation is not None:
            await self._shared.conversation.interrupt()

    async def aclose(self, finish_turn_s: float | None = _FINISH_TURN_S) -> None:
        """
        Take no more input, and let the present response and its calls end; the loop over the run ends then.

        This does not wait for that. What was sent before is still answered.

        Args:
            finish_turn_s: Seconds until the response is cut off; None: as long as it takes.
        """
        limit = None if finish_turn_s is None else finite(finish_turn_s)
        if finish_turn_s is not None and (limit is None or limit < 0):
            raise InvalidValueError("finish_turn_s", f"expected seconds from 0 up, or None, found {finish_turn_s!r}")
        self._shared.close(limit)
        await trio.lowlevel.checkpoint()


class _LiveExecution(Execution):
    """The task of a live run: the agent that answers converses until the input is closed."""

    is_resumable = False

    async def answer(self) -> None:
        invocation = self.invocation
        await invocation.memo[_SHARED].run(self.speaker(), self.context)
        self.rounds = 1
        if invocation.live.has_messages:
            await invocation.program.messages().store_messages(self.context)

    def _ending_by(self, stop: Stop) -> Ending:
        # A live run is not resumed, so it leaves no request open for a later run, however it ends.
        return ending_of(stop, waits=False)


class LiveScope(RunScope):
    """What `Runner.run_live` returns: `async with` it; see there."""

    queue: LiveRequestQueue

    async def __aenter__(self) -> LiveRun:
        """See `Runner.run_live`. Unless this raises, the queue belongs to this run."""
        self.queue.begin_use()
        try:
            run = await super().__aenter__()
        except BaseException:
            self.queue.give_back()
            raise
        assert isinstance(run, LiveRun)
        return run

    def _new_run(self, session: Session, invocation: Invocation) -> Run:
        shared = LiveShared(invocation, self.queue, live_settings(invocation.run_config))
        invocation.memo[_SHARED] = shared
        run = LiveRun(invocation.id, session, invocation)
        run._shared = shared
        return run


def live_scope(
    runner: Runner, entrance: Entrance, queue: LiveRequestQueue | None, run_config: RunConfig | None,
    state_delta: Mapping[str, object] | None, deps: Any,
) -> LiveScope:  # fmt: skip
    """See `Runner.run_live`."""
    config = live_config(run_config)
    check_agents(runner.agent, runner._program.plugins)
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
