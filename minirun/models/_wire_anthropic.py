"""
Anthropic's messages.

The newest version of the API has no temperature, top_p and top_k. Thoughts come in blocks with a signature, or
redacted; they go back as they came, in their place, and those of other providers do not. Texts that are blank are left
out, which the API refuses. All results of a turn stand first in their message.

Not handled: the provider's own tools, citations in requests.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .._json import dumps
from ..types import Blob, Content, FileData, FunctionResponse, GenerateContentConfig, Part, UsageMetadata, id_of
from ._assembler import Assembler
from ._base import LlmRequest
from ._cache_config import ContextCacheConfig
from ._reading import clean, count, items_of, object_in, sums, text_in
from ._seals import opened
from ._wire import Fault, Outgoing, Wire, choice_of, name_sent, text_of_other, thinking_of
from ._wire_schemas import closed

__all__ = ["API_VERSION", "MessagesWire"]

# The version that the official SDK sends (anthropic 2.12).
API_VERSION = "2026-10-21"

_FINISH_REASONS = {
    "end_turn": "STOP",
    "stop_sequence": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "model_context_window_exceeded": "MAX_TOKENS",
    "refusal": "SAFETY",
}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
# Below that the API refuses a budget.
_BUDGET_TOKENS_MIN = 1024
# A rough estimate, as the API's documents have it for English.
_LETTERS_PER_TOKEN = 4
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
# What errors in a stream stand for, where there is no status any more; others, as `api_error`, are 500.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class MessagesWire(Wire):
    """`POST /v1/messages`."""

    provider = "anthropic"
    api = "Anthropic's messages API"
    request_id_header = "request-id"
    settings = frozenset({"stop_sequences", "response_schema", "response_mime_type", "tool_config", "thinking_config"})

    def __init__(self, ignore: Collection[str] = (), max_tokens: int = 8192, api_version: str = API_VERSION) -> None:
        super().__init__(ignore)
        self._max_tokens = max_tokens
        self._api_version = api_version

    def headers(self, key: str | None) -> dict[str, str]:
        headers = {"anthropic-version": self._api_version}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return headers

    def outgoing(self, request: LlmRequest, model: str, stream: bool) -> Outgoing:
        config = request.config
        self.check_settings(config)
        body: dict[str, Any] = {"model": model, "max_tokens": config.max_output_tokens or self._max_tokens}
        if config.system_instruction and config.system_instruction.strip():
            body["system"] = config.system_instruction
        body |= self._tools(config)
        body["messages"] = [message for content in request.contents for message in _message(content, self)]
        if config.stop_sequences:
            body["stop_sequences"] = list(config.stop_sequences)
        body |= self._thinking(config) | self._output(config)
        if stream:
            body["stream"] = True
        if request.cache_config is not None:
            _mark(body, request.cache_config)
        return Outgoing("/v1/messages", body | dict(config.extra_body or {}), {})

    def assembler(self, shows_thoughts: bool) -> MessagesAssembler:
        return MessagesAssembler(self, shows_thoughts)

    def fault_in(self, error: Mapping[str, Any]) -> Fault:
        kind = text_in(error.get("type"))
        return Fault(kind, text_in(error.get("message")), _STATUSES.get(kind))

    # --- settings

    def _tools(self, config: GenerateContentConfig) -> dict[str, Any]:
        choice, tools = choice_of(config), config.tools
        if not tools:
            return {}
        chosen: dict[str, Any] = {}
        if choice is not None and choice.mode == "VALIDATED":
            self.leaves_out("tool_config", "mode VALIDATED")
        elif choice is not None and len(choice.names) == 1:
            chosen = {"tool_choice": {"type": "tool", "name": choice.names[0]}}
        elif choice is not None:
            if choice.names:  # there is no list of allowed tools: the model is shown no others
                tools = [tool for tool in tools if tool.name in choice.names]
            chosen = {"tool_choice": {"type": {"AUTO": "auto", "ANY": "any", "NONE": "none"}[choice.mode]}}
        return {"tools": [_tool(tool) for tool in tools], **chosen}

    def _thinking(self, config: GenerateContentConfig) -> dict[str, Any]:
        thinking = thinking_of(config)
        made: dict[str, Any] = {}
        if thinking.budget == 0:
            made = {"type": "disabled"}
        elif thinking.budget is not None and 0 < thinking.budget < _BUDGET_TOKENS_MIN:
            self.leaves_out("thinking_config.thinking_budget", f"it takes 0, -1, and from {_BUDGET_TOKENS_MIN}")
        elif thinking.budget is not None and thinking.budget > 0:
            made = {"type": "enabled", "budget_tokens": thinking.budget}
        elif thinking.budget == -1 or thinking.level in _EFFORTS or thinking.is_shown:
            made = {"type": "adaptive"}
        if thinking.is_shown is not None and made and thinking.budget != 0:
            made["display"] = "summarized" if thinking.is_shown else "omitted"
        return {"thinking": made} if made else {}

    def _output(self, config: GenerateContentConfig) -> dict[str, Any]:
        made: dict[str, Any] = {}
        level = thinking_of(config).level
        if level in _EFFORTS:
            made["effort"] = level
        elif level is not None:
            self.leaves_out("thinking_config.thinking_level", f"{level!r}; it has {', '.join(_EFFORTS)}")
        if config.response_schema is not None:
            made["format"] = {"type": "json_schema", "schema": closed(config.response_schema)}
        elif config.response_mime_type not in (None, "text/plain"):
            self.leaves_out("response_mime_type", f"{config.response_mime_type!r} without a response_schema")
        return {"output_config": made} if made else {}


def _mark(body: dict[str, Any], config: ContextCacheConfig) -> None:
    """Mark the ends of what the next request begins with, too: of the tools and the system, and of the conversation."""
    if config.min_tokens and len(dumps(body)) < config.min_tokens * _LETTERS_PER_TOKEN:
        return
    mark = {"cache_control": {"type": "ephemeral", "ttl": "5m" if config.ttl_seconds <= 300 else "1h"}}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], **mark}]
    elif "tools" in body:
        body["tools"][-1] |= mark
    body["messages"][-1]["content"][-1] |= mark


def _tool(tool: Any) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object", "properties": {}}
    made = {"name": tool.name, "input_schema": schema}
    return {"name": tool.name, "description": tool.description, "input_schema": schema} if tool.description else made


# --- messages ---------------------------------------------------------------------------------------------------------


def _message(content: Content, wire: Wire) -> Iterator[dict[str, Any]]:
    """The message of a content; none if a model has said nothing in it that goes back."""
    if content.role == "model":
        blocks = [block for part in content.parts for block in _block_of_model(part, wire)]
        if blocks:
            yield {"role": "assistant", "content": blocks}
        return
    results = [_result(part.function_response) for part in content.parts if part.function_response is not None]
    said = [
        block
        for part in content.parts
        if not part.thought
        for block in _block_of_user(part)
    ]
    yield {"role": "user", "content": [*results, *said] or [{"type": "text", "text": "(nothing)"}]}


def _block_of_model(part: Part, wire: Wire) -> Iterator[dict[str, Any]]:
    call = part.function_call
    if part.thought:
        seal = opened(part.thought_signature, wire.provider)
        if seal is not None and seal.kind == "redacted":
            yield {"type": "redacted_thinking", "data": seal.payload}
        elif seal is not None:
            yield {"type": "thinking", "thinking": part.text or "", "signature": seal.payload}
    elif call is not None:
        yield {"type": "tool_use", "id": id_of(call), "name": name_sent(call.name), "input": call.args}
    else:
        yield from _text_block(text_of_other(part))


def _block_of_user(part: Part) -> Iterator[dict[str, Any]]:
    shown = None
    if part.inline_data is not None and part.inline_data.data:
        shown = _media(part.inline_data)
    elif part.file_data is not None:
        shown = _file(part.file_data)
    if shown is not None:
        yield shown
    else:
        yield from _text_block(text_of_other(part))


def _text_block(text: str | None) -> Iterator[dict[str, Any]]:
    if text is not None and text.strip():
        yield {"type": "text", "text": text}


def _result(answer: FunctionResponse) -> dict[str, Any]:
    content: Any = dumps(answer.response)
    if answer.parts:
        media = [block for part in answer.parts for block in _block_of_user(part)]
        content = [{"type": "text", "text": content}, *media]
    result = {"type": "tool_result", "tool_use_id": id_of(answer), "content": content}
    return {**result, "is_error": True} if "error" in answer.response else result


def _media(blob: Blob) -> dict[str, Any] | None:
    kind = blob.mime_type.partition(";")[0].strip().lower()
    kind = "image/jpeg" if kind == "image/jpg" else kind  # which many programs write
    data = base64.b64encode(blob.data).decode()
    titled = {"title": blob.display_name} if blob.display_name else {}
    if kind in _IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    if kind == "application/pdf":
        return {"type": "document", "source": {"type": "base64", "media_type": kind, "data": data}, **titled}
    if kind.startswith("text/") or kind == "application/json":
        text = clean(blob.data.decode(errors="replace"))
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **titled}
    return None


def _file(file: FileData) -> dict[str, Any] | None:
    kind = (file.mime_type or "").lower()
    block = "image" if kind.startswith("image/") else "document"
    if file.file_uri.startswith("file_"):
        return {"type": block, "source": {"type": "file", "file_id": file.file_uri}}
    if file.file_uri.startswith(("http://", "https://")) and (block == "image" or kind == "application/pdf"):
        return {"type": block, "source": {"type": "url", "url": file.file_uri}}
    return None


# --- answers ----------------------------------------------------------------------------------------------------------


class MessagesAssembler(Assembler):
    """Named events: a message starts, blocks start, grow and stop by index, the message stops."""

    def __init__(self, wire: Wire, shows_thoughts: bool) -> None:
        super().__init__(wire, shows_thoughts)
        self._keys: dict[object, object] = {}  # by index, the block that grows there
        self._has_stopped = False

    @property
    def is_done(self) -> bool:
        return self._has_stopped

    @property
    def is_through(self) -> bool:
        return self._has_stopped

    def _take(self, data: Mapping[str, Any]) -> list[Part]:
        kind, index = data.get("type"), data.get("index")
        index = index if isinstance(index, int) else None
        if kind == "content_block_delta":
            return self._take_delta(self._keys.get(index, index), object_in(data.get("delta")))
        if kind == "content_block_start":
            # A block of its own even where a server gives all of them one index, as some that speak this API do.
            key = self._keys[index] = (index, len(self._blocks))
            return self._take_block(key, object_in(data.get("content_block")), index)
        if kind == "message_start":
            self._take_head(object_in(data.get("message")))
        elif kind == "message_delta":
            self.use(data.get("usage"))
            self._finish(object_in(data.get("delta")))
        elif kind == "message_stop":
            self._has_stopped = True
        return []

    def _take_whole(self, body: Mapping[str, Any]) -> None:
        self._take_head(body)
        for index, block in enumerate(items_of(body.get("content"))):
            self._take_block(index, block)
        self._finish(body)
        self._has_stopped = body.get("type") == "message"

    def _take_head(self, message: Mapping[str, Any]) -> None:
        self.response_id = text_in(message.get("id"))
        self.model_version = text_in(message.get("model"))
        self.use(message.get("usage"))

    def _take_block(self, index: object, block: Mapping[str, Any], place: int | None = None) -> list[Part]:
        kind = block.get("type")
        if kind == "text":
            self.cite(*items_of(block.get("citations")))
            return self.text(index, text_in(block.get("text")))
        if kind == "thinking":
            if block.get("signature"):
                self.seal(index, "thinking", text_in(block.get("signature")))
            return self.text(index, text_in(block.get("thinking")), thought=True)
        if kind == "redacted_thinking":
            self.seal(index, "redacted", text_in(block.get("data")))
        elif kind == "tool_use":
            given = block.get("input")
            name, call_id = text_in(block.get("name")), text_in(block.get("id")) or None
            self.call(index, name, call_id, object_in(given), place)
            if isinstance(given, str):  # not as Anthropic has it, but as some servers do
                self.arguments(index, given)
        return []

    def _take_delta(self, index: object, delta: Mapping[str, Any]) -> list[Part]:
        kind = delta.get("type")
        if kind == "text_delta":
            return self.text(index, text_in(delta.get("text")))
        if kind == "input_json_delta":
            if self.has(index):  # else it is one of the provider's own tools
                self.arguments(index, text_in(delta.get("partial_json")))
        elif kind == "thinking_delta":
            return self.text(index, text_in(delta.get("thinking")), thought=True)
        elif kind == "signature_delta":
            self.seal(index, "thinking", text_in(delta.get("signature")))
        elif kind == "citations_delta":
            self.cite(delta.get("citation"))
        return []

    def _finish(self, said: Mapping[str, Any]) -> None:
        reason = said.get("stop_reason")
        self._wire.check_finish(reason, said.get("error"))
        if reason is None:
            return
        self.finish_reason = _FINISH_REASONS.get(text_in(reason), "OTHER")
        if reason == "refusal":
            self.error_code = "SAFETY"
            why = object_in(said.get("stop_details")).get("explanation")
            self.error_message = clean(text_in(why)) or "the provider's policy has stopped the answer"

    def _counted(self, usage: Mapping[str, Any]) -> UsageMetadata:
        read, written = count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens")
        prompt, output = sums(count(usage, "input_tokens"), read, written), count(usage, "output_tokens")
        thoughts = count(usage, "output_tokens_details", "thinking_tokens")
        return UsageMetadata(
            prompt_token_count=prompt,
            candidates_token_count=max(output - (thoughts or 0), 0) if output is not None else None,
            thoughts_token_count=thoughts,
            total_token_count=sums(prompt, output),
            cached_content_token_count=read,
            cache_write_token_count=written,
        )
