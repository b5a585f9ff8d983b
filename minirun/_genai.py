"""
What `google.genai.types` has beside the values: schemas in its spelling, its enumerations, contents of one side.

`minirun.types` has these names; they are loaded when one of them is asked for. Each makes what everything else takes
anyway: a `Schema` is a JSON schema, an enumeration's member is a text, and `UserContent` makes a `Content`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from ._fields import is_list
from ._json import brief, shown
from .errors import InvalidValueError
from .types import Content, Part

__all__ = ["FinishReason", "ModelContent", "Schema", "Type", "UserContent"]


class Type(StrEnum):
    """The types of a `Schema`, which are those of JSON."""

    ARRAY = "ARRAY"
    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    NULL = "NULL"
    NUMBER = "NUMBER"
    OBJECT = "OBJECT"
    STRING = "STRING"


class FinishReason(StrEnum):
    """Why a model has stopped. What it is compared with, `event.finish_reason`, is a text and may be any other."""

    FINISH_REASON_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
    STOP = "STOP"
    MAX_TOKENS = "MAX_TOKENS"
    SAFETY = "SAFETY"
    RECITATION = "RECITATION"
    LANGUAGE = "LANGUAGE"
    OTHER = "OTHER"
    BLOCKLIST = "BLOCKLIST"
    PROHIBITED_CONTENT = "PROHIBITED_CONTENT"
    SPII = "SPII"
    MALFORMED_FUNCTION_CALL = "MALFORMED_FUNCTION_CALL"
    UNEXPECTED_TOOL_CALL = "UNEXPECTED_TOOL_CALL"
    IMAGE_SAFETY = "IMAGE_SAFETY"


# --- schemas ----------------------------------------------------------------------------------------------------------

# The fields of a schema, with their keywords in JSON schema.
_KEYWORDS = {
    "any_of": "anyOf",
    "default": "default",
    "description": "description",
    "enum": "enum",
    "example": "example",
    "format": "format",
    "items": "items",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "maximum": "maximum",
    "min_items": "minItems",
    "min_length": "minLength",
    "minimum": "minimum",
    "pattern": "pattern",
    "properties": "properties",
    "property_ordering": "propertyOrdering",
    "required": "required",
    "title": "title",
}
_JSON_KEYWORDS = frozenset(_KEYWORDS.values())
_ALL = ", ".join(sorted({*_KEYWORDS, "nullable", "type"}))


class Schema(dict[str, Any]):
    """
    A JSON schema, written with the field names of `google.genai.types`:

        Schema(type=Type.OBJECT, properties={"city": Schema(type="STRING", min_length=1)}, required=["city"])

    is `{"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}, "required": ["city"]}`. It goes
    wherever a JSON schema does: the parameters of a declaration, `output_schema`, `response_schema`.

    `nullable=True` allows null beside the type. Nested schemas may be dicts, and the names of fields those of JSON.

    Raises:
        InvalidValueError: A field is not one of them, or a type is not one of JSON's.
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(_json_schema(fields, "Schema"))


def _json_schema(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if fields.get("type") is not None:
        schema["type"] = _type(fields["type"], f"{path}.type")
    for name, value in fields.items():
        if name in ("type", "nullable") or value is None:
            continue
        keyword = _KEYWORDS.get(name, name)
        if keyword not in _JSON_KEYWORDS:
            raise InvalidValueError(path, f"expected the fields of a schema ({_ALL}), found {brief(name)}")
        schema[keyword] = _within(keyword, value, f"{path}.{name}")
    if fields.get("nullable"):
        if "type" in schema:
            schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        if "anyOf" in schema:
            schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema


def _type(value: object, path: str) -> str:
    name = value.upper() if isinstance(value, str) else ""
    if name not in Type.__members__:
        raise InvalidValueError(path, f"expected one of {', '.join(Type)}, found {shown(value)}")
    return name.lower()


def _within(keyword: str, value: Any, path: str) -> Any:
    """What stands in a field: schemas, in those that have some."""
    if keyword == "items":
        return _nested(value, path)
    if keyword == "anyOf" and is_list(value):
        return [_nested(each, f"{path}[{index}]") for index, each in enumerate(value)]
    if keyword == "properties" and isinstance(value, Mapping):
        return {key: _nested(each, f"{path}[{brief(key)}]") for key, each in value.items()}
    return value


def _nested(value: object, path: str) -> dict[str, Any]:
    if isinstance(value, Schema):
        return value
    if not isinstance(value, Mapping):
        raise InvalidValueError(path, f"expected a Schema, found {shown(value)}")
    return _json_schema(value, path)


# --- contents ---------------------------------------------------------------------------------------------------------


def UserContent(parts: str | Part | Sequence[str | Part | Mapping[str, Any]]) -> Content:
    """Make a Content of the user: of a text, a part, or a list of these."""
    return _content("user", parts)


def ModelContent(parts: str | Part | Sequence[str | Part | Mapping[str, Any]]) -> Content:
    """Make a Content of the model: of a text, a part, or a list of these."""
    return _content("model", parts)


def _content(role: str, parts: Any) -> Content:
    given = parts if is_list(parts) else [parts]
    return Content(role=role, parts=[Part(text=part) if isinstance(part, str) else part for part in given])
