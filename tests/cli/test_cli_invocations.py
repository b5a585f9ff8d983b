"""`minirun invocations resume` and `minirun answer`, as processes: what goes on, what is told, what is left."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import trio

from minirun import SqliteSessionService

from ..fork_server import run, start

AGENT = """
import os, signal, time
from pathlib import Path
import trio
from minirun import App, BaseAgent, Event

def dies_at(moment):
    fate = Path("fate")
    if fate.exists() and fate.read_text() == moment:
        os.kill(os.getpid(), signal.SIGKILL)

async def happens(what):
    with open("world.log", "a") as world:
        world.write(what + "\\n")
    return what

class Worker(BaseAgent):
    async def _run_async_impl(self, ctx):
        text = ctx.user_content.text
        await ctx.step("first", happens, f"{text}: first")
        await ctx.emit(Event(message=f"{text}: begun"))
        dies_at("begun")
        if text == "fail" and not Path("repaired").exists():
            raise OSError("the world is gone")
        if text.startswith("wait"):
            await ctx.sleep_until(float(text.split()[1]))
        if text == "ask":
            answer = await ctx.request_input("Which?", response_schema=str)
            await ctx.emit(Event(message=f"it is {answer!r}"))
        if text == "slow" and Path("fate").exists():
            print("slow begins", flush=True)
            await trio.sleep_forever()
        if text == "busy" and Path("fate").exists():
            print("busy begins", flush=True)
            while True:
                time.sleep(0.01)
                await trio.lowlevel.checkpoint()
        dies_at("answered")
        await ctx.step("last", happens, f"{text}: last")
        await ctx.emit(Event(message=f"{text}: done"))

app = App("app", Worker(name="w"))
"""

class Shell:
    """Runs the command line in a folder, and says when its agent dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "agent.py").write_text(AGENT)

    def program(self, *arguments: str) -> list[str]:
        """The command, with what each of them takes."""
        return ["-W", "error", "-m", "minirun", *arguments, "--db", "s.db"]

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Run it, and return what it prints."""
        done = run(self.program(*arguments), cwd=self.folder)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def killed(self, moment: str, *arguments: str) -> None:
        """Run it, and let it die when its agent has come so far."""
        (self.folder / "fate").write_text(moment)
        self(*arguments, status=-signal.SIGKILL)
        (self.folder / "fate").unlink()

    def statuses(self) -> dict[str, str]:
        """The status of each session's only invocation."""
        rows = [row.split() for row in self("invocations", "list").splitlines()[1:]]
        return {row[2]: row[4] for row in rows}

    def invocation_ids(self) -> list[str]:
        """The ids, oldest first."""
        return [row.split()[3] for row in self("invocations", "list").splitlines()[1:]]

    def happened(self) -> list[str]:
        """What the agents have done to the world."""
        return (self.folder / "world.log").read_text().splitlines()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with an agent."""
    return Shell(tmp_path)


def question_in(output: str) -> str:
    """The id of the question that somebody is asked."""
    [found] = set(re.findall(r"\bq-[0-9a-f]+", output))
    return str(found)


def test_what_was_killed_goes_on(shell: Shell) -> None:
    """All that was interrupted, one after another, with what is new; nothing is done twice, nothing is left."""
    for session in ("one", "two"):
        shell.killed("begun", "run", "agent.py", session, "--session", session)
    assert shell.statuses() == {"one": "interrupted", "two": "interrupted"}
    first, second = shell.invocation_ids()
    assert shell("invocations", "resume", "agent.py").splitlines() == [
        f"{first} of user 'local', session 'one'",
        "one: done",
        f"{second} of user 'local', session 'two'",
        "two: done",
    ]
    assert shell.statuses() == {"one": "completed", "two": "completed"}
    assert shell.happened() == ["one: first", "two: first", "one: last", "two: last"]
    assert shell("invocations", "resume", "agent.py") == "nothing was interrupted, and nothing is due\n"
    assert shell("invocations", "resume", "agent.py", first) == f"{first} has ended: completed\n"


def test_what_has_failed_goes_on_when_it_is_named(shell: Shell) -> None:
    """Only then: what failed is tried again, and may fail again; what is recorded is not done again."""
    shell("run", "agent.py", "fail", status=1)
    [failed] = shell.invocation_ids()
    assert shell("invocations", "resume", "agent.py") == "nothing was interrupted, and nothing is due\n"
    assert "the world is gone" in shell("invocations", "resume", "agent.py", failed, status=1)
    assert shell.statuses() == {"default": "failed"}
    (shell.folder / "repaired").touch()
    assert shell("invocations", "resume", "agent.py", failed) == "fail: done\n"
    assert shell.statuses() == {"default": "completed"}
    assert shell.happened() == ["fail: first", "fail: last"]
    assert shell("invocations", "resume", "agent.py", failed) == f"{failed} has ended: completed\n"


def test_an_answer_that_was_killed_goes_on(shell: Shell) -> None:
    """The answer is recorded, and nobody is asked again; what was done before and after is done once."""
    question = question_in(shell("run", "agent.py", "ask"))
    shell.killed("answered", "answer", "agent.py", question, "5")
    assert shell.statuses() == {"default": "interrupted"}
    assert "no open question" in shell("answer", "agent.py", question, "5", status=1)
    [invocation] = shell.invocation_ids()
    assert shell("invocations", "resume", "agent.py", invocation) == "ask: done\n"
    log = shell("sessions", "show", "app", "local", "default")
    assert log.count("it is '5'") == 1
    assert shell.statuses() == {"default": "completed"}
    assert shell.happened() == ["ask: first", "ask: last"]


def test_what_fails_is_told_and_others_have_their_turn(shell: Shell) -> None:
    """The failure is one line and the exit status 1; the one after it comes to its end."""
    for session in ("fail", "good"):
        shell.killed("begun", "run", "agent.py", session, "--session", session)
    told = shell("invocations", "resume", "agent.py", status=1)
    assert "OSError: the world is gone\n" in told
    assert "good: done" in told
    assert shell.statuses() == {"fail": "failed", "good": "completed"}


def test_what_is_due_goes_on_and_what_is_not_is_left(shell: Shell) -> None:
    """A time that has come is enough; one that has not, and a question, wait on, until somebody names them."""
    for session, message in (("near", "wait 9999999999"), ("far", "wait 9999999999"), ("asks", "ask")):
        shell("run", "agent.py", message, "--session", session)
    code = (shell.folder / "agent.py").read_text()
    assert shell("invocations", "resume", "agent.py") == "nothing was interrupted, and nothing is due\n"
    shell("run", "agent.py", "wait 5", "--session", "now")
    assert shell.statuses() == {"near": "paused", "far": "paused", "asks": "paused", "now": "completed"}
    clock = "import time\ntime.time = lambda now=time.time: now() + 9e9\n"
    (shell.folder / "agent.py").write_text(clock + code)
    told = shell("invocations", "resume", "agent.py", "--session", "near")
    assert "wait 9999999999: done" in told
    assert shell.statuses() == {"near": "completed", "far": "paused", "asks": "paused", "now": "completed"}
    asking = shell.invocation_ids()[2]
    assert question_in(shell("invocations", "resume", "agent.py", asking))
    assert shell.statuses()["asks"] == "paused"


@pytest.mark.parametrize("message", ["slow", "busy"])
def test_ctrl_c_leaves_it_interrupted(message: str, shell: Shell) -> None:
    """Whether the agent waits or computes: the process ends with 130, and the next one goes on."""
    shell.killed("begun", "run", "agent.py", message)
    (shell.folder / "fate").write_text("never")
    command = shell.program("invocations", "resume", "agent.py")
    process = start(command, cwd=shell.folder, start_new_session=True)
    assert f"{message} begins\n" in process.stdout
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (130, "")
    assert shell.statuses() == {"default": "interrupted"}
    (shell.folder / "fate").unlink()
    assert f"{message}: done" in shell("invocations", "resume", "agent.py")
    assert shell.happened() == [f"{message}: first", f"{message}: last"]


def test_an_invocation_that_is_not_there_is_named(shell: Shell) -> None:
    """A wrong id, or a session that it is not in, is one sentence; nothing is changed."""
    shell.killed("begun", "run", "agent.py", "one")
    [invocation] = shell.invocation_ids()
    assert "there is no invocation 'e-nix'" in shell("invocations", "resume", "agent.py", "e-nix", status=1)
    wrong = ("invocations", "resume", "agent.py", invocation, "--session", "other")
    assert f"there is no invocation '{invocation}'" in shell(*wrong, status=1)
    assert shell.statuses() == {"default": "interrupted"}


def test_an_answer_whose_run_fails_is_told_without_a_traceback(shell: Shell) -> None:
    """The failure of the agent is shown as `minirun run` shows it."""
    question = question_in(shell("run", "agent.py", "ask"))
    code = (shell.folder / "agent.py").read_text()
    (shell.folder / "agent.py").write_text(code.replace('dies_at("answered")', 'raise OSError("the shop is closed")'))
    told = shell("answer", "agent.py", question, "tea", status=1)
    assert told.splitlines()[-2:] == ["it is 'tea'", "OSError: the shop is closed"]


def test_a_text_that_looks_like_something_else_may_be_an_answer(shell: Shell) -> None:
    """Where a text is asked for, a number is one, too; what fits as JSON is JSON, and what does not fit is refused."""
    question = question_in(shell("run", "agent.py", "ask"))
    assert "it is '7'" in shell("answer", "agent.py", question, "7")
    code = (shell.folder / "agent.py").read_text()
    (shell.folder / "agent.py").write_text(code.replace("response_schema=str", "response_schema=list[int]"))
    question = question_in(shell("run", "agent.py", "ask", "--session", "other"))
    assert "fits its schema" in shell("answer", "agent.py", question, '"[7]"', status=2)
    assert "fits its schema" in shell("answer", "agent.py", question, "7", status=2)
    assert "it is [7]" in shell("answer", "agent.py", question, "[7]")


BANK = """
from minirun import FunctionTool, LlmAgent
from minirun.testing import ScriptedLlm, call

def send(to: str) -> str:
    return f"sent to {to}"

def talk(request):
    done = any(part.function_response for content in request.contents for part in content.parts)
    return "Sent." if done else call("send", to="eve")

agent = LlmAgent(name="bank", model=ScriptedLlm(talk), tools=[FunctionTool(send, require_confirmation=True)])
"""


def test_a_question_is_shown_once_with_what_to_type(shell: Shell) -> None:
    """The line below a question is the command that answers it; the call behind it is shown by `sessions show` only."""
    (shell.folder / "the bank.py").write_text(BANK)
    call, asked, how = shell("run", "the bank.py", "Pay eve").splitlines()
    question = question_in(asked)
    assert call == '  call send(to="eve")'
    assert asked == f'? confirmation send({{"to":"eve"}})  [{question}]'
    assert how == f"  minirun answer 'the bank.py' --db s.db {question} yes   (or no)"
    [row] = shell("invocations", "pending").splitlines()[1:]
    assert row.split()[-2:] == ["confirmation", 'send({"to":"eve"})']
    assert "Sent." in shell("answer", "the bank.py", question, "yes")
    log = shell("sessions", "show", "the_bank", "local", "default")
    assert "  question adk_request_confirmation(" in log
    assert "  call adk_request_confirmation(" not in log


def test_a_value_that_cannot_answer_is_a_mistake_in_the_arguments(shell: Shell) -> None:
    """It ends the command with 2, as the guide says of arguments that make no sense, and the question stays open."""
    (shell.folder / "bank.py").write_text(BANK)
    question = question_in(shell("run", "bank.py", "Pay eve"))
    assert "expected yes or no, found 'maybe'" in shell("answer", "bank.py", question, "maybe", status=2)
    assert "Missing argument 'VALUE'" in shell("answer", "bank.py", question, status=2)
    assert question in shell("invocations", "pending")


def test_what_is_kept_in_memory_cannot_be_answered_later(shell: Shell) -> None:
    """Without a file, the line below a question says so, instead of a command that finds nothing."""
    (shell.folder / "bank.py").write_text(BANK)
    done = run(["-m", "minirun", "run", "bank.py", "Pay eve"], cwd=shell.folder)
    assert done.stdout.splitlines()[-1] == "  without --db it is kept nowhere, and no other command can answer it"


def test_a_question_of_several_sessions_is_not_answered_by_chance(shell: Shell) -> None:
    """A fork has the questions of its origin: which is meant has to be said, and only that one is answered."""
    question = question_in(shell("run", "agent.py", "ask"))

    async def fork() -> None:
        async with SqliteSessionService(shell.folder / "s.db") as service:
            [waiting] = await service.list_pending()
            await service.fork_session(
                app_name="app", user_id=waiting.user_id, session_id=waiting.session_id, new_session_id="fork"
            )

    trio.run(fork)
    told = shell("answer", "agent.py", question, "tea", status=1)
    assert "expected one question, found user " in told
    assert shell.statuses() == {"default": "paused", "fork": "paused"}
    assert "it is 'tea'" in shell("answer", "agent.py", question, "tea", "--session", "fork")
    assert shell.statuses() == {"default": "paused", "fork": "completed"}
