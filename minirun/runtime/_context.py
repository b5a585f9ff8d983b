"""
What agents, tools and callbacks hold: their view of the invocation, with all that they can do in it.

What few programs use is imported by the methods that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import trio

from .._escalation import Escalation
from .._json import brief, freeze
from .._threads import LateOutcome
from .._values import changed
from ..errors import ConfigurationError, InvocationEndedError
from ..events import Event, NodeInfo
from ..flows._questions import ToolConfirmation
from ..sessions import InvocationStatus
from ..sessions._concurrent import ConcurrentWrites
from ..sessions._reads import Reads
from ..sessions._state import State
from ..types import Content, Part
from ._base_context import ContextBase, ReadonlyContext
from ._ids import STEP_ID
from ._invocation import Invocation
from ._position import Handover, Position

if TYPE_CHECKING:
    from ..agents import BaseAgent
    from ..artifacts import ArtifactReader, ArtifactVersion, Chunks
    from ..credentials import AuthConfig, AuthCredential
    from ..memory import MemoryEntry, SearchMemoryResponse
    from ..workflow._nodes import NodeLike

__all__ = ["CallbackContext", "InvocationContext", "ReadonlyContext", "ToolContext"]


P = ParamSpec("P")
T = TypeVar("T")


class WorkingContext(ContextBase):
    """A context with all that agents, tools and callbacks can do."""

    __slots__ = ()

    async def progress(self, message: str, *, fraction: float | None = None) -> None:
        """
        Show the caller of the run what is going on: a partial event without content, which is not stored.

        Its `custom_metadata["progress"]` has the *message*, the *fraction* (0.0 to 1.0) if there is one, and the
        `function_call_id` of a tool. Waits while `RunConfig.partial_buffer` partial events are unread.

        Raises:
            InvalidValueError: *message* is no text, or *fraction* not such a number.
        """
        self._check_writable()
        from ..flows._progress import progress_event  # few tools tell how far they are

        await self.emit(progress_event(message, fraction, self._call_id))

    async def step(self, name: str, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """
        Do something once: `receipt = await ctx.step("charge", charge, order_id)`.

        Its result is stored as an event. An invocation that is resumed gets the result that is stored, and *work* is
        not called again. If the process dies between its effect and the store, it is called again: `idempotency_key`,
        inside of it, is the same then if the arguments are; so let those that others may change come from an event or
        a step before. Steps are told apart by the agent's place in the tree, their name, their arguments, and how often
        the agent has taken such a one. What *work* raises is recorded, too, and raised again from its type and `args`.
        A synchronous function runs in a worker thread; if the run is left meanwhile, the thread is waited for as long
        as that of a tool, and what it has come to by then is stored.

        Returns:
            The result, frozen: the same object shape as after a resume.

        Raises:
            InvalidValueError: The arguments or the result are no JSON.
            ReplayError: Something else is recorded in its place.
        """
        self._check_writable()
        from ._steps import run_step  # few programs take steps; so it is with what the methods below import

        self._invocation.secrets.check_name(name, "name of the step")
        return await run_step(self, name, work, args, named)

    async def run_in_thread(self, func: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """
        Call what blocks in a worker thread: `rows = await ctx.run_in_thread(read_rows, path)`.

        It is one of the threads of synchronous tools: 40 of a Runner run at once, others wait for a place. The thread
        sees the context variables of the caller, and a tool's may write to `tool_context.state`.

        A thread cannot be stopped. If this is cancelled, the thread is waited for, up to `RunConfig.thread_grace_s`,
        and what it returns by then is dropped; if it has not begun it never does. After that it is given up: the call
        of a tool is then answered as of unknown outcome. Unlike a `step`, the function is called again when the
        invocation is resumed.

        Raises:
            ConfigurationError: *func* is async.
            ThreadsExhaustedError: Too many threads that were given up still run; *func* was not called.
        """
        self._check_writable()
        from ._thread_calls import run_in_thread

        return await run_in_thread(self, func, partial(func, *args, **named))

    async def sleep_until(self, when: float) -> None:
        """
        Wait until the wall clock shows *when*, in seconds since the epoch: the invocation is paused until then.

        Nothing waits in this process. `Runner.resume_due` or `Runner.supervise` goes on with what is due, as when a
        question is answered; see `request_input`.

        Raises:
            InvalidValueError: *when* is not such a number.
        """
        self._check_writable()
        from ._steps import sleep_until

        await sleep_until(self, when)

    async def request_input(self, message: str, *, response_schema: Any = None, payload: Any = None) -> Any:
        """
        Ask somebody outside, and return the answer; until there is one the invocation is paused.

        The question is one of `run.pending`; the answer is a new message, `pending.reply(answer)`.
        The agent, or the tool, is then run from its start, and what it has said and its steps are taken from the log.
        What it waits with is no `Exception`: code that catches it all the same, with `except BaseException`, gives
        the question up.

        Args:
            message: The question.
            response_schema: The form of the answer, as for `LlmAgent(output_schema=...)`. What does not fit is refused
                before it is stored, and can be given again. What only a validator of a class refuses is asked again,
                with the reason; the answer that is returned is the JSON that was given.
            payload: Any JSON value for the program that shows the question.
        """
        self._check_writable()
        from ._questions import ask_for_input

        return await ask_for_input(self, message, response_schema, payload)

    # --- nodes

    async def run_node(self, node: NodeLike, node_input: Any = None, *, name: str | None = None) -> Any:
        """
        Run a function, an agent, a tool or a workflow with an input, and return its output.

            summary = await ctx.run_node(summarizer, {"text": text})

        It speaks in a branch of its own, which no prompt outside shows; an agent sees its input as the user's message,
        and nothing else. Its end is stored as one event, and an invocation that is resumed takes the output from there.
        Runs are told apart as steps are: by the place of the context, the node's name, its input, and how often the
        same was asked for there. Several may run side by side, in tasks of a nursery; see `map`.

        Returns:
            The output, frozen JSON: the same object shape as after a resume.

        Raises:
            ConfigurationError: *node* is nothing that can be run.
            InvalidValueError: The input, or the output, is no JSON.
            ReplayError: It is recorded with another input in its place.
            NodeRunsLimitExceededError: The invocation has run as many nodes as `RunConfig.max_node_runs` allows.
        """
        self._check_writable()
        return await self._invocation.program.nodes().run_node(self, node, node_input, name)

    async def map(
        self,
        node: NodeLike,
        items: Iterable[Any],
        *,
        name: str | None = None,
        max_concurrency: int | None = None,
        on_failure: str = "cancel_others",
    ) -> list[Any]:
        """
        Run a node for each item, side by side, and return the outputs in the order of the items; see `run_node`.

        What has ended is kept if the process dies. *max_concurrency* is how many run at once, None for no limit of its
        own. *on_failure* is `"cancel_others"`, or `"collect"`, which lets those that run come to their end; the failure
        is raised in both cases.
        """
        self._check_writable()
        nodes = self._invocation.program.nodes()
        outputs: list[Any] = await nodes.map_nodes(self, node, items, name, max_concurrency, on_failure)
        return outputs

    @property
    def node_input(self) -> Any:
        """What the node was given that this is inside of: JSON, or the user's Content; None outside of nodes."""
        node = self._position.node
        return None if node is None else node.input

    @property
    def attempt_count(self) -> int:
        """Which attempt of the node this is, from 1; see `minirun.workflow.Node(retry=...)`."""
        node = self._position.node
        return 1 if node is None else node.attempt

    @property
    def node_path(self) -> str:
        """What events from here have as `node_info.path`."""
        return self._position.node_info.path

    # --- artifacts

    async def save_artifact(
        self, filename: str, artifact: Part, custom_metadata: Mapping[str, Any] | None = None
    ) -> int:
        """
        Store a part as the next version of an artifact of this session and return the version's number, from 0.

        The version is named in the `artifact_delta` of an event: an agent's own logic says it at once, as a step, and
        does not save again when it is resumed; of a tool it is the event with its result, of a callback the next one.
        What a failed attempt of a tool has saved is named by none. An artifact service that shares the file of the
        session service shows a version to others with that event and not before; others show it at once.

        Args:
            filename: A relative path; with `user:` before it the artifact belongs to the user, in all sessions.
            artifact: A part with text, bytes, or the URI of a file, of which the URI is kept.
            custom_metadata: A JSON object to be kept with the version.

        Raises:
            InvalidValueError: The name cannot be one, or the artifact is nothing that can be kept.
            SecretError: There is a secret in it that this run was given.
            ServiceNotConfiguredError: The runner has no artifact service.
            StorageError: The store failed.
        """
        self._check_writable()
        from ._artifacts import check_artifact, save_artifact

        check_artifact(self, filename, artifact, custom_metadata)
        save = self._invocation.artifacts.to_save(filename, artifact, custom_metadata)
        return await save_artifact(self, filename, save)

    async def save_artifact_stream(
        self,
        filename: str,
        chunks: Chunks,
        mime_type: str = "application/octet-stream",
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """
        Store bytes that come in *chunks*, from an iterable or an async one; else as `save_artifact`.

        It loads as a part with `inline_data`. An error of the chunks is raised as it is, and leaves no version. The
        chunks are not searched for secrets.
        """
        self._check_writable()
        from ._artifacts import check_artifact, save_artifact

        check_artifact(self, filename, None, custom_metadata)
        save = self._invocation.artifacts.to_save_stream(filename, chunks, mime_type, custom_metadata)
        return await save_artifact(self, filename, save)

    async def load_artifact(self, filename: str, version: int | None = None) -> Part | None:
        """
        Return the part of a version, by default the newest; None if there is no such version.

        What this run has saved is there, whatever event will name it.

        Raises:
            InvalidValueError: The name or the number cannot be one.
            ServiceNotConfiguredError: The runner has no artifact service.
            StorageCorruptError: What is stored is not what was saved.
        """
        self._check_writable()
        from ._artifacts import load_artifact

        return await load_artifact(self, filename, version)

    def open_artifact(
        self, filename: str, version: int | None = None
    ) -> AbstractAsyncContextManager[ArtifactReader | None]:
        """Open a version, by default the newest, to be read in chunks; None if there is no such version."""
        from ._artifacts import open_artifact

        return open_artifact(self, filename, version)

    async def list_artifacts(self) -> list[str]:
        """Return the names of the session's artifacts and of its user's, sorted."""
        self._check_writable()
        from ._artifacts import list_artifacts

        return await list_artifacts(self)

    async def get_artifact_version(self, filename: str, version: int | None = None) -> ArtifactVersion | None:
        """Return what is known of a version, by default the newest; None if there is no such version."""
        self._check_writable()
        from ._artifacts import artifact_version

        return await artifact_version(self, filename, version)

    async def delete_artifact(self, filename: str) -> None:
        """Delete all versions of an artifact, at once; events that name them name nothing any more."""
        self._check_writable()
        from ._artifacts import delete_artifact

        await delete_artifact(self, filename)

    # --- memory

    async def search_memory(
        self, query: str, *, limit: int | None = None, filter: Mapping[str, Any] | None = None
    ) -> SearchMemoryResponse:
        """
        Return what is remembered of the user and fits *query* best; see `BaseMemoryService.search_memory`.

        An agent's own logic, and a tool, get the same answer when they are run again: it is stored with their next
        event.

        Raises:
            InvalidValueError: An argument cannot be one.
            ServiceNotConfiguredError: The runner has no memory service.
            StorageError: The store failed.
        """
        self._check_writable()
        from ..memory._run import search_memory

        return await search_memory(self, query, limit, filter)

    async def add_session_to_memory(self) -> None:
        """Remember what was said in the session, as far as this context sees it; what is known already stays."""
        self._check_writable()
        from ..memory._run import add_events_to_memory

        await add_events_to_memory(self, self.session.events, None)

    async def add_events_to_memory(
        self, events: Iterable[Event], *, custom_metadata: Mapping[str, Any] | None = None
    ) -> None:
        """
        Remember what was said in some stored events of the session; see `BaseMemoryService.add_events_to_memory`.

        Raises:
            InvalidValueError: An argument cannot be one.
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
            ServiceNotConfiguredError: The runner has no memory service.
        """
        self._check_writable()
        from ..memory._run import add_events_to_memory

        await add_events_to_memory(self, events, custom_metadata)

    async def add_memory(
        self, memories: Iterable[MemoryEntry | Content | str], *, custom_metadata: Mapping[str, Any] | None = None
    ) -> list[str]:
        """
        Remember something of the user that is no event, at once, and return its ids; see `BaseMemoryService`.

        What comes without an id or a time gets an id that is the same whenever this context adds the same, and the
        time at which the invocation began: what is run again adds nothing twice, and nothing that was deleted since.

        Raises:
            InvalidValueError: An argument cannot be one.
            SecretError: There is a secret in it that this run was given.
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
            ServiceNotConfiguredError: The runner has no memory service.
        """
        self._check_writable()
        from ..memory._run import add_memory

        return await add_memory(self, memories, custom_metadata)

    async def delete_memory(self, memory_id: str) -> None:
        """
        Forget the memory of this id, of this user, at once; adding its event again does not bring it back.

        What this session has found in it stays in its log: see `BaseMemoryService.delete_memory`.

        Raises:
            InvalidValueError: *memory_id* cannot be an id.
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
            ServiceNotConfiguredError: The runner has no memory service.
            StorageError: The store failed.
        """
        self._check_writable()
        from ..memory._run import delete_memory

        await delete_memory(self, memory_id)

    # --- credentials

    async def request_credential(
        self, auth_config: AuthConfig, *, rejected: AuthCredential | None = None
    ) -> AuthCredential:
        """
        Return the user's credential; if there is none that works, ask for it, and pause the invocation until there is.

        The question is one of `run.pending`, of the kind `"credential"`. The secret is never part of a message: the
        program that gets it saves it, and answers that it is there (`Runner.provide_credential` does both), or answers
        `pending.reply(False)`. With an `auth_scheme` the answer is what a browser came back with. The agent, or the
        tool, is then run from its start. *rejected* is what the other side has refused: it is renewed, or forgotten.

        Nothing of it is recorded: logic that is run again may get another one, or ask again for what has expired or
        was deleted. Use it to get in somewhere, and decide nothing by it.

        From then on the run says `[secret]` in its place, in texts and values of events and logs. It is refused
        (SecretError) in what is written to `ctx.state`, in artifacts and memories, and in new names. A secret of fewer
        than 8 characters is found only where it is a whole text; as a number, one of 6 digits or more. What is encoded,
        or cut into pieces, is not found.

        Raises:
            CredentialRefusedError: There will be none. In a tool, the model is told.
            AuthorizationError: The server that users sign in to has refused, or cannot be reached.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed.
        """
        self._check_writable()
        from ._credentials import request_credential

        return await request_credential(self, auth_config, rejected, beside=False)

    async def load_credential(self, auth_config: AuthConfig) -> AuthCredential | None:
        """
        Return the user's credential if there is one that works; nobody is asked, and nothing recorded.

        Raises:
            AuthorizationError: It has ended, and renewing it has failed.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed.
        """
        self._check_writable()
        from ._credentials import load_credential

        return await load_credential(self, auth_config)

    async def save_credential(self, auth_config: AuthConfig, credential: AuthCredential) -> None:
        """
        Keep a credential for the user, such as one that was renewed. Nothing is recorded of it.

        Raises:
            InvalidValueError: It is not what *auth_config* asks for, or has expired.
            ServiceNotConfiguredError: The Runner has no credential service.
            CredentialServiceError: The service has failed, and may have it or not.
        """
        self._check_writable()
        from ._credentials import save_credential

        await save_credential(self, auth_config, credential)

    @property
    def idempotency_key(self) -> str:
        """What this step, or this call of a tool, has for itself, and keeps if it is done again."""
        key = STEP_ID.get() or self._call_id
        if key is None:
            raise InvocationEndedError("only a step and the call of a tool have an idempotency key; use `ctx.step`")
        return key

    def _at(self, state: State, **changes: Any) -> InvocationContext:
        """The same context with another layer of *state*, and in another position: what *changes* in it."""
        position = changed(self._position, **changes) if changes else self._position
        return InvocationContext(self._invocation, self._agent, position, state)

    def _detached(self, state: State, **changes: Any) -> InvocationContext:
        """The same, for what is said out of the order of its logic."""
        context = self._at(state, **changes)
        context._is_detached = True
        return context


class InvocationContext(WorkingContext):
    """What an agent gets when it runs."""

    __slots__ = ()

    @property
    def status(self) -> InvocationStatus:
        """`running`; for the hooks at the end of a run, how it ends, unless something else fails after them."""
        return self._invocation.status

    def watch_commits(self, watcher: Callable[[Event], None]) -> None:
        """
        Call *watcher* with each event that is emitted in this run from now on, after it is stored.

        It is a plain function, called in the emitter's task before `emit` returns. An exception fails the run at its
        end; the event stays stored. The message of the run, and replayed events, are not reported.

        Raises:
            ConfigurationError: It is no function.
        """
        if not callable(watcher):
            raise ConfigurationError(f"expected a function of an event, found {brief(watcher)}")
        self._check_writable()
        self._invocation.commit_watchers.append(watcher)

    @classmethod
    def root(cls, invocation: Invocation) -> InvocationContext:
        """The context that a run begins with."""
        tree = invocation.program.tree
        state = State(invocation.values, check=invocation.check_write)
        state.schemas = invocation.program.schemas
        return cls(invocation, tree.root, Position("run", tree), state)

    def _for_agent(self, agent: BaseAgent) -> InvocationContext:
        """The context of an agent that this one calls."""
        around = self._position
        path, run = self._invocation.ids.next_run(f"{around.path}/{agent.name}")
        node = around.node_info if agent is around.node_of else self._node_below(agent, run)
        main_task = around.main_task or trio.lowlevel.current_task()
        position = changed(around, path=path, node_info=node, node_of=None, handover=Handover(), main_task=main_task)
        if not agent._has_own_logic:
            return InvocationContext(self._invocation, agent, position, self._state.layer())
        return InvocationContext(self._invocation, agent, position, self._state, self._invocation.reads_of(path))

    def _node_below(self, agent: BaseAgent, run: int) -> NodeInfo:
        """Which run this is of an agent that this one calls, or that was handed to in the place of such an agent."""
        here = self._position
        path, around = here.node_info.path, here.node_of or (self._agent if here.node_info.path else None)
        if here.tree.parent_of(agent) is not around:
            from ..flows._node_paths import path_above  # few agents hand over

            path = path_above(here, self._invocation.ids, agent, around)
        return changed(here.node_info, path=f"{path}/{agent.name}@{run}".removeprefix("/"))

    def _in_branch(self, concurrent: ConcurrentWrites, index: int, branch: str) -> InvocationContext:
        """The same context, for an agent that runs in a branch of its own, beside others."""
        around = (*self._position.concurrent, (concurrent, index))
        return self._at(self._state, branch=branch, concurrent=around, main_task=None)

    def _in_loop(self) -> InvocationContext:
        """The same context, for agents whose escalation ends a loop and nothing beyond."""
        return self._at(self._state, escalation=Escalation())

    def _for_call(self, call_id: str, name: str, concurrent: ConcurrentWrites, index: int) -> ToolContext:
        """The context of a tool that this agent calls, beside others."""
        around, path = (*self._position.concurrent, (concurrent, index)), f"{self._path}/{name}#{call_id}"
        reads = self._invocation.reads_of(path)
        return ToolContext(self, self._state, call_id, reads, path=path, concurrent=around)

    def _for_model_hooks(self, event_id: str) -> ToolContext:
        """The context of the hooks around this agent's model, for one answer: what they write and do is the agent's."""
        context = ToolContext(self, self._state, path=f"{self._path}!{event_id}")
        context._draft = self.actions
        return context

    def _for_agent_hooks(self, name: str) -> ToolContext:
        """The context of the hooks around this agent, whose events and writes are their own."""
        return ToolContext(self, self._state.layer(), path=f"{self._path}!{name}")

    def _for_run_hooks(self) -> InvocationContext:
        """The context of the hooks around a run, of which an invocation that is resumed has several."""
        return self._detached(self._state, path=f"run!{self._invocation.run_id}")


class ToolContext(WorkingContext):
    """
    What a tool gets, and a callback. For a tool `function_call_id` is also an idempotency key: it is stored before the
    tool starts, and is the same whenever this call is made again. For a callback of an agent or a model it is empty.
    """

    __slots__ = ("_requested", "function_call_id", "late", "tool_confirmation")

    def __init__(
        self, of: ContextBase, state: State, function_call_id: str = "", reads: Reads | None = None, **changes: Any
    ) -> None:
        """In the position of another context, but for what *changes* in it."""
        super().__init__(of._invocation, of._agent, changed(of._position, **changes), state, reads)
        self._is_detached = True
        self.function_call_id = function_call_id
        self.tool_confirmation: ToolConfirmation | None = None
        """What somebody has said about this call, if it was asked for."""
        self._requested: ToolConfirmation | None = None  # what it has asked for by `request_confirmation`
        self.late: LateOutcome | None = None  # how the thread of a cancelled call has ended after all

    def _ended_late(self, late: LateOutcome) -> None:
        self.late = late

    @property
    def _call_id(self) -> str | None:
        return self.function_call_id or None

    def request_confirmation(self, *, hint: str = "", payload: Any = None) -> None:
        """
        Ask somebody whether this call may be done: return after it, whatever you return.

        The result and what was written to the state are dropped, and the invocation is paused. Once somebody has
        confirmed, the tool is called again with the same arguments, and `tool_confirmation` says what they said; if
        they have not, it is not called, and the model is told.

        Raises:
            InvalidValueError: *payload* is no JSON.
            InvocationEndedError: The invocation, or the tool call that this context belonged to, has ended.
        """
        self._check_writable()
        self._requested = ToolConfirmation(hint=hint, payload=freeze(payload, "payload"))

    def _for_attempt(self) -> ToolContext:
        """The same context for one attempt, with a layer of state on top of this one's."""
        reads = self._invocation.reads_of(f"{self._path}*")
        context = ToolContext(self, self._state, self.function_call_id, reads)
        context.tool_confirmation = self.tool_confirmation
        if self._draft is not None:  # few tools have a hook that sets any
            context._draft = self._draft.on_top(context._state_delta(), context._writable_check())
        return context


CallbackContext = ToolContext
