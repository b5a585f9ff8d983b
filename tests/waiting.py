"""
Worlds in which agents wait: for people, for results from elsewhere and for times, while everything may go wrong.

Users talk, and answer as people do: later, after something else, twice, from two devices, with what does not fit.
Supervisors go on with what was interrupted and what is due, and are ended and begun again. When the faults are over,
whatever waits is brought to its end. Then every invocation has one end, everybody was told what was answered, and what
was done outside is in the log, once; what was done and could not be recorded was done with the same key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import trio

from minirun import AgentTool, Event, FunctionTool, InvocationContext, LlmAgent, ParallelAgent, Runner
from minirun.agents import BaseAgent
from minirun.errors import (
    DeadlineExceededError,
    InvalidMessageError,
    ModelContractError,
    ModelError,
    NotResumableError,
    SessionNotFoundError,
    StaleSessionError,
    StorageError,
)
from minirun.models import LlmRequest
from minirun.runtime import ReadonlyContext
from minirun.sessions import Invocation, InvocationStatus, PendingCall
from minirun.simulation import World
from minirun.simulation._env import SimulatedEnv
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool, ToolContext
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from .helpers import Logic, Place
from .laws import Log, at_rest, expect, hurry_up, kind_of, read_logs
from .simulation.stores import checks_of

__all__ = ["office", "orders"]

SESSION = "s"
WAIT_S = 40.0
"""How long a timer waits; a few looks of a supervisor."""
LOOK_S = 25.0
"""How often a supervisor looks."""
LIFE_STEPS_MAX = 24
"""How many steps a supervisor takes until it is ended, if it is: as many as a run or two."""
ROUNDS_MAX = 40
"""After so many rounds of answers nothing waits any more: no agent here asks more than a handful of questions."""

NUMBER = {"type": "integer", "minimum": 1}
WORD = {"type": "string", "pattern": "^a"}
WRONG = -1
"""An answer that no form allows, and no confirmation."""

# What a run may fail with here: what the faults are made of, and what they come to.
EXPECTED = (ModelContractError, ModelError, StorageError, StaleSessionError, DeadlineExceededError)
ENDS = (InvocationStatus.COMPLETED, InvocationStatus.FAILED, InvocationStatus.CANCELLED)


class Outside:
    """What was done to the world outside, by the key that whoever does it has: a crash does not undo it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.times: Counter[str] = Counter()
        self._steps: dict[str, str] = {}

    def act_in_step(self, ctx: InvocationContext) -> None:
        """Do what a step is for."""
        self._steps[ctx.idempotency_key] = ctx.invocation_id
        self.act(ctx.idempotency_key)

    def act(self, key: str) -> None:
        """Do it; where it is recorded already, nobody does it again, but for a process that stood still meanwhile."""
        self.times[key] += 1
        if self.times[key] > 1:
            self._world.reached("done again, its record was lost")
        if self.is_recorded(key) and not may_run_twice(self._world):
            self._world.fail(f"what {key} stands for is recorded, and is done again", "what is recorded is not done")

    def is_recorded(self, key: str) -> bool:
        """Whether the log tells that it was done."""
        return any(_is_record(event, key) for log in checks_of(self._world).ledger.logs.values() for event in log)

    def check(self, records: set[str], completed: set[str]) -> None:
        """
        What is recorded was done; what was done is recorded, and was done once, unless something went wrong.

        A step whose record was lost is taken again with the same key: who comes to an end has a record for each key.
        """
        lost = {key for key, invocation in self._steps.items() if invocation in completed} - records
        expect(not lost, f"the steps {lost} were taken, and those who took them have ended without a record")
        expect(records <= self.times.keys(), f"{records - self.times.keys()} are recorded, and were not done")
        if is_undisturbed(self._world) and not self._world.faults:
            expect(records == self.times.keys(), f"{self.times.keys() - records} were done, and are not recorded")
            expect(max(self.times.values(), default=1) == 1, f"something was done twice: {self.times}")


def may_run_twice(world: World) -> bool:
    """
    Whether a process may have stood still while another one took over what it runs, and then have gone on.

    That a lease was taken over is known when the first event of the other one is acknowledged, and that is on the disk
    before: what stood still may come between.
    """
    return len(world._processes.seats) > 1 and (world.coverage["lease taken over"] > 0 or world.coverage["stall"] > 0)


# What ends a run before all that runs side by side in it has come to its end, or its next wait.
_CUTS = ("crash", "stall", "user left", "a supervisor was ended", "conflict", "disk fault", "disk full", "slow disk")


def is_undisturbed(world: World) -> bool:
    """Whether nothing has cut a run short."""
    return not any(world.coverage[what] for what in _CUTS)


def _is_record(event: Event, key: str) -> bool:
    return event.id == key or any(response.id == key for response in event.get_function_responses())


class People:
    """Users who are asked something, and answer like people; what they were told of their answers."""

    def __init__(self, world: World, runner: Runner) -> None:
        self._world = world
        self._runner = runner
        self.expected: tuple[type[Exception], ...] = EXPECTED
        """What runs may fail with."""
        self._said = 0
        self._known: dict[str, dict[str, PendingCall]] = defaultdict(dict)  # by user: every question that was seen
        self.accepted: dict[str, Any] = {}
        """What was answered to a question, by its id, where whoever answered has heard that it was taken."""
        self.left: set[str] = set()
        """The invocations that nobody has waited for."""

    async def talk(self, user: str, *texts: str) -> None:
        """Say one thing after another, whatever waits."""
        for text in texts:
            try:
                await self._world.say(self._runner, user, text, session_id=SESSION)
            except self.expected as error:
                self._world.reached(f"the run failed: {type(error).__name__}")

    async def answer(self, user: str, times: int) -> None:
        """Answer what is asked, or was, rightly or wrongly, on a device of one's own."""
        choices = self._world.choices
        for _ in range(times):
            await self._world.sleep(10 * choices.choose(3, f"{user} takes time to answer"))
            try:
                pending = await self._pending(user)
            except StorageError:
                continue
            self._known[user] |= {question.call_id: question for question in pending}
            known = list(self._known[user].values())
            if not known:
                continue
            newest = [*pending, *(each for each in known if each not in pending)]
            question = newest[choices.choose(len(newest), "which question is answered")]
            await self._send(user, question, wrongly=choices.maybe(f"{user} answers what does not fit", 4))

    async def _send(self, user: str, question: PendingCall, *, wrongly: bool) -> None:
        world = self._world
        taken = question.call_id in self.accepted
        wrongly = question.kind == "timer" or (wrongly and question.kind != "long_running")
        value = WRONG if wrongly else self._fitting(question)
        try:
            await world.say(self._runner, user, _raw_reply(question, value), session_id=SESSION)
        except (InvalidMessageError, SessionNotFoundError):
            what = "what does not fit" if wrongly else "a second answer" if taken else "an answer that came too late"
            world.reached(f"{what} was refused")
            return
        except self.expected as error:
            world.reached(f"the run failed: {type(error).__name__}")
        else:
            expect(not wrongly, f"{value!r} does not fit {question}, and was taken")
            expect(not taken, f"{self.accepted.get(question.call_id)} was answered already to {question}")
            self.accepted[question.call_id] = value
            world.reached("an answer was taken")

    def _fitting(self, question: PendingCall) -> Any:
        """An answer that nobody has given yet, if it is no permission."""
        self._said += 1
        if question.kind == "confirmation":
            return not self._world.choices.maybe("it is not allowed", 5)
        is_word = question.kind == "message" or (question.schema is not None and question.schema["type"] == "string")
        return f"a{self._said}" if is_word else self._said

    async def _pending(self, user: str | None = None) -> list[PendingCall]:
        runner = self._runner
        service = runner.session_service
        return await service.list_pending(app_name=runner.app_name, user_id=user, include_timers=True)

    # --- when nothing goes wrong any more

    async def settle(self) -> None:
        """Let the faults end, go on with whatever can, and answer whatever is open, until nothing waits."""
        world, runner = self._world, self._runner
        await world.heal()
        for _ in range(ROUNDS_MAX):
            await at_rest(world, runner)
            pending = await self._pending()
            going = await self._interrupted()
            if not pending and not going:
                return await self._close_what_is_left()
            for one in going:
                await self._go_on(one)
            for question in pending:
                if question.kind == "timer":
                    await world.sleep(max(0.0, (question.due or 0.0) - world.now))
                else:
                    await self._settle_question(question)
            await runner.resume_due()
        expect(
            False, f"after {ROUNDS_MAX} rounds something waits: {await self._pending()}, {await self._interrupted()}"
        )

    async def _close_what_is_left(self) -> None:
        """
        Enter every session once more.

        A run that has failed because the store did may have left calls open; whoever comes next answers them.
        """
        for user, session in await read_logs(self._world, self._runner):
            async with self._runner.run_async(user_id=user, session_id=session, new_message="bye") as run:
                self.left.add(run.invocation_id)

    async def _interrupted(self) -> list[Invocation]:
        found = await self._runner.session_service.list_invocations(app_name=self._runner.app_name)
        return [one for one in found if one.status not in ENDS and one.status is not InvocationStatus.PAUSED]

    async def _go_on(self, one: Invocation) -> None:
        place: Place = {"user_id": one.user_id, "session_id": one.session_id}
        try:
            async with self._runner.run_async(**place, invocation_id=one.invocation_id) as run:
                await run.wait()
        except NotResumableError:  # its end was not stored yet when it was listed, and others have begun since
            listed = await self._runner.session_service.list_invocations(app_name=self._runner.app_name)
            [now] = [each for each in listed if each.invocation_id == one.invocation_id]
            expect(now.status in ENDS, f"{now} cannot be gone on with")
            self._world.reached("an end came late")
        except self.expected as error:
            self._world.reached(f"the run failed: {type(error).__name__}")

    async def _settle_question(self, question: PendingCall) -> None:
        place: Place = {"user_id": question.user_id, "session_id": question.session_id}
        value = self._fitting(question)
        try:
            async with self._runner.run_async(**place, new_message=question.reply(value)) as run:
                await run.wait()
        except InvalidMessageError:
            self._world.reached("an answer that came too late was refused")
        except self.expected as error:
            self._world.reached(f"the run failed: {type(error).__name__}")


def _raw_reply(question: PendingCall, value: Any) -> Content:
    """What `reply` makes, also of what it would refuse."""
    if question.kind != "timer" and value != WRONG:
        return question.reply(value)
    key = "confirmed" if question.kind == "confirmation" else "result"
    response = FunctionResponse(id=question.call_id, name=question.name, response={key: value})
    return Content(role="user", parts=[Part(function_response=response)])


def supervising(world: World) -> Callable[[Runner], Awaitable[None]]:
    """A supervisor that its host ends now and then, and begins anew."""

    async def host(runner: Runner) -> None:
        while True:
            async with trio.open_nursery() as nursery:
                await nursery.start(lambda task_status: runner.supervise(every_s=LOOK_S, task_status=task_status))
                for _ in range(
                    LIFE_STEPS_MAX - world.choices.choose(LIFE_STEPS_MAX, "how early the supervisor is ended")
                ):
                    await world.sleep(0)
                if world.choices.choose(2, "the supervisor lives on"):
                    await trio.sleep_forever()
                nursery.cancel_scope.cancel()
            world.reached("a supervisor was ended")
            await world.sleep(LOOK_S)

    return host


def ticking(world: World) -> Callable[[Runner], Awaitable[None]]:
    """A clock that only goes on with what is due."""

    async def host(runner: Runner) -> None:
        while True:
            await world.sleep(LOOK_S)
            try:
                if await runner.resume_due():
                    world.reached("what was due went on")
            except StorageError:
                pass  # the next look may succeed

    return host


# --- what is true in the end ------------------------------------------------------------------------------------------


async def check_end(world: World, runner: Runner, people: People) -> dict[tuple[str, str], Log]:
    """Check that all have come to an end, that nothing is open, and that each answer has reached who had asked."""
    logs = await read_logs(world, runner)
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    status = {one.invocation_id: one.status for one in listed}
    left = [f"{name}: {each}" for name, each in status.items() if each not in ENDS]
    expect(not left, f"invocations have not ended: {left}")
    if not world.faults & {"users", "tools"}:
        taken_back = {name for name, each in status.items() if each is InvocationStatus.CANCELLED} - people.left
        expect(not taken_back, f"{taken_back} are cancelled, and nobody has left them")
    allowed = {error.__name__ for error in EXPECTED} | {error.__name__ for base in EXPECTED for error in _below(base)}
    for log in logs.values():
        codes = {event.error_code for event in log if event.error_code}
        expect(codes <= allowed, f"the log tells {codes - allowed}")
        answers = check_answered(log)
        for name, own in by_invocation(log).items():
            if status[name] is InvocationStatus.COMPLETED:
                check_suspended(own)
        for call_id, value in people.accepted.items():
            if call_id in answers:
                expect(_value_of(answers[call_id]) == value, f"{value} was taken for {call_id}: {answers[call_id]}")
        for timer, response in _timers(log):
            is_due = response["now"] >= timer["until"] or world.coverage["clock set back"]
            expect(bool(is_due), f"a timer was over at {response['now']}: {timer}")
    return logs


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _value_of(response: Mapping[str, Any]) -> Any:
    return response["confirmed"] if "confirmed" in response else response.get("result")


def _timers(log: Log) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The appointments of a log and what they were answered with, by whoever went on."""
    until = {made.id: made.args for event in log for made in event.get_function_calls() if "until" in made.args}
    for event in log:
        for response in event.get_function_responses():
            if response.id in until and "now" in response.response:
                yield until[response.id], response.response


def check_answered(log: Log) -> dict[str | None, dict[str, Any]]:
    """Check that every call is answered, once, and not with what does not fit; return the answers."""
    answers: dict[str | None, dict[str, Any]] = {}
    open_calls: set[str | None] = set()
    for event in log:
        for response in event.get_function_responses():
            expect(response.id in open_calls, f"the response {response.id} answers no open call")
            expect(_value_of(response.response) != WRONG, f"event {event.seq} has an answer that does not fit")
            open_calls.remove(response.id)
            answers[response.id] = dict(response.response)
        open_calls.update(made.id for made in event.get_function_calls())
    expect(not open_calls, f"the calls {open_calls} were never answered")
    return answers


def check_suspended(log: Log) -> None:
    """Check that no call was answered before the questions that it has asked."""
    asked: dict[str | None, set[str]] = {}  # by question: the calls that wait for its answer
    for event in log:
        for response in event.get_function_responses():
            asked.pop(response.id, None)
            waiting = [question for question, calls in asked.items() if response.id in calls]
            expect(not waiting, f"event {event.seq} answers {response.id}, which waits for {waiting}")
        for made in event.get_function_calls() if event.long_running_tool_ids else ():
            asked[made.id] = set(event.actions.suspended_calls)
            asked[made.id].update(step.rpartition("@")[2] for step in (event.branch or "").split(".") if "@" in step)


def by_invocation(log: Log) -> dict[str, Log]:
    """The events of a log that belong to invocations."""
    found: dict[str, Log] = defaultdict(list)
    for event in log:
        if event.invocation_id is not None:
            found[event.invocation_id].append(event)
    return found


async def completed_of(runner: Runner) -> set[str]:
    """The invocations that have come to their end."""
    listed = await runner.session_service.list_invocations(app_name=runner.app_name)
    return {one.invocation_id for one in listed if one.status is InvocationStatus.COMPLETED}


def answer_to(world: World, log: Log, message: str) -> Any:
    """What was answered to a question with this text, which a run that was cut short may have taken back."""
    answers = {item.id: item.response for event in log for item in event.get_function_responses()}
    asked = [made.id for event in log for made in event.get_function_calls() if made.args.get("message") == message]
    if not is_undisturbed(world):
        asked = [call_id for call_id in asked if "error" not in answers[call_id]]
    expect(len(asked) == 1, f"{message!r} was to be asked once, and was asked {len(asked)} times")
    return _value_of(answers[asked[0]])


def steps_of(log: Log, *names: str) -> set[str]:
    """The keys of the steps that are recorded; of those with these names, if some are given."""
    steps = [(event.id or "", event.actions.replay.step) for event in log]
    found = [(key, step.name) for key, step in steps if step is not None]
    expect(len(found) == len(set(found)), f"a step is recorded twice: {found}")
    return {key for key, name in found if not names or name in names}


# --- agents with steps, questions and timers --------------------------------------------------------------------------


async def orders(world: World) -> None:
    """
    An agent charges, asks for a size, waits for a time, lets three others wait side by side, and ships.

    What it charges follows from the session's state, which other orders of the session change meanwhile. It has little
    patience with its steps: it leaves one, and takes it again.
    """
    outside = Outside(world)

    async def do(ctx: InvocationContext, number: int) -> str:
        await world.sleep(world.choices.choose(2, "the work takes its time"))
        outside.act_in_step(ctx)
        await world.sleep(world.choices.choose(2, "the work takes its time"))
        return ctx.idempotency_key

    async def do_step(ctx: InvocationContext, name: str, number: int) -> None:
        done: list[str] = []

        async def work(number: int) -> str:
            done.append(await do(ctx, number))
            return done[-1]

        def work_at_once(number: int) -> str:
            outside.act_in_step(ctx)
            done.append(ctx.idempotency_key)
            return done[-1]

        made, key = work_at_once if name == "ship" else work, ""
        if world.choices.maybe("a step is left", 5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hurry_up, world, nursery.cancel_scope, 12)
                key = await ctx.step(name, made, number)
                nursery.cancel_scope.cancel()
            world.reached("a step was left" if not done else "a step was left when it was done")
            env = ctx._invocation.env
            assert isinstance(env, SimulatedEnv)
            if done and env.lives and "storage" not in world.faults and not may_run_twice(world):
                expect(outside.is_recorded(done[0]), f"{name} was done and left, and is not recorded")
        key = key or await ctx.step(name, made, number)
        expect(key in outside.times, f"{name} was not done by this order")

    async def wait_a_while(ctx: InvocationContext) -> None:
        await ctx.sleep_until(await ctx.step("when", when))

    def when() -> float:
        return world.now + WAIT_S

    async def order(ctx: InvocationContext) -> None:
        number = ctx.state.get("orders", 0)
        await ctx.emit(Event(message="ordered"))  # with it is recorded what was read
        await do_step(ctx, "charge", number)
        ctx.state.add("app:charged")
        ctx.state.add("orders")
        await ctx.emit(Event(message="charged"))
        await ctx.emit(Event(message=f"size {await ctx.request_input('size', response_schema=NUMBER)}"))
        await wait_a_while(ctx)
        [beside] = ctx.agent.sub_agents
        await beside.run_async(ctx)
        await do_step(ctx, "ship", 0)
        await ctx.emit(Event(message="shipped"))

    async def ask(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"colour {await ctx.request_input('colour', response_schema=WORD)}"))

    async def rest(ctx: InvocationContext) -> None:
        await wait_a_while(ctx)
        await ctx.emit(Event(message="rested"))

    async def pack(ctx: InvocationContext) -> None:
        for number in range(2):
            await do_step(ctx, "pack", number)
            ctx.state.add("app:packed")
            await ctx.emit(Event(message=f"packed {number}"))

    def agent() -> BaseAgent:
        branches = [Logic(name="asker", logic=ask), Logic(name="rester", logic=rest), Logic(name="packer", logic=pack)]
        return Logic(name="order", logic=order, sub_agents=[ParallelAgent(name="beside", sub_agents=branches)])

    runner = world.runner(agent)
    people = await live(world, runner)
    logs = await check_end(world, runner, people)
    completed = await completed_of(runner)
    texts: Counter[str] = Counter()
    for log in logs.values():
        for name, own in by_invocation(log).items():
            said = [event.text for event in own if event.author != "user" and event.text]
            texts.update(said)
            expect(len(said) == len(set(said)), f"{name} has said something twice: {said}")
            if name in completed:
                expected = {
                    "ordered",
                    "charged",
                    f"size {answer_to(world, own, 'size')}",
                    f"colour {answer_to(world, own, 'colour')}",
                }
                expected |= {"rested", "packed 0", "packed 1", "shipped"}
                expect(set(said) == expected, f"{name} was to say {expected}, and has said {said}")
                expect(len(steps_of(own)) == 6, f"{name} has taken 6 steps, and recorded {steps_of(own)}")
                expect(
                    has_packed_beside(own) or not is_undisturbed(world), f"{name} has packed after others had waited"
                )
    outside.check({key for log in logs.values() for key in steps_of(log, "charge", "pack", "ship")}, completed)
    state = world.state(runner)
    counts = (state.get("app:charged", 0), state.get("app:packed", 0))
    expected_counts = (texts["charged"], texts["packed 0"] + texts["packed 1"])
    expect(counts == expected_counts, f"charged and packed were {expected_counts}, and the state says {counts}")


def has_packed_beside(log: Log) -> bool:
    """Whether the branch that waits for nobody has come to its end in the run in which the others began to wait."""
    asked = next(
        event.seq or 0 for event in log for made in event.get_function_calls() if made.args.get("message") == "colour"
    )
    gone_on = next(event.seq or 0 for event in log if event.author == "user" and (event.seq or 0) > asked)
    return any(event.text == "packed 1" and (event.seq or 0) < gone_on for event in log)


async def live(world: World, runner: Runner, people: People | None = None) -> People:
    """Let two users talk and answer, one on two devices, beside supervisors, perhaps; then bring all to an end."""
    people = People(world, runner) if people is None else people
    hosted = ("supervisors", "a clock", "nobody")
    picked = world.choices.choose(len(hosted), "who goes on", names=hosted)
    if picked < 2:
        world.host(runner, (supervising, ticking)[picked](world))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(people.talk, "ada", "one", "two")
        nursery.start_soon(people.answer, "ada", 4)
        nursery.start_soon(people.answer, "ada", 4)
        if world.choices.choose(2, "bob orders, too"):
            nursery.start_soon(people.talk, "bob", "one")
            nursery.start_soon(people.answer, "bob", 4)
    await people.settle()
    return people


# --- models with tools that wait --------------------------------------------------------------------------------------


async def office(world: World) -> None:
    """A model calls tools that need permission, ask, work elsewhere, or are agents that ask; all in one turn."""
    outside = Outside(world)

    async def pay(note: str, tool_context: ToolContext) -> str:
        confirmation = tool_context.tool_confirmation
        expect(confirmation is not None and confirmation.confirmed, "money was paid, and nobody has allowed it")
        outside.act(tool_context.function_call_id)
        tool_context.state.add("app:paid")
        await world.sleep(world.choices.choose(2, "paying takes its time"))
        return "paid"

    def deliver(note: str, tool_context: ToolContext) -> str:
        outside.act(tool_context.function_call_id)
        return "on its way"

    async def measure(note: str, tool_context: ToolContext) -> int:
        size: int = await tool_context.request_input("size", response_schema=NUMBER)
        await world.sleep(world.choices.choose(2, "measuring takes its time"))
        outside.act(tool_context.function_call_id)
        tool_context.state.add("app:measured")
        return size

    async def count(note: str, tool_context: ToolContext) -> str:
        outside.act(tool_context.function_call_id)
        await world.sleep(world.choices.choose(2, "counting takes its time"))
        return "counted"

    async def sign(note: str, tool_context: ToolContext) -> str:
        outside.act(tool_context.function_call_id)
        await world.sleep(world.choices.choose(2, "signing takes its time"))
        return "signed"

    async def help_out(ctx: InvocationContext) -> None:
        async def look() -> str:
            outside.act(ctx.idempotency_key)
            await world.sleep(world.choices.choose(2, "looking takes its time"))
            return "seen"

        await ctx.step("look", look)
        await ctx.emit(Event(message=f"helped {await ctx.request_input('help', response_schema=WORD)}"))

    made = ("pay", "deliver", "measure", "helper", "count", "sign")

    def script(request: LlmRequest) -> Any:
        own = str(request.config.system_instruction)
        is_told = is_said(world, own, "bought") and not may_run_twice(world)
        expect(not is_told, f"the model has answered in {own}, and is asked again")
        parts = [part for content in request.contents for part in content.parts]
        calls = [part.function_call for part in parts if part.function_call is not None]
        ids = {one.id for one in calls if own in one.args.values()}
        if not ids:
            first = world.choices.choose(len(made), "the first call")
            picked = [made[(first + place) % len(made)] for place in range(1 + world.choices.choose(3, "more calls"))]
            return [call(name, **{"request" if name == "helper" else "note": own}) for name in picked]
        told = {part.function_response.id: part.function_response for part in parts if part.function_response}
        expect(all("status" not in told[one].response for one in ids), "a model is asked while a call of its own waits")
        return f"bought {own}"

    def invocation(ctx: ReadonlyContext) -> str:
        return ctx.invocation_id

    def agent() -> BaseAgent:
        tools = [
            FunctionTool(pay, require_confirmation=True),
            LongRunningFunctionTool(deliver),
            FunctionTool(measure),
            AgentTool(Logic(name="helper", logic=help_out)),
            FunctionTool(count, on_interrupted="rerun"),
            FunctionTool(sign, on_interrupted="ask"),
        ]
        return LlmAgent(name="office", model=ScriptedLlm(script), tools=tools, instruction=invocation)

    runner = world.runner(agent)
    people = await live(world, runner)
    logs = await check_end(world, runner, people)
    completed = await completed_of(runner)
    results: Counter[str] = Counter()
    records: set[str] = set()
    for log in logs.values():
        records |= steps_of(log)
        for name, own in by_invocation(log).items():
            texts = [event.text for event in own if event.text.startswith("bought")]
            expect(name not in completed or texts == [f"bought {name}"], f"{name} is completed, and has said {texts}")
        for one, answer in results_of(log):
            results[one.name] += 1
            if one.name in made and one.name != "helper":
                records.add(one.id or "")
            check_what_was_asked(log, one, answer)
        for one in calls_of(log):
            times, allowed = outside.times[one.id or ""], _answers_about(log, one).count(True)
            expect(one.name != "sign" or times <= 1 + allowed, f"{one} was made {times} times, and allowed {allowed}")
    outside.check(records, set())  # a helper may have been given up
    once = {one.id or "" for log in logs.values() for one in calls_of(log) if one.name in ("pay", "measure")}
    twice = [key for key in once if outside.times[key] > 1]
    expect(not twice, f"the calls {twice} were made twice, and nobody has allowed that")
    state = world.state(runner)
    counts = (state.get("app:paid", 0), state.get("app:measured", 0))
    expect(counts == (results["pay"], results["measure"]), f"results are {results}, and the state says {counts}")


def is_said(world: World, invocation: str, text: str) -> bool:
    """Whether it is recorded that an invocation has said what begins with *text*."""
    logs = checks_of(world).ledger.logs.values()
    return any(event.invocation_id == invocation and event.text.startswith(text) for log in logs for event in log)


def calls_of(log: Log) -> Iterator[FunctionCall]:
    """All calls of a log."""
    for event in log:
        yield from event.get_function_calls()


def results_of(log: Log) -> Iterator[tuple[FunctionCall, Any]]:
    """The calls that have a result, and what it is."""
    answers = {item.id: dict(item.response) for event in log for item in event.get_function_responses()}
    for one in calls_of(log):
        if kind_of(answers[one.id]) == "result":
            yield one, _value_of(answers[one.id])


def check_what_was_asked(log: Log, made: FunctionCall, result: Any) -> None:
    """Check that a tool has what was answered to it: its result tells, or somebody has allowed it."""
    given = _answers_about(log, made)
    if made.name == "measure":
        expect(given == [result], f"{given} was answered, and the tool has returned {result}")
    elif made.name == "helper":
        expect(f"helped {given[0]}" == result, f"{given} was answered, and the helper has returned {result}")
    elif made.name == "pay":
        expect(given == [True], f"money was paid, and the answers were {given}")


def _answers_about(log: Log, made: FunctionCall) -> list[Any]:
    """What was answered to the questions that a call has asked, or an agent inside of it."""
    answers = {item.id: _value_of(item.response) for event in log for item in event.get_function_responses()}
    asked = [
        event
        for event in log
        if made.id in event.actions.suspended_calls or (event.branch or "").endswith(f"@{made.id}")
    ]
    return [answers[question.id] for event in asked for question in event.get_function_calls()]
