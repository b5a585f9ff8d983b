"""
Worlds in which agents keep things: artifacts, memories, and what they were told, as a summary.

What is true of artifacts and memories in every world (that what events name can be read, that nobody sees what no event
has shown, that what was added is found) is checked by the simulation itself. These worlds lead there, and say what is
true of them alone: a rewind brings back what was, a model is told everything once, and nobody finds what is another's.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import trio

from minirun import App, Event, FunctionTool, InvocationContext, LlmAgent, ParallelAgent, RunConfig, Runner
from minirun.agents import BaseAgent
from minirun.apps import EventsCompactionConfig, FirstLinesSummarizer, LlmEventSummarizer
from minirun.artifacts import ArtifactKey, _sqlite
from minirun.errors import (
    AlreadyExistsError,
    CleanupTimeoutError,
    InvocationNotFoundError,
    ModelContractError,
    ModelError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageError,
)
from minirun.flows._transcript import Transcript
from minirun.models import LlmRequest
from minirun.plugins import BasePlugin, MemoryPlugin
from minirun.runners._compactor import _WHOLE, find_job
from minirun.runtime import CallbackContext
from minirun.sessions import GetSessionConfig, InvocationStatus, SessionKey
from minirun.sessions._compactions import Compaction, CompactionFold
from minirun.simulation import ChaosLlm, World
from minirun.simulation._sqlite_store import SqliteStore
from minirun.testing import ScriptedLlm, call
from minirun.tools import RetryConfig, ToolContext, load_artifacts, load_memory, preload_memory
from minirun.types import Content, Part

from .helpers import Logic, Place
from .laws import expect, hurry_up, read_logs

__all__ = ["annals", "diary", "studio"]

SESSION = "s"
# Who keeps house may meet all that users meet, and what others have done meanwhile.
MEANWHILE = (
    AlreadyExistsError,
    InvocationNotFoundError,
    SessionBusyError,
    SessionNotFoundError,
    StaleSessionError,
    StorageError,
)

Deed = Callable[[Runner], Awaitable[None]]


class House:
    """Where so many of these things are done, one after another, whatever else goes on; what fails is left."""

    def __init__(self, world: World, deeds: Mapping[str, Deed], times: int) -> None:
        self._world = world
        self._deeds = deeds
        self._left = times
        self._busy = 0

    async def keep(self, runner: Runner) -> None:
        """Do what is left to do; for `World.host`."""
        world, names = self._world, tuple(self._deeds)
        while self._left > 0:
            self._left -= 1
            for _ in range(world.choices.choose(16, "keeping house takes its time")):
                await world.sleep(0)
            name = names[world.choices.choose(len(names), "what is done in the house", names=names)]
            self._busy += 1
            try:
                await self._deeds[name](runner)
                world.reached(f"house: {name}")
            except MEANWHILE as error:
                world.reached(f"house: {name}: {type(error).__name__}")
            finally:
                self._busy -= 1

    async def close(self) -> None:
        """Let nothing more be done."""
        self._left = 0
        await self._world.sleep(20)
        while self._busy:
            await self._world.sleep(1)


async def rewind_somewhere(world: World, runner: Runner, user: str) -> None:
    """Rewind the user's session to before one of its invocations, if it has any."""
    place: Place = {"user_id": user, "session_id": SESSION}
    session = await runner.session_service.get_session(app_name="app", **place)
    known = session.events if session is not None else []
    names = list(dict.fromkeys(event.invocation_id for event in known if event.invocation_id and event.content))
    if names:
        name = names[world.choices.choose(len(names), "what is undone")]
        await runner.rewind_async(**place, rewind_before_invocation_id=name)


# --- artifacts --------------------------------------------------------------------------------------------------------

# So that a few hundred bytes are large content, which is written in several transactions.
CHUNK_BYTES = 300


@contextmanager
def small_chunks() -> Iterator[None]:
    """Content is large from a few hundred bytes on."""
    before = _sqlite.CHUNK_BYTES
    _sqlite.CHUNK_BYTES = CHUNK_BYTES
    try:
        yield
    finally:
        _sqlite.CHUNK_BYTES = before


async def studio(world: World) -> None:
    """Agents save artifacts in all the ways there are; others delete, fork, rewind and collect meanwhile."""
    with small_chunks():
        await _studio(world)


def saved_text(by: str, number: object = "") -> Part:
    """Some of them are large."""
    text = f"{by} {number}"
    return Part(text=text if len(text) % 3 else text * 30)


def artists(world: World) -> BaseAgent:
    """An agent that does what its message says."""

    async def save(ctx: InvocationContext) -> None:
        mine = saved_text(ctx.invocation_id, "draft")
        number = await ctx.save_artifact("draft", mine)
        loaded = await ctx.load_artifact("draft", number)
        expect(loaded in (mine, None), f"version {number} was saved as {mine}, and is loaded as {loaded}")
        await ctx.emit(Event(message="saved"))

    async def remember(ctx: InvocationContext) -> None:
        await ctx.save_artifact("user:profile", saved_text(ctx.invocation_id, "profile"))
        await ctx.emit(Event(message="remembered"))

    async def delete(ctx: InvocationContext) -> None:
        await ctx.delete_artifact("page")
        await ctx.emit(Event(message="deleted"))

    async def both(ctx: InvocationContext) -> None:
        await ctx.agent.sub_agents[0].run_async(ctx)

    async def paint(ctx: InvocationContext) -> None:
        await ctx.agent.sub_agents[1].run_async(ctx)

    async def write_page(ctx: InvocationContext) -> None:
        for number in range(2):
            mine = saved_text(f"{ctx.invocation_id} {ctx.agent_name}", number)
            saved = await ctx.save_artifact("page", mine)
            await world.sleep(world.choices.choose(2, "a page takes its time"))
            loaded = await ctx.load_artifact("page", saved)
            expect(loaded in (mine, None), f"page {saved} was saved as {mine}, and is loaded as {loaded}")

    async def draw(what: str, tool_context: ToolContext) -> int:
        drawn = saved_text(f"{tool_context.function_call_id} {what}")
        number = await tool_context.save_artifact("image", drawn)
        await world.sleep(world.choices.choose(2, "drawing takes its time"))
        if world.choices.maybe("the drawing fails", 4):
            raise OSError("out of ink")
        loaded = await tool_context.load_artifact("image", number)
        expect(loaded in (drawn, None), f"image {number} was saved as {drawn}, and is loaded as {loaded}")
        return number

    async def stamp(callback_context: CallbackContext) -> None:
        await callback_context.save_artifact("stamp", saved_text(callback_context.invocation_id, "stamp"))

    def painting(request: LlmRequest) -> Any:
        last = [
            part for content in request.contents[-2:] for part in content.parts
        ]  # what was loaded is shown at the end
        if not any(part.function_response is not None for part in last):
            return [call("draw", what="left"), call("load_artifacts", artifact_names=["image"]), call("draw", what="b")]
        return "painted"

    pages = ParallelAgent(name="both", sub_agents=[Logic(name=name, logic=write_page) for name in ("left", "right")])
    drawing = FunctionTool(draw, retry=RetryConfig(max_attempts=2, jitter=0), on_interrupted="rerun")
    painter = LlmAgent(
        name="painter",
        model=ScriptedLlm(painting),
        tools=[drawing, load_artifacts],
        before_agent_callback=stamp,
        instruction="The stamp is {artifact.stamp?}",
    )
    deeds = {"save": save, "both": both, "paint": paint, "remember": remember, "delete": delete}

    async def work(ctx: InvocationContext) -> None:
        for what in (ctx.user_content.text if ctx.user_content else "").split():
            await deeds[what](ctx)

    return Logic(name="studio", logic=work, sub_agents=[pages, painter])


class Letters(BasePlugin):
    """Saves what comes with a message, now and then."""

    def __init__(self, world: World) -> None:
        super().__init__(name="letters")
        self._world = world

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        """It is named by the message, or by nothing."""
        if self._world.choices.maybe("a letter comes with it", 3):
            await invocation_context.save_artifact("letter", saved_text(invocation_context.invocation_id, "letter"))


MESSAGES = ("save", "save both", "paint", "remember paint", "both delete save", "paint save paint")


async def _studio(world: World) -> None:
    pick = world.choices.choose
    runner = world.runner(lambda: App("app", artists(world), plugins=[Letters(world)]))
    numbers = count()

    async def clean(runner: Runner) -> None:
        assert runner.artifact_service is not None
        await runner.artifact_service.gc()

    async def delete(runner: Runner) -> None:
        assert runner.artifact_service is not None
        name = ("draft", "page", "image", "user:profile")[pick(4, "what is deleted")]
        await runner.artifact_service.delete_artifact(app_name="app", user_id="ada", session_id=SESSION, filename=name)

    async def save(runner: Runner) -> None:
        assert runner.artifact_service is not None
        name = ("draft", "note", "user:profile")[pick(3, "what is saved")]
        await runner.artifact_service.save_artifact(
            app_name="app",
            user_id="ada",
            session_id=SESSION,
            filename=name,
            artifact=saved_text("house", next(numbers)),
        )

    async def fork(runner: Runner) -> None:
        at = 1 + pick(8, "where it is forked") if pick(2, "a part of it is forked") else None
        session = await runner.session_service.get_session(app_name="app", user_id="ada", session_id=SESSION)
        if session is not None and (at is None or at <= session.revision):
            await runner.session_service.fork_session(
                app_name="app", user_id="ada", session_id=SESSION, at_seq=at, new_session_id=f"fork {next(numbers)}"
            )

    async def end(runner: Runner) -> None:
        await runner.session_service.delete_session(app_name="app", user_id="bob", session_id=SESSION)

    async def undo(runner: Runner) -> None:
        await rewind_somewhere(world, runner, "ada")

    async def look(runner: Runner) -> None:
        await read_all(runner, "ada")

    deeds: dict[str, Deed] = {
        "look": look,
        "clean": clean,
        "save": save,
        "undo": undo,
        "fork": fork,
        "delete": delete,
        "end": end,
    }
    async def hurry(user: str, text: str) -> None:
        """Say it, and leave soon, maybe before it is stored."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hurry_up, world, nursery.cancel_scope, 16)
            await talk(world, runner, user, [text])
            nursery.cancel_scope.cancel()

    house = House(world, deeds, 6 * pick(2, "somebody keeps house"))
    world.host(runner, house.keep)
    async with trio.open_nursery() as nursery:
        for user, times in (("ada", 2), ("ada", 1), ("bob", 1)):
            nursery.start_soon(
                talk, world, runner, user, [MESSAGES[pick(len(MESSAGES), "what to do")] for _ in range(times)]
            )
        if pick(2, "eve is in a hurry"):
            nursery.start_soon(hurry, "eve", "save")
    await world.heal()
    await house.close()
    logs = await read_logs(world, runner)
    check_staged(world)
    for (user, session), log in logs.items():
        check_drawn(world, user, session, log)
    if ("ada", SESSION) not in logs:
        return
    await check_rewind(world, runner)
    await check_houses(world, runner)


# Whatever may keep a run from dropping what no event has named, or from hearing that one has.
ACCIDENTS = ("crash", "stall", "conflict", "disk fault", "disk full", "slow disk", "lease taken over")


def check_staged(world: World) -> None:
    """What no event has named is dropped at the end of its run, where nothing kept it from that."""
    if isinstance(world._store, SqliteStore) and not any(world.coverage[what] for what in ACCIDENTS):
        left = world._store._rows("SELECT artifact, version FROM artifact_versions WHERE stager IS NOT NULL")
        expect(not left, f"the versions {left} are staged, and nobody will name them")


def check_drawn(world: World, user: str, session: str, log: Sequence[Event]) -> None:
    """An event with the results of calls names what those have saved, the last as the newest, and deleted ones not."""
    key = ArtifactKey("app", user, session, "image")
    for event in log:
        results = [response.response.get("result") for response in event.get_function_responses()]
        drawn = {number for number in results if isinstance(number, int)}
        named = {number for name, number in event.actions.named_artifacts() if name == key.filename}
        lost = {number for number in drawn - named if not world.artifacts._may_be_gone(key, number)}
        newest = event.actions.artifact_delta.get(key.filename)
        if results:
            is_newest = newest == max(drawn & named, default=None)
            expect(is_newest and not lost, f"event {event.seq} tells of {drawn}, and names {newest} of {named}")


async def talk(world: World, runner: Runner, user: str, texts: Sequence[str], config: RunConfig | None = None) -> None:
    """Say one thing after another."""
    for text in texts:
        try:
            await world.say(runner, user, text, session_id=SESSION, run_config=config)
        except (
            CleanupTimeoutError, ModelContractError, ModelError, SessionNotFoundError, StorageError, StaleSessionError
        ) as error:  # fmt: skip
            world.reached(f"the run failed: {type(error).__name__}")


async def read_all(runner: Runner, user_id: str, session_id: str = SESSION) -> dict[tuple[str, int], Part]:
    """All versions that are there, of all names, and what is the newest (-1); none is there and cannot be loaded."""
    service = runner.artifact_service
    assert service is not None
    place: dict[str, Any] = {"app_name": "app", "user_id": user_id, "session_id": session_id}
    found: dict[tuple[str, int], Part] = {}
    for name in await service.list_artifact_keys(**place):
        for number in await service.list_versions(**place, filename=name):
            part = await service.load_artifact(**place, filename=name, version=number)
            if part is not None:
                found[name, number] = part
        newest = await service.load_artifact(**place, filename=name)
        if newest is not None:
            found[name, -1] = newest
    return found


def newest_of(found: dict[tuple[str, int], Part]) -> dict[str, Part]:
    """What is the newest of each name that is the session's own."""
    return {name: part for (name, number), part in found.items() if number == -1 and not name.startswith("user:")}


async def check_rewind(world: World, runner: Runner) -> None:
    """What was the newest before an invocation is the newest after it was undone, and nothing else is lost."""
    place: Place = {"user_id": "ada", "session_id": SESSION}
    before = await read_all(runner, "ada")
    log = await runner.session_service.read_events(app_name="app", **place)
    for text in ("save both", "paint"):
        await world.say(runner, "ada", text, session_id=SESSION)
    session = await runner.session_service.get_session(app_name="app", **place)
    assert session is not None
    names = list(dict.fromkeys(event.invocation_id for event in session.events if event.author == "user"))
    meanwhile = await read_all(runner, "ada")
    expect(newest_of(meanwhile)["draft"] != newest_of(before).get("draft"), "what was saved is not the newest")
    if world._store.forks_copy:
        forked: Place = {"user_id": "ada", "session_id": "past"}
        await runner.session_service.fork_session(
            app_name="app", **place, at_seq=len(log) - 1, new_session_id=forked["session_id"]
        )
        past = newest_of(await read_all(runner, **forked))
        expect(past == newest_of(before), f"the past had {newest_of(before)}, and its fork has {past}")
    await runner.rewind_async(**place, rewind_before_invocation_id=names[-2] or "")
    after = await read_all(runner, "ada")
    wanted, newest = newest_of(before), newest_of(after)
    if world.coverage["crash"] and not world._store.forks_copy:
        # a rewind whose process died before it was stored has hidden what the log names, and the next one shows it
        named = {name for event in log for name, _ in event.actions.named_artifacts()}
        newest = {name: part for name, part in newest.items() if name in wanted or name not in named}
    expect(newest == wanted, f"it was {wanted}, and after a rewind {newest}")
    lost = {version for version in meanwhile if version[1] >= 0 and version[0] in {name for name, _ in after}} - set(
        after
    )
    expect(not lost, f"a rewind has lost {lost}")


async def check_houses(world: World, runner: Runner) -> None:
    """A fork has what its session has, and goes another way; what is deleted with a session is the session's alone."""
    service, sessions = runner.artifact_service, runner.session_service
    assert service is not None
    before = await read_all(runner, "ada")
    profile = {version: part for version, part in before.items() if version[0].startswith("user:")}
    if world._store.forks_copy:
        await sessions.fork_session(app_name="app", user_id="ada", session_id=SESSION, new_session_id="twin")
        twin: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "twin"}
        for name, part in newest_of(before).items():
            loaded = await service.load_artifact(**twin, filename=name)
            expect(loaded == part, f"the newest {name} is {part}, and in a fork it is {loaded}")
        await world.say(runner, "ada", "save", session_id="twin")
    expect(await read_all(runner, "ada") == before, "what is done in a fork has changed the session")
    await service.gc()
    expect(await read_all(runner, "ada") == before, "what is there was collected")
    await sessions.delete_session(app_name="app", user_id="ada", session_id=SESSION)
    expect(await read_all(runner, "ada") == profile, "with a session its artifacts are deleted, and no others")
    await world.say(runner, "ada", "save", session_id=SESSION)


# --- memory -----------------------------------------------------------------------------------------------------------

WORD = re.compile(r"w\d+x")
MEMORIES_MAX = 500


async def diary(world: World) -> None:
    """What two users say is remembered, at once and by themselves; some of it is forgotten, and nothing is mixed up."""
    pick = world.choices.choose
    words = count()
    owners: dict[str, str] = {}

    def word_of(user: str) -> str:
        word = f"w{next(words)}x"
        owners[word] = user
        return word

    async def learn(fact: str, tool_context: ToolContext) -> str:
        await tool_context.add_memory([f"{fact} learned {tool_context.function_call_id}"])
        await world.sleep(pick(2, "learning takes its time"))
        return "learned"

    def answering(request: LlmRequest) -> Any:
        if request.contents[-1].parts[-1].function_response is not None:
            return "I know"
        said = request.contents[-1].text
        return [call("learn", fact=said), call("load_memory", query="learned noted")]

    async def note(ctx: InvocationContext) -> None:
        text = ctx.user_content.text if ctx.user_content else ""
        before = await ctx.search_memory("noted", limit=MEMORIES_MAX)
        await ctx.add_memory([f"{text} noted {ctx.invocation_id}"])
        await ctx.emit(Event(message=f"after {len(before.memories)}"))
        check_found(await ctx.search_memory(f"noted {text}", limit=MEMORIES_MAX), ctx.user_id)
        if "ask" in text:
            await ctx.agent.sub_agents[0].run_async(ctx)

    def check_found(response: Any, user: str) -> None:
        for memory in response.memories:
            strangers = {owners[word] for word in WORD.findall(memory.text)} - {user}
            expect(not strangers, f"{user} finds what {strangers} have said: {memory.text}")

    def app() -> App:
        tools = [FunctionTool(learn, on_interrupted="rerun"), load_memory, preload_memory]
        child = LlmAgent(name="child", model=ScriptedLlm(answering), tools=tools)
        root = Logic(name="diary", logic=note, sub_agents=[child])
        return App("app", root, plugins=[MemoryPlugin()] if plugged else [])

    plugged = pick(2, "the plugin remembers") == 1
    runner = world.runner(app)
    users = ("ada", "bob")

    async def add(runner: Runner) -> None:
        user = users[pick(2, "whose session is remembered")]
        session = await runner.session_service.get_session(app_name="app", user_id=user, session_id=SESSION)
        if session is not None:
            assert runner.memory_service is not None
            await runner.memory_service.add_session_to_memory(session)

    async def forget(runner: Runner) -> None:
        assert runner.memory_service is not None
        found = await runner.memory_service.search_memory(app_name="app", user_id="ada", query="noted learned after")
        if found.memories:
            memory_id = found.memories[pick(len(found.memories), "what is forgotten")].id or ""
            await runner.memory_service.delete_memory(app_name="app", user_id="ada", memory_id=memory_id)

    async def forget_all(runner: Runner) -> None:
        assert runner.memory_service is not None
        await runner.memory_service.delete_session_memories(app_name="app", user_id="ada", session_id=SESSION)

    async def look(runner: Runner) -> None:
        assert runner.memory_service is not None
        for user in users:
            query = " ".join([*owners, "noted learned after know"][-30:])
            found = await runner.memory_service.search_memory(
                app_name="app", user_id=user, query=query, limit=MEMORIES_MAX
            )
            check_found(found, user)

    if pick(2, "supervised"):
        world.host(runner, Runner.supervise)
    deeds: dict[str, Deed] = {"look": look, "add": add, "forget": forget, "forget all": forget_all}
    house = House(world, deeds, 6 * pick(2, "somebody keeps house"))
    world.host(runner, house.keep)
    async with trio.open_nursery() as nursery:
        for user, times in (("ada", 2), ("ada", 1), ("bob", 2)):
            texts = [f"{('tell', 'ask')[pick(2, 'what to say')]} {word_of(user)}" for _ in range(times)]
            nursery.start_soon(talk, world, runner, user, texts)
    await world.heal()
    await house.close()
    logs = await read_logs(world, runner)
    for user in users:
        await look(runner)
        await check_remembered(
            world, runner, user, [event for (who, _), log in logs.items() if who == user for event in log]
        )


async def check_remembered(world: World, runner: Runner, user: str, events: Sequence[Event]) -> None:
    """Added once more, all that a user has said is found by its words, once; and what agents have noted, once."""
    service = runner.memory_service
    assert service is not None
    for _ in range(2):
        await service.add_events_to_memory(app_name="app", user_id=user, session_id=SESSION, events=events)
    forgotten = {name for scope, names in world.memories._may_be_gone.items() if scope[1] == user for name in names}
    for event in events:
        for word in WORD.findall(event.text):
            found = await service.search_memory(app_name="app", user_id=user, query=word, limit=MEMORIES_MAX)
            times = sum(memory.text == event.text for memory in found.memories)
            same = sum(other.text == event.text for other in events)
            expect(
                times == same or bool(forgotten),
                f"{event.text!r} of {user} was said {same} times, and is found {times}",
            )
    found = await service.search_memory(app_name="app", user_id=user, query="noted learned", limit=MEMORIES_MAX)
    for text, times in Counter(memory.text for memory in found.memories).items():
        expect(times == 1, f"{text!r} is remembered {times} times")


# --- summaries --------------------------------------------------------------------------------------------------------


# How often it is looked whether a summary is made: a supervisor that has failed a few times waits for minutes.
LOOKS_MAX = 60


class Teller:
    """The agents of a conversation, whose every text has a word of its own, and what their models were asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = count()
        self.asked: defaultdict[str, list[tuple[str, str | None, int, Sequence[Content]]]] = defaultdict(list)

    def text(self) -> str:
        """Something that nobody has said before."""
        return f"w{next(self._numbers)}x and so on, and so on, and so on"

    def app(self, config: EventsCompactionConfig) -> App:
        """Two agents, of whom one may hand over to the other."""

        def note(what: str) -> str:
            """Note it."""
            return self.text()

        def look(callback_context: CallbackContext, llm_request: Any) -> None:
            revision = callback_context.session.revision
            asked = (callback_context.agent_name, callback_context.branch, revision, list(llm_request.contents))
            self.asked[callback_context.user_id].append(asked)

        def answer(request: LlmRequest) -> Any:
            last = request.contents[-1].parts[-1]
            if last.function_response is not None or not self._world.choices.choose(3, "words or calls"):
                return self.text()
            return [call("note", what=self.text()) for _ in range(1 + self._world.choices.choose(2, "one more call"))]

        def agent(name: str, *others: LlmAgent) -> LlmAgent:
            tools = [FunctionTool(note, run_in="loop", on_interrupted="rerun")]
            model = ScriptedLlm(answer)
            return LlmAgent(name=name, model=model, tools=tools, sub_agents=others, before_model_callback=look)

        return App("app", agent("root", agent("second")), events_compaction_config=config)

    def check(self, user: str, log: Sequence[Event]) -> None:
        """Each model was told all that was visible: raw, once, or in the one summary, which covers it."""
        for agent, branch, revision, contents in self.asked[user]:
            past = log[: revision + 1]
            newest = CompactionFold.over(past).newest
            summary = None if newest is None else Compaction.of(newest)
            found = words_of(contents)
            visible = visible_of(past)[1:]
            wanted = words_of(shown_to(agent, branch, visible))
            if summary is not None:
                self._world.reached("a model was told a summary")
                parts = [part.text or "" for content in contents for part in content.parts]
                times = sum(summary.content.text in text for text in parts)
                expect(times == 1, f"the summary before event {revision} is told {times} times")
                covered = [event for event in visible if (event.seq or 0) <= summary.end_seq]
                wanted -= words_of(shown_to(agent, branch, covered))
                wanted += words_of([summary.content])
            expect(found == wanted, f"at event {revision} {found} is told, and it should be {wanted}")


def words_of(contents: Sequence[Content]) -> Counter[str]:
    """How often each word is said there."""
    return Counter(word for content in contents for word in WORD.findall(str(content)))


def shown_to(agent: str, branch: str | None, events: Sequence[Event]) -> Sequence[Content]:
    """What a model of *agent* is shown of these, without summaries."""
    transcript = Transcript(agent, 1, branch)
    transcript.read(events)
    return transcript.contents()


def visible_of(log: Sequence[Event]) -> list[Event]:
    """What no rewind has undone."""
    visible: list[Event] = []
    for event in log:
        target = event.actions.rewind_before_seq
        visible = [one for one in visible if target is None or (one.seq or 0) < target]
        visible.append(event)
    return visible


async def annals(world: World) -> None:
    """Two users talk, some of it is undone, and what was said before is told as a summary, in windows of all sizes."""
    pick = world.choices.choose
    by_interval = {"compaction_interval": 1 + pick(2, "interval"), "overlap_size": pick(2, "overlap")}
    by_tokens = {"token_threshold": 60, "event_retention_size": pick(3, "retained")}
    both = {**by_interval, **by_tokens}
    settings = (by_interval, by_tokens, both)[pick(3, "settings")]
    kind = pick(2, "who sums up")
    teller = Teller(world)

    def app() -> App:
        summarizer = (FirstLinesSummarizer(), LlmEventSummarizer(llm=ChaosLlm(name="summarizer")))[kind]
        return teller.app(EventsCompactionConfig(summarizer=summarizer, **settings))

    runner = world.runner(app)
    supervised = pick(2, "supervised") == 1
    if supervised:
        world.host(runner, Runner.supervise)

    async def undo(runner: Runner) -> None:
        await rewind_somewhere(world, runner, "ada")

    async def speak(user: str, times: int) -> None:
        for _ in range(times):
            window = (None, None, 0, 1, 4)[pick(5, "window")]
            loading = None if window is None else GetSessionConfig(num_recent_events=window)
            await talk(world, runner, user, [teller.text()], RunConfig(get_session_config=loading))

    async def hurry() -> None:
        for _ in range(2 + pick(3, "more in a hurry")):
            async with runner.run_async(user_id="eve", session_id=SESSION, new_message=teller.text()) as run:
                async for event in run:
                    await world.sleep(pick(8, "eve reads") / 10)  # meanwhile a summary of what was said before is made
                    if event.is_final_response():
                        break  # and waits for no summary

    house = House(world, {"undo": undo}, 2 * pick(2, "some of it is undone"))
    world.host(runner, house.keep)
    async with trio.open_nursery() as nursery:
        for user, times in (("ada", 3), ("ada", 1), ("bob", 2)):
            nursery.start_soon(speak, user, times)
    await world.heal()
    await house.close()
    await undo(runner)
    for _ in range(2):
        await speak("ada", 1)
    # Where the tokens leave events for which the interval asks, one summary follows another, each at the end of a run.
    settles = settings is not both or not settings["event_retention_size"]
    stays = supervised and settles and len(world._processes.seats) == 1 and not world.coverage["crash"]
    if stays:
        await hurry()
    logs = await read_logs(world, runner)
    listed = await runner.session_service.list_invocations(app_name="app")
    completed = {one.invocation_id for one in listed if one.status is InvocationStatus.COMPLETED}
    for (user, _), log in logs.items():
        said = {event.invocation_id for event in log if event.author != "user" and event.text}
        silent = completed & {event.invocation_id for event in log if event.content is not None} - said
        expect(not silent, f"{silent} are completed, and have not answered")
        teller.check(user, log)
        world.coverage["a summary"] += sum(event.actions.compaction is not None for event in log)
    if stays:
        for user, session in logs:
            await check_summed_up(world, runner, SessionKey("app", user, session))


async def check_summed_up(world: World, runner: Runner, key: SessionKey) -> None:
    """What was due when a run ended is summed up by a supervisor, unless its process has died, which had noted it."""
    compactor, service = runner._compactor, runner.session_service
    assert compactor is not None
    for _ in range(LOOKS_MAX):
        live = await service.load_session(key, _WHOLE)
        if live is None or await find_job(service, live, compactor._settings, compactor._tree) is None:
            return
        await world.sleep(10)
    expect(False, f"a summary of {key} is due, and nobody makes it")
