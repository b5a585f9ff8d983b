"""The checks of a credential service. They leave nothing behind where they do not fail."""

from __future__ import annotations

from typing import Any

import trio

from minirun.credentials import AuthCredential
from minirun.credentials._values import credential_key
from minirun.errors import InvalidValueError, ServiceClosedError
from minirun.testing._contract import Body, expect, listed_in, raises

from .credential_bench import Bench

__all__ = ["CHECKS", "DURABLE"]

CHECKS: dict[str, Body[Bench]] = {}
DURABLE: dict[str, Body[Bench]] = {}
check = listed_in(CHECKS)
durable_check = listed_in(DURABLE)

SECRET = "s3cret-of-the-contract"
ALL = (
    AuthCredential("api_key", api_key=SECRET),
    AuthCredential("bearer", token='tö"ken\n\\ 🔑'),
    AuthCredential("basic", username="ada", password=SECRET),
    AuthCredential("oauth2", access_token="a", refresh_token="r", client_id="c", client_secret="s", expires_at=17.25),
    AuthCredential("custom", certificate="x" * 900, key=SECRET, expires_at=1.0),
)


def _key(text: str = SECRET) -> AuthCredential:
    return AuthCredential("api_key", api_key=text)


@check
async def _what_is_saved_is_loaded(t: Bench) -> None:
    """Every scheme, with all it holds and its expiry, also one that is over; what is not there is None."""
    expect("before", (await t.load(), await t.keys()), (None, []))
    for credential in ALL:
        await t.save(credential)
        found = await t.load()
        expect(f"the {credential.scheme}", (found == credential, type(found)), (True, AuthCredential))
    await t.delete()
    expect("after", (await t.load(), await t.keys()), (None, []))


@check
async def _the_last_one_counts(t: Bench) -> None:
    """Saving replaces, deleting forgets, twice is as once, and a key can be used again."""
    await t.delete()
    await t.save(_key("one"))
    await t.save(_key("two"))
    expect("the second", await t.load() == _key("two"), True)
    expect("the keys", await t.keys(), ["k"])
    await t.delete()
    await t.delete()
    expect("deleted", (await t.load(), await t.keys()), (None, []))
    await t.save(_key("three"))
    expect("once more", await t.load() == _key("three"), True)
    await t.delete()


@check
async def _users_are_apart(t: Bench) -> None:
    """Nobody finds, lists, replaces or deletes what belongs to another user, or another app, whatever their names."""
    places: list[dict[str, Any]] = [
        {"key": "k", "user": "u"},
        {"key": "k", "user": "u2"},
        {"key": "k", "user": "u", "app": t.app + "-2"},
        {"key": 'k","k', "user": "u"},
        {"key": "k", "user": 'u","k'},
        {"key": "u", "user": "k"},
        {"key": "u/k", "user": "x"},
        {"key": "k", "user": "x/u"},
        {"key": "K", "user": "U"},
    ]
    for number, place in enumerate(places):
        await t.save(_key(f"secret {number}"), **place)
    for number, place in enumerate(places):
        expect(f"that of {place}", await t.load(**place) == _key(f"secret {number}"), True)
    expect("the keys of u", await t.keys(), sorted(["k", 'k","k']))
    expect("those of u2", await t.keys(user="u2"), ["k"])
    expect("those of nobody", await t.keys(user="nobody"), [])
    expect("those of the other app", await t.keys(app=t.app + "-2"), ["k"])
    for number, place in enumerate(places):
        await t.delete(**place)
        expect(f"that of {place}, deleted", await t.load(**place), None)
        for later, other in enumerate(places[number + 1 :], number + 1):
            expect(f"that of {other}", await t.load(**other) == _key(f"secret {later}"), True)


@check
async def _keys_are_listed_in_their_order(t: Bench) -> None:
    """As texts are sorted, without secrets, and of one user only."""
    names = ["zebra", "a b", "Ü", "a", "10", "9"]
    for name in names:
        await t.save(_key(), name)
    expect("the keys", await t.keys(), sorted(names))
    for name in names:
        await t.delete(name)
    expect("in the end", await t.keys(), [])


@check
async def _names_are_checked(t: Bench) -> None:
    """Before anything is stored; names have no space around them; what is no credential is not shown."""
    for blank in ("", " ", " k", "k\u3000", 5, None, "a\0b", "a\x1b", "x" * 1025):
        for name in ("app", "user", "key"):
            where: dict[str, Any] = {"app": t.app, "user": "u", "key": "k", name: blank}
            names = {"app_name": where["app"], "user_id": where["user"], "credential_key": where["key"]}
            word = {"app": "app_name", "user": "user_id", "key": "credential_key"}[name]
            with raises(InvalidValueError, word):
                await t.service.load_credential(**names)
            with raises(InvalidValueError, word):
                await t.service.delete_credential(**names)
            with raises(InvalidValueError, word):
                await t.service.save_credential(**names, credential=_key())
            if name != "key":
                with raises(InvalidValueError, word):
                    await t.service.list_credentials(app_name=where["app"], user_id=where["user"])
    with raises(InvalidValueError, "expected an AuthCredential"):
        await t.save(SECRET)  # type: ignore[arg-type]
    try:
        await t.save({"api_key": SECRET})  # type: ignore[arg-type]
    except InvalidValueError as error:
        expect("the secret in the message", SECRET in str(error), False)
    expect("the keys", await t.keys(), [])
    expect("deleted", await t.load(), None)


@check
async def _cancelled_means_not_done(t: Bench) -> None:
    """At every step: what raises `Cancelled` has changed nothing, what does not is done."""
    for steps in range(1000):
        await t.delete()
        done = await _cancelled_after(steps, lambda: t.save(_key("new")))
        expect(f"saved, cancelled after {steps} steps", await t.load() is not None, done)
        await t.save(_key("old"))
        replaced = await _cancelled_after(steps, lambda: t.save(_key("new")))
        expect(f"replaced after {steps} steps", await t.load() == _key("new" if replaced else "old"), True)
        deleted = await _cancelled_after(steps, t.delete)
        expect(f"deleted after {steps} steps", await t.load() is None, deleted)
        loaded = await _cancelled_after(steps, t.load)
        listed = await _cancelled_after(steps, t.keys)
        if done and replaced and deleted and loaded and listed:
            break
    await t.delete()
    expect("some were done in the end", done, True)


async def _cancelled_after(steps: int, operation: Any) -> bool:
    """Whether *operation* was done, though it was cancelled at its so manieth checkpoint that can be."""
    with trio.CancelScope() as scope:
        left = steps

        class Counting(trio.abc.Instrument):
            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                nonlocal left
                if task is mine and (left := left - 1) < 0:
                    scope.cancel()

        mine, counting = trio.lowlevel.current_task(), Counting()
        if not steps:
            scope.cancel()
        trio.lowlevel.add_instrument(counting)
        try:
            await operation()
            return True
        finally:
            trio.lowlevel.remove_instrument(counting)
    return False


@check
async def _concurrent_changes_do_not_lose_each_other(t: Bench) -> None:
    """Different keys that are saved, and deleted, at once are all there, or gone, afterwards."""
    names = [f"k{number}" for number in range(8)]
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(t.save, _key(name), name)
    expect("the keys", await t.keys(), names)
    for name in names:
        expect(f"that of {name}", await t.load(name) == _key(name), True)
    async with trio.open_nursery() as nursery:
        for name in names[1:]:
            nursery.start_soon(t.delete, name)
    expect("what is left", await t.keys(), names[:1])
    await t.delete(names[0])


@check
async def _who_renews_has_it_alone(t: Bench) -> None:
    """One task after the other has a credential for itself; others of the user, and a cancelled one, hold up nobody."""
    key, other = (credential_key(t.app, "u", name) for name in ("k", "other"))
    having: list[int] = []

    async def renew(number: int) -> None:
        async with t.service._exclusive(key):
            having.append(number)
            expect("those that have it", len(having), 1)
            async with t.service._exclusive(other):
                await trio.lowlevel.checkpoint()
            having.remove(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(renew, number)
    async with t.service._exclusive(key):
        with trio.move_on_after(0) as scope:
            await renew(5)
        expect("whether the one that waits can be cancelled", scope.cancelled_caught, True)
    await renew(6)


@check
async def _nothing_shows_a_secret(t: Bench) -> None:
    """Neither the service nor what it returns, but for `reveal`."""
    await t.save(_key())
    found = await t.load()
    shown = f"{t.service!r} {t.service} {found!r} {found} {found!s:>80} {[found]} {await t.keys()}"
    expect("the secret in what is shown", SECRET in shown, False)
    expect("what is revealed", None if found is None else found.reveal(), SECRET)
    await t.delete()


@check
async def _a_closed_service_refuses(t: Bench) -> None:
    """Closing twice is harmless; afterwards every operation is refused."""
    await t.service.aclose()
    await t.service.aclose()
    for operation in (t.load, t.delete, t.keys):
        with raises(ServiceClosedError, "closed"):
            await operation()
    with raises(ServiceClosedError, "closed"):
        await t.save(_key())


@durable_check
async def _what_is_saved_survives(t: Bench) -> None:
    """After closing and opening the store everything is there, and what was deleted is not."""
    async with t.opened():
        for number, credential in enumerate(ALL):
            await t.save(credential, f"k{number}")
        await t.save(_key(), "gone")
        await t.delete("gone")
    async with t.opened():
        expect("the keys", await t.keys(), [f"k{number}" for number in range(len(ALL))])
        for number, credential in enumerate(ALL):
            expect(f"the {credential.scheme}", await t.load(f"k{number}") == credential, True)
            await t.delete(f"k{number}")
    async with t.opened():
        expect("in the end", await t.keys(), [])
