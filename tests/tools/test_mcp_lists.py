"""
Requests to an MCP server and the lists that are kept of it: for how long, for whom, and what an answer that is none
becomes. The link gives a client that the test scripts; the clock jumps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import mcp_types
import pytest
import trio
import trio.testing
from mcp import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from minirun.errors import ConfigurationError, McpAuthenticationError, McpConnectionError, McpError
from minirun.tools.mcp._http import REQUEST
from minirun.tools.mcp._server import LISTS_KEPT_MAX, PAGES_MAX, UNTOLD_TTL_S, Server, Settings, _listed, _pages
from minirun.tools.mcp._server import checked_headers as headers_of

MODERN = next(iter(MODERN_PROTOCOL_VERSIONS))
OLDER = "2025-06-18"


def page(
    *found: str, ttl_ms: int = 1000, scope: str = "private", cursor: str | None = None, kind: str = "tools"
) -> Any:
    return SimpleNamespace(**{kind: list(found)}, ttl_ms=ttl_ms, cache_scope=scope, next_cursor=cursor)


def error(code: int, message: str = "no") -> MCPError:
    return MCPError(code=code, message=message)


class Link:
    """A link that always has a client, and counts how often it is told that this has gone."""

    why_lost = "it has ended"

    def __init__(self, client: Any) -> None:
        self.lost = 0
        self.used: list[str] = []
        self._client = client

    async def client(self, request: object) -> Any:
        """The client."""
        return self._client

    @contextmanager
    def ending(self, client: object, what: str) -> Iterator[None]:
        """A block that nothing ends."""
        assert client is self._client
        self.used.append(what)
        yield

    def lose(self, client: object) -> None:
        """Count."""
        self.lost += 1

    def error(self, why: str) -> McpConnectionError:
        """The error that says why."""
        return McpConnectionError(why)


class Desk:
    """A server, whose client answers each request with what the test says next."""

    def __init__(self, *answers: Any, headers: Any = None, version: str = MODERN, **told: Any) -> None:
        self.answers = list(answers)
        self.cursors: list[str | None] = []
        lists = ("list_tools", "list_resources", "list_resource_templates", "list_prompts")
        self.client: Any = SimpleNamespace(
            protocol_version=version,
            server_capabilities=SimpleNamespace(**{"tools": None, "resources": None, "prompts": None, **told}),
            session=SimpleNamespace(**dict.fromkeys(lists, self.answer)),
        )
        self.link = Link(self.client)
        self.server = Server(Settings("", "desk", headers, 5.0, 100, False, ()))
        self.server.link = self.link  # type: ignore[assignment]  # it has what is asked of one

    async def answer(self, *, params: Any = None) -> Any:
        """The next answer: what is returned or raised, with the status of the response before it."""
        self.cursors.append(None if params is None else params.cursor)
        answer = self.answers.pop(0)
        request = REQUEST.get()
        if isinstance(answer, tuple):
            assert request is not None
            request.status, request.failure, answer = answer
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, limit_s: float | None = None) -> Any:
        """A request."""

        async def send(client: object) -> Any:
            assert client is self.client
            return await self.answer()

        return await self.server.ask(None, "the call", send, limit_s=limit_s)

    async def tools(self) -> Any:
        """The list of its tools."""
        return await self.server.list(None, "tools")


# --- requests ---------------------------------------------------------------------------------------------------------


def not_of_the_protocol() -> ValidationError:
    try:
        TypeAdapter(list[int]).validate_python(["a", "b"])
    except ValidationError as found:
        return found
    raise AssertionError


# What the client raises; what becomes of it, and whether the connection is taken to have gone.
FAILURES: list[tuple[Any, type[Exception], str, int]] = [
    (error(-5, "hm"), MCPError, "hm", 0),
    ((None, "no route", error(-5)), McpConnectionError, "it was lost during the call: no route", 0),
    (error(mcp_types.CONNECTION_CLOSED), McpConnectionError, "it was lost during the call: it has ended", 1),
    (anyio.ClosedResourceError(), McpConnectionError, "it was lost during the call: ClosedResourceError", 1),
    (OSError("a\nb"), McpConnectionError, "it was lost during the call: a b", 1),
    (RuntimeError("a\nb"), McpError, "the answer of the MCP server 'desk' to the call is none: a b", 0),
    (not_of_the_protocol(), McpError, "to the call is none: 2 values are not of the protocol", 0),
    ((401, "", error(-5)), McpAuthenticationError, "'desk' has refused the call with status 401; see headers=", 0),
    ((403, "", error(-5)), McpAuthenticationError, "'desk' has refused the call with status 403; see headers=", 0),
    ((404, "", error(-5, "hm")), MCPError, "hm", 0),
]


@pytest.mark.parametrize(("failure", "kind", "told", "lost"), FAILURES)
async def test_a_failure_of_the_client_becomes_an_error_that_says_what_was_asked(
    failure: Any, kind: type[Exception], told: str, lost: int
) -> None:
    """What the server says stays; what speaks of the connection tells the link, unless the request alone has failed."""
    desk = Desk(failure)
    with pytest.raises(kind) as caught:
        await desk.ask()
    assert type(caught.value) is kind
    assert str(caught.value).endswith(told)
    assert desk.link.lost == lost


@pytest.mark.parametrize(
    ("statuses", "is_callable", "refreshes"),
    [
        ((None,), True, [False]),
        ((401, None), True, [False, True]),
        ((401, 401), True, [False, True]),
        ((403,), True, [False]),
        ((401,), False, []),
    ],
)
async def test_headers_of_a_function_are_renewed_once_after_a_401(
    statuses: tuple[int | None, ...], is_callable: bool, refreshes: list[bool]
) -> None:
    """What is fixed cannot be renewed, and a 403 would not be helped by it."""
    found: list[bool] = []

    def headers(context: object, *, refresh: bool) -> dict[str, str]:
        found.append(refresh)
        return {"a": str(refresh)}

    answers = ["fine" if status is None else (status, "", error(-5)) for status in statuses]
    desk = Desk(*answers, headers=headers if is_callable else {"a": "b"})
    if statuses[-1] is None:
        assert await desk.ask() == "fine"
    else:
        with pytest.raises(McpAuthenticationError):
            await desk.ask()
    assert (found, desk.answers) == (refreshes, [])
    assert REQUEST.get() is None


async def test_a_request_ends_at_its_limit(autojump_clock: trio.testing.MockClock) -> None:
    """And says what took longer; without a limit it waits."""

    async def slow() -> str:
        await trio.sleep(100)
        return "late"

    with pytest.raises(McpConnectionError, match=r"it took longer than 2\.0 seconds for the call"):
        await Desk(slow).ask(2.0)
    assert await Desk(slow).ask() == "late"


async def test_a_schema_that_the_package_does_not_know_is_fetched_once() -> None:
    """The server says that headers do not fit the tool: its list is read, and the call made again, once."""
    mismatch = error(mcp_types.HEADER_MISMATCH, "mismatch")
    assert await Desk(mismatch, page(), "fine").ask() == "fine"
    desk = Desk(mismatch, page(), mismatch)
    with pytest.raises(MCPError, match="mismatch"):
        await desk.ask()
    assert desk.link.used == ["the call"]  # which ends with the connection


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (None, "expected headers= to give a dict of texts, found NoneType"),
        ({1: "a"}, "expected the name of a header, found 1"),
        ({"": "a"}, "expected the name of a header, found ''"),
        ({"a b": "a"}, "expected the name of a header, found 'a b'"),
        ({"a" * 201: "a"}, "expected the name of a header"),
        ({"a": 1}, "expected the header 'a' to be printable ASCII text, found something else (not shown)"),
        ({"a": "sécret"}, "expected the header 'a' to be printable ASCII text, found something else (not shown)"),
        ({"a": "x\ny"}, "expected the header 'a' to be printable ASCII text, found something else (not shown)"),
    ],
)
def test_what_is_no_header_is_refused_without_its_value(headers: object, told: str) -> None:
    """Names of letters, digits, `_` and `-`, values of printable ASCII."""
    with pytest.raises(ConfigurationError) as caught:
        headers_of(headers)
    assert str(caught.value).startswith(told)
    fine = {"a" * 200: "", "X-a_9": "a b"}
    assert headers_of(fine) == fine


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ttl_ms", "kept_s"), [(0, 0.0), (1, 0.001), (2500, 2.5)])
async def test_a_list_is_kept_as_long_as_it_says_and_no_longer(
    ttl_ms: int, kept_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Until that moment, when it is asked for again; one of no time at all is not kept."""
    desk = Desk(page("a", ttl_ms=ttl_ms), page("b"))
    assert await desk.tools() == ["a"]
    assert len(desk.server._lists) == (1 if kept_s else 0)
    if kept_s:
        await trio.sleep(kept_s / 2)
        assert await desk.tools() == ["a"]
        await trio.sleep(kept_s / 2)
    assert await desk.tools() == ["b"]


class Callers:
    """Headers that say who asks."""

    who = "x"

    def headers(self, context: object, *, refresh: bool) -> dict[str, str]:
        """Those of the caller."""
        assert not refresh
        return {"who": self.who}


async def test_a_list_that_changes_while_it_is_read_is_not_kept() -> None:
    """It may be of before the change, or half of it."""

    async def changes() -> Any:
        desk.server._forget_lists()
        return page("half")

    desk = Desk(changes, page("whole"))
    assert [await desk.tools() for _ in range(3)] == [["half"], ["whole"], ["whole"]]


async def test_a_private_list_is_kept_by_headers_and_a_public_one_for_all() -> None:
    """Only where headers are made by a function can two callers see different lists."""
    callers = Callers()
    desk = Desk(page("of x"), page("of y"), page("for all", scope="public"), headers=callers.headers)
    for callers.who, expected in (
        *(("x", "of x"), ("x", "of x"), ("y", "of y"), ("y", "of y"), ("x", "of x")),
        *(("z", "for all"), ("x", "for all")),
    ):
        assert await desk.tools() == [expected]


async def test_lists_of_so_many_callers_are_kept_and_the_oldest_goes() -> None:
    """Of one more than sixty-four, the first is asked for again."""
    callers = Callers()
    desk = Desk(headers=callers.headers)
    assert LISTS_KEPT_MAX == 64
    names = [str(number) for number in range(LISTS_KEPT_MAX)]
    for callers.who in names:
        desk.answers = [page(callers.who)]
        assert await desk.tools() == [callers.who]
    for callers.who in (names[0], names[-1]):
        assert await desk.tools() == [callers.who]
    for callers.who, answers in (("one more", 1), (names[1], 0), (names[0], 1)):
        desk.answers = [page("new")] * answers
        await desk.tools()
        assert desk.answers == []


async def test_the_tools_of_a_server_that_has_gone_are_those_it_had() -> None:
    """Asked for twice; of the other lists none is kept for that, and a server that never had tools is an error."""
    gone = OSError("gone")
    desk = Desk(page("a", ttl_ms=0), gone, gone, error(-5, "busy"), gone, page("b", ttl_ms=0))
    assert [await desk.tools() for _ in range(4)] == [["a"], ["a"], ["a"], ["b"]]
    assert desk.answers == []
    with pytest.raises(McpConnectionError):
        await Desk(gone, gone).tools()
    with pytest.raises(McpError, match="'desk' has refused the list of its tools: busy") as caught:
        await Desk(error(-5, "busy")).tools()
    assert caught.value.code == -5
    prompts = Desk(page("p", ttl_ms=0, kind="prompts"), gone, gone)
    assert await prompts.server.list(None, "prompts") == ["p"]
    with pytest.raises(McpConnectionError):
        await prompts.server.list(None, "prompts")


async def test_the_last_tools_of_one_caller_are_not_shown_to_another() -> None:
    """If headers are made by a function, only public ones are remembered for the time without a server."""
    gone = OSError("gone")
    answers = page("mine", ttl_ms=0), gone, gone, page("ours", ttl_ms=0, scope="public"), gone, gone
    desk = Desk(*answers, headers=Callers().headers)
    assert await desk.tools() == ["mine"]
    with pytest.raises(McpConnectionError):
        await desk.tools()
    assert [await desk.tools(), await desk.tools()] == [["ours"], ["ours"]]


NO_METHOD = error(mcp_types.METHOD_NOT_FOUND)
HAS = SimpleNamespace(list_changed=False)


@pytest.mark.parametrize(
    ("kind", "told", "failure", "is_empty"),
    [
        ("tools", {}, NO_METHOD, True),
        ("tools", {"tools": HAS}, NO_METHOD, False),
        ("tools", {"resources": HAS}, NO_METHOD, True),
        ("resources", {}, NO_METHOD, True),
        ("resources", {"resources": HAS}, NO_METHOD, False),
        ("resources", {"tools": HAS}, NO_METHOD, True),
        ("resource_templates", {"resources": HAS}, NO_METHOD, True),
        ("prompts", {}, NO_METHOD, False),
        ("tools", {}, error(-5), False),
        ("resource_templates", {}, error(-5), False),
    ],
)
async def test_a_list_that_a_server_need_not_have_is_empty(
    kind: str, told: dict[str, Any], failure: MCPError, is_empty: bool
) -> None:
    """If it says that it does not know the request, of what it has not told that it has; any other error stays."""
    desk = Desk(failure, **told)
    if is_empty:
        assert await _listed(desk.client, kind) == ([], UNTOLD_TTL_S, False, 0)
    else:
        with pytest.raises(MCPError):
            await _listed(desk.client, kind)


async def test_pages_are_one_list_that_holds_as_long_as_the_shortest() -> None:
    """It is public if all of them are, and each page is asked for with the cursor of the one before."""
    both, one, other = ("public", "public"), ("public", "private"), ("private", "public")
    for scopes, is_public in ((both, True), (one, False), (other, False)):
        first, last = page("a", ttl_ms=3000, scope=scopes[0], cursor="more"), page("b", ttl_ms=500, scope=scopes[1])
        desk = Desk(first, last)
        assert await _listed(desk.client, "tools") == (["a", "b"], 0.5, is_public, 0)
        assert desk.cursors == [None, "more"]


@pytest.mark.parametrize(("has", "ttl_s"), [(None, 60.0), (False, 60.0), (True, float("inf"))])
async def test_a_list_of_an_older_server_holds_for_a_minute_or_until_it_changes(has: bool | None, ttl_s: float) -> None:
    """Those servers say nothing of times, and nothing of whose a list is."""
    told = {} if has is None else {"tools": SimpleNamespace(list_changed=has)}
    desk = Desk(page("a", scope="public"), version=OLDER, **told)
    assert await _listed(desk.client, "tools") == (["a"], ttl_s, False, 0)


def reading(*pages: Any) -> Callable[[Any], Awaitable[Any]]:
    desk = Desk(*pages)
    return lambda params: desk.answer(params=params)


async def test_a_list_has_so_many_pages_and_no_more() -> None:
    """A hundred are read; a cursor to one more is an error of the server."""
    assert PAGES_MAX == 100
    more = [page(cursor=str(number)) for number in range(PAGES_MAX - 1)]
    assert len(await _pages(reading(*more, page()))) == PAGES_MAX
    with pytest.raises(ValueError, match="more than 100 pages"):
        await _pages(reading(*more, page(cursor="one more")))
