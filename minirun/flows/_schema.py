"""
Annotations as JSON schemas, and how their values are read: unions, collections, classes, and what contains itself.

The rules of reading, and the types without parts, stand in `_types`.

Descriptions come from `Annotated[int, "how many"]` or else from the docstring of the class.

Not handled: generic classes, and what JSON has no form for.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NoReturn

import attrs

from ..errors import InvalidValueError
from ._docstring import documentation_of
from ._foreign_models import is_model, model_type
from ._parameters import described, field_of, hints_of, parameters_of, resolved
from ._types import (
    FOUND_CHARS_MAX,
    KINDS,
    PROBLEMS_MAX,
    SCALARS,
    Field,
    Reading,
    Schema,
    Type,
    mismatch,
    object_of,
    plain,
    read_value,
    shown,
)
from ._written import fields_shown, module_of, written

__all__ = ["Compiler", "Reader", "open_object", "reader_of"]


# --- what others ask --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Reader:
    """The values of one type, compiled once, for who wants to have the problems as a list."""

    schema: dict[str, Any]
    """The JSON schema of the values. It is shared: copy it before changing it."""

    classes: tuple[type, ...]
    """The dataclasses and attrs classes that `read` may make."""

    _type: Type = attrs.field(repr=False)

    def read(self, value: object) -> tuple[Any, list[str]]:
        """Return what the JSON *value* is as one of this type, and no problems; or all problems, and something."""
        return read_value(self._type, value, "")


def reader_of(tp: object, where: str, under: str | None = None) -> Reader:
    """
    Return the reader of a type, or of objects that hold a *tp* under the name *under*. *where* begins messages.

    Raises:
        TypeError: JSON has no form for *tp* or for a type inside it.
    """
    compiler = Compiler()
    kind = compiler.compile(tp, where)
    if under is not None:
        kind = object_of("arguments", {under: Field(kind, required=True)}, dict)
    return Reader(compiler.finish(kind.schema), compiler.records, kind)


# --- types with parts -------------------------------------------------------------------------------------------------


def _iso(kind: type[datetime.date], form: str, example: str) -> Type:
    expected = f"{form} such as '{example}'"

    def read(value: object, path: str, reading: Reading) -> object:
        if isinstance(value, str):
            try:
                return kind.fromisoformat(value)
            except ValueError:
                pass
        return reading.wrong(path, expected, value)

    return Type(expected, {"type": "string", "format": form}, read)


_WITHOUT_PARTS: dict[object, Type] = {
    **SCALARS,
    datetime.date: _iso(datetime.date, "date", "2024-12-31"),
    datetime.datetime: _iso(datetime.datetime, "date-time", "2024-12-31T23:59:00+00:00"),
}


def _choice(options: Sequence[tuple[object, object]]) -> Type:
    """One of a few JSON scalars. Each option is the scalar and what it becomes; True is not 1."""
    expected = f"one of {', '.join(shown(option) for option, _ in options)}"

    def read(value: object, path: str, reading: Reading) -> object:
        for option, result in options:
            exact = reading.exact or reading.strict
            loose = not (exact or isinstance(option, bool) or isinstance(value, bool))
            if option == value and (loose or type(option) is type(value)):
                return result
        return reading.wrong(path, expected, value)

    kinds = {KINDS.get(type(option), "null") for option, _ in options}
    kind = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return Type(expected, {**kind, "enum": [option for option, _ in options]}, read)


def _union(members: Sequence[Type]) -> Type:
    expected = " or ".join(dict.fromkeys(member.expected for member in members))

    def choose(value: object, path: str, reading: Reading) -> tuple[object, list[str]]:
        near: list[list[str]] = []  # the problems of each member that got past the first look
        for exact in (True,) if reading.exact else (True, False):
            near = []
            for member in members:
                attempt = Reading(exact, [], reading.unions, reading.strict)
                result = member.read(value, path, attempt)
                if not attempt.problems:
                    return result, []
                if attempt.problems != [mismatch(path, member.expected, value)]:
                    near.append(attempt.problems)
        near.sort(key=len)
        one_is_closest = len(near) == 1 or (len(near) > 1 and len(near[0]) < len(near[1]))
        return None, near[0] if one_is_closest else [mismatch(path, expected, value)]

    def read(value: object, path: str, reading: Reading) -> object:
        key = (id(members), path, reading.exact)
        if key not in reading.unions:
            reading.unions[key] = choose(value, path, reading)
        result, problems = reading.unions[key]
        reading.problems.extend(problems)
        return result

    return Type(expected, {"anyOf": [member.schema for member in members]}, read)


def _array(item: Type, make: Callable[[Iterable[object]], object]) -> Type:
    expected = f"array of {item.expected}"

    def read(value: object, path: str, reading: Reading) -> object:
        if not isinstance(value, list):
            return reading.wrong(path, expected, value)
        before = len(reading.problems)
        items = []
        for index, each in enumerate(value):
            items.append(item.read(each, f"{path}[{index}]", reading))
            if len(reading.problems) > PROBLEMS_MAX:
                break
        if len(reading.problems) > before:
            return None
        try:
            return make(items)
        except TypeError:  # only a set asks for more than items
            return reading.wrong(path, "items that a set can hold, so no arrays or objects", value)

    unique = {"uniqueItems": True} if make in (set, frozenset) else {}
    return Type(expected, {"type": "array", "items": item.schema, **unique}, read)


def _tuple(items: Sequence[Type]) -> Type:
    size = len(items)
    expected = f"array of {size} items ({', '.join(item.expected for item in items)})"

    def read(value: object, path: str, reading: Reading) -> object:
        if not isinstance(value, list) or len(value) != size:
            return reading.wrong(path, expected, value)
        return tuple([item.read(value[index], f"{path}[{index}]", reading) for index, item in enumerate(items)])

    prefix = {"prefixItems": [item.schema for item in items]} if items else {}
    return Type(expected, {"type": "array", **prefix, "minItems": size, "maxItems": size}, read)


def _mapping(item: Type) -> Type:
    expected = f"object with values of {item.expected}"

    def read(value: object, path: str, reading: Reading) -> object:
        if not isinstance(value, dict):
            return reading.wrong(path, expected, value)
        items = {}
        for index, (key, each) in enumerate(value.items()):
            items[key] = item.read(each, path + _key_step(key, index), reading)
            if len(reading.problems) > PROBLEMS_MAX:
                break
        return items

    return Type(expected, {"type": "object", "additionalProperties": item.schema}, read)


def _key_step(key: str, index: int) -> str:
    """A key in a path. A model makes up keys of any length, and each path below would be as long."""
    return f"[{key!r}]" if len(key) <= FOUND_CHARS_MAX else f"[{shown(key)}, key {index}]"


def open_object(closed: Type, fields: Mapping[str, Field], rest: Type, taken: Collection[str]) -> Type:
    """
    Return the type of the objects that may have other names than these *fields* of the *closed* type, too.

    Their values are of the type *rest*. No name is one of those that are *taken* by what no model fills.
    """

    def read(value: object, path: str, reading: Reading) -> object:
        if not isinstance(value, dict):
            return closed.read(value, path, reading)
        others = value.keys() - fields.keys() - set(taken)
        made = closed.read({name: item for name, item in value.items() if name not in others}, path, reading)
        more = {}
        for index, name in enumerate(name for name in value if name in others):
            at = name if not path and name.isidentifier() and len(name) <= FOUND_CHARS_MAX else _key_step(name, index)
            more[name] = rest.read(value[name], at, reading)
            if len(reading.problems) > PROBLEMS_MAX:
                break
        return {**made, **more} if isinstance(made, dict) else made

    return Type(closed.expected, {**closed.schema, "additionalProperties": rest.schema or True}, read)


# --- compiling annotations --------------------------------------------------------------------------------------------


_QUALIFIERS = {typing.Required, typing.NotRequired, typing.Final, getattr(typing, "ReadOnly", typing.Final)}
_ARRAYS: dict[object, Callable[[Iterable[object]], object]] = {
    collections.abc.Sequence: list,
    **{kind: kind for kind in (list, tuple, set, frozenset)},
}
_SUPPORTED = (
    "str, int, float, bool, None, Any, unions, Literal, Enum, list, Sequence, tuple, set, frozenset, dict and Mapping "
    "with str keys, TypedDict, dataclasses, attrs classes, pydantic models, NewType, Annotated, date and datetime"
)


class Compiler:
    """Compiles annotations that share one set of `$defs`; only what contains itself gets a definition."""

    def __init__(self) -> None:
        self._types: dict[object, Type] = {}
        self._open: dict[object, str] = {}  # what is being compiled, and the name that its definition would get
        self._defs: dict[str, Schema] = {}

    @property
    def records(self) -> tuple[type, ...]:
        """The dataclasses and attrs classes among the types compiled so far."""
        return tuple(tp for tp in self._types if isinstance(tp, type) and _is_record(tp))

    def finish(self, schema: Schema) -> Schema:
        """Return *schema* with the definitions it needs, as a copy that shares nothing."""
        finished: Schema = plain({**schema, "$defs": self._defs} if self._defs else schema)
        return finished

    def compile(self, tp: Any, where: str) -> Type:
        """Return what *tp* means. *where* begins the message of the TypeError for a type that JSON has no form for."""
        tp = types.NoneType if tp is None else tp
        origin, args = typing.get_origin(tp), typing.get_args(tp)
        if isinstance(tp, type) and tp in _WITHOUT_PARTS:
            return _WITHOUT_PARTS[tp]
        if origin is typing.Annotated:
            kind = self.compile(args[0], where)
            texts = [text for text in args[1:] if isinstance(text, str)]
            return kind._replace(schema={**kind.schema, "description": texts[0]}) if texts else kind
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

    def _class(self, tp: Any, where: str) -> Type:
        if isinstance(tp, type) and issubclass(tp, Enum):
            return self._choices([(member.value, member) for member in tp], tp, where)
        if typing.is_typeddict(tp):
            return self._named(tp, lambda: self._typed_dict(tp, where))
        if isinstance(tp, type) and _is_record(tp):
            return self._named(tp, lambda: self._record(tp, where))
        if is_model(tp):
            if tp not in self._types:
                self._types[tp] = model_type(tp, where, self._defs, self._open.values())
            return self._types[tp]
        return self._container(tp, tp, (), where)

    def _container(self, tp: Any, origin: Any, args: tuple[Any, ...], where: str) -> Type:
        if origin is tuple and getattr(tp, "__args__", None) is not None and args[1:] != (...,):
            return _tuple([self.compile(item, where) for item in args])
        if isinstance(origin, type) and origin in _ARRAYS:
            return _array(self.compile(args[0] if args else Any, where), _ARRAYS[origin])
        if origin in (dict, collections.abc.Mapping):
            key, item = args or (str, Any)
            if self.compile(key, where).read is SCALARS[str].read:
                return _mapping(self.compile(item, where))
        _refuse(tp, where)

    def _choices(self, options: Sequence[tuple[object, object]], tp: object, where: str) -> Type:
        if not options or any(type(value) not in (str, bool, int, float, types.NoneType) for value, _ in options):
            _refuse(tp, where)
        return _choice(options)

    def _named(self, tp: Any, build: Callable[[], Type]) -> Type:
        """Compile what may contain itself. If it does, it is a `$ref` there, and wherever it appears after that."""
        if tp in self._open:
            self._defs[self._open[tp]] = {}  # filled in below, when it is known
        if tp not in self._types:
            name = re.sub(r"\W", "_", tp.__name__)  # as part of a `$ref`, other characters would need an escape
            while name in self._defs or name in self._open.values():
                name += "_"
            inside = Type(f"{tp.__name__} object", {"$ref": f"#/$defs/{name}"}, lambda *args: built.read(*args))
            self._open[tp], self._types[tp] = name, inside
            self._types[tp] = built = build()
            del self._open[tp]
            if name in self._defs:
                self._defs[name] = built.schema
                self._types[tp] = built._replace(schema=inside.schema)
        return self._types[tp]

    def fields_of(self, cls: Any, where: str) -> dict[str, Field]:
        """Return what the fields of a TypedDict, dataclass or attrs class may hold, as its constructor calls them."""
        return self._keys_of(cls, where) if typing.is_typeddict(cls) else self._parameters_of(cls, where)

    def _typed_dict(self, cls: Any, where: str) -> Type:
        return object_of(cls.__name__, self._keys_of(cls, where), dict)

    def _keys_of(self, cls: Any, where: str) -> dict[str, Field]:
        texts = _texts_of_fields(cls)
        fields = {}
        for name, hint in hints_of(cls, f"the annotations of {cls.__qualname__} in {where}").items():
            marks = _marks(hint)  # the class itself does not see those in annotations that are strings
            required = typing.Required in marks or (name in cls.__required_keys__ and typing.NotRequired not in marks)
            kind = self.compile(hint, f"key {name!r} of {cls.__name__} in {where}")
            fields[name] = Field(described(kind, texts.get(name)), required)
        return fields

    def _record(self, cls: Any, where: str) -> Type:
        fields = self._parameters_of(cls, where)
        made = object_of(cls.__name__, fields, cls)
        rest = {name: at for name, at in (fields_shown(cls) or {}).items() if name not in fields}
        return _with_computed(made, rest) if rest else made

    def _parameters_of(self, cls: Any, where: str) -> dict[str, Field]:
        hints = hints_of(cls, f"the annotations of {cls.__qualname__} in {where}")
        aliases = {field.alias: field.name for field in attrs.fields(cls)} if attrs.has(cls) else {}
        texts = _texts_of_fields(cls)
        fields = {}
        for parameter in parameters_of(cls, f"{cls.__qualname__}() in {where}"):
            name = parameter.name
            hint = hints.get(aliases.get(name, name), parameter.annotation)
            if isinstance(hint, dataclasses.InitVar) and isinstance(hint.type, str):
                what = f"the annotation {hint.type!r} of field {name!r} of {cls.__qualname__} in {where}"
                hint = resolved(hint.type, what, module_of(cls))
            kind = self.compile(hint, f"field {name!r} of {cls.__name__} in {where}")
            fields[name] = field_of(described(kind, texts.get(name)), parameter.default)
        return fields


_UNSET = object()


def _with_computed(record: Type, computed: Mapping[str, str]) -> Type:
    """
    Return the type of the objects that may also have what the class sets itself, as results are written.

    *computed* are the names of that, and the attributes. No schema shows them, for nobody has to give them; what
    somebody gives all the same has to be what the class comes to, and is never lost without a word.
    """

    def read(value: object, path: str, reading: Reading) -> object:
        given = value.keys() & computed.keys() if isinstance(value, dict) else ()
        if not (isinstance(value, dict) and given):
            return record.read(value, path, reading)
        made = record.read({name: item for name, item in value.items() if name not in given}, path, reading)
        for name in sorted(given) if made is not None else ():
            at = f"{path}.{name}" if path else name
            own = _UNSET
            with suppress(AttributeError, InvalidValueError):  # it is not set, or has no JSON form
                own = written(getattr(made, computed[name]), at)
            if own != value[name]:
                expected = "nothing" if own is _UNSET else shown(own)
                found = f"expected {expected}, found {shown(value[name])}"
                reading.problems.append(f"{at}: {found}; the class sets it itself, leave it out")
        return made

    return record._replace(read=read)


def _is_record(tp: type) -> bool:
    return dataclasses.is_dataclass(tp) or attrs.has(tp)


def _refuse(tp: object, where: str) -> NoReturn:
    msg = f"{where}: {inspect.formatannotation(tp)} is not supported; supported are {_SUPPORTED}"
    raise TypeError(msg)


def _marks(hint: Any) -> set[object]:
    origin = typing.get_origin(hint)
    if origin in _QUALIFIERS or origin is typing.Annotated:
        return {origin, *_marks(typing.get_args(hint)[0])}
    return set()


def _texts_of_fields(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say about the fields."""
    documents = [documentation_of(base).params for base in reversed(cls.__mro__)]
    return {name: text for params in documents for name, text in params.items()}
