"""
Permission for one call: what somebody outside is asked about it, and what was answered.

A call may be asked about more than once: as `confirm` before it is made, and after each crash whether to make it again
(`again0`, `again1`, …). The id of a question follows from the invocation, the call, and which question it is. So every
process asks the same one, and whoever has asked it already does not ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from .._json import thaw
from ..events import Event, EventActions
from ..flows._questions import REQUEST_CONFIRMATION
from ..runtime import ToolContext
from ..runtime._context import ToolConfirmation
from ..runtime._core import derived_id
from ..runtime._failure import Pause
from ..types import Content, FunctionCall, Part

__all__ = ["Permission"]


class Permission:
    """The questions about one call, and their answers in the log."""

    def __init__(self, context: ToolContext, call: FunctionCall) -> None:
        self._context = context
        self._call = call

    async def given(
        self, what: str, question: ToolConfirmation, args: Mapping[str, Any] | None = None
    ) -> ToolConfirmation:
        """
        Return what was answered; *args* are what the call would be made with, if not its own.

        Raises:
            Pause: Nothing was answered yet; it was asked.
        """
        answer = self.answer_to(what)
        if answer is None:
            await self.ask(what, question, args)
            raise Pause("for a confirmation")
        return attrs.evolve(question, confirmed=answer.get("confirmed") is True, payload=answer.get("payload"))

    def answer_to(self, what: str) -> Mapping[str, Any] | None:
        """The answer to this question, if there is one."""
        journal = self._context._core.journal
        response = None if journal is None else journal.response_to(self._question_id(what))
        return None if response is None else response.response

    def is_fresh(self, what: str) -> bool:
        """Whether this question has just been answered: this run goes on from there."""
        journal = self._context._core.journal
        return journal is not None and self._question_id(what) in journal.fresh

    def allowed_args(self, args: dict[str, Any]) -> dict[str, Any]:
        """What somebody has allowed the call to be made with, whatever callbacks make of it since; else *args*."""
        journal = self._context._core.journal
        asked = None if journal is None else journal.find(f"{self._question_id('confirm')}-asked")
        if asked is None:
            return args
        return dict(thaw(asked.get_function_calls()[0].args["originalFunctionCall"]["args"]))

    async def ask(self, what: str, question: ToolConfirmation, args: Mapping[str, Any] | None = None) -> None:
        """Ask somebody outside about this call, unless they were asked already."""
        question_id, call_id = self._question_id(what), self._call.id or ""
        if question_id in self._context._core.live.open_calls:
            return
        told = {"hint": question.hint, "confirmed": False, "payload": question.payload}
        original = {"id": call_id, "name": self._call.name, "args": self._call.args if args is None else args}
        asked = {"originalFunctionCall": original, "toolConfirmation": told}
        part = Part(function_call=FunctionCall(id=question_id, name=REQUEST_CONFIRMATION, args=asked))
        actions = EventActions(suspended_calls=[call_id])
        content = Content(role="model", parts=[part])
        await self._context._emit(
            Event(id=f"{question_id}-asked", content=content, long_running_tool_ids=[question_id], actions=actions)
        )

    def _question_id(self, what: str) -> str:
        return f"q-{derived_id(self._context.invocation_id, self._call.id, what)}"
