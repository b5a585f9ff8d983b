"""What a planner is to minirun."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..errors import NotSupportedError
from ..models import LlmRequest
from ..runtime import CallbackContext, ReadonlyContext
from ..types import Part

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


class BuiltInPlanner:
    """The thinking of a model itself. It is refused: it is a setting of a provider's model."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise NotSupportedError(
            "BuiltInPlanner sets how a provider's model thinks, and comes with the models of providers; give that "
            "setting to the model itself, or use PlanReActPlanner, which works with every model"
        )
