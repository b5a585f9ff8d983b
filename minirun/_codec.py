"""
What is stored by name, events and contents, to JSON and back; `_coding` says how.
"""

from __future__ import annotations

from functools import partial

from ._coding import from_dict, from_json, to_dict, to_json
from .events import Event
from .types import Content

__all__ = ["content_from_dict", "content_to_dict", "event_from_json", "event_to_dict", "event_to_json"]

event_to_dict = content_to_dict = to_dict
event_to_json = to_json
event_from_json = partial(from_json, Event)
content_from_dict = partial(from_dict, Content)
