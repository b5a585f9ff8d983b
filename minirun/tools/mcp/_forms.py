"""What a server asks of a person, as a question of the runtime, and the answer as the server wants it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mcp_types
from pydantic import ValidationError

from ..._json import dumps, freeze, thaw
from ...errors import ConfigurationError, McpError
from ...flows._json_schema import compile_schema
from ._text import cleaned

__all__ = ["Form", "fingerprint", "form_of", "reply_of"]

MESSAGE_CHARS_MAX = 4_000
URL_CHARS_MAX = 2_000
FIELDS_MAX = 100

# What a form of the protocol may say of a field. `pattern` and `format` are left out: the server checks them, and a
# pattern of a stranger is code that runs here.
_KEPT = (
    *("type", "title", "description", "default", "enum", "const"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"),
)


class Form(NamedTuple):
    """A question: what a person is told, and the schema of the answer."""

    message: str
    schema: Mapping[str, Any]
    about: Mapping[str, Any]
    """For the program that shows it."""


def fingerprint(request: Mapping[str, Any]) -> str:
    """What two questions have in common that are the same to a person."""
    params = {key: value for key, value in (request.get("params") or {}).items() if key not in ("_meta", "task")}
    return dumps(freeze({"method": request.get("method"), "params": params}))


def form_of(params: Mapping[str, Any], label: str, tool: str) -> Form:
    """
    Return the question for what `elicitation/create` asks for.

    Raises:
        McpError: It cannot be asked.
    """
    said = cleaned(str(params.get("message", "")), MESSAGE_CHARS_MAX)
    told = f"The MCP server {label!r} asks, for its tool {tool!r}: {said}"
    if params.get("mode") == "url":
        url = str(params.get("url", ""))
        if (
            len(url) > URL_CHARS_MAX
            or cleaned(url, URL_CHARS_MAX) != url
            or not url.startswith(("https://", "http://"))
        ):
            raise McpError(f"expected the MCP server {label!r} to ask for a visit of a web page, found no URL of one")
        more = f"\nIt wants you to visit {url}\nAnswer true once you have, false to decline."
        return Form(told + more, {"type": "boolean"}, {"url": url})
    schema = _schema(params.get("requestedSchema") or {}, label)
    return Form(f"{told}\nAnswer null to decline.", {"anyOf": [schema, {"type": "null"}]}, {})


def reply_of(params: Mapping[str, Any], answer: Any, label: str) -> mcp_types.ElicitResult:
    """
    What a person has answered, for the server.

    Raises:
        McpError: The protocol has no such answers, though the server has asked for one. The message does not show it.
    """
    if params.get("mode") == "url":
        return mcp_types.ElicitResult(action="accept" if answer is True else "decline")
    if answer is None:
        return mcp_types.ElicitResult(action="decline")
    try:
        return mcp_types.ElicitResult(action="accept", content=thaw(answer))
    except ValidationError:
        msg = f"expected the MCP server {label!r} to ask for texts, numbers, booleans and lists of texts"
    raise McpError(f"{msg}, found a form of which the answer is something else")


def _schema(requested: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    fields = requested.get("properties") or {}
    required = [name for name in requested.get("required") or () if name in fields]
    if len(fields) > FIELDS_MAX or any(len(name) > 200 or cleaned(name, 200) != name for name in fields):
        msg = f"expected a form of up to {FIELDS_MAX} named fields from the MCP server {label!r}, found another"
        raise McpError(msg)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _field(asked) for name, asked in fields.items()},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    try:
        compile_schema(schema)
    except ConfigurationError as error:
        msg = f"expected the MCP server {label!r} to ask for what a form can have, found another schema"
        raise McpError(f"{msg}: {cleaned(str(error), 300)}") from None
    return schema


def _field(said: object) -> Any:
    if not isinstance(said, Mapping):
        return True
    kept = {key: _plain(value) for key, value in said.items() if key in _KEPT}
    for key in ("anyOf", "oneOf"):
        if isinstance(said.get(key), (list, tuple)):
            kept[key] = [_field(each) for each in said[key]]
    if "items" in said:
        kept["items"] = _field(said["items"])
    return kept


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return cleaned(value, MESSAGE_CHARS_MAX)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
