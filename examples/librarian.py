"""
An offline assistant over a folder of text files: it searches, reads, cites file and line, and remembers notes.

    minirun run examples/librarian.py --db librarian.db "Which promise is about cancellation?"
    LIBRARY=/usr/lib/python3 minirun run examples/librarian.py "Where is the heap invariant explained?"

The model is a function with rules instead of a network: it decides which tool to call next from what the tools have
answered so far, as any model does, so a turn has real tool calls and is stored like any other. By default the library
is this project's own texts.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from minirun import LlmAgent, ToolContext
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.types import Part

PROJECT = Path(__file__).resolve().parent.parent
FILE_BYTES_MAX = 1_000_000  # larger ones are data, not texts to read
SUFFIXES = frozenset({".py", ".md", ".txt", ".rst", ".toml", ".cfg", ""})
SKIPPED_FOLDERS = frozenset({"tests", "site-packages"})  # they tell of something else
HITS = 5
CONTEXT_LINES = 3
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about an and are at be by can do does for from how i in is it me my of on or tell that the this to was what "
        "when where which who why with you your",
    )
)


# --- the library --------------------------------------------------------------------------------------------------


def library() -> Path:
    """The folder that is searched."""
    return Path(os.environ.get("LIBRARY", PROJECT)).resolve()


def text_files(folder: Path) -> Iterator[Path]:
    """The files in *folder* that look like text; the project itself without what is generated or hidden."""
    for root, folders, names in os.walk(folder):  # follows no symbolic links, so loops do no harm
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")) and f not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix in SUFFIXES and path.is_file() and path.stat().st_size <= FILE_BYTES_MAX:
                yield path


def read_text(path: Path) -> list[str]:
    """The lines of a file, whatever its encoding; none for binary files."""
    data = path.read_bytes()
    return [] if b"\0" in data else data.decode("utf-8", errors="replace").splitlines()


def stems(text: str) -> list[str]:
    """The words of *text* that count, without their commonest endings."""
    words = re.findall(r"[^\W_]+", text.lower())
    return [re.sub(r"(ations?|ings?|ed|es|e|s)$", "", w) or w for w in words if w not in STOP_WORDS]


class Index:
    """Which word stands in which line, or in the heading above it, and how rare it is."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[tuple[str, int, str]] = []
        self.places: dict[str, list[int]] = defaultdict(list)
        self.lengths: list[int] = []
        for path in text_files(folder):
            name = path.relative_to(folder).as_posix()
            heading: list[str] = []
            for number, line in enumerate(read_text(path), 1):
                words = stems(line)
                if path.suffix == ".md" and line.startswith("#"):
                    heading = words
                if words:
                    for word in {*words, *heading}:
                        self.places[word].append(len(self.lines))
                    self.lines.append((name, number, line))
                    self.lengths.append(len(words))

    def search(self, words: str) -> list[tuple[str, int, str]]:
        """The best lines for *words*: rare words count more, prose and headings more than code."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in set(stems(words)):
            places = self.places.get(word, ())
            weight = math.log(1 + len(self.lines) / (1 + len(places)))
            for place in places:
                scores[place] += weight
        for place in scores:
            name, _, line = self.lines[place]
            scores[place] *= _standing(name, line, words) / (1 + 0.01 * self.lengths[place])
        best = sorted(scores, key=lambda place: (-scores[place], self.lines[place]))
        return [self.lines[place] for place in best[:HITS]]


def _standing(name: str, line: str, question: str) -> float:
    """How much a line says about its subject: documents before sources, definitions and headings before the rest."""
    if question.strip("?!. ") in line:
        return 0.0  # it repeats the question, and answers nothing
    document = 1.5 if name.endswith((".md", ".rst", ".txt")) else 1.0
    defines = re.match(r"\s*([#*|>-]+\s*)?(\*\*|#|class |def |async def |[A-Z]\d+\b)", line)
    return document * (1.3 if defines else 1.0)


@cache
def index(folder: Path) -> Index:
    """The index of *folder*, built once per process."""
    return Index(folder)


# --- the tools ----------------------------------------------------------------------------------------------------


def list_files() -> list[str]:
    """List the files of the library."""
    return sorted({name for name, _, _ in index(library()).lines})


def search(words: str) -> list[dict[str, Any]]:
    """Find the lines that fit the words best."""
    return [{"path": path, "line": line, "text": text} for path, line, text in index(library()).search(words)]


def read_lines(path: str, start: int, count: int = CONTEXT_LINES) -> list[dict[str, Any]]:
    """Read lines of a file of the library; the first line is 1."""
    file = (library() / path).resolve()
    if not file.is_relative_to(library()):
        raise ValueError(f"expected a file inside the library, found {path!r}")
    first = max(1, start)
    lines = read_text(file)[first - 1 : first - 1 + min(count, 50)]
    return [{"path": path, "line": first + n, "text": line} for n, line in enumerate(lines)]


def remember(note: str, tool_context: ToolContext) -> str:
    """Keep a note for this user, in all sessions."""
    tool_context.state.extend("user:notes", [note])
    return f"noted: {note}"


# --- the model ----------------------------------------------------------------------------------------------------


def librarian(request: LlmRequest) -> str | Part:
    """Decide what to do next, by rules: from the user's last message and what the tools have answered since."""
    question = next(c.text for c in reversed(request.contents) if c.role == "user" and c.text)
    answer = request.contents[-1].parts[-1].function_response
    if answer is None:
        return _first_step(question.strip(), request.config.system_instruction or "")
    if "error" in answer.response:
        return f"That did not work: {answer.response['error']['message']}"
    result = answer.response["result"]
    if answer.name == "search":
        if not result:
            return f"I found nothing about {question.strip()!r}."
        return call("read_lines", path=result[0]["path"], start=result[0]["line"], count=CONTEXT_LINES)
    if answer.name == "read_lines":
        return _cite(result)
    return "\n".join(result) if isinstance(result, list) else str(result)


def _first_step(question: str, notes: str) -> str | Part:
    low = question.lower()
    if note := re.match(r"(?:please )?remember(?: that)?:?\s+(.+)", question, re.IGNORECASE | re.DOTALL):
        return call("remember", note=note[1])
    if re.search(r"\b(my notes|you remember)\b", low):
        return notes
    if re.search(r"\b(list|which|what) (the )?files\b", low):
        return call("list_files")
    if place := re.match(r"read (\S+?):(\d+)$", question):
        return call("read_lines", path=place[1], start=int(place[2]))
    if low.rstrip("!. ") in {"hi", "hello", "help"}:
        return "Ask me about the texts in the library, or say: remember ..., my notes, list files, read FILE:LINE."
    return call("search", words=question)


def _cite(lines: list[dict[str, Any]]) -> str:
    return "\n".join(f"{item['path']}:{item['line']}: {item['text']}" for item in lines) or "There are no such lines."


def notes_so_far(context: Any) -> str:
    """The instruction: what this user wanted to be remembered."""
    notes = context.state.get("user:notes", [])
    return "Your notes:\n" + "\n".join(f"- {note}" for note in notes) if notes else "You have no notes yet."


agent = LlmAgent(
    name="librarian",
    description="Answers from a folder of texts, with file and line.",
    model=ScriptedLlm(librarian, name="rules"),
    instruction=notes_so_far,
    tools=[list_files, search, read_lines, remember],
)
