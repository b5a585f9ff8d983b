"""
What every credential service promises, as checks:

    async def test_my_service() -> None:
        await check_credential_service(MyCredentialService)

The factory is entered once or more often for each check, with `durable=True` also several times at once.
The frame is `minirun.testing._contract`.
"""

from __future__ import annotations

from minirun.credentials import BaseCredentialService
from minirun.testing._contract import Check, Contract, Factory

from . import credential_checks
from .credential_bench import Bench

__all__ = ["check_credential_service", "credential_service_checks"]

_CONTRACT = Contract(
    kind="credential service", bench=Bench, once=credential_checks.CHECKS, again=credential_checks.DURABLE
)


async def check_credential_service(factory: Factory[BaseCredentialService], *, durable: bool = False) -> None:
    """
    Run every check of the contract on the service that *factory* makes.

    Args:
        factory: Returns a service, or an async context manager that gives one.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The service breaks the contract; a note names the check.
    """
    await _CONTRACT.check(factory, durable=durable)


def credential_service_checks(*, durable: bool = False) -> dict[str, Check[BaseCredentialService]]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    return _CONTRACT.checks(durable=durable)
