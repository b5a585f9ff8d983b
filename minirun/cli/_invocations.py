"""`minirun invocations`: which runs there were, how they ended, and what those that wait are waiting for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from .._json import dumps
from ..sessions import InvocationStatus, PendingCall
from ._commands import db_option, print_table, with_service

__all__ = ["invocations"]


@click.group()
def invocations() -> None:
    """Look at the invocations in a file: the runs of their sessions, and what they wait for."""


@invocations.command("list")
@db_option
@click.option("--app", help="Only those of this app.")
@click.option("--status", type=click.Choice([str(status) for status in InvocationStatus]), help="Only those.")
def list_invocations(db: Path, app: str | None, status: str | None) -> None:
    """
    List the invocations, oldest first.

    Paused ones wait for an answer or a time; interrupted ones have lost their process.
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
def pending(db: Path, app: str | None, timers: bool) -> None:
    """List the open questions, the one that waits longest first; `minirun answer` answers one."""
    found = with_service(db, lambda service: service.list_pending(app_name=app, include_timers=timers))
    columns = ("app", "user", "session", "call", "kind", "tool", "question")
    rows = (
        (one.app_name, one.user_id, one.session_id, one.call_id, one.kind.replace("_", " "), _tool(one), _question(one))
        for one in found
    )
    print_table(columns, rows)


def _tool(question: PendingCall) -> str:
    return f"{question.tool}({dumps(question.args)})" if question.tool else ""


def _question(question: PendingCall) -> str:
    if question.due is not None:
        try:
            return f"at {datetime.fromtimestamp(question.due, tz=UTC).isoformat(sep=' ', timespec='seconds')}"
        except (OverflowError, ValueError, OSError):  # beyond the calendar
            return f"at {question.due}"
    hint = question.hint if isinstance(question.hint, str) else "" if question.hint is None else dumps(question.hint)
    form = "" if question.schema is None else f"form {dumps(question.schema)}"
    return " ".join(part for part in (hint, form) if part)
