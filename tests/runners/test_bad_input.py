"""
Bad input: each is refused with an error of its own type that says what to do, and nothing is stored.

Files that are not ours, or cannot be used; values that are not JSON, wherever they come in; agents, apps, runners and
runs that are put together wrongly.
"""

from __future__ import annotations

import datetime
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import minirun.errors
from minirun import (
    App,
    BaseAgent,
    Content,
    Event,
    InMemoryRunner,
    InMemorySessionService,
    InvocationContext,
    LlmAgent,
    Part,
    RunConfig,
    Runner,
    SqliteSessionService,
)
from minirun.artifacts import InMemoryArtifactService
from minirun.errors import (
    ConfigurationError,
    InvalidMessageError,
    InvalidValueError,
    InvocationNotFoundError,
    MinirunError,
    NotSupportedError,
    SessionNotFoundError,
    StorageError,
    StorageFormatError,
    StorageReadOnlyError,
)
from minirun.sessions import BaseSessionService
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionCall, FunctionResponse

from ..stores import HERE

ROOT = Path(__file__).parents[2]


class Silent(BaseAgent):
    """Says nothing."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        await trio.lowlevel.checkpoint()


def test_every_error_that_is_raised_on_purpose_has_the_one_base() -> None:
    """All of minirun.errors derive from MinirunError, and all are listed."""
    listed = {name: getattr(minirun.errors, name) for name in minirun.errors.__all__}
    known = vars(minirun.errors).items()
    names = [name for name, kind in known if isinstance(kind, type) and issubclass(kind, Exception)]
    assert sorted(names) == sorted(listed)
    assert all(issubclass(kind, MinirunError) for kind in listed.values())


# --- files ------------------------------------------------------------------------------------------------------------


def foreign_database(path: Path, *, journal: str = "delete", rows: int = 1, pragma: str = "application_id=0") -> None:
    """A database of another program, closed properly."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode={journal}")
    db.execute(f"PRAGMA {pragma}")
    for row in range(rows):
        db.execute("CREATE TABLE IF NOT EXISTS things (number)")
        db.execute("INSERT INTO things VALUES (?)", (row,))
    db.close()


def crashed_database(path: Path) -> None:
    """A database of another program that died: what it wrote last is in its write-ahead log."""
    alive = path.with_name("alive")
    db = sqlite3.connect(alive, isolation_level=None)
    db.execute("PRAGMA journal_mode=wal")
    db.execute("CREATE TABLE things (number)")
    db.execute("PRAGMA wal_checkpoint")
    db.execute("INSERT INTO things VALUES (1)")
    for suffix in ("", "-wal"):
        path.with_name(path.name + suffix).write_bytes(alive.with_name(alive.name + suffix).read_bytes())
    db.close()
    alive.unlink()


def our_file(path: Path, *statements: str) -> None:
    """A file of ours, changed."""

    async def make() -> None:
        async with SqliteSessionService(path) as service:
            await service.create_session(**HERE)

    trio.run(make)
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a text": (
        lambda path: path.write_text("Dear diary, " * 999),
        "choose a file that minirun has made, or a new name",
    ),
    "a short text": (lambda path: path.write_text("hello"), "choose a file that minirun has made, or a new name"),
    "one byte": (lambda path: path.write_text("x"), "expected a file made by minirun, found one of one byte"),
    "zeros": (lambda path: path.write_bytes(bytes(4096)), "choose a file that minirun has made, or a new name"),
    "half a header": (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(84)), "choose a file that minirun"),
    "another program's": (foreign_database, "found another program's database; use another name"),
    "another program's with a log": (lambda path: foreign_database(path, journal="wal"), "found another program's"),
    "another program's that died": (crashed_database, "found another program's database"),
    "another program's id": (
        lambda path: foreign_database(path, rows=0, pragma="application_id=7"),
        "another program's",
    ),
    "another's version": (lambda path: foreign_database(path, rows=0, pragma="user_version=1"), "another program's"),
    "a newer version's": (
        lambda path: our_file(path, "PRAGMA user_version=2", "CREATE TABLE hologram (x)"),
        "expected format 1, found format 2, made by a newer minirun; install that, or use another file",
    ),
    "an older version's": (lambda path: our_file(path, "PRAGMA user_version=0"), "made by an older minirun"),
    "a folder": (lambda path: path.mkdir(), "expected a file, found a folder or device; choose another name"),
}


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file in a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


async def use(path: Path, how: str) -> None:
    """Use the file in one of the ways there are."""
    async with SqliteSessionService(path) as service:
        if how == "create":
            await service.create_session(**HERE, state={"a": 1})
        elif how == "list":
            await service.list_sessions(app_name=None)
        else:
            runner = Runner(agent=Silent(name="a"), app_name="app", session_service=service, auto_create_session=True)
            async with runner.run_async(user_id="u", session_id="s", new_message="hi"):
                pass


@pytest.mark.parametrize("how", ["create", "list", "run"])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(kind: str, how: str, tmp_path: Path) -> None:
    """The message says what was found and what to do; the file and what lies beside it keep every byte."""
    make, words = FILES[kind]
    make(tmp_path / "a.db")
    before = tree(tmp_path)
    for _ in range(2):
        with pytest.raises(StorageFormatError) as caught:
            trio.run(use, tmp_path / "a.db", how)
        assert words in str(caught.value)
        assert str(caught.value).startswith(f"{tmp_path}/a.db: ")
        assert caught.value.stored is False
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no/a.db", "there is no folder {}/no; make it first, or choose another place"),
        ("file/a.db", "there is no folder {}/file; make it first"),
        ("x" * 300, "File name too long; choose another name"),
        ("loop/a.db", "choose another"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(place: str, words: str, tmp_path: Path) -> None:
    """A missing folder is not made, and the message names it."""
    (tmp_path / "file").write_text("a file")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StorageFormatError) as caught:
        trio.run(use, tmp_path / place, "create")
    assert words.format(tmp_path) in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == before


def test_an_empty_file_becomes_ours(tmp_path: Path) -> None:
    """A file of no bytes belongs to nobody: it is used."""
    (tmp_path / "a.db").touch()
    trio.run(use, tmp_path / "a.db", "create")
    assert (tmp_path / "a.db").stat().st_size > 0


# What a user without rights does: everything is imported and tried out before the rights are given up.
WITHOUT_RIGHTS = """
import os, sys, json, trio
from pathlib import Path
from minirun.errors import MinirunError
from tests.runners.test_bad_input import use
folder = Path(sys.argv[1])
trio.run(use, folder / "warm-up.db", "run")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
outcomes = {}
for name in sys.argv[2:]:
    try:
        trio.run(use, folder / name, "create")
        outcomes[name] = ["nothing", ""]
    except BaseException as error:
        outcomes[name] = [type(error).__name__, str(error)]
print(json.dumps(outcomes))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into and write to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)
        for folder in Path(name).iterdir():
            if folder.is_dir():
                folder.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="this system has no user ids to change")
def test_a_file_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    """Without the right to read or write the file, or its folder, opening raises StorageReadOnlyError, and says so."""
    rights = {"read only": 0o444, "secret": 0o000, "unreadable": 0o222, "closed/a.db": 0o666, "hidden/a.db": 0o666}
    for name, mode in rights.items():
        path = open_folder / name
        path.parent.mkdir(exist_ok=True)
        our_file(path)
        path.chmod(mode)
    (open_folder / "closed").chmod(0o555)
    (open_folder / "hidden").chmod(0o000)
    before = {name: (open_folder / name).read_bytes() for name in rights} if os.getuid() == 0 else {}
    names = [*rights, "closed/new.db"]
    command = [sys.executable, "-c", WITHOUT_RIGHTS, str(open_folder), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and "PermissionError" in done.stderr:
        pytest.skip("this root may not become another user")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    for name in names:
        kind, message = outcomes[name]
        assert (name, kind) == (name, StorageReadOnlyError.__name__)
        assert "let this user read and write the file and its folder" in message
        assert str(open_folder / name) in message
    for name, content in before.items():
        assert (open_folder / name).read_bytes() == content
    assert stat.S_IMODE((open_folder / "read only").stat().st_mode) == 0o444


# --- values -----------------------------------------------------------------------------------------------------------

cycle: dict[str, Any] = {}
cycle["again"] = [cycle]
deep: list[Any] = []
for _ in range(120):
    deep = [deep]

VALUES: dict[str, tuple[Any, str]] = {
    "an object": (object(), "expected a JSON value (None, bool, int, float, str, list, dict), found object"),
    "a date": (datetime.date(2026, 11, 21), "found date; store its plain parts instead"),
    "NaN": (float("nan"), "expected a finite number, found nan; store None or a string instead"),
    "infinity": (float("-inf"), "expected a finite number, found -inf"),
    "bytes": (b"bytes", "found bytes"),
    "a set": ({1}, "found set"),
    "half a character": ("\ud83d", "found a lone surrogate at character 0"),
    "a huge integer": (10**4321, "expected an integer of at most 4000 digits"),
    "a cycle": (cycle, "nested deeper than 100 levels, or containing itself; flatten it"),
    "great depth": (deep, "nested deeper than 100 levels"),
    "a number as key": ({1: 2}, "expected string keys, found 1 of type int"),
}


class Writes(BaseAgent):
    """Lets a bad value in, in one of the ways that logic has."""

    value: Any
    way: str

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        if self.way == "ctx.state":
            ctx.state["a"] = [self.value]
        elif self.way == "extend":
            ctx.state.extend("a", [self.value])
        elif self.way == "emit":
            await ctx.emit(Event(state={"a": [self.value]}))
        else:
            await ctx.emit(Event(message="x", custom_metadata={"a": [self.value]}))


async def start(service: BaseSessionService, agent: BaseAgent, **options: Any) -> None:
    runner = Runner(agent=agent, app_name="app", session_service=service)
    async with runner.run_async(user_id="u", session_id="s", **{"new_message": "hi", **options}) as run:
        await run.wait()


WAYS: dict[str, Callable[[BaseSessionService, Any], Awaitable[object]]] = {
    "create_session": lambda service, value: service.create_session(
        app_name="app", user_id="u", session_id="new", state={"user:ok": 1, "a": [value]}
    ),
    "state_delta": lambda service, value: start(service, Silent(name="x"), state_delta={"user:ok": 1, "a": [value]}),
    "temp state_delta": lambda service, value: start(service, Silent(name="x"), state_delta={"temp:a": [value]}),
    "RunConfig": lambda service, value: start(
        service, Silent(name="x"), run_config=RunConfig(custom_metadata={"a": [value]})
    ),
    "ctx.state": lambda service, value: start(service, Writes(name="x", value=value, way="ctx.state")),
    "extend": lambda service, value: start(service, Writes(name="x", value=value, way="extend")),
    "emit": lambda service, value: start(service, Writes(name="x", value=value, way="emit")),
    "metadata": lambda service, value: start(service, Writes(name="x", value=value, way="metadata")),
}
IN_THE_RUN = {"ctx.state", "extend", "emit", "metadata"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", VALUES)
async def test_a_value_that_is_no_json_is_refused_wherever_it_comes_in(kind: str, way: str) -> None:
    """The message leads to the value and says what is expected; what would have held it is not stored."""
    value, words = VALUES[kind]
    async with InMemorySessionService() as service:
        await service.create_session(**HERE)
        with pytest.raises(InvalidValueError) as caught:
            await WAYS[way](service, value)
        assert words in str(caught.value)
        assert ("['temp:a'][0]" if way == "temp state_delta" else "['a'][0]") in str(caught.value)
        assert await service.get_session(app_name="app", user_id="u", session_id="new") is None
        session = await service.get_session(**HERE)
        assert session is not None
        assert dict(session.state) == {}
        assert [event.author for event in session.events] == (["user", "x"] if way in IN_THE_RUN else [])
        assert all(event.error_code == "InvalidValueError" for event in session.events[1:])


@pytest.mark.parametrize("way", ["value", "state"])
async def test_a_tools_value_that_is_no_json_is_told_to_the_model(way: str) -> None:
    """A tool that returns or writes such a value gets an error response, with the path; the run goes on."""

    def tool(tool_context: minirun.ToolContext) -> Any:
        if way == "state":
            tool_context.state["a"] = {1}
        return {"when": [object()]}

    model = ScriptedLlm([call("tool"), "never mind"])
    async with InMemorySessionService() as service:
        await service.create_session(**HERE)
        await start(service, LlmAgent(name="x", model=model, tools=[tool]))
        events = await service.read_events(**HERE)
        [response] = [response for event in events for response in event.get_function_responses()]
        assert response.response["error"]["type"] == "InvalidValueError"
        path = "state['a']" if way == "state" else "['when'][0]"
        assert path in response.response["error"]["message"]
        assert events[-1].text == "never mind"


# --- names and ids ----------------------------------------------------------------------------------------------------

BAD_APPS = ["my app", " app", "app ", "", "user", "1app", "a/b", "app\n", "äpp", None, 5]


@pytest.mark.parametrize("name", BAD_APPS)
async def test_an_app_name_with_spaces_is_refused_everywhere(name: Any) -> None:
    """App, Runner and every operation of a service refuse the same names with the same message."""
    async with InMemorySessionService() as service:
        agent = Silent(name="a")
        makers: list[Callable[[], object]] = [lambda: App(name, agent)]
        if name is not None:
            makers.append(lambda: Runner(agent=agent, app_name=name, session_service=service))
        for make in makers:
            with pytest.raises(InvalidValueError, match=r"^app_name: expected letters, digits, '_' and '-', beginning"):
                make()
        uses: list[Callable[[], Awaitable[object]]] = [
            lambda: service.create_session(app_name=name, user_id="u"),
            lambda: service.get_session(app_name=name, user_id="u", session_id="s"),
            lambda: service.delete_session(app_name=name, user_id="u", session_id="s"),
            lambda: service.read_events(app_name=name, user_id="u", session_id="s"),
        ]
        if name is not None:  # where None means all
            uses.append(lambda: service.list_sessions(app_name=name))
            uses.append(lambda: service.list_invocations(app_name=name))
        for act in uses:
            with pytest.raises(InvalidValueError, match=r"^app_name: "):
                await act()
        assert (await service.list_sessions(app_name=None)).sessions == []


@pytest.mark.parametrize("name", ["s\0", "\0", "a\0b", "", "  ", "\ud800", "x" * 1025, None, 5, b"s"])
@pytest.mark.parametrize("which", ["user_id", "session_id"])
async def test_an_id_with_nul_is_refused_everywhere(which: str, name: Any) -> None:
    """NUL, half a character, blank, too long or no string at all: refused by the argument's name, nothing is stored."""
    async with InMemorySessionService() as service:
        runner = Runner(agent=Silent(name="a"), app_name="app", session_service=service, auto_create_session=True)
        place: Any = {"user_id": "u", "session_id": "s", which: name}
        with pytest.raises(InvalidValueError, match=f"^{which}: expected "):
            async with runner.run_async(**place, new_message="hi"):
                pass
        makes_its_own = which == "session_id" and (name is None or (isinstance(name, str) and not name.strip()))
        if not makes_its_own:
            with pytest.raises(InvalidValueError, match=f"^{which}: expected "):
                await service.create_session(app_name="app", **place)
        for act in (service.get_session, service.delete_session, service.read_events):
            with pytest.raises(InvalidValueError, match=f"^{which}: expected "):
                await act(app_name="app", **place)
        assert (await service.list_sessions(app_name=None)).sessions == []


# --- agents, apps, runners --------------------------------------------------------------------------------------------


def test_two_agents_of_one_name_are_refused() -> None:
    """In one tree every agent has a name of its own; the message names the one that two have."""
    tree = Silent(name="root", sub_agents=[Silent(name="a", sub_agents=[Silent(name="b")]), Silent(name="b")])
    with pytest.raises(ConfigurationError, match="found two named 'b'; rename one"):
        App("app", tree)
    with pytest.raises(ConfigurationError, match="found two named 'b'; rename one"):
        Runner(agent=tree, app_name="app", session_service=InMemorySessionService())
    with pytest.raises(ConfigurationError, match="found two named 'root'"):
        App("app", Silent(name="root", sub_agents=[Silent(name="root")]))


def test_an_agent_used_twice_in_a_tree_is_refused() -> None:
    """One agent stands in one place; the message names it and says to make a second one."""
    shared = Silent(name="shared")
    beside = Silent(name="root", sub_agents=[shared, shared])
    below = Silent(name="root", sub_agents=[shared, Silent(name="other", sub_agents=[shared])])
    for tree in (beside, below):
        with pytest.raises(ConfigurationError, match="found 'shared' in two; make a second agent"):
            App("app", tree)


@pytest.mark.parametrize("name", ["two words", "user", "", "1st", "a-b", None, 5])
def test_an_agents_name_is_an_identifier(name: Any) -> None:
    """Names of agents stand in prompts and branches: identifiers, and not `user`."""
    with pytest.raises(ConfigurationError, match=r"Silent\.name: expected an identifier that is not 'user', found"):
        Silent(name=name)


AGENT = Silent(name="a")
SERVICE = InMemorySessionService()
OTHERS = InMemoryArtifactService(env=minirun.Env())
APP = App("app", AGENT)

RUNNERS: list[tuple[dict[str, Any], type[MinirunError], str]] = [
    ({"agent": AGENT, "app_name": "app", "artifact_service": object()}, ConfigurationError, "artifact_service"),
    ({"agent": AGENT, "app_name": "app", "artifact_service": OTHERS}, ConfigurationError, "use the Env of the session"),
    ({"agent": AGENT, "app_name": "app", "memory_service": object()}, ConfigurationError, "memory_service"),
    ({"agent": AGENT, "app_name": "app", "credential_service": 5}, ConfigurationError, "credential_service"),
    ({"agent": AGENT, "app_name": "app", "session_service": None}, ConfigurationError, "session_service"),
    ({"agent": AGENT, "app_name": "app", "session_service": "a.db"}, ConfigurationError, "found 'a.db'"),
    ({}, ConfigurationError, "exactly one of app=, agent= and node=, found none"),
    ({"app": APP, "agent": AGENT}, ConfigurationError, "exactly one of app=, agent= and node=, found app= and agent="),
    ({"agent": AGENT}, ConfigurationError, "expected app_name= with agent="),
    ({"agent": "a", "app_name": "app"}, ConfigurationError, "found 'a'"),
    ({"agent": Silent, "app_name": "app"}, ConfigurationError, "expected root_agent to be an agent"),
    ({"app": "app"}, ConfigurationError, "expected app to be an App"),
    ({"app": APP, "env": minirun.Env()}, ConfigurationError, "pass the same env to both"),
    ({"app": APP, "cleanup_timeout_s": -1}, ConfigurationError, "expected cleanup_timeout_s to be seconds from 0 up"),
    ({"app": APP, "cleanup_timeout_s": float("nan")}, ConfigurationError, "found nan"),
    ({"app": APP, "cleanup_timeout_s": float("inf")}, ConfigurationError, "not for ever, found inf"),
    ({"app": APP, "cleanup_timeout_s": 10**400}, ConfigurationError, "expected cleanup_timeout_s"),
    ({"app": APP, "cleanup_timeout_s": True}, ConfigurationError, "found True"),
    ({"app": APP, "cleanup_timeout_s": "5"}, ConfigurationError, "found '5'"),
    ({"app": APP, "plugin_close_timeout": -1}, ConfigurationError, "expected cleanup_timeout_s"),
    ({"app": APP, "plugin_close_timeout": "5"}, ConfigurationError, "found '5'"),
    ({"app": APP, "plugin_close_timeout": 5, "cleanup_timeout_s": 5}, ConfigurationError, "found both"),
    ({"app": APP, "plugin_close_timeout": 0, "cleanup_timeout_s": 1}, ConfigurationError, "plugin_close_timeout"),
]


@pytest.mark.parametrize(("options", "kind", "words"), RUNNERS)
def test_a_runner_that_cannot_work_is_not_made(options: dict[str, Any], kind: type[MinirunError], words: str) -> None:
    """Services without effect, missing or contradicting arguments and wrong types are refused by name."""
    with pytest.raises(kind) as caught:
        Runner(**{"session_service": SERVICE, **options})
    assert type(caught.value) is kind
    assert words in str(caught.value)


@pytest.mark.parametrize("make", [partial(Runner, session_service=SERVICE), InMemoryRunner])
def test_the_bound_of_cleanup_has_two_names(make: Callable[..., Runner]) -> None:
    """`cleanup_timeout_s` is 5 seconds, and any from 0 up; ADK's `plugin_close_timeout` gives and tells the same."""
    assert make(app=APP).cleanup_timeout_s == 5.0
    for name in ("cleanup_timeout_s", "plugin_close_timeout"):
        for seconds in (0, 2.5):
            runner = make(app=APP, **{name: seconds})
            assert (runner.cleanup_timeout_s, runner.plugin_close_timeout) == (seconds, seconds)


CONFIGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"support_cfc": True},
        NotSupportedError,
        "RunConfig.support_cfc has no effect in this version of minirun; a live run is Runner.run_live",
    ),
    ({"response_modalities": "AUDIO"}, ConfigurationError, "RunConfig.response_modalities: expected ['AUDIO'] or"),
    ({"save_input_blobs_as_artifacts": False}, NotSupportedError, "RunConfig.save_input_blobs_as_artifacts"),
    ({"max_transfers": "3"}, ConfigurationError, "RunConfig.max_transfers"),
    ({"streaming_mode": "sse"}, ConfigurationError, "RunConfig.streaming_mode: expected a StreamingMode, found 'sse'"),
    ({"max_llm_calls": "5"}, ConfigurationError, "RunConfig.max_llm_calls: expected an integer"),
    ({"max_tool_calls": True}, ConfigurationError, "RunConfig.max_tool_calls: expected an integer"),
    ({"deadline_s": 0}, ConfigurationError, "RunConfig.deadline_s: expected seconds above 0, or None"),
    ({"deadline_s": float("nan")}, ConfigurationError, "RunConfig.deadline_s"),
    ({"thread_grace_s": -1}, ConfigurationError, "RunConfig.thread_grace_s: expected seconds from 0 up"),
    ({"on_busy": "queue"}, ConfigurationError, "RunConfig.on_busy: expected 'wait' or 'reject', found 'queue'"),
    ({"partial_buffer": 0}, ConfigurationError, "RunConfig.partial_buffer: expected an integer above 0"),
    (
        {"get_session_config": {"num_recent_events": 1}},
        ConfigurationError,
        "RunConfig.get_session_config: expected a Get",
    ),
    ({"custom_metadata": {"a": object()}}, InvalidValueError, "custom_metadata['a']"),
    ({"max_llm_callls": 5}, TypeError, "unexpected keyword argument 'max_llm_callls'; did you mean 'max_llm_calls'?"),
]


@pytest.mark.parametrize(("options", "kind", "words"), CONFIGS)
def test_a_run_config_that_would_have_no_effect_is_refused(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """Documented fields that do not work yet, wrong types and misspelled names are refused by name."""
    with pytest.raises(kind) as caught:
        RunConfig(**options)
    assert words in str(caught.value)


def content(*parts: Part) -> Content:
    return Content(role="user", parts=parts)


CALL = Part(function_call=FunctionCall(name="f", id="c"))
RESPONSE = Part(function_response=FunctionResponse(name="f", id="c"))

MESSAGES: list[tuple[dict[str, Any], type[MinirunError], str]] = [
    ({"new_message": None}, InvalidMessageError, "expected a new_message with something in it"),
    ({"new_message": ""}, InvalidMessageError, "expected a new_message with something in it"),
    ({"new_message": " \n"}, InvalidMessageError, "pass a text or a Content with parts"),
    ({"new_message": content()}, InvalidMessageError, "expected a new_message with something in it"),
    ({"new_message": content(Part(text="x"), CALL)}, InvalidMessageError, "without function calls"),
    ({"new_message": content(RESPONSE)}, InvalidMessageError, "expected answers to open questions"),
    ({"new_message": 5}, InvalidMessageError, "to be a string or a Content, found int"),
    ({"new_message": Part(text="x")}, InvalidMessageError, "to be a string or a Content, found Part"),
    ({"new_message": "half \ud83d"}, InvalidValueError, "lone surrogate"),
    ({"session_id": "nobody"}, SessionNotFoundError, "make it with create_session, or use Runner(auto_create_session"),
    (
        {"new_message": None, "invocation_id": "e-0"},
        InvocationNotFoundError,
        "has no invocation 'e-0'; leave invocation_id out",
    ),
    ({"run_config": 5}, ConfigurationError, "expected a RunConfig, found 5"),
    ({"run_config": {"on_busy": "wait"}}, ConfigurationError, "expected a RunConfig"),
    ({"state_delta": [("a", 1)]}, InvalidValueError, "state_delta: expected a mapping, found list"),
    ({"state_delta": {"app:": 1}}, InvalidValueError, "state_delta: expected a name after the prefix, found 'app:'"),
    ({"state_delta": {5: 1}}, InvalidValueError, "state_delta: expected string keys"),
]


@pytest.mark.parametrize(("options", "kind", "words"), MESSAGES)
async def test_a_run_that_cannot_begin_stores_nothing(
    options: dict[str, Any], kind: type[MinirunError], words: str, tmp_path: Path
) -> None:
    """Empty messages, foreign parts, unknown sessions and invocations, wrong types: an error, nothing is stored."""
    async with SqliteSessionService(tmp_path / "a.db", durability="process") as service:
        await service.create_session(**HERE)
        runner = Runner(agent=Silent(name="a"), app_name="app", session_service=service)
        place: Any = {"user_id": "u", "session_id": "s", "new_message": "hi", **options}
        with pytest.raises(kind) as caught:
            async with runner.run_async(**place):
                pass
        assert type(caught.value) is kind
        assert words in str(caught.value)
        assert len(await service.read_events(**HERE)) == 1
        assert await service.list_invocations() == []
        assert len((await service.list_sessions(app_name=None)).sessions) == 1


def test_what_a_storage_error_says_about_the_event() -> None:
    """`stored` is False where the transaction never began or was rolled back, and None where nobody knows."""
    kinds = [
        kind for kind in vars(minirun.errors).values() if isinstance(kind, type) and issubclass(kind, StorageError)
    ]
    unknown = {kind.__name__ for kind in kinds if kind.stored is None}
    assert unknown == {"StorageError", "StorageUncertainError"}
