"""Memory: what was said to and by a user, found again by words in all sessions, and the services that keep it."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._database import DatabaseMemoryService as DatabaseMemoryService
    from ._in_memory import InMemoryMemoryService as InMemoryMemoryService
    from ._service import BaseMemoryService as BaseMemoryService
    from ._service import Memory as Memory
    from ._sqlite import SqliteMemoryService as SqliteMemoryService
    from ._values import MemoryEntry as MemoryEntry
    from ._values import SearchMemoryResponse as SearchMemoryResponse
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._database": "DatabaseMemoryService",
            "._in_memory": "InMemoryMemoryService",
            "._service": "BaseMemoryService Memory",
            "._sqlite": "SqliteMemoryService",
            "._values": "MemoryEntry SearchMemoryResponse",
        },
    )
