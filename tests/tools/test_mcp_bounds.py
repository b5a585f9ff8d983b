"""
What an MCP toolset is unless somebody says so, what it takes as a server, and what a server may not ask: each bound is
met and exceeded by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import hypothesis
import mcp_types
import pytest
import trio
import trio.testing
from hypothesis import strategies as st
from mcp import StdioServerParameters

from minirun._json import dumps
from minirun.errors import ArgumentError, ConfigurationError, McpError
from minirun.testing import ScriptedLlm
from minirun.tools import RetryConfig
from minirun.tools.mcp import (
    McpToolset,
    StdioConnectionParams,
    StdioServer,
    StreamableHTTPConnectionParams,
    _back_channel,
    _http,
    _link,
    _results,
    _server,
    _stdio,
    _toolset,
)
from minirun.tools.mcp._conversation import _Conversation
from minirun.tools.mcp._sampling import sampled
from minirun.tools.mcp._server import _nobody
from minirun.tools.mcp._servers import checked, given_seconds, label_of
from minirun.tools.mcp._stdio import _message_or_error, _Pipes
from minirun.tools.mcp._tool import RESOURCES_MAX, ResourceTool
from minirun.tools.mcp._values import VALUES_MAX, TooManyValuesError, Values

from ..mcp_servers import kinds

URL = "https://host/mcp"


# --- the toolset ------------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_that_are_told() -> None:
    """Times in seconds, and sizes in bytes or characters, as the docstrings and the guide say them."""
    assert (_toolset.CALL_TIMEOUT_S, _toolset.CONNECT_TIMEOUT_S) == (300.0, 30.0)
    assert (_toolset.RESULT_BYTES_MAX, _toolset.MESSAGE_BYTES_MAX) == (1_048_576, 16_777_216)
    assert (_toolset.PROMPT_CHARS_MAX, _results.ERROR_CHARS_MAX, _server.ERROR_CHARS_MAX) == (100_000, 4_000, 2_000)
    assert (_server.UNTOLD_TTL_S, _server.LIST_ATTEMPTS, _server.PAGES_MAX, _server.LISTS_KEPT_MAX) == (60, 2, 100, 64)
    assert (_link.BACKOFF_S, _link.BACKOFF_S_MAX, _link.LIVES_S) == (0.5, 10.0, 1.0)
    assert (_link.LEAVE_S, _link.GOODBYE_S, _stdio.GRACE_S, _stdio.LAST_WORDS_BYTES) == (10.0, 2.0, 2.0, 2_000)
    assert (_http.CONNECT_TIMEOUT_S, _http.REFUSALS, RESOURCES_MAX) == (10.0, (401, 403), 200)
    assert (_back_channel.ASKED, VALUES_MAX) == ("asked", 200_000)


TOOL_OPTIONS = ("timeout_s", "retry", "retries", "max_concurrency", "on_interrupted", "require_confirmation")
RETRY = RetryConfig(max_attempts=2)


@pytest.mark.parametrize(
    ("options", "expected", "of_resources"),
    [
        ({}, (300.0, None, 2, None, "report", False), (300.0, None, 2, None, "rerun", False)),
        (
            {"timeout_s": None, "retry": RETRY, "max_concurrency": 1, "on_interrupted": "ask"},
            (None, RETRY, 2, 1, "ask", False),
            (None, RETRY, 2, 1, "rerun", False),
        ),
        (
            {"require_confirmation": True},
            (300.0, None, 2, None, "report", True),
            (300.0, None, 2, None, "rerun", True),
        ),
        (
            {"require_confirmation": {"add"}},
            (300.0, None, 2, None, "report", True),
            (300.0, None, 2, None, "rerun", False),
        ),
        (
            {"require_confirmation": ("load_mcp_resource", "other")},
            (300.0, None, 2, None, "report", False),
            (300.0, None, 2, None, "rerun", True),
        ),
        (
            {"require_confirmation": []},
            (300.0, None, 2, None, "report", False),
            (300.0, None, 2, None, "rerun", False),
        ),
    ],
)
async def test_the_tools_of_a_server_have_the_options_of_their_toolset(
    options: dict[str, Any], expected: Any, of_resources: Any
) -> None:
    """Each tool, and the one for resources, which may be called again after a crash in any case."""
    async with McpToolset(kinds.made(), resources=True, **options) as tools:
        found = {tool.name: tool for tool in await tools.get_tools()}
    assert tuple(getattr(found["add"], name) for name in TOOL_OPTIONS) == expected
    assert tuple(getattr(found["load_mcp_resource"], name) for name in TOOL_OPTIONS) == of_resources
    assert not any(tool.sequential or tool.checks_arguments for name, tool in found.items() if name == "add")


async def test_a_toolset_has_no_tool_for_resources_unless_it_is_told() -> None:
    """The others come sorted by their names, under the names that the server has for them."""
    async with McpToolset(kinds.made()) as tools:
        found = list(await tools.get_tools())
    names = [tool.name for tool in found]
    assert names == sorted(names)
    assert "load_mcp_resource" not in names
    assert [getattr(tool, "original_name", "") for tool in found] == names


async def test_what_is_left_out_is_told_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """Once for each list that leaves out something else; the tools that stay are the same objects."""
    server = kinds.made()

    def odd() -> None:
        """Odd."""

    server.add_tool(odd, name="odd!")

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "minirun"]

    async with McpToolset(server, tool_name_prefix="desk") as tools:
        first = list(await tools.get_tools())
        assert list(await tools.get_tools()) == first
        record = "tools of the MCP server 'desk' are left out: 'odd!': a model can call no tool of this name"
        assert told() == [record]
        server.add_tool(odd, name="odd?")
        server.add_tool(odd, name="zzz")
        *again, new = await tools.get_tools()
    assert (again, new.name) == (first, "zzz")
    assert told() == [record, f"{record}; 'odd?': a model can call no tool of this name"]


def settings(*arguments: Any, **options: Any) -> tuple[Any, ...]:
    """What a toolset connects with."""
    found = McpToolset(*arguments, **options)._settings
    roots = [str(root.uri) for root in found.roots]
    return (
        *(found.address, found.label, found.headers, found.connect_timeout_s),
        *(found.message_bytes_max, found.sampling, roots),
    )


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ((URL,), {}, (URL, "host/mcp", None, 30.0, 16_777_216, False, [])),
        (
            (URL,),
            {"headers": {"a": "b"}, "connect_timeout_s": 3, "message_bytes_max": 1, "sampling": True},
            (URL, "host/mcp", {"a": "b"}, 3.0, 1, True, []),
        ),
        ((URL,), {"tool_name_prefix": "web", "roots": ["file:///a", "file:///b"]},
         (URL, "web", None, 30.0, 16_777_216, False, ["file:///a", "file:///b"])),
        (
            (),
            {"connection_params": StreamableHTTPConnectionParams(URL, {"a": "b"}, 7)},
            (URL, "host/mcp", {"a": "b"}, 7.0, 16_777_216, False, []),
        ),
        (
            (StreamableHTTPConnectionParams(URL, {"a": "b"}, 7),),
            {"headers": {"c": "d"}, "connect_timeout_s": 9},
            (URL, "host/mcp", {"c": "d"}, 9.0, 16_777_216, False, []),
        ),
        (
            (StdioConnectionParams(StdioServer("/bin/x", ["y"]), timeout=5),),
            {},
            (StdioServer("/bin/x", ["y"]), "x", None, 5.0, 16_777_216, False, []),
        ),
    ],
)  # fmt: skip
def test_a_toolset_connects_as_it_was_told(arguments: Any, options: Any, expected: Any) -> None:
    """Its own arguments come before those of ADK's connection parameters, and these before what is usual."""
    assert settings(*arguments, **options) == expected


def test_one_server_is_given_in_one_way() -> None:
    """Neither none nor two."""
    none_or_two: list[dict[str, Any]] = [{}, {"server": URL, "connection_params": URL}]
    for arguments in none_or_two:
        with pytest.raises(ConfigurationError, match="expected one server"):
            McpToolset(**arguments)
    for given in (1, 0.001):
        assert McpToolset(URL, connect_timeout_s=given, result_bytes_max=1)._settings.connect_timeout_s == given


# --- what is a server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected", "label"),
    [
        (StdioServer("x"), StdioServer("x"), "x"),
        (StdioServer("/usr/bin/x", ("a", "")), StdioServer("/usr/bin/x", ("a", "")), "x"),
        (StdioServer("a" * 81), StdioServer("a" * 81), "a" * 80 + "… (1 characters left out)"),
        (StdioServer("a" * 80), StdioServer("a" * 80), "a" * 80),
        (StdioServer("/"), StdioServer("/"), "/"),
        (
            StdioServerParameters(command="x", args=["a"], env={"K": "v"}, cwd="/tmp"),
            StdioServer("x", ["a"], {"K": "v"}, "/tmp"),
            "x",
        ),
        (URL, URL, "host/mcp"),
        ("http://host", "http://host", "host"),
        ("http://host:8080/a?key=secret", "http://host:8080/a?key=secret", "host:8080/a"),
        ("http://[::1]:1/", "http://[::1]:1/", "::1:1/"),
        ("http://h/" + "a" * 78, "http://h/" + "a" * 78, "h/" + "a" * 78),
        ("http://h/" + "a" * 79, "http://h/" + "a" * 79, "h/" + "a" * 78 + "… (1 characters left out)"),
        (print, print, "in process"),
    ],
)
def test_what_is_taken_as_a_server_and_what_messages_call_it(given: Any, expected: Any, label: str) -> None:
    """Its command or its host, in up to 80 characters: never an argument, nor what follows a `?`."""
    assert checked(given) == expected
    assert label_of(checked(given)) == label


def test_a_server_object_is_called_by_its_name() -> None:
    """Up to 80 characters of it."""
    assert label_of(kinds.made()) == kinds.made().name
    for name, label in (("n" * 80, "n" * 80), ("n" * 81, "n" * 80 + "… (1 characters left out)"), ("", "in process")):
        assert label_of(SimpleNamespace(name=name)) == label


@pytest.mark.parametrize(
    "url",
    [
        *("", "host", "file:///a", "https://", "https:///a", "https://user@host/", "https://:pass@host/"),
        *("https://host:0/", "https://host:65536/", "https://host:x/", "https://host/a b", "https://host/\x7f"),
        *("https://[::1/", "wss://host/"),
    ],
)
def test_what_is_no_address_of_a_server_is_refused_unseen(url: str) -> None:
    """It may hold a secret; the message says what to write."""
    with pytest.raises(ConfigurationError) as caught:
        checked(url)
    assert str(caught.value) == (
        "expected the URL of an MCP server, https://host/path without a user in it, found another text; "
        "pass secrets by headers=, and a command as StdioServer('command')"
    )


@pytest.mark.parametrize(
    ("fields", "is_fine"),
    [
        ({"args": ()}, True),
        ({"args": ["", "a"]}, True),
        ({"args": "ab"}, False),
        ({"args": b"ab"}, False),
        ({"args": {"a"}}, False),
        ({"args": ["a", 1]}, False),
        ({"args": ["a", "b\0"]}, False),
        ({"args": None}, False),
        ({"command": ""}, False),
        ({"command": "a\0"}, False),
        ({"command": 3}, False),
        ({"env": None}, True),
        ({"env": {}}, True),
        ({"env": {"A": ""}}, True),
        ({"env": {"A": 1}}, False),
        ({"env": {1: "A"}}, False),
        ({"env": [("A", "B")]}, False),
        ({"cwd": Path("/")}, True),
        ({"cwd": None}, True),
    ],
)
def test_a_stdio_server_is_made_of_texts(fields: dict[str, Any], is_fine: bool) -> None:
    """None of which has a zero in it; the environment is not shown."""
    made = {"command": "x", **fields}
    if is_fine:
        assert {name: getattr(StdioServer(**made), name) for name in made} == made
    else:
        [name] = fields
        with pytest.raises(ConfigurationError, match=rf"^StdioServer\.{name}: expected "):
            StdioServer(**made)


@pytest.mark.parametrize("seconds", [0, -1, "1", True, float("inf")])
def test_the_time_of_adks_parameters_is_above_zero(seconds: Any) -> None:
    """In seconds, or None: then the toolset's holds."""
    makes: list[Callable[[Any], Any]] = [
        lambda given: StdioConnectionParams(StdioServer("x"), given),
        lambda given: StreamableHTTPConnectionParams(URL, None, given),
    ]
    for make in makes:
        with pytest.raises(ConfigurationError, match=r"\.timeout: expected seconds above 0, or None"):
            make(seconds)
        assert [given_seconds(make(fine)) for fine in (None, 0.001, 1)] == [None, 0.001, 1]
    assert given_seconds(URL) is None


# --- what a server may ask --------------------------------------------------------------------------------------------


def conversation(*, roots: bool, sampling: bool) -> _Conversation:
    async def own_roots(context: object) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[mcp_types.Root.model_validate({"uri": "file:///a"})])

    server: Any = SimpleNamespace(
        label="desk", settings=SimpleNamespace(roots=roots, sampling=sampling), _roots=own_roots
    )
    return _Conversation(server, asking(ScriptedLlm([])), "tool")


def asking(model: Any) -> Any:
    """A context whose model answers each text by repeating it."""

    async def run_node(agent: Any, text: str) -> str:
        return f"I say {text}"

    return SimpleNamespace(
        _invocation=SimpleNamespace(replayer=None),
        agent=SimpleNamespace(name="clerk"),
        run_node=run_node,
        _position=SimpleNamespace(tree=SimpleNamespace(model_of=lambda agent: model)),
    )


TEXT = {"role": "user", "content": {"type": "text", "text": "Hm?"}}
ROUND: dict[str, Any] = {
    "b": mcp_types.ListRootsRequest(),
    "a": mcp_types.CreateMessageRequest.model_validate({"params": {"messages": [TEXT], "maxTokens": 5}}),
}


async def test_a_server_is_told_the_roots_and_what_a_model_says_if_it_may_ask() -> None:
    """Each request of a round has its answer, and the state goes back as it came."""
    result = mcp_types.InputRequiredResult(input_requests=ROUND, request_state="s")
    responses, state = await conversation(roots=True, sampling=True).answer(result)
    assert responses is not None
    assert state == "s"
    assert [*responses] == ["a", "b"]
    assert responses["a"].content.text == "I say Hm?"
    assert [str(root.uri) for root in responses["b"].roots] == ["file:///a"]


@pytest.mark.parametrize(
    ("key", "roots", "sampling", "message"),
    [
        ("b", False, True, "'desk' asks for roots/list, which it may not; see roots=[...]"),
        ("a", True, False, "'desk' asks for sampling/createMessage, which it may not; see sampling=True"),
    ],
)
async def test_a_server_may_ask_for_nothing_that_was_not_allowed(
    key: str, roots: bool, sampling: bool, message: str
) -> None:
    """The error says which argument would allow it."""
    result = mcp_types.InputRequiredResult(input_requests={key: ROUND[key]}, request_state=None)
    with pytest.raises(McpError) as caught:
        await conversation(roots=roots, sampling=sampling).answer(result)
    assert str(caught.value) == f"the MCP server {message}"


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        (None, {"messages": [TEXT]}, "the MCP server 'desk' asks for an answer of a model, but 'clerk' has none"),
        (
            ScriptedLlm([]),
            {"messages": [TEXT], "tools": [{"name": "a"}]},
            "the MCP server 'desk' asks for an answer of a model that may call tools, which it may not",
        ),
        (
            ScriptedLlm([]),
            {"messages": []},
            "expected the MCP server 'desk' to ask a model with up to 200000 characters, found 0",
        ),
    ],
)
async def test_a_model_is_asked_for_texts_alone(model: Any, params: Any, message: str) -> None:
    """Without a model, with tools or without a text nobody is asked."""
    with pytest.raises(McpError) as caught:
        await sampled(asking(model), "desk", params)
    assert str(caught.value) == message
    answer = await sampled(asking(ScriptedLlm([])), "desk", {"messages": [TEXT], "tools": []})
    assert (answer.content, answer.stop_reason) == (mcp_types.TextContent(text="I say Hm?"), "endTurn")


async def test_a_server_of_the_older_protocol_is_told_that_no_model_is_there() -> None:
    """It asks in the middle of a request, where nobody can be asked."""
    context: Any = None
    assert await _nobody(context, None) == mcp_types.ErrorData(
        code=mcp_types.INVALID_REQUEST, message="nobody can be asked while a request goes on"
    )


# --- resources --------------------------------------------------------------------------------------------------------


def shelf(count: int) -> Any:
    """A server with so many resources."""

    async def listed(context: object, kind: str) -> list[Any]:
        known = [SimpleNamespace(uri=f"a:{n}", name="n", description=None, mime_type=None) for n in range(count)]
        return known if kind == "resources" else []

    async def ask(context: object, what: str, send: Any, *, limit_s: object) -> Any:
        assert limit_s is None
        return mcp_types.ReadResourceResult(contents=[mcp_types.TextResourceContents(uri="a:b", text=what)])

    return SimpleNamespace(label="desk", list=listed, ask=ask)


async def test_an_address_of_a_resource_has_2000_characters() -> None:
    """One more is refused, and the server is not asked."""
    tool = ResourceTool(shelf(0), 10_000)
    context: Any = SimpleNamespace(_invocation=SimpleNamespace(replayer=None))
    uri = "a:" + "b" * 1_998
    told = f"the resource {uri[:200] + '… (1800 characters left out)'!r}"
    assert await tool.run_async(args={"uri": uri}, tool_context=context) == {"result": told}
    with pytest.raises(ArgumentError, match="uri: expected at most 2 000 characters, found more"):
        await tool.run_async(args={"uri": uri + "c"}, tool_context=context)


@pytest.mark.parametrize(("count", "told"), [(0, 0), (200, 200), (201, 200)])
async def test_a_list_of_resources_has_200(count: int, told: int) -> None:
    """Those after them are not told; without an address the list is the result."""
    context: Any = None
    found = await ResourceTool(shelf(count), 100_000).run_async(args={}, tool_context=context)
    assert found == {"result": [{"uri": f"a:{n}", "name": "n"} for n in range(told)]}


async def test_a_list_of_resources_is_halved_until_it_fits() -> None:
    """To the bytes that a result may have."""
    context: Any = None
    whole = [{"uri": f"a:{n}", "name": "n"} for n in range(9)]
    for size, count in ((len(dumps(whole)), 9), (len(dumps(whole)) - 1, 4), (len(dumps(whole[:4])) - 1, 2), (2, 0)):
        found = await ResourceTool(shelf(9), size).run_async(args={}, tool_context=context)
        assert found == {"result": whole[:count]}


def test_the_tool_for_resources_is_declared() -> None:
    """With one argument, which may be left out."""
    declaration = ResourceTool(shelf(0), 1).declaration
    assert declaration.name == "load_mcp_resource"
    assert declaration.parameters == {
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "The URI of the resource, as the list has it."}},
        "additionalProperties": False,
    }


# --- the way ----------------------------------------------------------------------------------------------------------


async def test_nothing_of_the_way_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy that it names is asked, and the client waits for no answer but for the connection alone."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    made: list[httpx2.AsyncClient] = []

    class Noted(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(httpx2, "AsyncClient", Noted)
    with trio.fail_after(60):
        async with _http.http_streams("http://127.0.0.1:1/mcp", 100):
            [client] = made
    assert not [mount for mount in client._mounts.values() if mount is not None]
    timeout = client.timeout
    assert (timeout.connect, timeout.read, timeout.write, timeout.pool) == (10.0, None, 10.0, 10.0)


# --- a process --------------------------------------------------------------------------------------------------------


class Process:
    """A process that says something and ends after so many seconds; None: it goes on."""

    def __init__(self, ends_after_s: float | None = 0.0) -> None:
        self.returncode: int | None = None
        self.ends_after_s = ends_after_s
        self.to_stdout, self.stdout = trio.testing.memory_stream_one_way_pair()
        self.to_stderr, self.stderr = trio.testing.memory_stream_one_way_pair()

    async def wait(self) -> None:
        """Until it has ended."""
        if self.ends_after_s is None:
            await trio.sleep_forever()
        else:
            await trio.sleep(self.ends_after_s)
            self.returncode = 3


def pipes_of(process: Process, told: list[str], bytes_max: int = 100) -> _Pipes:
    return _Pipes(process, bytes_max, told.append)  # type: ignore[arg-type]  # all that is asked of it


@pytest.mark.parametrize(
    ("ends_after_s", "words", "why", "expected"),
    [
        (0.0, b"", "", ["its process has ended with status 3"]),
        (0.4, b"", "", ["its process has ended with status 3"]),
        (0.6, b"", "", ["it has closed its output"]),
        (None, b"a\n\x1bb", "", ["it has closed its output; its last words: a \\x1bb"]),
        (0.0, b"x" * 10 + b"y" * 500, "", [f"its process has ended with status 3; its last words: {'y' * 500}"]),
        (0.0, b"a\xff", "", ["its process has ended with status 3; its last words: a\ufffd"]),
        (0.0, b"words", "it is too long", ["it is too long"]),
    ],
)
async def test_why_a_process_is_lost(
    ends_after_s: float | None,
    words: bytes,
    why: str,
    expected: list[str],
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its status, if it ends within half a second of its output, and the end of what it has said to nobody."""
    told: list[str] = []
    pipes = pipes_of(Process(ends_after_s), told)
    pipes._last_words += words
    await pipes._say_why(why)
    assert told == expected
    pipes.is_leaving = True  # the other side has ended it
    await pipes._say_why(why)
    assert told == expected


def values_of(text: str) -> int:
    """The commas and opening brackets outside of the strings of a JSON text, read as a parser reads them."""
    found, is_in_string, is_escaped = 0, False, False
    for each in text:
        if is_in_string:
            is_in_string, is_escaped = each != '"' or is_escaped, each == "\\" and not is_escaped
        elif each == '"':
            is_in_string = True
        else:
            found += each in ",[{"
    return found


def is_counted(pieces: list[bytes], *, are_events: bool = False) -> bool:
    """Whether a message in these pieces has no more values than are taken."""
    values = Values(are_events=are_events)
    try:
        for each in pieces:
            values.fed(each)
    except TooManyValuesError:
        return False
    return True


JSON = st.recursive(
    st.none() | st.floats(allow_nan=False) | st.text() | st.text('a,"[{\\'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a,"[{\\'), inner),
)


@hypothesis.given(value=JSON, ascii=st.booleans(), indent=st.sampled_from([None, 1]), size=st.integers(1, 9))
def test_values_are_counted_as_a_parser_finds_them(value: Any, ascii: bool, indent: int | None, size: int) -> None:
    """However the text is written and cut: as many as are in it are taken, and one less is too few."""
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    data = text.encode("utf-8", "surrogatepass")
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    room = VALUES_MAX - values_of(text)
    assert is_counted([b"," * room + b"\n", *pieces])
    assert not is_counted([b"," * (room + 1) + b"\n", *pieces])


HALF = b"data: " + b"," * (VALUES_MAX // 2)


@pytest.mark.parametrize(
    ("between", "is_fine"),
    [
        *((end, True) for end in (b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\r\n\n")),
        *((end, False) for end in (b"", b"\n", b"\r", b"\r\n")),
        *((b"\n" + line + b"\n", False) for line in (b': "', b"\\x", b"\\", b"id", b': \\"')),
        (b'\r: "\\\r', False),
    ],
)
@pytest.mark.parametrize("is_cut", [True, False])
def test_the_values_of_each_event_are_counted(between: bytes, is_fine: bool, is_cut: bool) -> None:
    """A blank line alone ends an event, and no line hides the values of the next one, however they are cut."""
    whole = HALF + between + HALF + b","
    pieces = [HALF, *(between[at : at + 1] for at in range(len(between))), HALF, b","] if is_cut else [whole]
    assert is_counted(pieces, are_events=True) is is_fine
    assert not is_counted(pieces)


PING = b'{"jsonrpc":"2.0","method":"ping"}\n'


@pytest.mark.parametrize(
    ("chunks", "messages", "told"),
    [
        ([PING], 1, ["its process has ended with status 3"]),
        ([PING[:9], PING[9:] + PING, b"printed\n"], 2, ["its process has ended with status 3"]),
        ([b"x" * 100, b"\n", PING], 1, ["its process has ended with status 3"]),
        ([PING, b"x" * 101, PING], 1, ["it has sent a message of more than 100 bytes (message_bytes_max)"]),
    ],
)
async def test_lines_of_a_process_are_messages_up_to_their_bound(
    chunks: list[bytes], messages: int, told: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    """However they are cut; what is none is left out, and one that is too long ends the connection."""
    process = Process()
    found: list[str] = []
    why: list[str] = []
    pipes = pipes_of(process, why)

    class Client:
        async def send(self, message: Any) -> None:
            found.append(message.message.method)

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *error: object) -> None:
            found.append("closed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pipes.read, Client())  # type: ignore[arg-type]  # all that is asked of it
        for chunk in chunks:
            await process.to_stdout.send_all(chunk)  # it is able to go on writing
            await trio.testing.wait_all_tasks_blocked()
        await process.to_stdout.aclose()
    assert found == [*["ping"] * messages, "closed"]
    assert why == told


ERROR = mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message="its answer is none of the protocol")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"jsonrpc":"2.0","id":1,"result":{}}', mcp_types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ('{"jsonrpc":"2.0","id":"a","result":3}', mcp_types.JSONRPCError(jsonrpc="2.0", id="a", error=ERROR)),
        ('{"jsonrpc":"2.0","id":1,"result":3}', mcp_types.JSONRPCError(jsonrpc="2.0", id=1, error=ERROR)),
        ('{"id":1,"result":3}', None),
        ('{"jsonrpc":"2.0","result":3}', None),
        ('{"jsonrpc":"2.0","id":1.5,"result":3}', None),
        ('{"jsonrpc":"2.0","id":[1],"result":3}', None),
        ("[1]", None),
        ("3", None),
        ("{", None),
        ("", None),
        (
            '{"jsonrpc":"2.0","id":1,"method":"ping","params":3}',
            mcp_types.JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"),
        ),
        ('{"jsonrpc":"2.0","method":"ping","params":3}', None),
    ],
)
def test_a_line_is_a_message_or_an_error_for_its_request(line: str, expected: Any) -> None:
    """Whoever has asked is told; a line that belongs to nobody is left out."""
    found = _message_or_error(line.encode())
    assert (None if found is None else found.message) == expected
