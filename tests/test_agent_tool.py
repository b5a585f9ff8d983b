"""An agent as a tool: what it sees, what is seen of it, and how it fails."""

from __future__ import annotations

import attrs
import pytest

from minirun import AgentTool, Event, InMemoryRunner, LlmAgent, ParallelAgent, RunConfig, SequentialAgent, ToolContext
from minirun.errors import ConfigurationError, LlmCallsLimitExceededError
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop


def texts(model: ScriptedLlm, question: int) -> list[str]:
    """What the model was shown."""
    return [content.text for content in model.requests[question].contents]


async def run(agent: LlmAgent, config: RunConfig | None = None) -> list[Event]:
    """The events of one run."""
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
        events = [event async for event in running]
    events.append(Event(message=running.answer.text if running.answer else "none"))
    return events


async def test_it_sees_its_request_and_is_seen_by_the_caller_only() -> None:
    """Its model is shown the request alone; the asking model its result alone; the caller of the run all of it."""
    below = ScriptedLlm(["the answer"])
    above = ScriptedLlm([call("helper", request="find it"), "done"])
    root = LlmAgent(name="root", model=above, tools=[AgentTool(LlmAgent(name="helper", model=below))])
    *events, answer = await run(root)
    assert texts(below, 0) == ["find it"]
    assert texts(above, 1) == ["hi", "", ""]
    [response] = above.requests[1].contents[2].parts
    assert response.function_response is not None
    assert response.function_response.response == {"result": "the answer"}
    call_id = events[0].get_function_calls()[0].id
    assert [(event.author, event.branch) for event in events] == [
        ("root", None),
        ("helper", f"helper@{call_id}"),
        ("root", None),
        ("root", None),
    ]
    assert answer.text == "done"


async def test_it_shares_state_and_budget() -> None:
    """It reads what was written before it, what it writes stays, and its questions count towards those of the run."""

    def note(tool_context: ToolContext) -> str:
        """Note something."""
        tool_context.state["noted"] = tool_context.state["given"] + 1
        return "noted"

    def give(tool_context: ToolContext) -> str:
        """Give something."""
        tool_context.state["given"] = 1
        return "given"

    def root() -> LlmAgent:
        helper = LlmAgent(name="helper", model=ScriptedLlm([call("note"), "noted it"]), tools=[note])
        above = ScriptedLlm([call("give"), call("helper", request="x"), "done"])
        return LlmAgent(name="root", model=above, tools=[give, AgentTool(helper)])

    *events, _ = await run(root())
    assert [event.actions.state_delta for event in events if event.actions.state_delta] == [{"given": 1}, {"noted": 2}]
    with pytest.raises(LlmCallsLimitExceededError):
        await run(root(), RunConfig(max_llm_calls=3))


async def test_its_failure_is_the_tools() -> None:
    """The asking model is told of the error and goes on; wrong arguments and error answers are told, too."""
    failing = LlmAgent(name="helper", model=ScriptedLlm([RuntimeError("no luck")]))
    above = ScriptedLlm([call("helper", request="x"), call("helper", wrong=1), "gave up"])
    *events, answer = await run(LlmAgent(name="root", model=above, tools=[AgentTool(failing)]))
    told = [item.response["error"] for event in events for item in event.get_function_responses()]
    assert told[0] == {"type": "RuntimeError", "message": "no luck"}
    assert told[1]["type"] == "ArgumentError"
    assert "request" in told[1]["message"]
    assert answer.text == "gave up"


async def test_its_arguments_and_its_result_may_have_a_form() -> None:
    """With an input_schema it is called with such an object, with an output_schema it returns one."""

    @attrs.frozen
    class Question:
        topic: str
        depth: int = 1

    @attrs.frozen
    class Answer:
        points: list[str]

    below = ScriptedLlm(['{"points": ["a", "b"]}'])
    helper = LlmAgent(name="helper", model=below, input_schema=Question, output_schema=Answer)
    above = ScriptedLlm([call("helper", topic="trees"), "done"])
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[AgentTool(helper)]))
    assert texts(below, 0) == ['{"topic":"trees","depth":1}']
    assert events[2].get_function_responses()[0].response == {"points": ["a", "b"]}
    assert above.requests[0].config.tools[0].parameters["required"] == ["topic"]


async def test_agents_inside_see_each_other_and_nothing_outside() -> None:
    """A sequence with parallel agents inside of a call: who comes after the branches sees them, and not the caller."""
    last = ScriptedLlm(["sum"])
    parts = [LlmAgent(name=name, model=ScriptedLlm([f"{name} says"])) for name in ("one", "two")]
    steps = [ParallelAgent(name="both", sub_agents=parts), LlmAgent(name="last", model=last)]
    tool = AgentTool(SequentialAgent(name="helper", description="Helps.", sub_agents=steps))
    above = ScriptedLlm([call("helper", request="go"), "done"])
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[tool]))
    assert texts(last, 0)[0] == "go"
    assert sorted(texts(last, 0)[1:]) == ["[one] said: one says", "[two] said: two says"]
    assert events[-2].get_function_responses()[0].response == {"result": "sum"}
    assert texts(above, 1) == ["hi", "", ""]


async def test_calls_at_once_do_not_see_each_other() -> None:
    """Two calls of one agent in one turn each have a branch and a history of their own."""
    below = ScriptedLlm(lambda request: f"about {request.contents[0].text}: {len(request.contents)}")
    above = ScriptedLlm([[call("helper", request="a"), call("helper", request="b")], "done"])
    helper = AgentTool(LlmAgent(name="helper", model=below))
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[helper]))
    [answers] = [event.get_function_responses() for event in events if event.get_function_responses()]
    assert [item.response for item in answers] == [{"result": "about a: 1"}, {"result": "about b: 1"}]


async def test_an_escalation_inside_ends_what_is_inside() -> None:
    """It does not end the agent that asks."""
    inner = SequentialAgent(
        name="helper",
        sub_agents=[
            LlmAgent(name="one", model=ScriptedLlm([call("exit_loop")]), tools=[exit_loop]),
            LlmAgent(name="two", model=ScriptedLlm([])),
        ],
    )
    above = ScriptedLlm([call("helper", request="x"), "done"])
    *_, answer = await run(LlmAgent(name="root", model=above, tools=[AgentTool(inner)]))
    assert answer.text == "done"


async def test_its_answer_may_be_the_last_word() -> None:
    """With skip_summarization the model that asked is not asked again."""
    tool = AgentTool(LlmAgent(name="helper", model=ScriptedLlm(["the answer"])), skip_summarization=True)
    above = ScriptedLlm([call("helper", request="x")])
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[tool]))
    assert events[-1].actions.skip_summarization is True
    above.assert_done()


async def test_an_agent_without_a_model_uses_that_of_who_asks() -> None:
    """An agent inside of a tool inherits the model; an agent in `tools` itself is refused, saying what to write."""
    model = ScriptedLlm([call("helper", request="x"), "helped", "done"])
    *_, answer = await run(LlmAgent(name="root", model=model, tools=[AgentTool(LlmAgent(name="helper"))]))
    assert answer.text == "done"
    with pytest.raises(ConfigurationError, match="AgentTool\\(helper\\)"):
        LlmAgent(name="root", model=model, tools=[LlmAgent(name="helper")])  # type: ignore[list-item]  # the point
