"""
The command line, as a process: what it prints, how it ends, and what it leaves in the file.

Most of these processes are forked by a server that has imported the command line already; see fork_server.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import trio

import minirun as package
from minirun import Event, SqliteSessionService
from minirun.flows._questions import REQUEST_INPUT, SLEEP_UNTIL
from minirun.sessions import InvocationStatus, SessionKey
from minirun.types import Content, FunctionCall, Part

from ..fork_server import run, start

AGENT = """
import trio
from minirun import App, LlmAgent
from minirun.testing import ScriptedLlm, call

def model(request):
    text = request.contents[-1].text
    answered = request.contents[-1].parts[-1].function_response
    if answered is not None:
        return "done"
    if text == "slow":
        return call("slow")
    if text == "fail":
        raise OSError("the model is gone")
    if text == "set":
        return call("set", value=1)
    if text == "wild":
        return "[red]markup[/red] \\x1b[31mescape\\x07"
    return ["you ", "said ", text]

async def slow() -> None:
    print("slow begins", flush=True)
    await trio.sleep_forever()

async def set(value: int, tool_context) -> int:
    tool_context.state["k"] = value
    return value

agent = LlmAgent(name="echo", model=ScriptedLlm(model), tools=[slow, set])
"""

# As long as nothing is wrong, a process of these tests ends at once.
PATIENCE_S = 120

GUIDE = Path(package.__file__).parent / "docs"


def minirun(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run(["-W", "error", "-m", "minirun", *arguments], cwd=folder, input=stdin)


def fresh_minirun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that has imported nothing yet."""
    program = [sys.executable, "-W", "error", "-m", "minirun", *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "echo.py").write_text(AGENT)
    return tmp_path


def test_messages_are_answered_one_after_another(folder: Path) -> None:
    """Each message of the command line is a turn of one session."""
    done = fresh_minirun(folder, "run", "echo.py", "--db", "s.db", "one", "two")
    assert (done.returncode, done.stdout, done.stderr) == (0, "you said one\nyou said two\n", "")
    again = minirun(folder, "run", "echo.py:agent", "--db", "s.db", "three")
    assert again.stdout == "you said three\n"
    listed = minirun(folder, "sessions", "list", "--db", "s.db")
    assert [row.split()[:4] for row in listed.stdout.splitlines()[1:]] == [["echo", "local", "default", "6"]]


def test_streamed_text_is_printed_once(folder: Path) -> None:
    """With --stream the fragments are shown as they come, and their aggregate not again."""
    done = minirun(folder, "run", "echo.py", "--stream", "one", "two")
    assert (done.returncode, done.stdout) == (0, "you said one\nyou said two\n")


def test_a_conversation_is_read_from_standard_input(folder: Path) -> None:
    """Without messages each line of standard input is one; blank lines are passed over."""
    done = minirun(folder, "run", "echo.py", stdin="one\n\n  two  \nset\n")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "you said one",
        "you said two",
        "  call set(value=1)",
        '  set -> {"result":1}',
        "  state k = 1",
        "done",
    ]


def test_a_failure_is_told_and_the_session_stays_usable(folder: Path) -> None:
    """A failing run ends with status 1 and the error on stderr; the next message is answered."""
    failed = minirun(folder, "run", "echo.py", "--db", "s.db", "fail", "never")
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "OSError: the model is gone\n")
    assert minirun(folder, "run", "echo.py", "--db", "s.db", "hi").stdout == "you said hi\n"
    goes_on = minirun(folder, "run", "echo.py", stdin="fail\nhi\n")
    assert (goes_on.returncode, goes_on.stdout) == (1, "you said hi\n")


def test_ctrl_c_ends_the_run_cleanly(folder: Path) -> None:
    """SIGINT in a tool: the process ends with 130, the call is answered in the file, and the session goes on."""
    process = start(["-W", "error", "-m", "minirun", "run", "echo.py", "--db", "s.db", "slow"], cwd=folder)
    assert "slow begins\n" in process.stdout
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert minirun(folder, "run", "echo.py", "--db", "s.db", "hi").stdout == "you said hi\n"
    exported = minirun(folder, "sessions", "export", "echo", "local", "default", "--db", "s.db").stdout
    parts = [part for line in exported.splitlines() for part in json.loads(line).get("content", {}).get("parts", [])]
    [answer] = [part["function_response"] for part in parts if "function_response" in part]
    assert answer["response"]["error"]["type"] == "cancelled"


def test_nothing_a_model_says_reaches_the_terminal_raw(folder: Path) -> None:
    """Markup is shown as it is, control characters are made visible."""
    done = minirun(folder, "run", "echo.py", "wild")
    assert done.stdout == "[red]markup[/red] \\x1b[31mescape\\x07\n"


def test_sessions_are_shown_exported_and_deleted(folder: Path) -> None:
    """`show` tells events and state, `export` prints one line of JSON for each event, `delete` deletes one session."""
    minirun(folder, "run", "echo.py", "--db", "s.db", "set")
    minirun(folder, "run", "echo.py", "--db", "s.db", "--session", "other", "hi")
    place = ("echo", "local", "default", "--db", "s.db")
    shown = minirun(folder, "sessions", "show", *place).stdout.splitlines()
    assert shown[0] == "1 user: set"
    assert shown[-1] == "k = 1"
    exported = [json.loads(line) for line in minirun(folder, "sessions", "export", *place).stdout.splitlines()]
    assert [event["seq"] for event in exported] == [0, 1, 2, 3, 4]
    refused = minirun(folder, "sessions", "delete", *place, stdin="n\n")
    assert refused.returncode == 1
    assert minirun(folder, "sessions", "delete", *place, "--yes").returncode == 0
    assert "default" not in minirun(folder, "sessions", "list", "--db", "s.db").stdout
    gone = minirun(folder, "sessions", "show", *place)
    assert gone.returncode == 1
    assert "there is no session" in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("run", "nix.py", "hi"), 2, "found none at 'nix.py'"),
        (("run", "echo.py:nix", "hi"), 1, "has no 'nix'"),
        (("run", "empty.py", "hi"), 1, "single App or agent"),
        (("sessions", "list", "--db", "nix.db"), 2, "does not exist"),
        (("sessions", "list", "--db", "echo.py"), 1, "that minirun has made"),
        (("run", "echo.py", "--db", "nix/s.db", "hi"), 1, "there is no folder"),
    ],
)
def test_what_cannot_work_says_what_was_expected(
    folder: Path, arguments: tuple[str, ...], status: int, told: str
) -> None:
    """Bad arguments end with a sentence and without a traceback, and make no file."""
    (folder / "empty.py").write_text("x = 1\n")
    before = sorted(folder.iterdir())
    done = minirun(folder, *arguments)
    assert done.returncode == status
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == before


def test_a_file_that_fails_shows_its_traceback(folder: Path) -> None:
    """What is wrong with the user's own file is shown as Python shows it."""
    (folder / "broken.py").write_text("1 / 0\n")
    done = minirun(folder, "run", "broken.py", "hi")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


def test_without_click_it_says_how_to_get_it(folder: Path) -> None:
    """The core has no command line; asking for it names the extra."""
    blocked = "import sys; sys.modules['click'] = None; import runpy; runpy.run_module('minirun', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "minirun[cli]"' in done.stderr
    assert "Traceback" not in done.stderr


# --- verify, import ---------------------------------------------------------------------------------------------------


def test_sessions_are_verified(folder: Path) -> None:
    """A sound file exits with 0; a damaged one is left as it is, and the command prints where and exits with 1."""
    minirun(folder, "run", "echo.py", "--db", "s.db", "one", "two")
    minirun(folder, "run", "echo.py", "--db", "s.db", "--session", "other", "three")
    sound = minirun(folder, "sessions", "verify", "--db", "s.db")
    assert (sound.returncode, sound.stdout, sound.stderr) == (0, "s.db: sound\n", "")
    db = sqlite3.connect(folder / "s.db", isolation_level=None)
    db.execute("UPDATE events SET data = replace(data, 'two', 'TWO') WHERE log = 1 AND seq = 3")
    db.close()
    before = (folder / "s.db").read_bytes()
    damaged = minirun(folder, "sessions", "verify", "--db", "s.db")
    assert damaged.returncode == 1
    assert "session 'default' of user 'local' in app 'echo', event 3: expected the link" in damaged.stdout
    assert "restore a backup, or save what is whole with `sqlite3 FILE .recover`" in damaged.stderr
    assert (folder / "s.db").read_bytes() == before


def test_what_was_exported_can_be_imported_and_exported_again(folder: Path) -> None:
    """Byte for byte, with what this version does not know; a bad line is named, and then nothing is stored."""
    minirun(folder, "run", "echo.py", "--db", "s.db", "one", "set", "ü 😀 \u2028")
    place = ("echo", "local", "default")
    exported = minirun(folder, "sessions", "export", "--db", "s.db", *place).stdout
    lines = exported.splitlines(keepends=True) if "\u2028" not in exported else exported.split("\n")
    text = "\n".join(line.rstrip("\n") for line in lines if line)
    unknown = json.loads(text.split("\n")[1])
    unknown["from_the_future"] = {"a": [1.5e300, -0.0, True, None]}
    text = "\n".join([text.split("\n")[0], json.dumps(unknown, ensure_ascii=False), *text.split("\n")[2:]]) + "\n"
    (folder / "s.jsonl").write_text(text, encoding="utf-8")
    done = minirun(folder, "sessions", "import", "--db", "first.db", *place, "s.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    first = minirun(folder, "sessions", "export", "--db", "first.db", *place).stdout
    assert "from_the_future" in first
    again = minirun(folder, "sessions", "import", "--db", "second.db", *place, stdin=first)
    assert (again.returncode, again.stderr) == (0, "")
    assert minirun(folder, "sessions", "export", "--db", "second.db", *place).stdout == first
    assert minirun(folder, "sessions", "verify", "--db", "second.db").returncode == 0
    refused = minirun(folder, "sessions", "import", "--db", "second.db", *place, stdin=first)
    assert refused.returncode == 1
    assert "already" in refused.stderr
    for bad, told in (
        ("{}\nnot json\n", "line 2"),
        ("", "found none"),
        (first.split("\n", 1)[1], "expected 0, found 1"),
    ):
        wrong = minirun(folder, "sessions", "import", "--db", "third.db", *place, stdin=bad)
        assert wrong.returncode == 1
        assert told in " ".join(wrong.stderr.split())
        assert "Traceback" not in wrong.stderr


# --- invocations ------------------------------------------------------------------------------------------------------


async def write_questions(path: Path) -> None:
    """Two invocations that wait, for a person and for a time, and one that has ended."""
    async with SqliteSessionService(path, durability="process") as service:
        for name, call, args in (
            ("ask", REQUEST_INPUT, {"message": "How [red]many[/red]?\x1b[31m", "response_schema": {"type": "integer"}}),
            ("sleep", SLEEP_UNTIL, {"until": 1_700_000_000}),
            ("done", "", {}),
        ):
            await service.create_session(app_name="app", user_id="u", session_id=name)
            writer = await service.open_writer(SessionKey("app", "u", name), f"e-{name}", None, reject=False)
            assert writer is not None
            await writer.append(Event(author="user", message="go", invocation_id=f"e-{name}"), begins=True)
            if call:
                content = Content(parts=[Part(function_call=FunctionCall(id=f"c-{name}", name=call, args=args))])
                asks = Event(
                    author="a", invocation_id=f"e-{name}", content=content, long_running_tool_ids=[f"c-{name}"]
                )
                await writer.append(asks)
            await writer.finish(InvocationStatus.PAUSED if call else InvocationStatus.COMPLETED)


def test_invocations_and_their_questions_are_listed(folder: Path) -> None:
    """By app and status; questions with what they ask, timers only if one wants them, and nothing raw."""
    trio.run(write_questions, folder / "s.db")
    listed = minirun(folder, "invocations", "list", "--db", "s.db").stdout.splitlines()
    assert " ".join(listed[0].split()) == "app user session invocation status first event last event"
    assert [row.split() for row in listed[1:]] == [
        ["app", "u", "ask", "e-ask", "paused", "1", "2"],
        ["app", "u", "sleep", "e-sleep", "paused", "1", "2"],
        ["app", "u", "done", "e-done", "completed", "1", "1"],
    ]
    paused = minirun(folder, "invocations", "list", "--db", "s.db", "--status", "completed", "--app", "app").stdout
    assert [row.split()[3] for row in paused.splitlines()[1:]] == ["e-done"]
    assert minirun(folder, "invocations", "list", "--db", "s.db", "--app", "other").stdout.splitlines()[1:] == []
    [question] = minirun(folder, "invocations", "pending", "--db", "s.db").stdout.splitlines()[1:]
    assert question.split()[:6] == ["app", "u", "ask", "c-ask", "input", "How"]
    assert question.rstrip().endswith('How [red]many[/red]?\\x1b[31m form {"type":"integer"}')
    rows = minirun(folder, "invocations", "pending", "--db", "s.db", "--timers").stdout.splitlines()[1:]
    assert rows[1].split()[3:] == ["c-sleep", "timer", "at", "2023-11-14", "22:13:20+00:00"]
    refused = minirun(folder, "invocations", "list", "--db", "s.db", "--status", "sleeping")
    assert refused.returncode == 2
    assert "paused" in refused.stderr


# --- the guide --------------------------------------------------------------------------------------------------------


def test_the_guide_is_listed_shown_and_searched(folder: Path) -> None:
    """`minirun docs` lists all chapters, shows the one that is named, and finds the sections that have all words."""
    listed = minirun(folder, "docs").stdout.splitlines()
    assert [line.split()[0] for line in listed] == sorted(path.stem for path in GUIDE.glob("*.md"))
    for name in ("adk", "coming from adk", "Coming-from-ADK"):
        assert minirun(folder, "docs", name).stdout == (GUIDE / "adk.md").read_text("utf-8")
    found = minirun(folder, "docs", "outcome-unknown", "thread").stdout
    assert re.search(r"^promises\.md:\d+ ", found, re.MULTILINE)


def test_the_list_of_chapters_says_how_to_go_on(folder: Path) -> None:
    """Below the chapters stands how one is shown, and how all are searched; not on stdout, which is for programs."""
    assert "`minirun docs WORDS` searches" in minirun(folder, "docs").stderr


def test_the_command_says_its_version(folder: Path) -> None:
    """`minirun --version` names the installed version."""
    assert fresh_minirun(folder, "--version").stdout.strip().endswith(version("minirun"))


@pytest.mark.parametrize(
    ("words", "chapter"),
    [
        ("approval", "waiting"),
        ("human in the loop", "waiting"),
        ("chat history", "long_conversations"),
        ("context window", "long_conversations"),
        ("structured output", "agents"),
        ("handoff", "agents"),
        ("multi-agent", "agents"),
        ("rate limit", "models"),
        ("dependency injection", "tools"),
        ("knowledge base", "artifacts"),
        ("unit test", "getting_started"),
        ("cron", "waiting"),
        ("limit cost", "embedding"),
    ],
)
def test_the_guide_is_found_by_the_words_of_the_field(folder: Path, words: str, chapter: str) -> None:
    """What readers who come from elsewhere call a thing leads to where the guide explains it."""
    assert f"{chapter}.md" in [name for name, _ in hits(folder, words)]


def hits(folder: Path, *words: str) -> list[tuple[str, str]]:
    """What a search of the guide finds: the file and the heading of each hit."""
    done = minirun(folder, "docs", *words)
    assert done.returncode == 0, done.stderr
    return re.findall(r"^(\w+\.md):\d+ (.*)$", done.stdout, re.MULTILINE)


def test_words_may_be_quoted_and_in_the_plural(folder: Path) -> None:
    """The same is found whether a shell hands words over as one argument or as several, and with a plural s."""
    assert hits(folder, "tool thread timeout") == hits(folder, "tool", "thread", "timeout") != []
    assert hits(folder, "timeouts") == hits(folder, "timeout")


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("lease", ("promises.md", "Leases: one writer across processes")),
        ("rewind", ("state.md", "Rewind, fork, export and import")),
        ("confirmation", ("waiting.md", "Ask a human")),
        ("secret", ("artifacts.md", "Credentials")),
    ],
)
def test_the_section_about_a_thing_is_found_first(folder: Path, word: str, first: tuple[str, str]) -> None:
    """A heading with the word is best, then the section that uses it most; design, for maintainers, comes last."""
    found = hits(folder, word)
    assert found[0] == first
    names = [name for name, _ in found]
    assert names == sorted(names, key=lambda name: name == "design.md")


def test_lines_that_import_are_no_hits(folder: Path) -> None:
    """The lines that a search shows are those with most of the words, and never those that only import a name."""
    shown = minirun(folder, "docs", "ToolContext", "state").stdout
    assert "tool_context.state" in shown
    assert not re.search(r"^ +(from|import) ", shown, re.MULTILINE)
    [section] = re.findall(r"^tools\.md:\d+ The context of a call\n((?:    .*\n)+)", shown, re.MULTILINE)
    assert section.startswith("    `tool_context` (a `ToolContext`")


def test_a_search_without_a_hit_says_so(folder: Path) -> None:
    """Words that no section has end the command with 1 and a sentence."""
    missed = minirun(folder, "docs", "xylophone")
    assert missed.returncode == 1
    assert missed.stderr == "no section of the guide has xylophone; `minirun docs` lists the chapters\n"
