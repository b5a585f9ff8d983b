"""
What the agents of a live run share: the input queue, the limits, the calls, the reports of what was played.

A queue and its run outlive connections and agents. `LiveShared.run` lets one agent after another converse
(`_live_conversation`) until the input is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Any

import trio

from ..errors import IdleTimeoutError, NotSupportedError
from ..runtime import InvocationContext
from ..types import Blob
from ._base import LINE, BaseAgent
from ._composite import SequentialAgent
from ._live_calls import LiveCalls
from ._live_conversation import Conversation
from ._live_request_queue import LiveRequest, LiveRequestQueue
from ._llm import LlmAgent

if TYPE_CHECKING:
    from ..models._live_settings import LiveSettings
    from ..runtime._invocation import Invocation

__all__ = ["LiveShared", "check_agents"]

# Fields of an agent that need a whole response before the user hears any of it.
_WHOLE = ("output_schema", "output_validator", "input_guardrails", "output_guardrails", "planner")

# After the time that `aclose` gives to the last response: a connection that takes nothing is cancelled then.
_STUCK_S = 1.0

# Reports of the client that are kept, one for each response; only the newest responses can still be interrupted.
_PLAYED_MAX = 100


class LiveShared:
    """See the module. *invocation* is the live run's."""

    def __init__(self, invocation: Invocation, queue: LiveRequestQueue, settings: LiveSettings) -> None:
        self.invocation = invocation
        self.queue = queue
        self.settings = settings
        self.calls = LiveCalls(self)
        self.connections = 0
        """How many connections have been opened."""
        self.conversation: Conversation | None = None
        """The conversation of the agent that speaks; None between two agents."""
        self.unsent: LiveRequest | Blob | None = None
        """An entry that was taken from the queue and is not sent yet."""
        self.is_closing = False
        self.closes_at = float("inf")
        """When the last response is cut off, on trio's clock."""
        self.is_speaking = False
        """True between the client's `ActivityStart` and `ActivityEnd`."""
        self.connected = trio.Event()
        """Set at the first connection, and at the end."""
        self.input_rate = 16_000
        """The samples a second that the model takes."""
        self.is_over = False
        """True once the input is closed, and its last response has ended."""
        self.ended = False
        """True once no agent speaks any more."""
        self._played: dict[str, float] = {}
        self._in_time = trio.CancelScope()
        self._active_at = trio.current_time()

    def logic_of(self, agent: BaseAgent, context: InvocationContext) -> Awaitable[None] | Any:
        """Return the logic of *agent* in a live run. Inside of a call, and of a node, it runs as in `run_async`."""
        if context._position.inside is not None:
            return agent._run_async_impl(context)
        own = getattr(agent, "_run_live_impl", None)
        if own is not None:
            return own(context)
        if isinstance(agent, LlmAgent):
            return Conversation(agent, context, self).run()
        return agent._run_async_impl(context)

    async def run(self, agent: BaseAgent, context: InvocationContext) -> None:
        """Let *agent* converse, and the agents that it transfers to, until the conversation has ended."""
        self.invocation.memo[LINE] = self
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_idle, name="idle")
                self.calls.nursery = nursery
                await agent.run_async(context)
                async with self.calls.replying:
                    self.ended = True  # a reply that comes later finds its request closed
                nursery.cancel_scope.cancel()
        finally:
            self.ended = True
            self.connected.set()
            self.queue.close()

    # --- the end

    def close(self, finish_turn_s: float | None) -> None:
        """Take no more input, and give the last response so many seconds; None: as long as it takes."""
        self.queue.close()
        if finish_turn_s is not None:
            self.closes_at = min(self.closes_at, trio.current_time() + finish_turn_s)
            self._in_time.deadline = self.closes_at + _STUCK_S

    def in_time(self) -> trio.CancelScope:
        """Return a cancel scope that ends soon after `closes_at`, also when that is set later."""
        self._in_time = trio.CancelScope(deadline=self.closes_at + _STUCK_S)
        return self._in_time

    # --- what the client has played

    def report_played(self, item_id: str, ms: float) -> None:
        """Keep the newest report of a response."""
        self._played.pop(item_id, None)
        self._played[item_id] = ms
        if len(self._played) > _PLAYED_MAX:
            del self._played[next(iter(self._played))]

    def played_ms(self, item_id: str) -> float | None:
        """Return how much of a response was played; None if the client has not reported it."""
        return self._played.get(item_id)

    # --- the idle limit

    def is_active(self) -> None:
        """Reset the idle timer."""
        self._active_at = trio.current_time()

    async def _watch_idle(self) -> None:
        limit = self.settings.idle_s
        while limit is not None:
            is_busy = self.conversation is not None and self.conversation.is_showing
            if is_busy or self.calls.running or self.invocation.waits:
                self.is_active()  # a slow caller, a tool or a person takes its time: `deadline_s` is their limit
            left = self._active_at + limit - trio.current_time()
            if left <= 0:
                msg = f"neither side of the live run has said anything for RunConfig.idle_s={limit} seconds"
                raise IdleTimeoutError(msg)
            await trio.sleep(left)


def check_agents(root: BaseAgent, plugins: Collection[str]) -> None:
    """
    Refuse agents that cannot converse, and plugins whose hooks have the names *plugins*.

    Raises:
        NotSupportedError: An agent, a field of an agent, or a plugin would have no effect.
    """
    instead = "has no effect in a live run; leave it out, or use run_async"
    if "_guardrails" in plugins:
        raise NotSupportedError(f"a GuardrailPlugin needs whole responses, and {instead}")
    for agent in root._tree():
        if isinstance(agent, LlmAgent):
            for name in _WHOLE:
                if getattr(agent, name):
                    raise NotSupportedError(f"{name} of agent {agent.name!r} needs whole responses, and {instead}")
            if agent.on_model_error_callback:
                raise NotSupportedError(f"on_model_error_callback of agent {agent.name!r} {instead}")
        elif not (isinstance(agent, SequentialAgent) or hasattr(agent, "_run_live_impl")):
            msg = f"the {type(agent).__name__} {agent.name!r} cannot converse in a live run: LlmAgents and"
            raise NotSupportedError(f"{msg} SequentialAgents of them can; let an agent call it as a tool (AgentTool)")
