"""The examples do what they say: each is run, as a script or in this process, and what comes of it is compared."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import struct
import textwrap
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.routing import Route
from trio.testing import MockClock

from examples import custom_agent, order_agent, sse_endpoint, tcp_service
from minirun import Content, Event, InMemoryRunner, LlmAgent, Part, Runner, SqliteSessionService
from minirun.models import BaseLlm, LlmRequest, LlmResponse
from minirun.sessions import InvocationStatus
from minirun.testing import ScriptedLlm

from .. import fork_server
from ..fork_server import NOT_REWRITTEN, PYTEST, Process

EXAMPLES = Path(custom_agent.__file__).parent
# A script takes a second at most; one that has not ended after this long hangs.
SCRIPT_S_MAX = 60
# Whole jobs, with tests of their own; the others show one thing each.
LONG = (
    "librarian.py", "live_echo.py", "live_phone.py", "load_test.py", "map_reduce_files.py", "order_desk.py",
    "own_store.py",
)
LINES_MAX = 60


def start(name: str, folder: Path, *arguments: str) -> Process:
    """Start an example as a script in *folder*, with every warning an error."""
    return fork_server.start(["-W", "error", str(EXAMPLES / name), *arguments], cwd=folder)


def output_of(name: str, folder: Path, *arguments: str) -> list[str]:
    """What an example prints when it is run as a script in *folder*."""
    out, error = start(name, folder, *arguments).communicate(timeout=SCRIPT_S_MAX)
    assert error == ""
    return out.splitlines()


def lines(text: str) -> list[str]:
    return textwrap.dedent(text).strip().splitlines()


@pytest.mark.parametrize("path", sorted(set(EXAMPLES.glob("*.py")) - {EXAMPLES / name for name in LONG}))
def test_examples_are_short(path: Path) -> None:
    """An example that shows one thing fits on a page."""
    assert len(path.read_text("utf-8").splitlines()) <= LINES_MAX


# --- scripts ----------------------------------------------------------------------------------------------------------


def test_hello_goes_on_where_it_was(tmp_path: Path) -> None:
    """The second process finds the session of the first, and continues it."""
    assert output_of("hello.py", tmp_path) == ["greeter Hello Ada!", "Hello Ada! 2"]
    assert output_of("hello.py", tmp_path) == ["greeter Hello Ada!", "Hello Ada! 4"]


def test_a_store_of_ones_own_goes_on_where_it_was(tmp_path: Path) -> None:
    """The second process finds in the lines of the file what the first has stored."""
    assert output_of("own_store.py", tmp_path)[-1] == "counter > message 1"
    assert output_of("own_store.py", tmp_path)[-1] == "counter > message 3"


def test_a_report_has_versions_and_a_way_back(tmp_path: Path) -> None:
    """Each draft is a version; the rewind makes the second one the newest again, as a version without a copy."""
    assert output_of("report_writer.py", tmp_path) == lines(
        """
        Report on May. ['0: 11 bytes', '1: 25 bytes']
        Sound more worried. ['0: 11 bytes', '1: 25 bytes', '2: 11 bytes']
        (taken back) ['0: 11 bytes', '1: 25 bytes', '2: 11 bytes', '3: 25 bytes']
        """
    )
    with closing(sqlite3.connect(tmp_path / "reports.db")) as db:
        assert db.execute("SELECT count(*) FROM contents").fetchone() == (3,)


def test_an_assistant_remembers_across_sessions_and_processes(tmp_path: Path) -> None:
    """What a user has said is told, or found, in later sessions of the same user, and in no other's."""
    first = output_of("assistant.py", tmp_path)
    assert first == lines(
        """
        ada, monday: I will remember that.
        ada, tuesday: You like tea.
        ada, wednesday: You like tea.
        bob, thursday: I do not know.
        """
    )
    assert output_of("assistant.py", tmp_path) == first


def test_state_and_scopes(tmp_path: Path) -> None:
    """Each scope is seen from where it reaches to, and survives the session or does not."""
    expected = """
        shop []
        shop ['pen, paid in euros', 'ink, paid in euros']
        shop Done.
        ada/monday: {'cart': ['pen', 'ink'], 'said': 'Done.', 'user:items_bought': 2, 'app:last_item': 'ink'}
        ada/tuesday: {'user:items_bought': 2, 'app:last_item': 'ink'}
        bob/monday: {'app:last_item': 'ink'}
        ada/monday: {'user:items_bought': 2, 'app:last_item': 'ink'}
        this state is a copy to read, and a change to it would be lost
        """
    assert output_of("state_and_scopes.py", tmp_path) == lines(expected)


def test_recorded_model(tmp_path: Path) -> None:
    """The first run asks the model, the second answers from the cassette, in the same pieces."""
    said = ["How large is Lima? ['Ten ', 'million.']", "And Quito? ['Two ', 'million.']"]
    for asked in (4, 0):
        assert output_of("recorded_model.py", tmp_path) == [*said, f"the model was asked {asked} times"]


def test_notebook(tmp_path: Path) -> None:
    """Synchronous code sees the events of turn after turn, and may leave in the middle."""
    first, *others = output_of("notebook.py", tmp_path)
    assert first.startswith("2: [FunctionCall(name='price', args={'item': 'ink'}")
    assert others == ["3: {'result': 5}", "4: Ink costs 5.", "8: I don't know.", "?"]


def test_the_server_of_a_folder_asks_before_it_removes(tmp_path: Path) -> None:
    """The agent's program starts the server, is asked by it, and answers."""
    assert output_of("mcp_folder.py", tmp_path) == [
        "paused The MCP server 'disk' asks, for its tool 'remove': Remove old.txt for good?",
        "It is gone. False",
    ]


def test_guest_mode(tmp_path: Path) -> None:
    """Under an asyncio host, agents answer questions that asyncio code asks at the same time."""
    assert output_of("guest_mode.py", tmp_path) == ["['hello!', 'asyncio!']"]


def test_testing_an_agent(tmp_path: Path) -> None:
    """The tests of that example pass, each as a test of its own."""
    file = str(EXAMPLES / "testing_an_agent.py")
    program = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLES.parent), *NOT_REWRITTEN, file]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those are of this run
    done = fork_server.run(program, cwd=tmp_path, env=own, modules=PYTEST)
    assert done.stdout.splitlines()[-1].startswith("3 passed"), done.stdout + done.stderr


async def test_custom_agent(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    """The generator speaks first, then the coroutine counts down until its patience ends."""
    await custom_agent.main()
    expected = """
        2 echo you said 'go'
        3 countdown 9
        4 countdown 8
        5 countdown 7
        6 countdown gave up at 7
        """
    assert capsys.readouterr().out.splitlines() == lines(expected)
    assert trio.current_time() == pytest.approx(2.5)


# --- workflows --------------------------------------------------------------------------------------------------------


def test_an_order_desk_asks_and_is_answered(tmp_path: Path) -> None:
    """Each process runs only what is behind the answer: what was found is looked up once, the draft is written anew."""
    draft = """Sorry: {"page":"paged about 'I need pens now'","lookup":["two pens are in Bonn"]}"""
    asked = output_of("order_desk.py", tmp_path)
    assert asked == ["looking up I need pens now", f"paused Send this? {draft}"]
    assert output_of("order_desk.py", tmp_path, "no") == [f"paused Send this? {draft} Please."]
    assert output_of("order_desk.py", tmp_path, "yes") == [f"completed sent: {draft} Please."]


def test_a_map_over_files_goes_on_after_a_kill(tmp_path: Path) -> None:
    """The first process kills itself when half of the files are counted; the second one opens only the others."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"the boat {number}\nThe end", "utf-8")
    lines = output_of("map_reduce_files.py", tmp_path, "texts")
    read = [line.split(" reads ") for line in lines if " reads " in line]
    assert sorted(read, key=lambda each: each[1]) == [
        ["first" if number < 4 else "second", f"{number}.txt"] for number in range(8)
    ]
    assert [line for line in lines if " reads " not in line] == [
        "the first process has ended with -9",
        "completed ['the 16', 'boat 8', 'end 8']",
        "the second process has ended with 0",
    ]


# --- the order --------------------------------------------------------------------------------------------------------

ORDER = str(EXAMPLES / "order_agent.py")
# The same app in a process that is killed when something has happened in the world, and before anybody records it.
DYING = """
import os, signal
from examples import order_agent

def happens(what, key, happens=order_agent.happens):
    happens(what, key)
    if what.startswith({!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    return what

order_agent.happens = happens
app = order_agent.app
"""


def minirun(folder: Path, *arguments: str, status: int = 0) -> str:
    """Run the command line in *folder*; return what it prints."""
    program = ["-W", "error", "-m", "minirun", *arguments, "--db", "orders.db"]
    done = fork_server.run(program, cwd=folder, env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)})
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def happened(folder: Path) -> list[str]:
    """What has happened in the world, without its keys."""
    return [line.rpartition(" ")[0] for line in (folder / "world.log").read_text("utf-8").splitlines()]


def question_in(output: str) -> str:
    """The id of the question that somebody is asked."""
    [found] = set(re.findall(r"\bq-[0-9a-f]+", output))
    return str(found)


@pytest.mark.parametrize(("reply", "then"), [("yes", ["shipped", "mailed"]), ("no", ["refunded"])])
def test_an_order_waits_for_a_human(reply: str, then: list[str], tmp_path: Path) -> None:
    """It is charged, and nothing more happens until somebody answers in another process; that can be done once."""
    question = question_in(minirun(tmp_path, "run", ORDER, "3 pens"))
    assert "paused" in minirun(tmp_path, "invocations", "list")
    assert question_in(minirun(tmp_path, "invocations", "pending")) == question
    assert happened(tmp_path) == ["charged: 3 pens"]
    assert then[0] in minirun(tmp_path, "answer", ORDER, question, reply)
    assert "completed" in minirun(tmp_path, "invocations", "list")
    assert "there is no open question" in minirun(tmp_path, "answer", ORDER, question, reply, status=1)
    assert happened(tmp_path) == [f"{what}: 3 pens" for what in ("charged", *then)]


@pytest.mark.parametrize("moment", ["charged", "shipped"])
def test_an_order_survives_its_processes(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a charge or a parcel that nobody has recorded, it goes on, and each happens once."""
    (tmp_path / "dying.py").write_text(DYING.format(moment), "utf-8")
    monkeypatch.chdir(tmp_path)  # where its world is
    if moment == "charged":
        minirun(tmp_path, "run", "dying.py", "3 pens", status=-signal.SIGKILL)
    else:
        question = question_in(minirun(tmp_path, "run", ORDER, "3 pens"))
        minirun(tmp_path, "answer", "dying.py", question, "yes", status=-signal.SIGKILL)
    assert happened(tmp_path)[-1] == f"{moment}: 3 pens"
    assert "interrupted" in minirun(tmp_path, "invocations", "list")

    expected = "paused" if moment == "charged" else "completed"
    assert trio.run(supervise_until_nothing_is_interrupted) == expected
    if moment == "charged":
        question = question_in(minirun(tmp_path, "invocations", "pending"))
        assert "shipped" in minirun(tmp_path, "answer", ORDER, question, "yes")
    assert "completed" in minirun(tmp_path, "invocations", "list")
    assert happened(tmp_path) == [f"{what}: 3 pens" for what in ("charged", "shipped", "mailed")]


async def supervise_until_nothing_is_interrupted() -> str:
    """What a host does in the background; return how the order is then."""
    async with SqliteSessionService("orders.db") as sessions, trio.open_nursery() as nursery:
        runner = Runner(app=order_agent.app, session_service=sessions)
        await nursery.start(runner.supervise)
        with trio.fail_after(SCRIPT_S_MAX):
            while (found := await sessions.list_invocations())[0].status in ("interrupted", "running"):  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    return str(found[0].status)


# --- the TCP service --------------------------------------------------------------------------------------------------


async def converse(port: int, name: str, messages: Sequence[str]) -> list[str]:
    """Connect as *name*, send *messages* one after another, and return the answers."""
    answers = []
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"{name}\n".encode())
        for message in messages:
            await stream.send_all(f"{message}\n".encode())
            answers.append(await read_line(stream))
    return answers


async def read_line(stream: trio.SocketStream) -> str:
    """The next line; nobody sends more than one before the next is asked for."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = await stream.receive_some()
        assert chunk, line
        line += chunk
    return line.decode().rstrip("\n")


def port_of(listeners: Sequence[trio.SocketListener]) -> int:
    port: int = listeners[0].socket.getsockname()[1]
    return port


async def test_many_clients_share_one_runner(tmp_path: Path) -> None:
    """Clients are answered at the same time, two of one name in turn, and one that comes back goes on where it was."""
    path = str(tmp_path / "tcp.db")
    answers: dict[int, list[str]] = {}

    async def client(number: int, port: int) -> None:
        answers[number] = await converse(port, f"client{number // 2}", ["hello", "bye"])

    for visit in range(2):
        async with trio.open_nursery() as nursery:
            port = port_of(await nursery.start(tcp_service.serve, path, 0))
            async with trio.open_nursery() as clients:
                for number in range(40):
                    clients.start_soon(client, number, port)
            nursery.cancel_scope.cancel()
        for number in range(0, 40, 2):
            counts = sorted(answer.split("message ")[1] for answer in answers[number] + answers[number + 1])
            assert counts == [f"{count})" for count in range(4 * visit + 1, 4 * visit + 5)]


async def test_a_bad_line_is_answered_and_a_client_that_vanishes_is_forgotten(tmp_path: Path) -> None:
    """Neither an empty message nor a hang-up in the middle of an answer ends the service."""
    async with trio.open_nursery() as nursery:
        port = port_of(await nursery.start(tcp_service.serve, str(tmp_path / "tcp.db"), 0))
        [refused, answer] = await converse(port, "ada", [" ", "hello"])
        assert refused.startswith("error: expected a new_message with something in it")
        assert answer == "hello! (message 1)"
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"ada\nare you there?\nand now?\n")
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
        await stream.aclose()
        assert (await converse(port, "bob", ["hello"])) == ["hello! (message 1)"]
        nursery.cancel_scope.cancel()


async def test_shutting_down_cancels_the_runs_and_keeps_the_sessions_usable(tmp_path: Path) -> None:
    """Cancelling in the middle of everybody's answer leaves no task; the sessions take their next turns."""
    everybody_waits = trio.Event()

    async def never(request: LlmRequest) -> str:
        if len(model.requests) == 10:
            everybody_waits.set()
        await trio.sleep_forever()
        raise AssertionError

    model = ScriptedLlm(never)
    agent = LlmAgent(name="silent", model=model)
    async with SqliteSessionService(tmp_path / "tcp.db") as sessions:
        runner = Runner(agent=agent, app_name="tcp", session_service=sessions, auto_create_session=True)
        handler = partial(tcp_service.serve_client, runner)
        async with trio.open_nursery() as nursery:
            port = port_of(await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1")))
            for number in range(10):
                nursery.start_soon(converse, port, f"client{number}", ["hello"])
            await everybody_waits.wait()
            nursery.cancel_scope.cancel()
        assert [each.status for each in await sessions.list_invocations()] == [InvocationStatus.CANCELLED] * 10
    async with trio.open_nursery() as nursery:
        port = port_of(await nursery.start(tcp_service.serve, str(tmp_path / "tcp.db"), 0))
        assert await converse(port, "client7", ["again"]) == ["again! (message 2)"]
        nursery.cancel_scope.cancel()


# --- the SSE endpoint -------------------------------------------------------------------------------------------------


class Interrupted(BaseLlm):
    """Streams two words and then hangs, the first time; says `again` when it is asked again."""

    def __init__(self) -> None:
        self.asked = 0
        self.ended = trio.Event()

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked += 1
        if self.asked > 1:
            yield response("again")
            return
        try:
            yield response("one ", partial=True)
            yield response("two ", partial=True)
            await trio.sleep_forever()
        finally:
            self.ended.set()


def response(text: str, *, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=partial)


async def get(port: int, query: str) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    await stream.send_all(f"GET /chat?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return stream


async def read_until(stream: trio.SocketStream, text: str) -> str:
    """What comes up to and including *text*."""
    read = ""
    while text not in read:
        chunk = await stream.receive_some()
        assert chunk, read
        read += chunk.decode()
    return read


LAST_CHUNK = "\r\n0\r\n\r\n"  # of a body in HTTP's chunked encoding


async def test_a_disconnecting_client_ends_its_run() -> None:
    """Events are sent as they come; when the client goes, so does its run, and the session takes a new turn."""
    model = Interrupted()
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), app_name="web", auto_create_session=True)
    app: Any = Starlette(routes=[Route("/chat", sse_endpoint.Chat(runner))])
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(serve, app, config)
        port = int(url.rpartition(":")[2])

        async with await get(port, "user=ada&message=hi") as stream:
            head = await read_until(stream, '"two "')
            assert head.startswith("HTTP/1.1 200")
            assert "content-type: text/event-stream" in head
            first = next(line for line in head.splitlines() if line.startswith("data: "))
            event = Event.from_json(first.removeprefix("data: "))
            assert (event.text, event.partial, event.author) == ("one ", True, "a")
        await model.ended.wait()

        async with await get(port, "user=ada&message=hi") as stream:
            assert '"parts":[{"text":"again"}]' in await read_until(stream, LAST_CHUNK)
        async with await get(port, "user=ada&message=") as stream:
            assert "event: error" in await read_until(stream, LAST_CHUNK)
        nursery.cancel_scope.cancel()

    statuses = [each.status for each in await runner.session_service.list_invocations()]
    assert statuses == [InvocationStatus.CANCELLED, InvocationStatus.COMPLETED]
    events = await runner.session_service.read_events(app_name="web", user_id="ada", session_id="web", after_seq=0)
    assert [event.text for event in events] == ["hi", "hi", "again"], "what was only streamed is not stored"


# --- both, as processes -----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


async def connect(process: Process, port: int) -> trio.SocketStream:
    """Connect to a server process that is starting."""
    while True:
        assert process.poll() is None, process.communicate()
        try:
            return await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.02)  # nothing tells from outside when it listens


@pytest.mark.parametrize("name", ["tcp_service.py", "sse_endpoint.py"])
async def test_a_service_ends_with_ctrl_c(name: str, tmp_path: Path) -> None:
    """Started as a script, a service answers, and Ctrl-C ends it without anything else to complain about."""
    port = free_port()
    with start(name, tmp_path, str(port)) as process:
        try:
            async with await connect(process, port) as stream:
                if name == "tcp_service.py":
                    await stream.send_all(b"ada\nhello\n")
                    assert await read_line(stream) == "hello! (message 1)"
                else:
                    await stream.send_all(b"GET /chat?user=ada&message=hi HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert '"text":"one "' in await read_until(stream, "after")
                # While the client is there: trio's `socket.close` is not safe from Ctrl-C, should it come in its midst.
                process.send_signal(signal.SIGINT)
                with trio.fail_after(SCRIPT_S_MAX):
                    _, error = await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
        finally:
            process.kill()
    assert "Error" not in error, error
    assert "Warning" not in error, error
    if name == "tcp_service.py":
        async with SqliteSessionService(tmp_path / "tcp.db") as sessions:
            events = await sessions.read_events(app_name="tcp", user_id="ada", session_id="tcp", after_seq=0)
        assert [event.text for event in events] == ["hello", "hello! (message 1)"]
