"""Samples of ADK, rewritten as programs of our own: each does what the sample does, with a scripted model."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

import pytest

from examples import adk_hello_world

FOLDER = Path(adk_hello_world.__file__).parent
EXPECTED = {
    "artifacts": """
        [{'query.txt': 0}, {'query.txt': 1}]
        b'one'
    """,
    "guardrail": """
        tool: {'report': 'Sunny in London.'}
        agent: Sunny.
        agent: I cannot process this request.
        tool: {'error': 'Checks for Paris are disabled.'}
        agent: No idea.
    """,
    "hello_world": """
        ** hello_world_agent: I rolled 7, which is prime.
        rolls: [7]
    """,
    "human_in_loop": """
        paused: ask_for_approval{'purpose': 'travel', 'amount': 200.0}
        it said {'status': 'pending', 'ticketId': 'reimbursement-ticket-001'}
        ['reimburse']

        Your travel is reimbursed.
    """,
    "memory": """
        Good to know.
        You like badminton.
    """,
    "multi_agent": """
        root_agent calls transfer_to_agent({'agent_name': 'roll_agent'})
        roll_agent calls roll_die({'sides': 6})
        roll_agent: A 1.
        roll_agent: Another 1, I am sure.
    """,
    "output_schema": """
        {"temperature":"20 C","humidity":"41 %"}
        20 C
    """,
    "pipeline": """
        code_writer: def add(a, b): return a + b {'generated_code': '...'}
        code_reviewer: No docstring. {'review_comments': '...'}
        code_refactorer: rewritten: def add(a, b): return a + b {'refactored_code': '...'}
    """,
    "plugin": """
        [Plugin] Agent run count: 1
        [Plugin] LLM request count: 1
        [Plugin] LLM request count: 2
        Hello Ada!
    """,
    "research": """
        carbon_researcher in parallel_research.carbon_researcher
        solar_researcher in parallel_research.solar_researcher
        wind_researcher in parallel_research.wind_researcher
        synthesis: wind is growing. solar is growing. carbon is growing.
    """,
    "session_state": """
        before_agent: seen 1, stored 0
        before_model: seen 2, stored 1
        after_model: seen 3, stored 1
        after_agent: seen 4, stored 3
        (stored before_agent)
        Noted.
        (stored after_agent)
        Sorry, I can only reply once.
    """,
    "story_flow": """
        generator: A sad cat.
        critic: Too short.
        reviser: A very sad cat.
        tone_check: negative
        generator: A happy cat.
    """,
    "token_usage": """
        partial 'It is '
        final 'It is a 4.'
        partial 'It is '
        final 'It is a 4.'
        tokens: 30
    """,
    "tool_confirmation": """
        Done.
        allow reimburse{'amount': 5000}? yes
        Done, after a look.
    """,
}


def test_every_ported_sample_is_run() -> None:
    """The table has all programs of this kind, which are at least twelve."""
    assert {path.stem.removeprefix("adk_") for path in FOLDER.glob("adk_*.py")} == EXPECTED.keys()
    assert len(EXPECTED) >= 12


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_ported_sample_prints_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A ported sample runs, and prints what the sample is about."""
    await importlib.import_module(f"examples.adk_{name}").main()
    expected = textwrap.dedent(EXPECTED[name]).strip()
    assert capsys.readouterr().out.strip() == expected
