"""
What bounds an MCP server in one call: what it may ask, tell and cost, and how its process is ended. Each bound is met
and exceeded by one, without a server.
"""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import Any

import hypothesis
import mcp_types
import pytest
import trio
import trio.testing
from hypothesis import strategies as st

from minirun.errors import McpError, NotSupportedError
from minirun.testing import ScriptedLlm
from minirun.tools.mcp import _adks, _stdio
from minirun.tools.mcp._conversation import AGAIN_S, LOGGED_CHARS_MAX, ROUNDS_MAX, _Conversation, answered
from minirun.tools.mcp._progress import with_progress
from minirun.tools.mcp._sampling import TOKENS_MAX, sampled
from minirun.tools.mcp._values import VALUES_MAX, TooManyValuesError, Values

SERVER: Any = SimpleNamespace(label="desk", settings=SimpleNamespace(roots=True, sampling=False))


async def no_roots(context: object) -> mcp_types.ListRootsResult:
    return mcp_types.ListRootsResult(roots=[])


SERVER._roots = no_roots


class Env:
    """It notes how long it was waited for."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """At once."""
        self.slept_s.append(seconds)


def context_of(env: Env | None = None) -> Any:
    return SimpleNamespace(_invocation=SimpleNamespace(replayer=None, env=env or Env()), function_call_id="c")


def round_of(count: int, state: str | None = None) -> mcp_types.InputRequiredResult:
    """A round of so many questions for the roots, which bother nobody."""
    requests: dict[str, Any] = {str(number): mcp_types.ListRootsRequest() for number in range(count)}
    return mcp_types.InputRequiredResult(input_requests=requests or None, request_state=state)


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "chars", "is_fine"), [(0, 64_000, True), (0, 64_001, False), (20, 0, True), (21, 0, False)]
)
async def test_a_round_has_so_many_questions_and_so_long_a_state(count: int, chars: int, is_fine: bool) -> None:
    """Twenty, and 64 000 characters, whether a person is asked or not."""
    conversation = _Conversation(SERVER, context_of(), "tool")
    if is_fine:
        responses, state = await conversation.answer(round_of(count, "a" * chars))
        assert (len(responses or ()), len(state or "")) == (count, chars)
        assert (responses is None) is (count == 0)
    else:
        with pytest.raises(McpError, match="up to 20 questions and a state of up to 64000 characters"):
            await conversation.answer(round_of(count, "a" * chars))


@pytest.mark.parametrize("rounds", [ROUNDS_MAX, ROUNDS_MAX + 1])
async def test_a_call_has_fifty_rounds(rounds: int) -> None:
    """Then the server does not come to an end. Before it is called again for nothing, some time passes."""
    assert (ROUNDS_MAX, LOGGED_CHARS_MAX) == (50, 2_560_000)
    results: list[Any] = [*(round_of(number % 2, "s") for number in range(rounds)), "done"]
    env, told = Env(), []

    async def send(responses: object, state: object, answers: object) -> Any:
        told.append(responses)
        return results.pop(0)

    if rounds > ROUNDS_MAX:
        with pytest.raises(McpError, match="'desk' has asked 50 times for one call"):
            await answered(SERVER, context_of(env), "tool", send)
        return
    assert await answered(SERVER, context_of(env), "tool", send) == "done"
    assert env.slept_s == [AGAIN_S] * 25
    assert told[:2] == [None, None]
    assert told[2] == {"0": mcp_types.ListRootsResult(roots=[])}


@pytest.mark.parametrize(("losses", "is_fine"), [(3, True), (4, False)])
async def test_a_state_that_the_server_does_not_know_any_more_begins_the_call_anew(losses: int, is_fine: bool) -> None:
    """Three times; the error of a call without a state is the tool's, and so is any other one."""
    lost = mcp_types.INVALID_PARAMS
    results: list[Any] = [round_of(0, "s"), lost] * losses + ["done"]
    states: list[Any] = []

    async def send(responses: object, state: object, answers: object) -> Any:
        states.append(state)
        result = results.pop(0)
        if isinstance(result, int):
            raise mcp_error(result)
        return result

    if is_fine:
        assert await answered(SERVER, context_of(), "tool", send) == "done"
        assert states == [None, "s"] * losses + [None]
    else:
        with pytest.raises(Exception, match="hm"):
            await answered(SERVER, context_of(), "tool", send)
    for results[:] in ([lost], [round_of(0, "s"), lost - 1]):
        with pytest.raises(Exception, match="hm"):
            await answered(SERVER, context_of(), "tool", send)
        assert results == []


def mcp_error(code: int) -> Exception:
    from mcp import MCPError

    return MCPError(code=code, message="hm")


# --- progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reports", "shown"),
    [
        ([(1, 4, None)], [("1 of 4", 0.25)]),
        ([(1, None, None), (1, None, "again"), (0.5, None, "less"), (2, None, "more")], [("1", None), ("more", None)]),
        ([(0, 4, None), (4, 4, "all")], [("0 of 4", 0.0), ("all", 1.0)]),
        ([(5, 4, None)], [("5 of 4", None)]),
        ([(-1, 4, None), (1, 0, None)], [("-1 of 4", None), ("1 of 0", None)]),
        ([(float("nan"), 4, "a"), (float("inf"), 4, "b"), (1, float("inf"), None)], [("1", None)]),
        ([(number, None, None) for number in range(66)], [(str(number), None) for number in range(64)]),
    ],
)
async def test_progress_only_grows_and_is_a_fraction_if_it_is_one(reports: list[Any], shown: list[Any]) -> None:
    """What is not more than before is dropped, and what is told faster than anybody reads."""
    found: list[Any] = []

    async def progress(text: str, *, fraction: float | None) -> None:
        found.append((text, fraction))

    async def work(report: Any) -> str:
        for each in reports:
            await report(*each)
        return "done"

    context: Any = SimpleNamespace(progress=progress)
    assert await with_progress(context, work) == "done"
    assert found == shown


# --- sampling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 8192), (0, 8192), (-3, 1), (1, 1), (2, 2), (8192, 8192), (8193, 8192)]
)
async def test_an_answer_of_a_model_has_so_many_tokens_as_are_asked_for(asked: int | None, given: int) -> None:
    """At least one, and up to 8 192; what else is said of it goes with the request."""
    nodes: list[Any] = []

    async def run_node(agent: Any, text: str) -> Any:
        nodes.append((agent.generate_content_config, text))
        return "said" if asked else {"no": "text"}

    model = ScriptedLlm([])
    context: Any = SimpleNamespace(
        agent=SimpleNamespace(name="a"),
        run_node=run_node,
        _position=SimpleNamespace(tree=SimpleNamespace(model_of=lambda agent: model)),
    )
    assert TOKENS_MAX == 8192
    message = {"role": "user", "content": {"type": "text", "text": "Hm?"}}
    params = {"messages": [message], "maxTokens": asked, "temperature": 0.5, "stopSequences": ["x"]}
    answer = await sampled(context, "desk", params)
    [(config, text)] = nodes
    assert (config.max_output_tokens, config.temperature, [*config.stop_sequences], text) == (given, 0.5, ["x"], "Hm?")
    assert isinstance(answer.content, mcp_types.TextContent)
    assert (answer.content.text, answer.model, answer.role) == ("said" if asked else "", model.name, "assistant")


# --- what ADK has -----------------------------------------------------------------------------------------------------


def test_every_word_of_adks_that_has_no_effect_here_is_refused_with_advice() -> None:
    """Those of its toolset and of its connection parameters; a word that nobody has is a TypeError."""
    assert {*_adks.TOOLSET} == {
        *("auth_credential", "auth_scheme", "credential_key", "elicitation_callback", "errlog", "header_provider"),
        *("progress_callback", "propagate_grounding_metadata", "sampling_callback", "sampling_capabilities"),
        *("tool_list_cache_ttl_seconds", "use_mcp_resources"),
    }
    assert {*_adks.SERVER} == {"httpx_client_factory", "sse_read_timeout", "terminate_on_close"}
    for words in (_adks.TOOLSET, _adks.SERVER):
        for name, advice in words.items():
            with pytest.raises(NotSupportedError) as caught:
                _adks.refuse("It", [name], words)
            assert str(caught.value).startswith(f"It({name}=...) has no effect")
            assert str(caught.value).endswith(advice)
        with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
            _adks.refuse("It", ["x", *words], words)
        _adks.refuse("It", [], words)


# --- processes --------------------------------------------------------------------------------------------------------


class Stream:
    """One end of a pipe."""

    def __init__(self) -> None:
        self.is_closed = False

    async def aclose(self) -> None:
        """Close it."""
        self.is_closed = True
        await trio.lowlevel.checkpoint()


class Process:
    """A process that ends when its input is closed, at one of the signals, or never."""

    pid = -1

    def __init__(self, ends_at: str) -> None:
        self.ends_at = ends_at
        self.stdin, self.stdout, self.stderr = Stream(), Stream(), Stream()
        self.signals: list[tuple[float, str]] = []
        self.returncode: int | None = None
        self._ended = trio.Event()

    async def wait(self) -> None:
        """Until it has ended."""
        if self.ends_at == "input" and self.stdin.is_closed:
            self.end()
        await self._ended.wait()

    def end(self) -> None:
        """End it."""
        self.returncode = 0
        self._ended.set()


@pytest.mark.parametrize(
    ("ends_at", "signals", "takes_s"),
    [
        ("input", [], 0),
        ("SIGTERM", [(2, "SIGTERM")], 2),
        ("SIGKILL", [(2, "SIGTERM"), (4, "SIGKILL")], 4),
        ("never", [(2, "SIGTERM"), (4, "SIGKILL")], 6),
    ],
)
async def test_a_process_is_asked_to_end_and_then_forced(
    ends_at: str, signals: Any, takes_s: int, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it has two seconds; one that cannot be ended costs six, and its pipes are closed all the same."""
    made: Any = Process(ends_at)
    began = trio.current_time()

    def signal_group(process: Any, number: int) -> None:
        name = signal.Signals(number).name
        process.signals.append((trio.current_time() - began, name))
        if name == ends_at:
            process.end()

    monkeypatch.setattr(_stdio, "_signal_group", signal_group)
    await _stdio._end(made)
    assert made.signals == signals
    assert trio.current_time() - began == takes_s
    assert [made.stdin.is_closed, made.stdout.is_closed, made.stderr.is_closed] == [True] * 3


# --- the values of a message ------------------------------------------------------------------------------------------


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
