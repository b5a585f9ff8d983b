"""Agents as nodes by their mode: tasks, which are conversations with the user; and modes that have no effect."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from minirun import AgentTool, App, InMemoryRunner, LlmAgent, Runner, SequentialAgent
from minirun.errors import ConfigurationError, InvalidMessageError, OutputSchemaError, WorkflowConfigurationError
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
