"""
Workflows that nobody has thought of: drawn from choices, built anew for every process, and what is true of their logs.

A `Sketch` is a graph as data. Its nodes are named against the alphabet, so that an order by name is not that of
declaration. Each writes a key of its own with its outcome, and gives a value that follows from what it was given, so
that whatever goes another way shows in the end. A `Ground` says what effects are, and when timers are due.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import attrs
import trio

from minirun import Content, Event, FunctionTool, InvocationContext, LlmAgent, ToolContext
from minirun.models import LlmRequest
from minirun.simulation import Choices
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.workflow import DEFAULT_ROUTE, END, FAILED, START, Edge, JoinNode, RequestInput, Workflow, node
from minirun.workflow._graph import NodeRun, Plan
from minirun.workflow._running import outcome_of

from .laws import Log, expect

__all__ = ["Draft", "Ground", "Sketch", "build", "check_graph_log", "draw", "outcomes_of"]

NODES_MAX = 6
"""With the last one, and joins between them, a graph has 8 nodes at most."""
INNER_MAX = 2
KINDS = (
    "says", "acts", "maps", "asks", "yields", "waits", "retries", "fails", "agent", "inner", "parent", "rounds",
    "routes",
)
NAMES = ("zoe", "yan", "xia", "will", "vic", "uma", "tom", "sue", "ron")
ROUTES: tuple[Any, ...] = ("a", 1, True)
DELAYS_S = (0.0, 5.0, 1000.0)
"""How long the next attempt waits: not at all, in the process, or without one."""


@attrs.frozen
class Draft:
    """A node: what it does, and to whom it leads, by which route."""

    name: str
    kind: str
    number: int = 1
    """How many items, rounds, or attempts."""
    delay_s: float = 0.0
    to: tuple[tuple[Any, str], ...] = ()
    inner: Sketch | None = None
    is_list: bool = False
    """Whether a map is a node that is run for each item of its input, or one that calls `ctx.map`."""


@attrs.frozen
class Sketch:
    """A graph: the targets of START, the nodes in order of declaration, and how many of them at once."""

    name: str
    start: tuple[str, ...]
    drafts: tuple[Draft, ...]
    limit: int | None = None

    def all(self) -> Iterator[tuple[Sketch, Draft]]:
        """Every node, with its graph, those of graphs inside included."""
        for draft in self.drafts:
            yield self, draft
            if draft.inner is not None:
                yield from draft.inner.all()

    def arcs(self) -> list[tuple[str, str, Any]]:
        """All edges, in order of declaration; START is there by its name."""
        own = [(draft.name, target, route) for draft in self.drafts for route, target in draft.to]
        return [*(("START", target, None) for target in self.start), *own]

    def predecessors(self, join: str) -> list[str]:
        """Who leads to a node, in order of declaration."""
        return list(dict.fromkeys(source for source, target, _ in self.arcs() if target == join))

    def is_settled(self) -> bool:
        """Whether each node runs for one reason, so that every run gets the same, in whatever order others end."""
        for draft in self.drafts:
            reasons = [source for source, target, _ in self.arcs() if target == draft.name and source != draft.name]
            is_one = len(reasons) == 1 if draft.kind != "join" else len(reasons) == len(set(reasons))
            if not is_one or (draft.inner is not None and not draft.inner.is_settled()):
                return False
            back = [target for _, target in draft.to if self._place(target) < self._place(draft.name)]
            if back:
                return False
        return True

    def _place(self, name: str) -> int:
        return [draft.name for draft in self.drafts].index(name) if name != "END" else len(self.drafts)


# --- drawing ----------------------------------------------------------------------------------------------------------


class _Drawing:
    """Draws one graph."""

    def __init__(self, choices: Choices, name: str, depth: int) -> None:
        self._choices = choices
        self._name = name
        self._depth = depth
        self._kinds: dict[str, str] = {}
        self._to: dict[str, list[tuple[Any, str]]] = defaultdict(list)

    def sketch(self) -> Sketch:
        choose, name = self._choices.choose, self._name
        for place in range(1 + choose(INNER_MAX if self._depth else NODES_MAX, f"nodes of {name}")):
            self._add(f"{NAMES[place]}{self._depth or ''}", place)
        self._end()
        drafts = tuple(self._draft(each) for each in self._kinds)
        limit = (None, 1, 2)[choose(3, f"how many nodes of {name} at once", names=("any", "1", "2"))]
        return Sketch(name, tuple(target for _, target in self._to["START"]), drafts, limit)

    def _add(self, name: str, place: int) -> None:
        choose = self._choices.choose
        before = ["START", *self._kinds]
        count = 1 + (choose(3, f"what leads to {name}", lambda luck: max(0, luck.randrange(4) - 1)) if place else 0)
        sources = []
        for _ in range(min(count, len(before))):
            picked = before[-1 - choose(len(before), f"what leads to {name}")] if place else "START"
            before.remove(picked)
            sources.append(picked)
        kinds = [kind for kind in KINDS if not (self._depth and kind in ("inner", "parent"))]
        is_join = len(sources) > 1 and not self._choices.maybe(f"{name} joins nothing", 4)
        self._kinds[name] = "join" if is_join else kinds[choose(len(kinds), f"what {name} is", names=tuple(kinds))]
        for source in sources:
            self._lead(source, name)
        if self._kinds[name] == "rounds":
            earlier = [each for each in sources if each != "START"]
            options = [name, *(each for each in earlier if self._kinds[each] != "join")]
            self._to[name].append(("again", options[choose(len(options), f"where the rounds of {name} begin")]))

    def _lead(self, source: str, target: str) -> None:
        kind = self._kinds.get(source, "START")
        found = len(self._to[source])
        route: Any = None
        if kind == "rounds":
            route = "enough"
        elif kind == "routes":
            options = [*ROUTES, DEFAULT_ROUTE]
            picked = self._choices.choose(len(options) + 1, f"when {source} goes to {target}")
            route = None if picked == len(options) else options[picked]
        elif kind == "fails":
            route = FAILED if found == 0 or self._choices.choose(2, f"{source} fails to {target}") == 0 else None
        self._to[source].append((route, target))

    def _end(self) -> None:
        """Lead everything that leads nowhere to one last node."""
        last = f"last{self._depth or ''}"
        forward = {name: [target for route, target in self._to[name] if route != "again"] for name in self._kinds}
        sinks = [name for name in self._kinds if not forward[name]]
        is_join = len(sinks) > 1 and not self._choices.maybe(f"{last} joins nothing", 4)
        self._kinds[last] = "join" if is_join else "says"
        for name in sinks:
            self._lead(name, last)
        for name, kind in self._kinds.items():
            routes = [route for route, _ in self._to[name]]
            if kind == "routes" and DEFAULT_ROUTE not in routes:
                self._to[name].append((DEFAULT_ROUTE, "END"))

    def _draft(self, name: str) -> Draft:
        choose, kind = self._choices.choose, self._kinds[name]
        inner = None
        if kind == "inner":
            inner = _Drawing(self._choices, name, self._depth + 1).sketch()
        return Draft(
            name,
            kind,
            number=1 + choose(3, f"how often {name}") if kind in ("maps", "rounds", "retries", "fails") else 1,
            delay_s=DELAYS_S[choose(3, f"how long {name} waits")] if kind in ("retries", "fails") else 0.0,
            to=tuple(self._to[name]),
            inner=inner,
            is_list=kind == "maps" and choose(2, f"{name} is run for each item") == 1,
        )


def draw(choices: Choices, name: str = "wf") -> Sketch:
    """Draw a graph of at most 8 nodes, and graphs inside of them."""
    return _Drawing(choices, name, 0).sketch()


# --- building ---------------------------------------------------------------------------------------------------------


class Ground:
    """What nodes do beside what they say. This one does nothing but count; a world's takes time, and looks."""

    due = 4e9
    """When timers are due, in seconds since the epoch."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        """By the key of a step or a call."""
        self.entered: list[str] = []
        """The paths of the runs of nodes whose logic was called, in order."""
        self.attempted: list[tuple[str, int]] = []

    async def enter(self, ctx: InvocationContext) -> None:
        """The logic of a node begins."""
        self.entered.append(ctx._path)
        self.attempted.append((ctx._path, ctx.attempt_count))

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
    return f"{name}({crc32(_told(value).encode()) % 10_000})"


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return repr([(key, _told(each)) for key, each in value.items()])
    return repr(value)


def build(sketch: Sketch, ground: Ground) -> Workflow:
    """The workflow of a sketch, as a process makes it."""
    nodes = {draft.name: _node(draft, ground) for draft in sketch.drafts}
    ends: dict[str, Any] = {**nodes, "START": START, "END": END}
    edges = [Edge(ends[source], ends[target], route) for source, target, route in sketch.arcs()]
    last = sketch.drafts[-1].name
    return Workflow(name=sketch.name, edges=edges, output=nodes[last], max_concurrency=sketch.limit)


def _node(draft: Draft, ground: Ground) -> Any:
    if draft.kind == "join":
        return JoinNode(name=draft.name)
    if draft.kind == "agent":
        return _agent(draft.name, ground)
    if draft.inner is not None:
        return build(draft.inner, ground)
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

        return node(yields, name=draft.name)

    async def logic(node_input: Any, ctx: InvocationContext) -> Any:
        await ground.enter(ctx)
        return await _LOGIC[draft.kind](draft, ground, node_input, ctx)

    return node(logic, name=draft.name, retry=retry)


WORD = {"type": "string", "pattern": "."}


def _agent(name: str, ground: Ground) -> LlmAgent:
    """An agent that calls a tool twice at once, and then answers."""

    def answer(request: LlmRequest) -> Any:
        said = sum(content.role == "model" for content in request.contents)
        return [[call("note", what="a"), call("note", what="b")], f"{name} has noted"][said]

    async def note(what: str, tool_context: ToolContext) -> str:
        await ground.effect(tool_context.function_call_id, tool_context.invocation_id)
        return f"noted {what}"

    return LlmAgent(
        name=name, model=ScriptedLlm(answer), tools=[FunctionTool(note, on_interrupted="rerun")], output_key=name
    )


async def _act(ctx: InvocationContext, ground: Ground, what: str) -> str:
    async def work(what: str) -> str:
        await ground.effect(ctx.idempotency_key, ctx.invocation_id)
        return what

    return str(await ctx.step("act", work, what))


async def _says(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    ctx.state[draft.name] = mark(draft.name, given)
    return mark(draft.name, given)


async def _acts(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    await ctx.emit(Event(message=f"{draft.name} acts"))
    done = await _act(ctx, ground, "once") + await _act(ctx, ground, "twice")
    ctx.state[draft.name] = done
    return mark(draft.name, [given if not isinstance(given, Content) else given.text, done])


async def _maps(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    async def item(node_input: int, ctx: InvocationContext) -> str:
        ctx.state.add(f"{draft.name} items", node_input)
        return await _act(ctx, ground, f"item {node_input}")

    items = list(range(draft.number))
    if draft.is_list:
        found = await ctx.run_node(node(item, parallel_worker=True), items)
    else:
        found = await ctx.map(item, items, max_concurrency=2)
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
    await _act(ctx, ground, "try")
    ctx.state[draft.name] = ctx.attempt_count
    if ctx.attempt_count < draft.number:
        raise ValueError(f"{draft.name} {ctx.attempt_count}")
    return mark(draft.name, given)


async def _fails(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    await ctx.emit(Event(message=f"{draft.name} tries"))
    ctx.state[draft.name] = "never written"
    raise ValueError(f"{draft.name} {ctx.attempt_count}")


async def _parent(draft: Draft, ground: Ground, given: Any, ctx: InvocationContext) -> Any:
    async def child(node_input: str, ctx: InvocationContext) -> str:
        return await _act(ctx, ground, node_input)

    told = [await ctx.run_node(child, "x"), await ctx.run_node(_agent("helper", ground), "help")]
    expect(told == ["x", "helper has noted"], f"a node and an agent have come to {told}")
    found: dict[str, Any] = {}

    async def ask(what: str) -> None:
        found[what] = await ctx.run_node(child, what)

    async with trio.open_nursery() as nursery:
        for what in ("left", "right"):
            nursery.start_soon(ask, what)
    expect(found == {"left": "left", "right": "right"}, f"nodes beside each other have come to {found}")
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
    "parent": _parent, "rounds": _rounds, "routes": _routes,
}


# --- what is true of a log --------------------------------------------------------------------------------------------


def outcomes_of(log: Log) -> dict[str, Event]:
    """The events that runs of nodes have ended with, by their paths; a run ends once."""
    found: dict[str, Event] = {}
    for event in log:
        path = event.actions.replay.ended
        if path is not None:
            expect(path not in found, f"the run {path} has ended twice")
            found[path] = event
    return found


def folded(sketch: Sketch, path: str, value: Any, log: Log) -> Plan:
    """The plan of the workflow on *path* that follows from the log."""
    plan = build(sketch, Ground())._graph.begin(value)
    for event in log:
        above, _, run_id = (event.actions.replay.ended or "").rpartition("/")
        if above == path:
            plan = plan.ended(run_id, outcome_of(event, _run(plan, run_id).input))
    return plan


def _run(plan: Plan, run_id: str) -> NodeRun:
    found = [run for run in plan.ready if run.id == run_id]
    expect(len(found) == 1, f"{run_id} has ended, and {plan.ready} are ready")
    return found[0]


def check_graph_log(sketch: Sketch, log: Log, *, is_over: bool) -> None:
    """
    Check the events of one invocation of a workflow; *is_over* if it has come to its end.

    What is expected follows from the sketch, and not from the plans of the package.
    """
    outcomes_of(log)
    notes = [event.actions.replay.attempt for event in log if event.actions.replay.attempt is not None]
    attempts = [(note["run"], note["number"]) for note in notes]
    expect(len(attempts) == len(set(attempts)), f"an attempt is noted twice: {attempts}")
    _Checking(sketch, f"run/{sketch.name}", log, is_over).check(log[0].content)


class _Checking:
    """Checks what one workflow has left in a log."""

    def __init__(self, sketch: Sketch, path: str, log: Log, is_over: bool) -> None:
        self._sketch = sketch
        self._path = path
        self._log = log
        self._is_over = is_over
        self._drafts = {draft.name: draft for draft in sketch.drafts}
        self._given: dict[str, list[Any]] = defaultdict(list)  # what each node is to be given, run by run
        self._came: dict[tuple[str, str], list[Any]] = defaultdict(list)  # what waits in joins, by predecessor
        self._ended: Counter[str] = Counter()

    def check(self, value: Any) -> None:
        for target in self._sketch.start:
            self._deliver("START", target, value)
        for event in self._log:
            above, _, run_id = (event.actions.replay.ended or "").rpartition("/")
            if above == self._path:
                self._check_outcome(run_id, event)
        if self._is_over:
            left = {key: values for key, values in self._came.items() if values}
            expect(not left, f"what has come to joins does not go on: {left}")
            for name, given in self._given.items():
                expect(self._ended[name] == len(given), f"{name} was to run {len(given)} times: {self._ended[name]}")
        folded(self._sketch, self._path, value, self._log)

    def _deliver(self, source: str, target: str, value: Any) -> None:
        if target == "END":
            return
        if self._drafts[target].kind == "join":
            self._came[target, source].append(value)
        else:
            self._given[target].append(value)

    def _check_outcome(self, run_id: str, event: Event) -> None:
        name, _, number = run_id.partition("@")
        draft = self._drafts[name]
        self._ended[name] += 1
        if draft.kind == "join":
            given: Any = self._joined(name, event)
        else:
            expect(int(number) <= len(self._given[name]), f"{run_id} has ended, and nothing has led to it")
            given = self._given[name][int(number) - 1]
            self._check_own(draft, run_id, given, event)
        for target in taken(draft, event):
            self._deliver(name, target, _handed_on(event, given))

    def _joined(self, name: str, event: Event) -> Any:
        """What a join has given: the first of each predecessor that could come, in order of declaration."""
        predecessors = self._sketch.predecessors(name)
        expected = {each: self._came[name, each].pop(0) for each in predecessors if self._came[name, each]}
        expect(
            isinstance(event.output, dict) and _told(event.output) == _told(_shown(expected)),
            f"the join {name} was to give {expected}, and gives {event.output}",
        )
        return event.output

    def _check_own(self, draft: Draft, run_id: str, given: Any, event: Event) -> None:
        written = set(event.actions.state_delta)
        if draft.kind in WRITES:
            expect(draft.name in written, f"{run_id} has ended without what it has written: {event}")
        if draft.kind == "fails":
            expect(draft.name not in written, f"{run_id} has failed, and what it has written stays: {event}")
            expect(event.error_code == "ValueError", f"{run_id} has failed, and has ended with {event}")
        if draft.kind == "says":
            expect(event.output == mark(draft.name, given), f"{run_id} was given {given!r}, and gives {event.output}")
        if draft.kind in ("asks", "yields"):
            self._check_answer(draft, run_id, event)
        if draft.inner is not None:
            path = f"{self._path}/{run_id}/{draft.inner.name}"
            _Checking(draft.inner, path, self._log, True).check(given)


    def _check_answer(self, draft: Draft, run_id: str, event: Event) -> None:
        """What was asked in a run was asked once, and what was answered is what it gives."""
        said = [each for each in self._log if each.branch == event.branch]
        asked = [one.id for each in said for one in each.get_function_calls()]
        expect(len(asked) == 1, f"{run_id} was to ask once, and has asked {asked}")
        [answer] = [one.response["result"] for each in said for one in each.get_function_responses()]
        given = event.output if draft.kind == "yields" else event.output[1]
        expect(given == answer, f"{run_id} was answered {answer!r}, and gives {given!r}")


WRITES = {"says", "acts", "maps", "asks", "waits", "retries", "agent", "parent", "rounds", "routes"}


def taken(draft: Draft, event: Event) -> list[str]:
    """Where the outcome of a node leads, each target once."""
    if event.error_code is not None:
        return list(dict.fromkeys(target for route, target in draft.to if route is FAILED))
    found = event.actions.route
    routes = [] if found is None else list(found) if isinstance(found, (list, tuple)) else [found]
    keys = {(type(route), route) for route in routes}
    matched = [route for route, _ in draft.to if (type(route), route) in keys]
    return list(
        dict.fromkeys(
            target
            for route, target in draft.to
            if route is None or (type(route), route) in keys or (route is DEFAULT_ROUTE and not matched)
        )
    )


def _handed_on(event: Event, given: Any) -> Any:
    if event.error_code is not None:
        told = given.text if isinstance(given, Content) else given
        return {"type": event.error_code, "message": event.error_message, "input": told}
    if event.node_info.message_as_output:
        return event.text
    return given if event.output is None and event.actions.route is not None else event.output


def _shown(value: dict[str, Any]) -> dict[str, Any]:
    """Values as a join gives them on: the user's words are text there."""
    return {key: each.text if isinstance(each, Content) else each for key, each in value.items()}
