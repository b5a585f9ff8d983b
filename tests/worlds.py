"""
The worlds with which minirun tests itself.

Each is a small program of users, agents and tools that goes through many places of the runtime at once, and says what
its users have been promised: that sums are conserved, that what took effect is in the log, that no call is run twice.
What is true of every world is checked by the simulation itself. A world takes a few milliseconds, so that thousands of
seeds can be tried; which of them go together with which faults is told by `WORLDS`, by `KEEPING` of those in which
things are kept. Trees of agents are in trees.py, agents that wait in waiting.py, that keep things in keeping.py, and
that have secrets in vaults.py; the worlds of `SHARING` are in scribes.py and archive.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict

import trio

from minirun import AgentTool, Event, InvocationContext, LlmAgent, RunConfig, Runner
from minirun.agents import BaseAgent, ParallelAgent, SequentialAgent
from minirun.errors import (
    InvalidEventError,
    InvalidValueError,
    InvocationEndedError,
    InvocationNotFoundError,
    LlmCallsLimitExceededError,
    ModelContractError,
    ModelError,
    SessionNotFoundError,
    StaleSessionError,
    StorageError,
)
from minirun.events import EventActions
from minirun.models import LlmRequest
from minirun.runtime import CallbackContext, ReadonlyContext, Run
from minirun.sessions import InvocationStatus
from minirun.simulation import ChaosLlm, SeededChoices, World
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, ToolContext, exit_loop
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from .archive import archive
from .gates import gate
from .graph_worlds import graphs
from .helpers import Logic, Place
from .keeping import annals, diary, studio
from .laws import UNANSWERED, Log, check_calls, check_shown, expect, hurry_up, kind_of, read_logs
from .scribes import scribes, spenders
from .simulation.stores import Scenario, Storage, simulate
from .trees import trees
from .vaults import vaults
from .waiting import office, orders

__all__ = ["KEEPING", "SHARING", "WORLDS", "Options", "coverage_of"]


class Options(TypedDict):
    """How `simulate` is to run a world."""

    faults: tuple[str, ...]
    storage: Storage
    processes: int


SESSION = "s"


# --- shared counters --------------------------------------------------------------------------------------------------

PEOPLE = ("ada", "bob", "eve")


async def bank(world: World) -> None:
    """
    Three people move money at the same time, one of them from two devices; there is never more or less of it.

    Two kinds of operations meet on one key, so some are refused. Moving is given little time, and tried again.
    """

    async def move(ctx: InvocationContext) -> None:
        _, amount, _, to = (ctx.user_content.text if ctx.user_content else "").split()
        kind: dict[str, Any] = {"add": 1} if ctx.user_id == "ada" else {"extend": [1]}
        try:
            await ctx.emit(Event(message="kind", actions=EventActions(state_ops={"app:kind": kind})))
        except InvalidValueError:
            world.coverage["the other kind was first"] += 1
        ctx.state.add(f"app:{ctx.user_id}", -int(amount))
        ctx.state.add(f"app:{to}", int(amount))
        ctx.state.extend("app:moves", [ctx.user_id])
        ctx.state.add("user:moves")
        is_told = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hurry_up, world, nursery.cancel_scope, 6)
            await ctx.emit(Event(message="moved"))
            is_told = True
            nursery.cancel_scope.cancel()
        if not is_told:
            world.coverage["a move was withdrawn"] += 1
            await ctx.emit(Event(message="moved"))

    runner = world.runner(lambda: Logic(name="bank", logic=move), state={f"app:{who}": 100 for who in PEOPLE})

    def is_conserved() -> bool:
        state = world.state(runner)
        total: int = sum(state[f"app:{who}"] for who in PEOPLE)
        return total == 300

    world.always(is_conserved)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, runner, "ada", "move 10 to bob")
        nursery.start_soon(world.say, runner, "ada", "move 20 to bob")
        nursery.start_soon(world.say, runner, "bob", "move 40 to ada")
        nursery.start_soon(world.say, runner, "eve", "move 80 to ada")
    moved: Counter[str] = Counter()
    for (user, _), log in (await read_logs(world, runner)).items():
        runs = Counter(event.invocation_id for event in log if event.text == "moved")
        expect(max(runs.values(), default=0) <= 1, f"a run of {user} has moved money twice")
        moved[user] = runs.total()
    for who in PEOPLE:
        state = world.state(runner, user_id=who)
        counts = (state.get("user:moves", 0), state.get("app:moves", []).count(who))
        expect(counts == (moved[who], moved[who]), f"{who} has moved {moved[who]} times, and the state says {state}")


async def choir(world: World) -> None:
    """Three agents sing at the same time and are interrupted; what was cancelled is sung again, once."""

    async def sing(ctx: InvocationContext) -> None:
        for number in range(2):
            ctx.state.add("app:sung")
            is_sung = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hurry_up, world, nursery.cancel_scope, 12)
                await ctx.emit(Event(message=str(number)))
                is_sung = True
                nursery.cancel_scope.cancel()
            if not is_sung:
                await ctx.emit(Event(message=str(number)))

    runner = world.runner(lambda: Logic(name="choir", logic=sing))
    async with trio.open_nursery() as nursery:
        for user in "abc":
            nursery.start_soon(world.say, runner, user, "sing")
    for log in (await read_logs(world, runner)).values():
        sung = [event.text for event in log if event.author == "choir"]
        expect(sung == ["0", "1"], f"two things were to be sung once, and were {sung}")
    expect(world.state(runner)["app:sung"] == 6, f"6 things were sung, and the state says {world.state(runner)}")


# --- models and tools -------------------------------------------------------------------------------------------------


class Effects:
    """What tools have done to the world outside, by user and call: a crash does not undo it."""

    def __init__(self) -> None:
        self.times: Counter[tuple[str, str]] = Counter()
        self.before_stored: list[str] = []

    def note(self, context: ToolContext) -> None:
        """A tool begins to act."""
        self.times[context.user_id, context.function_call_id] += 1
        known = {made.id for event in context.session.events for made in event.get_function_calls()}
        if context.function_call_id not in known:
            self.before_stored.append(context.function_call_id)

    def are_told(self) -> bool:
        """No call was run twice, and none before it was stored."""
        return not self.before_stored and max(self.times.values(), default=0) <= 1


async def desk(world: World) -> None:
    """Two users talk to a model that makes its own way, one of them from two devices on one session."""
    effects = Effects()

    async def note(text: str, tool_context: ToolContext) -> str:
        effects.note(tool_context)
        tool_context.state.add("app:notes")
        await world.sleep(world.choices.choose(2, "the note takes its time"))
        tool_context.state.extend("user:notes", [text])
        return text

    def count(amount: int, tool_context: ToolContext) -> int:
        effects.note(tool_context)
        tool_context.state.add("sum", amount)
        return amount

    async def ask(user: str, text: str) -> None:
        try:
            await world.say(runner, user, text, session_id=SESSION)
        except (ModelContractError, ModelError):
            world.coverage["the user was told of the model's failure"] += 1

    runner = world.runner(lambda: LlmAgent(name="desk", model=ChaosLlm(), tools=[note, count]))
    world.always(effects.are_told)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "ada", "hello")
        nursery.start_soon(ask, "ada", "me too")
        nursery.start_soon(ask, "bob", "hello")
    notes = 0
    for (user, session), log in (await read_logs(world, runner)).items():
        answers = check_calls(world, log)
        notes_of = [made.id for event in log for made in event.get_function_calls() if made.name == "note"]
        noted = [call_id for call_id in notes_of if kind_of(answers.get(call_id, UNANSWERED)) == "result"]
        kept = world.state(runner, user_id=user, session_id=session).get("user:notes", [])
        expect(len(kept) == len(noted), f"{len(noted)} notes of {user} were made, and {kept} are kept")
        notes += len(noted)
    expect(world.state(runner).get("app:notes", 0) == notes, f"{notes} notes were made: {world.state(runner)}")


async def shop(world: World) -> None:
    """Two users have a model call four tools at once that write the same state; it is merged in call order."""
    effects = Effects()

    async def price(value: int, tool_context: ToolContext) -> int:
        effects.note(tool_context)
        tool_context.state["price"] = value
        await world.sleep(world.choices.choose(3, "the price takes its time"))
        return value

    async def sell(amount: int, tool_context: ToolContext) -> int:
        effects.note(tool_context)
        await world.sleep(0)
        tool_context.state.add("app:sold", amount)
        return amount

    def stamp(tool_context: ToolContext) -> int:
        effects.note(tool_context)
        tool_context.state.extend("user:stamps", [tool_context.function_call_id])
        return 1

    def script(request: LlmRequest) -> Any:
        check_shown(request)
        if request.contents[-1].parts[-1].function_response is None:
            return [call("price", value=1), call("sell", amount=2), call("price", value=3), call("stamp")]
        last = request.contents[-1].parts[2].function_response
        if last is not None and "result" in last.response:
            expect(request.config.system_instruction == "The price is 3.", "the price is not that of the last call")
        return "sold"

    runner = world.runner(
        lambda: LlmAgent(
            name="shop", model=ScriptedLlm(script), tools=[price, sell, stamp], instruction="The price is {price?}."
        )
    )

    world.always(effects.are_told)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, runner, "ada", "buy")
        nursery.start_soon(world.say, runner, "bob", "buy")
    sold = 0
    for (user, _), log in (await read_logs(world, runner)).items():
        answers = check_calls(world, log)
        sold += sum(answer["result"] for answer in answers.values() if answer.get("result") == 2)
        stamped = [call_id for call_id, answer in answers.items() if answer == {"result": 1} and is_stamp(log, call_id)]
        stamps = world.state(runner, user_id=user).get("user:stamps", [])
        expect(list(stamps) == stamped, f"{user} was given the stamps {stamped}, and has {stamps}")
    expect(world.state(runner).get("app:sold", 0) == sold, f"{sold} were sold: {world.state(runner)}")


def is_stamp(log: Log, call_id: str | None) -> bool:
    """Whether it is a call of `stamp`."""
    return any(made.id == call_id and made.name == "stamp" for event in log for made in event.get_function_calls())


# --- emitting ---------------------------------------------------------------------------------------------------------


async def panel(world: World) -> None:
    """Two agents speak at once, somebody cancels what they are saying, and two answer one question."""
    book: dict[tuple[str, str], str] = {}
    said: Counter[str] = Counter()

    async def speak(ctx: InvocationContext, scopes: dict[str, trio.CancelScope]) -> None:
        for number in range(2):
            marker = f"{ctx.agent_name} {number}"
            ctx.state.add("said")
            said[ctx.user_id] += 1
            with trio.CancelScope() as scopes[ctx.agent_name]:
                try:
                    await ctx.emit(Event(message=marker))
                    book[ctx.invocation_id, marker] = "stored"
                except trio.Cancelled:
                    book[ctx.invocation_id, marker] = "not stored"
                    raise
                except StorageError as error:
                    await apologize(ctx, error)
                    raise

    async def apologize(ctx: InvocationContext, error: StorageError) -> None:
        with trio.CancelScope(shield=True):
            try:
                await ctx.emit(Event(message="sorry"))
            except StorageError:
                return
        expect(error.stored is False, "an event was stored after one of which nobody knows whether it is")

    async def heckle(scopes: dict[str, trio.CancelScope]) -> None:
        for _ in range(3):
            await world.sleep(0)
            victim = world.choices.choose(3, "who is interrupted")
            for scope in list(scopes.values())[victim : victim + 1]:
                scope.cancel()

    async def question(ctx: InvocationContext) -> None:
        asked = await ctx.emit(
            Event(content=Content(role="model", parts=[Part(function_call=FunctionCall(name="who"))]))
        )
        [made] = asked.get_function_calls()
        took: list[str] = []

        async def answer(name: str) -> None:
            part = Part(function_response=FunctionResponse(id=made.id, name="who", response={"result": name}))
            try:
                await ctx.emit(Event(content=Content(role="user", parts=[part])))
                took.append(name)
            except InvalidEventError:
                world.coverage["the second answer was refused"] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, "I")
            nursery.start_soon(answer, "me")
        expect(len(took) == 1, f"one call was answered by {took}")

    async def hold(ctx: InvocationContext) -> None:
        scopes: dict[str, trio.CancelScope] = {}

        async def member(ctx: InvocationContext) -> None:
            await speak(ctx, scopes)

        async with trio.open_nursery() as nursery:
            for name in ("x", "y"):
                nursery.start_soon(Logic(name=name, logic=member).run_async, ctx)
            nursery.start_soon(heckle, scopes)
        await question(ctx)

    runner = world.runner(lambda: Logic(name="panel", logic=hold))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.say, runner, "ada", "speak")
        nursery.start_soon(world.say, runner, "bob", "speak")
    logs = await read_logs(world, runner)
    texts = Counter((event.invocation_id, event.text) for log in logs.values() for event in log)
    for (invocation, marker), fate in book.items():
        times = texts[invocation, marker]
        expect(times == (fate == "stored"), f"{marker!r} was {fate}, and is in the log {times} times")
    for (user, session), log in logs.items():
        check_calls(world, log)
        if sum(event.text == "speak" for event in log) == 1:  # else some runs were left on the way
            count = world.state(runner, user_id=user, session_id=session)["said"]
            expect(count == said[user], f"{user}'s panel has counted {said[user]} words, and the state says {count}")


# --- leaving ----------------------------------------------------------------------------------------------------------


def caller(tools: list[Any]) -> LlmAgent:
    """An agent whose model calls all its tools at once, and then says that it is done."""

    def script(request: LlmRequest) -> Any:
        check_shown(request)
        if request.contents[-1].parts[-1].function_response is None:
            return [call(tool.__name__) for tool in tools]
        return "done"

    return LlmAgent(name="child", model=ScriptedLlm(script), tools=tools)


class Charges:
    """Tools of which one takes its time and the other takes effect."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._charged: list[str] = []
        self._fetched: list[str] = []

    def tools(self) -> list[Any]:
        """The tools."""

        async def fetch(tool_context: ToolContext) -> str:
            await self._world.sleep(self._world.choices.choose(3, "fetching takes its time"))
            self._fetched.append(tool_context.function_call_id)
            return "fetched"

        def charge(tool_context: ToolContext) -> str:
            tool_context.state.add("user:charged")
            self._charged.append(tool_context.function_call_id)
            return "charged"

        return [fetch, charge]

    def check(self, answers: dict[str | None, dict[str, Any]], *, crashes: bool) -> int:
        """Check that what took effect is told; return how often that was stored. A process may die, or be given up."""
        allowed = {"result", "outcome_unknown"} if crashes else {"result"}
        for call_id in {*self._charged, *self._fetched} & answers.keys():
            kind = kind_of(answers[call_id])
            expect(kind in allowed, f"the call {call_id} took effect, and is answered with {kind!r}")
        done = {*self._charged, *self._fetched}
        for answered, answer in answers.items():
            expect(kind_of(answer) != "result" or answered in done, f"the call {answered} has a result, but no effect")
        return sum(answer == {"result": "charged"} for answer in answers.values())


def hurrying(world: World, steps: int) -> Callable[[InvocationContext], Awaitable[None]]:
    """The logic of an agent that gives its child so little time, twice, and then as much as it needs."""

    async def hurry(ctx: InvocationContext) -> None:
        [child] = ctx.agent.sub_agents
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hurry_up, world, nursery.cancel_scope, steps)
                await child.run_async(ctx)
                nursery.cancel_scope.cancel()
        await child.run_async(ctx)

    return hurry


async def impatient(world: World) -> None:
    """An agent gives its child little time, twice; then the child goes on where it was, with every call answered."""
    charges = Charges(world)

    def agent() -> BaseAgent:
        return Logic(name="impatient", logic=hurrying(world, 12), sub_agents=[caller(charges.tools())])

    runner = world.runner(agent)
    await world.say(runner, "ada", "hurry")
    for (user, _), log in (await read_logs(world, runner)).items():
        charged = charges.check(check_calls(world, log), crashes="crash" in world.faults)
        count = world.state(runner, user_id=user).get("user:charged", 0)
        expect(count == charged, f"{user} was charged {charged} times, and the state says {count}")


async def helpers(world: World) -> None:
    """
    An agent asks two helpers at once and is given little time, twice; what helpers say to themselves stays there.

    A helper may end the loop that it works in, which is none: what is around the agent goes on. Its hook may fail: then
    the run has failed.
    """
    broken: set[str] = set()

    async def look() -> str:
        await world.sleep(world.choices.choose(3, "looking takes its time"))
        return "a secret"

    def fuss(callback_context: CallbackContext) -> None:
        if world.choices.maybe("the hook fails", 12):
            broken.add(callback_context.invocation_id)
            raise ValueError("broken")

    def helping(request: LlmRequest) -> Any:
        expect(request.contents[0].text == "find it", f"a helper is shown {request.contents[0].text!r} first")
        expect(len(request.contents) in (1, 3), f"a helper is shown {len(request.contents)} contents")
        if len(request.contents) == 1:
            return call("exit_loop") if world.choices.maybe("the helper ends its loop", 4) else call("look")
        return ["a secret, ", "told"]

    def leading(request: LlmRequest) -> Any:
        check_shown(request)
        shown = [part.text for content in request.contents for part in content.parts if part.text is not None]
        expect(not any("secret" in text for text in shown), f"what helpers say to themselves is shown: {shown}")
        if request.contents[-1].parts[-1].function_response is None:
            return [call("helper", request="find it"), call("helper", request="find it")]
        return "done"

    async def close(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="closed"))

    def agent() -> BaseAgent:
        helper = LlmAgent(
            name="helper", model=ScriptedLlm(helping), tools=[look, exit_loop], before_agent_callback=fuss
        )
        leader = LlmAgent(name="leader", model=ScriptedLlm(leading), tools=[AgentTool(helper)])
        both = SequentialAgent(name="both", sub_agents=[leader, Logic(name="closer", logic=close)])
        return Logic(name="hurry", logic=hurrying(world, 16), sub_agents=[both])

    runner = world.runner(agent)
    try:
        await world.say(runner, "ada", "hurry")
    except ValueError:
        world.coverage["the helper's hook has failed"] += 1
    logs = await read_logs(world, runner)
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    completed = {one.invocation_id for one in listed if one.status is InvocationStatus.COMPLETED}
    expect(not broken & completed, f"{broken & completed} have failed, and are recorded as completed")
    for log in logs.values():
        answers = check_calls(world, log, may_be_open="crash" in world.faults)
        for answer in answers.values():
            expected: Any = ({"result": "a secret, told"}, {"result": "a secret"}, {"result": None})
            expect(kind_of(answer) != "result" or answer in expected, f"a helper has answered {answer}")
        closed = {event.invocation_id for event in log if event.text == "closed"}
        left = {event.invocation_id for event in log} & completed - closed
        expect(not left, f"{left} are completed, and the agent that comes last has said nothing")


async def errands(world: World) -> None:
    """A user sends an agent on three errands, one after another, and asks again wherever somebody answers."""
    charges = Charges(world)
    runner = world.runner(lambda: caller(charges.tools()))
    for text in ("one", "two", "three"):
        await world.say(runner, "ada", text)
    for (user, _), log in (await read_logs(world, runner)).items():
        charged = charges.check(check_calls(world, log), crashes="crash" in world.faults)
        count = world.state(runner, user_id=user).get("user:charged", 0)
        expect(count == charged, f"{user} was charged {charged} times, and the state says {count}")


async def leavers(world: World) -> None:
    """Two users leave their runs somewhere, and come back; what they have seen is what is stored."""
    charges = Charges(world)
    gone_on: Counter[str] = Counter()
    ended: Counter[str] = Counter()

    async def talk(ctx: InvocationContext) -> None:
        try:
            for number in range(2):
                await ctx.emit(Event(message=str(number)))
                gone_on[ctx.invocation_id] = number + 1
            [child] = ctx.agent.sub_agents
            await child.run_async(ctx)
        finally:
            ended[ctx.invocation_id] += 1

    async def ask(run: Run) -> Event | None:
        """Ask for the next event; first look, perhaps, whether it is there already."""
        for _ in range(world.choices.choose(3, "how often the user looks")):
            with trio.move_on_after(0):
                return await anext(run, None)
            await world.sleep(0)
        return await anext(run, None)

    async def visit(user: str, text: str, events: int) -> None:
        place: Place = {"user_id": user, "session_id": SESSION}
        seen: list[Event] = []
        async with runner.run_async(**place, new_message=text) as run:
            while len(seen) < events:
                event = await ask(run)
                if event is None:
                    break
                seen.append(event)
                await world.sleep(world.choices.choose(2, "the user reads"))
                if event.text.isdigit():
                    ahead = gone_on[run.invocation_id] - int(event.text)
                    expect(ahead <= 0, f"the agent has gone on {ahead} events while {user} holds {event.text}")
        expect(ended[run.invocation_id] == 1, f"{user} has left, and the agent has not ended")
        expect(run.status in ("completed", "cancelled"), f"{user} has left, and the run is {run.status}")
        log = await runner.session_service.read_events(app_name=runner.app_name, **place)
        told = [event for event in log if event.invocation_id == run.invocation_id][1:]
        expect(told[: len(seen)] == seen, f"{user} has seen what is not stored")
        expect(len(seen) >= min(events, len(told)), f"{user} has not seen all that is stored")
        listed = await runner.session_service.list_invocations(app_name=runner.app_name)
        status = [one.status for one in listed if one.invocation_id == run.invocation_id]
        expect(status == [run.status], f"the run of {user} is {run.status}, and listed as {status}")

    async def come_and_go(user: str) -> None:
        await visit(user, "hello", world.choices.choose(5, f"after how many events {user} leaves"))
        await visit(user, "again", 99)

    def agent() -> BaseAgent:
        return Logic(name="talker", logic=talk, sub_agents=[caller(charges.tools())])

    runner = world.runner(agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_and_go, "ada")
        nursery.start_soon(come_and_go, "bob")
    for (user, _), log in (await read_logs(world, runner)).items():
        charged = charges.check(check_calls(world, log), crashes=False)
        count = world.state(runner, user_id=user).get("user:charged", 0)
        expect(count == charged, f"{user} was charged {charged} times, and the state says {count}")


async def steering(world: World) -> None:
    """
    Two users talk to an agent, and somebody sends messages into its runs from every process: each message that was sent
    becomes an event once, and what an invocation that is completed has taken was answered in it.
    """
    sent: set[str] = set()
    refused: set[str] = set()
    begun: list[str] = []
    over: list[str] = []

    def look() -> str:
        return "seen"

    def talking(request: LlmRequest) -> Any:
        check_shown(request)
        return call("look") if world.choices.maybe("the model looks", 3) else "heard"

    async def send(runner: Runner) -> None:
        while True:
            await world.sleep(world.choices.choose(3, "when somebody writes"))
            if len(begun) == 8:
                return
            user, text = PEOPLE[world.choices.choose(2, "who is written to")], f"m{len(begun)}"
            when = "idle" if world.choices.maybe("it can wait", 3) else "next_model_call"
            begun.append(text)
            try:
                await runner.send(text, user_id=user, session_id=user, when=when)
            except (InvocationEndedError, InvocationNotFoundError, SessionNotFoundError):
                refused.add(text)
            except StorageError:
                world.coverage["nobody knows whether a message was sent"] += 1
            else:
                sent.add(text)
            finally:
                over.append(text)  # or its process has died

    def agent() -> BaseAgent:
        return LlmAgent(name="talker", model=ScriptedLlm(talking), tools=[FunctionTool(look, run_in="loop")])

    async def converse(user: str) -> None:
        for text in ("hello", "go on", "bye"):
            await world.say(runner, user, text)

    runner = world.runner(agent)
    world.host(runner, send)
    async with trio.open_nursery() as nursery:
        for user in PEOPLE[:2]:
            nursery.start_soon(converse, user)
    while len(over) < 8:
        await world.sleep(1)
    await world.heal()
    await world.sleep(100)  # another program may hold the write lock still
    for user in PEOPLE[:2]:
        await world.say(runner, user, "the end")  # the next run stores what others have left
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    completed = {one.invocation_id for one in listed if one.status is InvocationStatus.COMPLETED}
    found: Counter[str] = Counter()
    for log in (await read_logs(world, runner)).values():
        check_calls(world, log, may_be_open="crash" in world.faults)
        found.update(event.text for event in log if event.actions.replay.sent is not None)
        for place, event in enumerate(log):
            if event.actions.replay.sent is not None and event.invocation_id in completed:
                later = [one.author for one in log[place:] if one.invocation_id == event.invocation_id and one.text]
                expect("talker" in later, f"{event.text} was sent into a run that is completed, and not answered there")
    twice = sorted(text for text, count in found.items() if count > 1)
    expect(not twice, f"{twice} were stored twice")
    expect(sent <= found.keys(), f"{sorted(sent - found.keys())} were sent, and are nowhere")
    expect(not refused & found.keys(), f"{sorted(refused & found.keys())} were refused, and are stored")
    world.coverage["messages sent into runs"] += len(sent)


# --- budgets ----------------------------------------------------------------------------------------------------------

QUESTIONS_MAX = 3


async def budget(world: World) -> None:
    """Two agents that never stop asking share one budget, whoever asks."""
    asked: Counter[str] = Counter()

    def script(request: LlmRequest) -> Any:
        asked[str(request.config.system_instruction)] += 1
        return call("more")

    async def more() -> str:
        await world.sleep(0)
        return "more"

    def invocation(ctx: ReadonlyContext) -> str:
        return ctx.invocation_id

    async def spend(ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            for child in ctx.agent.sub_agents:
                nursery.start_soon(child.run_async, ctx)

    def agent() -> BaseAgent:
        children = [
            LlmAgent(name=name, model=ScriptedLlm(script), instruction=invocation, tools=[more]) for name in ("x", "y")
        ]
        return Logic(name="spender", logic=spend, sub_agents=children)

    async def ask(user: str) -> None:
        try:
            await world.say(runner, user, "spend", run_config=RunConfig(max_llm_calls=QUESTIONS_MAX))
        except LlmCallsLimitExceededError:
            return
        expect(False, "a run that never stops asking has come to an end")

    world.always(lambda: max(asked.values(), default=0) <= QUESTIONS_MAX)
    runner = world.runner(agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "ada")
        nursery.start_soon(ask, "bob")
    for log in (await read_logs(world, runner)).values():
        check_calls(world, log)
        errors = {event.error_code for event in log if event.error_code}
        expect(errors == {"LlmCallsLimitExceededError"}, f"the log tells {errors}")
    statuses = {one.status for one in await runner.session_service.list_invocations(app_name=runner.app_name)}
    expect("completed" not in statuses, "a run that has failed is recorded as completed")


# --- branches ---------------------------------------------------------------------------------------------------------


async def rivals(world: World) -> None:
    """Two agents write one key side by side; beside them one fails, and one ends it all: nothing of that is hidden."""
    broken: set[str] = set()

    async def put(tool_context: ToolContext) -> str:
        tool_context.state["k"] = tool_context.function_call_id
        await world.sleep(world.choices.choose(2, "putting takes its time"))
        return "put"

    def script(request: LlmRequest) -> Any:
        check_shown(request)
        return call("put") if request.contents[-1].parts[-1].function_response is None else "done"

    async def wait(what: str) -> int:
        """Whether it does something, and when."""
        deed = world.choices.choose(3, f"what {what} does")
        for _ in range(world.choices.choose(12, f"when {what} does it")):
            await world.sleep(0)
        return deed

    async def breaker(ctx: InvocationContext) -> None:
        if await wait("the breaker"):
            broken.add(ctx.invocation_id)
            raise ValueError("broken")

    async def ender(ctx: InvocationContext) -> None:
        deed = await wait("the ender")
        if deed == 1:
            await ctx.emit(Event(message="enough", actions=EventActions(escalate=True)))
        elif deed:
            broken.add(ctx.invocation_id)
            raise ValueError("ended")

    def agent() -> BaseAgent:
        a, b = (LlmAgent(name=name, model=ScriptedLlm(script), tools=[put]) for name in "ab")
        patient = ParallelAgent(
            name="patient", on_failure="collect", sub_agents=[a, Logic(name="breaker", logic=breaker)]
        )
        return ParallelAgent(name="rivals", sub_agents=[patient, b, Logic(name="ender", logic=ender)])

    async def ask(user: str) -> None:
        try:
            await world.say(runner, user, "go")
        except ValueError:
            world.coverage["the rivals have failed"] += 1

    runner = world.runner(agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "ada")
        nursery.start_soon(ask, "bob")
    for log in (await read_logs(world, runner)).values():
        check_calls(world, log, may_be_open="crash" in world.faults)
        written: Counter[str | None] = Counter()
        for event in log:
            if "k" in event.actions.state_delta:
                written[event.invocation_id] += 1
            is_second = "k" in event.actions.state_delta and written[event.invocation_id] == 2
            named = list(event.actions.state_conflicts)
            expect(named == (["k"] if is_second else []), f"event {event.seq} names the conflicts {named}")
    completed = {
        one.invocation_id
        for one in await runner.session_service.list_invocations(app_name=runner.app_name)
        if one.status is InvocationStatus.COMPLETED
    }
    expect(not broken & completed, f"{broken & completed} have failed, and are recorded as completed")


# --- history ----------------------------------------------------------------------------------------------------------


async def notebook(world: World) -> None:
    """Three editors count in one session, a writer rewinds it and forks it, and what is undone is seen by nobody."""
    place: Place = {"user_id": "ada", "session_id": SESSION}

    def script(request: LlmRequest) -> Any:
        spoken = [part.text for content in request.contents if content.role == "user" for part in content.parts]
        return " ".join(text for text in spoken if text is not None)

    async def write(ctx: InvocationContext) -> None:
        text = ctx.user_content.text if ctx.user_content else ""
        ctx.state["draft"] = text
        ctx.state[f"page {text}"] = True
        ctx.state.add("user:pages")
        await ctx.emit(Event(message=text))
        [child] = ctx.agent.sub_agents
        await child.run_async(ctx)

    def agent() -> BaseAgent:
        return Logic(name="writer", logic=write, sub_agents=[LlmAgent(name="child", model=ScriptedLlm(script))])

    runner = world.runner(agent)
    service = runner.session_service
    await service.create_session(app_name="app", **place, state={"edits": 0, "draft": "none"})

    async def edit() -> None:
        edits = 0
        while edits < 2:
            session = await service.get_session(app_name="app", **place)
            assert session is not None
            await world.sleep(0)
            try:
                while edits < 2:
                    number = session.state["edits"] + 1
                    await service.append_event(session, Event(author="editor", state={"edits": number}))
                    edits += 1
            except StaleSessionError:
                world.coverage["an editor was too late"] += 1

    async def say(text: str, session_id: str = SESSION) -> str:
        answer = await world.say(runner, "ada", text, session_id=session_id)
        return answer.text if answer is not None else ""

    def state(session_id: str = SESSION) -> dict[str, Any]:
        return {**world.state(runner, user_id="ada", session_id=session_id), "user:pages": None}

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(edit)
    expect(state()["edits"] == 6, f"there were 6 edits, and the state says {state()['edits']}")

    await say("one")
    before = state()
    session = await service.get_session(app_name="app", **place)
    assert session is not None
    at_seq = session.revision
    await say("two")
    session = await service.get_session(app_name="app", **place)
    assert session is not None
    undone = session.events[-1].invocation_id or ""
    whole = world.choices.choose(2, "the whole of it is forked") == 1

    async def rewind() -> None:
        await runner.rewind_async(**place, rewind_before_invocation_id=undone)
        expect(state() == before, f"the state was {before}, and after the rewind it is {state()}")
        answer = await say("three")
        expect("two" not in answer and answer.endswith("three"), f"after the rewind the model is shown {answer!r}")

    async def fork() -> None:
        await service.fork_session(app_name="app", **place, at_seq=None if whole else at_seq, new_session_id="fork")
        expect(whole or state("fork") == before, f"the state was {before}, and in the fork it is {state('fork')}")
        answer = await say("four", "fork")
        expect(whole or ("two" not in answer), f"in the fork the model is shown {answer!r}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rewind)
        nursery.start_soon(fork)
    expect(state()["draft"] == "three" and "page two" not in state(), f"the session says {state()}")
    strange = {"page two", "page three"} & state("fork").keys()
    expect(state("fork")["draft"] == "four" and (whole or not strange), f"the fork says {state('fork')}")
    expect(world.state(runner, user_id="ada")["user:pages"] == 4, "a rewind and a fork leave what is the user's alone")


# --- which worlds there are -------------------------------------------------------------------------------------------

WORLDS: dict[str, tuple[Scenario, Options]] = {
    "panel in memory": (panel, {"faults": ("crash", "users"), "storage": "memory", "processes": 1}),
    "bank on disk": (bank, {"faults": ("crash", "storage"), "storage": "sqlite", "processes": 1}),
    "choir on disk": (choir, {"faults": (), "storage": "sqlite", "processes": 1}),
    "impatient in memory": (impatient, {"faults": ("crash",), "storage": "memory", "processes": 1}),
    "leavers in memory": (leavers, {"faults": (), "storage": "memory", "processes": 1}),
    "notebook in memory": (notebook, {"faults": (), "storage": "memory", "processes": 1}),
    "panel on disk": (panel, {"faults": ("crash", "storage"), "storage": "sqlite", "processes": 1}),
    "errands in two processes": (
        errands,
        {"faults": ("crash", "storage", "users"), "storage": "sqlite", "processes": 2},
    ),
    "desk in memory": (desk, {"faults": ("crash", "model", "tools", "users"), "storage": "memory", "processes": 1}),
    "budget in memory": (budget, {"faults": ("users",), "storage": "memory", "processes": 1}),
    "bank in two processes": (bank, {"faults": ("users",), "storage": "sqlite", "processes": 2}),
    "calm steering in memory": (steering, {"faults": (), "storage": "memory", "processes": 1}),
    "steering in memory": (steering, {"faults": ("crash", "users"), "storage": "memory", "processes": 1}),
    "steering in two processes": (
        steering,
        {"faults": ("crash", "storage", "users"), "storage": "sqlite", "processes": 2},
    ),
    "notebook on disk": (notebook, {"faults": (), "storage": "sqlite", "processes": 1}),
    "trees in memory": (trees, {"faults": (), "storage": "memory", "processes": 1}),
    "helpers in memory": (helpers, {"faults": ("crash",), "storage": "memory", "processes": 1}),
    "rivals in memory": (rivals, {"faults": ("crash", "users"), "storage": "memory", "processes": 1}),
    "trees in trouble": (trees, {"faults": ("crash", "model", "tools", "users"), "storage": "memory", "processes": 1}),
    "shop in two processes": (shop, {"faults": ("crash", "storage"), "storage": "sqlite", "processes": 2}),
    "orders in memory": (orders, {"faults": ("crash",), "storage": "memory", "processes": 1}),
    "office in memory": (
        office,
        {"faults": ("crash", "model", "tools", "users"), "storage": "memory", "processes": 1},
    ),
    "orders in two processes": (
        orders,
        {"faults": ("crash", "storage", "users"), "storage": "sqlite", "processes": 2},
    ),
    "office in two processes": (
        office,
        {"faults": ("crash", "storage", "model", "tools", "users"), "storage": "sqlite", "processes": 2},
    ),
    "calm graphs in memory": (graphs, {"faults": (), "storage": "memory", "processes": 1}),
    "graphs in memory": (graphs, {"faults": ("crash",), "storage": "memory", "processes": 1}),
    "graphs in two processes": (
        graphs,
        {"faults": ("crash", "storage", "users"), "storage": "sqlite", "processes": 2},
    ),
}
"""What `simulate` is given, by name: the world, its faults, its storage and how many processes serve it."""

ALL = ("crash", "storage", "model", "tools", "users")
IN_MEMORY = ("crash", "model", "tools", "users")

KEEPING: dict[str, tuple[Scenario, Options]] = {
    "studio on disk": (studio, {"faults": (), "storage": "sqlite", "processes": 1}),
    "studio in memory": (studio, {"faults": IN_MEMORY, "storage": "memory", "processes": 1}),
    "calm studio in memory": (studio, {"faults": (), "storage": "memory", "processes": 1}),
    "studio in two processes": (studio, {"faults": ALL, "storage": "sqlite", "processes": 2}),
    "diary in memory": (diary, {"faults": IN_MEMORY, "storage": "memory", "processes": 1}),
    "diary on disk": (diary, {"faults": ("users",), "storage": "sqlite", "processes": 1}),
    "diary in two processes": (diary, {"faults": ALL, "storage": "sqlite", "processes": 2}),
    "annals in memory": (annals, {"faults": IN_MEMORY, "storage": "memory", "processes": 1}),
    "calm annals in memory": (annals, {"faults": (), "storage": "memory", "processes": 1}),
    "annals in two processes": (annals, {"faults": ALL, "storage": "sqlite", "processes": 2}),
    "gate in memory": (gate, {"faults": IN_MEMORY, "storage": "memory", "processes": 1}),
    "gate in two processes": (gate, {"faults": ALL, "storage": "sqlite", "processes": 2}),
    "vaults in memory": (vaults, {"faults": IN_MEMORY, "storage": "memory", "processes": 1}),
}
"""The worlds in which artifacts, memories, summaries and credentials are kept, and those with guardrails. Planted bugs
that name none are not looked for here."""

SHARING: dict[str, tuple[Scenario, Options]] = {
    "scribes in memory": (scribes, {"faults": (), "storage": "memory", "processes": 1}),
    "scribes on disk": (scribes, {"faults": ("crash", "storage"), "storage": "sqlite", "processes": 1}),
    "spenders in memory": (spenders, {"faults": (), "storage": "memory", "processes": 1}),
    "archive in memory": (archive, {"faults": (), "storage": "memory", "processes": 1}),
    "archive in two processes": (archive, {"faults": (), "storage": "sqlite", "processes": 2}),
}
"""The worlds in which what is written, read, spent and shared is looked at closely. Planted bugs that name none are not
looked for here."""


def coverage_of(worlds: Mapping[str, tuple[Scenario, Options]], seeds: int) -> Counter[str]:
    """What happened in so many seeds of each world, in none of which anything may be found; the files verify."""
    found: Counter[str] = Counter()
    for name, (scenario, options) in worlds.items():
        for seed in range(seeds):
            outcome = simulate(scenario, SeededChoices(seed), **options, deep=True)
            assert outcome.failure is None, f"{name}, seed {seed}: {outcome.failure!r}"
            found += outcome.coverage
    print(f"{seeds * len(worlds)} runs: {dict(sorted(found.items()))}")
    return found
