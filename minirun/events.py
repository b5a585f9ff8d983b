"""
The event: the one message that everything in a session consists of.

An event says who spoke (`author`), what (`content`) and what changes with it (`actions`). Agents make events; the
runtime completes them (`id`, `invocation_id`, `branch`, `timestamp`), the session service stores them and gives each
its `seq`. A stored event never changes. `seq` is the only order: the clock takes no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ._json import EMPTY_DICT, JSON, finite, freeze, shown
from .errors import InvalidValueError
from .types import (
    Content,
    FunctionCall,
    FunctionResponse,
    Part,
    UsageMetadata,
    Value,
    check_flag,
    check_kind,
    frozen_object,
    is_list,
    opened,
    plain_int,
    plain_text,
    text_field,
    unknown_field,
    unknown_field_written_out,
    unknown_object,
)

__all__ = ["Event", "EventActions", "NodeInfo"]


NOTHING: tuple[()] = ()
"""The default of lists, by which it is known that there is nothing to check."""


def _names(value: object, path: str) -> tuple[str, ...]:
    if not is_list(value):
        raise InvalidValueError(path, f"expected a list of strings, found {shown(value)}")
    names = tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise InvalidValueError(path, f"expected strings, found {shown(name)}")
    return tuple(freeze(name, path) for name in names)


@attrs.frozen(kw_only=True, slots=True, init=False, weakref_slot=False, eq=False, repr=False)
class EventActions(Value):
    """
    What changes when the event is stored.

    The state is changed in this order: `state_removed` (keys deleted), `state_delta` (keys set; None is an ordinary
    value), `state_ops` (`{key: {"add": number}}` or `{key: {"extend": list}}`, applied to whatever value the key has
    when the event is stored). A key stands in one of the three.

    `state_conflicts` names the keys that this event and another writer beside it have set: a tool of the same turn, or
    an agent in another branch of a ParallelAgent. What this event says about them has won, as the later one: that is
    the order of commits and, for what calls of one turn have left to be stored together, that of the calls.

    `end_invocation` says that somebody had ended the invocation by then: whoever goes on with it, does not go on.

    `artifact_delta` names the versions of artifacts that are the newest with this event, `artifact_versions` the others
    that came to be with it: `{"report.md": [3, 4]}`.

    `suspended_calls` names calls that stay open until something else that waits (`Event.long_running_tool_ids`) was
    answered: the call of a tool that has asked its user something, for example.

    `requested_auth_configs` says which credentials the event's questions ask for, by the id of the call that needs one,
    or of the question; `ctx.request_credential` fills it in. It holds no secrets, and is refused without its questions.

    `replay` is for the runtime, when the agents of an invocation are run again to go on with it: what a step was, and
    what an agent's own logic had read of the state. Plugins cannot change it.

    `compaction` is set by runs of an app with an `events_compaction_config`: the event covers those from `start_seq` to
    `end_seq` (places in the log, both inclusive), and `compacted_content` is what models are told of them.

    `rewind_before_invocation_id` and `rewind_before_seq` are set by `Runner.rewind_async`: the events from that `seq`
    on, up to this event, are undone.
    """

    state_delta: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    state_removed: Sequence[str] = attrs.field(default=NOTHING, metadata={"json": True})
    state_ops: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    state_conflicts: Sequence[str] = attrs.field(default=NOTHING, metadata={"json": True})
    suspended_calls: Sequence[str] = attrs.field(default=NOTHING, metadata={"json": True})
    replay: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    artifact_delta: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    artifact_versions: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    transfer_to_agent: str | None = None
    escalate: bool | None = None
    skip_summarization: bool | None = None
    end_invocation: bool | None = None
    requested_auth_configs: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    requested_tool_confirmations: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata={"json": True})
    compaction: Mapping[str, Any] | None = attrs.field(default=None, metadata={"json": True})
    rewind_before_invocation_id: str | None = None
    rewind_before_seq: int | None = None
    agent_state: Mapping[str, Any] | None = attrs.field(default=None, metadata={"json": True})
    end_of_agent: bool | None = None
    route: JSON = attrs.field(default=None, metadata={"json": True})
    render_ui_widgets: JSON = attrs.field(default=None, metadata={"json": True})
    unknown_fields: Mapping[str, Any] = unknown_field_written_out()

    def __init__(
        self,
        *,
        state_delta: Mapping[str, object] = EMPTY_DICT,
        state_removed: Iterable[str] = NOTHING,
        state_ops: Mapping[str, object] = EMPTY_DICT,
        state_conflicts: Iterable[str] = NOTHING,
        suspended_calls: Iterable[str] = NOTHING,
        replay: Mapping[str, object] = EMPTY_DICT,
        artifact_delta: Mapping[str, object] = EMPTY_DICT,
        artifact_versions: Mapping[str, object] = EMPTY_DICT,
        transfer_to_agent: str | None = None,
        escalate: bool | None = None,
        skip_summarization: bool | None = None,
        end_invocation: bool | None = None,
        requested_auth_configs: Mapping[str, object] = EMPTY_DICT,
        requested_tool_confirmations: Mapping[str, object] = EMPTY_DICT,
        compaction: Mapping[str, object] | None = None,
        rewind_before_invocation_id: str | None = None,
        rewind_before_seq: int | None = None,
        agent_state: Mapping[str, object] | None = None,
        end_of_agent: bool | None = None,
        route: object = None,
        render_ui_widgets: object = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        if state_delta is not EMPTY_DICT:
            state_delta = frozen_object(state_delta, "state_delta")
        if state_removed is not NOTHING:
            state_removed = _names(state_removed, "state_removed")
        if state_ops is not EMPTY_DICT:
            state_ops = frozen_object(state_ops, "state_ops")
        if state_conflicts is not NOTHING:
            state_conflicts = _names(state_conflicts, "state_conflicts")
        if suspended_calls is not NOTHING:
            suspended_calls = _names(suspended_calls, "suspended_calls")
        if replay is not EMPTY_DICT:
            replay = frozen_object(replay, "replay")
        if artifact_delta is not EMPTY_DICT:
            artifact_delta = frozen_object(artifact_delta, "artifact_delta")
        if artifact_versions is not EMPTY_DICT:
            artifact_versions = frozen_object(artifact_versions, "artifact_versions")
        if transfer_to_agent is not None:
            transfer_to_agent = plain_text(transfer_to_agent, "EventActions.transfer_to_agent")
        if escalate is not None:
            check_flag(escalate, "EventActions.escalate")
        if skip_summarization is not None:
            check_flag(skip_summarization, "EventActions.skip_summarization")
        if end_invocation is not None:
            check_flag(end_invocation, "EventActions.end_invocation")
        if requested_auth_configs is not EMPTY_DICT:
            requested_auth_configs = frozen_object(requested_auth_configs, "requested_auth_configs")
        if requested_tool_confirmations is not EMPTY_DICT:
            requested_tool_confirmations = frozen_object(requested_tool_confirmations, "requested_tool_confirmations")
        if compaction is not None:
            compaction = frozen_object(compaction, "compaction")
        if rewind_before_invocation_id is not None:
            rewind_before_invocation_id = plain_text(
                rewind_before_invocation_id, "EventActions.rewind_before_invocation_id"
            )
        if rewind_before_seq is not None:
            rewind_before_seq = plain_int(rewind_before_seq, "EventActions.rewind_before_seq")
        if agent_state is not None:
            agent_state = frozen_object(agent_state, "agent_state")
        if end_of_agent is not None:
            check_flag(end_of_agent, "EventActions.end_of_agent")
        if route is not None:
            route = freeze(route, "route")
        if render_ui_widgets is not None:
            render_ui_widgets = freeze(render_ui_widgets, "render_ui_widgets")
        cls = type(self)
        if unknown_fields is not EMPTY_DICT:
            unknown_fields = unknown_object(cls, unknown_fields)
        draft = opened(self)
        draft.state_delta = state_delta
        draft.state_removed = state_removed
        draft.state_ops = state_ops
        draft.state_conflicts = state_conflicts
        draft.suspended_calls = suspended_calls
        draft.replay = replay
        draft.artifact_delta = artifact_delta
        draft.artifact_versions = artifact_versions
        draft.transfer_to_agent = transfer_to_agent
        draft.escalate = escalate
        draft.skip_summarization = skip_summarization
        draft.end_invocation = end_invocation
        draft.requested_auth_configs = requested_auth_configs
        draft.requested_tool_confirmations = requested_tool_confirmations
        draft.compaction = compaction
        draft.rewind_before_invocation_id = rewind_before_invocation_id
        draft.rewind_before_seq = rewind_before_seq
        draft.agent_state = agent_state
        draft.end_of_agent = end_of_agent
        draft.route = route
        draft.render_ui_widgets = render_ui_widgets
        draft.unknown_fields = unknown_fields
        draft.__class__ = cls

    def named_artifacts(self) -> list[tuple[str, Any]]:
        """All versions of artifacts that the event names, each with its name."""
        if not (self.artifact_delta or self.artifact_versions):
            return []
        others = [(name, number) for name, numbers in self.artifact_versions.items() for number in numbers]
        return [*self.artifact_delta.items(), *others]


NO_ACTIONS = EventActions()


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, eq=False, repr=False)
class NodeInfo(Value):
    """Which execution of which workflow node made the event, as a path: `my_wf/classify@1/billing@2`."""

    path: str = text_field()
    unknown_fields: Mapping[str, Any] = unknown_field()

    @property
    def name(self) -> str:
        """The node's name, without its run."""
        return self.path.rpartition("/")[2].partition("@")[0]

    @property
    def run_id(self) -> str:
        """Which run of the node it was."""
        return self.path.rpartition("/")[2].partition("@")[2]


def _content(value: object) -> Content:
    if isinstance(value, str):
        return Content(parts=[Part(text=value)])
    if not isinstance(value, Content):
        raise InvalidValueError("Event.content", f"expected Content or a string, found {type(value).__name__}")
    return value


def _seconds(value: object) -> float:
    seconds = finite(value)
    if seconds is None:
        raise InvalidValueError("Event.timestamp", f"expected seconds since the epoch, found {shown(value)}")
    return seconds


@attrs.frozen(kw_only=True, slots=True, weakref_slot=False, init=False, eq=False, repr=False)
class Event(Value):
    """
    One thing that was said or done in a session.

    `id`, `seq` and `timestamp` are None until the event is emitted or appended; what the runtime returns has them.
    `Event(author="x", message="hi", state={"k": 1})` is short for the content and for `actions.state_delta`.
    `timestamp` is in seconds since the epoch; it tells people when, and orders nothing.
    """

    id: str | None = None
    invocation_id: str | None = None
    author: str | None = None
    seq: int | None = None
    timestamp: float | None = None
    content: Content | None = None
    actions: EventActions = NO_ACTIONS
    branch: str | None = None
    partial: bool | None = None
    turn_complete: bool | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    interrupted: bool | None = None
    long_running_tool_ids: frozenset[str] | None = attrs.field(default=None, metadata={"set": True})
    output: JSON = attrs.field(default=None, metadata={"json": True})
    node_info: NodeInfo | None = None
    usage_metadata: UsageMetadata | None = None
    custom_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata={"json": True})
    unknown_fields: Mapping[str, Any] = unknown_field_written_out()

    def __init__(
        self,
        *,
        id: str | None = None,
        invocation_id: str | None = None,
        author: str | None = None,
        seq: int | None = None,
        timestamp: float | None = None,
        content: Content | str | None = None,
        message: Content | str | None = None,
        actions: EventActions = NO_ACTIONS,
        state: Mapping[str, object] | None = None,
        branch: str | None = None,
        partial: bool | None = None,
        turn_complete: bool | None = None,
        finish_reason: str | None = None,
        error_code: str | None = None,
        error_message: str | None = None,
        interrupted: bool | None = None,
        long_running_tool_ids: Iterable[str] | None = None,
        output: object = None,
        node_info: NodeInfo | None = None,
        usage_metadata: UsageMetadata | None = None,
        custom_metadata: Mapping[str, object] | None = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        if message is not None:
            if content is not None:
                raise InvalidValueError("Event.message", "it is another name of content; give one of the two")
            content = message
        if not isinstance(actions, EventActions):
            raise InvalidValueError("Event.actions", f"expected EventActions, found {type(actions).__name__}")
        if state is not None:
            if actions.state_delta:
                raise InvalidValueError("Event.state", "it is short for actions.state_delta; give one of the two")
            fresh = actions is NO_ACTIONS  # the usual case, and evolving takes twice as long
            actions = EventActions(state_delta=state) if fresh else attrs.evolve(actions, state_delta=state)
        if id is not None:
            id = plain_text(id, "Event.id")
        if invocation_id is not None:
            invocation_id = plain_text(invocation_id, "Event.invocation_id")
        if author is not None:
            author = plain_text(author, "Event.author")
        if seq is not None:
            seq = plain_int(seq, "Event.seq")
        if timestamp is not None:
            timestamp = _seconds(timestamp)
        if content is not None:
            content = _content(content)
        if branch is not None:
            branch = plain_text(branch, "Event.branch")
        if partial is not None:
            check_flag(partial, "Event.partial")
        if turn_complete is not None:
            check_flag(turn_complete, "Event.turn_complete")
        if finish_reason is not None:
            finish_reason = plain_text(finish_reason, "Event.finish_reason")
        if error_code is not None:
            error_code = plain_text(error_code, "Event.error_code")
        if error_message is not None:
            error_message = plain_text(error_message, "Event.error_message")
        if interrupted is not None:
            check_flag(interrupted, "Event.interrupted")
        if long_running_tool_ids is not None:
            long_running_tool_ids = frozenset(_names(long_running_tool_ids, "Event.long_running_tool_ids"))
        if output is not None:
            output = freeze(output, "output")
        if node_info is not None:
            check_kind(node_info, "Event.node_info", NodeInfo)
        if usage_metadata is not None:
            check_kind(usage_metadata, "Event.usage_metadata", UsageMetadata)
        if custom_metadata is not None:
            custom_metadata = frozen_object(custom_metadata, "custom_metadata")
        cls = type(self)
        if unknown_fields is not EMPTY_DICT:
            unknown_fields = unknown_object(cls, unknown_fields)
        draft = opened(self)
        draft.id = id
        draft.invocation_id = invocation_id
        draft.author = author
        draft.seq = seq
        draft.timestamp = timestamp
        draft.content = content
        draft.actions = actions
        draft.branch = branch
        draft.partial = partial
        draft.turn_complete = turn_complete
        draft.finish_reason = finish_reason
        draft.error_code = error_code
        draft.error_message = error_message
        draft.interrupted = interrupted
        draft.long_running_tool_ids = long_running_tool_ids
        draft.output = output
        draft.node_info = node_info
        draft.usage_metadata = usage_metadata
        draft.custom_metadata = custom_metadata
        draft.unknown_fields = unknown_fields
        draft.__class__ = cls

    @property
    def message(self) -> Content | None:
        """The content, by its other name."""
        return self.content

    @property
    def text(self) -> str:
        """The text parts joined, thoughts left out; empty when there are none."""
        return self.content.text if self.content is not None else ""

    def get_function_calls(self) -> list[FunctionCall]:
        """The calls in this event, in order."""
        parts = self.content.parts if self.content is not None else ()
        return [part.function_call for part in parts if part.function_call is not None]

    def get_function_responses(self) -> list[FunctionResponse]:
        """The responses in this event, in order."""
        parts = self.content.parts if self.content is not None else ()
        return [part.function_response for part in parts if part.function_response is not None]

    def is_final_response(self) -> bool:
        """
        Whether the event can be shown as an agent's reply for this turn (the rule of the ADK documents).

        True when `actions.skip_summarization` is set or a long-running call waits; else when the event is not
        partial, holds no function call and no function response, and does not end in a code execution result. So an
        event that only changes the state is final too, and one run may have several: `run.answer` is the answer.
        """
        if self.actions.skip_summarization or self.long_running_tool_ids:
            return True
        if self.partial:
            return False
        if self.content is not None and self.content.role == "user" and self.author != "user":
            return False  # an agent has told itself something: what its answer lacks, for example
        parts = self.content.parts if self.content is not None else ()
        if any(part.function_call is not None or part.function_response is not None for part in parts):
            return False
        return not (parts and parts[-1].code_execution_result is not None)
