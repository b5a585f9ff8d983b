"""
Simulation: a world in which everything that may go wrong does so on purpose, and again in the same way.

The map:

    _choices   where everything that may go one way or another is decided: by a seed, a list, exhaustively
    _schedule  which task goes on next: a gate at every point, driven when nothing else can go on
    _clock     virtual time, which opens the gate
    _hangs     a world that does not come to its end is ended, and says which task waits for what
    _waits     what a task waits for, in words, and which tasks wait for each other
    _watchdog  real time, for code that never gives control back
    _private   trio's own randomness, made to follow from a seed; the only place that knows trio's internals
    _env       what a simulated process sees of the world: time, ids, no threads
    _guard     nothing else of the machine may be used
    _store     what outlives a process, and the observers that are told what it stores
    _memory_store  the store that is used by default, with its faults and leases
    _services  artifacts, memories and credentials that outlive the processes
    _faults    what may go wrong, by name, and when
    _world     what a scenario is given, the course of it, and the checks at its end
    _processes those who serve the users: how they begin and die
    _mishaps   what goes wrong, to whom, and how
    _saying    users, who ask until they are answered
    _chaos     a model that calls the tools it is offered, and has bad days
    _simulate  one simulation and its outcome
    _report    a failure in words
    _explore   many seeds: what fails is made small, what is not the same twice is found
    _kept      failures in files, to be tried again
    _pytest    the marker `simulation`

The simulation of minirun's own SQLite store, on a disk that fails, is in the tests of minirun; it is plugged in as
`store=` and `observers=`.
"""

from .._web import WebAnswer as WebAnswer
from .._web import WebFailedError as WebFailedError
from ._chaos import ChaosLlm as ChaosLlm
from ._choices import Choice as Choice
from ._choices import Choices as Choices
from ._choices import RecordedChoices as RecordedChoices
from ._choices import SeededChoices as SeededChoices
from ._choices import depth_first as depth_first
from ._explore import CoverageError as CoverageError
from ._explore import Explored as Explored
from ._explore import NondeterminismError as NondeterminismError
from ._explore import explore as explore
from ._explore import shrink as shrink
from ._guard import LeakError as LeakError
from ._hangs import DeadlockError as DeadlockError
from ._hangs import LivelockError as LivelockError
from ._hangs import RunawayClockError as RunawayClockError
from ._memory_store import MemoryStore as MemoryStore
from ._processes import Process as Process
from ._simulate import Outcome as Outcome
from ._simulate import UnreadableError as UnreadableError
from ._simulate import simulate as simulate
from ._store import Observer as Observer
from ._store import Store as Store
from ._watchdog import WatchdogError as WatchdogError
from ._world import CheckError as CheckError
from ._world import LogEntry as LogEntry
from ._world import World as World

__all__ = [
    "ChaosLlm",
    "CheckError",
    "Choice",
    "Choices",
    "CoverageError",
    "DeadlockError",
    "Explored",
    "LeakError",
    "LivelockError",
    "LogEntry",
    "MemoryStore",
    "NondeterminismError",
    "Observer",
    "Outcome",
    "Process",
    "RecordedChoices",
    "RunawayClockError",
    "SeededChoices",
    "Store",
    "UnreadableError",
    "WatchdogError",
    "WebAnswer",
    "WebFailedError",
    "World",
    "depth_first",
    "explore",
    "shrink",
    "simulate",
]
