"""The planner that uses a model's own thinking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._arguments import refuse_unknown
from ..errors import InvalidValueError
from ..types import GenerateContentConfig, ThinkingConfig

__all__ = ["BuiltInPlanner"]


@refuse_unknown
class BuiltInPlanner:
    """
    Sets the `thinking_config` of all requests of an agent: `LlmAgent(planner=BuiltInPlanner(...))`.

    Args:
        thinking_config: A ThinkingConfig, or a dict of its fields.

    Raises:
        InvalidValueError: *thinking_config* is neither.
    """

    def __init__(self, *, thinking_config: ThinkingConfig | Mapping[str, Any]) -> None:
        found = GenerateContentConfig(thinking_config=thinking_config).thinking_config
        if found is None:
            raise InvalidValueError("BuiltInPlanner.thinking_config", "expected a ThinkingConfig, found None")
        self.thinking_config: ThinkingConfig = found
