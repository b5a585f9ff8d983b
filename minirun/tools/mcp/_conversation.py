"""
A call that needs an answer on the way: rounds of what the server asks for, and what it is answered with.

    call ──► a result
      │
      └────► input_required: questions, and a state that only the server can read
                │  people are asked: the invocation pauses, with questions and state stored in the question
                │  answers: in another process, days later
                ▼
             call again, with the answers and the state ──► a result, or another round

The tool is run from its start when an answer has come. Its rounds so far are then read from the questions in the log,
and the server hears of the call again only with the answers of the last one.

A server that was restarted may have forgotten the state, and refuses it. Then it is called anew, without one. What it
asks now and has been told before, by the same question, is answered from the log, each answer once; a person is asked
only what is new.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import mcp_types
from mcp import MCPError

from ..._json import dumps, thaw
from ...errors import McpError
from ...flows._questions import REQUEST_INPUT
from ...runtime import ToolContext
from ...runtime._questions import ask_for_input
from ._back_channel import Answers
from ._forms import fingerprint, form_of, reply_of
from ._sampling import sampled
from ._server import Server

__all__ = ["KEY", "answered"]

KEY = "mcp"
"""Where the payload of a question has what belongs to the call: `{"server", "requests", "state", "known", "asks"}`."""

Send: TypeAlias = Callable[[dict[str, Any] | None, str | None, Answers], Awaitable[Any]]
"""Calls the server: with responses and a state, or, if it is of the older protocol, with all that people have said."""

# A server that asks more often does not come to an end; it is the limit of a call, over all its pauses.
ROUNDS_MAX = 50

# Both stand in the log, once for each question of their round. All the requests of a round together are of this length
# at most, as JSON.
STATE_CHARS_MAX = 64_000
REQUESTS_CHARS_MAX = 64_000
REQUESTS_MAX = 20

# What all the rounds of a call may put into the log: as much as a single round of the most and the longest.
LOGGED_CHARS_MAX = REQUESTS_MAX * (STATE_CHARS_MAX + REQUESTS_CHARS_MAX)

# Between two calls of which the first has asked nothing, but wants to be called again.
AGAIN_S = 0.1


async def answered(server: Server, context: ToolContext, tool: str, send: Send) -> Any:
    """
    Return the result of *send*, which is called with responses and a state until it has one.

    Raises:
        Pause: A person has to answer.
        McpError: The server asks for what cannot be answered.
    """
    conversation = _Conversation(server, context, tool)
    responses, state = await conversation.replay()
    restarts = rounds = 0
    while True:
        try:
            result = await send(responses, state, conversation.told)
        except MCPError as error:
            if state is None or error.code != mcp_types.INVALID_PARAMS or restarts == 3:
                raise
            restarts += 1
            conversation.begin_anew()
            responses = state = None
            continue
        if not isinstance(result, mcp_types.InputRequiredResult):
            return result
        rounds += 1
        if rounds > ROUNDS_MAX:
            msg = f"the MCP server {server.label!r} has asked {ROUNDS_MAX} times for one call, and gave no result"
            raise McpError(msg)
        if not result.input_requests:
            await context._invocation.env.sleep(AGAIN_S)
        responses, state = await conversation.answer(result)


class _Conversation:
    """The rounds of one call."""

    def __init__(self, server: Server, context: ToolContext, tool: str) -> None:
        self._server = server
        self._context = context
        self._tool = tool
        self.told: list[tuple[str, mcp_types.ElicitResult]] = []  # what people have said, by what they were asked
        self._said: dict[str, mcp_types.ElicitResult] = {}  # of it, that of the last round, by keys
        self._logged = 0  # characters of the server's, in the questions of the rounds so far
        self._usable: list[tuple[str, mcp_types.ElicitResult]] = []  # of it, what answers a question that is asked anew

    async def replay(self) -> tuple[dict[str, Any] | None, str | None]:
        """Come to where an earlier run has paused: the responses that the server is called with now, and the state."""
        rounds = self._recorded()
        for each in rounds:
            await self._ask(each)
        if not rounds:
            return None, None
        return await self._responses(rounds[-1]), rounds[-1]["state"]

    def begin_anew(self) -> None:
        """The server knows nothing any more of what it was told."""
        self._usable = list(self.told)

    async def answer(self, result: mcp_types.InputRequiredResult) -> tuple[dict[str, Any] | None, str | None]:
        """Return the responses to what the server asks; pauses the invocation where a person has to give them."""
        requests = {
            key: request.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, request in (result.input_requests or {}).items()
        }
        state = result.request_state
        if len(requests) > REQUESTS_MAX or len(state or "") > STATE_CHARS_MAX:
            msg = f"expected up to {REQUESTS_MAX} questions and a state of up to {STATE_CHARS_MAX} characters"
            raise McpError(f"{msg} from the MCP server {self._server.label!r}, found more")
        known: dict[str, Any] = {}
        for key, request in requests.items():
            if request.get("method") == "elicitation/create":
                answer = self._take(fingerprint(request))
                if answer is not None:
                    known[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        turn = {"server": self._server.label, "requests": requests, "state": state, "known": known}
        self._check_size(turn)
        await self._ask(turn)
        return (await self._responses(turn) if requests else None), state

    def _check_size(self, turn: dict[str, Any]) -> None:
        """Refuse a round whose questions would fill the log; what asks people nothing is not stored."""
        size = len(dumps(turn["requests"])) if _for_people(turn) else 0
        for most, found, what in (
            (REQUESTS_CHARS_MAX, size, "the questions of a round"),
            (LOGGED_CHARS_MAX, self._logged + _logged(turn), "all the questions of a call, with their states,"),
        ):
            if found > most:
                msg = f"expected {what} of the MCP server {self._server.label!r} to have up to {most} characters"
                raise McpError(f"{msg}, found {found}")

    def _take(self, asked: str) -> mcp_types.ElicitResult | None:
        for index, (other, answer) in enumerate(self._usable):
            if other == asked:
                del self._usable[index]
                return answer
        return None

    def _recorded(self) -> list[dict[str, Any]]:
        """The rounds in which earlier runs of this call have asked people."""
        replayer = self._context._invocation.replayer
        found: list[dict[str, Any]] = []
        if replayer is None:
            return found
        asked_of_last: set[str] = set()
        for question_id, name in replayer.record.questions(self._context.function_call_id).items():
            asked = replayer.record.find(f"{question_id}-asked") if name == REQUEST_INPUT else None
            for call in () if asked is None else asked.get_function_calls():
                payload = call.args.get("payload")
                turn = payload.get(KEY) if isinstance(payload, Mapping) else None
                if call.id != question_id or not isinstance(turn, Mapping):
                    continue
                plain = thaw(turn)
                asks = plain.pop("asks")
                if not found or found[-1] != plain or asks in asked_of_last:  # else another question of the same round
                    found.append(plain)
                    asked_of_last = set()
                asked_of_last.add(asks)
        return found

    async def _ask(self, turn: dict[str, Any]) -> None:
        """Ask people what they have to answer in this round, one question after the other."""
        self._said = {}
        self._logged += _logged(turn)
        for key in _for_people(turn):
            request = turn["requests"][key]
            # As it was called then: behind another address it is the same question all the same.
            form = form_of(request["params"], turn["server"], self._tool)
            payload = {**form.about, KEY: {**turn, "asks": key}}
            answer = await ask_for_input(self._context, form.message, form.schema, payload)
            self._said[key] = reply_of(request["params"], answer, turn["server"])
            self.told.append((fingerprint(request), self._said[key]))

    async def _responses(self, turn: dict[str, Any]) -> dict[str, Any]:
        """What the server is told in this round, of which people have been asked."""
        responses: dict[str, Any] = {}
        for key, request in sorted(turn["requests"].items()):
            method = request.get("method")
            if key in turn["known"]:
                responses[key] = mcp_types.ElicitResult.model_validate(turn["known"][key])
            elif method == "elicitation/create":
                responses[key] = self._said[key]
            elif method == "roots/list" and self._server.settings.roots:
                responses[key] = await self._server._roots(None)
            elif method == "sampling/createMessage" and self._server.settings.sampling:
                responses[key] = await sampled(self._context, self._server.label, request["params"])
            else:
                option = "sampling=True" if method == "sampling/createMessage" else "roots=[...]"
                msg = f"the MCP server {self._server.label!r} asks for {method}, which it may not; see {option}"
                raise McpError(msg)
        return responses


def _for_people(turn: Mapping[str, Any]) -> list[str]:
    """The keys of what people have to answer in this round, in the order in which they are asked."""
    requests, known = turn["requests"], turn["known"]
    return [key for key in sorted(requests) if requests[key].get("method") == "elicitation/create" and key not in known]


def _logged(turn: Mapping[str, Any]) -> int:
    """How many characters of the server's the questions of this round put into the log."""
    asked = len(_for_people(turn))
    return asked * (len(dumps(turn["requests"])) + len(turn["state"] or "")) if asked else 0
