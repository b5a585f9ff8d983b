"""Agents and tools that need a secret: how they ask, what is answered, and that it is nowhere but where it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from minirun import (
    AgentTool,
    BaseAgent,
    Env,
    Event,
    FunctionTool,
    InMemoryRunner,
    LlmAgent,
    ParallelAgent,
    Runner,
    SequentialAgent,
)
from minirun.agents import InvocationContext
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.errors import (
    ConfigurationError,
    CredentialRefusedError,
    CredentialServiceError,
    InvalidEventError,
    InvalidMessageError,
    InvalidValueError,
    NotSupportedError,
    ServiceNotConfiguredError,
)
from minirun.events import EventActions
from minirun.flows._questions import REQUEST_CREDENTIAL
from minirun.runtime import Run
from minirun.sessions import BaseSessionService, InMemorySessionService, InvocationStatus, PendingCall
from minirun.testing import ScriptedLlm, call
from minirun.tools import ToolContext
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..helpers import PLACE, Logic
from ..resuming import says, steps
from ..stores import KEY, KINDS, Clock, services

SECRET = "sk-0451-nobody-sees-this"
CONFIG = AuthConfig("weather", hint="Your key for the weather")
CREDENTIAL = AuthCredential("api_key", api_key=SECRET)
PAUSED, COMPLETED = InvocationStatus.PAUSED, InvocationStatus.COMPLETED


class Desk:
    """A runner with its services, and what a test does with it."""

    def __init__(
        self,
        agent: BaseAgent | Callable[[InvocationContext], Awaitable[None]],
        sessions: BaseSessionService | None = None,
        **options: Any,
    ) -> None:
        self.sessions = InMemorySessionService() if sessions is None else sessions
        self.credentials = options.pop("credentials", None) or InMemoryCredentialService(env=self.sessions.env)
        if not isinstance(agent, BaseAgent):
            agent = Logic(name="agent", logic=agent)
        self.runner = Runner(
            agent=agent,
            app_name="app",
            session_service=self.sessions,
            credential_service=self.credentials,
            auto_create_session=True,
            **options,
        )

    async def run(self, message: str | Content | None = "go", **options: Any) -> Run:
        async with self.runner.run_async(**PLACE, new_message=message, **options) as run:
            await run.wait()
        return run

    async def save(self, credential: AuthCredential = CREDENTIAL, key: str = CONFIG.credential_key) -> None:
        await self.credentials.save_credential(app_name="app", user_id="u", credential_key=key, credential=credential)

    async def forget(self, key: str = CONFIG.credential_key) -> None:
        await self.credentials.delete_credential(app_name="app", user_id="u", credential_key=key)

    async def pending(self) -> list[PendingCall]:
        return await self.sessions.list_pending(app_name="app")

    async def log(self) -> list[Event]:
        return await self.sessions.read_events(app_name="app", **PLACE, after_seq=0)

    async def provide(self, credential: AuthCredential = CREDENTIAL) -> Run:
        [pending] = await self.pending()
        return await self.run(await self.runner.provide_credential(pending, credential))


async def forecast(ctx: InvocationContext) -> None:
    """Logic that needs a credential, and says how long it is."""
    credential = await ctx.request_credential(CONFIG)
    await ctx.emit(Event(message=f"used a key of {len(credential.reveal())} characters"))


async def weather(city: str, tool_context: ToolContext) -> str:
    """Tell the weather."""
    credential = await tool_context.request_credential(CONFIG)
    return f"{city}: sunny, by a key of {len(credential.reveal())} characters"


def reporter(**options: Any) -> LlmAgent:
    model = steps(call("weather", city="Rome"), "reported")
    return LlmAgent(name="reporter", model=model, tools=[FunctionTool(weather, **options)])


USED = f"used a key of {len(SECRET)} characters"


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["logic", "tool"])
async def test_who_needs_a_credential_asks_and_goes_on(kind: str, by: str, tmp_path: Path) -> None:
    """The invocation pauses with a question that names no secret; once it is provided, it comes to its end."""
    async with services(tmp_path)[kind]() as sessions:
        desk = Desk(forecast if by == "logic" else reporter(), sessions)
        run = await desk.run()
        assert run.status is PAUSED
        [pending] = await desk.pending()
        assert run.pending == [pending]
        assert (pending.kind, pending.hint, pending.auth_config) == ("credential", CONFIG.hint, CONFIG)
        assert (pending.tool, dict(pending.args), pending.name) == ("", {}, REQUEST_CREDENTIAL)
        run = await desk.provide()
        assert run.status is COMPLETED
        assert run.answer is not None
        assert run.answer.text == (USED if by == "logic" else "reported")
        assert await desk.pending() == []


@pytest.mark.parametrize("by", ["logic", "tool"])
async def test_what_is_there_is_used_and_nobody_is_asked(by: str) -> None:
    """Nothing of it is in the log: no question, and no other event."""
    desk = Desk(forecast if by == "logic" else reporter())
    await desk.save()
    run = await desk.run()
    assert run.status is COMPLETED
    names = [c.name for event in await desk.log() for c in event.get_function_calls()]
    assert names == ([] if by == "logic" else ["weather"])


async def test_the_question_stands_in_the_log_as_adk_has_it() -> None:
    """A long-running call, and requested_auth_configs by the id of the tool's call; the model is not shown it."""
    seen: list[str] = []

    def answer(request: Any) -> Any:
        seen.append(str(request.contents))
        return "done" if len(seen) > 1 else call("weather", city="Rome")

    desk = Desk(LlmAgent(name="a", model=ScriptedLlm(answer), tools=[weather]))
    await desk.run()
    log = await desk.log()
    [made] = log[1].get_function_calls()
    [asked] = log[2].get_function_calls()
    assert asked.name == REQUEST_CREDENTIAL
    assert list(log[2].long_running_tool_ids or ()) == [asked.id]
    assert asked.args == {"functionCallId": made.id, "authConfig": CONFIG.to_dict()}
    assert log[2].actions.requested_auth_configs == {made.id: CONFIG.to_dict()}
    assert log[2].actions.suspended_calls == (made.id,)
    await desk.provide()
    assert REQUEST_CREDENTIAL not in "".join(seen)


async def test_of_an_agents_own_question_the_config_has_its_id() -> None:
    """There is no call of a tool that it could be for."""
    desk = Desk(forecast)
    await desk.run()
    [_, asked] = await desk.log()
    [question] = asked.get_function_calls()
    assert asked.actions.requested_auth_configs == {question.id: CONFIG.to_dict()}
    assert asked.actions.suspended_calls == ()


@pytest.mark.parametrize("by", ["logic", "tool"])
async def test_a_refusal_is_an_error_of_its_own(by: str) -> None:
    """An agent's logic may catch it; of a tool the model is told. It stays refused, whatever is saved later."""
    caught: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        try:
            await ctx.request_credential(CONFIG)
        except CredentialRefusedError as error:
            caught.append(str(error))
        await ctx.request_input("And now?")

    desk = Desk(logic if by == "logic" else reporter())
    await desk.run()
    [pending] = await desk.pending()
    run = await desk.run(pending.reply(False))
    if by == "tool":
        [response] = [r for event in run.session.events for r in event.get_function_responses() if r.name == "weather"]
        assert response.response["error"]["type"] == "CredentialRefusedError"
        assert run.status is COMPLETED
        return
    await desk.save()
    [question] = await desk.pending()
    assert (await desk.run(question.reply("go on"))).status is COMPLETED
    assert len(caught) == 2
    assert "'weather'" in caught[0]


async def test_each_question_at_any_depth_has_its_own_answer() -> None:
    """Side by side, in tools and inside of agents that are tools; one key for all is saved once, and each is told."""
    inner = reporter()
    outer = LlmAgent(name="outer", model=steps(call("reporter", request="x"), "outer"), tools=[AgentTool(inner)])
    both = LlmAgent(
        name="both", model=steps([call("weather", city="A"), call("weather", city="B")], "both"), tools=[weather]
    )
    agents = [outer, both, Logic(name="own", logic=forecast)]
    desk = Desk(SequentialAgent(name="all", sub_agents=[ParallelAgent(name="p", sub_agents=agents), last()]))
    run = await desk.run()
    found = await desk.pending()
    assert [each.kind for each in found] == ["credential"] * 4
    await desk.save()
    while found:
        run = await desk.run(found[-1].reply(True))
        found = await desk.pending()
    assert run.status is COMPLETED
    assert run.answer is not None
    assert run.answer.text == "last"


def last() -> BaseAgent:
    return LlmAgent(name="last", model=says("last"))


async def test_a_tool_asks_for_several_one_after_another() -> None:
    """Each run comes as far as the next one that is missing."""

    async def both(tool_context: ToolContext) -> str:
        first = await tool_context.request_credential(CONFIG)
        second = await tool_context.request_credential(AuthConfig("mail", "basic"))
        return f"{len(first.reveal())} {second.reveal('username')}"

    desk = Desk(LlmAgent(name="a", model=steps(call("both"), "done"), tools=[both]))
    await desk.run()
    assert (await desk.provide()).status is PAUSED
    run = await desk.provide(AuthCredential("basic", username="ada", password=SECRET))
    assert run.status is COMPLETED
    [response] = [r for event in run.session.events for r in event.get_function_responses() if r.name == "both"]
    assert response.response == {"result": f"{len(SECRET)} ada"}


async def test_callbacks_can_ask_too() -> None:
    """Before an agent, and before a tool."""
    used: list[str] = []

    async def before(callback_context: ToolContext) -> None:
        used.append((await callback_context.request_credential(CONFIG)).scheme)

    agent = LlmAgent(name="a", model=says("done"), before_agent_callback=before)
    desk = Desk(agent)
    assert (await desk.run()).status is PAUSED
    assert (await desk.provide()).status is COMPLETED
    assert used == ["api_key"]


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_yes_without_a_credential_is_refused() -> None:
    """Before anything is stored: none, one of another scheme and one that has expired do not count."""
    desk = Desk(forecast)
    await desk.run()
    [pending] = await desk.pending()
    before = await desk.log()
    wrong = [
        (None, "there is none"),
        (AuthCredential("bearer", token=SECRET), "scheme 'bearer'"),
        (AuthCredential("api_key", api_key=SECRET, expires_at=1), "has expired"),
    ]
    for credential, words in wrong:
        if credential is not None:
            await desk.save(credential)
        with pytest.raises(InvalidMessageError, match=words) as caught:
            await desk.run(pending.reply(True))
        assert SECRET not in str(caught.value)
    assert (await desk.log(), await desk.pending()) == (before, [pending])
    assert (await desk.provide()).status is COMPLETED


@pytest.mark.parametrize(
    "answer",
    [
        {"result": SECRET},
        {"result": True, "api_key": SECRET},
        {"api_key": SECRET},
        {"result": {"api_key": SECRET}},
        {"confirmed": True},
        {"result": 1},
        {"result": None},
        {},
        {"authConfig": {"exchangedAuthCredential": {"apiKey": SECRET}}},
    ],
)
async def test_an_answer_is_yes_or_no_and_nothing_else(answer: dict[str, Any]) -> None:
    """So no secret can come in a message; what was found instead is not shown."""
    desk = Desk(forecast)
    await desk.save(AuthCredential("bearer", token="x"))
    await desk.run()
    [pending] = await desk.pending()
    part = Part(function_response=FunctionResponse(id=pending.call_id, name=pending.name, response=answer))
    before = await desk.log()
    with pytest.raises(InvalidMessageError, match="True or False") as caught:
        await desk.run(Content(role="user", parts=[part]))
    assert SECRET not in str(caught.value)
    assert await desk.log() == before
    for wrong in (SECRET, {"api_key": SECRET}, CREDENTIAL, None, 1):
        with pytest.raises(InvalidMessageError, match="True or False") as caught:
            pending.reply(wrong)
        assert SECRET not in str(caught.value)
    with pytest.raises(InvalidMessageError, match="payload"):
        pending.reply(True, payload={"x": 1})


async def test_an_answer_counts_once() -> None:
    """A second one, and one that comes too late, are refused; so is one to a question that nobody has asked."""
    desk = Desk(forecast)
    await desk.run()
    [pending] = await desk.pending()
    await desk.provide()
    for answer in (True, False):
        with pytest.raises(InvalidMessageError, match="answered already"):
            await desk.run(pending.reply(answer))


async def test_providing_checks_what_it_is_given() -> None:
    """Another question, scheme or value, and one that has expired, are refused, and nothing is saved."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_input("Well?")

    desk, other = Desk(forecast), Desk(logic)
    await desk.run()
    await other.run()
    [pending], [question] = await desk.pending(), await other.pending()
    provide = desk.runner.provide_credential
    with pytest.raises(InvalidMessageError, match="of the kind 'credential'"):
        await provide(question, CREDENTIAL)
    with pytest.raises(InvalidMessageError, match="scheme 'api_key'"):
        await provide(pending, AuthCredential("bearer", token=SECRET))
    with pytest.raises(InvalidMessageError, match="expired"):
        await provide(pending, AuthCredential("api_key", api_key=SECRET, expires_at=5))
    with pytest.raises(InvalidValueError, match="expected an AuthCredential") as caught:
        await provide(pending, SECRET)
    assert SECRET not in str(caught.value)
    assert await desk.credentials.list_credentials(app_name="app", user_id="u") == []


async def test_without_a_service_the_argument_is_named() -> None:
    """For the one who asks, and for the one who answers; nothing waits for what cannot come."""
    sessions = InMemorySessionService()
    desk = Desk(forecast, sessions)
    await desk.run()
    [pending] = await desk.pending()
    bare = Runner(agent=Logic(name="agent", logic=forecast), app_name="app", session_service=sessions)
    with pytest.raises(ServiceNotConfiguredError, match="credential_service"):
        async with bare.run_async(**PLACE, new_message=pending.reply(True)) as run:
            await run.wait()
    with pytest.raises(ServiceNotConfiguredError, match="credential_service"):
        await bare.provide_credential(pending, CREDENTIAL)
    with pytest.raises(ServiceNotConfiguredError, match="credential_service"):
        async with bare.run_async(**PLACE, new_message="again") as run:
            await run.wait()


async def test_a_question_in_another_form_can_only_be_refused() -> None:
    """As in a log that somebody else has written: nobody knows which credential would do."""
    desk = Desk(last())
    await desk.sessions.create_session(app_name="app", **PLACE)
    writer = await desk.sessions.open_writer(KEY, "e-1", None, reject=True)
    assert writer is not None
    asked = FunctionCall(id="q", name=REQUEST_CREDENTIAL, args={"authConfig": {"authScheme": "?"}})
    content = Content(role="model", parts=[Part(function_call=asked)])
    await writer.append(Event(author="user", message="go", invocation_id="e-1"), begins=True)
    await writer.append(Event(author="a", invocation_id="e-1", content=content, long_running_tool_ids=["q"]))
    await writer.finish(PAUSED)
    [pending] = await desk.pending()
    assert (pending.kind, pending.auth_config, pending.hint) == ("credential", None, None)
    with pytest.raises(InvalidMessageError, match="answer it with False"):
        await desk.run(pending.reply(True))
    assert pending.reply(False).parts[0].function_response is not None


@pytest.mark.parametrize("said", [{"x": {"credentialKey": "weather"}}, {"q": {"credentialKey": "other"}}])
async def test_auth_configs_are_not_made_up(said: dict[str, Any]) -> None:
    """An event says of credentials what its questions ask, or nothing."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hi", actions=EventActions(requested_auth_configs=said)))

    with pytest.raises(InvalidEventError, match="found something else; leave it out"):
        await Desk(logic).run()


# --- going on ---------------------------------------------------------------------------------------------------------


class Meanwhile:
    """Logic that says something, uses a credential, says something, waits for an answer, and says the last thing."""

    def __init__(self, *, twice: bool = False) -> None:
        self.done: list[str] = []
        self._twice = twice

    async def __call__(self, ctx: InvocationContext) -> None:
        ctx.state["n"] = 1
        await ctx.emit(Event(message="first"))
        ctx.state["n"] += 1
        (await ctx.request_credential(CONFIG)).reveal()
        if self._twice:
            (await ctx.request_credential(CONFIG)).reveal()
        await ctx.step("charge", self.charge)
        await ctx.emit(Event(message="second", state={"n": ctx.state["n"] + 1}))
        answer = await ctx.request_input("Well?")
        (await ctx.request_credential(CONFIG)).reveal()
        await ctx.emit(Event(message=f"last: {answer} {ctx.state['n']}"))

    async def charge(self) -> str:
        self.done.append("charged")
        return "receipt"


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("how", ["deleted", "expired"])
@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite in memory"])
async def test_what_is_gone_meanwhile_is_asked_for_again(
    twice: bool, how: str, asked_before: bool, kind: str, tmp_path: Path
) -> None:
    """Once, where it is needed first; what was said and done before is taken from the log, in its order."""
    meanwhile = Meanwhile(twice=twice)
    async with services(tmp_path)[kind]() as sessions:
        desk = Desk(meanwhile, sessions)
        if asked_before:
            await desk.run()
            await desk.provide()
        else:
            await desk.save()
            await desk.run()
        await (desk.forget() if how == "deleted" else desk.save(AuthCredential("api_key", api_key="x", expires_at=1)))
        [question] = await desk.pending()
        assert question.kind == "input"
        run = await desk.run(question.reply("fine"))
        assert run.status is PAUSED
        run = await desk.provide()
        assert run.status is COMPLETED
        assert run.answer is not None
        assert run.answer.text == "last: fine 3"
        said = [event.text for event in await desk.log() if event.text]
        assert said == ["go", "first", "second", "last: fine 3"]
        assert meanwhile.done == ["charged"]
        log = await desk.log()
        asked = [c.id for event in log for c in event.get_function_calls() if c.name == REQUEST_CREDENTIAL]
        assert len(asked) == len(set(asked)) == 1 + asked_before
        assert dict(run.session.state) == {"n": 3}


async def test_what_expires_again_and_again_is_asked_for_each_time() -> None:
    """Each time once: every run ends, in a question or in the end, and no run refuses what is recorded."""
    meanwhile = Meanwhile()
    desk = Desk(meanwhile)
    await desk.save()
    await desk.run()
    for _ in range(4):
        [question] = await desk.pending()
        await desk.forget()
        if question.kind == "input":
            await desk.run(question.reply("fine"))
            continue
        message = await desk.runner.provide_credential(question, CREDENTIAL)
        await desk.forget()
        with pytest.raises(InvalidMessageError, match="there is none"):
            await desk.run(message)
    run = await desk.provide()
    assert run.status is COMPLETED
    assert meanwhile.done == ["charged"]


async def test_an_early_question_that_is_refused_stays_refused() -> None:
    """Also when a credential is saved later: what was decided by it is in the log."""
    caught: list[bool] = []

    async def logic(ctx: InvocationContext) -> None:
        try:
            await ctx.request_credential(CONFIG)
            refused = False
        except CredentialRefusedError:
            refused = True
        caught.append(refused)
        await ctx.emit(Event(message="said"))
        for text in ("One?", "Two?"):
            await ctx.request_input(text)

    desk = Desk(logic)
    await desk.save()
    await desk.run()
    await desk.forget()
    [question] = await desk.pending()
    await desk.run(question.reply("1"))
    [asked] = await desk.pending()
    assert asked.kind == "credential"
    run = await desk.run(asked.reply(False))
    await desk.save()
    [question] = await desk.pending()
    run = await desk.run(question.reply("2"))
    assert (run.status, caught) == (COMPLETED, [False, True, True])


async def cut_off(desk: Desk, at_seq: int) -> Desk:
    """The desk of a session whose process has died after this event, with no credential any more."""
    await desk.save()
    await desk.run()
    await desk.forget()
    await desk.sessions.fork_session(app_name="app", **PLACE, at_seq=at_seq, new_session_id="cut")
    await desk.sessions.delete_session(app_name="app", **PLACE)
    await desk.sessions.fork_session(app_name="app", user_id="u", session_id="cut", new_session_id="s")
    await desk.sessions.delete_session(app_name="app", user_id="u", session_id="cut")
    [left] = await desk.sessions.list_invocations(app_name="app")
    assert left.status is InvocationStatus.INTERRUPTED
    return desk


async def resume(desk: Desk) -> Run:
    [left] = await desk.sessions.list_invocations(app_name="app")
    return await desk.run(None, invocation_id=left.invocation_id)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("policy", ["report", "rerun"])
async def test_a_call_that_was_cut_off_waits_for_an_early_question(policy: Any, beside: bool) -> None:
    """What its tool may have done is not done again unless it says so, nor forgotten: it is settled afterwards."""
    times: list[int] = []

    async def pay() -> str:
        times.append(1)
        return "paid"

    payer = LlmAgent(name="payer", model=steps(call("pay"), "done"), tools=[FunctionTool(pay, on_interrupted=policy)])

    async def logic(ctx: InvocationContext) -> None:
        if ctx.user_content is not None and ctx.user_content.text == "beside":
            return
        await ctx.request_credential(CONFIG)
        await payer.run_async(ctx)

    desk = await cut_off(Desk(Logic(name="agent", logic=logic, sub_agents=[payer])), 2)
    assert (await resume(desk)).status is PAUSED
    assert not [r for event in await desk.log() for r in event.get_function_responses()]
    if beside:
        await desk.run("beside")
    run = await desk.provide()
    assert run.status is COMPLETED
    [response] = [r for event in await desk.log() for r in event.get_function_responses() if r.name == "pay"]
    if policy == "rerun":
        assert (response.response, len(times)) == ({"result": "paid"}, 2)
    else:
        assert (response.response["error"]["type"], len(times)) == ("outcome_unknown", 1)


async def test_hooks_that_were_cut_off_run_after_an_early_question() -> None:
    """That somebody had to ask in between does not mean that the agent had come to its end."""
    hooked: list[str] = []

    async def after(callback_context: ToolContext) -> None:
        hooked.append(callback_context.agent_name)

    sub = LlmAgent(name="sub", model=says("said"), after_agent_callback=after)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        await sub.run_async(ctx)
        await ctx.emit(Event(message="end"))

    desk = await cut_off(Desk(Logic(name="agent", logic=logic, sub_agents=[sub])), 2)
    assert (await resume(desk)).status is PAUSED
    assert hooked == ["sub"]
    assert (await desk.provide()).status is COMPLETED
    assert hooked == ["sub", "sub"]


async def test_what_had_ended_is_not_done_again_after_an_early_question() -> None:
    """An agent that the run had gone past, its hooks and its model, is only come to."""
    hooked: list[str] = []
    asked: list[str] = []

    async def after(callback_context: ToolContext) -> None:
        hooked.append(callback_context.agent_name)

    def answer(request: Any) -> Any:
        asked.append("model")
        return "said"

    sub = LlmAgent(name="sub", model=ScriptedLlm(answer), after_agent_callback=after)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        await sub.run_async(ctx)
        await ctx.request_input("Well?")
        await ctx.emit(Event(message="end"))

    desk = Desk(Logic(name="agent", logic=logic, sub_agents=[sub]))
    await desk.save()
    await desk.run()
    await desk.forget()
    [question] = await desk.pending()
    assert (await desk.run(question.reply("fine"))).status is PAUSED
    assert (await desk.provide()).status is COMPLETED
    assert (hooked, asked) == (["sub"], ["model"])


def beside_a_quick_one(logic: Callable[[InvocationContext], Awaitable[None]], hooked: list[str]) -> ParallelAgent:
    """An agent with this logic, and another one that says one thing, and whose hook is noted."""

    async def after(callback_context: ToolContext) -> None:
        hooked.append(callback_context.agent_name)

    quick = LlmAgent(name="quick", model=says("said"), after_agent_callback=after)
    return ParallelAgent(name="both", sub_agents=[quick, Logic(name="agent", logic=logic)])


async def test_a_branch_that_had_ended_is_over_after_an_early_question() -> None:
    """The invocation had paused before somebody had to ask: the hooks of the other branch are not called again."""
    hooked: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        await ctx.request_input("Well?")

    desk = Desk(beside_a_quick_one(logic, hooked))
    await desk.save()
    await desk.run()
    await desk.forget()
    [question] = await desk.pending()
    assert (await desk.run(question.reply("fine"))).status is PAUSED
    assert (await desk.provide()).status is COMPLETED
    assert hooked == ["quick"]


async def test_what_has_paused_after_an_early_question_was_at_rest() -> None:
    """The invocation was cut off, asked early, went on and paused: what has ended by then is over."""
    hooked: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential(CONFIG)
        await ctx.emit(Event(message="one"))
        await ctx.emit(Event(message="two"))
        await ctx.request_input("Well?")

    desk = await cut_off(Desk(beside_a_quick_one(logic, hooked)), 3)
    assert (await resume(desk)).status is PAUSED
    assert (await desk.provide()).status is PAUSED
    before = len(hooked)
    [question] = await desk.pending()
    assert (await desk.run(question.reply("fine"))).status is COMPLETED
    assert len(hooked) == before


async def test_a_timer_and_a_credential_wait_side_by_side() -> None:
    """Each goes on by its own: the time does not answer the question, nor the answer the time."""
    clock = Clock([1000.0])
    sessions = InMemorySessionService(env=clock)

    async def sleeper(ctx: InvocationContext) -> None:
        await ctx.sleep_until(2000.0)
        await ctx.emit(Event(message="woken"))

    agents = [Logic(name="sleeper", logic=sleeper), Logic(name="asker", logic=forecast)]
    desk = Desk(ParallelAgent(name="p", sub_agents=agents), sessions)
    await desk.run()
    clock.seconds[0] = 2000.0
    [went] = await desk.runner.resume_due()
    assert went.status is PAUSED
    [pending] = await desk.pending()
    assert pending.kind == "credential"
    assert (await desk.provide()).status is COMPLETED
    texts = [event.text for event in await desk.log() if event.text]
    assert texts == ["go", "woken", USED]


async def test_a_fork_and_a_copy_ask_too() -> None:
    """Each has its own answer; the credential belongs to the user, and is saved once."""
    desk = Desk(forecast)
    await desk.run()
    history = await desk.sessions.read_events(app_name="app", **PLACE)
    await desk.sessions.fork_session(app_name="app", **PLACE, new_session_id="fork")
    await desk.sessions.import_session(app_name="app", user_id="u", session_id="copy", events=history)
    pending = await desk.pending()
    assert [each.session_id for each in pending] == ["s", "fork", "copy"]
    await desk.save()
    for each in pending:
        async with desk.runner.run_async(user_id="u", session_id=each.session_id, new_message=each.reply(True)) as run:
            await run.wait()
        assert run.status is COMPLETED


async def test_an_undone_question_is_not_answered() -> None:
    """A rewind takes it back; an undone answer is awaited again."""
    desk = Desk(forecast)
    run = await desk.run()
    [pending] = await desk.pending()
    await desk.runner.rewind_async(**PLACE, rewind_before_invocation_id=run.invocation_id)
    assert await desk.pending() == []
    with pytest.raises(InvalidMessageError):
        await desk.run(await desk.runner.provide_credential(pending, CREDENTIAL))


async def test_users_do_not_get_each_others_credentials() -> None:
    """Neither what is kept, nor by answering for somebody else."""
    desk = Desk(forecast)
    await desk.save()
    async with desk.runner.run_async(user_id="other", session_id="s", new_message="go") as run:
        await run.wait()
    assert run.status is PAUSED
    with pytest.raises(InvalidMessageError, match="there is none"):
        async with desk.runner.run_async(user_id="other", session_id="s", new_message=run.pending[0].reply(True)):
            pass


@pytest.mark.parametrize("by", ["logic", "tool"])
async def test_a_service_that_fails_is_told_of(by: str) -> None:
    """To the logic as an error of its own, to the model as a failed call, without what the store has said."""

    class Failing(InMemoryCredentialService):
        async def _load(self, key: Any) -> AuthCredential | None:
            raise OSError(SECRET)

    desk = Desk(forecast if by == "logic" else reporter(), credentials=Failing())
    if by == "logic":
        with pytest.raises(CredentialServiceError, match="OSError"):
            await desk.run()
    else:
        await desk.run()
    assert SECRET not in str(await desk.log())
    assert "CredentialServiceError" in str(await desk.log())


async def test_what_is_no_config_is_refused() -> None:
    """A key alone says neither what it consists of nor what to ask."""

    async def logic(ctx: InvocationContext) -> None:
        await ctx.request_credential("weather")  # type: ignore[arg-type]  # refused

    with pytest.raises(InvalidValueError, match="expected an AuthConfig"):
        await Desk(logic).run()


async def test_nobody_is_asked_after_a_tool_was_called() -> None:
    """The call would be made again; what is there can be used."""

    async def after(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> Any:
        return {"key": len((await tool_context.request_credential(CONFIG)).reveal())}

    async def look() -> str:
        return "x"

    agent = LlmAgent(name="a", model=steps(call("look"), "done"), tools=[look], after_tool_callback=after)
    with pytest.raises(NotSupportedError, match="after a tool has been called"):
        await Desk(agent).run()
    desk = Desk(agent)
    await desk.save()
    assert (await desk.run()).status is COMPLETED


async def test_a_context_loads_and_saves() -> None:
    """Loading asks nobody and finds what works only; saving replaces, and checks what it is given."""
    found: list[Any] = []

    async def logic(ctx: InvocationContext) -> None:
        found.append(await ctx.load_credential(CONFIG))
        await ctx.save_credential(CONFIG, CREDENTIAL)
        found.append(await ctx.load_credential(CONFIG))
        found.append(await ctx.load_credential(AuthConfig("weather", "bearer")))
        for wrong in (AuthCredential("bearer", token="t"), AuthCredential("api_key", api_key="k", expires_at=1)):
            with pytest.raises(InvalidValueError, match="expected what 'weather' asks for"):
                await ctx.save_credential(CONFIG, wrong)
        with pytest.raises(InvalidValueError, match="expected an AuthCredential"):
            await ctx.save_credential(CONFIG, SECRET)  # type: ignore[arg-type]  # refused
        assert await ctx.request_credential(CONFIG) == CREDENTIAL

    desk = Desk(logic)
    assert (await desk.run()).status is COMPLETED
    assert found == [None, CREDENTIAL, None]
    assert [event.author for event in await desk.log()] == ["user"]


async def test_a_step_can_use_a_credential() -> None:
    """It is asked for inside of the step, which is taken once; as an argument it is refused."""
    times: list[int] = []

    async def logic(ctx: InvocationContext) -> None:
        async def fetch() -> int:
            credential = await ctx.request_credential(CONFIG)
            times.append(len(credential.reveal()))
            return len(times)

        await ctx.step("fetch", fetch)
        await ctx.request_input("Well?")
        await ctx.emit(Event(message="done"))

    desk = Desk(logic)
    await desk.run()
    await desk.provide()
    await desk.forget()
    [question] = await desk.pending()
    assert (await desk.run(question.reply(1))).status is COMPLETED
    assert times == [len(SECRET)]

    async def handed_on(ctx: InvocationContext) -> None:
        credential = await ctx.request_credential(CONFIG)
        await ctx.step("fetch", len, credential)

    desk = Desk(handed_on)
    await desk.save()
    with pytest.raises(InvalidValueError, match="ask with `ctx"):
        await desk.run()


async def test_a_runner_wants_a_service_of_its_env() -> None:
    """As of its other services; the runner in memory has one."""
    with pytest.raises(ConfigurationError, match="same env"):
        Desk(forecast, credentials=InMemoryCredentialService(env=Env()))
    runner = InMemoryRunner(last())
    assert runner.credential_service is not None
    assert runner.credential_service.env is runner.session_service.env
