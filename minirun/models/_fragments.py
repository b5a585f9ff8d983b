"""What the fragments of an answer add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from ..types import Content, Part
from ._base import LlmResponse

__all__ = ["joined", "texts_joined"]


def texts_joined(parts: Iterable[Part]) -> list[Part]:
    """The parts, those together that are texts of one kind and follow each other; a seal keeps its part apart."""
    found: list[Part] = []
    for kind, group in groupby(parts, _kind):
        together = list(group)
        if kind is None or len(together) == 1:
            found += together
        else:
            found.append(Part(text="".join(part.text or "" for part in together), thought=kind[0]))
    return found


def _kind(part: Part) -> tuple[bool | None] | None:
    """What a text says of being a thought; None: the part is more than its text."""
    is_bare = part.text is not None and part == Part(text=part.text, thought=part.thought)
    return (part.thought,) if is_bare else None


def joined(responses: Sequence[LlmResponse]) -> LlmResponse:
    """
    The one complete response: the last one, if it says that it is, or what they say together.

    Then adjoining texts of one kind become one part, and the rest is that of the last fragment.
    """
    if not responses:
        return LlmResponse()
    if responses[-1].partial is False:  # it says that it is complete
        return responses[-1]
    parts = texts_joined(part for response in responses if response.content for part in response.content.parts)
    last = responses[-1]
    return LlmResponse(
        content=Content(role="model", parts=parts),
        finish_reason=last.finish_reason,
        usage_metadata=last.usage_metadata,
        error_code=last.error_code,
        error_message=last.error_message,
        custom_metadata=last.custom_metadata,
        model_version=last.model_version,
        response_id=last.response_id,
        request_id=last.request_id,
        grounding_metadata=last.grounding_metadata,
        citation_metadata=last.citation_metadata,
    )
