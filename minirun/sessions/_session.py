"""What the session services hand out: sessions, and lists of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from .._json import JSON, brief, finite, is_count, shown
from .._record import Record
from .._window import Window
from ..errors import InvalidValueError, NotSupportedError
from ..events import Event
from ._state import Values, _Missing

if TYPE_CHECKING:
    from ._read_only import CopiedState

__all__ = ["GetSessionConfig", "ListSessionsResponse", "Session"]


class Session:
    """
    One conversation, as it was when the service returned it.

    `state` is to be read; `append_event(session, event)` is how it changes, and that advances this very object.
    `revision` is the `seq` of the last stored event, 0 in a new session: it decides which copy is stale, no clock does.
    `create_time` and `last_update_time` are seconds since the epoch.

    Two are equal if they show the same: one session, at one revision, with the same state and events loaded.
    """

    __slots__ = (
        "_events", "_incarnation", "_last_update_time", "_mark", "_revision", "_state", "_uncertain",
        "_values", "app_name", "create_time", "id", "user_id",
    )

    def __init__(
        self,
        *,
        id: str,
        app_name: str,
        user_id: str,
        values: Values | None,
        events: Window[Event],
        revision: int,
        create_time: float,
        last_update_time: float,
        incarnation: int,
        mark: bytes | None = b"",
    ) -> None:
        self.id = id
        self.app_name = app_name
        self.user_id = user_id
        self._state: CopiedState | None = None  # until somebody asks for it
        self._events = events
        self.create_time = create_time
        self._last_update_time = last_update_time
        self._revision = revision
        self._values = values  # None: it is of a list
        self._incarnation = incarnation  # a session that was deleted and made again is another one
        self._mark = mark
        self._uncertain: tuple[Event | None, str | None] = (None, None)  # what may be stored, and under which id

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """A copy makes its `state` anew, which is a dict that may change otherwise, and would not advance."""
        kept = {name: getattr(self, name) for name in Session.__slots__ if hasattr(self, name)}
        return None, {**kept, "_state": None}

    @property
    def state(self) -> Mapping[str, Any]:
        """
        All the state the session sees. In a run it is `ctx.state`; elsewhere a copy to read, which is a dict.

        Raises:
            NotSupportedError: The session is of a list, and so without state.
        """
        if self._state is None:
            if self._values is None:
                msg = (
                    f"a session of a list has no state, to be quick to list; get_session loads that of {brief(self.id)}"
                )
                raise NotSupportedError(msg)
            from ._read_only import CopiedState  # a run has no use for it

            self._state = CopiedState(self._values)
        return self._state

    @property
    def revision(self) -> int:
        """The `seq` of the session's last stored event."""
        return self._revision

    @property
    def events(self) -> Sequence[Event]:
        """
        The loaded events, oldest first; a read-only list. The creation record is not among them.

        It is the visible history: what a rewind has undone is not in it. `read_events` returns the whole log.
        """
        return self._events

    @property
    def last_update_time(self) -> float:
        """When the last event was stored, in seconds since the epoch."""
        return self._last_update_time

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        return self._shown() == other._shown() and [*self.events] == [*other.events]

    def __hash__(self) -> int:
        return hash((self.app_name, self.user_id, self.id))

    def _shown(self) -> tuple[object, ...]:
        times = self.create_time, self.last_update_time
        state = None if self._values is None else dict(self.state)
        return self.app_name, self.user_id, self.id, self.revision, *times, state

    def __repr__(self) -> str:
        return f"<Session {self.app_name}/{self.user_id}/{self.id} at revision {self.revision}>"

    def to_json(self) -> str:
        """Return the session as one line of JSON: its fields, its events as `Event.to_json` has them."""
        from ._wire import session_to_json  # few programs give sessions away

        return session_to_json(self)

    @staticmethod
    def from_json(text: str | bytes) -> Session:
        """
        Read a session from its JSON: a copy to look at. To append to the session, get it from its service.

        Raises:
            InvalidValueError: It is not JSON, or not that of a session.
        """
        from ._wire import session_from_json

        return session_from_json(Session, text)

    def _history(self) -> bytes | None:
        """What tells its history from another one of the same length; None if that is not known."""
        return self._mark

    def _advance(self, event: Event, changes: Mapping[str, JSON | _Missing], mark: bytes | None) -> None:
        """Take over an event that was stored for this session; *mark* is that of its history then, if it is known."""
        assert event.seq is not None
        assert event.timestamp is not None
        self._mark = mark
        self._uncertain = (None, None)
        self._revision = event.seq
        self._last_update_time = event.timestamp
        assert self._values is not None, "nothing is stored for a session of a list"
        self._values.apply(changes)
        if self._state is not None:
            self._state.apply(changes)
        self._events.push(event)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class GetSessionConfig(Record):
    """
    Which events to load; the state is always complete. What is given applies together.

    `num_recent_events`: at most so many, the newest (0: none). `after_seq`: only events beyond. `after_timestamp`
    (seconds): from the first event on that is of this time or later. What is loaded is always the end of the log,
    without a gap.
    """

    num_recent_events: int | None = None
    after_seq: int | None = None
    after_timestamp: float | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("num_recent_events", "after_seq"):
            value = getattr(self, name)
            if value is not None and not is_count(value):
                problem = f"expected an integer from 0 up, found {shown(value)}"
                raise InvalidValueError(f"GetSessionConfig.{name}", problem)
        after = self.after_timestamp
        if after is not None and finite(after) is None:
            problem = f"expected seconds since the epoch, found {shown(after)}"
            raise InvalidValueError("GetSessionConfig.after_timestamp", problem)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ListSessionsResponse(Record):
    """A page of sessions, oldest first, without events and state. `next` is the `after` of the next page, or None."""

    sessions: list[Session]
    next: str | None = None
