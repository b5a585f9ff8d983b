"""The checks of a session service: it knows which summary is in force, whatever was undone, forked or imported."""

from __future__ import annotations

from functools import partial
from typing import Any

from minirun._values import changed
from minirun.errors import InvalidEventError, InvalidValueError, SessionBusyError
from minirun.events import Event, EventActions
from minirun.sessions import GetSessionConfig, InvocationStatus, SessionWriter
from minirun.sessions._compactions import compaction_actions
from minirun.sessions._live import RunWindow
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Content, Part

from .session_bench import Bench

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable_check = listed_in(DURABLE)

_NOTHING = GetSessionConfig(num_recent_events=0)

# The log that `_history` writes, and what is in force at each of its events: the place of the compaction, and its end.
IN_FORCE = [(0, 0)] * 5 + [(5, 4)] * 3 + [(8, 7)] * 2 + [(5, 4), (5, 4), (12, 11), (12, 11), (0, 0)]


def _in_force(writer: SessionWriter) -> tuple[int, int]:
    found = writer.live.compaction
    return (0, 0) if found is None else (found.seq, found.end_seq)


async def _compact(writer: SessionWriter, end_seq: int) -> None:
    summary = Content(role="user", parts=[Part(text=f"up to {end_seq}")])
    actions = compaction_actions(summary, end_seq=end_seq, previous=writer.live.compaction, speaker="a")
    await writer.append(Event(author="system", invocation_id=writer.invocation_id, actions=actions))


async def _say(t: Bench, name: str, *, ends_at: int | None = None) -> None:
    """A run of two events, which may end with a compaction."""
    writer = await t.writer(name)
    await writer.append(Event(author="user", message="ask", invocation_id=name), begins=True)
    await writer.append(Event(author="a", message="say", invocation_id=name))
    if ends_at is not None:
        await _compact(writer, ends_at)
    await writer.finish(InvocationStatus.COMPLETED)


async def _rewind(t: Bench, name: str, before: str, seq: int) -> None:
    writer = await t.writer(name)
    actions = EventActions(rewind_before_invocation_id=before, rewind_before_seq=seq)
    await writer.append(Event(author="user", invocation_id=name, actions=actions))
    await writer.finish(None)


async def _history(t: Bench) -> None:
    """Two runs; a summary of them and one that takes it over; that is undone, made again, and all is undone."""
    await t.create()
    await _say(t, "e-1")
    await _say(t, "e-2", ends_at=4)
    await _say(t, "e-3", ends_at=7)
    writer = await t.writer("e-4")
    await writer.append(Event(author="user", message="ask", invocation_id="e-4"), begins=True)
    await writer.finish(InvocationStatus.FAILED)
    await _rewind(t, "e-5", "e-3", 6)
    writer = await t.writer("e-6")
    await writer.append(Event(author="user", message="ask", invocation_id="e-6"), begins=True)
    await _compact(writer, 11)
    await writer.append(Event(author="a", message="say", invocation_id="e-6"))
    await writer.finish(InvocationStatus.COMPLETED)
    await _rewind(t, "e-7", "e-1", 1)


async def _opened_at(t: Bench, session_id: str, config: GetSessionConfig | None = _NOTHING) -> tuple[int, int]:
    writer = await t.service.open_writer(t.key(session_id), "e-9", config, reject=False)
    expect("open_writer finds the session", writer is not None, True)
    assert writer is not None
    found = _in_force(writer)
    await writer.finish(None)
    return found


@check
async def _the_newest_visible_compaction_is_in_force(t: Bench) -> None:
    """At each event of a history, which a fork there and an import of it show, also where nothing is loaded."""
    await _history(t)
    log = await t.events()
    expect("the log", len(log), len(IN_FORCE))
    forking = partial(t.service.fork_session, app_name=t.app, user_id="u", session_id="s")
    importing = partial(t.service.import_session, app_name=t.app, user_id="u")
    expect("in force", await _opened_at(t, "s"), IN_FORCE[-1])
    for at, expected in enumerate(IN_FORCE):
        await forking(at_seq=at, new_session_id=f"f{at}")
        expect(f"in force in a fork at {at}", await _opened_at(t, f"f{at}"), expected)
        await importing(session_id=f"i{at}", events=log[: at + 1])
        expect(f"in force in an import up to {at}", await _opened_at(t, f"i{at}"), expected)
    await forking(new_session_id="head")
    expect("in force in a fork of all", await _opened_at(t, "head"), IN_FORCE[-1])


@check
async def _a_summary_may_end_with_a_rewind(t: Bench) -> None:
    """A rewind stands in the place of what it has undone; such a history can be imported and forked like any other."""
    await t.create()
    await _say(t, "e-1")
    await _say(t, "e-2")
    await _rewind(t, "e-3", "e-2", 3)
    await _say(t, "e-4", ends_at=5)
    log = await t.events()
    await t.service.import_session(app_name=t.app, user_id="u", session_id="copy", events=log)
    await t.service.fork_session(app_name=t.app, user_id="u", session_id="s", new_session_id="fork")
    for name in ("s", "copy", "fork"):
        expect(f"in force in {name}", await _opened_at(t, name), (8, 5))
    undone = changed(log[8], actions=EventActions(compaction={**(log[8].actions.compaction or {}), "end_seq": 4}))
    with raises(InvalidValueError, "end_seq"):
        await t.service.import_session(app_name=t.app, user_id="u", session_id="broken", events=[*log[:8], undone])
    back = EventActions(rewind_before_invocation_id="e-3", rewind_before_seq=5)
    with raises(InvalidValueError, "rewind_before_seq"):
        rewind = changed(log[8], actions=back)
        await t.service.import_session(app_name=t.app, user_id="u", session_id="broken", events=[*log[:8], rewind])


@check
async def _a_run_knows_it_as_it_writes(t: Bench) -> None:
    """From the moment that the event is stored, and what a rewind brings back from when that is stored."""
    await t.create()
    await _say(t, "e-1")
    await _say(t, "e-2", ends_at=4)
    writer = await t.service.open_writer(t.key(), "e-3", _NOTHING, reject=False)
    assert writer is not None
    await writer.append(Event(author="user", message="ask", invocation_id="e-3"), begins=True)
    expect("in force", _in_force(writer), (5, 4))
    await _compact(writer, 6)
    expect("in force", _in_force(writer), (7, 6))
    actions = EventActions(rewind_before_invocation_id="e-3", rewind_before_seq=6)
    await writer.append(Event(author="user", invocation_id="e-3", actions=actions))
    expect("in force", _in_force(writer), (5, 4))
    await writer.finish(None)
    expect("in force for the next one", await _opened_at(t, "s"), (5, 4))


@durable_check
async def _what_no_summary_covers_is_loaded_for_a_run(t: Bench) -> None:
    """However narrow its window is; without a summary all of it where it asks for that, and what it was asked for."""
    async with t.opened():
        await t.create()
        await _say(t, "e-1")
        await _say(t, "e-2")
    narrow = GetSessionConfig(num_recent_events=1)
    for first, window in (
        (1, RunWindow(asked=narrow, whole=True)),
        (1, RunWindow(whole=True)),
        (1, RunWindow()),
        (4, RunWindow(asked=narrow)),
        (4, RunWindow(asked=narrow, whole=True)),
        (4, RunWindow()),
        (2, RunWindow(asked=GetSessionConfig(after_seq=1))),
        (1, RunWindow(asked=GetSessionConfig(after_seq=0), whole=True)),
    ):
        async with t.opened():
            writer = await t.service.open_writer(t.key(), "e-9", window, reject=False)
            assert writer is not None
            shown = [event.seq for event in writer.live.window(first)]
            expect(f"what is loaded for {window}", shown, list(range(first, writer.live.revision + 1)))
            if window == RunWindow() and writer.live.compaction is None:
                await _compact(writer, 3)
            await writer.finish(None)


@durable_check
async def _it_is_known_when_the_store_is_opened_again(t: Bench) -> None:
    """The compaction that is in force, and what stands after it."""
    async with t.opened():
        await t.create()
        await _say(t, "e-1")
        await _say(t, "e-2", ends_at=3)
    async with t.opened():
        writer = await t.service.open_writer(t.key(), "e-9", RunWindow(asked=_NOTHING), reject=False)
        assert writer is not None
        expect("in force", _in_force(writer), (5, 3))
        expect("its text", writer.live.compaction and writer.live.compaction.content.text, "up to 3")
        expect("what stands after it", [event.seq for event in writer.live.window(4)], [4, 5])
        await writer.finish(None)


@check
async def _what_has_not_ended_is_found(t: Bench) -> None:
    """The invocations of a session that run, wait or were left; those of others, and those that have ended, are not."""
    await t.create()
    await t.create("other")
    await _say(t, "e-1")
    for name, session_id in (("e-2", "s"), ("e-3", "other")):
        writer = await t.writer(name, session_id)
        await writer.append(Event(author="user", message="ask", invocation_id=name), begins=True)
        await writer.finish(None)
    for after_seq, expected in ((0, [("e-2", 3)]), (2, [("e-2", 3)]), (3, [])):
        found = await t.service.load_unfinished_invocations(t.key(), after_seq)
        expect(f"what has not ended after {after_seq}", [(run.invocation_id, run.seq) for run in found], expected)


@durable_check
async def _an_end_can_be_recorded_before_the_session_is_left(t: Bench) -> None:
    """What is appended and told later changes nothing of it; nobody else comes in meanwhile."""
    async with t.opened():
        await t.create()
        writer = await t.writer("e-1")
        await writer.append(Event(author="user", message="ask", invocation_id="e-1"), begins=True)
        await writer.append(Event(author="a", message="say", invocation_id="e-1"))
        await writer.record_end(InvocationStatus.COMPLETED)
        expect("what has not ended", await t.service.load_unfinished_invocations(t.key(), 0), [])
        with raises(SessionBusyError, "s"):
            await t.service.open_writer(t.key(), "e-2", None, reject=True)
        await _compact(writer, 2)
        await writer.finish(InvocationStatus.FAILED)
    async with t.opened():
        [found] = await t.service.list_invocations(app_name=t.app)
        expect("how it has ended", (found.status, found.end_seq), (InvocationStatus.COMPLETED, 2))


@check
async def _a_bad_compaction_is_refused(t: Bench) -> None:
    """From outside each one; in an imported history what is not in the form, or not where it could be."""
    await _history(t)
    log = await t.events()
    good = log[5]
    session = await t.get()
    with raises(InvalidEventError, "events_compaction_config"):
        await t.service.append_event(session, Event(author="system", actions=good.actions))
    assert good.actions.compaction is not None
    fields = dict(good.actions.compaction)
    bad: list[tuple[dict[str, Any], type[Any], str]] = [
        ({"start_seq": 2}, InvalidEventError, "start_seq"),
        ({"end_seq": 5}, InvalidEventError, "end_seq"),
        ({"end_seq": "4"}, InvalidEventError, "end_seq"),
        ({"end_seq": 0}, InvalidEventError, "end_seq"),
        ({"previous_seq": 2}, InvalidValueError, "previous_seq"),
        ({"speaker": 1}, InvalidEventError, "speaker"),
        ({"compacted_content": {"parts": []}}, InvalidEventError, "compacted_content"),
        ({"compacted_content": "text"}, InvalidEventError, "compacted_content"),
        ({"end_timestamp": 1.0}, InvalidEventError, "end_timestamp"),
    ]
    importing = partial(t.service.import_session, app_name=t.app, user_id="u", session_id="broken")
    for difference, kind, word in bad:
        broken = changed(good, actions=EventActions(compaction={**fields, **difference}))
        with raises(kind, word):
            await importing(events=[*log[:5], broken])
    again = EventActions(compaction={**fields, "previous_seq": 5})
    with raises(InvalidValueError, "end_seq"):
        await importing(events=[*log[:6], changed(good, seq=6, actions=again)])
    expect("nothing of them", await t.find("broken"), None)
