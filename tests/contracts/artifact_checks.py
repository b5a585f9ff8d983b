"""The checks of an artifact service: what is saved under which name, and loaded again."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import trio

from minirun._json import brief
from minirun.errors import InvalidValueError, NotSupportedError
from minirun.testing._contract import Body, expect, listed_in, raises
from minirun.types import Blob, FileData, FunctionCall, Part

from .artifact_bench import Bench, blob

__all__ = ["CHECKS"]

CHECKS: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)

# --- saving and loading ---------------------------------------------------------------------------------------------


@check
async def _versions_are_counted_from_0(t: Bench) -> None:
    """Each save returns the next version of its name, from 0, and each version stays what it was."""
    expect("versions of the saves", [await t.save(text) for text in ("a", "b", "a")], [0, 1, 2])
    expect("version of another name", await t.save("x", "b.txt"), 0)
    expect("list_versions", await t.versions(), [0, 1, 2])
    expect("the texts", [await t.text(version=version) for version in range(3)], ["a", "b", "a"])
    expect("the newest", await t.text(), "a")


@check
async def _a_part_comes_back_equal(t: Bench) -> None:
    """Text, bytes and the URI of a file come back as the equal part, with all that is said of them."""
    parts = [
        Part(text=""),
        Part(text="grüße\r\n\0", thought=True, thought_signature=b"\xff"),
        blob(b""),
        Part(inline_data=Blob(data=bytes(range(256)), mime_type="image/png", display_name="ä.png")),
        Part(inline_data=Blob(data=b"x", mime_type="a/b", unknown_fields={"later": 1}), unknown_fields={"more": [2]}),
        Part(file_data=FileData(file_uri="https://example.org/a.pdf", mime_type="application/pdf", display_name="a")),
        Part(file_data=FileData(file_uri="gs://bucket/a")),
    ]
    for number, part in enumerate(parts):
        expect("the version", await t.save(part), number)
    for number, part in enumerate(parts):
        expect("the loaded part", await t.load(version=number), part)


@check
async def _what_is_missing_is_none(t: Bench) -> None:
    """A name without versions, and a version that is not there, are None and no error."""
    expect("load_artifact", await t.load(), None)
    expect("open_artifact", await t.read(), None)
    expect("get_artifact_version", await t.service.get_artifact_version(**t.place()), None)
    expect("list_versions", await t.versions(), [])
    expect("list_artifact_versions", await t.service.list_artifact_versions(**t.place()), [])
    expect("list_artifact_keys", await t.names(), [])
    await t.save("a")
    expect("a version to come", await t.load(version=1), None)
    expect("its info", await t.service.get_artifact_version(**t.place(), version=1), None)


@check
async def _a_version_says_what_it_is(t: Bench) -> None:
    """Version info has mime type, size, sha256, create time, custom metadata and a URI of its own."""
    before = t.service.env.now()
    await t.save(blob(b"pdf", "application/pdf"), metadata={"author": ["x", {"n": 1}]})
    await t.save("grün")
    first, second = await t.service.list_artifact_versions(**t.place())
    expect("version", (first.version, second.version), (0, 1))
    expect("mime_type", (first.mime_type, second.mime_type), ("application/pdf", "text/plain"))
    expect("size in bytes", (first.size, second.size), (3, 5))
    expect("sha256", first.sha256, hashlib.sha256(b"pdf").hexdigest())
    expect("sha256 of text", second.sha256, hashlib.sha256("grün".encode()).hexdigest())
    expect(
        "custom_metadata",
        (dict(first.custom_metadata), dict(second.custom_metadata)),
        ({"author": ["x", {"n": 1}]}, {}),
    )
    expect("create_time between", before <= first.create_time <= second.create_time <= t.service.env.now(), True)
    expect("two URIs", len({first.canonical_uri, second.canonical_uri}), 2)
    expect("get_artifact_version(0)", await t.about(version=0), first)
    expect("get_artifact_version()", await t.about(), second)


@check
async def _the_callers_objects_are_not_kept(t: Bench) -> None:
    """What the caller changes after a save is not changed in the store."""
    metadata: dict[str, Any] = {"tags": ["a"]}
    chunk = bytearray(b"abc")
    await t.save("a", metadata=metadata)
    await t.stream([chunk], "b")
    metadata["tags"].append("b")
    chunk[:] = b"xyz"
    expect("custom_metadata", dict((await t.about()).custom_metadata), {"tags": ["a"]})
    expect("content", await t.read("b"), b"abc")


# --- streams --------------------------------------------------------------------------------------------------------


@check
async def _a_stream_is_one_version(t: Bench) -> None:
    """Chunks from a list or an async iterator become one version, which loads as bytes and reads in chunks."""

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            await trio.lowlevel.checkpoint()
            yield bytes([number]) * 400_000

    data = b"".join([bytes([number]) * 400_000 for number in range(5)])
    async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
        expect("version", await t.stream(given), 0)
    expect("version of a list", await t.stream([b"a", b"", memoryview(b"b")], "b"), 0)
    expect("content", await t.read(), data)
    expect("loaded", await t.load(), blob(data))
    expect("size", (await t.about()).size, len(data))
    expect("sha256", (await t.about()).sha256, hashlib.sha256(data).hexdigest())
    expect("content of the list", await t.read("b"), b"ab")
    await t.stream([], "c")
    expect("content of nothing", await t.read("c"), b"")
    await t.save("text", "d")
    expect("text as a stream", await t.read("d"), b"text")


@check
async def _a_stream_that_fails_is_no_version(t: Bench) -> None:
    """An error of the chunks is raised as it is; nothing is stored, and no number is used up."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise OSError("the source is gone")

    for _ in range(2):
        try:
            async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
                await t.stream(given)
        except OSError as error:
            expect("the error", str(error), "the source is gone")
        else:
            raise AssertionError("expected the error of the chunks, found none")
    with raises(InvalidValueError, "chunks", "str"):
        await t.stream(["text"])  # type: ignore[list-item]  # on purpose
    expect("versions", await t.versions(), [])
    expect("names", await t.names(), [])
    expect("the next version", await t.save("a"), 0)


@check
async def _a_cancelled_save_is_whole_or_nothing(t: Bench) -> None:
    """A save that is cancelled between chunks stores nothing; one that returned has stored."""
    reached = trio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        reached.set()
        await trio.sleep_forever()

    async def save() -> None:
        async with aclosing(chunks()) as given:  # type: ignore[type-var]  # an async generator has aclose
            await t.stream(given)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(save)
        await reached.wait()
        nursery.cancel_scope.cancel()
    expect("versions", await t.versions(), [])
    answered: list[int] = []

    async def save_text() -> None:
        answered.append(await t.save("a"))

    for pauses in [*range(10), *range(10)]:  # wherever the cancellation may arrive
        answered.clear()
        before = await t.versions()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(save_text)
            for _ in range(pauses):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        expect("versions after a save that was cancelled", await t.versions(), [*before, *answered])


@check
async def _a_reader_keeps_what_it_has_begun(t: Bench) -> None:
    """A version that is deleted and collected while somebody reads it is read to its end."""
    data = b"0123456789" * 300_000
    await t.save(data)
    async with t.service.open_artifact(**t.place()) as reader:
        expect("the reader", reader is not None, True)
        assert reader is not None
        expect("its version", (reader.version.version, reader.version.size), (0, len(data)))
        read = await anext(reader)
        await t.delete()
        await t.service.gc()
        read += b"".join([chunk async for chunk in reader])
    expect("what was read", read == data, True)
    expect("what is left", await t.read(), None)


@check
async def _saves_at_once_get_versions_of_their_own(t: Bench) -> None:
    """Many saves of one name at once get each a number of its own, without gaps, and each its content."""
    got: dict[int, str] = {}

    async def save(text: str) -> None:
        got[await t.save(text)] = text

    async with trio.open_nursery() as nursery:
        for number in range(12):
            nursery.start_soon(save, str(number))
    expect("versions", sorted(got), list(range(12)))
    expect("texts", {version: await t.text(version=version) for version in got}, got)


# --- names and scopes -----------------------------------------------------------------------------------------------


@check
async def _user_names_are_of_all_sessions(t: Bench) -> None:
    """A name that begins with `user:` is one artifact for all sessions of a user, also without a session."""
    await t.save("a", "user:a")
    expect("version from another session", await t.save("b", "user:a", session="other"), 1)
    expect("version without a session", await t.save("c", "user:a", session=None), 2)
    await t.save("mine", "a")
    for session in ("s", "other", "never", None):
        expect("the newest", await t.text("user:a", session=session), "c")
    expect("the session's own", (await t.text("a"), await t.text("a", session="other")), ("mine", None))
    expect("names", await t.names(), ["a", "user:a"])
    expect("names in another session", await t.names(session="other"), ["user:a"])
    expect("names without a session", await t.names(session=None), ["user:a"])


@check
async def _nobody_sees_anothers(t: Bench) -> None:
    """Apps, users and sessions do not see each other's artifacts, and deleting one's leaves the others'."""
    other = f"{t.app}-2"
    places: list[dict[str, Any]] = [
        {},
        {"session": "t"},
        {"user": "v"},
        {"app": other},
        {"user": "u/s", "session": "x"},
        {"user": "u", "session": "s/x"},
    ]
    for number, place in enumerate(places):
        expect("version", await t.save(f"{number}", **place), 0)
        expect("version in the user's scope", await t.save(f"u{number}", f"user:{number}", **place), 0)
    for number, place in enumerate(places):
        expect("text", await t.text(**place), f"{number}")
        expect("names", "a.txt" in await t.names(**place), True)
    expect("the user's names", await t.names(session=None, user="v"), ["user:2"])
    await t.delete(session="t")
    await t.delete_session("x", user="u/s")
    await t.service.gc()
    expect("what is left", [await t.text(**place) for place in places], ["0", None, "2", "3", None, "5"])


@check
async def _any_relative_name_will_do(t: Bench) -> None:
    """Names are told apart as they are: case, spaces, dots, slashes, other scripts, and those that stores use."""
    names = [
        "a",
        "A",
        " a",
        "a b",
        "a/b",
        "a%2Fb",
        "...",
        ".a",
        "metadata.json",
        "versions",
        "versions/0",
        "0",
        "\u00e9",
        "e\u0301",
    ]
    names += ["日本語.txt", "user", "con", "n" * 1000, "a:b", "floor", "user:user:x", "a'\"{b}"]
    for name in names:
        expect(f"version of {brief(name, 40)}", await t.save(name, name), 0)
    for name in names:
        expect("text", await t.text(name), name)
    expect("names", await t.names(), sorted(names))


@check
async def _names_that_could_leave_a_folder_are_refused(t: Bench) -> None:
    """Empty names, absolute ones, and those with `.` or `..` between slashes of either kind are refused everywhere."""
    for name in [
        "",
        " ",
        "/a",
        "\\a",
        "../a",
        "a/..",
        "a/../b",
        "a\\..\\b",
        "..",
        ".",
        "a/./b",
        "a//b",
        "a/",
        "C:\\a",
        "c:",
    ]:
        for full in (name, f"user:{name}"):
            with raises(InvalidValueError, "filename"):
                await t.save("x", full)
            with raises(InvalidValueError, "filename"):
                await t.load(full)
            with raises(InvalidValueError, "filename"):
                await t.delete(full)
    unnamable: list[Any] = ["a\0b", "a\nb", "a\u2028b", "\x1b[31ma", "\ud800", "n" * 1025, None, 1]
    for wrong in unnamable:
        with raises(InvalidValueError, "filename"):
            await t.save("x", wrong)
    expect("names", await t.names(), [])


@check
async def _ids_are_checked(t: Bench) -> None:
    """Ids that are blank, or have space around them, are refused, and so is a session's name without a session."""
    with raises(InvalidValueError, "session_id", "user:"):
        await t.save("a", session=None)
    for wrong in ("", " ", " u", "u\u3000", "a\0", "a\x1b", "x" * 1025, 1):
        with raises(InvalidValueError, "user_id"):
            await t.save("a", user=wrong)
        with raises(InvalidValueError, "session_id"):
            await t.names(session=wrong)  # type: ignore[arg-type]  # on purpose
    with raises(InvalidValueError, "app_name"):
        await t.save("a", app=" ")


@check
async def _what_cannot_be_kept_is_refused(t: Bench) -> None:
    """Parts that are no content, references to other artifacts, and metadata that is no JSON, are refused by name."""
    with raises(InvalidValueError, "artifact", "function_call"):
        await t.save(Part(function_call=FunctionCall(name="f")))
    with raises(InvalidValueError, "artifact", "dict"):
        await t.service.save_artifact(**t.place(), artifact={"text": "a"})  # type: ignore[arg-type]  # on purpose
    with raises(NotSupportedError, "artifact:"):
        await t.save(Part(file_data=FileData(file_uri="artifact://apps/a")))
    with raises(InvalidValueError, "custom_metadata", "set"):
        await t.save("a", metadata={"a": {1}})
    with raises(InvalidValueError, "custom_metadata", "list"):
        await t.save("a", metadata=[])  # type: ignore[arg-type]  # on purpose
    with raises(InvalidValueError, "mime_type"):
        await t.service.save_artifact_stream(**t.place(), chunks=[], mime_type="")
    await t.save("a")
    for version in (-1, True, "0", 0.0):
        with raises(InvalidValueError, "version"):
            await t.load(version=version)  # type: ignore[arg-type]  # on purpose
    expect("versions", await t.versions(), [0])
