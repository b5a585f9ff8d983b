"""
What events of OpenAI's realtime API mean, and what has to be sent then; no server, every event as the types have it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.realtime.realtime_client_event_param import RealtimeClientEventParam
from openai.types.realtime.realtime_server_event import RealtimeServerEvent

from minirun.errors import ModelRequestError
from minirun.models import ActivityEnd, ActivityStart, LiveConnectConfig, LlmResponse
from minirun.models._pcm import rate_of
from minirun.models._wire_openai_realtime import Conversation
from minirun.models._wire_openai_session import RealtimeApi
from minirun.types import Blob, Content, FileData, FunctionCall, FunctionResponse, GenerateContentConfig, Part

from ..examples import examples
from ..provider_servers.strict import problem_with

_known: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(RealtimeServerEvent)
SOUND = base64.b64encode(bytes(4800)).decode()  # 100 ms
MANUAL = {"automatic_activity_detection": {"disabled": True}}


class Talk:
    """A conversation, and what it has wanted to send."""

    def __init__(self, **live: Any) -> None:
        api = RealtimeApi((), {"model": "gpt-transcribe"}, None)
        self.state = Conversation(api.session(GenerateContentConfig(), LiveConnectConfig(**live)))
        self.sent: list[dict[str, Any]] = []

    def send(self, events: Sequence[dict[str, Any]]) -> list[str]:
        """Check what is sent against the types; return the kinds."""
        for event in events:
            assert problem_with(event, RealtimeClientEventParam, "event") is None
        self.sent.extend(events)
        return [event["type"] for event in events]

    def take(self, kind: str, **fields: Any) -> list[LlmResponse]:
        event = {"type": kind, "event_id": "event_1", **fields}
        _known.validate_python(event)
        responses, events = self.state.take(event)
        self.send(events)
        return responses

    def say(self, text: str) -> list[str]:
        content = Content(role="user", parts=[Part(text=text)])
        return self.send(self.state.items_of(content, None)) + self.send(self.state.want())

    def taken_up(self) -> None:
        """The server has taken up everything."""
        for event in self.sent:
            if event["type"] == "conversation.item.create":
                self.take("conversation.item.added", item=event["item"])

    def begin(self, id: str = "resp_1") -> None:
        self.take("response.created", response={"id": id, "status": "in_progress"})

    def end(self, status: str = "completed", id: str = "resp_1", **fields: Any) -> list[LlmResponse]:
        return self.take("response.done", response={"id": id, "status": status, **fields})

    def piece(self, kind: str, delta: str, id: str = "resp_1", item_id: str = "item_1") -> list[LlmResponse]:
        where = {"response_id": id, "item_id": item_id, "output_index": 0, "content_index": 0}
        return self.take(f"response.{kind}.delta", delta=delta, **where)

    def whole(self, kind: str, item_id: str = "item_1", **fields: Any) -> list[LlmResponse]:
        where = {"response_id": "resp_1", "item_id": item_id, "output_index": 0, "content_index": 0}
        return self.take(f"response.{kind}.done", **where, **fields)

    def refuse(self, event_id: str | None, code: str) -> list[LlmResponse]:
        error = {"type": "invalid_request_error", "code": code, "message": "No.", "event_id": event_id}
        return self.take("error", error=error)

    def speech(self, what: str) -> list[LlmResponse]:
        ms = {"started": "audio_start_ms", "stopped": "audio_end_ms"}[what]
        return self.take(f"input_audio_buffer.speech_{what}", item_id="item_user", **{ms: 0})

    @property
    def asked(self) -> int:
        return sum(event["type"] == "response.create" for event in self.sent)


def result(id: str) -> Content:
    return Content(role="user", parts=[Part(function_response=FunctionResponse(id=id, name="look", response={}))])


def calling(*ids: str) -> Content:
    return Content(role="model", parts=[Part(function_call=FunctionCall(id=id, name="look")) for id in ids])


# --- one answer at a time ---------------------------------------------------------------------------------------------


def test_the_server_is_asked_when_it_has_ended() -> None:
    """
    Between the question and the end of its answer, wishes are kept; they are one question then.
    """
    talk = Talk()
    assert talk.say("a") == ["conversation.item.create", "response.create"]
    assert talk.say("b") == ["conversation.item.create"]
    talk.begin()
    assert talk.say("c") == ["conversation.item.create"]
    talk.end()
    assert talk.asked == 2
    talk.begin("resp_2")
    talk.end(id="resp_2")
    assert talk.asked == 2


def test_an_answer_that_the_server_has_begun_first() -> None:
    """
    A question that crosses an answer that the server has begun by itself is asked again after that, and nobody is told.
    """
    talk = Talk()
    talk.say("a")
    question = talk.sent[-1]["event_id"]
    talk.begin("resp_auto")
    assert talk.refuse(question, "conversation_already_has_active_response") == []
    assert talk.asked == 1
    talk.end(id="resp_auto")
    assert talk.asked == 2


def test_a_refusal_without_an_answer_is_asked_again_once() -> None:
    """
    If the answer that stood in the way has ended already, the question is asked again at once, and once only.
    """
    talk = Talk()
    talk.say("a")
    talk.refuse(talk.sent[-1]["event_id"], "conversation_already_has_active_response")
    assert talk.asked == 2
    talk.refuse(talk.sent[-1]["event_id"], "conversation_already_has_active_response")
    assert talk.asked == 2


def test_a_question_that_is_refused_ends_the_turn() -> None:
    """
    If the server does not answer for another reason, the turn is over, and the next question is asked.
    """
    talk = Talk()
    talk.say("a")
    [told] = talk.refuse(talk.sent[-1]["event_id"], "rate_limit_exceeded")
    assert (told.error_code, told.error_message, told.turn_complete) == ("rate_limit_exceeded", "No.", True)
    talk.say("b")
    assert talk.asked == 2


def test_a_question_that_is_refused_takes_its_cancellation_along() -> None:
    """
    Who has stopped a question that was refused then has not stopped the next one.
    """
    talk = Talk()
    talk.say("a")
    talk.send(talk.state.cancel())
    talk.refuse(talk.sent[-1]["event_id"], "rate_limit_exceeded")
    talk.say("b")
    talk.begin()
    assert talk.sent[-1]["type"] == "response.create"


def test_an_error_about_nothing_that_was_asked_is_told() -> None:
    """
    That there is an answer already, said of no question of this side, has nothing asked again, and is told.
    """
    talk = Talk()
    talk.say("a")
    [told] = talk.refuse(None, "conversation_already_has_active_response")
    assert (told.error_code, told.turn_complete) == ("conversation_already_has_active_response", None)
    assert talk.asked == 1


def test_an_error_about_a_question_that_was_answered_ends_no_turn() -> None:
    """
    A question is done with when its answer has ended: an error that names it later is told, and no more.
    """
    talk = Talk()
    talk.say("a")
    question = talk.sent[-1]["event_id"]
    talk.begin()
    talk.end()
    [told] = talk.refuse(question, "server_error")
    assert (told.error_code, told.turn_complete) == ("server_error", None)


def test_what_an_utterance_does_to_errors() -> None:
    """
    An utterance that is refused ends the turn, also after the end of an answer; one that was taken is done with, and
    the question about it is not.
    """
    talk = Talk(realtime_input_config=MANUAL)
    talk.begin()
    [commit] = talk.state.realtime(ActivityEnd())
    talk.end()
    [told] = talk.refuse(commit["event_id"], "input_audio_buffer_commit_empty")
    assert told.turn_complete is True
    [commit] = talk.state.realtime(ActivityEnd())
    [question] = talk.state.want()
    talk.take("input_audio_buffer.committed", item_id="u1", previous_item_id=None)
    assert talk.refuse(commit["event_id"], "server_error")[0].turn_complete is None
    assert talk.refuse(question["event_id"], "server_error")[0].turn_complete is True


def test_while_the_user_speaks_the_server_is_not_asked() -> None:
    """
    What the server answers by itself, after the user's words, answers everything that it has taken up by then.
    """
    talk = Talk()
    talk.speech("started")
    talk.say("look")
    talk.speech("stopped")
    assert talk.asked == 0
    talk.taken_up()
    talk.begin()
    talk.end()
    assert talk.asked == 0


def test_an_answer_to_the_voice_does_not_answer_what_came_after_it() -> None:
    """
    What the server has not taken up when it begins by itself is asked for afterwards.
    """
    for says_first in (True, False):
        talk = Talk()
        talk.speech("started")
        if says_first:
            talk.say("and this?")
        talk.speech("stopped")
        talk.begin()
        if not says_first:
            talk.say("and this?")
        talk.end()
        assert talk.asked == 1


def test_results_are_answered_together() -> None:
    """
    The server is asked after the last result of an answer's calls, or when it has ended if that is later.
    """
    talk = Talk()
    talk.begin()
    calls = [
        {"id": f"item_{id}", "type": "function_call", "name": "look", "call_id": id, "arguments": "{}"}
        for id in ("a", "b")
    ]
    [end] = talk.end(output=calls)
    assert end.content is not None
    assert [call.id for call in end.content.calls] == ["a", "b"]
    for id, asked in (("b", 0), ("a", 1)):
        talk.send(talk.state.items_of(result(id), None))
        talk.send(talk.state.want(answers_calls=True))
        assert talk.asked == asked


def test_old_calls_of_a_history_are_not_waited_for() -> None:
    """
    A call that has no result, though the user has said something after it, keeps nobody waiting.
    """
    talk = Talk()
    user = Content(role="user", parts=[Part(text="never mind, look there")])
    talk.send(list(talk.state.history([calling("a"), user, calling("b")])))
    talk.send(talk.state.items_of(result("b"), None))
    talk.send(talk.state.want(answers_calls=True))
    assert talk.asked == 1


def test_what_answers_no_call_is_asked_at_once() -> None:
    """
    While calls wait for results, what the user says is answered all the same.
    """
    talk = Talk()
    talk.send(list(talk.state.history([calling("a")])))
    talk.say("and?")
    assert talk.asked == 1


@pytest.mark.parametrize("later", [Content(role="model", parts=[Part(text="hm")]), result("b")], ids=["words", "one"])
def test_calls_of_a_history_wait_on(later: Content) -> None:
    """
    Calls at the end of a history wait for their results, though the model has said more or one of them has its own.
    """
    talk = Talk()
    talk.send(list(talk.state.history([calling("a", "b"), later])))
    talk.send(talk.state.items_of(result("b"), None))
    assert talk.state.want(answers_calls=True) == []
    talk.send(talk.state.items_of(result("a"), None))
    talk.send(talk.state.want(answers_calls=True))
    assert talk.asked == 1


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["say", "begin", "end", "auto", "cancel", "start", "stop", "refuse"]), max_size=30))
def test_the_server_is_never_asked_twice(steps: list[str]) -> None:
    """
    Whatever happens in whatever order, there is one question at a time, and what was said is asked for in the end.
    """
    talk = Talk()
    asked = active = owed = speaks = 0  # what the server has been asked and not begun; what it says
    for step in steps:
        before = talk.asked
        if step == "say":
            talk.say("x")
            owed = 1
        elif step == "begin" and asked and not active:
            talk.begin()
            asked, active, owed = 0, 1, 0
        elif step == "auto" and not asked and not active:
            talk.taken_up()
            talk.begin()
            active, owed = 1, 0
        elif step == "refuse" and asked and not active:
            talk.refuse(talk.sent[-1]["event_id"], "server_error")
            asked = owed = 0
        elif step == "end" and active:
            active = 0
            talk.end()
        elif step == "cancel":
            talk.send(talk.state.cancel())
        elif step == "start":
            talk.speech("started")
            speaks = 1
        elif step == "stop":
            talk.speech("stopped")
            speaks = 0
        asked += talk.asked - before
        assert asked + active <= 1
    if speaks:
        talk.speech("stopped")
    talk.begin()
    talk.end()
    talk.say("last")
    assert talk.asked >= owed


# --- cutting off ------------------------------------------------------------------------------------------------------


def test_nothing_is_shown_after_an_interruption() -> None:
    """
    Sound, transcript and calls of an answer that the voice has cut off are on their way, and are not shown.
    """
    talk = Talk()
    talk.begin()
    talk.piece("output_audio", SOUND)
    started, cut = talk.speech("started")
    assert (started.speech_started, started.item_id) == (True, "item_user")
    assert (cut.interrupted, cut.item_id) == (True, "item_1")
    assert talk.piece("output_audio", SOUND) == []
    assert len(talk.piece("output_audio", SOUND, id="resp_of_nobody", item_id="item_0")) == 1
    assert talk.piece("output_audio_transcript", "more") == []
    assert talk.whole("output_audio_transcript", transcript="more") == []
    call = {"id": "item_2", "type": "function_call", "name": "look", "call_id": "a", "arguments": "{}"}
    [end] = talk.end("cancelled", output=[call])
    assert (end.turn_complete, end.interrupted, end.content) == (True, None, None)
    [event] = talk.state.truncate("item_1", 10_000)
    assert event["audio_end_ms"] == 100
    talk.begin("resp_2")
    assert len(talk.piece("output_audio", SOUND, id="resp_2", item_id="item_3")) == 1


@example(47, 9)
@example(95, 9)
@given(st.integers(1, 20_000), st.integers(-10, 10_000))
def test_truncation_stays_within_what_was_shown(size: int, played_ms: int) -> None:
    """
    An answer is truncated to 1 millisecond at least, and to what was shown at most; without sound not at all.
    """
    talk = Talk()
    talk.begin()
    talk.piece("output_audio", base64.b64encode(bytes(size)).decode())
    events = talk.state.truncate("item_1", played_ms)
    talk.send(events)
    assert [event["audio_end_ms"] for event in events] == ([min(max(played_ms, 1), size // 48)] if size >= 48 else [])


def test_of_old_answers_nothing_is_kept() -> None:
    """
    How much was shown is known of the newest 64 answers only.
    """
    talk = Talk()
    talk.begin()
    for number in range(65):
        talk.piece("output_audio", SOUND, item_id=f"item_{number}")
    assert talk.state.truncate("item_0", 5) == []
    assert len(talk.state.truncate("item_1", 5)) == 1


def test_an_answer_that_is_only_transcribed_yet_is_cut_off_by_name() -> None:
    """
    The item that was cut off is the newest of which anything was told, if only words of its transcript.
    """
    talk = Talk()
    talk.begin()
    talk.piece("output_audio", SOUND)
    talk.piece("output_audio_transcript", "one", item_id="item_2")
    assert talk.speech("started")[1].item_id == "item_2"


def test_an_answer_that_has_not_ended_leaves_nothing_to_the_next() -> None:
    """
    If an answer begins though the one before has not ended, it has no calls of that one, and is not cancelled with it.
    """
    talk = Talk()
    talk.say("a")
    talk.send(talk.state.cancel())
    talk.begin()
    call = {"id": "item_2", "type": "function_call", "name": "look", "call_id": "a", "arguments": "{}"}
    talk.take("response.output_item.done", response_id="resp_1", output_index=0, item=call)
    sent = len(talk.sent)
    talk.begin("resp_2")
    assert len(talk.sent) == sent
    assert talk.end(id="resp_2")[0].content is None


def test_an_answer_that_has_ended_leaves_nothing_behind() -> None:
    """
    An end that comes twice tells calls once, and a text whose item has the name of an earlier one is told whole.
    """
    talk = Talk()
    talk.begin()
    talk.piece("output_text", "on")
    call = {"id": "item_2", "type": "function_call", "name": "look", "call_id": "a", "arguments": "{}"}
    assert talk.end(output=[call])[0].content is not None
    assert talk.end()[0].content is None
    talk.begin("resp_2")
    [said] = talk.whole("output_text", text="one")
    assert said.content is not None
    assert said.content.text == "one"


def test_cancelling_before_the_answer_begins() -> None:
    """
    An answer that was asked for is cancelled as soon as it has begun; with none, there is nothing to send.
    """
    talk = Talk()
    assert talk.state.cancel() == []
    talk.say("a")
    assert talk.send(talk.state.cancel()) == []
    talk.begin("resp_7")
    assert talk.sent[-1] == {"type": "response.cancel", "event_id": talk.sent[-1]["event_id"], "response_id": "resp_7"}
    [end] = talk.end("cancelled", id="resp_7")
    assert (end.interrupted, end.turn_complete) == (True, True)
    talk.say("b")
    talk.begin("resp_8")
    assert talk.sent[-1]["type"] == "response.create"


def test_a_cancellation_that_comes_too_late_is_no_error() -> None:
    """
    An answer that has ended meanwhile could not be cancelled, and nobody is told.
    """
    talk = Talk()
    talk.begin()
    talk.send(talk.state.cancel())
    talk.end()
    assert talk.refuse(talk.sent[-1]["event_id"], "response_cancel_not_active") == []


def test_who_begins_to_speak_stops_the_answer() -> None:
    """
    With the client's signals, the beginning of an activity cancels; with NO_INTERRUPTION it does not.
    """
    for config, sent in ((MANUAL, ["response.cancel"]), ({**MANUAL, "activity_handling": "NO_INTERRUPTION"}, [])):
        talk = Talk(realtime_input_config=config)
        talk.begin()
        assert talk.send(talk.state.realtime(ActivityStart())) == sent


def test_an_utterance_of_the_client_is_wanted_if_it_has_sound() -> None:
    """
    The end of an activity commits; 100 milliseconds of sound, 4800 bytes, make it a question.
    """
    for size, wanted in ((4799, False), (4800, True)):
        talk = Talk(realtime_input_config=MANUAL)
        talk.send(talk.state.realtime(Blob(data=bytes(size), mime_type="audio/pcm")))
        assert talk.state.ends_utterance(ActivityEnd()) is wanted
        assert talk.send(talk.state.realtime(ActivityEnd())) == ["input_audio_buffer.commit"]


def test_each_utterance_needs_sound_of_its_own() -> None:
    """
    When the server has made an utterance of what it heard, the sound is counted from nothing again.
    """
    talk = Talk(realtime_input_config=MANUAL)
    for size in (4800, 4799):
        talk.send(talk.state.realtime(Blob(data=bytes(size), mime_type="audio/pcm")))
        assert talk.state.ends_utterance(ActivityEnd()) is (size == 4800)
        talk.take("input_audio_buffer.committed", item_id="u1", previous_item_id=None)


@pytest.mark.parametrize("kind", ["speech_started", "speech_stopped", "committed"])
def test_an_utterance_without_a_name(kind: str) -> None:
    """
    An utterance whose item the server does not name has no item.
    """
    talk = Talk(realtime_input_config=MANUAL)
    [[told], _] = talk.state.take({"type": f"input_audio_buffer.{kind}"})
    assert told.item_id is None


def test_a_call_that_the_server_repeats_is_told_once() -> None:
    """
    A call whose `call_id` comes again in the same response, also in another item, is one call.
    """
    talk = Talk()
    talk.begin()
    item = {"type": "function_call", "name": "look", "call_id": "c1", "arguments": "{}"}
    for id in ("i1", "i1", "i2"):
        talk.state.take({"type": "response.output_item.done", "item": {**item, "id": id}})
    output = [{**item, "id": "i1"}, {**item, "id": "i3"}, {**item, "id": "i4", "call_id": "c2"}]
    response = {"id": "r1", "status": "completed", "output": output}
    [[end], _] = talk.state.take({"type": "response.done", "response": response})
    assert end.content is not None
    assert [call.id for call in end.content.calls] == ["c1", "c2"]


# --- texts in pieces --------------------------------------------------------------------------------------------------


def test_what_is_done_repeats_nothing() -> None:
    """
    A whole text adds what has not come in pieces: all, the rest, or nothing if it reads otherwise.
    """
    for pieces, whole, rest in (
        ([], "one two", "one two"),
        (["one", " "], "one two", "two"),
        (["one two"], "one two", None),
        (["won"], "one", None),
    ):
        talk = Talk()
        talk.begin()
        for piece in pieces:
            talk.piece("output_audio_transcript", piece)
        [said] = talk.whole("output_audio_transcript", transcript=whole)
        assert said.output_transcription is not None
        assert (said.output_transcription.text, said.output_transcription.finished) == (rest, True)
        for piece in pieces:
            talk.piece("output_text", piece)
        texts = [each.content.text for each in talk.whole("output_text", text=whole) if each.content is not None]
        assert texts == ([rest] if rest else [])


def test_a_text_without_an_index_is_the_first_of_its_item() -> None:
    """
    A whole text whose place in its item is not told, or is told wrongly, adds to what came of the first.
    """
    for where in ({}, {"content_index": "0"}):
        talk = Talk()
        talk.begin()
        talk.piece("output_text", "one")
        done = {"type": "response.output_text.done", "item_id": "item_1", "text": "one two", **where}
        [[said], _] = talk.state.take(done)
        assert said.content is not None
        assert said.content.text == " two"


def test_arguments_in_pieces_are_joined() -> None:
    """
    A call whose whole has no arguments has those that came in pieces, in order, by its item.
    """
    talk = Talk()
    talk.begin()
    for item_id, delta in (("x", '{"a"'), ("y", '{"b":'), ("x", ": 1}"), ("y", "2}")):
        where = {"response_id": "resp_1", "item_id": item_id, "output_index": 0, "call_id": f"call_{item_id}"}
        talk.take("response.function_call_arguments.delta", delta=delta, **where)
    for item_id in ("x", "y"):
        item = {"id": item_id, "type": "function_call", "name": "f", "call_id": f"call_{item_id}", "arguments": ""}
        talk.take("response.output_item.done", response_id="resp_1", output_index=0, item=item)
    [end] = talk.end()
    assert end.content is not None
    assert [(call.id, dict(call.args)) for call in end.content.calls] == [("call_x", {"a": 1}), ("call_y", {"b": 2})]


def test_transcripts_of_two_utterances_do_not_mix() -> None:
    """
    Pieces of the user's words go by their item, also when they come after the answer and beside each other.
    """
    talk = Talk()
    prefix = "conversation.item.input_audio_transcription"
    talk.begin()
    talk.take(f"{prefix}.delta", item_id="u1", delta="he")
    talk.take(f"{prefix}.delta", item_id="u2", delta="wo")
    talk.end()
    usage = {"type": "duration", "seconds": 1.0}
    rests = [
        talk.take(f"{prefix}.completed", item_id=id, content_index=0, transcript=text, usage=usage)[0]
        for id, text in (("u2", "world"), ("u1", "hello"))
    ]
    assert [(each.item_id, each.input_transcription.text) for each in rests if each.input_transcription] == [
        ("u2", "rld"), ("u1", "llo"),
    ]  # fmt: skip
    [closed] = talk.take(f"{prefix}.completed", item_id="u3", content_index=0, transcript="", usage=usage)
    assert closed.input_transcription is not None
    assert (closed.input_transcription.text, closed.input_transcription.finished) == (None, True)


def test_a_transcript_that_comes_after_all_is_told_whole() -> None:
    """
    Pieces of a transcript that has failed do not count: if it comes all the same, it is told from its beginning.
    """
    talk = Talk()
    prefix = "conversation.item.input_audio_transcription"
    talk.take(f"{prefix}.delta", item_id="u1", delta="he")
    talk.take(f"{prefix}.failed", item_id="u1", content_index=0, error={"code": "no", "message": "No."})
    usage = {"type": "duration", "seconds": 1.0}
    [told] = talk.take(f"{prefix}.completed", item_id="u1", content_index=0, transcript="hello", usage=usage)
    assert told.input_transcription is not None
    assert told.input_transcription.text == "hello"


def test_a_call_without_an_id_has_none() -> None:
    """
    A call that the server gives no id has none, rather than an empty one.
    """
    talk = Talk()
    talk.begin()
    [[end], _] = talk.state.take(
        {"type": "response.done", "response": {"status": "completed", "output": [{"type": "function_call"}]}}
    )
    assert end.content is not None
    assert [call.id for call in end.content.calls] == [None]


@pytest.mark.parametrize("kind", ["created", "updated"])
def test_the_version_of_the_model_is_the_last_that_was_told(kind: str) -> None:
    """
    Answers have the version that the session says, and keep it when the session is told of without one.
    """
    talk = Talk()
    for model in ({"model": "gpt-r"}, {}):
        talk.state.take({"type": f"session.{kind}", "session": {"type": "realtime", **model}})
    talk.begin()
    assert talk.end()[0].model_version == "gpt-r"


def test_without_a_transcript_none_is_told() -> None:
    """
    The server transcribes what it says in any case; who does not want it is not told.
    """
    talk = Talk(output_audio_transcription=None, input_audio_transcription=None)
    talk.begin()
    assert talk.piece("output_audio_transcript", "one") == []
    assert talk.whole("output_audio_transcript", transcript="one") == []


def test_halves_of_letters_are_replaced() -> None:
    """
    Half a surrogate pair, which no store can keep, is shown as U+FFFD.
    """
    talk = Talk()
    talk.begin()
    [said] = talk.piece("output_text", "a\ud83d")
    assert said.content is not None
    assert said.content.text == "a\ufffd"


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_content_is_known_by_its_last_item() -> None:
    """
    A content is taken up when the server has added the last of its items; one that is refused never is.
    """
    talk = Talk()
    two = Content(role="user", parts=[*result("a").parts, *result("b").parts])
    talk.send(talk.state.items_of(two, "c1"))
    first, last = (event["item"] for event in talk.sent)
    assert talk.take("conversation.item.added", item=first) == []
    [told] = talk.take("conversation.item.added", item=last)
    assert told.resumption is not None
    assert (told.resumption.last_taken_up, told.resumption.resumable) == ("c1", False)
    assert talk.take("conversation.item.added", item=last) == []
    talk.send(talk.state.items_of(Content(role="user", parts=[Part(text="x")]), "c2"))
    [error] = talk.refuse(talk.sent[-1]["event_id"], "invalid_value")
    assert (error.error_code, error.turn_complete) == ("invalid_value", None)
    assert talk.take("conversation.item.added", item=talk.sent[-1]["item"]) == []


def test_sound_in_a_file_is_left_out_as_all_sound_is() -> None:
    """
    Sound that only has an address is not told in words, either.
    """
    sound = Part(file_data=FileData(file_uri="https://h/f", mime_type="audio/wav"))
    [event] = Talk().state.items_of(Content(role="user", parts=[sound, Part(text="hi")]), None)
    assert event["item"]["content"] == [{"type": "input_text", "text": "hi"}]


def test_a_content_of_nothing_is_refused() -> None:
    """
    What has nothing that the API takes is refused before it is sent.
    """
    talk = Talk()
    with pytest.raises(ModelRequestError, match="found none"):
        talk.state.items_of(Content(role="user", parts=[Part(inline_data=Blob(data=b"", mime_type="audio/wav"))]), None)


def test_how_much_sound_may_come_at_once() -> None:
    """
    One byte is enough for an event, and what is 15 MiB as base64 is not too much.
    """
    for size in (1, 15 * 2**20 * 3 // 4):
        talk = Talk()
        [event] = talk.state.realtime(Blob(data=bytes(size), mime_type="audio/pcm"))
        assert len(base64.b64decode(event["audio"])) == size
    for size in (0, 15 * 2**20 * 3 // 4 + 1):
        with pytest.raises(ModelRequestError, match=f"expected 1 to 11796480 bytes of sound at once, found {size}"):
            Talk().state.realtime(Blob(data=bytes(size), mime_type="audio/pcm"))


@pytest.mark.parametrize(
    ("mime_type", "rate"),
    [
        ("audio/pcm", 24000),
        ("audio/pcm;rate=16000", 16000),
        ("Audio/PCM; Rate=8000; channels=1", 8000),
        ("audio/pcm;rate=fast", None),
        ("audio/wav", None),
        ("", None),
    ],
)
def test_the_rate_of_sound(mime_type: str, rate: int | None) -> None:
    """
    A kind of sound says its rate; without one it is the API's.
    """
    assert rate_of(mime_type, 24_000) == rate
