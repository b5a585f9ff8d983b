"""
Requests to servers of others: for signing in, and for tools that are made from documents.

`_web_client` sends them, on httpx2; it is loaded by what makes one, such as `Env.web`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

__all__ = ["Web", "WebAnswer", "WebFailedError"]


class WebFailedError(Exception):
    """There is no answer. The message says what kind of failure it was, and *is_timeout* whether time was up."""

    def __init__(self, message: str, *, is_timeout: bool = False) -> None:
        super().__init__(message)
        self.is_timeout = is_timeout


class WebAnswer(NamedTuple):
    """What a server has answered."""

    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes
    is_cut: bool = False
    """Whether the body was longer, and this is its beginning."""


class Web(Protocol):
    """Sends requests, and keeps connections until `aclose`; each `trio.run` has its own."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        timeout_s: float,
        bytes_max: int,
    ) -> WebAnswer:
        """
        Send a request and return the answer, of which at most so many bytes of the body are read.

        On a connection that was kept, and that the server closes before it has answered, a request that may be sent
        twice is sent once more.

        Raises:
            WebFailedError: There was no connection, or no whole answer in time.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections when the requests that are going on have ended; the next request opens others."""
