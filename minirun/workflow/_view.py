"""
What a graph knows of its nodes and the log does not: which may run now, and which never come.

`sessions._node_runs` tells what is recorded. Here the same events are folded by the graphs of the program, so that what
has recorded nothing yet is told, too. Nothing of the run at work takes part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..agents import BaseAgent
from ..agents._tree import AgentTree
from ..errors import ReplayError
from ..events import Event
from ..sessions import InvocationStatus, NodeRunInfo, NodeRunStatus
from ._agent_node import AgentNode
from ._running import outcome_of
from ._workflow import Workflow

__all__ = ["with_graphs"]


def with_graphs(
    recorded: list[NodeRunInfo], events: Iterable[Event], status: InvocationStatus, tree: AgentTree
) -> list[NodeRunInfo]:
    """
    Return the *recorded* runs of nodes of an invocation, then those that nothing is recorded of.

    Of each workflow that has begun these are the runs that may begin now, `ready`; and once it is over, its nodes that
    have not run, `skipped`. A workflow that is an agent below others has begun if something is recorded in it; what a
    function runs by `ctx.run_node` is told as far as it is recorded.

    Args:
        recorded: What `node_runs` has found in *events*.
        events: Those of the session from the message of the invocation on.
        status: How far the invocation has come.
        tree: The agents of the app.
    """
    root = tree.root
    ends: dict[str, list[Event]] = {}
    for event in events:
        if event.actions.replay.ended is not None:
            ends.setdefault(event.node_info.path.rpartition("/")[0], []).append(event)
    by_path = {run.path: run for run in recorded}
    begun = dict.fromkeys(run.path.rpartition("/")[0] for run in recorded)
    if isinstance(root, Workflow):
        begun.setdefault(f"{root.name}@1")
    for path in begun:
        workflow = _at(root, path)
        if workflow is not None:
            above = by_path.get(path)
            is_left = status.has_ended or (above is not None and above.status in _OVER)
            for run in _unrecorded(workflow, path, ends.get(path, []), by_path.keys(), is_left=is_left):
                by_path[run.path] = run
    return list(by_path.values())


_OVER = (NodeRunStatus.ENDED, NodeRunStatus.FAILED, NodeRunStatus.SKIPPED)


def _unrecorded(
    workflow: Workflow, path: str, ends: Iterable[Event], recorded: Iterable[str], *, is_left: bool
) -> Iterator[NodeRunInfo]:
    """The runs of the workflow on *path* that are ready, and have recorded nothing; the nodes that never run."""
    plan = workflow._graph.begin(None)
    for event in ends:
        try:
            plan = plan.ended(event.node_info.path.rpartition("/")[2], outcome_of(event, None))
        except ReplayError:  # recorded by a program that had another graph: the run itself says so
            return
    seen = {*recorded}
    status = NodeRunStatus.SKIPPED if is_left else NodeRunStatus.READY
    for run in plan.ready:
        if f"{path}/{run.id}" not in seen:
            seen.add(f"{path}/{run.id}")
            yield NodeRunInfo(path=f"{path}/{run.id}", status=status, attempts=0)
    if is_left or plan.is_over:
        for name in workflow._nodes:
            if f"{path}/{name}@1" not in seen:
                yield NodeRunInfo(path=f"{path}/{name}@1", status=NodeRunStatus.SKIPPED, attempts=0)


def _at(root: BaseAgent, path: str) -> Workflow | None:
    """The workflow that stands on this path of agents and nodes; None if another thing does, or nothing."""
    found: BaseAgent | None = root
    for place, part in enumerate(path.split("/")):
        name = part.partition("@")[0]
        if isinstance(found, Workflow) and place > 0:
            node = found._nodes.get(name)
            found = node.agent if isinstance(node, AgentNode) else None
        elif found is not None:
            found = found.find_agent(name)
    return found if isinstance(found, Workflow) else None
