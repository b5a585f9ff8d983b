"""Time travel: a fork, an edited event in the place of what was said there, and the invocation goes on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from minirun import Content, Event, LlmAgent, Part, Runner
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionResponse

from ..stores import HERE, KINDS, services

FORK = {**HERE, "session_id": "fork"}


def answers(request: LlmRequest) -> Any:
    """Look the price up, and tell it."""
    found = request.contents[-1].parts[-1].function_response
    return call("price", item="tea") if found is None else f"It costs {found.response['result']}."


@pytest.mark.parametrize("kind", KINDS)
async def test_an_edited_response_is_what_the_fork_goes_on_from(kind: str, tmp_path: Path) -> None:
    """What stands before the edited response is replayed, no tool runs again, and the model is asked with the edit."""
    calls = 0

    def price(item: str) -> int:
        """Look the price of something up."""
        nonlocal calls
        calls += 1
        return 40

    async with services(tmp_path)[kind]() as service:
        agent = LlmAgent(name="shop", model=ScriptedLlm(answers), tools=[price])
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="How much?") as run:
            await run.wait()
        [invocation] = await service.list_invocations(**HERE)
        said = next(event for event in await service.read_events(**HERE) if event.get_function_responses())
        [found] = said.get_function_responses()
        fork = await service.fork_session(**HERE, at_seq=(said.seq or 0) - 1, new_session_id="fork")
        response = FunctionResponse(id=found.id, name=found.name, response={"result": 25})
        edited = Content(role="user", parts=[Part(function_response=response)])
        await service.append_event(
            fork, Event(author="shop", invocation_id=invocation.invocation_id, content=edited)
        )
        async with runner.run_async(user_id="u", session_id="fork", invocation_id=run.invocation_id) as again:
            answer = await again.wait()
        assert answer is not None
        assert answer.text == "It costs 25."
        assert calls == 1
        statuses = [[one.status for one in await service.list_invocations(**place)] for place in (HERE, FORK)]
        assert statuses == [["completed"], ["completed"]]
        original = await service.read_events(**HERE)
        assert [event.text for event in original][-1] == "It costs 40.", "the original is not touched"


async def test_an_edited_answer_stands_for_what_the_model_said(tmp_path: Path) -> None:
    """The recorded answer with another content is taken for the model's: it is not asked again."""
    model = ScriptedLlm(["yes", "yes again"])
    async with services(tmp_path)["memory"]() as service:
        agent = LlmAgent(name="shop", model=model)
        runner = Runner(agent=agent, app_name="app", session_service=service, auto_create_session=True)
        async with runner.run_async(user_id="u", session_id="s", new_message="Really?") as run:
            answer = await run.wait()
        assert answer is not None
        fork = await service.fork_session(**HERE, at_seq=1, new_session_id="fork")
        content = Content(role="model", parts=[Part(text="no")])
        await service.append_event(fork, attrs.evolve(answer, seq=None, timestamp=None, content=content))
        async with runner.run_async(user_id="u", session_id="fork", invocation_id=run.invocation_id) as again:
            assert [event async for event in again] == []
        async with runner.run_async(user_id="u", session_id="fork", new_message="Sure?") as after:
            await after.wait()
    assert [content.text for content in model.requests[-1].contents] == ["Really?", "no", "Sure?"]
