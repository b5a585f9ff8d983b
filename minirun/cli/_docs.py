"""`minirun docs`: the guide, which is part of the package, listed, shown and searched."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

import click
from rich.console import Console
from rich.markdown import Markdown

from ._show import write

__all__ = ["docs"]

HITS_MAX = 10
LINES_OF_A_HIT = 3
FOR_MAINTAINERS = "design"

# A program that only imports a name says nothing about it.
IMPORTS = re.compile(r"^(import|from \S+ import) .*\n", re.MULTILINE)


class _Chapter(NamedTuple):
    """A chapter: its name, which is that of its file, and its text."""

    name: str
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].lstrip("# ")


class _Section(NamedTuple):
    """What stands below one heading, up to the next one."""

    chapter: str
    heading: str
    line: int
    text: str


@click.command()
@click.argument("words", nargs=-1, metavar="[TOPIC | WORDS]...")
def docs(words: tuple[str, ...]) -> None:
    """
    Show the guide: its chapters, the one that TOPIC names, or the sections that have all WORDS.

    Exits with 1 if no section has them.
    """
    words = tuple(" ".join(words).split())  # quoted or not, they are words
    chapters = list(_chapters())
    console = Console()
    if not words:
        for chapter in chapters:
            write(console, f"{chapter.name:20}{chapter.title}")
        hint = "`minirun docs TOPIC` shows a chapter, `minirun docs WORDS` searches all of them"
        write(Console(stderr=True), hint, "dim")
        return
    topic = _plain(" ".join(words))
    for chapter in chapters:
        if topic in (_plain(chapter.name), _plain(chapter.title)):
            _show(console, chapter.text)
            return
    stems = [re.sub(r"(?<=\w\w[^\Ws])s$", "", word) for word in words]
    found = sorted(_hits(chapters, stems), key=lambda hit: hit[0])
    if not found:
        missing = f"no section of the guide has {' and '.join(words)}; `minirun docs` lists the chapters"
        write(Console(stderr=True), missing)
        sys.exit(1)
    for _, section in found[:HITS_MAX]:
        write(console, f"{section.chapter}.md:{section.line} {section.heading}", "bold")
        for line in _matching(section.text, stems):
            write(console, f"    {line}")
    if len(found) > HITS_MAX:
        write(console, f"and {len(found) - HITS_MAX} more; more words find fewer", "dim")


def _chapters() -> Iterator[_Chapter]:
    folder = files("minirun") / "docs"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".md"):
            yield _Chapter(file.name.removesuffix(".md"), file.read_text("utf-8"))


def _plain(name: str) -> str:
    """A name without what people write differently: `Coming from ADK`, `coming-from-adk`."""
    return re.sub(r"[\W_]+", " ", name).strip().lower()


def _show(console: Console, text: str) -> None:
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        click.echo(text, nl=False)


def _sections(chapter: _Chapter) -> Iterator[_Section]:
    heading, line, fenced = chapter.title, 1, False
    inside: list[str] = []
    for number, each in enumerate(chapter.text.splitlines(), 1):
        fenced ^= each.startswith("```")
        if re.match("#+ ", each) and not fenced:
            if inside:
                yield _Section(chapter.name, heading, line, "\n".join(inside))
            heading, line, inside = each.lstrip("# "), number, []
        inside.append(each)
    yield _Section(chapter.name, heading, line, "\n".join(inside))


def _hits(chapters: list[_Chapter], words: list[str]) -> Iterator[tuple[tuple[float, ...], _Section]]:
    """
    The sections that have all *words*, with what sorts them: those that have the words in their heading, then those
    that use them most. What is written for maintainers comes last.
    """
    for chapter in chapters:
        for section in _sections(chapter):
            text = IMPORTS.sub("", section.text)
            counts = [_count(word, text) for word in words]
            if all(counts):
                in_heading = sum(_count(word, section.heading) for word in words)
                yield (chapter.name == FOR_MAINTAINERS, -in_heading, -sum(counts) / len(text) ** 0.5), section


def _count(word: str, text: str) -> int:
    """How many words of *text* begin with *word*; a name such as `run_async` is of two words."""
    return len(re.findall(rf"(?<![^\W_]){re.escape(word)}", text, re.IGNORECASE))


def _matching(text: str, words: list[str]) -> list[str]:
    """The lines of a section, but its heading, that have most of *words*, in their order."""
    lines = [line.strip() for line in IMPORTS.sub("", text).splitlines()[1:]]
    scores = [sum(_count(word, line) > 0 for word in words) for line in lines]
    best = sorted(range(len(lines)), key=lambda number: -scores[number])[:LINES_OF_A_HIT]
    return [lines[number] for number in sorted(best) if scores[number]]
