"""Code that a model writes: run once, its result stored and shown, and nothing of it left on the machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from minirun import InvocationContext, LlmAgent, RunConfig
from minirun.code_executors import (
    BaseCodeExecutor,
    BuiltInCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    UnsafeLocalCodeExecutor,
)
from minirun.errors import ConfigurationError, NotSupportedError, RetriesExceededError
from minirun.testing import ScriptedLlm

from ..helpers import PLACE, run_to_end, runner_for, stored_events

BLOCK = "I compute.\n```python\nprint(6 * 7)\n```\nIt is 41."


class Recording(BaseCodeExecutor):
    """Runs nothing, and says what it was told to."""

    def __init__(self, *results: CodeExecutionResult | Exception, **options: Any) -> None:
        super().__init__(**options)
        self.results = list(results)
        self.given: list[CodeExecutionInput] = []
        self.threads: list[bool] = []

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        self.threads.append(threading.current_thread() is threading.main_thread())
        self.given.append(code_execution_input)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


WORKS = CodeExecutionResult(stdout="42\n")
FAILS = CodeExecutionResult(stderr="NameError", is_error=True)


def coding(executor: BaseCodeExecutor, *script: Any, **fields: Any) -> tuple[LlmAgent, ScriptedLlm]:
    model = ScriptedLlm(list(script))
    return LlmAgent(name="a", model=model, code_executor=executor, **fields), model


# --- in a turn --------------------------------------------------------------------------------------------------------


async def test_code_in_an_answer_is_run_and_its_result_shown() -> None:
    """
    The first block is run in a thread, what the model made up after it is gone, and it is asked again with the result.
    """
    executor = Recording(WORKS)
    agent, model = coding(executor, BLOCK, "It is 42.", output_key="said")
    events, run = await run_to_end(runner_for(agent))
    assert [each.code for each in executor.given] == ["print(6 * 7)"]
    assert executor.threads == [False]
    wrote, gave, told = (event.content.parts for event in events if event.content is not None)
    assert wrote[0].text == "I compute.\n"
    assert wrote[1].executable_code is not None
    assert gave[0].code_execution_result is not None
    assert (gave[0].code_execution_result.outcome, gave[0].code_execution_result.output) == ("OUTCOME_OK", "42\n")
    assert told[0].text == "It is 42."
    assert run.answer is not None
    assert (run.answer.text, run.session.state["said"]) == ("It is 42.", "It is 42.")
    shown = "".join(part.text or "" for content in model.requests[1].contents for part in content.parts)
    assert "```tool_code\nprint(6 * 7)\n```" in shown
    assert "```tool_output\n42\n\n```" in shown
    assert "41" not in shown
    assert model.requests[1].contents[-1].role == "user"
    assert "Go on" not in shown


async def test_code_beside_an_output_schema_is_no_wrong_answer() -> None:
    """
    Only what the model says without code is checked against the form of the agent's answers.
    """
    agent, _ = coding(Recording(WORKS), BLOCK, "42", output_schema=int, output_retries=0)
    _, run = await run_to_end(runner_for(agent))
    assert run.answer is not None
    assert run.answer.output == 42


async def test_without_an_executor_code_is_text() -> None:
    """
    Nothing is run unless it is given.
    """
    events, _ = await run_to_end(runner_for(LlmAgent(name="a", model=ScriptedLlm([BLOCK]))))
    assert [event.text for event in events] == [BLOCK]


async def test_code_that_fails_is_shown_and_then_fails_the_run() -> None:
    """
    A failure is shown to the model, so many in a row as the executor allows; a success begins the count anew.
    """
    executor = Recording(FAILS, WORKS, FAILS, FAILS, error_retry_attempts=1)
    agent, _ = coding(executor, *[BLOCK] * 4)
    runner = runner_for(agent)
    with pytest.raises(RetriesExceededError, match="2 failures in a row; at last: NameError"):
        await run_to_end(runner)
    parts = [part for event in await stored_events(runner) if event.content for part in event.content.parts]
    outcomes = [part.code_execution_result.outcome for part in parts if part.code_execution_result is not None]
    assert outcomes == ["OUTCOME_FAILED", "OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_FAILED"]


async def test_code_whose_result_is_stored_is_not_run_again() -> None:
    """
    An invocation that was interrupted after its code had run is resumed with the result from the log.
    """
    executor = Recording(WORKS)
    agent, model = coding(executor, BLOCK, "It is cut off.", "It is 42.")
    runner = runner_for(agent)
    async with runner.run_async(**PLACE, new_message="go").supervised(None) as run:
        await anext(run)
        gave = await anext(run)
        assert gave.content is not None
        assert gave.content.parts[0].code_execution_result is not None
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        answer = await again.wait()
    assert answer is not None
    assert (answer.text, len(executor.given), len(model.requests)) == ("It is 42.", 1, 3)


class Hanging(BaseCodeExecutor):
    """The first code that it is given never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[CodeExecutionInput] = []

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        self.given.append(code_execution_input)
        if len(self.given) == 1:
            await trio.sleep_forever()
        return WORKS


async def test_code_that_was_cut_off_is_run_again_under_the_same_id() -> None:
    """
    Code whose result was not stored is run again when the invocation is resumed, with the same `execution_id`.
    """
    executor = Hanging()
    agent, model = coding(executor, BLOCK, "It is 42.")
    runner = runner_for(agent)
    async with runner.run_async(**PLACE, new_message="go").supervised(None) as run:
        await anext(run)
        with trio.move_on_after(0):
            await anext(run)
        await trio.testing.wait_all_tasks_blocked()
    async with runner.run_async(**PLACE, invocation_id=run.invocation_id) as again:
        await again.wait()
    first, second = executor.given
    assert first == second
    assert len(model.requests) == 2


def test_an_executor_that_would_have_no_effect_is_refused() -> None:
    """
    Settings that do nothing here, values that are none, and what providers' models do themselves, are refused by name.
    """
    for options in ({"stateful": True}, {"optimize_data_file": True}):
        with pytest.raises(NotSupportedError, match=next(iter(options))):
            Recording(**options)
    mistakes: list[dict[str, Any]] = [
        {"error_retry_attempts": -1},
        {"code_block_delimiters": [("a",)]},
        {"code_block_delimiters": []},
    ]
    for wrong in mistakes:
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Recording(**wrong)
    for size in ("timeout_seconds", "memory_bytes", "file_bytes", "output_bytes"):
        with pytest.raises(ConfigurationError, match=size):
            UnsafeLocalCodeExecutor(**{size: 0})
    with pytest.raises(ConfigurationError, match="expected code_executor to be a BaseCodeExecutor"):
        LlmAgent(name="a", code_executor=print)  # type: ignore[arg-type]
    with pytest.raises(NotSupportedError, match="comes with the models of providers"):
        BuiltInCodeExecutor()


# --- in a process -----------------------------------------------------------------------------------------------------


posix = pytest.mark.skipif(os.name != "posix", reason="needs process groups")


async def executed(code: str, **limits: Any) -> CodeExecutionResult:
    """What an executor with these limits gives for *code*."""
    found: list[CodeExecutionResult] = []

    async def logic(ctx: InvocationContext) -> None:
        executor = UnsafeLocalCodeExecutor(**limits)
        found.append(await executor.execute_code(ctx, CodeExecutionInput(code=code, execution_id="x")))

    await run_to_end(runner_for(logic))
    return found[0]


@posix
async def test_a_process_runs_the_code_and_nothing_is_left() -> None:
    """
    The code runs in an empty folder, with an empty environment and no input; the folder is gone afterwards.
    """
    code = (
        "import os, sys\n"
        "open('made', 'w').write('x')\n"
        "print(sorted(os.listdir('.')), dict(os.environ).keys() - {'LC_CTYPE', '__CF_USER_TEXT_ENCODING'})\n"
        "print(repr(sys.stdin.read()), sys.argv[1:], os.getcwd())\n"
        "print('oh', file=sys.stderr)\n"
    )
    result = await executed(code)
    first, second = result.stdout.splitlines()
    assert first == "['made'] set()"
    assert second.startswith("'' [] ")
    assert not os.path.exists(second.split()[-1])  # noqa: ASYNC240 # a look
    assert (result.stderr, result.is_error) == ("oh\n", False)


@posix
@pytest.mark.parametrize(
    ("code", "limits", "told"),
    [
        ("1 / 0", {}, "ZeroDivisionError"),
        ("import sys; sys.exit(3)", {}, ""),
        ("import os; os.kill(os.getpid(), 9)", {}, "killed by SIGKILL"),
        pytest.param(
            *("import os; os.kill(os.getpid(), 40)", {}, "killed by signal 40"),
            marks=pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs real-time signals"),
        ),
        ("x = bytearray(2**30)", {"memory_bytes": 256 * 2**20}, "MemoryError"),
        ("open('big', 'wb').write(b'x' * 2**20)", {"file_bytes": 2**16}, "File too large"),
    ],
)
async def test_code_that_fails_or_wants_too_much_is_told(code: str, limits: dict[str, Any], told: str) -> None:
    """
    An exception, an exit code, a signal and each limit are errors of the code, and say what they are.
    """
    result = await executed(code, **limits)
    assert (result.is_error, result.is_timeout) == (True, False)
    assert told in result.stderr


@posix
@pytest.mark.parametrize("name", ["timeout_seconds", "memory_bytes", "file_bytes", "output_bytes"])
@pytest.mark.parametrize("value", [0, 2**64, 1e30, 10**400, float("nan"), True])
def test_a_limit_that_no_system_takes_is_refused(name: str, value: float) -> None:
    """
    A limit is above 0 and at most what the system can count to, or no executor is made.
    """
    limits: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"expected {name} to be a number above 0 and at most"):
        UnsafeLocalCodeExecutor(**limits)


@posix
async def test_the_largest_limits_are_limits() -> None:
    """
    What is accepted as a limit runs code.
    """
    most = sys.maxsize
    result = await executed("print(1)", timeout_seconds=most, memory_bytes=most, file_bytes=most, output_bytes=most)
    assert (result.stdout, result.stderr) == ("1\n", "")


@posix
async def test_what_code_prints_is_bounded() -> None:
    """
    Of what is printed only the beginning is kept, with a word that there is more.
    """
    result = await executed("print('x' * 100_000)", output_bytes=100)
    assert result.stdout == "x" * 100 + "\n(cut off: there is more than 100 bytes)"


@posix
async def test_of_errors_the_end_is_kept() -> None:
    """
    A long traceback, or many warnings before it: what the code has failed with is the last of it. No character is cut.
    """
    result = await executed(
        "import sys\nprint('é' * 1000, file=sys.stderr)\nprint('é' * 1000)\n1 / 0", output_bytes=301
    )
    assert result.stdout == "é" * 150 + "\n(cut off: there is more than 301 bytes)"
    assert result.stderr.startswith("(cut off: there is more than 301 bytes)\né")
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "\ufffd" not in result.stdout + result.stderr


@posix
async def test_code_is_the_main_module() -> None:
    """
    Names that the code makes are found where Python looks for those of a program, and it has no others.
    """
    code = (
        "print(sorted(name for name in globals() if not name.startswith('__')))\n"
        "import pickle, typing\n"
        "class Pen:\n    color: 'Ink'\n"
        "class Ink: pass\n"
        "print(type(pickle.loads(pickle.dumps(Pen()))) is Pen, typing.get_type_hints(Pen))\n"
    )
    result = await executed(code)
    assert (result.stdout, result.stderr) == ("[]\nTrue {'color': <class '__main__.Ink'>}\n", "")


@posix
@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n    open('f', 'w').close()",
        "for name in 'ab':\n    os.mkdir(name)\n    open(name + '/f', 'w').close()\n    os.chmod(name, 0)",
        "os.mkdir('../moved-1')\nopen('../moved-2', 'w').close()\nos.makedirs('a/b/c')\nos.symlink('/', 'a/root')",
    ],
    ids=["deep", "closed", "named alike"],
)
async def test_whatever_code_has_made_is_removed(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Folders deeper than Python's stack and than any path, folders that nobody may read, and links out of the folder.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = await executed(f"import os\n{code}\nprint('made')")
    assert (result.stdout, result.stderr) == ("made\n", "")
    assert os.listdir(tmp_path) == []
    assert os.listdir("/") != []


@posix
async def test_a_program_that_ignores_its_children_is_told() -> None:
    """
    Where SIGCHLD is ignored nobody can know how a process has ended: nothing is run.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(NotSupportedError, match="ignores SIGCHLD; set it to"):
            await executed("print(1)")
    finally:
        signal.signal(signal.SIGCHLD, before)


@posix
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
async def test_children_that_code_leaves_behind_are_killed() -> None:
    """
    Code that ends while hundreds of its children work on: none of them does, when the result is there.
    """
    code = (
        "import os, time\n"
        "for _ in range(200):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        time.sleep(600)\n"
        "    print(pid)\n"
    )
    result = await executed(code)
    pids = [int(line) for line in result.stdout.splitlines()]
    assert len(pids) == 200
    await until(lambda: all(map(group_is_gone, pids)))


@posix
@pytest.mark.parametrize(
    "code",
    [
        "import os; os.remove('../out'); os.mkfifo('../out')",
        "import os; os.remove('../out'); os.symlink('/dev/zero', '../out')",
        "import shutil; shutil.rmtree('..', ignore_errors=True)",
    ],
)
async def test_code_that_replaces_its_files_changes_nothing_of_what_is_read(code: str) -> None:
    """
    What the code printed is read from the files that it was given, whatever it has put there, or removed.
    """
    result = await executed(f"print('before', flush=True)\n{code}\nprint('after')")
    assert (result.stdout, result.stderr, result.is_error) == ("before\nafter\n", "", False)


WAITING = """
import os, time
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(600)
"""


def group_is_gone(pid: int) -> bool:
    """Whether nothing of the group runs any more: killed processes are gone once init has reaped them."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.to_thread.run_sync(time.sleep, 0.001)


def begun(folder: Path) -> list[str]:
    return [each.read_text() for each in folder.glob("minirun-code-*/out") if each.read_text()]


@posix
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_the_whole_process_group_is_killed(
    how: str, mock_clock: trio.testing.MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    When time is up, and when the run is left, the process and its children are killed, and the folder is removed.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    agent, _ = coding(UnsafeLocalCodeExecutor(timeout_seconds=5), f"```python\n{WAITING}\n```", "late")
    runner = runner_for(agent)
    pids: list[int] = []
    async with runner.run_async(**PLACE, new_message="go", run_config=RunConfig(deadline_s=None)) as run:
        await anext(run)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                with trio.CancelScope() as scope:
                    nursery.start_soon(end, scope)
                    await anext(run)

            async def end(scope: trio.CancelScope) -> None:
                await until(lambda: bool(begun(tmp_path)))
                pids.extend(map(int, begun(tmp_path)[0].split()))
                if how == "timeout":
                    mock_clock.jump(6)
                else:
                    scope.cancel()

            nursery.start_soon(read)
    assert len(pids) == 2
    await until(lambda: all(map(group_is_gone, pids)))
    assert os.listdir(tmp_path) == []
    parts = [part for event in await stored_events(runner) if event.content for part in event.content.parts]
    outcomes = [part.code_execution_result.outcome for part in parts if part.code_execution_result is not None]
    assert outcomes == (["OUTCOME_DEADLINE_EXCEEDED"] if how == "timeout" else [])
