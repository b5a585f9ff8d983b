"""What the tests of live runs share: a runner whose agent converses with a script, and what was said and sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minirun import BaseAgent, Event, InMemoryRunner, LlmAgent, Runner
from minirun.models import LlmRequest
from minirun.testing import LiveSent, ScriptedLive
from minirun.types import Part

from .helpers import PLACE

DIALECTS = ("gemini", "openai")


def live_runner(model: ScriptedLive, *tools: Any, **options: Any) -> Runner:
    """A runner over a fresh in-memory session, whose one agent has this model and these tools."""
    return runner_of(LlmAgent(name="guide", model=model, tools=tools, **options))


def runner_of(agent: BaseAgent, **options: Any) -> Runner:
    """A runner over a fresh in-memory session."""
    return InMemoryRunner(agent=agent, app_name="app", auto_create_session=True, **options)


def told(part: Part) -> str:
    """What a part says, in a word or two."""
    if part.function_call is not None:
        return f"{part.function_call.name}!"
    if part.function_response is not None:
        response = part.function_response.response
        return f"{part.function_response.name}={response.get('result', response.get('status', dict(response)))}"
    return part.text or "..."


def log(events: Sequence[Event]) -> list[str]:
    """What events with something in them say, one line each, with their authors."""
    return [
        f"{event.author}: {' '.join(told(part) for part in event.content.parts)}"
        for event in events
        if event.content is not None and not event.partial
    ]


def sent(model: ScriptedLive, *kinds: str) -> list[str]:
    """What the model was sent of these *kinds*, contents and responses by default, in order."""
    wanted = kinds or ("content", "responses")
    found = [each for each in model.sent if each.kind in wanted and not each.lost]
    return [" ".join(told(part) for part in each.content.parts) if each.content else each.kind for each in found]


async def stored(runner: Runner) -> list[Event]:
    """The events of the session, without the creation record."""
    return await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)


Script = Callable[[LiveSent], Any]

__all__ = ["DIALECTS", "PLACE", "LlmRequest", "Script", "live_runner", "log", "runner_of", "sent", "stored", "told"]
