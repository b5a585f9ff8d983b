"""Steps in the log: the event that records one, and what the step then gives again."""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

from .._json import freeze, thaw
from ..errors import InvalidValueError, ReplayError
from ..events import Event, EventActions, RecordedFailure, RecordedStep, Replay

__all__ = ["event_of", "event_of_failure", "outcome_of"]


def event_of(event_id: str, result: Any, step: RecordedStep) -> Event:
    """Return the event that records a step."""
    output = freeze(result, f"result of step {step.name!r}")
    return Event(id=event_id, output=output, actions=EventActions(replay=Replay(step=step)))


def event_of_failure(event_id: str, error: Exception, step: RecordedStep, text: str) -> Event:
    """Return the event that records that a step has failed, with what, and what that says."""
    try:
        args = freeze(list(error.args))
    except InvalidValueError:
        args = None
    kind, message = type(error), text.encode("utf-8", "replace").decode()
    failed = RecordedFailure(type=f"{kind.__module__}:{kind.__qualname__}", args=args)
    actions = EventActions(replay=Replay(step=step, failed=failed))
    return Event(id=event_id, error_code=kind.__name__, error_message=message or kind.__name__, actions=actions)


def outcome_of(recorded: Event, name: str) -> Any:
    """The result of a step that is recorded; raises what it has failed with."""
    failed = recorded.actions.replay.failed
    if failed is None:
        return recorded.output
    module, _, qualname = failed.type.partition(":")
    kind = reduce(lambda found, part: getattr(found, part, None), qualname.split("."), sys.modules.get(module))
    if failed.args is not None and isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(*thaw(failed.args))
        except Exception:  # it is made in another way
            error = None
        if error is not None:
            raise error
    msg = (
        f"step {name!r} has failed with {failed.type} ({recorded.error_message}), which cannot be made again from "
        "its `args`; let the step return what has happened instead, or raise an exception that can"
    )
    raise ReplayError(msg)
