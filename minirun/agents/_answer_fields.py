"""Where an agent's fields want its final answer: `output_schema`, `output_key`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._json import freeze
from .._values import changed
from ..events import Event

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["with_output"]


def with_output(agent: LlmAgent, event: Event, value: Any) -> Event:
    """Put the final answer where the agent's fields want it."""
    if agent._output is not None:
        event = changed(event, output=freeze(value, "output"))
    if agent.output_key is not None and (agent._output is not None or value):
        delta = freeze({agent.output_key: value}, "state_delta")
        event = changed(event, actions=changed(event.actions, state_delta=delta))
    return event
