"""What few Runners are given or meet: settings that are not the default, and a session that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._json import brief, is_seconds, shown
from .._service import BaseService
from ..agents import BaseAgent
from ..apps import App
from ..errors import ConfigurationError, ServiceNotConfiguredError, SessionNotFoundError
from ..sessions import BaseSessionService

if TYPE_CHECKING:
    from ..artifacts import BaseArtifactService
    from ..credentials import BaseCredentialService
    from ..env import Env
    from ..memory import BaseMemoryService
    from ..plugins import BasePlugin
    from ..tools import BaseTool, BaseToolset
    from ..workflow._nodes import NodeLike
    from ._runner import Runner

__all__ = ["check_services", "chosen_timeout_s", "given_app", "hinted", "missing_service"]


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


def given_app(
    app: App | None,
    app_name: str | None,
    agent: BaseAgent | None,
    node: NodeLike | None,
    plugins: Sequence[BasePlugin] | None,
) -> App:
    """
    Return the app that a Runner was given, or one of the agent or node that it was given instead.

    Raises:
        ConfigurationError: The arguments do not fit together.
    """
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


def check_services(
    sessions: BaseSessionService,
    artifact: BaseArtifactService | None,
    memory: BaseMemoryService | None,
    credential: BaseCredentialService | None,
    env: Env | None,
) -> None:
    """
    Check the services beside that of the sessions: each is of its kind, and all of them use the same Env.

    Raises:
        ConfigurationError: One does not fit.
    """
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


def _check_service(name: str, service: object, kind: type[BaseService], sessions: BaseSessionService) -> None:
    if not isinstance(service, kind):
        raise ConfigurationError(f"expected {name} to be a {kind.__name__}, found {shown(service)}")
    if service.env is not sessions.env:
        msg = f"expected {name} to use the Env of the session service, found another one; pass the same env to both"
        raise ConfigurationError(msg)


def missing_service(
    runner: Runner, each: BasePlugin | BaseTool | BaseToolset, needed: str
) -> ServiceNotConfiguredError:
    """The error for a plugin or tool that is of no use without a service that the runner was not given."""
    kind = "plugin" if each in runner.app.plugins else "tool"
    name = getattr(each, "name", type(each).__name__)
    msg = f"the {kind} {name!r} needs a service that the runner was not given; make it with "
    return ServiceNotConfiguredError(f"{msg}Runner({needed}=...)")
