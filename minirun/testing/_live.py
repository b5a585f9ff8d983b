"""The public list of what tests of live agents have: a model, the steps of its script."""

from ._live_steps import (
    LiveSent,
    cancel_calls,
    drop,
    error,
    go_away,
    handle,
    hear,
    interrupted,
    pause,
    say,
    usage,
)
from ._scripted_live import ScriptedLive

__all__ = [
    "LiveSent", "ScriptedLive", "cancel_calls", "drop", "error", "go_away",
    "handle", "hear", "interrupted", "pause", "say", "usage",
]
