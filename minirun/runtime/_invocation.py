"""
One invocation, in one run of it: what all its contexts share.

It only holds together what belongs to it. What each part does is told in its own file: the way of an event in `_emit`
and `_committer`, ids in `_ids`, limits in `flows._budgets`, the past in `sessions._run_history`, failures in
`_failure`, secrets in `credentials._secrets`, and what was recorded by an earlier run in `flows._record` and `_replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from .._threads import LateOutcome, in_thread
from ..env import Env
from ..errors import InvocationEndedError
from ..events import Event
from ..flows._budgets import Budgets, count_recorded
from ..flows._no_secrets import NO_SECRETS, NoSecrets
from ..flows._prompts import Prompts
from ..sessions import InvocationStatus, OpenCall, SessionWriter
from ..sessions._reads import Reads
from ..sessions._run_history import History
from ._committer import Committer
from ._config import RunConfig
from ._emit import LIVE, Emitter
from ._failure import Failures
from ._hooks import PluginHooks
from ._ids import Ids

if TYPE_CHECKING:
    from ..agents._tree import AgentTree
    from ..artifacts import BaseArtifactService
    from ..artifacts._run import RunArtifacts
    from ..credentials import AuthCredential, BaseCredentialService
    from ..memory import BaseMemoryService
    from ..models import ContextCacheConfig
    from ..runners._compactor import Compactor
    from ..sessions import PendingCall
    from ..sessions._state import Write
    from ..sessions._state_schema import StateSchemas
    from ..tools._limits import ToolLimits
    from ._replay import Replayer

__all__ = ["Invocation", "Program", "Services"]


class Services(NamedTuple):
    """What the contexts of a run can ask for, beside its session; None is what the runner was not given."""

    artifact: BaseArtifactService | None = None
    memory: BaseMemoryService | None = None
    credential: BaseCredentialService | None = None


class Program(NamedTuple):
    """What all runs of one Runner share."""

    tree: AgentTree
    plugins: PluginHooks
    prompts: Prompts
    services: Services
    tool_limits: ToolLimits
    env: Env
    cleanup_timeout_s: float
    """How long a cleanup hook may take once its run is cancelled, in seconds."""
    compactor: Compactor | None
    """Makes summaries; None: there are none."""
    nodes: Callable[[], ModuleType]
    """Loads what runs nodes for contexts."""
    messages: Callable[[], ModuleType]
    """Loads what sends messages into runs, and takes them there."""
    cache_config: ContextCacheConfig | None
    """What requests say of caching; None: nothing."""
    schemas: StateSchemas | None
    """What the session's own state may hold; None: anything."""


class Invocation:
    """What all contexts of one invocation share, in one run of it. Not for applications."""

    __slots__ = (
        "budgets", "commit_watchers", "committer", "deps", "due_at", "emitter", "end_invocation", "ended", "env",
        "failures", "history", "id", "ids", "inside", "live", "memo", "program", "replayer", "run_artifacts",
        "run_config", "run_id", "secrets", "silent_readers", "status", "tool_events", "user_content", "values",
    )

    def __init__(
        self, program: Program, invocation_id: str, message: Event, writer: SessionWriter, run_config: RunConfig,
        temp: Mapping[str, Any],
    ) -> None:  # fmt: skip
        live = writer.live
        self.program = program
        self.id = invocation_id
        self.run_id = message.id or ""
        """The id of the message that this run begins with; the invocation may go on in several runs."""
        self.run_config = run_config
        self.env = program.env
        self.live = live
        self.history = History(
            live, run_config.get_session_config, program.prompts, compacts=program.compactor is not None
        )
        self.values = live.values.with_temp()
        self.values.temp.update(temp)
        self.user_content = message.content
        self.deps: Any = None
        self.due_at: float | None = None
        """What is due until then is due, whatever the clock says."""
        self.committer = Committer(writer, invocation_id, run_config.partial_buffer)
        self.emitter: Emitter = LIVE
        self.replayer: Replayer | None = None  # the emitter, if the invocation is resumed
        self.ids = Ids(invocation_id)
        self.budgets = Budgets(run_config)
        self.secrets: NoSecrets = NO_SECRETS
        self.failures = Failures()
        self.commit_watchers: list[Callable[[Event], None]] = []
        self.tool_events: dict[str, Event] = {}
        """By id: what tools have said in this run, and the steps; a call that is attempted again finds them."""
        self.inside: frozenset[str] = frozenset()  # as other sets here: an empty one takes no room
        """The calls that have agents inside, which may have left something open."""
        self.silent_readers: tuple[Reads, ...] = ()
        """Of agents that have ended without a word about what they have read: the next event carries it."""
        self.memo: dict[Any, Any] = {}  # what is worked out once in a run
        self.end_invocation = False
        self.status = InvocationStatus.RUNNING  # what the hooks at the end are told; `interrupted` once it is stopped
        self.ended = ""  # why nothing can be emitted any more
        self.run_artifacts: RunArtifacts | None = None
        """The artifacts, once somebody has asked for them."""

    def begin_with(self, message: Event) -> None:
        """Take note of the stored message that the invocation begins with."""
        self.user_content = message.content
        self.history.begin_with(message)

    def resume(self, seq: int, *, was_paused: bool) -> None:
        """Go on with the invocation whose message stands at *seq*; the session is loaded from there on."""
        from ._replay import Replayer  # few runs resume an invocation

        replayer = self.emitter = self.replayer = Replayer(self.id, self.live, seq, was_paused=was_paused)
        count_recorded(self.budgets, replayer.record.events, replayer.record.responses)
        self.inside |= replayer.record.inside
        self.ids.claimed.update(dict.fromkeys(replayer.record.tried_again.questions, ("", 0)))
        self.ids.failed_steps |= set(replayer.record.tried_again.steps)
        self.begin_with(replayer.record.events[0])

    def reads_of(self, path: str) -> Reads:
        """What the logic on *path* reads is recorded in this; while it is replayed, it is served what it has read."""
        return Reads(path, {} if self.replayer is None else self.replayer.reads.get(path, {}))

    async def in_thread(self, call: Callable[[], Any], on_cancel: Callable[[LateOutcome], None]) -> Any:
        """Run *call* in one of the worker threads of the runner; see `_threads`."""
        threads, grace_s = self.program.tool_limits.threads, self.run_config.thread_grace_s
        on_abandoned = self.failures.count_abandoned
        return await in_thread(self.env, call, on_cancel, threads=threads, grace_s=grace_s, on_abandoned=on_abandoned)

    def know_secret(self, credential: AuthCredential) -> None:
        """Keep what *credential* holds out of all that is said from here on."""
        from ..credentials._secrets import Secrets  # few runs are given any

        if not isinstance(self.secrets, Secrets):
            self.secrets = Secrets()
        self.secrets.know(credential)

    def check_write(self, key: object, value: Any) -> None:
        """Raise if nothing is written any more, or a secret is in a key of the state or in what is written there."""
        if self.ended:
            raise InvocationEndedError(self.ended)
        self.secrets.check_write(key, value)

    def keep_temp(self, writes: Mapping[str, Write]) -> None:
        """Apply writes to `temp:` keys."""
        from ..sessions._temp import keep_temp  # few programs write any

        keep_temp(self.values, writes)

    # --- calls and questions

    def open_calls(self) -> list[OpenCall]:
        """The calls of this invocation that have no response."""
        return [call for call in self.live.open_calls.values() if call.invocation_id == self.id]

    @property
    def waits(self) -> bool:
        """Whether a question of this invocation is open."""
        return any(call.pending == "waits" for call in self.open_calls())

    def pending(self) -> list[PendingCall]:
        """The open questions of this invocation, oldest first."""
        from ..sessions._pending import pending_calls  # few callers ask for them

        return pending_calls(self.live, self.open_calls())

    def has_call(self, call_id: str) -> bool:
        """Whether the session, or this invocation, has a call of this id."""
        return call_id in self.live.call_ids or call_id in self.ids.call_ids

    # --- artifacts

    @property
    def artifacts(self) -> RunArtifacts:
        """
        The artifacts of the session, as this run sees them.

        Raises:
            ServiceNotConfiguredError: The runner has no artifact service.
        """
        if self.run_artifacts is None:
            from ..artifacts._run import artifacts_of  # few runs use artifacts

            service, sessions = self.program.services.artifact, self.committer.session_service
            self.run_artifacts = artifacts_of(service, self.live, sessions)
        return self.run_artifacts
