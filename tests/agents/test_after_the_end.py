"""What is left of an invocation after its end: contexts that somebody has kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, TypedDict

import pytest

from minirun import (
    BaseAgent,
    Event,
    FunctionTool,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Part,
    Runner,
    ToolContext,
)
from minirun.agents import CallbackContext, ReadonlyContext, SequentialAgent
from minirun.artifacts import InMemoryArtifactService
from minirun.credentials import AuthConfig, InMemoryCredentialService
from minirun.errors import InvocationEndedError
from minirun.memory import InMemoryMemoryService
from minirun.testing import ScriptedLlm, call


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.__setitem__("k", 1),
        lambda state: state.__delitem__("there"),
        lambda state: state.add("n", 1),
        lambda state: state.extend("l", [1]),
        lambda state: state.update({"k": 1}),
        lambda state: state.setdefault("k", 1),
        lambda state: state.__setitem__("temp:k", 1),
    ],
)
async def test_state_is_not_written_after_the_run(write: Callable[[Any], object]) -> None:
    """
    Agents, callbacks and hooks that keep their context are told that nothing of a write would be stored.
    """
    kept: list[Any] = []

    class Keeper(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            kept.append(ctx)
            await ctx.emit(Event(message="hi", state={"there": 1, "n": 1, "l": []}))

    def before(callback_context: CallbackContext) -> None:
        kept.append(callback_context)

    runner = InMemoryRunner(Keeper(name="a", before_agent_callback=before), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert len(kept) == 2
    for context in kept:
        with pytest.raises(InvocationEndedError, match="has ended; nothing can be emitted or written any more"):
            write(context.state)
    session = await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")
    assert session is not None
    assert dict(session.state) == {"there": 1, "n": 1, "l": []}


# --- everything that a context has ------------------------------------------------------------------------------------

# What only looks at something: it goes on working, and shows what there was.
READS = {
    "agent", "agent_name", "app_name", "attempt_count", "branch", "deps", "escalated", "function_call_id",
    "idempotency_key", "invocation_id", "is_resumed", "late", "node_input", "node_path", "parent_agent", "root_agent",
    "run_config", "session", "status", "tool_confirmation", "user_content", "user_id",
}  # fmt: skip
# The runtime's own.
OTHERS = {"root"}
PART, AUTH = Part(text="x"), AuthConfig(credential_key="k", scheme="api_key")


def set_flag(name: str, value: Any) -> Callable[[Any], object]:
    """Set one of the actions of a context."""
    return lambda context: setattr(context.actions, name, value)


async def open_it(context: Any) -> None:
    """Open an artifact."""
    async with context.open_artifact("a"):
        pass


# What changes or uses something, each way that there is to do so.
USES: Mapping[str, list[Callable[[Any], object]]] = {
    "actions": [
        set_flag("skip_summarization", True),
        set_flag("escalate", True),
        set_flag("transfer_to_agent", "a"),
        set_flag("artifact_delta", {"a": 0}),
    ],
    "add_events_to_memory": [lambda context: context.add_events_to_memory([])],
    "add_memory": [lambda context: context.add_memory(["x"])],
    "add_session_to_memory": [lambda context: context.add_session_to_memory()],
    "delete_artifact": [lambda context: context.delete_artifact("a")],
    "delete_memory": [lambda context: context.delete_memory("m")],
    "emit": [lambda context: context.emit(Event(message="x"))],
    "end_invocation": [lambda context: setattr(context, "end_invocation", True)],
    "get_artifact_version": [lambda context: context.get_artifact_version("a")],
    "list_artifacts": [lambda context: context.list_artifacts()],
    "map": [lambda context: context.map(print, [1])],
    "load_artifact": [lambda context: context.load_artifact("a")],
    "load_credential": [lambda context: context.load_credential(AUTH)],
    "open_artifact": [open_it],
    "progress": [lambda context: context.progress("x")],
    "request_confirmation": [lambda context: context.request_confirmation(hint="x")],
    "request_credential": [lambda context: context.request_credential(AUTH)],
    "request_input": [lambda context: context.request_input("x")],
    "run_node": [lambda context: context.run_node(print)],
    "run_in_thread": [lambda context: context.run_in_thread(print)],
    "save_artifact": [lambda context: context.save_artifact("a", PART)],
    "save_artifact_stream": [lambda context: context.save_artifact_stream("a", [b"x"])],
    "save_credential": [lambda context: context.save_credential(AUTH, None)],
    "search_memory": [lambda context: context.search_memory("x")],
    "sleep_until": [lambda context: context.sleep_until(1.0)],
    "state": [lambda context: context.state.update({"k": 1})],
    "step": [lambda context: context.step("s", print)],
    "watch_commits": [lambda context: context.watch_commits(print)],
}
# Of what only looks at something, what takes an argument.
LOOKS: Mapping[str, Callable[[Any], object]] = {
    "deps_as": lambda context: context.deps_as(type(None)),
    "state_as": lambda context: context.state_as(Row),
}


class Row(TypedDict, total=False):
    """What the state may be seen as."""

    k: int


def names_of(context: ReadonlyContext) -> set[str]:
    """What a context has for programs."""
    return {name for name in dir(context) if name[0] != "_"}


async def kept_contexts() -> tuple[dict[str, Any], InMemorySessionService]:
    """A context of every kind, by what it was given to, after its run; and where the run was stored."""
    kept: dict[str, Any] = {}

    class Keeper(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            kept["agent"] = ctx
            await ctx.emit(Event(message="so far"))

    def look(tool_context: ToolContext) -> str:
        kept["tool"] = tool_context
        kept["actions"] = tool_context.actions
        tool_context.actions.skip_summarization = None
        return "fine"

    def keep(name: str) -> Callable[..., None]:
        def hook(callback_context: Any = None, tool_context: Any = None, **_: Any) -> None:
            kept[name] = callback_context or tool_context

        return hook

    hooks: Any = {
        f"{when}_{what}_callback": keep(f"{when} {what}")
        for what in ("agent", "model", "tool")
        for when in ("before", "after")
    }

    def instruct(context: ReadonlyContext) -> str:
        kept["instruction"] = context
        return "Answer."

    model = ScriptedLlm([call("look"), "done"])
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(look)], instruction=instruct, **hooks)
    sessions = InMemorySessionService()
    runner = Runner(
        agent=SequentialAgent(name="s", sub_agents=[agent, Keeper(name="k")]),
        app_name="app",
        session_service=sessions,
        artifact_service=InMemoryArtifactService(),
        memory_service=InMemoryMemoryService(),
        credential_service=InMemoryCredentialService(),
    )
    await sessions.create_session(app_name="app", user_id="u", session_id="s")
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    return kept, sessions


async def test_everything_that_a_context_has_is_known_to_look_or_to_do_something() -> None:
    """
    A method or property that is new has to be sorted in here, so that somebody decides what it is after the run.
    """
    kept, _ = await kept_contexts()
    assert {type(context) for context in kept.values()} >= {InvocationContext, ToolContext, ReadonlyContext}
    found = set().union(*(names_of(context) for name, context in kept.items() if name != "actions"))
    assert found == READS | OTHERS | USES.keys() | LOOKS.keys()
    assert all((READS.isdisjoint(USES), READS.isdisjoint(LOOKS), OTHERS.isdisjoint(USES)))


@pytest.mark.parametrize("name", USES)
async def test_what_a_kept_context_does_is_refused(name: str) -> None:
    """
    Whatever changes or uses something raises InvocationEndedError, of every context, and leaves nothing behind.
    """
    kept, sessions = await kept_contexts()
    place: Any = {"app_name": "app", "user_id": "u", "session_id": "s"}
    before = await sessions.get_session(**place)
    tried = 0
    for of, context in kept.items():
        if name not in names_of(context) or isinstance(context, Mapping) or of in ("actions", "instruction"):
            continue
        for use in USES[name]:
            tried += 1
            with pytest.raises(InvocationEndedError, match="has ended"):
                result = use(context)
                if isawaitable(result):
                    await result
    assert tried
    assert await sessions.get_session(**place) == before
    artifacts = kept["agent"]._invocation.program.services.artifact
    assert await artifacts.list_artifact_keys(**place) == []


async def test_actions_that_somebody_has_kept_are_not_set_after_the_end() -> None:
    """
    The object itself refuses, too, and shows what it had.
    """
    kept, _ = await kept_contexts()
    for name, value in (("escalate", True), ("artifact_delta", {"a": 1}), ("transfer_to_agent", "a")):
        with pytest.raises(InvocationEndedError, match="has ended"):
            setattr(kept["actions"], name, value)
    assert kept["actions"].escalate is None


async def test_what_a_kept_context_shows_is_still_there() -> None:
    """
    Looking at it works, and the state can be read.
    """
    kept, _ = await kept_contexts()
    for of, context in kept.items():
        if of == "actions":
            continue
        for name in names_of(context) & READS - {"idempotency_key"}:
            getattr(context, name)
        for name in names_of(context) & LOOKS.keys():
            LOOKS[name](context)
        assert dict(context.state) == {}
        assert context.session.id == "s"


async def test_an_agent_is_not_run_in_a_context_that_was_kept() -> None:
    """
    Its model is not asked, nor anything else of it done.
    """
    kept, _ = await kept_contexts()
    model = ScriptedLlm(["never"])
    with pytest.raises(InvocationEndedError, match="has ended"):
        await LlmAgent(name="late", model=model).run_async(kept["agent"])
    assert model.requests == []


async def test_what_hooks_set_after_the_tool_goes_with_its_answer() -> None:
    """
    The actions of an attempt are over with it; those of the call can be set until it is answered.
    """

    def after(tool_context: ToolContext, **_: Any) -> None:
        assert tool_context.actions.escalate is True
        tool_context.actions.skip_summarization = True

    def stop(tool_context: ToolContext) -> str:
        tool_context.actions.escalate = True
        return "stopped"

    agent = LlmAgent(name="a", model=ScriptedLlm([call("stop")]), tools=[stop], after_tool_callback=after)
    events = await InMemoryRunner(agent, app_name="app").run_debug("hi", quiet=True)
    assert (events[-1].actions.escalate, events[-1].actions.skip_summarization) == (True, True)
