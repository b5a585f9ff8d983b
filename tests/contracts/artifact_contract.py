"""
What every artifact service promises, as checks:

    async def test_my_service() -> None:
        await check_artifact_service(MyArtifactService)

The factory is entered once or more often for each check, with `durable=True` also several times at once. Collecting
(`gc`) is about a whole store: let nobody else use it meanwhile. What is the same for all kinds of services is said in
`_contract`.
"""

from __future__ import annotations

from minirun.artifacts import BaseArtifactService
from minirun.testing._contract import Check, Contract, Factory

from . import artifact_checks, artifact_version_checks
from .artifact_bench import Bench

__all__ = ["artifact_service_checks", "check_artifact_service"]

_CONTRACT = Contract(
    kind="artifact service",
    bench=Bench,
    once=artifact_checks.CHECKS | artifact_version_checks.CHECKS,
    again=artifact_version_checks.DURABLE,
)


async def check_artifact_service(factory: Factory[BaseArtifactService], *, durable: bool = False) -> None:
    """
    Run every check of the contract on the service that *factory* makes.

    Args:
        factory: Returns a service, or an async context manager that gives one.
        durable: Whether each call of the factory opens the same store.

    Raises:
        AssertionError: The service breaks the contract; a note names the check.
    """
    await _CONTRACT.check(factory, durable=durable)


def artifact_service_checks(*, durable: bool = False) -> dict[str, Check[BaseArtifactService]]:
    """Return the checks by name, to be run one by one; *durable* ones only for stores that can be opened again."""
    return _CONTRACT.checks(durable=durable)
