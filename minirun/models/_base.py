"""What a model is to minirun: one method, an async generator of responses, and a word on what it is able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import attrs

from .._record import Record
from ..errors import ConfigurationError, InvalidValueError
from ..types import (
    Content,
    GenerateContentConfig,
    UsageMetadata,
    check_flag,
    check_in_subclass,
    check_kind,
    frozen_object,
    opened,
    plain_text,
)

__all__ = ["BaseLlm", "LlmCapabilities", "LlmRequest", "LlmResponse"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LlmRequest(Record):
    """
    What a model is asked.

    `contents` is a read-only view of the conversation; later requests share it, so keeping a request costs nothing.
    `config` holds the system instruction, the tools and how to answer.
    """

    contents: Sequence[Content]
    config: GenerateContentConfig = attrs.field(factory=GenerateContentConfig)
    model: str | None = None


@attrs.frozen(kw_only=True, init=False, weakref_slot=False, eq=False, repr=False)
class LlmResponse(Record):
    """
    What a model answers: fragments with `partial=True`, if it was asked to stream, then one complete response.

    With an `error_code` it is the model's own way to say that there is no answer; it ends the turn.

    With `ask_again`, which hooks set, it is no answer, whatever it says: what it says is stored, as an error, without
    the calls that it makes. Then the model is told that text, by the user's side, and asked once more. It counts as a
    question for `RunConfig.max_llm_calls`, which is what bounds it.
    """

    content: Content | None = None
    partial: bool | None = None
    turn_complete: bool | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    interrupted: bool | None = None
    usage_metadata: UsageMetadata | None = None
    custom_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata={"json": True})
    ask_again: str | None = attrs.field(default=None, validator=check_in_subclass)

    def __init__(
        self,
        *,
        content: Content | None = None,
        partial: bool | None = None,
        turn_complete: bool | None = None,
        finish_reason: str | None = None,
        error_code: str | None = None,
        error_message: str | None = None,
        interrupted: bool | None = None,
        usage_metadata: UsageMetadata | None = None,
        custom_metadata: Mapping[str, object] | None = None,
        ask_again: str | None = None,
    ) -> None:
        if type(content) is not Content:
            check_kind(content, "LlmResponse.content", Content)
        if partial is not None and partial is not True:
            check_flag(partial, "LlmResponse.partial")
        if turn_complete is not None:
            check_flag(turn_complete, "LlmResponse.turn_complete")
        if finish_reason is not None:
            finish_reason = plain_text(finish_reason, "LlmResponse.finish_reason")
        if error_code is not None:
            error_code = plain_text(error_code, "LlmResponse.error_code")
        if error_message is not None:
            error_message = plain_text(error_message, "LlmResponse.error_message")
        if interrupted is not None:
            check_flag(interrupted, "LlmResponse.interrupted")
        if usage_metadata is not None:
            check_kind(usage_metadata, "LlmResponse.usage_metadata", UsageMetadata)
        if custom_metadata is not None:
            custom_metadata = frozen_object(custom_metadata, "custom_metadata")
        if ask_again is not None:
            ask_again = plain_text(ask_again, "LlmResponse.ask_again")
            if partial:
                problem = "expected None in a fragment, found a text; a model can be asked again after its whole answer"
                raise InvalidValueError("LlmResponse.ask_again", problem)
        cls = type(self)
        draft = opened(self)
        draft.content = content
        draft.partial = partial
        draft.turn_complete = turn_complete
        draft.finish_reason = finish_reason
        draft.error_code = error_code
        draft.error_message = error_message
        draft.interrupted = interrupted
        draft.usage_metadata = usage_metadata
        draft.custom_metadata = custom_metadata
        draft.ask_again = ask_again
        draft.__class__ = cls


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LlmCapabilities(Record):
    """
    What a model is able to do; a request asks for no more.

    Args:
        output_schema: It keeps to `config.response_schema`.
        output_schema_and_tools: It does so in a request with tools, too.
    """

    output_schema: bool = True
    output_schema_and_tools: bool = False

    def __attrs_post_init__(self) -> None:
        if self.output_schema_and_tools and not self.output_schema:
            msg = "expected output_schema=True beside output_schema_and_tools=True, found False; set both"
            raise ConfigurationError(msg)


class BaseLlm(ABC):
    """
    A model. One object may serve concurrent requests.

    `name` is what events and errors call it. `capabilities` is what it is able to do; a subclass or an object whose
    model is able to do less, or more, sets its own.
    """

    name: str = "model"
    capabilities: LlmCapabilities = LlmCapabilities()

    @classmethod
    def supported_models(cls) -> list[str]:
        """The names that the class is made for, as regular expressions; see `LLMRegistry.register`."""
        return []

    @abstractmethod
    def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        """
        Answer *request*: an async generator of responses, the last of them complete.

        With *stream* it may yield fragments first, each with `partial=True`; the complete response repeats their
        text. Without, it yields the complete response only.

        It is driven in one task and closed when the run ends early. It must not `yield` inside a nursery or a cancel
        scope that it has opened (https://trio.readthedocs.io, "Cancel scopes and nurseries"); an implementation that
        has to decorates itself with `trio.as_safe_channel`. Exceptions end the run with their own type.
        """
