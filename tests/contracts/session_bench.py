"""What the checks of a session service stand on: the bench of the wheel, and more short forms."""

from __future__ import annotations

import trio

from minirun.sessions import SessionKey
from minirun.testing._session_service import SessionBench, folded, spelled, texts

__all__ = ["Bench", "folded", "settled", "spelled", "texts"]


class Bench(SessionBench):
    """One service under test, with more short forms."""

    async def delete(self, session_id: str = "s", *, user: str = "u") -> None:
        await self.service.delete_session(app_name=self.app, user_id=user, session_id=session_id)

    def key(self, session_id: str = "s", *, user: str = "u") -> SessionKey:
        return SessionKey(self.app, user, session_id)


async def settled() -> None:
    """Let the other tasks go on until none of them can: until they wait for something that this one may do."""
    quiet = 0
    while quiet < 3:  # trio runs tasks in batches; those of this one may still be in the next
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if trio.lowlevel.current_statistics().tasks_runnable == 0 else 0
