"""
The event: the one message that everything in a session consists of.

An event says who spoke (`author`), what (`content`) and what changes with it (`actions`). Agents make events; the
runtime completes them (`id`, `invocation_id`, `branch`, `timestamp`), the session service stores them and gives each
its `seq`. A stored event never changes. `seq` is the only order: the clock takes no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import attrs

from ._arguments import refuse_unknown
from ._fields import EMPTY_LIST, FLAG, JSON_VALUE, NAME_SET, NAMES, OBJECT, TEXT, checked, instance_of, integer
from ._json import EMPTY_DICT, JSON, finite, freeze, shown
from ._values import Memoized, Value, constructed, unknown_field
from .errors import InvalidValueError
from .types import Content, FunctionCall, FunctionResponse, Part, Transcription, UsageMetadata

__path__: list[str] = []  # so that the modules are found that ADK has below `events`: see `_adk`

__all__ = ["Event", "EventActions", "NodeInfo"]


def _value_of(cls: Any, value: object, path: str) -> Any:
    """*value*, if it is one of *cls* already, or the one that a dict of its fields stands for."""
    if isinstance(value, cls):
        return value
    if not isinstance(value, dict):
        raise InvalidValueError(path, f"expected a dict, found {type(value).__name__}")
    known, required = _names_of(cls)
    if not required <= value.keys():
        expected, found = sorted(required), sorted(map(str, value))
        raise InvalidValueError(path, f"expected the fields {expected}, found {found}")
    if value.keys() <= known:
        return cls(**value)
    unknown = {name: item for name, item in value.items() if name not in known}
    return cls(**{name: value[name] for name in value if name in known}, unknown_fields=unknown)


@cache
def _names_of(cls: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The fields that a value of *cls* has, and those that must be given."""
    fields = [field for field in attrs.fields(cls) if field.name != "unknown_fields"]
    required = (field.name for field in fields if field.default is attrs.NOTHING)
    return frozenset(field.name for field in fields), frozenset(required)


def _arguments(value: object, path: str) -> JSON:
    if value is not None and not isinstance(value, (list, tuple)):
        raise InvalidValueError(path, f"expected a list or None, found {shown(value)}")
    return freeze(value, path)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class RecordedStep(Value):
    """The step that an event records: its name, and the path of its maker."""

    name: str = attrs.field(metadata=TEXT)
    path: str = attrs.field(metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class RecordedFailure(Value):
    """The exception that a step has raised: its class, as `module:qualname`, and its arguments; None if no JSON."""

    type: str = attrs.field(metadata=TEXT)
    args: Sequence[Any] | None = attrs.field(metadata=checked(_arguments))
    unknown_fields: Mapping[str, Any] = unknown_field()


# Where the level of `Replay.reads` begins, so that a value of the state may be as deep in it as in the state itself.
READS_LEVEL: Final = -2


def _saves(value: object, path: str) -> JSON:
    from ._replay_checks import saves  # few events have notes

    return saves(value, path)


def _reads(value: object, path: str) -> JSON:
    from ._replay_checks import reads

    return reads(value, path, READS_LEVEL)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class Replay(Value):
    """
    What a runtime that runs the agents of an invocation again has to know of an event. Plugins cannot change it.

    Fields that are None, or empty, are not stored; the others are stored in the order in which they stand here.
    """

    step: RecordedStep | None = attrs.field(default=None, metadata=checked(partial(_value_of, RecordedStep)))
    """The event is the result of this step: one of `ctx.step`, a node that failed in a call, a guardrail's verdict."""
    failed: RecordedFailure | None = attrs.field(default=None, metadata=checked(partial(_value_of, RecordedFailure)))
    """The step has raised this."""
    asked_by: str | None = attrs.field(default=None, metadata=TEXT)
    """The event is a question; the path of the agent or tool that asked it."""
    early: bool | None = attrs.field(default=None, metadata=FLAG)
    """It was asked while other recorded events were still ahead."""
    was_paused: bool | None = attrs.field(default=None, metadata=FLAG)
    """
    Of an early question: whether the run before had paused, rather than being cut off. Of another event: the same; and
    its run ended before the agents did anything new, so the next run acts on the reply that it began with.
    """
    at_work: bool | None = attrs.field(default=None, metadata=FLAG)
    """True: the tools of its long-running calls have yet to begin; the calls wait once a later event says so."""
    alone: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=NAMES)
    """The calls that wait for all calls before them in the event, and for which all calls after them wait."""
    asked: bool | None = attrs.field(default=None, metadata=FLAG)
    """
    The event is a model's answer, and whether the model was asked for it: False if a callback has answered in its
    place, so that no budget counts it. True is said in branches only; see `flows._budgets`.
    """
    again: str | None = attrs.field(default=None, metadata=TEXT)
    """The answer was not accepted, and the model was told this."""
    sent: str | None = attrs.field(default=None, metadata=TEXT)
    """
    The user's event was sent into the invocation while it ran. What waits to be taken has when that is to be,
    `"next_model_call"` or `"idle"`; what is stored says when it was: `"idle"` if the agents had come to their end by
    then, and have begun again with it.
    """
    hides: str | None = attrs.field(default=None, metadata=TEXT)
    """
    A guardrail has refused or replaced a message of the user: the id of its event. No prompt shows the message any
    more; this event's content, if there is one, is shown in its place. "": what was asked inside of a call or a node.
    """
    aside: bool | None = attrs.field(default=None, metadata=FLAG)
    """True: the event is detached from its agent's logic, which does not emit it again."""
    ended: str | None = attrs.field(default=None, metadata=TEXT)
    """The event is the outcome of the node run on this path of ids: it has ended with what the event says, or None."""
    attempt: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    """
    An attempt of a node run has failed: `{"run": path of ids, "number": from 1, "due": when the next one begins, in
    seconds since the epoch}`, and what else it says of the failure. Of the user's event by which somebody goes on with
    an invocation that has failed or was cancelled: `{"run": "", "status": how it was left}`.
    """
    saves: Mapping[str, int] = attrs.field(default=EMPTY_DICT, metadata=checked(_saves))
    """
    What a tool saved before it said the event, while its call was open: versions by the id of the save. All versions
    that an event names are `EventActions.named_artifacts`.
    """
    reads: Mapping[str, Mapping[str, Any]] = attrs.field(default=EMPTY_DICT, metadata=checked(_reads))
    """What was read of the state until then: by reader and key, how often, and at which reads the value was new."""
    unknown_fields: Mapping[str, Any] = unknown_field()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded."""
        return self == NO_REPLAY


NO_REPLAY = Replay()


def replay_of(value: Replay | Mapping[str, Any]) -> Replay:
    """
    Return *value*, or what a dict of the form in which it is stored stands for.

    Raises:
        InvalidValueError: It is of another form.
    """
    replay: Replay = _value_of(Replay, value, "EventActions.replay")
    return replay


# Read by hand, which takes less time than cattrs does to compile it for three more classes.
_REPLAY: Final = {"form": "replay", "read": lambda notes, _: replay_of(notes)}


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class EventActions(Memoized):
    """
    What changes when the event is stored.

    The state is changed in this order: `state_removed` (keys deleted), `state_delta` (keys set; None is an ordinary
    value), `state_ops` (`{key: {"add": number}}` or `{key: {"extend": list}}`, applied to whatever value the key has
    when the event is stored). A key stands in one of the three.

    `state_conflicts` names the keys that this event and another writer beside it have set: a tool of the same turn, or
    an agent in another branch of a ParallelAgent. What this event says about them has won, as the later one: that is
    the order of commits and, for what calls of one turn have left to be stored together, that of the calls.

    `end_invocation` says that the invocation was ended by then: a run that resumes it ends there.

    `artifact_delta` names the versions of artifacts that are the newest with this event, `artifact_versions` the others
    that came to be with it: `{"report.md": [3, 4]}`.

    `suspended_calls` names calls that stay open until something else that waits (`Event.long_running_tool_ids`) was
    answered: the call of a tool that has asked its user something, for example.

    `requested_auth_configs` says which credentials the event's questions ask for, by the id of the call that needs one,
    or of the question; `ctx.request_credential` fills it in. It holds no secrets, and is refused without its questions.

    `replay` is for the runtime, when the agents of an invocation are run again to go on with it: what a step was, and
    what an agent's own logic had read of the state. Plugins cannot change it. A dict of the same form becomes a Replay.

    `compaction` is set by runs of an app with an `events_compaction_config`: the event covers those from `start_seq` to
    `end_seq` (places in the log, both inclusive), and `compacted_content` is what models are told of them.

    `route` says where a workflow goes on after a node run; of what is said elsewhere it is refused.

    `rewind_before_invocation_id` and `rewind_before_seq` are set by `Runner.rewind_async`: the events from that `seq`
    on, up to this event, are undone.

    Where an event is emitted with actions of its own and the context has collected some (`ctx.actions`), both go with
    it: a flag that is set in `ctx.actions` wins over the event's, a version of an artifact that the event names wins
    over that in `ctx.actions`.

    To add an action: a field here; one in `ActionsDraft` (`flows/_actions.py`) if programs may set it by `ctx.actions`,
    with its rule over a turn; in `is_only_state` if it names anything; in `credentials/_secrets.py` if it may hold
    text. tests/agents/test_actions.py fails for one that is forgotten.
    """

    state_delta: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    state_removed: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=NAMES)
    state_ops: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    state_conflicts: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=NAMES)
    suspended_calls: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=NAMES)
    replay: Replay = attrs.field(default=NO_REPLAY, converter=replay_of, metadata=_REPLAY)
    artifact_delta: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    artifact_versions: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    transfer_to_agent: str | None = attrs.field(default=None, metadata=TEXT)
    escalate: bool | None = attrs.field(default=None, metadata=FLAG)
    skip_summarization: bool | None = attrs.field(default=None, metadata=FLAG)
    end_invocation: bool | None = attrs.field(default=None, metadata=FLAG)
    requested_auth_configs: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    requested_tool_confirmations: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    compaction: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    rewind_before_invocation_id: str | None = attrs.field(default=None, metadata=TEXT)
    rewind_before_seq: int | None = attrs.field(default=None, metadata=integer())
    agent_state: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    end_of_agent: bool | None = attrs.field(default=None, metadata=FLAG)
    route: JSON = attrs.field(default=None, metadata=JSON_VALUE)
    render_ui_widgets: JSON = attrs.field(default=None, metadata=JSON_VALUE)
    unknown_fields: Mapping[str, Any] = unknown_field()

    @property
    def is_only_state(self) -> bool:
        """
        Whether they refer to nothing outside of themselves, such as a call, an artifact, a credential or other events,
        and hold nothing that is refused: then their writes are all that has to be looked at before they are stored.

        Flags, `transfer_to_agent` and `replay` refer to nothing here: the runtime looks at them itself.
        """
        return self is NO_ACTIONS or not (
            self.suspended_calls
            or self.artifact_delta
            or self.artifact_versions
            or self.requested_auth_configs
            or self.requested_tool_confirmations
            or self.compaction is not None
            or self.rewind_before_invocation_id is not None
            or self.rewind_before_seq is not None
            or self.agent_state
            or self.end_of_agent
            or not (self.route is None and self.render_ui_widgets is None)
        )

    def named_artifacts(self) -> list[tuple[str, Any]]:
        """All versions of artifacts that the event names, each with its name."""
        if not (self.artifact_delta or self.artifact_versions):
            return []
        others = [(name, number) for name, numbers in self.artifact_versions.items() for number in numbers]
        return [*self.artifact_delta.items(), *others]


NO_ACTIONS = EventActions()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class NodeInfo(Value):
    """
    Which run of which agent, or of which node of a workflow, has made the event, as a path: `my_wf@1/billing@2`.

    It is empty where none has: in what users say, and in what earlier versions have stored.
    """

    path: str = attrs.field(metadata=TEXT)
    output_for: Sequence[str] | None = attrs.field(default=None, metadata=NAMES)
    """
    None: said outside of node runs. Else whose outcome the event is, as paths: of none, where it is empty; or of its
    own node run, and second of the outermost workflow around it, if that ends with this outcome.
    """
    message_as_output: bool | None = attrs.field(default=None, metadata=FLAG)
    """True: the text of the event is the output of its node run, as it is of an agent without `output_schema`."""
    unknown_fields: Mapping[str, Any] = unknown_field()

    @property
    def name(self) -> str:
        """The name of the node or agent, without its run."""
        return self.path.rpartition("/")[2].partition("@")[0]

    @property
    def run_id(self) -> str:
        """Which run of the node it was."""
        return self.path.rpartition("/")[2].partition("@")[2]

    @property
    def parent_run_id(self) -> str:
        """Which run it was of what it was run by; empty for what nothing has run."""
        return self.path.rpartition("/")[0].rpartition("@")[2]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said."""
        return self == NO_NODE


NO_NODE = NodeInfo(path="")


def _content(value: object, path: str) -> Content:
    if isinstance(value, str):
        return Content(parts=[Part(text=value)])
    if not isinstance(value, Content):
        raise InvalidValueError(path, f"expected Content or a string, found {type(value).__name__}")
    return value


def _seconds(value: object, path: str) -> float:
    seconds = finite(value)
    if seconds is None:
        raise InvalidValueError(path, f"expected seconds since the epoch, found {shown(value)}")
    return seconds


@refuse_unknown
@constructed
@attrs.frozen(kw_only=True, init=False, weakref_slot=False, eq=False, repr=False)
class Event(Value):
    """
    One thing that was said or done in a session.

    `id`, `seq` and `timestamp` are None until the event is emitted or appended; what the runtime returns has them.
    `Event(author="x", message="hi", state={"k": 1})` is short for the content and for `actions.state_delta`, and
    `route=` for `actions.route`: the route that a node of a workflow takes, a bool, an int, a string or a list of them.
    `timestamp` is in seconds since the epoch; it tells people when, and orders nothing. `model_version` is which model
    has said it, as its provider calls it; `grounding_metadata` and `citation_metadata` are what it says of its sources.
    `partial_output` is what there is of the `output`, in partial events of an agent with an `output_schema`.

    In live runs: `input_transcription` and `output_transcription` say that the content was spoken, and what of it was
    understood; `live` is what else is told of the conversation there, such as `{"item_id": ...}`, by which the model's
    side calls the utterance, or `{"connection": 2, "reason": "go_away"}`, in an event of its own for each connection.
    """

    id: str | None = attrs.field(default=None, metadata=TEXT)
    invocation_id: str | None = attrs.field(default=None, metadata=TEXT)
    author: str | None = attrs.field(default=None, metadata=TEXT)
    seq: int | None = attrs.field(default=None, metadata=integer())
    timestamp: float | None = attrs.field(default=None, metadata=checked(_seconds))
    content: Content | None = attrs.field(default=None, metadata=checked(_content))
    actions: EventActions = attrs.field(default=NO_ACTIONS, metadata=instance_of(EventActions))
    branch: str | None = attrs.field(default=None, metadata=TEXT)
    partial: bool | None = attrs.field(default=None, metadata=FLAG)
    turn_complete: bool | None = attrs.field(default=None, metadata=FLAG)
    finish_reason: str | None = attrs.field(default=None, metadata=TEXT)
    error_code: str | None = attrs.field(default=None, metadata=TEXT)
    error_message: str | None = attrs.field(default=None, metadata=TEXT)
    interrupted: bool | None = attrs.field(default=None, metadata=FLAG)
    long_running_tool_ids: frozenset[str] | None = attrs.field(default=None, metadata=NAME_SET)
    output: JSON = attrs.field(default=None, metadata=JSON_VALUE)
    node_info: NodeInfo = attrs.field(default=NO_NODE, metadata=instance_of(NodeInfo))
    usage_metadata: UsageMetadata | None = attrs.field(default=None, metadata=instance_of(UsageMetadata))
    custom_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    model_version: str | None = attrs.field(default=None, metadata=TEXT)
    grounding_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    citation_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    partial_output: JSON = attrs.field(default=None, metadata=JSON_VALUE)
    input_transcription: Transcription | None = attrs.field(default=None, metadata=instance_of(Transcription))
    output_transcription: Transcription | None = attrs.field(default=None, metadata=instance_of(Transcription))
    live: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    unknown_fields: Mapping[str, Any] = unknown_field()

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
        route: object = None,
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
        model_version: str | None = None,
        grounding_metadata: Mapping[str, object] | None = None,
        citation_metadata: Mapping[str, object] | None = None,
        partial_output: object = None,
        input_transcription: Transcription | None = None,
        output_transcription: Transcription | None = None,
        live: Mapping[str, object] | None = None,
        unknown_fields: Mapping[str, object] = EMPTY_DICT,
    ) -> None:
        if partial_output is not None and not partial:
            raise InvalidValueError("Event.partial_output", "expected None in an event that is not partial")
        if message is not None:
            if content is not None:
                raise InvalidValueError("Event.message", "it is another name of content; give one of the two")
            content = message
        if state is not None and isinstance(actions, EventActions):
            if actions.state_delta:
                raise InvalidValueError("Event.state", "it is short for actions.state_delta; give one of the two")
            fresh = actions is NO_ACTIONS  # the usual case, and evolving takes twice as long
            actions = EventActions(state_delta=state) if fresh else attrs.evolve(actions, state_delta=state)
        if route is not None and isinstance(actions, EventActions):
            from ._routes import with_route  # only nodes of workflows take routes

            actions = with_route(actions, route)
        construct: Any = Event.__attrs_init__  # a subclass may have another one; mypy takes the types of the fields
        construct(
            self, id=id, invocation_id=invocation_id, author=author, seq=seq, timestamp=timestamp, content=content,
            actions=actions, branch=branch, partial=partial, turn_complete=turn_complete, finish_reason=finish_reason,
            error_code=error_code, error_message=error_message, interrupted=interrupted,
            long_running_tool_ids=long_running_tool_ids, output=output,
            node_info=NO_NODE if node_info is None else node_info, usage_metadata=usage_metadata,
            custom_metadata=custom_metadata, model_version=model_version, grounding_metadata=grounding_metadata,
            citation_metadata=citation_metadata, partial_output=partial_output, input_transcription=input_transcription,
            output_transcription=output_transcription, live=live, unknown_fields=unknown_fields,
        )  # fmt: skip

    @property
    def message(self) -> Content | None:
        """The content, by its other name."""
        return self.content

    @property
    def text(self) -> str:
        """The text parts joined, thoughts left out; empty when there are none."""
        return self.content.text if self.content is not None else ""

    @property
    def audio(self) -> bytes:
        """The sound in this event, as the model's side sends it (PCM16); empty when there is none."""
        parts = () if self.content is None else self.content.parts
        blobs = (part.inline_data for part in parts if part.inline_data is not None)
        return b"".join(blob.data for blob in blobs if blob.mime_type.startswith("audio/"))

    def get_function_calls(self) -> list[FunctionCall]:
        """The calls in this event, in order."""
        return [] if self.content is None else list(self.content.calls)

    def get_function_responses(self) -> list[FunctionResponse]:
        """The responses in this event, in order."""
        return [] if self.content is None else list(self.content.responses)

    def is_final_response(self) -> bool:
        """
        Whether the event can be shown as an agent's reply for this turn (the rule of the ADK documents).

        True when `actions.skip_summarization` is set, or when the event makes a call of a long-running tool, or says
        that one waits; else when it is not partial, holds no function call and no function response, does not end in a
        code execution result, and is not the record of a step. So an event that only changes the state is final too,
        and one run may have several: `run.answer` is the answer.

        Of what the node runs of a workflow say, only the outcome is final that the outermost workflow ends with, beside
        the calls that wait (`node_info.output_for`).
        """
        if self.long_running_tool_ids:
            return True
        if self.node_info.output_for is not None:
            return len(self.node_info.output_for) > 1
        if self.actions.skip_summarization:
            return True
        content = self.content
        if self.partial or content is None:
            return not self.partial and self.actions.replay.step is None and self.live is None
        if any(content.calls_and_responses):
            return False
        return not (content.parts and content.parts[-1].code_execution_result is not None)


def seq_of(stored: Event) -> int:
    """Where in its session an event stands, from 1; 0 if it is not stored yet."""
    return stored.seq or 0
