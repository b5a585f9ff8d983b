"""What an LlmAgent asks, and what becomes of the answer: instructions, contents, settings, the form of the output."""

from __future__ import annotations

from typing import Any, TypedDict

import attrs
import pytest
import trio
import trio.testing

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Content,
    Event,
    FunctionTool,
    GetSessionConfig,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Part,
    ReadonlyContext,
    RunConfig,
    SequentialAgent,
    ToolContext,
)
from minirun.agents import CallbackContext
from minirun.apps import FirstLinesSummarizer, Prompts
from minirun.errors import ConfigurationError, InvalidEventError, OutputSchemaError
from minirun.flows._transcript import Transcript
from minirun.models import LlmCapabilities, LLMRegistry, LlmRequest, RequestChecker
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset
from minirun.types import FunctionCall, GenerateContentConfig


async def run(agent: Any, *messages: str, **options: Any) -> list[Event]:
    """The events of the runs of some messages, and the last run's answer."""
    runner = InMemoryRunner(app=App("app", agent, **options), auto_create_session=True)
    events: list[Event] = []
    for message in messages or ("hi",):
        async with runner.run_async(user_id="u", session_id="s", new_message=message) as running:
            events += [event async for event in running]
    return events


def shown(model: ScriptedLlm, question: int = -1) -> list[str]:
    """The contents of a request as role:text."""
    return [f"{content.role}:{content.text}" for content in model.requests[question].contents]


# --- instructions -----------------------------------------------------------------------------------------------------


async def test_instructions_stand_in_their_order() -> None:
    """The root's global instruction comes first, for every agent; then the agent's own; both see the state."""

    async def everybody(context: ReadonlyContext) -> str:
        return f"You work for {context.app_name}."

    models = [ScriptedLlm([call("transfer_to_agent", agent_name="below")]), ScriptedLlm(["yes"])]
    below = LlmAgent(name="below", model=models[1], instruction="Be {tone?}brief.", global_instruction="Not used.")
    root = LlmAgent(name="root", model=models[0], global_instruction=everybody, sub_agents=[below])
    await run(root)
    assert (models[1].requests[0].config.system_instruction or "").startswith("You work for app.\n\nBe brief.")
    assert "Not used." not in (models[1].requests[0].config.system_instruction or "")


async def test_a_static_instruction_moves_the_other_one_into_the_conversation() -> None:
    """It is taken as it is; the instruction stands before the user's last words, or after the responses of tools."""

    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedLlm(["one", call("look"), "three"])
    agent = LlmAgent(
        name="a", model=model, static_instruction="Answer {as} is.", instruction="Mind {mood}.", tools=[look]
    )
    runner = InMemoryRunner(agent=agent, app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s", state={"mood": "it"})
    for message in ("first", "second"):
        async with runner.run_async(user_id="u", session_id="s", new_message=message) as running:
            await running.wait()
    assert {request.config.system_instruction for request in model.requests} == {"Answer {as} is."}
    assert shown(model, 0) == ["user:Mind it.", "user:first"]
    assert shown(model, 1) == ["user:first", "model:one", "user:Mind it.", "user:second"]
    assert shown(model, 2) == ["user:first", "model:one", "user:second", "model:", "user:", "user:Mind it."]
    content = Content(parts=[Part(text="One."), Part(text="Two.")])
    assert LlmAgent(name="b", static_instruction=content).static_instruction == "One.\n\nTwo."


async def test_what_is_included_may_be_this_invocation_only() -> None:
    """With include_contents='none' a model sees the user's message and what came of it, not what was before."""
    models = [ScriptedLlm(["a1", "a2"]), ScriptedLlm(["b1", "b2"])]
    first = LlmAgent(name="first", model=models[0], include_contents="none")
    second = LlmAgent(name="second", model=models[1], include_contents="none")
    await run(SequentialAgent(name="both", sub_agents=[first, second]), "one", "two")
    assert shown(models[0]) == ["user:two"]
    assert shown(models[1]) == ["user:two", "user:[first] said: a2"]


async def test_what_the_framework_says_can_be_said_otherwise() -> None:
    """Every text that is added to a request is a field of Prompts; what cannot be filled in is refused."""
    models = [ScriptedLlm([call("transfer_to_agent", agent_name="sub")]), ScriptedLlm(["ja"])]
    sub = LlmAgent(name="sub", model=models[1], description="Hilft")
    root = LlmAgent(name="root", model=models[0], sub_agents=[sub])
    prompts = Prompts(
        identity="Du bist {name}.",
        transfer="Es gibt:\n{targets}",
        transfer_target="* {name} ({description})",
        other_called="{author} rief {name}",
        other_got="{author} hörte von {name}",
    )
    await run(root, prompts=prompts)
    assert models[0].requests[0].config.system_instruction == "Du bist root.\n\nEs gibt:\n* sub (Hilft)"
    assert shown(models[1]) == ["user:hi", "user:root rief transfer_to_agent", "user:root hörte von transfer_to_agent"]
    with pytest.raises(ConfigurationError, match=r"no other names than \{targets\}, found \{agents\}"):
        Prompts(transfer="{agents}")
    with pytest.raises(ConfigurationError, match="go_on"):
        Prompts(go_on=None)  # type: ignore[arg-type]  # the point of the test


async def test_a_correction_is_told_to_others_as_such() -> None:
    """
    Other agents, and summaries, are told whom a correction was said to; the agent itself reads it as it is.
    """
    models = [ScriptedLlm(["Ulm", '["Ulm"]']), ScriptedLlm(["fine"])]
    first = LlmAgent(name="first", model=models[0], output_schema=list[str])
    second = LlmAgent(name="second", model=models[1])
    told = "Your answer does not have the form"
    events = await run(SequentialAgent(name="both", sub_agents=[first, second]))
    assert [line for line in shown(models[0]) if told in line] == [shown(models[0])[-1]]
    assert shown(models[0])[-1].startswith(f"user:{told}")
    assert [line.partition(told)[0] for line in shown(models[1])] == [
        "user:hi", "user:[first] said: Ulm", "user:[first] was told: ", 'user:[first] said: ["Ulm"]'
    ]  # fmt: skip
    summary = await FirstLinesSummarizer().maybe_summarize_events(events=events)
    assert summary is not None
    assert [line.partition(told)[0] for line in summary.text.splitlines()] == [
        "first: Ulm", "first was told: ", 'first: ["Ulm"]', "second: fine"
    ]  # fmt: skip


# --- models and their settings ----------------------------------------------------------------------------------------


async def test_a_model_is_named_or_inherited() -> None:
    """A registered name stands for its model; an agent without one has that of the nearest LlmAgent above it."""
    model = ScriptedLlm([call("transfer_to_agent", agent_name="below"), "inherited"])
    LLMRegistry.register("test-model-[0-9]+", lambda name: model)
    try:
        below = LlmAgent(name="below")
        events = await run(LlmAgent(name="root", model="test-model-1", sub_agents=[below]))
    finally:
        LLMRegistry.unregister("test-model-[0-9]+")
    assert (events[-1].author, events[-1].text) == ("below", "inherited")


async def test_settings_go_with_every_request() -> None:
    """What generate_content_config says reaches the model; what the agent's own fields say is refused in it."""
    model = ScriptedLlm(["x"])
    config = GenerateContentConfig(temperature=0.25, max_output_tokens=10)
    await run(LlmAgent(name="a", model=model, generate_content_config=config, instruction="Go."))
    assert model.requests[0].config == attrs.evolve(config, system_instruction="Go.")
    with pytest.raises(ConfigurationError, match=r"LlmAgent\(instruction=\.\.\.\)"):
        LlmAgent(name="a", generate_content_config=GenerateContentConfig(system_instruction="x"))


async def test_a_model_that_says_nothing_is_no_silent_end() -> None:
    """An empty answer is an event with an error code."""
    [event] = await run(LlmAgent(name="a", model=ScriptedLlm([""])))
    assert event.error_code == "MODEL_RETURNED_NO_CONTENT"


# --- the form of the answer -------------------------------------------------------------------------------------------


@attrs.frozen
class City:
    """A city."""

    name: str
    people: int = 0


class Typed(TypedDict):
    name: str


@pytest.mark.parametrize("schema", [City, Typed, {"type": "object", "required": ["name"]}])
async def test_an_answer_has_the_form_that_was_asked_for(schema: Any) -> None:
    """The model is told the schema; the checked value is the event's output and, with output_key, in the state."""
    model = ScriptedLlm(['{"name": "Ulm"}'])
    [event] = await run(LlmAgent(name="a", model=model, output_schema=schema, output_key="city"))
    assert event.output["name"] == "Ulm"
    assert event.actions.state_delta == {"city": event.output}
    config = model.requests[0].config
    assert config.response_mime_type == "application/json"
    assert config.response_schema is not None


async def test_another_form_is_asked_for_again_and_kept_on_record() -> None:
    """The model is told what is wrong; what it has said is stored, marked, and not the answer of the run."""
    model = ScriptedLlm(["Ulm, I think", '{"name": 5}', '{"name": "Ulm"}'])
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model, output_schema=City), auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="where?") as running:
        answer = await running.wait()
    assert answer is not None
    assert answer.output == {"name": "Ulm", "people": 0}
    codes = [event.error_code for event in running.session.events]
    assert codes == [None, "INVALID_OUTPUT", None, "INVALID_OUTPUT", None, None]
    assert "name" in shown(model, 2)[-1]
    assert shown(model, 2)[-1].startswith("user:")


async def test_a_model_that_cannot_keep_the_form_fails_the_run() -> None:
    """After output_retries more tries; its last answer is stored, and nothing is written under output_key."""
    model = ScriptedLlm(["a", "b", "c"])
    agent = LlmAgent(name="a", model=model, output_schema=City, output_key="city", output_retries=1)
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    with pytest.raises(OutputSchemaError, match="2 tries"):
        async with runner.run_async(user_id="u", session_id="s", new_message="where?") as running:
            await running.wait()
    assert [event.text for event in running.session.events if event.author == "a"][::2] == ["a", "b"]
    assert "city" not in running.session.state
    assert running.answer is None


async def test_a_model_that_cannot_do_both_answers_by_a_tool() -> None:
    """With tools the answer is a call of set_model_response; a wrong one is an error response, a right one the end."""

    def look() -> str:
        """Look it up."""
        return "Ulm"

    model = ScriptedLlm(
        [call("look"), call("set_model_response", name=5), call("set_model_response", name="Ulm", people=7)]
    )
    events = await run(LlmAgent(name="a", model=model, tools=[look], output_schema=City, output_key="city"))
    assert events[3].get_function_responses()[0].response["error"]["type"] == "ArgumentError"
    assert events[-1].output == {"name": "Ulm", "people": 7}
    assert events[-1].is_final_response()
    assert events[-1].text == '{"name":"Ulm","people":7}'
    assert events[-1].actions.state_delta == {"city": {"name": "Ulm", "people": 7}}
    assert model.requests[0].config.response_schema is None
    model.assert_done()


async def test_a_model_that_can_do_both_needs_no_tool() -> None:
    """Its capabilities say so; a text of the right form is taken from a model that has the tool, too."""

    def look() -> str:
        """Look it up."""
        return "Ulm"

    able = ScriptedLlm(['["Ulm"]'], capabilities=LlmCapabilities(output_schema_and_tools=True))
    [event] = await run(LlmAgent(name="a", model=able, tools=[look], output_schema=list[str]))
    assert event.output == ["Ulm"]
    assert len(able.requests[0].config.tools) == 1
    other = ScriptedLlm(['["Ulm"]'])
    [event] = await run(LlmAgent(name="a", model=other, tools=[look], output_schema=list[str]))
    assert event.output == ["Ulm"]
    assert len(other.requests[0].config.tools) == 2


def test_a_form_that_json_cannot_have_is_refused() -> None:
    """When the agent is made."""
    with pytest.raises(ConfigurationError, match="output_schema"):
        LlmAgent(name="a", output_schema=object())


# --- two writers ------------------------------------------------------------------------------------------------------


async def test_two_tools_of_one_turn_that_set_one_key_are_a_conflict() -> None:
    """
    The later call wins and the event names the key, unless it lives for this run only; adding and extending merge, and
    reading first does not help.
    """

    def put(value: int, tool_context: ToolContext) -> None:
        """Put."""
        tool_context.state["plain"] = value
        tool_context.state["temp:plain"] = value
        tool_context.state.add("sum", value)
        tool_context.state[f"own{value}"] = value

    model = ScriptedLlm([[call("put", value=1), call("put", value=2)], "done"])
    events = await run(LlmAgent(name="a", model=model, tools=[put]))
    assert events[1].actions.state_conflicts == ("plain",)
    assert events[1].actions.state_delta["plain"] == 2
    assert events[1].actions.state_ops == {"sum": {"add": 3}}


async def test_a_key_that_two_tools_and_two_branches_have_set_is_named_once() -> None:
    """Whoever was overwritten, a tool of the turn or the branch beside: the event names the key, and once."""

    def put(value: int, tool_context: ToolContext) -> None:
        """Put."""
        tool_context.state["k"] = value

    def writer(name: str) -> LlmAgent:
        model = ScriptedLlm([[call("put", value=1), call("put", value=2)], "done"])
        return LlmAgent(name=name, model=model, tools=[put])

    events = await run(ParallelAgent(name="both", sub_agents=[writer("a"), writer("b")]))
    assert [event.actions.state_conflicts for event in events if event.actions.state_delta] == [("k",), ("k",)]


async def test_calls_that_commit_their_own_writes_are_writers_of_the_turn_too() -> None:
    """Two agents as tools, or tools that emit: what the later event replaces is named by it."""

    async def put(value: int, tool_context: ToolContext) -> None:
        """Put."""
        await tool_context.emit(Event(state={"k": value}))

    model = ScriptedLlm([[call("put", value=1), call("put", value=2)], "done"])
    events = await run(LlmAgent(name="a", model=model, tools=[put]))
    assert [event.actions.state_conflicts for event in events if event.actions.state_delta] == [(), ("k",)]
    both = [AgentTool(LlmAgent(name=name, model=ScriptedLlm([name]), output_key="k")) for name in ("one", "two")]
    model = ScriptedLlm([[call("one", request="x"), call("two", request="x")], "done"])
    events = await run(LlmAgent(name="a", model=model, tools=both))
    assert [event.actions.state_conflicts for event in events if event.actions.state_delta] == [(), ("k",)]


async def test_two_branches_that_set_one_key_are_a_conflict(autojump_clock: trio.testing.MockClock) -> None:
    """The event of the later one names it; a branch that writes its own key again, or merges, does not."""

    class Writes(BaseAgent):
        after_s: float
        value: int

        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            for _ in range(2):
                await trio.sleep(self.after_s)
                ctx.state["plain"] = self.value
                ctx.state[f"own{self.value}"] = self.value
                ctx.state.extend("list", [self.value])
                await ctx.emit(Event(message=str(self.value)))

    both = [Writes(name="one", after_s=2, value=1), Writes(name="two", after_s=3, value=2)]
    events = await run(ParallelAgent(name="both", sub_agents=both))
    found = [(event.text, event.actions.state_conflicts) for event in events]
    assert found == [("1", ()), ("2", ("plain",)), ("1", ("plain",)), ("2", ("plain",))]


# --- what is refused when an agent is made ----------------------------------------------------------------------------


class Toolbox(BaseToolset):
    """A toolset that was not made."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return []


def transfer_to_agent() -> None:
    """A name that is taken."""


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no list of tools": ({"tools": len}, r"expected tools to be a list, .* write tools=\[...\]"),
    "no tools": ({"tools": None}, "expected tools to be a list"),
    "a class of tools": ({"tools": [AgentTool]}, r"the class AgentTool; make one: AgentTool\(...\)"),
    "a class of toolsets": ({"tools": [Toolbox]}, "the class Toolbox"),
    "a builtin type": ({"tools": [int]}, "a function with a signature"),
    "the name of the transfer tool": ({"tools": [transfer_to_agent]}, "'transfer_to_agent', which minirun adds itself"),
    "the name of the answer tool": (
        {"tools": [FunctionTool(transfer_to_agent, name="set_model_response")]},
        "'set_model_response', which minirun adds itself",
    ),
    "no list of agents": ({"sub_agents": LlmAgent(name="b")}, r"sub_agents to be a list of agents, .* write \[...\]"),
    "no description": ({"description": None}, "LlmAgent.description: expected a string, found None"),
    "a key that is none": ({"output_key": 5}, "output_key: expected a string as key, found 5"),
    "an empty key": ({"output_key": ""}, "the key of a state, or None, found ''"),
    "a blank key": ({"output_key": "  "}, "the key of a state"),
    "a bare prefix": ({"output_key": "user:"}, "a name after the prefix, found 'user:'"),
    "a type that output_schema gives": (
        {"output_schema": City, "generate_content_config": GenerateContentConfig(response_mime_type="text/plain")},
        "response_mime_type would be replaced",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_fail_later_is_refused_when_the_agent_is_made(case: str) -> None:
    """The message says what was expected."""
    fields, problem = REFUSED[case]
    with pytest.raises(ConfigurationError, match=problem):
        LlmAgent(name="a", **fields)


def test_a_name_that_is_no_field_is_refused() -> None:
    """It is a TypeError that names it, as for any function."""
    with pytest.raises(TypeError, match="strange"):
        LlmAgent(name="a", strange=1)  # type: ignore[call-arg]  # the point of the test


async def test_a_toolset_whose_get_tools_is_no_coroutine_is_refused() -> None:
    """By its name, also where only asking it shows: an object that can be called says nothing of itself."""

    class Called:
        def __call__(self, context: object) -> list[object]:
            return []

    class Sync(BaseToolset):
        get_tools: Any = Called()

    with pytest.raises(ConfigurationError, match=r"Sync.get_tools to be `async def`"):
        await run(LlmAgent(name="a", model=ScriptedLlm([]), tools=[Sync()]))


@pytest.mark.parametrize(("text", "output"), [('["x"]', ["x"]), ("closed", None)])
async def test_what_a_callback_says_for_an_agent_may_have_no_form(text: str, output: Any) -> None:
    """It is an answer all the same; its value, if it has the form, is the output."""

    def before(callback_context: CallbackContext) -> Content:
        return Content(parts=[Part(text=text)])

    agent = LlmAgent(
        name="a", model=ScriptedLlm([]), output_schema=list[str], output_key="k", before_agent_callback=before
    )
    runner = InMemoryRunner(agent=agent, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as running:
        answer = await running.wait()
    assert answer is not None
    assert (answer.text, answer.output, answer.error_code) == (text, output, None)
    assert running.session.state == ({} if output is None else {"k": output})


async def test_a_run_sees_its_own_message_whatever_its_window_is() -> None:
    """Also if it asks for no events, or for those after one that does not exist."""
    for window in (GetSessionConfig(num_recent_events=0), GetSessionConfig(after_seq=99)):
        model = ScriptedLlm(["x"])
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), auto_create_session=True)
        config = RunConfig(get_session_config=window)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
            await running.wait()
        assert shown(model) == ["user:hi"]


# --- calls that users cannot make -------------------------------------------------------------------------------------


async def test_an_event_of_the_user_has_no_calls() -> None:
    """It is refused, whoever appends or emits it; in a history that has one, it is shown as the model's own."""
    calls = Content(role="user", parts=[Part(function_call=FunctionCall(id="c", name="f"))])

    class Puppeteer(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(author="user", message=calls))

    with pytest.raises(InvalidEventError, match="no function calls of the user"):
        await run(Puppeteer(name="a"))
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="app", user_id="u", session_id="s")
    with pytest.raises(InvalidEventError, match="no function calls of the user"):
        await sessions.append_event(session, Event(author="user", message=calls))
    transcript = Transcript("me", 1)
    transcript.read([Event(seq=1, author="user", message="hi"), Event(seq=2, author="user", message=calls)])
    assert [content.role for content in transcript.contents()] == ["user", "model", "user"]
    assert RequestChecker().check(LlmRequest(contents=transcript.contents())) is None


async def test_the_record_of_a_step_is_nobodys_answer() -> None:
    """Whatever a step returns, the answer of a run is what the agent has said; nor is the record a final event."""

    async def log() -> str:
        return "written"

    class Shop(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="Placed."))
            await ctx.step("log", log)

    runner = InMemoryRunner(agent=Shop(name="shop"), app_name="app", auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as running:
        answer = await running.wait()
    assert answer is not None
    assert answer.text == "Placed."
    assert [event.text for event in await run(Shop(name="shop")) if event.is_final_response()] == ["Placed."]


async def test_a_step_that_fails_leaves_one_final_event() -> None:
    """Its record is kept for whoever goes on; the failure of the run is told once."""

    async def broken() -> None:
        raise OSError("no shop")

    class Shop(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.step("order", broken)

    runner = InMemoryRunner(agent=Shop(name="shop"), app_name="app", auto_create_session=True)
    with pytest.raises(OSError, match="no shop"):
        async with runner.run_async(user_id="u", session_id="s", new_message="go") as running:
            await running.wait()
    log = await runner.session_service.read_events(app_name="app", user_id="u", session_id="s", after_seq=1)
    assert [(event.error_code, event.is_final_response()) for event in log] == [("OSError", False), ("OSError", True)]
