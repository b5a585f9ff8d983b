"""`minirun work`: a worker, which goes on with what others have left, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import AsyncIterator

import click
import trio

from ..runners import Runner
from ..runners._toolsets import entered_toolsets
from ..sessions import BaseSessionService
from ._commands import INTERRUPTED, db_option, with_service
from ._db import Db
from ._load import load_app
from ._services import runner_of

__all__ = ["work"]

# What asks a process to end: a service manager's signal, and Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.argument("target", metavar="FILE.py|FOLDER[:name]")
@db_option
@click.option("--concurrency", default=4, show_default=True, type=click.IntRange(min=1), help="How many runs at once.")
@click.option(
    "--every", "every_s", default=1.0, show_default=True, metavar="SECONDS", type=click.FloatRange(0, min_open=True),
    help="How often to look for work; a database also tells.",
)  # fmt: skip
@click.option(
    "--drain", "drain_s", default=30.0, show_default=True, metavar="SECONDS", type=click.FloatRange(0),
    help="How long runs may go on after SIGTERM; then they are left to other workers.",
)  # fmt: skip
def work(target: str, db: Db, concurrency: int, every_s: float, drain_s: float) -> None:
    """
    Go on with what was interrupted, and with what has waited for a time that has come, until SIGTERM or Ctrl-C.

    Start as many workers as you like, on as many machines as reach the database. Each job goes to one of them, and
    what a worker leaves, or loses by dying, the others go on with.

    The first SIGTERM or Ctrl-C lets it begin nothing new, and end when its runs have ended or paused. The second one
    leaves at once what still runs, as interrupted; the third one ends the process as it is.

    What an operator should know stands on standard error: runs that another worker has taken over, what could not be
    begun, tools that have failed. A program that sets up logging itself decides where that goes.
    """
    app = load_app(target)
    if not logging.getLogger().handlers:
        logging.getLogger("minirun").addHandler(_to_stderr())

    async def main(service: BaseSessionService) -> int:
        async with runner_of(app, service) as runner, entered_toolsets(app._tree):
            return await _Worker(runner, concurrency, every_s, drain_s).run(f"{app.name} in {db}")

    try:
        status = with_service(db, main)
    except KeyboardInterrupt:  # before anybody listens, or after
        status = INTERRUPTED
    sys.exit(status)


class _Worker:
    """One worker: a supervisor, and what the signals say to it."""

    def __init__(self, runner: Runner, concurrency: int, every_s: float, drain_s: float) -> None:
        self._runner = runner
        self._concurrency = concurrency
        self._every_s = every_s
        self._drain_s = drain_s
        self._stop = trio.Event()
        self._leaving = trio.CancelScope()

    async def run(self, what: str) -> int:
        """Work until the signals end it; return the status that the process ends with."""
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(*SIGNALS) as signals:
                nursery.start_soon(self._listen, signals)
                _say(f"working on {what}; {self._concurrency} at once")
                with self._leaving:
                    await self._runner.supervise(
                        max_concurrent=self._concurrency, every_s=self._every_s, stop=self._stop
                    )
            nursery.cancel_scope.cancel()
        _say("left what was running to other workers" if self._leaving.cancelled_caught else "ended")
        return 0

    async def _listen(self, signals: AsyncIterator[int]) -> None:
        times = 0
        async for _ in signals:
            times += 1
            if times == 1:
                _say(f"stopping: nothing new begins, and what runs has {self._drain_s:g} s; once more leaves at once")
                self._stop.set()
                self._leaving.deadline = trio.current_time() + self._drain_s
            else:
                self._leaving.cancel()
                for each in SIGNALS:
                    signal.signal(each, signal.SIG_DFL)


def _to_stderr() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s"))
    return handler


def _say(text: str) -> None:
    click.echo(text, err=True)
