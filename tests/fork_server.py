"""
Processes of Python that begin with everything imported.

What a test waits for when it starts `python -m minirun` are imports, ten times as long as for the command. So one
process imports everything once and then forks for each command: a process of its own, with its own streams, signals,
folder, environment and exit status, which ends as any other does. What it differs in from a fresh one is only what is
imported already, and what an interpreter reads when it starts (PYTHONHASHSEED, PYTHONUTF8, site-packages); a test of
these, or of the beginning itself, starts a real one.

This file is both sides. As a module it has `run` and `start`, which take what `subprocess` takes. As a script it is
the server: it has a socket as its argument, and the modules to import. A request is a line of JSON with four files:
standard input, output and error, and one that says which process it has become, and how that has ended.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

__all__ = ["BARE", "MINIRUN", "NOT_REWRITTEN", "PYTEST", "Process", "run", "start"]

# What minirun and its tests import of others; for processes that import minirun from somewhere else.
BARE = (
    "asyncio attrs cattrs.preconf click concurrent.futures email.message http.server logging sqlite3 ssl uuid "
    "rich.console rich.progress rich.table rich.text trio trio.testing unittest.mock urllib.request "
    "httpx2 mcp psycopg pytest"
)
MINIRUN = BARE.replace(" pytest", "") + (
    " minirun minirun.cli minirun.cli._answer minirun.cli._artifacts minirun.cli._docs minirun.cli._invocations"
    " minirun.cli._mcp minirun.cli._work minirun.testing minirun.tools.mcp"
)
# For processes that are pytest. It says of what has a plugin that it cannot be rewritten any more; NOT_REWRITTEN are
# arguments with which it does not. What has plugins of ours, and is looked at, is imported by each.
PYTEST = (
    "asyncio attrs cattrs.preconf difflib hypothesis.strategies pytest _pytest.debugging pytest_trio.plugin sqlite3"
    " trio trio.testing unittest.mock"
    " minirun minirun.simulation._pytest minirun.simulation._explore minirun.simulation._mutate"
    " minirun.simulation._processes minirun.simulation._report minirun.simulation._watchdog minirun.testing"
)
NOT_REWRITTEN = ("-W", "ignore::pytest.PytestAssertRewriteWarning")

# As long as nothing is wrong, a process of a test ends at once.
PATIENCE_S = 120
HEAD_BYTES = 8
FILES = 4


# --- the tests' side --------------------------------------------------------------------------------------------------


class Process:
    """A process that was forked, with text streams; what it has in common with `subprocess.Popen` is called alike."""

    def __init__(self, request: dict[str, Any], modules: str, *, merged: bool) -> None:
        self.args = request["arguments"]
        self.returncode: int | None = None
        self._read: dict[str, str] = {}
        reading, self._writing = os.pipe()
        self._reading, written = os.pipe()
        self._errors, told = (-1, written) if merged else os.pipe()
        self._status, status = os.pipe()
        connection, lock = _server(modules)
        message = json.dumps(request).encode()
        with lock:
            socket.send_fds(connection, [len(message).to_bytes(HEAD_BYTES, "big")], [reading, written, told, status])
            connection.sendall(message)
        for each in {reading, written, told, status}:
            os.close(each)
        self.stdin: TextIO = os.fdopen(self._writing, "w", encoding="utf-8")
        self.stdout: TextIO = os.fdopen(self._reading, encoding="utf-8", errors="replace")
        self.stderr: TextIO | None = None if merged else os.fdopen(self._errors, encoding="utf-8", errors="replace")
        self.pid = int(self._told())

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def _told(self) -> bytes:
        """The next line about the process."""
        line = b""
        while not line.endswith(b"\n"):
            more = os.read(self._status, 1)
            assert more, "the fork server has died"
            line += more
        return line

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = PATIENCE_S) -> int:
        """Wait for the end, and return the exit status."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        self.returncode = int(self._told())
        os.close(self._status)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, which is about to be told
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: str = "", timeout: float | None = PATIENCE_S) -> tuple[str, str]:
        """Write the input, read what it prints to the end, and wait for it; asked again, it says the same."""
        read = self._read
        if read:
            return read["stdout"], read["stderr"]
        read.update(stdout="", stderr="")

        def take(name: str, stream: TextIO) -> None:
            read[name] = stream.read()

        streams = {"stdout": self.stdout} | ({} if self.stderr is None else {"stderr": self.stderr})
        threads = [threading.Thread(target=take, args=each, daemon=True) for each in streams.items()]
        for thread in threads:
            thread.start()
        try:
            self.stdin.write(input)
            self.stdin.close()
        except BrokenPipeError:
            pass
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():  # another process has its end of the pipe
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self._close()
        return read["stdout"], read["stderr"]

    def _close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass


@cache
def _server(modules: str) -> tuple[socket.socket, threading.Lock]:
    from tests.trust import keep  # pytest's process alone has it, and the server is run as a file

    ours, theirs = socket.socketpair()
    program = [sys.executable, __file__, str(theirs.fileno()), *modules.split()]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    server = subprocess.Popen(
        program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment
    )
    theirs.close()
    keep(server.pid)

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours, threading.Lock()


def start(
    arguments: Sequence[str],
    *,
    cwd: Path | str,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
    merged: bool = False,
    modules: str = MINIRUN,
) -> Process:
    """
    Start `python ARGUMENTS...`, whose streams are pipes.

    Args:
        arguments: Those of the interpreter: `-W action`, then `-m module`, `-c code` or a file, and its own.
        cwd: The folder that it is started in.
        env: Its environment; without it that of the tests as it is now.
        start_new_session: Whether it leads a process group, so that a signal can be sent to it and to its children.
        merged: Whether its errors go where its output goes.
        modules: What it finds imported.
    """
    environment = dict(os.environ if env is None else env)
    request = {"arguments": [*arguments], "cwd": str(cwd), "env": environment, "leads": start_new_session}
    return Process(request, modules, merged=merged)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | str,
    input: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE_S,
    modules: str = MINIRUN,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS...` to its end, as `start` has it, and return what it has printed."""
    process = start(arguments, cwd=cwd, env=env, modules=modules)
    try:
        stdout, stderr = process.communicate(input, timeout)
    except BaseException:
        process.kill()
        raise
    return subprocess.CompletedProcess([*arguments], process.wait(), stdout, stderr)


# --- the server -------------------------------------------------------------------------------------------------------


def serve(connection: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns in the process that is to do what it asks for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that watch
    gc.collect()
    gc.freeze()
    while True:
        head, files, *_ = socket.recv_fds(connection, HEAD_BYTES, FILES)
        if not head:
            os._exit(0)
        message, length = b"", int.from_bytes(head, "big")
        while len(message) < length:
            message += connection.recv(length - len(message))
        if os.fork() == 0:
            connection.close()
            return watched(json.loads(message), files)
        for each in files:
            os.close(each)


def watched(request: dict[str, Any], files: list[int]) -> dict[str, Any]:
    """
    Fork again, tell the process and how it ends; returns in the new one.

    It is killed where the tests have ended before it has.
    """
    *streams, status = files
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the new process has it from its beginning
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process == 0:
        for number, each in enumerate(streams):
            os.dup2(each, number)
        if request["leads"]:
            os.setsid()
        os.write(status, f"{os.getpid()}\n".encode())
        for each in files:
            os.close(each)
        return request
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for each in streams:
        os.close(each)

    def end_with_reader() -> None:
        poll = select.poll()
        poll.register(status, 0)  # that nobody reads any more is always told
        poll.poll()
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    threading.Thread(target=end_with_reader, daemon=True).start()
    _, ended = os.waitpid(process, 0)
    with suppress(BrokenPipeError):
        os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Do what an interpreter with these arguments does."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(number, "w" if number else "r", encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115 # for good
        new.reconfigure(line_buffering=name == "stderr")
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each not in ("", *sys.path)]
    arguments = request["arguments"]
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        warnings.filterwarnings(arguments[1])
        arguments = arguments[2:]
    kind, *own = arguments
    if kind == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = own
        if own[0] == "pytest":
            gc.unfreeze()  # a plugin of it asks the collector what refers to an object
        runpy.run_module(own[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path.insert(0, "")
        sys.argv = [kind, *own[1:]]
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(own[0], "<string>", "exec"), vars(main))
    else:
        sys.path.insert(0, str(Path(kind).resolve().parent))
        sys.argv = [kind, *own]
        runpy.run_path(kind, run_name="__main__")


def end(status: int) -> NoReturn:
    """
    End as an interpreter does, but without taking apart what is imported, which would take longer than most commands.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # what waits for threads
    atexit._run_exitfuncs()
    gc.collect()  # what was forgotten says so now
    try:
        sys.stdout.flush()
    except OSError:
        status = 120  # as an interpreter has it
    os._exit(status)


if __name__ == "__main__":
    del sys.path[0]  # a fresh process does not find this folder
    for module in sys.argv[2:]:
        try:
            import_module(module)
        except ImportError:
            pass  # an extra that is not installed: whoever needs it will say so
    own_request = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        become(own_request)
    except SystemExit as leaving:
        if not isinstance(leaving.code, int | None):
            raise
        end(leaving.code or 0)
    else:
        end(0)
