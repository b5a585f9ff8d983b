"""
The live session: a service's one copy of a session that is being run, or ran lately.

It is advanced by each stored event, in the store's order, and never copied: runs read it directly, sessions handed to
applications share its event list. What others derive from the history (a prompt, say) can be kept in `memo`, so that
the next turn goes on where the last one stopped instead of starting over (promise P9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from .._json import JSON
from .._window import Window
from ..events import Event
from ._session import GetSessionConfig, Session
from ._state import Values, _Missing

__all__ = ["LiveSession", "OpenCall", "SessionKey", "run_session"]


@attrs.frozen
class SessionKey:
    """Which session: of which app, user and id."""

    app_name: str
    user_id: str
    session_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r} of user {self.user_id!r} in app {self.app_name!r}"


@attrs.frozen
class OpenCall:
    """A stored function call that has no response yet."""

    call_id: str
    name: str
    seq: int
    invocation_id: str
    author: str
    branch: str | None


class LiveSession:
    """One session in memory. `first_seq` is the `seq` of the first event that is loaded; state is always complete."""

    __slots__ = (
        "call_ids",
        "create_time",
        "events",
        "first_seq",
        "incarnation",
        "keeps",
        "key",
        "last_update_time",
        "memo",
        "open_calls",
        "revision",
        "size",
        "values",
    )

    def __init__(
        self,
        key: SessionKey,
        values: Values,
        *,
        incarnation: int,
        create_time: float,
        last_update_time: float | None = None,
        revision: int = 0,
        events: list[Event] | None = None,
        open_calls: dict[str, OpenCall] | None = None,
        size: int = 0,
    ) -> None:
        self.key = key
        self.values = values
        self.incarnation = incarnation
        self.create_time = create_time
        self.last_update_time = create_time if last_update_time is None else last_update_time
        self.revision = revision
        self.events: list[Event] = [] if events is None else events
        self.first_seq = revision + 1 - len(self.events)
        self.open_calls: dict[str, OpenCall] = {} if open_calls is None else open_calls
        self.call_ids = {call.id for event in self.events for call in event.get_function_calls()}
        self.size = size  # bytes of JSON, for the bound of the cache
        self.memo: dict[Any, Any] = {}
        self.keeps: tuple[Any, ...] = ()  # what the service wants to live as long as this does

    def advance(self, event: Event, changes: Mapping[str, JSON | _Missing], *, tracked: bool) -> None:
        """
        Take over a stored event. The calls of *tracked* events, those of runs, are open until they are answered.
        """
        assert event.seq == self.revision + 1, "events are applied in their order, without a gap"
        assert event.timestamp is not None
        self.events.append(event)
        self.revision = event.seq
        self.last_update_time = event.timestamp
        self.values.apply(changes)
        for call in opened_calls(event) if tracked else ():
            self.open_calls[call.call_id] = call
        for response in event.get_function_responses():
            self.open_calls.pop(response.id or "", None)
        self.call_ids.update(call.id for call in event.get_function_calls())

    def prepend(self, earlier: list[Event]) -> None:
        """Take over events from before `first_seq`. Windows that were handed out keep the list they have."""
        self.events = [*earlier, *self.events]
        self.first_seq -= len(earlier)
        self.call_ids.update(call.id for event in earlier for call in event.get_function_calls())
        self.memo = {}

    def start_seq(self, config: GetSessionConfig | None) -> int:
        """The `seq` of the first event that *config* asks for; what it asks for must be loaded."""
        if config is None:
            return self.first_seq
        start = self.first_seq
        if config.after_seq is not None:
            start = max(start, config.after_seq + 1)
        if config.num_recent_events is not None:
            start = max(start, self.revision + 1 - config.num_recent_events)
        if config.after_timestamp is not None:
            later = (e for e in self.events[start - self.first_seq :] if (e.timestamp or 0) > config.after_timestamp)
            start = next((event.seq or 0 for event in later), self.revision + 1)
        return min(start, self.revision + 1)

    def window(self, start_seq: int) -> Window[Event]:
        """The loaded events from *start_seq* on."""
        return Window(self.events, max(0, start_seq - self.first_seq))

    def snapshot(self, config: GetSessionConfig | None) -> Session:
        """A session for an application: it stays as it is while this one goes on."""
        return Session(
            id=self.key.session_id,
            app_name=self.key.app_name,
            user_id=self.key.user_id,
            values=self.values.copy(),
            events=self.window(self.start_seq(config)),
            revision=self.revision,
            create_time=self.create_time,
            last_update_time=self.last_update_time,
            incarnation=self.incarnation,
        )


def opened_calls(event: Event) -> list[OpenCall]:
    """The calls that are open once *event* is stored."""
    return [
        OpenCall(call.id or "", call.name, event.seq or 0, event.invocation_id or "", event.author or "", event.branch)
        for call in event.get_function_calls()
    ]


class _RunSession(Session):
    """The session of a run: it goes on with every event that is stored."""

    __slots__ = ("_live", "_start_seq")

    def __init__(self, live: LiveSession, start_seq: int, state: Mapping[str, Any]) -> None:
        self._live = live
        self._start_seq = start_seq
        self._values = live.values
        self._incarnation = live.incarnation
        self.id = live.key.session_id
        self.app_name = live.key.app_name
        self.user_id = live.key.user_id
        self.create_time = live.create_time
        self._state = state

    @property
    def events(self) -> Window[Event]:
        """The events that the run sees, the newest included."""
        return self._live.window(self._start_seq)

    @property
    def revision(self) -> int:
        """The `seq` of the session's last stored event."""
        return self._live.revision

    @property
    def last_update_time(self) -> float:
        """When the last event was stored, in seconds since the epoch."""
        return self._live.last_update_time

    def _advance(self, event: Event, changes: Mapping[str, JSON | _Missing]) -> None:
        """Nothing to do where the live session is still the service's, and so was advanced with the store."""
        if event.seq != self._live.revision:
            self._live.advance(event, changes, tracked=False)


def run_session(live: LiveSession, start_seq: int, state: Mapping[str, Any]) -> Session:
    """The session that a run's contexts see: *live* itself from *start_seq* on, with *state* as its state."""
    return _RunSession(live, start_seq, state)
