"""
Who may ask: what the document wants of an operation, and which of the program's credentials that is.

A requirement is a list of alternatives, any one of which is enough; all the schemes of an alternative belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from ..._json import brief
from ...credentials import AuthConfig
from ...errors import ConfigurationError
from ._document import Document, UnreadableError

__all__ = ["Auth", "Security", "SecurityScheme", "checked_auth", "chosen", "kind_of", "security_of"]

Auth: TypeAlias = AuthConfig | Mapping[str, AuthConfig]
"""One credential for all schemes of its kind, or one for each scheme, by its name in the document."""


class SecurityScheme(NamedTuple):
    """How the server knows its users."""

    kind: Literal["api_key", "bearer", "basic", "other"]
    place: Literal["query", "header", "cookie"] = "header"
    name: str = "authorization"
    label: str = ""  # what the document calls it

    @property
    def spot(self) -> tuple[str, str]:
        """Where it stands in a request; nothing else can stand there."""
        return self.place, self.name.lower() if self.place == "header" else self.name


Security: TypeAlias = Sequence[Sequence[SecurityScheme]] | None
"""Alternatives; none at all: everybody may ask; None: the document does not say."""


def security_of(document: Document, operation: Mapping[str, Any]) -> Security:
    """Return what an operation wants."""
    said = operation.get("security", document.root.get("security"))
    if not isinstance(said, list):
        return None
    alternatives = [each for each in said if isinstance(each, dict)]
    return tuple(tuple(_scheme(document, name) for name in alternative) for alternative in alternatives)


def _schemes(document: Document) -> Mapping[str, Any]:
    components = document.root.get("components")
    found = components.get("securitySchemes") if isinstance(components, dict) else None
    return found if isinstance(found, dict) else {}


def _scheme(document: Document, label: str) -> SecurityScheme:
    """The scheme of this name; an unknown one is one that no credential fits."""
    try:
        found = document.resolved(_schemes(document)[label])
    except (UnreadableError, KeyError):
        return SecurityScheme("other", label=label)
    kind, place, name = found.get("type"), found.get("in"), found.get("name")
    if kind == "apiKey" and place in ("query", "header", "cookie") and isinstance(name, str) and 0 < len(name) <= 200:
        return SecurityScheme("api_key", place, name, label)
    said = str(found.get("scheme", "")).lower() if kind == "http" else ""
    if kind in ("oauth2", "openIdConnect") or said == "bearer":
        return SecurityScheme("bearer", label=label)
    return SecurityScheme("basic" if said == "basic" else "other", label=label)


def kind_of(config: AuthConfig) -> str:
    """What a credential is to an API: a token is one, however it was got."""
    return "bearer" if config.scheme == "oauth2" else config.scheme


def checked_auth(value: object, document: Document) -> Auth | None:
    """
    Return the credentials that a program gives.

    Raises:
        ConfigurationError: They are none, or have no place in the document.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {label: _checked_one(config, label, document) for label, config in value.items()}
    config = _checked_config(value)
    if config.scheme == "api_key" and all(_scheme(document, each).kind != "api_key" for each in _schemes(document)):
        msg = "expected a document that says where a key is sent (a securityScheme of the type apiKey), found none"
        raise ConfigurationError(f"{msg}; write headers=, or an AuthConfig of the scheme 'bearer'")
    return config


def _checked_config(value: object) -> AuthConfig:
    if not isinstance(value, AuthConfig) or value.scheme in ("custom", "client"):
        msg = "expected auth to be an AuthConfig of the scheme 'oauth2', 'bearer', 'basic' or 'api_key', or such by "
        raise ConfigurationError(f"{msg}the names of the document's securitySchemes, found {brief(value)}")
    return value


def _checked_one(value: object, label: object, document: Document) -> AuthConfig:
    config = _checked_config(value)
    scheme = _scheme(document, label) if isinstance(label, str) else None
    if scheme is None or scheme.kind != kind_of(config):
        there = ", ".join(brief(each, 60) for each in list(_schemes(document))[:20]) or "none"
        what = "none of that name" if label not in _schemes(document) else "one that such a credential does not fit"
        msg = f"expected auth[{brief(label)}], of the scheme {config.scheme!r}, to be for a securityScheme of the "
        raise ConfigurationError(f"{msg}document (it has {there}), found {what}")
    return config


def chosen(security: Security, auth: Auth | None) -> list[tuple[SecurityScheme, AuthConfig]]:
    """
    Return what a request is sent with: the first alternative for which there is everything.

    Where there is none, it is what there is for the first one that has something: the rest is the business of the
    program's headers, and the server has the last word. Where the document says nothing, a token or password stands
    where these always do.
    """
    if auth is None:
        return []
    if security is None:
        if not isinstance(auth, AuthConfig) or auth.scheme == "api_key":
            return []
        return [(SecurityScheme("basic" if auth.scheme == "basic" else "bearer"), auth)]
    parts: list[list[tuple[SecurityScheme, AuthConfig]]] = []
    for alternative in security:
        found = list(_given(alternative, auth))
        if found and len(found) == len(alternative) == len({scheme.spot for scheme in alternative}):
            return found
        parts.append(found)
    if () in security:  # nobody needs to be known
        return []
    first = next((found for found in parts if found), [])
    return list({scheme.spot: (scheme, config) for scheme, config in reversed(first)}.values())[::-1]


def _given(alternative: Sequence[SecurityScheme], auth: Auth) -> Iterator[tuple[SecurityScheme, AuthConfig]]:
    """The schemes for which there is a credential; one that is for all schemes of its kind is for the first of them."""
    kinds = set()
    for scheme in alternative:
        if isinstance(auth, Mapping):
            config = auth.get(scheme.label)
        else:
            config = auth if scheme.kind == kind_of(auth) and scheme.kind not in kinds else None
            kinds.add(scheme.kind)
        if config is not None:
            yield scheme, config
