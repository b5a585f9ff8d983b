"""
Simulation: a world in which everything that may go wrong does so on purpose, and again in the same way.

The map:

    _disk   what a power cut may leave of what was done to a disk: a model, pure
    _vfs    a disk below the real SQLite that records what is done to it, and fails where it is told to
"""

from ._disk import CUTS as CUTS
from ._disk import Change as Change
from ._disk import Cut as Cut
from ._disk import Delete as Delete
from ._disk import Disk as Disk
from ._disk import Entry as Entry
from ._disk import Image as Image
from ._disk import Luck as Luck
from ._disk import Mark as Mark
from ._disk import Sync as Sync
from ._disk import Truncate as Truncate
from ._disk import Write as Write
from ._disk import write_image as write_image
from ._vfs import DiskEnv as DiskEnv
from ._vfs import Fault as Fault
from ._vfs import Operation as Operation
from ._vfs import RecordingVFS as RecordingVFS
from ._vfs import why_unavailable as why_unavailable

__all__ = [
    "CUTS",
    "Change",
    "Cut",
    "Delete",
    "Disk",
    "DiskEnv",
    "Entry",
    "Fault",
    "Image",
    "Luck",
    "Mark",
    "Operation",
    "RecordingVFS",
    "Sync",
    "Truncate",
    "Write",
    "why_unavailable",
    "write_image",
]
