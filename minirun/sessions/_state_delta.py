"""`ctx.actions.state_delta`: the pending writes of a context, as a dictionary of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..flows._actions import PendingValues
from ._state import MISSING, REMOVED, Add, Extend, State

__all__ = ["StateDelta"]


class StateDelta(PendingValues):
    """
    The values that a context has written to `ctx.state` and no event has carried yet.

    This is a view of these writes, not a copy. A write here is a write to `ctx.state`, with its rules for keys and
    values. `del` takes a pending write back; it does not delete the key from the state. Keys that were deleted from
    `ctx.state` are not in it.
    """

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, key: str) -> Any:
        write = self._state.pending().get(key, MISSING)
        if write is MISSING or write is REMOVED:
            raise KeyError(key)
        return self._state[key] if isinstance(write, Add | Extend) else write

    def __setitem__(self, key: str, value: object) -> None:
        self._state[key] = value

    def __delitem__(self, key: str) -> None:
        if self._state.pending().get(key, REMOVED) is REMOVED:
            raise KeyError(key)
        self._state.withdraw(key)

    def __iter__(self) -> Iterator[str]:
        return iter([key for key, write in self._state.pending().items() if write is not REMOVED])

    def __len__(self) -> int:
        return sum(1 for _ in self)
