"""
How frozen classes answer who changes them: with what to write instead.

attrs takes a class for frozen if its `__setattr__` is the function that attrs has put there, and lets whatever is
derived from it be frozen, too. So that function still stands there for who asks the class, and only an instance
answers with advice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

__all__ = ["VALUE", "refuse_changes"]

VALUE = "make another one: `attrs.evolve(value, {name}=...)`"


@attrs.frozen(init=False, eq=False, repr=False)
class _Frozen:
    """A class whose only use is to show what attrs puts into frozen ones."""


class _Guard:
    """`__setattr__` or `__delattr__` of a frozen class."""

    def __init__(self, of_attrs: Callable[..., None], advice: str) -> None:
        self._of_attrs = of_attrs
        self._advice = advice

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        return self._of_attrs if instance is None else partial(self._refuse, instance)

    def _refuse(self, instance: object, name: str, value: object = None) -> None:
        from ._frozen_error import refuse  # few programs try

        refuse(instance, name, self._advice)


def refuse_changes(cls: Any, advice: str) -> None:
    """Let a class that attrs has made frozen give *advice*, in which `{name}` is the field; leave others alone."""
    for method in ("__setattr__", "__delattr__"):
        of_attrs = vars(_Frozen)[method]
        if vars(cls).get(method) is of_attrs:
            setattr(cls, method, _Guard(of_attrs, advice))
