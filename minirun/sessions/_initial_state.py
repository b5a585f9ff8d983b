"""The state that a session begins with."""

from __future__ import annotations

from collections.abc import Mapping

from .._json import freeze
from ..errors import InvalidValueError
from ..events import EventActions
from ._reserved import check_own_key
from ._state import TEMP_PREFIX, Scope, check_key, scope_of

__all__ = ["initial_state"]


def initial_state(state: Mapping[str, object]) -> EventActions:
    """What a session begins with, checked."""
    if not isinstance(state, Mapping):
        raise InvalidValueError("state", f"expected a mapping, found {type(state).__name__}")
    delta = freeze(dict(state), "state")
    for key in delta:
        if scope_of(check_own_key(check_key(key, "state"), "state")) is Scope.TEMP:
            problem = f"{TEMP_PREFIX!r} keys live for one invocation; pass them to run_async(state_delta=...)"
            raise InvalidValueError(f"state[{key!r}]", problem)
    return EventActions(state_delta=delta)
