"""
One call of an agent by a client: a run, and what the client is told of it.

    message ──► run ──► completed ──► the answer
                 │
                 └────► paused ──► questions, with a sealed state ··· the client calls again, with both
                                                                        │
                        the same invocation, in whatever process  ◄─────┘

An answer is stored before anything is done with it, and counts once. A client that has lost the result of a call, or a
server that was killed, may be asked the same again with the same state: what is answered stays answered, and the call
comes to the invocation's end, or to its next question.

Clients of the protocol before 2026-07-28 are asked while their call goes on. The invocation is paused in the store all
the same, so nothing is lost with the connection but the call.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import mcp_types
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .._json import brief, thaw
from ..errors import InvalidMessageError, MinirunError
from ..events import Event
from ..runners import Runner
from ..runtime import Run, RunConfig, StreamingMode
from ..sessions import InvocationStatus, PendingCall
from ..types import Content, Part
from ._questions import Form, form_of, reply_to
from ._state import Seal, State, StateRefusedError

__all__ = ["INPUT_SCHEMA", "OUTPUT_SCHEMA", "Call", "ServedAgent"]

_logger = logging.getLogger("minirun")

INPUT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "What to say to the agent."},
        "session_id": {
            "type": "string",
            "description": "Which conversation this belongs to. It is in the result of a call; leave it out to begin "
            "a new one.",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "description": "What the agent says."},
        "output": {"description": "The same as a value, if the agent has one."},
        "session_id": {"type": "string", "description": "Give it with the next message to go on."},
    },
    "required": ["answer", "session_id"],
}

# A call may wait so long for an agent that sleeps; longer sleeps are for a supervisor of the store.
SLEEP_S_MAX = 300.0

# Of what is told while a call goes on.
PROGRESS_CHARS_MAX = 2_000

# An agent that asks a client of the older protocol more often in one call does not come to an end.
ROUNDS_MAX = 50


class ServedAgent(NamedTuple):
    """An agent as a tool."""

    name: str
    runner: Runner

    def tool(self) -> mcp_types.Tool:
        """What clients are told about it."""
        return mcp_types.Tool(
            name=self.name,
            description=self.runner.agent.description or f"Talk to the agent {self.name}.",
            input_schema=dict(INPUT_SCHEMA),
            output_schema=dict(OUTPUT_SCHEMA),
        )


class _ToldError(Exception):
    """The call ends with an error that the client is told. What it says was made for it."""


@attrs.frozen(eq=False)
class _Outcome:
    """Where the invocation is now: `answer` counts if nothing is `asked`."""

    session_id: str
    invocation_id: str
    status: InvocationStatus
    answer: Event | None
    asked: Sequence[PendingCall] = ()
    problems: Mapping[str, str] = attrs.field(factory=dict)
    """By the ids of questions: why their last answer was none."""


class Call:
    """
    A call of *served* by a user.

    Args:
        served: The agent.
        user_id: For whom the client speaks.
        config: Settings of the runs.
        seal: What seals the states of pauses.
        context: The request, of the official package.
        params: What the client has sent.
    """

    def __init__(
        self,
        served: ServedAgent,
        user_id: str,
        config: RunConfig,
        seal: Seal,
        context: ServerRequestContext[Any, Any],
        params: mcp_types.CallToolRequestParams,
    ) -> None:
        self._served = served
        self._runner = served.runner
        self._user_id = user_id
        self._seal = seal
        self._context = context
        self._params = params
        self._arguments = dict(params.arguments or {})
        self._told = 0  # how often progress was told
        wants_progress = (context.meta or {}).get("progress_token") is not None
        mode = StreamingMode.SSE if wants_progress else StreamingMode.NONE
        self._config = attrs.evolve(config, streaming_mode=mode)
        self._is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def result(self) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
        """
        Make the call. A cancellation leaves the run, as it leaves any: what waits for an answer goes on waiting.

        Raises:
            MCPError: The state is none that this user was given for this call.
        """
        try:
            outcome = await self._begin()
            for _ in range(ROUNDS_MAX):
                if not outcome.asked:
                    return self._answer(outcome)
                forms = self._forms(outcome)
                if self._is_modern:
                    return self._ask(outcome, forms)
                outcome = await self._answered(outcome, await self._elicited(forms))
        except _ToldError as error:
            return _failed(str(error))
        return _failed(f"The agent has asked {ROUNDS_MAX} times in this call, and has no answer yet.")

    # --- running

    async def _begin(self) -> _Outcome:
        if self._params.request_state is not None:
            state = self._opened(self._params.request_state)
            known = _Outcome(state.session_id, state.invocation_id, InvocationStatus.PAUSED, None)
            asked = [each for each in await self._pending(known) if each.call_id in state.asked]
            said = self._params.input_responses or {}
            return await self._answered(attrs.evolve(known, asked=asked), said)
        message, session_id = self._checked()
        return await self._run(session_id, new_message=message)

    def _checked(self) -> tuple[str, str]:
        """The message, and the id of the session. The runner checks whether it can be one."""
        message, session_id = self._arguments.get("message"), self._arguments.get("session_id")
        others = self._arguments.keys() - INPUT_SCHEMA["properties"].keys()
        if others:
            raise _ToldError(f"expected `message` and `session_id`, found {brief(sorted(others))}")
        if not isinstance(message, str) or not message.strip():
            raise _ToldError("expected `message` to be a text that is not blank")
        if session_id is None:
            session_id = self._runner.session_service.env.new_id("session")
        if not isinstance(session_id, str):
            raise _ToldError("expected `session_id` to be a text")
        return message, session_id

    def _opened(self, sealed: str) -> State:
        try:
            return self._seal.opened(
                sealed,
                app_name=self._runner.app_name,
                tool=self._served.name,
                user_id=self._user_id,
                arguments=self._arguments,
            )
        except StateRefusedError as error:
            _logger.warning("an MCP client has shown a state that is refused: %s", error)
            told = {"reason": "invalid_request_state"}
            raise MCPError(mcp_types.INVALID_PARAMS, "Invalid or expired requestState", told) from None

    async def _answered(self, outcome: _Outcome, said: Mapping[str, Any]) -> _Outcome:
        """Give the answers to the invocation, and go on with it as far as it comes."""
        replies, problems = self._replies(outcome.asked, said)
        if problems and not replies:
            return attrs.evolve(outcome, problems=problems)
        session_id, invocation_id = outcome.session_id, outcome.invocation_id
        if not replies:  # they were given before
            return await self._run(session_id, invocation_id=invocation_id)
        while replies:
            branch = replies[0][0].branch  # answers to several agents are several messages
            parts = [part for question, part in replies if question.branch == branch]
            replies = [each for each in replies if each[0].branch != branch]
            try:
                outcome = await self._run(session_id, new_message=Content(role="user", parts=parts))
            except InvalidMessageError:  # raised before anything is stored: another call was faster
                outcome = await self._run(session_id, invocation_id=invocation_id)
            still = {question.call_id for question in outcome.asked}
            replies = [each for each in replies if each[0].call_id in still]
        return attrs.evolve(outcome, problems=problems)

    def _replies(
        self, asked: Sequence[PendingCall], said: Mapping[str, Any]
    ) -> tuple[list[tuple[PendingCall, Part]], dict[str, str]]:
        replies, problems = [], {}
        for question in asked:
            form, answer = form_of(question), said.get(question.call_id)
            if form is None or not isinstance(answer, mcp_types.ElicitResult):
                continue
            try:
                part = reply_to(question, form, answer)
            except InvalidMessageError as error:
                if answer.action == "decline":
                    msg = "The question was declined, and the agent has to have an answer. It still waits for one"
                    raise _ToldError(f"{msg}: {form.message}") from None
                problems[question.call_id] = str(error)
                continue
            if part is None:
                raise _ToldError(f"Nobody has answered, and the agent still waits for an answer: {form.message}")
            replies.append((question, part))
        return replies, problems

    async def _run(self, session_id: str, **what: Any) -> _Outcome:
        """Run the agent until it has an answer, has failed, or waits for somebody."""
        while True:
            run = await self._entered(session_id, what)
            outcome = _Outcome(session_id, run.invocation_id, run.status, run.answer)
            if run.status is not InvocationStatus.PAUSED:
                return outcome
            waiting = await self._pending(outcome)
            asked = [each for each in waiting if form_of(each) is not None]
            if asked:
                return attrs.evolve(outcome, asked=asked)
            await self._sleep(waiting)
            what = {"invocation_id": run.invocation_id}

    async def _entered(self, session_id: str, what: Mapping[str, Any]) -> Run:
        is_entered = False
        try:
            async with self._runner.run_async(
                user_id=self._user_id, session_id=session_id, run_config=self._config, **what
            ) as run:
                is_entered = True
                async for event in run:
                    if event.partial:
                        await self._tell(event)
            return run
        except Exception as error:
            is_answer = isinstance(what.get("new_message"), Content)
            if is_answer and not is_entered and isinstance(error, InvalidMessageError):
                raise
            if not is_entered and isinstance(error, MinirunError):
                raise _ToldError(f"{type(error).__name__}: {error}") from error
            _logger.error("a run for an MCP client has failed: %s", type(error).__name__, exc_info=error)
            raise _ToldError(f"The agent has failed ({type(error).__name__}).") from error

    async def _pending(self, outcome: _Outcome) -> list[PendingCall]:
        found = await self._runner.session_service.list_pending(
            app_name=self._runner.app_name,
            user_id=self._user_id,
            session_id=outcome.session_id,
            include_timers=True,
        )
        return [each for each in found if each.invocation_id == outcome.invocation_id]

    async def _sleep(self, waiting: Sequence[PendingCall]) -> None:
        """Sleep until the first of what the invocation waits for is due."""
        env = self._runner.session_service.env
        times = [each.due - env.now() for each in waiting if each.due is not None]
        if not times:
            tools = ", ".join(sorted({each.tool for each in waiting})) or "somebody"
            raise _ToldError(f"The agent waits for what does not come from here: {tools}. It goes on by itself then.")
        if min(times) > SLEEP_S_MAX:
            raise _ToldError(f"The agent sleeps, for about {min(times):.0f} seconds. It goes on by itself then.")
        await env.sleep(max(0.0, min(times)))

    # --- telling

    async def _tell(self, event: Event) -> None:
        """Tell the client of a partial event. The numbers only count, as the protocol wants them to grow."""
        told = (event.custom_metadata or {}).get("progress")
        text = event.text
        if isinstance(told, Mapping):
            text = str(told.get("message", ""))
            if told.get("fraction") is not None:
                text += f" ({told['fraction']:.0%})"
        if text:
            self._told += 1
            await self._context.session.report_progress(float(self._told), None, text[:PROGRESS_CHARS_MAX])

    def _answer(self, outcome: _Outcome) -> mcp_types.CallToolResult:
        answer = outcome.answer
        structured: dict[str, Any] = {"answer": "" if answer is None else answer.text, "session_id": outcome.session_id}
        content: list[Any] = [mcp_types.TextContent(text=structured["answer"])]
        if answer is not None:
            if answer.output is not None:
                structured["output"] = thaw(answer.output)
            for index, part in enumerate(answer.content.parts if answer.content else ()):
                if part.inline_data is not None:
                    content.append(_media(part.inline_data.data, part.inline_data.mime_type, index))
        return mcp_types.CallToolResult(content=content, structured_content=structured)

    # --- asking

    def _forms(self, outcome: _Outcome) -> dict[str, Form]:
        """The forms for what is asked, by the ids of the questions, if the client can show any."""
        forms: dict[str, Form] = {}
        for question in outcome.asked:
            form = form_of(question)
            assert form is not None, "others are not asked"
            problem = outcome.problems.get(question.call_id)
            told = form.message if problem is None else f"{form.message}\nThe last answer did not fit: {problem}"
            forms[question.call_id] = form._replace(message=told)
        known = self._context.session.client_capabilities
        elicitation = None if known is None else known.elicitation
        can_ask = self._is_modern or self._context.session.can_send_request
        if elicitation is None or (elicitation.url is not None and elicitation.form is None) or not can_ask:
            said = "\n".join(form.message for form in forms.values())
            msg = "The agent asks something that this client has no way to ask a person (elicitation). It waits for"
            raise _ToldError(f"{msg} an answer, in the session {outcome.session_id!r}:\n{said}")
        return forms

    def _ask(self, outcome: _Outcome, forms: Mapping[str, Form]) -> mcp_types.InputRequiredResult:
        state = State(
            app_name=self._runner.app_name,
            tool=self._served.name,
            user_id=self._user_id,
            session_id=outcome.session_id,
            invocation_id=outcome.invocation_id,
            asked=list(forms),
            request=State.digest(self._arguments),
        )
        requests: dict[str, Any] = {
            call_id: mcp_types.ElicitRequest(
                params=mcp_types.ElicitRequestFormParams(message=form.message, requested_schema=form.schema)
            )
            for call_id, form in forms.items()
        }
        return mcp_types.InputRequiredResult(input_requests=requests, request_state=self._seal.sealed(state))

    async def _elicited(self, forms: Mapping[str, Form]) -> dict[str, mcp_types.ElicitResult]:
        """Ask while the call goes on. The run has ended, and what is asked stands in the store."""
        said: dict[str, mcp_types.ElicitResult] = {}
        for call_id, form in forms.items():
            try:
                said[call_id] = await self._context.session.elicit_form(
                    form.message, form.schema, self._context.request_id
                )
            except MCPError:
                raise _ToldError(f"The client cannot ask a person, and the agent waits: {form.message}") from None
        return said


def _media(data: bytes, mime_type: str, index: int) -> Any:
    encoded = base64.b64encode(data).decode()
    if mime_type.startswith("image/"):
        return mcp_types.ImageContent(data=encoded, mime_type=mime_type)
    if mime_type.startswith("audio/"):
        return mcp_types.AudioContent(data=encoded, mime_type=mime_type)
    blob = mcp_types.BlobResourceContents(uri=f"minirun:answer/{index}", blob=encoded, mime_type=mime_type)
    return mcp_types.EmbeddedResource(resource=blob)


def _failed(text: str) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)], is_error=True)
