"""
What a model's provider fails with, as one family, whatever the provider.

`minirun.errors` has these names; they are loaded when one of them is asked for. Adapters raise them, and each says what
can be known of the failure: the HTTP status, how long to wait, and the provider's name for the request.
"""

from __future__ import annotations

from .errors import FatalError, MinirunError

__all__ = [
    "CassetteError", "ContextTooLongError", "ModelAuthenticationError", "ModelConnectionError", "ModelError",
    "ModelOverloadedError", "ModelRateLimitedError", "ModelRefusedError", "ModelRequestError", "ModelTimeoutError",
]


class ModelError(MinirunError):
    """
    A model, or its provider, has failed. The base of this family; raised itself where nothing else fits.

    Args:
        message: What was expected, what was found, and what to do.
        status: The status of the HTTP response; None: there was none.
        retry_after_s: How long to wait before asking again, in seconds, as the provider says; None: it does not.
        request_id: The provider's name for the request, for its support.
        has_begun: Whether part of the answer had come by then.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        has_begun: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.has_begun = has_begun


class ModelRateLimitedError(ModelError):
    """Too many requests, or tokens, for now; `retry_after_s` may say when there is room again."""


class ModelOverloadedError(ModelError):
    """The provider could not serve the request, through no fault of the request: a status from 500 up."""


class ModelTimeoutError(ModelError, TimeoutError):
    """The provider did not answer, or did not go on, in time."""


class ModelConnectionError(ModelError, ConnectionError):
    """The connection could not be made, or was lost before the answer had ended."""


class ModelRefusedError(ModelError):
    """The provider's policy forbids the question or the answer."""


class ModelAuthenticationError(ModelError):
    """The key was not accepted, or may not use this model: 401 or 403."""


class ContextTooLongError(ModelError):
    """The conversation has more tokens than the model can take."""


class ModelRequestError(ModelError):
    """The provider has found fault with the request: any other status from 400 to 499."""


class CassetteError(FatalError):
    """A cassette is missing, damaged or cannot be written, or a `RecordedLlm` got a request that is not recorded."""
