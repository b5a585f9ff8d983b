"""
What a RunConfig says of a live run: `RunConfig(idle_s=60.0, response_modalities=["AUDIO"]).live`.

Loaded when a RunConfig is given one of these settings, or a live run begins; runs in writing never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from .._fields import is_list, setting
from .._json import brief, is_seconds
from .._live_types import (
    AudioTranscriptionConfig,
    ContextWindowCompressionConfig,
    LiveValue,
    Modality,
    RealtimeInputConfig,
    SessionResumptionConfig,
    SpeechConfig,
    setting_of,
)
from .._record import Record
from ..errors import ConfigurationError, InvalidValueError
from ._live import LiveConnectConfig

__all__ = ["LiveSettings", "settings_of"]

MODALITIES = (Modality.AUDIO, Modality.TEXT)


def _wrong(name: str, expected: str, found: object) -> ConfigurationError:
    return ConfigurationError(f"RunConfig.{name}: expected {expected}, found {brief(found)}")


def _field(default: object, expected: str, fits: Callable[[Any], bool]) -> Any:
    return attrs.field(default=default, validator=setting(expected, fits, of="RunConfig"))


def _setting(cls: type[LiveValue], unset: LiveValue | None = None) -> Any:
    """A field that holds one of *cls*, or None; it is given a dict of its fields, too."""
    check = setting_of(cls)

    def convert(value: object, settings: object, field: attrs.Attribute[Any]) -> Any:
        try:
            return None if value is None else check(value, f"RunConfig.{field.name}")
        except InvalidValueError as error:
            at = "" if error.path.startswith("RunConfig.") else f"RunConfig.{field.name}: "
            raise ConfigurationError(f"{at}{error}") from None

    return attrs.field(default=unset, converter=attrs.Converter(convert, takes_self=True, takes_field=True))


def _modalities(value: Any) -> tuple[str, ...]:
    given = tuple(value) if is_list(value) else ()
    words = tuple(each.upper() for each in given if isinstance(each, str))
    if value is None:
        return ("AUDIO",)
    if len(given) != 1 or words not in [(each.value,) for each in MODALITIES]:
        expected = "['AUDIO'] or ['TEXT']: a live model answers in one of them, and tells the text of its speech, too"
        raise _wrong("response_modalities", expected, value)
    return tuple(str.__str__(word) for word in words)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LiveSettings(Record):
    """
    Settings of a live run, with ADK's names where it has them. RunConfig takes each of them by its name.

    What is a setting of its own, such as a SpeechConfig of `minirun.types`, is given as a dict of its fields, too. What
    the provider of the model does not have, its adapter refuses when it connects.

    Args:
        response_modalities: `["AUDIO"]` or `["TEXT"]`.
        speech_config: How the model speaks; None leaves it to the provider.
        output_audio_transcription: How the model's speech is written down; None: not at all.
        input_audio_transcription: How the user's speech is written down; None: not at all.
        realtime_input_config: When the user's turn begins and ends; None leaves it to the provider.
        session_resumption: Which session of the provider to begin with; None: a new one.
        context_window_compression: When the provider drops what is old; None leaves it to the provider.
        idle_s: After how many seconds without a word of anybody the run ends; None: never.
    """

    response_modalities: Sequence[str] = attrs.field(default=("AUDIO",), converter=_modalities)
    speech_config: SpeechConfig | None = _setting(SpeechConfig)
    output_audio_transcription: AudioTranscriptionConfig | None = _setting(
        AudioTranscriptionConfig, AudioTranscriptionConfig()
    )
    input_audio_transcription: AudioTranscriptionConfig | None = _setting(
        AudioTranscriptionConfig, AudioTranscriptionConfig()
    )
    realtime_input_config: RealtimeInputConfig | None = _setting(RealtimeInputConfig)
    session_resumption: SessionResumptionConfig | None = _setting(SessionResumptionConfig)
    context_window_compression: ContextWindowCompressionConfig | None = _setting(ContextWindowCompressionConfig)
    idle_s: float | None = _field(300.0, "seconds above 0, or None", lambda s: s is None or is_seconds(s, above=0))

    @property
    def handle(self) -> str | None:
        """The handle of the provider's session to begin with, if one was given."""
        return None if self.session_resumption is None else self.session_resumption.handle

    @property
    def changed(self) -> list[str]:
        """The names of the settings that are not as by default."""
        return [field.name for field in attrs.fields(LiveSettings) if getattr(self, field.name) != field.default]

    def connect_config(self, *, handle: str | None = None) -> LiveConnectConfig:
        """
        Return what a connection is made with: these settings as plain dicts, each without what is not set.

        *handle* is that of the session to go on with; the one that was given to begin with is not taken from here.
        """
        names = [field.name for field in attrs.fields(LiveConnectConfig) if field.name != "handle"]
        held = {name: getattr(self, name) for name in names}
        plain: dict[str, Any] = {
            name: value.to_dict() if isinstance(value, LiveValue) else value for name, value in held.items()
        }
        if plain["session_resumption"] is not None:
            plain["session_resumption"].pop("handle", None)
        return LiveConnectConfig(handle=handle, **plain)


def settings_of(of: type, live: object, given: Mapping[str, Any], known: Iterable[str]) -> LiveSettings:
    """
    Return the live settings of a RunConfig (*of*) with *live* and these other arguments; *known* are its own.

    Raises:
        NotSupportedError: One of them is an option of ADK's that would have no effect.
        TypeError: One of them is none that a RunConfig takes.
        ConfigurationError: One of them has a value that it cannot have.
    """
    names = [field.name for field in attrs.fields(LiveSettings)]
    for name in given:
        if name not in names:
            from .._adk import refusal  # nothing of the kind is given by programs that run

            raise refusal(of, name, [*known, *names])
    if live is not None and not isinstance(live, LiveSettings):
        raise _wrong("live", "LiveSettings, or None", live)
    return attrs.evolve(live or LiveSettings(), **given)
