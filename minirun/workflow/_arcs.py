"""
What a graph is made of: nodes by name, and arcs between them.

START, END, DEFAULT_ROUTE and FAILED are values of their own and no strings, so that a node or a route of such a name
is not mistaken for them. There is one object of each; a copy or a pickle gives the same one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

import attrs

from .._json import shown
from ..errors import WorkflowConfigurationError

__all__ = [
    "DEFAULT_ROUTE", "END", "FAILED", "START", "Arc", "GraphNode", "Kind", "Marker", "Route", "end_of", "route_key",
    "told",
]

Route: TypeAlias = bool | int | str
"""What a node says of where to go on. Routes are equal if type and value are: `True` is not 1."""

Kind: TypeAlias = Literal["plain", "routed", "default", "failed"]
"""When an arc is taken: always, for one of its routes, if no route matches, or if the last attempt has failed."""

_T = TypeVar("_T")


class Marker:
    """One of the four values that stand for a place or a route of every graph."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name  # copies and pickles give the object of this name in this module


START = Marker("START")
"""Where a workflow begins. In edges the string `"START"` means the same."""

END = Marker("END")
"""Where a branch ends, although its node has other edges."""

DEFAULT_ROUTE = Marker("DEFAULT_ROUTE")
"""The route taken if a node ends without a route, or with one that no other edge of it has."""

FAILED = Marker("FAILED")
"""The route taken if the last attempt of a node has failed; the target gets `{"type", "message", "input"}`."""


@attrs.frozen
class GraphNode:
    """
    What a graph knows of a node.

    A join collects one value of each of its predecessors. With *require_all* it fails if one of them can come no more.
    """

    name: str
    is_join: bool = False
    require_all: bool = False


@attrs.frozen
class Arc:
    """One edge between two names. `routes` are those of a routed arc, None for others."""

    source: str | Marker
    target: str | Marker
    routes: tuple[Route, ...] | None = None
    kind: Kind = "plain"

    @classmethod
    def of(cls, source: str | Marker, target: str | Marker, route: object = None) -> Arc:
        """
        Return the arc of an edge that is written with *route*: None, a marker, a route, or a list or tuple of routes.

        Raises:
            WorkflowConfigurationError: The route cannot be one.
        """
        if route is None:
            return cls(source, target)
        if route is DEFAULT_ROUTE:
            return cls(source, target, None, "default")
        if route is FAILED:
            return cls(source, target, None, "failed")
        routes = tuple(route) if isinstance(route, (list, tuple)) else (route,)
        where = f"edge from {told(source)} to {told(target)}"
        if not routes:
            msg = f"{where}: expected a route, or None for an edge that is always taken; found an empty list"
            raise WorkflowConfigurationError(msg)
        return cls(source, target, tuple(_plain(each, where) for each in routes), "routed")


def _plain(route: object, where: str) -> Route:
    """Return a route as bool, int or str itself: what comes back from a log is no subclass."""
    if isinstance(route, Marker):
        msg = (
            f"{where}: {route} cannot stand in a list of routes, because nothing can match it and a route beside it; "
            f"write an edge of its own with route={route}"
        )
        raise WorkflowConfigurationError(msg)
    if isinstance(route, bool):
        return route
    if isinstance(route, int):
        return int(route)
    if isinstance(route, str):
        return str.__str__(route)
    msg = f"{where}: expected a route that is a bool, an int or a string, found {shown(route)}"
    raise WorkflowConfigurationError(msg)


def end_of(value: _T | Literal["START"] | Marker) -> _T | Marker:
    """Return START for its name as a string, and everything else as it is."""
    return START if isinstance(value, str) and value == START.name else value  # type: ignore[return-value]


def route_key(route: Route) -> tuple[type, Route]:
    """What two routes are equal by: `True == 1` in Python, and they are two routes."""
    return type(route), route


def told(end: str | Marker) -> str:
    """Return a node's name, or a marker, as messages show it."""
    return repr(end)
