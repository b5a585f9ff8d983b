"""
Values and agents never change: whoever tries is told what to write instead.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from minirun import BaseAgent, Content, Event, InMemoryRunner, InvocationContext, LlmAgent, Part
from minirun.agents import ReadonlyContext, SequentialAgent
from minirun.errors import InvalidValueError
from minirun.testing import ScriptedLlm
from minirun.types import GenerateContentConfig


@pytest.mark.parametrize(
    ("value", "name"), [(Part(text="a"), "text"), (Content(parts=[]), "parts"), (Event(author="a"), "author")]
)
def test_a_value_says_how_another_one_is_made(value: Any, name: str) -> None:
    """
    The message names the class, the field, and `attrs.evolve`; nothing has changed.
    """
    before = repr(value)
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=rf"\.{name} cannot change: .*\(value, {name}="):
        setattr(value, name, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match="cannot change"):
        delattr(value, name)
    assert repr(value) == before


class Counting(BaseAgent):
    """Tries to count in a field."""

    count: int = 0

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        """Count."""
        self.count += 1  # type: ignore[misc]  # that is the point


async def test_an_agent_says_where_what_changes_is_kept() -> None:
    """
    A field that is assigned to, in a run or outside, names `clone` and the state.
    """
    agent = Counting(name="a")
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=r"clone\(.*`ctx\.state` can change"):
        agent.sub_agents = [Counting(name="b")]  # type: ignore[misc]  # that is the point
    runner = InMemoryRunner(agent, app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    with pytest.raises(attrs.exceptions.FrozenInstanceError, match=r"Counting\.count cannot change"):
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()


def test_a_system_instruction_may_be_a_content() -> None:
    """
    Its texts are joined, as those of a static instruction are; other parts are refused.
    """
    texts = Content(parts=[Part(text="Be kind."), Part(text="Be short.")])
    config = GenerateContentConfig(system_instruction=texts)  # type: ignore[arg-type]  # typed as what it holds
    assert config.system_instruction == "Be kind.\n\nBe short."
    with pytest.raises(InvalidValueError, match="system_instruction"):
        GenerateContentConfig(system_instruction=5)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidValueError, match="system_instruction"):
        GenerateContentConfig(system_instruction=Content(parts=[]))  # type: ignore[arg-type]


async def test_an_instruction_function_sees_the_session_and_the_tree() -> None:
    """
    A read-only context has the session with its events and state, the agent above and the one at the top.
    """
    seen: list[Any] = []

    def look(ctx: ReadonlyContext) -> str:
        seen.append((ctx.session.id, [event.text for event in ctx.session.events], dict(ctx.session.state)))
        parent = ctx.parent_agent
        seen.append((parent and parent.name, ctx.root_agent.name))
        return "Answer."

    agent = LlmAgent(name="a", model=ScriptedLlm(["hello"]), instruction=look)
    runner = InMemoryRunner(SequentialAgent(name="top", sub_agents=[agent]), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s", state={"k": 1})
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert seen == [("s", ["hi"], {"k": 1}), ("top", "top")]
