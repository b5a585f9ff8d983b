"""
The services of a run, beside the one that keeps its session. What the runner was not given is None.

Whoever asks for one that is missing is told where to give it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import ServiceNotConfiguredError

if TYPE_CHECKING:
    from ..artifacts import BaseArtifactService
    from ..credentials import BaseCredentialService
    from ..memory import BaseMemoryService

__all__ = ["Services"]

T = TypeVar("T")


class Services(NamedTuple):
    """What the contexts of a run can ask for."""

    artifact: BaseArtifactService | None = None
    memory: BaseMemoryService | None = None
    credential: BaseCredentialService | None = None


def given(service: T | None, name: str) -> T:
    """Return *service*, which the runner calls *name*; raises ServiceNotConfiguredError if it has none."""
    if service is None:
        msg = f"this needs a service that the runner was not given; make it with Runner({name}_service=...)"
        raise ServiceNotConfiguredError(msg)
    return service
