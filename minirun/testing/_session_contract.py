"""
What every session service promises, as checks that its author can run:

    async def test_my_service() -> None:
        await check_session_service(MySessionService)

The factory returns a service, or any async context manager that gives one; it is entered once or more often for each
check, one at a time. Every check works under an app name of its own, so the factory may as well open the same store
again and again; say `durable=True` if it does, and what must survive is checked too.

A check that fails raises an AssertionError with a note that names it. Nothing here needs pytest; with it, each check
can be a test of its own:

    @pytest.mark.parametrize("check", session_service_checks().values(), ids=session_service_checks())
    async def test_my_service(check) -> None:
        await check(MySessionService)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio

from . import (
    _session_checks,
    _session_compaction_checks,
    _session_history_checks,
    _session_pending_checks,
    _session_run_checks,
)
from ._session_bench import Bench, Body, Factory

__all__ = ["check_session_service", "session_service_checks"]

Check: TypeAlias = Callable[[Factory], Awaitable[None]]

# On trio's clock, so that a service that waits for ever fails its check; the longest takes below 1 s on a disk.
CHECK_S_MAX = 60.0


async def check_session_service(factory: Factory, *, durable: bool = False) -> None:
    """
    Run every check of the contract on the service that *factory* makes.

    Args:
        factory: Returns a service, or an async context manager that gives one.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The service breaks the contract; a note names the check.
    """
    for check in session_service_checks(durable=durable).values():
        await check(factory)


def session_service_checks(*, durable: bool = False) -> dict[str, Check]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    parts = (
        _session_checks,
        _session_run_checks,
        _session_history_checks,
        _session_pending_checks,
        _session_compaction_checks,
    )
    checks = {name: body for part in parts for name, body in part.CHECKS.items()}
    durable_checks = {name: body for part in parts[1:] for name, body in part.DURABLE.items()}
    once: dict[str, Check] = {name: partial(_run, name, partial(_opened, body)) for name, body in checks.items()}
    again: dict[str, Check] = {name: partial(_run, name, body) for name, body in durable_checks.items()}
    return {**once, **again} if durable else once


async def _opened(body: Body, bench: Bench) -> None:
    async with bench.opened():
        await body(bench)


async def _run(name: str, body: Body, factory: Factory) -> None:
    try:
        with trio.fail_after(CHECK_S_MAX):
            await body(Bench(factory))
    except Exception as error:
        error.add_note(f"this breaks the session service's promise: {name.replace('_', ' ')}")
        raise
