"""What a model is to minirun: one method, an async generator of responses, and a word on what it is able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import attrs

from .._arguments import refuse_unknown
from .._fields import EMPTY_LIST, FLAG, NAMES, OBJECT, TEXT, checked, instance_of, integer, number
from .._json import COUNT_MAX
from .._record import Record
from .._values import check_in_subclass, constructed
from ..errors import ConfigurationError, InvalidValueError, NotSupportedError
from ..types import Content, GenerateContentConfig, Transcription, UsageMetadata

if TYPE_CHECKING:
    from .._live_types import LiveResumption
    from ._cache_config import ContextCacheConfig
    from ._live import BaseLlmConnection, LiveConnectConfig

__all__ = ["BaseLlm", "LlmCapabilities", "LlmRequest", "LlmResponse", "responses_of"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LlmRequest(Record):
    """
    What a model is asked.

    `contents` is a read-only view of the conversation; later requests share it, so keeping a request costs nothing.
    `config` holds the system instruction, the tools and how to answer.

    Requests of one agent in one session are stable: the tools and the system instruction stay equal, and the contents
    of each begin with those of the one before, until a compaction, a rewind, or a value in the instruction changes
    them. `cache_config` says that the provider is to use that, and `cache_key` is the same for all requests that share
    a beginning; both are None unless the app has a `context_cache_config`. `cache_metadata` is what the log has of the
    provider's cache: the `custom_metadata["context_cache"]` of the agent's last answer that had one. `live` is how to
    converse, in what `BaseLlm.connect` is given.
    """

    contents: Sequence[Content]
    config: GenerateContentConfig = attrs.field(factory=GenerateContentConfig)
    model: str | None = None
    cache_config: ContextCacheConfig | None = None
    cache_key: str | None = None
    cache_metadata: Mapping[str, Any] | None = None
    live: LiveConnectConfig | None = None


def _resumption(value: object, path: str) -> object:
    from .._live_types import LiveResumption  # only live connections say so

    return instance_of(LiveResumption)["check"](value, path)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class LlmResponse(Record):
    """
    What a model answers: fragments with `partial=True`, if it was asked to stream, then one complete response.

    `model_version` is the model that has answered, as its provider calls it; `grounding_metadata` and
    `citation_metadata` say what the answer rests on, as JSON objects of the provider's form. The event has them, too.

    With an `error_code` it is the model's own way to say that there is no answer; it ends the turn. Calls in it are
    neither made nor stored: they may be half.

    `finish_reason` says why the model has stopped, in the words of `minirun.types.FinishReason`: of an answer that the
    limit of tokens has cut off (`MAX_TOKENS`) no call is made. `model_version` is which model has answered, as the
    provider calls it; `response_id` and `request_id` are the provider's names for the answer and for the question;
    `grounding_metadata` and `citation_metadata` are what it says of its sources, as JSON.

    With `ask_again`, which hooks set, it is no answer, whatever it says: what it says is stored, as an error, without
    the calls that it makes. Then the model is told that text, by the user's side, and asked once more. It counts as a
    question for `RunConfig.max_llm_calls`. In one run of an agent it is asked again `ask_again_max` times at most, by
    default as often as its `output_retries` says; then the run fails with OutputSchemaError.

    What follows `ask_again_max` is said by live connections only; see `BaseLlmConnection.receive`.
    """

    content: Content | None = attrs.field(default=None, metadata=instance_of(Content))
    partial: bool | None = attrs.field(default=None, metadata=FLAG)
    turn_complete: bool | None = attrs.field(default=None, metadata=FLAG)
    finish_reason: str | None = attrs.field(default=None, metadata=TEXT)
    error_code: str | None = attrs.field(default=None, metadata=TEXT)
    error_message: str | None = attrs.field(default=None, metadata=TEXT)
    interrupted: bool | None = attrs.field(default=None, metadata=FLAG)
    usage_metadata: UsageMetadata | None = attrs.field(default=None, metadata=instance_of(UsageMetadata))
    custom_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    model_version: str | None = attrs.field(default=None, metadata=TEXT)
    response_id: str | None = attrs.field(default=None, metadata=TEXT)
    request_id: str | None = attrs.field(default=None, metadata=TEXT)
    grounding_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    citation_metadata: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    ask_again: str | None = attrs.field(default=None, validator=check_in_subclass, metadata=TEXT)
    ask_again_max: int | None = attrs.field(default=None, metadata=integer(0, COUNT_MAX))
    item_id: str | None = attrs.field(default=None, metadata=TEXT)
    input_transcription: Transcription | None = attrs.field(default=None, metadata=instance_of(Transcription))
    output_transcription: Transcription | None = attrs.field(default=None, metadata=instance_of(Transcription))
    generation_complete: bool | None = attrs.field(default=None, metadata=FLAG)
    speech_started: bool | None = attrs.field(default=None, metadata=FLAG)
    speech_stopped: bool | None = attrs.field(default=None, metadata=FLAG)
    cancelled_calls: Sequence[str] = attrs.field(default=EMPTY_LIST, metadata=NAMES)
    go_away_s: float | None = attrs.field(default=None, metadata=number(0))
    resumption: LiveResumption | None = attrs.field(default=None, metadata=checked(_resumption))

    def _check_whole(self) -> None:
        if self.ask_again is not None and self.partial:
            problem = "expected None in a fragment, found a text; a model can be asked again after its whole answer"
            raise InvalidValueError("LlmResponse.ask_again", problem)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LlmCapabilities(Record):
    """
    What a model is able to do; a request asks for no more.

    Args:
        output_schema: It keeps to `config.response_schema`.
        output_schema_and_tools: It does so in a request with tools, too.
        media_in_tool_results: It sees images, sounds and files in what tools have answered.
    """

    output_schema: bool = True
    output_schema_and_tools: bool = False
    media_in_tool_results: bool = False

    def __attrs_post_init__(self) -> None:
        if self.output_schema_and_tools and not self.output_schema:
            msg = "expected output_schema=True beside output_schema_and_tools=True, found False; set both"
            raise ConfigurationError(msg)


@refuse_unknown
class BaseLlm(ABC):
    """
    A model. One object may serve concurrent requests.

    `name` is what events and errors call it. `capabilities` is what it is able to do; a subclass or an object whose
    model is able to do less, or more, sets its own.

    Args:
        model: Which model it is, for classes that serve several; it is the `name`, too. `LLMRegistry` gives it.
    """

    name: str = "model"
    model: str | None = None
    capabilities: LlmCapabilities = LlmCapabilities()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unknown(cls)

    def __init__(self, *, model: str | None = None) -> None:
        if model is not None:
            self.model = self.name = model

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

    def connect(self, request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        """
        Converse: `async with model.connect(request) as connection`, see `BaseLlmConnection`.

        The request's `config` has the instruction and the tools, its `live` how to converse; its `contents` are not
        sent. Entering returns when the server has accepted it; leaving closes the connection.

        Raises:
            NotSupportedError: The model does not converse.
            ModelError: There is no connection; the subclass says why.
        """
        msg = f"the model {self.name!r} ({type(self).__name__}) has no live connection; use one that has"
        raise NotSupportedError(msg)

    async def aclose(self) -> None:
        """
        Give back what it holds, such as connections; a Runner that is closed calls this for the models of its app.

        Another Runner may use the same model: requests that are going on go on, and the next one is served, too.
        """


def responses_of(model: BaseLlm, request: LlmRequest, stream: bool) -> AsyncGenerator[LlmResponse, None]:
    """
    Ask *model*.

    Raises:
        ModelContractError: Its method is no async generator.
    """
    responses = model.generate_content_async(request, stream)
    if not hasattr(responses, "__anext__"):
        from ._breaches import no_generator  # a mistake in a program

        raise no_generator(model, responses)
    return responses
