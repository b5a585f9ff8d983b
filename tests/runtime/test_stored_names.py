"""Under which names a run stores what it has done and asked: logs of other versions have them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from minirun import App, Event, InMemoryRunner, InMemorySessionService, InvocationContext, LlmAgent, RunConfig, Runner
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import ConfigurationError, InvalidValueError, ServiceNotConfiguredError
from minirun.plugins import BasePlugin
from minirun.testing import ScriptedLlm
from minirun.tools import AgentTool
from minirun.types import Content, Part

from ..helpers import Logic, run_to_end, runner_for, stored_events


async def test_what_logic_saves_and_deletes_are_steps_of_these_names() -> None:
    """Each has an event of its own, which says what it was."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.save_artifact("a", Part(text="x"))
        await ctx.delete_artifact("a")

    runner = runner_for(logic)
    await run_to_end(runner)
    taken = [event.actions.replay.step for event in await stored_events(runner)]
    assert [(step.name, step.path) for step in taken if step is not None] == [
        ("save_artifact", "run/agent!save_artifact"),
        ("delete_artifact", "run/agent!delete_artifact"),
    ]


async def test_a_time_that_has_come_is_stored_as_an_answer_of_the_user() -> None:
    """The question says until when, and the answer what the clock has shown then."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.sleep_until(1.5)

    runner = runner_for(logic)
    _, run = await run_to_end(runner)
    _, asked, answered = await stored_events(runner)
    assert asked.get_function_calls()[0].args == {"until": 1.5}
    assert answered.content is not None
    assert answered.content.role == "user"
    (response,) = answered.get_function_responses()
    assert response.response == {"now": pytest.approx(answered.timestamp, abs=1000)}
    assert run.status == "completed"


async def test_a_question_is_stored_with_what_it_was_given() -> None:
    """Its form is JSON Schema; what was not given is left out."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_input("Which?", response_schema=int, payload={"n": 1})

    runner = runner_for(logic)
    await run_to_end(runner)
    (_, asked) = await stored_events(runner)
    args = asked.get_function_calls()[0].args
    assert {**args, "response_schema": None} == {"message": "Which?", "payload": {"n": 1}, "response_schema": None}
    assert args["response_schema"] is not None

    async def plain(ctx: InvocationContext) -> None:
        await ctx.request_input("Which?")

    runner = runner_for(plain)
    await run_to_end(runner)
    (_, asked) = await stored_events(runner)
    assert asked.get_function_calls()[0].args == {"message": "Which?"}


KEY = AuthCredential("api_key", api_key="sk-7f3a-very-secret")


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("when:", lambda ctx: ctx.sleep_until("soon")),
        ("question['payload']:", lambda ctx: ctx.request_input("?", payload=object())),
        ("auth_config:", lambda ctx: ctx.load_credential("k")),
        ("arguments of step 'pay'", lambda ctx: ctx.step("pay", print, object())),
    ],
)
async def test_what_is_refused_is_named(what: str, use: Callable[[InvocationContext], Awaitable[Any]]) -> None:
    """Before anything is stored."""
    told: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        with pytest.raises(InvalidValueError) as caught:
            await use(ctx)
        told.append(str(caught.value))

    runner = runner_for(logic)
    await run_to_end(runner)
    assert len(await stored_events(runner)) == 1
    assert told[0].startswith(what)


async def test_a_service_that_there_is_not_is_named_by_the_argument() -> None:
    """Of the runner that was not given it."""

    async def logic(ctx: InvocationContext) -> None:
        with pytest.raises(ServiceNotConfiguredError, match="credential_service"):
            await ctx.save_credential(AuthConfig("k"), KEY)

    agent, service = Logic(name="agent", logic=logic), InMemorySessionService()
    await run_to_end(Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True))


def test_metadata_that_is_no_json_is_refused_by_its_name() -> None:
    """It would go with every event of the run."""
    with pytest.raises(InvalidValueError) as caught:
        RunConfig(custom_metadata={"k": object()})
    assert str(caught.value).startswith("custom_metadata['k']:")
    with pytest.raises(ConfigurationError, match=r"RunConfig\.custom_metadata: expected a mapping, or None"):
        RunConfig(custom_metadata=[])  # type: ignore[arg-type]  # what a caller may do


class Answers(BasePlugin):
    """Answers in the place of the agents."""

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Any:
        """Whatever is asked."""
        return Content(role="user", parts=[Part(text="closed")])


async def test_what_a_plugin_answers_before_a_run_is_the_models() -> None:
    """Whatever role the content had."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="open"))

    app = App("app", Logic(name="agent", logic=logic), [Answers("answers")])
    (event,), _ = await run_to_end(InMemoryRunner(app=app, auto_create_session=True))
    assert event.content == Content(role="model", parts=[Part(text="closed")])


def test_an_agent_without_a_form_is_asked_by_one_text() -> None:
    """The tool that it is takes a `request`."""
    declaration = AgentTool(LlmAgent(name="a", model=ScriptedLlm([]), description="Helps.")).declaration
    assert declaration.parameters is not None
    (name,) = declaration.parameters["properties"]
    about = declaration.parameters["properties"][name]
    assert (name, about["type"], bool(about["description"])) == ("request", "string", True)
    assert list(declaration.parameters["required"]) == ["request"]
