"""The options of tools: what they are unless somebody says so, their bounds, and what cannot be a tool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import trio

from minirun import FunctionTool, LlmAgent, ToolContext
from minirun.errors import ArgumentError, ConfigurationError
from minirun.runtime import CallbackContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, LongRunningFunctionTool, RetryConfig, exit_loop, get_user_choice, request_input
from minirun.types import FunctionDeclaration

from ..helpers import run_to_end, runner_for


def work() -> str:
    """Work."""
    return "done"


class Plain(BaseTool):
    """A tool that says nothing of itself."""

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return None


OPTIONS = (
    *("name", "description", "timeout_s", "retry", "retries", "max_concurrency", "on_interrupted"),
    *("require_confirmation", "sequential", "is_long_running"),
    *("checks_arguments", "needs_service"),
)


def options_of(tool: BaseTool) -> tuple[Any, ...]:
    return tuple(getattr(tool, name) for name in OPTIONS)


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (FunctionTool(work), ("work", "Work.", None, None, 2, None, "report", *[False] * 4, None)),
        (
            Plain(name="plain", description="It is."),
            ("plain", "It is.", None, None, 2, None, "report", *[False] * 3, True, None),
        ),
        (
            LongRunningFunctionTool(work, name="long", description="Later.", retries=None, on_interrupted="ask"),
            ("long", "Later.", None, None, None, None, "ask", False, False, True, False, None),
        ),
        (
            FunctionTool(work, timeout_s=3, retries=0, max_concurrency=1, sequential=True),
            ("work", "Work.", 3, None, 0, 1, "report", False, True, False, False, None),
        ),
        (exit_loop, ("exit_loop", exit_loop.description, None, None, 2, None, "rerun", *[False] * 4, None)),
        (
            get_user_choice,
            (
                *("get_user_choice", get_user_choice.description, None, None, 2, None, "rerun"),
                *(False, False, True, False, None),
            ),
        ),
        (request_input, ("request_input", request_input.description, None, None, 2, None, "rerun", *[False] * 4, None)),
    ],
    ids=lambda value: value.name if isinstance(value, BaseTool) else "",
)
def test_a_tool_is_what_it_was_told_to_be_and_else_what_is_usual(tool: BaseTool, expected: tuple[Any, ...]) -> None:
    """Each option has its default, and is kept as it was given."""
    assert options_of(tool) == expected


@pytest.mark.parametrize(
    ("option", "fine", "refused"),
    [
        ("timeout_s", [0.001, 1, None], [0, -0.001, "1"]),
        ("retry", [RetryConfig(), None], [1, "twice"]),
        ("retries", [0, 1, None], [-1, 1.5, True, "1"]),
        ("max_concurrency", [1, 2, None], [0, -1, 1.0, "1"]),
        ("on_interrupted", ["report", "rerun", "ask"], ["never", None, 1]),
        ("require_confirmation", [True, False, work], [None, 1, "yes"]),
        ("sequential", [True, False], [1, None, "yes"]),
    ],
)
def test_an_option_has_bounds(option: str, fine: list[Any], refused: list[Any]) -> None:
    """What is within them is kept; what is outside is refused by the name of the tool and of the option."""
    for value in fine:
        assert getattr(FunctionTool(work, **{option: value}), option) == value
    for value in refused:
        with pytest.raises(ConfigurationError, match=rf"^tool 'work': expected {option}"):
            FunctionTool(work, **{option: value})


@pytest.mark.parametrize("name", ["a", "_", "A-9_", "a" * 64])
def test_a_name_that_providers_take(name: str) -> None:
    """Up to 64 letters, digits, `_` and `-`, with no digit and no `-` at the beginning."""
    assert FunctionTool(work, name=name).declaration.name == name


@pytest.mark.parametrize("name", ["", "-a", "9a", "a b", "a.b", "ä", "a" * 65, "a\n", 3])
def test_a_name_that_some_provider_refuses(name: Any) -> None:
    """It is refused when the tool is made."""
    with pytest.raises(ConfigurationError, match=r"^expected a tool name of up to 64 letters.*; name it$"):
        FunctionTool(work, name=name)


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("max_attempts", [1, 2]),
        ("initial_delay", [0, 0.5]),
        ("max_delay", [0, 1e9]),
        ("backoff_factor", [1, 1.5]),
        ("jitter", [0, 1]),
        ("exceptions", [None, (), (OSError,), ("OSError", KeyError)]),
    ],
)
def test_retry_settings_at_their_bounds(name: str, fine: list[Any]) -> None:
    """The least and the most that a RetryConfig takes are taken, and kept."""
    for value in fine:
        assert getattr(RetryConfig(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("settings", "attempts", "randomness", "expected"),
    [
        ({}, 1, 0.5, 1.0),
        ({}, 2, 0.5, 2.0),
        ({}, 6, 0.5, 32.0),
        ({}, 7, 0.5, 60.0),
        ({}, 1, 0.0, 0.9),
        ({"jitter": 1}, 1, 0.0, 0.0),
        ({"jitter": 0.5, "initial_delay": 4}, 2, 0.75, 10.0),
        ({"jitter": 0, "backoff_factor": 1, "initial_delay": 3}, 50, 0.9, 3.0),
        ({"jitter": 0}, 10_000, 0.9, 60.0),  # the power is beyond any number
        ({"jitter": 0, "initial_delay": 0}, 10_000, 0.9, 0.0),
    ],
)
def test_a_delay_is_as_long_as_the_settings_say(
    settings: dict[str, Any], attempts: int, randomness: float, expected: float
) -> None:
    """It doubles with each attempt up to `max_delay`, and jitter adds or takes away its share."""
    assert RetryConfig(**settings).delay_s(attempts, randomness) == pytest.approx(expected)


def numbers() -> Iterator[int]:
    yield 1


async def later() -> None: ...


async def stream() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("func", "options", "message"),
    [
        (5, {}, "expected a function, found 5"),
        (5, {"run_in": "process"}, "expected a function, found 5"),
        (work, {"run_in": "process"}, "expected run_in='thread' or 'loop', found 'process'"),
        (numbers, {}, "expected a function that returns its result, found the generator 'numbers'; return a list"),
        (numbers, {"name": "n"}, "expected a function that returns its result, found the generator 'n'; return a list"),
        (
            later,
            {"run_in": "thread"},
            "expected a sync function for run_in='thread', found the async 'later'; leave run_in out",
        ),
        (stream, {}, "expected a function that returns its result, found the generator 'stream'; return a list"),
    ],
)
def test_what_cannot_be_a_tool_is_told_why(func: Any, options: dict[str, Any], message: str) -> None:
    """Each kind has a message of its own, which says what to write."""
    with pytest.raises(ConfigurationError) as caught:
        FunctionTool(func, **options)
    assert str(caught.value) == message


@pytest.mark.parametrize("answer", [True, False, 1, ""])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_says_whether_a_call_needs_somebodys_leave(answer: Any, is_async: bool) -> None:
    """It gets the arguments by name, and the context if it has a parameter for it; what it returns counts as a bool."""
    seen: list[Any] = []

    def asks(city: str, tool_context: ToolContext) -> Any:
        seen.append((city, tool_context.function_call_id, tool_context.tool_confirmation))
        return answer

    async def asks_later(city: str, tool_context: ToolContext) -> Any:
        await trio.lowlevel.checkpoint()
        return asks(city, tool_context)

    def book(city: str) -> str:
        return f"booked {city}"

    tool = FunctionTool(book, require_confirmation=asks_later if is_async else asks)
    model = ScriptedLlm([call("book", city="Oslo"), "done"])
    events, run = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    [made] = events[0].get_function_calls()
    assert seen == [("Oslo", made.id, None)]
    assert run.status == ("paused" if answer else "completed")
    assert [question.tool for question in run.pending] == (["book"] if answer else [])


async def test_what_an_option_fails_with_is_the_answer_to_the_call() -> None:
    """A function of `require_confirmation` that raises has not allowed anything: the tool is not called."""

    def asks() -> bool:
        raise OSError("nobody is there")

    model = ScriptedLlm([call("work"), "done"])
    tool = FunctionTool(work, require_confirmation=asks)
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    [answer] = events[1].get_function_responses()
    assert answer.response == {"error": {"type": "OSError", "message": "nobody is there"}}


def elsewhere(text: str) -> Any:
    """A function of a module that has imported no context, as with `if TYPE_CHECKING`."""
    names: dict[str, Any] = {}
    exec(f"def found({text}) -> str:\n return repr([x, type(c).__name__])", names)
    return names["found"]


class Called:
    """An object that can be called."""

    def __call__(self, x: int, c: ToolContext) -> str:
        return repr([x, type(c).__name__])

    def method(self, x: int, tool_context: Any) -> str:
        """A method."""
        return repr([x, type(tool_context).__name__])

    @classmethod
    def of_class(cls, c: ToolContext, x: int = 2) -> str:
        """A method of the class."""
        return repr([x, type(c).__name__])


def both(tool_context: int, c: ToolContext) -> str:
    """The annotation counts, not the name."""
    return repr([tool_context, type(c).__name__])


def only(x: int, /, c: ToolContext) -> str:
    """A parameter that has no name for callers."""
    return repr([x, type(c).__name__])


def taken(y: int, c: ToolContext, x: int) -> str:
    """One of the parameters is given before."""
    return repr([x + y, type(c).__name__])


@pytest.mark.parametrize(
    ("func", "name", "shown"),
    [
        (elsewhere("x: int, c: ToolContext"), "found", ["x"]),
        (elsewhere("x: int, c: CallbackContext"), "found", ["x"]),
        (Called(), "Called", ["x"]),
        (Called().method, "method", ["x"]),
        (Called.of_class, "of_class", ["x"]),
        (both, "both", ["tool_context"]),
        (only, "only", ["x"]),
        (partial(taken, 0), "taken", ["x"]),
        (partial(partial(taken, 0)), "taken", ["x"]),
    ],
)
async def test_the_parameter_for_the_context_is_found_and_not_shown(func: Any, name: str, shown: list[str]) -> None:
    """By its annotation, whether that can be read or not, or else by its name, in whatever can be called."""
    tool = FunctionTool(func)
    assert (tool.name, [*tool.declaration.parameters["properties"]]) == (name, shown)
    model = ScriptedLlm([call(name, **{shown[0]: 7}), "done"])
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[tool])))
    [answer] = events[1].get_function_responses()
    assert answer.response == {"result": "[7, 'ToolContext']"}


class Old(Plain):
    """A tool that is declared by ADK's name for it."""

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description="Old.")


def test_a_subclass_declares_itself_by_either_name() -> None:
    """`declaration` and ADK's `_get_declaration` say the same, whichever is overridden; one of them has to be."""
    old = Old(name="old", description="")
    assert old.declaration == old._get_declaration() == FunctionDeclaration(name="old", description="Old.")
    new = FunctionTool(work)
    assert new._get_declaration() is new.declaration
    with pytest.raises(ConfigurationError, match=r"^expected Plain to say how models see it, found nothing"):
        _ = Plain(name="plain", description="").declaration


async def test_a_tool_that_is_not_declared_is_not_shown_and_may_change_the_request() -> None:
    """`declaration` None: the model cannot call it, and it is asked all the same before the model is."""

    class Silent(Plain):
        @property
        def declaration(self) -> None:
            return None

        async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: Any) -> None:
            llm_request.append_instructions(["Be kind."])

        async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
            raise ArgumentError("not to be called")

    model = ScriptedLlm(["done"])
    await run_to_end(runner_for(LlmAgent(name="a", model=model, tools=[Silent(name="silent", description="")])))
    assert [*model.requests[0].config.tools] == []
    assert model.requests[0].config.system_instruction == "Be kind."
