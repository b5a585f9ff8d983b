"""Fields of agents: values that are refused, copies with other fields, and agents without logic or a model."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel

from minirun import (
    BaseAgent,
    Content,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    Part,
)
from minirun.errors import ConfigurationError
from minirun.planners import BuiltInPlanner
from minirun.tools import BaseTool
from minirun.types import Blob, FunctionDeclaration, GenerateContentConfig, ThinkingConfig

from ..helpers import look, run_to_end, runner_for, stored_events

SOUND = Content(role="user", parts=[Part(inline_data=Blob(data=b"\0\0", mime_type="audio/pcm"))])
THINKING = GenerateContentConfig(thinking_config=ThinkingConfig(thinking_budget=1))


class Town(BaseModel):
    """A form."""

    name: str


def check(ctx: Any, content: Any) -> None:
    """Let everything pass."""


def choose(events: Any) -> Any:
    """Choose from events, without the context."""


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sub_agents": ["b"]}, "expected agents in sub_agents, found 'b'"),
    ({"sub_agents": 5}, "expected sub_agents to be a list of agents, found 5; write [...]"),
    ({"before_agent_callback": 5}, "expected before_agent_callback to be a function or a list of functions, found 5"),
    ({"before_agent_callback": [5]}, "expected before_agent_callback to be a function or a list of functions, found 5"),
    ({"after_agent_callback": look}, "expected after_agent_callback to take the arguments callback_context by name"),
    ({"after_model_callback": [check]}, "after_model_callback to take the arguments callback_context, llm_response by"),
    ({"static_instruction": 5}, "expected static_instruction to be a text or a Content of texts, found 5"),
    ({"static_instruction": SOUND}, "expected static_instruction to be a text or a Content of texts, found Content"),
    ({"static_instruction": Content(role="user")}, "expected static_instruction to be a text or a Content of texts"),
    ({"generate_content_config": {}}, "expected generate_content_config to be a GenerateContentConfig, found {}"),
    (
        {"generate_content_config": GenerateContentConfig(tools=[FunctionDeclaration(name="f")])},
        "generate_content_config.tools would be replaced; write LlmAgent(tools=...) instead",
    ),
    (
        {"generate_content_config": GenerateContentConfig(system_instruction="Hi.")},
        "generate_content_config.system_instruction would be replaced; write LlmAgent(instruction=...) instead",
    ),
    (
        {"generate_content_config": GenerateContentConfig(response_schema={"type": "object"})},
        "generate_content_config.response_schema would be replaced; write LlmAgent(output_schema=...) instead",
    ),
    (
        {"generate_content_config": THINKING, "planner": BuiltInPlanner(thinking_config=ThinkingConfig())},
        "generate_content_config.thinking_config would be replaced by that of the planner; leave one out",
    ),
    ({"planner": 5}, "expected planner to be a BuiltInPlanner(thinking_config=...) or None, found 5"),
    ({"model_retry": "often"}, "expected model_retry to be a RetryConfig, 'standard' or None, found 'often'"),
    ({"mode": "twice"}, "expected mode to be 'single_turn', 'task', 'chat' or None, found 'twice'"),
    ({"output_validator": 5}, "expected output_validator to be a function of the context and the answer, or None, fo"),
    ({"output_validator": choose}, "expected output_validator to be a function of the context and the answer, or Non"),
    ({"include_contents": "all"}, "expected include_contents to be 'default', 'none' or a function, not async, of a"),
    ({"transfer_input_filter": "none"}, "expected transfer_input_filter to be None or a function, not async, of a"),
    ({"tools": [look, FunctionTool(look)]}, "expected tools with different names, found two named 'look'; use Functi"),
    ({"tools": [LlmAgent(name="b")]}, "expected tools, found the agent 'b'; write AgentTool(b), or put it in sub_ag"),
    ({"tools": [BaseTool]}, "expected tools, found the class BaseTool; make one: BaseTool(...)"),
    ({"input_guardrails": check}, "expected input_guardrails to be a list of guardrails, found"),
    ({"input_guardrails": "check"}, "expected input_guardrails to be a list of guardrails, found 'check'; write [...]"),
    ({"input_guardrails": [5]}, "expected a guardrail to be a function of the context and a content, or an agent, fo"),
    ({"input_guardrails": [Town]}, "expected a guardrail to be a function of the context and a content, or an agent"),
    ({"input_guardrails": [choose]}, "expected a guardrail to be a function of the context and a content, or an age"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_a_field_that_cannot_be_so_is_refused(fields: dict[str, Any], message: str) -> None:
    """The message names the field, and says what was expected, what was found, and what to write."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        LlmAgent(name="a", **fields)


# --- trees ------------------------------------------------------------------------------------------------------------


def test_a_copy_has_other_fields_where_that_is_asked_for() -> None:
    """The agents below are copied, too, unless they are given; a name that is no field is refused."""
    below = LlmAgent(name="below")
    agent = LlmAgent(name="a", description="One.", sub_agents=[below], tools=[look])
    copy = agent.clone({"name": "b"})
    assert (copy.name, copy.description, copy.tools) == ("b", "One.", agent.tools)
    assert [each.name for each in copy.sub_agents] == ["below"]
    assert copy.sub_agents[0] is not below
    assert agent.clone({"sub_agents": [below]}).sub_agents[0] is below
    with pytest.raises(ConfigurationError, match="expected fields of LlmAgent in update, found 'nme'"):
        agent.clone({"nme": "b", "z": 1})


# --- logic ------------------------------------------------------------------------------------------------------------


class Silent(BaseAgent):
    """An agent without logic."""


class Plain(BaseAgent):
    """An agent whose logic is a plain function."""

    def _run_async_impl(self, ctx: InvocationContext) -> Any:
        return "done"


@pytest.mark.parametrize(
    ("agent", "kind", "message"),
    [
        (Silent(name="a"), NotImplementedError, "Silent has no logic: override `async def _run_async_impl(self, ctx)`"),
        (Plain(name="a"), TypeError, "expected Plain._run_async_impl to be `async def` or an async generator, found a"),
    ],
)
async def test_an_agent_without_logic_fails_the_run(agent: BaseAgent, kind: type[Exception], message: str) -> None:
    """The error names its class, and says what to write."""
    with pytest.raises(kind, match=re.escape(message)):
        await run_to_end(runner_for(agent))


class Failing(BaseAgent):
    """A generator that fails when it is closed."""

    event: Any = None

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        try:
            yield self.event
        finally:
            raise ValueError("closing failed")


async def test_a_generator_that_fails_while_it_is_left_fails_the_run() -> None:
    """The caller leaves the run at an event; what closing the generator fails with is not lost."""
    runner = runner_for(Failing(name="a", event=Event(message="hi")))
    with pytest.raises(ValueError, match="closing failed"):
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
            async for event in run:
                assert event.text == "hi"
                break
    assert [event.text for event in await stored_events(runner)][:2] == ["go", "hi"]


async def test_an_agent_that_is_made_at_run_time_needs_a_model() -> None:
    """Nobody could check it before; the error says where one is looked for."""

    async def ask(ctx: InvocationContext) -> None:
        await LlmAgent(name="asker").run_async(ctx)

    with pytest.raises(ConfigurationError, match="expected a model for agent 'asker', found none in it nor in an Llm"):
        await run_to_end(runner_for(ask))
