"""The public list of what tests of live agents have: a model, the steps of its script, a contract."""

from ._live_contract import LiveBench, check_live_connection, live_connection_checks
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
    "LiveBench", "LiveSent", "ScriptedLive", "cancel_calls", "check_live_connection", "drop", "error", "go_away",
    "handle", "hear", "interrupted", "live_connection_checks", "pause", "say", "usage",
]
