"""What `Runner.run_debug` prints of an event."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ..events import Event

__all__ = ["lines_of"]


def lines_of(event: Event, failed_calls: Mapping[str, str], *, verbose: bool) -> Iterator[str]:
    """
    Tell in lines what *event* says, and where tools have failed that it answers for; if *verbose*, also its calls,
    responses and state changes.
    """
    if event.text and not event.partial:
        yield f"{event.author} > {event.text}"
    if event.error_code:
        yield f"{event.author} ! {event.error_code}: {event.error_message}"
    for answer in event.get_function_responses():
        place = failed_calls.get(answer.id or "")
        if place is not None:
            yield f"{event.author} ! {answer.name} failed at {place}"
    if verbose:
        for call in event.get_function_calls():
            yield f"{event.author} calls {call.name}({json.dumps(call.args)})"
        for answer in event.get_function_responses():
            yield f"{event.author} got {json.dumps(answer.response)}"
        if event.actions.state_delta:
            yield f"{event.author} sets {json.dumps(event.actions.state_delta)}"
