"""
Memory, as contexts search it and add to it. No event of the session is changed or made by any of this.

An agent's own logic, and a tool, that search are served the same answer when they are run again, whatever was
remembered since (see `sessions._reads`). What they add has an id that depends on who adds it and on what it is, and the
time at which the invocation began: so adding it again, when they are run again, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from .._codec import from_dict, to_dict
from .._json import dumps, freeze
from .._service import given
from ..env import derived_id
from ..events import Event
from ..types import Content
from ._service import BaseMemoryService
from ._values import MemoryEntry, SearchMemoryResponse, check_metadata, given_entries

if TYPE_CHECKING:
    from ..runtime._base_context import ContextBase

__all__ = ["add_events_to_memory", "add_memory", "delete_memory", "find_memories", "search_memory"]

# What is noted of searches stands beside the reads of the state, under keys that no state has.
FOUND = "temp:memories "


async def find_memories(
    context: ContextBase, query: str, limit: int | None, filter: Mapping[str, Any] | None
) -> SearchMemoryResponse:
    """Search the memories of the user, and note nothing."""
    return await _service_of(context).search_memory(
        app_name=context.app_name, user_id=context.user_id, query=query, limit=limit, filter=filter
    )


async def search_memory(
    context: ContextBase, query: str, limit: int | None, filter: Mapping[str, Any] | None
) -> SearchMemoryResponse:
    """See `InvocationContext.search_memory`."""
    found = await find_memories(context, query, limit, filter)
    if context._reads is None:
        return found
    arguments = freeze([query, limit, None if filter is None else dict(filter)])
    asked = context._invocation.secrets.out_of_text(dumps(arguments))
    seen = context._reads.value(f"{FOUND}{asked}", freeze([_fields_of(memory) for memory in found.memories]))
    return SearchMemoryResponse(memories=[_entry_of(fields) for fields in seen])


async def add_events_to_memory(
    context: ContextBase, events: Iterable[Event], custom_metadata: Mapping[str, Any] | None
) -> None:
    """See `InvocationContext.add_events_to_memory`."""
    context._check_writable()
    key, secrets = context._invocation.live.key, context._invocation.secrets
    secrets.check_value(custom_metadata, "custom_metadata")
    await _service_of(context).add_events_to_memory(
        app_name=key.app_name,
        user_id=key.user_id,
        session_id=key.session_id,
        events=events if secrets.hide is None else map(secrets.out_of_event, events),
        custom_metadata=custom_metadata,
    )


async def add_memory(
    context: ContextBase, memories: Iterable[MemoryEntry | Content | str], custom_metadata: Mapping[str, Any] | None
) -> list[str]:
    """See `InvocationContext.add_memory`."""
    context._check_writable()
    service = _service_of(context)
    found = given_entries(memories, check_metadata(custom_metadata))
    context._invocation.secrets.check_value(found, "memories")
    entries = [
        attrs.evolve(
            entry,
            id=_id_of(context, entry) if entry.id is None else entry.id,
            timestamp=_begun_at(context) if entry.timestamp is None else entry.timestamp,
        )
        for entry in found
    ]
    return await service._remember(context.app_name, context.user_id, entries)


async def delete_memory(context: ContextBase, memory_id: str) -> None:
    """See `InvocationContext.delete_memory`."""
    context._check_writable()
    key = context._invocation.live.key
    await _service_of(context).delete_memory(app_name=key.app_name, user_id=key.user_id, memory_id=memory_id)


def _id_of(context: ContextBase, entry: MemoryEntry) -> str:
    """An id that is the same whenever the same context adds the same."""
    return derived_id(context._invocation.id, f"{context._path}!memory", dumps(_fields_of(entry)))


def _begun_at(context: ContextBase) -> float:
    """When the invocation began; now, if its message is not stored yet."""
    live, seq = context._invocation.live, context._invocation.history.message_seq
    begun = live.events[live.index_of(seq)].timestamp if seq <= live.revision else None
    return context._invocation.env.now() if begun is None else begun


def _service_of(context: ContextBase) -> BaseMemoryService:
    return given(context._invocation.program.services.memory, "memory")


def _fields_of(memory: MemoryEntry) -> dict[str, Any]:
    fields = attrs.asdict(memory, recurse=False)
    return {**fields, "content": to_dict(memory.content)}


def _entry_of(fields: Mapping[str, Any]) -> MemoryEntry:
    return MemoryEntry(**{**fields, "content": from_dict(Content, fields["content"])})
