"""
The frame of a contract: what a kind of service promises, as checks that the author of such a service can run.

    async def test_my_service() -> None:
        await check_session_service(MySessionService)

The factory returns a service, or any async context manager that gives one; it is entered once or more often for each
check. Every check works under an app name of its own, so the factory may as well open the same store again and again;
say `durable=True` if it does, and what must survive is checked too.

A check that fails raises an AssertionError with a note that names it. Nothing here needs pytest.

The checks say `expect` where a test would say `assert`, so that they also check under `python -O`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import trio

from .._json import brief
from .._service import BaseService
from ..errors import MinirunError

__all__ = ["BaseBench", "Body", "Check", "Contract", "Factory", "expect", "listed_in", "raises"]

_Service = TypeVar("_Service", bound=BaseService)
_Bench = TypeVar("_Bench", bound="BaseBench[Any]")

Factory: TypeAlias = Callable[[], AbstractAsyncContextManager[_Service]]
Check: TypeAlias = Callable[[Factory[_Service]], Awaitable[None]]
Body: TypeAlias = Callable[[_Bench], Awaitable[None]]

# On trio's clock, so that a service that waits for ever fails its check; the longest takes below 1 s on a disk.
CHECK_S_MAX = 60.0


class BaseBench(Generic[_Service]):
    """One service under test. Each kind adds short forms of its operations on one app."""

    def __init__(self, factory: Factory[_Service]) -> None:
        self._factory = factory
        self.app = ""
        self.service: _Service

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[_Service]:
        """Open the service, or open it again."""
        async with self._factory() as service:
            if not self.app:
                self.app = "contract-" + re.sub(r"[^A-Za-z0-9]", "-", service.env.new_id("contract"))
            self.service = service
            yield service


@attrs.frozen(kw_only=True)
class Contract(Generic[_Service, _Bench]):
    """
    All that one kind of service promises.

    Args:
        kind: What such a service is called, for the note of a check that fails.
        bench: What a check is given, made of the factory.
        once: The checks of a service that was opened, by name.
        again: Those that open the service themselves, and find what was stored by then.
    """

    kind: str
    bench: Callable[[Factory[_Service]], _Bench]
    once: Mapping[str, Body[_Bench]]
    again: Mapping[str, Body[_Bench]]

    async def check(self, factory: Factory[_Service], *, durable: bool) -> None:
        """Run every check on the service that *factory* makes."""
        for check in self.checks(durable=durable).values():
            await check(factory)

    def checks(self, *, durable: bool) -> dict[str, Check[_Service]]:
        """Return the checks by name, to be run one by one; those that open again only if *durable*."""
        bodies: dict[str, Body[_Bench]] = {name: partial(_opened, body) for name, body in self.once.items()}
        if durable:
            bodies.update(self.again)
        return {name: partial(self._run, name, body) for name, body in bodies.items()}

    async def _run(self, name: str, body: Body[_Bench], factory: Factory[_Service]) -> None:
        try:
            with trio.fail_after(CHECK_S_MAX):
                await body(self.bench(factory))
        except Exception as error:
            error.add_note(f"this breaks the {self.kind}'s promise: {name.replace('_', ' ')}")
            raise


async def _opened(body: Body[_Bench], bench: _Bench) -> None:
    async with bench.opened():
        await body(bench)


def listed_in(table: dict[str, Body[_Bench]]) -> Callable[[Body[_Bench]], Body[_Bench]]:
    """A decorator that puts a check into *table*, under its name."""

    def put(body: Body[_Bench]) -> Body[_Bench]:
        table[body.__name__.strip("_")] = body
        return body

    return put


def expect(what: str, found: object, expected: object) -> None:
    """What was found is what was expected."""
    if found != expected:
        msg = f"{what}: expected {brief(expected, 400)}, found {brief(found, 400)}"
        raise AssertionError(msg)


@contextmanager
def raises(kind: type[MinirunError], *words: str) -> Iterator[None]:
    """The block raises exactly this kind of error, and its message has all these words."""
    try:
        yield
    except MinirunError as error:
        if type(error) is not kind:
            msg = f"expected {kind.__name__}, found {error!r}"
            raise AssertionError(msg) from error
        missing = [word for word in words if word not in str(error)]
        expect(f"words in the message {str(error)!r} of {kind.__name__}, missing", missing, [])
    else:
        msg = f"expected {kind.__name__}, found no error"
        raise AssertionError(msg)
