"""What a Runner and its runs are given: what does not fit is refused by name, before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._json import brief, freeze, shown
from ..agents import BaseAgent
from ..apps import App
from ..errors import ConfigurationError, InvalidValueError
from ..runtime import RunConfig, Services, StreamingMode
from ..sessions import BaseSessionService
from ..sessions._state import Scope, check_key, scope_of

if TYPE_CHECKING:
    from ..artifacts import BaseArtifactService
    from ..credentials import BaseCredentialService
    from ..env import Env
    from ..memory import BaseMemoryService
    from ..plugins import BasePlugin
    from ..runtime._hooks import PluginHooks
    from ..workflow._nodes import NodeLike
    from ._compactor import Compactor
    from ._runner import Runner

__all__ = [
    "app_of", "check_needs", "checked_cleanup_timeout_s", "checked_config", "checked_services", "compactor_of",
    "hooks_of_app", "split_delta",
]

# ADK's default for closing a plugin.
CLEANUP_TIMEOUT_S = 5.0

_DEFAULT_CONFIG = RunConfig()


def app_of(
    app: App | None,
    app_name: str | None,
    agent: BaseAgent | None,
    node: NodeLike | None,
    plugins: Sequence[BasePlugin] | None,
) -> App:
    """Return the app that a Runner was given, or one of the agent or node that it was given instead."""
    if agent is not None and app_name is not None and app is None and node is None:
        return App(app_name, agent, () if plugins is None else plugins)
    from ._odd_arguments import given_app  # an app, a node, or what does not fit

    return given_app(app, app_name, agent, node, plugins)


def checked_services(
    sessions: BaseSessionService,
    artifact: BaseArtifactService | None,
    memory: BaseMemoryService | None,
    credential: BaseCredentialService | None,
    env: Env | None,
) -> Services:
    """Return the services beside that of the sessions. Each is of its kind, and all of them use the same Env."""
    if sessions is None:
        msg = "expected session_service to be a session service, found None; make one, or use InMemoryRunner"
        raise ConfigurationError(msg)
    if not isinstance(sessions, BaseSessionService):
        raise ConfigurationError(f"expected session_service to be a BaseSessionService, found {shown(sessions)}")
    _check_unasked(sessions)
    if any(each is not None for each in (artifact, memory, credential, env)):
        from ._odd_arguments import check_services  # few programs have any

        check_services(sessions, artifact, memory, credential, env)
    return Services(artifact=artifact, memory=memory, credential=credential)


def _check_unasked(sessions: BaseSessionService) -> None:
    """Refuse what a service overrides in vain: a run holds its session, and stores by the writer that it holds."""
    for name in ("append_event", "get_session"):
        if getattr(getattr(sessions, name), "__func__", None) is not getattr(BaseSessionService, name):
            from .._adk import advice_for  # few services override anything

            msg = f"{type(sessions).__name__} overrides {name}, which runs do not call"
            raise ConfigurationError(f"{msg}; {advice_for(name, type(sessions))}")


def hooks_of_app(app: App) -> PluginHooks:
    """Return the hooks of an app's plugins."""
    if not app.plugins:
        return {}
    from ..plugins._manager import hooks_of  # not every app has a plugin

    return hooks_of(app.plugins)


def compactor_of(app: App, env: Env) -> Compactor | None:
    """Return what makes the summaries of an app's sessions, if there are to be any."""
    if app.events_compaction_config is None:
        return None
    from ._compactor import Compactor  # few apps have summaries

    return Compactor(app.events_compaction_config, app._tree, env)


def check_needs(runner: Runner) -> None:
    """Check that the plugins and tools of a runner's app have the services that they need."""
    for each in (*runner.app.plugins, *runner.app._tree.tools()):
        needed = getattr(each, "needs_service", None)
        if needed is not None and getattr(runner, needed, None) is None:
            from ._odd_arguments import missing_service

            raise missing_service(runner, each, needed)


def checked_cleanup_timeout_s(seconds: float | None, seconds_by_adk_name: float | None) -> float:
    """Return how long cleanup may take: a finite number of seconds from 0 up, given by one of its two names."""
    if seconds is None and seconds_by_adk_name is None:
        return CLEANUP_TIMEOUT_S
    from ._odd_arguments import chosen_timeout_s  # few programs give one

    return chosen_timeout_s(seconds, seconds_by_adk_name)


def checked_config(run_config: RunConfig | None) -> RunConfig:
    """Return the settings of a run, those by default if none are given."""
    if run_config is None:
        return _DEFAULT_CONFIG
    if not isinstance(run_config, RunConfig):
        raise ConfigurationError(f"expected a RunConfig, found {brief(run_config)}")
    if run_config.live is not None or run_config.streaming_mode is StreamingMode.BIDI:
        from ..agents._live_config import not_in_writing

        raise not_in_writing(run_config)
    return run_config


def split_delta(delta: Mapping[str, object] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the part of a state_delta that is stored, and its `temp:` keys."""
    if delta is not None and not isinstance(delta, Mapping):
        raise InvalidValueError("state_delta", f"expected a mapping, found {type(delta).__name__}")
    lasting: dict[str, Any] = {}
    temp: dict[str, Any] = {}
    for key, value in freeze(dict(delta or {}), "state_delta").items():
        check_key(key, "state_delta")
        (temp if scope_of(key) is Scope.TEMP else lasting)[key] = value
    return lasting, temp
