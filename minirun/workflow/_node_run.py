"""
One run of a node, from its start to the event that it ends with.

    start      counts for `RunConfig.max_node_runs`; what the record has of it is found by its path
    attempt    the node's logic, in a context of its own: what a failed attempt has written and not stored is gone
    again      a failed attempt is noted in the log, with when the next is due: a process that dies counts on
    end        one event: the output, the route, the state, the artifacts, and the mark that the run has ended

Either the event of the end is stored, with everything, and nothing of the run is done again; or it is not, and the node
is run from its start by who resumes the invocation, and what it has said, its steps and its questions are taken from
the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._json import EMPTY_DICT, FrozenTuple
from .._values import MAKE, changed
from .._workflow_errors import NodeTimeoutError
from ..agents._lanes import no_stray_cancellation
from ..env import derived_id
from ..errors import FatalError, MinirunError, ReplayError, StorageError
from ..events import Event, EventActions, NodeInfo, Replay
from ..flows._branches import is_within
from ..runtime import InvocationContext, StreamingMode
from ..runtime._failure import first_failure, leaves
from ..runtime._steps import sleep_until
from ..sessions._concurrent import ConcurrentWrites
from ..tools._again import begin_again
from ._context import NodeContext
from ._scope import NodeScope
from ._slots import Place

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..runtime._base_context import ContextBase
    from ._nodes import Node

__all__ = ["FINAL", "NodeExecution"]

# Whose outcome an event is that is said on the way.
NOBODY = FrozenTuple()

# After these there is neither another attempt nor a handler. A group is of an attempt that asks still.
FINAL = (FatalError, StorageError, ExceptionGroup)

LONG_DELAY_S = 60.0
"""A longer delay before the next attempt pauses the invocation: no process has to live as long."""


@attrs.define(eq=False, repr=False)
class NodeExecution:
    """
    A run of *node* that is about to begin.

    Args:
        above: The context that it is run from.
        agent: The agent that what the node says is said by, unless the node is one.
        path: What its ids follow from.
        branch: Where it says what it says.
        info_path: How `NodeInfo.path` names it.
        input: JSON, frozen, or the user's Content.
        place: Its place among those that go on at once; until it begins, that of the run it is run from.
        lane: What the writes of those beside it are noted in, and its number among them.
        ending: Makes the event that it ends with of what it says at its end, checked: raises if it cannot end so.
        on_failed: Told of each attempt that has failed, also of one whose end was refused.
        on_failure: Makes the event that it ends with if it has failed; None: the failure is raised.
        missing: Of a join: the predecessors that can come no more.
    """

    above: ContextBase
    agent: BaseAgent
    node: Node
    path: str
    branch: str
    info_path: str
    input: Any
    place: Place | None
    lane: tuple[ConcurrentWrites, int] | None
    ending: Callable[[Event], Event]
    on_failed: Callable[[], None] | None = None
    on_failure: Callable[[Exception], Event] | None = None
    missing: tuple[str, ...] = ()

    async def run(self) -> Event:
        """Run it, and return the event that it has ended with, stored."""
        invocation = self.above._invocation
        await invocation.env.point(f"node {self.path}")
        invocation.budgets.spend("max_node_runs")
        attempt, start_seq = 1, self._start_seq()
        failed: Event | None = None  # the note on the attempt before
        while (noted := self._noted(attempt)) is not None:
            await self._repeat_failed(noted)
            attempt, start_seq, failed = attempt + 1, _behind(noted), noted
        while True:
            if failed is not None:
                context, _ = self._context(attempt, start_seq)
                await _wait_until_due(context._at(context.state, path=f"{self.path}!{attempt}"), failed)
            context, scope = self._context(attempt, start_seq)
            try:
                if invocation.run_config.streaming_mode is StreamingMode.SSE:
                    await context.emit(self._begun(attempt))
                return await self._end(context, scope, await self._attempted(context, scope))
            except Exception as group:
                error = _own(group)
                if self.on_failed is not None:
                    self.on_failed()
                spent: list[str] = []
                try:
                    spent = await self._withdraw(context, attempt, error)
                except MinirunError as refused:  # its questions are open: nothing may come after it
                    error = ExceptionGroup(f"the node {self.info_path} has failed, and asks still", [error, refused])
                begin_again(context)
                context._close(f"the attempt of the node {self.info_path} has ended")
                failed = await self._note_failed(context, error, attempt, spent)
                if failed is None:
                    last = self._end_of_failed(error)
                    break
                attempt, start_seq = attempt + 1, _behind(failed)
            except BaseException as error:
                if isinstance(error, GeneratorExit):  # it ends the run: see `Run`
                    error.add_note(f"in the node {self.info_path}")
                invocation.ids.release(context._claims)  # another attempt of what this is part of comes to the same
                raise
        context, scope = self._context(attempt + 1, start_seq)
        try:
            return await self._end(context, scope, last)
        except Exception as error:
            self._leave(error)
            raise

    async def _end(self, context: InvocationContext, scope: NodeScope, last: Event) -> Event:
        """Store the event that it ends with; what is refused of it is a failure of the attempt, like any other."""
        if scope.ended_by is None:  # else the answer of an agent has ended it
            await self.above._invocation.env.point(f"end of node {self.path}")
            await trio.lowlevel.checkpoint_if_cancelled()  # it may have come here in spite of that
            scope.ended_by = await context.emit(self._marked(last))
        context._close(f"the node {self.info_path} has ended")
        return scope.ended_by

    def _begun(self, attempt: int) -> Event:
        """What a caller that wants partial events is shown when an attempt begins."""
        event_id = derived_id(self.above.invocation_id, f"{self.path}!begun", attempt)
        return Event(id=event_id, partial=True, custom_metadata={"node_run": {"status": "running", "attempt": attempt}})

    def _end_of_failed(self, error: Exception) -> Event:
        """What it ends with although all attempts have failed; raises *error* if there is nothing."""
        if self.on_failure is not None and not isinstance(error, FINAL):
            return self.on_failure(error)
        self._leave(error)
        raise error

    def _leave(self, error: Exception) -> None:
        """Say where *error* came from, which leaves the run now: in a note on it, and in the event that is stored."""
        failures, node = self.above._invocation.failures, NodeInfo(path=self.info_path, output_for=())
        for leaf in leaves(error):
            failures.note_origin(leaf, self.agent.name, self.branch, node)
        try:
            error.add_note(f"in the node {self.info_path}")
        except Exception:  # a frozen one is raised as it is
            pass

    def _marked(self, last: Event) -> Event:
        """The event that the run ends with, checked."""
        event = self.ending(last)
        return changed(event, actions=changed(event.actions, replay=changed(event.actions.replay, ended=self.path)))

    # --- its contexts

    def _context(self, attempt: int, start_seq: int) -> tuple[InvocationContext, NodeScope]:
        """The context of one attempt, and what is known there of the run."""
        above = self.above
        position, invocation = above._position, above._invocation
        around = position.concurrent if self.lane is None else (*position.concurrent, self.lane)
        agent = self.node.agent_that_ends(invocation.program.plugins)
        scope = NodeScope(self.info_path, self.input, attempt, start_seq, self.place, self._marked, agent, self.missing)
        scope.ends_with_questions = not self.node.rerun_on_resume
        position = changed(
            position,
            path=self.path,
            branch=self.branch,
            concurrent=around,
            main_task=trio.lowlevel.current_task(),
            node=scope,
            node_info=MAKE[NodeInfo](path=self.info_path, output_for=NOBODY),
        )
        reads = invocation.reads_of(self.path if attempt == 1 else f"{self.path}*{attempt}")
        context = NodeContext(invocation, self.agent, position, above._state, reads)
        return context, scope

    def _start_seq(self) -> int:
        """Where the history of the node begins: before the first that is recorded of it, or here."""
        replayer, live = self.above._invocation.replayer, self.above._invocation.live
        recorded = None if replayer is None else replayer.record.first_below(self.branch)
        return live.revision + 1 if recorded is None else recorded

    async def _attempted(self, context: InvocationContext, scope: NodeScope) -> Event:
        """What the attempt is to end with: it has done all that it was to do."""
        with no_stray_cancellation(f"node {self.info_path}"):
            last = await self._within_time(context, scope)
        return last

    async def _within_time(self, context: InvocationContext, scope: NodeScope) -> Event:
        limit = self.node.limits[1]
        if limit is None:
            return await self.node._run(context, scope)
        with trio.CancelScope(deadline=trio.current_time() + limit) as time:
            last = await self.node._run(context, scope)
            if scope.ended_by is not None or not time.cancel_called:
                return last  # else it has taken its time, whatever it has made of its cancellation
        raise NodeTimeoutError(self.node.name, limit)

    # --- its attempts

    def _noted(self, attempt: int) -> Event | None:
        """The note that this attempt has failed, if an earlier run has stored one."""
        replayer = self.above._invocation.replayer
        return None if replayer is None else replayer.record.find(self._note_id(attempt))

    def _note_id(self, attempt: int) -> str:
        return derived_id(self.above.invocation_id, f"{self.path}!attempt", attempt)

    async def _repeat_failed(self, noted: Event) -> None:
        """Take an attempt from the log that has failed: what it has said is behind this run."""
        invocation = self.above._invocation
        note = noted.actions.replay.attempt
        assert invocation.replayer is not None
        assert note is not None
        context, _ = self._context(note["number"], 0)
        await invocation.replayer.repeat(context, noted, EMPTY_DICT)
        invocation.ids.counts[self.path] = note["said"]
        invocation.ids.failed_steps |= set(note["failed_steps"])
        invocation.ids.claimed.update(dict.fromkeys(note.get("spent", ()), ("", 0)))

    async def _withdraw(self, context: InvocationContext, attempt: int, error: Exception) -> list[str]:
        """
        Withdraw the open questions of the attempt that failed with *error*.

        Return the ids of the node's own questions, which are spent: another attempt asks under other ids. A failure
        before the recorded events of the node are replayed withdraws nothing: the replay comes before anything new.

        Raises:
            StorageError, StaleSessionError: See `close_calls`.
        """
        replayer = context._invocation.replayer
        is_behind = replayer is not None and replayer.record.next_in(self.branch) is not None
        if is_behind or isinstance(error, ReplayError):
            return []  # the invocation stays as it was: the next run needs its questions
        asked = [call for call in context._invocation.open_calls() if is_within(call.branch, self.branch)]
        if not asked:
            return []
        from ..runtime._closing import close_calls  # few nodes fail while somebody is asked

        fresh, _ = self._context(attempt, 0)  # without what the attempt has written
        await close_calls(fresh, asked)
        spent = {call.call_id.removeprefix("q-") for call in asked}.intersection(context._claims)
        context._claims[:] = [each for each in context._claims if each not in spent]
        return sorted(spent)

    async def _note_failed(
        self, context: InvocationContext, error: Exception, attempt: int, spent: list[str]
    ) -> Event | None:
        """Store that an attempt has failed and when the next is due; None if there is none."""
        retry, invocation = self.node.limits[0], self.above._invocation
        if retry is None or attempt >= retry.max_attempts or isinstance(error, FINAL):
            return None
        if not retry.covers(error) or invocation.end_invocation:
            return None
        delay_s = retry.delay_s(attempt, invocation.env.random(f"retry of {self.path}"))
        note = {
            "run": self.path,
            "number": attempt,
            "due": invocation.env.now() + delay_s,
            "delay_s": delay_s,
            "said": invocation.ids.counts.get(self.path, 0),
            **({"spent": spent} if spent else {}),
            "failed_steps": sorted(invocation.ids.failed_steps.intersection(context._claims)),
        }
        told = {
            "attempt": attempt,
            "max_attempts": retry.max_attempts,
            "delay_s": delay_s,
            "error": type(error).__name__,
            "message": invocation.secrets.text_of(error),
        }
        event = Event(
            id=self._note_id(attempt),
            custom_metadata={"node_retry": told},
            actions=EventActions(replay=Replay(attempt=note, aside=True)),
        )
        fresh, _ = self._context(attempt, 0)  # without what the attempt has written
        return await fresh.emit(event)


def _own(error: Exception) -> Exception:
    """The one exception that stands for what has left the logic of a node: a nursery raises a group."""
    first = first_failure(error)
    return first if isinstance(first, Exception) else error


def _behind(event: Event) -> int:
    """Where the history begins that follows a stored event."""
    assert event.seq is not None, "it is stored"
    return event.seq + 1


async def _wait_until_due(context: InvocationContext, failed: Event) -> None:
    """Wait for the time of the attempt that follows the *failed* one; for a long time the invocation is paused."""
    note = failed.actions.replay.attempt
    assert note is not None
    if note["delay_s"] > LONG_DELAY_S:
        await sleep_until(context, note["due"])
        return
    env = context._invocation.env  # whose clock may be set back meanwhile: the delay is not longer for it
    await env.sleep(min(note["delay_s"], max(0.0, note["due"] - env.now())))
