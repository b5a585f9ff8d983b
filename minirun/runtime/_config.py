"""How one run behaves: `RunConfig`. Every field has an effect; the documented ones that would not are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal

import attrs

from .._json import COUNT_MAX, brief, freeze, is_count, is_seconds
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


# Fields of the ADK documents that do not work here yet.
_NOT_SUPPORTED = frozenset(
    {
        "avatar_config", "context_window_compression", "input_audio_transcription", "output_audio_transcription",
        "realtime_input_config", "response_modalities", "save_input_blobs_as_artifacts", "save_live_audio",
        "save_live_blob", "session_resumption", "speech_config", "support_cfc", "tool_thread_pool_config",
    }
)


def _setting(default: object, expected: str, fits: Callable[[Any], bool]) -> Any:
    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not fits(value):
            raise _wrong(attribute.name, expected, value)

    return attrs.field(default=default, validator=check)


def _wrong(name: str, expected: str, found: object) -> ConfigurationError:
    return ConfigurationError(f"RunConfig.{name}: expected {expected}, found {brief(found)}")


def _limit(default: int) -> int:
    limit: int = _setting(default, "an integer", lambda value: is_count(value, -COUNT_MAX))
    return limit


def _metadata(value: Mapping[str, object] | None) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise _wrong("custom_metadata", "a mapping, or None", value)
    frozen: Mapping[str, Any] = freeze(dict(value or {}), "custom_metadata")
    return frozen


@attrs.frozen(kw_only=True, eq=False, repr=False)
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

    streaming_mode: StreamingMode = _setting(
        StreamingMode.NONE, "a StreamingMode", lambda value: isinstance(value, StreamingMode)
    )
    max_llm_calls: int = _limit(500)
    max_tool_calls: int = _limit(1000)
    max_transfers: int = _limit(50)
    max_tokens: int = _limit(0)
    deadline_s: float | None = _setting(
        3600.0, "seconds above 0, or None", lambda value: value is None or is_seconds(value, above=0)
    )
    thread_grace_s: float = _setting(10.0, "seconds from 0 up", is_seconds)
    custom_metadata: Mapping[str, Any] = attrs.field(default=None, converter=_metadata)
    get_session_config: GetSessionConfig | None = _setting(
        None, "a GetSessionConfig", lambda value: isinstance(value, GetSessionConfig | None)
    )
    on_busy: Literal["wait", "reject"] = _setting("wait", "'wait' or 'reject'", ("wait", "reject").__contains__)
    partial_buffer: int = _setting(16, "an integer above 0", lambda value: is_count(value, 1))

    def __new__(cls, **settings: object) -> RunConfig:
        for name in settings.keys() - attrs.fields_dict(cls).keys():
            if name in _NOT_SUPPORTED:
                raise NotSupportedError(f"RunConfig.{name} has no effect in this version of minirun; leave it out")
            known = ", ".join(attrs.fields_dict(cls))
            raise TypeError(f"RunConfig has no field {name!r}; it has {known}")
        if settings.get("streaming_mode") is StreamingMode.BIDI:
            msg = "StreamingMode.BIDI has no effect in this version of minirun; use NONE or SSE"
            raise NotSupportedError(msg)
        return super().__new__(cls)


# What `help` and editors show: `__new__` takes anything, to say what of it is not one of the fields.
_fields = list(inspect.signature(RunConfig.__init__).parameters.values())[1:]
RunConfig.__signature__ = inspect.Signature(_fields)  # type: ignore[attr-defined]  # read by `inspect.signature`
