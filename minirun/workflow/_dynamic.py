"""
Nodes that are run by other logic: `ctx.run_node` and `ctx.map`.

What is run is found again by where it is asked for: the path of the context, the node's name, what it is given, and how
often the same was asked for there. So it is with steps, and what is recorded of another input in the same place is
refused as theirs is. It speaks in a branch of its own (`helper~1`), which no prompt outside shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .._json import brief, dumps, freeze
from .._values import changed
from ..agents._lanes import ON_FAILURE
from ..errors import ConfigurationError, NodeRunsLimitExceededError, ReplayError
from ..events import Event, NodeInfo, RecordedStep
from ..flows._record import unattempted
from ..flows._recorded_step import event_of_failure
from ..flows._recorded_step import outcome_of as failure_of
from ..runtime._failure import first_failure, is_only_cancelled, is_pause
from ..sessions._concurrent import ConcurrentWrites
from ..types import Content
from ._node_run import FINAL, NodeExecution
from ._nodes import JoinNode, Node, is_limit
from ._running import ending, outcome_of
from ._view import with_graphs
from ._wrap import as_node

if TYPE_CHECKING:
    from ..runtime._context import WorkingContext
    from ..runtime._replay import Replayer

__all__ = ["map_nodes", "run_node", "with_graphs"]

# Functions that are made anew each time would stay until the run ends.
NODES_KEPT_MAX = 64

# How many runs, each run by the one around it, share the stack of a task: Python allows a few dozen more.
RUNS_IN_A_TASK_MAX = 12


async def run_node(context: WorkingContext, value: Any, given: Any, name: str | None) -> Any:
    """See `InvocationContext.run_node`."""
    node = _node(context, value, name)
    return await _run(context, *_claimed(context, node, _frozen(given, node)))


async def map_nodes(
    context: WorkingContext,
    value: Any,
    items: Iterable[Any],
    name: str | None,
    max_concurrency: int | None,
    on_failure: str,
) -> list[Any]:
    """See `InvocationContext.map`."""
    if not is_limit(max_concurrency):
        found = brief(max_concurrency)
        raise ConfigurationError(f"expected max_concurrency from 1 up, or None for no limit, found {found}")
    if on_failure not in ON_FAILURE:
        raise ConfigurationError(f"expected on_failure 'cancel_others' or 'collect', found {brief(on_failure)}")
    if isinstance(items, (str, bytes, bytearray)) or not isinstance(items, Iterable):
        raise ConfigurationError(f"expected items to be a list, or another iterable of values, found {brief(items)}")
    if isinstance(items, (Mapping, set, frozenset)):
        advice = "write list(items.items())" if isinstance(items, Mapping) else "which has no order; sort it"
        raise ConfigurationError(f"expected items to be a list, found {brief(items)}; {advice}")
    node = _node(context, value, name)
    concurrent, limit = ConcurrentWrites(), context._invocation.run_config.max_node_runs
    runs = []
    for place, item in enumerate(items):
        if 0 < limit <= place:  # which may never end
            msg = f"expected no more items of {node.name!r} than the {limit} nodes that an invocation may run"
            raise NodeRunsLimitExceededError(f"{msg}, found more; raise RunConfig.max_node_runs, or give fewer")
        runs.append(_claimed(context, node, _frozen(item, node), (concurrent, place)))
    beside = _items(runs)
    results: list[Any] = [None] * len(runs)
    failures: list[Exception] = []
    pauses: list[BaseException] = []
    left = iter(enumerate(runs))

    async def work() -> None:
        for place, run in left:
            if failures or pauses:
                return  # what has not begun does not begin; an invocation that goes on comes to it
            try:
                results[place] = await _run(context, *run, beside)
            except Exception as error:
                if on_failure == "cancel_others":
                    raise
                failures.append(error)
            except BaseException as error:  # what waits lets the others come to their end
                if not is_pause(error):
                    raise
                pauses.append(error)

    workers = len(runs) if max_concurrency is None else min(max_concurrency, len(runs))
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(work)
    except BaseExceptionGroup as group:
        first = first_failure(group)
        if isinstance(first, Exception):
            raise first from group
        raise
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup(f"items of {node.name!r} failed", failures)
    if pauses:
        raise pauses[0]
    return results


def _node(context: WorkingContext, value: Any, name: str | None) -> Node:
    """The node that *value* is, made once for a loop that runs it: reading a signature takes as long as a run."""
    kept: dict[tuple[int, str | None], tuple[Any, Node]] = context._invocation.memo.setdefault("nodes", {})
    found = kept.get((id(value), name))
    if found is None:
        node = as_node(value)
        if isinstance(node, JoinNode):
            raise ConfigurationError(f"expected a node that runs alone, found the join {node.name!r}; it needs a graph")
        if len(kept) == NODES_KEPT_MAX:
            del kept[next(iter(kept))]
        found = kept[id(value), name] = value, node if name is None else node._changed(name=name)
    return found[1]


def _frozen(given: Any, node: Node) -> Any:
    return given if isinstance(given, Content) else freeze(given, f"input of {node.name!r}")


def _claimed(
    context: WorkingContext, node: Node, given: Any, lane: tuple[ConcurrentWrites, int] | None = None
) -> tuple[NodeExecution, str, str]:
    """
    The run of *node* that *context* asks for now, the id of the event that says so if it fails, and what it is found by
    once it has ended, whichever attempt that was in.
    """
    invocation = context._invocation
    invocation.secrets.check_name(node.name, "name of the node")
    told = given.text if isinstance(given, Content) else given
    ids, base = invocation.ids, f"{context._path}/{node.name}"
    place = unattempted(base)
    claimed = context._claim(f"{place} {dumps(told)}")
    while (failed_id := context._claim(f"{place}! {dumps(told)}")) in ids.failed_steps:
        pass
    if context._is_in_order():
        count = ids.counts[base] = ids.counts.get(base, 0) + 1
        label = str(count)
    else:  # of several tasks trio chooses which is first
        label = claimed[:16]
    scope = context._position.node
    attempt = f"{node.attempt_marker}{scope.attempt}" if scope is not None and scope.attempt > 1 else ""
    path = f"{base}@{label}~{claimed[:8]}"
    info_path = f"{context._position.node_info.path}/{node.name}@{label}".lstrip("/")
    execution = NodeExecution(
        above=context,
        agent=context.agent,
        node=node,
        path=f"{path}{attempt}",
        branch=f"{_branch(context)}{node.name}~{label}{attempt}",
        info_path=info_path,
        input=given,
        place=None if scope is None else scope.place,
        lane=lane,
        ending=partial(ending, info_path),
    )
    return execution, failed_id, unattempted(path)


def _branch(context: WorkingContext) -> str:
    """What the name of the branch begins with: what a tool runs is inside of its call."""
    call_id, branch = context._call_id, f"{context.branch}." if context.branch else ""
    if call_id is None:
        return branch
    context._invocation.inside |= {call_id}
    name = context._path.rpartition("/")[2].partition("#")[0]
    return f"{branch}{name}@{call_id}."


def _items(runs: list[tuple[NodeExecution, str, str]]) -> str:
    """The items of a map, as the record of the failure of one names them: `[first:last]`; "" if they have no order."""
    ends = [runs[0], runs[-1]] if runs else []
    numbers = [path.rpartition("~")[0].rpartition("@")[2] for _, _, path in ends]
    return f"[{':'.join(numbers)}]" if numbers and all(map(str.isdecimal, numbers)) else ""


async def _run(context: WorkingContext, execution: NodeExecution, failed_id: str, path: str, beside: str = "") -> Any:
    invocation, name = context._invocation, execution.node.name
    failed = invocation.emitter.find(context, failed_id)
    if failed is not None:
        return failure_of(await invocation.emitter.repeat(context, failed, {}), name)
    replayer = invocation.replayer
    ended: Event | None = invocation.memo.get(("ended", path))
    if ended is None and replayer is not None:
        ended = _recorded(replayer, path)
    if ended is None:
        async with AsyncExitStack() as stack:
            if execution.place is not None:
                execution.place = await stack.enter_async_context(execution.place.below())
            try:
                ended = await _on_a_stack(context, execution.run)
            except (*FINAL, ReplayError):
                raise
            except Exception as error:  # recorded, as that of a step: whoever catches it goes on from there
                step = RecordedStep(name=name, path=f"{context._path}/{name}{beside}")
                text = invocation.secrets.text_of(error)
                info = NodeInfo(path=execution.info_path, output_for=())
                event = changed(event_of_failure(failed_id, error, step, text), node_info=info)
                await invocation.emitter.emit(context, event)
                raise
    else:
        await trio.lowlevel.checkpoint()
    invocation.memo["ended", path] = ended  # an attempt that comes to it again finds it
    return outcome_of(ended, execution.input).output


async def _on_a_stack(context: WorkingContext, work: Callable[[], Awaitable[Event]]) -> Event:
    """
    Do *work*, in a task of its own if the stack of this one has many runs of nodes by now.

    So a node that runs itself without end comes to `RunConfig.max_node_runs`, and not to the end of Python's stack.
    """
    if (context._path.count("~") + 1) % RUNS_IN_A_TASK_MAX:
        return await work()
    ended: list[Event] = []
    failed: list[BaseException] = []

    async def do() -> None:
        try:
            ended.append(await work())
        except BaseException as error:
            if is_only_cancelled(error):
                raise
            failed.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(do, name=trio.lowlevel.current_task().name)
    if failed:
        raise failed[0]
    return ended[0]


def _recorded(replayer: Replayer, path: str) -> Event | None:
    """
    The event with which an earlier run has ended what runs on *path*, if one has.

    Raises:
        ReplayError: Something else has run in this place.
    """
    place = path.rpartition("~")[0]
    ended = replayer.record.ended.get(place)
    if ended is not None and not unattempted(ended.actions.replay.ended or "").startswith(path):
        msg = f"expected the node of {place} to be given what it was given before, found another input"
        raise ReplayError(f"{msg}; logic that is resumed has to run the same nodes with the same inputs")
    return ended
