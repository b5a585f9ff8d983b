"""
An API on 127.0.0.1, with two documents: a friendly one, which describes it, and a hostile one.

It answers what the script says, or else what it was asked, so that a test can see each part of a request.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import attrs

from .asgi import Receive, Send, request_of

__all__ = ["FRIENDLY", "Api", "Reply", "hostile"]


@attrs.frozen
class Reply:
    """What is answered, whatever was asked."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = attrs.field(factory=dict)
    stalls: bool = False  # after the head, until the client leaves
    endless: bool = False  # the body is sent over and over, until the client leaves


class Api:
    """The ASGI application."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.asked: list[dict[str, Any]] = []
        self.token: str | None = None  # what has to stand in Authorization or X-Api-Key, or as the query's api_key
        self.bytes_sent = 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        said = await request_of(scope, receive, send)
        if said is None:
            return
        headers = said.headers
        asked = {
            "method": said.method,
            "path": said.path,
            "query": said.query,
            "headers": {name: text for name, text in headers.items() if name not in ("host", "connection")},
            "body": said.body.decode("utf-8", "backslashreplace"),
        }
        self.asked.append(asked)
        reply = self.script.pop(0) if self.script else Reply(body=json.dumps(asked).encode())
        if self.token is not None and self.token not in self._shown(headers, asked):
            reply = Reply(401, json.dumps({"error": "who are you?", **asked}).encode())
        told = {"content-type": reply.content_type, **reply.headers}
        raw = [(name.encode(), value.encode()) for name, value in told.items() if value]
        await send({"type": "http.response.start", "status": reply.status, "headers": raw})
        while True:
            await send({"type": "http.response.body", "body": reply.body, "more_body": reply.endless or reply.stalls})
            self.bytes_sent += len(reply.body)
            if reply.stalls:
                while (await receive())["type"] != "http.disconnect":
                    pass
            if not reply.endless:
                return

    def _shown(self, headers: dict[str, str], asked: dict[str, Any]) -> list[str]:
        own = [headers.get(name, "").removeprefix("Bearer ") for name in ("authorization", "x-api-key")]
        cookies = [each.partition("=")[2] for each in headers.get("cookie", "").split("; ")]
        return [*own, *dict(parse_qsl(asked["query"])).values(), *cookies]


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


FRIENDLY: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://{place}.example/v1", "variables": {"place": {"default": "pets"}}}],
    "security": [{"signedIn": ["read"]}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "List the pets.",
                "tags": ["pets"],
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}},
                    {"$ref": "#/components/parameters/Tags"},
                ],
                "responses": {"200": _json({"type": "array", "items": _ref("Pet")})},
            },
            "post": {
                "operationId": "createPet",
                "description": "Add a pet.",
                "requestBody": {"required": True, "description": "The new one.", **_json(_ref("Pet"))},
            },
        },
        "/pets/{petId}": {
            "parameters": [{"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {
                "operationId": "getPetByID",
                "parameters": [
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
            },
            "delete": {"operationId": "delete pet!", "security": [{"key": []}]},
            "put": {
                "operationId": "renamePet",
                "requestBody": {
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "name": {"type": "string"},
                                    "tags": {"type": "array", "items": {"type": "string"}},
                                },
                                "required": ["name"],
                            }
                        }
                    }
                },
            },
        },
        "/pets/{petId}/photo": {
            "post": {
                "operationId": "uploadPhoto",
                "requestBody": {"content": {"multipart/mixed": {"schema": {"type": "object"}}}},
            }
        },
        "/health": {"get": {"security": []}},
        "/notes": {"post": {"operationId": "note", "requestBody": {"content": {"text/plain": {}}}, "security": []}},
    },
    "components": {
        "parameters": {
            "Tags": {
                "name": "tags",
                "in": "query",
                "description": "Any of these.",
                "schema": {"type": "array", "items": {"type": "string"}},
            }
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name", "id"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "minLength": 1},
                    "age": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
                    "kind": {"type": "string", "enum": ["cat", "dog"], "nullable": True},
                    "parent": _ref("Pet"),
                },
            }
        },
        "securitySchemes": {
            "signedIn": {"type": "oauth2", "flows": {}},
            "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        },
    },
}

ESC = "\x1b[2J\x1b]0;owned\x07\u202e"


def hostile(megabytes: float = 10) -> str:
    """
    A document that does what a document can: cycles, sizes, names that collide, servers elsewhere, control characters.
    """
    schemas: dict[str, Any] = {
        "Self": {"allOf": [_ref("Self")]},
        "One": _ref("Other"),
        "Other": _ref("One"),
        "Tree": {"type": "object", "properties": {"children": {"type": "array", "items": _ref("Tree")}}},
        "Away": {"$ref": "https://evil.example/schema.json"},
        "Nowhere": _ref("Missing"),
        "Odd": {"type": "thing", "pattern": "(a+)+$(", "minLength": -1, "enum": [], "items": [1], "required": "all"},
        "Backtracks": {"type": "string", "pattern": "^(a|a)*$"},
        "Text": {"type": "string", "description": ESC + "x" * 100_000, "enum": [ESC, "a"], "format": ESC},
        "Names": {"type": "object", "properties": {ESC: {}, "n" * 500: {}, "ok": {}}, "required": [ESC, "ok"]},
    }
    deep: Any = {"type": "string"}
    for _ in range(90):
        deep = {"type": "array", "items": deep}
    schemas["Deep"] = deep
    for level in range(40):  # each has two of the next: 2 ** 40 schemas, were they written out
        schemas[f"Bomb{level}"] = {"type": "object", "properties": {side: _ref(f"Bomb{level + 1}") for side in "ab"}}
    schemas["Bomb40"] = {"type": "string"}
    body = {name: _ref(name) for name in ("Self", "One", "Tree", "Away", "Nowhere", "Odd", "Text", "Names", "Deep")}
    paths: dict[str, Any] = {
        "/a": {"get": {"operationId": "same"}, "post": {"operationId": "Same", "requestBody": _json(_ref("Bomb0"))}},
        "/b": {"get": {"operationId": "s-a-m-e"}, "put": {"operationId": "same", "requestBody": _json(_ref("Self"))}},
        "/c": {"post": {"operationId": ESC, "description": ESC + "y" * 200_000, "requestBody": _json(
            {"type": "object", "properties": body})}},
        "/d": {"get": {"operationId": "elsewhere", "servers": [{"url": "https://evil.example"}]}},
        "/e": {"servers": [{"url": "//evil.example/v1"}], "get": {"operationId": "elsewhereToo"}},
        "/f": {"$ref": "#/paths/~1f"},
        "/g": {"$ref": "other.yaml#/paths/g"},
        "/../admin/{x}": {"get": {"operationId": "up"}},
        "/%2e%2e/admin": {"get": {"operationId": "upToo"}},
        "/h\r\nX-Evil: 1": {"get": {"operationId": "split"}},
        "/i": {"get": {"operationId": "i" * 100_000}, "delete": 17, "patch": {"parameters": [{"in": "nowhere"}]}},
        "/j/{a b}": {"get": {"operationId": "j", "parameters": [
            {"name": "a b", "in": "path"}, {"name": "a_b", "in": "query"}, {"name": "a b", "in": "query"},
            {"name": "Host", "in": "header"}, {"name": "bad header", "in": "header"}, {"name": ESC, "in": "query"}]}},
        "/k": {"get": {"operationId": "9lives"}, "trace": {"operationId": "trace"}},
        "no slash": {"get": {"operationId": "noSlash"}},
    }
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example/v1"}, {"url": "https://evil.example"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }
    missing = int(megabytes * 1e6) - len(json.dumps(document))
    count = 0
    while missing > 0:
        filler = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(100)}}
        schemas[f"Filler{count}"] = filler
        missing -= len(json.dumps(filler))
        count += 1
    return json.dumps(document)
