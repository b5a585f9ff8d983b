"""The hooks around a model, for agents that have any: they change requests, answer in its place, and change answers."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .._json import FrozenTuple
from .._values import changed
from ..events import Event, EventActions
from ..models import LlmRequestDraft, LlmResponse
from ..runtime import ToolContext
from ..runtime._hook_calls import ask, expect
from ..runtime._hooks import Hook
from ..types import Content
from ._request import ModelRequest

__all__ = ["after_model", "before_model", "not_taken", "on_model_error", "saying_nothing", "without_calls"]

ASKED_AGAIN = "ASKED_AGAIN"
"""The `error_code` of an answer that was not taken for one, by a hook that gave no other code."""


NO_CONTENT = "MODEL_RETURNED_NO_CONTENT"
"""The `error_code` of a model's event that says nothing."""


def saying_nothing(event: Event, model: str) -> Event:
    """The event of an answer that says nothing, which is a failure of *model*."""
    reason = f" ({event.finish_reason})" if event.finish_reason else ""
    message = f"the model {model!r} has said nothing{reason}"
    return changed(event, error_code=NO_CONTENT, error_message=message)


async def before_model(hooks: Sequence[Hook], context: ToolContext, request: ModelRequest) -> LlmResponse | None:
    """Let tools and hooks change *request*; return the answer of a hook that has given one in the model's place."""
    draft = LlmRequestDraft.of(request.llm_request)
    for tool in request.shapers:
        await tool.process_llm_request(tool_context=context, llm_request=draft)
    said = await ask(hooks, callback_context=context, llm_request=draft)
    answer: LlmResponse | None = expect(said, LlmResponse, "before_model_callback")
    if answer is None:
        request.replace(draft.frozen())
        return None
    request.is_asked = answer.ask_again is not None  # it counts as asked, so that there is a bound
    if request.is_asked:
        context._invocation.budgets.spend_llm_call()
    return answer


async def after_model(hooks: Sequence[Hook], context: ToolContext, response: LlmResponse) -> LlmResponse:
    """Return what hooks make of a response: where they say nothing about how it was given, the model's word stays."""
    said = await ask(hooks, callback_context=context, llm_response=response)
    other: LlmResponse | None = expect(said, LlmResponse, "after_model_callback")
    if other is None:
        return response
    about = ("turn_complete", "usage_metadata", "finish_reason", "model_version")
    kept = {name: getattr(response, name) for name in about if getattr(other, name) is None}
    return attrs.evolve(other, **{**kept, "partial": response.partial})


async def on_model_error(
    hooks: Sequence[Hook], context: ToolContext, request: ModelRequest, error: Exception
) -> LlmResponse:
    """Return what a hook answers in the place of a model that has failed; raise *error* if none does."""
    said = await ask(hooks, callback_context=context, llm_request=request.llm_request, error=error)
    answer: LlmResponse | None = expect(said, LlmResponse, "on_model_error_callback")
    if answer is None:
        raise error
    return changed(answer, partial=None) if answer.partial else answer


def not_taken(event: Event, again: str | None) -> Event:
    """
    What is stored of an answer that has failed, or that is not to be one, where the model is to be asked *again*.

    Its calls are left out: nobody will make them. They may be half, and the model has not stood by them.
    """
    content = without_calls(event.content)
    if again is None:
        return event if content is event.content else changed(event, content=content)
    replay = changed(event.actions.replay, again=again)
    actions = EventActions(replay=replay)
    return changed(event, content=content, error_code=event.error_code or ASKED_AGAIN, actions=actions)


def without_calls(content: Content | None) -> Content | None:
    """A content without the calls in it; None if nothing is left."""
    if content is None or all(part.function_call is None for part in content.parts):
        return content
    parts = FrozenTuple([part for part in content.parts if part.function_call is None])
    return changed(content, parts=parts) if parts else None
