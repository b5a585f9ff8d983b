"""
Runs that name an invocation: which one it is, and whether there is something of it to go on with.

An invocation is named by its id, or found by the open questions that a message answers. Both are looked up before the
session is opened, and looked at again when nobody else can write to it any more. A message that comes with an id which
no invocation has begins one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs
import trio

from .._json import brief, check_text, shown
from .._values import changed
from ..errors import InvalidMessageError, InvalidValueError, InvocationNotFoundError, NotResumableError
from ..flows._answer import is_answer_of_run
from ..flows._going_on import goes_on_event
from ..runtime import Program, Run, RunRequest
from ..runtime._scope import FinishedError
from ..sessions import BaseSessionService, GetSessionConfig, Invocation, InvocationStatus, SessionKey, SessionWriter
from ..sessions._pending import check_answer
from ..types import id_of
from ._opener import SessionOpener

if TYPE_CHECKING:
    from ..sessions import PendingCall
    from ..types import FunctionResponse

__all__ = ["ResumedInvocation", "check_answers", "find_invocation"]

# What an invocation may be called by the program that begins it: the ids of its events begin with this.
_OWN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def find_invocation(service: BaseSessionService, key: SessionKey, invocation_id: str) -> Invocation:
    """
    Return an invocation of a session, as it is now.

    Raises:
        InvalidValueError: That is no text that could be the id of one.
        InvocationNotFoundError: The session has no such invocation.
    """
    is_text = isinstance(invocation_id, str)
    found = await service.load_invocation(key, check_text(invocation_id, "invocation_id")) if is_text else None
    if found is None:
        msg = f"{key} has no invocation {brief(invocation_id)}; leave invocation_id out to begin a new one"
        raise InvocationNotFoundError(msg)
    return found


class ResumedInvocation(NamedTuple):
    """How a run that resumes an invocation, or names the one that it begins, gets into its session."""

    opener: SessionOpener
    program: Program
    key: SessionKey
    named: str | None
    """The id of the invocation; None: it is found by the questions that the message answers."""
    auto_create: bool
    """Whether a session is made that is not there; there is nothing to resume in one that was made anew."""

    async def open(self, request: RunRequest) -> tuple[SessionWriter, RunRequest]:
        """
        Wait for the session and open it, with what is recorded of the invocation.

        Or as that of a run which begins the one that is named, if there is none and the message answers nothing.

        Raises:
            FinishedError: The invocation is completed; there is nothing to go on with.
            InvalidMessageError: It is completed, and a state_delta would be lost. Or the message is no answer to open
                questions of the invocation, or not in their form.
            InvocationNotFoundError: There is no such invocation, or it was undone by a rewind.
            NotResumableError: It has failed or was cancelled, and another one has begun since, or it is summed up.
                Or it is a live run.
            InvalidValueError: No invocation can be called that.
        """
        self.opener.check_open()
        request = await self._look(request)
        if request.resumes is None:
            return await self._open_new(request), request
        invocation_id, message, seq = request.invocation_id, request.message, request.resumes.seq
        writer = await self.opener.open(self.key, request, auto_create=False)
        try:
            await self.opener.service.load_session(self.key, GetSessionConfig(after_seq=seq - 1))  # what is recorded
            recorded = writer.live.window(seq)
            if not recorded or recorded[0].seq != seq:
                msg = f"the invocation {invocation_id!r} was undone by a rewind; begin a new one"
                raise InvocationNotFoundError(msg)
            # Other runs may have gone on with it, paused and ended while this one waited.
            now = await find_invocation(self.opener.service, self.key, invocation_id)
            answers = message.get_function_responses()
            if recorded[0].live is not None and (answers or now.status is not InvocationStatus.COMPLETED):
                msg = f"the invocation {invocation_id!r} ({now.status}) is a live run, which is never resumed"
                raise NotResumableError(f"{msg}, and its open requests are closed by the next run; begin another run")
            if now.status in (InvocationStatus.FAILED, InvocationStatus.CANCELLED) and not answers:
                await self._check_newest(writer, now)
                request = attrs.evolve(request, message=goes_on_event(message, now.status))
            elif now.status.has_ended and not answers:
                raise _finished(writer, now, request)
            for answer in answers:
                call = writer.live.open_calls.get(id_of(answer))
                if call is None or call.pending != "waits" or call.invocation_id != invocation_id:
                    msg = "expected an answer to a question that is open, found one to"
                    raise InvalidMessageError(f"{msg} {answer.id!r}, which has just been answered")
        except BaseException:
            with trio.CancelScope(shield=True):
                await writer.finish(None)
            raise
        return writer, attrs.evolve(request, resumes=now)

    async def _check_newest(self, writer: SessionWriter, ended: Invocation) -> None:
        """Refuse to go on with an invocation that has *ended*, and was not the last thing that the session is about."""
        live, name, msg = writer.live, ended.invocation_id, "the invocation {} has ended ({}), and {}; {}"
        advice = "send a new message"
        if live.compaction is not None and live.compaction.end_seq >= ended.seq:
            raise NotResumableError(msg.format(repr(name), ended.status, "a summary has taken its place", advice))
        for other in {event.invocation_id: None for event in live.window(ended.seq)}:
            found = None if other in (None, name) else await self.opener.service.load_invocation(self.key, other)
            if found is not None and found.seq > ended.seq:
                why = f"{other!r} has begun since: only the newest of a session can be gone on with"
                advice = "send a new message, or rewind to before that one"
                raise NotResumableError(msg.format(repr(name), ended.status, why, advice))

    async def _open_new(self, request: RunRequest) -> SessionWriter:
        writer = await self.opener.open(self.key, request, auto_create=self.auto_create)
        try:
            if not await self._is_free(request.invocation_id):
                msg = f"another run has just begun the invocation {request.invocation_id!r}; leave invocation_id out"
                raise InvalidMessageError(f"{msg}, or go on with it without a message")
        except BaseException:
            with trio.CancelScope(shield=True):
                await writer.finish(None)
            raise
        return writer

    async def _look(self, request: RunRequest) -> RunRequest:
        """
        Find the invocation that is named, or whose questions are answered, before the session is waited for.

        Return *request* as that of a run which resumes it; or which begins the one that is named, if there is none and
        the message answers nothing.
        """
        service, invocation_id = self.opener.service, self.named
        message = request.message
        answers = message.get_function_responses()
        if isinstance(invocation_id, str):
            check_text(invocation_id, "invocation_id")
            if message.content is not None and not answers and await self._is_free(invocation_id):
                return _beginning(request, invocation_id)
        named = None if invocation_id is None else await find_invocation(service, self.key, invocation_id)
        if message.content is not None and len(answers) < len(message.content.parts):
            if named is not None and named.status.has_ended:
                msg = f"the invocation {invocation_id!r} has ended ({named.status}); send a new message without its id"
                if named.status is not InvocationStatus.COMPLETED:
                    msg += ", or the id without a message to go on with it"
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
            if any("remember" in answer.response for answer in answers):
                from ._remembered import remembering  # few answers are for more than one call

                message = remembering(message, asked, answers)
        assert invocation_id is not None
        resumed = await find_invocation(service, self.key, invocation_id)
        message = changed(message, invocation_id=invocation_id, branch=branch)
        return attrs.evolve(
            request, invocation_id=invocation_id, message=message, resumes=resumed, is_looked_up=True
        )

    async def _is_free(self, invocation_id: str) -> bool:
        return await self.opener.service.load_invocation(self.key, invocation_id) is None

    async def _questions(self, answers: Sequence[FunctionResponse]) -> list[PendingCall]:
        """The open questions that *answers* are for, each checked for its form."""
        key = self.key
        pending = await self.opener.service.list_pending(
            app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
        )
        return await check_answers(self.program, pending, answers, str(key))


async def check_answers(
    program: Program, pending: Sequence[PendingCall], answers: Sequence[FunctionResponse], where: str
) -> list[PendingCall]:
    """
    Return the questions of those *pending* that *answers* are for.

    Raises:
        InvalidMessageError: There is no such question, or it is not answered in its form.
    """
    by_id = {question.call_id: question for question in pending}
    asked = []
    for answer in answers:
        question = by_id.get(id_of(answer))
        if question is None:
            known = ", ".join(by_id) or "none"
            msg = f"expected answers to open questions of {where} ({known}), found one to {answer.id!r}"
            raise InvalidMessageError(f"{msg}; it may have been answered already")
        check_answer(question, answer)
        if question.kind == "credential" and answer.response["result"]:
            from ._credentials import check_credential  # few runs use credentials

            await check_credential(program.services.credential, question, program.env.now())
        asked.append(question)
    return asked


def _beginning(request: RunRequest, invocation_id: str) -> RunRequest:
    """*request* as that of a run which begins the invocation of this id."""
    if not _OWN_ID.fullmatch(invocation_id):
        problem = f"expected up to 64 letters, digits, '_' and '-' for a new invocation, found {shown(invocation_id)}"
        raise InvalidValueError("invocation_id", problem)
    message = changed(request.message, id=f"{invocation_id}-0", invocation_id=invocation_id)
    return attrs.evolve(request, invocation_id=invocation_id, message=message, is_looked_up=True)


def _finished(
    writer: SessionWriter, invocation: Invocation, request: RunRequest
) -> InvalidMessageError | FinishedError:
    """What to raise where the invocation is completed."""
    live = writer.live
    if request.message.actions.state_delta or request.temp:
        msg = f"the invocation {invocation.invocation_id!r} has ended ({invocation.status}), so that its "
        advice = "send it with a new message, or append an event that has it: session_service.append_event"
        return InvalidMessageError(f"{msg}state_delta would be lost; {advice}")
    recorded = reversed(live.window(invocation.seq))
    mine = (event for event in recorded if event.invocation_id == invocation.invocation_id)
    asked = request.run_config.get_session_config
    shown = GetSessionConfig(after_seq=live.run_start_seq(None) - 1) if asked is None else asked
    answer = next(filter(is_answer_of_run, mine), None)
    return FinishedError(Run(invocation.invocation_id, live.snapshot(shown), None, invocation.status, answer))
