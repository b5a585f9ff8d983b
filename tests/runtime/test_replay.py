"""
Agents are run again to go on: they read what they have read, do nothing twice, and whoever differs is told.

Each test lets an invocation wait or cuts it off, and goes on with it in a runner of its own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun.errors import (
    InvalidEventError,
    InvalidMessageError,
    LlmCallsLimitExceededError,
    ReplayError,
    StorageRolledBackError,
    TokensLimitExceededError,
    ToolCallsLimitExceededError,
)
from minirun.events import EventActions
from minirun.flows._record import recorded_reads
from minirun.models import LlmRequest, LlmResponse
from minirun.plugins import BasePlugin
from minirun.runtime import Run
from minirun.sessions import (
    BaseSessionService,
    InMemorySessionService,
    PendingCall,
    SessionWriter,
    SqliteSessionService,
)
from minirun.sessions._reads import Reads
from minirun.sessions._state import MISSING, writes_of
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool, RetryConfig
from minirun.types import Content, FunctionCall, FunctionResponse, Part, UsageMetadata

from ..helpers import Logic
from ..resuming import steps
from .test_resume import PLACE, cut_after, log_of, runner_of

Act = Callable[[InvocationContext], Awaitable[None]]


def one(name: str, logic: Act) -> BaseAgent:
    """An agent with this logic."""
    return Logic(name=name, logic=logic)


async def run_to_its_end(runner: Runner, **what: Any) -> Run:
    async with runner.run_async(**PLACE, **what) as run:
        await run.wait()
    return run


async def waits(runner: Runner, **options: Any) -> PendingCall:
    """Run until something waits; return the question."""
    run = await run_to_its_end(runner, new_message="go", **options)
    assert run.status == "paused"
    return run.pending[0]


async def statuses(service: BaseSessionService) -> list[str]:
    return [one.status for one in await service.list_invocations(app_name="app")]


def texts(log: Sequence[Event]) -> list[str]:
    return [event.text for event in log if event.text and event.author != "user"]


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_branches_read_what_they_have_read() -> None:
    """Two agents side by side take steps by what they read; each reads that again, although both have written since."""

    async def count(ctx: InvocationContext) -> None:
        async def same(value: int) -> int:
            return value

        for _ in range(3):
            seen = ctx.state.get("a", 0) + ctx.state.get("b", 0)
            await ctx.step("saw", same, seen)
            ctx.state[ctx.agent_name] = ctx.state.get(ctx.agent_name, 0) + 1
            await ctx.emit(Event(message=f"{ctx.agent_name} {seen}"))
        await ctx.request_input("go on?")
        await ctx.emit(Event(message=f"{ctx.agent_name} ends"))

    runner = runner_of(ParallelAgent(name="both", sub_agents=[one("a", count), one("b", count)]))
    run = await run_to_its_end(runner, new_message="go")
    before = texts(await log_of(runner))
    for question in run.pending:
        run = await run_to_its_end(runner, new_message=question.reply("yes"))
    assert run.status == "completed"
    after = texts(await log_of(runner))
    assert (after[:6], sorted(after[6:])) == (before, ["a ends", "b ends"])


async def test_what_others_have_changed_meanwhile_was_not_read_then() -> None:
    """Another session has changed the user's state, and a message the session's; then the next read shows it."""
    read: list[tuple[Any, ...]] = []

    async def look(ctx: InvocationContext) -> None:
        seen = [ctx.state.get("user:plan"), "k" in ctx.state, sorted(key for key in ctx.state if key != "user:later")]
        read.append(tuple(seen))
        ctx.state["user:plan"] = "mine"
        await ctx.request_input(f"with {seen}?")
        read.append((ctx.state["user:plan"], ctx.state.get("k"), len(ctx.session.events) > 2))

    runner = runner_of(one("looks", look))
    await runner.session_service.create_session(app_name="app", **PLACE, state={"user:plan": "free"})
    question = await waits(runner)

    async def interfere(ctx: InvocationContext) -> None:
        ctx.state["user:plan"] = "pro"
        ctx.state["user:later"] = 1
        if ctx.session.id == "s":
            ctx.state["k"] = 2

    for session in ("other", "s"):
        other = runner_of(one("other", interfere), runner.session_service)
        async with other.run_async(user_id="u", session_id=session, new_message="change") as run:
            await run.wait()
    await run_to_its_end(runner, new_message=question.reply("ok"))
    first = ("free", False, ["user:plan"])
    assert read == [first, first, ("pro", 2, True)]


async def test_the_history_is_as_long_as_it_was() -> None:
    """An agent that reads the events of the session takes the same way again, whatever was said since."""
    lengths: list[int] = []

    async def count(ctx: InvocationContext) -> None:
        for _ in range(2):
            lengths.append(len(ctx.session.events))
            assert [event.seq for event in ctx.session.events] == list(range(1, lengths[-1] + 1))
            await ctx.request_input(f"after {lengths[-1]}?")

    runner = runner_of(one("counts", count))
    question = await waits(runner)
    run = await run_to_its_end(runner, new_message=question.reply(1))
    await run_to_its_end(runner, new_message=run.pending[0].reply(2))
    assert lengths == [1, 1, 3, 1, 3]


async def test_a_tool_reads_again_what_its_siblings_had_not_written_yet() -> None:
    """A tool that waits is called again after the turn's other tool was answered, and reads what it has read before."""
    read: list[Any] = []

    def write(tool_context: ToolContext) -> str:
        """Write."""
        tool_context.state["k"] = "written"
        return "ok"

    async def ask(tool_context: ToolContext) -> Any:
        """Ask."""
        read.append(tool_context.state.get("k"))
        return await tool_context.request_input("?")

    model = steps([call("write"), call("ask")], "done")
    runner = runner_of(LlmAgent(name="a", model=model, tools=[write, ask]))
    await run_to_its_end(runner, new_message=(await waits(runner)).reply("yes"))
    assert read == [None, None]


async def test_logic_that_never_reads_keeps_one_write_of_each_key() -> None:
    """However often an agent writes a key that it does not read, only the last write of it is kept for its reads."""
    kept: list[int] = []

    async def write(ctx: InvocationContext) -> None:
        for round in range(20):
            await ctx.emit(Event(actions=EventActions(state_delta={"a": round, "b": round})))
        assert ctx._reads is not None
        kept.append(len(ctx._reads.written))
        assert (ctx.state["a"], len(ctx._reads.written)) == (19, 0)

    await run_to_its_end(runner_of(one("writes", write)), new_message="go")
    assert kept == [2]


async def test_temp_state_is_not_recorded() -> None:
    """What is read of `temp:` state is in no event: it is never stored."""

    async def look(ctx: InvocationContext) -> None:
        ctx.state["temp:secret"] = "hush"
        await ctx.emit(Event(message=f"{ctx.state['temp:secret']} {sorted(ctx.state)}"[:0] or "read"))

    runner = runner_of(one("looks", look))
    await run_to_its_end(runner, new_message="go", state_delta={"temp:token": "t-1"})
    assert all("hush" not in repr(event) and "t-1" not in repr(event) for event in await log_of(runner))


VALUES: list[Any] = [MISSING, 0, 1, True, 1.0, -0.0, [1], [True]]
"""Some of them are equal, and none is another one as JSON."""


@given(st.data())
def test_reads_are_served_as_they_were(data: st.DataObject) -> None:
    """Whatever is read and written between events, who reads again after a crash gets what it got before the last."""
    keys, state = ["a", "b"], dict[str, Any]()
    program = data.draw(st.lists(st.sampled_from(["read a", "read b", "event"]), max_size=20), label="program")
    reader, log, read = Reads("r", {}), list[Event](), list[Any]()
    recorded = 0
    for act in program:
        for key in data.draw(st.sets(st.sampled_from(keys)), label="others write"):
            state[key] = data.draw(st.sampled_from(VALUES), label=key)
        if act == "event":
            own = data.draw(st.dictionaries(st.sampled_from(keys), st.integers(0, 1)), label="writes")
            fresh = reader.unrecorded()
            reader.settle(fresh)
            reader.written.update(own)
            state.update(own)
            log.append(Event(actions=EventActions(state_delta=own, replay={"reads": {"r": fresh}})))
            recorded = len(read)
        else:
            key = act.removeprefix("read ")
            read.append(reader.value(key, state.get(key, MISSING)))
    again, events = Reads("r", recorded_reads(log).get("r", {})), iter(log)
    served: list[Any] = []
    for act in program:
        if act == "event":
            again.written.update(writes_of(next(events).actions))
        elif len(served) < recorded:
            served.append(again.value(act.removeprefix("read "), "now"))
    assert [repr(value) for value in served] == [repr(value) for value in read[:recorded]]


# --- doing otherwise --------------------------------------------------------------------------------------------------


async def test_who_does_otherwise_is_told_and_nothing_is_lost() -> None:
    """Another agent or step than before: ReplayError, and nothing is done; put right, the invocation goes on."""
    done: Counter[str] = Counter()

    def agent(name: str = "shop", step: str = "charge", first: str = "first") -> BaseAgent:
        async def charge() -> str:
            done["charge"] += 1
            return "paid"

        async def begin(ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="begun"))

        async def sell(ctx: InvocationContext) -> None:
            paid = await ctx.step(step, charge)
            await ctx.emit(Event(message=f"{paid} {await ctx.request_input('ship?')}"))

        return SequentialAgent(name="all", sub_agents=[one(first, begin), one(name, sell)])

    runner = runner_of(agent())
    service = runner.session_service
    reply: Any = (await waits(runner)).reply(True)
    what: dict[str, Any] = {"new_message": reply}
    for other in (agent(name="store"), agent(step="pay"), agent(first="one")):
        with pytest.raises(ReplayError, match="expected the agents to come to"):
            await run_to_its_end(runner_of(other, service), **what)
        what = {"invocation_id": (await service.list_invocations())[0].invocation_id}
        assert await statuses(service) == ["interrupted"]  # the answer is stored: nothing is waited for any more
    run = await run_to_its_end(runner_of(agent(), service), **what)
    assert (run.status, done["charge"], texts(await log_of(runner))) == ("completed", 1, ["begun", "paid True"])


async def test_an_agent_that_is_not_there_any_more_is_missed() -> None:
    """The agent that had taken over and waits was removed: the invocation goes on waiting for it."""

    def agent(*, whole: bool) -> BaseAgent:
        sub = LlmAgent(name="sub", model=steps(call("order"), "ordered"), tools=[LongRunningFunctionTool(order)])
        model = steps(call("transfer_to_agent", agent_name="sub"), "done")
        return LlmAgent(name="root", model=model, sub_agents=[sub] if whole else [])

    def order() -> str:
        """Order."""
        return "soon"

    runner = runner_of(agent(whole=True))
    question = await waits(runner)
    with pytest.raises(ReplayError, match="found the end of the invocation"):
        await run_to_its_end(runner_of(agent(whole=False), runner.session_service), new_message=question.reply(1))
    run = await run_to_its_end(runner, invocation_id=question.invocation_id)
    assert (run.status, texts(await log_of(runner))) == ("completed", ["ordered"])


async def test_a_replay_error_is_not_told_to_a_model() -> None:
    """A tool that takes another step than it has taken fails the run, not the call."""
    names = iter(["one", "two"])

    async def work(tool_context: ToolContext) -> str:
        """Work."""

        async def nothing(what: str) -> str:
            return what

        await tool_context.step("step", nothing, next(names))
        return str(await tool_context.request_input("?"))

    runner = runner_of(LlmAgent(name="a", model=steps(call("work"), "done"), tools=[work]))
    question = await waits(runner)
    with pytest.raises(ReplayError, match="other arguments"):
        await run_to_its_end(runner, new_message=question.reply(1))
    assert [event.text for event in await log_of(runner) if event.text] == ["go"]


async def test_what_fails_before_it_has_gone_on_ends_nothing() -> None:
    """A smaller budget than what is recorded, or a plugin that answers instead: what waits goes on waiting."""

    class Later(BasePlugin):
        async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content:
            return Content(parts=[Part(text="try later")])

    def order() -> str:
        """Order."""
        return "soon"

    def agent() -> BaseAgent:
        model = ScriptedLlm(
            lambda request: answers[sum(any(p.function_call for p in c.parts) for c in request.contents)]
        )
        return LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(order), FunctionTool(note)])

    def note() -> str:
        """Note."""
        return "noted"

    answers: list[Any] = [call("note"), [call("order"), call("order")], "done"]
    runner = runner_of(agent())
    service = runner.session_service
    question = await waits(runner)
    named = {"invocation_id": question.invocation_id}
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_its_end(runner, **named, run_config=RunConfig(max_llm_calls=1))
    assert await statuses(service) == ["paused"]
    polite = Runner(app=App(name="app", root_agent=agent(), plugins=[Later(name="later")]), session_service=service)
    run = await run_to_its_end(polite, **named)
    assert (run.status, len(run.pending), texts(await log_of(runner))) == ("paused", 2, ["try later"])
    for pending in run.pending:
        run = await run_to_its_end(runner, new_message=pending.reply("here"))
    assert (run.status, run.answer and run.answer.text) == ("completed", "done")


class Refusing(BasePlugin):
    """Answers, or raises, in the place of a resumed invocation, as often as it is told."""

    def __init__(self, *, times: int, how: str = "content") -> None:
        super().__init__("refusing")
        self.left, self.how, self.asked = times, how, 0

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        if not invocation_context.is_resumed:
            return None
        self.asked += 1
        if self.left == 0:
            return None
        self.left -= 1
        if self.how == "raise":
            raise ValueError("over budget")
        return Content(parts=[Part(text=f"over budget {self.left}" if self.how == "another" else "over budget")])


def refusing_runner(agent: BaseAgent, plugin: BasePlugin, service: BaseSessionService | None = None) -> Runner:
    """A runner as a new process would make it, of an app with this plugin."""
    service = InMemorySessionService() if service is None else service
    app = App(name="app", root_agent=agent, plugins=[plugin])
    return Runner(app=app, session_service=service, auto_create_session=True)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("kind", ["paused", "interrupted"])
async def test_content_in_the_place_of_a_resumed_invocation_is_stored_once(kind: str, store: str) -> None:
    """A second resume with the same content stores nothing; status and open requests stay, until one passes."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="begun"))
        if kind == "interrupted" and not ctx.is_resumed:
            ctx_left.set()
            await trio.sleep_forever()
        await ctx.request_input("?")

    ctx_left, plugin, lengths = trio.Event(), Refusing(times=3), []
    async with SqliteSessionService(":memory:") if store == "sqlite" else InMemorySessionService() as service:
        runner = refusing_runner(one("a", logic), plugin, service)
        scope = runner.run_async(**PLACE, new_message="go")
        async with scope.supervised(None) as run, trio.open_nursery() as nursery:
            nursery.start_soon(run.wait)
            if kind == "interrupted":
                await ctx_left.wait()
                nursery.cancel_scope.cancel()
        before = len(await log_of(runner))
        for _ in range(3):
            again = refusing_runner(one("a", logic), plugin, service)
            refused = await run_to_its_end(again, invocation_id=run.invocation_id)
            assert (refused.status, len(refused.pending)) == (kind, int(kind == "paused"))
            assert refused.answer is not None
            assert refused.answer.text == "over budget"
            assert await statuses(service) == [kind]
            lengths.append(len(await log_of(runner)) - before)
        assert lengths == [2, 2, 2]  # that somebody went on, and the content
        passed = await run_to_its_end(runner, invocation_id=run.invocation_id)
        assert (passed.status, plugin.asked, len(passed.pending)) == ("paused", 4, 1)


def paying() -> ScriptedLlm:
    """A model that calls once; what a plugin has said meanwhile does not change that."""

    def answer(request: LlmRequest) -> Any:
        is_paid = any(part.function_response for content in request.contents for part in content.parts)
        return "done" if is_paid else call("pay")

    return ScriptedLlm(answer)


@pytest.mark.parametrize("how", ["content", "another", "raise"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("asks", ["permission", "input"])
async def test_a_reply_to_what_a_plugin_does_not_let_go_on_is_kept(asks: str, times: int, how: str) -> None:
    """The call that was approved meanwhile is made by the next run that passes `before_run_callback`, and once."""
    made: list[str] = []

    async def pay(tool_context: ToolContext) -> str:
        """Pay."""
        if asks == "input":
            made.append(await tool_context.request_input("to whom?"))
        else:
            made.append("bob")
        return "paid"

    def runner(service: BaseSessionService | None, plugin: BasePlugin) -> Runner:
        tool = FunctionTool(pay, require_confirmation=asks == "permission")
        return refusing_runner(LlmAgent(name="a", model=paying(), tools=[tool]), plugin, service)

    plugin = Refusing(times=times, how=how)
    begun = runner(None, plugin)
    question = await waits(begun)
    message: dict[str, Any] = {"new_message": question.reply(True if asks == "permission" else "bob")}
    for _ in range(times):
        again = runner(begun.session_service, plugin)
        if how == "raise":
            with pytest.raises(ValueError, match="over budget"):
                await run_to_its_end(again, **message)
        else:
            assert (await run_to_its_end(again, **message)).status == "interrupted"
        assert (made, await statuses(begun.session_service)) == ([], ["interrupted"])
        message = {"invocation_id": question.invocation_id}
    run = await run_to_its_end(runner(begun.session_service, plugin), **message)
    assert (made, run.status, run.answer and run.answer.text) == (["bob"], "completed", "done")
    log = await log_of(begun)
    [response] = [each for event in log for each in event.get_function_responses() if each.name == "pay"]
    assert response.response == {"result": "paid"}


async def test_a_call_that_was_begun_after_a_refused_run_is_not_made_twice() -> None:
    """A run passes the plugin, makes the approved call and dies: the next one does not know what came of it."""
    made: list[str] = []

    async def pay() -> str:
        """Pay."""
        made.append("bob")
        return "paid"

    def agent() -> BaseAgent:
        return LlmAgent(name="a", model=paying(), tools=[FunctionTool(pay, require_confirmation=True)])

    plugin = Refusing(times=1)
    runner = refusing_runner(agent(), plugin)
    question = await waits(runner)
    await run_to_its_end(runner, new_message=question.reply(True))
    refused = len(await log_of(runner))
    await run_to_its_end(runner, invocation_id=question.invocation_id)
    assert made == ["bob"]
    cut = await cut_after(await log_of(runner), refused + 1)  # with the message of the second run, and nothing after it
    last = refusing_runner(agent(), plugin, cut)
    run = await run_to_its_end(last, invocation_id=question.invocation_id)
    assert (made, run.status) == (["bob"], "completed")
    [response] = [each for event in await log_of(last) for each in event.get_function_responses() if each.name == "pay"]
    assert response.response["error"]["type"] == "outcome_unknown"


# --- in the order in which it was done --------------------------------------------------------------------------------


async def test_what_was_ended_is_not_taken_up_again() -> None:
    """A branch that an escalation has ended, while its model was asked or it waited, is not gone on with."""
    asked: list[LlmRequest] = []
    is_asked, is_waiting = trio.Event(), trio.Event()

    class Slow(ScriptedLlm):
        async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> Any:
            asked.append(request)
            is_asked.set()
            await trio.sleep_forever()
            yield LlmResponse()

    async def end(ctx: InvocationContext) -> None:
        await is_asked.wait()
        await is_waiting.wait()
        for number in range(4):
            await ctx.emit(Event(message=f"a {number}"))
        await ctx.emit(Event(message="over", actions=EventActions(escalate=True)))

    async def ask(ctx: InvocationContext) -> None:
        is_waiting.set()
        await ctx.emit(Event(message=f"b got {await ctx.request_input('b?')}"))

    async def last(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"last got {await ctx.request_input('last?')}"))

    slow = LlmAgent(name="slow", model=Slow([]))
    sides = ParallelAgent(name="sides", sub_agents=[one("a", end), one("b", ask), slow])
    agent = SequentialAgent(name="all", sub_agents=[LoopAgent(name="loop", sub_agents=[sides]), one("last", last)])
    runner = runner_of(agent)
    run = await run_to_its_end(runner, new_message="go")
    assert [question.hint for question in run.pending] == ["last?"]
    withdrawn = next(e for e in await log_of(runner) if e.long_running_tool_ids and e.author == "b")
    stale = next(iter(run.pending))
    with pytest.raises(InvalidMessageError, match="answered already"):
        await run_to_its_end(runner, new_message=_reply_to(withdrawn))
    run = await run_to_its_end(runner, new_message=stale.reply(1))
    assert (run.status, texts(await log_of(runner))[4:]) == ("completed", ["over", "last got 1"])
    assert len(asked) == 1


def _reply_to(event: Event) -> Content:
    [made] = event.get_function_calls()
    return Content(parts=[Part(function_response=FunctionResponse(id=made.id, name=made.name, response={"result": 1}))])


async def test_what_waits_inside_of_a_call_that_is_answered_is_withdrawn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An agent as a tool has asked, and its call has run out of time: nobody waits for the answer any more."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    async def dawdle(ctx: InvocationContext) -> None:
        await trio.sleep(60)

    inner = ParallelAgent(name="inner", sub_agents=[one("asks", ask), one("dawdles", dawdle)])
    agent = LlmAgent(
        name="root", model=steps(call("inner", request="x"), "done"), tools=[AgentTool(inner, timeout_s=1)]
    )
    runner = runner_of(agent)
    run = await run_to_its_end(runner, new_message="go")
    assert (run.status, run.pending) == ("completed", [])
    answered = [one.name for event in await log_of(runner) for one in event.get_function_responses()]
    assert answered == ["adk_request_input", "inner"]


async def test_another_attempt_takes_the_same_steps(autojump_clock: trio.testing.MockClock) -> None:
    """A tool that is tried again after it has failed charges once, asks once, and each answer comes to its question."""
    done: Counter[str] = Counter()

    async def charge() -> str:
        done["charge"] += 1
        return "paid"

    async def buy(tool_context: ToolContext) -> str:
        """Buy."""
        done["attempt"] += 1
        paid = await tool_context.step("charge", charge)
        allowed = await tool_context.request_input("really?")
        if done["attempt"] < 3:
            raise OSError("the shop is closed")
        return f"{paid} {allowed}"

    tool = FunctionTool(buy, retry=RetryConfig(initial_delay=1.0))
    runner = runner_of(LlmAgent(name="a", model=steps(call("buy"), "done"), tools=[tool]))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply("yes"))
    assert (run.status, done) == ("completed", {"charge": 1, "attempt": 3})
    [answer] = [one for event in await log_of(runner) for one in event.get_function_responses() if one.name == "buy"]
    assert answer.response == {"result": "paid yes"}


async def test_hooks_are_asked_once() -> None:
    """Hooks around agents, before and beside one that waits, are not asked again; nor is what was shown shown again."""
    asked: list[str] = []

    def hook(name: str) -> Any:
        def note(callback_context: Any) -> None:
            asked.append(name)

        return note

    async def speak(ctx: InvocationContext) -> None:
        await ctx.progress("half", fraction=0.5)
        await ctx.emit(Event(message="spoken"))

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"got {await ctx.request_input('?')}"))

    around = {name: hook(name) for name in ("before_agent_callback", "after_agent_callback")}
    agents = [Logic(name="speaks", logic=speak, **around), Logic(name="asks", logic=ask, **around)]
    runner = runner_of(SequentialAgent(name="all", sub_agents=agents))
    question = await waits(runner)
    assert asked == ["before_agent_callback", "after_agent_callback", "before_agent_callback"]
    async with runner.run_async(**PLACE, new_message=question.reply(1)) as run:
        assert [event.text async for event in run] == ["got 1"]
    assert asked[3:] == ["after_agent_callback"]


async def test_what_a_callback_has_answered_is_not_counted_again() -> None:
    """The budget of models counts what models were asked for, before and after a pause."""

    def answer(callback_context: Any, llm_request: Any) -> LlmResponse | None:
        if len(llm_request.contents) > 1:
            return None
        return LlmResponse(content=Content(role="model", parts=[call("order")]))

    def order() -> str:
        """Order."""
        return "soon"

    model = ScriptedLlm(["done"])
    agent = LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(order)], before_model_callback=answer)
    runner, config = runner_of(agent), RunConfig(max_llm_calls=1)
    question = await waits(runner, run_config=config)
    run = await run_to_its_end(runner, new_message=question.reply(1), run_config=config)
    assert run.status == "completed"


async def test_plugins_cannot_take_away_what_going_on_needs() -> None:
    """What a plugin makes of an event keeps its record of steps, and one that hides what waits is refused."""

    class Tags(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event:
            other = {"step": {"name": "other", "path": "elsewhere"}}
            return Event(custom_metadata={"tagged": True}, actions=EventActions(replay=other))

    class Hides(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
            return attrs.evolve(event, long_running_tool_ids=None) if event.long_running_tool_ids else None

    done: Counter[str] = Counter()

    async def work() -> str:
        done["work"] += 1
        return "done"

    async def act(ctx: InvocationContext) -> None:
        await ctx.step("work", work)
        await ctx.request_input("?")

    def app(plugin: BasePlugin) -> Runner:
        service = InMemorySessionService()
        application = App(name="app", root_agent=one("acts", act), plugins=[plugin])
        return Runner(app=application, session_service=service, auto_create_session=True)

    runner = app(Tags(name="tags"))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply(1))
    assert (run.status, done["work"]) == ("completed", 1)
    [step] = [event for event in await log_of(runner) if event.output == "done"]
    assert step.actions.replay.step is not None
    assert (step.custom_metadata, step.actions.replay.step.name) == ({"tagged": True}, "work")
    with pytest.raises(InvalidEventError, match="what waits"):
        await run_to_its_end(app(Hides(name="hides")), new_message="go")


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_failure_is_not_hidden_by_a_question() -> None:
    """One task of an agent asks, another fails while it cleans up: the caller gets the failure, and nothing else."""

    async def both(ctx: InvocationContext) -> None:
        async def fail() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("boom")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.testing.wait_all_tasks_blocked()
            await ctx.request_input("?")

    runner = runner_of(one("both", both))
    with pytest.raises(ValueError, match="boom"):
        await run_to_its_end(runner, new_message="go")
    codes = [event.error_code for event in await log_of(runner) if event.error_code]
    assert (codes, await statuses(runner.session_service)) == (["ValueError"], ["failed"])


async def test_an_interrupt_takes_no_question_back() -> None:
    """Ctrl-C while a branch waits and another works: the question stays open, and its answer goes on with both."""
    interrupted: list[bool] = []

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"got {await ctx.request_input('?')}"))

    async def work(ctx: InvocationContext) -> None:
        if not interrupted:
            interrupted.append(True)
            await trio.testing.wait_all_tasks_blocked()
            raise KeyboardInterrupt
        await ctx.emit(Event(message="worked"))

    runner = runner_of(ParallelAgent(name="all", sub_agents=[one("asks", ask), one("works", work)]))
    with pytest.raises(KeyboardInterrupt):
        await run_to_its_end(runner, new_message="go")
    [question] = await runner.session_service.list_pending(app_name="app")
    assert await statuses(runner.session_service) == ["paused"]
    run = await run_to_its_end(runner, new_message=question.reply(1))
    assert (run.status, sorted(texts(await log_of(runner)))) == ("completed", ["got 1", "worked"])


async def test_the_answer_that_is_recorded_is_the_answer() -> None:
    """Only the end of an invocation was lost: who goes on with it gets its answer."""
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])))
    await run_to_its_end(runner, new_message="go")
    log = await log_of(runner)
    again = runner_of(LlmAgent(name="a", model=ScriptedLlm([])), await cut_after(log, len(log)))
    run = await run_to_its_end(again, invocation_id=log[0].invocation_id)
    assert (run.status, run.answer and run.answer.text) == ("completed", "hello")


async def test_a_step_in_a_thread_can_be_left_and_is_not_forgotten() -> None:
    """A cancelled run leaves a step that hangs; one that ends within the grace is recorded, unless it has failed."""
    released = threading.Event()

    def work() -> str:
        trio.from_thread.run_sync(scope.cancel)
        return "worked"

    def fail() -> str:
        trio.from_thread.run_sync(scope.cancel)
        raise OSError("failed")

    def hang() -> str:
        trio.from_thread.run_sync(scope.cancel)
        released.wait()
        return "hung"

    try:
        for step, grace_s, recorded in ((work, 60.0, ["worked"]), (fail, 60.0, []), (hang, 0.0, [])):

            async def act(ctx: InvocationContext, step: Callable[[], str] = step) -> None:
                await ctx.step("work", step)

            runner, scope = runner_of(one("acts", act)), trio.CancelScope()
            with scope:
                await run_to_its_end(runner, new_message="go", run_config=RunConfig(thread_grace_s=grace_s))
            assert scope.cancelled_caught
            taken = [event.output for event in await log_of(runner) if event.actions.replay.step is not None]
            assert taken == recorded
    finally:
        released.set()


async def test_who_leaves_before_all_is_come_to_again_closes_no_call_that_waits() -> None:
    """A process died after a question inside of a call, before the call was marked: leaving the next run keeps both."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"got {await ctx.request_input('?')}"))

    agent = LlmAgent(name="root", model=steps(call("inner", request="x"), "done"), tools=[AgentTool(one("inner", ask))])
    runner = runner_of(agent)
    await waits(runner)
    log = await log_of(runner)
    for supervised in (False, True):
        service = await cut_after(log, 3)
        again = runner_of(agent, service)
        scope = again.run_async(**PLACE, invocation_id=log[0].invocation_id, yield_user_message=True)
        async with scope.supervised(None) if supervised else scope as run:
            async for _ in run:
                break
        assert run.status == ("interrupted" if supervised else "paused")
        [question] = await service.list_pending(app_name="app")
        run = await run_to_its_end(again, new_message=question.reply(1))
        assert (run.status, texts(await log_of(again))) == ("completed", ["got 1", "done"])


async def test_a_question_is_closed_before_what_has_asked_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails in the middle of closing what a failed run leaves: no question is open whose call is answered."""
    closed: list[str] = []
    append = SessionWriter.append

    async def fail_in_the_middle(self: SessionWriter, event: Event, *, begins: bool = False) -> Event:
        errors = [one for one in event.get_function_responses() if "error" in one.response]
        if errors and closed:
            raise StorageRolledBackError("the disk is full")
        closed.extend(one.name for one in errors)
        return await append(self, event, begins=begins)

    async def fail(ctx: InvocationContext) -> None:
        while not ctx.session.events[-1].actions.suspended_calls:
            await trio.lowlevel.checkpoint()
        raise ValueError("boom")

    def pay() -> str:
        """Pay."""
        return "paid"

    tool = FunctionTool(pay, require_confirmation=True)
    payer = LlmAgent(name="payer", model=steps(call("pay"), "done"), tools=[tool])
    runner = runner_of(ParallelAgent(name="all", sub_agents=[payer, one("fails", fail)]))
    monkeypatch.setattr(SessionWriter, "append", fail_in_the_middle)
    with pytest.raises(ValueError, match="boom"):
        await run_to_its_end(runner, new_message="go")
    assert closed == ["adk_request_confirmation"]
    assert await runner.session_service.list_pending(app_name="app") == []
    assert await statuses(runner.session_service) == ["interrupted"]


async def test_an_end_that_comes_late_stands_where_going_on_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The end of a run could not be recorded; who goes on in the same process is told that it has ended."""
    async with SqliteSessionService(tmp_path / "s.db") as service:
        write = service._file.write

        async def fail_once(work: Any, **options: Any) -> Any:
            if getattr(getattr(work, "func", None), "__name__", "") == "finish":
                monkeypatch.setattr(service._file, "write", write)
                raise StorageRolledBackError("the disk is full")
            return await write(work, **options)

        monkeypatch.setattr(service._file, "write", fail_once)
        runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])), service)
        await run_to_its_end(runner, new_message="go")
        [ended] = await service.list_invocations(app_name="app")
        assert ended.status == "interrupted"
        with trio.fail_after(5):
            run = await run_to_its_end(runner, invocation_id=ended.invocation_id)
        assert (run.status, run.answer and run.answer.text) == ("completed", "hello")
        assert await statuses(service) == ["completed"]


# --- logic of all kinds -----------------------------------------------------------------------------------------------


async def test_steps_may_hold_steps_questions_and_events() -> None:
    """What a step has said and done inside is not done again, nor taken for what comes after it."""
    done: Counter[str] = Counter()

    async def act(ctx: InvocationContext) -> None:
        async def leaf(number: int) -> int:
            done[f"leaf {number}"] += 1
            return number

        async def outer() -> int:
            await ctx.emit(Event(message="inside"))
            first = await ctx.step("leaf", leaf, 1)
            agreed = await ctx.request_input("inside?")
            return int(first) + int(agreed)

        total = await ctx.step("outer", outer)
        answer = await ctx.request_input("outside?")
        await ctx.emit(Event(message=f"{total} {answer}", state={"total": total}))

    runner = runner_of(one("acts", act))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply(2))
    run = await run_to_its_end(runner, new_message=run.pending[0].reply("yes"))
    assert (run.status, texts(await log_of(runner)), done) == ("completed", ["inside", "3 yes"], {"leaf 1": 1})
    assert run.session.state["total"] == 3


class DeclinedError(Exception):
    """A card was declined."""


async def test_a_step_that_has_failed_fails_again() -> None:
    """Its failure is recorded: the agent that caught it goes the same way again, and the step is not taken again."""
    charged: list[str] = []

    async def charge(card: str) -> str:
        charged.append(card)
        if card == "old":
            raise DeclinedError(card)
        return f"charged {card}"

    async def pay(ctx: InvocationContext) -> None:
        try:
            done = await ctx.step("charge", charge, "old")
        except DeclinedError as error:
            await ctx.emit(Event(message=f"declined {error}"))
            done = await ctx.step("charge", charge, await ctx.request_input("Another card?"))
        await ctx.emit(Event(message=done))

    runner = runner_of(one("pays", pay))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply("new"))
    assert (run.status, texts(await log_of(runner))) == ("completed", ["declined old", "charged new"])
    assert charged == ["old", "new"]
    [failed] = [event for event in await log_of(runner) if event.error_code]
    assert (failed.error_code, failed.error_message) == ("DeclinedError", "old")


async def test_a_failure_that_cannot_be_made_again_is_told() -> None:
    """An exception that is not made from JSON ends who goes on; the invocation is as it was."""

    class OddError(Exception):
        def __init__(self, reason: str, *, code: int) -> None:
            super().__init__(object())

    async def fail() -> None:
        raise OddError("odd", code=1)

    async def act(ctx: InvocationContext) -> None:
        try:
            await ctx.step("fails", fail)
        except OddError:
            await ctx.request_input("?")

    runner = runner_of(one("acts", act))
    question = await waits(runner)
    with pytest.raises(ReplayError, match="cannot be made again"):
        await run_to_its_end(runner, new_message=question.reply(1))
    assert await statuses(runner.session_service) == ["interrupted"]


async def test_what_is_said_on_the_way_to_a_pause_is_said_each_time() -> None:
    """A `finally` around a question emits when the agent pauses, and when it ends; neither is taken for another."""

    async def act(ctx: InvocationContext) -> None:
        try:
            answer = await ctx.request_input("?")
            await ctx.emit(Event(message=f"got {answer}", state={"answer": answer}))
        finally:
            await ctx.emit(Event(message="cleaned up"))

    runner = runner_of(one("acts", act))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply(7))
    assert texts(await log_of(runner)) == ["cleaned up", "got 7", "cleaned up"]
    assert (run.status, run.session.state["answer"]) == ("completed", 7)


async def test_tasks_of_an_agent_say_each_thing_once(autojump_clock: trio.testing.MockClock) -> None:
    """Tasks in a nursery of the agent's own take steps and tell; cut off anywhere, all is told once in the end."""

    async def act(ctx: InvocationContext) -> None:
        async def fetch(number: int) -> int:
            await trio.sleep(number)
            return number

        async def tell(number: int) -> None:
            found = await ctx.step("fetch", fetch, number)
            await ctx.emit(Event(message=f"fetched {found}", state={f"got{found}": True}))

        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(tell, number)
        await ctx.emit(Event(message="all"))

    runner = runner_of(one("acts", act))
    await run_to_its_end(runner, new_message="go")
    log = await log_of(runner)
    for count in range(1, len(log)):
        for _ in range(5):  # trio chooses which task goes first
            again = runner_of(one("acts", act), await cut_after(log, count))
            run = await run_to_its_end(again, invocation_id=log[0].invocation_id)
            assert sorted(texts(await log_of(again))) == ["all", "fetched 1", "fetched 2", "fetched 3"]
            assert set(run.session.state) == {"got1", "got2", "got3"}


async def test_a_step_that_is_done_is_recorded_whatever_is_cancelled() -> None:
    """A step has returned, and its record waits for the caller, who leaves: it is stored, and the step not repeated."""
    done: list[int] = []
    is_done = trio.Event()

    async def charge() -> str:
        done.append(1)
        is_done.set()
        return "charged"

    async def act(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="begun"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.emit, Event(message="beside"))
            await trio.testing.wait_all_tasks_blocked()
            await ctx.step("charge", charge)

    runner = runner_of(one("acts", act))
    async with runner.run_async(**PLACE, new_message="go").supervised(None) as run:
        async for event in run:
            if event.text == "beside":
                await is_done.wait()
                await trio.testing.wait_all_tasks_blocked()
                break
    assert (run.status, [event.output for event in await log_of(runner) if event.output]) == (
        "interrupted",
        ["charged"],
    )
    run = await run_to_its_end(runner, invocation_id=run.invocation_id)
    assert (run.status, done) == ("completed", [1])


async def test_rounds_and_hooks_inside_of_a_call_are_told_apart() -> None:
    """A loop of branches that ask, as a tool: each answer goes on with its own, and no hook is called twice."""
    hooks: Counter[str] = Counter()

    def hook(name: str) -> Any:
        def note(callback_context: Any) -> None:
            hooks[f"{name} {callback_context.agent_name}"] += 1

        return note

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"{ctx.agent_name} {await ctx.request_input(f'{ctx.agent_name}?')}"))

    around = {"before_agent_callback": hook("before"), "after_agent_callback": hook("after")}
    agents = [Logic(name=name, logic=ask, **around) for name in "xy"]
    loop = LoopAgent(
        name="loop", sub_agents=[ParallelAgent(name="sides", sub_agents=agents)], max_iterations=2, **around
    )
    model = steps(call("loop", request="go"), "done")
    runner = runner_of(LlmAgent(name="root", model=model, tools=[AgentTool(loop)]))
    run = await run_to_its_end(runner, new_message="go")
    for number in range(4):
        assert run.pending, number
        listed = await runner.session_service.list_pending(app_name="app")
        assert [one.call_id for one in listed] == [one.call_id for one in run.pending]
        run = await run_to_its_end(runner, new_message=run.pending[0].reply(number))
    assert (run.status, len(texts(await log_of(runner)))) == ("completed", 5)
    assert hooks == {
        "before loop": 1,
        "after loop": 1,
        **{f"{when} {name}": 2 for when in ("before", "after") for name in "xy"},
    }


async def test_hooks_around_an_agent_may_ask() -> None:
    """What a hook says and writes after the answer counts: a human who says no keeps the agent from running."""

    async def before(callback_context: Any) -> Content | None:
        allowed = await callback_context.request_input("May it run?", response_schema=bool)
        callback_context.state["asked"] = True
        return None if allowed else Content(parts=[Part(text="not allowed")])

    async def after(callback_context: Any) -> Content:
        return Content(parts=[Part(text=f"judged {await callback_context.request_input('Good?')}")])

    async def speak(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="ran"))

    agents = [
        Logic(name="first", logic=speak, after_agent_callback=after),
        Logic(name="guarded", logic=speak, before_agent_callback=before),
        one("last", speak),
    ]
    runner = runner_of(SequentialAgent(name="all", sub_agents=agents))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply("fine"))
    run = await run_to_its_end(runner, new_message=run.pending[0].reply(False))
    assert texts(await log_of(runner)) == ["ran", "judged fine", "not allowed", "ran"]
    assert (run.status, run.session.state["asked"]) == ("completed", True)


async def test_another_calls_answer_leaves_what_waits_inside_of_a_call(autojump_clock: trio.testing.MockClock) -> None:
    """Two agents as tools ask, one in rounds: the other's answer, and looking, leave the second round's question."""

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"{ctx.agent_name} {await ctx.request_input(f'{ctx.agent_name}?')}"))

    sides = ParallelAgent(name="sides", sub_agents=[one("x", ask)])
    loop = LoopAgent(name="loop", sub_agents=[sides], max_iterations=2)
    model = steps([call("loop", request="x"), call("b", request="y")], "end")
    runner = runner_of(LlmAgent(name="a", model=model, tools=[AgentTool(loop), AgentTool(one("b", ask))]))
    run = await run_to_its_end(runner, new_message="go")
    for who in ("x?", "b?"):
        [question] = [one for one in run.pending if one.hint == who]
        run = await run_to_its_end(runner, new_message=question.reply(who))
    for _ in range(2):
        run = await run_to_its_end(runner, invocation_id=run.invocation_id)
        assert (run.status, [one.hint for one in run.pending]) == ("paused", ["x?"])
    run = await run_to_its_end(runner, new_message=run.pending[0].reply("again"))
    assert (run.status, sorted(texts(await log_of(runner)))) == ("completed", ["b b?", "end", "x again", "x x?"])


async def test_who_is_stopped_earlier_than_then_takes_nothing_from_a_later_round(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A branch speaks until a slow step beside it is over; resumed, the step takes no time, and each round is whole."""

    async def speak(ctx: InvocationContext) -> None:
        for line in range(9):
            await ctx.emit(Event(message=f"{ctx.state.get('round', 0)} {line}"))
            await trio.sleep(1)

    async def poll(ctx: InvocationContext) -> None:
        await ctx.step("poll", trio.sleep, 3.5)
        await ctx.emit(Event(message="enough", actions=EventActions(escalate=True)))

    async def ask(ctx: InvocationContext) -> None:
        await ctx.request_input("again?")
        await ctx.emit(Event(message="again", state={"round": ctx.state.get("round", 0) + 1}))

    sides = ParallelAgent(name="sides", sub_agents=[one("speaks", speak), one("polls", poll)])
    rounds = [LoopAgent(name="inner", sub_agents=[sides]), one("asks", ask)]
    runner = runner_of(LoopAgent(name="outer", sub_agents=rounds, max_iterations=2))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply(1))
    run = await run_to_its_end(runner, new_message=run.pending[0].reply(2))
    lines = [[f"{number} {line}" for line in range(4)] for number in range(2)]
    assert texts(await log_of(runner)) == [*lines[0], "enough", "again", *lines[1], "enough", "again"]
    assert run.status == "completed"


async def test_each_attempt_of_a_tool_says_what_no_other_has_said(autojump_clock: trio.testing.MockClock) -> None:
    """A tool emits, fails, is tried again and asks: what all attempts say is stored once, what it says then, too."""
    tries: list[int] = []

    async def work(tool_context: ToolContext) -> str:
        """Work."""
        tries.append(len(tries))
        await tool_context.emit(Event(message="begun"))
        if len(tries) == 1:
            raise OSError("once")
        answer = await tool_context.request_input("?")
        await tool_context.emit(Event(message=f"got {answer}", state={"got": answer}))
        return "done"

    tool = FunctionTool(work, retry=RetryConfig(initial_delay=1.0))
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([call("work"), "over"]), tools=[tool]))
    run = await run_to_its_end(runner, new_message=(await waits(runner)).reply(1))
    assert (run.status, texts(await log_of(runner))) == ("completed", ["begun", "got 1", "over"])
    assert run.session.state["got"] == 1


async def test_a_hook_that_fails_is_heard_although_the_run_waits() -> None:
    """An after_run callback fails when the agent has asked: the run fails with it."""

    class Fails(BasePlugin):
        async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
            raise ValueError("after")

    async def ask(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    app = App(name="app", root_agent=one("asks", ask), plugins=[Fails(name="fails")])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    with pytest.raises(ValueError, match="after"):
        await run_to_its_end(runner, new_message="go")
    assert await statuses(runner.session_service) == ["failed"]


async def test_calls_are_told_apart_by_their_whole_ids() -> None:
    """An agent inside of call c10 has asked; call c1, whose process died, is the policy's: it has not asked."""
    made: list[int] = []

    async def ask(ctx: InvocationContext) -> None:
        await ctx.request_input("?")

    async def pay() -> str:
        """Pay."""
        made.append(1)
        if len(made) == 1:
            await trio.sleep_forever()
        return "paid"

    calls = [Part(function_call=FunctionCall(id=name, name=tool, args=args)) for name, tool, args in CALLS]
    agent = LlmAgent(name="a", model=steps(calls, "done"), tools=[pay, AgentTool(one("inner", ask))])
    runner = runner_of(agent)
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.long_running_tool_ids:
                await trio.testing.wait_all_tasks_blocked()
                break
    again = runner_of(agent, await cut_after(await log_of(runner), 3))
    [interrupted] = await again.session_service.list_invocations(app_name="app")
    run = await run_to_its_end(again, invocation_id=interrupted.invocation_id)
    [told] = [one for event in await log_of(again) for one in event.get_function_responses() if one.name == "pay"]
    assert (run.status, told.response["error"]["type"], made) == ("paused", "outcome_unknown", [1])


CALLS: list[tuple[str, str, dict[str, Any]]] = [("c1", "pay", {}), ("c10", "inner", {"request": "x"})]


async def test_what_is_stored_has_ids_of_its_own_in_every_session() -> None:
    """Models may give their calls the same ids in two sessions: events and questions are told apart all the same."""

    def pay() -> str:
        """Pay."""
        return "paid"

    made = Part(function_call=FunctionCall(id="call_1", name="pay", args={}))
    agent = LlmAgent(name="a", model=steps(made, "done"), tools=[FunctionTool(pay, require_confirmation=True)])
    runner = runner_of(agent)
    ids: list[str | None] = []
    for session in ("s", "t"):
        place: dict[str, Any] = {"user_id": "u", "session_id": session}
        async with runner.run_async(**place, new_message="go") as run:
            await run.wait()
        async with runner.run_async(**place, new_message=run.pending[0].reply(True)) as run:
            await run.wait()
        log = await runner.session_service.read_events(app_name="app", **place, after_seq=0)
        ids += [event.id for event in log]
        ids += [call.id for event in log for call in event.get_function_calls() if call.id != "call_1"]
    assert len(set(ids)) == len(ids)


async def test_what_was_streamed_is_not_shown_again_and_what_follows_is() -> None:
    """A fragment of what is recorded keeps its id and reaches no caller; one of what is new reaches the caller."""
    ids: list[str | None] = []

    class Streams(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for line in range(2):
                ids.append((await ctx.emit(Event(message=f"{line}", partial=True))).id)
                await ctx.emit(Event(message=f"line {line}"))

    first = runner_of(Streams(name="a"))
    async with first.run_async(**PLACE, new_message="go") as run:
        assert [event.text async for event in run] == ["0", "line 0", "1", "line 1"]
    log = await log_of(first)
    again = runner_of(Streams(name="a"), await cut_after(log, 2))
    async with again.run_async(**PLACE, invocation_id=run.invocation_id) as run:
        assert [event.text async for event in run] == ["1", "line 1"]
    assert None not in ids
    assert ids[:2] == ids[2:]


async def test_an_agent_that_is_cancelled_while_a_thread_works_takes_the_step_once() -> None:
    """The thread's result came too late, and is recorded; taken again in the same run, the step is found."""
    done: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        def work() -> str:
            trio.from_thread.run_sync(scope.cancel)
            done.append("done")
            return "done"

        with trio.CancelScope() as scope:
            await ctx.step("work", work)
        assert scope.cancelled_caught
        assert await ctx.step("work", work) == "done"

    run = await run_to_its_end(runner_of(one("a", logic)), new_message="go")
    assert (run.status, len(done)) == ("completed", 1)


@pytest.mark.parametrize("outcome", ["charged", None])
async def test_an_agent_that_is_cancelled_while_a_record_waits_takes_the_step_once(
    outcome: str | None, autojump_clock: trio.testing.MockClock
) -> None:
    """The step is done, and its record waits for the caller: who tries again has what it came to, in each run."""
    done: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        async def charge() -> str:
            done.append(ctx.idempotency_key)
            if outcome is None:
                raise OSError("no money")
            return outcome

        async def beside() -> None:
            await ctx.emit(Event(message="beside"))

        async def attempt() -> None:
            try:
                said.append(await ctx.step("charge", charge))
            except OSError as error:
                said.append(str(error))

        said: list[str] = []
        await ctx.emit(Event(message="begun"))
        with trio.move_on_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(beside)
                await trio.testing.wait_all_tasks_blocked()
                await attempt()
        if not said:
            await attempt()
        await ctx.emit(Event(message=said[0]))

    runner = runner_of(one("acts", logic))
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == "beside":
                await trio.sleep(10)
    log = await log_of(runner)
    assert (len(done), [event.text for event in log[1:]]) == (1, ["begun", "beside", "", outcome or "no money"])
    for count in (len(log) - 1, len(log)):
        again = runner_of(one("acts", logic), await cut_after(log, count))
        await run_to_its_end(again, invocation_id=log[0].invocation_id)
        said = [event.text for event in await log_of(again) if event.author != "user"]
        assert (len(done), said) == (1, [event.text for event in log[1:]])


async def test_an_agent_that_is_cancelled_while_a_step_is_replayed_takes_it_once() -> None:
    """Cancelled where the record of the step is about to be returned, it tries again, and finds it."""
    done: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        async def charge() -> str:
            done.append(ctx.idempotency_key)
            return "charged"

        said = ""
        with trio.CancelScope() as scope:
            if done:
                scope.cancel()
            said = await ctx.step("charge", charge)
        assert scope.cancelled_caught == (not said)
        said = said or await ctx.step("charge", charge)
        await ctx.emit(Event(message=f"{said}, {await ctx.request_input('?')}"))

    runner = runner_of(one("acts", logic))
    run = await run_to_its_end(runner, new_message="go")
    run = await run_to_its_end(runner, new_message=run.pending[0].reply("yes"))
    assert (run.status, len(done), run.answer and run.answer.text) == ("completed", 1, "charged, yes")


async def test_an_agent_that_is_cancelled_while_a_question_waits_for_its_turn_asks_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing of it was stored: asked again, it is the same question, and its answer is found by the first."""
    caught: list[bool] = []

    async def logic(ctx: InvocationContext) -> None:
        answer = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.emit, Event(message="beside"))
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1) as scope:
                answer = await ctx.request_input("?")
        caught.append(scope.cancelled_caught)
        answer = answer or await ctx.request_input("?")
        await ctx.emit(Event(message=answer))

    runner = runner_of(one("acts", logic))
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == "beside":
                await trio.sleep(10)
    run = await run_to_its_end(runner, new_message=run.pending[0].reply("yes"))
    assert (run.status, caught, run.answer and run.answer.text) == ("completed", [True, False], "yes")


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (RunConfig(max_tool_calls=2), ToolCallsLimitExceededError),
        (RunConfig(max_tokens=12), TokensLimitExceededError),
        (RunConfig(max_llm_calls=2), LlmCallsLimitExceededError),
    ],
    ids=["tools", "tokens", "models"],
)
async def test_what_was_used_before_an_invocation_waited_counts(limits: RunConfig, error: type[Exception]) -> None:
    """Calls of tools, requests and tokens of earlier runs are counted again: the next one is refused."""

    def note() -> str:
        """Note."""
        return "noted"

    def pay() -> str:
        """Pay."""
        return "paid"

    def says(part: Part) -> LlmResponse:
        content = Content(role="model", parts=[part])
        return LlmResponse(content=content, usage_metadata=UsageMetadata(total_token_count=6))

    model = ScriptedLlm([says(call(name)) for name in ("note", "pay", "note")] + [says(Part(text="done"))])
    agent = LlmAgent(name="a", model=model, tools=[note, FunctionTool(pay, require_confirmation=True)])
    runner = runner_of(agent)
    run = await run_to_its_end(runner, new_message="go", run_config=limits)
    assert run.status == "paused"
    with pytest.raises(error):
        await run_to_its_end(runner, new_message=run.pending[0].reply(True), run_config=limits)
