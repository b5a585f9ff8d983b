"""A tool that fails is seen: in one record of the logger, by `run_debug`, and on the command line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from minirun import FunctionTool, LlmAgent, Runner, ToolContext
from minirun.credentials import AuthConfig, AuthCredential, InMemoryCredentialService
from minirun.sessions import InMemorySessionService
from minirun.testing import call
from minirun.tools import BaseTool, RetryConfig

from ..helpers import PLACE, run_to_end, runner_for
from ..resuming import steps


def weather(city: str) -> str:
    """Tell the weather."""
    return str(json.loads("{" if city == "Rome" else '"dry"'))


def forecaster(*tools: Any, city: str = "Rome", **options: Any) -> LlmAgent:
    """An agent that asks for the weather."""
    model = steps(call("weather", city=city), "done")
    return LlmAgent(name="x", model=model, tools=tools or [weather], **options)


LINE = weather.__code__.co_firstlineno + 2
"""Where the tool fails, in this file."""


async def test_a_failed_tool_leaves_one_record(caplog: pytest.LogCaptureFixture) -> None:
    """It names the tool, the call and the agent, and has the traceback; arguments are not in it."""
    with caplog.at_level(logging.DEBUG):
        events, run = await run_to_end(runner_for(forecaster()))
    [record] = caplog.records
    made = events[0].get_function_calls()[0].id or ""
    assert (record.name, record.levelno) == ("minirun", logging.ERROR)
    said = record.getMessage()
    assert "'weather'" in said
    assert all(part in said for part in (made, "'x'", run.invocation_id))
    assert "Rome" not in said
    assert record.exc_info is not None
    assert record.exc_info[0] is json.JSONDecodeError
    assert f'test_failed_tools.py", line {LINE}, in weather' in caplog.text
    failed_with = "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert run.failed_calls == {made: f"{__file__}:{LINE} in weather: {failed_with}"}


async def test_the_traceback_begins_at_the_tool(caplog: pytest.LogCaptureFixture) -> None:
    """The frames of minirun above a sync tool, in its thread, and above an async one are not in the record."""

    async def forecast(city: str) -> str:
        return weather(city)

    for tool in (weather, FunctionTool(forecast, name="weather")):
        caplog.clear()
        await run_to_end(runner_for(forecaster(tool)))
        [record] = caplog.records
        assert record.exc_info is not None
        first, _ = next(traceback.walk_tb(record.exc_info[2]))
        assert first.f_code.co_filename == __file__


async def test_a_failure_in_minirun_itself_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Where no frame is outside, all are shown: a tool whose result has no form in JSON is refused by minirun."""

    def weather(city: str) -> object:
        return object()

    await run_to_end(runner_for(forecaster(weather)))
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[2] is not None


async def test_a_tool_that_gives_a_result_leaves_none(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is told of what goes well."""
    with caplog.at_level(logging.DEBUG):
        _, run = await run_to_end(runner_for(forecaster(city="Oslo")))
    assert (caplog.records, run.failed_calls) == ([], {})


async def test_attempts_that_are_made_again_are_told_below(caplog: pytest.LogCaptureFixture) -> None:
    """Only the last one is an ERROR; one that ends well leaves no such record."""
    for most, levels in ((3, ["INFO", "INFO"]), (2, ["INFO", "ERROR"])):
        answers = iter([OSError("closed"), OSError("closed"), "dry"])

        async def weather(city: str, answers: Any = answers) -> str:
            answer = next(answers)
            if isinstance(answer, OSError):
                raise answer
            return str(answer)

        caplog.clear()
        tool = FunctionTool(weather, retry=RetryConfig(max_attempts=most, initial_delay=0))
        with caplog.at_level(logging.INFO):
            await run_to_end(runner_for(forecaster(tool)))
        assert [record.levelname for record in caplog.records] == levels


async def test_a_failure_that_a_hook_answers_is_told_below(caplog: pytest.LogCaptureFixture) -> None:
    """The model is told of no error then."""

    def answer(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, error: Exception) -> str:
        return "no idea"

    with caplog.at_level(logging.INFO):
        _, run = await run_to_end(runner_for(forecaster(on_tool_error_callback=answer)))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert run.failed_calls == {}


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (call("weather", city=[777_777_777]), "the call of the tool 'weather' was not made: its arguments do not fit"),
        (call("wether", city="777777777"), "the call of the tool 'wether' was not made: there is no such tool"),
    ],
)
async def test_a_mistake_of_the_model_is_a_warning_without_arguments(
    part: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the model wanted is not shown, nor where minirun has refused it."""
    agent = LlmAgent(name="x", model=steps(part, "done"), tools=[weather])
    with caplog.at_level(logging.DEBUG):
        await run_to_end(runner_for(agent))
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().startswith(told)
    assert "777777777" not in caplog.text


async def test_what_a_tool_writes_and_does_not_fit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A call whose writes cannot be merged has failed, too."""

    def number(tool_context: ToolContext) -> None:
        tool_context.state["k"] = 1

    def text(tool_context: ToolContext) -> None:
        tool_context.state.extend("k", [2])

    agent = LlmAgent(name="x", model=steps([call("number"), call("text")], "done"), tools=[number, text])
    events, _ = await run_to_end(runner_for(agent))
    failed = [one.name for one in events[1].get_function_responses() if "error" in one.response]
    assert [f"the tool {name!r} has failed" in caplog.text for name in ("number", "text")] == [False, True]
    assert failed == ["text"]
    assert len(caplog.records) == 1


async def test_no_secret_is_in_a_record(caplog: pytest.LogCaptureFixture) -> None:
    """A secret that a tool was given is taken out of its error, of the traceback, and of what is shown."""

    class Stubborn(Exception):
        """Says something that nobody can take out of it."""

        def __str__(self) -> str:
            return "refused: s3cr3t-enough"

    async def weather(city: str, tool_context: ToolContext) -> str:
        await tool_context.request_credential(AuthConfig("weather"))
        raise Stubborn

    credentials = InMemoryCredentialService()
    secret = AuthCredential("api_key", api_key="s3cr3t-enough")
    await credentials.save_credential(app_name="app", user_id="u", credential_key="weather", credential=secret)
    runner = Runner(
        agent=forecaster(FunctionTool(weather)),
        app_name="app",
        session_service=InMemorySessionService(),
        credential_service=credentials,
        auto_create_session=True,
    )
    _, run = await run_to_end(runner)
    assert "s3cr3t" not in caplog.text
    [record] = caplog.records
    first, *_, last = record.getMessage().splitlines()
    assert first.endswith(f"invocation {run.invocation_id})")  # where it was, then the traceback, as without a secret
    assert "Stubborn" in last
    [failed] = run.failed_calls.values()
    assert "s3cr3t" not in failed


async def test_run_debug_shows_where_a_tool_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """The place in the application's own code, also without *verbose*."""
    await runner_for(forecaster()).run_debug("go")
    out = capsys.readouterr().out
    assert f"x ! weather failed at {__file__}:{LINE} in weather: JSONDecodeError: " in out


PROGRAM = """
from minirun import LlmAgent
from minirun.testing import ScriptedLlm, call

def weather(city: str) -> str:
    raise OSError("closed")

agent = LlmAgent(name="x", model=ScriptedLlm([call("weather", city="Rome"), "done"]), tools=[weather])
"""


def test_the_command_line_shows_where_a_tool_has_failed(tmp_path: Path) -> None:
    """One line, and no traceback beside it."""
    (tmp_path / "forecast.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "minirun", "run", str(tmp_path / "forecast.py"), "go"]
    made = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert f"weather failed at {tmp_path / 'forecast.py'}:6 in weather: OSError: closed" in made.stdout
    assert (made.stderr, made.returncode) == ("", 0)


async def test_places_are_given_as_the_run_goes_on() -> None:
    """A caller that shows events as they come has the place with the event that answers the call."""
    async with runner_for(forecaster()).run_async(**PLACE, new_message="go") as run:
        async for event in run:
            for answer in event.get_function_responses():
                assert answer.id in run.failed_calls
    assert len(run.failed_calls) == 1
