"""The messages that wait for the runs of a session, each an entry of its own until the event that takes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..._codec import to_json
from ...events import Event
from .._key import SessionKey
from .._live import LiveSession
from .._store import SessionWriter
from ._entries import Changes, hexadecimal, message_of, of_session, run_place_of, wait_of
from ._store import OwnedStore

if TYPE_CHECKING:
    from ._service import KeyValueSessionService

__all__ = ["called", "is_called", "note_messages", "put_message", "take", "waiting"]


async def waiting(store: OwnedStore, number: int) -> list[tuple[str, Event]]:
    """The messages that wait in a session, in their order, each with the name of its entry."""
    found = await store.entries(of_session("message", number))
    return [(name, message_of(name, text)) for name, text in found]


async def put_message(store: OwnedStore, number: int, message: Event) -> None:
    """Let *message* wait, behind the others."""
    await store.write({of_session("message", number, hexadecimal(store.new_number())): to_json(message)})


async def called(service: KeyValueSessionService, app_name: str) -> list[tuple[SessionKey, Event]]:
    """The messages that wait in the sessions of an app in which calls wait, too."""
    store = service._store
    sent = await store.entries("message/")
    waits = await store.entries("wait/") if sent else []
    keys = {run_place_of(name): wait_of(name, text)[1] for name, text in waits}
    found = [(keys.get(run_place_of(name)), message_of(name, text)) for name, text in sent]
    return [(key, message) for key, message in found if key is not None and key.app_name == app_name]


def note_messages(
    key: SessionKey, number: int, running: Iterable[SessionWriter], kept: LiveSession | None
) -> None:
    """Tell what is loaded of a session that messages wait."""
    for live in (*(writer.live for writer in running), *([] if kept is None else [kept])):
        live.has_messages |= (live.key, live.incarnation) == (key, number)


async def take(store: OwnedStore, changes: Changes, live: LiveSession, event: Event) -> None:
    """Let *event* wait no longer, with the *changes* that store it."""
    sent = await waiting(store, live.incarnation)
    changes |= {name: None for name, message in sent if message.id == event.id}
    live.has_messages = any(message.id != event.id for _, message in sent)


async def is_called(store: OwnedStore, writer: SessionWriter) -> bool:
    """Whether a message waits for the invocation of *writer*."""
    sent = await waiting(store, writer.live.incarnation) if writer.live.has_messages else []
    return any(message.invocation_id == writer.invocation_id for _, message in sent)
