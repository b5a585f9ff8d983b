"""Credentials when everything may go wrong: in simulated worlds, and cancelled at every step."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minirun import Event, FunctionTool, InvocationContext, LlmAgent, ParallelAgent
from minirun._codec import to_json
from minirun.credentials import AuthConfig, AuthCredential, CredentialKey, InMemoryCredentialService
from minirun.sessions import InMemorySessionService, InvocationStatus
from minirun.simulation import why_unavailable
from minirun.testing import call
from minirun.tools import ToolContext

from ..contracts.credential_contract import check_credential_service
from ..helpers import PLACE, Logic
from ..resuming import steps
from ..seeds import coverage_until
from ..vaults import vaults
from .test_credential_requests import Desk

SECRET = "sk-cancelled-everywhere"
CONFIG = AuthConfig("k")
KEY = AuthCredential("api_key", api_key=SECRET)
WORLDS: dict[str, dict[str, Any]] = {
    "in memory": {"faults": ("crash", "model", "tools", "users"), "storage": "memory", "processes": 1},
    "in two processes": {
        "faults": ("crash", "storage", "model", "tools", "users"),
        "storage": "sqlite",
        "processes": 2,
    },
}
# What has to happen in twenty-five seeds; else they show nothing.
REACHED = {
    "a key was taken away",
    "a key was refused",
    "a second answer was refused",
    "an answer that came too late was refused",
    "an answer was taken",
    "an early question",
    "crash",
    "the vault was closed, then open",
    "the vault was open, then open",
    "what does not fit was refused",
}


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@pytest.mark.parametrize("name", WORLDS)
def test_whoever_needs_a_key_comes_to_an_end(name: str) -> None:
    """In twenty-five seeds all of it happens, each invocation says what it has to say once, and no log has a secret."""
    coverage_until(REACHED, {name: (vaults, WORLDS[name])}, 25)


class Slow(InMemoryCredentialService):
    """As a keyring, it lets others go on before it does what it is asked, and while it does nothing any more."""

    async def _load(self, key: CredentialKey) -> AuthCredential | None:
        await trio.lowlevel.checkpoint()
        found = await super()._load(key)
        await trio.lowlevel.checkpoint()
        return found


async def test_a_service_with_steps_of_its_own_keeps_the_contract() -> None:
    """That it checkpoints after it has looked is nobody's business."""
    await check_credential_service(Slow)


class Scenario:
    """Own logic and a tool beside it, which need a key, do something once, and say so."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def logic(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="begun"))
        (await ctx.request_credential(CONFIG)).reveal()
        await ctx.step("work", self.work)
        await ctx.emit(Event(message="worked"))

    async def work(self) -> str:
        self.done.append("work")
        return "done"

    async def fetch(self, tool_context: ToolContext) -> str:
        """Fetch it."""
        (await tool_context.request_credential(CONFIG)).reveal()
        return "fetched"

    def desk(self) -> Desk:
        tool = FunctionTool(self.fetch, on_interrupted="rerun")
        fetcher = LlmAgent(name="fetcher", model=steps(call("fetch"), "said"), tools=[tool])
        agent = ParallelAgent(name="both", sub_agents=[Logic(name="own", logic=self.logic), fetcher])
        sessions = InMemorySessionService()
        return Desk(agent, sessions, credentials=Slow(env=sessions.env))


class CancelsAfter(trio.abc.Instrument):
    """Cancels a scope when the tasks of the program have taken so many steps."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self.left = steps
        self._scope = scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self._scope.cancel()


async def run_cut_short(desk: Desk, after: int, message: Any, **options: Any) -> bool:
    """Run it as a supervisor does, cancelled after so many steps; whether it came to its end or its wait before."""
    with trio.CancelScope() as scope:
        instrument = CancelsAfter(after, scope)
        trio.lowlevel.add_instrument(instrument)
        try:
            async with desk.runner.run_async(**PLACE, new_message=message, **options).supervised(None) as run:
                await run.wait()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return instrument.left > 0


async def to_its_end(desk: Desk) -> None:
    """Go on with what was interrupted, and provide what is asked for, until nothing is left to do."""
    for _ in range(10):
        listed = await desk.sessions.list_invocations(app_name="app")
        left = [one for one in listed if one.status is InvocationStatus.INTERRUPTED]
        pending = await desk.pending()
        if left:
            await desk.run(None, invocation_id=left[0].invocation_id)
        elif pending:
            await desk.run(await desk.runner.provide_credential(pending[0], KEY))
        else:
            return
    pytest.fail("something is left after ten rounds")


@pytest.mark.parametrize("when", ["asking", "answering", "asking again"])
async def test_cancelled_at_any_step_it_can_be_gone_on_with(when: str) -> None:
    """While it asks, is answered, or asks again: what is said and done is there once, and no secret is."""
    for after in range(1, 1000):
        scenario = Scenario()
        desk = scenario.desk()
        if when == "asking":
            finished = await run_cut_short(desk, after, "go")
        else:
            await desk.run()
            if when == "asking again":
                await desk.save(KEY, "k")
                await desk.run((await desk.pending())[0].reply(True))
                await desk.forget("k")
            message = await desk.runner.provide_credential((await desk.pending())[0], KEY)
            finished = await run_cut_short(desk, after, message)
        if not await desk.sessions.list_invocations(app_name="app"):
            await desk.run()  # it was cancelled before it had begun
        await to_its_end(desk)
        [invocation] = await desk.sessions.list_invocations(app_name="app")
        assert invocation.status is InvocationStatus.COMPLETED, after
        log = await desk.log()
        said = [event.text for event in log if event.author != "user" and event.text]
        assert sorted(said) == ["begun", "said", "worked"], after
        calls = [c.id for event in log for c in event.get_function_calls()]
        answers = [r.id for event in log for r in event.get_function_responses()]
        assert sorted(map(str, calls)) == sorted(map(str, answers)), after
        assert len(calls) == len(set(calls))
        assert len(scenario.done) in (1, 2), after  # a step may be cut off before it is recorded
        assert SECRET not in "".join(map(to_json, log))
        if finished:
            break
    print(f"{when}: cancelled after each of {after} steps")
    assert 20 < after < 999
