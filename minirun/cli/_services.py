"""The services that commands give a runner, besides the one that keeps its sessions."""

from __future__ import annotations

from ..apps import App
from ..artifacts import BaseArtifactService, InMemoryArtifactService, SqliteArtifactService
from ..memory import BaseMemoryService, InMemoryMemoryService, SqliteMemoryService
from ..runners import Runner
from ..sessions import BaseSessionService, InMemorySessionService, SqliteSessionService
from ._credentials import credential_service

__all__ = ["artifacts_beside", "runner_of"]


def runner_of(app: App, service: BaseSessionService, *, auto_create_session: bool = False) -> Runner:
    """A runner that keeps artifacts and memory where *service* keeps the sessions, credentials in the keyring."""
    return Runner(
        app=app,
        session_service=service,
        artifact_service=artifacts_beside(service),
        memory_service=_memory_beside(service),
        credential_service=credential_service(service.env),
        auto_create_session=auto_create_session,
    )


def artifacts_beside(service: BaseSessionService) -> BaseArtifactService:
    """The artifacts in the file or database of *service*, which stays its owner's; or in memory, as it is."""
    if isinstance(service, InMemorySessionService):
        return InMemoryArtifactService(env=service.env)
    if isinstance(service, SqliteSessionService):
        return SqliteArtifactService(service)
    from ..artifacts._database import DatabaseArtifactService  # most commands are given a file
    from ..sessions._postgres._service import DatabaseSessionService

    assert isinstance(service, DatabaseSessionService)
    return DatabaseArtifactService(service)


def _memory_beside(service: BaseSessionService) -> BaseMemoryService:
    if isinstance(service, InMemorySessionService):
        return InMemoryMemoryService(env=service.env)
    if isinstance(service, SqliteSessionService):
        return SqliteMemoryService(service)
    from ..memory._database import DatabaseMemoryService  # most commands are given a file
    from ..sessions._postgres._service import DatabaseSessionService

    assert isinstance(service, DatabaseSessionService)
    return DatabaseMemoryService(service)
