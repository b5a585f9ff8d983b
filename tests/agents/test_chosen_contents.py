"""Agents that choose what they are shown: `include_contents=f`, `transfer_input_filter=f`, and filters for them."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import AgentTool, Event, InMemoryRunner, LlmAgent, ParallelAgent, SequentialAgent
from minirun.errors import ConfigurationError, InvalidValueError
from minirun.flows import keep_last, remove_all_tools
from minirun.flows._filters import EventFilter
from minirun.runtime import ReadonlyContext
from minirun.testing import ScriptedLlm, call
from minirun.types import Content, Part

from ..helpers import look, run_to_end, runner_for, shown


async def turns(agent: LlmAgent, *messages: str) -> None:
    """Say one message after another, in one session."""
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    for message in messages:
        await run_to_end(runner, message)


async def test_a_function_chooses_what_the_model_is_shown() -> None:
    """It gets the context and the events that would be shown, for each request."""
    seen: list[list[str]] = []

    def users_alone(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        seen.append([event.text for event in events])
        return [event for event in events if event.author == "user"]

    agent = LlmAgent(name="a", model=ScriptedLlm(["one", "two"]), include_contents=users_alone)
    await turns(agent, "first", "second")
    assert seen == [["first"], ["first", "one", "second"]]
    assert shown(agent.model) == ["user: first", "user: second"]


async def test_events_may_be_changed_and_made() -> None:
    """What is returned may be other events than there are; the log stays as it is."""

    def told(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        return [Event(author="user", content=Content(role="user", parts=[Part(text=f"{len(events)} before")]))]

    agent = LlmAgent(name="a", model=ScriptedLlm(["one", "two"]), include_contents=told)
    await turns(agent, "first", "second")
    assert shown(agent.model) == ["user: 3 before"]


async def test_tools_can_be_left_out_and_the_last_kept() -> None:
    """The two filters that come with minirun; a call whose response is cut off is not shown."""
    script: list[Any] = [call("look"), "one", call("look"), "two"]
    agent = LlmAgent(name="a", model=ScriptedLlm(script), tools=[look], include_contents=remove_all_tools)
    await turns(agent, "first", "second")
    assert shown(agent.model) == ["user: first", "model: one", "user: second"]
    kept = LlmAgent(name="a", model=ScriptedLlm(script), tools=[look], include_contents=keep_last(2))
    await turns(kept, "first", "second")
    assert shown(kept.model, 1)[-2:] == ["model: look!", "user: look!"]
    assert shown(kept.model, 2) == ["user: (What was said before is left out.)", "model: one", "user: second"]


async def test_nothing_at_all_is_shown_as_a_word_of_the_users_side() -> None:
    """A provider refuses an empty conversation."""
    agent = LlmAgent(name="a", model=ScriptedLlm(["one"]), include_contents=lambda ctx, events: [])
    await turns(agent, "first")
    assert shown(agent.model) == ["user: Go on."]


async def test_a_transfer_filter_touches_what_was_before_the_transfer_only() -> None:
    """The agent that takes over sees less of the past, and all that comes after; who hands over sees everything."""
    helper = LlmAgent(
        name="helper",
        model=ScriptedLlm([call("look", n=1), "helped", "again"]),
        tools=[look],
        transfer_input_filter=lambda ctx, events: remove_all_tools(ctx, events)[-1:],
    )
    root = LlmAgent(
        name="root",
        model=ScriptedLlm([call("look"), call("transfer_to_agent", agent_name="helper")]),
        tools=[look],
        sub_agents=[helper],
    )
    runner = runner_for(root)
    await run_to_end(runner, "first")
    assert shown(helper.model, 0) == ["user: first"]
    assert shown(helper.model, 1) == ["user: first", "model: look!", "user: look!"]
    await run_to_end(runner, "second")
    assert shown(helper.model, 2) == [
        "user: first", "model: look!", "user: look!", "model: helped", "user: second",
    ]  # fmt: skip


async def test_the_inside_of_a_call_is_chosen_from_too() -> None:
    """An agent as a tool is asked with its own past; the request it was given always stands first."""
    helper = LlmAgent(name="helper", model=ScriptedLlm(["yes"]), include_contents=lambda ctx, events: [])
    model = ScriptedLlm([call("helper", request="well?"), "done"])
    root = LlmAgent(name="root", model=model, tools=[AgentTool(helper)])
    await turns(root, "first")
    assert shown(helper.model) == ["user: well?"]


async def _late(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
    return events


@pytest.mark.parametrize("name", ["include_contents", "transfer_input_filter"])
@pytest.mark.parametrize("value", ["some", 3, _late], ids=["text", "int", "async"])
def test_what_cannot_choose_is_refused_when_the_agent_is_made(name: str, value: Any) -> None:
    """It is a function, and not async."""
    with pytest.raises(ConfigurationError, match=f"expected {name} to be .* a function, not async"):
        LlmAgent(name="a", **{name: value})


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (lambda ctx, events: None, "a list of events, found None"),
        (lambda ctx, events: ["x"], "a list of events, found 'x'"),
        (lambda ctx, events: _late(ctx, events), "a function that is not `async`"),
    ],
)
async def test_what_is_no_list_of_events_fails_the_run(choice: EventFilter, problem: str) -> None:
    """Nothing is asked of the model."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]), include_contents=choice)
    with pytest.raises(InvalidValueError, match=problem):
        await turns(agent, "first")


@pytest.mark.parametrize("number", [0, -1, True, "2", 1.5])
def test_keep_last_wants_a_number(number: Any) -> None:
    """From 1 up."""
    with pytest.raises(ConfigurationError, match="expected keep_last to get an integer from 1 up"):
        keep_last(number)


@given(st.lists(st.booleans(), max_size=40), st.sampled_from(["kept", "reversed", "twice"]))
def test_whatever_is_chosen_a_strict_provider_takes_it(picks: list[bool], order: str) -> None:
    """
    No choice of events gives a request with a call or a response alone, or one that begins with the agent.

    A scripted model is such a provider: it raises ModelContractError.
    """

    def chosen(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        kept = [event for event, pick in zip(events, picks + [True] * len(events), strict=False) if pick]
        return {"kept": kept, "reversed": kept[::-1], "twice": kept + kept}[order]

    script: list[Any] = [[call("look", n=1), call("look", n=2)], "one", call("look"), "two", "three"]
    agent = LlmAgent(name="a", model=ScriptedLlm(script), tools=[look], include_contents=chosen)
    trio.run(turns, agent, "first", "second", "third")
    assert len(agent.model.requests) == 5  # type: ignore[union-attr]  # a scripted one


async def test_a_call_without_its_response_is_left_out() -> None:
    """It has been answered: it is not shown as one that still runs. What else the event says stays."""

    def no_responses(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        return [event for event in events if not event.get_function_responses()]

    script: list[Any] = [[Part(text="let me see"), call("look")], "one", "two"]
    agent = LlmAgent(name="a", model=ScriptedLlm(script), tools=[look], include_contents=no_responses)
    await turns(agent, "first", "second")
    assert shown(agent.model) == ["user: first", "model: let me see", "model: one", "user: second"]


async def test_what_another_branch_has_said_is_not_chosen_from() -> None:
    """Agents that run side by side see nothing of each other; who comes after them may choose from all of it."""
    seen: dict[str, list[str]] = {}

    def noted(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        seen[ctx.agent_name] = [event.text for event in events]
        return events

    def one(name: str) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedLlm([name, f"{name}!"]), include_contents=noted)

    sides = ParallelAgent(name="sides", sub_agents=[one("x"), one("y")])
    await turns(SequentialAgent(name="all", sub_agents=[sides, one("z")]), "first", "second")  # type: ignore[arg-type]
    assert seen["x"] == ["first", "x", "z", "second"]
    assert seen["y"] == ["first", "y", "z", "second"]
    assert sorted(seen["z"]) == ["first", "second", "x", "x!", "y", "y!", "z"]


async def test_a_response_without_its_call_is_left_out() -> None:
    """What is left of its event is nothing; the next request begins with the user."""

    def no_calls(ctx: ReadonlyContext, events: list[Event]) -> list[Event]:
        return [event for event in events if not event.get_function_calls()]

    agent = LlmAgent(name="a", model=ScriptedLlm([call("look"), "one", "two"]), tools=[look], include_contents=no_calls)
    await turns(agent, "first", "second")
    assert shown(agent.model) == ["user: first", "model: one", "user: second"]


async def test_a_function_that_gives_a_coroutine_leaves_nothing_behind(recwarn: pytest.WarningsRecorder) -> None:
    """It is closed: nobody is warned of one that was never awaited. What is no coroutine is left as it is."""
    choice: Any = lambda ctx, events: _late(ctx, events)  # noqa: E731  # a function that is not `async` itself
    agent = LlmAgent(name="a", model=ScriptedLlm([]), include_contents=choice)
    with pytest.raises(InvalidValueError) as caught:
        await turns(agent, "first")
    assert str(caught.value) == "include_contents: expected a function that is not `async`, found one that is"
    del caught
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []

    class Later:
        def __await__(self) -> Any:
            yield

    choice = lambda ctx, events: Later()  # noqa: E731
    agent = LlmAgent(name="a", model=ScriptedLlm([]), include_contents=choice)
    with pytest.raises(InvalidValueError, match="that is not `async`, found one that is"):
        await turns(agent, "first")
