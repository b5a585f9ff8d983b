"""
The clock of the `trio.run` of a world, which begins at 0.

It is a MockClock of trio's, which jumps to the next deadline where nothing can go on before. Two things differ. What
trio asks in each round of its loop is answered from here, for MockClock would ask the real clock each time. And where
all tasks wait, the world is asked first: it may let one go on that is parked (`_schedule`).
"""

from __future__ import annotations

from typing import Protocol

from trio.testing import MockClock

__all__ = ["world_clock"]

# What a MockClock answers if time that passes by itself wakes no task.
NEVER_S = 999_999_999.0


class Timed(Protocol):
    """A world, as far as time is concerned."""

    def is_idle(self, deadline: float) -> bool:
        """All tasks wait, at least until *deadline*: let one go on, or return False, so that time jumps."""

    def may_jump(self, seconds: float) -> bool:
        """Whether time may jump, now that all tasks are at rest."""


def world_clock(world: Timed) -> MockClock:
    """Return the clock of a world."""
    clock, now = MockClock(autojump_threshold=0), 0.0
    jump = clock.jump

    def sleep_time(deadline: float) -> float:
        return 0 if deadline <= now or world.is_idle(deadline) else NEVER_S

    def jumped(seconds: float) -> None:
        nonlocal now
        if world.may_jump(seconds):
            jump(seconds)  # refuses to go back
            now += seconds

    # the class is final
    clock.current_time = lambda: now  # type: ignore[method-assign]
    clock.deadline_to_sleep_time = sleep_time  # type: ignore[method-assign]
    clock.jump = jumped  # type: ignore[method-assign]
    return clock
