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
    LoopAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SqliteSessionService,
    ToolContext,
)
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop

from .kills import OftenCheckpointed, Teller, main

__all__ = ["MOMENTS", "POLICIES", "SCENARIOS", "effects_beside"]

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


def steps(*answers: object) -> ScriptedLlm:
    """A model that says the n-th of these when it has been answered n times: it needs no memory of its own."""

    def answer(request: LlmRequest) -> Any:
        return answers[sum(content.role == "model" for content in request.contents)]

    return ScriptedLlm(answer)


def says(text: str) -> ScriptedLlm:
    """A model that says one thing."""
    return ScriptedLlm(lambda request: text)


def note(what: str, tool_context: ToolContext) -> str:
    """Note something."""
    FATE[0].effect(tool_context.idempotency_key)
    tool_context.state.extend("notes", [what])
    return f"noted {what}"


def tool(policy: Any = "rerun") -> FunctionTool:
    """The tool that has an effect."""
    return FunctionTool(note, on_interrupted=policy)


def two_tools(policy: str = "rerun") -> BaseAgent:
    """Two calls in one turn, then one more."""
    model = steps([call("note", what="a"), call("note", what="b")], call("note", what="c"), "done")
    return LlmAgent(name="a", model=model, tools=[tool(policy)], output_key="answer")


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


def parallel() -> BaseAgent:
    """Two at once, each with a tool, then a third."""
    both = [LlmAgent(name=name, model=steps(call("note", what=name), name), tools=[tool()]) for name in ("p", "q")]
    last = LlmAgent(name="last", model=says("last"))
    return SequentialAgent(name="all", sub_agents=[ParallelAgent(name="both", sub_agents=both), last])


class Round(BaseAgent):
    """Counts rounds in the state, each with a step."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        def act(number: int) -> int:
            FATE[0].effect(ctx.idempotency_key)
            return number

        ctx.state["round"] = ctx.state.get("round", 0) + 1
        await ctx.emit(Event(message=f"round {await ctx.step('act', act, ctx.state['round'])}"))


def loop() -> BaseAgent:
    """Rounds until one escalates."""
    critic = LlmAgent(name="critic", model=steps("again", "again", call("exit_loop")), tools=[exit_loop])
    return LoopAgent(name="rounds", sub_agents=[Round(name="round"), critic])


def transfer() -> BaseAgent:
    """One hands over to another, which uses a tool."""
    sub = LlmAgent(name="sub", model=steps(call("note", what="x"), "sub here"), tools=[tool()])
    return LlmAgent(name="root", model=steps(call("transfer_to_agent", agent_name="sub")), sub_agents=[sub])


def agent_tool() -> BaseAgent:
    """An agent inside of a call, with a tool of its own, beside another call."""
    inner = LlmAgent(name="inner", model=steps(call("note", what="x"), "inside"), tools=[tool()], output_key="inner")
    model = steps([call("inner", request="do"), call("note", what="y")], "done")
    return LlmAgent(name="root", model=model, tools=[AgentTool(inner), tool()])


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


def custom() -> BaseAgent:
    """An agent of one's own."""
    return Order(name="order")


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


SCENARIOS: dict[str, Callable[[], BaseAgent]] = {
    build.__name__: build for build in (two_tools, pause_in_sequence, parallel, loop, transfer, agent_tool, custom)
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
