"""
The columns in which the peer and minirun are compared.

A played scenario is a list of *lines* in the order in which its caller saw them, and what is stored in the end. A line
is a small dict; what is not set is left out:

    {"turn": 1}                     a message was given to the runner
    {"request": agent, ...}         its model was asked: `contents` as [role, part kinds], names of `tools`, `schema` if
                                    a form is asked for; where prompts are compared `instruction` and `parameters`, too
    {"event": author, ...}          `branch`, `role`, `kinds` of the parts, `calls`, `responses`, `actions`, `partial`,
                                    `final`, `error`; `same_id` if it has the id of the event before
    {"note": what, ...}             something that the scenario's own tools and hooks have written down
    {"exception": type}             the run failed

What a trace says beyond that is not taken over: ids, node paths, texts of messages, wording of the framework.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from minirun import errors

__all__ = ["FIXTURES", "NORMALISATIONS", "Line", "Played", "differences", "extract", "read", "write"]

Line: TypeAlias = dict[str, Any]

FIXTURES = Path(__file__).parent.parent / "fixtures" / "peer"


@attrs.define
class Played:
    """A scenario that was played: what its caller saw, and what is stored in the end, as [author, part kinds]."""

    title: str
    lines: list[Line]
    state: dict[str, Any]
    stored: list[list[Any]]


def line(**columns: Any) -> Line:
    """A line without the columns that are not set."""
    return {name: value for name, value in columns.items() if value not in (None, False, "", [], {})}


# --- from a trace ---------------------------------------------------------------------------------------------------

# The peer puts such a part before what it retells of another agent; it is wording, so it does not count as a part.
_PREAMBLE = "For context:"
# The line by which the peer tells an agent its name follows the instructions of the application.
_IDENTITY = re.compile(r"(\n\n)?You are an agent\. .*", re.DOTALL)
# What the recorder wrote for an object that is no JSON.
_OBJECT = re.compile(r"<\w+>")
# The hooks' notes say which tool failed; how the peer words the failure is its own.
_WORDING = {"error", "artifact_version"}


def extract(trace: Iterable[str], *, with_prompts: bool) -> list[Played]:
    """Reduce the lines of a trace file to the columns."""
    scenarios: list[Played] = []
    turns, last_id = 0, None
    for text in trace:
        entry = json.loads(text)
        kind = entry["kind"]
        if kind == "scenario":
            scenarios.append(Played(entry["title"], [], {}, []))
            turns, last_id = 0, None
            continue
        played = scenarios[-1]
        if kind == "session":
            played.state = entry["state"]
            played.stored = [[author, kinds] for _, author, kinds in entry["persisted"]]
        elif kind == "turn":
            turns += 1
            played.lines.append({"turn": turns})
        elif kind == "request":
            played.lines.append(_request(entry, with_prompts=with_prompts))
        elif kind == "event":
            played.lines.append(_event(entry, last_id))
            last_id = entry["id"]
        elif kind == "note":
            note = {name: value for name, value in entry.items() if name not in {"kind", "what"} | _WORDING}
            played.lines.append({"note": entry["what"], **note})
        else:
            played.lines.append({"exception": entry["type"]})
    return scenarios


def _request(entry: Mapping[str, Any], *, with_prompts: bool) -> Line:
    agent = "root" if entry["model"] == "fake" else entry["model"].removeprefix("m_")
    contents = []
    for content in entry["contents"]:
        parts = [part for part in content["parts"] if not part.get("text", "").startswith(_PREAMBLE)]
        contents.append([content["role"], [next(iter(part)) for part in parts]])
    return line(
        request=agent,
        contents=contents,
        tools=sorted(tool["name"] for tool in entry["tools"]),
        schema="response_schema" in entry,
        instruction=_IDENTITY.sub("", entry["system"] or "") if with_prompts else None,
        parameters={t["name"]: parameters_column(t["schema"]) for t in entry["tools"]} if with_prompts else None,
    )


def _event(entry: Mapping[str, Any], last_id: str | None) -> Line:
    parts = entry["parts"] or []
    return line(
        event=entry["author"],
        branch=branch_column(entry["branch"]),
        role=entry["role"],
        kinds=entry["part_kinds"],
        calls=[[part["call"]["name"], part["call"]["args"]] for part in parts if "call" in part],
        responses=[response_column(p["response"]["name"], p["response"]["response"]) for p in parts if "response" in p],
        actions=entry["actions"],
        partial=entry["partial"],
        final=entry["final"],
        error=entry.get("error_code"),
        same_id=entry["id"] == last_id,
    )


def parameters_column(schema: Mapping[str, Any] | None) -> dict[str, str]:
    """The parameters of a tool: type and allowed values; with a mark where they are required."""
    schema = schema or {}

    def kind(of: Mapping[str, Any]) -> str:
        if "$ref" in of:
            return kind(schema["$defs"][of["$ref"].rpartition("/")[2]])
        options = [each for each in of.get("anyOf", []) if each.get("type") != "null"]
        if options:
            return kind(options[0])
        named: str = of.get("type", "string")
        allowed = [str(value) for value in of.get("enum", []) if value is not None]
        return named + (f" ({'|'.join(allowed)})" if allowed else "")

    required = schema.get("required", ())
    return {name: kind(of) + ("!" if name in required else "") for name, of in schema.get("properties", {}).items()}


def branch_column(branch: str | None) -> str | None:
    """A branch without the ids of calls."""
    return branch and re.sub(r"@[\w-]+", "@call", branch)


def response_column(name: str, response: Mapping[str, Any]) -> list[Any]:
    """What a tool answered; of a failure only that it is one."""
    if "error" in response:
        return [name, "error"]
    return [name, {key: _plain(value) for key, value in response.items()}]


def _plain(value: Any) -> Any:
    return "an object" if isinstance(value, str) and _OBJECT.fullmatch(value) else value


# --- files ----------------------------------------------------------------------------------------------------------


def write(path: Path, scenarios: Sequence[Played]) -> None:
    """Write scenarios as JSON, a line of the file for each of theirs."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    blocks = []
    for played in scenarios:
        lines = ",\n   ".join(text(each) for each in played.lines)
        rest = f'"state": {text(played.state)},\n  "stored": {text(played.stored)}'
        blocks.append(f' {{"title": {text(played.title)},\n  "lines": [\n   {lines}\n  ],\n  {rest}}}')
    path.write_text("[\n" + ",\n".join(blocks) + "\n]\n", encoding="utf-8")


def read(path: Path) -> list[Played]:
    """Read what `write` has written."""
    return [Played(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


# --- what is the same, though it looks different --------------------------------------------------------------------


def _no_artifacts(each: Line) -> Line:
    """Artifacts are not part of this comparison."""
    if "artifact_delta" not in each.get("actions", {}):
        return each
    actions = {name: value for name, value in each["actions"].items() if name != "artifact_delta"}
    return line(**{**each, "actions": actions})


def _error_kinds(each: Line) -> Line:
    """An error of minirun's own that is documented as a kind of a builtin one counts as that."""
    name = each.get("exception") or each.get("error")
    kind = getattr(errors, name, None) if isinstance(name, str) else None
    bases = [base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"] if isinstance(kind, type) else []
    if not bases or bases[0] == "Exception":
        return each
    return {**each, ("exception" if "exception" in each else "error"): bases[0]}


def _transfer_answers(each: Line) -> Line:
    """What the model is told when it has handed over is wording."""
    if "responses" not in each:
        return each
    responses = [
        [name, answer if answer == "error" else {}] if name == "transfer_to_agent" else [name, answer]
        for name, answer in each["responses"]
    ]
    return {**each, "responses": responses}


NORMALISATIONS: tuple[Callable[[Line], Line], ...] = (_no_artifacts, _error_kinds, _transfer_answers)
"""Applied to both sides before they are compared; the docstring of each says why."""


# --- comparing ------------------------------------------------------------------------------------------------------


def differences(
    theirs: Played, ours: Played, normalisations: Iterable[Callable[[Line], Line]] = NORMALISATIONS
) -> list[str]:
    """
    Say what is different, one sentence each, the same sentences for the same two.

    Lines that are of one kind by one author, with parts of the same kinds, are compared column by column. The numbers
    are those of the peer's lines, counted from 1; a line that only minirun has stands before the peer's next one.
    """
    left, right = theirs.lines, ours.lines
    for normal in normalisations:
        left, right = [normal(each) for each in left], [normal(each) for each in right]
    found: list[str] = []
    matcher = SequenceMatcher(None, [_key(each) for each in left], [_key(each) for each in right], autojunk=False)
    for what, start, end, start_ours, end_ours in matcher.get_opcodes():
        if what == "equal":
            for number in range(start, end):
                found += _columns(f"{number + 1}", left[number], right[start_ours + number - start])
            continue
        found += [f"{number + 1}: only there: {_told(left[number])}" for number in range(start, end)]
        found += [f"before {end + 1}: only here: {_told(each)}" for each in right[start_ours:end_ours]]
    return found + _columns("stored", _stored(theirs), _stored(ours))


def _key(each: Line) -> str:
    kind = next(iter(each))
    return _shown(
        [kind, each[kind], *(each.get(name) for name in ("kinds", "partial", "agent", "i", "author", "tool"))]
    )


def _columns(where: str, theirs: Line, ours: Line) -> list[str]:
    return [
        f"{where}: {name}: {_shown(theirs.get(name))} there, {_shown(ours.get(name))} here"
        for name in dict.fromkeys([*theirs, *ours])
        if theirs.get(name) != ours.get(name)
    ]


def _stored(played: Played) -> Line:
    """The state; and the log, where it is not just what the caller has seen."""
    shown = [each for each in played.lines if "turn" in each or ("event" in each and "partial" not in each)]
    seen = [["user", ["text"]] if "turn" in each else [each["event"], each.get("kinds", [])] for each in shown]
    return {"state": played.state, **({} if played.stored == seen else {"log": played.stored})}


def _told(each: Line) -> str:
    """A whole line, in short."""
    kind = next(iter(each))
    columns = [str(each[kind]), *(f"{name}={_shown(value)}" for name, value in each.items() if name != kind)]
    return f"{kind} {' '.join(columns)}"


def _shown(value: object) -> str:
    """A value, as short as it can be read: `user:text+call model:-` for contents, else JSON."""
    if isinstance(value, list) and value and all(_is_content(each) for each in value):
        return " ".join(f"{who}:{'+'.join(kinds) or '-'}" for who, kinds in value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).replace('"', "")


def _is_content(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], list)
