"""What is said about going on with an invocation: settings, arguments, and what is refused before anything is done."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    GetSessionConfig,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    ParallelAgent,
    Part,
    RunConfig,
    Runner,
)
from minirun._values import changed
from minirun.apps import ResumabilityConfig
from minirun.errors import ConfigurationError, InvalidMessageError, NotSupportedError
from minirun.models import LlmRequest
from minirun.sessions import PendingCall, SessionKey
from minirun.testing import ScriptedLlm, call
from minirun.tools import get_user_choice
from minirun.types import FunctionResponse

PLACE: Any = {"user_id": "u", "session_id": "s"}


class Speaker(BaseAgent):
    """Says one thing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hi"))


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_an_app_may_say_that_it_is_resumable() -> None:
    """It is accepted, kept under another app name, and without any effect."""
    config = ResumabilityConfig(is_resumable=True)
    app = App("app", Speaker(name="a"), resumability_config=config)
    assert app.resumability_config == config
    assert App("app", Speaker(name="a")).resumability_config is None
    runner = Runner(app=app, app_name="other", session_service=InMemorySessionService())
    assert (runner.app_name, runner.app.resumability_config) == ("other", config)
    async with InMemoryRunner(app=app, auto_create_session=True).run_async(
        user_id="u", session_id="s", new_message="go"
    ) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.text == "hi"


@pytest.mark.parametrize("arguments", [{}, {"is_resumable": False}])
def test_an_app_that_is_not_resumable_is_refused(arguments: dict[str, Any]) -> None:
    """False, which is the default that ADK documents, is refused by name, with what to do."""
    with pytest.raises(NotSupportedError, match=r"is_resumable=False.*every invocation is resumable.*no setting"):
        ResumabilityConfig(**arguments)


def test_a_resumability_config_of_another_kind_is_refused() -> None:
    """What is neither True nor False, and what is no ResumabilityConfig."""
    yes: Any = "yes"
    with pytest.raises(ConfigurationError, match="is_resumable to be True, found 'yes'"):
        ResumabilityConfig(is_resumable=yes)
    with pytest.raises(ConfigurationError, match="expected resumability_config to be a ResumabilityConfig"):
        App("app", Speaker(name="a"), resumability_config=yes)
    fields: dict[str, Any] = {"resumable": True}
    with pytest.raises(TypeError, match="unexpected keyword argument 'resumable'"):
        App("app", Speaker(name="a"), **fields)


# --- the user's choice ------------------------------------------------------------------------------------------------


def chooser(*options: str) -> InMemoryRunner:
    """A runner whose model lets the user choose, and then says what it was told."""

    def model(request: LlmRequest) -> Part | str:
        answer = request.contents[-1].parts[-1].function_response
        return call("get_user_choice", options=list(options)) if answer is None else str(answer.response)

    agent = LlmAgent(name="a", model=ScriptedLlm(model), tools=[get_user_choice])
    return InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)


async def test_only_what_was_offered_can_be_chosen() -> None:
    """Another answer is refused, however it is made and sent, and nothing is stored; the choice stays open."""
    runner = chooser("tea", "1", "tea")
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    [question] = run.pending
    assert (question.kind, question.args["options"]) == ("long_running", ["tea", "1", "tea"])
    assert question.schema == {"type": "string", "enum": ["tea", "1"]}
    before = await runner.session_service.read_events(app_name="app", **PLACE)
    for wrong in ("zebra", 1, None, ["tea"], {"choice": "tea"}, {"result": "zebra"}):
        with pytest.raises(InvalidMessageError, match="get_user_choice"):
            question.reply(wrong)
    sent = FunctionResponse(id=question.call_id, name="get_user_choice", response={"result": "zebra"})
    message = Content(role="user", parts=[Part(function_response=sent)])
    with pytest.raises(InvalidMessageError, match=r'"tea".*"1".*answer again'):
        async with runner.run_async(**PLACE, new_message=message):
            raise AssertionError("it was entered")
    assert await runner.session_service.read_events(app_name="app", **PLACE) == before
    async with runner.run_async(**PLACE, new_message=question.reply("1")) as run:
        answer = await run.wait()
    assert answer is not None
    assert answer.text == "{'result': '1'}"


async def test_where_nothing_is_offered_anything_can_be_chosen() -> None:
    """A choice without options is answered like the call of any other long-running tool."""
    runner = chooser()
    async with runner.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    assert run.pending[0].schema is None
    [part] = run.pending[0].reply({"whatever": 1}).parts
    assert part.function_response is not None
    assert part.function_response.response == {"whatever": 1}


async def test_a_choice_whose_process_died_is_offered_again() -> None:
    """Between the call and the mark that it waits: to offer has no effect, so it is done again, and then answered."""
    first = chooser("tea")
    async with first.run_async(**PLACE, new_message="go") as run:
        await run.wait()
    log = await first.session_service.read_events(app_name="app", **PLACE, after_seq=0)
    made = next(number for number, event in enumerate(log) if event.get_function_calls())
    runner = chooser("tea")
    await runner.session_service.create_session(app_name="app", **PLACE)
    writer = await runner.session_service.open_writer(SessionKey("app", "u", "s"), run.invocation_id, None, reject=True)
    assert writer is not None
    for event in log[: made + 1]:
        await writer.append(changed(event, seq=None), begins=event is log[0])
    await writer.finish(None)
    assert await runner.session_service.list_pending() == []
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        await again.wait()
    assert again.status == "paused"
    async with runner.run_async(**PLACE, new_message=again.pending[0].reply("tea")) as answered:
        await answered.wait()
    assert answered.status == "completed"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [{"k": 1}, {"temp:k": 1}, {"user:k": None}])
async def test_state_cannot_be_changed_with_what_has_ended(delta: dict[str, Any]) -> None:
    """To go on with it would do nothing, so that the change would be lost; it is refused, and nothing is stored."""
    runner = InMemoryRunner(agent=Speaker(name="a"), app_name="app", auto_create_session=True)
    async with runner.run_async(**PLACE, new_message="go") as first:
        await first.wait()
    before = await runner.session_service.read_events(app_name="app", **PLACE)
    with pytest.raises(InvalidMessageError, match=r"has ended \(completed\).*state_delta.*append_event"):
        async with runner.run_async(**PLACE, invocation_id=first.invocation_id, state_delta=delta):
            raise AssertionError("it was entered")
    assert await runner.session_service.read_events(app_name="app", **PLACE) == before
    async with runner.run_async(**PLACE, invocation_id=first.invocation_id, state_delta={}) as again:
        assert await again.wait() == first.answer
    async with runner.run_async(**PLACE, new_message="go", state_delta={"k": 2}) as second:
        await second.wait()
    assert second.session.state["k"] == 2


class Asker(BaseAgent):
    """Asks, and says what it was answered, in two words."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        answer = await ctx.request_input(f"{self.name}?")
        await ctx.emit(Event(message="thanks"))
        await ctx.emit(Event(message=str(answer)))


async def asked(agent: BaseAgent, times: int) -> tuple[Runner, list[PendingCall]]:
    """A runner with so many invocations that wait, and their questions."""
    runner = InMemoryRunner(agent=agent, app_name="app", auto_create_session=True)
    for _ in range(times):
        async with runner.run_async(**PLACE, new_message="go") as run:
            await run.wait()
        assert run.status == "paused"
    return runner, await runner.session_service.list_pending()


@pytest.mark.parametrize("of", ["two invocations", "two branches"])
async def test_answers_are_for_one_agent_in_one_invocation(of: str) -> None:
    """Answers in one message to questions of several are refused; one by one they are taken."""
    both = ParallelAgent(name="p", sub_agents=[Asker(name="a"), Asker(name="b")])
    runner, questions = await asked(both, 1) if of == "two branches" else await asked(Asker(name="a"), 2)
    parts = [part for question in questions for part in question.reply("x").parts]
    assert len(parts) == 2
    with pytest.raises(InvalidMessageError, match=r"one agent in one invocation, found several; send them one by one"):
        async with runner.run_async(**PLACE, new_message=Content(role="user", parts=parts)):
            raise AssertionError("it was entered")
    for question in questions:
        async with runner.run_async(**PLACE, new_message=question.reply("x")) as run:
            await run.wait()
    assert await runner.session_service.list_pending() == []


async def test_an_answer_is_for_the_invocation_that_is_named() -> None:
    """An answer to a question of another one is refused, and both questions stay open."""
    runner, [first, second] = await asked(Asker(name="a"), 2)
    with pytest.raises(InvalidMessageError, match=f"of the invocation '{second.invocation_id}', found ones of"):
        async with runner.run_async(**PLACE, invocation_id=second.invocation_id, new_message=first.reply("x")):
            raise AssertionError("it was entered")
    assert await runner.session_service.list_pending() == [first, second]
    async with runner.run_async(**PLACE, invocation_id=first.invocation_id, new_message=first.reply("x")) as run:
        await run.wait()
    assert run.status == "completed"


async def test_a_run_of_what_has_ended_has_its_last_answer_and_the_window_that_was_asked_for() -> None:
    """Nothing runs: `answer` is that of the invocation, and `session` has the events that the settings ask for."""
    runner, [question] = await asked(Asker(name="a"), 1)
    async with runner.run_async(**PLACE, new_message=question.reply("last")) as first:
        await first.wait()
    for config, count in ((None, 5), (RunConfig(get_session_config=GetSessionConfig(num_recent_events=1)), 1)):
        again = runner.run_async(**PLACE, invocation_id=first.invocation_id, run_config=config)
        async with again as run:
            answer = await run.wait()
        assert answer is not None
        assert (run.status, answer.text, len(run.session.events)) == ("completed", "last", count)


async def test_how_an_invocation_was_left_is_looked_up_when_the_session_is_free() -> None:
    """A run that asks to go on while another one is under way finds it paused: what had ended is not ended again."""
    over: list[str] = []

    def note(callback_context: Any) -> None:
        over.append(callback_context.agent_name)

    tree = ParallelAgent(name="both", sub_agents=[Speaker(name="quick", after_agent_callback=note), Asker(name="slow")])
    runner = InMemoryRunner(agent=tree, app_name="app", auto_create_session=True)
    async def go_on(invocation_id: str) -> None:
        async with runner.run_async(**PLACE, invocation_id=invocation_id) as again:
            await again.wait()
        assert again.status == "paused"

    async with trio.open_nursery() as nursery:
        async with runner.run_async(**PLACE, new_message="go") as run:
            await anext(run)
            nursery.start_soon(go_on, run.invocation_id)
            await trio.testing.wait_all_tasks_blocked()  # it waits for the session
            await run.wait()
        assert run.status == "paused"
    assert over == ["quick"]
