"""How long providers are to keep what requests begin with."""

from __future__ import annotations

import attrs

from .._arguments import refuse_unknown
from .._fields import setting
from .._json import brief, finite, is_count
from ..errors import ConfigurationError

__all__ = ["CACHE", "ContextCacheConfig", "check_cache_config"]

CACHE = "context_cache"
"""Where in the `custom_metadata` of an answer a model tells of a cache that it has made at its provider."""

# ADK's bound of `cache_intervals`.
INTERVALS_MAX = 100


@refuse_unknown
@attrs.frozen(kw_only=True)
class ContextCacheConfig:
    """
    That providers are to cache what the requests of an app begin with: the tools, the system instruction, the history.

    It is for all LlmAgents of the app: `App(context_cache_config=...)`. Each model does with it what its provider has,
    and nothing is promised: a cache saves money and time, and never changes an answer.

    Args:
        cache_intervals: After so many invocations of a session the cache is made anew; 1 to 100.
        ttl_seconds: How long the provider is to keep it, in seconds, as far as it lets choose: after its last use, or
            after it was made, as the provider has it.
        min_tokens: Shorter requests, by the model's estimate, are not cached.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    cache_intervals: int = attrs.field(
        default=10,
        validator=setting(f"an integer from 1 to {INTERVALS_MAX}", lambda n: is_count(n, 1) and n <= INTERVALS_MAX),
    )
    ttl_seconds: float = attrs.field(
        default=1800, validator=setting("a number of seconds above 0", lambda value: (finite(value) or 0) > 0)
    )
    min_tokens: int = attrs.field(default=0, validator=setting("an integer from 0 up", is_count))


def check_cache_config(value: object) -> None:
    """Raise ConfigurationError for what is no ContextCacheConfig."""
    if not isinstance(value, ContextCacheConfig):
        raise ConfigurationError(f"expected context_cache_config to be a ContextCacheConfig, found {brief(value)}")
