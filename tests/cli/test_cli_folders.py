"""What `minirun` loads from a folder: a package in ADK's layout, in every command that takes a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .test_cli import minirun

AGENT = """
from minirun import BaseAgent, Event
{imports}

class Says(BaseAgent):
    text: str
    async def _run_async_impl(self, ctx):
        if self.text == "asks":
            await ctx.emit(Event(message=f"got {{await ctx.request_input('what?')}}"))
        else:
            await ctx.emit(Event(message=f"{{self.text}} {{ctx.session.app_name}}"))

{name} = Says(name="says", text={text})
"""


INIT = "from . import agent"


def package(folder: Path, name: str = "my_agent", *, text: str = "WORDS", init: str | None = INIT) -> Path:
    """ADK's layout: `__init__.py`, `agent.py` with a relative import, and what it imports."""
    made = folder / name
    made.mkdir(parents=True)
    if init is not None:
        (made / "__init__.py").write_text(init)
    (made / "words.py").write_text("WORDS = 'hello from'\n")
    (made / "agent.py").write_text(AGENT.format(imports="from .words import WORDS", name="root_agent", text=text))
    return made


@pytest.mark.parametrize(
    ("target", "init"),
    [
        ("my_agent", INIT),
        ("my_agent/", "from .agent import root_agent"),
        ("./my_agent", ""),
        ("my_agent:root_agent", None),
    ],
)
def test_a_package_is_run_by_its_folder(target: str, init: str | None, tmp_path: Path) -> None:
    """Relative imports work, whatever `__init__.py` does and if it is there; the app has the folder's name."""
    package(tmp_path, init=init)
    done = minirun(tmp_path, "run", target, "hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello from my_agent\n", "")


def test_the_current_folder_and_one_below_others_are_packages_too(tmp_path: Path) -> None:
    """`.` has a name, and a package in a package is imported by its full name."""
    made = package(tmp_path)
    assert minirun(made, "run", ".", "hi").stdout == "hello from my_agent\n"
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").touch()
    inner = package(tmp_path / "agents", "inner")
    (inner / "words.py").write_text("from .. import __name__ as WORDS\n")
    assert minirun(tmp_path, "run", "agents/inner", "hi").stdout == "agents inner\n"


def test_files_of_a_folder_that_is_no_package_import_each_other_as_scripts_do(tmp_path: Path) -> None:
    """Without `__init__.py` a sibling is imported by its own name, too, whatever is beside or has the folder's name."""
    made = package(tmp_path, init=None)
    (made / "agent.py").write_text(AGENT.format(imports="from words import WORDS", name="root_agent", text="WORDS"))
    (tmp_path / "words.py").write_text("WORDS = 'hello from beside'\n")
    (made / "my_agent.py").touch()
    for target in ("my_agent", "my_agent/agent.py", str(made)):
        done = minirun(tmp_path, "run", target, "hi")
        assert (done.returncode, done.stdout.split(" my")[0].split(" agent")[0]) == (0, "hello from"), done.stderr


def test_a_file_of_a_package_may_import_relatively(tmp_path: Path) -> None:
    """A file is loaded as what it is: a part of its package."""
    package(tmp_path)
    assert minirun(tmp_path, "run", "my_agent/agent.py", "hi").stdout == "hello from agent\n"


def test_an_app_in_the_package_comes_first(tmp_path: Path) -> None:
    """What is named `app`, wherever in the package, is taken before its agents."""
    package(tmp_path, init="from minirun import App\nfrom .agent import root_agent\napp = App('shop', root_agent)")
    assert minirun(tmp_path, "run", "my_agent", "hi").stdout == "hello from shop\n"


def test_every_command_takes_a_folder(tmp_path: Path) -> None:
    """What a folder's agent asks is answered, and gone on with, by the folder."""
    package(tmp_path, text="'asks'")
    asked = minirun(tmp_path, "run", "my_agent", "--db", "s.db", "hi")
    assert asked.returncode == 0, asked.stderr
    pending = minirun(tmp_path, "invocations", "pending", "--db", "s.db").stdout
    [call_id] = re.findall(r"q-\w+", pending)
    answered = minirun(tmp_path, "answer", "my_agent", call_id, "it", "--db", "s.db")
    assert (answered.returncode, answered.stdout) == (0, "got it\n"), answered.stderr
    resumed = minirun(tmp_path, "invocations", "resume", "my_agent", "--db", "s.db")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty", "a folder with neither at 'empty'"),
        ("nothing", "found none at 'nothing'"),
        ("below/json", "rename the folder"),
        ("a.b", "expected a folder that can be imported"),
        ("blank", "expected one of app, root_agent, agent, or a single App or agent, found none"),
    ],
)
def test_what_is_no_package_of_an_agent_is_told(name: str, message: str, tmp_path: Path) -> None:
    """A folder without an agent, or with a name that cannot be imported, ends in one sentence."""
    (tmp_path / "empty").mkdir()
    package(tmp_path, "below/json")
    package(tmp_path, "a.b")
    (package(tmp_path, "blank") / "agent.py").write_text("")
    done = minirun(tmp_path, "run", name, "hi")
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
