"""Runs that end, or are cut off, while a guardrail looks: what was held is nowhere, and verdicts are found again."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from minirun import (
    App,
    BaseAgent,
    Event,
    LlmAgent,
    Runner,
    SqliteSessionService,
)
from minirun.errors import (
    DeadlineExceededError,
    GuardrailTripwireError,
    StorageError,
)
from minirun.plugins import BasePlugin, DebugLoggingPlugin, GuardrailPlugin, LoggingPlugin
from minirun.runtime import CallbackContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool
from minirun.types import Content

from ..helpers import PLACE, run_to_end, stored_events
from ..interruptions import CancelAtStep, enumerate_steps, failing_commit
from ..otel import Recorder
from ..runtime.test_resume import cut_after
from .test_guardrails import (
    OK,
    SECRET,
    SSE,
    TRIP,
    Judgement,
    agent_with,
    app_runner,
    judge,
    no_bad_words,
    prompts,
    run_tripped,
)

# --- going on ---------------------------------------------------------------------------------------------------------


def everything(looked: list[str]) -> tuple[BaseAgent, list[BasePlugin]]:
    """A hand-over between agents that are guarded, with a tool and an agent that is a guardrail."""

    def looks(ctx: CallbackContext, content: Content) -> str | None:
        looked.append(content.text)
        ctx.state.add("looks", 1)
        return content.text.replace("card", "[card]") if "card" in content.text else None

    async def look(what: str) -> str:
        """Look."""
        return f"seen {what}"

    judging = LlmAgent(name="judge", model=ScriptedLlm(lambda request: OK), output_schema=Judgement)

    def says(request: Any) -> Any:
        last = request.contents[-1]
        if last.responses and last.responses[-1].name == "look":
            return "done"
        return call("look", what="it")

    tools = [FunctionTool(look, on_interrupted="rerun")]
    second = LlmAgent(name="b", model=ScriptedLlm(says), tools=tools, input_guardrails=[looks, judging])
    front = ScriptedLlm(lambda request: call("transfer_to_agent", agent_name="b"))
    return LlmAgent(name="front", model=front, sub_agents=[second]), [GuardrailPlugin(input=[looks], output=[looks])]


async def test_an_invocation_that_goes_on_takes_verdicts_from_the_log() -> None:
    """Cut off after any event, it comes to the same log; a guardrail whose verdict is stored is not asked again."""
    looked: list[str] = []
    agent, plugins = everything(looked)
    runner = await app_runner(agent, *plugins)
    _, run = await run_to_end(runner, "my card")
    assert run.answer is not None
    assert run.answer.text == "done"
    log, whole = await stored_events(runner), list(looked)
    assert whole == ["my card", "my [card]", "done"]

    def lasting(events: Sequence[Event]) -> list[Any]:
        kept = [event for event in events if event.actions.replay.asked is not True or event.content is not None]
        return [(event.author, event.branch, event.content, event.output, event.actions.state_delta) for event in kept]

    for count in range(1, len(log)):
        looked.clear()
        agent, plugins = everything(looked)
        service = await cut_after(log, count)
        again = Runner(app=App("app", agent, plugins=plugins), session_service=service)
        async with again.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
        stored = [each for each in await stored_events(again) if each.author != "user" or each.content is not None]
        assert sorted(map(repr, lasting(stored))) == sorted(map(repr, lasting(log))), count
        verdicts = [event for event in log[:count] if event.actions.replay.step is not None]
        assert len(looked) == 3 - sum("looks" in event.output.get("guardrails", ()) for event in verdicts), count


async def test_a_refused_message_stays_refused(autojump_clock: trio.testing.MockClock) -> None:
    """Who goes on with the invocation gets the same verdict, from the log; neither guardrail nor model is asked."""
    agent = agent_with(SECRET, input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    await run_tripped(runner)
    log, asked = await stored_events(runner), len(prompts(agent))
    for count in (2, 3):
        service = await cut_after(log, count)
        agent = agent_with(input_guardrails=[lambda ctx, content: None])
        again = Runner(agent=agent, app_name="app", session_service=service)
        with pytest.raises(GuardrailTripwireError) as caught:
            async with again.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
                await run.wait()
        assert caught.value.info == {"reason": "bad words"}
    assert asked == 0


async def test_a_refused_answer_may_be_given_again() -> None:
    """Who goes on with an invocation whose answer was refused has the model asked again, and the guardrail, too."""
    agent = agent_with(SECRET, "fine", output_guardrails=[judge(TRIP, OK)])
    runner = await app_runner(agent)
    await run_tripped(runner)
    invocation_id = (await stored_events(runner))[0].invocation_id
    async with runner.run_async(**PLACE, invocation_id=invocation_id) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.text == "fine"


async def test_a_pause_keeps_the_verdict() -> None:
    """A message whose invocation waits for somebody is not looked at again when it goes on."""
    looked: list[str] = []

    def pay() -> str:
        """Pay."""
        return "paid"

    def looks(ctx: CallbackContext, content: Content) -> None:
        looked.append(content.text)

    agent = agent_with(
        call("pay"), "done", tools=[FunctionTool(pay, require_confirmation=True)], input_guardrails=[looks]
    )
    runner = await app_runner(agent)
    _, run = await run_to_end(runner)
    assert run.status == "paused"
    async with runner.run_async(**PLACE, new_message=run.pending[0].reply(True)) as again:
        answer = await again.wait()
    assert answer is not None
    assert (answer.text, looked) == ("done", ["go"])


# --- what is refused is nowhere ---------------------------------------------------------------------------------------


def contents_of(folder: Path) -> list[bytes]:
    return [each.read_bytes() for each in folder.rglob("*") if each.is_file()]


@pytest.mark.parametrize("by", ["input", "output"])
@pytest.mark.parametrize("end", ["trip", "cancel", "deadline", "failure", "leave"])
async def test_what_was_held_is_nowhere(
    by: str, end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """However a run ends while an answer is held: neither the file, nor its WAL, nor logs and spans have the answer."""
    caplog.set_level(logging.DEBUG)
    spans = Recorder()

    async def holds(ctx: CallbackContext, content: Content) -> None:
        await trio.sleep(1)
        if end == "trip":
            raise GuardrailTripwireError("no")
        if end == "failure":
            raise ZeroDivisionError
        await trio.sleep_forever()

    guards: dict[str, Any] = {by: [holds]}
    watching = [LoggingPlugin(), DebugLoggingPlugin(tmp_path / "debug"), spans.plugin(capture_content=True)]
    agent = agent_with([f"{SECRET} ", SECRET])
    path = tmp_path / "held.db"
    files: list[bytes] = []
    async with SqliteSessionService(path) as sessions:
        runner = await app_runner(agent, *watching, GuardrailPlugin(**guards), sessions=sessions)
        config = attrs.evolve(SSE, deadline_s=5 if end == "deadline" else None)
        shown: list[Event] = []
        errors = (GuardrailTripwireError, ZeroDivisionError, DeadlineExceededError)
        with suppress(*errors), trio.move_on_after(3 if end == "cancel" else 1000):
            async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
                if end == "leave":
                    await trio.sleep(3)
                else:
                    async for event in run:
                        shown.append(event)
        files = contents_of(tmp_path)
    assert prompts(agent) == ([["go"]] if by == "output" else []), "the model was called before output guardrails only"
    files += contents_of(tmp_path)
    assert len(files) > 3
    assert not any(SECRET.encode() in data for data in files)
    assert SECRET not in caplog.text + repr(shown) + "".join(span.to_json() for span in spans.spans)


def test_a_run_cancelled_at_any_step_shows_nothing_that_was_held(tmp_path: Path) -> None:
    """At each step: no task is left, nothing held is in the file, and a new turn works."""

    async def attempt_at(step: int, number: int) -> int:
        async def looks(ctx: CallbackContext, content: Content) -> None:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            if "bad" in content.text or SECRET in content.text:
                raise GuardrailTripwireError("no")

        agent = LlmAgent(
            name="a", model=ScriptedLlm(lambda request: [f"{SECRET} ", "and more"]), output_guardrails=[looks],
            input_guardrails=[looks],
        )  # fmt: skip
        path = tmp_path / f"{number}.db"
        async with SqliteSessionService(path, durability="process") as sessions:
            runner = await app_runner(agent, sessions=sessions)
            tasks_before = trio.lowlevel.current_statistics().tasks_living
            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                message = ("bad", "good")[number % 2]
                try:
                    with pytest.raises(GuardrailTripwireError) if step > 1_000 else suppress(GuardrailTripwireError):
                        async with runner.run_async(**PLACE, new_message=message, run_config=SSE) as run:
                            async for event in run:
                                assert SECRET not in repr(event)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            assert trio.lowlevel.current_statistics().tasks_living == tasks_before, "a task is left"
            assert SECRET.encode() not in b"".join(contents_of(tmp_path))
            fine = Runner(agent=agent_with("fine"), app_name="app", session_service=sessions)
            _, run = await run_to_end(fine, "and now?")
            assert run.status == "completed"
        return instrument.steps

    numbers = itertools.count()
    def attempt(step: int) -> int:
        steps = trio.run(attempt_at, step, next(numbers))
        for path in tmp_path.iterdir():
            path.unlink()
        return steps

    interrupted, uninterrupted = enumerate_steps(attempt)
    print(f"{interrupted} interruption points, {uninterrupted} steps uninterrupted")
    assert interrupted >= uninterrupted


@pytest.mark.parametrize("mode", ["refused", "lost", "stored"])
async def test_a_store_that_fails_at_any_commit_shows_nothing_that_was_held(mode: str) -> None:
    """Whether the verdict or the answer could not be stored: the run fails with that, and nothing held was shown."""
    for number in range(1, 6):
        says_x = [lambda ctx, content: "x"]
        agent = agent_with([f"{SECRET} ", SECRET], input_guardrails=says_x, output_guardrails=says_x)
        runner = await app_runner(agent)
        counter = failing_commit(runner.session_service, number, mode)
        shown: list[Event] = []
        with suppress(StorageError):
            async with runner.run_async(**PLACE, new_message="go", run_config=SSE) as run:
                async for event in run:
                    shown.append(event)
        commits, counter[0] = counter[0], 1_000_000
        assert SECRET not in repr(shown)
        assert SECRET not in repr(await stored_events(runner))
        if commits < number:
            break
    assert number > 3


# --- while it looks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["hi", "my card", "hm, this"])
async def test_what_comes_after_a_verdict_is_looked_at_before_the_model_is_asked_again(
    first: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A message that is sent when the first one has passed, was replaced or got a word with it, trips as any other."""
    agent = agent_with(*["fine"] * 4, input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    with pytest.raises(GuardrailTripwireError):
        async with runner.run_async(**PLACE, new_message=first) as run:
            async for event in run:
                if event.seq == 2:
                    await run.send("bad")
    answers = [event for event in await stored_events(runner) if event.author == "a" and event.text == "fine"]
    assert len(answers) == (first == "hi"), "which was answered before"
    assert all(shown[-1] != "bad" for shown in prompts(agent))
