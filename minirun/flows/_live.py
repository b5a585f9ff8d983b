"""
A live conversation, as a table.

                     ┌────────── results ───────────┐
                     ▼                              │
    LISTENING ── asked ──► THINKING ── calls ──► CALLING
      ▲   │                  │                      │
      │   └── piece ─┐ ┌─────┘ piece                │ piece: it speaks meanwhile
      │              ▼ ▼                            │
      └── over ── SPEAKING ── calls ────────────────┘          close: CLOSING, from LISTENING; else it is said
          interrupted                                                 again when that is reached

ASKED is SPEAKING when something else was asked meanwhile; it leads back to THINKING.

Both sides speak when they like, so every input may come in every state; what it means there is what stands here. The
driver (`agents/_live_talk.py`) does what a cell says, from left to right. The model may speak while calls are made, so
an answer can be there to be kept, or cut, in every state. What is heard of the user is stored before
what is said after it: a transcript that comes later says so (`live["before_seq"]`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeAlias

__all__ = ["TABLE", "Do", "Input", "State", "step"]


class State(Enum):
    """Which side has the word."""

    LISTENING = auto()
    THINKING = auto()
    """The model was asked, and has said nothing yet."""
    SPEAKING = auto()
    ASKED = auto()
    """The model speaks, and was asked something else meanwhile: it owes another answer."""
    CALLING = auto()
    """Calls are made whose results the model waits for."""
    CLOSING = auto()
    """Nobody says anything any more: what is open is closed."""


class Input(Enum):
    """What happens."""

    ASKED = auto()  # something was sent that the model is to answer
    PIECE = auto()  # of an answer
    CALLS = auto()
    RESULTS = auto()  # all calls have their responses, and the model has them
    DROPPED = auto()  # all calls have their responses, and the model wants none of the last
    INTERRUPTED = auto()  # the answer, by the user or by the program
    OVER = auto()  # the turn of the model
    LOST = auto()  # the connection
    CLOSE = auto()  # the program sends nothing any more


class Do(Enum):
    """What the driver does."""

    KEEP_HEARD = auto()  # store what the user has said
    BEGIN = auto()  # count an answer
    KEEP = auto()  # store the answer, if there is one
    CUT = auto()  # store as much of the answer as was played
    CALL = auto()  # store the calls, and make them
    TURN = auto()  # count a turn


_S, _D = State, Do
Cell: TypeAlias = tuple[State, tuple[Do, ...]]

TABLE: Final[dict[State, dict[Input, Cell]]] = {
    _S.LISTENING: {
        Input.ASKED: (_S.THINKING, (_D.KEEP_HEARD,)),
        Input.PIECE: (_S.SPEAKING, (_D.BEGIN,)),
        Input.CALLS: (_S.CALLING, (_D.KEEP_HEARD, _D.KEEP, _D.BEGIN, _D.CALL)),
        Input.RESULTS: (_S.LISTENING, ()),  # of calls that nobody waits for
        Input.DROPPED: (_S.LISTENING, ()),
        Input.INTERRUPTED: (_S.LISTENING, (_D.KEEP_HEARD, _D.CUT)),
        Input.OVER: (_S.LISTENING, (_D.KEEP_HEARD, _D.KEEP)),  # said twice, or after an interruption
        Input.LOST: (_S.LISTENING, (_D.KEEP_HEARD, _D.CUT)),
        Input.CLOSE: (_S.CLOSING, (_D.KEEP_HEARD,)),
    },
    _S.THINKING: {
        Input.ASKED: (_S.THINKING, ()),
        Input.PIECE: (_S.SPEAKING, (_D.BEGIN,)),
        Input.CALLS: (_S.CALLING, (_D.KEEP_HEARD, _D.KEEP, _D.BEGIN, _D.CALL)),
        Input.RESULTS: (_S.THINKING, ()),
        Input.DROPPED: (_S.THINKING, ()),
        Input.INTERRUPTED: (_S.LISTENING, (_D.KEEP_HEARD, _D.CUT, _D.TURN)),
        Input.OVER: (_S.LISTENING, (_D.KEEP_HEARD, _D.KEEP, _D.TURN)),
        Input.LOST: (_S.THINKING, (_D.KEEP_HEARD, _D.CUT)),
        Input.CLOSE: (_S.THINKING, ()),
    },
    _S.SPEAKING: {
        Input.ASKED: (_S.ASKED, ()),  # it stands after what was heard of the answer until then
        Input.PIECE: (_S.SPEAKING, ()),
        Input.CALLS: (_S.CALLING, (_D.KEEP_HEARD, _D.KEEP, _D.CALL)),
        Input.RESULTS: (_S.SPEAKING, ()),
        Input.DROPPED: (_S.SPEAKING, ()),
        Input.INTERRUPTED: (_S.LISTENING, (_D.KEEP_HEARD, _D.CUT, _D.TURN)),
        Input.OVER: (_S.LISTENING, (_D.KEEP_HEARD, _D.KEEP, _D.TURN)),
        Input.LOST: (_S.LISTENING, (_D.KEEP_HEARD, _D.CUT)),
        Input.CLOSE: (_S.SPEAKING, ()),
    },
    _S.ASKED: {
        Input.ASKED: (_S.ASKED, ()),
        Input.PIECE: (_S.ASKED, ()),
        Input.CALLS: (_S.CALLING, (_D.KEEP_HEARD, _D.KEEP, _D.CALL)),
        Input.RESULTS: (_S.ASKED, ()),
        Input.DROPPED: (_S.ASKED, ()),
        Input.INTERRUPTED: (_S.THINKING, (_D.KEEP_HEARD, _D.CUT, _D.TURN)),
        Input.OVER: (_S.THINKING, (_D.KEEP_HEARD, _D.KEEP, _D.TURN)),
        Input.LOST: (_S.THINKING, (_D.KEEP_HEARD, _D.CUT)),
        Input.CLOSE: (_S.ASKED, ()),
    },
    _S.CALLING: {
        Input.ASKED: (_S.CALLING, ()),
        Input.PIECE: (_S.CALLING, ()),
        Input.CALLS: (_S.CALLING, (_D.KEEP_HEARD, _D.KEEP, _D.CALL)),
        Input.RESULTS: (_S.THINKING, ()),
        Input.DROPPED: (_S.LISTENING, ()),
        Input.INTERRUPTED: (_S.CALLING, (_D.KEEP_HEARD, _D.CUT)),
        Input.OVER: (_S.CALLING, (_D.KEEP_HEARD, _D.KEEP)),  # the model waits for the results
        Input.LOST: (_S.CALLING, (_D.KEEP_HEARD, _D.CUT)),
        Input.CLOSE: (_S.CALLING, ()),
    },
    _S.CLOSING: dict.fromkeys(Input, (_S.CLOSING, ())),
}


def step(state: State, what: Input) -> Cell:
    """Return what follows *state* when *what* has happened, and what is to be done."""
    return TABLE[state][what]
