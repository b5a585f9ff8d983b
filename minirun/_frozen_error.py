"""What frozen classes say to whoever would change them."""

from __future__ import annotations

from typing import Any, NoReturn

import attrs

__all__ = ["FrozenValueError", "refuse"]


class FrozenValueError(attrs.exceptions.FrozenInstanceError):
    """As attrs' own, with a message."""

    __init__ = AttributeError.__init__
    args = BaseException.args


def refuse(instance: Any, name: str, advice: str) -> NoReturn:
    """Raise for a change of a field, or of what is none; `{name}` in *advice* is the field."""
    cls = type(instance)
    fields = [field.alias or field.name for field in attrs.fields(cls) if field.name[0] != "_"]
    if name in fields:
        raise FrozenValueError(f"{cls.__name__}.{name} cannot change: {advice.replace('{name}', name)}")
    problem = f"{cls.__name__} has no field {name!r}, and its fields cannot change"
    if not fields:
        raise FrozenValueError(f"{problem}; it has none")
    raise FrozenValueError(f"{problem}; it has {', '.join(fields)}: {advice.replace('{name}', fields[0])}")
