"""
What must be true of every live conversation: its log beside what was said on the line, and what the client has seen.

Each law is a function of the `Book` and the log; `check` calls all of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import attrs

from minirun import Event
from minirun._codec import from_json, to_json
from minirun.errors import ModelRequestError
from minirun.models import LlmResponse
from minirun.sessions import InvocationStatus
from minirun.simulation import CheckError
from minirun.types import Part

from .live_talks import Book

__all__ = ["check", "check_cut_off"]

Log = Sequence[Event]
AGENT = "desk"
RATE = 24_000


def expect(holds: bool, what: str) -> None:
    """Fail unless *holds*."""
    if not holds:
        raise CheckError(what)


def check(book: Book, log: Log, status: str, *, store_fails: bool = False) -> None:
    """
    Check all laws: of *book*, its *log*, and how the conversation is listed.

    Where the *store_fails* now and then, it also stands still: what was typed may wait until closing has no time left.
    """
    book.may_lose = store_fails
    for law in LAWS:
        law(book, log)
    _status_is_right(book, status)


def check_cut_off(book: Book, log: Log) -> None:
    """Check what holds also of a conversation whose process has died."""
    for law in (_seen_is_stored, _answers_are_true, _utterances_are_stored_once, _memory_is_bounded):
        law(attrs.evolve(book, left_at=0), log)


# --- the log as such --------------------------------------------------------------------------------------------------


def _events_are_whole(book: Book, log: Log) -> None:
    """Ids are unique, numbers have no gaps, nothing partial and no sound is stored, and each event reads back."""
    ids = Counter(event.id for event in log)
    expect(max(ids.values(), default=0) <= 1, f"ids were given twice: {[name for name, n in ids.items() if n > 1]}")
    seqs = [event.seq or 0 for event in log]
    expect(seqs == list(range(seqs[0], seqs[0] + len(seqs))), f"the log has gaps: {seqs}")
    for event in log:
        expect(not event.partial, f"event {event.seq} is partial, and stored")
        parts: Sequence[Part] = () if event.content is None else event.content.parts
        expect(not any(part.inline_data for part in parts), f"event {event.seq} has sound in it")
        expect(from_json(Event, to_json(event)) == event, f"event {event.seq} does not read back")


def _calls_are_answered(book: Book, log: Log) -> None:
    """Every call has one response, after it."""
    is_open: set[str | None] = set()
    for event in log:
        for response in event.get_function_responses():
            expect(response.id in is_open, f"event {event.seq} answers {response.id}, which is not open")
            is_open.remove(response.id)
        is_open.update(call.id for call in event.get_function_calls())
    expect(not is_open, f"the calls {is_open} were never answered")


def _seen_is_stored(book: Book, log: Log) -> None:
    """The client sees what is stored, in order and once; if it stays, all of it but what it has said in writing."""
    seen = [event for event in book.seen if not event.partial]
    numbers = [event.seq or 0 for event in seen]
    expect(numbers == sorted(set(numbers)), f"events were seen in the order {numbers}")
    by_seq = {event.seq: event for event in log}
    expect(all(by_seq.get(event.seq) == event for event in seen), "the client has seen what is not stored")


# --- answers ----------------------------------------------------------------------------------------------------------


def _answers(log: Log) -> dict[str, list[Event]]:
    """The stored events with what the model has said, by item."""
    found = defaultdict(list)
    for event in log:
        live = event.live or {}
        item = live.get("item_id")
        if event.author == AGENT and item is not None and "cut_seq" not in live and not event.get_function_calls():
            found[item].append(event)
    return found


def _words_received(book: Book) -> dict[str, list[str]]:
    """What the model has said on the lines, by item."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in book.lines:
        for response in line.received:
            if response.item_id is not None:
                found[response.item_id].extend(_words_of(response))
    return found


def _words_of(said: object) -> list[str]:
    """The words of a piece of an answer."""
    spoken = getattr(said, "output_transcription", None)
    content = getattr(said, "content", None)
    texts = [spoken.text or ""] if spoken is not None else []
    texts.extend(part.text or "" for part in (content.parts if content is not None else ()))
    return " ".join(texts).split()


def _sound_ms(event: Event) -> float:
    parts: Sequence[Part] = () if event.content is None else event.content.parts
    return sum(len(part.inline_data.data) / 2 / RATE * 1000 for part in parts if part.inline_data is not None)


def _answers_are_true(book: Book, log: Log) -> None:
    """
    The text of an answer is what was said, in its order and from its beginning; only what is marked as cut off has less
    than all, and its text ends where the client has stopped hearing it.
    """
    received = _words_received(book)
    for item, events in _answers(log).items():
        words: list[str] = []
        for event in events:
            heard = event.text.split()
            unheard = str(event.custom_metadata.get("unheard", "")).split() if event.custom_metadata else []
            expect(not unheard or bool(event.interrupted), f"event {event.seq} has words that nobody heard, and no cut")
            expect(bool(heard or unheard or event.output_transcription), f"event {event.seq} says nothing")
            words += heard + unheard
            if event.interrupted:
                _is_what_was_shown(book, event, heard, log)
            else:
                shown = [word for piece in _shown(book, event) for word in _words_of(piece)]
                is_seen = any(one.id == event.id and not one.partial for one in book.seen)
                expect(not is_seen or shown == heard, f"event {event.seq} says {heard}, the client was told {shown}")
        said = received[item]
        expect(words == said[: len(words)], f"{item} has said {said}, and the log has {words}")
        is_whole = not any(event.interrupted for event in events) and book.left_at is None
        expect(not is_whole or words == said, f"{item} was not cut off, has said {said}, and the log has {words}")


def _shown(book: Book, event: Event) -> list[Event]:
    """The pieces of an answer that the client was shown."""
    return [one for one in book.seen if one.partial and one.id == event.id]


def _has_waited(book: Book, event: Event, log: Log) -> bool:
    """Whether an earlier answer was cut, so still played, after this one had begun: it has waited behind that."""
    begin = next((place for place, one in enumerate(book.seen) if one.partial and one.id == event.id), 0)
    before = max((one.seq or 0 for one in book.seen[:begin]), default=0)
    if any("cut_seq" in (one.live or {}) and before < (one.seq or 0) < (event.seq or 0) for one in log):
        return True
    until = 0.0  # the sound of those before is played at most; of one that is cut within its last word nobody tells
    for one in (one for one in log if (one.seq or 0) < (event.seq or 0)):
        until = max(until, one.timestamp or 0.0) + sum(map(_sound_ms, _shown(book, one))) / 1000
    return until > (event.timestamp or 0.0)


def _is_what_was_shown(book: Book, event: Event, heard: list[str], log: Log) -> None:
    """The text of an answer that was cut off ends where the client has stopped hearing it, within a word."""
    pieces = _shown(book, event)
    shown = [word for piece in pieces for word in _words_of(piece)]
    sound_words = math.ceil(sum(map(_sound_ms, pieces)) / book.model.word_ms)
    if any(name == "played" for name, _ in book.plan.deeds):
        return  # the client says itself what it has heard
    expect(len(heard) <= max(len(shown), sound_words) + 1, f"event {event.seq} has {heard}, and was shown {shown}")
    if book.plan.modality == "TEXT":
        both = min(len(heard), len(shown))
        is_true = heard[:both] == shown[:both] and len(heard) <= len(shown) + 1  # who leaves may be handed one more
        expect(is_true, f"event {event.seq} has {heard}, and the client was shown {shown}")
    elif not _has_waited(book, event, log):
        expect(len(heard) >= min(len(shown), sound_words) - 1, f"event {event.seq} has {heard} of {shown} shown")


def _shown_is_stored(book: Book, log: Log) -> None:
    """What the client was shown of an answer, or of its own speech, is stored, however the conversation has ended."""
    items = {(event.live or {}).get("item_id") for event in log}
    for piece in book.seen:
        item = (piece.live or {}).get("item_id")
        said = _words_of(piece) or (piece.input_transcription is not None and piece.text.strip())
        expect(not (piece.partial and said) or item in items, f"{said} was shown, and nothing of {item} is stored")


# --- what the user says -----------------------------------------------------------------------------------------------


def _utterances_are_stored_once(book: Book, log: Log) -> None:
    """What the user has typed is stored once, in its order; if the conversation has come to its end, all of it."""
    said = [event for event in log if event.author == "user" and event.content and not event.input_transcription]
    stored = [event for event in said if not _is_of_another_call(event, book)]
    texts = [event.text for event in stored]
    expect(len(set(texts)) == len(texts), f"the user's words are stored twice: {texts}")
    sent = [text for text in book.typed.values() if text in texts and text not in book.doubtful]
    known = [text for text in texts if text not in book.doubtful]
    expect(sorted(sent) == sorted(known), f"{texts} are stored, and {list(book.typed.values())} were typed")
    direct = [text for message_id, text in book.typed.items() if text in texts and _is_direct(message_id, log)]
    expect(direct == [text for text in texts if text in direct], f"{direct} were typed, and {texts} stored")
    for event in stored:
        if _is_direct(event.id or "", log):
            expect("after_seq" in (event.live or {}), f"event {event.seq} does not say what was heard before it")
    is_whole = book.plan.ending != "aclose soon" and not book.may_lose
    if book.run is not None and book.run.status == "completed" and is_whole:
        missing = [text for text in book.typed.values() if text not in [*texts, *book.sent_in]]
        expect(not missing, f"{missing} were typed, and are nowhere")


def _is_direct(message_id: str, log: Log) -> bool:
    """Whether it went through the queue, and not through `Runner.send`."""
    return any(event.id == message_id and event.actions.replay.sent is None for event in log)


def _is_of_another_call(event: Event, book: Book) -> bool:
    """Whether somebody sent it who thought of a later call, when this one had died and was not known to be dead yet."""
    is_own = event.id in book.typed or event.text in book.doubtful
    return event.actions.replay.sent is not None and not is_own


def _speech_is_stored_once(book: Book, log: Log) -> None:
    """What was heard of the user is stored once, in the order in which it was said, before its answer."""
    received: defaultdict[str, list[str]] = defaultdict(list)
    finished: set[str] = set()
    for line in book.lines:
        for response in line.received:
            spoken = response.input_transcription
            if spoken is not None and response.item_id is not None:
                received[response.item_id].extend((spoken.text or "").split())
                finished.update({response.item_id} if spoken.finished else ())
    stored: defaultdict[str, list[Event]] = defaultdict(list)
    for event in log:
        if (item := _heard_item(event)) is not None:
            stored[item].append(event)
    is_whole = book.run is not None and book.run.status == "completed" and book.plan.leaves_after is None
    finishes = book.plan.dialect == "openai"
    for item, events in stored.items():
        expect(len(events) == 1 or not finishes, f"{item} is stored {len(events)} times")
        words = " ".join(event.text for event in events).split()
        expect(words == received[item][: len(words)], f"{item} is {received[item]}, and stored as {words}")
        is_all = words == received[item] or item not in finished or not is_whole
        expect(is_all, f"{item} is {received[item]}, and stored as {words}")
    places = _places(log)
    by_place = sorted(stored, key=lambda item: places[stored[item][0].seq])
    if finishes and not _speech_overlaps(book):  # the other one does not say when the user begins to speak
        numbers = [int(item.rpartition("-")[2]) for item in by_place]
        expect(numbers == sorted(numbers), f"the user has said {sorted(numbers)}, and the log has {numbers}")
        _stands_before_its_answer(book, stored, places)
    if is_whole and book.plan.ending == "aclose":
        lost = [item for item, words in received.items() if words and item not in stored]
        expect(not lost, f"{lost} were heard, and are not stored")


def _speech_overlaps(book: Book) -> bool:
    """Whether the server has heard an utterance begin within another one: a script is free to say so."""
    for line in book.lines:
        speaking = 0
        for response in line.received:
            speaking += bool(response.speech_started) - bool(response.speech_stopped)
            if speaking > 1:
                return True
    return False


def _stands_before_its_answer(book: Book, stored: dict[str, list[Event]], places: dict[int | None, int]) -> None:
    """What was said before an answer began stands before all of it, though its text came later."""
    for line in book.lines:
        for at, response in enumerate(line.received):
            if not response.speech_started or response.item_id not in stored:
                continue
            began = {one.item_id for one in line.received[:at] if one.content or one.output_transcription}
            later = {one.item_id for one in line.received[at:] if one.content or one.output_transcription} - began
            place = places[stored[response.item_id][0].seq]
            for event in book.seen:
                if not event.partial and (event.live or {}).get("item_id") in later and event.author == AGENT:
                    expect(place < places[event.seq], f"{response.item_id} stands after {event.seq}, which answers it")


def _heard_item(event: Event) -> str | None:
    if event.author != "user" or event.input_transcription is None:
        return None
    item = (event.live or {}).get("item_id")
    return item if isinstance(item, str) else None


def _places(log: Log) -> dict[int | None, int]:
    """Where each event stands in what was said, by its number in the log."""
    said: list[int | None] = []
    for event in log:
        before = (event.live or {}).get("before_seq")
        said.insert(said.index(before) if before in said else len(said), event.seq)
    return {seq: place for place, seq in enumerate(said)}


# --- what the server is told ------------------------------------------------------------------------------------------


def _contents_arrive(book: Book, log: Log) -> None:
    """
    What the user has typed has come to the session that the conversation has ended with: in its history, taken up, or
    sent over the last connection.

    Twice it is sent only while nobody can know; the scripted server refuses it where it has told. Where a server does
    not tell what it has, what it had before its last answer began is taken for known.
    """
    if book.run is None or book.run.status != "completed" or book.plan.ending == "aclose soon" or not book.lines:
        return
    last = book.lines[-1]
    if last.inner._lost is not None:
        return  # it was lost while the conversation came to its end
    told = {sent.kind for sent in book.model.sent if sent.connection == last.number}
    if book.plan.ending == "aclose" and not last.received and told <= {"connect", "close"}:
        return  # it was left while its last connection was made
    had = set(last.inner.conversation._ids)
    had |= {sent.id for sent in book.model.sent if sent.connection == last.number and sent.id and not sent.lost}
    numbers = [line.number for line in book.lines if line.inner.conversation is last.inner.conversation]
    history = " ".join(
        part.text or ""
        for sent in book.model.sent
        if sent.kind == "history" and sent.connection in numbers
        for content in sent.contents
        for part in content.parts
    )
    for event in log:
        is_typed = event.author == "user" and event.content is not None and not event.input_transcription
        if not is_typed or not _is_direct(event.id or "", log):  # what others have sent may stay for the next run
            continue
        if event.id in had or event.text in history:
            continue
        is_known = book.plan.dialect == "openai" or len(numbers) == 1
        expect(not is_known, f"{event.text!r} is stored, and the server has not got it")


def _newest_handle_is_used(book: Book, log: Log) -> None:
    """A session is gone on with by the newest handle that is good; where the server says that it has none, it stays."""
    newest: str | None = None
    may_be_gone = False
    for line in book.lines:
        is_newest = line.handle == newest or (may_be_gone and line.handle is None)
        expect(is_newest, f"connection {line.number} goes on with {line.handle}, the newest is {newest}")
        newest = line.handle
        for response in line.received:
            told = response.resumption
            newest = told.handle if told is not None and told.resumable else newest
        was_of_use = any(_is_of_use(response) for response in line.received)
        # The server refuses what was sent to this session, so it is not gone on with. Who sends may notice that before
        # what has come from there is taken, which then was of no use.
        is_refused = isinstance(line.inner._lost, ModelRequestError) and line.handle == newest
        may_be_gone = is_refused and any(sent.lost and sent.connection == line.number for sent in book.model.sent)
        if is_refused and not was_of_use:
            newest = None


def _is_of_use(response: LlmResponse) -> bool:
    """Whether somebody gets anywhere with it: not by calls that are taken back, nor by what is told of a session."""
    return response.content is not None or response.input_transcription is not None or bool(response.turn_complete)


def _left_is_left(book: Book, log: Log) -> None:
    """Nothing of a conversation goes on after it: all connections are closed, and nobody sends over a closed one."""
    for line in book.lines:
        expect(line.inner.is_over, f"connection {line.number} is open after the end")
    closed: set[int] = set()
    for sent in book.model.sent:
        expect(not (sent.connection in closed and not sent.lost), f"{sent.kind} was sent after the end of the line")
        if sent.kind == "close":
            closed.add(sent.connection)


def _memory_is_bounded(book: Book, log: Log) -> None:
    """As much sound waits as may, and a piece; and not many other things."""
    ms, count = book.waiting_max
    most = max(book.plan.lag_s * 1000, book.model.word_ms)
    expect(ms <= most, f"{ms} ms of sound have waited, {most} may")
    expect(count <= 300, f"{count} things have waited for the client")


def _turns_are_counted(book: Book, log: Log) -> None:
    """A turn counts once, however often the server says that it is over."""
    if book.run is None:
        return
    turns = book.run._line.turns  # type: ignore[attr-defined]
    begun = sum(1 for sent in book.model.sent if sent.kind != "connect")
    # after which the server may go on by itself
    begun += sum(bool(r.error_code or r.interrupted) for line in book.lines for r in line.received)
    over = sum(bool(r.turn_complete or r.interrupted) for line in book.lines for r in line.received)
    expect(turns <= min(begun + len(book.plan.deeds), over + len(book.plan.deeds)), f"{turns} turns of {over}")


def _status_is_right(book: Book, status: str) -> None:
    """How it has ended is told to the client as it is listed."""
    if book.run is None:
        return
    expect(book.run.status == status, f"the client was told {book.run.status}, and it is listed as {status}")
    if book.failure is not None:
        expected = InvocationStatus.FAILED
    elif book.plan.leaves_after is not None or book.plan.ending == "leave":
        return
    else:
        expected = InvocationStatus.COMPLETED
    expect(status == expected, f"expected {expected}, found {status}")


LAWS = (
    _events_are_whole,
    _calls_are_answered,
    _seen_is_stored,
    _answers_are_true,
    _shown_is_stored,
    _utterances_are_stored_once,
    _speech_is_stored_once,
    _contents_arrive,
    _newest_handle_is_used,
    _left_is_left,
    _memory_is_bounded,
    _turns_are_counted,
)
