"""`minirun mcp serve`, as processes: over stdio and over HTTP, with kills and restarts between question and answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
import trio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from minirun import SqliteSessionService

from .. import mcp_served
from ..fork_server import Process, relay, run, start
from ..mcp_server.test_mcp_server import ADA, BOB, ROME, Person, answered, asked, no_one, said
from ..notes import Notes

# The official package leaves the stream of a response as it has its answer; the garbage collector closes it.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

ROOT = Path(__file__).parents[2]

# As long as nothing is wrong, a process of these tests answers at once.
PATIENCE_S = 120

# What the official client makes of a server that is killed while it works.
LOST = (MCPError, httpx2.TransportError, ExceptionGroup)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where agents are served, with two users' tokens."""
    (tmp_path / "desk.py").write_text(Path(mcp_served.__file__).read_text())
    (tmp_path / "tokens").write_text(f"# of the team\nada {ADA}\n\nbob {BOB}\n")
    (tmp_path / "tokens").chmod(0o600)
    return tmp_path


def program(*arguments: str) -> list[str]:
    """The command."""
    return ["-m", "minirun", "mcp", "serve", "desk.py:app", *arguments]


@asynccontextmanager
async def started(folder: Path, *arguments: str, **options: Any) -> AsyncGenerator[Client, None]:
    """The official client, which starts the command."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command, *rest = relay(program(*arguments))
    parameters = StdioServerParameters(command=command, args=rest, cwd=folder, env=environment)
    with (folder / "stderr").open("a") as errors:
        async with Client(stdio_client(parameters, errlog=errors), **options) as client:
            yield client


@asynccontextmanager
async def worker(folder: Path, *arguments: str) -> AsyncGenerator[tuple[Process, str], None]:
    """A process that serves over HTTP at a port of its own, and its URL; it is killed at the end."""
    command = program("--http", "--port", "0", "--db", "s.db", "--key-file", "key", *arguments)
    process = start(command, cwd=folder)
    assert process.stderr is not None
    try:
        for line in iter(partial(process.stderr.readline), ""):
            if line.startswith("serving at "):
                yield process, line.removeprefix("serving at ").strip()
                return
        raise AssertionError("it has ended")
    finally:
        process.kill()
        await trio.to_thread.run_sync(process.communicate)


@asynccontextmanager
async def client_at(url: str, token: str, **options: Any) -> AsyncGenerator[Client, None]:
    """The official client, with a token."""
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S, trust_env=False) as http:
        async with Client(streamable_http_client(url, http_client=http), **options) as client:
            yield client


# --- standard input and output ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_starts_the_command(folder: Path, mode: Any) -> None:
    """
    An agent is used over standard input and output, its questions included, and whatever is printed goes elsewhere.
    """
    person = Person({"answer": 2})
    async with started(folder, mode=mode, elicitation_callback=person) as client:
        assert said(await client.call_tool("desk", {"message": "noise"})) == "read ''"
        assert said(await client.call_tool("desk", {"message": "who"})) == "local for the 1."
        assert said(await client.call_tool("desk", ROME)) == "2 nights in Rome"
    printed = (folder / "stderr").read_text()
    for each in ("imported", "printed", "written", "past Python", "logged", "by a child"):
        assert each in printed
    assert "Traceback" not in printed


def test_nothing_but_messages_is_on_standard_output(folder: Path) -> None:
    """
    Without a client that says anything, nothing is written, and the end of the input is the end.
    """
    done = run(program(), cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert "imported" in done.stderr


def test_a_line_without_end_is_bounded(folder: Path) -> None:
    """
    What is no message ends the connection, before it takes the memory.
    """
    done = run(program(), cwd=folder, input="x" * 5_000_000)
    assert (done.returncode, done.stdout) == (0, "")
    assert "4194304 bytes" in done.stderr


async def test_ctrl_c_ends_it_and_leaves_the_runs(folder: Path) -> None:
    """
    The runs in hand are cancelled, cleanly, and the status is that of an interrupt.
    """
    async with worker(folder, "--token-file", "tokens") as (process, url):
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(LOST):
                    async with client_at(url, ADA) as client:
                        await client.call_tool("desk", {"message": "slow"})

            nursery.start_soon(ask)
            await Notes(folder / "world.log").has("begun")
            process.send_signal(signal.SIGINT)
            assert await trio.to_thread.run_sync(process.wait) == 130
            nursery.cancel_scope.cancel()
    assert Notes(folder / "world.log").lines() == ["begun", "left"]
    async with SqliteSessionService(folder / "s.db") as service:
        assert [each.status.value for each in await service.list_invocations()] == ["cancelled"]


# --- several processes ------------------------------------------------------------------------------------------------


async def test_another_process_over_the_same_file_takes_the_answer(folder: Path) -> None:
    """
    Two workers share the key and the store: one asks, the other goes on, and another user's client gets neither.
    """
    tokens = ("--token-file", "tokens")
    async with worker(folder, *tokens) as (_, one), worker(folder, *tokens) as (_, two):
        async with client_at(one, ADA, elicitation_callback=no_one) as client:
            question = await asked(client, ROME)
        async with client_at(two, BOB, elicitation_callback=no_one) as client:
            with pytest.raises(MCPError, match="requestState"):
                await answered(client, ROME, question, 3)
        async with client_at(two, ADA, elicitation_callback=no_one) as client:
            assert said(await answered(client, ROME, question, 3)) == "3 nights in Rome"
        async with client_at(one, ADA, elicitation_callback=no_one) as client:
            assert said(await answered(client, ROME, question, 4)) == "3 nights in Rome"
    assert Notes(folder / "world.log").lines() == ["asked Rome", "booked Rome for 3"]
    assert (folder / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("moment", ["after the answer", "before the end"])
async def test_kills_between_question_and_end_lose_nothing(folder: Path, moment: str) -> None:
    """
    Killed while it waits, and again while it goes on: the client asks the next process, and all is done once.
    """
    async with worker(folder, "--token-file", "tokens") as (process, url):
        async with client_at(url, ADA, elicitation_callback=no_one) as client:
            question = await asked(client, ROME)
        process.kill()
    async with worker(folder, "--token-file", "tokens") as (_, url):
        (folder / "fate").write_text(moment)
        with pytest.raises(LOST):
            async with client_at(url, ADA, elicitation_callback=no_one) as client:
                await answered(client, ROME, question, 3)
    async with worker(folder, "--token-file", "tokens") as (_, url):
        async with client_at(url, ADA, elicitation_callback=no_one) as client:
            assert said(await answered(client, ROME, question, 3)) == "3 nights in Rome"
    assert Notes(folder / "world.log").lines() == ["asked Rome", "booked Rome for 3"]


async def test_without_a_key_file_a_state_is_good_until_the_end(folder: Path) -> None:
    """
    A key of the process alone: the next one refuses what it has sealed, and the client begins anew.
    """
    async with started(folder, "--db", "s.db", elicitation_callback=no_one) as client:
        question = await asked(client, ROME)
        assert isinstance(question, types.InputRequiredResult)
    async with started(folder, "--db", "s.db", elicitation_callback=no_one) as client:
        with pytest.raises(MCPError, match="requestState"):
            await answered(client, ROME, question, 3)


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--http"], 2, "expected --token-file, or a token in $MINIRUN_MCP_TOKEN"),
        (["--http", "--token-file", "tokens", "--host", "0.0.0.0"], 2, "--allow-host"),
        (["--token-file", "tokens"], 2, "are for --http"),
        (["--http", "--token-file", "bad"], 1, "line 2"),
        (["--http", "--token-file", "few"], 1, "16 or more"),
        (["--http", "--token-file", "empty"], 1, "found none"),
        (["--key-file", "few"], 1, "keys of 32 bytes"),
        (["--key-file", "no/such/folder"], 1, "FileNotFoundError"),
        (["--user", " "], 1, "user_id"),
        (["desk.py"], 1, "different names"),
    ],
)
def test_what_makes_no_sense_is_told(folder: Path, arguments: list[str], status: int, told: str) -> None:
    """
    A mistake is told in a sentence, before anything is served, and no secret is shown.
    """
    (folder / "bad").write_text(f"{ADA}\na user with {BOB}\n")
    (folder / "few").write_text("hush\n")
    (folder / "empty").write_text("# nobody\n")
    for name in ("bad", "few", "empty"):
        (folder / name).chmod(0o600)
    environment = {key: value for key, value in os.environ.items() if key != "MINIRUN_MCP_TOKEN"}
    done = run(program(*arguments), cwd=folder, env=environment)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    for secret in ("hush", ADA, BOB):
        assert secret not in done.stderr


async def test_the_token_may_stand_in_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One token is that of the user who is named by --user.
    """
    monkeypatch.setenv("MINIRUN_MCP_TOKEN", ADA)
    async with worker(folder, "--user", "cyd") as (_, url), client_at(url, ADA) as client:
        assert said(await client.call_tool("desk", {"message": "who"})) == "cyd for the 1."


@pytest.mark.skipif(os.name != "posix", reason="closing descriptors is a shell's")
def test_without_a_standard_output_it_says_what_is_missing(folder: Path) -> None:
    """
    The number of a descriptor that was closed may be that of another file by then, so nothing is written to it.
    """
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, *program()]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    found = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert found.returncode == 1
    assert b"expected a standard input and output" in found.stderr
    assert b"Traceback" not in found.stderr


def test_a_message_with_half_a_character_is_answered(folder: Path) -> None:
    """
    Programs in JavaScript cut texts in the middle of a character; such a request was never answered.
    """
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    asked = {"name": "desk", "arguments": {"message": "a smile, or half of one: \ud83d"}}
    requests = [{"id": 1, "method": "initialize", "params": about}, {"id": 2, "method": "tools/call", "params": asked}]
    with start(program(), cwd=folder) as process:
        answers = []
        for each in requests:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **each}) + "\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
    assert [each["id"] for each in answers] == [1, 2]
    assert "half of one: \ufffd" in answers[1]["result"]["structuredContent"]["answer"]
