"""
A workflow at work: what is ready is started, what has ended is folded into the plan.

The plan (`_graph`) knows nothing of tasks, and this file nothing of routes and joins. One task runs each node, in a
lane of its own. When the event that a run ends with is stored, its outcome is folded, in the same task and at once: so
the plan is the fold of what is stored, at every event. An invocation that is resumed folds what is recorded, which runs
nothing, and starts what is ready then.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .._json import FrozenTuple, freeze
from .._values import MAKE, changed
from ..agents._lanes import Lanes
from ..events import Event, NodeInfo
from ..flows._record import unattempted
from ..runtime import InvocationContext
from ..runtime._failure import Pause, is_pause
from ..types import Content
from ._graph import NodeRun, Outcome, Plan
from ._node_run import NodeExecution
from ._slots import Place, Slots

if TYPE_CHECKING:
    from ._workflow import Workflow

__all__ = ["ending", "outcome_of", "run_workflow"]


def outcome_of(event: Event, given: Any) -> Outcome:
    """What the event that a run has ended with says, which was *given* that."""
    if event.error_code is not None:
        told = _in_words(given)
        if isinstance(given, dict):  # of a join: what START has given it, too
            told = {name: _in_words(each) for name, each in given.items()}
        return Outcome(failed=freeze({"type": event.error_code, "message": event.error_message, "input": told}))
    output = event.text if event.node_info.message_as_output else event.output
    route = event.actions.route
    return Outcome(output, output is not None or route is None, tuple(route) if isinstance(route, list) else route)


def _in_words(given: Any) -> Any:
    """What a run was given, as JSON."""
    return given.text if isinstance(given, Content) else given


def ending(info_path: str, last: Event) -> Event:
    """What a run says last, as the event of its end."""
    as_output = last.output is None and last.content is not None and last.node_info.message_as_output
    ours = FrozenTuple([info_path])
    info = MAKE[NodeInfo](path=info_path, output_for=ours, message_as_output=as_output or None)
    return changed(last, node_info=info)


async def run_workflow(workflow: Workflow, context: InvocationContext) -> Any:
    """Run the graph from where the log has it, and return its output."""
    return await _Running(workflow, context).run()


def _with_schema(workflow: Workflow, context: InvocationContext) -> InvocationContext:
    """The context of what may be written in the workflow."""
    if workflow._state_schema is None:
        return context
    from ..sessions._state_schema import constrain  # few workflows have one

    state = context._state.layer()
    constrain(state, workflow._state_schema)
    return context._at(state)


class _Running:
    def __init__(self, workflow: Workflow, context: InvocationContext) -> None:
        self._workflow = workflow
        self._context = context = _with_schema(workflow, context)
        node = context._position.node
        self._input = workflow._read_input(context.user_content if node is None else node.input)
        self._info_path = context._position.node_info.path
        self._is_outermost = node is None
        above, _, own = context._path.rpartition("/")
        round_ = own.partition("*")[2] or above.rpartition("/")[2].partition("+")[2]
        self._lanes = Lanes(context, f"{workflow.name}#{round_}" if round_ else workflow.name, workflow.on_failure)
        self._slots = Slots(workflow.max_concurrency, self._start_ready)
        self._plan: Plan = workflow._graph.begin(self._input)
        self._waiting: list[NodeRun] = []  # that are ready, and have no place yet
        self._ending: str | None = None  # the run whose output is about to be that of the workflow
        self._nursery: trio.Nursery | None = None
        self._is_stopped = False  # whether a node has failed, or was cancelled: nothing is started any more

    async def run(self) -> Any:
        self._fold_recorded()
        try:
            await self._lanes.run(self._begin)
        except Pause:
            if not self._context.end_invocation:
                raise
            await self._lanes.withdraw()  # what a lane has asked is of no use any more
        node = self._context._position.node
        if node is not None and node.agent is None:
            node.output = self._plan.output
        return self._plan.output

    def _fold_recorded(self) -> None:
        """Fold what the log has of this workflow: nothing of it is run, nobody is shown it again."""
        invocation = self._context._invocation
        for event in self._recorded():
            run_id = (event.actions.replay.ended or "").rpartition("/")[2]
            self._fold(run_id, event)
            if event.actions.end_invocation:
                invocation.end_invocation = True
            if event.actions.escalate:
                self._context._position.escalation.set()

    def _recorded(self) -> Iterable[Event]:
        """The events with which runs of nodes have ended here, in order: in earlier runs, and in earlier attempts."""
        path, invocation = unattempted(self._context._path), self._context._invocation
        if path == self._context._path:
            return () if invocation.replayer is None else invocation.replayer.record.ended_below(path)
        events = invocation.live.window(invocation.history.message_seq)
        ended = ((event, event.actions.replay.ended) for event in events if event.invocation_id == invocation.id)
        return [event for event, run in ended if run and unattempted(run).rpartition("/")[0] == path]

    def _fold(self, run_id: str, event: Event) -> None:
        run = self._plan.find(run_id)
        self._plan = self._plan.ended(run_id, outcome_of(event, None if run is None else run.input))
        self._waiting += self._plan.added

    def _begin(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._waiting = list(self._plan.ready)
        self._start_ready()

    def _start_ready(self) -> None:
        """Start what is ready, in the order of the triggers, as far as there are places."""
        nursery = self._nursery
        assert nursery is not None, "the lanes run"
        while self._may_start() and self._slots.take():
            run = self._waiting.pop(0)
            nursery.start_soon(self._run_nodes, run, name=f"node {run.id}")

    def _may_start(self) -> bool:
        context = self._context
        return bool(self._waiting) and not (self._is_stopped or context.escalated or context.end_invocation)

    async def _run_nodes(self, run: NodeRun) -> None:
        """Run a node, and in the same task and place what is ready then: a chain takes one task, not one for a node."""
        try:
            await self._run_node(run)
            while self._may_start() and self._slots.may_keep():
                run = self._waiting.pop(0)
                self._start_ready()
                trio.lowlevel.current_task().name = f"node {run.id}"
                await self._run_node(run)
        finally:
            self._slots.leave()

    async def _run_node(self, run: NodeRun) -> None:
        execution = self._execution(run)
        replayer = self._context._invocation.replayer
        if replayer is not None:
            replayer.record.start_branches([execution.branch])
        await self._lanes.lane(execution.branch, partial(self._run_and_fold, run, execution))

    async def _run_and_fold(self, run: NodeRun, execution: NodeExecution) -> None:
        try:
            event = await execution.run()
        except BaseException as error:
            self._is_stopped = self._is_stopped or not is_pause(error)
            raise
        finally:
            self._take_back(run.id)
        self._fold(run.id, event)

    def _execution(self, run: NodeRun) -> NodeExecution:
        node = self._workflow._nodes[run.name]
        branch = f"{self._lanes.within}{run.name}" + ("" if run.number == 1 else f"#{run.number}")
        info_path = f"{self._info_path}/{run.id}"
        has_handler = self._workflow._handles_failure(run.name)
        return NodeExecution(
            above=self._context,
            agent=self._workflow,
            node=node,
            path=f"{self._context._path}/{run.id}",
            branch=branch,
            info_path=info_path,
            input=run.input,
            place=Place(self._slots),
            lane=(self._lanes.concurrent, run.serial),
            ending=partial(self._ended_by, run, info_path),
            on_failed=partial(self._take_back, run.id),
            on_failure=self._failed_with if has_handler else None,
            missing=run.missing,
        )

    def _take_back(self, run_id: str) -> None:
        """This run has ended, or an attempt of it has failed, maybe at its end: it is not about to give an output."""
        self._ending = None if self._ending == run_id else self._ending

    def _failed_with(self, error: Exception) -> Event:
        """What a run says at its end that has failed, and whose failure leads somewhere."""
        text = self._context._invocation.secrets.text_of(error)
        message = text.encode("utf-8", "replace").decode() if text else type(error).__name__
        return Event(error_code=type(error).__name__, error_message=message)

    def _ended_by(self, run: NodeRun, info_path: str, last: Event) -> Event:
        """The event that the run ends with; raises if the graph cannot go on from there."""
        event = ending(info_path, last)
        outcome = outcome_of(event, run.input)
        self._plan.check(run, outcome)
        if self._plan.is_terminal(run, outcome):
            self._workflow._check_output(outcome.output)
            if self._workflow.output is None:
                if self._ending not in (None, run.id):
                    raise self._plan.second_output(self._ending, run)
                self._ending = run.id
            if self._is_outermost:
                both = FrozenTuple([info_path, self._info_path])
                event = changed(event, node_info=changed(event.node_info, output_for=both))
        return event
