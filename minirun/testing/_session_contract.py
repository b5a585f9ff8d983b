"""
What every session service promises, as checks that its author can run:

    async def test_my_service() -> None:
        await check_session_service(MySessionService)

The factory is entered once or more often for each check, one at a time.
What is the same for all kinds of services is said in `_contract`.
"""

from __future__ import annotations

from ..sessions import BaseSessionService
from . import (
    _session_checks,
    _session_compaction_checks,
    _session_event_checks,
    _session_history_checks,
    _session_message_checks,
    _session_pending_checks,
    _session_run_checks,
)
from ._contract import Check, Contract, Factory
from ._session_bench import Bench

__all__ = ["check_session_service", "session_service_checks"]

_PARTS = (
    _session_run_checks, _session_history_checks, _session_pending_checks, _session_compaction_checks,
    _session_message_checks,
)  # fmt: skip
_ONCE = (_session_checks, _session_event_checks, *_PARTS)
_CONTRACT = Contract(
    kind="session service",
    bench=Bench,
    once={name: body for part in _ONCE for name, body in part.CHECKS.items()},
    again={name: body for part in _PARTS for name, body in part.DURABLE.items()},
)


async def check_session_service(factory: Factory[BaseSessionService], *, durable: bool = False) -> None:
    """
    Run every check of the contract on the service that *factory* makes.

    Args:
        factory: Returns a service, or an async context manager that gives one.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The service breaks the contract; a note names the check.
    """
    await _CONTRACT.check(factory, durable=durable)


def session_service_checks(*, durable: bool = False) -> dict[str, Check[BaseSessionService]]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    return _CONTRACT.checks(durable=durable)
