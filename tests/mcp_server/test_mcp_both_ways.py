"""
minirun on both sides: a served agent is a tool of another one, and what the one asks is a question of the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from minirun import Event, InMemorySessionService, LlmAgent, Runner
from minirun.agents import BaseAgent
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.mcp_server import McpAgentServer
from minirun.runtime import InvocationContext
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, get_user_choice
from minirun.tools.mcp import StdioServer
from minirun.workflow import START, Workflow

from ..cli.test_cli_mcp import folder, worker
from ..fork_server import program, relay
from ..helpers import PLACE
from ..notes import Notes
from ..tools.test_mcp_pauses import Life
from .test_mcp_server import ADA, KEY

__all__ = ["folder"]  # a fixture

# The official package leaves the stream of a response as it has its answer; the garbage collector closes it.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

BOOK = call("desk", message="book Rome")


# --- processes --------------------------------------------------------------------------------------------------------


async def book(life: Life, *servers: Any) -> str:
    """Book a room by a served agent, with a toolset of its own for the question and for the answer."""
    life.server = lambda: servers[0]
    run = await life.say("go")
    assert "How many nights in Rome?" in run.pending[0].hint
    life.server = lambda: servers[-1]
    run = await life.say(run.pending[0].reply({"answer": 3}))
    assert len(await life.questions()) == 1
    text: str = run.answer.text
    return text


async def test_a_toolset_starts_the_command_and_is_asked(folder: Path) -> None:
    """
    `minirun mcp serve` over stdio: the question comes from one process of it, and the answer goes to another.
    """
    arguments = ("mcp", "serve", "desk.py:app", "--db", "s.db", "--key-file", "key")
    command, *rest = relay(program("minirun", *arguments))
    server = StdioServer(command, rest, cwd=folder)
    assert '"3 nights in Rome"' in await book(Life(BOOK, None), server)
    assert Notes(folder / "world.log").lines() == ["asked Rome", "booked Rome for 3"]


async def test_a_toolset_asks_one_worker_and_answers_another(folder: Path) -> None:
    """
    `minirun mcp serve --http`: two workers share the key and the store, and the state of the one opens at the other.
    """
    tokens = ("--token-file", "tokens")
    async with worker(folder, *tokens) as (_, one), worker(folder, *tokens) as (_, two):
        life = Life(BOOK, None, headers={"authorization": f"Bearer {ADA}"})
        assert '"3 nights in Rome"' in await book(life, one, two)
    assert Notes(folder / "world.log").lines() == ["asked Rome", "booked Rome for 3"]


# --- every kind of question -------------------------------------------------------------------------------------------

BANK = AuthConfig("bank", "bearer")
WHERE = {"app_name": "asker", "user_id": "local", "credential_key": "bank"}
SECRET = "a-secret-token"
CREDENTIAL = AuthCredential("bearer", token=SECRET)


async def pay(name: str) -> str:
    """Pay somebody."""
    return f"paid {name}"


class Banker(BaseAgent):
    """Needs a credential."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        found = await ctx.request_credential(BANK)
        assert found.reveal("token") == SECRET
        await ctx.emit(Event(message="I am let in."))


def spoken(*script: Any) -> ScriptedLlm:
    """A model that answers by how often it has spoken, so that it serves after a resume, too."""
    return ScriptedLlm(lambda request: script[sum(content.role == "model" for content in request.contents)])


def asker(kind: str) -> Any:
    """An agent that asks this, and ends with what it was told."""
    if kind == "credential":
        return Banker(name="asker")
    if kind == "message":
        task = LlmAgent(name="task", mode="task", model=spoken("Which tea?", call("finish_task", result="green")))
        return Workflow(name="asker", edges=[(START, task)])
    if kind == "choice":
        model = spoken(call("get_user_choice", options=["tea", "milk"]), "Milk.")
        return LlmAgent(name="asker", model=model, tools=[get_user_choice])
    tool = FunctionTool(pay, require_confirmation=True)
    return LlmAgent(name="asker", model=spoken(call("pay", name="eve"), "It is done."), tools=[tool])


# By kinds: what the person is asked, what is answered, and what the served agent says at its end.
KINDS: dict[str, tuple[str, Any, str]] = {
    "confirmation": ("May asker call the tool pay", {"confirmed": True}, "It is done."),
    "credential": ("needs a credential (bank)", {"saved": True}, "I am let in."),
    "message": ("Which tea?", {"answer": "green"}, "green"),
    "choice": ("asks for a choice", {"answer": "milk"}, "Milk."),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("client", ["official", "toolset"])
async def test_every_kind_of_question_goes_through(client: str, kind: str) -> None:
    """
    What a served agent asks is asked by the official client and by a toolset, and the answer comes to the agent; the
    secret of a credential is saved where the agent runs, and no part of the conversation.
    """
    hint, answer, end = KINDS[kind]
    keeper = InMemoryCredentialService()
    runner = Runner(
        agent=asker(kind),
        app_name="asker",
        session_service=InMemorySessionService(env=keeper.env),
        credential_service=keeper,
        auto_create_session=True,
    )
    server = McpAgentServer([runner], keys=[KEY]).protocol_server

    async def save() -> None:
        if kind == "credential":
            await keeper.save_credential(**WHERE, credential=CREDENTIAL)

    if client == "official":
        asked: list[str] = []

        async def person(context: Any, params: Any) -> types.ElicitResult:
            asked.append(params.message)
            await save()
            return types.ElicitResult(action="accept", content=answer)

        async with Client(server, elicitation_callback=person) as official:
            result = await official.call_tool("asker", {"message": "go"})
        assert end in str(result.structured_content)
        assert [hint in each for each in asked] == [True]
        return
    life = Life(call("asker", message="go"), lambda: server)
    run = await life.say("go")
    assert hint in run.pending[0].hint
    await save()
    run = await life.say(run.pending[0].reply(answer))
    assert end in run.answer.text
    events = await life.service.read_events(app_name="app", **PLACE, after_seq=0)
    assert SECRET not in str([event.to_json() for event in events])
