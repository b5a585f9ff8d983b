"""
Recorded models: a replay gives the recorded responses, and no other request is answered.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from minirun import App, InMemoryRunner, InMemorySessionService, LlmAgent, RunConfig, Runner
from minirun._codec import from_json, to_dict
from minirun.errors import (
    CassetteError,
    ConfigurationError,
    InvalidValueError,
    ModelConnectionError,
    ModelError,
    ModelRateLimitedError,
    ModelTimeoutError,
    ScriptError,
    SecretError,
)
from minirun.models import BaseLlm, FallbackModel, LlmCapabilities, LlmRequest, LlmResponse, RecordedLlm
from minirun.runtime import StreamingMode
from minirun.testing import ScriptedLlm, call
from minirun.testing._llm_contract import llm_checks
from minirun.types import Content, FunctionCall, FunctionDeclaration, FunctionResponse, GenerateContentConfig, Part

from ..examples import examples
from ..helpers import run_to_end
from ..strategies import contents, json_objects, texts

# --- helpers ----------------------------------------------------------------------------------------------------------


def asks(*said: str | Content, **options: Any) -> LlmRequest:
    turns = [Content(role="user", parts=[Part(text=each)]) if isinstance(each, str) else each for each in said]
    return LlmRequest(contents=turns, **options)


def says(text: str, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=partial)


class Player(BaseLlm):
    """Answers with a list for each question: pauses in seconds, responses, and at last an exception to raise."""

    def __init__(self, *answers: Sequence[Any]) -> None:
        super().__init__(model="player")
        self.asked = 0
        self._answers = answers

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked += 1
        for item in self._answers[self.asked - 1]:
            if isinstance(item, (int, float)):
                await trio.sleep(item)
            elif isinstance(item, Exception):
                raise item
            else:
                await trio.lowlevel.checkpoint()
                yield item


Heard = tuple[list[tuple[float, LlmResponse]], BaseException | None]


async def hear(model: BaseLlm, request: LlmRequest, stream: bool = True, at_most: int = 100) -> Heard:
    """What a model answers, when, and what it fails with; the caller leaves after *at_most* responses."""
    heard: list[tuple[float, LlmResponse]] = []
    began = trio.current_time()
    try:
        async with aclosing(model.generate_content_async(request, stream)) as responses:
            while len(heard) < at_most and (response := await anext(responses, None)) is not None:
                heard.append((round(trio.current_time() - began, 3), response))
    except Exception as error:
        return heard, error
    return heard, None


def told(heard: Heard) -> Any:
    responses, error = heard
    return responses, None if error is None else (type(error), str(error), getattr(error, "status", None))


def read(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def exchanges_of(path: Path) -> list[Any]:
    return json.loads(path.read_text("utf-8"))["exchanges"]  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "one.json"


# --- what is replayed is what was recorded ----------------------------------------------------------------------------

gaps = st.integers(0, 5_000_000).map(lambda microseconds: microseconds / 1_000_000)
failures = st.one_of(
    st.builds(
        ModelRateLimitedError,
        texts,
        status=st.just(429),
        retry_after_s=st.none() | st.floats(0, 1e6),
        request_id=st.none() | texts,
        has_begun=st.booleans(),
    ),
    st.builds(ModelConnectionError, texts),
    st.builds(ValueError, st.text(max_size=5)),  # half surrogate pairs, too
    st.builds(KeyError, texts),
    st.builds(InvalidValueError, texts, texts),
)
whole_responses = st.builds(
    LlmResponse,
    content=st.none() | contents,
    finish_reason=st.sampled_from([None, "STOP", "MAX_TOKENS"]),
    error_code=st.none() | texts,
    custom_metadata=st.none() | json_objects,
    model_version=st.none() | texts,
    partial=st.sampled_from([None, False]),
)
fragments = st.builds(lambda content: LlmResponse(content=content, partial=True), contents)
answers = st.builds(
    lambda pieces, gap, last: [*(item for piece in pieces for item in piece), gap, *last],
    st.lists(st.tuples(gaps, fragments), max_size=3),
    gaps,
    st.one_of(st.lists(whole_responses, min_size=1, max_size=1), st.lists(failures, max_size=1)),
)
tools = st.builds(FunctionDeclaration, name=texts, description=texts, parameters=json_objects)
configs = st.builds(
    GenerateContentConfig,
    system_instruction=st.none() | texts,
    tools=st.lists(tools, max_size=2),
    temperature=st.none() | st.floats(0, 2),
    extra_body=st.none() | json_objects,
)
requests = st.builds(
    LlmRequest,
    contents=st.lists(contents, max_size=4),
    config=configs,
    model=st.none() | st.text(max_size=5),  # half surrogate pairs, too: nobody has checked it
)
exchanges = st.lists(
    st.tuples(requests, answers, st.booleans(), st.sampled_from([0, 1, 2, 100, 100])), min_size=1, max_size=6
).flatmap(lambda made: st.permutations(made + made[:1]))


async def hear_all(model: BaseLlm, made: Sequence[Any]) -> list[Any]:
    return [told(await hear(model, request, stream, at_most)) for request, _, stream, at_most in made]


def in_time(work: Callable[[], Any]) -> Any:
    return trio.run(work, clock=MockClock(autojump_threshold=0))


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=exchanges)
def test_a_replay_is_equal_to_what_was_recorded(made: Sequence[Any]) -> None:
    """
    Any requests are answered in a replay by equal responses at equal times, or equal errors; recorded again, the file
    has the same bytes.
    """

    async def body() -> None:
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder, "1"), Path(folder, "2")
            recorder = RecordedLlm(Player(*(answer for _, answer, _, _ in made)), first, "record")
            heard = await hear_all(recorder, made)
            recorder.close()
            replay = RecordedLlm(None, first)
            assert await hear_all(replay, made) == heard
            again = RecordedLlm(RecordedLlm(None, first), second, "record")
            assert await hear_all(again, made) == heard
            again.close()
            assert read(second) == read(first)
            if all(at_most == 100 for _, _, _, at_most in made):
                replay.assert_done()

    in_time(body)


async def test_a_replay_without_fragments_gives_the_complete_response(path: Path, autojump_clock: MockClock) -> None:
    """
    Whether fragments are wanted is no part of a request: a recorded stream answers with its last response alone.
    """
    answer = [1, says("a", True), 2, says("b", True), 0.5, says("ab")]
    recorder = RecordedLlm(Player(answer), path, "record")
    await hear(recorder, asks("hi"))
    assert await hear(RecordedLlm(None, path), asks("hi"), stream=False) == ([(3.5, says("ab"))], None)


async def test_a_replay_takes_no_time_if_it_is_told_so(path: Path, autojump_clock: MockClock) -> None:
    """
    `pace` stretches what the model took; 0.0 leaves it out.
    """
    await hear(RecordedLlm(Player([4, says("a")]), path, "record"), asks("hi"))
    for pace, took in ((1.0, 4.0), (0.5, 2.0), (0.0, 0.0)):
        assert await hear(RecordedLlm(None, path, pace=pace), asks("hi")) == ([(took, says("a"))], None)


async def test_equal_requests_are_answered_in_the_order_in_which_they_were_asked(
    path: Path, autojump_clock: MockClock
) -> None:
    """
    The first of two equal requests that run at once is answered by what the first was answered, though it ended last.
    """
    recorder = RecordedLlm(Player([5, says("first")], [1, says("second")], [1, says("third")]), path, "record")

    async def both(model: BaseLlm) -> list[Any]:
        found: list[Any] = [None, None, None]

        async def ask(place: int) -> None:
            await trio.sleep(place / 10)
            found[place] = await hear(model, asks("hi"))

        async with trio.open_nursery() as nursery:
            for place in range(3):
                nursery.start_soon(ask, place)
        return found

    heard = await both(recorder)
    texts_of = [each["responses"][0][1]["content"]["parts"][0]["text"] for each in exchanges_of(path)]
    assert texts_of == ["first", "second", "third"]
    model = RecordedLlm(None, path)
    assert await both(model) == heard
    model.assert_done()


async def test_what_never_changes_an_answer_is_not_compared(path: Path) -> None:
    """
    Ids of calls, labels, time-outs, the cache and the order of keys may differ.
    """

    def request(name: str, args: dict[str, Any], timeout: int) -> LlmRequest:
        made = Part(function_call=FunctionCall(name="f", args=args, id=name))
        answered = Part(function_response=FunctionResponse(name="f", response={}, id=name))
        turns = (Content(role="model", parts=[made]), Content(role="user", parts=[answered]))
        config = GenerateContentConfig(labels={"user": name}, http_options={"timeout": timeout})
        return asks("hi", *turns, config=config, cache_key=name)

    await hear(RecordedLlm(Player([says("a")]), path, "record"), request("x", {"a": 1, "b": 2}, 5))
    heard = await hear(RecordedLlm(None, path), request("y", {"b": 2, "a": 1}, 6), stream=False)
    assert heard[1] is None


# --- what is not recorded ---------------------------------------------------------------------------------------------


async def test_an_unknown_request_names_the_first_difference(path: Path) -> None:
    """
    The error names the path of the first difference to the next unused exchange, with both values there.
    """
    long, other = "a" * 500, GenerateContentConfig(system_instruction="Be rude.")
    recorder = RecordedLlm(Player([says("x")], [says("y")]), path, "record")
    await hear(recorder, asks("far away", config=other))
    await hear(recorder, asks(f"{long}b", config=GenerateContentConfig(temperature=0.5)))
    for request, words in (
        (asks("far away"), "exchange 1 is at config.system_instruction: expected 'Be rude.', found nothing"),
        (asks("far away", config=other, model="m"), "exchange 1 is at model: expected None, found 'm'"),
        (asks("far away", "more", config=other), "exchange 1 is at contents[1]: expected nothing, found {"),
    ):
        _, error = await hear(RecordedLlm(None, path), request)
        assert isinstance(error, CassetteError)
        assert words in str(error)
        assert str(path) in str(error)
        assert len(str(error)) < 700 + len(str(path))
    model = RecordedLlm(None, path)
    await hear(model, asks("far away", config=other))
    _, error = await hear(model, asks(f"{long}c", config=GenerateContentConfig(temperature=0.5)))
    expected = f"character {501}: expected …'{'a' * 20}b', found …'{'a' * 20}c'; record it again"
    assert f"exchange 2 is at contents[0].parts[0].text, {expected}" in str(error)


async def test_an_unknown_request_fails_the_run_whatever_hooks_say(path: Path) -> None:
    """
    Neither a hook for errors of models, nor a fallback, nor a retry turns a CassetteError into an answer.
    """
    RecordedLlm(Player(), path, "record").close()
    model = FallbackModel(RecordedLlm(None, path), ScriptedLlm(["no"]), on=[Exception])
    agent = LlmAgent(name="a", model=model, on_model_error_callback=lambda callback_context, **_: says("no"))
    with pytest.raises(CassetteError, match="it has no exchange"):
        await run_to_end(InMemoryRunner(agent=agent, auto_create_session=True))


async def test_a_request_that_comes_once_more_fails_unless_it_may(path: Path) -> None:
    """
    A request that was recorded once is answered once; with `repeat=True` its last answer is given again.
    """
    recorder = RecordedLlm(Player([says("a")], [says("b")]), path, "record")
    for _ in range(2):
        await hear(recorder, asks("hi"))
    model = RecordedLlm(None, path)
    found = [await hear(model, asks("hi")) for _ in range(3)]
    assert "it has this request 2 times, found one more" in str(found[2][1])
    model = RecordedLlm(None, path, repeat=True)
    heard = [(await hear(model, asks("hi")))[0][0][1].content.text for _ in range(4)]  # type: ignore[union-attr]  # there
    assert heard == ["a", "b", "b", "b"]


async def test_an_answer_that_was_not_heard_to_its_end_can_be_asked_for_again(path: Path) -> None:
    """
    A caller that leaves early and asks again is given the same answer from its beginning.
    """
    answer = [says("a", True), says("b", True), says("ab")]
    await hear(RecordedLlm(Player(answer), path, "record"), asks("hi"))
    model = RecordedLlm(None, path)
    await hear(model, asks("hi"), at_most=1)
    with pytest.raises(CassetteError, match=r"1 of 1 exchanges are left over: exchange 1"):
        model.assert_done()
    assert len((await hear(model, asks("hi")))[0]) == 3
    model.assert_done()


async def test_a_caller_that_has_left_is_recorded_as_such(path: Path, autojump_clock: MockClock) -> None:
    """
    A stream that was closed or cancelled has what came until then; a replay that goes on longer is refused.
    """
    recorder = RecordedLlm(Player([says("a", True), 60, says("ab")], [60, says("no")]), path, "record")
    with trio.move_on_after(5):
        await hear(recorder, asks("hi"))
    with trio.move_on_after(7):
        await hear(recorder, asks("ho"))
    assert [each["left_after_s"] for each in exchanges_of(path)] == [5.0, 7.0]
    model = RecordedLlm(None, path)
    for text, after_s in (("hi", 5), ("ho", 7)):
        with trio.move_on_after(after_s) as scope:
            await hear(model, asks(text))
        assert scope.cancelled_caught
    model.assert_done()
    heard, error = await hear(RecordedLlm(None, path), asks("hi"))
    assert [response for _, response in heard] == [says("a", True)]
    assert "ends after 1 responses, where the caller left" in str(error)


async def test_errors_come_back_as_their_class(path: Path, autojump_clock: MockClock) -> None:
    """
    An error of minirun or of Python comes back as its class; one of a foreign package as its nearest known base, or as
    a ModelError, with its name in the message. A fault of the program itself is not recorded.
    """

    class OwnTimeout(ModelTimeoutError):
        pass

    class Foreign(Exception):
        pass

    failures = [
        OwnTimeout("slow", status=504, has_begun=True),
        Foreign("what"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
        ExceptionGroup("several", [ValueError("a")]),
        TimeoutError("t"),
    ]
    recorder = RecordedLlm(Player(*([1.5, each] for each in failures), [ScriptError("no")]), path, "record")
    for each in range(len(failures) + 1):
        await hear(recorder, asks(str(each)))
    model = RecordedLlm(None, path)
    found = [(await hear(model, asks(str(each))))[1] for each in range(len(failures))]
    kinds = [ModelTimeoutError, ModelError, ValueError, ModelError, TimeoutError]
    assert [type(error) for error in found] == kinds
    assert str(found[0]).endswith("OwnTimeout: slow")
    assert isinstance(found[0], ModelTimeoutError)
    assert (found[0].status, found[0].has_begun, found[0].retry_after_s) == (504, True, None)
    assert str(found[1]).endswith("Foreign: what")
    assert str(found[4]) == "t"
    assert "ScriptError" not in read(path).decode()


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"SQLite format 3", b"[]", b"{}", b'{"minirun_cassette": 3}',
        b'{"minirun_cassette": 2, "model": "m", "capabilities": {}, "exchanges": [{"responses": [], "request": {}',
        b'{"minirun_cassette": 2, "model": "m", "capabilities": {}, "exchanges": [{"responses": []}]}',
        b'{"minirun_cassette": 2, "model": "m", "capabilities": {}, "exchanges": [{"request": {}, "responses": [[-1, '
        b'{}]]}]}',
    ],
)  # fmt: skip
def test_what_is_no_cassette_is_refused(tmp_path: Path, data: bytes) -> None:
    """
    A file of another program, of another version, damaged or cut off, is refused when the model is made.
    """
    put(tmp_path / "c", data)
    with pytest.raises(CassetteError, match="expected a cassette, found another file"):
        RecordedLlm(None, tmp_path / "c")


async def test_a_file_is_its_users_alone(path: Path) -> None:
    """
    No other user can read a new cassette, and its folder is made.
    """
    await hear(RecordedLlm(Player([says("a")]), path, "record"), asks("hi"))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert json.loads(read(path))["minirun_cassette"] == 2


async def test_recording_begins_anew(path: Path) -> None:
    """
    The first request to a recorder empties the file, not making it; one that is closed unused writes an empty file.
    """
    await hear(recorder := RecordedLlm(Player([says("a")], [says("b")]), path, "record"), asks("1"))
    recorder.close()
    await hear(recorder, asks("2"))  # a closed recorder still records
    assert len(exchanges_of(path)) == 2
    recorder = RecordedLlm(Player(), path, "record")
    assert len(exchanges_of(path)) == 2
    recorder.close()
    assert exchanges_of(path) == []
    RecordedLlm(None, path).assert_done()


async def test_a_full_disk_leaves_the_previous_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the file cannot be written, a CassetteError says so and the file is as before.
    """
    recorder = RecordedLlm(Player([says("a")], [says("b")], [says("c")]), path, "record")
    await hear(recorder, asks("1"))
    before = read(path)

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    _, error = await hear(recorder, asks("2"))
    assert "cannot be written" in str(error)
    assert read(path) == before
    monkeypatch.undo()
    assert (await hear(recorder, asks("3")))[1] is None


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "off"}, "mode"),
        ({"mode": "append"}, "expected mode to be 'replay' or 'record', found 'append'"),
        ({"inner": None, "mode": "record"}, "only mode='replay' works without one"),
        ({"inner": "gpt"}, "expected a model"),
        ({"path": 3}, "expected the path of a file"),
        ({"path": b"x"}, "expected the path of a file"),
        ({"pace": -1}, "pace"),
        ({"repeat": 1}, "repeat"),
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    """
    What cannot be used is refused when the object is made, and no file is touched.
    """
    given: dict[str, Any] = {"inner": Player(), "path": tmp_path / "c", "mode": "record", **arguments}
    with pytest.raises(ConfigurationError, match=words):
        RecordedLlm(**given)
    assert not list(tmp_path.iterdir())


def test_a_missing_cassette_says_what_to_write(tmp_path: Path) -> None:
    """
    To replay what is not there fails at once, with the ways to record it.
    """
    with pytest.raises(CassetteError, match=r"found no such file; record it, .* `pytest --record-models`"):
        RecordedLlm(Player(), tmp_path / "c")


async def test_a_replay_is_able_to_do_what_the_model_was(path: Path) -> None:
    """
    Without the model, its name and capabilities come from the file, so that agents ask in the same way.
    """
    able = LlmCapabilities(output_schema_and_tools=True, media_in_tool_results=True)
    recorder = RecordedLlm(ScriptedLlm(["a"], name="clever", capabilities=able), path, "record")
    await hear(recorder, asks("1"))
    model = RecordedLlm(None, path)
    assert (model.name, model.capabilities) == ("clever", able)


# --- the contract of models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", llm_checks().values(), ids=llm_checks())
async def test_recorded_models_keep_the_contract(check: Callable[[Any], Any], path: Path) -> None:
    """
    A recorder keeps each promise of a model, and so does the replay of the same questions.
    """

    def recorder() -> RecordedLlm:
        return RecordedLlm(ScriptedLlm(lambda request: ["one ", "two ", "three"]), path, "record")

    await check(recorder)
    await check(lambda: RecordedLlm(None, path))


# --- in runs ----------------------------------------------------------------------------------------------------------


async def look(thing: str) -> str:
    """Look at a thing."""
    return f"a {thing}"


def runner_of(app: App, **services: Any) -> Runner:
    return Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True, **services)


def clerk(model: BaseLlm) -> App:
    return App("app", LlmAgent(name="clerk", model=model, instruction="Look at things.", tools=[look]))


async def test_a_conversation_with_tools_is_replayed(path: Path) -> None:
    """
    Ids are drawn anew for every run; still each request of a replayed conversation is the recorded one.
    """
    script: list[Any] = [
        [call("look", thing="cup"), call("look", thing="cap")],
        "Two things.",
        call("look", thing="cat"),
        "One.",
    ]
    found = []
    for is_recording in (True, False):
        model = RecordedLlm(ScriptedLlm(script), path, "record") if is_recording else RecordedLlm(None, path)
        runner = runner_of(clerk(model))
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        events = [event for each in "12" for event in (await run_to_end(runner, each, run_config=config))[0]]
        found.append([event.text for event in events if not event.partial])
        model.assert_done()
        model.close()
    assert found[0] == found[1]


async def test_a_retried_failure_is_replayed_as_one(path: Path, autojump_clock: MockClock) -> None:
    """
    A provider that fails, and answers when it is asked again, does both in the replay, with the pause it has asked for.
    """
    script: list[Any] = [ModelRateLimitedError("later", status=429, retry_after_s=30.0), "Here I am."]
    for is_recording in (True, False):
        model = RecordedLlm(ScriptedLlm(script), path, "record") if is_recording else RecordedLlm(None, path)
        began = trio.current_time()
        events, _ = await run_to_end(runner_of(clerk(model)), "hi")
        assert events[-1].text == "Here I am."
        assert trio.current_time() - began >= 30
        model.assert_done()


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "sk-live-90210-abcdef"


async def test_secrets_of_a_run_are_in_no_cassette(path: Path) -> None:
    """
    What a run was given as a credential is taken out of requests, answers and errors; another secret replays the same.
    """
    from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService

    for secret, is_recording in ((SECRET, True), ("sk-test-other-secret", False)):
        vault = InMemoryCredentialService()
        config = AuthConfig("key")
        place = {"app_name": "app", "user_id": "u", "credential_key": config.credential_key}
        await vault.save_credential(**place, credential=AuthCredential("api_key", api_key=secret))

        async def instruction(ctx: Any, config: AuthConfig = config) -> str:
            return "Be brief."

        async def before(
            callback_context: Any, llm_request: Any, config: AuthConfig = config, shown: str = secret
        ) -> None:
            await callback_context.request_credential(config)
            llm_request.append_instructions([f"The key is {shown}."])
            llm_request.contents.append(Content(role="user", parts=[Part(text=f"key {shown}")]))

        echo = ScriptedLlm([f"You say {secret}.", ModelError(f"bad key {secret}")])
        model = RecordedLlm(echo, path, "record") if is_recording else RecordedLlm(None, path)
        agent = LlmAgent(name="a", model=model, instruction=instruction, before_model_callback=before)
        runner = runner_of(App("app", agent), credential_service=vault)
        async with runner.run_async(user_id="u", session_id="s", new_message="hi") as run:
            await run.wait()
        with pytest.raises(ModelError, match=r"bad key \[secret\]"):
            async with runner.run_async(user_id="u", session_id="s", new_message="ho") as run:
                await run.wait()
        model.assert_done()
        model.close()
    text = read(path).decode()
    assert SECRET not in text
    assert text.count("[secret]") >= 4


async def test_a_key_that_is_secret_is_refused(path: Path) -> None:
    """
    A secret that is the key of an object cannot be taken out: the request is refused before the model is asked.
    """
    from minirun.credentials import AuthCredential
    from minirun.credentials._secrets import Secrets
    from minirun.flows._no_secrets import OF_RUN

    known = Secrets()
    known.know(AuthCredential("api_key", api_key=SECRET))
    token = OF_RUN.set(known)
    player = Player([says("a")])
    made = Part(function_call=FunctionCall(name="f", args={SECRET: 1}, id="x"))
    _, error = await hear(RecordedLlm(player, path, "record"), asks(Content(role="model", parts=[made])))
    OF_RUN.reset(token)
    assert isinstance(error, SecretError)
    assert SECRET not in str(error)
    assert player.asked == 0


async def test_a_content_is_in_a_cassette_as_it_is_stored(path: Path) -> None:
    """
    Fields of a later version, which a content keeps, are written where the codec writes them.
    """
    content = from_json(Content, '{"role":"user","parts":[{"text":"hi","hologram":1}]}')
    await hear(RecordedLlm(Player([says("a")]), path, "record"), LlmRequest(contents=[content]))
    assert exchanges_of(path)[0]["request"]["contents"] == [to_dict(content)]
