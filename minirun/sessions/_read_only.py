"""
The state of a session as it is shown outside of agents: to be read, with a message for code that would change it.

A session that a service has returned has values of its own. Its state is a dict with all of them, made when it is first
asked for, and advanced with the session; so it is whatever takes a dict takes. That of a run is a view of what is
committed, and copies nothing.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn, SupportsIndex

from .._json import JSON
from ._state import MISSING, Values, _Missing

__all__ = ["CopiedState", "ReadOnlyState"]


class _Unchanging:
    """Refuses every change, and says what to do instead."""

    __slots__ = ()

    def __setitem__(self, key: str, value: object) -> NoReturn:
        _refuse(f"state={{{key!r}: ...}}")

    def __delitem__(self, key: str) -> NoReturn:
        _refuse(f"actions=EventActions(state_removed=[{key!r}])")

    def update(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused, as every change is."""
        _refuse("state={...}")

    setdefault = pop = popitem = clear = __ior__ = update


def _refuse(argument: str) -> NoReturn:
    msg = (
        "this state is a copy to read, and a change to it would be lost; append an event instead: "
        f'`await service.append_event(session, Event(author="...", {argument}))`, '
        "or, in an agent, a tool or a callback, write to `ctx.state`"
    )
    raise TypeError(msg)


class ReadOnlyState(_Unchanging, Mapping[str, Any]):
    """The state of a run's session, as its caller sees it. Assigning to it says what to do instead."""

    __slots__ = ("_values",)

    def __init__(self, values: Values) -> None:
        self._values = values

    def __getitem__(self, key: str) -> JSON:
        value = self._values.get(key)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.keys())

    def __len__(self) -> int:
        return len(self._values.keys())

    def __contains__(self, key: object) -> bool:
        return self._values.get(key) is not MISSING

    def __repr__(self) -> str:
        return repr(dict(self))


class CopiedState(_Unchanging, dict[str, Any]):
    """
    The state of a session that a service returned: a dict to read. Assigning to it says what to do instead.

    The session may advance while somebody goes through it, in another thread, too: that goes through what there
    was.
    """

    __slots__ = ()

    def __init__(self, values: Values) -> None:
        dict.__init__(self, {key: values.get(key) for key in values.keys()})  # noqa: SIM118 # they are no dict

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # of a copy, as are the next two
        return self._now().keys()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # see above
        return self._now().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # see above
        return self._now().values()

    def _now(self) -> dict[str, Any]:
        return dict([*dict.items(self)])  # a list first: it is made in one step, whatever other threads do

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy is a plain dict that may change

    def apply(self, changes: Mapping[str, JSON | _Missing]) -> None:
        """Take over what a stored event has changed."""
        for key, value in changes.items():
            if value is MISSING:
                dict.pop(self, key, None)
            else:
                dict.__setitem__(self, key, value)
