"""
The artifacts of a database: whether they are what was saved.

A version names a content that is there, as long as it says; a content has its chunks, in order, and its hash is that of
all of them. A version that an event has made visible belongs to a session that has such an event.

The server hashes what is one chunk, a page of contents at once; what has more is read chunk by chunk, and hashed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..._json import brief
from ..._postgres._pool import Transaction
from ..._postgres._values import Statement
from .._integrity._artifacts import about_problem
from ._artifacts import NO_SESSION
from ._text import read_key

__all__ = ["check_artifacts"]

PAGE: Final = 500
# Contents of one chunk, which the server reads at once: 64 of 256 KB are 16 MB.
CONTENTS_PAGE: Final = 64
# Chunks of a large content that are sent at once: 4 MB.
CHUNKS_PAGE: Final = 16

_VERSIONS: Final = Statement(
    "verify_versions",
    """
    SELECT v.artifact, v.version, v.sha256, v.size, v.about, v.seq, v.stager IS NOT NULL, a.next_version, a.filename,
        a.name, a.session_id, c.size, s.revision
    FROM minirun.artifact_versions v LEFT JOIN minirun.artifacts a ON a.id = v.artifact
    LEFT JOIN minirun.contents c ON c.sha256 = v.sha256 LEFT JOIN minirun.sessions s
        ON s.app_name = a.app_name AND s.user_id = a.user_id AND s.session_id = a.session_id
    WHERE (v.artifact, v.version) > ($1, $2) ORDER BY v.artifact, v.version LIMIT $3
    """,
    "int8 int8 int8",
)
# One without a hash is on its way in or out, and nobody can name it.
_CONTENTS: Final = Statement(
    "verify_contents",
    """
    SELECT c.id, c.sha256, c.size, d.count, encode(sha256(coalesce(e.data, '')), 'hex'),
        length(coalesce(e.data, ''))::int8
    FROM minirun.contents c CROSS JOIN LATERAL (
        SELECT count(*) FROM minirun.chunks WHERE content = c.id
    ) d LEFT JOIN minirun.chunks e ON e.content = c.id AND e.number = 0 AND d.count = 1
    WHERE c.id > $1 AND c.sha256 IS NOT NULL ORDER BY c.id LIMIT $2
    """,
    "int8 int8",
)
_CHUNKS: Final = Statement(
    "verify_chunks",
    "SELECT number, data FROM minirun.chunks WHERE content = $1 AND number > $2 ORDER BY number LIMIT $3",
    "int8 int8 int8",
)


async def check_artifacts(transaction: Transaction, report: Callable[[str, str], None]) -> None:
    """Look at all artifacts in the view of *transaction*; *report* is told where something is wrong, and what."""
    artifact, version = -1, -1
    while True:
        [page] = await transaction.run(_VERSIONS(artifact, version, PAGE))
        for row in page.rows:
            artifact, version = row[:2]
            _check_version(row, report)
        if len(page.rows) < PAGE:
            break
    content = -1
    while True:
        [page] = await transaction.run(_CONTENTS(content, CONTENTS_PAGE))
        for content, sha256, size, chunks, found, length in page.rows:
            if chunks <= 1:
                is_whole = (found, length) == (sha256, size)
                problem = "" if is_whole else _others(sha256, size, length)
            else:
                problem = await _problem_of_chunks(transaction, content, sha256, size)
            if problem:
                report("database", f"content {content} of artifacts: {problem}")
        if len(page.rows) < CONTENTS_PAGE:
            break


def _check_version(row: Sequence[Any], report: Callable[[str, str], None]) -> None:
    artifact, version, sha256, size, about, seq, is_staged, following, filename, name, session, there, revision = row
    if filename is None:
        report("database", f"version {version} is one of artifact row {artifact}, which there is not")
        return
    try:
        shown = brief(read_key(filename, name))
    except ValueError as error:
        report("database", f"the name of artifact row {artifact}, {brief(filename)}, cannot be read: {error}")
        return
    is_users = session == NO_SESSION
    place = f"artifact {shown} of {'a user' if is_users else f'session {brief(session)}'}"
    problem = "" if sha256 is None else about_problem(about)
    if problem:
        report(place, f"version {version}: {problem}")
    elif not 0 <= version < following:
        report(place, f"version {version}: expected one below the next, which is {following}")
    elif sha256 is not None and there != size:
        found = "none" if there is None else f"one of {there}"
        report(place, f"version {version}: expected a content of {size} bytes, found {found}")
    elif (is_staged or is_users) and seq is not None:
        report(place, f"version {version} is said to be made visible by event {seq}, and cannot be")
    elif seq is not None and (revision is None or not 0 <= seq <= revision):
        report(place, f"version {version} was made visible by event {seq}, which there is not")


async def _problem_of_chunks(transaction: Transaction, content: int, sha256: str, size: int) -> str:
    """What is wrong with a content of several chunks; empty if nothing is."""
    hashed, length, expected = hashlib.sha256(), 0, 0
    while True:
        [page] = await transaction.run(_CHUNKS(content, expected - 1, CHUNKS_PAGE))
        for number, data in page.rows:
            if number != expected:
                return f"expected chunk {expected}, found {number}"
            hashed.update(data)
            length, expected = length + len(data), expected + 1
        if len(page.rows) < CHUNKS_PAGE:
            break
    return "" if (hashed.hexdigest(), length) == (sha256, size) else _others(sha256, size, length)


def _others(sha256: str, size: int, length: int) -> str:
    return f"expected {size} bytes with the sha256 {brief(sha256)}, found {length} others"
