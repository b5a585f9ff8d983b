"""
Agents that are cut off, killed and gone on with, by whoever tests that: what differs is the tool that they call.

The tool is called `note`, and takes one argument, `what`.
"""

from __future__ import annotations

from typing import Any

from minirun import AgentTool, BaseAgent, FunctionTool, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from minirun.models import LlmRequest
from minirun.testing import ScriptedLlm, call
from minirun.tools import exit_loop

__all__ = ["agent_inside", "handing_over", "noting", "rounds_of", "says", "side_by_side", "steps"]


def steps(*answers: object) -> ScriptedLlm:
    """A model that says the n-th of these when it has been answered n times: it needs no memory of its own."""

    def answer(request: LlmRequest) -> Any:
        return answers[sum(content.role == "model" for content in request.contents)]

    return ScriptedLlm(answer)


def says(text: str) -> ScriptedLlm:
    """A model that says one thing."""
    return ScriptedLlm(lambda request: text)


def noting(tool: FunctionTool) -> BaseAgent:
    """Two calls in one turn, then one more."""
    model = steps([call("note", what="a"), call("note", what="b")], call("note", what="c"), "done")
    return LlmAgent(name="a", model=model, tools=[tool], output_key="answer")


def side_by_side(tool: FunctionTool) -> BaseAgent:
    """Two at once, each with a tool, then a third."""
    both = [LlmAgent(name=name, model=steps(call("note", what=name), name), tools=[tool]) for name in ("p", "q")]
    last = LlmAgent(name="last", model=says("last"))
    return SequentialAgent(name="all", sub_agents=[ParallelAgent(name="both", sub_agents=both), last])


def rounds_of(agent: BaseAgent) -> BaseAgent:
    """Rounds of an agent, until another one escalates in the third."""
    critic = LlmAgent(name="critic", model=steps("again", "again", call("exit_loop")), tools=[exit_loop])
    return LoopAgent(name="rounds", sub_agents=[agent, critic])


def handing_over(tool: FunctionTool) -> BaseAgent:
    """One hands over to another, which uses a tool."""
    sub = LlmAgent(name="sub", model=steps(call("note", what="x"), "sub here"), tools=[tool])
    return LlmAgent(name="root", model=steps(call("transfer_to_agent", agent_name="sub")), sub_agents=[sub])


def agent_inside(tool: FunctionTool) -> BaseAgent:
    """An agent inside of a call, with a tool of its own, beside another call."""
    inner = LlmAgent(name="inner", model=steps(call("note", what="x"), "inside"), tools=[tool], output_key="inner")
    model = steps([call("inner", request="do"), call("note", what="y")], "done")
    return LlmAgent(name="root", model=model, tools=[AgentTool(inner), tool])
