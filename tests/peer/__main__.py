"""`python -m tests.peer DIRECTORY`: write the columns of the peer's traces in a directory to the fixtures."""

from __future__ import annotations

import sys
from pathlib import Path

from . import workflow_differences, workflow_play
from .columns import FIXTURES, extract, write
from .differences import FILES, OUT_OF_SCOPE


def main(directory: Path) -> None:
    """Write one fixture for each file of traces."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (path,) = directory.glob(f"{name}_*.jsonl")
        with path.open(encoding="utf-8") as trace:
            scenarios = extract(trace, with_prompts=name == "t07")
        kept = [played for played in scenarios if (name, played.title) not in OUT_OF_SCOPE]
        write(FIXTURES / f"{name}.json", kept)
        print(f"{name}: {len(kept)} of {len(scenarios)} scenarios")
    for name in workflow_play.FILES:
        (path,) = directory.glob(f"{name}_*.jsonl")
        with path.open(encoding="utf-8") as trace:
            scenarios = workflow_play.extract_workflows(trace)
        kept = [played for played in scenarios if (name, played.title) not in workflow_differences.OUT_OF_SCOPE]
        write(FIXTURES / f"{name}.json", kept)
        print(f"{name}: {len(kept)} of {len(scenarios)} scenarios")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected the directory with the traces: python -m tests.peer DIRECTORY")
    main(Path(sys.argv[1]))
