"""
The contract suite of session services: the checks that authors of a service run, and those of minirun's own services.

The factory is entered once or more often for each check, one at a time.
"""

from __future__ import annotations

from minirun.sessions import BaseSessionService
from minirun.testing._contract import Check, Contract
from minirun.testing._session_service import DURABLE, ONCE

from . import (
    session_checks,
    session_compaction_checks,
    session_event_checks,
    session_history_checks,
    session_message_checks,
    session_pending_checks,
    session_run_checks,
)
from .session_bench import Bench

__all__ = ["session_service_checks"]

_PARTS = (
    session_run_checks, session_history_checks, session_pending_checks, session_compaction_checks,
    session_message_checks,
)  # fmt: skip
_ONCE = (session_checks, session_event_checks, *_PARTS)
_CONTRACT = Contract(
    kind="session service",
    bench=Bench,
    once={**ONCE, **{name: body for part in _ONCE for name, body in part.CHECKS.items()}},
    again={**DURABLE, **{name: body for part in _PARTS for name, body in part.DURABLE.items()}},
)


def session_service_checks(*, durable: bool = False) -> dict[str, Check[BaseSessionService]]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    return _CONTRACT.checks(durable=durable)
