"""The runner: an app over its services. Everything an application asks of minirun goes through here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from .._json import finite, freeze, shown
from .._values import changed
from ..agents import BaseAgent
from ..apps import App
from ..env import Env
from ..errors import (
    AlreadyExistsError,
    CleanupTimeoutError,
    ConfigurationError,
    InvalidMessageError,
    InvalidValueError,
    InvocationNotFoundError,
    ServiceClosedError,
    ServiceNotConfiguredError,
    StaleSessionError,
)
from ..events import NO_ACTIONS, Event, EventActions
from ..plugins import BasePlugin
from ..plugins._manager import hooks_of
from ..runtime import RunConfig, RunPlan, RunScope, Services
from ..runtime._answer import is_answer_of_run
from ..runtime._failure import add_note
from ..runtime._invocation import FinishedError
from ..runtime._message import user_content
from ..runtime._recovery import recover
from ..runtime._services import given
from ..sessions import (
    BaseSessionService,
    GetSessionConfig,
    InMemorySessionService,
    Invocation,
    SessionKey,
    SessionWriter,
)
from ..sessions._live import RunWindow
from ..sessions._service import checked_event, session_key
from ..sessions._state import Scope, check_key, scope_of
from ..tools._limits import ToolLimits
from ..types import Content, FunctionResponse
from ._compactions import Compactions

if TYPE_CHECKING:
    from ..artifacts import BaseArtifactService
    from ..credentials import AuthCredential, BaseCredentialService
    from ..memory import BaseMemoryService
    from ..sessions import PendingCall
    from ._sync import SyncRun

__all__ = ["InMemoryRunner", "Runner"]

_Self = TypeVar("_Self", bound="Runner")

# As many as trio's own default for worker threads (trio.to_thread.current_default_thread_limiter), and apart from them:
# tools that hang never hold up a commit, nor what else the application does in threads.
TOOL_THREADS = 40
# ADK's default for closing a plugin.
CLEANUP_TIMEOUT_S = 5.0


class Runner:
    """
    Runs an app's root agent on sessions.

    Give it an `app`, or an `agent` and an `app_name`. It works without `async with`, which only closes it. It serves
    one `trio.run` after another; concurrent runs on different sessions share one runner.

    Args:
        app: The app to run.
        app_name: With *agent*: the name that sessions are kept under.
        agent: The root agent.
        session_service: Where sessions are kept. The runner closes none of its services.
        artifact_service: Where artifacts are kept, for contexts that save and load them. One that shares the session
            service's file shows a version when the event that names it is stored, and not before.
        memory_service: Where contexts, `load_memory` and `preload_memory` look for what was said in other sessions, and
            what `MemoryPlugin` adds to. Nothing is remembered by itself.
        credential_service: Where the credentials of users are kept, for contexts that ask for them.
        cleanup_timeout_s: How long closing one plugin or tool may take, and how long each cleanup hook may go on once
            its run is cancelled, in seconds; by default 5. Every hook has it for itself: leaving a run may take as long
            as this for each hook around each agent that it was inside of.
        plugin_close_timeout: The name that ADK has for *cleanup_timeout_s*; give one of them.
        auto_create_session: Make sessions that do not exist on their first run.
        env: Where time and ids come from; by default, and necessarily, that of the session service.

    Raises:
        ConfigurationError: The arguments do not fit together.
        InvalidValueError: The app name is not one.
        ServiceNotConfiguredError: A plugin or a tool of the app is of no use without a service that is not given.
        NotSupportedError: For a service that would have no effect in this version.
    """

    def __init__(
        self,
        *,
        app: App | None = None,
        app_name: str | None = None,
        agent: BaseAgent | None = None,
        session_service: BaseSessionService,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        cleanup_timeout_s: float | None = None,
        plugin_close_timeout: float | None = None,
        auto_create_session: bool = False,
        env: Env | None = None,
    ) -> None:
        if session_service is None:
            msg = "expected session_service to be a session service, found None; make one, or use InMemoryRunner"
            raise ConfigurationError(msg)
        _check_services(session_service, artifact_service, memory_service, credential_service)
        if env is not None and env is not session_service.env:
            msg = "expected the Env of the session service, found another one; pass the same env to both"
            raise ConfigurationError(msg)
        self.app = _app(app, app_name, agent)
        self._hooks = hooks_of(self.app.plugins)
        self.session_service = session_service
        self.artifact_service = artifact_service
        self.memory_service = memory_service
        self.credential_service = credential_service
        self._check_needs()
        if artifact_service is not None:
            session_service._accompany(artifact_service)
        self._services = Services(artifact=artifact_service, memory=memory_service, credential=credential_service)
        self.cleanup_timeout_s = _cleanup_timeout_s(cleanup_timeout_s, plugin_close_timeout)
        self.auto_create_session = auto_create_session
        self._env = session_service.env
        self._tool_limits = ToolLimits(TOOL_THREADS)
        self._compactions = Compactions()
        self._closed = False

    def _check_needs(self) -> None:
        for each in (*self.app.plugins, *self.app._tree.tools()):
            needed = getattr(each, "needs_service", None)
            if needed is not None and getattr(self, needed, None) is None:
                kind = "plugin" if isinstance(each, BasePlugin) else "tool"
                name = getattr(each, "name", type(each).__name__)
                msg = f"the {kind} {name!r} needs a service that the runner was not given; make it with "
                raise ServiceNotConfiguredError(f"{msg}Runner({needed}=...)")

    @property
    def app_name(self) -> str:
        """The name that sessions are kept under."""
        return self.app.name

    @property
    def plugin_close_timeout(self) -> float:
        """ADK's name for `cleanup_timeout_s`."""
        return self.cleanup_timeout_s

    @property
    def agent(self) -> BaseAgent:
        """The root agent."""
        return self.app.root_agent

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            await self.close()

    async def close(self) -> None:
        """
        Close the plugins and tools of the app, each within `cleanup_timeout_s`; closing twice is harmless.

        The session service belongs to whoever made it and stays open. What a `close` raises is raised when all are
        closed: the first, with the others as notes.

        Raises:
            CleanupTimeoutError: One took too long and was cancelled.
        """
        if self._closed:
            return
        self._closed = True
        failures: list[Exception] = []
        for closable in (*self.app.plugins, *self.app._tree.tools()):
            with trio.move_on_after(self.cleanup_timeout_s) as scope:
                try:
                    await closable.close()
                except Exception as error:
                    failures.append(error)
            if scope.cancelled_caught:
                name = getattr(closable, "name", type(closable).__name__)
                msg = f"closing {name!r} took longer than Runner(cleanup_timeout_s={self.cleanup_timeout_s})"
                failures.append(CleanupTimeoutError(msg))
        for other in failures[1:]:
            add_note(failures[0], other)
        if failures:
            raise failures[0]

    # --- running

    def run_async(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | None = None,
        invocation_id: str | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, object] | None = None,
        yield_user_message: bool = False,
    ) -> RunScope:
        """
        Run the agent on a message, as a scope:

            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                async for event in run:
                    ...

        Entering waits for the session, answers what an interrupted run has left open, and stores the message with
        *state_delta* as one event; if it raises, `Cancelled` included, the message is not stored. While the block
        holds an event, the logic that emitted it has not gone on. Leaving the block ends the run, whatever is still
        going on in it, and no task is left.

        Args:
            user_id: Whose session.
            session_id: Which session.
            new_message: What the user says: a text, or a Content without function calls; or the answer to an open
                question, `pending.reply(...)`, with which its invocation goes on.
            invocation_id: An invocation to go on with, that was interrupted or waits. What is recorded of it is not
                done again: its agents run from their start, and what they have said, the answers of models and the
                results of tools and steps are taken from the log. One that has ended yields nothing.
            run_config: Settings of this run.
            state_delta: State to change with the message; its `temp:` keys live for this run.
            yield_user_message: Whether the stored message is the first event of the run.

        Raises:
            On entering, before anything is stored:
            InvalidMessageError: The message is empty, or not one that a user can send.
            SessionNotFoundError: There is no such session.
            SessionBusyError: It is busy and waiting could never end, or `RunConfig(on_busy="reject")`.
            InvalidMessageError: The message answers no open question, or one that was answered; or not in its form. Or
                the invocation has ended, and *state_delta* would be lost.
            InvocationNotFoundError, InvalidValueError: For the other arguments.

            On iterating or leaving: what the run fails with, one exception with its own type.
        """
        config = _checked_config(run_config)
        key = session_key(self.app_name, user_id, session_id)
        own_id = f"e-{self._env.new_id('invocation')}"
        lasting, temp = _split_delta(state_delta)
        content = None
        if invocation_id is None or new_message is not None:
            content = user_content(new_message, may_answer=True)
        message = Event(
            id=f"{own_id}-0",
            invocation_id=own_id,
            author="user",
            content=content,
            actions=EventActions(state_delta=lasting) if lasting else NO_ACTIONS,
            custom_metadata=config.custom_metadata or None,
        )
        window = self._window(config)
        plan = RunPlan(
            tree=self.app._tree,
            plugins=self._hooks,
            prompts=self.app.prompts,
            cleanup_s=self.cleanup_timeout_s,
            open=lambda: self._open(key, own_id, window, config.on_busy),
            invocation_id=own_id,
            run_config=config,
            env=self._env,
            message=checked_event(message),
            resumes=None,
            temp=temp,
            yield_user_message=yield_user_message,
            auto_create=self.auto_create_session,
            services=self._services,
            window=window,
            compaction=self.app.events_compaction_config,
            compaction_is_due=self._compactions.note,
            tool_limits=self._tool_limits,
            check=self._check_open,
        )
        if invocation_id is None and not message.get_function_responses():
            return RunScope(plan)
        return RunScope(plan, lambda: self._plan_to_resume(plan, key, invocation_id))

    async def _plan_to_resume(self, plan: RunPlan, key: SessionKey, invocation_id: str | None) -> RunPlan:
        """The plan of a run that goes on with an invocation, named or found by the questions that are answered."""
        self._check_open()
        message = plan.message
        answers = message.get_function_responses()
        named = None if invocation_id is None else await self._invocation(key, invocation_id)
        if message.content is not None and len(answers) < len(message.content.parts):
            if named is not None and named.status.has_ended:
                msg = f"the invocation {invocation_id!r} has ended ({named.status}); send a new message without its id"
                raise InvalidMessageError(msg)
            msg = "expected answers to open questions, or something new without invocation_id, found a mixture"
            raise InvalidMessageError(f"{msg}; send them one after the other")
        branch = None
        if answers:
            asked = await self._questions(key, answers)
            found = {question.invocation_id for question in asked}
            if len(found) > 1 or len({question.branch for question in asked}) > 1:
                msg = (
                    "expected answers to questions of one agent in one invocation, found several; send them one by one"
                )
                raise InvalidMessageError(msg)
            if invocation_id not in (None, *found):
                msg = f"expected answers to questions of the invocation {invocation_id!r}, found ones of {found}"
                raise InvalidMessageError(msg)
            invocation_id, branch = asked[0].invocation_id, asked[0].branch
        assert invocation_id is not None
        resumed = await self._invocation(key, invocation_id)
        message = changed(message, invocation_id=invocation_id, branch=branch)

        async def open_session() -> SessionWriter:
            writer = await self._open(key, invocation_id, plan.window, plan.run_config.on_busy)
            try:
                await self.session_service._open(key, GetSessionConfig(after_seq=resumed.seq - 1))  # what is recorded
                now = await self._invocation_of(writer, resumed)
                if now.status.has_ended and not answers:  # to answers it is said that they come too late
                    if plan.message.actions.state_delta or plan.temp:
                        raise InvalidMessageError(_too_late(now))
                    recorded = reversed(writer.live.window(now.seq))
                    mine = (event for event in recorded if event.invocation_id == invocation_id)
                    answer = next(filter(is_answer_of_run, mine), None)
                    asked = plan.run_config.get_session_config
                    shown = GetSessionConfig(after_seq=writer.live.run_start_seq(None) - 1) if asked is None else asked
                    session = writer.live.snapshot(shown)
                    raise FinishedError(now.status, session, answer)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await writer.finish(None)
                raise
            return writer

        return plan._replace(
            open=open_session, invocation_id=invocation_id, message=message, resumes=resumed, auto_create=False
        )

    async def _questions(self, key: SessionKey, answers: Sequence[FunctionResponse]) -> list[PendingCall]:
        """The open questions that *answers* are for, each checked for its form."""
        from ..sessions._pending import check_answer  # few messages are answers

        app, user, session = key.app_name, key.user_id, key.session_id
        pending = await self.session_service.list_pending(app_name=app, user_id=user, session_id=session)
        by_id = {question.call_id: question for question in pending}
        asked = []
        for answer in answers:
            question = by_id.get(answer.id or "")
            if question is None:
                known = ", ".join(by_id) or "none"
                msg = f"expected answers to open questions of {key} ({known}), found one to {answer.id!r}"
                raise InvalidMessageError(f"{msg}; it may have been answered already")
            check_answer(question, answer)
            if question.kind == "credential" and answer.response["result"]:
                await self._check_credential(question)
            asked.append(question)
        return asked

    async def _check_credential(self, question: PendingCall) -> None:
        """
        Raise unless the credential that is said to be there is.

        Raises:
            InvalidMessageError: It is not, or does not work.
            ServiceNotConfiguredError: There is no credential service.
            CredentialServiceError: The service has failed.
        """
        from ..credentials._values import unusable  # few runs use credentials

        service, config = given(self.credential_service, "credential"), question.auth_config
        if config is None:
            msg = f"expected {question.call_id!r} to say which credential it asks for, found that it does not"
            raise InvalidMessageError(f"{msg}; answer it with False")
        credential = await service.load_credential(
            app_name=question.app_name, user_id=question.user_id, credential_key=config.credential_key
        )
        problem = unusable(config, credential, self._env.now())
        if problem:
            msg = f"expected the credential {config.credential_key!r} of the user to be kept, but {problem}; save it"
            raise InvalidMessageError(f"{msg} first: `await runner.provide_credential(pending, credential)` does")

    async def provide_credential(self, pending: PendingCall, credential: AuthCredential) -> Content:
        """
        Save what an open question asks for, and return the message that says so: `pending.reply(True)`.

            async with runner.run_async(..., new_message=await runner.provide_credential(pending, credential)) as run:

        If it raises, `Cancelled` included, the question can be answered as before.

        Raises:
            InvalidMessageError: The question asks for something else, or for another scheme.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed, and may have it or not.
        """
        from ..credentials._values import AuthCredential, unusable  # few runs use credentials
        from ..sessions._pending import PendingCall

        service = given(self.credential_service, "credential")
        config = pending.auth_config if isinstance(pending, PendingCall) else None
        if config is None:
            msg = "expected an open question of the kind 'credential', found another one; pending.reply(...) answers it"
            raise InvalidMessageError(msg)
        problem = unusable(config, credential, self._env.now()) if isinstance(credential, AuthCredential) else ""
        if problem:
            found = f"{credential.scheme!r}, {'expired' if credential.has_expired(self._env.now()) else 'not expired'}"
            msg = f"expected a credential of the scheme {config.scheme!r} that has not expired, found one of {found}"
            raise InvalidMessageError(msg)
        await service.save_credential(
            app_name=pending.app_name,
            user_id=pending.user_id,
            credential_key=config.credential_key,
            credential=credential,
        )
        return pending.reply(True)

    async def _invocation(self, key: SessionKey, invocation_id: str) -> Invocation:
        found = None
        if isinstance(invocation_id, str):
            found = await self.session_service._invocation(key, invocation_id)
        if found is None:
            msg = f"{key} has no invocation {invocation_id!r:.80}; leave invocation_id out to begin a new one"
            raise InvocationNotFoundError(msg)
        return found

    async def _invocation_of(self, writer: SessionWriter, resumed: Invocation) -> Invocation:
        """The invocation as it is now that nobody else can write; undone ones are not there any more."""
        recorded = writer.live.window(resumed.seq)
        if not recorded or recorded[0].seq != resumed.seq:
            msg = f"the invocation {resumed.invocation_id!r} was undone by a rewind; begin a new one"
            raise InvocationNotFoundError(msg)
        return await self._invocation(writer.live.key, resumed.invocation_id)

    def run(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | None = None,
        invocation_id: str | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, object] | None = None,
    ) -> SyncRun:
        """
        Run the agent from synchronous code: an iterator of events, and a context manager.

            with runner.run(user_id="u", session_id="s", new_message="hi") as events:
                for event in events:
                    ...

        The run lives in a thread of its own, from the first event asked for to its end. The agent has not gone on
        while the caller holds an event. `close()`, leaving the block, garbage collection, Ctrl-C and the end of the
        interpreter cancel the run, wait for its clean-up and join the thread.

        Raises:
            RuntimeError: Called inside trio; use `run_async` there.
        """
        from ._sync import SyncRun  # few programs are synchronous

        scope = self.run_async(
            user_id=user_id,
            session_id=session_id,
            new_message=new_message,
            invocation_id=invocation_id,
            run_config=run_config,
            state_delta=state_delta,
        )
        return SyncRun(scope, self._env)

    async def resume_due(self, now: float | None = None, *, run_config: RunConfig | None = None) -> list[Invocation]:
        """
        Go on with what has waited for a time that has come: see `InvocationContext.sleep_until`.

        One after the other, each to its end or its next wait. What one fails with stands in its log, and does not keep
        the others from their turn. Neither does one that cannot be begun, because its session was deleted or is busy,
        or that fails before it has gone on, and stays as it was.

        Args:
            now: Which time it is, in seconds since the epoch; by default the clock's.
            run_config: Settings of these runs.

        Returns:
            The invocations that went on, as they are now.

        Raises:
            InvalidValueError: *now* is no such time.
            StorageError: What is due cannot be read.
        """
        if now is not None and finite(now) is None:
            raise InvalidValueError("now", f"expected seconds since the epoch, found {shown(now)}")
        config = _checked_config(run_config)
        self._check_open()
        now = self._env.now() if now is None else now
        from ._supervisor import Went, due, go_on  # few programs wait for a time

        went_on = []
        for place in await due(self.session_service, self.app_name, now):
            if await go_on(self, place, now=now, config=config) is Went.ON:
                went_on.append(place)
        found = [await self.session_service._invocation(*place) for place in went_on]
        return [invocation for invocation in found if invocation is not None]  # the others were deleted meanwhile

    async def supervise(
        self,
        *,
        max_concurrent: int = 4,
        every_s: float = 1.0,
        run_config: RunConfig | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """
        Go on, forever, with what was interrupted, and with what is due: `await nursery.start(runner.supervise)`.

        It looks at once and then every *every_s* seconds. An invocation is interrupted if the process that ran it is
        gone. What one fails with stands in its log; what could not be begun, because the store failed or its session is
        busy, is tried again. What fails before it has gone on, as where the agent is not the one that has written the
        log (ReplayError), stays as it is, and is tried again later and later, up to an hour. Any number of processes
        may supervise one store. Cancel it to end it: what is under way is interrupted, and the next supervisor goes on
        with it.

        It also makes the summaries that are due (`App(events_compaction_config=...)`) in sessions where runs of this
        runner have not come to it, because their callers have left early or the summariser has failed: one at a time
        for each session, which is not held meanwhile. What fails is tried again later and later, too.

        Args:
            max_concurrent: How many may go on at once.
            every_s: How often to look, in seconds.
            run_config: Settings of these runs; a busy session is not waited for, whatever they say.
            task_status: Told when it has looked for the first time; what it has found may have to wait for a place.

        Raises:
            ConfigurationError: A number is out of its range.
            ServiceClosedError: The runner, or its session service, was closed, at first or meanwhile.
        """
        if not isinstance(max_concurrent, int) or isinstance(max_concurrent, bool) or max_concurrent < 1:
            msg = f"expected max_concurrent to be an integer above 0, found {max_concurrent!r:.40}"
            raise ConfigurationError(msg)
        if finite(every_s) is None or every_s <= 0:
            msg = f"expected every_s to be seconds above 0, and not for ever, found {every_s!r:.40}"
            raise ConfigurationError(msg)
        config = attrs.evolve(_checked_config(run_config), on_busy="reject")  # who waits for a session takes a place
        from ._supervisor import Supervisor  # few programs supervise

        await Supervisor(self, config, max_concurrent, every_s).run(task_status)

    async def rewind_async(
        self,
        *,
        user_id: str,
        session_id: str,
        rewind_before_invocation_id: str,
        run_config: RunConfig | None = None,
    ) -> Event:
        """
        Undo an invocation and all that came after it; return the event that says so.

        Nothing is deleted: one event is appended, and what it undoes is left out of `session.events`, prompts and
        windows from now on (`read_events` still has it). The session's own state is again what it was before the
        invocation, the initial state included; keys that did not exist then are removed. `user:` and `app:` state is
        shared with other sessions and stays. Of the session's artifacts, those with `user:` aside, what was the newest
        version is the newest again, as a new version that shares its content, or nothing.

        Waits for a run on the session to end (or not: `run_config.on_busy`), and closes the calls that an interrupted
        run has left open before it undoes them. If it raises, `Cancelled` included, nothing is undone.

        Raises:
            InvocationNotFoundError: The visible history has no such invocation; it may have been undone already.
            SessionNotFoundError: There is no such session.
            SessionBusyError: It is busy and waiting could never end, or `RunConfig(on_busy="reject")`.
            StorageError: See the class for what it says about the event.
        """
        config = _checked_config(run_config)
        if not isinstance(rewind_before_invocation_id, str) or not rewind_before_invocation_id:
            problem = f"expected the id of an invocation, found {shown(rewind_before_invocation_id)}"
            raise InvalidValueError("rewind_before_invocation_id", problem)
        key = session_key(self.app_name, user_id, session_id)
        self._check_open()
        own_id = f"e-{self._env.new_id('invocation')}"
        writer = await self.session_service.open_writer(key, own_id, None, reject=config.on_busy == "reject")
        if writer is None:
            raise await self.session_service._not_found(key)
        try:
            return await self._rewind(writer, rewind_before_invocation_id, own_id, config)
        finally:
            with trio.CancelScope(shield=True):
                await writer.finish(None)

    async def _rewind(self, writer: SessionWriter, invocation_id: str, own_id: str, config: RunConfig) -> Event:
        from ..runtime._rewind import rewind_event  # few programs rewind

        while True:
            try:
                await recover(writer)
                found = await self.session_service._read(writer.live.key, -1, 1)
                if not found:  # deleted by another process just now
                    raise await self.session_service._not_found(writer.live.key)
                event = rewind_event(writer.live, found[0], invocation_id)
                metadata = config.custom_metadata or None
                event = changed(event, id=f"{own_id}-0", invocation_id=own_id, custom_metadata=metadata)
                return await self._append_rewind(writer, event)
            except StaleSessionError:  # another process was faster; nothing is undone yet
                await writer.reload(None, reject=config.on_busy == "reject")

    async def _append_rewind(self, writer: SessionWriter, event: Event) -> Event:
        """Store the rewind with what it makes of the artifacts."""
        service, key, seq = self.artifact_service, writer.live.key, event.actions.rewind_before_seq
        if service is None:
            return await writer.append(event)
        from ..artifacts._run import RunArtifacts  # few programs rewind
        from ..runtime._rewind import Restoring

        assert seq is not None
        staged = service._shares(self.session_service)
        live = writer.live
        is_log = len(live.events) == live.revision  # nothing was ever undone
        log = live.events if is_log else await self.session_service._read(key, 0, None)
        past = partial(iter, log)
        artifacts = RunArtifacts(service, key.app_name, key.user_id, key.session_id, staged=staged, past=past)
        restoring = Restoring(artifacts, log, seq)
        try:
            with trio.CancelScope(shield=True):  # a few records: no cancellation leaves half of it
                delta = freeze(await restoring.restore())
                stored = await writer.append(changed(event, actions=changed(event.actions, artifact_delta=delta)))
        except BaseException:
            with trio.CancelScope(shield=True):
                await restoring.undo()
            raise
        return stored

    async def run_debug(
        self,
        messages: str | Sequence[str],
        *,
        user_id: str = "debug_user_id",
        session_id: str = "debug_session_id",
        run_config: RunConfig | None = None,
        quiet: bool = False,
        verbose: bool = False,
    ) -> list[Event]:
        """
        Run one message, or several one after another, print what is said, and return the events.

        The session is made if it does not exist, and goes on when called again. *verbose* also prints calls, responses
        and state changes; *quiet* prints nothing.
        """
        events: list[Event] = []
        for message in [messages] if isinstance(messages, str) else messages:
            key = session_key(self.app_name, user_id, session_id)
            await self._create_if_missing(key)
            if not quiet:
                print(f"user > {message}")  # noqa: T201 # printing is what this is for
            async with self.run_async(
                user_id=user_id, session_id=session_id, new_message=message, run_config=run_config
            ) as run:
                async for event in run:
                    events.append(event)
                    for line in [] if quiet else _debug_lines(event, verbose=verbose):
                        print(line)  # noqa: T201 # printing is what this is for
        return events

    # --- entering

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Runner was closed; make a new one"
            raise ServiceClosedError(msg)

    async def _open(
        self, key: SessionKey, invocation_id: str, window: GetSessionConfig | None, on_busy: str
    ) -> SessionWriter:
        service = self.session_service
        while True:
            writer = await service.open_writer(key, invocation_id, window, reject=on_busy == "reject")
            if writer is not None:
                return writer
            if not self.auto_create_session:
                raise await service._not_found(key)
            await self._create_if_missing(key)

    def _window(self, config: RunConfig) -> RunWindow:
        """What a run has to load."""
        asked, compacts = config.get_session_config, self.app.events_compaction_config is not None
        return _NOT_ASKED[compacts] if asked is None else RunWindow(asked=asked, whole=compacts)

    async def _create_if_missing(self, key: SessionKey) -> None:
        app, user, session = key.app_name, key.user_id, key.session_id
        found = await self.session_service.get_session(
            app_name=app, user_id=user, session_id=session, config=GetSessionConfig(num_recent_events=0)
        )
        if found is None:
            try:
                await self.session_service.create_session(app_name=app, user_id=user, session_id=session)
            except AlreadyExistsError:
                pass  # somebody else's first call was faster: the session is there


class InMemoryRunner(Runner):
    """A runner with in-memory services of its own, for tests and scripts."""

    def __init__(
        self,
        agent: BaseAgent | None = None,
        *,
        app_name: str | None = None,
        app: App | None = None,
        cleanup_timeout_s: float | None = None,
        plugin_close_timeout: float | None = None,
        auto_create_session: bool = False,
        env: Env | None = None,
    ) -> None:
        from ..artifacts._in_memory import InMemoryArtifactService  # a Runner without them does not pay for the three
        from ..credentials._in_memory import InMemoryCredentialService
        from ..memory._in_memory import InMemoryMemoryService

        super().__init__(
            app=app,
            agent=agent,
            app_name="InMemoryRunner" if app is None and app_name is None else app_name,
            session_service=InMemorySessionService(env=env),
            artifact_service=InMemoryArtifactService(env=env),
            memory_service=InMemoryMemoryService(env=env),
            credential_service=InMemoryCredentialService(env=env),
            cleanup_timeout_s=cleanup_timeout_s,
            plugin_close_timeout=plugin_close_timeout,
            auto_create_session=auto_create_session,
        )


def _check_services(sessions: BaseSessionService, artifact: Any, memory: Any, credential: Any) -> None:
    """Raise unless each is a service of its kind, or None, and uses the same Env as the sessions do."""
    _check_service("session_service", sessions, BaseSessionService, sessions)
    if artifact is not None:
        from ..artifacts._service import BaseArtifactService  # few programs have one; so are the two below

        _check_service("artifact_service", artifact, BaseArtifactService, sessions)
    if memory is not None:
        from ..memory._service import BaseMemoryService

        _check_service("memory_service", memory, BaseMemoryService, sessions)
    if credential is not None:
        from ..credentials._service import BaseCredentialService

        _check_service("credential_service", credential, BaseCredentialService, sessions)


def _check_service(name: str, service: Any, kind: type[Any], session_service: BaseSessionService) -> None:
    """Raise unless *service* is one of that *kind* and uses the same Env as the sessions do."""
    if not isinstance(service, kind):
        msg = f"expected {name} to be a {kind.__name__}, found {shown(service)}"
        raise ConfigurationError(msg)
    if service.env is not session_service.env:
        msg = f"expected {name} to use the Env of the session service, found another one; pass the same env to both"
        raise ConfigurationError(msg)


_DEFAULT_CONFIG = RunConfig()
_NOT_ASKED = {whole: RunWindow(whole=whole) for whole in (False, True)}


def _checked_config(run_config: RunConfig | None) -> RunConfig:
    if run_config is None:
        return _DEFAULT_CONFIG
    if not isinstance(run_config, RunConfig):
        msg = f"expected a RunConfig, found {run_config!r:.80}"
        raise ConfigurationError(msg)
    return run_config


def _too_late(invocation: Invocation) -> str:
    return (
        f"the invocation {invocation.invocation_id!r} has ended ({invocation.status}), so that its state_delta would "
        "be lost; send it with a new message, or append an event that has it: session_service.append_event"
    )


def _app(app: App | None, app_name: str | None, agent: BaseAgent | None) -> App:
    if (app is None) == (agent is None):
        msg = f"expected exactly one of app= and agent=, found {'neither' if app is None else 'both'}"
        raise ConfigurationError(msg)
    if app is not None:
        if not isinstance(app, App):
            msg = f"expected app to be an App, found {app!r:.80}"
            raise ConfigurationError(msg)
        if app_name is None:
            return app
        return app._renamed(app_name)
    if app_name is None:
        msg = "expected app_name= with agent=, found none; it is the name that sessions are kept under"
        raise ConfigurationError(msg)
    assert agent is not None
    return App(app_name, agent)


def _cleanup_timeout_s(seconds: float | None, seconds_by_adk_name: float | None) -> float:
    if seconds is not None and seconds_by_adk_name is not None:
        msg = "expected one of cleanup_timeout_s= and plugin_close_timeout=, two names of one setting, found both"
        raise ConfigurationError(msg)
    if seconds is None:
        seconds = CLEANUP_TIMEOUT_S if seconds_by_adk_name is None else seconds_by_adk_name
    if finite(seconds) is None or seconds < 0:
        msg = f"expected cleanup_timeout_s to be seconds from 0 up, and not for ever, found {shown(seconds)}"
        raise ConfigurationError(msg)
    return seconds


def _split_delta(delta: Mapping[str, object] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The part of a state_delta that is stored, and its `temp:` keys."""
    if delta is not None and not isinstance(delta, Mapping):
        raise InvalidValueError("state_delta", f"expected a mapping, found {type(delta).__name__}")
    lasting: dict[str, Any] = {}
    temp: dict[str, Any] = {}
    for key, value in freeze(dict(delta or {}), "state_delta").items():
        check_key(key, "state_delta")
        (temp if scope_of(key) is Scope.TEMP else lasting)[key] = value
    return lasting, temp


def _debug_lines(event: Event, *, verbose: bool) -> list[str]:
    lines = []
    if event.text and not event.partial:
        lines.append(f"{event.author} > {event.text}")
    if event.error_code:
        lines.append(f"{event.author} ! {event.error_code}: {event.error_message}")
    if verbose:
        lines += [f"{event.author} calls {call.name}({json.dumps(call.args)})" for call in event.get_function_calls()]
        lines += [f"{event.author} got {json.dumps(item.response)}" for item in event.get_function_responses()]
        if event.actions.state_delta:
            lines.append(f"{event.author} sets {json.dumps(event.actions.state_delta)}")
    return lines
