"""
W1 to W46: what was found wrong with the peer's workflows, each shown not to be here, or listed with the reason.

`WEAKNESSES` has them by their number; a test of another file stands there as `file::test`. What each of the peer's is
can be read from the first lines of the tests: "W3: ..." says what is so here.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from minirun import (
    BaseAgent,
    Content,
    Event,
    FunctionTool,
    InvocationContext,
    LlmAgent,
    Part,
    RunConfig,
    Runner,
    SequentialAgent,
    SqliteSessionService,
    StreamingMode,
)
from minirun.errors import (
    InvalidMessageError,
    InvalidValueError,
    MinirunError,
    NodeInputError,
    ReplayError,
)
from minirun.runtime import Run
from minirun.testing import ScriptedLlm, call
from minirun.types import FunctionResponse
from minirun.workflow import END, FAILED, START, JoinNode, RetryConfig, Workflow, node

from ..helpers import PLACE, run_to_end, runner_for, stored_events
from ..resuming import says

ROOT = Path(__file__).parents[2]
_FLOW, _RUNS = "tests/workflow/test_workflow.py::", "tests/workflow/test_workflow_runs.py::"
_GRAPH, _BINDING = "tests/workflow/test_workflow_graph.py::", "tests/workflow/test_workflow_binding.py::"
_SCHEMA = "tests/sessions/test_state_schema.py::"

WEAKNESSES: Mapping[int, str | tuple[str, ...]] = {
    1: ("test_a_node_that_was_cut_off_is_run_again", f"{_RUNS}test_whatever_is_cut_off_comes_to_the_same"),
    2: (
        f"{_FLOW}test_a_join_has_the_order_of_its_edges",
        f"{_GRAPH}test_a_join_gives_its_values_in_order_of_declaration",
    ),
    3: (f"{_FLOW}test_a_join_has_the_order_of_its_edges", f"{_GRAPH}test_no_join_waits_for_ever"),
    4: f"{_GRAPH}test_a_predecessor_that_comes_twice_keeps_both_values",
    5: f"{_FLOW}test_a_route_that_matches_nothing_is_an_error",
    6: (
        f"{_FLOW}test_a_second_output_is_refused_before_it_is_stored",
        f"{_GRAPH}test_a_second_output_is_refused_by_both_names",
    ),
    7: "test_a_terminal_node_that_runs_twice_is_refused_or_chosen",
    8: "test_none_is_an_output",
    9: "test_values_are_the_same_before_and_after_a_resume",
    10: f"{_FLOW}test_what_is_no_json_is_refused_at_the_node",
    11: ("test_nobody_changes_what_was_given", f"{_BINDING}test_an_output_cannot_be_changed"),
    12: "test_what_a_node_returns_is_its_output_after_a_resume_too",
    13: "test_two_inputs_are_two_runs",
    14: "test_another_input_in_the_same_place_is_refused",
    15: f"{_FLOW}test_attempts_drop_what_they_have_written",
    16: ("test_an_attempt_that_fails_late_leaves_no_output", f"{_BINDING}test_a_second_output_is_refused"),
    17: "test_attempts_are_counted_across_a_crash",
    18: f"{_FLOW}test_a_thread_that_takes_too_long_is_no_success",
    19: "test_a_class_of_the_same_name_is_another_one",
    20: "test_an_input_that_does_not_fit_is_the_failure_of_its_node",
    21: "test_an_answer_that_does_not_fit_poisons_nothing",
    22: "test_a_second_answer_is_refused",
    23: "test_an_answer_keeps_its_type",
    24: "listed: a message is no answer to a question of another kind; it begins a new invocation, as everywhere in "
    "minirun, and the question stays open and can be answered (tests/peer/t13_people.py: plain_text)",
    25: "test_a_question_beside_a_failure_is_closed",
    26: f"{_FLOW}test_a_node_needs_permission",
    27: (f"{_FLOW}test_it_is_an_agent_as_others_are", f"{_FLOW}test_the_invocation_may_end_in_a_node"),
    28: f"{_FLOW}test_a_loop_has_an_end",
    29: ("test_a_round_costs_what_the_first_ones_cost", f"{_GRAPH}test_a_loop_does_not_make_the_plan_larger"),
    30: f"{_FLOW}test_names_of_the_peer_are_read",
    31: (f"{_FLOW}test_true_is_not_one", f"{_GRAPH}test_a_target_is_triggered_once_per_outcome"),
    32: "test_an_agent_that_was_cut_off_in_a_tool_goes_on_there",
    33: "test_who_is_handed_over_to_runs_once",
    34: "test_other_agents_are_given_the_input_and_give_an_output",
    35: "test_an_agent_without_words_gives_none",
    36: f"{_FLOW}test_only_the_end_of_the_workflow_is_final",
    37: "test_fragments_are_no_outcome",
    38: "test_a_stubborn_lane_stores_nothing_after_the_failure",
    39: (
        "test_what_was_read_from_the_state_is_frozen",
        f"{_SCHEMA}test_a_write_that_does_not_fit_raises_where_it_is_made",
    ),
    40: f"{_SCHEMA}test_what_fits_is_stored_as_it_was_given",
    41: (
        f"{_GRAPH}test_an_outcome_of_a_run_that_is_not_ready_is_refused",
        "test_a_record_that_the_graph_does_not_expect_is_told_at_once",
    ),
    42: "test_a_resume_stores_no_outcome_again",
    43: "test_a_node_that_waits_keeps_no_process",
    44: "tests/workflow/test_node_runs.py::test_a_run_tells_what_has_ended_runs_and_waits",
    45: "tests/workflow/test_workflow_tasks.py::test_modes_that_would_have_no_effect_are_refused",
    46: "tests/workflow/test_workflow_documents.py::test_the_node_of_the_documents_runs_as_it_is_written",
}


@cache
def functions(file: str) -> Mapping[str, str]:
    """The functions of a file of tests, with their docstrings."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    found = [one for one in tree.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {one.name: ast.get_docstring(one) or "" for one in found}


def test_every_weakness_is_in_the_table() -> None:
    """All 46, in their order."""
    assert list(WEAKNESSES) == list(range(1, 47))


@pytest.mark.parametrize("number", WEAKNESSES, ids=[f"W{number}" for number in WEAKNESSES])
def test_each_weakness_has_its_test_or_its_reason(number: int) -> None:
    """The tests that the table names exist, and those of this file name theirs."""
    where, own = WEAKNESSES[number], Path(__file__).relative_to(ROOT).as_posix()
    for each in (where,) if isinstance(where, str) else where:
        if each.startswith("listed: "):
            assert len(each) > 40
            continue
        file, _, name = each.rpartition("::")
        assert name in functions(file or own), each
        assert file or functions(own)[name].startswith(f"W{number}: "), each


# --- the stage --------------------------------------------------------------------------------------------------------


def flow(*edges: Any, **fields: Any) -> Workflow:
    """A workflow with these edges."""
    return Workflow(name="wf", edges=edges, **fields)


async def given(node_input: Any) -> Any:
    """Hands on what it was given."""
    return {"given": node_input.text if isinstance(node_input, Content) else node_input}


async def go_on(runner: Runner, at_seq: int) -> tuple[list[Event], Run]:
    """Go on where a process has died that had stored so many events; the events and the run."""
    service, cut = runner.session_service, f"cut{at_seq}"
    await service.fork_session(app_name="app", **PLACE, at_seq=at_seq, new_session_id=cut)
    [found] = [one for one in await service.list_invocations(app_name="app") if one.session_id == cut]
    async with runner.run_async(user_id="u", session_id=cut, invocation_id=found.invocation_id) as run:
        return [event async for event in run], run


def output_of(run: Run) -> Any:
    """What a workflow has come to."""
    assert run.status == "completed"
    return None if run.answer is None else run.answer.output


# --- what a crash leaves ----------------------------------------------------------------------------------------------


async def test_a_node_that_was_cut_off_is_run_again() -> None:
    """W1: it has spoken and written and not ended, so it is run from its start, and the next node gets its output."""
    entered: list[str] = []

    async def speaks(node_input: str, ctx: InvocationContext) -> str:
        entered.append("speaks")
        await ctx.emit(Event(message="on my way", state={"w": 1}))
        return f"{node_input} spoken"

    runner = runner_for(flow((START, speaks, given)))
    events, run = await run_to_end(runner)
    assert [event.text for event in events] == ["on my way", "", ""]
    again, resumed = await go_on(runner, 2)
    assert (output_of(resumed), entered) == (output_of(run), ["speaks", "speaks"])
    assert len(again) == 2


async def test_none_is_an_output() -> None:
    """W8: a run that returned None has ended with an event of its own, and is not run again."""
    entered: list[str] = []

    async def silent(node_input: Any) -> None:
        entered.append("silent")

    runner = runner_for(flow((START, silent, given)))
    events, run = await run_to_end(runner)
    assert [event.node_info.name for event in events] == ["silent", "given"]
    _, resumed = await go_on(runner, 2)
    assert (output_of(resumed), entered) == (output_of(run), ["silent"])
    assert output_of(run) == {"given": None}


@attrs.frozen
class Value:
    """Of many types."""

    pair: tuple[int, str]
    numbers: dict[str, float]


async def test_values_are_the_same_before_and_after_a_resume(tmp_path: Path) -> None:
    """W9: what the next node is given has the same types in a run of its own and from the log of a file."""
    seen: list[Any] = []

    async def makes(node_input: Any) -> Any:
        return {"value": Value((1, "a"), {"a": 0.5}), "set": {3}, "tuple": (1, (2,))}

    async def looks(node_input: Any) -> bool:
        seen.append((node_input, [type(node_input[key]) for key in ("value", "set", "tuple")]))
        return True

    async with SqliteSessionService(tmp_path / "s.db") as service:
        workflow = flow((START, makes, looks))
        runner = Runner(agent=workflow, app_name="app", session_service=service, auto_create_session=True)
        await run_to_end(runner)
        await go_on(runner, 2)
    assert seen[0] == seen[1]
    assert seen[0][0]["value"] == {"pair": [1, "a"], "numbers": {"a": 0.5}}

    for odd in (math.nan, {1: "a"}, b"x"):  # what would come back as something else is refused

        async def gives(node_input: Any, odd: Any = odd) -> Any:
            return odd

        with pytest.raises(InvalidValueError, match="output of 'gives'"):
            await run_to_end(runner_for(flow((START, gives))))


async def test_nobody_changes_what_was_given() -> None:
    """W11: a node cannot change its input, so the lanes beside it and the log keep what its predecessor gave."""

    async def gives(node_input: Any) -> dict[str, list[int]]:
        return {"n": [1]}

    async def changes(node_input: Any) -> str:
        with pytest.raises(TypeError):
            node_input["n"] = 5
        with pytest.raises((TypeError, AttributeError)):
            node_input["n"].append(2)
        return "tried"

    async def changes_a_copy(node_input: dict[str, list[int]]) -> str:
        node_input["n"].append(2)
        return "changed its own"

    workflow = flow((START, gives, (changes, changes_a_copy, given), JoinNode(name="j")))
    events, run = await run_to_end(runner_for(workflow))
    assert output_of(run)["given"] == {"given": {"n": [1]}}
    assert events[0].output == {"n": [1]}


async def test_what_a_node_returns_is_its_output_after_a_resume_too() -> None:
    """W12: the output of a node that runs an agent is what it returns, in the first run and in one that goes on."""

    async def parent(ctx: InvocationContext) -> str:
        return f"about: {await ctx.run_node(LlmAgent(name='helper', model=says('helped')), 'go')}"

    runner = runner_for(flow((START, parent, given)))
    _, run = await run_to_end(runner)
    for at_seq in (2, 3):
        _, resumed = await go_on(runner, at_seq)
        assert output_of(resumed) == output_of(run) == {"given": "about: helped"}


async def test_two_inputs_are_two_runs() -> None:
    """W13: runs are told apart by their input, too; the same name and another input is another run."""

    async def double(node_input: int) -> int:
        return 2 * node_input

    async def parent(ctx: InvocationContext) -> list[Any]:
        return [await ctx.run_node(double, number, name="first") for number in (1, 1, 3)]

    _, run = await run_to_end(runner_for(flow((START, parent))))
    assert output_of(run) == [2, 2, 6]


async def test_another_input_in_the_same_place_is_refused() -> None:
    """W14: a parent that runs its children in another order when it is resumed is told so."""
    order = [1, 2]

    async def double(node_input: int) -> int:
        return 2 * node_input

    async def parent(ctx: InvocationContext) -> list[Any]:
        return [await ctx.run_node(double, number) for number in order]

    runner = runner_for(flow((START, parent)))
    await run_to_end(runner)
    order.reverse()
    with pytest.raises(ReplayError, match="another input"):
        await go_on(runner, 2)


async def test_a_record_that_the_graph_does_not_expect_is_told_at_once() -> None:
    """W41: there is nothing to wait for when a resumed run meets another graph: the record is refused by name."""
    runner = runner_for(flow((START, node(given, name="a"), node(given, name="b"), node(given, name="c"))))
    await run_to_end(runner)
    other = Runner(
        agent=flow((START, node(given, name="a"), node(given, name="c"))),
        app_name="app",
        session_service=runner.session_service,
    )
    with trio.fail_after(5):
        with pytest.raises(ReplayError, match="b@1"):
            await go_on(other, 3)


async def test_a_resume_stores_no_outcome_again() -> None:
    """W42: what a resumed run finds recorded is in the log once."""
    runner = runner_for(flow((START, node(given, name="a"), node(given, name="b"))))
    await run_to_end(runner)
    again, _ = await go_on(runner, 2)
    assert [event.node_info.path for event in again] == ["wf@1/b@1"]
    log = await runner.session_service.read_events(app_name="app", user_id="u", session_id="cut2", after_seq=0)
    assert [event.node_info.path for event in log if event.actions.replay.ended] == ["wf@1/a@1", "wf@1/b@1"]


# --- attempts ---------------------------------------------------------------------------------------------------------


async def test_an_attempt_that_fails_late_leaves_no_output() -> None:
    """W16: an output is stored when the run has ended, so one of a failed attempt is not."""

    async def late(ctx: InvocationContext) -> AsyncGenerator[Any, None]:
        yield f"output {ctx.attempt_count}"
        if ctx.attempt_count == 1:
            raise ConnectionError

    at_once = RetryConfig(initial_delay=0, jitter=0)
    events, run = await run_to_end(runner_for(flow((START, node(late, retry=at_once)))))
    assert [event.output for event in events] == [None, "output 2"]
    assert output_of(run) == "output 2"


async def test_attempts_are_counted_across_a_crash() -> None:
    """W17: who goes on after two failed attempts makes the third one, and no other."""
    attempts: list[int] = []

    async def never(ctx: InvocationContext) -> None:
        attempts.append(ctx.attempt_count)
        raise ConnectionError

    at_once = RetryConfig(max_attempts=3, initial_delay=0, jitter=0)
    runner = runner_for(flow((START, node(never, retry=at_once))))
    with pytest.raises(ConnectionError):
        await run_to_end(runner)
    with pytest.raises(ConnectionError):
        await go_on(runner, 3)
    assert attempts == [1, 2, 3, 3]


async def test_a_class_of_the_same_name_is_another_one() -> None:
    """W19: a retry for a class does not match another class that is called the same."""
    attempts: list[int] = []
    Other = type("ConnectionError", (Exception,), {})

    async def fails(ctx: InvocationContext) -> None:
        attempts.append(ctx.attempt_count)
        raise Other

    retry = RetryConfig(initial_delay=0, jitter=0, exceptions=[ConnectionError])
    with pytest.raises(Other):
        await run_to_end(runner_for(flow((START, node(fails, retry=retry)))))
    assert attempts == [1]


async def test_an_input_that_does_not_fit_is_the_failure_of_its_node() -> None:
    """W20: it has the node's path, counts as its attempt, and may take its FAILED route."""

    async def counts(node_input: int) -> int:
        return node_input

    runner = runner_for(flow((START, counts)))
    with pytest.raises(NodeInputError, match="counts"):
        await run_to_end(runner, "four")
    assert (await stored_events(runner))[-1].node_info.path == "wf@1/counts@1"
    _, run = await run_to_end(runner_for(flow((START, counts, {FAILED: given}), (counts, END))), "four")
    assert output_of(run)["given"]["type"] == "NodeInputError"
    retry = RetryConfig(max_attempts=2, initial_delay=0, jitter=0, exceptions=[NodeInputError, "ArgumentError"])
    runner = runner_for(flow((START, node(counts, retry=retry))))
    with pytest.raises(NodeInputError):
        await run_to_end(runner, "four")
    assert [bool(event.custom_metadata) for event in await stored_events(runner)] == [False, True, False]


# --- people -----------------------------------------------------------------------------------------------------------


async def asks(node_input: Any, ctx: InvocationContext) -> Any:
    """Asks, and says what it has heard."""
    return {"heard": await ctx.request_input("?", response_schema={"type": ["integer", "string"]})}


async def test_an_answer_that_does_not_fit_poisons_nothing() -> None:
    """W21: it is refused and not stored, and the right one is taken afterwards."""
    runner = runner_for(flow((START, asks)))
    _, run = await run_to_end(runner)
    [question] = run.pending
    stored = await stored_events(runner)
    with pytest.raises(InvalidMessageError):
        await run_to_end(runner, question.reply([1]))
    assert await stored_events(runner) == stored
    _, run = await run_to_end(runner, question.reply(5))
    assert output_of(run) == {"heard": 5}


async def test_a_second_answer_is_refused() -> None:
    """W22: the first answer stands, and a second one is an error that stores nothing."""
    runner = runner_for(flow((START, asks)))
    _, run = await run_to_end(runner)
    [question] = run.pending
    await run_to_end(runner, question.reply(1))
    stored = await stored_events(runner)
    with pytest.raises(MinirunError):
        await run_to_end(runner, question.reply(2))
    assert await stored_events(runner) == stored


@pytest.mark.parametrize("answer", ["true", "5", '{"a": 1}', 5])
async def test_an_answer_keeps_its_type(answer: object) -> None:
    """W23: a text that looks like JSON is a text."""
    runner = runner_for(flow((START, asks)))
    _, run = await run_to_end(runner)
    _, run = await run_to_end(runner, run.pending[0].reply(answer))
    assert output_of(run) == {"heard": answer}


async def test_a_question_beside_a_failure_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    """W25: a lane that fails ends the invocation, and its questions; an answer to one runs nothing again."""
    entered: list[str] = []

    async def fails(node_input: Any) -> None:
        entered.append("fails")
        await trio.sleep(1)
        raise ValueError("no")

    runner = runner_for(flow((START, (asks, fails), JoinNode(name="j"))))
    with pytest.raises(ValueError, match="no"):
        await run_to_end(runner)
    assert await runner.session_service.list_pending(app_name="app", user_id="u") == []
    [called] = [one for event in await stored_events(runner) for one in event.get_function_calls()]
    response = FunctionResponse(id=called.id, name=called.name, response={"result": 1})
    answer = Content(role="user", parts=[Part(function_response=response)])
    with pytest.raises(MinirunError):
        await run_to_end(runner, answer)
    assert entered == ["fails"]


# --- agents -----------------------------------------------------------------------------------------------------------


async def test_an_agent_that_was_cut_off_in_a_tool_goes_on_there() -> None:
    """W32: its model is not asked again for what it has answered, and the call that was cut off is answered."""

    def look(q: str) -> str:
        """Look."""
        return f"found {q}"

    model = ScriptedLlm(lambda request: "done" if request.contents[-1].responses else call("look", q="cats"))
    agent = LlmAgent(name="a", model=model, tools=[FunctionTool(look, on_interrupted="rerun", run_in="loop")])
    runner = runner_for(flow((START, agent, given)))
    _, run = await run_to_end(runner)
    asked = len(model.requests)
    again, resumed = await go_on(runner, 2)
    assert output_of(resumed) == output_of(run) == {"given": "done"}
    assert len(model.requests) == asked + 1
    assert len([one for event in again for one in event.get_function_responses()]) == 1


async def test_who_is_handed_over_to_runs_once() -> None:
    """W33: a transfer stays inside of the node, and what the target answers is the output."""
    target = ScriptedLlm(["the answer"])
    sub = LlmAgent(name="sub", model=target)
    agent = LlmAgent(name="a", model=ScriptedLlm([call("transfer_to_agent", agent_name="sub")]), sub_agents=[sub])
    _, run = await run_to_end(runner_for(flow((START, agent, given))))
    assert output_of(run) == {"given": "the answer"}
    assert len(target.requests) == 1


async def test_other_agents_are_given_the_input_and_give_an_output() -> None:
    """W34: an agent of one's own has the input as `ctx.node_input` and as the message; its answer is the output."""

    async def number(node_input: Any) -> dict[str, int]:
        return {"n": 1}

    class Own(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            assert ctx.user_content is not None
            await ctx.emit(Event(message=f"{ctx.node_input['n']} {ctx.user_content.text}"))

    both = SequentialAgent(name="both", sub_agents=[LlmAgent(name="one", model=says("one")), Own(name="own")])
    _, run = await run_to_end(runner_for(flow((START, number, both, given))))
    assert output_of(run) == {"given": '1 {"n":1}'}


async def test_an_agent_without_words_gives_none() -> None:
    """W35: None, in the first run and in one that goes on."""

    class Silent(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> None:
            await trio.lowlevel.checkpoint()

    runner = runner_for(flow((START, Silent(name="silent"), given)))
    _, run = await run_to_end(runner)
    _, resumed = await go_on(runner, 2)
    assert output_of(run) == output_of(resumed) == {"given": None}


async def test_fragments_are_no_outcome() -> None:
    """W37: what is shown while a model speaks in a lane is not marked as an output."""
    agent = LlmAgent(name="a", model=ScriptedLlm([["an ", "answer"]]))
    events, _ = await run_to_end(
        runner_for(flow((START, agent, given))), run_config=RunConfig(streaming_mode=StreamingMode.SSE)
    )
    fragments = [event for event in events if event.partial and event.content is not None]
    assert fragments
    for event in fragments:
        assert (event.node_info.path, event.node_info.output_for) == ("wf@1/a@1", ())
        assert event.node_info.message_as_output is None


async def test_a_stubborn_lane_stores_nothing_after_the_failure(autojump_clock: trio.testing.MockClock) -> None:
    """W38: a node that takes its cancellation for nothing stores no output beside a failure."""

    async def fails(node_input: Any) -> None:
        await trio.sleep(1)
        raise ValueError("no")

    async def stubborn(node_input: Any) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        return "still here"

    runner = runner_for(flow((START, (fails, stubborn), JoinNode(name="j"))))
    with pytest.raises(ValueError, match="no"):
        await run_to_end(runner)
    assert [event for event in await stored_events(runner) if event.output or event.actions.replay.ended] == []


# --- state, limits, time ----------------------------------------------------------------------------------------------


async def test_a_terminal_node_that_runs_twice_is_refused_or_chosen(autojump_clock: trio.testing.MockClock) -> None:
    """W7: its second output is an error, and with `output=` the last run in the order of triggers counts."""

    async def slow(node_input: Any) -> str:
        await trio.sleep(2)
        return "slow"

    async def quick(node_input: Any) -> str:
        return "quick"

    with pytest.raises(MinirunError, match="one output"):
        await run_to_end(runner_for(flow((START, (slow, quick), given))))
    _, run = await run_to_end(runner_for(flow((START, (slow, quick), given), output=given)))
    assert output_of(run) == {"given": "slow"}


async def test_what_was_read_from_the_state_is_frozen() -> None:
    """W39: a list or dict of the state cannot be changed behind the schema."""

    async def changes(ctx: InvocationContext) -> int:
        ctx.state["k"] = [{"n": 1}]
        with pytest.raises((TypeError, AttributeError)):
            ctx.state["k"].append(2)
        with pytest.raises(TypeError):
            ctx.state["k"][0]["n"] = "two"
        return 1

    _, run = await run_to_end(runner_for(flow((START, changes))))
    assert run.session.state["k"] == [{"n": 1}]


async def test_a_round_costs_what_the_first_ones_cost() -> None:
    """W29: as many functions are called in round 200 of a cycle as in round 20, and no event is looked at again."""
    rounds: list[int] = []
    calls = 0

    def count(frame: Any, what: str, argument: Any) -> None:
        nonlocal calls
        calls += what == "call"

    async def again(node_input: Any) -> Event:
        rounds.append(calls)
        return Event(output=1, route="again" if len(rounds) < 220 else "enough")

    runner = runner_for(flow((START, again, {"again": again, "enough": END})))
    profile: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(count)
    try:
        await run_to_end(runner)
    finally:
        sys.setprofile(profile)
    early, late = rounds[30] - rounds[20], rounds[210] - rounds[200]
    assert late <= 1.1 * early


async def test_a_node_that_waits_keeps_no_process() -> None:
    """W43: a time that a node waits for is in the log, and whoever goes on when it is due comes to the end."""

    async def waits(ctx: InvocationContext) -> str:
        await ctx.sleep_until(2e9)
        return "waited"

    runner = runner_for(flow((START, waits)))
    _, run = await run_to_end(runner)
    assert run.status == "paused"
    assert await runner.resume_due(now=1.9e9) == []
    [found] = await runner.resume_due(now=2.1e9)
    assert found.status == "completed"
    assert (await stored_events(runner))[-1].output == "waited"
