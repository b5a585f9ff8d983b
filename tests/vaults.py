"""
Worlds in which agents need secrets that others give them, take away and let expire, while everything may go wrong.

In the end every invocation has come to its end, has said what it had to say once, and no log has a secret.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import trio

from minirun import BaseAgent, Event, FunctionTool, InvocationContext, LlmAgent, ParallelAgent, Runner
from minirun._codec import to_json
from minirun.credentials import AuthConfig, AuthCredential
from minirun.errors import CredentialRefusedError
from minirun.flows._questions import REQUEST_CREDENTIAL
from minirun.models import LlmRequest
from minirun.sessions import PendingCall
from minirun.simulation import World
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext

from .helpers import Logic
from .laws import expect
from .waiting import (
    Outside,
    People,
    by_invocation,
    check_end,
    completed_of,
    steps_of,
    supervising,
)

__all__ = ["vaults"]


def show_bytes(text: str) -> str:
    """What Python shows of the bytes of a text."""
    return repr(text.encode())


CONFIG = AuthConfig("vault", hint="The key of the vault")
SECRET = "the-secret-of-"
# Before it stands what is written in another way in each of the forms that a text has.
ODD = "cl\u00e9 '\"\n"
FORMS = (str, ascii, repr, json.dumps, partial(json.dumps, ensure_ascii=False), show_bytes)


class Owners(People):
    """Users who have keys, give them when they are asked, and also take them away, or give such as will expire."""

    def __init__(self, world: World, runner: Runner) -> None:
        super().__init__(world, runner)
        self._lends = True
        self._lent = 0

    def _fitting(self, question: PendingCall) -> Any:
        if question.kind != "credential":
            return super()._fitting(question)
        return not (self._lends and self._world.choices.maybe("there will be no key", 6))

    async def _send(self, user: str, question: PendingCall, *, wrongly: bool) -> None:
        if question.kind == "credential" and not self._world.choices.maybe("the key is forgotten", 4):
            await self._give(user)
        await super()._send(user, question, wrongly=wrongly)

    async def _settle_question(self, question: PendingCall) -> None:
        if question.kind == "credential":
            self._lends = False
            await self._give(question.user_id)
        await super()._settle_question(question)

    async def _give(self, user: str) -> None:
        self._lent += 1
        expires_at = self._world.now + 20 if self._lends and self._world.choices.maybe("a key for a while", 3) else None
        credential = AuthCredential("api_key", api_key=f"{ODD}{SECRET}{user}-{self._lent}", expires_at=expires_at)
        service = self._runner.credential_service
        assert service is not None
        await service.save_credential(app_name="app", user_id=user, credential_key="vault", credential=credential)

    async def take(self, user: str, times: int) -> None:
        """Take the key away, now and then."""
        for _ in range(times):
            await self._world.sleep(10 * self._world.choices.choose(3, f"{user} takes time to take the key"))
            service = self._runner.credential_service
            assert service is not None
            await service.delete_credential(app_name="app", user_id=user, credential_key="vault")
            self._world.reached("a key was taken away")


async def vaults(world: World) -> None:
    """An agent needs a key before what it does, between and in tools, alone and beside others."""
    outside = Outside(world)
    known: dict[str, str] = {}  # the newest key, by invocation

    def blurted(ctx: InvocationContext) -> dict[str, str]:
        """The key, in one of the forms in which somebody may say it."""
        form = FORMS[world.choices.choose(len(FORMS), "how the key is said")]
        return {"key": f"see {form(known.get(ctx.invocation_id, 'nothing'))}"}

    async def open_vault(ctx: InvocationContext | ToolContext) -> str:
        try:
            key = (await ctx.request_credential(CONFIG)).reveal()
            expect(key.startswith(f"{ODD}{SECRET}{ctx.user_id}-"), f"{ctx.user_id} has got {key}")
            known[ctx.invocation_id] = key
            return "open"
        except CredentialRefusedError:
            world.reached("a key was refused")
            return "closed"

    async def do(ctx: InvocationContext) -> str:
        async def work() -> str:
            outside.act_in_step(ctx)
            await world.sleep(world.choices.choose(2, "the work takes its time"))
            return "done"

        result: str = await ctx.step("work", work)
        return result

    async def logic(ctx: InvocationContext) -> None:
        ctx.state.add("begun")
        await ctx.emit(Event(message="begun"))
        is_open = await open_vault(ctx)
        await do(ctx)
        await ctx.emit(Event(message="worked", custom_metadata=blurted(ctx)))
        await ctx.request_input("size", response_schema={"type": "integer", "minimum": 1})
        again = await open_vault(ctx)
        [beside] = ctx.agent.sub_agents
        await beside.run_async(ctx)
        world.reached(f"the vault was {is_open}, then {again}")
        ctx.state.add("ended")
        await ctx.emit(Event(message="ended", custom_metadata=blurted(ctx)))

    async def fetch(note: str, tool_context: ToolContext) -> str:
        result = await open_vault(tool_context)
        await world.sleep(world.choices.choose(2, "fetching takes its time"))
        tool_context.state.add("fetched")
        return result

    def script(request: LlmRequest) -> Any:
        own = str(request.config.system_instruction)
        parts = [part for content in request.contents for part in content.parts]
        called = any(part.function_call is not None and own in part.function_call.args.values() for part in parts)
        return "fetched" if called else [call("fetch", note=own), call("fetch", note=own)]

    async def look(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="looking"))
        await open_vault(ctx)
        await ctx.emit(Event(message="looked"))

    def agent() -> BaseAgent:
        model = ScriptedLlm(script)
        tool = FunctionTool(fetch, on_interrupted="rerun")
        fetcher = LlmAgent(name="fetcher", model=model, tools=[tool], instruction=lambda ctx: ctx.invocation_id)
        beside = ParallelAgent(name="beside", sub_agents=[fetcher, Logic(name="looker", logic=look)])
        return Logic(name="vault", logic=logic, sub_agents=[beside])

    runner = world.runner(agent)
    people = Owners(world, runner)
    if world.choices.choose(2, "a supervisor goes on"):
        world.host(runner, supervising(world))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(people.talk, "ada", "one", "two")
        nursery.start_soon(people.answer, "ada", 6)
        nursery.start_soon(people.take, "ada", 3)
        if world.choices.choose(2, "bob has a vault, too"):
            nursery.start_soon(people.talk, "bob", "one")
            nursery.start_soon(people.answer, "bob", 5)
    await people.settle()
    logs = await check_end(world, runner, people)
    completed = await completed_of(runner)
    for log in logs.values():
        for name, own in by_invocation(log).items():
            said = Counter(event.text for event in own if event.author != "user" and event.text)
            expect(max(said.values(), default=1) == 1, f"{name} has said something twice: {said}")
            asked = [c.id for event in own for c in event.get_function_calls() if c.name == REQUEST_CREDENTIAL]
            expect(len(asked) == len(set(asked)), f"{name} has asked {asked}")
            if any(event.actions.replay.early for event in own):
                world.reached("an early question")
            if name in completed:
                expected = {"begun", "worked", "looking", "looked", "fetched", "ended"}
                expect(set(said) == expected, f"{name} was to say {expected}, and has said {said}")
        written = "".join(map(to_json, log))
        expect(SECRET not in written, "a secret is in a log")
    outside.check({key for log in logs.values() for key in steps_of(log, "work")}, completed)
