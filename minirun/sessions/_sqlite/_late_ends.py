"""Ends of invocations that met a failing store, recorded with what is stored next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ...errors import StorageError
from ._file import SqliteFile, Transaction

__all__ = ["record_late"]


class End(Protocol):
    """How an invocation has ended."""

    @property
    def finish(self) -> Callable[[str, Transaction], None]:
        """Records it, and gives the lease of an owner back."""


E = TypeVar("E", bound=End)


async def record_late(file: SqliteFile, owner: str, unrecorded: dict[tuple[int, str], E]) -> None:
    """Record the ends, and forget those that are stored; a failure leaves them to the next time."""

    def finish(transaction: Transaction) -> None:  # doing so twice changes nothing
        late = list(unrecorded.items())
        for _, end in late:
            end.finish(owner, transaction)

        def forget() -> None:
            for place, _ in late:
                unrecorded.pop(place, None)

        transaction.after_commit(forget)

    try:
        await file.write(finish, durable=False)
    except StorageError:
        return  # what comes next will tell
