"""How one run behaves: `RunConfig`. Every field has an effect; the documented ones that would not are refused."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

import attrs

from .._json import freeze
from .._record import Record
from ..errors import ConfigurationError, NotSupportedError
from ..sessions import GetSessionConfig

__all__ = ["RunConfig", "StreamingMode"]


class StreamingMode(Enum):
    """Whether the caller also gets a model's answer in fragments, as it comes."""

    NONE = None
    SSE = "sse"
    BIDI = "bidi"
    """Not supported by this version."""


@attrs.frozen(init=False, kw_only=True, eq=False, repr=False)
class RunConfig(Record):
    """
    Settings of one run.

    Args:
        streaming_mode: `SSE` adds partial events, which are shown and never stored.
        max_llm_calls: How often the invocation may ask models; 0 or less: no limit.
        max_tool_calls: How many function calls it may make; 0 or less: no limit.
        max_transfers: How often its agents may hand over to each other; 0 or less: no limit.
        max_tokens: How many tokens its models may use, as they tell: once it is as many, none is asked again. 0 or
            less: no limit.
        deadline_s: How long the run may take, in seconds, the time its caller holds events included; None: no limit.
        thread_grace_s: How long the thread of a synchronous tool is waited for after a cancellation, in seconds.
        custom_metadata: Merged under every event's own.
        get_session_config: Which events of the history the run sees, by default all that no summary covers; the state
            is always complete. Models of an app with an `events_compaction_config` are always told the whole history,
            in part as a summary.
        on_busy: What to do while another run writes the session: `"wait"` for it or `"reject"` with SessionBusyError.
        partial_buffer: How many partial events may be unread before the model is held back.

    Raises:
        NotSupportedError: For a documented field or value that would have no effect in this version.
    """

    streaming_mode: StreamingMode
    max_llm_calls: int
    max_tool_calls: int
    max_transfers: int
    max_tokens: int
    deadline_s: float | None
    thread_grace_s: float
    custom_metadata: Mapping[str, Any]
    get_session_config: GetSessionConfig | None
    on_busy: Literal["wait", "reject"]
    partial_buffer: int

    def __init__(
        self,
        *,
        streaming_mode: StreamingMode = StreamingMode.NONE,
        max_llm_calls: int = 500,
        max_tool_calls: int = 1000,
        max_transfers: int = 50,
        max_tokens: int = 0,
        deadline_s: float | None = 3600.0,
        thread_grace_s: float = 10.0,
        custom_metadata: Mapping[str, object] | None = None,
        get_session_config: GetSessionConfig | None = None,
        on_busy: Literal["wait", "reject"] = "wait",
        partial_buffer: int = 16,
        **others: object,
    ) -> None:
        for name in others:
            from .._adk import refusal  # nothing of the kind is given by programs that run

            raise refusal("RunConfig", name, [field.name for field in attrs.fields(RunConfig)])
        if streaming_mode is StreamingMode.BIDI:
            msg = "StreamingMode.BIDI has no effect in this version of minirun; use NONE or SSE"
            raise NotSupportedError(msg)
        _check(isinstance(streaming_mode, StreamingMode), "streaming_mode", "a StreamingMode", streaming_mode)
        _check(_is_int(max_llm_calls), "max_llm_calls", "an integer", max_llm_calls)
        _check(_is_int(max_tool_calls), "max_tool_calls", "an integer", max_tool_calls)
        _check(_is_int(max_transfers), "max_transfers", "an integer", max_transfers)
        _check(_is_int(max_tokens), "max_tokens", "an integer", max_tokens)
        _check(deadline_s is None or _is_positive(deadline_s), "deadline_s", "seconds above 0, or None", deadline_s)
        _check(_is_positive(thread_grace_s, 0), "thread_grace_s", "seconds from 0 up", thread_grace_s)
        _check(on_busy in ("wait", "reject"), "on_busy", "'wait' or 'reject'", on_busy)
        _check(_is_int(partial_buffer) and partial_buffer > 0, "partial_buffer", "an integer above 0", partial_buffer)
        _check(
            get_session_config is None or isinstance(get_session_config, GetSessionConfig),
            "get_session_config",
            "a GetSessionConfig",
            get_session_config,
        )
        self.__attrs_init__(
            streaming_mode=streaming_mode,
            max_llm_calls=max_llm_calls,
            max_tool_calls=max_tool_calls,
            max_transfers=max_transfers,
            max_tokens=max_tokens,
            deadline_s=deadline_s,
            thread_grace_s=thread_grace_s,
            custom_metadata=freeze(dict(custom_metadata or {}), "custom_metadata"),
            get_session_config=get_session_config,
            on_busy=on_busy,
            partial_buffer=partial_buffer,
        )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object, least: float = 1e-9) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least


def _check(fits: bool, name: str, expected: str, found: object) -> None:
    if not fits:
        raise ConfigurationError(f"RunConfig.{name}: expected {expected}, found {found!r:.80}")
