"""What the tests of the Postgres driver say to a server: a table of notes, and an Env whose time is trio's."""

from __future__ import annotations

import trio

from minirun._postgres._connection import Bounds, Connection
from minirun._postgres._libpq import connect
from minirun._postgres._pool import Pool
from minirun._postgres._values import Call, Statement
from minirun.env import REAL_ENV, Env

CREATE = Statement("create", "CREATE TABLE notes (id int8 PRIMARY KEY, note text)", once=True)
ADD = Statement("add", "INSERT INTO notes (id, note) VALUES ($1, $2)", "int8 text")
SLOWLY = Statement("slowly", "INSERT INTO notes (id, note) SELECT $1, pg_sleep($2)::text", "int8 float8")
LIST = Statement("list", "SELECT id FROM notes ORDER BY id")
LOCK = Statement("lock", "SELECT id FROM notes WHERE id = $1 FOR UPDATE", "int8")
SLEEP = Statement("sleep", "SELECT pg_sleep($1)", "float8")
PID = Statement("pid", "SELECT pg_backend_pid()")
END = Statement("end", "SELECT pg_terminate_backend($1)", "int4")
SAY = Statement("say", "SELECT pg_notify($1, $2)", "text text")
IS_ASLEEP = Statement(
    "is_asleep",
    "SELECT count(*) = 1 FROM pg_stat_activity"
    " WHERE query LIKE '%pg_sleep%' AND state = 'active' AND datname = current_database()"
    " AND pid <> pg_backend_pid()",
)
IS_AWAKE = Statement("is_awake", IS_ASLEEP.sql.replace("= 1", "= 0", 1))


class TrioTime(Env):
    """The real world, but that the steady clock is trio's: where that one jumps, no test waits for a server in vain."""

    def steady(self) -> float:
        """Trio's clock."""
        return trio.current_time()


async def ids(pool: Pool) -> list[int]:
    """What is stored."""
    [result] = await pool.read(LIST())
    return [row[0] for row in result.rows]


async def until(pool: Pool, call: Call) -> None:
    """Wait until this statement returns true."""
    with trio.fail_after(10):
        for _ in range(10_000):
            [result] = await pool.read(call)
            if result.rows == [(True,)]:
                return
            await trio.sleep(0.01)


async def until_closed(connection: Connection) -> None:
    """Wait until the server has closed the connection."""
    with trio.fail_after(10):
        for _ in range(10_000):
            if not connection.is_alive():
                return
            await trio.sleep(0.01)


async def prepared_pool(url: str, *, env: Env = REAL_ENV, size: int = 4, bounds: Bounds | None = None) -> Pool:
    """A pool of a database that has the table."""
    pool = Pool(url, env, size=size, bounds=bounds)
    await pool.write(CREATE())
    return pool


async def one_connection(url: str, *, env: Env = REAL_ENV, bounds: Bounds | None = None) -> Connection:
    """A connection as it comes from libpq, without a pool."""
    return await connect(env, url, bounds or Bounds())
