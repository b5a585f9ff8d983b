"""
Artifacts, as contexts save and load them.

A version belongs to the event that names it in its `artifact_delta`. What an agent's own logic saves is a step: it has
an event of its own, and is not saved again when the logic is run again. What a tool or a callback saves goes, like its
writes to the state, with the next event of whoever has made it: a tool's result, the event that a hook stands around.

An agent's own logic, and a tool, that load what is newest are served the same version when they are run again,
whatever was saved since; so are the answers to which there are, and what is known of them (see `_reads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ..artifacts import ArtifactReader, ArtifactVersion
from ..artifacts._run import RunArtifacts, Save
from ..artifacts._values import check_filename
from ..errors import InvalidEventError
from ..types import Part
from ._durable import run_step

if TYPE_CHECKING:
    from ._context import _WritingContext

__all__ = [
    "artifact_version",
    "check_named",
    "delete_artifact",
    "list_artifacts",
    "load_artifact",
    "open_artifact",
    "save_artifact",
]

# What is noted of reads stands beside those of the state, under keys that no state has: `temp:` ones are not noted.
NEWEST = "temp:newest artifact "
NAMES = "temp:artifacts"


async def save_artifact(context: _WritingContext, filename: str, save: Save) -> int:
    """See `InvocationContext.save_artifact`."""

    async def work(filename: str) -> int:
        number = await save()
        context.actions.artifact_delta = {**context.actions.artifact_delta, filename: number}
        return number

    context._check_writable()
    if context._has_own_logic:
        number: int = await run_step(context, "save_artifact", work, (filename,), {})
        return number
    return await work(filename)


async def delete_artifact(context: _WritingContext, filename: str) -> None:
    """See `InvocationContext.delete_artifact`."""
    artifacts = context._core.artifacts

    async def work(filename: str) -> None:
        await artifacts.delete(filename)
        delta = context.actions.artifact_delta
        context.actions.artifact_delta = {name: number for name, number in delta.items() if name != filename}

    check_filename(filename)
    context._check_writable()
    if context._has_own_logic:
        await run_step(context, "delete_artifact", work, (filename,), {})
    else:
        await work(filename)


async def load_artifact(context: _WritingContext, filename: str, version: int | None) -> Part | None:
    """See `InvocationContext.load_artifact`."""
    artifacts = context._core.artifacts
    if version is None and context._reads is not None:
        version = await _newest(context, artifacts, filename)
        if version is None:
            return None
    return await artifacts.load(filename, version)


async def open_artifact(
    context: _WritingContext, filename: str, version: int | None
) -> AbstractAsyncContextManager[ArtifactReader | None]:
    """See `InvocationContext.open_artifact`."""
    artifacts = context._core.artifacts
    if version is None and context._reads is not None:
        version = await _newest(context, artifacts, filename)
        if version is None:
            return nullcontext()
    return artifacts.open(filename, version)


async def artifact_version(context: _WritingContext, filename: str, version: int | None) -> ArtifactVersion | None:
    """See `InvocationContext.get_artifact_version`."""
    artifacts = context._core.artifacts
    if version is None and context._reads is not None:
        version = await _newest(context, artifacts, filename)
        if version is None:
            return None
    return await artifacts.version(filename, version)


async def list_artifacts(context: _WritingContext) -> list[str]:
    """See `InvocationContext.list_artifacts`."""
    names = await context._core.artifacts.names()
    return names if context._reads is None else list(context._reads.seen(NAMES, names))


async def _newest(context: _WritingContext, artifacts: RunArtifacts, filename: str) -> int | None:
    """The number of the version that is the newest for this reader, now or when it was run first."""
    assert context._reads is not None
    found = await artifacts.version(filename, None)
    number: int | None = context._reads.seen(f"{NEWEST}{filename}", None if found is None else found.version)
    return number


async def check_named(artifacts: RunArtifacts, delta: Mapping[str, Any]) -> None:
    """
    Raise unless all that *delta* names can be read.

    Raises:
        InvalidEventError: Something cannot.
    """
    missing = [f"{name} version {number}" for name, number in delta.items() if not await artifacts.has(name, number)]
    if missing:
        msg = (
            f"expected artifact_delta to name versions that there are, found {', '.join(missing)}; "
            "save them first, and name what save_artifact returns"
        )
        raise InvalidEventError(msg)

