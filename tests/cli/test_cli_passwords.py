"""No command shows the password of a database: on either stream, in a log, in an exception, or to a client."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest

from minirun.cli._commands import cli
from minirun.cli._db import DbType
from minirun.errors import InvalidValueError
from minirun.sessions import SqliteSessionService, verify

from ..fork_server import run, start
from ..postgres import LOCKED_USER, new_database, require_postgres
from .test_cli import AGENT, minirun

MARK = "Marked"
PASSWORD = f"{MARK}s3cret"

# Runs commands as `minirun` does, with all logs on standard error, and prints what each raises: every exception of the
# chain with its traceback, also those that `from None` hides.
WATCHED = """
import json, logging, sys, traceback
logging.basicConfig(level=logging.DEBUG)
from minirun.cli._commands import cli
for number, arguments in enumerate(json.loads(open(sys.argv[1]).read())):
    try:
        cli(arguments, standalone_mode=False)
    except BaseException as error:
        todo = [error]
        while todo:
            one = todo.pop()
            print(repr(one), getattr(one, "message", ""), file=sys.stderr)
            traceback.print_exception(one, file=sys.stderr)
            todo += [each for each in (one.__cause__, one.__context__) if each is not None]
            todo += getattr(one, "exceptions", ())
    print("ended", number, file=sys.stderr)
"""

# What an MCP client sends: it greets the server, and calls its tool.
CLIENT = "".join(
    json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    for message in (
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "hello"}}},
    )
)  # fmt: skip


def commands(group: Any = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the command line, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def places(command: click.Command) -> list[str]:
    """The options of a command that take a database."""
    return [each.opts[0] for each in command.params if isinstance(each.type, DbType)]


WITH_DB = {" ".join(path): command for path, command in commands() if places(command)}


def arguments(command: click.Command) -> list[str]:
    """Arguments that a command takes, and the options without which it does not begin."""
    known = {"target": "echo.py:agent", "targets": "echo.py:agent", "file": "exported.json", "value": "yes"}
    found = [known.get(each.name or "", "x") for each in command.params if isinstance(each, click.Argument)]
    return [*found, *(["--yes"] if any("--yes" in each.opts for each in command.params) else [])]


def closed_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def urls() -> dict[str, str]:
    """URLs with a marked password, by what is wrong with them."""
    require_postgres()
    good = new_database()
    socket_of = good.partition("?")[2]
    odd = f"{MARK}%40{MARK}%2F{MARK}"
    return {
        "unreachable": f"postgresql://u:{PASSWORD}@127.0.0.1:{closed_port()}/d",
        "unknown host": f"postgresql://u:{PASSWORD}@nowhere.invalid/d",
        "wrong password": f"postgresql://{LOCKED_USER}:{PASSWORD}@/postgres?{socket_of}",
        "percent-encoded": f"postgresql://{LOCKED_USER}:{odd}@/postgres?{socket_of}",
        "in the query": f"postgresql:///postgres?{socket_of}&user={LOCKED_USER}&password={PASSWORD}",
        "wrong database": f"postgresql://minirun:{PASSWORD}@/missing?{socket_of}",
        "another database": f"mysql://u:{PASSWORD}@h/d",
        "half a percent": f"postgresql://u:{MARK}%zz@h/d",
        "an open bracket": f"postgresql://u:{PASSWORD}@[h/d",
        "in place of a port": f"postgresql://u:x@h:{PASSWORD}/d",
        "an @ and a slash": f"postgresql://u:{MARK}/{MARK}@{MARK}@h/d",
        "one slash": f"postgresql:/u:{PASSWORD}@h/d",
        "no colon": f"postgresql//u:{PASSWORD}@h/d",
        "a keyword text": f"host=/tmp dbname=d user=u password={PASSWORD}",
        "an unknown option": f"postgresql://h/d?passwort={PASSWORD}",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an agent is, and the program that watches a command."""
    (tmp_path / "echo.py").write_text(AGENT)
    (tmp_path / "watched.py").write_text(WATCHED)
    return tmp_path


def test_every_db_option_is_of_one_type() -> None:
    """So a URL is read the same way by every command, and a new command cannot read it as the name of a file."""
    for path, command in commands():
        for each in command.params:
            if "--db" in each.opts:
                assert isinstance(each.type, DbType), path
    assert len(WITH_DB) > 15


def calls(name: str) -> Iterator[list[str]]:
    """The arguments of a command, with each URL in the place of each database that it takes."""
    command = WITH_DB[name]
    for url in urls().values():
        for secret in places(command):
            given = [part for each in places(command) for part in (each, url if each == secret else "s.db")]
            yield [*name.split(), *given, *arguments(command)]


def watched(folder: Path, *commands: list[str]) -> list[str]:
    """The program that runs *commands*."""
    (folder / "commands.json").write_text(json.dumps(commands))
    return [str(folder / "watched.py"), str(folder / "commands.json")]


@pytest.mark.parametrize("name", sorted(WITH_DB.keys() - {"mcp serve", "work"}))
def test_no_command_shows_a_password(folder: Path, name: str) -> None:
    """Neither on standard output nor on standard error, nor in a log, nor in an exception or its chain."""
    assert minirun(folder, "run", "echo.py:agent", "hello", "--db", "s.db").returncode == 0
    exported = minirun(folder, "sessions", "export", "--db", "s.db", "echo", "local", "default")
    (folder / "exported.json").write_text(exported.stdout)
    found = list(calls(name))
    done = run(watched(folder, *found), cwd=folder)
    assert MARK not in done.stdout + done.stderr
    assert done.stderr.count("ended ") == len(found)
    assert not any(MARK in str(each) for each in folder.rglob("*"))


def test_no_worker_shows_a_password(folder: Path) -> None:
    """A worker that cannot reach the database logs that, and tries again until it is stopped."""
    for arguments in calls("work"):
        process = start(watched(folder, arguments), cwd=folder)
        assert process.stderr is not None
        head = ""
        while not any(each in head for each in ("cannot look for work", "ended 0")):
            head += process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate()
        assert MARK not in output + head + errors


def served(folder: Path, arguments: list[str]) -> tuple[list[Any], str]:
    """What an MCP client is answered by a command that it has started, and what is on its standard error."""
    process = start(watched(folder, arguments), cwd=folder)
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(CLIENT)
        process.stdin.flush()
    lines = [line for line in (process.stdout.readline(), process.stdout.readline()) if line]
    rest, errors = process.communicate()
    return [json.loads(line) for line in [*lines, *rest.splitlines()]], errors


def test_no_client_of_mcp_serve_is_told_a_password(folder: Path) -> None:
    """An agent that cannot use its database tells the client so."""
    for arguments in calls("mcp serve"):
        answers, errors = served(folder, arguments)
        assert MARK not in json.dumps(answers) + errors
        assert not answers or answers[1]["result"]["isError"]


def test_mcp_serve_takes_the_url_of_a_database(folder: Path) -> None:
    """The sessions are in the database. The client is told which version of minirun it speaks to."""
    url = new_database()
    [greeting, answer], _ = served(folder, ["mcp", "serve", "echo.py:agent", "--db", url])
    assert greeting["result"]["serverInfo"] == {"name": "minirun", "version": metadata.version("minirun")}
    assert answer["result"]["structuredContent"]["answer"] == "you said hello"
    shown = minirun(folder, "sessions", "list", "--db", url)
    assert answer["result"]["structuredContent"]["session_id"] in shown.stdout


@pytest.mark.parametrize("place", [f"postgresql://u:{PASSWORD}@h/d", Path(f"postgresql://u:{PASSWORD}@h/d")])
def test_a_url_is_no_name_of_a_file(place: Any) -> None:
    """A service for SQLite files and `verify` refuse it, without showing it."""
    for use in (SqliteSessionService, verify):
        with pytest.raises(InvalidValueError, match="found a URL") as caught:
            use(place)
        assert MARK not in str(caught.value)
