"""
State: a dictionary whose keys say how far they reach.

`app:x` belongs to the app, `user:x` to one user of it, `temp:x` to the running invocation, and every other key to the
session, under its full name (`session:x` and `a:b` too).

A write is one of four things: a new value, a removal, an `Add` or an `Extend`. The last two are *operations*: they
are stored as such and applied to whatever value is there when the event is committed, so concurrent sessions never
lose an increment.

Pending writes come in layers. An agent has one over the committed values, each of its tools and callbacks one over
the agent's. A layer has one writer, so it needs no lock; it sees what is below it, and what is below does not see it
until it is merged downwards. Reading walks down; writing touches the top only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from enum import Enum
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from .._json import EMPTY_DICT, JSON, FrozenList, FrozenTuple, brief, freeze
from .._record import Record
from .._values import changed
from ..errors import InvalidValueError, InvocationEndedError
from ..events import EventActions

if TYPE_CHECKING:
    from ._state_schema import StateSchemas

__all__ = ["REMOVED", "Add", "Extend", "State", "Values", "Write", "apply_write", "scope_of"]

APP_PREFIX: Final = "app:"
USER_PREFIX: Final = "user:"
TEMP_PREFIX: Final = "temp:"
RESERVED_PREFIX: Final = "minirun:"


class Scope(Enum):
    """How far a key reaches."""

    SESSION = "session"
    APP = "app"
    USER = "user"
    TEMP = "temp"


_PREFIXES = {APP_PREFIX: Scope.APP, USER_PREFIX: Scope.USER, TEMP_PREFIX: Scope.TEMP}


def scope_of(key: str) -> Scope:
    """Return the scope that the key's prefix names."""
    prefix, colon, _ = key.partition(":")
    return _PREFIXES.get(prefix + colon, Scope.SESSION) if colon else Scope.SESSION


def check_key(key: object, path: str) -> str:
    """
    Return *key* if a state can have it.

    Raises:
        InvalidValueError: It is not a string, or a scope's prefix with nothing after it.
    """
    if not isinstance(key, str):
        raise InvalidValueError(path, f"expected a string as key, found {brief(key)} of type {type(key).__name__}")
    if key in _PREFIXES:
        raise InvalidValueError(path, f"expected a name after the prefix, found {key!r}; write for example '{key}name'")
    plain: str = freeze(key, path)
    return plain


# --- writes ---------------------------------------------------------------------------------------------------------


class _Removed(Enum):
    REMOVED = "removed"


class _Missing(Enum):
    MISSING = "missing"


REMOVED: Final = _Removed.REMOVED
MISSING: Final = _Missing.MISSING
KEYS: Final = "temp:keys"
"""Stands for the list of all keys where reads are recorded: those of a key of this name are not."""


@attrs.frozen(eq=False, repr=False)
class Add(Record):
    """Add a number to whatever the key holds; to 0 where there is no such key."""

    amount: int | float


@attrs.frozen(eq=False, repr=False)
class Extend(Record):
    """Append items to the list that the key holds; to an empty one where there is no such key."""

    items: FrozenList


Write = Any
"""A frozen JSON value to set, or REMOVED, an Add or an Extend."""

# Where they stand in an event's actions: `{key: value}` and `{key: {"extend": items}}`. A value that would be too deep
# there is refused when it is written, not when the event is emitted.
_VALUE_LEVEL = 2
_ITEMS_LEVEL = 3


def apply_write(key: str, current: JSON | _Missing, write: Write) -> JSON | _Missing:
    """
    Return what *key* holds after *write*; MISSING stands for no such key.

    Raises:
        InvalidValueError: An operation meets a value that it does not fit.
    """
    if write is REMOVED:
        return MISSING
    if type(write) is Add:
        start = 0 if current is MISSING else current
        if isinstance(start, bool) or not isinstance(start, (int, float)):
            raise _mismatch(key, "add", "a number", start)
        return _total(key, start, write.amount)
    if type(write) is Extend:
        if current is MISSING:
            return write.items
        if not isinstance(current, list):
            raise _mismatch(key, "extend", "a list", current)
        return freeze([*current, *write.items], f"state[{key!r}]", _VALUE_LEVEL)
    return write


def _total(key: str, number: int | float, amount: int | float) -> int | float:
    try:
        total: int | float = freeze(number + amount, f"state[{key!r}]")
    except OverflowError:  # an integer that no float can hold, and a fraction
        raise _mismatch(key, "add", "numbers whose sum is finite", number) from None
    return total


def merge_writes(key: str, below: Write, above: Write) -> Write:
    """Return the one write that does what *below* and then *above* do."""
    if type(above) is Add and type(below) is Add:
        return Add(_total(key, below.amount, above.amount))
    if type(above) is Extend and type(below) is Extend:
        return Extend(freeze([*below.items, *above.items], f"state[{key!r}]", _ITEMS_LEVEL))
    if type(above) not in _OPERATIONS:
        return above
    if type(below) in _OPERATIONS:
        kind = type(below).__name__.lower()
        raise _mismatch(key, type(above).__name__.lower(), f"the same operation as before ({kind})", MISSING)
    return apply_write(key, MISSING if below is REMOVED else below, above)


_OPERATIONS = frozenset({Add, Extend})
NO_VALUES: Final = _OPERATIONS | {_Removed}
"""The types of writes that are not themselves what the key then holds."""


def _mismatch(key: str, operation: str, expected: str, found: object) -> InvalidValueError:
    what = "another one" if found is MISSING else f"{brief(found)}"
    return InvalidValueError(f"state[{key!r}]", f"`{operation}` expects {expected}, found {what}")


def writes_of(actions: EventActions) -> Mapping[str, Write]:
    """
    Return the writes that an event's actions stand for. The actions remember them, so they are not to be changed.

    Raises:
        InvalidValueError: A key is no key, stands in two of the three fields, or an operation is malformed.
    """
    try:
        writes: Mapping[str, Write] = actions._memo
    except AttributeError:
        has_any = actions.state_delta or actions.state_removed or actions.state_ops
        writes = _derived_writes(actions) if has_any else EMPTY_DICT
        object.__setattr__(actions, "_memo", writes)
    return writes


def _derived_writes(actions: EventActions) -> dict[str, Write]:
    writes: dict[str, Write] = {}
    for key in actions.state_removed:
        writes[check_key(key, "state_removed")] = REMOVED
    for name, changes in (("state_delta", actions.state_delta), ("state_ops", actions.state_ops)):
        for key, change in changes.items():
            check_key(key, name)
            write = change if name == "state_delta" else _operation(change, f"state_ops[{key!r}]")
            if key in writes:
                problem = "the key stands in two of state_removed, state_delta and state_ops; keep one"
                raise InvalidValueError(f"state[{key!r}]", problem)
            writes[key] = write
    return writes


def _operation(operation: JSON, path: str) -> Write:
    if isinstance(operation, dict) and len(operation) == 1:
        [(name, operand)] = operation.items()
        if name == "add" and isinstance(operand, (int, float)) and not isinstance(operand, bool):
            return Add(operand)
        if name == "extend" and isinstance(operand, FrozenList):
            return Extend(operand)
    raise InvalidValueError(path, f'expected {{"add": number}} or {{"extend": list}}, found {brief(operation)}')


def with_writes(actions: EventActions, writes: Mapping[str, Write], **changes: Any) -> EventActions:
    """
    Return *actions* with exactly these writes as its state changes, and with other *changes* of its fields.

    It is the same object if nothing changes, and one copy otherwise.
    """
    count = len(actions.state_delta) + len(actions.state_removed) + len(actions.state_ops)
    if count == len(writes):  # a key that is removed twice counts twice
        known = writes_of(actions)
        # The very same values, in the same order: equal ones are not enough, as 1 is equal to True.
        if list(writes) == list(known) and all(map(is_, writes.values(), known.values())):
            return changed(actions, **changes) if changes else actions
    delta: dict[str, JSON] = {}
    removed: list[str] = []
    operations: dict[str, JSON] = {}
    for key, write in writes.items():
        if write is REMOVED:
            removed.append(key)
        elif type(write) is Add:
            operations[key] = {"add": write.amount}
        elif type(write) is Extend:
            operations[key] = {"extend": write.items}
        else:
            delta[key] = write
    return changed(
        actions,
        state_delta=freeze(delta, "state_delta") if delta else EMPTY_DICT,
        state_removed=FrozenTuple(removed),
        state_ops=freeze(operations, "state_ops") if operations else EMPTY_DICT,
        **changes,
    )


class CurrentValues(Protocol):
    """Committed values, or what a transaction will make of them."""

    def get(self, key: object) -> JSON | _Missing:
        """The value of *key*, or MISSING."""


def apply_writes(values: CurrentValues, writes: Mapping[str, Write]) -> dict[str, JSON | _Missing]:
    """Return what *writes* change in *values*: key to new value, or to MISSING where it is deleted."""
    changes: dict[str, JSON | _Missing] = {}
    for key, write in writes.items():
        changes[key] = apply_write(key, values.get(key), write) if type(write) in NO_VALUES else write
    return changes


# --- committed values -----------------------------------------------------------------------------------------------


class Values:
    """
    The committed values of one session, by scope. Sessions of one user and app share the dicts of those scopes.

    A worker thread may read it while the loop changes it: iteration works on a copy of the keys.
    """

    __slots__ = ("app", "session", "temp", "user")

    def __init__(
        self, session: dict[str, JSON], user: dict[str, JSON], app: dict[str, JSON], temp: dict[str, JSON] | None = None
    ) -> None:
        self.session = session
        self.user = user
        self.app = app
        self.temp: dict[str, JSON] = {} if temp is None else temp

    def scope(self, key: str) -> dict[str, JSON]:
        """The dict that holds *key*."""
        scope = scope_of(key)
        if scope is Scope.SESSION:
            return self.session
        return self.app if scope is Scope.APP else self.user if scope is Scope.USER else self.temp

    def get(self, key: object) -> JSON | _Missing:
        """The value of *key*, or MISSING; of what is no string, too."""
        return self.scope(key).get(key, MISSING) if isinstance(key, str) else MISSING

    def keys(self) -> list[str]:
        """All keys, those of the session first."""
        return [*self.session, *self.user, *self.app, *self.temp]

    def apply(self, changes: Mapping[str, JSON | _Missing]) -> None:
        """Take over what `apply_event` returned."""
        for key, value in changes.items():
            if value is MISSING:
                self.scope(key).pop(key, None)
            else:
                self.scope(key)[key] = value

    def copy(self) -> Values:
        """A copy that stays as it is; the frozen values themselves are shared."""
        return Values(dict(self.session), dict(self.user), dict(self.app))

    def with_temp(self) -> Values:
        """The same committed values with `temp:` keys of an invocation's own."""
        return Values(self.session, self.user, self.app, {})


# --- what people hold -----------------------------------------------------------------------------------------------


class State(MutableMapping[str, Any]):
    """
    `ctx.state`: what is committed, plus the pending writes of the holder of this context.

    What is written here is seen at once by the writer, by what it calls and by what runs after it; it is stored with
    the next event that reports the writer. Values are frozen when written: `state["cart"] += ["pen"]` works, changing
    the list in place raises. `del state[key]` deletes; None is an ordinary value.
    """

    __slots__ = ("_below", "_check", "_closed", "_seen", "_taken", "_writes", "schemas")
    APP_PREFIX, USER_PREFIX, TEMP_PREFIX = _PREFIXES
    _check: Callable[[str, Any], None] | None

    def __init__(
        self,
        below: State | Values,
        seen: Callable[[str, Any], Any] | None = None,
        check: Callable[[str, Any], None] | None = None,
    ) -> None:
        self._below = below
        self._check = below._check if isinstance(below, State) else check  # raises if this must not be written
        self.schemas: StateSchemas | None = below.schemas if isinstance(below, State) else None
        """What the session's own keys may hold; None: anything. A layer has those of the layer below it."""
        self._seen = seen  # is told what is read of what is committed, key by key, and says what to return
        self._writes: dict[str, Write] = {}
        self._taken: list[dict[str, Write]] = []
        self._closed = ""

    def __getitem__(self, key: str) -> JSON:
        value = self._lookup(key, self._seen)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: object) -> None:
        self._write(key, freeze(value, f"state[{key!r}]", _VALUE_LEVEL))

    def __delitem__(self, key: str) -> None:
        if self._lookup(key, self._seen) is MISSING:
            raise KeyError(key)
        self._write(key, REMOVED)

    def __contains__(self, key: object) -> bool:
        return self._lookup(key, self._seen) is not MISSING

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def __repr__(self) -> str:
        return repr(dict(self))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the key's value; if there is none, write *default* and return it as it is stored, frozen."""
        if key not in self:
            self[key] = default
        return self[key]

    def add(self, key: str, amount: int | float = 1) -> None:
        """
        Add *amount* to the key's value when the event is stored, so that concurrent adds all count.

        Raises:
            InvalidValueError: *amount* or the present value is not a number.
        """
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise _mismatch(key, "add", "a number", amount)
        self._operate(key, Add(freeze(amount, f"state[{key!r}]")))

    def extend(self, key: str, items: list[Any] | tuple[Any, ...]) -> None:
        """
        Append *items* to the key's list when the event is stored, so that concurrent appends all survive.

        Raises:
            InvalidValueError: *items* or the present value is not a list.
        """
        if not isinstance(items, (list, tuple)):
            raise _mismatch(key, "extend", "a list of items", items)
        self._operate(key, Extend(freeze(items, f"state[{key!r}]", _ITEMS_LEVEL)))

    def to_dict(self) -> dict[str, JSON]:
        """All keys and values as a plain dict."""
        return dict(self)

    # --- for the runtime

    def layer(self, seen: Callable[[str, Any], Any] | None = None) -> State:
        """A new layer on top of this one; *seen* is told what is read through it of what is committed."""
        return State(self, seen)

    def has_delta(self) -> bool:
        """Whether something written is not stored yet."""
        return bool(self.pending())

    def pending(self) -> dict[str, Write]:
        """The writes of this layer that no event has carried yet."""
        return dict(self._writes)

    def withdraw(self, key: str) -> None:
        """
        Take back what this layer has written to *key* and no event has carried.

        Raises:
            InvocationEndedError: Nothing is written here any more.
        """
        self._check_open(key, REMOVED)
        self._writes.pop(key, None)

    def settle(self, carried: Mapping[str, Write]) -> None:
        """Forget the writes that an event has carried, unless they were overwritten since."""
        for key, write in carried.items():
            if self._writes.get(key, MISSING) is write:
                del self._writes[key]

    def take(self, own: Mapping[str, Write]) -> TakenWrites:
        """
        Take the pending writes that an event carries: all of this layer's, and those below on the same keys.

        What lies below on a key is older, so it goes along underneath; else it would come later and win. *own* are the
        writes of the event itself; they lie on top. Until they are committed or rolled back they are read as before.

        Raises:
            InvalidValueError: Two writes to a key do not fit each other. Nothing is taken.
        """
        keys = dict.fromkeys((*self._writes, *own))  # in their order: a set would have another in each process
        parts: list[_Taken] = []
        layer: State | Values = self
        while isinstance(layer, State):
            pending = layer._writes
            part = {key: pending[key] for key in keys if key in pending} if pending else None
            if part:
                parts.append((layer, part, tuple(pending) if len(part) < len(pending) else ()))
            layer = layer._below
        if not parts:
            return TakenWrites(own, [])
        carried: dict[str, Write] = {}
        for writes in (*(part for _, part, _ in reversed(parts)), own):
            for key, write in writes.items():
                carried[key] = merge_writes(key, carried[key], write) if key in carried else write
        for taken, part, _ in parts:
            taken._taken.append(part)
            for key in part:
                del taken._writes[key]
        return TakenWrites(carried, parts)

    def merge(self, writes: Mapping[str, Write]) -> None:
        """
        Take over the writes of a layer above: all of them, or none if one does not fit what is there now.

        Raises:
            InvalidValueError: An operation meets a value of another kind.
            StateSchemaError: What comes of it is not what a schema allows.
        """
        for key, write in writes.items():
            if type(write) in _OPERATIONS and key not in self._writes:
                apply_write(key, self._lookup(key, None), write)
            if self.schemas is not None:
                self.schemas.check_merge(self, key, write)
        self._writes = layered(self._writes, writes)

    def close(self, why: str) -> None:
        """From here on refuse every write with InvocationEndedError."""
        self._closed = why

    @property
    def closed(self) -> str:
        """Why writes are refused; empty if they are not."""
        return self._closed

    def _write(self, key: str, write: Write) -> None:
        self._check_open(key, write)
        key, mine = check_key(key, "state"), self._writes.get(key, MISSING)
        if RESERVED_PREFIX in key and write is not REMOVED:
            from ._reserved import check_own_key  # few keys look like one of the framework

            check_own_key(key, "state")
        if self.schemas is not None:
            self.schemas.check_write(self, key, write)
        self._writes[key] = write if mine is MISSING else merge_writes(key, mine, write)

    def _check_open(self, key: str, write: Write) -> None:
        if self._check is not None:
            self._check(key, write)
        if self._closed:
            raise InvocationEndedError(self._closed)

    def _operate(self, key: str, operation: Add | Extend) -> None:
        apply_write(key, self._lookup(check_key(key, "state"), None), operation)  # does it fit what is there now?
        self._write(key, operation)

    def _lookup(self, key: Any, seen: Callable[[str, Any], Any] | None) -> JSON | _Missing:
        operations: list[Write] = []
        layer: State | Values = self
        while isinstance(layer, State):
            write = layer._pending_write(key)
            if type(write) in _OPERATIONS:
                operations.append(write)
            elif write is not MISSING:
                value = MISSING if write is REMOVED else write
                break
            layer = layer._below
        else:
            value = layer.get(key)
            if seen is not None and isinstance(key, str) and scope_of(key) is not Scope.TEMP:
                value = seen(key, value)
        for operation in reversed(operations):
            value = apply_write(key, value, operation)
        return value

    def _pending_write(self, key: Any) -> Write:
        """What this layer does to the key, what is taken first; MISSING if nothing."""
        write = MISSING
        for writes in (*self._taken, self._writes):
            above = writes.get(key, MISSING)
            if above is not MISSING:
                write = above if write is MISSING else merge_writes(key, write, above)
        return write

    def _keys(self) -> list[str]:
        layers: list[State] = []
        below: State | Values = self
        while isinstance(below, State):
            layers.append(below)
            below = below._below
        keys = dict.fromkeys(below.keys())
        if self._seen is not None:
            temp = [key for key in keys if scope_of(key) is Scope.TEMP]
            keys = dict.fromkeys((*self._seen(KEYS, tuple(key for key in keys if key not in temp)), *temp))
        for layer in reversed(layers):
            for writes in (*layer._taken, layer._writes):
                for key, write in list(writes.items()):
                    if write is REMOVED:
                        keys.pop(key, None)
                    else:
                        keys[key] = None
        return list(keys)


_Taken: TypeAlias = tuple[State, dict[str, Write], tuple[str, ...]]
"""Of one layer: what an event takes of it; and where that is not all, the order in which its writes stood."""


class TakenWrites:
    """Writes on their way to the store: `commit` when it has answered, or `rollback` to where they were pending."""

    __slots__ = ("_parts", "writes")

    def __init__(self, writes: Mapping[str, Write], parts: list[_Taken]) -> None:
        self.writes = writes
        self._parts = parts

    def applied(self) -> None:
        """The committed values have them: read are these. What lives for the run alone waits for `commit`."""
        for _, part, _ in self._parts:
            for key in [key for key in part if not key.startswith(TEMP_PREFIX)]:
                del part[key]

    def commit(self) -> None:
        """They are committed, and no longer pending."""
        for layer, part, _ in self._parts:
            layer._taken = [other for other in layer._taken if other is not part]
        self._parts = []

    def rollback(self) -> None:
        """They were not committed: they are pending again, below what was written since."""
        parts = self._parts
        self.commit()
        for layer, part, order in parts:
            writes = layered(part, layer._writes)
            layer._writes = {key: writes[key] for key in dict.fromkeys((*order, *writes)) if key in writes}


def parted(writes: Mapping[str, Write]) -> tuple[Mapping[str, Write], Mapping[str, Write]]:
    """Return the writes that are stored, and those to `temp:` keys."""
    temp = {key: write for key, write in writes.items() if key.startswith(TEMP_PREFIX)}
    return ({key: write for key, write in writes.items() if key not in temp} if temp else writes), temp


def layered(below: Mapping[str, Write], above: Mapping[str, Write]) -> dict[str, Write]:
    """Return the writes that do what *below* and then *above* do."""
    return {**below, **above} | {key: merge_writes(key, below[key], above[key]) for key in above if key in below}
