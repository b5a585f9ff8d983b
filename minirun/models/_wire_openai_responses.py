"""
OpenAI's responses.

Nothing is stored at OpenAI's (`store: false`), so every request has the whole conversation, as items. A reasoning item
is a thought whose seal is the item itself, encrypted content and all; it goes back whole, in its place, before the item
that it led to. Ids of other items do not go back: they would name what is not stored. A message's `phase`, where there
is one, is the seal of its text.

Not handled: OpenAI's own tools, images out, background and conversations that are stored.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from .._json import dumps
from ..types import Blob, Content, FileData, FunctionResponse, GenerateContentConfig, Part, UsageMetadata, id_of
from ._assembler import Assembler
from ._base import LlmRequest
from ._reading import clean, items_of, object_in, object_of, text_in
from ._seals import opened
from ._wire import Fault, Outgoing, Wire, broken_off, choice_of, name_sent, text_of_other, thinking_of
from ._wire_openai_chat import IMAGES, effort_of, fault_in, usage_of
from ._wire_schemas import closed, is_strict

__all__ = ["ResponsesWire"]

# Models without reasoning, which refuse to be asked for it. Others that have a name of their own, as deployments in
# Azure have, are said by `reasoning=`.
_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-[34]|chatgpt-)")

_ENDS = ("response.completed", "response.incomplete", "response.failed")

# Codes of responses that have failed because of what was asked; the others are the server's affair.
_OF_INPUT = re.compile(r"policy|image|invalid_|data_residency")

# The events with pieces, and the type of the item that grows by them.
_DELTAS = {
    "response.output_text.delta": "message",
    "response.function_call_arguments.delta": "function_call",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}

_REASONS = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}


class ResponsesWire(Wire):
    """`POST /responses`."""

    provider = "openai"
    api = "OpenAI's responses API"
    request_id_header = "x-request-id"
    settings = frozenset(
        {"temperature", "top_p", "response_mime_type", "response_schema", "tool_config", "thinking_config", "labels"}
    )

    def __init__(self, ignore: Collection[str] = (), reasoning: bool | None = None) -> None:
        super().__init__(ignore)
        self._reasoning = reasoning

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key is not None else {}

    def outgoing(self, request: LlmRequest, model: str, stream: bool) -> Outgoing:
        config = request.config
        self.check_settings(config)
        body: dict[str, Any] = {"model": model, "store": False}
        if config.system_instruction:
            body["instructions"] = config.system_instruction
        if config.tools:
            body["tools"] = [_tool(tool) for tool in config.tools]
        body |= self._choice(config)
        body["input"] = [
            item for content in request.contents for item in _items(content)
        ]
        if self._reasons(model):
            body["include"] = ["reasoning.encrypted_content"]
        body |= _sampling(config) | self._form(config) | self._thinking(config)
        if request.cache_key is not None:
            body["prompt_cache_key"] = request.cache_key
        if stream:
            body["stream"] = True
        return Outgoing("/responses", body | dict(config.extra_body or {}), {})

    def assembler(self, shows_thoughts: bool) -> ResponsesAssembler:
        return ResponsesAssembler(self, shows_thoughts)

    def fault(self, body: Mapping[str, Any]) -> Fault | None:
        """The failure of a body, of an `error` event, or of a response that has failed."""
        kind = body.get("type")
        if kind == "error" and not body.get("error"):
            found: Fault | None = fault_in({"code": body.get("code"), "message": body.get("message")})
        elif kind in _ENDS or body.get("status") == "failed":
            response = body if kind not in _ENDS else object_in(body.get("response"))
            found = super().fault(response)
            if found is None and (kind == "response.failed" or response.get("status") == "failed"):
                found = Fault("server_error", "", 500)
        else:
            found = super().fault(body)
        if found is not None and found.status is None and _OF_INPUT.search(found.code):
            return found._replace(status=400)
        return found

    def fault_in(self, error: Mapping[str, Any]) -> Fault:
        return fault_in(error)

    # --- settings

    def _reasons(self, model: str) -> bool:
        return self._reasoning if self._reasoning is not None else _WITHOUT_REASONING.match(model) is None

    def _choice(self, config: GenerateContentConfig) -> dict[str, Any]:
        choice = choice_of(config)
        if choice is None:
            return {}
        if choice.mode == "VALIDATED" and self.leaves_out("tool_config", "mode VALIDATED"):
            return {}
        mode = {"AUTO": "auto", "ANY": "required", "NONE": "none"}[choice.mode]
        named = [{"type": "function", "name": name} for name in choice.names]
        if len(named) == 1:
            return {"tool_choice": named[0]}
        return {"tool_choice": {"type": "allowed_tools", "mode": mode, "tools": named} if named else mode}

    def _form(self, config: GenerateContentConfig) -> dict[str, Any]:
        if config.response_schema is not None:
            schema = closed(config.response_schema)
            form = {"type": "json_schema", "name": "response", "schema": schema, "strict": is_strict(schema)}
            return {"text": {"format": form}}
        if config.response_mime_type in (None, "text/plain"):
            return {}
        if config.response_mime_type == "application/json":
            return {"text": {"format": {"type": "json_object"}}}
        self.leaves_out("response_mime_type", config.response_mime_type or "")
        return {}

    def _thinking(self, config: GenerateContentConfig) -> dict[str, Any]:
        effort = effort_of(self, config)
        reasoning = {"effort": effort} if effort is not None else {}
        if thinking_of(config).is_shown:
            reasoning["summary"] = "auto"
        return {"reasoning": reasoning} if reasoning else {}


def _sampling(config: GenerateContentConfig) -> dict[str, Any]:
    given = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_output_tokens": config.max_output_tokens,
        "metadata": dict(config.labels) if config.labels else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _tool(tool: Any) -> dict[str, Any]:
    # Not strict: that takes a part of JSON schema only, and minirun checks the arguments in any case.
    described = {"description": tool.description} if tool.description else {}
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "name": tool.name, **described, "parameters": parameters, "strict": False}


# --- items ------------------------------------------------------------------------------------------------------------


def _items(content: Content) -> Iterator[dict[str, Any]]:
    if content.role == "model":
        items = [item for part in content.parts for item in _item_of_model(part)]
        while items and items[-1].get("type") == "reasoning":
            items.pop()  # the API refuses one that is not followed by what it led to
        yield from items
        return
    said: list[dict[str, Any]] = []
    for part in content.parts:
        if part.function_response is not None:
            yield _output(part.function_response)
        elif not part.thought:
            said += _pieces(part)
    if said or not content.responses:
        yield {"role": "user", "content": said or [{"type": "input_text", "text": ""}]}


def _item_of_model(part: Part) -> Iterator[dict[str, Any]]:
    call, seal = part.function_call, opened(part.thought_signature, ResponsesWire.provider)
    if part.thought:
        if seal is not None and seal.kind == "item":
            yield dict(object_of(seal.payload))
    elif call is not None:
        made = {"call_id": id_of(call), "name": name_sent(call.name), "arguments": dumps(call.args)}
        yield {"type": "function_call", **made}
    elif text := text_of_other(part):
        phase = {"phase": seal.payload} if seal is not None and seal.kind == "phase" else {}
        yield {"role": "assistant", "content": text, **phase}


def _output(answer: FunctionResponse) -> dict[str, Any]:
    output: Any = dumps(answer.response)
    if answer.parts:
        output = [{"type": "input_text", "text": output}, *(piece for part in answer.parts for piece in _pieces(part))]
    return {"type": "function_call_output", "call_id": id_of(answer), "output": output}


def _pieces(part: Part) -> list[dict[str, Any]]:
    shown = None
    if part.inline_data is not None and part.inline_data.data:
        shown = _media(part.inline_data)
    elif part.file_data is not None:
        shown = _file(part.file_data)
    if shown is not None:
        return [shown]
    text = text_of_other(part)
    return [{"type": "input_text", "text": text}] if text is not None else []


def _media(blob: Blob) -> dict[str, Any] | None:
    kind = blob.mime_type.partition(";")[0].strip().lower()
    kind = "image/jpeg" if kind == "image/jpg" else kind  # which many programs write
    if kind.startswith("text/") or kind == "application/json":
        return {"type": "input_text", "text": clean(blob.data.decode(errors="replace"))}
    data = f"data:{kind};base64,{base64.b64encode(blob.data).decode()}"
    if kind in IMAGES:
        return {"type": "input_image", "detail": "auto", "image_url": data}
    if kind == "application/pdf":
        return {"type": "input_file", "filename": blob.display_name or "file.pdf", "file_data": data}
    return None


def _file(file: FileData) -> dict[str, Any] | None:
    is_image = (file.mime_type or "").lower().startswith("image/")
    is_web = file.file_uri.startswith(("http://", "https://"))
    if file.file_uri.startswith("file-"):
        if is_image:
            return {"type": "input_image", "detail": "auto", "file_id": file.file_uri}
        return {"type": "input_file", "file_id": file.file_uri}
    if is_image and (is_web or file.file_uri.startswith("data:")):
        return {"type": "input_image", "detail": "auto", "image_url": file.file_uri}
    return {"type": "input_file", "file_url": file.file_uri} if is_web else None


# --- answers ----------------------------------------------------------------------------------------------------------


class _Item:
    """One item of a response as its events come."""

    __slots__ = ("ids", "in_one", "index", "is_added", "is_done", "is_told", "kind", "place")

    def __init__(self, kind: str, index: int | None = None) -> None:
        self.kind = kind  # its type
        self.index = index  # the server's `output_index`
        self.ids: set[str] = set()
        self.is_added = False  # whether it began with `output_item.added`
        self.is_done = False
        self.is_told = False  # whether its arguments have come in pieces
        self.in_one = False  # whether its text has come without `content_index`
        self.place: object = None  # of its thoughts, the part that grows


class ResponsesAssembler(Assembler):
    """
    Named events: a response is created, items are added, grow and are done, the response is completed.

    `output_item.done` repeats what has come in pieces, and the end of the response repeats every item. Each item is
    taken once, so that servers that leave the pieces out are understood, too. In the stream an item is known by its
    `output_index`, where two items of different ids do not share one, else by its id (llama.cpp sends no index), else
    by its order; at the end of the response by its id, else by its type and text, else by its type and order. A text
    without `content_index` is all of its item's.
    """

    def __init__(self, wire: Wire, shows_thoughts: bool) -> None:
        super().__init__(wire, shows_thoughts)
        self._refusal = ""
        self._items: list[_Item] = []  # those of the stream, in order
        self._by_id: dict[str, _Item] = {}
        self._by_index: dict[int, _Item] = {}  # the last one of each index
        self._last: dict[str, _Item] = {}  # by type

    def _take(self, data: Mapping[str, Any]) -> list[Part]:
        kind = data.get("type")
        if grows := _DELTAS.get(text_in(kind)):
            growing = self._item_of(data.get("output_index"), text_in(data.get("item_id")), grows, "delta")
            return self._take_delta(text_in(kind), growing, data)
        if kind in ("response.output_item.added", "response.output_item.done"):
            said, event = object_in(data.get("item")), kind.rpartition(".")[2]
            item = self._item_of(data.get("output_index"), _id_of_item(said), text_in(said.get("type")), event)
            if event == "done":
                return self._take_item(item, said)
            self._begin(item, said)
        elif kind in ("response.created", "response.in_progress"):
            self._take_head(object_in(data.get("response")))
        elif kind in ("response.completed", "response.incomplete"):
            return self._take_response(object_in(data.get("response")))
        return []

    def _item_of(self, index: object, item_id: str, kind: str, event: str) -> _Item:
        """Return the item that an event (`added`, `delta` or `done`) is about."""
        place = index if isinstance(index, int) else None
        item = self._by_id.get(item_id)
        if item is None or item.kind != kind or (None not in (place, item.index) and place != item.index):
            item = self._last.get(kind) if place is None else self._by_index.get(place)
            if item is None or item.kind != kind or self._is_another(item, place, item_id, event):
                item = _Item(kind)
                self._items.append(item)
        item.is_added = item.is_added or event == "added"
        if item_id:
            item.ids.add(item_id)
            self._by_id.setdefault(item_id, item)
        if place is not None:
            item.index = place
            self._by_index[place] = item
        self._last[kind] = item
        return item

    def _is_another(self, last: _Item, place: int | None, item_id: str, event: str) -> bool:
        """
        Whether an event with an unknown id, or with none, is about another item than the last one in its place.

        Some servers have other ids in the pieces of an item than in the item, or another one in each event. So an id
        that differs begins an item only if the event is the first of an item, or the last item is done.
        """
        if place is None:
            if event == "added" or last.is_done:
                return True
            return event == "delta" and bool(item_id and last.ids) and not last.is_added
        differs = bool(item_id) and item_id not in last.ids
        return differs and (bool(last.ids) if event == "added" else last.is_done)

    def _take_delta(self, kind: str, item: _Item, data: Mapping[str, Any]) -> list[Part]:
        if item.is_done:
            return []  # a server has repeated it
        if kind == "response.output_text.delta":
            place = data.get("content_index")
            if not isinstance(place, int):
                place = 0
                item.in_one = True
            return self.text((item, place), text_in(data.get("delta")))
        if kind == "response.function_call_arguments.delta":
            if self.has((item, "call")):
                item.is_told = True
                self.arguments((item, "call"), text_in(data.get("delta")))
            return []
        source = "summary" if kind == "response.reasoning_summary_text.delta" else "content"
        return self._think(item, (source, data.get(f"{source}_index")), text_in(data.get("delta")))

    def _take_whole(self, body: Mapping[str, Any]) -> None:
        self._take_response(body)

    def _take_head(self, response: Mapping[str, Any]) -> None:
        self.response_id = text_in(response.get("id")) or self.response_id
        self.model_version = text_in(response.get("model")) or self.model_version

    def _take_response(self, response: Mapping[str, Any]) -> list[Part]:
        self._take_head(response)
        shown: list[Part] = []
        output = items_of(response.get("output"))
        for item, said in zip(self._items_of(output), output, strict=True):
            shown += self._take_item(item, said)
        self.use(response.get("usage"))
        self._finish(response)
        return shown

    def _items_of(self, output: list[Mapping[str, Any]]) -> list[_Item]:
        """Return which item of the stream each one at the end of the response is; a new one if it has not come yet."""
        kinds = [text_in(said.get("type")) for said in output]
        found = [self._by_id.get(_id_of_item(said)) for said in output]
        found = [item if item and item.kind == kind else None for item, kind in zip(found, kinds, strict=True)]
        if self._items and None in found:
            texts: dict[object, str] = {}
            for key, block in self._blocks.items():
                item = key[0] if isinstance(key, tuple) else None
                texts[item] = texts.get(item, "") + block.name + "".join(block.pieces)
            names = [(kind, _text_of_item(said)) for kind, said in zip(kinds, output, strict=True)]
            self._match(found, names, lambda item: (item.kind, texts.get(item, "")))
            self._match(found, kinds, lambda item: item.kind)
        return [item or _Item(kind) for item, kind in zip(found, kinds, strict=True)]

    def _match(self, found: list[_Item | None], names: Sequence[object], name_of: Callable[[_Item], object]) -> None:
        """Set each one not found to the first item of its name that is not found either."""
        free: dict[object, deque[_Item]] = {}
        taken = set(found)
        for item in self._items:
            if item not in taken:
                free.setdefault(name_of(item), deque()).append(item)
        for place, name in enumerate(names):
            if found[place] is None and free.get(name):
                found[place] = free[name].popleft()

    def _begin(self, item: _Item, said: Mapping[str, Any]) -> None:
        if item.kind == "function_call" and not self.has((item, "call")):
            self.call((item, "call"), text_in(said.get("name")), text_in(said.get("call_id")) or None)

    def _take_item(self, item: _Item, said: Mapping[str, Any]) -> list[Part]:
        """Take an item that is done; return what of it has not been shown yet."""
        if item.is_done:
            return []
        item.is_done = True
        if item.kind == "message":
            return self._take_message(item, said)
        if item.kind == "reasoning":
            return self._take_reasoning(item, said)
        if item.kind == "function_call":
            self._begin(item, said)
            if not item.is_told:
                self.arguments((item, "call"), text_in(said.get("arguments")))
        return []

    def _take_message(self, item: _Item, said: Mapping[str, Any]) -> list[Part]:
        shown: list[Part] = []
        for place, piece in enumerate(items_of(said.get("content"))):
            if piece.get("type") == "refusal":
                self._refusal += text_in(piece.get("refusal"))
            elif piece.get("type") == "output_text":
                if not item.in_one and not self.has((item, place)):
                    shown += self.text((item, place), text_in(piece.get("text")))
                if text_in(said.get("phase")) and self.has((item, place)):
                    self.seal((item, place), "phase", text_in(said.get("phase")))
                self.cite(*items_of(piece.get("annotations")))
        return shown

    def _take_reasoning(self, item: _Item, said: Mapping[str, Any]) -> list[Part]:
        shown: list[Part] = []
        if not self.has((item, "reasoning")):
            for source in ("summary", "content"):
                for place, piece in enumerate(items_of(said.get(source))):
                    shown += self._think(item, (source, place), text_in(piece.get("text")))
        if text_in(said.get("encrypted_content")):  # without it the item names what is not stored
            whole = {name: value for name, value in said.items() if value is not None}
            self.seal((item, "reasoning"), "item", dumps(whole))
        return shown

    def _think(self, item: _Item, place: object, text: str) -> list[Part]:
        if item.place is not None and item.place != place:
            text = f"\n\n{text}"
        item.place = place
        return self.text((item, "reasoning"), text, thought=True)

    def _counted(self, usage: Mapping[str, Any]) -> UsageMetadata:
        return usage_of(usage, "input_tokens", "output_tokens")

    def _finish(self, response: Mapping[str, Any]) -> None:
        status = response.get("status")
        if status not in ("completed", "incomplete", "cancelled"):
            return
        reason = text_in(object_in(response.get("incomplete_details")).get("reason"))
        if status != "completed" and reason not in _REASONS:
            raise broken_off(reason or text_in(status))
        self.finish_reason = "STOP" if status == "completed" else _REASONS[reason]
        if self._refusal or self.finish_reason == "SAFETY":
            self.finish_reason = self.error_code = "SAFETY"
            self.error_message = clean(self._refusal) or "the provider's policy has stopped the answer"


def _id_of_item(item: Mapping[str, Any]) -> str:
    """Return what names an item in other events; empty: nothing does."""
    return text_in(item.get("id")) or text_in(item.get("call_id"))


def _text_of_item(said: Mapping[str, Any]) -> str:
    """Return the text of an item as the blocks of its pieces have it."""
    if said.get("type") == "function_call":
        return text_in(said.get("name")) + text_in(said.get("arguments"))
    if said.get("type") == "reasoning":
        pieces = [*items_of(said.get("summary")), *items_of(said.get("content"))]
        return "\n\n".join(text_in(piece.get("text")) for piece in pieces)
    return "".join(text_in(piece.get("text")) for piece in items_of(said.get("content")))
