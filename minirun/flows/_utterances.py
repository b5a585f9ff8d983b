"""What is said in a live conversation, piece by piece, until it is one event: what the user says, and an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .._json import freeze
from ..types import Blob, Content, Part, Transcription

__all__ = ["Answer", "Heard", "Order", "audio_ms", "is_sound", "rate_of", "said"]

_RATE = re.compile(r"rate=0*([1-9]\d{0,5})(?!\d)", re.ASCII)  # no other is a rate of anything
_BYTES_A_SAMPLE = 2  # PCM16


def audio_ms(blob: Blob, rate: int) -> float:
    """How long a piece of sound is, in milliseconds; *rate* is its samples a second, if its type tells none."""
    return len(blob.data) * 1000 / (_BYTES_A_SAMPLE * rate_of(blob, rate))


def is_sound(part: Part) -> bool:
    """Whether it is a piece of sound."""
    return part.inline_data is not None and part.inline_data.mime_type.startswith("audio/")


def rate_of(blob: Blob, rate: int) -> int:
    """Its samples a second: as its type tells, else *rate*."""
    told = _RATE.search(blob.mime_type)
    return int(told[1]) if told else rate


class Heard:
    """
    An utterance of the user.

    Args:
        item_id: What the server calls it; None if it calls it nothing.
        number: Its place among all that the user has said.
        answers: How many answers had begun when it began.
    """

    __slots__ = ("answers", "item_id", "number", "pieces")

    def __init__(self, item_id: str | None, number: int, answers: int) -> None:
        self.item_id = item_id
        self.number = number
        self.answers = answers
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """What is understood of it, as far as it is."""
        return "".join(self.pieces).strip()


class Order:
    """In which order the user has said what is understood in any order."""

    __slots__ = ("_begun", "_stored")

    def __init__(self) -> None:
        self._begun = 0
        self._stored: list[tuple[Heard, int]] = []  # what was said after something that is not, and where it stands

    def begin(self, item_id: str | None, answers: int) -> Heard:
        """Return another utterance, which begins now."""
        self._begun += 1
        return Heard(item_id, self._begun, answers)

    def follower(self, heard: Heard, answer_seq: int | None) -> int | None:
        """
        Where what followed *heard* stands in the log, if it does: another utterance, or the answer.

        *answer_seq* is where the first answer stands that began after it, if that is stored.
        """
        later = [each for each in self._stored if each[0].number > heard.number]
        following, seq = min(later, key=_number, default=(None, answer_seq))
        if following is None or (answer_seq is not None and following.answers > heard.answers):
            return answer_seq
        return seq

    def note_stored(self, heard: Heard, seq: int, unstored: Iterable[Heard]) -> None:
        """Note where *heard* stands now, and which utterances are not stored yet."""
        oldest = min((each.number for each in unstored), default=self._begun)
        self._stored = [each for each in (*self._stored, (heard, seq)) if each[0].number > oldest]


def _number(stored: tuple[Heard, int]) -> int:
    return stored[0].number


class Answer:
    """
    An answer of the model, as far as it has come.

    Args:
        item_id: What the server, or else this run, calls it.
        event_id: The id of the event that it will be.
    """

    __slots__ = (
        "audio_ms", "event_id", "item_id", "live", "media", "missing_ms", "shown_ms", "skipped_ms", "spoken",
        "thinks", "unread_chars", "written",
    )  # fmt: skip

    def __init__(self, item_id: str, event_id: str) -> None:
        self.item_id = item_id
        self.event_id = event_id
        self.live = freeze({"item_id": item_id})
        """What its pieces say of it (`Event.live`)."""
        self.spoken: list[tuple[str, float]] = []
        """Pieces of what is said in its sound, with how much sound had come by then."""
        self.written: list[str] = []
        """Pieces of its text."""
        self.media: list[str] = []
        """The types of what else it has, such as pictures."""
        self.thinks = False
        """Whether thoughts of it were shown."""
        self.audio_ms = 0.0
        """How much sound of it has come."""
        self.missing_ms = 0.0
        """How much more was dropped before anybody saw it."""
        self.unread_chars = 0
        """How much of its text the caller was not shown, at its end."""
        self.shown_ms = 0.0
        """How much of that the caller was shown."""
        self.skipped_ms = 0.0
        """How much of that the client has dropped: it waited behind another answer, which was interrupted."""

    @property
    def heard_ms(self) -> float:
        """How much of its sound the client may have played."""
        return max(0.0, self.shown_ms - self.skipped_ms)

    @property
    def text(self) -> str:
        """All of it that has come."""
        return ("".join(self.written) or "".join(text for text, _ in self.spoken)).strip()

    def is_other(self, item_id: str | None) -> bool:
        """Whether what the server calls so is another answer."""
        return item_id is not None and self.item_id not in (item_id, self.event_id)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to store."""
        return not (self.text or self.audio_ms or self.media or self.thinks)

    def add(self, content: Content | None, spoken: Transcription | None, rate: int) -> float:
        """Take a piece of it; return how much sound that has, of *rate* samples a second, in milliseconds."""
        length = 0.0
        for part in () if content is None else content.parts:
            if part.thought:
                self.thinks = True
            elif part.text is not None:
                self.written.append(part.text)
            elif is_sound(part):
                assert part.inline_data is not None
                length += audio_ms(part.inline_data, rate)
            elif (media := part.inline_data or part.file_data) is not None:
                self.media.append((media.mime_type or "").partition(";")[0])
        if spoken is not None and spoken.text:
            self.spoken.append((spoken.text, self.audio_ms + self.missing_ms))
        self.audio_ms += length
        return length

    def parted(self, played_ms: float) -> tuple[str, str]:
        """
        Part its text into what was heard of it, and what was not, if so many milliseconds of its sound were played.

        Text without sound was seen where it was shown. Of what was said in sound as many words were heard as the share
        of the sound that was played, as no server tells when which word is said; and none whose sound had not come by
        then.
        """
        if not (self.written or self.audio_ms):
            return "", self.text  # its sound has not come, or was dropped
        if self.written:
            text = "".join(self.written)
            seen = len(text) - self.unread_chars
            return text[:seen].strip(), text[seen:].strip()
        is_ahead = bool(self.spoken) and not self.spoken[0][1]  # of its sound, or after it
        come = [text for text, at_ms in self.spoken if at_ms < played_ms or (at_ms == played_ms and not is_ahead)]
        words = re.findall(r"\S+\s*", self.text)
        share = round(len(words) * min(1.0, played_ms / (self.audio_ms + self.missing_ms)))
        count = min(share, len("".join(come).split()))
        return "".join(words[:count]).strip(), "".join(words[count:]).strip()


def said(role: str, text: str, media: Sequence[Part] = ()) -> Content | None:
    """The content of an utterance; None if nothing of it is known."""
    parts = [*([Part(text=text)] if text else []), *media]
    return Content(role=role, parts=parts) if parts else None
