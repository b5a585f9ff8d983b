"""Ctrl-C as a cancellation: the command line is the host program, and signals are its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["cancelled_by_ctrl_c"]


@contextmanager
def cancelled_by_ctrl_c(scope: trio.CancelScope) -> Iterator[None]:
    """
    Let the first Ctrl-C cancel *scope*, and not be an exception somewhere in an agent, which would fail by it.

    The second one is what it always is: it ends what does not end by itself.
    """
    before: Any = signal.getsignal(signal.SIGINT)
    if not callable(before):  # it is ignored, as in a shell's background job
        yield
        return
    token = trio.lowlevel.current_trio_token()

    def cancel(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        token.run_sync_soon(scope.cancel)

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
