"""
A simulated world of live runs: a user types, speaks, interrupts, replies, closes or leaves; connections drop, processes
die, disks fail.

What must hold of every run is in `check`; the simulation itself checks the order and durability of what was seen. The
scripted server is strict: a response too many, a content twice, a wrong truncation fail the run with a ScriptError.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import trio

from minirun import Event, LlmAgent, Runner
from minirun.agents import BaseAgent
from minirun.errors import (
    InvalidMessageError,
    InvocationEndedError,
    ModelError,
    SessionBusyError,
    StaleSessionError,
    StorageError,
)
from minirun.sessions import InvocationStatus
from minirun.simulation import World
from minirun.testing import LiveSent, ScriptedLive, call, cancel_calls, drop, go_away, handle, hear, pause, say
from minirun.tools import FunctionTool

from .helpers import Place
from .laws import expect, read_logs
from .simulation.stores import Scenario

__all__ = ["LIVE", "talks"]

RUNS, DEEDS = 3, 5
PLACE: Place = {"user_id": "ada", "session_id": "ada"}
SAID = "one two three four"


@attrs.define
class Talk:
    """One live run, as its user sees it."""

    invocation_id: str = ""
    typed: list[str] = attrs.Factory(list)
    """The ids of the messages that were sent, in order."""
    texts: list[str] = attrs.Factory(list)
    """Texts that a partial event has shown."""
    has_ended: bool = False
    """The user has left it or heard it out, and nothing has failed."""
    is_closed: bool = False
    """The user has closed it, and heard it out, and nothing has failed."""


def server(world: World, dialect: Any) -> ScriptedLive:
    """A server that answers as the world chooses."""

    def answer(sent: LiveSent) -> Any:
        spoken: list[Any] = [hear("so it is")] if sent.kind == "audio" else []
        kinds = ["say", "say", "pay", "look", "two calls", "silence"]
        if "model" in world.faults:
            kinds += ["drop", "drop in it"]
            kinds += ["handle", "go away", "withdraw"] if dialect == "gemini" else []
        match kinds[world.choices.choose(len(kinds), "the server") % len(kinds)]:
            case "pay":
                return [*spoken, call("pay", amount=7)]
            case "look":
                return [*spoken, say("hm"), call("look")]
            case "two calls":
                return [*spoken, call("look"), call("pay", amount=8)]
            case "silence":
                return spoken
            case "drop":
                return [*spoken, drop()]
            case "drop in it":
                return [*spoken, say("one two"), drop()]
            case "handle":
                return [handle(f"h{len(model.sent)}"), *spoken, say(SAID)]
            case "go away":
                return [*spoken, go_away(5), say(SAID)]
            case "withdraw":
                return [*spoken, call("look"), pause(0.5), cancel_calls()]
        return [*spoken, say(SAID), pause(1)]

    model = ScriptedLive(answer, dialect=dialect, word_ms=100)
    return model


async def talks(world: World) -> None:
    """Some live runs of one session, and a last one in which nothing goes wrong: it finds no call open."""
    made: list[Talk] = []
    busy = 0
    dialect = ("gemini", "openai")[world.choices.choose(2, "dialect") % 2]

    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def look() -> str:
        """Look for a second."""
        await world.sleep(1)
        return "seen"

    def agent() -> BaseAgent:
        tools: list[Any] = [FunctionTool(pay, require_confirmation=True), look]
        return LlmAgent(name="guide", model=server(world, dialect), tools=tools)

    async def user(runner: Runner) -> None:
        nonlocal busy
        while len(made) < RUNS:
            talk = Talk()
            made.append(talk)
            busy += 1
            try:
                await converse(world, runner, talk)
            except* (StorageError, StaleSessionError, SessionBusyError, ModelError):
                world.reached("a run has failed")
            finally:
                busy -= 1
            await world.sleep(1)

    runner = world.runner(agent)
    world.host(runner, user)
    while len(made) < RUNS or busy:
        await world.sleep(1)
    await world.heal()
    await world.sleep(200)  # the lease of a dead process expires
    last = Talk()
    made.append(last)
    try:
        await converse(world, runner, last)
    except* ModelError:  # the server may still drop each connection
        world.reached("the last run has failed")
    await check(world, runner, made)


async def converse(world: World, runner: Runner, talk: Talk) -> None:
    """Do some things at random, and close or leave the run."""
    async with runner.run_live(**PLACE) as live, trio.open_nursery() as nursery:
        talk.invocation_id = live.invocation_id
        closed_at: list[float] = []

        async def act() -> None:
            for _ in range(1 + world.choices.choose(DEEDS, "deeds")):
                try:
                    match world.choices.choose(5, "deed"):
                        case 0:
                            talk.typed.append(await live.send_text("hello"))
                        case 1:
                            await live.send_audio(b"\1\0" * 2400)
                            await live.send_audio(bytes(48000))
                        case 2:
                            await live.interrupt()
                            world.reached("interrupted by the program")
                        case 3 if live.pending:
                            await live.send(live.pending[0].reply(True))
                            world.reached("a request is replied to")
                except (InvalidMessageError, InvocationEndedError):
                    pass  # the request was withdrawn, or the run has ended
                await world.sleep(world.choices.choose(30, "patience") / 10)
            if world.choices.choose(3, "end"):
                closed_at.append(trio.current_time())
                await live.aclose(finish_turn_s=20)
                world.reached("closed")
            else:
                nursery.cancel_scope.cancel()
                world.reached("left")

        nursery.start_soon(act)
        async for event in live:
            if event.partial and event.interrupted:
                await live.played(event, 100 * world.choices.choose(6, "played"))
            elif event.partial and event.author != "user":
                talk.texts.append(event.text or (event.output_transcription and event.output_transcription.text) or "")
        in_time = bool(closed_at) and trio.current_time() < closed_at[0] + 20  # else the rest of the input is cut off
        talk.is_closed = in_time and live.status is InvocationStatus.COMPLETED
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint_if_cancelled()  # by the death of the process
    talk.has_ended = True


async def check(world: World, runner: Runner, made: list[Talk]) -> None:
    """Check what must hold of the log, whatever has happened."""
    log: list[Event] = (await read_logs(world, runner)).get((PLACE["user_id"], PLACE["session_id"]), [])
    is_open: set[str | None] = set()
    for event in log:
        for response in event.get_function_responses():
            expect(response.id in is_open, f"event {event.seq} answers {response.id}, which is not open")
            is_open.remove(response.id)
        is_open.update(each.id for each in event.get_function_calls())
        if (event.live or {}).get("begins"):
            expect(not is_open, f"the calls {is_open} are open while another live run begins")
        if event.interrupted and event.author != "user":
            heard = (event.custom_metadata or {}).get("heard", event.text)
            expect("one two three four hm".count(heard) > 0, f"an interrupted response has the text {heard!r}")
    expect(not is_open, f"the calls {is_open} were never answered")
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    expect(all(one.status is not InvocationStatus.PAUSED for one in listed), "a live run is paused")
    for talk in made:
        own = [event for event in log if event.invocation_id == talk.invocation_id]
        counts = Counter(event.id for event in own if event.author == "user" and event.content is not None)
        expect(all(counts[each] <= 1 for each in talk.typed), "a message is stored twice")
        if talk.has_ended:
            said = [f"{event.text} {(event.custom_metadata or {}).get('unheard', '')}" for event in own]
            shown = " ".join(talk.texts).split()
            expect(len(shown) <= len(" ".join(said).split()), "words that the user was shown are not stored")
        if talk.is_closed:
            stored = [event.id for event in own if event.id in talk.typed]
            expect(stored == talk.typed, "a message of a run that was closed is lost, or out of order")
            world.reached("a run came to its end")


ALL = ("crash", "storage", "model", "tools")

LIVE: dict[str, tuple[Scenario, Any]] = {
    "calm calls in memory": (talks, {"faults": (), "storage": "memory", "processes": 1}),
    "calls over bad lines": (talks, {"faults": ("model",), "storage": "memory", "processes": 1}),
    "calls on disk": (talks, {"faults": ALL, "storage": "sqlite", "processes": 1}),
    "calls in two processes": (talks, {"faults": ALL, "storage": "sqlite", "processes": 2}),
}
"""What `simulate` is given, by name."""
