"""
How minirun plays a scenario: with its public API and scripted models, recorded line by line.

A scenario is a function of a `Play`. What it writes down with `note`, what its models are asked and what the caller of
the runner receives come into one list, in the order in which it happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs
import trio

from minirun import App, BaseAgent, Event, EventActions, InMemoryRunner, LlmAgent, RunConfig, Runner
from minirun.apps import Prompts
from minirun.errors import ScriptError
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm
from minirun.types import Content, Part

from .columns import Line, Played, branch_column, line, parameters_column, response_column

__all__ = ["SCENARIOS", "Play", "Scenario", "play", "said", "scenario"]

# Instructions are compared, and the framework's own words in them are not.
SILENT = Prompts(identity="", transfer="", output_tool="")

Scenario: TypeAlias = Callable[["Play"], Awaitable[None]]

SCENARIOS: dict[tuple[str, str], Scenario] = {}
"""Every scenario, by its file of traces and its title there."""


def scenario(file: str, title: str) -> Callable[[Scenario], Scenario]:
    """Enter the decorated function as the scenario of this title."""

    def enter(function: Scenario) -> Scenario:
        assert (file, title) not in SCENARIOS
        SCENARIOS[file, title] = function
        return function

    return enter


def said(text: str) -> Content:
    """What an agent says."""
    return Content(role="model", parts=[Part(text=text)])


async def play(file: str, title: str) -> Played:
    """Play a scenario to its end."""
    stage = Play(with_prompts=file == "t07")
    await SCENARIOS[file, title](stage)
    for name, script in stage.scripts:
        assert not script, f"the model of {name!r} was not asked for {script!r}"
    return await stage.played(title)


class Play:
    """A stage for one scenario: agents with scripted models, one session, one list of lines."""

    def __init__(self, *, with_prompts: bool) -> None:
        self.lines: list[Line] = []
        self.scripts: list[tuple[str, list[Any]]] = []
        self._with_prompts = with_prompts
        self._runner: Runner | None = None
        self._turns = 0
        self._last_id: str | None = None

    # --- the cast

    def note(self, what: str, **data: object) -> None:
        """Write down that something happens now."""
        self.lines.append({"note": what, **data})

    def model(self, name: str, *script: Any, delay_s: float = 0.0, latency_s: float = 0.0) -> ScriptedLlm:
        """
        The model of an agent. It gets each request after *delay_s*, and writes it down then, and answers after
        *latency_s*: so what goes on at the same time has one order.
        """
        left = list(script)
        self.scripts.append((name, left))

        async def answer(request: LlmRequest) -> Any:
            await trio.sleep(delay_s)
            self.lines.append(self._request(name, request))
            if not left:
                msg = f"the script of {name!r} is at its end"
                raise ScriptError(msg)
            return left.pop(0)

        return ScriptedLlm(answer, latency_s=latency_s, name=name)

    def agent(self, name: str, *script: Any, delay_s: float = 0.0, latency_s: float = 0.0, **fields: Any) -> LlmAgent:
        """An agent whose model says *script*, an item for each question."""
        return LlmAgent(name=name, model=self.model(name, *script, delay_s=delay_s, latency_s=latency_s), **fields)

    # --- the action

    async def begin(self, root: BaseAgent, *, state: dict[str, Any] | None = None, **options: Any) -> None:
        """Set the stage: a runner for *root*, and the session with its first state."""
        app = App("app", root, prompts=SILENT, **options)
        self._runner = InMemoryRunner(app=app)
        await self._runner.session_service.create_session(app_name="app", user_id="u", session_id="s", state=state)

    async def turn(self, message: str = "go", *, leave_after: int = 0, config: RunConfig | None = None) -> None:
        """Run a message to its end, or until the caller leaves after so many events."""
        assert self._runner is not None
        self._turns += 1
        self.lines.append({"turn": self._turns})
        self._last_id = None
        received = 0
        try:
            async with self._runner.run_async(
                user_id="u", session_id="s", new_message=message, run_config=config
            ) as run:
                async for event in run:
                    self.lines.append(self._event(event))
                    received += 1
                    if received == leave_after:
                        self.note("consumer closes the stream")
                        break
        except Exception as error:
            self.lines.append({"exception": type(error).__name__})

    async def act(self, root: BaseAgent, *, config: RunConfig | None = None, **options: Any) -> None:
        """Set the stage and run one message."""
        await self.begin(root, **options)
        await self.turn(config=config)

    def refused(self, error: Exception) -> None:
        """Write down that what the scenario does is not even begun."""
        self.lines.append({"exception": type(error).__name__})

    async def played(self, title: str) -> Played:
        """What was written down, and what is stored."""
        if self._runner is None:
            return Played(title, self.lines, {}, [])
        service = self._runner.session_service
        session = await service.get_session(app_name="app", user_id="u", session_id="s")
        assert session is not None
        log = await service.read_events(app_name="app", user_id="u", session_id="s", after_seq=0)
        return Played(title, self.lines, dict(session.state), [[event.author, _kinds(event.content)] for event in log])

    # --- the columns

    def _request(self, agent: str, request: LlmRequest) -> Line:
        config = request.config
        return line(
            request=agent,
            contents=[[content.role, _kinds(content)] for content in request.contents],
            tools=sorted(tool.name for tool in config.tools),
            schema=config.response_schema is not None,
            instruction=config.system_instruction if self._with_prompts else None,
            parameters={t.name: parameters_column(t.parameters) for t in config.tools} if self._with_prompts else None,
        )

    def _event(self, event: Event) -> Line:
        same_id = event.id == self._last_id
        self._last_id = event.id
        return line(
            event=event.author,
            branch=branch_column(event.branch),
            role=event.content.role if event.content is not None else None,
            kinds=_kinds(event.content),
            calls=[[each.name, dict(each.args)] for each in event.get_function_calls()],
            responses=[response_column(each.name, each.response) for each in event.get_function_responses()],
            actions=_actions(event.actions),
            partial=event.partial,
            final=event.is_final_response(),
            error=event.error_code,
            same_id=same_id,
        )


def _actions(actions: EventActions) -> dict[str, Any]:
    """The actions that are set; not what minirun notes for itself."""
    names = [field.name for field in attrs.fields(EventActions) if field.name != "replay"]
    plain = {name: getattr(actions, name) for name in names}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in plain.items()
        if value not in (None, (), {})
    }


_KINDS = {"function_call": "call", "function_response": "response"}


def _kinds(content: Content | None) -> list[str]:
    return [_kind(part) for part in content.parts] if content is not None else []


def _kind(part: Part) -> str:
    name = next(name for name in ("text", "function_call", "function_response") if getattr(part, name) is not None)
    return _KINDS.get(name, name)
