"""What contexts say and note of their place, and how they refuse what is given to them: one program for each rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

from minirun import BaseAgent, Event, InMemoryRunner, InvocationContext, LlmAgent, RunConfig, Runner, ToolContext
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.errors import DeadlineExceededError, InvalidValueError, SecretError
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, RetryConfig
from minirun.types import Blob, Part

from ..helpers import PLACE, Logic, run_to_end, runner_for, stored_events
from .test_replay_order import Pause, a_second, first_run, go_on, one, speaker, texts, until
from .test_resume import cut_after, runner_of

SECRET = "sk-7f3a-very-secret"


async def ran(logic: Callable[[InvocationContext], Awaitable[None]]) -> list[Event]:
    """The events of one run of it."""
    events, _ = await run_to_end(runner_for(logic))
    return events


async def test_outside_of_nodes_an_agent_is_at_its_first_attempt_and_was_given_nothing() -> None:
    """Its path is that of its events."""
    told: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        told.append((ctx.attempt_count, ctx.node_input, ctx.node_path))
        await ctx.emit(Event(message="x"))

    (event,) = await ran(logic)
    assert told == [(1, None, event.node_info.path)] == [(1, None, "agent@1")]


async def test_a_stream_is_of_bytes_unless_its_type_is_given() -> None:
    """As they come out of it again."""
    loaded: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        await ctx.save_artifact_stream("a", [b"1", b"2"])
        await ctx.save_artifact_stream("b", [b"3"], "text/csv")
        loaded.extend([await ctx.load_artifact("a"), await ctx.load_artifact("b")])

    await ran(logic)
    assert [part.inline_data for part in loaded] == [
        Blob(data=b"12", mime_type="application/octet-stream"),
        Blob(data=b"3", mime_type="text/csv"),
    ]


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("filename", lambda ctx: ctx.save_artifact(SECRET, Part(text="x"))),
        ("artifact", lambda ctx: ctx.save_artifact("a", Part(text=SECRET))),
        ("custom_metadata", lambda ctx: ctx.save_artifact("a", Part(text="x"), {"key": SECRET})),
        ("filename", lambda ctx: ctx.save_artifact_stream(SECRET, [b"x"])),
        ("custom_metadata", lambda ctx: ctx.save_artifact_stream("a", [b"x"], "text/csv", {"key": SECRET})),
        ("filename", lambda ctx: ctx.load_artifact(SECRET)),
        ("name of the step", lambda ctx: ctx.step(SECRET, int)),
        ("state key", lambda ctx: ctx.emit(Event(state={SECRET: 1}))),
        ("Event.author", lambda ctx: ctx.emit(Event(author=SECRET))),
    ],
)
async def test_a_secret_is_refused_by_the_name_of_what_it_stands_in(
    what: str, use: Callable[[InvocationContext], Awaitable[Any]]
) -> None:
    """The message shows none of it."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(AuthConfig("k"))
        with pytest.raises(SecretError) as caught:
            await use(ctx)
        told.append(str(caught.value))

    told: list[str] = []
    credentials = InMemoryCredentialService()
    key = AuthCredential("api_key", api_key=SECRET)
    await credentials.save_credential(app_name="app", user_id="u", credential_key="k", credential=key)
    memory = InMemoryRunner(agent=Logic(name="agent", logic=logic), app_name="app", auto_create_session=True)
    runner = Runner(
        app=memory.app, session_service=memory.session_service, artifact_service=memory.artifact_service,
        credential_service=credentials, auto_create_session=True,
    )  # fmt: skip
    await run_to_end(runner)
    assert [text.partition(":")[0] for text in told] == [what]
    assert SECRET not in told[0]


async def test_a_payload_that_is_no_json_is_refused_by_its_name() -> None:
    """Of a question whether a call may be done."""
    told: list[str] = []

    def ask(tool_context: ToolContext) -> None:
        with pytest.raises(InvalidValueError) as caught:
            tool_context.request_confirmation(payload={"key": object()})
        told.append(str(caught.value))

    await run_to_end(runner_for(LlmAgent(name="a", model=ScriptedLlm([call("ask"), "done"]), tools=[ask])))
    assert [text.partition(":")[0] for text in told] == ["payload['key']"]


async def test_agents_that_an_agent_runs_in_tasks_of_its_own_may_come_in_another_order(
    autojump_clock: MockClock,
) -> None:
    """Nothing between them is in order: who is faster this time misses nothing that another one has said."""

    def agent(first: Pause, second: Pause) -> BaseAgent:
        agents = [speaker("a", 1, first), speaker("b", 1, second)]

        async def both(ctx: InvocationContext) -> None:
            async with trio.open_nursery() as nursery:
                for each in agents:
                    nursery.start_soon(each.run_async, ctx)

        return one("both", both)

    slow, fast = partial(trio.sleep, 2), partial(trio.sleep, 1)
    log = await first_run(agent(fast, slow))
    run, found = await go_on(agent(slow, fast), log, until(log, "a 0"))
    assert (run.status, texts(found)) == ("completed", ["a 0", "b 0"])


async def test_what_was_read_is_stored_by_names_that_no_state_has() -> None:
    """Logs of older versions have them, so they stay what they are."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.save_artifact("a", Part(text="x"))
        await ctx.list_artifacts()
        await ctx.load_artifact("a")
        ctx.state.get("key")
        await ctx.emit(Event(message="read"))

    runner = runner_for(logic)
    await run_to_end(runner)
    reads = (await stored_events(runner))[-1].actions.replay.reads
    assert {reader: sorted(seen) for reader, seen in reads.items()} == {
        "run/agent": ["key", "temp:artifacts", "temp:newest artifact a"]
    }


async def test_an_interrupt_after_the_deadline_is_raised(autojump_clock: MockClock) -> None:
    """Although it comes while an agent that has taken too long is cancelled."""

    async def logic(ctx: InvocationContext) -> None:
        try:
            await a_second()
            await a_second()
        finally:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        await run_to_end(runner_for(logic), run_config=RunConfig(deadline_s=1))
    assert not [note for note in getattr(caught.value, "__notes__", []) if DeadlineExceededError.__name__ in note]


async def test_an_interrupt_before_anything_new_ends_what_is_resumed(autojump_clock: MockClock) -> None:
    """Only a failure leaves an invocation as it was."""
    log = await first_run(speaker("a", 2, a_second))

    async def interrupt() -> None:
        raise KeyboardInterrupt

    runner = runner_of(speaker("a", 2, interrupt), await cut_after(log, until(log, "a 0")))
    with pytest.raises(KeyboardInterrupt):
        async with runner.run_async(**PLACE, invocation_id=log[0].invocation_id) as run:
            await run.wait()
    assert run.status == "failed"


async def test_what_an_earlier_attempt_has_said_is_given_back_at_a_checkpoint() -> None:
    """It is not said twice, and others have their turn all the same."""
    attempts: list[Event] = []

    async def try_it(tool_context: ToolContext) -> str:
        """Try it."""
        with assert_checkpoints():
            event = await tool_context.emit(Event(message="trying"))
        attempts.append(event)
        if len(attempts) == 1:
            raise OSError("once")
        return "done"

    tool = FunctionTool(try_it, retry=RetryConfig(max_attempts=2, initial_delay=0, jitter=0))
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([call("try_it"), "done"]), tools=[tool]))
    events, _ = await run_to_end(runner)
    assert [event.text for event in events if event.text] == ["trying", "done"]
    assert attempts == [events[1]] * 2


async def test_who_is_cancelled_says_nothing() -> None:
    """Neither as the first thing of a run nor later, and nor are fragments shown."""
    said: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        for text in ("one", "two"):
            for partial_ in (True, False):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await ctx.emit(Event(message=f"not {text}", partial=partial_ or None))
                    said.append(text)
            await ctx.emit(Event(message=text))

    runner = runner_for(logic)
    events, _ = await run_to_end(runner)
    assert ([event.text for event in events], said) == (["one", "two"], [])
    assert [event.text for event in await stored_events(runner)] == ["go", "one", "two"]


@pytest.mark.parametrize(
    ("error", "told"), [(ValueError("a\ud800b"), "a?b"), (ValueError(), "ValueError"), (OSError("é"), "é")]
)
async def test_a_failure_is_stored_as_text_that_every_store_takes(error: Exception, told: str) -> None:
    """One that says nothing is called what it is."""

    async def logic(ctx: InvocationContext) -> None:
        raise error

    runner = runner_for(logic)
    with pytest.raises(type(error)):
        await run_to_end(runner)
    event = (await stored_events(runner))[-1]
    assert (event.error_code, event.error_message, event.author) == (type(error).__name__, told, "agent")


async def test_what_is_said_of_a_failure_and_at_the_end_of_all_is_marked() -> None:
    """A replay does not wait for what is said while an exception is handled; nothing follows what ends all."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="in order"))
        try:
            raise OSError
        except OSError:
            await ctx.emit(Event(message="aside"))
            await ctx.emit(Event(id="mine", message="by its id"))
        ctx.end_invocation = True
        await ctx.emit(Event(message="last"))

    found = [event.actions for event in await ran(logic)]
    assert [bool(actions.replay.aside) for actions in found] == [False, True, False, False]
    assert [bool(actions.end_invocation) for actions in found] == [False, False, False, True]
