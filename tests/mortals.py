"""
Processes that die while they run agents: `python -m tests.mortals` starts and ends them, as kills.py does its writers.

A process lives one life: it begins an invocation, answers what it waits for, or goes on with it after a death; or it
supervises. It kills itself, as `kill -9` does, at a moment that its `Fate` names; so every moment can be tried, and
nothing depends on luck.

Effects are lines in a file beside the database, written before anybody could record them: the world outside.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import trio

from minirun import (
    AgentTool,
    BaseAgent,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SqliteSessionService,
    ToolContext,
)
from minirun.testing import call
from minirun.workflow import START, JoinNode, Workflow, node

from .kills import OftenCheckpointed, Teller, main
from .resuming import agent_inside, handing_over, noting, rounds_of, side_by_side, steps

__all__ = ["MOMENTS", "POLICIES", "SCENARIOS", "effects_beside"]

BEFORE, DUE, AFTER = 1e9, 2e9, 3e9
"""When lives are lived, in seconds since the epoch: before timers are due, and after."""

Moment: TypeAlias = Literal["stored", "point", "effect", "before commit", "after commit"]
MOMENTS: tuple[Moment, ...] = ("stored", "point", "effect", "before commit", "after commit")
"""
When a process may die: as its caller holds an event, which is stored and nobody has gone on; where the runtime says
that it may be interrupted; after an effect that nobody has recorded; on both sides of a commit.
"""


def effects_beside(database: Path) -> Path:
    """Where the effects of the agents of this database are."""
    return database.with_suffix(".effects")


class Fate:
    """Kills the process at the *number*-th moment of a kind; with another kind, or 0, it lives."""

    def __init__(self, moment: str, number: int, effects: Path) -> None:
        self._moment = moment
        self._number = number
        self._met = 0
        self._effects = os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def meets(self, moment: Moment) -> None:
        """Such a moment has come."""
        self._met += moment == self._moment
        if moment == self._moment and self._met == self._number:
            os.kill(os.getpid(), signal.SIGKILL)

    def effect(self, key: str) -> None:
        """Something happens in the world, for which nobody will hear of it but by going on."""
        os.write(self._effects, f"{key}\n".encode())
        self.meets("effect")


FATE: list[Fate] = []
"""That of this process, once it plays."""


class MortalConnection(sqlite3.Connection):
    """A connection whose process may die on both sides of a commit."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement."""
        if sql != "COMMIT":
            return super().execute(sql, parameters)
        FATE[0].meets("before commit")
        cursor = super().execute(sql, parameters)
        FATE[0].meets("after commit")
        return cursor


@attrs.frozen(eq=False)
class MortalWorld(OftenCheckpointed):
    """The real world, in which a process may die at any point, and invocations have ids that others can know."""

    seed: list[object] = attrs.field(factory=list)
    kind = MortalConnection
    time: list[float] = attrs.field(factory=lambda: [BEFORE])

    def now(self) -> float:
        """One time for a whole life, so that what timers are answered with is the same in each."""
        return self.time[0]

    def new_id(self, path: str) -> str:
        """For an invocation, what follows from the seed; owners must not have each other's."""
        self.seed.append(path)
        if path != "invocation":
            return super().new_id(path)
        return blake2b(str(self.seed).encode(), digest_size=16).hexdigest()

    async def point(self, label: str) -> None:
        """Die here, if this is the place."""
        FATE[0].meets("point")


# --- agents -----------------------------------------------------------------------------------------------------------


def note(what: str, tool_context: ToolContext) -> str:
    """Note something."""
    FATE[0].effect(tool_context.idempotency_key)
    tool_context.state.extend("notes", [what])
    return f"noted {what}"


def tool(policy: Any = "rerun") -> FunctionTool:
    """The tool that has an effect."""
    return FunctionTool(note, on_interrupted=policy)


def two_tools(policy: str = "rerun") -> BaseAgent:
    """A tool whose policy is this one."""
    return noting(tool(policy))


class Asks(BaseAgent):
    """Asks so many questions, one after the other, and acts on each answer."""

    times: int = 1

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        def act(answer: str) -> str:
            FATE[0].effect(ctx.idempotency_key)
            return answer

        for number in range(self.times):
            answer = await ctx.request_input(f"{self.name} {number}", response_schema=str)
            await ctx.step("act", act, f"{self.name} {answer}")
        await ctx.emit(Event(message=f"{self.name} done", state={"asked": self.times}))


def pause_in_sequence() -> BaseAgent:
    """The first of two waits for an answer."""
    second = LlmAgent(name="second", model=steps(call("note", what="x"), "two"), tools=[tool()])
    return SequentialAgent(name="all", sub_agents=[Asks(name="asks"), second])


class Round(BaseAgent):
    """Counts rounds in the state, each with a step."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        def act(number: int) -> int:
            FATE[0].effect(ctx.idempotency_key)
            return number

        ctx.state["round"] = ctx.state.get("round", 0) + 1
        await ctx.emit(Event(message=f"round {await ctx.step('act', act, ctx.state['round'])}"))


class Order(BaseAgent):
    """Three steps, with words and state between them."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        def charge(amount: int) -> dict[str, Any]:
            FATE[0].effect(ctx.idempotency_key)
            return {"charged": amount}

        total = 0
        for amount in (1, 2, 3):
            assert ctx.state.get("total", 0) == total, "what is read is what was read then"
            total += (await ctx.step("charge", charge, amount))["charged"]
            ctx.state["total"] = total
            await ctx.emit(Event(message=f"so far {total}"))


def nested(depth: int, times: int) -> BaseAgent:
    """Something that asks, inside of a parallel agent, a sequence and a call, so many levels deep."""
    if depth == 0:
        return Asks(name="asks", times=times)
    inner = nested(depth - 1, times)
    after = LlmAgent(name=f"after{depth}", model=steps(call("note", what="x"), "after"), tools=[tool()])
    if depth % 3 == 1:
        return ParallelAgent(name=f"parallel{depth}", sub_agents=[inner, after])
    if depth % 3 == 2:
        return SequentialAgent(name=f"sequence{depth}", sub_agents=[inner, after])
    model = steps(call(inner.name, request="go"), "called")
    return LlmAgent(name=f"caller{depth}", model=model, tools=[AgentTool(inner)])


def graph() -> BaseAgent:
    """
    A workflow of five lanes, of which one asks, one waits for a time, and two have effects in steps, one for each item
    of a list; the last is an agent with a tool. Then they are joined, and what follows acts, too.

    Entering a node is an effect of its own: none of a node that has ended happens again.
    """

    async def act(ctx: InvocationContext, what: str) -> str:
        def work(what: str) -> str:
            FATE[0].effect(ctx.idempotency_key)
            return what

        return str(await ctx.step("act", work, what))

    async def begin(node_input: str, ctx: InvocationContext) -> list[int]:
        FATE[0].effect(f"node {ctx._path}")
        return [1, 2, 3]

    async def priced(node_input: int, ctx: InvocationContext) -> str:
        FATE[0].effect(f"node {ctx._path}")
        ctx.state.add("priced", node_input)
        return await act(ctx, f"price {node_input}")

    async def asks(ctx: InvocationContext) -> str:
        FATE[0].effect(f"node {ctx._path}")
        await ctx.emit(Event(message="I ask"))
        return await act(ctx, await ctx.request_input("asks", response_schema=str))

    async def waits(ctx: InvocationContext) -> str:
        FATE[0].effect(f"node {ctx._path}")
        await ctx.sleep_until(DUE)
        return await act(ctx, "waited")

    async def speaks(ctx: InvocationContext) -> str:
        FATE[0].effect(f"node {ctx._path}")
        ctx.state["spoken"] = await act(ctx, "speak")
        await ctx.emit(Event(message="spoken"))
        return "has spoken"

    async def last(node_input: dict[str, Any], ctx: InvocationContext) -> dict[str, Any]:
        FATE[0].effect(f"node {ctx._path}")
        await act(ctx, "last")
        return node_input

    worker = LlmAgent(name="worker", model=steps(call("note", what="x"), "noted"), tools=[tool()])
    lanes = (node(priced, parallel_worker=True), asks, waits, speaks, worker)
    return Workflow(name="graph", edges=[(START, begin, lanes, JoinNode(name="all"), last)])


SCENARIOS: dict[str, Callable[[], BaseAgent]] = {
    "graph": graph,
    "two_tools": two_tools,
    "pause_in_sequence": pause_in_sequence,
    "parallel": lambda: side_by_side(tool()),
    "loop": lambda: rounds_of(Round(name="round")),
    "transfer": lambda: handing_over(tool()),
    "agent_tool": lambda: agent_inside(tool()),
    "custom": lambda: Order(name="order"),
}
POLICIES: tuple[str, ...] = ("report", "rerun", "ask")


def agent_of(scenario: list[Any]) -> BaseAgent:
    """The agent that a test names: a builder of this file and its arguments."""
    name, *arguments = scenario
    if name == "nested":
        return nested(*arguments)
    return two_tools(*arguments) if arguments else SCENARIOS[name]()


# --- a life -----------------------------------------------------------------------------------------------------------


def reply_of(question: Any) -> Any:
    """What everybody answers: yes, or which question it was."""
    return question.reply(True if question.kind == "confirmation" else f"to {question.hint}")


async def live(runner: Runner, world: MortalWorld, options: dict[str, Any], tell: Teller) -> None:
    """Do what is to be done next with the invocation of a session, until it ends or waits, or the process dies."""
    fate, service = FATE[0], runner.session_service
    place: dict[str, Any] = {"user_id": "u", "session_id": options.get("session", "s")}
    found = await service.get_session(app_name="app", **place)
    world.seed[:] = [place["session_id"], 0 if found is None else found.revision]
    known = [one for one in await service.list_invocations() if one.session_id == place["session_id"]]
    pending = await service.list_pending(app_name="app", **place)
    if known and known[0].status == "paused" and not pending:
        world.time[0] = AFTER  # it waits for a time alone
    tell.tell("born", status=[str(one.status) for one in known], pending=len(pending))
    if not known:
        scope = runner.run_async(**place, new_message="go")
    elif pending and (known[0].status == "paused" or options["answers_at_once"]):
        scope = runner.run_async(**place, new_message=reply_of(pending[0]))
    else:
        scope = runner.run_async(**place, invocation_id=known[0].invocation_id)
    async with scope as run:
        fate.meets("stored")
        async for _ in run:
            fate.meets("stored")
    tell.tell("ended", status=run.status)


async def supervise(runner: Runner, world: MortalWorld, options: dict[str, Any], tell: Teller) -> None:
    """Go on with whatever was interrupted, until everything has ended; the other process tells nobody when."""
    world.seed[:] = [options["number"]]
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner.supervise, every_s=0.02))
        while {one.status for one in await runner.session_service.list_invocations()} != {"completed"}:  # noqa: ASYNC110
            await trio.sleep(0.02)
        nursery.cancel_scope.cancel()


async def play(options: dict[str, Any], tell: Teller) -> None:
    """Live one life."""
    path = Path(options["path"])
    FATE.append(Fate(options["moment"], options["number"], effects_beside(path)))
    world = MortalWorld()
    async with SqliteSessionService(path, durability=options["durability"], env=world) as service:
        runner = Runner(
            agent=agent_of(options["scenario"]), app_name="app", session_service=service, auto_create_session=True
        )
        tell.ready()
        await {"live": live, "supervise": supervise}[options["role"]](runner, world, options, tell)


if __name__ == "__main__":
    main(play)
