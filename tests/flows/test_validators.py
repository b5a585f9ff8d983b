"""A program's own word on answers and calls: `output_validator`, and `ModelRetry` in validators and tools."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from minirun import AgentTool, InMemorySessionService, LlmAgent, Part, RunConfig, Runner, StreamingMode
from minirun._codec import to_json
from minirun.errors import ConfigurationError, InvalidValueError, ModelRetry, OutputSchemaError, RetriesExceededError
from minirun.models import LlmRequest, LlmResponse
from minirun.runtime import CallbackContext
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, RetryConfig
from minirun.workflow import START, Workflow

from ..helpers import PLACE, run_to_end, runner_for, stored_events
from ..runtime.test_resume import cut_after


@attrs.frozen
class Flight:
    """An answer."""

    number: str
    price: int = 0


CHEAP = '{"number":"A1","price":5}'
DEAR = '{"number":"B2","price":900}'


def dear_ones_refused(ctx: CallbackContext, flight: Flight) -> Flight:
    """A validator as users write it."""
    if flight.price > 100:
        raise ModelRetry(f"{flight.number} is too dear")
    return attrs.evolve(flight, number=flight.number.lower())


def agent_with(*script: Any, **fields: Any) -> LlmAgent:
    """An agent with a scripted model."""
    return LlmAgent(name="a", model=ScriptedLlm(list(script)), **fields)


def look() -> str:
    """Look it up."""
    return "seen"


# --- validators -------------------------------------------------------------------------------------------------------


async def test_what_a_validator_returns_takes_the_place_of_the_value() -> None:
    """It gets an instance of the type, and what it returns is the event's output and the value of output_key."""
    agent = agent_with(CHEAP, output_schema=Flight, output_key="flight", output_validator=dear_ones_refused)
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert run.answer.output == run.session.state["flight"] == {"number": "a1", "price": 5}
    assert run.answer.text == CHEAP


async def test_calls_of_other_tools_are_no_tries_to_answer() -> None:
    """An agent that has one try may look as often as it wants before."""
    looks = [call("look"), call("look")]
    answer = call("set_model_response", number="A1", price=5)
    agent = agent_with(*looks, answer, output_schema=Flight, output_retries=0, tools=[look])
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert run.answer.output == {"number": "A1", "price": 5}


async def test_a_validator_may_give_an_equal_value_of_another_type() -> None:
    """It is another value, in JSON too: 2 is not 2.0."""
    agent = agent_with("2.0", output_schema={"type": "number"}, output_validator=lambda ctx, value: round(value))
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert to_json(run.answer.output) == "2"


async def test_a_refused_answer_is_told_to_the_model_and_asked_again() -> None:
    """It is stored as an error, without the value and what the validator has written to the state."""

    def refused(ctx: CallbackContext, flight: Flight) -> Flight:
        ctx.state["seen"] = [*ctx.state.get("seen", []), flight.number]
        return dear_ones_refused(ctx, flight)

    agent = agent_with(DEAR, CHEAP, output_schema=Flight, output_key="flight", output_validator=refused)
    events, run = await run_to_end(runner_for(agent))
    assert [(event.error_code, event.error_message, event.output) for event in events[:1]] == [
        ("REFUSED_OUTPUT", "B2 is too dear", None)
    ]
    assert events[1].text == "Your answer was not accepted:\n- B2 is too dear\nGive the answer again."
    assert run.session.state == {"seen": ["A1"], "flight": {"number": "a1", "price": 5}}


async def test_a_text_is_validated_too() -> None:
    """Without a schema the validator gets the text; None leaves it, a text replaces it, thoughts stay."""
    plain = agent_with("fine", output_validator=lambda ctx, text: None)
    _, run = await run_to_end(runner_for(plain))
    assert run.answer is not None
    assert run.answer.text == "fine"

    async def loud(ctx: CallbackContext, text: str) -> str:
        return text.upper()

    thinking = [Part(text="hm", thought=True), Part(text="fine")]
    agent = agent_with(thinking, output_validator=loud, output_key="said")
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert (run.answer.text, run.session.state) == ("FINE", {"said": "FINE"})
    assert run.answer.content is not None
    assert run.answer.content.parts[0].thought


@pytest.mark.parametrize("by_tool", [False, True], ids=["native", "tool"])
async def test_retries_are_bounded_in_both_ways_of_answering(by_tool: bool) -> None:
    """After output_retries more tries the run fails with OutputSchemaError, which says why at last."""
    answer = call("set_model_response", number="B2", price=900) if by_tool else DEAR
    agent = agent_with(
        answer, answer, answer, output_schema=Flight, output_validator=dear_ones_refused, output_retries=1,
        tools=[look] if by_tool else [],
    )  # fmt: skip
    runner = runner_for(agent)
    with pytest.raises(OutputSchemaError, match="2 tries"):
        await run_to_end(runner)
    assert "B2 is too dear" in "".join(map(to_json, await stored_events(runner)))


async def test_an_answer_by_tool_is_validated() -> None:
    """The response to a refused call says why; the value of the validator is the answer."""
    answers = [call("set_model_response", number=number, price=price) for number, price in (("B2", 900), ("A1", 5))]
    agent = agent_with(*answers, output_schema=Flight, output_validator=dear_ones_refused, tools=[look])
    events, run = await run_to_end(runner_for(agent))
    refused = events[1].get_function_responses()[0].response
    assert refused == {"error": {"type": "ModelRetry", "message": "B2 is too dear"}}
    assert run.answer is not None
    assert run.answer.output == {"number": "a1", "price": 5}
    assert run.answer.text == '{"number":"a1","price":5}'


async def test_a_json_schema_gives_json_that_may_be_changed() -> None:
    """A validator of an agent whose form is a JSON schema gets plain values, and what it changes stays its own."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def more(ctx: CallbackContext, found: dict[str, Any]) -> dict[str, Any]:
        found["n"] += 1
        return found

    _, run = await run_to_end(runner_for(agent_with('{"n":1}', output_schema=schema, output_validator=more)))
    assert run.answer is not None
    assert run.answer.output == {"n": 2}


@pytest.mark.parametrize("by_tool", [False, True], ids=["native", "tool"])
@pytest.mark.parametrize(
    ("validator", "error"),
    [
        (lambda ctx, value: 1 // 0, ZeroDivisionError),
        (lambda ctx, value: {"number": 3}, InvalidValueError),
        (lambda ctx, value: object(), InvalidValueError),
    ],
    ids=["raises", "other form", "no JSON"],
)
async def test_a_validator_that_fails_fails_the_run(
    validator: Callable[..., Any], error: type[Exception], by_tool: bool
) -> None:
    """Its mistakes are none of the model: it is not asked again, and not told."""
    answer = call("set_model_response", number="A1") if by_tool else CHEAP
    agent = agent_with(answer, output_schema=Flight, output_validator=validator, tools=[look] if by_tool else [])
    with pytest.raises(error):
        await run_to_end(runner_for(agent))


async def test_a_text_cannot_become_something_else() -> None:
    """Without a schema a validator returns a text or None."""
    agent = agent_with("x", output_validator=lambda ctx, text: 3)
    with pytest.raises(InvalidValueError, match="output_validator of agent 'a' returned: expected a text, found 3"):
        await run_to_end(runner_for(agent))


@pytest.mark.parametrize("validator", ["f", 3, lambda: None, lambda a, b, c: None], ids=["text", "int", "0", "3"])
def test_what_cannot_be_a_validator_is_refused_when_the_agent_is_made(validator: Any) -> None:
    """It takes the context and the answer."""
    with pytest.raises(ConfigurationError, match="expected output_validator to be a function of the context"):
        agent_with("x", output_validator=validator)


async def test_fragments_and_calls_are_not_validated() -> None:
    """A validator sees the whole final answer, once."""
    seen: list[str] = []
    agent = agent_with(call("look"), "o n e", tools=[look], output_validator=lambda ctx, text: seen.append(text))
    await run_to_end(runner_for(agent), run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert seen == ["o n e"]


async def test_an_agent_as_a_tool_and_as_a_node_is_validated() -> None:
    """The caller gets what the validator has returned."""
    helper = LlmAgent(
        name="helper", model=ScriptedLlm([DEAR, CHEAP]), output_schema=Flight, output_validator=dear_ones_refused
    )
    root = agent_with(call("helper", request="x"), "done", tools=[AgentTool(helper)])
    events, _ = await run_to_end(runner_for(root))
    responses = [item.response for event in events for item in event.get_function_responses()]
    assert responses == [{"number": "a1", "price": 5}]
    node = agent_with(DEAR, CHEAP, output_schema=Flight, output_validator=dear_ones_refused)
    _, run = await run_to_end(runner_for(Workflow(name="w", edges=[(START, node)])))
    assert run.answer is not None
    assert run.answer.output == {"number": "a1", "price": 5}


async def test_the_outcome_of_a_task_is_validated() -> None:
    """An agent of mode task is told by the response to finish_task, and tries again."""
    calls = [call("finish_task", number=number, price=price) for number, price in (("B2", 900), ("A1", 5))]
    task = agent_with(*calls, mode="task", output_schema=Flight, output_validator=dear_ones_refused)
    events, run = await run_to_end(runner_for(Workflow(name="w", edges=[(START, task)])))
    responses = [item.response for event in events for item in event.get_function_responses()]
    assert responses[0] == {"error": {"type": "ModelRetry", "message": "B2 is too dear"}}
    assert run.answer is not None
    assert run.answer.output == {"number": "a1", "price": 5}


def model_of(script: list[Any]) -> ScriptedLlm:
    """A model that answers by how often it has spoken, so that it serves after a resume, too."""

    def answer(request: LlmRequest) -> Any:
        return script[sum(content.role == "model" for content in request.contents)]

    return ScriptedLlm(answer)


@pytest.mark.parametrize("by_tool", [False, True], ids=["native", "tool"])
async def test_a_recorded_answer_is_not_validated_again(by_tool: bool) -> None:
    """Cut off after any event, an invocation goes on to the same log; the retries before count."""
    seen: list[str] = []

    def noted(ctx: CallbackContext, flight: Flight) -> Flight:
        seen.append(flight.number)
        return dear_ones_refused(ctx, flight)

    flights = [("B2", 900), ("C3", 800), ("A1", 5)]
    script = [
        call("set_model_response", number=number, price=price) if by_tool
        else f'{{"number":"{number}","price":{price}}}'
        for number, price in flights
    ]  # fmt: skip

    def agent(retries: int = 2) -> LlmAgent:
        return LlmAgent(
            name="a", model=model_of(script), output_schema=Flight, output_validator=noted, output_retries=retries,
            tools=[look] if by_tool else [],
        )  # fmt: skip

    whole = runner_for(agent())
    await run_to_end(whole)
    log = await stored_events(whole)
    for stored in range(1, len(log)):
        service = await cut_after(log, stored)
        seen.clear()
        await _goes_on(agent(), service, log[0].invocation_id)
        again = await service.read_events(app_name="app", **PLACE, after_seq=0)
        kept = [event for event in again if event.author != "user" or event.content is not None]
        assert [(event.id, event.content, event.output) for event in kept] == [
            (event.id, event.content, event.output) for event in log
        ]
        answered = sum(_is_answered(event) for event in log[:stored])
        assert seen == [number for number, _ in flights][answered:]
    service = await cut_after(log, len(log) - (3 if by_tool else 2))
    with pytest.raises(OutputSchemaError):
        await _goes_on(agent(retries=1), service, log[0].invocation_id)


def _is_answered(event: Any) -> bool:
    """Whether a validator has spoken by this event."""
    return bool(event.error_code or event.get_function_responses() or (event.output is not None and event.text))


async def _goes_on(agent: LlmAgent, service: BaseSessionService, invocation_id: str | None) -> None:
    runner = Runner(agent=agent, app_name="app", session_service=service)
    async with runner.run_async(**PLACE, invocation_id=invocation_id) as run:
        await run.wait()


# --- tools ------------------------------------------------------------------------------------------------------------


def picky(wanted: int = 2) -> Callable[..., int]:
    """A tool that takes one number only."""

    def guess(n: int) -> int:
        """Guess."""
        if n != wanted:
            raise ModelRetry(f"not {n}")
        return n

    return guess


async def test_a_tool_may_have_the_model_try_again(caplog: pytest.LogCaptureFixture) -> None:
    """The model is told the text, and a try that succeeds begins the count anew; for the log it is no failure."""
    script = [call("guess", n=n) for n in (0, 1, 2, 0, 1, 2)]
    with caplog.at_level(logging.INFO, "minirun"):
        events, run = await run_to_end(runner_for(agent_with(*script, "done", tools=[picky()])))
    responses = [item.response for event in events for item in event.get_function_responses()]
    assert responses[:3] == [
        {"error": {"type": "ModelRetry", "message": "not 0"}},
        {"error": {"type": "ModelRetry", "message": "not 1"}},
        {"result": 2},
    ]
    assert (run.status, len(responses)) == ("completed", 6)
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert all("has the model try again" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("retries", "made"), [(0, 1), (1, 2), (2, 3), (None, 5)])
async def test_the_retries_of_a_tool_are_bounded(retries: int | None, made: int) -> None:
    """One more in a row than `retries` fails the run; its call has a response in the log all the same."""
    tool = FunctionTool(picky(9), retries=retries)
    runner = runner_for(agent_with(*[call("guess", n=n) for n in range(5)], "done", tools=[tool]))
    if retries is None:
        await run_to_end(runner)
    else:
        with pytest.raises(RetriesExceededError, match=f"retries={retries} in a row; at last: not {made - 1}"):
            await run_to_end(runner)
    events = await stored_events(runner)
    responses = [item for event in events for item in event.get_function_responses()]
    assert len(responses) == made


async def test_calls_side_by_side_are_one_try() -> None:
    """A turn with three wrong calls counts once, and one right call among them begins anew."""
    wrong = [call("guess", n=n) for n in (0, 1, 5)]
    mixed = [call("guess", n=0), call("guess", n=2)]
    agent = agent_with(wrong, mixed, wrong, wrong, "done", tools=[FunctionTool(picky(), retries=2)])
    _, run = await run_to_end(runner_for(agent))
    assert run.status == "completed"


async def test_retries_of_a_tool_count_over_a_resume() -> None:
    """Whoever goes on with the invocation has no more tries than there were."""
    script = [call("guess", n=n) for n in range(3)]

    def agent() -> LlmAgent:
        return LlmAgent(name="a", model=model_of([*script, "done"]), tools=[FunctionTool(picky(9), retries=2)])

    runner = runner_for(agent())
    with pytest.raises(RetriesExceededError):
        await run_to_end(runner)
    log = await stored_events(runner)
    service = await cut_after(log, 5)  # the message, and two calls with their responses
    with pytest.raises(RetriesExceededError):
        await _goes_on(agent(), service, log[0].invocation_id)


async def test_the_same_call_is_not_made_again_for_a_retry() -> None:
    """A RetryConfig is for what may be gone in a moment: the same arguments are as wrong the next time."""
    made: list[int] = []

    def guess(n: int) -> int:
        """Guess."""
        made.append(n)
        raise ModelRetry("no")

    tool = FunctionTool(guess, retry=RetryConfig(max_attempts=3))
    await run_to_end(runner_for(agent_with(call("guess", n=1), "done", tools=[tool])))
    assert made == [1]


# --- hooks ------------------------------------------------------------------------------------------------------------


def never(**more: Any) -> Callable[..., LlmResponse]:
    """A hook that takes no answer."""

    def again(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse:
        return attrs.evolve(llm_response, ask_again="no", **more)

    return again


@pytest.mark.parametrize(
    ("fields", "tries"), [({}, 3), ({"output_retries": 0}, 1), ({"output_retries": 4}, 5)], ids=["2", "0", "4"]
)
async def test_hooks_that_have_a_model_asked_again_are_bounded(fields: Mapping[str, Any], tries: int) -> None:
    """As answers of another form are, by output_retries."""
    runner = runner_for(agent_with(*["x"] * 6, after_model_callback=never(), **fields))
    with pytest.raises(OutputSchemaError, match=f"that a hook takes, found none in {tries} tries"):
        await run_to_end(runner)


async def test_a_hook_may_say_how_often() -> None:
    """ask_again_max takes the place of output_retries for the answer that it stands in."""
    runner = runner_for(agent_with(*["x"] * 6, after_model_callback=never(ask_again_max=4)))
    with pytest.raises(OutputSchemaError, match="in 5 tries"):
        await run_to_end(runner)


async def test_who_goes_on_after_the_last_try_gets_one_more() -> None:
    """A run that failed because its answers were refused is gone on with, and the model is asked once more."""
    service = InMemorySessionService()

    def runner(*script: Any) -> Runner:
        agent = agent_with(*script, output_schema=Flight, output_validator=dear_ones_refused, output_retries=1)
        return Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)

    with pytest.raises(OutputSchemaError):
        await run_to_end(runner(DEAR, DEAR))
    [begun] = await service.list_invocations(app_name="app")
    async with runner(CHEAP).run_async(**PLACE, invocation_id=begun.invocation_id) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.output == {"number": "a1", "price": 5}
