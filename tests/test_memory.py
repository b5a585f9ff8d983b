"""
Facts about every memory service: the public contract, and that all find the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minirun.memory import BaseMemoryService, InMemoryMemoryService, SqliteMemoryService
from minirun.sessions import SqliteSessionService
from minirun.testing import memory_service_checks

Opens = Callable[[], AbstractAsyncContextManager[BaseMemoryService]]


def shared(path: Path | str, **options: Any) -> Opens:
    """Opens a service in the file of a session service."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[BaseMemoryService]:
        async with SqliteSessionService(path, **options) as sessions, SqliteMemoryService(sessions) as memories:
            yield memories

    return opened


def services(folder: Path) -> dict[str, Opens]:
    """Every service, in every setting that changes how it works."""
    return {
        "memory": InMemoryMemoryService,
        "sqlite in memory": lambda: SqliteMemoryService(":memory:"),
        "sqlite in memory, shared": shared(":memory:"),
        "sqlite": lambda: SqliteMemoryService(folder / "own.db"),
        "sqlite process": lambda: SqliteMemoryService(folder / "process.db", durability="process"),
        "sqlite shared": shared(folder / "shared.db"),
    }


KINDS = tuple(services(Path()))
DURABLE = KINDS[3:]
CHECKS = memory_service_checks()
ONLY_DURABLE = {name: check for name, check in memory_service_checks(durable=True).items() if name not in CHECKS}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("kind", KINDS)
async def test_contract(kind: str, check: Any, tmp_path: Path) -> None:
    """Every service keeps each promise of the public contract."""
    await check(services(tmp_path)[kind])


@pytest.mark.parametrize("check", ONLY_DURABLE.values(), ids=ONLY_DURABLE)
@pytest.mark.parametrize("kind", DURABLE)
async def test_contract_of_files(kind: str, check: Any, tmp_path: Path) -> None:
    """Every service with a file keeps what the contract says of opening it again."""
    await check(services(tmp_path)[kind])
