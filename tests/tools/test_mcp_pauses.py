"""
A server that asks on the way pauses the invocation, for as long as a person needs and whatever process goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server import Server as LowLevelServer
from mcp.server.request_state import RequestStateSecurity

from minirun import InMemorySessionService, LlmAgent, Runner, SqliteSessionService
from minirun.errors import InvalidMessageError
from minirun.testing import ScriptedLlm, call
from minirun.tools.mcp import McpToolset, _conversation

from ..helpers import PLACE
from ..mcp_servers import desk
from .test_mcp import stdio

ROOT = Path(__file__).parents[2]
KEY = b"k" * 32


def agent(tools: McpToolset, made: Any) -> LlmAgent:
    def answer(request: Any) -> Any:
        last = request.contents[-1].parts[-1].function_response
        return made if last is None else json.dumps(dict(last.response))

    return LlmAgent(name="clerk", model=ScriptedLlm(answer), tools=[tools])


class Life:
    """A conversation whose every part runs with a server of its own, as after a restart."""

    def __init__(self, made: Any, server: Any, **options: Any) -> None:
        self.made, self.server, self.options = made, server, options
        self.service: Any = InMemorySessionService()

    async def say(self, message: Any) -> Any:
        """Say it in the session, and return the run, at its end."""
        async with McpToolset(self.server(), **self.options) as tools:
            runner = Runner(
                agent=agent(tools, self.made), app_name="app", session_service=self.service, auto_create_session=True
            )
            async with runner.run_async(**PLACE, new_message=message) as run:
                await run.wait()
        return run

    async def questions(self) -> list[str]:
        """What people were asked, in all."""
        events = await self.service.read_events(app_name="app", **PLACE, after_seq=0)
        calls = [made for event in events for made in event.get_function_calls() if made.name == "adk_request_input"]
        return [made.args["message"] for made in calls]


async def test_a_server_that_was_restarted_asks_only_what_is_new() -> None:
    """
    Each answer comes to a server that has forgotten the call: it gets the stored answers, nobody is asked twice.
    """
    notes: list[str] = []
    life = Life(call("book", city="Rome"), lambda: desk.made(notes.append))
    run = await life.say("go")
    assert "How many nights in Rome?" in run.pending[0].hint
    assert "MCP server 'desk' asks, for its tool 'book'" in run.pending[0].hint
    run = await life.say(run.pending[0].reply({"nights": 3}))
    assert "Which room for 3 nights?" in run.pending[0].hint
    run = await life.say(run.pending[0].reply({"kind": "double"}))
    assert run.answer.text == '{"result": "double room in Rome for 3 nights"}'
    assert notes == ["booked Rome 3 double"]
    assert len(await life.questions()) == 2


async def test_a_server_that_remembers_goes_on_from_its_state() -> None:
    """
    One with a lasting key is called with the state of the last question, and asks nothing again.
    """
    notes: list[str] = []
    security = RequestStateSecurity(keys=[KEY])
    life = Life(call("book", city="Rome"), lambda: desk.made(notes.append, request_state_security=security))
    run = await life.say("go")
    run = await life.say(run.pending[0].reply({"nights": 3}))
    run = await life.say(run.pending[0].reply({"kind": "single"}))
    assert run.answer.text == '{"result": "single room in Rome for 3 nights"}'
    assert len(await life.questions()) == 2


async def test_two_questions_of_one_round_are_asked_one_after_the_other() -> None:
    """
    Of several questions each is a question of its own, and the server hears the answers together.
    """
    life = Life(call("both", city="Rome"), lambda: desk.made(lambda line: None))
    run = await life.say("go")
    answers: dict[str, Any] = {"Which room?": {"kind": "single"}, "How many nights": {"nights": 2}}
    for _ in range(2):
        (question,) = run.pending
        run = await life.say(question.reply(next(answers[each] for each in answers if each in question.hint)))
    assert run.answer.text == '{"result": "2 single"}'


async def test_an_answer_has_to_fit_the_form() -> None:
    """
    What does not fit what the server wants is refused before it is stored.
    """
    life = Life(call("book", city="Rome"), lambda: desk.made(lambda line: None))
    run = await life.say("go")
    with pytest.raises(InvalidMessageError, match="nights"):
        run.pending[0].reply({"nights": "three"})


async def test_null_declines() -> None:
    """
    A person may say no: the server hears that, and what it makes of it is told to the model.
    """
    life = Life(call("book", city="Rome"), lambda: desk.made(lambda line: None))
    run = await life.say("go")
    run = await life.say(run.pending[0].reply(None))
    assert run.status.value == "completed"
    assert "McpToolError" in run.answer.text


class Asker(LowLevelServer[Any]):
    """A server that asks what it is told to ask, and notes what it was answered."""

    def __init__(self, *rounds: Any, refuse_states: bool = False) -> None:
        self.rounds, self.calls = rounds, []  # type: ignore[var-annotated]
        self.refuse_states = refuse_states
        super().__init__("asker", on_list_tools=self._list, on_call_tool=self._call)

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="ask", input_schema={"type": "object"})])

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        answers = params.input_responses or {}
        told = {key: each for key, each in answers.items() if isinstance(each, types.ElicitResult)}
        self.calls.append({key: (each.action, each.content) for key, each in told.items()})
        number = int(params.request_state or 0)
        if number < len(self.rounds):
            return types.InputRequiredResult(input_requests=self.rounds[number], request_state=str(number + 1))
        return types.CallToolResult(content=[types.TextContent(text="thank you")])


def form(message: str, **fields: Any) -> types.ElicitRequest:
    schema = {"type": "object", "properties": fields or {"word": {"type": "string"}}}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


async def test_the_same_question_in_a_later_round_is_asked_again() -> None:
    """
    A server that remembers, and asks the same once more, wants another answer.
    """
    asker = Asker({"a": form("The word?")}, {"a": form("The word?")})
    life = Life(call("ask"), lambda: asker)
    run = await life.say("go")
    run = await life.say(run.pending[0].reply({"word": "one"}))
    assert len(run.pending) == 1
    run = await life.say(run.pending[0].reply({"word": "two"}))
    assert run.answer.text == '{"result": "thank you"}'
    assert asker.calls == [{}, {"a": ("accept", {"word": "one"})}, {"a": ("accept", {"word": "two"})}]


async def test_a_page_to_visit_is_a_question_with_the_url() -> None:
    """
    A server may want a person to visit a page: the URL is shown, and true or false is the answer.
    """
    params = types.ElicitRequestURLParams(message="Sign in", url="https://host/login", elicitation_id="1")
    asker = Asker({"a": types.ElicitRequest(params=params)})
    life = Life(call("ask"), lambda: asker)
    run = await life.say("go")
    assert "https://host/login" in run.pending[0].hint
    assert run.pending[0].payload["url"] == "https://host/login"
    await life.say(run.pending[0].reply(True))
    assert asker.calls[-1] == {"a": ("accept", None)}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"a": types.ElicitRequest(params=types.ElicitRequestURLParams(message="x", url="javascript:x"))}, "web page"),
        ({str(number): form(f"{number}?") for number in range(21)}, "up to 20 questions"),
        ({"a": form("x", **{"a\x1b": {"type": "string"}})}, "named fields"),
        ({"a": form("x" * 64_000)}, "questions of a round of the MCP server"),
        ({str(number): form("x" * 4_000) for number in range(20)}, "to have up to 64000 characters"),
        ({"a": form("x", word={"type": "string", "enum": ["x" * 64_000]})}, "to have up to 64000 characters"),
    ],
)
async def test_what_no_person_can_be_asked_is_an_error(asked: Any, message: str) -> None:
    """
    A page that is none, too many or too long questions and a form that cannot be shown are told to the model, and pause
    nothing.
    """
    run = await Life(call("ask"), lambda: Asker(asked)).say("go")
    assert message in run.answer.text
    assert run.status.value == "completed"


async def test_what_a_server_asks_is_shown_without_escape_sequences() -> None:
    """
    The message of a server is cleaned and cut, and says which server asks; a pattern of it is never run here.
    """
    evil = form("\x1b[2J" + "x" * 50_000, word={"type": "string", "pattern": "(a+)+$", "format": "email"})
    life = Life(call("ask"), lambda: Asker({"a": evil}))
    run = await life.say("go")
    assert "\x1b" not in run.pending[0].hint
    assert len(run.pending[0].hint) < 5_000
    assert "pattern" not in str(run.pending[0].schema)


async def test_what_a_call_asks_in_all_its_rounds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each question is stored with all that its round asks; the sum has a limit, which holds over all pauses of the call.
    """
    monkeypatch.setattr(_conversation, "LOGGED_CHARS_MAX", 6_000)
    asker = Asker(*[{"a": form("x" * 900), "b": form("x" * 100)}] * 3)  # a round is stored twice
    life = Life(call("ask"), lambda: asker)
    run = await life.say("go")
    for _ in range(3):
        run = await life.say(run.pending[0].reply({"word": "one"}))
    assert run.pending
    run = await life.say(run.pending[0].reply({"word": "one"}))
    assert "all the questions of a call" in run.answer.text


async def test_a_server_that_asks_for_ever_is_stopped(autojump_clock: trio.testing.MockClock) -> None:
    """
    A server that answers each call with another round, which asks nothing, ends with an error.
    """
    run = await Life(call("ask"), lambda: Asker(*[{}] * 1_000)).say("go")
    assert "50 times" in run.answer.text


async def test_a_question_is_answered_in_another_process(tmp_path: Path) -> None:
    """
    Over stdio and SQLite, with nothing left in memory: each answer starts the server's process anew.
    """
    notes, path = tmp_path / "notes", tmp_path / "log.db"
    server = stdio("desk", notes)
    life = Life(call("book", city="Rome"), lambda: server, tool_name_prefix=None)
    message: Any = "go"
    for answer in ({"nights": 3}, {"kind": "double"}, None):
        async with SqliteSessionService(path) as life.service:
            run = await life.say(message)
            if answer is not None:
                message = run.pending[0].reply(answer)
            asked = await life.questions()
    assert run.answer.text == '{"result": "double room in Rome for 3 nights"}'
    assert notes.read_text() == "booked Rome 3 double\n"
    assert len(asked) == 2
