"""Hypothesis strategies for minirun's values: JSON, content, events."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from minirun import Content, Event, EventActions, Part
from minirun.events import NodeInfo, RecordedFailure, RecordedStep, Replay
from minirun.types import (
    Blob,
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Transcription,
    UsageMetadata,
)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.one_of(st.integers(-3, 3), st.integers(), st.integers(-(10**40), 10**40))
scalars = st.one_of(st.none(), st.booleans(), numbers, st.floats(allow_nan=False, allow_infinity=False), texts)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=10,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)

names = st.sampled_from(["a", "agent", "ß", "x y"])
ids = st.text("abcXYZ019_-", min_size=1, max_size=40)
flags = st.sampled_from([None, False, True])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """None in half of the cases."""
    return st.none() | strategy


def unknown() -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a later version, in a few of the cases."""
    fields = st.dictionaries(st.sampled_from(["later", "unknown_fields", "x"]), json_values, min_size=1)
    return st.one_of(st.just({}), st.just({}), fields)


media = st.one_of(
    st.builds(lambda data: Part(inline_data=Blob(data=data, mime_type="image/png")), st.binary(max_size=5)),
    st.builds(lambda uri: Part(file_data=FileData(file_uri=uri)), texts),
)
payloads = st.one_of(
    st.builds(dict, text=texts),
    st.builds(dict, text=texts, thought=flags, thought_signature=maybe(st.binary(max_size=5))),
    st.builds(
        dict,
        inline_data=st.builds(
            Blob, data=st.binary(max_size=9), mime_type=texts, display_name=maybe(texts), unknown_fields=unknown()
        ),
    ),
    st.builds(dict, file_data=st.builds(FileData, file_uri=texts, mime_type=maybe(texts), unknown_fields=unknown())),
    st.builds(
        dict,
        function_call=st.builds(
            FunctionCall, name=names, args=json_objects, id=ids, args_text=maybe(texts), unknown_fields=unknown()
        ),
    ),
    st.builds(
        dict,
        function_response=st.builds(
            FunctionResponse,
            name=names,
            response=json_objects,
            id=ids,
            parts=st.lists(media, max_size=2),
            unknown_fields=unknown(),
        ),
    ),
    st.builds(dict, executable_code=st.builds(ExecutableCode, code=texts, language=maybe(texts))),
    st.builds(dict, code_execution_result=st.builds(CodeExecutionResult, outcome=maybe(texts), output=maybe(texts))),
    st.builds(dict, unknown_fields=st.just({"hologram": 1}), thought=flags),
)
parts = st.builds(lambda payload, more: Part(**{"unknown_fields": more, **payload}), payloads, unknown())
contents = st.builds(
    Content, parts=st.lists(parts, max_size=3), role=maybe(st.sampled_from(["user", "model"])), unknown_fields=unknown()
)
records = st.builds(lambda count, *items: [count, *items], st.integers(0, 9), st.tuples(st.integers(0, 9), json_values))
replays = st.builds(
    Replay,
    step=maybe(st.builds(RecordedStep, name=texts, path=texts, unknown_fields=unknown())),
    failed=maybe(st.builds(RecordedFailure, type=texts, args=maybe(st.lists(json_values, max_size=2)))),
    asked_by=maybe(texts),
    early=flags,
    was_paused=flags,
    at_work=flags,
    alone=st.lists(texts, max_size=2),
    asked=flags,
    again=maybe(texts),
    sent=maybe(texts),
    hides=maybe(texts),
    aside=flags,
    saves=st.dictionaries(texts, st.integers(0, 9), max_size=2),
    ended=maybe(texts),
    attempt=maybe(json_objects),
    reads=st.dictionaries(texts, st.dictionaries(texts, records, max_size=2), max_size=2),
    unknown_fields=unknown(),
)
actions = st.builds(
    EventActions,
    state_delta=json_objects,
    state_removed=st.lists(texts, max_size=2),
    state_ops=json_objects,
    state_conflicts=st.lists(texts, max_size=2),
    suspended_calls=st.lists(texts, max_size=2),
    replay=st.one_of(st.just({}), st.just({}), replays),
    artifact_delta=json_objects,
    artifact_versions=json_objects,
    transfer_to_agent=maybe(texts),
    escalate=flags,
    skip_summarization=flags,
    end_invocation=flags,
    requested_auth_configs=json_objects,
    requested_tool_confirmations=json_objects,
    compaction=maybe(json_objects),
    rewind_before_invocation_id=maybe(texts),
    rewind_before_seq=maybe(st.integers(-5, 10**6)),
    agent_state=maybe(json_objects),
    end_of_agent=flags,
    route=json_values,
    render_ui_widgets=json_values,
    unknown_fields=unknown(),
)
transcriptions = st.builds(Transcription, text=maybe(texts), finished=flags, unknown_fields=unknown())
events = st.builds(
    Event,
    id=maybe(ids),
    invocation_id=maybe(ids),
    author=maybe(names),
    seq=maybe(st.integers(0, 10**6)),
    timestamp=maybe(st.floats(allow_nan=False, allow_infinity=False)),
    content=maybe(contents),
    actions=actions,
    branch=maybe(texts),
    partial=flags,
    turn_complete=flags,
    finish_reason=maybe(texts),
    error_code=maybe(texts),
    error_message=maybe(texts),
    interrupted=flags,
    long_running_tool_ids=maybe(st.sets(ids, max_size=2)),
    output=json_values,
    node_info=maybe(
        st.builds(
            NodeInfo,
            path=texts,
            output_for=maybe(st.lists(texts, max_size=2)),
            message_as_output=flags,
            unknown_fields=unknown(),
        )
    ),
    usage_metadata=maybe(st.builds(UsageMetadata, total_token_count=maybe(numbers), unknown_fields=unknown())),
    custom_metadata=maybe(json_objects),
    model_version=maybe(texts),
    grounding_metadata=maybe(json_objects),
    citation_metadata=maybe(json_objects),
    partial_output=st.none(),  # only partial events have one
    input_transcription=maybe(transcriptions),
    output_transcription=maybe(transcriptions),
    live=maybe(json_objects),
    unknown_fields=unknown(),
)
