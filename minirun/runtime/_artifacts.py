"""
Artifacts, as contexts save and load them.

A version belongs to the event that names it in its `artifact_delta`. What an agent's own logic saves is a step: it has
an event of its own, and is not saved again when the logic is run again. What a tool or a callback saves goes, like its
writes to the state, with the next event of its maker: a tool's result, the event that a hook stands around.

An agent's own logic, and a tool, that load what is newest are served the same version when they are run again,
whatever was saved since; so are the answers to which there are, and what is known of them (see `sessions._reads`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..artifacts import ArtifactReader, ArtifactVersion
from ..artifacts._opening import opening
from ..artifacts._run import Save
from ..artifacts._values import check_filename
from ..types import Part
from ._steps import run_step

if TYPE_CHECKING:
    from ._base_context import ContextBase

__all__ = [
    "artifact_version",
    "check_artifact",
    "delete_artifact",
    "list_artifacts",
    "load_artifact",
    "open_artifact",
    "save_artifact",
]

# What is noted of reads stands beside those of the state, under keys that no state has: `temp:` ones are not noted.
NEWEST = "temp:newest artifact "
NAMES = "temp:artifacts"


def check_artifact(
    context: ContextBase, filename: str, artifact: Part | None, custom_metadata: Mapping[str, Any] | None
) -> None:
    """Raise SecretError if a secret is in what is about to be saved."""
    secrets = context._invocation.secrets
    secrets.check_name(filename, "filename")
    secrets.check_value(artifact, "artifact")
    secrets.check_value(custom_metadata, "custom_metadata")


async def save_artifact(context: ContextBase, filename: str, save: Save) -> int:
    """See `InvocationContext.save_artifact`."""

    async def work(filename: str, save_id: str | None = None) -> int:
        number = await save()
        context.actions.add_saved(filename, number, save_id)
        return number

    context._check_writable()
    if context._has_own_logic:
        number: int = await run_step(context, "save_artifact", work, (filename,), {})
        return number
    if context._call_id is None:
        return await work(filename)
    return await _save_of_tool(context, filename, work)


async def _save_of_tool(context: ContextBase, filename: str, work: Callable[[str, str], Awaitable[int]]) -> int:
    """Save what a tool saves, unless an event that it has said meanwhile has named it, and it is run again."""
    invocation = context._invocation
    save_id = context._claim(f"{context._path}!save {filename}")
    if invocation.replayer is not None and save_id in invocation.replayer.record.saves:
        return invocation.replayer.record.saves[save_id]
    try:
        return await work(filename, save_id)
    except BaseException:
        invocation.ids.release([save_id])  # who tries again does the same
        raise


async def delete_artifact(context: ContextBase, filename: str) -> None:
    """See `InvocationContext.delete_artifact`."""
    artifacts = context._invocation.artifacts

    async def work(filename: str) -> None:
        await artifacts.delete(filename)
        context.actions.discard_deleted(filename)

    check_filename(filename)
    context._check_writable()
    if context._has_own_logic:
        await run_step(context, "delete_artifact", work, (filename,), {})
    else:
        await work(filename)


async def load_artifact(context: ContextBase, filename: str, version: int | None) -> Part | None:
    """See `InvocationContext.load_artifact`."""
    number, exists = await _asked_for(context, filename, version)
    return await context._invocation.artifacts.load(filename, number) if exists else None


@opening
async def open_artifact(
    context: ContextBase, filename: str, version: int | None
) -> AsyncGenerator[ArtifactReader | None, None]:
    """See `InvocationContext.open_artifact`."""
    context._check_writable()
    number, exists = await _asked_for(context, filename, version)
    if not exists:
        yield None
        return
    async with context._invocation.artifacts.open(filename, number) as reader:
        yield reader


async def artifact_version(context: ContextBase, filename: str, version: int | None) -> ArtifactVersion | None:
    """See `InvocationContext.get_artifact_version`."""
    number, exists = await _asked_for(context, filename, version)
    return await context._invocation.artifacts.version(filename, number) if exists else None


async def list_artifacts(context: ContextBase) -> list[str]:
    """See `InvocationContext.list_artifacts`."""
    names = await context._invocation.artifacts.names()
    return names if context._reads is None else list(context._reads.value(NAMES, names))


async def _asked_for(context: ContextBase, filename: str, version: int | None) -> tuple[int | None, bool]:
    """
    Which version is meant, and whether there may be one. Where reads are served as they were, the newest is the one
    that was the newest when this was run first.
    """
    if version is not None or context._reads is None:
        return version, True
    found = await context._invocation.artifacts.version(filename, None)
    if found is None:  # else its name is known
        context._invocation.secrets.check_name(filename, "filename")
    number: int | None = context._reads.value(f"{NEWEST}{filename}", None if found is None else found.version)
    return number, number is not None
