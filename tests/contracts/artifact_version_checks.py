"""The checks of an artifact service: what becomes of versions, which are restored, copied, deleted and kept."""

from __future__ import annotations

from typing import Any

import trio

from minirun.errors import AlreadyExistsError, InvalidValueError, ServiceClosedError
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Part

from .artifact_bench import Bench, blob

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable = listed_in(DURABLE)

# --- restoring ------------------------------------------------------------------------------------------------------


@check
async def _an_earlier_version_is_the_newest_again(t: Bench) -> None:
    """A restored version is a new one with the content, type and metadata of the earlier one, which stays."""
    await t.save(blob(b"old", "a/b"), metadata={"n": 1})
    await t.save("new")
    first = await t.about(version=0)
    expect("the number", await t.restore(0), 2)
    expect("versions", await t.versions(), [0, 1, 2])
    expect("the newest", (await t.load(), await t.load(version=0)), (blob(b"old", "a/b"),) * 2)
    restored = await t.about()
    expect("what it is", (restored.version, restored.mime_type, restored.size), (2, "a/b", 3))
    expect("its content and metadata", (restored.sha256, restored.custom_metadata), (first.sha256, {"n": 1}))
    expect("a URI of its own", restored.canonical_uri != first.canonical_uri, True)
    expect("create_time", first.create_time <= restored.create_time <= t.service.env.now(), True)
    expect("the next version", await t.save("x"), 3)


@check
async def _the_newest_can_be_hidden(t: Bench) -> None:
    """A hidden version makes the newest nothing, by all names, until a later save; earlier ones stay readable."""
    for name in ("a.txt", "user:a"):
        await t.save("old", name)
        expect("the number", await t.restore(None, name), 1)
        expect("the newest", (await t.load(name), await t.read(name)), (None, None))
        expect("its info", await t.service.get_artifact_version(**t.place(name)), None)
        expect("the hidden one by its number", await t.load(name, 1), None)
        expect("the earlier one", await t.text(name, 0), "old")
        expect("versions", await t.versions(name), [0])
        expect("infos", [one.version for one in await t.service.list_artifact_versions(**t.place(name))], [0])
    expect("names", await t.names(), [])
    await t.service.gc()
    expect("the next versions", (await t.save("new"), await t.restore(0, "user:a")), (2, 2))
    expect("texts", (await t.text(), await t.text("user:a")), ("new", "old"))
    expect("versions with a gap", await t.versions(), [0, 2])
    expect("names", await t.names(), ["a.txt", "user:a"])


@check
async def _restoring_what_is_not_there_hides(t: Bench) -> None:
    """A version that was deleted, hidden or never made is restored as a hidden one; numbers are never used again."""
    expect("of an artifact that never was", await t.restore(None), 0)
    expect("versions", await t.versions(), [])
    await t.save("a")
    expect("a hidden one", await t.restore(0), 2)
    expect("one to come", await t.restore(9), 3)
    expect("versions", (await t.versions(), await t.load()), ([1], None))
    await t.delete()
    expect("a deleted one", await t.restore(1), 4)
    expect("versions", (await t.versions(), await t.load()), ([], None))
    expect("the next", (await t.save("b"), await t.versions()), (5, [5]))


@check
async def _restored_content_is_kept(t: Bench) -> None:
    """gc leaves the content that only a restored version names, and takes it when that is deleted, too."""
    text = f"restored {t.app}"
    await t.save(text)
    await t.save("x")
    await t.restore(0)
    await t.service.gc()
    expect("the newest", await t.text(), text)
    await t.delete()
    await t.service.gc()
    expect("what a second gc finds", (await t.service.gc()).contents, 0)


# --- copying --------------------------------------------------------------------------------------------------------


@check
async def _a_copy_has_the_same_numbers(t: Bench) -> None:
    """Another session gets all versions with their numbers, hidden ones included, and the two then go their ways."""
    await t.save("deleted")
    await t.delete()
    for text in ("a", "b"):
        await t.save(text, metadata={"n": 1})
    await t.save("h", "h")
    await t.restore(None, "h")
    await t.save("mine", "user:m")
    await t.save("gone", "gone")
    await t.delete("gone")
    await t.copy_session("s", "t")
    before, after = await t.about(version=1), await t.about(version=1, session="t")
    expect("what is the same", (after.sha256, after.create_time), (before.sha256, before.create_time))
    expect(
        "its metadata and URI", (after.custom_metadata, after.canonical_uri != before.canonical_uri), ({"n": 1}, True)
    )
    expect("versions", (await t.versions(session="t"), await t.versions("h", session="t")), ([1, 2], [0]))
    expect("names", await t.names(session="t"), ["a.txt", "user:m"])
    expect("what is hidden", (await t.load("h", session="t"), await t.text("h", 0, session="t")), (None, "h"))
    expect("the next versions", (await t.save("c"), await t.save("d", session="t")), (3, 3))
    await t.delete_session()
    await t.service.gc()
    texts = [await t.text(version=number, session="t") for number in range(4)]
    expect("texts of the copy", texts, [None, "a", "b", "d"])


@check
async def _a_copy_writes_over_nothing(t: Bench) -> None:
    """A session that has or had an artifact of one of the names is refused, and gets none of the others."""
    await t.save("a", "a")
    await t.save("b", "b")
    await t.save("x", "b", session="has")
    await t.save("x", "b", session="had")
    await t.delete("b", session="had")
    for target in ("has", "had"):
        with raises(AlreadyExistsError, "'b'", target):
            await t.copy_session("s", target)
        expect("the names there", await t.names(session=target), ["b"] if target == "has" else [])
    await t.copy_session("never", "has")
    expect("what was there", await t.text("b", session="has"), "x")
    with raises(InvalidValueError, "new_session_id"):
        await t.copy_session("s", None)  # type: ignore[arg-type]  # on purpose


@check
async def _a_copy_can_end_at_a_version(t: Bench) -> None:
    """With `versions` only the names that it has are copied, up to its numbers, which then go on above these."""
    for text in ("a", "b", "c"):
        await t.save(text)
    await t.save("later", "later")
    await t.copy_session("s", "t", {"a.txt": 1, "user:x": 3, "never": 7})
    expect("versions", (await t.versions(session="t"), await t.names(session="t")), ([0, 1], ["a.txt"]))
    expect("the newest", await t.text(session="t"), "b")
    expect("the next is above", await t.save("d", session="t") > 1, True)
    await t.copy_session("s", "none", {})
    expect("names of an empty copy", await t.names(session="none"), [])
    wrong: list[Any] = [["a.txt"], {"a.txt": -1}, {"a.txt": None}, {"../a": 1}]
    for versions in wrong:
        with raises(InvalidValueError):
            await t.copy_session("s", "u", versions)


# --- numbers --------------------------------------------------------------------------------------------------------


@check
async def _numbers_of_another_past_are_left_out(t: Bench) -> None:
    """A save that is told the least number leaves those below unused, also for all that comes later."""
    expect("the first", await t.save_from(3, "a"), 3)
    expect("one that is above anyway", await t.save_from(2, "b"), 4)
    expect("one that leaves a gap", await t.save_from(1_000_000, "c"), 1_000_000)
    expect("the next", await t.save("d"), 1_000_001)
    expect("restored", await t.restore(3, least=2_000_000), 2_000_000)
    expect("hidden", await t.restore(None, least=2_000_002), 2_000_002)
    expect("versions", await t.versions(), [3, 4, 1_000_000, 1_000_001, 2_000_000])
    texts = [await t.text(version=number) for number in (None, 0, 3, 5, 1_000_000, 2_000_000, 2_000_001, 2_000_002)]
    expect("texts", texts, [None, None, "a", None, "c", "a", None, None])
    await t.copy_session("s", "t", {"a.txt": 1_000_000})
    expect("the copy", await t.versions(session="t"), [3, 4, 1_000_000])
    expect("its newest", await t.text(session="t"), "c")
    await t.service.gc()
    expect("after gc", await t.text(version=4), "b")
    await t.delete()
    expect("deleted", (await t.versions(), await t.names()), ([], []))
    expect("a number that would use up all is ignored", await t.save_from(2**63, "e"), 2_000_003)


@check
async def _no_number_is_too_large(t: Bench) -> None:
    """A number that no store can have is that of no version."""
    await t.save("a")
    expect("load_artifact", await t.load(version=2**70), None)
    async with t.service.open_artifact(**t.place(), version=2**63) as reader:
        expect("open_artifact", reader, None)
    await t.restore(2**70)
    expect("restored", await t.load(), None)


@check
async def _a_reader_ends_with_its_block(t: Bench) -> None:
    """Who reads on after the block of `open_artifact` is told so, and reads nothing."""
    for data in (b"small", b"x" * 1_000_000):
        await t.stream([data])
        async with t.service.open_artifact(**t.place()) as reader:
            assert reader is not None
            chunks = aiter(reader)
        for read in (reader, chunks):
            with raises(ServiceClosedError, "open_artifact"):
                await anext(read)


# --- deleting and collecting ----------------------------------------------------------------------------------------


@check
async def _a_number_is_never_used_again(t: Bench) -> None:
    """After a delete the versions go on where they were, so that an old number never names other content."""
    await t.save("a")
    await t.save("b")
    await t.delete()
    expect("versions", await t.versions(), [])
    expect("names", await t.names(), [])
    expect("loads", [await t.load(), await t.load(version=0), await t.load(version=1)], [None] * 3)
    await t.service.gc()
    expect("the next version", await t.save("c"), 2)
    expect("versions", await t.versions(), [2])
    expect("the old number", await t.load(version=0), None)
    for number in range(3, 6):
        await t.delete()
        await t.delete()
        expect("the next version", await t.save("d"), number)


@check
async def _deleting_what_is_missing_is_nothing(t: Bench) -> None:
    """Deleting a name or a session without artifacts is no error and uses up no number."""
    await t.delete()
    await t.delete("user:a", session=None)
    await t.delete_session("never")
    expect("the first version", await t.save("a"), 0)


@check
async def _a_session_goes_without_what_is_the_users(t: Bench) -> None:
    """Deleting a session's artifacts leaves those of the user and of other sessions, and its numbers stay used."""
    for name in ("a", "b", "b", "user:a"):
        await t.save(name, name)
    await t.save("other", "a", session="other")
    await t.delete_session()
    expect("names", await t.names(), ["user:a"])
    expect("content of the session", (await t.load("a"), await t.load("b", 0)), (None, None))
    expect("the user's", await t.text("user:a"), "user:a")
    expect("the other session's", await t.text("a", session="other"), "other")
    expect("the next versions", (await t.save("x", "a"), await t.save("x", "b")), (1, 2))


@check
async def _gc_takes_only_what_nobody_names(t: Bench) -> None:
    """gc deletes content that no version names, and none that one of several still names."""
    await t.service.gc()
    shared, lonely = f"shared {t.app}", f"lonely {t.app}"
    await t.save(shared, "a")
    await t.save(shared, "b", user="v")
    await t.save(lonely, "c")
    await t.delete("a")
    await t.delete("c")
    await t.service.gc()
    expect("the shared content", await t.text("b", user="v"), shared)
    found = await t.service.gc()
    expect("what a second gc finds", (found.contents, found.size), (0, 0))
    expect("the content of old, saved again", (await t.save(lonely, "c"), await t.text("c")), (1, lonely))


@check
async def _a_closed_service_says_so(t: Bench) -> None:
    """Everything asked of a closed service raises ServiceClosedError; closing it again does nothing."""
    await t.service.aclose()
    await t.service.aclose()
    with raises(ServiceClosedError):
        await t.save("a")
    with raises(ServiceClosedError):
        await t.read()
    with raises(ServiceClosedError):
        await t.names()
    with raises(ServiceClosedError):
        await t.service.gc()


# --- stores that can be opened again --------------------------------------------------------------------------------


@durable
async def _what_was_saved_is_there_again(t: Bench) -> None:
    """Versions, their content, their info and their names are the same when the store is opened again."""
    async with t.opened() as service:
        await t.save("a", metadata={"n": 1})
        await t.stream([b"x" * 3_000_000], "user:b")
        infos = await service.list_artifact_versions(**t.place()), await t.about("user:b")
    async with t.opened() as service:
        expect("infos", (await service.list_artifact_versions(**t.place()), await t.about("user:b")), infos)
        expect("names", await t.names(), ["a.txt", "user:b"])
        expect("content", (await t.text(), await t.read("user:b")), ("a", b"x" * 3_000_000))
        expect("the next version", await t.save("b"), 1)


@durable
async def _deleted_numbers_stay_used(t: Bench) -> None:
    """A deleted artifact stays deleted, and its numbers used, when the store is opened again."""
    async with t.opened():
        await t.save("a")
        await t.save("b", "b")
        await t.delete()
        await t.delete_session()
        await t.save("c", "c")
        await t.restore(None, "c")
    async with t.opened():
        expect("names", await t.names(), [])
        expect("what is hidden", (await t.load("c"), await t.text("c", 0), await t.versions("c")), (None, "c", [0]))
        await t.service.gc()
        expect("the next versions", (await t.save("a"), await t.save("b", "b")), (1, 1))


@durable
async def _two_services_share_one_store(t: Bench) -> None:
    """Two services that have the same store open see each other's saves, and no number is given twice."""
    versions: list[int] = []

    async with t.opened() as one, t.opened() as two:

        async def save(service: Any, text: str) -> None:
            for _ in range(4):
                versions.append(await service.save_artifact(**t.place(), artifact=Part(text=text)))

        async with trio.open_nursery() as nursery:
            for service, text in ((one, "one"), (two, "two")):
                nursery.start_soon(save, service, text)
        expect("versions", sorted(versions), list(range(8)))
        for service in (one, two):
            expect("versions listed", await service.list_versions(**t.place()), list(range(8)))
        await one.delete_artifact(**t.place())
        expect("what the other finds", await two.load_artifact(**t.place()), None)
        expect("the next version", await two.save_artifact(**t.place(), artifact=Part(text="x")), 8)
