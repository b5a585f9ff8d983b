"""What the fields of agents may be, and what is refused when an agent is made, copied, or asked for another one."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel
from trio.testing import MockClock

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Content,
    Event,
    FunctionTool,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    Part,
    ReadonlyContext,
)
from minirun.agents import Guardrail
from minirun.errors import ConfigurationError, ModelConnectionError
from minirun.planners import BuiltInPlanner
from minirun.testing import ScriptedLive, ScriptedLlm
from minirun.testing._live_dialects import DialectName
from minirun.tools import BaseTool, BaseToolset
from minirun.types import Blob, FunctionDeclaration, GenerateContentConfig, ThinkingConfig

from ..helpers import Logic, look, run_to_end, runner_for, stored_events
from ..live_client import both, conversing, new_runner

SOUND = Content(role="user", parts=[Part(inline_data=Blob(data=b"\0\0", mime_type="audio/pcm"))])
TEXTS = Content(role="user", parts=[Part(text="One."), Part(text=""), Part(text="Two.")])
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


ALLOWED: list[tuple[dict[str, Any], str, Any]] = [
    ({"static_instruction": TEXTS}, "static_instruction", "One.\n\nTwo."),
    ({"static_instruction": "Hi."}, "static_instruction", "Hi."),
    ({"before_agent_callback": max}, "before_agent_callback", (max,)),
    ({"before_agent_callback": None}, "before_agent_callback", ()),
    ({"mode": "chat"}, "mode", "chat"),
    ({"model_retry": "standard"}, "model_retry", "standard"),
    ({"include_contents": "none"}, "include_contents", "none"),
    ({"output_validator": check}, "output_validator", check),
    ({"input_guardrails": [check]}, "input_guardrails", None),
    ({"generate_content_config": THINKING}, "generate_content_config", THINKING),
]


@pytest.mark.parametrize(("fields", "name", "value"), ALLOWED, ids=[str(number) for number in range(len(ALLOWED))])
def test_a_field_has_what_it_was_given(fields: dict[str, Any], name: str, value: Any) -> None:
    """Texts of a content are joined, and one function is a list of one; a builtin need not tell its arguments."""
    found = getattr(LlmAgent(name="a", **fields), name)
    if value is None:
        [guardrail] = found
        assert (guardrail.check, guardrail.name) == (check, None)
    else:
        assert found == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": " "}, "Guardrail.name: expected a text, or None, found ' '"),
        ({"name": 5}, "Guardrail.name: expected a text, or None, found 5"),
    ],
)
def test_settings_of_a_guardrail_are_checked(options: dict[str, Any], message: str) -> None:
    """A name is a text, and a flag is one of the two values."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Guardrail(check, **options)


# --- trees ------------------------------------------------------------------------------------------------------------


def test_agents_are_found_by_name() -> None:
    """`find_agent` knows the agent itself and all below it, `find_sub_agent` only those below."""
    leaf = LlmAgent(name="leaf")
    middle = LlmAgent(name="middle", sub_agents=[leaf])
    root = LlmAgent(name="root", sub_agents=[LlmAgent(name="first"), middle])
    assert [root.find_agent(name) for name in ("root", "middle", "leaf", "nobody")] == [root, middle, leaf, None]
    assert [root.find_sub_agent(name) for name in ("root", "middle", "leaf", "x")] == [None, middle, leaf, None]


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


def test_only_an_agent_is_made_a_tool() -> None:
    """The tool has its name and description, unless it is given another name, and runs again when it is interrupted."""
    with pytest.raises(ConfigurationError, match="expected an agent, found 'helper'"):
        AgentTool("helper")  # type: ignore[arg-type]  # the point of the test
    helper = LlmAgent(name="helper", description="Helps.")
    tool = AgentTool(helper)
    assert (tool.name, tool.description, tool.skip_summarization) == ("helper", "Helps.", False)
    assert tool.on_interrupted == "rerun"
    assert AgentTool(helper, name="ask", on_interrupted="ask").on_interrupted == "ask"


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


class Doubling(BaseToolset):
    """A toolset with a tool that is there already."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [FunctionTool(look)]


async def test_two_tools_of_one_name_are_found_when_the_model_is_asked() -> None:
    """What a toolset gives is known then; the error names the agent and the tool."""
    agent = LlmAgent(name="a", model=ScriptedLlm(["hi"]), tools=[look, Doubling()])
    with pytest.raises(
        ConfigurationError, match="expected tools of agent 'a' with different names, found two named 'l"
    ):
        await run_to_end(runner_for(agent))


async def test_a_callback_of_an_agent_without_a_run_is_not_asked() -> None:
    """An agent whose invocation has ended says nothing, and one below a tree that escalates is not run."""
    asked: list[str] = []

    async def end(ctx: InvocationContext) -> None:
        ctx.end_invocation = True
        await Logic(name="inner", logic=note).run_async(ctx)

    async def note(ctx: InvocationContext) -> None:
        asked.append(ctx.agent_name)

    await run_to_end(runner_for(end))
    assert asked == []


@pytest.mark.parametrize("mode", ["single_turn", "task"])
def test_a_mode_of_nodes_is_refused_elsewhere(mode: Any) -> None:
    """The agent of an app is no node; the error says what to make of it."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]), mode=mode)
    message = f"agent 'a': expected an agent of mode '{mode}' to be a node of a workflow, found it elsewhere"
    with pytest.raises(ConfigurationError, match=message):
        App("app", agent)
    InMemoryRunner(agent=LlmAgent(name="b", model=ScriptedLlm([]), mode="chat"))


HOOKS = {
    "before_agent_callback": "Content",
    "after_agent_callback": "Content",
    "before_model_callback": "LlmResponse",
    "after_model_callback": "LlmResponse",
    "on_model_error_callback": "LlmResponse",
}


@pytest.mark.parametrize("name", HOOKS)
async def test_a_callback_that_returns_something_else_fails_the_run(name: str) -> None:
    """The error names the callback, and what it may return."""

    def hook(**arguments: Any) -> Any:
        return 5

    said: Any = ModelConnectionError("broken") if name == "on_model_error_callback" else "hi"
    hooks: dict[str, Any] = {name: hook}
    agent = LlmAgent(name="a", model=ScriptedLlm([said]), model_retry=None, **hooks)
    with pytest.raises(TypeError, match=f"expected {name} to return {HOOKS[name]} or None, found 5"):
        await run_to_end(runner_for(agent))


@pytest.mark.parametrize("name", ["before_model_callback", "after_model_callback"])
@both
async def test_a_callback_of_a_live_run_that_returns_something_else_fails_it(
    dialect: DialectName, name: str, autojump_clock: MockClock
) -> None:
    """As in writing."""
    model = ScriptedLive(["Hi."], dialect=dialect)
    hooks: dict[str, Any] = {name: lambda **arguments: 5}
    async with new_runner(model, **hooks) as runner, conversing(runner) as client:
        await client.live.send_text("hi")
        await client.hear_out()
    assert isinstance(client.failure, TypeError)
    assert str(client.failure) == f"expected {name} to return LlmResponse or None, found 5"
