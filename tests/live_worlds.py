"""
A world in which a user calls an agent again and again: lines drop, processes die, disks fail, and no call is lost.

Each call is a plan (`live_plans.py`) that follows from the world's choices. What must hold of a call that has come to
its end are the laws of live conversations (`live_laws.py`); of one whose process has died, or whose disk has failed,
those that do not need an end. The simulation itself checks what must hold in every world.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio

from minirun import Event, LlmAgent, Runner
from minirun.agents import BaseAgent
from minirun.errors import SessionBusyError, StaleSessionError, StorageError
from minirun.models import BaseLlm, LlmRequest
from minirun.sessions import InvocationStatus
from minirun.simulation import World

from .helpers import Place
from .laws import expect, read_logs
from .live_laws import check, check_cut_off
from .live_plans import CALM, WILD, drawn
from .live_talks import Book, agent_of, book_of, talk
from .simulation.stores import Scenario

__all__ = ["LIVE", "calls"]

CALLS = 3
PLACE: Place = {"user_id": "ada", "session_id": "ada"}


class Operator(BaseLlm):
    """A model that is another scripted server in each call."""

    name = "operator"

    def __init__(self) -> None:
        self.book: Book | None = None

    def connect(self, request: LlmRequest) -> AbstractAsyncContextManager[Any]:
        """Connect to the server of the present call."""
        assert self.book is not None
        return self.book.model.connect(request)

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> Any:
        """Nobody asks in writing."""
        raise NotImplementedError


@attrs.define
class Call:
    """A call, and how far it has come."""

    book: Book
    has_ended: bool = False
    """The client was told its end, whatever that was."""
    has_trouble: bool = False
    """It could not begin, or its store has failed."""


async def calls(world: World) -> None:
    """A user calls an agent three times, whoever answers; then once more, when nothing goes wrong any more."""
    made: list[Call] = []
    mood = WILD if "model" in world.faults else CALM
    ringing = 0

    def agent() -> BaseAgent:
        made_of = agent_of(book_of(drawn(world.choices, CALM)), world.sleep)
        return LlmAgent(name=made_of.name, model=Operator(), tools=made_of.tools, model_retry=made_of.model_retry)

    async def call_up(runner: Runner, call: Call) -> None:
        model = runner.agent.model  # type: ignore[attr-defined]  # it is an LlmAgent
        model.book = call.book
        try:
            await talk(call.book, runner, PLACE, world.sleep)
            await trio.lowlevel.checkpoint_if_cancelled()  # by the death of its process: then it has no end
            call.has_ended = True
            call.has_trouble = call.book.trouble is not None
        except (StorageError, StaleSessionError, SessionBusyError) as error:
            call.has_trouble = True
            world.reached(f"a call has met {type(error).__name__}")

    async def user(runner: Runner) -> None:
        nonlocal ringing
        while len(made) < CALLS:
            call = Call(book_of(drawn(world.choices, mood)))
            made.append(call)
            ringing += 1
            try:
                await call_up(runner, call)
            finally:
                ringing -= 1
            await world.sleep(1)

    runner = world.runner(agent)
    world.host(runner, user)
    while len(made) < CALLS or ringing:
        await world.sleep(1)
    await world.heal()
    await world.sleep(200)  # until nobody holds the lease of a dead process
    last = Call(book_of(drawn(world.choices, CALM)))
    made.append(last)
    await call_up(runner, last)
    expect(last.has_ended, "nothing goes wrong any more, and a call does not come to its end")
    await _check(world, runner, made)


async def _check(world: World, runner: Runner, made: list[Call]) -> None:
    logs = await read_logs(world, runner)
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    statuses = {one.invocation_id: one.status for one in listed}
    log: list[Event] = logs.get((PLACE["user_id"], PLACE["session_id"]), [])
    _answers_stand_after_their_calls(world, log)
    for call in made:
        run = call.book.run
        if run is None:
            continue
        own = [event for event in log if event.invocation_id == run.invocation_id]
        status = statuses[run.invocation_id]
        if call.has_ended and not call.has_trouble:
            is_known = status is not InvocationStatus.INTERRUPTED or "crash" not in world.faults
            known = status if is_known else run.status  # else a crash has taken its end
            check(call.book, own, known, store_fails="storage" in world.faults)
            world.reached(f"call {status}")
            continue
        check_cut_off(call.book, own)
        ends = (InvocationStatus.INTERRUPTED, InvocationStatus.FAILED, InvocationStatus.CANCELLED)
        is_over = status in ends or status is InvocationStatus.COMPLETED  # it had ended when its process died
        expect(is_over, f"a call was cut off by a crash, and is listed as {status}")
        world.reached(f"call cut off: {status}")


def _answers_stand_after_their_calls(world: World, log: list[Event]) -> None:
    """Every call of a tool is answered once, also that of a process that has died: by the next run."""
    is_open: set[str | None] = set()
    for event in log:
        for response in event.get_function_responses():
            expect(response.id in is_open, f"event {event.seq} answers {response.id}, which is not open")
            is_open.remove(response.id)
        is_open.update(made.id for made in event.get_function_calls())
        if (event.live or {}).get("begins"):
            expect(not is_open, f"the calls {is_open} are open while another call begins")
    expect(not is_open, f"the calls {is_open} were never answered")


ALL = ("crash", "storage", "model", "tools")

LIVE: dict[str, tuple[Scenario, Any]] = {
    "calm calls in memory": (calls, {"faults": (), "storage": "memory", "processes": 1}),
    "calls over bad lines": (calls, {"faults": ("model",), "storage": "memory", "processes": 1}),
    "calls in memory": (calls, {"faults": ("crash", "model", "tools"), "storage": "memory", "processes": 1}),
    "calls on disk": (calls, {"faults": ALL, "storage": "sqlite", "processes": 1}),
    "calls in two processes": (calls, {"faults": ALL, "storage": "sqlite", "processes": 2}),
}
"""What `simulate` is given, by name."""
