"""
A planner for every model: it is told to write tags before its plan, its reasoning, its acts and its final answer.

What stands before the last `/*FINAL_ANSWER*/` becomes a thought, and what follows is the answer, without the tag. A
text that begins with another tag is a thought. What comes after the first calls is left out: they have no results yet.
Texts that follow each other are one, for models cut them anywhere; one that a model has signed stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._values import changed
from ..models import LlmRequest
from ..models._fragments import texts_joined
from ..runtime import CallbackContext, ReadonlyContext
from ..types import Part
from ._base import BasePlanner

__all__ = ["PlanReActPlanner"]

FINAL_ANSWER = "/*FINAL_ANSWER*/"
TAGS = ("/*PLANNING*/", "/*REPLANNING*/", "/*REASONING*/", "/*ACTION*/")

INSTRUCTION = """\
Work in this order, and write each tag before the part that it names:
/*PLANNING*/ Before anything else, a numbered plan in plain language: which steps lead to the answer, and which tool \
each step needs. Plan only with the tools that you have.
/*ACTION*/ Then do a step: call the tools that it needs.
/*REASONING*/ Between the steps, say briefly what the results mean for the plan, and what comes next.
/*REPLANNING*/ If the plan does not lead to the answer, say why, and write a new one.
/*FINAL_ANSWER*/ When nothing is left to do, the answer to the user, and nothing about the plan. If something is \
missing that only the user can say, ask for it here."""


class PlanReActPlanner(BasePlanner):
    """Has a model plan, act and reason in turns, by tags that it writes, with any model."""

    go_on = f"You have planned. Now act: call tools, or write {FINAL_ANSWER} and the answer."

    def build_planning_instruction(self, readonly_context: ReadonlyContext, llm_request: LlmRequest) -> str:
        """Explain the tags."""
        return INSTRUCTION

    def process_planning_response(
        self, callback_context: CallbackContext, response_parts: Sequence[Part]
    ) -> list[Part]:
        """Make thoughts of what stands before the final answer, and take the tag away."""
        found: list[Part] = []
        for part in texts_joined(response_parts):
            if found and found[-1].function_call is not None and part.function_call is None:
                break
            if part.text is None or part.thought:
                found.append(part)
                continue
            plan, tag, answer = part.text.rpartition(FINAL_ANSWER)
            if tag:
                found = [changed(each, thought=True) if each.text else each for each in found]
                found += [Part(text=plan.strip(), thought=True)] if plan.strip() else []
                found += [changed(part, text=answer.strip())] if answer.strip() else []
            else:
                found.append(changed(part, thought=True) if part.text.lstrip().startswith(TAGS) else part)
        return found
