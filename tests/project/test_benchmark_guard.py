"""
The guard against growing costs: ratios to the floor of the same minute, with a wide margin, never a time.

What a turn costs is compared with what bare trio and sqlite3 need for the same events, in turns, in processor time, so
that a machine which does other things says the same. The margins are about twice what was measured, because they shall
notice what makes every turn dearer (a copy, a scan, a task for each event), not what makes it a little slower.

The rule for a busy machine: a ratio that is too high is measured again, twice at most. What a neighbour does to the
caches passes; a copy of the history does not.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import pytest

from minirun import Event, InMemorySessionService, RunConfig, Runner, SqliteSessionService, StreamingMode
from minirun._values import changed
from minirun.sessions import BaseSessionService

from ..benchmarks.floors import FloorFile, FloorMemory, floor_run, floor_stream
from ..benchmarks.measuring import Ratio, Work, measure
from ..benchmarks.programs.minirun import Seats, chunk_agent, runner_of, table_agent, text_agent, tool_agent, turn
from ..benchmarks.programs.protocol import ANSWER, CHUNK, PARTIAL_BUFFER, QUESTION

pytestmark = pytest.mark.usefixtures("set_aside")

ROUNDS = 5
TURNS = 20
CHUNKS = 500
STREAMS = 5  # of so many chunks, in a round
ATTEMPTS = 3
# So many that copying as many references, the least that a copy can be, costs about as much as a turn. A file takes
# longer to fill, and copies more than references. They are imported, which is ten times as fast as appending them.
LONG_HISTORY = {"memory": 80_000, "file": 30_000}


async def assert_at_most(bound: float, mine: Work, floor: Work) -> None:
    """The median of the rounds' ratios is at most the bound, in one attempt of several."""
    gc.collect()
    gc.freeze()  # a search for garbage before each work would go through a long history
    for _ in range(ATTEMPTS):
        times = await measure(ROUNDS, mine, floor, clock=time.process_time)
        ratio = Ratio.of(times[mine.name], times[floor.name])
        print(f"{mine.name} beside {floor.name}: {ratio}, at most {bound}")
        if ratio.median <= bound:
            return
    pytest.fail(f"{mine.name} costs {ratio.median:.2f} times as much as {floor.name}: expected at most {bound}")


async def taking_turns(name: str, runner: Runner, history: int = 0, config: RunConfig | None = None) -> Work:
    """Turns in a session with a history; they make it longer, which is less than a hundredth of a long one."""
    service = runner.session_service
    session = await service.create_session(app_name="app", user_id="u")
    if history:
        events = await service.read_events(app_name="app", user_id="u", session_id=session.id)
        told = [Event(author="user", message=QUESTION), Event(author="agent", message=ANSWER)]
        about = {"invocation_id": "e-before", "timestamp": events[0].timestamp}
        for seq in range(len(events), len(events) + history):
            events.append(changed(told[seq % 2], id=f"m-{seq}", seq=seq, **about))
        session = await service.import_session(app_name="app", user_id="u", session_id="long", events=events)
    return Work(name, partial(turn, runner, session.id, config), TURNS)


async def test_a_turn_in_memory_costs_a_few_times_its_floor() -> None:
    """A text turn in memory costs a few times what handing its two events to a list costs."""
    mine = await taking_turns("a text turn", runner_of(text_agent(), InMemorySessionService()))
    await assert_at_most(9, mine, Work("its floor", partial(floor_run, FloorMemory(), 0, [ANSWER], last=True), TURNS))


async def test_a_tool_turn_in_memory_costs_a_few_times_its_floor() -> None:
    """A turn that calls a tool costs a few times what handing its four events to a list costs."""
    mine = await taking_turns("a tool turn", runner_of(tool_agent(), InMemorySessionService()))
    await assert_at_most(11, mine, Work("its floor", partial(floor_run, FloorMemory(), 0, [ANSWER] * 3), TURNS))


async def test_a_turn_in_a_file_costs_a_few_times_its_floor(tmp_path: Path) -> None:
    """A text turn in a file costs a few times what its two transactions cost."""
    file = FloorFile(tmp_path / "floor.db", "NORMAL")

    async def two_events() -> None:
        await file.append(0, QUESTION)
        await file.append(0, ANSWER, last=True)

    async with SqliteSessionService(tmp_path / "mine.db", durability="process") as service:
        mine = await taking_turns("a text turn in a file", runner_of(text_agent(), service))
        await assert_at_most(22, mine, Work("its floor", two_events, TURNS))
    file.close()


async def test_a_chunk_costs_a_few_times_its_floor() -> None:
    """A streamed chunk costs a few times what passing it through a bounded buffer costs."""

    bare = partial(floor_stream, CHUNKS, CHUNK, PARTIAL_BUFFER)
    runner = runner_of(chunk_agent(CHUNKS), InMemorySessionService())
    mine = await taking_turns("a streamed chunk", runner, config=RunConfig(streaming_mode=StreamingMode.SSE))
    mine = attrs.evolve(mine, repeats=STREAMS)
    await assert_at_most(8, mine, Work("its floor", bare, STREAMS))


async def test_a_chunk_with_the_answer_so_far_costs_at_most_five_chunks() -> None:
    """A chunk of a table, with its rows so far, costs at most five times what the same chunk costs as text."""
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    text, typed = (runner_of(table_agent(CHUNKS, tp), InMemorySessionService()) for tp in (None, list[Seats]))
    floor = attrs.evolve(await taking_turns("a chunk", text, config=config), repeats=STREAMS)
    mine = attrs.evolve(await taking_turns("a chunk with rows", typed, config=config), repeats=STREAMS)
    await assert_at_most(5, mine, floor)


@pytest.mark.parametrize("store", ["memory", "file"])
async def test_a_turn_costs_the_same_after_a_long_history(store: str, tmp_path: Path) -> None:
    """A turn after tens of thousands of events costs what the first one costs: nothing is copied, nothing scanned."""

    async def growth(service: BaseSessionService) -> None:
        runner = runner_of(text_agent(), service)
        short = await taking_turns("a turn in a new session", runner)
        await assert_at_most(1.5, await taking_turns("a turn after a long history", runner, LONG_HISTORY[store]), short)

    await in_store(store, tmp_path, growth)


async def in_store(store: str, folder: Path, use: Callable[[BaseSessionService], Awaitable[None]]) -> None:
    """Use a service on a store of this kind."""
    if store == "memory":
        await use(InMemorySessionService())
    else:
        async with SqliteSessionService(folder / "mine.db", durability="process") as service:
            await use(service)


def test_the_floor_has_the_same_buffer() -> None:
    """What a chunk is compared with lets its reader lag behind as far as minirun does."""
    assert RunConfig().partial_buffer == PARTIAL_BUFFER
