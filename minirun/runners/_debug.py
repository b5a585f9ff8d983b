"""What `Runner.run_debug` prints of an event."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..events import Event
from ..runtime import RunConfig, RunScope
from ..sessions._key import session_key
from ..types import id_of

if TYPE_CHECKING:
    from ._runner import Runner

__all__ = ["lines_of", "run_debug"]


async def run_debug(
    runner: Runner,
    messages: Sequence[str],
    user_id: str,
    session_id: str,
    run_config: RunConfig | None,
    deps: Any,
    *,
    quiet: bool,
    verbose: bool,
) -> list[Event]:
    """See `Runner.run_debug`."""
    events: list[Event] = []
    for message in [messages] if isinstance(messages, str) else messages:
        await runner._opener.create_if_missing(session_key(runner.app_name, user_id, session_id))
        scope = runner.run_async(
            user_id=user_id, session_id=session_id, new_message=message, run_config=run_config, deps=deps
        )
        events += await print_events(scope, message, quiet=quiet, verbose=verbose)
    return events


async def print_events(scope: RunScope, message: str, *, quiet: bool, verbose: bool) -> list[Event]:
    """Run *message*, print what is said unless *quiet*, and return the events."""
    events: list[Event] = []
    if not quiet:
        print(f"user > {message}")  # noqa: T201 # printing is what this is for
    async with scope as run:
        async for event in run:
            events.append(event)
            for line in [] if quiet else lines_of(event, run.failed_calls, verbose=verbose):
                print(line)  # noqa: T201 # printing is what this is for
    return events


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
        place = failed_calls.get(id_of(answer))
        if place is not None:
            yield f"{event.author} ! {answer.name} failed at {place}"
    if verbose:
        for call in event.get_function_calls():
            yield f"{event.author} calls {call.name}({json.dumps(call.args)})"
        for answer in event.get_function_responses():
            yield f"{event.author} got {json.dumps(answer.response)}"
        if event.actions.state_delta:
            yield f"{event.author} sets {json.dumps(event.actions.state_delta)}"
