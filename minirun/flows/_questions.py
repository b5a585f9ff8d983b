"""
The calls that nobody has made but the framework: questions to somebody outside, and appointments.

They stand in the log like the calls of models, with the names that the ADK documents give them where they have one, and
are answered like them. Models are not shown them.
"""

from __future__ import annotations

from typing import Any

import attrs

from .._record import Record

__all__ = [
    "GET_USER_CHOICE", "QUESTIONS", "REQUEST_CONFIRMATION", "REQUEST_CREDENTIAL", "REQUEST_INPUT", "REQUEST_MESSAGE",
    "SLEEP_UNTIL", "ToolConfirmation",
]

REQUEST_CONFIRMATION = "adk_request_confirmation"
"""Whether a call may be made: `{"originalFunctionCall": {...}, "toolConfirmation": {...}}`."""
REQUEST_CREDENTIAL = "adk_request_credential"
"""A secret, which the answer does not have: `{"functionCallId": ..., "authConfig": {"credentialKey": ..., ...}}`."""
REQUEST_INPUT = "adk_request_input"
"""Anything: `{"message": ..., "response_schema": ..., "payload": ...}`."""
REQUEST_MESSAGE = "minirun_request_message"
"""What the user says next, in a conversation with an agent: `{"message": what that has said}`."""
SLEEP_UNTIL = "minirun_sleep_until"
"""Nothing, until then: `{"until": seconds since the epoch}`."""

GET_USER_CHOICE = "get_user_choice"
"""The name of a tool, whose calls models make: which of some texts the user wants, `{"options": [...]}`."""

QUESTIONS = frozenset({REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, REQUEST_INPUT, REQUEST_MESSAGE, SLEEP_UNTIL})


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ToolConfirmation(Record):
    """A question whether a tool may do what it was called for, and what somebody has answered."""

    hint: str = ""
    confirmed: bool = False
    payload: Any = None
