"""
What a RunConfig says of a live run: names that it takes, values that it refuses, and what a connection is told of it.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from google.genai import types as peer

from minirun import InMemoryRunner, LlmAgent, RunConfig, StreamingMode, types
from minirun._adk import ADVICE
from minirun.agents._live_config import live_config, live_deadline, live_settings
from minirun.errors import ConfigurationError, InvalidValueError, NotSupportedError
from minirun.models import LiveConnectConfig
from minirun.runtime import LiveSettings
from minirun.testing import ScriptedLlm

# What ADK's live settings are called in google.genai.types; fields of these that are refused here are so by name.
SETTINGS = (
    "AudioTranscriptionConfig", "AutomaticActivityDetection", "ContextWindowCompressionConfig",
    "PrebuiltVoiceConfig", "RealtimeInputConfig", "SessionResumptionConfig", "SlidingWindow",
    "SpeechConfig", "VoiceConfig",
)  # fmt: skip
WORDS = ("ActivityHandling", "EndSensitivity", "Modality", "StartSensitivity", "TurnCoverage")
SPEECH = types.SpeechConfig(
    voice_config=types.VoiceConfig(prebuilt_voice_config=types.PrebuiltVoiceConfig(voice_name="Kore")),
    language_code="de-DE",
)


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_run_config_takes_the_names_of_live_settings() -> None:
    """
    They are given flat, and read from `live`, typed; a RunConfig that was given none has none.
    """
    config = RunConfig(response_modalities=["TEXT"], max_llm_calls=7)
    assert isinstance(config.live, LiveSettings)
    idle_s: float | None = config.live.idle_s
    assert (config.live.response_modalities, idle_s) == (("TEXT",), 300.0)
    assert config.max_llm_calls == 7
    assert RunConfig(max_llm_calls=7).live is None
    assert RunConfig(live=LiveSettings(idle_s=5)) == RunConfig(idle_s=5)


def test_a_copy_of_a_run_config_keeps_its_live_settings() -> None:
    """
    `attrs.evolve` takes them over, and changes one of them by its name; equal settings are equal.
    """
    config = RunConfig(idle_s=5, speech_config=SPEECH)
    assert attrs.evolve(config, max_tokens=9).live == config.live
    changed = attrs.evolve(config, idle_s=None)  # type: ignore[call-arg]  # mypy knows the attributes alone
    assert changed.live == LiveSettings(speech_config=SPEECH, idle_s=None)
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config


def test_a_misspelled_name_is_refused_with_the_one_that_is_near() -> None:
    """
    What RunConfig does not take is a TypeError, which names the nearest of all that it takes.
    """
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'idle_ss'; did you mean 'idle_s'\?"):
        RunConfig(idle_ss=5)
    with pytest.raises(TypeError, match="did you mean 'max_llm_calls'"):
        RunConfig(max_llm_call=5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'; it takes streaming_mode, "):
        RunConfig(colour="red")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("avatar_config", "shows a face"),
        ("enable_affective_dialog", "leave it out"),
        ("explicit_vad_signal", "leave it out"),
        ("history_config", "sends the history itself"),
        ("proactivity", "leave it out"),
        ("save_live_audio", "audio is not stored"),
        ("save_live_blob", "audio is not stored"),
        ("support_cfc", "Runner.run_live"),
        ("tool_thread_pool_config", "worker threads anyway"),
        ("translation_config", "instruction of the agent"),
    ],
)
def test_what_no_live_run_could_honour_is_refused_by_name(name: str, advice: str) -> None:
    """
    ADK's other live settings are refused with what to do instead, whatever their value.
    """
    with pytest.raises(NotSupportedError, match=rf"RunConfig\.{name} has no effect .*{advice}"):
        RunConfig(**{name: None})  # type: ignore[arg-type]  # that is the point


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("idle_s", "3"), ("idle_s", True), ("idle_s", 0), ("idle_s", float("nan")), ("response_modalities", "AUDIO"),
        ("response_modalities", ["TEXT", "AUDIO"]), ("response_modalities", ["VIDEO"]), ("response_modalities", [1]),
        ("response_modalities", []), ("speech_config", "Kore"), ("speech_config", {"vioce_config": None}),
        ("speech_config", {"voice_config": {"prebuilt_voice_config": {"voice_name": 3}}}),
        ("output_audio_transcription", True), ("realtime_input_config", {"turn_coverage": "ALL"}),
        ("realtime_input_config", {"automatic_activity_detection": {"silence_duration_ms": -1}}),
        ("context_window_compression", {"trigger_tokens": "many"}), ("live", {"idle_s": 3}),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(name: str, bad: Any) -> None:
    """
    The error is the one of all other fields, and names field, expectation and what was found.
    """
    with pytest.raises(ConfigurationError, match=rf"^RunConfig\.{name}: .*expected .*, found "):
        RunConfig(**{name: bad})


def test_all_defaults_are_as_documented() -> None:
    """
    A live run speaks, writes both sides down, and has its limits; None for the modalities is ADK's default.
    """
    silent = types.AudioTranscriptionConfig()
    assert {field.name: getattr(LiveSettings(), field.name) for field in attrs.fields(LiveSettings)} == {
        "response_modalities": ("AUDIO",),
        "speech_config": None,
        "output_audio_transcription": silent,
        "input_audio_transcription": silent,
        "realtime_input_config": None,
        "session_resumption": None,
        "context_window_compression": None,
        "idle_s": 300.0,
    }
    assert live_settings(RunConfig(response_modalities=None)) == LiveSettings()
    assert live_settings(RunConfig(response_modalities=[types.Modality.TEXT])).response_modalities == ("TEXT",)


# --- for a connection -------------------------------------------------------------------------------------------------


def test_a_connection_is_told_plain_dicts() -> None:
    """
    Settings become dicts without what is not set, whether they were given as objects or as dicts; None stays None.
    """
    detection = {"disabled": True, "end_of_speech_sensitivity": "end_sensitivity_low", "prefix_padding_ms": 300}
    settings = live_settings(
        RunConfig(
            speech_config=SPEECH,
            input_audio_transcription=None,
            output_audio_transcription={"language_codes": ["de-DE", "en-US"]},
            realtime_input_config={
                "automatic_activity_detection": detection,
                "activity_handling": types.ActivityHandling.NO_INTERRUPTION,
            },
            session_resumption=types.SessionResumptionConfig(handle="h0", transparent=True),
            context_window_compression={"sliding_window": {"target_tokens": 0}},
        )
    )
    assert settings.handle == "h0"
    assert settings.connect_config(handle="h1") == LiveConnectConfig(
        handle="h1",
        response_modalities=("AUDIO",),
        speech_config={
            "voice_config": {"prebuilt_voice_config": {"voice_name": "Kore"}},
            "language_code": "de-DE",
        },
        output_audio_transcription={"language_codes": ["de-DE", "en-US"]},
        input_audio_transcription=None,
        realtime_input_config={
            "automatic_activity_detection": {**detection, "end_of_speech_sensitivity": "END_SENSITIVITY_LOW"},
            "activity_handling": "NO_INTERRUPTION",
        },
        session_resumption={"transparent": True},
        context_window_compression={"sliding_window": {"target_tokens": 0}},
    )
    plain = LiveSettings()
    assert plain.handle is None
    assert plain.connect_config() == LiveConnectConfig()


# --- live, and in writing ---------------------------------------------------------------------------------------------


def test_a_live_run_has_a_deadline_only_if_one_was_given() -> None:
    """
    The hour of other runs is none of a live one; the same number, given, is; copies remember which it was.
    """
    plain, given = RunConfig(), RunConfig(deadline_s=3600.0)
    assert plain == given
    assert plain.deadline_s == 3600.0
    assert live_deadline(plain) is None
    assert live_deadline(attrs.evolve(plain, max_tokens=5)) is None
    assert live_deadline(pickle.loads(pickle.dumps(plain))) is None
    assert live_deadline(given) == 3600.0
    assert live_deadline(attrs.evolve(given, max_tokens=5)) == 3600.0
    assert live_deadline(RunConfig(deadline_s=None)) is None


def test_the_config_of_a_live_run_has_all_that_holds_in_it() -> None:
    """
    It has live settings, and no deadline by itself; ADK's streaming mode of live runs is taken, that of others is not.
    """
    assert live_config(None) == RunConfig(live=LiveSettings(), deadline_s=None)
    config = RunConfig(streaming_mode=StreamingMode.BIDI, idle_s=3, deadline_s=60)
    assert live_config(config) == config
    with pytest.raises(NotSupportedError, match=r"StreamingMode\.SSE has no effect in a live run.*StreamingMode\.BIDI"):
        live_config(RunConfig(streaming_mode=StreamingMode.SSE))
    with pytest.raises(ConfigurationError, match="expected a RunConfig, found 'BIDI'"):
        live_config("BIDI")  # type: ignore[arg-type]  # that is the point


WRITING: list[tuple[RunConfig, str]] = [
    (RunConfig(idle_s=5, response_modalities=["TEXT"]), r"\(response_modalities=\.\.\., idle_s=\.\.\.\) has no effect"),
    (RunConfig(idle_s=300.0), r"\(live=\.\.\.\) has no effect in Runner\.run_async, only in Runner\.run_live"),
    (RunConfig(context_window_compression={}), r"events_compaction_config"),
    (RunConfig(streaming_mode=StreamingMode.BIDI), r"StreamingMode\.BIDI .*use NONE or SSE there, or Runner\.run_live"),
]


@pytest.mark.parametrize(("config", "message"), WRITING)
async def test_a_run_in_writing_refuses_what_is_for_live_runs(config: RunConfig, message: str) -> None:
    """
    `run_async`, `resume_due`, `supervise`, a rewind and a sync run refuse it before anything is stored.
    """
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=ScriptedLlm([])), auto_create_session=True)
    place: dict[str, Any] = {"user_id": "u", "session_id": "s"}
    runs: list[Callable[[], Any]] = [
        lambda: runner.run_async(**place, new_message="hi", run_config=config),
        lambda: runner.run(**place, new_message="hi", run_config=config),
    ]
    for run in runs:
        with pytest.raises(NotSupportedError, match=message):
            run()
    with pytest.raises(NotSupportedError, match=message):
        await runner.resume_due(run_config=config)
    with pytest.raises(NotSupportedError, match=message):
        await runner.supervise(run_config=config)
    with pytest.raises(NotSupportedError, match=message):
        await runner.rewind_async(**place, rewind_before_invocation_id="e-1", run_config=config)
    assert (await runner.session_service.list_sessions(app_name=runner.app_name, user_id="u")).sessions == []


def test_runs_in_writing_load_nothing_of_live_ones() -> None:
    """
    A program whose RunConfig has no live setting imports none of the modules for them, its copies included.
    """
    program = (
        "import sys, attrs\nfrom minirun import LlmAgent, RunConfig, InMemoryRunner\n"
        "from minirun.testing import ScriptedLlm\n"
        "runner = InMemoryRunner(agent=LlmAgent(name='a', model=ScriptedLlm(['hi'])), auto_create_session=True)\n"
        "config = attrs.evolve(RunConfig(max_llm_calls=3), max_tokens=5)\n"
        "[*runner.run(user_id='u', session_id='s', new_message='hi', run_config=config)]\n"
        "print([name for name in sys.modules if name.startswith('minirun.') and '_live' in name.rpartition('.')[2]])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['minirun.sessions._live']\n", "")


# --- ADK's types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_fields_of_the_peer_s_or_refuses_them(name: str) -> None:
    """
    There are no others; those that are refused are so with a reason, in a dict, too.
    """
    ours: Any = getattr(types, name)
    fields = {field.name for field in attrs.fields(ours)}
    theirs = getattr(peer, name).model_fields.keys()
    advised = {key.partition(".")[2] for key in ADVICE if key.startswith(f"{name}.")}
    print(f"{name}: neither taken nor refused by name: {sorted(theirs - fields - advised)}")
    assert fields <= theirs
    assert fields.isdisjoint(advised)
    for refused in advised:
        with pytest.raises(NotSupportedError, match=rf"{name}\.{refused} has no effect in this version of minirun; "):
            ours(**{refused: None})
    assert ours() == ours(**dict.fromkeys(fields & {"handle", "voice_name", "disabled", "trigger_tokens"}))
    assert ours.from_json(ours().to_json()) == ours()


@pytest.mark.parametrize("name", WORDS)
def test_words_are_those_of_the_peer(name: str) -> None:
    """
    An enumeration has the members of google.genai.types, each of which is its text.
    """
    assert [*getattr(types, name)] == [member.value for member in getattr(peer, name)]
    assert all(member.name == member.value == member for member in getattr(types, name))


def test_a_setting_is_a_value() -> None:
    """
    It is compared by content, written and read as JSON, pickled, and made of dicts and words in small letters.
    """
    made = types.RealtimeInputConfig(
        automatic_activity_detection={"silence_duration_ms": 500},  # type: ignore[arg-type]  # mypy: the object alone
        turn_coverage="turn_includes_all_input",
    )
    assert made == types.RealtimeInputConfig(
        automatic_activity_detection=types.AutomaticActivityDetection(silence_duration_ms=500),
        turn_coverage=types.TurnCoverage.TURN_INCLUDES_ALL_INPUT,
    )
    assert types.RealtimeInputConfig.from_json(made.to_json()) == pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(NotSupportedError, match=r"VoiceConfig\.replicated_voice_config"):
        RunConfig(speech_config={"voice_config": {"replicated_voice_config": {}}})
    with pytest.raises(InvalidValueError, match=r"language_codes\[1\]: expected text that is not empty"):
        types.AudioTranscriptionConfig(language_codes=["en", " "])
