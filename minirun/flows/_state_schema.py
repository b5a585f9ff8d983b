"""
The schema of a state: which keys of the session there are, and what each may hold.

A schema is a class: an attrs class, a dataclass, a TypedDict or a pydantic model. Its fields are the keys.

The rules:

* A value is JSON, and read strictly: an int takes no 3.0 and no "3", a float takes an int. What is stored is the value
  that was given; nothing is converted, and no default is filled in.
* One key is looked at, as a write is of one key. What the class says of its fields together, or checks when it is made
  (an attrs validator, a model's), is asked where an instance is made: by `state_as`.
* Keys with the prefix of another scope belong to no schema; as a field they would mean nothing, so they are refused.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import attrs

from .._json import shown
from .._state_schema_error import StateSchemaError
from ..errors import ConfigurationError
from ._foreign_models import is_model, model_field, model_fields, model_type
from ._schema import Compiler
from ._types import Field, Type, bounded, object_of, read_value
from ._written import fields_shown

__all__ = ["StateSchema", "instance_of"]

_KINDS = "an attrs class, a dataclass, a TypedDict or a pydantic model"
_RESERVED = ("app:", "user:", "temp:")
# A program has a few schemas; a test suite that makes them in functions does not keep all of them.
SCHEMAS_KEPT_MAX = 128

_ABSENT = object()
T = TypeVar("T")


@attrs.frozen(eq=False, repr=False)
class StateSchema:
    """A schema, compiled once."""

    name: str
    """What messages call it."""

    fields: Mapping[str, Field]
    """By key: what it may hold, and whether it is required: has no default, and cannot be deleted."""

    is_open: bool
    """Whether there may be other keys, too: a pydantic model says so with `extra="allow"`."""

    _of_others: Callable[[str], Type]
    _whole: Type

    @classmethod
    def of(cls, tp: object, what: str = "state_schema") -> StateSchema:
        """
        Return the schema that a class is. It is compiled once for each class.

        Args:
            tp: The class.
            what: How the caller's own argument is called, for messages.

        Raises:
            ConfigurationError: It is no such class, or has a field that cannot be checked.
        """
        is_class = isinstance(tp, type) and not typing.get_args(tp)
        if not is_class or not (typing.is_typeddict(tp) or is_model(tp) or fields_shown(cast("type", tp)) is not None):
            raise ConfigurationError(f"expected {what} to be {_KINDS}, found {shown(tp)}")
        return _compiled(tp, what)

    def problems(self, key: str, value: Any) -> list[str]:
        """Return what is wrong with a frozen *value* under a *key* that this schema knows, or is open for."""
        field = self.fields.get(key)
        kind = self._of_others(key) if field is None else field.type
        return bounded(read_value(kind, value, f"state[{key!r}]", strict=True)[1])

    def knows(self, key: str) -> bool:
        """Whether the session may have this key."""
        return self.is_open or key in self.fields

    def read(self, values: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """Return an instance with these values and no problems; or None, and all problems."""
        made, problems = read_value(self._whole, dict(values), "", strict=True)
        return (None, bounded(problems)) if problems else (made, [])


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _compiled(tp: Any, what: str) -> StateSchema:
    try:
        if is_model(tp):
            fields, is_open = model_fields(tp, what)
            whole = model_type(tp, what, {}, ())
        else:
            fields, is_open = Compiler().fields_of(tp, what), False
            whole = object_of(tp.__name__, fields, dict if typing.is_typeddict(tp) else tp)
    except TypeError as error:
        raise ConfigurationError(str(error)) from None
    for key in fields:
        if key.startswith(_RESERVED):
            msg = f"{what}: {tp.__qualname__} has a field {key!r}, and no schema looks at a key with this prefix"
            raise ConfigurationError(f"{msg}; leave it out")
    return StateSchema(tp.__name__, fields, is_open, lambda key: model_field(tp, key, {}), whole)


def instance_of(tp: type[T], state: Mapping[str, Any]) -> T:
    """
    Return a copy of a state as an instance of a schema, with its defaults.

    Raises:
        ConfigurationError: *tp* is no such class.
        StateSchemaError: A field without a default is missing, or a value does not fit.
    """
    schema = StateSchema.of(tp, "the schema of state_as")
    others = (key for key in state if not key.startswith(_RESERVED)) if schema.is_open else ()
    found = {key: state.get(key, _ABSENT) for key in dict.fromkeys((*schema.fields, *others))}
    values = {key: value for key, value in found.items() if value is not _ABSENT}
    made, problems = schema.read(values)
    if not problems:
        return cast("T", made)
    missing = [key for key, field in schema.fields.items() if field.required and key not in values]
    wrong = [key for key in values if schema.problems(key, values[key])]
    raise StateSchemaError(
        f"expected a state that makes a {schema.name}, found one that does not: {'; '.join(problems)}",
        key=next(iter((*missing, *wrong)), ""),
        schema=schema.name,
        fields=tuple(schema.fields),
    )
