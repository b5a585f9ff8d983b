"""
JSON schemas of answers, as providers demand them. No I/O here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["closed", "is_strict"]

# Keywords whose values are no schemas, and those whose values are schemas by name.
_PLAIN = ("enum", "const", "default", "examples", "required")
_NAMED = ("properties", "$defs", "definitions", "patternProperties")


def closed(schema: Any) -> Any:
    """Return a JSON schema whose objects have no properties but those that it names, as providers demand it."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _each(closed, key, value) for key, value in schema.items()}
    if "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made


def _each(change: Callable[[Any], Any], key: str, value: Any) -> Any:
    """Change the schemas that a keyword's value is, or holds by name; plain values stay as they are."""
    if key in _PLAIN:
        return value
    if key in _NAMED and isinstance(value, Mapping):
        return {name: change(item) for name, item in value.items()}
    return change(value)


def is_strict(schema: Any) -> bool:
    """Whether every object in a schema is closed and has to have all its properties: what OpenAI calls strict."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
    inner = [value.values() if key in _NAMED and isinstance(value, Mapping) else [value]
             for key, value in schema.items() if key not in _PLAIN]  # fmt: skip
    return all(is_strict(item) for items in inner for item in items)
