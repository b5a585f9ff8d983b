"""`minirun answer`: say what somebody has been waiting for."""

from __future__ import annotations

import json
import sys
from functools import partial

import click

from ..errors import InvalidMessageError
from ..runners import Runner
from ..sessions import BaseSessionService, PendingCall
from ..types import Content
from ._commands import INTERRUPTED, answer_one, config_for, db_option, show_error, with_service
from ._credentials import ask_for_credential
from ._db import Db
from ._load import load_app
from ._services import runner_of
from ._show import answer_line, plain

__all__ = ["answer"]

_YES_OR_NO = {"yes": True, "no": False}


@click.command()
@click.argument("target", metavar="FILE.py|FOLDER[:name]")
@click.argument("call_id")
@click.argument("value", required=False)
@db_option
@click.option("--user", help="Only a question of this user.")
@click.option("--session", help="Only a question of this session.")
@click.option("--stream", is_flag=True, help="Show answers as they come.")
def answer(
    target: str, call_id: str, value: str | None, db: Db, user: str | None, session: str | None, stream: bool
) -> None:
    """
    Answer an open question, and go on with what has waited for it.

    CALL_ID is shown by `minirun run` and `minirun invocations pending`. VALUE is yes or no where permission is asked
    for, else JSON, or a text. A credential is asked for without VALUE, or read from standard input, and is kept in the
    system's keyring; VALUE says no to it, or yes if it is kept already. If this is killed, `minirun invocations resume`
    goes on.
    """
    app = load_app(target)

    async def main(service: BaseSessionService) -> int:
        async with runner_of(app, service) as runner:
            pending = await service.list_pending(app_name=app.name, user_id=user, session_id=session)
            question = _only([each for each in pending if each.call_id == call_id])
            if question is None:
                known = ", ".join(each.call_id for each in pending) or "none"
                raise click.ClickException(
                    f"there is no open question {call_id!r} in app {app.name!r}; open are {known}"
                )
            is_secret = question.kind == "credential"
            reply = await _reply_to_secret(runner, question, value) if is_secret else _reply(question, value)
            place, how = (question.user_id, question.session_id), partial(answer_line, target=target, db=db)
            try:
                await answer_one(runner, *place, reply, config_for(stream=stream), how)
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


async def _reply_to_secret(runner: Runner, question: PendingCall, text: str | None) -> Content:
    """What somebody says to a question for a credential, which is saved if it is not there."""
    if text is not None:
        if text not in _YES_OR_NO:
            msg = "expected yes, no or nothing, found something else; a secret is not taken from the arguments, which "
            raise click.UsageError(f"{msg}others can see: leave VALUE out, and it is asked for")
        return question.reply(_YES_OR_NO[text])
    if runner.credential_service is None:
        raise click.ClickException("credentials are kept in the system's keyring: pip install 'minirun[keyring]'")
    if question.auth_config is None:
        raise click.ClickException(f"{question.call_id!r} does not say which credential it asks for; answer no")
    return await runner.provide_credential(question, ask_for_credential(question.auth_config))


def _reply(question: PendingCall, text: str | None) -> Content:
    """The answer that somebody has typed; a text may look like JSON, if a text is asked for."""
    if text is None:
        raise click.UsageError("Missing argument 'VALUE'.")
    value = _value(text, yes_or_no=question.kind == "confirmation")
    try:
        return question.reply(value)
    except InvalidMessageError as error:
        refused = click.UsageError(plain(str(error)))
    if not isinstance(value, str) and question.schema is not None:
        try:
            return question.reply(text)
        except InvalidMessageError:
            pass
    raise refused


def _value(text: str, *, yes_or_no: bool) -> object:
    """What somebody has typed as an answer: yes, no, JSON, or else a text."""
    try:
        return _YES_OR_NO[text] if yes_or_no or text in _YES_OR_NO else json.loads(text)
    except KeyError:
        raise click.UsageError(f"expected yes or no, found {text!r}") from None
    except ValueError:
        return text
