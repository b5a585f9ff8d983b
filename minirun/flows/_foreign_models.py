"""
Pydantic models as types of values, by what they can do: minirun does not import pydantic, and needs none.

A model has its own JSON schema and its own validator, so its rules of reading are its own, too: a model that is not
strict takes "3" for an int. It reads JSON (`model_validate_json`), because in that mode a strict one takes text for a
date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from .._json import brief, dumps
from ..errors import InvalidValueError
from ._types import PROBLEMS_MAX, Field, Reading, Schema, Type, cut, plain, shown

__all__ = ["dumped", "is_model", "model_field", "model_fields", "model_type"]

_STRICT = {"strict": True}
_METHODS = ("model_json_schema", "model_validate_json", "model_dump")


def is_model(tp: object) -> bool:
    """Whether *tp* is a class of pydantic models, or one that does what they do."""
    return isinstance(tp, type) and all(callable(getattr(tp, name, None)) for name in _METHODS)


def dumped(value: Any, path: str, *, to_be_read: bool = False) -> Any:
    """
    Return a model as JSON, under the names by which it is read; without its computed fields, if it is *to_be_read*.

    Its sets are in one order, as theirs differs from process to process; those whose items are models themselves are as
    pydantic gives them.

    Raises:
        InvalidValueError: A part of it has no JSON form.
    """
    try:
        found = value.model_dump(mode="json", by_alias=True, round_trip=to_be_read)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(
            path, f"{type(value).__name__} cannot be written as JSON: {_first_line(error)}"
        ) from None
    if not _has_lists(found):
        return found
    try:
        return _in_order(found, value.model_dump(by_alias=True, round_trip=to_be_read))
    except (TypeError, ValueError):  # not in Python's own values: a set of models would be one of dicts
        return found


def _has_lists(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_lists, value.values()))
    return isinstance(value, list) and (len(value) > 1 or any(map(_has_lists, value)))


def _in_order(value: Any, raw: Any) -> Any:
    """JSON with what were sets in one order; *raw* is the same in Python's own values, which tell what they were."""
    if isinstance(value, list) and isinstance(raw, (set, frozenset)):
        inner = next(iter(raw), None)
        return sorted((_in_order(item, inner) for item in value), key=dumps)
    if isinstance(value, list) and isinstance(raw, (list, tuple)) and len(value) == len(raw):
        return [_in_order(item, inner) for item, inner in zip(value, raw, strict=True)]
    if isinstance(value, dict) and isinstance(raw, dict) and len(value) == len(raw):
        return {name: _in_order(item, inner) for (name, item), inner in zip(value.items(), raw.values(), strict=True)}
    return value


def _first_line(error: Exception) -> str:
    return cut(str(error).partition("\n")[0], 200)


def model_type(tp: Any, where: str, definitions: dict[str, Schema], taken: Collection[str]) -> Type:
    """
    Return what a model is to who fills it. What its schema refers to is added to *definitions*, not as one of *taken*.

    Raises:
        TypeError: It has no JSON schema. *where* begins the message.
    """
    schema = _schema_of(tp, where, "")
    number = 1
    while any(name in taken or definitions.get(name, body) != body for name, body in schema.get("$defs", {}).items()):
        number += 1  # another class of that name is there
        schema = _schema_of(tp, where, f"_{number}")
    definitions.update(schema.pop("$defs", {}))
    name = re.sub(r"\W", "_", tp.__name__)
    expected = f"{name} object" if "$ref" in schema or schema.get("type") == "object" else name

    def read(value: object, path: str, reading: Reading) -> object:
        if expected != name and not isinstance(value, dict):
            return reading.wrong(path, expected, value)
        try:
            return tp.model_validate_json(json.dumps(value), **(_STRICT if reading.strict else {}))
        except (TypeError, ValueError) as error:
            reading.problems.extend(_problems(error, path))
            return None

    return Type(expected, schema, read)


def model_fields(tp: Any, where: str) -> tuple[dict[str, Field], bool]:
    """
    Return what each field of a model may hold, by the name by which it is read; and whether it takes other names, too.

    Raises:
        TypeError: It has no JSON schema, or none of an object with fields. *where* begins the message.
    """
    schema = _schema_of(tp, where, "")
    definitions = schema.pop("$defs", {})
    body = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if body.get("type") != "object":
        msg = f"{where}: expected a model with fields, found {tp.__qualname__}, whose values are no objects"
        raise TypeError(msg)
    parts = {name: {**part, "$defs": definitions} for name, part in body.get("properties", {}).items()}
    required = body.get("required", ())
    fields = {name: Field(model_field(tp, name, part), name in required) for name, part in parts.items()}
    return fields, bool(body.get("additionalProperties"))


def model_field(tp: Any, name: str, schema: Schema) -> Type:
    """
    Return what the field of this name may hold: the model's own validator is asked about it alone, and strictly.

    What the model says of fields together, and of those that are missing, is left out.
    """

    def read(value: object, path: str, reading: Reading) -> object:
        try:
            tp.model_validate_json(json.dumps({name: value}), **_STRICT)
        except (TypeError, ValueError) as error:
            reading.problems.extend(_problems(error, path, (name,)))
        return value

    return Type(f"what {tp.__name__} has as {name!r}", schema, read)


def _schema_of(tp: Any, where: str, suffix: str) -> dict[str, Any]:
    try:
        schema = tp.model_json_schema(ref_template=f"#/$defs/{{model}}{suffix}")
    except Exception as error:  # pydantic's own kinds, which cannot be named here
        msg = f"{where}: {tp.__qualname__} has no JSON schema ({_first_line(error)})"
        raise TypeError(msg) from None
    definitions = {f"{name}{suffix}": body for name, body in schema.pop("$defs", {}).items()}
    return plain({**schema, "$defs": definitions} if definitions else schema)  # type: ignore[no-any-return]


def _problems(error: Exception, path: str, below: tuple[str, ...] = ()) -> list[str]:
    """What a validator has found wrong *below* a place, a line for each problem with its path."""
    told = getattr(error, "errors", None)
    if not callable(told):
        return [f"{path or 'the value'}: {error!s:.200}"]
    found = (each for each in told(include_url=False) if tuple(each["loc"][: len(below)]) == below)
    return [_problem(each, path, len(below)) for each in islice(found, PROBLEMS_MAX + 1)]


def _problem(found: Mapping[str, Any], path: str, level: int) -> str:
    for step in found["loc"][level:]:
        dotted = isinstance(step, str) and step.isidentifier()
        path += f".{step}" if dotted and path else str(step) if dotted else f"[{brief(step, 60)}]"
    value = "" if found["type"] == "missing" else f", found {shown(found['input'])}"
    return f"{path or 'the value'}: {found['msg']}{value}"
