"""Rewinding a session: one event that undoes what came since an invocation, and the artifacts as they were before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from .._json import freeze
from .._values import changed
from ..artifacts._run import RunArtifacts
from ..errors import StaleSessionError
from ..events import Event
from ..runtime._recovery import recover
from ..runtime._rewind import Restoring, rewind_event

if TYPE_CHECKING:
    from ..artifacts import BaseArtifactService
    from ..runtime import RunConfig
    from ..sessions import BaseSessionService, SessionKey, SessionWriter

__all__ = ["rewind"]


async def rewind(
    sessions: BaseSessionService,
    artifacts: BaseArtifactService | None,
    key: SessionKey,
    invocation_id: str,
    own_id: str,
    config: RunConfig,
) -> Event:
    """Undo an invocation and all that came after it, by an event of the invocation *own_id*; see `rewind_async`."""
    reject = config.on_busy == "reject"
    writer = await sessions.open_writer(key, own_id, None, reject=reject)
    if writer is None:
        raise await sessions._not_found(key)
    try:
        while True:
            try:
                await recover(writer)
                newest = await sessions._read(key, -1, 1)
                if not newest:  # deleted by another process just now
                    raise await sessions._not_found(key)
                event = rewind_event(writer.live, newest[0], invocation_id)
                metadata = config.custom_metadata or None
                event = changed(event, id=f"{own_id}-0", invocation_id=own_id, custom_metadata=metadata)
                if artifacts is None:
                    return await writer.append(event)
                return await _append_with_artifacts(sessions, artifacts, writer, event)
            except StaleSessionError:  # another process was faster; nothing is undone yet
                await writer.reload(None, reject=reject)
    finally:
        with trio.CancelScope(shield=True):
            await writer.finish(None)


async def _append_with_artifacts(
    sessions: BaseSessionService, service: BaseArtifactService, writer: SessionWriter, event: Event
) -> Event:
    """Store the rewind with what it makes of the artifacts."""
    live, key, seq = writer.live, writer.live.key, event.actions.rewind_before_seq
    assert seq is not None
    was_never_rewound = len(live.events) == live.revision
    log = live.events if was_never_rewound else await sessions._read(key, 0, None)
    staged, past = service._shares(sessions), partial(iter, log)
    artifacts = RunArtifacts(service, key.app_name, key.user_id, key.session_id, staged=staged, past=past)
    restoring = Restoring(artifacts, log, seq)
    try:
        with trio.CancelScope(shield=True):  # a few records: no cancellation leaves half of it
            delta = freeze(await restoring.restore())
            stored = await writer.append(changed(event, actions=changed(event.actions, artifact_delta=delta)))
    except BaseException:
        with trio.CancelScope(shield=True):
            await restoring.undo()
        raise
    return stored
