"""How long providers are to keep what requests begin with."""

from __future__ import annotations

from typing import Any

import attrs

from .._arguments import refuse_unknown
from .._json import brief, finite, is_count
from ..errors import ConfigurationError

__all__ = ["CACHE", "ContextCacheConfig", "check_cache_config"]

CACHE = "context_cache"
"""Where in the `custom_metadata` of an answer a model tells of a cache that it has made at its provider."""

# ADK's bound of `cache_intervals`.
INTERVALS_MAX = 100


def _refuse(name: str, expected: str, found: object) -> None:
    raise ConfigurationError(f"ContextCacheConfig.{name}: expected {expected}, found {brief(found)}")


def _intervals(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not is_count(value, 1) or value > INTERVALS_MAX:
        _refuse(attribute.name, f"an integer from 1 to {INTERVALS_MAX}", value)


def _seconds(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    seconds = finite(value)
    if seconds is None or seconds <= 0:
        _refuse(attribute.name, "a number of seconds above 0", value)


def _tokens(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not is_count(value):
        _refuse(attribute.name, "an integer from 0 up", value)


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

    cache_intervals: int = attrs.field(default=10, validator=_intervals)
    ttl_seconds: float = attrs.field(default=1800, validator=_seconds)
    min_tokens: int = attrs.field(default=0, validator=_tokens)


def check_cache_config(value: object) -> None:
    """Raise ConfigurationError for what is no ContextCacheConfig."""
    if not isinstance(value, ContextCacheConfig):
        raise ConfigurationError(f"expected context_cache_config to be a ContextCacheConfig, found {brief(value)}")
