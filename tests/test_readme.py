"""
README.md tells the truth: its programs run and print what it shows, its lists are complete, its signatures hold.

What the fences in README mean:

*   ```python: the blocks under one heading are one program, in their order. Each runs in an empty folder; an `await`
    outside of functions stands, as in a notebook, for code inside `trio.run`.
*   ```output: what the program under this heading prints, all of it; its blocks are read one after another.
*   ```sh, ```text: for people. Code in ADK's own form is ```text.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest
import trio

import minirun
from minirun import App, GetSessionConfig, InMemoryRunner, RunConfig, Runner, StreamingMode, errors

README = Path(minirun.__file__).parent.parent / "README.md"
TEXT = README.read_text("utf-8")


class Block(NamedTuple):
    """A fenced block: the kind of its fence, the heading above it, its place in the file and its text."""

    kind: str
    heading: str
    line: int
    text: str


def blocks_of(text: str) -> Iterator[Block]:
    heading, inside = "", None
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if inside is None:
            if line.startswith("```"):
                inside, kind, start = "", line[3:].strip(), number + 1
            elif line.startswith("#"):
                heading = line.strip()
        elif line.startswith("```"):
            yield Block(kind, heading, start, inside)
            inside = None
        else:
            inside += line
    assert inside is None, f"the block at line {start} has no end"


BLOCKS = list(blocks_of(TEXT))


def programs() -> Iterator[Any]:
    for heading, group in itertools.groupby(BLOCKS, key=lambda block: block.heading):
        blocks = [block for block in group if block.kind in ("python", "output")]
        if blocks:
            yield pytest.param(blocks, id=heading.strip("# ") or "opening")


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block with *names*, which it adds to; its lines are those of README in tracebacks."""
    tree = ast.increment_lineno(ast.parse(block.text), block.line - 1)
    code = compile(tree, README.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    waiting = builtins.eval(code, names)
    if waiting is not None:

        async def main() -> None:
            await waiting

        trio.run(main)


@pytest.mark.parametrize("blocks", list(programs()))
def test_programs_print_what_is_shown(
    blocks: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under each heading, the blocks of code run in their order and print exactly what stands there as output."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block.kind == "python":
            run(block, names)
    assert capsys.readouterr().out == "".join(block.text for block in blocks if block.kind == "output")


# --- completeness -----------------------------------------------------------------------------------------------------


def test_start_has_the_two_commands() -> None:
    """The section `## Start` has exactly two blocks of one shell line each, which are also what CI runs."""
    start = [block for block in BLOCKS if block.heading == "## Start"]
    assert [(block.kind, block.text) for block in start] == [
        (
            "sh",
            'pip install -e ".[cli]" && minirun run examples/librarian.py --db librarian.db '
            '"Which promise is about cancellation?"\n',
        ),
        ("sh", 'pip install -e ".[dev]" && pytest -n 2\n'),
    ]


def test_fences_are_of_known_kinds() -> None:
    """No block escapes the tests by a kind of its own."""
    assert {block.kind for block in BLOCKS} <= {"python", "output", "sh", "text"}


def section(heading: str) -> str:
    """What stands below *heading*, up to the next one of its level or above."""
    level = heading.partition(" ")[0]
    below = TEXT.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"\n#{{1,{len(level)}}} ", below, maxsplit=1)[0]


def test_every_promise_is_told_once_and_by_name() -> None:
    """P1 to P12 stand in their order, each at the beginning of a paragraph."""
    found = re.findall(r"^\*\*P(\d+) [a-z0-9 =()]+\.\*\* ", section("## Promises"), re.MULTILINE)
    assert found == [str(number) for number in range(1, 13)]


def test_the_promise_about_cancellation_is_found_by_these_words() -> None:
    """The first command's question has its answer in the line that begins P5."""
    [line] = [line for line in TEXT.splitlines() if line.startswith("**P5 ")]
    assert {"promise", "cancellation"} <= set(re.findall(r"\w+", line))


def first_cells(heading: str) -> list[str]:
    """What the first cells of the tables below *heading* name in backquotes."""
    rows = re.findall(r"^\| (.*?) \|", section(heading), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row)]


def test_every_field_of_run_config_is_explained() -> None:
    """The table of settings has all fields of RunConfig, with their defaults, and no other."""
    assert first_cells("### Settings of a run") == [field.name for field in attrs.fields(RunConfig)]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section("### Settings of a run"), re.MULTILINE))
    names = {"StreamingMode": StreamingMode}
    assert {name: eval(default, names) for name, default in rows.items()} == {
        field.name: getattr(RunConfig(), field.name) for field in attrs.fields(RunConfig)
    }


def test_every_field_of_get_session_config_is_named() -> None:
    """What can be said about the events of a session is shown as a call with all fields."""
    fields = ", ".join(field.name for field in attrs.fields(GetSessionConfig))
    assert f"`GetSessionConfig({fields})`" in TEXT


def test_every_error_is_explained() -> None:
    """The table of errors has every exception that minirun raises on purpose."""
    assert sorted(first_cells("## Errors")) == sorted(errors.__all__)


def test_examples_are_all_mentioned() -> None:
    """Every example is linked from README, and every link to one leads somewhere."""
    links = set(re.findall(r"\]\(examples/(\w+\.py)\)", TEXT))
    assert links == {path.name for path in (README.parent / "examples").glob("*.py")}


# --- signatures -------------------------------------------------------------------------------------------------------


def keywords(function: Any) -> dict[str, object]:
    """The keyword-only parameters of a function with their defaults; `...` for those that must be given."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: ... if each.default is each.empty else each.default
        for each in parameters
        if each.kind is each.KEYWORD_ONLY
    }


def test_the_signature_of_runner_holds() -> None:
    """Runner is made with keywords, as documented."""
    assert keywords(Runner) == {
        "app": None,
        "app_name": None,
        "agent": None,
        "plugins": None,
        "session_service": ...,
        "artifact_service": None,
        "memory_service": None,
        "credential_service": None,
        "cleanup_timeout_s": None,
        "plugin_close_timeout": None,
        "auto_create_session": False,
        "env": None,
    }
    assert len(inspect.signature(Runner).parameters) == 12
    assert "app_name" not in [name for name, default in keywords(InMemoryRunner).items() if default is ...]


def test_the_signatures_of_running_hold() -> None:
    """run_async, run and run_debug take what is documented."""
    place = {"user_id": ..., "session_id": ..., "new_message": None}
    run_async = {
        **place,
        "invocation_id": None,
        "run_config": None,
        "state_delta": None,
        "yield_user_message": False,
    }
    assert keywords(Runner.run_async) == run_async
    assert keywords(Runner.run) == {**place, "invocation_id": None, "run_config": None, "state_delta": None}
    assert keywords(Runner.run_debug) == {
        "user_id": "debug_user_id",
        "session_id": "debug_session_id",
        "run_config": None,
        "quiet": False,
        "verbose": False,
    }
    [_, messages, *_] = inspect.signature(Runner.run_debug).parameters.values()
    assert (messages.kind, messages.default) == (messages.POSITIONAL_OR_KEYWORD, messages.empty)


def test_the_fields_of_run_config_hold() -> None:
    """RunConfig has the documented fields and defaults, all by keyword, and the same for itself and its __init__."""
    expected = {
        "streaming_mode": StreamingMode.NONE,
        "max_llm_calls": 500,
        "max_tool_calls": 1000,
        "max_transfers": 50,
        "max_tokens": 0,
        "deadline_s": 3600.0,
        "thread_grace_s": 10.0,
        "custom_metadata": None,
        "get_session_config": None,
        "on_busy": "wait",
        "partial_buffer": 16,
    }
    assert keywords(RunConfig) == expected
    assert attrs.asdict(RunConfig()) == {**expected, "custom_metadata": {}}
    assert list(inspect.signature(App).parameters)[:2] == ["name", "root_agent"]
