"""Timeouts, retries and limits of tools: what the model is told, what is kept, and that no slot is ever lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from minirun import Event, FunctionTool, InMemoryRunner, LlmAgent, RunConfig, Runner, ToolContext
from minirun.errors import (
    ArgumentError,
    ConfigurationError,
    FatalError,
    InvocationEndedError,
    LlmCallsLimitExceededError,
    ToolTimeoutError,
)
from minirun.models import LlmRequest
from minirun.runners._runner import TOOL_THREADS
from minirun.runtime import Run
from minirun.simulation import SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset, RetryConfig
from minirun.types import Part

from ..helpers import PLACE, run_to_end, runner_for, stored_events
from ..interruptions import CancelAtStep, enumerate_steps, open_calls
from ..simulation.stores import simulate, why_unavailable

AT_ONCE = RetryConfig(initial_delay=0)


async def answers(tools: Sequence[Any], *calls: Part, **options: Any) -> list[dict[str, Any]]:
    """What a turn with these calls is answered with, in call order."""
    model = ScriptedLlm([list(calls), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="agent", model=model, tools=tools)), **options)
    model.assert_done()
    return responses(events)


def responses(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [dict(response.response) for event in events for response in event.get_function_responses()]


def error_of(response: dict[str, Any]) -> tuple[str, str]:
    """The type and the message of an error response."""
    return response["error"]["type"], response["error"]["message"]


# --- time -------------------------------------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    """After timeout_s the tool is cancelled, the model is told a ToolTimeoutError, and what it wrote is dropped."""
    cancelled_at: list[float] = []

    async def slow(tool_context: ToolContext) -> None:
        tool_context.state["dropped"] = 1
        try:
            await trio.sleep_forever()
        finally:
            cancelled_at.append(trio.current_time() - begun_at)

    begun_at = trio.current_time()
    model = ScriptedLlm([call("slow"), "done"])
    agent = LlmAgent(name="agent", model=model, tools=[FunctionTool(slow, timeout_s=2.5)])
    events, run = await run_to_end(runner_for(agent))
    assert cancelled_at == [pytest.approx(2.5)]
    assert error_of(responses(events)[0]) == (
        "ToolTimeoutError",
        "the call took longer than timeout_s=2.5 seconds and was cancelled",
    )
    assert dict(run.session.state) == {}
    assert issubclass(ToolTimeoutError, TimeoutError)


@pytest.mark.parametrize("error", [TimeoutError, trio.TooSlowError])
async def test_a_tools_own_timeout_is_its_own_error(
    error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    """What a tool raises before its time is over is told as it is, a TimeoutError too."""

    async def gives_up() -> None:
        with trio.fail_after(1):
            await trio.sleep(0.5)
        raise error("the server is slow")

    [found] = await answers([FunctionTool(gives_up, timeout_s=2)], call("gives_up"))
    assert error_of(found) == (error.__name__, "the server is slow")


async def test_what_a_tool_ends_with_in_its_clean_up_counts(autojump_clock: trio.testing.MockClock) -> None:
    """Cancelled for its time, a tool that returns or raises all the same has that outcome; a group tells of both."""

    async def returns() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "late, but done"

    async def raises() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            msg = "half done"
            raise ValueError(msg) from None

    async def fails_beside() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await raises()

    tools = [FunctionTool(each, timeout_s=2) for each in (returns, raises, fails_beside)]
    found = await answers(tools, call("returns"), call("raises"), call("fails_beside"))
    assert found[0] == {"result": "late, but done"}
    assert error_of(found[1]) == ("ValueError", "half done")
    kind, message = error_of(found[2])
    assert kind == "ToolTimeoutError"
    assert message.endswith("was cancelled; then it failed with ValueError: half done")


async def test_a_fatal_error_is_no_timeout(autojump_clock: trio.testing.MockClock) -> None:
    """A limit of the run that a tool meets ends the run, in its clean-up and with a retry policy too."""

    async def fatal() -> None:
        try:
            await trio.sleep_forever()
        finally:
            msg = "enough"
            raise LlmCallsLimitExceededError(msg)

    async def beside() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fatal)

    for each in (fatal, beside):
        tool = FunctionTool(each, timeout_s=1, retry=AT_ONCE)
        with pytest.raises(LlmCallsLimitExceededError, match="enough"):
            await answers([tool], call(tool.name))


@pytest.mark.parametrize("leave_at", [1, 2, 3])
async def test_leaving_the_run_is_never_a_timeout(leave_at: int, autojump_clock: trio.testing.MockClock) -> None:
    """A cancellation from outside is told as one, before the tool's time is over, at that moment and after it."""

    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    tool = FunctionTool(slow, timeout_s=2)
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([call("slow")]), tools=[tool]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await anext(run)
        with trio.move_on_after(leave_at):
            await anext(run)
    assert error_of(responses(await stored_events(runner))[0])[0] == "cancelled"


async def turn_in_thread(
    work: Callable[[Callable[[], None]], object],
    mock_clock: trio.testing.MockClock,
    after: Callable[[], None],
    **options: Any,
) -> tuple[str, str]:
    """
    Call `work(ready)` in a thread, let its time pass once it is ready, and do *after*.

    Returns the error that the call is answered with.
    """
    started = trio.Event()

    def begin() -> object:
        return work(lambda: trio.from_thread.run_sync(started.set))

    found: list[dict[str, Any]] = []

    async def turn() -> None:
        found.extend(await answers([FunctionTool(begin, timeout_s=3, **options)], call("begin")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn)
        await started.wait()
        mock_clock.jump(4)
        await trio.testing.wait_all_tasks_blocked()
        after()
    return error_of(found[0])


@pytest.mark.parametrize("fails", [False, True])
async def test_a_thread_that_ends_after_its_time_is_a_timeout_that_says_so(
    fails: bool, mock_clock: trio.testing.MockClock
) -> None:
    """What a thread gives within thread_grace_s after its timeout is dropped; the model is told how it ended."""
    go_on = threading.Event()

    def work(ready: Callable[[], None]) -> str:
        ready()
        go_on.wait(120)
        if fails:
            msg = "no luck"
            raise ValueError(msg)
        return "worked"

    kind, message = await turn_in_thread(work, mock_clock, go_on.set)
    assert kind == "ToolTimeoutError"
    how = "with ValueError: no luck" if fails else "with a result, which was dropped"
    assert message == f"the call took longer than timeout_s=3 seconds; its thread has ended since, {how}"


async def test_a_thread_that_goes_on_after_its_time_is_of_unknown_outcome(mock_clock: trio.testing.MockClock) -> None:
    """After thread_grace_s more the call is answered as outcome unknown, and is not made again beside its thread."""
    go_on = threading.Event()
    calls: list[None] = []

    def work(ready: Callable[[], None]) -> None:
        calls.append(None)
        ready()
        go_on.wait(120)

    kind, message = await turn_in_thread(work, mock_clock, lambda: mock_clock.jump(11), retry=AT_ONCE)
    go_on.set()
    assert kind == "outcome_unknown"
    assert message.endswith("its thread did not end in time; it may still take effect")
    assert len(calls) == 1


async def abandon_threads(runner: Runner, started: threading.Semaphore, count: int) -> Run:
    """Leave a run while *count* threads of it have begun and wait for something."""
    async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(thread_grace_s=0)) as run:
        await anext(run)
        with trio.move_on_after(0):
            await anext(run)
        for _ in range(count):
            await trio.to_thread.run_sync(started.acquire)
    return run


async def test_an_abandoned_thread_takes_no_place_from_others(caplog: pytest.LogCaptureFixture) -> None:
    """One thread less is given up than may run at once: two later synchronous tools run at once, and the log tells."""
    go_on, started, both = threading.Event(), threading.Semaphore(0), threading.Barrier(2, timeout=120)

    def hang() -> None:
        started.release()
        go_on.wait(120)

    def work() -> str:
        both.wait()
        return "worked"

    given_up = TOOL_THREADS - 1
    model = ScriptedLlm([[call("hang")] * given_up, [call("work")] * 2, "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[hang, work]))
    run = await abandon_threads(runner, started, given_up)
    assert run.abandoned_threads == given_up
    events, later = await run_to_end(runner)
    assert (responses(events), later.abandoned_threads) == ([{"result": "worked"}] * 2, 0)
    assert len(caplog.messages) == given_up
    assert "hang was cancelled" in caplog.messages[-1]
    assert caplog.messages[-1].endswith("39 of at most 40 such threads of this runner still run")
    go_on.set()


async def test_too_many_abandoned_threads_fail_later_calls_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """While as many abandoned threads run as may, calls in threads fail with a typed error; then they work again."""
    go_on, started = threading.Event(), threading.Semaphore(0)
    begun: list[None] = []

    def hang() -> None:
        started.release()
        go_on.wait(120)

    def work() -> int:
        begun.append(None)
        return len(begun)

    model = ScriptedLlm([[call("hang")] * TOOL_THREADS, call("work"), "failed", call("work"), "done"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[hang, work]))
    await abandon_threads(runner, started, TOOL_THREADS)
    events, _ = await run_to_end(runner)
    kind, message = error_of(responses(events)[0])
    assert (kind, begun) == ("ThreadsExhaustedError", [])
    assert message.startswith("expected fewer than 40 abandoned threads of tools, found 40 that still run")
    go_on.set()
    while runner._program.tool_limits.threads.abandoned:  # the threads end one after another
        await trio.lowlevel.checkpoint()
    events, _ = await run_to_end(runner)
    assert responses(events) == [{"result": 1}]
    assert sum("goes on alone" in message for message in caplog.messages) == TOOL_THREADS


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_call_that_has_got_no_thread_is_never_begun(how: str, mock_clock: trio.testing.MockClock) -> None:
    """A call that still waits for a thread when it is cancelled is answered so, and never takes effect."""
    go_on, started = threading.Event(), threading.Semaphore(0)
    begun: list[None] = []

    def work() -> str:
        begun.append(None)
        started.release()
        go_on.wait(120)
        return "worked"

    model = ScriptedLlm([[call("work")] * (TOOL_THREADS + 1), "done"])
    tool = FunctionTool(work, timeout_s=1 if how == "timeout" else None)
    runner = runner_for(LlmAgent(name="a", model=model, tools=[tool]))
    async with runner.run_async(**PLACE, new_message="go") as run, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def read() -> None:
            with scope:
                await run.wait()

        async def end_threads() -> None:
            """Let them end once everybody knows that time is up."""
            while runner._program.tool_limits.threads.limiter.statistics().tasks_waiting:
                await trio.lowlevel.checkpoint()
            go_on.set()

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(TOOL_THREADS):
            await trio.to_thread.run_sync(started.acquire)
        if how == "timeout":
            mock_clock.jump(2)
            await end_threads()
        else:
            scope.cancel()
            trio.lowlevel.spawn_system_task(end_threads)  # leaving the run waits for the threads
    assert len(begun) == TOOL_THREADS
    found = Counter(str(response) for response in responses(await stored_events(runner)))
    [(last, _)] = [item for item in found.items() if item[1] == 1]
    assert sorted(found.values()) == [1, TOOL_THREADS]
    assert ("waiting for a thread; it was not begun" if how == "timeout" else "'cancelled'") in last


# --- retries ----------------------------------------------------------------------------------------------------------


async def test_a_failed_call_is_made_again_from_the_state_as_it_was(autojump_clock: trio.testing.MockClock) -> None:
    """Each attempt starts anew under the same id; what the failed ones wrote is gone, and their contexts are closed."""
    contexts: list[ToolContext] = []
    seen: list[Any] = []

    async def flaky(tool_context: ToolContext) -> str:
        contexts.append(tool_context)
        seen.append((tool_context.state.get("k"), tool_context.actions.skip_summarization))
        tool_context.state["k"] = len(contexts)
        tool_context.state[f"by {len(contexts)}"] = True
        tool_context.state.add("n")
        tool_context.actions.skip_summarization = len(contexts) == 1 or None
        if len(contexts) < 3:
            msg = "no luck"
            raise ValueError(msg)
        return "third time lucky"

    model = ScriptedLlm([call("flaky"), "done"])
    tool = FunctionTool(flaky, retry=RetryConfig())
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    model.assert_done()
    assert responses(events) == [{"result": "third time lucky"}]
    assert seen == [(None, None)] * 3
    assert dict(run.session.state) == {"k": 3, "by 3": True, "n": 1}
    assert len({context.function_call_id for context in contexts}) == 1
    assert len(set(map(id, contexts))) == 3
    for context in contexts:
        with pytest.raises(InvocationEndedError):
            context.state["k"] = 0


async def test_what_a_failed_attempt_has_emitted_stays(autojump_clock: trio.testing.MockClock) -> None:
    """The events that a tool emits are stored, whatever becomes of the attempt; the state that they carry, too."""
    attempts: list[None] = []

    async def talks(tool_context: ToolContext) -> int:
        attempts.append(None)
        tool_context.state.add("said")
        await tool_context.emit(Event(message=f"attempt {len(attempts)}"))
        tool_context.state["after"] = len(attempts)
        if len(attempts) == 1:
            raise OSError("no route")
        return tool_context.state["said"]  # type: ignore[no-any-return]  # it is a number

    model = ScriptedLlm([call("talks"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(talks, retry=RetryConfig())])
    events, run = await run_to_end(runner_for(agent))
    assert [event.text for event in events] == ["", "attempt 1", "attempt 2", "", "done"]
    assert responses(events) == [{"result": 2}]
    assert dict(run.session.state) == {"said": 2, "after": 2}


async def test_the_actions_of_a_hook_before_a_tool_are_carried_once(autojump_clock: trio.testing.MockClock) -> None:
    """What `before_tool_callback` has asked for goes with the first event of the call; later ones do not repeat it."""
    attempts: list[None] = []

    async def hook(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> None:
        await tool_context.save_artifact("plan.txt", Part(text="plan"))
        tool_context.actions.skip_summarization = True

    async def talks(tool_context: ToolContext) -> None:
        attempts.append(None)
        await tool_context.emit(Event(message=f"attempt {len(attempts)}"))
        raise OSError("no route")

    model = ScriptedLlm([call("talks"), "done"])
    tool = FunctionTool(talks, retry=RetryConfig(max_attempts=2))
    agent = LlmAgent(name="a", model=model, tools=[tool], before_tool_callback=hook)
    events, _ = await run_to_end(runner_for(agent))
    assert [event.text for event in events if event.actions.artifact_delta] == ["attempt 1"]
    assert [event.text for event in events if event.actions.skip_summarization] == ["attempt 1"]
    assert responses(events)[0]["error"]["message"] == "no route (2 attempts were made)"


async def test_the_delays_grow_to_their_bound(autojump_clock: trio.testing.MockClock) -> None:
    """Attempts are delayed by initial_delay, then backoff_factor times as long each, at most max_delay."""
    times: list[float] = []

    async def fails() -> None:
        times.append(trio.current_time())
        raise OSError("no route")

    retry = RetryConfig(max_attempts=6, initial_delay=1, backoff_factor=3, max_delay=10, jitter=0)
    [found] = await answers([FunctionTool(fails, retry=retry)], call("fails"))
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([1, 3, 9, 10, 10])
    assert error_of(found) == ("OSError", "no route (6 attempts were made)")


numbers = st.floats(0, 1e6)


@given(
    initial=numbers,
    most=numbers,
    factor=st.floats(1, 100),
    jitter=st.floats(0, 1),
    luck=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_never_negative_and_stays_below_its_bound(
    initial: float, most: float, factor: float, jitter: float, luck: float
) -> None:
    """Whatever the settings and the luck, a delay is between 0 and max_delay and its jitter, and it does not shrink."""
    retry = RetryConfig(initial_delay=initial, max_delay=most, backoff_factor=factor, jitter=jitter)
    delays = [retry.delay_s(attempts, luck) for attempts in (1, 2, 3, 10, 1_000_000)]
    assert all(0 <= delay <= most * (1 + jitter) for delay in delays)
    assert delays == sorted(delays)
    assert retry.delay_s(3, 0) <= delays[2] <= retry.delay_s(3, 1)


class Child(ConnectionError):
    pass


@pytest.mark.parametrize(
    ("exceptions", "error", "covered"),
    [
        (None, ValueError(), True),
        (None, ArgumentError(), False),
        (None, ToolTimeoutError(), True),
        (None, LlmCallsLimitExceededError(), False),
        ([], ValueError(), False),
        ([OSError], Child(), True),
        (["OSError"], Child(), True),
        (["Child"], Child(), True),
        (["Child"], ConnectionError(), False),
        ([KeyError, "ConnectionError"], Child(), True),
        ([TimeoutError], ToolTimeoutError(), True),
        ([Exception], LlmCallsLimitExceededError(), False),
        (["FatalError"], LlmCallsLimitExceededError(), False),
        ([ValueError], ArgumentError(), False),
        (["ArgumentError"], ArgumentError(), True),
        ([ArgumentError], ArgumentError(), True),
    ],
)
def test_what_is_worth_another_attempt(exceptions: Any, error: Exception, covered: bool) -> None:
    """Classes and names match what is derived from them; nothing makes a fatal error worth one."""
    assert RetryConfig(exceptions=exceptions).covers(error) is covered


async def test_what_a_retry_cannot_help_is_tried_once(autojump_clock: trio.testing.MockClock) -> None:
    """Arguments that do not fit, and errors that the policy does not list, are answered after one attempt."""
    calls: list[int] = []

    async def fails(x: int) -> None:
        calls.append(x)
        raise OSError("no route")

    listed = FunctionTool(fails, name="listed", retry=RetryConfig(exceptions=["KeyError"]))
    every = FunctionTool(fails, name="every", retry=RetryConfig())
    found = await answers([listed, every], call("listed", x=1), call("every", x="one"))
    assert error_of(found[0]) == ("OSError", "no route")
    assert found[1]["error"]["type"] == "ArgumentError"
    assert calls == [1]


async def test_a_result_that_is_no_json_is_not_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    """A tool that has done its work, and cannot say what came of it, does not do it again."""
    calls: list[None] = []

    async def odd() -> object:
        calls.append(None)
        return object()

    [found] = await answers([FunctionTool(odd, retry=RetryConfig())], call("odd"))
    assert found["error"]["type"] == "InvalidValueError"
    assert len(calls) == 1


async def test_a_timeout_is_tried_again_and_counts_from_the_attempt(autojump_clock: trio.testing.MockClock) -> None:
    """Every attempt has the whole timeout_s; the delays between them do not count."""
    attempts: list[float] = []

    async def slow() -> str:
        attempts.append(trio.current_time())
        await trio.sleep(4 if len(attempts) < 3 else 2.9)
        return "in time"

    retry = RetryConfig(initial_delay=10, backoff_factor=1, jitter=0)
    [found] = await answers([FunctionTool(slow, timeout_s=3, retry=retry)], call("slow"))
    assert found == {"result": "in time"}
    assert [later - earlier for earlier, later in pairwise(attempts)] == pytest.approx([13, 13])


async def test_leaving_during_a_delay_answers_with_the_last_error(autojump_clock: trio.testing.MockClock) -> None:
    """A call that waits for its next attempt when the run is left is answered with what the last one failed with."""

    async def fails() -> None:
        raise OSError("no route")

    tool = FunctionTool(fails, retry=RetryConfig(initial_delay=10, backoff_factor=1, jitter=0))
    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([call("fails")]), tools=[tool]))
    async with runner.run_async(**PLACE, new_message="go") as run:
        await anext(run)
        with trio.move_on_after(15):
            await anext(run)
    assert error_of(responses(await stored_events(runner))[0]) == ("OSError", "no route (2 attempts were made)")


async def test_the_end_of_the_invocation_ends_the_attempts(autojump_clock: trio.testing.MockClock) -> None:
    """Once somebody has set end_invocation, no failed call is made again."""
    calls: list[None] = []

    async def fails(tool_context: ToolContext) -> None:
        calls.append(None)
        tool_context.end_invocation = len(calls) == 2
        raise OSError("no route")

    model = ScriptedLlm([call("fails")])
    tool = FunctionTool(fails, retry=RetryConfig())
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    assert error_of(responses(events)[0]) == ("OSError", "no route (2 attempts were made)")


# --- concurrency ------------------------------------------------------------------------------------------------------


class Gauge:
    """A tool's body that notes who is in it, and how many at most."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.order: list[int] = []

    async def work(self, x: int = 0) -> int:
        """Take a second."""
        self.order.append(x)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await trio.sleep(1)
        finally:
            self.now -= 1
        return x


def calling(tools: Sequence[Any], *calls: Part) -> LlmAgent:
    """An agent whose model makes these calls in each turn."""
    model = ScriptedLlm(lambda request: "done" if _answered(request) else list(calls))
    return LlmAgent(name="agent", model=model, tools=tools)


def _answered(request: LlmRequest) -> bool:
    return request.contents[-1].parts[-1].function_response is not None


@given(limit=st.integers(1, 4), calls=st.integers(1, 7))
def test_no_more_calls_run_at_once_than_the_tool_allows(limit: int, calls: int) -> None:
    """The calls of a turn run in call order, as many at once as there may be, and all of them are answered."""
    gauge = Gauge()

    async def main() -> None:
        tool = FunctionTool(gauge.work, max_concurrency=limit)
        found = await answers([tool], *(call("work", x=number) for number in range(calls)))
        assert found == [{"result": number} for number in range(calls)]
        assert trio.current_time() - begun_at == pytest.approx(-(-calls // limit))

    clock = trio.testing.MockClock(autojump_threshold=0)
    begun_at = clock.current_time()
    trio.run(main, clock=clock)
    assert gauge.most == min(limit, calls)
    waves = [gauge.order[first : first + limit] for first in range(0, calls, limit)]
    assert [number for wave in waves for number in sorted(wave)] == list(range(calls))


async def test_the_limit_belongs_to_the_tool_and_the_runner(autojump_clock: trio.testing.MockClock) -> None:
    """All runs of a Runner share a tool's limit, under each of its names; other tools and Runners have their own."""
    shared, other = Gauge(), Gauge()

    class Shelf(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
            return [tool]

    tool = FunctionTool(shared.work, name="shared", max_concurrency=2)
    free = FunctionTool(other.work, name="other", max_concurrency=9)
    [again] = await Shelf(tool_name_prefix="my").get_tools_with_prefix()
    agent = calling([tool, again, free], call("shared"), call("my_shared"), call("other"))
    runners = [runner_for(agent), runner_for(agent)]
    async with trio.open_nursery() as nursery:
        for session in range(3):
            nursery.start_soon(partial(_run, runners[0], str(session)))
    assert (shared.most, other.most) == (2, 3)
    async with trio.open_nursery() as nursery:
        for runner in runners:
            nursery.start_soon(partial(_run, runner, "more"))
    assert shared.most == 4


async def _run(runner: Runner, session_id: str, message: str = "go") -> None:
    async with runner.run_async(user_id="u", session_id=session_id, new_message=message) as run:
        await run.wait()


async def test_who_comes_first_has_the_first_turn(autojump_clock: trio.testing.MockClock) -> None:
    """Runs that come one after another have their turns in that order."""
    gauge = Gauge()

    def asks(request: LlmRequest) -> Any:
        return "done" if _answered(request) else call("work", x=int(request.contents[-1].text))

    tool = FunctionTool(gauge.work, max_concurrency=1)
    runner = runner_for(LlmAgent(name="agent", model=ScriptedLlm(asks), tools=[tool]))
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(partial(_run, runner, str(number), str(number)))
            await trio.sleep(0.1)
    assert gauge.order == list(range(6))


async def test_waiting_for_a_turn_takes_no_time(autojump_clock: trio.testing.MockClock) -> None:
    """An attempt's timeout_s begins with its turn."""
    tool = FunctionTool(Gauge().work, max_concurrency=1, timeout_s=1.5)
    assert await answers([tool], *[call("work")] * 5) == [{"result": 0}] * 5


async def test_a_call_that_waits_to_be_made_again_has_no_slot(autojump_clock: trio.testing.MockClock) -> None:
    """During the delay of one call another one has its turn."""
    order: list[str] = []

    async def work(x: str) -> str:
        order.append(x)
        if order.count("a") == 1 and x == "a":
            raise OSError
        return x

    tool = FunctionTool(work, max_concurrency=1, retry=RetryConfig(initial_delay=10))
    assert await answers([tool], call("work", x="a"), call("work", x="b")) == [{"result": "a"}, {"result": "b"}]
    assert order == ["a", "b", "a"]


async def test_an_abandoned_thread_has_no_slot(mock_clock: trio.testing.MockClock) -> None:
    """A tool whose thread never ends can be called again once that call was answered."""
    go_on, started = threading.Event(), trio.Event()
    calls: list[None] = []

    def work() -> int:
        calls.append(None)
        if len(calls) == 1:
            trio.from_thread.run_sync(started.set)
            go_on.wait(120)
        return len(calls)

    runner = runner_for(calling([FunctionTool(work, max_concurrency=1)], call("work")))
    async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(thread_grace_s=0)) as run:
        await anext(run)
        with trio.move_on_after(0):
            await anext(run)
        await started.wait()
    assert not runner._program.tool_limits._lines, "somebody stands in line"
    events, _ = await run_to_end(runner)
    assert responses(events) == [{"result": 2}]
    go_on.set()


def test_one_runner_serves_one_trio_run_after_another_with_a_limit() -> None:
    """What one trio.run has counted is nothing to the next."""
    gauge = Gauge()
    agent = calling([FunctionTool(gauge.work, max_concurrency=1)], call("work"), call("work"))
    runner = runner_for(agent)
    for turn in (1, 2):
        trio.run(_run, runner, "s", clock=trio.testing.MockClock(autojump_threshold=0))
        assert (len(gauge.order), gauge.most) == (2 * turn, 1)


# --- whatever interrupts it -------------------------------------------------------------------------------------------


class Busy:
    """Three tools that wait for their turns, time out, fail and are made again, one in threads; and seven calls."""

    def __init__(self) -> None:
        self.flaky_gauge, self.slow_gauge = Gauge(), Gauge()
        self.attempts: Counter[str | None] = Counter()
        retry = RetryConfig(max_attempts=2, initial_delay=3)
        tools = [
            FunctionTool(self.flaky, max_concurrency=1, retry=retry),
            FunctionTool(self.slow, max_concurrency=1, retry=retry, timeout_s=0.5),
            FunctionTool(self.in_thread, max_concurrency=1),
        ]
        calls = [call("flaky", x=1), call("slow"), call("in_thread", x=1)]
        self.agent = calling(
            tools, *calls, call("flaky", x=2), call("flaky", x=3), call("slow"), call("in_thread", x=2)
        )

    async def flaky(self, x: int, tool_context: ToolContext) -> int:
        """Succeed with the x-th attempt."""
        self.attempts[tool_context.function_call_id] += 1
        await self.flaky_gauge.work()
        if self.attempts[tool_context.function_call_id] < x:
            raise OSError("no route")
        return x

    async def slow(self) -> None:
        await self.slow_gauge.work()

    def in_thread(self, x: int) -> int:
        return x


async def interrupted_batch(step: int) -> int:
    """Run a busy turn, cancelled at this step; then everything is answered, and the same runner has a whole turn."""
    busy = Busy()
    runner = InMemoryRunner(agent=busy.agent, app_name="app", auto_create_session=True)
    config = RunConfig(deadline_s=None)  # the clock goes on while threads work
    tasks_before = trio.lowlevel.current_statistics().tasks_living
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
                await run.wait()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    assert trio.lowlevel.current_statistics().tasks_living == tasks_before, "a task is left"
    assert not runner._program.tool_limits._lines, "somebody stands in line"
    if await runner.session_service.get_session(app_name="app", **PLACE) is not None:
        assert open_calls(await stored_events(runner)) == []
    events, _ = await run_to_end(runner, run_config=config)
    found = [answer["error"]["type"] if "error" in answer else answer["result"] for answer in responses(events)]
    assert found == [1, "ToolTimeoutError", 1, 2, "OSError", "ToolTimeoutError", 2]
    assert (busy.flaky_gauge.most, busy.slow_gauge.most) == (1, 1)
    return instrument.steps


def test_a_batch_that_is_cancelled_at_any_step_loses_no_slot() -> None:
    """A cancellation at any step leaves nobody in line, answers each call once, and the tools work as before."""

    def attempt(step: int) -> int:
        return trio.run(interrupted_batch, step, clock=trio.testing.MockClock(autojump_threshold=0))

    interrupted, uninterrupted = enumerate_steps(attempt)
    print(f"{interrupted} interruption points, {uninterrupted} steps uninterrupted")
    assert interrupted >= uninterrupted


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@pytest.mark.parametrize("seeds", [60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_whatever_goes_wrong_a_limited_tool_keeps_its_limits(seeds: int) -> None:
    """Simulated tools raise, hang and lose results, and users leave: no limit and no promise breaks."""
    coverage: Counter[str] = Counter()

    async def busy_world(world: World) -> None:
        gauge = Gauge()
        attempts: Counter[str | None] = Counter()

        async def on_loop(x: int, tool_context: ToolContext) -> int:
            attempts[tool_context.function_call_id] += 1
            tool_context.state["attempts"] = attempts[tool_context.function_call_id]
            return await gauge.work(x)

        def in_thread(x: int, tool_context: ToolContext) -> int:
            attempts[tool_context.function_call_id] += 1
            return x

        retry = RetryConfig(max_attempts=3, initial_delay=5)
        tools = [
            FunctionTool(on_loop, max_concurrency=2, timeout_s=20, retry=retry),
            FunctionTool(in_thread, max_concurrency=1, timeout_s=20, retry=retry),
        ]
        calls = [call("on_loop", x=1), call("in_thread", x=2), call("on_loop", x=3), call("on_loop", x=4)]
        runner = world.runner(lambda: calling(tools, *calls))
        world.always(lambda: gauge.most <= 2 and max(attempts.values(), default=0) <= 3)
        async with trio.open_nursery() as nursery:
            for user in ("ada", "bob"):
                nursery.start_soon(world.say, runner, user, "go")
        coverage.update(world.coverage)
        coverage["made again"] += any(count > 1 for count in attempts.values())

    kinds = ("made again", "tool: raises", "tool: raises after its work", "tool: hangs", "tool: cancelled")
    for seed in range(seeds):
        outcome = simulate(busy_world, SeededChoices(seed), faults=("tools", "users"), storage="memory")
        assert outcome.failure is None, f"seed {seed}: {outcome}"
        if seeds < 1_000 and all(coverage[kind] for kind in kinds):
            break
    print(dict(coverage))
    for kind in kinds:
        assert coverage[kind], f"no simulation has met: {kind}"


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": float("inf")}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"timeout_s": "5"}, "timeout_s"),
        ({"retry": 3}, "RetryConfig"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": 1.5}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
    ],
)
def test_limits_that_mean_nothing_are_refused(options: dict[str, Any], problem: str) -> None:
    """A limit is a positive number, or None; the error names the tool and the limit."""
    with pytest.raises(ConfigurationError, match=rf"'work'.*{problem}"):
        FunctionTool(Gauge().work, **options)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_attempts", [0, -1, 1.5, True, None, "3"]),
        ("initial_delay", [-1, float("nan"), float("inf"), "1", None]),
        ("max_delay", [-0.1, float("inf"), True]),
        ("backoff_factor", [0.5, 0, float("nan")]),
        ("jitter", [-0.1, 1.1, None]),
        (
            "exceptions",
            ["OSError", 5, [BaseException], [KeyboardInterrupt], [FatalError], [5], ["no name"], [OSError()]],
        ),
    ],
)
def test_retry_settings_that_mean_nothing_are_refused(name: str, values: Sequence[Any]) -> None:
    """Each field of a RetryConfig is checked when it is made, and named."""
    for value in values:
        with pytest.raises(ConfigurationError, match=rf"RetryConfig\.{name}"):
            RetryConfig(**{name: value})


def test_a_tool_has_no_limits_unless_it_is_told() -> None:
    """By default a call is made once, for as long as it takes, beside any number of others."""
    tool = FunctionTool(Gauge().work)
    assert (tool.timeout_s, tool.retry, tool.max_concurrency) == (None, None, None)
    defaults = (5, 1.0, 60.0, 2.0, 0.1, None)
    retry = RetryConfig()
    assert defaults == (
        retry.max_attempts,
        retry.initial_delay,
        retry.max_delay,
        retry.backoff_factor,
        retry.jitter,
        retry.exceptions,
    )
