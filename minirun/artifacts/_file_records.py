"""
The record of a version in a `FileArtifactService`: a JSON object in a file of its own.

A hidden version has a record, too, which says no more than whose it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, cast

from .._json import brief, freeze, loads
from ..errors import StorageCorruptError
from ._values import ArtifactKey, Description, Stored

__all__ = ["HASH", "is_hidden", "key_fields", "read_record", "record_of", "stored_of", "version_fields"]

HASH: Final = re.compile(r"[0-9a-f]{64}")


def key_fields(key: ArtifactKey) -> dict[str, Any]:
    """Return the fields that say whose version it is."""
    return {
        "app_name": key.app_name,
        "user_id": key.user_id,
        "session_id": key.session_id,
        "filename": key.filename,
    }


def version_fields(key: ArtifactKey, stored: Stored) -> dict[str, Any]:
    """Return the record of a version."""
    version = stored.version
    return {
        **key_fields(key),
        "version": version.version,
        "mime_type": version.mime_type,
        "size": version.size,
        "sha256": version.sha256,
        "create_time": version.create_time,
        "custom_metadata": version.custom_metadata,
        "part": stored.part,
    }


_NAMED: Final[dict[str, type | tuple[type, ...]]] = {"filename": str, "version": int}
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    **_NAMED,
    "mime_type": str,
    "size": int,
    "sha256": str,
    "create_time": (int, float),
    "custom_metadata": dict,
    "part": dict,
}


def read_record(path: Path) -> dict[str, Any] | None:
    """
    Return the record in a file; None if there is no such file.

    Raises:
        StorageCorruptError: What is there is no record.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    return record_of(path, text)


def record_of(path: Path, text: bytes) -> dict[str, Any]:
    """Return the record that *text* is, which the file *path* holds; raises as `read_record` does."""
    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        fields = None
    is_named = isinstance(fields, dict) and path.name in ("first", f"{fields.get('version')}.json")
    if not is_named or not _is_record(fields):
        msg = f"{path}: expected the record of a version, found {brief(text)}; the file is damaged"
        raise StorageCorruptError(msg)
    return cast(dict[str, Any], fields)


def _is_record(fields: dict[str, Any]) -> bool:
    kinds = _NAMED if is_hidden(fields) else _KINDS
    whole = all(isinstance(fields.get(name), kind) for name, kind in kinds.items())
    return whole and (is_hidden(fields) or HASH.fullmatch(fields["sha256"]) is not None)


def is_hidden(fields: dict[str, Any]) -> bool:
    """Whether the version can be read by nobody: its number is taken, and that is all."""
    return fields.get("hidden") is True


def stored_of(key: ArtifactKey, fields: dict[str, Any]) -> Stored:
    """Return what a record, which is not hidden, says."""
    said = Description(
        mime_type=fields["mime_type"],
        part=freeze(fields["part"], "part"),
        custom_metadata=freeze(fields["custom_metadata"], "custom_metadata"),
    )
    return Stored.of(
        key,
        fields["version"],
        said,
        size=fields["size"],
        sha256=fields["sha256"],
        create_time=fields["create_time"],
    )
