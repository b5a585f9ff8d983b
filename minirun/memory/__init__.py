"""Memory: what was said to and by a user, found again by words in all sessions, and the services that keep it."""

from ._in_memory import InMemoryMemoryService as InMemoryMemoryService
from ._service import BaseMemoryService as BaseMemoryService
from ._service import Memory as Memory
from ._sqlite import SqliteMemoryService as SqliteMemoryService
from ._values import MemoryEntry as MemoryEntry
from ._values import SearchMemoryResponse as SearchMemoryResponse

__all__ = [
    "BaseMemoryService",
    "InMemoryMemoryService",
    "Memory",
    "MemoryEntry",
    "SearchMemoryResponse",
    "SqliteMemoryService",
]
