"""
What artifacts are called, and what is said of their versions.

Names are relative paths for every service, also where they are no paths, so that an artifact can move from one
service to another, and be written below a folder under its own name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from unicodedata import category
from urllib.parse import quote

import attrs

from .._arguments import refuse_unknown
from .._codec import from_dict, to_dict
from .._json import EMPTY_DICT, brief, check_id, check_text, freeze, shown
from .._values import Value, changed
from ..errors import AlreadyExistsError, InvalidValueError, NotSupportedError
from ..types import Blob, Content, Part

__all__ = [
    "ArtifactKey",
    "ArtifactVersion",
    "Collected",
    "Description",
    "Scope",
    "Stored",
    "artifact_key",
    "artifact_scope",
    "check_filename",
    "check_version",
    "check_versions",
    "described",
    "described_bytes",
    "next_number",
    "taken_apart",
    "taken_name",
]

USER_PREFIX: Final = "user:"
TEXT_CHARS_MAX: Final = 1024
REFERENCE: Final = "artifact:"
_DRIVE = re.compile(r"[A-Za-z]:([/\\]|$)")
_UNPRINTED: Final = ("Cc", "Zl", "Zp")  # control characters, and what ends lines and paragraphs
# So many versions nobody makes. Above it, numbers are not reserved: what names one would use up all others.
_RESERVED_MAX: Final = 1 << 53
_KINDS: Final = ("inline_data", "text", "file_data")

Scope: TypeAlias = tuple[str, str, str | None]
"""App, user and session; no session for what is the user's in all of them."""


@refuse_unknown
@attrs.frozen
class ArtifactKey:
    """What an artifact is known by. `session_id` is None for those of a user, whose names begin with `user:`."""

    app_name: str
    user_id: str
    session_id: str | None
    filename: str

    @property
    def scope(self) -> Scope:
        return self.app_name, self.user_id, self.session_id

    def uri(self, version: int) -> str:
        """The URI of a version, which says where it belongs, not where it lies."""
        session = [] if self.session_id is None else ["sessions", self.session_id]
        steps = ["apps", self.app_name, "users", self.user_id, *session, "artifacts", self.filename]
        return f"{REFERENCE}//{'/'.join(quote(step, safe='') for step in steps)}/versions/{version}"


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, repr=False, unsafe_hash=False)
class ArtifactVersion(Value):
    """What is known of one version of an artifact. `size` is in bytes, `create_time` in seconds since the epoch."""

    version: int
    canonical_uri: str
    mime_type: str
    size: int
    sha256: str
    create_time: float
    custom_metadata: Mapping[str, Any] = EMPTY_DICT


@attrs.frozen(kw_only=True)
class Description:
    """What the saver of an artifact says of it. `part` is the part's JSON without its content."""

    mime_type: str
    part: Mapping[str, Any]
    custom_metadata: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Stored:
    """A version as a service keeps it: what is known of it, and what makes a part of its bytes."""

    version: ArtifactVersion
    part: Mapping[str, Any]

    @classmethod
    def of(
        cls, key: ArtifactKey, number: int, said: Description, *, size: int, sha256: str, create_time: float
    ) -> Stored:
        """Return version *number* of *key*."""
        version = ArtifactVersion(
            version=number,
            canonical_uri=key.uri(number),
            mime_type=said.mime_type,
            size=size,
            sha256=sha256,
            create_time=create_time,
            custom_metadata=said.custom_metadata,
        )
        return cls(version=version, part=said.part)

    def again(self, key: ArtifactKey, number: int, create_time: float) -> Stored:
        """Return version *number* of *key*, which is what this one is."""
        uri = key.uri(number)
        version = changed(self.version, version=number, canonical_uri=uri, create_time=create_time)
        return attrs.evolve(self, version=version)

    def put_together(self, data: bytes) -> Part:
        """
        Return the part that was saved, given its bytes.

        Raises:
            InvalidValueError: What is stored of it is not that of a part.
        """
        [part] = from_dict(Content, {"parts": [self.part]}).parts
        if part.inline_data is not None:
            return changed(part, inline_data=changed(part.inline_data, data=data))
        return part if part.text is None else changed(part, text=data.decode())


@attrs.frozen(kw_only=True)
class Collected:
    """What a collection has deleted: so many contents that no version named, `size` bytes in all."""

    contents: int
    size: int


# --- checks, all before anything is stored --------------------------------------------------------------------------


def artifact_key(app_name: object, user_id: object, session_id: object, filename: object) -> ArtifactKey:
    """
    Return the key of an artifact, with the ids exactly as they are given.

    Raises:
        InvalidValueError: One of them cannot be a name or an id, or a session's name comes without a session.
    """
    app, user, session = artifact_scope(app_name, user_id, session_id)
    name = check_filename(filename)
    if name.startswith(USER_PREFIX):
        return ArtifactKey(app, user, None, name)
    if session is None:
        problem = f"expected the id of a session for {shown(filename)}, found None; or begin the name with 'user:'"
        raise InvalidValueError("session_id", problem)
    return ArtifactKey(app, user, session, name)


def artifact_scope(app_name: object, user_id: object, session_id: object) -> Scope:
    """
    Return what a session's artifacts, or without a session a user's, belong to.

    Raises:
        InvalidValueError: One of the ids cannot be one.
    """
    session = None if session_id is None else check_id("session_id", session_id)
    return check_id("app_name", app_name), check_id("user_id", user_id), session


def _check_length(name: str, text: str) -> str:
    if "\0" in text or len(text) > TEXT_CHARS_MAX:
        raise InvalidValueError(name, f"expected at most {TEXT_CHARS_MAX} characters and no NUL, found {shown(text)}")
    return text


def check_filename(value: object) -> str:
    """
    Return the name of an artifact: a relative path without control characters and line breaks.

    Raises:
        InvalidValueError: It is none.
    """
    if not isinstance(value, str):
        raise InvalidValueError("filename", f"expected a string, found {shown(value)}")
    text = _check_length("filename", check_text(str.__str__(value), "filename"))
    if any(category(char) in _UNPRINTED for char in text):
        problem = f"expected a name without control characters and line breaks, found {shown(value)}; rename it"
        raise InvalidValueError("filename", problem)
    path = text.removeprefix(USER_PREFIX)
    steps = re.split(r"[/\\]", path)
    if _DRIVE.match(path) or any(not step.strip() or step in (".", "..") for step in steps):
        problem = f"expected a relative path without empty steps, '.' and '..', found {shown(value)}; rename it"
        raise InvalidValueError("filename", problem)
    return text


def taken_name(filename: str, scope: Scope) -> AlreadyExistsError:
    """The error for a copy whose target has, or had, an artifact of this name."""
    msg = f"expected no artifact {brief(filename)} in session {brief(scope[2])}, found that there is or was one"
    return AlreadyExistsError(f"{msg}; choose another id for the new session")


def check_version(version: object) -> int | None:
    """
    Return the number of a version, or None for the newest.

    Raises:
        InvalidValueError: It is no such number.
    """
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InvalidValueError("version", f"expected an integer of at least 0, or None, found {shown(version)}")
    return int(version)


def check_versions(versions: object) -> dict[str, int] | None:
    """
    Return numbers of versions by name, or None for all.

    Raises:
        InvalidValueError: It is no such mapping.
    """
    if versions is None:
        return None
    if not isinstance(versions, Mapping):
        raise InvalidValueError("versions", f"expected a mapping of names to numbers, or None, found {shown(versions)}")
    checked = {}
    for name, version in versions.items():
        number = check_version(version)
        if number is None:
            raise InvalidValueError("versions", f"expected a number for {shown(name)}, found None")
        checked[check_filename(name)] = number
    return checked


def next_number(following: int, least: int) -> int:
    """The number of the next version: *following*, or *least* if that is more; one of more than 2**53 is ignored."""
    return max(following, least if least <= _RESERVED_MAX else 0)


def described(mime_type: object, part: Mapping[str, Any], custom_metadata: object) -> Description:
    """
    Return what is said of an artifact, frozen.

    Raises:
        InvalidValueError: The type is no text, or the metadata is no JSON object.
    """
    if not isinstance(mime_type, str) or not mime_type.strip():
        raise InvalidValueError("mime_type", f"expected a type such as 'image/png', found {shown(mime_type)}")
    if custom_metadata is not None and not isinstance(custom_metadata, dict):
        raise InvalidValueError("custom_metadata", f"expected a dict or None, found {shown(custom_metadata)}")
    return Description(
        mime_type=check_text(str.__str__(mime_type), "mime_type"),
        part=freeze(part, "part"),
        custom_metadata=freeze(custom_metadata or {}, "custom_metadata"),
    )


def taken_apart(artifact: object) -> tuple[bytes, str, dict[str, Any]]:
    """
    Return the content of a part, its type, and the JSON of the part without it.

    Raises:
        InvalidValueError: It is no part, or one without a content that can be saved.
        NotSupportedError: It refers to another artifact.
    """
    if not isinstance(artifact, Part):
        raise InvalidValueError("artifact", f"expected a Part, found {shown(artifact)}")
    if artifact.inline_data is not None:
        empty = changed(artifact, inline_data=changed(artifact.inline_data, data=b""))
        return artifact.inline_data.data, artifact.inline_data.mime_type, _json_of(empty)
    if artifact.text is not None:
        return artifact.text.encode(), "text/plain", _json_of(changed(artifact, text=""))
    if artifact.file_data is not None:
        uri = artifact.file_data.file_uri
        if uri.startswith(REFERENCE):
            msg = f"expected content, found a reference to an artifact ({brief(uri, 200)}); load that one and save it"
            raise NotSupportedError(msg)
        return uri.encode(), artifact.file_data.mime_type or "text/uri-list", _json_of(artifact)
    found = next((name for name, value in _json_of(artifact).items() if value is not None), "nothing")
    raise InvalidValueError("artifact", f"expected a Part with one of {', '.join(_KINDS)}, found {found}")


def described_bytes(mime_type: object, custom_metadata: object) -> Description:
    """
    Return what is said of an artifact that comes as bytes alone.

    Raises:
        InvalidValueError: As `described` does.
    """
    said = described(mime_type, {}, custom_metadata)
    return attrs.evolve(said, part=freeze(_json_of(Part(inline_data=Blob(data=b"", mime_type=said.mime_type)))))


def _json_of(part: Part) -> dict[str, Any]:
    [fields] = to_dict(Content(parts=(part,)))["parts"]
    return dict(fields)
