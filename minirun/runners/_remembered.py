"""What was answered for more than one call: `Runner.remembered` lists it and takes it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._json import brief
from .._values import changed
from ..errors import ConfigurationError, InvalidMessageError, SessionNotFoundError
from ..events import Event, EventActions
from ..sessions import GetSessionConfig, PendingCall, Session
from ..sessions._recovery import INTERRUPTED_MESSAGE
from ..sessions._remembered import RememberedAnswer, entry_of, key_of, remembered_in
from ..types import FunctionResponse

if TYPE_CHECKING:
    from ._runner import Runner

__all__ = ["RememberedAnswers", "remembering"]


class RememberedAnswers:
    """The permissions that users of a runner's app have given for later calls, too."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def list(self, *, user_id: str, session_id: str) -> Sequence[RememberedAnswer]:
        """
        Return what counts in a session: its own, then what the user has said in any.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        return remembered_in((await self._session(user_id, session_id)).state)

    async def forget(self, answer: RememberedAnswer, *, user_id: str, session_id: str) -> None:
        """
        Take *answer* back: later calls are asked about again. It is an event of this session, also for the user's.

        What is not there (any more) is taken back already.

        Raises:
            SessionNotFoundError: There is no such session.
            SessionBusyError: A run is writing it.
        """
        if not isinstance(answer, RememberedAnswer):
            raise ConfigurationError(f"expected one of what `list` returns, found {brief(answer)}")
        session = await self._session(user_id, session_id)
        if answer.key in session.state:
            event = Event(author="user", actions=EventActions(state_removed=[answer.key]))
            await self._runner.session_service.append_event(session, event)

    async def _session(self, user_id: str, session_id: str) -> Session:
        runner, few = self._runner, GetSessionConfig(num_recent_events=1)
        place = {"app_name": runner.app_name, "user_id": user_id, "session_id": session_id}
        session = await runner.session_service.get_session(**place, config=few)
        if session is None:
            raise SessionNotFoundError(f"there is no session {session_id!r} of user {user_id!r}; nothing is remembered")
        return session


def remembering(message: Event, asked: Sequence[PendingCall], answers: Sequence[FunctionResponse]) -> Event:
    """
    Return the *message* with the state that says what its *answers* are to be remembered for.

    Raises:
        InvalidMessageError: One would have no effect: it says whether a call is made again that was cut off.
    """
    delta = dict(message.actions.state_delta)
    for question, answer in zip(asked, answers, strict=True):
        scope = answer.response.get("remember")
        if question.kind != "confirmation" or scope is None:
            continue
        if question.hint == INTERRUPTED_MESSAGE:
            msg = f"expected no `remember` in the answer to {question.call_id!r}, found {scope!r}: it says whether one "
            raise InvalidMessageError(msg + "call that was cut off is made again; answer it alone")
        allowed = question.args if answer.response.get("args") is None else answer.response["args"]
        args = None if answer.response.get("any_args") else allowed
        delta[key_of(scope, question.author, question.tool, args)] = entry_of(question.author, question.tool, args)
    return changed(message, actions=changed(message.actions, state_delta=EventActions(state_delta=delta).state_delta))
