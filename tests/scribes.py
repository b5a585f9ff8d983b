"""
Worlds of agents that write and read state while what they emit is refused, and that spend budgets over many pauses.

Scribes see what they have written, whatever became of their events; what they have read before a question is what they
have read when they go on. Spenders never stop asking, so that a budget ends them, at the very request at which it would
have ended them without a pause.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import trio

from minirun import Event, InvocationContext, LlmAgent, ParallelAgent, RunConfig
from minirun.agents import BaseAgent
from minirun.errors import (
    InvalidEventError,
    InvalidMessageError,
    LlmCallsLimitExceededError,
    StorageError,
    TokensLimitExceededError,
)
from minirun.models import LlmRequest, LlmResponse
from minirun.runtime import ReadonlyContext
from minirun.simulation import World
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext
from minirun.types import Content, FunctionResponse, Part, UsageMetadata

from .helpers import Logic
from .laws import expect

__all__ = ["scribes", "spenders"]

REFUSED = Event(
    content=Content(
        role="user", parts=[Part(function_response=FunctionResponse(id="nobody's", name="x", response={"result": 1}))]
    )
)


async def scribes(world: World) -> None:
    """A user has two sessions, in each of which an agent reads what both share, asks, and then counts."""

    async def look(ctx: InvocationContext, seen: list[Any]) -> None:
        for _ in range(2):
            await world.sleep(0)
            seen.append(ctx.state.get("user:beside"))

    async def tell(ctx: InvocationContext, text: str) -> None:
        told = await ctx.emit(Event(message=text))
        expect(
            told.text == text, f"an agent has said {told.text!r}, and when it comes there again it has read {text!r}"
        )

    async def read(ctx: InvocationContext) -> None:
        """Read, between two emits and beside one, what the other session writes."""
        seen: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, ctx, seen)
            await tell(ctx, f"saw {ctx.state.get('user:shared')}")
        ctx.state.add("user:beside")
        ctx.state.add("user:own")
        await tell(ctx, f"saw {ctx.state.get('user:shared')} and beside {seen}")
        await tell(ctx, f"saw {ctx.state.get('user:shared')} and has added to {ctx.state['user:own']}")

    async def overwrite(ctx: InvocationContext) -> None:
        """Say what those above have written otherwise, and not said."""
        await ctx.emit(Event(message="overwritten", state={"text": "the child's"}))
        ctx.state.add("number", 1)
        await ctx.emit(Event(message="added", state={"list": ["the child's"]}))

    async def emit_somehow(ctx: InvocationContext) -> None:
        how = world.choices.choose(3, "how it is emitted")
        if how == 0:
            await ctx.emit(Event(message="counted"))
        elif how == 1:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_soon, scope)
                    await ctx.emit(Event(message="perhaps"))
                    nursery.cancel_scope.cancel()
        else:
            try:
                await ctx.emit(REFUSED)
            except InvalidEventError:
                world.reached("an event was refused")

    async def cancel_soon(scope: trio.CancelScope) -> None:
        for _ in range(1 + world.choices.choose(6, "patience")):
            await world.sleep(0)
        scope.cancel()

    async def write(ctx: InvocationContext) -> None:
        await read(ctx)
        ctx.state.add("user:shared")
        ctx.state["text"], ctx.state["list"], ctx.state["number"] = "above", ["above"], 1
        await ctx.agent.sub_agents[0].run_async(ctx)
        await ctx.emit(Event(message="after the child"))
        found = (ctx.state["text"], list(ctx.state["list"]), ctx.state["number"])
        expect(found == ("the child's", ["the child's"], 2), f"what the child has written was {found}")
        await ctx.request_input("go on?")
        await count(ctx)

    async def count(ctx: InvocationContext) -> None:
        """Add beside emits of which some fail; nobody goes on with this part."""
        before, added = ctx.state.get("n", 0), 0

        async def add() -> None:
            nonlocal added
            for number in range(3):
                for _ in range(world.choices.choose(3, "when it is added")):
                    await world.sleep(0)
                added += 1
                ctx.state.add("n")
                ctx.state["newest"] = number
                found = (ctx.state["n"], ctx.state["newest"])
                expect(found == (before + added, number), f"{added} were added to {before}, and it is {found}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(add)
            for _ in range(2):
                await emit_somehow(ctx)
        await ctx.emit(Event(message="all counted"))
        found = (ctx.state["n"], ctx.state["newest"])
        expect(found == (before + added, 2), f"{added} were added to {before}, and in the end it is {found}")

    def agent() -> BaseAgent:
        return Logic(name="scribe", logic=write, sub_agents=[Logic(name="child", logic=overwrite)])

    runner = world.runner(agent)

    async def converse(session: str) -> None:
        await world.say(runner, "ada", "write", session_id=session)
        try:
            pending = await runner.session_service.list_pending(app_name="app", user_id="ada", session_id=session)
            for question in pending:
                await world.sleep(world.choices.choose(2, "the user takes time"))
                await world.say(runner, "ada", question.reply("yes"), session_id=session)
        except InvalidMessageError:
            world.reached("an answer that came too late was refused")
        except StorageError:  # its process has died
            world.reached("nobody has answered")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(converse, "one")
        nursery.start_soon(converse, "two")


# --- budgets ----------------------------------------------------------------------------------------------------------

LIMITS = (TokensLimitExceededError, LlmCallsLimitExceededError)


async def spenders(world: World) -> None:
    """Agents that never stop asking, one after another or side by side, pause; a budget ends them all the same."""
    pick = world.choices.choose
    tokens, requests, branches = 1 + pick(3, "tokens"), 3 + pick(4, "requests"), 1 + pick(2, "how many side by side")
    by_tokens = pick(2, "what is limited") == 0
    # The last request begins with one token left, so that a single one that is counted twice, or not, shows.
    limit = {"max_tokens": tokens * (requests - 1) + 1} if by_tokens else {"max_llm_calls": requests}
    config = RunConfig(**limit)  # type: ignore[arg-type]  # what is limited is chosen
    asked: Counter[str] = Counter()

    def script(request: LlmRequest) -> LlmResponse:
        asked[str(request.config.system_instruction)] += 1
        name = ("more", "wait")[pick(2, "what the model calls")]
        usage = UsageMetadata(total_token_count=tokens)
        return LlmResponse(content=Content(role="model", parts=[call(name)]), usage_metadata=usage)

    async def more() -> str:
        await world.sleep(0)
        return "more"

    async def wait(tool_context: ToolContext) -> str:
        return str(await tool_context.request_input("go on?"))

    def invocation(ctx: ReadonlyContext) -> str:
        return ctx.invocation_id

    def agent() -> BaseAgent:
        children: list[BaseAgent] = [
            LlmAgent(name=name, model=ScriptedLlm(script), instruction=invocation, tools=[more, wait])
            for name in "xy"[:branches]
        ]
        return ParallelAgent(name="both", sub_agents=children) if branches > 1 else children[0]

    runner = world.runner(agent)
    message: Any = "spend"
    while True:
        try:
            await world.say(runner, "ada", message, run_config=config)
        except LIMITS as error:
            expect(isinstance(error, LIMITS[not by_tokens]), f"{limit} is met as {error!r}")
            break
        pending = await runner.session_service.list_pending(app_name="app", user_id="ada")
        message = pending[pick(len(pending), "which is answered")].reply("yes")
    # Beside the one that uses it up others may be on their way; of tokens nobody knows what these will cost.
    most = requests + (branches - 1) * by_tokens
    [times] = asked.values()
    least = requests - (branches - 1)  # one that was allowed may be cancelled by the failure of the other
    expect(least <= times <= most, f"{times} requests were made, of {least} to {most} with {limit}")
