"""Samples of ADK, rewritten as programs of our own: each does what the sample does, with a scripted model."""

from __future__ import annotations

import importlib
import re
import textwrap
from pathlib import Path

import pytest

from examples import adk_hello_world

FOLDER = Path(adk_hello_world.__file__).parent
EXPECTED = {
    "artifacts": """
        {'query': 0}
        {'query': 1}
        b'one'
    """,
    "guardrail": """
        tool: {'status': 'success', 'report': 'Sunny in London.'}
        agent: Sunny. ['last_weather_report']
        agent: I do not answer that. ['guardrail_block_keyword_triggered', 'last_weather_report']
        tool: {'status': 'error', 'error_message': 'Paris is not looked up.'}
        agent: I cannot tell. ['last_weather_report']
    """,
    "hello_world": """
        hello_world_agent: An 18.
        hello_world_agent: A 73, a prime.
        hello_world_agent: 18 and 73.
        hello_world_agent: Kept.
        rolls: [18, 73] files: 1
    """,
    "human_in_loop": """
        reimburse{'purpose': 'meals', 'amount': 50.0}
        Paid.
        ask_for_approval{'purpose': 'travel', 'amount': 200.0}
        the manager approves of what said {'status': 'pending', 'amount': 200.0, 'ticketId': 'T-1'}
        reimburse{'purpose': 'travel', 'amount': 200.0}
        Paid, too.
    """,
    "memory": """
        Good to know.
        Good to know.
        Good to know.
        You play chess.
    """,
    "multi_agent": """
        root_agent calls transfer_to_agent({'agent_name': 'roll_agent'})
        roll_agent calls roll_die({'sides': 6})
        roll_agent: A 2.
        roll_agent calls transfer_to_agent({'agent_name': 'prime_agent'})
        prime_agent calls check_prime({'nums': [2]})
        prime_agent: It is.
    """,
    "output_schema": """
        {"temperature": "26 C", "humidity": "20%", "wind_speed": "29 mph"}
        29 mph
    """,
    "pipeline": """
        CodeWriterAgent: def add(a, b): return a + b {'generated_code': '...'}
        CodeReviewerAgent: No docstring. {'review_comments': '...'}
        CodeRefactorerAgent: rewritten: def add(a, b): return a + b {'refactored_code': '...'}
    """,
    "plugin": """
        plugin: 1 runs of agents
        plugin: 1 requests
        an event of hello_world
        the user said 'hello world'
        an event of hello_world
        plugin: 2 requests
        an event of hello_world
    """,
    "research": """
        CarbonCaptureResearcher in ParallelWebResearchAgent.CarbonCaptureResearcher: CarbonCapture is growing.
        EVResearcher in ParallelWebResearchAgent.EVResearcher: EV is growing.
        RenewableEnergyResearcher in ParallelWebResearchAgent.RenewableEnergyResearcher: RenewableEnergy is growing.
        SynthesisAgent: RenewableEnergy is growing. EV is growing. CarbonCapture is growing.
    """,
    "session_state": """
        before_agent: seen 1, stored 0
        before_model: seen 2, stored 1
        after_model: seen 3, stored 1
        after_agent: seen 4, stored 3
        (stored before_agent)
        Noted.
        (stored after_agent)
        Once is enough.
    """,
    "story_flow": """
        StoryGenerator: A sad cat.
        Critic: Too short.
        Reviser: A very sad cat.
        Critic: Too sad.
        Reviser: An old sad cat.
        GrammarCheck: Fine.
        ToneCheck: negative
        StoryGenerator: A happy cat.
        ['topic', 'current_story', 'criticism', 'grammar_suggestions', 'tone_check_result']
    """,
    "token_usage": """
        small_model: 15 tokens
        small_model: 19 tokens
        large_model: 23 tokens
        large_model: 27 tokens
        session: 84 tokens, {'prompt': 74, 'candidates': 10}
    """,
    "tool_confirmation": """
        {'status': 'ok'}
        allow reimburse{'amount': 5000}? yes
        {'status': 'ok'}
        allow request_time_off{'days': 5}? yes
        {'status': 'ok', 'approved_days': 3}
    """,
}


def test_every_ported_sample_is_run() -> None:
    """The table has all programs of this kind, which are at least twelve."""
    assert {path.stem.removeprefix("adk_") for path in FOLDER.glob("adk_*.py")} == EXPECTED.keys()
    assert len(EXPECTED) >= 12


@pytest.mark.parametrize("name", EXPECTED)
def test_a_ported_sample_names_its_sample_and_the_differences(name: str) -> None:
    """Its first lines say after which sample of ADK it is written, and what is different."""
    told = " ".join((importlib.import_module(f"examples.adk_{name}").__doc__ or "").split())
    assert re.search(r"After .*google/adk-(python|docs)\b.*\. Different: \w.*\.$", told), told


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_ported_sample_prints_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A ported sample runs, and prints what the sample is about."""
    await importlib.import_module(f"examples.adk_{name}").main()
    expected = textwrap.dedent(EXPECTED[name]).strip()
    assert capsys.readouterr().out.strip() == expected
