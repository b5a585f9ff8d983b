"""The runner: an app over its services. Everything an application asks of minirun goes through here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from .._arguments import refuse_unknown
from .._service import check_in_trio, misused
from ..agents import BaseAgent
from ..apps import App
from ..env import Env
from ..events import NO_ACTIONS, Event, EventActions
from ..flows._message import user_content
from ..runtime import Program, RunConfig, RunRequest, RunScope
from ..runtime._failure import add_note
from ..sessions import BaseSessionService, Invocation, SessionKey, SessionWriter
from ..sessions._event_checks import checked_event
from ..sessions._key import session_key
from ..sessions._live import RunWindow
from ..tools._limits import ToolLimits
from ..types import Content
from ._arguments import (
    app_of,
    check_needs,
    checked_cleanup_timeout_s,
    checked_config,
    checked_services,
    compactor_of,
    hooks_of_app,
    split_delta,
)
from ._opener import SessionOpener

if TYPE_CHECKING:
    from ..agents._live_request_queue import LiveRequestQueue
    from ..artifacts import BaseArtifactService
    from ..credentials import AuthCredential, BaseCredentialService
    from ..memory import BaseMemoryService
    from ..plugins import BasePlugin
    from ..sessions import PendingCall
    from ..workflow._nodes import NodeLike
    from ._live_run import LiveScope
    from ._remembered import RememberedAnswers
    from ._sync import SyncRun

__all__ = ["Runner"]

_Self = TypeVar("_Self", bound="Runner")

# As many as trio's own default for worker threads (trio.to_thread.current_default_thread_limiter), and apart from them:
# tools that hang never hold up a commit, nor what else the application does in threads.
TOOL_THREADS = 40

# What a run loads whose settings ask for nothing; and if its app has summaries.
_NOT_ASKED = {whole: RunWindow(whole=whole) for whole in (False, True)}


class NewInvocation(NamedTuple):
    """How a run that begins an invocation gets into its session."""

    runner: Runner
    key: SessionKey

    async def open(self, request: RunRequest) -> tuple[SessionWriter, RunRequest]:
        """
        Wait for the session and open it; see `SessionOpener.open`. Nothing has to be looked up.

        A plain message to an agent that waits for one is its answer: the run then goes on with that invocation.
        """
        opener = self.runner._opener
        opener.check_open()
        writer = await opener.open(self.key, request, auto_create=self.runner.auto_create_session)
        if writer.live.open_calls:
            from ._conversation import answering  # few sessions have open calls

            return await answering(opener, self.runner._program, writer, request)
        return writer, request


@refuse_unknown
class Runner:
    """
    Runs an app's root agent on sessions.

    Give it an `app`, or an `agent` and an `app_name`; `async with` only closes it. It serves any number of sessions.

    Args:
        app: The app to run.
        app_name: With *agent*: the name that sessions are kept under.
        agent: The root agent.
        node: A workflow, or what can be a node of one, as the root instead of *agent*.
        plugins: With *agent*: the plugins of its app.
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
        self, *, app: App | None = None, app_name: str | None = None, agent: BaseAgent | None = None,
        node: NodeLike | None = None, plugins: Sequence[BasePlugin] | None = None,
        session_service: BaseSessionService, artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None, credential_service: BaseCredentialService | None = None,
        cleanup_timeout_s: float | None = None, plugin_close_timeout: float | None = None,
        auto_create_session: bool = False, env: Env | None = None,
    ) -> None:  # fmt: skip
        self._services = checked_services(session_service, artifact_service, memory_service, credential_service, env)
        self.app = app_of(app, app_name, agent, node, plugins)
        self.session_service = session_service
        self.artifact_service = artifact_service
        self.memory_service = memory_service
        self.credential_service = credential_service
        check_needs(self)
        self.cleanup_timeout_s = checked_cleanup_timeout_s(cleanup_timeout_s, plugin_close_timeout)
        if artifact_service is not None:
            session_service._accompany(artifact_service)
        self.auto_create_session = auto_create_session
        self._env = session_service.env
        self._opener = SessionOpener(session_service, self.app)
        self._compactor = compactor_of(self.app, self._env)
        self._program = Program(
            tree=self.app._tree,
            plugins=hooks_of_app(self.app),
            prompts=self.app.prompts,
            services=self._services,
            tool_limits=ToolLimits(TOOL_THREADS),
            env=self._env,
            cleanup_timeout_s=self.cleanup_timeout_s,
            compactor=self._compactor,
            nodes=_nodes,
            messages=_messages,
            cache_config=self.app.context_cache_config,
            schemas=self.app._schema,
        )

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

    @property
    def remembered(self) -> RememberedAnswers:
        """What users have allowed for later calls, too: `pending.reply(True, remember=...)`."""
        from ._remembered import RememberedAnswers  # few programs look at it

        return RememberedAnswers(self)

    async def __aenter__(self: _Self) -> _Self:
        check_in_trio()  # leaving needs it
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            await self.close()

    if not TYPE_CHECKING:  # a type checker has a word of its own for these
        __enter__ = __exit__ = misused

    async def close(self) -> None:
        """
        Close the plugins, the summarizer, the tools and the models of the app, each within `cleanup_timeout_s`. The
        session service stays open. What a `close` raises is raised when all are closed. Closing twice is harmless.

        Raises:
            CleanupTimeoutError: One took too long and was cancelled.
        """
        check_in_trio()
        if self._opener.is_closed:
            return
        self._opener.is_closed = True
        from ._close_app import close_app  # not every program closes its Runner

        failures = await close_app(self.app, self.cleanup_timeout_s)
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
        deps: Any = None,
        yield_user_message: bool = False,
    ) -> RunScope:
        """
        Run the agent on a message, as a scope:

            async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
                async for event in run:
                    ...

        Entering waits for the session, answers what an interrupted run has left open, and stores the message with
        *state_delta* as one event; if it raises, `Cancelled` included, it is not stored. While the block holds an
        event, the logic that emitted it has not gone on. Leaving the block ends the run, and no task is left.

        Args:
            user_id, session_id: Whose session, and which.
            new_message: What the user says: a text, or a Content without function calls; or the answer to an open
                question, `pending.reply(...)`, with which its invocation goes on.
            invocation_id: An invocation to go on with, that was interrupted or waits. What is recorded of it is not
                done again: its agents run from their start, and what they have said, the answers of models and the
                results of tools and steps are taken from the log. One that is completed yields nothing, and
                `run.answer` is the recorded answer. With one that has failed or was cancelled, the newest of its
                session, what failed is tried again: the model, the node, the step after which nothing was said, the
                questions that its end has withdrawn; calls that were answered, with an error or as cancelled, are not
                made again, but the model decides. Budgets count on, and *run_config* may raise them; the deadline
                begins anew. With a message: what to call the invocation that this begins, up to 64 letters, digits,
                `_` and `-`, another name in every session.
            run_config: Settings of this run.
            state_delta: State to change with the message; its `temp:` keys live for this run.
            deps: What this run finds as `ctx.deps`: a database handle, the request. It is never stored; a run that
                resumes the invocation is given it again.
            yield_user_message: Whether the stored message is the first event of the run.

        Raises:
            On entering, before anything is stored:
            InvalidMessageError: The message is empty, or not one that a user can send.
            SessionNotFoundError: There is no such session.
            SessionBusyError: It is busy and waiting could never end, or `RunConfig(on_busy="reject")`.
            InvalidMessageError: The message answers no open question, or one that was answered; or not in its form. Or
                the invocation is completed, and *state_delta* would be lost.
            NotResumableError: The invocation has failed or was cancelled, and another one has begun since, or a summary
                has taken its place.
            InvocationNotFoundError, InvalidValueError: For the other arguments.

            On iterating or leaving: what the run fails with, one exception with its own type.
        """
        config = checked_config(run_config)
        key = session_key(self.app_name, user_id, session_id)
        own_id = f"e-{self._env.new_id('invocation')}"
        lasting, temp = split_delta(state_delta)
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
        compacts, asked = self.app.events_compaction_config is not None, config.get_session_config
        request = RunRequest(
            invocation_id=own_id, message=checked_event(message), temp=temp, run_config=config,
            yield_user_message=yield_user_message, deps=deps,
            window=_NOT_ASKED[compacts] if asked is None else RunWindow(asked=asked, whole=compacts),
        )  # fmt: skip
        if invocation_id is None and not message.get_function_responses():
            return RunScope(self._program, request, NewInvocation(self, key))
        from ._resume import ResumedInvocation  # few runs resume an invocation

        entrance = ResumedInvocation(self._opener, self._program, key, invocation_id, self.auto_create_session)
        return RunScope(self._program, request, entrance)

    def run_live(
        self, *, user_id: str, session_id: str, live_request_queue: LiveRequestQueue | None = None,
        run_config: RunConfig | None = None, state_delta: Mapping[str, object] | None = None, deps: Any = None,
    ) -> LiveScope:  # fmt: skip
        """
        Converse with the agent, as a scope in which both sides speak when they like; see "Live conversations".

        It is a run as others are. Sound, and what is not finished, comes as partial events; an utterance is one event,
        with its text. The caller speaks by `live.send_text`, `live.send_audio` and so on, or by a *live_request_queue*
        of its own, which serves this run only. `RunConfig.deadline_s` is None unless it is given.

        Raises:
            NotSupportedError: An agent cannot speak here, or has a field that would have no effect.
            ConfigurationError, InvalidValueError: For the arguments. And on entering as `run_async`.
        """
        from ._live_run import live_scope  # few programs converse

        entrance = NewInvocation(self, session_key(self.app_name, user_id, session_id))
        return live_scope(self, entrance, live_request_queue, run_config, state_delta, deps)

    async def send(
        self, content: str | Content, *, user_id: str, session_id: str, invocation_id: str | None = None,
        when: str = "next_model_call",
    ) -> str:  # fmt: skip
        """
        Send a message of the user into the invocation of a session that is under way, in whatever process it runs.

        It waits for no run: it returns the id of the event to be, once the message is in the store, as durable as an
        event. The run makes it one before the next question to a model or, with *when* `"idle"`, when its agents have
        come to their end, at the latest then. See "A message into a run" in the guide.

        Raises:
            InvocationEndedError, InvocationNotFoundError, SessionNotFoundError: There is nothing to send it to.
            InvalidMessageError, InvalidValueError: It is empty, or not one that a user can send; or no such *when*.
            NotSupportedError: The session service keeps no messages for runs.
            StorageError: See the class for what it says about the message. Else, or if cancelled, nothing is stored.
        """
        self._opener.check_open()
        key = session_key(self.app_name, user_id, session_id)
        return str(await _messages().send(self.session_service, key, content, when, invocation_id))

    async def provide_credential(self, pending: PendingCall, credential: AuthCredential | str) -> Content:
        """
        Save what an open question asks for, and return the message that says so: `pending.reply(True)`.

            async with runner.run_async(..., new_message=await runner.provide_credential(pending, credential)) as run:

        A question to sign in (`pending.auth_config.state`) is answered by a text: the address that the browser was sent
        back to, or the code in it, which becomes tokens. If the person has refused there, the message says False.

        If it raises, `Cancelled` included, the question can be answered as before; a code is used up by then.

        Raises:
            InvalidMessageError: This does not answer the question.
            AuthorizationError: The authorization server has refused, or cannot be reached.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed, and may have it or not.
        """
        from ._credentials import provide_credential, quiet_answer  # few programs use credentials

        credential = quiet_answer(credential)
        return await provide_credential(self.credential_service, pending, credential, self._env.now())

    def run(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | None = None,
        invocation_id: str | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, object] | None = None,
        deps: Any = None,
    ) -> SyncRun:
        """
        Run the agent from synchronous code: `with runner.run(...) as events`, which is an iterator of events.

        The run lives in a thread of its own, from the first event asked for to its end, and sees the context variables
        that the caller has set by then. `close()`, leaving the block, garbage collection, Ctrl-C and the end of the
        interpreter cancel the run, wait for its clean-up and join the thread.

        It works inside a running asyncio loop, too, as in a notebook, which is held meanwhile. Where that matters, use
        `minirun.bridge.AsyncioBridge`.

        Raises:
            RuntimeError: Called inside trio; use `run_async` there.
        """
        from ._sync import SyncRun  # few programs are synchronous

        scope = self.run_async(
            user_id=user_id, session_id=session_id, new_message=new_message, invocation_id=invocation_id,
            run_config=run_config, state_delta=state_delta, deps=deps,
        )  # fmt: skip
        return SyncRun.in_thread(scope, self._env)

    async def resume_due(
        self, now: float | None = None, *, run_config: RunConfig | None = None, deps: Any = None
    ) -> list[Invocation]:
        """
        Go on with what has waited for a time that has come: see `InvocationContext.sleep_until`.

        One after the other, each to its end or its next wait. What one fails with stands in its log; one that cannot
        be begun, or fails before it has gone on, stays as it was. Neither keeps the others from their turn.

        Args:
            now: Which time it is, in seconds since the epoch; by default the clock's.
            run_config, deps: Of these runs, as `run_async`.

        Returns:
            The invocations that went on, as they are now.

        Raises:
            InvalidValueError: *now* is no such time.
            StorageError: What is due cannot be read.
        """
        config = checked_config(run_config)
        self._opener.check_open()
        from ._supervisor import resume_due  # few programs wait for a time

        return await resume_due(self, now, config, deps)

    async def supervise(
        self, *, max_concurrent: int = 4, every_s: float = 1.0, run_config: RunConfig | None = None, deps: Any = None,
        stop: trio.Event | None = None, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        """
        Go on, forever, with what was interrupted, and with what is due: `await nursery.start(runner.supervise)`.

        An invocation is interrupted if the process that ran it is gone. What one fails with stands in its log; what
        could not be begun, or fails before it has gone on (ReplayError), is tried again later and later. Any number of
        processes may supervise one store; in a database each job is claimed by one of them. Cancel it to end it: what
        is under way is interrupted, and the next supervisor goes on with it. Or set *stop*.

        Messages for what is paused (`send`) are answered in invocations of their own, if all agents are `LlmAgent`s.
        It also makes the summaries that are due (`App(events_compaction_config=...)`) in sessions where runs of this
        runner have not come to it; the session is not held meanwhile.

        Args:
            max_concurrent: How many may go on at once.
            every_s: How often to look, in seconds.
            run_config, deps: Of these runs, as `run_async`; a busy session is not waited for.
            stop: Once it is set, nothing new begins, and this returns when what is under way has ended.
            task_status: Told when it has looked for the first time; what it has found may have to wait for a place.

        Raises:
            ConfigurationError: A number is out of its range, or *stop* is no `trio.Event`.
            ServiceClosedError: The runner, or its session service, was closed.
        """
        from ._supervisor import Supervisor  # few programs supervise

        await Supervisor(self, checked_config(run_config), max_concurrent, every_s, deps, stop).run(task_status)

    async def rewind_async(
        self, *, user_id: str, session_id: str, rewind_before_invocation_id: str, run_config: RunConfig | None = None
    ) -> Event:
        """
        Undo an invocation and all that came after it; return the event that says so.

        Nothing is deleted: one event is appended, and what it undoes is left out of `session.events`, prompts and
        windows from now on (`read_events` still has it). The session's own state is again what it was before the
        invocation; `user:` and `app:` state stays. Of the session's own artifacts, what was the newest version is the
        newest again, as a new version that shares its content, or nothing.

        Waits for a run on the session to end (or not: `run_config.on_busy`), and closes the calls that it has left
        open. If it raises, `Cancelled` included, nothing is undone.

        Raises:
            InvocationNotFoundError: The visible history has no such invocation; it may have been undone already.
            SessionNotFoundError: There is no such session.
            SessionBusyError: It is busy and waiting could never end, or `RunConfig(on_busy="reject")`.
            StorageError: See the class for what it says about the event.
        """
        config = checked_config(run_config)
        key = session_key(self.app_name, user_id, session_id)
        self._opener.check_open()
        from ._rewind import rewind  # few programs rewind

        return await rewind(self.session_service, self.artifact_service, key, rewind_before_invocation_id, config)

    async def run_debug(
        self, messages: str | Sequence[str], *, user_id: str = "debug_user_id", session_id: str = "debug_session_id",
        run_config: RunConfig | None = None, deps: Any = None, quiet: bool = False, verbose: bool = False,
    ) -> list[Event]:  # fmt: skip
        """
        Run one message, or several one after another, print what is said and where tools fail, and return the events.

        The session is made if need be. *verbose* also prints calls, responses and state changes; *quiet* nothing.
        """
        from ._debug import run_debug  # few programs print what is said

        return await run_debug(self, messages, user_id, session_id, run_config, deps, quiet=quiet, verbose=verbose)


def _messages() -> ModuleType:
    from . import _messages  # few programs send messages into runs

    return _messages


def _nodes() -> ModuleType:
    from ..workflow import _dynamic  # few programs run nodes

    return _dynamic
