"""What a planner is to minirun."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidValueError
from ..models import LlmRequest
from ..runtime import CallbackContext, ReadonlyContext
from ..types import GenerateContentConfig, Part, ThinkingConfig

__all__ = ["BasePlanner", "BuiltInPlanner"]


class BasePlanner(ABC):
    """Tells the model of an agent how to plan, and tells its plans from its answers: `LlmAgent(planner=...)`."""

    @abstractmethod
    def build_planning_instruction(self, readonly_context: ReadonlyContext, llm_request: LlmRequest) -> str | None:
        """Return what is added to the system instruction of a request; None: nothing."""

    @abstractmethod
    def process_planning_response(
        self, callback_context: CallbackContext, response_parts: Sequence[Part]
    ) -> Sequence[Part] | None:
        """
        Return the parts to take for those of a complete answer, plans as thoughts; None: as they are.

        An answer of which nothing but thoughts is left is a plan without an act: the model is asked again.
        """

    go_on = "You have planned. Now act on it, or give the final answer."
    """What the model is told after a plan without an act."""


class BuiltInPlanner(BasePlanner):
    """
    Lets a model plan by its own thinking: sets the `thinking_config` of all requests of its agent.

    Its thoughts are what the provider gives as such, and nothing of its answers is taken for a plan.

    Args:
        thinking_config: How much it thinks: a ThinkingConfig, or a dict of its fields.

    Raises:
        InvalidValueError: It is none.
    """

    def __init__(self, *, thinking_config: ThinkingConfig | Mapping[str, Any]) -> None:
        found = GenerateContentConfig(thinking_config=thinking_config).thinking_config
        if found is None:
            raise InvalidValueError("BuiltInPlanner.thinking_config", "expected a ThinkingConfig, found None")
        self.thinking_config: ThinkingConfig = found

    def build_planning_instruction(self, readonly_context: ReadonlyContext, llm_request: LlmRequest) -> None:
        """Add nothing: the provider tells the model."""

    def process_planning_response(self, callback_context: CallbackContext, response_parts: Sequence[Part]) -> None:
        """Leave the answer as it is."""
