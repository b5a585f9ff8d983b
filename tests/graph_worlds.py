"""
Worlds of workflows: a graph is drawn from the choices, and users, supervisors and crashes do with it what they do.

What is true of the logs is checked by graphs.py; what happens meanwhile, here: nothing recorded is done again, no
attempt that has failed is made again, and what one outcome leads to begins in the order of declaration.
"""

from __future__ import annotations

from collections import defaultdict

from minirun import InvocationContext
from minirun.sessions import InvocationStatus
from minirun.simulation import World

from .graph_laws import attempts_in, check_graph_log
from .graphs import Ground, build
from .laws import Log, expect, read_logs
from .sketches import Sketch, draw
from .waiting import ENDS, WAIT_S, Outside, by_invocation, check_answered, live, may_run_twice, steps_of

__all__ = ["graphs"]


class WorldGround(Ground):
    """Effects take their time, and are looked at."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.outside = Outside(world)
        self.begun: dict[str, list[str]] = defaultdict(list)
        """By invocation: the runs of nodes, each where its logic was called first."""

    async def enter(self, ctx: InvocationContext) -> None:
        """Check that there is a reason: the run has not ended, nor has this attempt."""
        world, path = self._world, ctx._path
        world.reached("a node is entered")
        if path not in self.begun[ctx.invocation_id]:
            self.begun[ctx.invocation_id].append(path)
        stored = [] if may_run_twice(world) else self._stored(ctx.invocation_id)
        if path in (event.actions.replay.ended for event in stored):
            law = "a node that has ended is not run again"
            world._fail(f"{law}: {path}", law)
        if (path, ctx.attempt_count) in attempts_in(stored):
            law = "an attempt that has failed is not made again"
            world._fail(f"{law}: {path}, attempt {ctx.attempt_count}", law)
        await world.sleep(world.choices.choose(2, "the node takes its time"))

    def _stored(self, invocation_id: str) -> Log:
        logs = self._world._ledger.logs.values()
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


async def graphs(world: World) -> None:
    """Two users talk to a workflow that the choices have drawn, answer what it asks, and wait."""
    sketch = draw(world.choices)
    ground = WorldGround(world)
    for _, draft in sketch.all():
        world.reached(f"a node {draft.kind}")
    runner = world.runner(lambda: build(sketch, ground))
    people = await live(world, runner)
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
