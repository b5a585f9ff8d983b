"""
A desk that answers letters: it sorts them, looks in two places at once, drafts, and asks a person before it sends.

    python examples/order_desk.py            sorts, looks, drafts, asks; the process ends
    python examples/order_desk.py no         the answer: another draft is written, and somebody is asked again
    python examples/order_desk.py yes        the letter is sent

The job is a graph, and where it stands is in desk.db. The second process looks nothing up: what was found is in the
log, and only the nodes behind the answer are run.
"""

from __future__ import annotations

import sys
from typing import TypedDict

import attrs
import trio

from minirun import Content, Event, InvocationContext, LlmAgent, Runner, SqliteSessionService
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm
from minirun.workflow import DEFAULT_ROUTE, START, JoinNode, RetryConfig, Workflow, node


@attrs.frozen
class Letter:
    """What a node gives to the next."""

    text: str


class Desk(TypedDict):
    """What may be written to the state."""

    city: str


def triage(text: str) -> Event:
    """Is it urgent?"""
    return Event(output={"text": text}, route="urgent" if "now" in text else "calm")


def page(letter: Letter) -> str:
    """Call somebody at home."""
    return f"paged about {letter.text!r}"


@node(retry=RetryConfig(max_attempts=3), timeout_s=5)
async def lookup(letter: Letter, city: str) -> list[str]:
    """Look into the register; `city` is a key of the state."""
    print("looking up", letter.text)
    return [f"two pens are in {city}"]


def write(request: LlmRequest) -> str:
    """Stand for a model: it is given what was found, or the draft that somebody did not like."""
    draft = request.contents[-1].text
    return f"{draft} Please." if draft.startswith("Sorry") else f"Sorry: {draft}"


@node
async def approve(draft: str, ctx: InvocationContext) -> Event:
    """Ask a person, for as long as it takes."""
    ok = await ctx.request_input(f"Send this? {draft}", response_schema=bool)
    return Event(output=draft, route="send" if ok else "redo")


def mail(draft: str) -> str:
    """Send it."""
    return f"sent: {draft}"


writer = LlmAgent(name="writer", model=ScriptedLlm(write), instruction="Answer from what was found.")
desk = Workflow(
    name="desk",
    state_schema=Desk,
    max_concurrency=4,
    edges=[
        (START, triage, {"urgent": (page, lookup), DEFAULT_ROUTE: lookup}),
        ((page, lookup), JoinNode(name="found"), writer, approve),  # found: {"page": ..., "lookup": [...]}
        (approve, {"send": mail, "redo": writer}),
    ],
)


async def main() -> None:
    """Begin, or answer the question that is open."""
    async with SqliteSessionService("desk.db") as sessions:
        runner = Runner(agent=desk, app_name="desk", session_service=sessions)
        if await sessions.get_session(app_name="desk", user_id="ada", session_id="s") is None:
            await sessions.create_session(app_name="desk", user_id="ada", session_id="s", state={"city": "Bonn"})
        message: str | Content = "I need pens now"
        if len(sys.argv) > 1:
            [question] = await sessions.list_pending(app_name="desk", user_id="ada")
            message = question.reply(sys.argv[1] == "yes")
        async with runner.run_async(user_id="ada", session_id="s", new_message=message) as run:
            answer = await run.wait()
        print(run.status, answer.output if answer else run.pending[0].hint)


if __name__ == "__main__":
    trio.run(main)
