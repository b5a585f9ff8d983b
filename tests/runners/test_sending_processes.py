"""
Messages from other processes into a run, on a file and on a database, whoever is killed when.

What the other processes do is in processes.py: `steered` calls a tool that waits to be told, and then answers with all
that the user has said, when it is told again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from minirun import SqliteSessionService
from minirun.sessions import BaseSessionService, DatabaseSessionService
from minirun.sessions._integrity._verify import verify

from ..postgres import new_database
from ..sessions.test_processes import Other, Others, others
from ..stores import HERE

__all__ = ["others"]  # a fixture


@pytest.fixture(params=["file", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a session is kept that several processes use."""
    place = str(tmp_path / "a.db") if request.param == "file" else new_database()

    async def make() -> None:
        async with opened(place) as service:
            await service.create_session(**HERE)

    trio.run(make)
    yield place
    if request.param == "file":
        assert verify(place) == []


def opened(place: str) -> BaseSessionService:
    """A service over the store."""
    if place.startswith("postgresql:"):
        return DatabaseSessionService(place)
    return SqliteSessionService(place, durability="process")


def log_of(place: str) -> list[str]:
    """The texts and calls of the session's log, and how its invocations are listed."""

    async def read() -> list[str]:
        async with opened(place) as service:
            events = await service.read_events(**HERE, after_seq=0)
            texts = [
                f"{event.author}: {event.text or ('call' if event.get_function_calls() else 'response')}"
                for event in events
                if event.content is not None
            ]
            return [*texts, *(str(one.status) for one in await service.list_invocations(**HERE))]

    return trio.run(read)


def begin(others: Others, store: str, **options: Any) -> Other:
    """Start a process whose agent is in its tool."""
    owner = others.start("run_agent", store, agent="steered", message="go", **options)
    assert owner.says() == "in tool"
    return owner


def test_a_message_from_another_process_is_taken(others: Others, store: str) -> None:
    """The owner stores it after the response to the open call, and its next request shows it."""
    owner = begin(others, store)
    sender = others.start("send", store, texts=["also this", "and that"])
    assert [sender.says(), sender.says(), sender.says()] == ["sent also this", "sent and that", "done"]
    owner.hears("looked")
    assert owner.says() == "asked 3"
    owner.hears()
    assert owner.says() == "done"
    assert log_of(store) == [
        "user: go", "steered: call", "steered: response", "user: also this", "user: and that",
        "steered: go + also this + and that", "completed",
    ]  # fmt: skip
    late = others.start("send", store, texts=["too late"])
    assert late.says() == "InvocationEndedError"


def test_a_message_during_the_last_answer_is_answered_too(others: Others, store: str) -> None:
    """The owner learns of it at its end, and goes on with another question."""
    owner = begin(others, store)
    owner.hears("looked")
    assert owner.says() == "asked 1"
    assert others.start("send", store, texts=["also this"]).says() == "sent also this"
    owner.hears()
    assert owner.says() == "asked 2"
    owner.hears()
    assert owner.says() == "done"
    assert log_of(store)[-4:] == ["steered: go", "user: also this", "steered: go + also this", "completed"]


@pytest.mark.parametrize("stage", ["in the tool", "in the model", "at the end"])
def test_an_owner_that_is_killed_loses_no_message(stage: str, others: Others, store: str) -> None:
    """Whatever the owner has done with the message, the next one finds it in the log or takes it, once."""
    owner = begin(others, store)
    sender = others.start("send", store, texts=["one", "two"])
    assert sender.ends() == "done"
    if stage != "in the tool":
        owner.hears("looked")
        assert owner.says() == "asked 3"
    if stage == "at the end":
        assert others.start("send", store, texts=["three"]).ends() == "done"
        owner.hears()
        assert owner.says() == "asked 4"
    owner.kill()
    assert others.start("send", store, texts=["last"]).ends() == "done", "what is interrupted takes messages"
    heir = others.start("resume", store, agent="steered")
    said = heir.says()
    while said != "resumed":
        if said == "in tool" or said.startswith("asked"):
            heir.hears()
        said = heir.says()
    log = log_of(store)
    sent = ["one", "two", *(["three"] if stage == "at the end" else []), "last"]
    assert [text.removeprefix("user: ") for text in log if text.startswith("user: ")] == ["go", *sent]
    assert log[-2:] == [f"steered: {' + '.join(['go', *sent])}", "completed"]


def test_a_sender_that_is_killed_has_sent_what_it_said(others: Others, store: str) -> None:
    """What it had returned for is taken, in order; of the one it was at, nobody knows; nothing is taken twice."""
    owner = begin(others, store)
    texts = [f"m{number}" for number in range(400)]
    sender = others.start("send", store, texts=texts)
    said = [sender.says() for _ in range(5)]
    sender.kill()
    while (line := sender.says()) != "(ended)":
        said.append(line)
    owner.hears("looked")
    assert owner.says().startswith("asked")
    owner.hears()
    assert owner.says() == "done"
    taken = [text.removeprefix("user: ") for text in log_of(store) if text.startswith("user: m")]
    assert taken == texts[: len(taken)]
    assert len(said) <= len(taken) <= len(said) + 1
