"""The services that commands give a runner, besides the one that keeps its sessions."""

from __future__ import annotations

from ..apps import App
from ..artifacts import BaseArtifactService, InMemoryArtifactService, SqliteArtifactService
from ..memory import BaseMemoryService, InMemoryMemoryService, SqliteMemoryService
from ..runners import Runner
from ..sessions import BaseSessionService, SqliteSessionService
from ._credentials import credential_service

__all__ = ["runner_of"]


def runner_of(app: App, service: BaseSessionService, *, auto_create_session: bool = False) -> Runner:
    """A runner that keeps artifacts and memory where *service* keeps the sessions, credentials in the keyring."""
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    database = service._path if isinstance(service, SqliteSessionService) else None
    if isinstance(service, SqliteSessionService):
        artifacts, memory = SqliteArtifactService(service), SqliteMemoryService(service)
    else:
        artifacts, memory = InMemoryArtifactService(env=service.env), InMemoryMemoryService(env=service.env)
    return Runner(
        app=app,
        session_service=service,
        artifact_service=artifacts,
        memory_service=memory,
        credential_service=credential_service(service.env, database),
        auto_create_session=auto_create_session,
    )
