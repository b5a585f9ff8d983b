"""
OpenAI's chat completions, which many other servers speak too: vLLM, Ollama, llama.cpp, LM Studio, OpenRouter, Groq …

OpenAI's own API and the others' differ in little; `dialect` says which is meant. Others do not know
`max_completion_tokens` and the role `developer`, so they get `max_tokens` and `system`. Thoughts, which only others
send (`reasoning_content`, `reasoning`), are shown and never sent back.

Not handled: several choices, audio out, OpenAI's own tools.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from .._json import dumps
from ..types import Blob, Content, FileData, GenerateContentConfig, Part, UsageMetadata, id_of
from ._assembler import Assembler
from ._base import LlmRequest
from ._reading import call_of, clean, count, items_of, object_in, text_in
from ._wire import Fault, Outgoing, Wire, choice_of, name_sent, text_of_other, text_of_unseen, thinking_of
from ._wire_schemas import closed, is_strict

__all__ = ["IMAGES", "ChatWire", "Dialect", "effort_of", "fault_in", "usage_of"]

Dialect: TypeAlias = Literal["openai", "compatible"]

_FINISH_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
# Those that the SDK's types know; the server says which of them a model takes.
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Those that OpenAI's models take; other servers say themselves what they take.
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatWire(Wire):
    """`POST /chat/completions`."""

    provider = "openai"
    api = "the chat completions API"
    request_id_header = "x-request-id"
    settings = frozenset(
        {
            "temperature", "top_p", "stop_sequences", "presence_penalty", "frequency_penalty", "seed",
            "response_mime_type", "response_schema", "tool_config", "thinking_config", "labels",
        }
    )  # fmt: skip

    def __init__(
        self, ignore: Collection[str] = (), dialect: Dialect = "openai", sees_media: bool = True
    ) -> None:
        super().__init__(ignore)
        self._is_openai = dialect == "openai"
        self._sees_media = sees_media

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key is not None else {}

    def outgoing(self, request: LlmRequest, model: str, stream: bool) -> Outgoing:
        config = request.config
        self.check_settings(config)
        body: dict[str, Any] = {"model": model, "messages": list(self._messages(request))}
        if config.tools:
            body["tools"] = [_tool(tool) for tool in config.tools]
        body |= self._choice(config) | self._sampling(config) | self._form(config) | self._thinking(config)
        if request.cache_key is not None and self._is_openai:
            body["prompt_cache_key"] = request.cache_key
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return Outgoing("/chat/completions", body | dict(config.extra_body or {}), {})

    def assembler(self, shows_thoughts: bool) -> ChatAssembler:
        return ChatAssembler(self, shows_thoughts)

    def fault(self, body: Mapping[str, Any]) -> Fault | None:
        """
        The failure of a body or an event.

        Older servers send its fields with `"object": "error"`, gateways in front of them a `status` and a `message`.
        """
        if body.get("object") == "error":
            return fault_in(body)
        status = body.get("status")
        if isinstance(status, int) and status >= 400 and not body.get("choices") and not body.get("error"):
            return fault_in({**body, "code": status})
        return super().fault(body)

    def fault_in(self, error: Mapping[str, Any]) -> Fault:
        return fault_in(error)

    # --- settings

    def _choice(self, config: GenerateContentConfig) -> dict[str, Any]:
        choice = choice_of(config)
        if choice is None:
            return {}
        if choice.mode == "VALIDATED" and self.leaves_out("tool_config", "mode VALIDATED"):
            return {}
        mode = {"AUTO": "auto", "ANY": "required", "NONE": "none"}[choice.mode]
        named = [{"type": "function", "function": {"name": name}} for name in choice.names]
        if len(named) == 1:
            return {"tool_choice": named[0]}
        if named:
            allowed = {"mode": mode, "tools": named}
            return {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
        return {"tool_choice": mode}

    def _sampling(self, config: GenerateContentConfig) -> dict[str, Any]:
        given = {
            "temperature": config.temperature,
            "top_p": config.top_p,
            "max_completion_tokens" if self._is_openai else "max_tokens": config.max_output_tokens,
            "stop": list(config.stop_sequences) if config.stop_sequences else None,
            "presence_penalty": config.presence_penalty,
            "frequency_penalty": config.frequency_penalty,
            "seed": config.seed,
            "metadata": dict(config.labels) if config.labels else None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _form(self, config: GenerateContentConfig) -> dict[str, Any]:
        if config.response_schema is not None:
            schema = closed(config.response_schema)
            form = {"name": "response", "schema": schema, "strict": is_strict(schema)}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        if config.response_mime_type in (None, "text/plain"):
            return {}
        if config.response_mime_type == "application/json":
            return {"response_format": {"type": "json_object"}}
        self.leaves_out("response_mime_type", config.response_mime_type or "")
        return {}

    def _thinking(self, config: GenerateContentConfig) -> dict[str, Any]:
        effort = effort_of(self, config)
        return {"reasoning_effort": effort} if effort is not None else {}

    # --- messages

    def _messages(self, request: LlmRequest) -> Iterator[dict[str, Any]]:
        if request.config.system_instruction:
            role = "developer" if self._is_openai else "system"
            yield {"role": role, "content": request.config.system_instruction}
        for content in request.contents:
            if content.role == "model":
                yield from _said_by_model(content)
            else:
                yield from _said_by_user(content, self._shown)

    def _shown(self, part: Part) -> dict[str, Any] | None:
        """What shows media to the model; None: nothing does."""
        blob, file = part.inline_data, part.file_data
        if blob is not None and blob.data:
            found = _media(blob, self._is_openai)
        else:
            found = _file(file) if file is not None else None
        return found if self._sees_media or found is None or found["type"] == "text" else None


def effort_of(wire: Wire, config: GenerateContentConfig) -> str | None:
    """Return how much OpenAI's models are to think; None: as they do by themselves."""
    thinking = thinking_of(config)
    if thinking.level is None:
        if thinking.budget not in (None, 0, -1):
            wire.leaves_out("thinking_config.thinking_budget", "it has levels; write thinking_level='low'")
        return "none" if thinking.budget == 0 else None
    if thinking.level not in _EFFORTS:
        wire.leaves_out("thinking_config.thinking_level", f"{thinking.level!r}; it has {', '.join(_EFFORTS)}")
        return None
    return thinking.level


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description} if tool.description else {"name": tool.name}
    if tool.parameters:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def _said_by_model(content: Content) -> Iterator[dict[str, Any]]:
    """The message of an answer; none if it was nothing but thoughts."""
    texts, calls = [], []
    for part in content.parts:
        call = part.function_call
        if call is not None:
            function = {"name": name_sent(call.name), "arguments": dumps(call.args)}
            calls.append({"id": id_of(call), "type": "function", "function": function})
        elif not part.thought:
            texts.append(text_of_other(part) or "")
    text = "".join(texts)
    if calls:
        yield {"role": "assistant", "content": text or None, "tool_calls": calls}
    elif text:
        yield {"role": "assistant", "content": text}


def _said_by_user(content: Content, shown: Callable[[Part], dict[str, Any] | None]) -> Iterator[dict[str, Any]]:
    """Messages of the tools' answers, in order, then one of the rest."""
    said: list[dict[str, Any]] = []
    for part in content.parts:
        answer = part.function_response
        if answer is not None:
            told = [dumps(answer.response), *map(text_of_unseen, answer.parts)]
            yield {"role": "tool", "tool_call_id": id_of(answer), "content": "\n".join(told)}
        elif not part.thought:
            text = text_of_other(part)
            piece = shown(part) or ({"type": "text", "text": text} if text is not None else None)
            said += [] if piece is None else [piece]
    if len(said) == 1 and said[0]["type"] == "text":
        yield {"role": "user", "content": said[0]["text"]}
    elif said:
        yield {"role": "user", "content": said}
    elif not content.responses:
        yield {"role": "user", "content": ""}


def _media(blob: Blob, is_openai: bool) -> dict[str, Any] | None:
    kind = blob.mime_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind == "application/json":
        return {"type": "text", "text": clean(blob.data.decode(errors="replace"))}
    data = base64.b64encode(blob.data).decode()
    kind = "image/jpeg" if kind == "image/jpg" else kind  # which many programs write
    if kind in IMAGES or (kind.startswith("image/") and not is_openai):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[kind]}}
    if kind == "application/pdf":
        name = blob.display_name or "file.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{data}"}}
    return None


def _file(file: FileData) -> dict[str, Any] | None:
    if file.file_uri.startswith("file-"):
        return {"type": "file", "file": {"file_id": file.file_uri}}
    kind = (file.mime_type or "").lower()
    if file.file_uri.startswith(("http://", "https://", "data:")) and kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.file_uri}}
    return None


# --- answers ----------------------------------------------------------------------------------------------------------


class ChatAssembler(Assembler):
    """Chunks with one choice each; the last one, with the usage, has none."""

    def __init__(self, wire: Wire, shows_thoughts: bool) -> None:
        super().__init__(wire, shows_thoughts)
        self._refusal = ""
        self._calls: dict[object, object] = {}  # by index, the call that grows there

    def _take(self, data: Mapping[str, Any]) -> list[Part]:
        return self._take_choice(data, "delta")

    def _take_whole(self, body: Mapping[str, Any]) -> None:
        self._take_choice(body, "message")

    def _take_choice(self, data: Mapping[str, Any], said: str) -> list[Part]:
        self.response_id = self.response_id or text_in(data.get("id"))
        self.model_version = self.model_version or text_in(data.get("model"))
        self.use(data.get("usage"))
        # the first one: `extra_body` may have asked for more
        choice = next((each for each in items_of(data.get("choices")) if not each.get("index")), None)
        if choice is None:
            return []
        message = choice.get(said)
        error = choice.get("error") or object_in(message).get("error")
        self._wire.check_finish(choice.get("finish_reason"), error)
        self._wire.check_finish(choice.get("native_finish_reason"))  # OpenRouter's, beside one that may be `stop`
        shown = self._take_message(message, said == "message") if isinstance(message, dict) else []
        if choice.get("finish_reason"):
            self._finish(choice["finish_reason"])
        return shown

    def _take_message(self, message: Mapping[str, Any], is_whole: bool) -> list[Part]:
        shown: list[Part] = []
        thought = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thought, str):
            shown += self.text("thought", thought, thought=True)
        content = message.get("content")
        if isinstance(content, str):
            if content:
                shown += self.text("text", content)
        elif isinstance(content, list):
            for piece in items_of(content):
                shown += self.text("text", text_in(piece.get("text")))
        self._refusal += text_in(message.get("refusal"))
        for call in items_of(message.get("tool_calls")):
            self._take_call(call, is_whole)
        return shown

    def _take_call(self, call: Mapping[str, Any], is_whole: bool) -> None:
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        call_id, name = text_in(call.get("id")), text_in(function.get("name"))
        index = call.get("index")
        index = index if isinstance(index, int) else None
        key, args = self._calls.get(index), function.get("arguments")
        if key is None or is_whole or (name and self._is_another(key, name, call_id, args)):
            key = self._calls[index] = ("call", len(self._blocks))
            self.call(key, name, call_id or None, place=index)
        if isinstance(args, str):
            self.arguments(key, args)
        elif isinstance(args, Mapping):  # not as OpenAI has it, but as some servers do
            self.call(key, "", None, args)

    def _is_another(self, key: object, name: str, call_id: str, args: object) -> bool:
        """
        Whether a piece with a name begins another call than the one that grows at its index.

        For servers that leave the index out, or give the same one, or the same id, to all; some repeat name and id in
        every piece of one call.
        """
        begun = self._blocks[key]
        if name != begun.name or (call_id and begun.call_id and call_id != begun.call_id):
            return True
        if not args or not begun.pieces or not begun.pieces[-1].rstrip().endswith("}"):
            return False
        return call_of(name, "".join(begun.pieces), None).args_text is None  # nothing can follow

    def _counted(self, usage: Mapping[str, Any]) -> UsageMetadata:
        return usage_of(usage)

    def _finish(self, reason: object) -> None:
        self.finish_reason = _FINISH_REASONS.get(text_in(reason), "OTHER")
        if self._refusal:
            self.finish_reason = "SAFETY"
        if self.finish_reason == "SAFETY":
            self.error_code = "SAFETY"
            self.error_message = clean(self._refusal) or "the provider's policy has stopped the answer"


def usage_of(usage: Mapping[str, Any], told: str = "prompt_tokens", said: str = "completion_tokens") -> UsageMetadata:
    """Return how many tokens OpenAI has counted, whose two APIs call those of input (*told*) and output otherwise."""
    thoughts = count(usage, f"{said}_details", "reasoning_tokens")
    completion = count(usage, said)
    return UsageMetadata(
        prompt_token_count=count(usage, told),
        candidates_token_count=max(completion - (thoughts or 0), 0) if completion is not None else None,
        thoughts_token_count=thoughts,
        total_token_count=count(usage, "total_tokens"),
        cached_content_token_count=count(usage, f"{told}_details", "cached_tokens"),
        cache_write_token_count=count(usage, f"{told}_details", "cache_write_tokens"),
    )


# --- failures ---------------------------------------------------------------------------------------------------------

# What codes and types of errors in a stream stand for, where there is no status any more.
_STATUSES = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "rate_limit_error": 429,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "server_error": 500,
}


_STATUS = re.compile(r"[345]\d\d")


def fault_in(error: Mapping[str, Any]) -> Fault:
    """Return the failure that an `error` object tells of, as OpenAI and those who follow it write it."""
    code, kind = error.get("code"), text_in(error.get("type"))
    message = text_in(error.get("message"))
    if isinstance(code, str) and _STATUS.fullmatch(code):
        code = int(code)  # as LiteLLM writes it
    if isinstance(code, int):
        return Fault(kind, message, code if 300 <= code < 600 else None)
    code = text_in(code)
    return Fault(code or kind, message, _STATUSES.get(code) or _STATUSES.get(kind))
