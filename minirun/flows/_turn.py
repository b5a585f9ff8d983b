"""
A turn with a model, as a table.

      ┌ invalid (the answer has not the form that was asked for, a hook has not taken it for one, or its code was run)
      ▼ │
    ASKING ── text ──► DONE
      │ ▲                ▲
    calls └ responses    │ final (a tool has said that its answer is the answer, or who takes over)
      ▼         │        │
    CALLING ────┴────────┘

The driver (`agents/_llm.py`) does what a state says and reports what came of it; `step` says what is next. An input
that a state does not know is a bug of the driver and changes nothing.
"""

from __future__ import annotations

from enum import Enum, auto

from ..events import Event

__all__ = [
    "CUT_OFF", "INVALID_OUTPUT", "REFUSED_OUTPUT", "SET_MODEL_RESPONSE", "TRANSITIONS", "Input", "Turn", "input_of",
    "step",
]  # fmt: skip

SET_MODEL_RESPONSE = "set_model_response"
"""The tool that a model gives its answer with, where it cannot be told the form otherwise."""


CUT_OFF = "MAX_TOKENS"
"""The `finish_reason` of an answer that the limit of tokens has cut off. No call in it is made: one may be half."""

INVALID_OUTPUT = "INVALID_OUTPUT"
"""The `error_code` of an answer that has not the form of the agent's `output_schema`."""

REFUSED_OUTPUT = "REFUSED_OUTPUT"
"""The `error_code` of an answer that the agent's `output_validator` has refused."""


class Turn(Enum):
    """What the driver does now."""

    ASKING = auto()
    """Ask the model, and emit what it says."""
    CALLING = auto()
    """Run the calls of the event just emitted, and emit their responses."""
    DONE = auto()


class Input(Enum):
    """What came of it."""

    TEXT = auto()
    INVALID = auto()
    CALLS = auto()
    RESPONSES = auto()
    FINAL = auto()
    END = auto()
    """Somebody has set `end_invocation`."""


TRANSITIONS: dict[Turn, dict[Input, Turn]] = {
    Turn.ASKING: {Input.TEXT: Turn.DONE, Input.INVALID: Turn.ASKING, Input.CALLS: Turn.CALLING, Input.END: Turn.DONE},
    Turn.CALLING: {Input.RESPONSES: Turn.ASKING, Input.FINAL: Turn.DONE, Input.END: Turn.DONE},
    Turn.DONE: {},
}


def step(state: Turn, what: Input) -> Turn:
    """Return what follows *state* when *what* has happened."""
    following = TRANSITIONS[state].get(what)
    assert following is not None, f"{what} cannot happen while {state}"
    return following


def input_of(event: Event) -> Input:
    """Say what an emitted event means for the turn."""
    content, actions = event.content, event.actions
    if content is None or not any(content.calls_and_responses):
        return Input.TEXT
    if not content.responses:
        return Input.CALLS
    return Input.FINAL if actions.skip_summarization or actions.transfer_to_agent else Input.RESPONSES
