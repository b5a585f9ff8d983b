"""
What a type is to a model: a name, a JSON schema, and a way to read its values.

Here are the types without parts, and the object, which the arguments of each call are. `_schema` compiles all others.

The rules of reading:

* What the schema allows is accepted, and little else. A string is never turned into a number, a bool is not a number,
  and null is a value only where the annotation says so.
* JSON has one kind of number and models send 3.0 for 3: an int accepts an integral float, a float accepts an int. A
  union tries its members without that first, so that `int | float` keeps 1.0 a float; the first that fits wins.
* A set drops repeated items, although its schema asks for none.
* What comes out shares no list or dict with what went in: the function may change its arguments.
* Problems are reported at once, each with its path: a model that is told one at a time asks each time. Reading ends
  soon after there are more than it will be told.

How: `kind.read(value, path, reading)` never raises for a bad value. It notes a problem in `reading` and returns
whatever, and who would build on that result looks at the problems first.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

from ..errors import ArgumentError

__all__ = [
    "FOUND_CHARS_MAX", "KINDS", "LINE_CHARS_MAX", "PROBLEMS_MAX", "SCALARS", "Field", "Reading", "Schema", "Type",
    "bounded", "convert", "cut", "mismatch", "object_of", "plain", "read_value", "shown",
]

# Enough to mend a value in one go; a model that has more to mend had better begin anew.
PROBLEMS_MAX = 20
# Long enough to recognise a value or an option, short enough for twenty of them in a prompt.
FOUND_CHARS_MAX = 60
LINE_CHARS_MAX = 500

Schema: TypeAlias = dict[str, Any]


class Reading(NamedTuple):
    """
    One attempt at reading a value: what did not fit, and how strict it is.

    When *exact*, 3.0 is no int and 3 no float; when *strict*, 3.0 is never an int, and models read strictly.
    """

    exact: bool
    problems: list[str]
    # What each union came to, by union, path and exactness: unions within unions are read once for each, not once for
    # every combination of their members, which a deep value would make a matter of hours.
    unions: dict[tuple[int, str, bool], tuple[object, list[str]]]
    strict: bool = False

    def wrong(self, path: str, expected: str, value: object) -> object:
        """Note that *value* does not fit. What is returned means nothing."""
        self.problems.append(mismatch(path, expected, value))
        return None


class Type(NamedTuple):
    """An annotation: its name in messages, its schema, and how its values are read."""

    expected: str
    schema: Schema
    read: Callable[[object, str, Reading], object]


class Field(NamedTuple):
    """What may stand under a name: a parameter, or a field of a class or TypedDict."""

    type: Type
    required: bool


def read_value(kind: Type, value: object, path: str, *, strict: bool = False) -> tuple[Any, list[str]]:
    """Return what the JSON *value* is as one of this type, and no problems; or all problems, and something."""
    reading = Reading(False, [], {}, strict)
    try:
        return kind.read(value, path, reading), reading.problems
    except RecursionError:
        return None, [f"{path or 'the value'}: nested too deeply; flatten the value"]


def convert(kind: Type, value: object, path: str) -> Any:
    """
    Return what the JSON *value* is as one of this type. *path* is what messages call the value.

    Raises:
        ArgumentError: The value does not fit; a line for each of the first problems, and whether there are more.
    """
    result, problems = read_value(kind, value, path)
    if problems:
        raise ArgumentError("\n".join(bounded(problems)))
    return result


# --- what messages say ------------------------------------------------------------------------------------------------


KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def mismatch(path: str, expected: str, value: object) -> str:
    """Say that *value*, which stands at this path, is not what is expected there."""
    kind = next((f"{kind} " for tp, kind in KINDS.items() if isinstance(value, tp)), "")
    return f"{path or 'the value'}: expected {expected}, found {kind}{shown(value)}"


def shown(value: object) -> str:
    """Return *value* as messages show it."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return cut(text)


def cut(text: str, chars_max: int = FOUND_CHARS_MAX) -> str:
    """Return the beginning of *text*, as long as it may be."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 3]}..."


def bounded(lines: Iterable[str]) -> list[str]:
    """Return the first few different problems, each cut to a length that one can read, and whether there are more."""
    found = list(dict.fromkeys(lines))
    first = [cut(line, LINE_CHARS_MAX) for line in found[:PROBLEMS_MAX]]
    return first if len(found) <= PROBLEMS_MAX else [*first, f"there are more problems than these {PROBLEMS_MAX}"]


def plain(value: Any) -> Any:
    """Return a copy of a JSON value that shares nothing with it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


# --- types without parts ----------------------------------------------------------------------------------------------


def _just(kind: type, name: str) -> Type:
    def read(value: object, path: str, reading: Reading) -> object:
        return value if isinstance(value, kind) else reading.wrong(path, name, value)

    return Type(name, {"type": name}, read)


def _read_integer(value: object, path: str, reading: Reading) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and not (reading.exact or reading.strict):
        return int(value)
    return reading.wrong(path, "integer", value)


def _read_number(value: object, path: str, reading: Reading) -> object:
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or reading.exact:
        return reading.wrong(path, "number", value)
    if abs(value) > sys.float_info.max:
        return reading.wrong(path, f"number up to {sys.float_info.max:.1e}", value)
    return float(value)


_ANY = Type("any value", {}, lambda value, path, reading: plain(value))
SCALARS: dict[object, Type] = {
    **dict.fromkeys((object, Any, inspect.Parameter.empty), _ANY),
    str: _just(str, "string"),
    bool: _just(bool, "boolean"),
    NoneType: _just(NoneType, "null"),
    int: Type("integer", {"type": "integer"}, _read_integer),
    float: Type("number", {"type": "number"}, _read_number),
}


# --- objects ----------------------------------------------------------------------------------------------------------


def object_of(name: str, fields: Mapping[str, Field], make: Callable[..., object]) -> Type:
    """Return the type of the objects that *make* is called for with these fields as arguments."""
    expected = f"{name} object"

    def read(value: object, path: str, reading: Reading) -> object:
        if not isinstance(value, dict):
            return reading.wrong(path, expected, value)
        before = len(reading.problems)
        values = _read_fields(fields, value, path, reading)
        if len(reading.problems) > before:
            return None
        try:
            return make(**values)
        except (TypeError, ValueError) as error:  # attrs' validators put more than the message into args
            reason = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
            reading.problems.append(f"{path or 'the value'}: {reason or type(error).__name__}")
            return None

    properties = {name: field.type.schema for name, field in fields.items()}
    required = [name for name, field in fields.items() if field.required]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Type(expected, schema, read)


def _read_fields(
    fields: Mapping[str, Field], value: Mapping[str, object], path: str, reading: Reading
) -> dict[str, object]:
    def under(name: str) -> str:
        return (f"{path}.{name}" if path else name) if name.isidentifier() else f"{path}[{name!r}]"

    known = f"one of {', '.join(fields)}" if fields else "none at all"
    unknown = islice((name for name in value if name not in fields), PROBLEMS_MAX + 1)
    reading.problems.extend(f"{under(name[:FOUND_CHARS_MAX])}: unknown name, expected {known}" for name in unknown)
    values = {}
    for name, field in fields.items():
        if name in value:
            values[name] = field.type.read(value[name], under(name), reading)
        elif field.required:
            reading.problems.append(f"{under(name)}: missing, expected {field.type.expected}")
    return values
