"""
The workflows of sketches (sketches.py), built anew for every process.

Each node writes a key of its own with its outcome, and gives a value that follows from what it was given, so that
whatever goes another way shows in the end. A `Ground` says what effects are, and when timers are due.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict
from zlib import crc32

import trio

from minirun import (
    AgentTool,
    BaseAgent,
    Content,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import MinirunError
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset, RetryConfig
from minirun.types import FunctionDeclaration
from minirun.workflow import END, START, Edge, JoinNode, RequestInput, Workflow, node

from .laws import expect
from .sketches import ROUTES, Draft, Sketch

__all__ = ["BrokenError", "Ground", "build", "mark", "told"]


class BrokenError(Exception):
    """What a node fails with where nobody expects it."""


class Ground:
    """What nodes do beside what they say. This one does nothing but count; a world's takes time, and looks."""

    due = 4e9
    """When timers are due, in seconds since the epoch."""

    def __init__(self, breaks_at: int = 0) -> None:
        self._breaks_at = self._until_broken = breaks_at
        self.effects: Counter[str] = Counter()
        """By the key of a step or a call."""
        self.entered: list[str] = []
        """The paths of the runs of nodes whose logic was called, in order."""
        self.attempted: list[tuple[str, int]] = []

    async def enter(self, ctx: InvocationContext) -> None:
        """The logic of a node begins."""
        self.entered.append(ctx._path)
        self.attempted.append((ctx._path, ctx.attempt_count))

    @property
    def has_broken(self) -> bool:
        """Whether something has failed where nobody expects it."""
        return self._until_broken < 0 < self._breaks_at

    def stumble(self, *, in_step: bool = False) -> None:
        """Fail here, if this is the place where everything fails."""
        self._until_broken -= 1
        if self._until_broken == 0:
            self._until_broken = -1
            raise BrokenError

    async def effect(self, key: str, invocation_id: str) -> None:
        """Something is done in the world."""
        self.effects[key] += 1

    async def until(self, ctx: InvocationContext) -> float:
        """When the timer of a node is due."""
        return self.due


def mark(name: str, value: Any) -> str:
    """What a node gives: it follows from what it was given, the order of keys included."""
    if isinstance(value, Content):
        return f"{name}({value.text})"
    return f"{name}({crc32(told(value).encode()) % 10_000})"


def told(value: Any) -> str:
    """A value, with the order of keys."""
    if isinstance(value, dict):
        return repr([(key, told(each)) for key, each in value.items()])
    return repr(value)


def build(sketch: Sketch, ground: Ground) -> Workflow:
    """The workflow of a sketch, as a process makes it."""
    nodes = {draft.name: _node(draft, ground) for draft in sketch.drafts}
    ends: dict[str, Any] = {**nodes, "START": START, "END": END}
    edges = [Edge(ends[source], ends[target], route) for source, target, route in sketch.arcs()]
    return Workflow(
        name=sketch.name,
        edges=edges,
        output=nodes[sketch.drafts[-1].name],
        max_concurrency=sketch.limit,
        on_failure=sketch.on_failure,
        state_schema=_schema(sketch) if sketch.has_schema else None,
    )


def _schema(sketch: Sketch) -> Any:
    """What its nodes may write, and those of graphs inside that say nothing of their own."""
    return TypedDict("Schema", dict.fromkeys(_keys(sketch), Any), total=False)  # type: ignore[operator]


def _keys(sketch: Sketch) -> list[str]:
    keys = ["helper"]
    for draft in sketch.drafts:
        keys += [draft.name, *(f"{draft.name}_{rest}" for rest in ("items", "0", "1", "again", "below"))]
        if draft.inner is not None and not draft.inner.has_schema:
            keys += _keys(draft.inner)
    return keys


def _node(draft: Draft, ground: Ground) -> Any:
    timeout_s = draft.timeout_s
    if draft.kind == "join":
        reduce: dict[str, Any] = {"reduce": lambda value, output: [*value, output], "initial": []}
        return JoinNode(
            name=draft.name,
            require_all=draft.is_strict,
            timeout_s=timeout_s,
            **reduce if draft.variant == 1 else {},
        )
    if draft.kind == "agent":
        return node(_agents(draft, ground), timeout_s=timeout_s)
    if draft.kind == "task":
        return node(_clerk(draft, ground), timeout_s=timeout_s)
    if draft.inner is not None:
        return node(build(draft.inner, ground), timeout_s=timeout_s)
    if draft.kind == "tool":
        return node(Using("note", draft.name, ground), name=draft.name, timeout_s=timeout_s)
    if draft.kind == "toolset":
        return node(Kit(draft.name, ground), name=draft.name, timeout_s=timeout_s)
    retry = None
    if draft.kind in ("retries", "fails") and draft.number > 1:
        delay = draft.delay_s
        retry = RetryConfig(max_attempts=draft.number, initial_delay=delay, max_delay=max(delay, 1.0), jitter=0)
    if draft.kind == "yields":

        async def yields(node_input: Any, ctx: InvocationContext) -> Any:
            await ground.enter(ctx)
            yield Event(message=f"{draft.name} asks", state={draft.name: 1})
            yield RequestInput(message=draft.name, response_schema=WORD)
            raise AssertionError("a node that has yielded its question has ended")

        return node(yields, name=draft.name, timeout_s=timeout_s)

    async def logic(node_input: Any, ctx: InvocationContext) -> Any:
        await ground.enter(ctx)
        if draft.kind not in ("retries", "fails"):  # they are tried again, or have somebody who is told
            ground.stumble()
        return await _LOGIC[draft.kind](draft, ground, node_input, ctx)

    return node(logic, name=draft.name, retry=retry, timeout_s=timeout_s)


# --- agents and tools -------------------------------------------------------------------------------------------------

WORD = {"type": "string", "pattern": "."}


def _words(request: LlmRequest) -> list[Any]:
    """What the model has said, turn by turn."""
    return [content for content in request.contents if content.role == "model"]


def _response(request: LlmRequest) -> Any:
    """The response that the model has just been given, if it is one with a result."""
    found = request.contents[-1].parts[-1].function_response
    return None if found is None or "result" not in found.response else found.response


def _agent(name: str, ground: Ground) -> LlmAgent:
    """An agent that calls a tool twice at once, and then answers."""

    def answer(request: LlmRequest) -> Any:
        if request.contents[-1].parts[-1].function_response is not None:
            return f"{name} has noted"
        expect(len(_words(request)) <= 4, f"{name} is shown {request.contents}")
        ground.stumble()
        return [call("note", what="a"), call("note", what="b")]

    return LlmAgent(name=name, model=ScriptedLlm(answer), tools=[_noting(ground)], output_key=name)


def _noting(ground: Ground) -> FunctionTool:
    async def note(what: str, tool_context: ToolContext) -> str:
        await ground.effect(tool_context.function_call_id, tool_context.invocation_id)
        return f"noted {what}"

    return FunctionTool(note, on_interrupted="rerun")


def _asking_agent(name: str, ground: Ground) -> LlmAgent:
    """An agent whose tool asks, and that tells what it has heard."""

    async def ask(tool_context: ToolContext) -> str:
        return str(await tool_context.request_input(name, response_schema=WORD))

    def answer(request: LlmRequest) -> Any:
        found = _response(request)
        return call("ask") if found is None else f"{name} has heard {found['result']}"

    tools = [FunctionTool(ask, on_interrupted="rerun")]
    return LlmAgent(name=name, model=ScriptedLlm(answer), tools=tools, output_key=name)


def _careful_agent(name: str, ground: Ground) -> LlmAgent:
    """An agent whose tool has to be allowed, beside one that has not."""

    async def pay(tool_context: ToolContext) -> str:
        confirmation = tool_context.tool_confirmation
        expect(confirmation is not None and confirmation.confirmed, f"{name} pays, and nobody has allowed it")
        return "paid"

    def answer(request: LlmRequest) -> Any:
        if request.contents[-1].parts[-1].function_response is not None:
            return f"{name} has paid"
        return [call("note", what="a"), call("pay")]

    tools = [_noting(ground), FunctionTool(pay, require_confirmation=True, on_interrupted="rerun")]
    return LlmAgent(name=name, model=ScriptedLlm(answer), tools=tools, output_key=name)


def _agent_with_a_workflow(name: str, ground: Ground) -> LlmAgent:
    """An agent whose tool is a workflow."""

    def answer(request: LlmRequest) -> Any:
        found = _response(request)
        return call("inside", request="go") if found is None else f"{name} has {found['result']}"

    tools = [AgentTool(_lanes("inside", ground))]
    return LlmAgent(name=name, model=ScriptedLlm(answer), tools=tools, output_key=name)


def _handing_over(name: str, ground: Ground) -> LlmAgent:
    """An agent that hands over to another one."""
    model = ScriptedLlm(lambda request: call("transfer_to_agent", agent_name=f"{name}_below"))
    return LlmAgent(name=name, model=model, sub_agents=[_agent(f"{name}_below", ground)])


def _agents(draft: Draft, ground: Ground) -> BaseAgent:
    """An agent; or two, one after the other; or one twice; or one of those above."""
    if draft.number == 1:
        return _agent(draft.name, ground)
    if draft.number == 2:
        below = [_agent(f"{draft.name}_{number}", ground) for number in range(2)]
        return SequentialAgent(name=draft.name, sub_agents=below)
    if draft.number == 3:
        return LoopAgent(name=draft.name, sub_agents=[_agent(f"{draft.name}_again", ground)], max_iterations=2)
    make = (_asking_agent, _careful_agent, _agent_with_a_workflow, _handing_over)[draft.number - 4]
    return make(draft.name, ground)


def _clerk(draft: Draft, ground: Ground) -> LlmAgent:
    """An agent in a conversation: it notes something, says so much, once what is no outcome, and what it has heard."""

    def answer(request: LlmRequest) -> Any:
        said = len(_words(request))
        script: list[Any] = [call("note", what="a")]
        if draft.variant:
            script.append(call("finish_task", wrong="x"))
        script += [f"{draft.name} asks {number}" for number in range(draft.number)]
        if said < len(script):
            return script[said]
        users = [content for content in request.contents if content.role == "user"]
        heard = [content.parts[0].text for content in users[1:] if content.parts[0].text is not None]
        return call("finish_task", result=" ".join(heard))

    model = ScriptedLlm(answer)
    return LlmAgent(name=draft.name, model=model, mode="task", tools=[_noting(ground)], output_key=draft.name)


class Using(BaseTool):
    """A tool that takes whatever it is given, and gives what follows from that."""

    checks_arguments = False

    def __init__(self, name: str, node_name: str, ground: Ground) -> None:
        super().__init__(name=name, description="Note what is given.", on_interrupted="rerun")
        self._node_name = node_name
        self._ground = ground

    @property
    def declaration(self) -> FunctionDeclaration:
        """It has one argument with a name."""
        parameters = {"type": "object", "properties": {"given": {"type": "string"}}}
        return FunctionDeclaration(name=self.name, description=self.description, parameters=parameters)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        self._ground.stumble()
        await self._ground.effect(tool_context.function_call_id, tool_context.invocation_id)
        tool_context.state[self._node_name] = 1
        return mark(self._node_name, args)


class Kit(BaseToolset):
    """Two tools."""

    def __init__(self, node_name: str, ground: Ground) -> None:
        super().__init__(tool_name_prefix="kit")
        self._tools = [Using(name, node_name, ground) for name in ("other", "note")]

    async def get_tools(self, readonly_context: Any = None) -> Sequence[BaseTool]:
        return self._tools


# --- functions --------------------------------------------------------------------------------------------------------


async def _act(ctx: InvocationContext, ground: Ground, what: str, *, is_safe: bool = False) -> str:
    async def work(what: str) -> str:
        if not is_safe:
            ground.stumble(in_step=True)
        await ground.effect(ctx.idempotency_key, ctx.invocation_id)
        return what

    return str(await ctx.step("act", work, what))


async def _says(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    read = None if draft.reads is None else ctx.state.get(draft.reads)
    ctx.state[draft.name] = mark(draft.name, given)
    return mark(draft.name, given if read is None else [given if not isinstance(given, Content) else given.text, read])


async def _calls(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    ctx.state[draft.name] = 1
    made = {"name": "kit_note", "args": {"given": mark(draft.name, given)}}
    return json.dumps(made) if draft.variant else made


async def _acts(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    await ctx.emit(Event(message=f"{draft.name} acts"))
    done = await _act(ctx, ground, "once") + await _act(ctx, ground, "twice")
    ctx.state[draft.name] = done
    return mark(draft.name, [given if not isinstance(given, Content) else given.text, done])


async def _maps(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    """Items by `ctx.map`, or by a node that is run for each; of which the last one fails, or each asks."""

    async def item(node_input: int, ctx: InvocationContext) -> str:
        ctx.state.add(f"{draft.name}_items", node_input)
        done = await _act(ctx, ground, f"item {node_input}")
        if draft.variant == 2 and node_input == draft.number - 1:
            raise ValueError(done)
        if draft.variant == 3:
            await ctx.request_input(f"{draft.name} {node_input}", response_schema=WORD)
        return done

    items, found = list(range(draft.number)), list[Any]()
    if draft.variant == 1:
        found = await ctx.run_node(node(item, parallel_worker=True), items)
    else:
        try:
            found = await ctx.map(item, items, max_concurrency=2, on_failure="collect")
        except MinirunError:  # StaleSessionError is a ValueError, too
            raise
        except ValueError as error:
            expect(str(error) == f"item {draft.number - 1}", f"a map has failed with {error!r}")
        except ExceptionGroup as group:  # of which one is none of ours
            raise next(each for each in group.exceptions if type(each) is not ValueError) from None
    if draft.variant != 2:
        expect([*found] == [f"item {each}" for each in items], f"a map over {items} has come to {found}")
    ctx.state[draft.name] = list(found)
    return mark(draft.name, given)


async def _asks(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    await ctx.emit(Event(message=f"{draft.name} asks"))
    answer = await ctx.request_input(draft.name, response_schema=WORD)
    ctx.state[draft.name] = answer
    return [mark(draft.name, given), answer]


async def _waits(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    await ctx.sleep_until(await ground.until(ctx))
    ctx.state[draft.name] = "waited"
    return mark(draft.name, given)


async def _retries(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    """Fails until its last attempt, or takes its time until then."""
    await _act(ctx, ground, "try", is_safe=True)
    ctx.state[draft.name] = ctx.attempt_count
    if ctx.attempt_count < draft.number:
        if draft.variant:
            await trio.sleep_forever()
        raise ValueError(f"{draft.name} {ctx.attempt_count}")
    return mark(draft.name, given)


async def _fails(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    """Fails, or takes its time for ever, or writes what it may not."""
    await ctx.emit(Event(message=f"{draft.name} tries"))
    ctx.state[draft.name] = "never written"
    if draft.variant == 1:
        await trio.sleep_forever()
    if draft.variant == 2:
        ctx.state["misspelt"] = 1
    raise ValueError(f"{draft.name} {ctx.attempt_count}")


def _lanes(name: str, ground: Ground) -> Workflow:
    """A workflow that acts in two lanes, which it joins."""

    async def left(ctx: InvocationContext) -> str:
        return await _act(ctx, ground, "left")

    async def right(ctx: InvocationContext) -> str:
        return await _act(ctx, ground, "right")

    async def told(node_input: Any) -> str:
        return " ".join(node_input)

    return Workflow(name=name, edges=[(START, (left, right), JoinNode(name="both"), told)])


async def _parent(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    """Runs nodes: functions and an agent; or a workflow; or a tool, and one that asks."""

    async def child(node_input: str, ctx: InvocationContext) -> str:
        return await _act(ctx, ground, node_input)

    async def asks(node_input: str, ctx: InvocationContext) -> str:
        return str(await ctx.request_input(f"{draft.name} asks", response_schema=WORD))

    if draft.variant == 1:
        found = [await ctx.run_node(_lanes("inside", ground), "x") for _ in range(2)]
        expect(found == ["left right"] * 2, f"a workflow has come to {found}")
    elif draft.variant == 2:
        used = await ctx.run_node(Using("note", draft.name, ground), "x")
        expect(used == mark(draft.name, {"given": "x"}), f"a tool has come to {used}")
        await ctx.run_node(asks, "x")
    else:
        beginning = [await ctx.run_node(child, "x"), await ctx.run_node(_agent("helper", ground), "help")]
        expect(beginning == ["x", "helper has noted"], f"a node and an agent have come to {beginning}")
    beside: dict[str, Any] = {}

    async def ask(what: str) -> None:
        beside[what] = await ctx.run_node(child, what)

    async with trio.open_nursery() as nursery:
        for what in ("left", "right"):
            nursery.start_soon(ask, what)
    expect(beside == {"left": "left", "right": "right"}, f"nodes beside each other have come to {beside}")
    ctx.state[draft.name] = "both"
    return mark(draft.name, given)


async def _rounds(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    number = ctx.state.get(draft.name, 0) + 1
    ctx.state[draft.name] = number
    return Event(output=mark(draft.name, given), route="again" if number < 1 + draft.number else "enough")


async def _routes(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    ctx.state[draft.name] = 1
    luck = crc32(mark(draft.name, given).encode())
    options = [*ROUTES, "nowhere", ["a", 1], ["nowhere", True]]
    return Event(route=options[luck % len(options)])


_LOGIC = {
    "says": _says, "acts": _acts, "maps": _maps, "asks": _asks, "waits": _waits, "retries": _retries, "fails": _fails,
    "parent": _parent, "rounds": _rounds, "routes": _routes, "calls": _calls,
}
