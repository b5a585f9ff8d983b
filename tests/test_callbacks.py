"""Callbacks and plugins: when they are called, what their answers and failures do, and that they clean up."""

from __future__ import annotations

from typing import Any

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
    Part,
    RunConfig,
    SequentialAgent,
    ToolContext,
)
from minirun.agents import CallbackContext
from minirun.errors import CleanupTimeoutError, ConfigurationError, InvalidValueError, InvocationEndedError
from minirun.models import LlmRequestDraft, LlmResponse
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call


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
    """Before an agent: an event of its own. Around a model: its event. Around a tool: the response, also a failure's."""

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
        {"after_tool_callback": lambda tool, args, tool_context, tool_response: {1, 2}},
    ]
    for hooks in wrong:
        model.restart()
        with pytest.raises(InvalidValueError):
            await run(runner_of(LlmAgent(name="a", model=model, tools=[add], **hooks)))


# --- events, messages and runs ----------------------------------------------------------------------------------------


async def test_an_event_can_be_changed_before_it_is_stored() -> None:
    """What on_event returns is stored and shown: fields that it leaves out stay, ids and times are not its to change."""

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


async def test_a_message_can_be_changed_and_state_goes_with_it() -> None:
    """What on_user_message returns is stored as the message, with what it has written to the state."""

    class Polite(BasePlugin):
        def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> Content:
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
