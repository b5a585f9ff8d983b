"""What a history that is brought along does to the state that its session shares, and what services are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minirun import DatabaseSessionService, Event, EventActions, SqliteSessionService
from minirun._values import changed
from minirun.errors import AlreadyExistsError, ConfigurationError, InvalidValueError
from minirun.sessions import BaseSessionService

from ..stores import HERE, Where, append, get
from .test_lists import KINDS, service_of

COPY = Where(app_name="app", user_id="u", session_id="copy")


def history(*actions: EventActions) -> list[Event]:
    """A session's whole log, of which each event does one of these."""
    events = [Event(author="system"), *(Event(author="a", message="x", actions=each) for each in actions)]
    return [changed(event, id=f"x-{seq}", seq=seq, timestamp=float(seq)) for seq, event in enumerate(events)]


def ops(**operations: Any) -> EventActions:
    """Operations on what is shared: `user_n` is the key `user:n`."""
    return EventActions(state_ops={key.replace("_", ":", 1): each for key, each in operations.items()})


async def filled(service: BaseSessionService) -> None:
    session = await service.create_session(**HERE)
    await append(service, session, user_n=1, user_word="a", user_list=[1], app_n=1)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_history_does_to_shared_state_is_done_to_what_is_there(kind: str, tmp_path: Path) -> None:
    """In its order, on top of the values as they are; its own state is what it says."""
    async with service_of(kind, tmp_path) as service:
        await filled(service)
        events = history(
            ops(user_n={"add": 2}, app_n={"add": 3}),
            EventActions(state_delta={"user:word": 5, "own": 1}),
            ops(user_word={"add": 1}, user_list={"extend": [2, 3]}, own={"add": 1}),
            EventActions(state_removed=["app:n"]),
        )
        made = await service.import_session(**COPY, events=events)
        shared = {"user:n": 3, "user:word": 6, "user:list": [1, 2, 3]}
        assert dict(made.state) == {**shared, "own": 2}
        assert dict((await get(service)).state) == shared
        assert made.revision == 4
        assert await service.read_events(**COPY) == events
        await append(service, await get(service, "copy"), user_n=9)
        assert dict((await get(service)).state) == {**shared, "user:n": 9}


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([ops(user_word={"add": 1})], "state['user:word']: `add` expects a number, found 'a'"),
        ([EventActions(), ops(user_n={"extend": [1]})], "state['user:n']: `extend` expects a list, found 1"),
        ([ops(app_n={"add": 1}), ops(app_n={"extend": [1]})], "state['app:n']: `extend` expects a list, found 2"),
        (
            [EventActions(state_delta={"own": "a"}), ops(own={"add": 1})],
            "state['own']: `add` expects a number, found 'a'",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
async def test_a_history_that_does_not_fit_shared_state_is_refused(
    kind: str, actions: list[EventActions], words: str, tmp_path: Path
) -> None:
    """As the append of that event is: nothing of it is stored."""
    async with service_of(kind, tmp_path) as service:
        await filled(service)
        before = dict((await get(service)).state)
        with pytest.raises(InvalidValueError) as caught:
            await service.import_session(**COPY, events=history(ops(user_n={"add": 5}), *actions))
        expected = words.replace("found 1", "found 6") if "user:n" in words else words
        assert str(caught.value).startswith(expected)
        assert await service.get_session(**COPY) is None
        assert dict((await get(service)).state) == before
        await service.import_session(**COPY, events=history())
        with pytest.raises(AlreadyExistsError):
            await service.import_session(**COPY, events=history())


@pytest.mark.parametrize("found", [-1, True, "1", 1.0, None])
def test_a_size_of_a_cache_that_is_none_is_refused(found: Any, tmp_path: Path) -> None:
    """By its name, when the service is made."""
    with pytest.raises(ConfigurationError, match="expected cache_bytes to be an integer from 0 up, found"):
        SqliteSessionService(tmp_path / "a.db", cache_bytes=found)
    with pytest.raises(ConfigurationError, match="expected cache_bytes to be an integer from 0 up, found"):
        DatabaseSessionService("postgresql://nobody@localhost/none", cache_bytes=found)
