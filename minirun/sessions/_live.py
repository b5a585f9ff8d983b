"""
The live session: a service's one copy of a session that is being run, or ran lately.

It is advanced by each stored event, in the store's order, and never copied: runs read it directly, sessions handed to
applications share its event list. What others derive from the history (a prompt, say) can be kept in `memo`, so that
the next turn goes on where the last one stopped instead of starting over (promise P9).

`events` is the *visible* history. The log itself never gets shorter; but when an event undoes what stands before it (a
rewind), what is undone leaves this list, and so everything that reads it: prompts, windows, agents. `advance` and
`visible_tail` are the two places that decide this, one for what comes, one for what is loaded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from .._json import JSON
from .._window import Window
from ..errors import InvalidEventError
from ..events import Event
from ..types import NO_CALLS, id_of
from ._calls import CallChanges, OpenCall, call_changes, take_over
from ._key import SessionKey
from ._session import GetSessionConfig, Session
from ._state import TakenWrites, Values, _Missing

if TYPE_CHECKING:
    from ._compactions import Compaction

__all__ = ["LiveSession", "RunWindow", "visible_tail"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RunWindow(GetSessionConfig):
    """
    What a run needs: the events that it was *asked* to show, and all that its prompts show.

    Prompts show what stands after the newest compaction, however narrow the window is. With `whole` they show the
    history from its beginning where there is none yet. A store that does not know this class loads everything.
    """

    asked: GetSessionConfig | None = None
    whole: bool = False


class LiveSession:
    """One session in memory: what is visible from the event `first_seq` on is loaded; its state is always complete."""

    __slots__ = (
        "call_ids", "carried", "compaction", "create_time", "events", "first_seq", "has_messages", "held",
        "incarnation", "key", "last_update_time", "mark", "memo", "notes", "open_calls", "revision", "size", "values",
    )

    def __init__(
        self, key: SessionKey, values: Values, *, incarnation: int, create_time: float,
        last_update_time: float | None = None, revision: int = 0, open_calls: dict[str, OpenCall] | None = None,
        size: int = 0,
    ) -> None:  # fmt: skip
        self.key = key
        self.values = values
        self.carried: tuple[str | None, TakenWrites] | None = None
        """An event on its way to the store, by its id, and the pending writes that it carries."""
        self.incarnation = incarnation
        self.create_time = create_time
        self.last_update_time = create_time if last_update_time is None else last_update_time
        self.revision = revision
        self.events: list[Event] = []
        self.first_seq = revision + 1
        self.open_calls: dict[str, OpenCall] = {} if open_calls is None else open_calls
        self.call_ids: set[str | None] = set()
        self.compaction: Compaction | None = None  # the newest that is visible, whatever is loaded
        self.size = size  # about, in bytes of memory, for the bound of the cache
        self.memo: dict[Any, Any] = {}
        self.held = False  # by a run of this process: only that run's own appends advance it
        # What tells this history from another one of the same length, where the store has such a thing; None: unknown.
        self.mark: bytes | None = b""
        self.notes: Any = None  # what the service has to remember with it
        self.has_messages = False  # whether messages may wait to be taken: as of the last look, or the last append

    def check_calls(self, event: Event, invocation_id: str) -> None:
        """
        Check what an event of this invocation says of calls: so none is answered twice (promise P6).

        Raises:
            InvalidEventError: The session has a call of an id already, or a response answers no open call.
        """
        calls, responses = NO_CALLS if event.content is None else event.content.calls_and_responses
        for call in calls:
            if call.id in self.call_ids:
                msg = f"expected a new id for the call of {call.name!r}, found {call.id!r}, which the session has"
                raise InvalidEventError(msg)
        for response in responses:
            call_open = self.open_calls.get(id_of(response))
            if call_open is None or call_open.invocation_id != invocation_id:
                msg = f"expected the response of {response.name!r} to answer an open call, found id {response.id!r}"
                raise InvalidEventError(msg)

    def call_changes(self, event: Event, *, tracked: bool) -> CallChanges:
        """
        What storing *event* makes of the open calls. The calls of *tracked* events, those of runs, are open from then.

        For an event that undoes others all of the history must be loaded.
        """
        target = event.actions.rewind_before_seq
        content, marks = event.content, event.long_running_tool_ids or event.actions.suspended_calls
        if target is None and not marks and (content is None or content.calls_and_responses is NO_CALLS):
            return {}
        if target is None:
            return call_changes(self.open_calls, event, tracked=tracked)
        from ._past import rewound  # few sessions are rewound

        assert self.first_seq == 1, "a rewind opens its session whole"
        split = bisect_left(self.events, target, key=_seq_of)
        changes = rewound(self.events[:split], self.events[split:])
        calls = dict(self.open_calls)
        take_over(calls, changes)
        return changes | call_changes(calls, event, tracked=tracked)

    def advance(self, event: Event, changes: Mapping[str, JSON | _Missing], calls: CallChanges) -> None:
        """Take over a stored event, and what it has made of the state and of the open calls."""
        assert event.seq == self.revision + 1, "events are applied in their order, without a gap"
        assert event.timestamp is not None
        if calls:
            take_over(self.open_calls, calls)
        if event.actions.rewind_before_seq is not None or event.actions.compaction is not None:
            from ._edits import edit_history  # few sessions have summaries, or are rewound

            edit_history(self, event)
        self.events.append(event)
        self.revision = event.seq
        self.last_update_time = event.timestamp
        self.values.apply(changes)
        if self.carried is not None and self.carried[0] == event.id:
            self.carried[1].applied()  # at once: another task may look before the one that stored it is told
        for call in event.content.calls if event.content is not None else ():
            self.call_ids.add(call.id)

    def index_of(self, seq: int) -> int:
        """Where in `events` the first one stands whose `seq` is not below *seq*."""
        if seq > self.revision:
            return len(self.events)
        place = len(self.events) - 1 - (self.revision - seq)  # if nothing from there on is undone
        if place >= 0 and self.events[place].seq == seq:
            return place
        return bisect_left(self.events, seq, key=_seq_of)

    def prepend(self, earlier: list[Event], first_seq: int) -> None:
        """
        Take over what is visible from *first_seq* up to what is loaded. Windows that were handed out keep their list.
        """
        self.first_seq = first_seq
        if not earlier:
            return
        self.events = [*earlier, *self.events]
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
            recent = self.events[max(0, len(self.events) - config.num_recent_events) :]
            start = max(start, _seq_of(recent[0]) if recent else self.revision + 1)
        if config.after_timestamp is not None:
            later = (e for e in self.events[self.index_of(start) :] if (e.timestamp or 0) >= config.after_timestamp)
            start = next((_seq_of(event) for event in later), self.revision + 1)
        return min(start, self.revision + 1)

    def wanted(self, config: GetSessionConfig | None) -> list[GetSessionConfig | None]:
        """What has to be loaded for *config*; each of it is the end of the log, without a gap."""
        if not isinstance(config, RunWindow):
            return [config]
        first = self.prompt_seq(whole=config.whole)
        if first is None:
            return [config.asked]
        tail = None if first == 1 else GetSessionConfig(after_seq=first - 1)
        return [tail] if config.asked is None else [tail, config.asked]

    def prompt_seq(self, *, whole: bool) -> int | None:
        """From which event on prompts show the history whatever a run's window is; None: the window decides."""
        if self.compaction is not None:
            return self.compaction.end_seq + 1
        return 1 if whole else None

    def run_start_seq(self, config: GetSessionConfig | None) -> int:
        """The `seq` of the first event that a run with this window shows; by default what no summary covers."""
        if config is None and self.compaction is not None:
            return self.compaction.end_seq + 1
        return self.start_seq(config)

    def window(self, start_seq: int) -> Window[Event]:
        """The loaded events from *start_seq* on."""
        return Window(self.events, self.index_of(start_seq))

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
            mark=self.mark,
        )


def _seq_of(event: Event) -> int:
    assert event.seq is not None, "stored events have one"
    return event.seq


def visible_tail(events: Iterable[Event], until: int) -> tuple[list[Event], int]:
    """
    Read a part of a log from its end; return what is visible of it below *until*, and up to where that now reaches.

    *events* come newest first. What stands from the returned `seq` on is decided: the next part goes on below it.
    """
    visible: list[Event] = []
    for event in events:
        seq = _seq_of(event)
        if seq >= until:
            continue  # undone by what was read before
        visible.append(event)
        target = event.actions.rewind_before_seq
        until = seq if target is None else target
    visible.reverse()
    return visible, until
