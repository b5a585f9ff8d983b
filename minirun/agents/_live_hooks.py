"""The hooks around a model, where it converses: they are asked about whole utterances of either side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._values import changed
from ..events import Event
from ..models import LlmRequest, LlmRequestDraft, LlmResponse
from ..runtime._hook_calls import ask, expect
from ..runtime._hooks import Hook
from ..types import Content, id_of
from . import _model_callbacks
from ._request import setup

if TYPE_CHECKING:
    from ._live_talk import Talk

__all__ = ["after_model", "before_model"]


async def before_model(talk: Talk, hooks: Sequence[Hook], content: Content, event_id: str) -> bool:
    """
    Ask the hooks about *content*, which the user has said; return whether one has answered in the model's place.

    Its answer is stored. Of what hooks change in the request nothing has an effect: it is not a request that is sent.
    """
    box, config, _ = await setup(talk.agent, talk.context)
    draft = LlmRequestDraft.of(LlmRequest(contents=[content], config=config, model=box.model.name))
    context = talk.context._for_model_hooks(event_id)
    answer: LlmResponse | None = expect(
        await ask(hooks, callback_context=context, llm_request=draft), LlmResponse, "before_model_callback"
    )
    if answer is None:
        return False
    event = Event(id=event_id, content=answer.content, error_code=answer.error_code, live={})
    await talk.emit(changed(event, error_message=answer.error_message), closing=True)
    return True


async def after_model(talk: Talk, hooks: Sequence[Hook], event: Event) -> Event:
    """Return *event*, an answer, as the hooks want it to be stored."""
    context = talk.context._for_model_hooks(id_of(event))
    response = LlmResponse(content=event.content, interrupted=event.interrupted, usage_metadata=event.usage_metadata)
    other = await _model_callbacks.after_model(hooks, context, response)
    if other is response:
        return event
    return changed(event, content=other.content, error_code=other.error_code, error_message=other.error_message)
