"""Artifacts: content that belongs to a session or to a user, in versions, and the services that keep it."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._database import DatabaseArtifactService as DatabaseArtifactService
    from ._file import FileArtifactService as FileArtifactService
    from ._in_memory import InMemoryArtifactService as InMemoryArtifactService
    from ._service import ArtifactReader as ArtifactReader
    from ._service import BaseArtifactService as BaseArtifactService
    from ._service import Chunks as Chunks
    from ._sqlite import SqliteArtifactService as SqliteArtifactService
    from ._values import ArtifactKey as ArtifactKey
    from ._values import ArtifactVersion as ArtifactVersion
    from ._values import Collected as Collected
    from ._values import Description as Description
    from ._values import Stored as Stored
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._database": "DatabaseArtifactService",
            "._file": "FileArtifactService",
            "._in_memory": "InMemoryArtifactService",
            "._service": "ArtifactReader BaseArtifactService Chunks",
            "._sqlite": "SqliteArtifactService",
            "._values": "ArtifactKey ArtifactVersion Collected Description Stored",
        },
    )
