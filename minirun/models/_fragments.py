"""What the fragments of an answer add up to."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Content, Part
from ._base import LlmResponse

__all__ = ["joined"]


def joined(responses: Sequence[LlmResponse]) -> LlmResponse:
    """The one complete response: adjoining texts of one kind become one part; the rest is that of the last fragment."""
    parts: list[Part] = []
    for part in (part for response in responses if response.content for part in response.content.parts):
        before = parts[-1] if parts else None
        if before is not None and before.text is not None and part.text is not None and before.thought == part.thought:
            parts[-1] = Part(text=before.text + part.text, thought=part.thought)
        else:
            parts.append(part)
    last = responses[-1]
    return LlmResponse(
        content=Content(role="model", parts=parts),
        finish_reason=last.finish_reason,
        usage_metadata=last.usage_metadata,
        error_code=last.error_code,
        error_message=last.error_message,
        custom_metadata=last.custom_metadata,
    )
