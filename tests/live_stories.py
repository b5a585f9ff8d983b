"""
Live conversations from beginning to end, told line by line, in `tests/fixtures/live/stories.json`: what the model was
sent and when, what the client saw, and what is stored. Steps are seconds apart, so that no order of tasks matters.

    python -m tests.live_stories       write the stories anew; read the difference before it is kept
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any, cast

import attrs
import trio
from trio.testing import MockClock

from minirun import InMemoryRunner
from minirun.events import Event
from minirun.models import LlmResponse
from minirun.simulation._private import seeded_trio
from minirun.testing import (
    LiveSent,
    call,
    cancel_calls,
    drop,
    error,
    go_away,
    handle,
    hear,
    interrupted,
    pause,
    say,
    usage,
)

from .helpers import PLACE
from .live_plans import Deed, Plan
from .live_talks import agent_of, book_of, talk
from .tables import write

__all__ = ["STORIES", "parts_told", "story"]

PLAIN = Plan(
    dialect="gemini",
    modality="AUDIO",
    is_manual=False,
    entries=(),
    on_connect=(),
    deeds=(),
    reads_s=(0.0,),
    leaves_after=None,
    ending="aclose",
    lag_s=5.0,
    in_flight=0,
    is_told=True,
)


def wait(seconds: float) -> Deed:
    return "wait", seconds


def say_and_wait(text: str = "hello", seconds: float = 30) -> list[Deed]:
    return [("say", text), wait(seconds)]


SPEECH: list[Deed] = [("begin to speak", None), ("speak", 3), ("end to speak", None)]


def _both() -> Iterator[tuple[str, dict[str, Any]]]:
    """Conversations of both dialects: the fields of their plans that are other than usual."""
    yield "a question and an answer", {"entries": [[say("I am here.")]], "deeds": say_and_wait()}
    yield "an answer in writing", {"entries": [[say("I am here.")]], "deeds": say_and_wait(), "modality": "TEXT"}
    yield "what it has cost", {"entries": [[say("Yes."), usage(3, 4)]], "deeds": say_and_wait()}
    yield (
        "two questions, one after the other",
        {"entries": [[say("One.")], [say("Two.")]], "deeds": [*say_and_wait("first"), *say_and_wait("second")]},
    )
    yield "two questions at once", {"entries": [[say("One.")], [say("Two.")]], "deeds": [("half", "ask"), wait(30)]}
    yield (
        "somebody else has something to say",
        {
            "entries": [[say("One."), pause(4), say("More.")], [say("Two.")]],
            "deeds": [("say", "ask"), wait(2), ("idle", "aside"), wait(60)],
        },
    )
    for length in (0.2, 2.0, 40.0):
        yield (
            f"a tool that takes {length} s",
            {
                "entries": [[say("Wait. "), call("work", seconds=length, fails=False)], [say("Done.")]],
                "deeds": say_and_wait(seconds=90),
            },
        )
    yield (
        "two tools, of which one fails",
        {
            "entries": [
                [call("work", seconds=2.0, fails=True), call("work", seconds=1.0, fails=False)],
                [say("Done.")],
            ],
            "deeds": say_and_wait(),
        },
    )
    yield (
        "a question while a tool works",
        {
            "entries": [[call("work", seconds=5.0, fails=False)], [say("One.")], [say("Two.")]],
            "deeds": [("say", "ask"), wait(2), ("say", "and?"), wait(40)],
        },
    )
    yield (
        "stopped by the client",
        {
            "entries": [[say("one two three four"), pause(9), say("five")], [say("Yes?")]],
            "deeds": [
                ("say", "count"),
                wait(2),
                ("interrupt", None),
                wait(5),
                ("played", 200),
                wait(5),
                *say_and_wait("go on"),
            ],
        },
    )
    yield (
        "stopped before there is an answer",
        {
            "entries": [[pause(5), say("one")], [say("Yes?")]],
            "deeds": [("say", "count"), wait(2), ("interrupt", None), wait(20), *say_and_wait("go on")],
        },
    )
    yield (
        "stopped while a tool works",
        {
            "entries": [[say("so "), call("work", seconds=5.0, fails=False)], [say("Done.")]],
            "deeds": [("say", "ask"), wait(2), ("interrupt", None), wait(30)],
        },
    )
    yield "stopped with nothing to stop", {"entries": [[say("Yes?")]], "deeds": [("interrupt", None), *say_and_wait()]}
    yield (
        "cut off by the server",
        {
            "entries": [[say("one two"), pause(2), interrupted(), pause(1)], [say("Yes?")]],
            "deeds": [*say_and_wait("count"), *say_and_wait("go on")],
        },
    )
    yield (
        "cut off by the user's voice",
        {
            "entries": [[say("one two three"), pause(2), hear("stop"), pause(1), say("Yes?")]],
            "deeds": [("say", "count"), wait(4), ("played", 200), wait(30)],
        },
    )
    yield (
        "what was played, after the end",
        {
            "entries": [[say("one two three")]],
            "deeds": [*say_and_wait(), ("played", 100), wait(2), ("played", 99_999), wait(2)],
        },
    )
    yield "spoken", {"entries": [[hear("who is there?"), say("Me.")]], "deeds": [("speak", 3), wait(30)]}
    yield (
        "spoken and understood late",
        {
            "entries": [[hear("who?", late=True), say("Me.")], [say("Yes.")]],
            "deeds": [("speak", 3), wait(30), *say_and_wait()],
        },
    )
    yield (
        "spoken, and the microphone off",
        {"entries": [[hear("who?"), say("Me.")]], "deeds": [("speak", 2), wait(2), ("microphone off", None), wait(30)]},
    )
    yield (
        "spoken as the client says",
        {"entries": [[hear("who?"), say("Me.")]], "deeds": [*SPEECH, wait(30)], "is_manual": True},
    )
    yield (
        "spoken into an answer, as the client says",
        {
            "entries": [[say("one two"), pause(9)], [hear("who?"), say("Me.")]],
            "deeds": [("say", "count"), wait(3), *SPEECH, wait(40)],
            "is_manual": True,
        },
    )
    yield "an error that ends nothing", {"entries": [[error("rate_limited"), say("Yes.")]], "deeds": say_and_wait()}
    yield (
        "a turn that ends twice",
        {
            "entries": [[say("Yes."), LlmResponse(turn_complete=True), LlmResponse(turn_complete=True)]],
            "deeds": [*say_and_wait(), *say_and_wait("again")],
        },
    )
    yield "no answer", {"entries": [[]], "deeds": [*say_and_wait(seconds=300)]}
    for code in (1000, 1006, 1007, 1011):
        yield (
            f"the line drops with {code}",
            {
                "entries": [[say("One.")], [say("tw"), drop(code)], [say("Two.")]],
                "deeds": [*say_and_wait("first"), *say_and_wait("second", 60)],
            },
        )
    yield (
        "the line drops while a tool works",
        {
            "entries": [[call("work", seconds=5.0, fails=False), pause(1), drop(1006)], [say("Done.")]],
            "deeds": say_and_wait(seconds=60),
        },
    )
    yield "the line drops and drops", {"entries": [[drop(1006)]] * 12, "deeds": say_and_wait(seconds=300)}
    for ending in ("aclose soon", "close the queue", "leave"):
        yield (
            f"an end: {ending}",
            {
                "entries": [[say("one two"), pause(3), say("three")]],
                "deeds": [("say", "count"), wait(1)],
                "ending": ending,
            },
        )
    yield (
        "an end while a tool works",
        {"entries": [[call("work", seconds=5.0, fails=False)], [say("Done.")]], "deeds": [("say", "ask"), wait(1)]},
    )
    yield "a client that leaves", {"entries": [[say("one two three")]], "deeds": say_and_wait(), "leaves_after": 3}
    yield (
        "a slow client",
        {
            "entries": [[say("one two three four five six seven eight")]],
            "reads_s": (1.0,),
            "deeds": [("say", "count"), wait(4), ("interrupt", None), wait(60)],
            "lag_s": 0.5,
        },
    )
    yield (
        "what is in flight",
        {
            "entries": [[say("one two"), pause(2), say("three")], [say("Yes?")]],
            "in_flight": 2,
            "deeds": [("say", "count"), wait(1), ("interrupt", None), wait(20), *say_and_wait("go on")],
        },
    )


def _of_gemini() -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of Gemini's dialect alone: calls that are withdrawn, handles, and servers that go away."""
    withdrawn = [call("work", seconds=9.0, fails=False), pause(2), cancel_calls(), pause(1), say("Never mind.")]
    yield "a call that is withdrawn", {"entries": [withdrawn], "deeds": say_and_wait(seconds=60)}
    first = [[handle("h1")]]
    for told in (True, False):
        yield (
            f"a session that goes on{'' if told else ', of which nobody says what it has'}",
            {
                "on_connect": first,
                "is_told": told,
                "entries": [[say("One."), handle("h2", taken_up=told)], [say("tw"), drop(1006)], [say("Two.")]],
                "deeds": [*say_and_wait("first"), *say_and_wait("second", 60)],
            },
        )
    yield (
        "a session that cannot go on for the moment",
        {
            "on_connect": first,
            "entries": [[say("One."), handle("h2", resumable=False)], [drop(1006)], [say("Two.")]],
            "deeds": [*say_and_wait("first"), *say_and_wait("second", 60)],
        },
    )
    for left in (0.0, 1.0, 20.0):
        yield (
            f"the server goes away in {left} s",
            {
                "on_connect": first,
                "entries": [[say("One."), go_away(left), pause(5), say("More.")], [say("Two.")]],
                "deeds": [*say_and_wait("first"), *say_and_wait("second", 60)],
            },
        )
    yield (
        "a session that goes on while a tool works",
        {
            "on_connect": first,
            "entries": [[call("work", seconds=5.0, fails=False), pause(1), drop(1006)], [say("Done.")]],
            "deeds": say_and_wait(seconds=60),
        },
    )


STORIES = {
    f"{name} ({dialect})": attrs.evolve(PLAIN, dialect=cast(Any, dialect), **fields)
    for name, fields in _both()
    for dialect in ("gemini", "openai")
}
for name in (
    "a client that leaves (gemini)",
    "cut off by the server (openai)",
    "cut off by the user's voice (openai)",
    "two questions at once (gemini)",
):  # in which two things happen at one time, in any order
    del STORIES[name]
STORIES |= {f"{name} (gemini)": attrs.evolve(PLAIN, **fields) for name, fields in _of_gemini()}


# --- told -------------------------------------------------------------------------------------------------------------


def story(plan: Plan) -> dict[str, Any]:
    """Carry a plan out, and tell what the model was sent, what the client saw, what is stored, and how it ended."""
    book = book_of(plan)
    runner = InMemoryRunner(agent=agent_of(book), app_name="app", auto_create_session=True)

    async def main() -> tuple[list[Event], str]:
        with trio.fail_after(2_000):
            await talk(book, runner, PLACE)
        log = await runner.session_service.read_events(app_name="app", **PLACE, after_seq=0)
        [one] = await runner.session_service.list_invocations(app_name="app")
        return log, one.status

    logging.disable(logging.CRITICAL)  # tools that fail as planned are not worth a line each
    try:
        with seeded_trio(0):
            log, status = trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)
    names = _Names()
    end = f"{status}: {type(book.failure).__name__}: {book.failure}" if book.failure else str(status)
    return {
        "sent": [names.in_text(_sent(each)) for each in book.model.sent],
        "seen": _joined([names.in_text(_event(each)) for each in book.seen]),
        "stored": [names.in_text(_event(each)) for each in log],
        "end": names.in_text(end),
    }


class _Names:
    """Ids, by the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def in_text(self, text: str) -> str:
        found = re.sub(r"\bm-[0-9a-f-]{6,}|\b[0-9a-f]{24}", lambda id: self._of(id[0]), text)
        return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3f}", found)

    def _of(self, id: str) -> str:
        return self._known.setdefault(id, f"id{len(self._known) + 1}")


def _sent(each: LiveSent) -> str:
    words = [f"{each.at:.1f} s, line {each.connection}: {each.kind}", *(["lost"] if each.lost else [])]
    if each.data is not None:
        words.append(f"{len(each.data.data)} bytes of {each.data.mime_type}")
    if each.content is not None:
        words.append(parts_told(each.content.parts))
    words += [f"[{content.role}: {parts_told(content.parts)}]" for content in each.contents]
    live = each.request.live if each.request is not None else None
    words += [f"handle {live.handle}"] if live is not None and live.handle else []
    words += ["to be answered"] if each.turn_complete else []
    words += [str(value) for value in (each.id, each.item_id, each.played_ms) if value is not None]
    return " ".join(words)


def parts_told(parts: Any) -> str:
    found = []
    for part in parts:
        if part.function_call is not None:
            found.append(f"{part.function_call.name}({part.function_call.id}, {dict(part.function_call.args)})")
        elif part.function_response is not None:
            answer = part.function_response
            more = [value for value in (answer.will_continue, answer.scheduling) if value is not None]
            found.append(f"{answer.name}({answer.id}) = {dict(answer.response)}{more or ''}")
        elif part.inline_data is not None:
            found.append(f"<{len(part.inline_data.data)} bytes>")
        elif part.executable_code is not None:
            found.append(f"{part.executable_code.language} {part.executable_code.code!r}")
        elif part.code_execution_result is not None:
            found.append(f"{part.code_execution_result.outcome} {part.code_execution_result.output!r}")
        else:
            found.append(f"({part.text!r})" if part.thought else repr(part.text))
    return " ".join(found)


def _event(event: Event) -> str:
    words = [f"{event.author}:", parts_told(event.content.parts) if event.content is not None else "-"]
    for name in (
        "partial",
        "turn_complete",
        "interrupted",
        "error_code",
        "error_message",
        "usage_metadata",
        "live",
        "input_transcription",
        "output_transcription",
        "custom_metadata",
        "finish_reason",
    ):
        value = getattr(event, name)
        if value is not None and value != {}:
            words.append(name if value is True else f"{name}={_told(value)}")
    return " ".join(words)


def _told(value: Any) -> Any:
    if attrs.has(type(value)):
        fields = {field.name: getattr(value, field.name) for field in attrs.fields(type(value)) if field.init}
        return {name: each for name, each in fields.items() if each is not None and each != {}}
    return dict(value) if isinstance(value, dict) else value


def _joined(lines: list[str]) -> list[str]:
    """Lines that follow each other and are the same, as one with their number."""
    found: list[list[Any]] = []
    for line in lines:
        if found and found[-1][0] == line:
            found[-1][1] += 1
        else:
            found.append([line, 1])
    return [line if count == 1 else f"{line} ({count} times)" for line, count in found]


if __name__ == "__main__":
    write("live/stories", {name: story(plan) for name, plan in STORIES.items()}, 4)
