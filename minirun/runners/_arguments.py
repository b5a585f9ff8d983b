"""What a Runner and its runs are given: what does not fit is refused by name, before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._json import brief, freeze, shown
from .._service import BaseService
from ..agents import BaseAgent
from ..apps import App
from ..errors import ConfigurationError, InvalidValueError, ServiceNotConfiguredError
from ..runtime import RunConfig, Services
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
    given = {"app": app, "agent": agent, "node": node}
    named = [f"{name}=" for name, value in given.items() if value is not None]
    if len(named) != 1:
        msg = f"expected exactly one of app=, agent= and node=, found {' and '.join(named) or 'none'}"
        raise ConfigurationError(msg)
    if node is not None:
        from ..workflow._root import root_of  # few runners are given one

        agent = root_of(node, "node")
    if app is not None:
        if not isinstance(app, App):
            raise ConfigurationError(f"expected app to be an App, found {brief(app)}")
        if plugins is not None:
            raise ConfigurationError("expected plugins= with agent=, found it with app=; write App(plugins=[...])")
        return app if app_name is None else app._renamed(app_name)
    if app_name is None:
        msg = "expected app_name= with agent=, found none; it is the name that sessions are kept under"
        raise ConfigurationError(msg)
    assert agent is not None
    return App(app_name, agent, () if plugins is None else plugins)


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
    _check_service("session_service", sessions, BaseSessionService, sessions)
    _check_unasked(sessions)
    if artifact is not None:
        from ..artifacts import _service as artifacts  # few programs have one; so it is with the two below

        _check_service("artifact_service", artifact, artifacts.BaseArtifactService, sessions)
    if memory is not None:
        from ..memory import _service as memories

        _check_service("memory_service", memory, memories.BaseMemoryService, sessions)
    if credential is not None:
        from ..credentials import _service as credentials

        _check_service("credential_service", credential, credentials.BaseCredentialService, sessions)
    if env is not None and env is not sessions.env:
        msg = "expected the Env of the session service, found another one; pass the same env to both"
        raise ConfigurationError(msg)
    return Services(artifact=artifact, memory=memory, credential=credential)


def _check_service(name: str, service: object, kind: type[BaseService], sessions: BaseSessionService) -> None:
    if not isinstance(service, kind):
        raise ConfigurationError(f"expected {name} to be a {kind.__name__}, found {shown(service)}")
    if service.env is not sessions.env:
        msg = f"expected {name} to use the Env of the session service, found another one; pass the same env to both"
        raise ConfigurationError(msg)


def _check_unasked(sessions: BaseSessionService) -> None:
    """Refuse what a service overrides in vain: a run holds its session, and stores by the writer that it holds."""
    for name in ("append_event", "get_session"):
        if getattr(getattr(sessions, name), "__func__", None) is not getattr(BaseSessionService, name):
            from ._overrides import refusal  # few services override anything

            raise refusal(sessions, name)


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
            kind = "plugin" if each in runner.app.plugins else "tool"
            name = getattr(each, "name", type(each).__name__)
            msg = f"the {kind} {name!r} needs a service that the runner was not given; make it with "
            raise ServiceNotConfiguredError(f"{msg}Runner({needed}=...)")


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
