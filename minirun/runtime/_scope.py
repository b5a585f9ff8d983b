"""
A run: from entering a session to leaving it.

    enter    wait for the session ─ load ─ recover ─ store the message (the last step, nothing waits after it)
    run      the agents' task, and the committer's, which starts with the first event and ends last (`_run`)
    end      the agents' task closes what is open, records how it ended, and lets the next run in
    leave    the caller's block ends: no task is left, and the run's failure, if nobody has seen it, is raised

There is one path for all endings. The agents' scope is shielded from whatever surrounds the run: only leaving the run
and its deadline cancel it. A failure is kept and raised from the caller's next ask, or from leaving. So a `break`, a
cancellation from outside, an exception in the caller's block and a failing agent all come down to: leave, let the
agents' task finish its clean-up, raise one exception (promises P5, P7).

Ctrl-C is raised where code of the application runs: in agents, hooks and summarizers, also where these never wait. In
what begins and ends a run it is deferred to the main task's next checkpoint, so that nothing stays half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import attrs
import trio

from .._service import misused
from ..errors import SessionNotFoundError, StaleSessionError
from ..events import NO_ACTIONS, Event
from ..flows._record import end_of_unchanged_run
from ..sessions import GetSessionConfig, InvocationStatus, Session, SessionWriter
from ..sessions import Invocation as StoredInvocation
from ..sessions._run_session import run_session
from ..sessions._state import writes_of
from ._config import RunConfig
from ._context import InvocationContext
from ._failure import add_note, first_failure, is_only_cancelled
from ._invocation import Invocation, Program
from ._run import Execution, Run

__all__ = ["Entrance", "FinishedError", "RunRequest", "RunScope"]


@attrs.frozen(eq=False, repr=False)
class RunRequest:
    """What is asked of a run."""

    invocation_id: str
    message: Event
    """The user's message or answer with the state_delta, checked; `temp:` keys are in `temp`."""
    temp: Mapping[str, Any]
    run_config: RunConfig
    yield_user_message: bool
    window: GetSessionConfig | None
    """Which events the run loads."""
    deps: Any = None
    """What the application hands to its tools; it is kept nowhere else."""
    resumes: StoredInvocation | None = None
    """The invocation to go on with; its id is `invocation_id`."""
    is_looked_up: bool = False
    """Whether the caller names the invocation: then it is looked up again where another process was faster."""
    execution: type[Execution] = Execution


class Entrance(Protocol):
    """How a run gets into its session: what the Runner knows of it."""

    async def open(self, request: RunRequest) -> tuple[SessionWriter, RunRequest]:
        """
        Wait for the session and open it. Nothing is stored.

        Return also *request* with what only the store knows, as it is now: which invocation is resumed, and how it was
        left.

        Raises:
            FinishedError: The invocation that was to be resumed is completed.
        """


class FinishedError(Exception):
    """Raised by `Entrance.open` where there is nothing to go on with: *run* is that of an invocation that has ended."""

    def __init__(self, run: Run) -> None:
        self.run = run


class RunScope:
    """What `Runner.run_async` returns: `async with` it, then iterate over the run."""

    def __init__(self, program: Program, request: RunRequest, entrance: Entrance) -> None:
        self._program = program
        self._request = request
        self._entrance = entrance
        self._due_at: float | None = None
        self._is_supervised = False
        self._has_entered = False

    def supervised(self, now: float | None) -> RunScope:
        """
        The same run for a supervisor: leaving it early interrupts the invocation rather than ending it.

        What is due until *now* is due, although the clock may not be there yet.
        """
        self._due_at = now
        self._is_supervised = True
        return self

    @property
    def is_unchanged(self) -> bool:
        """Whether the run has left the invocation that it resumed as it was."""
        return self._run._invocation is not None and self._execution.keeps_status

    def __getattr__(self, name: str) -> NoReturn:
        from .._adk import advice_for  # few programs make this mistake

        raise AttributeError(f"RunScope has no attribute {name!r}; {advice_for('*', RunScope)}")

    __aiter__ = misused
    if not TYPE_CHECKING:  # a type checker has a word of its own for these
        __await__ = __iter__ = __enter__ = __exit__ = __aiter__

    # --- entering

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Run:
        """
        Wait for the session, recover it, check its state if there is a schema, and store the message.

        If this raises, `Cancelled` included, the message is not stored.
        """
        if self._has_entered:
            msg = "this run was entered already; call run_async again for another one"
            raise RuntimeError(msg)
        self._has_entered = True
        await self._program.env.point("enter")
        # Each further round is another process's doing, so they end with its work: it has deleted the session, which
        # is made anew then or raises from `open`, or it was faster with the invocation that was named, which `open`
        # finds ended, busy or to be resumed. Nothing of this run is stored meanwhile, and the wait can be cancelled.
        while True:
            try:
                writer, request = await self._entrance.open(self._request)
            except FinishedError as finished:
                self._run = finished.run
                return self._run
            try:
                message = await self._store_message(writer, request)
                break
            except BaseException as error:
                with trio.CancelScope(shield=True):
                    await writer.finish(None)
                # Another process was faster, or has deleted the session. Look again.
                if not isinstance(error, StaleSessionError | SessionNotFoundError):
                    raise
        return await self._start(writer, request, message)

    async def _store_message(self, writer: SessionWriter, request: RunRequest) -> Event:
        program = self._program
        while True:
            try:
                await program.env.point("recover")
                if writer.live.open_calls or writer.live.has_messages:
                    from ..sessions._recovery import recover  # few runs find anything open

                    await recover(writer, request.invocation_id)
                self._invocation = invocation = Invocation(
                    program, request.invocation_id, request.message, writer, request.run_config, request.temp
                )
                invocation.due_at, invocation.deps = self._due_at, request.deps
                self._context = InvocationContext.root(invocation)
                return await self._append_message(writer, request)
            except StaleSessionError:  # another process was faster; nothing of this run is stored yet
                if request.is_looked_up:  # the invocation may have begun, or ended, meanwhile
                    raise
                await writer.reload(request.window, reject=request.run_config.on_busy == "reject")

    async def _append_message(self, writer: SessionWriter, request: RunRequest) -> Event:
        # No `on_event` hook sees this event: it goes to the store without the emitter, and a new message has a hook of
        # its own. An answer to a question, or a run without a message, has none.
        invocation, message = self._invocation, request.message
        try:
            if "on_user_message_callback" in self._program.plugins and request.resumes is None:
                from ._on_message import apply_on_user_message  # few programs have a plugin that looks at messages

                message = await apply_on_user_message(self._context, message)
            if self._program.schemas is not None:
                self._program.schemas.check_session(invocation.values, writes_of(message.actions))
            await self._program.env.point("message")
            if request.resumes is not None and self._is_put_off(writer, request):
                writer.put_off = message
                return message
            return await writer.append(message, begins=True)
        except BaseException:
            with trio.CancelScope(shield=True):
                if invocation.run_artifacts is not None:
                    await invocation.run_artifacts.drop_unnamed()  # what hooks have saved for it
            raise

    def _is_put_off(self, writer: SessionWriter, request: RunRequest) -> bool:
        """
        Whether the message is stored only once `before_run_callback` lets the run go on, or something else is stored.

        So it is where the message holds nothing and the last run of the invocation ended before the agents did anything
        new: a worker that tries again and again then stores nothing.
        """
        message, resumes = request.message, request.resumes
        if "before_run_callback" not in self._program.plugins or request.yield_user_message or resumes is None:
            return False
        if message.content is not None or message.actions is not NO_ACTIONS:
            return False
        stored = [event for event in writer.live.window(resumes.seq) if event.invocation_id == request.invocation_id]
        return end_of_unchanged_run(stored) is not None

    async def _start(self, writer: SessionWriter, request: RunRequest, message: Event) -> Run:
        """Start the agents' task; does not wait. The message is stored: what fails here, the run fails with."""
        invocation, failure = self._invocation, None
        self._manager = trio.open_nursery()
        self._nursery = nursery = await self._manager.__aenter__()
        writer.belongs_to(nursery)
        invocation.committer.runs_in(nursery)
        try:
            self._begin(request, message)
            writer.keep(nursery)
        except Exception as error:
            failure = error
        session = run_session(writer.live, invocation.history.start_seq, invocation.values)
        self._run = self._new_run(session, invocation)
        if request.yield_user_message:
            invocation.committer.publish(message)
        self._execution = request.execution(
            self._run, self._context, writer, nursery.cancel_scope, is_supervised=self._is_supervised
        )
        if request.resumes is not None and request.resumes.status.has_ended:
            self._execution.was = request.resumes.status
        if failure is not None:
            self._execution.fail(failure)
            self._execution.keeps_status = request.resumes is not None
        nursery.start_soon(self._execution.run, name=f"minirun agent of {invocation.id}")
        return self._run

    def _new_run(self, session: Session, invocation: Invocation) -> Run:
        return Run(invocation.id, session, invocation)

    def _begin(self, request: RunRequest, message: Event) -> None:
        """Take note of the stored message."""
        invocation, resumes = self._invocation, request.resumes
        if invocation.run_artifacts is not None:
            invocation.run_artifacts.named(message.actions)
        if resumes is None:
            invocation.begin_with(message)
        else:
            invocation.resume(resumes.seq, was_paused=resumes.status is InvocationStatus.PAUSED)

    # --- leaving

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End the run: cancel what still runs, wait for its clean-up, and raise its failure if nobody has seen it."""
        run = self._run
        if run._invocation is None:  # it had ended before
            return None
        failed_before = run._failure is not None
        if error is not None and self._nursery.cancel_scope.cancel_called and is_only_cancelled(error):
            error = None  # that is how the caller has heard of it
        self._execution.leave()
        try:
            await self._manager.__aexit__(None, None, None)
        except BaseException as interrupt:  # Ctrl-C arrived while this task waited
            run._fail(first_failure(interrupt))
        failure = None if run._is_delivered else run._failure
        if failure is None:
            return kind is not None and error is None
        if failure is error:  # the very object that the agent has raised
            return False
        run._is_delivered = True
        if error is None or is_only_cancelled(error) or not isinstance(failure, Exception):
            raise failure
        if isinstance(error, Exception) and failed_before:  # the run was first
            add_note(failure, error)
            raise failure
        add_note(error, failure)
        return False
