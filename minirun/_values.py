"""
What values are made of: fields that are checked, constructors compiled from these checks, and copies that cost little.

A value is an attrs class, frozen and with slots, that is `constructed`; each of its fields says in its metadata how it
is checked: `TEXT`, `OBJECT`, …. The constructor takes half of the time of one that attrs makes with as many validators.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial, update_wrapper
from typing import Any, TypeAlias, TypeGuard, TypeVar

import attrs

from ._json import EMPTY_DICT, FrozenDict, check_text, freeze, shown
from .errors import InvalidValueError

__all__ = [
    "EMPTY_LIST",
    "FLAG",
    "JSON_VALUE",
    "MAKE",
    "NAMES",
    "NAME_SET",
    "OBJECT",
    "TEXT",
    "Value",
    "changed",
    "check_in_subclass",
    "checked",
    "constructed",
    "instance_of",
    "integer",
    "is_list",
    "number",
    "unknown_field",
]

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)

EMPTY_LIST: tuple[()] = ()
"""The default of lists, by which it is known that there is nothing to check."""


# --- how fields are checked -------------------------------------------------------------------------------------------


Check: TypeAlias = Callable[[Any, str], Any]
"""Returns what a field holds for the value that it is given; raises InvalidValueError, with the path of the field."""


def checked(check: Check, form: str | None = None) -> dict[str, Any]:
    """
    The metadata of a field that is checked, unless it is given its default.

    `form` is what the codec has to know: `"json"` is JSON already, `"bytes"` becomes base64, `"set"` a sorted list;
    what is none of these is written and read by its type.
    """
    return {"check": check, "form": form}


def _wrong(path: str, expected: str, found: object) -> InvalidValueError:
    return InvalidValueError(path, f"expected {expected}, found {shown(found)}")


def _text(value: object, path: str) -> str:
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return check_text(str.__str__(value), path)  # a StrEnum, too, as the plain string that will be read back


def _flag(value: object, path: str) -> object:
    if not (value is True or value is False):
        raise _wrong(path, "True, False or None", value)
    return value


def _object(value: object, path: str) -> FrozenDict:
    if not isinstance(value, dict):
        raise InvalidValueError(path, f"expected a dict, found {type(value).__name__}")
    frozen: FrozenDict = freeze(value, path)
    return frozen


def _names(value: object, path: str) -> tuple[str, ...]:
    if not is_list(value):
        raise _wrong(path, "a list of strings", value)
    names = tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise _wrong(path, "strings", name)
    return tuple(freeze(name, path) for name in names)


def _unknown(fields: Iterable[attrs.Attribute[Any]], value: object, path: str) -> FrozenDict:
    frozen = _object(value, path)
    known = [field.name for field in fields if field.name in frozen and field.name != "unknown_fields"]
    if known:  # in JSON they would take the place of the fields themselves
        raise InvalidValueError(path, f"expected fields unknown to this version, found {', '.join(known)}")
    return frozen


def _converted(convert: Callable[[Any], Any], value: object, path: str) -> Any:
    return convert(value)


TEXT = checked(_text)
"""Text that UTF-8 can write."""

FLAG = checked(_flag)
"""True, False or None."""

JSON_VALUE = checked(freeze, "json")
"""A JSON value, frozen."""

OBJECT = checked(_object, "json")
"""A JSON object, frozen."""

NAMES = checked(_names, "json")
"""A list of strings, as a tuple."""

NAME_SET = checked(lambda value, path: frozenset(_names(value, path)), "set")
"""A set of strings."""


def instance_of(kind: type) -> dict[str, Any]:
    """One of *kind*."""

    def check(value: object, path: str) -> object:
        if not isinstance(value, kind):
            raise _wrong(path, kind.__name__, value)
        return value

    return checked(check)


def integer(least: int | None = None) -> dict[str, Any]:
    """An integer that can be stored, of at least *least*."""
    expected = "an integer" if least is None else f"an integer of at least {least}"

    def check(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
            raise _wrong(path, expected, value)
        plain: int = freeze(value, path)
        return plain

    return checked(check)


def number(least: float | None = None, most: float | None = None) -> dict[str, Any]:
    """A finite number within these bounds, as a float."""
    bounds = [f"at {word} {bound}" for word, bound in (("least", least), ("most", most)) if bound is not None]
    expected = f"a finite number of {' and '.join(bounds)}" if bounds else "a finite number"
    low = -sys.float_info.max if least is None else least
    high = sys.float_info.max if most is None else most

    def check(value: object, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise _wrong(path, expected, value)
        return float(value)

    return checked(check)


def check_in_subclass(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    """
    The validator of the last field of each value: what attrs calls in subclasses whose constructor it has made.

    All fields are set then. They become what the constructor of the value itself makes of them, or that raises.
    """
    cls: Any = next(base for base in type(instance).__mro__ if _is_ours(base))
    names = [field.name for field in attrs.fields(cls)]
    own = cls(**{name: getattr(instance, name) for name in names})
    for name in names:
        object.__setattr__(instance, name, getattr(own, name))


def unknown_field() -> Any:
    """Where a value keeps the fields that a later version wrote into its JSON; it stands last."""
    metadata = checked(_object, "json")
    return attrs.field(default=EMPTY_DICT, repr=False, validator=check_in_subclass, metadata=metadata)


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether *value* is a list of something, or can be made one; neither a text nor a dict is."""
    if type(value) is list or type(value) is tuple:
        return True
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict))


# --- how values are made and copied -----------------------------------------------------------------------------------


class Value:
    """The base of all values: shown without the fields that were not given; equal by content, and so not hashable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # they hold dicts

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        fields = attrs.fields(type(self))  # type: ignore[arg-type]  # every subclass is an attrs class
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields)

    def __repr__(self) -> str:
        fields = attrs.fields(type(self))  # type: ignore[arg-type]  # every subclass is an attrs class
        # None for what is not there yet: a value that is refused is shown half made by tracebacks with locals.
        given = ((field.name, getattr(self, field.name, None)) for field in fields if field.repr)
        shown = ", ".join(f"{name}={value!r}" for name, value in given if value is not None and value not in ((), {}))
        return f"{type(self).__name__}({shown})"


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("minirun.")


_DRAFTS: dict[type, type] = {}
_COPIERS: dict[type, Callable[[Any, dict[str, Any]], Any]] = {}


def _draft_of(cls: Any) -> type:
    """
    The draft of one of minirun's own frozen classes: another class of the same layout, whose instances may be changed.

    What is made as a draft becomes a value by `draft.__class__ = cls`. Until then its fields are set as ordinary
    attributes, which takes a tenth of the time of going around the guard of a frozen class, field by field.
    """
    made = _DRAFTS.get(cls)
    if made is None:
        bases, names = cls.__bases__, {"__slots__": cls.__slots__, "__module__": cls.__module__}
        if "__weakref__" in cls.__slots__:  # before Python 3.12 only a subclass has the same layout, then
            free = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
            bases, names = (cls,), {**names, "__slots__": (), **free}
        made = _DRAFTS[cls] = type(f"{cls.__name__}Draft", bases, names)
    return made


def _compiled(cls: Any, head: str, body: Iterable[str], **scope: Any) -> Any:
    """A function of this head and body, which makes a value of *cls* out of a draft."""
    name = head.partition("(")[0]
    lines = [f"def {head}:", *body]
    scope |= {"cls": cls, "Draft": _draft_of(cls), "new": object.__new__, "set_class": object.__setattr__}
    exec("\n    ".join(lines), scope)
    return scope[name]


def constructed(cls: _Class) -> _Class:
    """
    Give one of minirun's own values its constructor: `__init__`, or `__attrs_init__` where the class writes the other.

    It takes the fields by name, looks at those that are not left out, and sets them in a draft. A rule about several
    fields is the method `_check_whole` of the class; that of a subclass is not asked. Every field has a
    check, or one of attrs' converters, by which mypy knows that it takes more than it holds.

    The constructor is compiled when it is first called.
    """
    name = "__attrs_init__" if "__attrs_init__" in vars(cls) else "__init__"
    plain = vars(cls)[name]

    def construct_first(self: Any, **fields: Any) -> None:
        construct = update_wrapper(_constructor_of(cls), plain)
        if vars(cls)[name] is construct_first:  # nobody has put something in its place
            setattr(cls, name, construct)
        construct(self, **fields)

    setattr(cls, name, update_wrapper(construct_first, plain))
    return cls


def _constructor_of(cls: Any) -> Callable[..., None]:
    """
    For a class with the fields `name`, which must be given, and `id`::

        def construct(self, *, name, id=default_id):
            name = check_name(name, 'FunctionCall.name')
            if id is not default_id: id = check_id(id, 'FunctionCall.id')
            if self.__class__ is cls:
                set_class(self, '__class__', Draft)
                self.name = name
                self.id = id
                self.__class__ = cls
            else:
                set_fields(self, (name, id))
            check_whole(self)
    """

    def set_fields(value: object, held: tuple[object, ...]) -> None:
        for field, each in zip(fields, held, strict=True):
            object.__setattr__(value, field.name, each)

    fields = attrs.fields(cls)
    scope: dict[str, Any] = {"set_fields": set_fields, "check_whole": vars(cls).get("_check_whole")}
    parameters, checks = [], []
    for field in fields:
        name, must_be_given = field.name, field.default is attrs.NOTHING
        check = field.metadata.get("check") or partial(_converted, field.converter)
        if name == "unknown_fields":
            check = partial(_unknown, fields)
        scope |= {f"default_{name}": field.default, f"check_{name}": check}
        parameters.append(name if must_be_given else f"{name}=default_{name}")
        default = "None" if field.default is None else f"default_{name}"
        condition = "" if must_be_given else f"if {name} is not {default}: "
        checks.append(f"{condition}{name} = check_{name}({name}, '{cls.__name__}.{name}')")
    body = [
        *checks,
        "if self.__class__ is cls:",
        "    set_class(self, '__class__', Draft)",
        *(f"    self.{field.name} = {field.name}" for field in fields),
        "    self.__class__ = cls",
        "else:",
        f"    set_fields(self, ({', '.join(field.name for field in fields)},))",
        *(["check_whole(self)"] if scope["check_whole"] else []),
    ]
    constructor: Callable[..., None] = _compiled(cls, f"construct(self, *, {', '.join(parameters)})", body, **scope)
    return constructor


def changed(value: _T, /, **changes: Any) -> _T:
    """
    Return a copy of a value with some fields replaced by ones that are known to be valid.

    `attrs.evolve` checks every field again; this one is for fields that the runtime itself has made.
    """
    cls = type(value)
    copier = _COPIERS.get(cls) or (_copier_of(cls) if _is_ours(cls) else _copied)
    made: _T = copier(value, changes)
    return made


def _copier_of(cls: Any) -> Callable[[Any, dict[str, Any]], Any]:
    """The function that copies a value of this class and changes some fields, compiled when it is first asked for."""
    names = [name for name in cls.__slots__ if name != "__weakref__"]  # attrs has put them there
    body = [
        "made = new(Draft)",
        *(f"made.{name} = value.{name}" for name in names),
        "for name in changes:",
        "    setattr(made, name, changes[name])",
        "made.__class__ = cls",
        "return made",
    ]
    copier: Callable[[Any, dict[str, Any]], Any] = _compiled(cls, "copy(value, changes)", body)
    _COPIERS[cls] = copier
    return copier


def _copied(value: Any, changes: dict[str, Any]) -> Any:
    """Copy a value of somebody else's class, whose fields may stand in slots of several classes, or in a dict."""
    cls = type(value)
    copy = object.__new__(cls)
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__") and hasattr(value, name):
                object.__setattr__(copy, name, getattr(value, name))
    if hasattr(value, "__dict__"):
        copy.__dict__.update(value.__dict__)
    for name, field in changes.items():
        object.__setattr__(copy, name, field)
    return copy


class _Makers(dict[Any, Any]):
    """
    By class: a function that makes a value of fields, given by name, that are known to be valid; compiled on first use.

    Fields that are left out have their defaults. What somebody else may have made goes through the class itself.
    """

    def __missing__(self, cls: Any) -> Any:
        defaults = {field.name: field.default for field in attrs.fields(cls)}
        parameters = ", ".join(f"{name}=defaults[{name!r}]" for name in defaults)
        body = [
            "made = new(Draft)",
            *(f"made.{name} = {name}" for name in defaults),
            "made.__class__ = cls",
            "return made",
        ]
        self[cls] = _compiled(cls, f"make({parameters})", body, defaults=defaults)
        return self[cls]


MAKE = _Makers()
