"""`minirun answer` for a credential, as processes: it is typed or read, kept in the keyring, and shown nowhere."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..fork_server import run

pytest.importorskip("keyring", reason="the extra `minirun[keyring]` is not installed")

SECRET = "sk-typed-and-not-shown"
AGENT = """
from minirun import App, BaseAgent, Event
from minirun.credentials import AuthConfig
from minirun.errors import CredentialRefusedError

class Worker(BaseAgent):
    async def _run_async_impl(self, ctx):
        scheme = ctx.user_content.text
        try:
            credential = await ctx.request_credential(AuthConfig("mail", scheme, hint="For your \\x1b[31mmail"))
        except CredentialRefusedError:
            await ctx.emit(Event(message="without"))
            return
        await ctx.emit(Event(message=f"logged in with {len(credential.reveal())} characters"))

app = App("app", Worker(name="w"))
"""
PATIENCE_S = 120


class Shell:
    """Runs the command line in a folder with an agent, and looks for the secret in all it says."""

    def __init__(self, folder: Path, backend: str = "tests.file_keyring.FileKeyring") -> None:
        self.folder = folder
        (folder / "agent.py").write_text(AGENT)
        path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        self.env = {**os.environ, "PYTHON_KEYRING_BACKEND": backend, "PYTHONPATH": path}

    def program(self, *arguments: str) -> list[str]:
        return ["-W", "error", "-m", "minirun", *arguments, "--db", "s.db"]

    def __call__(self, *arguments: str, status: int = 0, stdin: str = "") -> str:
        done = run(self.program(*arguments), cwd=self.folder, env=self.env, input=stdin)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def typing(self, typed: str, *arguments: str) -> str:
        """Run it on a terminal, type that when it asks, and return what the terminal shows."""
        ours, theirs = pty.openpty()
        command = [sys.executable, *self.program(*arguments)]
        with subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            shown = b""
            try:
                while b"api_key" not in shown.split(b"\n")[-1]:
                    shown += os.read(ours, 1000)
                os.write(ours, typed.encode() + b"\n")
                while more := os.read(ours, 1000):
                    shown += more
            except OSError:  # the terminal of a process that has ended
                pass
            process.wait(PATIENCE_S)
        os.close(ours)
        return shown.decode()

    def secret_files(self) -> list[str]:
        """The files of the folder that have the secret."""
        files = [path for path in sorted(self.folder.iterdir()) if path.is_file()]
        return [path.name for path in files if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def question_in(output: str) -> str:
    [found] = set(re.findall(r"\bq-[0-9a-f]+", output))
    return str(found)


def test_a_credential_is_read_and_kept(shell: Shell) -> None:
    """From standard input, in the keyring alone; the next run of the same user asks nobody."""
    question = question_in(shell("run", "agent.py", "api_key"))
    [row] = shell("invocations", "pending").splitlines()[1:]
    assert 'For your \\x1b[31mmail credential "mail" (api_key)' in row
    told = shell("answer", "agent.py", question, stdin=f"{SECRET}\n")
    assert f"logged in with {len(SECRET)} characters" in told
    assert shell.secret_files() == ["keyring.json"]
    assert f"logged in with {len(SECRET)} characters" in shell("run", "agent.py", "api_key", "--session", "next")
    assert shell("invocations", "pending").splitlines()[1:] == []
    assert shell.secret_files() == ["keyring.json"]


def test_a_credential_that_is_typed_is_not_shown(shell: Shell) -> None:
    """On a terminal, which shows the question and the answer of the agent."""
    question = question_in(shell("run", "agent.py", "api_key"))
    shown = shell.typing(SECRET, "answer", "agent.py", question)
    assert f"logged in with {len(SECRET)} characters" in shown
    assert SECRET not in shown


def test_a_secret_among_the_arguments_is_refused(shell: Shell) -> None:
    """It is not repeated, not stored, and the question stays open; yes is refused as long as there is none."""
    question = question_in(shell("run", "agent.py", "api_key"))
    assert "leave VALUE out" in shell("answer", "agent.py", question, SECRET, status=2)
    assert "there is none" in shell("answer", "agent.py", question, "yes", status=1)
    assert "a line of standard input" in shell("answer", "agent.py", question, status=1)
    assert shell.secret_files() == []
    assert question in shell("invocations", "pending")


def test_a_credential_can_be_refused(shell: Shell) -> None:
    """The agent is told."""
    question = question_in(shell("run", "agent.py", "api_key"))
    assert "without" in shell("answer", "agent.py", question, "no")


def test_of_a_credential_with_parts_each_is_read(shell: Shell) -> None:
    """The name first, then the password, however their lines end."""
    question = question_in(shell("run", "agent.py", "basic"))
    shell("answer", "agent.py", question, stdin=f"ada\r\n{SECRET}\n")
    entries = json.loads((shell.folder / "keyring.json").read_text())
    kept = json.loads(entries['minirun app ["local","mail"]'])
    assert kept["values"] == {"username": "ada", "password": SECRET}
    assert "logged in" in shell("run", "agent.py", "basic", "--session", "next")


def test_what_is_kept_already_is_said_with_yes(shell: Shell) -> None:
    """For a second question, of another session."""
    first = question_in(shell("run", "agent.py", "api_key"))
    second = question_in(shell("run", "agent.py", "api_key", "--session", "second"))
    shell("answer", "agent.py", first, stdin=f"{SECRET}\n")
    assert "logged in" in shell("answer", "agent.py", second, "yes")


def test_without_a_keyring_it_is_said(tmp_path: Path) -> None:
    """As on a machine that has none: nothing waits for an answer that cannot be kept."""
    shell = Shell(tmp_path, "keyring.backends.fail.Keyring")
    assert "NoKeyringError" in shell("run", "agent.py", "api_key", status=1)
