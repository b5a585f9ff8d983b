"""
What there is to do in a store, as one of any number of supervisors sees it.

What is to be done stands in the store: invocations that were interrupted, and those that have waited for a time that
has come. So a supervisor keeps nothing. In one file each takes what it finds, and the lease of the session decides who
was first. A store with many workers gives each job to one of them: a *claim*, which lasts as long as it takes to begin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from ._invocation import InvocationStatus
from ._key import SessionKey

if TYPE_CHECKING:
    from ._service import BaseSessionService

__all__ = ["Job", "Work", "due", "resumable", "work_in"]

Job: TypeAlias = tuple[SessionKey, str]
"""Resume the invocation of this id in the session."""


async def due(service: BaseSessionService, app_name: str, now: float) -> list[Job]:
    """Return the invocations that have waited for a time until *now*, what waits longest first."""
    pending = await service.list_pending(app_name=app_name, include_timers=True)
    calls = [call for call in pending if call.due is not None and call.due <= now]
    jobs = [(SessionKey(call.app_name, call.user_id, call.session_id), call.invocation_id) for call in calls]
    return list(dict.fromkeys(jobs))


async def resumable(service: BaseSessionService, app_name: str, now: float) -> dict[Job, InvocationStatus]:
    """Return the invocations that can be resumed now, and as what each is listed."""
    interrupted = InvocationStatus.INTERRUPTED
    found = await service.list_invocations(app_name=app_name, status=interrupted)
    jobs = [(SessionKey(one.app_name, one.user_id, one.session_id), one.invocation_id) for one in found]
    timed = dict.fromkeys(await due(service, app_name, now), InvocationStatus.PAUSED)
    return {**timed, **dict.fromkeys(jobs, interrupted)}


class Work:
    """What there is to do for one app in a store whose workers need not agree beforehand."""

    def __init__(self, service: BaseSessionService, app_name: str) -> None:
        self._service = service
        self._app_name = app_name

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Hear of new work as long as the block lasts, if the store tells of it."""
        yield

    async def look(self, now: float) -> dict[Job, InvocationStatus]:
        """
        Return what can be resumed now, and as what each is listed.

        Raises:
            StorageError: It cannot be read.
        """
        return await resumable(self._service, self._app_name, now)

    async def claim(self, jobs: Sequence[Job], limit: int) -> list[Job]:
        """
        Return those of *jobs*, *limit* at most, that this supervisor may begin now; the others are somebody else's.

        Raises:
            StorageError: Nobody knows.
        """
        return [*jobs[:limit]]

    async def wait(self, seconds: float) -> None:
        """Wait until it is time to look again: for so long, or until there is something new."""
        await self._service.env.sleep(seconds)


def work_in(service: BaseSessionService, app_name: str) -> Work:
    """The work of an app in a store. One whose supervisors share it in their own way has a method `_work`."""
    make: Callable[[str], Work] | None = getattr(service, "_work", None)
    return Work(service, app_name) if make is None else make(app_name)
