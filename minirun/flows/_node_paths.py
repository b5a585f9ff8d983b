"""Where an agent stands that was handed to, or that a run begins with: below those above it in the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..runtime._ids import Ids
    from ..runtime._position import Position

__all__ = ["path_above"]


def path_above(here: Position, ids: Ids, agent: BaseAgent, around: BaseAgent | None) -> str:
    """
    Return the path of nodes (`NodeInfo.path`) below which *agent* runs, which the agent *around* it runs from *here*.

    Those between the two have handed over, or could have: each is named with the number of its last run. An agent that
    is not below *around* in the tree is simply run by it.
    """
    path, above, between = here.node_info.path, here.tree.parent_of(agent), ""
    while above is not None and above is not around:
        between = f"/{above.name}@{ids.last_run(f'{here.path}/{above.name}')}{between}"
        above = here.tree.parent_of(above)
    return path if above is not around else path + between
