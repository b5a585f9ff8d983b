"""The form of an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from ._schema import schema_for

__all__ = ["Outcome", "OutputSchema"]


@attrs.frozen
class Outcome:
    value: Any = None
    problems: tuple[str, ...] = ()


@attrs.frozen
class OutputSchema:
    schema: Mapping[str, Any]
    tool_parameters: Mapping[str, Any]

    @classmethod
    def of(cls, tp: Any, what: str = "output_schema") -> OutputSchema:
        schema = tp if isinstance(tp, dict) else schema_for(tp)
        return cls(schema, schema)

    def parse_text(self, text: str) -> Outcome:
        try:
            return Outcome(json.loads(text))
        except ValueError as error:
            return Outcome(problems=(str(error),))

    def parse_args(self, args: Mapping[str, Any]) -> Outcome:
        return Outcome(dict(args))

    def dump(self, value: Any) -> str:
        return json.dumps(value)
