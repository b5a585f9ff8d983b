"""What the state of a session that a service returned says to whoever would change it."""

from __future__ import annotations

__all__ = ["refusal"]


def refusal(argument: str) -> TypeError:
    """The error that says how to make the change; *argument* is what an Event would be given for it."""
    msg = (
        "this state is a copy to read, and a change to it would be lost; append an event instead: "
        f'`await service.append_event(session, Event(author="...", {argument}))`, '
        "or, in an agent, a tool or a callback, write to `ctx.state`"
    )
    return TypeError(msg)
