"""
Workers of one database in a storm: `python -m tests.storms` starts and ends them, as kills.py does its writers.

A worker talks with its own sessions, whose invocations call tools, ask a question and wait for a time, and supervises
those of all workers. It is killed, stopped, cut off from its server, or the server is.

Each append is told twice, in a file of the worker's own: before it is sent, with the event as it would be stored, and
when it is known what has become of it. So whatever stands in a log later belongs to one attempt, whose outcome allows
it: a check needs no luck to find an event that should not be there.

`BROKEN` are the controls: workers that break a promise as a bad implementation would. The check must see it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import attrs
import trio

from minirun import BaseAgent, Event, InvocationContext, LlmAgent, RunConfig, Runner, SequentialAgent, ToolContext
from minirun._codec import to_json
from minirun.errors import MinirunError, StorageError
from minirun.sessions import DatabaseSessionService, SessionWriter
from minirun.sessions._key import SessionKey
from minirun.sessions._live import LiveSession
from minirun.sessions._postgres import _statement
from minirun.testing import ScriptedLlm, call

from .kills import Teller, main

__all__ = ["BROKEN", "TURN_EVENTS", "ToldService"]

# A worker that hears nothing looks again: every pause is short, and none is a bound that a test depends on.
PAUSE_S = 0.05
LOOK_EVERY_S = 0.1
TURN_EVENTS = 12
"""About how many events an invocation has."""


# --- what is run ----------------------------------------------------------------------------------------------------


class Errand(BaseAgent):
    """Asks a question, acts on the answer, waits for a time, and says that it is done."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        def note(answer: str) -> str:
            return f"noted {answer}"

        answer = await ctx.request_input("name", response_schema=str)
        ctx.state.add("app:asked")
        await ctx.emit(Event(message=await ctx.step("note", note, answer)))
        await ctx.sleep_until(await ctx.step("time", lambda: time.time() + PAUSE_S))
        ctx.state.add("user:done")
        await ctx.emit(Event(message="done"))


async def work(part: int, tool_context: ToolContext) -> str:
    """Do a part of the work."""
    tool_context.state.add("worked")
    tool_context.state.add("user:worked")
    tool_context.state.extend("app:parts", [part])
    await trio.sleep(0.002 * part)
    return f"part {part}"


def agent() -> BaseAgent:
    """A turn of two calls at once and an answer, then an errand."""

    def answer(request: Any) -> Any:
        if request.contents[-1].parts[-1].function_response is None:
            return [call("work", part=1), call("work", part=2)]
        return "worked"

    worker = LlmAgent(name="worker", model=ScriptedLlm(answer), tools=[work])
    return SequentialAgent(name="both", sub_agents=[worker, Errand(name="errand")])


# --- a worker -------------------------------------------------------------------------------------------------------


class ToldService(DatabaseSessionService):
    """A service that tells of each append, before it is sent and after it is answered."""

    tell: Teller
    acknowledges_first = False

    async def commit_event(
        self, live: LiveSession, event: Event, *, writer: SessionWriter | None, begins: bool
    ) -> None:
        place = {"session": live.key.session_id, "event": to_json(event)}
        self.tell.tell("sends", **place)
        if self.acknowledges_first:
            self.tell.tell("stored", **place)
        try:
            await super().commit_event(live, event, writer=writer, begins=begins)
        except BaseException as error:
            is_open = isinstance(error, StorageError) and error.stored is None
            self.tell.tell("uncertain" if is_open else "refused", why=type(error).__name__, **place)
            raise
        if not self.acknowledges_first:
            self.tell.tell("stored", **place)


@attrs.frozen(eq=False)
class Worker:
    """One life of a worker."""

    service: ToldService
    runner: Runner
    options: dict[str, Any]
    tell: Teller

    @property
    def is_calm(self) -> bool:
        """Whether the storm is over: what has begun comes to its end, and nothing begins."""
        return Path(self.options["calm"]).exists()

    async def live(self) -> None:
        """Talk and supervise until the storm is over and every invocation has ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(self.runner.supervise, max_concurrent=16, every_s=LOOK_EVERY_S))
            async with trio.open_nursery() as visits:
                for session_id in self.options["sessions"]:
                    visits.start_soon(self._visit, session_id)
            while not await self._is_all_done():  # noqa: ASYNC110  # other processes tell nobody
                await trio.sleep(LOOK_EVERY_S)
            nursery.cancel_scope.cancel()
        self.tell.tell("done")

    async def _visit(self, session_id: str) -> None:
        """Begin one invocation after the other, and answer what they ask."""
        luck = Random(f"{self.options['seed']} {session_id}")
        await trio.sleep(luck.random() * PAUSE_S)
        while True:
            try:
                if not await self._take_turn(session_id):
                    return
            except MinirunError as error:
                self.tell.tell("failed run", why=type(error).__name__)
            await trio.sleep(luck.random() * PAUSE_S)

    async def _take_turn(self, session_id: str) -> bool:
        """Do what is to be done next; False if that is nothing, for ever."""
        place: dict[str, Any] = {"user_id": "u", "session_id": session_id}
        if pending := await self.service.list_pending(app_name="app", **place):
            message: Any = pending[0].reply("me")
        elif await self.service.load_unfinished_invocations(SessionKey("app", "u", session_id), 0):
            await trio.sleep(PAUSE_S)  # a supervisor goes on with it
            return True
        elif self.is_calm:
            return False
        else:
            message = "go"
        config = RunConfig(on_busy="reject")
        async with self.runner.run_async(**place, new_message=message, run_config=config) as run:
            await run.wait()
        return True

    async def _is_all_done(self) -> bool:
        try:
            found = await self.service.list_invocations(app_name="app")
        except StorageError:
            return False
        return self.is_calm and all(one.status.has_ended for one in found)


# --- broken workers -------------------------------------------------------------------------------------------------


def _replaced(statement_text: str, old: str, new: str) -> str:
    assert statement_text.count(old) == 1, f"renew the control: {old!r}"
    return statement_text.replace(old, new)


def drop_the_fence() -> None:
    """Broken: whoever appends is let in, at the end of what is there by then."""
    text = _statement._APPEND
    compared = text[text.index("WHERE s.revision = m.revision") : text.index("ORDER BY s.id FOR NO KEY")]
    text = _replaced(text, compared, "")
    text = _replaced(text, "SELECT m.i, s.id FROM m", "SELECT m.i, s.id, s.revision AS at, s.chain AS mark FROM m")
    text = _replaced(text, "SELECT m.*, counter.base", "SELECT m.*, held.at, held.mark, counter.base")
    text = _replaced(text, "SELECT i, session, revision + 1 AS seq", "SELECT i, session, at + 1 AS seq")
    text = _replaced(text, "link(chain, revision + 1, number, data)", "link(mark, at + 1, number, data)")
    vars(_statement)["_APPEND"] = text


def count_beside() -> None:
    """Broken: the counter is read as it was when the statement began."""
    begin = _statement._APPEND.index("UPDATE minirun.store")
    end = _statement._APPEND.index("), numbered AS")
    beside = (
        "SELECT commit_no AS base FROM minirun.store, counted WHERE counted.members > 0\n), bumped AS (\n"
        "UPDATE minirun.store SET commit_no = greatest(commit_no, counter.base + counted.members) FROM counter, counted"
    )
    vars(_statement)["_APPEND"] = _statement._APPEND[:begin] + beside + _statement._APPEND[end:]


def acknowledge_first() -> None:
    """Broken: what is about to be sent is said to be stored."""
    ToldService.acknowledges_first = True


def wait_for_no_disk() -> None:
    """Broken: the server acknowledges what it has not written."""
    text = _replaced(_statement._APPENDED, "FROM moved", ", set_config('synchronous_commit', 'off', true) FROM moved")
    vars(_statement)["_APPENDED"] = text


BROKEN: dict[str, Callable[[], None]] = {
    "fence dropped": drop_the_fence,
    "counter beside the statement": count_beside,
    "acknowledges first": acknowledge_first,
    "waits for no disk": wait_for_no_disk,
}


async def play(options: dict[str, Any], tell: Teller) -> None:
    """Be a worker."""
    if broken := options.get("broken"):
        BROKEN[broken]()
    ToldService.tell = tell
    tell.tell("born", pid=os.getpid())
    async with ToldService(options["path"]) as service:
        tell.tell("owner", name=service._leases.owner)
        tell.ready()
        runner = Runner(agent=agent(), app_name="app", session_service=service)
        await Worker(service, runner, options, tell).live()


if __name__ == "__main__":
    main(play)
