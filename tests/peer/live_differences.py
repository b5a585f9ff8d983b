"""
Where live runs of minirun do something else than the peer's in the trace t15, and why.

Each reason names the weakness (L) or promise (P) that it follows from. `both` counts in both dialects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["DIFFERENCES", "LEFT_OUT"]

LEFT_OUT: Mapping[str, str] = {
    "begins": "P7: a live run begins with an event as all runs do; the user has said nothing yet",
    "root connection": "L12: each connection is an event, which says why there is another one",
    "sub connection": "L12: each connection is an event, which says why there is another one",
    "root handle": "L11: a handle is of no use but to the run, and no event",
}
"""Lines that are compared nowhere, and why."""

BESIDE = "L1: the interruption is noticed while the tool runs, and its response is stored when it has ended"
ENDS = "L4: a stream that has ended is answered, the model speaks of it, and the run ends when it is closed"
ITEMS = "L4: this server takes one response to a call, so its items are shown to the caller only"
IN_WORDS = "§8: this server has one response to the call by then: the result is told to it as a text"
FIRST_SOUND = "§11: the sound of an utterance is named by its event, so it stands with what was said"
HEARD = "L7: what the user has heard of an answer that was cut off is stored"
NEW_SESSION = "§8: this server has no handles: a new session is told what was said"
NOT_KNOWN = "§8: a new session knows of no call: it has the history, and the result in words"
ONE_BY_ONE = "§8: this server makes calls one by one, so each is an event, and is answered"
REMEMBERS = "L13: a connection without a handle is told what was said in this run, too"
SURVIVES = "L12: a drop without a handle ends an answer, but not the conversation"
TOLD = "L2: a failure is told to the model, which answers"
STOPPED = "L4: a stream that is stopped is answered with what it has given; until then nothing is stored of it"
TO_THE_NEW = "L16: what is said during a handover goes to the agent that takes over, and is answered by it"
NOT_LATE = "L17: who has handed over says nothing more"
ALREADY = "L16: the old model is told nothing more; the transfer is stored before what was said after it is sent"

DIFFERENCES: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]] = {
    "the same with save_live_blob": {
        "both": {FIRST_SOUND: ["stored + user file", "stored - user file"]},
    },
    "the user interrupts": {
        "both": {HEARD: ["stored + root said I was going to"]},
    },
    "an interruption arrives while a tool runs": {
        "both": {BESIDE: ["stored - root response", "stored - root interrupted", "stored + root response"]},
    },
    "a tool raises": {
        "both": {
            TOLD: [
                "sent + response bad",
                "stored + root response",
                "stored + root text",
                "stored + root over",
                "exception ValueError -> None",
            ]
        },
    },
    "two calls in one response": {
        "openai": {ONE_BY_ONE: ["stored + root call", "stored + root response"]},
    },
    "a streaming tool": {
        "both": {ENDS: ["stored + root text", "stored + root over", "exception TimeoutError -> None"]},
        "gemini": {ENDS: ["sent + response prices"]},
        "openai": {
            IN_WORDS: ["sent + text"],
            ITEMS: ["sent - response prices", "sent - response prices", "sent - response prices"],
        },
    },
    "a tool with an input stream": {
        "both": {ENDS: ["stored + root text", "stored + root over", "exception TimeoutError -> None"]},
        "gemini": {ENDS: ["sent + response watch"]},
        "openai": {ITEMS: ["sent - response watch"], IN_WORDS: ["sent + text"]},
    },
    "stop_streaming": {
        "both": {
            STOPPED: [
                "stored + user text",
                "stored + root call",
                "stored - root text",
                "stored - root over",
                "stored - user text",
                "stored - root call",
            ]
        },
        "gemini": {IN_WORDS: ["sent + response stop_streaming"], ITEMS: ["sent - response stop_streaming"]},
        "openai": {
            ITEMS: ["sent - response ticks", "sent - response ticks", "sent - response ticks"],
            IN_WORDS: ["sent + text"],
        },
    },
    "go_away after a handle: the connection is renewed": {
        "openai": {NEW_SESSION: ["sent - connect h1", "sent + connect", "sent + history"]},
    },
    "go_away without a handle": {
        "both": {REMEMBERS: ["sent + history"]},
    },
    "the connection drops right after a call": {
        "openai": {
            NOT_KNOWN: ["sent - connect h1", "sent + connect", "sent - response slow", "sent + history", "sent + text"]
        },
    },
    "the connection drops without a handle": {
        "both": {
            SURVIVES: [
                "sent + connect",
                "sent + history",
                "stored + root interrupted",
                "exception ConnectionClosedError -> None",
            ]
        },
    },
    "transfer to a sub-agent": {
        "both": {
            TO_THE_NEW: ["sent - text", "sent + text"],
            ALREADY: ["sent - response transfer_to_agent", "stored + root response", "stored - root response"],
            NOT_LATE: ["stored - root text"],
        },
        "openai": {TO_THE_NEW: ["stored + sub text", "stored + sub over"]},
    },
}
