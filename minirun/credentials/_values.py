"""
What a credential is, and what a question for one says.

Rules of this file:

1.  A secret is read on purpose, by `AuthCredential.reveal`, and in no other way: no text made of a credential has it,
    nor can it be copied into JSON, a state, an event or a pickle.
2.  An `AuthConfig` says which credential is meant, and holds nothing that is secret: it stands in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, SupportsIndex

import attrs

from .._arguments import refuse_unknown
from .._json import Secret, check_id, check_text, finite, shown
from ..errors import InvalidValueError, SecretError
from ._scheme import AuthScheme

__all__ = ["AuthConfig", "AuthCredential", "CredentialKey", "covers", "credential_key", "unusable"]

# By scheme: the names of what a credential has to hold, the one that `reveal()` returns first, and of what it may hold.
SCHEMES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        "api_key": (("api_key",), ()),
        "bearer": (("token",), ()),
        "basic": (("password", "username"), ()),
        "oauth2": (("access_token",), ("refresh_token", "client_id", "client_secret", "scope", "issuer")),
        "client": (("client_id",), ("client_secret",)),
        "custom": ((), ()),
    }
)


def _checked_id(name: str, value: object) -> str:
    if isinstance(value, Secret):
        raise SecretError(name, "expected a name, found a credential")
    return check_id(name, value)


def _checked_scheme(value: object) -> str:
    if not isinstance(value, str) or value not in SCHEMES:
        problem = f"expected one of {', '.join(SCHEMES)}, found {shown(value)}"
        raise InvalidValueError("scheme", problem)
    return str.__str__(value)


# --- what is asked for ------------------------------------------------------------------------------------------------


def _text(name: str, value: object) -> str:
    if isinstance(value, Secret):
        raise SecretError(name, "expected a text for everybody to see, found a credential")
    if not isinstance(value, str):
        raise InvalidValueError(name, f"expected a text, found {shown(value)}")
    return check_text(str.__str__(value), name)


def _checked_key(value: object) -> str:
    return _checked_id("credential_key", value)


def _hint(value: object) -> str:
    return _text("hint", value)


def _auth_uri(value: object) -> str:
    return _text("auth_uri", value)


def _state(value: object) -> str:
    return _text("state", value)


def _scopes(value: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise InvalidValueError("scopes", f"expected a list of texts, found {shown(value)}")
    return tuple(_text("scopes", scope) for scope in value)


@refuse_unknown
@attrs.frozen(repr=False)
class AuthConfig:
    """
    Which credential is needed, and what to tell the person asked for it. It is stored with the question: no secrets.

    Args:
        credential_key: What the user's credential is kept under.
        scheme: What it consists of: `"api_key"`, `"bearer"` (a token), `"basic"` (a username and a password),
            `"oauth2"` (an access token, and what renews it), `"client"` (what an application is known by) or
            `"custom"` (texts of any names). With an *auth_scheme* it is `"oauth2"`.
        hint: What to tell the person who is asked.
        scopes: What it is to allow, as the one who issues it calls that.
        auth_uri: Where to get it, as a link for that person. In a question to sign in: where to do that.
        state: In a question to sign in: what the browser comes back with, by which the question is found again.
        auth_scheme: How users sign in. minirun then gets the tokens, renews them, and asks again when that fails.
        raw_auth_credential: What the application is known by there: `AuthCredential("client", client_id="...",
            client_secret="...")`. None: it registers itself, if the server lets it (RFC 7591). No question has it.

    Raises:
        InvalidValueError: One of them is not of its form, or has no effect.
    """

    auth_scheme: AuthScheme | None = attrs.field(default=None, kw_only=True)  # first, as `scheme` depends on it
    credential_key: str = attrs.field(converter=_checked_key)
    scheme: str = attrs.field(
        default=attrs.Factory(lambda self: "api_key" if self.auth_scheme is None else "oauth2", takes_self=True),
        converter=_checked_scheme,
    )
    hint: str = attrs.field(default="", converter=_hint)
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_scopes)
    auth_uri: str = attrs.field(default="", converter=_auth_uri)
    state: str = attrs.field(default="", converter=_state, kw_only=True)
    raw_auth_credential: AuthCredential | None = attrs.field(default=None, kw_only=True, hash=False)

    def __attrs_post_init__(self) -> None:
        """Check what belongs together."""
        _check_signing_in(self)

    def __repr__(self) -> str:
        # What is not there yet is left out: one that is refused is shown half made by tracebacks with locals.
        given = ((field.name, getattr(self, field.name, None)) for field in attrs.fields(AuthConfig))
        return f"AuthConfig({', '.join(f'{name}={value!r}' for name, value in given if value)})"

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The names of what the credential has to hold; empty if the scheme leaves that open."""
        return SCHEMES[self.scheme][0]

    def to_dict(self) -> dict[str, Any]:
        """It as JSON values, as questions have it; what is empty is left out, and how to sign in."""
        fields = {
            "credentialKey": self.credential_key,
            "scheme": self.scheme,
            "hint": self.hint,
            "scopes": list(self.scopes),
            "authUri": self.auth_uri,
            "state": self.state,
        }
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> AuthConfig:
        """
        Read it from JSON values.

        Raises:
            InvalidValueError: They are not those of an AuthConfig, or there are others.
        """
        names = {"credentialKey": "credential_key", "authUri": "auth_uri"}
        unknown = fields.keys() - {"credentialKey", "scheme", "hint", "scopes", "authUri", "state"}
        if unknown or "credentialKey" not in fields:
            problem = f"expected a credentialKey, and nothing unknown, found the fields {', '.join(sorted(fields))}"
            raise InvalidValueError("authConfig", problem)
        return cls(**{names.get(name, name): value for name, value in fields.items()})


_EXPECTED_CLIENT = (
    'expected what the application is known by: AuthCredential("client", client_id=..., client_secret=...)'
)


def _check_signing_in(config: AuthConfig) -> None:
    """Raise InvalidValueError unless what says how to sign in fits the rest, and each part has an effect."""
    scheme, client = config.auth_scheme, config.raw_auth_credential
    if scheme is None:
        if client is not None:
            problem = "expected an auth_scheme beside it, which says how to sign in, found none; leave it out"
            raise InvalidValueError("raw_auth_credential", problem)
        return
    if not isinstance(scheme, AuthScheme):
        raise InvalidValueError("auth_scheme", f"expected an AuthScheme, found {shown(scheme)}")
    if config.scheme != "oauth2":
        raise InvalidValueError("scheme", f"expected 'oauth2' beside an auth_scheme, found {shown(config.scheme)}")
    for name in ("auth_uri", "state"):
        if getattr(config, name):
            raise InvalidValueError(name, "expected nothing beside an auth_scheme, which says where; leave it out")
    is_secret = isinstance(client, AuthCredential) and "client_secret" in client.names
    if is_secret and not (scheme.issuer or scheme.token_endpoint):
        problem = "expected it beside a client_secret, which a resource does not say where to send, found none"
        raise InvalidValueError("issuer", f"{problem}; write AuthScheme(issuer=..., resource=...)")
    if client is None and not scheme.has_person:
        raise InvalidValueError("raw_auth_credential", f"{_EXPECTED_CLIENT}, found none")
    if client is not None and not (isinstance(client, AuthCredential) and client.scheme == "client"):
        kind = f"one of the scheme {client.scheme!r}" if isinstance(client, AuthCredential) else type(client).__name__
        problem = f"{_EXPECTED_CLIENT}, found {kind} (not shown: it may be secret)"
        raise InvalidValueError("raw_auth_credential", problem)


# --- what is kept -----------------------------------------------------------------------------------------------------


class AuthCredential(Secret):
    """
    A secret of a user: `AuthCredential("api_key", api_key="...")`. It never changes.

    Only `reveal` shows what it holds. Neither `repr` nor `str` do, it is refused wherever something is stored or sent
    as JSON (SecretError), and it cannot be pickled.

    A run that was given one takes what it holds, but for `username`, `client_id`, `scope` and `issuer`, out of what it
    says. A secret of fewer than 8 characters is *not* found as a part of a text, only where it is all of it: a short
    password that stands in a URL or a message is stored and logged. A number is found if it is a secret of 6 digits or
    more.

    Args:
        scheme: As that of an `AuthConfig`.
        expires_at: From when on it does not work any more, in seconds since the epoch. None: that is not known.
        values: What it holds, by name: `api_key`; `token`; `username` and `password`; `access_token`, and maybe
            `refresh_token`, `client_id`, `client_secret`, `scope` and `issuer`; `client_id`, and maybe `client_secret`,
            for `"client"`; any names but `scheme` and `expires_at` for `"custom"`. Texts that are not empty.

    Raises:
        InvalidValueError: These are not the values of that scheme. The message does not show them.
    """

    __slots__ = ("_expires_at", "_scheme", "_values")
    _expires_at: float | None
    _scheme: str
    _values: Mapping[str, str]

    def __init__(self, /, scheme: str, *, expires_at: float | None = None, **values: str) -> None:
        object.__setattr__(self, "_values", dict(values))
        values.clear()  # who shows the frames of what is raised here shows no secret
        if not isinstance(scheme, str) or scheme not in SCHEMES:
            scheme = ""
            problem = f"expected one of {', '.join(SCHEMES)}, found something else (not shown: it may be secret)"
            raise InvalidValueError("scheme", problem)
        object.__setattr__(self, "_scheme", str.__str__(scheme))
        at = None if expires_at is None else finite(expires_at)
        if expires_at is not None and at is None:
            kind, expires_at = type(expires_at).__name__, None
            problem = f"expected seconds since the epoch, found {kind} (not shown: it may be secret)"
            raise InvalidValueError("expires_at", problem)
        problem = _problem_of(self)
        if problem:
            raise InvalidValueError("AuthCredential", f"{problem} (values are not shown: they may be secret)")
        object.__setattr__(self, "_expires_at", at)

    @property
    def scheme(self) -> str:
        """What it consists of."""
        return self._scheme

    @property
    def expires_at(self) -> float | None:
        """From when on it does not work any more, in seconds since the epoch; None if that is not known."""
        return self._expires_at

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what it holds."""
        return tuple(self._values)

    def has_expired(self, now: float) -> bool:
        """Whether it does not work any more at *now*, in seconds since the epoch."""
        return self._expires_at is not None and self._expires_at <= now

    def reveal(self, name: str | None = None) -> str:
        """
        Return a secret in plain text: the one of this *name*, by default the main one of the scheme.

        Use it where it is needed, and keep it in no variable that lives longer.

        Raises:
            InvalidValueError: It has none of this name; or no name was given, and the scheme has no main one.
        """
        main = SCHEMES[self._scheme][0][:1] or (self.names if len(self.names) == 1 else ())
        found = name if name is not None else next(iter(main), None)
        if found is None or found not in self._values:
            problem = f"expected one of {', '.join(self.names)}, found {'none' if name is None else shown(name)}"
            raise InvalidValueError("name", problem)
        return self._values[found]

    def __repr__(self) -> str:
        if not hasattr(self, "_expires_at"):  # the last to be set: it is refused, and a traceback shows its locals
            return "AuthCredential(...)"
        hidden = ", ".join(f"{name}=***" for name in self._values)
        expires = "" if self._expires_at is None else f", expires_at={self._expires_at}"
        return f"AuthCredential({self._scheme!r}, {hidden}{expires})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not AuthCredential:
            return NotImplemented
        mine, its = (self._scheme, self._values, self._expires_at), (other._scheme, other._values, other._expires_at)
        return mine == its

    __hash__ = None  # type: ignore[assignment]  # it is nobody's key

    def __setattr__(self, name: str, value: object) -> NoReturn:
        msg = "a credential does not change; make another one"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        msg = "a credential does not change; make another one"
        raise AttributeError(msg)

    def __copy__(self) -> AuthCredential:
        return self

    def __deepcopy__(self, memo: object) -> AuthCredential:
        return self

    def __getstate__(self) -> NoReturn:
        self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        msg = "expected something that may be stored, found a credential; a credential service keeps it"
        raise SecretError("AuthCredential", msg)


def _problem_of(credential: AuthCredential) -> str:
    """What is wrong with the values of a credential; empty if nothing is."""
    scheme, values = credential._scheme, credential._values
    required, optional = SCHEMES[scheme]
    missing = [name for name in required if name not in values]
    unknown = [] if scheme == "custom" else [name for name in values if name not in (*required, *optional)]
    if missing or unknown or not values:
        expected = " and ".join(required) or "at least one value"
        may = f", and maybe {', '.join(optional)}" if optional else ""
        return f"expected {expected}{may} for {scheme!r}, found {', '.join(values) or 'none'}"
    for name, value in values.items():
        if type(value) is not str or not value:
            return f"expected {name} to be a text that is not empty, found {type(value).__name__}"
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            return f"expected {name} to be a text that UTF-8 can write, found a lone surrogate"
    return ""


def unusable(config: AuthConfig, credential: AuthCredential | None, now: float) -> str:
    """Why *credential* is not what *config* asks for; empty if it is."""
    if credential is None:
        return "there is none"
    if credential.scheme != config.scheme:
        return f"the one that is kept is of the scheme {credential.scheme!r}, and {config.scheme!r} is asked for"
    if not covers(config, credential):
        return "the one that is kept is for other scopes"
    is_renewed = (config.auth_scheme is not None or config.state) and "refresh_token" in credential.names
    return "the one that is kept has expired" if credential.has_expired(now) and not is_renewed else ""


def covers(config: AuthConfig, credential: AuthCredential) -> bool:
    """Whether *credential* was asked for with the scopes of *config*; also if it does not say with which."""
    return "scope" not in credential.names or {*config.scopes} <= {*credential.reveal("scope").split()}


# --- where it is kept -------------------------------------------------------------------------------------------------


@attrs.frozen(order=True)
class CredentialKey:
    """What a credential is kept under: it belongs to one user of one app."""

    app_name: str
    user_id: str
    credential_key: str


def credential_key(app_name: object, user_id: object, credential_key: object) -> CredentialKey:
    """
    Return the key of a credential; space around the names does not count.

    Raises:
        InvalidValueError: One of the three cannot be a name.
    """
    return CredentialKey(
        _checked_id("app_name", app_name),
        _checked_id("user_id", user_id),
        _checked_id("credential_key", credential_key),
    )
