"""
How workflows of the traces t06 and t13 are played, and the columns in which they are compared.

They are those of `columns`, and of each event:

    node      `NodeInfo.path`
    output    the output, unless the words are the output
    ends      it is what the workflow of the root ends with
    asks      it is a question

Not taken over: `branch` and `role`; and `final`, which each event of a node is there, here only the one that `ends`
(W36). Branches have other names here (R14): what is isolated from what is shown by what the models are asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import trio

from minirun import Content, Event
from minirun.sessions import PendingCall

from .columns import Line, Played, extract, line
from .play import Play

__all__ = ["FILES", "SCENARIOS", "Stage", "extract_workflows", "play_workflow", "scenario"]

FILES = ("t06", "t13")

Scenario: TypeAlias = Callable[["Stage"], Awaitable[None]]

SCENARIOS: dict[tuple[str, str], Scenario] = {}

# What a person is asked with there; a question is one whatever its words.
_ASKS = "adk_request_input"


def scenario(file: str, title: str) -> Callable[[Scenario], Scenario]:
    """Enter the decorated function as the scenario of this title."""

    def enter(function: Scenario) -> Scenario:
        assert (file, title) not in SCENARIOS
        SCENARIOS[file, title] = function
        return function

    return enter


async def play_workflow(file: str, title: str) -> Played:
    """Play a scenario to its end."""
    stage = Stage(with_prompts=False)
    await SCENARIOS[file, title](stage)
    for name, script in stage.scripts:
        assert not script, f"the model of {name!r} was not asked for {script!r}"
    return await stage.played(title)


def extract_workflows(trace: Iterable[str]) -> list[Played]:
    """Reduce the lines of a trace file to the columns."""
    lines = list(trace)
    scenarios = extract(lines, with_prompts=False)
    entries = [json.loads(text) for text in lines]
    events = iter([entry for entry in entries if entry["kind"] == "event"])
    for played in scenarios:
        played.lines = [_with_node(each, next(events)) if "event" in each else each for each in played.lines]
    return scenarios


def _with_node(each: Line, entry: Mapping[str, Any]) -> Line:
    node = entry.get("node") or {}
    path = node.get("path") or None
    tops = [top for top in node.get("output_for") or () if top != path and re.fullmatch(r"[^/]+@1|.*@c\d", top)]
    called = [name for name, _ in each.get("calls", [])]
    return _columns(
        each,
        node=path,
        output=entry.get("output"),
        ends=bool(tops),
        asks=_ASKS in called,
    )


def _columns(each: Line, *, node: str | None, output: Any, ends: bool, asks: bool) -> Line:
    """A line with what is said of nodes, and without what is not compared."""
    left_out = {"branch", "role", "final", "same_id", *(("calls",) if asks else ())}
    kept = {name: value for name, value in each.items() if name not in left_out}
    node = node and re.sub(r"@(c\d|call-\w+)", "@call", node)
    return line(**kept, node=node, output=output, ends=ends, asks=asks)


class Stage(Play):
    """A stage for a workflow, whose questions can be answered."""

    pending: Sequence[PendingCall] = ()
    invocation_id: str | None = None

    def _event(self, event: Event) -> Line:
        info = event.node_info
        asks = bool(event.long_running_tool_ids) and event.output is None
        return _columns(
            super()._event(event),
            node=info.path or None,
            output=event.output,
            ends=len(info.output_for or ()) > 1,
            asks=asks,
        )

    async def turn(  # type: ignore[override]  # it can do more
        self,
        message: str | Content | None = "x",
        *,
        leave_after: int = 0,
        leave_after_s: float = float("inf"),
        invocation_id: str | None = None,
    ) -> None:
        """Run a message, or an invocation that is gone on with; leave after so many events or seconds."""
        assert self._runner is not None
        self._turns += 1
        self.lines.append({"turn": self._turns})
        self._last_id = None
        received = 0
        try:
            with trio.move_on_after(leave_after_s):
                async with self._runner.run_async(
                    user_id="u", session_id="s", new_message=message, invocation_id=invocation_id
                ) as run:
                    self.invocation_id = run.invocation_id
                    async for event in run:
                        self.lines.append(self._event(event))
                        received += 1
                        if received == leave_after:
                            self.note("consumer closes the stream")
                            break
                self.pending = run.pending
        except Exception as error:
            self.lines.append({"exception": type(error).__name__})

    async def answer(self, value: object, *, hint: str = "") -> None:
        """Answer the question that is open, or that with this hint."""
        [question] = [each for each in self.pending if hint in (each.hint or "")]
        await self.turn(question.reply(value))

    # --- nodes

    def says(self, name: str, output: object = None, *, delay_s: float = 0.0) -> Any:
        """A function that notes what it is given, and gives its own name, or *output*."""

        async def function(node_input: Any) -> Any:
            await trio.sleep(delay_s)
            self.note(name, input=plain(node_input))
            return name if output is None else output

        function.__name__ = name
        return function


def plain(value: Any) -> Any:
    """What a node was given, as the recorder writes it."""
    if isinstance(value, Content):
        return value.text
    return json.loads(json.dumps(value))
