"""What the checks of a memory service stand on: a bench with short forms of its operations on one app."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from ..events import Event
from ..memory import BaseMemoryService, MemoryEntry

__all__ = ["Bench", "Body", "Factory", "listed_in", "said"]

Factory: TypeAlias = Callable[[], AbstractAsyncContextManager[BaseMemoryService]]


class Bench:
    """One service under test, with short forms of its operations on one app."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self.app = ""
        self.service: BaseMemoryService

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseMemoryService]:
        """Open the service, or open it again."""
        async with self._factory() as service:
            if not self.app:
                self.app = "contract-" + re.sub(r"[^A-Za-z0-9]", "-", service.env.new_id("contract"))
            self.service = service
            yield service

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


Body: TypeAlias = Callable[[Bench], Awaitable[None]]


def listed_in(table: dict[str, Body]) -> Callable[[Body], Body]:
    """A decorator that puts a check into *table*, under its name."""

    def put(body: Body) -> Body:
        table[body.__name__.strip("_")] = body
        return body

    return put
