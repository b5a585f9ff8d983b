"""
Something that a user says, until it is answered.

A user is no process: it asks a living one, in a task of that one, and hears nothing of it once it is dead. Then it
looks whether the answer was stored, and asks again if not. With the fault `users` it is also a user as they are: it
sends things twice, leaves, and loses patience at any step.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import attrs
import trio

from ..errors import SessionBusyError, StaleSessionError, StorageError
from ..events import Event
from ..runners import Runner
from ..runtime import Run, RunConfig
from ..sessions import InvocationStatus, SessionKey
from ..types import Content

if TYPE_CHECKING:
    from ._processes import Process
    from ._world import World

__all__ = ["SAYING", "Saying"]

# What a task is saying, by its token.
SAYING: ContextVar[str] = ContextVar("minirun saying")

# A user who loses patience does so after at most so many turns of its own.
PATIENCE_STEPS_MAX = 16
# A user who is not answered for so many times gives up, and the simulation fails.
ATTEMPTS_MAX = 50

# What holds where a scenario says nothing else.
_USUAL = RunConfig()


class _DiedError(Exception):
    """The process that was asked has died."""


class _LeftError(Exception):
    """The user has left the run."""


@attrs.define
class Saying:
    """Something that a user says, until it is answered."""

    world: World
    runner: Runner
    user_id: str
    session_id: str
    text: str | Content
    run_config: RunConfig | None
    token: str

    async def until_answered(self) -> Event | None:
        world = self.world
        for _ in range(ATTEMPTS_MAX):
            process = await world._processes.any_living()
            try:
                return await self._ask(process)
            except _DiedError:
                world.reached("asked again after a crash")
            except _LeftError:
                world.reached("user left")
            except (StorageError, StaleSessionError, SessionBusyError) as error:
                if world._mishaps.is_healed or not (world.faults & {"crash", "storage"}):
                    raise
                world.reached(f"asked again after {type(error).__name__}")
                await world.sleep(1)
            answered, answer = self._stored_answer()
            if answered:
                world.reached("answer found when asking again")
                return answer
        world.fail(f"{self.user_id} was not answered in {ATTEMPTS_MAX} attempts")
        raise AssertionError

    def _stored_answer(self) -> tuple[bool, Event | None]:
        """Whether what was said is done, and what was answered to it: what a client sees that connects again."""
        if self.token not in self.world.runs_of_users:
            return False, None
        key, invocation, said = self.world.runs_of_users.pop(self.token)
        store, done = self.world.store, (InvocationStatus.COMPLETED, InvocationStatus.PAUSED)
        log = store.log(key)
        is_stored = any((event.seq, event.content) == (said.seq, said.content) for event in log)
        if not is_stored or store.status(key, invocation) not in done:
            return False, None
        answer = None
        for event in log:
            if event.invocation_id == invocation and event.author != "user" and event.content is not None:
                is_final = event.is_final_response() and event.content.role != "user"
                answer = event if is_final else answer
        return True, answer

    async def _ask(self, process: Process) -> Event | None:
        """Ask a process; what it comes to is heard only while the process lives."""
        world = self.world
        if process.is_dead:
            raise _DiedError
        made = next((made for made in world._processes.runners if made.runners[0] is self.runner), None)
        runner = self.runner if made is None else made.runners[process.seat]
        result: list[tuple[Event | None, Exception | None]] = []
        done = trio.Event()
        scope = world._leavers[self.token] = trio.CancelScope()

        async def ask() -> None:
            SAYING.set(self.token)
            try:
                with scope:
                    result.append((await self._converse(runner), None))
            except Exception as error:
                result.append((None, error))
            finally:
                world._leavers.pop(self.token, None)
                done.set()

        twice = world.strikes("user", f"{self.user_id} sends it twice")
        process.nursery.start_soon(ask, name=f"say {self.token}")
        if twice:
            world.reached("double send")
            process.nursery.start_soon(self._ask_beside, runner, name=f"say {self.token} again")
        if world.strikes("user", f"{self.user_id} loses patience"):
            process.nursery.start_soon(self._lose_patience, done, name=f"say {self.token} leaving")
        try:
            await done.wait()
        finally:  # a scenario may cancel what it lets a user say: then the user leaves
            scope.cancel()
            if done.is_set():
                await trio.lowlevel.cancel_shielded_checkpoint()
            else:
                with trio.CancelScope(shield=True):
                    await done.wait()
        await world.schedule.point("heard")
        if process.is_dead:
            raise _DiedError
        if not result:
            raise _LeftError
        answer, error = result[0]
        if error is not None:
            raise error
        return answer

    async def _lose_patience(self, done: trio.Event) -> None:
        """Leave at any step there is, also while something is being stored."""
        for _ in range(1 + self.world.choices.choose(PATIENCE_STEPS_MAX, "after how many steps of patience")):
            await self.world.schedule.point("leaving")
        scope = self.world._leavers.get(self.token)
        if scope is not None and not done.is_set():
            self.world.note(self.user_id, "leaves")
            scope.cancel()

    async def _ask_beside(self, runner: Runner) -> None:
        """Say it on another device; nobody waits for what it comes to but the end of the world."""
        SAYING.set(f"{self.token} again")
        self.world._devices += 1
        try:
            await self._converse(runner)
        except AssertionError:
            raise  # a bug is a bug on whatever device it shows
        except Exception as error:
            self.world.note(self.user_id, f"meets {type(error).__name__} on another device")
        finally:
            self.world._devices -= 1

    async def _converse(self, runner: Runner) -> Event | None:
        world = self.world
        config = self.run_config or _USUAL
        key = SessionKey(runner.app_name, self.user_id, self.session_id)
        seen: list[Event] = []
        scope = runner.run_async(
            user_id=self.user_id, session_id=self.session_id, new_message=self.text, run_config=config
        )
        run: Run | None = None
        try:
            async with scope as run:
                for observer in world.observers:
                    observer.entered(key, run.invocation_id, config)
                async for event in run:
                    if event.seq is not None:
                        seen.append(event)
                        for observer in world.observers:
                            observer.seen(key, run.invocation_id, seen)
                    world.note(self.user_id, "sees", event)
                    await self._live_on()
        finally:
            if run is not None:
                here = world.schedule.name_of(trio.lowlevel.current_task())  # others may go on with the invocation
                living = [name for name in world.schedule.living() if name.startswith(f"{here}/")]
                for observer in world.observers:
                    observer.left(run.invocation_id, living)
        return run.answer

    async def _live_on(self) -> None:
        """What users do between two events: sometimes they are slow, or leave."""
        world = self.world
        if world.strikes("user", f"{self.user_id} leaves"):
            world.note(self.user_id, "leaves")
            scope = world._leavers.get(SAYING.get())
            if scope is None or not world.choices.choose(2, "by a cancellation"):
                raise _LeftError
            scope.cancel()
        elif world.choices.maybe(f"{self.user_id} reads slowly", 16):
            await world.sleep(1)
