"""
Artifacts in runs: which event names a version, what a run sees, and what resuming and rewinding make of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypedDict

import attrs
import pytest
import trio

from minirun import (
    App,
    BaseAgent,
    Event,
    EventActions,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    SqliteSessionService,
    ToolContext,
)
from minirun.artifacts import (
    BaseArtifactService,
    Collected,
    DatabaseArtifactService,
    FileArtifactService,
    InMemoryArtifactService,
    SqliteArtifactService,
)
from minirun.errors import (
    InvalidEventError,
    InvalidValueError,
    InvocationEndedError,
    MissingArtifactError,
    ServiceNotConfiguredError,
    StorageFullError,
)
from minirun.models import LlmRequest
from minirun.plugins import BasePlugin
from minirun.sessions import BaseSessionService, DatabaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, LongRunningFunctionTool, RetryConfig, load_artifacts
from minirun.types import Blob, Content, Part

from ..stores import database_of


class Place(TypedDict):
    """Which session of the app."""

    user_id: str
    session_id: str


class Where(Place):
    """Which session."""

    app_name: str


PLACE: Place = {"user_id": "u", "session_id": "s"}
WHERE: Where = {**PLACE, "app_name": "app"}


@attrs.define
class Store:
    """Where sessions and artifacts are kept, and how to open it anew, as another process would."""

    reopen: Callable[[], tuple[BaseSessionService, BaseArtifactService]]
    opened: list[BaseSessionService] = attrs.field(factory=list)
    sessions: BaseSessionService = attrs.field(init=False)
    artifacts: BaseArtifactService = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.sessions, self.artifacts = self.reopen()
        self.opened.append(self.sessions)

    async def aclose(self) -> None:
        for sessions in self.opened:
            await sessions.aclose()

    def runner(self, agent: BaseAgent, *plugins: BasePlugin) -> Runner:
        return Runner(
            app=App("app", agent, plugins),
            session_service=self.sessions,
            artifact_service=self.artifacts,
            auto_create_session=True,
        )

    async def text(self, filename: str, version: int | None = None) -> str | None:
        part = await self.artifacts.load_artifact(**WHERE, filename=filename, version=version)
        return None if part is None else part.text

    async def versions(self, filename: str) -> list[int]:
        return await self.artifacts.list_versions(**WHERE, filename=filename)

    async def save(self, filename: str, text: str) -> int:
        return await self.artifacts.save_artifact(**WHERE, filename=filename, artifact=Part(text=text))

    async def deltas(self) -> list[dict[str, int]]:
        """What the events of the session name, in their order; those that name nothing left out."""
        events = await self.sessions.read_events(**WHERE)
        return [dict(event.actions.artifact_delta) for event in events if event.actions.artifact_delta]


def stored_in(kind: str, folder: Path) -> Store:
    """A store of this kind."""
    path = folder / "s.db"

    def shared() -> tuple[BaseSessionService, BaseArtifactService]:
        sessions = SqliteSessionService(path)
        return sessions, SqliteArtifactService(sessions)

    if kind == "postgres":
        return in_database(database_of(folder))
    if kind == "shared":
        return Store(shared)
    if kind == "file":
        return Store(lambda: (SqliteSessionService(path), FileArtifactService(folder / "artifacts")))
    sessions = SqliteSessionService(":memory:")
    one = (sessions, SqliteArtifactService(sessions)) if kind == "shared in memory" else None
    both = one or (InMemorySessionService(), InMemoryArtifactService())
    return Store(lambda: both)


def in_database(url: str) -> Store:
    """A store of sessions and artifacts in a Postgres database."""

    def opened() -> tuple[BaseSessionService, BaseArtifactService]:
        sessions = DatabaseSessionService(url)
        return sessions, DatabaseArtifactService(sessions)

    return Store(opened)


@pytest.fixture(params=["memory", "file", "shared", "shared in memory", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind."""
    store = stored_in(request.param, tmp_path)
    yield store
    await store.aclose()


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Store]:
    """A store whose artifacts are in the file of the sessions."""
    store = stored_in("shared", tmp_path)
    yield store
    await store.aclose()


async def run(runner: Runner, message: str | Content = "go", **options: Any) -> list[Event]:
    events = []
    async with runner.run_async(**PLACE, new_message=message, **options) as run:
        async for event in run:
            events.append(event)
    return events


class Logic(BaseAgent):
    """An agent whose logic is a function."""

    work: Callable[[InvocationContext], Awaitable[None]]

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await self.work(ctx)


async def write(name: str, text: str, tool_context: ToolContext) -> int:
    """Save a text."""
    return await tool_context.save_artifact(name, Part(text=text))


def model(*answers: Any) -> ScriptedLlm:
    return ScriptedLlm(list(answers))


# --- which event names a version ------------------------------------------------------------------------------------


async def test_the_result_of_a_tool_names_what_the_tool_has_saved(store: Store) -> None:
    """What a tool saves is named by the event with its response, and the next tool can load it."""

    async def read(name: str, tool_context: ToolContext) -> str | None:
        part = await tool_context.load_artifact(name)
        return None if part is None else part.text

    turns = model(call("write", name="a.txt", text="A"), call("read", name="a.txt"), "done")
    events = await run(store.runner(LlmAgent(name="a", model=turns, tools=[write, read])))
    [named] = [event for event in events if event.actions.artifact_delta]
    assert named.actions.artifact_delta == {"a.txt": 0}
    assert named.get_function_responses()[0].response == {"result": 0}
    assert events[3].get_function_responses()[0].response == {"result": "A"}
    assert await store.text("a.txt") == "A"


async def test_the_tools_of_a_turn_name_all_their_versions_together(store: Store) -> None:
    """The event that answers a turn names the newest version of each artifact, and beside it all others saved."""
    first = [call("write", name=name, text=text) for name, text in (("a", "1"), ("b", "2"), ("a", "3"))]
    events = await run(store.runner(LlmAgent(name="a", model=model(first, "done"), tools=[write])))
    numbers = [response.response["result"] for response in events[1].get_function_responses()]
    assert events[1].actions.artifact_delta == {"a": 1, "b": 0}
    assert events[1].actions.artifact_versions == {"a": [0]}
    assert sorted(numbers) == [0, 0, 1]
    assert [await store.text("a", numbers[0]), await store.text("a", numbers[2])] == ["1", "3"]


async def test_a_tool_may_save_a_name_several_times(store: Store) -> None:
    """All versions that it was told of are there once its event is stored; a rewind goes back behind all of them."""

    async def drafts(tool_context: ToolContext) -> list[int]:
        return [await tool_context.save_artifact("a", Part(text=text)) for text in ("x", "y", "z")]

    await store.save("a", "old")
    agent = LlmAgent(name="a", model=model(call("drafts"), "done"), tools=[drafts])
    events = await run(store.runner(agent))
    assert events[1].get_function_responses()[0].response == {"result": [1, 2, 3]}
    assert (events[1].actions.artifact_delta, events[1].actions.artifact_versions) == ({"a": 3}, {"a": [1, 2]})
    assert [await store.text("a", number) for number in await store.versions("a")] == ["old", "x", "y", "z"]
    assert events[1].invocation_id is not None
    await store.runner(agent).rewind_async(**PLACE, rewind_before_invocation_id=events[1].invocation_id)
    assert await store.text("a") == "old"


async def test_a_tool_that_is_run_again_after_an_answer_does_not_save_again(store: Store) -> None:
    """What it has saved before its question is named by the event of the question, and its number is recorded."""

    async def ask(tool_context: ToolContext) -> list[Any]:
        first = await tool_context.save_artifact("a", Part(text=f"draft {len(numbers)}"))
        numbers.append(first)
        answer = await tool_context.request_input("ok?")
        return [first, await tool_context.save_artifact("a", Part(text=f"final {answer}"))]

    numbers: list[int] = []
    turns = ScriptedLlm(lambda request: "done" if _answered(request) else call("ask"))
    agent = LlmAgent(name="a", model=turns, tools=[ask])
    async with store.runner(agent).run_async(**PLACE, new_message="go") as first:
        await first.wait()
        [question] = first.pending
    store.open()
    events = await run(store.runner(agent), question.reply("yes"))
    assert events[0].get_function_responses()[0].response == {"result": [0, 1]}
    assert numbers == [0, 0]
    assert [await store.text("a", number) for number in await store.versions("a")] == ["draft 0", "final yes"]
    assert await store.deltas() == [{"a": 0}, {"a": 1}]


async def test_a_call_that_deletes_what_one_beside_it_has_saved_takes_it_along(store: Store) -> None:
    """A version that is deleted before its event is stored is not named; the calls are answered with their results."""

    async def drop(tool_context: ToolContext) -> str:
        while not await tool_context.list_artifacts():
            await trio.lowlevel.checkpoint()
        await tool_context.delete_artifact("a")
        return "dropped"

    turns = model([call("write", name="a", text="A"), call("drop")], "done")
    events = await run(store.runner(LlmAgent(name="a", model=turns, tools=[write, drop])))
    results = [response.response for response in events[1].get_function_responses()]
    assert results == [{"result": 0}, {"result": "dropped"}]
    assert events[1].actions.artifact_delta == {}
    assert events[2].text == "done"


async def test_an_agents_own_logic_names_a_version_at_once(store: Store) -> None:
    """Own logic saves by a step: an event of its own names the version before the next line runs."""

    async def work(ctx: InvocationContext) -> None:
        assert await ctx.save_artifact("a", Part(text="A")) == 0
        assert ctx.session.events[-1].actions.artifact_delta == {"a": 0}
        assert await ctx.save_artifact("a", Part(text="B"), {"why": "better"}) == 1
        await ctx.emit(Event(message="said"))

    events = await run(store.runner(Logic(name="a", work=work)))
    assert [dict(event.actions.artifact_delta) for event in events] == [{"a": 0}, {"a": 1}, {}]
    found = await store.artifacts.get_artifact_version(**WHERE, filename="a")
    assert found is not None
    assert found.custom_metadata == {"why": "better"}


class Saving(BasePlugin):
    """Saves an artifact in one of its hooks."""

    def __init__(self, hook: str) -> None:
        super().__init__("saving")
        self.hook = hook

    async def _save(self, hook: str, ctx: Any) -> None:
        if hook == self.hook and hook not in await ctx.list_artifacts():
            await ctx.save_artifact(hook, Part(text=hook))

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        await self._save("on_user_message", invocation_context)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        await self._save("before_run", invocation_context)

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        await self._save("on_event", invocation_context)

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: Any) -> None:
        await self._save("before_agent", callback_context)

    async def after_agent_callback(self, *, agent: BaseAgent, callback_context: Any) -> None:
        await self._save("after_agent", callback_context)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        await self._save("before_model", callback_context)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        await self._save("after_model", callback_context)

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: ToolContext) -> None:
        await self._save("before_tool", tool_context)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: ToolContext, result: Any) -> None:
        await self._save("after_tool", tool_context)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        await self._save("after_run", invocation_context)


HOOKS = {
    "on_user_message": 0,
    "before_run": 1,
    "before_agent": 1,
    "before_model": 1,
    "on_event": 1,
    "after_model": 1,
    "before_tool": 2,
    "after_tool": 2,
    "after_agent": 4,
    "after_run": 4,
}


@pytest.mark.parametrize("hook", HOOKS)
async def test_what_a_hook_saves_goes_with_its_next_event(store: Store, hook: str) -> None:
    """Each hook may save: the message, the event it looks at or stands around, or one of its own names the version."""
    turns = model(call("write", name="t", text="T"), "done")
    agent = LlmAgent(name="a", model=turns, tools=[FunctionTool(write)])
    await run(store.runner(agent, Saving(hook)))
    events = (await store.sessions.read_events(**WHERE))[1:]
    named = [place for place, event in enumerate(events) if hook in event.actions.artifact_delta]
    own = {
        "before_run",
        "before_agent",
        "after_agent",
        "after_run",
    }  # say what they have saved by an event of their own
    assert named == [HOOKS[hook] if hook not in own else named[0]]
    assert (events[named[0]].content is None) == (hook in own)
    assert await store.text(hook) == hook


async def test_a_failed_attempt_names_nothing(store: Store) -> None:
    """What it has saved is not the newest; in a shared file nobody sees it, elsewhere a rewind knows of it."""
    tries: list[int] = []

    async def flaky(tool_context: ToolContext) -> str:
        seen.append(await tool_context.list_artifacts())
        tries.append(await tool_context.save_artifact("a", Part(text=f"try {len(tries)}")))
        if len(tries) == 1:
            raise OSError("not yet")
        return "done"

    tool = FunctionTool(flaky, retry=RetryConfig(max_attempts=2, initial_delay=0.001))
    seen: list[list[str]] = []
    events = await run(store.runner(LlmAgent(name="a", model=model(call("flaky"), "done"), tools=[tool])))
    assert await store.deltas() == [{"a": tries[1]}]
    is_shared = store.artifacts._shares(store.sessions)
    assert seen == [[], [] if is_shared else ["a"]]
    assert events[1].actions.artifact_versions == ({} if is_shared else {"a": [tries[0]]})
    assert events[1].invocation_id is not None
    await store.runner(LlmAgent(name="a", model=model())).rewind_async(
        **PLACE, rewind_before_invocation_id=events[1].invocation_id
    )
    assert await store.text("a") is None


async def test_what_a_long_running_tool_saves_and_writes_goes_with_the_event_that_says_that_it_waits(
    store: Store,
) -> None:
    """A long-running tool's own writes and versions are stored when it begins to wait, not with its late result."""

    async def start(tool_context: ToolContext) -> str:
        tool_context.state["ticket"] = 7
        await tool_context.save_artifact("order", Part(text="order"))
        return "sent"

    agent = LlmAgent(name="a", model=model(call("start"), "done"), tools=[LongRunningFunctionTool(start)])
    events = await run(store.runner(agent))
    assert events[-1].long_running_tool_ids
    assert events[-1].actions.artifact_delta == {"order": 0}
    assert events[-1].actions.state_delta == {"ticket": 7}


async def test_what_a_long_running_tool_writes_is_not_told_by_the_calls_beside_it(store: Store) -> None:
    """The event with the other results has their writes alone; if a process dies after it, none is made twice."""

    async def start(tool_context: ToolContext) -> str:
        tool_context.state.add("started", 1)
        return "sent"

    async def quick(tool_context: ToolContext) -> str:
        tool_context.state["quick"] = True
        return "done"

    tools = [LongRunningFunctionTool(start), FunctionTool(quick)]
    events = await run(store.runner(LlmAgent(name="a", model=model([call("start"), call("quick")]), tools=tools)))
    assert [(dict(event.actions.state_delta), dict(event.actions.state_ops)) for event in events[1:]] == [
        ({"quick": True}, {}),
        ({}, {"started": {"add": 1}}),
    ]


async def test_a_long_running_tool_whose_writes_do_not_fit_has_failed(store: Store) -> None:
    """It is answered with the error after the calls beside it, and nothing waits."""

    async def start(tool_context: ToolContext) -> str:
        tool_context.state.add("count", 1)
        return "sent"

    async def quick(tool_context: ToolContext) -> str:
        tool_context.state["count"] = "many"
        return "done"

    tools = [LongRunningFunctionTool(start), FunctionTool(quick)]
    turns = model([call("quick"), call("start")], "sorry")
    events = await run(store.runner(LlmAgent(name="a", model=turns, tools=tools)))
    assert [event.get_function_responses()[0].name for event in events[1:3]] == ["quick", "start"]
    assert events[2].get_function_responses()[0].response["error"]["type"] == "InvalidValueError"
    assert events[3].text == "sorry"


async def test_an_event_names_only_what_there_is(store: Store) -> None:
    """An artifact_delta of an agent's own making is checked: what cannot be read is not named, and nothing stored."""
    await store.save("a", "A")
    seen: list[str] = []

    async def work(ctx: InvocationContext) -> None:
        await ctx.emit(Event(actions=EventActions(artifact_delta={"a": 0})))
        for wrong in ({"a": 1}, {"b": 0}, {"a": True}, {"a": -1}, {"a": "0"}, {"../a": 0}):
            try:
                await ctx.emit(Event(actions=EventActions(artifact_delta=wrong)))
            except (InvalidEventError, InvalidValueError) as error:
                seen.append(str(error))

    await run(store.runner(Logic(name="a", work=work)))
    assert len(seen) == 6
    assert "found 'a' version 1" in seen[0]
    assert await store.deltas() == [{"a": 0}]


async def test_contexts_read_versions_and_names_and_delete(store: Store) -> None:
    """What the service says of versions, contexts say too, `user:` artifacts included; deleting is at once."""
    said: dict[str, Any] = {}

    async def work(ctx: InvocationContext) -> None:
        await ctx.save_artifact_stream("big", [b"ab", b"cd"], "application/pdf")
        await ctx.save_artifact("user:photo", Part(inline_data=Blob(data=b"p", mime_type="image/png")))
        said["names"] = await ctx.list_artifacts()
        version = await ctx.get_artifact_version("big")
        assert version is not None
        said["version"] = version.version, version.size, version.mime_type
        async with ctx.open_artifact("big") as reader:
            assert reader is not None
            said["bytes"] = b"".join([chunk async for chunk in reader])
        async with ctx.open_artifact("nothing") as reader:
            assert reader is None
        assert await ctx.load_artifact("big", 1) is None
        assert await ctx.get_artifact_version("nothing") is None
        await ctx.delete_artifact("big")
        said["after"] = await ctx.list_artifacts(), await ctx.load_artifact("big", 0)

    await run(store.runner(Logic(name="a", work=work)))
    assert said == {
        "names": ["big", "user:photo"],
        "version": (0, 4, "application/pdf"),
        "bytes": b"abcd",
        "after": (["user:photo"], None),
    }
    assert await store.artifacts.list_artifact_keys(app_name="app", user_id="u", session_id="other") == ["user:photo"]


@pytest.mark.parametrize("hook", ["on_user_message", "before_agent"])
async def test_what_an_event_has_named_is_not_the_runs_own_any_more(store: Store, hook: str) -> None:
    """Whether the message names it or a later event: once it is deleted by others, the run does not list it either."""
    listed: list[list[str]] = []

    async def work(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="saved by now"))
        listed.append(await ctx.list_artifacts())
        await store.artifacts.delete_artifact(**WHERE, filename=hook)
        listed.append(await ctx.list_artifacts())

    await run(store.runner(Logic(name="a", work=work), Saving(hook)))
    assert listed == [[hook], []]


async def test_a_context_that_has_ended_saves_nothing(store: Store) -> None:
    """After its call, and after the invocation, a context refuses to save and to delete."""
    kept: list[Any] = []

    async def keep(tool_context: ToolContext) -> None:
        kept.append(tool_context)

    async def work(ctx: InvocationContext) -> None:
        kept.append(ctx)

    await run(store.runner(LlmAgent(name="a", model=model(call("keep"), "done"), tools=[keep])))
    await run(store.runner(Logic(name="b", work=work)))
    for context in kept:
        with pytest.raises(InvocationEndedError):
            await context.save_artifact("a", Part(text="A"))
        with pytest.raises(InvocationEndedError):
            await context.delete_artifact("a")
    assert await store.versions("a") == []


async def test_what_cannot_be_saved_is_refused_before_anything_is_stored(store: Store) -> None:
    """Bad names, parts and metadata are InvalidValueErrors of the line that saves, and no event tells of them."""

    async def work(ctx: InvocationContext) -> None:
        for name, part, metadata in (
            ("../a", Part(text="A"), None),
            ("a", "A", None),
            ("a", Part(text="A"), {"x": {1}}),
        ):
            with pytest.raises(InvalidValueError):
                await ctx.save_artifact(name, part, metadata)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(InvalidValueError):
            await ctx.delete_artifact("/a")

    assert await run(store.runner(Logic(name="a", work=work))) == []


@pytest.mark.parametrize("method", ["save_artifact", "load_artifact", "list_artifacts", "delete_artifact"])
async def test_without_a_service_a_method_names_the_argument(method: str) -> None:
    """A runner without an artifact service is told which argument is missing."""
    arguments = {"save_artifact": ("a", Part(text="A")), "list_artifacts": ()}.get(method, ("a",))

    async def work(ctx: InvocationContext) -> None:
        await getattr(ctx, method)(*arguments)

    runner = Runner(
        agent=Logic(name="a", work=work),
        app_name="app",
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    with pytest.raises(ServiceNotConfiguredError, match=r"Runner\(artifact_service=\.\.\.\)"):
        await run(runner)


async def test_a_failing_store_fails_the_tool_and_not_the_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact that cannot be stored is an error of the tool that saves it; the model is told, no event names it."""

    async def full(*args: object, **named: object) -> int:
        raise StorageFullError("the disk is full")

    monkeypatch.setattr(store.artifacts, "_save", full)
    turns = model(call("write", name="a", text="A"), "sorry")
    events = await run(store.runner(LlmAgent(name="a", model=turns, tools=[write])))
    assert events[1].get_function_responses()[0].response["error"]["type"] == "StorageFullError"
    assert await store.deltas() == []


# --- in the file of the sessions ------------------------------------------------------------------------------------


async def test_in_a_shared_file_others_see_a_version_with_its_event(shared: Store) -> None:
    """What a tool has saved is seen by the run at once, and by others in the moment in which its event is stored."""
    seen: list[list[int]] = []

    class Watch(BasePlugin):
        async def after_tool_callback(self, **named: Any) -> None:
            context: ToolContext = named["tool_context"]
            assert await context.list_artifacts() == ["a"]
            part = await context.load_artifact("a")
            assert part is not None
            assert part.text == "A"
            seen.append(await shared.versions("a"))

        async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
            if event.actions.artifact_delta:
                seen.append(await shared.versions("a"))

    turns = model(call("write", name="a", text="A"), "done")
    runner = shared.runner(LlmAgent(name="a", model=turns, tools=[write]), Watch("watch"))
    async with runner.run_async(**PLACE, new_message="go") as going:
        async for event in going:
            if event.actions.artifact_delta:
                seen.append(await shared.versions("a"))
    assert seen == [[], [], [0]]


async def test_in_a_shared_file_what_no_event_names_is_never_seen(shared: Store) -> None:
    """What a failed attempt has saved is dropped at the end of the run; its content can go, its number stays used."""

    async def fail(tool_context: ToolContext) -> None:
        await tool_context.save_artifact("a", Part(text="A"))
        raise OSError("no")

    await run(shared.runner(LlmAgent(name="a", model=model(call("fail"), "done"), tools=[fail])))
    assert await shared.versions("a") == []
    assert await shared.text("a", 0) is None
    assert await shared.artifacts.gc() == Collected(contents=1, size=1)
    assert await shared.save("a", "B") == 1
    assert await shared.deltas() == []


async def test_in_a_shared_file_a_run_that_is_cut_before_the_event_leaves_no_version(shared: Store) -> None:
    """Between the save and the event nothing is visible, nor is anything left when the run has ended there."""
    saved = trio.Event()

    async def save_and_hang(tool_context: ToolContext) -> None:
        await tool_context.save_artifact("a", Part(text="A"))
        saved.set()
        await trio.sleep_forever()

    agent = LlmAgent(name="a", model=model(call("save_and_hang")), tools=[save_and_hang])
    later = Store(shared.reopen)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, shared.runner(agent))
        await saved.wait()
        assert await later.versions("a") == []
        nursery.cancel_scope.cancel()
    assert await later.versions("a") == []
    assert await later.deltas() == []
    await later.aclose()


# --- going on -------------------------------------------------------------------------------------------------------


async def cut(store: Store, agent: BaseAgent, events: int) -> str:
    """Begin an invocation and leave it, as a process would that dies, after so many events; return its id."""
    async with store.runner(agent).run_async(**PLACE, new_message="go").supervised(None) as run:
        for _ in range(events):
            await anext(run)
    store.open()
    return run.invocation_id


@pytest.mark.parametrize("events", [1, 2, 3])
async def test_own_logic_that_goes_on_does_not_save_again(store: Store, events: int) -> None:
    """Wherever it was cut, a resumed agent gets the numbers that are recorded, and each text is saved once."""
    numbers: list[int] = []

    async def work(ctx: InvocationContext) -> None:
        numbers.clear()
        for text in ("A", "B", "C"):
            numbers.append(await ctx.save_artifact("a", Part(text=text)))
        await ctx.emit(Event(message="said"))

    agent = Logic(name="a", work=work)
    invocation_id = await cut(store, agent, events)
    async with store.runner(agent).run_async(**PLACE, invocation_id=invocation_id) as resumed:
        await resumed.wait()
    assert numbers == [0, 1, 2]
    assert [await store.text("a", number) for number in await store.versions("a")] == ["A", "B", "C"]
    assert await store.deltas() == [{"a": 0}, {"a": 1}, {"a": 2}]


async def test_own_logic_that_goes_on_reads_what_it_has_read(store: Store) -> None:
    """A newer version, and a new name, that came while nobody ran the agent do not change what it has decided by."""
    await store.save("a", "old")
    told: list[Any] = []

    async def work(ctx: InvocationContext) -> None:
        part, names = await ctx.load_artifact("a"), await ctx.list_artifacts()
        missing = await ctx.load_artifact("b")
        assert part is not None
        await ctx.emit(Event(message=f"{part.text} {names} {missing}"))
        newest = await ctx.load_artifact("a")
        assert newest is not None
        told[:] = [part.text, names, missing, newest.text]

    agent = Logic(name="a", work=work)
    invocation_id = await cut(store, agent, 1)
    await store.save("a", "new")
    await store.save("b", "B")
    async with store.runner(agent).run_async(**PLACE, invocation_id=invocation_id) as resumed:
        await resumed.wait()
    assert told == ["old", ["a"], None, "new"]


async def test_own_logic_that_goes_on_does_not_delete_again(store: Store) -> None:
    """A deletion is a step: what was saved after it is still there when the logic is run again."""

    async def work(ctx: InvocationContext) -> None:
        await ctx.save_artifact("a", Part(text="A"))
        await ctx.delete_artifact("a")
        await ctx.save_artifact("a", Part(text="B"))
        await ctx.request_input("ok?")

    agent = Logic(name="a", work=work)
    async with store.runner(agent).run_async(**PLACE, new_message="go") as first:
        await first.wait()
        [question] = first.pending
    store.open()
    async with store.runner(agent).run_async(**PLACE, new_message=question.reply("yes")) as second:
        await second.wait()
    assert await store.text("a") == "B"
    assert await store.versions("a") == [1]


@pytest.mark.parametrize("every", [pytest.param(3, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
async def test_at_every_checkpoint_a_cancellation_leaves_a_log_whose_versions_can_be_read(
    store: Store, every: int
) -> None:
    """A run that is cancelled anywhere in saves of tools and of own logic names only what there is."""

    async def work(ctx: InvocationContext) -> None:
        await ctx.save_artifact("own", Part(text="own"))
        await ctx.emit(Event(message="between"))
        await ctx.save_artifact_stream("own", [b"1", b"2"])

    turns = ScriptedLlm(
        lambda request: "done" if _answered(request) else [call("write", name=name, text=name) for name in ("a", "b")]
    )
    for agent in (Logic(name="a", work=work), LlmAgent(name="b", model=turns, tools=[write])):
        for number, step in enumerate(range(0, 400, every)):
            where: Where = {**WHERE, "session_id": f"{agent.name}{number // 10}"}  # or each would read all before it
            if number % 10 == 0:
                await store.sessions.create_session(**where)
            with trio.CancelScope() as scope:
                trio.lowlevel.add_instrument(countdown := _Countdown(step, scope))
                try:
                    async with store.runner(agent).run_async(
                        user_id="u", session_id=where["session_id"], new_message="go"
                    ) as entered:
                        await entered.wait()
                finally:
                    trio.lowlevel.remove_instrument(countdown)
            for event in await store.sessions.read_events(**where):
                for name, number in event.actions.artifact_delta.items():
                    assert number in await store.artifacts.list_versions(**where, filename=name)
            if not scope.cancelled_caught:
                break
        assert step > 5
        assert not scope.cancelled_caught


def _answered(request: LlmRequest) -> bool:
    return any(part.function_response is not None for part in request.contents[-1].parts)


class _Countdown(trio.abc.Instrument):
    """Cancels a scope at the n-th step that trio takes."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self._left = steps
        self._scope = scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._left == 0:
            self._scope.cancel()
        self._left -= 1


# --- rewinding and deleting -----------------------------------------------------------------------------------------


async def test_a_rewind_restores_what_was_current_without_copies(store: Store) -> None:
    """The newest version has the old content again, an artifact that was not there is none, and all versions stay."""
    first = LlmAgent(name="a", model=model(call("write", name="a", text="old"), "done"), tools=[write])
    calls = [call("write", name=name, text="new") for name in ("a", "b", "user:c")]
    second = LlmAgent(name="a", model=model(calls, call("write", name="a", text="newer"), "done"), tools=[write])
    await run(store.runner(first))
    [*_, last] = await run(store.runner(second))
    assert last.invocation_id is not None
    rewound = await store.runner(first).rewind_async(**PLACE, rewind_before_invocation_id=last.invocation_id)
    assert rewound.actions.artifact_delta == {"a": 3, "b": 1}
    assert await store.text("a") == "old"
    assert await store.text("b") is None
    assert await store.text("user:c") == "new"
    names = await store.artifacts.list_artifact_keys(**WHERE)
    assert names == ["a", "user:c"]
    assert [await store.text("a", number) for number in (0, 1, 2, 3)] == ["old", "new", "newer", "old"]
    assert await store.text("b", 0) == "new"
    again = LlmAgent(name="a", model=model(call("write", name="b", text="again"), "done"), tools=[write])
    await run(store.runner(again))
    assert await store.text("b") == "again"
    assert await store.versions("b") == [0, 2]


async def test_a_rewind_keeps_what_others_have_saved_before(store: Store) -> None:
    """What was saved from outside between two runs is what a rewind of the second one restores; also after a rewind."""

    def agent(text: str) -> LlmAgent:
        return LlmAgent(name="a", model=model(call("write", name="a", text=text), "done"), tools=[write])

    await run(store.runner(agent("1")))
    await store.save("a", "outside")
    [*_, last] = await run(store.runner(agent("2")))
    runner = store.runner(agent("-"))
    assert last.invocation_id is not None
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=last.invocation_id)
    assert await store.text("a") == "outside"
    first = next(event for event in (await store.sessions.read_events(**WHERE)) if event.invocation_id)
    assert first.invocation_id is not None
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=first.invocation_id)
    assert await store.text("a") is None
    [*_, third] = await run(store.runner(agent("3")))
    assert third.invocation_id is not None
    await runner.rewind_async(**PLACE, rewind_before_invocation_id=third.invocation_id)
    assert await store.text("a") is None


async def test_what_an_earlier_rewind_has_undone_is_not_brought_back(store: Store) -> None:
    """A rewind to before another one, or after it, restores nothing that the other one has undone."""

    def runner_of(*calls: Any) -> Runner:
        return store.runner(LlmAgent(name="a", model=model(*calls, "done"), tools=[write]))

    async def said(*calls: Any) -> str:
        [*_, last] = await run(runner_of(*calls))
        assert last.invocation_id is not None
        return last.invocation_id

    async def rewind(invocation_id: str) -> None:
        await runner_of().rewind_async(**PLACE, rewind_before_invocation_id=invocation_id)

    first = await said()
    await rewind(await said(call("write", name="a", text="undone")))
    await said(call("write", name="a", text="later"))
    await rewind(first)
    assert await store.text("a") is None
    await rewind(await said(call("write", name="a", text="last")))
    assert await store.text("a") is None
    assert await store.text("a", 0) == "undone"


async def test_a_rewind_that_is_not_stored_leaves_the_artifacts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the event of a rewind cannot be stored, the newest versions are what they were."""
    runs = [LlmAgent(name="a", model=model(call("write", name="a", text=t), "done"), tools=[write]) for t in "12"]
    for agent in runs:
        [*_, last] = await run(store.runner(agent))
    assert last.invocation_id is not None

    async def full(*args: object, **named: object) -> None:
        raise StorageFullError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(StorageFullError):
        patch.setattr(store.sessions, "commit_event", full)
        await store.runner(runs[0]).rewind_async(**PLACE, rewind_before_invocation_id=last.invocation_id)
    assert await store.text("a") == "2"
    await store.runner(runs[0]).rewind_async(**PLACE, rewind_before_invocation_id=last.invocation_id)
    assert await store.text("a") == "1"


async def test_in_a_fork_an_old_event_never_names_new_content(store: Store) -> None:
    """In a fork whose artifacts were not copied, numbers go on above those that its past names."""

    def agent(text: str) -> LlmAgent:
        return LlmAgent(name="a", model=model(call("write", name="a", text=text), "done"), tools=[write])

    for text in ("1", "2"):
        await run(store.runner(agent(text)))
    await store.sessions.fork_session(**WHERE, new_session_id="fork")
    fork = store.runner(agent("3"))
    async with fork.run_async(user_id="u", session_id="fork", new_message="go") as forked:
        await forked.wait()
    named = [dict(event.actions.artifact_delta) for event in forked.session.events if event.actions.artifact_delta]
    assert named == [{"a": 0}, {"a": 1}, {"a": 2}]
    found = await store.artifacts.load_artifact(app_name="app", user_id="u", session_id="fork", filename="a", version=0)
    is_shared = store.artifacts._shares(store.sessions)
    assert (None if found is None else found.text) == ("1" if is_shared else None)


async def test_a_session_takes_its_artifacts_along(store: Store) -> None:
    """Deleting a session deletes its artifacts, not its user's; a new one of the same id finds nothing of them."""
    calls = [call("write", name=name, text="x") for name in ("a", "user:b")]
    runner = store.runner(LlmAgent(name="a", model=model(calls, "done"), tools=[write]))
    await run(runner)
    await store.sessions.delete_session(**WHERE)
    assert await store.artifacts.list_artifact_keys(**WHERE) == ["user:b"]
    assert await store.text("a", 0) is None
    del runner


# --- instructions ---------------------------------------------------------------------------------------------------


async def test_an_instruction_contains_the_text_of_an_artifact(store: Store) -> None:
    """`{artifact.name}` is the newest text, `?` makes it optional, braces doubled are left alone."""
    asked: list[LlmRequest] = []

    def answer(request: LlmRequest) -> str:
        asked.append(request)
        return "done"

    instruction = "{artifact.notes/a b.md}|{ artifact.user:c.json }|{artifact.none.md?}|{{artifact.x}}|{note?}"
    agent = LlmAgent(name="a", model=ScriptedLlm(answer), instruction=instruction)
    await store.save("notes/a b.md", "old")
    await store.save("notes/a b.md", "{new}")
    blob = Blob(data=b'{"k": 1}', mime_type="application/json")
    await store.artifacts.save_artifact(**WHERE, filename="user:c.json", artifact=Part(inline_data=blob))
    await run(store.runner(agent))
    assert asked[0].config.system_instruction == '{new}|{"k": 1}||{artifact.x}|'


async def test_an_instruction_without_its_artifact_fails_by_name(store: Store) -> None:
    """A missing artifact, and one that is no text, are errors that name it."""
    agent = LlmAgent(name="a", model=model("done"), instruction="{artifact.plan.md}")
    with pytest.raises(MissingArtifactError, match=r"'plan\.md'"):
        await run(store.runner(agent))
    blob = Blob(data=b"p", mime_type="image/png")
    await store.artifacts.save_artifact(**WHERE, filename="plan.md", artifact=Part(inline_data=blob))
    with pytest.raises(InvalidValueError, match="found image/png"):
        await run(store.runner(agent))


# --- the model's way to them ----------------------------------------------------------------------------------------


async def test_a_model_sees_an_artifact_that_it_asks_for_once(store: Store) -> None:
    """load_artifacts names what there is, shows the content in the next request alone, and stores none of it."""
    asked: list[LlmRequest] = []
    answers = iter([call("load_artifacts", artifact_names=["a.md", "no"]), call("write", name="b", text="B"), "done"])

    def answer(request: LlmRequest) -> Any:
        asked.append(request)
        return next(answers)

    blob = Blob(data=b"# A", mime_type="text/markdown")
    await store.artifacts.save_artifact(**WHERE, filename="a.md", artifact=Part(inline_data=blob))
    agent = LlmAgent(name="a", model=ScriptedLlm(answer), instruction="Hi.", tools=[load_artifacts, write])
    events = await run(store.runner(agent))
    told = 'There are these artifacts; call load_artifacts to look into them:\n- "a.md"'
    assert asked[0].config.system_instruction == f"Hi.\n\n{told}"
    assert events[1].get_function_responses()[0].response == {"artifact_names": ["a.md"], "missing": ["no"]}
    assert asked[1].contents[-1].text == 'The artifact "a.md":# A'
    assert all("# A" not in content.text for content in (*asked[0].contents, *asked[2].contents))
    assert "# A" not in repr(await store.sessions.read_events(**WHERE))
    assert asked[2].config.system_instruction == f'Hi.\n\n{told}\n- "b"'


async def test_a_model_that_asks_for_artifacts_in_a_wrong_form_is_told(store: Store) -> None:
    """Arguments that are no list of names are an error of the call, which the model can correct."""
    turns = model(call("load_artifacts", artifact_names="a.md"), "done")
    events = await run(store.runner(LlmAgent(name="a", model=turns, tools=[load_artifacts])))
    assert events[1].get_function_responses()[0].response["error"]["type"] == "ArgumentError"


async def test_an_in_memory_runner_keeps_artifacts_too() -> None:
    """InMemoryRunner has an artifact service of its own."""
    agent = LlmAgent(name="a", model=model(call("write", name="a", text="A"), "done"), tools=[write])
    async with InMemoryRunner(agent, auto_create_session=True) as runner:
        await run(runner)
        assert runner.artifact_service is not None
        keys = await runner.artifact_service.list_artifact_keys(app_name=runner.app_name, **PLACE)
    assert keys == ["a"]


async def test_a_session_is_let_go_whatever_an_artifact_service_raises_at_the_end(tmp_path: Path) -> None:
    """What a service of somebody else raises while leftovers are dropped fails its run, and the next run can begin."""

    class Odd(SqliteArtifactService):
        async def _discard(self, *args: Any, **options: Any) -> None:
            raise LookupError("odd")

    async def spoil(tool_context: ToolContext) -> None:
        await tool_context.save_artifact("a", Part(text="x"))
        raise ValueError("spoilt")

    agent = LlmAgent(name="a", model=ScriptedLlm([call("spoil"), "done", "again"]), tools=[spoil])
    async with SqliteSessionService(tmp_path / "s.db") as sessions:
        runner = Runner(
            app=App("app", agent), session_service=sessions, artifact_service=Odd(sessions), auto_create_session=True
        )
        with pytest.raises(LookupError, match="odd"):
            await run(runner)
        assert [event.text for event in await run(runner)] == ["again"]
