"""
What a model is told when its answer is none: what was wrong with it, and to answer again, a bounded number of times.

The plugin remembers nothing. What a model has said wrongly is in the log, marked, and how often it was asked again is
counted from there. So an invocation that is resumed has no more tries than another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from .._json import brief
from ..agents._llm import is_empty
from ..agents._model_callbacks import NO_CONTENT, without_calls
from ..errors import ConfigurationError, InvalidValueError, ModelContractError, RetriesExceededError
from ..flows._words import check_words
from ..models import LlmResponse
from ._base import BasePlugin
from ._reflect_retry_tool import check_retries, in_time, readable

if TYPE_CHECKING:
    from ..events import Event
    from ..models import LlmRequest
    from ..runtime import CallbackContext

__all__ = ["ReflectAndRetryModelPlugin"]

FINISH_REASONS = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL")
MARK = "reflect_and_retry"
"""The key in `custom_metadata` of an answer that was not taken for one."""

GUIDANCE = (
    "Your last answer could not be used: {error}\n"
    "This was failure {retry} of at most {max_retries} in a row. Answer again. If you call a tool, call one that you "
    "have, by its name and with the arguments that it declares."
)


class ReflectAndRetryModelPlugin(BasePlugin):
    """
    Asks a model again, with guidance, whose answer is none.

    Such an answer is stored as an error event, without the calls in it, and with
    `custom_metadata["reflect_and_retry"] = {"retry_count": ...}`; then the guidance, as what the agent says to itself.
    Each question counts for `RunConfig.max_llm_calls`.

    Args:
        name: The name of the plugin.
        max_retries: How often in a row an agent's model is asked again; 0: never.
        throw_exception_if_retry_exceeded: Whether the failure after these fails the run: with what the model has
            raised, or RetriesExceededError. Else it is the agent's last event, an error; no call in it is made.
        finish_reasons: Answers with such a `finish_reason` or `error_code` are none.
        errors: What a model raises that may be overcome by asking again, as exception types. A FatalError never is. By
            default a model that has broken off; what a provider fails with (ModelError) is not the model's mistake, and
            is for `LlmAgent(model_retry=...)`.
        guidance: What the model is told; `{error}`, `{retry}` and `{max_retries}` are filled in.

    An answer in which there is nothing is none either; override `extract_error_from_response` to decide otherwise.

    Raises:
        ConfigurationError: A setting is none.
    """

    def __init__(
        self,
        name: str = "reflect_and_retry_model",
        max_retries: int = 3,
        throw_exception_if_retry_exceeded: bool = True,
        *,
        finish_reasons: Iterable[str] = FINISH_REASONS,
        errors: Iterable[type[Exception]] = (ModelContractError,),
        guidance: str = GUIDANCE,
    ) -> None:
        super().__init__(name)
        check_retries(max_retries, throw_exception_if_retry_exceeded)
        check_words(guidance, ("error", "retry", "max_retries"), "guidance")
        reasons, kinds = _listed(finish_reasons), _listed(errors)
        if reasons is None or not all(isinstance(reason, str) for reason in reasons):
            raise ConfigurationError(f"expected finish_reasons to be a list of strings, found {brief(finish_reasons)}")
        if kinds is None or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise ConfigurationError(f"expected errors to be a list of exception types, found {brief(errors)}")
        self.max_retries = max_retries
        self.throw_exception_if_retry_exceeded = throw_exception_if_retry_exceeded
        self.finish_reasons = frozenset(reasons)
        self.errors = kinds
        self._guidance = guidance

    async def extract_error_from_response(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> str | None:
        """Say what is wrong with a whole answer of a model; None: nothing. Override it, with `async def` or `def`."""
        for reason in (llm_response.finish_reason, llm_response.error_code):
            if reason in self.finish_reasons:
                return f"{reason}: {llm_response.error_message}" if llm_response.error_message else reason
        if llm_response.error_code is None and is_empty(llm_response.content):
            return NO_CONTENT
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Have the model asked again if its answer is none."""
        if llm_response.partial:
            return None
        problem = await in_time(
            self.extract_error_from_response(callback_context=callback_context, llm_response=llm_response)
        )
        if problem is None:
            return None
        if not isinstance(problem, str):
            msg = f"expected a text or None, found {brief(problem)}"
            raise InvalidValueError("extract_error_from_response", msg)
        problem = readable(problem)
        retry = _retries(callback_context) + 1
        if retry <= self.max_retries:
            return self._asked_again(llm_response, problem, retry)
        if self.throw_exception_if_retry_exceeded:
            msg = f"the model of {callback_context.agent_name!r} has given no answer, and was asked again {retry - 1}"
            raise RetriesExceededError(f"{msg} times; at last: {problem}")
        content = without_calls(llm_response.content)
        return attrs.evolve(llm_response, content=content, **_error_of(llm_response, problem))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Have the model asked again if it may overcome what it has raised."""
        if not isinstance(error, self.errors):
            return None
        kind, problem = type(error).__name__, readable(str(error) or type(error).__name__)
        response = LlmResponse(error_code=kind, error_message=problem)
        retry = _retries(callback_context) + 1
        if retry <= self.max_retries:
            return self._asked_again(response, problem, retry)
        return None if self.throw_exception_if_retry_exceeded else response

    def _asked_again(self, response: LlmResponse, problem: str, retry: int) -> LlmResponse:
        return attrs.evolve(
            response,
            **_error_of(response, problem),
            custom_metadata={**(response.custom_metadata or {}), MARK: {"retry_count": retry}},
            ask_again_max=self.max_retries,
            ask_again=self._guidance.format(error=problem, retry=retry, max_retries=self.max_retries),
        )


def _listed(values: object) -> tuple[Any, ...] | None:
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, (str, type)) else None


def _error_of(response: LlmResponse, problem: str) -> dict[str, Any]:
    """What an answer that is none says of itself: the model's own word, as far as it has given one."""
    code = response.error_code or response.finish_reason or NO_CONTENT
    return {"error_code": code, "error_message": response.error_message or problem}


def _retries(context: CallbackContext) -> int:
    """How often in a row the model of this agent was asked again by now."""
    events = context.session.events
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.invocation_id != context.invocation_id:
            continue
        if event.author == "user" and event.content is not None and not event.get_function_responses():
            return 0  # it is the message that began the invocation
        if event.author == context.agent_name and event.branch == context.branch and _is_of_its_model(event):
            mark = (event.custom_metadata or {}).get(MARK)
            return int(mark["retry_count"]) if isinstance(mark, dict) else 0
    return 0


def _is_of_its_model(event: Event) -> bool:
    """Whether it is an answer of the model, or came of one: not what the agent says to itself, nor its state alone."""
    content = event.content
    if content is None:
        return event.error_code is not None
    return content.role != "user" or bool(event.get_function_responses())
