"""Facts about what a service finds by its place: an app, a user and a session, of which any may be left out."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from minirun import Event
from minirun.errors import InvalidValueError
from minirun.sessions import BaseSessionService, InvocationStatus, SessionKey
from minirun.types import Content, FunctionCall, FunctionResponse, Part

from ..stores import HERE, get, services

PLACES = tuple(product(("app", "app-2"), ("u", "v"), ("s", "t")))


def asks(invocation_id: str, call_id: str = "c") -> Event:
    call = Part(function_call=FunctionCall(id=call_id, name="work", args={}))
    content = Content(role="model", parts=[call])
    return Event(author="a", invocation_id=invocation_id, content=content, long_running_tool_ids=(call_id,))


def answers(invocation_id: str, call_id: str = "c") -> Event:
    answer = Part(function_response=FunctionResponse(id=call_id, name="work"))
    return Event(author="user", invocation_id=invocation_id, content=Content(role="user", parts=[answer]))


async def run(service: BaseSessionService, key: SessionKey, *events: Event) -> None:
    """A run that stores these events, and then waits."""
    writer = await service.open_writer(key, str(events[0].invocation_id), None, reject=False)
    assert writer is not None
    for event in events:
        await writer.append(event, begins=event is events[0])
    await writer.finish(InvocationStatus.PAUSED)


@pytest.mark.parametrize("kind", ["memory", "sqlite in memory"])
async def test_what_is_left_out_of_a_place_may_be_anything(kind: str, tmp_path: Path) -> None:
    """Invocations and questions of all places that fit are listed, oldest first; runs of nodes need a single one."""
    async with services(tmp_path)[kind]() as service:
        for app, user, session in PLACES:
            await service.create_session(app_name=app, user_id=user, session_id=session)
            await run(service, SessionKey(app, user, session), asks("e"))
        for asked in product(("app-2", None, "app-3"), ("u", None, "w"), ("t", None, "x")):
            expected = [
                place for place in PLACES if all(one in (None, two) for one, two in zip(asked, place, strict=True))
            ]
            where: dict[str, Any] = dict(zip(("app_name", "user_id", "session_id"), asked, strict=True))
            for found in (await service.list_invocations(**where), await service.list_pending(**where)):
                assert [(one.app_name, one.user_id, one.session_id) for one in found] == expected, asked
            if len(expected) > 1:
                places = ", ".join("/".join(place) for place in expected)
                with pytest.raises(InvalidValueError, match=f"one invocation called 'e', found it in {places}; say"):
                    await service.list_node_runs("e", **where)
            elif expected:
                assert await service.list_node_runs("e", **where) == []


async def test_a_session_leaves_it_to_the_other_whether_they_are_equal() -> None:
    """What is compared with a session and is none decides itself, so one that equals everything equals a session."""

    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    async with services(Path())["memory"]() as service:
        await service.create_session(**HERE)
        session = await get(service)
        assert session == Anything()
        assert Anything() == session
        assert (session == "s") is False
        assert (session != "s") is True
