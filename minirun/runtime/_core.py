"""
What all contexts of one invocation share: its budgets, its open calls, and by what its events are known.

An event's id follows from the invocation, from where it is said and from how often something was said there, so it is
the same whenever the agents are run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ..env import Env
from ..errors import (
    InvalidEventError,
    LlmCallsLimitExceededError,
    StorageError,
    TokensLimitExceededError,
    ToolCallsLimitExceededError,
    TransfersLimitExceededError,
)
from ..events import Event
from ..flows._prompts import Prompts
from ..flows._questions import SLEEP_UNTIL
from ..sessions import InvocationStatus, OpenCall
from ..sessions._live import LiveSession
from ..sessions._state import Values
from ..types import Content, Part, UsageMetadata
from ._commits import CommitTimer, CommitWatcher
from ._committer import Committer
from ._config import RunConfig
from ._hooks import PluginHooks
from ._journal import Journal
from ._reads import Reads
from ._secrets import Secrets
from ._services import Services, given

if TYPE_CHECKING:
    from ..artifacts._run import RunArtifacts
    from ..sessions import PendingCall

__all__ = ["InvocationCore", "derived_id"]


def derived_id(*path: object) -> str:
    """An id of 24 letters and digits that depends on nothing but *path*."""
    return blake2b("\x1f".join(map(str, path)).encode(), digest_size=12).hexdigest()


class InvocationCore:
    """What all contexts of one invocation share. Not for applications."""

    def __init__(
        self,
        *,
        invocation_id: str,
        run_id: str,
        live: LiveSession,
        committer: Committer,
        run_config: RunConfig,
        user_content: Content | None,
        env: Env,
        temp: Mapping[str, Any],
        services: Services,
        tool_limits: Any,
        tree: Any,
        prompts: Prompts,
        plugins: PluginHooks,
        cleanup_s: float,
        compacts: bool,
    ) -> None:
        self.invocation_id = invocation_id
        self.run_id = run_id  # of the message that this run begins with; the invocation may go on in several
        self.live = live
        self.committer = committer
        self.run_config = run_config
        self.user_content = user_content
        self.env = env
        self.compacts = compacts  # whether what prompts do not show is in a summary, and nowhere else
        self.start_seq = live.run_start_seq(run_config.get_session_config)
        self.message_seq = live.revision + 1
        self.values: Values = live.values.with_temp()
        self.values.temp.update(temp)
        self.end_invocation = False
        self.status = InvocationStatus.RUNNING  # what the hooks at the end of the run are told
        self.commit_watchers: list[CommitWatcher] = []
        self._failed_in: dict[int, tuple[BaseException, str, str | None]] = {}  # by id, which the object keeps its own
        self.hook_failures: list[BaseException] = []  # what hooks have raised: it fails the run, wherever it was
        self.unrecorded: set[str | None] = set()  # calls that were made, and whose responses could not be stored
        self.late_failures: list[Exception] = []  # of hooks, while what had to be stored was stored
        self.ended = ""  # why nothing can be emitted any more
        self.services = services
        self.memo: dict[Any, Any] = {}  # what is worked out once in a run
        self._artifacts: RunArtifacts | None = None
        self.secrets = Secrets()  # that this run was given
        self.tool_limits = tool_limits  # tools._limits.ToolLimits; this layer does not know it
        self.tree = tree  # agents._tree.AgentTree
        self.prompts = prompts
        self.plugins = plugins
        self.cleanup_s = cleanup_s  # how long cleanup hooks may take once the run is cancelled
        self.due_at: float | None = None  # what is due until then is due, whatever the clock says
        self.journal: Journal | None = None  # of an invocation that is resumed
        self.call_ids: set[str] = set()  # that models have given in this invocation, stored or on their way
        self._counters: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        self.claimed: set[str] = set()  # the ids of the steps and questions that agents have come to
        self.steps: dict[str, Event] = {}  # what records those of this run, and what tools have said, by id
        self.overcome: set[str] = set()  # the ids of steps that have failed in an earlier attempt of their tool
        self._llm_calls = 0
        self._tool_calls = 0
        self._transfers = 0
        self._tokens = 0

    @property
    def artifacts(self) -> RunArtifacts:
        """
        The artifacts of the session, as this run sees them.

        Raises:
            ServiceNotConfiguredError: The runner has no artifact service.
        """
        if self._artifacts is None:
            from ..artifacts._run import RunArtifacts  # few runs use artifacts

            service, key = given(self.services.artifact, "artifact"), self.live.key
            staged = service._shares(self.committer.session_service)
            self._artifacts = RunArtifacts(
                service, key.app_name, key.user_id, key.session_id, staged=staged, past=lambda: self.live.events
            )
        return self._artifacts

    def stored(self, event: Event) -> None:
        """An event of the run is stored."""
        if self._artifacts is not None:
            self._artifacts.named(event.actions)

    async def drop_unnamed(self) -> None:
        """Drop the artifacts that were saved and that no event has named. They are dropped later if that fails."""
        if self._artifacts is not None:
            try:
                await self._artifacts.discard()
            except StorageError:
                return  # a collection finds them

    def begins_with(self, message: Event) -> None:
        """The message of the invocation is stored now."""
        assert message.seq is not None
        self.user_content = message.content
        self.message_seq = message.seq
        self.start_seq = min(self.live.run_start_seq(self.run_config.get_session_config), message.seq)

    @property
    def prompt_seq(self) -> int:
        """The event from which on prompts show the history; what is before it is summed up, or was not asked for."""
        seq = self.live.prompt_seq(whole=self.compacts)
        return self.start_seq if seq is None else seq

    @property
    def opening(self) -> Content | None:
        """What prompts show of what stands before that."""
        summary = self.live.compaction
        if summary is None:
            return None
        return Content(role="user", parts=[Part(text=self.prompts.summary.format(summary=summary.content.text))])

    @property
    def is_through(self) -> bool:
        """Whether the agents have come to their end in an earlier run, which was then cut off: a summary covers it."""
        summary = self.live.compaction
        return self.journal is not None and summary is not None and summary.end_seq >= self.message_seq

    def failed(self, error: BaseException, agent_name: str, branch: str | None) -> None:
        """Note where *error* has left an agent, if it is the first that it leaves."""
        self._failed_in.setdefault(id(error), (error, agent_name, branch))

    def failed_in(self, error: BaseException) -> tuple[str | None, str | None]:
        """The agent that *error* came from, and its branch."""
        _, agent_name, branch = self._failed_in.get(id(error), (error, None, None))
        return agent_name, branch

    def forget_failure(self, error: BaseException) -> None:
        """*error* goes no further."""
        self._failed_in.pop(id(error), None)

    def tell_commit(self, timer: CommitTimer, event: Event) -> None:
        """Tell who watches that *event* is stored. What one raises fails the run at its end: the event stays stored."""
        commit = timer.commit(event)
        for watcher in self.commit_watchers:
            try:
                watcher(commit)
            except Exception as error:
                self.late_failures.append(error)

    def resumes(self, seq: int, *, was_paused: bool) -> None:
        """Go on with the invocation whose message stands at *seq*; the session is loaded from there on."""
        journal = self.journal = Journal(self.invocation_id, self.live, seq, was_paused=was_paused)
        self.begins_with(journal.recorded[0])

    def reads(self, reader: str) -> Reads:
        """What is to be told of all that *reader* reads."""
        return Reads(reader, {} if self.journal is None else self.journal.reads(reader))

    @property
    def waits(self) -> bool:
        """Whether a question of this invocation is open."""
        return any(call.pending == "waits" for call in self.open_calls())

    def open_calls(self) -> list[OpenCall]:
        """The calls of this invocation that have no response."""
        return [call for call in self.live.open_calls.values() if call.invocation_id == self.invocation_id]

    def pending(self) -> list[PendingCall]:
        """The open questions of this invocation."""
        live = self.live
        found = []
        for call in sorted(self.open_calls(), key=lambda call: (call.pending_seq or 0, call.seq)):
            if call.pending == "waits" and call.name != SLEEP_UNTIL:
                from ..sessions._pending import pending_call  # few runs ask something

                asked, mark = (live.events[live.index_of(seq)] for seq in (call.seq, call.pending_seq))
                found.append(pending_call(live.key, call, asked, mark))
        return found

    def count_run(self, path: str) -> int:
        """How often the agent on *path* has been run, now included."""
        count = self._runs[path] = self._runs.get(path, 0) + 1
        return count

    def claim(self, path: str) -> str:
        """The first id below *path* that nobody has claimed; who gives it back makes it the first one again."""
        count = 1
        while (found := derived_id(self.invocation_id, path, count)) in self.claimed:
            count += 1
        self.claimed.add(found)
        return found

    def find(self, event_id: str) -> Event | None:
        """The event of this id: of a step or of a tool, or anything that an earlier run has recorded."""
        recorded = self.steps.get(event_id)
        return self.journal.find(event_id) if recorded is None and self.journal is not None else recorded

    def next_id(self, path: str) -> str:
        """The next id below *path*: the same in every run of the same steps."""
        count = self._counters[path] = self._counters.get(path, 0) + 1
        return derived_id(self.invocation_id, path, count)

    def check_calls(self, event: Event) -> None:
        """Each call is new, each response answers a call that is open: so none is answered twice (promise P6)."""
        live = self.live
        for call in event.get_function_calls():
            if call.id in live.call_ids:
                msg = f"expected a new id for the call of {call.name!r}, found {call.id!r}, which the session has"
                raise InvalidEventError(msg)
        for response in event.get_function_responses():
            call_open = live.open_calls.get(response.id or "")
            if call_open is None or call_open.invocation_id != self.invocation_id:
                msg = f"expected the response of {response.name!r} to answer an open call, found id {response.id!r}"
                raise InvalidEventError(msg)

    def has_call(self, call_id: str) -> bool:
        """Whether the session, or this invocation, has a call of this id."""
        return call_id in self.live.call_ids or call_id in self.call_ids

    def count_llm_call(self) -> None:
        """Count a question to a model, before it is asked."""
        limit = self.run_config.max_llm_calls
        if 0 < limit <= self._llm_calls:
            msg = f"the invocation has asked models {limit} times; raise RunConfig.max_llm_calls, or look for a loop"
            raise LlmCallsLimitExceededError(msg)
        tokens = self.run_config.max_tokens
        if 0 < tokens <= self._tokens:
            msg = f"the models of the invocation have used {self._tokens} tokens, of RunConfig.max_tokens={tokens}"
            raise TokensLimitExceededError(msg)
        self._llm_calls += 1

    def count_tokens(self, usage: UsageMetadata | None) -> None:
        """Count what a model has told it used; the next question is refused when it was too much."""
        if usage is not None:
            parts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
            self._tokens += usage.total_token_count or sum(count or 0 for count in parts)

    def check_transfers_left(self) -> None:
        """Raise if there must be no more transfers."""
        limit = self.run_config.max_transfers
        if 0 < limit <= self._transfers:
            msg = f"the invocation has transferred {limit} times; raise RunConfig.max_transfers, or look for a loop"
            raise TransfersLimitExceededError(msg)

    def count_transfer(self) -> None:
        """Count a transfer, before the event that makes it is stored."""
        self.check_transfers_left()
        self._transfers += 1

    def count_tool_calls(self, calls: int) -> None:
        """Count function calls, before they are made."""
        limit = self.run_config.max_tool_calls
        if 0 < limit < self._tool_calls + calls:
            msg = f"the invocation may call tools {limit} times; raise RunConfig.max_tool_calls, or look for a loop"
            raise ToolCallsLimitExceededError(msg)
        self._tool_calls += calls
