"""
A run at work, and its end.

`Run` is what its caller holds. One task runs the agent that answers, between the hooks of the run. When it has ended,
however that was, the same task closes what is open, records how the invocation is left, and lets the next run into the
session. What is closed and recorded is said by the table in `_endings`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from .._service import misused
from .._window import Window
from ..errors import DeadlineExceededError, InvocationEndedError, ReplayError, StaleSessionError, StorageError
from ..events import Event, EventActions, Replay
from ..flows._answer import is_answer_of_run
from ..flows._record import end_of_unchanged_run
from ..flows._turn import CUT_OFF
from ..sessions import InvocationStatus, Session, SessionWriter
from ..sessions._state import parted
from ._context import InvocationContext
from ._endings import Closes, Ending, Stop, ending_of, failed_by, stopped_by
from ._failure import (
    add_note,
    came_of_cancellation,
    first_failure,
    is_only_cancelled,
    is_pause,
    leading_failure,
    leaves,
)
from ._invocation import Invocation

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..sessions import NodeRunInfo, PendingCall
    from ..types import Content, UsageMetadata
    from ._replay import Replayer

__all__ = ["Execution", "Run"]


class Run:
    """
    A run in progress: iterate over it for its events, or `await run.wait()` for its answer.

    `session` is the live session; it goes on with every stored event.
    """

    def __init__(
        self,
        invocation_id: str,
        session: Session,
        invocation: Invocation | None,
        status: InvocationStatus = InvocationStatus.RUNNING,
        answer: Event | None = None,
    ) -> None:
        """Without an *invocation* it had ended before, with this *status* and *answer*."""
        self.invocation_id = invocation_id
        self.session = session
        self._invocation = invocation
        self.compaction: Event | None = None
        """
        The event with the summary that was stored at the end of this run, if one was. It is not among those that the
        run yields: the last of these was delivered before.
        """
        self.compaction_error: Exception | None = None
        """
        What the summarizer or the store has failed with. It costs the run nothing; the next one tries again. It is no
        failure that an invocation that waits, or was interrupted, keeps what follows it out of summaries.
        """
        self._status = status
        self._failure: BaseException | None = None
        self._is_delivered = False  # whether the caller has been raised the failure
        self._answer = answer
        self._looked_until = 0 if invocation is None else invocation.history.message_seq
        self._has_ended = invocation is None

    @property
    def status(self) -> InvocationStatus:
        """`running`, and in the end `paused`, `completed`, `failed`, `cancelled`; `interrupted` if it is to go on."""
        return self._status

    @property
    def pending(self) -> list[PendingCall]:
        """The questions of this invocation that wait for an answer, oldest first."""
        return [] if self._invocation is None else self._invocation.pending()

    @property
    def nodes(self) -> list[NodeRunInfo]:
        """
        The runs of workflows' nodes that this invocation has recorded by now, in the order of their first events; then
        those that may begin, and the nodes that never run. Of one that had ended before, what is recorded.
        """
        from ..sessions._node_runs import node_runs  # few programs look at them

        events = self.session.events if (own := self._invocation) is None else own.live.window(own.history.message_seq)
        found = node_runs(events, self.invocation_id, self._status)
        return found if own is None else own.program.nodes().with_graphs(found, events, self._status, own.program.tree)

    @property
    def answer(self) -> Event | None:
        """
        The last stored event of an agent that is an answer: final, without an error, and with something in it. That is
        text (thoughts aside), an `output`, other media, or a result with `skip_summarization`. None until then.
        """
        if not self._has_ended:
            assert self._invocation is not None
            live = self._invocation.live
            for event in reversed(live.events[live.index_of(self._looked_until) :]):
                if event.invocation_id == self.invocation_id and is_answer_of_run(event):
                    self._answer = event
                    break
            self._looked_until = live.revision + 1  # the next look begins there
        return self._answer

    @property
    def is_truncated(self) -> bool:
        """Whether the limit of tokens (`max_output_tokens`, or the model's own) has cut off the answer."""
        return self.answer is not None and self.answer.finish_reason == CUT_OFF

    @property
    def failed_calls(self) -> dict[str, str]:
        """By the ids of calls: where their tools have failed in this run, as `file:line in function: error`."""
        return {} if self._invocation is None else dict(self._invocation.failures.of_tools)

    @property
    def abandoned_threads(self) -> int:
        """How many threads of its tools and steps were given up: cancelled, and not ended in `thread_grace_s`."""
        return 0 if self._invocation is None else self._invocation.failures.abandoned_threads

    @property
    def output(self) -> Any:
        """The `output` of the answer, as an instance of its agent's `output_schema` class if that is one; or None."""
        from ..flows._results import typed_output  # few programs ask for instances

        answer, invocation = self.answer, self._invocation
        return typed_output(answer, answer and invocation and invocation.program.tree.find(answer.author))

    @property
    def usage(self) -> UsageMetadata:
        """What the models of the invocation say they have used so far, in sum; None for what none has counted."""
        from ..flows._results import total_usage

        return total_usage(self._invocation.budgets.usages if self._invocation else ())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    if not TYPE_CHECKING:  # a type checker has a word of its own for these
        __await__ = __iter__ = __enter__ = __exit__ = __aenter__ = __aexit__ = misused

    async def __anext__(self) -> Event:
        """
        Let the logic that emitted the last event go on, and return the next event.

        A checkpoint; where a partial event is there already, one of cancellation only: at most `partial_buffer` of them
        come in a row before other tasks have their turn.
        """
        if self._invocation is None:  # it had ended before
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        event = await self._invocation.committer.ask()
        if event is not None:
            return event
        if self._failure is not None and not self._is_delivered:
            self._is_delivered = True
            raise self._failure
        raise StopAsyncIteration

    async def send(self, content: str | Content, *, when: str = "next_model_call") -> str:
        """
        Send a message of the user into this run: `await run.send("also do the other one")`.

        It returns once the message is in the store, where it waits for the run, in the order of sending; it never waits
        for the agents, so the task that iterates over the run may send. See `Runner.send` for what becomes of it then,
        and what *when* says. Once the run is paused, the message waits with its invocation.

        Returns:
            The id of the event that the message will be.

        Raises:
            InvocationEndedError: The run has ended.
            InvalidMessageError, InvalidValueError, StorageError: As `Runner.send`. Nothing is stored.
        """
        if self._invocation is None or self._status.has_ended:
            raise InvocationEndedError(f"the invocation {self.invocation_id} has ended; send a new message")
        sent: str = await self._invocation.program.messages().send_into(self._invocation, content, when)
        return sent

    async def wait(self) -> Event | None:
        """Consume what is left of the run and return `answer`; raises what the run fails with."""
        async for _ in self:
            pass
        return self.answer

    def _end(self) -> None:
        """Note that the agents say nothing any more: the answer stays what it is."""
        self._answer, self._has_ended = self.answer, True

    def _fail(self, error: BaseException) -> None:
        """Note what the run fails with: the first exception, with the others as notes on it."""
        if isinstance(error, (StopAsyncIteration, GeneratorExit)):  # in the caller's `async for` these mean the end
            wrapped = RuntimeError(f"the agent raised {type(error).__name__}; a generator was closed or used wrongly")
            wrapped.__cause__ = error
            error = wrapped
        if self._failure is None:
            self._failure = error
        elif self._failure is not error:
            add_note(self._failure, error)
        assert self._invocation is not None
        self._invocation.secrets.out_of_error(self._failure)


def _unchanged(replayer: Replayer) -> EventActions:
    """The actions of an event which says that its run ended before the agents did anything new."""
    return EventActions(replay=Replay(was_paused=replayer.record.was_paused))


class Execution:
    """
    The task of a run's agents.

    Args:
        run: The run, for its caller.
        context: The context that it begins with.
        writer: What it holds of the session.
        around: The scope around the caller's block: cancelling it is how the caller hears of Ctrl-C.
        is_supervised: Whether leaving it early interrupts the invocation rather than ending it.
    """

    is_resumable: ClassVar[bool] = True
    """Whether a worker can resume the invocation. If not, it fails with a transient failure of the store, too."""

    def __init__(
        self,
        run: Run,
        context: InvocationContext,
        writer: SessionWriter,
        around: trio.CancelScope,
        *,
        is_supervised: bool,
    ) -> None:
        self.caller = run
        self.context = context
        self.invocation = invocation = context._invocation
        self._writer = writer
        self._around = around
        self._is_supervised = is_supervised
        self._has_left = False  # whether the caller has
        self._is_ending = False  # whether the agents have ended by themselves: leaving does not cancel what follows
        self.keeps_status = False
        """Whether the invocation is left as it was before this run."""
        self.was: InvocationStatus | None = None
        """How the invocation was left before this run, if it had ended."""
        self._has_kept_replies = False  # whether an event of this run says that the agents have done nothing new
        self.rounds = 0  # how often the agents have come to their end
        self._failures: list[Exception] = []  # that the agents were left by
        limit = invocation.run_config.deadline_s
        self._deadline = float("inf") if limit is None else trio.current_time() + limit
        self._scope = trio.CancelScope(shield=True, deadline=self._deadline)
        self._summing_up: trio.CancelScope | None = None  # once a summary may be made

    def leave(self) -> None:
        """End it early, unless it has ended: the caller has left."""
        self._has_left = True
        self.invocation.committer.leave()
        if not self._is_ending:
            if self._is_supervised:
                self.invocation.status = InvocationStatus.INTERRUPTED
            self._scope.cancel()
        if self._summing_up is not None:
            self._summing_up.cancel()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Run the agents, and end the run."""
        self._writer.mark_task()
        stop = Stop.LEAVING
        with self._scope as scope:
            try:
                await self._run_to_the_end()
                stop = self._stop_by(None)
            except BaseException as error:
                if is_only_cancelled(error) and scope.cancel_called:
                    raise
                stop = self._stop_by(error)
                self.keeps_status = stop is Stop.NOTHING_NEW
                if not is_pause(error):
                    first = first_failure(error)
                    if scope.cancel_called and isinstance(first, Exception) and came_of_cancellation(first):
                        self._meet_deadline()  # this has failed while it was cleaning up
                    self.fail(first)
                    self._failures = [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
            if not scope.cancel_called:  # the shield goes on, and what is left is short and has no deadline
                self._is_ending, scope.deadline = True, float("inf")
                await self._end(stop)
                return
        if scope.cancelled_caught:
            self._meet_deadline()
            stop = Stop.SUPERVISOR if self._is_supervised else Stop.LEAVING
        with trio.CancelScope(shield=True):
            await self._end(stop)

    async def _run_to_the_end(self) -> None:
        invocation, replayer = self.invocation, self.invocation.replayer
        if self.caller._failure is not None:  # already on the way from the stored message to here
            raise self.caller._failure
        if invocation.history.is_summed_up:  # the agents had come to their end in an earlier run, then cut off
            if invocation.live.has_messages:
                await invocation.program.messages().store_messages(self.context)
            return
        await self._run_agents()
        if replayer is not None and not (replayer.has_new or self.keeps_status):
            replayer.record.check_replayed(None, "the end of the invocation")

    @trio.lowlevel.disable_ki_protection
    async def _run_agents(self) -> None:
        """Run the agent that answers, between the hooks of the run."""
        if not self.invocation.program.plugins:
            await self.answer()
            return
        from ._cleanup import run_between_hooks  # few programs have plugins

        await run_between_hooks(self)

    async def begin(self) -> None:
        """Store what this run begins with, if that was put off: from here on the agents may do something new."""
        await self._writer.begin()

    async def refuse(self, content: Content) -> None:
        """
        Say *content* in the place of the agents of a resumed invocation, which is left as it was.

        Nothing is stored if the run before has said the same, and this one has nothing else to store.
        """
        context, replayer = self.hook_context, self.invocation.replayer
        assert replayer is not None, "what is not resumed ends with its content"
        has_more = self.invocation.live.has_messages or context._has_actions() or parted(context.state.pending())[0]
        if self._writer.put_off is not None and not has_more:
            before = end_of_unchanged_run(replayer.record.events)
            if before is not None and before.content == content:
                return
        await context.emit(Event(content=content, actions=_unchanged(replayer)))
        self._has_kept_replies = True

    async def answer(self) -> None:
        """Run the agent that answers; then, round by round, those that answer messages that have come meanwhile."""
        invocation = self.invocation
        if not self.rounds:
            await self.speaker().run_async(self.context)
            self.rounds = 1
        if invocation.live.has_messages or invocation.replayer is not None:
            await invocation.program.messages().answer_messages(self)

    def status_by(self, error: BaseException | None) -> InvocationStatus:
        """How the run ends if the agents are left by *error*, as far as that can be known then."""
        return self._ending_by(self._stop_by(error)).status

    @cached_property
    def hook_context(self) -> InvocationContext:
        """Of the hooks of the run, and of what its end says; most runs have neither."""
        return self.context._for_run_hooks()

    def speaker(self) -> BaseAgent:
        """The agent that answers the message of the invocation."""
        history, live, tree = self.invocation.history, self.invocation.live, self.invocation.program.tree
        if not tree.hands_over:
            return tree.root
        past = Window(live.events, live.index_of(history.prompt_seq), live.index_of(history.message_seq))
        speaker = None if live.compaction is None else live.compaction.speaker
        return tree.speaker(past, speaker)

    # --- what has stopped them

    def _stop_by(self, error: BaseException | None) -> Stop:
        """What *error*, by which the agents were left, means for the invocation."""
        if self.keeps_status or (error is not None and self._is_unchanged(leading_failure(error))):
            return Stop.NOTHING_NEW
        return stopped_by(error, has_left=self._has_left, is_supervised=self._is_supervised)

    def _is_unchanged(self, failure: BaseException) -> bool:
        """Whether an invocation that was to be resumed has failed before anything new was done: it stays as it was."""
        replayer = self.invocation.replayer
        if replayer is None or not isinstance(failure, Exception):
            return False
        return isinstance(failure, ReplayError) or not (replayer.has_new or replayer.record.next_in(None) is None)

    def _meet_deadline(self) -> None:
        """Fail, if it was the deadline that has cancelled the agents, and not the caller's leaving."""
        if not self._has_left:
            limit = self.invocation.run_config.deadline_s
            self.fail(DeadlineExceededError(f"the run took longer than RunConfig.deadline_s={limit} seconds"))

    def fail(self, error: BaseException) -> None:
        """Note what the run fails with."""
        self.caller._fail(error)
        if not isinstance(error, Exception):  # Ctrl-C hit the agents' code: the caller must hear of it now
            self._around.cancel()  # the tasks in it are shielded

    def _ending(self, stop: Stop) -> Ending:
        """How the run ends, as far as it has by now."""
        failure = self.caller._failure
        if self.keeps_status:
            stop = Stop.NOTHING_NEW
        elif failure is not None:
            stop = failed_by(failure)
        return self._ending_by(stop)

    def _ending_by(self, stop: Stop) -> Ending:
        if stop is Stop.STORE and (not self.is_resumable or self.invocation.failures.has_unclosed_calls):
            stop = Stop.FAILURE
        ending = ending_of(stop, waits=self.invocation.waits)
        return ending._replace(status=self.was) if stop is Stop.NOTHING_NEW and self.was is not None else ending

    # --- the end

    async def _keep_replies(self) -> None:
        """
        Store that this run has not acted on the replies that it began with, so that the next one does.

        Without this event the next run must assume that an approved call was made, and its outcome lost.
        """
        replayer = self.invocation.replayer
        if replayer is None or replayer.has_new or not replayer.record.answered_now:
            return
        if self._writer.put_off is None and not self._has_kept_replies:
            event = Event(actions=_unchanged(replayer))
            await self.invocation.emitter.emit(self.hook_context, event, closing=True)

    async def _end(self, stop: Stop) -> None:
        """Close what is open, record how the invocation is left, and let the next run in. It is shielded."""
        invocation, run, is_closed = self.invocation, self.caller, True
        try:
            ending = self._ending(stop)
            to_close = invocation.open_calls() or run._failure is not None or invocation.live.has_messages
            try:
                if ending.closes is Closes.NONE:
                    await self._keep_replies()
                elif to_close or self._writer.put_off is not None:
                    from ._closing import close_open_calls  # most runs end with nothing open

                    await self._writer.begin()  # else the end would not be recorded
                    await close_open_calls(self.hook_context, ending, run._failure, self._failures)
            except BaseException as error:  # the store fails, or another process has taken over: the next run does
                self.fail(first_failure(error))
                is_closed = not isinstance(run._failure, (StorageError, StaleSessionError))
            for late in invocation.failures.late:
                self.fail(late)
            run._end()
            invocation.ended = f"the invocation {invocation.id} has ended; nothing can be emitted or written any more"
            status = self._ending(stop).status
            compactor, has_looked = invocation.program.compactor, False
            if compactor is not None and status is InvocationStatus.COMPLETED and not invocation.open_calls():
                self._summing_up = trio.CancelScope(deadline=self._deadline)
                has_looked = await compactor.compact_at_end(self, self._writer, self._summing_up)
            self._writer.stop_renewing()
            if status is not InvocationStatus.PAUSED and (invocation.open_calls() or not is_closed):
                status = InvocationStatus.INTERRUPTED  # the store has failed: a later run closes what is open
            run._status = status
            try:
                if invocation.run_artifacts is not None:
                    await invocation.run_artifacts.drop_unnamed()
                if compactor is not None and status.has_ended and not has_looked and compactor.is_due(invocation.live):
                    compactor.note_due(invocation.live.key)
            finally:  # whatever a service of somebody else raises, the session is let go
                is_left = await self._writer.finish(None if status is InvocationStatus.INTERRUPTED else status)
            if not is_left:  # a message has come in this moment
                invocation.ended, run._has_ended, run._status = "", False, InvocationStatus.RUNNING
                self._is_ending, self._scope = False, trio.CancelScope(shield=True, deadline=self._deadline)
                await self.run()
        finally:
            invocation.committer.end()
