"""
Google's Gemini, as its own API and Vertex AI have it.

A stream has no end mark: it has ended well if a reason to finish has come. Seals (`thoughtSignature`) sit on any part,
also on calls and on texts that are empty, and go back on the very part that they came with: a part with a seal is never
joined with another. Thoughts without one are not sent back.

Calls may come without ids. minirun names those that have none; such an id is not sent back, and the API matches calls
and answers by name and order. A conversation with a `cached_content` is sent without system instruction, tools and tool
config, which are those of the cache.

Not handled: several candidates, arguments in pieces, Google's own tools and their parts.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from .._json import finite
from ..types import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionResponse,
    GenerateContentConfig,
    Part,
    UsageMetadata,
)
from ._assembler import Assembler
from ._base import LlmRequest
from ._reading import clean, count, items_of, object_in, sums, text_in
from ._seals import opened
from ._wire import Fault, Outgoing, Wire, choice_of, name_sent, text_of_other, thinking_of

__all__ = ["GeminiWire", "answer_sent", "merged", "other_part", "part_sent", "tool_sent"]

# Those that the SDK's types know; the server says which of them a model takes.
_LEVELS = ("minimal", "low", "medium", "high", "xhigh")
# The ids that minirun gives to calls that have none.
_OWN_ID = re.compile(r"call-[0-9a-f]{24}")
_OUTCOMES = ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
# What it takes the bytes of, beside PDF.
_FAMILIES = ("image", "audio", "video", "text")
# Reasons to finish that leave an answer which can be used.
_FINE = ("STOP", "MAX_TOKENS")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")


# The statuses that stand for the names of errors (google.rpc.Code), where an error comes without one.
_STATUS_OF = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class GeminiWire(Wire):
    """`POST /models/NAME:generateContent`, or `:streamGenerateContent?alt=sse`."""

    provider = "gemini"
    api = "the Gemini API"
    request_id_header = "x-request-id"  # the API itself names its answers in their bodies only
    settings = frozenset(
        {
            "temperature", "top_p", "top_k", "stop_sequences", "presence_penalty", "frequency_penalty", "seed",
            "response_mime_type", "response_schema", "tool_config", "thinking_config", "safety_settings", "labels",
            "cached_content",
        }
    )  # fmt: skip

    def __init__(self, ignore: Collection[str] = (), is_vertex: bool = False) -> None:
        super().__init__(ignore)
        self._is_vertex = is_vertex

    def headers(self, key: str | None) -> dict[str, str]:
        if key is None:
            return {}
        return {"authorization": f"Bearer {key}"} if self._is_vertex else {"x-goog-api-key": key}

    def outgoing(self, request: LlmRequest, model: str, stream: bool) -> Outgoing:
        config = request.config
        self.check_settings(config)
        body: dict[str, Any] = {"cachedContent": config.cached_content} if config.cached_content else _told(config)
        body["contents"] = [made for content in request.contents for made in _content(content)]
        if generation := self._generation(config):
            body["generationConfig"] = generation
        if config.safety_settings:
            body["safetySettings"] = [
                {"category": setting.category, "threshold": setting.threshold} for setting in config.safety_settings
            ]
        if config.labels:
            body["labels"] = dict(config.labels)
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        name = quote(model if "/" in model else f"models/{model}", safe="/@")
        return Outgoing(f"/{name}:{method}", merged(body, config.extra_body or {}), {})

    def assembler(self, shows_thoughts: bool) -> GeminiAssembler:
        return GeminiAssembler(self, shows_thoughts)

    def fault_in(self, error: Mapping[str, Any]) -> Fault:
        details, status, name = items_of(error.get("details")), error.get("code"), text_in(error.get("status"))
        reasons = [text_in(detail.get("reason")) for detail in details if detail.get("reason")]
        return Fault(
            reasons[0] if reasons else name,
            text_in(error.get("message")),
            status if isinstance(status, int) and 300 <= status < 600 else _STATUS_OF.get(name),
            _retry_delay_s(details),
        )

    def _generation(self, config: GenerateContentConfig) -> dict[str, Any]:
        is_json = config.response_schema is not None and config.response_mime_type is None
        given = {
            "temperature": config.temperature,
            "topP": config.top_p,
            "topK": config.top_k,
            "maxOutputTokens": config.max_output_tokens,
            "stopSequences": list(config.stop_sequences) if config.stop_sequences else None,
            "presencePenalty": config.presence_penalty,
            "frequencyPenalty": config.frequency_penalty,
            "seed": config.seed,
            "responseMimeType": "application/json" if is_json else config.response_mime_type,
            "responseJsonSchema": config.response_schema,
            "thinkingConfig": self._thinking(config),
        }
        return {name: value for name, value in given.items() if value is not None}

    def _thinking(self, config: GenerateContentConfig) -> dict[str, Any] | None:
        thinking = thinking_of(config)
        level = thinking.level
        if level is not None and level not in _LEVELS:
            self.leaves_out("thinking_config.thinking_level", f"{level!r}; it has {', '.join(_LEVELS)}")
            level = None
        given = {
            "includeThoughts": thinking.is_shown,
            "thinkingBudget": thinking.budget,
            "thinkingLevel": level.upper() if level is not None else None,
        }
        return {name: value for name, value in given.items() if value is not None} or None


def _told(config: GenerateContentConfig) -> dict[str, Any]:
    """What a request begins with: the system instruction and the tools."""
    body: dict[str, Any] = {}
    if config.system_instruction:
        body["systemInstruction"] = {"parts": [{"text": config.system_instruction}]}
    if config.tools:
        body["tools"] = [{"functionDeclarations": [tool_sent(tool) for tool in config.tools]}]
    choice = choice_of(config)
    if choice is not None:
        names = {"allowedFunctionNames": list(choice.names)} if choice.names else {}
        body["toolConfig"] = {"functionCallingConfig": {"mode": choice.mode, **names}}
    return body


def tool_sent(tool: Any) -> dict[str, Any]:
    made = {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
    return {name: value for name, value in made.items() if value}


def merged(body: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of both; objects that both have, such as `generationConfig`, are merged alike."""
    made = dict(body)
    for name, value in more.items():
        both = isinstance(value, Mapping) and isinstance(made.get(name), Mapping)
        made[name] = merged(made[name], value) if both else value
    return made


# --- contents ---------------------------------------------------------------------------------------------------------


def _content(content: Content) -> Iterator[dict[str, Any]]:
    """What is sent of a content; none if a model has said nothing in it that goes back."""
    parts = [made for part in content.parts for made in part_sent(part)]
    if content.role == "model":
        if parts:
            yield {"role": "model", "parts": parts}
        return
    parts.sort(key=lambda part: "functionResponse" not in part)  # the answers stand first, in their order
    yield {"role": "user", "parts": parts or [{"text": "(nothing)"}]}


def part_sent(part: Part) -> Iterator[dict[str, Any]]:
    seal = opened(part.thought_signature, GeminiWire.provider)
    sealed = {"thoughtSignature": seal.payload} if seal is not None else {}
    call, answer = part.function_call, part.function_response
    if part.thought:
        if sealed:
            yield {"text": part.text or "", "thought": True, **sealed}
    elif call is not None:
        yield {"functionCall": {"name": name_sent(call.name), "args": call.args, **_id_of(call.id)}, **sealed}
    elif answer is not None:
        yield {"functionResponse": answer_sent(answer)}
    elif part.inline_data is not None and (media := _media(part.inline_data)) is not None:
        yield {"inlineData": media, **sealed}
    elif part.file_data is not None:
        yield {"fileData": _file(part.file_data), **sealed}
    elif (code := _code(part)) is not None:
        yield {**code, **sealed}
    elif (text := text_of_other(part)) or sealed:
        yield {"text": text or "", **sealed}


def _id_of(call_id: str | None) -> dict[str, str]:
    return {} if call_id is None or _OWN_ID.fullmatch(call_id) else {"id": call_id}


def answer_sent(answer: FunctionResponse) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name_sent(answer.name), "response": answer.response, **_id_of(answer.id)}
    # What the API cannot show is left out: no text can stand here, and the response itself tells of it.
    shown = [part for part in answer.parts if part.inline_data is None or _media(part.inline_data) is not None]
    if shown:
        made["parts"] = [piece for part in shown for piece in part_sent(part)]
    return made


def _code(part: Part) -> dict[str, Any] | None:
    """Code and its result as the API has them; None: they are no such, and told as text."""
    code, result = part.executable_code, part.code_execution_result
    if code is not None and code.language == "PYTHON":
        return {"executableCode": {"language": "PYTHON", "code": code.code}}
    if result is not None and result.outcome in _OUTCOMES:
        return {"codeExecutionResult": {"outcome": result.outcome, "output": result.output or ""}}
    return None


def _media(blob: Blob) -> dict[str, Any] | None:
    """What shows a file to the model; None: nothing does."""
    kind = blob.mime_type.partition(";")[0].strip().lower()
    kind = "text/plain" if kind == "application/json" else kind
    family, _, name = kind.partition("/")
    if not blob.data or not name or not (family in _FAMILIES or kind == "application/pdf"):
        return None
    return {"mimeType": kind, "data": base64.b64encode(blob.data).decode()}


def _file(file: FileData) -> dict[str, Any]:
    made = {"fileUri": file.file_uri}
    return {"mimeType": file.mime_type, **made} if file.mime_type else made


# --- answers ----------------------------------------------------------------------------------------------------------


class GeminiAssembler(Assembler):
    """Each event is a response of its own: the parts that are new, and what is known by then of the rest."""

    def __init__(self, wire: Wire, shows_thoughts: bool) -> None:
        super().__init__(wire, shows_thoughts)
        self._key = 0  # of the last block
        self._open: str | None = None  # its kind, if the next text may belong to it

    def _take(self, data: Mapping[str, Any]) -> list[Part]:
        self.response_id = text_in(data.get("responseId")) or self.response_id
        self.model_version = text_in(data.get("modelVersion")) or self.model_version
        self.use(data.get("usageMetadata"))
        self._take_block(object_in(data.get("promptFeedback")))
        candidates = items_of(data.get("candidates"))
        if not candidates:
            return []
        candidate, shown = candidates[0], []
        self._wire.check_finish(candidate.get("finishReason"), candidate.get("error"))
        for part in items_of(object_in(candidate.get("content")).get("parts")):
            shown += self._take_part(part)
        sources = object_in(candidate.get("citationMetadata"))
        self.cite(*(items_of(sources.get("citations")) or items_of(sources.get("citationSources"))))
        self.grounding = object_in(candidate.get("groundingMetadata")) or self.grounding
        self._finish(text_in(candidate.get("finishReason")), text_in(candidate.get("finishMessage")))
        return shown

    def _take_whole(self, body: Mapping[str, Any]) -> None:
        self._take(body)

    def _take_part(self, part: Mapping[str, Any]) -> list[Part]:
        shown: list[Part] = []
        thought, signature = part.get("thought") is True, text_in(part.get("thoughtSignature"))
        call, other = object_in(part.get("functionCall")), other_part(part)
        if call:
            self.call(self._begin(None), text_in(call.get("name")), text_in(call.get("id")) or None, call.get("args"))
        elif other is not None:
            shown = self.part(self._begin(None), other)
        elif isinstance(part.get("text"), str):
            kind = "thought" if thought else "text"
            if signature or self._open != kind:
                self._begin(None if signature else kind)
            shown = self.text(self._key, part["text"], thought=thought)
        elif signature:
            self._begin(None)
        if signature:
            self.seal(self._key, "signature", signature, thought=thought)
        return shown

    def _begin(self, kind: str | None) -> int:
        self._key, self._open = self._key + 1, kind
        return self._key

    def _take_block(self, feedback: Mapping[str, Any]) -> None:
        """Take what is said of a prompt that is not answered."""
        reason = text_in(feedback.get("blockReason"))
        if reason and reason != "BLOCKED_REASON_UNSPECIFIED":
            self.finish_reason = "SAFETY" if reason == "JAILBREAK" else reason
            self.error_code = reason
            why = text_in(feedback.get("blockReasonMessage"))
            self.error_message = clean(why) or "the provider's policy has blocked the request"

    def _finish(self, reason: str, message: str) -> None:
        if not reason or reason == "FINISH_REASON_UNSPECIFIED":
            return
        self.finish_reason = clean(reason)
        if reason not in _FINE:
            self.error_code = self.finish_reason
            self.error_message = clean(message) or f"the model has stopped with {self.finish_reason}"

    def _counted(self, usage: Mapping[str, Any]) -> UsageMetadata:
        used_by_tools = count(usage, "toolUsePromptTokenCount")
        return UsageMetadata(
            prompt_token_count=sums(count(usage, "promptTokenCount"), used_by_tools),
            candidates_token_count=count(usage, "candidatesTokenCount"),
            thoughts_token_count=count(usage, "thoughtsTokenCount"),
            total_token_count=count(usage, "totalTokenCount"),
            cached_content_token_count=count(usage, "cachedContentTokenCount"),
            tool_use_prompt_token_count=used_by_tools,
        )


def other_part(part: Mapping[str, Any]) -> Part | None:
    """The part that a picture, a file or code is; None: it is none of them."""
    blob, file = object_in(part.get("inlineData")), object_in(part.get("fileData"))
    code, result = object_in(part.get("executableCode")), object_in(part.get("codeExecutionResult"))
    if blob:
        try:
            data = base64.b64decode(text_in(blob.get("data")))
        except ValueError:
            return None
        return Part(inline_data=Blob(data=data, mime_type=_name(blob.get("mimeType")) or "application/octet-stream"))
    if file:
        return Part(
            file_data=FileData(file_uri=clean(text_in(file.get("fileUri"))), mime_type=_name(file.get("mimeType")))
        )
    if code:
        language = _name(code.get("language"))
        return Part(executable_code=ExecutableCode(code=clean(text_in(code.get("code"))), language=language))
    if result:
        outcome, output = _name(result.get("outcome")), clean(text_in(result.get("output")))
        return Part(code_execution_result=CodeExecutionResult(outcome=outcome, output=output))
    return None


def _retry_delay_s(details: list[Mapping[str, Any]]) -> float | None:
    """How long to wait by a `RetryInfo`, such as `"37.5s"`."""
    for detail in details:
        if text_in(detail.get("@type")).endswith("google.rpc.RetryInfo"):
            found = _DURATION.fullmatch(text_in(detail.get("retryDelay")))
            return finite(float(found[1])) if found else None
    return None


def _name(value: object) -> str | None:
    return clean(text_in(value)) or None
