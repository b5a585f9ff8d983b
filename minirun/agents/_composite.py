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

from .._fields import setting
from .._json import is_count
from ..runtime import InvocationContext
from ._base import BaseAgent
from ._lanes import ON_FAILURE, Lanes

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
        validator=setting("'cancel_others' or 'collect'", ON_FAILURE.__contains__),
    )

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        lanes, replayer = Lanes(ctx, self.name, self.on_failure), ctx._invocation.replayer

        async def run(index: int, agent: BaseAgent) -> None:
            branch = f"{lanes.within}{agent.name}"
            below = ctx._in_branch(lanes.concurrent, index, branch)
            await lanes.lane(branch, lambda: agent.run_async(below))

        def begin(nursery: trio.Nursery) -> None:
            if replayer is not None:
                replayer.record.start_branches(f"{lanes.within}{agent.name}" for agent in self.sub_agents)
            for index, agent in enumerate(self.sub_agents):
                nursery.start_soon(run, index, agent, name=f"branch {agent.name}")

        await lanes.run(begin)


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
        default=None, validator=setting("an integer from 1 up, or None for no limit", _is_limit)
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
