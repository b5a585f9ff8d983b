"""
What goes wrong in a world: which of what may (`_faults`), when, to whom, and how.

It strikes at a step of the schedule (processes die or stand still, the clock jumps), and at a point that a task of the
runtime passes (models, tools). A store has faults of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import trio

from ..errors import ModelError
from ._faults import Rates, SimulatedFault

if TYPE_CHECKING:
    from ._world import World

__all__ = ["DEATHS_MAX", "Mishaps"]

# How often processes may die in one simulation: enough for a crash during the recovery from a crash.
DEATHS_MAX = 3
# How long a process may stand still: longer than its leases last.
STALLS_S = (1.0, 20.0, 60.0)
# How long a model or a tool hangs: longer than leases last, and shorter than a run may take, if its RunConfig does not
# say so. A process that waits for it on a file looks four times a second, and each look is a step.
HANGS_S = 240.0
CLOCK_JUMPS_S = (-3600.0, -1.0, 3600.0)

# The points at which the runtime asks a model, calls a tool (again), and has its result. A place follows, which ends
# with the id of the call.
MODEL = "model "
TOOL = "tool "
RETRY = "retry of "
RESULT = "result of "


def _never(kind: str, *words: str) -> bool:
    return False


class Mishaps:
    """What goes wrong in one world, until it is healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._choices = world.choices
        self._schedule = world.schedule
        self._processes = world._processes
        self._rates = Rates(world.choices, world.faults, world.store.faults)
        self.is_healed = False
        self._clock_offset_max_s = 0.0
        self.strikes = self._rates.strikes if world.faults else _never
        """Whether something of a kind goes wrong now; see `Rates.strikes`."""

    def told(self) -> dict[str, int]:
        """Which of the faults that were named could strike in this world, and how often each has."""
        return self._rates.told()

    def heal(self) -> None:
        """Nothing goes wrong from now on, and clocks that were set back are set right: leases run out."""
        self.is_healed = True
        self.strikes = _never
        self._schedule.stalled.clear()
        self._world.machine.clock_offset_s = self._clock_offset_max_s

    def step(self) -> None:
        """Let something go wrong, or nothing, before the schedule goes on."""
        if not self._world.faults:
            return
        self._world.store.step()
        living = self._processes.living()
        if not living:
            return
        if self._processes.deaths < DEATHS_MAX and self.strikes("death", "a process is killed"):
            victim = living[self._choices.choose(len(living), "which process is killed")]
            self._processes.die(victim, "is killed")
        elif self.strikes("clock", "the clock on the wall jumps"):
            jump = CLOCK_JUMPS_S[self._choices.choose(len(CLOCK_JUMPS_S), "by how much")]
            self._world.machine.clock_offset_s += jump
            self._clock_offset_max_s = max(self._clock_offset_max_s, self._world.machine.clock_offset_s)
            self._world.reached("clock set back" if jump < 0 else "clock set forward")
            self._world.note("the clock", f"jumps by {jump:+.0f} s")
        elif len(living) > 1 and self.strikes("stall", "a process stands still"):
            victim = living[self._choices.choose(len(living), "which process stands still")]
            how_long = STALLS_S[self._choices.choose(len(STALLS_S), "for how long")]
            self._schedule.stalled[self._processes.path_of(victim)] = trio.current_time() + how_long
            self._world.reached("stall")
            self._world.note(victim.name, f"stands still for {how_long:.0f} s")

    def passed(self, label: str) -> Awaitable[None] | None:
        """A task has passed a point of the runtime's: tell the observers, and let what it stands for go wrong."""
        task = self._schedule.name_of(trio.lowlevel.current_task())
        for observer in self._world.observers:
            observer.point(label, task)
        if label.startswith(MODEL) and self.strikes("model", "the model fails"):
            return self._model_fails()
        if label.startswith((TOOL, RETRY)) and self.strikes("tool", f"the {label.partition('#')[0]} fails"):
            return self._tool_fails(label, task)
        if label.startswith(RESULT) and self.strikes("tool", f"the {label.partition('#')[0]} is lost"):
            self._world.reached("tool: raises after its work")
            raise SimulatedFault(f"the {label} was lost (simulated)")
        return None

    async def _model_fails(self) -> None:
        if self._choices.choose(2, "how the model fails: stalls"):
            self._world.reached("model: stalls")
            await self._world.sleep(HANGS_S)
        else:
            self._world.reached("model: raises")
            raise ModelError("the model is overloaded (simulated)")

    async def _tool_fails(self, label: str, task: str) -> None:
        kinds = ("raises", "slow", "hangs", "cancelled")
        kind = kinds[self._choices.choose(len(kinds), "how the tool fails", names=kinds)]
        self._world.reached(f"tool: {kind}")
        if kind == "raises":
            raise SimulatedFault(f"{label} failed (simulated)")
        if kind == "cancelled":
            for token, scope in self._world._leavers.items():
                if f"/say {token}/" in f"{task}/":
                    scope.cancel()
        await self._world.sleep({"slow": 5, "hangs": HANGS_S}.get(kind, 0))
