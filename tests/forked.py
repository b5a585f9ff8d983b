"""
Programs of tests that run in processes of their own, without the start of an interpreter for each.

`python -m tests.forked SOCKET MODULE...` imports the modules and opens nothing. For each program that it is asked for
it forks, twice: a keeper, which says the program's process id and its own, waits for its end and says its exit code;
and the program, a process of one thread with its own arguments, folder, environment and standard files, which ends as
programs end. It is killed where whoever has asked for it is gone.

*   `Forked` is to such a program what `Popen` is to another one, and `run` what `subprocess.run` is.
*   `relay` is a command that stands for one, for whoever takes commands only. It starts in a tenth of the time.

What a program imports, or what it is in the environment that an interpreter reads at its start, cannot be tested so.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Self

__all__ = ["PREPARED", "WEB", "Forked", "relay", "run"]

ROOT = Path(__file__).parents[1]
PREPARED = ("tests.processes", "tests.forking", "tests.kills", "minirun.memory")
"""What has imported nearly all that an application uses."""
WEB = ("tests.signing_in", "minirun.cli", "minirun.models.providers")
"""The same, with what talks over HTTP and what a command line has."""
OURS = ("examples", "minirun", "tests")
ASKED_MAX = 2**16

# Gives its standard files to a program, and ends as it does.
RELAY = """
import socket, sys
there = socket.socket(socket.AF_UNIX)
there.connect(sys.argv[1])
socket.send_fds(there, [sys.argv[2].encode()], [0, 1, 2])
said = b""
while chunk := there.recv(64):
    said += chunk
sys.exit(int(said.split()[-1]))
"""


# --- asking for programs ----------------------------------------------------------------------------------------------


@cache
def _server(modules: tuple[str, ...]) -> str:
    """
    The socket of a server that has imported these modules.

    Where minirun is among what they import, it is a fork of the one for `PREPARED`, with what is missing there.
    """
    from .trust import keep  # pytest's process alone has it

    folder = tempfile.mkdtemp(prefix="mr-fork-")
    path = os.path.join(folder, "s")
    process: subprocess.Popen[str] | Forked
    if modules == PREPARED or not any(name.partition(".")[0] in OURS for name in modules):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.forked", path, *modules],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    else:
        process = Forked("tests.forked", path, *modules, errors=2)
        keep(process.keeper)
    keep(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.read(1) == "+", "it says so when it is ready"

    def end() -> None:
        with process:
            assert process.stdin is not None
            process.stdin.close()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return path


def _asked(program: str, arguments: Sequence[object], cwd: Path | None, env: dict[str, str] | None) -> str:
    """A module by its name, or the text of a program as `python -c` takes it."""
    asked = {"program": program, "arguments": [*map(str, arguments)], "cwd": str(cwd or ROOT), "env": env}
    text = json.dumps(asked)
    assert len(text) < ASKED_MAX
    return text


def relay(
    program: str, *arguments: object, modules: tuple[str, ...] = PREPARED, cwd: Path | None = None
) -> list[str]:
    """A command that is such a program."""
    asked = _asked(program, arguments, cwd, None)
    return [sys.executable, "-S", "-E", "-c", RELAY, _server(modules), asked]


class Forked:
    """A program that runs; its standard files are pipes of text, unless they are given, or where its *errors* go."""

    def __init__(
        self,
        program: str,
        *arguments: object,
        modules: tuple[str, ...] = PREPARED,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        files: Sequence[IO[Any]] | None = None,
        errors: int | None = None,
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server(modules))
        self._said = b""
        self.returncode: int | None = None
        pipes = [] if files is not None else [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]] if pipes else [file.fileno() for file in files or ()]
        if errors is not None:
            os.dup2(errors, theirs[2])
        socket.send_fds(self._connection, [_asked(program, arguments, cwd, env).encode()], theirs)
        self.pid, self.keeper = map(int, self._hear().split())
        if pipes:
            for end in theirs:
                os.close(end)
            self.stdin = os.fdopen(pipes[0][1], "w", encoding="utf-8")
            self.stdout = os.fdopen(pipes[1][0], encoding="utf-8")
            self.stderr = os.fdopen(pipes[2][0], encoding="utf-8")

    def _hear(self) -> str:
        while b"\n" not in self._said:
            chunk = self._connection.recv(64)
            assert chunk, "the keeper is gone"
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def wait(self) -> int:
        """Wait for the end; below zero, what signal it was."""
        if self.returncode is None:
            self.returncode = int(self._hear())
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """How it has ended, if it has."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, which is about to be told
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; what it has written that was not read."""
        with self:
            self.stdin.close()
            return self.stdout.read(), self.stderr.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        for file in (self.stdin, self.stdout, self.stderr):
            file.close()


def run(
    program: str,
    *arguments: object,
    modules: tuple[str, ...] = PREPARED,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        code = Forked(program, *arguments, modules=modules, cwd=cwd, env=env, files=files).wait()
        for file in files[1:]:
            file.seek(0)
        return subprocess.CompletedProcess([program, *map(str, arguments)], code, files[1].read(), files[2].read())


# --- the server -------------------------------------------------------------------------------------------------------


def _keep(connection: socket.socket, pid: int) -> None:
    """Say who the program is and how it has ended; end it if nobody hears that."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(64):
                pass
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    connection.sendall(b"%d %d\n" % (pid, os.getpid()))
    threading.Thread(target=watch, daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _serve(path: str) -> dict[str, Any]:
    """Fork for each program that is asked for. Returns in the process that is to be the program."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    gc.collect()
    gc.freeze()  # what is there is no garbage: no program needs to look through it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"+")
    while True:
        waiting: list[Any] = [listener, 0]
        ready, _, _ = select.select(waiting, [], [])
        if 0 in ready:  # whoever has started it is gone
            os._exit(0)
        connection, _ = listener.accept()
        asked, files, _, _ = socket.recv_fds(connection, ASKED_MAX, 3)
        if os.fork() == 0:
            break
        for end in (*files, connection.detach()):
            os.close(end)
    listener.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        for end in (0, 1, 2, *files):
            os.close(end)
        _keep(connection, pid)
    connection.close()
    for number, end in enumerate(files):
        os.dup2(end, number)
        os.close(end)
    found: dict[str, Any] = json.loads(asked)
    return found


def _play(asked: dict[str, Any]) -> None:
    """Be the program."""
    os.chdir(asked["cwd"])
    if asked["env"] is not None:
        os.environ.clear()
        os.environ.update(asked["env"])
    program, arguments = asked["program"], asked["arguments"]
    if "\n" not in program:
        sys.argv = [program, *arguments]
        if not hasattr(sys.modules.get(program), "__path__"):
            sys.modules.pop(program, None)  # it is to be `__main__`
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    sys.argv = ["-c", *arguments]
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(module))


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    _play(_serve(sys.argv[1]))
