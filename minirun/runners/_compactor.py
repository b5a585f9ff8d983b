"""
Making a summary: from what a session holds to the event that covers it.

A *job* is found first: the events that the summary is to cover, and what the summarizer is told of them. It holds all
that it needs, so the session may go on meanwhile; before its outcome is stored, it is checked to fit still. Only
what was asked for costs: a run looks at its own events, and the store is asked only when a summary is due.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from .._json import brief, freeze
from .._values import changed
from .._window import Window
from ..env import Env, derived_id
from ..events import Event, seq_of
from ..flows._compaction import Tail, covered, is_due, is_told, size_of
from ..flows._hidden import without_hidden
from ..runtime._failure import first_failure
from ..sessions import GetSessionConfig, InvocationStatus, LiveSession, SessionKey, SessionWriter
from ..sessions._compactions import Compaction, compaction_actions
from ..sessions._event_checks import checked_event
from ..sessions._live import RunWindow
from ..sessions._store import SessionStore
from ..types import Content, Part

if TYPE_CHECKING:
    from ..agents._tree import AgentTree
    from ..apps import BaseEventsSummarizer, EventsCompactionConfig
    from ..runtime._invocation import Invocation
    from ..runtime._run import Execution

__all__ = ["Compactor"]

# How many earlier events are read at once, in search of the invocations that are told once more.
OVERLAP_PAGE = 50


@attrs.frozen(eq=False)
class CompactionJob:
    """What a summary is to cover: the events up to *end_seq*; *last_id* is the id of the last."""

    previous: Compaction | None
    end_seq: int
    last_id: str | None
    speaker: str | None
    told: Sequence[Event]
    """What the summarizer is told, the summary before first."""
    size: int
    """How long that is which the summary takes the place of, in characters."""
    tail: Tail
    """Where it is remembered that there was no shorter summary."""

    @trio.lowlevel.disable_ki_protection  # the summarizer is the application's
    async def event(self, summarizer: BaseEventsSummarizer) -> Event | None:
        """
        The event that covers the events, without an id; None if there is no summary, or none that is shorter.

        None is remembered as long as the session is at hand: nobody is asked again before there is twice as much.

        Raises:
            TypeError: The summarizer has returned something else.
        """
        answer = await summarizer.maybe_summarize_events(events=self.told)
        if answer is None:
            self.tail.declined = self.tail.told_until(self.end_seq)
            return None
        content = answer.content if isinstance(answer, Event) else None
        if content is None or any(part.text is None for part in content.parts):
            msg = f"expected {type(summarizer).__name__} to return None or an Event with a content of texts"
            raise TypeError(f"{msg}, found {brief(answer)}")
        text = content.text.strip()
        if not text or len(text) >= self.size:
            self.tail.declined = self.tail.told_until(self.end_seq)
            return None
        summary = Content(role="user", parts=[Part(text=text)])
        event = Event(
            author="system",
            actions=compaction_actions(summary, end_seq=self.end_seq, previous=self.previous, speaker=self.speaker),
            usage_metadata=answer.usage_metadata,
            custom_metadata=answer.custom_metadata,
        )
        return checked_event(event, history=True)

    def fits(self, live: LiveSession) -> bool:
        """Whether nothing has come between; what is visible from `end_seq` on must be loaded."""
        if (0 if live.compaction is None else live.compaction.seq) != self._previous_seq:
            return False
        last = live.window(self.end_seq)
        return bool(last) and (last[0].seq, last[0].id) == (self.end_seq, self.last_id)

    @property
    def _previous_seq(self) -> int:
        return 0 if self.previous is None else self.previous.seq


def due_tail(live: LiveSession, settings: EventsCompactionConfig) -> Tail | None:
    """
    What stands after the newest summary, if there is to be another one as far as the session itself can tell.

    It must be loaded. It is remembered with the session, so that looking again costs what is new.
    """
    start = live.prompt_seq(whole=True)
    assert start is not None
    tail: Tail | None = live.memo.get("compaction tail")
    if tail is None or tail.start_seq != start:
        summary = live.compaction
        tail = Tail(start, 0, 0) if summary is None else Tail(start, summary.seq, len(summary.content.text))
        live.memo["compaction tail"] = tail
    tail.read(live.events[live.index_of(tail.next_seq) :])
    return tail if is_due(settings, tail) else None


async def find_job(
    service: SessionStore,
    live: LiveSession,
    settings: EventsCompactionConfig,
    tree: AgentTree,
    *,
    ends: str | None = None,
) -> CompactionJob | None:
    """
    Find what a summary is to cover now; None: nothing. The invocation that *ends* with this counts as ended.

    What stands after the newest summary must be loaded. Nothing is stored.

    Raises:
        StorageError: The store cannot be read.
    """
    tail = due_tail(live, settings)
    if tail is None:
        return None
    previous, events = live.compaction, live.window(tail.start_seq)
    until = tail.next_seq  # before the look: what begins later is not in it
    found = await service.load_unfinished_invocations(live.key, tail.start_seq - 1)
    unfinished = {run.invocation_id: run.seq for run in found if run.invocation_id != ends}
    end_seq = covered(settings, tail, until, unfinished)
    if end_seq == 0:
        return None
    new = events[: bisect_right(events, end_seq, key=_seq_of)]
    shown = without_hidden(events)  # also by verdicts that stand after its end
    fresh = [event for event in shown if is_told(event) and seq_of(event) <= end_seq]
    size = sum(map(size_of, fresh))
    told = fresh
    if previous is not None:
        size += len(previous.content.text)
        overlap = await _overlap(service, live, previous.end_seq, settings.overlap_size or 0)
        told = [_as_event(previous), *overlap, *fresh]
    speaker = tree.speaker(new, None if previous is None else previous.speaker)
    return CompactionJob(previous, end_seq, new[-1].id, speaker.name, told, size, tail)


def _seq_of(event: Event) -> int:
    return seq_of(event)


def _as_event(summary: Compaction) -> Event:
    """The summary before, as summarizers are told it."""
    fields = {"start_seq": 1, "end_seq": summary.end_seq}
    actions = attrs.evolve(Event().actions, compaction=fields)
    return Event(author="system", seq=summary.seq, content=summary.content, actions=actions)


async def _overlap(service: SessionStore, live: LiveSession, end_seq: int, count: int) -> list[Event]:
    """The events of the last *count* invocations up to event *end_seq*, as far as there are so many."""
    opened: LiveSession | None = live
    while opened is not None and count > 0:
        events = Window(opened.events, 0, opened.index_of(end_seq + 1))
        begin = _begin_of(events, count)
        if begin > 0 or opened.first_seq <= 1:
            return [event for event in without_hidden(events[begin:]) if is_told(event)]
        after = max(0, min(opened.first_seq, end_seq) - 1 - OVERLAP_PAGE)
        opened = await service.load_session(live.key, GetSessionConfig(after_seq=after))
    return []  # deleted meanwhile, or nothing was asked for


def _begin_of(events: Sequence[Event], count: int) -> int:
    """Where the last *count* invocations begin; 0 if that may be earlier."""
    names: set[str] = set()
    for place in range(len(events) - 1, -1, -1):
        name = events[place].invocation_id
        if name is not None and events[place].content is not None and name not in names:
            if len(names) == count:
                return place + 1
            names.add(name)
    return 0


_WHOLE = RunWindow(asked=GetSessionConfig(num_recent_events=0), whole=True)

# More sessions are not remembered to be due: their next runs note them again.
DUE_MAX = 10_000


class Compactor:
    """
    Makes the summaries of one runner's sessions.

    It also notes which are due because the callers of runs have left early or the summarizer has failed, so that nobody
    has to look for them: `due`, the one that waits longest first. What is noted is lost with the process; the next run
    on the session notes it again.

    Args:
        settings: When there is to be a summary.
        tree: The agents of the app.
        env: The runner's.
    """

    def __init__(self, settings: EventsCompactionConfig, tree: AgentTree, env: Env) -> None:
        self._settings = settings
        self._tree = tree
        self._env = env
        self.due: dict[SessionKey, None] = {}

    def is_due(self, live: LiveSession) -> bool:
        """Whether there is to be a summary, as far as the session itself can tell."""
        return due_tail(live, self._settings) is not None

    def note_due(self, key: SessionKey) -> None:
        """Note that a session is due."""
        self.due[key] = None
        if len(self.due) > DUE_MAX:
            del self.due[next(iter(self.due))]

    async def compact_at_end(self, execution: Execution, writer: SessionWriter, scope: trio.CancelScope) -> bool:
        """
        Store a summary, if one is due, when the caller of a run has had everything and asks for more.

        The run has succeeded: leaving it and its deadline, which cancel the *scope*, and whatever fails here only mean
        that there is no summary.
        Returns whether the session was looked through for one.
        """
        run, invocation, has_looked = execution.caller, execution.invocation, False
        try:
            with scope:
                if self.is_due(invocation.live) and await invocation.committer.delivered():
                    run.compaction = await self._compact_run(invocation, writer)
                    has_looked = True
        except BaseException as error:
            failure = first_failure(error)
            if not isinstance(failure, Exception):
                execution.fail(failure)
            else:
                run.compaction_error = failure
        return has_looked

    async def _compact_run(self, invocation: Invocation, writer: SessionWriter) -> Event | None:
        live = invocation.live
        await self._env.point("compaction")
        job = await find_job(writer.service, live, self._settings, self._tree, ends=invocation.id)
        if job is None:
            return None
        # Recorded before: a process that dies here would leave an invocation that keeps out later summaries.
        await writer.record_end(InvocationStatus.COMPLETED)
        if live.has_messages:
            return None  # the invocation goes on
        event = await job.event(self._settings.summarizer)
        if event is None or not job.fits(live):
            return None
        await self._env.point("store compaction")
        metadata = freeze({**invocation.run_config.custom_metadata, **(event.custom_metadata or {})}) or None
        event_id = derived_id(invocation.id, "compaction", job.end_seq)
        return await writer.append(changed(event, id=event_id, invocation_id=invocation.id, custom_metadata=metadata))

    @trio.lowlevel.enable_ki_protection
    async def compact(self, service: SessionStore, key: SessionKey) -> bool:
        """
        Store a summary of a session, if one is due. The session is not held while it is made, only to store it.

        Return whether to look again: what has come between, a summary elsewhere or a rewind, has made it void. Then
        nothing is stored, and there may still be one due.

        Raises:
            Exception: What the store or the summarizer fails with; nothing is stored, as far as the store can tell.
        """
        with service._used():
            live = await service.load_session(key, _WHOLE)
            job = None if live is None else await find_job(service, live, self._settings, self._tree)
            event = None if job is None else await job.event(self._settings.summarizer)
        if job is None or event is None:
            return False
        own_id = f"e-{self._env.new_id('invocation')}"
        writer = await service.open_writer(key, own_id, GetSessionConfig(after_seq=job.end_seq - 1), reject=False)
        if writer is None:
            return False
        try:
            fits = job.fits(writer.live)
            if fits:
                await writer.append(changed(event, id=f"{own_id}-0"))
            return not fits
        finally:
            with trio.CancelScope(shield=True):
                await writer.finish(None)
