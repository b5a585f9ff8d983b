"""The commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, TypeAlias, TypeVar

import click
import trio
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from .._codec import from_json, to_json
from .._json import dumps
from ..errors import MinirunError
from ..events import Event
from ..runners import Runner
from ..runners._toolsets import entered_toolsets
from ..runtime import RunConfig, RunScope, StreamingMode
from ..sessions import (
    BaseSessionService,
    Damage,
    InMemorySessionService,
    PendingCall,
    Session,
    verify,
)
from ..types import Content
from ._db import FILE_OR_URL, NEW_FILE_OR_URL, Db
from ._load import load_app
from ._services import runner_of
from ._show import (
    EventPrinter,
    answer_line,
    detail_lines,
    is_told,
    plain,
    plain_json,
    question_line,
    time_of,
    write,
)

__all__ = ["cli"]

T = TypeVar("T")
AnswerLine: TypeAlias = Callable[[PendingCall], str]

# How a shell reports a program that was ended by SIGINT (128 + 2).
INTERRUPTED = 130
PAGE_SESSIONS = 200
PAGE_EVENTS = 500

# Columns of a table that nobody looks at: wide enough that no id is folded where a program reads it.
PIPE_WIDTH = 10_000


# Commands in modules of their own, which are imported when they are asked for: a simulation brings much along that a
# conversation need not wait for.
LATER = {
    "answer": "._answer",
    "artifacts": "._artifacts",
    "docs": "._docs",
    "invocations": "._invocations",
    "mcp": "._mcp",
    "simulate": "._simulate",
    "work": "._work",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *LATER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(LATER[cmd_name], __package__), cmd_name)
        return command


@click.group(cls=_Commands)
@click.version_option(package_name="minirun")
def cli() -> None:
    """Run agents, let workers go on with them, look at what their sessions hold, and simulate them."""


# --- run ----------------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("target", metavar="FILE.py|FOLDER[:name]")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--db", type=NEW_FILE_OR_URL, help="Keep sessions in this SQLite file, or Postgres database.")
@click.option("--user", default="local", show_default=True, help="The user's id.")
@click.option("--session", default="default", show_default=True, help="The session's id; it is made on first use.")
@click.option("--stream", is_flag=True, help="Show answers as they come.")
def run(target: str, messages: tuple[str, ...], db: Db | None, user: str, session: str, stream: bool) -> None:
    """
    Run an App or agent from a Python file, or from a folder with `agent.py` (a package, as ADK has it).

    With MESSAGEs it answers them, one after another. Without, it holds a conversation: on a terminal with a prompt,
    else one message for each line of standard input. Ctrl-C ends the run in hand; the session stays usable.

    An agent may name a model of a provider; the keys are taken from the environment variables ANTHROPIC_API_KEY,
    GEMINI_API_KEY and OPENAI_API_KEY, which minirun reads nowhere else.
    """
    app = load_app(target)
    service: BaseSessionService = InMemorySessionService() if db is None else db.open()
    runner = runner_of(app, service, auto_create_session=True)
    config, how = config_for(stream=stream), partial(answer_line, target=target, db=db)

    def answer(message: str) -> None:
        # Each message has a trio.run of its own, so that between them the terminal belongs to the prompt.
        trio.run(answer_one, runner, user, session, message, config, how)

    try:
        status = _answer_arguments(messages, answer) if messages else _converse(answer)
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        trio.run(_close, runner, service)
    sys.exit(status)


def config_for(*, stream: bool) -> RunConfig:
    return RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE)


def _answer_arguments(messages: Iterable[str], answer: Callable[[str], None]) -> int:
    """Answer the messages up to the first failure."""
    for message in messages:
        try:
            answer(os.fsencode(message).decode("utf-8", "replace"))  # arguments are bytes of any kind
        except Exception as error:
            show_error(error)
            return 1
    return 0


def _converse(answer: Callable[[str], None]) -> int:
    """Answer what is typed, or the lines of standard input, to the end; a failure does not end it."""
    at_terminal = sys.stdin.isatty()
    status = 0
    for line in _typed() if at_terminal else sys.stdin:
        if not line.strip():
            continue
        try:
            answer(line.strip())
        except KeyboardInterrupt:
            if not at_terminal:
                raise
            click.echo()
        except Exception as error:
            show_error(error)
            status = 1
    return status


def _typed() -> Iterator[str]:
    """What is typed at a prompt, up to the end of input (Ctrl-D); Ctrl-C drops the line in hand."""
    prompt = Console()
    while True:
        try:
            line = prompt.input("[bold]> [/bold]")
        except KeyboardInterrupt:
            line = ""
            click.echo()
        except EOFError:
            click.echo()
            return
        yield line


def show_error(error: Exception) -> None:
    lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    write(Console(stderr=True), "\n".join(lines), "red")


async def answer_one(
    runner: Runner, user: str, session: str, message: str | Content, config: RunConfig, how: AnswerLine
) -> None:
    run = runner.run_async(user_id=user, session_id=session, new_message=message, run_config=config)
    async with entered_toolsets(runner.app._tree):
        await show_run(run, how)


async def show_run(run: RunScope, how: AnswerLine) -> None:
    """
    Take a run to its end, and show what is said in it and what it waits for then; raises what it fails with.

    *how* says what to type to answer a question: `answer_line`, given the target and the file.
    """
    console = Console()
    printer = EventPrinter(console)
    try:
        async with run as events:
            async for event in events:
                if not event.error_code:  # what the run fails with is raised, and shown, as an exception
                    printer.show(event, events.failed_calls)
    finally:
        printer.end_line()
    for question in events.pending:
        write(console, question_line(question), "bold")
        write(console, how(question), "dim")


async def _close(runner: Runner, service: BaseSessionService) -> None:
    await runner.close()
    await service.aclose()


# --- sessions -----------------------------------------------------------------------------------------------------


@cli.group()
def sessions() -> None:
    """Look at the sessions in a file or database."""


def db_option(command: Callable[..., None], *, exists: bool = True) -> Callable[..., None]:
    kind = FILE_OR_URL if exists else NEW_FILE_OR_URL
    return click.option("--db", type=kind, required=True, help="The SQLite file, or postgresql://... URL.")(command)


def _place(command: Callable[..., None]) -> Callable[..., None]:
    return db_option(names_arguments(command))


def names_arguments(command: Callable[..., None]) -> Callable[..., None]:
    for name in ("session", "user", "app"):
        command = click.argument(name)(command)
    return command


@sessions.command("list")
@db_option
@click.option("--app", help="Only those of this app.")
@click.option("--user", help="Only those of this user.")
def list_sessions(db: Db, app: str | None, user: str | None) -> None:
    """List the sessions."""
    rows = []
    for found in with_service(db, lambda service: _all_sessions(service, app, user)):
        rows.append((found.app_name, found.user_id, found.id, str(found.revision), time_of(found.last_update_time)))
    print_table(("app", "user", "session", "revision", "last update"), rows)


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table whose cells are shown as they are; where nobody looks at it, a line for each row."""
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(Text(plain(cell, keep=""), overflow="fold") for cell in row))
    console.print(table)


@sessions.command()
@_place
def show(db: Db, app: str, user: str, session: str) -> None:
    """Show what was said in a session, and its state."""
    found = with_service(db, lambda service: _one_session(service, app, user, session))
    console = Console()
    for event in found.events:
        said = " was told" if is_told(event) else ""
        write(console, f"{event.seq} {event.author}{said}: {event.text}".rstrip(), "bold")
        lines = detail_lines(event)
        if event.author == "user" and not (event.text or lines):
            lines = ["  goes on with the invocation"]
        for line in lines:
            write(console, line, "dim")
        if event.error_code:
            write(console, f"  {event.error_code}: {event.error_message}", "red")
    for key, value in found.state.items():
        write(console, f"{key} = {dumps(value)}")


@sessions.command()
@_place
def export(db: Db, app: str, user: str, session: str) -> None:
    """Print a session's events as JSON, one line each, the creation record first; nothing else is printed."""

    async def print_all(service: BaseSessionService) -> None:
        after = -1
        while True:
            page = await service.read_events(
                app_name=app, user_id=user, session_id=session, after_seq=after, limit=PAGE_EVENTS
            )
            for event in page:
                click.echo(plain_json(to_json(event)).encode())  # bytes: UTF-8 whatever the terminal's encoding
            if len(page) < PAGE_EVENTS:
                return
            after = page[-1].seq or 0

    with_service(db, print_all)


@sessions.command("import")
@partial(db_option, exists=False)
@names_arguments
@click.argument("file", type=click.File("rb"), default="-")
def import_session(db: Db, app: str, user: str, session: str, file: BinaryIO) -> None:
    """
    Make a session of what `export` has printed, from FILE or standard input.

    Exported again it is the same, byte for byte. The database is made if it does not exist.
    """
    events = list(_read_events(file))
    made = with_service(
        db,
        lambda service: service.import_session(app_name=app, user_id=user, session_id=session, events=events),
    )
    click.echo(f"{len(made.events)} visible events of {len(events) - 1} imported, up to revision {made.revision}")


def _read_events(file: BinaryIO) -> Iterator[Event]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield from_json(Event, line)
            except MinirunError as error:
                raise click.ClickException(f"line {number}: {plain(str(error))}") from error


@sessions.command("import-adk")
@partial(db_option, exists=False)
@click.option("--from", "source", type=FILE_OR_URL, required=True, help="ADK's SQLite file, or postgresql://... URL.")
def import_from_adk(db: Db, source: Db) -> None:
    """
    Take over the sessions that ADK's DatabaseSessionService or SqliteSessionService has stored, and the shared state.

    ADK's tables are only read. Sessions that are in --db already are left as they are, so an import that was cut off
    can be begun again. Tables with pickles in them (before schema 1) are refused. Exits with 1 if a session cannot be
    taken over.
    """
    from ..sessions._adk._import import import_adk  # most programs import nothing

    with _progress("importing") as progress:
        found = with_service(db, lambda service: import_adk(service, source.place, told=progress))
    console = Console()
    write(console, f"{found.sessions} sessions with {found.events} events imported")
    if found.present:
        write(console, f"{len(found.present)} were there already, and are as they were")
    for (app, user, session), problem in found.refused.items():
        what = f"session {session!r}" if session else "the state"
        write(console, f"not imported: {what} of user {user!r} in app {app!r}: {problem}", "red")
    if found.refused:
        sys.exit(1)


@sessions.command("verify")
@db_option
def verify_sessions(db: Db) -> None:
    """
    Look whether every session is what its events say: order, hash chain, state. Changes nothing.

    The hashes of artifacts and the index of memories are looked at as well, also in a database.

    Prints what is damaged, and where; exits with 1 if anything is.
    """
    damages = _damages(db)
    console = Console()
    for damage in damages:
        write(console, str(damage), "red")
    if damages:
        advice = "restore a backup" + ("" if db.is_url else ", or save what is whole with `sqlite3 FILE .recover`")
        write(Console(stderr=True), f"{db}: {len(damages)} damages; {advice}")
        sys.exit(1)
    write(console, f"{db}: sound")


def _damages(db: Db) -> list[Damage]:
    with _progress("verifying") as progress:
        if isinstance(db.place, Path):
            file = db.place
            return _reported(lambda: verify(file, progress=progress))
        from ..sessions._postgres._verify import verify_database  # most commands are given a file

        return with_service(db, lambda service: verify_database(service, progress=progress))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, which shows once there is something to tell."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _reported(work: Callable[[], T]) -> T:
    try:
        return work()
    except MinirunError as error:
        raise click.ClickException(plain(str(error))) from error


@sessions.command()
@_place
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(db: Db, app: str, user: str, session: str, yes: bool) -> None:
    """Delete a session, its events and its artifacts; what it wrote to user: and app: stays."""
    with_service(db, lambda service: _one_session(service, app, user, session))
    if not yes:
        click.confirm(f"Delete session {session!r} of user {user!r} in app {app!r}?", abort=True)
    with_service(db, lambda service: service.delete_session(app_name=app, user_id=user, session_id=session))


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


def with_service(db: Db, work: Callable[[BaseSessionService], Awaitable[T]]) -> T:
    async def main() -> T:
        async with db.open() as service:
            return await work(service)

    return _reported(lambda: trio.run(main))
