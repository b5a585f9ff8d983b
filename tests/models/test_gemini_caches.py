"""
Explicit caches of Gemini: when one is made, used and given up, whatever process asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minirun import App, LlmAgent, Runner, SqliteSessionService
from minirun.agents import ReadonlyContext
from minirun.env import Env
from minirun.errors import ConfigurationError, InvalidValueError, ModelRequestError
from minirun.models import ContextCacheConfig, LlmRequest, LlmRequestDraft
from minirun.models.gemini import Gemini

from ..helpers import run_to_end
from ..provider_servers.gemini import KEY, Caches, gemini
from ..provider_servers.server import FakeProvider, Reply, served
from ..wire_models import APIS, request, streamed, whole

API = APIS["gemini"]


def said(**part: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}


ANSWER, CALL = said(text="ok"), said(functionCall={"name": "look", "args": {}})


class Clock(Env):
    """The real world at another time."""

    def __init__(self, time: float = 1_800_000_000.0) -> None:
        object.__setattr__(self, "time", time)

    def now(self) -> float:
        """The time that was set."""
        return self.time  # type: ignore[attr-defined,no-any-return]  # set above


async def look() -> str:
    """Look around."""
    return "nothing"


class Talk:
    """A session in a file; each message is said by a process of its own, so to speak."""

    def __init__(self, folder: Path, caches: Caches | None = None) -> None:
        self.caches = caches or Caches()
        self.server: FakeProvider = gemini(self.caches)
        self.clock = Clock()
        self.instruction: Any = "Be brief."
        self.notes: list[Any] = []  # what each event of the model says of a cache
        self._file = folder / "s.db"

    async def say(
        self,
        *messages: str,
        answers: Sequence[Any] = (ANSWER,),
        is_explicit: bool = True,
        fails: bool = False,
        **config: Any,
    ) -> None:
        """Say one message after the other, or one that *fails*."""
        async with served(self.server) as url:
            for message in messages:
                self.server.script += [whole(answer) if isinstance(answer, dict) else answer for answer in answers]
                model = Gemini("gemini-3-pro", base_url=f"{url}/v1", api_key=KEY, explicit_caches=is_explicit)
                agent = LlmAgent(name="a", model=model, instruction=self.instruction, tools=[look], model_retry=None)
                app = App("app", agent, context_cache_config=ContextCacheConfig(**config))
                async with (
                    SqliteSessionService(self._file, env=self.clock) as service,
                    Runner(app=app, session_service=service, auto_create_session=True) as runner,
                ):
                    if fails:
                        with pytest.raises(ModelRequestError):
                            await run_to_end(runner, message)
                        return
                    events, _ = await run_to_end(runner, message)
                self.notes += [(event.custom_metadata or {}).get("context_cache") for event in events
                               if event.content is not None and event.content.role == "model"]  # fmt: skip

    @property
    def asked(self) -> list[str]:
        """What was asked for: a cache, an answer, or one with a cache."""
        found = []
        for asked in self.server.asked:
            is_made = asked.path.endswith("/cachedContents")
            found.append("make" if is_made else asked.body.get("cachedContent", "answer"))
        return found

    @property
    def told(self) -> list[Any]:
        """What each request for an answer says, with what its cache has in its place."""
        return [self.caches.whole(asked) for asked in self.server.asked if not asked.path.endswith("/cachedContents")]


async def test_what_requests_begin_with_is_cached_at_its_second_time(tmp_path: Path) -> None:
    """
    The second request that begins alike makes a cache, and later ones name it; what the model is told is the same.
    """
    for folder in ("plain", "cached"):
        (tmp_path / folder).mkdir()
    plain, talk = Talk(tmp_path / "plain"), Talk(tmp_path / "cached")
    for each, is_explicit in ((plain, False), (talk, True)):
        await each.say("1", "2", is_explicit=is_explicit, ttl_seconds=600)
        await each.say("3", answers=[CALL, ANSWER], is_explicit=is_explicit, ttl_seconds=600)
    assert talk.asked == ["answer", "make", *["cachedContents/made-1"] * 3]
    made = talk.server.asked[1].body
    assert (made["ttl"], [content["parts"][0]["text"] for content in made["contents"]]) == ("600s", ["1", "ok"])
    assert made["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert [tool["name"] for tool in made["tools"][0]["functionDeclarations"]] == ["look"]
    assert [asked.body["contents"][0]["parts"][0]["text"] for asked in talk.server.asked[2:]] == ["2", "2", "2"]
    assert talk.told == plain.told
    assert plain.asked == ["answer"] * 4
    assert plain.notes == [None] * 4


async def test_the_log_has_the_name_and_the_expiry(tmp_path: Path) -> None:
    """
    An answer's event says what has become known of the cache, once.
    """
    talk = Talk(tmp_path)
    await talk.say("1", "2", "3")
    seen, made, again = talk.notes
    assert again is None
    assert seen.keys() == {"key", "contents", "fingerprint"}
    assert (made["name"], made["contents"]) == ("cachedContents/made-1", 2)
    assert made["expires_at"] == pytest.approx(32472144000.123457)


async def test_a_cache_is_made_anew_after_its_intervals(tmp_path: Path) -> None:
    """
    After `cache_intervals` invocations there is a new one, with what has been said since.
    """
    talk = Talk(tmp_path)
    await talk.say("1", "2", "3", "4", "5", cache_intervals=3)
    assert talk.asked == ["answer", "make", *["cachedContents/made-1"] * 2, "make", *["cachedContents/made-2"] * 2]
    assert len(talk.caches.kept["cachedContents/made-2"]["contents"]) == 6


async def test_a_cache_whose_time_is_over_is_not_named(tmp_path: Path) -> None:
    """
    From a minute before its expiry on, a cache is not asked for any more: a new one is made.
    """
    talk = Talk(tmp_path, Caches(expiry="2027-01-15T08:10:00Z"))  # 600 s after the clock's time
    await talk.say("1", "2")
    talk.clock = Clock(1_800_000_000.0 + 539)
    await talk.say("3")
    talk.clock = Clock(1_800_000_000.0 + 541)
    await talk.say("4")
    assert talk.asked == ["answer", "make", *["cachedContents/made-1"] * 2, "make", "cachedContents/made-2"]


async def test_a_cache_that_is_gone_costs_a_request(tmp_path: Path) -> None:
    """
    Where the provider has the cache no more, the whole request is sent, and the next one makes another cache.
    """
    talk = Talk(tmp_path)
    await talk.say("1", "2")
    talk.caches.kept.clear()
    await talk.say("3", "4")
    gone = ["cachedContents/made-1", "answer"]
    assert talk.asked == ["answer", "make", "cachedContents/made-1", *gone, "make", "cachedContents/made-2"]


async def test_a_beginning_that_changes_is_never_cached(tmp_path: Path) -> None:
    """
    An instruction that is another one each time makes no cache, and one that changes leaves the cache.
    """
    talk = Talk(tmp_path)
    count = 0

    def instruction(context: ReadonlyContext) -> str:
        nonlocal count
        count += 1
        return f"It is {count}."

    talk.instruction = instruction
    await talk.say("1", "2", "3")
    assert talk.asked == ["answer"] * 3
    talk.instruction = "Be brief."
    await talk.say("4", "5")
    assert talk.asked[3:] == ["answer", "make", "cachedContents/made-1"]
    talk.instruction = "Be long."
    await talk.say("6")
    assert talk.asked[6:] == ["answer"]


async def test_what_is_too_small_is_asked_for_again_at_twice_the_size(tmp_path: Path) -> None:
    """
    A provider that refuses a small cache is not asked with every request; one below `min_tokens` is not asked for.
    """
    talk = Talk(tmp_path, Caches(letters_min=1_200))
    await talk.say("1" * 100, "2", "3", "4" * 1_000, "5", "6")
    assert talk.asked == ["answer", "make", *["answer"] * 3, "make", *["cachedContents/made-1"] * 2]
    (tmp_path / "other").mkdir()
    other = Talk(tmp_path / "other")
    await other.say("1" * 100, "2", "3" * 4_000, "4", min_tokens=1_000)
    assert other.asked == ["answer"] * 3 + ["make", "cachedContents/made-1"]


@pytest.mark.parametrize(
    "answer", [{}, {"name": "cachedContents/x"}, {"name": 7, "expireTime": "2999-01-01T00:00:00Z"}]
)
async def test_an_odd_answer_makes_no_cache(tmp_path: Path, answer: Any) -> None:
    """
    Where the provider does not say what the cache is called, or until when it is there, the whole request is sent.
    """
    talk = Talk(tmp_path)
    talk.server._made = lambda asked: answer if asked.path.endswith("/cachedContents") else None
    await talk.say("1", "2", "3")
    assert {asked for asked in talk.asked if asked != "make"} == {"answer"}
    assert [told["contents"][-1]["parts"] for told in talk.told] == [[{"text": text}] for text in "123"]


async def test_a_request_that_is_wrong_is_sent_twice_at_most(tmp_path: Path) -> None:
    """
    What the provider refuses without a cache, too, is raised; and so is what it refuses when none was named.
    """
    talk = Talk(tmp_path)
    bad = Reply([b'{"error": {"code": 400, "message": "no"}}'], 400, content_type="application/json")
    await talk.say("1", answers=[bad], fails=True)
    await talk.say("2", "3")
    await talk.say("4", answers=[bad, bad], fails=True)
    assert talk.asked[0] == "answer"
    assert talk.asked[-2:] == ["cachedContents/made-1", "answer"]


@pytest.mark.parametrize(
    "told", [{"name": "x"}, {"key": 1, "fingerprint": "f", "contents": 1}, {"key": "k", "fingerprint": "f"}]
)
async def test_a_note_that_is_none_is_read_over(told: dict[str, Any]) -> None:
    """
    What another program has written in the place of a note changes no request.
    """
    server = gemini()
    server.script.append(streamed(API.text))
    async with served(server) as url:
        model = Gemini("gemini-3-pro", base_url=f"{url}/v1", api_key=KEY, explicit_caches=True)
        asked = LlmRequest(
            contents=request("hi").contents, cache_config=ContextCacheConfig(), cache_key="k", cache_metadata=told
        )
        assert [response async for response in model.generate_content_async(asked, True)]
        await model.aclose()
    assert server.asked[0].body == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def test_a_callback_sees_what_is_known_of_the_cache() -> None:
    """
    The draft of a request has it, and refuses what it cannot be.
    """
    draft = LlmRequestDraft.of(LlmRequest(contents=request("hi").contents, cache_metadata={"name": "x"}))
    assert draft.frozen().cache_metadata == {"name": "x"}
    with pytest.raises(InvalidValueError, match=r"LlmRequest\.cache_metadata"):
        draft.cache_metadata = "x"  # type: ignore[assignment]  # on purpose


def test_vertex_has_none() -> None:
    """
    Caches of Vertex AI stand elsewhere, and are refused at once; and so is what is neither True nor False.
    """
    url = "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google"
    with pytest.raises(ConfigurationError, match="Vertex AI"):
        Gemini("gemini-3-pro", base_url=url, api_key="k", explicit_caches=True)
    with pytest.raises(ConfigurationError, match="explicit_caches"):
        Gemini("gemini-3-pro", api_key="k", explicit_caches="yes")  # type: ignore[arg-type]  # on purpose


