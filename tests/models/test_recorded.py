"""Recorded models: a replay gives the recorded responses, and no other request is answered."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minirun import App, InMemoryRunner, InMemorySessionService, LlmAgent, Runner
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.credentials._secrets import Secrets
from minirun.errors import CassetteError, ConfigurationError, ModelError, ModelTimeoutError, SecretError
from minirun.flows._no_secrets import OF_RUN
from minirun.models import BaseLlm, FallbackModel, LlmCapabilities, LlmRequest, LlmResponse, RecordedLlm
from minirun.testing import ScriptedLlm
from minirun.testing._llm_contract import llm_checks
from minirun.types import Content, FunctionCall, FunctionResponse, GenerateContentConfig, Part

from ..examples import examples
from ..helpers import run_to_end
from ..strategies import contents, json_objects, texts


def asks(*said: str | Content, **options: Any) -> LlmRequest:
    turns = [Content(role="user", parts=[Part(text=each)]) if isinstance(each, str) else each for each in said]
    return LlmRequest(contents=turns, **options)


def says(text: str, partial: bool | None = None) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=partial)


class Player(BaseLlm):
    """Answers with a list for each request: responses, and at last an exception to raise."""

    def __init__(self, *answers: Sequence[Any]) -> None:
        super().__init__(model="player")
        self.asked = 0
        self._answers = answers

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked += 1
        for item in self._answers[self.asked - 1]:
            await trio.lowlevel.checkpoint()
            if isinstance(item, Exception):
                raise item
            yield item


async def hear(model: BaseLlm, request: LlmRequest, stream: bool = True, at_most: int = 100) -> Any:
    """The responses of a model, and its error as class, text and fields."""
    heard: list[LlmResponse] = []
    try:
        async with aclosing(model.generate_content_async(request, stream)) as responses:
            while len(heard) < at_most and (response := await anext(responses, None)) is not None:
                heard.append(response)
    except Exception as error:
        return heard, (type(error), str(error), [getattr(error, name, None) for name in ("status", "retry_after_s")])
    return heard, None


def exchanges_of(path: Path) -> Any:
    return json.loads(path.read_bytes())["exchanges"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "one.json"


# --- replay -----------------------------------------------------------------------------------------------------------

odd_texts = st.text(max_size=5)  # half surrogate pairs, too
failures = st.builds(ModelTimeoutError, odd_texts, status=st.just(429), retry_after_s=st.none() | st.floats(0, 1e6))
whole_responses = st.builds(LlmResponse, content=st.none() | contents, custom_metadata=st.none() | json_objects)
answers = st.builds(
    lambda pieces, last: [*pieces, *last],
    st.lists(st.builds(lambda content: LlmResponse(content=content, partial=True), contents), max_size=3),
    st.one_of(st.lists(whole_responses, min_size=1, max_size=1), st.lists(failures, max_size=1)),
)
configs = st.builds(GenerateContentConfig, system_instruction=st.none() | texts, extra_body=st.none() | json_objects)
requests = st.builds(LlmRequest, contents=st.lists(contents, max_size=4), config=configs, model=st.none() | odd_texts)
exchanges = st.lists(st.tuples(requests, answers, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=exchanges.flatmap(lambda made: st.permutations(made + made[:1])))
def test_a_replay_is_equal_to_the_recording(made: Sequence[Any]) -> None:
    """A replay of any requests gives equal responses and errors; recorded again, the file has the same bytes."""

    async def body(first: Path, second: Path) -> None:
        player = Player(*(answer for _, answer, _ in made))
        heard = [await hear(player, request) for request, _, _ in made]
        recorder = RecordedLlm(Player(*(answer for _, answer, _ in made)), first, "record")
        assert [await hear(recorder, request) for request, _, _ in made] == heard
        replay = RecordedLlm(None, first)
        for (request, _, stream), (said, error) in zip(made, heard, strict=True):
            assert await hear(replay, request, stream) == ([each for each in said if stream or not each.partial], error)
        replay.assert_done()
        again = RecordedLlm(RecordedLlm(None, first), second, "record")
        assert [await hear(again, request) for request, _, _ in made] == heard

    with tempfile.TemporaryDirectory() as folder:
        trio.run(body, first := Path(folder, "1"), second := Path(folder, "2"))
        assert second.read_bytes() == first.read_bytes()


async def test_equal_requests_are_answered_in_the_order_of_the_file(path: Path) -> None:
    """Equal requests are answered by one exchange each, whatever is requested between them; one more fails."""
    recorder = RecordedLlm(Player([says("1")], [says("2")], [says("3")], [says("4")]), path, "record")
    for text in ("a", "b", "a", "c"):
        await hear(recorder, asks(text))
    model = RecordedLlm(None, path)
    found = [await hear(model, asks(text)) for text in ("c", "a", "a")]
    assert found == [([says(text)], None) for text in ("4", "1", "3")]
    with pytest.raises(CassetteError, match=r"1 of 4 exchanges are left over, the first is exchange 2"):
        model.assert_done()
    assert "first difference to exchange 2 is at contents[0].parts[0].text" in (await hear(model, asks("a")))[1][1]
    assert await hear(model, asks("b")) == ([says("2")], None)
    model.assert_done()
    assert "its 4 exchanges are used, found one more request" in (await hear(model, asks("a")))[1][1]


async def test_the_comparison_leaves_out_what_never_changes_a_response(path: Path) -> None:
    """Ids of calls, labels, time-outs, the cache and the order of keys can differ."""

    def request(name: str, args: dict[str, Any], timeout: int) -> LlmRequest:
        made = Part(function_call=FunctionCall(name="f", args=args, id=name))
        answered = Part(function_response=FunctionResponse(name="f", response={}, id=name))
        turns = (Content(role="model", parts=[made]), Content(role="user", parts=[answered]))
        config = GenerateContentConfig(labels={"user": name}, http_options={"timeout": timeout})
        return asks("hi", *turns, config=config, cache_key=name)

    await hear(RecordedLlm(Player([says("a")]), path, "record"), request("x", {"a": 1, "b": 2}, 5))
    assert await hear(RecordedLlm(None, path), request("y", {"b": 2, "a": 1}, 6)) == ([says("a")], None)


async def test_an_unknown_request_names_the_first_difference(path: Path) -> None:
    """The error contains the path of the first difference to the next unused exchange, with both values there."""
    long, shown, place = "a" * 500, "a" * 20, "contents[0].parts[0].text"
    other = GenerateContentConfig(system_instruction="Be rude.")
    await hear(RecordedLlm(Player([says("x")]), path, "record"), asks(f"{long}b", config=other))
    for request, words in (
        (asks(f"{long}b"), "config.system_instruction: expected 'Be rude.', found nothing"),
        (asks(f"{long}b", config=other, model="m"), "model: expected None, found 'm'"),
        (asks(f"{long}b", "more", config=other), "contents[1]: expected nothing, found {"),
        (asks(f"{long}c", config=other), f"{place}, character 501: expected '{shown}b', found '{shown}c'; record it"),
    ):
        _, (kind, message, _) = await hear(RecordedLlm(None, path), request)
        assert kind is CassetteError
        assert f"{path}: it has no such request unused; the first difference to exchange 1 is at {words}" in message
        assert len(message) < 700 + len(str(path))


async def test_an_unknown_request_fails_the_run_whatever_hooks_do(path: Path) -> None:
    """Neither a hook for errors of models, nor a fallback, nor a retry turns a CassetteError into a response."""
    RecordedLlm(Player(), path, "record").close()
    model = FallbackModel(RecordedLlm(None, path), ScriptedLlm(["no"]), on=[Exception])
    agent = LlmAgent(name="a", model=model, on_model_error_callback=lambda callback_context, **_: says("no"))
    with pytest.raises(CassetteError, match="its 0 exchanges are used"):
        await run_to_end(InMemoryRunner(agent=agent, auto_create_session=True))


async def test_errors_of_models_are_replayed_as_their_class(path: Path) -> None:
    """
    A ModelError is replayed as its nearest class in `minirun.errors`. A request that fails with another exception, or
    whose caller leaves before the complete response, is not recorded.
    """

    class OwnTimeout(ModelTimeoutError):
        pass

    answers = [OwnTimeout("slow", status=504)], [ValueError("odd")], [says("a", True), says("a")]
    recorder = RecordedLlm(Player(*answers), path, "record")
    heard = [await hear(recorder, asks(text), at_most=1) for text in "123"]
    assert [error and error[0] for _, error in heard] == [OwnTimeout, ValueError, None]
    assert len(exchanges_of(path)) == 1
    assert await hear(RecordedLlm(None, path), asks("1")) == ([], (ModelTimeoutError, "slow", [504, None]))


@pytest.mark.parametrize("name", llm_checks())
async def test_recorded_models_keep_the_contract(name: str, path: Path) -> None:
    """A recorder passes each check of a model, and so does the replay if the caller does not leave early."""
    await llm_checks()[name](lambda: RecordedLlm(ScriptedLlm(lambda request: ["one ", "two", "three"]), path, "record"))
    if name not in ("it_may_be_closed_early", "it_may_be_cancelled"):
        await llm_checks()[name](lambda: RecordedLlm(None, path))


# --- the file and the arguments ---------------------------------------------------------------------------------------

HEAD = b'{"minirun_cassette": 3, "model": "m", "capabilities": {}, "exchanges": [{"responses": '


def test_another_file_is_refused(tmp_path: Path) -> None:
    """A file of another program or version, damaged or cut off, is refused when the model is made."""
    error = b'[], "request": {}, "error": {"type": "CassetteError", "message": "m"}}]}'
    ends = (b"[]", b"[]}]}", b'[[]], "request": {}}]}', error)
    for data in (b"SQLite format 3", b"[]", b'{"minirun_cassette": 2}', *(HEAD + end for end in ends)):
        (tmp_path / "c").write_bytes(data)
        with pytest.raises(CassetteError, match="expected a cassette, found another file"):
            RecordedLlm(None, tmp_path / "c")


async def test_a_recording_replaces_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first exchange of a recorder replaces the file, which only this user can read. A recorder that is closed unused
    writes a file without exchanges. The name and the capabilities of the model are in the file. A write that fails
    leaves the previous file.
    """
    await hear(recorder := RecordedLlm(Player([says("a")], [says("b")]), path, "record"), asks("1"))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    recorder.close()
    await hear(recorder, asks("2"))  # a closed recorder still records
    able = LlmCapabilities(output_schema_and_tools=True, media_in_tool_results=True)
    recorder = RecordedLlm(ScriptedLlm([], name="clever", capabilities=able), path, "record")
    assert len(exchanges_of(path)) == 2
    recorder.close()
    assert exchanges_of(path) == []
    assert (RecordedLlm(None, path).name, RecordedLlm(None, path).capabilities) == ("clever", able)
    monkeypatch.setattr(os, "replace", lambda source, target: os.stat("/no such file"))
    heard, error = await hear(RecordedLlm(Player([says("a")]), path, "record"), asks("1"))
    assert (heard, error[0]) == ([], CassetteError)
    assert "cannot be written" in error[1]
    assert exchanges_of(path) == []


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    """An argument that cannot be used, or a missing file, is refused when the object is made, and no file is made."""
    for inner, mode, words in (
        (Player(), "append", "expected mode to be 'replay' or 'record', found 'append'"),
        (None, "record", "only mode='replay' works without one"),
        ("gpt", "replay", "expected a model"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            RecordedLlm(inner, tmp_path / "c", mode)  # type: ignore[arg-type]  # refused
    with pytest.raises(CassetteError, match=r"found no such file; record it, .* `pytest --record-models`"):
        RecordedLlm(Player(), tmp_path / "c")
    assert not list(tmp_path.iterdir())


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "sk-live-90210-abcdef"


async def test_secrets_of_a_run_are_in_no_cassette(path: Path) -> None:
    """A credential of a run is removed from requests, responses and errors; another secret replays the same."""
    for secret, is_recording in ((SECRET, True), ("sk-test-other-secret", False)):
        vault = InMemoryCredentialService()
        config = AuthConfig("key")
        place = {"app_name": "app", "user_id": "u", "credential_key": config.credential_key}
        await vault.save_credential(**place, credential=AuthCredential("api_key", api_key=secret))

        async def before(
            callback_context: Any, llm_request: Any, config: AuthConfig = config, shown: str = secret
        ) -> None:
            await callback_context.request_credential(config)
            llm_request.append_instructions([f"The key is {shown}."])
            llm_request.contents.append(Content(role="user", parts=[Part(text=f"key {shown}")]))

        echo = ScriptedLlm([f"You say {secret}.", ModelError(f"bad key {secret}", request_id=secret)])
        model = RecordedLlm(echo, path, "record") if is_recording else RecordedLlm(None, path)
        app = App("app", LlmAgent(name="a", model=model, before_model_callback=before))
        sessions = InMemorySessionService()
        runner = Runner(app=app, session_service=sessions, credential_service=vault, auto_create_session=True)
        await run_to_end(runner, "hi")
        with pytest.raises(ModelError, match=r"bad key \[secret\]"):
            await run_to_end(runner, "ho")
        model.assert_done()
    text = json.dumps(exchanges_of(path))
    assert SECRET not in text
    assert text.count("[secret]") >= 5


async def test_a_key_that_is_secret_is_refused(path: Path) -> None:
    """
    A secret that is the key of an object cannot be removed: the request is refused before the model is called.
    """
    known = Secrets()
    known.know(AuthCredential("api_key", api_key=SECRET))
    token = OF_RUN.set(known)
    player = Player([says("a")])
    made = Part(function_call=FunctionCall(name="f", args={SECRET: 1}, id="x"))
    _, error = await hear(RecordedLlm(player, path, "record"), asks(Content(role="model", parts=[made])))
    OF_RUN.reset(token)
    assert error[0] is SecretError
    assert SECRET not in error[1]
    assert player.asked == 0
