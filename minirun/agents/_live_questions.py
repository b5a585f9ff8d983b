"""Questions in a live run, which are answered while the conversation goes on, or when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..types import Content, FunctionCall

if TYPE_CHECKING:
    from ._live_talk import Talk

__all__ = ["answer_question", "tell_waiting"]


async def tell_waiting(talk: Talk, calls: Sequence[FunctionCall]) -> None:
    """Tell the model that somebody is asked about some of *calls*."""
    raise NotImplementedError


async def answer_question(talk: Talk, content: Content) -> None:
    """Take the user's answer to a question of this run."""
    raise NotImplementedError
