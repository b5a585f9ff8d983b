"""The seam of the Postgres driver, in the hands of a test: round trips are counted, and statements fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import trio

from minirun import Env
from minirun._postgres._connection import Bounds, Connect, Connection, ConnectionLostError, ServerError
from minirun._postgres._values import Call, Result
from minirun.errors import StorageConnectionError

__all__ = ["Wired"]


class Wire:
    """A connection as the seam has it: it counts its round trips, and may fail at some statements."""

    def __init__(self, connection: Connection, env: Wired) -> None:
        self._connection = connection
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def run(self, calls: Sequence[Call], *, withdraw: bool, answer_s: float | None = None) -> list[Result]:
        names = [call.statement.name for call in calls]
        self._env.trips.append(names)
        self._env.calls.update((call.statement.name, call) for call in calls)
        self._env.waits.update(dict.fromkeys(names, answer_s))
        fault = next((self._env.faults.pop(name) for name in names if name in self._env.faults), None)
        if fault is None:
            return await self._connection.run(calls, withdraw=withdraw, answer_s=answer_s)
        await trio.lowlevel.checkpoint()
        if isinstance(fault, ServerError):
            raise fault
        if fault == "stored":
            await self._connection.run(calls, withdraw=withdraw, answer_s=answer_s)
        self._connection.close()
        raise ConnectionLostError("planted", sent=fault != "not sent")


@attrs.frozen(eq=False)
class Wired(Env):
    """The real world, with wires in it: `{statement: what happens}`, once each."""

    faults: dict[str, Any] = attrs.field(factory=dict)
    away: list[StorageConnectionError] = attrs.field(factory=list)  # why no connection can be made, if there is one
    trips: list[list[str]] = attrs.field(factory=list)
    calls: dict[str, Call] = attrs.field(factory=dict)  # the last of each name
    waits: dict[str, float | None] = attrs.field(factory=dict)  # how long the answer to it may take, in seconds

    def postgres(self) -> Connect:
        real = super().postgres()

        async def connect(url: str, bounds: Bounds) -> Connection:
            if self.away:
                await trio.lowlevel.checkpoint()
                raise self.away[0]
            wire: Any = Wire(await real(url, bounds), self)
            return wire  # type: ignore[no-any-return]  # it behaves as one

        return connect
