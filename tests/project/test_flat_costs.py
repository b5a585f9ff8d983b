"""
Costs that do not grow with what is stored beside (promise P9), counted in operations, not in seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minirun import SqliteSessionService
from minirun._codec import from_json
from minirun.errors import SessionNotFoundError
from minirun.runtime._ids import Ids
from minirun.sessions._sqlite import _logs

from ..stores import HERE, append, get, texts


class Steps:
    """Counts the steps of SQLite's machine, in tens, and the statements that a connection executes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.tens = 0
        self.statements = 0

    def _step(self) -> int:
        self.tens += 1
        return 0

    def _state(self, _: str) -> None:
        self.statements += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.tens = self.statements = 0
        self._connection.set_progress_handler(self._step, 10)
        self._connection.set_trace_callback(self._state)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 10)
            self._connection.set_trace_callback(None)


async def test_a_fork_of_a_fork_costs_as_much_as_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Along a chain of forks each one executes as many statements, and decodes as many events, as the one before.
    """
    decoded = [0]
    decode = from_json

    def count(kind: type[object], line: str) -> object:
        decoded[0] += 1
        return decode(kind, line)

    monkeypatch.setattr(_logs, "from_json", count)
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        session = await service.create_session(app_name="app", user_id="u", session_id="0")
        assert service._file._connection is not None
        steps, costs = Steps(service._file._connection), []
        for number in range(60):
            await append(service, session, str(number))
            decoded[0] = 0
            with steps.counted():
                session = await service.fork_session(
                    app_name="app", user_id="u", session_id=str(number), new_session_id=str(number + 1)
                )
            costs.append((steps.statements, decoded[0]))
        assert set(costs[5:]) == {costs[5]}, costs
        assert texts(session) == [str(number) for number in range(60)]
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        assert texts(await get(service, "60")) == [str(number) for number in range(60)]
        assert texts(await get(service, "30")) == [str(number) for number in range(30)] + ["30"]


async def test_not_finding_a_session_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """
    The error that names the apps that have such a session asks for each app once, and looks at no other session.
    """
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await service.create_session(**HERE | {"app_name": "other"})
        await service.create_session(**HERE | {"app_name": "third", "session_id": "x"})
        assert service._file._connection is not None
        steps, costs = Steps(service._file._connection), []
        for upto in (10, 400):
            for number in range(upto):
                name = f"{upto}-{number}"
                await service.create_session(app_name="app", user_id=name if number % 2 else "u", session_id=name)
            with pytest.raises(SessionNotFoundError, match="have one of this user and id: other;"), steps.counted():
                await service.read_events(**HERE)
            costs.append(steps.tens)
        assert costs[1] < 2 * costs[0] + 20, costs


async def test_the_thousandth_step_costs_what_the_first_costs() -> None:
    """Steps that are alike are told apart without counting through those before."""
    ids = Ids("e-1")
    assert len({ids.claim("path") for _ in range(1000)}) == 1000
    tried = CountedIds(ids.claimed)
    ids.claimed = tried
    taken = ids.claim("path")
    assert tried.asked <= 2
    ids.release([taken])
    assert ids.claim("path") == taken


class CountedIds(dict[str, Any]):
    """Ids that count how often one is looked for."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return super().__contains__(key)
