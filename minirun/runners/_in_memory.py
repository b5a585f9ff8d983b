"""A runner that keeps nothing when its program ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._arguments import refuse_unknown
from ..agents import BaseAgent
from ..apps import App
from ..env import Env
from ._runner import Runner

if TYPE_CHECKING:
    from ..plugins import BasePlugin
    from ..workflow._nodes import NodeLike

__all__ = ["InMemoryRunner"]


@refuse_unknown
class InMemoryRunner(Runner):
    """A runner with in-memory services of its own, for tests and scripts."""

    def __init__(
        self,
        agent: BaseAgent | None = None,
        *,
        app_name: str | None = None,
        node: NodeLike | None = None,
        plugins: Sequence[BasePlugin] | None = None,
        app: App | None = None,
        cleanup_timeout_s: float | None = None,
        plugin_close_timeout: float | None = None,
        auto_create_session: bool = False,
        env: Env | None = None,
    ) -> None:
        # Only who makes one pays for the four: many files import both runners by name and make one of them.
        from ..artifacts._in_memory import InMemoryArtifactService
        from ..credentials._in_memory import InMemoryCredentialService
        from ..memory._in_memory import InMemoryMemoryService
        from ..sessions._in_memory import InMemorySessionService

        super().__init__(
            app=app,
            agent=agent,
            node=node,
            plugins=plugins,
            app_name="InMemoryRunner" if app is None and app_name is None else app_name,
            session_service=InMemorySessionService(env=env),
            artifact_service=InMemoryArtifactService(env=env),
            memory_service=InMemoryMemoryService(env=env),
            credential_service=InMemoryCredentialService(env=env),
            cleanup_timeout_s=cleanup_timeout_s,
            plugin_close_timeout=plugin_close_timeout,
            auto_create_session=auto_create_session,
        )
