"""
What every memory service promises, as checks:

    async def test_my_service() -> None:
        await check_memory_service(MyMemoryService)

The factory is entered once or more often for each check, with `durable=True` also several times at once.
The frame is `minirun.testing._contract`.
"""

from __future__ import annotations

from minirun.memory import BaseMemoryService
from minirun.testing._contract import Check, Contract, Factory

from . import memory_checks
from .memory_bench import Bench

__all__ = ["check_memory_service", "memory_service_checks"]

_CONTRACT = Contract(kind="memory service", bench=Bench, once=memory_checks.CHECKS, again=memory_checks.DURABLE)


async def check_memory_service(factory: Factory[BaseMemoryService], *, durable: bool = False) -> None:
    """
    Run every check of the contract on the service that *factory* makes.

    Args:
        factory: Returns a service, or an async context manager that gives one.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The service breaks the contract; a note names the check.
    """
    await _CONTRACT.check(factory, durable=durable)


def memory_service_checks(*, durable: bool = False) -> dict[str, Check[BaseMemoryService]]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    return _CONTRACT.checks(durable=durable)
