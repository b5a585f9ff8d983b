"""
A function's signature as a JSON schema, and a model's arguments as that function's arguments.

A model sees a function as a JSON schema and calls it with JSON. Both sides come from one place, the annotations: each
is compiled once into a `_Type`, which holds the schema to show and the `read` that converts a value.

The rules of reading:

* What the schema allows is accepted, and little else. A string is never turned into a number, a bool is not a number,
  and null is a value only where the annotation says so.
* JSON has one kind of number and models send 3.0 for 3: an int accepts an integral float, a float accepts an int. A
  union tries its members without that first, so that `int | float` keeps 1.0 a float; the first that fits wins.
* A set drops repeated items, although its schema asks for none.
* What comes out shares no list or dict with what went in: the function may change its arguments.
* All problems are reported at once, each with its path: a model that is told one at a time asks each time.

How: `read(value, path, reading)` never raises for a bad value. It notes a problem in `reading` and returns whatever,
and who would build on that result looks at the problems first.

Descriptions come from `Annotated[int, "how many"]` or else from the docstring of the function or class.

Not handled: generic classes, and what JSON has no form for.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import functools
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn, TypeAlias

import attrs

from ..errors import ArgumentError
from ._docstring import documentation_of

__all__ = ["Reader", "Signature", "convert", "reader_of", "schema_for", "signature_of"]

# Long enough to recognise a value, short enough that ten problems still fit in a prompt.
FOUND_CHARS_MAX = 60

_EMPTY = inspect.Parameter.empty  # no default, or no annotation
_Schema: TypeAlias = dict[str, Any]


# --- what others ask --------------------------------------------------------------------------------------------------


def schema_for(tp: object) -> dict[str, Any]:
    """
    Return the JSON schema of the values that `convert` accepts for *tp*. It is the caller's own copy.

    Raises:
        TypeError: JSON has no form for *tp* or for a type inside it.
    """
    compiler = _Compiler()
    return compiler.finish(compiler.compile(tp, "schema").schema)


def convert(tp: object, value: object, path: str) -> object:
    """
    Return the JSON *value* as a *tp*. *path* is what messages call the value.

    Raises:
        ArgumentError: The value does not fit; one line for each problem.
        TypeError: JSON has no form for *tp* or for a type inside it.
    """
    return _convert(_Compiler().compile(tp, path), value, path)


@attrs.frozen(eq=False)
class Reader:
    """The values of one type, compiled once, for who wants to have the problems as a list."""

    schema: dict[str, Any]
    """The JSON schema of the values. It is shared: copy it before changing it."""

    classes: tuple[type, ...]
    """The dataclasses and attrs classes that `read` may make."""

    _type: _Type = attrs.field(repr=False)

    def read(self, value: object) -> tuple[Any, list[str]]:
        """Return what `convert` makes of the JSON *value*, and no problems; or all problems, and something."""
        return _read(self._type, value, "")


def reader_of(tp: object, where: str, under: str | None = None) -> Reader:
    """
    Return the reader of a type, or of objects that hold a *tp* under the name *under*. *where* begins messages.

    Raises:
        TypeError: JSON has no form for *tp* or for a type inside it.
    """
    compiler = _Compiler()
    kind = compiler.compile(tp, where)
    if under is not None:
        kind = _object("arguments", {under: _Field(kind, required=True)}, dict)
    return Reader(compiler.finish(kind.schema), compiler.records, kind)


@attrs.frozen(eq=False)
class Signature:
    """The arguments that a model may give to one function. Nothing but the conversion happens per call."""

    schema: dict[str, Any]
    """A JSON schema of type object. It is shared: copy it before changing it."""

    _arguments: _Type = attrs.field(repr=False)
    _positional: Mapping[str, object] = attrs.field(repr=False)  # the positional-only parameters, with their defaults

    def bind(self, args: Mapping[str, object]) -> tuple[list[Any], dict[str, Any]]:
        """
        Return the positional and the keyword arguments to call the function with.

        What is not in *args* is left to the function's own defaults.

        Raises:
            ArgumentError: Something is unknown, missing or of the wrong type; one line for each problem.
        """
        given = _convert(self._arguments, dict(args), "")
        return [given.pop(name, default) for name, default in self._positional.items()], given


def signature_of(func: Callable[..., object], *, skip: Container[str]) -> Signature:
    """
    Read the signature of *func*: a function, a method, a partial or an object with `__call__`, sync or async.

    Parameters in *skip* are left to the caller, who passes them by keyword; the model never hears of them. Nor does
    it hear of the arguments that a partial has fixed. A parameter is described by what its annotation says, or else
    by the docstring.

    Raises:
        TypeError: A parameter cannot be filled from JSON, or its annotation cannot be resolved.
    """
    function = _function_behind(func)
    where = f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
    namespace = getattr(function, "__globals__", {})
    fixed = func.keywords if isinstance(func, functools.partial) else {}
    described = documentation_of(func).params
    compiler = _Compiler()
    fields: dict[str, _Field] = {}
    positional: dict[str, object] = {}
    for parameter in _parameters(func, where):
        name, spot = parameter.name, f"parameter {parameter.name!r} of {where}"
        if name in skip and parameter.kind is parameter.POSITIONAL_ONLY:
            msg = f"{spot} is positional-only, expected one that can be passed by keyword; move it behind the '/'"
            raise TypeError(msg)
        if name in skip or name in fixed:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional[name] = parameter.default
        # One at a time: the annotations of the context and of the result need not resolve.
        owner = types.SimpleNamespace(__annotations__={name: parameter.annotation})
        hint = _hints(owner, f"the annotation {parameter.annotation!r} of {spot}", namespace)[name]
        kind = _described(compiler.compile(hint, spot), described.get(name))
        fields[name] = _with_default(kind, parameter.default)
    arguments = _object("arguments", fields, dict)
    return Signature(compiler.finish(arguments.schema), arguments, positional)


def _convert(kind: _Type, value: object, path: str) -> Any:
    result, problems = _read(kind, value, path)
    if problems:
        raise ArgumentError("\n".join(problems))
    return result


def _read(kind: _Type, value: object, path: str) -> tuple[Any, list[str]]:
    reading = _Reading()
    try:
        return kind.read(value, path, reading), reading.problems
    except RecursionError:
        return None, [f"{path or 'the value'}: nested too deeply; flatten the value"]


# --- reading values ---------------------------------------------------------------------------------------------------


@attrs.frozen
class _Reading:
    """One attempt at reading a value: what did not fit, and whether 3.0 may be an int (not when *exact*)."""

    exact: bool = False
    problems: list[str] = attrs.Factory(list)
    # What each union came to, by union, path and exactness: unions within unions are read once for each, not once for
    # every combination of their members, which a deep value would make a matter of hours.
    unions: dict[tuple[int, str, bool], tuple[object, list[str]]] = attrs.Factory(dict)

    def wrong(self, path: str, expected: str, value: object) -> object:
        self.problems.append(_mismatch(path, expected, value))
        return None


@attrs.frozen
class _Type:
    """An annotation: its name in messages, its schema, and how its values are read."""

    expected: str
    schema: _Schema
    read: Callable[[object, str, _Reading], object]


@attrs.frozen
class _Field:
    """What may stand under a name: a parameter, or a field of a class or TypedDict."""

    type: _Type
    required: bool


_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _mismatch(path: str, expected: str, value: object) -> str:
    kind = next((f"{kind} " for tp, kind in _KINDS.items() if isinstance(value, tp)), "")
    return f"{path or 'the value'}: expected {expected}, found {kind}{_show(value)}"


def _show(value: object) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= FOUND_CHARS_MAX else f"{text[: FOUND_CHARS_MAX - 3]}..."


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _just(kind: type, name: str) -> _Type:
    def read(value: object, path: str, reading: _Reading) -> object:
        return value if isinstance(value, kind) else reading.wrong(path, name, value)

    return _Type(name, {"type": name}, read)


def _read_integer(value: object, path: str, reading: _Reading) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and not reading.exact:
        return int(value)
    return reading.wrong(path, "integer", value)


def _read_number(value: object, path: str, reading: _Reading) -> object:
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or reading.exact:
        return reading.wrong(path, "number", value)
    if abs(value) > sys.float_info.max:
        return reading.wrong(path, f"number up to {sys.float_info.max:.1e}", value)
    return float(value)


def _iso(kind: type[datetime.date], form: str, example: str) -> _Type:
    expected = f"{form} such as '{example}'"

    def read(value: object, path: str, reading: _Reading) -> object:
        if isinstance(value, str):
            try:
                return kind.fromisoformat(value)
            except ValueError:
                pass
        return reading.wrong(path, expected, value)

    return _Type(expected, {"type": "string", "format": form}, read)


_ANY = _Type("any value", {}, lambda value, path, reading: _plain(value))
_STRING = _just(str, "string")
_SCALARS: dict[object, _Type] = {
    object: _ANY,
    _EMPTY: _ANY,
    Any: _ANY,
    str: _STRING,
    bool: _just(bool, "boolean"),
    types.NoneType: _just(types.NoneType, "null"),
    int: _Type("integer", {"type": "integer"}, _read_integer),
    float: _Type("number", {"type": "number"}, _read_number),
    datetime.date: _iso(datetime.date, "date", "2024-12-31"),
    datetime.datetime: _iso(datetime.datetime, "date-time", "2024-12-31T23:59:00+00:00"),
}


def _choice(options: Sequence[tuple[object, object]]) -> _Type:
    """One of a few JSON scalars. Each option is the scalar and what it becomes; True is not 1."""
    expected = f"one of {', '.join(_show(option) for option, _ in options)}"

    def read(value: object, path: str, reading: _Reading) -> object:
        for option, result in options:
            loose = not (reading.exact or isinstance(option, bool) or isinstance(value, bool))
            if option == value and (loose or type(option) is type(value)):
                return result
        return reading.wrong(path, expected, value)

    kinds = {_KINDS.get(type(option), "null") for option, _ in options}
    kind = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return _Type(expected, {**kind, "enum": [option for option, _ in options]}, read)


def _union(members: Sequence[_Type]) -> _Type:
    expected = " or ".join(dict.fromkeys(member.expected for member in members))

    def choose(value: object, path: str, reading: _Reading) -> tuple[object, list[str]]:
        near: list[list[str]] = []  # the problems of each member that got past the first look
        for exact in (True,) if reading.exact else (True, False):
            near = []
            for member in members:
                attempt = _Reading(exact, [], reading.unions)
                result = member.read(value, path, attempt)
                if not attempt.problems:
                    return result, []
                if attempt.problems != [_mismatch(path, member.expected, value)]:
                    near.append(attempt.problems)
        near.sort(key=len)
        one_is_closest = len(near) == 1 or (len(near) > 1 and len(near[0]) < len(near[1]))
        return None, near[0] if one_is_closest else [_mismatch(path, expected, value)]

    def read(value: object, path: str, reading: _Reading) -> object:
        key = (id(members), path, reading.exact)
        if key not in reading.unions:
            reading.unions[key] = choose(value, path, reading)
        result, problems = reading.unions[key]
        reading.problems.extend(problems)
        return result

    return _Type(expected, {"anyOf": [member.schema for member in members]}, read)


def _array(item: _Type, make: Callable[[Iterable[object]], object]) -> _Type:
    expected = f"array of {item.expected}"

    def read(value: object, path: str, reading: _Reading) -> object:
        if not isinstance(value, list):
            return reading.wrong(path, expected, value)
        before = len(reading.problems)
        items = [item.read(each, f"{path}[{index}]", reading) for index, each in enumerate(value)]
        if len(reading.problems) > before:
            return None
        try:
            return make(items)
        except TypeError:  # only a set asks for more than items
            return reading.wrong(path, "items that a set can hold, so no arrays or objects", value)

    unique = {"uniqueItems": True} if make in (set, frozenset) else {}
    return _Type(expected, {"type": "array", "items": item.schema, **unique}, read)


def _tuple(items: Sequence[_Type]) -> _Type:
    size = len(items)
    expected = f"array of {size} items ({', '.join(item.expected for item in items)})"

    def read(value: object, path: str, reading: _Reading) -> object:
        if not isinstance(value, list) or len(value) != size:
            return reading.wrong(path, expected, value)
        return tuple([item.read(value[index], f"{path}[{index}]", reading) for index, item in enumerate(items)])

    prefix = {"prefixItems": [item.schema for item in items]} if items else {}
    return _Type(expected, {"type": "array", **prefix, "minItems": size, "maxItems": size}, read)


def _mapping(item: _Type) -> _Type:
    expected = f"object with values of {item.expected}"

    def read(value: object, path: str, reading: _Reading) -> object:
        if not isinstance(value, dict):
            return reading.wrong(path, expected, value)
        steps = (_key_step(key, index) for index, key in enumerate(value))
        return {
            key: item.read(each, path + step, reading) for (key, each), step in zip(value.items(), steps, strict=True)
        }

    return _Type(expected, {"type": "object", "additionalProperties": item.schema}, read)


def _key_step(key: str, index: int) -> str:
    """A key in a path. A model makes up keys of any length, and each path below would be as long."""
    return f"[{key!r}]" if len(key) <= FOUND_CHARS_MAX else f"[{_show(key)}, key {index}]"


def _object(name: str, fields: Mapping[str, _Field], make: Callable[..., object]) -> _Type:
    expected = f"{name} object"

    def read(value: object, path: str, reading: _Reading) -> object:
        if not isinstance(value, dict):
            return reading.wrong(path, expected, value)
        before = len(reading.problems)
        values = _read_fields(fields, value, path, reading)
        if len(reading.problems) > before:
            return None
        try:
            return make(**values)
        except (TypeError, ValueError) as error:  # attrs' validators put more than the message into args
            reason = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
            reading.problems.append(f"{path or 'the value'}: {reason or type(error).__name__}")
            return None

    properties = {name: field.type.schema for name, field in fields.items()}
    required = [name for name, field in fields.items() if field.required]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return _Type(expected, schema, read)


def _read_fields(
    fields: Mapping[str, _Field], value: Mapping[str, object], path: str, reading: _Reading
) -> dict[str, object]:
    def under(name: str) -> str:
        return (f"{path}.{name}" if path else name) if name.isidentifier() else f"{path}[{name!r}]"

    known = f"one of {', '.join(fields)}" if fields else "none at all"
    unknown = (name for name in value if name not in fields)
    reading.problems.extend(f"{under(name[:FOUND_CHARS_MAX])}: unknown name, expected {known}" for name in unknown)
    values = {}
    for name, field in fields.items():
        if name in value:
            values[name] = field.type.read(value[name], under(name), reading)
        elif field.required:
            reading.problems.append(f"{under(name)}: missing, expected {field.type.expected}")
    return values


# --- compiling annotations --------------------------------------------------------------------------------------------


_QUALIFIERS = {typing.Required, typing.NotRequired, typing.Final, getattr(typing, "ReadOnly", typing.Final)}
_ARRAYS: dict[object, Callable[[Iterable[object]], object]] = {
    collections.abc.Sequence: list,
    **{kind: kind for kind in (list, tuple, set, frozenset)},
}
_SUPPORTED = (
    "str, int, float, bool, None, Any, unions, Literal, Enum, list, Sequence, tuple, set, frozenset, dict and Mapping "
    "with str keys, TypedDict, dataclasses, attrs classes, NewType, Annotated, date and datetime"
)


class _Compiler:
    """Compiles annotations that share one set of `$defs`; only what contains itself gets a definition."""

    def __init__(self) -> None:
        self._types: dict[object, _Type] = {}
        self._open: dict[object, str] = {}  # what is being compiled, and the name that its definition would get
        self._defs: dict[str, _Schema] = {}

    @property
    def records(self) -> tuple[type, ...]:
        """The dataclasses and attrs classes among the types compiled so far."""
        return tuple(tp for tp in self._types if isinstance(tp, type) and not typing.is_typeddict(tp))

    def finish(self, schema: _Schema) -> _Schema:
        """Return *schema* with the definitions it needs, as a copy that shares nothing."""
        finished: _Schema = _plain({**schema, "$defs": self._defs} if self._defs else schema)
        return finished

    def compile(self, tp: Any, where: str) -> _Type:
        """Return what *tp* means. *where* begins the message of the TypeError for a type that JSON has no form for."""
        tp = types.NoneType if tp is None else tp
        origin, args = typing.get_origin(tp), typing.get_args(tp)
        if isinstance(tp, type) and tp in _SCALARS:
            return _SCALARS[tp]
        if origin is typing.Annotated:
            kind = self.compile(args[0], where)
            texts = [text for text in args[1:] if isinstance(text, str)]
            return attrs.evolve(kind, schema={**kind.schema, "description": texts[0]}) if texts else kind
        if origin in (typing.Union, types.UnionType):
            return _union([self.compile(member, where) for member in args])
        if origin is typing.Literal:
            return self._choices([(value, value) for value in args], tp, where)
        if type(tp).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
            return self._named(tp, lambda: self.compile(tp.__value__, where))
        if origin in _QUALIFIERS or isinstance(tp, (typing.NewType, dataclasses.InitVar)):
            inner = args[0] if args else tp.__supertype__ if isinstance(tp, typing.NewType) else tp.type
            return self.compile(inner, where)
        return self._class(tp, where) if origin is None else self._container(tp, origin, args, where)

    def _class(self, tp: Any, where: str) -> _Type:
        if isinstance(tp, type) and issubclass(tp, Enum):
            return self._choices([(member.value, member) for member in tp], tp, where)
        if typing.is_typeddict(tp):
            return self._named(tp, lambda: self._typed_dict(tp, where))
        if isinstance(tp, type) and (dataclasses.is_dataclass(tp) or attrs.has(tp)):
            return self._named(tp, lambda: self._record(tp, where))
        return self._container(tp, tp, (), where)

    def _container(self, tp: Any, origin: Any, args: tuple[Any, ...], where: str) -> _Type:
        if origin is tuple and getattr(tp, "__args__", None) is not None and args[1:] != (...,):
            return _tuple([self.compile(item, where) for item in args])
        if isinstance(origin, type) and origin in _ARRAYS:
            return _array(self.compile(args[0] if args else Any, where), _ARRAYS[origin])
        if origin in (dict, collections.abc.Mapping):
            key, item = args or (str, Any)
            if self.compile(key, where).read is _STRING.read:
                return _mapping(self.compile(item, where))
        _refuse(tp, where)

    def _choices(self, options: Sequence[tuple[object, object]], tp: object, where: str) -> _Type:
        if not options or any(type(value) not in (str, bool, int, float, types.NoneType) for value, _ in options):
            _refuse(tp, where)
        return _choice(options)

    def _named(self, tp: Any, build: Callable[[], _Type]) -> _Type:
        """Compile what may contain itself. If it does, it is a `$ref` there, and wherever it appears after that."""
        if tp in self._open:
            self._defs[self._open[tp]] = {}  # filled in below, when it is known
        if tp not in self._types:
            name = re.sub(r"\W", "_", tp.__name__)  # as part of a `$ref`, other characters would need an escape
            while name in self._defs or name in self._open.values():
                name += "_"
            inside = _Type(f"{tp.__name__} object", {"$ref": f"#/$defs/{name}"}, lambda *args: built.read(*args))
            self._open[tp], self._types[tp] = name, inside
            self._types[tp] = built = build()
            del self._open[tp]
            if name in self._defs:
                self._defs[name] = built.schema
                self._types[tp] = attrs.evolve(built, schema=inside.schema)
        return self._types[tp]

    def _typed_dict(self, cls: Any, where: str) -> _Type:
        described = _texts_of_fields(cls)
        fields = {}
        for name, hint in _hints(cls, f"the annotations of {cls.__qualname__} in {where}").items():
            marks = _marks(hint)  # the class itself does not see those in annotations that are strings
            required = typing.Required in marks or (name in cls.__required_keys__ and typing.NotRequired not in marks)
            kind = self.compile(hint, f"key {name!r} of {cls.__name__} in {where}")
            fields[name] = _Field(_described(kind, described.get(name)), required)
        return _object(cls.__name__, fields, dict)

    def _record(self, cls: Any, where: str) -> _Type:
        hints = _hints(cls, f"the annotations of {cls.__qualname__} in {where}")
        aliases = {field.alias: field.name for field in attrs.fields(cls)} if attrs.has(cls) else {}
        described = _texts_of_fields(cls)
        fields = {}
        for parameter in _parameters(cls, f"{cls.__qualname__}() in {where}"):
            name = parameter.name
            hint = hints.get(aliases.get(name, name), parameter.annotation)
            kind = self.compile(hint, f"field {name!r} of {cls.__name__} in {where}")
            kind = _described(kind, described.get(name))
            fields[name] = _with_default(kind, parameter.default)
        return _object(cls.__name__, fields, cls)


def _refuse(tp: object, where: str) -> NoReturn:
    msg = f"{where}: {inspect.formatannotation(tp)} is not supported; supported are {_SUPPORTED}"
    raise TypeError(msg)


def _marks(hint: Any) -> set[object]:
    origin = typing.get_origin(hint)
    if origin in _QUALIFIERS or origin is typing.Annotated:
        return {origin, *_marks(typing.get_args(hint)[0])}
    return set()


def _described(kind: _Type, text: str | None) -> _Type:
    """The type with this description, unless it has one."""
    return (
        kind
        if not text or "description" in kind.schema
        else attrs.evolve(kind, schema={**kind.schema, "description": text})
    )


def _texts_of_fields(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say about the fields."""
    documents = [documentation_of(base).params for base in reversed(cls.__mro__)]
    return {name: text for params in documents for name, text in params.items()}


def _with_default(kind: _Type, default: Any) -> _Field:
    """A field of this type; its schema shows the default if JSON can."""
    if default is _EMPTY:
        return _Field(kind, required=True)
    try:
        shown = json.loads(json.dumps(default.value if isinstance(default, Enum) else default, allow_nan=False))
    except (TypeError, ValueError):
        return _Field(kind, required=False)
    return _Field(attrs.evolve(kind, schema={**kind.schema, "default": shown}), required=False)


def _function_behind(func: Any) -> Any:
    """The function whose module the annotations belong to."""
    if isinstance(func, functools.partial):
        return _function_behind(func.func)
    if inspect.ismethod(func):
        return _function_behind(func.__func__)
    call = type(func).__call__
    return _function_behind(call) if inspect.isfunction(call) else inspect.unwrap(func)


def _parameters(func: Callable[..., object], where: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(func).parameters.values())
    except ValueError as error:
        msg = f"{where}: expected a function with a signature, found none ({error}); wrap it in a function of your own"
        raise TypeError(msg) from None
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            star = str(parameter).partition(":")[0]
            msg = f"{where}: expected named parameters only, found {star}; name each one, or take a list or a dict"
            raise TypeError(msg)
    return parameters


def _hints(owner: Any, what: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner, namespace, include_extras=True)
    except (NameError, SyntaxError, AttributeError, TypeError) as error:  # somebody's string was evaluated
        msg = f"cannot resolve {what} ({error}); define or import what it names at the top of its module"
        raise TypeError(msg) from None
