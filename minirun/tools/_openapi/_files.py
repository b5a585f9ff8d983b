"""What of a body is a file, as the document says it; models are shown the name of an artifact in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._document import Document, UnreadableError

__all__ = ["NAMED", "with_names"]

_BY_NAME = "The name of an artifact: its content is sent."
NAMED: Mapping[str, Any] = {"type": "string", "minLength": 1, "description": _BY_NAME}
"""The schema of a body that is a file."""


def _is_file(document: Document, schema: object) -> bool:
    try:
        found = document.resolved(schema)
    except UnreadableError:
        return False
    is_encoded = "contentMediaType" in found and "contentEncoding" not in found  # OpenAPI 3.1
    return found.get("format") == "binary" or (is_encoded and found.get("type", "string") == "string")


def with_names(document: Document, schema: object) -> tuple[Any, frozenset[str]]:
    """Return the schema of a form with names in the place of files, and the fields that have them."""
    try:
        whole = document.resolved(schema)
    except UnreadableError:
        return schema, frozenset()
    fields = whole.get("properties")
    made: dict[str, Any] = {}
    for name, each in fields.items() if isinstance(fields, dict) else ():
        items = each.get("items") if isinstance(each, dict) and each.get("type") == "array" else None
        if _is_file(document, each):
            made[name] = _named(each)
        elif items is not None and _is_file(document, items):
            made[name] = {**each, "items": _named(items)}
    if not made:
        return schema, frozenset()
    return {**whole, "properties": {**whole["properties"], **made}}, frozenset(made)


def _named(schema: Mapping[str, Any]) -> dict[str, Any]:
    said = schema.get("description")
    return {**NAMED, "description": f"{said} {_BY_NAME}"} if isinstance(said, str) else dict(NAMED)
