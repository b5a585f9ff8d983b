"""
The command line and the providers' models: it reads the keys that the package does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from minirun.agents._tree_models import models_of
from minirun.cli._commands import run
from minirun.cli._load import KEY_VARIABLES, load_app
from minirun.models import LLMRegistry, providers
from minirun.models.anthropic import Claude


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable is set, and keys are forgotten after each test, with the models that were made with them."""
    for variable in KEY_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    yield
    providers._keys.clear()
    for entry in LLMRegistry._entries:
        entry.models.clear()


def agent_file(folder: Path, model: str) -> str:
    path = folder / "agent_of_a_provider.py"
    path.write_text(f"from minirun.agents import LlmAgent\nagent = LlmAgent(name='a', model={model!r})\n")
    return str(path)


def test_keys_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With its provider's variable set, an agent that names a model gets it.
    """
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    (model,) = models_of(load_app(agent_file(tmp_path, "claude-opus-4-5"))._tree)
    assert isinstance(model, Claude)


def test_a_missing_key_and_a_bad_one_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without a key the message says so, and one that no header can hold is named by its variable, without its text.
    """
    with pytest.raises(Exception, match="expected a key for the model 'gpt-5'"):
        load_app(agent_file(tmp_path, "gpt-5"))
    monkeypatch.setenv("OPENAI_API_KEY", "a\nb")
    with pytest.raises(click.ClickException, match="OPENAI_API_KEY: expected api_key"):
        load_app(agent_file(tmp_path, "gpt-5"))


def test_the_help_names_the_variables() -> None:
    """
    The help of `minirun run` says which variables are read.
    """
    assert all(variable in (run.help or "") for variable in KEY_VARIABLES.values())
