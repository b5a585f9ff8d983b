"""What a caller is told of a run: what its models have used, and its answer as the type that was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from ..events import Event
from ..types import UsageMetadata
from ._schema import reader_of

__all__ = ["total_usage", "typed_output"]

_COUNTS = tuple(field.name for field in attrs.fields(UsageMetadata) if field.name.endswith("_token_count"))


def total_usage(usages: Iterable[UsageMetadata]) -> UsageMetadata:
    """Return the sums of what models say they have used; None for what none of them has counted."""
    sums: dict[str, Any] = {}
    for usage in usages:
        for name in _COUNTS:
            count = getattr(usage, name)
            if count is not None:
                sums[name] = sums.get(name, 0) + count
    return UsageMetadata(**sums)


def typed_output(answer: Event | None, agent: object) -> Any:
    """
    Return the `output` of an answer of *agent*: as an instance of its `output_schema`, if that is a class.

    The value itself, if it is no type but a JSON schema, or none that fits: a callback may have said something else.
    None where there is no answer.
    """
    value = None if answer is None else answer.output
    schema = getattr(agent, "output_schema", None)
    if value is None or schema is None or isinstance(schema, dict):
        return value
    made, problems = reader_of(schema, "output_schema").read(value)
    return value if problems else made
