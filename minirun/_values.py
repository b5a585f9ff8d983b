"""
How values are made and copied: constructors that are compiled from the checks of fields, and copies that cost little.

A value is an attrs class, frozen and with slots, that is `constructed`; each of its fields says in its metadata how it
is checked (`_fields`). The constructor takes half of the time of one that attrs makes with as many validators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial, update_wrapper
from operator import attrgetter
from typing import Any, NoReturn, Self, TypeVar

import attrs

from ._fields import OBJECT, check_unknown
from ._frozen import VALUE, refuse_changes
from ._json import EMPTY_DICT

__all__ = ["MAKE", "Memoized", "Value", "changed", "check_in_subclass", "constructed", "unknown_field"]

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)


class Value:
    """The base of all values: shown without the fields that were not given; equal by content, and so not hashable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # they hold dicts

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_changes(cls, VALUE)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True  # as most fields at their defaults, which are left out where a value is written
        if other.__class__ is not self.__class__:
            return NotImplemented
        content = _content_of(self.__class__)  # type: ignore[arg-type]  # the class is hashable, its values are not
        return bool(content(self) == content(other))

    def to_json(self) -> str:
        """
        Return the value as one line of JSON, from which `from_json` of its class makes an equal one.

        It is the form in which values are stored and exported: field names as in Python, fields at their default left
        out, bytes as base64. It stays: a later version may write more, and reads what this one has written.
        """
        from ._codec import to_json  # few programs give values away

        return to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """
        Read a value of this class from its JSON. Fields of a later version are kept as `unknown_fields`.

        Raises:
            InvalidValueError: It is not JSON, or not that of such a value.
        """
        from ._codec import from_json

        return from_json(cls, text)

    def __repr__(self) -> str:
        fields = attrs.fields(type(self))  # type: ignore[arg-type]  # every subclass is an attrs class
        # None for what is not there yet: a value that is refused is shown half made by tracebacks with locals.
        given = ((field.name, getattr(self, field.name, None)) for field in fields if field.repr)
        shown = ", ".join(f"{name}={value!r}" for name, value in given if not _says_nothing(value))
        return f"{type(self).__name__}({shown})"


def _says_nothing(value: Any) -> bool:
    return value is None or value in ((), {}) or bool(getattr(value, "is_empty", False))


class Memoized(Value):
    """
    A value that remembers what was derived from its fields, once somebody has asked for it.

    The memo is no field: it is not compared, shown, written or pickled, and no copy takes it over, as the fields of the
    copy may be others. It needs no lock: threads that derive it at once all derive the same.
    """

    __slots__ = ("_memo",)
    _memo: Any


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

        def construct(self, *, name, id=default_id, **unknown):
            if unknown: refuse_arguments(self, unknown)
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

    def refuse_arguments(value: object, unknown: dict[str, Any]) -> NoReturn:
        from ._adk import refusal  # few programs make this mistake

        raise refusal(type(value), next(iter(unknown)), [field.name for field in fields])

    fields = attrs.fields(cls)
    scope: dict[str, Any] = {"set_fields": set_fields, "refuse_arguments": refuse_arguments}
    scope["check_whole"] = vars(cls).get("_check_whole")
    parameters, checks = [], []
    for field in fields:
        name, must_be_given = field.name, field.default is attrs.NOTHING
        check = field.metadata.get("check") or partial(_converted, field.converter)
        if name == "unknown_fields":
            check = partial(check_unknown, fields)
        scope |= {f"default_{name}": field.default, f"check_{name}": check}
        parameters.append(name if must_be_given else f"{name}=default_{name}")
        default = "None" if field.default is None else f"default_{name}"
        condition = "" if must_be_given else f"if {name} is not {default}: "
        checks.append(f"{condition}{name} = check_{name}({name}, '{cls.__name__}.{name}')")
    body = [
        "if unknown: refuse_arguments(self, unknown)",
        *checks,
        "if self.__class__ is cls:",
        "    set_class(self, '__class__', Draft)",
        *(f"    self.{field.name} = {field.name}" for field in fields),
        "    self.__class__ = cls",
        "else:",
        f"    set_fields(self, ({', '.join(field.name for field in fields)},))",
        *(["check_whole(self)"] if scope["check_whole"] else []),
    ]
    head = f"construct(self, *, {', '.join(parameters)}, **unknown)"
    constructor: Callable[..., None] = _compiled(cls, head, body, **scope)
    return constructor


@cache
def _content_of(cls: Any) -> Callable[[Any], object]:
    """What gives all fields of a value of this class; every subclass is an attrs class."""
    return attrgetter(*(field.name for field in attrs.fields(cls)))


def _converted(convert: Callable[[Any], Any], value: object, path: str) -> Any:
    return convert(value)


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
    return attrs.field(default=EMPTY_DICT, repr=False, validator=check_in_subclass, metadata=OBJECT)


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
    from ._copies import copied  # few values are of a class of somebody else

    return copied(value, changes, without=Memoized.__slots__)


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
