"""What a RunConfig is to a live run, and to one in writing: which of its settings have an effect there."""

from __future__ import annotations

import attrs

from .._json import brief
from ..errors import ConfigurationError, NotSupportedError
from ..models._live_settings import LiveSettings
from ..runtime._config import DefaultSeconds, RunConfig, StreamingMode

__all__ = ["live_config", "live_deadline", "live_settings", "not_in_writing"]


def live_config(config: RunConfig | None) -> RunConfig:
    """
    Return the settings of a live run: with those for live runs (`live`), and with a deadline only if one was given.

    Raises:
        ConfigurationError: It is no RunConfig.
        NotSupportedError: It has a setting that would have no effect in a live run.
    """
    config = RunConfig() if config is None else config
    if not isinstance(config, RunConfig):
        raise ConfigurationError(f"expected a RunConfig, found {brief(config)}")
    if config.streaming_mode is StreamingMode.SSE:
        msg = (
            "StreamingMode.SSE has no effect in a live run, whose answers always come bit by bit; leave streaming_mode "
            "out, or write StreamingMode.BIDI"
        )
        raise NotSupportedError(msg)
    return attrs.evolve(config, live=live_settings(config), deadline_s=live_deadline(config))


def live_settings(config: RunConfig) -> LiveSettings:
    """Return what *config* says of a live run, or what holds by default."""
    return LiveSettings() if config.live is None else config.live


def live_deadline(config: RunConfig) -> float | None:
    """Return how long a live run may take, in seconds; None unless `deadline_s` was given."""
    return None if isinstance(config.deadline_s, DefaultSeconds) else config.deadline_s


def not_in_writing(config: RunConfig) -> NotSupportedError:
    """Return what to raise where a run in writing is given settings of a live one."""
    if config.live is None:
        return NotSupportedError(
            "StreamingMode.BIDI has no effect in Runner.run_async; use NONE or SSE there, or Runner.run_live"
        )
    changed = config.live.changed
    named = f"RunConfig({', '.join(f'{name}=...' for name in changed or ['live'])})"
    advice = "leave it out"
    if "context_window_compression" in changed:
        advice = "write App(events_compaction_config=...): what is old is told as a summary"
    return NotSupportedError(f"{named} has no effect in Runner.run_async, only in Runner.run_live; {advice}")
