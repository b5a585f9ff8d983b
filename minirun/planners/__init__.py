"""Planners: what has a model plan before it acts."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._base import BasePlanner as BasePlanner
    from ._base import BuiltInPlanner as BuiltInPlanner
    from ._plan_re_act import PlanReActPlanner as PlanReActPlanner
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(), {"._base": "BasePlanner BuiltInPlanner", "._plan_re_act": "PlanReActPlanner"}
    )
