"""
What is found, and in which order: the same by every service, whatever was said and asked.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minirun import Event
from minirun.memory import BaseMemoryService, InMemoryMemoryService, MemoryEntry, SqliteMemoryService, _ranking, _terms
from minirun.memory._stem import STEP_2, STEP_3, STEP_4, stem
from minirun.memory._terms import QUERY_CHARS_MAX, QUERY_TERMS_MAX, query_terms, terms_of

from ..examples import examples

USER: dict[str, Any] = {"app_name": "app", "user_id": "u"}

# --- terms ----------------------------------------------------------------------------------------------------------


def sqlites_stems(words: list[str]) -> Iterator[tuple[str, str]]:
    """What SQLite's porter tokeniser makes of each word."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE stems USING fts5(word, tokenize='porter ascii')")
    db.execute("CREATE VIRTUAL TABLE found USING fts5vocab(stems, 'instance')")
    db.executemany("INSERT INTO stems (rowid, word) VALUES (?, ?)", enumerate(words))
    for number, found in db.execute("SELECT doc, term FROM found ORDER BY doc"):
        yield words[number], found
    db.close()


def test_stems_are_those_of_sqlite() -> None:
    """English endings go as SQLite's porter tokeniser takes them, in words with every ending, and two."""
    luck = random.Random(1)
    endings = ["", "s", "es", "ies", "sses", "ed", "ing", "eed", "e", "ll", *STEP_2, *STEP_3, *STEP_4]
    words = [
        "".join(luck.choices("aeioubcdlmnrstwxz", k=luck.randint(2, 7))) + luck.choice(endings) + luck.choice(endings)
        for _ in range(20_000)
    ]
    words += ["caresses", "ponies", "cats", "plastered", "hopping", "falling", "happy", "sky", "controlled", "w" * 80]
    words = [word for word in dict.fromkeys(words) if len(word) > 4]
    for word, expected in sqlites_stems(words):
        assert stem(word) == expected, word


@given(st.text(max_size=200))
def test_every_text_has_terms_that_can_be_indexed(text: str) -> None:
    """Terms hold no space, no ASCII but small letters and digits, and what is asked for is what is stored."""
    terms = terms_of(text)
    for term in terms:
        assert 1 <= len(term) <= 64
        assert not any(character.isspace() or (character.isascii() and not character.isalnum()) for character in term)
        assert not any("A" <= character <= "Z" for character in term)
    assert set(query_terms(text)) <= set(terms)
    assert len(query_terms(text)) <= QUERY_TERMS_MAX
    assert bool(terms) == bool(query_terms(text))


@given(st.integers(0, 3000), st.integers(0, 3000))
@example(before=127, after=1)
def test_what_is_asked_is_spread_over_a_long_text(before: int, after: int) -> None:
    """A text of many words asks for some of all of it, and of a very long one for its beginning and its end."""
    terms = query_terms(" ".join([*(f"b{n}" for n in range(before)), "between", *(f"a{n}" for n in range(after))]))
    assert len(terms) == min(before + after + 1, QUERY_TERMS_MAX) or before + after > 500
    assert not before or any(term.startswith("b") for term in terms)
    assert not after or any(term.startswith("a") and term != "a" for term in terms)


def test_a_query_is_cut_before_it_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a query is, only so much of it is taken apart."""
    sizes: list[int] = []
    rows = _terms._rows

    def counted(text: str) -> Any:
        sizes.append(len(text))
        return rows(text)

    monkeypatch.setattr(_terms, "_rows", counted)
    assert {"слово", "конец"} <= set(query_terms("слово " * 1_000_000 + "конец"))
    assert sizes == [QUERY_CHARS_MAX + 1]


@pytest.mark.parametrize("make", [InMemoryMemoryService, lambda: SqliteMemoryService(":memory:")])
@pytest.mark.parametrize(
    ("fact", "message"),
    [
        (
            "我对花生过敏。",
            "你好，今天天气非常好，我和家人一起去公园散步，看到了很多漂亮的鲜花和小鸟，心情特别愉快。请问我可以吃花生吗？",
        ),
        ("peanuts", " ".join(f"word{n}" for n in range(100)) + " peanuts"),
    ],
)
async def test_the_rarest_words_of_a_message_count(make: Any, fact: str, message: str) -> None:
    """What a long message ends with is found, however many other words of it somebody has said often."""
    async with make() as service:
        await service.add_memory(**USER, memories=[fact, *[f"word{n} 今天天气" for n in range(100)] * 2])
        found = await service.search_memory(**USER, query=message, limit=1)
        assert found.memories[0].text == fact


async def test_of_long_memories_as_many_are_ranked_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terms that are counted in a search are bounded, but one memory is always ranked; services agree."""
    monkeypatch.setattr(_ranking, "RANKED_LENGTH_MAX", 25)
    texts = [f"tea {n} " + "x " * (30 if n == 2 else 8) for n in range(4)]
    for query, expected in (("tea", [3, 1]), ("tea 2", [2])):
        for make in (InMemoryMemoryService, lambda: SqliteMemoryService(":memory:")):
            async with make() as service:
                await service.add_memory(**USER, memories=texts)
                found = await service.search_memory(**USER, query=query)
                assert [int(memory.text.split()[1]) for memory in found.memories] == expected


@given(st.text(alphabet="東京都庁ありがとうชาดื่", min_size=1, max_size=12), st.data())
def test_every_piece_of_a_row_without_spaces_is_found(row: str, data: st.DataObject) -> None:
    """All terms of a piece are terms of the whole."""
    first = data.draw(st.integers(0, len(row) - 1))
    piece = row[first : data.draw(st.integers(first + 1, len(row)))]
    assert set(query_terms(piece)) <= set(terms_of(row))


# --- ranking --------------------------------------------------------------------------------------------------------


async def score(service: BaseMemoryService, query: str) -> dict[str, float]:
    found = await service.search_memory(**USER, query=query, limit=500)
    return {memory.text: memory.score or 0.0 for memory in found.memories}


async def test_scores_are_bm25() -> None:
    """A score is the sum over the query's words of bm25 with k1 = 1.2 and b = 0.75, in the user's own memories."""
    texts = ["tea tea milk", "tea", "milk and sugar please", "nothing of that"]
    service = InMemoryMemoryService()
    await service.add_memory(**USER, memories=texts)
    found = await score(service, "tea sugar")
    average = sum(len(text.split()) for text in texts) / len(texts)
    for text, value in found.items():
        words, expected = text.split(), 0.0
        for word in ("tea", "sugar"):
            having = sum(word in other.split() for other in texts)
            weight = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            often = words.count(word)
            expected += weight * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(words) / average))
        assert value == pytest.approx(expected)
    assert found.keys() == {text for text in texts if "tea" in text or "sugar" in text}


# --- all services find the same ---------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["tea", "teas", "Milk", "milk!", "sugar", "東京", "京都", "🎉", "ชาดื่ม", "", "naïve", '"OR"', "x"]
)
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
FILTERS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "author": st.sampled_from(["user", "bot"]),
        "session_id": st.sampled_from(["s0", "s1"]),
        "after": st.integers(0, 6),
        "before": st.integers(0, 6),
        "custom_metadata": st.fixed_dictionaries({}, optional={"n": st.integers(0, 2), "f": st.just(1.0)}),
    },
)


def said(number: int, text: str) -> Event:
    metadata = {"n": number % 3, "f": number % 2}
    author = ("user", "bot")[number % 2]
    return Event(id=str(number), author=author, timestamp=number % 7, message=text, custom_metadata=metadata)


Act = tuple[str, int, list[tuple[int, str]]]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["hear", "hear", "hear", "delete", "forget"]),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 25), TEXTS), max_size=8),
    ),
    max_size=8,
)


async def do(service: BaseMemoryService, act: Act) -> None:
    what, session, events = act
    if what == "hear":
        heard = [said(number, text) for number, text in events]
        await service.add_events_to_memory(**USER, session_id=f"s{session}", events=heard)
    elif what == "forget":
        await service.delete_session_memories(**USER, session_id=f"s{session}")
    else:
        for memory in (await service.search_memory(**USER, query="tea 東京", limit=2)).memories:
            await service.delete_memory(**USER, memory_id=memory.id or "")


CAPS = ("RARE_MAX", "COMMON_MAX", "RANKED_MAX", "WINDOW", "TERMS_MAX", "RANKED_LENGTH_MAX", "LENGTH_INLINE")


@pytest.mark.parametrize(
    "caps", [(500, 8, 500, 50_000, 32, 500_000, 20_000), (3, 2, 4, 6, 2, 12, 5)], ids=["usual", "tiny"]
)
@settings(max_examples=examples(60), deadline=None)
@given(acts=ACTS, query=TEXTS, narrow=FILTERS, limit=st.integers(1, 20))
def test_services_agree(
    caps: tuple[int, ...], acts: list[Act], query: str, narrow: dict[str, Any] | None, limit: int
) -> None:
    """After the same adding and deleting, all services give the same answer, order and scores included, capped too."""

    async def check() -> None:
        async with InMemoryMemoryService() as one, SqliteMemoryService(":memory:") as other:
            for act in acts:
                for service in (one, other):
                    await do(service, act)
            found = [
                await service.search_memory(**USER, query=query, filter=narrow, limit=limit) for service in (one, other)
            ]
            assert found[0] == found[1]

    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(CAPS, caps, strict=True):
            patch.setattr(_ranking, name, value)
        trio.run(check)


def fits(memory: MemoryEntry, terms: set[str], narrow: dict[str, Any]) -> bool:
    """Whether a memory is asked for, by the plain meaning of the words."""
    time, metadata = memory.timestamp or 0, memory.custom_metadata
    return (
        bool(terms & set(terms_of(memory.text)))
        and narrow.get("author", memory.author) == memory.author
        and narrow.get("session_id", memory.session_id) == memory.session_id
        and narrow.get("after", time) <= time
        and time < narrow.get("before", time + 1)
        and all(metadata.get(key) == value for key, value in narrow.get("custom_metadata", {}).items())
    )


@settings(max_examples=examples(60), deadline=None)
@given(texts=st.lists(TEXTS, max_size=30), query=TEXTS, narrow=FILTERS)
def test_all_that_fits_is_found(texts: list[str], query: str, narrow: dict[str, Any] | None) -> None:
    """Below the bounds a search finds every memory that has one of the words and passes the filter, and no other."""

    async def check() -> None:
        for make in (InMemoryMemoryService, lambda: SqliteMemoryService(":memory:")):
            async with make() as service:
                memories = [
                    MemoryEntry(
                        content=text + " .",
                        id=str(number),
                        author=("user", "bot")[number % 2],
                        timestamp=number % 7,
                        session_id=f"s{number % 3}",
                        custom_metadata={"n": number % 3, "f": number % 2},
                    )
                    for number, text in enumerate(texts)
                ]
                await service.add_memory(**USER, memories=memories)
                found = await service.search_memory(**USER, query=query, filter=narrow, limit=500)
                expected = {m.id for m in memories if fits(m, set(query_terms(query)), narrow or {})}
                assert {memory.id for memory in found.memories} == expected

    trio.run(check)


async def test_what_is_common_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what leads to memories, those with all common words are not worth more than the sum of their words."""
    monkeypatch.setattr(_ranking, "RARE_MAX", 3)
    monkeypatch.setattr(_ranking, "RANKED_MAX", 1)
    service = InMemoryMemoryService()
    texts = ["tea milk" if n % 2 else f"{'rare' if n < 6 else ''} x" for n in range(20)]
    await service.add_memory(**USER, memories=texts)
    assert list(await score(service, "tea milk rare")) == ["rare x"]


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_bounds_are_those_that_are_promised(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rare words are found however old; of common ones the newest, and those with all; a rare mark finds all."""
    monkeypatch.setattr(_ranking, "RARE_MAX", 10)
    monkeypatch.setattr(_ranking, "WINDOW", 60)
    service: BaseMemoryService = InMemoryMemoryService() if kind == "memory" else SqliteMemoryService(":memory:")
    texts = [f"tea {'milk' if n % 5 == 0 else 'sugar'} {'rare' if n < 3 else ''}" for n in range(100)]
    events = [Event(id=str(n), author="u", timestamp=n, message=text) for n, text in enumerate(texts)]
    await service.add_events_to_memory(**USER, session_id="old", events=events[:5])
    await service.add_events_to_memory(**USER, session_id="new", events=events[5:])

    async def times(query: str, **narrow: Any) -> set[float | None]:
        found = await service.search_memory(**USER, query=query, filter=narrow or None, limit=500)
        return {memory.timestamp for memory in found.memories}

    assert await times("rare") == {0, 1, 2}
    assert await times("tea") == set(range(90, 100))
    assert await times("tea milk") == {*range(90, 100), *range(50, 90, 5)}
    assert await times("tea", session_id="old") == set(range(5))
    assert await times("tea", before=50) == set(range(40, 50))
    assert await times("milk", author="u") == set(range(50, 100, 5))
    assert await times("tea", before=3) == {0, 1, 2}
    await service.aclose()
