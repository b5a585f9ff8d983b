"""
A service that stays open from one check of a contract to the next, as that of a program does.

Opening a database takes longer than most checks do. Each check works under an app of its own, so they share a service
as they share a store. Checks of what survives open the store again: they need a factory of new services.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from minirun._service import BaseService

__all__ = ["KeptOpen", "keeps"]

_Service = TypeVar("_Service", bound=BaseService)


class KeptOpen(Generic[_Service]):
    """Gives the same open service again and again; another one after a check has closed it. `async with` closes it."""

    def __init__(self, make: Callable[[], _Service]) -> None:
        self._make = make
        self._service = make()

    async def __aenter__(self) -> KeptOpen[_Service]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._service.aclose()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[_Service]:
        if self._service._closed:
            self._service = self._make()
        yield self._service


async def keeps(
    make: Callable[[], _Service], checks: Callable[..., dict[str, Any]], *, durable: bool, but: Collection[str] = ()
) -> None:
    """
    Run the *checks* of a contract: those of a service on one, *but* for some, then, if it is *durable*, those that open
    it again.
    """
    once = checks()
    async with KeptOpen(make) as kept:
        for name, check in once.items():
            if name not in but:
                await check(kept)
    for name, check in checks(durable=durable).items():
        if name not in once:
            await check(make)
