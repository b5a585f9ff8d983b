"""Guardrails: what looks at messages and answers before they count, and what is held back until it has spoken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    InMemorySessionService,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Part,
    RunConfig,
    Runner,
    SequentialAgent,
    StreamingMode,
)
from minirun.agents import Guardrail
from minirun.errors import (
    ConfigurationError,
    GuardrailTripwireError,
    InvalidValueError,
    ModelError,
    ModelRetry,
    OutputSchemaError,
)
from minirun.memory import InMemoryMemoryService
from minirun.models import LlmResponse
from minirun.plugins import BasePlugin, GuardrailPlugin, MemoryPlugin
from minirun.runtime import CallbackContext, InvocationContext
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, UsageMetadata
from minirun.workflow import START, Workflow

from ..helpers import PLACE, run_to_end, stored_events

SECRET = "forbidden-words"
SSE = RunConfig(streaming_mode=StreamingMode.SSE)


async def app_runner(agent: BaseAgent, *plugins: BasePlugin, sessions: Any = None, **options: Any) -> Runner:
    """A runner whose session exists."""
    sessions = InMemorySessionService() if sessions is None else sessions
    runner = Runner(app=App("app", agent, plugins=plugins), session_service=sessions, **options)
    await runner.session_service.create_session(app_name="app", **PLACE)
    return runner


def agent_with(*script: Any, **fields: Any) -> LlmAgent:
    """An agent with a scripted model."""
    return LlmAgent(name="a", model=ScriptedLlm(list(script)), **fields)


def prompts(agent: LlmAgent) -> list[list[str]]:
    """What the model of an agent was shown, as texts."""
    assert isinstance(agent.model, ScriptedLlm)
    return [[content.text for content in request.contents] for request in agent.model.requests]


async def run_tripped(
    runner: Runner, message: str = "bad", **options: Any
) -> tuple[list[Event], GuardrailTripwireError]:
    """Run into a tripwire; return what the caller was shown until then, and the error."""
    events: list[Event] = []
    with pytest.raises(GuardrailTripwireError) as caught:
        async with runner.run_async(**PLACE, new_message=message, **options) as run:
            async for event in run:
                events.append(event)
    assert run.status == "failed"
    return events, caught.value


async def no_bad_words(ctx: CallbackContext, content: Content) -> str | None:
    """A guardrail as users write it: it takes a while."""
    await trio.sleep(1)
    if "bad" in content.text:
        raise GuardrailTripwireError({"reason": "bad words"})
    if "card" in content.text:
        return content.text.replace("card", "[card]")
    if "hm" in content.text:
        raise ModelRetry("Be careful with this one.")
    return None


# --- messages ---------------------------------------------------------------------------------------------------------


async def test_a_message_that_passes_changes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """The verdict is one stored event before the answer, and the model was asked once."""
    agent = agent_with("fine", input_guardrails=[no_bad_words])
    events, run = await run_to_end(await app_runner(agent))
    assert [(event.text, event.output) for event in events] == [
        ("", {"verdict": "passed", "guardrails": ["no_bad_words"]}),
        ("fine", None),
    ]
    assert run.answer is not None
    assert (run.answer.text, prompts(agent)) == ("fine", [["go"]])


async def test_a_step_of_the_same_name_is_no_verdict() -> None:
    """What an agent calls its own steps is its own affair, whatever they return: the message is looked at."""
    agent = agent_with("fine", "fine", input_guardrails=[no_bad_words])

    class Steps(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for result in ("text", ["tripped"], {"verdict": "tripped"}, None):
                await ctx.step("guardrails", lambda result=result: result)
            await agent.run_async(ctx)

    runner = await app_runner(Steps(name="steps", sub_agents=[agent]))
    events, _ = await run_to_end(runner)
    assert [event.output for event in events][-2:] == [{"verdict": "passed", "guardrails": ["no_bad_words"]}, None]
    assert events[-1].text == "fine"


async def test_a_message_that_is_refused_ends_the_run(autojump_clock: trio.testing.MockClock) -> None:
    """The error has the guardrail's info and name; the answer, given meanwhile, is neither shown nor stored."""
    agent = agent_with(SECRET, input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    events, error = await run_tripped(runner, run_config=SSE)
    assert (error.info, error.guardrail) == ({"reason": "bad words"}, "no_bad_words")
    verdict = {"verdict": "tripped", "guardrail": "no_bad_words", "info": {"reason": "bad words"}}
    assert [(event.output, event.error_code) for event in events] == [(verdict, None), (None, "GuardrailTripwireError")]
    assert SECRET not in repr(events) + repr(await stored_events(runner))
    assert prompts(agent) == []


async def test_a_refused_message_stays_out_of_later_prompts(autojump_clock: trio.testing.MockClock) -> None:
    """It stays in the log, as it was acknowledged."""
    agent = agent_with("fine", input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    await run_tripped(runner, "a bad word")
    await run_to_end(runner, "hello")
    assert prompts(agent)[-1] == ["hello"]
    assert (await stored_events(runner))[0].text == "a bad word"


async def test_a_message_is_replaced(autojump_clock: trio.testing.MockClock) -> None:
    """The model, in this turn and in later ones, is shown what the guardrail has returned, in the message's place."""
    agent = agent_with("one", "two", input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    await run_to_end(runner, "my card")
    await run_to_end(runner, "more")
    assert prompts(agent) == [["my [card]"], ["my [card]", "one", "more"]]
    assert SECRET not in repr(await stored_events(runner))


async def test_the_model_is_told_something(autojump_clock: trio.testing.MockClock) -> None:
    """ModelRetry: the model is called with the guardrail's text after the message."""
    agent = agent_with("one", input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    _, run = await run_to_end(runner, "hm")
    assert prompts(agent)[-1] == ["hm", "Be careful with this one."]
    assert run.answer is not None
    assert run.answer.text == "one"
    assert SECRET not in repr(await stored_events(runner))


async def test_tools_do_not_start_before_the_verdict(autojump_clock: trio.testing.MockClock) -> None:
    """A tool that the model calls meanwhile starts after the verdict, and never if the message is refused."""
    started: list[float] = []

    async def pay() -> str:
        """Pay."""
        started.append(trio.current_time())
        return "paid"

    agent = agent_with(call("pay"), "done", tools=[pay], input_guardrails=[no_bad_words])
    start = trio.current_time()
    await run_to_end(await app_runner(agent))
    assert started[0] - start >= 1
    agent = agent_with(call("pay"), tools=[pay], input_guardrails=[no_bad_words])
    runner = await app_runner(agent)
    await run_tripped(runner)
    assert len(started) == 1
    assert not any(event.get_function_calls() for event in await stored_events(runner))


async def test_two_that_replace_follow_each_other() -> None:
    """Where several replace the message, each later one sees what the earlier ones have made of it."""

    def without_a(ctx: CallbackContext, content: Content) -> str:
        return content.text.replace("a", "-")

    def without_b(ctx: CallbackContext, content: Content) -> Content:
        return Content(parts=[Part(text=content.text.replace("b", "-"))])

    agent = agent_with("x", "y", input_guardrails=[without_a, lambda ctx, content: None, without_b])
    await run_to_end(await app_runner(agent), "abc")
    assert prompts(agent)[-1] == ["--c"]


async def test_an_error_in_a_guardrail_is_an_error_of_the_run() -> None:
    """It is never a pass: the run fails with it, no answer is shown, and going on asks the guardrail again."""
    calls: list[str] = []

    async def broken(ctx: CallbackContext, content: Content) -> None:
        calls.append(content.text)
        if len(calls) == 1:
            raise ZeroDivisionError("down")

    agent = agent_with("fine", input_guardrails=[broken])
    runner = await app_runner(agent)
    with pytest.raises(ZeroDivisionError):
        await run_to_end(runner)
    events = await stored_events(runner)
    assert [event.error_code for event in events] == [None, "ZeroDivisionError"]
    async with runner.run_async(**PLACE, invocation_id=events[0].invocation_id) as run:
        answer = await run.wait()
    assert answer is not None
    assert len(calls) == 2


@pytest.mark.parametrize("returned", [3, {"a": 1}, Content(parts=[]), object()])
async def test_what_cannot_take_a_messages_place_is_refused(returned: Any) -> None:
    """A guardrail returns None, a text or a Content."""
    agent = agent_with("x", input_guardrails=[lambda ctx, content: returned])
    with pytest.raises(InvalidValueError, match="what guardrail"):
        await run_to_end(await app_runner(agent))


async def test_info_has_to_be_json() -> None:
    """It is stored: what is no JSON fails the run by name, and is no pass."""

    def trips(ctx: CallbackContext, content: Content) -> None:
        raise GuardrailTripwireError(object())

    with pytest.raises(InvalidValueError, match="info of guardrail 'trips'"):
        await run_to_end(await app_runner(agent_with("x", input_guardrails=[trips])))


async def test_a_guardrail_writes_state_with_its_verdict() -> None:
    """What it writes is stored with the verdict's event, and the instruction of the agent sees it."""

    def noting(ctx: CallbackContext, content: Content) -> None:
        ctx.state["looked"] = content.text

    agent = agent_with("x", instruction="{looked?}", input_guardrails=[noting])
    events, run = await run_to_end(await app_runner(agent))
    assert events[0].actions.state_delta == {"looked": "go"}
    assert run.session.state == {"looked": "go"}


# --- agents as guardrails ---------------------------------------------------------------------------------------------


@attrs.frozen
class Judgement:
    """What an agent that is a guardrail says."""

    tripwire_triggered: bool
    reason: str = ""


def judge(*script: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="judge", model=ScriptedLlm(list(script)), output_schema=Judgement, **fields)


OK = '{"tripwire_triggered":false}'
TRIP = '{"tripwire_triggered":true,"reason":"homework"}'


async def test_an_agent_is_a_guardrail() -> None:
    """It is given the message, runs in a branch of its own that no prompt shows, and its output is the info."""
    agent = agent_with("fine", SECRET, input_guardrails=[judge(OK, TRIP)])
    runner = await app_runner(agent)
    _, run = await run_to_end(runner)
    assert run.answer is not None
    assert run.answer.text == "fine"
    _, error = await run_tripped(runner)
    assert (error.info, error.guardrail) == ({"tripwire_triggered": True, "reason": "homework"}, "judge")
    assert SECRET not in repr(await stored_events(runner))
    assert all("homework" not in text for prompt in prompts(agent) for text in prompt)


async def test_a_function_may_run_an_agent() -> None:
    """`ctx.run_node` in a guardrail works as in a tool."""

    async def asks(ctx: CallbackContext, content: Content) -> None:
        if (await ctx.run_node(judge(TRIP), content))["tripwire_triggered"]:
            raise GuardrailTripwireError("judged")

    _, error = await run_tripped(await app_runner(agent_with(SECRET, input_guardrails=[asks])))
    assert error.info == "judged"


async def test_an_agent_that_says_nothing_of_the_tripwire_is_refused() -> None:
    """No answer of it is taken for a pass."""
    odd = LlmAgent(name="odd", model=ScriptedLlm(["all good"]))
    with pytest.raises(InvalidValueError, match="tripwire_triggered"):
        await run_to_end(await app_runner(agent_with("x", input_guardrails=[odd])))


# --- answers ----------------------------------------------------------------------------------------------------------


async def no_promises(ctx: CallbackContext, content: Content) -> str | None:
    """An output guardrail as users write it."""
    await trio.sleep(1)
    if SECRET in content.text:
        raise GuardrailTripwireError("a promise")
    if "again" in content.text:
        raise ModelRetry("Say it otherwise.")
    if "price" in content.text:
        return "I cannot say."
    return None


async def test_a_refused_answer_is_neither_shown_nor_stored(autojump_clock: trio.testing.MockClock) -> None:
    """Nor are its fragments; what the question has cost is stored."""
    answer = LlmResponse(
        content=Content(role="model", parts=[Part(text=SECRET)]), usage_metadata=UsageMetadata(total_token_count=7)
    )
    agent = agent_with(answer, output_guardrails=[no_promises])
    runner = await app_runner(agent)
    events, error = await run_tripped(runner, run_config=SSE)
    assert (error.info, error.guardrail) == ("a promise", "no_promises")
    assert SECRET not in repr(events) + repr(await stored_events(runner))
    assert [event.usage_metadata and event.usage_metadata.total_token_count for event in events] == [7, None]


async def test_an_agent_with_output_guardrails_emits_no_partial_events() -> None:
    """Nothing of a response is shown before it is checked, and no hook sees a part of it."""
    seen: list[str] = []

    class Seeing(BasePlugin):
        async def after_model_callback(self, *, callback_context: Any, llm_response: LlmResponse) -> None:
            seen.append("" if llm_response.content is None else llm_response.content.text)

    agent = agent_with(["one ", "two ", "three"], output_guardrails=[lambda ctx, content: None])
    events, _ = await run_to_end(await app_runner(agent, Seeing("seeing")), run_config=SSE)
    assert ([event.text for event in events], seen) == (["one two three"], ["one two three"])


@pytest.mark.parametrize("hook", ["before_model_callback", "after_model_callback", "on_model_error_callback"])
async def test_a_response_of_a_callback_is_checked(hook: str) -> None:
    """Whichever hook returns it, it is neither shown nor stored if a guardrail refuses it."""

    def says(**arguments: Any) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(text=SECRET)]))

    script = ModelError("down") if hook == "on_model_error_callback" else "fine"
    agent = agent_with(script, output_guardrails=[no_promises], **{hook: says})
    runner = await app_runner(agent)
    events, error = await run_tripped(runner)
    assert error.guardrail == "no_promises"
    assert SECRET not in repr(events) + repr(await stored_events(runner))


async def test_an_answer_is_replaced(autojump_clock: trio.testing.MockClock) -> None:
    """What the guardrail returns is shown and stored, and no fragment of what it stands for."""
    agent = agent_with("the price is 3", output_guardrails=[no_promises], output_key="said")
    events, run = await run_to_end(await app_runner(agent), run_config=SSE)
    assert [event.text for event in events] == ["I cannot say."]
    assert run.session.state == {"said": "I cannot say."}


async def test_an_answer_is_given_again(autojump_clock: trio.testing.MockClock) -> None:
    """ModelRetry: the answer is stored without its text, the model is told, and `output_retries` is the bound."""
    agent = agent_with(f"again {SECRET[:9]}", "fine", output_guardrails=[no_promises])
    runner = await app_runner(agent)
    _, run = await run_to_end(runner)
    assert run.answer is not None
    assert run.answer.text == "fine"
    assert prompts(agent)[1] == ["go", "Say it otherwise."]
    assert SECRET[:9] not in repr(await stored_events(runner))
    agent = agent_with(*["again"] * 3, output_guardrails=[no_promises], output_retries=1)
    with pytest.raises(OutputSchemaError, match="Say it otherwise"):
        await run_to_end(await app_runner(agent))


async def test_what_is_said_beside_calls_is_looked_at(autojump_clock: trio.testing.MockClock) -> None:
    """Text beside a call is shown, so it is looked at; a replacement leaves the call; calls alone are not looked at."""

    async def pay() -> str:
        """Pay."""
        return "paid"

    beside = [Part(text="the price"), call("pay")]
    agent = agent_with(beside, call("pay"), "fine", tools=[pay], output_guardrails=[no_promises])
    events, _ = await run_to_end(await app_runner(agent))
    assert events[0].text == "I cannot say."
    assert [len(event.get_function_calls()) for event in events] == [1, 0, 1, 0, 0]
    agent = agent_with([Part(text=SECRET), call("pay")], tools=[pay], output_guardrails=[no_promises])
    runner = await app_runner(agent)
    await run_tripped(runner)
    assert not any(event.get_function_calls() for event in await stored_events(runner))


@attrs.frozen
class Quote:
    """A structured answer."""

    text: str


@pytest.mark.parametrize("by_tool", [False, True], ids=["native", "tool"])
async def test_structured_answers_are_looked_at(by_tool: bool, autojump_clock: trio.testing.MockClock) -> None:
    """The guardrail sees the JSON, whichever way the answer is given, and may return another one."""

    def look() -> str:
        """Look."""
        return ""

    def gives(text: str) -> Any:
        return call("set_model_response", text=text) if by_tool else f'{{"text":"{text}"}}'

    def loud(ctx: CallbackContext, content: Content) -> str | None:
        return content.text.upper().replace("TEXT", "text") if "fine" in content.text else None

    fields: dict[str, Any] = {"output_schema": Quote, "tools": [look] if by_tool else []}
    _, run = await run_to_end(await app_runner(agent_with(gives("fine"), output_guardrails=[loud], **fields)))
    assert run.answer is not None
    assert run.answer.output == {"text": "FINE"}
    runner = await app_runner(agent_with(gives(SECRET), output_guardrails=[no_promises], **fields))
    await run_tripped(runner)
    assert SECRET not in repr(await stored_events(runner))


async def test_an_error_in_an_output_guardrail_is_none_of_the_model() -> None:
    """The run fails with it, and hooks for failures of the model are not asked."""
    asked: list[Exception] = []

    def on_error(callback_context: Any, llm_request: Any, error: Exception) -> None:
        asked.append(error)

    def broken(ctx: CallbackContext, content: Content) -> None:
        raise ZeroDivisionError("down")

    agent = agent_with(SECRET, output_guardrails=[broken], on_model_error_callback=on_error)
    runner = await app_runner(agent)
    with pytest.raises(ZeroDivisionError):
        await run_to_end(runner)
    assert (asked, SECRET in repr(await stored_events(runner))) == ([], False)


async def test_an_agent_looks_at_answers() -> None:
    """As at messages."""
    agent = agent_with("fine", SECRET, output_guardrails=[judge(OK, TRIP)])
    runner = await app_runner(agent)
    await run_to_end(runner)
    _, error = await run_tripped(runner)
    assert error.guardrail == "judge"
    assert SECRET not in repr(await stored_events(runner))


# --- plugins, and all kinds of agents ---------------------------------------------------------------------------------

Made = Callable[..., BaseAgent]


def in_a_call(first: LlmAgent, second: LlmAgent) -> BaseAgent:
    return LlmAgent(name="outer", model=ScriptedLlm([call("a", request="bad"), "done"]), tools=[AgentTool(first)])


class Custom(BaseAgent):
    """An agent with a logic of its own."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for agent in self.sub_agents:
            await agent.run_async(ctx)


KINDS: dict[str, Made] = {
    "alone": lambda first, second: first,
    "sequence": lambda first, second: SequentialAgent(name="s", sub_agents=[first, second]),
    "loop": lambda first, second: LoopAgent(name="l", sub_agents=[first], max_iterations=2),
    "parallel": lambda first, second: ParallelAgent(name="p", sub_agents=[first, second]),
    "custom": lambda first, second: Custom(name="c", sub_agents=[first, second]),
    "workflow": lambda first, second: Workflow(name="w", edges=[(START, first, second)]),
    "hand-over": lambda first, second: LlmAgent(
        name="front", model=ScriptedLlm([call("transfer_to_agent", agent_name="a")]), sub_agents=[first]
    ),
    "in a call": in_a_call,
}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@pytest.mark.parametrize("by", ["plugin", "agent"])
async def test_every_kind_of_agent_is_guarded(kind: str, by: str, autojump_clock: trio.testing.MockClock) -> None:
    """A refused message ends the run before any model was heard, whatever runs it, and is in no later prompt."""
    first = agent_with(SECRET, **({} if by == "plugin" else {"input_guardrails": [no_bad_words]}))
    second = LlmAgent(name="b", model=ScriptedLlm([SECRET]), input_guardrails=first.input_guardrails)
    plugins = [GuardrailPlugin(input=[no_bad_words])] if by == "plugin" else []
    runner = await app_runner(KINDS[kind](first, second), *plugins)
    events, error = await run_tripped(runner, "very bad", run_config=SSE)
    assert error.info == {"reason": "bad words"}
    assert SECRET not in repr(events) + repr(await stored_events(runner))
    later = agent_with("x")
    runner = Runner(agent=later, app_name="app", session_service=runner.session_service)
    await run_to_end(runner, "hello")
    assert not any("very bad" in text for text in prompts(later)[0]) or (kind == "in a call" and by == "agent")
    assert (await stored_events(runner))[0].text == "very bad"


@kinds
async def test_answers_of_every_kind_of_agent_are_looked_at(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    """A plugin's output guardrails see the answers of all models, and what they refuse is in no event."""
    first, second = agent_with(SECRET), LlmAgent(name="b", model=ScriptedLlm([SECRET]))
    runner = await app_runner(KINDS[kind](first, second), GuardrailPlugin(output=[no_promises]))
    events, error = await run_tripped(runner, run_config=SSE)
    assert error.info == "a promise"
    assert SECRET not in repr(events) + repr(await stored_events(runner))


@kinds
async def test_a_plugin_looks_once_in_an_invocation(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    """However many models are asked, at once or one after the other."""
    looked: list[str] = []

    async def looks(ctx: CallbackContext, content: Content) -> None:
        looked.append(content.text)
        await trio.sleep(1)

    first = agent_with(*["fine"] * 3)
    second = LlmAgent(name="b", model=ScriptedLlm(["fine"]))
    runner = await app_runner(KINDS[kind](first, second), GuardrailPlugin(input=[looks]))
    await run_to_end(runner)
    inside = ["bad"] if kind == "in a call" else ["fine", "go"] if kind == "workflow" else []
    assert looked[0] == "go"
    assert len(looked) <= 1 + len(inside)


@pytest.mark.parametrize(
    ("sent", "shown"), [("hm, this", ["hm, this", "Be careful with this one."]), ("my card", ["my [card]"])]
)
async def test_a_node_is_asked_the_message_of_its_round(
    sent: str, shown: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    """A workflow that runs again with a message shows its agent that one, as the guardrail has left it."""
    agent = agent_with("one", "two", "three")
    runner = await app_runner(
        Workflow(name="flow", edges=[(START, agent)]), GuardrailPlugin(input=[no_bad_words])
    )
    async with runner.run_async(**PLACE, new_message="go") as run:
        async for event in run:
            if event.text == "one":
                await run.send(sent)
    assert prompts(agent)[0] == ["go"]
    assert prompts(agent)[-1] == shown


async def test_plugin_and_agent_look_one_after_the_other(autojump_clock: trio.testing.MockClock) -> None:
    """The agent's own guardrails see what the plugin's have made of the message."""
    seen: list[str] = []

    def looks(ctx: CallbackContext, content: Content) -> str:
        seen.append(content.text)
        return f"{content.text}!"

    agent = agent_with("x", "y", "z", input_guardrails=[looks])
    await run_to_end(await app_runner(agent, GuardrailPlugin(input=[no_bad_words])), "card")
    assert (seen, prompts(agent)[-1]) == (["[card]"], ["[card]!"])


async def test_memory_has_no_refused_message(autojump_clock: trio.testing.MockClock) -> None:
    """Memories reach prompts: a refused message is not remembered, and a replaced one as it is shown."""
    memory = InMemoryMemoryService()
    agent = agent_with("fine", input_guardrails=[no_bad_words])
    runner = await app_runner(agent, MemoryPlugin(), memory_service=memory)
    await run_tripped(runner, "a bad zebra")
    await run_to_end(runner, "my card, zebra")
    session = await runner.session_service.get_session(app_name="app", **PLACE)
    assert session is not None
    await memory.add_session_to_memory(session)
    found = await memory.search_memory(app_name="app", user_id=PLACE["user_id"], query="zebra")
    assert [each.content.text for each in found.memories] == ["my [card], zebra"]


def test_what_cannot_be_a_guardrail_is_refused() -> None:
    """By name, when the agent or plugin is made; and so is a setting without effect."""
    wrong: Any
    for wrong in (3, "f", lambda: None, GuardrailPlugin, [int]):
        with pytest.raises(ConfigurationError, match="guardrail"):
            agent_with(input_guardrails=[wrong])
        with pytest.raises(ConfigurationError, match="guardrail"):
            GuardrailPlugin(output=[wrong])
    for field in ("input_guardrails", "output_guardrails"):
        for wrong in (no_bad_words, "f", 3):
            with pytest.raises(ConfigurationError, match=f"{field} to be a list"):
                agent_with(**{field: wrong})
    with pytest.raises(ConfigurationError, match="found none"):
        GuardrailPlugin()
    wrong_ones: list[dict[str, Any]] = [{"name": ""}, {"name": 3}]
    for settings in wrong_ones:
        with pytest.raises(ConfigurationError, match=r"[Gg]uardrail"):
            Guardrail(no_promises, **settings)


async def test_a_guardrail_cannot_wait_for_somebody() -> None:
    """It has to say what it says now."""

    async def asks(ctx: CallbackContext, content: Content) -> None:
        await ctx.request_input("may I?")

    with pytest.raises(NotImplementedError, match="in a guardrail"):
        await run_to_end(await app_runner(agent_with("x", input_guardrails=[asks])))
