"""
What users write as edges, as nodes and arcs.

An item of `edges=` is an `Edge`, or a chain: a tuple or list of elements, from each of which edges lead to the next.
An element is a node, a tuple or list of nodes (the chain fans out to them; between two such groups all pairs are
edges), or a map `{route: node, group of nodes, or END}`, behind which the chain goes on from all its targets.

This file knows nothing of agents and functions: `name_of`, which the caller gives, says the name of what stands where
a node is expected, and refuses what can be none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import attrs

from .._arguments import refuse_unknown
from .._json import brief, shown
from ..errors import WorkflowConfigurationError
from ._arcs import DEFAULT_ROUTE, END, FAILED, START, Arc, Marker, Route, end_of, told

__all__ = ["Edge", "NameOf", "read_edges"]

NameOf: TypeAlias = Callable[[Any], str]
"""Returns the name of a node; raises a WorkflowConfigurationError for what is none."""

_ROUTES = (DEFAULT_ROUTE, FAILED)


@refuse_unknown
@attrs.frozen
class Edge:
    """
    One edge of a workflow.

    Args:
        from_node: A node, or START.
        to_node: A node, or END.
        route: When the edge is taken: None: always; a bool, int or string: if the node ends with this route; a list
            of them: with one of these; DEFAULT_ROUTE: with no route that another edge has; FAILED: if its last
            attempt has failed.
    """

    from_node: Any
    to_node: Any
    route: Route | Marker | Sequence[Route] | None = None


class _Stage(NamedTuple):
    """One element of a chain: its ends, each with the routes that lead to it (None: the edge has no route)."""

    ends: list[tuple[str | Marker, Any]]
    is_map: bool


def read_edges(items: object, name_of: NameOf, *, name: str = "workflow") -> tuple[tuple[str, ...], tuple[Arc, ...]]:
    """
    Return the names of the nodes, in the order in which they first stand in *items*, and the arcs, in order.

    What is written twice is there twice: the graph refuses it.

    Raises:
        WorkflowConfigurationError: An item is no edge and no chain; the message says which one.
    """
    if not isinstance(items, (list, tuple)):
        msg = f"workflow {name!r}: expected edges to be a list of chains and Edges, found {shown(items)}"
        raise WorkflowConfigurationError(msg)
    arcs: list[Arc] = []
    names: dict[str, None] = {}

    def named(end: object, where: str) -> str | Marker:
        end = end_of(end)
        if isinstance(end, Marker):
            if end in _ROUTES:
                msg = f"{where}: {end} is a route and no node; write it as a key: {{{end}: node}}"
                raise WorkflowConfigurationError(msg)
            return end
        found = name_of(end)
        names[found] = None
        return found

    for index, item in enumerate(items):
        where = f"workflow {name!r}, edges[{index}]"
        if isinstance(item, Edge):
            arcs.append(Arc.of(named(item.from_node, where), named(item.to_node, where), item.route))
        elif isinstance(item, (list, tuple)):
            arcs += _chain([_stage(each, named, f"{where}[{at}]") for at, each in enumerate(item)], where)
        else:
            msg = f"{where}: expected an Edge, or a chain such as (START, node), found {shown(item)}"
            raise WorkflowConfigurationError(msg)
    return tuple(names), tuple(arcs)


def _chain(stages: list[_Stage], where: str) -> list[Arc]:
    if len(stages) < 2:
        msg = f"{where}: expected a chain of two elements at least, such as (START, node), found {len(stages)}"
        raise WorkflowConfigurationError(msg)
    if stages[0].is_map:
        msg = f"{where}: a chain begins with a node, found a map of routes; put the node before it that gives the route"
        raise WorkflowConfigurationError(msg)
    arcs: list[Arc] = []
    for at, (before, after) in enumerate(pairwise(stages)):
        if before.is_map and after.is_map:
            msg = f"{where}[{at + 1}]: a node stands between two maps of routes; put the one there that gives the route"
            raise WorkflowConfigurationError(msg)
        # After a map the chain goes on from its targets, each once; a branch that ends there does not go on.
        sources = dict.fromkeys(end for end, _ in before.ends if not (before.is_map and end is END))
        if not sources:
            msg = f"{where}[{at + 1}]: every route before it leads to END, so nothing comes here; leave it out"
            raise WorkflowConfigurationError(msg)
        arcs += [Arc.of(source, target, route) for source in sources for target, route in after.ends]
    return arcs


def _stage(element: object, named: Callable[[object, str], str | Marker], where: str) -> _Stage:
    if isinstance(element, Mapping):
        return _Stage(_routed(element, named, where), True)
    return _Stage([(end, None) for end in _group(element, named, where)], False)


def _group(element: object, named: Callable[[object, str], str | Marker], where: str) -> Iterable[str | Marker]:
    """Return the ends of a node or a group of nodes."""
    if not isinstance(element, (list, tuple)):
        return [named(element, where)]
    if not element:
        raise WorkflowConfigurationError(f"{where}: expected a group of nodes, found an empty one; leave it out")
    for each in element:
        if isinstance(each, (list, tuple, Mapping)):
            msg = f"{where}: expected nodes in a group, found {brief(each)}; write a chain of its own for it"
            raise WorkflowConfigurationError(msg)
    return [named(each, where) for each in element]


def _routed(
    routes: Mapping[Any, object], named: Callable[[object, str], str | Marker], where: str
) -> list[tuple[str | Marker, Any]]:
    """Return the targets of a map of routes; one that several routes lead to has all of them, in one edge."""
    if not routes:
        raise WorkflowConfigurationError(f"{where}: expected a map of routes, found an empty one; leave it out")
    ends: list[tuple[str | Marker, Any]] = []
    for route, targets in routes.items():
        if isinstance(route, tuple) or route is None:
            msg = f"{where}: expected a route as a key, found {shown(route)}; write a key for each, or DEFAULT_ROUTE"
            raise WorkflowConfigurationError(msg)
        for target in _group(targets, named, where):
            if target is START:
                raise WorkflowConfigurationError(f"{where}: expected a node or END, found {told(target)}")
            ends.append((target, route))
    return ends
