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

from .._web import WebAnswer, WebFailedError
from ._chaos import ChaosLlm
from ._choices import Choice, Choices, RecordedChoices, SeededChoices, depth_first
from ._explore import CoverageError, Explored, NondeterminismError, explore, shrink
from ._guard import LeakError
from ._hangs import DeadlockError, LivelockError, RunawayClockError
from ._memory_store import MemoryStore
from ._processes import Process
from ._simulate import Outcome, UnreadableError, simulate
from ._store import ObservedService, Observer, Store
from ._watchdog import WatchdogError
from ._world import CheckError, LogEntry, World

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
    "ObservedService",
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
