"""The commands."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click
import trio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._codec import event_to_json
from .._json import dumps
from ..errors import MinirunError
from ..runners import Runner
from ..runtime import RunConfig, StreamingMode
from ..sessions import BaseSessionService, InMemorySessionService, Session, SqliteSessionService
from ._load import load_app
from ._show import EventPrinter, detail_lines, plain

__all__ = ["cli"]

T = TypeVar("T")

# How a shell reports a program that was ended by SIGINT (128 + 2).
INTERRUPTED = 130
PAGE_SESSIONS = 200
PAGE_EVENTS = 500


@click.group()
def cli() -> None:
    """Run agents, and look at what their sessions hold."""


# --- run ----------------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("target", metavar="FILE.py[:name]")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--db", type=click.Path(path_type=Path), help="Keep sessions in this SQLite file.")
@click.option("--user", default="local", show_default=True, help="The user's id.")
@click.option("--session", default="default", show_default=True, help="The session's id; it is made on first use.")
@click.option("--stream", is_flag=True, help="Show answers as they come.")
def run(target: str, messages: tuple[str, ...], db: Path | None, user: str, session: str, stream: bool) -> None:
    """
    Run an App or agent from a Python file.

    With MESSAGEs it answers them, one after another. Without, it holds a conversation: on a terminal with a prompt,
    else one message for each line of standard input. Ctrl-C ends the run in hand; the session stays usable.
    """
    app = load_app(target)
    service: BaseSessionService = InMemorySessionService() if db is None else SqliteSessionService(db)
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    config = RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE)
    failed = False
    try:
        for message in messages or _conversation():
            try:
                _within_trio(lambda message=message: _answer(runner, user, session, message, config))  # type: ignore[misc]  # bound now
            except KeyboardInterrupt:
                if messages or not sys.stdin.isatty():
                    sys.exit(INTERRUPTED)
                click.echo()
            except Exception as error:
                _error(error)
                failed = True
                if messages:
                    break
    finally:
        _within_trio(lambda: _close(runner, service))
    sys.exit(1 if failed else 0)


def _within_trio(work: Callable[[], Awaitable[T]]) -> T:
    """Each message has a trio.run of its own, so that between them the terminal belongs to the prompt."""
    return trio.run(work)


async def _answer(runner: Runner, user: str, session: str, message: str, config: RunConfig) -> None:
    printer = EventPrinter(Console(highlight=False))
    try:
        async with runner.run_async(user_id=user, session_id=session, new_message=message, run_config=config) as events:
            async for event in events:
                if not event.error_code:  # what the run fails with is raised, and shown, as an exception
                    printer.show(event)
    finally:
        printer.interrupted()


async def _close(runner: Runner, service: BaseSessionService) -> None:
    await runner.close()
    await service.aclose()


def _conversation() -> Iterator[str]:
    """Messages from the terminal or from standard input, until its end; blank lines are passed over."""
    prompt = Console(highlight=False)
    while True:
        try:
            line = prompt.input("[bold]> [/bold]") if sys.stdin.isatty() else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            return
        if not line and not sys.stdin.isatty():
            return
        if line.strip():
            yield line.strip()


# --- sessions -----------------------------------------------------------------------------------------------------


@cli.group()
def sessions() -> None:
    """Look at the sessions in a file."""


def _db(command: Callable[..., None]) -> Callable[..., None]:
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--db", type=kind, required=True, help="The SQLite file.")(command)


def _place(command: Callable[..., None]) -> Callable[..., None]:
    for name in ("session", "user", "app"):
        command = click.argument(name)(command)
    return _db(command)


@sessions.command("list")
@_db
@click.option("--app", help="Only those of this app.")
@click.option("--user", help="Only those of this user.")
def list_sessions(db: Path, app: str | None, user: str | None) -> None:
    """List the sessions."""
    table = Table("app", "user", "session", "revision", "last update", box=None)
    for found in _with_service(db, lambda service: _all_sessions(service, app, user)):
        updated = datetime.fromtimestamp(found.last_update_time, tz=UTC).isoformat(sep=" ", timespec="seconds")
        row = (found.app_name, found.user_id, found.id, str(found.revision), updated)
        table.add_row(*(Text(plain(cell), overflow="fold") for cell in row))
    Console(highlight=False).print(table)


@sessions.command()
@_place
def show(db: Path, app: str, user: str, session: str) -> None:
    """Show what was said in a session, and its state."""
    found = _with_service(db, lambda service: _one_session(service, app, user, session))
    console = Console(highlight=False)
    for event in found.events:
        console.print(Text(plain(f"{event.seq} {event.author}: {event.text}"), style="bold"), soft_wrap=True)
        for line in detail_lines(event):
            console.print(Text(plain(line), style="dim"), soft_wrap=True)
        if event.error_code:
            console.print(Text(plain(f"  {event.error_code}: {event.error_message}"), style="red"), soft_wrap=True)
    for key, value in found.state.items():
        console.print(Text(plain(f"{key} = {dumps(value)}")), soft_wrap=True)


@sessions.command()
@_place
def export(db: Path, app: str, user: str, session: str) -> None:
    """Print a session's events as JSON, one line each, the creation record first."""

    async def print_all(service: BaseSessionService) -> None:
        after = -1
        while True:
            page = await service.read_events(
                app_name=app, user_id=user, session_id=session, after_seq=after, limit=PAGE_EVENTS
            )
            for event in page:
                click.echo(event_to_json(event))
            if len(page) < PAGE_EVENTS:
                return
            after = page[-1].seq or 0

    _with_service(db, print_all)


@sessions.command()
@_place
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(db: Path, app: str, user: str, session: str, yes: bool) -> None:
    """Delete a session and its events; what it wrote to user: and app: stays."""
    _with_service(db, lambda service: _one_session(service, app, user, session))
    if not yes:
        click.confirm(f"Delete session {session!r} of user {user!r} in app {app!r}?", abort=True)
    _with_service(db, lambda service: service.delete_session(app_name=app, user_id=user, session_id=session))


async def _all_sessions(service: BaseSessionService, app: str | None, user: str | None) -> list[Session]:
    found: list[Session] = []
    after: str | None = None
    while True:
        page = await service.list_sessions(app_name=app, user_id=user, limit=PAGE_SESSIONS, after=after)
        found.extend(page.sessions)
        after = page.next
        if after is None:
            return found


async def _one_session(service: BaseSessionService, app: str, user: str, session: str) -> Session:
    found = await service.get_session(app_name=app, user_id=user, session_id=session)
    if found is None:
        raise click.ClickException(f"there is no session {session!r} of user {user!r} in app {app!r}")
    return found


def _with_service(db: Path, work: Callable[[BaseSessionService], Awaitable[T]]) -> T:
    async def main() -> T:
        async with SqliteSessionService(db) as service:
            return await work(service)

    try:
        return trio.run(main)
    except MinirunError as error:
        raise click.ClickException(str(error)) from error


def _errors() -> Console:
    return Console(stderr=True, highlight=False)


def _error(error: Exception) -> None:
    _errors().print(Text(plain(f"{type(error).__name__}: {error}"), style="red"), soft_wrap=True)
