"""How a credential stands in the header `Authorization`."""

from __future__ import annotations

import base64

from ..errors import ConfigurationError
from ._quiet import Quiet
from ._values import AuthCredential

__all__ = ["authorization_of"]


def authorization_of(credential: AuthCredential) -> str:
    """
    Return the value of the header.

    Raises:
        ConfigurationError: It has no place there, or is none that a header can hold. The message does not show it.
    """
    if credential.scheme == "basic":
        pair = f"{credential.reveal('username')}:{credential.reveal('password')}"
        return Quiet(f"Basic {base64.b64encode(pair.encode()).decode()}")
    if credential.scheme not in ("bearer", "oauth2"):
        msg = f"expected a credential of the scheme 'bearer', 'oauth2' or 'basic', found {credential.scheme!r}"
        raise ConfigurationError(msg)
    token = Quiet(credential.reveal())
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigurationError("expected a token that a header can hold, found another (not shown: it is secret)")
    return Quiet(f"Bearer {token}")
