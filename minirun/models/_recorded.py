"""
A model that is recorded into a JSON file, or replayed from it.

    {"minirun_cassette": 3, "model": NAME, "capabilities": {...}, "exchanges": [
        {"request": {...}, "responses": [{...}, ...], "error": {...}}, ...]}

Rules of this file:

1.  Requests and responses are minirun's own: the file contains no provider format and no key of a provider. The
    secrets that a run knows are removed before a request is compared and before anything is written.
2.  A request is compared as normalized JSON. The normalized form leaves out what never changes a response:
    `http_options`, `labels`, caching, and fields at their default. Ids of calls differ from run to run, so calls are
    numbered in the order of the conversation.
3.  An exchange is recorded when it ends: with a complete response, without one, or with a ModelError (`error`). The
    file is replaced as a whole before the caller gets the complete response or the error. A crash leaves the previous
    file. An exchange that the caller leaves earlier, or that ends with another exception, is not recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import starmap, takewhile, zip_longest
from pathlib import Path
from typing import Any, Literal, NoReturn

import attrs
import trio

from .. import errors
from .._codec import from_dict, to_dict
from .._files import open_private
from .._json import brief, freeze
from ..errors import CassetteError, ConfigurationError, ModelError
from ..flows._no_secrets import OF_RUN, NoSecrets
from ..types import Content, UsageMetadata
from ._base import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse, responses_of

__all__ = ["RecordedLlm"]

VERSION = 3
# Characters of a text that are shown before and from the position where two texts differ.
CHARS_BEFORE, CHARS_SHOWN = 20, 100
_RECORD_AGAIN = "record it again, with mode='record' or `pytest --record-models`"
_TYPES: Mapping[str, type] = {"content": Content, "usage_metadata": UsageMetadata}
_TEXTS = ("content", "error_message", "custom_metadata", "grounding_metadata", "citation_metadata")
_ERROR_FIELDS = ("status", "retry_after_s", "request_id", "has_begun")
_NOTHING: Any = object()


class RecordedLlm(BaseLlm):
    """
    Records the responses of a model, or replays them: the same chunks, or the same ModelError.

    A request is answered by the first unused exchange of an equal request, without waiting. A request without one ends
    the run with a CassetteError, which no hook can replace; the error contains the first difference to the next unused
    exchange.

    Args:
        inner: The model. With `mode="replay"` it is not called and can be None.
        path: The JSON file. Only this user can read it. A replay reads it when the object is made.
        mode: `"replay"` calls no model. `"record"` calls the model for every request and replaces the file.

    Raises:
        ConfigurationError: An argument cannot be used.
        CassetteError: The file does not exist, or is not a cassette of this version.

    Secrets that a run was given are not in the file; see `ctx.request_credential`.
    """

    def __init__(
        self, inner: BaseLlm | None, path: str | os.PathLike[str], mode: Literal["replay", "record"] = "replay"
    ) -> None:
        if mode not in ("replay", "record"):
            raise ConfigurationError(f"expected mode to be 'replay' or 'record', found {brief(mode)}")
        if not isinstance(inner, BaseLlm) and not (inner is None and mode == "replay"):
            msg = f"expected a model (BaseLlm) to record, found {brief(inner)}; only mode='replay' works without one"
            raise ConfigurationError(msg)
        self.inner, self.mode = inner, mode
        self._path = Path(path).absolute()
        self._exchanges: list[dict[str, Any]] = []  # as in the file; a replay has made its responses
        self._unused: dict[int, dict[str, Any]] = {}  # the exchanges that no replay has begun, by number
        if inner is not None and mode == "record":
            self.name, self.capabilities = inner.name, inner.capabilities
        else:
            self.name, self.capabilities = self._read()

    # --- model calls

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the recorded responses of an equal request, or those of the model, which are recorded."""
        secrets = OF_RUN.get()
        normal = _normalized(request, secrets)
        if self.mode == "replay":
            exchange = self._next(normal)
            for response in exchange["responses"]:
                await trio.lowlevel.checkpoint()
                if stream or not response.partial:
                    yield response
            await trio.lowlevel.checkpoint()
            if "error" in exchange:
                raise _error_of(exchange["error"])
            return
        assert self.inner is not None  # __init__ refuses to record without a model
        exchange = {"request": normal, "responses": []}
        try:
            async with aclosing(responses_of(self.inner, request, stream)) as responses:
                async for response in responses:
                    exchange["responses"].append(_response_to_dict(response, secrets))
                    if not response.partial:
                        break
                    yield response
        except ModelError as error:
            self._write({**exchange, "error": _error_to_dict(error, secrets)})
            raise
        self._write(exchange)
        if exchange["responses"] and not response.partial:
            yield response

    def _next(self, normal: dict[str, Any]) -> dict[str, Any]:
        """Use the first unused exchange of an equal request, or raise CassetteError."""
        key = _text_of(normal)
        for number, exchange in self._unused.items():
            if _text_of(exchange["request"]) == key:
                return self._unused.pop(number)
        for number, exchange in self._unused.items():
            found = f"the first difference to exchange {number} is at {_first_difference(exchange['request'], normal)}"
            self._fail(f"it has no such request unused; {found}; {_RECORD_AGAIN}")
        self._fail(f"its {len(self._exchanges)} exchanges are used, found one more request; {_RECORD_AGAIN}")

    def _fail(self, problem: str, cause: BaseException | None = None) -> NoReturn:
        raise CassetteError(f"the cassette {self._path}: {problem}") from cause

    # --- the file

    def _read(self) -> tuple[str, LlmCapabilities]:
        """Read the file, and return the name and the capabilities of the recorded model."""
        try:
            head = json.loads(self._path.read_bytes())
            if head["minirun_cassette"] != VERSION:
                raise ValueError(f"version {brief(head['minirun_cassette'])}, expected {VERSION}")
            for exchange in head["exchanges"]:
                if not isinstance(exchange["request"], dict):
                    raise ValueError(f"exchange {len(self._exchanges) + 1} without a request")
                exchange["responses"] = [_response_of(fields) for fields in exchange["responses"]]
                if "error" in exchange:
                    _error_of(exchange["error"])
                self._exchanges.append(exchange)
            self._unused = dict(enumerate(self._exchanges, 1))
            return head["model"], LlmCapabilities(**head["capabilities"])
        except FileNotFoundError:
            self._fail("found no such file; record it, with mode='record' or `pytest --record-models`, and keep it")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = f"expected a cassette, found another file ({type(error).__name__}: {brief(str(error), 200)})"
            self._fail(f"{problem}; {_RECORD_AGAIN}", error)

    def _write(self, *ended: dict[str, Any]) -> None:
        self._exchanges += ended
        head = {"minirun_cassette": VERSION, "model": self.name, "capabilities": attrs.asdict(self.capabilities)}
        text = json.dumps({**head, "exchanges": self._exchanges}, indent=1, ensure_ascii=False, allow_nan=False)
        temporary = f"{self._path}.tmp"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                # UTF-8 cannot encode half of a surrogate pair, which a text can contain: it becomes its JSON escape.
                file.write(f"{text}\n".encode("utf-8", "backslashreplace"))
            os.replace(temporary, self._path)
        except OSError as error:
            self._fail(f"it cannot be written: {error}; let this user write it, and check the disk", error)

    def close(self) -> None:
        """Write the file, also if no request did. Later requests are still recorded."""
        if self.mode == "record":
            self._write()

    async def aclose(self) -> None:
        """Close the file, as `close` does, and the model."""
        self.close()
        if self.inner is not None:
            await self.inner.aclose()

    def assert_done(self) -> None:
        """
        Check that a replay has used every exchange of the file.

        Raises:
            CassetteError: Exchanges are left over.
        """
        for number in self._unused:
            count = f"{len(self._unused)} of {len(self._exchanges)} exchanges are left over"
            self._fail(f"{count}, the first is exchange {number}; {_RECORD_AGAIN}")


# --- requests ---------------------------------------------------------------------------------------------------------


def _normalized(request: LlmRequest, secrets: NoSecrets) -> dict[str, Any]:
    """
    Return what two runs of one program have in common of a request, as JSON without secrets.

    Raises:
        SecretError: A secret is a key of an object, where it cannot be removed.
    """
    config = attrs.asdict(request.config, filter=_is_given)  # fields at their default: a new setting changes no request
    for name in ("http_options", "labels"):
        config.pop(name, None)
    contents = [to_dict(content) for content in request.contents]
    numbers: dict[str, str] = {}
    for part in (part for content in contents for part in content.get("parts", ())):
        for payload in (part.get("function_call"), part.get("function_response")):
            if payload is not None and payload.get("id") is not None:
                payload["id"] = numbers.setdefault(payload["id"], f"call {len(numbers) + 1}")
    normal = {"model": request.model, "config": config, "contents": contents}
    secrets.check_keys(normal, "request")
    cleaned: dict[str, Any] = secrets.out_of(normal)
    return cleaned


def _text_of(normal: dict[str, Any]) -> str:
    return json.dumps(normal, sort_keys=True, allow_nan=False)


def _is_given(field: attrs.Attribute[Any], value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return bool(value) or bool(field.default)
    return type(value) is not type(field.default) or bool(value != field.default)


def _first_difference(old: Any, new: Any, path: str = "") -> str:
    """Return the path of the first difference between two JSON values, with both values there, shortened."""
    if isinstance(old, dict) and isinstance(new, dict):
        below = ((old.get(k, _NOTHING), new.get(k, _NOTHING), f"{path}.{k}" if path else k) for k in {**old, **new})
        return next(filter(None, starmap(_first_difference, below)), "")
    if isinstance(old, list) and isinstance(new, list):
        pairs = enumerate(zip_longest(old, new, fillvalue=_NOTHING))
        below = ((before, after, f"{path}[{index}]") for index, (before, after) in pairs)
        return next(filter(None, starmap(_first_difference, below)), "")
    if type(old) is type(new) and old == new:
        return ""
    if isinstance(old, str) and isinstance(new, str):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        old, new = (text[max(0, same - CHARS_BEFORE) :] for text in (old, new))
        path = f"{path}, character {same + 1}"
    shown = ["nothing" if value is _NOTHING else brief(value, CHARS_SHOWN) for value in (old, new)]
    return f"{path}: expected {shown[0]}, found {shown[1]}"


# --- responses and errors ---------------------------------------------------------------------------------------------


def _response_to_dict(response: LlmResponse, secrets: NoSecrets) -> dict[str, Any]:
    given = {field.name: getattr(response, field.name) for field in attrs.fields(LlmResponse)}
    fields = {name: secrets.out_of(v) if name in _TEXTS else v for name, v in given.items() if v is not None}
    return {name: to_dict(value) if name in _TYPES else value for name, value in fields.items()}


def _response_of(fields: Mapping[str, Any]) -> LlmResponse:
    read = {name: from_dict(_TYPES[name], v) if name in _TYPES else freeze(v, name) for name, v in fields.items()}
    return LlmResponse(**read)


def _error_to_dict(error: ModelError, secrets: NoSecrets) -> dict[str, Any]:
    """Return the message, the fields and the nearest class in `minirun.errors` of an error of a model."""
    kind = next(cls.__name__ for cls in type(error).__mro__ if getattr(errors, cls.__name__, None) is cls)
    fields: dict[str, Any] = secrets.out_of({name: getattr(error, name) for name in _ERROR_FIELDS})
    return {"type": kind, "message": secrets.text_of(error), **fields}


def _error_of(fields: Mapping[str, Any]) -> ModelError:
    kind = getattr(errors, fields["type"])
    if not issubclass(kind, ModelError):
        raise ValueError(f"error {brief(fields)} of an unknown type")
    error: ModelError = kind(fields["message"], **{name: fields[name] for name in _ERROR_FIELDS})
    return error
