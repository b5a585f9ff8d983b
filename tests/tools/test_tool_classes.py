"""
Tools that are classes: their arguments are checked against what they declare, their methods are async, and what blocks
in them, or in a callback, runs in a worker thread.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from minirun import App, BaseAgent, Content, Event, InMemoryRunner, InvocationContext, LlmAgent, RunConfig, ToolContext
from minirun.agents import CallbackContext, ReadonlyContext, in_thread
from minirun.errors import ConfigurationError, MinirunError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, BaseToolset
from minirun.types import FunctionDeclaration, Part

from ..helpers import PLACE, run_to_end, runner_for, stored_events
from .test_tools import answers

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}


class Weather(BaseTool):
    """A tool that declares a schema by hand, and says what it was called with."""

    def __init__(self, parameters: Any = CITY, work: Callable[[ToolContext], Any] | None = None) -> None:
        super().__init__(name="weather", description="Tells the weather.")
        self.parameters = parameters
        self.work = work
        self.calls: list[dict[str, Any]] = []

    @property
    def declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description=self.description, parameters=self.parameters)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        self.calls.append(args)
        return "sunny" if self.work is None else await tool_context.run_in_thread(self.work, tool_context)


class Trusting(Weather):
    checks_arguments = False


# --- arguments --------------------------------------------------------------------------------------------------------


class Set(BaseToolset):
    def __init__(self, tool: BaseTool) -> None:
        super().__init__(tool_name_prefix="my")
        self.tool = tool

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [self.tool]


@pytest.mark.parametrize("name", ["weather", "my_weather"])
async def test_what_does_not_fit_the_declaration_is_told_and_nothing_is_done(name: str) -> None:
    """
    Wrong arguments of a tool that is a class, also of one in a toolset, are an ArgumentError with every problem.
    """
    tool = Weather()
    given = tool if name == "weather" else Set(tool)
    found = await answers([given], call(name, days="two"), call(name, city="Oslo", days=2.0))
    assert found[0]["error"]["type"] == "ArgumentError"
    lines = found[0]["error"]["message"].splitlines()
    assert lines == ["city: missing, expected a string", 'days: expected an integer, found "two"']
    assert found[1] == {"result": "sunny"}
    assert tool.calls == [{"city": "Oslo", "days": 2.0}]


@pytest.mark.parametrize("name", ["weather", "my_weather"])
async def test_a_tool_may_check_its_arguments_itself(name: str) -> None:
    """
    With `checks_arguments = False` a tool gets what the model sent, also in a toolset, and its schema may have any
    keyword.
    """
    tool = Trusting({"type": "object", "if": {}})
    given = tool if name == "weather" else Set(tool)
    assert await answers([given], call(name, anything=1)) == [{"result": "sunny"}]
    assert tool.calls == [{"anything": 1}]


class Silent(BaseTool):
    """A tool that the model is not told of: it is there for what it adds to each request."""

    @property
    def declaration(self) -> None:
        return None

    async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: Any) -> None:
        llm_request.append_instructions(["Be brief."])

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        raise AssertionError("nobody can call it")


async def test_a_tool_that_declares_nothing_is_not_shown_to_the_model() -> None:
    """What it adds to the request goes with it, and a model that calls it all the same is told that there is none."""
    tool, model = Silent(name="silent", description="Adds a word."), ScriptedLlm([call("silent", any="thing"), "fine"])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[tool, Weather()]))
    await run_to_end(runner)
    assert [each.name for each in model.requests[0].config.tools] == ["weather"]
    assert model.requests[0].config.system_instruction == "Be brief."
    [answer] = [each for event in await stored_events(runner) for each in event.get_function_responses()]
    assert answer.response["error"]["type"] == "UnknownToolError"


async def test_a_declaration_that_cannot_be_checked_is_refused_before_the_model_is_asked() -> None:
    """
    A keyword that minirun does not know fails the run with its name and the way out, and nobody is asked.
    """
    model = ScriptedLlm([call("weather")])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[Weather({"type": "object", "if": {}})]))
    with pytest.raises(ConfigurationError, match=r"tool 'weather' at #: the keyword 'if' .*checks_arguments = False"):
        await run_to_end(runner)
    assert model.requests == []


async def test_a_tool_that_declares_no_parameters_gets_what_was_sent() -> None:
    """
    Where nothing is declared, nothing is checked.
    """
    tool = Weather({})
    assert await answers([tool], call("weather", city=1)) == [{"result": "sunny"}]
    assert tool.calls == [{"city": 1}]


# --- methods that are not async ---------------------------------------------------------------------------------------


def make_tool(**methods: Any) -> type:
    return type("Odd", (Weather,), methods)


def make_toolset(**methods: Any) -> type:
    return type("Odd", (Set,), methods)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((make_tool, name) for name in ("run_async", "needs_confirmation", "process_llm_request", "close")),
        *((make_toolset, name) for name in ("get_tools", "close")),
    ],
)
def test_a_method_that_has_to_be_async_is_refused_with_its_class(make: Callable[..., type], name: str) -> None:
    """
    A plain `def` where an `async def` is awaited would fail after its effect: the class cannot be defined.
    """

    def method(self: Any, *args: Any, **named: Any) -> str:
        return "done"

    with pytest.raises(ConfigurationError, match=rf"^expected Odd.{name} to be `async def`, found `def`"):
        make(**{name: method})


def test_a_decorated_method_counts_as_what_it_wraps() -> None:
    """
    A decorator that keeps the name of what it wraps may return a coroutine from a plain function.
    """

    async def run_async(self: Any, *, args: Any, tool_context: Any) -> str:
        return "done"

    @functools.wraps(run_async)
    def logged(*args: Any, **named: Any) -> Any:
        return run_async(*args, **named)

    assert issubclass(make_tool(run_async=logged), Weather)


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_a_tool_runs_what_blocks_in_a_thread() -> None:
    """
    `run_in_thread` calls a function in a worker thread, in which the tool's state can be written.
    """
    where: list[bool] = []

    def work(tool_context: ToolContext) -> str:
        where.append(threading.current_thread() is threading.main_thread())
        tool_context.state["asked"] = True
        return "rain"

    model = ScriptedLlm([call("weather", city="Oslo"), "done"])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[Weather(work=work)])))
    assert events[1].get_function_responses()[0].response == {"result": "rain"}
    assert (where, run.session.state["asked"]) == ([False], True)


async def test_what_a_function_in_a_thread_raises_is_raised_as_it_is() -> None:
    """
    An exception of the function arrives with its type, and an async function is refused.
    """
    caught: list[Exception] = []

    def fail(number: int) -> int:
        raise KeyError(number)

    async def wait() -> None:
        """It does not block."""

    async def logic(ctx: InvocationContext) -> None:
        for func in (lambda: fail(7), wait):
            try:
                await ctx.run_in_thread(func)
            except (KeyError, MinirunError) as error:
                caught.append(error)

    await run_to_end(runner_for(logic))
    assert [type(error) for error in caught] == [KeyError, ConfigurationError]


@pytest.mark.parametrize(("ends", "kind"), [(True, "cancelled"), (False, "outcome_unknown")])
async def test_a_thread_of_a_tool_that_is_cancelled_is_waited_for(ends: bool, kind: str) -> None:
    """
    A call that is left is cancelled if its thread ends in time; if not, nobody knows, and the answer says so.
    """
    started, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def work(tool_context: ToolContext) -> str:
        token.run_sync_soon(started.set)
        go_on.wait(120)
        return "late"

    model = ScriptedLlm([call("weather", city="Oslo")])
    runner = runner_for(LlmAgent(name="a", model=model, tools=[Weather(work=work)]))
    config = RunConfig(thread_grace_s=10 if ends else 0)
    async with runner.run_async(**PLACE, new_message="go", run_config=config) as run:
        await anext(run)
        with trio.move_on_after(0):
            await anext(run)
        await started.wait()
        if ends:
            go_on.set()
    go_on.set()
    [answer] = (await stored_events(runner))[-1].get_function_responses()
    assert answer.response["error"]["type"] == kind
    assert run.abandoned_threads == (0 if ends else 1)


# --- callbacks in threads ---------------------------------------------------------------------------------------------


async def test_a_callback_in_a_thread_stops_nobody() -> None:
    """
    Callbacks of an agent, hooks of a plugin and an instruction run in threads, answer, and write to the state.
    """
    where: dict[str, bool] = {}

    def note(name: str) -> None:
        where[name] = threading.current_thread() is threading.main_thread()

    def instruction(context: ReadonlyContext) -> str:
        note("instruction")
        return f"Be {context.state['mood']}."

    def before_tool(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str]:
        note("before_tool")
        return {"result": "not now"}

    def after_agent(callback_context: CallbackContext) -> Content:
        note("after_agent")
        return Content(role="model", parts=[Part(text="over")])

    class Mood(BasePlugin):
        @in_thread
        def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
            note(self.name)
            callback_context.state["mood"] = "calm"

    model = ScriptedLlm([call("weather", city="Oslo"), "done"])
    agent = LlmAgent(
        name="a",
        model=model,
        instruction=in_thread(instruction),
        tools=[Weather()],
        before_tool_callback=in_thread(before_tool),
        after_agent_callback=[in_thread(after_agent)],
    )
    app = App(name="app", root_agent=agent, plugins=[Mood(name="mood")])
    events, _ = await run_to_end(InMemoryRunner(app=app, auto_create_session=True))
    assert where == dict.fromkeys(["mood", "instruction", "before_tool", "after_agent"], False)
    assert model.requests[0].config.system_instruction == "Be calm."
    assert [event.text for event in events if event.text] == ["done", "over"]
    assert [each.response for event in events for each in event.get_function_responses()] == [{"result": "not now"}]


async def test_a_callback_in_a_thread_lets_the_loop_go_on() -> None:
    """
    While a callback waits in its thread, another task of the program runs.
    """
    go_on = threading.Event()

    def before(callback_context: CallbackContext) -> None:
        assert go_on.wait(120), "nobody else ran"

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm(["done"]), before_agent_callback=in_thread(before)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_to_end, runner)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()


async def test_a_callback_that_cannot_be_put_in_a_thread_is_refused() -> None:
    """
    What is async, no function, or takes other arguments than the callback's, is refused when it is given.
    """

    async def ready(callback_context: CallbackContext) -> None:
        """It does not block."""

    def other(name: str) -> None:
        """It is no callback."""

    for wrong in (ready, 7):
        with pytest.raises(ConfigurationError, match="expected a synchronous function"):
            in_thread(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="expected before_agent_callback to take"):
        LlmAgent(name="a", before_agent_callback=in_thread(other))
    with pytest.raises(ConfigurationError, match="to be called with a context"):
        await in_thread(other)("x")


async def test_a_failure_in_a_threads_callback_fails_the_run() -> None:
    """
    What a callback raises in its thread is the run's failure, with its own type.
    """

    def before(callback_context: CallbackContext) -> None:
        raise LookupError("nothing")

    runner = runner_for(LlmAgent(name="a", model=ScriptedLlm([]), before_agent_callback=in_thread(before)))
    with pytest.raises(LookupError, match="nothing"):
        await run_to_end(runner)
    assert isinstance((await stored_events(runner))[-1], Event)
