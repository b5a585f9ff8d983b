"""
Going on with what nobody runs: what was interrupted, and what has waited for a time that has come.

A supervisor has no memory that matters. What there is to do stands in the store, and what is under way there is under
way for all; so any number of them may look after one store, and each may end at any moment.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

import trio

from ..errors import ServiceClosedError, StorageError
from ..runtime import RunConfig
from ..sessions import BaseSessionService, InvocationStatus, SessionKey
from ._compactions import compact

if TYPE_CHECKING:
    from ._runner import Runner

__all__ = ["Place", "Supervisor", "Went", "due", "go_on", "resumable"]

# How long a supervisor leaves alone, at most, what fails before it has gone on: each try is an event in its log.
LEFT_ALONE_S_MAX = 3600.0

# In the place of an invocation's id: the summary of a session. No id is empty.
SUMMARY = ""

Place: TypeAlias = tuple[SessionKey, str]
"""Where an invocation is: its session, and its id."""


class Went(Enum):
    """How far somebody has come with an invocation."""

    NOT_BEGUN = auto()
    ON = auto()
    NOWHERE = auto()
    """It has failed before anything new was done, and is as it was."""


async def due(service: BaseSessionService, app_name: str, now: float) -> list[Place]:
    """What has waited for a time until *now*, what waits longest first."""
    pending = await service.list_pending(app_name=app_name, include_timers=True)
    calls = [call for call in pending if call.due is not None and call.due <= now]
    places = [(SessionKey(call.app_name, call.user_id, call.session_id), call.invocation_id) for call in calls]
    return list(dict.fromkeys(places))


async def resumable(service: BaseSessionService, app_name: str, now: float) -> dict[Place, InvocationStatus]:
    """What can go on now, and as what it is listed."""
    interrupted = InvocationStatus.INTERRUPTED
    found = await service.list_invocations(app_name=app_name, status=interrupted)
    places = [(SessionKey(one.app_name, one.user_id, one.session_id), one.invocation_id) for one in found]
    timed = dict.fromkeys(await due(service, app_name, now), InvocationStatus.PAUSED)
    return {**timed, **dict.fromkeys(places, interrupted)}


async def go_on(
    runner: Runner,
    place: Place,
    *,
    now: float | None,
    config: RunConfig,
    if_still: InvocationStatus | None = None,
) -> Went:
    """Go on with it, to its end or its next wait. No failure leaves this."""
    key, invocation_id = place
    went = Went.NOT_BEGUN
    try:
        if if_still is not None and (await runner._invocation(key, invocation_id)).status is not if_still:
            return went  # somebody was faster
        scope = runner.run_async(
            user_id=key.user_id, session_id=key.session_id, invocation_id=invocation_id, run_config=config
        )
        async with scope.supervised(now) as run:
            went = Went.ON
            await run.wait()
    except Exception:  # it stands in the log, or it has not begun, or it is as it was
        if went is Went.ON and not run.status.has_ended:
            went = Went.NOWHERE
    return went


class Supervisor:
    """
    Goes on with what can go on, so many at once, until it is cancelled; see `Runner.supervise`.

    Args:
        runner: Whose app, and whose store.
        config: Settings of the runs; `on_busy="reject"`, for who waits for a session takes a place.
        max_concurrent: How many may go on at once.
        every_s: How often to look, in seconds.
    """

    def __init__(self, runner: Runner, config: RunConfig, max_concurrent: int, every_s: float) -> None:
        self._runner = runner
        self._config = config
        self._every_s = every_s
        self._free = trio.Semaphore(max_concurrent)
        self._under_way: set[Place] = set()
        self._left_alone: dict[Place, tuple[float, float]] = {}  # until when, and for how long that is

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Look, and look again; *task_status* is told of the first look."""
        closed: ServiceClosedError | None = None
        async with trio.open_nursery() as nursery:
            try:
                await self._look_again_and_again(nursery, task_status)
            except ServiceClosedError as error:
                closed = error  # raised by itself, and not in a group of the nursery's
                nursery.cancel_scope.cancel()
        if closed is not None:
            raise closed

    async def _look_again_and_again(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        env = self._runner._env
        while True:
            self._runner._check_open()
            found = await self._look()
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            for place, status in found.items():
                if place not in self._under_way and self._left_alone.get(place, (0.0, 0.0))[0] <= env.now():
                    await self._free.acquire()
                    self._under_way.add(place)
                    nursery.start_soon(self._go_on, place, status, name=f"supervised {place[1]}")
            for key in self._runner._compactions.noted():
                place = (key, SUMMARY)
                if place not in self._under_way and self._left_alone.get(place, (0.0, 0.0))[0] <= env.now():
                    await self._free.acquire()
                    self._under_way.add(place)
                    nursery.start_soon(self._compact, place, name=f"summary of {key}")
            await env.sleep(self._every_s)

    async def _look(self) -> dict[Place, InvocationStatus]:
        runner = self._runner
        try:
            return await resumable(runner.session_service, runner.app_name, runner._env.now())
        except StorageError:
            return {}  # the next look may succeed

    async def _go_on(self, place: Place, status: InvocationStatus) -> None:
        try:
            went = await go_on(self._runner, place, now=None, config=self._config, if_still=status)
            self._leave_alone(place, failed=went is Went.NOWHERE)
        finally:
            self._under_way.remove(place)
            self._free.release()

    async def _compact(self, place: Place) -> None:
        key, _ = place
        compactions = self._runner._compactions
        compactions.forget(key)
        try:
            if await compact(self._runner, key):
                compactions.note(key)
            self._leave_alone(place, failed=False)
        except ServiceClosedError:
            pass  # the next look says so
        except Exception:  # the store, or whoever writes the summary: nothing is stored, and it is still due
            compactions.note(key)
            self._leave_alone(place, failed=True)
        finally:
            self._under_way.remove(place)
            self._free.release()

    def _leave_alone(self, place: Place, *, failed: bool) -> None:
        """What has *failed* is left alone for a while, each time for longer."""
        _, wait_s = self._left_alone.pop(place, (0.0, self._every_s))
        if failed:
            wait_s = min(2 * wait_s, max(LEFT_ALONE_S_MAX, self._every_s))
            self._left_alone[place] = (self._runner._env.now() + wait_s, wait_s)
