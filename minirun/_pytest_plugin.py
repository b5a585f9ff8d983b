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
    "simulation(seeds=100, *, reach=(), faults=(), storage='sqlite', ...): run this async test, which takes `world`, in"
    " as many simulated worlds; reach: coverage counters that must not stay 0; faults: any of 'crash', 'storage',"
    " 'model', 'tools', 'users', or 'all'; and all other options of minirun.simulation.simulate"
)
WORK = "minirun.simulation._pytest"


def pytest_configure(config: Any) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> Any:
    """
    Collect a marked test before others do, as a plain function.

    What cannot be simulated is refused, if it is marked itself. The marker of a class or a module means its async tests
    that take `world`.
    """
    if inspect.isclass(obj) or not collector.istestfunction(obj, name):
        return None
    own = [mark for mark in getattr(obj, "pytestmark", ()) if mark.name == "simulation"]
    mark = own[-1] if own else collector.get_closest_marker("simulation")
    if mark is None or not (own or (inspect.iscoroutinefunction(obj) and "world" in inspect.signature(obj).parameters)):
        return None
    plugins = collector.config.pluginmanager
    plugins.import_plugin(WORK)  # with all that it needs, now that it is needed
    work = plugins.get_plugin(WORK)
    _checked(collector, name, functools.partial(work.check_test, obj, mark))
    run = _plain(obj, work.run_test)
    setattr(collector.obj, name, run)  # pytest looks the function up again, by its name
    items = list(collector._genfunctions(name, run))
    for item in items:
        _checked(collector, name, functools.partial(work.check_item, item))
    return items


def _checked(collector: Any, name: str, check: Any) -> None:
    try:
        check()
    except ValueError as error:  # ConfigurationError is one; its module may not be imported here
        message = f"{collector.nodeid}::{name}: {error}"
        raise collector.CollectError(message) from None


def _plain(test: Any, run_test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        __tracebackhide__ = True
        run_test(functools.partial(test, *args), fixtures)

    # anyio asks for its backends, one test for each, wherever it meets an async function in a module marked `anyio`
    others = [mark for mark in getattr(test, "pytestmark", ()) if mark.args != ("anyio_backend",)]
    run.pytestmark = others  # type: ignore[attr-defined]
    return run
