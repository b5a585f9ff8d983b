"""
Servers of the protocol before 2026-07-28, which ask in the middle of a call: the call ends, the question stays, and
the call is made anew with what was answered.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minirun import InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset

from ..helpers import PLACE
from ..mcp_servers import desk, older
from ..notes import Notes
from .test_mcp import WAYS, responses, served, stdio
from .test_mcp_pauses import Life

# The official package leaves the stream of a response as it has its answer; the garbage collector closes it.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@asynccontextmanager
async def reached(way: str, notes: Notes) -> AsyncGenerator[Any, None]:
    """What a toolset takes as the server."""
    if way == "stdio":
        yield stdio("older", notes.path)
        return
    server = older.made(desk.note_in(notes.path))
    if way == "in process":
        yield partial(older.transport, server)
        return
    async with served(server) as url:  # type: ignore[arg-type]  # it has what is asked of it
        yield url


@WAYS
async def test_a_question_in_the_middle_of_a_call_pauses_the_invocation(way: str, tmp_path: Path) -> None:
    """
    The server hears that its call is cancelled; the answer comes to a new call, and only what is new is asked.
    """
    notes = Notes(tmp_path / "notes")
    async with reached(way, notes) as server:
        life = Life(call("book", city="Rome"), lambda: server)
        run = await life.say("go")
        assert "How many nights in Rome?" in run.pending[0].hint
        await notes.has("cancelled book")
        run = await life.say(run.pending[0].reply({"nights": 3}))
        assert "Which room for 3 nights?" in run.pending[0].hint
        run = await life.say(run.pending[0].reply({"kind": "double"}))
    assert run.answer.text == '{"result": "double room in Rome for 3 nights"}'
    assert [line for line in notes.lines() if line != "cancelled book"] == [
        *["called book"] * 3,
        "booked Rome 3 double",
    ]
    assert len(await life.questions()) == 2


async def test_null_declines_a_question_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """
    The server that asks again is told that the person has declined.
    """
    async with reached("in process", Notes(tmp_path / "notes")) as server:
        life = Life(call("book", city="Rome"), lambda: server)
        run = await life.say("go")
        run = await life.say(run.pending[0].reply(None))
    assert run.answer.text == '{"result": "declined"}'


async def test_the_same_question_twice_in_a_call_is_two_questions(tmp_path: Path) -> None:
    """
    Each answer is given once, in the order in which they came.
    """
    async with reached("in process", Notes(tmp_path / "notes")) as server:
        life = Life(call("twice"), lambda: server)
        run = await life.say("go")
        run = await life.say(run.pending[0].reply({"kind": "one"}))
        run = await life.say(run.pending[0].reply({"kind": "two"}))
    assert run.answer.text == '{"result": "one two"}'
    assert len(await life.questions()) == 2


async def test_a_page_to_visit_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """
    The URL is a question as well.
    """
    async with reached("in process", Notes(tmp_path / "notes")) as server:
        life = Life(call("visit"), lambda: server)
        run = await life.say("go")
        assert run.pending[0].payload["url"] == "https://host/login"
        run = await life.say(run.pending[0].reply(True))
    assert run.answer.text == '{"result": "accept"}'


async def together(server: Any, *asks: bool) -> tuple[list[str], list[Any]]:
    """What is asked by calls that go on at once, and what those are answered that end."""
    calls = [call("together", of=len(asks), asks=each) for each in asks]
    async with McpToolset(server) as tools:
        agent = LlmAgent(name="clerk", model=ScriptedLlm([calls, "Done."]), tools=[tools])
        runner = InMemoryRunner(agent=agent, auto_create_session=True)
        async with runner.run_async(**PLACE, new_message="go") as run:
            events = [event async for event in run]
    answers = [each.response for event in events for each in event.get_function_responses()]
    return [each.hint for each in run.pending], answers


@pytest.mark.parametrize("way", ["in process", "http"])
async def test_one_of_two_calls_at_once_asks(way: str, tmp_path: Path) -> None:
    """
    The question is that of the call which the server has not answered; the other one has its result.
    """
    async with reached(way, Notes(tmp_path / "notes")) as server:
        hints, _ = await together(server, False, True)
    assert len(hints) == 1
    assert "for its tool 'together': The kind?" in hints[0]


@pytest.mark.parametrize("way", ["in process", "http"])
async def test_two_calls_at_once_that_ask(way: str, tmp_path: Path) -> None:
    """
    Over HTTP each question belongs to its call; else nobody can tell, and the model is told what would help.
    """
    async with reached(way, Notes(tmp_path / "notes")) as server:
        hints, answers = await together(server, True, True)
    if way == "http":
        assert len(hints) == 2
    else:
        assert hints == []
        assert [each["error"]["type"] for each in answers] == ["McpError"] * 2
        assert "sequential=True" in answers[0]["error"]["message"]


async def test_an_older_server_serves_others_after_it_has_asked(tmp_path: Path) -> None:
    """
    The connection outlives a call that was cancelled because its server has asked.
    """
    async with reached("stdio", Notes(tmp_path / "notes")) as server, McpToolset(server) as tools:
        assert await responses(tools, call("book", city="Rome")) == []
        assert await responses(tools, call("add", a=1, b=2)) == [{"result": "3"}]
