"""
What a provider sent, read forgivingly: what is not as it should be is as if it were not there. No I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .._json import COUNT_MAX, FrozenDict, brief, freeze, loads
from ..types import FunctionCall

__all__ = ["call_of", "clean", "cleaned", "count", "items_of", "object_in", "object_of", "printable", "sums", "text_in"]

# Control characters but tab and newline, and those that change the direction of a text: they deceive readers of logs.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return *text* with surrogate pairs put together, and U+FFFD for halves of pairs, which no store can write."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def printable(text: str) -> str:
    """Return a provider's error text, clean and with its control characters escaped."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), clean(text))


def cleaned(value: Any, number: Callable[[float], float | None] = float) -> Any:
    """Return a JSON value with all of its texts clean; *number* is called with each number that is no integer."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return [cleaned(item, number) for item in value]
    if isinstance(value, dict):
        return {clean(key): cleaned(item, number) for key, item in value.items()}
    return value


def object_of(text: str | bytes) -> Mapping[str, Any]:
    """Return the JSON object in *text*, or the first one of a list; an empty one if there is none."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else {}


def text_in(value: object) -> str:
    """Return a text that the provider sent; an empty one if it is none."""
    return value if isinstance(value, str) else ""


def object_in(value: object) -> Mapping[str, Any]:
    """Return an object that the provider sent; an empty one if it is none."""
    return value if isinstance(value, Mapping) else {}


def items_of(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list that the provider sent; none if it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def call_of(name: str, args: str | Mapping[str, Any] | None, call_id: str | None) -> FunctionCall:
    """
    Return a call with the arguments that the provider sent, as JSON text or as an object.

    Arguments that are no JSON object, or that no store could keep, are kept in `args_text`.
    """
    call_id = clean(call_id) if call_id is not None else None
    given: Any = args
    try:
        if isinstance(args, str):
            given = loads(args) if args.strip() else {}
        frozen = freeze(cleaned({} if given is None else given), "args", level=10)  # events hold it that deep
    except (ValueError, RecursionError):  # InvalidValueError is a ValueError
        frozen = None
    if isinstance(frozen, FrozenDict):
        return FunctionCall(name=clean(name), args=frozen, id=call_id)
    text = clean(args) if isinstance(args, str) else brief(args, 500)
    return FunctionCall(name=clean(name), id=call_id, args_text=text)


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """Return the number of tokens at *path* in what the provider says of usage; None: it does not say."""
    found: Any = usage
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= COUNT_MAX else None


def sums(*numbers: int | None) -> int | None:
    """Return the sum of the numbers that are told; None: none is."""
    told = [number for number in numbers if number is not None]
    return sum(told) if told else None
