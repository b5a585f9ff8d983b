"""
Messages that wait for paused invocations: a supervisor lets the agent answer them, and what waits goes on waiting.

An agent that sleeps until tomorrow, or waits for a slow job or for somebody's consent, would be asked too late. So the
message begins an invocation of its own, as if the user had said it with `run_async`: the model is shown the open calls
as open, and may say what it likes to the message. The event is the one that `send` has promised, and stored once: who
appends it first has it, this run or the one that goes on with the paused invocation (`sessions._messages`).

That is for agents that talk. A workflow, a sequence, or an agent of one's own would do all of its work anew, beside
what is only paused: there the message waits, and so do those for the end (`when="idle"`), and those where an agent in
a conversation waits for what the user says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import trio

from .._values import changed
from ..agents import BaseAgent, LlmAgent
from ..errors import MinirunError
from ..events import Event
from ..flows._questions import REQUEST_MESSAGE
from ..runtime import RunConfig, RunRequest
from ..sessions import SessionKey, SessionWriter

if TYPE_CHECKING:
    from ._runner import Runner

__all__ = ["talks", "wake"]


class _TakenError(Exception):
    """The message does not wait any more, or is for somebody else."""


class _Woken(NamedTuple):
    """How the run that answers a message gets into its session."""

    runner: Runner
    key: SessionKey
    message: Event

    async def open(self, request: RunRequest) -> tuple[SessionWriter, RunRequest]:
        """
        Open the session, if the message still waits in it. Nothing is stored.

        Raises:
            _TakenError: It does not.
        """
        opener = self.runner._opener
        opener.check_open()
        writer = await opener.open(self.key, request, auto_create=False)
        try:
            waiting = [message.id for message in await opener.service._messages(writer.live)]
            calls = writer.live.open_calls.values()
            if self.message.id not in waiting or any(call.name == REQUEST_MESSAGE for call in calls):
                raise _TakenError
        except BaseException:
            with trio.CancelScope(shield=True):
                await writer.finish(None)
            raise
        message = changed(self.message, invocation_id=request.invocation_id, timestamp=request.message.timestamp)
        return writer, attrs.evolve(request, message=message, is_looked_up=True)


def talks(agent: BaseAgent) -> bool:
    """Whether each agent in the tree of *agent* that may answer a message is an LlmAgent."""
    return isinstance(agent, LlmAgent) and all(talks(each) for each in agent.sub_agents)


async def wake(runner: Runner, key: SessionKey, message: Event, config: RunConfig, deps: Any) -> bool:
    """
    Answer a message that waits for a paused invocation, if it still does and the session is free.

    Return whether a hook has failed before it was stored: then it still waits. What the run fails with is in the log.
    """
    run = None
    scope = runner.run_async(
        user_id=key.user_id, session_id=key.session_id, new_message=message.content, run_config=config, deps=deps
    )
    scope._entrance = _Woken(runner, key, message)
    try:
        async with scope.supervised(None) as run:
            await run.wait()
    except (_TakenError, MinirunError):
        return False
    except Exception:
        return run is None
    return False
