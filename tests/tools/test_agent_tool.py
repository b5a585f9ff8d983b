"""An agent as a tool: what it sees, what is seen of it, and how it fails."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Content,
    Event,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Part,
    RunConfig,
    Runner,
    SequentialAgent,
    ToolContext,
)
from minirun.apps import Prompts
from minirun.errors import ConfigurationError, LlmCallsLimitExceededError, StorageBusyError
from minirun.models import LlmCapabilities
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop
from minirun.types import Blob

from ..interruptions import PLACE, failing_commit


def texts(model: ScriptedLlm, question: int) -> list[str]:
    """What the model was shown."""
    return [content.text for content in model.requests[question].contents]


async def run(agent: LlmAgent, config: RunConfig | None = None) -> list[Event]:
    """The events of one run."""
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
        events = [event async for event in running]
    events.append(Event(message=running.answer.text if running.answer else "none"))
    return events


async def test_it_sees_its_request_and_is_seen_by_the_caller_only() -> None:
    """Its model is shown the request alone; the asking model its result alone; the caller of the run all of it."""
    below = ScriptedLlm(["the answer"])
    above = ScriptedLlm([call("helper", request="find it"), "done"])
    root = LlmAgent(name="root", model=above, tools=[AgentTool(LlmAgent(name="helper", model=below))])
    *events, answer = await run(root)
    assert texts(below, 0) == ["find it"]
    assert texts(above, 1) == ["hi", "", ""]
    [response] = above.requests[1].contents[2].parts
    assert response.function_response is not None
    assert response.function_response.response == {"result": "the answer"}
    call_id = events[0].get_function_calls()[0].id
    assert [(event.author, event.branch) for event in events] == [
        ("root", None),
        ("helper", f"helper@{call_id}"),
        ("root", None),
        ("root", None),
    ]
    assert answer.text == "done"


async def test_it_shares_state_and_budget() -> None:
    """It reads what was written before it, what it writes stays, and its questions count towards those of the run."""

    def note(tool_context: ToolContext) -> str:
        """Note something."""
        tool_context.state["noted"] = tool_context.state["given"] + 1
        return "noted"

    def give(tool_context: ToolContext) -> str:
        """Give something."""
        tool_context.state["given"] = 1
        return "given"

    def root() -> LlmAgent:
        helper = LlmAgent(name="helper", model=ScriptedLlm([call("note"), "noted it"]), tools=[note])
        above = ScriptedLlm([call("give"), call("helper", request="x"), "done"])
        return LlmAgent(name="root", model=above, tools=[give, AgentTool(helper)])

    *events, _ = await run(root())
    assert [event.actions.state_delta for event in events if event.actions.state_delta] == [{"given": 1}, {"noted": 2}]
    with pytest.raises(LlmCallsLimitExceededError):
        await run(root(), RunConfig(max_llm_calls=3))


async def test_its_failure_is_the_tools() -> None:
    """The asking model is told of the error and goes on; wrong arguments and error answers are told, too."""
    failing = LlmAgent(name="helper", model=ScriptedLlm([RuntimeError("no luck")]))
    above = ScriptedLlm([call("helper", request="x"), call("helper", wrong=1), "gave up"])
    *events, answer = await run(LlmAgent(name="root", model=above, tools=[AgentTool(failing)]))
    told = [item.response["error"] for event in events for item in event.get_function_responses()]
    assert told[0] == {"type": "RuntimeError", "message": "no luck"}
    assert told[1]["type"] == "ArgumentError"
    assert "request" in told[1]["message"]
    assert answer.text == "gave up"


async def test_its_arguments_and_its_result_may_have_a_form() -> None:
    """With an input_schema it is called with such an object, with an output_schema it returns one."""

    @attrs.frozen
    class Question:
        topic: str
        depth: int = 1

    @attrs.frozen
    class Answer:
        points: list[str]

    below = ScriptedLlm(['{"points": ["a", "b"]}'])
    helper = LlmAgent(name="helper", model=below, input_schema=Question, output_schema=Answer)
    above = ScriptedLlm([call("helper", topic="trees"), "done"])
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[AgentTool(helper)]))
    assert texts(below, 0) == ['{"topic":"trees","depth":1}']
    assert events[2].get_function_responses()[0].response == {"points": ["a", "b"]}
    assert above.requests[0].config.tools[0].parameters["required"] == ["topic"]


def test_the_form_of_its_arguments_is_that_of_the_agent_that_begins() -> None:
    """Which is the first one below agents that are not led by a model; what stands below one that is begins nothing."""

    @attrs.frozen
    class Question:
        topic: str

    def asked(**fields: Any) -> LlmAgent:
        return LlmAgent(name="asked", model=ScriptedLlm([]), input_schema=Question, **fields)

    def plain(*below: LlmAgent) -> LlmAgent:
        return LlmAgent(name="plain", model=ScriptedLlm([]), sub_agents=below)

    def row(*agents: Any, name: str = "row") -> SequentialAgent:
        return SequentialAgent(name=name, sub_agents=agents)

    forms = {
        "topic": [asked(), row(asked()), row(asked(), plain()), row(row(asked(sub_agents=[plain()])), name="outer")],
        "request": [plain(), plain(asked()), row(plain(asked())), row(plain(), asked()), row()],
    }
    for name, agents in forms.items():
        for agent in agents:
            parameters = AgentTool(agent).declaration.parameters
            assert list(parameters["properties"]) == [name], agent


async def test_agents_inside_see_each_other_and_nothing_outside() -> None:
    """A sequence with parallel agents inside of a call: who comes after the branches sees them, and not the caller."""
    last = ScriptedLlm(["sum"])
    parts = [LlmAgent(name=name, model=ScriptedLlm([f"{name} says"])) for name in ("one", "two")]
    steps = [ParallelAgent(name="both", sub_agents=parts), LlmAgent(name="last", model=last)]
    tool = AgentTool(SequentialAgent(name="helper", description="Helps.", sub_agents=steps))
    above = ScriptedLlm([call("helper", request="go"), "done"])
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[tool]))
    assert texts(last, 0)[0] == "go"
    assert sorted(texts(last, 0)[1:]) == ["[one] said: one says", "[two] said: two says"]
    assert events[-2].get_function_responses()[0].response == {"result": "sum"}
    assert texts(above, 1) == ["hi", "", ""]


async def test_calls_at_once_do_not_see_each_other() -> None:
    """Two calls of one agent in one turn each have a branch and a history of their own."""
    below = ScriptedLlm(lambda request: f"about {request.contents[0].text}: {len(request.contents)}")
    above = ScriptedLlm([[call("helper", request="a"), call("helper", request="b")], "done"])
    helper = AgentTool(LlmAgent(name="helper", model=below))
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[helper]))
    [answers] = [event.get_function_responses() for event in events if event.get_function_responses()]
    assert [item.response for item in answers] == [{"result": "about a: 1"}, {"result": "about b: 1"}]


async def test_an_escalation_inside_ends_what_is_inside() -> None:
    """It does not end the agent that asks."""
    inner = SequentialAgent(
        name="helper",
        sub_agents=[
            LlmAgent(name="one", model=ScriptedLlm([call("exit_loop")]), tools=[exit_loop]),
            LlmAgent(name="two", model=ScriptedLlm([])),
        ],
    )
    above = ScriptedLlm([call("helper", request="x"), "done"])
    *_, answer = await run(LlmAgent(name="root", model=above, tools=[AgentTool(inner)]))
    assert answer.text == "done"


async def test_its_answer_may_be_the_last_word() -> None:
    """With skip_summarization the model that asked is not asked again."""
    tool = AgentTool(LlmAgent(name="helper", model=ScriptedLlm(["the answer"])), skip_summarization=True)
    above = ScriptedLlm([call("helper", request="x")])
    *events, _ = await run(LlmAgent(name="root", model=above, tools=[tool]))
    assert events[-1].actions.skip_summarization is True
    above.assert_done()


async def test_an_agent_without_a_model_uses_that_of_who_asks() -> None:
    """An agent inside of a tool inherits the model; an agent in `tools` itself is refused, saying what to write."""
    model = ScriptedLlm([call("helper", request="x"), "helped", "done"])
    *_, answer = await run(LlmAgent(name="root", model=model, tools=[AgentTool(LlmAgent(name="helper"))]))
    assert answer.text == "done"
    with pytest.raises(ConfigurationError, match="AgentTool\\(helper\\)"):
        LlmAgent(name="root", model=model, tools=[LlmAgent(name="helper")])  # type: ignore[list-item]  # the point


# --- what it has said last --------------------------------------------------------------------------------------------


def treasure(tool_context: ToolContext) -> str:
    """Look for it."""
    tool_context.actions.skip_summarization = True
    return "the treasure"


def nothing(tool_context: ToolContext) -> None:
    """Do something, and say nothing of it."""
    tool_context.actions.skip_summarization = True


class Saying(BaseAgent):
    """An agent that emits events."""

    events: tuple[Event, ...]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        for event in self.events:
            await ctx.emit(event)


def writing(*script: Any, **fields: Any) -> LlmAgent:
    """An agent led by a script."""
    return LlmAgent(name="writer", model=ScriptedLlm(list(script)), **fields)


def looping() -> LoopAgent:
    """A loop that ends as most do."""
    critic = LlmAgent(name="critic", model=ScriptedLlm(["again", call("exit_loop")]), tools=[exit_loop])
    return LoopAgent(name="loop", sub_agents=[writing("draft 1", "draft 2"), critic])


IMAGE = Content(role="model", parts=[Part(inline_data=Blob(data=b"x", mime_type="image/png"))])
LAST_WORDS: dict[str, tuple[Any, Any]] = {
    "a loop that was exited": (looping, "draft 2"),
    "a result that is shown": (lambda: writing(call("treasure"), tools=[treasure]), "the treasure"),
    "a null that is shown": (lambda: writing(["thinking", call("nothing")], tools=[nothing]), None),
    "a dict that is shown": (
        lambda: AgentTool(writing('{"a": 1}', output_schema={"type": "object"}), skip_summarization=True),
        {"a": 1},
    ),
    "nested": (lambda: AgentTool(writing("deep"), skip_summarization=True), "deep"),
    "thoughts": (lambda: Saying(name="s", events=(Event(message="x"), thought("hm"))), "x"),
    "an empty text": (lambda: Saying(name="s", events=(Event(message="x"), Event(message=""))), "x"),
    "an output alone": (lambda: Saying(name="s", events=(Event(message="x"), Event(output=[1]))), [1]),
    "state alone": (lambda: Saying(name="s", events=(Event(message="x"), Event(state={"k": 1}))), "x"),
    "media": (lambda: Saying(name="s", events=(Event(message="x"), Event(message=IMAGE))), ""),
    "nothing": (lambda: Saying(name="s", events=()), None),
}


def thought(text: str) -> Event:
    """An event that only thinks."""
    return Event(message=Content(role="model", parts=[Part(text=text, thought=True)]))


@pytest.mark.parametrize("case", LAST_WORDS)
async def test_its_result_is_its_last_answer(case: str) -> None:
    """That is the last event with text, an output, media, or a result that is shown and is not null."""
    make, expected = LAST_WORDS[case]
    inner = make()
    if isinstance(inner, AgentTool):
        inner = LlmAgent(name="outer", model=ScriptedLlm([call("writer", request="x")]), tools=[inner])
    model = ScriptedLlm([call(inner.name, request="x"), "done"])
    *events, _ = await run(LlmAgent(name="root", model=model, tools=[AgentTool(inner)]))
    assert events[-2].get_function_responses()[0].response == (
        expected if isinstance(expected, dict) else {"result": expected}
    )


@pytest.mark.parametrize("case", LAST_WORDS)
async def test_the_answer_of_a_run_is_the_last_event_that_is_one(case: str) -> None:
    """The same rule: run.answer is the event whose value an AgentTool would return."""
    make, expected = LAST_WORDS[case]
    agent = make()
    if isinstance(agent, AgentTool):
        agent = LlmAgent(name="outer", model=ScriptedLlm([call("writer", request="x")]), tools=[agent])
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as running:
        answer = await running.wait()
    if expected is None:
        assert answer is None
        return
    assert answer is not None
    responses = answer.get_function_responses()
    found = responses[0].response if responses else answer.text if answer.output is None else answer.output
    assert found in (expected, {"result": expected})


@pytest.mark.parametrize("native", [True, False])
async def test_an_output_that_is_null_stays_null(native: bool) -> None:
    """It is no text, however the model has given it."""
    capabilities = LlmCapabilities(output_schema=native)
    script: list[Any] = ["null" if native else call("set_model_response", result=None)]
    helper = LlmAgent(name="helper", model=ScriptedLlm(script, capabilities=capabilities), output_schema=int | None)
    model = ScriptedLlm([call("helper", request="x"), "done"])
    *events, _ = await run(LlmAgent(name="root", model=model, tools=[AgentTool(helper)]))
    assert events[-2].get_function_responses()[0].response == {"result": None}


async def test_it_may_have_a_name_of_its_own() -> None:
    """For models, where the agent's own is none that providers take; its request is described by Prompts."""
    tool = AgentTool(LlmAgent(name="größe", model=ScriptedLlm(["big"])), name="size")
    model = ScriptedLlm([call("size", request="x"), "done"])
    app = App("app", LlmAgent(name="root", model=model, tools=[tool]), prompts=Prompts(request="Alles."))
    runner = InMemoryRunner(app=app, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as running:
        events = [event async for event in running]
    assert events[1].branch == f"größe@{events[0].get_function_calls()[0].id}"
    assert events[2].get_function_responses()[0].response == {"result": "big"}
    assert model.requests[0].config.tools[0].parameters["properties"]["request"]["description"] == "Alles."
    assert tool.declaration.parameters["properties"]["request"]["description"] == Prompts().request
    with pytest.raises(ConfigurationError, match="name it"):
        AgentTool(LlmAgent(name="größe"))


async def test_who_has_failed_inside_of_a_call_is_forgotten_with_the_failure() -> None:
    """A later failure that happens to be another object at the same place in memory is not taken for it."""
    script = [call("helper", request=str(index)) for index in range(30)]
    helper = LlmAgent(name="helper", model=ScriptedLlm([ValueError("inner")] * 30))

    class Root(LlmAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await super()._run_async_impl(ctx)
            assert ctx._invocation.failures._origins == {}
            raise ValueError("outer")

    runner = InMemoryRunner(
        agent=Root(name="root", model=ScriptedLlm([*script, "done"]), tools=[AgentTool(helper)]),
        app_name="app",
        auto_create_session=True,
    )
    with pytest.raises(ValueError, match="outer"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as running:
            await running.wait()
    last = running.session.events[-1]
    assert (last.author, last.branch, last.error_code) == ("root", None, "ValueError")


class Asks(BaseAgent):
    """Asks who it is."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.request_input("Who?")


@pytest.mark.parametrize("number", range(2, 5))
async def test_what_an_agent_has_asked_in_a_call_is_answered_before_the_call(number: int) -> None:
    """Also if the store refuses any one of the events that settle the calls of a resumed run, which fails then."""

    async def measure(tool_context: ToolContext) -> str:
        size: str = await tool_context.request_input("Which size?")
        return size

    def ends_it(tool: Any, args: Any, tool_context: ToolContext) -> dict[str, str] | None:
        return {"result": "never mind"} if is_resumed and tool.name == "asks" else None

    def runner() -> Runner:
        model = ScriptedLlm(["done"] if is_resumed else [[call("measure"), call("asks", request="x")]])
        asks = AgentTool(Asks(name="asks"))
        root = LlmAgent(name="root", model=model, tools=[measure, asks], before_tool_callback=ends_it)
        return Runner(agent=root, app_name="app", session_service=service, auto_create_session=True)

    service, is_resumed = InMemorySessionService(), False
    async with runner().run_async(**PLACE, new_message="go") as run:
        await run.wait()
    [size, who] = run.pending
    is_resumed, commits = True, failing_commit(service, number, "refused")
    with pytest.raises(StorageBusyError):
        async with runner().run_async(**PLACE, new_message=size.reply("big")) as run:
            await run.wait()
    assert commits[0] >= number
    events = await service.read_events(app_name="app", **PLACE)
    answered = [response.id for event in events for response in event.get_function_responses()]
    [measured, asks] = events[2].get_function_calls()
    assert answered == [size.call_id, who.call_id, measured.id, asks.id]


async def test_agents_are_not_run_from_the_context_of_a_tool() -> None:
    """The error says what to write instead."""

    async def ask(tool_context: ToolContext) -> None:
        """Ask."""
        await LlmAgent(name="helper", model=ScriptedLlm([])).run_async(tool_context)  # type: ignore[arg-type]  # the point

    *events, _ = await run(LlmAgent(name="root", model=ScriptedLlm([call("ask"), "done"]), tools=[ask]))
    error = events[1].get_function_responses()[0].response["error"]
    assert error["type"] == "TypeError"
    assert "a tool calls an agent by AgentTool" in error["message"]
