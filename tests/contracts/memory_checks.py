"""The checks of a memory service."""

from __future__ import annotations

from typing import Any

from minirun.errors import InvalidValueError, ServiceClosedError
from minirun.events import Event, EventActions
from minirun.memory import MemoryEntry
from minirun.sessions import InMemorySessionService
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Blob, Content, FunctionCall, FunctionResponse, Part

from .memory_bench import Bench, said

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable = listed_in(DURABLE)

# --- adding ---------------------------------------------------------------------------------------------------------


@check
async def _what_was_said_is_found(t: Bench) -> None:
    """A memory has the text, the author, the time, the session and the metadata of its event, an id and a score."""
    event = said("I like green tea", "e1", at=12.5, custom_metadata={"topic": "taste", "n": 1})
    await t.hear(event, metadata={"n": 2})
    [found] = await t.search("tea")
    expect("content", found.content, Content(parts=[Part(text="I like green tea")]))
    expect("author, timestamp, session", (found.author, found.timestamp, found.session_id), ("user", 12.5, "s"))
    expect("custom_metadata", dict(found.custom_metadata), {"topic": "taste", "n": 2})
    expect("an id", isinstance(found.id, str) and bool(found.id), True)
    expect("a score above 0", (found.score or 0) > 0, True)


@check
async def _what_nobody_said_is_passed_over(t: Bench) -> None:
    """Thoughts, calls, bytes, fragments, summaries, refused answers and words to oneself are not remembered."""
    call = FunctionCall(name="tea", args={"tea": "tea"}, id="c")
    parts: list[Part] = [
        Part(text="thought tea", thought=True),
        Part(function_call=call),
        Part(function_response=FunctionResponse(name="tea", response={"tea": "tea"}, id="c")),
        Part(inline_data=Blob(data=b"tea", mime_type="text/plain")),
        Part(text=" \n"),
    ]
    events = [Event(id=f"p{n}", timestamp=1.0, author="a", content=Content(parts=[p])) for n, p in enumerate(parts)]
    await t.hear(*events)
    await t.hear(Event(author="a", partial=True, message="tea"))
    await t.hear(Event(id="state", timestamp=1.0, author="a", state={"tea": "tea"}))
    await t.hear(said("tea in short", actions=EventActions(compaction={"tea": 1})))
    await t.hear(said("tea was refused", error_code="SAFETY"))
    told = Content(role="user", parts=[Part(text="tea again")])
    await t.hear(Event(id="self", timestamp=1.0, author="a", content=told))
    expect("found", await t.find("tea thought"), [])
    mixed = Content(
        role="model", parts=[Part(text="no ", thought=True), Part(text="black "), parts[1], Part(text="tea")]
    )
    await t.hear(Event(id="mixed", timestamp=1.0, author="a", content=mixed))
    [found] = await t.search("tea")
    expect("the content", found.content, Content(role="model", parts=[Part(text="black "), Part(text="tea")]))


@check
async def _adding_again_changes_nothing(t: Bench) -> None:
    """An event is known by session and id: added again it is one memory; another session's is another one."""
    await t.hear("tea", "tea for two")
    before = await t.search("tea")
    await t.hear("tea", "tea for two", "tea for two", "tea at five")
    await t.hear("tea")
    expect("texts", sorted(await t.find("tea")), ["tea", "tea at five", "tea for two"])
    expect("the ids of the first", {memory.id for memory in before} <= {m.id for m in await t.search("tea")}, True)
    await t.hear("tea", session="s2")
    expect("with those of another session", len(await t.search("tea")), 4)
    await t.hear("tea", session=None)
    expect("with one of no session", len(await t.search("tea")), 5)


@check
async def _an_event_that_has_changed_takes_its_own_place(t: Bench) -> None:
    """The same id with another text or other metadata is one memory, which is found as what it is now."""
    await t.hear(said("green tea", "e"), metadata={"v": 1})
    await t.hear(said("black coffee", "e"), metadata={"v": 2})
    expect("the old words", await t.find("tea"), [])
    expect("the old metadata", await t.find("coffee", custom_metadata={"v": 1}), [])
    expect("the new ones", await t.find("coffee", custom_metadata={"v": 2}), ["black coffee"])


@check
async def _a_session_can_be_added(t: Bench) -> None:
    """`add_session_to_memory` takes the loaded events of a session; again, it adds what is new."""
    sessions = InMemorySessionService(env=t.service.env)
    session = await sessions.create_session(app_name=t.app, user_id="u", session_id="s")
    await sessions.append_event(session, Event(author="user", message="my cat is Tom"))
    await t.service.add_session_to_memory(session)
    await sessions.append_event(session, Event(author="a", message="hello Tom"))
    await t.service.add_session_to_memory(session)
    expect("texts", sorted(await t.find("tom")), ["hello Tom", "my cat is Tom"])
    [found] = await t.search("cat")
    expect("session and time", (found.session_id, found.timestamp), ("s", session.events[0].timestamp))


@check
async def _a_memory_can_be_added(t: Bench) -> None:
    """`add_memory` takes strings, contents and entries, and returns their ids; a known id is replaced."""
    before = t.service.env.now()
    entry = MemoryEntry(content="tea is hot", id="mine", author="x", timestamp=5.0, session_id="s9")
    ids = await t.add("tea", Content(parts=[Part(text="green tea")]), entry, metadata={"k": "v"})
    expect("three ids, the last as given", (len(set(ids)), ids[2]), (3, "mine"))
    found = {memory.id: memory for memory in await t.search("tea")}
    expect("ids found", set(found), set(ids))
    mine, plain = found["mine"], found[ids[0]]
    expect("the entry", (mine.author, mine.timestamp, mine.session_id), ("x", 5.0, "s9"))
    expect("the metadata", [dict(memory.custom_metadata) for memory in found.values()], [{"k": "v"}] * 3)
    expect("a time", before <= (plain.timestamp or 0) <= t.service.env.now(), True)
    expect("the id again", await t.add(MemoryEntry(content="coffee", id="mine")), ["mine"])
    expect("replaced", (len(await t.find("tea")), await t.find("coffee")), (2, ["coffee"]))
    twice = [MemoryEntry(content=text, id="mine") for text in ("cocoa", "cider")]
    expect("one id twice in a call", await t.add(*twice), ["mine", "mine"])
    expect("the last wins", await t.find("coffee cocoa cider"), ["cider"])


@check
async def _the_callers_objects_are_not_kept(t: Bench) -> None:
    """What the caller changes afterwards is not changed in the store."""
    metadata: dict[str, Any] = {"tags": ["a"]}
    await t.hear("tea", metadata=metadata)
    metadata["tags"].append("b")
    [found] = await t.search("tea")
    expect("custom_metadata", dict(found.custom_metadata), {"tags": ["a"]})


# --- what matches ---------------------------------------------------------------------------------------------------


@check
async def _words_match_in_all_their_forms(t: Bench) -> None:
    """Case, accents, width, English endings and punctuation make no difference; parts of words do."""
    pairs = {
        "The CAFÉ was closed": "cafe",
        "ΟΔΥΣΣΕΥΣ came home": "οδυσσευσ",
        "die Straße": "STRASSE",
        "ｗｉｄｅ letters": "wide",
        "she was running": "runs",
        "three ponies": "pony",
        "relational databases": "relate",
        "don't-panic/now": "panic",
        "snake_case_name": "case",
        "version 3.14": "14",
        "Ёлка": "елка",
        "हिन्दी भाषा": "हिन्दी",
        "한국어 문장": "한국어",
        "naïve": "nai\u0308ve",
        "we won 🎉🎉": "🎉",
        "\x00control\x01led\x7f words": "control",
    }
    for text, query in pairs.items():
        await t.hear(text)
        expect(f"{query!r} finds", await t.find(query), [text])
    for query in ("runn", "caf", "tea", "हि", "한국"):
        expect(f"{query!r} finds", await t.find(query), [])


@check
async def _scripts_without_spaces_match_in_pieces(t: Bench) -> None:
    """Chinese, Japanese, Thai and their like are found by any piece, short ones too, also between other words."""
    texts = ["東京都庁に行きました", "我喜欢喝绿茶", "ฉันชอบดื่มชา", "日本語のPython入門", "ខ្ញុំចូលចិត្តតែ"]
    await t.hear(*texts)
    queries = {
        "東京": 0,
        "京都": 0,
        "行": 0,
        "都庁に": 0,
        "绿茶": 1,
        "喝": 1,
        "ชอบดื่ม": 2,
        "ชา": 2,
        "入門": 3,
        "python": 3,
    }
    for query, place in {**queries, "ចូលចិត្ត": 4}.items():
        expect(f"{query!r} finds", await t.find(query), [texts[place]])
    expect("what is not there", await t.find("大阪 ビール"), [])
    expect("the whole first", (await t.find("我喜欢喝绿茶和东京"))[0], texts[1])


@check
async def _a_query_has_no_operators(t: Bench) -> None:
    """Quotes, operators and whatever a search engine might read in a query are text; none of it fails or selects."""
    await t.hear("tea and coffee", "not near or", "cake")
    for query in ('"tea', "tea*", "tea AND nothing", "NOT tea", "-tea", "^tea", "tokens:tea", "(tea", "NEAR(tea, 1)"):
        expect(f"{query!r} finds the tea", "tea and coffee" in await t.find(query), True)
        expect(f"{query!r} finds cake", "cake" in await t.find(query), False)
    for query in ('" OR "cake', "x' OR 1=1 --", "%", "*", '"', "''", ":", "\\", "1x0wcake", "=", "\x00"):
        found = await t.find(query)
        expect(f"{query!r} finds no tea", "tea and coffee" in found, False)
    expect("quotes around a word", await t.find('" OR "cake'), ["cake", "not near or"])


@check
async def _a_query_without_words_finds_nothing(t: Bench) -> None:
    """Nothing, spaces and punctuation find nothing, also in a memory that has them."""
    await t.hear("... --- ...", "tea")
    for query in ("", " \n", "...", "?!"):
        expect(f"{query!r} finds", await t.find(query), [])


@check
async def _long_texts_and_words_work(t: Bench) -> None:
    """A long text is found by its last word, a word of any length by itself, and a long query finds."""
    long = " ".join(f"word{number}" for number in range(20_000))
    data = "ab" * 50_000
    await t.hear(said(long, "long"), said(data, "data"))
    expect("the last word", len(await t.search("word19999")), 1)
    expect("the long word", len(await t.search(data)), 1)
    expect("its beginning alone", len(await t.search(data[:40])), 0)
    expect("a long query", len(await t.search(long)), 1)


# --- order ----------------------------------------------------------------------------------------------------------


@check
async def _the_best_comes_first(t: Bench) -> None:
    """More and rarer words, more often, in shorter texts, come first; of equal ones the one added later."""
    await t.hear("tea with milk and sugar, please", "tea", "milk", "tea tea", "the table", "the chair")
    expect("both words first", (await t.find("sugar milk"))[0], "tea with milk and sugar, please")
    expect("the rare word first", (await t.find("the chair"))[0], "the chair")
    expect("tea", await t.find("tea"), ["tea tea", "tea", "tea with milk and sugar, please"])
    memories = await t.search("tea milk the")
    scores = [memory.score or 0 for memory in memories]
    expect("scores fall", scores, sorted(scores, reverse=True))
    await t.hear("green leaf", "leaf green")
    expect("of equal ones the later", await t.find("leaf"), ["leaf green", "green leaf"])


@check
async def _a_limit_is_kept(t: Bench) -> None:
    """Ten memories by default, as many as are asked for, and always the best."""
    await t.hear(*(f"tea {'x ' * number}" for number in range(30)))
    everything = await t.find("tea", limit=500)
    expect("all", len(everything), 30)
    expect("by default", await t.find("tea"), everything[:10])
    expect("three", await t.find("tea", limit=3), everything[:3])


@check
async def _a_search_can_be_narrowed(t: Bench) -> None:
    """A filter keeps what has this author, session and metadata, and a time in [after, before); all of it holds."""
    await t.add(MemoryEntry(content="rum", author=" Ada "))
    expect(
        "an author as it is", (await t.find("rum", author=" Ada "), await t.find("rum", author="Ada")), (["rum"], [])
    )
    for number in range(6):
        author, session = ("user", "bot")[number % 2], f"s{number // 3}"
        metadata = {"n": number, "half": number / 2, "tags": ["x", {"a": 1}] if number else []}
        event = said(f"tea {number}", author=author, at=float(number))
        await t.hear(event, session=session, metadata=metadata)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"author": "user"}, "024"),
        ({"author": "user", "session_id": "s1"}, "4"),
        ({"session_id": "s1"}, "345"),
        ({"after": 4}, "45"),
        ({"before": 2.0}, "01"),
        ({"after": 1, "before": 4, "author": "bot"}, "13"),
        ({"after": 4, "before": 4}, ""),
        ({"custom_metadata": {"n": 3}}, "3"),
        ({"custom_metadata": {"half": 1}}, "2"),
        ({"custom_metadata": {"tags": ["x", {"a": 1}], "n": 5}}, "5"),
        ({"custom_metadata": {"tags": "x"}}, ""),
        ({"custom_metadata": {"n": True}}, ""),
        ({"custom_metadata": {}}, "012345"),
        ({"author": "nobody"}, ""),
    ]
    for narrow, expected in cases:
        found = sorted(text.removeprefix("tea ") for text in await t.find("tea", **narrow))
        expect(f"filter {narrow}", "".join(found), expected)


# --- deleting -------------------------------------------------------------------------------------------------------


@check
async def _what_is_deleted_stays_deleted(t: Bench) -> None:
    """A deleted memory is not found, and adding its event again does not bring it back."""
    await t.hear("green tea", "black tea")
    [green] = await t.search("green")
    await t.delete(green.id or "")
    await t.delete(green.id or "")
    await t.delete("unknown")
    expect("found", await t.find("tea"), ["black tea"])
    await t.hear("green tea", "black tea")
    await t.hear(said("green tea for two", "green tea"))
    expect("found after adding again", await t.find("tea"), ["black tea"])
    with raises(InvalidValueError, "deleted"):
        await t.add(MemoryEntry(content="tea", id=green.id))
    expect("found in the end", await t.find("tea"), ["black tea"])


@check
async def _all_of_a_session_can_be_forgotten(t: Bench) -> None:
    """Forgetting a session takes its memories and no others, for good; new ones of it can come."""
    await t.hear(*(f"tea {number}" for number in range(300)))
    await t.hear("tea of another session", session="s2")
    await t.hear("tea of no session", session=None)
    await t.hear("tea of another user", user="u2")
    await t.service.delete_session_memories(app_name=t.app, user_id="u", session_id="s")
    await t.hear("tea 1")
    expect("found", sorted(await t.find("tea")), ["tea of another session", "tea of no session"])
    expect("found of the other user", await t.find("tea", user="u2"), ["tea of another user"])
    await t.hear("new tea")
    expect("new ones", await t.find("new"), ["new tea"])


@check
async def _all_of_a_user_can_be_forgotten(t: Bench) -> None:
    """Forgetting a user takes all memories, and no other user's."""
    await t.hear(*(f"tea {number}" for number in range(300)))
    await t.hear("tea", session="s2")
    await t.hear("tea of another user", user="u2")
    await t.service.delete_user_memories(app_name=t.app, user_id="u")
    await t.service.delete_user_memories(app_name=t.app, user_id="nobody")
    await t.hear("tea 1")
    expect("found", await t.find("tea"), [])
    expect("found of the other user", await t.find("tea", user="u2"), ["tea of another user"])


# --- users ----------------------------------------------------------------------------------------------------------


@check
async def _users_and_apps_know_nothing_of_each_other(t: Bench) -> None:
    """What another user, or the same user of another app, has said is neither found, nor changed, nor counted."""
    await t.hear("my tea", "my coffee is black")
    alone = await t.search("tea coffee")
    other = t.app + "-2"
    for number in range(20):
        await t.hear(f"your tea {number} coffee coffee", user="u2", app=t.app)
        await t.hear(f"their tea {number}", app=other)
    expect("the answer of before, with its scores", await t.search("tea coffee"), alone)
    for query in ("your", "their", "1xt", "u2"):
        expect(f"{query!r} finds", await t.find(query), [])
    [mine] = await t.search("black")
    await t.delete(mine.id or "", user="u2")
    await t.service.delete_session_memories(app_name=t.app, user_id="u2", session_id="s")
    expect("after the other user deleted", await t.search("tea coffee"), alone)
    expect("the other app", len(await t.search("tea", app=other, limit=100)), 20)


# --- what is refused ------------------------------------------------------------------------------------------------


@check
async def _what_cannot_be_is_refused_by_name(t: Bench) -> None:
    """Wrong arguments are refused with their name, and nothing is stored."""
    here: dict[str, Any] = {"app_name": t.app, "user_id": "u"}
    service = t.service
    bad_memories: list[Any] = [
        "tea",
        [1],
        [Part(text="tea")],
        [MemoryEntry(content="tea", score=1.0)],
        ["tea", MemoryEntry(content="tea", id=" ")],
        [Content(parts=[Part(text="tea", thought=True)])],
        [Content(parts=[Part(text="tea"), Part(inline_data=Blob(data=b"x", mime_type="a/b"))])],
        ["tea", " "],
    ]
    for memories in bad_memories:
        with raises(InvalidValueError, "memories"):
            await service.add_memory(**here, memories=memories)
    for events in ("tea", [1], [said("tea"), Event(author="a", message="tea")]):
        with raises(InvalidValueError, "events"):
            await service.add_events_to_memory(**here, session_id="s", events=events)  # type: ignore[arg-type]
    with raises(InvalidValueError, "session_id"):
        await t.hear("tea", session=" ")
    with raises(InvalidValueError, "custom_metadata"):
        await t.hear("tea", metadata={"a": {1, 2}})
    with raises(InvalidValueError, "custom_metadata"):
        await t.hear("tea", metadata=[1])  # type: ignore[arg-type]
    with raises(InvalidValueError, "session", "Session"):
        await service.add_session_to_memory("s")  # type: ignore[arg-type]
    for name in ("app_name", "user_id"):
        for value in ("", " ", None, 1, "a\0b", "x" * 1025, "\ud800"):
            with raises(InvalidValueError, name):
                await service.add_memory(**{**here, name: value}, memories=["tea"])
    for limit in (0, -1, 501, True, 1.0, "1"):
        with raises(InvalidValueError, "limit"):
            await service.search_memory(**here, query="tea", limit=limit)  # type: ignore[arg-type]
    bad_filters: list[Any] = [{"autor": "x"}, [], "author", {"author": 1}, {"after": "now"}, {"before": float("nan")}]
    for narrow in (*bad_filters, {"custom_metadata": [1]}, {1: 2}, {"after": True}, {"after": 10**400}):
        with raises(InvalidValueError, "filter"):
            await service.search_memory(**here, query="tea", filter=narrow)
    for query in (None, 1, b"tea", "\ud800"):
        with raises(InvalidValueError, "query"):
            await service.search_memory(**here, query=query)  # type: ignore[arg-type]
    with raises(InvalidValueError, "memory_id"):
        await t.delete("")
    with raises(InvalidValueError, "session_id"):
        await service.delete_session_memories(**here, session_id=None)  # type: ignore[arg-type]
    expect("stored", await t.find("tea"), [])


@check
async def _a_closed_service_is_refused(t: Bench) -> None:
    """After aclose everything raises ServiceClosedError, also an aclose of something else meanwhile does no harm."""
    await t.service.aclose()
    await t.service.aclose()
    with raises(ServiceClosedError):
        await t.hear("tea")
    with raises(ServiceClosedError):
        await t.add("tea")
    with raises(ServiceClosedError):
        await t.search("tea")
    with raises(ServiceClosedError):
        await t.delete("x")


# --- stores that can be opened again ----------------------------------------------------------------------------------


@durable
async def _memories_survive(t: Bench) -> None:
    """Memories, deletions and what was known of events are there when the store is opened again."""
    async with t.opened():
        await t.hear("green tea", "black tea", "white tea")
        [green] = await t.search("green")
        await t.delete(green.id or "")
        before = await t.search("tea")
    async with t.opened():
        expect("found", await t.search("tea"), before)
        await t.hear("green tea", "black tea")
        expect("after adding again", await t.search("tea"), before)


@durable
async def _two_services_share_a_store(t: Bench) -> None:
    """What one has added or deleted, the other finds or does not find."""
    async with t.opened() as first:
        await t.hear("green tea")
        async with t.opened() as second:
            expect("found by the second", await t.find("tea"), ["green tea"])
            await t.hear("black tea")
            t.service = first
            expect("found by the first", sorted(await t.find("tea")), ["black tea", "green tea"])
            [green] = await t.search("green")
            await t.delete(green.id or "")
            t.service = second
            await t.hear("green tea")
            expect("found in the end", await t.find("tea"), ["black tea"])
