"""How runs open their sessions."""

from __future__ import annotations

from typing import NamedTuple

from ..apps import App
from ..errors import AlreadyExistsError, ServiceClosedError, SessionNotFoundError
from ..runtime import RunRequest
from ..sessions import BaseSessionService, GetSessionConfig, SessionKey, SessionWriter

__all__ = ["NewInvocation", "SessionOpener"]

_NO_EVENTS = GetSessionConfig(num_recent_events=0)


class SessionOpener:
    """Opens sessions for the runs of one runner, until that is closed."""

    __slots__ = ("app", "is_closed", "service")

    def __init__(self, service: BaseSessionService, app: App) -> None:
        self.service = service
        self.app = app
        self.is_closed = False

    def check_open(self) -> None:
        """Raise ServiceClosedError if the runner was closed."""
        if self.is_closed:
            msg = "this Runner was closed; make a new one"
            raise ServiceClosedError(msg)

    async def open(self, key: SessionKey, request: RunRequest, *, auto_create: bool) -> SessionWriter:
        """
        Wait for a session and open it for a run, with the events that this asks for.

        Raises:
            SessionNotFoundError: There is none, and it is not to be made.
            SessionBusyError: It is busy and waiting could never end, or the run does not wait.
        """
        rejects = request.run_config.on_busy == "reject"
        while True:
            writer = await self.service.open_writer(key, request.invocation_id, request.window, reject=rejects)
            if writer is not None:
                return writer
            if not auto_create:
                raise _hinted(await self.service._not_found(key, can_be_made=True), self.app)
            await self.create_if_missing(key)

    async def create_if_missing(self, key: SessionKey) -> None:
        """Make a session that does not exist; somebody else may be faster."""
        app, user, session = key.app_name, key.user_id, key.session_id
        found = await self.service.get_session(app_name=app, user_id=user, session_id=session, config=_NO_EVENTS)
        if found is None:
            try:
                await self.service.create_session(app_name=app, user_id=user, session_id=session)
            except AlreadyExistsError:
                pass  # somebody else's first call was faster: the session is there


def _hinted(error: SessionNotFoundError, app: App) -> SessionNotFoundError:
    """The same error, with a hint where the class of the agent stands in a package of another name than the app."""
    module = type(app.root_agent).__module__
    package = module.rpartition(".")[0].rpartition(".")[2]  # ADK calls an app as the folder of its agent is called
    if package in ("", app.name) or module.startswith("minirun."):
        return error
    hint = f"the agent is from the package {package!r}, and the app is called {app.name!r}"
    return SessionNotFoundError(f"{error}; {hint}: if the session is of that app, write Runner(app_name={package!r})")


class NewInvocation(NamedTuple):
    """How a run that begins an invocation gets into its session."""

    opener: SessionOpener
    key: SessionKey
    auto_create: bool

    async def open(self, request: RunRequest) -> tuple[SessionWriter, RunRequest]:
        """Wait for the session and open it; see `SessionOpener.open`. Nothing has to be looked up."""
        self.opener.check_open()
        return await self.opener.open(self.key, request, auto_create=self.auto_create), request
