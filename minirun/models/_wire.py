"""
What a wire module is, and what the wire modules share. No I/O here.

A wire module speaks the HTTP API of one provider, as pure functions around one class below `Wire`:

    request   ─ outgoing() ─►  path and JSON body        refuses by name what the API does not have
    answer    ─ Assembler ──►  of a stream the parts to show, event by event; then the one complete LlmResponse
    failure   ─ failure() ──►  an error of `minirun.errors.ModelError`'s family

What was sent by a provider is read forgivingly (unknown fields, events and blocks are read over); what is sent to it is
exact, and media in a history that it has no place for are told in words. The same history always gives the same JSON,
item by item, so that providers can cache its beginning.

A call whose arguments are no JSON object has no `args`, and their text in `args_text`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import attrs

from .._json import brief
from ..errors import (
    ConfigurationError,
    ContextTooLongError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelRequestError,
    ModelTimeoutError,
    NotSupportedError,
)
from ..types import GenerateContentConfig, Part, ThinkingConfig
from ._base import LlmRequest
from ._reading import object_of, printable, text_in
from ._retry_after import retry_after_s

if TYPE_CHECKING:
    from ._assembler import Assembler

__all__ = [
    "Api",
    "Fault",
    "Outgoing",
    "Thinking",
    "Wire",
    "broken_off",
    "choice_of",
    "cut_off",
    "error_of",
    "name_sent",
    "text_of_other",
    "text_of_unseen",
    "thinking_of",
]

# What every API has. The timeout is the transport's, and `extra_body` goes through as it is.
_EVERYWHERE = frozenset({"system_instruction", "tools", "max_output_tokens", "http_options", "extra_body"})

# How providers say that a conversation is too long, in codes and in words.
_TOO_LONG = re.compile(
    r"context_length_exceeded|prompt is too long|maximum context length|context window|input token count|"
    r"exceeds? the (?:available )?context|too many (?:input )?tokens|request_too_large|string_above_max_length",
    re.IGNORECASE,
)
# Finish reasons of a response that broke off because the server lost the model behind it. OpenRouter, Mistral and vLLM
# send `error`, vLLM and SGLang `abort`, DeepSeek `insufficient_system_resource`, GLM `network_error`.
_LOST = re.compile(r".*error.*|abort|cancell?ed|insufficient_system_resource", re.IGNORECASE | re.DOTALL)
# What OpenAI and Anthropic take as the name of a tool; 64 is the lesser of their limits.
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
NAME_CHARS_MAX = 64
_POLICY = re.compile(
    r"content_policy|content_filter|safety_violation|responsible_ai|policy_violation|bio_policy|usage policy",
    re.IGNORECASE,
)
# Of a key that is wrong, where the status is that of any bad request.
_KEY = re.compile(r"API_KEY_INVALID|invalid_api_key")


class Outgoing(NamedTuple):
    """A request as it is sent: the path below the base URL, the JSON body, and headers that this API wants."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]


class Fault(NamedTuple):
    """What a provider says of a failure: its code, its words, and the status that it stands for, if it says so."""

    code: str
    message: str
    status: int | None = None
    retry_after_s: float | None = None


class Api:
    """
    The API of one provider: the settings that it has.

    Args:
        ignore: Settings of a request that are left out instead of being refused where the API does not have them.

    Raises:
        ConfigurationError: There are no such settings.
    """

    api: ClassVar[str]  # what its errors call it
    settings: ClassVar[frozenset[str]]  # the fields of GenerateContentConfig that the API has, beside those of all
    more_settings: ClassVar[frozenset[str]] = frozenset()  # what else can be ignored

    def __init__(self, ignore: Collection[str] = ()) -> None:
        self.ignore = _checked_ignore(ignore, self.more_settings)

    def check_settings(self, config: GenerateContentConfig) -> None:
        """Raise NotSupportedError for the first setting that the API does not have and that is not ignored."""
        for field in attrs.fields(type(config)):
            name = field.name
            if name in _EVERYWHERE or name in self.settings or name in self.ignore:
                continue
            if getattr(config, name) != field.default:
                raise self.unsupported(name)

    def unsupported(self, name: str, why: str = "", of: str = "GenerateContentConfig") -> NotSupportedError:
        """The error for a setting, of these settings, that the API does not have."""
        reason = f" ({why})" if why else ""
        offered = [each for each in (name, name.partition(".")[0]) if each in _ignorable(self.more_settings)]
        todo = "leave it out" + (f", or give the model `ignore={{{offered[0]!r}}}`" if offered else "")
        return NotSupportedError(f"{of}.{name} is not supported by {self.api}{reason}; {todo}")

    def leaves_out(self, name: str, why: str = "", of: str = "GenerateContentConfig") -> bool:
        """Whether a setting that the API does not have is ignored; raise NotSupportedError if it is not."""
        if name in self.ignore or name.partition(".")[0] in self.ignore:
            return True
        raise self.unsupported(name, why, of)


class Wire(Api, ABC):
    """What is asked over HTTP, and how the answers are read."""

    provider: ClassVar[str]  # whose seals it reads
    request_id_header: ClassVar[str]

    @abstractmethod
    def headers(self, key: str | None) -> dict[str, str]:
        """The headers of every request, with the key."""

    @abstractmethod
    def outgoing(self, request: LlmRequest, model: str, stream: bool) -> Outgoing:
        """
        Return what is sent for *request*.

        Raises:
            NotSupportedError: The request asks for what the API does not have.
        """

    @abstractmethod
    def assembler(self, shows_thoughts: bool) -> Assembler:
        """Return what puts one answer together, streamed or not."""

    def fault(self, body: Mapping[str, Any]) -> Fault | None:
        """Return what the body of a response, or an event of a stream, says of a failure; None: it is none."""
        error = body.get("error")
        if error in (None, "", False):
            return None
        return self.fault_in(error) if isinstance(error, Mapping) else Fault("", str(error))

    @abstractmethod
    def fault_in(self, error: Mapping[str, Any]) -> Fault:
        """Return what an `error` object says."""

    def check_finish(self, reason: object, error: object = None) -> None:
        """
        Check that a response is complete.

        Args:
            reason: The provider's finish reason.
            error: The `error` of the same object.

        Raises:
            ModelError: There is an error. Without a status or a known code it is a ModelOverloadedError.
        """
        if error:
            fault = self.fault({"error": error})
            assert fault is not None, "an error is one"
            raise error_of(fault, fault.status or 500, {}, "")
        if _LOST.fullmatch(text_in(reason)):
            raise broken_off(text_in(reason))

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        """Return the error for a response whose status is no success."""
        fault = self.fault(object_of(body)) or Fault("", body[:500].decode("utf-8", "replace").strip())
        return error_of(fault, status, headers, self.request_id_header)


def _checked_ignore(ignore: Collection[str], more: frozenset[str]) -> frozenset[str]:
    is_fine = isinstance(ignore, Collection) and not isinstance(ignore, str)
    if not is_fine or not all(isinstance(name, str) for name in ignore):
        raise ConfigurationError(f"expected ignore to be a set of names of settings, found {brief(ignore)}")
    for name in ignore:
        if name not in _ignorable(more):
            names = {each for each in _ignorable(more) if not each.startswith("thinking_config.")}
            msg = f"expected ignore to name settings of GenerateContentConfig ({', '.join(sorted(names))})"
            raise ConfigurationError(f"{msg}, found {brief(name)}")
    return frozenset(ignore)


def _ignorable(more: frozenset[str]) -> set[str]:
    """What `ignore` may name, of which *more* are no settings of GenerateContentConfig."""
    names = {field.name for field in attrs.fields(GenerateContentConfig)}
    return names | {f"thinking_config.{field.name}" for field in attrs.fields(ThinkingConfig)} | more


# --- what is said in other words --------------------------------------------------------------------------------------


def text_of_other(part: Part) -> str | None:
    """The text that tells a model of code, its result, or of media where the API cannot show them; None: none."""
    if part.text is not None:
        return part.text
    if part.executable_code is not None:
        code = part.executable_code
        return f"```{(code.language or '').lower()}\n{code.code}\n```"
    if part.code_execution_result is not None:
        return f"```\n{part.code_execution_result.output or part.code_execution_result.outcome or ''}\n```"
    if part.inline_data is not None or part.file_data is not None:
        return text_of_unseen(part)
    return None


def text_of_unseen(part: Part) -> str:
    """
    The text that tells a model of media that it is not shown, because the API has no place for them.

    They are in the log for good. If they were refused instead, so would be every later request of the session.
    """
    if part.file_data is not None:
        return f"[the file {part.file_data.file_uri}, which you are not shown]"
    assert part.inline_data is not None, "it is one of the two"
    blob = part.inline_data
    name = f" named {blob.display_name!r}" if blob.display_name else ""
    kind = f" of type {blob.mime_type}" if blob.mime_type else ""
    return f"[a file{kind}{name}, which you are not shown]" if blob.data else f"[an empty file{kind}{name}]"


def name_sent(name: str) -> str:
    """
    Return the name of a call as providers take it.

    A model may have called what no tool can be named, or another provider's model what only that one takes. The call
    has failed, but it stays in the history, and one such name would have every later request refused.
    """
    return _NOT_IN_NAMES.sub("_", name)[:NAME_CHARS_MAX] or "_"


class Choice(NamedTuple):
    """How tools are to be called: ADK's mode, and the only tools that may be."""

    mode: str
    names: tuple[str, ...]


def choice_of(config: GenerateContentConfig) -> Choice | None:
    """Return how the model is to choose among its tools; None: it has none, or is not told."""
    calling = config.tool_config.function_calling_config if config.tool_config is not None else None
    if calling is None or not config.tools:
        return None
    return Choice(calling.mode, tuple(calling.allowed_function_names))


class Thinking(NamedTuple):
    """A ThinkingConfig as its three fields; all None where there is none."""

    is_shown: bool | None = None
    budget: int | None = None
    level: str | None = None


def thinking_of(config: GenerateContentConfig) -> Thinking:
    """Return how much the model is to think."""
    thinking = config.thinking_config
    if thinking is None:
        return Thinking()
    return Thinking(thinking.include_thoughts, thinking.thinking_budget, thinking.thinking_level)


# --- failures ---------------------------------------------------------------------------------------------------------


def error_of(fault: Fault, status: int, headers: Mapping[str, str], request_id_header: str) -> ModelError:
    """Return the error that a provider's failure is."""
    kind = _kind_of(fault, status)
    named = f" ({fault.code})" if fault.code else ""
    message = printable(f"the provider answered with status {status}{named}: {fault.message or 'it gives no reason'}")
    wait_s = retry_after_s(headers)
    return kind(
        message,
        status=status,
        retry_after_s=fault.retry_after_s if wait_s is None else wait_s,
        request_id=headers.get(request_id_header),
    )


def _kind_of(fault: Fault, status: int) -> type[ModelError]:
    said = f"{fault.code} {fault.message}"
    if status == 429:
        return ModelRateLimitedError
    if status in (401, 403) or _KEY.search(fault.code):
        return ModelAuthenticationError
    if status == 408:
        return ModelTimeoutError
    # before 500: some servers say so with it, and errors in a stream have no status
    if status == 413 or _TOO_LONG.search(said):
        return ContextTooLongError
    if status >= 500:
        return ModelOverloadedError
    if _POLICY.search(said):
        return ModelRefusedError
    return ModelRequestError if 300 <= status < 500 else ModelError


def broken_off(reason: str) -> ModelError:
    """The error for a response that ended before the answer did, with the provider's reason."""
    return error_of(Fault(reason, "the response broke off"), 500, {}, "")


def cut_off() -> ModelConnectionError:
    """The error for a stream that ended before the answer did."""
    return ModelConnectionError("expected the stream to go on to the end of the answer, found it cut off")
