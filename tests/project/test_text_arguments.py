"""
Text that applications give to services and runners: refused with an error of minirun's, or kept exactly as it is.

The arguments are found by looking at the signatures of the services: a new one has to be given a value here.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minirun import BaseAgent, Event, InMemorySessionService, InvocationContext, Part, Runner, SqliteSessionService
from minirun.artifacts import (
    BaseArtifactService,
    DatabaseArtifactService,
    FileArtifactService,
    InMemoryArtifactService,
    SqliteArtifactService,
)
from minirun.credentials import (
    AuthConfig,
    AuthCredential,
    AuthScheme,
    BaseCredentialService,
    BearerHeaders,
    InMemoryCredentialService,
)
from minirun.errors import AlreadyExistsError, InvalidValueError, MinirunError
from minirun.memory import (
    BaseMemoryService,
    DatabaseMemoryService,
    InMemoryMemoryService,
    MemoryEntry,
    SqliteMemoryService,
)
from minirun.sessions import BaseSessionService, DatabaseSessionService, PendingCall
from minirun.sessions._store import SessionStore
from minirun.types import Content

from ..postgres import missing, new_database

# Halves of characters, control characters, separators, and characters that look like nothing or like others.
ODD = "\ud800\udfff\x00\x01\x1b\x1c\x7f\x85\x9b\u00a0\u2028\u2029\u200b\u202e\u3000\ufeff\ufffe\n\r\t /\\:.*?%'\"{}"
TEXTS = st.lists(st.sampled_from(ODD) | st.characters(), max_size=6).map("".join)
ODD_EXAMPLES = ("\ud800", "a\x00b", "\x85ada\u3000", " a", "a\n", "a\u2028b", "", " ", "x" * 5000, "user:", "..", "ü😀")

NAMES = {"app_name": "app", "user_id": "u", "session_id": "s", "filename": "f.txt", "credential_key": "k"}


class Silent(BaseAgent):
    """Says nothing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        """Do nothing."""


def given_to(name: str) -> Any:
    """An argument that can be used."""
    values: dict[str, Any] = {
        **NAMES,
        "new_session_id": "new",
        "memory_id": "m",
        "query": "tea",
        "artifact": Part(text="x"),
        "chunks": [b"x"],
        "mime_type": "text/plain",
        "credential": AuthCredential("bearer", token="a-secret-token"),
        "pending": PendingCall(
            app_name="app",
            user_id="u",
            session_id="s",
            invocation_id="e-1",
            call_id="q-1",
            kind="credential",
            author="a",
            tool="",
            args={},
            branch=None,
            auth_config=AuthConfig("k", "oauth2", state="a-state"),
        ),
        "events": [],
        "memories": ["tea"],
        "status": "running",
        "after": "1",
        "new_message": "hi",
        "content": "hi",
        "invocation_id": "e-1",
        "rewind_before_invocation_id": "e-1",
    }
    return values[name]


def text_arguments(kind: type) -> list[tuple[str, str]]:
    """The methods of a class that applications call, and those of their arguments that take text."""
    found = []
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in vars(SessionStore):
            continue
        if name in ("append_event", "add_session_to_memory", "run", "run_debug"):
            continue
        for parameter in inspect.signature(method).parameters.values():
            if re.search(r"\bstr\b", str(parameter.annotation)) and "Mapping" not in str(parameter.annotation):
                found.append((name, parameter.name))
    return found


def database() -> str | None:
    """The URL of a database; None where there is no server, and need not be."""
    return new_database() if os.environ.get("CI") or not missing() else None


@asynccontextmanager
async def services(folder: Path, url: str | None) -> AsyncIterator[dict[str, list[Any]]]:
    """All services, one of each class; those of databases if there is one."""
    sessions = SqliteSessionService(folder / "s.db")
    made: dict[str, list[Any]] = {
        "sessions": [InMemorySessionService(), sessions],
        "artifacts": [
            InMemoryArtifactService(),
            FileArtifactService(folder / "artifacts"),
            SqliteArtifactService(folder / "a.db"),
        ],
        "memory": [InMemoryMemoryService(), SqliteMemoryService(folder / "m.db")],
        "credentials": [InMemoryCredentialService()],
    }
    if url is not None:
        made["sessions"].append(DatabaseSessionService(url))
        made["artifacts"].append(DatabaseArtifactService(url))
        made["memory"].append(DatabaseMemoryService(url))
    if importlib.util.find_spec("keyring"):  # an extra
        from minirun.credentials import KeyringCredentialService

        from ..keyrings import DictKeyring

        made["credentials"].append(KeyringCredentialService(DictKeyring()))
    try:
        yield made
    finally:
        for group in made.values():
            for service in group:
                await service.aclose()


async def use(service: object, method: str, **arguments: Any) -> Any:
    """Call a method, whatever it returns."""
    parameters = inspect.signature(getattr(type(service), method)).parameters.values()
    missing = [each.name for each in parameters if each.default is each.empty and each.name != "self"]
    needed = {missed: given_to(missed) for missed in missing}
    result = getattr(service, method)(**{**needed, **arguments})
    if hasattr(result, "__aenter__"):
        async with result as entered:
            if hasattr(entered, "wait"):
                await entered.wait()
            return None
    return await result if inspect.isawaitable(result) else result


def all_arguments() -> list[tuple[str, str, str]]:
    """The kind of service, the method and the argument."""
    kinds = {
        "sessions": BaseSessionService,
        "artifacts": BaseArtifactService,
        "memory": BaseMemoryService,
        "credentials": BaseCredentialService,
        "runner": Runner,
    }
    return [(kind, *each) for kind, base in kinds.items() for each in text_arguments(base)]


MANY = pytest.mark.slow


@pytest.mark.parametrize("examples", [pytest.param(1, id="some"), pytest.param(4, id="many", marks=MANY)])
@pytest.mark.parametrize("kind", ["sessions", "artifacts", "memory", "credentials", "runner"])
def test_any_text_is_refused_with_a_typed_error_or_taken(
    kind: str, examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """
    Whatever text stands in an argument, a service does what it is for or raises an error of minirun's.
    """

    url = database()  # one for all examples: to make one takes longer than they do

    async def try_all(texts: list[str]) -> None:
        folder = tmp_path_factory.mktemp("texts")
        async with services(folder, url) as made:
            keeper = InMemoryCredentialService(env=made["sessions"][0].env)
            runners = [
                Runner(agent=Silent(name="a"), app_name="app", session_service=sessions, credential_service=keeper)
                for sessions in made["sessions"]
            ]
            for _, method, name in [each for each in all_arguments() if each[0] == kind]:
                for sessions in made["sessions"] if kind in ("sessions", "runner") else ():
                    with suppress(AlreadyExistsError):
                        await sessions.create_session(app_name="app", user_id="u", session_id="s")
                for service in [*runners] if kind == "runner" else made[kind]:
                    for text in texts:
                        await try_one(service, method, name, text)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @example(list(ODD_EXAMPLES))
    @given(st.lists(TEXTS, min_size=5, max_size=10))
    def run(texts: list[str]) -> None:
        trio.run(try_all, texts)

    run()


async def try_one(service: object, method: str, name: str, text: str) -> None:
    """Use the method with this text; another error than minirun's says where."""
    try:
        await use(service, method, **{name: text})
    except MinirunError as error:
        str(error).encode()
    except Exception as error:
        error.add_note(f"{type(service).__name__}.{method}, {name}={text!r}")
        raise


async def test_an_argument_of_a_session_service_that_is_refused_is_named() -> None:
    """
    Whatever cannot be what was asked for, the error's path is the argument: a program can say which field is wrong.
    """
    named = {"new_session_id": "session_id"}  # by that a fork is called
    async with InMemorySessionService() as service:
        await service.create_session(app_name="app", user_id="u", session_id="s")
        for method, function in inspect.getmembers(BaseSessionService, inspect.isfunction):
            is_for_stores = method in vars(SessionStore)  # the primitives, which check no arguments
            if not method.startswith("_") and not is_for_stores and method not in ("aclose", "append_event"):
                for name in [each for each in inspect.signature(function).parameters if each != "self"]:
                    if name != "include_timers":  # true or false, as Python has it
                        with pytest.raises(InvalidValueError) as caught:
                            await use(service, method, **{name: 5.5})
                        assert caught.value.path == named.get(name, name), method


async def _kept_session(made: dict[str, list[Any]], text: str) -> None:
    for service in made["sessions"]:
        for which in ("user_id", "session_id"):
            place = {"app_name": "app", "user_id": "u", "session_id": "s", which: text}
            session = await service.create_session(**place)
            if which == "session_id" and not text.strip():
                continue  # that is how one is made
            found = await service.get_session(**place)
            assert found is not None
            assert {"app_name": found.app_name, "user_id": found.user_id, "session_id": found.id} == place
            assert await service.append_event(session, Event(author="user", message="hi"))
            await service.delete_session(**place)


async def _kept_artifact(made: dict[str, list[Any]], text: str) -> None:
    where = {"app_name": "app", "user_id": "u", "session_id": "s"}
    for service in made["artifacts"]:
        await service.save_artifact(**where, filename=text, artifact=Part(text="x"))
        assert text in await service.list_artifact_keys(**where)
        await service.delete_artifact(**where, filename=text)


async def _kept_memory(made: dict[str, list[Any]], text: str) -> None:
    for service in made["memory"]:
        entry = MemoryEntry(id=text, author=text or None, content=Content(parts=[Part(text=f"tea {text}")]))
        [stored] = await service.add_memory(app_name="app", user_id="u", memories=[entry])
        assert stored == text
        [found] = (await service.search_memory(app_name="app", user_id="u", query="tea")).memories
        assert (found.id, found.content) == (text, entry.content)
        await service.delete_user_memories(app_name="app", user_id="u")


async def _kept_credential(made: dict[str, list[Any]], text: str) -> None:
    where = {"app_name": "app", "user_id": "u"}
    for service in made["credentials"]:
        await service.save_credential(**where, credential_key=text, credential=given_to("credential"))
        assert await service.list_credentials(**where) == [text]
        await service.delete_credential(**where, credential_key=text)


@pytest.mark.parametrize("examples", [pytest.param(3, id="some"), pytest.param(15, id="many", marks=MANY)])
@pytest.mark.parametrize("keep", [_kept_session, _kept_artifact, _kept_memory, _kept_credential])
def test_what_is_taken_is_kept_exactly(
    keep: Callable[..., Any], examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """
    An id, or the name of an artifact, that is not refused reads back character by character.
    """

    url = database()

    async def try_all(texts: list[str]) -> None:
        async with services(tmp_path_factory.mktemp("texts"), url) as made:
            for text in texts:
                with suppress(InvalidValueError):
                    await keep(made, text)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @example(list(ODD_EXAMPLES))
    @given(st.lists(TEXTS | st.text(min_size=1, max_size=8), min_size=3, max_size=8, unique=True))
    def run(texts: list[str]) -> None:
        trio.run(try_all, texts)

    run()


@pytest.mark.parametrize("text", ODD_EXAMPLES)
def test_texts_that_say_how_users_sign_in_are_refused_or_taken(text: str) -> None:
    """
    Of an AuthScheme, an AuthConfig, BearerHeaders and an OpenAPIToolset: an error of minirun's, or what was given.
    """
    from minirun.tools.openapi import OpenAPIToolset

    good: dict[str, Any] = {"issuer": "https://a.example", "redirect_uri": "https://app.example/cb"}
    key: dict[str, Any] = {"credential_key": "k"}
    config = AuthConfig("k", auth_scheme=AuthScheme(**good))
    service = InMemoryCredentialService()
    toolset: dict[str, Any] = {"spec_dict": {"openapi": "3.1.0"}, "base_url": "https://a.example"}
    schemes = ("issuer", "resource", "redirect_uri", "token_endpoint", "authorization_endpoint")
    makers: list[Callable[[], Any]] = [
        *(partial(AuthScheme, **(good | {name: text})) for name in schemes),
        *(partial(AuthScheme, **(good | {name: text})) for name in ("grant_type", "token_endpoint_auth_method")),
        lambda: AuthScheme(**good, parameters={text: text}),
        *(partial(AuthConfig, **(key | {name: text})) for name in ("credential_key", "scheme", "hint")),
        *(partial(AuthConfig, **(key | {"scheme": "oauth2", name: text})) for name in ("auth_uri", "state")),
        lambda: AuthConfig("k", scopes=[text]),
        *(
            partial(BearerHeaders, config, service, **{"app_name": "app", "user_id": "u", name: text})
            for name in ("app_name", "user_id")
        ),
        *(partial(OpenAPIToolset, **{**toolset, name: text}) for name in ("base_url", "spec_str", "tool_name_prefix")),
        lambda: OpenAPIToolset(**toolset, headers={text: "x"}),
        lambda: OpenAPIToolset(**toolset, headers={"x": text}),
        lambda: OpenAPIToolset(**toolset, auth={text: config}),
        lambda: OpenAPIToolset(**toolset, require_confirmation=[text]),
    ]
    for make in makers:
        try:
            repr(make()).encode()
        except MinirunError as error:
            str(error).encode()


@pytest.mark.parametrize("user", ["\x85ada\u3000", " ada", "ada\n", "ada\u00a0", "\u2028ada"])
async def test_two_users_are_never_one(user: str) -> None:
    """
    An id with space around it is refused with what to write: it would have been taken for another user's.
    """
    service = InMemorySessionService()
    await service.create_session(app_name="app", user_id="ada", session_id="s")
    with pytest.raises(InvalidValueError, match=r"^user_id: expected "):
        await service.get_session(app_name="app", user_id=user, session_id="s")
    with pytest.raises(InvalidValueError, match=r"^user_id: expected "):
        await service.create_session(app_name="app", user_id=user, session_id="s")


@pytest.mark.parametrize("name", ["my-app", "_x", "App_1"])
async def test_apps_are_called_as_adk_lets_them_be(name: str) -> None:
    """
    Letters, digits, `_` and `-`, with a letter or `_` first.
    """
    service = InMemorySessionService()
    assert (await service.create_session(app_name=name, user_id="u")).app_name == name
