"""
A world in which people and programs control what a model does: calls are allowed, edited and refused, answers refused.

A clerk pays what users want. Each payment is asked about; who answers allows it, writes other arguments, some of which
do not fit, or refuses it. What the clerk then says pleases nobody: its validator refuses every answer. Processes die
meanwhile, and whoever comes goes on.
"""

from __future__ import annotations

from typing import Any

import trio

from minirun import LlmAgent
from minirun.errors import InvalidMessageError, ModelRetry, OutputSchemaError, SessionNotFoundError
from minirun.models import LlmRequest
from minirun.runtime import CallbackContext
from minirun.sessions import PendingCall
from minirun.simulation import World
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, ToolContext
from minirun.types import Content, FunctionDeclaration

from .helpers import Place
from .laws import check_shown, expect, read_logs
from .simulation.stores import Scenario
from .waiting import EXPECTED, SESSION, People, by_invocation, check_answered

__all__ = ["CONTROL"]

RETRIES = 2


class Pay(BaseTool):
    """Pays; it trusts its arguments, as every tool with a schema may."""

    def __init__(self, world: World) -> None:
        super().__init__(name="pay", description="Pay.", require_confirmation=True, on_interrupted="rerun")
        self._world = world

    @property
    def declaration(self) -> FunctionDeclaration:
        """What it takes."""
        properties = {"to": {"type": "string"}, "amount": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "required": ["to", "amount"]}
        return FunctionDeclaration(name="pay", description="Pay.", parameters=schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Pay."""
        expect(type(args.get("amount")) is int, f"the tool was called with {args}, which does not fit its schema")
        expect(tool_context.tool_confirmation is not None, "a call was made that nobody has allowed")
        await self._world.sleep(self._world.choices.choose(2, "paying takes its time"))
        return args["amount"]


class Editors(People):
    """Users who allow calls, edit them and refuse them."""

    def reply(self, question: PendingCall) -> Content:
        """One of the answers that there are."""
        what = self._world.choices.choose(4, "what is answered")
        self._world.reached(("allowed", "edited", "edited wrongly", "refused")[what])
        if what == 3:
            return question.reply(False, message="not now")
        amount: Any = {1: 2, 2: "much"}.get(what)
        return question.reply(True, args=None if amount is None else {"to": "bob", "amount": amount})

    async def _send(self, user: str, question: PendingCall, *, wrongly: bool) -> None:
        try:
            await self._world.say(self._runner, user, self.reply(question), session_id=SESSION)
        except (InvalidMessageError, SessionNotFoundError):
            self._world.reached("an answer that came too late was refused")
        except self.expected as error:
            self._world.reached(f"the run failed: {type(error).__name__}")

    async def _settle_question(self, question: PendingCall) -> None:
        place: Place = {"user_id": question.user_id, "session_id": question.session_id}
        try:
            async with self._runner.run_async(**place, new_message=self.reply(question)) as run:
                await run.wait()
        except self.expected as error:
            self._world.reached(f"the run failed: {type(error).__name__}")


async def clerk(world: World) -> None:
    """No call is made with arguments that do not fit, and no answer is refused more often than is allowed."""

    def script(request: LlmRequest) -> Any:
        if not world.coverage["asked again after a crash"]:  # else one payment waits while the other one is asked for
            check_shown(request)
        last = request.contents[-1].parts[-1]
        return call("pay", to="eve", amount=5) if last.text in ("pay", "bye") else "It is paid."

    def never(ctx: CallbackContext, answer: str) -> str:
        raise ModelRetry("say please")

    def agent() -> LlmAgent:
        model = ScriptedLlm(script)
        return LlmAgent(name="clerk", model=model, tools=[Pay(world)], output_validator=never, output_retries=RETRIES)

    runner = world.runner(agent)
    people = Editors(world, runner)
    people.expected = (*EXPECTED, OutputSchemaError)
    async with trio.open_nursery() as nursery:
        for user in ("ada", "bob"):
            nursery.start_soon(people.talk, user, "pay")
            nursery.start_soon(people.answer, user, 2)
    await people.settle()
    for log in (await read_logs(world, runner)).values():
        for name, events in by_invocation(log).items():
            refused = [event.seq for event in events if event.error_code == "REFUSED_OUTPUT"]
            expect(len(refused) <= RETRIES + 1, f"{name}: the answers {refused} were refused, of {RETRIES + 1}")
            if name not in people.left:
                check_answered(events)


CONTROL: dict[str, tuple[Scenario, Any]] = {
    "clerk in memory": (clerk, {"faults": ("crash",), "storage": "memory", "processes": 1}),
    "clerk on disk": (clerk, {"faults": ("crash", "storage"), "storage": "sqlite", "processes": 1}),
}
