"""
The marker `simulation` for pytest. Every pytest beside an installed minirun loads this; it imports nothing but pytest.

A test that is marked so is one of minirun's, whatever modes of other plugins claim every async function: it is handed
to pytest as a plain function that runs its seeds.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

__all__: list[str] = []

MARKER = (
    "simulation(seeds=100, faults=(), storage='sqlite'): run this async test, which takes `world`, in as many simulated"
    " worlds; faults: any of 'crash', 'storage', 'model', 'tools', 'users', or 'all'"
)


def pytest_configure(config: Any) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> Any:
    """Collect a marked coroutine function before others do, as a plain function."""
    marks = [mark for mark in getattr(obj, "pytestmark", ()) if mark.name == "simulation"]
    if not marks or not inspect.iscoroutinefunction(obj):
        return None
    plugins = collector.config.pluginmanager
    plugins.import_plugin("minirun.simulation._pytest")  # with all that it needs, now that it is needed
    run_test = plugins.get_plugin("minirun.simulation._pytest").run_test
    node = f"{collector.nodeid}::{name}"

    @functools.wraps(obj)
    def run(*args: Any, **fixtures: Any) -> None:
        run_test(functools.partial(obj, *args), fixtures, node, *marks[0].args, **marks[0].kwargs)

    setattr(collector.obj, name, run)  # pytest looks the function up again, by its name
    return list(collector._genfunctions(name, run))
