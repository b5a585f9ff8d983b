"""
For pytest: the marker `simulation`, the fixture `cassette`, and `--record-models`.

Every pytest beside an installed minirun loads this; it imports nothing but pytest before somebody uses one of them.

A test that is marked so is one of minirun's, whatever modes of other plugins claim every async function: it is handed
to pytest as a plain function that runs its seeds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

__all__: list[str] = []

MARKER = (
    "simulation(seeds=100, *, reach=(), faults=(), processes=1, ...): run this async test, which takes `world`, in as"
    " many simulated worlds; reach: coverage counters that must not stay 0; faults: any of 'crash', 'storage', 'model',"
    " 'tools', 'users', or 'all'; processes: how many serve the users; store and observers: as"
    " minirun.simulation.simulate takes them"
)
WORK = "minirun.simulation._pytest"

_HAS_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: Any) -> None:
    """Add the option that records. Nothing else does: without it no test asks a model through `cassette`."""
    parser.getgroup("minirun").addoption(
        "--record-models",
        action="store_true",
        help="ask the models that tests give to the fixture `cassette`, and record anew what they answer; without it"
        " their cassettes answer, and no model is asked",
    )


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


# --- cassettes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[Any]:
    """
    Return recorded models: `cassette(model)` replays `cassettes/MODULE/TEST.json`, in the folder of the test.

    With `pytest --record-models` the model is called and recorded. A test that passes without using every exchange
    fails. A test that is marked `simulation` records nothing and is not checked so: its worlds replay the cassette
    of another test, which has that `name`.
    """
    from minirun.testing._cassettes import Cassettes  # few tests use it

    node, plugins = request.node, request.config.pluginmanager
    if not plugins.has_plugin(_Outcomes.__name__):
        plugins.register(_Outcomes(), _Outcomes.__name__)
    is_simulated = node.get_closest_marker("simulation") is not None
    records = request.config.getoption("--record-models") and not is_simulated
    test = ".".join(node.nodeid.split("::")[1:])
    cassettes = Cassettes(node.path, test, records=records)
    try:
        yield cassettes
    finally:
        for _, model in cassettes.models:
            model.close()
    for _, model in cassettes.models if node.stash.get(_HAS_PASSED, False) and not is_simulated else ():
        model.assert_done()


class _Outcomes:
    """Notes which tests have passed, for what is checked after them. Registered when the first one needs it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Note it."""
        if call.when == "call":
            item.stash[_HAS_PASSED] = call.excinfo is None
