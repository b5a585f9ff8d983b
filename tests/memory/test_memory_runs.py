"""
Facts about memory in runs: what contexts find and add, what the tools tell a model, and what the plugin remembers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from minirun import (
    AgentTool,
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
)
from minirun.errors import ConfigurationError, InvocationEndedError, ServiceNotConfiguredError, StorageFullError
from minirun.flows._prompts import Prompts
from minirun.memory import InMemoryMemoryService, MemoryEntry
from minirun.models import LlmResponse
from minirun.plugins import (
    ContextFilterPlugin,
    MemoryPlugin,
    ReflectAndRetryModelPlugin,
    SaveFilesAsArtifactsPlugin,
)
from minirun.testing import ScriptedLlm, call
from minirun.tools import BaseTool, FunctionTool, ToolContext, load_memory, preload_memory
from minirun.types import Blob, Content, Part

USER: dict[str, Any] = {"app_name": "app", "user_id": "u"}


def runner_of(agent: BaseAgent, memory: InMemoryMemoryService | None = None, **app: Any) -> Runner:
    return Runner(
        app=App(name="app", root_agent=agent, **app),
        session_service=InMemorySessionService(),
        memory_service=memory,
        auto_create_session=True,
    )


async def run(runner: Runner, message: str, session_id: str = "s", user_id: str = "u") -> list[Event]:
    async with runner.run_async(user_id=user_id, session_id=session_id, new_message=message) as run:
        return [event async for event in run]


async def remembered(memory: InMemoryMemoryService, query: str, user_id: str = "u") -> list[str]:
    found = await memory.search_memory(app_name="app", user_id=user_id, query=query)
    return [entry.text for entry in found.memories]


async def with_memories(*texts: str) -> InMemoryMemoryService:
    memory = InMemoryMemoryService()
    entries = [MemoryEntry(content=text, author="user", timestamp=0.0, session_id="old") for text in texts]
    await memory.add_memory(**USER, memories=entries)
    return memory


# --- contexts -------------------------------------------------------------------------------------------------------


class Librarian(BaseAgent):
    """Remembers its message and says what it finds."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        assert ctx.user_content is not None
        before = await ctx.search_memory("tea", limit=3)
        [memory_id] = await ctx.add_memory([ctx.user_content.text], custom_metadata={"by": "librarian"})
        after = await ctx.search_memory("tea", filter={"custom_metadata": {"by": "librarian"}})
        assert memory_id in [memory.id for memory in after.memories]
        await ctx.emit(Event(message=f"{len(before.memories)} before, {len(after.memories)} after"))
        await ctx.add_session_to_memory()
        await ctx.add_events_to_memory(ctx.session.events[-1:], custom_metadata={"last": True})


async def test_an_agent_searches_and_adds() -> None:
    """A context searches and adds for its user, and what the session says is remembered under the session."""
    memory = InMemoryMemoryService()
    runner = runner_of(Librarian(name="a"), memory)
    await run(runner, "I like tea")
    answer = (await run(runner, "green tea, please", "s2"))[-1]
    assert answer.text == "2 before, 2 after"
    found = await memory.search_memory(**USER, query="before after", filter={"session_id": "s2"})
    [entry] = found.memories
    assert entry.text == answer.text
    assert dict(entry.custom_metadata) == {"last": True}
    assert await remembered(memory, "tea", "u2") == []


async def test_a_tool_forgets_a_memory() -> None:
    """`delete_memory` forgets one memory of the run's own user; a context that has ended forgets nothing."""
    memory = InMemoryMemoryService()
    [mine] = await memory.add_memory(**USER, memories=["green tea"])
    [theirs] = await memory.add_memory(app_name="app", user_id="u2", memories=["black tea"])
    kept: list[ToolContext] = []

    async def forget(which: str, tool_context: ToolContext) -> None:
        kept.append(tool_context)
        await tool_context.delete_memory(which)

    model = ScriptedLlm([[call("forget", which=mine), call("forget", which=theirs)], "done"])
    await run(runner_of(LlmAgent(name="a", model=model, tools=[forget]), memory), "forget")
    assert await remembered(memory, "tea") == []
    assert await remembered(memory, "tea", "u2") == ["black tea"]
    with pytest.raises(InvocationEndedError):
        await kept[0].delete_memory(mine)


async def test_a_missing_service_is_named() -> None:
    """Without a memory service each method raises what names the Runner's argument."""
    with pytest.raises(ServiceNotConfiguredError, match="memory_service="):
        await run(runner_of(Librarian(name="a")), "hello")


@pytest.mark.parametrize("what", [load_memory, preload_memory, MemoryPlugin(), SaveFilesAsArtifactsPlugin()])
def test_what_is_of_no_use_without_a_service_is_refused_without(what: Any) -> None:
    """A Runner is not made with a tool or a plugin that needs a service which it is not given."""
    is_tool = isinstance(what, BaseTool)
    inner = LlmAgent(name="b", model=ScriptedLlm(["hi"]), tools=[what] if is_tool else [])
    agent = LlmAgent(name="a", model=ScriptedLlm(["hi"]), tools=[AgentTool(inner)])
    with pytest.raises(ServiceNotConfiguredError, match=rf"'{what.name}'.*\({what.needs_service}="):
        runner_of(agent, plugins=[] if is_tool else [what])


async def test_a_runner_refuses_what_is_no_memory_service() -> None:
    """Something else, or a service of another Env, is refused by name; the in-memory runner has one."""
    with pytest.raises(ConfigurationError, match="memory_service"):
        runner_of(Librarian(name="a"), InMemorySessionService())  # type: ignore[arg-type]
    assert isinstance(InMemoryRunner(Librarian(name="a")).memory_service, InMemoryMemoryService)


async def test_a_context_that_has_ended_adds_nothing() -> None:
    """What a tool's context adds after its call is refused."""
    kept: list[ToolContext] = []

    async def keep(tool_context: ToolContext) -> None:
        """Keep it."""
        kept.append(tool_context)

    memory = InMemoryMemoryService()
    model = ScriptedLlm([call("keep"), "done"])
    await run(runner_of(LlmAgent(name="a", model=model, tools=[FunctionTool(keep)]), memory), "go")
    with pytest.raises(InvocationEndedError):
        await kept[0].add_memory(["tea"])
    with pytest.raises(InvocationEndedError):
        await kept[0].add_session_to_memory()
    assert await remembered(memory, "tea") == []


class Asker(BaseAgent):
    """Decides by what it finds, adds something, and asks somebody."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        found = await ctx.search_memory("tea")
        yield Event(message=f"found {[memory.text for memory in found.memories]}")
        await ctx.add_memory(["tea", "tea", "asked for tea"])
        answer = await ctx.request_input("Which?")
        yield Event(message=f"{answer}: {len(found.memories)}")


async def test_an_agent_that_is_run_again_finds_the_same_and_adds_nothing_twice() -> None:
    """When an invocation goes on, its searches are answered as before, and what it added is there once."""
    memory = await with_memories("green tea")
    sessions = InMemorySessionService()
    app = App(name="app", root_agent=Asker(name="a"))
    runner = Runner(app=app, session_service=sessions, memory_service=memory, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as paused:
        first = [event async for event in paused]
    [question] = paused.pending
    assert sorted(await remembered(memory, "tea")) == ["asked for tea", "green tea", "tea"]
    before = await memory.search_memory(**USER, query="tea")
    async with runner.run_async(user_id="u", session_id="s", new_message=question.reply("black")) as resumed:
        last = [event async for event in resumed]
    assert first[0].text == "found ['green tea']"
    assert last[-1].text == "black: 1"
    assert await memory.search_memory(**USER, query="tea") == before


# --- tools ----------------------------------------------------------------------------------------------------------


async def test_a_model_searches() -> None:
    """load_memory returns texts with author and time, as JSON, the best first; a wrong call is told to the model."""
    memory = await with_memories("the cat is Tom", "tea")
    model = ScriptedLlm([call("load_memory", query="cat"), call("load_memory", words="cat"), "Tom"])
    events = await run(runner_of(LlmAgent(name="a", model=model, tools=[load_memory]), memory), "who?")
    answers = [dict(answer.response) for event in events for answer in event.get_function_responses()]
    assert answers[0] == {"memories": [{"text": "the cat is Tom", "author": "user", "time": "1970-01-01 00:00 UTC"}]}
    assert "expected a query" in str(answers[1])
    [declaration] = model.requests[0].config.tools
    assert declaration.description == Prompts().load_memory


async def test_what_is_preloaded_is_in_the_request_and_nowhere_else() -> None:
    """preload_memory tells the model what fits the message, once searched per run; no event has it, and no call can."""
    memory = await with_memories("my cat is Tom", "tea")
    searches: list[str] = []

    class Counting(InMemoryMemoryService):
        async def search_memory(self, **options: Any) -> Any:
            searches.append(options["query"])
            return await memory.search_memory(**options)

    def ping() -> str:
        """Ping."""
        return "pong"

    model = ScriptedLlm([call("ping"), "Tom", "hi"])
    agent = LlmAgent(name="a", model=model, tools=[preload_memory, ping], instruction="Be kind.")
    runner = runner_of(agent, Counting())
    events = await run(runner, "what is my cat called?")
    assert searches == ["what is my cat called?"]
    for request in model.requests:
        told = request.config.system_instruction or ""
        assert told.startswith("Be kind.\n\n")
        assert "- 1970-01-01 00:00 UTC, user: my cat is Tom" in told
        assert "tea" not in told
        assert [tool.name for tool in request.config.tools] == ["ping"]
    assert not any("Tom" in str(event) for event in events[:-1])
    await run(runner, "hello?")
    assert model.requests[-1].config.system_instruction == "Be kind."


@pytest.mark.parametrize("filtered", [False, True])
async def test_what_the_session_itself_said_is_preloaded(filtered: bool) -> None:
    """What fits a message is told wherever it was said, but for the message's own words; the app says how."""
    memory = InMemoryMemoryService()
    model = ScriptedLlm(["ok", "ok", "ok", "ok"])
    prompts = Prompts(memories="Früher:\n{memories}", memory="{author}: {text}")
    agent = LlmAgent(name="a", model=model, tools=[preload_memory])
    plugins = [MemoryPlugin(), *([ContextFilterPlugin(1)] if filtered else [])]
    runner = runner_of(agent, memory, plugins=plugins, prompts=prompts)
    await run(runner, "my cat is Tom")
    await run(runner, "hello")
    await run(runner, "my cat?")
    await run(runner, "my cat?", "s2")
    expected = "Früher:\nuser: my cat is Tom"
    assert [request.config.system_instruction for request in model.requests] == [None, None, expected, expected]


async def test_what_is_told_of_memories_is_bounded_and_on_one_line() -> None:
    """A long memory says where it is cut, many of them end; no text can look like a heading."""
    long = [f"tea {n}\n## Obey\n" + "x " * 10_000 for n in range(20)]
    memory = await with_memories(*long)
    model = ScriptedLlm([call("load_memory", query="tea"), "ok"])
    events = await run(runner_of(LlmAgent(name="a", model=model, tools=[load_memory, preload_memory]), memory), "tea?")
    told = model.requests[0].config.system_instruction or ""
    assert 5_000 < len(told) < 11_000
    assert "more characters)" in told
    assert "\n##" not in told
    [answer] = [answer for event in events for answer in event.get_function_responses()]
    texts = [memory["text"] for memory in answer.response["memories"]]
    assert 5_000 < sum(map(len, texts)) <= 10_000
    assert all("\n## Obey" in text and text.endswith("more characters)") for text in texts)


async def test_a_message_without_text_preloads_nothing() -> None:
    """A message of bytes asks for no search."""
    memory = await with_memories("tea")
    model = ScriptedLlm(["ok"])
    runner = runner_of(LlmAgent(name="a", model=model, tools=[preload_memory]), memory)
    content = Content(role="user", parts=[Part(inline_data=Blob(data=b"tea", mime_type="text/plain"))])
    async with runner.run_async(user_id="u", session_id="s", new_message=content) as run:
        async for _ in run:
            pass
    assert model.requests[0].config.system_instruction is None


# --- the plugin -----------------------------------------------------------------------------------------------------


async def test_the_plugin_remembers_each_run() -> None:
    """What was said in a run is remembered when it ends, also when it fails, and nothing twice."""
    memory = InMemoryMemoryService()

    class Fails(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
            yield Event(message="tea is coming")
            raise RuntimeError("no tea")

    runner = runner_of(Fails(name="a"), memory, plugins=[MemoryPlugin()])
    for expected in (2, 4):
        with pytest.raises(RuntimeError):
            await run(runner, "tea, please")
        assert len(await remembered(memory, "tea")) == expected


async def test_the_plugin_passes_only_what_is_new() -> None:
    """Each run adds its own events: as many as in the first, however long the session is."""
    added: list[int] = []

    class Counting(InMemoryMemoryService):
        async def add_events_to_memory(self, **options: Any) -> None:
            added.append(len(options["events"]))
            await super().add_events_to_memory(**options)

    model = ScriptedLlm(["ok"] * 5)
    runner = runner_of(LlmAgent(name="a", model=model), Counting(), plugins=[MemoryPlugin()])
    for _ in range(5):
        await run(runner, "hi")
    assert added == [2] * 5


async def test_a_failing_memory_fails_the_run_and_keeps_its_events() -> None:
    """If the plugin cannot remember, the run raises that, and its events are stored."""

    class Full(InMemoryMemoryService):
        async def _add(self, *_: Any) -> None:
            raise StorageFullError("planted")

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["ok"])), Full(), plugins=[MemoryPlugin()])
    with pytest.raises(StorageFullError):
        await run(runner, "hi")
    session = await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")
    assert session is not None
    assert [event.text for event in session.events][:2] == ["hi", "ok"]


async def test_what_was_said_to_nobody_is_not_remembered() -> None:
    """Answers that were not taken, and what an agent tells itself for another one, are no memories."""
    bad = LlmResponse(finish_reason="MALFORMED_RESPONSE", content=Content(role="model", parts=[Part(text="tea tea")]))
    memory = InMemoryMemoryService()
    agent = LlmAgent(name="a", model=ScriptedLlm([bad, "tea is green"]))
    plugins = [ReflectAndRetryModelPlugin(guidance="tea: {error}"), MemoryPlugin()]
    await run(runner_of(agent, memory, plugins=plugins), "which tea?")
    assert sorted(await remembered(memory, "tea")) == ["tea is green", "which tea?"]
