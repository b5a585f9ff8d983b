"""`Runner.supervise` and messages for paused invocations: the agent answers them, and what waits goes on waiting."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from minirun import Event, InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.errors import GuardrailTripwireError, StorageCorruptError
from minirun.models import LlmRequest
from minirun.runtime import CallbackContext
from minirun.sessions import BaseSessionService, InvocationStatus, KeyValueSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool
from minirun.types import Content
from minirun.workflow import START, Workflow

from ..helpers import PLACE
from ..postgres import execute
from ..sessions.test_key_value_store import InMemory
from ..stores import HERE, KINDS, database_of, services, sql


async def slow() -> None:
    """Begin something whose result comes later."""


def talk(request: LlmRequest) -> Any:
    """Begin the slow thing for the first message; then say which message, or else the result, is the newest."""
    if len(request.contents) == 1:
        return call("slow")
    results = [part.function_response for content in request.contents for part in content.parts]
    if any(result is not None and result.response.get("result") == "it" for result in results):
        return "thanks"
    return f"shown {[content.text for content in request.contents if content.role == 'user' and content.text][-1]}"


def agent_with(**fields: Any) -> LlmAgent:
    """An agent that waits for something slow."""
    return LlmAgent(name="a", model=ScriptedLlm(talk), tools=[LongRunningFunctionTool(slow)], **fields)


async def paused_run(service: BaseSessionService, agent: Any) -> tuple[Runner, Any]:
    """A runner and its run, which waits."""
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert run.status is InvocationStatus.PAUSED
    return runner, run


async def said(service: BaseSessionService) -> list[str]:
    """What was said, without calls and marks."""
    return [f"{each.author}: {each.text}" for each in await service.read_events(**HERE, after_seq=0) if each.text]


async def until(service: BaseSessionService, text: str) -> None:
    """Wait until somebody has said it, for some seconds."""
    with trio.fail_after(5):
        while text not in await said(service):  # noqa: ASYNC110 # another process could say it
            await trio.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_for_a_paused_invocation_is_answered_soon(kind: str, tmp_path: Path) -> None:
    """The model is asked with it while the call stays open; the event is the one that was promised, once."""
    async with services(tmp_path)[kind]() as service:
        runner, paused = await paused_run(service, agent_with())
        sent = await runner.send("also this", **PLACE)
        last = await runner.send("and that", **PLACE)
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(runner.supervise, every_s=0.01))
            await until(service, "a: shown and that")
            nursery.cancel_scope.cancel()
        assert await said(service) == [
            "user: go", "user: also this", "a: shown also this", "user: and that", "a: shown and that",
        ]  # fmt: skip
        events = await service.read_events(**HERE)
        assert [event.id for event in events if event.author == "user" and event.text][1:] == [sent, last]
        [question] = await service.list_pending(**HERE)
        assert question.invocation_id == paused.invocation_id
        async with runner.run_async(**PLACE, new_message=question.reply("it")) as run:
            await run.wait()
        assert (run.status, run.answer and run.answer.text) == (InvocationStatus.COMPLETED, "thanks")
        assert [str(one.status) for one in await service.list_invocations(**HERE)] == ["completed"] * 3


async def test_a_store_of_ones_own_wakes_agents_too() -> None:
    """A key-value store behind the service tells supervisors of its messages."""
    service = KeyValueSessionService(InMemory())
    runner, _ = await paused_run(service, agent_with())
    await runner.send("also this", **PLACE)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(runner.supervise, every_s=0.01))
        await until(service, "a: shown also this")
        nursery.cancel_scope.cancel()
    assert await said(service) == ["user: go", "user: also this", "a: shown also this"]


async def test_two_supervisors_answer_it_once(tmp_path: Path) -> None:
    """Who appends it first has it; the other one finds it gone."""
    async with SqliteSessionService(tmp_path / "x.db") as service, SqliteSessionService(tmp_path / "x.db") as other:
        runner, _ = await paused_run(service, agent_with())
        for number in range(5):
            await runner.send(f"message {number}", **PLACE)
        second = Runner(agent=agent_with(), app_name="app", session_service=other)
        async with trio.open_nursery() as nursery:
            for each in (runner, second):
                nursery.start_soon(partial(each.supervise, every_s=0.01))
            await until(service, "a: shown message 4")
            nursery.cancel_scope.cancel()
        asked = [f"message {number}" for number in range(5)]
        expected = [word for text in asked for word in (f"user: {text}", f"a: shown {text}")]
        assert (await said(service))[1:] == expected


async def test_what_is_for_the_end_waits(autojump_clock: trio.testing.MockClock) -> None:
    """A message with `when="idle"` is left to the invocation, which takes it at its end."""
    service = InMemorySessionService()
    runner, run = await paused_run(service, agent_with())
    await runner.send("later", **PLACE, when="idle")
    with trio.move_on_after(10):
        await runner.supervise()
    assert await said(service) == ["user: go"]
    async with runner.run_async(**PLACE, new_message=run.pending[0].reply("it")) as run:
        await run.wait()
    assert await said(service) == ["user: go", "a: thanks", "user: later", "a: thanks"]


async def test_a_paused_workflow_is_not_run_beside_itself(autojump_clock: trio.testing.MockClock) -> None:
    """Its message waits with it: another run of all its nodes is not what a word to it asks for."""
    service = InMemorySessionService()
    runner, _ = await paused_run(service, Workflow(name="flow", edges=[(START, agent_with())]))
    await runner.send("also this", **PLACE)
    with trio.move_on_after(10):
        await runner.supervise()
    assert await said(service) == ["user: go"]
    assert len(await service.list_invocations(**HERE)) == 1


async def test_guardrails_look_at_it(autojump_clock: trio.testing.MockClock) -> None:
    """What is refused is in no later prompt, and does not touch what waits."""

    def no_bad_words(ctx: CallbackContext, content: Content) -> None:
        if "bad" in content.text:
            raise GuardrailTripwireError({"why": "bad"})

    service = InMemorySessionService()
    agent = agent_with(input_guardrails=[no_bad_words])
    runner, _ = await paused_run(service, agent)
    await runner.send("bad words", **PLACE)
    await runner.send("good words", **PLACE)
    with trio.move_on_after(10):
        await runner.supervise()
    assert (await said(service))[-1] == "a: shown good words"
    assert [str(one.status) for one in await service.list_invocations(**HERE)] == ["paused", "failed", "completed"]
    assert isinstance(agent.model, ScriptedLlm)
    assert all(content.text != "bad words" for content in agent.model.requests[-1].contents)


async def test_a_supervisor_that_is_cancelled_leaves_the_answer_to_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The message is stored then, or still waits; the next supervisor answers it, once."""
    service = InMemorySessionService()
    slowly = agent_with()
    runner, _ = await paused_run(service, slowly)
    await runner.send("also this", **PLACE)
    again = Runner(
        agent=LlmAgent(name="a", model=ScriptedLlm(talk, latency_s=5), tools=slowly.tools), app_name="app",
        session_service=service,
    )  # fmt: skip
    for _ in range(3):
        with trio.move_on_after(2):
            await again.supervise()
    assert await said(service) == ["user: go", "user: also this"]
    with trio.move_on_after(10):
        await runner.supervise()
    assert await said(service) == ["user: go", "user: also this", "a: shown also this"]
    events: list[Event] = await service.read_events(**HERE)
    assert len({event.id for event in events}) == len(events)


@pytest.mark.parametrize("kind", ["sqlite process", "postgres"])
async def test_what_waits_and_is_for_no_invocation_is_corrupt(kind: str, tmp_path: Path) -> None:
    """A message whose invocation somebody has erased is told as such by runs and by looks at work."""
    async with services(tmp_path)[kind]() as service:
        _, run = await paused_run(service, agent_with())
        await run.send("later")
    if kind == "postgres":
        erased = "UPDATE minirun.events SET data = (data::jsonb - 'invocation_id')::text WHERE log < 0"
        execute(database_of(tmp_path), erased)
    else:
        sql(tmp_path / "process.db", "UPDATE events SET data = json_remove(data, '$.invocation_id') WHERE log < 0")
    async with services(tmp_path)[kind]() as service:
        runner = Runner(agent=agent_with(), app_name="app", session_service=service)
        with pytest.raises(StorageCorruptError, match=r"a message of session row 1: .* sent into an invocation"):
            async with runner.run_async(**PLACE, new_message="more"):
                raise AssertionError
        with pytest.raises(StorageCorruptError, match=r"a message in app 'app': .* sent into an invocation"):
            await service._called("app")
