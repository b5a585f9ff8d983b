"""What few Runners are given or meet: settings that are not the default, and a session that is not there."""

from __future__ import annotations

from .._json import is_seconds, shown
from ..apps import App
from ..errors import ConfigurationError, SessionNotFoundError

__all__ = ["chosen_timeout_s", "hinted"]


def chosen_timeout_s(seconds: float | None, seconds_by_adk_name: float | None) -> float:
    """
    Return how long cleanup may take: a finite number of seconds from 0 up, given by one of its two names.

    Raises:
        ConfigurationError: It is given by both names, or is no such number.
    """
    if seconds is not None and seconds_by_adk_name is not None:
        msg = "expected one of cleanup_timeout_s= and plugin_close_timeout=, two names of one setting, found both"
        raise ConfigurationError(msg)
    chosen = seconds_by_adk_name if seconds is None else seconds
    if chosen is None or not is_seconds(chosen):
        msg = f"expected cleanup_timeout_s to be seconds from 0 up, and not for ever, found {shown(chosen)}"
        raise ConfigurationError(msg)
    return chosen


def hinted(error: SessionNotFoundError, app: App) -> SessionNotFoundError:
    """The same error, with a hint where the class of the agent stands in a package of another name than the app."""
    module = type(app.root_agent).__module__
    package = module.rpartition(".")[0].rpartition(".")[2]  # ADK calls an app as the folder of its agent is called
    if package in ("", app.name) or module.startswith("minirun."):
        return error
    hint = f"the agent is from the package {package!r}, and the app is called {app.name!r}"
    return SessionNotFoundError(f"{error}; {hint}: if the session is of that app, write Runner(app_name={package!r})")
