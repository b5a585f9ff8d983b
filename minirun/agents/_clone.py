"""Copies of agents."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from .._record import MUTABLE
from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ._base import BaseAgent

__all__ = ["clone"]

_Agent = TypeVar("_Agent", bound="BaseAgent")


def clone(agent: _Agent, update: Mapping[str, Any] | None) -> _Agent:
    """See `BaseAgent.clone`."""
    fields = {field.name for field in attrs.fields(type(agent))}  # type: ignore[arg-type]  # mypy does not see that it is an attrs class
    changes = dict(update or {})
    strange = sorted(set(changes) - fields)
    if strange:
        raise ConfigurationError(f"expected fields of {type(agent).__name__} in update, found {strange[0]!r}")
    changes.setdefault("sub_agents", [each.clone() for each in agent.sub_agents])
    made = object.__new__(type(agent))
    initialise = vars(type(agent)).get("__attrs_init__", type(agent).__init__)  # it may have an `__init__` of its own
    kept = {name: getattr(agent, name) for name in fields}
    own = {name: copy(value) if isinstance(value, MUTABLE) else value for name, value in kept.items()}
    initialise(made, **own | changes)
    return made
