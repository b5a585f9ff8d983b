"""
What is said over each provider's wire, as tables of JSON in `tests/fixtures/wire/tables`; `tests/wire_tables.py` has
the questions, and says how the tables are written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minirun.errors import ConfigurationError
from minirun.models._wire import Wire
from minirun.models._wire_anthropic import MessagesWire
from minirun.models._wire_gemini import GeminiWire
from minirun.models._wire_openai_chat import ChatWire
from minirun.models._wire_openai_responses import ResponsesWire

from ..tables import kept
from ..wire_tables import PLAIN, WIRES, answered, failed, kept_requests, problem_with_answer, sent

ANSWERING = [name for name in WIRES if name != "compatible"]  # which reads as the other one does


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The cases of two tables that are not the same."""
    cases = {*found, *expected}
    return {case: (found.get(case), expected.get(case)) for case in cases if found.get(case) != expected.get(case)}


@pytest.mark.parametrize("name", WIRES)
def test_every_question_is_put_as_the_table_says(name: str) -> None:
    """
    Each setting, each kind of part and each form of call is sent as the API has it, or refused by the words that the
    table has; what is ignored changes nothing. The fake server's types accept all that is sent.
    """
    assert differences(sent(name), kept_requests(name)) == {}


@pytest.mark.parametrize("name", ANSWERING)
def test_every_answer_is_read_as_the_table_says(name: str) -> None:
    """
    Each kind of event, each reason to end and each count is read into the same response, whatever stands beside it.
    """
    table = kept("wire/tables/answers")[name]
    found = {case: answered(name, told["given"]) for case, told in table.items()}
    assert differences(found, {case: told["made"] for case, told in table.items()}) == {}


@pytest.mark.parametrize("name", ANSWERING)
def test_the_answers_of_the_table_are_the_providers(name: str) -> None:
    """
    The provider's own types know every field of the answers, but for those of other servers and failures (with a star).
    """
    table = kept("wire/tables/answers")[name]
    found = {case: problem_with_answer(name, told["given"]) for case, told in table.items() if case[0] != "*"}
    assert {case: problem for case, problem in found.items() if problem} == {}


@pytest.mark.parametrize("name", ANSWERING)
def test_every_failure_is_told_as_the_table_says(name: str) -> None:
    """
    A status, a code or words that providers use for one thing become the error for it, with all that was said.
    """
    table = kept("wire/tables/failures")[name]
    found = {case: failed(name, told["given"]) for case, told in table.items()}
    assert differences(found, {case: told["made"] for case, told in table.items()}) == {}


def test_keys_paths_and_streams() -> None:
    """
    Each API has its own header for the key, path for the model, and field for a stream; without a key there is none.
    """
    chat, responses, claude = ChatWire(), ResponsesWire(), MessagesWire(max_tokens=5, api_version="2020-01-01")
    gemini, vertex = GeminiWire(), GeminiWire((), True)
    assert [wire.headers("k") for wire in (chat, responses, claude, gemini, vertex)] == [
        {"authorization": "Bearer k"},
        {"authorization": "Bearer k"},
        {"anthropic-version": "2020-01-01", "authorization": "Bearer k"},
        {"x-goog-api-key": "k"},
        {"authorization": "Bearer k"},
    ]
    assert [wire.headers(None) for wire in (chat, responses, claude, gemini, vertex)] == [
        {}, {}, {"anthropic-version": "2020-01-01"}, {}, {},
    ]  # fmt: skip
    asked = [wire.outgoing(PLAIN, "m", True) for wire in (chat, responses, claude, gemini)]
    assert [(path, body.get("stream"), headers) for path, body, headers in asked] == [
        ("/chat/completions", True, {}),
        ("/responses", True, {}),
        ("/v1/messages", True, {}),
        ("/models/m:streamGenerateContent?alt=sse", None, {}),
    ]
    assert asked[0].body["stream_options"] == {"include_usage": True}
    assert claude.outgoing(PLAIN, "m", False).body["max_tokens"] == 5
    paths = [gemini.outgoing(PLAIN, name, False).path for name in ("a b", "tunedModels/a@1", "models/ü")]
    assert paths == [
        "/models/a%20b:generateContent", "/tunedModels/a@1:generateContent", "/models/%C3%BC:generateContent",
    ]  # fmt: skip


@pytest.mark.parametrize("wire", [ChatWire, ResponsesWire, MessagesWire, GeminiWire])
def test_what_is_ignored_has_a_name(wire: Callable[[Any], Wire]) -> None:
    """
    Settings to ignore are a set of their names; a text, another thing and a name that is none are refused, and told.
    """
    assert wire({"top_k", "thinking_config.thinking_level"}).ignore == {"top_k", "thinking_config.thinking_level"}
    for wrong in ("top_k", 3, [3], None):
        with pytest.raises(ConfigurationError, match="expected ignore to be a set of names of settings, found"):
            wire(wrong)
    with pytest.raises(ConfigurationError, match=r"settings of GenerateContentConfig \(.*top_k.*\), found 'top'"):
        wire(["top"])


@pytest.mark.parametrize("name", ANSWERING)
def test_thoughts_that_are_not_shown(name: str) -> None:
    """
    Where thoughts are not to be shown, no fragment has one, and the answer those only that have to be sent back.
    """
    for case, told in kept("wire/tables/answers")[name].items():
        if "error" in told["made"]:
            continue
        shown, hidden = told["made"], answered(name, told["given"], shows_thoughts=False)
        expected = [[part for part in each if not part.get("thought")] for each in shown.get("shown", ())]
        assert hidden.get("shown", []) == [each for each in expected if each], case
        parts = shown["response"].get("content", {}).get("parts", [])
        kept_parts = [part for part in parts if not part.get("thought") or "thought_signature" in part]
        assert hidden["response"].get("content", {}).get("parts", []) == kept_parts, case
