"""
What a planner and a code executor make of an LlmAgent's requests and answers.

    request ── the planner's instruction ──► model ──► hooks ──► the planner's parts ──► the code in them
       ▲                                                                                  │ none: the answer
       └── what the code gave, as an event ◄── run it, once in an invocation ◄────────────┘

Fragments of a stream are shown as the model says them. In the contents of requests the agent's own plans and code are
text again, for that is what the model has said.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .._json import FrozenTuple, brief
from .._values import changed
from ..code_executors import BaseCodeExecutor, CodeExecutionInput
from ..code_executors import CodeExecutionResult as Executed
from ..errors import RetriesExceededError
from ..events import Event
from ..models import LlmResponse
from ..planners import BuiltInPlanner
from ..runtime import InvocationContext
from ..types import CodeExecutionResult, Content, ExecutableCode, Part

if TYPE_CHECKING:
    from ._llm import LlmAgent
    from ._request import ModelRequest

__all__ = ["CodeRuns", "Shaping"]

OK, FAILED, TOO_LATE = "OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"


class Shaping:
    """The planner and the code executor of one agent; it has at least one of them."""

    def __init__(self, agent: LlmAgent) -> None:
        self._agent_name = agent.name
        planner = agent.planner
        # The plans of a built-in planner are the model's own thoughts: there is nothing to tell from its answers.
        self._thinking = planner.thinking_config if isinstance(planner, BuiltInPlanner) else None
        self._planner = None if isinstance(planner, BuiltInPlanner) else planner
        self._executor = agent.code_executor

    def code_runs(self) -> CodeRuns | None:
        """What runs the code of one run of the agent; None if nothing does."""
        return None if self._executor is None else CodeRuns(self._agent_name, self._executor)

    def runs_code_of(self, event: Event) -> bool:
        """Whether there is code in what the model has said, so that it is no answer yet."""
        return self._executor is not None and _code_in(event) is not None

    def instruct(self, ctx: InvocationContext, request: ModelRequest) -> None:
        """Add to a request what the planner has to say."""
        asked = request.llm_request
        if self._thinking is not None:
            config = changed(asked.config, thinking_config=self._thinking)
            request.llm_request = changed(asked, config=config)
            return
        told = None if self._planner is None else self._planner.build_planning_instruction(ctx._readonly(), asked)
        if told:
            system = "\n\n".join(filter(None, [asked.config.system_instruction, told]))
            request.llm_request = changed(asked, config=changed(asked.config, system_instruction=system))

    def as_said(self, content: Content) -> Content:
        """Return a content of the agent as the model has said it, or its own code's result as text."""
        parts = [self._part_as_said(part) for part in content.parts]
        return content if parts == list(content.parts) else changed(content, parts=FrozenTuple(parts))

    def _part_as_said(self, part: Part) -> Part:
        if self._planner is not None and part.thought and part.text is not None and part.thought_signature is None:
            return changed(part, thought=None)
        if self._executor is not None and part.executable_code is not None:
            before, after = self._executor.code_block_delimiters[0]
            return Part(text=f"{before}{part.executable_code.code}{after}")
        if self._executor is not None and part.code_execution_result is not None:
            return Part(text=f"```tool_output\n{part.code_execution_result.output or ''}\n```")
        return part

    def shaped(self, ctx: InvocationContext, request: ModelRequest, answer: LlmResponse) -> LlmResponse:
        """Return a complete answer with its plans as thoughts, and its first code as such."""
        content = answer.content
        if content is None or answer.error_code or answer.ask_again is not None:
            return answer
        if self._planner is not None:
            context = ctx._for_model_hooks(request.event_id)
            parts = self._planner.process_planning_response(context, content.parts)
            if parts is not None:
                content = changed(content, parts=FrozenTuple(parts))
            if content.parts and all(part.thought for part in content.parts):
                code = self._code_in_plan(answer.content, content)
                if code is None:
                    return changed(answer, content=content, ask_again=self._planner.go_on)
                content = code
        if self._executor is not None and not content.calls:
            content = changed(content, parts=FrozenTuple(_with_code(self._executor, content.parts)))
        return changed(answer, content=content)

    def _code_in_plan(self, said: Content | None, planned: Content) -> Content | None:
        """A plan that ends in code, of what the model has *said* aloud; None if there is none, or nothing runs it."""
        if self._executor is None or said is None:
            return None
        parts = _with_code(self._executor, tuple(said.parts))
        if parts[-1].executable_code is None:
            return None
        plan = [part if part.text is None else changed(part, thought=True) for part in parts]
        return changed(planned, parts=tuple(plan))


def _with_code(executor: BaseCodeExecutor, parts: Sequence[Part]) -> Sequence[Part]:
    for index, part in enumerate(parts):
        text = "" if part.thought or part.text is None else part.text
        starts = [(text.find(before), before, after) for before, after in executor.code_block_delimiters]
        found = min((start for start in starts if start[0] >= 0), default=None)
        if found is None:
            continue
        at, before, after = found
        code, end, _ = text[at + len(before) :].partition(after)
        if end:
            said = [changed(part, text=text[:at])] if text[:at].strip() else []
            return (*parts[:index], *said, Part(executable_code=ExecutableCode(code=code, language="PYTHON")))
    return parts


def _code_in(event: Event) -> ExecutableCode | None:
    parts = () if event.content is None else event.content.parts
    return next((part.executable_code for part in parts if part.executable_code is not None), None)


class CodeRuns:
    """The code that an agent's model has written, in one run of the agent."""

    def __init__(self, agent_name: str, executor: BaseCodeExecutor) -> None:
        self._agent_name = agent_name
        self._executor = executor
        self._failures = 0

    async def answer(self, ctx: InvocationContext, event: Event) -> bool:
        """
        Run the code in what the model has said, and emit what it gave; False if there is none.

        Raises:
            RetriesExceededError: It has failed once too often in a row.
        """
        code = _code_in(event)
        if code is None or event.error_code:
            return False
        replayer, event_id = ctx._invocation.replayer, ctx._following_id(ctx._path)
        recorded = None if replayer is None else replayer.record.find(event_id)
        if replayer is not None and recorded is not None:
            said = await replayer.repeat(ctx, recorded, {})
        else:
            await ctx._invocation.emitter.leave_replay(ctx, "the running of code")
            await ctx._invocation.env.point(f"code {ctx._path}")
            result = await self._executed(ctx, CodeExecutionInput(code=code.code, execution_id=event_id))
            said = await ctx.emit(Event(id=event_id, content=_told(result)))
        results = [part.code_execution_result for part in said.content.parts] if said.content is not None else []
        self._count(next((result for result in results if result is not None), None))
        return True

    async def _executed(self, ctx: InvocationContext, given: CodeExecutionInput) -> Executed:
        executor = self._executor
        if inspect.iscoroutinefunction(executor.execute_code):
            result = await executor.execute_code(ctx, given)
        else:
            result = await ctx.run_in_thread(partial(executor.execute_code, ctx, given))
        if not isinstance(result, Executed):
            expected = f"expected {type(executor).__name__}.execute_code to return a CodeExecutionResult"
            raise TypeError(f"{expected}, found {brief(result)}")
        return result

    def _count(self, result: CodeExecutionResult | None) -> None:
        failed = result is not None and result.outcome != OK
        self._failures = self._failures + 1 if failed else 0
        if result is not None and self._failures > self._executor.error_retry_attempts:
            found = f"found {self._failures} failures in a row; at last: {result.output or ''!s:.500}"
            raise RetriesExceededError(f"expected code of agent {self._agent_name!r} that works, {found}")


def _told(result: Executed) -> Content:
    outcome = TOO_LATE if result.is_timeout else FAILED if result.is_error else OK
    output = "\n".join(filter(None, [result.stdout, result.stderr])).encode("utf-8", "replace").decode()
    told = CodeExecutionResult(outcome=outcome, output=output)
    # In the user's role: a model takes what stands in its own for its own words, and could have made it up.
    return Content(role="user", parts=[Part(code_execution_result=told)])
