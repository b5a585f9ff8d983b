"""Agents as nodes by their mode: tasks, which are conversations with the user; and modes that have no effect."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from minirun import AgentTool, App, InMemoryRunner, LlmAgent, Runner, SequentialAgent
from minirun.errors import (
    ConfigurationError,
    InvalidMessageError,
    ModelRetry,
    OutputSchemaError,
    WorkflowConfigurationError,
)
from minirun.models import LlmRequest
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call
from minirun.workflow import START, JoinNode, Workflow

from ..resuming import says

PLACE: Any = {"user_id": "u", "session_id": "s"}


@attrs.frozen
class Order:
    """What the task comes to."""

    what: str
    number: int = 1


def task(*answers: Any, **fields: Any) -> LlmAgent:
    """An agent of mode task whose model says these one after the other."""
    return LlmAgent(name="clerk", model=ScriptedLlm(answers), mode="task", **fields)


def runner_for(*edges: Any) -> InMemoryRunner:
    """A runner of a workflow with these edges."""
    return InMemoryRunner(app=App("app", Workflow(name="wf", edges=edges)), auto_create_session=True)


async def say(runner: Runner, message: Any, **options: Any) -> Run:
    """Run until it has ended, or waits."""
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        await run.wait()
    return run


async def ends(node_input: Any) -> Any:
    """Hands on what it was given."""
    return {"given": node_input}


async def test_a_task_is_a_conversation_until_it_is_finished() -> None:
    """Plain messages go on with the invocation; the node after it begins when finish_task was called, with its form."""
    clerk = task("What?", "How many?", call("finish_task", what="tea", number=2), output_schema=Order, output_key="o")
    runner = runner_for((START, clerk, ends))
    first = await say(runner, "I want to order")
    assert first.status == "paused"
    [pending] = first.pending
    assert (pending.kind, pending.hint, pending.author) == ("message", "What?", "wf")
    second = await say(runner, "Tea")
    assert second.invocation_id == first.invocation_id
    assert [each.hint for each in second.pending] == ["How many?"]
    assert [(node.name, node.status.value) for node in second.nodes] == [("clerk", "waiting")]
    third = await say(runner, "Two")
    assert third.invocation_id == first.invocation_id
    assert third.status == "completed"
    assert third.answer is not None
    assert third.answer.output == {"given": {"what": "tea", "number": 2}}
    assert third.session.state["o"] == {"what": "tea", "number": 2}


async def test_the_model_is_told_of_the_task_and_of_the_conversation() -> None:
    """Its prompt has what it was given, what it has said and what the user has; and the tool, and how to use it."""
    asked: list[LlmRequest] = []

    def answer(request: LlmRequest) -> Any:
        asked.append(request)
        return "What?" if len(asked) == 1 else call("finish_task", result="tea")

    clerk = LlmAgent(name="clerk", model=ScriptedLlm(answer), mode="task", instruction="Take orders.")
    runner = runner_for((START, clerk, ends))
    await say(runner, "hello")
    run = await say(runner, "tea")
    assert run.answer is not None
    assert run.answer.output == {"given": {"result": "tea"}}
    said = [(content.role, content.parts[0].text) for content in asked[1].contents]
    assert said == [("user", "hello"), ("model", "What?"), ("user", "tea")]
    system = str(asked[1].config.system_instruction)
    assert system.startswith("Take orders.")
    assert "finish_task" in system


async def test_a_reply_answers_whatever_else_waits() -> None:
    """With another question open, a plain message begins an invocation; `pending.reply` answers, with a text only."""

    async def asks(ctx: Any) -> Any:
        return await ctx.request_input("Which?")

    clerk = task("What?", "Else?", call("finish_task", result="tea"))
    runner = runner_for((START, (clerk, asks), JoinNode(name="both")))
    first = await say(runner, "go")
    by_kind = {pending.kind: pending for pending in first.pending}
    assert set(by_kind) == {"message", "input"}
    other = await say(runner, "plain")
    assert other.invocation_id != first.invocation_id
    for wrong in (5, "", None):
        with pytest.raises(InvalidMessageError, match="to be answered with a text"):
            by_kind["message"].reply(wrong)
    again = await say(runner, by_kind["message"].reply("tea"))
    assert again.invocation_id == first.invocation_id
    assert [pending.kind for pending in again.pending] == ["input"]


async def test_what_finish_task_does_not_take_is_told_to_the_model() -> None:
    """It may try again `output_retries` times after each message of the user; then the node fails."""
    wrong, right = call("finish_task", what=5), call("finish_task", what="tea")
    runner = runner_for((START, task(wrong, "What?", wrong, right, output_schema=Order, output_retries=1), ends))
    await say(runner, "go")
    run = await say(runner, "tea")
    assert run.answer is not None
    assert run.answer.output == {"given": {"what": "tea", "number": 1}}
    runner = runner_for((START, task(wrong, wrong, right, output_schema=Order, output_retries=1), ends))
    with pytest.raises(OutputSchemaError, match=r"clerk.*found another form each time; at last: .*what"):
        await say(runner, "go")


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_the_model_may_try_as_often_as_it_says(retries: int) -> None:
    """With `output_retries` of n the (n + 1)-th attempt may be right, and one more is not made."""
    wrong, right = call("finish_task", what=5), call("finish_task", what="tea")
    runner = runner_for((START, task(*[wrong] * retries, right, output_schema=Order, output_retries=retries), ends))
    run = await say(runner, "go")
    assert run.answer is not None
    assert run.answer.output == {"given": {"what": "tea", "number": 1}}
    runner = runner_for((START, task(*[wrong] * (retries + 1), output_schema=Order, output_retries=retries), ends))
    with pytest.raises(OutputSchemaError) as caught:
        await say(runner, "go")
    assert str(caught.value) == (
        "expected agent 'clerk' to call finish_task with what its output_schema asks for, found another form each "
        "time; at last: {'type': 'ArgumentError', 'message': 'what: expected string, found integer 5'}"
    )


async def test_a_validator_looks_at_the_outcome() -> None:
    """It gets what the form makes of it, may put another in its place, or have the model try again by its words."""
    seen: list[Order] = []

    def look(context: Any, value: Order) -> Order:
        seen.append(value)
        if value.number > 2:
            raise ModelRetry("not so many")
        return attrs.evolve(value, what=value.what.upper())

    asked: list[LlmRequest] = []

    def answer(request: LlmRequest) -> Any:
        asked.append(request)
        return call("finish_task", what="tea", number=4 - len(asked))

    clerk = LlmAgent(
        name="clerk", model=ScriptedLlm(answer), mode="task", output_schema=Order, output_validator=look,
        output_retries=1, output_key="order",
    )  # fmt: skip
    run = await say(runner_for((START, clerk, ends)), "go")
    assert run.answer is not None
    assert run.answer.output == {"given": {"what": "TEA", "number": 2}}
    assert run.session.state["order"] == {"what": "TEA", "number": 2}
    assert seen == [Order("tea", 3), Order("tea", 2)]
    [refused] = asked[1].contents[-1].responses
    assert refused.response == {"error": {"type": "ModelRetry", "message": "not so many"}}


async def test_the_tool_that_ends_a_task_has_the_form_of_its_outcome() -> None:
    """The fields of the schema are its parameters; without a schema there is one text; what it is for is said."""
    asked: list[LlmRequest] = []

    def answer(request: LlmRequest) -> Any:
        asked.append(request)
        return "What?"

    text = {
        "type": "object",
        "properties": {"result": {"type": "string"}},
        "required": ["result"],
        "additionalProperties": False,
    }
    order = {
        "type": "object",
        "properties": {"what": {"type": "string"}, "number": {"type": "integer", "default": 1}},
        "required": ["what"],
        "additionalProperties": False,
    }
    for schema, parameters in ((None, text), (Order, order)):
        asked.clear()
        clerk = LlmAgent(name="clerk", model=ScriptedLlm(answer), mode="task", output_schema=schema)
        await say(runner_for((START, clerk, ends)), "go")
        [tool] = asked[0].config.tools
        assert (tool.name, tool.parameters) == ("finish_task", parameters)
        assert tool.description == "End the task, with what has come of it in the form that is asked for."
        assert asked[0].config.system_instruction == (
            "Talk with the user until the task is done; then call finish_task, and say nothing more."
        )


async def test_a_conversation_is_stored_as_it_was() -> None:
    """What the agent says, the question, what the user says, the call and its end: each is one event of the branch."""
    runner = runner_for((START, task("What?", call("finish_task", result="tea"))))
    await say(runner, "hello")
    run = await say(runner, "tea")
    told = []
    for event in run.session.events:
        calls = [(each.name, each.args) for each in event.get_function_calls()]
        answers = [(each.name, each.response) for each in event.get_function_responses()]
        told.append((event.author, event.branch, event.text, calls, answers, event.output))
    assert told == [
        ("user", None, "hello", [], [], None),
        ("clerk", "wf.clerk", "What?", [], [], None),
        ("wf", "wf.clerk", "", [("minirun_request_message", {"message": "What?"})], [], None),
        ("user", "wf.clerk", "", [], [("minirun_request_message", {"result": "tea"})], None),
        ("clerk", "wf.clerk", "tea", [], [], None),
        ("clerk", "wf.clerk", "", [("finish_task", {"result": "tea"})], [], None),
        ("clerk", "wf.clerk", "", [], [("finish_task", {"result": {"result": "tea"}})], None),
        ("clerk", "wf.clerk", "", [], [], {"result": "tea"}),
    ]


async def test_after_the_conversation_messages_begin_invocations() -> None:
    """So does one while an older invocation waits, if a later one was at work since."""
    runner = runner_for((START, task("What?", "Who?", call("finish_task", result="x"), "Again?"), ends))
    first = await say(runner, "go")
    async with runner.run_async(**PLACE, new_message="later", invocation_id="mine") as named:
        await named.wait()
    assert named.status == "paused"
    third = await say(runner, "x")
    assert third.invocation_id == "mine"
    assert third.status == "completed"
    fourth = await say(runner, "another")
    assert fourth.invocation_id not in ("mine", first.invocation_id)


async def test_single_turn_and_no_mode_are_the_same_in_a_graph() -> None:
    """The input is the message, and the answer the output."""
    for mode in (None, "single_turn"):
        agent: Any = LlmAgent(name="one", model=says("done"), mode=mode)
        run = await say(runner_for((START, agent, ends)), "go")
        assert run.answer is not None
        assert run.answer.output == {"given": "done"}


def test_modes_that_would_have_no_effect_are_refused() -> None:
    """Chat in a graph; a mode of nodes elsewhere; what is none; a task with agents below it, or with that tool."""
    model = says("x")
    chat = LlmAgent(name="chatty", model=model, mode="chat")
    with pytest.raises(WorkflowConfigurationError, match=r"agent 'chatty': .* found 'chat', which never gives"):
        Workflow(name="wf", edges=[(START, chat)])
    App("app", chat)
    for mode in ("single_turn", "task"):
        agent: Any = LlmAgent(name="worker", model=model, mode=mode)
        root = LlmAgent(name="root", model=model, sub_agents=[agent])
        for make in (
            lambda agent=agent: App("app", agent),
            lambda root=root: App("app", root),
            lambda agent=agent: AgentTool(agent),
            lambda agent=agent: Workflow(
                name="wf", edges=[(START, SequentialAgent(name="all", sub_agents=[agent.clone()]))]
            ).node_trees,
        ):
            with pytest.raises(ConfigurationError, match=f"agent 'worker': .* mode {mode!r} to be a node"):
                make()
    with pytest.raises(ConfigurationError, match="expected mode to be 'single_turn'"):
        LlmAgent(name="x", mode="quick")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="two named 'finish_task'"):
        Workflow(name="wf", edges=[(START, LlmAgent(name="x", mode="task", tools=[finish_task]))])
    with pytest.raises(ConfigurationError, match="'task' without sub_agents"):
        Workflow(name="wf", edges=[(START, LlmAgent(name="x", mode="task", sub_agents=[chat]))])


def finish_task() -> None:
    """A tool of a name that is taken."""
