"""Credentials: values that show nothing by accident, and the services that keep them."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import pickle
import pprint
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import Event, EventActions
from minirun._json import dumps, freeze
from minirun.credentials import (
    AuthConfig,
    AuthCredential,
    BaseCredentialService,
    CredentialKey,
    InMemoryCredentialService,
)
from minirun.credentials._values import SCHEMES
from minirun.errors import (
    ConfigurationError,
    CredentialServiceError,
    InvalidValueError,
    MinirunError,
    SecretError,
)
from minirun.sessions._state import State, Values
from minirun.types import FunctionCall, FunctionResponse

from ..contracts.credential_contract import credential_service_checks

SECRET = "sk-7f3a-very-secret"
KEY = AuthCredential("api_key", api_key=SECRET, expires_at=100)
PLACE: dict[str, Any] = {"app_name": "app", "user_id": "u", "credential_key": "k"}


def shown_with_locals(error: BaseException) -> str:
    """All that a traceback shows of an error, with the variables of its frames but those of the test."""
    assert error.__traceback__ is not None
    inner = error.with_traceback(error.__traceback__.tb_next)
    return "".join(traceback.TracebackException.from_exception(inner, capture_locals=True).format())


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_credential_is_read_on_purpose_only() -> None:
    """No text that is made of a credential has its secret; `reveal` has."""
    shown = f"{KEY} {KEY!r} {KEY!s:>5} {[KEY]} {pprint.pformat({'k': KEY})} %s" % KEY
    assert SECRET not in shown + str(dir(KEY))
    assert repr(KEY) == "AuthCredential('api_key', api_key=***, expires_at=100.0)"
    assert KEY.reveal() == KEY.reveal("api_key") == SECRET
    assert (KEY.scheme, KEY.names, KEY.expires_at) == ("api_key", ("api_key",), 100.0)
    assert not hasattr(KEY, "__dict__")


def test_a_credential_does_not_change() -> None:
    """Nor is it anybody's key; a copy is the credential itself."""
    for name in ("scheme", "_values", "other"):
        with pytest.raises(AttributeError, match="does not change"):
            setattr(KEY, name, "x")
    with pytest.raises(AttributeError, match="does not change"):
        del KEY._values
    with pytest.raises(TypeError, match="unhashable"):
        hash(KEY)
    assert copy.copy(KEY) is copy.deepcopy(KEY) is KEY
    assert copy.deepcopy({"a": [KEY]})["a"][0] is KEY


def test_a_credential_expires() -> None:
    """From the moment on that it names; one without a moment never does."""
    assert [KEY.has_expired(now) for now in (99.9, 100.0, 101.0)] == [False, True, True]
    assert not AuthCredential("bearer", token="t").has_expired(1e300)


def test_equal_credentials_hold_the_same() -> None:
    """Scheme, values and expiry count; another type is another thing."""
    assert AuthCredential("api_key", api_key=SECRET, expires_at=100) == KEY
    others = [
        AuthCredential("api_key", api_key=SECRET),
        AuthCredential("api_key", api_key="x", expires_at=100),
        AuthCredential("custom", api_key=SECRET, expires_at=100),
        SECRET,
    ]
    assert all(other != KEY for other in others)


@pytest.mark.parametrize(
    ("scheme", "values", "main"),
    [
        ("api_key", {"api_key": "a"}, "a"),
        ("bearer", {"token": "t"}, "t"),
        ("basic", {"username": "u", "password": "p"}, "p"),
        ("oauth2", {"access_token": "a", "refresh_token": "r"}, "a"),
        ("custom", {"only": "o"}, "o"),
    ],
)
def test_each_scheme_has_a_main_secret(scheme: str, values: dict[str, Any], main: str) -> None:
    """`reveal()` returns it; other values are revealed by their names."""
    credential = AuthCredential(scheme, **values)
    assert credential.reveal() == main
    assert {name: credential.reveal(name) for name in credential.names} == values


def test_a_secret_in_the_wrong_place_is_not_shown() -> None:
    """Neither as the scheme nor as the time; nor is it in the state that a copy would be made of."""
    wrongs: tuple[Any, ...] = (
        lambda: AuthCredential(SECRET),
        lambda: AuthCredential("bearer", token="t", expires_at=SECRET),  # type: ignore[arg-type]
        lambda: AuthCredential("bearer", token=SECRET).__getstate__(),
        lambda: AuthCredential("custom", expires_at=SECRET),  # type: ignore[arg-type]
    )
    for wrong in wrongs:
        with pytest.raises(InvalidValueError) as caught:
            wrong()
        assert SECRET not in str(caught.value)
        frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
        assert not any(SECRET in repr(frame.locals) for frame in frames if "/tests/" not in frame.filename)


def test_the_names_of_a_custom_credential_are_free() -> None:
    """But for those of the parameters, which are refused by name."""
    assert AuthCredential("custom", self=SECRET).reveal("self") == SECRET
    with pytest.raises(TypeError, match="'scheme'"):
        AuthCredential("custom", scheme=SECRET)  # type: ignore[misc]


def test_what_is_not_there_is_not_revealed() -> None:
    """The message says what there is, by name."""
    with pytest.raises(InvalidValueError, match="expected one of api_key, found 'token'"):
        KEY.reveal("token")
    with pytest.raises(InvalidValueError, match="expected one of a, b, found none"):
        AuthCredential("custom", a=SECRET, b=SECRET).reveal()


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("api_key", {}, "expected api_key for 'api_key', found none"),
    ("api_key", {"token": SECRET}, "found token"),
    ("basic", {"password": SECRET}, "expected password and username"),
    ("oauth2", {"access_token": SECRET, "more": SECRET}, "and maybe refresh_token"),
    ("custom", {}, "at least one value"),
    ("api_key", {"api_key": ""}, "a text that is not empty"),
    ("api_key", {"api_key": SECRET.encode()}, "found bytes"),
    ("custom", {"a": SECRET, "b": None}, "found NoneType"),
    ("custom", {"a": SECRET + "\ud800"}, "lone surrogate"),
    ("magic", {"a": SECRET}, "expected one of api_key"),
    ("api_key", {"api_key": SECRET, "expires_at": "tomorrow"}, "seconds since the epoch"),
    ("api_key", {"api_key": SECRET, "expires_at": float("nan")}, "seconds since the epoch"),
]


@pytest.mark.parametrize(("scheme", "values", "words"), BAD)
def test_a_credential_that_is_none_is_refused(scheme: str, values: dict[str, Any], words: str) -> None:
    """What is expected and found is said, without any value: neither in the message nor in the frames of the error."""

    def make(number: int) -> None:
        AuthCredential(scheme, **BAD[number][1])

    with pytest.raises(InvalidValueError, match=words) as caught:
        make(BAD.index((scheme, values, words)))
    assert SECRET not in str(caught.value)
    inner = caught.traceback[-1].frame.f_locals
    assert SECRET not in repr({name: value for name, value in inner.items() if name != "self"})


STORED: list[Callable[[], Any]] = [
    lambda: freeze(KEY),
    lambda: freeze({"a": [1, KEY]}),
    lambda: Event(author="a", state={"k": KEY}),
    lambda: Event(author="a", custom_metadata={"k": KEY}),
    lambda: Event(author="a", output=[KEY]),
    lambda: EventActions(state_delta={"k": KEY}),
    lambda: EventActions(requested_auth_configs={"k": KEY}),
    lambda: FunctionCall(id="c", name="f", args={"key": KEY}),
    lambda: FunctionResponse(id="c", name="f", response={"key": KEY}),
    lambda: State(Values({}, {}, {})).update(k=KEY),
    lambda: pickle.dumps(KEY),
    lambda: pickle.dumps([KEY], protocol=0),
    lambda: AuthConfig(KEY),
    lambda: AuthConfig("k", hint=KEY),
]


@pytest.mark.parametrize("store", STORED)
def test_a_credential_is_not_stored_by_accident(store: Callable[[], Any]) -> None:
    """Wherever it would become part of a log, a state or a file, one typed error says so."""
    with pytest.raises(SecretError) as caught:
        store()
    assert SECRET not in shown_with_locals(caught.value)


def test_other_encoders_refuse_a_credential() -> None:
    """The encoders of the standard library and of attrs have nothing to take."""
    for encode in (json.dumps, dumps):
        with pytest.raises(TypeError, match="not JSON serializable"):
            encode({"k": KEY})

    @attrs.frozen
    class Holder:
        credential: AuthCredential

    assert SECRET not in repr(attrs.asdict(Holder(KEY)))


def test_a_config_says_which_credential_is_meant() -> None:
    """As JSON it leaves out what is empty, and reads back equal."""
    full = AuthConfig("mail", "oauth2", hint="Log in", scopes=["read", "send"], auth_uri="https://x.test/login")
    fields = {
        "credentialKey": "mail",
        "scheme": "oauth2",
        "hint": "Log in",
        "scopes": ["read", "send"],
        "authUri": "https://x.test/login",
    }
    assert full.to_dict() == fields
    assert AuthConfig.from_dict(freeze(fields)) == full
    assert AuthConfig("k").to_dict() == {"credentialKey": "k", "scheme": "api_key"}
    assert AuthConfig("k", "basic").secret_names == ("password", "username")
    assert AuthConfig("k", "custom").secret_names == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: AuthConfig(""),
        lambda: AuthConfig("k", "magic"),
        lambda: AuthConfig("k", hint=5),
        lambda: AuthConfig("k", scopes="read"),
        lambda: AuthConfig("k", scopes=[5]),  # type: ignore[list-item]  # refused
        lambda: AuthConfig.from_dict({}),
        lambda: AuthConfig.from_dict({"credentialKey": "k", "api_key": "x"}),
        lambda: AuthConfig.from_dict({"credentialKey": 5}),
    ],
)
def test_a_config_that_is_none_is_refused(make: Callable[[], Any]) -> None:
    """Each field has its form, and there are no others."""
    with pytest.raises(InvalidValueError):
        make()


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(st.sampled_from(sorted(SCHEMES)), st.dictionaries(texts, texts, max_size=3), texts)
def test_no_text_of_a_credential_has_its_values(scheme: str, extra: dict[str, str], secret: str) -> None:
    """Whatever they are: the text depends on their names alone."""
    required = SCHEMES[scheme][0]
    names = required or tuple(name for name in extra if name not in ("scheme", "expires_at", "self"))
    if names:
        values: list[dict[str, Any]] = [dict.fromkeys(names, text) for text in (secret, "other")]
        one, other = (AuthCredential(scheme, **each) for each in values)
        assert repr(one) == repr(other)


# --- services ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def in_keyring(ring: Any) -> AsyncIterator[BaseCredentialService]:
    from minirun.credentials import KeyringCredentialService

    async with KeyringCredentialService(ring) as service:
        yield service


def keyrings() -> Any:
    """The module of the keyrings for tests; without the library the test is skipped, and says why."""
    pytest.importorskip("keyring", reason="the extra `minirun[keyring]` is not installed")
    from .. import keyrings

    return keyrings


@pytest.mark.parametrize("name", credential_service_checks())
async def test_in_memory_keeps_the_contract(name: str) -> None:
    """The service in memory keeps each promise."""
    await credential_service_checks()[name](InMemoryCredentialService)


@pytest.mark.parametrize("name", credential_service_checks(durable=True))
async def test_the_keyring_keeps_the_contract(name: str) -> None:
    """The service on a keyring keeps each promise, and leaves nothing in it."""
    ring = keyrings().DictKeyring()
    await credential_service_checks(durable=True)[name](lambda: in_keyring(ring))
    assert ring.entries == {}


async def test_the_contract_sees_users_that_are_mixed_up() -> None:
    """A service that forgets whose a credential is fails the contract, which says which promise it breaks."""

    class Careless(InMemoryCredentialService):
        async def _load(self, key: CredentialKey) -> AuthCredential | None:
            return next((one for k, one in self._credentials.items() if k.credential_key == key.credential_key), None)

    with pytest.raises(AssertionError) as caught:
        await credential_service_checks()["users_are_apart"](Careless)
    assert caught.value.__notes__ == ["this breaks the credential service's promise: users are apart"]


async def test_the_contract_sees_what_is_done_though_cancelled() -> None:
    """A service with a checkpoint after its change fails the contract."""

    class Late(InMemoryCredentialService):
        async def _save(self, key: CredentialKey, credential: AuthCredential) -> None:
            await super()._save(key, credential)
            await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError, match="cancelled after"):
        await credential_service_checks()["cancelled_means_not_done"](Late)


async def test_a_keyring_is_used_in_worker_threads() -> None:
    """It may block for as long as its owner thinks about a password, and the loop goes on."""
    ring = keyrings().DictKeyring()
    async with in_keyring(ring) as service:
        await service.save_credential(**PLACE, credential=KEY)
        await service.load_credential(**PLACE)
    assert ring.threads
    assert "MainThread" not in ring.threads


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, KeyboardInterrupt])
async def test_a_keyring_that_wants_to_end_the_process_says_no_secret(kind: type[BaseException]) -> None:
    """It has failed like any other; only Ctrl-C goes through, without words."""

    class Exiting(keyrings().DictKeyring):  # type: ignore[misc]  # its base is not known without the library
        def set_password(self, service: str, username: str, password: str) -> None:
            raise kind(password)

    expected = KeyboardInterrupt if kind is KeyboardInterrupt else CredentialServiceError
    async with in_keyring(Exiting()) as service:
        with pytest.raises(expected) as caught:
            await service.save_credential(
                app_name="a", user_id="u", credential_key="k", credential=AuthCredential("api_key", api_key=SECRET)
            )
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


async def test_a_keyring_that_keeps_nothing_is_found_out() -> None:
    """Saving says so at once, rather than asking the user again and again."""
    async with in_keyring(keyrings().ForgetfulKeyring()) as service:
        with pytest.raises(CredentialServiceError, match="choose another backend"):
            await service.save_credential(**PLACE, credential=KEY)


async def test_what_a_broken_keyring_says_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Its message has the secret; ours, its causes and the variables of its frames have not."""
    caplog.set_level(logging.DEBUG)
    async with in_keyring(keyrings().BrokenKeyring()) as service:
        with pytest.raises(CredentialServiceError, match="PasswordSetError") as caught:
            await service.save_credential(**PLACE, credential=KEY)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert SECRET not in shown_with_locals(caught.value) + caplog.text


@pytest.mark.parametrize(
    "entry",
    [
        f"{SECRET}",
        f'["{SECRET}"]',
        f'{{"format":2,"scheme":"bearer","expires_at":null,"values":{{"token":"{SECRET}"}}}}',
        f'{{"format":1,"scheme":"bearer","expires_at":"{SECRET}","values":{{"token":"{SECRET}"}}}}',
        f'{{"format":1,"scheme":"bearer","expires_at":null,"values":{{"other":"{SECRET}"}}}}',
        f'{{"format":1,"scheme":"bearer","expires_at":null,"values":"{SECRET}"}}',
    ],
)
async def test_a_damaged_entry_is_not_shown(entry: str) -> None:
    """What somebody else has put in its place is refused, deleted if one asks for that, and shown nowhere."""
    ring = keyrings().DictKeyring()
    async with in_keyring(ring) as service:
        await service.save_credential(**PLACE, credential=KEY)
        ring.entries["minirun app", '["u","k"]'] = entry
        with pytest.raises(CredentialServiceError, match="found something else") as caught:
            await service.load_credential(**PLACE)
        assert SECRET not in shown_with_locals(caught.value)
        assert await service.list_credentials(app_name="app", user_id="u") == ["k"]
        await service.delete_credential(**PLACE)
    assert ring.entries == {}


async def test_a_crash_between_two_entries_leaves_nothing_wrong() -> None:
    """Wherever saving or deleting stops: what is listed can be loaded, and doing it again does it."""
    ring = keyrings().DictKeyring()
    for stop in range(6):
        for what in ("save", "delete"):
            ring.entries.clear()
            async with in_keyring(ring) as service:
                await service.save_credential(**{**PLACE, "credential_key": "other"}, credential=KEY)
                if what == "delete":
                    await service.save_credential(**PLACE, credential=KEY)
                with stopping(ring, stop), contextlib.suppress(CredentialServiceError):
                    await (
                        service.save_credential(**PLACE, credential=KEY)
                        if what == "save"
                        else service.delete_credential(**PLACE)
                    )
                there = await service.load_credential(**PLACE) is not None
                listed = await service.list_credentials(app_name="app", user_id="u")
                assert listed == (["k", "other"] if there else ["other"])
                if what == "save":
                    await service.save_credential(**PLACE, credential=KEY)
                await service.delete_credential(**PLACE)
                assert await service.list_credentials(app_name="app", user_id="u") == ["other"]


@contextlib.contextmanager
def stopping(ring: Any, changes: int) -> Any:
    """The keyring makes so many changes, and then no more."""
    left = changes

    def counted(method: Callable[..., None]) -> Callable[..., None]:
        def change(*names: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("the process is gone")
            method(*names)

        return change

    ring.set_password, ring.delete_password = counted(ring.set_password), counted(ring.delete_password)
    try:
        yield
    finally:
        del ring.set_password, ring.delete_password


async def test_loading_from_a_locked_keyring_can_be_cancelled() -> None:
    """A keyring that waits for its owner holds up nobody who has given up."""
    import threading

    unlocked = threading.Event()

    class Locked(keyrings().DictKeyring):  # type: ignore[misc]  # its base is not known without the library
        def get_password(self, service: str, username: str) -> str | None:
            unlocked.wait()
            return None

    try:
        async with in_keyring(Locked()) as service:
            with trio.move_on_after(0.05) as scope:
                await service.load_credential(**PLACE)
    finally:
        unlocked.set()
    assert scope.cancelled_caught


def test_what_is_no_keyring_is_refused() -> None:
    """Neither a class nor anything else stands for one."""
    wrongs: tuple[Any, ...] = (keyrings().DictKeyring, 5)
    from minirun.credentials import KeyringCredentialService

    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="KeyringBackend"):
            KeyringCredentialService(wrong)
    with pytest.raises(ConfigurationError, match="Env"):
        InMemoryCredentialService(env=5)  # type: ignore[arg-type]  # refused


async def test_a_services_own_errors_keep_their_types() -> None:
    """What minirun raises on purpose passes; everything else is a CredentialServiceError without its message."""
    raised: list[Exception] = [MinirunError("as it is"), KeyError(SECRET), CredentialServiceError("told")]

    class Failing(InMemoryCredentialService):
        async def _load(self, key: CredentialKey) -> AuthCredential | None:
            raise raised.pop(0)

    service = Failing()
    with pytest.raises(MinirunError, match="as it is"):
        await service.load_credential(**PLACE)
    with pytest.raises(CredentialServiceError, match=r"loading .* KeyError") as caught:
        await service.load_credential(**PLACE)
    assert SECRET not in shown_with_locals(caught.value)
    with pytest.raises(CredentialServiceError, match="told"):
        await service.load_credential(**PLACE)


def test_the_keyring_library_is_imported_when_it_is_used() -> None:
    """Importing credentials, sessions and runners does not import the extra, nor does listing their names."""
    code = """
import sys, minirun.runners, minirun.credentials
dir(minirun.credentials)
assert "keyring" not in sys.modules
try:
    minirun.credentials.Nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert "no attribute 'Nothing'" in done.stdout
