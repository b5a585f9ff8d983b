"""
Plugins that only watch change nothing: with them and without them a simulated world is the same, to the byte.

A world's log has what is stored, and when; the choices it was made of are compared, too. Worlds fail, crash, pause and
go on, so what the plugins do in all of these is in here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from minirun import App, BaseAgent, Event
from minirun.plugins import (
    BasePlugin,
    ContextFilterPlugin,
    DebugLoggingPlugin,
    GlobalInstructionPlugin,
    LoggingPlugin,
    SaveFilesAsArtifactsPlugin,
)
from minirun.runtime import InvocationContext
from minirun.simulation import Outcome, SeededChoices, World, simulate

from ..worlds import WORLDS

NAMES = ["desk in memory", "trees in trouble", "orders in memory", "office in memory", "choir on disk"]


class Silent(BasePlugin):
    """Has the hooks that cost most, and does nothing in them."""

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        invocation_context.watch_commits(self.told)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        assert invocation_context.status != "running"

    def told(self, event: Event) -> None:
        assert event.seq is not None


def tracing(folder: Path) -> BasePlugin:
    """The plugin for OpenTelemetry, with everything on, under an SDK that draws no luck for its ids."""
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from ..otel import Recorder

    return Recorder().plugin(capture_content=True)


WATCHERS: dict[str, Callable[[Path], BasePlugin]] = {
    "silent": lambda folder: Silent("silent"),
    "logging": lambda folder: LoggingPlugin(),
    "debug_logging": lambda folder: DebugLoggingPlugin(folder / "trace"),
    "global_instruction": lambda folder: GlobalInstructionPlugin(""),
    "tracing": tracing,
    "context_filter": lambda folder: ContextFilterPlugin(1_000),
    "save_files": lambda folder: SaveFilesAsArtifactsPlugin(),
}


def world_with(name: str, plugins: list[BasePlugin], seed: int) -> Outcome:
    """One of the worlds, whose apps have these plugins: the same in all its processes, as all are this one."""
    scenario, options = WORLDS[name]

    async def with_plugins(world: World) -> None:
        runner = world.runner

        def replaced(what: Any, *, app_name: str = "app", state: Any = None) -> Any:
            def made() -> App:
                found = what() if callable(what) and not isinstance(what, (App, BaseAgent)) else what
                app = found if isinstance(found, App) else App(app_name, found)
                return App(app.name, app.root_agent, [*app.plugins, *plugins], prompts=app.prompts)

            return runner(made, app_name=app_name, state=state)

        world.runner = replaced  # type: ignore[method-assign]
        await scenario(world)

    return simulate(with_plugins, SeededChoices(seed), **options)


@cache
def plain_world(name: str, seed: int) -> Outcome:
    """One of the worlds as it is."""
    return world_with(name, [], seed)


@pytest.mark.parametrize("seed", [3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_that_watches_changes_nothing(name: str, watcher: str, seed: int, tmp_path: Path) -> None:
    """The same things happen at the same times, and the same is stored."""
    plain = plain_world(name, seed)
    watched = world_with(name, [WATCHERS[watcher](tmp_path)], seed)
    assert [str(entry) for entry in watched.log] == [str(entry) for entry in plain.log]
    assert (watched.picks, watched.digest, watched.steps) == (plain.picks, plain.digest, plain.steps)
    files = list(tmp_path.rglob("*.jsonl"))
    assert bool(files) == (watcher == "debug_logging")


class Talking(BasePlugin):
    """Not one of them: it changes what an event says."""

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Any) -> Any:
        return type(event)(custom_metadata={"seen": True}) if event.content else None


def test_a_plugin_that_changes_something_is_found_out() -> None:
    """The comparison above can tell."""
    plain = plain_world("desk in memory", 3)
    assert world_with("desk in memory", [Talking("talking")], 3).digest != plain.digest
