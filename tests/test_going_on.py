"""What is said about going on with an invocation: settings, arguments, and what is refused before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import App, BaseAgent, Event, InMemoryRunner, InMemorySessionService, InvocationContext, Runner
from minirun.apps import ResumabilityConfig
from minirun.errors import ConfigurationError, InvalidMessageError, NotSupportedError

PLACE: Any = {"user_id": "u", "session_id": "s"}


class Speaker(BaseAgent):
    """Says one thing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hi"))


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_an_app_may_say_that_it_is_resumable() -> None:
    """It is accepted, kept under another app name, and without any effect."""
    config = ResumabilityConfig(is_resumable=True)
    app = App("app", Speaker(name="a"), resumability_config=config)
    assert app.resumability_config == config
    assert App("app", Speaker(name="a")).resumability_config is None
    runner = Runner(app=app, app_name="other", session_service=InMemorySessionService())
    assert (runner.app_name, runner.app.resumability_config) == ("other", config)
    async with InMemoryRunner(app=app, auto_create_session=True).run_async(
        user_id="u", session_id="s", new_message="go"
    ) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.text == "hi"


@pytest.mark.parametrize("arguments", [{}, {"is_resumable": False}])
def test_an_app_that_is_not_resumable_is_refused(arguments: dict[str, Any]) -> None:
    """False, which is the default that ADK documents, is refused by name, with what to do."""
    with pytest.raises(NotSupportedError, match=r"is_resumable=False.*every invocation is resumable.*no setting"):
        ResumabilityConfig(**arguments)


def test_a_resumability_config_of_another_kind_is_refused() -> None:
    """What is neither True nor False, and what is no ResumabilityConfig."""
    yes: Any = "yes"
    with pytest.raises(ConfigurationError, match="is_resumable to be True, found 'yes'"):
        ResumabilityConfig(is_resumable=yes)
    with pytest.raises(ConfigurationError, match="expected resumability_config to be a ResumabilityConfig"):
        App("app", Speaker(name="a"), resumability_config=yes)
    fields: dict[str, Any] = {"resumable": True}
    with pytest.raises(TypeError, match="it has name, root_agent, plugins, prompts, resumability_config"):
        App("app", Speaker(name="a"), **fields)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [{"k": 1}, {"temp:k": 1}, {"user:k": None}])
async def test_state_cannot_be_changed_with_what_has_ended(delta: dict[str, Any]) -> None:
    """To go on with it would do nothing, so that the change would be lost; it is refused, and nothing is stored."""
    runner = InMemoryRunner(agent=Speaker(name="a"), app_name="app", auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as first:
        await first.wait()
    before = await runner.session_service.read_events(app_name="app", **PLACE)
    with pytest.raises(InvalidMessageError, match=r"has ended \(completed\).*state_delta.*append_event"):
        async with runner.run_async(**PLACE, invocation_id=first.invocation_id, state_delta=delta):
            raise AssertionError("it was entered")
    assert await runner.session_service.read_events(app_name="app", **PLACE) == before
    async with runner.run_async(**PLACE, invocation_id=first.invocation_id, state_delta={}) as again:
        assert await again.wait() == first.answer
    async with runner.run_async(**PLACE, new_message="go", state_delta={"k": 2}) as second:
        await second.wait()
    assert second.session.state["k"] == 2
