"""
Services that were made before a fork, as servers that load first and fork then have them (promise P3).

Each case is a fresh process of one thread, `tests/forking.py`; what its two halves have seen comes back as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from minirun import Event
from minirun.errors import InvocationEndedError
from minirun.sessions import InvocationStatus, verify

from ..fork_server import program, run
from ..forking import ENDS, STAGES
from ..stores import HERE, Elsewhere, begin, enter, sql

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


def lived(stage: str, end: str, place: str) -> tuple[Any, dict[str, Any]]:
    """What the child and the parent have seen."""
    done = run(program("tests.forking", stage, end, place))
    assert (done.returncode, done.stderr) == (0, "")
    child, parent = map(json.loads, done.stdout.splitlines())
    return child, parent


@pytest.mark.parametrize(
    ("stage", "end"), [(stage, end) for stage in STAGES for end in ENDS if (stage, end) != ("in a run", ENDS[1])]
)
def test_a_service_serves_both_sides_of_a_fork(stage: str, end: str, tmp_path: Path) -> None:
    """
    Wherever in its life a service is forked, both processes run with it, and neither ends a run of the other.

    The child is somebody else: it has an owner of its own, a connection of its own, and waits for the parent's runs.
    """
    path = tmp_path / "a.db"
    child, parent = lived(stage, end, str(path))
    if stage == "closed":
        assert child == "ServiceClosedError"
        return
    done = ["hi", "before", "after"]
    is_running = stage == "in a run"
    assert child["its own"] == "done"
    assert child["stored"] == done
    assert child["version"] == 0
    assert child["statuses"].count("running") == is_running
    assert child["of the parent"].partition(":")[0] == ("SessionBusyError" if is_running else "done")
    assert parent.get("went first", "done") == parent["went"] == "done"
    assert parent["child's"] == done
    before = {"used": ["outside"], "after a run": done, "in a run": done}.get(stage, [])
    assert parent["stored"] == [*before, *([] if is_running else done), *done]
    assert parent["log"], "the log is not deleted below the parent"
    assert verify(path) == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_service_in_memory_goes_on_as_two(stage: str) -> None:
    """
    After a fork each process has a copy of the sessions in memory, and runs them; what the other still runs is over.
    """
    child, parent = lived(stage, "at once", "memory")
    if stage == "closed":
        assert child == "ServiceClosedError"
        return
    assert child["of the parent"] == child["its own"] == "done"
    assert child["statuses"].count("interrupted") == (stage == "in a run")
    assert parent.get("went first", "done") == parent["went"] == "done"
    assert parent["child's"] == []


async def test_a_run_stays_on_its_side_of_a_fork(tmp_path: Path) -> None:
    """
    The copy of a run that a fork has stores nothing more, ends nothing, and gives no lease back.
    """
    async with Elsewhere(tmp_path / "a.db", durability="process") as service:
        await service.create_session(**HERE)
        writer = await enter(service)
        await begin(writer)
        there = os.getpid() + 1  # as if it had begun in another process
        writer._pid, here = there, writer._pid
        with pytest.raises(InvocationEndedError, match="the process that this one was forked from"):
            await writer.append(Event(author="a", message="not here", invocation_id="e-1"))
        await writer.record_end(InvocationStatus.FAILED)
        await writer.finish(InvocationStatus.FAILED)
        service._end_use(here)
        assert [run.status for run in await service.list_invocations()] == [InvocationStatus.RUNNING]
        [(owner,)] = sql(tmp_path / "a.db", "SELECT lease_owner FROM sessions")
        assert owner.startswith(service._leases.owner)
