"""
Going on, in writing, with a live run that has left questions open.

A conversation is not replayed. The calls that have asked are made with the answer, as the live run would have made
them, and then their agent goes on by its model's texts, with all that was said as its history. What it leaves open in
its turn is gone on with in the same way: nothing that this needs stands anywhere but in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._values import changed
from ..agents import BaseAgent
from ..agents._answered import AnsweredInvocation, calls_asking, make
from ..agents._llm import LlmAgent
from ..agents._request import toolbox
from ..errors import NotResumableError
from ..events import Event, seq_of
from ..runtime import InvocationContext
from ..runtime._emit import LIVE
from ..runtime._failure import Pause
from ..runtime._run import Execution
from ..sessions import Invocation, InvocationStatus
from ..types import FunctionResponse

__all__ = ["AfterLive", "check_resumable"]


def check_resumable(found: Invocation, answers: Sequence[FunctionResponse]) -> None:
    """
    Raises:
        NotResumableError: Somebody wants to go on with a live run otherwise than by answering its questions.
    """
    if not answers and found.status is not InvocationStatus.COMPLETED:
        msg = f"the invocation {found.invocation_id!r} ({found.status}) is a live run, which is never replayed"
        raise NotResumableError(f"{msg}; answer its open questions, if there are any, or begin another run")


class AfterLive(Execution):
    """The task of a run that answers a question of a live run."""

    is_resumable = False

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        invocation = self.invocation
        assert invocation.replayer is not None, "a run that goes on with an invocation has its record"
        self._events = invocation.replayer.record.events
        invocation.replayer, invocation.emitter = None, LIVE
        # Each run begins with an event of the user, so no run of an agent below has had this number.
        users = sum(event.author == "user" for event in self._events)
        agents = invocation.program.tree.agents()
        invocation.ids._runs.update((f"run/{agent.name}", users) for agent in agents)

    async def answer(self) -> None:
        """Make the calls that have got an answer; then let their agent go on, unless others beside them wait."""
        agent: BaseAgent | None = self.speaker()
        for made in self._made():
            agent = await self._make(made)
        if agent is not None and not self.invocation.end_invocation:
            await agent.run_async(self.context)
        self.rounds = 1
        await super().answer()
        if self.invocation.waits:
            raise Pause("for answers")

    def _made(self) -> list[Event]:
        """The events with the calls that this run's message answers, or whose questions it answers."""
        live, answered = self.invocation.live, {each.id for each in self._events[-1].get_function_responses()}
        asked = [each for each in self._events if any(call.id in answered for call in each.get_function_calls())]
        self._again = calls_asking(live, asked)
        seqs = {each.seq for each in self._again.values()}
        seqs |= {seq_of(each) for each in asked if not each.actions.suspended_calls and "@" not in (each.branch or "")}
        return [live.events[live.index_of(seq)] for seq in sorted(seqs)]

    async def _make(self, made: Event) -> BaseAgent | None:
        """Make those calls of an event that can be made now; return who speaks then, if somebody does."""
        live, tree = self.invocation.live, self.invocation.program.tree
        agent = tree.find(made.author) or tree.root
        in_order = bool(made.actions.replay.alone)
        opened = [call for call in made.get_function_calls() if call.id in live.open_calls]
        calls = [call for call in opened if in_order or call.id in self._again]
        target: str | None = None
        if calls:
            self.invocation.budgets.spend("max_tool_calls", len(calls))
            again = AnsweredInvocation(self.invocation, made, self._events[-1])
            context = _context_of(again, agent, made)
            tools = (await toolbox(agent, context)).tools if isinstance(agent, LlmAgent) else {}
            done = await make(context, made, calls, tools)
            if any(event.actions.skip_summarization or event.actions.escalate for event in done.answered):
                return None
            target = context._position.handover.transfer_to
        if any(call.id in live.open_calls for call in opened):
            return None
        return agent if target is None else tree.target(agent, target)


def _context_of(again: AnsweredInvocation, agent: BaseAgent, made: Event) -> InvocationContext:
    """The context in which *agent* has made the calls of an event."""
    path = (made.live or {}).get("path")
    if path is None:  # it was asked in writing by then, by a run like this one
        run = made.node_info.path.rpartition("@")[2]
        path = f"run/{agent.name}" + (f"*{run}" if run not in ("", "1") else "")
    root = InvocationContext.root(again)
    position = changed(root._position, path=path, branch=made.branch, node_info=made.node_info)
    return InvocationContext(again, agent, position, root._state.layer())
