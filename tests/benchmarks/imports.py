"""
What importing costs in a fresh interpreter: minirun, what it stands on, and the least of each peer.

The statement is measured from inside, in processor time, so that neither the start of the interpreter, which is the
same for all, nor other programs on the machine hide what is measured. The first import of each has compiled.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator

import attrs

from .contest import ROOT, Figure
from .environments import QUIET, python_of
from .scale import Scale
from .sides import CHANNELS, MINIRUN, Peer, SideFailedError

MINIRUN_IMPORT = "from minirun import Runner, LlmAgent, InMemorySessionService, SqliteSessionService"
FLOOR_IMPORT = "import trio, attrs, sqlite3, json"
# With a model that is made, because what it asks through is imported then.
MODELS_IMPORT = "import minirun.models.openai as m; m.OpenAIChat('x', base_url='http://localhost/v1')"
MODELS_FLOOR_IMPORT = "import trio, attrs, httpx2, json"

TIMED_IMPORT = """
import sys, time
cpu, wall = time.process_time(), time.perf_counter()
{statement}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(cpu * 1e3, wall * 1e3, *sorted(sys.modules))
"""


@attrs.frozen
class Import:
    """What one fresh interpreter took: the statement alone, and the whole process; in ms."""

    cpu_ms: float
    wall_ms: float
    process_user_ms: float
    process_wall_ms: float
    modules: tuple[str, ...]


def import_once(statement: str, environment: dict[str, str], python: str = sys.executable) -> Import:
    """
    Run *statement* in a fresh interpreter, which finds minirun where this benchmark is.

    Raises:
        SideFailedError: It cannot be run; what the interpreter has said about it is its note.
    """
    program = [python, "-c", TIMED_IMPORT.format(statement=statement)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(program, check=False, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode != 0:
        raise failed(done)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms, wall_ms, *modules = done.stdout.split()
    user_ms = (after.ru_utime - before.ru_utime) * 1e3
    return Import(float(cpu_ms), float(wall_ms), user_ms, wall_s * 1e3, tuple(modules))


def failed(done: subprocess.CompletedProcess[str]) -> SideFailedError:
    """What to raise: the last line in short, and all that was said."""
    said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
    error = SideFailedError(said[-1])
    error.add_note("\n".join(said))
    return error


def imports(
    scale: Scale,
    peers: tuple[Peer, ...],
    scenario: str = "import",
    statement: str = MINIRUN_IMPORT,
    floor_statement: str = FLOOR_IMPORT,
) -> Iterator[Figure]:
    """What each takes, in turns; a peer that cannot be installed or imported is left out with its reason."""
    with tempfile.TemporaryDirectory() as folder:
        # Compiled, in a folder of their own: whether a machine keeps bytecode is not what is measured.
        ours = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        tasks = {
            MINIRUN: (statement, ours, sys.executable),
            CHANNELS: (floor_statement, ours, sys.executable),
        }
        left_out: dict[str, str] = {}
        for peer in peers:
            try:
                task = peer.statement, {**os.environ, **QUIET}, python_of(peer)
                import_once(*task)  # whether it can be, and its bytecode
                tasks[peer.name] = task
            except SideFailedError as error:
                left_out[peer.name] = str(error)
        taken: dict[str, list[Import]] = {name: [] for name in tasks}
        for number in range(2 * scale.rounds + 1):
            for name, task in list(tasks.items())[:: 1 if number % 2 == 0 else -1]:
                taken[name].append(import_once(*task))
    for name, (_, *rounds) in taken.items():
        figures = [one.cpu_ms for one in rounds]
        yield Figure(scenario, name, 0, "ms", figures, note=modules(name, taken), peer=name not in (MINIRUN, CHANNELS))
    for name, reason in left_out.items():
        yield Figure(scenario, name, 0, "ms", [], note=reason, peer=True)


def modules(name: str, taken: dict[str, list[Import]]) -> str:
    """How many modules were imported; of minirun's also, which the floor has not."""
    mine = set(taken[name][0].modules)
    if name != MINIRUN:
        return f"{len(mine)} modules"
    packages = Counter(module.partition(".")[0] for module in mine - set(taken[CHANNELS][0].modules))
    return f"{len(mine)} modules; more than the floor: " + ", ".join(f"{n} {m}" for n, m in packages.most_common(4))
