"""
Tables of what becomes of OpenAPI documents, as JSON in `tests/fixtures/openapi`: schemas, operations, requests, answers
and who is let in. Each case has one thing that the others have not; the questions are here.

    python -m tests.openapi_tables     write anew what is made of everything; read the difference before it is kept
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minirun._json import dumps, thaw
from minirun._urls import url_of
from minirun._web import WebAnswer
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import MinirunError
from minirun.tools._openapi._answer import error_of, result_of
from minirun.tools._openapi._document import Document, read_document
from minirun.tools._openapi._multipart import file_names
from minirun.tools._openapi._operations import Operation, base_of, operations_of, parameters_of
from minirun.tools._openapi._request import request_for, with_credential
from minirun.tools._openapi._security import checked_auth, chosen
from minirun.tools._openapi._tool import checked_headers
from minirun.types import Blob

from .tables import write
from .wire_tables import plain

__all__ = ["TABLES"]

BASE = "https://api.example/v1"


def document(paths: Any = None, **more: Any) -> Document:
    """A document, which is read."""
    return read_document({"openapi": "3.1.0", "servers": [{"url": BASE}], "paths": paths or {}, **more}, None, "json")


def operations(read: Document, given: bool = True, chars_max: int = 60) -> list[Any]:
    """The operations of a document, or why there is none."""
    base = base_of(read, BASE if given else None, False)
    return list(operations_of(read, base, is_base_given=given, chars_max=chars_max))


def of_error(make: Callable[..., Any], *given: Any) -> Any:
    """What is made, or the error."""
    try:
        return make(*given)
    except MinirunError as error:
        return f"{type(error).__name__}: {error}"


# --- schemas ----------------------------------------------------------------------------------------------------------


def _schemas() -> Iterator[tuple[str, Any]]:
    for kind in ("null", "integer", ["string", "null", "string"], ["string"], "hm", ["string", "hm"], [], 3, ["a", 3]):
        yield f"the type {kind}", {"type": kind}
    yield "true", True
    yield "no schema", 3
    yield "a format", {"type": "string", "format": "date"}
    yield "a long format", {"format": "a" * 41}
    yield "a format that is none", {"format": 3}
    for count in (0, 1, 200, 201):
        yield f"{count} options", {"enum": list(range(count))}
        yield f"{count} choices", {"anyOf": [{"type": "string"}] * count}
    for size in (3_996, 3_997):  # with quotes and brackets
        yield f"an option of {size} characters", {"enum": ["a" * size]}
        yield f"a constant of {size + 2} characters", {"const": "a" * (size + 2)}
    yield "options that turn the text", {"enum": ["a\u202eb"], "const": {"a\x1b": 1}, "default": [["\u2028"]]}
    yield "options of all kinds", {"enum": [1, "a", None, {"b": [1]}], "const": {"a": 1}, "default": ["x"]}
    yield "a number that is none", {"default": 10**400, "minimum": 10**400}
    for word in ("minLength", "maxLength", "minItems", "maxItems"):
        for value in (0, 3, -1, 1.5, True, "3"):
            yield f"{word} {value!r}", {word: value}
    for word in ("minimum", "maximum"):
        other = f"exclusive{word.capitalize()}"
        for value in (0, -1.5, "3", True):
            yield f"{word} {value!r}", {word: value}
        yield f"{word} that is out", {word: 3, other: True}
        yield f"{word} that is in", {word: 3, other: False}
        yield f"another {word}", {other: 3}
        yield f"two {word}", {word: 3, other: 4}
    for step in (0, -1, 0.5, 2, "2", True):
        yield f"multiples of {step!r}", {"multipleOf": step}
    for value in (True, False, 1):
        yield f"uniqueItems {value!r}", {"uniqueItems": value}
    for pattern in ("^a+$", "(", "a" * 300, "a" * 301, 3):
        yield f"the pattern {str(pattern)[:5]} of {len(str(pattern))}", {"pattern": pattern}
    yield "an object", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "a", 3, "b"]}
    yield "names", {"properties": {"a" * 200: {}, "a" * 201: {}, "a\x00": {}, "": {}}, "required": ["a" * 201, "a\x00"]}
    yield (
        "a field that is read only",
        {
            "properties": {"id": {"readOnly": True}, "a": {"readOnly": False}},
            "required": ["id", "a"],
            "additionalProperties": False,
        },
    )
    yield "fields of anything", {"properties": {"a": True, "b": False, "c": {}}, "required": ["a", "c"]}
    yield (
        "fields that are none",
        {"properties": [], "required": "a", "additionalProperties": 3, "items": [], "anyOf": {}},
    )
    yield "no more fields", {"properties": {"a": {}}, "additionalProperties": False}
    yield "more fields", {"additionalProperties": {"type": "string"}}
    yield "more fields by pattern", {"additionalProperties": False, "patternProperties": {"a": {}}}
    yield "items", {"type": "array", "items": {"type": "string"}, "prefixItems": [{"type": "integer"}, False]}
    yield "items that are none", {"type": "array", "items": False}
    for word in ("allOf", "anyOf", "oneOf", "not"):
        yield word, {word: [{"type": "string"}, True]}
    yield "anyOf and oneOf", {"anyOf": [{"type": "string"}], "oneOf": [{"minLength": 1}], "allOf": [{"maxLength": 2}]}
    yield "oneOf beside anyOf", {"anyOf": [{"type": "string"}], "oneOf": [{"minLength": 1}]}
    for schema in (
        {"type": "string"},
        {"type": ["string", "null"]},
        {"enum": ["a"]},
        {"enum": ["a", None]},
        {},
        {"anyOf": [{"type": "string"}], "description": "It."},
        {"allOf": [{"type": "string"}], "type": "string"},
    ):
        yield f"nullable {schema}", {**schema, "nullable": True}
    yield "not nullable", {"type": "string", "nullable": False}
    yield "a description", {"description": "It is.\nSo."}
    for length in (500, 501):
        yield f"a description of {length}", {"description": "a" * length}
    for count in (40, 41):
        yield f"{count} descriptions", {"properties": {f"p{n}": {"description": "a" * 500} for n in range(count)}}
    inside: dict[str, Callable[[Any], Any]] = {
        "items": lambda schema: schema,
        "additionalProperties": lambda schema: schema,
        "properties": lambda schema: {"a": schema},
        "allOf": lambda schema: [schema],
        "prefixItems": lambda schema: [schema],
    }
    for word, put in inside.items():
        for level in (12, 13):
            deep: Any = {"type": "string"}
            for _ in range(level):
                deep = {word: put(deep)}
            yield f"{level} levels of {word}", deep
    for count in (999, 1000):
        yield f"{count} fields", {"properties": {f"p{n}": {"type": "string"} for n in range(count)}}
    for name in ("Pet", "Ring", "Ring2", "Chain", "Same", "nobody", "a~1b%20c", "Odd ü", "Empty"):
        yield (
            f"a reference to {name}",
            {"$ref": f"#/components/schemas/{name}", "description": "See.", "type": "string"},
        )
    yield "a reference elsewhere", {"$ref": "other.json#/a"}
    yield (
        "two of one name",
        {
            "anyOf": [
                {"$ref": "#/components/schemas/Pet"},
                {"$ref": "#/components/more/Pet"},
                {"$ref": "#/components/more/Pet"},
                {"$ref": "#/components/list/1"},
            ]
        },
    )
    yield "a reference to all", {"$ref": "#"}


COMPONENTS = {
    "schemas": {
        "Pet": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Pet"}}},
        "Ring": {"$ref": "#/components/schemas/Ring2"},
        "Ring2": {"anyOf": [{"$ref": "#/components/schemas/Ring"}, {"type": "string"}]},
        "Chain": {"allOf": [{"$ref": "#/components/schemas/Same"}, {"minLength": 1}]},
        "Same": {"$ref": "#/components/schemas/Pet"},
        "a/b c": {"type": "integer"},
        "Odd ü": {"type": "number"},
        "Empty": True,
    },
    "more": {"Pet": {"type": "string"}},
    "list": [1, {"type": "boolean"}],
}


def schemas() -> dict[str, Any]:
    """What each schema becomes, as that of a body."""
    made: dict[str, Any] = {}
    for name, schema in _schemas():
        body = {"content": {"application/json": {"schema": schema}}}
        read = document({"/a": {"post": {"requestBody": body}}}, components=COMPONENTS)
        [operation] = operations(read)
        found = json.loads(dumps(parameters_of(read, operation)))
        assert (found["type"], found["additionalProperties"], found["required"]) == ("object", False, [])
        made[name] = _told({"body": found["properties"]["body"], **found.get("$defs", {})})
    return made


def _told(value: Any) -> Any:
    """What is long by its length."""
    if isinstance(value, dict):
        if len(value) > 20:
            last = list(value)[-1]
            return {"items": len(value), last: _told(value[last])}
        return {name if len(name) < 40 else f"{name[0]}*{len(name)}": _told(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_told(each) for each in value] if len(value) < 20 else [len(value), _told(value[-1])]
    return f"{value[0]}*{len(value)}{value[-2:]}" if isinstance(value, str) and len(value) > 100 else value


# --- operations -------------------------------------------------------------------------------------------------------


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Paths, each with an operation or two."""
    ask: dict[str, Any] = {"operationId": "ask"}
    body: dict[str, Any]
    for method in ("get", "put", "post", "delete", "options", "head", "patch", "trace"):
        body = {"content": {"application/json": {}}}
        yield f"{method} with a body", {"/a": {method: {**ask, "requestBody": body}}}
    for said in (
        "getPetById",
        "HTTPServer2Go",
        "a__b--c",
        "_x_",
        "3d",
        "ü",
        "",
        3,
        "a" * 61,
        "a" * 60,
        "a" * 501 + "B",
    ):
        yield f"the name {str(said)[:12]} of {len(str(said))}", {"/a-b/{c}": {"get": {"operationId": said}}}
    yield "one name for all", {f"/{n}": {"get": ask, "put": ask} for n in range(2)}
    yield "a long name for all", {f"/{n}": {"get": {"operationId": "a" * 60}} for n in range(2)}
    for path in ("a", "/../a", "/a/%2e%2E/b", "/a\n", "/" + "a" * 999, "/" + "a" * 1000, "/a/./b", "/..a"):
        yield f"the path {path[:12]!r} of {len(path)}", {path: {"get": ask}}
    for told in (
        {"description": "D", "summary": "S"},
        {"summary": "S"},
        {"description": " "},
        {"description": 3, "summary": "S"},
        {"description": "a" * 1000},
        {"description": "a" * 1001},
        {"description": "a\x1b[1m\tb\nc"},
        {"description": " " * 3990 + "a" * 20},
    ):
        yield f"told {str(told)[:60]} {len(str(told))}", {"/a": {"get": told, "description": "I", "summary": "J"}}
    yield "told of the path", {"/a": {"get": {}, "summary": "J"}}
    yield "tags", {"/a": {"get": {**ask, "tags": ["a\nb", 3, "c" * 101]}}}
    yield "tags that are none", {"/a": {"get": {**ask, "tags": "a"}}}
    yield "a reference", {"/a": {"$ref": "#/components/items/a"}}
    yield (
        "references that lead nowhere",
        {"/a": {"$ref": "#/no"}, "/b": {"get": {"$ref": "x#/no"}}, "/c": 3, "/d": {"get": 3}},
    )
    yield "references without end", {"/a": {"$ref": "#/components/items/b"}}
    yield "references that are long", {"/a": {"$ref": "#/components/hops/19"}, "/b": {"$ref": "#/components/hops/18"}}
    for place in ("path", "query", "header", "cookie", "body", None):
        for more in ({}, {"required": True, "explode": True}, {"explode": False, "required": "yes"}):
            parameter = {"name": "x", "in": place, "schema": {"type": "string"}, "description": "It.", **more}
            yield f"a parameter in {place} {more}", {"/a/{x}": {"get": {**ask, "parameters": [parameter]}}}
    for place in ("path", "query", "header", "cookie"):
        for style in ("simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject", 3):
            parameter = {"name": "x", "in": place, "style": style}
            yield f"{style} in {place}", {"/a/{x}": {"get": {**ask, "parameters": [parameter]}}}
    contents: list[Any] = [{"application/json": {"schema": {"type": "object"}}}, {"a": 3}, {}, []]
    for content in contents:
        parameter = {"name": "x", "in": "query", "content": content, "schema": {"type": "string"}}
        yield f"a parameter of {content}", {"/a": {"get": {**ask, "parameters": [parameter]}}}
    for name in ("a b", "ü", "a" * 64, "a" * 65, "a" * 500, "a" * 501, "", 3, "_-_", "Accept", "COOKIE", "x-y", "TE"):
        for place in ("query", "header"):
            parameter = {"name": name, "in": place}
            yield (
                f"{str(name)[:9]!r} of {len(str(name))} in {place}",
                {"/a": {"get": {**ask, "parameters": [parameter]}}},
            )
    same = [{"name": "x", "in": place} for place in ("query", "header")]
    yield (
        "parameters of one name",
        {"/a": {"get": {**ask, "parameters": [*same, {"name": "x", "in": "query", "required": True}]}}},
    )
    yield (
        "names that become one",
        {"/a": {"get": {**ask, "parameters": [{"name": n, "in": "query"} for n in ("x y", "x_y", "x?y", "x!y")]}}},
    )
    yield (
        "parameters of the path",
        {
            "/a/{x}/{y}": {
                "get": {**ask, "parameters": [{"name": "z", "in": "path"}]},
                "parameters": [*same, {"name": "y", "in": "path"}],
            }
        },
    )
    for count in (100, 101):
        many = [{"name": f"p{n}", "in": "query"} for n in range(count)]
        yield f"{count} parameters", {"/a": {"get": {**ask, "parameters": many}}}
    yield (
        "parameters that are none",
        {"/a": {"get": {**ask, "parameters": {"a": 1}}}, "/b": {"get": {"parameters": [3]}}},
    )
    for kind in (
        "application/json",
        "application/problem+json",
        "*/*",
        "application/*",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "text/plain",
        "text/*",
        "application/xml",
        "image/svg+xml",
        "application/a+xml",
        "application/pdf",
        "application/octet-stream",
        "application/zip",
        "application/gzip",
        "image/png",
        "image/*",
        "audio/ogg",
        "video/*",
        "font/ttf",
        "Application/JSON; charset=utf-8",
        "application/jsonl",
        "model/json",
    ):
        body = {"content": {kind: {"schema": {"type": "object", "properties": {"f": {"format": "binary"}}}}}}
        yield f"a body of {kind}", {"/a": {"post": {**ask, "requestBody": body}}}
    kinds = ("image/png", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "application/json")
    for start in range(5):
        body = {"content": {kind: {} for kind in kinds[: 5 - start]}, "required": True, "description": "The body."}
        yield f"a body of {5 - start} kinds", {"/a": {"post": {**ask, "requestBody": body}}}
    parameter = {"name": "body", "in": "query"}
    for some in ([parameter], [parameter, {"name": "request_body", "in": "query"}]):
        body = {"content": {"text/plain": {}}, "required": "yes", "description": 3}
        yield (
            f"a body beside {len(some)} of its names",
            {"/a": {"post": {**ask, "requestBody": body, "parameters": some}}},
        )
    contents = [{}, 3, {"a": 3}, {"a/b" * 20: {}, "c": {}}]
    for content in contents:
        yield f"a body of {str(content)[:20]}", {"/a": {"post": {**ask, "requestBody": {"content": content}}}}
    encoding: Any = {
        "a": {"contentType": "text/csv"},
        "b": 3,
        "c": {"contentType": "a" * 100},
        "d": {"contentType": "a" * 101},
        "e": {"contentType": 3},
    }
    for said in (encoding, 3):
        body = {"content": {"multipart/form-data": {"encoding": said}}}
        yield f"a form of {str(said)[:5]}", {"/a": {"post": {**ask, "requestBody": body}}}
    binary = {"type": "string", "format": "binary"}
    form = {
        "properties": {"f": binary, "g": {"type": "array", "items": binary}, "h": {"type": "string"}},
        "required": ["f"],
    }
    yield (
        "a form with files",
        {"/a": {"post": {**ask, "requestBody": {"content": {"multipart/form-data": {"schema": form}}}}}},
    )
    for url in (BASE, f"{BASE}/", "/v1", "/v2", "https://other.example/v1", "https://api.example/{v}", 3):
        variables: Any = {"v": {"default": "v1"}, "w": {"default": 3}, "x": 3, "y": {}}
        yield f"a server {url}", {"/a": {"get": {**ask, "servers": [{"url": url, "variables": variables}]}}}
        yield f"a server of the path {url}", {"/a": {"get": ask, "servers": [{"url": url, "variables": variables}]}}


def every_operation() -> dict[str, Any]:
    """What each path becomes: the operations, or what is left out and why."""
    hops: dict[str, Any] = {str(n): {"$ref": f"#/components/hops/{n - 1}"} for n in range(1, 25)}
    hops["0"] = {"get": {}}
    components = {"items": {"a": {"get": {}}, "b": {"$ref": "#/components/items/b"}}, "hops": hops}
    plain_one = operations(document({"/a": {"get": {"operationId": "ask"}}}))[0]._asdict()
    made: dict[str, Any] = {}
    for name, paths in _operations():
        found = operations(document(paths, components=components), given="a server" not in name)
        made[name] = [_operation(each, plain_one) for each in found]
    made["short names"] = [
        each.name for each in operations(document({"/a": {"get": {"operationId": "a" * 30}}}), True, 20)
    ]
    return made


def _operation(found: Any, plain_one: Mapping[str, Any]) -> Any:
    if not isinstance(found, Operation):
        return list(found)
    fields = {name: value for name, value in found._asdict().items() if value != plain_one[name]}
    fields["arguments"] = [[value for value in each if value is not None] for each in fields.get("arguments", ())][-4:]
    fields["body_files"] = sorted(fields.get("body_files", ()))
    return _told(json.loads(dumps({name: value for name, value in fields.items() if value})))


# --- requests ---------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "text": "a/b ü?&;=,.",
    "number": 1.5,
    "true": True,
    "list": ["a,b", 2, None],
    "object": {"k 1": "v&", "n": None, "m": [1]},
    "nothing": [],
    "empty": "",
    "dots": "..",
}


def requests() -> dict[str, Any]:
    """What each value becomes in each place, by each style."""
    made: dict[str, Any] = {}
    styles = {
        "path": ("simple",),
        "query": ("form", "deepObject"),
        "header": ("simple",),
    }
    for place, all in styles.items():
        for style in (*all, "json"):
            for explode in (False, True):
                how: Any = (
                    {"content": {"application/json": {}}} if style == "json" else {"style": style, "explode": explode}
                )
                if style == "json" and explode:
                    continue
                paths = {
                    "/a/{x y}" if place == "path" else "/a": {
                        "get": {"parameters": [{"name": "x y" if place != "header" else "X-Y", "in": place, **how}]}
                    }
                }
                [operation] = operations(document(paths))
                case = f"{style}{' exploded' if explode else ''} in {place}"
                for name, value in VALUES.items():
                    made[f"{case}: {name}"] = of_error(_request, operation, {operation.arguments[0].name: value})
                made[f"{case}: none"] = of_error(_request, operation, {})
    for kind in (
        "application/json",
        "application/a+json",
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data",
        "image/png",
        "image/*",
    ):
        for required in (True, False):
            schema = {"properties": {"f": {"type": "string", "format": "binary"}, "l": {"type": "array"}}}
            body = {
                "content": {
                    kind: {
                        "schema": schema,
                        "encoding": {
                            "k": {"contentType": "text/csv"},
                            "j": {"contentType": "application/json"},
                            "o": {"contentType": "a\nb"},
                        },
                    }
                },
                "required": required,
            }
            [operation] = operations(document({"/a": {"post": {"requestBody": body}}}))
            given: dict[str, Any] = {
                **VALUES,
                "a file": "a.png",
                "no file": "no.png",
                "none": None,
                "form": {
                    "k": "v",
                    "j": "w",
                    "o": 1,
                    "l": ["a", None, "b"],
                    "d": {"e": 1},
                    "n": None,
                    "f": "user:a.png",
                    'q"\r\n': True,
                },
            }
            for name, value in given.items():
                if required or name in ("none", "form"):
                    case = f"{kind}{'' if required else ', not required'}: {name}"
                    made[case] = of_error(_request, operation, {"body": value})
    for name in ("a b", "ü", "X-Y"):
        [operation] = operations(document({"/a": {"get": {"parameters": [{"name": name, "in": "header"}]}}}))
        made[f"the header {name}"] = of_error(_request, operation, {operation.arguments[0].name: "v"})
    for path in ("/a b/{x}/ü", "/{x}{y}", "/{x}/{y}"):
        [operation] = operations(document({path: {"get": {}}}))
        for x, y in (("1", "2"), (".", "."), ("%2e", "."), ("//h", "2")):
            made[f"{path} with {x} and {y}"] = of_error(_request, operation, {"x": x, "y": y})
    return made


def _request(operation: Operation, args: dict[str, Any]) -> Any:
    base = url_of(f"{BASE}/")
    assert base is not None
    files = {
        name: Blob(data=b"\x89\r\n", mime_type=kind) for name, kind in (("a.png", "image/png"), ("user:a.png", "x"))
    }
    named = file_names(operation, args)
    found = request_for(operation, base, args, files)
    more = {name: text for name, text in found.all_headers.items() if name not in ("accept", "user-agent")}
    assert {name: text for name, text in found.all_headers.items() if name not in more} == {
        "accept": "application/json, text/*;q=0.8, */*;q=0.1",
        "user-agent": "minirun",
    }
    told = [found.address, *([more] if more else []), *([named] if named else [])]
    return told if found.content is None else [*told, found.content.decode("utf-8", "backslashreplace")]


# --- answers ----------------------------------------------------------------------------------------------------------


def _result(operation: Operation, answer: WebAnswer) -> Any:
    return plain(thaw(result_of(operation, answer)))


def answers() -> dict[str, Any]:
    """What the model is told of each answer."""
    [operation] = operations(document({"/a": {"get": {}}}))
    made: dict[str, Any] = {}
    bodies = {"JSON": b'{"a": [1]}', "text": b"a\xc3\xbc", "bytes": b"\x89\xff", "nothing": b"", "no number": b"NaN"}
    kinds = (
        "application/json",
        "application/a+json",
        "text/plain",
        "TEXT/plain; Charset='ISO-8859-1'",
        "text/a; charset=utf-16",
        "text/a; charset=utf-16-le",
        "text/a; charset=utf-16be",
        "text/a; charset=cp1252",
        "text/a; charset=us-ascii",
        "text/a; charset=hm",
        "text/a; charset=utf-7",
        "text/a; charset=" + "u" * 50,
        "text/a; b=c; charset=latin-1",
        "application/xml",
        "application/yaml",
        "application/javascript",
        "application/x-www-form-urlencoded",
        "image/svg+xml",
        "image/png",
        "",
        "hm\x01",
        "ü/a",
        "a/" + "b" * 98,
        "a/" + "b" * 99,
    )
    for kind in kinds:
        for name, body in bodies.items():
            for is_cut in (False, True):
                answer = WebAnswer(200, {"content-type": kind}, body, is_cut)
                case = f"{kind[:40]!r} of {len(kind)}: {name}{', cut' if is_cut else ''}"
                made[case] = of_error(_result, operation, answer)
    made["no type"] = result_of(operation, WebAnswer(200, {}, b"a", False))
    made["a letter that is cut"] = result_of(operation, WebAnswer(200, {}, b"a\xc3", True))
    for status in (200, 201, 204, 205, 206):
        made[f"the status {status}"] = result_of(operation, WebAnswer(status, {"content-type": "text/a"}, b"a", False))
    for status in (299, 400, 404, 418, 500, 599, 999):
        for body in (b"", b"no\x1b", b"a" * 2000, b"a" * 2001, b" " * 8000 + b"a"):
            headers = {"content-type": "text/a; charset=ascii", "retry-after": "3"}
            error = error_of(operation, WebAnswer(status, headers, body, False))
            made[f"{status} with {len(body)} of {body[:1]!r}"] = [_told(str(error)), error.status, error.retry_after_s]
    return made


# --- who may ask ------------------------------------------------------------------------------------------------------

SCHEMES: dict[str, Any] = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "k y"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "k"},
    "token": {"type": "http", "scheme": "Bearer"},
    "oauth": {"type": "oauth2"},
    "openid": {"type": "openIdConnect"},
    "basic": {"type": "http", "scheme": "BASIC"},
    "digest": {"type": "http", "scheme": "digest"},
    "mutual": {"type": "mutualTLS"},
    "odd": 3,
    "nameless": {"type": "apiKey", "in": "query"},
    "long": {"type": "apiKey", "in": "query", "name": "a" * 201},
    "just": {"type": "apiKey", "in": "query", "name": "a" * 200},
    "empty": {"type": "apiKey", "in": "query", "name": ""},
    "placeless": {"type": "apiKey", "in": "body", "name": "k"},
    "header2": {"type": "apiKey", "in": "header", "name": "x-key"},
    "ü": {"type": "apiKey", "in": "header", "name": "ü"},
    "http": {"type": "http"},
}
GIVEN = {
    "api_key": AuthCredential("api_key", api_key="a key&"),
    "bearer": AuthCredential("bearer", token="a-token"),
    "basic": AuthCredential("basic", username="me", password="pass"),
}


def security() -> dict[str, Any]:
    """Which credentials are sent, and where, for what an operation asks and a program gives."""
    made: dict[str, Any] = {}
    wants: dict[str, Any] = {name: [{name: []}] for name in [*SCHEMES, "unknown"]}
    wants |= {
        "nothing": [],
        "not said": 3,
        "optional": [{}, {"token": []}],
        "either": [{"basic": []}, {"token": []}],
        "both": [{"header": [], "token": []}],
        "two keys": [{"header": [], "query": []}],
        "one spot": [{"token": [], "basic": []}],
        "one spot of keys": [{"header": [], "header2": []}],
        "both or a key": [{"header": [], "token": []}, {"query": []}],
        "odd or a token": ["hm", {"token": []}],
    }
    auths: dict[str, Any] = {scheme: AuthConfig(f"a {scheme}", scheme=scheme) for scheme in GIVEN}
    auths |= {
        "none": None,
        "key and token": {"header": auths["api_key"], "token": auths["bearer"]},
        "two": {"header": auths["api_key"], "query": auths["api_key"]},
        "two of one spot": {"header": auths["api_key"], "header2": auths["api_key"]},
    }
    for want, said in wants.items():
        read = document({"/a": {"get": {"security": said}}}, components={"securitySchemes": SCHEMES})
        [operation] = operations(read)
        for given, auth in auths.items():
            made[f"{want}: {given}"] = of_error(_let_in, operation, read, auth)
    [operation] = operations(
        document({"/a": {"get": {}}}, security=[{"token": []}], components={"securitySchemes": SCHEMES})
    )
    made["of the whole document"] = [scheme.label for each in operation.security or () for scheme in each]
    for name, components in (("no schemes", {}), ("odd components", 3), ("odd schemes", {"securitySchemes": 3})):
        for given, auth in {**auths, "custom": AuthConfig("a custom", scheme="custom"), "a word": "key"}.items():
            made[f"{name}: {given}"] = of_error(_is_taken, auth, document(components=components))
    for name in SCHEMES:
        for scheme in GIVEN:
            read = document(components={"securitySchemes": SCHEMES})
            made[f"{scheme} for {name}"] = of_error(_is_taken, {name: auths[scheme]}, read)
    made["a name that is none"] = of_error(checked_auth, {3: auths["basic"]}, document())
    for headers in ({"A-b": "c"}, {"a b": "c"}, {"": "c"}, {3: "c"}, {"a": "ü"}, {"a": "\n"}, {"a": " b"}, {"a": 3}, 3):
        made[f"headers {headers}"] = of_error(checked_headers, headers)
    return made


def _is_taken(auth: Any, read: Document) -> bool:
    return bool(checked_auth(auth, read))


def _let_in(operation: Operation, read: Document, auth: Any) -> Any:
    base = url_of(BASE)
    assert base is not None
    checked = checked_auth(auth, read)
    outgoing = request_for(operation, base, {})
    outgoing = outgoing._replace(query=(("k%20y", "theirs"), ("b", "c")), cookies=("k=theirs", "b=c"))
    told = []
    for scheme, config in chosen(operation.security, checked):
        outgoing = with_credential(outgoing, scheme, GIVEN[config.scheme])
        told.append([scheme.kind, scheme.label])
    if not told:
        return "nothing"
    headers = {name: str(text) for name, text in outgoing.all_headers.items() if name not in ("accept", "user-agent")}
    return [told, str(outgoing.address), headers]


# --- the files --------------------------------------------------------------------------------------------------------

TABLES = {
    "schemas": schemas,
    "operations": every_operation,
    "requests": requests,
    "answers": answers,
    "security": security,
}


if __name__ == "__main__":
    for table, make in TABLES.items():
        write(f"openapi/{table}", make())
