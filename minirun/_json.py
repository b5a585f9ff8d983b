"""
JSON values that cannot change.

Everything that reaches a log or a state is checked and frozen here, once, when it is written: a value that would not
survive a round trip through JSON is refused with the path that leads to it, and one that would is afterwards safe to
share, because its lists and dicts refuse to be changed. So nothing is ever copied on the way from a tool to the disk.

Accepted: None, bool, int, finite float, str, list, tuple (becomes a list), dict with str keys. Subclasses, such as a
`StrEnum` or numpy's floats, become the plain type. Everything else is refused; there is no `repr` fallback.

`FrozenList` and `FrozenDict` are a `list` and a `dict`, so `json`, `isinstance` and `==` treat them as such. Calling
`list.append(frozen, x)` would get around the refusal: the store encodes an event when it is written, so that such a
bypass changes one process's copy and never the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, SupportsIndex, TypeAlias, TypeGuard

from .errors import InvalidValueError, SecretError

__all__ = [
    "COUNT_MAX", "EMPTY_DICT", "JSON", "FrozenDict", "FrozenList", "FrozenTuple", "Secret", "brief", "check_id",
    "check_text", "dumps", "finite", "freeze", "is_count", "is_seconds", "loads", "shown", "thaw",
]

JSON: TypeAlias = Any
"""A frozen JSON value: None, bool, int, float, str, FrozenList or FrozenDict."""

# Of ids and names. SQLite and every file system can hold it; longer ones are mistakes.
ID_CHARS_MAX = 1024

# Control characters, and what ends lines and paragraphs: in ids they are mistakes, or deceive who reads them.
_UNPRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# Beyond what anybody will ever count to: `sys.maxsize`, and SQLite's largest integer.
COUNT_MAX = 2**63 - 1

# Deep enough for any real data; CPython's own encoder recurses once per level and gives up near 1 000.
DEPTH_MAX = 100

# CPython refuses to parse integers of more than 4 300 digits (sys.int_info.default_max_str_digits); what could not be
# loaded again must not be stored.
INT_DIGITS_MAX = 4_000
_INT_LIMIT = 10**INT_DIGITS_MAX
_INT_BITS_SAFE = _INT_LIMIT.bit_length() - 1


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        msg = f"this {type(self).__name__} is part of a stored value and cannot change; {what}"
        raise TypeError(msg)

    return refuse


class FrozenList(list[Any]):
    """A list that refuses to change. `+=` gives a new one, so `ctx.state["cart"] += ["pen"]` works."""

    __slots__ = ("depth",)
    depth: int

    append = extend = _refuse(
        'write `state.extend("key", [item])`, which keeps what others add at once, or `items = list(value)` for a copy'
    )
    insert = remove = pop = clear = sort = reverse = _refuse("make a copy with `list(value)`, change it, and assign it")
    __setitem__ = __delitem__ = _refuse("make a copy with `list(value)`, change it, and assign it")

    def __iadd__(self, other: Iterable[Any]) -> FrozenList:  # type: ignore[misc]  # unlike list's, a new list
        return _frozen_list([*self, *other], "value", 1)

    def __imul__(self, times: SupportsIndex) -> FrozenList:
        return _frozen_list(list(self) * times, "value", 1)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is a plain list that may change


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change. `|=` gives a new one, so `ctx.state["profile"] |= {"age": 3}` works."""

    __slots__ = ("depth",)
    depth: int

    __setitem__ = __delitem__ = _refuse("make a copy with `dict(value)`, change it, and assign it")
    update = setdefault = _refuse('write `state["key"] |= {name: item}`, or `dict(value)` for a copy')
    pop = popitem = clear = _refuse("make a copy with `dict(value)`, change it, and assign it")

    def __ior__(self, other: Any) -> FrozenDict:  # type: ignore[override,misc]  # unlike dict's, a new dict
        return _frozen_dict({**self, **dict(other)}, "value", 1)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy is a plain dict that may change


class FrozenTuple(tuple[Any, ...]):
    """What a value or an agent holds as a list: who calls a method of lists is told how another one is made."""

    __slots__ = ()

    append = extend = insert = remove = pop = clear = sort = reverse = __setitem__ = __delitem__ = _refuse(
        "make another value: `attrs.evolve(value, name=[*value.name, item])`, "
        "or of an agent `agent.clone({'name': [*agent.name, item]})`"
    )

    def __add__(self, other: Iterable[Any]) -> FrozenTuple:
        return FrozenTuple([*self, *other]) if isinstance(other, (list, tuple)) else NotImplemented


class Secret:
    """The base of what must never become JSON: credentials."""

    __slots__ = ()


def freeze(value: object, path: str = "value", level: int = 1) -> JSON:
    """
    Return *value* as a frozen JSON value; what is frozen already is returned as it is.

    *level* is the depth at which it will stand in what is stored, so that what fits now fits there too.

    Raises:
        InvalidValueError: Something in it is not JSON; the message starts with the path to it.
        SecretError: That is a credential.
    """
    kind = type(value)
    if kind is str:
        return check_text(value, path)  # type: ignore[arg-type]  # its type was just tested
    if value is None or kind is bool:
        return value
    if kind in _CONTAINERS:
        depth: int = getattr(value, "depth", 0)  # 0: somebody has called the class, and nothing was checked yet
        if level + depth - 1 > DEPTH_MAX:
            _refuse_depth(path)
        if depth:
            return value
    if isinstance(value, dict):
        return _frozen_dict(value, path, level)
    if isinstance(value, (list, tuple)):
        return _frozen_list(value, path, level)
    return _freeze_scalar(value, path)


def _freeze_scalar(value: object, path: str) -> JSON:
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        number = int.__int__(value)
        if number.bit_length() > _INT_BITS_SAFE and abs(number) >= _INT_LIMIT:
            raise InvalidValueError(path, f"expected an integer of at most {INT_DIGITS_MAX} digits, found a larger one")
        return number
    if isinstance(value, float):
        real = float.__float__(value)
        if not math.isfinite(real):
            raise InvalidValueError(path, f"expected a finite number, found {real}; store None or a string instead")
        return real
    if isinstance(value, str):
        return check_text(str.__str__(value), path)
    if isinstance(value, Secret):
        problem = "expected a value that may be stored, found a credential; hand on its key, and let what needs it "
        raise SecretError(path, problem + "ask with `ctx.request_credential`")
    problem = (
        f"expected a JSON value (None, bool, int, float, str, list, dict), found {type(value).__name__}; "
        "store its plain parts instead"
    )
    raise InvalidValueError(path, problem)


def _frozen_list(items: Iterable[object], path: str, level: int) -> FrozenList:
    if level > DEPTH_MAX:
        _refuse_depth(path)
    depth = 1
    frozen = []
    for index, item in enumerate(items):
        kept = freeze(item, f"{path}[{index}]", level + 1)
        if type(kept) in _CONTAINERS and kept.depth >= depth:
            depth = kept.depth + 1
        frozen.append(kept)
    result = FrozenList(frozen)
    result.depth = depth
    return result


def _frozen_dict(items: Mapping[Any, object], path: str, level: int) -> FrozenDict:
    if level > DEPTH_MAX:
        _refuse_depth(path)
    depth = 1
    frozen = {}
    for key, item in items.items():
        if type(key) is not str:
            if not isinstance(key, str):
                raise InvalidValueError(path, f"expected string keys, found {shown(key)}")
            key = str.__str__(key)
        kept = freeze(item, f"{path}[{key!r}]", level + 1)
        if type(kept) in _CONTAINERS and kept.depth >= depth:
            depth = kept.depth + 1
        frozen[check_text(key, path)] = kept
    result = FrozenDict(frozen)
    result.depth = depth
    return result


_CONTAINERS = frozenset({FrozenList, FrozenDict})


def _refuse_depth(path: str) -> NoReturn:
    shown = path if len(path) <= 80 else path[:77] + "..."
    raise InvalidValueError(shown, f"nested deeper than {DEPTH_MAX} levels, or containing itself; flatten it")


def finite(value: object) -> float | None:
    """Return *value* as a float; None if it is no number, or none that a float can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the floats
        return None
    return number if math.isfinite(number) else None


def is_count(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether *value* is an integer from *least* up, and not beyond all bounds: what numbers of things can be."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= COUNT_MAX


def is_seconds(value: object, above: float | None = None) -> TypeGuard[float]:
    """Whether *value* is a finite number from 0 up, or *above* that number: what a span of time can be."""
    seconds = finite(value)
    return seconds is not None and (seconds >= 0 if above is None else seconds > above)


def brief(value: object, chars: int = 80) -> str:
    """Return the first *chars* characters of the value's repr, for a message: whatever it is, this does not raise."""
    try:
        return f"{value!r:.{chars}}"
    except Exception:  # whatever a foreign __repr__ does; CPython's own raises for integers of more than 4 300 digits
        return f"a value of type {type(value).__name__}"


def shown(value: object) -> str:
    """Return the beginning of the value's repr and its type, for a message that refuses it."""
    text, kind = brief(value), f" of type {type(value).__name__}"
    return text if text.endswith(kind) else text + kind


def check_text(text: str, path: str) -> str:
    """
    Return *text* if it can be written as UTF-8.

    Raises:
        InvalidValueError: It holds half of a surrogate pair, which no encoding can write.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            problem = f"expected text that UTF-8 can write, found a lone surrogate at character {error.start}"
            raise InvalidValueError(path, problem) from None
    return text


def check_id(name: str, value: object) -> str:
    """
    Return the id, or the name, that is the argument *name*: exactly as it was given.

    Nothing is taken away from an id, so that two that differ never become one.

    Raises:
        InvalidValueError: It cannot be one: it is blank or no string, too long, has space around it, or a control
            character or line break in it.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidValueError(name, f"expected a string that is not blank, found {shown(value)}")
    text = check_text(str.__str__(value), name)
    if len(text) > ID_CHARS_MAX or _UNPRINTED.search(text):
        problem = f"expected at most {ID_CHARS_MAX} characters, without control characters and line breaks"
        raise InvalidValueError(name, f"{problem}, found {shown(value)}")
    if text != text.strip():
        raise InvalidValueError(name, f"expected no space around it, found {shown(value)}; write {brief(text.strip())}")
    return text


def thaw(value: JSON) -> Any:
    """Return a plain copy of a frozen value, with lists and dicts that may be changed."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


# One line, no spaces, text as it is: what the store writes and what `export` prints. Keys keep their order.
dumps: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
loads: Callable[[str | bytes], Any] = json.loads

EMPTY_DICT: FrozenDict = freeze({})
