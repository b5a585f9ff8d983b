"""
Open questions of an invocation as forms of the protocol, and what a form was answered as a reply. Pure.

A form is flat: named fields of texts, numbers, booleans and choices. What an agent asks for is shown as it is if it is
such an object; a single value becomes the field `answer`; anything deeper is asked for as JSON in a text. Whatever the
form lets through is checked again by the question itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import mcp_types

from .._json import dumps, freeze, thaw
from ..errors import InvalidMessageError
from ..sessions import PendingCall
from ..types import Part

__all__ = ["Form", "form_of", "reply_to"]

MESSAGE_CHARS_MAX = 8_000
SCHEMA_CHARS_MAX = 2_000

# By the types of the protocol's fields: what may be said of one. What else a schema says is checked with the answer.
_COMMON = ("type", "title", "description", "default")
_KEPT: Mapping[str, tuple[str, ...]] = {
    "string": (*_COMMON, "minLength", "maxLength"),
    "number": (*_COMMON, "minimum", "maximum"),
    "integer": (*_COMMON, "minimum", "maximum"),
    "boolean": _COMMON,
}


class Form(NamedTuple):
    """A question as a client shows it."""

    message: str
    schema: dict[str, Any]
    answer: Literal["fields", "value", "json"]
    """What is the answer: all fields; the value of the only one; or what its text says as JSON."""


def form_of(question: PendingCall) -> Form | None:
    """Return the form for a question; None if no client can answer it: what is awaited then comes from elsewhere."""
    if question.kind == "confirmation":
        asked = f"May {question.author} call the tool {question.tool} with {dumps(question.args)}?"
        return Form(_told(question.hint, asked), _one("confirmed", {"type": "boolean"}), "value")
    if question.kind == "credential":
        key = question.auth_config.credential_key if question.auth_config is not None else "it"
        asked = (
            f"{question.author} needs a credential ({key}). It is saved where the agent runs, and never sent here. "
            "Is it saved now?"
        )
        return Form(_told(question.hint, asked), _one("saved", {"type": "boolean"}), "value")
    if question.kind == "message":
        return Form(_told(question.hint), _one("answer", {"type": "string"}), "value")
    if question.kind == "input" or (question.kind == "long_running" and question.schema is not None):
        return _input(question)
    return None


def reply_to(question: PendingCall, form: Form, said: mcp_types.ElicitResult) -> Part | None:
    """
    Return the part of a message that answers a question; None if nobody has decided yet.

    Raises:
        InvalidMessageError: What was said does not answer it, or declines what cannot be declined.
    """
    if said.action == "cancel":
        return None
    value: Any
    if said.action == "accept":
        value = _value(form, said.content or {})
    else:
        value = False if question.kind in ("confirmation", "credential") else None
    (part,) = question.reply(value).parts
    return part


def _value(form: Form, content: Mapping[str, Any]) -> Any:
    if form.answer == "fields":
        return dict(content)
    ((name, _),) = form.schema["properties"].items()
    if name not in content:
        raise InvalidMessageError(f"expected the field {name!r} in the answer, found none")
    if form.answer == "value":
        return content[name]
    try:
        return json.loads(str(content[name]))
    except (ValueError, RecursionError):
        raise InvalidMessageError(f"expected JSON in the field {name!r}, found another text") from None


def _input(question: PendingCall) -> Form:
    asked = question.hint
    if asked is None and question.kind == "long_running":
        asked = f"{question.author} asks for a choice."
    message = _told(asked)
    schema = question.schema
    if schema is None:
        return Form(message, _one("answer", {"type": "string"}), "value")
    options = [each for each in schema.get("anyOf") or () if each != {"type": "null"}]
    plain: Any = options[0] if len(options) == 1 else schema  # null is what declining says
    fields = _fields(plain)
    if fields is not None:
        return Form(message, fields, "fields")
    field = _field(plain)
    if field is not None:
        return Form(message, _one("answer", field), "value")
    described = f"JSON that fits this schema: {dumps(freeze(schema))[:SCHEMA_CHARS_MAX]}"
    return Form(message, _one("answer", {"type": "string", "description": described}), "json")


def _one(name: str, field: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: field}, "required": [name]}


def _fields(schema: Any) -> dict[str, Any] | None:
    """*schema* as that of a flat form; None if it is none."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object" or not schema.get("properties"):
        return None
    fields = {name: _field(each) for name, each in schema["properties"].items()}
    if None in fields.values():
        return None
    required = [name for name in schema.get("required") or () if name in fields]
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def _field(schema: Any) -> dict[str, Any] | None:
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        if not (isinstance(items, Mapping) and items.get("type") == "string" and _is_choice(items)):
            return None
        kept = {key: schema[key] for key in (*_COMMON, "minItems", "maxItems") if key in schema}
        return {**thaw(freeze(kept)), "items": {"type": "string", "enum": list(items["enum"])}}
    if not isinstance(kind, str) or kind not in _KEPT:
        return None
    field: dict[str, Any] = thaw(freeze({key: schema[key] for key in _KEPT[kind] if key in schema}))
    if "enum" in schema:
        if kind != "string" or not _is_choice(schema):
            return None
        field["enum"] = list(schema["enum"])
    return field


def _is_choice(schema: Mapping[str, Any]) -> bool:
    options = schema.get("enum")
    return isinstance(options, (list, tuple)) and bool(options) and all(isinstance(each, str) for each in options)


def _told(*said: Any) -> str:
    texts = [each if isinstance(each, str) else dumps(freeze(each)) for each in said if each is not None]
    return "\n".join(texts)[:MESSAGE_CHARS_MAX] or "The agent waits for an answer."
