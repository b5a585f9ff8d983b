"""The Env of a simulated process: virtual time, ids that follow from names, no threads, and gates at every point."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import attrs
import trio

from .._web import Web, WebAnswer, WebFailedError
from ..env import Env, HostThread
from ..errors import NotSupportedError, StorageRolledBackError
from ._schedule import Schedule

__all__ = ["EPOCH_S", "Machine", "SimulatedEnv"]

T = TypeVar("T")

# When simulations begin, on the wall clock: 1 January 2030.
EPOCH_S = 1_893_456_000.0


@attrs.define(eq=False)
class Machine:
    """What the processes of a world share beside the store: the schedule, the clock on the wall."""

    schedule: Schedule
    passed: Callable[[str], Awaitable[None] | None]
    """Told of every point that a task has passed, before it goes on; what it returns is awaited there."""
    clock_offset_s: float = 0.0
    web: Web | None = None
    """What stands in the place of the web."""


def _never() -> bool:
    return False


@attrs.frozen(eq=False)
class SimulatedEnv(Env):
    """What one process of a simulated world sees of it; its number tells it from the others."""

    machine: Machine
    number: int
    is_dead: Callable[[], bool] = _never
    _counts: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    def now(self) -> float:
        """Virtual time, in whole microseconds, so that sums of delays print alike everywhere."""
        return round(EPOCH_S + trio.current_time() + self.machine.clock_offset_s, 6)

    def steady(self) -> float:
        """Virtual time, which the wall clock's steps do not move."""
        return round(trio.current_time(), 6)

    def boot(self) -> str:
        """The same for all processes of the world, whose virtual time goes on over power cuts."""
        return "world"

    def new_id(self, path: str) -> str:
        """An id that follows from the task, what it is for, and how many of these the task has made."""
        return self._digest(path).hexdigest()

    def random(self, path: str) -> float:
        """A number that follows from the same."""
        return int.from_bytes(self._digest(path).digest()[:7], "big") / 2**56

    def _digest(self, path: str) -> hashlib.blake2b:
        try:
            task = self.machine.schedule.name_of(trio.lowlevel.current_task())
        except RuntimeError:  # outside of trio
            task = ""
        self._counts[task, path] += 1
        text = f"{self.number}\0{task}\0{path}\0{self._counts[task, path]}"
        return hashlib.blake2b(text.encode(), digest_size=16)

    async def sleep(self, seconds: float) -> None:
        """Sleep in virtual time, then park: who wakes at the same moment goes on in the schedule's order."""
        await trio.sleep(seconds)
        await self.machine.schedule.point("sleep")

    async def run_sync(
        self,
        fn: Callable[[], T],
        *,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> T:
        """Call *fn* here, between two points: others may go on before it and after it, as with a thread."""
        await self.machine.schedule.point("thread begins")
        try:
            return fn()
        finally:
            with trio.CancelScope(shield=not abandon_on_cancel):
                await self.machine.schedule.point("thread ends")

    @property
    def lives(self) -> bool:
        """Whether the process is not dead."""
        return not self.is_dead()

    def refuse_if_dead(self) -> None:
        """
        Let a task of a dead process do nothing; users and other programs may go on.

        Raises:
            StorageRolledBackError: The current task is of this process, which is dead.
        """
        if self.is_dead():
            name = self.machine.schedule.name_of(trio.lowlevel.current_task())
            if f"/process {self.number}/" in f"{name}/":
                raise StorageRolledBackError("this process is dead")

    def web(self) -> Web:
        """
        What the scenario has put in the place of the web, as this process reaches it.

        Raises:
            NotSupportedError: It has put nothing there.
        """
        if self.machine.web is None:
            raise NotSupportedError("a simulated world has no web; put one there: world.serve_web(...)")
        return _WebOfProcess(self, self.machine.web)

    async def point(self, label: str) -> None:
        """Park until the schedule lets this task go on."""
        await self.machine.schedule.point(label)
        meanwhile = self.machine.passed(label)
        if meanwhile is not None:
            await meanwhile

    def start_thread(self, body: Callable[[], None], name: str) -> HostThread:
        """Refused: a thread's turns are the operating system's choice."""
        msg = "Runner.run() needs a thread of its own, which a simulation cannot schedule; use run_async"
        raise NotSupportedError(msg)


class _WebOfProcess(Web):
    """The web of a world, as one process reaches it: the dead ask nothing, and are answered nothing."""

    def __init__(self, env: SimulatedEnv, web: Web) -> None:
        self._env = env
        self._web = web

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        timeout_s: float,
        bytes_max: int,
    ) -> WebAnswer:
        """See `Web.request`."""
        await self._env.point("ask a server")
        self._env.refuse_if_dead()
        try:
            with trio.fail_after(timeout_s):
                answer = await self._web.request(
                    method, url, headers=headers, content=content, timeout_s=timeout_s, bytes_max=bytes_max
                )
        except trio.TooSlowError:
            raise WebFailedError(f"there was no answer within {timeout_s:g} s", is_timeout=True) from None
        await self._env.point("a server has answered")
        self._env.refuse_if_dead()
        return answer

    async def aclose(self) -> None:
        """There is nothing to be closed."""
