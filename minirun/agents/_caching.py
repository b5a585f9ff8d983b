"""What a request says of caching, for apps that have a ContextCacheConfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._values import changed
from ..env import derived_id
from ..models import LlmRequest
from ..runtime import InvocationContext

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["with_caching"]


def with_caching(request: LlmRequest, agent: LlmAgent, ctx: InvocationContext) -> LlmRequest:
    """
    Return *request* with the app's setting and the key of what it begins with.

    The key is the same for all requests of one agent in one session until the setting's `cache_intervals` are over.
    """
    config = ctx._invocation.program.cache_config
    assert config is not None, "whoever calls this has looked"
    place, generation = ctx._invocation.live.key, (_invocations_of(ctx) - 1) // config.cache_intervals
    digest = derived_id("cache", place.app_name, place.user_id, place.session_id, agent.name, generation)
    return changed(request, cache_config=config, cache_key=f"minirun-{digest}")


def _invocations_of(ctx: InvocationContext) -> int:
    """How many invocations the session has had, as far as its events are at hand; each is counted once."""
    live = ctx._invocation.live
    next_seq: int
    count: int
    next_seq, last, count = live.memo.get("invocations", (0, None, 0))
    for event in live.events[live.index_of(next_seq) :]:
        if event.invocation_id and event.invocation_id != last:
            last, count = event.invocation_id, count + 1
        next_seq = (event.seq or 0) + 1
    live.memo["invocations"] = next_seq, last, count
    return max(count, 1)
