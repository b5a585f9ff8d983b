"""
README.md and the guide tell the truth: their programs run and print what they show, their lists are complete.

What the fences in them mean:

*   ```python: the blocks under one heading are one program, in their order. Each runs in an empty folder; an `await`
    outside of functions stands, as in a notebook, for code inside `trio.run`.
*   ```output: what the program under this heading prints, all of it; its blocks are read one after another.
*   ```mermaid: the same, where what is printed is a picture that readers see drawn.
*   ```python NAME.py: a file, which is written into the folder when the blocks under its heading come to it.
*   ```console: lines that begin with `$ python` are run in the folder, and what they print is what follows them.
*   Programs that ask a model at `LOCAL_MODELS` ask a server of the tests, at an address of its own.
*   Programs whose sessions are at `DATABASE` have a database of the tests; without a server they are skipped.
*   ```sh, ```text: for people. Code in ADK's own form is ```text.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import re
import shlex
from ast import literal_eval
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import click
import pytest
import trio

import minirun
from minirun import App, GetSessionConfig, InMemoryRunner, RunConfig, Runner, StreamingMode, errors
from minirun.cli._commands import cli
from minirun.tools import RetryConfig

from .. import fork_server
from ..postgres import new_database
from ..provider_servers.local import local_server
from .test_public_lists import LISTS

PACKAGE = Path(minirun.__file__).parent
PROJECT = PACKAGE.parent
README = PROJECT / "README.md"
GUIDE = PACKAGE / "docs"
INDEX = PROJECT / "examples" / "README.md"
README_LINES_MAX = 300
# What stands at the head of a chapter with programs that no file can hold as they are.
AWAIT_OUTSIDE = (
    "To run a block that has an `await` outside a function, put it into `async def main():` and call `trio.run(main)`."
)
# The kinds of blocks that a program prints.
PRINTED = ("output", "mermaid")
# Where Ollama is on a reader's machine.
LOCAL_MODELS = "http://localhost:11434"
# Where a reader's database is.
DATABASE = "postgresql://orders@db.internal/orders"
# What the server of the tests answers.
SAID = "Air scatters blue light more than red light."


class Block(NamedTuple):
    """A fenced block: its file, the kind of its fence, the heading above it, its place in the file and its text."""

    file: Path
    kind: str
    heading: str
    line: int
    text: str


class Page:
    """A text with headings and fenced blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(PROJECT).as_posix()
        self.text = path.read_text("utf-8")
        self.blocks: list[Block] = []
        self.headings: list[str] = []
        self.prose = ""
        self._read()

    def _read(self) -> None:
        heading, inside = "", None
        for number, line in enumerate(self.text.splitlines(keepends=True), 1):
            if inside is None:
                if line.startswith("```"):
                    inside, kind, start = "", line[3:].strip(), number + 1
                else:
                    self.prose += line
                    if re.match("#+ ", line):
                        heading = line.strip()
                        self.headings.append(heading)
            elif line.startswith("```"):
                self.blocks.append(Block(self.path, kind, heading, start, inside))
                inside = None
            else:
                inside += line
        assert inside is None, f"{self.name}: the block at line {start} has no end"

    @property
    def anchors(self) -> set[str]:
        """What a link can name after `#`, as GitHub makes it from the headings."""
        titles = (heading.lstrip("#").strip().lower() for heading in self.headings)
        return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}

    @property
    def code_names(self) -> set[str]:
        """The names in what is written as code: in programs, and in the prose between backquotes."""
        code = [*(block.text for block in self.blocks), *re.findall(r"`([^`]+)`", self.prose)]
        return {name for text in code for name in re.findall(r"\w+", text)}

    def section(self, heading: str) -> str:
        """What stands below *heading*, up to the next one of its level or above."""
        level = heading.partition(" ")[0]
        below = f"\n{self.text}".split(f"\n{heading}\n", 1)[1]
        return re.split(rf"\n#{{1,{len(level)}}} ", below, maxsplit=1)[0]

    def first_cells(self, heading: str) -> list[str]:
        """What the first cells of the tables below *heading* name in backquotes."""
        rows = re.findall(r"^\| (.*?) \|", self.section(heading), re.MULTILINE)
        return [name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row)]


FRONT = Page(README)
CHAPTERS = {path.stem: Page(path) for path in sorted(GUIDE.glob("*.md"))}
PAGES = [FRONT, Page(INDEX), *CHAPTERS.values()]
GUIDE_TEXT = "\n".join(page.text for page in CHAPTERS.values())
BLOCKS = [block for page in PAGES for block in page.blocks]


def programs() -> Iterator[Any]:
    for page in PAGES:
        for heading, group in itertools.groupby(page.blocks, key=lambda block: block.heading):
            blocks = [block for block in group if block.kind not in ("sh", "text")]
            if blocks:
                yield pytest.param(blocks, id=f"{page.path.stem}-{heading.strip('# ') or 'opening'}")


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block with *names*, which it adds to; its lines are those of its page in tracebacks."""
    tree = ast.increment_lineno(ast.parse(block.text), block.line - 1)
    code = compile(tree, block.file.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    waiting = builtins.eval(code, names)
    if waiting is not None:

        async def main() -> None:
            await waiting

        trio.run(main)


def run_console(block: Block, folder: Path) -> None:
    """Run the commands of a console block in *folder*; each prints exactly what stands below it."""
    for command, shown in re.findall(r"^\$ python (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        done = fork_server.run(shlex.split(command), cwd=folder)
        assert done.stdout + done.stderr == shown, f"{block.file.name}:{block.line}: python {command}"


@pytest.mark.parametrize("blocks", list(programs()))
def test_programs_print_what_is_shown(
    blocks: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under each heading, the blocks of code run in their order and print exactly what stands there as output."""
    monkeypatch.chdir(tmp_path)
    if any(DATABASE in block.text for block in blocks):
        url = new_database()
        blocks = [block._replace(text=block.text.replace(DATABASE, url)) for block in blocks]
    if any(LOCAL_MODELS in block.text for block in blocks):
        with local_server(SAID) as address:
            run_all([block._replace(text=block.text.replace(LOCAL_MODELS, address)) for block in blocks], tmp_path)
    else:
        run_all(blocks, tmp_path)
    assert capsys.readouterr().out == "".join(block.text for block in blocks if block.kind in PRINTED)


def run_all(blocks: list[Block], folder: Path) -> None:
    """Run the blocks of one program in *folder*."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        if block.kind == "python":
            run(block, names)
        elif block.kind == "console":
            run_console(block, folder)
        elif block.kind.startswith("python "):
            (folder / block.kind.removeprefix("python ")).write_text(block.text, "utf-8")


def test_the_first_program_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first program of README goes on with its session when it is run again."""
    monkeypatch.chdir(tmp_path)
    [first] = [block for block in FRONT.blocks if block.heading == "## A first program" and block.kind == "python"]
    for _ in range(2):
        run(first, {"__name__": "__main__"})
    assert capsys.readouterr().out == "greeter Hello Ada!\nHello Ada! 2\ngreeter Hello Ada!\nHello Ada! 4\n"


# --- completeness -----------------------------------------------------------------------------------------------------


def test_readme_is_short() -> None:
    """README is a front page: what is longer stands in the guide."""
    assert len(FRONT.text.splitlines()) <= README_LINES_MAX


def test_start_has_the_two_commands() -> None:
    """The section `## Start` has exactly two blocks of one shell line each, which are also what CI runs."""
    start = [block for block in FRONT.blocks if block.heading == "## Start"]
    assert [(block.kind, block.text) for block in start] == [
        (
            "sh",
            'pip install -e ".[cli]" && minirun run examples/librarian.py --db librarian.db '
            '"Which promise is about cancellation?"\n',
        ),
        ("sh", 'pip install -e ".[dev]" && pytest -n 2\n'),
    ]


def test_fences_are_of_known_kinds() -> None:
    """No block escapes the tests by a kind of its own, and each line of a console block is a command or an output."""
    kinds = {block.kind for block in BLOCKS if not re.fullmatch(r"python \w+\.py", block.kind)}
    assert kinds <= {"python", *PRINTED, "console", "sh", "text"}
    for block in BLOCKS:
        if block.kind == "console":
            assert block.text.startswith("$ python "), f"{block.file.name}:{block.line}"
            assert not re.search(r"^\$ (?!python )", block.text, re.MULTILINE), f"{block.file.name}:{block.line}"


@pytest.mark.parametrize("page", CHAPTERS.values(), ids=CHAPTERS)
def test_prose_has_short_lines(page: Page) -> None:
    """A chapter can be read in a terminal: outside of tables and blocks no line is longer than those of the code."""
    assert [line for line in page.prose.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def has_await_outside(block: Block) -> bool:
    """Whether a program needs something around it to be run."""
    try:
        compile(block.text, block.file.name, "exec")
    except SyntaxError:
        return True
    return False


@pytest.mark.parametrize("page", CHAPTERS.values(), ids=CHAPTERS)
def test_a_chapter_says_how_its_programs_are_run(page: Page) -> None:
    """A chapter has the note about `await` outside of functions at its head if, and only if, a program needs it."""
    needed = any(block.kind == "python" and has_await_outside(block) for block in page.blocks)
    head = " ".join(page.text.partition("\n## ")[0].split())
    assert (AWAIT_OUTSIDE in head) == needed


def links() -> Iterator[Any]:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.prose):
            if not re.match("https?://", target):
                yield pytest.param(page, target, id=f"{page.path.stem}-{target}")


@pytest.mark.parametrize(("page", "target"), list(links()))
def test_links_lead_somewhere(page: Page, target: str) -> None:
    """Every link names a file that is there, and a heading that is in it."""
    name, _, anchor = target.partition("#")
    path = (page.path.parent / name).resolve() if name else page.path
    assert path.exists()
    if anchor:
        assert anchor in Page(path).anchors


def test_every_chapter_has_one_title_and_is_linked_from_the_front_page() -> None:
    """A chapter is found from README, and begins with its only first-level heading."""
    linked = set(re.findall(r"\]\(minirun/docs/(\w+)\.md\)", FRONT.text))
    assert linked == set(CHAPTERS)
    for page in CHAPTERS.values():
        assert [heading for heading in page.headings if heading.startswith("# ")] == page.headings[:1], page.name


def test_every_promise_is_told_once_and_by_name() -> None:
    """P1 to P12 stand in their order, in full in their chapter and in one line each in README."""
    expected = [str(number) for number in range(1, 13)]
    chapter = CHAPTERS["promises"].section("# Promises")
    assert re.findall(r"^\*\*P(\d+) [a-z0-9 =()]+\.\*\* ", chapter, re.MULTILINE) == expected
    assert re.findall(r"^\* \*\*P(\d+) [a-z0-9 =()]+\.\*\* .*\.$", FRONT.section("## Promises"), re.M) == expected


@pytest.mark.parametrize("page", [FRONT, CHAPTERS["promises"]], ids=["front", "chapter"])
def test_the_promise_about_cancellation_is_found_by_these_words(page: Page) -> None:
    """The first command's question has its answer in the line that begins P5."""
    [line] = [line for line in page.text.splitlines() if re.match(r"(\* )?\*\*P5 ", line)]
    assert {"promise", "cancellation"} <= set(re.findall(r"\w+", line))


def test_every_field_of_run_config_is_explained() -> None:
    """The table of settings has all fields of RunConfig, with their defaults, and no other."""
    page = CHAPTERS["embedding"]
    assert page.first_cells("## Settings of a run") == [field.name for field in attrs.fields(RunConfig)]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page.section("## Settings of a run"), re.MULTILINE))
    names = {"StreamingMode": StreamingMode}
    assert {name: eval(default, names) for name, default in rows.items()} == {
        field.name: getattr(RunConfig(), field.name) for field in attrs.fields(RunConfig)
    }


def test_the_defaults_that_are_told_elsewhere_hold() -> None:
    """The promises and the chapter about tools name the defaults of budgets, threads and retries as they are."""
    promises = CHAPTERS["promises"].section("# Promises")
    told = {name: float(number) for name, number in re.findall(r"`(\w+)=([\d.]+)`", promises)}
    budgets = ("max_llm_calls", "max_tool_calls", "max_transfers", "max_node_runs", "deadline_s")
    assert told == {name: getattr(RunConfig(), name) for name in budgets}
    assert RunConfig().max_tokens == 0
    assert f"`thread_grace_s` seconds ({RunConfig().thread_grace_s:g} by default)" in " ".join(promises.split())
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", CHAPTERS["tools"].text, re.MULTILINE))
    assert {name: literal_eval(default) for name, default in rows.items()} == attrs.asdict(RetryConfig())


def test_every_field_of_get_session_config_is_named() -> None:
    """What can be said about the events of a session is shown as a call with all fields."""
    fields = ", ".join(field.name for field in attrs.fields(GetSessionConfig))
    assert f"`GetSessionConfig({fields})`" in GUIDE_TEXT


def test_every_error_is_explained() -> None:
    """The table of errors has every exception that minirun raises on purpose."""
    assert sorted(CHAPTERS["errors"].first_cells("# Errors")) == sorted(errors.__all__)


def test_examples_are_all_in_the_index() -> None:
    """The index links every example, and nothing else."""
    listed = re.findall(r"\]\((\w+\.(?:py|ipynb))\)", INDEX.read_text("utf-8"))
    files = {path.name for path in INDEX.parent.iterdir() if path.suffix in (".py", ".ipynb")} - {"__init__.py"}
    assert set(listed) == files


# Names that the guide does not explain, by their reasons.
UNEXPLAINED = {
    "what only services of one's own meet, and their docstrings explain": (
        "ArtifactKey Chunks CredentialKey Description LiveSession Memory OpenCall Pending Stored"
    ),
    "what passes between the rooms of the runtime": "Program RunRequest Services",
    "what only an Env of one's own meets": "HostThread derived_id",
}


def public_names() -> Iterator[tuple[str, str]]:
    """The names of all public lists, each with its package."""
    modules = [f"minirun.{path.stem}" for path in PACKAGE.glob("[a-z]*.py")]
    packages = [f"minirun.{path.parent.name}" for path in PACKAGE.glob("[a-z]*/__init__.py")]
    for module in sorted({*LISTS, *modules, *packages}):
        for name in getattr(import_module(module), "__all__", ()):  # minirun.flows lists nothing
            yield module, name


def test_every_public_name_is_in_the_guide_or_has_a_reason() -> None:
    """What a package lists is named as code in a chapter, or stands in `UNEXPLAINED`, which has no other names."""
    explained = set().union(*(page.code_names for page in CHAPTERS.values()))
    unexplained = {name for names in UNEXPLAINED.values() for name in names.split()}
    public = {name: module for module, name in public_names()}
    assert {name: module for name, module in public.items() if name not in explained | unexplained} == {}
    assert unexplained - public.keys() == set()


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The commands of the command line, each with all its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")
    else:
        yield path, command


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=each[0]) for each in commands(cli, "minirun")])
def test_every_command_is_in_its_chapter_with_its_options(path: str, command: click.Command) -> None:
    """The section of a command, or of its group, has the command with all its words, and each of its options."""
    page = CHAPTERS["scripts"]
    [heading] = [each for each in page.headings if each == f"### `{' '.join(path.split()[:2])}`"]
    section = page.section(heading)
    assert path in section, f"{path} is not below {heading}"
    for option in command.params:
        for name in option.opts if isinstance(option, click.Option) else ():
            assert re.search(rf"{name}(?![\w-])", section), f"{path}: {name} is not below {heading}"


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
        "node": None,
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
    assert len(inspect.signature(Runner).parameters) == 13
    assert "app_name" not in [name for name, default in keywords(InMemoryRunner).items() if default is ...]


def test_the_signatures_of_running_hold() -> None:
    """run_async, run and run_debug take what is documented."""
    place = {"user_id": ..., "session_id": ..., "new_message": None}
    run_async = {
        **place,
        "invocation_id": None,
        "run_config": None,
        "state_delta": None,
        "deps": None,
        "yield_user_message": False,
    }
    assert keywords(Runner.run_async) == run_async
    assert keywords(Runner.run) == {
        **place,
        "invocation_id": None,
        "run_config": None,
        "state_delta": None,
        "deps": None,
    }
    assert keywords(Runner.run_debug) == {
        "user_id": "debug_user_id",
        "session_id": "debug_session_id",
        "run_config": None,
        "deps": None,
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
        "max_node_runs": 1000,
        "max_tokens": 0,
        "budget": None,
        "deadline_s": 3600.0,
        "thread_grace_s": 10.0,
        "custom_metadata": None,
        "get_session_config": None,
        "on_busy": "wait",
        "partial_buffer": 16,
        "live": None,
    }
    assert keywords(RunConfig) == expected
    assert attrs.asdict(RunConfig()) == {**expected, "custom_metadata": {}}
    assert list(inspect.signature(App).parameters)[:2] == ["name", "root_agent"]
