"""
The memory service: what applications, runners and the authors of other services rely on.

Rules of this file:

1.  A memory belongs to one user of one app. Nothing of it, not even its statistics, shows in another user's searches.
2.  What is remembered of an event is known by its session and its id: adding it again changes nothing, and adding it
    with another text or other metadata puts the new in the place of the old. It never stands there twice.
3.  What was deleted stays deleted: adding the event, or its session, again does not bring it back.
4.  Adding is cancellable between pages of a few hundred memories. What was added stays, and adding again completes it.
5.  All services find the same and rank it alike: terms, marks and ranking are not theirs (`_terms`, `_ranking`).

Of events is remembered what somebody has said: their text parts without thoughts. Partial events, summaries, and events
without text (calls, responses, changes of state) are passed over, and so is what was said to nobody: answers that were
not taken (events with an `error_code`), and what an agent tells itself (role "user"), so that its model answers again,
say. `add_session_to_memory` takes what `session.events` shows, so nothing that a rewind has undone by then.

Memories live on their own: a later rewind, and the deletion of their session, take none away, `delete_memory` and
`delete_session_memories` do. Those take nothing from logs, neither what was said there, nor what a tool or an agent has
found by a search, which its session keeps so that it finds the same when it is run again: delete the session, too.

A service author subclasses `BaseMemoryService` and implements the storage primitives at its end; what is above them is
the same for all. `tests/contracts/memory_contract.py` is the contract, as tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from .._json import brief, check_id, check_text, shown
from .._service import BaseService
from ..errors import InvalidValueError
from ..events import Event
from ..flows._hidden import without_hidden
from ..sessions import Session
from ..types import Content
from ._ranking import Ranked, Ranking, padded
from ._terms import query_terms, terms_of
from ._values import (
    MemoryEntry,
    Query,
    Scope,
    SearchMemoryResponse,
    check_limit,
    check_metadata,
    entry_of_event,
    given_entries,
    marks_of,
    parse_filter,
)

__all__ = ["BaseMemoryService", "Memory"]

# So many are added in one transaction: some milliseconds, then others have their turn.
PAGE: Final = 250

# Longer texts come into one transaction with fewer others.
PAGE_CHARS: Final = 200_000

# More than a hundred pages; what is longer is a book, and worth an artifact. All of it is kept.
SEARCHED_CHARS_MAX: Final = 250_000

# Longer texts are taken apart in a worker thread. So many characters take about 5 ms.
TEXT_CHARS_INLINE: Final = 50_000


@attrs.frozen(kw_only=True)
class Memory:
    """
    A memory as a service keeps it. `terms` is what a text is ranked by, `length` how many terms that are; `index` is
    all that it is looked up by, each once: terms and marks.
    """

    entry: MemoryEntry
    terms: str
    length: int
    index: tuple[str, ...]

    @classmethod
    def of(cls, entry: MemoryEntry) -> Memory:
        """Return what is kept of *entry*."""
        text = "\n".join(part.text or "" for part in entry.content.parts)
        terms = terms_of(text[:SEARCHED_CHARS_MAX])
        return cls(
            entry=entry,
            terms=padded(terms),
            length=len(terms),
            index=(*dict.fromkeys(terms), *marks_of(entry)),
        )

    @property
    def id(self) -> str:
        """What it is known by, among those of its user."""
        assert self.entry.id is not None
        return self.entry.id


class BaseMemoryService(BaseService, ABC):
    """
    Remembers what was said to and by a user, and finds it by words, in all sessions.

    Args:
        env: Where time and ids come from.
    """

    # --- adding

    async def add_session_to_memory(self, session: Session) -> None:
        """
        Remember what was said in a session, as far as its events were loaded. Doing so again adds what is new.

        Raises:
            InvalidValueError: It is no session.
            StorageError: The store failed; some of it may be remembered.
        """
        if not isinstance(session, Session):
            raise InvalidValueError("session", f"expected a Session, found {shown(session)}")
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, session_id=session.id, events=session.events
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Iterable[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Remember what was said in *events*, which are stored ones; those without text are passed over. A message that a
        guardrail refused is left out, and a replaced one is remembered as its replacement, if *events* have the
        verdict.

        Args:
            app_name: The app that the memories belong to.
            user_id: The user that they belong to.
            events: The events, of one session.
            session_id: The session they are of. Events of the same id in two sessions are two.
            custom_metadata: A JSON object to be kept with each memory, on top of the event's own.

        Raises:
            InvalidValueError: An argument cannot be one; nothing was added.
            StorageError: The store failed; some of them may be remembered.
        """
        scope = self._scope(app_name, user_id)
        session = None if session_id is None else check_id("session_id", session_id)
        metadata = check_metadata(custom_metadata)
        if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
            raise InvalidValueError("events", f"expected a list of events, found {shown(events)}")
        told: Sequence[Event] = tuple(events)
        if all(isinstance(event, Event) for event in told):
            told = without_hidden(told)  # memories reach prompts, and a refused message must not
        entries: list[MemoryEntry] = []
        for number, event in enumerate(told):
            if number % PAGE == 0:
                await trio.lowlevel.checkpoint()
            entry = entry_of_event(event, session, metadata)
            if entry is not None:
                entries.append(entry)
        await self._add_pages(scope, entries)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Iterable[MemoryEntry | Content | str],
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """
        Remember something that is no event, and return its ids, in order.

        A memory without an id gets one. One with the id of another takes its place, also within one call.

        Args:
            app_name: The app that the memories belong to.
            user_id: The user that they belong to.
            memories: What to remember: entries, contents or strings.
            custom_metadata: A JSON object to be kept with each memory, on top of its own.

        Raises:
            InvalidValueError: An argument cannot be one, or an id is that of a deleted memory.
            StorageError: The store failed; some of them may be remembered.
        """
        scope = self._scope(app_name, user_id)
        metadata = check_metadata(custom_metadata)
        entries = [self._completed(entry) for entry in given_entries(memories, metadata)]
        ids = [entry.id for entry in entries if entry.id is not None]
        known: dict[str, MemoryEntry | None] = {}
        different = [*dict.fromkeys(ids)]
        for first in range(0, len(different), PAGE):
            known |= await self._look_up(scope, different[first : first + PAGE])
        for memory_id in ids:
            if known.get(memory_id, ...) is None:
                problem = f"expected ids that were never deleted, found {brief(memory_id)}; leave it out for a new one"
                raise InvalidValueError("memories", problem)
        await self._add_pages(scope, entries)
        return ids

    def _completed(self, entry: MemoryEntry) -> MemoryEntry:
        return attrs.evolve(
            entry,
            id=self._env.new_id("memory") if entry.id is None else entry.id,
            timestamp=self._env.now() if entry.timestamp is None else entry.timestamp,
        )

    async def _remember(self, app_name: str, user_id: str, entries: Sequence[MemoryEntry]) -> list[str]:
        """Remember complete entries that were checked, and return their ids; what was deleted is passed over."""
        await self._add_pages(self._scope(app_name, user_id), entries)
        return [entry.id for entry in entries if entry.id is not None]

    async def _add_pages(self, scope: Scope, entries: Sequence[MemoryEntry]) -> None:
        latest = list({entry.id: entry for entry in entries}.values())
        for page in _pages(latest):
            await trio.lowlevel.checkpoint()
            page = await self._new_ones(scope, page)
            size = sum(len(entry.text) for entry in page)
            if size > TEXT_CHARS_INLINE:
                memories = await self._env.run_sync(lambda page=page: [Memory.of(entry) for entry in page])  # type: ignore[misc]
            else:
                memories = [Memory.of(entry) for entry in page]
            if memories:
                await self._add(scope, memories)

    async def _new_ones(self, scope: Scope, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
        """Those that adding would change something for: they alone are taken apart."""
        known = await self._look_up(scope, [entry.id for entry in entries if entry.id is not None])
        return [entry for entry in entries if entry.id not in known or known[entry.id] not in (None, entry)]

    # --- searching

    async def search_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        query: str,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> SearchMemoryResponse:
        """
        Return the memories of a user that fit *query* best: those with one of its words, ranked by bm25.

        The query is text and nothing else: it has no operators. One without words finds nothing. Of a long one 128
        different words count (in Chinese and the like, pieces of two characters), spread over the whole, and of those
        the 32 that fewest memories have; of one of more than 4 000 characters its beginning and its end. A memory is
        found by its first 250 000 characters. All memories with a word that at most 500 of the user's memories have are
        looked at; of commoner words the newest 500 memories with each, and with all of them (see `_ranking`). So the
        time it takes is bounded, however much is remembered. Of as good ones, what was added later is first.

        Args:
            app_name: The app to search.
            user_id: The user whose memories are searched.
            query: What to look for.
            limit: How many memories are wanted, from 1 to 500; 10 by default.
            filter: What else must be true of them, all of it: `author` and `session_id` are these; the timestamp is
                at least `after` and less than `before`, in seconds; and `custom_metadata`, a dict, has keys with
                values that the memory's has, too.

        Raises:
            InvalidValueError: An argument cannot be one, or the filter has another key.
            StorageError: The store failed.
        """
        scope = self._scope(app_name, user_id)
        if not isinstance(query, str):
            raise InvalidValueError("query", f"expected a string, found {shown(query)}")
        wanted = check_limit(limit)
        asked = parse_filter(query_terms(check_text(str.__str__(query), "query")), filter)
        return SearchMemoryResponse(memories=await self._search(scope, asked, wanted))

    async def _ranked(self, ranking: Ranking, limit: int) -> list[Ranked]:
        """Rank memories; long ones in a worker thread."""
        if ranking.is_long:
            return await self._env.run_sync(lambda: ranking.best(limit))
        return ranking.best(limit)

    # --- deleting

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str) -> None:
        """
        Forget the memory of this id, if there is one. Adding its event again does not bring it back.

        The log of its session keeps what was said, and those of others what was found by a search in them, until these
        sessions are deleted.

        Raises:
            InvalidValueError: An argument cannot be one.
            StorageError: The store failed.
        """
        scope = self._scope(app_name, user_id)
        await self._delete(scope, check_id("memory_id", memory_id))

    async def delete_session_memories(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """
        Forget all that is remembered of a session, as `delete_memory` does; cancelled or failed, some of it.

        Raises:
            InvalidValueError: An argument cannot be one.
            StorageError: The store failed.
        """
        scope = self._scope(app_name, user_id)
        session = check_id("session_id", session_id)
        while await self._delete_page(scope, session, PAGE):
            pass

    async def delete_user_memories(self, *, app_name: str, user_id: str) -> None:
        """
        Forget all that is remembered of a user, as `delete_memory` does; cancelled or failed, some of it.

        Raises:
            InvalidValueError: An argument cannot be one.
            StorageError: The store failed.
        """
        scope = self._scope(app_name, user_id)
        while await self._delete_page(scope, None, PAGE):
            pass

    # --- helpers

    def _scope(self, app_name: str, user_id: str) -> Scope:
        self._check_open()
        return check_id("app_name", app_name), check_id("user_id", user_id)

    # --- the storage primitives: what a service implements, given checked arguments

    @abstractmethod
    async def _add(self, scope: Scope, memories: Sequence[Memory]) -> None:
        """
        Store these, all or none; no id stands there twice.

        Those that are there already as they are, and those that were deleted, are passed over; those that are there
        otherwise are replaced, and keep their number.
        """

    @abstractmethod
    async def _look_up(self, scope: Scope, ids: Sequence[str]) -> dict[str, MemoryEntry | None]:
        """Return the memories of those of *ids*, which are different, that are known; None for the deleted ones."""

    @abstractmethod
    async def _search(self, scope: Scope, query: Query, limit: int) -> list[MemoryEntry]:
        """Return the best of what `_ranking.look` finds, with their scores."""

    @abstractmethod
    async def _delete(self, scope: Scope, memory_id: str) -> None:
        """Delete the memory of this id, if there is one."""

    @abstractmethod
    async def _delete_page(self, scope: Scope, session_id: str | None, limit: int) -> int:
        """Delete at most *limit* memories, of a session or of all, and return how many."""


def _pages(entries: Sequence[MemoryEntry]) -> Iterator[list[MemoryEntry]]:
    """The entries in parts that take about as long to add."""
    page: list[MemoryEntry] = []
    size = 0
    for entry in entries:
        chars = min(len(entry.text), SEARCHED_CHARS_MAX)
        if page and (len(page) == PAGE or size + chars > PAGE_CHARS):
            yield page
            page, size = [], 0
        page.append(entry)
        size += chars
    if page:
        yield page
