"""
What is sent to a provider, for any history: it is what that API's published types allow, and stable.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from minirun._json import dumps, freeze
from minirun.models import LlmRequest
from minirun.models._seals import opened, sealed
from minirun.models._wire import Wire, text_of_other
from minirun.models._wire_anthropic import MessagesWire
from minirun.models._wire_gemini import GeminiWire, merged
from minirun.models._wire_openai_chat import ChatWire
from minirun.models._wire_openai_responses import ResponsesWire
from minirun.models._wire_openai_session import _merged
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

from ..provider_servers import anthropic, gemini, openai_chat, openai_responses

WIRES: dict[str, tuple[Wire, Callable[[Any], str | None], Any]] = {
    "openai": (ChatWire(), openai_chat.problem_with_body, TypeAdapter(CompletionCreateParamsNonStreaming)),
    "compatible": (ChatWire((), "compatible"), openai_chat.problem_with_body, None),
    "responses": (
        ResponsesWire(["stop_sequences"]),
        openai_responses.problem_with_body,
        TypeAdapter(ResponseCreateParamsNonStreaming),
    ),
    "gemini": (GeminiWire(), gemini.problem_with_body, None),  # which has checked them with the SDK's types
    "anthropic": (MessagesWire(), anthropic.problem_with_body, TypeAdapter(MessageCreateParamsNonStreaming)),
}

TEXTS = st.text(' \n"aß😀', max_size=4)
SCALARS = st.sampled_from([None, True, -7, 0.5, "", "ß"])
JSON = SCALARS | st.lists(SCALARS, max_size=1) | st.dictionaries(TEXTS, SCALARS, max_size=1)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=2)
ITEMS = st.builds(
    lambda seal: dumps({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": seal}),
    TEXTS.filter(bool),
)
SEALS = st.one_of(
    st.none(),
    st.builds(sealed, st.just("anthropic"), st.sampled_from(["thinking", "redacted"]), TEXTS),
    st.builds(sealed, st.just("openai"), st.just("item"), ITEMS),
    st.builds(
        sealed,
        st.just("gemini"),
        st.just("signature"),
        st.binary(min_size=1, max_size=4).map(lambda b: b64encode(b).decode()),
    ),
)
PHASES = st.none() | st.sampled_from([sealed("openai", "phase", "commentary"), sealed("gemini", "signature", "YQ==")])
FILES = st.sampled_from(
    [
        Part(inline_data=Blob(data=b"\x89", mime_type="image/png", display_name="a")),
        Part(inline_data=Blob(data=b"%PDF", mime_type="application/pdf")),
        Part(inline_data=Blob(data=b"a,b\xff", mime_type="text/csv")),
        Part(inline_data=Blob(data=b"", mime_type="image/png")),
        Part(inline_data=Blob(data=b"MM", mime_type="image/tiff")),
        Part(inline_data=Blob(data=b"PK", mime_type="application/zip")),
        Part(inline_data=Blob(data=b"a", mime_type="hm")),
        Part(file_data=FileData(file_uri="https://h/i.png", mime_type="image/png")),
        Part(file_data=FileData(file_uri="gs://b/f")),
    ]
)
OTHERS = st.one_of(
    st.builds(lambda text: Part(text=text), TEXTS),
    st.builds(lambda code: Part(executable_code=ExecutableCode(code=code, language="PYTHON")), TEXTS),
    st.builds(
        lambda outcome, output: Part(code_execution_result=CodeExecutionResult(outcome=outcome, output=output)),
        st.sampled_from([None, "OUTCOME_OK", "hm"]),
        TEXTS,
    ),
)
SAID = OTHERS | st.builds(lambda text, seal: Part(text=text, thought_signature=seal), TEXTS, PHASES)
MEDIA = st.lists(FILES, max_size=1)
IDS = st.sampled_from(["c", "call-"])
THOUGHTS = st.builds(lambda text, seal: Part(text=text, thought=True, thought_signature=seal), TEXTS, SEALS)


ARGUMENTS = st.fixed_dictionaries({"args": OBJECTS}) | st.just({"args_text": "{"})


@st.composite
def histories(draw: st.DrawFn) -> list[Content]:
    """A history that a strict provider would take: the user begins and ends, and calls are answered at once."""
    contents = [Content(role="user", parts=draw(st.lists(OTHERS | FILES, min_size=1, max_size=3)))]
    for turn in range(draw(st.integers(0, 3))):
        said = draw(st.lists(SAID | FILES | THOUGHTS, min_size=1, max_size=3))
        calls = [
            FunctionCall(
                name=draw(st.sampled_from(["add", "now"])),
                id=draw(IDS) + f"{turn:012x}{number:012x}",
                **draw(ARGUMENTS),
            )
            for number in range(draw(st.integers(0, 3)))
        ]
        made = [Part(function_call=call, thought_signature=draw(SEALS)) for call in calls]
        contents.append(Content(role="model", parts=[*said, *made]))
        answers = [
            Part(
                function_response=FunctionResponse(
                    name=call.name, id=call.id, response=draw(OBJECTS), parts=draw(MEDIA)
                )
            )
            for call in calls
        ]
        parts = [*answers, *draw(st.lists(OTHERS | FILES, min_size=0 if answers else 1, max_size=2))]
        contents.append(Content(role="user", parts=parts))
    return contents


TOOLS = st.lists(
    st.builds(
        FunctionDeclaration,
        name=st.sampled_from(["add", "now", "look"]),
        description=TEXTS,
        parameters=st.just({"type": "object", "properties": {"a": {"type": "integer"}}}) | st.just({}),
    ),
    max_size=3,
    unique_by=lambda tool: tool.name,
)
SCHEMAS = st.none() | st.just({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
CHOICES = st.none() | st.builds(
    lambda mode: {"function_calling_config": {"mode": mode}}, st.sampled_from(["AUTO", "ANY", "NONE"])
)
THINKING = st.none() | st.builds(lambda level: {"thinking_level": level}, st.sampled_from(["low", "medium", "high"]))
CONFIGS = st.builds(
    GenerateContentConfig,
    system_instruction=st.none() | TEXTS,
    tools=TOOLS,
    max_output_tokens=st.none() | st.integers(1, 9),
    stop_sequences=st.none() | st.lists(TEXTS.filter(bool), min_size=1, max_size=2),
    response_schema=SCHEMAS,
    tool_config=CHOICES,
    thinking_config=THINKING,
)


def messages_of(body: dict[str, Any]) -> list[Any]:
    """The conversation in a body, as each API calls it."""
    found = next(body[key] for key in ("messages", "input", "contents") if key in body)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("name", WIRES)
@given(contents=histories(), config=CONFIGS)
def test_every_body_is_what_the_api_takes(name: str, contents: list[Content], config: GenerateContentConfig) -> None:
    """
    Any history and any settings become a body that the SDK's own types check, without a field that they do not know.
    """
    wire, problem_with, types = WIRES[name]
    outgoing = wire.outgoing(LlmRequest(contents=contents, config=config), "model", False)
    body = json.loads(dumps(outgoing.body))
    assert problem_with(body) is None
    if types is not None:
        types.validate_python(body)


@pytest.mark.parametrize("name", WIRES)
@given(contents=histories(), data=st.data())
def test_a_longer_history_begins_as_the_shorter_one(name: str, contents: list[Content], data: st.DataObject) -> None:
    """
    The messages of a history are a prefix of those of the history that goes on from it, byte by byte.
    """
    wire, _, _ = WIRES[name]
    shorter = contents[: data.draw(st.integers(1, len(contents)))]
    found = [
        [dumps(item) for item in messages_of(wire.outgoing(LlmRequest(contents=some), "model", False).body)]
        for some in (shorter, contents)
    ]
    assert found[1][: len(found[0])] == found[0]


@pytest.mark.parametrize("name", WIRES)
@given(contents=histories())
def test_seals_go_back_or_go_with_their_thoughts(name: str, contents: list[Content]) -> None:
    """
    Of the thoughts in a history those that the provider has sealed go back, seal and all; of others nothing does.
    """
    wire, _, _ = WIRES[name]
    messages = messages_of(wire.outgoing(LlmRequest(contents=contents), "model", False).body)
    assert list(seals_sent(name, messages)) == list(seals_in(name, contents))


def seals_sent(name: str, messages: list[Any]) -> Iterator[str]:
    for message in messages:
        if name == "responses":
            if message.get("type") == "reasoning":
                yield dumps(message)
            continue
        inside = message.get("parts", message.get("content"))
        for block in inside if isinstance(inside, list) else []:
            if "thoughtSignature" in block:
                yield block["thoughtSignature"]
            elif block.get("type") in ("thinking", "redacted_thinking"):
                yield block.get("signature", block.get("data"))


def seals_in(name: str, contents: list[Content]) -> Iterator[str]:
    """The seals in a history that the API sees again."""
    for content in contents:
        for index, part in enumerate(content.parts):
            seal = opened(part.thought_signature, "openai" if name == "responses" else name)
            after = [each for each in content.parts[index:] if not each.thought and text_of_other(each) != ""]
            if seal is None or name in ("openai", "compatible"):
                continue
            # A signature of Gemini's sits on any part. A reasoning item comes before what it has led to.
            if name == "gemini" or (part.thought and (name == "anthropic" or after)):
                yield seal.payload


Merge = Callable[[Any, Any], dict[str, Any]]


MERGES: list[Merge] = [merged, _merged]


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize(
    ("mine", "more", "made"),
    [
        ({}, {}, {}),
        ({"a": 1}, {}, {"a": 1}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, {"a": {"b": 1, "c": 3, "d": 4}}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
        ({"a": {"b": 1}}, {"a": 5}, {"a": 5}),
        ({"a": {"b": 1}}, {"a": None}, {"a": None}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ],
)
def test_extra_body_is_merged_into_objects_and_replaces_all_else(
    merge: Merge, mine: dict[str, Any], more: dict[str, Any], made: dict[str, Any]
) -> None:
    """Objects of both are merged at every depth, other values are the caller's; neither argument is changed."""
    before = freeze(mine)
    assert merge(mine, more) == made
    assert merge(mine, freeze(more)) == made
    assert mine == before
