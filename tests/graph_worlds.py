"""
Worlds of workflows: a graph is drawn from the choices, and users, supervisors and crashes do with it what they do.

What is true of the logs is checked by graphs.py; what happens meanwhile, here: nothing recorded is done again, no
attempt that has failed is made again, and what one outcome leads to begins in the order of declaration.
"""

from __future__ import annotations

from collections import defaultdict

from minirun import InvocationContext, Runner
from minirun.errors import NodeTimeoutError, NotResumableError, SessionBusyError, StorageError
from minirun.sessions import Invocation, InvocationStatus
from minirun.simulation import World
from minirun.workflow._tool_node import ToolNodeError

from .graph_laws import attempts_in, check_graph_log
from .graphs import BrokenError, Ground, build
from .laws import Log, expect, read_logs
from .simulation.stores import checks_of
from .sketches import Sketch, draw
from .waiting import (
    ENDS,
    EXPECTED,
    LOOK_S,
    WAIT_S,
    Outside,
    People,
    by_invocation,
    check_answered,
    live,
    may_run_twice,
    steps_of,
)

__all__ = ["graphs"]

BREAKS_MAX = 2


class WorldGround(Ground):
    """Effects take their time, and are looked at."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.outside = Outside(world)
        self.begun: dict[str, list[str]] = defaultdict(list)
        """By invocation: the runs of nodes, each where its logic was called first."""
        self.is_mended = False
        """Whether nothing here breaks any more."""
        self.breaks = 0

    async def enter(self, ctx: InvocationContext) -> None:
        """Check that there is a reason: the run has not ended, nor has this attempt."""
        world, path = self._world, ctx._path
        world.reached("a node is entered")
        if path not in self.begun[ctx.invocation_id]:
            self.begun[ctx.invocation_id].append(path)
        stored = [] if may_run_twice(world) else self._stored(ctx.invocation_id)
        if path in (event.actions.replay.ended for event in stored):
            law = "a node that has ended is not run again"
            world.fail(f"{law}: {path}", law)
        if (path, ctx.attempt_count) in attempts_in(stored):
            law = "an attempt that has failed is not made again"
            world.fail(f"{law}: {path}, attempt {ctx.attempt_count}", law)
        await world.sleep(world.choices.choose(2, "the node takes its time"))

    def stumble(self, *, in_step: bool = False) -> None:
        """Fail now and then: a node, a model or a tool. (Who tries a step again that has failed has another record.)"""
        if in_step or self.is_mended or self.breaks == BREAKS_MAX or "crash" not in self._world.faults:
            return
        if self._world.choices.maybe("something breaks", 24):
            self.breaks += 1
            self._world.reached("something has broken")
            raise BrokenError

    def _stored(self, invocation_id: str) -> Log:
        logs = checks_of(self._world).ledger.logs.values()
        return [event for log in logs for event in log if event.invocation_id == invocation_id]

    async def effect(self, key: str, invocation_id: str) -> None:
        """Do it, before or after others go on."""
        await self._world.sleep(self._world.choices.choose(2, "the work takes its time"))
        self.outside.act(key)
        await self._world.sleep(self._world.choices.choose(2, "the work takes its time"))

    async def until(self, ctx: InvocationContext) -> float:
        """Some time from when that was asked first."""

        def when() -> float:
            return self._world.now + WAIT_S

        return float(await ctx.step("when", when))


class Persistent(People):
    """They go on with what has failed, or was left: now and then, and, once nothing breaks any more, with all of it."""

    def __init__(self, world: World, runner: Runner, ground: WorldGround) -> None:
        super().__init__(world, runner)
        self._ground = ground
        self.expected = (*EXPECTED, BrokenError, ToolNodeError, NodeTimeoutError)

    async def goes_on(self, runner: Runner) -> None:
        """A process in which somebody looks now and then for what can be gone on with."""
        world = self._world
        while True:
            await world.sleep(LOOK_S * (1 + world.choices.choose(3, "when somebody looks at what has failed")))
            try:
                found = await self._ended()
            except StorageError:
                continue
            if self._ground.is_mended:
                return
            for one in found[:1]:
                await self._try_again(runner, one)

    async def _close_what_is_left(self) -> None:
        """First let all that can come to their end do so."""
        self._ground.is_mended = True
        found = await self._ended()
        for one in found:
            await self._try_again(self._runner, one)
        if found:
            return await self.settle()
        await super()._close_what_is_left()

    async def _ended(self) -> list[Invocation]:
        """The newest invocations of sessions, if they have failed or were cancelled."""
        listed = await self._runner.session_service.list_invocations(app_name=self._runner.app_name)
        newest: dict[tuple[str, str], Invocation] = {}
        for one in sorted(listed, key=lambda one: one.seq):
            newest[one.user_id, one.session_id] = one
        return [one for one in newest.values() if one.status in (InvocationStatus.FAILED, InvocationStatus.CANCELLED)]

    async def _try_again(self, runner: Runner, one: Invocation) -> None:
        world = self._world
        try:
            async with runner.run_async(
                user_id=one.user_id, session_id=one.session_id, invocation_id=one.invocation_id
            ) as run:
                await run.wait()
        except (NotResumableError, SessionBusyError):
            expect(not self._ground.is_mended, f"{one} was not gone on with")
            world.reached("it was too late to go on")
        except self.expected as error:
            expect(not self._ground.is_mended, f"{one} was gone on with, and has failed with {error!r}")
            world.reached(f"what was gone on with has failed: {type(error).__name__}")
        else:
            world.reached(f"somebody has gone on with what was {one.status}")


async def graphs(world: World) -> None:
    """Two users talk to a workflow that the choices have drawn, answer what it asks, and wait."""
    sketch = draw(world.choices)
    ground = WorldGround(world)
    for _, draft in sketch.all():
        world.reached(f"a node {draft.kind}")
    runner = world.runner(lambda: build(sketch, ground))
    people = Persistent(world, runner, ground)
    if world.choices.maybe("somebody goes on with what has failed", 2):
        world.host(runner, people.goes_on)
    await live(world, runner, people)
    logs = await read_logs(world, runner)
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    status = {one.invocation_id: one.status for one in listed}
    left = [f"{name}: {each}" for name, each in status.items() if each not in ENDS]
    expect(not left, f"invocations have not ended: {left}")
    records: set[str] = set()
    for log in logs.values():
        check_answered(log)
        records |= steps_of(log, "act")
        for event in log:
            records |= {one.id or "" for one in event.get_function_responses() if "result" in one.response} & {
                *ground.outside.times
            }
        for name, own in by_invocation(log).items():
            if name in people.left:
                continue
            is_over = status[name] is InvocationStatus.COMPLETED
            check_graph_log(sketch, own, is_over=is_over)
            world.reached("a workflow has come to its end" if is_over else "a workflow has not come to its end")
            if not may_run_twice(world):
                check_order(sketch, ground.begun[name])
    ground.outside.check(records, set())


def check_order(sketch: Sketch, begun: list[str]) -> None:
    """Check that nodes that START leads to begin in the order of declaration, where one runs at a time."""
    if sketch.limit != 1:
        return
    first = [f"run/{sketch.name}/{name}@1" for name in sketch.start]
    found = [path for path in begun if path in first]
    expected = [path for path in first if path in found]
    expect(found == expected, f"START leads to {expected}, and {found} have begun")
