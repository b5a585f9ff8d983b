"""What a run tells code that is not in its task: in another thread, or in an asyncio loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..events import Event
from ..runtime import Run
from ..types import UsageMetadata

if TYPE_CHECKING:
    from ..sessions import InvocationStatus, PendingCall

__all__ = ["EnteredRun"]


class EnteredRun:
    """What a `Run` tells, from the moment on when it is entered: `_runs` has it then."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    @property
    def invocation_id(self) -> str | None:
        """The id of the invocation; None before it was entered."""
        return self._runs[0].invocation_id if self._runs else None

    @property
    def status(self) -> InvocationStatus | None:
        """How far the invocation has come; None before it was entered."""
        return self._runs[0].status if self._runs else None

    @property
    def answer(self) -> Event | None:
        """The answer of the run so far, or None."""
        return self._runs[0].answer if self._runs else None

    @property
    def output(self) -> Any:
        """The `output` of the answer, as `Run.output` has it, or None."""
        return self._runs[0].output if self._runs else None

    @property
    def usage(self) -> UsageMetadata:
        """What the models of the invocation say they have used so far."""
        return self._runs[0].usage if self._runs else UsageMetadata()

    @property
    def pending(self) -> list[PendingCall]:
        """The questions of the invocation that wait for an answer."""
        return self._runs[0].pending if self._runs else []
