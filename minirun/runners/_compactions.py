"""
Summaries that runs did not come to, because their callers have left early or the summariser has failed.

Which sessions that are is noted as their runs end, so nobody has to look for them. What is noted is lost with the
process; the next run on the session notes it again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from .._values import changed
from ..sessions import GetSessionConfig, SessionKey
from ..sessions._live import RunWindow

if TYPE_CHECKING:
    from ._runner import Runner

__all__ = ["Compactions", "compact"]

# More are not remembered: their next runs note them again.
NOTED_MAX = 10_000

_NOTHING = GetSessionConfig(num_recent_events=0)


class Compactions:
    """The sessions of one runner that are due for a summary, the one that waits longest first."""

    def __init__(self) -> None:
        self._noted: OrderedDict[SessionKey, None] = OrderedDict()

    def note(self, key: SessionKey) -> None:
        """The session is due."""
        self._noted[key] = None
        if len(self._noted) > NOTED_MAX:
            self._noted.popitem(last=False)

    def forget(self, key: SessionKey) -> None:
        """Somebody looks after it."""
        self._noted.pop(key, None)

    def noted(self) -> list[SessionKey]:
        """Those that are due."""
        return list(self._noted)


async def compact(runner: Runner, key: SessionKey) -> bool:
    """
    Store a summary of a session, if one is due. The session is not held while it is made, only to store it.

    Return whether to look again: what has come between, a summary elsewhere or a rewind, has made it void. Then
    nothing is stored, and there may still be one due.

    Raises:
        Exception: What the store or the summariser fails with; nothing is stored, as far as the store can tell.
    """
    service, settings = runner.session_service, runner.app.events_compaction_config
    if settings is None:
        return False
    from ..runtime._compaction import find_job  # few apps have summaries

    with service._used():
        live = await service._open(key, RunWindow(asked=_NOTHING, whole=True))
        job = None if live is None else await find_job(service, live, settings, runner.app._tree)
        event = None if job is None else await job.event(settings.summarizer)
    if job is None or event is None:
        return False
    own_id = f"e-{runner._env.new_id('invocation')}"
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
