"""
Tables of what is said over each provider's wire, as JSON in `tests/fixtures/wire/tables`: what becomes of a request,
of an answer, of a failure.

Each case has one thing that the others have not. A table says for every wire what of a plain request's body the case
changes (a field that is gone is null), or by which words the request is refused. The questions are here; the answers of
providers stand in the files beside what is made of them. A change of a wire shows as a change of a file:

    python -m tests.wire_tables        write anew what is made of everything; read the difference before it is kept
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import attrs
from anthropic.types import Message as ClaudeMessage
from anthropic.types import RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from minirun._json import dumps
from minirun.errors import MinirunError
from minirun.models import ContextCacheConfig, LlmRequest
from minirun.models._seals import sealed
from minirun.models._wire import Wire
from minirun.models._wire_anthropic import MessagesWire
from minirun.models._wire_gemini import GeminiWire
from minirun.models._wire_openai_chat import ChatWire
from minirun.models._wire_openai_responses import ResponsesWire
from minirun.types import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionDeclaration,
    FunctionResponse,
    GenerateContentConfig,
    Part,
)

from .provider_servers import anthropic, gemini, openai_chat, openai_responses
from .tables import kept, write

__all__ = [
    "PLAIN", "WIRES", "again", "answered", "by_case", "changes", "contents", "failed", "kept_requests",
    "problem_with_answer", "sent", "settings",
]  # fmt: skip



@attrs.frozen
class Spoken:
    """One wire: how it is made, given what is ignored, and who knows its bodies and answers."""

    wire: Callable[..., Wire]
    problem_with_body: Callable[[Any], str | None]
    event: Any
    whole: Any


WIRES = {
    "openai": Spoken(ChatWire, openai_chat.problem_with_body, ChatCompletionChunk, ChatCompletion),
    "compatible": Spoken(
        lambda ignore=(): ChatWire(ignore, "compatible", False),
        openai_chat.problem_with_body,
        ChatCompletionChunk,
        ChatCompletion,
    ),
    "responses": Spoken(ResponsesWire, openai_responses.problem_with_body, ResponseStreamEvent, Response),
    "gemini": Spoken(GeminiWire, gemini.problem_with_body, GenerateContentResponse, GenerateContentResponse),
    "anthropic": Spoken(MessagesWire, anthropic.problem_with_body, RawMessageStreamEvent, ClaudeMessage),
}


# --- questions --------------------------------------------------------------------------------------------------------


def user(*parts: Part | str) -> Content:
    return Content(role="user", parts=[Part(text=part) if isinstance(part, str) else part for part in parts])


def model(*parts: Part | str) -> Content:
    return Content(role="model", parts=[Part(text=part) if isinstance(part, str) else part for part in parts])


def blob(mime_type: str, data: bytes = b"\x89\xff", name: str | None = None) -> Part:
    return Part(inline_data=Blob(data=data, mime_type=mime_type, display_name=name))


def file(uri: str, mime_type: str | None = None) -> Part:
    return Part(file_data=FileData(file_uri=uri, mime_type=mime_type))


def call(name: str = "add", id: str | None = "c1", **args: Any) -> Part:
    return Part(function_call=FunctionCall(name=name, id=id, args=args))


def result(id: str | None = "c1", response: Any = None, *parts: Part, name: str = "add") -> Part:
    said = response if response is not None else {"result": 3}
    return Part(function_response=FunctionResponse(name=name, id=id, response=said, parts=parts))


def thought(text: str, *seal: str) -> Part:
    return Part(text=text, thought=True, thought_signature=sealed(*seal) if seal else None)


def signed(part: Part, *seal: str) -> Part:
    return attrs.evolve(part, thought_signature=sealed(*seal))


def ran(outcome: str | None, output: str | None) -> Part:
    return Part(code_execution_result=CodeExecutionResult(outcome=outcome, output=output))


HI = user("hi")
ADD = FunctionDeclaration(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {}}})
NOW = FunctionDeclaration(name="now")
LOOK = FunctionDeclaration(name="look", parameters={"type": "object", "properties": {}})
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
PLAIN_WORDS = {word: {"properties": {"a": 1}} for word in ("const", "default", "examples", "enum")}
CLOSED = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
SCHEMAS = {
    "an object": SCHEMA,
    "an object that asks for nothing": {"properties": {}},
    "an object that asks for less": {**CLOSED, "required": []},
    "an object without fields": {"type": "object", "additionalProperties": False},
    "an object that is open": {**CLOSED, "additionalProperties": True},
    "an object of objects": {**CLOSED, "properties": {"a": {"type": "object"}}},
    "fields with the names of keywords": {**CLOSED, "properties": {"a": {"properties": {"enum": SCHEMA}}}},
    "values that look like schemas": {**CLOSED, **PLAIN_WORDS},
    "definitions": {
        "$defs": {"default": SCHEMA}, "definitions": {"enum": SCHEMA}, "patternProperties": {"const": SCHEMA},
    },
    "choices": {"anyOf": [SCHEMA, {"type": "array", "items": SCHEMA}]},
    "items that are open": {**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
    "choices of which one is open": {"anyOf": [CLOSED, {"type": "object"}]},
}
ITEM = dumps({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "seal"})
SEALS = {"responses": ("openai", "item", ITEM), "gemini": ("gemini", "signature", "c2VhbA=="),
         "anthropic": ("anthropic", "thinking", "seal")}  # fmt: skip


def choosing(mode: str, *names: str) -> dict[str, Any]:
    return {"function_calling_config": {"mode": mode, "allowed_function_names": names}}


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings, one at a time."""
    for name, value in {
        "temperature": 0.5, "top_p": 0.25, "top_k": 3, "max_output_tokens": 9, "stop_sequences": ["a", "b"],
        "presence_penalty": 0.5, "frequency_penalty": 0.25, "seed": 0, "labels": {"team": "a"},
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "system_instruction": "Be brief.", "cached_content": "caches/1", "http_options": {"timeout": 9},
    }.items():  # fmt: skip
        yield name, {name: value}
    yield "a blank system instruction", {"system_instruction": " \n"}
    yield "an empty system instruction", {"system_instruction": ""}
    yield "cached content and what is in it", {
        "cached_content": "caches/1", "system_instruction": "Be brief.", "tools": [ADD], "tool_config": choosing("ANY")
    }  # fmt: skip
    for kind in ("text/plain", "application/json", "text/x.enum"):
        yield f"answers as {kind}", {"response_mime_type": kind}
    for name, schema in SCHEMAS.items():
        yield f"answers by a schema: {name}", {"response_schema": schema}
    yield "answers by a schema, as JSON", {"response_schema": SCHEMA, "response_mime_type": "application/json"}
    yield "tools", {"tools": [ADD, NOW, LOOK]}
    for mode in ("AUTO", "ANY", "NONE", "VALIDATED"):
        yield f"tools {mode}", {"tools": [ADD, NOW], "tool_config": choosing(mode)}
    for mode in ("ANY", "VALIDATED"):
        yield f"one tool {mode}", {"tools": [ADD, NOW], "tool_config": choosing(mode, "now")}
        yield f"two tools {mode}", {"tools": [ADD, NOW, LOOK], "tool_config": choosing(mode, "add", "look")}
    yield "a choice without tools", {"tool_config": choosing("ANY")}
    for level in ("none", "minimal", "low", "medium", "high", "xhigh", "max", "huge"):
        yield f"thinking {level}", {"thinking_config": {"thinking_level": level}}
    for budget in (-1, 0, 1, 1023, 1024):
        for shown in (None, True, False):
            given = {"thinking_budget": budget, "include_thoughts": shown}
            yield f"thinking {budget} tokens, shown: {shown}", {"thinking_config": given}
    for shown in (True, False):
        yield f"thinking, shown: {shown}", {"thinking_config": {"include_thoughts": shown}}
        yield f"thinking low, shown: {shown}", {"thinking_config": {"include_thoughts": shown, "thinking_level": "low"}}
    yield "more fields of none", {"extra_body": {"generationConfig": {"seed": 7}, "metadata": {"a": "b"}}}
    yield "more fields", {"extra_body": {"seed": 7, "generationConfig": {"seed": 7, "topK": 2}}, "temperature": 0.5}


def contents() -> Iterator[tuple[str, tuple[Content, ...]]]:
    """Conversations, each with one thing that is said."""
    yield "texts", (user("a", "", "b"),)
    yield "a blank text", (user(" "),)
    yield "nothing", (Content(role="user", parts=[]),)
    yield "the user's thought", (user(thought("hm"), "a"),)
    yield "an answer", (HI, model("a", "b"), HI)
    yield "a blank answer", (HI, model(" "), HI)
    yield "an empty answer", (HI, model(""), HI)
    yield "thoughts that nobody has sealed", (HI, model(thought("hm"), "a"), HI)
    for whose, seal in SEALS.items():
        yield f"a thought sealed by {whose}", (HI, model(thought("hm", *seal), "a"), HI)
        yield f"a sealed thought alone of {whose}", (HI, model("a", thought("", *seal)), HI)
        yield f"a call sealed by {whose}", (HI, model(signed(call(), *seal)), user(result()))
        yield f"a text sealed by {whose}", (HI, model(signed(Part(text=""), *seal), "a"), HI)
    yield "a redacted thought", (HI, model(thought("", "anthropic", "redacted", "data"), "a"), HI)
    yield "a text of a phase", (HI, model(signed(Part(text="a"), "openai", "phase", "commentary")), HI)
    yield "a call", (HI, model("so", call(a=1)), user(result()))
    yield "two calls, answered after a text", (
        HI, model(call(), call("now", "c2")), user("and?", result(), result("c2", {"error": "no"}, name="now"))
    )  # fmt: skip
    yield "an answer and nothing", (HI, model(call()), user(result(), ""))
    yield "a call without an id", (HI, model(call(id=None)), user(result(None)))
    yield "a call with an id of minirun's", (HI, model(call(id=f"call-{1:024x}")), user(result(f"call-{1:024x}")))
    for name in ("föö bar", "a" * 65, ""):
        if name:
            yield f"a call of {name[:10]}", (HI, model(call(name)), user(result(name=name)))
    for kind in (
        "image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/tiff", "audio/wav", "audio/x-wav",
        "audio/wave", "audio/mpeg", "audio/mp3", "audio/ogg", "video/mp4", "application/pdf", "text/csv",
        "application/json", "application/zip", "font/ttf", "hm", "IMAGE/PNG ; a=b",
    ):  # fmt: skip
        yield f"{kind}", (user(blob(kind)),)
    for kind in ("image/png", "application/pdf", "text/csv", "application/zip"):
        yield f"{kind} with a name", (user(blob(kind, b"a", "a.b")),)
        yield f"{kind} without bytes", (user("see", blob(kind, b"", "a.b")),)
        yield f"{kind} of a tool", (HI, model(call()), user(result("c1", None, blob(kind))))
        yield f"{kind} of the model", (HI, model("see", blob(kind)), HI)
    for uri in ("file-1", "file_1", "http://h/f", "https://h/f", "data:image/png;base64,YQ==", "gs://b/f"):
        for type in (None, "IMAGE/png", "application/pdf", "text/csv"):
            yield f"{uri} as {type}", (user(file(uri, type)),)
    yield "a file of a tool", (HI, model(call()), user(result("c1", None, file("https://h/f", "image/png"))))
    for role, said in (("user", user), ("model", lambda *parts: model(*parts))):
        for code in (("PYTHON", "1"), ("Ada", "2"), (None, "3")):
            part = Part(executable_code=ExecutableCode(language=code[0], code=code[1]))
            yield f"code in {code[0]} of the {role}", (HI, said(part), HI)
        for outcome in ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED", "hm", None):
            yield f"{outcome} of the {role}", (HI, said(ran(outcome, "out")), HI)
            yield f"{outcome} of the {role} in silence", (HI, said(ran(outcome, None)), HI)


def _requests() -> Iterator[tuple[str, LlmRequest]]:
    for name, config in settings():
        yield name, LlmRequest(contents=[HI], config=GenerateContentConfig(**config))
    for name, said in contents():
        yield name, LlmRequest(contents=said)
    told = {"system_instruction": "Be brief.", "tools": [ADD, NOW]}
    yield "a key of a cache", LlmRequest(contents=[HI], cache_key="k")
    caches: tuple[tuple[float, int, dict[str, Any]], ...] = (
        (300, 0, {}), (300.5, 0, {"tools": [ADD, NOW]}), (1800, 0, told), (9, 40, {}), (9, 999, {}),
    )  # fmt: skip
    for ttl, least, more in caches:
        cached = ContextCacheConfig(ttl_seconds=ttl, min_tokens=least)
        asked = LlmRequest(contents=[HI], config=GenerateContentConfig(**more), cache_config=cached)
        yield f"a cache for {ttl} s of {least} tokens", asked


PLAIN = LlmRequest(contents=[HI])
REQUESTS = dict(_requests())


# --- what is made of them ---------------------------------------------------------------------------------------------

IGNORED = [field.name for field in attrs.fields(GenerateContentConfig)]


def sent(name: str) -> dict[str, Any]:
    """
    What a wire makes of each question: what is other than in a plain one's body, and its path if that is another one.

    What is refused is that refusal, and what is sent where everything is ignored that can be.
    """
    spoken = WIRES[name]
    body_of_plain = spoken.wire().outgoing(PLAIN, "model", False).body
    found: dict[str, Any] = {"hi": body_of_plain}
    for case, request in REQUESTS.items():
        for ignore in ((), IGNORED):
            try:
                body = json.loads(dumps(spoken.wire(ignore).outgoing(request, "model", False).body))
            except MinirunError as error:
                found[case] = {"refused": str(error)}
                continue
            problem = spoken.problem_with_body(body)
            assert problem is None or "more fields" in case, (name, case, problem)
            found[case] = {**found.get(case, {}), **changes(body_of_plain, body)}
            break
    return found


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in after}


def answered(name: str, case: Mapping[str, Any], shows_thoughts: bool = True) -> dict[str, Any]:
    """What a wire makes of an answer, streamed (`events`) or not (`body`): what it shows, and the response."""
    assembler = WIRES[name].wire().assembler(shows_thoughts)
    found: dict[str, Any] = {}
    try:
        if "body" in case:
            assembler.feed_whole(case["body"])
        else:
            found["shown"] = [plain(assembler.feed(event)) for event in case["events"]] + [plain(assembler.end())]
            found["shown"] = [each for each in found["shown"] if each]
            found["ends"] = [assembler.is_done, assembler.is_through]
    except MinirunError as error:
        return {**found, "error": failure(error)}
    return {**found, "response": plain(assembler.response())}


def failed(name: str, case: Mapping[str, Any]) -> list[Any]:
    """The error that a wire makes of a response whose status is no success."""
    body = case["body"] if isinstance(case["body"], str) else dumps(case["body"])
    return failure(WIRES[name].wire().failure(case["status"], case.get("headers", {}), body.encode()))


def failure(error: Any) -> list[Any]:
    """What a program sees of an error of a provider."""
    return [type(error).__name__, str(error), error.status, error.retry_after_s, error.request_id]


def problem_with_answer(name: str, case: Mapping[str, Any]) -> str | None:
    """What of a provider's answer its own types do not know."""
    for kind, value in [(WIRES[name].event, event) for event in case.get("events", ())] or [
        (WIRES[name].whole, case["body"])
    ]:
        made = _adapter(kind).validate_python(value)
        extra = list(_extra(made))
        if extra:
            return f"{extra} in {value}"
    return None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _extra(made: Any) -> Iterator[str]:
    if isinstance(made, list):
        for item in made:
            yield from _extra(item)
    for name in getattr(made, "model_fields_set", ()):
        yield from [name] if name in (made.model_extra or {}) else _extra(getattr(made, name))


def plain(value: Any) -> Any:
    """A value as JSON, without fields that are as they are by default; bytes are read as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if attrs.has(type(value)):
        fields = {field.name: getattr(value, field.name) for field in attrs.fields(type(value)) if field.init}
        return {name: plain(item) for name, item in fields.items() if item is not None and item not in ((), {}, [])}
    return value


# --- the files --------------------------------------------------------------------------------------------------------


@cache
def kept_requests(name: str) -> dict[str, Any]:
    """What the table of requests says of a wire."""
    table = kept("wire/tables/requests").items()
    return {case: made for case, told in table for names, made in told.items() if name in names.split()}


def again(name: str, cases: Mapping[str, Any], made: Callable[[str, Mapping[str, Any]], Any]) -> dict[str, Any]:
    return {case: {"given": told["given"], "made": made(name, told["given"])} for case, told in cases.items()}


def by_case(made: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The table of requests: for each case what is sent, by the names of the wires that send it."""
    table: dict[str, dict[str, Any]] = {}
    for case in made["gemini"]:
        names: dict[str, list[str]] = {}
        for name, cases in made.items():
            names.setdefault(dumps(cases[case]), []).append(name)
        table[case] = {" ".join(some): json.loads(body) for body, some in names.items()}
    return table


if __name__ == "__main__":
    write("wire/tables/requests", by_case({name: sent(name) for name in WIRES}), 2)
    for table, made_of in (("wire/tables/answers", answered), ("wire/tables/failures", failed)):
        write(table, {name: again(name, cases, made_of) for name, cases in kept(table).items()}, 2)
