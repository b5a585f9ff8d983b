"""The options that every tool has, for type checkers: what they mean stands in `BaseTool`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypedDict

from ._base import OnInterrupted
from ._retry import RetryConfig

__all__ = ["ToolOptions"]


class ToolOptions(TypedDict, total=False):
    """The keyword arguments that a subclass hands on to `BaseTool`."""

    timeout_s: float | None
    retry: RetryConfig | None
    retries: int | None
    max_concurrency: int | None
    on_interrupted: OnInterrupted
    require_confirmation: bool | Callable[..., bool | Awaitable[bool]]
    sequential: bool
