"""`minirun invocations`: which runs there were, how they ended, what those that wait are waiting for, and going on."""

from __future__ import annotations

import sys
from functools import partial

import attrs
import click
import trio
from rich.console import Console

from ..runners import Runner
from ..sessions import BaseSessionService, InvocationStatus
from ..sessions._work import resumable
from ._commands import INTERRUPTED, AnswerLine, config_for, db_option, print_table, show_error, show_run, with_service
from ._ctrl_c import cancelled_by_ctrl_c
from ._db import Db
from ._load import load_app
from ._services import runner_of
from ._show import answer_line, what_is_asked, write

__all__ = ["invocations"]


@click.group()
def invocations() -> None:
    """Look at the invocations in a file, the runs of their sessions, and go on with them."""


@invocations.command("list")
@db_option
@click.option("--app", help="Only those of this app.")
@click.option("--status", type=click.Choice([str(status) for status in InvocationStatus]), help="Only those.")
def list_invocations(db: Db, app: str | None, status: str | None) -> None:
    """
    List the invocations, oldest first.

    Paused ones wait for an answer or a time; interrupted ones have lost their process: `resume` goes on with them.
    """
    found = with_service(db, lambda service: service.list_invocations(app_name=app, status=status))
    columns = ("app", "user", "session", "invocation", "status", "first event", "last event")
    rows = (
        (one.app_name, one.user_id, one.session_id, one.invocation_id, one.status, one.seq, one.end_seq)
        for one in found
    )
    print_table(columns, ([("" if cell is None else str(cell)) for cell in row] for row in rows))


@invocations.command()
@db_option
@click.option("--app", help="Only those of this app.")
@click.option("--timers", is_flag=True, help="Also show what waits for a time.")
def pending(db: Db, app: str | None, timers: bool) -> None:
    """List the open questions, the one that waits longest first; `minirun answer` answers one."""
    found = with_service(db, lambda service: service.list_pending(app_name=app, include_timers=timers))
    columns = ("app", "user", "session", "call", "kind", "question")
    rows = (
        (one.app_name, one.user_id, one.session_id, one.call_id, one.kind.replace("_", " "), what_is_asked(one))
        for one in found
    )
    print_table(columns, rows)


# --- going on ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class _FoundInvocation:
    """Where an invocation is, and how far it has come."""

    user: str
    session: str
    invocation: str
    status: InvocationStatus = attrs.field(default=InvocationStatus.INTERRUPTED, eq=False)

    def __str__(self) -> str:
        return f"{self.invocation} of user {self.user!r}, session {self.session!r}"


@invocations.command()
@click.argument("target", metavar="FILE.py|FOLDER[:name]")
@click.argument("invocation_id", required=False)
@db_option
@click.option("--user", help="Only those of this user.")
@click.option("--session", help="Only those of this session.")
@click.option("--stream", is_flag=True, help="Show answers as they come.")
def resume(
    target: str, invocation_id: str | None, db: Db, user: str | None, session: str | None, stream: bool
) -> None:
    """
    Go on with what was interrupted, and with what has waited for a time that has come, one after another.

    With INVOCATION_ID go on with that one, also if it has failed or was cancelled: then what failed is tried again.
    Nothing that is recorded is done again. A failure is told, and does not keep the others from their turn; then this
    exits with 1. Ctrl-C leaves what is in hand interrupted, to be resumed again.
    """
    app = load_app(target)

    async def main(service: BaseSessionService) -> int:
        found = await _known(service, app.name, invocation_id) if invocation_id else await _due(service, app.name)
        found = [each for each in found if user in (None, each.user) and session in (None, each.session)]
        if invocation_id:
            found = [_only(found, invocation_id, app.name)]
        console, status, how = Console(), 0, partial(answer_line, target=target, db=db)
        async with runner_of(app, service) as runner:
            with trio.CancelScope() as scope, cancelled_by_ctrl_c(scope):
                for one in found:
                    status |= await _resume_one(runner, one, console, how, stream=stream, is_named=bool(invocation_id))
        if not found:
            write(console, "nothing was interrupted, and nothing is due")
        return INTERRUPTED if scope.cancelled_caught else status

    try:
        status = with_service(db, main)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


async def _known(service: BaseSessionService, app_name: str, invocation_id: str) -> list[_FoundInvocation]:
    found = await service.list_invocations(app_name=app_name)
    mine = (one for one in found if one.invocation_id == invocation_id)
    return [_FoundInvocation(one.user_id, one.session_id, one.invocation_id, one.status) for one in mine]


async def _due(service: BaseSessionService, app_name: str) -> list[_FoundInvocation]:
    """What was interrupted, and what has waited for a time that has come."""
    found = await resumable(service, app_name, service.env.now())
    return [_FoundInvocation(key.user_id, key.session_id, invocation_id) for key, invocation_id in found]


def _only(found: list[_FoundInvocation], invocation_id: str, app_name: str) -> _FoundInvocation:
    if not found:
        known = "`minirun invocations list` shows which there are"
        raise click.ClickException(f"there is no invocation {invocation_id!r} in app {app_name!r}; {known}")
    if len(found) > 1:  # a session and its forks
        where = "; ".join(str(one) for one in found)
        raise click.ClickException(f"expected one invocation, found {where}; say which with --user and --session")
    return found[0]


async def _resume_one(
    runner: Runner, one: _FoundInvocation, console: Console, how: AnswerLine, *, stream: bool, is_named: bool
) -> int:
    """Resume one, as a supervisor does: a cancellation leaves it interrupted. Return 1 if it fails."""
    if one.status is InvocationStatus.COMPLETED:
        write(console, f"{one.invocation} has ended: {one.status}")
        return 0
    if not is_named:
        write(console, str(one), "bold")
    config = attrs.evolve(config_for(stream=stream), on_busy="reject")
    run = runner.run_async(user_id=one.user, session_id=one.session, invocation_id=one.invocation, run_config=config)
    try:
        await show_run(run.supervised(None), how)
    except Exception as error:
        show_error(error)
        return 1
    return 0
