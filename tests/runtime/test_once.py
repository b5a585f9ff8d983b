"""One message and its answer: `run_once`, `run_sync`, and what a run tells of itself when it is over."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import minirun
from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Part,
    RunConfig,
    Runner,
    SequentialAgent,
    SqliteSessionService,
    run_once,
    run_sync,
)
from minirun.bridge import AsyncioBridge
from minirun.errors import ConfigurationError, InvalidMessageError, LlmCallsLimitExceededError
from minirun.models import LlmRequest, LlmResponse
from minirun.testing import ScriptedLlm, call
from minirun.types import UsageMetadata


@attrs.frozen
class Recipe:
    name: str
    minutes: int = 1


class DepsParrot(BaseAgent):
    """Says what it was given beside the message."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message=f"{ctx.deps} {ctx.state['temp:mood']}"))


def parrot(*, name: str = "parrot") -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedLlm(lambda request: f"{request.contents[-1].text}!"))


def counted(text: str, **counts: Any) -> LlmResponse:
    return LlmResponse(
        content=Content(role="model", parts=[Part(text=text)]), usage_metadata=UsageMetadata(**counts)
    )


async def test_an_agent_answers_one_message() -> None:
    """Without a runner: the text, the events, and how it ended."""
    result = await run_once(parrot(), "hi")
    assert (result.text, result.output, result.status, result.pending) == ("hi!", None, "completed", [])
    assert [event.text for event in result.events] == ["hi!"]
    assert result.invocation_id == result.events[0].invocation_id


def test_synchronous_code_gets_the_same() -> None:
    """`run_sync` returns what `run_once` does, and leaves no thread."""
    before = {*threading.enumerate()}
    assert run_sync(parrot(), "hi").text == "hi!"
    assert {*threading.enumerate()} <= before


async def test_an_app_is_run_with_what_it_has() -> None:
    """An app works as an agent does, and keeps its name."""
    async with InMemorySessionService() as sessions:
        result = await run_once(App("shop", parrot()), "hi", session_service=sessions, user_id="ada")
        [listed] = (await sessions.list_sessions(app_name="shop")).sessions
        assert (listed.user_id, listed.id) == ("ada", result.session_id)


async def test_a_session_goes_on_where_it_is_named(tmp_path: Path) -> None:
    """With a service and a session, messages follow each other; without a session each has a new one."""
    async with SqliteSessionService(tmp_path / "s.db") as sessions:
        for _ in range(2):
            result = await run_once(parrot(), "hi", session_service=sessions, session_id="main")
        assert result.events[-1].seq == 4
        others = {(await run_once(parrot(), "hi", session_service=sessions)).session_id for _ in range(2)}
        assert len(others | {"main"}) == 3
        assert len((await sessions.list_sessions(app_name="parrot")).sessions) == 3


async def test_an_answer_of_a_form_is_an_instance() -> None:
    """`output` is of the class that the agent was given, wherever in the tree it is; a JSON schema's stays JSON."""
    model = ScriptedLlm(lambda request: '{"name": "soup"}')
    cook = LlmAgent(name="cook", model=model, output_schema=Recipe)
    assert (await run_once(cook, "?")).output == Recipe("soup", 1)
    kitchen = SequentialAgent(name="kitchen", sub_agents=[parrot(), cook])
    assert (await run_once(kitchen, "?")).output == Recipe("soup", 1)
    many = LlmAgent(name="cook", model=ScriptedLlm(['[{"name": "soup"}]']), output_schema=list[Recipe])
    assert (await run_once(many, "?")).output == [Recipe("soup", 1)]
    plain = LlmAgent(name="cook", model=model, output_schema={"type": "object"})
    assert (await run_once(plain, "?")).output == {"name": "soup"}


async def test_what_does_not_fit_stays_what_it_is() -> None:
    """A value that a callback has put in the place of the answer is not of the class, and is handed on as JSON."""

    class Says(BaseAgent):
        output_schema: Any = Recipe

        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(minirun.Event(output={"no": "recipe"}))

    assert (await run_once(Says(name="a"), "?")).output == {"no": "recipe"}


async def test_usage_is_what_all_models_of_the_run_have_counted() -> None:
    """The counts of every response are added up; what nobody counts is None."""

    def add(a: int) -> int:
        """Add."""
        return a

    responses = [counted("look", prompt_token_count=3, total_token_count=5), counted("done", prompt_token_count=4)]
    first = LlmAgent(name="first", model=ScriptedLlm(responses[:1]))
    second = LlmAgent(name="second", model=ScriptedLlm([call("add", a=1), responses[1]]), tools=[add])
    result = await run_once(SequentialAgent(name="both", sub_agents=[first, second]), "?")
    assert result.usage == UsageMetadata(prompt_token_count=7, total_token_count=5)
    assert (await run_once(parrot(), "?")).usage == UsageMetadata()


async def test_usage_of_a_resumed_invocation_has_what_was_used_before() -> None:
    """Going on with an invocation counts from the log, as its budgets do; one that has ended uses nothing."""

    class Asks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await self.sub_agents[0].run_async(ctx)
            await ctx.request_input("more?")
            await self.sub_agents[1].run_async(ctx)

    models = [ScriptedLlm([counted(text, total_token_count=count)]) for text, count in (("a", 3), ("b", 4))]
    agents = [LlmAgent(name=f"m{number}", model=model) for number, model in enumerate(models)]
    runner = InMemoryRunner(agent=Asks(name="asks", sub_agents=agents), auto_create_session=True)
    async with runner.run_async(user_id="u", session_id="s", new_message="go") as run:
        await run.wait()
        assert run.usage.total_token_count == 3
        [question] = run.pending
    async with runner.run_async(user_id="u", session_id="s", new_message=question.reply("yes")) as run:
        await run.wait()
    assert run.usage.total_token_count == 7, "also when it is over"
    async with runner.run_async(user_id="u", session_id="s", invocation_id=run.invocation_id) as ended:
        assert (await ended.wait(), ended.usage) == (run.answer, UsageMetadata())


def test_a_synchronous_run_tells_output_and_usage() -> None:
    """Before the first event nothing, after the last what `Run` has."""
    model = ScriptedLlm([counted('{"name": "soup"}', total_token_count=2)])
    runner = InMemoryRunner(agent=LlmAgent(name="cook", model=model, output_schema=Recipe), auto_create_session=True)
    with runner.run(user_id="u", session_id="s", new_message="?") as run:
        assert (run.output, run.usage) == (None, UsageMetadata())
        list(run)
    assert (run.output, run.usage) == (Recipe("soup"), UsageMetadata(total_token_count=2))


def test_a_failure_is_raised_as_itself() -> None:
    """What the run fails with is what the caller gets."""
    busy = LlmAgent(name="busy", model=ScriptedLlm(lambda request: call("nothing")))
    with pytest.raises(LlmCallsLimitExceededError):
        run_sync(busy, "hi", run_config=RunConfig(max_llm_calls=2))
    with pytest.raises(InvalidMessageError):
        run_sync(parrot(), "")


async def test_what_waits_is_told() -> None:
    """A run that pauses has no text, and the question to answer."""

    class Asks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await ctx.emit(minirun.Event(message=await ctx.request_input("what?")))

    async with InMemorySessionService() as sessions:
        asked = await run_once(Asks(name="asks"), "go", session_service=sessions)
        assert (asked.status, asked.text) == ("paused", "")
        [question] = asked.pending
        answered = await run_once(
            Asks(name="asks"), question.reply("it"), session_service=sessions, session_id=asked.session_id
        )
        assert answered.text == "it"


def in_a_thread_of_asyncio() -> str:
    return asyncio.run(asyncio.to_thread(said))


def in_a_thread_of_trio() -> str:
    return trio.run(trio.to_thread.run_sync, said)


def in_many_threads() -> str:
    with ThreadPoolExecutor(20) as threads:
        [text] = set(threads.map(lambda _: said(), range(40)))
    return text


def in_a_tool() -> str:
    """Ask another agent."""
    return said()


def told(request: LlmRequest) -> str:
    """What the tool has said."""
    parts = [part for content in request.contents for part in content.parts]
    return "".join(part.function_response.response["result"] for part in parts if part.function_response is not None)


def in_an_agent() -> str:
    model = ScriptedLlm(lambda request: told(request) or call("in_a_tool"))
    return run_sync(LlmAgent(name="outer", model=model, tools=[in_a_tool]), "hi").text


def in_a_signal_handler() -> str:
    found: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: found.append(said()))
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    return found[0]


def while_something_is_collected() -> str:
    class Last:
        def __del__(self) -> None:
            found.append(said())

    found: list[str] = []
    Last()
    return found[0]


def said() -> str:
    return run_sync(parrot(), "hi").text


@pytest.mark.parametrize(
    "where",
    [
        in_a_thread_of_asyncio,
        in_a_thread_of_trio,
        in_many_threads,
        in_an_agent,
        in_a_signal_handler,
        while_something_is_collected,
    ],
)
def test_run_sync_works_wherever_synchronous_code_runs(where: Callable[[], str]) -> None:
    """
    In threads of either kind of loop, in a tool of another run, in a signal handler and in the garbage collector.
    """
    assert where() == said()


async def test_many_runs_at_once_share_a_service(tmp_path: Path) -> None:
    """
    `run_once` in fifty tasks: each has its session, and its own dependencies.
    """
    texts: dict[int, str] = {}
    async with SqliteSessionService(tmp_path / "s.db") as sessions, trio.open_nursery() as nursery:

        async def one(number: int) -> None:
            given: Any = {"deps": number, "state_delta": {"temp:mood": "."}}
            texts[number] = (await run_once(DepsParrot(name="parrot"), "hi", session_service=sessions, **given)).text

        for number in range(50):
            nursery.start_soon(one, number)
    assert sorted(texts) == list(range(50))
    assert all(text == f"{number} ." for number, text in texts.items())


@pytest.mark.parametrize("wrong", [None, "agent", parrot, LlmAgent])
async def test_what_cannot_be_run_is_refused(wrong: Any) -> None:
    """Neither an agent nor an app: a typed error says so."""
    with pytest.raises(ConfigurationError, match="expected an agent or an App"):
        await run_once(wrong, "hi")


async def test_run_sync_inside_trio_says_what_to_use() -> None:
    """It would stop the loop that it is called in."""
    with pytest.raises(RuntimeError, match="run_once"):
        run_sync(parrot(), "hi")


def test_run_sync_works_inside_a_running_asyncio_loop() -> None:
    """As in a notebook: the run has a thread of its own, and the loop is held until it returns."""

    async def cell() -> str:
        return run_sync(parrot(), "hi").text

    assert asyncio.run(cell()) == "hi!"


# --- one list of arguments --------------------------------------------------------------------------------------------


def arguments(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The keywords of a function that runs an agent, with their types and defaults."""
    given = inspect.signature(function).parameters
    return {name: each for name, each in given.items() if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("other", "has_not"),
    [
        (AsyncioBridge.run_async, set()),
        (AsyncioBridge.run, {"yield_user_message"}),
        (Runner.run, {"yield_user_message"}),
        (run_once, {"new_message", "invocation_id", "yield_user_message"}),
        (run_sync, {"new_message", "invocation_id", "yield_user_message"}),
    ],
)
def test_whatever_runs_an_agent_takes_the_same(other: Callable[..., object], has_not: set[str]) -> None:
    """What `Runner.run_async` takes, its like take too, in its form; `run_once` and `run_sync` begin invocations."""
    wanted = {name: each for name, each in arguments(Runner.run_async).items() if name not in has_not}
    found = arguments(other)
    if other in (run_once, run_sync):  # with defaults for who speaks where, and a service of their own
        wanted = {name: each for name, each in wanted.items() if name not in ("user_id", "session_id")}
        found = {name: each for name, each in found.items() if name in wanted}
    assert found == wanted


async def test_whatever_runs_an_agent_passes_everything_on() -> None:
    """Dependencies and state reach the agent through each of them."""
    agent = DepsParrot(name="parrot")
    given: Any = {"deps": ["a handle"], "state_delta": {"temp:mood": "good"}}
    wanted = "['a handle'] good"

    def synchronous() -> list[str]:
        with AsyncioBridge(InMemoryRunner(agent=agent, auto_create_session=True)) as chat:
            bridged = [event.text for event in chat.run(user_id="u", session_id="s", new_message="hi", **given)]
        with InMemoryRunner(agent=agent, auto_create_session=True).run(
            user_id="u", session_id="s", new_message="hi", **given
        ) as events:
            plain = [event.text for event in events]
        return [*bridged, *plain, run_sync(agent, "hi", **given).text]

    async def asynchronous() -> list[str]:
        async with AsyncioBridge(InMemoryRunner(agent=agent, auto_create_session=True)) as chat:
            run = chat.run_async(user_id="u", session_id="s", new_message="hi", **given)
            return [event.text async for event in run]

    assert (await run_once(agent, "hi", **given)).text == wanted
    assert await trio.to_thread.run_sync(synchronous) == [wanted] * 3
    assert await trio.to_thread.run_sync(lambda: asyncio.run(asynchronous())) == [wanted]
