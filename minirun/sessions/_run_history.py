"""What a run sees of its session's past, and what the prompts of its agents show of it."""

from __future__ import annotations

from ..events import Event
from ..flows._prompts import Prompts
from ..types import Content, Part
from ._live import LiveSession
from ._session import GetSessionConfig

__all__ = ["History"]


class History:
    """
    The past of one run.

    *asked_for* says which events the run asks for, *compacts* whether what prompts do not show is in a summary, and
    nowhere else.
    """

    __slots__ = ("_compacts", "_prompts", "live", "message_seq", "start_seq")

    def __init__(
        self, live: LiveSession, asked_for: GetSessionConfig | None, prompts: Prompts, *, compacts: bool
    ) -> None:
        self.live = live
        self._prompts = prompts
        self._compacts = compacts
        self.start_seq = live.run_start_seq(asked_for)
        """From which event on `session.events` shows the past: the run's message is not one of those it asks for."""
        self.message_seq = live.revision + 1
        """Where the message of the invocation stands, or will stand."""

    def begin_with(self, message: Event) -> None:
        """Take note of the stored message that the invocation began with."""
        assert message.seq is not None
        self.message_seq = message.seq
        self.start_seq = min(self.start_seq, message.seq)

    @property
    def prompt_seq(self) -> int:
        """From which event on prompts show the past; what stands before is summed up, or was not asked for."""
        seq = self.live.prompt_seq(whole=self._compacts)
        return self.start_seq if seq is None else seq

    @property
    def opening(self) -> Content | None:
        """What prompts show of what stands before that."""
        summary = self.live.compaction
        if summary is None:
            return None
        return Content(role="user", parts=[Part(text=self._prompts.summary.format(summary=summary.content.text))])

    @property
    def is_summed_up(self) -> bool:
        """Whether a summary covers the message of the invocation: its agents had come to their end before."""
        summary = self.live.compaction
        return summary is not None and summary.end_seq >= self.message_seq
