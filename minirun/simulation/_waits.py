"""
What a task waits for, in words, and which tasks wait for each other.

Both are found by looking at the coroutines of tasks that are at rest.

A task's coroutine is public, and so are the owner of a lock and the children of a nursery. A wait is known by the
innermost of trio's own functions; one that is not known is told by its place in the code alone.

*Dead* is a task that waits, over locks and nurseries, for itself: nothing but a cancellation ever wakes it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, TypeAlias

import trio

from ._private import deadline_of, is_shielded

__all__ = ["Names", "Parked", "circle", "dump", "is_asleep", "waits_for"]

Task: TypeAlias = trio.lowlevel.Task
Names: TypeAlias = Mapping[Task, str]
"""All living tasks, and their logical names."""
Parked: TypeAlias = Callable[[Task], str | None]
"""The point at which a task is parked; None where it is not."""

# How many frames of a task are shown, the innermost ones.
FRAMES_MAX = 8
# How many others a line names.
OTHERS_MAX = 4


def dump(names: Names, parked: Parked) -> str:
    """All living tasks, by name: what each waits for, until when, and where in the code it stands."""
    lines = []
    for task, name in sorted(names.items(), key=lambda item: item[1]):
        label = parked(task)
        told = _wait(task, names) if label is None else f"is parked at the point {label!r}"
        lines.append(f"  {name}: {told}{_limits(task)}")
        lines += [f"      {place}" for place in _places(task)]
    return "\n".join(lines)


def _limits(task: Task) -> str:
    """Until when a task waits at most, and whether it is shielded from the cancellation of those around it."""
    deadline = deadline_of(task)
    until = "" if deadline is None or deadline == float("inf") else f", at most until {deadline:g} s"
    if deadline == -float("inf"):
        until = ", cancelled"
    return until + (", shielded" if is_shielded(task) else "")


def _places(task: Task) -> list[str]:
    """Where the task stands, outermost first, without trio's own functions."""
    places = []
    for frame in _frames(task):
        if not _is_of_trio(frame):
            code = frame.f_code
            places.append(f"in {code.co_qualname}, {code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
    more = len(places) - FRAMES_MAX
    return places if more <= 0 else [f"({more} more)", *places[more:]]


def _frames(task: Task) -> Iterator[FrameType]:
    """
    The frames of a task that is at rest, outermost first.

    `Task.iter_await_frames` ends at what `coroutine.__await__()` returns, which is how agents wait for each other.
    """
    awaited: Any = task.coro
    while awaited is not None:
        kind = next((kind for kind in ("cr", "ag", "gi") if hasattr(awaited, f"{kind}_frame")), None)
        if kind is None:  # a wrapper that shows nothing, and has what it wraps among what it refers to
            inside = gc.get_referents(awaited)
            awaited = next((each for each in inside if hasattr(each, "cr_frame") or hasattr(each, "ag_frame")), None)
            continue
        frame = getattr(awaited, f"{kind}_frame")
        if frame is not None:
            yield frame
        awaited = awaited.gi_yieldfrom if kind == "gi" else getattr(awaited, f"{kind}_await")


def _is_of_trio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("trio", "outcome")


# --- what a task waits for --------------------------------------------------------------------------------------------


def _innermost(task: Task) -> list[FrameType]:
    """The frames of trio in which the task stands, innermost first."""
    inside: list[FrameType] = []
    for frame in _frames(task):
        if _is_of_trio(frame):
            inside.append(frame)
        else:
            inside.clear()
    return inside[::-1]


def _wait(task: Task, names: Names) -> str:
    frames = _innermost(task)
    if is_asleep(task):
        return "sleeps"
    for frame in frames:
        tell = _TOLD.get(frame.f_code.co_qualname)
        if tell is not None:
            return tell(frame.f_locals, names)
    is_waiting = any(frame.f_code.co_name == "wait_task_rescheduled" for frame in frames)
    return "waits for another task to reschedule it" if is_waiting else "can go on"


def _name(of: Any, names: Names) -> str:
    if not isinstance(of, trio.lowlevel.Task):
        return "nobody" if of is None else f"a {type(of).__name__}"
    return names.get(of, f"{of.name} (which has ended)")


def _several(found: Iterable[Any], names: Names) -> str:
    told = sorted(_name(each, names) for each in found)
    return ", ".join(told[:OTHERS_MAX]) + (f" and {len(told) - OTHERS_MAX} more" if len(told) > OTHERS_MAX else "")


def _lock(seen: Mapping[str, Any], names: Names) -> str:
    return f"waits for a {type(seen['self']).__name__} held by {_name(seen['self'].statistics().owner, names)}"


def _limiter(seen: Mapping[str, Any], names: Names) -> str:
    found = seen["self"].statistics()
    return (
        f"waits for a CapacityLimiter, {found.borrowed_tokens:g} of {found.total_tokens:g} borrowed,"
        f" by {_several(found.borrowers, names)}"
    )


def _semaphore(seen: Mapping[str, Any], names: Names) -> str:
    return f"waits for a Semaphore, whose value is {seen['self'].value}"


def _event(seen: Mapping[str, Any], names: Names) -> str:
    others = seen["self"].statistics().tasks_waiting - 1
    return "waits for an Event" + (f", as {others} others do" if others else "")


def _condition(seen: Mapping[str, Any], names: Names) -> str:
    return "waits for a Condition to be notified"


def _sending(seen: Mapping[str, Any], names: Names) -> str:
    found = seen["self"].statistics()
    return f"waits to send into a memory channel{_channel(found)}, {found.open_receive_channels} open receivers"


def _receiving(seen: Mapping[str, Any], names: Names) -> str:
    found = seen["self"].statistics()
    return f"waits to receive from a memory channel{_channel(found)}, {found.open_send_channels} open senders"


def _channel(found: Any) -> str:
    return f" of {found.current_buffer_used} of {found.max_buffer_size:g} items"


def _nursery(seen: Mapping[str, Any], names: Names) -> str:
    children = seen["self"].child_tasks
    return f"waits for {_several(children, names)}" if children else "comes to the end of a nursery"


_TOLD: Mapping[str, Callable[[Mapping[str, Any], Names], str]] = {
    "_LockImpl.acquire": _lock,
    "CapacityLimiter.acquire_on_behalf_of": _limiter,
    "Semaphore.acquire": _semaphore,
    "Event.wait": _event,
    "Condition.wait": _condition,
    "MemorySendChannel.send": _sending,
    "MemoryReceiveChannel.receive": _receiving,
    "Nursery._nested_child_finished": _nursery,
    "sleep_forever": lambda seen, names: "sleeps for ever",
    "wait_all_tasks_blocked": lambda seen, names: "waits until all others are blocked",
}


def is_asleep(task: Task) -> bool:
    """Whether the task waits for nothing but a time."""
    return any(frame.f_code.co_qualname in ("sleep", "sleep_until") for frame in _innermost(task))


# --- which tasks wait for each other ----------------------------------------------------------------------------------


def waits_for(task: Task) -> list[Task]:
    """The tasks of which each has to go on before this one can: the owner of a lock, the children of a nursery."""
    for frame in _innermost(task):
        if frame.f_code.co_qualname == "_LockImpl.acquire":
            owner = frame.f_locals["self"].statistics().owner
            return [] if owner is None else [owner]
        if frame.f_code.co_qualname == "Nursery._nested_child_finished":
            return list(frame.f_locals["self"].child_tasks)
    return []


def circle(names: Names) -> list[Task]:
    """Tasks of which each waits for the next, and the last for the first; none if there is no such circle."""
    # A task that waits for a lock is in a parking lot; so most of the time nobody's coroutines have to be looked at.
    waiting = [task for task in names if isinstance(task.custom_sleep_data, trio.lowlevel.ParkingLot)]
    followed: set[Task] = set()
    for start in sorted(waiting, key=names.__getitem__):
        found = _circle_from(start, names, [], followed)
        if found:
            return found
    return []


def _circle_from(task: Task, names: Names, path: list[Task], followed: set[Task]) -> list[Task]:
    if task in path:
        return path[path.index(task) :]
    if task in followed:
        return []
    followed.add(task)
    for other in sorted(waits_for(task), key=lambda each: names.get(each, "")):
        found = _circle_from(other, names, [*path, task], followed)
        if found:
            return found
    return []
