"""What somebody has allowed for later calls, too: it is state, holds for what was shown, and can be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import attrs
import pytest

from minirun import App, Event, FunctionTool, InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.errors import InvalidMessageError, InvalidValueError
from minirun.events import EventActions
from minirun.runners._remembered import remembering
from minirun.runtime import Run
from minirun.sessions import BaseSessionService
from minirun.sessions._recovery import INTERRUPTED_MESSAGE
from minirun.testing import ScriptedLlm, call
from minirun.tools import LongRunningFunctionTool, ToolContext
from minirun.types import Content, FunctionResponse, Part

from ..money import ASKING, SENT, nothing_sent

__all__ = ["nothing_sent"]  # a fixture


class Cart(TypedDict, total=False):
    """All that sessions hold."""

    cart: str


def said(args: Mapping[str, Any]) -> list[Any]:
    """A turn of the model: one call, and what it says then."""
    return [call("send", **args), "done"]


def runner_over(service: BaseSessionService, script: list[Any], tool: Any = ASKING["required"], **of: Any) -> Runner:
    """A runner as another process would make it."""
    agent = LlmAgent(name=of.pop("name", "bank"), model=ScriptedLlm(script), tools=[tool])
    return Runner(app=App("app", agent, **of), session_service=service, auto_create_session=True)


async def run(runner: Runner, message: str | Content, session_id: str = "s", **given: Any) -> Run:
    """Run it to its end."""
    async with runner.run_async(user_id="u", session_id=session_id, new_message=message, **given) as running:
        await running.wait()
    return running


async def allowed(
    service: BaseSessionService, remember: Any, tool: Any = ASKING["required"], **answer: Any
) -> Run:
    """A run in which eve gets 5, allowed for later, too."""
    waits = await run(runner_over(service, said({"to": "eve", "amount": 5}), tool), "go")
    return await run(runner_over(service, ["done"], tool), waits.pending[0].reply(True, remember=remember, **answer))


@pytest.mark.parametrize("tool", ASKING.values(), ids=ASKING)
async def test_the_same_call_is_made_without_asking(tool: FunctionTool, tmp_path: Path) -> None:
    """Later, in another process; with other arguments somebody is asked again."""
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await allowed(service, "session", tool)
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        again = await run(runner_over(service, said({"amount": 5, "to": "eve"}), tool), "again")
        assert (again.status, SENT) == ("completed", [("eve", 5), ("eve", 5)])
        other = await run(runner_over(service, said({"to": "eve", "amount": 6}), tool), "more")
        assert (other.status, len(SENT)) == ("paused", 2)


async def test_any_arguments_may_be_allowed() -> None:
    """Then the tool of this agent is not asked about any more; a tool of that name of another agent is."""
    service = InMemorySessionService()
    await allowed(service, "session", any_args=True)
    more = await run(runner_over(service, said({"to": "bob"})), "more")
    assert (more.status, SENT[-1]) == ("completed", ("bob", 1))
    other = await run(runner_over(service, said({"to": "bob"}), name="other"), "more")
    assert other.status == "paused"


@pytest.mark.parametrize(("remember", "status"), [("session", "paused"), ("user", "completed")])
async def test_it_holds_in_the_session_or_for_the_user(remember: str, status: str) -> None:
    """Another session of the same user asks again, unless it is remembered for the user."""
    service = InMemorySessionService()
    await allowed(service, remember)
    other = await run(runner_over(service, said({"to": "eve", "amount": 5})), "go", "other")
    assert other.status == status


async def test_edited_arguments_are_what_is_remembered() -> None:
    """Who allows something else than was asked has allowed that."""
    service = InMemorySessionService()
    await allowed(service, "session", args={"to": "bob", "amount": 2})
    assert (await run(runner_over(service, said({"to": "bob", "amount": 2})), "go")).status == "completed"
    assert (await run(runner_over(service, said({"to": "eve", "amount": 5})), "go")).status == "paused"


async def test_what_is_remembered_is_listed_and_taken_back() -> None:
    """A list says what counts in a session; what was taken back is asked about again."""
    service = InMemorySessionService()
    await allowed(service, "user", any_args=True)
    runner = runner_over(service, said({"to": "eve", "amount": 5}))
    found = await runner.remembered.list(user_id="u", session_id="s")
    assert [(each.scope, each.agent, each.tool, each.args) for each in found] == [("user", "bank", "send", None)]
    await runner.remembered.forget(found[0], user_id="u", session_id="s")
    await runner.remembered.forget(found[0], user_id="u", session_id="s")
    assert await runner.remembered.list(user_id="u", session_id="s") == []
    assert (await run(runner, "again")).status == "paused"


async def test_a_rewind_takes_it_back_and_a_fork_has_it() -> None:
    """It is state of the session: that of before is there again."""
    service = InMemorySessionService()
    ended = await allowed(service, "session")
    await service.fork_session(app_name="app", user_id="u", session_id="s", new_session_id="fork")
    runner = runner_over(service, said({"to": "eve", "amount": 5}))
    await runner.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id=ended.invocation_id)
    assert await runner.remembered.list(user_id="u", session_id="s") == []
    assert len(await runner.remembered.list(user_id="u", session_id="fork")) == 1


async def test_a_call_that_waits_is_not_made_by_what_is_remembered_later() -> None:
    """Each question that is open is answered by somebody."""
    service = InMemorySessionService()
    first = await run(runner_over(service, said({"to": "eve", "amount": 5})), "go")
    second = await run(runner_over(service, said({"to": "eve", "amount": 5})), "go")
    await run(runner_over(service, ["done"]), second.pending[-1].reply(True, remember="session"))
    waits = await service.list_pending(app_name="app", user_id="u", session_id="s")
    assert [each.invocation_id for each in waits] == [first.invocation_id]
    assert len(SENT) == 1


async def test_a_state_schema_does_not_know_of_it() -> None:
    """An app whose sessions hold only what it has declared remembers, too."""
    service = InMemorySessionService()
    waits = await run(runner_over(service, said({"to": "eve"}), state_schema=Cart), "go")
    ends = await run(
        runner_over(service, ["done"], state_schema=Cart), waits.pending[0].reply(True, remember="session")
    )
    assert ends.status == "completed"


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (False, {"remember": "session"}),
        (True, {"remember": "always"}),
        (True, {"any_args": True}),
        (True, {"remember": True}),
    ],
)
async def test_what_would_have_no_effect_is_refused(value: bool, given: dict[str, Any]) -> None:
    """A refusal is not remembered, nor anything for longer than a user lives."""
    service = InMemorySessionService()
    waits = await run(runner_over(service, said({"to": "eve"})), "go")
    with pytest.raises(InvalidMessageError):
        waits.pending[0].reply(value, **given)
    response = {"confirmed": value, **given}
    made = FunctionResponse(id=waits.pending[0].call_id, name=waits.pending[0].name, response=response)
    if "remember" in given:
        with pytest.raises(InvalidMessageError):
            await run(runner_over(service, []), Content(role="user", parts=[Part(function_response=made)]))


async def test_only_confirmations_are_remembered() -> None:
    """The result of a long-running tool is the result of that call."""

    async def order() -> None:
        """Order."""

    service = InMemorySessionService()
    waits = await run(runner_over(service, [call("order")], LongRunningFunctionTool(order)), "go")
    with pytest.raises(InvalidMessageError, match="remember with the answer to a confirmation only"):
        waits.pending[0].reply("here", remember="session")


@pytest.mark.parametrize("prefix", ["", "user:"])
async def test_nobody_else_writes_what_is_remembered(prefix: str) -> None:
    """A tool, a state_delta, an event from outside and a new session that would allow calls are refused by name."""
    service, key = InMemorySessionService(), f"{prefix}minirun:remembered:x"

    def allow(tool_context: ToolContext) -> str:
        """Allow."""
        tool_context.state[key] = {"agent": "bank", "tool": "send", "args": None}
        return "allowed"

    await run(runner_over(service, [call("allow"), "done"], FunctionTool(allow)), "go")
    session = await service.get_session(app_name="app", user_id="u", session_id="s")
    assert session is not None
    assert key not in session.state
    with pytest.raises(InvalidValueError, match="the framework writes it"):
        await service.append_event(session, Event(author="x", actions=EventActions(state_delta={key: 1})))
    with pytest.raises(InvalidValueError, match="the framework writes it"):
        await run(runner_over(service, ["x"]), "go", state_delta={key: 1})
    with pytest.raises(InvalidValueError, match="the framework writes it"):
        await service.create_session(app_name="app", user_id="u", state={key: 1})


async def test_whether_a_call_that_was_cut_off_is_made_again_is_not_remembered() -> None:
    """That question is about one call; an answer that would allow all others is refused."""
    service = InMemorySessionService()
    waits = await run(runner_over(service, said({"to": "eve"})), "go")
    question = attrs.evolve(waits.pending[0], hint=INTERRUPTED_MESSAGE)
    answer = question.reply(True, remember="session").parts[0].function_response
    assert answer is not None
    with pytest.raises(InvalidMessageError, match="cut off"):
        remembering(Event(author="user"), [question], [answer])
