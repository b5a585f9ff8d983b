"""What a session service overrides although runs would never ask it."""

from __future__ import annotations

from ..errors import ConfigurationError
from ..sessions import BaseSessionService

__all__ = ["refusal"]

# What a session service cannot change for runs by overriding it, and what does.
_INSTEAD = {
    "append_event": (
        "to see or change events before they are stored use a plugin (on_event_callback, on_user_message_callback), to "
        "store them somewhere else override commit_event, and to append from outside use a function of your own"
    ),
    "get_session": (
        "to choose what a run sees use RunConfig(get_session_config=...) or a plugin (before_model_callback), and to "
        "read from outside a function of your own"
    ),
}


def refusal(sessions: BaseSessionService, name: str) -> ConfigurationError:
    """The error that says what to use instead of overriding *name*."""
    msg = f"{type(sessions).__name__} overrides {name}, which runs do not call; {_INSTEAD[name]}"
    return ConfigurationError(msg)
