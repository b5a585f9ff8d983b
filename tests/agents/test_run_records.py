"""Runs in writing from their beginning to their end: every event, and every request to a model, with all they have."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import (
    AgentTool,
    App,
    InMemoryRunner,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    StreamingMode,
)
from minirun.agents import Guardrail
from minirun.apps import ContextCacheConfig
from minirun.errors import GuardrailTripwireError, ModelConnectionError, ModelRetry
from minirun.models import LlmCapabilities, LlmResponse
from minirun.planners import BuiltInPlanner
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, GenerateContentConfig, Part, ThinkingConfig, UsageMetadata

from ..helpers import look
from ..run_records import recorded, records

SSE = RunConfig(streaming_mode=StreamingMode.SSE)
FORM = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]}


def runner_of(agent: Any, **options: Any) -> Runner:
    """A runner over a fresh in-memory session."""
    return InMemoryRunner(app=App("app", agent, **options), auto_create_session=True)


def judge(context: Any, content: Content) -> Any:
    """Trip over, replace, correct or pass what is said, as its words ask for."""
    text = content.text
    if "bad" in text:
        raise GuardrailTripwireError({"found": text})
    if "again" in text:
        raise ModelRetry("say it otherwise")
    return "***" if "secret" in text else None


# --- guardrails -------------------------------------------------------------------------------------------------------


async def test_what_input_guardrails_say_is_stored_and_shown() -> None:
    """A message that passes, is replaced, is added to, or is refused; and what a later turn shows of all that."""
    model = ScriptedLlm(lambda request: f"I see: {request.contents[-1].text}")
    agent = LlmAgent(name="a", model=model, input_guardrails=[Guardrail(judge, name="judge")])
    found = await recorded(runner_of(agent), model, messages=("fine", "a secret", "again", "bad", "last"))
    assert found == records("""
        2 a
            output: {'verdict': 'passed', 'guardrails': ['judge']}
            replay: {'step': {'name': 'guardrails', 'path': 'agent a id1-0'}, 'aside': True}
        3 a model: 'I see: fine'
        5 a user: '***'
            output: {'verdict': 'replaced', 'guardrails': ['judge']}
            replay: {'step': {'name': 'guardrails', 'path': 'agent a id2-0'}, 'hides': 'id2-0', 'aside': True}
        6 a model: 'I see: ***'
        8 a user: 'say it otherwise'
            output: {'verdict': 'retry', 'guardrails': ['judge']}
            replay: {'step': {'name': 'guardrails', 'path': 'agent a id3-0'}, 'aside': True}
        9 a model: 'I see: say it otherwise'
        11 a
            output: {'verdict': 'tripped', 'guardrail': 'judge', 'info': {'found': 'bad'}}
            replay: {'step': {'name': 'guardrails', 'path': 'agent a id4-0'}, 'hides': 'id4-0', 'aside': True}
        12 a
            error_code: GuardrailTripwireError
            error_message: guardrail 'judge' has tripped
            replay: {'aside': True}
        ! GuardrailTripwireError: guardrail 'judge' has tripped
        14 a
            output: {'verdict': 'passed', 'guardrails': ['judge']}
            replay: {'step': {'name': 'guardrails', 'path': 'agent a id5-0'}, 'aside': True}
        15 a model: 'I see: last'
        ?
            user: 'fine'
        ?
            user: 'fine'
            model: 'I see: fine'
            user: '***'
        ?
            user: 'fine'
            model: 'I see: fine'
            user: '***'
            model: 'I see: ***'
            user: 'again'
            user: 'say it otherwise'
        ?
            user: 'fine'
            model: 'I see: fine'
            user: '***'
            model: 'I see: ***'
            user: 'again'
            user: 'say it otherwise'
            model: 'I see: say it otherwise'
            user: 'last'
    """)


async def test_what_output_guardrails_say_is_stored_and_shown() -> None:
    """An answer that passes, is replaced, is given again, or is refused; none of its partial events are shown."""
    model = ScriptedLlm([["fi", "ne"], ["a ", "secret"], ["again"], ["well"], ["bad"]])
    agent = LlmAgent(name="a", model=model, output_guardrails=[judge])
    found = await recorded(runner_of(agent), model, messages=("1", "2", "3", "4"), run_config=SSE)
    assert found == records("""
        2 a model: 'fine'
        4 a model: '***'
        6 a
            error_code: ASKED_AGAIN
            replay: {'again': 'say it otherwise'}
        7 a user: 'say it otherwise'
        8 a model: 'well'
        10 a
            output: {'verdict': 'tripped', 'guardrail': 'judge', 'info': {'found': 'bad'}}
            replay: {'step': {'name': 'guardrails', 'path': 'run/a/guardrails#id1'}, 'asked': True, 'aside':
                True}
        11 a
            error_code: GuardrailTripwireError
            error_message: guardrail 'judge' has tripped
            replay: {'aside': True}
        ! GuardrailTripwireError: guardrail 'judge' has tripped
        ?
            user: '1'
        ?
            user: '1'
            model: 'fine'
            user: '2'
        ?
            user: '1'
            model: 'fine'
            user: '2'
            model: '***'
            user: '3'
        ?
            user: '1'
            model: 'fine'
            user: '2'
            model: '***'
            user: '3'
            user: 'say it otherwise'
        ?
            user: '1'
            model: 'fine'
            user: '2'
            model: '***'
            user: '3'
            user: 'say it otherwise'
            model: 'well'
            user: '4'
    """)


async def test_what_stands_beside_calls_is_looked_at() -> None:
    """A replacement leaves the calls of an answer; an answer by a tool has to stay an object."""
    beside = Content(role="model", parts=[Part(text="a secret"), call("look", n=1)])
    model = ScriptedLlm([beside, call("set_model_response", n=1, s="fine")])
    agent = LlmAgent(name="a", model=model, tools=[look], output_schema=FORM, output_guardrails=[judge])
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: '***' look({'n': 1})
        3 a user: look={'result': 'seen 1'}
        4 a model: set_model_response({'n': 1, 's': 'fine'})
        5 a user: set_model_response={'result': {'n': 1, 's': 'fine'}}
        6 a model: '{"n":1,"s":"fine"}'
            output: {'n': 1, 's': 'fine'}
        ?
            user: 'go'
            system: 'When you have the answer, call set_model_response with it; do not write it as text.'
            tools: ['look', 'set_model_response']
        ?
            user: 'go'
            model: '***' look({'n': 1})
            user: look={'result': 'seen 1'}
            system: 'When you have the answer, call set_model_response with it; do not write it as text.'
            tools: ['look', 'set_model_response']
    """)


# --- thinking ---------------------------------------------------------------------------------------------------------


async def test_a_planner_of_the_model_s_own_sets_the_config() -> None:
    """Its setting goes with each request, and nothing is told."""
    model = ScriptedLlm(["done"])
    planner = BuiltInPlanner(thinking_config=ThinkingConfig(thinking_budget=7, include_thoughts=True))
    config = GenerateContentConfig(temperature=0.5)
    agent = LlmAgent(name="a", model=model, planner=planner, generate_content_config=config)
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: 'done'
        ?
            user: 'go'
            temperature: 0.5
            thinking_config: ThinkingConfig(include_thoughts=True, thinking_budget=7)
    """)


# --- answers of a form ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("able", [True, False], ids=["native", "by tool"])
async def test_an_answer_of_a_form(able: bool) -> None:
    """A wrong one is told to the model; the right one is the output, and kept; fragments have what there is of it."""
    wrong: Any = ['{"n": "x"}'] if able else call("set_model_response", n="x")
    right: Any = ['{"n": 1, ', '"s": "t"}'] if able else call("set_model_response", n=1, s="t")
    script = [wrong, right] if able else ["plain", wrong, right]
    model = ScriptedLlm(script, capabilities=LlmCapabilities(output_schema=able, output_schema_and_tools=able))
    agent = LlmAgent(name="a", model=model, output_schema=FORM, output_key="answer", output_retries=3)
    found = await recorded(runner_of(agent), model, run_config=SSE)
    expected = {
        True: """
            2 a model: '{"n": "x"}'
                error_code: INVALID_OUTPUT
                error_message: n: expected an integer, found "x"
            3 a user: 'Your answer does not have the form that is asked for:\\n- n: expected an integer, found
                    "x"\\nGive the answer again.'
            ~ a model: '{"n": 1, '
                partial_output: {'n': 1}
            ~ a model: '"s": "t"}'
                partial_output: {'n': 1, 's': 't'}
            4 a model: '{"n": 1, "s": "t"}'
                output: {'n': 1, 's': 't'}
                state_delta: {'answer': {'n': 1, 's': 't'}}
            ?
                user: 'go'
                response_mime_type: application/json
                response_schema: {'type': 'object', 'properties': {'n': {'type': 'integer'}, 's': {'type':
                    'string'}}, 'required': ['n']}
            ?
                user: 'go'
                model: '{"n": "x"}'
                user: 'Your answer does not have the form that is asked for:\\n- n: expected an integer, found
                    "x"\\nGive the answer again.'
                response_mime_type: application/json
                response_schema: {'type': 'object', 'properties': {'n': {'type': 'integer'}, 's': {'type':
                    'string'}}, 'required': ['n']}
        """,
        False: """
            2 a model: 'plain'
                error_code: INVALID_OUTPUT
                error_message: expected JSON alone, found 'plain' at line 1, column 1
            3 a user: "Your answer does not have the form that is asked for:\\n- expected JSON alone, found 'plain'
                    at line 1, column 1\\nGive the answer again."
            4 a model: set_model_response({'n': 'x'})
            5 a user: set_model_response={'error': {'type': 'ArgumentError', 'message': 'n: expected an integer,
                    found "x"'}}
            6 a model: set_model_response({'n': 1, 's': 't'})
            7 a user: set_model_response={'result': {'n': 1, 's': 't'}}
            8 a model: '{"n":1,"s":"t"}'
                output: {'n': 1, 's': 't'}
                state_delta: {'answer': {'n': 1, 's': 't'}}
            ?
                user: 'go'
                system: 'When you have the answer, call set_model_response with it; do not write it as text.'
                tools: ['set_model_response']
            ?
                user: 'go'
                model: 'plain'
                user: "Your answer does not have the form that is asked for:\\n- expected JSON alone, found 'plain'
                    at line 1, column 1\\nGive the answer again."
                system: 'When you have the answer, call set_model_response with it; do not write it as text.'
                tools: ['set_model_response']
            ?
                user: 'go'
                model: 'plain'
                user: "Your answer does not have the form that is asked for:\\n- expected JSON alone, found 'plain'
                    at line 1, column 1\\nGive the answer again."
                model: set_model_response({'n': 'x'})
                user: set_model_response={'error': {'type': 'ArgumentError', 'message': 'n: expected an integer,
                    found "x"'}}
                system: 'When you have the answer, call set_model_response with it; do not write it as text.'
                tools: ['set_model_response']
        """,
    }
    assert found == records(expected[able])


async def test_a_validator_s_word_counts() -> None:
    """It refuses once, and then replaces the answer; what it writes is stored with the answer that counts."""

    def validator(context: Any, answer: Any) -> Any:
        context.state["tries"] = context.state.get("tries", 0) + 1
        if answer["n"] < 2:
            raise ModelRetry("more")
        return {**answer, "s": "checked"}

    model = ScriptedLlm(['{"n": 1}', '{"n": 2}'], capabilities=LlmCapabilities(output_schema=True))
    agent = LlmAgent(name="a", model=model, output_schema=FORM, output_validator=validator)
    found = await recorded(runner_of(agent), model)
    assert found == records("""
        2 a model: '{"n": 1}'
            error_code: REFUSED_OUTPUT
            error_message: more
        3 a user: 'Your answer was not accepted:\\n- more\\nGive the answer again.'
        4 a model: '{"n": 2}'
            output: {'n': 2, 's': 'checked'}
            state_delta: {'tries': 1}
        ?
            user: 'go'
            response_mime_type: application/json
            response_schema: {'type': 'object', 'properties': {'n': {'type': 'integer'}, 's': {'type':
                'string'}}, 'required': ['n']}
        ?
            user: 'go'
            model: '{"n": 1}'
            user: 'Your answer was not accepted:\\n- more\\nGive the answer again.'
            response_mime_type: application/json
            response_schema: {'type': 'object', 'properties': {'n': {'type': 'integer'}, 's': {'type':
                'string'}}, 'required': ['n']}
    """)


# --- several agents ---------------------------------------------------------------------------------------------------


async def test_a_handover_and_the_way_back() -> None:
    """What each agent is told of the others, and which one answers the next message."""
    there, back = (call("transfer_to_agent", agent_name=name) for name in ("shop", "a"))
    model = ScriptedLlm([there, "hats", back, "hi"])
    shop = LlmAgent(name="shop", description="Sells.", instruction="Sell.")
    alone: dict[str, Any] = {"disallow_transfer_to_parent": True, "disallow_transfer_to_peers": True}
    peer = LlmAgent(name="peer", description="Waits.", **alone)
    agent = LlmAgent(name="a", model=model, instruction="Be kind.", sub_agents=[shop, peer])
    found = await recorded(runner_of(agent), model, messages=("buy", "back"))
    assert found == records("""
        2 a model: transfer_to_agent({'agent_name': 'shop'})
        3 a user: transfer_to_agent={'result': 'shop takes over'}
            transfer_to_agent: shop
        4 shop model: 'hats'
        6 shop model: transfer_to_agent({'agent_name': 'a'})
        7 shop user: transfer_to_agent={'result': 'a takes over'}
            transfer_to_agent: a
        8 a model: 'hi'
        ?
            user: 'buy'
            system: 'Be kind.\\n\\nYou are one of several agents. Your name is a.\\n\\nThese agents can take over
                from you:\\n- shop: Sells.\\n- peer: Waits.\\nIf one of them is better placed to answer, call
                transfer_to_agent with its name, and say nothing else. Otherwise answer yourself.'
            tools: ['transfer_to_agent']
        ?
            user: 'buy'
            user: '[a] called transfer_to_agent with {"agent_name":"shop"}'
            user: '[a] got from transfer_to_agent: {"result":"shop takes over"}'
            system: 'Sell.\\n\\nYou are one of several agents. Your name is shop. Sells.\\n\\nThese agents can take
                over from you:\\n- a:\\n- peer: Waits.\\nIf one of them is better placed to answer, call
                transfer_to_agent with its name, and say nothing else. Otherwise answer yourself.'
            tools: ['transfer_to_agent']
        ?
            user: 'buy'
            user: '[a] called transfer_to_agent with {"agent_name":"shop"}'
            user: '[a] got from transfer_to_agent: {"result":"shop takes over"}'
            model: 'hats'
            user: 'back'
            system: 'Sell.\\n\\nYou are one of several agents. Your name is shop. Sells.\\n\\nThese agents can take
                over from you:\\n- a:\\n- peer: Waits.\\nIf one of them is better placed to answer, call
                transfer_to_agent with its name, and say nothing else. Otherwise answer yourself.'
            tools: ['transfer_to_agent']
        ?
            user: 'buy'
            model: transfer_to_agent({'agent_name': 'shop'})
            user: transfer_to_agent={'result': 'shop takes over'}
            user: '[shop] said: hats'
            user: 'back'
            user: '[shop] called transfer_to_agent with {"agent_name":"a"}'
            user: '[shop] got from transfer_to_agent: {"result":"a takes over"}'
            system: 'Be kind.\\n\\nYou are one of several agents. Your name is a.\\n\\nThese agents can take over
                from you:\\n- shop: Sells.\\n- peer: Waits.\\nIf one of them is better placed to answer, call
                transfer_to_agent with its name, and say nothing else. Otherwise answer yourself.'
            tools: ['transfer_to_agent']
    """)


@pytest.mark.parametrize("skip", [True, False], ids=["shown", "told"])
async def test_an_agent_as_a_tool(skip: bool) -> None:
    """It sees what it is asked and nothing else, in a branch of its own; its answer is the result."""
    inner = ScriptedLlm([call("look", n=2), "seen it"])
    helper = LlmAgent(name="helper", description="Helps.", model=inner, tools=[look], output_key="help")
    outer = ScriptedLlm([call("helper", request="look"), "told"])
    agent = LlmAgent(name="a", model=outer, tools=[AgentTool(helper, skip_summarization=skip)])
    found = await recorded(runner_of(agent), outer, inner)
    expected = {
        True: """
            2 a model: helper({'request': 'look'})
            3 helper model: look({'n': 2})
                branch: helper@call-id1
                replay: {'asked': True}
            4 helper user: look={'result': 'seen 2'}
                branch: helper@call-id1
            5 helper model: 'seen it'
                branch: helper@call-id1
                replay: {'asked': True}
                state_delta: {'help': 'seen it'}
            6 a user: helper={'result': 'seen it'}
                skip_summarization: True
            ?
                user: 'go'
                tools: ['helper']
            ?
                user: 'look'
                tools: ['look']
            ?
                user: 'look'
                model: look({'n': 2})
                user: look={'result': 'seen 2'}
                tools: ['look']
        """,
        False: """
            2 a model: helper({'request': 'look'})
            3 helper model: look({'n': 2})
                branch: helper@call-id1
                replay: {'asked': True}
            4 helper user: look={'result': 'seen 2'}
                branch: helper@call-id1
            5 helper model: 'seen it'
                branch: helper@call-id1
                replay: {'asked': True}
                state_delta: {'help': 'seen it'}
            6 a user: helper={'result': 'seen it'}
            7 a model: 'told'
            ?
                user: 'go'
                tools: ['helper']
            ?
                user: 'go'
                model: helper({'request': 'look'})
                user: helper={'result': 'seen it'}
                tools: ['helper']
            ?
                user: 'look'
                tools: ['look']
            ?
                user: 'look'
                model: look({'n': 2})
                user: look={'result': 'seen 2'}
                tools: ['look']
        """,
    }
    assert found == records(expected[skip])


async def test_agents_in_a_row_side_by_side_and_in_rounds() -> None:
    """Who sees what of the others, and in which branch they speak."""
    models = [ScriptedLlm([f"{name}1", f"{name}2"], name=name) for name in "xyz"]
    x, y, z = (LlmAgent(name=model.name, model=model, output_key=model.name) for model in models)
    both = ParallelAgent(name="both", sub_agents=[y])
    rounds = LoopAgent(name="rounds", sub_agents=[both, z], max_iterations=2)
    agent = SequentialAgent(name="all", sub_agents=[x, rounds])
    found = await recorded(runner_of(agent), *models)
    assert found == records("""
        2 x model: 'x1'
            state_delta: {'x': 'x1'}
        3 y model: 'y1'
            branch: both.y
            replay: {'asked': True}
            state_delta: {'y': 'y1'}
        4 z model: 'z1'
            state_delta: {'z': 'z1'}
        5 y model: 'y2'
            branch: both.y
            replay: {'asked': True}
            state_delta: {'y': 'y2'}
        6 z model: 'z2'
            state_delta: {'z': 'z2'}
        ?
            user: 'go'
        ?
            user: 'go'
            user: '[x] said: x1'
        ?
            user: 'go'
            user: '[x] said: x1'
            model: 'y1'
            user: '[z] said: z1'
        ?
            user: 'go'
            user: '[x] said: x1'
            user: '[y] said: y1'
        ?
            user: 'go'
            user: '[x] said: x1'
            user: '[y] said: y1'
            model: 'z1'
            user: '[y] said: y2'
    """)


# --- models -----------------------------------------------------------------------------------------------------------


async def test_hooks_around_the_model() -> None:
    """They answer in its place, change what it says, and say what is told where it fails."""

    def before(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        callback_context.state["asked"] = callback_context.state.get("asked", 0) + 1
        llm_request.config.temperature = 0.25
        said = llm_request.contents[-1].text
        return LlmResponse(content=Content(role="model", parts=[Part(text="mine")])) if said == "1" else None

    def after(callback_context: Any, llm_response: LlmResponse) -> LlmResponse | None:
        if llm_response.partial or llm_response.content is None:
            return None
        return LlmResponse(content=Content(role="model", parts=[Part(text=llm_response.content.text.upper())]))

    def on_error(callback_context: Any, llm_request: Any, error: Exception) -> LlmResponse | None:
        return LlmResponse(error_code="SORRY", error_message=str(error))

    usage = UsageMetadata(prompt_token_count=2, candidates_token_count=3, total_token_count=5)
    answer = LlmResponse(content=Content(role="model", parts=[Part(text="two")]), usage_metadata=usage)
    model = ScriptedLlm([answer, ModelConnectionError("broken")])
    hooks: dict[str, Any] = {"before_model_callback": before, "after_model_callback": after}
    agent = LlmAgent(name="a", model=model, on_model_error_callback=on_error, model_retry=None, **hooks)
    found = await recorded(runner_of(agent), model, messages=("1", "2", "3"), run_config=SSE)
    assert found == records("""
        2 a model: 'mine'
            replay: {'asked': False}
            state_delta: {'asked': 1}
        4 a model: 'TWO'
            state_delta: {'asked': 2}
            usage_metadata: {'prompt_token_count': 2, 'candidates_token_count': 3, 'total_token_count': 5}
        6 a
            error_code: SORRY
            error_message: broken
            state_delta: {'asked': 3}
        ?
            user: '1'
            model: 'mine'
            user: '2'
            temperature: 0.25
        ?
            user: '1'
            model: 'mine'
            user: '2'
            model: 'TWO'
            user: '3'
            temperature: 0.25
    """)


async def test_what_a_cache_is_told() -> None:
    """The key is that of the agent, the session and some invocations; what the last answer told of it goes along."""

    def answer(name: str, expires_at: float) -> LlmResponse:
        about = {"context_cache": {"name": name, "expires_at": expires_at, "tokens": 5}}
        return LlmResponse(content=Content(role="model", parts=[Part(text=name)]), custom_metadata=about)

    model = ScriptedLlm([answer("c1", 4e9), answer("c2", 1.0), "three", "four"])
    agent = LlmAgent(name="a", model=model)
    config = ContextCacheConfig(cache_intervals=2)
    found = await recorded(runner_of(agent, context_cache_config=config), model, messages=("1", "2", "3", "4"))
    assert found == records("""
        2 a model: 'c1'
            custom_metadata: {'context_cache': {'name': 'c1', 'expires_at': 4000000000.0, 'tokens': 5}}
        4 a model: 'c2'
            custom_metadata: {'context_cache': {'name': 'c2', 'expires_at': 1.0, 'tokens': 5}}
        6 a model: 'three'
        8 a model: 'four'
        ?
            user: '1'
            cache_key: minirun-id1
        ?
            user: '1'
            model: 'c1'
            user: '2'
            cache_key: minirun-id1
            cache_metadata: {'name': 'c1', 'expires_at': 4000000000.0, 'tokens': 5}
        ?
            user: '1'
            model: 'c1'
            user: '2'
            model: 'c2'
            user: '3'
            cache_key: minirun-id2
            cache_metadata: {'tokens': 5}
        ?
            user: '1'
            model: 'c1'
            user: '2'
            model: 'c2'
            user: '3'
            model: 'three'
            user: '4'
            cache_key: minirun-id2
            cache_metadata: {'tokens': 5}
    """)
