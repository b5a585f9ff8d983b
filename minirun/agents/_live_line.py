"""
The line of a live run: what all agents that speak in it share.

What the caller sends comes in by a queue, which outlives connections and agents. A connection is held by a task of its
own, so that the next one can be opened before it is closed, as in a transfer. Limits count over all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ..errors import IdleTimeoutError, LiveQueueFullError, ModelError, NotSupportedError, TurnsLimitExceededError
from ..models import BaseLlm, BaseLlmConnection, LlmRequest
from ..runtime import InvocationContext
from ..runtime._failure import leaves
from ..types import Blob, FunctionResponse, id_of
from ._base import LINE, BaseAgent
from ._composite import SequentialAgent
from ._live_playing import Playing
from ._live_request_queue import LiveRequest, LiveRequestQueue
from ._live_talk import Talk
from ._llm import LlmAgent

if TYPE_CHECKING:
    from ..models._live_settings import LiveSettings
    from ..runtime._invocation import Invocation
    from ._live_making import Calling

__all__ = ["Line", "check_agents"]

# What an agent may have that only makes sense where a whole answer is there before anybody hears it.
_WHOLE = ("output_schema", "output_validator", "input_guardrails", "output_guardrails", "planner")


# How long what is stuck, such as a line that takes nothing, may take longer than an answer that is to come to its end.
_STUCK_S = 1.0


class _Held(NamedTuple):
    """A connection, and how it is let go."""

    connection: BaseLlmConnection
    scope: trio.CancelScope
    release: trio.Event
    is_closed: trio.Event


class Line:
    """See the module. *invocation* is the live run's."""

    def __init__(self, invocation: Invocation, queue: LiveRequestQueue, settings: LiveSettings) -> None:
        self.invocation = invocation
        self.queue = queue
        self.settings = settings
        self.connections = 0
        """How many have been opened."""
        self.turns = 0
        self.played: dict[str, float] = {}
        """By item: how much of its sound was played, in milliseconds, as the client says."""
        self.playing = Playing(self.played)
        self.talk: Talk | None = None
        """Which agent speaks on the model's side."""
        self.is_closing = False
        self.is_speaking = False
        """Whether the client has said that the user speaks, and not yet that this is over."""
        self.closes_at = float("inf")
        """When the answer and its calls are cut off, once the line is closing, by trio's clock."""
        self.connected = trio.Event()
        """Set when there was a connection, or there will be none."""
        self.input_rate = 16000
        """How many samples of sound a second the model wants."""
        self.ended = trio.Event()
        """Set when no agent speaks any more."""
        self.unsent: LiveRequest | Blob | None = None
        """What was taken from the queue, and has not gone out as a whole."""
        self.unanswered: dict[str, Calling] = {}
        """By their ids: the calls that have no response yet."""
        self.answering = trio.Lock()
        """Held while an answer is taken: one at a time."""
        self.answers: trio.Nursery
        """Where calls are made that have got one."""
        self.streams: dict[str, tuple[str, trio.CancelScope]] = {}
        """By the ids of their calls: the tools that give items now, and what stops them."""
        self.inputs: dict[str, LiveRequestQueue] = {}
        """By the ids of their calls: where such tools hear what the caller sends."""
        self.remaking = 0
        """For how many events that is being done."""
        self._nursery: trio.Nursery
        self._held: _Held | None = None
        self._in_time = trio.CancelScope()
        self._active_at = trio.current_time()

    # --- who speaks

    def logic_of(self, agent: BaseAgent, context: InvocationContext) -> Awaitable[None] | Any:
        """What *agent* does in a live run. Inside of a call, and of a node, it is asked in writing as elsewhere."""
        if context._position.inside is not None:
            return agent._run_async_impl(context)
        own = getattr(agent, "_run_live_impl", None)
        if own is not None:
            return own(context)
        if isinstance(agent, LlmAgent):
            return Talk(agent, context, self).run()
        return agent._run_async_impl(context)

    async def run(self, agent: BaseAgent, context: InvocationContext) -> None:
        """Let *agent* speak, and whom it hands over to, until the conversation has ended."""
        self.invocation.memo[LINE] = self
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._watch_idle, name="idle")
                async with trio.open_nursery() as self.answers:
                    await agent.run_async(context)
                    async with self.answering:
                        self.ended.set()  # nobody takes an answer any more; what has got one comes to its end
                    self.answers.cancel_scope.deadline = self.closes_at
                await self.let_go()
                self._nursery.cancel_scope.cancel()
        finally:
            self.ended.set()
            self.connected.set()
            self.queue.close()

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Let *task* run beside the conversation, which does not end before it has."""
        self._nursery.start_soon(task)

    # --- connections

    async def open(self, model: BaseLlm, request: LlmRequest, *, first: bool) -> BaseLlmConnection:
        """
        Connect, and close the connection before it: after the new one is there or, unless it is the *first* of an
        agent, before: servers refuse to go on with a session whose old connection is open.
        """
        if not first:
            await self.let_go()
        held: _Held = await self._nursery.start(self._hold, model, request, name=f"connection {self.connections + 1}")
        await self.let_go()
        self._held, self.connections = held, self.connections + 1
        self.input_rate = held.connection.capabilities.input_rate
        self.queue.check_media = held.connection.check_media
        self.connected.set()
        return held.connection

    async def _hold(
        self, model: BaseLlm, request: LlmRequest, task_status: trio.TaskStatus[_Held] = trio.TASK_STATUS_IGNORED
    ) -> None:
        held: _Held | None = None
        try:
            with trio.CancelScope() as scope:
                async with model.connect(request) as connection:
                    held = _Held(connection, scope, trio.Event(), trio.Event())
                    task_status.started(held)
                    await held.release.wait()
        except Exception as error:
            if held is None or not all(isinstance(leaf, ModelError) for leaf in leaves(error)):
                raise
            # It was lost, and `receive` has said so.
        finally:
            if held is not None:
                held.is_closed.set()

    async def let_go(self) -> None:
        """Close the connection, if there is one."""
        if self._held is not None:
            held, self._held = self._held, None
            held.release.set()
            held.scope.deadline = trio.current_time() + self.invocation.program.cleanup_timeout_s
            await held.is_closed.wait()

    def close(self, finish_turn_s: float | None) -> None:
        """Send nothing more, and let the answer come to its end, for so many seconds."""
        self.queue.close()
        if finish_turn_s is not None:
            self.closes_at = min(self.closes_at, trio.current_time() + finish_turn_s)
            self._in_time.deadline = self.closes_at + _STUCK_S

    def in_time(self) -> trio.CancelScope:
        """Return a scope that ends with the time that an answer may take to its end, whatever is waited for in it."""
        self._in_time = trio.CancelScope(deadline=self.closes_at + _STUCK_S)
        return self._in_time

    def new_id(self) -> str:
        """Return an id that nothing else has."""
        return self.invocation.env.new_id("message")

    # --- tools that give items

    def new_queue(self) -> LiveRequestQueue:
        """Return a queue by which a tool hears what the caller sends, as much as it has room for."""
        return LiveRequestQueue()

    def copy(self, request: LiveRequest | Blob) -> None:
        """Let the tools hear what the caller has sent. One that does not listen misses what is too much."""
        for queue in self.inputs.values():
            if isinstance(request, Blob):
                queue.send_realtime(request)
            elif not request.close:
                with suppress(LiveQueueFullError):
                    queue.send(request)

    def stop_streams(self, name: object) -> None:
        """End what the tool of this name is giving; its items until now are its result."""
        for streaming, scope in self.streams.values():
            if streaming == name:
                scope.cancel()

    async def tell_item(self, answer: FunctionResponse) -> None:
        """Tell the model an item, if its session knows the call and takes interim results."""
        calling = self.unanswered.get(id_of(answer))
        if calling is not None and self.talk is calling.by.talk:
            await calling.by.tell_item(calling, answer)

    @property
    def is_up(self) -> bool:
        """Whether there is a connection over which the caller's words go out."""
        return self.talk is not None and self.talk.connection is not None

    # --- limits

    def is_active(self) -> None:
        """Note that somebody says something."""
        self._active_at = trio.current_time()

    def begin_turn(self) -> None:
        """Raise if there may be no other turn."""
        limit = self.settings.max_turns
        if 0 < limit <= self.turns:
            raise TurnsLimitExceededError(f"the live run has had {limit} turns; raise RunConfig.max_turns")

    async def count_turn(self) -> None:
        """Note that a turn is over. Another one may wait to be refused until it begins: this one was heard."""
        self.turns += 1

    async def _watch_idle(self) -> None:
        limit = self.settings.idle_s
        while limit is not None:
            if self.invocation.waits or (self.talk is not None and self.talk.is_busy):
                self.is_active()  # somebody is at work, or was asked, and takes the time that it takes
            left = max(self._active_at, self.playing.until) + limit - trio.current_time()
            if left <= 0:
                msg = f"nobody has said anything in the live run for RunConfig.idle_s={limit} seconds"
                raise IdleTimeoutError(msg)
            await trio.sleep(left)


def check_agents(root: BaseAgent, plugins: Collection[str]) -> None:
    """
    Refuse what cannot speak in a live run, with hooks of *plugins* that have these names.

    Raises:
        NotSupportedError: There is an agent that cannot, or one with a field that would have no effect; or a plugin.
    """
    instead = "has no effect in a live run; leave it out, or use run_async"
    if "_guardrails" in plugins:
        raise NotSupportedError(f"a GuardrailPlugin needs whole answers, and {instead}")
    for agent in root._tree():
        if isinstance(agent, LlmAgent):
            for name in _WHOLE:
                if getattr(agent, name):
                    raise NotSupportedError(f"{name} of agent {agent.name!r} needs whole answers, and {instead}")
            if agent.on_model_error_callback:
                raise NotSupportedError(f"on_model_error_callback of agent {agent.name!r} {instead}")
        elif not (isinstance(agent, SequentialAgent) or hasattr(agent, "_run_live_impl")):
            msg = f"the {type(agent).__name__} {agent.name!r} cannot speak in a live run, where LlmAgents and"
            raise NotSupportedError(f"{msg} SequentialAgents of them do; let an agent call it as a tool (AgentTool)")
