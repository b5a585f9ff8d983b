"""Ends of invocations that met a failing store, recorded with what is stored next."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ...errors import StorageError
from ._file import SqliteFile, Transaction

__all__ = ["record_late"]


class End(Protocol):
    """How an invocation has ended."""

    def finish(self, owner: str, transaction: Transaction, *, late: bool = False) -> bool:
        """Record it, and give the lease of *owner* back; no message calls it back: one that has come leaves it."""


E = TypeVar("E", bound=End)


async def record_late(file: SqliteFile, owner: str, unrecorded: dict[tuple[int, str], E]) -> None:
    """Record the ends, and forget those that are stored; a failure leaves them to the next time."""

    def finish(transaction: Transaction) -> None:  # doing so twice changes nothing
        late = list(unrecorded.items())
        for _, end in late:
            end.finish(owner, transaction, late=True)

        def forget() -> None:
            for place, _ in late:
                unrecorded.pop(place, None)

        transaction.after_commit(forget)

    try:
        await file.write(finish, durable=False)
    except StorageError:
        return  # what comes next will tell
