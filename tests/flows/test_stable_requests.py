"""
Requests are stable, so that providers can cache what they begin with; and what they say of caching.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import App, InMemoryRunner, LlmAgent, Runner, SqliteSessionService
from minirun.errors import ConfigurationError, InvalidValueError
from minirun.models import ContextCacheConfig, LlmCapabilities, LlmRequest, LlmRequestDraft, LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.types import Blob, Content, FunctionCall, Part

from ..examples import examples
from ..helpers import PLACE, run_to_end

# --- the beginning of a request stays ---------------------------------------------------------------------------------


async def look(thing: str) -> Any:
    """Look at a thing."""
    if thing == "nothing":
        raise ValueError("there is nothing")
    return ["here", Blob(data=thing.encode(), mime_type="image/png")] if thing == "picture" else {"b": 1, "a": thing}


looks = st.sampled_from(["nothing", "picture", "book"]).map(lambda thing: call("look", thing=thing))
unreadable = st.just(Part(function_call=FunctionCall(name="look", args_text='{"thing": ')))
seals = st.none() | st.binary(max_size=3)
thoughts = st.builds(lambda seal: Part(text="hm", thought=True, thought_signature=seal), seals)
answers_with_calls = st.builds(
    lambda thought, calls, reason: LlmResponse(content=Content(parts=[*thought, *calls]), finish_reason=reason),
    st.lists(thoughts, max_size=1),
    st.lists(looks | unreadable, min_size=1, max_size=3),
    st.sampled_from(["STOP", "MAX_TOKENS"]),
)
last_answers = st.one_of(
    st.builds(lambda thought: Content(parts=[*thought, Part(text="done")]), st.lists(thoughts, max_size=2)),
    st.just(LlmResponse()),  # it says nothing, which is stored as an error
    st.just(Content(parts=[Part(text="half"), Part(text=" a word")])),
)
invocations = st.tuples(st.lists(answers_with_calls, max_size=3), last_answers)


async def requests_of(turns: Sequence[Any], reopened: Sequence[bool], sees_media: bool) -> list[LlmRequest]:
    """Let an agent answer one message after the other, from a file that is opened anew where that is said."""
    script = [answer for calls, last in turns for answer in (*calls, last)]
    model = ScriptedLlm(script, capabilities=LlmCapabilities(media_in_tool_results=sees_media))
    agent = LlmAgent(name="a", model=model, instruction="Look around.", tools=[look])
    app = App("app", agent, context_cache_config=ContextCacheConfig(cache_intervals=2))
    with tempfile.TemporaryDirectory() as folder:
        service = SqliteSessionService(f"{folder}/s.db", durability="process")
        for _, is_new in zip(turns, reopened, strict=True):
            if is_new:
                await service.aclose()
                service = SqliteSessionService(f"{folder}/s.db", durability="process")
            await run_to_end(Runner(app=app, session_service=service, auto_create_session=True))
        await service.aclose()
    return model.requests


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(invocations, st.booleans()), min_size=1, max_size=4), st.booleans())
def test_each_request_begins_with_the_one_before(course: list[tuple[Any, bool]], sees_media: bool) -> None:
    """
    Tools and system instruction are equal, byte for byte, and the contents of a request are a prefix of the next ones'.

    So it is whatever the model says, calls and thinks, and whether the session is in memory or read from its file.
    """
    turns, reopened = zip(*course, strict=True)
    requests = trio.run(requests_of, turns, reopened, sees_media)
    assert len(requests) == sum(len(calls) + 1 for calls, _ in turns)
    told = [[content.to_json() for content in request.contents] for request in requests]
    for earlier, later in pairwise(told):
        assert later[: len(earlier)] == earlier
    assert len({request.config.to_json() for request in requests}) == 1


# --- what requests say of caching -------------------------------------------------------------------------------------


async def requests_in(config: ContextCacheConfig | None, times: int, **options: Any) -> list[LlmRequest]:
    model = ScriptedLlm(["hi"] * times)
    app = App("app", LlmAgent(name="a", model=model, **options), context_cache_config=config)
    runner = InMemoryRunner(app=app, auto_create_session=True)
    for _ in range(times):
        await run_to_end(runner)
    return model.requests


async def test_requests_of_an_app_without_the_setting_say_nothing_of_caching() -> None:
    """It is the provider's own affair then."""
    [request] = await requests_in(None, 1)
    assert (request.cache_config, request.cache_key) == (None, None)


async def test_the_setting_reaches_the_models_of_all_agents() -> None:
    """Each agent has a key of its own, as its requests begin otherwise."""
    config = ContextCacheConfig()
    child_model = ScriptedLlm(["hello"])
    child = LlmAgent(name="child", model=child_model, description="Greets.")
    root_model = ScriptedLlm([call("transfer_to_agent", agent_name="child")])
    root = LlmAgent(name="root", model=root_model, sub_agents=[child])
    runner = InMemoryRunner(app=App("app", root, context_cache_config=config), auto_create_session=True)
    await run_to_end(runner)
    first, second = root_model.requests[0], child_model.requests[0]
    assert first.cache_config is second.cache_config is config
    assert first.cache_key
    assert second.cache_key
    assert first.cache_key != second.cache_key


async def test_a_key_stays_for_as_many_invocations_as_the_setting_says() -> None:
    """Then the next key says that the cache is to be made anew."""
    keys = [request.cache_key for request in await requests_in(ContextCacheConfig(cache_intervals=2), 5)]
    assert keys[0] == keys[1] != keys[2] == keys[3] != keys[4]
    assert len(set(keys)) == 3


async def test_a_key_says_nothing_of_whose_session_it_is() -> None:
    """It is a digest, which another process makes alike."""
    [one] = await requests_in(ContextCacheConfig(), 1)
    [other] = await requests_in(ContextCacheConfig(), 1)
    assert one.cache_key == other.cache_key
    assert PLACE["user_id"] not in str(one.cache_key).split("-")[1:]


async def test_a_callback_may_keep_a_request_out_of_the_cache() -> None:
    """What it assigns to the draft is what the model gets."""

    def forget(callback_context: object, llm_request: LlmRequestDraft) -> None:
        assert llm_request.cache_key is not None
        llm_request.cache_config = llm_request.cache_key = None

    [request] = await requests_in(ContextCacheConfig(), 1, before_model_callback=forget)
    assert (request.cache_config, request.cache_key) == (None, None)
    draft = LlmRequestDraft.of(request)
    for name in ("cache_config", "cache_key"):
        with pytest.raises(InvalidValueError, match=f"LlmRequest.{name}"):
            setattr(draft, name, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cache_intervals": 0},
        {"cache_intervals": 101},
        {"cache_intervals": 1.5},
        {"ttl_seconds": 0},
        {"min_tokens": -1},
        {"min_tokens": True},
    ],
)
def test_the_setting_has_the_documented_bounds(wrong: dict[str, Any]) -> None:
    """The error names the field, what it takes, and what was found."""
    [name] = wrong
    with pytest.raises(ConfigurationError, match=rf"ContextCacheConfig\.{name}: expected"):
        ContextCacheConfig(**wrong)


def test_another_value_is_no_setting() -> None:
    """An app refuses it."""
    with pytest.raises(ConfigurationError, match="expected context_cache_config to be a ContextCacheConfig, found 1"):
        App("app", LlmAgent(name="a", model=ScriptedLlm([])), context_cache_config=1)  # type: ignore[arg-type]  # the point


def test_it_is_found_where_adk_has_it() -> None:
    """The documented path, the apps and the models have one class."""
    from minirun.agents.context_cache_config import ContextCacheConfig as adk  # type: ignore[import-not-found]  # no file

    from minirun.apps import ContextCacheConfig as apps

    assert adk is apps is ContextCacheConfig
