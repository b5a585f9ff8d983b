"""
A model that is recorded into a JSON file, or replayed from it.

    {"minirun_cassette": 2, "model": NAME, "capabilities": {...}, "exchanges": [
        {"request": {...}, "stream": true, "responses": [[SECONDS, {...}], ...], "error": {...}}, ...]}

Rules of this file:

1.  Requests and responses are minirun's own: the file contains no provider format and no key of a provider. The
    secrets that a run knows are removed before a request is compared and before anything is written.
2.  A request is compared as normalized JSON. The normalized form leaves out what never changes a response:
    `http_options`, `labels`, caching, the order of keys and fields at their default. Ids of calls differ from run to
    run, so calls are numbered in the order of the conversation.
3.  The file is replaced as a whole whenever an exchange ends, before the caller gets the complete response. A crash
    leaves the previous file. Exchanges are stored in the order in which their requests were made.
4.  SECONDS is the time from the caller's request for a response to that response. An exchange that ends without a
    complete response has `error`, or `left_after_s` if the caller stopped reading, or neither if the model ended.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Literal, NoReturn

import attrs
import trio

from .. import errors
from .._codec import from_dict, to_dict
from .._files import open_private
from .._json import brief, freeze, is_seconds
from ..errors import CassetteError, ConfigurationError, FatalError, MinirunError, ModelError
from ..flows._no_secrets import OF_RUN, NoSecrets
from ..types import Content, UsageMetadata
from ._base import BaseLlm, LlmCapabilities, LlmRequest, LlmResponse, responses_of

__all__ = ["RecordedLlm"]

VERSION = 2
# Microseconds: finer than the latency of any model, coarser than the rounding of floats.
DIGITS = 6
# A replay waits this long for a caller that stopped reading when the exchange was recorded.
LEAVE_S = 1.0
# Characters of a text that are shown before and from the position where two texts differ.
CHARS_BEFORE, CHARS_SHOWN = 20, 100
_RECORD_AGAIN = "record it again, with mode='record' or `pytest --record-models`"
_TYPES: Mapping[str, type] = {"content": Content, "usage_metadata": UsageMetadata}
_TEXTS = ("content", "error_message", "custom_metadata", "grounding_metadata", "citation_metadata")
_ERROR_FIELDS = ("status", "retry_after_s", "request_id", "has_begun", "path")


class RecordedLlm(BaseLlm):
    """
    Records the responses of a model, or replays them: the same chunks, after the same time, or the same error.

    A request is answered by the first unused exchange of an equal request. A request without one ends the run with a
    CassetteError, which no hook can replace; the error contains the first difference to the next unused exchange.

    Args:
        inner: The model. With `mode="replay"` it is not called and can be None.
        path: The JSON file. Only this user can read it. A replay reads it when the object is made.
        mode: `"replay"` calls no model. `"record"` calls the model for every request; its first request empties the
            file.
        pace: The factor on the recorded times of a replay, on trio's clock: 0.0 replays without waiting.
        repeat: True: a request that comes more often than it was recorded gets the last response again, as a
            simulation needs it after a crash. False: it fails the run.

    Raises:
        ConfigurationError: An argument cannot be used.
        CassetteError: The file does not exist, or is not a cassette of this version.

    Secrets that a run was given are not in the file; see `ctx.request_credential`. A FatalError is not recorded.
    """

    def __init__(
        self,
        inner: BaseLlm | None,
        path: str | os.PathLike[str],
        mode: Literal["replay", "record"] = "replay",
        *,
        pace: float = 1.0,
        repeat: bool = False,
    ) -> None:
        if mode not in ("replay", "record"):
            raise ConfigurationError(f"expected mode to be 'replay' or 'record', found {brief(mode)}")
        if not isinstance(inner, BaseLlm) and not (inner is None and mode == "replay"):
            msg = f"expected a model (BaseLlm) to record, found {brief(inner)}; only mode='replay' works without one"
            raise ConfigurationError(msg)
        if not is_seconds(pace):
            raise ConfigurationError(f"expected pace to be a finite number from 0 up, found {brief(pace)}")
        if not isinstance(repeat, bool):
            raise ConfigurationError(f"expected repeat to be True or False, found {brief(repeat)}")
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            raise ConfigurationError(f"expected the path of a file, found {brief(path)}")
        self.inner, self.mode = inner, mode
        self._path = os.path.abspath(path)
        self._pace, self._repeat = pace, repeat
        self._exchanges: list[dict[str, Any]] = []  # as in the file, in the order of their requests
        self._keys: list[str] = []  # the normalized request of each, as text
        self._ended: set[int] = set()
        self._playing: set[int] = set()
        self._played: set[int] = set()
        self._is_written = False
        if mode == "replay":
            self.name, self.capabilities = self._read()
        self.model = None if inner is None else inner.model
        if inner is not None:
            self.name, self.capabilities = inner.name, inner.capabilities

    # --- model calls

    async def generate_content_async(
        self, request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the recorded responses of an equal request, or those of the model, which are recorded."""
        secrets = OF_RUN.get()
        normal = _normalized(request, secrets)
        responses = (
            self._record(request, normal, stream, secrets)
            if self.mode == "record"
            else self._replay(self._index_of(normal), stream)
        )
        async with aclosing(responses):
            async for response in responses:
                yield response

    async def _record(
        self, request: LlmRequest, normal: dict[str, Any], stream: bool, secrets: NoSecrets
    ) -> AsyncGenerator[LlmResponse, None]:
        assert self.inner is not None  # __init__ refuses to record without a model
        if not self._is_written:
            self._write()  # before the model is called: an unwritable file costs no tokens
        responses: list[Any] = []
        exchange: dict[str, Any] = {"request": normal, "stream": stream, "responses": responses}
        self._exchanges.append(exchange)
        index = len(self._exchanges) - 1
        is_whole, since = False, trio.current_time()
        try:
            async with aclosing(responses_of(self.inner, request, stream)) as answers:
                async for response in answers:
                    responses.append([_seconds_since(since), _response_to_dict(response, secrets)])
                    is_whole = not response.partial
                    if is_whole:
                        self._end(index)
                    since = trio.current_time()  # the caller left at this moment, unless it resumes below
                    yield response
                    if is_whole:
                        return
                    since = trio.current_time()
        except FatalError:
            raise
        except Exception as error:
            if not is_whole:
                self._end(index, error=_error_to_dict(error, secrets), after_s=_seconds_since(since))
            raise
        except BaseException:  # the caller stopped reading
            if not is_whole:
                self._end(index, left_after_s=_seconds_since(since))
            raise
        else:
            self._end(index)

    async def _replay(self, index: int, stream: bool) -> AsyncGenerator[LlmResponse, None]:
        """Yield the responses of an exchange. It is unused again if the caller stops reading earlier than recorded."""
        exchange = self._exchanges[index]
        ends_with_response = "error" not in exchange and "left_after_s" not in exchange
        self._playing.add(index)
        try:
            if "left_after_s" in exchange:
                self._played.add(index)
            for after_s, response in exchange["responses"]:
                await trio.sleep(after_s * self._pace)
                if ends_with_response and response is exchange["responses"][-1][1]:
                    self._played.add(index)
                if stream or not (response.partial and exchange["stream"]):
                    yield response
            if "error" in exchange:
                await trio.sleep(exchange["after_s"] * self._pace)
                self._played.add(index)
                raise _error_of(exchange["error"])
            if "left_after_s" in exchange:
                await trio.sleep(exchange["left_after_s"] * self._pace + LEAVE_S)
                found = f"after {len(exchange['responses'])} responses, where the caller left when it was recorded"
                self._fail(f"exchange {index + 1} ends {found}; {_RECORD_AGAIN}")
            self._played.add(index)
            await trio.lowlevel.checkpoint()
        finally:
            self._playing.discard(index)

    def _index_of(self, normal: dict[str, Any]) -> int:
        """Return the index of the first unused exchange of an equal request, or raise CassetteError."""
        key = _text_of(normal)
        equal = [index for index, other in enumerate(self._keys) if other == key]
        used = self._playing | self._played
        unused = [index for index in equal if index not in used]
        if unused:
            return unused[0]
        if equal and self._repeat:
            return equal[-1]
        if equal:
            again = f"{_RECORD_AGAIN}, or let it answer again (repeat=True)"
            self._fail(f"it has this request {len(equal)} times, found one more; {again}")
        if not self._exchanges:
            self._fail(f"it has no exchange, found a request; {_RECORD_AGAIN}")
        after = next((index for index in range(len(self._exchanges)) if index not in used), len(self._exchanges) - 1)
        difference = _first_difference(self._exchanges[after]["request"], normal)
        problem = f"it has no such request; the first difference to exchange {after + 1} is at {difference}"
        self._fail(f"{problem}; {_RECORD_AGAIN}")

    def _fail(self, problem: str, cause: BaseException | None = None) -> NoReturn:
        raise CassetteError(f"the cassette {self._path}: {problem}") from cause

    # --- the file

    def _read(self) -> tuple[str, LlmCapabilities]:
        """Read the file, and return the name and the capabilities of the recorded model."""
        try:
            with open(self._path, "rb") as file:
                head = json.load(file)
            if head["minirun_cassette"] != VERSION:
                raise ValueError(f"version {brief(head['minirun_cassette'])}, expected {VERSION}")
            for exchange in head["exchanges"]:
                responses = [(after_s, _response_of(fields)) for after_s, fields in exchange["responses"]]
                times = [exchange.get("after_s", 0), exchange.get("left_after_s", 0), *(each for each, _ in responses)]
                if not all(map(is_seconds, times)) or not isinstance(exchange["request"], dict):
                    raise ValueError(f"exchange {len(self._keys) + 1} without a request or times in seconds")
                if "error" in exchange:
                    _error_of(exchange["error"])
                self._exchanges.append({**exchange, "responses": responses})
                self._keys.append(_text_of(exchange["request"]))
            return head["model"], LlmCapabilities(**head["capabilities"])
        except FileNotFoundError:
            self._fail("found no such file; record it, with mode='record' or `pytest --record-models`, and keep it")
        except OSError as error:
            self._fail(f"it cannot be read: {error}; let this user read it", error)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = f"expected a cassette, found another file ({type(error).__name__}: {brief(str(error), 200)})"
            self._fail(f"{problem}; {_RECORD_AGAIN}", error)

    def _end(self, index: int, **end: Any) -> None:
        self._exchanges[index].update(end)
        self._ended.add(index)
        self._write()

    def _write(self) -> None:
        """Replace the file with the exchanges that have ended."""
        assert self.inner is not None  # only a recording writes
        self._is_written = True
        head = {"minirun_cassette": VERSION, "model": self.inner.name}
        head["capabilities"] = attrs.asdict(self.inner.capabilities)
        head["exchanges"] = [self._exchanges[index] for index in sorted(self._ended)]
        text = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False)
        temporary = f"{self._path}.tmp"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                # UTF-8 cannot encode half of a surrogate pair, which a text can contain: it becomes its JSON escape.
                file.write(f"{text}\n".encode("utf-8", "backslashreplace"))
            os.replace(temporary, self._path)
        except OSError as error:
            self._fail(f"it cannot be written: {error}; let this user write it, and check the disk", error)

    def close(self) -> None:
        """Write the file if no request did. Later requests are still recorded."""
        if self.mode == "record" and not self._is_written:
            self._write()

    async def aclose(self) -> None:
        """Close the file, as `close` does, and the model."""
        self.close()
        if self.inner is not None:
            await self.inner.aclose()

    # --- tests

    def restart(self) -> None:
        """Replay from the beginning. A simulation calls this for each process that it starts."""
        self._playing.clear()
        self._played.clear()
        restart = getattr(self.inner, "restart", None)
        if self.mode == "record" and callable(restart):
            restart()

    def assert_done(self) -> None:
        """
        Check that a replay has used every exchange of the file.

        Raises:
            CassetteError: Exchanges are left over.
        """
        left = [index + 1 for index in range(len(self._exchanges)) if index not in self._played]
        if left and self.mode == "replay":
            named = ", ".join(f"exchange {number}" for number in left[:3]) + (", …" if len(left) > 3 else "")
            self._fail(f"{len(left)} of {len(self._exchanges)} exchanges are left over: {named}; {_RECORD_AGAIN}")


def _seconds_since(moment: float) -> float:
    return round(trio.current_time() - moment, DIGITS)


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


def _first_difference(recorded: Any, found: Any) -> str:
    """Return the path of the first difference between two JSON values, with both values there, shortened."""
    for path, old, new in _differences(recorded, found, ""):
        if isinstance(old, str) and isinstance(new, str):
            pairs = enumerate(zip(old, new, strict=False))
            place = next((index for index, (a, b) in pairs if a != b), min(len(old), len(new)))
            start = max(0, place - CHARS_BEFORE)
            return f"{path}, character {place + 1}: expected {_cut(old, start)}, found {_cut(new, start)}"
        shown = ["nothing" if value is _MISSING else brief(value, CHARS_SHOWN) for value in (old, new)]
        return f"{path}: expected {shown[0]}, found {shown[1]}"
    return ""


_MISSING: Any = object()


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(key for key in new if key not in old)):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(old.get(key, _MISSING), new.get(key, _MISSING), below)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before, after = (items[index] if index < len(items) else _MISSING for items in (old, new))
            yield from _differences(before, after, f"{path}[{index}]")
    elif type(old) is not type(new) or old != new:
        yield path, old, new


def _cut(text: str, start: int) -> str:
    end = start + CHARS_SHOWN
    return f"{'…' if start else ''}{text[start:end]!r}{'…' if end < len(text) else ''}"


# --- responses and errors ---------------------------------------------------------------------------------------------


def _response_to_dict(response: LlmResponse, secrets: NoSecrets) -> dict[str, Any]:
    fields = {}
    for name in (field.name for field in attrs.fields(LlmResponse)):
        value = getattr(response, name)
        if value is not None:
            value = secrets.out_of(value) if name in _TEXTS else value
            fields[name] = to_dict(value) if name in _TYPES else value
    return fields


def _response_of(fields: Mapping[str, Any]) -> LlmResponse:
    read = {name: from_dict(_TYPES[name], v) if name in _TYPES else freeze(v, name) for name, v in fields.items()}
    return LlmResponse(**read)


def _error_to_dict(error: Exception, secrets: NoSecrets) -> dict[str, Any]:
    """Return the message, the fields and the nearest base class of an error that `_error_of` can make again."""
    message = secrets.text_of(error)
    if len(error.args) == 1 and isinstance(error.args[0], str):
        message = secrets.out_of_text(error.args[0])  # the text of a KeyError is the repr of its message
    kind = next((cls.__name__ for cls in type(error).__mro__ if _class_of(cls.__name__) is cls), "ModelError")
    if kind != type(error).__name__:
        message = f"{type(error).__module__}.{type(error).__qualname__}: {message}"
    told = {name: getattr(error, name, None) for name in _ERROR_FIELDS if isinstance(error, MinirunError)}
    told = {name: secrets.out_of_text(value) if isinstance(value, str) else value for name, value in told.items()}
    plain = (str, bool, int, float)
    return {"type": kind, "message": message, **{name: v for name, v in told.items() if isinstance(v, plain)}}


def _error_of(fields: Mapping[str, Any]) -> Exception:
    kind = _class_of(fields["type"])
    if kind is None or not isinstance(fields["message"], str):
        raise ValueError(f"error {brief(fields)} of an unknown type")
    error = kind.__new__(kind, fields["message"])
    error.args = (fields["message"],)
    if isinstance(error, ModelError):
        ModelError.__init__(error, fields["message"])
    for name in _ERROR_FIELDS:
        if name in fields:
            setattr(error, name, fields[name])
    return error


def _class_of(name: object) -> type[Exception] | None:
    """Return the error class of minirun or Python with this name, if it can be made from one text."""
    kind = getattr(errors, str(name), None) or getattr(builtins, str(name), None)
    if not isinstance(kind, type) or not issubclass(kind, Exception) or kind in (Exception, MinirunError):
        return None
    return None if issubclass(kind, (BaseExceptionGroup, UnicodeError)) else kind
