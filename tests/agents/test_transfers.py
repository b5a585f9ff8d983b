"""Handing over: who may take over from whom, what happens then, and who answers the next message."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import (
    App,
    BaseAgent,
    Event,
    EventActions,
    FunctionTool,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    Part,
    RunConfig,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import ConfigurationError, DeadlineExceededError, InvalidEventError, TransfersLimitExceededError
from minirun.models import LlmCapabilities
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig, exit_loop


def to(name: str) -> Part:
    """A call that hands over."""
    return call("transfer_to_agent", agent_name=name)


def team(root: list[str | Part], **scripts: list[str | Part]) -> tuple[LlmAgent, dict[str, ScriptedLlm]]:
    """A root with agents below it, all led by scripts."""
    models = {name: ScriptedLlm(script) for name, script in {"root": root, **scripts}.items()}
    below = [LlmAgent(name=name, model=models[name], description=f"does {name}") for name in scripts]
    return LlmAgent(name="root", model=models["root"], sub_agents=below), models


async def say(runner: InMemoryRunner, text: str, config: RunConfig | None = None) -> list[Event]:
    """The events of one run."""
    async with runner.run_async(user_id="u", session_id="s", new_message=text, run_config=config) as run:
        return [event async for event in run]


def spoken(events: list[Event]) -> list[tuple[str | None, str]]:
    """Who said what."""
    return [(event.author, event.text) for event in events if event.text]


async def test_an_agent_takes_over_and_keeps_control() -> None:
    """It answers in the same run, sees what was said, and answers the next message, until it hands back."""
    root, models = team([to("sub"), "root again"], sub=["sub says hi", "sub again", to("root")])
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    first = await say(runner, "hi")
    assert [event.actions.transfer_to_agent for event in first] == [None, "sub", None]
    assert spoken(first) == [("sub", "sub says hi")]
    assert spoken(await say(runner, "more")) == [("sub", "sub again")]
    assert spoken(await say(runner, "and now")) == [("root", "root again")]
    shown = [content.text for content in models["sub"].requests[0].contents]
    assert shown[0] == "hi"
    assert "[root] called transfer_to_agent" in shown[1]
    for model in models.values():
        model.assert_done()


async def test_a_model_is_told_whom_it_can_hand_over_to() -> None:
    """The names stand in the tool's declaration, their descriptions in the instruction; without any, neither does."""
    root, models = team([to("one")], one=["yes"], two=[])
    await say(InMemoryRunner(agent=root, auto_create_session=True), "hi")
    config = models["root"].requests[0].config
    assert config.tools[0].parameters["properties"]["agent_name"]["enum"] == ["one", "two"]
    assert config.system_instruction is not None
    assert "- two: does two" in config.system_instruction
    assert "name is root" in config.system_instruction
    assert models["one"].requests[0].config.tools[0].parameters["properties"]["agent_name"]["enum"] == ["root", "two"]
    alone = ScriptedLlm(["hi"])
    await say(InMemoryRunner(agent=LlmAgent(name="alone", model=alone), auto_create_session=True), "hi")
    assert alone.requests[0].config.tools == ()
    assert alone.requests[0].config.system_instruction is None


async def test_whom_an_agent_may_hand_over_to() -> None:
    """To those below it, the one above it and those beside it, if that one is led by a model, unless disallowed."""
    model = ScriptedLlm([])
    deep = LlmAgent(name="deep", model=model)
    inner = LlmAgent(name="inner", model=model)
    loop = LoopAgent(name="loop", sub_agents=[inner])
    silent = LlmAgent(name="silent", disallow_transfer_to_parent=True, disallow_transfer_to_peers=True)
    free = LlmAgent(name="free", sub_agents=[deep])
    app = App("app", LlmAgent(name="root", model=model, sub_agents=[free, silent, loop]))

    def targets(name: str) -> list[str]:
        agent = app.root_agent.find_agent(name)
        assert agent is not None
        return [other.name for other in app._tree.targets(agent)]

    assert targets("root") == ["free", "silent", "loop"]
    assert targets("free") == ["deep", "root", "silent", "loop"]
    assert targets("deep") == ["free"]
    assert targets("silent") == []
    assert targets("inner") == []  # its loop is not led by a model and gives nothing away


async def test_an_impossible_target_is_an_error_that_the_model_is_told() -> None:
    """A name that it cannot hand over to fails that call; the model is asked again, and the run goes on."""
    root, _ = team([to("ghost"), "sorry"], sub=[])
    events = await say(InMemoryRunner(agent=root, auto_create_session=True), "hi")
    response = events[1].get_function_responses()[0].response
    assert response["error"]["type"] == "ArgumentError"
    assert "one of sub" in response["error"]["message"]
    assert events[1].actions.transfer_to_agent is None
    assert spoken(events) == [("root", "sorry")]


async def test_all_calls_of_a_turn_are_made_before_somebody_takes_over() -> None:
    """Another tool in the same turn runs; of two targets the later call's counts."""
    done: list[str] = []

    async def side() -> None:
        """Does something beside."""
        done.append("side")

    models = [ScriptedLlm([[to("one"), call("side"), to("two")]]), ScriptedLlm(["two here"])]
    below = [LlmAgent(name="one", model=ScriptedLlm([])), LlmAgent(name="two", model=models[1])]
    root = LlmAgent(name="root", model=models[0], tools=[side], sub_agents=below)
    events = await say(InMemoryRunner(agent=root, auto_create_session=True), "hi")
    assert done == ["side"]
    first, _, last = events[1].get_function_responses()
    assert "hands over to 'two'" in first.response["error"]["message"]
    assert last.response == {"result": "two takes over"}
    assert spoken(events) == [("two", "two here")]


async def test_only_who_can_hand_back_keeps_control() -> None:
    """An agent that may not hand back, or is not led by a model, is not asked the next time: the root is."""
    model = ScriptedLlm([to("stuck"), "root", to("steps"), "root once more"])
    stuck = LlmAgent(name="stuck", model=ScriptedLlm(["stuck here"]), disallow_transfer_to_parent=True)
    step = LlmAgent(name="step", model=ScriptedLlm(["step one"]))
    root = LlmAgent(name="root", model=model, sub_agents=[stuck, SequentialAgent(name="steps", sub_agents=[step])])
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    said = [spoken(await say(runner, text))[-1][1] for text in ("a", "b", "c", "d")]
    assert said == ["stuck here", "root", "step one", "root once more"]


async def test_a_transfer_that_was_undone_does_not_count() -> None:
    """After a rewind the message goes to who had control before it."""
    root, _ = team(["hello", to("sub"), "root again"], sub=["sub here"])
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    await say(runner, "a")
    events = await say(runner, "b")
    assert spoken(events) == [("sub", "sub here")]
    await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=events[0].invocation_id or "")
    assert spoken(await say(runner, "c")) == [("root", "root again")]


async def test_transfers_are_limited() -> None:
    """Two agents that hand over to each other forever are stopped by `max_transfers`; the failure is an event."""
    root, _ = team([to("sub")] * 10, sub=[to("root")] * 10)
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    with pytest.raises(TransfersLimitExceededError, match="3 times"):
        await say(runner, "hi", RunConfig(max_transfers=3))
    session = await runner.session_service.get_session(app_name="InMemoryRunner", user_id="u", session_id="s")
    assert session is not None
    assert session.events[-1].error_code == "TransfersLimitExceededError"
    calls = [part for event in session.events for part in event.get_function_calls()]
    answers = [part for event in session.events for part in event.get_function_responses()]
    assert len(calls) == len(answers) == 4
    assert [event.actions.transfer_to_agent for event in session.events].count("sub") == 2
    assert answers[-1].response["error"]["type"] == "TransfersLimitExceededError"


async def test_any_agent_can_hand_over() -> None:
    """An event of an agent without a model may name who takes over, too; whom it cannot name is refused, unstored."""

    class Desk(BaseAgent):
        target: str = "clerk"

        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="one moment", actions=EventActions(transfer_to_agent=self.target)))

    clerk = LlmAgent(name="clerk", model=ScriptedLlm(["what can I do?"]))
    runner = InMemoryRunner(agent=Desk(name="desk", sub_agents=[clerk]), auto_create_session=True)
    assert spoken(await say(runner, "hi")) == [("desk", "one moment"), ("clerk", "what can I do?")]
    other = InMemoryRunner(agent=Desk(name="desk", target="nobody"), auto_create_session=True)
    with pytest.raises(InvalidEventError, match="can hand over to \\(none\\), found 'nobody'"):
        await say(other, "hi")


async def test_in_a_sequence_who_takes_over_takes_that_place() -> None:
    """When it has ended the next agent of the sequence runs."""
    helper = LlmAgent(name="helper", model=ScriptedLlm(["helped"]))
    first = LlmAgent(name="first", model=ScriptedLlm([to("helper")]), sub_agents=[helper])
    second = LlmAgent(name="second", model=ScriptedLlm(["second"]))
    root = SequentialAgent(name="all", sub_agents=[first, second])
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    assert spoken(await say(runner, "hi")) == [("helper", "helped"), ("second", "second")]


def test_an_agent_stands_in_one_place_under_its_own_name() -> None:
    """Two agents of one name, and one agent in two places, are refused when the app is made."""
    model = ScriptedLlm([])
    one = LlmAgent(name="one", model=model)
    with pytest.raises(ConfigurationError, match="two named 'one'"):
        App("app", SequentialAgent(name="all", sub_agents=[one, LlmAgent(name="one", model=model)]))
    with pytest.raises(ConfigurationError, match="'one' in two"):
        App("app", SequentialAgent(name="all", sub_agents=[one, SequentialAgent(name="more", sub_agents=[one])]))


async def test_an_agent_made_at_run_time_hands_over_to_those_below_it() -> None:
    """Also to one that the app does not know; the next message is the root's again."""

    class Hiring(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            sub = LlmAgent(name="sub", model=ScriptedLlm(["sub here"]))
            await LlmAgent(name="made", model=ScriptedLlm([to("sub")]), sub_agents=[sub]).run_async(ctx)

    runner = InMemoryRunner(agent=Hiring(name="hiring"), auto_create_session=True)
    for _ in range(2):
        assert spoken(await say(runner, "hi")) == [("sub", "sub here")]


@pytest.mark.parametrize("turns", ["one", "two"])
async def test_nobody_takes_over_from_who_has_escalated(turns: str) -> None:
    """In the same turn or a later one: that call is answered with an error, and the next message goes to the same."""

    def stop(tool_context: ToolContext) -> None:
        """Stop."""
        tool_context.actions.escalate = True

    script: list[Any] = [[to("sub"), call("exit_loop")]] if turns == "one" else [call("stop"), to("sub")]
    root = LlmAgent(
        name="root",
        model=ScriptedLlm([*script, "stopped", "root again"]),
        tools=[exit_loop, stop],
        sub_agents=[LlmAgent(name="sub", model=ScriptedLlm([]))],
    )
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    events = await say(runner, "hi")
    answers = [item for event in events for item in event.get_function_responses()]
    [response] = [item for item in answers if item.name == "transfer_to_agent"]
    assert response.response["error"]["type"] == "InvalidEventError"
    assert "escalate" in response.response["error"]["message"]
    assert [event.actions.transfer_to_agent for event in events if event.actions.transfer_to_agent] == []
    assert spoken(await say(runner, "more")) == [("root", "root again")]


async def test_an_event_either_escalates_or_hands_over() -> None:
    """One that does both is refused, unstored."""

    class Both(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="x", actions=EventActions(transfer_to_agent="sub", escalate=True)))

    sub = LlmAgent(name="sub", model=ScriptedLlm([]))
    runner = InMemoryRunner(agent=Both(name="both", sub_agents=[sub]), auto_create_session=True)
    with pytest.raises(InvalidEventError, match="escalates or hands over"):
        await say(runner, "hi")


@pytest.mark.parametrize("accepted", [True, False])
async def test_who_gives_the_final_answer_does_not_hand_over(accepted: bool) -> None:
    """A transfer beside set_model_response is an error response; beside one that was refused it happens."""
    answer = call("set_model_response", result=["x"] if accepted else "x")
    sub = LlmAgent(name="sub", model=ScriptedLlm([] if accepted else ["sub here"]))
    model = ScriptedLlm([[to("sub"), answer]], capabilities=LlmCapabilities(output_schema=False))
    root = LlmAgent(name="root", model=model, output_schema=list[str], sub_agents=[sub])
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    events = await say(runner, "hi")
    assert spoken(events) == [("root", '["x"]') if accepted else ("sub", "sub here")]
    response = events[1].get_function_responses()[0].response
    assert ("final answer" in str(response)) is accepted


async def test_a_transfer_counts_once_however_often_its_tool_is_tried() -> None:
    """A tool that has said who takes over, fails and is tried again says nothing new: it has used one transfer."""
    tried: list[int] = []

    async def hand_over(tool_context: ToolContext) -> str:
        """Hand over."""
        tried.append(len(tried))
        await tool_context.emit(Event(message="over", actions=EventActions(transfer_to_agent="sub")))
        if len(tried) == 1:
            raise ValueError("not yet")
        return "done"

    root, _ = team([call("hand_over"), "root again"], sub=["sub here"])
    tool = FunctionTool(hand_over, retry=RetryConfig(initial_delay=0))
    again = LlmAgent(name="root", model=root.model, sub_agents=root.sub_agents, tools=[tool])
    events = await say(InMemoryRunner(agent=again, auto_create_session=True), "hi", RunConfig(max_transfers=1))
    assert [event.actions.transfer_to_agent for event in events].count("sub") == 1
    assert tried == [0, 1]
    assert events[-1].error_code is None


async def test_a_transfer_that_is_refused_counts_for_nothing() -> None:
    """One transfer is allowed: an event that could hand over to nobody has not taken it."""

    class Desk(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            with pytest.raises(InvalidEventError, match="nobody"):
                await ctx.emit(Event(actions=EventActions(transfer_to_agent="nobody")))
            await ctx.emit(Event(actions=EventActions(transfer_to_agent="clerk")))

    clerk = LlmAgent(name="clerk", model=ScriptedLlm(["what can I do?"]))
    runner = InMemoryRunner(agent=Desk(name="desk", sub_agents=[clerk]), auto_create_session=True)
    assert spoken(await say(runner, "hi", RunConfig(max_transfers=1))) == [("clerk", "what can I do?")]


async def test_a_turn_that_was_stopped_hands_over_to_nobody(autojump_clock: MockClock) -> None:
    """One call of it hands over and has ended, another one was cancelled: the root answers the next message."""

    async def hang() -> None:
        """Hang."""
        await trio.sleep_forever()

    clerk = LlmAgent(name="clerk", model=ScriptedLlm(["clerk here"]))
    model = ScriptedLlm([[to("clerk"), call("hang")], "root again"])
    root = LlmAgent(name="root", model=model, sub_agents=[clerk], tools=[hang])
    runner = InMemoryRunner(agent=root, auto_create_session=True)
    with pytest.raises(DeadlineExceededError):
        await say(runner, "hi", RunConfig(deadline_s=5))
    assert spoken(await say(runner, "and now")) == [("root", "root again")]


async def test_transfers_count_in_later_runs_of_the_invocation() -> None:
    """What was handed over before an invocation waited is counted from its log when it goes on."""

    class Asks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.request_input("?")
            await ctx.emit(Event(message="back", actions=EventActions(transfer_to_agent="root")))

    asks, model = Asks(name="sub"), ScriptedLlm([to("sub"), "root again"])
    runner = InMemoryRunner(agent=LlmAgent(name="root", model=model, sub_agents=[asks]), auto_create_session=True)
    place: Any = {"user_id": "u", "session_id": "s", "run_config": RunConfig(max_transfers=1)}
    async with runner.run_async(**place, new_message="go") as run:
        await run.wait()
    with pytest.raises(TransfersLimitExceededError, match="1 times"):
        async with runner.run_async(**place, new_message=run.pending[0].reply("yes")) as run:
            await run.wait()
