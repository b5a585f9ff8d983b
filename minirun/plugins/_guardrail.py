"""Guardrails for all agents of an app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..agents import BaseAgent, Guardrail
from ..agents._guardrails import guardrails_of
from ..errors import ConfigurationError
from ._base import BasePlugin

__all__ = ["GuardrailPlugin"]


class GuardrailPlugin(BasePlugin):
    """
    Checks the user's messages and the responses of the models of all agents.

        App("desk", agent, plugins=[GuardrailPlugin(input=[no_card_numbers], output=[no_promises])])

    Args:
        input: Guardrails that check each message of the user, once, before a model sees it: each a function of a
            CallbackContext and a Content, an agent, or a `Guardrail`. They run in sequence.
        output: Guardrails that check each complete response of a model with text, before it is shown or stored or its
            calls are made. There are no partial events then.
        name: The name of the plugin.

    `minirun.agents.Guardrail` describes the results of a guardrail. One that trips ends the run with
    GuardrailTripwireError. Models inside of a guardrail are not checked.

    Raises:
        ConfigurationError: There is no guardrail, or one cannot be called.
    """

    def __init__(
        self,
        input: Sequence[Callable[..., Any] | BaseAgent | Guardrail] = (),
        output: Sequence[Callable[..., Any] | BaseAgent | Guardrail] = (),
        *,
        name: str = "guardrails",
    ) -> None:
        super().__init__(name)
        self.input = guardrails_of(input, "input")
        self.output = guardrails_of(output, "output")
        if not (self.input or self.output):
            raise ConfigurationError("expected a GuardrailPlugin with guardrails, found none; give input or output")

    def _guardrails(self) -> tuple[str, Sequence[Guardrail], Sequence[Guardrail]]:
        """Return the name of this source of guardrails, and its guardrails."""
        return f"plugin {self.name}", self.input, self.output
