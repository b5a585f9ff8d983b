"""`minirun answer`: say what somebody has been waiting for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ..errors import InvalidMessageError
from ..runners import Runner
from ..sessions import BaseSessionService, PendingCall
from ..types import Content
from ._commands import INTERRUPTED, answer_one, config_for, db_option, show_error, with_service
from ._load import load_app

__all__ = ["answer"]


@click.command()
@click.argument("target", metavar="FILE.py[:name]")
@click.argument("call_id")
@click.argument("value")
@db_option
@click.option("--user", help="Only a question of this user.")
@click.option("--session", help="Only a question of this session.")
@click.option("--stream", is_flag=True, help="Show answers as they come.")
def answer(
    target: str, call_id: str, value: str, db: Path, user: str | None, session: str | None, stream: bool
) -> None:
    """
    Answer an open question, and go on with what has waited for it.

    CALL_ID is shown by `minirun run` and `minirun invocations pending`. VALUE is yes or no where permission is asked
    for, else JSON, or a text. If this is killed, `minirun invocations resume` goes on.
    """
    app = load_app(target)

    async def main(service: BaseSessionService) -> int:
        async with Runner(app=app, session_service=service) as runner:
            pending = await service.list_pending(app_name=app.name, user_id=user, session_id=session)
            question = _only([each for each in pending if each.call_id == call_id])
            if question is None:
                known = ", ".join(each.call_id for each in pending) or "none"
                raise click.ClickException(
                    f"there is no open question {call_id!r} in app {app.name!r}; open are {known}"
                )
            reply = _reply(question, value)
            try:
                await answer_one(runner, question.user_id, question.session_id, reply, config_for(stream=stream))
            except Exception as error:
                show_error(error)
                return 1
            return 0

    try:
        status = with_service(db, main)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _only(found: list[PendingCall]) -> PendingCall | None:
    if len(found) > 1:  # models may give their calls the same ids in several sessions; a session and its forks do
        where = "; ".join(f"user {each.user_id}, session {each.session_id}" for each in found)
        raise click.ClickException(f"expected one question, found {where}; say which with --user and --session")
    return found[0] if found else None


def _reply(question: PendingCall, text: str) -> Content:
    """The answer that somebody has typed; a text may look like JSON, if a text is asked for."""
    value = _value(text, yes_or_no=question.kind == "confirmation")
    try:
        return question.reply(value)
    except InvalidMessageError:
        if isinstance(value, str) or question.schema is None:
            raise
        try:
            return question.reply(text)
        except InvalidMessageError:
            pass
        raise


def _value(text: str, *, yes_or_no: bool) -> object:
    """What somebody has typed as an answer: yes, no, JSON, or else a text."""
    known = {"yes": True, "no": False}
    try:
        return known[text] if yes_or_no or text in known else json.loads(text)
    except KeyError:
        raise click.ClickException(f"expected yes or no, found {text!r}") from None
    except ValueError:
        return text
