"""
Guardrails, and what they say: a function, or an agent, that looks at a message or at an answer before it counts.

What the guardrails of one agent, or of one plugin, say of a message is one verdict, stored as one event. A run that
goes on with the invocation takes it from the log. The verdict on an answer is the answer's own event: what is stored is
what was let pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import attrs
import trio

from .._json import FrozenTuple, brief, freeze
from ..errors import ConfigurationError, GuardrailTripwireError, InvalidValueError, ModelRetry
from ..runtime import ToolContext
from ..runtime._failure import first_failure, is_only_cancelled
from ..types import Content, Part
from ._base import BaseAgent, misfit

__all__ = ["Finding", "Guardrail", "ask_all", "guardrails_of"]

TRIPS = "tripwire_triggered"
"""What the `output` of an agent that is a guardrail has to say, as a bool."""


def _check_check(guardrail: Guardrail, attribute: Any, check: Callable[..., Any] | BaseAgent) -> None:
    expected = "expected a guardrail to be a function of the context and a content, or an agent"
    if isinstance(check, BaseAgent):
        return
    if not callable(check) or isinstance(check, type):
        raise ConfigurationError(f"{expected}, found {brief(check)}")
    if (error := misfit(check, None, None)) is not None:
        raise ConfigurationError(f"{expected}, found {brief(check)}: {error}")


def _check_flag(guardrail: Guardrail, attribute: Any, flag: object) -> None:
    if not isinstance(flag, bool):
        raise ConfigurationError(f"expected {attribute.name} of a guardrail to be True or False, found {brief(flag)}")


def _check_name(guardrail: Guardrail, attribute: Any, name: object) -> None:
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise ConfigurationError(f"expected the name of a guardrail to be a text, or None, found {brief(name)}")


@attrs.frozen(eq=False)
class Guardrail:
    """
    A guardrail with settings of its own: `LlmAgent(input_guardrails=[Guardrail(no_cards, parallel=False)])`.

    Args:
        check: A function, sync or async, of a CallbackContext and a Content: the user's message, or what the model is
            about to say. It returns None to let it pass, or a text or a Content that takes its place. `raise
            GuardrailTripwireError(info)` refuses it and ends the run; `raise ModelRetry(text)` has the model answer
            again, and tells it the text. Or an agent, which is given the content, and whose `output` is an object that
            says `tripwire_triggered`, true or false; if true, the output is the `info`. Anything else that is raised
            fails the run. What it writes to the state is stored with the verdict.
        name: What errors and verdicts call it; None: the name of the function or the agent.
        parallel: Of an input guardrail: whether the model is asked meanwhile. What it says is held back until the
            verdict. False: it is asked when the message has passed.
        keep_refused: Of an input guardrail: whether a message that it has refused is shown to models in later turns.
    """

    check: Callable[..., Any] | BaseAgent = attrs.field(validator=_check_check)
    name: str | None = attrs.field(default=None, kw_only=True, validator=_check_name)
    parallel: bool = attrs.field(default=True, kw_only=True, validator=_check_flag)
    keep_refused: bool = attrs.field(default=False, kw_only=True, validator=_check_flag)

    @property
    def _called(self) -> str:
        found = self.name or getattr(self.check, "name", None) or getattr(self.check, "__name__", None)
        return found if isinstance(found, str) else type(self.check).__name__


def guardrails_of(
    value: Any, where: str, *, parallel: bool = True, keep_refused: bool = False
) -> Sequence[Guardrail]:
    """
    Return the guardrails of one field: what is a plain function, or an agent, gets these settings.

    Raises:
        ConfigurationError: One cannot be a guardrail, or has a setting that has no effect there.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"expected {where} to be a list of guardrails, found {brief(value)}; write [...]")
    made = partial(Guardrail, parallel=parallel, keep_refused=keep_refused)
    found = FrozenTuple([each if isinstance(each, Guardrail) else made(each) for each in value])
    for each in found:
        if "output" in where and (not each.parallel or each.keep_refused):
            msg = f"{where}: expected guardrail {each._called!r} without parallel=False and keep_refused=True"
            raise ConfigurationError(f"{msg}, found one of them; they are for messages, and an answer is always held")
    return found


class Finding(NamedTuple):
    """What guardrails say of a content: nothing, if all fields are None."""

    replacement: Content | None = None
    retry: str | None = None
    """What the model is to be told before it answers again."""
    trip: GuardrailTripwireError | None = None
    keeps_refused: bool = False


async def ask_all(context: ToolContext, guardrails: Sequence[Guardrail], content: Content, *, role: str) -> Finding:
    """
    Ask *guardrails*, side by side, about *content*; the first that trips has decided, and ends the others.

    Each is shown *content*. Where several replace it, the later ones are asked again, about what the earlier ones say.

    Raises:
        Exception: What one of them has failed with.
    """
    findings: list[Finding] = [Finding()] * len(guardrails)
    failed: list[BaseException] = []

    async def ask(place: int) -> None:
        await context._invocation.env.point(f"guardrail {place} {context._path}")
        try:
            findings[place] = await _ask(context, guardrails[place], content, role)
        except BaseException as error:
            if is_only_cancelled(error):
                raise
            failed.append(error)
        if failed or findings[place].trip is not None:
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for place in range(len(guardrails)):
            nursery.start_soon(ask, place, name=f"guardrail {guardrails[place]._called}")
    tripped = next((found for found in findings if found.trip is not None), None)
    if tripped is not None:
        return tripped
    if failed:
        raise first_failure(failed[0])
    shown: Content | None = None
    notes: list[str] = []
    for guardrail, found in zip(guardrails, findings, strict=True):
        if shown is not None and found.replacement is not None:
            found = await _ask(context, guardrail, shown, role)
            if found.trip is not None:
                return found
        shown = found.replacement or shown
        notes += [] if found.retry is None else [found.retry]
    return Finding(replacement=shown, retry="\n".join(notes) if notes else None)


async def _ask(context: ToolContext, guardrail: Guardrail, content: Content, role: str) -> Finding:
    check, name = guardrail.check, guardrail._called
    try:
        if isinstance(check, BaseAgent):
            output = await context.run_node(check, content)
            if not isinstance(output, dict) or not isinstance(output.get(TRIPS), bool):
                problem = f"expected an object that says {TRIPS!r}, true or false, found {brief(output)}"
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
        return Finding(trip=error, keeps_refused=guardrail.keep_refused)
    if found is None:
        return Finding()
    if isinstance(found, str):
        found = Content(role=role, parts=[Part(text=found)])
    if not isinstance(found, Content) or not found.parts or any(found.calls_and_responses):
        problem = f"expected None, a text, or a Content without calls, found {brief(found)}"
        raise InvalidValueError(f"what guardrail {name!r} returned", problem)
    return Finding(replacement=found if found.role == role else attrs.evolve(found, role=role))
