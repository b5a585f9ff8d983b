"""
Settings of conversations that both sides speak at once, as `google.genai.types` has them: voices, turns, transcripts.

`minirun.types` has these names; the module is loaded when one of them is asked for, or such a setting is given. Each
setting may also be given as a dict of its fields, as JSON has it, and a member of an enumeration as its text. A field
of ADK's that no live connection here could honour is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from ._fields import EMPTY_LIST, FLAG, TEXT, checked, integer, is_list
from ._json import COUNT_MAX, FrozenTuple, shown
from ._record import Record
from ._values import Value, check_in_subclass, constructed
from .errors import InvalidValueError

__all__ = [
    "ActivityEnd", "ActivityHandling", "ActivityStart", "AudioStreamEnd", "AudioTranscriptionConfig",
    "AutomaticActivityDetection", "ContextWindowCompressionConfig", "EndSensitivity", "LiveResumption",
    "LiveValue", "Modality", "PrebuiltVoiceConfig", "RealtimeInputConfig",
    "SessionResumptionConfig", "SlidingWindow", "SpeechConfig", "StartSensitivity", "TurnCoverage", "VoiceConfig",
    "setting_of",
]


class LiveValue(Value):
    """The base of these settings."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, by their names; those of other settings are dicts, too."""
        kind: Any = type(self)  # every subclass is an attrs class
        held = {field.name: getattr(self, field.name) for field in attrs.fields(kind)}
        return {
            name: value.to_dict() if isinstance(value, LiveValue) else list(value) if is_list(value) else value
            for name, value in held.items()
            if value is not None and value != ()
        }


def setting_of(cls: Any) -> Callable[[object, str], Any]:
    """The check of a field that holds one of *cls*: it takes a dict of its fields, too."""

    def check(value: object, path: str) -> Any:
        if isinstance(value, cls):
            return value
        detail = ""
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            try:
                return cls(**value)
            except TypeError as error:
                detail = f": {error}"
        names = ", ".join(sorted(field.name for field in attrs.fields(cls)))
        expected = f"expected a {cls.__name__}, or a dict of its fields {names}"
        raise InvalidValueError(path, f"{expected}, found {shown(value)}{detail}")

    return check


def _word_of(kind: type[StrEnum]) -> Callable[[object, str], str]:
    """The check of a field that holds a word of *kind*, as plain text; small letters will do."""

    def check(value: object, path: str) -> str:
        word = str.__str__(value).upper() if isinstance(value, str) else ""
        if word not in kind.__members__:
            raise InvalidValueError(path, f"expected one of {', '.join(kind)}, found {shown(value)}")
        return word

    return check


def _texts(value: object, path: str) -> tuple[str, ...]:
    if not is_list(value):
        raise InvalidValueError(path, f"expected a list of strings, found {shown(value)}")
    return FrozenTuple([_text(text, f"{path}[{index}]") for index, text in enumerate(value)])


def _text(value: object, path: str) -> str:
    text: str = TEXT["check"](value, path)
    if not text.strip():
        raise InvalidValueError(path, f"expected text that is not empty, found {shown(value)}")
    return text


def _setting(cls: Any) -> dict[str, Any]:
    return checked(setting_of(cls))


def _word(kind: type[StrEnum]) -> dict[str, Any]:
    return checked(_word_of(kind))


_TEXT = checked(_text)
_TEXTS = checked(_texts)
_COUNT = integer(0, COUNT_MAX)


# --- signals, and what a server says of its session -------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class ActivityStart(Record):
    """The user has begun to speak, as the client says; the server's own voice detection is off then."""


@attrs.frozen(eq=False, repr=False)
class ActivityEnd(Record):
    """The user has ended to speak, as the client says."""


@attrs.frozen(eq=False, repr=False)
class AudioStreamEnd(Record):
    """The microphone is off: what the server has buffered is all there is for now."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LiveResumption(Record):
    """
    How the session can be gone on with by a later connection.

    `last_taken_up` is the id of the last content (`send_content(id=...)`) that is part of the session, if the server
    tells. Without *resumable*, nothing is known for the moment; an earlier handle stays good.
    """

    handle: str | None = None
    resumable: bool = False
    last_taken_up: str | None = None


# --- words ------------------------------------------------------------------------------------------------------------


class Modality(StrEnum):
    """What a model answers in: a live one in `TEXT` or in `AUDIO`."""

    MODALITY_UNSPECIFIED = "MODALITY_UNSPECIFIED"
    TEXT = "TEXT"
    IMAGE = "IMAGE"
    AUDIO = "AUDIO"
    VIDEO = "VIDEO"


class StartSensitivity(StrEnum):
    """How easily the server finds that the user has begun to speak."""

    START_SENSITIVITY_UNSPECIFIED = "START_SENSITIVITY_UNSPECIFIED"
    START_SENSITIVITY_HIGH = "START_SENSITIVITY_HIGH"
    START_SENSITIVITY_LOW = "START_SENSITIVITY_LOW"


class EndSensitivity(StrEnum):
    """How easily the server finds that the user has stopped speaking."""

    END_SENSITIVITY_UNSPECIFIED = "END_SENSITIVITY_UNSPECIFIED"
    END_SENSITIVITY_HIGH = "END_SENSITIVITY_HIGH"
    END_SENSITIVITY_LOW = "END_SENSITIVITY_LOW"


class ActivityHandling(StrEnum):
    """Whether the user interrupts an answer by speaking."""

    ACTIVITY_HANDLING_UNSPECIFIED = "ACTIVITY_HANDLING_UNSPECIFIED"
    START_OF_ACTIVITY_INTERRUPTS = "START_OF_ACTIVITY_INTERRUPTS"
    NO_INTERRUPTION = "NO_INTERRUPTION"


class TurnCoverage(StrEnum):
    """What of the user's input belongs to a turn: all of it, or what came while they spoke."""

    TURN_COVERAGE_UNSPECIFIED = "TURN_COVERAGE_UNSPECIFIED"
    TURN_INCLUDES_ONLY_ACTIVITY = "TURN_INCLUDES_ONLY_ACTIVITY"
    TURN_INCLUDES_ALL_INPUT = "TURN_INCLUDES_ALL_INPUT"
    TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO = "TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"


# --- voices and transcripts -------------------------------------------------------------------------------------------


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class PrebuiltVoiceConfig(LiveValue):
    """A voice by the name that the provider gives it, such as `"Kore"` or `"marin"`."""

    voice_name: str | None = attrs.field(default=None, validator=check_in_subclass, metadata=_TEXT)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class VoiceConfig(LiveValue):
    """Which voice speaks."""

    prebuilt_voice_config: PrebuiltVoiceConfig | None = attrs.field(
        default=None, validator=check_in_subclass, metadata=_setting(PrebuiltVoiceConfig)
    )


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class SpeechConfig(LiveValue):
    """How a model speaks: with which voice, and in which language (`"de-DE"`)."""

    voice_config: VoiceConfig | None = attrs.field(default=None, metadata=_setting(VoiceConfig))
    language_code: str | None = attrs.field(default=None, validator=check_in_subclass, metadata=_TEXT)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class AudioTranscriptionConfig(LiveValue):
    """
    How speech is written down.

    Args:
        language_codes: Which languages to expect (`["en-US"]`); empty: the server finds out.
        custom_vocabulary: Words and names that are more likely than they seem.
        mode: The provider's word for how closely to write, such as `"VERBATIM"` or `"SMART"`.
    """

    language_codes: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=_TEXTS)
    custom_vocabulary: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=_TEXTS)
    mode: str | None = attrs.field(default=None, validator=check_in_subclass, metadata=_TEXT)


# --- turns ------------------------------------------------------------------------------------------------------------


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class AutomaticActivityDetection(LiveValue):
    """
    How the server finds out when the user speaks.

    Args:
        disabled: It does not: the client says so, with `send_activity_start` and `send_activity_end`.
        start_of_speech_sensitivity: A StartSensitivity.
        end_of_speech_sensitivity: An EndSensitivity.
        prefix_padding_ms: How much of what came before the speech is part of it, in milliseconds.
        silence_duration_ms: How long a silence ends the speech, in milliseconds.
    """

    disabled: bool | None = attrs.field(default=None, metadata=FLAG)
    start_of_speech_sensitivity: str | None = attrs.field(default=None, metadata=_word(StartSensitivity))
    end_of_speech_sensitivity: str | None = attrs.field(default=None, metadata=_word(EndSensitivity))
    prefix_padding_ms: int | None = attrs.field(default=None, metadata=_COUNT)
    silence_duration_ms: int | None = attrs.field(default=None, validator=check_in_subclass, metadata=_COUNT)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class RealtimeInputConfig(LiveValue):
    """What becomes of sound and pictures: when a turn begins and ends, what it holds, whether it interrupts."""

    automatic_activity_detection: AutomaticActivityDetection | None = attrs.field(
        default=None, metadata=_setting(AutomaticActivityDetection)
    )
    activity_handling: str | None = attrs.field(default=None, metadata=_word(ActivityHandling))
    turn_coverage: str | None = attrs.field(default=None, validator=check_in_subclass, metadata=_word(TurnCoverage))


# --- sessions of the provider -----------------------------------------------------------------------------------------


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class SessionResumptionConfig(LiveValue):
    """
    How a later connection goes on with the provider's session.

    Args:
        handle: The handle to begin with, of an earlier run; None: the runtime keeps those of this run itself.
        transparent: The server also says which message it has taken up last, where it can.
    """

    handle: str | None = attrs.field(default=None, metadata=_TEXT)
    transparent: bool | None = attrs.field(default=None, validator=check_in_subclass, metadata=FLAG)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class SlidingWindow(LiveValue):
    """That the oldest of the context is dropped, until so many tokens are left; None leaves it to the provider."""

    target_tokens: int | None = attrs.field(default=None, validator=check_in_subclass, metadata=_COUNT)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class ContextWindowCompressionConfig(LiveValue):
    """That the server makes the context shorter, once it has so many tokens; None leaves it to the provider."""

    trigger_tokens: int | None = attrs.field(default=None, metadata=_COUNT)
    sliding_window: SlidingWindow | None = attrs.field(
        default=None, validator=check_in_subclass, metadata=_setting(SlidingWindow)
    )
