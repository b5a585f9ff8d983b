"""
What nobody runs is resumed: what was interrupted, and what has waited for a time that has come. And summaries that are
due are made.

A supervisor has no memory that matters. What there is to do stands in the store, and what is running is marked there as
running for everybody; so any number of supervisors may look after one store, and each may end at any moment. Who begins
what is agreed upon in the store, too (`sessions._work`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._json import brief, finite, is_count, is_seconds, shown
from ..errors import (
    ConfigurationError,
    InvalidValueError,
    InvocationEndedError,
    InvocationNotFoundError,
    MinirunError,
    NotResumableError,
    ServiceClosedError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageError,
)
from ..runtime import RunConfig
from ..runtime._failure import leaves
from ..sessions import Invocation, InvocationStatus, SessionKey
from ..sessions._work import Job, due, work_in
from ._resume import find_invocation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..sessions._work import Work
    from ._runner import Runner

__all__ = ["Supervisor", "resume_due"]

_logger = logging.getLogger("minirun")

# What a job that somebody else was faster with, or that is gone, cannot be begun for.
_USUAL = (
    InvocationEndedError, InvocationNotFoundError, NotResumableError, SessionBusyError, SessionNotFoundError,
)  # fmt: skip

# Waiting doubles with each failure in a row, up to this: each try is an event in the log of what fails.
BACKOFF_S_MAX = 3600.0
# After a transient failure of the store the longest wait is shorter, because such a failure ends without a person.
STORE_BACKOFF_S_MAX = 300.0

# A job with this in the place of an invocation's id is to make the summary of the session. No id is empty.
SUMMARY = ""


def _tell(job: Job, what: str, error: Exception) -> None:
    """Warn who operates this worker of what stands in no log of a session."""
    key, invocation_id = job
    name = f"invocation {brief(invocation_id)} of {key}" if invocation_id else f"the summary of {key}"
    _logger.warning("%s %s: %s", name, what, _said(error))


def _said(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # it cannot say what it is
        return type(error).__name__


class Outcome(Enum):
    """What has come of resuming an invocation."""

    NOT_STARTED = auto()
    """Its session was busy or deleted, the store has failed, or somebody else was faster."""
    RESUMED = auto()
    UNCHANGED = auto()
    """It has failed, or `before_run_callback` has answered, before anything new was done, and is as it was."""
    STORE_FAILED = auto()
    """A transient failure of the store ended the run, or kept it from beginning; the invocation can be resumed."""


# By the outcome: the longest wait before the next try, in seconds.
_LONGEST_WAIT_S = {Outcome.UNCHANGED: BACKOFF_S_MAX, Outcome.STORE_FAILED: STORE_BACKOFF_S_MAX}


async def resume(
    runner: Runner,
    job: Job,
    *,
    now: float | None,
    config: RunConfig,
    deps: Any,
    if_still: InvocationStatus | None = None,
    tell: Callable[[Job, str, Exception], None] = _tell,
) -> Outcome:
    """
    Resume an invocation, to its end or its next wait, if it is still listed as *if_still*.

    What the run fails with is not raised: it stands in the log, or the invocation is as it was. What cannot stand
    there, *tell* is told.
    """
    key, invocation_id = job
    run = None
    try:
        if if_still is not None:
            found = await find_invocation(runner.session_service, key, invocation_id)
            if found.status is not if_still:
                return Outcome.NOT_STARTED
        scope = runner.run_async(
            user_id=key.user_id, session_id=key.session_id, invocation_id=invocation_id, run_config=config, deps=deps
        )
        async with scope.supervised(now) as run:
            await run.wait()
    except Exception as error:
        is_transient = isinstance(error, StorageError) and error.is_transient
        if run is None:
            if not isinstance(error, MinirunError):
                raise  # no agent has run yet, so it is none of its failures but a bug
            if not isinstance(error, _USUAL):
                tell(job, "could not be begun", error)
            if is_transient:
                return Outcome.STORE_FAILED
            return Outcome.UNCHANGED if isinstance(error, NotResumableError) else Outcome.NOT_STARTED
        lost = next((leaf for leaf in leaves(error) if isinstance(leaf, StaleSessionError)), None)
        if lost is not None:
            tell(job, "was taken over by another worker, and what this one did last is not stored", lost)
        elif not run.status.has_ended:
            tell(job, "was interrupted, and is resumed later" if is_transient else "was left as it is", error)
        if not run.status.has_ended:
            return Outcome.STORE_FAILED if is_transient else Outcome.UNCHANGED
    return Outcome.UNCHANGED if scope.is_unchanged else Outcome.RESUMED


async def resume_due(runner: Runner, asked: float | None, config: RunConfig, deps: Any) -> list[Invocation]:
    """Resume, one after the other, what has waited for a time until *asked*, or now; see `Runner.resume_due`."""
    now = runner._env.now() if asked is None else finite(asked)
    if now is None:
        raise InvalidValueError("now", f"expected seconds since the epoch, found {shown(asked)}")
    service = runner.session_service
    jobs = await due(service, runner.app_name, now)
    resumed = [job for job in jobs if await resume(runner, job, now=now, config=config, deps=deps) is Outcome.RESUMED]
    found = [await service.load_invocation(*job) for job in resumed]
    return [invocation for invocation in found if invocation is not None]  # the others were deleted meanwhile


async def _cancel_on(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class Supervisor:
    """
    Resumes what can be resumed, so many at once, until it is cancelled; see `Runner.supervise`.

    Args:
        runner: Whose app, and whose store.
        config: Settings of the runs; they do not wait for a session that is busy, which would take a place.
        max_concurrent: How many may run at once.
        every_s: How often to look, in seconds.
        deps: What the runs find as `ctx.deps`.
        stop: Once it is set, nothing new begins, and `run` ends when what is under way has ended.

    Raises:
        ConfigurationError: A number is out of its range.
    """

    def __init__(
        self, runner: Runner, config: RunConfig, max_concurrent: int, every_s: float, deps: Any,
        stop: trio.Event | None = None,
    ) -> None:  # fmt: skip
        if not is_count(max_concurrent, 1):
            msg = f"expected max_concurrent to be an integer above 0, found {brief(max_concurrent, 40)}"
            raise ConfigurationError(msg)
        if not is_seconds(every_s, above=0):
            msg = f"expected every_s to be seconds above 0, and not for ever, found {brief(every_s, 40)}"
            raise ConfigurationError(msg)
        if not isinstance(stop, trio.Event | None):
            msg = f"expected stop to be a trio.Event, found {brief(stop, 40)}"
            raise ConfigurationError(msg)
        self._runner = runner
        self._config = attrs.evolve(config, on_busy="reject")
        self._every_s = every_s
        self._deps = deps
        self._stop = stop
        self._has_looked = False
        self._failing: set[str] = set()  # what the store cannot be asked for
        self._told: dict[Job, str] = {}  # what was last said of a job that could not be done
        self._free = trio.Semaphore(max_concurrent)
        self._running: set[Job] = set()
        self._backoff: dict[Job, tuple[float, float]] = {}  # until when, and how many seconds that is

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Look, and look again; *task_status* is told of the first look."""
        self._runner._opener.check_open()  # outside of trio there is no nursery
        closed: ServiceClosedError | None = None
        async with trio.open_nursery() as nursery:
            try:
                await self._poll_until_stopped(nursery, task_status)
            except ServiceClosedError as error:
                closed = error  # raised by itself, and not in a group of the nursery's
                nursery.cancel_scope.cancel()
        if closed is not None:
            raise closed

    async def _poll_until_stopped(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as looking:
            if self._stop is not None:
                if self._stop.is_set():
                    looking.cancel()
                nursery.start_soon(_cancel_on, self._stop, looking)
            await self._poll(nursery, task_status)
        if not self._has_looked:
            task_status.started()

    async def _poll(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        runner = self._runner
        work = work_in(runner.session_service, runner.app_name)
        async with work.watching():
            while True:
                runner._opener.check_open()
                try:
                    found = await work.look(runner._env.now())
                    self._note("look for work", None)
                except StorageError as error:
                    found = {}  # the next look may succeed
                    self._note("look for work", error)
                else:
                    self._told = {job: told for job, told in self._told.items() if job in found or not job[1]}
                if not self._has_looked:
                    self._has_looked = True
                    task_status.started()
                await self._resume_all(nursery, work, found)
                for key in [] if runner._compactor is None else list(runner._compactor.due):
                    await self._begin_summary(nursery, (key, SUMMARY))
                await work.wait(self._every_s)

    async def _resume_all(self, nursery: trio.Nursery, work: Work, found: Mapping[Job, InvocationStatus]) -> None:
        """Begin what was found and may begin, as places become free, unless other supervisors are faster."""
        waiting = {job: status for job, status in found.items() if self._may_begin(job)}
        while waiting:
            places = await self._places(len(waiting))
            try:
                claimed = await work.claim([*waiting], places)
                self._note("claim work", None)
            except StorageError as error:
                claimed = []  # the next look tells what is left
                self._note("claim work", error)
            for job in claimed:
                self._begin(nursery, job, waiting.pop(job))
            for _ in range(places - len(claimed)):
                self._free.release()
            if len(claimed) < places:
                return  # the others are somebody else's

    def _note(self, doing: str, error: StorageError | None) -> None:
        """Tell when the store cannot be asked for work any more, and when it can again."""
        app = brief(self._runner.app_name)
        if error is not None and doing not in self._failing:
            self._failing.add(doing)
            _logger.warning("cannot %s of %s: %s", doing, app, _said(error))
        elif error is None and doing in self._failing:
            self._failing.remove(doing)
            _logger.warning("can %s of %s again", doing, app)

    def _tell_once(self, job: Job, what: str, error: Exception) -> None:
        """Tell it, unless the last try has ended in the same way."""
        said = f"{what}: {_said(error)}"
        if self._told.get(job) != said:
            self._told[job] = said
            _tell(job, what, error)

    async def _places(self, wanted: int) -> int:
        """Take places, at least one; wait until there is one. Return how many were taken."""
        await self._free.acquire()
        for taken in range(1, wanted):
            try:
                self._free.acquire_nowait()
            except trio.WouldBlock:
                return taken
        return wanted

    def _may_begin(self, job: Job) -> bool:
        """Whether it is not running here, and has not failed just now."""
        return job not in self._running and self._backoff.get(job, (0.0, 0.0))[0] <= self._runner._env.now()

    async def _begin_summary(self, nursery: trio.Nursery, job: Job) -> None:
        if self._may_begin(job):
            await self._free.acquire()
            self._begin(nursery, job, None)

    def _begin(self, nursery: trio.Nursery, job: Job, status: InvocationStatus | None) -> None:
        """Let a job have the place that was taken for it."""
        self._running.add(job)
        name = f"summary of {job[0]}" if status is None else f"supervised {job[1]}"
        nursery.start_soon(self._work, job, status, name=name)

    async def _work(self, job: Job, status: InvocationStatus | None) -> None:
        try:
            longest_s = None
            if status is None:
                longest_s = BACKOFF_S_MAX if await self._compact(job[0]) else None
            else:
                outcome = await resume(
                    self._runner, job, now=None, config=self._config, deps=self._deps, if_still=status,
                    tell=self._tell_once,
                )  # fmt: skip
                longest_s = _LONGEST_WAIT_S.get(outcome)
            _, wait_s = self._backoff.pop(job, (0.0, self._every_s))
            if longest_s is not None:
                wait_s = min(2 * wait_s, longest_s)
                self._backoff[job] = (self._runner._env.now() + wait_s, wait_s)
        finally:
            self._running.remove(job)
            self._free.release()

    async def _compact(self, key: SessionKey) -> bool:
        """Make a summary. Return whether that has failed: then nothing is stored, and it is still due."""
        compactor = self._runner._compactor
        assert compactor is not None, "it has noted what is due"
        compactor.due.pop(key, None)
        try:
            if await compactor.compact(self._runner.session_service, key):
                compactor.note_due(key)
        except Exception as error:  # of the store, or of whatever the application has given as a summarizer
            compactor.note_due(key)
            self._tell_once((key, SUMMARY), "could not be made", error)
            return True
        self._told.pop((key, SUMMARY), None)
        return False
