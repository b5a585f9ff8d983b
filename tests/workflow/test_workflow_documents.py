"""Programs of documents run as they are written: only the imports and names that they leave out stand before them."""

from __future__ import annotations

import textwrap
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

import attrs
import pytest
import trio

from minirun import Content, InMemoryRunner
from minirun.env import Env
from minirun.errors import StateSchemaError
from minirun.testing import ScriptedLlm
from minirun.workflow import START, Workflow

# What the issue that asked for workflows wants to run.
ORDER_DESK = '''
from minirun import Event, InMemoryRunner, LlmAgent
from minirun.tools import RetryConfig
from minirun.workflow import DEFAULT_ROUTE, START, JoinNode, Workflow, node

def triage(node_input: str) -> Event:
    urgent = "now" in node_input
    return Event(output={"text": node_input}, route="urgent" if urgent else "calm")

@node(retry=RetryConfig(max_attempts=3), timeout_s=5)
async def lookup(node_input: Ticket, city: str) -> list[str]:      # `city` comes from the state
    return await search(node_input.text, city)

@node
async def approve(node_input: str, ctx) -> Event:
    ok = await ctx.request_input(f"Send this? {node_input}", response_schema=bool)
    return Event(output=node_input, route="send" if ok else "redo")

writer = LlmAgent(name="writer", model=model, instruction="Answer from what was found.")
desk = Workflow(
    name="desk", state_schema=Desk, max_concurrency=4,
    edges=[
        (START, triage, {"urgent": (page, lookup), DEFAULT_ROUTE: lookup}),
        ((page, lookup), JoinNode(name="found"), writer, approve),      # found: {"page": …, "lookup": […]}
        (approve, {"send": mail, "redo": writer}),
    ],
)
'''

# The example of ADK's documents, with their line breaks.
CLASSIFY = '''
from minirun.events.event import Event
from minirun.workflow import node

@node(rerun_on_resume=True)
async def classify_and_route(user_msg: str, ctx):
    intent = "billing" if "invoice" in user_msg.lower() else "support"
    # Emit a state update alongside the routing decision
    yield Event(
        state={"last_intent": intent},
        route=intent,
    )
'''


@attrs.frozen
class Ticket:
    """What `triage` gives."""

    text: str


class Desk(TypedDict):
    """What the state of the desk has."""

    city: str


def executed(program: str, **names: Any) -> dict[str, Any]:
    """What a program defines, which is given these names."""
    found = dict(names)
    exec(compile(textwrap.dedent(program), "document", "exec", dont_inherit=True), found)
    return found


def desk(search: Callable[[str, str], Awaitable[list[str]]], asked: list[str], sent: list[str]) -> Workflow:
    """The desk of the document, with a model that notes what it is asked."""

    def page(node_input: Ticket) -> str:
        return f"paged about {node_input.text}"

    def mail(node_input: str) -> str:
        sent.append(node_input)
        return f"sent: {node_input}"

    def answer(request: Any) -> str:
        [content] = request.contents
        asked.append(content.text)
        return f"letter {len(asked)}"

    names = {"Ticket": Ticket, "Desk": Desk, "search": search, "page": page, "mail": mail}
    workflow = executed(ORDER_DESK, model=ScriptedLlm(answer), **names)["desk"]
    assert isinstance(workflow, Workflow)
    return workflow


class Hurried(Env):
    """Waits for nothing: threads go on in real time, so no clock that jumps could be used."""

    async def sleep(self, seconds: float) -> None:
        await trio.lowlevel.checkpoint()


async def session_of(runner: InMemoryRunner, **state: Any) -> None:
    """A session with this state."""
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s", state=state)


@pytest.mark.parametrize(
    ("message", "prompt"),
    [
        ("help now", '{"page":"paged about help now","lookup":["help now in Bonn"]}'),
        ("help", '{"lookup":["help in Bonn"]}'),
    ],
)
async def test_the_order_desk_runs_as_it_is_written(message: str, prompt: str) -> None:
    """A search that fails twice is tried three times; a letter that is sent back is written again; then it is sent."""
    searches: list[str] = []
    asked: list[str] = []
    sent: list[str] = []

    async def search(text: str, city: str) -> list[str]:
        searches.append(text)
        if len(searches) < 3:
            raise ConnectionError
        return [f"{text} in {city}"]

    runner = InMemoryRunner(desk(search, asked, sent), app_name="app", env=Hurried())
    await session_of(runner, city="Bonn")
    said: str | Content = message
    hints = []
    for answer in (False, True, None):
        async with runner.run_async(user_id="u", session_id="s", new_message=said) as run:
            last = await run.wait()
        if answer is not None:
            [question] = run.pending
            hints.append(question.hint)
            said = question.reply(answer)
    assert hints == ["Send this? letter 1", "Send this? letter 2"]
    assert last is not None
    assert (run.status, last.output, sent) == ("completed", "sent: letter 2", ["letter 2"])
    assert (searches, asked) == ([message] * 3, [prompt, "letter 1"])


async def test_the_order_desk_keeps_to_its_schema() -> None:
    """A state that the schema does not know is refused before anything is stored."""

    async def search(text: str, city: str) -> list[str]:
        raise AssertionError

    runner = InMemoryRunner(desk(search, [], []), app_name="app")
    await session_of(runner, city=5)
    with pytest.raises(StateSchemaError, match="city"):
        async with runner.run_async(user_id="u", session_id="s", new_message="help") as run:
            await run.wait()


@pytest.mark.parametrize(("message", "intent"), [("My Invoice", "billing"), ("help", "support")])
async def test_the_node_of_the_documents_runs_as_it_is_written(message: str, intent: str) -> None:
    """W46: its parameter is the message, and its route and state are stored with its end; the successor is given it."""

    def billing(node_input: str) -> str:
        return f"billing: {node_input}"

    def support(node_input: str) -> str:
        return f"support: {node_input}"

    classify = executed(CLASSIFY)["classify_and_route"]
    workflow = Workflow(name="my_wf", edges=[(START, classify, {"billing": billing, "support": support})])
    runner = InMemoryRunner(workflow, app_name="app")
    await session_of(runner, user_msg_of_before="x")
    async with runner.run_async(user_id="u", session_id="s", new_message=message) as run:
        events = [event async for event in run]
    assert [(event.node_info.path, event.node_info.name, event.node_info.run_id) for event in events] == [
        ("my_wf@1/classify_and_route@1", "classify_and_route", "1"),
        (f"my_wf@1/{intent}@1", intent, "1"),
    ]
    assert (events[0].actions.route, events[0].actions.state_delta) == (intent, {"last_intent": intent})
    assert run.answer is not None
    assert run.answer.output == f"{intent}: {message}"


def test_what_the_documents_import_is_there() -> None:
    """The names are found at the paths of ADK, with the name of the package replaced."""
    found = executed("from minirun.events.request_input import RequestInput\nfrom minirun.workflow import RetryConfig")
    assert {"RequestInput", "RetryConfig"} <= found.keys()
