"""
What wires make of requests and answers at their edges: of what is missing, of what comes last, of limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minirun._json import dumps
from minirun.models import ContextCacheConfig, LiveConnectConfig, LlmRequest, LlmResponse
from minirun.models._reading_gemini_live import GeminiLiveState
from minirun.models._seals import sealed
from minirun.models._wire import Wire
from minirun.models._wire_anthropic import MessagesWire
from minirun.models._wire_gemini import GeminiWire
from minirun.models._wire_gemini_live import GeminiLiveWire
from minirun.models._wire_openai_chat import ChatWire
from minirun.models._wire_openai_responses import ResponsesWire
from minirun.models._wire_openai_session import is_image
from minirun.types import Content, Part

HI = Content(role="user", parts=[Part(text="hi")])


def sent(wire: Wire, *contents: Content, **fields: Any) -> dict[str, Any]:
    return wire.outgoing(LlmRequest(contents=contents, **fields), "model", False).body


def made_of(wire: Wire, *events: Mapping[str, Any]) -> LlmResponse:
    """The response that these events of a stream are."""
    assembler = wire.assembler(True)
    for event in events:
        assembler.feed(event)
    return assembler.response()


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_thought_whose_seal_is_of_another_kind_stays_here() -> None:
    """
    OpenAI gets back as a reasoning item only what came as one.
    """
    thought = Part(text="hm", thought=True, thought_signature=sealed("openai", "phase", "commentary"))
    said = Content(role="model", parts=[thought, Part(text="so")])
    assert sent(ResponsesWire(), said)["input"] == [{"role": "assistant", "content": "so"}]


def test_four_letters_are_a_token() -> None:
    """
    Claude is given marks from as many letters on as `min_tokens` are by four.
    """
    length = len(dumps(sent(MessagesWire(), HI)))
    name = "m" * (5 + -length % 4)  # so that the body has a multiple of four letters
    for least, is_marked in ((0, True), (1, False)):
        tokens = (length - len("model") + len(name)) // 4 + least
        asked = LlmRequest(contents=[HI], cache_config=ContextCacheConfig(min_tokens=tokens))
        assert ("cache_control" in dumps(MessagesWire().outgoing(asked, name, False).body)) is is_marked


def test_without_a_least_length_all_requests_have_marks() -> None:
    """
    A `min_tokens` of 0 leaves no request of Claude's without marks.
    """
    asked = LlmRequest(contents=[HI], cache_config=ContextCacheConfig(min_tokens=0))
    assert "cache_control" in dumps(MessagesWire().outgoing(asked, "model", False).body)


@pytest.mark.parametrize("types_in_real_time", [False, True])
def test_a_live_session_without_settings_is_as_by_default(types_in_real_time: bool) -> None:
    """
    A request that says nothing of its live session asks Gemini for the same as one with the settings by default.
    """
    setups, told = [], []
    for live in (None, LiveConnectConfig()):
        request, wire = LlmRequest(contents=(), live=live), GeminiLiveWire()
        setups.append(wire.setup(request, "models/m", types_in_real_time))
        told.append(wire.writer(request, GeminiLiveState(), types_in_real_time).content(HI, True, None))
    assert setups[0] == setups[1]
    assert told[0] == told[1]


def test_a_thought_is_not_typed() -> None:
    """
    A thought in what the user types is not sent to a live session, though it is sealed.
    """
    thought = Part(text="hm", thought=True, thought_signature=sealed("gemini", "signature", "c2VhbA=="))
    writer = GeminiLiveWire().writer(LlmRequest(contents=(), live=LiveConnectConfig()), GeminiLiveState(), False)
    [told] = writer.content(Content(role="user", parts=[thought, Part(text="hi")]), True, None)
    assert told["clientContent"]["turns"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_pictures_of_the_realtime_api() -> None:
    """
    OpenAI's realtime API takes PNG and JPEG, by whatever name.
    """
    assert [is_image(kind) for kind in ("image/png", "IMAGE/JPG; a=b", "image/gif")] == [True, True, False]


# --- answers ----------------------------------------------------------------------------------------------------------

NAMELESS: dict[str, tuple[Wire, list[dict[str, Any]]]] = {
    "responses": (
        ResponsesWire(),
        [{"type": "response.output_item.done", "output_index": 0, "item": {"type": "function_call", "name": "f"}}],
    ),
    "anthropic": (
        MessagesWire(),
        [{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "f"}}],
    ),
    "openai": (ChatWire(), [{"choices": [{"delta": {"tool_calls": [{"function": {"name": "f"}}]}}]}]),
    "gemini": (GeminiWire(), [{"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]}]),
}


@pytest.mark.parametrize("name", NAMELESS)
def test_a_call_without_an_id_has_none(name: str) -> None:
    """
    A call that the provider gives no id has none, rather than an empty one.
    """
    wire, events = NAMELESS[name]
    content = made_of(wire, *events).content
    assert content is not None
    assert [(call.name, call.id, dict(call.args)) for call in content.calls] == [("f", None, {})]


def test_a_response_may_be_named_while_it_is_made() -> None:
    """
    OpenAI's responses have the id and the model that any event about the whole has told.
    """
    for kind in ("created", "in_progress", "completed"):
        made = made_of(ResponsesWire(), {"type": f"response.{kind}", "response": {"id": "r1", "model": "m1"}})
        assert (made.response_id, made.model_version) == ("r1", "m1")


def test_parts_of_a_summary_are_set_apart_once() -> None:
    """
    Where a part of a summary ends stands an empty line, and between the pieces of one part nothing.
    """
    pieces = [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2)]
    kind = "response.reasoning_summary_text.delta"
    made = made_of(
        ResponsesWire(),
        *({"type": kind, "output_index": 0, "summary_index": part, "delta": text} for text, part in pieces),
    )
    assert made.content is not None
    assert [part.text for part in made.content.parts] == ["ab\n\ncd\n\ne"]
