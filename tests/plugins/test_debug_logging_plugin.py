"""The trace of an invocation: what is in its file, what is not, and what happens when it cannot be written."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from minirun import App, Content, Event, InvocationContext, LlmAgent, Part, RunConfig, Runner, StreamingMode
from minirun.errors import ConfigurationError
from minirun.models import LlmRequestDraft
from minirun.plugins import BasePlugin, DebugLoggingPlugin
from minirun.plugins import _lines as lines
from minirun.plugins import _observer as observer
from minirun.plugins._lines import LineFiles
from minirun.plugins._redaction import SECRETS, Redactor
from minirun.runtime import CallbackContext
from minirun.sessions import InMemorySessionService
from minirun.testing import ScriptedLlm, call
from minirun.tools import FunctionTool, ToolContext
from minirun.types import Blob

from ..helpers import Logic, run_to_end

KEY = "sk-very-secret"


def runner_with(agent: Any, *plugins: BasePlugin) -> Runner:
    """A runner over a fresh session."""
    app = App("app", agent, plugins=plugins)
    return Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)


def trace(folder: Path) -> list[dict[str, Any]]:
    """The lines of the one file in a folder."""
    [file] = folder.iterdir()
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def contents(folder: Path) -> list[bytes]:
    """What is in each file of a folder."""
    return [file.read_bytes() for file in folder.iterdir()]


def kinds(folder: Path) -> list[str]:
    """What each line is."""
    return [line["kind"] for line in trace(folder)]


def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


DIVIDE = FunctionTool(divide, run_in="loop")


# --- what is in it ----------------------------------------------------------------------------------------------------


async def test_a_file_tells_an_invocation_from_its_message_to_its_end(tmp_path: Path) -> None:
    """One line of JSON for each thing that happened, in order, with the request as the model got it."""
    model = ScriptedLlm([call("divide", a=1, b=2), "a half"])
    agent = LlmAgent(name="a", model=model, instruction="Be exact.", tools=[DIVIDE], output_key="said")
    runner = runner_with(agent, DebugLoggingPlugin(tmp_path))
    _, run = await run_to_end(runner, "halve it")
    assert kinds(tmp_path) == [
        *("run_begin", "agent_begin"),
        *("model_request", "model_response", "event"),
        *("tool_call", "tool_result", "event"),
        *("model_request", "model_response", "event"),
        *("agent_end", "run_end"),
    ]
    found = trace(tmp_path)
    assert {line["invocation_id"] for line in found} == {run.invocation_id}
    begin, _, asked, answered, event, called, returned, _, again, _, said, _, end = found
    assert (begin["app_name"], begin["user_id"], begin["session_id"], begin["resumed"]) == ("app", "u", "s", False)
    assert begin["message"]["content"]["parts"] == [{"text": "halve it"}]
    assert (asked["contents_before"], len(asked["contents"])) == (0, 1)
    assert asked["config"]["system_instruction"] == "Be exact."
    assert [tool["name"] for tool in asked["config"]["tools"]] == ["divide"]
    assert answered["response"]["content"]["parts"][0]["function_call"]["args"] == {"a": 1, "b": 2}
    assert event["event"]["seq"] == 2
    assert (called["tool"], called["args"], returned["result"]) == ("divide", {"a": 1, "b": 2}, 0.5)
    assert (again["contents_before"], len(again["contents"])) == (1, 2)
    assert said["event"]["actions"]["state_delta"] == {"said": "a half"}
    assert end["status"] == "completed"
    assert end["duration_s"] >= 0


async def test_failures_are_told_with_where_they_were(tmp_path: Path) -> None:
    """Those of tools and models, of the agent, and of the run, whose error event comes after its end."""
    agent = LlmAgent(name="a", model=ScriptedLlm([call("divide", a=1, b=0), OSError("cable")]), tools=[DIVIDE])
    with pytest.raises(OSError, match="cable"):
        await run_to_end(runner_with(agent, DebugLoggingPlugin(tmp_path)))
    found = {line["kind"]: line for line in trace(tmp_path)}
    assert kinds(tmp_path)[-6:] == ["model_error", "agent_error", "agent_end", "run_error", "run_end", "event"]
    assert found["tool_error"]["error_type"] == "ZeroDivisionError"
    assert found["model_error"]["error_message"] == "cable"
    assert found["run_error"]["traceback"][-1] == "OSError: cable"
    assert found["run_end"]["status"] == "failed"
    assert found["event"]["event"]["error_code"] == "OSError"


class Changing(BasePlugin):
    """Puts something before what the model is asked."""

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        llm_request.contents.insert(0, Content(role="user", parts=[Part(text="first")]))
        llm_request.append_instructions(["Be brief."])


@pytest.mark.parametrize("answer", ["fine", OSError("cable")])
async def test_what_is_changed_later_is_told_again(tmp_path: Path, answer: Any) -> None:
    """So that the last request before an answer, or an error, is the one that the model got."""
    agent = LlmAgent(name="a", model=ScriptedLlm([answer]))
    runner = runner_with(agent, DebugLoggingPlugin(tmp_path), Changing("changing"))
    try:
        await run_to_end(runner)
    except OSError:
        pass
    first, second = (line for line in trace(tmp_path) if line["kind"] == "model_request")
    assert "system_instruction" not in first["config"]
    assert second["changed"] is True
    assert second["config"]["system_instruction"] == "Be brief."
    assert [content["parts"][0]["text"] for content in second["contents"]] == ["first", "go"]


async def test_what_is_changed_before_is_told_once(tmp_path: Path) -> None:
    """A draft that nobody changes any more is the request."""
    agent = LlmAgent(name="a", model=ScriptedLlm(["fine"]))
    await run_to_end(runner_with(agent, Changing("changing"), DebugLoggingPlugin(tmp_path)))
    [asked] = (line for line in trace(tmp_path) if line["kind"] == "model_request")
    assert [content["parts"][0]["text"] for content in asked["contents"]] == ["first", "go"]


async def test_fragments_are_left_out(tmp_path: Path) -> None:
    """The whole answer repeats them."""
    agent = LlmAgent(name="a", model=ScriptedLlm([["fi", "ne"]]))
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    await run_to_end(runner_with(agent, DebugLoggingPlugin(tmp_path)), run_config=config)
    assert kinds(tmp_path).count("model_response") == kinds(tmp_path).count("event") == 1


async def test_whoever_goes_on_appends_to_the_same_file(tmp_path: Path) -> None:
    """Another runner, with another plugin, as after a restart."""

    async def ask(tool_context: ToolContext) -> Any:
        """Ask."""
        return await tool_context.request_input("go on?")

    model = ScriptedLlm([call("ask"), "done"])
    service = InMemorySessionService()

    def process() -> Runner:
        agent = LlmAgent(name="a", model=model, tools=[FunctionTool(ask)])
        app = App("app", agent, plugins=[DebugLoggingPlugin(tmp_path)])
        return Runner(app=app, session_service=service, auto_create_session=True)

    _, run = await run_to_end(process())
    await run_to_end(process(), run.pending[0].reply("yes"))
    ends = [line["status"] for line in trace(tmp_path) if line["kind"] == "run_end"]
    begins = [line["resumed"] for line in trace(tmp_path) if line["kind"] == "run_begin"]
    assert (begins, ends) == ([False, True], ["paused", "completed"])


# --- what is not ------------------------------------------------------------------------------------------------------


@attrs.frozen
class Login:
    """A value of an application's own."""

    password: str


async def test_secrets_are_in_no_file(tmp_path: Path) -> None:
    """Not in arguments, results, state, metadata or schemas, at any depth, whatever their names' punctuation."""

    def log_in(password: str, tool_context: ToolContext) -> Any:
        """Log in."""
        tool_context.state["user:API-Key"] = KEY
        return {"headers": [{"Set-Cookie": KEY, "Content-Type": "text"}], "accessToken": {"value": KEY}, "login": "ok"}

    async def log_in_oddly() -> Any:
        """Log in."""
        return Login(KEY)

    tools = [FunctionTool(log_in, run_in="loop"), FunctionTool(log_in_oddly)]
    model = ScriptedLlm([[call("log_in", password=KEY), call("log_in_oddly")], "done"])
    runner = runner_with(LlmAgent(name="a", model=model, tools=tools), DebugLoggingPlugin(tmp_path))
    config = RunConfig(custom_metadata={"x_secret_thing": KEY})
    await run_to_end(runner, run_config=config, state_delta={"app:client_secret": KEY})
    assert KEY.encode() not in b"".join(contents(tmp_path))
    found = [line for line in trace(tmp_path) if line["kind"] in ("tool_call", "tool_result")]
    assert {"password": "[redacted]"} in [line.get("args") for line in found]
    results = [line["result"] for line in found if line["kind"] == "tool_result"]
    redacted = {"Set-Cookie": "[redacted]", "Content-Type": "text"}
    assert {"headers": [redacted], "accessToken": "[redacted]", "login": "ok"} in results


async def test_which_names_are_secret_is_a_setting(tmp_path: Path) -> None:
    """Those that are given take the place of the usual ones."""
    agent = LlmAgent(name="a", model=ScriptedLlm(["done"]))
    await run_to_end(
        runner_with(agent, DebugLoggingPlugin(tmp_path, secrets=["PIN code"])),
        state_delta={"pin_code": 1234, "user:pinCode": None, "token": "t"},
    )
    delta = trace(tmp_path)[0]["message"]["actions"]["state_delta"]
    assert delta == {"pin_code": "[redacted]", "user:pinCode": None, "token": "t"}


async def test_bytes_and_long_texts_are_shortened(tmp_path: Path) -> None:
    """Bytes to their size and digest always, texts to the limit that was set."""
    data = b"\x00" * 5000
    message = Content(
        role="user", parts=[Part(text="x" * 50), Part(inline_data=Blob(data=data, mime_type="image/png"))]
    )
    agent = LlmAgent(name="a", model=ScriptedLlm(["done"]))
    await run_to_end(runner_with(agent, DebugLoggingPlugin(tmp_path, max_text=40)), message)
    text, blob = trace(tmp_path)[0]["message"]["content"]["parts"]
    assert text == {"text": "x" * 40 + "… (10 more)"}
    assert blob["inline_data"]["data"] == {
        "bytes": 5000,
        "sha256": sha256(data).hexdigest(),
    }
    assert max(len(line["invocation_id"]) for line in trace(tmp_path)) < 40


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8) | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(value=VALUES)
def test_whatever_there_is_can_be_shown(value: Any) -> None:
    """As JSON that any parser takes, and that UTF-8 can write."""
    text = json.dumps(Redactor(SECRETS, 5).redacted(value), ensure_ascii=False, allow_nan=False)
    json.loads(text.encode("utf-8", "backslashreplace"))


@given(secret=st.sampled_from(SECRETS), before=st.text("abx-_ .", max_size=4), value=st.text(min_size=1))
def test_a_key_with_a_secrets_name_in_it_is_redacted(secret: str, before: str, value: str) -> None:
    """At any depth, in any case, with any punctuation."""
    short = secret.isascii() and len(secret) < 5  # a word by itself
    head = f"{before}_" if short else before
    for key in (head + secret, secret.upper(), secret.replace("_", "-"), secret.title().replace("_", "")):
        assert Redactor(SECRETS, None).redacted([{"a": {key: value}}]) == [{"a": {key: "[redacted]"}}]


SHOWN = {
    "max_tokens": 5,
    "input_token_count": 3,
    "tokenizer": "bpe",
    "author": "me",
    "shipping": "fast",
    "footprint": "small",
    "text": "a user:pw@host, and https://host/@me",
    "json": '{"a": [1, "x"]}',
    "pairs": [["accept", "text"], ["a", "b", "c"]],
}
HIDDEN = [
    {"pwd": "x"},
    {"cardPin": 1234},
    {"AUTH": "x"},
    {"jwt": "x"},
    {"sessionid": "x"},
    {"Contrasena": "x"},
    {"ＰＡＳＳＷＯＲＤ": "x"},
    {"pass\u00adword": "x"},
    {"access_token": "x"},
    {"headers": [["Authorization", "x"]]},
    {"headers": [{"name": "Set-Cookie", "value": "x"}]},
    {"text": json.dumps({"a": [{"password": "x"}]})},
    {"text": "see https://user:x@host/"},
    {"text": json.dumps({"url": "https://user:x@host/"})},
]


@pytest.mark.parametrize("limit", [None, 1000])
def test_what_is_like_a_secret_and_none_is_shown(limit: int | None) -> None:
    """Numbers of tokens, and words that have the letters of a short name in them, stay as they are."""
    assert Redactor(SECRETS, limit).redacted(SHOWN) == SHOWN


@pytest.mark.parametrize("value", HIDDEN, ids=str)
def test_secrets_are_found_in_all_their_dress(value: dict[str, Any]) -> None:
    """By names in other languages, as words, in pairs and headers, in JSON inside of a text, and in addresses."""
    shown = str(Redactor(SECRETS, None).redacted(value))
    assert "[redacted]" in shown
    assert "x" not in str(list(value.values())) or not re.search(r"(?<![a-z])x(?![a-z])|1234", shown)


def test_what_has_itself_in_it_ends() -> None:
    """A foreign value may be anything."""
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "…" in json.dumps(Redactor((), None).redacted(cycle), ensure_ascii=False)
    assert Redactor((), None).redacted(10**6000) == "an integer of 19932 bits"


# --- the files --------------------------------------------------------------------------------------------------------


async def test_files_and_their_folder_are_the_owners_alone(tmp_path: Path) -> None:
    """Also a file that was there before, with another mode."""
    folder = tmp_path / "traces"
    await run_to_end(runner_with(LlmAgent(name="a", model=ScriptedLlm(["x"])), DebugLoggingPlugin(folder)))
    [file] = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    LineFiles(str(folder), ".jsonl").write(file.stem, b"{}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@given(name=st.text(min_size=1, max_size=400) | st.sampled_from(["..", ".", "/etc/passwd", "a/../../b", "a\0b", "~"]))
def test_no_name_leaves_the_folder(name: str) -> None:
    """And two names have two files."""
    files = LineFiles("/folder", ".jsonl")
    path = files.path(name)
    assert os.path.dirname(path) == "/folder"
    assert path == os.path.normpath(path)
    assert len(os.path.basename(path).encode()) < 255
    assert set(os.path.basename(path)) & set("\0/\\:~") == set()
    assert files.path(name + "x") != path


def test_a_line_that_was_cut_short_is_ended(tmp_path: Path) -> None:
    """What follows it stands in a line of its own."""
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n{"b"')
    files = LineFiles(str(tmp_path), ".jsonl")
    files.write("a", b"{}")
    files.write("a", b"{}")
    files.close_all()
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"a": 1}\n{"b"\n{}\n{}\n'


def test_few_files_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was written to least recently is closed, and opened again when there is more to write."""
    monkeypatch.setattr(lines, "OPEN_MAX", 2)
    files = LineFiles(str(tmp_path), "")
    for name in ("a", "b", "a", "c", "b", "a"):
        files.write(name, name.encode())
        assert len(files._open) <= 2
    assert list(files._open) == ["b", "a"]
    files.close_all()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "a": b"a\n" * 3,
        "b": b"b\n" * 2,
        "c": b"c\n",
    }


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write to the folder cannot have another file appended to."""
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "a").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        LineFiles(str(tmp_path), "").write("a", b"x")
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_writes_nothing_twice(tmp_path: Path) -> None:
    """Parent and child append whole lines to the same file."""
    files = LineFiles(str(tmp_path), "")
    files.write("a", b"before")
    child = os.fork()
    if child == 0:
        files.write("a", b"child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    files.write("a", b"parent")
    files.close_all()
    assert (tmp_path / "a").read_bytes() == b"before\nchild\nparent\n"


async def test_what_cannot_be_written_fails_no_run_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is room again, lines are written again, after the one that was cut short."""
    plugin = DebugLoggingPlugin(tmp_path)
    runner = runner_with(LlmAgent(name="a", model=ScriptedLlm(["x", "y"])), plugin)
    write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "no space left")
        return write(descriptor, data[: len(data) - 10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        events, _ = await run_to_end(runner)
    assert events[-1].text == "x"
    [record] = caplog.records
    assert (record.name, record.levelno) == ("minirun", logging.WARNING)
    assert "cannot write to" in record.getMessage()
    assert "no space left" in record.getMessage()
    await run_to_end(runner)
    assert len(caplog.records) == 1
    assert sorted(content.endswith(b"\n") for content in contents(tmp_path)) == [False, True]


async def test_runs_at_once_have_a_file_each_and_all_are_closed(tmp_path: Path) -> None:
    """When a run ends, and also one that was left, nothing of it is kept."""
    plugin = DebugLoggingPlugin(tmp_path)

    async def logic(ctx: InvocationContext) -> None:
        await ctx.emit(Event(message="hello"))
        await trio.sleep_forever()

    runner = runner_with(Logic(name="a", logic=logic), plugin)

    async def left(number: int) -> None:
        async with runner.run_async(user_id="u", session_id=f"s{number}", new_message="go") as run:
            async for _ in run:
                assert len(plugin._files._open) >= 1
                break

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(left, number)
    assert (plugin._runs, len(plugin._files._open)) == ({}, 0)
    ends = [json.loads(content.splitlines()[-1]) for content in contents(tmp_path)]
    assert [line["status"] for line in ends] == ["cancelled"] * 5


async def test_runs_whose_end_is_never_told_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a bounded number of runs is remembered; closing the runner closes their files."""
    monkeypatch.setattr(observer, "RUNS_MAX", 2)
    plugin = DebugLoggingPlugin(tmp_path)
    seen: list[str] = []

    async def logic(ctx: InvocationContext) -> None:
        await plugin.before_run_callback(invocation_context=ctx)
        seen.append(ctx.invocation_id)

    runner = runner_with(Logic(name="a", logic=logic))
    for _ in range(4):
        await run_to_end(runner)
    assert list(plugin._runs) == list(plugin._files._open) == seen[-2:]
    await plugin.close()
    assert len(plugin._files._open) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"folder": 3},
        {"folder": ""},
        {"folder": "a\0b"},
        {"folder": __file__},
        {"secrets": "token"},
        {"secrets": ["-"]},
        {"secrets": [3]},
        {"max_text": -1},
        {"max_text": 1.5},
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    """The message shows what was found."""
    with pytest.raises(ConfigurationError, match="expected"):
        DebugLoggingPlugin(**{"folder": "x", **options})
