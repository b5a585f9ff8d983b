"""
Sessions that are due for a summary, because the callers of runs have left early or the summariser has failed.

They are noted as their runs end, so nobody has to look for them. What is noted is lost with the process; the next run
on the session notes it again.
"""

from __future__ import annotations

from ..sessions import SessionKey

__all__ = ["Compactions"]

# More are not remembered: their next runs note them again.
NOTED_MAX = 10_000


class Compactions:
    """The sessions of one runner that are due for a summary, the one that waits longest first."""

    def __init__(self) -> None:
        self._noted: dict[SessionKey, None] = {}

    def note(self, key: SessionKey) -> None:
        """The session is due."""
        self._noted[key] = None
        if len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]

    def forget(self, key: SessionKey) -> None:
        """Somebody looks after it."""
        self._noted.pop(key, None)

    def noted(self) -> list[SessionKey]:
        """Those that are due."""
        return list(self._noted)
