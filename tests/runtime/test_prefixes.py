"""
Every prefix of every log is one that somebody can go on from: with something new, and with what was cut off.

A prefix is what a dead process leaves. The logs are those of the scenarios of test_resume.py, of agents that wait, and
of random trees of agents, each run to its end by one process per answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from minirun import (
    AgentTool,
    BaseAgent,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SqliteSessionService,
)
from minirun._values import changed
from minirun.models import LlmRequest
from minirun.runtime import Run
from minirun.sessions import PendingCall
from minirun.sessions._recovery import recover
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool

from ..examples import examples
from ..stores import Clock
from .test_resume import KEY, PLACE, SCENARIOS, Asks, log_of, nested, note

Build: TypeAlias = Callable[[], BaseAgent]

NEW = "something new"
# More often nothing here waits; what waits for ever would be asked again and again.
ANSWERS_MAX = 40


def steps(*answers: object) -> ScriptedLlm:
    """
    A model that says the n-th of these when it has been answered n times, and then the last one again and again.

    What it has said in between about something new does not count.
    """

    def answer(request: LlmRequest) -> Any:
        said = [content for content in request.contents if content.role == "model" and content.parts[0].text != NEW]
        return answers[min(len(said), len(answers) - 1)]

    return ScriptedLlm(answer)


def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def sender(name: str) -> LlmAgent:
    """An agent whose tools have to be allowed."""
    model = steps([call("send", to="x"), call("send", to="y")], f"{name} is done")
    return LlmAgent(
        name=name,
        model=model,
        tools=[FunctionTool(send, require_confirmation=True, run_in="loop", on_interrupted="rerun")],
    )


def orderer(name: str) -> LlmAgent:
    """An agent that waits for a result from outside, beside a call that is made at once."""
    order = LongRunningFunctionTool(
        lambda: {"ticket": 1}, name="order", description="Order.", run_in="loop", on_interrupted="rerun"
    )
    noting = FunctionTool(note, run_in="loop", on_interrupted="rerun")
    model = steps([call("order"), call("note", what="q")], f"{name} is done")
    return LlmAgent(name=name, model=model, tools=[order, noting])


def noter(name: str) -> LlmAgent:
    """An agent with a tool that may be called again."""
    model = steps([call("note", what=f"{name} a"), call("note", what=f"{name} b")], f"{name} is done")
    return LlmAgent(name=name, model=model, tools=[FunctionTool(note, run_in="loop", on_interrupted="rerun")])


class Waits(BaseAgent):
    """Waits for a time."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.sleep_until(4e9)
        await ctx.emit(Event(message=f"{self.name} is done", state={self.name: "done"}))


class Takes(BaseAgent):
    """Takes steps, and writes how many."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async def same(number: int) -> int:
            return number

        for number in range(2):
            ctx.state[self.name] = await ctx.step("same", same, number) + 1
            await ctx.emit(Event(message=f"{self.name} {number}"))


def in_a_call(agent: BaseAgent, name: str = "root") -> LlmAgent:
    """An agent that calls another one."""
    return LlmAgent(name=name, model=steps(call(agent.name, request="go"), "called"), tools=[AgentTool(agent)])


def handing_over(agent: BaseAgent, name: str = "root") -> LlmAgent:
    """An agent that hands over to another one."""
    model = steps(call("transfer_to_agent", agent_name=agent.name))
    return LlmAgent(name=name, model=model, sub_agents=[agent])


# --- random trees -----------------------------------------------------------------------------------------------------

LEAVES: dict[str, Callable[[str], BaseAgent]] = {
    "says": lambda name: LlmAgent(name=name, model=ScriptedLlm(lambda request: f"{name} is done")),
    "notes": noter,
    "sends": sender,
    "orders": orderer,
    "asks": lambda name: Asks(name=name, times=2),
    "takes": lambda name: Takes(name=name),
    "waits": lambda name: Waits(name=name),
}
NODES = ("sequence", "parallel", "loop", "call", "transfer")

Tree: TypeAlias = Any
"""The name of a leaf, or that of a node with its children."""


def trees() -> st.SearchStrategy[Tree]:
    """Trees of agents, small ones."""
    return st.recursive(
        st.sampled_from(sorted(LEAVES)),
        lambda inner: st.tuples(st.sampled_from(NODES), st.lists(inner, min_size=1, max_size=3)),
        max_leaves=4,
    )


def agent_of(tree: Tree, name: str = "a") -> BaseAgent:
    """The agents of a tree; each is named after its place."""
    if isinstance(tree, str):
        return LEAVES[tree](name)
    node, children = tree
    agents = [agent_of(child, f"{name}{number}") for number, child in enumerate(children)]
    if node == "call":
        return in_a_call(agents[0], name)
    if node == "transfer":
        return handing_over(agents[0], name)
    if node == "parallel":
        return ParallelAgent(name=name, sub_agents=agents)
    if node == "loop":
        return LoopAgent(name=name, sub_agents=agents, max_iterations=2)
    return SequentialAgent(name=name, sub_agents=agents)


def is_in_order(tree: Tree) -> bool:
    """Whether all that is said in it has one order: nothing runs, or asks, beside something else."""
    return tree != "sends" and (isinstance(tree, str) or (tree[0] != "parallel" and all(map(is_in_order, tree[1]))))


# --- running ----------------------------------------------------------------------------------------------------------


def runner_of(agent: BaseAgent, service: SqliteSessionService) -> Runner:
    """A runner as a new process would make it."""
    return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)


def reply_to(question: PendingCall) -> Any:
    """What everybody answers."""
    return question.reply(True if question.kind == "confirmation" else f"to {question.hint}")


def store() -> SqliteSessionService:
    """A store of its own."""
    return SqliteSessionService(":memory:", durability="process", env=Clock([1e9]))


async def status_of(service: SqliteSessionService, invocation_id: str) -> str:
    """How an invocation is listed."""
    [status] = [str(one.status) for one in await service.list_invocations() if one.invocation_id == invocation_id]
    return status


async def bring_to_its_end(build: Build, service: SqliteSessionService, invocation_id: str) -> str:
    """Go on with it, answer what it asks and let its times come, each in a new process; return how it ended."""
    for _ in range(ANSWERS_MAX):
        status = await status_of(service, invocation_id)
        if status not in ("paused", "interrupted"):
            return status
        runner = runner_of(build(), service)
        waiting = await service.list_pending(include_timers=True)
        if status == "interrupted":
            scope = runner.run_async(**PLACE, invocation_id=invocation_id)
        elif waiting[0].kind == "timer":
            await runner.resume_due(5e9)
            continue
        else:
            scope = runner.run_async(**PLACE, new_message=reply_to(waiting[0]))
        async with scope as run:
            await run.wait()
    raise AssertionError("it waits for ever")


async def whole_log(build: Build) -> list[Event]:
    """The log of an invocation that nobody disturbed."""
    async with store() as service:
        async with runner_of(build(), service).run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert await bring_to_its_end(build, service, run.invocation_id) == "completed"
        return await log_of(runner_of(build(), service))


async def cut(service: SqliteSessionService, log: Sequence[Event]) -> str:
    """Let the store be one whose process died when it had stored so much; return the invocation's id."""
    invocation_id = log[0].invocation_id or ""
    await service.create_session(app_name="app", **PLACE)
    writer = await service.open_writer(KEY, invocation_id, None, reject=False)
    assert writer is not None
    for number, event in enumerate(log):
        await writer.append(changed(event, seq=None), begins=number == 0)
        assert await status_of(service, invocation_id) == "running"
    await writer.finish(None)
    assert await status_of(service, invocation_id) == "interrupted"
    return invocation_id


async def recover_twice(service: SqliteSessionService) -> None:
    """Recovery appends nothing the second time, and asks nobody anything else than before."""
    runner = runner_of(noter("any"), service)
    waiting = await service.list_pending(include_timers=True)
    logs = []
    for _ in range(2):
        writer = await service.open_writer(KEY, "e-nobody", None, reject=True)
        assert writer is not None
        await recover(writer)
        await writer.finish(None)
        logs.append(await log_of(runner))
    assert logs[0] == logs[1]
    assert await service.list_pending(include_timers=True) == waiting


def open_calls(log: Sequence[Event]) -> set[str | None]:
    """The calls without a response; none has two."""
    answers = [one.id for event in log for one in event.get_function_responses()]
    assert len(set(answers)) == len(answers)
    return {one.id for event in log for one in event.get_function_calls()} - set(answers)


async def check_prefix(build: Build, log: Sequence[Event], count: int) -> None:
    """Everybody in the log can be told something new, with a request that providers take; then the old goes on."""
    async with store() as service:
        invocation_id = await cut(service, log[:count])
        await recover_twice(service)
        before = await service.list_pending(include_timers=True)
        for author in sorted({event.author or "" for event in log} - {"user"}):
            agent = LlmAgent(name=author, model=ScriptedLlm(lambda request: NEW))
            async with runner_of(agent, service).run_async(**PLACE, new_message="by the way") as run:
                answer = await run.wait()
            assert answer is not None
            assert answer.text == NEW
        assert await service.list_pending(include_timers=True) == before
        now = await log_of(runner_of(build(), service))
        assert open_calls(now) == open_calls(log[:count]) & (open_calls(now) | {None}), "nothing is asked anew"
        check_questions_are_heard(now, before)
        assert await bring_to_its_end(build, service, invocation_id) == "completed"
        end = await log_of(runner_of(build(), service))
        assert open_calls(end) == set()
        assert await service.list_pending(include_timers=True) == []


def check_questions_are_heard(log: Sequence[Event], waiting: Sequence[PendingCall]) -> None:
    """What waits inside of a call can still be of use to it: the call is open."""
    still_open = open_calls(log)
    for question in waiting:
        around = [step.rpartition("@")[2] for step in (question.branch or "").split(".") if "@" in step]
        assert set(around) <= still_open


class Reads(BaseAgent):
    """Takes steps, and expects to read what it has written until then."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async def same(number: int) -> int:
            return number

        for number in range(2):
            assert ctx.state.get(self.name, 0) == number
            ctx.state[self.name] = await ctx.step("same", same, number) + 1
            await ctx.emit(Event(message=f"{self.name} {number}"))


READING: dict[str, Build] = {
    "alone": lambda: Reads(name="reads"),
    "after another": lambda: SequentialAgent(name="all", sub_agents=[noter("first"), Reads(name="reads")]),
    "in a call": lambda: in_a_call(Reads(name="reads")),
    "beside another": lambda: ParallelAgent(name="both", sub_agents=[Reads(name="reads"), Asks(name="asks")]),
}


# --- the properties ---------------------------------------------------------------------------------------------------

WAITING: dict[str, Build] = {
    "confirmations": lambda: sender("root"),
    "a result from outside": lambda: orderer("root"),
    "confirmations in a call": lambda: in_a_call(sender("inner")),
    "a result, in a call": lambda: in_a_call(orderer("inner")),
    "times": lambda: ParallelAgent(name="both", sub_agents=[Waits(name="one"), sender("two")]),
    "a question in a call in a call": lambda: in_a_call(in_a_call(Asks(name="asks"), "outer")),
    "a question after a transfer": lambda: handing_over(orderer("sub")),
    **{f"nested {depth}": partial(nested, depth, 2) for depth in range(4)},
    **{build.__name__: build for build in SCENARIOS},
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
async def test_every_prefix_can_be_gone_on_from(every: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new message is answered, whatever was cut off; then that is completed, and nothing of it is left open."""
    for module in ("tests.resuming", "tests.runtime.test_resume"):
        monkeypatch.setattr(f"{module}.steps", steps)
    log = await whole_log(WAITING[name])
    for count in range(1 + [*WAITING].index(name) % every, len(log) + 1, every):
        await check_prefix(WAITING[name], log, count)


@pytest.mark.parametrize("name", READING)
async def test_state_is_read_as_it_was_then(name: str) -> None:
    """An agent that goes on reads what it read at each place, whatever was stored since."""
    build = READING[name]
    log = await whole_log(build)
    for count in range(1, len(log)):
        async with store() as service:
            invocation_id = await cut(service, log[:count])
            assert await bring_to_its_end(build, service, invocation_id) == "completed"
            found = await log_of(runner_of(build(), service))
        assert sorted(map(str, words(found))) == sorted(map(str, words(log)))


@pytest.mark.parametrize("how", ["completed", "paused", "failed", "cancelled"])
async def test_an_end_that_was_not_recorded_is_recorded_by_who_goes_on(how: str) -> None:
    """A power cut may take the last status, and nothing else; nobody is asked again for what is in the log."""
    asked: list[LlmRequest] = []

    def agent() -> BaseAgent:
        def answer(request: LlmRequest) -> Any:
            asked.append(request)
            return "said"

        class Fails(BaseAgent):
            async def _run_async_impl(self, ctx: InvocationContext) -> None:
                if how == "failed":
                    raise ValueError("each time")
                if how == "paused":
                    await ctx.request_input("What?")

        speaker = LlmAgent(name="speaker", model=ScriptedLlm(answer))
        return SequentialAgent(name="all", sub_agents=[noter("noter"), speaker, Fails(name="fails")])

    async def end(service: SqliteSessionService, **what: Any) -> Run:
        """Run until it ends by itself, or is left."""
        try:
            async with runner_of(agent(), service).run_async(**PLACE, **what) as run:
                async for event in run:
                    if how == "cancelled" and event.get_function_responses():
                        break
        except ValueError:
            pass
        return run

    async with store() as service:
        run = await end(service, new_message="go")
        assert (run.status, await status_of(service, run.invocation_id)) == (how, how)
        log = await log_of(runner_of(agent(), service))
    async with store() as service:
        invocation_id = await cut(service, log)
        run = await end(service, invocation_id=invocation_id)
        expected = "completed" if how == "cancelled" else how
        assert (run.status, await status_of(service, invocation_id)) == (expected, expected)
        more = [event for event in await log_of(runner_of(agent(), service)) if (event.seq or 0) > len(log)]
    assert len(asked) == 1
    assert [event.text or event.error_code for event in more if event.author != "user"] == {
        "completed": [],
        "paused": [],
        "failed": ["ValueError"],
        "cancelled": ["noter is done", "said"],
    }[how]


@given(tree=trees(), data=st.data())
@settings(max_examples=examples(15))
def test_prefixes_of_random_trees_can_be_gone_on_from(tree: Tree, data: st.DataObject) -> None:
    """The same for trees of agents that nobody has thought of."""
    trio.run(check_tree, tree, lambda length: [data.draw(st.integers(1, length), label="events") for _ in range(3)])


@pytest.mark.slow
@given(tree=trees())
@settings(max_examples=60)
def test_all_prefixes_of_many_random_trees_can_be_gone_on_from(tree: Tree) -> None:
    """The same, for many, and for every place."""
    trio.run(check_tree, tree, lambda length: range(1, length + 1))


async def check_tree(tree: Tree, places: Callable[[int], Sequence[int]]) -> None:
    """Check prefixes of a tree's log; and where nothing new comes between, that it becomes what it would have been."""
    log = await whole_log(lambda: agent_of(tree))
    for count in places(len(log)):
        await check_prefix(lambda: agent_of(tree), log, count)
        async with store() as service:
            invocation_id = await cut(service, log[:count])
            assert await bring_to_its_end(lambda: agent_of(tree), service, invocation_id) == "completed"
            found = await log_of(runner_of(agent_of(tree), service))
        if is_in_order(tree):
            assert words(found) == words(log)
        else:  # which branch has the last word, and so the result of a call around them, is luck
            assert sorted(words_without_results(found)) == sorted(words_without_results(log))


def words(log: Sequence[Event]) -> list[Any]:
    """What agents have said, and what became of calls."""
    return [(event.author, event.branch, event.content) for event in spoken(log)]


def spoken(log: Sequence[Event]) -> list[Event]:
    """The events with something in them."""
    return [event for event in log if event.content is not None]


def words_without_results(log: Sequence[Event]) -> list[str]:
    """The same, without what calls came to."""
    return [str(word) for word in words([event for event in log if not event.get_function_responses()])]
