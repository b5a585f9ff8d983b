"""
What all services have in common: an `Env`, and that they are open until they are closed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minirun._service import BaseService
from minirun.artifacts import FileArtifactService, InMemoryArtifactService, SqliteArtifactService
from minirun.credentials import InMemoryCredentialService
from minirun.errors import ConfigurationError, ServiceClosedError
from minirun.memory import InMemoryMemoryService, SqliteMemoryService
from minirun.sessions import InMemorySessionService, SqliteSessionService

USER = {"app_name": "app", "user_id": "u"}
SERVICES: dict[str, tuple[Callable[..., BaseService], Callable[[Any], Any]]] = {
    "sessions": (InMemorySessionService, lambda service: service.list_sessions(app_name="app")),
    "sessions in a file": (SqliteSessionService, lambda service: service.list_sessions(app_name="app")),
    "artifacts": (InMemoryArtifactService, lambda service: service.list_artifact_keys(**USER)),
    "artifacts in a folder": (FileArtifactService, lambda service: service.list_artifact_keys(**USER)),
    "artifacts in a file": (SqliteArtifactService, lambda service: service.list_artifact_keys(**USER)),
    "memories": (InMemoryMemoryService, lambda service: service.search_memory(**USER, query="tea")),
    "memories in a file": (SqliteMemoryService, lambda service: service.search_memory(**USER, query="tea")),
    "credentials": (InMemoryCredentialService, lambda service: service.list_credentials(**USER)),
}


def made(kind: str, place: Path, **options: Any) -> BaseService:
    make = SERVICES[kind][0]
    return make(**options) if make.__name__.startswith("InMemory") else make(place / "store", **options)


@pytest.mark.parametrize("kind", SERVICES)
def test_a_service_refuses_what_is_no_env(kind: str, tmp_path: Path) -> None:
    """
    What is given as `env` and is none is refused, by name, before anything was made.
    """
    with pytest.raises(ConfigurationError, match="expected env to be an Env, found 5"):
        made(kind, tmp_path, env=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", SERVICES)
async def test_a_closed_service_says_which_it_is(kind: str, tmp_path: Path) -> None:
    """
    Whoever uses a service after its `async with` is told so, with its name; closing it again does nothing.
    """
    async with made(kind, tmp_path) as service:
        await SERVICES[kind][1](service)
    await service.aclose()
    with pytest.raises(ServiceClosedError, match=f"this {type(service).__name__} was closed; make a new one"):
        await SERVICES[kind][1](service)
