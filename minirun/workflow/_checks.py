"""
What a graph is refused for, before anything runs.

Each refusal names the nodes, and says what to write instead. Nothing here knows when a node ends; what is refused would
fail, wait, or go round for ever whatever its nodes give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from .._json import check_id
from ..errors import InvalidValueError, WorkflowConfigurationError
from ._arcs import END, START, Arc, GraphNode, Marker, route_key, told

__all__ = ["check_graph"]

# Ids are `name@number`, paths have "/" between ids, and branches "." and "#".
_RESERVED_CHARS = frozenset("@/.#")


def check_graph(nodes: Sequence[GraphNode], arcs: Sequence[Arc], output: str | None, name: str) -> None:
    """
    Check that a graph can run, and to an end.

    Raises:
        WorkflowConfigurationError: It cannot; the message begins with the name of the workflow.
    """
    where = f"workflow {name!r}"
    by_name = _by_name(nodes, where)
    _check_ends(arcs, by_name, where)
    _check_repeated(arcs, where)
    _check_reached(nodes, arcs, where)
    _check_joins(nodes, arcs, where)
    always = _always(arcs)
    _check_cycles(always, where)
    if output is not None:
        if output not in by_name:
            raise _refused(where, f"expected output= to name one of its nodes, {_listed(by_name)}; found {output!r}")
    else:
        _check_terminals(nodes, arcs, always, where)


def _refused(where: str, problem: str) -> WorkflowConfigurationError:
    return WorkflowConfigurationError(f"{where}: {problem}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _by_name(nodes: Iterable[GraphNode], where: str) -> dict[str, GraphNode]:
    found: dict[str, GraphNode] = {}
    for node in nodes:
        try:
            check_id("name", node.name)
        except InvalidValueError as error:
            raise _refused(where, f"a node cannot have this {error}") from error
        if _RESERVED_CHARS & {*node.name} or node.name in (START.name, END.name):
            problem = (
                f"the name {node.name!r} cannot be a node's: '@', '/', '.' and '#' build ids of runs, "
                f"START and END are places of every graph; name the node otherwise"
            )
            raise _refused(where, problem)
        if node.name in found:
            raise _refused(where, f"two nodes have the name {node.name!r}; give one of them another with name=")
        if node.require_all and not node.is_join:
            raise _refused(where, f"require_all has no effect on {node.name!r}, which is no join; use a JoinNode")
        found[node.name] = node
    return found


def _check_ends(arcs: Sequence[Arc], by_name: Mapping[str, GraphNode], where: str) -> None:
    if not arcs:
        raise _refused(where, "expected at least one edge, found none; write edges=[(START, node)]")
    for arc in arcs:
        edge = f"edge from {told(arc.source)} to {told(arc.target)}"
        if (isinstance(arc.source, Marker) and arc.source is not START) or arc.source == END.name:
            raise _refused(where, f"{edge}: nothing leads on from {told(arc.source)}; begin the edge at a node")
        if (isinstance(arc.target, Marker) and arc.target is not END) or arc.target == START.name:
            raise _refused(where, f"{edge}: expected a node or END as its end; to run again, lead back to a node")
        if arc.source is START and arc.target is END:
            raise _refused(where, f"{edge}: nothing would run; put a node between them")
        if arc.source is START and arc.kind != "plain":
            raise _refused(where, f"{edge}: START gives no route; put a node between them that does")
        for end in (arc.source, arc.target):
            if isinstance(end, str) and end not in by_name:
                raise _refused(where, f"{edge}: {end!r} is none of its nodes, which are {_listed(by_name)}")


def _check_repeated(arcs: Sequence[Arc], where: str) -> None:
    """Refuse an arc without effect: one that is there already, or beside one that is always taken."""
    seen: dict[tuple[str | Marker, str | Marker], dict[object, Arc]] = {}
    for arc in arcs:
        between = seen.setdefault((arc.source, arc.target), {})
        keys: list[tuple[object, object]] = [(arc.kind, None)]
        if arc.kind == "routed":
            keys = [(route_key(route), route) for route in arc.routes or ()]
        edge = f"the edge from {told(arc.source)} to {told(arc.target)}"
        for key, route in keys:
            if key in between:
                which = edge if route is None else f"{edge} for the route {route!r}"
                raise _refused(where, f"{which} is written twice; a target is triggered once, so leave one out")
            between[key] = arc
        conditional = [each.kind for each in between.values() if each.kind in ("routed", "default")]
        if "plain" in between and conditional:
            problem = f"{edge} is always taken, so the one with a route beside it has no effect; leave one out"
            raise _refused(where, problem)


def _check_reached(nodes: Sequence[GraphNode], arcs: Sequence[Arc], where: str) -> None:
    reached = _closure({START}, _targets(arcs))
    if lost := [node.name for node in nodes if node.name not in reached]:
        raise _refused(where, f"nothing leads from START to {_listed(lost)}; add an edge to it, or leave it out")


def _check_joins(nodes: Sequence[GraphNode], arcs: Sequence[Arc], where: str) -> None:
    sources: dict[str | Marker, dict[str | Marker, None]] = {}
    for arc in arcs:
        sources.setdefault(arc.target, {})[arc.source] = None
    for node in nodes:
        if node.is_join and len(found := sources.get(node.name, {})) < 2:
            problem = (
                f"the join {node.name!r} has one predecessor, {', '.join(map(told, found))}, so there is nothing to "
                f"join; lead a second one to it, or leave it out"
            )
            raise _refused(where, problem)


def _check_cycles(always: Mapping[str | Marker, list[str | Marker]], where: str) -> None:
    """Refuse a cycle of arcs that are always taken: nothing in it could end it."""
    order: TopologicalSorter[str | Marker] = TopologicalSorter()
    for source, targets in always.items():
        for target in targets:
            order.add(target, source)
    try:
        order.prepare()
    except CycleError as error:
        cycle = " → ".join(map(str, error.args[1]))
        problem = f"the cycle {cycle} has no edge with a route, so it never ends; give one of its edges a route"
        raise _refused(where, problem) from None


def _check_terminals(
    nodes: Sequence[GraphNode], arcs: Sequence[Arc], always: Mapping[str | Marker, list[str | Marker]], where: str
) -> None:
    """Refuse two terminals that both run whatever their nodes say: each might give the output of the workflow."""
    certain = _closure({START}, always)
    goes_on = {arc.source for arc in arcs if arc.kind != "failed" and arc.target is not END}
    ends = [node.name for node in nodes if node.name in certain and node.name not in goes_on]
    if len(ends) > 1:
        problem = (
            f"{_listed(ends)} run side by side and nothing follows them, so it is open whose output is the workflow's; "
            f"lead them into a JoinNode, or say Workflow(output=...) whose output counts"
        )
        raise _refused(where, problem)


def _always(arcs: Sequence[Arc]) -> dict[str | Marker, list[str | Marker]]:
    """The targets that every outcome but a failure leads to: a default is one where no route stands beside it."""
    routed = {arc.source for arc in arcs if arc.kind == "routed"}
    return _targets(
        arc for arc in arcs if arc.kind == "plain" or (arc.kind == "default" and arc.source not in routed)
    )


def _targets(arcs: Iterable[Arc]) -> dict[str | Marker, list[str | Marker]]:
    targets: dict[str | Marker, list[str | Marker]] = {}
    for arc in arcs:
        targets.setdefault(arc.source, []).append(arc.target)
    return targets


def _closure(start: set[str | Marker], targets: Mapping[str | Marker, list[str | Marker]]) -> set[str | Marker]:
    found, todo = {*start}, [*start]
    while todo:
        for target in targets.get(todo.pop(), ()):
            if target not in found:
                found.add(target)
                todo.append(target)
    return found
