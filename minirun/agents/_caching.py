"""What a request says of caching, for apps that have a ContextCacheConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._json import finite
from .._values import changed
from ..env import derived_id
from ..models import LlmRequest
from ..models._cache_config import CACHE
from ..runtime import InvocationContext

if TYPE_CHECKING:
    from ._llm import LlmAgent

__all__ = ["with_caching"]

# A cache has to last until the provider has read the request that names it; clocks differ, too.
MARGIN_S = 60.0


def with_caching(request: LlmRequest, agent: LlmAgent, ctx: InvocationContext) -> LlmRequest:
    """
    Return *request* with the app's setting and the key of what it begins with.

    The key is the same for all requests of one agent in one session until the setting's `cache_intervals` are over.
    """
    config = ctx._invocation.program.cache_config
    assert config is not None, "whoever calls this has looked"
    place, generation = ctx._invocation.live.key, (_invocations_of(ctx) - 1) // config.cache_intervals
    digest = derived_id("cache", place.app_name, place.user_id, place.session_id, agent.name, generation)
    told = _told_in(ctx, agent.name)
    return changed(request, cache_config=config, cache_key=f"minirun-{digest}", cache_metadata=told)


def _told_in(ctx: InvocationContext, name: str) -> Mapping[str, Any] | None:
    """What the agent's last answer that told of a cache has told; its name only if it lasts for this request."""
    live = ctx._invocation.live
    next_seq: int
    found: Mapping[str, Any] | None
    next_seq, found = live.memo.get(("cache", name), (0, None))
    for event in live.events[live.index_of(next_seq) :]:
        if event.author == name and event.custom_metadata and isinstance(event.custom_metadata.get(CACHE), Mapping):
            found = event.custom_metadata[CACHE]
        assert event.seq is not None, "it is stored"
        next_seq = event.seq + 1
    live.memo["cache", name] = next_seq, found
    expires_at = finite(None if found is None else found.get("expires_at"))
    if found is None or expires_at is None or expires_at > ctx._invocation.env.now() + MARGIN_S:
        return found
    return {key: value for key, value in found.items() if key not in ("name", "expires_at")}


def _invocations_of(ctx: InvocationContext) -> int:
    """How many invocations the session has had, as far as its events are at hand; each is counted once."""
    live = ctx._invocation.live
    next_seq: int
    count: int
    next_seq, last, count = live.memo.get("invocations", (0, None, 0))
    for event in live.events[live.index_of(next_seq) :]:
        if event.invocation_id and event.invocation_id != last:
            last, count = event.invocation_id, count + 1
        assert event.seq is not None, "it is stored"
        next_seq = event.seq + 1
    live.memo["invocations"] = next_seq, last, count
    return max(count, 1)
