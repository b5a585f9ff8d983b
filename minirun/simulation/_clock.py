"""
The clock of a `trio.run` in which worlds live, one after another: each begins at 0.

It is a MockClock of trio's, which jumps to the next deadline where nothing can go on before. Two things differ. What
trio asks in each round of its loop is answered from here, for MockClock would ask the real clock each time. And where
all tasks wait, the world is asked first: it may let one go on that is parked (`_schedule`).
"""

from __future__ import annotations

from typing import Protocol

from trio.testing import MockClock

__all__ = ["WorldClock"]

# What a MockClock answers where nobody has to be woken by time that passes by itself.
NEVER_S = 999_999_999.0


class Timed(Protocol):
    """A world, as far as time is concerned."""

    def is_idle(self, deadline: float) -> bool:
        """All tasks wait, at least until *deadline*: let one go on, or return False, so that time jumps."""

    def may_jump(self, seconds: float) -> bool:
        """Whether time may jump, now that all tasks are at rest."""


class WorldClock:
    """Virtual time; `clock` is what trio is given."""

    def __init__(self) -> None:
        self.clock = MockClock(autojump_threshold=0)
        self._jump = self.clock.jump
        self._now = 0.0
        self._world: Timed | None = None
        # the class is final
        self.clock.current_time = self._current_time  # type: ignore[method-assign]
        self.clock.deadline_to_sleep_time = self._sleep_time  # type: ignore[method-assign]
        self.clock.jump = self._jumped  # type: ignore[method-assign]

    def begin(self, world: Timed) -> None:
        """Let the time of *world* begin; nothing waits for that of another one any more."""
        self._world = world
        self._now = 0.0

    def end(self, afterwards: Timed | None) -> None:
        """There is no world any more; what is left is watched by *afterwards*, if the run goes on."""
        self._world = afterwards

    def _current_time(self) -> float:
        return self._now

    def _sleep_time(self, deadline: float) -> float:
        if deadline <= self._now or (self._world is not None and self._world.is_idle(deadline)):
            return 0
        return NEVER_S

    def _jumped(self, seconds: float) -> None:
        if self._world is None or self._world.may_jump(seconds):
            self._jump(seconds)  # refuses to go back
            self._now += seconds
