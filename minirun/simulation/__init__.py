"""
Simulation: a world in which everything that may go wrong does so on purpose, and again in the same way.

The map:

    _choices   where everything that may go one way or another is decided: by a seed, a list, hypothesis, exhaustively
    _schedule  which task goes on next: a gate at every point, driven when nothing else can go on
    _clock     virtual time, which opens the gate
    _hangs     a world that does not come to its end is ended, and says which task waits for what
    _waits     what a task waits for, in words, and which tasks wait for each other
    _watchdog  real time, for code that never gives control back
    _private   trio's own randomness, made to follow from a seed; the only place that knows trio's internals
    _env       what a simulated process sees of the world: time, ids, no threads
    _guard     nothing else of the machine may be used
    _store     what outlives a process: _memory_store, of dicts, and _sqlite_store, on a disk
    _faults    what may go wrong, by name, and when
    _checks    what must hold in every world
    _artifacts what processes use for artifacts, and what must hold of them
    _memories  the same for memories
    _credentials  those of a world
    _world     what a scenario is given, the course of it, and the checks at its end
    _processes those who serve the users: how they begin and die
    _mishaps   what goes wrong, to whom, and how
    _witness   is told what is stored, and keeps the ledger
    _saying    users, who ask until they are answered
    _chaos     a model that calls the tools it is offered, and has bad days
    _simulate  one simulation and its outcome, or some, one after another
    _report    a failure in words
    _strategy  worlds(), for hypothesis: imported when it is asked for
    _behaviour what a world has met together: what makes an input worth to be kept
    _mutate    choices that are almost those of another simulation
    _corpus    inputs that guide a search, and their files
    _explore   many seeds: what fails is made small, what is not the same twice is found
    _kept      failures in files, to be tried again
    _pytest    the marker `simulation`

    _disk      what a power cut may leave of what was done to a disk: a model, pure
    _vfs       a disk below the real SQLite that records what is done to it, and fails where it is told to
"""

from typing import TYPE_CHECKING, Any

from .._web import WebAnswer as WebAnswer
from .._web import WebFailedError as WebFailedError
from ..errors import MinirunError
from ._chaos import ChaosLlm as ChaosLlm
from ._choices import Choice as Choice
from ._choices import Choices as Choices
from ._choices import DrawnChoices as DrawnChoices
from ._choices import RecordedChoices as RecordedChoices
from ._choices import SeededChoices as SeededChoices
from ._choices import depth_first as depth_first
from ._corpus import Corpus as Corpus
from ._corpus import CorpusError as CorpusError
from ._disk import CUTS as CUTS
from ._disk import Change as Change
from ._disk import Cut as Cut
from ._disk import Delete as Delete
from ._disk import Disk as Disk
from ._disk import Entry as Entry
from ._disk import Image as Image
from ._disk import Mark as Mark
from ._disk import Randomness as Randomness
from ._disk import Sync as Sync
from ._disk import Truncate as Truncate
from ._disk import Write as Write
from ._disk import write_image as write_image
from ._explore import CoverageError as CoverageError
from ._explore import Explored as Explored
from ._explore import NondeterminismError as NondeterminismError
from ._explore import explore as explore
from ._explore import shrink as shrink
from ._guard import LeakError as LeakError
from ._hangs import DeadlockError as DeadlockError
from ._hangs import LivelockError as LivelockError
from ._hangs import RunawayClockError as RunawayClockError
from ._simulate import Outcome as Outcome
from ._simulate import UnreadableError as UnreadableError
from ._simulate import simulate as simulate
from ._vfs import DiskEnv as DiskEnv
from ._vfs import Fault as Fault
from ._vfs import Operation as Operation
from ._vfs import RecordingVFS as RecordingVFS
from ._vfs import why_unavailable as why_unavailable
from ._watchdog import WatchdogError as WatchdogError
from ._world import CheckError as CheckError
from ._world import LogEntry as LogEntry
from ._world import World as World

if TYPE_CHECKING:
    from ._strategy import worlds as worlds

__all__ = [
    "CUTS",
    "Change",
    "ChaosLlm",
    "CheckError",
    "Choice",
    "Choices",
    "Corpus",
    "CorpusError",
    "CoverageError",
    "Cut",
    "DeadlockError",
    "Delete",
    "Disk",
    "DiskEnv",
    "DrawnChoices",
    "Entry",
    "Explored",
    "Fault",
    "Image",
    "LeakError",
    "LivelockError",
    "LogEntry",
    "Mark",
    "MissingExtraError",
    "NondeterminismError",
    "Operation",
    "Outcome",
    "Randomness",
    "RecordedChoices",
    "RecordingVFS",
    "RunawayClockError",
    "SeededChoices",
    "Sync",
    "Truncate",
    "UnreadableError",
    "WatchdogError",
    "WebAnswer",
    "WebFailedError",
    "World",
    "Write",
    "depth_first",
    "explore",
    "shrink",
    "simulate",
    "why_unavailable",
    "write_image",
]


class MissingExtraError(MinirunError, ImportError):
    """Something was asked for that needs a package which minirun alone does not bring."""


def __getattr__(name: str) -> Any:
    if name != "worlds":  # not in __all__: `import *` shall not need hypothesis
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        from ._strategy import worlds
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "hypothesis":
            raise
        msg = 'worlds() needs hypothesis; run: pip install "minirun[simulation]"'
        raise MissingExtraError(msg) from error
    return worlds
