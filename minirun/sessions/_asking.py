"""The events that ask questions, and let calls wait for answers: what `_pending` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._json import JSON, freeze
from ..env import derived_id
from ..events import NO_REPLAY, Event, EventActions, Replay
from ..types import Content, FunctionCall, Part
from ._pending import INTERIM

__all__ = ["Question", "asking_event"]


class Question(NamedTuple):
    """What is asked: the id and the name of the call that stands for it, and its arguments."""

    id: str
    name: str
    args: Mapping[str, Any] | None
    """None: the call is stored already, as that of a long-running tool is."""
    hint: JSON = None
    """What such a tool has returned, for the person that answers."""
    auth_configs: Mapping[str, Any] = {}
    """For `EventActions.requested_auth_configs`."""
    confirmations: Mapping[str, Any] = {}
    """For `EventActions.requested_tool_confirmations`."""


def asking_event(
    invocation_id: str, path: str, questions: Sequence[Question], suspended: Sequence[str], replay: Replay | None
) -> Event:
    """
    Return the event that lets *questions* wait, and the calls *suspended* stay open as long.

    *replay* is what a replay has to know of it: by default, where a call is made for a question, the *path* that asks.
    """
    made = [each for each in questions if each.args is not None]
    calls = [FunctionCall(id=each.id, name=each.name, args=freeze(dict(each.args or {}))) for each in made]
    hints = {each.id: each.hint for each in questions if each.hint is not None}
    ids = [each.id for each in questions]
    if replay is None:
        replay = Replay(asked_by=path) if made else NO_REPLAY
    return Event(
        id=f"{ids[0]}-asked" if made else derived_id(invocation_id, "waits", *ids, *suspended),
        content=Content(role="model", parts=[Part(function_call=call) for call in calls]) if calls else None,
        long_running_tool_ids=ids,
        actions=EventActions(
            suspended_calls=suspended,
            requested_auth_configs={name: config for each in made for name, config in each.auth_configs.items()},
            requested_tool_confirmations={call: told for each in made for call, told in each.confirmations.items()},
            replay=replay,
        ),
        custom_metadata={INTERIM: hints} if hints else None,
    )
