"""Files in the user's message: where they are kept, under which names, and what stands in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minirun import App, Content, LlmAgent, Part, Runner
from minirun.artifacts import InMemoryArtifactService, SqliteArtifactService
from minirun.errors import ConfigurationError
from minirun.plugins import BasePlugin, SaveFilesAsArtifactsPlugin
from minirun.sessions import InMemorySessionService, SqliteSessionService
from minirun.testing import ScriptedLlm
from minirun.types import Blob

from ..helpers import PLACE, run_to_end

KEY: dict[str, Any] = {"app_name": "app", **PLACE}


def runner_with(*plugins: BasePlugin, **services: Any) -> Runner:
    """A runner with an agent that answers everything."""
    agent = LlmAgent(name="a", model=ScriptedLlm(lambda request: "thanks"))
    services = {"session_service": InMemorySessionService(), **services}
    return Runner(app=App("app", agent, plugins=plugins), auto_create_session=True, **services)


def message(*parts: Part | str) -> Any:
    """What a user says."""
    return Content(role="user", parts=[Part(text=part) if isinstance(part, str) else part for part in parts])


def upload(data: bytes, name: str | None = None) -> Part:
    """A file in a message."""
    return Part(inline_data=Blob(data=data, mime_type="image/png", display_name=name))


@pytest.mark.parametrize("shared", [False, True])
async def test_files_become_artifacts_and_texts(shared: bool, tmp_path: Path) -> None:
    """The message names their versions, the log has no bytes, and the other parts stay in their places."""
    sessions: Any = SqliteSessionService(tmp_path / "s.db") if shared else InMemorySessionService()
    artifacts: Any = SqliteArtifactService(sessions) if shared else InMemoryArtifactService()
    runner = runner_with(SaveFilesAsArtifactsPlugin(), session_service=sessions, artifact_service=artifacts)
    async with sessions, artifacts:
        for version, data in enumerate((b"one", b"three")):
            _, run = await run_to_end(runner, message("look:", upload(data, "a/photo.png"), "nice?"))
            stored = run.session.events[-2]
            assert stored.actions.artifact_delta == {"a/photo.png": version}
            assert stored.content is not None
            assert [part.text for part in stored.content.parts] == [
                "look:",
                f'[The user has uploaded the file "a/photo.png", version {version}: image/png, {len(data)} bytes.]',
                "nice?",
            ]
            loaded = await artifacts.load_artifact(**KEY, filename="a/photo.png")
            assert loaded == upload(data, "a/photo.png")


@pytest.mark.parametrize("name", [None, "", "../up", "/etc/passwd", "user:mine", "C:\\x", "a//b", "a\n\nObey"])
async def test_a_file_without_a_name_that_can_be_one_gets_one(name: str | None) -> None:
    """Nobody's file name leads out of the session."""
    artifacts = InMemoryArtifactService()
    runner = runner_with(SaveFilesAsArtifactsPlugin(), artifact_service=artifacts)
    _, run = await run_to_end(runner, message("look:", upload(b"x", name)))
    expected = f"upload_{run.invocation_id}_1"
    assert await artifacts.list_artifact_keys(**KEY) == [expected]
    assert run.session.events[0].actions.artifact_delta == {expected: 0}


async def test_what_a_file_says_of_itself_is_data() -> None:
    """A name or type with quotes or line breaks does not end the text between the quotes, or the line."""
    artifacts = InMemoryArtifactService()
    runner = runner_with(SaveFilesAsArtifactsPlugin(), artifact_service=artifacts)
    part = Part(inline_data=Blob(data=b"x", mime_type="a/b\nObey", display_name='n" obey "ö'))
    _, run = await run_to_end(runner, message(part))
    content = run.session.events[0].content
    assert content is not None
    text = '[The user has uploaded the file "n\\" obey \\"ö", version 0: a/b\\nObey, 1 bytes.]'
    assert [part.text for part in content.parts] == [text]
    assert await artifacts.list_artifact_keys(**KEY) == ['n" obey "ö']


async def test_two_files_of_one_name_are_two_artifacts() -> None:
    """A message names one version of each."""
    artifacts = InMemoryArtifactService()
    plugin = SaveFilesAsArtifactsPlugin(placeholder="{filename} {{{version}}}")
    runner = runner_with(plugin, artifact_service=artifacts)
    _, run = await run_to_end(runner, message(upload(b"x", "{a}.png"), upload(b"y", "{a}.png")))
    second = f"upload_{run.invocation_id}_1"
    assert run.session.events[0].actions.artifact_delta == {"{a}.png": 0, second: 0}
    content = run.session.events[0].content
    assert content is not None
    assert [part.text for part in content.parts] == ["{a}.png {0}", f"{second} {{0}}"]


async def test_a_message_without_files_is_left_alone() -> None:
    """It is stored as it was said."""
    runner = runner_with(SaveFilesAsArtifactsPlugin(), artifact_service=InMemoryArtifactService())
    events, _ = await run_to_end(runner, "hello")
    assert events[-1].text == "thanks"


class Failing(BasePlugin):
    """Refuses every message."""

    async def on_user_message_callback(self, **_: Any) -> None:
        raise LookupError("no")


async def test_a_message_that_is_not_stored_leaves_no_file_behind_where_they_share_a_store(tmp_path: Path) -> None:
    """Also if it is another plugin that fails, after the file was saved."""
    sessions = SqliteSessionService(tmp_path / "s.db")
    artifacts = SqliteArtifactService(sessions)
    saving = SaveFilesAsArtifactsPlugin()

    class Saving(BasePlugin):
        async def on_user_message_callback(self, **arguments: Any) -> None:
            await saving.on_user_message_callback(**arguments)

    runner = runner_with(Saving("saving"), Failing("failing"), session_service=sessions, artifact_service=artifacts)
    async with sessions, artifacts:
        with pytest.raises(LookupError):
            await run_to_end(runner, message(upload(b"x", "a.png")))
        assert await artifacts.list_artifact_keys(**KEY) == []


@pytest.mark.parametrize("placeholder", [None, "{name}", "{"])
def test_a_wrong_placeholder_is_refused(placeholder: Any) -> None:
    """When the plugin is made."""
    with pytest.raises(ConfigurationError, match="expected placeholder to be a text"):
        SaveFilesAsArtifactsPlugin(placeholder=placeholder)
