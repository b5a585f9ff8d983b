"""How runs open their sessions."""

from __future__ import annotations

from .._service import check_in_trio
from ..apps import App
from ..errors import AlreadyExistsError, ServiceClosedError
from ..runtime import RunRequest
from ..sessions import BaseSessionService, GetSessionConfig, SessionKey, SessionWriter

__all__ = ["SessionOpener"]

_NO_EVENTS = GetSessionConfig(num_recent_events=0)


class SessionOpener:
    """Opens sessions for the runs of one runner, until that is closed."""

    __slots__ = ("app", "is_closed", "service")

    def __init__(self, service: BaseSessionService, app: App) -> None:
        self.service = service
        self.app = app
        self.is_closed = False

    def check_open(self) -> None:
        """Raise ServiceClosedError if the runner was closed; RuntimeError outside of trio."""
        check_in_trio()
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
                advice = "make it with create_session, or use Runner(auto_create_session=True)"
                from ._odd_arguments import hinted  # few runs ask for a session that is not there

                raise hinted(await self.service._not_found(key, advice), self.app)
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
