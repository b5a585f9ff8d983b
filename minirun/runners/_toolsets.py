"""
The toolsets of an app that have a scope, entered for programs that have no place where they could do it themselves.

A toolset that holds a connection has to be entered around whatever runs its agents (`async with`). Where minirun itself
makes the `trio.run`, or the one call that is all a program sees of it, it enters them: `Runner.run`, `run_sync`,
`run_once`, the bridge and the command line.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from ..agents._tree import AgentTree

__all__ = ["entered_toolsets"]


@asynccontextmanager
async def entered_toolsets(tree: AgentTree) -> AsyncGenerator[None, None]:
    """
    Enter each tool and toolset of a tree of agents that is an async context manager, and leave them afterwards.

    One that says by `is_entered` that somebody has entered it already is left alone.
    """
    async with AsyncExitStack() as stack:
        for each in tree.tools():
            if hasattr(each, "__aenter__") and hasattr(each, "__aexit__") and not getattr(each, "is_entered", False):
                await stack.enter_async_context(each)
        yield
