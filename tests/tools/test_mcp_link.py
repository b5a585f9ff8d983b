"""
The connection to an MCP server: when it is tried, who is told why it failed, and what ends with it. The server is a
client that the test scripts; the clock jumps.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import trio
import trio.testing
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from minirun.errors import McpConnectionError
from minirun.tools.mcp._http import Request
from minirun.tools.mcp._link import LIVES_S, Link

MODERN = next(iter(MODERN_PROTOCOL_VERSIONS))
OLDER = "2025-06-18"
EXPECTED = "the MCP server 'desk' was expected to answer, but "


class Desk:
    """A server: what each attempt to connect to it does, when it is made, and the link to it."""

    def __init__(self, *attempts: Any, timeout_s: float = 1000.0, version: str = MODERN, **told: bool) -> None:
        self.attempts = list(attempts)
        self.tried_s: list[float] = []
        self.left_s: list[float] = []
        self.changes = 0
        self.listens: Callable[..., Any] = self._nothing
        self.leaves_after_s = 0.0
        self.says_goodbye = False
        self.breaks = trio.Event()
        self.link = Link(self._connect, "desk", timeout_s, self._change)
        self.client = SimpleNamespace(protocol_version=version, listen=lambda **asked: self.listens(**asked))
        lists = {name: SimpleNamespace(list_changed=has) for name, has in told.items()}
        self.client.server_capabilities = SimpleNamespace(**{"tools": None, "prompts": None, **lists})

    def _change(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def _nothing(self, **asked: bool) -> AsyncGenerator[Any, None]:
        raise AssertionError("nobody listens to a server that tells of no changes")
        yield

    @asynccontextmanager
    async def _connect(self, tell: Callable[[str], None]) -> AsyncGenerator[Any, None]:
        self.tried_s.append(trio.current_time())
        what = self.attempts.pop(0) if self.attempts else None
        if callable(what):
            what = what(tell)
        if isinstance(what, float):
            await trio.sleep(what)
        if isinstance(what, BaseException):
            raise what
        self.tell = tell
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._break)
                yield self.client
                nursery.cancel_scope.cancel()
        finally:
            try:
                if self.says_goodbye:
                    await trio.sleep(60)
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.leaves_after_s)
            finally:
                self.left_s.append(trio.current_time())

    async def _break(self) -> None:
        await self.breaks.wait()
        self.breaks = trio.Event()
        raise OSError("broken")

    async def asked(self, **headers: str) -> str:
        """Ask for a client: why there is none, or nothing."""
        request = Request(headers)
        try:
            found: Any = await self.link.client(request)
        except McpConnectionError as error:
            return str(error).removeprefix(EXPECTED)
        assert found is self.client
        return ""


@asynccontextmanager
async def held(desk: Desk) -> AsyncGenerator[Desk, None]:
    """Hold the link while the block runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.link.hold)
        yield desk
        nursery.cancel_scope.cancel()


async def test_attempts_that_fail_are_made_ever_more_seldom(autojump_clock: trio.testing.MockClock) -> None:
    """Half a second after the first, then twice as long, up to ten; nobody waits before the first after a success."""
    async with held(Desk(*[OSError("no")] * 8)) as desk:
        began = trio.current_time()
        for _ in range(8):
            assert await desk.asked() == "it could not be connected to: OSError: no"
        assert await desk.asked() == ""
        waited = [round(tried - began, 6) for tried in desk.tried_s]
        assert waited == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5]
        await trio.sleep(LIVES_S)
        desk.attempts, now = [OSError("again")], trio.current_time()
        desk.link.lose(desk.client)  # type: ignore[arg-type]  # all that is asked of it
        await trio.testing.wait_all_tasks_blocked()
        assert await desk.asked() == "it could not be connected to: OSError: again"
        assert await desk.asked() == ""
        assert [tried - now for tried in desk.tried_s[-2:]] == [0, 0.5]  # the failures are counted anew


@pytest.mark.parametrize(("lived_s", "waits_s"), [(LIVES_S - 0.25, 0.5), (LIVES_S, 0.0)])
async def test_a_connection_that_is_lost_early_counts_as_a_failure(
    lived_s: float, waits_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Before one second it does, from there on the next attempt is made at once."""
    async with held(Desk()) as desk:
        assert await desk.asked() == ""
        await trio.sleep(lived_s)
        desk.tell("it has ended")
        await trio.testing.wait_all_tasks_blocked()
        lost = trio.current_time()
        assert await desk.asked() == ""
        assert desk.tried_s[-1] - lost == waits_s


async def test_nobody_is_connected_for_who_does_not_wait_any_more(autojump_clock: trio.testing.MockClock) -> None:
    """A request that was cancelled while the next attempt waited is forgotten."""
    async with held(Desk(OSError("no"))) as desk:
        assert await desk.asked() != ""
        with trio.move_on_after(0.1):
            await desk.asked()
        await trio.sleep(5)
        assert len(desk.tried_s) == 1
        assert await desk.asked() == ""


@pytest.mark.parametrize(("status", "is_refusal"), [(401, True), (403, True), (404, False), (None, False)])
async def test_refused_headers_fail_those_alone_who_have_them(
    status: int | None, is_refusal: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """All that wait with the same headers are told, with the status; the next ones are tried at once."""
    requests = [Request({"a": "1"}), Request({"a": "2"}), Request({"a": "1"})]
    let_in: dict[int, bool] = {}

    def attempt(tell: object) -> Exception:
        requests[0].status = status
        return OSError("no")

    desk = Desk(attempt)

    async def ask(number: int) -> None:
        try:
            await desk.link.client(requests[number])
        except McpConnectionError:
            let_in[number] = False
        else:
            let_in[number] = True

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
        async with held(desk):
            await trio.testing.wait_all_tasks_blocked()
            assert let_in == {0: False, 1: is_refusal, 2: False}
            assert [each.status for each in requests] == [status, None, status if is_refusal else None]
            assert len(desk.tried_s) == (2 if is_refusal else 1)


def known(failure: str) -> Callable[[Any], Exception]:
    """An attempt whose server could not be reached."""

    def attempt(tell: Callable[[str], None]) -> Exception:
        from minirun.tools.mcp._http import REQUEST

        request = REQUEST.get()
        assert request is not None
        request.failure = failure
        return OSError("less is known")

    return attempt


def telling(tell: Callable[[str], None]) -> Exception:
    """An attempt in which the transport tells why."""
    tell("its process has ended with status 3")
    return OSError("less is known")


FAILED: dict[str, tuple[Any, str]] = {
    "reached": (known("no route"), "it could not be reached: no route"),
    "told": (telling, "its process has ended with status 3"),
    "group": (ExceptionGroup("g", [ValueError("a\nb")]), "it could not be connected to: ValueError: a b"),
    "late": (9.0, "it was not connected to within connect_timeout_s=4.0 seconds"),
}


@pytest.mark.parametrize("name", FAILED)
async def test_a_request_is_told_why_there_is_no_connection(name: str, autojump_clock: trio.testing.MockClock) -> None:
    """The transport knows best; a failure is one line."""
    attempt, expected = FAILED[name]
    async with held(Desk(attempt, timeout_s=4.0)) as desk:
        assert await desk.asked() == expected
        assert trio.current_time() - desk.tried_s[0] == (4.0 if name == "late" else 0.0)


async def test_a_request_waits_for_its_own_time_and_no_longer(autojump_clock: trio.testing.MockClock) -> None:
    """However long the next attempt has to wait: then it is told so, and does not count as one that waits."""
    desk, began = Desk(timeout_s=3.0), trio.current_time()
    assert await desk.asked() == "it was not connected to within connect_timeout_s=3.0 seconds"
    assert trio.current_time() - began == 3.0
    async with held(desk):
        await trio.testing.wait_all_tasks_blocked()
        assert desk.tried_s == []


async def test_the_last_reason_is_not_told_of_the_next_failure(autojump_clock: trio.testing.MockClock) -> None:
    """What a transport said of one connection is forgotten with the next."""
    async with held(Desk(telling, OSError("other"))) as desk:
        assert "status 3" in await desk.asked()
        assert await desk.asked() == "it could not be connected to: OSError: other"


async def test_what_ends_the_program_is_raised_out_of_the_task() -> None:
    """Ctrl-C in the client goes on, alone or out of a group."""
    for failure in (KeyboardInterrupt(), BaseExceptionGroup("g", [ValueError("x"), KeyboardInterrupt()])):
        desk = Desk(failure)
        with pytest.raises(BaseExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(desk.link.hold)
                await desk.asked()
        found: BaseException = caught.value
        while isinstance(found, BaseExceptionGroup):
            [found] = found.exceptions
        assert isinstance(found, KeyboardInterrupt)


async def test_a_use_ends_with_the_connection_and_says_why() -> None:
    """A block that uses the client is cancelled when it is lost, or at once if it was lost before."""
    async with held(Desk()) as desk:
        for why, expected in (("", "the connection was lost"), ("it has ended", "it has ended")):
            assert await desk.asked() == ""
            client: Any = desk.client
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lose, desk, why)
                with pytest.raises(McpConnectionError, match=f"it was lost during the list: {expected}$"):
                    with desk.link.ending(client, "the list"):
                        await trio.sleep_forever()
            with pytest.raises(McpConnectionError, match="it was lost during a call"):
                with desk.link.ending(client, "a call"):
                    await trio.sleep_forever()
            desk.link._not_before = -math.inf
        with desk.link.ending(client, "nothing"):
            pass  # what does not wait is not lost
        assert desk.link._requests == set()


async def lose(desk: Desk, why: str) -> None:
    """End the connection, with a reason or without."""
    await trio.testing.wait_all_tasks_blocked()
    client: Any = desk.client
    desk.tell(why) if why else desk.link.lose(client)


async def test_a_client_of_an_earlier_connection_loses_nothing() -> None:
    """Who tells late that a connection has gone does not end the next one."""
    async with held(Desk()) as desk:
        assert await desk.asked() == ""
        other: Any = SimpleNamespace()
        desk.link.lose(other)
        await trio.testing.wait_all_tasks_blocked()
        assert (await desk.asked(), len(desk.tried_s)) == ("", 1)


async def test_a_toolset_that_was_left_answers_nobody() -> None:
    """Who waits, who uses the client, and who asks later is told so."""
    desk, told = Desk(60.0), []

    async def ask() -> None:
        told.append(await desk.asked())

    async def use() -> None:
        client: Any = desk.client
        try:
            with desk.link.ending(client, "a call"):
                await trio.sleep_forever()
        except McpConnectionError as error:
            told.append(str(error).removeprefix(EXPECTED))

    async with trio.open_nursery() as nursery:
        async with held(desk):
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
    assert told == ["its toolset was left"]
    assert await desk.asked() == "its toolset was left"
    desk, told = Desk(), []
    async with trio.open_nursery() as nursery:
        async with held(desk):
            assert await desk.asked() == ""
            nursery.start_soon(use)
            await trio.testing.wait_all_tasks_blocked()
    assert told == ["it was lost during a call: its toolset was left"]


@pytest.mark.parametrize(
    ("version", "takes_s", "left_s"), [(OLDER, 1.0, 1.0), (OLDER, 5.0, 2.0), (MODERN, 1.0, 0.0)]
)
async def test_the_session_of_an_older_server_is_ended_at_leaving(
    version: str, takes_s: float, left_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """For two seconds at most; one of today has no session, and one that was never connected to none either."""
    async with held(Desk(version=version)) as desk:
        await desk.link.leave()
        assert await desk.asked() == ""
        desk.leaves_after_s, began = takes_s, trio.current_time()
        await desk.link.leave()
        assert trio.current_time() - began == left_s


async def test_a_client_that_was_lost_may_take_ten_seconds_to_leave(autojump_clock: trio.testing.MockClock) -> None:
    """Then it is cancelled, and who asks meanwhile is connected to the next one."""
    async with held(Desk()) as desk:
        assert await desk.asked() == ""
        desk.says_goodbye = True
        await trio.sleep(5)
        client: Any = desk.client
        lost = trio.current_time()
        desk.link.lose(client)
        assert await desk.asked() == ""
        assert [desk.left_s[0] - lost, desk.tried_s[-1] - lost] == [10, 10]


@pytest.mark.parametrize(
    ("version", "told", "listens_to"),
    [
        (MODERN, {}, None),
        (MODERN, {"tools": False, "prompts": False}, None),
        (MODERN, {"tools": True}, {"tools_list_changed": True, "prompts_list_changed": False}),
        (MODERN, {"prompts": True, "tools": False}, {"tools_list_changed": False, "prompts_list_changed": True}),
        (OLDER, {"tools": True, "prompts": True}, None),
    ],
)
async def test_only_a_server_that_tells_of_changes_is_listened_to(
    version: str, told: dict[str, bool], listens_to: dict[str, bool] | None
) -> None:
    """Of the lists it tells of; lists are forgotten when it is connected, listened to, with each change, and after."""
    send, receive = trio.open_memory_channel[None](0)
    asked: list[dict[str, bool]] = []

    @asynccontextmanager
    async def listens(**what: bool) -> AsyncGenerator[Any, None]:
        asked.append(what)
        yield receive

    desk = Desk(version=version, **told)
    desk.listens = listens
    async with held(desk):
        assert await desk.asked() == ""
        await trio.testing.wait_all_tasks_blocked()
        assert asked == ([listens_to] if listens_to else [])
        assert desk.changes == (2 if listens_to else 1)
        if listens_to:
            for expected in (3, 4):
                await send.send(None)
                await trio.testing.wait_all_tasks_blocked()
                assert desk.changes == expected
            await send.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert desk.changes == 5


@pytest.mark.parametrize("failure", [OSError, RuntimeError, TimeoutError, anyio.BrokenResourceError])
async def test_who_cannot_listen_any_more_keeps_the_connection(failure: type[Exception]) -> None:
    """What changes from then on is not heard, so the lists are forgotten; the calls go on."""

    @asynccontextmanager
    async def listens(**what: bool) -> AsyncGenerator[Any, None]:
        raise failure
        yield

    desk = Desk(tools=True)
    desk.listens = listens
    async with held(desk):
        assert await desk.asked() == ""
        await trio.testing.wait_all_tasks_blocked()
        assert (desk.changes, len(desk.tried_s), await desk.asked()) == (2, 1, "")


async def test_a_client_that_breaks_is_replaced_for_the_next_request(autojump_clock: trio.testing.MockClock) -> None:
    """What used it ends with it, though nobody has told that the connection has gone."""
    async with held(Desk()) as desk:
        assert await desk.asked() == ""
        await trio.sleep(LIVES_S)
        client: Any = desk.client
        with pytest.raises(McpConnectionError, match="it was lost during a call: the connection was lost"):
            with desk.link.ending(client, "a call"):
                desk.breaks.set()
                await trio.sleep_forever()
        assert (await desk.asked(), len(desk.tried_s)) == ("", 2)


async def test_who_listens_does_not_hold_a_connection_that_was_lost(autojump_clock: trio.testing.MockClock) -> None:
    """The next one is made at once."""

    @asynccontextmanager
    async def listens(**what: bool) -> AsyncGenerator[Any, None]:
        await trio.sleep_forever()
        yield

    desk = Desk(tools=True)
    desk.listens = listens
    async with held(desk):
        assert await desk.asked() == ""
        await trio.sleep(LIVES_S)
        client: Any = desk.client
        lost = trio.current_time()
        desk.link.lose(client)
        assert (await desk.asked(), desk.tried_s[-1] - lost) == ("", 0)
