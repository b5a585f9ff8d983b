"""
Runs that resume an invocation: which one it is, and whether there is something of it to go on with.

An invocation is named by its id, or found by the open questions that a message answers. Both are looked up before the
session is opened, and looked at again when nobody else can write to it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs
import trio

from .._json import brief, check_text
from .._values import changed
from ..errors import InvalidMessageError, InvocationNotFoundError
from ..flows._answer import is_answer_of_run
from ..runtime import Program, RunRequest
from ..runtime._scope import FinishedError
from ..sessions import BaseSessionService, GetSessionConfig, Invocation, SessionKey, SessionWriter
from ..sessions._pending import check_answer
from ._opener import SessionOpener

if TYPE_CHECKING:
    from ..sessions import PendingCall
    from ..types import FunctionResponse

__all__ = ["ResumedInvocation", "find_invocation"]


async def find_invocation(service: BaseSessionService, key: SessionKey, invocation_id: str) -> Invocation:
    """
    Return an invocation of a session, as it is now.

    Raises:
        InvalidValueError: That is no text that could be the id of one.
        InvocationNotFoundError: The session has no such invocation.
    """
    is_text = isinstance(invocation_id, str)
    found = await service._invocation(key, check_text(invocation_id, "invocation_id")) if is_text else None
    if found is None:
        msg = f"{key} has no invocation {brief(invocation_id)}; leave invocation_id out to begin a new one"
        raise InvocationNotFoundError(msg)
    return found


class ResumedInvocation(NamedTuple):
    """How a run that resumes an invocation gets into its session."""

    opener: SessionOpener
    program: Program
    key: SessionKey
    named: str | None
    """The id of the invocation; None: it is found by the questions that the message answers."""

    @property
    def auto_create(self) -> bool:
        """False: there is nothing to resume in a session that was made anew."""
        return False

    def check(self) -> None:
        """Raise if the runner was closed."""
        self.opener.check_open()

    async def look(self, request: RunRequest) -> RunRequest:
        """
        Return *request* as that of a run which resumes the invocation that is named, or whose questions are answered.

        Raises:
            InvalidMessageError: The message is no answer to open questions of the invocation, or not in their form.
            InvocationNotFoundError: There is no such invocation.
        """
        service, invocation_id = self.opener.service, self.named
        message = request.message
        answers = message.get_function_responses()
        named = None if invocation_id is None else await find_invocation(service, self.key, invocation_id)
        if message.content is not None and len(answers) < len(message.content.parts):
            if named is not None and named.status.has_ended:
                msg = f"the invocation {invocation_id!r} has ended ({named.status}); send a new message without its id"
                raise InvalidMessageError(msg)
            msg = "expected answers to open questions, or something new without invocation_id, found a mixture"
            raise InvalidMessageError(f"{msg}; send them one after the other")
        branch = None
        if answers:
            asked = await self._questions(answers)
            found = {question.invocation_id for question in asked}
            if len(found) > 1 or len({question.branch for question in asked}) > 1:
                msg = (
                    "expected answers to questions of one agent in one invocation, found several; send them one by one"
                )
                raise InvalidMessageError(msg)
            if invocation_id not in (None, *found):
                msg = f"expected answers to questions of the invocation {invocation_id!r}, found ones of {found}"
                raise InvalidMessageError(msg)
            invocation_id, branch = asked[0].invocation_id, asked[0].branch
        assert invocation_id is not None
        resumed = await find_invocation(service, self.key, invocation_id)
        message = changed(message, invocation_id=invocation_id, branch=branch)
        return attrs.evolve(request, invocation_id=invocation_id, message=message, resumes=resumed)

    async def _questions(self, answers: Sequence[FunctionResponse]) -> list[PendingCall]:
        """The open questions that *answers* are for, each checked for its form."""
        key = self.key
        pending = await self.opener.service.list_pending(
            app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
        )
        by_id = {question.call_id: question for question in pending}
        asked = []
        for answer in answers:
            question = by_id.get(answer.id or "")
            if question is None:
                known = ", ".join(by_id) or "none"
                msg = f"expected answers to open questions of {key} ({known}), found one to {answer.id!r}"
                raise InvalidMessageError(f"{msg}; it may have been answered already")
            check_answer(question, answer)
            if question.kind == "credential" and answer.response["result"]:
                from ._credentials import check_credential  # few runs use credentials

                await check_credential(self.program.services.credential, question, self.program.env.now())
            asked.append(question)
        return asked

    async def open(self, request: RunRequest) -> SessionWriter:
        """
        Wait for the session and open it, with what is recorded of the invocation.

        Raises:
            FinishedError: The invocation has ended; there is nothing to go on with.
            InvalidMessageError: It has ended, and a state_delta would be lost.
            InvocationNotFoundError: It was undone by a rewind.
        """
        assert request.resumes is not None, "it was looked up"
        invocation_id, seq = request.invocation_id, request.resumes.seq
        writer = await self.opener.open(self.key, request, auto_create=False)
        try:
            await self.opener.service._open(self.key, GetSessionConfig(after_seq=seq - 1))  # what is recorded
            recorded = writer.live.window(seq)
            if not recorded or recorded[0].seq != seq:
                msg = f"the invocation {invocation_id!r} was undone by a rewind; begin a new one"
                raise InvocationNotFoundError(msg)
            now = await find_invocation(self.opener.service, self.key, invocation_id)
            if now.status.has_ended and not request.message.get_function_responses():  # answers are told: too late
                raise _finished(writer, now, request)
        except BaseException:
            with trio.CancelScope(shield=True):
                await writer.finish(None)
            raise
        return writer


def _finished(
    writer: SessionWriter, invocation: Invocation, request: RunRequest
) -> InvalidMessageError | FinishedError:
    """What to raise where the invocation has ended."""
    live = writer.live
    if request.message.actions.state_delta or request.temp:
        msg = f"the invocation {invocation.invocation_id!r} has ended ({invocation.status}), so that its "
        advice = "send it with a new message, or append an event that has it: session_service.append_event"
        return InvalidMessageError(f"{msg}state_delta would be lost; {advice}")
    recorded = reversed(live.window(invocation.seq))
    mine = (event for event in recorded if event.invocation_id == invocation.invocation_id)
    asked = request.run_config.get_session_config
    shown = GetSessionConfig(after_seq=live.run_start_seq(None) - 1) if asked is None else asked
    return FinishedError(invocation.status, live.snapshot(shown), next(filter(is_answer_of_run, mine), None))
