"""The commands about artifacts."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import trio

from .._files import open_private
from ..artifacts import ArtifactVersion, BaseArtifactService, FileArtifactService
from ..errors import MinirunError
from ._commands import names_arguments, print_table
from ._db import FILE_OR_URL, Db, FileType
from ._services import artifacts_beside
from ._show import plain, time_of

__all__ = ["artifacts"]

T = TypeVar("T")


@click.group()
def artifacts() -> None:
    """Look at artifacts, in a SQLite file, a database or a folder."""


def _store(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the place of the artifacts, as `store`."""

    @click.option("--db", type=FILE_OR_URL, help="The SQLite file, or postgresql://... URL.")
    @click.option("--dir", "folder", type=FileType(exists=True, file_okay=False, path_type=Path), help="The folder.")
    @wraps(command)
    def with_store(*args: Any, db: Db | None, folder: Path | None, **named: Any) -> None:
        if (db is None) == (folder is None):
            raise click.UsageError("expected one of --db FILE|URL and --dir FOLDER")
        command(*args, store=(db, folder), **named)

    return with_store


def _with_service(store: tuple[Db | None, Path | None], work: Callable[[BaseArtifactService], Awaitable[T]]) -> T:
    db, folder = store

    async def main() -> T:
        if db is None:
            assert folder is not None
            async with FileArtifactService(folder) as files:
                return await work(files)
        async with db.open() as sessions, artifacts_beside(sessions) as service:
            return await work(service)

    try:
        return trio.run(main)
    except MinirunError as error:
        raise click.ClickException(plain(str(error))) from error


@artifacts.command("list")
@_store
@names_arguments
def list_artifacts(store: tuple[Db | None, Path | None], app: str, user: str, session: str) -> None:
    """List the artifacts of a session and of its user, with the newest version of each."""

    async def find(service: BaseArtifactService) -> list[tuple[str, ArtifactVersion, int]]:
        found = []
        for name in await service.list_artifact_keys(app_name=app, user_id=user, session_id=session):
            versions = await service.list_artifact_versions(
                app_name=app, user_id=user, session_id=session, filename=name
            )
            if versions:  # else it was deleted just now
                found.append((name, versions[-1], len(versions)))
        return found

    rows = []
    for name, version, count in _with_service(store, find):
        saved = time_of(version.create_time)
        rows.append((name, str(version.version), str(count), version.mime_type, str(version.size), saved))
    print_table(("name", "newest", "versions", "type", "bytes", "saved"), rows)


@artifacts.command()
@_store
@names_arguments
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="The number of the version; the newest if left out.")
@click.option("--out", type=FileType(path_type=Path), help="A new file; standard output if left out.")
def get(
    store: tuple[Db | None, Path | None],
    app: str,
    user: str,
    session: str,
    name: str,
    version: int | None,
    out: Path | None,
) -> None:
    """Write the content of an artifact, as it is. A file that is there already is not touched."""

    async def write(service: BaseArtifactService) -> bool:
        opened = service.open_artifact(app_name=app, user_id=user, session_id=session, filename=name, version=version)
        async with opened as reader:
            if reader is None:
                return False
            with _written(out) as target:
                async for chunk in reader:
                    target.write(chunk)
        return True

    try:
        found = _with_service(store, write)
    except FileExistsError:
        raise click.ClickException(f"{out} is there already; give another name") from None
    except BrokenPipeError:
        raise  # the reader has seen enough: click ends the program without a word
    except OSError as error:
        place = "standard output" if out is None else f"the file {out}"
        raise click.ClickException(f"{place} cannot be written: {error.strerror}; name another place") from None
    if not found:
        what = f"artifact {name!r}" if version is None else f"version {version} of artifact {name!r}"
        raise click.ClickException(f"there is no {what} in session {session!r} of user {user!r} in app {app!r}")


@contextmanager
def _written(out: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a new file, which is not left behind half written."""
    if out is None:
        if sys.stdout is None:
            raise click.ClickException("standard output is closed; name a file with --out")
        with _given_up():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    with open(open_private(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as target:
        try:
            yield target
            target.flush()
        except BaseException:
            out.unlink()
            raise


@contextmanager
def _given_up() -> Iterator[None]:
    """Where standard output fails, let nobody try again to write what is left for it, not even the end of Python."""
    try:
        yield
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise


@artifacts.command()
@_store
def gc(store: tuple[Db | None, Path | None]) -> None:
    """Delete content that no version names, and what processes that have ended left behind."""
    collected = _with_service(store, lambda service: service.gc())
    click.echo(f"{collected.contents} contents deleted, {collected.size} bytes")
