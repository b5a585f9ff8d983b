"""
Trees of agents, drawn from the choices of a simulation, and a diary that knows what they must not do.

A `Plan` is a tree as data, so that every process of a world builds the same one: agents that a chaotic model leads,
with tools, toolsets, agents as tools and an answer of a given form; sequences, parallel agents and loops. Hooks of
agents and of a plugin misbehave where the plan says so. What is true of all of them is written down, law by law, in
`Diary` and below it; the simulation's own checkers stand beside it.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, NoReturn, cast

import attrs
import trio

from minirun import AgentTool, App, Event, InvocationContext, LlmAgent, RunConfig, Runner
from minirun._values import changed
from minirun.agents import BaseAgent, LoopAgent, ParallelAgent, SequentialAgent, StreamingMode
from minirun.errors import (
    CleanupTimeoutError,
    FatalError,
    ModelContractError,
    ModelError,
    OutputSchemaError,
    ScriptError,
)
from minirun.models import BaseLlm, LlmCapabilities, LLMRegistry, LlmRequest, LlmRequestDraft, LlmResponse
from minirun.plugins import BasePlugin
from minirun.runtime import CallbackContext, ReadonlyContext
from minirun.sessions import InvocationStatus
from minirun.simulation import ChaosLlm, Choices, World
from minirun.simulation._world import current_world
from minirun.tools import BaseTool, BaseToolset, FunctionTool, RetryConfig, ToolContext, exit_loop
from minirun.types import Content, FunctionResponse, Part

from .laws import check_calls, expect, read_logs
from .simulation.stores import checks_of

__all__ = ["Diary", "Forest", "HookError", "Plan", "draw", "grow", "trees"]

AGENTS_MAX = 6
DEPTH_MAX = 3
KINDS = ("mind", "steps", "sides", "rounds")
TOOLS = ("put", "add", "flaky", "slow", "fails", "tells", "exit_loop", "stop", "box")
HOOKS = (
    "before_agent",
    "after_agent",
    "before_model",
    "after_model",
    "on_model_error",
    "before_tool",
    "after_tool",
    "on_tool_error",
)
RUN_HOOKS = ("on_user_message", "before_run", "on_event", "after_run", "on_agent_error", "on_run_error")
NAMED = "a model of the trees"


class HookError(Exception):
    """What a hook fails with."""


class ToolBrokenError(Exception):
    """What a tool fails with."""


@attrs.frozen
class Point:
    """A part of the answers that agents give in a form."""

    weight: int
    kind: Literal["good", "bad"]
    then: Point | None = None


@attrs.frozen
class Report:
    """The answers that agents give in a form."""

    title: str
    points: list[Point]
    more: bool | None = None


# --- plans ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Plan:
    """An agent and what is below it."""

    kind: str
    name: str
    below: tuple[Plan, ...] = ()
    tools: tuple[str, ...] = ()
    helpers: tuple[Plan, ...] = ()
    """The agents that are its tools."""
    trouble: tuple[str, ...] = ()
    """Its hooks that misbehave."""
    model: str = "own"
    form: bool = False
    output_key: str | None = None
    collects: bool = False
    rounds: int = 2
    remembers: bool = True
    stays: bool = False
    impatient: bool = False
    """Whether it has little time where it is a tool."""

    def all(self) -> Iterator[Plan]:
        """It and everything below it, the tools of its agents included."""
        yield self
        for plan in (*self.below, *self.helpers):
            yield from plan.all()


class _Drawing:
    """Draws a plan."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._count = 0

    def agent(self, depth: int = 0, *, inherits: bool = False) -> Plan:
        choose, maybe = self._choices.choose, self._choices.maybe
        name = f"a{self._count}"
        self._count += 1
        kind = KINDS[choose(len(KINDS) if self._may_grow(depth) else 1, f"what {name} is", names=KINDS)]
        if kind != "mind":
            return Plan(
                kind,
                name,
                trouble=self._some(HOOKS[:2], 1, f"a hook of {name}", 6),
                collects=choose(2, f"{name} collects failures") == 1,
                rounds=1 + choose(2, f"rounds of {name}"),
                below=self._below(depth, 1 + choose(3, f"how many are below {name}"), inherits=inherits),
            )
        models = ("own", "named", "none") if inherits else ("own", "named")
        return Plan(
            kind,
            name,
            model=models[choose(len(models), f"the model of {name}", names=models)],
            trouble=self._some(HOOKS, 1, f"a hook of {name}", 3),
            tools=self._some(TOOLS, 2, f"a tool of {name}", 1),
            form=maybe(f"{name} answers in a form", 6),
            output_key="out" if maybe(f"{name} keeps its answer", 4) else None,
            remembers=not maybe(f"{name} remembers nothing", 6),
            stays=maybe(f"{name} does not hand back", 6),
            impatient=maybe(f"{name} has little time", 3),
            below=self._below(depth, self._few(f"agents below {name}")),
            helpers=self._below(depth, self._few(f"agents that are tools of {name}")),
        )

    def _may_grow(self, depth: int) -> bool:
        return depth < DEPTH_MAX and self._count < AGENTS_MAX

    def _few(self, what: str) -> int:
        return self._choices.choose(3, what, lambda luck: luck.randrange(3) if luck.randrange(2) else 0)

    def _below(self, depth: int, count: int, *, inherits: bool = True) -> tuple[Plan, ...]:
        return tuple(self.agent(depth + 1, inherits=inherits) for _ in range(count) if self._may_grow(depth))

    def _some(self, names: Sequence[str], count: int, what: str, one_in: int) -> tuple[str, ...]:
        """Up to *count* of the names, each of them once in so many times."""
        options = ("nothing", *names)

        def prefer(luck: random.Random) -> int:
            return luck.randrange(len(options)) if luck.randrange(one_in) == 0 else 0

        drawn = [self._choices.choose(len(options), what, prefer, options) for _ in range(count)]
        return tuple(dict.fromkeys(options[number] for number in drawn if number))


def draw(choices: Choices) -> Plan:
    """Draw a tree of at most `AGENTS_MAX` agents."""
    return _Drawing(choices).agent()


# --- what a process remembers of what its agents do -------------------------------------------------------------------

Context = InvocationContext | CallbackContext
Key = tuple[str, str, str]  # the invocation, the branch, the agent


@attrs.define(eq=False)
class Visit:
    """One time that an agent runs."""

    name: str
    start_seq: int
    why: str = ""
    """Whether it was called or handed over to."""
    began: bool = False
    cleaned_up: int = 0
    called: list[tuple[str, int]] = attrs.field(factory=list)
    """The agents that it has called, and what the revision was."""


class Diary:
    """
    What has happened in one process, and what follows from that.

    Its laws fail the world where they are broken, whoever catches the error on the way.
    """

    def __init__(self, forest: Forest) -> None:
        self.world = forest.world
        self.forest = forest
        self.visits: dict[Key, Visit] = {}
        self.turns: dict[tuple[str, str], tuple[str, str]] = {}
        """By invocation and branch: who is to run next, and whether it was called or handed over to."""
        self.begun_runs: Counter[str] = Counter()
        self.ended_runs: Counter[str] = Counter()

    def fail(self, law: str, message: str) -> NoReturn:
        """Say that a law is broken."""
        self.world.fail(f"{law}: {message}", law)
        raise AssertionError

    # --- the course of agents

    def called(self, agent: BaseAgent, parent: InvocationContext) -> None:
        """An agent was called by another one, by a run, or by a tool."""
        branch = parent.branch or ""
        waiting = self.turns.get((parent.invocation_id, branch))
        if waiting is not None and waiting[1] == "handed over to":
            self.fail("a transfer is followed by its target", f"{waiting[0]} was to run, and {agent.name} was called")
        self.turns[parent.invocation_id, branch] = (agent.name, "called")
        above = str(parent.agent.name)
        own = branch.removesuffix(f"{above}.{agent.name}").removesuffix(".")
        for where in (branch, own):
            visit = self.visits.get((parent.invocation_id, where, above))
            if visit is not None and above != agent.name:
                visit.called.append((agent.name, parent.session.revision))
                return

    def started(self, agent: BaseAgent, context: ReadonlyContext, revision: int) -> None:
        """An agent runs: its hooks come next."""
        branch = context.branch or ""
        name, why = self.turns.pop((context.invocation_id, branch), ("nobody", "called"))
        if name != agent.name:
            law = "an agent runs because it was called or handed over to"
            self.fail(law, f"{agent.name} runs, and {name} was {why}")
        self.visits[context.invocation_id, branch, agent.name].why = why
        if "@" in branch:
            self.world.reached("an agent ran as a tool")
            if branch.count("@") > 1:
                self.world.reached("an agent ran as a tool of a tool")

    async def watch(self, agent: BaseAgent, context: InvocationContext, run: Callable[[], Awaitable[None]]) -> None:
        """Run an agent, its hooks included, and look at how it went."""
        key = (context.invocation_id, context.branch or "", agent.name)
        visit = self.visits[key] = Visit(agent.name, context.session.revision)
        try:
            await run()
        except BaseException as error:
            is_cancelled = isinstance(error, trio.Cancelled)
            if is_cancelled and "@" in key[1]:
                self.world.reached("cancelled inside of an agent tool")
            if is_cancelled and visit.why == "handed over to" and not self._events(context, visit.start_seq):
                is_dead = any(process is not None and process.is_dead for process in self.world._processes.seats)
                self.world.reached("a transfer was cut by a crash" if is_dead else "a transfer was cut")
            raise
        else:
            target = self._transfer_of(agent, context, visit)
            if target is not None and not context.end_invocation and not self._is_escalated(agent, context, visit):
                self.world.reached("a transfer")
                self.turns[context.invocation_id, context.branch or ""] = (target, "handed over to")
        finally:
            if visit.began and visit.cleaned_up != 1:
                law = "an agent that has begun cleans up once"
                self.fail(law, f"{agent.name} has cleaned up {visit.cleaned_up} times")
            if visit.cleaned_up > 1:
                self.fail("an agent cleans up once", f"{agent.name} has cleaned up {visit.cleaned_up} times")

    async def watch_logic(
        self, agent: BaseAgent, context: InvocationContext, run: Callable[[], Awaitable[None]]
    ) -> None:
        """Run an agent's logic."""
        visit = self.visits[context.invocation_id, context.branch or "", agent.name]
        visit.began = True
        await run()
        self._check_children(agent, context, visit)

    def _transfer_of(self, agent: BaseAgent, context: Context, visit: Visit) -> str | None:
        """To whom an agent has handed over since it began."""
        events = self._events(context, visit.start_seq)
        found = [
            event.actions.transfer_to_agent
            for event in events
            if event.author == agent.name and (event.branch or None) == context.branch
        ]
        return next((name for name in reversed(found) if name is not None), None)

    def _events(self, context: Context, after_seq: int) -> list[Event]:
        found: list[Event] = []
        for event in reversed(context.session.events):
            if event.seq is None or event.seq <= after_seq:
                break
            found.append(event)
        return found[::-1]

    # --- escalations

    def _escalations(self, agent: BaseAgent, context: InvocationContext, visit: Visit) -> list[int]:
        """The places in the log where somebody has escalated, below *agent* and in no other loop."""
        inside = _calls(context.branch)
        return [
            event.seq or 0
            for event in self._events(context, visit.start_seq)
            if event.actions.escalate
            and event.invocation_id == context.invocation_id
            and _calls(event.branch) == inside
            and self.forest.reaches(event.author or "", agent.name)
        ]

    def _is_escalated(self, agent: BaseAgent, context: InvocationContext, visit: Visit) -> bool:
        """Whether somebody has escalated in the loop around *agent*, or in all there is, since *agent* began."""
        inside, loop = _calls(context.branch), self.forest.loop_around(agent.name)
        return any(
            event.actions.escalate and _calls(event.branch) == inside and self.forest.reaches(event.author or "", loop)
            for event in self._events(context, visit.start_seq)
            if event.invocation_id == context.invocation_id
        )

    def _check_children(self, agent: BaseAgent, context: InvocationContext, visit: Visit) -> None:
        """What an agent that is made of agents must have called by its end."""
        names = [child.name for child in agent.sub_agents]
        called = [name for name, _ in visit.called]
        escalations = self._escalations(agent, context, visit)
        if isinstance(agent, SequentialAgent):
            expected = names
        elif isinstance(agent, LoopAgent):
            expected = names * (agent.max_iterations or 0)
        elif isinstance(agent, ParallelAgent):
            if sorted(called) != sorted(names):
                self.fail("a parallel agent calls all", f"{agent.name} has called {called} of {names}")
            return
        else:
            return
        if called != expected[: len(called)]:
            self.fail("agents are called in their order", f"{agent.name} has called {called}, of {expected}")
        if called != expected and not escalations and not context.end_invocation:
            self.fail("nothing is left out without a reason", f"{agent.name} has called {called}, of {expected}")
        late = [name for name, revision in visit.called if escalations and revision >= escalations[0]]
        if late:
            self.fail("nothing is started after an escalation", f"{agent.name} has called {late}")
        if escalations:
            self.world.reached("an escalation")

    # --- what models are shown

    def shown(self, context: CallbackContext, request: LlmRequestDraft) -> None:
        """A model is about to be asked: it is shown what is said before and inside of its branch, all of it."""
        visit = self.visits[context.invocation_id, context.branch or "", context.agent_name]
        target = self._transfer_of(context.agent, context, visit)
        if target is not None:
            law = "a transfer is followed by its target"
            self.fail(law, f"{context.agent_name} has handed over to {target}, and its model is asked")
        plan = self.forest.plans[context.agent_name]
        events = [event for event in context.session.events if sees(context.branch, event.branch)]
        if not plan.remembers:
            events = [event for event in events if event.invocation_id == context.invocation_id]
        expected = {token for event in events if event.content is not None for token in _tokens(event.content)}
        found = {token for content in request.contents for token in _tokens(content)}
        if found != expected:
            law = "a model is shown what is said before and inside of its branch"
            more, less = sorted(found - expected), sorted(expected - found)
            self.fail(law, f"{context.agent_name} in {context.branch} is shown {more} too much, and not {less}")


def sees(own: str | None, other: str | None) -> bool:
    """Whether somebody in the branch *own* is shown what is said in *other*, step by step."""
    mine, theirs = (branch.split(".") if branch else [] for branch in (own, other))
    common = min(len(mine), len(theirs))
    return mine[:common] == theirs[:common] and not any("@" in step for step in (*mine[common:], *theirs[common:]))


def _calls(branch: str | None) -> list[str]:
    """The calls that a branch is inside of."""
    return [step for step in (branch or "").split(".") if "@" in step]


_TOKEN = re.compile(r"<(\d+)>")


def _tokens(content: Content) -> set[str]:
    found = set()
    for part in content.parts:
        if part.function_response is not None:
            found |= set(_TOKEN.findall(json.dumps(_plain(part.function_response.response))))
        elif part.text is not None:
            found |= set(_TOKEN.findall(part.text))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


# --- agents and models ------------------------------------------------------------------------------------------------


class Watched(BaseAgent):
    """An agent that the diary follows."""

    diary: Any = None

    async def run_async(self, parent_context: InvocationContext) -> None:
        self.diary.called(self, parent_context)
        await super().run_async(parent_context)

    async def _run_once(self, context: InvocationContext) -> None:
        async def run() -> None:
            await super(Watched, self)._run_once(context)

        await self.diary.watch(self, context, run)

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async def run() -> None:
            await cast("Awaitable[None]", super(Watched, self)._run_async_impl(ctx))

        await self.diary.watch_logic(self, ctx, run)


class Mind(Watched, LlmAgent):
    """An agent that a model leads."""


class Steps(Watched, SequentialAgent):
    """One after the other."""


class Sides(Watched, ParallelAgent):
    """All at once."""


class Rounds(Watched, LoopAgent):
    """Again and again."""


class Talker(ChaosLlm):
    """A chaotic model whose words can be told from each other."""

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer somehow."""
        world = current_world()
        is_form = request.config.response_schema is not None
        async with aclosing(super().generate_content_async(request, stream)) as responses:
            async for response in responses:
                if response.partial or response.content is None or is_form:
                    yield response
                else:
                    yield changed(response, content=_with_tokens(response.content, world))


def _with_tokens(content: Content, world: World) -> Content:
    parts = []
    for part in content.parts:
        if part.text:
            world.coverage["words"] += 1
            part = Part(text=f"{part.text} <{world.coverage['words']}>")
        parts.append(part)
    return Content(role="model", parts=parts)


# --- tools ------------------------------------------------------------------------------------------------------------

Write = tuple[str, str, Any]  # the key, how, and what
Call = tuple[str, str]  # the invocation, and the call's id


def call_of(context: ToolContext) -> Call:
    """The call that a tool, or a hook of one, is in."""
    return context.invocation_id, context.function_call_id


def call_answered(event: Event, response: FunctionResponse) -> Call:
    """The call that a response answers."""
    return event.invocation_id or "", response.id or ""


class Box(BaseToolset):
    """A toolset whose tools depend on who asks."""

    def __init__(self, forest: Forest) -> None:
        super().__init__(tool_filter=self._fits, tool_name_prefix="box")
        self._put = FunctionTool(forest.put)
        self._add = FunctionTool(forest.add, max_concurrency=1)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        await trio.lowlevel.checkpoint()
        return [self._put, self._add]

    def _fits(self, tool: BaseTool, context: ReadonlyContext | None) -> bool:
        assert context is not None
        return tool.name == "put" or context.agent_name in ("a0", "a2", "a4")


class Forest:
    """The trees of a world: one for each process, all of one plan."""

    def __init__(self, world: World, plan: Plan, trouble: tuple[str, ...]) -> None:
        self.world = world
        self.plan = plan
        self.plans = {each.name: each for each in plan.all()}
        self.trouble = trouble
        self.diaries: list[Diary] = []
        self.effects: dict[Call, Write] = {}
        """What the last attempt of each call has written."""
        self.results: dict[Call, Any] = {}
        """What each call has returned: told to a hook, so it stands."""
        self.looked_at: set[str] = set()
        """The events to which a hook has added something when it was asked last, by id."""
        self.answered: set[Call] = set()
        """The calls whose response is that of a hook."""
        self.hook_failures: defaultdict[str, list[str]] = defaultdict(list)
        """The hooks that have failed, by invocation."""
        self.regions: list[tuple[str, str, str, int]] = []
        """Each time that a parallel agent began: the invocation, its name, its branch, the revision."""
        self._above: dict[str, str] = {}
        for each in plan.all():
            self._above.update((child.name, each.name) for child in each.below)

    def reaches(self, author: str, top: str) -> bool:
        """Whether an escalation of *author* reaches *top*: nothing between them is a loop."""
        at = author
        while at != top:
            if at not in self._above or (at != author and self.plans[at].kind == "rounds"):
                return False
            at = self._above[at]
        return True

    def loop_around(self, name: str) -> str:
        """The innermost loop around an agent; the root of its tree, if it is in none."""
        at = name
        while at in self._above:
            at = self._above[at]
            if self.plans[at].kind == "rounds":
                break
        return at

    # --- building

    def app(self) -> App:
        """The app of a new process."""
        diary = Diary(self)
        self.diaries.append(diary)
        return App("app", self.agent(self.plan, diary), [Watcher(diary), Trouble(self)])

    def agent(self, plan: Plan, diary: Diary) -> BaseAgent:
        """The agent of a plan."""
        below = [self.agent(each, diary) for each in plan.below]
        common: dict[str, Any] = {"name": plan.name, "diary": diary, "sub_agents": below}
        hooks = Hooks(self, plan)
        for name in plan.trouble:
            common[f"{name}_callback"] = getattr(hooks, name)
        if plan.kind == "steps":
            return Steps(**common)
        if plan.kind == "sides":
            return Sides(on_failure="collect" if plan.collects else "cancel_others", **common)
        if plan.kind == "rounds":
            return Rounds(max_iterations=plan.rounds, **common)
        return Mind(
            model=self._model(plan),
            tools=[*map(self._tool, plan.tools), *(self._helper(each, diary) for each in plan.helpers)],
            output_schema=Report if plan.form else None,
            output_key=plan.output_key,
            include_contents="default" if plan.remembers else "none",
            disallow_transfer_to_parent=plan.stays,
            **common,
        )

    def _model(self, plan: Plan) -> BaseLlm | str | None:
        if plan.model == "own":
            able = LlmCapabilities(output_schema=len(plan.name) % 2 == 0, output_schema_and_tools=plan.name == "a1")
            return Talker(name=f"m{plan.name}", capabilities=able)
        return NAMED if plan.model == "named" else None

    def _helper(self, plan: Plan, diary: Diary) -> AgentTool:
        options: dict[str, Any] = {"timeout_s": 5.0} if plan.impatient else {}
        return AgentTool(self.agent(plan, diary), skip_summarization=plan.stays, **options)

    def _tool(self, name: str) -> BaseTool | BaseToolset:
        if name == "exit_loop":
            return exit_loop
        if name == "box":
            return Box(self)
        if name == "flaky":
            return FunctionTool(self.flaky, retry=RetryConfig(max_attempts=2, initial_delay=0.1))
        if name == "slow":
            return FunctionTool(self.slow, timeout_s=5.0, max_concurrency=1)
        return FunctionTool(getattr(self, name))

    # --- tools; each tells what it has written

    def _wrote(self, context: ToolContext, key: str, how: str, value: Any) -> dict[str, Any]:
        self.effects[call_of(context)] = (key, how, value)
        return {"wrote": key, "how": how}

    async def put(self, key: Literal["k1", "k2"], value: Literal[1, 2, 3], tool_context: ToolContext) -> dict[str, Any]:
        """Write plainly."""
        tool_context.state[key] = value
        await self.world.sleep(self.world.choices.choose(2, "putting takes its time"))
        return self._wrote(tool_context, key, "set", value)

    def add(self, key: Literal["k1", "k2"], tool_context: ToolContext) -> dict[str, Any]:
        """Add to a number."""
        tool_context.state.add(key, 1)
        return self._wrote(tool_context, key, "add", 1)

    async def flaky(self, tool_context: ToolContext) -> dict[str, Any]:
        """Count, and fail perhaps; it is made again then."""
        tool_context.state.add("flaky", 1)
        await self.world.sleep(0)
        if self.world.choices.choose(2, "the flaky tool fails"):
            self.world.reached("an attempt failed")
            raise ToolBrokenError("flaky")
        return self._wrote(tool_context, "flaky", "add", 1)

    async def slow(self, tool_context: ToolContext) -> dict[str, Any]:
        """Take time, too much perhaps."""
        tool_context.state.add("slow", 1)
        try:
            await self.world.sleep(10 * self.world.choices.choose(2, "the slow tool is too slow"))
        except trio.Cancelled:
            self.world.reached("a tool ran out of time")
            raise
        return self._wrote(tool_context, "slow", "add", 1)

    async def fails(self, tool_context: ToolContext) -> None:
        """Fail after having written."""
        tool_context.state["failed"] = True
        await self.world.sleep(0)
        raise ToolBrokenError("always")

    async def tells(self, tool_context: ToolContext) -> dict[str, Any]:
        """Say what it is doing, in an event and in progress."""
        await tool_context.progress("half of it", fraction=0.5)
        await tool_context.emit(Event(message="I am at it"))
        return self._wrote(tool_context, "told", "none", None)

    def stop(self, tool_context: ToolContext) -> str:
        """End the invocation."""
        tool_context.end_invocation = True
        self.world.reached("a tool ended the invocation")
        return "stopped"


# --- hooks that misbehave ---------------------------------------------------------------------------------------------

DEEDS = ("nothing", "writes", "is slow", "answers", "raises", "ends the invocation")
SLOW_S = (0.5, 60.0)


async def misbehave(forest: Forest, context: Any, name: str, answer: Any = None) -> Any:
    """Do something, which the choices decide; return an answer, if this is a hook that has one."""
    world = forest.world
    deed = DEEDS[world.choices.choose(len(DEEDS), f"what {name} does", _rather_nothing, names=DEEDS)]
    if deed == "nothing":
        return None
    world.reached(f"a hook {deed}")
    if deed == "writes":
        context.state.add("hooks", 1)
    elif deed == "is slow":
        how_long = SLOW_S[world.choices.choose(len(SLOW_S), "how slow the hook is")]
        try:
            await world.sleep(how_long)
        except trio.Cancelled:
            world.reached("a hook was cut off")
            raise
    elif deed == "answers":
        return answer
    elif deed == "raises":
        if not name.startswith(("on_agent_error", "on_run_error", "on_user_message")):
            forest.hook_failures[context.invocation_id].append(name)
        raise HookError(name)
    else:
        context.end_invocation = True
    return None


def _rather_nothing(luck: Any) -> int:
    return int(luck.randrange(1, len(DEEDS))) if luck.randrange(3) == 0 else 0


def _said(text: str) -> Content:
    return Content(role="model", parts=[Part(text=text)])


class Hooks:
    """The hooks of one agent."""

    def __init__(self, forest: Forest, plan: Plan) -> None:
        self._forest = forest
        self._plan = plan

    async def _do(self, context: Any, name: str, answer: Any) -> Any:
        return await misbehave(self._forest, context, f"{name} of {self._plan.name}", answer)

    async def before_agent(self, *, callback_context: Any) -> Any:
        return await self._do(callback_context, "before_agent", _said("instead"))

    async def after_agent(self, *, callback_context: Any) -> Any:
        return await self._do(callback_context, "after_agent", _said("that was all"))

    async def before_model(self, *, callback_context: Any, llm_request: Any) -> Any:
        llm_request.append_instructions(["Be short."])
        return await self._do(callback_context, "before_model", LlmResponse(content=_said("not asked")))

    async def after_model(self, *, callback_context: Any, llm_response: Any) -> Any:
        return await self._do(callback_context, "after_model", LlmResponse(content=_said("not what it said")))

    async def on_model_error(self, *, callback_context: Any, llm_request: Any, error: Exception) -> Any:
        return await self._do(callback_context, "on_model_error", LlmResponse(content=_said("it has failed")))

    async def before_tool(self, *, tool: Any, args: Any, tool_context: Any) -> Any:
        answer = await self._do(tool_context, "before_tool", {"instead": True})
        self._note(tool_context, answer)
        return answer

    async def after_tool(self, *, tool: Any, args: Any, tool_context: Any, tool_response: Any) -> Any:
        answer = await self._do(tool_context, "after_tool", {"replaced": True})
        self._note(tool_context, answer)
        return answer

    async def on_tool_error(self, *, tool: Any, args: Any, tool_context: Any, error: Exception) -> Any:
        answer = await self._do(tool_context, "on_tool_error", {"recovered": True})
        if answer is not None:
            self._forest.effects.pop(call_of(tool_context), None)
        self._note(tool_context, answer)
        return answer

    def _note(self, context: ToolContext, answer: Any) -> None:
        if answer is not None:
            self._forest.answered.add(call_of(context))


class Watcher(BasePlugin):
    """The first plugin: it tells the diary, and does nothing."""

    def __init__(self, diary: Diary) -> None:
        super().__init__("watcher")
        self._diary = diary

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        self._diary.begun_runs[invocation_context.invocation_id] += 1

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        self._diary.ended_runs[invocation_context.invocation_id] += 1

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: Any) -> None:
        self._diary.started(agent, callback_context, callback_context.session.revision)
        if isinstance(agent, ParallelAgent):
            context = callback_context
            place = (context.invocation_id, agent.name, context.branch or "", context.session.revision)
            self._diary.forest.regions.append(place)

    async def after_agent_callback(self, *, agent: BaseAgent, callback_context: Any) -> None:
        key = (callback_context.invocation_id, callback_context.branch or "", agent.name)
        self._diary.visits[key].cleaned_up += 1

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        self._diary.shown(callback_context, llm_request)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        self._diary.forest.results[call_of(tool_context)] = result


class Trouble(BasePlugin):
    """The second plugin: it misbehaves where the plan says so."""

    def __init__(self, forest: Forest) -> None:
        super().__init__("trouble")
        self._forest = forest

    async def _do(self, context: Any, name: str, answer: Any = None) -> Any:
        return await misbehave(self._forest, context, name, answer) if name in self._forest.trouble else None

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> Content | None:
        answer = Content(role="user", parts=[*user_message.parts, Part(text="please")])
        return cast("Content | None", await self._do(invocation_context, "on_user_message", answer))

    async def before_run_callback(self, *, invocation_context: Any) -> Content | None:
        return cast("Content | None", await self._do(invocation_context, "before_run", _said("closed today")))

    async def on_event_callback(self, *, invocation_context: Any, event: Event) -> Event | None:
        answer = Event(custom_metadata={"looked": "at"})
        if event.text and not event.get_function_calls() and event.content is not None:
            answer = Event(content=changed(event.content, parts=(*event.content.parts, Part(text=" (looked at)"))))
        self._forest.looked_at.discard(event.id or "")  # it may be asked again, of an event that could not be stored
        changed_event = await self._do(invocation_context, "on_event", answer)
        if changed_event is not None and not event.partial:
            self._forest.looked_at.add(event.id or "")
        return cast("Event | None", changed_event)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        await self._do(invocation_context, "after_run")

    async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
        await self._do(callback_context, "on_agent_error")

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        await self._do(invocation_context, "on_run_error")


# --- what is true of every log ----------------------------------------------------------------------------------------


def check_log(forest: Forest, log: Sequence[Event]) -> None:
    """Check what the events of a session say of the calls before them."""
    for event in log:
        looked_at = event.text.endswith(" (looked at)") or event.custom_metadata == {"looked": "at"}
        is_recovered = any(_error_of(one) == "outcome_unknown" for one in event.get_function_responses())
        if event.id in forest.looked_at and not looked_at and not is_recovered:
            law = "what an on_event hook makes of an event is stored"
            forest.world.fail(f"{law}: it has answered to event {event.seq}, which is {event}", law)
        responses = event.get_function_responses()
        if responses:
            _check_results(forest, event, responses)
            _check_writes(forest, event, responses)
    _check_conflicts(forest, log)


def _check_results(forest: Forest, event: Event, responses: Sequence[FunctionResponse]) -> None:
    """What a tool has returned, and a hook was told, is stored, whatever the hook does."""
    for response in responses:
        call = call_answered(event, response)
        if call not in forest.results or call in forest.answered:
            continue
        told = forest.results[call]
        expected = told if isinstance(told, Mapping) else {"result": told}
        kind = _error_of(response)
        if kind == "outcome_unknown" and forest.world.faults & {"crash", "storage"}:
            continue
        if kind not in ("InvalidValueError", "InvalidEventError", "TransfersLimitExceededError") and dict(
            response.response
        ) != dict(expected):
            law = "a result is stored, whatever the hooks do"
            forest.world.fail(f"{law}: {response.name} returned {expected}, stored is {response.response}", law)


def _error_of(response: FunctionResponse) -> str:
    error = response.response.get("error")
    return str(error.get("type")) if isinstance(error, Mapping) else ""


def _writes_of_calls(forest: Forest, event: Event, responses: Sequence[FunctionResponse]) -> list[Write]:
    """What the calls of a turn have written, in their order."""
    calls = [call_answered(event, one) for one in responses if not _error_of(one) and "recovered" not in one.response]
    return [forest.effects[call] for call in calls if call in forest.effects]


KEYS = ("k1", "k2", "flaky", "slow", "failed")


def _check_writes(forest: Forest, event: Event, responses: Sequence[FunctionResponse]) -> None:
    """The calls of a turn write what those that succeeded have written, merged in their order, and nothing else."""
    merged: dict[str, tuple[str, Any]] = {}
    for key, how, value in _writes_of_calls(forest, event, responses):
        if how == "set":
            merged[key] = ("set", value)
        elif how == "add":
            before = merged.get(key, ("add", 0))
            merged[key] = (before[0], before[1] + value)
    actions = event.actions
    found: dict[str, tuple[str, Any]] = {key: ("set", v) for key, v in actions.state_delta.items() if key in KEYS}
    found |= {key: ("add", op["add"]) for key, op in actions.state_ops.items() if key in KEYS}
    if found != merged:
        law = "a turn writes what its successful calls have written"
        forest.world.fail(f"{law}: event {event.seq} writes {found}, the calls {merged}", law)


def _check_conflicts(forest: Forest, log: Sequence[Event]) -> None:
    """An event names just those keys whose value it replaces after another call, or another branch, has written it."""
    writers: dict[Region, dict[str, str]] = defaultdict(dict)
    turns: dict[str, Region] = {}
    for event in log:
        turns.update((call.id or "", ("turn", event.id or "", "", 0)) for call in event.get_function_calls())
        expected: set[str] = set()
        replaced = {*event.actions.state_delta, *event.actions.state_removed}
        for region, child in _regions_of(forest, event, turns):
            before = writers[region]
            expected |= {key for key in replaced if before.get(key, child) != child}
            before.update(dict.fromkeys((*replaced, *event.actions.state_ops), child))
        for response in event.get_function_responses():
            for key, how, _ in _writes_of_calls(forest, event, [response]):
                call_id = response.id or ""
                before = writers[turns[call_id]]
                if how == "set" and before.get(key, call_id) != call_id:
                    expected.add(key)
                if how in ("set", "add"):
                    before[key] = call_id
        if expected:
            forest.world.reached("a conflict")
        if sorted(expected) != list(event.actions.state_conflicts):
            law = "an event names the conflicts of parallel writers, and nothing else"
            found = list(event.actions.state_conflicts)
            forest.world.fail(f"{law}: event {event.seq} names {found}, expected {sorted(expected)}", law)


Region = tuple[str, str, str, int]


def _regions_of(forest: Forest, event: Event, turns: Mapping[str, Region]) -> Iterator[tuple[Region, str]]:
    """The parallel agents and the turns around an event, and which branch or call of each it is in."""
    steps = (event.branch or "").split(".")
    for index, step in enumerate(steps):
        call_id = step.rpartition("@")[2]
        if call_id != step:
            yield turns[call_id], call_id
        if index + 1 == len(steps):
            return
        plan = forest.plans.get(step)
        if plan is not None and plan.kind == "sides":
            branch = ".".join(steps[:index])
            begun = [
                place
                for place in forest.regions
                if place[:3] == (event.invocation_id, step, branch) and place[3] < (event.seq or 0)
            ]
            if begun:
                yield begun[-1], steps[index + 1]


# --- the world --------------------------------------------------------------------------------------------------------

EXPECTED = (ModelContractError, ModelError, HookError, OutputSchemaError, CleanupTimeoutError, FatalError)


async def trees(world: World) -> None:
    """Users talk to a tree of agents that the choices have drawn."""
    await grow(world)


async def grow(world: World) -> tuple[Forest, Runner]:
    """Draw a tree, let one or two users talk to it, one of them twice perhaps, and check the logs."""
    choices = world.choices
    picked = choices.choose(1 + len(RUN_HOOKS), "a hook of the run", names=("nothing", *RUN_HOOKS))
    forest = Forest(world, draw(choices), RUN_HOOKS[picked - 1 : picked] if picked else ())
    config = RunConfig(
        max_llm_calls=(12, 4)[choices.choose(2, "few questions")],
        max_tool_calls=(15, 4)[choices.choose(2, "few calls")],
        max_transfers=(3, 1)[choices.choose(2, "few transfers")],
        streaming_mode=(StreamingMode.NONE, StreamingMode.SSE)[choices.choose(2, "streaming")],
    )

    async def ask(user: str, text: str) -> None:
        try:
            await world.say(runner, user, text, run_config=config)
        except EXPECTED as error:
            if isinstance(error, ScriptError):
                raise
            world.reached(f"the run failed: {type(error).__name__}")

    async def talk(user: str, *texts: str) -> None:
        for text in texts:
            await ask(user, text)

    LLMRegistry.register(
        NAMED, lambda name: Talker(name="named")
    )  # for good: processes begin after this has ended, too
    runner = world.runner(forest.app)
    texts = ("hello", "go on")[: 1 + choices.choose(2, "ada says two things")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "ada", *texts)
        if choices.choose(2, "bob speaks, too"):
            nursery.start_soon(talk, "bob", "hello")
    await check_end(forest, runner)
    return forest, runner


async def check_end(forest: Forest, runner: Runner) -> None:
    """Check what is left when all have been answered."""
    world = forest.world
    logs = await read_logs(world, runner)
    for log in logs.values():
        check_calls(world, log, may_be_open=bool(world.faults & {"crash", "storage"}))
        check_log(forest, log)
    ended = checks_of(world).ledger.ended
    for invocation, names in forest.hook_failures.items():
        is_failed = ended.get(invocation) is not InvocationStatus.COMPLETED
        expect(is_failed, f"a run is completed, and these hooks have failed in it: {names}")
    begun = sum((diary.begun_runs for diary in forest.diaries), Counter[str]())
    ended_runs = sum((diary.ended_runs for diary in forest.diaries), Counter[str]())
    # What somebody has said twice may still be at work, and nobody waits for it before the end of the world.
    at_work = Counter(name.rpartition("minirun agent of ")[2] for name in world.schedule.living())
    for invocation, times in begun.items():
        left = times - at_work[invocation]
        expect(left <= ended_runs[invocation] <= times, f"a run began {times} times, and its cleanup did not follow")
