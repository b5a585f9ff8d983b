"""
A run: from entering a session to leaving it.

    enter    wait for the session ─ load ─ recover ─ store the message (the last step, nothing waits after it)
    run      the committer's task, outside; the agent's task, inside; they end in the opposite order
    end      the agent's task closes what is open, records how it ended, and lets the next run in
    leave    the caller's block ends: no task is left, and the run's failure, if nobody has seen it, is raised

There is one path for all endings. The agent's scope is shielded from whatever surrounds the run: only leaving the run
and its deadline cancel it. A failure is kept and raised from the caller's next ask, or from leaving. So a `break`, a
cancellation from outside, an exception in the caller's block and a failing agent all come down to: leave, let the
agent's task finish its clean-up, raise one exception (promises P5, P7).

Ctrl-C is raised where code of the application runs: in agents, hooks and summarisers, also where these never wait. In
what begins and ends a run it is deferred to the main task's next checkpoint, so that nothing stays half done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import trio

from .._json import freeze
from .._values import changed
from .._window import Window
from ..env import Env
from ..errors import (
    DeadlineExceededError,
    InvalidMessageError,
    ReplayError,
    SessionNotFoundError,
    StaleSessionError,
)
from ..events import Event, EventActions
from ..flows._prompts import Prompts
from ..sessions import (
    GetSessionConfig,
    Invocation,
    InvocationStatus,
    OpenCall,
    Session,
    SessionKey,
    SessionWriter,
)
from ..sessions._event_checks import checked_event
from ..sessions._run_session import run_session
from ..sessions._state import ReadOnlyState, with_writes, writes_of
from ..types import Content
from ._answer import is_answer_of_run
from ._committer import Committer
from ._config import RunConfig
from ._context import InvocationContext
from ._core import InvocationCore, derived_id
from ._failure import add_note, came_of_cancellation, first_failure, is_only_cancelled, is_pause, leaves
from ._hooks import PluginHooks, ask, expect, tell, with_cleanup
from ._message import user_content
from ._recovery import around_waiting, by_event, closing_event_at_end, recover
from ._services import Services

if TYPE_CHECKING:
    from ..sessions import PendingCall

__all__ = ["FinishedError", "Run", "RunPlan", "RunScope"]


class RunPlan(NamedTuple):
    """What a Runner asks for."""

    tree: Any
    """The agents: an AgentTree. Its `speaker(session)` is who answers; that has `name` and `run_async(ctx)`."""
    open: Callable[[], Awaitable[SessionWriter]]
    """Waits for the session and opens it."""
    invocation_id: str
    run_config: RunConfig
    env: Env
    message: Event
    """The user's message or answer with the state_delta, checked; `temp:` keys are in `temp`."""
    resumes: Invocation | None
    """The invocation to go on with; its id is `invocation_id`."""
    temp: Mapping[str, Any]
    yield_user_message: bool
    plugins: PluginHooks
    prompts: Prompts
    cleanup_s: float
    """How long a cleanup hook may take once the run is cancelled, in seconds."""
    services: Services
    """What contexts can ask for, beside the session."""
    tool_limits: Any
    """How much the tools of the runner may do at once."""
    window: GetSessionConfig | None
    """What `open` loads."""
    compaction: Any
    """When summaries are made, and who makes them: an EventsCompactionConfig; None: never."""
    compaction_is_due: Callable[[SessionKey], None]
    """Told of a session that is due for a summary, and the run has not come to it."""
    auto_create: bool
    """Whether `open` makes a session that is not there."""
    check: Callable[[], None]
    """Raises if the caller may not run now."""


class FinishedError(Exception):
    """Raised by `RunPlan.open` where there is nothing to go on with: the invocation has ended, as *status* says."""

    def __init__(self, status: InvocationStatus, session: Session, answer: Event | None) -> None:
        super().__init__(status)
        self.status = status
        self.session = session
        self.answer = answer


class Run:
    """
    A run in progress: iterate over it for its events, or `await run.wait()` for its answer.

    `session` is the live session; it goes on with every stored event.
    """

    def __init__(
        self, plan: RunPlan, session: Session, committer: Committer | None, core: InvocationCore | None
    ) -> None:
        self.invocation_id = plan.invocation_id
        self.session = session
        self._core = core
        self.answer: Event | None = None
        """
        The last stored event of an agent that is an answer: final, without an error, and with something in it. That is
        text (thoughts aside), an `output`, other media, or a result with `skip_summarization`. None until then.
        """
        self.compaction: Event | None = None
        """
        The event with the summary that was stored at the end of this run, if one was. It is not among those that the
        run yields: the last of these was delivered before.
        """
        self.compaction_error: Exception | None = None
        """
        What the summariser or the store has failed with. It costs the run nothing; the next one tries again. It is no
        failure that an invocation that waits, or was interrupted, keeps what follows it out of summaries.
        """
        self._status = InvocationStatus.RUNNING
        self._committer = committer
        self._failure: BaseException | None = None
        self._delivered = False

    @property
    def status(self) -> InvocationStatus:
        """`running`, and in the end `paused`, `completed`, `failed`, `cancelled`; `interrupted` if it is to go on."""
        return self._status

    @property
    def pending(self) -> list[PendingCall]:
        """The questions of this invocation that wait for an answer, oldest first."""
        return [] if self._core is None else self._core.pending()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """
        Let the logic that emitted the last event go on, and return the next event.

        A checkpoint; where a partial event is there already, one of cancellation only: at most `partial_buffer` of them
        come in a row before other tasks have their turn.
        """
        if self._committer is None:  # it had ended before
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        event = await self._committer.ask()
        if event is not None:
            return event
        if self._failure is not None and not self._delivered:
            self._delivered = True
            raise self._failure
        raise StopAsyncIteration

    async def wait(self) -> Event | None:
        """Consume what is left of the run and return `answer`; raises what the run fails with."""
        async for _ in self:
            pass
        return self.answer

    def _stored(self, event: Event) -> None:
        if is_answer_of_run(event):
            self.answer = event


class RunScope:
    """What `Runner.run_async` returns: `async with` it, then iterate over the run."""

    def __init__(self, plan: RunPlan, prepare: Callable[[], Awaitable[RunPlan]] | None = None) -> None:
        self._plan = plan
        self._prepare_plan = prepare  # if it takes a look at the store to know what to do
        self._now: float | None = None
        self._stays_resumable = False
        self._entered = False

    def supervised(self, now: float | None) -> RunScope:
        """
        The same run for a supervisor: leaving it early interrupts the invocation rather than ending it.

        What is due until *now* is due, although the clock may not be there yet.
        """
        self._now = now
        self._stays_resumable = True
        return self

    def __aiter__(self) -> NoReturn:
        msg = (
            "a run is a scope, so that leaving it can clean up; write "
            "`async with runner.run_async(...) as run:` and in it `async for event in run:`"
        )
        raise TypeError(msg)

    # --- entering

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Run:
        """
        Wait for the session, recover it, and store the message.

        If this raises, `Cancelled` included, the message is not stored.
        """
        if self._entered:
            msg = "this run was entered already; call run_async again for another one"
            raise RuntimeError(msg)
        self._entered = True
        self._plan.check()
        await self._plan.env.point("enter")
        if self._prepare_plan is not None:
            self._plan = await self._prepare_plan()
        while True:
            try:
                writer = await self._plan.open()
            except FinishedError as finished:
                return self._run_that_has_ended(finished)
            try:
                message = await self._store_message(writer)
                break
            except BaseException as error:
                with trio.CancelScope(shield=True):
                    await writer.finish(None)
                # Another process was faster: it has gone on with the invocation, or deleted the session. Look again.
                resumed_elsewhere = isinstance(error, StaleSessionError) and self._plan.resumes is not None
                if not resumed_elsewhere and not (isinstance(error, SessionNotFoundError) and self._plan.auto_create):
                    raise
        return await self._start(writer, message)  # starts tasks; does not wait

    def _run_that_has_ended(self, finished: FinishedError) -> Run:
        self._run = Run(self._plan, finished.session, None, None)
        self._run._status = finished.status
        self._run.answer = finished.answer
        return self._run

    async def _store_message(self, writer: SessionWriter) -> Event:
        plan = self._plan
        resumes = plan.resumes
        while True:
            try:
                await plan.env.point("recover")
                await recover(writer, None if resumes is None else resumes.invocation_id)
                self._prepare(writer)
                stored = await self._append_message(writer)
                if resumes is not None:
                    self._core.resumes(resumes.seq, was_paused=resumes.status is InvocationStatus.PAUSED)
                else:
                    self._core.begins_with(stored)
                return stored
            except StaleSessionError:  # another process was faster; nothing of this run is stored yet
                if resumes is not None:  # the invocation may have ended meanwhile
                    raise
                await writer.reload(plan.window, reject=plan.run_config.on_busy == "reject")

    async def _append_message(self, writer: SessionWriter) -> Event:
        try:
            message = await self._after_on_user_message(self._plan.message)
            self._check_answers(writer, message)
            await self._plan.env.point("message")
            stored = await writer.append(message, begins=True)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._core.drop_unnamed()  # what hooks have saved for it
            raise
        self._core.stored(stored)
        return stored

    def _check_answers(self, writer: SessionWriter, message: Event) -> None:
        """Nobody may have been faster since the answers were checked."""
        for response in message.get_function_responses():
            call = writer.live.open_calls.get(response.id or "")
            if call is None or call.pending != "waits" or call.invocation_id != self._plan.invocation_id:
                msg = (
                    f"expected an answer to a question that is open, found one to {response.id!r}, which has just been"
                )
                raise InvalidMessageError(f"{msg} answered")

    def _prepare(self, writer: SessionWriter) -> None:
        """Make what the run consists of, for the session as it is now."""
        plan = self._plan
        self._writer = writer
        self._committer = Committer(
            writer, lambda event: self._core.check_calls(event), self._on_stored, plan.run_config.partial_buffer
        )
        self._core = InvocationCore(
            invocation_id=plan.invocation_id,
            run_id=plan.message.id or "",
            live=writer.live,
            committer=self._committer,
            run_config=plan.run_config,
            user_content=plan.message.content,
            env=plan.env,
            temp=plan.temp,
            services=plan.services,
            tool_limits=plan.tool_limits,
            tree=plan.tree,
            prompts=plan.prompts,
            plugins=plan.plugins,
            cleanup_s=plan.cleanup_s,
            compacts=plan.compaction is not None,
        )
        self._core.due_at = self._now
        self._context = InvocationContext.root(self._core, plan.tree.root)

    async def _after_on_user_message(self, message: Event) -> Event:
        """What the plugins make of the message; what they write to the state goes with it."""
        hooks = self._plan.plugins.get("on_user_message_callback", ())
        if not hooks or message.content is None or self._plan.resumes is not None:
            return message
        context = self._context
        context._closed = "the message is not stored yet, and nothing can be emitted before it"
        answer = await ask(hooks, invocation_context=context, user_message=message.content)
        context._closed = ""
        content = expect(answer, Content, "on_user_message_callback")
        if content is not None:
            message = changed(message, content=user_content(content, may_answer=False))
        flight = context.state.take(writes_of(message.actions))
        flight.land()
        context._keep_temp(flight.writes)
        lasting = {key: write for key, write in flight.writes.items() if not key.startswith("temp:")}
        actions = context.actions.named_in(message.actions)
        context.actions.forget_artifacts()
        return checked_event(changed(message, actions=with_writes(actions, lasting)))

    async def _start(self, writer: SessionWriter, message: Event) -> Run:
        plan = self._plan
        config = plan.run_config
        core = self._core
        session = run_session(writer.live, core.start_seq, ReadOnlyState(core.values))
        self._run = Run(plan, session, self._committer, core)
        for event in () if core.journal is None else core.journal.recorded:
            self._run._stored(event)
        if plan.yield_user_message:
            self._committer.show(message)
        self._left = False
        self._paused = False
        self._stays = False  # whether the invocation is left as it was before this run
        self._others: list[Exception] = []  # what failed beside the first failure
        deadline = trio.current_time() + config.deadline_s if config.deadline_s is not None else float("inf")
        self._agent_scope = trio.CancelScope(shield=True, deadline=deadline)
        self._compaction_scope = None if plan.compaction is None else trio.CancelScope(deadline=deadline)
        self._looked_for_summary = False
        self._manager = trio.open_nursery()
        self._nursery = nursery = await self._manager.__aenter__()
        writer.belongs_to(nursery)
        nursery.start_soon(self._committer.run, name=f"minirun committer of {plan.invocation_id}")
        nursery.start_soon(self._agent_task, name=f"minirun agent of {plan.invocation_id}")
        writer.keep(nursery)
        return self._run

    @cached_property
    def _hook_context(self) -> InvocationContext:
        """Of the hooks of the run, and of what its end says; most runs have neither."""
        return self._context._for_run_hooks()

    def _on_stored(self, event: Event) -> None:
        self._core.stored(event)
        self._run._stored(event)

    # --- running and ending

    @trio.lowlevel.enable_ki_protection
    async def _agent_task(self) -> None:
        plan, run, core = self._plan, self._run, self._core
        context = self._context
        self._writer.mark_task()
        with self._agent_scope:
            try:
                if not core.is_through:
                    await self._run_agent(context)
                    if core.journal is not None and not (core.journal.has_caught_up or self._stays):
                        core.journal.check_nothing_ahead(None, "the end of the invocation")
            except BaseException as failure:
                if is_only_cancelled(failure) and self._agent_scope.cancel_called:
                    raise
                if is_pause(failure):
                    self._paused = True
                else:
                    first = first_failure(failure)
                    self._stays = self._stays or self._is_as_it_was(first)
                    if self._agent_scope.cancel_called and isinstance(first, Exception) and came_of_cancellation(first):
                        self._meet_deadline()  # this has failed while it was cleaning up
                    self._fail(first)
                    failures = [leaf for leaf in leaves(failure) if isinstance(leaf, Exception)]
                    self._others = [leaf for leaf in failures if leaf is not run._failure]
        cancelled = self._agent_scope.cancelled_caught
        if cancelled:
            self._meet_deadline()
        try:
            with trio.CancelScope(shield=True):
                status = self._final_status(cancelled)
                if not (self._stays or status is InvocationStatus.INTERRUPTED):
                    await self._close_open_calls(status is InvocationStatus.PAUSED)
                for late in core.late_failures:
                    self._fail(late)
                core.ended = f"the invocation {run.invocation_id} has ended; nothing can be emitted or written any more"
                status = self._final_status(cancelled)
                if plan.compaction is not None and status is InvocationStatus.COMPLETED and not core.open_calls():
                    await self._compact()  # the run stays completed, whatever becomes of that
                self._writer.stop_renewing()
                if status is not InvocationStatus.PAUSED and core.open_calls():
                    status = InvocationStatus.INTERRUPTED  # the store has failed: what is open is left to who goes on
                run._status = status
                try:
                    await core.drop_unnamed()
                    if plan.compaction is not None and status.has_ended and not self._looked_for_summary:
                        self._note_what_is_due()
                finally:  # whatever a service of somebody else raises, the session is let go
                    await self._writer.finish(None if status is InvocationStatus.INTERRUPTED else status)
        finally:
            self._committer.end()

    @trio.lowlevel.disable_ki_protection
    async def _run_agent(self, context: InvocationContext) -> None:
        """Run who answers, between the hooks of the run."""
        plugins, core = self._plan.plugins, self._core
        if not plugins:
            await self._speaker().run_async(context)
            return
        hook_context = self._hook_context

        async def work() -> None:
            answer = await ask(plugins.get("before_run_callback", ()), invocation_context=hook_context)
            content = expect(answer, Content, "before_run_callback")
            if content is not None:
                self._stays = core.journal is not None  # what waits, or was interrupted, does not end with that
                await hook_context.emit(Event(content=changed(content, role="model")))
                return
            await hook_context._flush()
            if not context.end_invocation:
                await self._speaker().run_async(context)

        async def cleanup(failure: BaseException | None) -> None:
            core.status = self._status_after(failure)
            error = None if failure is None else first_failure(failure)
            grace_s, what = self._plan.cleanup_s, "a cleanup hook of the run"
            try:
                if isinstance(error, Exception):
                    hooks = plugins.get("on_run_error_callback", ())
                    await tell(hooks, grace_s, what, invocation_context=hook_context, error=error)
            finally:
                try:
                    await tell(plugins.get("after_run_callback", ()), grace_s, what, invocation_context=hook_context)
                finally:
                    with trio.CancelScope(shield=True):
                        await hook_context._flush(closing=True)

        await with_cleanup(work, cleanup)

    def _speaker(self) -> Any:
        """Who answers the message of the invocation."""
        core = self._core
        live = core.live
        past = Window(live.events, live.index_of(core.prompt_seq), live.index_of(core.message_seq + 1))
        return self._plan.tree.speaker(past, None if live.compaction is None else live.compaction.speaker)

    async def _compact(self) -> None:
        """
        Store a summary, if one is due, when the caller has had everything and asks for more.

        The run has succeeded: leaving it, its deadline and whatever fails here only mean that there is no summary.
        """
        from ._compaction import due_tail, find_job  # few apps have summaries

        plan, run, live = self._plan, self._run, self._core.live
        assert self._compaction_scope is not None
        try:
            with self._compaction_scope:
                if due_tail(live, plan.compaction) is None or not await self._committer.delivered():
                    return
                await plan.env.point("compaction")
                service, ends = self._writer.service, run.invocation_id
                job = await find_job(service, live, plan.compaction, plan.tree, ends=ends)
                if job is not None:  # else whoever dies here would leave an invocation that keeps out later summaries
                    await self._writer.record_end(InvocationStatus.COMPLETED)
                event = None if job is None else await job.event(plan.compaction.summarizer)
                if job is not None and event is not None and job.fits(live):
                    await plan.env.point("store compaction")
                    run.compaction = await self._writer.append(self._of_this_run(event, job.end_seq))
                self._looked_for_summary = True
        except BaseException as error:
            failure = first_failure(error)
            if not isinstance(failure, Exception):
                self._fail(failure)
            else:
                run.compaction_error = failure

    def _of_this_run(self, event: Event, end_seq: int) -> Event:
        name, metadata = self._run.invocation_id, self._plan.run_config.custom_metadata
        metadata = {**metadata, **(event.custom_metadata or {})}
        event_id = derived_id(name, "compaction", end_seq)
        return changed(event, id=event_id, invocation_id=name, custom_metadata=freeze(metadata) or None)

    def _note_what_is_due(self) -> None:
        from ._compaction import due_tail  # few apps have summaries

        live = self._core.live
        if due_tail(live, self._plan.compaction) is not None:
            self._plan.compaction_is_due(live.key)

    def _meet_deadline(self) -> None:
        """Fail, if it was the deadline that has cancelled the agent, and not the caller's leaving."""
        if not self._left:
            limit = self._plan.run_config.deadline_s
            self._fail(DeadlineExceededError(f"the run took longer than RunConfig.deadline_s={limit} seconds"))

    def _is_as_it_was(self, failure: BaseException) -> bool:
        """Whether an invocation that was to go on has failed before it has: that does not end it."""
        journal = self._core.journal
        if journal is None or not isinstance(failure, Exception):
            return False
        return isinstance(failure, ReplayError) or not (journal.has_caught_up or journal.first_ahead(None) is None)

    def _status_after(self, failure: BaseException | None) -> InvocationStatus:
        """What the run comes to, as far as that can be known when its agents have come to an end by *failure*."""
        waits = self._core.waits
        if failure is None and not self._stays:
            return InvocationStatus.COMPLETED
        if failure is None or self._is_as_it_was(first_failure(failure)):
            return InvocationStatus.PAUSED if waits else InvocationStatus.INTERRUPTED
        if is_pause(failure):
            return InvocationStatus.PAUSED
        if is_only_cancelled(failure) and self._left:
            ended = InvocationStatus.INTERRUPTED if self._stays_resumable else InvocationStatus.CANCELLED
            return InvocationStatus.PAUSED if waits and not self._stays_resumable else ended
        is_ctrl_c = not isinstance(first_failure(failure), Exception) and not is_only_cancelled(failure)
        return InvocationStatus.PAUSED if is_ctrl_c and waits else InvocationStatus.FAILED  # by the deadline, too

    def _final_status(self, cancelled: bool) -> InvocationStatus:
        failure, waits = self._run._failure, self._core.waits
        if self._stays:
            return InvocationStatus.PAUSED if waits else InvocationStatus.INTERRUPTED
        if cancelled and failure is None and self._stays_resumable:
            return InvocationStatus.INTERRUPTED
        is_left = cancelled if failure is None else not isinstance(failure, Exception)  # by Ctrl-C, too
        if is_left and waits:
            return InvocationStatus.PAUSED  # who leaves a run that waits does not take its questions back
        if failure is not None:
            return InvocationStatus.FAILED
        if self._paused:  # what nothing waits for was withdrawn, by an end that could not be stored as a whole
            return InvocationStatus.PAUSED if waits else InvocationStatus.CANCELLED
        return InvocationStatus.CANCELLED if cancelled else InvocationStatus.COMPLETED

    def _fail(self, error: BaseException) -> None:
        run = self._run
        if isinstance(error, (StopAsyncIteration, GeneratorExit)):  # in the caller's `async for` these mean the end
            wrapped = RuntimeError(f"the agent raised {type(error).__name__}; a generator was closed or used wrongly")
            wrapped.__cause__ = error
            error = wrapped
        if run._failure is None:
            run._failure = error
        elif run._failure is not error:
            add_note(run._failure, error)
        self._core.secrets.out_of_error(run._failure)
        if not isinstance(error, Exception):  # Ctrl-C hit the agent's code: the caller must hear of it now
            self._nursery.cancel_scope.cancel()  # it is around the caller's block; the tasks in it are shielded

    async def _close_open_calls(self, paused: bool) -> None:
        """Answer the calls that are still open, but not what waits, and store what the run failed with."""
        run = self._run
        still_open = self._core.open_calls()
        if not still_open and run._failure is None:
            return
        context = self._hook_context
        try:
            kept = around_waiting(still_open) if paused else set()
            to_close = (call for call in still_open if not (paused and (call.pending or call.call_id in kept)))
            for calls in by_event(await self._kept_for_later(list(to_close)) if paused else to_close):
                await context._emit(closing_event_at_end(calls, self._core.unrecorded), closing=True)
            for error in () if run._failure is None or paused else (run._failure, *self._others):
                author, branch = self._core.failed_in(error)
                code, message = type(error).__name__, self._message_of(error)
                event = Event(author=author, branch=branch, error_code=code, error_message=message)
                await context._emit(event, closing=True)
        except BaseException as error:  # the store fails, or another process has taken over: the next run closes them
            self._fail(first_failure(error))

    async def _kept_for_later(self, calls: list[OpenCall]) -> list[OpenCall]:
        """
        Suspend those of *calls* that nobody has come to again: who waits has asked before. Return the others.

        Batches answer or mark the calls that they come to, so these are left over from an earlier run.
        """
        journal, core = self._core.journal, self._core
        left = [] if journal is None else [call for call in calls if call.call_id in journal.open_before]
        left = [call for call in left if call.call_id not in core.unrecorded]
        if left:
            ids = [call.call_id for call in left]
            await self._hook_context._emit(Event(actions=EventActions(suspended_calls=ids)), closing=True)
        return [call for call in calls if call not in left]

    # --- leaving

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End the run: cancel what still runs, wait for its clean-up, and raise its failure if nobody has seen it."""
        run = self._run
        if run._core is None:  # it had ended before
            return None
        failed_before = run._failure is not None
        if error is not None and self._nursery.cancel_scope.cancel_called and is_only_cancelled(error):
            error = None  # that is how the caller has heard of it
        self._left = True
        self._committer.leave()
        self._agent_scope.cancel()
        if self._compaction_scope is not None:
            self._compaction_scope.cancel()
        try:
            await self._manager.__aexit__(None, None, None)
        except BaseException as interrupt:  # Ctrl-C arrived while this task waited
            self._fail(first_failure(interrupt))
        failure = None if run._delivered else run._failure
        if failure is None:
            return kind is not None and error is None
        if failure is error:  # the very object that the agent has raised
            return False
        run._delivered = True
        if error is None or is_only_cancelled(error) or not isinstance(failure, Exception):
            raise failure
        if isinstance(error, Exception) and failed_before:  # the run was first
            add_note(failure, error)
            raise failure
        add_note(error, failure)
        return False

    def _message_of(self, error: BaseException) -> str:
        text = self._core.secrets.text_of(error)
        return text.encode("utf-8", "replace").decode() if text else type(error).__name__
