"""How one run behaves: `RunConfig`. Every field has an effect; the documented ones that would not are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import attrs

from .._fields import setting
from .._json import COUNT_MAX, brief, freeze, is_count, is_seconds
from .._record import Record
from ..errors import ConfigurationError
from ..flows._budgets import is_shared
from ..sessions import GetSessionConfig

if TYPE_CHECKING:
    from ..flows._shared_budget import Budget
    from ..models._live_settings import LiveSettings

__all__ = ["DefaultSeconds", "RunConfig", "StreamingMode"]


class StreamingMode(Enum):
    """Whether the caller also gets a model's answer in fragments, as it comes."""

    NONE, SSE = None, "sse"
    BIDI = "bidi"  # as `NONE`, and for live runs only, which are so anyway


class DefaultSeconds(float):
    """A time that nobody has given: a live run does not keep to it. Copies of a RunConfig take it over."""


def _metadata(value: Mapping[str, object] | None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ConfigurationError(f"RunConfig.custom_metadata: expected a mapping, or None, found {brief(value)}")
    frozen: Mapping[str, Any] = freeze(dict(value or {}), "custom_metadata")
    return frozen


def _field(expected: str, fits: Callable[[Any], bool]) -> Any:
    return attrs.field(validator=setting(expected, fits))


def _is_limit(value: object) -> bool:
    return is_count(value, -COUNT_MAX)


@attrs.frozen(init=False, kw_only=True, eq=False, repr=False)
class RunConfig(Record):
    """
    Settings of one run. A documented field that would have no effect in this version is refused (NotSupportedError).

    Args:
        streaming_mode: `SSE` adds partial events, which are shown and never stored.
        max_llm_calls: How often the invocation may ask models; 0 or less: no limit.
        max_tool_calls: How many function calls it may make; 0 or less: no limit.
        max_transfers: How often its agents may hand over to each other; 0 or less: no limit.
        max_node_runs: How often it may run nodes, of workflows or by `ctx.run_node`; 0 or less: no limit.
        max_tokens: How many tokens its models may use, as they tell; then none is asked again. 0 or less: no limit.
        budget: What this run and others may do together; None: only the limits above.
        deadline_s: How long the run may take, in seconds, the time its caller holds events included; None: no limit.
        thread_grace_s: How long the thread of a synchronous tool is waited for after a cancellation, in seconds.
        custom_metadata: Merged under every event's own.
        get_session_config: Which events of the history the run sees, by default all that no summary covers. Models of
            an app with an `events_compaction_config` are always told the whole history, in part as a summary.
        on_busy: What to do while another run writes the session: `"wait"` for it or `"reject"` with SessionBusyError.
        partial_buffer: How many partial events may be unread before the model is held back.
        live: The settings of live runs, whose names are taken here, too; None: none was given.
    """

    streaming_mode: StreamingMode = _field("a StreamingMode", lambda value: isinstance(value, StreamingMode))
    max_llm_calls: int = _field("an integer", _is_limit)
    max_tool_calls: int = _field("an integer", _is_limit)
    max_transfers: int = _field("an integer", _is_limit)
    max_node_runs: int = _field("an integer", _is_limit)
    max_tokens: int = _field("an integer", _is_limit)
    budget: Budget | None = _field("a Budget, or None", is_shared)
    deadline_s: float | None = _field("seconds above 0, or None", lambda s: s is None or is_seconds(s, above=0))
    thread_grace_s: float = _field("seconds from 0 up", is_seconds)
    custom_metadata: Mapping[str, Any] = attrs.field(converter=_metadata)
    get_session_config: GetSessionConfig | None = _field(
        "a GetSessionConfig", lambda value: value is None or isinstance(value, GetSessionConfig)
    )
    on_busy: Literal["wait", "reject"] = _field("'wait' or 'reject'", ("wait", "reject").__contains__)
    partial_buffer: int = _field("an integer above 0", lambda value: is_count(value, 1))
    live: LiveSettings | None

    def __init__(
        self,
        *,
        streaming_mode: StreamingMode = StreamingMode.NONE,
        max_llm_calls: int = 500,
        max_tool_calls: int = 1000,
        max_transfers: int = 50,
        max_node_runs: int = 1000,
        max_tokens: int = 0,
        budget: Budget | None = None,
        deadline_s: float | None = DefaultSeconds(3600.0),
        thread_grace_s: float = 10.0,
        custom_metadata: Mapping[str, object] | None = None,
        get_session_config: GetSessionConfig | None = None,
        on_busy: Literal["wait", "reject"] = "wait",
        partial_buffer: int = 16,
        live: LiveSettings | None = None,
        **others: object,
    ) -> None:
        fields = [field.name for field in attrs.fields(RunConfig)]
        if live is not None or others:
            from ..models._live_settings import settings_of  # few runs are live

            live = settings_of(RunConfig, live, others, fields)
        given = locals()  # the fields by their names, as the signature has them
        self.__attrs_init__(**{name: given[name] for name in fields})
