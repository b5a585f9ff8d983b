"""
What servers of others fail with: those that users sign in to, and those that tools made from documents ask.

`minirun.errors` has these names; they are loaded when one of them is asked for. No message holds a token, a code or a
key, nor the address that a request went to.
"""

from __future__ import annotations

from .errors import MinirunError

__all__ = [
    "ApiConnectionError", "ApiError", "ApiTimeoutError", "AuthorizationError", "AuthorizationUnavailableError",
]


class ApiError(MinirunError):
    """
    The server that a tool asks has answered with an error, or with what cannot be used. The model is told.

    Args:
        message: What was expected, and what was found.
        status: The status of the HTTP response; None: there was none.
        retry_after_s: How long to wait before asking again, in seconds, as the server says; None: it does not.
    """

    def __init__(self, message: str = "", *, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class ApiConnectionError(ApiError, ConnectionError):
    """The connection could not be made, or was lost: what was asked for may have been done."""


class ApiTimeoutError(ApiError, TimeoutError):
    """The server did not answer in time: what was asked for may have been done."""


class AuthorizationError(MinirunError):
    """
    The server that users sign in to has refused, or has said what cannot be used.

    Args:
        message: What was expected, and what was found.
        code: The server's own word for it, such as `"invalid_client"`; None: there is none.
    """

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class AuthorizationUnavailableError(AuthorizationError, ConnectionError):
    """The server that users sign in to cannot be reached now. What is kept stays; try again later."""
