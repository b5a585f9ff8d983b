"""What was said is remembered by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._base import BasePlugin

if TYPE_CHECKING:
    from ..runtime import InvocationContext

__all__ = ["MemoryPlugin"]


class MemoryPlugin(BasePlugin):
    """
    Adds what was said in an invocation to `Runner(memory_service=...)` when a run of it ends, however it ends.

    A run that goes on with an invocation adds what is new. What this costs does not grow with the session. If the
    memory service fails, so does the run; its events are stored, and `add_session_to_memory` remembers them later. So
    it does what a run has left behind whose process died.

    What is remembered stays when the run is rewound or its session deleted: `delete_session_memories` forgets it.
    What takes the place of a file in a message (`SaveFilesAsArtifactsPlugin`) is remembered with it.

    Args:
        name: The name of the plugin.
    """

    needs_service = "memory_service"

    def __init__(self, name: str = "memory") -> None:
        super().__init__(name)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Remember what was said, as far as it is stored. Passes nothing else of the session."""
        invocation, live = invocation_context._invocation, invocation_context._invocation.live
        first = invocation.history.message_seq
        if first <= live.revision:  # else not even its message was stored
            said = live.events[live.index_of(first) :]
            events = [event for event in said if event.invocation_id == invocation.id]
            await invocation_context.add_events_to_memory(events)
