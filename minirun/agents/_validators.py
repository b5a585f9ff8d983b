"""
Validators: a program's own word on the final answer of an agent, after its form was checked.

A validator sees each answer once. What it decides is stored with the answer, so an invocation that goes on later takes
it from the log, and a refused answer counts as one of another form does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._json import FrozenTuple, brief
from .._values import changed
from ..errors import InvalidValueError, ModelRetry
from ..events import Event
from ..flows._output import OutputSchema
from ..flows._turn import REFUSED_OUTPUT
from ..runtime import InvocationContext, ToolContext
from ..runtime._failure import leaves
from ..types import Part
from ._answer_fields import with_output

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["in_its_place", "validated"]


async def in_its_place(
    validator: Callable[..., Any], form: OutputSchema | None, context: ToolContext, value: Any
) -> Any:
    """
    Return what *validator* puts in the place of the answer *value*: frozen JSON that fits the *form*, or a text.

    Raises:
        ModelRetry: The model is to answer again.
        InvalidValueError: The validator has returned what cannot stand there.
    """
    try:
        found = validator(context, value if form is None else form.made(value))
        if inspect.isawaitable(found):
            found = await found
    except ModelRetry:
        raise
    except Exception as error:
        context._invocation.failures.of_hooks += leaves(error)  # it is none of a tool, which the model would be told
        raise
    if found is None:
        return value
    if form is not None:
        outcome = form.parse_made(found)
        problems, found = outcome.problems, outcome.value
    else:
        problems = [] if isinstance(found, str) else [f"expected a text, found {brief(found)}"]
    if problems:
        refused = InvalidValueError(f"what output_validator of agent {context.agent_name!r} returned", problems[0])
        context._invocation.failures.of_hooks.append(refused)
        raise refused
    return found


async def validated(agent: LlmAgent, ctx: InvocationContext, event: Event) -> tuple[Event, list[str]]:
    """Return the event of a final answer as the agent's validator leaves it, and why it is to be given again."""
    validator, form = agent.output_validator, agent._output
    assert validator is not None
    assert event.id is not None
    value = event.text if form is None else event.output
    state = ctx._state.layer()
    context = ToolContext(ctx, state, path=f"{ctx._path}!{event.id}")
    context._draft = ctx.actions
    try:
        found = await in_its_place(validator, form, context, value)
    except ModelRetry as retry:
        actions = changed(event.actions, state_delta={}) if event.actions.state_delta else event.actions
        message = context._invocation.secrets.text_of(retry)
        refused = changed(event, output=None, actions=actions, error_code=REFUSED_OUTPUT, error_message=message)
        return refused, [message]
    ctx.state.merge(state.pending())
    if found == value and type(found) is type(value):
        return event, []
    if form is None:
        event = changed(event, content=_saying(event, found))
    return with_output(agent, event, found), []


def _saying(event: Event, text: str) -> Any:
    """The content of *event* with another text, after its thoughts."""
    assert event.content is not None
    kept = [part for part in event.content.parts if part.text is None or part.thought]
    return changed(event.content, parts=FrozenTuple([*kept, Part(text=text)]))
