"""
The form of an answer: what a model is told of it, and what of its answer counts.

A form is a type, as for the parameters of tools, or a JSON schema. A model answers with a text or with the arguments
of a tool call; other answers, such as a human's, take the same two ways.

The rules:

* An answer has a value or problems, never an exception: it is the model's, which can try again.
* A text is JSON and nothing else. Only space around it and one Markdown fence are taken away, for models add those even
  if told not to. What JSON has no meaning for (a key given twice, NaN) is a problem: to choose would be to guess.
* The value is JSON again, for that is what is stored: of a type, what its instance holds, the defaults too; of a
  schema, the answer as it is. It fits into a state and into a tool's result.

Not caught: what the constructor of a class raises, except TypeError and ValueError, which are problems of the answer.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from .._json import DEPTH_MAX, INT_DIGITS_MAX, brief, dumps, freeze, thaw
from ..errors import ConfigurationError, InvalidValueError
from ._json_schema import as_object, compile_schema, wrapped
from ._schema import reader_of
from ._types import bounded
from ._written import written

__all__ = ["RESULT", "Outcome", "OutputSchema", "parsed"]

# The argument under which a tool takes a value that is no object.
RESULT = "result"

# A value is stored as that of a state's key, or in a tool's result: below the first level.
_LEVEL = 2
_TOO_DEEP = f"the value: nested deeper than {DEPTH_MAX - _LEVEL + 1} levels; flatten it"
_EXCERPT_CHARS_MAX = 40


@attrs.frozen
class Outcome:
    """What an answer came to."""

    value: Any = None
    """The value as frozen JSON. None if there are problems, or if it is null."""

    problems: list[str] = attrs.Factory(list)
    """What is wrong with the answer, each with its path; empty if it counts."""


@attrs.frozen(eq=False)
class OutputSchema:
    """A form, made once for many answers."""

    schema: Any
    """The JSON schema of the value, frozen."""

    tool_parameters: Any
    """A JSON schema of type object: the same, or, if that is none of an object, one with the value as `result`."""

    _of_value: Callable[[Any], Outcome] = attrs.field(repr=False)
    _of_arguments: Callable[[Any], Outcome] = attrs.field(repr=False)
    _made_of: Callable[[Any], Any] = attrs.field(repr=False)
    _of_made: Callable[[Any], Outcome] = attrs.field(repr=False)

    @classmethod
    def of(cls, tp: object, what: str = "output_schema") -> OutputSchema:
        """
        Return the form of the values of *tp*, which messages call *what*.

        Args:
            tp: An attrs class, a dataclass, a TypedDict, a pydantic model, whatever else a tool's parameter may be
                (lists, dicts, unions and plain types of these), or a JSON schema: a dict.
            what: How the caller's own argument is called.

        Raises:
            ConfigurationError: It is none of these, or has a part that cannot be checked or written as JSON.
        """
        form = _form_of(tp, what, None)
        parameters = as_object(form.schema)
        if parameters is not None:
            return cls(form.schema, freeze(parameters, what), form.outcome, form.outcome, form.made, form.told)
        arguments = _form_of(tp, what, RESULT)

        def of_arguments(args: Any) -> Outcome:
            return _unwrapped(arguments.outcome(args))

        return cls(form.schema, arguments.schema, form.outcome, of_arguments, form.made, form.told)

    def parse_text(self, text: str) -> Outcome:
        """Read an answer that is JSON, perhaps in one Markdown fence."""
        value, problems = parsed(_without_fence(text))
        return Outcome(problems=bounded(problems)) if problems else self._of_value(value)

    def parse_args(self, args: Mapping[str, Any]) -> Outcome:
        """Read an answer that came as the arguments of a call: those that `tool_parameters` describes."""
        try:
            frozen = freeze(dict(args), "the arguments", 1 if self.is_wrapped else _LEVEL)
        except InvalidValueError as error:
            return Outcome(problems=bounded([str(error)]))
        return self._of_arguments(frozen)

    def parse_value(self, value: Any) -> Outcome:
        """Read an answer that is frozen JSON."""
        return self._of_value(value)

    def problems(self, value: Any) -> list[str]:
        """Return what is wrong with an answer that is frozen JSON: also what the schema alone does not say."""
        return self._of_value(value).problems

    def made(self, value: Any) -> Any:
        """Return what a program works with for a value that was read: an instance of the type; of a schema, JSON."""
        return self._made_of(value)

    def parse_made(self, value: Any) -> Outcome:
        """Read what a program has made: an instance of the type, or JSON that fits the form."""
        return self._of_made(value)

    def dump(self, value: Any) -> str:
        """Return a value that was read as JSON on one line."""
        return dumps(freeze(value))

    @property
    def is_wrapped(self) -> bool:
        """Whether a call has the value as one of its arguments, rather than as all of them."""
        return self._of_value is not self._of_arguments


# --- forms ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Form:
    """A schema, and what a frozen JSON value comes to under it."""

    schema: Any
    outcome: Callable[[Any], Outcome]
    made: Callable[[Any], Any]
    """What a program works with for a value that fits."""
    told: Callable[[Any], Outcome]
    """What comes of that, or of other JSON."""


def _form_of(tp: object, what: str, under: str | None) -> _Form:
    """The form of a *tp*, or of an object that has it under a name."""
    return _form_of_schema(tp, what, under) if isinstance(tp, dict) else _form_of_type(tp, what, under)


def _form_of_schema(schema: dict[str, Any], what: str, under: str | None) -> _Form:
    checker = compile_schema(schema, what)
    if under is not None:
        checker = compile_schema(wrapped(checker.schema, under), what)

    def outcome(value: Any) -> Outcome:
        problems = checker.problems(value)
        return Outcome(problems=problems) if problems else Outcome(value)

    def told(value: Any) -> Outcome:
        try:
            return outcome(freeze(value, "the value", _LEVEL))
        except InvalidValueError as error:
            return Outcome(problems=bounded([str(error)]))

    return _Form(checker.schema, outcome, thaw, told)


def _form_of_type(tp: object, what: str, under: str | None) -> _Form:
    try:
        if tp is None:
            msg = f"{what}: found None, expected a type"
            raise TypeError(msg)
        reader = reader_of(tp, what, under)
    except TypeError as error:
        msg = f"{error}; or give a JSON schema as a dict"
        raise ConfigurationError(msg) from None
    arguments = {cls: _arguments_of(cls, what) for cls in reader.classes}

    def outcome(value: Any) -> Outcome:
        made, problems = reader.read(value)
        return Outcome(problems=bounded(problems)) if problems else as_written(made)

    def as_written(value: Any) -> Outcome:
        try:
            return Outcome(freeze(written(value, "the value", arguments.get, _LEVEL), "the value", _LEVEL))
        except InvalidValueError as error:
            return Outcome(problems=bounded([str(error)]))
        except RecursionError:
            return Outcome(problems=[_TOO_DEEP])

    def told(value: Any) -> Outcome:
        found = as_written(value)
        return found if found.problems else outcome(found.value)

    return _Form(compile_schema(reader.schema, what).schema, outcome, lambda value: reader.read(value)[0], told)


def _arguments_of(cls: type, what: str) -> dict[str, str]:
    """The names of a constructor's arguments, and the attributes in which an instance keeps them."""
    if attrs.has(cls):
        kept = {field.alias or field.name: field.name for field in attrs.fields(cls)}
    else:
        kept = {field.name: field.name for field in dataclasses.fields(cls)}
    names = list(inspect.signature(cls).parameters)
    lost = [name for name in names if name not in kept]
    if lost:
        msg = f"{what}: expected {cls.__qualname__} to keep its arguments as fields, found that {lost[0]!r} is none"
        raise ConfigurationError(msg)
    return {name: kept[name] for name in names}


def _unwrapped(outcome: Outcome) -> Outcome:
    return outcome if outcome.problems else Outcome(outcome.value[RESULT])


# --- texts ------------------------------------------------------------------------------------------------------------


def _without_fence(text: str) -> str:
    text = text.strip()
    if len(text) < 6 or not text.startswith("```") or not text.endswith("```"):
        return text
    body = text[3:-3]
    first, newline, rest = body.partition("\n")
    if newline and re.fullmatch(r"[\w+.-]*\s*", first):
        body = rest
    elif body[:4].lower() == "json":  # everything on one line
        body = body[4:]
    return body.strip()


def parsed(text: str) -> tuple[Any, list[str]]:
    """Return the frozen value of a JSON text, and no problems; or None and problems."""
    if not text:
        return None, ["expected JSON, found nothing"]
    found = _Finds()
    try:
        value = json.loads(
            text,
            object_pairs_hook=found.object,
            parse_int=found.integer,
            parse_float=found.number,
            parse_constant=found.constant,
        )
    except json.JSONDecodeError as error:
        return None, [_no_json(text, error.pos)]
    except RecursionError:
        return None, [_TOO_DEEP]
    if not found.problems and _is_too_deep(value):
        return None, [_TOO_DEEP]
    if found.problems:
        return None, found.problems
    try:
        return freeze(value, "the value", _LEVEL), []
    except InvalidValueError as error:
        return None, [str(error)]


@attrs.frozen
class _Finds:
    """What a JSON parser finds and asks about. Whatever has no one meaning is noted."""

    problems: list[str] = attrs.Factory(list)

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            self.problems.append(f"expected each key once, found {brief(twice, 60)} twice in one object")
        return value

    def integer(self, text: str) -> int:
        digits = len(text.lstrip("-"))
        if digits <= INT_DIGITS_MAX:
            return int(text)
        self.problems.append(f"expected integers of at most {INT_DIGITS_MAX} digits, found one of {digits}")
        return 0

    def number(self, text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            self.problems.append(f"expected numbers that a double can hold, found {text:.60}")
        return value

    def constant(self, text: str) -> None:
        self.problems.append(f"expected JSON, found {text}, which it has not; write null or a string")


def _no_json(text: str, at: int) -> str:
    # Of a comma too many, older Pythons point at what follows it; the parser's own words differ among them, too.
    before = text[:at].rstrip()
    at = len(before) - 1 if before.endswith(",") else at
    found = repr(text[at : at + _EXCERPT_CHARS_MAX]) if at < len(text) else "the end of the text"
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"expected JSON alone, found {found} at line {line}, column {column}"


def _is_too_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(DEPTH_MAX - _LEVEL + 1):
        inside = [each.values() if isinstance(each, dict) else each for each in layer if isinstance(each, (dict, list))]
        layer = [item for items in inside for item in items]
    return any(isinstance(each, (dict, list)) for each in layer)
