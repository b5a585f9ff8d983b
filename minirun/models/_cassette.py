"""
What a cassette holds, and its lines: pure, text to values and back.

    {"minirun_cassette":1,"model":NAME,"capabilities":{...}}    the first line
    {"id":ID,"value":JSON}                                      settings, a system instruction, a tool, tools, a content
    {"exchange":N,"request":{...},"stream":true,"responses":[[SECONDS,{...}],...],"end":{...}}

Rules of this file:

1.  A value is written once, before what refers to it by its id. An id is a name, and nothing follows from it: a
    value that is edited by hand is edited wherever it is referred to.
2.  The conversation of a request begins with the first contents of that of an earlier exchange (`"from":[N,COUNT]`)
    and goes on with others (`"contents":[ID,...]`). So the file grows by what is new.
3.  Exchanges are numbered in the order in which they were asked, and written in the order in which they ended.
4.  SECONDS is how long the model took for a response, counted from when it was asked for it. `end` is there if no
    complete response came: an error, or that the caller has left, after how many seconds.
5.  A line is whole or it is not there: what follows the last line break counts only if it is a whole line.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import errors
from .._codec import from_dict, to_dict
from .._json import brief, dumps, freeze, is_count, is_seconds
from ..errors import CassetteError, MinirunError, ModelError
from ..types import Content, UsageMetadata
from ._asked import Asked, canonical, encoded, key_of
from ._base import LlmCapabilities, LlmResponse

__all__ = ["Cassette", "Exchange", "Writer", "error_of", "noted", "read_cassette", "written_error"]

VERSION = 1
HEAD = "minirun_cassette"

_VALUES: Mapping[str, type] = {"content": Content, "usage_metadata": UsageMetadata}
# What errors say beside their message.
_TOLD = ("status", "retry_after_s", "request_id", "has_begun", "path")


@attrs.frozen(eq=False)
class Exchange:
    """
    A request and what came of it.

    Args:
        number: The order in which exchanges were asked, from 1.
        asked: The request.
        stream: Whether fragments were asked for.
        responses: Each with the seconds that it took.
        left_after_s: The caller has left after so many more seconds; None: not before the end.
        failed_after_s: The model has failed after so many more seconds; None: it has not.
        error: What it failed with, as it is written.
    """

    number: int
    asked: Asked
    stream: bool
    responses: Sequence[tuple[float, LlmResponse]]
    left_after_s: float | None = None
    failed_after_s: float | None = None
    error: Mapping[str, Any] | None = None


@attrs.define(eq=False)
class Cassette:
    """
    What a file holds.

    Args:
        model: The name of the model that was recorded.
        capabilities: What it was able to do.
        exchanges: In the order in which they are written.
        values: The JSON texts of the values, by id.
        size: How many bytes of the file are whole lines.
        torn: How many bytes follow them: the beginning of a line whose writer was killed.
        needs_break: Whether the last line is whole, but for its line break.
    """

    model: str = ""
    capabilities: LlmCapabilities | None = None
    exchanges: list[Exchange] = attrs.Factory(list)
    values: dict[str, str] = attrs.Factory(dict)
    size: int = 0
    torn: int = 0
    needs_break: bool = False


# --- writing ----------------------------------------------------------------------------------------------------------


class Writer:
    """Says what is to be written of exchanges, after those of *cassette*."""

    def __init__(self, cassette: Cassette) -> None:
        self._ids = {text: name for name, text in cassette.values.items()}
        self._names = set(cassette.values)
        self._places: dict[str, tuple[int, int]] = {}
        for exchange in cassette.exchanges:
            self._place(exchange)

    def head(self, model: str, capabilities: LlmCapabilities) -> bytes:
        """The first line."""
        line = {HEAD: VERSION, "model": model, "capabilities": attrs.asdict(capabilities)}
        return encoded(dumps(line) + "\n")

    def lines(self, exchange: Exchange) -> bytes:
        """The lines of one exchange: the values that are new, then itself."""
        asked, found = exchange.asked, list[str]()
        request: dict[str, Any] = {"settings": self._id(asked.settings, found)}
        if asked.system != "null":
            request["system"] = self._id(asked.system, found)
        if asked.tools:
            request["tools"] = self._id(canonical([self._id(tool, found) for tool in asked.tools]), found)
        known = len(asked.keys)
        while known and asked.keys[known - 1] not in self._places:
            known -= 1
        if known:
            request["from"] = self._places[asked.keys[known - 1]]
        request["contents"] = [self._id(text, found) for text in asked.contents[known:]]
        self._place(exchange)
        line: dict[str, Any] = {"exchange": exchange.number, "request": request, "stream": exchange.stream}
        line["responses"] = [[after_s, response_to_dict(response)] for after_s, response in exchange.responses]
        if exchange.error is not None:
            line["end"] = {"after_s": exchange.failed_after_s, "error": exchange.error}
        elif exchange.left_after_s is not None:
            line["end"] = {"after_s": exchange.left_after_s, "left": True}
        return encoded("".join(f"{each}\n" for each in (*found, dumps(line))))

    def _id(self, text: str, found: list[str]) -> str:
        name = self._ids.get(text)
        if name is None:
            name = key_of(text)
            while name in self._names:  # of a value that somebody has edited
                name = key_of(text, name)
            self._ids[text] = name
            self._names.add(name)
            found.append(f'{{"id":"{name}","value":{text}}}')
        return name

    def _place(self, exchange: Exchange) -> None:
        keys = exchange.asked.keys
        for count in range(len(keys), 0, -1):
            if keys[count - 1] in self._places:
                return  # and so are all before it
            self._places[keys[count - 1]] = (exchange.number, count)


def response_to_dict(response: LlmResponse) -> dict[str, Any]:
    """A response as JSON, without what stands at its default."""
    fields = {}
    for field in attrs.fields(LlmResponse):
        value = getattr(response, field.name)
        if value is not None:
            fields[field.name] = to_dict(value) if field.name in _VALUES else value
    return fields


def written_error(error: Exception, hide: Callable[[str], str]) -> dict[str, Any]:
    """What an exception says, with its type: the nearest one that can be made again from that."""
    try:
        message = error.args[0] if len(error.args) == 1 and isinstance(error.args[0], str) else str(error)
    except Exception:  # its own: whatever it raises, it says nothing
        message = ""
    kind = next((cls for cls in type(error).__mro__ if _is_made_again(cls)), ModelError)
    if kind is not type(error):
        message = f"{type(error).__module__}.{type(error).__qualname__}: {message}"
    said = {name: getattr(error, name, None) for name in _TOLD} if issubclass(kind, MinirunError) else {}
    told = {name: hide(value) if isinstance(value, str) else value for name, value in said.items() if _is_told(value)}
    return {"type": kind.__name__, "message": hide(message), **told}


def _is_made_again(cls: type) -> bool:
    """Whether `error_of` knows it by its name: an error of minirun, or one of Python's that is more than Exception."""
    if cls in (Exception, MinirunError) or not issubclass(cls, Exception) or issubclass(cls, BaseExceptionGroup):
        return False
    return cls is _class_of(cls.__name__) and (issubclass(cls, MinirunError) or cls in _OF_PYTHON)


def _takes_a_text(cls: object) -> bool:
    try:
        return isinstance(cls, type) and issubclass(cls, Exception) and str(cls("x")) in ("x", "'x'")
    except TypeError:  # UnicodeDecodeError and the like
        return False


_OF_PYTHON = frozenset(cls for cls in vars(builtins).values() if _takes_a_text(cls))


def _class_of(name: object) -> Any:
    return getattr(errors, name, None) or getattr(builtins, name, None) if isinstance(name, str) else None


def _is_told(value: object) -> bool:
    return value is not False and (isinstance(value, (str, bool)) or is_count(value) or is_seconds(value))


def error_of(written: Mapping[str, Any]) -> Exception:
    """The exception that `written_error` has told of."""
    kind = _class_of(written["type"])
    error: Exception = kind.__new__(kind, written["message"])
    error.args = (written["message"],)
    if isinstance(error, ModelError):
        ModelError.__init__(error, written["message"])
    for name in _TOLD:
        if name in written:
            setattr(error, name, written[name])
    return error


def noted(problem: str, path: object, line: int | None = None) -> CassetteError:
    """The error of a cassette that cannot be used as it is."""
    where = f"the cassette {path}" if line is None else f"the cassette {path}, line {line}"
    return CassetteError(f"{where}: {problem}; record it anew, or put back the file as it was")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_cassette(data: bytes, path: object) -> Cassette:
    """
    Read the lines of a file; *path* stands in messages.

    Raises:
        CassetteError: It is no cassette, or one of a later version, or damaged before its end.
    """
    cassette = Cassette()
    reader = _Reader(cassette)
    lines = data.split(b"\n")
    last = lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            reader.read(json.loads(line), number)
        except _READING as error:
            raise noted(_problem(error, line), path, number) from error
        cassette.size += len(line) + 1
    if last:
        try:
            fields = json.loads(last)
        except ValueError:
            cassette.torn = len(last)
        else:
            try:
                reader.read(fields, len(lines) + 1)
            except _READING as error:
                raise noted(_problem(error, last), path, len(lines) + 1) from error
            cassette.size += len(last)
            cassette.needs_break = True
    return cassette


_READING = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def _problem(error: Exception, line: bytes) -> str:
    return f"expected a line of a cassette, found {brief(line)} ({type(error).__name__}: {brief(str(error), 200)})"


class _Reader:
    """Reads the lines one by one."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._by_number: dict[int, Asked] = {}

    def read(self, fields: Any, number: int) -> None:
        if number == 1:
            self._read_head(fields)
        elif "id" in fields:
            self._cassette.values[fields["id"]] = canonical(fields["value"])
        else:
            self._read_exchange(fields)

    def _read_head(self, fields: Any) -> None:
        version = fields[HEAD]
        if version != VERSION:
            raise ValueError(f"expected version {VERSION} of cassettes, found {brief(version)}")
        self._cassette.model = fields["model"]
        self._cassette.capabilities = LlmCapabilities(**fields["capabilities"])

    def _read_exchange(self, fields: Any) -> None:
        number, end = fields["exchange"], fields.get("end", {})
        if not is_count(number, 1) or number in self._by_number:
            raise ValueError(f"expected a new number of an exchange, found {brief(number)}")
        asked = self._by_number[number] = self._asked(fields["request"])
        responses = [(_seconds(after_s), response_of(response)) for after_s, response in fields["responses"]]
        after_s, error = _seconds(end.get("after_s", 0)), end.get("error")
        if error is not None:
            kind = _class_of(error["type"])
            if not (isinstance(kind, type) and _is_made_again(kind) and isinstance(error["message"], str)):
                raise ValueError(f"expected a known type of error and its message, found {brief(error)}")
        left_after_s = after_s if end.get("left") is True else None
        failed_after_s = None if error is None else after_s
        stream = fields["stream"] is True
        self._cassette.exchanges.append(Exchange(number, asked, stream, responses, left_after_s, failed_after_s, error))

    def _asked(self, request: Any) -> Asked:
        values = self._cassette.values
        tools = json.loads(values[request["tools"]]) if "tools" in request else ()
        texts: list[str] = []
        keys: list[str] = []
        if "from" in request:
            number, count = request["from"]
            earlier = self._by_number[number]
            if not is_count(count, 1) or count > len(earlier.keys):
                raise ValueError(f"expected at most {len(earlier.keys)} contents of exchange {number}, found {count}")
            texts, keys = [*earlier.contents[:count]], [*earlier.keys[:count]]
        for name in request["contents"]:
            texts.append(values[name])
            keys.append(key_of(values[name], keys[-1] if keys else ""))
        system = values[request["system"]] if "system" in request else "null"
        return Asked(values[request["settings"]], system, tuple(values[name] for name in tools), texts, keys)


def _seconds(value: object) -> float:
    if not is_seconds(value):
        raise ValueError(f"expected seconds from 0 up, found {brief(value)}")
    return value


def response_of(fields: Mapping[str, Any]) -> LlmResponse:
    """A response from its JSON."""
    return LlmResponse(**{name: _value_of(name, value) for name, value in fields.items()})


def _value_of(name: str, value: Any) -> Any:
    return from_dict(_VALUES[name], value) if name in _VALUES else freeze(value, name)


def told_of(exchanges: Sequence[Exchange]) -> Iterator[str]:
    """What each exchange was about, in a few words."""
    for exchange in exchanges:
        parts = json.loads(exchange.asked.contents[-1]).get("parts", ()) if exchange.asked.contents else ()
        text = next((part["text"] for part in parts if "text" in part), "")
        yield f"exchange {exchange.number} ({brief(text, 60) if text else 'no text'})"
