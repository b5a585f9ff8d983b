"""
A Runner for asyncio programs and for threads. This package imports asyncio and threading; nothing else does.

minirun runs on trio. An entered bridge owns one thread with a `trio.run`, until it is left; bridges over one session
service share it, because a service belongs to one `trio.run` at a time. Runs and calls of the asyncio program live
there as tasks, and both sides meet at each event:

    asyncio task                       the bridge's thread (trio)
    ────────────                       ─────────────────────────
    first __anext__  ── starts ──────► enter the run
    __anext__        ── ask ─────────► await run.__anext__()
                     ◄─ event, end or error ──
    cancelled, left  ── stop ────────► leave the run: cancel, clean up
                     ◄─ it has ended ──

The rules of this package:

1.  An agent has not gone on while the asyncio side holds its event (P2): there is one ask for each event.
2.  The code that starts something here hears once how it ended, whatever happens to the thread, the bridge or the loop.
3.  A cancelled asyncio task leaves only when what it waited for in trio has ended: nothing goes on behind its back.
4.  Only the trio thread touches trio, but for `run_sync_soon`; only the loop's thread touches futures.
"""

from ._bridge import AsyncioBridge
from ._run import BridgeRun

__all__ = ["AsyncioBridge", "BridgeRun"]
