"""
The renewal of leases: one task for all runs of a service.

It stands in the nursery of one of the runs, its *host*, so that no task is there when no run is. When the host ends,
the newest of the others takes over, because that is likely to be there longest. When the next renewal is due does not
depend on who hosts it: it stays as it is until it was tried to its end, so a host that ends in the middle delays none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import trio

from ..env import Env
from ..errors import StorageError

__all__ = ["Renewals"]

W = TypeVar("W")


class Renewals(Generic[W]):
    """
    Calls *renew* with all writers that are there, every so many seconds from now on.

    A failure of the store is left to the next time: a lease outlives three of them.
    """

    def __init__(self, env: Env, every_s: float, renew: Callable[[Sequence[W]], Awaitable[None]]) -> None:
        self._env = env
        self._every_s = every_s
        self._renew = renew
        self._nurseries: dict[W, trio.Nursery] = {}
        self._host: W | None = None
        self._scope: trio.CancelScope | None = None  # of the host's task
        self._due = trio.current_time() + every_s

    def add(self, writer: W, nursery: trio.Nursery) -> None:
        """Renew the lease of *writer*, whose run has this nursery, until it is removed."""
        self._nurseries[writer] = nursery
        if self._host is None:
            self._settle(writer)

    def remove(self, writer: W) -> bool:
        """Stop renewing that of *writer*, so that its nursery can close; return whether there are others."""
        self._nurseries.pop(writer, None)
        if writer is self._host:
            assert self._scope is not None
            self._scope.cancel()
            self._host = None
            if self._nurseries:
                self._settle(next(reversed(self._nurseries)))
        return bool(self._nurseries)

    def _settle(self, host: W) -> None:
        self._host = host
        self._scope = trio.CancelScope(shield=True)  # the lease is needed for the clean-up of a cancelled run, too
        self._nurseries[host].start_soon(self._go_on, self._scope, name="minirun lease renewal")

    @trio.lowlevel.enable_ki_protection
    async def _go_on(self, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                await self._env.sleep(max(0.0, self._due - trio.current_time()))
                with suppress(StorageError):
                    await self._renew(list(self._nurseries))
                self._due = trio.current_time() + self._every_s
