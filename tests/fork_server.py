"""
Processes that were forked from one which has imported what they need: 10 ms each, instead of a second.

What a process of these tests is: a Python program or command, a process of its own, with its own streams, signals,
folder, environment and exit status, which ends as any other does. What it differs in from a fresh one is only what is
imported already, and what an interpreter reads when it starts (PYTHONHASHSEED, PYTHONUTF8, site-packages); a test of
these, or of the beginning itself, starts a real one.

*   `start` and `run` take what `subprocess` takes, of a Python interpreter.
*   `relay` is a command that stands for such a process, for whoever takes commands only. It starts in some 20 ms.
*   `program` is what these take, for a program of the tests, in which a warning is an error.

This file is both sides. As a script it is the server: it has a listening socket as its argument, and the modules to
import. Who connects to it sends a request with three files, standard input, output and error; and reads which process
that has become, which one keeps it, and how it has ended. Where nobody reads that any more, the process is killed.
"""

from __future__ import annotations

import atexit
import gc
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
import types
import warnings
from ast import literal_eval
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

__all__ = ["BARE", "MINIRUN", "NOT_REWRITTEN", "PYTEST", "Process", "program", "relay", "run", "start"]

ROOT = Path(__file__).parents[1]

# What minirun and its tests import of others; for processes that import minirun from somewhere else.
BARE = (
    "asyncio attrs cattrs.preconf click concurrent.futures email.message http.server logging sqlite3 ssl uuid "
    "rich.console rich.progress rich.table rich.text trio trio.testing unittest.mock urllib.request "
    "httpx2 hypothesis mcp psycopg pytest"
)
# And minirun, and programs of the tests.
MINIRUN = BARE.replace("hypothesis ", "").replace(" pytest", "") + (
    " tests.warmed examples.librarian tests.forking tests.kills tests.mcp_kills tests.mcp_served"
    " tests.mcp_servers.desk tests.mcp_servers.hostile tests.mcp_servers.kinds tests.mcp_servers.older tests.mortals"
    " tests.processes tests.signing_in tests.mutating tests.control_worlds tests.live_worlds tests.mcp_worlds"
    " tests.oauth_worlds"
)
# For processes that are pytest. It says of what has a plugin that it cannot be rewritten any more; NOT_REWRITTEN are
# arguments with which it does not. What has plugins of ours, and is looked at, is imported by each.
PYTEST = (
    "asyncio attrs cattrs.preconf difflib hypothesis.strategies pytest _pytest.debugging pytest_trio.plugin sqlite3"
    " trio trio.testing unittest.mock"
    " minirun minirun.simulation._pytest minirun.simulation._explore"
    " minirun.simulation._processes minirun.simulation._report minirun.simulation._watchdog minirun.testing"
)
NOT_REWRITTEN = ("-W", "ignore::pytest.PytestAssertRewriteWarning")

# As long as nothing is wrong, a process of a test ends at once.
PATIENCE_S = 120
HEAD_BYTES = 8
STREAMS = 3

# Gives its standard files to a process, and ends as it does.
RELAY = """
import _socket, os, sys
path, *arguments = sys.argv[1:]
asked = ascii({"arguments": arguments, "cwd": os.getcwd(), "env": dict(os.environ), "leads": False}).encode()
there = _socket.socket(_socket.AF_UNIX)
there.connect(path)
files = b"".join(each.to_bytes(4, sys.byteorder) for each in range(3))
there.sendmsg([len(asked).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
there.sendall(asked)
said = b""
while more := there.recv(64):
    said += more
sys.exit(int(said.split()[-1]))
"""


# --- the tests' side --------------------------------------------------------------------------------------------------


class Process:
    """A process that was forked, with text streams; what it has in common with `subprocess.Popen` is called alike."""

    def __init__(self, request: dict[str, Any], modules: str, *, merged: bool, errors: int | None) -> None:
        self.args = request["arguments"]
        self.returncode: int | None = None
        self._read: dict[str, str] = {}
        reading, writing = os.pipe()
        output, written = os.pipe()
        heard, told = -1, written if merged else errors
        if told is None:
            heard, told = os.pipe()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server(modules))
        asked = ascii(request).encode()
        socket.send_fds(self._connection, [len(asked).to_bytes(HEAD_BYTES, "big")], [reading, written, told])
        self._connection.sendall(asked)
        for each in {reading, written, told} - {errors}:
            os.close(each)
        self.stdin: TextIO = os.fdopen(writing, "w", encoding="utf-8")
        self.stdout: TextIO = os.fdopen(output, encoding="utf-8", errors="replace")
        self.stderr: TextIO | None = None if heard < 0 else os.fdopen(heard, encoding="utf-8", errors="replace")
        self.pid, self.keeper = map(int, self._told().split())

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def _told(self) -> bytes:
        """The next line about the process."""
        line = b""
        while not line.endswith(b"\n"):
            more = self._connection.recv(1)
            assert more, "the fork server has died"
            line += more
        return line

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = PATIENCE_S) -> int:
        """Wait for the end, and return the exit status."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        self.returncode = int(self._told())
        self._connection.close()

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
def _server(modules: str) -> str:
    """The path of a server's socket."""
    from tests.trust import keep  # pytest's process alone has it, and the server is run as a file

    folder = tempfile.mkdtemp(prefix="mr-fork-")  # short: the path of a socket has at most 107 bytes
    path = os.path.join(folder, "s")
    command = [sys.executable, __file__]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        server = subprocess.Popen(
            [*command, str(listener.fileno()), *modules.split()], pass_fds=[listener.fileno()], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    keep(server.pid)

    atexit.register(server.communicate)  # it ends, and removes its folder
    return path


def program(what: str, *arguments: object) -> list[str]:
    """What `start`, `run` and `relay` take for a module by name, or a program as text; a warning is an error."""
    return ["-W", "error", "-c" if "\n" in what else "-m", what, *map(str, arguments)]


def relay(arguments: Sequence[str], *, modules: str = MINIRUN) -> list[str]:
    """A command that stands for `python ARGUMENTS...`, with its folder, environment and streams."""
    return [sys.executable, "-S", "-E", "-c", RELAY, _server(modules), *arguments]


def start(
    arguments: Sequence[str],
    *,
    cwd: Path | str = ROOT,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
    merged: bool = False,
    errors: int | None = None,
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
        errors: A file descriptor that its errors go to.
        modules: What it finds imported.
    """
    environment = dict(os.environ if env is None else env)
    request = {"arguments": [*arguments], "cwd": str(cwd), "env": environment, "leads": start_new_session}
    return Process(request, modules, merged=merged, errors=errors)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | str = ROOT,
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


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for whoever connects; returns in the process that is to do what is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that watch
    gc.collect()
    gc.freeze()  # what is there is no garbage: no process needs to look through it
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:  # whoever has started it is gone
            shutil.rmtree(Path(listener.getsockname()).parent, ignore_errors=True)
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return watched(connection)
        connection.close()


def asked_on(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request, and its files."""
    head, files, *_ = socket.recv_fds(connection, HEAD_BYTES, STREAMS)
    message, length = b"", int.from_bytes(head, "big")
    while len(message) < length:
        more = connection.recv(length - len(message))
        if not more:  # who has asked was killed meanwhile
            os._exit(0)
        message += more
    if not files:
        os._exit(0)
    request: dict[str, Any] = literal_eval(message.decode())
    return request, files


def watched(connection: socket.socket) -> dict[str, Any]:
    """
    Fork again, tell the process and how it ends; returns in the new one.

    It is killed where nobody is there any more who would hear that.
    """
    request, streams = asked_on(connection)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the new process has it from its beginning
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process == 0:
        if request["leads"]:
            os.setsid()
        connection.sendall(f"{os.getpid()} {os.getppid()}\n".encode())
        connection.close()
        for number, each in enumerate(streams):
            os.dup2(each, number)
        for each in streams:
            os.close(each)
        return request
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for each in (0, *streams):
        os.close(each)

    def end_with_reader() -> None:
        poll = select.poll()
        poll.register(connection, 0)  # that nobody reads any more is always told
        poll.poll()
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    threading.Thread(target=end_with_reader, daemon=True).start()
    _, ended = os.waitpid(process, 0)
    with suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(ended)}\n".encode())
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
        if not hasattr(sys.modules.get(own[0]), "__path__"):
            sys.modules.pop(own[0], None)  # it is to be `__main__`
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
    collect, output, leave = gc.collect, sys.stdout, os._exit
    vars(sys.modules["__main__"]).clear()  # which may be this file's
    collect()  # what was forgotten says so now
    try:
        output.flush()
    except OSError:
        status = 120  # as an interpreter has it
    leave(status)


def main() -> int:
    """Be the server, and then a process of it; return with what that ends."""
    del sys.path[0]  # a fresh process does not find this folder
    sys.path.insert(0, str(ROOT))
    for module in sys.argv[2:]:
        try:
            import_module(module)
        except ImportError:
            pass  # an extra that is not installed: whoever needs it will say so
    sys.path.remove(str(ROOT))
    try:
        become(serve(socket.socket(fileno=int(sys.argv[1]))))
    except SystemExit as leaving:
        if not isinstance(leaving.code, int | None):
            raise
        return leaving.code or 0
    return 0


if __name__ == "__main__":
    end(main())
