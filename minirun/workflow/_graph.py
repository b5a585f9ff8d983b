"""
A workflow's position is a fold of the outcomes of its node runs.

A `Graph` is nodes and arcs. `graph.begin(input)` is the first `Plan`, and `plan.ended(run_id, outcome)` the next one,
once the outcome is stored. The plan is a value: no clock, no I/O, nothing but the outcomes decides it, so folding what
a log has recorded, in its order, gives the plan that was live when the process died.

The rules of this file:

* An outcome triggers the targets of the arcs it takes, in order of declaration, each target once. A trigger makes a
  run: its number counts the runs of the node, its serial those of the graph.
* A node runs at most once at a time. Further triggers queue; the next one is ready when the run before it has ended.
* A run gets what the run that triggered it has said. Without an output, but with a route, it hands its input on.
* A join keeps what comes in one queue for each predecessor. It fires when each has something, or when those that have
  nothing can come no more (`_joins`). So every value that comes to a join goes on, and no join waits for ever.
* A run that leads nowhere is terminal. The one output of a terminal run is the output of the workflow.

A plan has no history: its size is bounded by the nodes and by what is queued, however often a loop went round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import attrs

from .._json import JSON, FrozenDict, brief
from ..errors import ReplayError, RouteError, SecondOutputError, WorkflowError
from ._arcs import DEFAULT_ROUTE, END, FAILED, START, Arc, GraphNode, Marker, Route, route_key
from ._checks import check_graph
from ._joins import Joins

__all__ = [
    "DEFAULT_ROUTE", "END", "FAILED", "START", "Arc", "Graph", "GraphNode", "Marker", "NodeRun", "Outcome", "Plan",
    "Route",
]


@attrs.frozen
class Outcome:
    """
    What a run of a node has ended with.

    Args:
        output: The value it gave; it means something if `has_output`, and then None is a value as any other.
        has_output: False: it gave no value at all.
        route: Where to go on: a route, or a list or tuple of routes, any of which may match.
        failed: `{"type", "message", "input"}` if its last attempt has failed and the node has a FAILED arc.
    """

    output: JSON = None
    has_output: bool = False
    route: Route | tuple[Route, ...] | None = None
    failed: Mapping[str, JSON] | None = None


@attrs.frozen
class NodeRun:
    """
    One run of a node, from the trigger on.

    Args:
        name: The node.
        number: Counts the runs of this node, from 1, in the order of the triggers.
        input: What the node gets; of a join `{predecessor: value}` in order of declaration, without the missing ones.
        serial: Counts the runs of the graph, from 1, in the order of the triggers.
        missing: Of a join: the predecessors that could come no more.
        by: The ids of the runs that triggered it; none for START.
    """

    name: str
    number: int
    input: JSON
    serial: int
    missing: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The run's id in its workflow, such as `lookup@2`."""
        return f"{self.name}@{self.number}"


def _routes(outcome: Outcome) -> tuple[Route, ...]:
    """The routes of an outcome; an empty list is none."""
    route = outcome.route
    return tuple(route) if isinstance(route, (list, tuple)) else () if route is None else (route,)


class _Exits:
    """The arcs from one node, by what takes them; each is known by its place among them."""

    __slots__ = ("_always", "_by_one", "by_route", "default", "failed", "plain", "targets")

    def __init__(self, arcs: Iterable[Arc]) -> None:
        self.targets: list[str | Marker] = []
        self.plain: list[int] = []
        self.default: list[int] = []
        self.failed: list[int] = []
        self.by_route: dict[tuple[type, Route], list[int]] = {}
        for place, arc in enumerate(arcs):
            self.targets.append(arc.target)
            if arc.kind == "routed":
                for route in arc.routes or ():
                    self.by_route.setdefault(route_key(route), []).append(place)
            else:
                kinds = {"plain": self.plain, "default": self.default, "failed": self.failed}
                kinds[arc.kind].append(place)
        # What most outcomes take: no route of several.
        self._always = self._at(self.plain)
        self._by_one = {key: self._at(sorted({*self.plain, *places})) for key, places in self.by_route.items()}

    def taken(self, outcome: Outcome) -> list[str | Marker] | None:
        """Return the targets of an outcome, each once, in order of declaration; None if its route matches nothing."""
        if outcome.failed is not None:
            return self._at(self.failed) or None
        if not self.by_route and not self.default:
            return self._always
        routes = _routes(outcome)
        if len(routes) == 1 and (taken := self._by_one.get(route_key(routes[0]))) is not None:
            return taken
        matched = [place for each in routes for place in self.by_route.get(route_key(each), ())] or self.default
        if not matched and (routes or not self.plain):
            return None
        return self._at(sorted({*self.plain, *matched}))

    def _at(self, places: Iterable[int]) -> list[str | Marker]:
        return list(dict.fromkeys(self.targets[place] for place in places))

    @property
    def routes(self) -> tuple[Route | Marker, ...]:
        """The routes there are, in order of declaration."""
        markers = ((self.default, DEFAULT_ROUTE), (self.failed, FAILED))
        return (*(route for _, route in self.by_route), *(marker for places, marker in markers if places))


@attrs.frozen
class Graph:
    """
    Nodes and the arcs between them, checked. Made by `Graph.of`; a value.

    Args:
        nodes: In order of declaration.
        arcs: In order of declaration, which is the order in which targets are triggered.
        output: The node whose last output is the workflow's; None: the one output of a terminal run is.
        name: The workflow, for messages.
    """

    nodes: tuple[GraphNode, ...]
    arcs: tuple[Arc, ...]
    output: str | None = None
    name: str = "workflow"
    _exits: Mapping[str, _Exits] = attrs.field(init=False, eq=False, repr=False)
    _joins: Joins = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_graph(self.nodes, self.arcs, self.output, self.name)
        arcs: dict[str | Marker, list[Arc]] = {}
        for arc in self.arcs:
            arcs.setdefault(arc.source, []).append(arc)
        object.__setattr__(self, "_exits", {node.name: _Exits(arcs.get(node.name, ())) for node in self.nodes})
        object.__setattr__(self, "_joins", Joins(self.nodes, self.arcs))

    @classmethod
    def of(
        cls,
        nodes: Iterable[GraphNode],
        arcs: Iterable[Arc],
        *,
        output: str | None = None,
        name: str = "workflow",
    ) -> Graph:
        """
        Return the graph of *nodes* and *arcs*.

        Raises:
            WorkflowConfigurationError: It could not run, or not to an end; the message names what is wrong.
        """
        return cls(tuple(nodes), tuple(arcs), output, name)

    def begin(self, input: JSON) -> Plan:
        """Return the first plan: what START leads to is ready, and gets *input*, which is frozen JSON."""
        fold = _Fold(Plan(self))
        for arc in self.arcs:
            if arc.source is START:
                fold.deliver(arc.target, START.name, input, None)
        return fold.plan()

    def routes_of(self, name: str) -> tuple[Route | Marker, ...]:
        """Return the routes that lead on from a node, DEFAULT_ROUTE and FAILED behind the others."""
        return self._exits[name].routes

    def takes_failure_of(self, name: str) -> bool:
        """Return whether a FAILED arc leads on from a node."""
        return bool(self._exits[name].failed)


class _Arrival(NamedTuple):
    """A value that waits in a join."""

    value: JSON
    by: str | None  # the id of the run that gave it; None for START


@attrs.frozen
class _Held:
    """What waits in one join: a queue for each predecessor that has something, and the same as bits."""

    queues: Mapping[str, tuple[_Arrival, ...]]
    have: int


@attrs.frozen
class Plan:
    """
    What may run now, what waits, and what the workflow has given so far. A value: `ended` gives another one.

    Args:
        graph: The graph whose plan it is.
        ready: What may run now, or runs, in the order of the triggers: at most one run for each node.
        added: Those of `ready` that the fold before this plan had not.
        output: The workflow's output as far as it is known; it means something if `has_output`.
        has_output: Whether a run has given the workflow's output.
        output_by: The id of that run.
    """

    graph: Graph = attrs.field(repr=False)
    added: tuple[NodeRun, ...] = ()
    output: JSON = None
    has_output: bool = False
    output_by: str | None = None
    _ready: Mapping[str, NodeRun] = attrs.field(factory=dict)  # by id
    _queued: Mapping[str, tuple[NodeRun, ...]] = attrs.field(factory=dict)  # behind the ready run of the name
    _held: Mapping[str, _Held] = attrs.field(factory=dict)  # by join
    _numbers: Mapping[str, int] = attrs.field(factory=dict)  # the runs so far, by name
    _serial: int = 0
    _active: int = 0  # the nodes with a ready run, as bits

    @property
    def ready(self) -> tuple[NodeRun, ...]:
        return tuple(sorted(self._ready.values(), key=_serial_of))

    @property
    def queued(self) -> tuple[NodeRun, ...]:
        """What will be ready when the run before it at its node has ended, in the order of the triggers."""
        return tuple(sorted((run for runs in self._queued.values() for run in runs), key=_serial_of))

    @property
    def waiting(self) -> dict[str, tuple[str, ...]]:
        """The joins that have something and wait, in order of declaration, each with the predecessors it lacks."""
        return self.graph._joins.lacking({join: held.have for join, held in self._held.items()})

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to run."""
        return not self._ready

    def check(self, run: NodeRun, outcome: Outcome) -> None:
        """
        Refuse an outcome that this plan could not fold; call it before the outcome is stored.

        Between the check, the storing and the fold no other outcome may be folded.

        Raises:
            RouteError: The route matches no arc, and there is no DEFAULT_ROUTE.
            SecondOutputError: It would be the second output of the workflow.
            WorkflowError: It is a failure that no FAILED arc takes.
        """
        self._targets(run, outcome)

    def is_terminal(self, run: NodeRun, outcome: Outcome) -> bool:
        """
        Whether the outcome is the workflow's output.

        With `Graph.output` this holds for each output of that node, and the last one stands. Without, for that of a run
        that leads nowhere. None is no output of a workflow, and neither is a failure.
        """
        targets = self.graph._exits[run.name].taken(outcome)
        return targets is not None and self._is_output(run, outcome, targets)

    def ended(self, run_id: str, outcome: Outcome) -> Plan:
        """
        Return the plan after a run of `ready` has ended with *outcome*.

        Raises:
            ReplayError: The graph does not expect it: no such run is ready, or `check` would refuse the outcome.
        """
        run = self._ready.get(run_id)
        if run is None:
            ready = ", ".join(each.id for each in self.ready) or "nothing, because the workflow is over"
            msg = (
                f"workflow {self.graph.name!r}: the outcome of {run_id!r} is recorded, but its graph expects one of: "
                f"{ready}; resume it with the graph it was begun with"
            )
            raise ReplayError(msg)
        try:
            targets = self._targets(run, outcome)
        except WorkflowError as error:
            msg = (
                f"workflow {self.graph.name!r}: the outcome of {run_id!r} is recorded, but its graph refuses it; "
                f"resume it with the graph it was begun with: {error}"
            )
            raise ReplayError(msg) from error
        fold = _Fold(self)
        if self._is_output(run, outcome, targets):
            fold.output, fold.output_by = outcome.output, run_id
        fold.end(run)
        value = _handed_on(run, outcome)
        for target in targets:
            fold.deliver(target, run.name, value, run_id)
        return fold.plan()

    def _targets(self, run: NodeRun, outcome: Outcome) -> list[str | Marker]:
        """Where the outcome leads, or what `check` raises."""
        targets = self.graph._exits[run.name].taken(outcome)
        if targets is None:
            raise self._nowhere(run, outcome)
        if self.graph.output is None and self.has_output and self._is_output(run, outcome, targets):
            raise self.second_output(self.output_by, run)
        return targets

    def second_output(self, first: str | None, run: NodeRun) -> SecondOutputError:
        """Return what to raise where the run of this id gives the output, or is about to, and now another one."""
        return SecondOutputError(
            f"workflow {self.graph.name!r}: expected one output, but {first!r} has given one, and now {run.id!r} gives "
            "another; lead both into one node, or say Workflow(output=...) whose output counts"
        )

    def find(self, run_id: str) -> NodeRun | None:
        """Return the run of this id, if it is ready."""
        return self._ready.get(run_id)

    def _is_output(self, run: NodeRun, outcome: Outcome, targets: list[str | Marker]) -> bool:
        if not outcome.has_output or outcome.output is None or outcome.failed is not None:
            return False
        if self.graph.output is not None:
            return run.name == self.graph.output
        return all(target is END for target in targets)

    def _nowhere(self, run: NodeRun, outcome: Outcome) -> WorkflowError:
        where = f"workflow {self.graph.name!r}: {run.id!r}"
        if outcome.failed is not None:
            return WorkflowError(f"{where} has failed, and no edge with route=FAILED leads on from it")
        routes = ", ".join(map(repr, self.graph.routes_of(run.name)))
        found = f"the route {brief(outcome.route)}" if _routes(outcome) else "no route"
        return RouteError(
            f"{where}: expected one of the routes {routes}; found {found}; give one of them (type and value count), "
            f"or add an edge for it, or DEFAULT_ROUTE to a node or to END"
        )


def _serial_of(run: NodeRun) -> int:
    return run.serial


def _handed_on(run: NodeRun, outcome: Outcome) -> JSON:
    if outcome.failed is not None:
        return outcome.failed
    if outcome.has_output:
        return outcome.output
    return run.input if _routes(outcome) else None


class _Fold:
    """A plan in the making: copies of what changes, so that the plan before stays as it was."""

    def __init__(self, plan: Plan) -> None:
        self._graph = plan.graph
        self.output, self.output_by = plan.output, plan.output_by
        self._ready = dict(plan._ready)
        self._queued = dict(plan._queued)
        self._held = dict(plan._held)
        self._numbers = dict(plan._numbers)
        self._serial = plan._serial
        self._active = plan._active
        self._added: list[NodeRun] = []

    def end(self, run: NodeRun) -> None:
        """Take a run away; the next one of its node becomes ready."""
        del self._ready[run.id]
        self._active &= ~self._graph._joins.bit(run.name)
        queue = self._queued.pop(run.name, ())
        if queue:
            self._make_ready(queue[0])
            if queue[1:]:
                self._queued[run.name] = queue[1:]

    def deliver(self, target: str | Marker, source: str, value: JSON, by: str | None) -> None:
        """Give a value to a node, which is triggered, or to a join, which keeps it; to END nothing comes."""
        if isinstance(target, Marker):
            return
        if target not in self._graph._joins:
            self._trigger(target, value, () if by is None else (by,))
            return
        held = self._held.get(target, _Held({}, 0))
        queue = (*held.queues.get(source, ()), _Arrival(value, by))
        self._held[target] = _Held({**held.queues, source: queue}, held.have | self._graph._joins.bit(source))

    def plan(self) -> Plan:
        """Let the joins fire that need not wait, and return the plan."""
        while self._held and (join := self._graph._joins.first_to_fire(self._active, self._have)) is not None:
            self._fire(join)
        return Plan(
            self._graph,
            tuple(sorted(self._added, key=_serial_of)),
            self.output,
            self.output_by is not None,
            self.output_by,
            self._ready,
            self._queued,
            self._held,
            self._numbers,
            self._serial,
            self._active,
        )

    @property
    def _have(self) -> Mapping[str, int]:
        return {join: held.have for join, held in self._held.items()}

    def _trigger(self, name: str, input: JSON, by: tuple[str, ...], missing: tuple[str, ...] = ()) -> None:
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        self._serial += 1
        run = NodeRun(name, number, input, self._serial, missing, by)
        if self._active & self._graph._joins.bit(name):
            self._queued[name] = (*self._queued.get(name, ()), run)
        else:
            self._make_ready(run)

    def _make_ready(self, run: NodeRun) -> None:
        self._ready[run.id] = run
        self._active |= self._graph._joins.bit(run.name)
        self._added.append(run)

    def _fire(self, join: str) -> None:
        """Trigger a join with the first value of each predecessor that has one."""
        held = self._held.pop(join)
        predecessors = self._graph._joins.predecessors(join)
        come = {name: held.queues[name][0] for name in predecessors if name in held.queues}
        left = {name: queue[1:] for name, queue in held.queues.items() if queue[1:]}
        if left:
            have = 0
            for name in left:
                have |= self._graph._joins.bit(name)
            self._held[join] = _Held(left, have)
        # Not `freeze`, which refuses what is nested too deeply: that must not come up here, when the values are
        # stored, but when the join gives its output.
        self._trigger(
            join,
            FrozenDict({name: arrival.value for name, arrival in come.items()}),
            tuple(arrival.by for arrival in come.values() if arrival.by is not None),
            tuple(name for name in predecessors if name not in come),
        )
