"""The worlds in which agents wait: what happens in them, and what a scenario has to let it happen."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from minirun import Event, InvocationContext, Runner
from minirun.errors import ConfigurationError, InvalidMessageError
from minirun.sessions import InvocationStatus
from minirun.simulation import SeededChoices, World
from minirun.simulation._mishaps import HANGS_S

from ..helpers import Logic
from ..worlds import WORLDS
from .stores import Scenario, simulate, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))

ALWAYS = {
    "an answer was taken",
    "what does not fit was refused",
    "a second answer was refused",
    "an answer that came too late was refused",
    "a supervisor was ended",
    "done again, its record was lost",
    "crash",
    "crash in recovery",
}
OF_PEOPLE = {"user left", "double send"}
OF_MODELS = {
    "model: stalls",
    "tool: slow",
    "tool: hangs",
    "tool: raises",
    "tool: raises after its work",
    "tool: cancelled",
}
OF_DISKS = {"power cut", "disk fault", "stall", "lease taken over", "conflict", "stored and not told"}
REACHED: dict[str, set[str]] = {
    "orders in memory": {"what was due went on"},
    "office in memory": {"the run failed: ModelError"} | OF_PEOPLE | OF_MODELS,
    "orders in two processes": {"what was due went on"} | OF_PEOPLE | OF_DISKS,
    "office in two processes": {"the run failed: ModelError"} | OF_PEOPLE | OF_MODELS | OF_DISKS,
}


# Where a few seeds reach all of it; once they do not any more, it only takes longer.
BEGIN = {"orders in memory": 15, "office in memory": 53, "orders in two processes": 37, "office in two processes": 15}


@pytest.mark.parametrize("name", REACHED)
@pytest.mark.parametrize("least", [pytest.param(3, id="some"), pytest.param(100, id="many", marks=pytest.mark.slow)])
def test_whatever_may_happen_to_those_who_wait_does(name: str, least: int) -> None:
    """In a hundred seeds all of it happens, and everything comes to its end; some seeds mostly do, and are all."""
    scenario, options = WORLDS[name]
    wanted = ALWAYS | REACHED[name]
    found: Counter[str] = Counter()
    begin = 0 if least == 100 else BEGIN[name]
    for seed in range(begin, begin + 100):
        if seed >= begin + least and wanted <= set(found):
            break
        outcome = simulate(scenario, SeededChoices(seed), **options)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure!r}"
        found += outcome.coverage
    assert wanted <= set(found), wanted - set(found)


def test_whoever_waits_through_eight_hangs_does_not_take_too_many_steps() -> None:
    """A user of another process, and two supervisors, look again and again; that is no livelock."""

    async def hang(ctx: InvocationContext, world: World) -> None:
        for number in range(8):
            await world.sleep(HANGS_S)
            await ctx.emit(Event(message=f"{number}"))

    async def scenario(world: World) -> None:
        runner = world.runner(Logic(name="agent", logic=lambda ctx: hang(ctx, world)))
        world.host(runner, Runner.supervise)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(world.say, runner, "ada", "go")

    def steps(seed: int) -> int:
        return simulate(scenario, SeededChoices(seed), faults=(), storage="sqlite", processes=2).check().steps

    looks = 8 * HANGS_S * 4
    assert any(steps(seed) > looks for seed in range(5)), "nobody has waited for the lease of another process"


async def ask(ctx: InvocationContext) -> None:
    await ctx.emit(Event(message=f"answered {await ctx.request_input('what?')}"))


def succeeds(scenario: Scenario, seeds: int = 20, *, faults: tuple[str, ...] = ("crash",)) -> Counter[str]:
    """Run the scenario with some seeds; what they have reached."""
    found: Counter[str] = Counter()
    for seed in range(seeds):
        found += simulate(scenario, SeededChoices(seed), faults=faults, storage="memory").check().coverage
    return found


def test_a_user_may_say_an_answer() -> None:
    """`say` takes the reply to a question; said again after a crash it may find that it is stored."""

    async def scenario(world: World) -> None:
        runner = world.runner(Logic(name="agent", logic=ask))
        await world.say(runner, "ada", "go")
        [question, *_] = await runner.session_service.list_pending(app_name="app", user_id="ada")
        try:
            answer = await world.say(runner, "ada", question.reply(7))
        except InvalidMessageError:
            world.reached("stored already")
            return
        assert answer is not None
        assert answer.text == "answered 7"

    assert succeeds(scenario, 60)["stored already"] > 0


def test_every_process_hosts_what_it_is_told_to() -> None:
    """What is hosted is done in each process, with its own runner, from the beginning of the process to its end."""

    async def scenario(world: World) -> None:
        hosts: list[object] = []

        async def host(runner: Runner) -> None:
            hosts.append(runner.session_service)
            try:
                await trio.sleep_forever()
            finally:
                world.reached("ended")

        runner = world.runner(Logic(name="agent", logic=ask))
        world.host(runner, host)
        await world.say(runner, "ada", "go")
        await world.restart()
        await world.restart()
        await world.sleep(1)
        assert len(hosts) == len(set(map(id, hosts))) >= 3

    assert succeeds(scenario, 5)["ended"] >= 10


def test_only_runners_of_the_world_are_hosted() -> None:
    """A runner that the world has not made has no process to be hosted in."""

    async def scenario(world: World) -> None:
        runner = world.runner(Logic(name="agent", logic=ask))
        world.host(Runner(app=runner.app, session_service=runner.session_service), Runner.supervise)

    outcome = simulate(scenario, SeededChoices(1), storage="memory")
    assert isinstance(outcome.failure, ConfigurationError)
    assert "which world.runner() has made" in str(outcome.failure)


def test_nothing_goes_wrong_once_a_world_is_healed() -> None:
    """After `heal` no process dies any more, and what was interrupted comes to its end."""

    async def scenario(world: World) -> None:
        runner = world.runner(Logic(name="agent", logic=ask))
        world.host(runner, Runner.supervise)
        await world.say(runner, "ada", "go")
        await world.heal()
        crashes = world.coverage["crash"]
        await world.sleep(200)
        service = runner.session_service
        assert {one.status for one in await service.list_invocations()} == {InvocationStatus.PAUSED}
        for question in await service.list_pending():
            answer = await world.say(runner, "ada", question.reply(1))
            assert answer is not None
        assert world.coverage["crash"] == crashes

    assert succeeds(scenario)["crash"] > 0
