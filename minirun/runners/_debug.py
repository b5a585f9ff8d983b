"""Runs that print what is said, for a quick look."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..sessions._service import session_key

if TYPE_CHECKING:
    from ..events import Event
    from ..runtime import RunConfig
    from ._runner import Runner

__all__ = ["run_debug"]


async def run_debug(
    runner: Runner,
    messages: str | Sequence[str],
    user_id: str,
    session_id: str,
    run_config: RunConfig | None,
    *,
    quiet: bool,
    verbose: bool,
) -> list[Event]:
    """Run messages one after another, print what is said, and return the events; see `Runner.run_debug`."""
    events: list[Event] = []
    for message in [messages] if isinstance(messages, str) else messages:
        await runner._opener.create_if_missing(session_key(runner.app_name, user_id, session_id))
        if not quiet:
            print(f"user > {message}")  # noqa: T201 # printing is what this is for
        async with runner.run_async(
            user_id=user_id, session_id=session_id, new_message=message, run_config=run_config
        ) as run:
            async for event in run:
                events.append(event)
                for line in [] if quiet else _lines(event, verbose=verbose):
                    print(line)  # noqa: T201 # printing is what this is for
    return events


def _lines(event: Event, *, verbose: bool) -> Iterator[str]:
    if event.text and not event.partial:
        yield f"{event.author} > {event.text}"
    if event.error_code:
        yield f"{event.author} ! {event.error_code}: {event.error_message}"
    if not verbose:
        return
    for call in event.get_function_calls():
        yield f"{event.author} calls {call.name}({json.dumps(call.args)})"
    for answer in event.get_function_responses():
        yield f"{event.author} got {json.dumps(answer.response)}"
    if event.actions.state_delta:
        yield f"{event.author} sets {json.dumps(event.actions.state_delta)}"
