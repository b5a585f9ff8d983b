"""What a route can be: what a node of a workflow says of where to go on (`actions.route`)."""

from __future__ import annotations

from typing import Any

from ._json import freeze, shown
from ._values import changed
from .errors import InvalidValueError

__all__ = ["check_route", "with_route"]


def with_route(actions: Any, route: object) -> Any:
    """
    Return *actions*, which are `EventActions`, with the route that `Event(route=...)` is given.

    Raises:
        InvalidValueError: They have one already, or it is none.
    """
    if actions.route is not None:
        raise InvalidValueError("Event.route", "it is short for actions.route; give one of the two")
    check_route(route, "Event.route")
    return changed(actions, route=freeze(route, "EventActions.route"))  # the other fields are checked already


def check_route(route: object, path: str) -> None:
    """
    Raise unless it can be compared with the routes of edges; *path* says where it stands.

    Raises:
        InvalidValueError: It is no bool, int or string, and no list of them.
    """
    for each in route if isinstance(route, (list, tuple)) else (route,):
        if not isinstance(each, (bool, int, str)):
            problem = f"expected a bool, an int, a string or a list of them, found {shown(route)}"
            raise InvalidValueError(path, problem)
