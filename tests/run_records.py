"""A run in writing as plain lines: every event with all that it says, and every request to a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from textwrap import dedent, wrap
from typing import Any

from minirun import Runner
from minirun._codec import to_json
from minirun.events import Event
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm
from minirun.types import Content, Part

from .helpers import PLACE

__all__ = ["recorded", "records"]

_ID = re.compile(r"(?:m-|e-|q-)?[0-9a-f]{24,}")
# What the events of all runs have, and what is different in each run.
_ELSEWHERE = {"id", "invocation_id", "timestamp", "author", "content", "seq", "partial", "actions", "node_info"}


class Names:
    """Ids, as they are called in the order in which they come."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """Return *text* with these names."""
        return _ID.sub(lambda found: self._names.setdefault(found[0], f"id{len(self._names) + 1}"), text)


def event_lines(event: Event) -> Iterator[str]:
    """An event: its content, and what else it has that not every event has."""
    told: dict[str, Any] = json.loads(to_json(event))
    yield " ".join(["~" if event.partial else f"{event.seq}", event.author or "?", *_content(event.content)])
    others = {name: value for name, value in told.items() if name not in _ELSEWHERE} | told.get("actions", {})
    if event.partial_output is not None:
        others["partial_output"] = event.partial_output
    yield from (f"    {name}: {value}" for name, value in sorted(others.items()))


def request_lines(request: LlmRequest) -> Iterator[str]:
    """A request: its contents, and of its config and itself what there is."""
    yield "?"
    yield from (f"    {' '.join(_content(content))}" for content in request.contents)
    config = request.config
    if config.system_instruction:
        yield f"    system: {config.system_instruction!r}"
    if config.tools:
        yield f"    tools: {[each.name for each in config.tools]}"
    for name in ("response_mime_type", "response_schema", "temperature", "thinking_config"):
        if getattr(config, name, None) is not None:
            yield f"    {name}: {getattr(config, name)}"
    for name in ("cache_key", "cache_metadata"):
        if getattr(request, name) is not None:
            yield f"    {name}: {getattr(request, name)}"


async def recorded(runner: Runner, *models: ScriptedLlm, messages: Any = ("go",), **options: Any) -> str:
    """Run *messages* one after the other; return the events of all runs, and then what each model was asked."""
    found: list[str] = []
    for message in messages:
        try:
            async with runner.run_async(**PLACE, new_message=message, **options) as run:
                async for event in run:
                    found += event_lines(event)
        except Exception as error:
            found.append(f"! {type(error).__name__}: {error}")
    found += [line for model in models for request in model.requests for line in request_lines(request)]
    names = Names()
    wrapped = (wrap(names(line), 104, subsequent_indent="        ", break_long_words=False) for line in found)
    return "\n".join("\n".join(lines) for lines in wrapped)


def records(text: str) -> str:
    """Lines as they stand in a test."""
    return dedent(text).strip()


def _content(content: Content | None) -> list[str]:
    return [] if content is None else [f"{content.role}:", *(_part(part) for part in content.parts)]


def _part(part: Part) -> str:
    thought = "(thought) " if part.thought else ""
    if part.function_call is not None:
        return f"{thought}{part.function_call.name}({dict(part.function_call.args)})"
    if part.function_response is not None:
        return f"{part.function_response.name}={dict(part.function_response.response)}"
    if part.executable_code is not None:
        return f"<code {part.executable_code.code!r} {part.executable_code.language}>"
    if part.code_execution_result is not None:
        return f"<{part.code_execution_result.outcome} {part.code_execution_result.output!r}>"
    return f"{thought}{part.text!r}"
