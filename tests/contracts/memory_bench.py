"""What the checks of a memory service stand on: a bench with short forms of its operations on one app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minirun.events import Event
from minirun.memory import BaseMemoryService, MemoryEntry
from minirun.testing._contract import BaseBench

__all__ = ["Bench", "said"]


class Bench(BaseBench[BaseMemoryService]):
    """One service under test, with short forms of its operations on one app."""

    async def hear(
        self,
        *events: Event | str,
        session: str | None = "s",
        user: str = "u",
        app: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add events; a string is one whose id is the text."""
        stored = [said(event) if isinstance(event, str) else event for event in events]
        await self.service.add_events_to_memory(
            app_name=app or self.app, user_id=user, session_id=session, events=stored, custom_metadata=metadata
        )

    async def add(self, *memories: Any, user: str = "u", metadata: Mapping[str, Any] | None = None) -> list[str]:
        return await self.service.add_memory(
            app_name=self.app, user_id=user, memories=memories, custom_metadata=metadata
        )

    async def search(
        self, query: str, *, user: str = "u", app: str = "", limit: int | None = None, **filter: Any
    ) -> Sequence[MemoryEntry]:
        found = await self.service.search_memory(
            app_name=app or self.app, user_id=user, query=query, limit=limit, filter=filter or None
        )
        return found.memories

    async def find(self, query: str, **options: Any) -> list[str]:
        """The texts that a search finds, the best first."""
        return [memory.text for memory in await self.search(query, **options)]

    async def delete(self, memory_id: str, *, user: str = "u") -> None:
        await self.service.delete_memory(app_name=self.app, user_id=user, memory_id=memory_id)


def said(text: str, event_id: str | None = None, *, author: str = "user", at: float = 1.0, **fields: Any) -> Event:
    """An event as a session has it."""
    return Event(id=event_id or text or "empty", author=author, timestamp=at, message=text, **fields)
