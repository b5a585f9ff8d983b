"""Callbacks and plugins: when they are called, what their answers and failures do, and that they clean up."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    InMemoryRunner,
    InvocationContext,
    LlmAgent,
    LoopAgent,
    Part,
    RunConfig,
    SequentialAgent,
    StreamingMode,
    ToolContext,
)
from minirun._values import changed
from minirun.agents import CallbackContext
from minirun.errors import (
    CleanupTimeoutError,
    ConfigurationError,
    DeadlineExceededError,
    InvalidEventError,
    InvalidMessageError,
    InvalidValueError,
    InvocationEndedError,
    TokensLimitExceededError,
)
from minirun.models import LlmRequestDraft, LlmResponse
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionResponse, UsageMetadata

from ..helpers import PLACE, Logic


def content(text: str) -> Content:
    """What a model would say."""
    return Content(role="model", parts=[Part(text=text)])


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def runner_of(agent: BaseAgent, *plugins: BasePlugin, **options: Any) -> InMemoryRunner:
    """A runner of one agent."""
    return InMemoryRunner(app=App("app", agent, plugins=plugins), auto_create_session=True, **options)


async def run(runner: InMemoryRunner, message: str = "hi") -> list[Event]:
    """The events of one run."""
    async with runner.run_async(user_id="u", session_id="s", new_message=message) as running:
        return [event async for event in running]


async def stored(runner: InMemoryRunner) -> list[Event]:
    """All events of the session."""
    session = await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")
    assert session is not None
    return list(session.events)


HOOKS = [name for name in vars(BasePlugin) if name.endswith("_callback")]


class Watching(BasePlugin):
    """Notes every call of every hook."""

    def __init__(self, name: str, seen: list[str]) -> None:
        super().__init__(name)
        self.seen = seen

    def __getattribute__(self, name: str) -> Any:
        if name not in HOOKS:
            return super().__getattribute__(name)
        seen, label = self.seen, f"{self.name} {name.removesuffix('_callback')}"

        async def hook(**arguments: Any) -> None:
            seen.append(label)
            if "callback_context" in arguments and name != "on_agent_error_callback":
                arguments["callback_context"].state[f"temp:{label}"] = True

        return hook


def noting(seen: list[str], name: str) -> list[Any]:
    """Two callbacks, a sync and an async one, that note their calls."""

    def first(**arguments: Any) -> None:
        seen.append(f"1 {name}")

    async def second(**arguments: Any) -> None:
        seen.append(f"2 {name}")

    return [first, second]


async def test_plugins_are_asked_before_agents_in_the_documented_order() -> None:
    """Each hook of each plugin, in their order, then the agent's own list, around agent, model, tool and event."""
    seen: list[str] = []
    names = ("before_agent", "after_agent", "before_model", "after_model", "before_tool", "after_tool")
    own: dict[str, Any] = {f"{name}_callback": noting(seen, name) for name in names}
    agent = LlmAgent(name="a", model=ScriptedLlm([call("add", a=1, b=1), "2"]), tools=[add], **own)
    runner = runner_of(agent, Watching("p", seen), Watching("q", seen))
    await run(runner)

    def asked(*hooks: str) -> list[str]:
        who = {True: ("p", "q", "1", "2"), False: ("p", "q")}
        return [f"{one} {hook}" for hook in hooks for one in who[hook in names]]

    assert seen == asked(
        *("on_user_message", "before_run", "before_agent"),
        *("before_model", "after_model", "on_event", "before_tool", "after_tool", "on_event"),
        *("before_model", "after_model", "on_event", "after_agent", "after_run"),
    )


async def test_the_first_answer_is_the_answer() -> None:
    """Who answers keeps the plugins after it, the agent's own callbacks and what they stand before from being asked."""
    seen: list[str] = []

    class Answering(BasePlugin):
        async def before_model_callback(self, **arguments: Any) -> LlmResponse:
            return LlmResponse(content=content("from the plugin"))

    model = ScriptedLlm([])
    agent = LlmAgent(name="a", model=model, before_model_callback=noting(seen, "before_model"))
    runner = runner_of(agent, Answering("answering"), Watching("late", seen))
    [event] = await run(runner)
    assert event.text == "from the plugin"
    assert "late before_model" not in seen
    assert "1 before_model" not in seen
    assert "late after_model" not in seen


async def test_every_hook_may_answer_in_the_place_of_what_it_stands_before() -> None:
    """Agents, models and tools are replaced by what their callbacks return; empty values count, None does not."""
    skipped = LlmAgent(name="a", model=ScriptedLlm([]), before_agent_callback=lambda callback_context: content("no"))
    assert [event.text for event in await run(runner_of(skipped))] == ["no"]
    both = LlmAgent(name="a", model=ScriptedLlm(["yes"]), after_agent_callback=lambda callback_context: content("and"))
    assert [event.text for event in await run(runner_of(both))] == ["yes", "and"]

    def instead(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        return {}

    model = ScriptedLlm([call("add", a=1, b=1), "done"])
    tools = LlmAgent(name="a", model=model, tools=[add], before_tool_callback=instead)
    events = await run(runner_of(tools))
    assert events[1].get_function_responses()[0].response == {}


async def test_requests_and_arguments_can_be_changed() -> None:
    """A callback changes the request or the arguments in place; the stored call stays as the model made it."""

    def more(callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        llm_request.append_instructions(["Be brief."])
        llm_request.config.temperature = 0.5

    def double(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
        args["a"] *= 10

    model = ScriptedLlm([call("add", a=1, b=1), "done"])
    agent = LlmAgent(name="a", model=model, tools=[add], before_model_callback=more, before_tool_callback=double)
    events = await run(runner_of(agent))
    assert model.requests[0].config.system_instruction == "Be brief."
    assert model.requests[1].config.temperature == 0.5
    assert events[0].get_function_calls()[0].args == {"a": 1, "b": 1}
    assert events[1].get_function_responses()[0].response == {"result": 11}


async def test_an_argument_that_is_no_json_is_the_callbacks_mistake() -> None:
    """What a callback puts into the arguments is checked before the tool is called; the error has its path."""

    def spoil(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> None:
        args["a"] = object()

    model = ScriptedLlm([call("add", a=1, b=1), "done"])
    agent = LlmAgent(name="a", model=model, tools=[add], before_tool_callback=spoil)
    with pytest.raises(InvalidValueError, match=r"^args\['a'\]: expected"):
        await run(runner_of(agent))


async def test_a_tool_that_a_callback_takes_out_of_the_request_cannot_be_called() -> None:
    """The model is told that there is no such tool, if it calls it all the same."""

    def without(callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        llm_request.config.tools.clear()

    agent = LlmAgent(
        name="a", model=ScriptedLlm([call("add", a=1, b=1), "ok"]), tools=[add], before_model_callback=without
    )
    events = await run(runner_of(agent))
    assert events[1].get_function_responses()[0].response["error"]["type"] == "UnknownToolError"


async def test_errors_of_models_and_tools_can_be_answered() -> None:
    """What on_model_error or on_tool_error returns takes the place of the failure; None leaves it as it is."""

    def calm(callback_context: CallbackContext, llm_request: Any, error: Exception) -> LlmResponse:
        return LlmResponse(content=content(f"sorry: {error}"))

    agent = LlmAgent(name="a", model=ScriptedLlm([RuntimeError("down")]), on_model_error_callback=calm)
    assert [event.text for event in await run(runner_of(agent))] == ["sorry: down"]

    def mend(tool: Any, args: dict[str, Any], tool_context: ToolContext, error: Exception) -> str:
        return f"{tool.name} failed with {type(error).__name__}"

    model = ScriptedLlm([[call("add", a="x", b=1), call("nothing")], "done"])
    agent = LlmAgent(name="a", model=model, tools=[add], on_tool_error_callback=mend)
    answers = (await run(runner_of(agent)))[1].get_function_responses()
    assert [item.response["result"] for item in answers] == [
        "add failed with ArgumentError",
        "nothing failed with UnknownToolError",
    ]


async def test_state_goes_with_what_it_belongs_to() -> None:
    """Before an agent: an event of its own. Around a model: its event. Around a tool: the response, or the error."""

    def writes(key: str) -> Any:
        def write(**arguments: Any) -> None:
            context = arguments.get("callback_context") or arguments["tool_context"]
            context.state.add(key, 1)

        return write

    def broken(tool_context: ToolContext) -> None:
        """Fails."""
        tool_context.state["lost"] = True
        raise ValueError("broken")

    names = ("before_agent", "after_agent", "before_model", "after_model", "before_tool", "on_tool_error")
    own: dict[str, Any] = {f"{name}_callback": writes(name) for name in names}
    agent = LlmAgent(name="a", model=ScriptedLlm([call("broken"), "2"]), tools=[broken], **own)
    events = await run(runner_of(agent))
    assert [list(event.actions.state_ops) for event in events] == [
        ["before_agent"],
        ["before_model", "after_model"],
        ["before_tool", "on_tool_error"],
        ["before_model", "after_model"],
        ["after_agent"],
    ]
    assert all("lost" not in event.actions.state_delta for event in events)


@pytest.mark.parametrize(
    "hook", ["before_agent", "after_agent", "before_model", "after_model", "before_tool", "after_tool"]
)
@pytest.mark.parametrize("place", ["agent", "plugin"])
async def test_a_callback_that_raises_fails_the_run_with_its_own_exception(hook: str, place: str) -> None:
    """It is not wrapped, nor taken for the failure of a model or a tool; what a tool has done is on record."""
    swallowed: list[Exception] = []

    def swallow(error: Exception, **arguments: Any) -> Any:
        swallowed.append(error)

    def fails(**arguments: Any) -> None:
        raise ZeroDivisionError("in a callback")

    own: dict[str, Any] = {"on_model_error_callback": swallow, "on_tool_error_callback": swallow}
    plugins = []
    if place == "agent":
        own[f"{hook}_callback"] = fails
    else:
        plugin = BasePlugin("p")
        setattr(plugin, f"{hook}_callback", fails)
        plugins.append(plugin)
    model = ScriptedLlm([call("add", a=1, b=1), "2"])
    runner = runner_of(LlmAgent(name="a", model=model, tools=[add], **own), *plugins)
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        await run(runner)
    assert swallowed == []
    events = await stored(runner)
    assert events[-1].error_code == "ZeroDivisionError"
    assert events[-1].author == "a"
    answers = [item.response for event in events for item in event.get_function_responses()]
    if hook == "after_tool":
        assert answers == [{"result": 2}]
    elif hook == "before_tool":
        assert answers[0]["error"]["type"] == "cancelled"


async def test_what_a_callback_gives_must_be_json() -> None:
    """A result or arguments that cannot be stored are the callback's failure, not the tool's."""
    model = ScriptedLlm([call("add", a=1, b=1)])
    wrong: list[dict[str, Any]] = [
        {"before_tool_callback": lambda tool, args, tool_context: object()},
        {"before_tool_callback": lambda tool, args, tool_context: args.update(a=object())},
        {"after_tool_callback": lambda tool, args, tool_context, tool_response: b"x"},
    ]
    for hooks in wrong:
        model.restart()
        with pytest.raises(InvalidValueError):
            await run(runner_of(LlmAgent(name="a", model=model, tools=[add], **hooks)))


# --- events, messages and runs ----------------------------------------------------------------------------------------


async def test_an_event_can_be_changed_before_it_is_stored() -> None:
    """Of a new event that on_event returns, what it leaves out stays; ids and times are not its to change."""

    class Redact(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
            if "secret" not in event.text:
                return None
            return Event(id="mine", content=content("[redacted]"), custom_metadata={"by": "redact"})

    agent = LlmAgent(name="a", model=ScriptedLlm(["the secret"]), output_key="kept")
    runner = runner_of(agent, Redact("redact"))
    [event] = await run(runner)
    assert (event.text, event.author, event.custom_metadata) == ("[redacted]", "a", {"by": "redact"})
    assert event.id != "mine"
    assert event.actions.state_delta == {"kept": "the secret"}
    assert (await stored(runner))[-1] == event


async def test_an_event_whose_callback_raises_is_not_stored() -> None:
    """The run fails with it; the error event is stored all the same, although its callback raises, too."""

    class Strict(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            raise PermissionError("not this one")

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])), Strict("strict"))
    with pytest.raises(PermissionError):
        await run(runner)
    assert [event.error_code or event.text for event in await stored(runner)] == ["hi", "PermissionError"]


async def test_on_event_cannot_emit() -> None:
    """An event about an event would have no end."""

    class Chatty(BasePlugin):
        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            await invocation_context.emit(Event(message="me, too"))

    with pytest.raises(InvocationEndedError, match="on_event"):
        await run(runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])), Chatty("chatty")))


async def test_nothing_can_be_emitted_before_the_message_is_stored() -> None:
    """A callback about the message that emits is told so; it may answer, and the message is stored."""
    told: list[str] = []

    class Eager(BasePlugin):
        async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> None:
            with pytest.raises(InvocationEndedError) as caught:
                await invocation_context.emit(Event(message="first"))
            told.append(str(caught.value))

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])), Eager("eager"))
    assert [event.text for event in await run(runner)] == ["hello"]
    assert "the message is not stored yet" in told[0]
    assert [event.text for event in await stored(runner)] == ["hi", "hello"]


async def test_a_message_can_be_changed_and_state_goes_with_it() -> None:
    """What on_user_message returns is stored as the message, with what it has written to the state."""

    class Polite(BasePlugin):
        def on_user_message_callback(  # type: ignore[override]  # a sync one
            self, *, invocation_context: InvocationContext, user_message: Content
        ) -> Content:
            invocation_context.state["asked"] = user_message.text
            invocation_context.state["temp:once"] = 1
            return Content(parts=[Part(text=f"{user_message.text}, please")])

    def shows(callback_context: CallbackContext) -> None:
        assert callback_context.state["temp:once"] == 1

    model = ScriptedLlm(["yes"])
    runner = runner_of(LlmAgent(name="a", model=model, before_agent_callback=shows), Polite("polite"))
    await run(runner, "tea")
    message = (await stored(runner))[0]
    assert (message.text, message.author, message.actions.state_delta) == ("tea, please", "user", {"asked": "tea"})
    assert model.requests[0].contents[0].text == "tea, please"


async def test_a_message_whose_callback_raises_is_not_stored() -> None:
    """Entering the run raises it."""

    class Guard(BasePlugin):
        async def on_user_message_callback(self, **arguments: Any) -> None:
            raise PermissionError("not you")

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([])), Guard("guard"))
    with pytest.raises(PermissionError):
        await run(runner)
    assert await stored(runner) == []


async def test_a_run_can_be_answered_before_it_begins() -> None:
    """What before_run returns is the answer; no agent runs, and after_run is called."""
    seen: list[str] = []

    class Closed(BasePlugin):
        async def before_run_callback(self, **arguments: Any) -> Content:
            return content("we are closed")

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([])), Watching("w", seen), Closed("closed"))
    assert [event.text for event in await run(runner)] == ["we are closed"]
    assert seen == ["w on_user_message", "w before_run", "w on_event", "w after_run"]


async def test_ending_the_invocation_ends_all_of_it() -> None:
    """A callback of one agent that sets end_invocation keeps every later agent, model and tool from starting."""

    def end(callback_context: CallbackContext, **arguments: Any) -> None:
        callback_context.end_invocation = True

    for hook in ("before_agent_callback", "before_model_callback"):
        hooks: dict[str, Any] = {hook: end}
        first = LlmAgent(name="first", model=ScriptedLlm([]), **hooks)
        second = LlmAgent(name="second", model=ScriptedLlm([]))
        assert await run(runner_of(SequentialAgent(name="all", sub_agents=[first, second]))) == []


# --- cleaning up ------------------------------------------------------------------------------------------------------


class Cleanup(BasePlugin):
    """Notes what it is told at the end, after a while."""

    def __init__(self, seen: list[str], takes_s: float = 1.0) -> None:
        super().__init__("cleanup")
        self.seen = seen
        self.takes_s = takes_s

    async def after_agent_callback(self, *, agent: Any, callback_context: CallbackContext) -> None:
        callback_context.state["agent"] = "left"
        await trio.sleep(self.takes_s)
        self.seen.append("after_agent")

    async def on_agent_error_callback(self, *, agent: Any, callback_context: CallbackContext, error: Exception) -> None:
        self.seen.append(f"agent failed: {type(error).__name__}")

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self.seen.append(f"run failed: {type(error).__name__}")

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        await trio.sleep(self.takes_s)
        self.seen.append("after_run")


@pytest.mark.parametrize("end", ["success", "failure", "break", "cancel", "deadline"])
async def test_cleanup_hooks_run_however_the_run_ends(end: str, autojump_clock: trio.testing.MockClock) -> None:
    """After success, a failure, the caller leaving, a cancellation or the deadline; what they write is stored."""
    seen: list[str] = []

    class Agent(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(Event(message="one"))
            if end == "failure":
                raise ValueError("broken")
            if end != "success":
                await trio.sleep_forever()

    runner = runner_of(Agent(name="a"), Cleanup(seen))
    config = RunConfig(deadline_s=5)
    with trio.move_on_after(3 if end == "cancel" else 100):
        try:
            async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
                async for _ in running:
                    if end == "break":
                        break
        except (ValueError, TimeoutError):
            pass
    told = {
        "failure": ["agent failed: ValueError", "after_agent", "run failed: ValueError", "after_run"],
        "deadline": ["after_agent", "after_run"],
    }
    assert seen == told.get(end, ["after_agent", "after_run"])
    assert {"agent": "left"} in [event.actions.state_delta for event in await stored(runner)]


async def test_cleanup_has_a_bound_once_the_run_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    """A cleanup hook that takes longer is cut off, and the run fails with an error that says so."""
    seen: list[str] = []
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["x"])), Cleanup(seen, 60.0), plugin_close_timeout=5.0)
    started = trio.current_time()
    with pytest.raises(CleanupTimeoutError, match=r"5\.0 seconds"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi"):
            await trio.sleep(1)
    assert trio.current_time() - started == pytest.approx(11.0)
    assert seen == ["run failed: CleanupTimeoutError"]


async def test_without_a_cancellation_cleanup_has_its_time(autojump_clock: trio.testing.MockClock) -> None:
    """A cleanup hook of a run that comes to its end may take longer than the bound."""
    seen: list[str] = []
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["x"])), Cleanup(seen, 60.0), plugin_close_timeout=5.0)
    await run(runner)
    assert seen == ["after_agent", "after_run"]


async def test_a_cleanup_hook_that_raises_stops_no_other() -> None:
    """All are called; the first failure is raised, or becomes a note on what had failed before."""
    seen: list[str] = []

    class Fails(BasePlugin):
        async def after_run_callback(self, **arguments: Any) -> None:
            raise OSError("no disk")

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["x"])), Fails("fails"), Cleanup(seen, 0))
    with pytest.raises(OSError, match="no disk"):
        await run(runner)
    assert seen == ["after_agent", "after_run"]
    other = runner_of(LlmAgent(name="a", model=ScriptedLlm([ValueError("model")])), Fails("fails"))
    with pytest.raises(ValueError, match="model") as caught:
        await run(other)
    assert "no disk" in " ".join(caught.value.__notes__)


async def test_a_slow_cleanup_hook_takes_nothing_from_the_others(autojump_clock: trio.testing.MockClock) -> None:
    """Each has the whole bound for itself."""
    seen: list[str] = []

    class Slow(BasePlugin):
        async def after_run_callback(self, **arguments: Any) -> None:
            await trio.sleep_forever()

    agent = LlmAgent(name="a", model=ScriptedLlm(["x"]))
    runner = runner_of(agent, Slow("slow"), Cleanup(seen, 1.0), plugin_close_timeout=5.0)
    with pytest.raises(CleanupTimeoutError):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi"):
            await trio.sleep(0.5)
    assert seen == ["after_agent", "after_run"]


async def test_an_error_hook_that_raises_does_not_keep_others_from_cleaning_up() -> None:
    """The hooks that come after a run or an agent are called all the same; the run fails with what had failed first."""
    seen: list[str] = []

    class Fails(BasePlugin):
        async def on_run_error_callback(self, **arguments: Any) -> None:
            raise OSError("on_run_error")

        async def on_agent_error_callback(self, **arguments: Any) -> None:
            raise OSError("on_agent_error")

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([ValueError("model")])), Fails("f"), Cleanup(seen, 0))
    with pytest.raises(ValueError, match="model") as caught:
        await run(runner)
    assert seen == ["agent failed: ValueError", "after_agent", "run failed: ValueError", "after_run"]
    assert "on_run_error" in str(caught.value.__notes__)
    assert "on_agent_error" in str(caught.value.__notes__)


async def test_plugins_are_closed_with_the_runner(autojump_clock: trio.testing.MockClock) -> None:
    """Each once, within the bound; what takes too long is an error that names it."""
    closed: list[str] = []

    class Slow(BasePlugin):
        async def close(self) -> None:
            await trio.sleep(1 if self.name == "quick" else 100)
            closed.append(self.name)

    agent = LlmAgent(name="a", model=ScriptedLlm([]))
    async with runner_of(agent, Slow("quick")):
        pass
    assert closed == ["quick"]
    with pytest.raises(CleanupTimeoutError, match="slow"):
        async with runner_of(agent, Slow("slow")):
            pass


def test_callbacks_that_cannot_be_called_are_refused() -> None:
    """What is no function, or does not take the documented arguments by name, is refused when the agent is made."""
    model = ScriptedLlm([])
    with pytest.raises(ConfigurationError, match="before_agent_callback to take the arguments callback_context"):
        LlmAgent(name="a", model=model, before_agent_callback=lambda ctx: None)
    with pytest.raises(ConfigurationError, match="after_tool_callback"):
        LlmAgent(name="a", model=model, after_tool_callback=[5])  # type: ignore[list-item]  # the point of the test
    agent = LlmAgent(name="a", model=model)
    with pytest.raises(ConfigurationError, match="two named 'p'"):
        App("app", agent, plugins=[BasePlugin("p"), BasePlugin("p")])
    with pytest.raises(ConfigurationError, match="BasePlugin"):
        App("app", agent, plugins=["logging"])  # type: ignore[list-item]  # the point of the test


async def test_a_callback_that_returns_something_else_is_an_error() -> None:
    """The message says which one, and what it should have returned."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]), before_model_callback=lambda callback_context, llm_request: "hi")
    with pytest.raises(TypeError, match="before_model_callback to return LlmResponse"):
        await run(runner_of(agent))


# --- what can go wrong ------------------------------------------------------------------------------------------------


class Hook(BasePlugin):
    """A plugin with one hook."""

    def __init__(self, hook: str, does: Any, name: str = "hook") -> None:
        super().__init__(name)
        setattr(self, f"{hook}_callback", does)


@pytest.mark.parametrize("end", ["cancel", "deadline", "break"])
async def test_on_event_has_a_bound_where_an_event_has_to_be_stored(
    end: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The responses of cancelled calls and error events wait plugin_close_timeout, and are stored as they were."""
    seen: list[Event] = []

    async def hangs(invocation_context: InvocationContext, event: Event) -> None:
        if event.get_function_responses() or event.error_code:
            await trio.sleep_forever()

    async def forever() -> None:
        """Take long."""
        await trio.sleep_forever()

    async def later(invocation_context: InvocationContext, event: Event) -> None:
        seen.append(event)

    agent = LlmAgent(name="a", model=ScriptedLlm([call("forever")]), tools=[forever])
    plugins = [Hook("on_event", hangs), Hook("on_event", later, "later")]
    runner = runner_of(agent, *plugins, plugin_close_timeout=5.0)
    config = RunConfig(deadline_s=3)
    with pytest.raises(TimeoutError) as caught:
        with trio.move_on_after(2) if end == "cancel" else trio.CancelScope():
            async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
                async for _ in running:
                    if end == "break":
                        break
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "an on_event callback took longer than 5.0 seconds" in told
    assert isinstance(caught.value, CleanupTimeoutError) is (end != "deadline")
    assert trio.current_time() < 15
    events = await stored(runner)
    [response] = events[2].get_function_responses()
    assert response.response["error"]["type"] == "cancelled"
    assert [event.id for event in seen] == [event.id for event in events[1:]]


async def test_a_hook_that_lets_a_closing_event_hand_over_does_not_keep_it_from_the_log() -> None:
    """Whom it names is no agent: of an event that goes on that is refused, but this one answers a cancelled call."""

    async def hand_over(invocation_context: InvocationContext, event: Event) -> Event | None:
        if not event.get_function_responses():
            return None
        return changed(event, actions=changed(event.actions, transfer_to_agent="nobody"))

    async def forever() -> None:
        """Take long."""
        await trio.sleep_forever()

    agent = LlmAgent(name="a", model=ScriptedLlm([call("forever")]), tools=[forever])
    runner = runner_of(agent, Hook("on_event", hand_over))
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as running:
        async for _ in running:
            break
    [response] = (await stored(runner))[2].get_function_responses()
    assert response.response["error"]["type"] == "cancelled"


@pytest.mark.parametrize("hook", ["before_agent", "after_agent", "before_model", "after_model"])
async def test_actions_of_a_hook_go_with_the_event_of_what_it_stands_around(hook: str) -> None:
    """A model's hooks share the model's event; an agent's have one of their own. Here they end a loop."""

    def escalate(callback_context: CallbackContext, **arguments: Any) -> None:
        callback_context.actions.escalate = True

    own: dict[str, Any] = {f"{hook}_callback": escalate}
    writer = LlmAgent(name="w", model=ScriptedLlm(["x", "y"]), **own)
    events = await run(runner_of(LoopAgent(name="loop", max_iterations=2, sub_agents=[writer])))
    told = {"before_agent": [("", True), ("x", None)], "after_agent": [("x", None), ("", True)]}
    assert [(event.text, event.actions.escalate) for event in events] == told.get(hook, [("x", True)])


async def test_what_an_agent_sets_goes_with_an_event_of_its_own_at_its_end() -> None:
    """Actions that no event has carried are not lost; and those that one has carried do not come again."""

    class Setting(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            ctx.actions.escalate = True
            await ctx.emit(Event(message="one"))
            await ctx.emit(Event(message="two"))
            ctx.actions.escalate = True

    events = await run(runner_of(Setting(name="a")))
    assert [(event.text, event.actions.escalate) for event in events] == [("one", True), ("two", None), ("", True)]


@pytest.mark.parametrize("where", ["response", "call"])
async def test_on_event_leaves_calls_and_responses_as_they_are(where: str) -> None:
    """Taking one away, changing or adding it fails the run with the rule, and every call is answered."""

    def redact(invocation_context: InvocationContext, event: Event) -> Event | None:
        has = event.get_function_responses() if where == "response" else event.get_function_calls()
        return Event(message="[redacted]") if has else None

    agent = LlmAgent(name="a", model=ScriptedLlm([call("add", a=1, b=2)]), tools=[add])
    runner = runner_of(agent, Hook("on_event", redact))
    with pytest.raises(InvalidEventError, match="on_event_callback to leave the function calls and responses"):
        await run(runner)
    events = await stored(runner)
    made = [item.id for event in events for item in event.get_function_calls()]
    assert made == [item.id for event in events for item in event.get_function_responses()]
    assert len(made) == (1 if where == "response" else 0)
    added = Event(message=Content(parts=[call("add", a=1, b=2)]))
    other = runner_of(
        LlmAgent(name="a", model=ScriptedLlm(["x"])),
        Hook("on_event", lambda invocation_context, event: None if event.error_code else added),
    )
    with pytest.raises(InvalidEventError, match="on_event_callback"):
        await run(other)


async def test_an_answer_made_from_the_event_takes_things_away() -> None:
    """One with the event's id is taken as it is: without a content, a state change or a transfer, if it has none."""

    def strip(invocation_context: InvocationContext, event: Event) -> Event:
        actions = attrs.evolve(event.actions, state_delta={}, transfer_to_agent=None)
        content = None if event.text else event.content
        return attrs.evolve(event, content=content, actions=actions, timestamp=5.0, invocation_id="other")

    sub = LlmAgent(name="sub", model=ScriptedLlm([]))
    model = ScriptedLlm([call("transfer_to_agent", agent_name="sub"), "the secret"])
    agent = LlmAgent(name="a", model=model, sub_agents=[sub], output_key="secret")
    runner = runner_of(agent, Hook("on_event", strip))
    events = await run(runner)
    assert [event.actions.transfer_to_agent for event in events] == [None, None, None]
    assert events[-1].content is None
    assert "secret" not in events[-1].actions.state_delta
    assert all(event.timestamp != 5.0 and event.invocation_id != "other" for event in events)


async def test_what_on_event_writes_goes_with_that_event() -> None:
    """Also with the last one; if the event is not stored, the write is gone; with a fragment it waits for the next."""

    def count(invocation_context: InvocationContext, event: Event) -> None:
        invocation_context.state.add("partial" if event.partial else "events", 1)
        invocation_context.state["temp:last"] = event.text

    seen: list[Any] = []

    def look(callback_context: CallbackContext) -> None:
        seen.append(callback_context.state["temp:last"])

    agent = LlmAgent(name="a", model=ScriptedLlm([["x", "y"]]), after_agent_callback=look, output_key="events_text")
    runner = runner_of(agent, Hook("on_event", count))
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
        events = [event async for event in running]
    assert [event.partial for event in events] == [True, True, None]
    assert events[-1].actions.state_ops == {"partial": {"add": 2}, "events": {"add": 1}}
    assert events[-1].actions.state_delta == {"events_text": "xy"}
    assert seen == ["xy"]

    def refuse(invocation_context: InvocationContext, event: Event) -> None:
        if event.text:
            invocation_context.state["lost"] = True
            raise PermissionError("no")

    other = runner_of(LlmAgent(name="a", model=ScriptedLlm(["x"])), Hook("on_event", refuse))
    with pytest.raises(PermissionError):
        await run(other)
    assert all("lost" not in event.actions.state_delta for event in await stored(other))


async def test_tokens_are_those_that_the_model_tells() -> None:
    """A callback's response in its place neither hides them nor how the answer was given."""

    def shout(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse:
        assert llm_response.content is not None
        return LlmResponse(content=llm_response.content)

    usage = UsageMetadata(total_token_count=100)
    answer = LlmResponse(
        content=Content(role="model", parts=[call("add", a=1, b=2)]),
        usage_metadata=usage,
        finish_reason="STOP",
        turn_complete=True,
        model_version="m-1",
        grounding_metadata={"of": "what the hook has replaced"},
    )
    agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: answer), tools=[add], after_model_callback=shout)
    runner = runner_of(agent)
    with pytest.raises(TokensLimitExceededError):
        async with runner.run_async(
            user_id="u", session_id="s", new_message="hi", run_config=RunConfig(max_tokens=300)
        ) as running:
            await running.wait()
    events = [event for event in await stored(runner) if event.get_function_calls()]
    assert len(events) == 3
    assert {(event.finish_reason, event.turn_complete) for event in events} == {("STOP", True)}
    assert {(event.model_version, event.grounding_metadata) for event in events} == {("m-1", None)}
    assert all(event.usage_metadata == usage for event in events)


@pytest.mark.parametrize("around", ["agent", "run"])
@pytest.mark.parametrize("fails", [False, True])
async def test_hooks_around_something_share_its_context(around: str, fails: bool) -> None:
    """A context variable that is set before an agent or a run is seen in it, and can be reset after it."""
    current: ContextVar[str] = ContextVar("current", default="none")
    tokens: list[Any] = []
    seen: list[str] = []

    async def before(**arguments: Any) -> None:
        tokens.append(current.set("mine"))

    async def after(**arguments: Any) -> None:
        current.reset(tokens.pop())
        seen.append(current.get())

    class Agent(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            seen.append(current.get())
            if fails:
                raise ValueError("broken")

    plugins = [Hook(f"before_{around}", before), Hook(f"after_{around}", after, "after")]
    try:
        await run(runner_of(Agent(name="a"), *plugins))
    except ValueError as error:
        assert str(error) == "broken"  # noqa: PT017 # it is the same whether it fails or not
    assert seen == ["mine", "none"]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_hooks_return_that_are_told_of_an_end_keeps_no_other_from_it(fails: bool) -> None:
    """after_run and the error hooks have no answer; after_agent has one only if the agent has come to its end."""
    seen: list[str] = []
    late = ("on_agent_error", "after_agent", "on_run_error", "after_run")
    answers = [Hook(name, lambda **arguments: content("stray"), f"p{name}") for name in late]
    told = [Hook(name, lambda name=name, **arguments: seen.append(name), f"q{name}") for name in late]
    agent = LlmAgent(name="a", model=ScriptedLlm([ValueError("broken") if fails else "x"]))
    runner = runner_of(agent, *answers, *told)
    if fails:
        with pytest.raises(ValueError, match="broken"):
            await run(runner)
        assert seen == list(late)
    else:
        assert [event.text for event in await run(runner)] == ["x", "stray"]
        assert seen == ["after_run"]


async def test_a_failure_while_cleaning_up_does_not_hide_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    """The deadline is what the run fails with; what failed because of it is a note, and an error event."""

    class Careless(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cleanup bug")

    async def hangs(**arguments: Any) -> None:
        await trio.sleep_forever()

    config = RunConfig(deadline_s=5)
    quick = LlmAgent(name="a", model=ScriptedLlm(["x"]))
    for runner, also in (
        (runner_of(Careless(name="a")), "ValueError"),
        (runner_of(quick, Hook("after_agent", hangs)), "CleanupTimeoutError"),
    ):
        with pytest.raises(DeadlineExceededError) as caught:
            async with runner.run_async(user_id="u", session_id="s", new_message="hi", run_config=config) as running:
                await running.wait()
        assert also in str(caught.value.__notes__)
        codes = [event.error_code for event in await stored(runner) if event.error_code]
        assert codes == ["DeadlineExceededError", also]


async def test_a_failure_before_the_deadline_is_what_the_run_fails_with(autojump_clock: trio.testing.MockClock) -> None:
    """Also if cleaning up after it takes until the deadline, and longer."""

    class Broken(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            raise ValueError("first")

    async def hangs(**arguments: Any) -> None:
        await trio.sleep_forever()

    runner = runner_of(Broken(name="a"), Hook("after_agent", hangs))
    with pytest.raises(ValueError, match="first") as caught:
        async with runner.run_async(
            user_id="u", session_id="s", new_message="hi", run_config=RunConfig(deadline_s=5)
        ) as running:
            await running.wait()
    assert "CleanupTimeoutError" in str(caught.value.__notes__)


@pytest.mark.parametrize("role", ["user", None])
@pytest.mark.parametrize("kind", [BaseAgent, LlmAgent])
async def test_what_a_hook_says_is_the_agents_answer_whatever_its_role(role: str | None, kind: type[BaseAgent]) -> None:
    """It is stored in the model's role, in which the model is shown its own words."""
    said = Content(role=role, parts=[Part(text="hello")])
    agent = kind(name="a", before_agent_callback=lambda callback_context: said)
    runner = runner_of(agent if kind is BaseAgent else agent.clone({"model": ScriptedLlm([])}))
    async with runner.run_async(user_id="u", session_id="s", new_message="one") as running:
        answer = await running.wait()
    assert answer is not None
    assert answer.content is not None
    assert (answer.text, answer.content.role) == ("hello", "model")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Content(parts=[]), "empty"),
        (Content(role="user", parts=[call("add", a=1, b=2)]), "calls"),
        (Content(parts=[Part(function_response=FunctionResponse(id="c", name="add"))]), "responses"),
    ],
)
async def test_a_message_from_a_plugin_is_one_that_a_user_can_send(answer: Content, problem: str) -> None:
    """Else entering the run is refused, and nothing is stored."""
    plugin = Hook("on_user_message", lambda invocation_context, user_message: answer)
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([])), plugin)
    with pytest.raises(InvalidMessageError, match=problem):
        await run(runner)
    assert await stored(runner) == []


def test_plugins_come_from_any_iterable() -> None:
    """Plugins that can be gone through only once are all taken."""
    plugins = [BasePlugin("one"), BasePlugin("two")]
    app = App("app", LlmAgent(name="a", model=ScriptedLlm([])), plugins=(plugin for plugin in plugins))  # type: ignore[arg-type]  # the point
    assert list(app.plugins) == plugins


def test_hooks_of_plugins_are_checked_like_those_of_agents() -> None:
    """A misspelt name, or parameters that do not take what hooks are given, are refused by the App."""

    class Misspelt(BasePlugin):
        async def before_modell_callback(self, **arguments: Any) -> None: ...

    class Positional(BasePlugin):
        async def before_model_callback(self, context: Any, request: Any) -> None:  # type: ignore[override]  # the point
            ...

    agent = LlmAgent(name="a", model=ScriptedLlm([]))
    with pytest.raises(ConfigurationError, match="before_modell_callback; they are on_user_message_callback"):
        App("app", agent, plugins=[Misspelt("p")])
    with pytest.raises(ConfigurationError, match="'p' to take callback_context, llm_request by name"):
        App("app", agent, plugins=[Positional("p")])
    with pytest.raises(ConfigurationError, match="expected plugins to be a list"):
        App("app", agent, plugins=BasePlugin("p"))  # type: ignore[arg-type]  # the point


class Breaking(BasePlugin):
    """Fails at the first event that answers calls."""

    seen = 0

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """Fail, once."""
        self.seen += bool(event.get_function_responses())
        if self.seen == 1:
            raise OSError("the plugin has failed")


async def test_writes_of_tools_are_stored_once_if_a_plugin_fails_at_their_responses() -> None:
    """The run fails with the plugin's error, its end stores the responses, and each write counts once."""

    async def count(by: int, tool_context: ToolContext) -> str:
        tool_context.state.add("sum", by)
        tool_context.state.extend("list", [by])
        return f"counted {by}"

    model = ScriptedLlm([[call("count", by=2), call("count", by=3)]])
    runner = runner_of(LlmAgent(name="a", model=model, tools=[count]), Breaking("breaking"))
    with pytest.raises(OSError, match="the plugin has failed"):
        await run(runner)
    events = await stored(runner)
    answers = [each.response for event in events for each in event.get_function_responses()]
    assert answers == [{"result": "counted 2"}, {"result": "counted 3"}]
    session = await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")
    assert session is not None
    assert dict(session.state) == {"sum": 5, "list": [2, 3]}


async def test_callbacks_before_a_pause_are_not_called_again_when_the_run_is_resumed() -> None:
    """An agent that a callback answered for does not run later either; its answer is in the log once."""
    asked: list[str] = []

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"{ctx.agent_name} got {await ctx.request_input('?')}"))

    def before(callback_context: Any) -> Content | None:
        asked.append(callback_context.agent_name)
        return content("instead") if callback_context.agent_name == "a" else None

    agents = [Logic(name=name, logic=ask, before_agent_callback=before) for name in "ab"]
    runner = runner_of(SequentialAgent(name="all", sub_agents=agents))
    async with runner.run_async(**PLACE, new_message="hi") as paused:
        await paused.wait()
    async with runner.run_async(**PLACE, new_message=paused.pending[0].reply("x")) as ended:
        await ended.wait()
    assert (paused.status, ended.status, asked) == ("paused", "completed", ["a", "b"])
    assert [event.text for event in await stored(runner) if event.text] == ["hi", "instead", "b got x"]


async def test_callbacks_after_an_agent_are_called_when_it_is_over_and_not_when_it_pauses() -> None:
    """A failure in the resumed run is told to the error hook once, before the hook after the agent."""
    asked: list[str] = []

    async def fails(ctx: InvocationContext) -> None:
        await ctx.request_input("?")
        raise ValueError("late")

    class Watcher(BasePlugin):
        async def after_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
            asked.append("after")

        async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
            asked.append(f"error {error}")

    runner = runner_of(Logic(name="a", logic=fails), Watcher("watcher"))
    async with runner.run_async(**PLACE, new_message="hi") as paused:
        await paused.wait()
    assert asked == []
    with pytest.raises(ValueError, match="late"):
        async with runner.run_async(**PLACE, new_message=paused.pending[0].reply("x")) as run:
            await run.wait()
    assert asked == ["error late", "after"]
