"""The README says what is true: its code runs, its commands are where CI looks for them, its lists are complete."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from minirun import GetSessionConfig, RunConfig, Runner

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for kind, code in BLOCKS if kind == "python"]

# The beginning of each python block's output, in their order.
PRINTED = [
    "greeter Hello Ada!\nHello Ada! 2\n",
    "one completed\nbot two\n",
    "user > go\ncountdown > 2 ...\ncountdown > 1 ...\nuser > go\necho > go\n",
    "",
    "bot hello\n",
    "Hello!\nHello!\nHello!\n",
    "chat -> Hi!\n",
    "{'step': 'ship', 'user:visits': 1} 2\n",
    "a\nuser > Hi\nchat > b\nuser > What is my name?\nchat > c\n2\n",
]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_every_python_block_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    """Each block is a program; it ends well, without a warning, and prints what the README implies."""
    program = [sys.executable, "-W", "error", "-c", PYTHON[number]]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == PRINTED[number]


def test_the_section_start_has_exactly_two_commands() -> None:
    """`## Start` has two code blocks of one shell line each: one to try minirun, one to test it."""
    start = README.partition("\n## Start\n")[2].partition("\n## ")[0]
    assert re.findall(r"^```\w*\n(.*?)^```$", start, re.MULTILINE | re.DOTALL) == [
        'pip install -e ".[cli]" && minirun run examples/librarian.py --db librarian.db '
        '"Which promise is about cancellation?"\n',
        'pip install -e ".[dev]" && pytest\n',
    ]


def test_every_promise_and_every_setting_is_named() -> None:
    """The README names P1 to P12, and each field of RunConfig and GetSessionConfig."""
    for number in range(1, 13):
        assert re.search(rf"^\*\*P{number} ", README, re.MULTILINE), f"P{number} is missing"
    for field in (*attrs.fields(RunConfig), *attrs.fields(GetSessionConfig)):
        assert field.name in README


def test_the_signatures_are_the_documented_ones() -> None:
    """Runner, run_async and run_debug take what the ADK documents say, by the same names and defaults."""

    def options(function: object) -> dict[str, object]:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # it is callable
        return {p.name: p.default for p in parameters if p.name != "self"}

    empty = inspect.Parameter.empty
    assert options(Runner) == {
        "app": None,
        "app_name": None,
        "agent": None,
        "session_service": empty,
        "artifact_service": None,
        "memory_service": None,
        "credential_service": None,
        "plugin_close_timeout": 5.0,
        "auto_create_session": False,
        "env": None,
    }
    assert options(Runner.run_async) == {
        "user_id": empty,
        "session_id": empty,
        "new_message": None,
        "invocation_id": None,
        "run_config": None,
        "state_delta": None,
        "yield_user_message": False,
    }
    assert options(Runner.run_debug) == {
        "user_messages": empty,
        "user_id": "debug_user_id",
        "session_id": "debug_session_id",
        "run_config": None,
        "quiet": False,
        "verbose": False,
    }
