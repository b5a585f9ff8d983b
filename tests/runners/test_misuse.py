"""What is written wrongly fails where it stands, and the error says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import pytest
import trio

from minirun import (
    App,
    BaseAgent,
    Event,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Runner,
    SqliteSessionService,
)
from minirun.apps import EventsCompactionConfig, LlmEventSummarizer
from minirun.errors import ConfigurationError, ModelContractError
from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.runtime import Run, RunScope
from minirun.sessions import Session
from minirun.testing import ScriptedLlm
from minirun.types import ModelContent

PLACE: Any = {"user_id": "u", "session_id": "s", "new_message": "hi"}
ENTER_IT = r"a run is a scope.*`async with runner\.run_async\(\.\.\.\) as run:`.*`await run\.wait\(\)`"


def runner_of(agent: BaseAgent) -> InMemoryRunner:
    return InMemoryRunner(agent=agent, auto_create_session=True)


# --- a run that is not entered ----------------------------------------------------------------------------------------


async def await_it(scope: Any) -> None:
    await scope


async def iterate(scope: Any) -> None:
    async for _ in scope:
        pass


async def iterate_plainly(scope: Any) -> None:
    for _ in scope:
        pass


async def enter_plainly(scope: Any) -> None:
    with scope:
        pass


async def enter(run: Any) -> None:
    async with run:
        pass


@pytest.mark.parametrize("use", [await_it, iterate, iterate_plainly, enter_plainly])
async def test_a_run_that_is_not_entered_says_how_to(use: Callable[[RunScope], Any]) -> None:
    """
    Awaiting, iterating over and plainly entering what `run_async` returns fails, and nothing is stored.
    """
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm([])))
    with pytest.raises(TypeError, match=ENTER_IT):
        await use(runner.run_async(**PLACE))
    assert await runner.session_service.get_session(app_name="InMemoryRunner", user_id="u", session_id="s") is None


@pytest.mark.parametrize("name", ["wait", "answer", "pending", "status"])
async def test_a_run_that_is_not_entered_has_nothing_of_a_run(name: str) -> None:
    """
    What a run has, its scope has not; the error says where it is.
    """
    scope = runner_of(LlmAgent(name="a", model=ScriptedLlm([]))).run_async(**PLACE)
    with pytest.raises(AttributeError, match=f"RunScope has no attribute '{name}'; {ENTER_IT}"):
        getattr(scope, name)


@pytest.mark.parametrize("use", [await_it, iterate_plainly, enter_plainly, enter])
async def test_a_run_that_is_entered_says_how_to_go_on(use: Callable[[Any], Any]) -> None:
    """
    Awaiting, plainly iterating over and entering a run itself fails, and it goes on as if nothing had been tried.
    """
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])))
    async with runner.run_async(**PLACE) as run:
        with pytest.raises(TypeError, match=r"write `async for event in run:` or `await run\.wait\(\)`"):
            await use(run)
        answer = await run.wait()
    assert answer is not None
    assert answer.text == "hello"


async def test_a_run_has_one_reader() -> None:
    """
    A second task that asks a run for its next event meanwhile is told so, and the first one has all of them.
    """
    errors: list[RuntimeError] = []
    texts: list[str] = []

    async def read(run: Run) -> None:
        try:
            texts.extend([event.text async for event in run])
        except RuntimeError as error:
            errors.append(error)

    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])))
    async with runner.run_async(**PLACE) as run, trio.open_nursery() as nursery:
        nursery.start_soon(read, run)
        nursery.start_soon(read, run)
    assert texts == ["hello"]
    [error] = errors
    assert "two tasks are asking the same run" in str(error)
    assert "let one read and pass the events on" in str(error)


@pytest.mark.parametrize("of", [lambda runner: runner, lambda runner: runner.session_service])
async def test_what_is_closed_is_entered_by_async_with(of: Callable[[InMemoryRunner], Any]) -> None:
    """
    Plain `with` of a runner and of a service says what to write, and closes nothing.
    """
    runner = runner_of(LlmAgent(name="a", model=ScriptedLlm(["hello"])))
    with pytest.raises(TypeError, match="closing has to wait, so it is `async with`, and not `with`"):
        await enter_plainly(of(runner))
    assert len(await runner.run_debug("hi", quiet=True)) > 0


# --- models -----------------------------------------------------------------------------------------------------------


class Returning(BaseLlm):
    """A model that returns its response."""

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> LlmResponse:  # type: ignore[override]  # that is the mistake
        return LlmResponse(content=ModelContent("hi"))


class Plain(BaseLlm):
    """A model that is not asynchronous at all."""

    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> LlmResponse:  # type: ignore[override]  # that is the mistake
        return LlmResponse(content=ModelContent("hi"))


@pytest.mark.parametrize("kind", [Returning, Plain])
async def test_a_model_that_is_no_generator_is_told_to_yield(kind: type[BaseLlm]) -> None:
    """
    A model whose method returns its response, as a coroutine or not, fails the run with a sentence.
    """
    expected = rf"expected {kind.__name__}\.generate_content_async to be an async generator, found .*; `yield` the resp"
    with pytest.raises(ModelContractError, match=expected):
        await runner_of(LlmAgent(name="a", model=kind())).run_debug("go", quiet=True)


async def test_a_summarizer_s_model_that_is_no_generator_is_told_to_yield() -> None:
    """
    The same where a summary is asked for.
    """
    config = EventsCompactionConfig(summarizer=LlmEventSummarizer(Returning()), compaction_interval=1, overlap_size=0)
    app = App("demo", LlmAgent(name="a", model=ScriptedLlm(["hi"])), events_compaction_config=config)
    async with InMemoryRunner(app=app, auto_create_session=True).run_async(**PLACE) as run:
        await run.wait()
    assert isinstance(run.compaction_error, ModelContractError)
    assert "to be an async generator" in str(run.compaction_error)


# --- agents below an agent --------------------------------------------------------------------------------------------


class Speaker(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hi"))


class Peer(BaseAgent):
    """Passes on the events of another agent, as one has to in ADK."""

    async def _run_async_impl(self, ctx: InvocationContext) -> Any:
        async for event in self.sub_agents[0].run_async(ctx):  # type: ignore[attr-defined]  # that is the mistake
            yield event


class Parallel(BaseAgent):
    """Says and runs several things at once, which is right."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ctx.emit, Event(message=f"{number}"))
            nursery.start_soon(self.sub_agents[0].run_async, ctx)


async def test_passing_on_the_events_of_an_agent_says_what_to_write() -> None:
    """
    `async for event in agent.run_async(ctx)` fails, and says that there is nothing to pass on.
    """
    with pytest.raises(TypeError, match=r"an agent emits its events itself.*`await agent\.run_async\(ctx\)`"):
        await runner_of(Peer(name="a", sub_agents=[Speaker(name="b")])).run_debug("go", quiet=True)


async def test_what_a_nursery_awaits_is_not_forgotten() -> None:
    """
    `nursery.start_soon(ctx.emit, event)` and `nursery.start_soon(agent.run_async, ctx)` are awaited by their tasks.
    """
    events = await runner_of(Parallel(name="a", sub_agents=[Speaker(name="b")])).run_debug("go", quiet=True)
    assert sorted(event.text for event in events) == ["0", "1", "2", "hi"]


# --- fields that are shared -------------------------------------------------------------------------------------------


class Keeper(BaseAgent):
    """Has fields that can be changed in place, with the defaults that pydantic copies."""

    items: list[str] = []  # noqa: RUF012  # what this is about
    counts: dict[str, list[int]] = {"all": []}  # noqa: RUF012
    seen: set[str] = attrs.field(default=set())
    shared: ClassVar[list[str]] = []


class LateKeeper(Keeper):
    """One of its subclasses, with an `__init__` of its own."""

    more: list[str] = ["first"]  # noqa: RUF012

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)


@pytest.mark.parametrize("kind", [Keeper, LateKeeper])
def test_no_agent_sees_what_another_left_in_its_fields(kind: type[Keeper]) -> None:
    """
    Each agent has a copy of a default that can be changed, also within; a clone's are its own. A ClassVar is shared.
    """
    first, second = kind(name="first"), kind(name="second")
    first.items.append("x")
    first.counts["all"].append(1)
    first.seen.add("x")
    assert (second.items, second.counts, second.seen) == ([], {"all": []}, set())
    clone = first.clone()
    assert isinstance(clone, Keeper)
    clone.items.append("y")
    assert (clone.items, first.items) == (["x", "y"], ["x"])
    assert first.shared is second.shared is Keeper.shared


# --- an event that is returned ----------------------------------------------------------------------------------------


class Handler(BaseAgent):
    """Returns its event, as a handler of requests would; or the one that was stored."""

    emits: bool = False

    async def _run_async_impl(self, ctx: InvocationContext) -> Any:
        event = Event(message="hi")
        return await ctx.emit(event) if self.emits else event


async def test_logic_that_returns_its_event_is_told_to_emit_it() -> None:
    """
    An event that is returned and was not emitted fails the run; what `emit` has returned may be returned.
    """
    expected = r"Handler\._run_async_impl returned an Event that nobody has emitted; write `await ctx\.emit\(event\)`"
    with pytest.raises(TypeError, match=expected):
        await runner_of(Handler(name="a")).run_debug("go", quiet=True)
    events = await runner_of(Handler(name="a", emits=True)).run_debug("go", quiet=True)
    assert [event.author for event in events][-1] == "a"


# --- what runs do not ask ---------------------------------------------------------------------------------------------


class Audits(InMemorySessionService):
    """An audit that would not be told of runs."""

    async def append_event(self, session: Session, event: Event) -> Event:
        return await super().append_event(session, event)


class Filters(SqliteSessionService):
    """A filter that runs would not go through."""

    async def get_session(self, **place: Any) -> Session | None:
        return await super().get_session(**place)


class Counts(InMemorySessionService):
    """What runs do call can be overridden: they make their sessions by it."""

    made = 0

    async def create_session(self, **place: Any) -> Session:
        self.made += 1
        return await super().create_session(**place)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Audits(), "Audits overrides append_event, which runs do not call; .*on_event_callback"),
        (lambda: Filters(":memory:"), "Filters overrides get_session, .*get_session_config"),
    ],
)
def test_a_runner_refuses_an_override_that_runs_would_not_ask(make: Callable[[], Any], words: str) -> None:
    """An override of what runs do not call is refused when the Runner is made, with what to use instead."""
    agent = LlmAgent(name="a", model=ScriptedLlm([]))
    with pytest.raises(ConfigurationError, match=words):
        Runner(app_name="app", agent=agent, session_service=make())
    service = InMemorySessionService()
    service.append_event = Audits().append_event  # type: ignore[method-assign]  # as a patch of an instance does
    with pytest.raises(ConfigurationError, match="overrides append_event"):
        Runner(app_name="app", agent=agent, session_service=service)


async def test_a_run_makes_its_session_by_the_method_that_is_overridden() -> None:
    """`create_session` is what runs call, so an override of it is asked."""
    service = Counts()
    agent = LlmAgent(name="a", model=ScriptedLlm(["hello"]))
    runner = Runner(app_name="app", agent=agent, session_service=service, auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
        await run.wait()
    assert service.made == 1
