"""
What is put together of a stream is what the provider meant, whatever it says and in whatever pieces it comes.

Each API has an encoder here, which plays an answer as its server would.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun._json import dumps
from minirun.models import LlmResponse
from minirun.models._seals import sealed
from minirun.models._sse import SseReader
from minirun.models._wire import Wire
from minirun.models._wire_anthropic import MessagesWire
from minirun.models._wire_gemini import GeminiWire
from minirun.models._wire_openai_chat import ChatWire
from minirun.models._wire_openai_responses import ResponsesWire
from minirun.types import Content, FunctionCall, Part

from ..provider_servers.server import in_pieces

Events: TypeAlias = Iterator[dict[str, Any]]
Cut: TypeAlias = Callable[[str], list[str]]


class Block(NamedTuple):
    """Something that an answer says: a text, a thought with its seal, or a call with its id."""

    kind: str
    text: str = ""  # the name of a call
    args: Any = None
    mark: str = ""


TEXTS = st.text(st.sampled_from('aß😀 \n"\\\u2028{'), min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
CALLS = st.builds(
    lambda name, args: Block("call", name, args),
    st.sampled_from(["add", "now"]),
    st.dictionaries(TEXTS, JSON, max_size=3),
)
THOUGHTS = st.builds(
    lambda text, seal: Block("thought", text, mark=b64encode(seal).decode()), TEXTS, st.binary(min_size=1, max_size=4)
)
SAID = st.builds(lambda text: Block("text", text), TEXTS)


@st.composite
def answers(draw: st.DrawFn) -> list[Block]:
    """An answer: thoughts and texts in turns, and calls with ids of their own."""
    blocks = draw(st.lists(st.one_of(SAID, THOUGHTS, CALLS), min_size=1, max_size=6))
    made: list[Block] = []
    for number, block in enumerate(blocks):
        if made and made[-1].kind == block.kind == "text":
            continue  # two texts, one after the other, are one where blocks have no ends
        made.append(block._replace(mark=f"id_{number}") if block.kind == "call" else block)
    return made


# --- how each API says it ---------------------------------------------------------------------------------------------


def chat(blocks: list[Block], cut: Cut) -> Events:
    """Chat completions: all texts are one and all thoughts are one, without a seal; calls grow by index."""
    number = 0
    for block in blocks:
        if block.kind == "call":
            function = {"name": block.text, "arguments": ""}
            head = {"index": number, "id": block.mark, "type": "function", "function": function}
            yield {"choices": [{"index": 0, "delta": {"tool_calls": [head]}}]}
            for piece in cut(dumps(block.args)):
                delta = {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
                yield {"choices": [{"index": 0, "delta": delta}]}
            number += 1
            continue
        field = "content" if block.kind == "text" else "reasoning_content"
        for piece in cut(block.text):
            yield {"choices": [{"index": 0, "delta": {field: piece}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if number else "stop"}]}


def responses(blocks: list[Block], cut: Cut) -> Events:
    """Responses: each block is an item."""
    output: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        item: dict[str, Any]
        if block.kind == "call":
            item = {"type": "function_call", "call_id": block.mark, "name": block.text, "arguments": ""}
            text, kind = dumps(block.args), "response.function_call_arguments.delta"
            done = {**item, "arguments": text}
        elif block.kind == "text":
            item = {"type": "message", "role": "assistant", "content": []}
            text, kind = block.text, "response.output_text.delta"
            done = {**item, "content": [{"type": "output_text", "text": text, "annotations": []}]}
        else:
            item = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
            text, kind = block.text, "response.reasoning_summary_text.delta"
            done = {**item, "summary": [{"type": "summary_text", "text": text}], "encrypted_content": block.mark}
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        for piece in cut(text):
            yield {"type": kind, "output_index": index, "content_index": 0, "summary_index": 0, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": done}
        output.append(done)
    yield {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}}


def messages(blocks: list[Block], cut: Cut) -> Events:
    """Messages: each block starts, grows and stops."""
    yield {"type": "message_start", "message": {"id": "m", "model": "claude", "usage": {}}}
    for index, block in enumerate(blocks):
        start, text, kind, field = _block_of(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for piece in cut(text):
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}}
        if block.kind == "thought":
            signed = {"type": "signature_delta", "signature": block.mark}
            yield {"type": "content_block_delta", "index": index, "delta": signed}
        yield {"type": "content_block_stop", "index": index}
    is_calling = any(block.kind == "call" for block in blocks)
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use" if is_calling else "end_turn"}, "usage": {}}
    yield {"type": "message_stop"}


def _block_of(block: Block) -> tuple[dict[str, Any], str, str, str]:
    """How a block starts, what then comes in pieces, and as what."""
    if block.kind == "call":
        start = {"type": "tool_use", "id": block.mark, "name": block.text, "input": {}}
        return start, dumps(block.args), "input_json_delta", "partial_json"
    if block.kind == "text":
        return {"type": "text", "text": ""}, block.text, "text_delta", "text"
    return {"type": "thinking", "thinking": "", "signature": ""}, block.text, "thinking_delta", "thinking"


def gemini(blocks: list[Block], cut: Cut) -> Events:
    """Gemini: whole partial responses; a seal comes on a part of its own thought."""
    for block in blocks:
        parts: list[dict[str, Any]]
        if block.kind == "call":
            parts = [{"functionCall": {"name": block.text, "args": block.args, "id": block.mark}}]
        elif block.kind == "text":
            parts = [{"text": piece} for piece in cut(block.text)]
        else:
            parts = [{"text": block.text, "thought": True, "thoughtSignature": block.mark}]
        for part in parts:
            yield {"candidates": [{"content": {"role": "model", "parts": [part]}}]}
    yield {"candidates": [{"finishReason": "STOP"}]}


# --- what was meant ---------------------------------------------------------------------------------------------------


def part_of(block: Block, seal: bytes | None = None) -> Part:
    """The part that a block is."""
    if block.kind == "call":
        return Part(function_call=FunctionCall(name=block.text, args=block.args, id=block.mark))
    return Part(text=block.text, thought=True if block.kind == "thought" else None, thought_signature=seal)


def meant_by_chat(blocks: list[Block]) -> list[Part]:
    """Its texts in one, and its thoughts in one, where the first of them stood."""
    made: dict[object, Block] = {}
    for number, block in enumerate(blocks):
        key = number if block.kind == "call" else block.kind
        made[key] = block if key not in made else block._replace(text=made[key].text + block.text)
    return [part_of(block) for block in made.values()]


def meant_by_responses(blocks: list[Block]) -> list[Part]:
    """The seal of a thought is the whole item."""
    made = []
    for index, block in enumerate(blocks):
        summary = [{"type": "summary_text", "text": block.text}]
        item = {"type": "reasoning", "id": f"rs_{index}", "summary": summary, "encrypted_content": block.mark}
        made.append(part_of(block, sealed("openai", "item", dumps(item)) if block.kind == "thought" else None))
    return made


def meant_with(provider: str, kind: str) -> Callable[[list[Block]], list[Part]]:
    """The seal of a thought is what the provider has sent with it."""

    def meant(blocks: list[Block]) -> list[Part]:
        return [
            part_of(block, sealed(provider, kind, block.mark) if block.kind == "thought" else None) for block in blocks
        ]

    return meant


APIS: dict[str, tuple[Wire, Callable[[list[Block], Cut], Events], Callable[[list[Block]], list[Part]]]] = {
    "openai": (ChatWire(), chat, meant_by_chat),
    "responses": (ResponsesWire(), responses, meant_by_responses),
    "anthropic": (MessagesWire(), messages, meant_with("anthropic", "thinking")),
    "gemini": (GeminiWire(), gemini, meant_with("gemini", "signature")),
}


def assembled(wire: Wire, data: list[bytes]) -> tuple[list[Part], LlmResponse]:
    """What is shown of a stream, and what it is in the end."""
    reader, assembler = SseReader(), wire.assembler(True)
    shown: list[Part] = []
    for piece in data:
        for event in reader.feed(piece):
            shown += assembler.feed(json.loads(event.data))
    assert assembler.is_done
    return [*shown, *assembler.end()], assembler.response()


@pytest.mark.parametrize("name", APIS)
@given(blocks=answers(), length=st.integers(1, 4), size=st.integers(1, 50))
def test_an_answer_is_what_was_meant(name: str, blocks: list[Block], length: int, size: int) -> None:
    """
    Texts, thoughts with their seals and calls with their arguments come as they were said, in their order.
    """
    wire, encode, meant = APIS[name]

    def cut(text: str) -> list[str]:
        return [text[start : start + length] for start in range(0, len(text), length)]

    data = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in encode(blocks, cut))
    shown, response = assembled(wire, in_pieces(data.encode(), size))
    assert response.content == Content(role="model", parts=meant(blocks))
    assert (response.finish_reason, response.error_code) == ("STOP", None)
    for is_thought in (None, True):
        said = [block.text for block in blocks if block.kind == ("thought" if is_thought else "text")]
        assert "".join(part.text or "" for part in shown if part.thought is is_thought) == "".join(said)


@pytest.mark.parametrize("name", ["openai", "responses", "anthropic"])
def test_an_answer_that_is_a_call_is_shown_as_it_is_made(name: str) -> None:
    """
    The arguments of `set_model_response` come in the pieces in which they were said, each at once; those of other
    calls only at the end.
    """
    wire, encode, _ = APIS[name]
    args = {"points": ["a", "ß😀"], "sum": 3}

    def cut(text: str) -> list[str]:
        return [text[start : start + 7] for start in range(0, len(text), 7)]

    assembler, shown = wire.assembler(True), list[str]()
    for event in encode([Block("call", "add", args, "id_0"), Block("call", "set_model_response", args, "id_1")], cut):
        parts = assembler.feed(json.loads(json.dumps(event)))
        pieces = [part.function_call.args_text or "" for part in parts if part.function_call]
        assert len(pieces) <= 1
        shown += pieces
    assert shown == cut(dumps(args))
    assert [part.function_call and part.function_call.args for part in assembler.response().content.parts] == [args] * 2  # type: ignore[union-attr]  # it has content
