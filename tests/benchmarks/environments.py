"""
The virtual environment of each peer: made once below a cache folder, with pinned versions, and used again.

    $XDG_CACHE_HOME/minirun-benchmarks/NAME-PYTHON-DIGEST, or ~/.cache/…

The digest is that of the requirements. An environment is whole when it has a file `ready`, which is written last.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from .sides import Peer, SideFailedError

# No peer tells anybody about its runs, or looks for a service to tell.
QUIET = {
    "ANONYMIZED_TELEMETRY": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "PYTHONWARNINGS": "ignore",
}


def cache() -> Path:
    """Where the environments are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minirun-benchmarks"


def folder_of(peer: Peer) -> Path:
    """Where the peer's environment is, or would be."""
    digest = hashlib.sha256("\n".join(peer.requirements).encode()).hexdigest()[:8]
    return cache() / f"{peer.name}-{sys.version_info.major}.{sys.version_info.minor}-{digest}"


# Why a peer could not be installed: it is not tried again for each scenario.
_not_installed: dict[Peer, SideFailedError] = {}


def python_of(peer: Peer) -> str:
    """
    The interpreter of the peer's environment, which is made if it does not exist.

    Raises:
        SideFailedError: What it needs cannot be installed.
    """
    if peer in _not_installed:
        raise _not_installed[peer]
    try:
        return _installed(peer)
    except (subprocess.CalledProcessError, OSError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        _not_installed[peer] = SideFailedError(f"cannot be installed: {said[-1]}")
        raise _not_installed[peer] from error


def _installed(peer: Peer) -> str:
    folder = folder_of(peer)
    scripts = "Scripts" if os.name == "nt" else "bin"
    python = folder / scripts / "python"
    if not (folder / "ready").exists():
        print(f"installing {' '.join(peer.requirements)} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "-qq", *peer.requirements]
        subprocess.run(pip, check=True, stderr=subprocess.PIPE, text=True)
        (folder / "ready").touch()
    return str(python)
