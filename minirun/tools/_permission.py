"""
Permission for one call: what somebody outside is asked about it, and what was answered.

A call may be asked about more than once: as `confirm` before it is made, and after each crash whether to make it again
(`again0`, `again1`, …). The id of a question follows from the invocation, the call, and which question it is. So every
process asks the same one, and one that is asked already is not asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._json import thaw
from ..env import derived_id
from ..events import NO_REPLAY
from ..flows._questions import REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, REQUEST_INPUT, ToolConfirmation
from ..runtime import ToolContext
from ..runtime._failure import Pause
from ..runtime._questions import answer_to, is_answered_now, pose
from ..sessions._asking import Question
from ..sessions._recovery import INTERRUPTED_MESSAGE
from ..sessions._remembered import is_remembered
from ..types import FunctionCall, id_of
from ._attempts import Attempts
from ._base import BaseTool
from ._outcome import UNKNOWN, Failure

if TYPE_CHECKING:
    from ._call import ToolCall

__all__ = ["Permission"]

_NOT_ALLOWED = "the call was not allowed; it was not made"


class Permission:
    """The questions about one call, and their answers in the log."""

    def __init__(self, context: ToolContext, call: FunctionCall, tool: BaseTool) -> None:
        self._context = context
        self._call = call
        self._tool = tool

    async def to_make(self, args: Mapping[str, Any], *, is_required: bool) -> Failure | None:
        """
        Return why the call may not be made with *args*; None if it may.

        Raises:
            Pause: Nobody has answered yet.
        """
        asked = self._context._requested  # by a callback before it
        is_answered = self._answer_to("confirm") is not None
        if not (is_required or asked is not None or is_answered):
            return None
        if not is_answered and self.is_remembered(args):
            self._context._requested = None
            self._context.tool_confirmation = ToolConfirmation(confirmed=True)
            return None
        confirmation = await self._confirmation("confirm", asked or ToolConfirmation(), args)
        self._context.tool_confirmation = confirmation
        return None if confirmation.confirmed else self._refused("confirm", "rejected", _NOT_ALLOWED)

    async def to_make_again(self) -> Failure | None:
        """
        Return why a call that an earlier process may have made is not made again; None if it is.

        Raises:
            Pause: It waits, as it did then, or nobody has answered yet whether to make it.
        """
        replayer, call_id = self._context._invocation.replayer, id_of(self._call)
        assert replayer is not None, "only a resumed invocation has earlier calls"
        record, on_interrupted = replayer.record, self._tool.on_interrupted
        asked = record.questions(call_id)
        open_still = [name for question, name in asked.items() if question not in record.responses]
        if not {REQUEST_INPUT, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL}.isdisjoint(open_still):
            raise Pause("for an answer")
        times = sum(name == REQUEST_CONFIRMATION for name in asked.values())  # each crash is a question of its own
        fresh = not record.answered_now.isdisjoint(asked)  # it has waited for what has just been answered
        numbered = map("again{}".format, range(times))
        again = next((what for what in numbered if is_answered_now(self._context, self._question_id(what))), None)
        if again is None and (fresh or open_still or record.has_asked_inside(call_id)):
            return None
        if again is None and on_interrupted == "ask":
            again = f"again{times}"
        if on_interrupted == "rerun":
            return None
        if again is not None:
            args = self.allowed_args(dict(self._call.args))
            confirmation = await self._confirmation(again, ToolConfirmation(hint=INTERRUPTED_MESSAGE), args)
            if confirmation.confirmed:
                return None
            return self._refused(again, UNKNOWN, INTERRUPTED_MESSAGE)
        return Failure(UNKNOWN, INTERRUPTED_MESSAGE)

    def is_remembered(self, args: Mapping[str, Any]) -> bool:
        """Whether somebody has allowed such calls before, and they are not asked about any more."""
        return is_remembered(self._context._invocation.values, self._context.agent_name, self._call.name, args)

    async def ask_unless_remembered(self, call: ToolCall) -> None:
        """Ask about a call whose tool wants to be confirmed; if that is remembered, call the tool again at once."""
        asked = self._context._requested
        assert asked is not None
        if not self.is_remembered(self.edited_args()):
            return await self.ask("confirm", asked)
        self._context._requested, call.is_waiting = None, False
        self._context.tool_confirmation = ToolConfirmation(hint=asked.hint, confirmed=True)
        start, call.attempts = call.attempts.start, Attempts(self._context, self._tool)
        call.attempts.start = start
        await call.make()

    def edited_args(self) -> dict[str, Any]:
        """The arguments of the call as somebody has edited them who allowed it; its own if nobody has."""
        edited = self._edited()
        return dict(thaw(self._call.args if edited is None else edited))

    def _edited(self) -> Mapping[str, Any] | None:
        replayer, found = self._context._invocation.replayer, None
        asked = 0 if replayer is None else len(replayer.record.questions(id_of(self._call)))
        for what in ("confirm", *map("again{}".format, range(asked))):  # the latest that has any
            answer = self._answer_to(what) or {}
            found = answer.get("args", found)
        return found

    def allowed_args(self, args: dict[str, Any]) -> dict[str, Any]:
        """What somebody has allowed the call to be made with, whatever callbacks make of it since; else *args*."""
        if self._edited() is not None:
            return self.edited_args()
        asked = self._context._invocation.emitter.find(self._context, f"{self._question_id('confirm')}-asked")
        if asked is None:
            return args
        return dict(thaw(asked.get_function_calls()[0].args["originalFunctionCall"]["args"]))

    def _refused(self, what: str, kind: str, message: str) -> Failure:
        """Why the call is not made, with what was said about it."""
        said = (self._answer_to(what) or {}).get("message")
        return Failure(kind, f"{message}: {said}" if said else message)

    async def ask(self, what: str, question: ToolConfirmation, args: Mapping[str, Any] | None = None) -> None:
        """Ask somebody outside about this call, made with *args* if not its own, unless they were asked already."""
        question_id, call_id = self._question_id(what), id_of(self._call)
        if question_id in self._context._invocation.live.open_calls:
            return
        told = {"hint": question.hint, "confirmed": False, "payload": question.payload}
        original = {"id": call_id, "name": self._call.name, "args": self._call.args if args is None else args}
        asked = {"originalFunctionCall": original, "toolConfirmation": told}
        about = Question(question_id, REQUEST_CONFIRMATION, asked, confirmations={call_id: told})
        await pose(self._context, about, replay=NO_REPLAY)

    async def _confirmation(self, what: str, question: ToolConfirmation, args: Mapping[str, Any]) -> ToolConfirmation:
        """Return what was answered; ask, and raise Pause, if nothing was."""
        answer = self._answer_to(what)
        if answer is None:
            await self.ask(what, question, args)
            raise Pause("for a confirmation")
        confirmed, payload = answer.get("confirmed") is True, answer.get("payload")
        return ToolConfirmation(hint=question.hint, confirmed=confirmed, payload=payload)

    def _answer_to(self, what: str) -> Mapping[str, Any] | None:
        return answer_to(self._context, self._question_id(what))

    def _question_id(self, what: str) -> str:
        return f"q-{derived_id(self._context.invocation_id, self._call.id, what)}"
