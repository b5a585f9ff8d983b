"""Calls of one turn begin in their order, and one after the other where a tool, a toolset or an agent asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    BaseAgent,
    Event,
    EventActions,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import ConfigurationError, FatalError
from minirun.runtime import ReadonlyContext
from minirun.sessions import PendingCall
from minirun.simulation import SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset, LongRunningFunctionTool, RetryConfig
from minirun.types import Content, FunctionCall, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from ..resuming import steps
from ..runtime.test_resume import cut_after, runner_of
from ..simulation.stores import simulate


def turn_of(*names: str, then: object = "done") -> ScriptedLlm:
    """A model that calls these tools in one answer, and says one thing more."""
    return steps([call(name) for name in names], then)


class Diary:
    """Tools that write down when they begin and end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tool(self, name: str, *, takes_s: float = 1, **options: Any) -> FunctionTool:
        """A tool that takes some time."""

        async def work() -> str:
            self.lines.append(f"{name}+")
            await trio.sleep(takes_s)
            self.lines.append(f"{name}-")
            return name

        return FunctionTool(work, name=name, description=name, **options)


def answered(log: Sequence[Event]) -> list[list[tuple[str, Any]]]:
    """What was answered, by event: the names of tools, and results or the types of errors."""
    found = []
    for event in log:
        answers = [(each.name, each.response) for each in event.get_function_responses()]
        if answers:
            found.append([(name, r.get("result", r.get("error", {}).get("type"))) for name, r in answers])
    return found


async def resumed(runner: Runner, question: PendingCall, answer: object) -> None:
    """Answer a question and run to the next rest."""
    async with runner.run_async(**PLACE, new_message=question.reply(answer)) as run:
        await run.wait()


# --- they begin in order ----------------------------------------------------------------------------------------------

PLAIN_PROGRAM = """
import trio
from minirun import FunctionTool, InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm, call

async def main():
    for round in range(12):
        begun = []
        def tool(name):
            async def work():
                begun.append(name)
                await trio.sleep(0)
            return FunctionTool(work, name=name, description=name)
        async def hook(tool, args, tool_context):
            await trio.sleep(0)
        names = ["create", "share", "send"]
        agent = LlmAgent(
            name="a", model=ScriptedLlm([[call(name) for name in names], "done"]), tools=[*map(tool, names)],
            before_tool_callback=hook if round % 2 else None,
        )
        runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
        assert begun == names, begun

trio.run(main)
print("in order")
"""


def test_calls_begin_in_order_in_a_plain_program() -> None:
    """The tools of one answer begin in the order of their calls, hooks or not, where trio shuffles its tasks."""
    made = subprocess.run([sys.executable, "-c", PLAIN_PROGRAM], capture_output=True, text=True, env=dict(os.environ))
    assert (made.stdout, made.stderr) == ("in order\n", "")


async def test_a_hook_that_takes_long_keeps_later_calls_from_overtaking(autojump_clock: trio.testing.MockClock) -> None:
    """Hooks run side by side; the tool of a later call waits until that of the earlier one has begun."""
    diary = Diary()

    async def hook(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> None:
        diary.lines.append(f"hook {tool.name}")
        await trio.sleep({"a": 5, "b": 3, "c": 0}[tool.name])

    tools = [diary.tool(name, takes_s=2) for name in "abc"]
    agent = LlmAgent(name="x", model=turn_of("a", "b", "c"), tools=tools, before_tool_callback=hook)
    started = trio.current_time()
    await run_to_end(runner_for(agent))
    assert diary.lines[:6] == ["hook a", "hook b", "hook c", "a+", "b+", "c+"]
    assert trio.current_time() - started == pytest.approx(7)


async def test_who_does_not_begin_holds_nobody_up(autojump_clock: trio.testing.MockClock) -> None:
    """A call that a hook answers, that is not allowed, asks first, or stands in line lets later ones begin."""
    diary = Diary()

    def answer(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> str | None:
        return "answered" if tool.name == "hooked" else None

    def broken() -> bool:
        raise ValueError("no")

    tools = [
        diary.tool("hooked"),
        diary.tool("refused", require_confirmation=broken),
        diary.tool("asks", require_confirmation=True),
        diary.tool("line", takes_s=4, max_concurrency=1),
        diary.tool("last", takes_s=2),
    ]
    model = turn_of("hooked", "refused", "asks", "line", "line", "last")
    runner = runner_for(LlmAgent(name="x", model=model, tools=tools, before_tool_callback=answer))
    _, run = await run_to_end(runner)
    assert diary.lines == ["line+", "last+", "last-", "line-", "line+", "line-"]
    assert run.status == "paused"


async def test_a_failed_attempt_counts_as_a_beginning(autojump_clock: trio.testing.MockClock) -> None:
    """Nobody waits for another attempt of an earlier call, nor does that wait for anybody again."""
    diary, tries = Diary(), [0]

    async def flaky() -> str:
        tries[0] += 1
        diary.lines.append(f"flaky {tries[0]}")
        if tries[0] < 3:
            raise OSError("not now")
        return "ok"

    retry = RetryConfig(max_attempts=3, initial_delay=10)
    tools = [diary.tool("a"), FunctionTool(flaky, retry=retry, max_concurrency=1), diary.tool("b", takes_s=2)]
    await run_to_end(runner_for(LlmAgent(name="x", model=turn_of("a", "flaky", "b"), tools=tools)))
    assert diary.lines == ["a+", "flaky 1", "b+", "a-", "b-", "flaky 2", "flaky 3"]


async def test_who_has_stood_in_line_waits_for_nobody_again(autojump_clock: trio.testing.MockClock) -> None:
    """A call that was passed over, and fails, is made again although an earlier one has not begun yet."""
    diary, tries = Diary(), [0]

    async def flaky() -> str:
        tries[0] += 1
        diary.lines.append(f"flaky {tries[0]}")
        await trio.sleep(1)
        if tries[0] == 2:
            raise OSError("not now")
        return "ok"

    async def hook(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> None:
        if tool.name == "held":
            await trio.sleep(50)

    retry = RetryConfig(max_attempts=3, initial_delay=1)
    tools = [FunctionTool(flaky, retry=retry, max_concurrency=1), diary.tool("held")]
    model = turn_of("flaky", "held", "flaky")
    runner = runner_for(LlmAgent(name="x", model=model, tools=tools, before_tool_callback=hook))
    _, run = await run_to_end(runner)
    assert diary.lines == ["flaky 1", "flaky 2", "flaky 3", "held+", "held-"]
    assert run.status == "completed"


def test_the_simulation_keeps_to_the_order_and_explores_the_rest() -> None:
    """Under every schedule calls begin in order; what they do then comes in all the orders that are left."""
    orders: set[tuple[str, ...]] = set()

    async def scenario(world: World) -> None:
        lines: list[str] = []

        def tool(name: str) -> FunctionTool:
            async def work(tool_context: ToolContext) -> None:
                lines.append(f"{name}+")
                await tool_context.emit(Event(message=name))
                lines.append(f"{name}-")

            return FunctionTool(work, name=name, description=name)

        names = ("a", "b", "c")
        model = ScriptedLlm([[call(name) for name in names], "done"])
        runner = world.runner(lambda: LlmAgent(name="x", model=model, tools=[*map(tool, names)]))
        await world.say(runner, "ada", "go")
        orders.add(tuple(lines))

    for seed in range(60):
        outcome = simulate(scenario, SeededChoices(seed), storage="memory")
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        if seed > 10 and len({tuple(line for line in lines if line.endswith("-")) for lines in orders}) > 1:
            break
    assert {tuple(line for line in lines if line.endswith("+")) for lines in orders} == {("a+", "b+", "c+")}
    assert len({tuple(line for line in lines if line.endswith("-")) for lines in orders}) > 1


# --- one after the other ----------------------------------------------------------------------------------------------


class Cabinet(BaseToolset):
    """A toolset with the given tools."""

    def __init__(self, *tools: BaseTool, **options: Any) -> None:
        super().__init__(**options)
        self._tools = tools

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> Sequence[BaseTool]:
        """Those that it was given."""
        return self._tools


def by_agent(diary: Diary) -> LlmAgent:
    """An agent whose calls are all made alone."""
    tools = [diary.tool(name) for name in "abc"]
    return LlmAgent(name="x", model=turn_of("a", "b", "c"), tools=tools, parallel_tool_calls=False)


def by_toolset(diary: Diary) -> LlmAgent:
    """A toolset whose tools are made alone."""
    tools = [diary.tool(name) for name in "abc"]
    return LlmAgent(name="x", model=turn_of("a", "b", "c"), tools=[Cabinet(*tools, sequential=True)])


def by_prefixed_toolset(diary: Diary) -> LlmAgent:
    """A toolset with a prefix, whose tools say themselves that they are made alone."""
    cabinet = Cabinet(*(diary.tool(name, sequential=True) for name in "abc"), tool_name_prefix="t")
    return LlmAgent(name="x", model=turn_of("t_a", "t_b", "t_c"), tools=[cabinet])


@pytest.mark.parametrize("made", [by_agent, by_toolset, by_prefixed_toolset])
async def test_calls_are_made_alone(
    made: Callable[[Diary], LlmAgent], autojump_clock: trio.testing.MockClock
) -> None:
    """An agent, a toolset and a tool can ask for it: each call ends before the next one begins."""
    diary = Diary()
    runner = runner_for(made(diary))
    await run_to_end(runner)
    assert diary.lines == ["a+", "a-", "b+", "b-", "c+", "c-"]
    assert [len(group) for group in answered(await stored_events(runner))] == [1, 1, 1]


async def test_one_sequential_tool_parts_the_turn(autojump_clock: trio.testing.MockClock) -> None:
    """It waits for all calls before it, and all after it wait for it; the others run side by side."""
    diary = Diary()
    tools = [*(diary.tool(name) for name in "abde"), diary.tool("c", sequential=True)]
    runner = runner_for(LlmAgent(name="x", model=turn_of("a", "b", "c", "d", "e"), tools=tools))
    await run_to_end(runner)
    assert [sorted(diary.lines[start : start + 2]) for start in range(0, 10, 2)] == [
        ["a+", "b+"], ["a-", "b-"], ["c+", "c-"], ["d+", "e+"], ["d-", "e-"],
    ]  # fmt: skip
    groups = [[name for name, _ in group] for group in answered(await stored_events(runner))]
    assert groups == [["a", "b"], ["c"], ["d", "e"]]


async def test_a_call_sees_what_those_before_it_have_written() -> None:
    """What a call has written is stored when the next one is made, and no conflict is named."""

    def create(tool_context: ToolContext) -> str:
        tool_context.state["file"] = "a.txt"
        return "created"

    def share(tool_context: ToolContext) -> str:
        shared = f"shared {tool_context.state['file']}"
        tool_context.state["file"] = "b.txt"
        return shared

    tools = [FunctionTool(create), FunctionTool(share, sequential=True)]
    runner = runner_for(LlmAgent(name="x", model=turn_of("create", "share"), tools=tools))
    events, run = await run_to_end(runner)
    assert answered(events) == [[("create", "created")], [("share", "shared a.txt")]]
    assert run.session.state["file"] == "b.txt"
    assert not any(event.actions.state_conflicts for event in events)


async def test_only_a_turn_with_several_calls_has_an_order() -> None:
    """The event of one call says nothing of it, nor does that of calls that nobody wants alone."""
    diary = Diary()
    tools = [diary.tool("a", takes_s=0), diary.tool("c", takes_s=0, sequential=True)]
    model = steps(call("c"), [call("a"), call("a")], [call("a"), call("c")], "done")
    events, _ = await run_to_end(runner_for(LlmAgent(name="x", model=model, tools=tools)))
    noted = [(len(event.actions.replay.alone), event.actions.replay.at_work) for event in events]
    made = [note for note, event in zip(noted, events, strict=True) if event.get_function_calls()]
    assert made == [(0, None), (0, None), (1, None)]


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_order_is_asked_for_by_a_bool(value: Any) -> None:
    """What is no bool is refused, by tools, toolsets and agents."""
    with pytest.raises(ConfigurationError, match="sequential"):
        FunctionTool(lambda: 1, name="x", description="x", sequential=value)
    with pytest.raises(ConfigurationError, match="sequential"):
        Cabinet(sequential=value)
    with pytest.raises(ConfigurationError, match=r"LlmAgent\.parallel_tool_calls: expected True or False"):
        LlmAgent(name="x", parallel_tool_calls=value)


# --- that wait --------------------------------------------------------------------------------------------------------


def confirmed(diary: Diary) -> FunctionTool:
    """A tool that somebody has to allow."""
    return diary.tool("c", sequential=True, require_confirmation=True)


def long_running(diary: Diary) -> FunctionTool:
    """A tool whose result comes later."""

    async def order() -> None:
        diary.lines += ["c+", "c-"]

    return LongRunningFunctionTool(order, name="c", description="c", sequential=True)


@pytest.mark.parametrize("made", [confirmed, long_running])
async def test_what_stands_after_a_call_that_waits_begins_when_it_is_answered(
    made: Callable[[Diary], FunctionTool], autojump_clock: trio.testing.MockClock
) -> None:
    """The turn pauses with the later calls not begun; a new process begins them after the answer, and each once."""
    diary = Diary()

    def agent() -> LlmAgent:
        tools = [diary.tool("a"), made(diary), diary.tool("d"), diary.tool("e")]
        return LlmAgent(name="x", model=turn_of("a", "c", "d", "e"), tools=tools)

    runner = runner_of(agent())
    _, run = await run_to_end(runner)
    assert run.status == "paused"
    assert "d+" not in diary.lines
    [question] = run.pending
    runner = runner_of(agent(), runner.session_service)
    await resumed(runner, question, True)
    groups = [[name for name, _ in group] for group in answered(await stored_events(runner))]
    assert [group for group in groups if group != ["adk_request_confirmation"]] == [["a"], ["c"], ["d", "e"]]
    begun = [line for line in diary.lines if line.endswith("+")]
    assert begun == ["a+", "c+", "d+", "e+"]
    assert diary.lines.index("c-") < diary.lines.index("d+")
    assert (await stored_events(runner))[-1].text == "done"


async def test_every_later_call_waits_for_its_own_question(autojump_clock: trio.testing.MockClock) -> None:
    """Two calls that are asked about, one after the other: the second question comes after the first is answered."""
    diary = Diary()

    def agent() -> LlmAgent:
        tools = [diary.tool(name, require_confirmation=True) for name in "ab"]
        return LlmAgent(name="x", model=turn_of("a", "b"), tools=tools, parallel_tool_calls=False)

    runner = runner_of(agent())
    _, run = await run_to_end(runner)
    asked = []
    for answer in (False, True):
        [question] = run.pending
        asked.append(question.tool)
        async with runner_of(agent(), runner.session_service).run_async(
            **PLACE, new_message=question.reply(answer)
        ) as run:
            await run.wait()
    assert (asked, diary.lines, run.status) == (["a", "b"], ["b+", "b-"], "completed")


async def test_a_new_message_settles_calls_that_have_not_begun(autojump_clock: trio.testing.MockClock) -> None:
    """They stay open as long as what they wait for; once the answer has come, nothing is left open."""
    diary = Diary()

    def agent() -> LlmAgent:
        model = ScriptedLlm(
            lambda request: [call("c"), call("d")] if len(request.contents) == 1 else "said"
        )
        return LlmAgent(name="x", model=model, tools=[long_running(diary), diary.tool("d")])

    runner = runner_of(agent())
    _, run = await run_to_end(runner)
    [question] = run.pending
    _, other = await run_to_end(runner_of(agent(), runner.session_service), "something else")
    assert other.status == "completed"
    assert diary.lines == ["c+", "c-"]
    await resumed(runner_of(agent(), runner.session_service), question, 1)
    assert diary.lines == ["c+", "c-", "d+", "d-"]


# --- that are cut off -------------------------------------------------------------------------------------------------


async def test_a_turn_that_is_cut_off_goes_on_where_it_was(autojump_clock: trio.testing.MockClock) -> None:
    """After each event the process dies: what is answered is kept, one call is doubtful at most, the rest is made."""
    whole = runner_of(by_agent(Diary()))
    await run_to_end(whole)
    log = await stored_events(whole)
    assert len(log) == 6
    for count in range(2, 6):
        diary = Diary()
        runner = runner_of(by_agent(diary), await cut_after(log, count))
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
        results = [one for group in answered(await stored_events(runner)) for one in group]
        doubtful = [(name, "outcome_unknown") for name in "abc"[count - 2 : count - 1]]
        made = [(name, name) for name in "abc"[count - 1 :]]
        assert results == [(name, name) for name in "abc"[: count - 2]] + doubtful + made
        assert diary.lines == [f"{name}{sign}" for name, _ in made for sign in "+-"]


async def test_a_call_that_begins_after_an_answer_is_doubtful_after_a_crash(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever goes on with an answer begins the later calls; if that process dies, nobody knows whether they took."""
    diary = Diary()

    def agent() -> LlmAgent:
        tools = [long_running(diary), diary.tool("d"), diary.tool("e", sequential=True)]
        return LlmAgent(name="x", model=turn_of("c", "d", "e"), tools=tools)

    runner = runner_of(agent())
    _, run = await run_to_end(runner)
    await resumed(runner, run.pending[0], 1)
    log = await stored_events(runner)
    answer = next(place for place, event in enumerate(log) if event.author == "user" and event.get_function_responses())
    diary.lines.clear()
    again = runner_of(agent(), await cut_after(log, answer + 1))
    async with again.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
        await run.wait()
    assert answered(await stored_events(again)) == [[("c", 1)], [("d", "outcome_unknown")], [("e", "e")]]
    assert diary.lines == ["e+", "e-"]


@pytest.mark.parametrize("failing", [False, True])
async def test_later_calls_of_a_turn_that_is_stopped_are_answered(
    failing: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """A caller that leaves, or a failure that ends the run: what has not begun is answered as cancelled."""
    diary = Diary()

    async def work() -> None:
        if failing:
            raise FatalError("enough")
        await trio.sleep_forever()

    tools = [diary.tool("a"), FunctionTool(work, name="b", description="b", sequential=True), diary.tool("d")]
    runner = runner_for(LlmAgent(name="x", model=turn_of("a", "b", "d", "d"), tools=tools))
    with trio.move_on_after(100):
        try:
            await run_to_end(runner)
        except FatalError:
            assert failing
    log = await stored_events(runner)
    stopped = "FatalError" if failing else "cancelled"
    assert diary.lines == ["a+", "a-"]
    results = [one for group in answered(log) for one in group]
    assert results[0] == ("a", "a")
    assert [name for name, _ in results] == ["a", "b", "d", "d"]
    assert results[1][1] in (stopped, "cancelled")
    assert {kind for _, kind in results[2:]} == {"cancelled"}


async def test_an_agent_that_ends_its_invocation_begins_nothing_more() -> None:
    """A call that ends the invocation is answered, and so are the later ones, as cancelled."""

    def stop(tool_context: ToolContext) -> str:
        tool_context.end_invocation = True
        return "stopped"

    diary = Diary()
    tools = [FunctionTool(stop, sequential=True, run_in="loop"), diary.tool("d")]
    events, _ = await run_to_end(runner_for(LlmAgent(name="x", model=turn_of("stop", "d"), tools=tools)))
    assert answered(events) == [[("stop", "stopped")], [("d", "cancelled")]]
    assert diary.lines == []


# --- what a turn with an order comes to -------------------------------------------------------------------------------


async def test_a_result_that_is_shown_ends_the_turn_only_if_all_are() -> None:
    """The model is not asked again if every call of the turn skips the summary, in whichever group it is."""

    def shown(tool_context: ToolContext) -> str:
        tool_context.actions.skip_summarization = True
        return "shown"

    def told() -> str:
        return "told"

    tools = [FunctionTool(shown), FunctionTool(told)]
    for names, last in ((("shown", "shown"), ""), (("shown", "told"), "done"), (("told", "shown"), "done")):
        agent = LlmAgent(name="x", model=turn_of(*names), tools=tools, parallel_tool_calls=False)
        events, _ = await run_to_end(runner_for(agent))
        assert events[-1].text == last


async def test_the_answer_of_an_agent_with_a_schema_may_stand_in_any_group() -> None:
    """`set_model_response` counts, whichever calls come after it."""
    diary = Diary()
    model = ScriptedLlm([[call("set_model_response", result=[1]), call("a")], "never"])
    agent = LlmAgent(
        name="x", model=model, tools=[diary.tool("a", takes_s=0)], output_schema=list[int], parallel_tool_calls=False
    )
    events, _ = await run_to_end(runner_for(agent))
    assert (events[-1].output, diary.lines) == ([1], ["a+", "a-"])


async def test_only_the_first_of_two_handovers_counts() -> None:
    """A later call that would hand over, too, is answered with an error; what comes after it is made all the same."""
    diary = Diary()
    subs = [LlmAgent(name=name, model=ScriptedLlm([f"{name} here"])) for name in ("p", "q")]
    calls = [call("transfer_to_agent", agent_name="p"), call("a"), call("transfer_to_agent", agent_name="q")]
    model = ScriptedLlm([calls])
    tools = [diary.tool("a", takes_s=0)]
    agent = LlmAgent(name="x", model=model, tools=tools, sub_agents=subs, parallel_tool_calls=False)
    events, _ = await run_to_end(runner_for(agent))
    assert events[-1].text == "p here"
    assert [group[0][1] for group in answered(events)][2] == "InvalidEventError"
    assert diary.lines == ["a+", "a-"]


async def test_a_budget_counts_the_whole_turn_before_it_begins() -> None:
    """A turn with more calls than are left is not begun in part."""
    diary = Diary()
    with pytest.raises(FatalError, match="max_tool_calls"):
        await run_to_end(runner_for(by_agent(diary)), run_config=RunConfig(max_tool_calls=2))
    assert diary.lines == []


async def test_agents_inside_of_calls_are_made_alone_and_go_on(autojump_clock: trio.testing.MockClock) -> None:
    """Agents used as tools, one after the other, that both ask: a new process comes to the second after the first."""
    asked: list[str] = []

    def asks(name: str) -> BaseAgent:
        async def logic(ctx: InvocationContext) -> None:
            asked.append(name)
            await ctx.emit(Event(message=f"{name}: {await ctx.request_input(name)}"))

        return Logic(name=name, description=name, logic=logic)

    def agent() -> LlmAgent:
        model = steps([call("p", request="?"), call("q", request="?")], "done")
        tools = [AgentTool(asks("p")), AgentTool(asks("q"))]
        return LlmAgent(name="x", model=model, tools=tools, parallel_tool_calls=False)

    runner = runner_of(agent())
    _, run = await run_to_end(runner)
    for answer in (1, 2):
        [question] = run.pending
        async with runner_of(agent(), runner.session_service).run_async(
            **PLACE, new_message=question.reply(answer)
        ) as run:
            await run.wait()
    assert (asked, run.status) == (["p", "p", "q", "q"], "completed")
    results = [one for group in answered(await stored_events(runner)) for one in group]
    assert [one for one in results if one[0] in "pq"] == [("p", "p: 1"), ("q", "q: 2")]


# --- what many calls cost ---------------------------------------------------------------------------------------------


async def calls_passed(count: int, **options: Any) -> int:
    """How many functions are called for a turn with so many calls."""

    async def work() -> int:
        return 1

    calls = [Part(function_call=FunctionCall(name="work", args={})) for _ in range(count)]
    model = ScriptedLlm([Content(role="model", parts=calls), "done"])
    agent = LlmAgent(name="x", model=model, tools=[FunctionTool(work, **options)])
    runner, passed = runner_for(agent), 0

    def note(frame: FrameType, what: str, argument: object) -> None:
        nonlocal passed
        passed += what == "call"

    sys.setprofile(note)
    try:
        async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(max_tool_calls=0)) as run:
            await run.wait()
    finally:
        sys.setprofile(None)
    return passed


@pytest.mark.parametrize("options", [{}, {"sequential": True}, {"max_concurrency": 3}, {"require_confirmation": True}])
async def test_the_cost_of_a_turn_grows_with_its_calls(options: dict[str, Any]) -> None:
    """Four times as many calls in one answer cost four times as much."""
    await calls_passed(5, **options)
    few, many = await calls_passed(100, **options), await calls_passed(400, **options)
    assert many < few * 4.4


# --- and wait ---------------------------------------------------------------------------------------------------------


async def test_later_calls_wait_also_where_the_turn_is_stopped(autojump_clock: trio.testing.MockClock) -> None:
    """A caller leaves while one call waits and another is at work: what comes after them begins after the answer."""
    diary = Diary()

    def agent() -> LlmAgent:
        async def order() -> str:
            return "ordered"

        tools = [LongRunningFunctionTool(order), diary.tool("w", takes_s=100), diary.tool("s", sequential=True)]
        return LlmAgent(name="x", model=turn_of("order", "w", "s"), tools=tools)

    runner = runner_of(agent())
    with trio.move_on_after(5):
        await run_to_end(runner)
    log = await stored_events(runner)
    assert answered(log) == [[("w", "cancelled")]]
    [question] = await runner.session_service.list_pending(app_name="app")
    await resumed(runner_of(agent(), runner.session_service), question, "red")
    assert answered(await stored_events(runner))[1:] == [[("order", "red")], [("s", "s")]]
    assert diary.lines == ["w+", "s+", "s-"]


async def test_later_calls_do_not_wait_for_a_call_that_has_failed_after_all() -> None:
    """What a long-running tool has written does not fit: its call is answered, and nothing is suspended."""
    diary = Diary()

    def text(tool_context: ToolContext) -> None:
        tool_context.state.extend("k", [2])

    def number(tool_context: ToolContext) -> None:
        tool_context.state["k"] = 1

    tools = [FunctionTool(number), LongRunningFunctionTool(text), diary.tool("s", takes_s=0, sequential=True)]
    runner = runner_for(LlmAgent(name="x", model=turn_of("number", "text", "s"), tools=tools))
    _, run = await run_to_end(runner)
    log = await stored_events(runner)
    assert [name for group in answered(log) for name, _ in group] == ["number", "text", "s"]
    assert (str(run.status), [event for event in log if event.actions.suspended_calls]) == ("completed", [])


async def test_a_replay_does_not_wait_for_what_is_inside_of_a_call_that_has_yet_to_begin(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A hook of the first call does something new, and the second call, with an escalation inside, waits for it."""
    steps_taken: list[str] = []

    async def look_up() -> str:
        steps_taken.append("looked up")
        return "found"

    async def hook(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> None:
        if tool.name == "p" and tool_context.is_resumed:
            await tool_context.step("look up", look_up)

    async def escalate(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="enough", actions=EventActions(escalate=True)))

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"asked, and got {await ctx.request_input('?')}"))

    def agent(diary: Diary) -> LlmAgent:
        loop = LoopAgent(name="loop", sub_agents=[Logic(name="critic", logic=escalate)])
        inside = SequentialAgent(name="q", description="d", sub_agents=[loop, Logic(name="asker", logic=ask)])
        model = ScriptedLlm(lambda request: [call("p"), call("q", request="?")])
        tools = [diary.tool("p", require_confirmation=True), AgentTool(inside)]
        return LlmAgent(name="x", model=model, tools=tools, before_tool_callback=hook)

    diary = Diary()
    runner = runner_of(agent(diary))
    _, run = await run_to_end(runner)
    confirmation = next(question for question in run.pending if question.kind == "confirmation")
    again = runner_of(agent(diary), runner.session_service)
    async with again.run_async(**PLACE, new_message=confirmation.reply(True)) as run:
        await run.wait()
    assert (steps_taken, diary.lines) == (["looked up"], ["p+", "p-"])
    assert [question.kind for question in run.pending] == ["input"]
