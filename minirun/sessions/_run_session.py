"""The session of a run, as its contexts see it: the live session itself, from where the run's window begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._json import JSON
from .._window import Window
from ..events import Event
from ._live import LiveSession
from ._session import Session
from ._state import Values, _Missing

__all__ = ["run_session"]


class _RunSession(Session):
    """The session of a run: it goes on with every event that is stored."""

    __slots__ = ("_given", "_live", "_seen", "_start_seq")

    def __init__(
        self, live: LiveSession, start_seq: int, state: Mapping[str, Any] | Values, seen: Callable[[int], int] | None
    ) -> None:
        self._live = live
        self._seen = seen
        self._start_seq = start_seq
        self._values = live.values
        self._incarnation = live.incarnation
        self.id = live.key.session_id
        self.app_name = live.key.app_name
        self.user_id = live.key.user_id
        self.create_time = live.create_time
        self._given = state
        self._uncertain = (None, None)

    @property
    def state(self) -> Mapping[str, Any]:
        """The state that the run sees, what is newest included."""
        if isinstance(self._given, Values):
            from ._read_only import ReadOnlyState  # not every caller of a run looks at it

            self._given = ReadOnlyState(self._given)
        return self._given

    @property
    def events(self) -> Window[Event]:
        """The events that the run sees, the newest included."""
        live = self._live
        if self._seen is None:
            return live.window(self._start_seq)
        until = self._seen(live.revision)
        return Window(live.events, live.index_of(self._start_seq), live.index_of(until + 1))

    @property
    def revision(self) -> int:
        """The `seq` of the session's last stored event."""
        return self._live.revision

    @property
    def last_update_time(self) -> float:
        """When the last event was stored, in seconds since the epoch."""
        return self._live.last_update_time

    def _history(self) -> bytes | None:
        return self._live.mark

    def _advance(self, event: Event, changes: Mapping[str, JSON | _Missing], mark: bytes | None) -> None:
        """Nothing to do where the live session is still the service's, and so was advanced with the store."""
        if event.seq != self._live.revision:
            self._live.advance(event, changes, {})
            self._live.mark = mark


def run_session(
    live: LiveSession, start_seq: int, state: Mapping[str, Any] | Values, seen: Callable[[int], int] | None = None
) -> Session:
    """
    The session that a run's contexts see: *live* itself from *start_seq* on, with *state* as its state, or with the
    committed values that it is a view of.

    *seen* is told of the `seq` up to which somebody reads the events, and says up to which they are shown.
    """
    return _RunSession(live, start_seq, state, seen)
