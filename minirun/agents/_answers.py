"""What an agent has answered that was run as a part of something: the last answer in its branch, and its value."""

from __future__ import annotations

from typing import Any

from .._values import changed
from ..errors import ModelError
from ..events import NO_NODE, Event
from ..flows._answer import is_answer, shown_result
from ..flows._branches import is_within
from ..flows._output import Outcome, OutputSchema
from ..runtime import InvocationContext
from ._tree import AgentTree

__all__ = ["is_told_as_answer", "last_answer", "value_of"]


def last_answer(context: InvocationContext, start_seq: int) -> Event | None:
    """The last answer in the branch of *context*, or what was told instead of one, but not inside of further calls."""
    live, branch = context._invocation.live, context.branch or ""
    failed: list[str] = []  # the branches of nodes without which a workflow has gone on: nothing in them is its answer
    for event in reversed(live.events[live.index_of(start_seq) :]):
        within = event.branch or ""
        if within != branch and not within.startswith(f"{branch}."):
            continue
        if event.invocation_id != context.invocation_id:
            continue  # another one of the session runs the same node
        if "@" in within[len(branch) :] or "~" in within[len(branch) :]:
            continue
        if event.error_code is not None and event.actions.replay.ended is not None:
            failed.append(within)
        elif is_told_as_answer(event) and not any(is_within(within, each) for each in failed):
            return event
    return None


def is_told_as_answer(event: Event) -> bool:
    """
    Whether *event* is what an agent has answered, or a failure that was told in place of an answer.

    It is asked of the agent alone: its answer need not be final for the run.
    """
    replay = event.actions.replay
    is_failure = event.error_code is not None and replay.step is None and not replay.aside
    return is_failure or is_answer(changed(event, node_info=NO_NODE))


def value_of(event: Event, tree: AgentTree) -> Any:
    """
    What an answer comes to: an output, a result that is shown as it is, or the text.

    Raises:
        ModelError: A failure was told in its place.
    """
    if event.error_code is not None:
        raise ModelError(f"{event.error_code}: {event.error_message or 'the agent gave no answer'}")
    if event.output is not None:
        return event.output
    result = shown_result(event)
    if result is not None:
        return result
    form: OutputSchema | None = getattr(tree.find(event.author), "_output", None)
    if form is not None and form.parse_text(event.text) == Outcome():
        return None  # an output that is null
    return event.text
