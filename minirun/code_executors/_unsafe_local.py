"""
Code in a process of its own, on this machine.

This is no sandbox. The process has the rights of the program: it may read its files, reach its network, and start
others that outlive it. What there is keeps accidents small:

* limits of the operating system on processor time, memory and the size of files, and a limit on the time on the wall
* an empty environment, an empty temporary folder to work in, no input, and a bounded part of its output
* all of its process group is killed at the end, however that comes, also when the run is cancelled
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import trio

from .._json import brief, finite
from ..errors import ConfigurationError, NotSupportedError
from ..runtime import InvocationContext
from ._base import BaseCodeExecutor, CodeExecutionInput, CodeExecutionResult

__all__ = ["UnsafeLocalCodeExecutor"]

_decoder = getincrementaldecoder("utf-8")  # leaves out a character that is not complete

# The child sets its own limits, before it knows the code: hard ones, which it cannot raise again. A function between
# fork and exec could do so, too, but is not safe in a program with threads.
# The code is run in the module `__main__`, where pickles and annotations look for its names, and nothing else is there.
BEGIN = """\
def begin():
    import resource, sys
    for name, value in zip(("RLIMIT_CPU", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CORE"), map(int, sys.argv[1:])):
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (OSError, ValueError):
            pass
    sys.argv[1:] = []
    del sys.modules["__main__"].begin
    return compile(sys.stdin.buffer.read().decode(), "<code>", "exec", dont_inherit=True)
exec(begin())
"""


class UnsafeLocalCodeExecutor(BaseCodeExecutor):
    """
    Runs Python code in a process of its own, on this machine. It is no sandbox: see the module.

    Give it only to agents whose model, and all that it reads, you trust with the rights of your program.

    Args:
        timeout_seconds: How long code may take, on the wall; its processor time has the same limit.
        memory_bytes: How much memory the process may have.
        file_bytes: How large a file may become that it writes.
        output_bytes: How much of what it prints the model is shown, of each stream: the beginning, and of its errors
            the end.
        options: As for `BaseCodeExecutor`.

    Raises:
        ConfigurationError: A value is out of its range.
        NotSupportedError: The machine has no process groups and resource limits (it is no POSIX system); or, when code
            is to be run, the program ignores SIGCHLD.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float = 10.0,
        memory_bytes: int = 512 * 2**20,
        file_bytes: int = 16 * 2**20,
        output_bytes: int = 16 * 2**10,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if os.name != "posix":
            raise NotSupportedError("UnsafeLocalCodeExecutor needs a POSIX system, for limits and process groups")
        limits = {
            "timeout_seconds": timeout_seconds,
            "memory_bytes": memory_bytes,
            "file_bytes": file_bytes,
            "output_bytes": output_bytes,
        }
        for name, value in limits.items():
            found = finite(value)
            if found is None or found <= 0 or value > sys.maxsize:  # more is no limit that a system takes
                msg = f"expected {name} to be a number above 0 and at most {sys.maxsize}, found {brief(value)}"
                raise ConfigurationError(msg)
        self.timeout_seconds = timeout_seconds
        self.memory_bytes = memory_bytes
        self.file_bytes = file_bytes
        self.output_bytes = output_bytes

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        """Run the code in a fresh process; when this returns or raises, its process group is gone."""
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            msg = "UnsafeLocalCodeExecutor has to know when its processes end, and this program ignores SIGCHLD"
            raise NotSupportedError(f"{msg}; set it to signal.SIG_DFL")
        blocking = invocation_context._invocation.env.run_sync
        folder = await blocking(partial(tempfile.mkdtemp, prefix="minirun-code-"))
        try:
            return await self._executed(Path(folder), code_execution_input.code)
        finally:
            with trio.CancelScope(shield=True):
                await blocking(partial(_remove, folder))

    async def _executed(self, folder: Path, code: str) -> CodeExecutionResult:
        work = folder / "work"
        work.mkdir()
        (folder / "code").write_text(code, "utf-8", errors="replace")
        limits = (math.ceil(self.timeout_seconds), self.memory_bytes, self.file_bytes, 0)
        command = [sys.executable, "-I", "-c", BEGIN, *(str(int(limit)) for limit in limits)]
        # What it has printed is read from these very files: the code may have put anything else in their places.
        with (
            (folder / "code").open("rb") as source,
            (folder / "out").open("w+b") as stdout,
            (folder / "err").open("w+b") as stderr,
        ):
            process = subprocess.Popen(  # noqa: ASYNC220 # trio's own reaps it, and then nobody knows whose group it is
                command, stdin=source, stdout=stdout, stderr=stderr, cwd=work, env={}, start_new_session=True
            )
            is_timeout = True
            try:
                with trio.move_on_after(self.timeout_seconds):
                    await _ended(process)
                    is_timeout = False
            finally:
                _kill_group(process)
            text = ""
            if is_timeout:
                text = f"it took longer than {self.timeout_seconds} seconds, and was killed"
            elif process.returncode < 0:
                text = f"it was killed by {_signal_name(-process.returncode)}"
            return CodeExecutionResult(
                stdout=self._beginning(stdout),
                stderr="\n".join(filter(None, [self._end(stderr), text])),
                is_error=is_timeout or process.returncode != 0,
                is_timeout=is_timeout,
            )

    def _beginning(self, file: IO[bytes]) -> str:
        limit, size = int(self.output_bytes), os.fstat(file.fileno()).st_size
        data = os.pread(file.fileno(), min(limit, size), 0)  # its place in the file is the process's, too
        if size <= limit:
            return data.decode("utf-8", "replace")
        return f"{_decoder('replace').decode(data)}\n(cut off: there is more than {limit} bytes)"

    def _end(self, file: IO[bytes]) -> str:
        """Of errors the end says what has happened."""
        limit, size = int(self.output_bytes), os.fstat(file.fileno()).st_size
        if size <= limit:
            return self._beginning(file)
        data = os.pread(file.fileno(), limit, size - limit)
        begin = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)  # of a character
        return f"(cut off: there is more than {limit} bytes)\n{data[begin:].decode('utf-8', 'replace')}"


def _remove(folder: str) -> None:
    """
    Remove a folder, as far as that can be done.

    The code may have made folders in each other that are deeper than a path can be, or closed to everybody. So they are
    opened, and moved up, before it is looked into them.
    """
    with suppress(OSError):
        os.chmod(folder, 0o700)
    folders = [folder]
    for each in folders:
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(each)
        for name in names:
            path = f"{each}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                folders.append(_moved_up(path, f"{folder}/moved-{len(folders)}"))
            else:
                with suppress(OSError):
                    os.unlink(path)
    for each in reversed(folders):
        with suppress(OSError):
            os.rmdir(each)


def _moved_up(path: str, target: str) -> str:
    try:
        os.chmod(path, 0o700)
        os.rename(path, target)
    except OSError:  # there is something of this name
        return path
    return target


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended, and leave it there: as long as nobody reaps it, its group keeps its number."""
    wait = partial(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # Abandoned when it is cancelled; the thread ends at once, because the process is killed then.
    await trio.to_thread.run_sync(wait, abandon_on_cancel=True)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of it, and reap it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:  # macOS, where only the ended one is left
        pass
    process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time ones have none
        return f"signal {number}"
