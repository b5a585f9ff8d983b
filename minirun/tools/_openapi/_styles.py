"""
Values as parts of an address or a header, in the styles `simple`, `form` and `deepObject` of OpenAPI (RFC 6570).

Everything in a value is escaped: no value makes another segment of a path, another parameter, or another header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ...errors import ArgumentError
from ._operations import ToolArgument

__all__ = ["escaped", "header_text", "in_header", "in_path", "in_query", "plain"]


def plain(value: Any) -> str:
    """A value as a text; what is no scalar as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def escaped(value: Any) -> str:
    """A value as a part of an address."""
    return quote(plain(value), safe="")


def _pairs(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(escaped(name), escaped(each)) for name, each in value.items() if each is not None]


def _joined(value: Any, *, explode: bool) -> str:
    if isinstance(value, list):
        return ",".join(map(escaped, value))
    if isinstance(value, dict):
        return ",".join(("=" if explode else ",").join(pair) for pair in _pairs(value))
    return escaped(value)


def in_path(parameter: ToolArgument, value: Any) -> str:
    """
    Return what stands in the place of a variable.

    Raises:
        ArgumentError: It is empty: the path would be another one.
    """
    if parameter.is_json:
        return escaped(json.dumps(value))
    found = _joined(value, explode=parameter.explode)
    if found in ("", "."):
        raise ArgumentError(f"{parameter.name}: expected a value, found an empty one")
    return found


def in_query(parameter: ToolArgument, value: Any) -> list[tuple[str, str]]:
    """Return the pairs, escaped, that a parameter is in a query."""
    name = escaped(parameter.original)
    if parameter.is_json:
        return [(name, escaped(json.dumps(value)))]
    if parameter.style == "deepObject" and isinstance(value, dict):
        return [(f"{name}%5B{key}%5D", each) for key, each in _pairs(value)]
    if parameter.explode and isinstance(value, list):
        return [(name, escaped(each)) for each in value]
    if parameter.explode and isinstance(value, dict):
        return _pairs(value)
    return [(name, _joined(value, explode=False))]


def in_header(parameter: ToolArgument, value: Any) -> str:
    """
    Return the value of a header.

    Raises:
        ArgumentError: No header can hold it.
    """
    if parameter.is_json:
        text = json.dumps(value)
    elif isinstance(value, list):
        text = ",".join(map(plain, value))
    elif isinstance(value, dict):
        joint = "=" if parameter.explode else ","
        text = ",".join(f"{name}{joint}{plain(each)}" for name, each in value.items() if each is not None)
    else:
        text = plain(value)
    return header_text(parameter.name, text)


def header_text(name: str, text: str) -> str:
    """Return *text*; raises ArgumentError if no header can hold it."""
    if not (text.isascii() and text.isprintable()) or text != text.strip():
        raise ArgumentError(f"{name}: expected a text of printable ASCII characters, as headers have, found another")
    return text
