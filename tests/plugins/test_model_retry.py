"""
A provider that fails: when its model is asked again, how long after, and who is told of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minirun import InMemoryRunner, LlmAgent, RunConfig, Runner, StreamingMode
from minirun.errors import (
    ConfigurationError,
    ContextTooLongError,
    LlmCallsLimitExceededError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContractError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelRequestError,
    ModelTimeoutError,
)
from minirun.models import BaseLlm, FallbackModel, LlmCapabilities, LlmRequest, LlmResponse
from minirun.simulation import SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig
from minirun.types import ModelContent

from ..helpers import run_to_end, stored_events
from ..simulation.stores import simulate, why_unavailable

PASSING = (ModelRateLimitedError, ModelOverloadedError, ModelTimeoutError, ModelConnectionError)
LASTING = (ModelError, ModelAuthenticationError, ModelRefusedError, ContextTooLongError, ModelRequestError)
EVEN = RetryConfig(max_attempts=3, initial_delay=1, backoff_factor=2, jitter=0)


def runner_with(script: Sequence[Any], **fields: Any) -> tuple[Runner, ScriptedLlm]:
    model = ScriptedLlm(script)
    agent = LlmAgent(name="a", model=model, **fields)
    return InMemoryRunner(agent=agent, app_name="app", auto_create_session=True), model


@pytest.mark.parametrize("kind", PASSING)
async def test_what_may_be_gone_in_a_moment_is_asked_again(kind: type[ModelError], autojump_clock: MockClock) -> None:
    """Without a setting there are three attempts at the same question, and nothing of the failed ones is kept."""
    runner, model = runner_with([kind("no"), kind("no"), "fine"])
    events, run = await run_to_end(runner)
    assert run.answer is not None
    assert run.answer.text == "fine"
    assert model.requests == [model.requests[0]] * 3
    assert [event.text for event in await stored_events(runner)] == ["go", "fine"]
    notices = [event for event in events if event.partial]
    assert [event.custom_metadata and event.custom_metadata["model_retry"]["error"] for event in notices] == [
        kind.__name__
    ] * 2


@pytest.mark.parametrize("error", [*(kind("no") for kind in LASTING), ValueError("no"), ModelContractError("no")])
async def test_what_lasts_fails_the_run_at_once(error: Exception, autojump_clock: MockClock) -> None:
    """What asking again does not mend is raised as it is."""
    runner, model = runner_with([error, "never asked for"])
    with pytest.raises(type(error), match="no"):
        await run_to_end(runner)
    assert len(model.requests) == 1


async def test_delays_grow_and_a_partial_event_tells_of_each(autojump_clock: MockClock) -> None:
    """The delays are those of the RetryConfig, on the clock of the run; the notice says what is known."""
    busy = ModelOverloadedError("busy", status=529, request_id="q1")
    runner, _ = runner_with([busy, busy, "fine"], model_retry=EVEN)
    start = trio.current_time()
    events, _ = await run_to_end(runner)
    assert trio.current_time() - start == 3
    notice, second, _ = events
    assert (notice.partial, notice.author, notice.content, notice.error_code) == (True, "a", None, None)
    assert notice.custom_metadata == {
        "model_retry": {
            "attempt": 1,
            "error": "ModelOverloadedError",
            "delay_s": 1.0,
            "message": "busy",
            "status": 529,
            "request_id": "q1",
        }
    }
    assert second.custom_metadata is not None
    assert second.custom_metadata["model_retry"]["attempt"] == 2


@pytest.mark.parametrize(("retry_after_s", "waited"), [(30, 30), (0.1, 1), (120, 120), (float("nan"), 1)])
async def test_the_provider_may_ask_for_a_longer_delay(
    retry_after_s: float, waited: float, autojump_clock: MockClock
) -> None:
    """What the provider says counts where it is longer than the RetryConfig's delay."""
    limited = ModelRateLimitedError("no", retry_after_s=retry_after_s)
    runner, _ = runner_with([limited, "fine"], model_retry=EVEN)
    start = trio.current_time()
    await run_to_end(runner)
    assert trio.current_time() - start == waited


async def test_a_delay_beyond_the_cap_is_not_waited_for(autojump_clock: MockClock) -> None:
    """A provider that asks for more than two minutes has the error raised, with what it has said."""
    runner, model = runner_with([ModelRateLimitedError("no", retry_after_s=121), "never"])
    with pytest.raises(ModelRateLimitedError) as caught:
        await run_to_end(runner)
    assert (caught.value.retry_after_s, len(model.requests)) == (121, 1)


async def test_the_last_attempt_s_error_is_raised(autojump_clock: MockClock) -> None:
    """When the attempts are used up, the run fails with what came last."""
    runner, model = runner_with([ModelOverloadedError("1"), ModelTimeoutError("2"), ModelConnectionError("3")])
    with pytest.raises(ModelConnectionError, match="3"):
        await run_to_end(runner)
    assert len(model.requests) == 3


async def test_without_retries_the_first_error_is_raised(autojump_clock: MockClock) -> None:
    """None turns retries off."""
    runner, _ = runner_with([ModelOverloadedError("1"), "never"], model_retry=None)
    with pytest.raises(ModelOverloadedError):
        await run_to_end(runner)


async def test_named_exceptions_take_the_place_of_the_usual_ones(autojump_clock: MockClock) -> None:
    """A RetryConfig that lists exceptions says what is retried, and nothing else is."""
    retry = RetryConfig(max_attempts=2, exceptions=["ValueError"])
    runner, _ = runner_with([ValueError("odd"), "fine"], model_retry=retry)
    _, run = await run_to_end(runner)
    assert run.answer is not None
    runner, _ = runner_with([ModelOverloadedError("no"), "never"], model_retry=retry)
    with pytest.raises(ModelOverloadedError):
        await run_to_end(runner)


async def test_a_stream_that_has_begun_is_not_begun_again(autojump_clock: MockClock) -> None:
    """After the first fragment somebody has seen part of an answer: the error is raised."""
    runner, model = runner_with([["par", ModelConnectionError("lost")], "never"])
    with pytest.raises(ModelConnectionError):
        await run_to_end(runner, run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert len(model.requests) == 1


async def test_a_whole_answer_that_is_lost_is_asked_for_again(autojump_clock: MockClock) -> None:
    """Without streaming nobody has seen anything of an answer that broke off."""
    runner, _ = runner_with([["par", ModelConnectionError("lost")], "fine"])
    _, run = await run_to_end(runner)
    assert run.answer is not None
    assert run.answer.text == "fine"


async def test_all_attempts_are_one_question(autojump_clock: MockClock) -> None:
    """`max_llm_calls` counts questions, and not how often a provider had to be asked one."""
    script = [ModelOverloadedError("no"), call("nothing"), ModelOverloadedError("no"), "fine"]

    async def nothing() -> None:
        """Do nothing."""

    runner, _ = runner_with(script, tools=[nothing])
    await run_to_end(runner, run_config=RunConfig(max_llm_calls=2))
    runner, _ = runner_with(script, tools=[nothing])
    with pytest.raises(LlmCallsLimitExceededError):
        await run_to_end(runner, run_config=RunConfig(max_llm_calls=1))


async def test_a_delay_that_the_deadline_would_cut_is_not_begun(autojump_clock: MockClock) -> None:
    """Where the run would be over before the next attempt, it fails at once, with what the provider has said."""
    runner, _ = runner_with([ModelOverloadedError("busy"), "never"], model_retry=EVEN)
    start = trio.current_time()
    with pytest.raises(ModelOverloadedError, match="busy"):
        await run_to_end(runner, run_config=RunConfig(deadline_s=0.5))
    assert trio.current_time() == start


async def test_a_callback_answers_when_the_attempts_are_used_up(autojump_clock: MockClock) -> None:
    """`on_model_error_callback` is asked once, after the last attempt."""
    asked: list[Exception] = []

    def answer(callback_context: object, llm_request: object, error: Exception) -> LlmResponse:
        asked.append(error)
        return LlmResponse(content=ModelContent("sorry"))

    last = ModelOverloadedError("3")
    runner, _ = runner_with(
        [ModelOverloadedError("1"), ModelOverloadedError("2"), last], on_model_error_callback=answer
    )
    _, run = await run_to_end(runner)
    assert run.answer is not None
    assert (run.answer.text, asked) == ("sorry", [last])


async def test_leaving_while_it_waits_ends_the_run(autojump_clock: MockClock) -> None:
    """A caller that leaves does not wait for the next attempt."""
    runner, model = runner_with([ModelRateLimitedError("no", retry_after_s=100), "never"])
    start = trio.current_time()
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        async for _ in run:
            break
    assert (trio.current_time() - start, run.status, len(model.requests)) == (0, "cancelled", 1)


@pytest.mark.parametrize("retry", [3, "often", RetryConfig])
def test_what_is_no_retry_config_is_refused(retry: object) -> None:
    """The message says what may stand there."""
    with pytest.raises(ConfigurationError, match="expected model_retry to be a RetryConfig, 'standard' or None"):
        LlmAgent(name="a", model=ScriptedLlm([]), model_retry=retry)  # type: ignore[arg-type]  # that is the point


# --- the next model ---------------------------------------------------------------------------------------------------


def named(name: str, script: Sequence[Any], **capabilities: bool) -> ScriptedLlm:
    return ScriptedLlm(script, name=name, capabilities=LlmCapabilities(**capabilities))


async def answer_of(model: FallbackModel, **options: Any) -> Any:
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model, model_retry=None), auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go", **options) as run:
        return await run.wait()


async def test_the_next_model_is_asked_when_one_fails(autojump_clock: MockClock) -> None:
    """The event tells which model has answered."""
    model = FallbackModel(
        named("one", [ModelOverloadedError("no")]), named("two", [ModelTimeoutError("no")]), named("three", ["fine"])
    )
    event = await answer_of(model)
    assert (event.text, event.model_version) == ("fine", "three")
    assert model.name == "one|two|three"


async def test_what_a_model_says_of_itself_stays(autojump_clock: MockClock) -> None:
    """A model that tells its version is not called by another name."""
    answer = LlmResponse(content=ModelContent("hi"), model_version="m-2026")
    assert (await answer_of(FallbackModel(named("one", [answer]), named("two", [])))).model_version == "m-2026"


@pytest.mark.parametrize("error", [ModelRequestError("no"), ValueError("no")])
async def test_what_another_model_would_fail_with_too_is_raised(error: Exception, autojump_clock: MockClock) -> None:
    """An error that is not in *on* is raised, and the next model is not asked."""
    with pytest.raises(type(error)):
        await answer_of(FallbackModel(named("one", [error]), named("two", [])))


async def test_the_errors_to_go_on_after_can_be_chosen(autojump_clock: MockClock) -> None:
    """*on* takes the place of the usual errors."""
    model = FallbackModel(named("one", [ContextTooLongError("no")]), named("two", ["fine"]), on=(ContextTooLongError,))
    assert (await answer_of(model)).text == "fine"
    with pytest.raises(ModelOverloadedError):
        await answer_of(FallbackModel(named("one", [ModelOverloadedError("no")]), named("two", []), on=[ValueError]))


async def test_the_last_model_s_error_is_raised_with_the_others_as_notes(autojump_clock: MockClock) -> None:
    """When all have failed, nothing of it is lost."""
    with pytest.raises(ModelTimeoutError, match="second") as caught:
        await answer_of(
            FallbackModel(named("one", [ModelOverloadedError("first")]), named("two", [ModelTimeoutError("second")]))
        )
    assert caught.value.__notes__ == ["the model 'one' had failed before: ModelOverloadedError: first"]


async def test_a_model_that_has_begun_is_not_replaced(autojump_clock: MockClock) -> None:
    """After a fragment the failure is the answer's, and the next model is not asked."""
    model = FallbackModel(named("one", [["par", ModelConnectionError("lost")]]), named("two", ["never"]))
    with pytest.raises(ModelConnectionError):
        await answer_of(model, run_config=RunConfig(streaming_mode=StreamingMode.SSE))


def test_it_is_able_to_do_what_all_are_able_to_do() -> None:
    """A request asks for no more than each of the models can do."""
    able = {"output_schema_and_tools": True, "media_in_tool_results": True}
    both = FallbackModel(named("one", [], **able), named("two", [], **able))
    one = FallbackModel(named("one", [], **able), named("two", []))
    assert both.capabilities == LlmCapabilities(**able)
    assert one.capabilities == LlmCapabilities()


@pytest.mark.parametrize(
    ("models", "on", "expected"),
    [
        ((), (ModelError,), "at least two models"),
        ((named("one", []),), (ModelError,), "at least two models"),
        ((named("one", []), "two"), (ModelError,), "expected models"),
        ((named("one", []), named("two", [])), ModelError, "a list of exception types"),
        ((named("one", []), named("two", [])), ["ModelError"], "a list of exception types"),
    ],
)
def test_what_cannot_work_is_refused(models: Any, on: Any, expected: str) -> None:
    """Two models at least, and exceptions that there are."""
    with pytest.raises(ConfigurationError, match=expected):
        FallbackModel(*models, on=on)


# --- under a simulation -----------------------------------------------------------------------------------------------


class Moody(BaseLlm):
    """A model whose provider is overloaded every second time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked += 1
        if self.asked % 2:
            raise ModelOverloadedError("busy", retry_after_s=self.asked)
        yield LlmResponse(content=ModelContent("fine"))


async def moody(world: World) -> None:
    """Two users of a moody model."""
    runner = world.runner(lambda: LlmAgent(name="agent", model=Moody()))

    async def talk(user: str) -> None:
        for _ in range(2):
            try:
                await world.say(runner, user, "hello")
            except ModelError:
                world.reached("told of a failure")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk, "ada")
        nursery.start_soon(talk, "bob")


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@pytest.mark.parametrize("seed", range(8))
def test_retries_are_a_function_of_the_seed(seed: int) -> None:
    """Delays, luck and crashes included, the same seed gives the same log, and no promise is broken by retries."""
    first, again = (simulate(moody, SeededChoices(seed), storage="sqlite", processes=2, faults="all") for _ in range(2))
    assert first.failure is None
    assert first.log == again.log


async def test_a_fallback_model_closes_all_of_its_models() -> None:
    """Also those behind one that fails to close: what holds connections is closed with the Runner of its app."""
    closed: list[str] = []

    class Closing(BaseLlm):
        async def generate_content_async(
            self, request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            yield LlmResponse()

        async def aclose(self) -> None:
            closed.append(self.name)
            if self.name == "two":
                raise OSError("no")

    model = FallbackModel(*[Closing(model=name) for name in ("one", "two", "three")])
    with pytest.raises(OSError, match="no"):
        await model.aclose()
    assert sorted(closed) == ["one", "three", "two"]
