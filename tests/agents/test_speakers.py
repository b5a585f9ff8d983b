"""Which agent answers the next message, as the log and the tree of agents have it."""

from __future__ import annotations

from typing import Any

import pytest

from minirun import Event, LlmAgent, LoopAgent, SequentialAgent
from minirun.agents._tree import AgentTree
from minirun.events import EventActions
from minirun.testing import ScriptedLlm


def llm(name: str, *below: Any, **fields: Any) -> LlmAgent:
    """An agent that is led by a model."""
    return LlmAgent(name=name, model=ScriptedLlm([]), sub_agents=below, **fields)


def tree() -> AgentTree:
    """The root with two below; below the first another one, and below the second one that keeps what it has got."""
    keeps = llm("keeps", llm("under"), disallow_transfer_to_parent=True)
    loop = LoopAgent(name="loop", sub_agents=[llm("within")], max_iterations=1)
    return AgentTree(llm("root", llm("a", llm("deep")), llm("b", keeps), loop))


def said(author: str, text: str | None = "so", **fields: Any) -> Event:
    """Somebody has said something."""
    return Event(author=author, content=text, **fields)


def to(author: str, target: str, **fields: Any) -> Event:
    """Somebody has handed over."""
    return said(author, None, actions=EventActions(transfer_to_agent=target), **fields)


@pytest.mark.parametrize(
    ("events", "before", "speaker"),
    [
        ([], None, "root"),
        ([], "a", "a"),  # as of events that were summarized
        ([], "gone", "root"),
        ([], "within", "root"),
        ([], "keeps", "root"),
        ([said("user")], "a", "a"),
        ([said("a")], None, "a"),
        ([said("deep")], "b", "deep"),
        ([said("a"), said("user")], None, "a"),
        ([said("a"), said("b")], None, "b"),
        ([said("a"), said("b", None)], None, "a"),  # which has only noted something
        ([said("a"), to("a", "b")], None, "b"),  # and said nothing yet
        ([to("root", "a"), said("a"), to("a", "root")], None, "root"),
        ([to("root", "a"), to("a", "gone")], None, "a"),
        ([said("a"), to("a", "loop")], None, "a"),  # what is not led by a model gets no message
        ([said("a"), said("within")], None, "a"),
        ([said("a"), said("loop")], None, "a"),
        ([said("a"), to("b", "keeps"), said("keeps")], None, "a"),  # nobody gets it back from there
        ([said("a"), said("under")], None, "a"),
        ([said("a"), said("gone")], None, "a"),
        ([said("a"), said("b", branch="root@call-1")], None, "a"),  # inside of a call
        ([said("a"), to("root", "b", branch="root@call-1")], None, "a"),
        ([said("a"), said("b", branch="root.b")], None, "b"),
        ([said("b", branch="root@call-1")], None, "root"),
        ([to("user", "b"), said("a"), said("user")], None, "a"),
        ([said("a"), to("user", "b")], None, "a"),  # a user hands nothing over
    ],
)
def test_who_spoke_last_answers(events: list[Event], before: str | None, speaker: str) -> None:
    """Or who was handed to; but only who may hand back keeps the word, and nothing counts inside of calls."""
    assert tree().speaker(events, before).name == speaker


@pytest.mark.parametrize("name", ["root", "loop", "order"])
def test_a_root_that_is_alone_answers(name: str) -> None:
    """Whatever it is: there is nobody else, also where the root keeps what it gets."""
    roots = {
        "root": llm("root", disallow_transfer_to_parent=True),
        "loop": LoopAgent(name="loop", sub_agents=[llm("within")], max_iterations=1),
        "order": SequentialAgent(name="order", sub_agents=[llm("a"), llm("b")]),
    }
    found = AgentTree(roots[name])
    assert found.speaker([said("user"), said("a"), said("within")]).name == name


def test_a_root_that_keeps_what_it_gets_is_handed_back_to() -> None:
    """That it may not hand to those above means nothing: there is nobody above."""
    found = AgentTree(llm("root", llm("a"), disallow_transfer_to_parent=True))
    assert [found.speaker([said(name)]).name for name in ("a", "root")] == ["a", "root"]
