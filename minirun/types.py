"""
What models, users and tools say to each other: `Content` made of `Part`s.

These are values: frozen, compared by content, safe to share between sessions, prompts and events. They carry the
names that `google.genai.types` gives them. Fields that a later version writes and this one does not know are kept in
`unknown_fields` and written back as they were.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ._fields import EMPTY_LIST, FLAG, OBJECT, TEXT, checked, instance_of, integer, is_list, number
from ._json import COUNT_MAX, EMPTY_DICT, FrozenTuple, brief, shown
from ._lazy import names_of
from ._values import Memoized, Value, check_in_subclass, constructed, unknown_field
from .errors import InvalidValueError

if TYPE_CHECKING:  # what the table below names, for type checkers; each module lists its own
    from ._genai import *
    from ._live_types import *
    from ._request_types import *
    from .events import Event
else:
    __getattr__, __dir__, _ = names_of(
        globals(),
        {
            "minirun._genai": "FinishReason ModelContent Schema Type UserContent",
            "minirun._live_types": "ActivityEnd ActivityHandling ActivityStart AudioTranscriptionConfig "
            "AutomaticActivityDetection ContextWindowCompressionConfig EndSensitivity "
            "Modality PrebuiltVoiceConfig RealtimeInputConfig SessionResumptionConfig "
            "SlidingWindow SpeechConfig StartSensitivity TurnCoverage VoiceConfig",
            "minirun._request_types": "FunctionCallingConfig HttpOptions SafetySetting ThinkingConfig ToolConfig",
        },
    )

__path__: list[str] = []  # so that an import of a name that is not here is told why: see `_adk`

__all__ = [
    "ActivityEnd", "ActivityHandling", "ActivityStart", "AudioTranscriptionConfig", "AutomaticActivityDetection",
    "Blob", "CodeExecutionResult", "Content", "ContextWindowCompressionConfig", "EndSensitivity", "ExecutableCode",
    "FileData", "FinishReason", "FunctionCall", "FunctionCallingConfig", "FunctionDeclaration", "FunctionResponse",
    "GenerateContentConfig", "HttpOptions", "Modality", "ModelContent", "Part", "PrebuiltVoiceConfig",
    "RealtimeInputConfig", "SafetySetting", "Schema", "SessionResumptionConfig", "SlidingWindow",
    "SpeechConfig", "StartSensitivity", "ThinkingConfig", "ToolConfig", "Transcription", "TurnCoverage", "Type",
    "UsageMetadata", "UserContent", "VoiceConfig",
]


def _bytes(value: object, path: str) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):  # JSON has no bytes: there they are base64
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise InvalidValueError(path, f"expected base64, found {brief(value, 40)} ({error})") from None
    raise InvalidValueError(path, f"expected bytes, found {type(value).__name__}")


_BYTES = checked(_bytes, "bytes")


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class Blob(Value):
    """Bytes and what they are (`image/png`). In JSON the bytes are base64."""

    data: bytes = attrs.field(metadata=_BYTES)
    mime_type: str = attrs.field(metadata=TEXT)
    display_name: str | None = attrs.field(default=None, metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class FileData(Value):
    """A file that lies elsewhere, by its URI."""

    file_uri: str = attrs.field(metadata=TEXT)
    mime_type: str | None = attrs.field(default=None, metadata=TEXT)
    display_name: str | None = attrs.field(default=None, metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class FunctionCall(Value):
    """
    What a model asks for. `id` is None until the call is emitted; then it matches `[A-Za-z0-9_-]{1,40}`.

    `args_text` is set by adapters where the arguments, as the model wrote them, are no JSON object: `args` is empty
    then, and the call is not made, but answered with an error that says so.
    """

    name: str = attrs.field(metadata=TEXT)
    args: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    id: str | None = attrs.field(default=None, metadata=TEXT)
    args_text: str | None = attrs.field(default=None, metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class FunctionResponse(Value):
    """
    What a tool answered. `id` is that of the call; an answer that holds the key `error` is a failure.

    `parts` are images, sounds and files that belong to the answer: parts with `inline_data` or `file_data`.
    """

    name: str = attrs.field(metadata=TEXT)
    response: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, metadata=OBJECT)
    id: str | None = attrs.field(default=None, metadata=TEXT)
    parts: Sequence[Part] = attrs.field(default=EMPTY_LIST, metadata=checked(lambda value, path: _media(value, path)))
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class ExecutableCode(Value):
    """Code that a model wants to be run."""

    code: str = attrs.field(metadata=TEXT)
    language: str | None = attrs.field(default=None, metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class CodeExecutionResult(Value):
    """What running the code gave."""

    outcome: str | None = attrs.field(default=None, metadata=TEXT)
    output: str | None = attrs.field(default=None, metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()


_PAYLOADS = (
    "text", "inline_data", "file_data", "function_call", "function_response", "executable_code",
    "code_execution_result",
)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class Part(Value):
    """
    One piece of a message; it has exactly one payload.

    `thought` marks text that a model thought rather than said; `thought_signature` is the provider's seal on it.
    """

    text: str | None = attrs.field(default=None, metadata=TEXT)
    thought: bool | None = attrs.field(default=None, metadata=FLAG)
    thought_signature: bytes | None = attrs.field(default=None, metadata=_BYTES)
    inline_data: Blob | None = attrs.field(default=None, metadata=instance_of(Blob))
    file_data: FileData | None = attrs.field(default=None, metadata=instance_of(FileData))
    function_call: FunctionCall | None = attrs.field(default=None, metadata=instance_of(FunctionCall))
    function_response: FunctionResponse | None = attrs.field(default=None, metadata=instance_of(FunctionResponse))
    executable_code: ExecutableCode | None = attrs.field(default=None, metadata=instance_of(ExecutableCode))
    code_execution_result: CodeExecutionResult | None = attrs.field(
        default=None, metadata=instance_of(CodeExecutionResult)
    )
    unknown_fields: Mapping[str, Any] = unknown_field()

    @classmethod
    def from_text(cls, *, text: str) -> Part:
        """Make a part of a text."""
        return Part(text=text)

    @classmethod
    def from_bytes(cls, *, data: bytes, mime_type: str) -> Part:
        """Make a part of bytes, and of what they are."""
        return Part(inline_data=Blob(data=data, mime_type=mime_type))

    @classmethod
    def from_uri(cls, *, file_uri: str, mime_type: str | None = None) -> Part:
        """Make a part of a file that lies elsewhere."""
        return Part(file_data=FileData(file_uri=file_uri, mime_type=mime_type))

    @classmethod
    def from_function_call(cls, *, name: str, args: Mapping[str, Any]) -> Part:
        """Make a part of what a model asks for."""
        return Part(function_call=FunctionCall(name=name, args=args))

    @classmethod
    def from_function_response(cls, *, name: str, response: Mapping[str, Any]) -> Part:
        """Make a part of what a tool answered."""
        return Part(function_response=FunctionResponse(name=name, response=response))

    def _check_whole(self) -> None:
        count = (self.text is not None) + (self.inline_data is not None) + (self.file_data is not None)
        count += (self.function_call is not None) + (self.function_response is not None)
        count += (self.executable_code is not None) + (self.code_execution_result is not None)
        if count == 1:
            return
        found = [name for name in _PAYLOADS if getattr(self, name) is not None]
        if not found and (self.unknown_fields or self.thought_signature is not None):
            return
        problem = f"expected exactly one of {', '.join(_PAYLOADS)}, found {' and '.join(found) or 'none'}"
        raise InvalidValueError("Part", problem)


def _parts(value: object, path: str) -> tuple[Part, ...]:
    if value is None:
        return EMPTY_LIST
    if not is_list(value):
        problem = f"expected a list of Part, found {type(value).__name__}; write [Part(text=...)]"
        raise InvalidValueError(path, problem)
    parts = list(value)
    for index, part in enumerate(parts):
        if not isinstance(part, Part):
            parts[index] = _part(part, f"{path}[{index}]")
    return FrozenTuple(parts)


def _media(value: object, path: str) -> tuple[Part, ...]:
    from ._request_types import check_media  # few tools return media

    parts = _parts(value, path)
    check_media(parts, path)
    return tuple(parts)  # by its class the codec knows what is in it, although a part may hold itself here


def _parts_of(value: Sequence[Part | dict[str, Any]] | None) -> tuple[Part, ...]:
    return _parts(value, "Content.parts")  # by its type mypy knows what the field takes


# The fields of a part that are values themselves.
_VALUES = {
    "inline_data": Blob,
    "file_data": FileData,
    "function_call": FunctionCall,
    "function_response": FunctionResponse,
    "executable_code": ExecutableCode,
    "code_execution_result": CodeExecutionResult,
}


def _part(value: object, path: str) -> Part:
    """Make the part that a dict of its fields says."""
    if not isinstance(value, dict):
        raise InvalidValueError(path, f"expected a Part, found {type(value).__name__}")
    try:
        return Part(**{key: _VALUES[key](**it) if isinstance(it, dict) else it for key, it in value.items()})
    except (KeyError, TypeError):  # a name that is no field, or one that must be there is not
        raise InvalidValueError(path, f"expected a Part, or its fields in a dict, found {shown(value)}") from None


def id_of(stored: FunctionCall | FunctionResponse | Event) -> str:
    """The id of what is stored: its type says None, too, for what is only made has none yet; that is "" here."""
    return stored.id or ""


NO_CALLS: tuple[tuple[FunctionCall, ...], tuple[FunctionResponse, ...]] = ((), ())


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class Content(Memoized):
    """What one side said, as parts. `role` is `user` (also for tools' answers) or `model`."""

    parts: Sequence[Part] = attrs.field(default=EMPTY_LIST, converter=_parts_of, metadata=checked(_parts))
    role: str | None = attrs.field(default=None, metadata=TEXT)
    unknown_fields: Mapping[str, Any] = unknown_field()

    @property
    def text(self) -> str:
        """The text parts joined, thoughts left out."""
        return "".join(part.text for part in self.parts if part.text and not part.thought)

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The function calls in it, in order."""
        return self.calls_and_responses[0]

    @property
    def responses(self) -> tuple[FunctionResponse, ...]:
        """The function responses in it, in order."""
        return self.calls_and_responses[1]

    @property
    def calls_and_responses(self) -> tuple[tuple[FunctionCall, ...], tuple[FunctionResponse, ...]]:
        """Both, each in order. The parts are scanned once; most contents have neither, and share one empty pair."""
        try:
            found: tuple[tuple[FunctionCall, ...], tuple[FunctionResponse, ...]] = self._memo
        except AttributeError:
            calls: list[FunctionCall] = []
            responses: list[FunctionResponse] = []
            for part in self.parts:
                if part.function_call is not None:
                    calls.append(part.function_call)
                elif part.function_response is not None:
                    responses.append(part.function_response)
            found = (tuple(calls), tuple(responses)) if calls or responses else NO_CALLS
            object.__setattr__(self, "_memo", found)
        return found


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class Transcription(Value):
    """What was spoken, as text: a piece of it, the last of which is `finished`; in stored events all of it."""

    text: str | None = attrs.field(default=None, metadata=TEXT)
    finished: bool | None = attrs.field(default=None, metadata=FLAG)
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class UsageMetadata(Value):
    """
    Token counts, as far as the provider has told them; None: it has not.

    Adapters normalise them: `prompt` counts all input tokens, also those that were read from a cache (`cached_content`)
    or written to one (`cache_write`); `candidates` and `thoughts` together are all output tokens.
    """

    prompt_token_count: int | None = attrs.field(default=None, metadata=integer())
    candidates_token_count: int | None = attrs.field(default=None, metadata=integer())
    total_token_count: int | None = attrs.field(default=None, metadata=integer())
    cached_content_token_count: int | None = attrs.field(default=None, metadata=integer())
    thoughts_token_count: int | None = attrs.field(default=None, metadata=integer())
    tool_use_prompt_token_count: int | None = attrs.field(default=None, metadata=integer())
    cache_write_token_count: int | None = attrs.field(default=None, metadata=integer())
    unknown_fields: Mapping[str, Any] = unknown_field()


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class FunctionDeclaration(Value):
    """
    A tool as a model sees it: `parameters` is a JSON schema of type object.

    `behavior` is for live connections: `NON_BLOCKING` where the model is to go on while the tool runs.
    """

    name: str = attrs.field(metadata=TEXT)
    description: str = attrs.field(default="", metadata=TEXT)
    parameters: Mapping[str, Any] = attrs.field(default=EMPTY_DICT, validator=check_in_subclass, metadata=OBJECT)
    behavior: str | None = attrs.field(default=None, metadata=TEXT)


def declarations(value: object, path: str = "GenerateContentConfig.tools") -> tuple[FunctionDeclaration, ...]:
    """Return what the field `tools` holds; raise InvalidValueError if it cannot."""
    if not is_list(value):
        raise InvalidValueError(path, f"expected a list of FunctionDeclaration, found {shown(value)}")
    tools = FrozenTuple(value)
    for index, tool in enumerate(tools):
        if not isinstance(tool, FunctionDeclaration):
            problem = f"expected a FunctionDeclaration, found {shown(tool)}; a tool has one, its `declaration`"
            raise InvalidValueError(f"{path}[{index}]", problem)
    return tools


def _instruction(value: object, path: str) -> str:
    if isinstance(value, Content) and value.parts and all(part.text is not None for part in value.parts):
        value = "\n\n".join(part.text for part in value.parts if part.text)
    text: str = TEXT["check"](value, path)
    return text


def _given(value: object, path: str) -> Any:
    from ._request_types import CHECKS  # few requests have such settings

    return CHECKS[path.rpartition(".")[2]](value, path)


_GIVEN = checked(_given)


@constructed
@attrs.frozen(kw_only=True, weakref_slot=False, eq=False, repr=False)
class GenerateContentConfig(Value):
    """
    What goes to a model beside the contents. None leaves the choice to the provider.

    Bounds are checked where they are the same for every provider; what a provider makes of the rest is its own.

    Args:
        system_instruction: What the model is told before the conversation: a text, or a Content of texts.
        tools: What the model may call.
        temperature: How freely it chooses its words, from 0.
        top_p: It chooses among the likeliest tokens that together have this probability, 0 to 1.
        top_k: It chooses among this many of the likeliest tokens.
        max_output_tokens: Where the answer is cut off, in tokens, from 1.
        stop_sequences: Texts that end the answer where they would come next.
        presence_penalty: How much tokens that were used are avoided, at once.
        frequency_penalty: How much tokens that were used are avoided, with every use.
        seed: The same seed asks for the same answer to the same question; few providers promise it.
        response_mime_type: The format of the answer, such as `application/json`.
        response_schema: The JSON schema of the answer, a dict.
        tool_config: Whether it has to call tools, and which: a ToolConfig.
        thinking_config: How much it thinks before it answers: a ThinkingConfig.
        safety_settings: What the provider blocks: a list of SafetySetting.
        http_options: How long the provider may take: an HttpOptions.
        labels: Names of the request for the provider's books, texts by text.
        cached_content: The provider's name of a prefix that it has cached.
        extra_body: A JSON object whose fields are added to the body of the request, as the provider has them.
    """

    system_instruction: str | None = attrs.field(default=None, metadata=checked(_instruction))
    tools: Sequence[FunctionDeclaration] = attrs.field(default=EMPTY_LIST, metadata=checked(declarations))
    temperature: float | None = attrs.field(default=None, metadata=number(least=0))
    top_p: float | None = attrs.field(default=None, metadata=number(least=0, most=1))
    top_k: int | None = attrs.field(default=None, metadata=integer(most=COUNT_MAX))
    max_output_tokens: int | None = attrs.field(default=None, metadata=integer(least=1, most=COUNT_MAX))
    stop_sequences: Sequence[str] | None = attrs.field(default=None, metadata=_GIVEN)
    presence_penalty: float | None = attrs.field(default=None, metadata=number())
    frequency_penalty: float | None = attrs.field(default=None, metadata=number())
    seed: int | None = attrs.field(default=None, metadata=integer(-COUNT_MAX, COUNT_MAX))
    response_mime_type: str | None = attrs.field(default=None, metadata=TEXT)
    response_schema: Mapping[str, Any] | None = attrs.field(default=None, metadata=OBJECT)
    # The classes of these are loaded when one is given, so that only their checks know them.
    tool_config: Any = attrs.field(default=None, metadata=_GIVEN)
    thinking_config: Any = attrs.field(default=None, metadata=_GIVEN)
    safety_settings: Sequence[Any] | None = attrs.field(default=None, metadata=_GIVEN)
    http_options: Any = attrs.field(default=None, metadata=_GIVEN)
    labels: Mapping[str, str] | None = attrs.field(default=None, metadata=_GIVEN)
    cached_content: str | None = attrs.field(default=None, metadata=_GIVEN)
    extra_body: Mapping[str, Any] | None = attrs.field(default=None, validator=check_in_subclass, metadata=_GIVEN)
