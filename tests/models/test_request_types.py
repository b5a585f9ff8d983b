"""
The settings of a request that few programs give, and what a model and its provider say beside the answer.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import attrs
import pytest

from minirun import Event, InMemoryRunner, LlmAgent, Runner, SqliteSessionService, errors
from minirun.errors import InvalidValueError, MinirunError, ModelContractError, ModelError, NotSupportedError
from minirun.models import LlmResponse
from minirun.testing import ScriptedLlm
from minirun.types import (
    FunctionCallingConfig,
    GenerateContentConfig,
    HttpOptions,
    ModelContent,
    SafetySetting,
    ThinkingConfig,
    ToolConfig,
)

from ..helpers import PLACE

SETTINGS = {
    "tool_config": ToolConfig(
        function_calling_config=FunctionCallingConfig(mode="ANY", allowed_function_names=["add"])
    ),
    "thinking_config": ThinkingConfig(include_thoughts=True, thinking_budget=-1, thinking_level="low"),
    "safety_settings": (SafetySetting(category="HARM", threshold="BLOCK_NONE"),),
    "http_options": HttpOptions(timeout=1500),
    "labels": {"team": "a"},
    "cached_content": "caches/1",
    "extra_body": {"top_a": [1, 2]},
}


# --- settings of a request --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_may_be_given_as_json(name: str) -> None:
    """A setting that is given as a dict of its fields is the same as the value, and comes back from JSON."""
    config = GenerateContentConfig(**{name: SETTINGS[name]})  # type: ignore[arg-type]  # each is of its own type
    again = GenerateContentConfig.from_json(config.to_json())
    assert again == config
    assert getattr(again, name) == SETTINGS[name]
    assert type(getattr(again, name)) is type(getattr(config, name))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("tool_config", 3, "expected a ToolConfig, or a dict of its fields function_calling_config, found 3"),
        ("tool_config", {"retrieval_config": {}}, "expected a ToolConfig, or a dict of its fields"),
        ("thinking_config", "high", "expected a ThinkingConfig"),
        ("safety_settings", SafetySetting(category="a", threshold="b"), "expected a list of SafetySetting"),
        ("safety_settings[0]", [{"category": "a"}], "expected the fields category, threshold"),
        ("http_options", 5, "expected a HttpOptions"),
        ("labels", ["a"], "expected a dict, found list"),
        ("labels['a']", {"a": 3}, "expected a string, found 3"),
        ("cached_content", " ", "expected text that is not empty"),
        ("extra_body", "a=1", "expected a dict, found str"),
    ],
)
def test_a_setting_of_another_kind_is_refused_with_its_path(field: str, value: object, expected: str) -> None:
    """The message begins with the path of the setting, and says what was expected."""
    with pytest.raises(InvalidValueError) as caught:
        GenerateContentConfig(**{field.partition("[")[0]: value})  # type: ignore[arg-type]  # the point of the test
    assert caught.value.path == f"GenerateContentConfig.{field}"
    assert expected in str(caught.value)


def test_a_mode_is_one_of_four() -> None:
    """The mode of calls is written in any case, and is one of those that there are."""
    assert FunctionCallingConfig(mode="any").mode == "ANY"  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidValueError, match="expected one of AUTO, ANY, NONE, VALIDATED, found 'SOME'"):
        FunctionCallingConfig(mode="SOME")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidValueError, match="expected none with mode 'AUTO'"):
        FunctionCallingConfig(allowed_function_names=["add"])


def test_options_of_http_that_have_no_effect_are_refused_by_name() -> None:
    """An option that ADK has and a request has not is refused, given as a value or as a dict."""
    with pytest.raises(NotSupportedError, match=r"HttpOptions\.api_version has no effect"):
        HttpOptions(api_version="v1")  # type: ignore[call-arg]  # that is the point
    with pytest.raises(NotSupportedError, match="base_url"):
        GenerateContentConfig(http_options={"base_url": "http://x"})
    with pytest.raises(InvalidValueError, match="at least 1"):
        HttpOptions(timeout=0)


def test_settings_that_nobody_gives_are_not_loaded() -> None:
    """A program that gives no such setting, and whose models do not fail, does not load what checks them."""
    program = (
        "import sys, minirun.types, minirun.errors, minirun.models\n"
        "minirun.types.GenerateContentConfig(temperature=1)\n"
        "print([name for name in sys.modules if name.endswith(('_request_types', '_model_errors'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- what is said beside the answer -----------------------------------------------------------------------------------


async def test_what_a_provider_says_of_an_answer_is_stored_with_it(tmp_path: object) -> None:
    """The version of the model, its sources and its citations are in the event, in memory and on disk."""
    told: dict[str, Any] = {
        "model_version": "m-2",
        "grounding_metadata": {"queries": ["a"], "chunks": [1]},
        "citation_metadata": {"uris": ["x"]},
    }
    answer = LlmResponse(content=ModelContent("hi"), response_id="r1", request_id="q1", **told)
    agent = LlmAgent(name="a", model=ScriptedLlm([answer, answer]))
    async with SqliteSessionService(f"{tmp_path}/s.db") as service:
        for runner in (
            InMemoryRunner(agent=agent, auto_create_session=True),
            Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True),
        ):
            async with runner.run_async(**PLACE, new_message="hi") as run:
                event = await run.wait()
            assert event is not None
            assert {name: getattr(event, name) for name in told} == told
            assert Event.from_json(event.to_json()) == event
            read = await runner.session_service.get_session(app_name=runner.app_name, user_id="u", session_id="s")
            assert read is not None
            assert read.events[-1] == event


# --- errors -----------------------------------------------------------------------------------------------------------

FAMILY = [getattr(errors, name) for name in errors.__all__ if issubclass(getattr(errors, name), ModelError)]


@pytest.mark.parametrize("kind", FAMILY)
def test_an_error_of_a_provider_says_what_is_known_of_it(kind: type[ModelError]) -> None:
    """Each keeps status, delay, request id and whether the answer had begun, also through pickle."""
    error = kind("no", status=429, retry_after_s=1.5, request_id="q", has_begun=True)
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert str(each) == "no"
        assert (each.status, each.retry_after_s, each.request_id, each.has_begun) == (429, 1.5, "q", True)
    plain = kind("no")
    assert (plain.status, plain.retry_after_s, plain.request_id, plain.has_begun) == (None, None, None, False)


def test_a_model_that_breaks_its_contract_is_no_failure_of_a_provider() -> None:
    """The two are told apart: what retries the one does not retry the other."""
    assert len(FAMILY) == 9
    assert issubclass(ModelContractError, MinirunError)
    assert not issubclass(ModelContractError, ModelError)
    assert not any(issubclass(kind, ModelContractError) for kind in FAMILY)


def test_changed_copies_keep_their_checks() -> None:
    """A copy of a config whose setting is replaced by a wrong one is refused."""
    config = GenerateContentConfig(labels={"a": "b"})
    assert attrs.evolve(config, labels=None).labels is None
    with pytest.raises(InvalidValueError, match="labels"):
        attrs.evolve(config, labels={"a": 1})  # type: ignore[dict-item]  # the point of the test
