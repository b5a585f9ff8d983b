"""
Hooks: functions of the application that are called at fixed places of a run.

Those of the plugins come first, in the order of the plugins, then the agent's own. The first that returns something
other than None has answered, and no other is asked. They run in the task, and so in the contextvars, of the agent or
run that they stand around. A hook that raises has failed, and so has the run (promise P7); no other hook takes that for
the failure of a model or a tool, nor is a model told of it: also where it was asked inside of a tool, around an agent
or an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Hook", "PluginHooks"]

Hook: TypeAlias = Callable[..., Any]
PluginHooks: TypeAlias = Mapping[str, Sequence[Hook]]
"""By the name of the hook: the methods of the plugins that have one."""
