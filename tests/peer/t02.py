"""Several agents: transfers, loops, sequences, parallel branches."""

from __future__ import annotations

import trio

from minirun import (
    Event,
    EventActions,
    InvocationContext,
    LoopAgent,
    ParallelAgent,
    SequentialAgent,
    ToolContext,
)
from minirun.agents import BaseAgent
from minirun.testing import call
from minirun.tools import exit_loop

from .play import Play, said, scenario


def to(agent: str) -> object:
    """A call that hands over."""
    return call("transfer_to_agent", agent_name=agent)


@scenario("t02", "transfer root -> sub; second user turn stays with sub")
async def sticky(play: Play) -> None:
    sub = play.agent("sub", "sub says hi", "sub again", description="handles greetings")
    peer = play.agent("peer", description="other")
    await play.begin(play.agent("root", to("sub"), description="root desc", sub_agents=[sub, peer]))
    await play.turn("hi")
    await play.turn("more")


@scenario("t02", "transfer to sub with disallow_transfer_to_parent; second turn returns to root")
async def not_sticky(play: Play) -> None:
    sub = play.agent("sub", "sub done", disallow_transfer_to_parent=True)
    await play.begin(play.agent("root", to("sub"), "root handles turn 2", sub_agents=[sub]))
    await play.turn("hi")
    await play.turn("more")


@scenario("t02", "transfer to a name that does not exist")
async def ghost(play: Play) -> None:
    await play.act(play.agent("root", to("ghost"), "then not", sub_agents=[play.agent("sub")]))


@scenario("t02", "transfer in parallel with another tool")
async def transfer_and_tool(play: Play) -> None:
    async def side(tool_context: ToolContext) -> str:
        """Leave a trace."""
        tool_context.state["side"] = 1
        return "side"

    sub = play.agent("sub", "sub done")
    await play.act(play.agent("root", [to("sub"), call("side")], tools=[side], sub_agents=[sub]))


@scenario("t02", "transfer there and back in one invocation")
async def there_and_back(play: Play) -> None:
    await play.act(play.agent("root", to("sub"), "root final", sub_agents=[play.agent("sub", to("root"))]))


@scenario("t02", "LoopAgent: exit_loop (escalate) in iteration 2")
async def loop(play: Play) -> None:
    writer = play.agent("writer", "draft one", "draft two", output_key="draft")
    critic = play.agent("critic", "bad", call("exit_loop"), instruction="Critique {draft}", tools=[exit_loop])
    await play.act(LoopAgent(name="loop", sub_agents=[writer, critic]))


class Escalates(BaseAgent):
    """Escalates with its first event, and says a second one."""

    play: Play

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(content=said("one"), actions=EventActions(state_delta={"e": 1}, escalate=True)))
        self.play.note("resumed after escalate event", state=dict(ctx.session.state))
        await ctx.emit(Event(content=said("two")))


@scenario("t02", "LoopAgent: custom agent escalates mid-run and keeps yielding")
async def loop_escalates(play: Play) -> None:
    await play.act(LoopAgent(name="loop", sub_agents=[Escalates(name="esc", play=play), play.agent("never")]))


@scenario("t02", "SequentialAgent: first child escalates (ignored?)")
async def sequence_escalates(play: Play) -> None:
    await play.act(SequentialAgent(name="all", sub_agents=[Escalates(name="esc", play=play), play.agent("after")]))


@scenario("t02", "LoopAgent inside SequentialAgent, inner loop escalates, following sibling runs")
async def loop_in_sequence(play: Play) -> None:
    inner = LoopAgent(name="inner", sub_agents=[Escalates(name="esc", play=play)])
    await play.act(SequentialAgent(name="all", sub_agents=[inner, play.agent("after", "after ran")]))


@scenario("t02", "nested loops: inner escalate also stops outer?")
async def nested_loops(play: Play) -> None:
    inner = LoopAgent(name="inner", sub_agents=[Escalates(name="esc", play=play)])
    await play.act(LoopAgent(name="outer", max_iterations=2, sub_agents=[inner]))


@scenario("t02", "LoopAgent max_iterations=2, no escalate")
async def rounds(play: Play) -> None:
    await play.act(LoopAgent(name="loop", max_iterations=2, sub_agents=[play.agent("x", "1", "2")]))


@scenario("t02", "SequentialAgent[ParallelAgent(p1 slow, p2 fast; same output_key), join]")
async def join(play: Play) -> None:
    slow = play.agent("p1", "p1 text", latency_s=0.050, output_key="shared")
    fast = play.agent("p2", "p2 text", delay_s=0.001, latency_s=0.010, output_key="shared")
    last = play.agent("join", "joined", instruction="Got {shared}")
    await play.act(SequentialAgent(name="all", sub_agents=[ParallelAgent(name="par", sub_agents=[slow, fast]), last]))


class Counts(BaseAgent):
    """Says so many events, each with a number in the state, and writes down when it goes on."""

    play: Play
    times: int = 3
    after_s: float = 0.010
    ends_after_s: float = 0.0

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        try:
            for number in range(self.times):
                await trio.sleep(self.after_s)
                await ctx.emit(Event(content=said(f"{self.name}{number}"), state={self.name: number}))
                self.play.note("resume", agent=self.name, i=number, sees=dict(ctx.session.state))
        finally:
            with trio.CancelScope(shield=True):  # so that cancelled agents end in one order
                await trio.sleep(self.ends_after_s)
            self.play.note("finally", agent=self.name)


class Fails(BaseAgent):
    """Says so, and fails a little later."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await trio.sleep(0.011)
        await ctx.emit(Event(content=said("about to fail")))
        await trio.sleep(0.010)
        msg = "child failed"
        raise RuntimeError(msg)


@scenario("t02", "ParallelAgent of two plain agents, 3 events each: interleaving and commit visibility")
async def interleaving(play: Play) -> None:
    agents = [Counts(name="a", play=play), Counts(name="b", play=play, after_s=0.011)]
    await play.act(ParallelAgent(name="par", sub_agents=agents))


@scenario("t02", "ParallelAgent: one child raises")
async def branch_raises(play: Play) -> None:
    await play.act(ParallelAgent(name="par", sub_agents=[Counts(name="a", play=play), Fails(name="bad")]))


@scenario("t02", "ParallelAgent: consumer closes the stream after the first event")
async def caller_leaves(play: Play) -> None:
    agents = [Counts(name="a", play=play), Counts(name="b", play=play, after_s=0.020, ends_after_s=0.001)]
    await play.begin(ParallelAgent(name="par", sub_agents=agents))
    await play.turn(leave_after=1)


class EscalatesLater(Escalates):
    """The same, a little later."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await trio.sleep(0.011)
        await super()._run_async_impl(ctx)


@scenario("t02", "ParallelAgent: child escalates")
async def branch_escalates(play: Play) -> None:
    slow = Counts(name="a", play=play, ends_after_s=0.001)
    await play.act(ParallelAgent(name="par", sub_agents=[slow, EscalatesLater(name="esc", play=play)]))
