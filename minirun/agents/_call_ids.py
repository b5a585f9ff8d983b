"""The ids that a model gives its calls, and whether they can stay."""

from __future__ import annotations

from collections.abc import Callable

from .._json import FrozenTuple
from .._values import changed
from ..sessions._key import CALL_ID
from ..types import Content, Part

__all__ = ["with_usable_ids"]


def with_usable_ids(content: Content, is_known: Callable[[str], bool], taken: set[str]) -> Content:
    """
    Take away the ids of calls that are malformed or were used before; they get new ones when they are emitted.

    Those that stay are added to *taken*.
    """
    parts: list[Part] = []
    seen: set[str] = set()
    is_changed = False
    for part in content.parts:
        call = part.function_call
        if call is not None and call.id is not None:
            if not CALL_ID.fullmatch(call.id) or call.id in seen or is_known(call.id):
                part, is_changed = changed(part, function_call=changed(call, id=None)), True
            else:
                taken.add(call.id)
            seen.add(call.id)
        parts.append(part)
    return changed(content, parts=FrozenTuple(parts)) if is_changed else content
