"""Guardrails: functions or agents that check a message before a model sees it, or a response before it is stored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import attrs

from .._arguments import refuse_unknown
from .._fields import setting
from .._json import FrozenTuple, brief, freeze
from ..errors import ConfigurationError, GuardrailTripwireError, InvalidValueError, ModelRetry
from ..runtime import ToolContext
from ..types import Content, Part
from ._base import BaseAgent, misfit

__all__ = ["Finding", "Guardrail", "check_all", "guardrails_of"]

TRIPS = "tripwire_triggered"
"""The bool in the `output` of an agent that is a guardrail."""


def _check_check(guardrail: Guardrail, attribute: Any, check: Callable[..., Any] | BaseAgent) -> None:
    expected = "expected a guardrail to be a function of the context and a content, or an agent"
    if isinstance(check, BaseAgent):
        return
    if not callable(check) or isinstance(check, type):
        raise ConfigurationError(f"{expected}, found {brief(check)}")
    if (error := misfit(check, None, None)) is not None:
        raise ConfigurationError(f"{expected}, found {brief(check)}: {error}")


def _is_name(name: object) -> bool:
    return name is None or (isinstance(name, str) and name.strip() != "")


@refuse_unknown
@attrs.frozen(eq=False)
class Guardrail:
    """
    A guardrail with a name of its own: `LlmAgent(input_guardrails=[Guardrail(no_cards, name="cards")])`.

    Args:
        check: A function, sync or async, of a CallbackContext and a Content: the user's message, or the response of the
            model. It returns None to let the content pass, or a text or a Content that replaces it. `raise
            GuardrailTripwireError(info)` refuses the content and ends the run; `raise ModelRetry(text)` tells the model
            the text, and a response is requested again. Or an agent, which gets the content, and whose `output` is an
            object with `tripwire_triggered`, true or false; if it is true, the output is the `info`. Any other
            exception fails the run. State that it writes is stored with the verdict.
        name: Its name in errors and verdicts; None: the name of the function or the agent.
    """

    check: Callable[..., Any] | BaseAgent = attrs.field(validator=_check_check)
    name: str | None = attrs.field(default=None, kw_only=True, validator=setting("a text, or None", _is_name))

    @property
    def _called(self) -> str:
        found = self.name or getattr(self.check, "name", None) or getattr(self.check, "__name__", None)
        return found if isinstance(found, str) else type(self.check).__name__


def guardrails_of(value: Any, where: str) -> Sequence[Guardrail]:
    """
    Return the guardrails of one field; a function or an agent becomes a Guardrail.

    Raises:
        ConfigurationError: One cannot be a guardrail.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"expected {where} to be a list of guardrails, found {brief(value)}; write [...]")
    return FrozenTuple([each if isinstance(each, Guardrail) else Guardrail(each) for each in value])


class Finding(NamedTuple):
    """The result of guardrails for a content; all fields are None if it passes as it is."""

    replacement: Content | None = None
    retry: str | None = None
    """The text for the model."""
    trip: GuardrailTripwireError | None = None


async def check_all(context: ToolContext, guardrails: Sequence[Guardrail], content: Content, *, role: str) -> Finding:
    """
    Run *guardrails* in sequence, each on the content that the guardrails before it have left. The first trip ends it.

    Raises:
        Exception: The first exception of a guardrail.
    """
    shown: Content | None = None
    notes: list[str] = []
    for place, guardrail in enumerate(guardrails):
        await context._invocation.env.point(f"guardrail {place} {context._path}")
        found = await _check(context, guardrail, shown or content, role)
        if found.trip is not None:
            return found
        shown = found.replacement or shown
        notes += [] if found.retry is None else [found.retry]
    return Finding(replacement=shown, retry="\n".join(notes) if notes else None)


async def _check(context: ToolContext, guardrail: Guardrail, content: Content, role: str) -> Finding:
    check, name = guardrail.check, guardrail._called
    try:
        if isinstance(check, BaseAgent):
            output = await context.run_node(check, content)
            if not isinstance(output, dict) or not isinstance(output.get(TRIPS), bool):
                problem = f"expected an object with {TRIPS!r}, true or false, found {brief(output)}"
                raise InvalidValueError(f"output of the agent {name!r}, a guardrail", problem)
            if output[TRIPS]:
                raise GuardrailTripwireError(output)
            return Finding()
        found = check(context, content)
        if inspect.isawaitable(found):
            found = await found
    except ModelRetry as retry:
        return Finding(retry=context._invocation.secrets.text_of(retry))
    except GuardrailTripwireError as error:
        info = context._invocation.secrets.out_of(freeze(error.info, f"info of guardrail {name!r}"))
        error.__init__(info, guardrail=error.guardrail or name)  # type: ignore[misc]  # it names the guardrail now
        return Finding(trip=error)
    if found is None:
        return Finding()
    if isinstance(found, str):
        found = Content(role=role, parts=[Part(text=found)])
    if not isinstance(found, Content) or not found.parts or any(found.calls_and_responses):
        problem = f"expected None, a text, or a Content without calls, found {brief(found)}"
        raise InvalidValueError(f"what guardrail {name!r} returned", problem)
    return Finding(replacement=found if found.role == role else attrs.evolve(found, role=role))
