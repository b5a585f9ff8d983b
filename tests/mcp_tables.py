"""
Tables of what is made of the words of an MCP server, as JSON in `tests/fixtures/mcp`: tools, results and questions.

    python -m tests.mcp_tables         write anew what is made of everything; read the difference before it is kept
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import mcp_types

from minirun._json import thaw
from minirun.errors import MinirunError
from minirun.tools.mcp._forms import fingerprint, form_of, reply_of
from minirun.tools.mcp._listing import definitions
from minirun.tools.mcp._results import resource_value, text_of, tool_value
from minirun.tools.mcp._sampling import _text
from minirun.tools.mcp._text import cleaned, line

from .tables import write
from .wire_tables import plain

__all__ = ["TABLES"]

OBJECT: dict[str, Any] = {"type": "object"}


def _made(make: Callable[..., Any], *given: Any) -> Any:
    """What is made, or the error; what is long by its length."""
    try:
        return _short(plain(thaw(make(*given))))
    except MinirunError as error:
        return f"{type(error).__name__}: {_short(str(error))}"


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = list(value.items())
        return {name[:60]: _short(each) for name, each in (pairs if len(pairs) < 20 else [*pairs[:1], *pairs[-1:]])}
    if isinstance(value, list):
        return [_short(each) for each in value]
    is_long = isinstance(value, str) and len(value) > 300
    return f"{value[:20]} ({len(value)}) {value[-60:]}" if is_long else value


# --- tools ------------------------------------------------------------------------------------------------------------


def tools() -> dict[str, Any]:
    """What each tool of a server is to a model, or why it is left out."""
    names = ["a", "a.b/c:d e-f_g", "1a", "-a", "_a", "ü", "", "a" * 64, "a" * 65, "1" * 64, "a\nb"]
    names += ["set_model_response", "transfer_to_agent", "exit_loop", "load_mcp_resource", "request_input"]
    names += ["get_user_choice", "adk_request_credential", "adk_request_confirmation", "request_credential"]
    made = {f"the name {name[:20]!r} of {len(name)}": _defined(name=name) for name in names}
    for prefix in ("p", "p" * 62, "p" * 63):
        made[f"a prefix of {len(prefix)}"] = _defined(prefix, name="a")
    deep: Any = {}
    for _ in range(101):
        deep = {"items": deep}
    schemas: dict[str, Any] = {
        "an object": {**OBJECT, "properties": {"a": {"type": "string", "description": "\x1b[1m"}}, "$schema": "x"},
        "no type": {},
        "a list of types": {"type": ["object"]},
        "properties that are none": {**OBJECT, "properties": []},
        "another type": {"type": "string", "properties": {}},
        "a name that is none": {**OBJECT, "properties": {"a\x1b": {}}},
        "a name of 200": {**OBJECT, "properties": {"a" * 200: {}}},
        "a name of 201": {**OBJECT, "properties": {"a" * 201: {}}},
        "a list": {**OBJECT, "required": ["a\u202e", 1]},
        "depth": {**OBJECT, **deep},
        "just enough": {**OBJECT, "title": "a" * 63_972},
        "too much": {**OBJECT, "title": "a" * 63_973},
    }
    for name, schema in schemas.items():
        made[f"a schema: {name}"] = _defined(input_schema=schema)
    told: list[dict[str, Any]] = [
        {"description": "D", "title": "T"},
        {"title": "T"},
        {"description": "\x1b[1m\na"},
        {"description": "a" * 10_000},
        {"description": "a" * 10_001},
    ]
    for each in told:
        made[f"told {str(each)[:40]} {len(str(each))}"] = _defined(**each)
    same = [mcp_types.Tool(name=name, input_schema=OBJECT) for name in ("b", "a", "a", "a.", "a_")]
    made["tools of one name"] = _listed(same)
    many = [mcp_types.Tool(name=f"t{number}", input_schema=OBJECT) for number in range(1_002)]
    found, left_out = definitions(many, None)
    made["many tools"] = [len(found), left_out]
    return made


def _defined(prefix: str | None = None, **fields: Any) -> Any:
    return _listed([mcp_types.Tool(**{"name": "a", "input_schema": OBJECT, **fields})], prefix)


def _listed(some: list[mcp_types.Tool], prefix: str | None = None) -> Any:
    found, left_out = definitions(some, prefix)
    return _short([[plain(thaw(list(each))) for each in found], left_out])


# --- results ----------------------------------------------------------------------------------------------------------


def results() -> dict[str, Any]:
    """What each result of a tool, a resource or a prompt is to a model."""
    data = base64.b64encode(b"\x89").decode()
    text = mcp_types.TextContent(text="aü")
    image = mcp_types.ImageContent(data=data, mime_type="image/png")
    sound = mcp_types.AudioContent(data=data, mime_type="audio/wav; a=b")
    note = mcp_types.TextResourceContents(uri="a:b", text="note", mime_type="text/a")
    file = mcp_types.BlobResourceContents(uri="a:b", blob=data)
    pdf = mcp_types.BlobResourceContents(uri="a:b", blob=data, mime_type="application/pdf")
    link = mcp_types.ResourceLink(
        uri="a:b", name="n", title="T\x1b", description="d" * 501, mime_type="a/b", size=3, type="resource_link"
    )
    blocks: dict[str, list[Any]] = {
        "a text": [text],
        "texts": [text, text],
        "nothing": [],
        "a picture": [image],
        "a text and media": [text, image, sound],
        "what is embedded": [mcp_types.EmbeddedResource(resource=each) for each in (note, file, pdf)],
        "a link": [link],
        "a whole link": [link.model_copy(update={"description": "D"})],
        "a short link": [mcp_types.ResourceLink(uri="a:b", name="n", type="resource_link")],
        "no base64": [mcp_types.ImageContent(data="a", mime_type="image/png")],
        "base64 with more": [mcp_types.ImageContent(data=data + "!", mime_type="image/png")],
    }
    for kind in ("image", "image/png/x", "a/" + "b" * 198, "a/" + "b" * 199, "a/b;\x1b", "a/b ; c", "ü/b", ""):
        blocks[f"the type {kind[:12]!r} of {len(kind)}"] = [mcp_types.ImageContent(data=data, mime_type=kind)]
    made: dict[str, Any] = {}
    for name, content in blocks.items():
        made[name] = _made(tool_value, mcp_types.CallToolResult(content=content), "desk", 10_000)
    for name in ("a text", "texts", "nothing", "a picture"):
        failed = mcp_types.CallToolResult(content=blocks[name], is_error=True)
        made[f"an error: {name}"] = _made(tool_value, failed, "desk", 10_000)
    for name, block in (("no base64", blocks["no base64"][0]), ("what is embedded", blocks["what is embedded"][1])):
        failed = mcp_types.CallToolResult(content=[text, block], is_error=True)
        made[f"an error: a text beside {name}"] = _made(tool_value, failed, "desk", 10_000)
    long = mcp_types.TextContent(text="a\x1b" * 2_000 + "b")
    made["a long error"] = _made(tool_value, mcp_types.CallToolResult(content=[long], is_error=True), "desk", 1)
    values: list[Any] = [{"result": 1}, {"result": 1, "b": 2}, {"a": ["ü"]}, {}, {"a": float("nan")}, {"a": 10**400}]
    for value in values:
        for name in ("a text", "a picture"):
            structured = mcp_types.CallToolResult(content=blocks[name], structured_content=value)
            made[f"{str(value)[:20]} beside {name}"] = _made(tool_value, structured, "desk", 100_000)
    for size in (5, 4):
        result = mcp_types.CallToolResult(content=[text, image, sound])
        made[f"5 bytes of {size}"] = _made(tool_value, result, "desk", size)
        result = mcp_types.CallToolResult(content=[image], structured_content={"result": "aü"})
        made[f"6 bytes of structure, of {size + 1}"] = _made(tool_value, result, "desk", size + 1)
        read = mcp_types.ReadResourceResult(contents=[note, file])
        made[f"5 bytes of a resource, of {size}"] = _made(resource_value, read, "desk", size)
    resources: list[list[Any]] = [[note], [note, note], [file], [note, pdf], []]
    for some in resources:
        read = mcp_types.ReadResourceResult(contents=some)
        made[f"a resource of {[type(each).__name__[:4] for each in some]}"] = _made(resource_value, read, "desk", 100)
    prompts: list[list[Any]] = [[text], [text, text], [image], [image, text], []]
    for said in prompts:
        messages = [mcp_types.PromptMessage(role="user", content=each) for each in said]
        made[f"a prompt of {[type(each).__name__[:5] for each in said]}"] = _made(text_of, messages, "desk", 6)
        made[f"a short prompt of {[type(each).__name__[:5] for each in said]}"] = _made(text_of, messages, "desk", 5)
    for words in ("a\x1b\n\tb\u202e\ud800", "a" * 500, "a" * 501):
        made[f"the words {words[:6]!r} of {len(words)}"] = [_short(cleaned(words, 500)), _short(line(words))]
    return made


# --- questions --------------------------------------------------------------------------------------------------------


def questions() -> dict[str, Any]:
    """What each question of a server is to a person, and each answer to the server."""
    made: dict[str, Any] = {}
    many: dict[str, Any] = {f"f{number}": {} for number in range(101)}
    asked: dict[str, Any] = {
        "nothing": {},
        "a message": {"message": "Who\x1b?"},
        "a message of 4000": {"message": "a" * 4_000},
        "a message of 4001": {"message": "a" * 4_001},
        "a message that is none": {"message": 3},
        "no schema": {"requestedSchema": None},
        "100 fields": {"requestedSchema": {"properties": dict(list(many.items())[:100])}},
        "101 fields": {"requestedSchema": {"properties": many}},
        "a name of 200": {"requestedSchema": {"properties": {"a" * 200: {}}}},
        "a name of 201": {"requestedSchema": {"properties": {"a" * 201: {}}}},
        "a name that is none": {"requestedSchema": {"properties": {"a\x1b": {}}}},
        "what is required": {"requestedSchema": {"properties": {"a": {}, "b": {}}, "required": ["a", "c"]}},
        "what is not there": {"requestedSchema": {"properties": {"a": {}}, "required": ["c"]}},
        "a field that is none": {"requestedSchema": {"properties": {"a": 3}}},
        "a field that cannot be": {"requestedSchema": {"properties": {"a": {"type": "hm"}}}},
    }
    said: dict[str, Any] = {
        "type": "string", "title": "T\x1b", "description": "D", "default": "a", "enum": ["a", "b\x1b"], "const": "a",
        "minLength": 1, "maxLength": 2, "minimum": 1, "maximum": 2, "minItems": 1, "maxItems": 2, "pattern": "a",
        "format": "email", "items": {"type": "string", "pattern": "a"}, "anyOf": [{"const": "a", "pattern": "b"}],
        "oneOf": ({"const": "a", "title": "A"},), "enumNames": ["A"],
    }  # fmt: skip
    for word, value in said.items():
        asked[f"a field with {word}"] = {"requestedSchema": {"properties": {"a": {word: value}}}}
    asked["a field with odd choices"] = {"requestedSchema": {"properties": {"a": {"anyOf": "no", "enum": [[1]]}}}}
    https = "https://h/"
    urls = [https, "http://h/", "ftp://h/", "https://h/\x1b", https + "a" * 1_990, https + "a" * 1_991, ""]
    for url in urls:
        asked[f"the page {url[:12]!r} of {len(url)}"] = {"mode": "url", "message": "Go.", "url": url}
    asked["a page without an address"] = {"mode": "url"}
    for name, params in asked.items():
        made[name] = _made(lambda given: list(form_of(given, "desk", "tool")), params)
    answers: list[Any] = [None, True, False, {"a": "b"}, {"a": [1]}, {"a": {"b": 1}}, {"a": ["b"]}, "a", {}]
    for answer in answers:
        for mode in ("url", "form"):
            made[f"{answer} to a {mode}"] = _made(_replied, {"mode": mode}, answer)
    same: list[dict[str, Any]] = [
        {"method": "m", "params": {"a": 1}},
        {"method": "m", "params": {"a": 1, "_meta": {"b": 1}, "task": {}}},
        {"method": "m", "id": 3},
    ]
    made["what is the same question"] = [fingerprint(each) for each in same]
    block = {"type": "text", "text": "a"}
    sampled: dict[str, Any] = {
        "nothing": {},
        "a text": {"messages": [{"role": "user", "content": block}]},
        "texts": {"messages": [{"role": "user", "content": block}, {"role": "assistant", "content": [block, block]}]},
        "an image": {"messages": [{"role": "user", "content": {"type": "image", "data": ""}}]},
        "no block": {"messages": [{"role": "user", "content": ["a"]}]},
        "an empty text": {"messages": [{"role": "user", "content": {**block, "text": ""}}]},
        "much": {"messages": [{"role": "user", "content": {**block, "text": "a" * 200_000}}]},
        "too much": {"messages": [{"role": "user", "content": {**block, "text": "a" * 200_001}}]},
    }
    for name, params in sampled.items():
        made[f"a model is asked: {name}"] = _made(_text, params, "desk")
    return made


def _replied(params: dict[str, Any], answer: Any) -> Any:
    return reply_of(params, answer, "desk").model_dump(mode="json", exclude_unset=True)


# --- the files --------------------------------------------------------------------------------------------------------

TABLES = {"tools": tools, "results": results, "questions": questions}


if __name__ == "__main__":
    for table, make in TABLES.items():
        write(f"mcp/{table}", make())
