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
    Looks at what the user says, and at what models are about to say, whichever agent it is.

        App("desk", agent, plugins=[GuardrailPlugin(input=[no_card_numbers], output=[no_promises])])

    Args:
        input: Guardrails that look at the user's message, once in an invocation, before a model says anything: each a
            function of a CallbackContext and a Content, an agent, or a `Guardrail` with settings of its own.
        output: Guardrails that look at each complete answer of a model, before anything of it is shown or stored.
        parallel: Whether models are asked while the *input* guardrails look; what they say is held back.
        keep_refused: Whether a message that was refused is shown to models in later turns.
        name: The name of the plugin.

    What a guardrail may say stands in `minirun.agents.Guardrail`. One that trips ends the run with
    GuardrailTripwireError. Models inside of a guardrail are not looked at.

    Raises:
        ConfigurationError: There is no guardrail, one cannot be called, or a setting has no effect.
    """

    def __init__(
        self,
        input: Sequence[Callable[..., Any] | BaseAgent | Guardrail] = (),
        output: Sequence[Callable[..., Any] | BaseAgent | Guardrail] = (),
        *,
        parallel: bool = True,
        keep_refused: bool = False,
        name: str = "guardrails",
    ) -> None:
        super().__init__(name)
        self.input = guardrails_of(input, "input", parallel=parallel, keep_refused=keep_refused)
        self.output = guardrails_of(output, "output")
        if not (self.input or self.output):
            raise ConfigurationError("expected a GuardrailPlugin with guardrails, found none; give input or output")
        if not self.input and (keep_refused or not parallel):
            msg = "expected a GuardrailPlugin without input guardrails to have neither parallel nor keep_refused set"
            raise ConfigurationError(f"{msg}; an answer is always held, and never stored if it is refused")

    def _guardrails(self) -> tuple[str, Sequence[Guardrail], Sequence[Guardrail]]:
        """What stands around models, and under which name."""
        return f"plugin {self.name}", self.input, self.output
