"""
What is stored by name, events and contents, to JSON and back; `_coding` says how.
"""

from __future__ import annotations

from typing import Any

from ._coding import from_dict, from_json, to_dict, to_json
from .events import Event
from .types import Content

__all__ = ["content_from_dict", "content_to_dict", "event_from_json", "event_to_dict", "event_to_json"]

event_to_dict = content_to_dict = to_dict
event_to_json = to_json


def event_from_json(line: str | bytes) -> Event:
    """Read an event from its JSON; see `from_json`."""
    return from_json(Event, line)


def content_from_dict(fields: dict[str, Any]) -> Content:
    """Read a content from plain JSON values; see `from_dict`."""
    return from_dict(Content, fields)
