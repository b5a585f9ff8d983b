"""Handing over to an agent with an `input_schema`: what it is given is checked before, and is what it is asked."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from minirun import LlmAgent, Runner, SqliteSessionService
from minirun._json import thaw
from minirun.flows import remove_all_tools
from minirun.runtime import Run
from minirun.sessions import BaseSessionService, InMemorySessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool

from ..helpers import PLACE


@attrs.frozen
class Order:
    item: str
    count: int = 1


@attrs.frozen
class Nested:
    """It contains itself, so its schema has definitions."""

    name: str
    parts: list[Nested] = attrs.field(factory=list)


def team(*said: Any, seller: list[Any] | None = None, **fields: Any) -> tuple[LlmAgent, ScriptedLlm]:
    """A clerk who hands over to a seller, and the seller's model."""
    model = ScriptedLlm(["sold"] if seller is None else seller)
    below = LlmAgent(name="seller", model=model, **{"input_schema": Order, **fields})
    other = LlmAgent(name="other", model=ScriptedLlm(["here"]))
    return LlmAgent(name="clerk", model=ScriptedLlm([*said]), sub_agents=[below, other]), model


async def run(agent: LlmAgent, service: BaseSessionService, message: Any = "A pen, please.") -> Run:
    """Run it to its end."""
    runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
    async with runner.run_async(**PLACE, new_message=message) as running:
        await running.wait()
    return running


def to_seller(**given: Any) -> Any:
    """A call that hands over."""
    return call("transfer_to_agent", agent_name="seller", **given)


async def test_the_agent_is_asked_what_it_was_given() -> None:
    """It sees the value last, as a user's message, with its defaults; in later turns, too."""
    agent, model = team(to_seller(input={"item": "pen"}), seller=["sold", "again"])
    service = InMemorySessionService()
    ended = await run(agent, service)
    assert ended.answer is not None
    assert ended.answer.text == "sold"
    last = model.requests[0].contents[-1]
    assert (last.role, last.parts[-1].text) == ("user", '{"item":"pen","count":1}')
    assert '"count"' not in (last.parts[0].text or "")
    await run(agent, service, "And one more?")
    assert [content.text for content in model.requests[1].contents][-2:] == ["sold", "And one more?"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "and input, which seller needs"),
        ({"input": {"item": 3}}, "input: item: expected string"),
        ({"input": {"item": "pen", "color": "red"}}, "color: unknown name"),
        ({"input": {"item": "pen"}, "more": 1}, "and input, which seller needs"),
    ],
)
async def test_what_does_not_fit_is_told_to_the_model(given: dict[str, Any], told: str) -> None:
    """Nobody takes over; the model may try again."""
    agent, model = team(to_seller(**given), to_seller(input={"item": "pen"}))
    service = InMemorySessionService()
    ended = await run(agent, service)
    events = await service.read_events(app_name="app", **PLACE)
    [refused] = [
        item.response["error"]
        for event in events
        for item in event.get_function_responses()
        if "error" in item.response
    ]
    assert refused["type"] == "ArgumentError"
    assert told in refused["message"]
    assert len(model.requests) == 1
    assert ended.status == "completed"


async def test_an_agent_without_a_form_takes_no_input() -> None:
    """What it would never see is refused."""
    agent, _ = team(
        call("transfer_to_agent", agent_name="other", input={"item": "pen"}),
        call("transfer_to_agent", agent_name="other"),
    )
    ended = await run(agent, InMemorySessionService())
    assert ended.answer is not None
    assert ended.answer.text == "here"


async def test_the_tool_says_what_each_agent_is_to_be_given() -> None:
    """One form stands for itself; of several each has its title, and definitions have names of their own."""
    agent, _ = team(to_seller(input={"item": "pen"}))
    await run(agent, InMemorySessionService())
    assert isinstance(agent.model, ScriptedLlm)
    [tool] = agent.model.requests[0].config.tools
    assert tool.parameters["required"] == ["agent_name"]
    assert tool.parameters["properties"]["input"]["title"] == "for seller"
    both = LlmAgent(
        name="clerk",
        model=ScriptedLlm([call("transfer_to_agent", agent_name="maker", input={"name": "a"})]),
        sub_agents=[
            LlmAgent(name="seller", model=ScriptedLlm([]), input_schema=Nested),
            LlmAgent(name="maker", model=ScriptedLlm(["made"]), input_schema=Nested),
        ],
    )
    await run(both, InMemorySessionService())
    assert isinstance(both.model, ScriptedLlm)
    [tool] = both.model.requests[0].config.tools
    assert tool.parameters["required"] == ["agent_name", "input"]
    assert {*tool.parameters["$defs"]} == {"seller_Nested", "maker_Nested"}
    assert thaw(tool.parameters["properties"]["input"]) == {
        "anyOf": [
            {"title": "for seller", "$ref": "#/$defs/seller_Nested"},
            {"title": "for maker", "$ref": "#/$defs/maker_Nested"},
        ]
    }
    for name, form in tool.parameters["$defs"].items():
        assert form["properties"]["parts"]["items"] == {"$ref": f"#/$defs/{name}"}


async def test_a_filter_of_what_was_before_keeps_what_it_was_given() -> None:
    """The call that hands over is left out, and the input is there all the same, once."""
    agent, model = team(to_seller(input={"item": "pen"}), transfer_input_filter=remove_all_tools)
    await run(agent, InMemorySessionService())
    texts = [part.text for content in model.requests[0].contents for part in content.parts]
    assert texts == ["A pen, please.", '{"item":"pen","count":1}']


async def test_it_is_there_after_a_pause(tmp_path: Any) -> None:
    """The agent that took over waits; in another process it sees what it was given."""

    async def ship() -> None:
        """Ship it."""

    tools = [LongRunningFunctionTool(ship)]
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        first, _ = team(to_seller(input={"item": "pen"}), seller=[call("ship")], tools=tools)
        waits = await run(first, service)
        assert waits.status == "paused"
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        again, model = team(seller=["shipped"], tools=tools)
        ended = await run(again, service, waits.pending[0].reply("gone"))
        assert ended.answer is not None
        assert ended.answer.text == "shipped"
    texts = [part.text for content in model.requests[0].contents for part in content.parts]
    assert '{"item":"pen","count":1}' in texts
