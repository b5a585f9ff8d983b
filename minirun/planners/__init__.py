"""Planners: how the model of an agent plans before it acts."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._built_in_planner import BuiltInPlanner as BuiltInPlanner
else:
    __getattr__, __dir__, __all__ = names_of(globals(), {"._built_in_planner": "BuiltInPlanner"})
