"""What is done with whole sessions — forks, rewinds, copies, summaries — is done with those of workflows, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minirun import App, Event, InMemorySessionService, LlmAgent, Runner, Session, SqliteSessionService
from minirun.errors import InvocationNotFoundError
from minirun.runtime import Run
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm, call
from minirun.workflow import START, JoinNode, Workflow

KEY: Any = {"app_name": "app", "user_id": "u", "session_id": "s"}


class Desk:
    """A workflow with a step, a map, a question, a conversation, a lane that may fail, and a join."""

    def __init__(self) -> None:
        self.fails = False
        self.effects: list[str] = []

    def workflow(self) -> Workflow:
        async def begin(node_input: str, ctx: Any) -> str:
            async def effect() -> str:
                self.effects.append("begin")
                return "begun"

            found: str = await ctx.step("effect", effect)
            return found

        async def double(node_input: int) -> int:
            self.effects.append(f"double {node_input}")
            return node_input * 2

        async def many(node_input: str, ctx: Any) -> list[int]:
            found: list[int] = await ctx.map(double, [1, 2, 3])
            return found

        async def ask(node_input: str, ctx: Any) -> Any:
            return await ctx.request_input("Go?")

        async def risky(node_input: str) -> str:
            if self.fails:
                raise ConnectionError("down")
            return "fine"

        def last(node_input: dict[str, Any]) -> dict[str, Any]:
            return node_input

        model = ScriptedLlm(lambda request: call("finish_task", result="tea") if len(request.contents) > 1 else "What?")
        clerk = LlmAgent(name="clerk", mode="task", model=model)
        lanes = (many, ask, clerk, risky)
        return Workflow(name="wf", on_failure="collect", edges=[(START, begin, lanes, JoinNode(name="all"), last)])


OUTPUT = {"many": [2, 4, 6], "ask": "yes", "clerk": {"result": "tea"}, "risky": "fine"}


def runner_of(desk: Desk, service: Any) -> Runner:
    return Runner(app=App(name="app", root_agent=desk.workflow()), session_service=service, auto_create_session=True)


async def run(runner: Runner, session_id: str = "s", **options: Any) -> Run:
    async with runner.run_async(user_id="u", session_id=session_id, **options) as found:
        await found.wait()
    return found


async def to_the_end(runner: Runner, paused: Run, session_id: str = "s") -> Run:
    """Answer what is open, one after the other."""
    while paused.pending:
        question = paused.pending[0]
        reply = question.reply("tea" if question.kind == "message" else "yes")
        paused = await run(runner, session_id, new_message=reply)
    return paused


async def events_of(service: Any, session_id: str = "s") -> list[Event]:
    session: Session = await service.get_session(app_name="app", user_id="u", session_id=session_id)
    return list(session.events)


async def invocation_of(service: Any, session_id: str = "s") -> Any:
    """The one invocation of a session."""
    [found] = [each for each in await service.list_invocations(app_name="app") if each.session_id == session_id]
    return found


async def test_a_fork_at_any_event_is_gone_on_with() -> None:
    """A fork of a workflow, paused or complete, goes on where its last event left it, and repeats nothing."""
    desk, service = Desk(), InMemorySessionService()
    runner = runner_of(desk, service)
    ended = await to_the_end(runner, await run(runner, new_message="go"))
    assert ended.answer is not None
    assert ended.answer.output == OUTPUT
    events = await events_of(service)
    for event in events:
        desk.effects.clear()
        forked = f"f{event.seq}"
        await service.fork_session(**KEY, at_seq=event.seq, new_session_id=forked)
        found = await invocation_of(service, forked)
        again = await run(runner, forked, invocation_id=found.invocation_id)
        again = await to_the_end(runner, again, forked)
        assert again.status == InvocationStatus.COMPLETED
        assert again.answer is not None
        assert again.answer.output == OUTPUT, event.seq
        recorded = [each.node_info.path for each in events[: event.seq] if each.actions.replay.ended]
        assert ("begin" in desk.effects) <= (not any("begin" in path for path in recorded))
        assert [*await events_of(service)] == events  # the session that was forked is as it was


async def test_a_failed_workflow_is_gone_on_with_in_a_fork() -> None:
    """What has failed in a session may be tried again in a fork of it, and the session itself stays failed."""
    desk, service = Desk(), InMemorySessionService()
    desk.fails = True
    runner = runner_of(desk, service)
    with pytest.raises(ConnectionError):
        await run(runner, new_message="go")
    desk.fails = False
    await service.fork_session(**KEY, new_session_id="f")
    found = await invocation_of(service, "f")
    assert found.status == InvocationStatus.FAILED
    desk.effects.clear()
    ended = await to_the_end(runner, await run(runner, "f", invocation_id=found.invocation_id), "f")
    assert ended.answer is not None
    assert ended.answer.output == OUTPUT
    assert desk.effects == []
    left = await invocation_of(service)
    assert left.status == InvocationStatus.FAILED


async def test_a_copy_in_another_store_is_gone_on_with(tmp_path: Path) -> None:
    """Events of a workflow that waits, which are read here and imported there, are gone on with there."""
    desk, service = Desk(), InMemorySessionService()
    runner = runner_of(desk, service)
    await run(runner, new_message="go")
    events = await service.read_events(**KEY)
    desk.effects.clear()
    async with SqliteSessionService(tmp_path / "copy.db") as copy:
        await copy.import_session(**KEY, events=events)
        there = runner_of(desk, copy)
        found = await invocation_of(service)
        again = await to_the_end(there, await run(there, invocation_id=found.invocation_id))
        assert again.answer is not None
        assert again.answer.output == OUTPUT
        assert desk.effects == []


@pytest.mark.parametrize("kind", ["paused", "failed", "completed"])
async def test_a_workflow_that_was_undone_begins_anew(kind: str) -> None:
    """After a rewind to before a workflow its questions and outcomes are gone, and the next run is a first one."""
    desk, service = Desk(), InMemorySessionService()
    desk.fails = kind == "failed"
    runner = runner_of(desk, service)
    try:
        paused = await run(runner, new_message="go")
        if kind == "completed":
            await to_the_end(runner, paused)
    except ConnectionError:
        assert kind == "failed"
    found = await invocation_of(service)
    await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=found.invocation_id)
    assert not await service.list_pending(app_name="app")
    desk.fails = False
    desk.effects.clear()
    ended = await to_the_end(runner, await run(runner, new_message="again"))
    assert ended.answer is not None
    assert ended.answer.output == OUTPUT
    assert sorted(desk.effects) == ["begin", "double 1", "double 2", "double 3"]


async def test_a_copy_of_a_failed_one_is_history() -> None:
    """In a store that has imported its events, a failed invocation is not known, and a new one begins."""
    desk, service = Desk(), InMemorySessionService()
    desk.fails = True
    with pytest.raises(ConnectionError):
        await run(runner_of(desk, service), new_message="go")
    failed = await invocation_of(service)
    desk.fails = False
    copy = InMemorySessionService()
    await copy.import_session(**KEY, events=await service.read_events(**KEY))
    there = runner_of(desk, copy)
    with pytest.raises(InvocationNotFoundError):
        await run(there, invocation_id=failed.invocation_id)
    ended = await to_the_end(there, await run(there, new_message="again"))
    assert ended.answer is not None
    assert ended.answer.output == OUTPUT
