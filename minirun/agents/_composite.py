"""
Agents that are made of agents: one after the other, all at once, again and again.

They have no words of their own; their parts speak. Three things end one early, and mean the same in each:

*   `ctx.end_invocation = True`: no agent is started any more, in the whole invocation.
*   An *escalation*, an event whose actions say `escalate`: everything ends up to and including the nearest LoopAgent
    around it, or everything where there is none. Who escalates finishes what it is doing; what follows is not started,
    and what runs beside it is cancelled.
*   A failure: it goes through all of them and fails the run, unless something in between catches it.
"""

from __future__ import annotations

from typing import Any

import attrs
import trio

from .._json import is_count
from ..runtime import InvocationContext
from ..runtime._failure import first_failure, is_pause
from ..sessions._concurrent import ConcurrentWrites
from ._base import BaseAgent, refusing

__all__ = ["LoopAgent", "ParallelAgent", "SequentialAgent"]


class SequentialAgent(BaseAgent):
    """An agent that runs its `sub_agents` one after the other."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for agent in self.sub_agents:
            await agent.run_async(ctx)
            if ctx.escalated or ctx.end_invocation:
                return


class ParallelAgent(BaseAgent):
    """
    An agent that runs its `sub_agents` at the same time, each in a branch of its own.

    A branch sees what was said before the agents set out, and what itself says; not what the others say meanwhile.
    Events are stored as they come; of plain writes to one key of the state the last stored one wins, and its event
    names the key in `actions.state_conflicts`. This agent sees to that, and so do the calls of one turn; agents that an
    agent of your own runs in a nursery are not watched: there, too, the last stored write wins, and nothing names it.

    Args:
        on_failure: What a failing branch means for the others: `"cancel_others"` at once, or `"collect"`, which lets
            them come to their end first. The failure is raised in both cases.
    """

    on_failure: str = attrs.field(
        default="cancel_others",
        validator=refusing("on_failure 'cancel_others' or 'collect'", ("cancel_others", "collect").__contains__),
    )

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        failures: list[Exception] = []
        pauses: list[BaseException] = []
        within = f"{ctx.branch}.{self.name}." if ctx.branch else f"{self.name}."
        concurrent, replayer = ConcurrentWrites(), ctx._invocation.replayer

        async def run(index: int, agent: BaseAgent) -> None:
            branch, escalation = f"{within}{agent.name}", ctx._position.escalation
            with trio.CancelScope() as scope:
                token = escalation.enter(scope)
                try:
                    await agent.run_async(ctx._in_branch(concurrent, index, branch))
                except Exception as error:
                    if self.on_failure == "cancel_others":
                        raise
                    failures.append(error)
                except BaseException as error:  # one that waits lets the others come to their end
                    if not is_pause(error):
                        raise
                    pauses.append(error)
                finally:
                    escalation.leave(scope, token)
                    if replayer is not None:
                        replayer.end_branch(branch)

        message = f"branches of {self.name!r} failed"
        try:
            async with trio.open_nursery() as nursery:
                if replayer is not None:
                    replayer.record.start_branches(f"{within}{agent.name}" for agent in self.sub_agents)
                for index, agent in enumerate(self.sub_agents):
                    nursery.start_soon(run, index, agent, name=f"branch {agent.name}")
        except BaseException as error:
            if isinstance(first_failure(error), Exception):
                await self._withdraw(ctx, within)
            if failures:  # a cancellation does not hide them
                raise BaseExceptionGroup(message, [*failures, error]) from None
            raise
        if pauses and not (failures or ctx.escalated):
            raise pauses[0]
        await self._withdraw(ctx, within)
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup(message, failures)

    async def _withdraw(self, ctx: InvocationContext, within: str) -> None:
        """Nobody waits any more for what a branch has asked: the others have ended them all."""
        replayer = ctx._invocation.replayer
        if replayer is not None:
            replayer.join(ctx.branch, within)
            if replayer.record.next_in(ctx.branch) is not None:
                return  # that was then; what is open is of a later round
        still_open = [call for call in ctx._invocation.open_calls() if (call.branch or "").startswith(within)]
        if still_open:
            from ..runtime._closing import close_calls  # few branches leave something open

            await close_calls(ctx, still_open)


def _is_limit(rounds: Any) -> bool:
    return rounds is None or is_count(rounds, 1)


class LoopAgent(BaseAgent):
    """
    An agent that runs its `sub_agents` one after the other, and begins again, until one escalates.

    An escalation ends the innermost loop around it, and nothing beyond.

    Args:
        max_iterations: How many rounds at most; None for no limit but those of the RunConfig.
    """

    max_iterations: int | None = attrs.field(
        default=None, validator=refusing("max_iterations from 1 up, or None for no limit", _is_limit)
    )

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        inside = ctx._in_loop()
        rounds = 0
        while self.sub_agents and (self.max_iterations is None or rounds < self.max_iterations):
            rounds += 1
            await trio.lowlevel.checkpoint()
            for agent in self.sub_agents:
                await agent.run_async(inside)
                if inside.escalated or inside.end_invocation:
                    return
