"""
What an older MCP server asks in the middle of a call: whose question it is, and what it is answered. The server is
played by the test, so that it can ask in any order, from the task of a call (as over HTTP) or from one of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types
import pytest
import trio
import trio.testing

from minirun.errors import McpError
from minirun.tools.mcp._back_channel import BackChannel
from minirun.tools.mcp._forms import fingerprint

CONTEXT: Any = None  # nothing reads it
NOBODY = "nobody can be asked but in the middle of one call"
ANEW = "a person is asked, and the call is made anew then"


def asking(text: str) -> mcp_types.ElicitRequestFormParams:
    return mcp_types.ElicitRequestFormParams(message=text, requested_schema={"type": "object", "properties": {}})


def answer(text: str, value: str) -> tuple[str, mcp_types.ElicitResult]:
    """What a person has said to the question with this text."""
    request = mcp_types.ElicitRequest(params=asking(text)).model_dump(by_alias=True, mode="json", exclude_none=True)
    return fingerprint(request), mcp_types.ElicitResult(action="accept", content={"said": value})


async def ask(channel: BackChannel, text: str) -> str:
    """Ask as the server does: what was said, or why nobody says anything."""
    told = await channel.elicited(CONTEXT, asking(text))
    if isinstance(told, mcp_types.ErrorData):
        assert told.code == mcp_types.INVALID_REQUEST
        return told.message
    assert told.content is not None
    return str(told.content["said"])


class Desk:
    """Calls of one server and its questions, each in a task of its own that ends when the test says so."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.channel = BackChannel("desk")
        self.ended: dict[str, Any] = {}
        self._nursery = nursery
        self._ends: dict[str, trio.Event] = {}
        self._fails: set[str] = set()

    async def call(self, name: str, *answers: tuple[str, Any]) -> None:
        """Begin a call, which goes on."""
        self._ends[name] = trio.Event()

        async def send() -> str:
            await self._ends[name].wait()
            if name in self._fails:
                raise OSError(name)
            return f"result of {name}"

        async def make() -> Any:
            return await self.channel.hold(answers, send)

        await self._note(name, make)

    async def question(self, text: str) -> None:
        """Ask, and do not tell in which call."""
        await self._note(text, lambda: ask(self.channel, text))

    async def end(self, name: str, *, fails: bool = False) -> None:
        """Let the server answer a call, or break off."""
        self._fails |= {name} if fails else set()
        self._ends[name].set()
        await trio.testing.wait_all_tasks_blocked()

    async def _note(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        async def run() -> None:
            try:
                found = await work()
            except (McpError, OSError) as error:
                found = error
            if isinstance(found, mcp_types.InputRequiredResult):
                assert found.input_requests is not None
                [(key, request)] = found.input_requests.items()
                assert isinstance(request, mcp_types.ElicitRequest)
                found = f"{key}: {request.params.message}"
            self.ended[name] = found

        self._nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()


async def test_nobody_can_be_asked_outside_of_a_call() -> None:
    """A question that comes while no call goes on is refused at once."""
    assert await ask(BackChannel("desk"), "Who?") == NOBODY


async def test_each_answer_is_told_once_in_a_call_and_the_same_ones_in_their_order() -> None:
    """The server asks what it asked before, in any order, and is answered at once; the call has its own result."""
    channel = BackChannel("desk")
    heard: list[str] = []

    async def send() -> str:
        heard.extend([await ask(channel, text) for text in ("A?", "B?", "A?")])
        return "result"

    said = (answer("A?", "a1"), answer("A?", "a2"), answer("B?", "b"))
    for _ in range(2):  # every call begins with all of them
        assert await channel.hold(said, send) == "result"
    assert heard == ["a1", "b", "a2"] * 2
    assert await ask(channel, "A?") == NOBODY  # the calls are over


async def test_a_new_question_ends_the_call_and_is_refused_when_it_has_ended() -> None:
    """The first one that has no answer is the round's; the server hears of the end of the call before the refusal."""
    channel = BackChannel("desk")
    heard: list[str] = []

    async def from_the_call(text: str) -> None:
        heard.append(await ask(channel, text))

    async with trio.open_nursery() as nursery:

        async def send() -> None:
            heard.append(await ask(channel, "A?"))
            try:
                nursery.start_soon(from_the_call, "A?")  # as over HTTP: the context tells the call
                await trio.sleep_forever()
            finally:
                nursery.start_soon(from_the_call, "C?")
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                heard.append("the call has ended")

        found = await channel.hold([answer("A?", "a")], send)
    assert [request.params.message for request in found.input_requests.values()] == ["A?"]  # the first answer is told
    assert heard == ["a", "the call has ended", ANEW, ANEW]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_question_belongs_to_the_call_that_is_left(fails: bool) -> None:
    """It waits until the server has answered the others, or they have failed, and ends the one that goes on."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        await desk.call("x")
        await desk.call("y")
        await desk.question("Q?")
        assert desk.ended == {}
        await desk.end("x", fails=fails)
        assert {name: str(found) for name, found in desk.ended.items()} == {
            "x": "x" if fails else "result of x",
            "y": "asked: Q?",
            "Q?": ANEW,
        }


async def test_a_question_is_answered_in_the_only_call() -> None:
    """What was said for that call is told from the log, and the call goes on."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        await desk.call("x", answer("Q?", "known"))
        await desk.question("Q?")
        assert desk.ended == {"Q?": "known"}
        await desk.end("x")
        assert desk.ended["x"] == "result of x"


async def test_calls_that_all_ask_end_with_an_error_and_later_ones_do_not() -> None:
    """As many questions as calls: nobody can tell, and all end. What comes later is not counted with them."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        for round_ in range(2):
            desk.ended.clear()
            names = [f"{name}{round_}" for name in "xyz"]
            for name in names:
                await desk.call(name)
            for name in names[:-1]:
                await desk.question(f"{name}?")
                assert desk.ended == {}
            await desk.question(f"{names[-1]}?")
            assert {text: desk.ended[text] for text in desk.ended if "?" in text} == {f"{n}?": NOBODY for n in names}
            for name in names:
                assert isinstance(desk.ended[name], McpError)
                assert "'desk' asks a person while several calls go on at once" in str(desk.ended[name])
                assert "sequential=True" in str(desk.ended[name])


async def test_a_question_that_came_before_a_call_is_not_of_it() -> None:
    """A call that begins while a question waits did not ask it."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        await desk.call("x")
        await desk.call("y")
        await desk.question("Q?")
        await desk.call("z")
        await desk.end("x")
        assert desk.ended["y"] == "asked: Q?"
        assert "z" not in desk.ended
        await desk.end("z")
        assert desk.ended["z"] == "result of z"


async def test_a_call_that_was_cancelled_is_asked_nothing() -> None:
    """A caller may leave a call; a question that comes then belongs to the one that goes on."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)

        with trio.CancelScope() as left:

            async def leave() -> None:
                left.cancel()
                await trio.sleep_forever()

            await desk.channel.hold([], leave)
        await desk.call("x")
        await desk.question("Q?")
        assert desk.ended == {"x": "asked: Q?", "Q?": ANEW}


async def test_a_second_question_is_counted_for_the_first_one_that_waits() -> None:
    """Two questions and the two calls that the first may belong to: these end, and the third call has the other one."""
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        for name in ("x", "y", "first?", "z", "second?"):
            await (desk.question(name) if name.endswith("?") else desk.call(name))
        assert {name: type(found) for name, found in desk.ended.items()} == {
            "x": McpError, "y": McpError, "first?": str, "z": str, "second?": str,
        }  # fmt: skip
        assert (desk.ended["first?"], desk.ended["z"]) == (NOBODY, "asked: second?")
